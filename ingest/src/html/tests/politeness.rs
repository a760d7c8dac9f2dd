//! Limits of a crawl.

use feedline_schemas::{
    config::{Bounded, Real, Refresh},
    report::IngestReport,
};
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use super::{
    resume::{pipeline, run},
    *,
};
use crate::status;

/// Rules of robots.txt, and the meaning of its absence or failure.
#[tokio::test]
async fn fault_45_robots_is_obeyed_and_its_status_decides() {
    let crawl_with = |robots: Step| async move {
        let server = site(Routes::from([
            ("/robots.txt", robots),
            ("/", html(&article("home", &["/private/x", "/open"]))),
            ("/private/x", html(&article("x", &[]))),
            ("/open", html(&article("open", &[]))),
        ]))
        .await;
        (crawl(&config(&server)).await, server.targets())
    };
    let rules = "User-agent: *\nDisallow: /private/\n";
    let (found, targets) = crawl_with(text(rules)).await;
    let found = found.unwrap();
    assert_eq!(
        (found.records, found.skipped["robots"]),
        (vec!["/".to_owned(), "/open".to_owned()], 1)
    );
    assert_eq!(targets, ["/robots.txt", "/", "/open"]);
    for refused in ["404 Not Found", "403 Forbidden", "401 Unauthorized"] {
        let (found, _) = crawl_with(answer(refused, rules)).await;
        assert_eq!(found.unwrap().records.len(), 3, "{refused}");
    }
    // The start page's host: the run stops before it requests a page.
    for failing in ["503 Oops", "500 Oops", "429 Slow"] {
        let (found, targets) = crawl_with(answer(failing, rules)).await;
        assert!(
            found.unwrap_err().to_string().contains("/robots.txt"),
            "{failing}"
        );
        assert_eq!(targets, ["/robots.txt", "/robots.txt"], "{failing}");
    }
    let (found, targets) = crawl_with(answer("501 Oops", "")).await;
    let error = found.unwrap_err().to_string();
    assert!(
        error.contains("/robots.txt`: the server answered 501"),
        "{error}"
    );
    assert_eq!(targets, ["/robots.txt"]);
    // Rules after the first 500 KiB do not count.
    let long = format!("{rules}#{}\nDisallow: /open\n", "x".repeat(600 << 10));
    let (found, _) = crawl_with(text(&long)).await;
    assert_eq!(found.unwrap().records, ["/", "/open"]);
}

/// A site under two names. The robots.txt of `localhost` fails while `is_down`, and its sitemap has
/// `pages` pages of that host.
async fn site_with_a_second_host(pages: usize, is_down: Arc<AtomicBool>) -> Scripted {
    Scripted::answering(move |_, head| {
        let host = head.split("host: ").nth(1).unwrap();
        let host = host.split("\r\n").next().unwrap();
        let is_second = host.starts_with("localhost");
        match head.split(' ').nth(1).unwrap() {
            "/robots.txt" if is_second && is_down.load(Ordering::SeqCst) => answer("503 Oops", ""),
            "/robots.txt" => text(""),
            "/map.xml" => {
                let second = host.replace("127.0.0.1", "localhost");
                let urls = (0..pages).map(|i| format!("<url><loc>http://{second}/{i}</loc></url>"));
                let body = format!("<urlset>{}</urlset>", urls.collect::<String>());
                answer("200 OK\r\nContent-Type: text/xml", &body)
            }
            path => html(&article(path, &[])),
        }
    })
    .await
}

/// Settings of a crawl of that site.
fn with_second_host(server: &Scripted, source: &mut SourceConfig) {
    source.crawl.hosts = vec!["localhost".into()];
    source.crawl.sitemaps = vec![server.url.join("map.xml").unwrap().into()];
    source.crawl.concurrency = 1;
    source.retry.max_tries = Bounded::literal::<2>();
    source.contract.max_reject_fraction = Real::literal(1.0);
}

/// Messages about hosts whose robots.txt cannot be read.
fn robots_messages(report: &IngestReport) -> Vec<&str> {
    let warnings = report.sources[0].warnings.iter();
    let warnings = warnings.filter(|warning| warning.code == "robots_unreachable");
    warnings.map(|warning| warning.message.as_str()).collect()
}

