//! A repeated complete crawl.

use feedline_schemas::config::Bounded;
use std::sync::Mutex;

use feedline_schemas::config::Refresh;
use feedline_storage::{Effect, Faults, Operation, Rule};

use super::{
    resume::{pipeline, run, snapshot},
    *,
};
use crate::status;

/// Version and links of a page, by path.
type Pages = BTreeMap<String, (u32, Vec<String>)>;

/// A site of pages with versions that tests can change.
#[derive(Clone, Default)]
struct Site(Arc<Mutex<Pages>>);

impl Site {
    fn put(&self, path: &str, version: u32, links: &[&str]) {
        let links = links.iter().map(|&link| link.to_owned()).collect();
        self.0
            .lock()
            .unwrap()
            .insert(path.to_owned(), (version, links));
    }

    /// Pages under `/tagged` have an `ETag`, those under `/dated` a `Last-Modified`, others
    /// neither. A tag is the same for all pages of a version.
    fn answer(&self, head: &str) -> Step {
        let path = head.split(' ').nth(1).unwrap();
        let Some((version, links)) = self.0.lock().unwrap().get(path).cloned() else {
            return answer("404 Not Found", "");
        };
        let (tag, date) = (
            format!("\"v{version}\""),
            format!("Sun, 06 Nov 1994 08:4{version}:37 GMT"),
        );
        let (validator, asked) = match path {
            _ if path.starts_with("/tagged") => (
                format!("\r\nETag: {tag}"),
                format!("if-none-match: {tag}\r\n"),
            ),
            _ if path.starts_with("/dated") => (
                format!("\r\nLast-Modified: {date}"),
                format!("if-modified-since: {date}\r\n"),
            ),
            _ => (String::new(), "if-".into()),
        };
        if head.contains(&asked) {
            assert!(
                !validator.is_empty(),
                "{path} never had a validator: {head}"
            );
            return answer("304 Not Modified", "");
        }
        let links: Vec<&str> = links.iter().map(String::as_str).collect();
        let title = format!("{path} in version {version}");
        answer(
            &format!("200 OK\r\nContent-Type: text/html{validator}"),
            &article(&title, &links),
        )
    }
}

async fn site() -> (Site, Scripted) {
    let site = Site::default();
    site.put(
        "/",
        1,
        &["/tagged/a", "/dated/b", "/tagged/q?x=1", "/plain"],
    );
    site.put("/tagged/a", 1, &["/tagged/deep"]);
    site.put("/tagged/deep", 1, &[]);
    site.put("/tagged/q?x=1", 1, &[]);
    site.put("/dated/b", 1, &[]);
    site.put("/plain", 1, &[]);
    let served = site.clone();
    let server = Scripted::answering(move |_, head| served.answer(head)).await;
    (site, server)
}

/// Rows, duplicates and unchanged pages so far.
async fn counts(root: &Store, config: &feedline_schemas::config::PipelineConfig) -> [u64; 3] {
    let report = status(config, root).await.unwrap();
    let unchanged = report.sources[0].skipped.get("unchanged");
    assert_eq!(report.sources[0].status, "complete");
    [
        report.rows,
        report.duplicates,
        unchanged.copied().unwrap_or(0),
    ]
}

#[tokio::test]
async fn fault_49_an_unchanged_page_lands_nothing_and_is_counted() {
    let (site, server) = site().await;
    let mut config = pipeline(&server);
    config.source[0].crawl.refresh = Refresh::IfChanged;
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    assert_eq!(counts(&root, &config).await, [6, 0, 0]);
    // The pages without validators and the start page are equal, the others unchanged.
    run(&root, &config).await.unwrap();
    assert_eq!(counts(&root, &config).await, [6, 2, 4]);
    // A page below unchanged ones changes, and names another page, which shares its tag with a
    // third one.
    site.put("/tagged/deep", 2, &["/tagged/q?x=2"]);
    site.put("/tagged/q?x=2", 1, &[]);
    run(&root, &config).await.unwrap();
    assert_eq!(counts(&root, &config).await, [8, 4, 7]);
    run(&root, &config).await.unwrap();
    assert_eq!(counts(&root, &config).await, [8, 6, 12]);
    // Each of the four crawls requests a page once, from its discovery on.
    let asked = |path: &str| server.targets().iter().filter(|t| *t == path).count();
    assert_eq!((asked("/tagged/deep"), asked("/tagged/q?x=2")), (4, 2));
    // With `never`, it sends no request.
    config.source[0].crawl.refresh = Refresh::Never;
    let before = server.targets().len();
    run(&root, &config).await.unwrap();
    assert_eq!(server.targets().len(), before);
}

#[tokio::test]
async fn fault_49_a_validator_is_not_shared_across_query_strings() {
    let (site, server) = site().await;
    let mut config = pipeline(&server);
    config.source[0].crawl.refresh = Refresh::IfChanged;
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    site.put("/tagged/a", 2, &["/tagged/q?x=2"]);
    site.put("/tagged/q?x=2", 1, &[]);
    run(&root, &config).await.unwrap();
    let heads = server.heads();
    let of = |target: &str| {
        let start = format!("GET {target} ");
        let found = heads.iter().filter(|head| head.starts_with(&start));
        found
            .map(|head| head.contains("if-none-match"))
            .collect::<Vec<_>>()
    };
    assert_eq!(of("/tagged/q?x=1"), [false, true]);
    assert_eq!(of("/tagged/q?x=2"), [false]);
}

#[tokio::test]
async fn a_crawl_that_dies_while_it_is_run_again_lands_what_an_undisturbed_one_lands() {
    let (site, server) = site().await;
    let mut config = pipeline(&server);
    config.source[0].crawl.refresh = Refresh::IfChanged;
    config.source[0].batch.pages = Bounded::literal::<2>();
    let twice = async |rule: Option<Rule>| {
        let root = Store::memory();
        site.put("/tagged/deep", 1, &[]);
        run(&root, &config).await.unwrap();
        site.put("/tagged/deep", 2, &["/tagged/new"]);
        site.put("/tagged/new", 1, &[]);
        if let Some(rule) = rule {
            let died = run(&root.with_faults(Faults::new(vec![rule])), &config).await;
            assert!(died.is_err());
        }
        run(&root, &config).await.unwrap();
        snapshot(&root).await
    };
    let expected = twice(None).await;
    let entries = expected.keys().filter(|path| path.starts_with("log/"));
    assert_eq!(entries.count(), 7);
    for (operation, path, effect, number) in [
        (Operation::Create, "log/", Effect::FailBefore, 4),
        (Operation::Put, "", Effect::FailAfter, 4),
        (Operation::Put, "validators/", Effect::FailBefore, 1),
    ] {
        for skip in 0..number {
            let rule = Rule {
                operation,
                path_contains: path.into(),
                skip,
                times: 99,
                effect,
            };
            let landed = twice(Some(rule)).await;
            assert!(landed == expected, "{path} {effect:?} {skip}");
        }
    }
}
