//! Hostile and broken servers, and forbidden addresses.

mod tls;

use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
};

use feedline_schemas::config::RetryConfig;

use super::{page::Wanted, *};
use crate::{
    guard::Lookup,
    testing::{self, Scripted, Step, answer, context, gzip, ok, raw},
};

fn client(base: &Url, limits: &RetryConfig) -> Http {
    Http::new(base, &BTreeMap::new(), limits, &context()).unwrap()
}

/// The client with another DNS lookup.
fn looking_up(mut http: Http, lookup: Lookup) -> Http {
    http.transport.lookup = lookup;
    http
}

fn to(place: &str) -> Step {
    answer(&format!("302 Found\r\nLocation: {place}"), "")
}

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

/// A DNS lookup that returns its first result once, and then its second forever.
fn turning(first: &'static [&str], then: &'static [&str]) -> (Lookup, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let lookup: Lookup = Arc::new(move |_| {
        let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
        let found = if is_first { first } else { then };
        let found: Vec<SocketAddr> = found.iter().map(|at| at.parse().unwrap()).collect();
        Box::pin(async move { Ok(found) })
    });
    (lookup, asked)
}

async fn refused(http: &Http, url: &Url, part: &str) {
    let failure = http.get(url).await.unwrap_err();
    let message = failure.error.to_string();
    assert_eq!(failure.again, Again::Never, "{message}");
    assert!(message.contains(part), "{message}");
}

/// Addresses of this machine and its network, in all the ways a URL can write them.
const PRIVATE: [&str; 30] = [
    "http://127.0.0.3/",
    "http://127.2:8080/",
    "http://2130706434/",
    "http://0x7f000002/",
    "http://0177.0.0.2/",
    "http://0/",
    "http://0.0.0.0:80/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://0xa9fea9fe/",
    "http://100.64.0.1/",
    "http://100.100.100.200/",
    "http://192.0.0.192/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://user:password@10.0.0.1/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:10.0.0.1]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[::10.0.0.1]/",
    "http://[64:ff9b::10.0.0.1]/",
    "http://[2002:a00:1::]/",
    "http://[fe80::1]/",
    "http://[fd00:ec2::254]/",
    "http://[ff02::1]/",
];

#[tokio::test]
async fn redirects_into_the_network_of_this_machine_are_refused_and_nothing_is_sent_there() {
    for target in PRIVATE {
        let server = Scripted::start([to(target)]).await;
        let http = client(&server.url, &RetryConfig::default());
        refused(&http, &server.url, "its host is not of the internet").await;
        assert_eq!(http.requests(), 1, "{target}");
        // The same for a page that a response names.
        refused(&http, &url(target), "`private_hosts`").await;
        assert_eq!(http.requests(), 1, "{target}");
    }
}

#[tokio::test]
async fn a_name_that_leads_into_this_machine_is_refused_unless_it_is_let_in() {
    let other = Scripted::start([ok("[2]")]).await;
    let port = other.url.port().unwrap();
    let place = url(&format!("http://intranet.example:{port}/"));
    let home = Scripted::start([to(place.as_str())]).await;
    let lookup = turning(&["127.0.0.1:0"], &["127.0.0.1:0"]).0;
    let mut config = testing::config(home.url.as_str(), Default::default());
    let with = |config: &SourceConfig| {
        let http = client(&home.url, &config.retry).with_limits(config, 1);
        looking_up(http, Arc::clone(&lookup))
    };
    refused(&with(&config), &home.url, "its host is not of the internet").await;
    assert!(other.heads().is_empty());
    config.private_hosts = vec!["Intranet.example".into()];
    assert_eq!(with(&config).get(&home.url).await.unwrap(), "[2]");
    assert_eq!(other.heads().len(), 1);
}

#[tokio::test]
async fn a_name_that_changes_its_address_between_two_looks_gains_nothing() {
    let victim = Scripted::start([ok("secret")]).await;
    let port = victim.url.port().unwrap();
    let home = Scripted::start([to(&format!("http://rebind.example:{port}/"))]).await;
    // The first lookup returns a public address; a second one would return this machine.
    let (lookup, asked) = turning(&["127.0.0.1:0", "127.0.0.1:0"], &["8.8.8.8:0"]);
    let http = looking_up(client(&home.url, &RetryConfig::default()), lookup);
    refused(&http, &home.url, "its host is not of the internet").await;
    assert_eq!(
        asked.load(Ordering::SeqCst),
        1,
        "one look for one connection"
    );
    let (lookup, asked) = turning(&["192.0.2.1:0", "10.0.0.1:0"], &["127.0.0.1:0"]);
    let http = looking_up(client(&home.url, &RetryConfig::default()), lookup);
    refused(&http, &home.url, "its host is not of the internet").await;
    refused(&http, &home.url, "its host is not of the internet").await;
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    assert!(victim.heads().is_empty());
}