#[tokio::test]
async fn an_unreadable_robots_of_another_host_stops_the_run_and_its_pages_land_later() {
    let is_down = Arc::new(AtomicBool::new(true));
    let server = site_with_a_second_host(6, Arc::clone(&is_down)).await;
    let mut config = pipeline(&server);
    with_second_host(&server, &mut config.source[0]);
    let root = Store::memory();
    let error = run(&root, &config).await.unwrap_err().to_string();
    let port = server.url.port().unwrap();
    for part in [
        format!("`http://localhost:{port}/robots.txt`: the server answered 503"),
        format!("`crawl.deny = [\"http://localhost:{port}/\"]`"),
    ] {
        assert!(error.contains(&part), "{error}");
    }
    is_down.store(false, Ordering::SeqCst);
    run(&root, &config).await.unwrap();
    let report = status(&config, &root).await.unwrap();
    assert_eq!((report.rows, report.rejected), (7, 0));
    assert_eq!(robots_messages(&report), [""; 0]);
}

#[tokio::test]
async fn few_pages_of_a_host_with_an_unreadable_robots_are_rejects_and_a_warning_names_the_host() {
    let is_down = Arc::new(AtomicBool::new(true));
    let server = site_with_a_second_host(2, Arc::clone(&is_down)).await;
    let mut config = pipeline(&server);
    with_second_host(&server, &mut config.source[0]);
    config.source[0].crawl.refresh = Refresh::IfChanged;
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    let report = status(&config, &root).await.unwrap();
    assert_eq!((report.rows, report.rejected), (1, 2));
    let source = &report.sources[0];
    assert_eq!(source.rejected_by_reason["robots_unreachable"], 2);
    let messages = robots_messages(&report);
    let begin = "the robots.txt of `localhost` (2 URLs) cannot be read";
    assert!(
        messages.len() == 1 && messages[0].starts_with(begin),
        "{messages:?}"
    );
    // The next crawl lands them.
    is_down.store(false, Ordering::SeqCst);
    run(&root, &config).await.unwrap();
    let report = status(&config, &root).await.unwrap();
    assert_eq!(report.rows, 3);
    assert_eq!(robots_messages(&report), [""; 0]);
}

#[tokio::test]
async fn the_next_run_requests_the_pages_of_a_host_whose_robots_could_not_be_read() {
    let is_down = Arc::new(AtomicBool::new(true));
    let server = site_with_a_second_host(2, Arc::clone(&is_down)).await;
    let mut config = pipeline(&server);
    with_second_host(&server, &mut config.source[0]);
    let root = Store::memory();
    run(&root, &config).await.unwrap();
    let report = status(&config, &root).await.unwrap();
    assert_eq!((report.rows, report.rejected), (1, 2));
    assert_eq!(report.sources[0].status, "partial");
    let messages = robots_messages(&report);
    let part = "the next run requests them again";
    assert!(
        messages.len() == 1 && messages[0].contains(part),
        "{messages:?}"
    );
    let keys = &report.sources[0].reject_keys["robots_unreachable"];
    assert_eq!(*keys, ["crawl.deny", "crawl.robots"]);
    // While the host is down, only its robots.txt is requested.
    let requests = server.targets().len();
    run(&root, &config).await.unwrap();
    let targets = server.targets();
    assert_eq!(targets[requests..], ["/robots.txt", "/robots.txt"]);
    assert_eq!(status(&config, &root).await.unwrap().rejected, 2);
    is_down.store(false, Ordering::SeqCst);
    run(&root, &config).await.unwrap();
    let report = status(&config, &root).await.unwrap();
    assert_eq!((report.rows, report.rejected), (3, 2));
    assert_eq!(report.sources[0].status, "complete");
    assert_eq!(robots_messages(&report), [""; 0]);
}

#[tokio::test]
async fn a_host_that_is_down_can_be_left_out_with_deny_after_it_stopped_a_run() {
    let server = site_with_a_second_host(6, Arc::new(AtomicBool::new(true))).await;
    let mut config = pipeline(&server);
    with_second_host(&server, &mut config.source[0]);
    config.source[0].batch.pages = Bounded::literal::<2>();
    let root = Store::memory();
    // Two batches of rejects land before the fifth failure.
    run(&root, &config).await.unwrap_err();
    let port = server.url.port().unwrap();
    config.source[0].crawl.deny = vec![format!("http://localhost:{port}/")];
    run(&root, &config).await.unwrap();
    let report = status(&config, &root).await.unwrap();
    assert_eq!((report.rows, report.rejected), (1, 4));
    let source = &report.sources[0];
    assert_eq!(source.status, "complete");
    // Those that failed before are requested again.
    assert_eq!(source.skipped["denied"], 6);
}

