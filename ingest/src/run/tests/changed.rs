//! Files that grow, are replaced, or are still being written.

mod young_files;

use std::{
    fs::{self, File},
    path::PathBuf,
    time::{Duration, UNIX_EPOCH},
};

use arrow::{
    array::AsArray,
    compute::cast,
    datatypes::{DataType, Int64Type, UInt32Type, UInt64Type},
};
use feedline_schemas::{commit::DataFile, config::load, report::IngestReport};
use feedline_storage::clock::{Clock as _, SystemClock};
use parquet::arrow::{PARQUET_FIELD_ID_META_KEY, arrow_reader::ParquetRecordBatchReaderBuilder};

use super::*;
use crate::run::ingest;

/// A folder of files, and their landing folder.
struct Place {
    files: tempfile::TempDir,
    root: tempfile::TempDir,
    pattern: String,
    /// Further settings of the source.
    more: String,
}

impl Place {
    fn new(more: &str) -> Self {
        Self {
            files: tempfile::tempdir().unwrap(),
            root: tempfile::tempdir().unwrap(),
            pattern: "*".to_owned(),
            more: more.to_owned(),
        }
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.files.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    fn root(&self) -> Store {
        let root = self.root.path().to_str().unwrap();
        Store::open(root, &StoreOptions::default()).unwrap()
    }

    fn config(&self) -> PipelineConfig {
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = '{}/{}'\n{}\n",
            self.files.path().display(),
            self.pattern,
            self.more
        );
        load("p.toml", &text, &[]).unwrap().config
    }

    async fn bring_to(&self, root: &Store) -> Result<IngestReport, Error> {
        ingest(&self.config(), None, &context(root)).await
    }

    async fn bring(&self) -> IngestReport {
        self.bring_to(&self.root()).await.unwrap()
    }

    async fn refused(&self) -> String {
        self.bring_to(&self.root()).await.unwrap_err().to_string()
    }

    /// Integers of `column` in the files at `paths`, in landing order.
    fn numbers(&self, paths: &[PathBuf], column: &str) -> Vec<i64> {
        let mut all = Vec::new();
        for path in paths {
            let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap());
            for batch in reader.unwrap().build().unwrap() {
                let batch = batch.unwrap();
                let of = |name: &str| batch.column_by_name(name).unwrap();
                let (sequence, row) = (of("_feedline_seq"), of("_feedline_row"));
                let values = cast(of(column), &DataType::Int64).unwrap();
                let values = values.as_primitive::<Int64Type>();
                let place = |i: usize| {
                    let sequence = sequence.as_primitive::<UInt64Type>().value(i);
                    (sequence, row.as_primitive::<UInt32Type>().value(i))
                };
                all.extend((0..batch.num_rows()).map(|i| (place(i), values.value(i))));
            }
        }
        all.sort_unstable();
        let places: Vec<_> = all.iter().map(|(place, _)| *place).collect();
        assert!(places.is_sorted_by(|a, b| a < b), "no row twice: {all:?}");
        all.into_iter().map(|(_, value)| value).collect()
    }

    /// Checks that `column` is `expected`, sorted, by the folder of data files, by the log and by
    /// the report.
    async fn check(&self, report: &IngestReport, column: &str, expected: &[i64]) {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        let landing = self.root.path().join("landing/s");
        let listed = fs::read_dir(landing.join("data")).map(|files| {
            let paths = files.map(|file| file.unwrap().path());
            paths.collect::<Vec<_>>()
        });
        let named = entries(&self.root()).await;
        let named = named.iter().flat_map(|entry| &entry.files);
        let named: Vec<PathBuf> = named.map(|file| landing.join(&file.path)).collect();
        for paths in [listed.unwrap_or_default(), named] {
            let mut found = self.numbers(&paths, column);
            found.sort_unstable();
            assert_eq!(found, expected, "{paths:?}");
        }
        assert_eq!(report.rows, expected.len() as u64);
    }
}

fn codes(report: &IngestReport) -> Vec<&str> {
    let warnings = report.sources[0].warnings.iter();
    warnings.map(|warning| warning.code.as_str()).collect()
}

fn lines(header: &str, numbers: &[i64]) -> String {
    let rows = numbers.iter().map(|n| format!("{n},x{}\n", n % 3));
    std::iter::once(format!("{header}\n")).chain(rows).collect()
}

