//! An interrupted crawl resumes without a trace.

use feedline_schemas::{commit::CommitEntry, config::PipelineConfig, decode, encode};
use feedline_storage::{Effect, Faults, Operation, Rule};

use super::*;
use crate::{ingest, status, testing::context_after};

/// 60 pages in a tree with cross links, some absent, one moved, and one that asks for a delay while
/// `busy` is true.
async fn tree(busy: Arc<std::sync::atomic::AtomicBool>) -> Scripted {
    Scripted::answering(move |_, head| {
        let path = head.split(' ').nth(1).unwrap();
        let number: u64 = match path {
            "/" => 0,
            "/robots.txt" => return text("User-agent: *\nDisallow: /17"),
            _ => path[1..].parse().unwrap(),
        };
        if number == 33 && busy.load(std::sync::atomic::Ordering::SeqCst) {
            return answer("429 Slow\r\nRetry-After: 5000", "");
        }
        if number % 13 == 12 {
            return answer("404 Not Found", "");
        }
        if number == 20 {
            return answer("301 Moved\r\nLocation: /59", "");
        }
        let links: Vec<String> = (1..=4)
            .map(|i| format!("/{}", (number * 3 + i) % 60))
            .collect();
        let links: Vec<&str> = links.iter().map(String::as_str).collect();
        html(&article(path, &links))
    })
    .await
}

pub(super) fn pipeline(server: &Scripted) -> PipelineConfig {
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"html\"\nurl = \"{}\"\n\
         crawl = {{ delay_ms = 0, depth = 9 }}\nbatch = {{ pages = 7 }}\nretry = {{ base_ms = 1, cap_ms = 2 }}\n",
        server.url
    );
    feedline_schemas::config::load("p", &text, &[])
        .unwrap()
        .config
}

pub(super) async fn run(root: &Store, config: &PipelineConfig) -> Result<(), Error> {
    run_after(0, root, config).await
}

pub(super) async fn run_after(
    seconds: u64,
    root: &Store,
    config: &PipelineConfig,
) -> Result<(), Error> {
    let context = Context {
        root: root.clone(),
        ..context_after(seconds)
    };
    ingest(config, None, &context).await.map(drop)
}

/// The files that the log names, and its entries without run-specific fields.
pub(super) async fn snapshot(root: &Store) -> BTreeMap<String, Vec<u8>> {
    let landing = root.child("landing/s");
    let mut all = BTreeMap::new();
    for file in landing.list("log").await.unwrap() {
        let bytes = landing.get(&file.path).await.unwrap();
        let mut entry: CommitEntry = decode(&file.path, &bytes).unwrap();
        for named in entry
            .files
            .iter()
            .chain(&entry.rejects)
            .chain(&entry.frontier)
            .chain(&entry.validators)
            .chain(&entry.raw)
        {
            all.insert(
                named.path.clone(),
                landing.get(&named.path).await.unwrap().to_vec(),
            );
        }
        (entry.run_id, entry.batch_id, entry.prev_hash) = Default::default();
        entry.epoch = Default::default();
        all.insert(file.path, encode(&entry));
    }
    all
}