#[tokio::test]
async fn fault_45_robots_redirects_are_followed_five_times() {
    let home = || html(&article("home", &["/private"]));
    let moved = |to: &str| answer(&format!("302 Found\r\nLocation: {to}"), "");
    let rules = text("User-agent: *\nDisallow: /private");
    let mut routes = Routes::from([
        ("/", home()),
        ("/private", home()),
        ("/robots.txt", moved("/1")),
        ("/1", moved("/2")),
        ("/2", moved("/3")),
        ("/3", moved("/4")),
        ("/4", moved("/5")),
        ("/5", rules.clone()),
    ]);
    let server = site(routes.clone()).await;
    assert_eq!(crawl(&config(&server)).await.unwrap().records, ["/"]);
    routes.insert("/5", moved("/6"));
    routes.insert("/6", rules);
    let server = site(routes).await;
    assert_eq!(
        crawl(&config(&server)).await.unwrap().records,
        ["/", "/private"]
    );
    let mut config = config(&server);
    config.crawl.robots = false;
    assert_eq!(crawl(&config).await.unwrap().records.len(), 2);
}

#[tokio::test]
async fn fault_46_a_crawl_delay_is_obeyed_or_its_host_left_out() {
    let routes = |delay: &str| {
        Routes::from([
            (
                "/robots.txt",
                text(&format!("User-agent: *\nCrawl-delay: {delay}")),
            ),
            ("/", html(&article("home", &["/a"]))),
            ("/a", html(&article("a", &[]))),
        ])
    };
    let server = site(routes("0.3")).await;
    let begin = tokio::time::Instant::now();
    assert_eq!(crawl(&config(&server)).await.unwrap().records.len(), 2);
    assert!(
        begin.elapsed() >= Duration::from_millis(300),
        "{:?}",
        begin.elapsed()
    );
    let server = site(routes("400")).await;
    let error = crawl(&config(&server)).await.unwrap_err().to_string();
    assert!(error.contains("1 crawl_delay"), "{error}");
    assert_eq!(server.targets(), ["/robots.txt"]);
}

#[tokio::test]
async fn fault_46_one_request_at_a_time_goes_to_a_host_while_others_are_asked() {
    static NOW: AtomicUsize = AtomicUsize::new(0);
    let links: Vec<String> = (0..8).map(|i| format!("/{i}")).collect();
    let links: Vec<&str> = links.iter().map(String::as_str).collect();
    let home = html(&article("home", &links));
    let page = html(&article("page", &[]));
    let server = Scripted::answering(move |_, head| {
        assert_eq!(NOW.swap(1, Ordering::SeqCst), 0, "two requests at a time");
        let step = if head.starts_with("GET / ") {
            home.clone()
        } else {
            page.clone()
        };
        NOW.store(0, Ordering::SeqCst);
        step
    })
    .await;
    let found = crawl(&config(&server)).await.unwrap();
    assert_eq!(
        found.records,
        ["/", "/0", "/1", "/2", "/3", "/4", "/5", "/6", "/7"]
    );
    // The same site under two names: responses are processed in frontier order.
    let mut config = config(&server);
    let port = server.url.port().unwrap();
    config.crawl.start = (0..6)
        .map(|i| format!("http://{}:{port}/s{i}", ["localhost", "127.0.0.1"][i % 2]))
        .collect();
    config.crawl.depth = Bounded::literal::<0>();
    config.crawl.robots = false;
    let order = crawl(&config).await.unwrap().records;
    assert_eq!(order, ["/", "/s0", "/s1", "/s2", "/s3", "/s4", "/s5"]);
}

#[tokio::test]
async fn urls_behind_a_batch_are_requested_while_its_last_page_is_awaited() {
    let home = article("home", &["http://localhost:PORT/slow", "/fast"]);
    let server = Scripted::answering(move |_, head| {
        let port = head.split("Host: ").nth(1).or(head.split("host: ").nth(1));
        let port = port
            .and_then(|host| host.lines().next()?.split(':').nth(1))
            .unwrap();
        match head.split(' ').nth(1).unwrap() {
            "/" => html(&home.replace("PORT", port)),
            // The last of: robots.txt twice, `/`, this one and `/fast`.
            "/slow" => html(&article("slow", &[])).when(5),
            "/fast" => html(&article("fast", &[])),
            _ => answer("404 Not Found", ""),
        }
    })
    .await;
    let mut config = config(&server);
    config.crawl.hosts = vec!["localhost".into()];
    config.batch.pages = Bounded::literal::<1>();
    config.retry.max_tries = Bounded::literal::<1>();
    let found = crawl(&config).await.unwrap();
    assert_eq!(found.records, ["/", "/slow", "/fast"]);
    assert_eq!((found.pages, server.targets().len()), (3, 5));
}

