//! Runs that end by `contract.max_reject_fraction`, and runs that do not.

use std::sync::Mutex;

use super::{
    rounds::{ingest_once, with_lookback},
    *,
};
use crate::testing::{Scripted, ok};

/// A source with a lookback of all records, whose server has the wanted numbers of good and bad ones.
async fn with_bad_records() -> (Scripted, SourceConfig, Arc<Mutex<(u64, u64)>>) {
    let counts = Arc::new(Mutex::new((0, 0)));
    let served = Arc::clone(&counts);
    let server = Scripted::answering(move |_, _| {
        let (good, bad) = *served.lock().unwrap();
        let good = (0..good).map(|id| format!(r#"{{"id":{id},"t":{id},"v":1}}"#));
        let bad = (0..bad).map(|id| format!(r#"{{"id":{},"t":{id},"v":"oops"}}"#, 1_000 + id));
        let items: Vec<String> = good.chain(bad).collect();
        ok(&format!(
            r#"{{"items": [{}], "next": null}}"#,
            items.join(",")
        ))
    })
    .await;
    let mut config = with_lookback(&server);
    config.contract.max_reject_fraction = Real::literal(0.2);
    (server, config, counts)
}

#[tokio::test]
async fn records_that_are_read_again_do_not_dilute_the_fraction_of_rejects() {
    let (_server, config, counts) = with_bad_records().await;
    let root = Store::memory();
    for good in 10..16 {
        *counts.lock().unwrap() = (good, 0);
        assert_eq!(ingest_once(&root, &config).await.unwrap().rows, good);
    }
    *counts.lock().unwrap() = (15, 5);
    let error = ingest_once(&root, &config).await.unwrap_err().to_string();
    assert!(error.contains("5 of 20 records were rejected"), "{error}");
}

#[tokio::test]
async fn a_run_of_bad_records_stops_whatever_landed_before_it() {
    let (_server, config, counts) = with_bad_records().await;
    let root = Store::memory();
    // Few rejects are no trend.
    for (good, bad) in [(200, 0), (200, 19)] {
        *counts.lock().unwrap() = (good, bad);
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!((report.rows, report.rejected), (good, bad));
    }
    *counts.lock().unwrap() = (200, 39);
    let error = ingest_once(&root, &config).await.unwrap_err().to_string();
    assert!(
        error.contains("20 of 20 new records were rejected"),
        "{error}"
    );
}

#[tokio::test]
async fn rejects_of_earlier_reads_alone_end_no_run() {
    let (_server, mut config, counts) = with_bad_records().await;
    let root = Store::memory();
    config.contract.max_reject_fraction = Real::literal(0.9);
    *counts.lock().unwrap() = (10, 30);
    ingest_once(&root, &config).await.unwrap();
    config.contract.max_reject_fraction = Real::literal(0.2);
    // Nothing new, good records alone, and one bad record among nine good ones.
    for (good, bad) in [(10, 30), (11, 30), (20, 31)] {
        *counts.lock().unwrap() = (good, bad);
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!((report.rows, report.rejected), (good, bad));
    }
    *counts.lock().unwrap() = (21, 33);
    let error = ingest_once(&root, &config).await.unwrap_err().to_string();
    assert!(error.contains("33 of 54 records were rejected"), "{error}");
}

#[tokio::test]
async fn a_record_that_is_rejected_in_many_versions_counts_once() {
    let version = Arc::new(AtomicU64::new(0));
    let served = Arc::clone(&version);
    let server = Scripted::answering(move |_, _| {
        let good = (0..19).map(|id| format!(r#"{{"id":{id},"t":{id},"v":1}}"#));
        let bad = format!(
            r#"{{"id":19,"t":19,"v":"bad {}"}}"#,
            served.load(Ordering::Relaxed)
        );
        let items: Vec<String> = good.chain([bad]).collect();
        ok(&format!(
            r#"{{"items": [{}], "next": null}}"#,
            items.join(",")
        ))
    })
    .await;
    let mut config = with_lookback(&server);
    config.contract.max_reject_fraction = Real::literal(0.2);
    config.key = vec!["id".into()];
    let root = Store::memory();
    for number in 0..8 {
        version.store(number, Ordering::Relaxed);
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!((report.rows, report.rejected), (19, number + 1));
    }
    // Without a key each of them is a record.
    config.key.clear();
    let root = Store::memory();
    for number in 0..4 {
        version.store(number, Ordering::Relaxed);
        ingest_once(&root, &config).await.unwrap();
    }
    version.store(4, Ordering::Relaxed);
    let error = ingest_once(&root, &config).await.unwrap_err().to_string();
    assert!(error.contains("5 of 24 records were rejected"), "{error}");
}

#[tokio::test]
async fn rejects_of_a_source_corrected_since_end_its_runs_until_one_has_a_higher_limit() {
    let page = |page: u64, is_bad: bool| -> Vec<Record> {
        let records = (4 * page)..(4 * page + 4);
        let bad = |n: u64| Record::Bad {
            raw: n.to_string(),
            reason: "malformed_line",
            detail: String::new(),
        };
        match is_bad {
            true => records.map(bad).collect(),
            false => records
                .map(|n| record(&format!(r#"{{"n":{n}}}"#)))
                .collect(),
        }
    };
    let source = |is_bad: bool, broken: Option<u64>| super::Scripted {
        pages: (0..5).map(|number| page(number, is_bad)).collect(),
        broken,
    };
    let (root, mut config) = (Store::memory(), config());
    config.contract.max_reject_fraction = Real::literal(0.2);
    let failed = run(&root, &config, &mut source(true, Some(2))).await;
    assert!(matches!(failed, Err(Error::Http { .. })), "{failed:?}");
    for _ in 0..2 {
        let again = run(&root, &config, &mut source(false, None)).await;
        let error = again.unwrap_err().to_string();
        assert!(error.contains("8 of 20 records were rejected"), "{error}");
        assert!(
            error.contains("by `feedline ingest reset PIPELINE.toml s`"),
            "{error}"
        );
        assert!(
            error.contains("`--set source.N.contract.max_reject_fraction=1`"),
            "{error}"
        );
    }
    config.contract.max_reject_fraction = Real::literal(1.0);
    run(&root, &config, &mut source(false, None)).await.unwrap();
    let last = entries(&root).await.pop().unwrap();
    let totals = &last.state.totals;
    assert_eq!((totals.rows, totals.rejected), (12, 8));
}
