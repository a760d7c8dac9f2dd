//! Pages that fail in one run and are requested again by the next one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use feedline_schemas::{
    config::{Bounded, PipelineConfig, Real, Refresh},
    report::SourceReport,
};
use feedline_storage::{Effect, Faults, Operation, Rule};

use super::{
    resume::{pipeline, run, run_after, snapshot},
    *,
};
use crate::{run::replay::replay, status};

/// A site whose first page links to nine others. While `is_down`, three of them fail. Later one of
/// these links to a further page, and one does not exist.
async fn busy_site(is_down: &Arc<AtomicBool>) -> Scripted {
    let is_down = Arc::clone(is_down);
    let links = ["/0", "/1", "/2", "/3", "/4", "/5", "/6", "/7", "/8"];
    Scripted::answering(move |_, head| {
        let is_down = is_down.load(Ordering::SeqCst);
        match head.split(' ').nth(1).unwrap() {
            "/robots.txt" => text(""),
            "/" => html(&article("home", &links)),
            "/2" | "/5" | "/7" if is_down => answer("503 Busy", ""),
            "/5" => html(&article("5", &["/deep", "/0"])),
            "/7" => answer("404 Not Found", ""),
            path => html(&article(path, &[])),
        }
    })
    .await
}

fn with_failures(server: &Scripted) -> PipelineConfig {
    let mut config = pipeline(server);
    let source = &mut config.source[0];
    source.retry.max_tries = Bounded::literal::<1>();
    source.contract.max_reject_fraction = Real::literal(1.0);
    config
}

async fn source_report(root: &Store, config: &PipelineConfig) -> SourceReport {
    status(config, root).await.unwrap().sources.remove(0)
}

/// Rows, duplicates and rejected records.
fn counts(report: &SourceReport) -> [u64; 3] {
    [report.rows, report.duplicates, report.rejected]
}

/// Message of the warning about failed pages.
fn failed_message(report: &SourceReport) -> Option<&str> {
    let mut warnings = report.warnings.iter();
    let warning = warnings.find(|warning| warning.code == "pages_failed")?;
    Some(&warning.message)
}

#[tokio::test]
async fn failed_pages_are_requested_by_each_run_until_they_land_or_are_absent() {
    let is_down = Arc::new(AtomicBool::new(true));
    let server = busy_site(&is_down).await;
    let config = with_failures(&server);
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    let report = source_report(&root, &config).await;
    assert_eq!(counts(&report), [7, 0, 3]);
    assert_eq!(report.status, "partial");
    assert_eq!(report.failed_pages, 3);
    let message = failed_message(&report).unwrap();
    let begin = "the last requests of 3 pages of the crawl failed";
    assert!(message.starts_with(begin), "{message}");
    assert_eq!(report.reject_keys["unreachable"], ["crawl.deny"]);
    // A run in which all of them fail again adds no entry and no reject.
    let before = snapshot(&root).await;
    run(&root, &config).await.unwrap();
    assert!(snapshot(&root).await == before);
    is_down.store(false, Ordering::SeqCst);
    run(&root, &config).await.unwrap();
    let report = source_report(&root, &config).await;
    // `/2`, `/5` and the page that it links to.
    assert_eq!(counts(&report), [10, 0, 3]);
    assert_eq!(report.skipped["not_found"], 1);
    assert_eq!(report.status, "complete");
    assert_eq!(report.failed_pages, 0);
    assert_eq!(failed_message(&report), None);
    let targets = server.targets();
    let asked = |path: &str| targets.iter().filter(|target| *target == path).count();
    for (path, times) in [
        ("/", 1),
        ("/0", 1),
        ("/2", 3),
        ("/5", 3),
        ("/7", 3),
        ("/deep", 1),
    ] {
        assert_eq!(asked(path), times, "{path}");
    }
    // Nothing is left.
    run(&root, &config).await.unwrap();
    assert_eq!(server.targets().len(), targets.len());
}

#[tokio::test]
async fn killed_while_it_requests_failed_pages_it_lands_each_of_them_once() {
    let is_down = Arc::new(AtomicBool::new(true));
    let server = busy_site(&is_down).await;
    let mut config = with_failures(&server);
    config.source[0].batch.pages = Bounded::literal::<1>();
    let twice = async |rule: Option<Rule>| {
        let root = Store::memory();
        is_down.store(true, Ordering::SeqCst);
        run(&root, &config).await.unwrap();
        is_down.store(false, Ordering::SeqCst);
        if let Some(rule) = rule {
            let died = run(&root.with_faults(Faults::new(vec![rule])), &config).await;
            assert!(died.is_err());
        }
        run(&root, &config).await.unwrap();
        let report = source_report(&root, &config).await;
        assert_eq!(counts(&report), [10, 0, 3]);
        assert_eq!(report.status, "complete");
        snapshot(&root).await
    };
    let expected = twice(None).await;
    // Entries for `/2`, `/5`, the page that it links to, and `/7`.
    for skip in 0..4 {
        let rule = Rule {
            operation: Operation::Create,
            path_contains: "log/".into(),
            skip,
            times: 99,
            effect: Effect::FailBefore,
        };
        assert!(twice(Some(rule)).await == expected, "{skip}");
    }
}

