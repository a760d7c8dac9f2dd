//! Files that are too young to be read.

use std::path::Path;

use super::*;

#[tokio::test]
async fn a_file_that_is_too_young_is_left_for_a_later_run() {
    let place = Place::new("files.settle_s = 3600");
    let path = place.write("a.csv", "n\n1\n");
    for _ in 0..2 {
        let report = place.bring().await;
        assert_eq!((report.rows, codes(&report)), (0, vec!["unsettled_file"]));
        assert_eq!(report.sources[0].status, "empty");
        // An entry would say that the source has no record.
        let log = place.root().list("landing/s/log").await.unwrap();
        assert!(log.is_empty(), "{log:?}");
    }
    let file = File::options().write(true).open(&path).unwrap();
    let now = UNIX_EPOCH + SystemClock.unix();
    file.set_modified(now - Duration::from_secs(7200)).unwrap();
    let report = place.bring().await;
    place.check(&report, "n", &[1]).await;
}

#[tokio::test]
async fn a_young_file_is_a_warning_of_each_run_that_leaves_it_and_adds_no_entry() {
    let place = Place::new("files.settle_s = 3600");
    let settle = |path: PathBuf| {
        let file = File::options().write(true).open(path).unwrap();
        let now = UNIX_EPOCH + SystemClock.unix();
        file.set_modified(now - Duration::from_secs(7200)).unwrap();
    };
    let is_left = |report: &IngestReport| codes(report).contains(&"unsettled_file");
    // The log has no such warning, which would be outdated as soon as the files are old enough.
    let check_status = async || {
        let shown = status(&place.config(), &place.root()).await.unwrap();
        assert!(!is_left(&shown), "{shown:?}");
    };
    settle(place.write("a.csv", "n\n1\n"));
    let report = place.bring().await;
    place.check(&report, "n", &[1]).await;
    assert!(!is_left(&report), "{report:?}");
    // A new file, then a landed one that has grown.
    for (name, content, landed) in [
        ("b.csv", "n\n2\n", vec![1_i64]),
        ("a.csv", "n\n1\n3\n", vec![1, 2]),
    ] {
        let path = place.write(name, content);
        let before = entries(&place.root()).await.len();
        for _ in 0..3 {
            let report = place.bring().await;
            place.check(&report, "n", &landed).await;
            assert!(is_left(&report), "{report:?}");
            assert_eq!(report.batches, before as u64);
            check_status().await;
        }
        assert_eq!(entries(&place.root()).await.len(), before);
        settle(path);
        let report = place.bring().await;
        assert!(!is_left(&report), "{report:?}");
    }
    let path = place.write("c.csv", "n\n4\n");
    assert!(is_left(&place.bring().await));
    fs::remove_file(path).unwrap();
    let report = place.bring().await;
    place.check(&report, "n", &[1, 2, 3]).await;
    assert!(!is_left(&report), "{report:?}");
    // A batch of another file.
    place.write("c.csv", "n\n4\n");
    settle(place.write("d.csv", "n\n5\n"));
    let report = place.bring().await;
    place.check(&report, "n", &[1, 2, 3, 5]).await;
    assert!(is_left(&report), "{report:?}");
    check_status().await;
}

#[tokio::test]
async fn a_file_from_a_clock_that_is_ahead_is_left_and_says_so() {
    let place = Place::new("files.settle_s = 3600");
    let path = place.write("a.csv", "n\n1\n");
    let file = File::options().write(true).open(&path).unwrap();
    let tomorrow = UNIX_EPOCH + SystemClock.unix() + Duration::from_secs(86_400);
    file.set_modified(tomorrow).unwrap();
    let report = place.bring().await;
    assert_eq!((report.rows, codes(&report)), (0, vec!["unsettled_file"]));
    let message = &report.sources[0].warnings[0].message;
    let ahead = " s ahead of the clock of this machine and is left for a later run";
    assert!(
        message.contains(ahead) && !message.contains(" s ago"),
        "{message}"
    );
}

/// Sets the time of a file to two hours ago.
fn make_old(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    let now = UNIX_EPOCH + SystemClock.unix();
    file.set_modified(now - Duration::from_secs(7200)).unwrap();
}

/// The report of `ingest status`.
async fn shown(place: &Place) -> IngestReport {
    let now = SystemClock.unix();
    let status = crate::status_with_lag(&place.config(), &place.root(), now).await;
    status.unwrap()
}

/// Codes of the warnings of the last run that status has.
fn of_run(status: &IngestReport) -> Vec<&str> {
    let standing = status.sources[0].standing.as_ref().unwrap();
    let of_run = standing.run_warnings.iter().flat_map(|found| &found.codes);
    of_run.map(String::as_str).collect()
}

#[tokio::test]
async fn status_has_the_young_files_of_the_last_run_until_a_run_reads_them() {
    let place = Place::new("files.settle_s = 3600");
    let path = place.write("a.csv", "n\n1\n");
    let report = place.bring().await;
    let status = shown(&place).await;
    assert_eq!((status.rows, of_run(&status)), (0, vec!["unsettled_file"]));
    assert_eq!(status.sources[0].warnings, report.sources[0].warnings);
    let standing = status.sources[0].standing.as_ref().unwrap();
    let run_id = &standing.run_warnings.as_ref().unwrap().run_id;
    assert!(run_id.starts_with("run-"), "{run_id}");
    make_old(&path);
    let report = place.bring().await;
    place.check(&report, "n", &[1]).await;
    let status = shown(&place).await;
    assert!(of_run(&status).is_empty(), "{status:?}");
    assert!(!codes(&status).contains(&"unsettled_file"), "{status:?}");
}

#[tokio::test]
async fn status_has_the_young_files_of_a_run_that_failed() {
    let place = Place::new("files.settle_s = 3600");
    let lines = (0..30).map(|i| format!("{{\"n\": {i}}}\n{{\"n\": {i},\n"));
    make_old(&place.write("a.ndjson", lines.collect::<String>()));
    place.write("b.ndjson", "{\"n\": 2}\n");
    let error = place.refused().await;
    assert!(error.contains("records were rejected"), "{error}");
    let status = shown(&place).await;
    assert_eq!(of_run(&status), ["unsettled_file"]);
    let standing = status.sources[0].standing.as_ref().unwrap();
    assert_eq!(standing.failures.as_ref().unwrap().failures, 1);
}
