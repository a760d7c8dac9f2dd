use feedline_schemas::{
    amendment::{Withdrawn, WithdrawnReason},
    commit::{BatchCounts, Compacted, DataFile, Position, Replaced, SourceState},
    ids::{Hash128, SchemaVersion},
    log_effect::index_of,
    record::{Column, ColumnType, RecordSchema},
};
use feedline_storage::clock::{Clock as _, SystemClock};
use proptest::prelude::*;
use tokio::runtime::Builder;

use super::*;
use crate::{
    batch::Encoded,
    commit_log::{Commit, CommitLog, entry_path},
    log_entries::Kept,
    supersede::set_aside,
};

/// Entries after which a snapshot is written, in these tests.
const FEW: u64 = 4;

fn name() -> Name {
    Name::new("s").unwrap()
}

fn landing(root: &Store) -> Store {
    root.child("landing/s")
}

async fn open(root: &Store) -> CommitLog {
    let hash = Hash128::of(b"settings");
    let mut log = CommitLog::open(root, &name(), "run", hash).await.unwrap();
    log.snapshot_every(FEW);
    log
}

/// A small Parquet file of the next entry.
fn file(log: &CommitLog, content: &str) -> Encoded {
    let mut bytes = b"PAR1".to_vec();
    bytes.extend(content.as_bytes());
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend(b"PAR1");
    let hash = Hash128::of(&bytes);
    let file = DataFile {
        path: format!("data/{:020}-{}.parquet", log.next_sequence(), hash.short()),
        rows: 2,
        bytes: bytes.len() as u64,
        hash,
    };
    let bytes = bytes.into();
    Encoded { file, bytes }
}

fn schema() -> RecordSchema {
    RecordSchema {
        version: SchemaVersion::new(1),
        columns: vec![Column {
            field_id: 1,
            name: "id".into(),
            r#type: ColumnType::Int64,
            whole: false,
        }],
    }
}

/// Lands a batch of one file.
async fn land(log: &mut CommitLog) {
    let number = log.next_sequence().get();
    let encoded = file(log, &number.to_string());
    let counts = BatchCounts {
        rows: 2,
        pages: 1,
        ..BatchCounts::default()
    };
    let mut commit = match log.last() {
        Some(last) => Commit::amending(last),
        None => empty(),
    };
    commit.schema = schema();
    commit.files = vec![encoded.file.clone()];
    commit.state.totals.rows += 2;
    commit.state.position = Position::Page {
        page: number,
        cursor: None,
        run: Default::default(),
    };
    commit.counts = counts;
    log.put(encoded).await.unwrap();
    log.append(commit).await.unwrap();
}

fn empty() -> Commit {
    Commit {
        schema: schema(),
        files: Vec::new(),
        rejects: Vec::new(),
        frontier: Vec::new(),
        validators: Vec::new(),
        raw: Vec::new(),
        children: Default::default(),
        parts: Vec::new(),
        replaced: Vec::new(),
        compacted: Vec::new(),
        marks: Vec::new(),
        counts: BatchCounts::default(),
        settings: None,
        withdrawn: Vec::new(),
        reset_to: None,
        rewound_to: None,
        expired: Vec::new(),
        state: SourceState::default(),
    }
}

/// A step of a history; the numbers choose entries.
#[derive(Clone, Debug)]
enum HistoryStep {
    Land,
    Supersede(usize),
    Delete(usize),
    Merge(usize, usize),
    Rewind(usize),
    Reset,
    Open,
}

fn step() -> impl Strategy<Value = HistoryStep> {
    prop_oneof![
        8 => Just(HistoryStep::Land),
        1 => (0_usize..64).prop_map(HistoryStep::Supersede),
        1 => (0_usize..64).prop_map(HistoryStep::Delete),
        2 => ((0_usize..64), (1_usize..12)).prop_map(|(from, count)| HistoryStep::Merge(from, count)),
        1 => (0_usize..64).prop_map(HistoryStep::Rewind),
        1 => Just(HistoryStep::Reset),
        3 => Just(HistoryStep::Open),
    ]
}

