//! Writers that die, meet and are repaired, one step at a time.

use bytes::Bytes;
use feedline_schemas::{
    commit::SourceState,
    config::{PipelineConfig, load},
    ids::{Name, SchemaVersion},
    record::RecordSchema,
};

use feedline_storage::{Effect, Faults, Operation, Rule};

use super::*;
use crate::{
    batch::Encoded,
    commit_log::{Commit, CommitLog, landed},
    context::Context,
    repair::repair,
    run::ingest,
    status, testing,
    verify::verify,
};

/// A file of entry `sequence` with the magic of Parquet at both ends and bytes that depend on
/// `content`.
fn file(sequence: u64, content: &str) -> Encoded {
    let footer = u32::try_from(content.len()).unwrap().to_le_bytes();
    let bytes = Bytes::from([b"PAR1", content.as_bytes(), &footer, b"PAR1"].concat());
    let hash = Hash128::of(&bytes);
    let file = DataFile {
        path: format!("data/{sequence:020}-{}.parquet", hash.short()),
        rows: 1,
        bytes: bytes.len() as u64,
        hash,
    };
    Encoded { file, bytes }
}

async fn open(root: &Store, run: &str) -> Result<CommitLog, Error> {
    let name = Name::new("s").unwrap();
    CommitLog::open(root, &name, run, Hash128::of(b"settings")).await
}

/// Writes `file` and does not commit it.
async fn put(log: &mut CommitLog, file: &Encoded) {
    log.put(file.clone()).await.unwrap();
}

async fn append(log: &mut CommitLog, file: &Encoded) -> Result<(), Error> {
    let commit = Commit {
        schema: RecordSchema {
            version: SchemaVersion::new(1),
            columns: Vec::new(),
        },
        files: vec![file.file.clone()],
        rejects: Vec::new(),
        frontier: Vec::new(),
        validators: Vec::new(),
        raw: Vec::new(),
        children: BTreeMap::new(),
        parts: Vec::new(),
        replaced: Vec::new(),
        compacted: Vec::new(),
        marks: Vec::new(),
        counts: Default::default(),
        settings: None,
        withdrawn: Vec::new(),
        reset_to: None,
        rewound_to: None,
        expired: Vec::new(),
        state: SourceState::default(),
    };
    log.append(commit).await
}

/// Lists the folder `data`; it must hold exactly the files that the log names.
async fn check_data(root: &Store) -> Vec<String> {
    let landing = root.child("landing/s");
    let listed = landing.list("data").await.unwrap();
    let found: Vec<String> = listed.into_iter().map(|file| file.path).collect();
    let landed = landed(root, &Name::new("s").unwrap()).await.unwrap();
    let entries = landed.map(|landed| landed.entries).unwrap_or_default();
    let named = entries.iter().flat_map(CommitEntry::named_files);
    let named: Vec<String> = named.map(|file| file.path.clone()).collect();
    assert_eq!(found, named);
    for file in entries.iter().flat_map(CommitEntry::named_files) {
        let bytes = landing.get(&file.path).await.unwrap();
        assert_eq!(Hash128::of(&bytes), file.hash);
    }
    found
}

