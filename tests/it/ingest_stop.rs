//! SIGTERM while `feedline ingest` is at work, and `feedline plan --ask` before it is.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use feedline_storage::clock::{Clock as _, SystemClock};

use crate::support::{Finished, Random, feedline, finish, pipeline, run, serve, wait};

/// Pages of three records each.
const PAGES: u64 = 40;
const LOOK: Duration = Duration::from_millis(5);
/// Signals within this time are one request.
const SAME_REQUEST: Duration = Duration::from_millis(250);

/// An API whose page `held` is not answered before it is let go.
#[derive(Clone, Default)]
struct Api {
    held: Arc<AtomicU64>,
    is_asked: Arc<AtomicBool>,
}

impl Api {
    /// Starts it; returns the origin.
    fn start(&self) -> String {
        let api = self.clone();
        serve(move |target| {
            let page: u64 = target.split("page=").nth(1).unwrap().parse().unwrap();
            if page == api.held.load(Ordering::SeqCst) {
                api.is_asked.store(true, Ordering::SeqCst);
                while page == api.held.load(Ordering::SeqCst) {
                    wait(LOOK);
                }
            }
            let ids = if page <= PAGES {
                page * 3..page * 3 + 3
            } else {
                0..0
            };
            let records: Vec<String> = ids.map(|id| format!("{{\"id\":{id}}}")).collect();
            ("200 OK", String::new(), format!("[{}]", records.join(",")))
        })
    }

    fn hold(&self, page: u64) {
        self.is_asked.store(false, Ordering::SeqCst);
        self.held.store(page, Ordering::SeqCst);
    }

    fn let_go(&self) {
        self.held.store(0, Ordering::SeqCst);
    }
}

fn write(folder: &Path, origin: &str) -> &'static str {
    let text = format!(
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"items\"\ntype = \"rest\"\n\
         url = \"{origin}/items\"\npagination = {{ type = \"page\" }}\nbatch = {{ pages = 2 }}\n\
         limits = {{ concurrency = 1 }}\n"
    );
    pipeline(folder, &text)
}

