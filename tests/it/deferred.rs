//! A server that lets few pages through and then asks for a long wait.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
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

#[test]
fn a_run_that_is_told_to_wait_keeps_what_it_was_given_and_a_later_one_goes_on() {
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
        let status = run(folder.path(), &["ingest", "status", file, "--json"])
            .expect(0)
            .json();
        assert_eq!(
            (&status["rows"], &status["sources"][0]["status"]),
            (&rows.into(), &"partial".into())
        );
        allowance.store(2, Ordering::SeqCst);
    }
    let last = run(folder.path(), &["ingest", file, "--json"])
        .expect(0)
        .json();
    assert_eq!(
        (&last["rows"], &last["duplicates"]),
        (&15.into(), &0.into())
    );
}