#[tokio::test]
async fn a_run_that_continues_a_crawl_requests_the_pages_that_failed_before() {
    let is_down = Arc::new(AtomicBool::new(true));
    let server = busy_site(&is_down).await;
    let mut config = with_failures(&server);
    config.source[0].batch.pages = Bounded::literal::<1>();
    let root = Store::memory();
    let rule = Rule {
        operation: Operation::Create,
        path_contains: "log/".into(),
        skip: 5,
        times: 99,
        effect: Effect::FailBefore,
    };
    let died = run(&root.with_faults(Faults::new(vec![rule])), &config).await;
    assert!(died.is_err());
    let report = source_report(&root, &config).await;
    assert_eq!(counts(&report), [4, 0, 1]);
    is_down.store(false, Ordering::SeqCst);
    run(&root, &config).await.unwrap();
    let report = source_report(&root, &config).await;
    assert_eq!(counts(&report), [10, 0, 1]);
    assert_eq!(report.status, "complete");
}

#[tokio::test]
async fn requests_of_failed_pages_are_replayed_from_an_archive() {
    let is_down = Arc::new(AtomicBool::new(true));
    let server = busy_site(&is_down).await;
    let mut config = with_failures(&server);
    config.source[0].archive_raw = true;
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    is_down.store(false, Ordering::SeqCst);
    run(&root, &config).await.unwrap();
    drop(server);
    let to = Store::memory().child("again");
    let context = Context {
        root: to.clone(),
        ..context()
    };
    let report = replay(&config, None, &root, &context).await.unwrap();
    assert_eq!((report.rows, report.rejected), (10, 3));
    assert!(snapshot(&to).await == snapshot(&root).await);
}

#[tokio::test]
async fn a_page_that_the_server_refuses_is_not_requested_again() {
    let server = site(Routes::from([
        ("/", html(&article("home", &["/no", "/a"]))),
        ("/no", answer("403 Forbidden", "")),
        ("/a", html(&article("a", &[]))),
    ]))
    .await;
    let config = with_failures(&server);
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    let report = source_report(&root, &config).await;
    assert_eq!(counts(&report), [2, 0, 1]);
    assert_eq!(report.status, "complete");
    assert_eq!(failed_message(&report), None);
    let requests = server.targets().len();
    run(&root, &config).await.unwrap();
    assert_eq!(server.targets().len(), requests);
}

#[tokio::test]
async fn pages_beyond_the_limit_are_requested_by_a_repeated_crawl_alone() {
    let is_down = Arc::new(AtomicBool::new(true));
    let down = Arc::clone(&is_down);
    // Each second one of 64 pages fails, two more than are remembered in tests.
    let links: Vec<String> = (0..64).map(|number| format!("/{number}")).collect();
    let server = Scripted::answering(move |_, head| {
        let path = head.split(' ').nth(1).unwrap();
        let links: Vec<&str> = links.iter().map(String::as_str).collect();
        match path[1..].parse::<u64>() {
            Ok(number) if number % 2 == 1 && down.load(Ordering::SeqCst) => answer("503 Busy", ""),
            Ok(_) => html(&article(path, &[])),
            Err(_) if path == "/" => html(&article("home", &links)),
            Err(_) => answer("404 Not Found", ""),
        }
    })
    .await;
    let mut config = with_failures(&server);
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    let report = source_report(&root, &config).await;
    assert_eq!(counts(&report), [33, 0, 32]);
    let codes = |report: &SourceReport| -> Vec<String> {
        let warnings = report.warnings.iter();
        let codes = warnings.map(|warning| warning.code.clone());
        codes.filter(|code| code.starts_with("pages_")).collect()
    };
    assert_eq!(codes(&report), ["pages_failed", "pages_beyond_limit"]);
    is_down.store(false, Ordering::SeqCst);
    run(&root, &config).await.unwrap();
    let report = source_report(&root, &config).await;
    assert_eq!(counts(&report), [63, 0, 32]);
    assert_eq!(report.status, "partial");
    assert_eq!(codes(&report), ["pages_beyond_limit"]);
    let requests = server.targets().len();
    run(&root, &config).await.unwrap();
    assert_eq!(server.targets().len(), requests);
    config.source[0].crawl.refresh = Refresh::IfChanged;
    run(&root, &config).await.unwrap();
    let report = source_report(&root, &config).await;
    assert_eq!((report.rows, report.status.as_str()), (65, "complete"));
    assert_eq!(codes(&report), [""; 0]);
}

