//! Requests ahead: what lands is what one request at a time lands, also after kills.

use std::{
    collections::HashMap,
    env,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    kills::{Landing, landing},
    support::{Random, count_files, kill_when, pipeline, run, start, wait},
};

/// Pages of the numbered source, and values of the other one, which has a page for each.
const PAGES: u64 = 80;
/// Records of a page.
const RECORDS: u64 = 10;
/// Pages of a batch.
const BATCH: u64 = 5;
/// Pages that may be on their way or unread with 8 requests at a time.
const AHEAD: u64 = 32;

/// Kills of the test: `FEEDLINE_AHEAD_KILLS`, by default a few.
fn kills() -> u64 {
    let asked = env::var_os("FEEDLINE_AHEAD_KILLS");
    asked.map_or(16, |text| text.to_str().unwrap().parse().unwrap())
}

/// An API that counts the requests of each page.
#[derive(Clone, Default)]
struct Api(Arc<Mutex<HashMap<String, u64>>>);

impl Api {
    /// Starts it; each response takes some time. Returns the origin.
    fn start(&self, seed: u64) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let (api, mut random) = (self.clone(), Random(seed));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (api, stream) = (api.clone(), stream.unwrap());
                let time = Duration::from_micros(500 + random.below(4_000));
                thread::spawn(move || api.answer(stream, time));
            }
        });
        origin
    }

    /// Responds to a request; a client that was killed may send none.
    fn answer(&self, stream: TcpStream, time: Duration) -> Option<()> {
        let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
        let request = lines.next()?.ok()?;
        while !lines.next()?.ok()?.is_empty() {}
        let target = request.split(' ').nth(1)?.to_owned();
        wait(time);
        let number: u64 = target.rsplit(['=', '/']).next()?.parse().ok()?;
        let count = if number < PAGES { RECORDS } else { 0 };
        let records = (0..count).map(|i| {
            let id = number * RECORDS + i;
            format!(
                r#"{{"id":{id},"text":"record {id}","even":{}}}"#,
                id.is_multiple_of(2)
            )
        });
        let body = format!("[{}]", records.collect::<Vec<_>>().join(","));
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let mut stream = stream;
        stream.write_all((head + &body).as_bytes()).ok()?;
        *self.0.lock().unwrap().entry(target).or_default() += 1;
        Some(())
    }

    /// Responses beyond the first of each page.
    fn repeated(&self) -> u64 {
        let counts = self.0.lock().unwrap();
        counts.values().map(|count| count - 1).sum()
    }
}

/// A source of numbered pages and one of values, with so many requests at a time.
fn write(folder: &Path, origin: &str, requests: u64) -> &'static str {
    let values: Vec<String> = (0..PAGES).map(|value| format!("\"{value}\"")).collect();
    let common = format!(
        "type = \"rest\"\nlimits = {{ concurrency = {requests} }}\n\
         batch = {{ pages = {BATCH} }}\nretry = {{ base_ms = 1, cap_ms = 5 }}\n"
    );
    let text = format!(
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n\
         [[source]]\nname = \"pages\"\nurl = \"{origin}/pages\"\n{common}\
         pagination = {{ type = \"page\", first_page = 0, page_size = {RECORDS} }}\n\
         [[source]]\nname = \"values\"\nurl = \"{origin}/values/{{v}}\"\n{common}\
         for_each = {{ param = \"v\", values = [{}] }}\n",
        values.join(", ")
    );
    pipeline(folder, &text)
}

/// The landing of both sources, without the address of the API and the settings.
fn landed(folder: &Path) -> [Landing; 2] {
    ["pages", "values"].map(|name| {
        let mut landing = landing(&folder.join("out/landing").join(name));
        for entry in &mut landing.entries {
            // They name the port and the number of requests.
            for key in ["config_hash", "settings"] {
                entry.as_object_mut().unwrap().remove(key);
            }
        }
        landing
    })
}

#[test]
fn requests_ahead_land_the_bytes_of_one_request_at_a_time() {
    let lands = [1, 8, 64].map(|requests| {
        let (folder, api) = (tempfile::tempdir().unwrap(), Api::default());
        let file = write(folder.path(), &api.start(requests), requests);
        let report = run(folder.path(), &["ingest", file, "--json"]);
        let report: Value = report.expect(0).json();
        assert_eq!(report["rows"], 2 * PAGES * RECORDS, "{report}");
        assert_eq!(api.repeated(), 0);
        landed(folder.path())
    });
    let [one, others @ ..] = lands;
    assert!(
        one.iter()
            .all(|landing| landing.entries.len() as u64 >= PAGES / BATCH)
    );
    for other in others {
        assert_eq!(other, one);
    }
}

#[test]
fn requests_ahead_that_are_killed_land_the_same_bytes() {
    let undisturbed = tempfile::tempdir().unwrap();
    let file = write(undisturbed.path(), &Api::default().start(1), 1);
    run(undisturbed.path(), &["ingest", file]).expect(0);
    let expected = landed(undisturbed.path());
    let batches = 2 * PAGES / BATCH;
    let mut random = Random(7);
    let (mut killed, mut most) = (0, 0);
    while killed < kills() {
        let (folder, api) = (tempfile::tempdir().unwrap(), Api::default());
        let file = write(folder.path(), &api.start(killed + 2), 8);
        let logs =
            ["pages", "values"].map(|name| folder.path().join(format!("out/landing/{name}/log")));
        let commits = || logs.iter().map(|log| count_files(log)).sum::<u64>();
        let mut here = 0;
        while here < 4 {
            let target = commits() + random.below(batches / 4);
            let child = start(folder.path(), &["ingest", file]);
            let delay = Duration::from_micros(random.below(12_000));
            if !kill_when(child, delay, || commits() >= target) {
                break;
            }
            here += 1;
        }
        killed += here;
        run(folder.path(), &["ingest", file]).expect(0);
        assert_eq!(landed(folder.path()), expected, "after {here} kills");
        // Each kill costs what was on its way or unread, and a batch, of each source.
        let repeated = api.repeated();
        most = most.max(repeated / here.max(1));
        assert!(
            repeated <= here * 2 * (AHEAD + BATCH),
            "{repeated} for {here} kills"
        );
    }
    eprintln!("{killed} kills, at most {most} pages requested again for each");
}