/// An ingest that waits for the page that is held.
fn waiting(folder: &Path, file: &str, api: &Api) -> Child {
    let mut command = feedline(folder);
    command.args(["ingest", file, "--json"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..60_000 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        if api.is_asked.load(Ordering::SeqCst) {
            return child;
        }
        wait(LOOK);
    }
    panic!("it does not ask for the page");
}

fn send(signal: &str, child: &Child) {
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

fn ended(child: Child) -> Finished {
    finish(child.wait_with_output().unwrap())
}

#[test]
fn fault_11_sigterm_in_a_batch_lands_what_was_read_and_is_no_failure() {
    let (folder, api) = (tempfile::tempdir().unwrap(), Api::default());
    let file = write(folder.path(), &api.start());
    // Two pages are a batch, and the third one is in the next.
    api.hold(4);
    let child = waiting(folder.path(), file, &api);
    send("-TERM", &child);
    let report = ended(child).expect(0).json();
    api.let_go();
    assert_eq!(report["stopped"], true, "{report}");
    let source = &report["sources"][0];
    assert_eq!(
        (&source["status"], &source["rows"], &source["batches"]),
        (&"partial".into(), &9.into(), &2.into()),
        "{report}"
    );
    assert_eq!(report["requests"], 3, "what was answered: {report}");

    // A person's Ctrl-C keeps what would come after it from running.
    api.hold(6);
    let child = waiting(folder.path(), file, &api);
    send("-INT", &child);
    let stopped = ended(child).expect(1);
    assert!(
        stopped.stderr.contains("stopped by a signal"),
        "{stopped:#?}"
    );
    assert_eq!(stopped.json()["stopped"], true);
    api.let_go();

    let last = run(folder.path(), &["ingest", file, "--json"])
        .expect(0)
        .json();
    assert!(last.get("stopped").is_none(), "{last}");
    assert_eq!(
        (
            &last["rows"],
            &last["duplicates"],
            &last["sources"][0]["status"]
        ),
        (&(PAGES * 3).into(), &0.into(), &"complete".into()),
        "{last}"
    );
}

#[test]
fn fault_11_a_second_sigterm_leaves_a_log_that_the_next_run_goes_on_from() {
    let (folder, api) = (tempfile::tempdir().unwrap(), Api::default());
    let file = write(folder.path(), &api.start());
    let mut random = Random(11);
    let (mut page, mut codes) = (0, Vec::new());
    while page + 5 < PAGES {
        page += 3 + random.below(3);
        api.hold(page);
        let child = waiting(folder.path(), file, &api);
        send("-TERM", &child);
        wait(Duration::from_micros(1 + random.below(3_000)));
        // It is held where it is until the second signal is a request of its own. It may be gone
        // already.
        let try_send = |signal: &str| {
            let mut kill = Command::new("kill");
            let kill = kill.args([signal, child.id().to_string().as_str()]);
            let _sent = kill.stderr(Stdio::null()).status();
        };
        try_send("-STOP");
        wait(Duration::from_millis(300));
        try_send("-CONT");
        try_send("-TERM");
        let ended_at = ended(child);
        assert!([0, 130].contains(&ended_at.code), "{ended_at:#?}");
        codes.push(ended_at.code);
        api.let_go();
        let status = run(folder.path(), &["ingest", "status", file, "--json"])
            .expect(0)
            .json();
        let rows = status["rows"].as_u64().unwrap();
        assert!(rows.is_multiple_of(3) && rows < page * 3, "{status}");
    }
    eprintln!("exit codes after two signals: {codes:?}");
    let last = run(folder.path(), &["ingest", file, "--json"])
        .expect(0)
        .json();
    assert_eq!(
        (&last["rows"], &last["duplicates"]),
        (&(PAGES * 3).into(), &0.into()),
        "{last}"
    );
    let repair = run(
        folder.path(),
        &["ingest", "repair", file, "--dry-run", "--json"],
    )
    .expect(0);
    assert!(
        repair.json()["sources"][0].get("damage").is_none(),
        "{repair:#?}"
    );
}

#[test]
fn signals_that_come_together_are_one_request() {
    let (folder, api) = (tempfile::tempdir().unwrap(), Api::default());
    let file = write(folder.path(), &api.start());
    for page in [4, 6, 8, 10] {
        api.hold(page);
        let child = waiting(folder.path(), file, &api);
        let began = SystemClock.monotonic();
        // `timeout` signals its child, and then the group that the child is in.
        for micros in [0, 50, 1_000, 20_000] {
            wait(Duration::from_micros(micros));
            let mut kill = Command::new("kill");
            let kill = kill.args(["-TERM", &child.id().to_string()]);
            let _sent = kill.stderr(Stdio::null()).status();
        }
        let took = SystemClock.monotonic() - began;
        let stopped = ended(child);
        api.let_go();
        if took >= SAME_REQUEST && stopped.code == 130 {
            // On a busy machine they do not come together.
            continue;
        }
        let report = stopped.expect(0).json();
        assert_eq!(report["stopped"], true, "{report}");
    }
}

#[test]
fn plan_suggests_a_pagination_when_it_is_asked_to_and_uses_none() {
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let origin = serve(move |target| {
        count.fetch_add(1, Ordering::SeqCst);
        match target {
            "/lost" => ("404 Not Found", String::new(), "no".to_owned()),
            _ => {
                let link = "Link: </items?page=2&token=hidden-cursor>; rel=next\r\n".to_owned();
                (
                    "200 OK",
                    link,
                    r#"{"data": [{"id": 1}, {"id": 2}]}"#.to_owned(),
                )
            }
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let source = |path: &str, name: &str| {
        format!("[[source]]\nname = \"{name}\"\ntype = \"rest\"\nurl = \"{origin}/{path}\"\n")
    };
    let head = "[pipeline]\nname = \"p\"\nroot = \"out\"\n";
    let file = pipeline(
        folder.path(),
        &format!("{head}{}", source("items", "items")),
    );
    run(folder.path(), &["plan", file]).expect(0);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    let text = run(folder.path(), &["plan", file, "--ask"])
        .expect(0)
        .stdout;
    for part in [
        "none of it is used",
        "records = \"data\"",
        "pagination = { type = \"link\" }",
        "its `Link` header names the next page",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("hidden-cursor"), "{text}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert!(!folder.path().join("out").exists(), "nothing landed");

    // What it says is what a pipeline takes.
    let line = |begin: &str| {
        let at = text.find(begin).unwrap();
        text[at..].lines().next().unwrap().to_owned()
    };
    let filled = format!(
        "{head}{}{}\n{}\n",
        source("items", "items"),
        line("records = "),
        line("pagination = ")
    );
    fs::write(folder.path().join("pipeline.toml"), filled).unwrap();
    let plan = run(folder.path(), &["plan", file, "--ask", "--json"])
        .expect(0)
        .json();
    assert_eq!(plan["suggestions"], serde_json::json!([]), "{plan}");
    assert_eq!(asked.load(Ordering::SeqCst), 1);

    let file = pipeline(folder.path(), &format!("{head}{}", source("lost", "lost")));
    let lost = run(folder.path(), &["plan", file, "--ask", "--json"])
        .expect(1)
        .json();
    let error = lost["suggestions"][0]["error"].as_str().unwrap();
    assert!(error.contains("404") && !error.contains('\n'), "{error}");
}