#[tokio::test]
async fn killed_at_any_point_of_any_commit_it_lands_what_an_undisturbed_crawl_lands() {
    let server = tree(Arc::default()).await;
    let config = pipeline(&server);
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    let expected = snapshot(&root).await;
    let report = status(&config, &root).await.unwrap();
    let source = &report.sources[0];
    // `/` and 60 numbers: 4 of these are absent, one is disallowed and one moved.
    assert_eq!((report.rows, report.rejected, source.pages), (55, 0, 61));
    assert_eq!(
        source.skipped,
        [("not_found", 4), ("redirected", 1), ("robots", 1)]
            .map(|(k, v)| (k.to_owned(), v))
            .into()
    );
    let batches = report.batches;
    assert!(batches >= 8, "{batches}");
    for (operation, path, effect) in [
        (Operation::Put, "data/", Effect::FailBefore),
        (Operation::Put, "frontier/", Effect::FailBefore),
        (Operation::Put, "frontier/", Effect::FailAfter),
        (Operation::Create, "log/", Effect::FailBefore),
    ] {
        for skip in (0..batches).step_by(4) {
            let root = Store::memory();
            let rule = Rule {
                operation,
                path_contains: path.into(),
                skip,
                times: 99,
                effect,
            };
            let died = run(&root.with_faults(Faults::new(vec![rule])), &config).await;
            // Towards the end a batch finds nothing new, and writes no frontier file.
            assert!(died.is_err() || path == "frontier/", "{path} {skip}");
            run(&root, &config).await.unwrap();
            assert!(
                snapshot(&root).await == expected,
                "{path} {effect:?} {skip}"
            );
        }
    }
}

#[tokio::test]
async fn a_crawl_that_is_over_is_only_read() {
    let server = tree(Arc::default()).await;
    let config = pipeline(&server);
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    let (before, asked) = (snapshot(&root).await, server.targets().len());
    run(&root, &config).await.unwrap();
    assert_eq!(
        (server.targets().len(), snapshot(&root).await == before),
        (asked, true)
    );
    let mut other = config;
    other.source[0].crawl.hosts = vec!["h.example".to_owned()];
    let error = run(&root, &other).await.unwrap_err().to_string();
    assert!(error.contains("`source.0.crawl.hosts`: was"), "{error}");
    assert!(
        error.contains("the crawl has begun with the old ones"),
        "{error}"
    );
}

#[tokio::test]
async fn fault_14_a_host_that_asks_to_wait_ends_the_run_and_a_later_one_goes_on() {
    let busy = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let server = tree(Arc::clone(&busy)).await;
    let config = pipeline(&server);
    let root = Store::memory();
    let error = run(&root, &config).await.unwrap_err();
    assert!(matches!(error, Error::Deferred { .. }), "{error}");
    let before = status(&config, &root).await.unwrap().rows;
    assert!((10..55).contains(&before), "{before}");
    busy.store(false, std::sync::atomic::Ordering::SeqCst);
    // No request is sent before that time.
    let asked = server.targets().len();
    for seconds in [0, 4_990] {
        let error = run_after(seconds, &root, &config).await.unwrap_err();
        assert!(error.to_string().contains("no request was sent"), "{error}");
    }
    assert_eq!(server.targets().len(), asked);
    assert_eq!(
        status(&config, &root).await.unwrap().sources[0].status,
        "deferred"
    );
    run_after(5_002, &root, &config).await.unwrap();
    assert_eq!(status(&config, &root).await.unwrap().rows, 55);
    let mut targets = server.targets();
    targets.retain(|target| target != "/robots.txt" && target != "/33");
    let asked = targets.len();
    targets.sort();
    targets.dedup();
    assert_eq!(targets.len(), asked, "no page is asked for twice");
}

#[tokio::test]
async fn a_damaged_frontier_is_refused() {
    let server = tree(Arc::default()).await;
    let config = pipeline(&server);
    let root = Store::memory();
    let rule = Rule {
        operation: Operation::Create,
        path_contains: "log/".into(),
        skip: 3,
        times: 99,
        effect: Effect::FailBefore,
    };
    run(&root.with_faults(Faults::new(vec![rule])), &config)
        .await
        .unwrap_err();
    let landing = root.child("landing/s");
    let frontier = landing.list("frontier").await.unwrap();
    let path = &frontier[1].path;
    let mut bytes = landing.get(path).await.unwrap().to_vec();
    bytes[8] ^= 1;
    landing.put(path, bytes.into()).await.unwrap();
    let error = run(&root, &config).await.unwrap_err().to_string();
    assert!(error.contains("in its log entry"), "{error}");
}
