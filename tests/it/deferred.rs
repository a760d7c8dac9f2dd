//! A server that lets few pages through and then asks for a long wait.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use crate::support::{pipeline, run};

/// Serves `/items?page=N` with three records a page, five pages in all; `allowance` requests are answered, then each
/// one is asked to come back in an hour.
fn serve(allowance: Arc<AtomicU64>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut request = String::new();
            reader.read_line(&mut request).unwrap();
            let mut header = String::new();
            while reader.read_line(&mut header).unwrap() > 2 {
                header.clear();
            }
            let page: u64 = request
                .split("page=")
                .nth(1)
                .unwrap()
                .split(' ')
                .next()
                .unwrap()
                .parse()
                .unwrap();
            let is_allowed = allowance
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                .is_ok();
            let (status, extra, body) = if is_allowed {
                let ids = if page <= 5 {
                    page * 3..page * 3 + 3
                } else {
                    0..0
                };
                let records: Vec<String> = ids.map(|id| format!("{{\"id\":{id}}}")).collect();
                ("200 OK", "", format!("[{}]", records.join(",")))
            } else {
                (
                    "429 Too Many Requests",
                    "Retry-After: 3600\r\n",
                    String::new(),
                )
            };
            let answer = format!(
                "HTTP/1.1 {status}\r\n{extra}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    port
}

/// Makes the newest entry of a log say that the time to wait for was over long ago.
fn an_hour_passes(log: &Path) {
    let entries = fs::read_dir(log)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let newest = entries.max().unwrap();
    let mut entry: serde_json::Value = serde_json::from_slice(&fs::read(&newest).unwrap()).unwrap();
    let not_before = &mut entry["state"]["not_before_unix_s"];
    assert!(not_before.as_u64().unwrap() > 1_700_000_000);
    *not_before = 1.into();
    fs::write(&newest, serde_json::to_vec(&entry).unwrap()).unwrap();
}

#[test]
fn fault_14_a_run_that_is_told_to_wait_keeps_what_it_was_given_and_a_later_one_goes_on() {
    let allowance = Arc::new(AtomicU64::new(2));
    let port = serve(Arc::clone(&allowance));
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(
        folder.path(),
        &format!(
            "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"items\"\ntype = \"rest\"\n\
             url = \"http://127.0.0.1:{port}/items\"\npagination = {{ type = \"page\" }}\n"
        ),
    );
    for rows in [6, 12] {
        let deferred = run(folder.path(), &["ingest", file]).expect(4);
        assert!(deferred.stderr.contains("3600"), "{}", deferred.stderr);
        // Within that hour nothing is asked of the server, though it would answer again.
        allowance.store(2, Ordering::SeqCst);
        let again = run(folder.path(), &["ingest", file]).expect(4);
        assert!(
            again.stderr.contains("nothing was asked"),
            "{}",
            again.stderr
        );
        assert_eq!(allowance.load(Ordering::SeqCst), 2);
        let status = run(folder.path(), &["ingest", "status", file, "--json"])
            .expect(0)
            .json();
        assert_eq!(
            (&status["rows"], &status["sources"][0]["status"]),
            (&rows.into(), &"deferred".into())
        );
        let log = folder.path().join("out/landing/items/log");
        an_hour_passes(&log);
    }
    let last = run(folder.path(), &["ingest", file, "--json"])
        .expect(0)
        .json();
    assert_eq!(
        (&last["rows"], &last["duplicates"]),
        (&15.into(), &0.into())
    );
}