#[tokio::test]
async fn a_file_that_grows_20_times_and_is_replaced_5_times_has_its_rows_once() {
    let place = Place::new("batch = { rows = 7 }");
    // Rows of another file share batches with it, and stay.
    place.write("b.csv", lines("n,t", &[-1, -2, -3, -1]));
    let mut content: Vec<i64> = Vec::new();
    let (mut grown, mut replaced) = (0, 0);
    for step in 0..26_i64 {
        if step % 5 == 4 {
            // Some of its rows are the earlier ones.
            content = (0..8 + step)
                .map(|i| 100 * step + i / 2)
                .chain([1, 2])
                .collect();
            replaced += 1;
        } else {
            content.extend((0..=step % 4 * 3).map(|i| 1000 * step + i));
            grown += i64::from(step > 0);
        }
        let end = if step % 2 == 0 { "" } else { "\n" };
        place.write("a.csv", lines("n,t", &content).trim_end().to_owned() + end);
        let report = place.bring().await;
        let all = [&content[..], &[-1, -2, -3, -1]].concat();
        place.check(&report, "n", &all).await;
        let told = codes(&report).contains(&"file_replaced");
        assert_eq!(told, step % 5 == 4, "step {step}");
        // A run that finds nothing changes nothing.
        let before = place.root().list("landing").await.unwrap();
        place.bring().await;
        assert_eq!(place.root().list("landing").await.unwrap(), before);
    }
    assert_eq!((grown, replaced), (20, 5));
    let kept = fs::read_dir(place.root.path().join("landing/s/superseded/data"));
    assert!(kept.unwrap().count() > 5, "what was superseded is kept");
}

#[tokio::test]
async fn an_older_file_that_is_replaced_puts_its_rows_above_newer_ones_with_a_warning() {
    let check = async |more: &str, changed: &str, expected: bool| {
        let place = Place::new(more);
        for name in ["2024-01.csv", "2024-02.csv"] {
            place.write(name, "id,v\n1,10\n2,20\n");
            place.bring().await;
        }
        place.write(changed, "id,v\n1,10\n2,21\n");
        let report = place.bring().await;
        let mut warnings = report.sources[0].warnings.iter();
        let warning = warnings.find(|warning| warning.code == "file_replaced");
        let message = &warning.unwrap().message;
        let is_named = message.contains("set `version` to a column");
        assert_eq!(is_named, expected, "{more} {changed}: {message}");
    };
    check("key = ['id']", "2024-01.csv", true).await;
    check("key = ['id']", "2024-02.csv", false).await;
    check("key = ['id']\nversion = 'v'", "2024-01.csv", false).await;
    check("", "2024-01.csv", false).await;
}

#[tokio::test]
async fn files_without_the_data_of_others_keep_schema_and_field_ids() {
    let place = Place::new("");
    place.write("a.csv", "n,t\n1,x\n");
    place.write("b.csv", "n,t\n2,y\n");
    place.bring().await;
    let schema = |files: &[DataFile]| {
        let path = place.root.path().join("landing/s").join(&files[0].path);
        let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
        builder.schema().fields().clone()
    };
    let before = schema(&entries(&place.root()).await[0].files);
    place.write("a.csv", "n,t\n3,z\n");
    let report = place.bring().await;
    let entries = entries(&place.root()).await;
    place.check(&report, "n", &[2, 3]).await;
    assert_eq!(schema(&entries[0].files), before);
    let ids = before
        .iter()
        .filter(|field| field.metadata().contains_key(PARQUET_FIELD_ID_META_KEY));
    assert_eq!(ids.count(), 2);
    assert_eq!(entries[0].files[0].rows, 1);
    assert_eq!(entries[1].replaced[0].rows, 1);
}

#[tokio::test]
async fn a_line_that_was_cut_is_read_again_when_it_goes_on() {
    for (name, [cut, whole]) in [
        ("a.csv", ["n,b\n1,10\n2,20", "n,b\n1,10\n2,2000\n3,30\n"]),
        (
            "a.ndjson",
            [
                "{\"b\":10}\n{\"b\":20}",
                "{\"b\":10}\n{\"b\":20} \n{\"b\":30}\n",
            ],
        ),
    ] {
        let place = Place::new("");
        place.write(name, cut);
        let report = place.bring().await;
        place.check(&report, "b", &[10, 20]).await;
        assert_eq!(codes(&report), ["unfinished_file"], "the file is fresh");
        place.write(name, whole);
        let report = place.bring().await;
        let second = if name == "a.csv" { 2000 } else { 20 };
        place.check(&report, "b", &[10, second, 30]).await;
    }
}

