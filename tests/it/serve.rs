//! `feedline serve`: scheduled sources, `/healthz` and `/metrics`, and an end by SIGTERM.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use feedline_storage::clock::{Clock as _, SystemClock};
use feedline_testkit::free_port::free_port;

use crate::support::{self, feedline, files, run, wait};

/// An address that is free now.
fn free() -> SocketAddr {
    ([127, 0, 0, 1], free_port()).into()
}

/// Puts a complete file into `in/`: a run may list the folder at any time.
fn put(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join("next"), text).unwrap();
    fs::rename(folder.join("next"), folder.join("in").join(name)).unwrap();
}

/// The response to a GET, head and body; none while there is no listener.
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
    metric_with(address, name, "")
}

/// The same of one that has a label more, such as `status="200"`.
fn metric_with(address: SocketAddr, name: &str, label: &str) -> Option<f64> {
    let text = get(address, "/metrics")?;
    let begin = format!("{name}{{");
    let is_meant = |line: &&str| {
        line.starts_with(&begin) && line.contains("source=\"numbers\"") && line.contains(label)
    };
    text.lines()
        .find(is_meant)?
        .rsplit(' ')
        .next()?
        .parse()
        .ok()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        wait(Duration::from_millis(50));
    }
    panic!("not in 300 s: {what}");
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
    put(folder.path(), "2.csv", "a\n2\n3\n");
    until("the second file landed", || rows(3.0));
    let rejects = |name: &str| metric(address, &format!("feedline_source_{name}"));
    assert_eq!(rejects("new_rejects_total"), Some(0.0));
    put(folder.path(), "3.csv", "a\n4\n5,6\n5\n");
    until("the third file landed", || rows(5.0));
    let both = ["new_rejects_total", "rejected"].map(rejects);
    assert_eq!(both, [Some(1.0), Some(1.0)]);
    assert!(metric(address, "feedline_source_complete_timestamp_seconds").unwrap() > 1.7e9);
    assert_eq!(terminate(child), 0);
    assert_eq!(get(address, "/healthz"), None, "the server has stopped");
    // Everything it landed stays, and the same source by hand has nothing left to do.
    let status = run(folder.path(), &["ingest", "p.toml", "--json"])
        .expect(0)
        .json();
    assert_eq!(status["rows"], 5, "{status}");
    assert_eq!(
        (&status["rejected"], &status["new_rejected"]),
        (&1.into(), &0.into())
    );
}

/// Pages of an API whose second one is refused with a wish for 200 seconds.
fn write_refusing(folder: &Path) {
    let origin = support::serve(|target| {
        if target.contains("cursor=") {
            let head = "Retry-After: 200\r\n".to_owned();
            ("429 Too Many Requests", head, "slow down".to_owned())
        } else {
            let body = r#"{"items": [{"id": 1}, {"id": 2}, {"id": 2}], "next": "b"}"#;
            ("200 OK", String::new(), body.to_owned())
        }
    });
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"numbers\"\ntype = \"rest\"\nurl = \"{origin}/numbers\"\n\
         records = \"items\"\npagination = {{ type = \"cursor\", cursor_param = \"cursor\", cursor_path = \"next\" }}\n\
         batch = {{ pages = 1 }}\nschedule = {{ every_s = 1 }}\n"
    );
    fs::write(folder.join("p.toml"), text).unwrap();
}

