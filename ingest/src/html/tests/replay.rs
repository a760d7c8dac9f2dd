//! A crawl whose responses are archived, and read again when the site is gone.

use feedline_schemas::config::{Bounded, Real};
use feedline_schemas::{
    config::{PipelineConfig, Refresh},
    report::IngestReport,
};
use feedline_storage::{Effect, Faults, Operation, Rule};

use super::{
    resume::{pipeline, run, snapshot},
    *,
};
use crate::run::replay::replay;

/// Pages with links, a sitemap, a redirect, an image, an absent page, a disallowed one, and a
/// broken one.
async fn town() -> Scripted {
    let home = article(
        "home",
        &[
            "/a", "/moved", "/absent", "/secret", "/broken", "/image", "/q?x=1",
        ],
    );
    let map = "<urlset><url><loc>/far</loc></url></urlset>";
    let head = |head: &str| format!("200 OK\r\nContent-Type: {head}");
    let tagged = head("text/html\r\nETag: \"1\"\r\nSet-Cookie: s=0123456789abcdef");
    let far = article("far", &[]);
    Scripted::answering(move |_, asked| {
        let path = asked.split(' ').nth(1).unwrap();
        let host = asked.split("host: ").nth(1).unwrap();
        let host = host.lines().next().unwrap();
        match path {
            "/" => html(&home),
            "/robots.txt" => text("User-agent: *\nDisallow: /secret"),
            "/map.xml" => {
                let map = map.replace("/far", &format!("http://{host}/far"));
                answer(&head("application/xml"), &map)
            }
            "/a" if asked.contains("if-none-match") => answer("304 Not Modified", ""),
            "/a" => answer(&tagged, &article("a", &["/b"])),
            "/b" => html(&article("b", &[])),
            "/far" => html(&far),
            "/moved" => answer("301 Moved\r\nLocation: /b?from=moved", ""),
            "/b?from=moved" => html(&article("moved", &[])),
            "/broken" => answer("503 Broken", "no"),
            "/image" => answer(&head("image/png"), "png"),
            "/q?x=1" => html(&article("q", &[])),
            _ => answer("404 Not Found", ""),
        }
    })
    .await
}

fn archived(server: &Scripted) -> PipelineConfig {
    let mut config = pipeline(server);
    let source = &mut config.source[0];
    source.archive_raw = true;
    source.batch.pages = Bounded::literal::<3>();
    source.retry.max_tries = Bounded::literal::<2>();
    source.contract.max_reject_fraction = Real::literal(1.0);
    source.crawl.sitemaps = vec![server.url.join("map.xml").unwrap().into()];
    config
}

async fn again(root: &Store, config: &PipelineConfig) -> Result<(Store, IngestReport), Error> {
    let to = Store::memory().child("again");
    let context = Context {
        root: to.clone(),
        ..context()
    };
    let report = replay(config, None, root, &context).await?;
    Ok((to, report))
}

#[tokio::test]
async fn a_crawl_is_replayed_without_its_site() {
    let server = town().await;
    let mut config = archived(&server);
    config.source[0].crawl.refresh = Refresh::IfChanged;
    let root = Store::memory();
    // Twice: of the second crawl one page is unchanged, and one is rejected as in the first.
    run(&root, &config).await.unwrap();
    run(&root, &config).await.unwrap();
    drop(server);
    let (to, report) = again(&root, &config).await.unwrap();
    let skipped = [
        ("not_a_page", 2),
        ("not_found", 2),
        ("redirected", 2),
        ("robots", 2),
        ("sitemap", 2),
        ("unchanged", 1),
    ];
    let source = &report.sources[0];
    assert_eq!(
        source.skipped,
        skipped.map(|(k, v)| (k.to_owned(), v)).into()
    );
    assert_eq!((report.rows, report.rejected, source.requests), (6, 1, 0));
    assert_eq!(
        source.rejected_by_reason,
        [("unreachable".to_owned(), 1)].into()
    );
    let landed = snapshot(&root).await;
    assert_eq!(snapshot(&to).await, landed);
    assert!(landed.keys().any(|path| path.starts_with("raw/")));
}

#[tokio::test]
async fn a_crawl_with_an_archive_that_dies_lands_the_same_bytes() {
    let server = town().await;
    let config = archived(&server);
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    let expected = snapshot(&root).await;
    let batches = expected.keys().filter(|p| p.starts_with("log/")).count();
    assert!(batches >= 3, "{batches}");
    for (operation, path) in [(Operation::Put, "raw/"), (Operation::Create, "log/")] {
        for skip in 0..batches as u64 {
            let root = Store::memory();
            let rule = Rule {
                operation,
                path_contains: path.into(),
                skip,
                times: 99,
                effect: Effect::FailBefore,
            };
            let died = run(&root.with_faults(Faults::new(vec![rule])), &config).await;
            assert!(died.is_err());
            run(&root, &config).await.unwrap();
            assert!(snapshot(&root).await == expected, "{path} {skip}");
        }
    }
}

#[tokio::test]
async fn other_selectors_make_other_rows_of_the_same_pages() {
    let server = town().await;
    let mut config = archived(&server);
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    drop(server);
    let page = &mut config.source[0].page;
    page.extract = PageExtract::Rows;
    page.rows = Some("li".into());
    page.columns = BTreeMap::from([("link".into(), "a@href".into())]);
    let (_, report) = again(&root, &config).await.unwrap();
    // Seven links of the first page and one of another.
    assert_eq!(report.rows, 8);
    // Another way through the site is another crawl.
    config.source[0].crawl.links = false;
    let error = again(&root, &config).await.unwrap_err().to_string();
    assert!(error.contains("was requested then"), "{error}");
}