#[tokio::test]
async fn a_file_is_read_on_where_its_last_line_was_whole_and_its_places_are_those_of_the_file() {
    for (end, byte) in [("\n", 19), ("\r\n", 23), ("\r", 19)] {
        let place = Place::new("contract.max_reject_fraction = 0.5");
        let write = |text: &str| place.write("a.csv", text.replace('\n', end));
        write("n,b\n1,10\n2,20");
        place.bring().await;
        write("n,b\n1,10\n2,20\n3,30\n4\n");
        let report = place.bring().await;
        place.check(&report, "b", &[10, 20, 30]).await;
        let entries = entries(&place.root()).await;
        assert_eq!(
            (entries[1].counts.rows, entries[1].counts.superseded),
            (1, 0)
        );
        let sample = report.sources[0].reject_sample.as_deref().unwrap();
        let part = format!("line 5 (byte {byte} of the file)");
        assert!(sample.contains(&part), "{end:?}: {sample}");
    }
}

#[tokio::test]
async fn other_content_of_the_same_size_is_noticed() {
    let place = Place::new("");
    place.write("a.csv", "n\n1\n2\n");
    place.bring().await;
    let path = place.write("a.csv", "n\n1\n3\n");
    let later = (UNIX_EPOCH + SystemClock.unix()) + Duration::from_secs(60);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(later)
        .unwrap();
    let report = place.bring().await;
    place.check(&report, "n", &[1, 3]).await;
    // Rewritten without changes, it lands nothing.
    let later = later + Duration::from_secs(60);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(later)
        .unwrap();
    let report = place.bring().await;
    place.check(&report, "n", &[1, 3]).await;
}

#[tokio::test]
async fn a_packed_file_that_changes_is_replaced_whole() {
    let place = Place::new("");
    let pack = |text: &str| crate::files::tests::gzip(text.as_bytes());
    place.write("a.csv.gz", pack("n\n1\n2\n"));
    place.bring().await;
    place.write("a.csv.gz", pack("n\n1\n2\n3\n"));
    let report = place.bring().await;
    place.check(&report, "n", &[1, 2, 3]).await;
    place.write("a.csv.gz", pack(""));
    let report = place.bring().await;
    place.check(&report, "n", &[1, 2, 3]).await;
    assert!(codes(&report).contains(&"empty_file"), "{report:?}");
    place.write("a.csv.gz", pack("n\n"));
    let report = place.bring().await;
    place.check(&report, "n", &[]).await;
}

#[tokio::test]
async fn append_takes_what_is_added_alone_and_refuse_takes_nothing() {
    let place = Place::new("files.changed = \"append\"");
    place.write("a.csv", "n\n1\n2");
    place.bring().await;
    // The row that was cut is no other content.
    place.write("a.csv", "n\n1\n22\n3\n");
    let report = place.bring().await;
    place.check(&report, "n", &[1, 22, 3]).await;
    place.write("a.csv", "n\n9\n22\n3\n4\n");
    let error = place.refused().await;
    assert!(
        error.contains("a.csv") && error.contains("`files.changed = \"replace\"`"),
        "{error}"
    );
    let strict = Place {
        more: "files.changed = \"refuse\"".into(),
        ..place
    };
    strict.write("a.csv", "n\n1\n22\n3\n4\n");
    let error = strict.refused().await;
    assert!(error.contains("`files.changed` is `refuse`"), "{error}");
    let open = Place {
        more: String::new(),
        ..strict
    };
    open.write("a.csv", "n\n9\n");
    let report = open.bring().await;
    open.check(&report, "n", &[9]).await;
}

