//! Crawls of small sites on loopback.

mod failed_pages;
mod headless_tables;
mod invalid_bytes;
mod missing_sitemaps;
mod politeness;
mod refresh;
mod replay;
mod resume;
mod row_columns;

use feedline_readers::value::Value;
use feedline_schemas::config::Bounded;
use std::collections::BTreeMap;

use feedline_schemas::{
    config::{PageExtract, SourceKind},
    report::Warning,
};

use super::*;
use crate::testing::{Scripted, Step, answer, context, raw};

/// A page that the extractor recognizes as an article, with links.
fn article(title: &str, links: &[&str]) -> String {
    let sentence = format!(
        "This is what the page called {title} has to say, and it says it at some length so that nobody takes it for a menu. "
    );
    let links: String = links
        .iter()
        .map(|link| format!("<li><a href=\"{link}\">{link}</a></li>"))
        .collect();
    format!(
        "<!doctype html><html lang=en><head><title>{title}</title></head><body><article><h1>{title}</h1><p>{}</p><p>{}</p></article><ul>{links}</ul></body></html>",
        sentence.repeat(4),
        sentence.repeat(3)
    )
}

fn html(body: &str) -> Step {
    answer("200 OK\r\nContent-Type: text/html; charset=utf-8", body)
}

fn text(body: &str) -> Step {
    answer("200 OK\r\nContent-Type: text/plain", body)
}

type Routes = BTreeMap<&'static str, Step>;

/// A site with `routes`; all other paths are absent.
async fn site(routes: Routes) -> Scripted {
    Scripted::answering(move |_, head| {
        let path = head.split(' ').nth(1).unwrap();
        let absent = || answer("404 Not Found", "");
        routes.get(path).cloned().unwrap_or_else(absent)
    })
    .await
}

fn config(server: &Scripted) -> SourceConfig {
    let mut config = crate::testing::config(
        server.url.as_str(),
        feedline_schemas::config::PaginationKind::None,
    );
    config.r#type = SourceKind::Html;
    config.crawl.delay_ms = Bounded::literal::<0>();
    config.retry.max_tries = Bounded::literal::<2>();
    config
}

/// Result of a crawl.
#[derive(Debug, Default)]
struct Found {
    /// Path of a record's URL, or reason and path of a reject.
    records: Vec<String>,
    skipped: BTreeMap<&'static str, u64>,
    warnings: Vec<Warning>,
    pages: usize,
}

impl Found {
    fn take(&mut self, page: &Page) {
        self.pages += 1;
        for record in &page.records {
            self.records.push(match record {
                record @ (Record::Value(_) | Record::Json(_)) => {
                    match record.value().unwrap().at("url") {
                        Some(Value::Text(url)) => path_of(url),
                        other => panic!("{other:?}"),
                    }
                }
                Record::Bad { raw, reason, .. } => format!("{reason} {}", path_of(raw)),
            });
        }
        let crawled = page.crawled.as_ref().unwrap();
        for (reason, count) in &crawled.skipped {
            *self.skipped.entry(reason).or_default() += count;
        }
        self.warnings.extend(crawled.warnings.iter().cloned());
    }
}

fn path_of(url: &str) -> String {
    Url::parse(url).map_or_else(|_| url.to_owned(), |url| address::path(&url).to_owned())
}

async fn crawl(config: &SourceConfig) -> Result<Found, Error> {
    let mut source = open(config, &context())?;
    let (mut at, mut found) = (Position::Start, Found::default());
    while !matches!(at, Position::Done { .. }) {
        let page = source.next_page(&at).await?;
        found.take(&page);
        at = page.next;
    }
    found.warnings = crate::warnings::apply(found.warnings, source.take_warnings());
    Ok(found)
}

fn skipped(found: &Found) -> Vec<(&'static str, u64)> {
    found
        .skipped
        .iter()
        .map(|(reason, count)| (*reason, *count))
        .collect()
}