async fn apply(log: &mut CommitLog, step: &HistoryStep) {
    let entries = log.entries();
    let Some(last) = entries.last() else {
        return land(log).await;
    };
    let mut commit = Commit::amending(last);
    let chosen = |number: usize| &entries[number % entries.len()];
    let mut written = Vec::new();
    match step {
        HistoryStep::Land | HistoryStep::Open => return land(log).await,
        HistoryStep::Supersede(number) => {
            let entry = chosen(*number);
            let encoded = file(log, "superseding");
            let files = vec![encoded.file.clone()];
            commit.replaced = vec![Replaced::same_rows(entry.sequence, files)];
            written.push(encoded);
        }
        HistoryStep::Delete(number) => {
            let entry = chosen(*number);
            let files = entry.files.iter().map(|file| file.path.clone());
            commit.withdrawn = vec![Withdrawn {
                sequence: entry.sequence,
                reason: WithdrawnReason::Deleted,
                files: files.collect(),
            }];
        }
        HistoryStep::Merge(from, count) => {
            let from = from % entries.len();
            let to = (from + count).min(entries.len() - 1);
            let encoded = file(log, "merged");
            commit.compacted = vec![Compacted {
                first: entries[from].sequence,
                last: entries[to].sequence,
                files: vec![encoded.file.clone()],
                children: Default::default(),
            }];
            written.push(encoded);
        }
        HistoryStep::Rewind(number) => commit.rewound_to = Some(chosen(*number).sequence),
        HistoryStep::Reset => {
            commit = empty();
            commit.reset_to = Some(format!("s.{}", log.next_sequence()));
        }
    }
    for encoded in written {
        log.put(encoded).await.unwrap();
    }
    log.append(commit).await.unwrap();
    let gone = log.take_gone();
    set_aside(log.landing(), &gone).await.unwrap();
}

/// Entries as they count, without what only the newest ones have.
fn settled(mut entries: Vec<CommitEntry>) -> Vec<CommitEntry> {
    entries.iter_mut().for_each(settle);
    entries
}

/// Compares the log with what a reader gets from its snapshot and the entries after it.
async fn check(root: &Store) {
    let landing = landing(root);
    let (entries, hash) = log::all_entries(&landing, &name(), None).await.unwrap();
    let mut all = Vec::new();
    for entry in entries {
        log_effect::push(&mut all, entry);
    }
    let opened = LogEntries::open(&landing, &name(), Kept::All)
        .await
        .unwrap();
    assert!(opened.warning().is_none());
    assert_eq!(opened.last(), all.last());
    assert_eq!(opened.last_hash(), hash);
    let mut opened = opened;
    let sums = opened.sums().await.unwrap();
    assert_eq!(sums, LogSums::default().with(&all));
    opened.load_all().await.unwrap();
    assert_eq!(settled(opened.into_all()), settled(all.clone()));
    let (read, read_hash) = log::read_all(&landing, &name(), None).await.unwrap();
    assert_eq!((settled(read), read_hash), (settled(all.clone()), hash));
    let newest = log::newest_sequence(&landing).await.unwrap();
    assert_eq!(newest, all.last().map(|last| last.sequence.get()));
    let at = all.len() / 2;
    let part = LogEntries::open_at(&landing, &name(), Kept::All, Some(all[at].sequence));
    let mut part = part.await.unwrap();
    part.load_all().await.unwrap();
    assert_eq!(part.all().len(), at + 1);
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_snapshot_and_the_entries_after_it_give_what_all_entries_give(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        run(async {
            let root = Store::memory();
            let mut log = open(&root).await;
            for step in &steps {
                if matches!(step, HistoryStep::Open) {
                    log = open(&root).await;
                }
                apply(&mut log, step).await;
            }
            check(&root).await;
        });
    }
}

/// Lands batches by two writers, one after the other: the second one compares the files of the first.
async fn long(root: &Store, entries: u64) {
    for end in [entries / 2, entries] {
        let mut log = open(root).await;
        while log.next_sequence().get() < end {
            land(&mut log).await;
        }
    }
}

#[tokio::test]
async fn opening_reads_the_entries_after_the_newest_snapshot_alone() {
    let root = Store::memory();
    long(&root, 40 * FEW + 2).await;
    let landing = landing(&root);
    let heads = landing.list(HEADS).await.unwrap();
    assert!(heads.len() <= MOST_HEADS, "{}", heads.len());
    // Entries before the snapshot are not read, and their files not looked for.
    for sequence in 0..40 * FEW - 1 {
        landing.delete(&entry_path(sequence)).await.unwrap();
    }
    let hash = Hash128::of(b"settings");
    let mut log = CommitLog::open_tail(&root, &name(), "run", hash)
        .await
        .unwrap();
    log.snapshot_every(FEW);
    assert_eq!(log.next_sequence().get(), 40 * FEW + 2);
    for _ in 0..FEW {
        land(&mut log).await;
    }
    for _ in 0..9 * FEW {
        land(&mut log).await;
        assert!(
            log.entries().len() as u64 <= 2 * FEW + NEWEST as u64,
            "{}",
            log.entries().len()
        );
    }
    log.load_rows(30).await.unwrap();
    let rows: u64 = log
        .entries()
        .iter()
        .flat_map(|e| &e.files)
        .map(|f| f.rows)
        .sum();
    assert!(rows >= 30, "{rows}");
    log.load_all().await.unwrap();
    assert_eq!(log.entries().len() as u64, 50 * FEW + 2);
}

