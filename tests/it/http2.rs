//! HTTP/2 at a real server: connections, their end, and their death.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use feedline_testkit::free_port::free_port;
use serde_json::Value;

use crate::{
    nginx::{Logged, Nginx},
    support::{feedline, finish, pipeline},
    tls::make_certificates,
};

/// 40 pages of one record over TLS and in clear text, and an empty one.
fn start(folder: &Path, more: &str) -> Option<(Nginx, u16, u16)> {
    make_certificates(folder);
    let (secure, clear) = (free_port(), free_port());
    let http = format!(
        "map $arg_page $body {{ default '[{{\"id\":\"$arg_page\"}}]'; 41 '[]'; }}\n\
         server {{ listen 127.0.0.1:{secure} ssl http2; listen 127.0.0.1:{clear};\n\
         ssl_certificate {0}/leaf.pem; ssl_certificate_key {0}/leaf.key;\n{more}\n\
         location /items {{ default_type application/json; return 200 $body; }} }}",
        folder.display()
    );
    Some((Nginx::start(folder, secure, &http)?, secure, clear))
}

/// Ingests all pages at `origin` and returns the report.
fn ingest(folder: &Path, origin: &str, retry: &str) -> Value {
    let text = format!(
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\n\
         url = \"{origin}/items\"\npagination = {{ type = \"page\", page_size = 1 }}\nlimits.concurrency = 1\nretry = {{ {retry} }}\n"
    );
    fs::remove_dir_all(folder.join("out")).ok();
    let file = pipeline(folder, &text);
    let mut command = feedline(folder);
    command.args(["ingest", file, "--json"]);
    let output = command.env("SSL_CERT_FILE", "ca.pem").output();
    let report = finish(output.unwrap()).expect(0).json();
    assert_eq!(report["rows"], 40, "{report}");
    report
}

/// Requests that the program sent.
fn sent(report: &Value) -> usize {
    usize::try_from(report["requests"].as_u64().unwrap()).unwrap()
}

fn connections(requests: &[Logged]) -> usize {
    let all: BTreeSet<&str> = requests.iter().map(|r| r.connection.as_str()).collect();
    all.len()
}

fn check_protocol(requests: &[Logged], protocol: &str) {
    let is_right = |request: &Logged| request.protocol == protocol && request.status == "200";
    assert!(requests.iter().all(is_right), "{requests:#?}");
}

#[test]
fn all_pages_are_read_over_one_connection_of_http_2_and_clear_text_is_http_1() {
    let folder = tempfile::tempdir().unwrap();
    let Some((nginx, secure, clear)) = start(folder.path(), "") else {
        return;
    };
    let report = ingest(folder.path(), &format!("https://127.0.0.1:{secure}"), "");
    let requests = nginx.requests(sent(&report));
    assert_eq!(report["requests"], requests.len(), "{report}");
    check_protocol(&requests, "HTTP/2.0");
    assert_eq!(connections(&requests), 1, "{requests:#?}");
    let report = ingest(folder.path(), &format!("http://127.0.0.1:{clear}"), "");
    let in_clear = &nginx.requests(requests.len() + sent(&report))[requests.len()..];
    assert_eq!(in_clear.len(), requests.len());
    check_protocol(in_clear, "HTTP/1.1");
    assert_eq!(connections(in_clear), 1, "{in_clear:#?}");
}

#[test]
fn a_server_that_ends_connections_with_goaway_loses_and_doubles_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let Some((nginx, secure, _)) = start(folder.path(), "keepalive_requests 10;") else {
        return;
    };
    let report = ingest(folder.path(), &format!("https://127.0.0.1:{secure}"), "");
    assert_eq!(report["retries"], 0, "{report}");
    let requests = nginx.requests(sent(&report));
    check_protocol(&requests, "HTTP/2.0");
    let targets: BTreeSet<&str> = requests.iter().map(|r| r.target.as_str()).collect();
    assert_eq!(targets.len(), requests.len(), "{requests:#?}");
    let fewest = requests.len().div_ceil(10);
    assert!(connections(&requests) >= fewest, "{requests:#?}");
}

/// Copies bytes until `is_dead`; then it reads on and forwards nothing.
fn forward(mut from: TcpStream, mut to: TcpStream, is_dead: &AtomicBool) {
    let mut buffer = [0; 4_096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if !is_dead.load(Ordering::SeqCst) && to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _closed = to.shutdown(Shutdown::Write);
}

/// A way to `port` whose first connection falls silent after `pieces` pieces from the server.
/// Returns its own port and a count of connections.
fn dying(port: u16, pieces: u64) -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&connections);
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let is_first = count.fetch_add(1, Ordering::SeqCst) == 0;
            let is_dead = Arc::new(AtomicBool::new(false));
            let [to_server, to_client] = [&server, &client].map(|s| s.try_clone().unwrap());
            let of_client = Arc::clone(&is_dead);
            thread::spawn(move || forward(client, to_server, &of_client));
            thread::spawn(move || {
                let mut server = server;
                let mut buffer = [0; 4_096];
                for _ in 0..pieces {
                    let count = server.read(&mut buffer).unwrap_or(0);
                    if count == 0 || (&to_client).write_all(&buffer[..count]).is_err() {
                        return;
                    }
                }
                is_dead.store(is_first, Ordering::SeqCst);
                forward(server, to_client, &is_dead);
            });
        }
    });
    (own, connections)
}

#[test]
fn a_connection_of_http_2_that_is_dead_is_replaced_before_the_next_try() {
    let folder = tempfile::tempdir().unwrap();
    let Some((_nginx, secure, _)) = start(folder.path(), "") else {
        return;
    };
    let (port, connections) = dying(secure, 30);
    // Without pings, both tries would use the dead connection.
    let retry = "read_timeout_ms = 6000, max_tries = 2, base_ms = 1";
    let report = ingest(folder.path(), &format!("https://127.0.0.1:{port}"), retry);
    assert_eq!(report["retries"], 1, "{report}");
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}