#[tokio::test]
async fn files_that_are_gone_are_a_warning_and_another_url_without_files_is_an_error() {
    let mut place = Place::new("");
    let path = place.write("a.csv", lines("a,b", &[1, 2, 3]));
    place.check(&place.bring().await, "a", &[1, 2, 3]).await;
    fs::remove_file(path).unwrap();
    let gone = place.bring().await;
    place.check(&gone, "a", &[1, 2, 3]).await;
    assert_eq!(codes(&gone), ["files_gone"]);
    let message = &gone.sources[0].warnings[0].message;
    assert!(message.contains("no file matches"), "{message}");
    // Another pattern: none of its files was read.
    place.pattern = "*.parquet".into();
    let error = place.refused().await;
    assert!(error.contains("no file matches"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_socket_in_place_of_a_read_file_is_an_error_and_no_missing_file() {
    let mut place = Place::new("");
    place.pattern = "a.csv".into();
    let path = place.write("a.csv", "n\n1\n");
    place.check(&place.bring().await, "n", &[1]).await;
    fs::remove_file(&path).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let error = place.refused().await;
    assert!(error.contains("is a pipe, socket or device"), "{error}");
}

#[tokio::test]
async fn a_link_to_nothing_is_a_warning_of_each_run_until_it_is_removed() {
    let place = Place::new("");
    place.write("a.csv", lines("a,b", &[1, 2, 3]));
    let link = place.files.path().join("c.csv");
    std::os::unix::fs::symlink("/gone/c.csv", &link).unwrap();
    let is_named = |report: &IngestReport| codes(report).contains(&"unread_entries");
    // The second run lands nothing.
    for _ in 0..2 {
        let report = place.bring().await;
        place.check(&report, "a", &[1, 2, 3]).await;
        assert!(is_named(&report), "{report:?}");
    }
    fs::remove_file(link).unwrap();
    let report = place.bring().await;
    assert!(!is_named(&report), "{report:?}");
}

#[tokio::test]
async fn equal_rows_of_files_are_as_many_rows_as_there_are() {
    let content = "a,b\n1,1\n1,2\n1,1\n1,1\n";
    let place = Place::new("");
    place.write("a.csv", content);
    let report = place.bring().await;
    place.check(&report, "b", &[1, 2, 1, 1]).await;
    assert_eq!(report.duplicates, 0);
    let place = Place::new("batch.dedup_window = 100");
    place.write("a.csv", content);
    let report = place.bring().await;
    place.check(&report, "b", &[1, 2]).await;
    // Superseded rows make no duplicates of the new content.
    place.write("a.csv", "a,b\n1,2\n1,1\n7,7\n");
    let report = place.bring().await;
    place.check(&report, "b", &[2, 1, 7]).await;
}

#[tokio::test]
async fn killed_at_any_write_of_a_replacement_the_next_run_finishes_it() {
    for operation in [Operation::Put, Operation::Create, Operation::Delete] {
        for effect in [Effect::FailBefore, Effect::FailAfter] {
            for skip in 0..6 {
                let place = Place::new("batch = { rows = 2 }");
                place.write("a.csv", lines("n,t", &[1, 2, 3]));
                place.write("b.csv", lines("n,t", &[-1]));
                place.bring().await;
                place.write("a.csv", lines("n,t", &[4, 5, 6, 2, 7]));
                let faults = Faults::new(vec![rule(operation, "landing/", effect, skip, 99)]);
                let broken = place.bring_to(&place.root().with_faults(faults)).await;
                drop(broken);
                let report = place.bring().await;
                place.check(&report, "n", &[4, 5, 6, 2, 7, -1]).await;
            }
        }
    }
}

#[tokio::test]
async fn repair_takes_what_was_superseded_for_whole_and_puts_it_back_when_it_cuts() {
    let place = Place::new("batch = { rows = 2 }");
    place.write("a.csv", lines("n,t", &[1, 2, 3]));
    place.write("b.csv", lines("n,t", &[-1]));
    place.bring().await;
    place.write("a.csv", lines("n,t", &[4, 5, 6]));
    let report = place.bring().await;
    place.check(&report, "n", &[4, 5, 6, -1]).await;
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = '{}/*'\n",
        place.files.path().display()
    );
    let config = load("p.toml", &text, &[]).unwrap().config;
    let root = place.root();
    let repaired = crate::repair(&config, None, &context(&root), false)
        .await
        .unwrap();
    assert_eq!(repaired.sources[0].damage, None);
    let log = root.child("landing/s/log");
    let all = log.list("").await.unwrap();
    let replacing = all.len() - 2;
    log.put(&all[replacing].path, "{".into()).await.unwrap();
    let repaired = crate::repair(&config, None, &context(&root), false)
        .await
        .unwrap();
    assert_eq!(repaired.sources[0].kept, replacing as u64);
    let landing = place.root.path().join("landing/s");
    let named = entries(&root).await;
    let named: Vec<PathBuf> = named
        .iter()
        .flat_map(|entry| &entry.files)
        .map(|file| landing.join(&file.path))
        .collect();
    assert_eq!(place.numbers(&named, "n"), [1, 2, 3, -1]);
    let report = place.bring().await;
    let named = entries(&root).await;
    assert_eq!(report.rows, 4, "{named:?}");
}

#[tokio::test]
async fn lists_in_superseded_records_leave_their_child_tables() {
    let place = Place::new("contract.children.items = {}");
    place.write("a.ndjson", "{\"n\":1,\"items\":[1,2]}\n");
    place.write("b.ndjson", "{\"n\":2,\"items\":[3]}\n");
    place.bring().await;
    place.write("a.ndjson", "{\"n\":3,\"items\":[4,5,6]}\n");
    let report = place.bring().await;
    place.check(&report, "n", &[2, 3]).await;
    let landing = place.root.path().join("landing/s");
    let all = entries(&place.root()).await;
    let files = all.iter().flat_map(|entry| entry.children.values());
    let files = files.flat_map(|table| &table.files);
    let files: Vec<PathBuf> = files.map(|file| landing.join(&file.path)).collect();
    assert_eq!(place.numbers(&files, "value"), [3, 4, 5, 6]);
    assert_eq!(report.sources[0].children.values().sum::<u64>(), 4);
}

#[tokio::test]
async fn a_log_that_does_not_say_which_rows_are_whose_is_enough_for_a_single_file() {
    let place = Place::new("");
    place.write("a.csv", "n\n1\n2\n");
    place.bring().await;
    let log = place.root().child("landing/s/log");
    let path = &log.list("").await.unwrap()[0].path;
    let mut entry: CommitEntry = decode(path, &log.get(path).await.unwrap()).unwrap();
    assert_eq!(mem::take(&mut entry.parts).len(), 1);
    log.put(path, feedline_schemas::encode(&entry).into())
        .await
        .unwrap();
    place.write("a.csv", "n\n3\n");
    let report = place.bring().await;
    place.check(&report, "n", &[3]).await;
}

#[tokio::test]
async fn unused_settings_of_csv_are_no_warning_once_cells_of_csv_have_landed() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let mut config = pipeline(&format!("{}/*", folder.path().display()));
    config.source[0].csv.percent = true;
    let root = Store::memory();
    for (name, text, is_expected) in [
        ("1.ndjson", "{\"share\":1}\n", true),
        ("2.ndjson", "{\"share\":2}\n", true),
        ("3.csv", "share\n3%\n", false),
        ("4.ndjson", "{\"share\":4}\n", false),
    ] {
        write(name, text);
        let report = ingest(&config, None, &context(&root)).await.unwrap();
        let mut warnings = report.sources[0].warnings.iter();
        let is_found = warnings.any(|warning| warning.code == "csv_not_used");
        assert_eq!(is_found, is_expected, "{name}: {report:#?}");
    }
}

#[tokio::test]
async fn files_with_and_without_percent_signs_are_reported() {
    let place = Place::new("csv = { percent = true }");
    place.write("jan.csv", "id,share\n1,5%\n2,10 %\n3,\n");
    let is_warned = |report: &IngestReport| codes(report).contains(&"percent_mixed");
    assert!(!is_warned(&place.bring().await));
    // 0 is the same with and without the sign.
    place.write("january.csv", "id,share\n5,0\n6,0%\n");
    assert!(!is_warned(&place.bring().await));
    place.write("feb.csv", "id,share\n4,0.05\n");
    let report = place.bring().await;
    assert!(is_warned(&report));
    let mut warnings = report.sources[0].warnings.iter();
    let warning = warnings.find(|warning| warning.code == "percent_mixed");
    let message = &warning.unwrap().message;
    assert!(
        message.contains("`share` (2 of 3 values other than 0 with the sign)"),
        "{message}"
    );
}