#[tokio::test]
async fn parts_grow_so_that_there_are_few() {
    let root = Store::memory();
    long(&root, 256 * FEW).await;
    let opened = LogEntries::open(&landing(&root), &name(), Kept::All)
        .await
        .unwrap();
    let parts = &opened.snapshot().unwrap().parts;
    assert!(parts.len() <= 9, "{}", parts.len());
    let sizes: Vec<u64> = parts.iter().map(LogPart::entries).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    let listed = landing(&root).list(PARTS).await.unwrap();
    assert!(listed.len() < 64, "{}", listed.len());
}

/// Damages the snapshots of a log, and checks that it is read all the same.
async fn check_damage(harm: impl AsyncFn(&Store), is_noticed_at_once: bool) {
    let root = Store::memory();
    long(&root, 10 * FEW + 1).await;
    let landing = landing(&root);
    harm(&landing).await;
    let mut opened = LogEntries::open(&landing, &name(), Kept::Newest)
        .await
        .unwrap();
    assert_eq!(opened.warning().is_some(), is_noticed_at_once);
    opened.load_all().await.unwrap();
    assert!(opened.warning().is_some());
    assert_eq!(opened.all().len() as u64, 10 * FEW + 1);
    assert!(opened.all().iter().all(|entry| entry.files.len() == 1));
    // The next writer makes new ones.
    let mut log = open(&root).await;
    for _ in 0..FEW {
        land(&mut log).await;
    }
    let sequence = Some(log.next_sequence());
    let opened = LogEntries::open(&landing, &name(), Kept::All)
        .await
        .unwrap();
    assert!(
        opened.snapshot().map(|s| s.sequence.next())
            >= sequence.map(|s| { Sequence::new(s.get() - FEW) })
    );
}

#[tokio::test]
async fn a_damaged_snapshot_is_passed_over_with_a_warning() {
    let newest = async |landing: &Store, folder: &str| {
        landing
            .list(folder)
            .await
            .unwrap()
            .last()
            .unwrap()
            .path
            .clone()
    };
    let harm = async |landing: &Store| {
        let path = newest(landing, HEADS).await;
        landing.put(&path, "other bytes".into()).await.unwrap();
    };
    check_damage(harm, true).await;
    let harm = async |landing: &Store| {
        for part in landing.list(PARTS).await.unwrap() {
            landing.put(&part.path, "other bytes".into()).await.unwrap();
        }
    };
    check_damage(harm, false).await;
    let harm = async |landing: &Store| {
        for part in landing.list(PARTS).await.unwrap() {
            landing.delete(&part.path).await.unwrap();
        }
    };
    check_damage(harm, false).await;
}

#[tokio::test]
async fn a_snapshot_of_a_truncated_log_is_passed_over() {
    let root = Store::memory();
    long(&root, 5 * FEW).await;
    let landing = landing(&root);
    for sequence in 3 * FEW..5 * FEW {
        landing.delete(&entry_path(sequence)).await.unwrap();
    }
    let opened = LogEntries::open(&landing, &name(), Kept::All)
        .await
        .unwrap();
    assert_eq!(opened.next_sequence().get(), 3 * FEW);
    assert!(opened.warning().is_some());
    assert!(
        opened
            .snapshot()
            .is_some_and(|s| s.sequence.get() < 3 * FEW)
    );
}

#[tokio::test]
async fn a_gap_after_the_snapshot_is_an_error() {
    let root = Store::memory();
    long(&root, 5 * FEW).await;
    let landing = landing(&root);
    let covered = {
        let opened = LogEntries::open(&landing, &name(), Kept::All)
            .await
            .unwrap();
        opened.snapshot().unwrap().sequence.get()
    };
    let mut log = open(&root).await;
    log.snapshot_every(u64::MAX);
    for _ in 0..5 {
        land(&mut log).await;
    }
    landing.delete(&entry_path(covered + 2)).await.unwrap();
    let error = LogEntries::open(&landing, &name(), Kept::All)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Log { .. }), "{error}");
}

