//! Stores of http files at real servers.

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use feedline_http::{REFUSED, StoreConnector, USER_AGENT, WebOptions};
use object_store::{
    ClientOptions,
    client::{HttpConnector as _, HttpErrorKind, HttpRequest, HttpRequestBody},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use url::Url;

use crate::{Error, FailureClass, Lane, ReadOnce, Store, StoreOptions};

/// A server that gives every request the same response, or none.
pub(crate) struct Server {
    pub(crate) port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) async fn start(address: &str, answer: Option<String>) -> Self {
        let address: IpAddr = address.parse().unwrap();
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let mut stream = listener.accept().await.unwrap().0;
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
                seen.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(head);
                match &answer {
                    Some(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
                    None => open.push(stream),
                }
            }
        });
        Self { port, heads }
    }

    async fn redirecting(to: &str) -> Self {
        let answer = format!(
            "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        Self::start("127.0.0.1", Some(answer)).await
    }

    async fn giving(address: &str, body: &str) -> Self {
        let answer = format!(
            "HTTP/1.1 200 OK\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        Self::start(address, Some(answer)).await
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn opened(port: u16, private_hosts: &[&str]) -> (Store, Arc<AtomicU64>) {
    let web = WebOptions {
        private_hosts: private_hosts.iter().map(|host| (*host).into()).collect(),
        ..WebOptions::default()
    };
    let requests = Arc::clone(&web.requests);
    let options = StoreOptions {
        web,
        ..StoreOptions::default()
    };
    let url = format!("http://127.0.0.1:{port}/data");
    (Store::open(&url, &options).unwrap(), requests)
}

/// Reads through a redirect to `host`. Returns the error, the requests that `host` received, and
/// the counted requests.
async fn through(
    address: &str,
    host: &str,
    private_hosts: &[&str],
) -> (Result<String, Error>, Vec<String>, u64) {
    let other = Server::giving(address, "a,b\n1,2\n").await;
    let place = format!("http://{host}:{}/x.csv?key=secret", other.port);
    let home = Server::redirecting(&place).await;
    let (store, requests) = opened(home.port, private_hosts);
    let got = store.get("x.csv").await;
    let got = got.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
    if let Err(error) = &got {
        let expected = format!(
            "cannot read `http://127.0.0.1:{}/data/x.csv`: it redirects to `http://{host}:{}/x.csv`, and its host is not of the internet but of this machine or its network; give the final URL, or name that host in the source's `private_hosts` if data may lead to it",
            home.port, other.port
        );
        assert_eq!(error.to_string(), expected);
        assert!(!error.is_retryable());
    }
    for head in home.heads().iter().chain(&other.heads()) {
        assert!(!head.contains("referer"), "{head}");
        let agent = format!("user-agent: {USER_AGENT}\r\n").to_ascii_lowercase();
        assert!(head.contains(&agent), "{head}");
    }
    assert_eq!(home.heads().len(), 1);
    (got, other.heads(), requests.load(Ordering::Relaxed))
}

#[tokio::test]
async fn a_redirect_to_another_address_of_this_machine_is_refused_and_nothing_is_sent_there() {
    let (got, heads, requests) = through("127.0.0.2", "127.0.0.2", &[]).await;
    assert!(got.is_err());
    assert!(heads.is_empty(), "{heads:?}");
    assert_eq!(requests, 1);
}

#[tokio::test]
async fn a_redirect_to_another_port_of_the_stores_own_host_is_refused() {
    let (got, heads, requests) = through("127.0.0.1", "127.0.0.1", &[]).await;
    assert!(got.is_err());
    assert!(heads.is_empty(), "{heads:?}");
    assert_eq!(requests, 1);
}

#[tokio::test]
async fn a_redirect_to_a_name_of_this_machine_is_refused_when_it_is_connected_to() {
    let (got, heads, requests) = through("127.0.0.1", "localhost", &[]).await;
    assert!(got.is_err());
    assert!(heads.is_empty(), "{heads:?}");
    assert_eq!(requests, 1);
}

#[tokio::test]
async fn what_is_configured_or_named_is_asked_by_name_of_agent_and_without_a_referer() {
    for (address, host, private_hosts) in [
        ("127.0.0.1", "127.0.0.1", &["127.0.0.1"] as &[&str]),
        ("127.0.0.1", "localhost", &["LocalHost"]),
        ("127.0.0.2", "127.0.0.2", &["127.0.0.2"]),
    ] {
        let (got, heads, requests) = through(address, host, private_hosts).await;
        assert_eq!(got.unwrap(), "a,b\n1,2\n", "{host}");
        assert!(heads[0].starts_with("get /x.csv?key=secret "), "{heads:?}");
        assert_eq!((heads.len(), requests), (1, 2), "{host}");
    }
}

#[tokio::test]
async fn a_refused_redirect_is_fatal_to_reads_that_are_tried_once() {
    let home = Server::redirecting("http://127.0.0.2:9/x").await;
    let read = ReadOnce {
        range: 0..4,
        if_match: None,
        lane: Lane::First,
    };
    let failure = opened(home.port, &[]).0.read_once("x", &read).await;
    let failure = failure.unwrap_err();
    assert_eq!(failure.class, FailureClass::Fatal);
    assert!(failure.error.to_string().contains(REFUSED));
}

#[tokio::test]
async fn a_redirect_loop_ends_after_five_hops() {
    let home = Server::redirecting("/again").await;
    let (store, requests) = opened(home.port, &[]);
    let message = store.size("x").await.unwrap_err().to_string();
    let last = format!("lastly to `http://127.0.0.1:{}/again`", home.port);
    let expected = format!("it redirects more than 5 times, {last}");
    assert!(message.contains(&expected), "{message}");
    assert_eq!(home.heads().len(), 6);
    assert_eq!(requests.load(Ordering::Relaxed), 6);
}

#[tokio::test]
async fn errors_do_not_show_the_password_of_a_url() {
    let refusal = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let home = Server::start("127.0.0.1", Some(refusal.to_owned())).await;
    let url = format!("http://user:hush@127.0.0.1:{}/data", home.port);
    let store = Store::open(&url, &StoreOptions::default()).unwrap();
    let read = ReadOnce {
        range: 0..4,
        if_match: None,
        lane: Lane::First,
    };
    let once = store.read_once("x", &read).await.unwrap_err().error;
    for error in [once, store.get("x").await.unwrap_err()] {
        let mut text = error.to_string();
        let shown = format!("http://127.0.0.1:{}/data/x", home.port);
        assert!(text.contains(&shown), "{text}");
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            text += &error.to_string();
            cause = error.source();
        }
        assert!(text.contains("400"), "{text}");
        assert!(!text.contains("hush"), "{text}");
    }
}

#[tokio::test]
async fn what_writes_is_not_redirected() {
    let other = Server::giving("127.0.0.1", "").await;
    let home = Server::redirecting(&format!("http://127.0.0.1:{}/x", other.port)).await;
    let store = opened(home.port, &[]).0;
    assert!(store.delete("x").await.is_err());
    assert_eq!(home.heads().len(), 1);
    assert!(other.heads().is_empty());
}

#[tokio::test]
async fn a_silent_server_runs_into_the_read_timeout() {
    let home = Server::start("127.0.0.1", None).await;
    let url = format!("http://127.0.0.1:{}/", home.port);
    let options = WebOptions {
        read_timeout: Duration::from_millis(50),
        ..WebOptions::default()
    };
    let connector = StoreConnector::new(&Url::parse(&url).unwrap(), &options, false);
    let client = connector.connect(&ClientOptions::default()).unwrap();
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    *request.uri_mut() = url.parse().unwrap();
    let error = client.execute(request).await.unwrap_err();
    assert!(matches!(error.kind(), HttpErrorKind::Timeout), "{error}");
}

#[test]
fn the_agent_names_a_place_to_complain_at() {
    assert!(USER_AGENT.starts_with("feedline/"), "{USER_AGENT}");
    assert!(USER_AGENT.contains("(+https://"), "{USER_AGENT}");
}
