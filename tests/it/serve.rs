//! `feedline serve`: scheduled sources, `/healthz` and `/metrics`, and an end by SIGTERM.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use crate::support::{feedline, run, wait};

/// An address that is free now.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

/// The answer to a GET, head and body; none while nobody listens.
fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// A value of `/metrics` of the source called `numbers`.
fn metric(address: SocketAddr, name: &str) -> Option<f64> {
    let text = get(address, "/metrics")?;
    let line = text
        .lines()
        .find(|line| line.starts_with(name) && line.contains("source=\"numbers\""))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        wait(Duration::from_millis(50));
    }
    panic!("not in 30 s: {what}");
}

fn write_pipeline(folder: &Path, schedule: &str) {
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"numbers\"\ntype = \"files\"\nurl = \"in/*.csv\"\n{schedule}\n"
    );
    fs::write(folder.join("p.toml"), text).unwrap();
}

fn serve(folder: &Path, address: SocketAddr) -> Child {
    feedline(folder)
        .args(["serve", "p.toml", "--listen", &address.to_string()])
        .spawn()
        .unwrap()
}

fn terminate(mut child: Child) -> i32 {
    let sent = Command::new("kill")
        .arg(child.id().to_string())
        .status()
        .unwrap();
    assert!(sent.success());
    child.wait().unwrap().code().unwrap()
}

#[test]
fn files_that_come_in_land_while_it_serves_and_a_signal_ends_it_well() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("in")).unwrap();
    fs::write(folder.path().join("in/1.csv"), "a\n1\n").unwrap();
    write_pipeline(folder.path(), "schedule = { every_s = 1 }");
    let address = free();
    let child = serve(folder.path(), address);
    let rows = |n: f64| metric(address, "feedline_source_landed_rows") == Some(n);
    until("the first file landed", || rows(1.0));
    let health = get(address, "/healthz").unwrap();
    assert!(
        health.starts_with("HTTP/1.1 200 OK") && health.contains("\"sources\":1"),
        "{health}"
    );
    fs::write(folder.path().join("in/2.csv"), "a\n2\n3\n").unwrap();
    until("the second file landed", || rows(3.0));
    assert!(metric(address, "feedline_source_complete_timestamp_seconds").unwrap() > 1.7e9);
    assert_eq!(terminate(child), 0);
    assert_eq!(get(address, "/healthz"), None, "nobody answers any more");
    // Everything it landed stays, and the same source by hand has nothing left to do.
    let status = run(folder.path(), &["ingest", "p.toml", "--json"])
        .expect(0)
        .json();
    assert_eq!(status["rows"], 3, "{status}");
}

#[test]
fn what_cannot_be_served_is_said_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let check = |schedule: &str, part: &str| {
        write_pipeline(folder.path(), schedule);
        let ended = run(
            folder.path(),
            &["serve", "p.toml", "--listen", "127.0.0.1:0"],
        )
        .expect(2);
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    };
    check("", "nothing to serve");
    check("schedule = { cron = \"61 * * * *\" }", "no cron expression");
    check(
        "schedule = { cron = \"@daily\", zone = \"Berlin\" }",
        "no IANA time zone",
    );
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    write_pipeline(folder.path(), "schedule = { every_s = 1 }");
    let listen = taken.local_addr().unwrap().to_string();
    let ended = run(folder.path(), &["serve", "p.toml", "--listen", &listen]).expect(1);
    assert!(
        ended.stderr.contains("choose another port"),
        "{}",
        ended.stderr
    );
}