#[tokio::test]
async fn pages_that_always_fail_do_not_hold_back_those_that_recover() {
    let is_down = Arc::new(AtomicBool::new(true));
    let down = Arc::clone(&is_down);
    // 21 of 28 pages fail, and no more than three in a row; the last of them recovers.
    let links: Vec<String> = (0..28).map(|number| format!("/{number}")).collect();
    let server = Scripted::answering(move |_, head| {
        let path = head.split(' ').nth(1).unwrap();
        let links: Vec<&str> = links.iter().map(String::as_str).collect();
        match path[1..].parse::<u64>() {
            Ok(26) if !down.load(Ordering::SeqCst) => html(&article(path, &[])),
            Ok(number) if number % 4 < 3 => answer("500 Oops", ""),
            Ok(_) => html(&article(path, &[])),
            Err(_) if path == "/" => html(&article("home", &links)),
            Err(_) => answer("404 Not Found", ""),
        }
    })
    .await;
    let mut config = with_failures(&server);
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    let report = source_report(&root, &config).await;
    assert_eq!(counts(&report), [8, 0, 21]);
    is_down.store(false, Ordering::SeqCst);
    config.source[0].retry.max_tries = Bounded::literal::<8>();
    let requests = server.targets().len();
    run(&root, &config).await.unwrap();
    let report = source_report(&root, &config).await;
    assert_eq!(counts(&report), [9, 0, 21]);
    assert_eq!(report.failed_pages, 20);
    // One request of each page, and one of robots.txt.
    assert_eq!(server.targets().len() - requests, 22);
}

#[tokio::test]
async fn a_run_after_a_delay_in_which_all_pages_fail_again_ends_the_delay() {
    let step = Arc::new(AtomicU64::new(0));
    let at = Arc::clone(&step);
    let server = Scripted::answering(move |_, head| match head.split(' ').nth(1).unwrap() {
        "/" => html(&article("home", &["/a"])),
        "/a" if at.load(Ordering::SeqCst) == 1 => answer("429 Slow\r\nRetry-After: 5000", ""),
        "/a" => answer("503 Busy", ""),
        _ => answer("404 Not Found", ""),
    })
    .await;
    let config = with_failures(&server);
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    step.store(1, Ordering::SeqCst);
    let error = run(&root, &config).await.unwrap_err();
    assert!(matches!(error, Error::Deferred { .. }), "{error}");
    let report = source_report(&root, &config).await;
    assert_eq!(report.status, "deferred");
    step.store(2, Ordering::SeqCst);
    run_after(5_002, &root, &config).await.unwrap();
    let report = source_report(&root, &config).await;
    assert_eq!(report.status, "partial");
    assert_eq!(report.failed_pages, 1);
    // The next such run adds no entry.
    let before = snapshot(&root).await;
    run_after(5_003, &root, &config).await.unwrap();
    assert!(snapshot(&root).await == before);
}

#[tokio::test]
async fn a_crawl_whose_only_pages_with_records_failed_lands_them_later() {
    let is_down = Arc::new(AtomicBool::new(true));
    let server = busy_site(&is_down).await;
    let mut config = with_failures(&server);
    let source = &mut config.source[0];
    source.batch.pages = Bounded::literal::<1>();
    source.page.land = vec!["/2".to_owned()];
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    let report = source_report(&root, &config).await;
    assert_eq!(counts(&report), [0, 0, 3]);
    assert_eq!(report.status, "partial");
    is_down.store(false, Ordering::SeqCst);
    run(&root, &config).await.unwrap();
    let report = source_report(&root, &config).await;
    assert_eq!(counts(&report), [1, 0, 3]);
    assert_eq!(report.status, "complete");
}

#[tokio::test]
async fn a_failed_page_that_the_server_refuses_later_can_be_left_out_with_deny() {
    let is_down = Arc::new(AtomicBool::new(true));
    let down = Arc::clone(&is_down);
    let server = Scripted::answering(move |_, head| match head.split(' ').nth(1).unwrap() {
        "/" => html(&article("home", &["/a"])),
        "/a" if down.load(Ordering::SeqCst) => answer("503 Busy", ""),
        "/a" => answer("403 Forbidden", ""),
        _ => answer("404 Not Found", ""),
    })
    .await;
    let mut config = with_failures(&server);
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    is_down.store(false, Ordering::SeqCst);
    config.source[0].crawl.deny = vec!["/a".to_owned()];
    run(&root, &config).await.unwrap();
    let report = source_report(&root, &config).await;
    assert_eq!(counts(&report), [1, 0, 1]);
    assert_eq!(report.skipped["denied"], 1);
    assert_eq!(report.status, "complete");
}