#[test]
fn fault_53_a_stop_in_a_wait_of_a_served_source_takes_effect_and_its_figures_are_those_of_the_log()
{
    let folder = tempfile::tempdir().unwrap();
    write_refusing(folder.path());
    let address = free();
    let child = serve(folder.path(), address);
    until("it waits for the server", || {
        get(address, "/healthz").is_some_and(|health| health.contains("429 until "))
    });
    let health = get(address, "/healthz").unwrap();
    assert!(health.starts_with("HTTP/1.1 200 OK"), "{health}");
    until("seconds are counted", || {
        let waited = metric_with(address, "feedline_source_wait_seconds_total", "\"asked\"");
        waited.is_some_and(|seconds| seconds > 0.0)
    });
    for (name, label, expected) in [
        ("running", "", 1.0),
        ("landed_rows", "", 2.0),
        ("duplicates", "", 1.0),
        ("rejected", "", 0.0),
        ("batches", "", 1.0),
        ("schema_version", "", 1.0),
        ("commits_total", "", 1.0),
        ("requests_total", "status=\"200\"", 1.0),
        ("requests_total", "status=\"429\"", 1.0),
        ("retries_total", "", 0.0),
        ("wait_seconds_total", "cause=\"circuit\"", 0.0),
    ] {
        // The log is looked at beside the run.
        until(&format!("{name} {label} is {expected}"), || {
            metric_with(address, &format!("feedline_source_{name}"), label) == Some(expected)
        });
    }
    let committed = metric(address, "feedline_source_commit_timestamp_seconds").unwrap();
    assert!(committed > 1.7e9);
    assert!(metric(address, "feedline_source_commit_seconds_total").unwrap() > 0.0);

    // What is waited for is 200 s away.
    let began = SystemClock.monotonic();
    assert_eq!(terminate(child), 0);
    let left = SystemClock.monotonic() - began;
    eprintln!("left {} ms after it was asked to", left.as_millis());
    assert!(left < Duration::from_secs(200), "it waited to the end");

    let zone = files(&folder.path().join("feedline-data/p/landing/numbers"));
    let entries: Vec<_> = zone
        .iter()
        .filter(|(path, _)| path.starts_with("log/"))
        .collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    let status = run(folder.path(), &["ingest", "status", "p.toml", "--json"])
        .expect(0)
        .json();
    let source = &status["sources"][0];
    assert_eq!(
        (&source["rows"], &source["duplicates"], &source["batches"]),
        (&2.into(), &1.into(), &1.into()),
        "{source}"
    );
    let standing = &source["standing"];
    assert!(
        standing["committed_unix_s"].as_f64().unwrap() >= committed - 5.0,
        "{standing}"
    );
    assert_eq!(standing["schema_versions"], 1, "{standing}");
    assert_eq!(standing["columns"], 1, "{standing}");
    assert_eq!(standing["next"], "resumes after page 1, cursor `b`");
    assert_eq!(standing["last_run"]["outcome"], "stopped", "{standing}");
    let text = run(folder.path(), &["ingest", "status", "p.toml"]).expect(0);
    assert!(
        text.stdout.contains("resumes after page 1") && text.stdout.contains("1 version, 1 column"),
        "{}",
        text.stdout
    );
}

#[test]
fn a_source_that_keeps_failing_is_listed_and_makes_healthz_answer_503() {
    let folder = tempfile::tempdir().unwrap();
    let origin = support::serve(|target| {
        let (status, body) = match target.contains("good") {
            true => ("200 OK", "[{\"id\": 1}]"),
            false => ("403 Forbidden", "not you"),
        };
        (status, String::new(), body.to_owned())
    });
    let source = |name: &str| {
        format!(
            "[[source]]\nname = \"{name}\"\ntype = \"rest\"\nurl = \"{origin}/{name}\"\nrefresh = \"if_changed\"\nschedule = {{ every_s = 1 }}\n"
        )
    };
    let text = format!(
        "[pipeline]\nname = \"p\"\n{}{}",
        source("good"),
        source("numbers")
    );
    fs::write(folder.path().join("p.toml"), text).unwrap();
    let address = free();
    let child = serve(folder.path(), address);
    until("it has failed three times", || {
        get(address, "/healthz").is_some_and(|health| health.starts_with("HTTP/1.1 503"))
    });
    let health = get(address, "/healthz").unwrap();
    let body: serde_json::Value =
        serde_json::from_str(health.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let failing = &body["failing"];
    assert_eq!(failing.as_array().unwrap().len(), 1, "{failing}");
    assert_eq!(failing[0]["source"], "numbers", "{failing}");
    assert!(failing[0]["failures"].as_u64().unwrap() >= 3, "{failing}");
    let error = failing[0]["error"].as_str().unwrap();
    assert!(error.contains("403 Forbidden"), "{error}");
    let failures = metric(address, "feedline_source_failures_in_a_row").unwrap();
    assert!(failures >= 3.0, "{failures}");
    assert_eq!(terminate(child), 0);
    let status = run(folder.path(), &["ingest", "status", "p.toml", "--json"])
        .expect(0)
        .json();
    let last = &status["sources"][1]["standing"]["last_run"];
    assert!(last["failures"].as_u64().unwrap() >= 3, "{last}");
    let text = run(folder.path(), &["ingest", "status", "p.toml"]).expect(0);
    assert!(text.stdout.contains("times in a row"), "{}", text.stdout);
}

#[test]
fn a_file_that_is_left_for_a_later_run_is_a_warning_in_the_metrics() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("in")).unwrap();
    fs::write(folder.path().join("in/1.csv"), "a\n1\n").unwrap();
    let more = "schedule = { every_s = 1 }\nfiles.settle_s = 86400";
    write_pipeline(folder.path(), more);
    let address = free();
    let child = serve(folder.path(), address);
    until("a run has left the file", || {
        metric(address, "feedline_source_warnings") == Some(1.0)
    });
    assert_eq!(terminate(child), 0);
}

