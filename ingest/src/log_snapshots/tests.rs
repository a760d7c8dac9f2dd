use std::path::Path;

use arrow::array::{ArrayRef, RecordBatch};
use feedline_schemas::{
    amendment::{Withdrawn, WithdrawnReason},
    commit::{
        BatchCounts, ChildTable, CommitEntry, Compacted, DataFile, FilePart, Interval, Ledger,
        PageRun, Position, Replaced, SourceState,
    },
    ids::{Hash128, SchemaVersion},
    log_effect::{self, index_of, settle},
    log_snapshot::{LogPart, LogSums, MergedList},
    record::{Column, ColumnType, RecordSchema},
};
use feedline_storage::{
    clock::{Clock as _, SystemClock},
    log,
};
use proptest::prelude::*;
use reqwest::header::{ETAG, HeaderMap, HeaderValue};
use tokio::runtime::Builder;

use super::{
    parts::{MOST, put_part},
    *,
};
use crate::{
    batch::{Encoded, encode_again},
    commit_log::{Commit, CommitLog},
    frontier::{self, discovery::Discovery},
    landing_files::tidy,
    log_entries::Kept,
    superseded_files::set_aside,
    validators::{self, Validator},
    watermark::highs,
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

fn batch_of(columns: Vec<(&'static str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).unwrap()
}

fn encoded(log: &CommitLog, folder: &str, columns: Vec<(&'static str, ArrayRef)>) -> Encoded {
    let encoded = encode_again(folder, log.next_sequence(), &batch_of(columns));
    encoded.unwrap().unwrap()
}

/// A file of two URLs that a batch has found.
fn found(log: &CommitLog) -> Encoded {
    let number = log.next_sequence().get();
    let url = |i: u64| Discovery {
        url: format!("https://h.example/{number}/{i}").into(),
        is_start: false,
        is_sitemap: false,
        depth: 1,
        redirects: 0,
    };
    encoded(log, "frontier", frontier::columns(&[url(0), url(1)]))
}

/// A file of the validator of one of five pages.
fn validator(log: &CommitLog) -> Encoded {
    let number = log.next_sequence().get();
    let tag = HeaderValue::try_from(format!("\"{number}\"")).unwrap();
    let headers = HeaderMap::from_iter([(ETAG, tag)]);
    let page = validators::page(&format!("https://h.example/{}", number % 5));
    let columns = validators::columns(&[(page, Validator::of(&headers).unwrap())]);
    encoded(log, "validators", columns)
}

/// Lands a batch of one data file, with more of a frontier and of validators.
async fn land(log: &mut CommitLog) {
    let number = log.next_sequence().get();
    let encoded = file(log, &number.to_string());
    let (found, validator) = (found(log), validator(log));
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
    commit.frontier = vec![found.file.clone()];
    commit.validators = vec![validator.file.clone()];
    commit.state.totals.rows += 2;
    commit.state.position = Position::Page {
        page: number,
        cursor: None,
        run: PageRun {
            high: Some(number.to_string()),
            ..PageRun::default()
        },
    };
    commit.counts = counts;
    for encoded in [encoded, found, validator] {
        log.put(encoded).await.unwrap();
    }
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
    log.snapshot_if_due().await;
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
    check_resumed(&landing, &mut opened.clone(), &all).await;
    let sums = opened.sums().await.unwrap();
    assert_eq!(sums, LogSums::default().with(&all));
    opened.load_all().await.unwrap();
    assert_eq!(settled(opened.into_all()), settled(all.clone()));
    let (read, read_hash) = log::read_all(&landing, &name(), None).await.unwrap();
    assert_eq!((settled(read), read_hash), (settled(all.clone()), hash));
    let newest = log::newest_sequence(&landing).await.unwrap();
    assert_eq!(newest, all.last().map(|last| last.sequence.get()));
    let at = all.len() / 2;
    let (name, until) = (name(), Some(all[at].sequence));
    let part = LogEntries::open_at(&landing, &name, Kept::All, until);
    let mut part = part.await.unwrap();
    part.load_all().await.unwrap();
    assert_eq!(part.all().len(), at + 1);
}

/// Compares what a source resumes from with what all entries have.
async fn check_resumed(landing: &Store, opened: &mut LogEntries, all: &[CommitEntry]) {
    let resumed = opened.resumed().await.unwrap();
    assert_eq!(resumed.last.as_ref(), all.last());
    let own = |of: fn(&CommitEntry) -> &Vec<DataFile>| -> Vec<DataFile> {
        all.iter().flat_map(of).cloned().collect()
    };
    let (found, valid) = (own(|entry| &entry.frontier), own(|entry| &entry.validators));
    assert!(resumed.frontier.len() <= found.len());
    let merged = frontier::merged(landing, &resumed.frontier).await;
    let expected = frontier::merged(landing, &found).await;
    assert_eq!(batch_of(merged.unwrap()), batch_of(expected.unwrap()));
    let merged = validators::merged(landing, &resumed.validators).await;
    let expected = validators::merged(landing, &valid).await;
    assert_eq!(batch_of(merged.unwrap()), batch_of(expected.unwrap()));
    let expected = highs(all);
    assert_eq!(resumed.highs.last(), expected.last());
    assert!(resumed.highs.iter().all(|high| expected.contains(high)));
    assert_eq!(opened.highs().await.unwrap(), resumed.highs);
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

/// A snapshot of a log of so many entries, its last entry, and a data file of each entry. Older entries
/// are not written: they are not read either. `folder` is that of `zone`.
async fn write_long(zone: &Store, folder: &Path, entries: u64) {
    let root = Store::memory();
    long(&root, 2).await;
    let (template, _) = log::all_entries(&landing(&root), &name(), None)
        .await
        .unwrap();
    let bytes = landing(&root).get(&template[1].files[0].path).await;
    let bytes = bytes.unwrap();
    let file_of = |sequence: u64| {
        let mut file = template[1].files[0].clone();
        file.path = format!("data/{sequence:020}-0123456789abcdef.parquet");
        file
    };
    std::fs::create_dir_all(folder.join("data")).unwrap();
    for sequence in 0..entries {
        // File systems bound the links of a file.
        let path = |sequence: u64| folder.join(file_of(sequence).path);
        match sequence % 50_000 {
            0 => std::fs::write(path(sequence), &bytes).unwrap(),
            link => std::fs::hard_link(path(sequence - link), path(sequence)).unwrap(),
        }
    }
    let numbered = |sequence: u64| {
        let mut entry = template[1].clone();
        entry.sequence = Sequence::new(sequence);
        entry.run_id = format!("run-{}", sequence / 1_000);
        let hash = Hash128::of(&sequence.to_be_bytes());
        entry.files = vec![file_of(sequence)];
        // None of these, since they would be looked for.
        for files in [&mut entry.frontier, &mut entry.validators] {
            files.clear();
        }
        entry.parts = vec![FilePart {
            url: format!("s3://bucket/prefix/{sequence:020}-{}.parquet", hash.short()),
            records: 2,
        }];
        entry
    };
    let mut parts = Vec::new();
    let mut first = 0;
    while first < entries {
        let last = entries.min(first + MOST);
        let mut part: Vec<CommitEntry> = (first..last).map(numbered).collect();
        part.iter_mut().for_each(settle);
        parts.push(put_part(zone, &part, None).await.unwrap());
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
        frontier: Vec::new(),
        validators: Vec::new(),
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
    write_long(&landing, &folder.path().join("landing/s"), entries).await;
    // The most memory is counted from here on.
    std::fs::write("/proc/self/clear_refs", "5").ok();
    let began = SystemClock.monotonic();
    let hash = Hash128::of(b"settings");
    let mut log = CommitLog::open_tail(&root, &name(), "run", hash)
        .await
        .unwrap();
    let opened = SystemClock.monotonic() - began;
    let memory = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = memory.lines().find(|line| line.starts_with("VmHWM"));
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
        "a log of {entries} entries opened in {} ms, {}; its head has {} bytes, its {} parts {}",
        opened.as_millis(),
        memory.unwrap_or_default(),
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

#[tokio::test]
async fn few_merged_files_hold_a_frontier_and_validators_and_follow_a_rewind_and_a_reset() {
    let root = Store::memory();
    long(&root, 40 * FEW).await;
    let landing = landing(&root);
    let lists = async || {
        let opened = LogEntries::open(&landing, &name(), Kept::All).await;
        let snapshot = opened.unwrap().snapshot().unwrap().clone();
        let rows = |lists: &[MergedList]| -> Vec<u64> {
            lists.iter().map(|list| list.file.rows).collect()
        };
        (rows(&snapshot.frontier), rows(&snapshot.validators))
    };
    let (found, valid) = lists().await;
    assert_eq!(found.iter().sum::<u64>(), 2 * 40 * FEW);
    assert!(found.len() <= 8, "{found:?}");
    assert_eq!(valid, [5]);
    check(&root).await;
    let mut log = open(&root).await;
    apply(&mut log, &HistoryStep::Rewind(10)).await;
    log.cover_amendments().await;
    check(&root).await;
    let (found, _) = lists().await;
    assert_eq!(found.iter().sum::<u64>(), 2 * 11);
    for _ in 0..FEW {
        land(&mut log).await;
    }
    check(&root).await;
    apply(&mut log, &HistoryStep::Reset).await;
    log.cover_amendments().await;
    assert_eq!(lists().await, (Vec::new(), Vec::new()));
    check(&root).await;
}

#[tokio::test]
async fn an_unreadable_merged_file_is_replaced_by_those_of_the_entries() {
    let root = Store::memory();
    long(&root, 10 * FEW + 1).await;
    let landing = landing(&root);
    let merged = landing.list(PARTS).await.unwrap();
    for file in merged.iter().filter(|file| file.path.ends_with(".parquet")) {
        landing.put(&file.path, "other bytes".into()).await.unwrap();
    }
    let mut log = open(&root).await;
    let resumed = log.resumed().await.unwrap();
    let (url, reason) = match frontier::merged(&landing, &resumed.frontier).await {
        Err(Error::Landed { url, reason }) => (url, reason),
        other => panic!("{other:?}"),
    };
    assert!(is_own(&landing, &url), "{url}");
    log.read_log(reason).await.unwrap();
    let resumed = log.resumed().await.unwrap();
    assert_eq!(resumed.frontier.len() as u64, 10 * FEW + 1);
    // The next snapshot has new ones.
    for _ in 0..FEW {
        land(&mut log).await;
    }
    check(&root).await;
}

#[tokio::test]
async fn heads_of_a_log_that_was_restored_from_an_older_copy_are_removed() {
    let root = Store::memory();
    long(&root, 30 * FEW).await;
    let landing = landing(&root);
    let old = 5 * FEW;
    for sequence in old..30 * FEW {
        landing.delete(&entry_path(sequence)).await.unwrap();
    }
    for folder in ["data", "frontier", "validators"] {
        for file in landing.list(folder).await.unwrap() {
            if file.path > format!("{folder}/{old:020}") {
                landing.delete(&file.path).await.unwrap();
            }
        }
    }
    let mut log = open(&root).await;
    assert_eq!(log.next_sequence().get(), old);
    assert!(!log.tidied().is_empty());
    for _ in 0..2 * FEW {
        land(&mut log).await;
    }
    let opened = LogEntries::open(&landing, &name(), Kept::All).await;
    let opened = opened.unwrap();
    assert!(opened.warning().is_none(), "{:?}", opened.warning());
    assert!(opened.snapshot().is_some_and(|s| s.sequence.get() >= old));
    check(&root).await;
}

#[tokio::test]
async fn a_lost_file_of_an_old_batch_is_found_by_one_of_the_next_starts() {
    let root = Store::memory();
    long(&root, 40 * FEW).await;
    let mut log = open(&root).await;
    for _ in 0..FEW {
        land(&mut log).await;
    }
    let landing = landing(&root);
    let lost = landing.list("data").await.unwrap()[3].path.clone();
    landing.delete(&lost).await.unwrap();
    let hash = Hash128::of(b"settings");
    let mut starts = 0;
    let error = loop {
        starts += 1;
        let opened = CommitLog::open_tail(&root, &name(), &format!("run-{starts}"), hash).await;
        match opened {
            Ok(log) => assert!(log.compared_files() > 0 && starts < 200),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains(&lost), "{error}");
}

#[tokio::test]
async fn a_writer_whose_log_is_outdated_brings_no_superseded_file_back() {
    let root = Store::memory();
    long(&root, 3 * FEW).await;
    let landing = landing(&root);
    let mut outdated = LogEntries::open(&landing, &name(), Kept::Newest)
        .await
        .unwrap();
    let mut log = open(&root).await;
    let merged = file(&log, "merged");
    let mut commit = Commit::amending(log.last().unwrap());
    commit.compacted = vec![Compacted {
        first: Sequence::new(0),
        last: Sequence::new(3 * FEW - 1),
        files: vec![merged.file.clone()],
        children: Default::default(),
    }];
    log.put(merged).await.unwrap();
    log.append(commit).await.unwrap();
    let gone = log.take_gone();
    set_aside(&landing, &gone).await.unwrap();
    let before = landing.list("data").await.unwrap();
    let seed = Hash128::of(b"run");
    let tidied = tidy(&landing, &mut outdated, seed, false).await.unwrap();
    assert!(tidied.is_none());
    outdated.reopen().await.unwrap();
    let tidied = tidy(&landing, &mut outdated, seed, false).await.unwrap();
    assert!(tidied.unwrap().warning.is_none());
    assert_eq!(landing.list("data").await.unwrap(), before);
}

/// Appends a batch of the slice of a day, with the next one begun.
async fn read_day(log: &mut CommitLog, day: i64) {
    let mut commit = match log.last() {
        Some(last) => Commit::amending(last),
        None => empty(),
    };
    let ledger = Ledger {
        target: [0, 1_000],
        values: 1,
        part: vec![[0, day + 1]],
        slice: Some([day + 1, day + 2]),
        ..Ledger::default()
    };
    commit.counts.pages = 1;
    commit.state.position = Position::Page {
        page: 0,
        cursor: None,
        run: PageRun {
            ledger: Some(Box::new(ledger)),
            ..PageRun::default()
        },
    };
    log.append(commit).await.unwrap();
}

#[tokio::test]
async fn of_a_long_log_only_batches_with_slices_nearby_are_read() {
    let root = Store::memory();
    let mut log = open(&root).await;
    for day in 0..44 * i64::try_from(FEW).unwrap() {
        read_day(&mut log, day).await;
    }
    let landing = landing(&root);
    let near = async |interval: Interval| {
        let mut opened = LogEntries::open(&landing, &name(), Kept::Newest)
            .await
            .unwrap();
        opened.load_near(interval).await.unwrap();
        opened.all().len()
    };
    let all = usize::try_from(44 * FEW).unwrap();
    assert_eq!(near([2_000, 2_001]).await, NEWEST);
    let newest = near([176, 177]).await;
    assert!((16..all).contains(&newest), "{newest}");
    assert_eq!(near([0, 1]).await, all);
    // A rewind reads nothing itself, so its part is not near to everything.
    let mut log = open(&root).await;
    let entry = log.entries()[100].clone();
    let mut commit = Commit::amending(&entry);
    commit.rewound_to = Some(entry.sequence);
    log.append(commit).await.unwrap();
    log.cover_amendments().await;
    let opened = LogEntries::open(&landing, &name(), Kept::Newest).await;
    let spans: Vec<_> = opened
        .unwrap()
        .snapshot()
        .unwrap()
        .parts
        .iter()
        .map(|part| part.slices)
        .collect();
    assert_eq!(spans.last(), Some(&None), "{spans:?}");
}

#[tokio::test]
async fn files_of_a_child_table_that_is_no_longer_configured_stay() {
    let root = Store::memory();
    let landing = landing(&root);
    let mut log = open(&root).await;
    land(&mut log).await;
    let name = Name::new("tags").unwrap();
    let mut of_table = validator(&log);
    of_table.file.path = of_table.file.path.replace("validators/", "children/tags/");
    let mut commit = Commit::amending(log.last().unwrap());
    let table = ChildTable {
        lists: vec!["tags".into()],
        items: None,
        schema: schema(),
        files: vec![of_table.file.clone()],
        presence: Default::default(),
    };
    commit.children.insert(name, table);
    let path = of_table.file.path.clone();
    log.put(of_table).await.unwrap();
    log.append(commit).await.unwrap();
    let mut commit = Commit::amending(log.last().unwrap());
    commit.children.clear();
    log.append(commit).await.unwrap();
    for _ in 0..3 {
        for _ in 0..FEW {
            land(&mut log).await;
        }
        log = open(&root).await;
        assert!(log.tidied().is_empty(), "{:?}", log.tidied());
    }
    assert!(landing.get_opt(&path).await.unwrap().is_some());
    check(&root).await;
}

#[tokio::test]
async fn older_entries_are_read_as_far_as_they_are_needed() {
    let root = Store::memory();
    long(&root, 44 * FEW).await;
    let landing = landing(&root);
    let mut opened = LogEntries::open(&landing, &name(), Kept::Newest)
        .await
        .unwrap();
    assert_eq!(opened.all().len(), NEWEST);
    // The parts have 128, 32 and 16 entries.
    let files = opened
        .files_before(|entry| entry.sequence.get() < 100)
        .await
        .unwrap();
    assert_eq!((files.all.len(), files.first().count()), (176, 100));
    assert_eq!(files.ends, Sequence::new(100));
    assert_eq!(opened.all().len(), NEWEST);
    let is_enough = |entry: &CommitEntry| entry.sequence.get() < 150;
    opened.load_until(is_enough).await.unwrap();
    assert_eq!(opened.all().len(), 48);
    opened.load_until(|_| false).await.unwrap();
    assert_eq!(opened.all().len(), 176);
    let count = opened.fold(|| 0, |count, _| *count += 1).await.unwrap();
    assert_eq!(count, 176);
}

#[tokio::test]
async fn the_first_snapshot_of_a_log_is_written_after_sixty_four_entries() {
    let root = Store::memory();
    let mut log = open(&root).await;
    log.snapshot_every(EVERY);
    let landing = landing(&root);
    for entries in 1..=2 * EVERY + 1 {
        land(&mut log).await;
        let heads = landing.list(HEADS).await.unwrap().len() as u64;
        assert_eq!(heads, entries / EVERY, "{entries}");
        if entries % EVERY <= 1 || entries % EVERY == EVERY - 1 {
            check(&root).await;
        }
    }
}

#[tokio::test]
async fn a_log_whose_every_entry_supersedes_another_has_snapshots() {
    let root = Store::memory();
    let mut log = open(&root).await;
    land(&mut log).await;
    for _ in 0..3 * FEW {
        apply(&mut log, &HistoryStep::Supersede(0)).await;
    }
    let opened = LogEntries::open(&landing(&root), &name(), Kept::All).await;
    assert!(opened.unwrap().snapshot().is_some());
    check(&root).await;
    let log = open(&root).await;
    assert!(log.tidied().is_empty(), "{:?}", log.tidied());
}

#[tokio::test]
async fn no_snapshot_covers_an_entry_whose_expired_files_have_not_left_their_folder() {
    let root = Store::memory();
    let mut log = open(&root).await;
    for _ in 1..FEW {
        land(&mut log).await;
    }
    let path = file(&log, "expired").file.path;
    let aside = format!("superseded/{path}");
    landing(&root).put(&aside, "rows".into()).await.unwrap();
    let mut commit = Commit::amending(log.last().unwrap());
    commit.expired = vec![path];
    log.append(commit).await.unwrap();
    assert_eq!(log.next_sequence().get(), FEW);
    // The command is killed here.
    drop(log);
    open(&root).await;
    assert!(landing(&root).get_opt(&aside).await.unwrap().is_none());
}

/// Gives the heads of all snapshots the format version 1.
async fn make_old(landing: &Store) {
    for head in landing.list(HEADS).await.unwrap() {
        let bytes = landing.get(&head.path).await.unwrap();
        let mut text = String::from_utf8(bytes.to_vec()).unwrap();
        for key in ["version", "min_reader"] {
            let own = format!("\"{key}\": {},", LOG_SNAPSHOT.version);
            assert!(text.contains(&own), "{text}");
            text = text.replacen(&own, &format!("\"{key}\": 1,"), 1);
        }
        let (sequence, _) = parse_head_path(&head.path).unwrap();
        landing.delete(&head.path).await.unwrap();
        let path = head_path(sequence, text.as_bytes());
        landing.put(&path, text.into()).await.unwrap();
    }
}

#[tokio::test]
async fn snapshots_of_an_earlier_version_are_not_used_until_a_new_one_is_written() {
    let root = Store::memory();
    long(&root, 10 * FEW).await;
    let landing = landing(&root);
    make_old(&landing).await;
    let opened = LogEntries::open(&landing, &name(), Kept::All).await;
    let opened = opened.unwrap();
    assert!(opened.snapshot().is_none());
    assert_eq!(opened.all().len() as u64, 10 * FEW);
    assert_eq!(opened.warning(), None);
    let mut log = open(&root).await;
    for _ in 0..FEW {
        land(&mut log).await;
    }
    let opened = LogEntries::open(&landing, &name(), Kept::All).await;
    assert!(opened.unwrap().snapshot().is_some());
    check(&root).await;
}

#[tokio::test]
async fn a_run_of_a_finished_source_replaces_a_snapshot_of_an_earlier_version() {
    let folder = tempfile::tempdir().unwrap();
    let rows = (0..EVERY + 6).map(|id| format!("{{\"id\":{id}}}\n"));
    let rows: String = rows.collect();
    std::fs::write(folder.path().join("a.ndjson"), rows).unwrap();
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{}/*.ndjson\"\nbatch = {{ rows = 1 }}\n",
        folder.path().display()
    );
    let loaded = feedline_schemas::config::load("p.toml", &text, &[]);
    let config = loaded.unwrap().config;
    let root = Store::memory();
    let context = crate::context::Context {
        root: root.clone(),
        ..crate::testing::context()
    };
    let landing = landing(&root);
    let open = async || {
        let opened = LogEntries::open(&landing, &name(), Kept::All).await;
        opened.unwrap()
    };
    crate::run::ingest(&config, None, &context).await.unwrap();
    let entries = open().await.next_sequence();
    assert!(entries.get() >= EVERY && open().await.snapshot().is_some());
    make_old(&landing).await;
    assert!(open().await.snapshot().is_none());
    let report = crate::run::ingest(&config, None, &context).await.unwrap();
    let mut warnings = report.sources[0].warnings.iter();
    assert!(!warnings.any(|warning| warning.code == "snapshot_passed_over"));
    let opened = open().await;
    assert_eq!(opened.next_sequence(), entries);
    assert!(opened.snapshot().is_some());
}
