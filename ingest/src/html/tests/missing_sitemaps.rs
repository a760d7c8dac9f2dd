//! Sitemaps that come and go.

use feedline_schemas::config::{PipelineConfig, Refresh};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{
    resume::{pipeline, run},
    *,
};
use crate::status;

/// A site whose robots.txt names a sitemap, which exists if `exists` is true, with one more page.
async fn site_with_robots(exists: Arc<AtomicBool>) -> Scripted {
    Scripted::answering(move |_, head| {
        let host = head.split("host: ").nth(1).unwrap();
        let host = host.split("\r\n").next().unwrap();
        match head.split(' ').nth(1).unwrap() {
            "/" => html(&article("home", &[])),
            "/robots.txt" => text(&format!("Sitemap: http://{host}/map.xml\n")),
            "/map.xml" if exists.load(Ordering::SeqCst) => answer(
                "200 OK\r\nContent-Type: application/xml",
                &format!("<urlset><url><loc>http://{host}/a</loc></url></urlset>"),
            ),
            "/a" => html(&article("a", &[])),
            _ => answer("404 Not Found", ""),
        }
    })
    .await
}

/// Rows, and the messages about missing sitemaps.
async fn rows_and_messages(root: &Store, config: &PipelineConfig) -> (u64, Vec<String>) {
    let report = status(config, root).await.unwrap();
    let warnings = report.sources[0].warnings.iter();
    let missing = warnings.filter(|warning| warning.code == "missing_sitemap");
    let messages = missing.map(|warning| warning.message.clone());
    (report.rows, messages.collect())
}

#[tokio::test]
async fn a_missing_sitemap_of_robots_txt_is_a_warning_until_it_exists() {
    let exists = Arc::new(AtomicBool::new(false));
    let server = site_with_robots(Arc::clone(&exists)).await;
    let mut config = pipeline(&server);
    let crawl = &mut config.source[0].crawl;
    crawl.refresh = Refresh::IfChanged;
    crawl.sitemaps = vec![server.url.join("robots.txt").unwrap().into()];
    let root = Store::memory();
    for _ in 0..2 {
        run(&root, &config).await.unwrap();
        let (rows, messages) = rows_and_messages(&root, &config).await;
        // With its port.
        let expected = format!("`{}` does not exist", server.url.join("map.xml").unwrap());
        assert_eq!((rows, messages.len()), (1, 1), "{messages:?}");
        assert!(messages[0].starts_with(&expected), "{messages:?}");
    }
    exists.store(true, Ordering::SeqCst);
    run(&root, &config).await.unwrap();
    assert_eq!(rows_and_messages(&root, &config).await, (2, Vec::new()));
}

#[tokio::test]
async fn a_disallowed_sitemap_and_one_without_urls_are_named_and_an_empty_body_is_a_reject() {
    let xml = |body: &str| answer("200 OK\r\nContent-Type: application/xml", body);
    let server = site(Routes::from([
        ("/", html(&article("home", &[]))),
        (
            "/robots.txt",
            text("User-agent: *\nDisallow: /private.xml\n"),
        ),
        ("/private.xml", xml("<urlset></urlset>")),
        ("/none.xml", xml("<urlset></urlset>")),
        ("/blank.xml", xml("\n\n")),
    ]))
    .await;
    let mut config = config(&server);
    let paths = ["robots.txt", "private.xml", "none.xml", "blank.xml"];
    config.crawl.sitemaps = paths
        .map(|path| server.url.join(path).unwrap().into())
        .into();
    let found = crawl(&config).await.unwrap();
    assert_eq!(found.records, ["/", "bad_sitemap /blank.xml"]);
    let [warning] = found.warnings.as_slice() else {
        panic!("{:?}", found.warnings)
    };
    assert_eq!(warning.code, "empty_sitemap");
    for (path, reason) in [
        ("robots.txt", "it has no `Sitemap:` line"),
        ("private.xml", "robots.txt disallows it"),
        ("none.xml", "it has no `url` with a `loc`"),
    ] {
        let part = format!("`{}` ({reason})", server.url.join(path).unwrap());
        assert!(warning.message.contains(&part), "{warning:?}");
    }
}

#[tokio::test]
async fn urls_of_other_hosts_in_a_sitemap_are_counted_in_a_warning_unless_they_are_denied() {
    let map = |host: &str| format!("<urlset><url><loc>http://{host}/a</loc></url></urlset>");
    let xml = |body: &str| answer("200 OK\r\nContent-Type: application/xml", body);
    let server = Scripted::answering(move |_, head| {
        let host = head.split("host: ").nth(1).unwrap();
        let host = host.split("\r\n").next().unwrap();
        match head.split(' ').nth(1).unwrap() {
            "/" => html(&article("home", &[])),
            "/other.xml" => xml(&map("www.example.invalid")),
            "/both.xml" => {
                xml(&(map("cdn.example.invalid") + &map(host)).replace("</urlset><urlset>", ""))
            }
            _ => answer("404 Not Found", ""),
        }
    })
    .await;
    let mut config = config(&server);
    let of = |path: &str| server.url.join(path).unwrap().to_string();
    config.crawl.sitemaps = vec![of("other.xml"), of("both.xml")];
    let found = crawl(&config).await.unwrap();
    let [warning] = found.warnings.as_slice() else {
        panic!("{:?}", found.warnings)
    };
    assert_eq!(warning.code, "sitemap_of_other_hosts");
    assert_eq!(warning.key.as_deref(), Some("crawl.hosts"));
    let begin = format!(
        "`{}` (1 of `www.example.invalid`; 1 URL in all), `{}` (1 of `cdn.example.invalid`; 2 URLs in all) have URLs of hosts",
        of("other.xml"),
        of("both.xml")
    );
    assert!(warning.message.starts_with(&begin), "{warning:?}");
    let denied = ["http://www.example.invalid/", "http://cdn.example.invalid/"];
    config.crawl.deny = denied.map(ToOwned::to_owned).into();
    assert_eq!(crawl(&config).await.unwrap().warnings, []);
}