/// A memory store and a local disk, each empty.
fn roots() -> (tempfile::TempDir, [Store; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let local = Store::open(folder.path().to_str().unwrap(), &Default::default()).unwrap();
    (folder, [Store::memory(), local])
}

#[tokio::test]
async fn what_a_killed_run_wrote_without_an_entry_is_moved_by_the_next_start() {
    let (_folder, roots) = roots();
    for root in roots {
        let mut log = open(&root, "a").await.unwrap();
        let mut children = file(0, "old child");
        children.file.path = children.file.path.replace("data/", "children/tags/");
        let (first, lost) = (file(0, "first"), file(1, "lost"));
        put(&mut log, &file(0, "of a fenced writer that died")).await;
        put(&mut log, &first).await;
        append(&mut log, &first).await.unwrap();
        put(&mut log, &lost).await;
        put(&mut log, &children).await;
        drop(log);
        // Files of other programs stay.
        let landing = root.child("landing/s");
        landing.put("data/_SUCCESS", "".into()).await.unwrap();
        let mut log = open(&root, "b").await.unwrap();
        let warning = &log.tidied()[0];
        assert_eq!(warning.code, "files_moved_to_orphans");
        assert!(warning.message.contains("3 files"), "{warning:?}");
        landing.delete("data/_SUCCESS").await.unwrap();
        assert_eq!(check_data(&root).await, [first.file.path.as_str()]);
        assert!(landing.list("children").await.unwrap().is_empty());
        let orphans = landing.list("orphans").await.unwrap();
        assert_eq!(orphans.len(), 3, "{orphans:?}");
        // An equal batch gets the same name, an unequal one another name.
        for second in [lost, file(2, "other")] {
            put(&mut log, &second).await;
            append(&mut log, &second).await.unwrap();
        }
        let log = open(&root, "c").await.unwrap();
        assert!(log.tidied().is_empty());
        assert_eq!(check_data(&root).await.len(), 3);
    }
}

/// A compaction or a rewind removes files beside a reader that has listed them.
#[tokio::test]
async fn a_file_that_is_removed_after_it_was_listed_is_missing() {
    let (_folder, roots) = roots();
    for root in roots {
        let landing = root.child("landing/s");
        let Encoded { file, bytes } = file(0, "first");
        let found = inventory::wrong_end(&landing, &file).await.unwrap();
        assert_eq!(found, Some(FileFault::Missing));
        landing.put(&file.path, bytes).await.unwrap();
        assert_eq!(inventory::wrong_end(&landing, &file).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_start_beside_a_live_writer_loses_none_of_its_files() {
    let (_folder, roots) = roots();
    for root in roots {
        let landing = root.child("landing/s");
        // Moved before the entry: the writer checks for it.
        let mut log = open(&root, "a").await.unwrap();
        let first = file(0, "first");
        put(&mut log, &first).await;
        open(&root, "b").await.unwrap();
        assert!(landing.list("data").await.unwrap().is_empty());
        append(&mut log, &first).await.unwrap();
        check_data(&root).await;
        // Moved after the entry by a writer that had read the log before: that one reads the log
        // again.
        let second = file(1, "second");
        put(&mut log, &second).await;
        let before = landed(&root, &Name::new("s").unwrap()).await.unwrap();
        let inventory = LandingInventory::take(&landing, &before.unwrap().entries)
            .await
            .unwrap();
        append(&mut log, &second).await.unwrap();
        let moved = move_unnamed(&landing, 1, &inventory.unnamed, ORPHANS)
            .await
            .unwrap();
        assert_eq!((inventory.unnamed.len(), moved.len()), (1, 0));
        check_data(&root).await;
        // Both die before their checks.
        let path = &second.file.path;
        landing
            .rename(path, &format!("orphans/{path}"))
            .await
            .unwrap();
        open(&root, "c").await.unwrap();
        assert_eq!(check_data(&root).await.len(), 2);
    }
}

#[tokio::test]
async fn a_fenced_writer_removes_its_own_files_and_not_those_that_the_winner_names() {
    let (_folder, roots) = roots();
    for root in roots {
        let (mut a, mut b) = (
            open(&root, "a").await.unwrap(),
            open(&root, "b").await.unwrap(),
        );
        let (same, other) = (file(0, "same"), file(0, "other"));
        put(&mut a, &same).await;
        put(&mut b, &same).await;
        put(&mut b, &other).await;
        append(&mut a, &same).await.unwrap();
        let error = append(&mut b, &other).await.unwrap_err();
        assert!(matches!(error, Error::Fenced { .. }), "{error}");
        assert_eq!(check_data(&root).await, [same.file.path]);
    }
}

#[tokio::test]
async fn a_writer_takes_its_entry_back_when_the_log_was_cut_below_it() {
    let (_folder, roots) = roots();
    for root in roots {
        let landing = root.child("landing/s");
        let mut log = open(&root, "a").await.unwrap();
        for sequence in 0..3 {
            let file = file(sequence, "x");
            put(&mut log, &file).await;
            append(&mut log, &file).await.unwrap();
        }
        // Like a repair: the last two entries and their files are removed.
        for sequence in [2, 1] {
            landing.delete(&entry_path(sequence)).await.unwrap();
        }
        let late = file(3, "late");
        put(&mut log, &late).await;
        let error = append(&mut log, &late).await.unwrap_err();
        assert!(matches!(error, Error::Replaced { .. }), "{error}");
        assert!(error.to_string().contains("entry 2"), "{error}");
        // Another run has rewritten these entries.
        let mut other = open(&root, "b").await.unwrap();
        for sequence in 1..3 {
            let file = file(sequence, "new");
            put(&mut other, &file).await;
            append(&mut other, &file).await.unwrap();
        }
        put(&mut log, &late).await;
        let error = append(&mut log, &late).await.unwrap_err();
        assert!(matches!(error, Error::Replaced { .. }), "{error}");
        open(&root, "c").await.unwrap();
        assert_eq!(check_data(&root).await.len(), 3);
    }
}

/// Landed pipeline of twelve files, one batch per file.
async fn twelve() -> (tempfile::TempDir, PipelineConfig, Context) {
    let folder = tempfile::tempdir().unwrap();
    for i in 10..22 {
        std::fs::write(folder.path().join(format!("{i}.csv")), format!("a\n{i}\n")).unwrap();
    }
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{}/*.csv\"\nbatch = {{ rows = 1 }}\n",
        folder.path().display()
    );
    let config = load("p.toml", &text, &[]).unwrap().config;
    let context = Context {
        root: Store::memory(),
        ..testing::context()
    };
    ingest(&config, None, &context).await.unwrap();
    (folder, config, context)
}

/// Harms file number `index`, and checks that a start and `status` name it, as `verify` does.
async fn check_noticed(index: usize, harm: impl AsyncFn(&Store, &str), reason: &str) {
    let (_folder, config, context) = twelve().await;
    let landing = context.root.child("landing/s");
    let path = landing.list("data").await.unwrap()[index].path.clone();
    let report = verify(&config, None, &context.root).await.unwrap();
    let good = &report.sources[0];
    assert_eq!((good.entries, good.files, good.rows), (12, 12, 12));
    assert!(good.damage.is_empty() && good.bytes > 0, "{good:?}");
    harm(&landing, &path).await;
    let started = ingest(&config, None, &context).await;
    let report = status(&config, &context.root).await.unwrap();
    let told = &report.sources[0];
    let error = started.unwrap_err();
    assert!(matches!(error, Error::Landed { .. }), "{error}");
    let error = error.to_string();
    for part in [path.as_str(), reason, "ingest verify", "ingest repair"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    assert_eq!((told.status.as_str(), told.damage.len()), ("damaged", 1));
    assert_eq!(told.damage[0].path, path);
    let report = verify(&config, None, &context.root).await.unwrap();
    let found = &report.sources[0].damage[..];
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0].path, found[0].entry), (&path, index as u64));
    let repaired = repair(&config, None, &context, true).await.unwrap();
    assert_eq!(repaired.sources[0].rows_set_aside, 12 - index as u64);
}

#[tokio::test]
async fn lost_and_damaged_files_are_noticed_by_the_next_start_and_by_status() {
    let delete = async |landing: &Store, path: &str| landing.delete(path).await.unwrap();
    check_noticed(2, delete, "it is missing").await;
    let truncate = async |landing: &Store, path: &str| {
        let bytes = landing.get(path).await.unwrap();
        landing
            .put(path, bytes.slice(..bytes.len() - 9))
            .await
            .unwrap();
    };
    check_noticed(0, truncate, "bytes and should have").await;
    let flip = async |landing: &Store, path: &str| {
        let mut bytes = landing.get(path).await.unwrap().to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        landing.put(path, bytes.into()).await.unwrap();
    };
    check_noticed(11, flip, "does not end as a Parquet file").await;
}

#[tokio::test]
async fn a_flipped_bit_in_the_middle_is_found_by_verify() {
    let (_folder, config, context) = twelve().await;
    let landing = context.root.child("landing/s");
    let paths = landing.list("data").await.unwrap();
    for file in [&paths[3], &paths[7]] {
        let mut bytes = landing.get(&file.path).await.unwrap().to_vec();
        bytes[20] ^= 1;
        landing.put(&file.path, bytes.into()).await.unwrap();
    }
    let path = entry_path(9);
    let entry = landing.get(&path).await.unwrap();
    landing.put(&path, entry.slice(..50)).await.unwrap();
    let report = verify(&config, None, &context.root).await.unwrap();
    let found = &report.sources[0];
    let places: Vec<_> = found.damage.iter().map(|damage| damage.entry).collect();
    assert_eq!(places, [3, 7, 9], "{found:?}");
    assert_eq!((found.entries, found.files), (9, 7));
}

#[tokio::test]
async fn a_lost_file_of_which_there_is_a_copy_is_put_back_and_nothing_is_cut() {
    let (_folder, config, context) = twelve().await;
    let landing = context.root.child("landing/s");
    let paths = landing.list("data").await.unwrap();
    let lost = &paths[4].path;
    let moved = format!("damaged/earlier/{lost}");
    landing.rename(lost, &moved).await.unwrap();
    for dry_run in [true, false] {
        let report = repair(&config, None, &context, dry_run).await.unwrap();
        let source = &report.sources[0];
        assert_eq!(source.restored, [lost.as_str()]);
        assert!(source.damage.is_none() && source.kept == 12, "{source:?}");
    }
    ingest(&config, None, &context).await.unwrap();
    assert_eq!(check_data(&context.root).await.len(), 12);
}

#[tokio::test]
async fn a_repair_takes_the_files_of_the_entries_that_it_cuts_along() {
    let (_folder, config, context) = twelve().await;
    let landing = context.root.child("landing/s");
    let paths = landing.list("data").await.unwrap();
    landing.delete(&paths[4].path).await.unwrap();
    let report = repair(&config, None, &context, false).await.unwrap();
    let source = &report.sources[0];
    assert_eq!((source.kept, source.set_aside, source.unnamed), (4, 8, 7));
    assert_eq!((source.rows_set_aside, source.pages_set_aside), (8, 8));
    assert_eq!(check_data(&context.root).await.len(), 4);
    let aside = landing.list("damaged/run/data").await.unwrap();
    assert_eq!(aside.len(), 7, "{aside:?}");
    ingest(&config, None, &context).await.unwrap();
    assert_eq!(check_data(&context.root).await.len(), 12);
}

#[tokio::test]
async fn a_log_of_a_newer_release_is_not_cut_and_damage_to_its_bytes_is() {
    let (_folder, config, context) = twelve().await;
    let landing = context.root.child("landing/s");
    // The last two entries as a newer release writes them, with hashes that follow one another.
    let mut before = None;
    for sequence in [10, 11] {
        let text = landing.get(&entry_path(sequence)).await.unwrap();
        let mut text = String::from_utf8(text.to_vec()).unwrap();
        text = text.replace("\"epoch\"", "\"mood\": 1,\n  \"epoch\"");
        if let Some(before) = before {
            let line = text
                .lines()
                .find(|line| line.contains("prev_hash"))
                .unwrap();
            text = text.replace(line, &format!("  \"prev_hash\": \"{before}\","));
        }
        before = Some(Hash128::of(text.as_bytes()));
        landing
            .put(&entry_path(sequence), text.into())
            .await
            .unwrap();
    }
    let all = context.root.list("").await.unwrap();
    for dry_run in [true, false] {
        let error = repair(&config, None, &context, dry_run).await.unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("newer feedline") && !error.contains("run `feedline ingest repair`"),
            "{error}"
        );
    }
    let kept = |listed: &[Listed]| -> Vec<Listed> {
        let mut listed = listed.to_vec();
        listed.retain(|file| !file.path.contains("/lease/"));
        listed
    };
    assert_eq!(kept(&context.root.list("").await.unwrap()), kept(&all));
    let error = ingest(&config, None, &context).await.unwrap_err();
    assert!(matches!(error, Error::Contract(_)), "{error}");
    // Another version the same.
    let text = landing.get(&entry_path(11)).await.unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let other = text.replace("\"version\": 3,\n  \"min_reader\": 2,", "\"version\": 7,");
    assert_ne!(other, text);
    landing.put(&entry_path(11), other.into()).await.unwrap();
    let error = repair(&config, None, &context, false).await.unwrap_err();
    assert!(matches!(error, Error::Contract(_)), "{error}");
    // Entry 10 has other bytes than entry 11 was written after: that is damage.
    let text = landing.get(&entry_path(10)).await.unwrap();
    let text = String::from_utf8(text.to_vec()).unwrap();
    let text = text.replace("\"mood\"", "\"moos\"");
    landing.put(&entry_path(10), text.into()).await.unwrap();
    let report = repair(&config, None, &context, true).await.unwrap();
    assert_eq!(report.sources[0].kept, 10);
}

/// Clock of the runtime, which a paused test advances by itself.
#[derive(Debug)]
struct RuntimeClock(tokio::time::Instant);

impl feedline_storage::clock::Clock for RuntimeClock {
    fn monotonic(&self) -> std::time::Duration {
        self.0.elapsed()
    }
    fn unix(&self) -> std::time::Duration {
        self.0.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_repair_waits_for_a_lease_of_a_dead_program_and_refuses_beside_a_live_one() {
    let (_folder, config, context) = twelve().await;
    let context = Context {
        clock: std::sync::Arc::new(RuntimeClock(tokio::time::Instant::now())),
        ..context
    };
    let landing = context.root.child("landing/s");
    let paths = landing.list("data").await.unwrap();
    landing.delete(&paths[4].path).await.unwrap();
    let lease = |sequence: u64| {
        let text = include_str!("../../../schemas/samples/lease-1.json");
        let text = text.replace("\"sequence\": 7", &format!("\"sequence\": {sequence}"));
        let text = text.replace("\"source\": \"market\"", "\"source\": \"s\"");
        let path = format!("lease/{sequence:020}.json");
        let landing = landing.clone();
        async move { landing.put(&path, text.into()).await.unwrap() }
    };
    lease(7).await;
    let all = landing.list("log").await.unwrap();
    let renewed = async {
        for sequence in 8..12 {
            tokio::time::sleep(std::time::Duration::from_secs(20)).await;
            lease(sequence).await;
        }
    };
    let (_, refused) = tokio::join!(renewed, repair(&config, None, &context, false));
    let error = refused.unwrap_err();
    assert!(matches!(error, Error::Running { .. }), "{error}");
    assert_eq!(landing.list("log").await.unwrap(), all);
    // The lease is no longer renewed.
    let report = repair(&config, None, &context, false).await.unwrap();
    assert_eq!(report.sources[0].kept, 4);
}

#[tokio::test(start_paused = true)]
async fn entries_that_a_live_run_adds_behind_a_cut_are_set_aside_too() {
    let (_folder, config, context) = twelve().await;
    let root = &context.root;
    let landing = root.child("landing/s");
    let mut log = open_as(root, &config).await;
    let paths = landing.list("data").await.unwrap();
    landing.delete(&paths[4].path).await.unwrap();
    // While the repair moves the last entry of its listing, the run adds another.
    let second = std::time::Duration::from_secs(1);
    let slow = Faults::new(vec![Rule {
        operation: Operation::Rename,
        path_contains: "log/".into(),
        skip: 0,
        times: 1,
        effect: Effect::Delay(second),
    }]);
    let slowly = Context {
        root: root.with_faults(slow),
        ..context.clone()
    };
    let late = file(12, "late");
    let added = async {
        tokio::time::sleep(second / 2).await;
        put(&mut log, &late).await;
        append(&mut log, &late).await.unwrap();
    };
    let (report, ()) = tokio::join!(repair(&config, None, &slowly, false), added);
    let source = report.unwrap().sources.remove(0);
    assert_eq!((source.kept, source.set_aside), (4, 9), "{source:?}");
    assert_eq!(landing.list("log").await.unwrap().len(), 4);
    // And it withdraws what it adds after that.
    let late = file(13, "late");
    put(&mut log, &late).await;
    let error = append(&mut log, &late).await.unwrap_err();
    assert!(matches!(error, Error::Replaced { .. }), "{error}");
    ingest(&config, None, &context).await.unwrap();
    assert_eq!(check_data(root).await.len(), 12);
}

#[tokio::test]
async fn a_start_that_is_killed_while_it_moves_files_is_finished_by_another() {
    for effect in [Effect::FailBefore, Effect::FailAfter] {
        for skip in 0..3 {
            let root = Store::memory();
            let mut log = open(&root, "a").await.unwrap();
            let first = file(0, "first");
            put(&mut log, &first).await;
            append(&mut log, &first).await.unwrap();
            for content in ["x", "y", "z"] {
                put(&mut log, &file(1, content)).await;
            }
            let rule = Rule {
                operation: Operation::Rename,
                path_contains: String::new(),
                skip,
                times: 1,
                effect,
            };
            let killed = open(&root.with_faults(Faults::new(vec![rule])), "b").await;
            assert!(matches!(killed, Err(Error::Storage(_))), "{skip}");
            open(&root, "c").await.unwrap();
            assert_eq!(check_data(&root).await, [first.file.path]);
            let orphans = root.list("landing/s/orphans").await.unwrap();
            assert_eq!(orphans.len(), 3);
        }
    }
}

/// The log of the pipeline's source, opened by another run.
async fn open_as(root: &Store, config: &PipelineConfig) -> CommitLog {
    let hash = crate::settings::config_hash(&config.source[0]);
    CommitLog::open(root, &config.source[0].name, "live", hash)
        .await
        .unwrap()
}

#[test]
fn only_files_that_a_batch_writes_are_told_by_their_names() {
    let hash = Hash128::of(b"x").short();
    for folder in ["data", "children/a/b", "raw"] {
        let path = format!("{folder}/{:020}-{hash}.parquet", 7);
        assert_eq!(sequence_of(&path), Some(7), "{path}");
    }
    for path in [
        format!("orphans/data/{:020}-{hash}.parquet", 7),
        format!("data/{:020}-{hash}.csv", 7),
        format!("data/{:019}-{hash}.parquet", 7),
        "data/part-0.parquet".to_owned(),
        format!("{:020}-{hash}.parquet", 7),
        entry_path(7),
    ] {
        assert_eq!(sequence_of(&path), None, "{path}");
    }
}