#[tokio::test]
async fn pages_are_visited_breadth_first_and_each_once() {
    let server = site(Routes::from([
        (
            "/",
            html(&article(
                "home",
                &[
                    "b",
                    "/a#x",
                    "/b?",
                    "../b",
                    "/",
                    "http://other.example/",
                    "mailto:x@y",
                ],
            )),
        ),
        ("/b", html(&article("b", &["/c", "/a"]))),
        ("/a", html(&article("a", &["/d", "/b#top"]))),
        ("/c", html(&article("c", &["/"]))),
        ("/d", html(&article("d", &["/e"]))),
        ("/e", html(&article("e", &["/f"]))),
        ("/f", html(&article("f", &[]))),
    ]))
    .await;
    let found = crawl(&config(&server)).await.unwrap();
    // `/f` is four links away.
    assert_eq!(found.records, ["/", "/b", "/a", "/c", "/d", "/e"]);
    assert_eq!(
        server.targets(),
        ["/robots.txt", "/", "/b", "/a", "/c", "/d", "/e"]
    );
    assert_eq!(skipped(&found), []);
}

#[tokio::test]
async fn an_article_tells_what_the_page_says_about_itself() {
    let page = article("Bees", &[]).replace(
        "<head>",
        "<head><link rel=canonical href='/bees?utm_source=x'><meta property='og:site_name' content='The Garden'>\
         <meta name=author content='Ada Bee'><meta name=description content='About bees.'>\
         <meta property='article:published_time' content='2020-02-03T04:05:06Z'>",
    );
    let server = site(Routes::from([("/", html(&page))])).await;
    let mut config = config(&server);
    config.crawl.drop_params = vec!["utm_*".into()];
    let mut source = open(&config, &context()).unwrap();
    let page = source.next_page(&Position::Start).await.unwrap();
    let [Record::Value(value)] = page.records.as_slice() else {
        panic!("{page:?}")
    };
    let text = |key: &str| match value.at(key) {
        Some(Value::Text(text)) => text.clone(),
        other => panic!("{key}: {other:?}"),
    };
    assert_eq!(text("url"), server.url.join("/bees").unwrap().as_str());
    assert_eq!(text("fetched_url"), server.url.as_str());
    assert_eq!(
        (text("title").as_str(), text("author").as_str()),
        ("Bees", "Ada Bee")
    );
    assert_eq!(
        (text("site").as_str(), text("description").as_str()),
        ("The Garden", "About bees.")
    );
    assert!(text("date").starts_with("2020-02-03"), "{}", text("date"));
    assert_eq!(text("language"), "en");
    assert!(
        text("text").contains("says it at some length") && !text("text").contains("utm_source")
    );
}

#[tokio::test]
async fn pages_of_one_canonical_address_keep_the_one_they_were_fetched_at_and_warn() {
    let page = |title: &str, links: &[&str]| {
        let canonical = "<head><link rel=canonical href='/'>";
        html(&article(title, links).replace("<head>", canonical))
    };
    let server = site(Routes::from([
        ("/", page("home", &["/a", "/b"])),
        ("/a", page("first", &[])),
        ("/b", page("second", &[])),
    ]))
    .await;
    let mut source = open(&config(&server), &context()).unwrap();
    let (mut at, mut fetched, mut warnings) = (Position::Start, Vec::new(), Vec::new());
    while !matches!(at, Position::Done { .. }) {
        let page = source.next_page(&at).await.unwrap();
        for record in &page.records {
            let value = record.value().unwrap();
            assert_eq!(
                value.at("url"),
                Some(&Value::Text(server.url.to_string())),
                "the canonical one"
            );
            let Some(Value::Text(url)) = value.at("fetched_url") else {
                panic!("{value:?}")
            };
            fetched.push(Url::parse(url).unwrap().path().to_owned());
        }
        warnings.extend(page.crawled.unwrap().warnings);
        at = page.next;
    }
    assert_eq!(fetched, ["/", "/a", "/b"]);
    let last = warnings.last().unwrap();
    assert_eq!(
        (last.code.as_str(), last.key.as_deref()),
        ("same_canonical", Some("key"))
    );
    assert!(last.message.starts_with("2 pages name"), "{}", last.message);
    assert!(
        last.message.contains("`key = [\"fetched_url\"]`"),
        "{}",
        last.message
    );
}