#[test]
fn log_lines_of_several_served_pipelines_name_the_pipeline() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("in")).unwrap();
    fs::write(folder.path().join("in/1.csv"), "a\n1\n").unwrap();
    for name in ["one", "two"] {
        let text = format!(
            "[pipeline]\nname = \"{name}\"\nroot = \"{name}\"\n[[source]]\nname = \"numbers\"\n\
             type = \"files\"\nurl = \"in/*.csv\"\nschedule = {{ every_s = 1 }}\n"
        );
        fs::write(folder.path().join(format!("{name}.toml")), text).unwrap();
    }
    let log = folder.path().join("log");
    let listen = free().to_string();
    let child = feedline(folder.path())
        .args(["serve", "one.toml", "two.toml", "--listen", &listen])
        .env("FEEDLINE_LOG", "feedline=info")
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let landed = |part: &str| {
        let log = fs::read_to_string(&log).unwrap();
        let landed = log.lines().filter(|line| line.contains("batch landed"));
        landed.filter(|line| line.contains(part)).count()
    };
    until("both landed", || landed("") == 2);
    assert_eq!(terminate(child), 0);
    let counts = ["pipeline=one", "pipeline=two"].map(landed);
    assert_eq!(counts, [1, 1], "{}", fs::read_to_string(&log).unwrap());
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
    // The first run may be a day away.
    check(
        "schedule = { cron = \"@daily\" }\n[[source]]\nname = \"api\"\ntype = \"rest\"\nurl = \"http://127.0.0.1:9/\"\n\
         auth = { type = \"bearer\", secret = { env = \"NO_SUCH_TOKEN\" } }\nschedule = { cron = \"@daily\" }",
        "`NO_SUCH_TOKEN` is not set",
    );
    write_pipeline(folder.path(), "schedule = { every_s = 1 }");
    let twice = ["serve", "p.toml", "p.toml", "--listen", "127.0.0.1:0"];
    let ended = run(folder.path(), &twice).expect(2);
    assert!(ended.stderr.contains("served already"), "{}", ended.stderr);
    // The other commands report such a schedule too.
    write_pipeline(folder.path(), "schedule = { cron = \"0 2 31 2 *\" }");
    let ended = run(folder.path(), &["check", "p.toml", "--offline"]).expect(2);
    assert!(
        ended.stdout.contains("`source.0.schedule.cron`") && ended.stdout.contains("never comes"),
        "{}",
        ended.stdout
    );
    let ended = run(folder.path(), &["ingest", "p.toml"]).expect(2);
    assert!(ended.stderr.contains("never comes"), "{}", ended.stderr);
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

#[test]
fn clients_that_never_end_their_requests_keep_no_other_from_being_answered() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("in")).unwrap();
    fs::write(folder.path().join("in/1.csv"), "a\n1\n").unwrap();
    write_pipeline(folder.path(), "schedule = { every_s = 1 }");
    let address = free();
    // Fewer file descriptors than connections: connections must not make the process's own files
    // fail.
    let mut limited = Command::new("sh");
    let child = limited
        .args([
            "-c",
            "ulimit -n 128; exec \"$0\" serve p.toml --listen \"$1\"",
        ])
        .args([env!("CARGO_BIN_EXE_feedline"), &address.to_string()])
        .current_dir(folder.path())
        .spawn()
        .unwrap();
    until("it is served", || get(address, "/healthz").is_some());
    let slow: Vec<TcpStream> = (0..150)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /healthz HTTP/1.1\r\n").unwrap();
            stream
        })
        .collect();
    put(folder.path(), "2.csv", "a\n2\n3\n");
    let health = get(address, "/healthz").unwrap();
    assert!(health.starts_with("HTTP/1.1 200 OK"), "{health}");
    until("the second file landed", || {
        metric(address, "feedline_source_landed_rows") == Some(3.0)
    });
    drop(slow);
    assert_eq!(terminate(child), 0);
}
