//! A list of values: failures of one and of the source, a re-read after some have left the list, and
//! the cursors of values.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;

use crate::support::{pipeline, run, serve};

/// Serves `/o/VALUE?from=N&to=M` with a record for each number; while `is_down`, the value C fails with
/// `status`.
fn numbers_of_values(is_down: Arc<AtomicBool>, status: &'static str) -> String {
    serve(move |target| {
        let (path, query) = target.split_once('?').unwrap();
        let number = |name: &str| -> u64 {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let (_, text) = pairs.find(|(key, _)| *key == name).unwrap();
            text.parse().unwrap()
        };
        if path == "/o/C" && is_down.load(Ordering::SeqCst) {
            return (status, String::new(), String::new());
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
fn values_before_a_refusal_land_and_a_reread_keeps_the_rows_of_those_that_left() {
    let is_down = Arc::new(AtomicBool::new(true));
    // The whole source ends with this status.
    let origin = numbers_of_values(Arc::clone(&is_down), "403 No");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let json = |arguments: &[&str]| -> Value {
        let arguments = [arguments, &["--json"]].concat();
        run(folder, &arguments).expect(0).json()
    };
    let file = write(folder, &origin, "\"A\", \"B\", \"C\", \"D\"");
    for _ in 0..2 {
        let failed = run(folder, &["ingest", file]).expect(1);
        assert!(failed.stderr.contains("403"), "{}", failed.stderr);
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

#[test]
fn the_values_beside_one_that_fails_land_and_the_run_names_it() {
    let is_down = Arc::new(AtomicBool::new(true));
    let origin = numbers_of_values(Arc::clone(&is_down), "500 Oh");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = write(folder, &origin, "\"A\", \"B\", \"C\", \"D\"");
    for _ in 0..2 {
        let failed = run(folder, &["ingest", file]).expect(1);
        let part = "1 value of `for_each` failed (`C`), and all others were read";
        assert!(failed.stderr.contains(part), "{}", failed.stderr);
        let status: Value = run(folder, &["ingest", "status", file, "--json"])
            .expect(0)
            .json();
        assert_eq!(status["rows"], 300);
        let source = &status["sources"][0];
        assert_eq!(source["status"], "partial");
        let slices = &source["slices"];
        let counts = ["done", "open", "values_done", "values_open"].map(|key| &slices[key]);
        assert_eq!(counts, [15, 5, 3, 1]);
        let warnings = source["warnings"].as_array().unwrap().iter();
        let codes: Vec<&str> = warnings
            .map(|warning| warning["code"].as_str().unwrap())
            .collect();
        assert!(codes.contains(&"values_failed"), "{codes:?}");
    }
    // `run` prints the report of an only source that failed if it has warnings.
    let failed = run(folder, &["run", file]).expect(1);
    let part = "the last requests of 1 value failed";
    assert!(failed.stdout.contains(part), "{}", failed.stdout);
    is_down.store(false, Ordering::SeqCst);
    let report: Value = run(folder, &["ingest", file, "--json"]).expect(0).json();
    let source = &report["sources"][0];
    assert_eq!(
        (&source["rows"], &source["status"]),
        (&400.into(), &"complete".into())
    );
}

#[test]
fn status_shows_the_smallest_and_the_greatest_cursor_of_the_values() {
    let origin = serve(|target| {
        let day = match target.contains("/o/B") {
            true => "2024-01-05",
            false => "2024-03-01",
        };
        let body = format!("[{{\"n\":1,\"day\":\"{day}\"}}]");
        ("200 OK", String::new(), body)
    });
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = format!(
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"o\"\ntype = \"rest\"\n\
         url = \"{origin}/o/{{v}}\"\nfor_each = {{ param = \"v\", values = [\"A\", \"B\", \"C\"] }}\n\
         incremental = {{ cursor = \"day\", param = \"since\" }}\n"
    );
    let file = pipeline(folder, &text);
    run(folder, &["ingest", file]).expect(0);
    let status = run(folder, &["ingest", "status", file]).expect(0);
    let part = "3 values, from 2024-01-05 (`B`, ";
    assert!(status.stdout.contains(part), "{}", status.stdout);
    let status: Value = run(folder, &["ingest", "status", file, "--json"])
        .expect(0)
        .json();
    let cursors = &status["sources"][0]["standing"]["value_cursors"];
    assert_eq!(cursors["values"], 3);
    let shown = ["smallest", "greatest"].map(|key| cursors[key]["cursor"].as_str().unwrap());
    assert_eq!(shown, ["2024-01-05", "2024-03-01"]);
    assert_eq!(cursors["smallest"]["value"], "B");
    assert!(cursors["smallest"]["lag_s"].as_u64() > cursors["greatest"]["lag_s"].as_u64());
}

#[test]
fn a_check_refuses_a_list_whose_type_a_run_refuses_to_request() {
    let origin = serve(|_| ("200 OK", String::new(), "[]".to_owned()));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("list.csv"), "id\n1.5\n2.5\n").unwrap();
    let text = format!(
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"list\"\ntype = \"files\"\nurl = \"list.csv\"\n\
         [[source]]\nname = \"o\"\ntype = \"rest\"\nurl = \"{origin}/o/{{v}}\"\n\
         for_each = {{ param = \"v\", source = \"list\", column = \"id\" }}\n"
    );
    let file = pipeline(folder, &text);
    let checked: Value = run(folder, &["check", file, "--json"]).expect(2).json();
    let problems = checked["problems"].as_array().unwrap();
    let problem = problems[0].as_str().unwrap();
    let reason =
        "`id` of the source `list` has the type float, and only values of the types text and int";
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problem.contains(reason), "{problem}");
    let failed = run(folder, &["ingest", file, "--json"]).expect(2);
    assert!(failed.stderr.contains("has the type float"), "{failed:#?}");
}