#[tokio::test]
async fn redirects_are_urls_of_their_own() {
    let moved = |to: &str| answer(&format!("301 Moved\r\nLocation: {to}"), "");
    let server = site(Routes::from([
        (
            "/",
            html(&article("home", &["/old", "/loop", "/a", "/out", "/chain"])),
        ),
        ("/old", moved("/new")),
        ("/new", html(&article("new", &[]))),
        ("/loop", moved("/loop2")),
        ("/loop2", moved("/loop")),
        ("/a", moved("/new")),
        ("/out", moved("http://other.example/")),
        ("/chain", moved("/c1")),
        ("/c1", moved("/c2")),
        ("/c2", moved("/c3")),
        ("/c3", moved("/c4")),
        ("/c4", moved("/c5")),
        ("/c5", moved("/c6")),
    ]))
    .await;
    let found = crawl(&config(&server)).await.unwrap();
    assert_eq!(found.records, ["/", "/new"]);
    assert_eq!(
        skipped(&found),
        [
            ("redirected", 9),
            ("redirected_away", 1),
            ("too_many_redirects", 1)
        ]
    );
    let mut targets = server.targets();
    targets.sort();
    targets.dedup();
    assert_eq!(
        targets.len(),
        server.targets().len(),
        "nothing is asked for twice"
    );
}

#[tokio::test]
async fn a_start_page_may_redirect_to_the_host_it_lives_on() {
    let server = Scripted::answering(|_, head| {
        let named = |key: &str| {
            head.split(key)
                .nth(1)
                .unwrap()
                .split("\r\n")
                .next()
                .unwrap()
                .to_owned()
        };
        let host = named("host: ");
        if head.starts_with("GET / ") && host.starts_with("127.0.0.1") {
            let to = format!("http://{}/home", host.replace("127.0.0.1", "localhost"));
            return answer(&format!("301 Moved\r\nLocation: {to}"), "");
        }
        match head.split(' ').nth(1).unwrap() {
            "/home" => html(&article("home", &["/a"])),
            "/a" => html(&article("a", &[])),
            _ => answer("404 Not Found", ""),
        }
    })
    .await;
    let mut config = config(&server);
    // It is data that lead there, into this machine.
    let error = crawl(&config).await.unwrap_err().to_string();
    assert!(error.contains("its host is not of the internet"), "{error}");
    config.private_hosts = vec!["localhost".into()];
    assert_eq!(crawl(&config).await.unwrap().records, ["/home", "/a"]);
    config.crawl.hosts = vec!["127.0.0.1".into()];
    let error = crawl(&config).await.unwrap_err().to_string();
    assert!(error.contains("1 redirected_away"), "{error}");
}

/// Fault 50: a calendar without end.
#[tokio::test]
async fn fault_50_traps_are_bounded_by_depth_and_by_number() {
    let trap = || {
        Scripted::answering(|_, head| {
            let path = head.split(' ').nth(1).unwrap();
            match path.strip_prefix("/day/") {
                Some(day) => {
                    let day: u64 = day.parse().unwrap();
                    html(&article(
                        path,
                        &[&format!("/day/{}", day + 1), &format!("/day/{}", day + 2)],
                    ))
                }
                None => answer("404 Not Found", ""),
            }
        })
    };
    let server = trap().await;
    let mut config = config(&server);
    config.url = server.url.join("/day/0").unwrap().into();
    let days = |records: Vec<String>| records.len();
    assert_eq!(days(crawl(&config).await.unwrap().records), 7);
    config.crawl.depth = Bounded::literal::<1_000>();
    config.crawl.max_pages = Bounded::literal::<40>();
    let found = crawl(&config).await.unwrap();
    assert!(found.skipped["beyond_max_pages"] >= 1);
    assert_eq!((found.records.len(), found.pages), (40, 21));
    config.crawl.max_pages = Bounded::literal::<10_000>();
    config.crawl.max_host_pages = Some(Bounded::literal::<9>());
    let found = crawl(&config).await.unwrap();
    assert_eq!(found.records.len(), 9);
    config.crawl.deny = vec!["/day/5".into()];
    config.crawl.allow = vec!["/day/".into()];
    config.crawl.max_host_pages = None;
    config.crawl.depth = Bounded::literal::<3>();
    assert_eq!(
        crawl(&config).await.unwrap().records,
        ["/day/0", "/day/1", "/day/2", "/day/3", "/day/4", "/day/6"]
    );
}

