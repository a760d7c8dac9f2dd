//! Ends of pagination as a person sees them: on the screen, in `--json` and in `ingest status`.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::support::{pipeline, run, serve};

/// Serves two hundred records by page, at most 50 a page.
pub(crate) fn serve_two_hundred() -> String {
    serve(|target| {
        let page: u64 = target
            .split("page=")
            .nth(1)
            .and_then(|text| text.split('&').next())
            .map_or(1, |text| text.parse().unwrap());
        let ids = (page - 1) * 50..(page * 50).min(200);
        let records: Vec<String> = ids.map(|id| format!("{{\"id\":{id}}}")).collect();
        let body = format!("{{\"items\": [{}], \"total\": 300}}", records.join(","));
        ("200 OK", String::new(), body)
    })
}

#[test]
fn a_page_size_above_the_servers_and_a_total_above_what_came_are_said_at_each_run_and_by_status() {
    let origin = serve_two_hundred();
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(
        folder.path(),
        &format!(
            "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"items\"\ntype = \"rest\"\n\
             url = \"{origin}/items\"\nrecords = \"items\"\n\
             pagination = {{ type = \"page\", size_param = \"limit\", page_size = 100, total_path = \"total\" }}\n"
        ),
    );
    for arguments in [
        &["ingest", file][..],
        &["ingest", file],
        &["ingest", "status", file],
    ] {
        let ended = run(folder.path(), arguments).expect(0);
        for part in [
            "200 rows landed",
            "small pages: a page of 50 records, where `pagination.page_size` = 100",
            "total differs: 200 records have come, and the API says that there are 300",
            "see `pagination.page_size`",
        ] {
            assert!(ended.stdout.contains(part), "{part} in {}", ended.stdout);
        }
        assert!(
            !ended.stdout.contains("everything has been read"),
            "{}",
            ended.stdout
        );
        let mut arguments = arguments.to_vec();
        arguments.push("--json");
        let json = run(folder.path(), &arguments).expect(0).json();
        let codes: Vec<&str> = json["sources"][0]["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|warning| warning["code"].as_str().unwrap())
            .collect();
        assert_eq!(codes, ["small_pages", "total_differs"]);
    }
}

#[test]
fn one_failing_source_leaves_the_report_of_the_others_and_the_exit_code() {
    let origin = serve(|target| match target.contains("good") {
        true => ("200 OK", String::new(), "[{\"id\": 1}]".to_owned()),
        false => ("404 Not Found", String::new(), "gone".to_owned()),
    });
    let source = |name: &str| {
        format!("[[source]]\nname = \"{name}\"\ntype = \"rest\"\nurl = \"{origin}/{name}\"\n")
    };
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(
        folder.path(),
        &format!(
            "[pipeline]\nname = \"p\"\nroot = \"out\"\n{}{}{}",
            source("good1"),
            source("bad"),
            source("good2")
        ),
    );
    let ended = run(folder.path(), &["ingest", file]).expect(1);
    assert!(ended.stderr.contains("404 Not Found"), "{}", ended.stderr);
    for part in [
        "good1",
        "good2",
        "complete: 1 row landed",
        "failed: 0 rows landed",
        "gone",
    ] {
        assert!(ended.stdout.contains(part), "{part} in {}", ended.stdout);
    }
    let json = run(folder.path(), &["ingest", file, "--json"])
        .expect(1)
        .json();
    let statuses: Vec<&str> = json["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|source| source["status"].as_str().unwrap())
        .collect();
    assert_eq!(statuses, ["complete", "failed", "complete"]);
    assert_eq!((&json["new_rows"], &json["rows"]), (&0.into(), &2.into()));
    let error = json["sources"][1]["error"].as_str().unwrap();
    assert!(error.contains("404 Not Found"), "{error}");
    // Two runs: `status` reports this until a run ends well.
    let status = run(folder.path(), &["ingest", "status", file]).expect(0);
    assert!(
        status.stdout.contains("2 runs in a row since") && status.stdout.contains("404 Not Found"),
        "{}",
        status.stdout
    );
    let set = format!("source.1.url={origin}/good3");
    run(folder.path(), &["ingest", file, "--set", &set]).expect(0);
    let status = run(folder.path(), &["ingest", "status", file]).expect(0);
    assert!(!status.stdout.contains("in a row"), "{}", status.stdout);
    // With `--json`, the report of a single failing source is printed too.
    let alone = source("bad");
    let text = format!("[pipeline]\nname = \"p\"\nroot = \"alone\"\n{alone}");
    let file = pipeline(folder.path(), &text);
    let ended = run(folder.path(), &["run", file]).expect(1);
    assert_eq!(ended.stdout, "");
    let ended = run(folder.path(), &["run", file, "--json"]).expect(1);
    let json = ended.json();
    let failed = &json["ingest"]["sources"][0];
    assert_eq!(failed["status"], "failed", "{json}");
    assert_eq!(failed["new_rows"], 0, "{json}");
}

#[test]
fn a_deferral_is_ended_by_ingest_resume() {
    let is_up = Arc::new(AtomicBool::new(false));
    let answers = Arc::clone(&is_up);
    let origin = serve(move |_| match answers.load(Ordering::SeqCst) {
        true => ("200 OK", String::new(), "[{\"id\": 1}]".to_owned()),
        false => {
            let head = "Retry-After: 3153600000\r\n".to_owned();
            ("429 Too Many Requests", head, String::new())
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(
        folder.path(),
        &format!(
            "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"items\"\ntype = \"rest\"\nurl = \"{origin}/\"\n"
        ),
    );
    let ended = run(folder.path(), &["ingest", file]).expect(4);
    assert!(
        ended.stderr.contains("`retry.max_deferral_s` = 86400"),
        "{}",
        ended.stderr
    );
    is_up.store(true, Ordering::SeqCst);
    run(folder.path(), &["ingest", file]).expect(4);
    let resumed = run(
        folder.path(),
        &["ingest", "resume", file, "--source", "items"],
    )
    .expect(0);
    assert!(resumed.stdout.contains("is ended"), "{}", resumed.stdout);
    let again = run(folder.path(), &["ingest", "resume", file]).expect(0);
    assert!(again.stdout.contains("not deferred"), "{}", again.stdout);
    let json = run(folder.path(), &["ingest", file, "--json"])
        .expect(0)
        .json();
    assert_eq!(json["rows"], 1, "{json}");
}