#[tokio::test]
async fn a_file_that_a_killed_writer_left_behind_is_found_beside_a_snapshot() {
    let root = Store::memory();
    long(&root, 20 * FEW + 1).await;
    let landing = landing(&root);
    let mut log = open(&root).await;
    let lost = file(&log, "lost");
    log.put(lost.clone()).await.unwrap();
    drop(log);
    let log = open(&root).await;
    assert_eq!(log.tidied()[0].code, "files_moved_to_orphans");
    assert!(landing.get_opt(&lost.file.path).await.unwrap().is_none());
    // A merge whose writer died before it moved the old files: each row is in the folder once.
    let mut log = log;
    let merged = file(&log, "merged");
    let mut commit = Commit::amending(log.last().unwrap());
    commit.compacted = vec![Compacted {
        first: Sequence::new(0),
        last: Sequence::new(9),
        files: vec![merged.file.clone()],
        children: Default::default(),
    }];
    log.put(merged).await.unwrap();
    log.append(commit).await.unwrap();
    drop(log);
    let log = open(&root).await;
    assert!(log.tidied().is_empty(), "{:?}", log.tidied());
    let superseded = landing.list("superseded/data").await.unwrap();
    assert_eq!(superseded.len(), 10);
    assert_eq!(
        landing.list("data").await.unwrap().len() as u64,
        20 * FEW + 1 - 9
    );
    assert_eq!(index_of(log.entries(), Sequence::new(9)), Some(9));
}

/// Default count of entries of the long log; `FEEDLINE_LOG_ENTRIES` overrides it.
const LONG: u64 = 3 * MOST;

/// A snapshot of a log of so many entries, and its last entry. Older entries are not written: they are
/// not read either.
async fn write_long(zone: &Store, entries: u64) {
    let root = Store::memory();
    long(&root, 2).await;
    let (template, _) = log::all_entries(&landing(&root), &name(), None)
        .await
        .unwrap();
    let numbered = |sequence: u64| {
        let mut entry = template[1].clone();
        entry.sequence = Sequence::new(sequence);
        entry.run_id = format!("run-{}", sequence / 1_000);
        let hash = Hash128::of(&sequence.to_be_bytes());
        entry.files[0].path = format!("data/{sequence:020}-{}.parquet", hash.short());
        entry.files[0].hash = hash;
        entry
    };
    let mut parts = Vec::new();
    let mut first = 0;
    while first < entries {
        let last = entries.min(first + MOST);
        let mut part: Vec<CommitEntry> = (first..last).map(numbered).collect();
        part.iter_mut().for_each(settle);
        parts.push(put_part(zone, &part).await.unwrap());
        first = last;
    }
    let last = numbered(entries - 1);
    let bytes = Bytes::from(encode(&last));
    let head = LogSnapshot {
        format: LOG_SNAPSHOT.format.to_owned(),
        version: LOG_SNAPSHOT.version,
        min_reader: LOG_SNAPSHOT.version,
        source: name(),
        sequence: last.sequence,
        entry_hash: Hash128::of(&bytes),
        parts,
        newest: vec![numbered(entries - 2), last],
        tidied: Sequence::new(entries),
    };
    zone.put(&entry_path(entries - 1), bytes).await.unwrap();
    let bytes = Bytes::from(encode(&head));
    create(zone, &head_path(head.sequence, &bytes), bytes)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_long_log_opens_by_its_end_alone() {
    let asked = std::env::var_os("FEEDLINE_LOG_ENTRIES");
    let entries: u64 = asked.map_or(LONG, |text| text.to_str().unwrap().parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let root = Store::open(folder.path().to_str().unwrap(), &Default::default()).unwrap();
    let landing = landing(&root);
    write_long(&landing, entries).await;
    let began = SystemClock.monotonic();
    let hash = Hash128::of(b"settings");
    let mut log = CommitLog::open_tail(&root, &name(), "run", hash)
        .await
        .unwrap();
    let opened = SystemClock.monotonic() - began;
    assert_eq!(
        (log.next_sequence().get(), log.entries().len()),
        (entries, NEWEST)
    );
    let sums = log.sums().await.unwrap();
    assert_eq!(sums.batches, entries);
    log.snapshot_every(FEW);
    for _ in 0..FEW {
        land(&mut log).await;
    }
    let opened_again = LogEntries::open(&landing, &name(), Kept::All)
        .await
        .unwrap();
    assert_eq!(opened_again.next_sequence().get(), entries + FEW);
    let head = landing.list(HEADS).await.unwrap().pop().unwrap();
    eprintln!(
        "a log of {entries} entries opened in {} ms; its head has {} bytes, its {} parts {}",
        opened.as_millis(),
        head.bytes,
        opened_again.snapshot().unwrap().parts.len(),
        landing
            .list(PARTS)
            .await
            .unwrap()
            .iter()
            .map(|part| part.bytes)
            .sum::<u64>(),
    );
}