#[tokio::test]
async fn a_host_that_is_down_stops_the_run() {
    let links: Vec<String> = (0..9).map(|i| format!("/{i}")).collect();
    let links: Vec<&str> = links.iter().map(String::as_str).collect();
    let server = site(Routes::from([("/", html(&article("home", &links)))])).await;
    let found = crawl(&config(&server)).await.unwrap();
    assert_eq!((found.records.len(), found.skipped["not_found"]), (1, 9));
    let home = html(&article("home", &links));
    let down = Scripted::answering(move |_, head| match head.split(' ').nth(1).unwrap() {
        "/" => home.clone(),
        "/robots.txt" => answer("404 Not Found", ""),
        _ => answer("502 Oops", ""),
    })
    .await;
    let error = crawl(&config(&down)).await.unwrap_err().to_string();
    assert!(error.contains("/4`: the server answered 502"), "{error}");
}

#[tokio::test]
async fn fault_45_a_robots_txt_names_sitemaps() {
    let server = Scripted::answering(|_, head| {
        let host = head.split("host: ").nth(1).unwrap();
        let host = host.split("\r\n").next().unwrap();
        let map = |page: &str| {
            let body = format!("<urlset><url><loc>http://{host}{page}</loc></url></urlset>");
            answer("200 OK\r\nContent-Type: text/xml", &body)
        };
        match head.split(' ').nth(1).unwrap() {
            "/robots.txt" => text(&format!(
                "Sitemap: http://{host}/a.xml\nUser-agent: *\nDisallow: /private\nSITEMAP :http://{host}/b.xml # the second\n\
                 Sitemap: http://other.example/c.xml\nSitemap:\nSitemap: /d.xml\n#{}\nSitemap: http://{host}/behind.xml\n",
                "x".repeat(500 << 10)
            )),
            "/a.xml" => map("/1"),
            "/b.xml" => map("/private/2"),
            "/" | "/1" => html(&article("page", &[])),
            _ => answer("404 Not Found", ""),
        }
    })
    .await;
    let mut config = config(&server);
    config.crawl.links = false;
    config.crawl.sitemaps = vec![server.url.join("/robots.txt").unwrap().into()];
    let found = crawl(&config).await.unwrap();
    assert_eq!(found.records, ["/", "/1"]);
    assert_eq!(skipped(&found), [("robots", 1), ("sitemap", 3)]);
    let targets = server.targets();
    assert_eq!(
        targets,
        ["/robots.txt", "/", "/robots.txt", "/a.xml", "/b.xml", "/1"]
    );
}

#[tokio::test]
async fn fault_13_a_host_that_waits_holds_no_slot_and_other_hosts_are_asked() {
    static BUSY: AtomicUsize = AtomicUsize::new(0);
    /// The ten pages of the other host take less, also on a busy machine.
    const WAIT_S: u64 = 5;
    let server = Scripted::answering(|_, head| {
        let path = head.split(' ').nth(1).unwrap();
        if path == "/0" && BUSY.fetch_add(1, Ordering::SeqCst) == 0 {
            return answer(&format!("429 Slow\r\nRetry-After: {WAIT_S}"), "");
        }
        html(&article("page", &[]))
    })
    .await;
    let mut config = config(&server);
    let port = server.url.port().unwrap();
    // The slow host comes first, and there is one slot for all.
    let of = |host: &str, i: usize| format!("http://{host}:{port}/{i}");
    let slow = (0..10).map(|i| of("127.0.0.1", i));
    config.crawl.start = slow.chain((10..20).map(|i| of("localhost", i))).collect();
    config.crawl.depth = Bounded::literal::<0>();
    config.crawl.robots = false;
    config.crawl.concurrency = 1;
    let begin = tokio::time::Instant::now();
    let order = crawl(&config).await.unwrap().records;
    let expected = ["/".to_owned()].into_iter();
    let expected: Vec<String> = expected.chain((0..20).map(|i| format!("/{i}"))).collect();
    assert_eq!(
        order, expected,
        "what lands is in the order of the frontier"
    );
    assert!(begin.elapsed() >= Duration::from_secs(WAIT_S));
    let targets = server.targets();
    let last = |path: &str| targets.iter().rposition(|target| target == path).unwrap();
    assert!(last("/19") < last("/0"), "{targets:?}");
    assert!(last("/0") < last("/1"), "{targets:?}");
}
