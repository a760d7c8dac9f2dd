//! Servers that ask for a delay, and runs that honour it.

use feedline_schemas::{
    Classified as _, ErrorKind,
    commit::CommitEntry,
    config::{Bounded, PipelineConfig, RetryConfig, load},
    ids::Name,
};
use feedline_storage::Store;
use url::Url;

use crate::{
    context::Context,
    error::Error,
    run::ingest_all,
    testing::{self, Scripted, answer, ok},
};

/// Runs `config` so many seconds after the first run.
async fn run(seconds: u64, root: &Store, config: &PipelineConfig) -> Result<(), Error> {
    let context = Context {
        root: root.clone(),
        ..testing::context_after(seconds)
    };
    crate::ingest(config, None, &context).await.map(drop)
}

fn pipeline(url: &Url) -> PipelineConfig {
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"{url}\"\nretry = {{ base_ms = 1, cap_ms = 2 }}\n\
         [source.pagination]\ntype = \"page\"\nfirst_page = 0\npage_size = 1\n"
    );
    load("p", &text, &[]).unwrap().config
}

async fn entries(root: &Store) -> Vec<CommitEntry> {
    let name = Name::new("s").unwrap();
    let landed = crate::landed(root, &name).await.unwrap();
    landed.map(|landed| landed.entries).unwrap_or_default()
}

#[tokio::test]
async fn fault_14_a_long_wait_is_remembered_by_the_log_from_the_first_request_on() {
    let busy = || answer("429 X\r\nRetry-After: 10000", "");
    let server = Scripted::start([busy(), ok(r#"[{"i":0}]"#), ok("[]")]).await;
    let (root, config) = (Store::memory(), pipeline(&server.url));
    for seconds in [0, 5, 9_999] {
        let error = run(seconds, &root, &config).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deferred, "{error}");
        assert_eq!(server.heads().len(), 1, "after {seconds} s");
    }
    let parked = entries(&root).await;
    assert_eq!(parked.len(), 1);
    assert_eq!(
        (parked[0].state.not_before_unix_s, parked[0].files.len()),
        (Some(784_111_777 + 10_001), 0)
    );
    run(10_001, &root, &config).await.unwrap();
    let all = entries(&root).await;
    assert_eq!(all.last().unwrap().state.not_before_unix_s, None);
    // The same data lands as without a wait, including the schema version.
    let fresh = Store::memory();
    let server = Scripted::start([ok(r#"[{"i":0}]"#), ok("[]")]).await;
    run(0, &fresh, &pipeline(&server.url)).await.unwrap();
    let undisturbed = entries(&fresh).await;
    assert_eq!(all.last().unwrap().schema, undisturbed[0].schema);
    assert_eq!(all.last().unwrap().counts, undisturbed[0].counts);
}

#[tokio::test]
async fn a_deferred_run_merges_small_files_and_stays_deferred() {
    let server = Scripted::answering(|request, _| match request {
        0..4 => ok(&format!(
            r#"{{"items": [{{"i":{request}}}], "next": "c{request}"}}"#
        )),
        _ => answer("429 X\r\nRetry-After: 10000", ""),
    })
    .await;
    let text = format!(
        "[pipeline]\nname = \"p\"\n[ingest]\ncompact = {{ files = 2 }}\n[[source]]\nname = \"s\"\ntype = \"rest\"\n\
         url = \"{}\"\nrecords = \"items\"\nbatch = {{ pages = 1 }}\n\
         pagination = {{ type = \"cursor\", cursor_param = \"after\", cursor_path = \"next\" }}\n",
        server.url
    );
    let (root, config) = (Store::memory(), load("p", &text, &[]).unwrap().config);
    // The second run begins before it may send a request.
    for (seconds, merged) in [(0, Some((4, 1))), (5, None)] {
        let context = Context {
            root: root.clone(),
            ..testing::context_after(seconds)
        };
        let end = ingest_all(&config, None, &context).await.unwrap();
        let error = end.error.unwrap();
        assert_eq!(error.kind(), ErrorKind::Deferred, "{error}");
        let report = &end.report.sources[0];
        let compacted = report.compacted.as_ref();
        let counts = compacted.map(|found| (found.files_before, found.files_after));
        assert_eq!((counts, report.files, report.rows), (merged, 1, 4));
        assert_eq!(
            (report.status.as_str(), server.heads().len()),
            ("deferred", 5)
        );
        let last = entries(&root).await.pop().unwrap();
        assert!(last.state.not_before_unix_s.is_some());
    }
}

#[tokio::test]
async fn fault_16_a_quota_in_the_headers_of_a_success_ends_the_run_before_the_next_request() {
    // Five minutes ahead of us, back in 400 s.
    let date = "Date: Sun, 06 Nov 1994 08:54:37 GMT";
    let first = format!(
        "200 OK\r\n{date}\r\nX-RateLimit-Limit: 60\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: {}",
        784_111_777 + 300 + 400
    );
    // The run that resumes also requests the page before, whose record must be at its place.
    let page = || ok(r#"[{"i":0}]"#);
    let server = Scripted::start([answer(&first, r#"[{"i":0}]"#), ok("[]"), page()]).await;
    let (root, config) = (Store::memory(), pipeline(&server.url));
    let error = run(0, &root, &config).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("deferred until 1994-11-06T08:56:1"),
        "{error}"
    );
    assert_eq!((server.heads().len(), entries(&root).await.len()), (1, 1));
    run(402, &root, &config).await.unwrap();
    let all = entries(&root).await;
    assert_eq!((server.heads().len(), all.len()), (3, 2));
    assert_eq!(all.last().unwrap().state.totals.rows, 1);
}

#[tokio::test(start_paused = true)]
async fn fault_17_the_tries_of_a_run_stay_within_its_budget_and_most_of_them_are_not_sent() {
    let server = Scripted::start([answer("503 Oops", "busy")]).await;
    let mut config = testing::config(server.url.as_str(), Default::default());
    config.retry = RetryConfig {
        max_tries: Bounded::literal::<100>(),
        max_elapsed_s: Bounded::literal::<1_800>(),
        ..RetryConfig::default()
    };
    let begin = tokio::time::Instant::now();
    let error = testing::read_all(&config, usize::MAX).await.unwrap_err();
    let passed = begin.elapsed();
    assert!((1_500..=1_800).contains(&passed.as_secs()), "{passed:?}");
    let message = error.to_string();
    assert!(
        message.contains("`retry.max_elapsed_s` is over"),
        "{message}"
    );
    // Ten of the first two minutes, then one in 30 s, 60 s, 120 s ...
    let sent = server.heads().len();
    assert!((12..=16).contains(&sent), "{sent} requests, {message}");
}
