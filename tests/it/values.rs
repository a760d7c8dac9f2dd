//! A list of values: one that fails, and a re-read after some have left the list.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;

use crate::support::{pipeline, run, serve};

/// Serves `/o/VALUE?from=N&to=M` with a record for each number; while `is_down`, the value C fails.
fn numbers_of_values(is_down: Arc<AtomicBool>) -> String {
    serve(move |target| {
        let (path, query) = target.split_once('?').unwrap();
        let number = |name: &str| -> u64 {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let (_, text) = pairs.find(|(key, _)| *key == name).unwrap();
            text.parse().unwrap()
        };
        if path == "/o/C" && is_down.load(Ordering::SeqCst) {
            return ("500 Oh", String::new(), String::new());
        }
        let records = (number("from")..number("to")).map(|n| format!("{{\"n\":{n}}}"));
        let records: Vec<String> = records.collect();
        ("200 OK", String::new(), format!("[{}]", records.join(",")))
    })
}

fn write(folder: &Path, origin: &str, values: &str) -> &'static str {
    let text = format!(
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"o\"\ntype = \"rest\"\n\
         url = \"{origin}/o/{{v}}\"\nretry = {{ max_tries = 1 }}\nlimits = {{ concurrency = 1 }}\n\
         for_each = {{ param = \"v\", values = [{values}] }}\n\
         slices = {{ from_param = \"from\", to_param = \"to\", start = \"0\", end = \"100\", step = \"20\", \
         format = \"integer\" }}\n"
    );
    pipeline(folder, &text)
}

#[test]
fn values_before_one_that_fails_land_and_a_reread_keeps_the_rows_of_those_that_left() {
    let is_down = Arc::new(AtomicBool::new(true));
    let origin = numbers_of_values(Arc::clone(&is_down));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let json = |arguments: &[&str]| -> Value {
        let arguments = [arguments, &["--json"]].concat();
        run(folder, &arguments).expect(0).json()
    };
    let file = write(folder, &origin, "\"A\", \"B\", \"C\", \"D\"");
    for _ in 0..2 {
        let failed = run(folder, &["ingest", file]).expect(1);
        assert!(failed.stderr.contains("500"), "{}", failed.stderr);
        let status = json(&["ingest", "status", file]);
        assert_eq!(status["rows"], 200);
        let slices = &status["sources"][0]["slices"];
        assert_eq!(
            (&slices["values_done"], &slices["values_open"]),
            (&2.into(), &2.into())
        );
    }
    is_down.store(false, Ordering::SeqCst);
    let report = json(&["ingest", file]);
    assert_eq!(
        (&report["rows"], &report["duplicates"]),
        (&400.into(), &0.into())
    );
    // C and D have batches of their own.
    let file = write(folder, &origin, "\"A\", \"B\"");
    let reread = ["ingest", "reread", file, "o", "--from", "20", "--to", "40"];
    let report = json(&reread);
    assert_eq!(
        (&report["rows"], &report["ingest"]["rows"]),
        (&200.into(), &400.into())
    );
    // A and B have the same ones.
    let file = write(folder, &origin, "\"A\"");
    let refused = run(folder, &reread).expect(2);
    assert!(
        refused.stderr.contains("have left the list (`B`)"),
        "{}",
        refused.stderr
    );
    let verified = json(&["ingest", "verify", file]);
    assert_eq!(verified["sources"][0]["rows"], 400);
}