#[tokio::test]
async fn what_is_no_page_is_skipped_and_what_fails_is_rejected() {
    let server = site(Routes::from([
        (
            "/",
            html(&article(
                "home",
                &[
                    "/pdf", "/gone", "/no", "/broken", "/note", "/quiet", "/deep", "/empty",
                    "/index",
                ],
            )),
        ),
        (
            "/pdf",
            answer("200 OK\r\nContent-Type: application/pdf", "<html>%PDF"),
        ),
        ("/gone", answer("410 Gone", "")),
        ("/no", answer("403 Forbidden", "")),
        ("/broken", answer("500 Oops", "")),
        ("/note", text("A note.")),
        (
            "/quiet",
            html(&article("quiet", &["/never"]).replace(
                "<head>",
                "<head><meta name=ROBOTS content='noindex, NOFOLLOW'>",
            )),
        ),
        ("/deep", html(&"<div>".repeat(100_000))),
        ("/empty", html("<html><body></body></html>")),
        ("/index", html(&article("index", &["/note"]))),
    ]))
    .await;
    let mut config = config(&server);
    config.page.land = vec![
        "/$".into(),
        "/n".into(),
        "/q".into(),
        "/d".into(),
        "/e".into(),
    ];
    let found = crawl(&config).await.unwrap();
    assert_eq!(
        found.records,
        [
            "/",
            "refused /no",
            "unreachable /broken",
            "/note",
            "too_deep /deep"
        ]
    );
    let expected = [
        ("links_only", 1),
        ("no_text", 1),
        ("noindex", 1),
        ("not_a_page", 1),
        ("not_found", 1),
    ];
    assert_eq!(skipped(&found), expected);
    assert!(!server.targets().contains(&"/never".to_owned()));
}

#[tokio::test]
async fn links_marked_nofollow_are_left_alone_unless_asked_for() {
    let page =
        article("home", &["/a", "/b"]).replace("href=\"/a\"", "rel='ugc nofollow' href=\"/a\"");
    let server = site(Routes::from([
        ("/", html(&page)),
        ("/a", html(&article("a", &[]))),
        (
            "/b",
            html(&article("b", &["/c"]).replace("<body>", "<base href='/sub/'>")),
        ),
        ("/sub/x", html(&article("x", &[]))),
    ]))
    .await;
    let mut config = config(&server);
    assert_eq!(crawl(&config).await.unwrap().records, ["/", "/b"]);
    config.crawl.nofollow = false;
    assert_eq!(crawl(&config).await.unwrap().records, ["/", "/a", "/b"]);
    config.crawl.links = false;
    assert_eq!(crawl(&config).await.unwrap().records, ["/"]);
}

#[tokio::test]
async fn sitemaps_name_pages_and_further_sitemaps() {
    let server = Scripted::answering(|_, head| {
        let host = head
            .split("host: ")
            .nth(1)
            .unwrap()
            .split("\r\n")
            .next()
            .unwrap();
        let named = |element: &str, paths: &[&str]| -> String {
            let url =
                |path: &&str| format!("<{element}><loc>http://{host}{path}</loc></{element}>");
            paths.iter().map(url).collect()
        };
        match head.split(' ').nth(1).unwrap() {
            "/" => html(&article("home", &["/x"])),
            "/sitemap.xml" => {
                let outside = "<sitemap><loc>http://other.example/s.xml</loc></sitemap>";
                let inside = named("sitemap", &["/s.xml.gz"]);
                answer(
                    "200 OK\r\nContent-Type: application/xml",
                    &format!("<sitemapindex>{outside}{inside}</sitemapindex>"),
                )
            }
            "/s.xml.gz" => {
                let pages = format!(
                    "<urlset>{}</urlset>",
                    named("url", &["/a", "/private", "/"])
                );
                raw(
                    "200 OK\r\nContent-Type: application/gzip",
                    &crate::testing::gzip(pages.as_bytes()),
                )
            }
            "/bad.xml" => html("<html>"),
            "/a" => html(&article("a", &[])),
            _ => answer("404 Not Found", ""),
        }
    })
    .await;
    let mut config = config(&server);
    config.crawl.sitemaps = vec![
        server.url.join("/sitemap.xml").unwrap().into(),
        server.url.join("/bad.xml").unwrap().into(),
        server.url.join("/gone.xml").unwrap().into(),
    ];
    config.crawl.deny = vec!["/private".into(), "/x".into()];
    let found = crawl(&config).await.unwrap();
    assert_eq!(found.records, ["/", "bad_sitemap /bad.xml", "/a"]);
    assert_eq!(skipped(&found), [("not_found", 1), ("sitemap", 2)]);
    let [others, warning] = found.warnings.as_slice() else {
        panic!("{:?}", found.warnings)
    };
    assert_eq!(others.code, "sitemap_of_other_hosts");
    assert!(
        others.message.contains("1 of `other.example`; 2 URLs"),
        "{others:?}"
    );
    assert_eq!(warning.code, "missing_sitemap");
    assert!(warning.message.contains("/gone.xml"), "{warning:?}");
}