#[tokio::test]
async fn fault_22_a_page_that_is_a_bomb_is_refused_by_its_ratio() {
    let head = "200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip";
    let bomb = gzip(&vec![b' '; 32 << 20]);
    assert!(bomb.len() < 64 << 10);
    let server = Scripted::start([raw(head, &bomb)]).await;
    let http = client(&server.url, &RetryConfig::default());
    let agent = HeaderMap::new();
    for wanted in [Wanted::Whole, Wanted::Start(100)] {
        let asked = http.ask(&server.url, "text/html", &agent, |_| wanted).await;
        let failure = asked.unwrap_err();
        let message = failure.error.to_string();
        assert_eq!(failure.again, Again::Never, "{message}");
        // 200 times its size, far below `retry.max_body_bytes`.
        let most = format!("more than {} bytes", bomb.len() * 200);
        assert!(message.contains(&most), "{message}");
    }
    let twice = raw("200 OK\r\nContent-Encoding: gzip, gzip", &gzip(&bomb));
    let server = Scripted::start([twice]).await;
    let http = client(&server.url, &RetryConfig::default());
    refused(&http, &server.url, "encoded as `gzip, gzip`").await;
}

#[tokio::test(start_paused = true)]
async fn fault_23_a_body_of_a_byte_a_second_is_given_up_and_asked_for_again() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".to_vec();
    let server = Scripted::start([Step::Drip(head)]).await;
    let begin = tokio::time::Instant::now();
    let http = client(&server.url, &RetryConfig::default());
    let failure = http.get(&server.url).await.unwrap_err();
    assert_eq!(failure.again, Again::Backoff);
    let message = failure.error.to_string();
    assert!(
        message.contains("less than `retry.min_bytes_per_s` = 100"),
        "{message}"
    );
    let passed = begin.elapsed();
    assert!((10..15).contains(&passed.as_secs()), "{passed:?}");
}

#[tokio::test]
async fn fault_23_a_name_that_is_not_found_and_addresses_that_are_not_reached_are_transient() {
    let server = Scripted::start([ok("[1]")]).await;
    let port = server.url.port().unwrap();
    let place = url(&format!("http://dual.example:{port}/"));
    let home = url("http://home.example/");
    let with = |lookup: Lookup| {
        let mut config = testing::config(home.as_str(), Default::default());
        config.private_hosts = vec!["dual.example".into()];
        let http = client(&home, &config.retry).with_limits(&config, 1);
        looking_up(http, lookup)
    };
    let transient = async |http: Http, part: &str| {
        let failure = http.get(&place).await.unwrap_err();
        let message = failure.error.to_string();
        assert_eq!(failure.again, Again::Unprocessed, "{message}");
        assert!(message.contains(part), "{message}");
    };
    let absent: Lookup = Arc::new(|_| {
        let error = io::Error::other("failed to lookup address information: try again");
        Box::pin(async move { Err(error) })
    });
    transient(with(absent), "failed to lookup address").await;
    // Only version 6, where no server listens.
    let six = || turning(&["[::1]:0"], &["[::1]:0"]).0;
    transient(with(six()), "cannot connect").await;
    // Version 6 fails and version 4 does not: the request succeeds.
    let both = turning(&["[::1]:0", "127.0.0.1:0"], &[]).0;
    assert_eq!(with(both).get(&place).await.unwrap(), "[1]");
}

#[tokio::test]
async fn a_refusal_with_a_used_up_quota_is_temporary_until_its_reset() {
    let refused = "403 Forbidden\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 2";
    let server = Scripted::start([answer(refused, "")]).await;
    let failure = client(&server.url, &RetryConfig::default())
        .get(&server.url)
        .await
        .unwrap_err();
    assert_eq!(
        failure.again,
        Again::After(Duration::from_secs(2)),
        "{}",
        failure.error
    );
}
