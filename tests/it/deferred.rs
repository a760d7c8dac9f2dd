//! A server that lets few pages through and then asks for a long wait.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::support::{pipeline, run, serve};

/// Serves `/items?page=N` with three records a page, five pages in all; `allowance` requests are answered, then each
/// one is asked to come back in an hour. A run that resumes also requests the page before.
fn five_pages(allowance: Arc<AtomicU64>) -> String {
    serve(move |target| {
        let page: u64 = target.split("page=").nth(1).unwrap().parse().unwrap();
        let is_allowed = allowance
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
            .is_ok();
        if !is_allowed {
            let asked = "Retry-After: 3600\r\n".to_owned();
            return ("429 Too Many Requests", asked, String::new());
        }
        let ids = if page <= 5 {
            page * 3..page * 3 + 3
        } else {
            0..0
        };
        let records: Vec<String> = ids.map(|id| format!("{{\"id\":{id}}}")).collect();
        ("200 OK", String::new(), format!("[{}]", records.join(",")))
    })
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
    let origin = five_pages(Arc::clone(&allowance));
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(
        folder.path(),
        &format!(
            "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"items\"\ntype = \"rest\"\n\
             url = \"{origin}/items\"\npagination = {{ type = \"page\" }}\n"
        ),
    );
    for rows in [6, 12] {
        let deferred = run(folder.path(), &["ingest", file]).expect(4);
        assert!(deferred.stderr.contains("3600"), "{}", deferred.stderr);
        // Within that hour the server gets no request, though it would respond again.
        allowance.store(3, Ordering::SeqCst);
        let again = run(folder.path(), &["ingest", file]).expect(4);
        assert!(
            again.stderr.contains("no request was sent"),
            "{}",
            again.stderr
        );
        assert_eq!(allowance.load(Ordering::SeqCst), 3);
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