#[tokio::test]
async fn rows_and_tables_are_records_of_their_own() {
    let page = "<html><body><ul><li><a href='/1'>one</a> 5<li><a href='/2'>two</a></ul><table><tr><th>k<th>v<tr><td>a<td>1</table></body></html>";
    let server = site(Routes::from([("/", html(page))])).await;
    let mut config = config(&server);
    config.page.extract = PageExtract::Rows;
    config.page.rows = Some("li".into());
    config.page.columns = [("name", "a"), ("to", "a@href")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
    let found = crawl(&config).await.unwrap();
    assert_eq!(
        (found.records, found.skipped["not_found"]),
        (vec!["/".to_owned(); 2], 2)
    );
    config.page = feedline_schemas::config::PageConfig {
        extract: PageExtract::Tables,
        ..Default::default()
    };
    assert_eq!(crawl(&config).await.unwrap().records, ["/"]);
}

/// 47 of the list of faults: a selector that matches nothing is no success.
#[tokio::test]
async fn fault_47_a_selector_that_matches_nothing_stops_the_run() {
    let server = site(Routes::from([
        ("/", html(&article("home", &["/a"]))),
        ("/a", html(&article("a", &[]))),
    ]))
    .await;
    let mut config = config(&server);
    config.page.extract = PageExtract::Rows;
    config.page.rows = Some("table.prices tr".into());
    config.page.columns = [("name".to_owned(), "td".to_owned())].into();
    let error = crawl(&config).await.unwrap_err().to_string();
    assert!(
        error.contains("`page.rows` = `table.prices tr` matches nothing")
            && error.contains("no_rows"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_crawled_names_its_key() {
    let refused = |change: fn(&mut SourceConfig)| {
        let mut config =
            crate::testing::config("http://h/", feedline_schemas::config::PaginationKind::None);
        change(&mut config);
        open(&config, &context()).err().unwrap().to_string()
    };
    assert!(refused(|c| c.url = "h/".into()).starts_with("`url`: is not a URL"));
    assert!(refused(|c| c.url = "ftp://h/".into()).starts_with("`url`: cannot be crawled"));
    assert!(refused(|c| c.crawl.start = vec!["x".into()]).starts_with("`crawl.start.0`"));
    assert!(refused(|c| c.crawl.sitemaps = vec!["x".into()]).starts_with("`crawl.sitemaps.0`"));
    assert!(refused(|c| c.crawl.concurrency = 0).starts_with("`crawl.concurrency`"));
    assert!(refused(|c| c.crawl.contact = Some("a\nb".into())).starts_with("`crawl.contact`"));
    assert!(refused(|c| c.page.rows = Some("a".into())).starts_with("`page.rows`"));
}

/// More bad pages than readers; each page would occupy a reader for hours.
#[tokio::test]
async fn pages_with_endless_tags_stall_no_crawl() {
    let bad = ["/bad1", "/bad2", "/bad3", "/bad4", "/bad5", "/bad6"];
    let good = ["/good1", "/good2", "/good3"];
    let attributes: String = (0..600_000).map(|i| format!(" a{i:x}")).collect();
    let endless = format!("<html><body><p{attributes}>x</p></body></html>");
    let links: Vec<&str> = bad.into_iter().chain(good).collect();
    let mut routes = Routes::from([("/", html(&article("home", &links)))]);
    routes.extend(bad.map(|path| (path, html(&endless))));
    routes.extend(good.map(|path| (path, html(&article(path, &[])))));
    let server = site(routes).await;
    let found = crawl(&config(&server)).await.unwrap();
    let refused = bad.map(|path| format!("too_many_attributes {path}"));
    let landed = good.map(str::to_owned);
    let expected: Vec<String> = ["/".to_owned()]
        .into_iter()
        .chain(refused)
        .chain(landed)
        .collect();
    assert_eq!(found.records, expected);
}
