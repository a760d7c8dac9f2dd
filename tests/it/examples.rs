//! Examples of public APIs, against recorded answers of theirs on loopback. Skipped where the shared data is absent.

use std::{
    collections::HashMap,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    sync::mpsc,
};

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::support::{run, serve, shared_data};

/// Headers and body of an answer.
type Recorded = (String, String);

fn text_of(path: &Path) -> String {
    let mut text = String::new();
    GzDecoder::new(fs::File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    text
}

/// Answers by path and query; what was not recorded is not found. `ORIGIN` in an answer is this server.
fn replay(answers: HashMap<String, Recorded>) -> String {
    let (sender, own) = mpsc::channel::<String>();
    let mut origin = None;
    let served = serve(move |target| {
        let origin = origin.get_or_insert_with(|| own.recv().unwrap());
        match answers.get(target) {
            Some((head, body)) => ("200 OK", head.replace("ORIGIN", origin), body.clone()),
            None => ("404 Not Found", String::new(), String::new()),
        }
    });
    sender.send(served.clone()).unwrap();
    served
}

/// The exchanges of a recording by path and query, and the origin they were recorded at.
fn recording(file: &Path) -> HashMap<String, Recorded> {
    let of = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let uri = line["request"]["uri"].as_str().unwrap();
        let path = uri.find("://").unwrap() + 3;
        let path = path + uri[path..].find('/').unwrap();
        let (origin, target) = uri.split_at(path);
        let link = line["response"]["headers"]["Link"][0].as_str();
        let link = link.map(|link| format!("Link: {}\r\n", link.replace(origin, "ORIGIN")));
        let body = line["response"]["body"].as_str().unwrap().to_owned();
        (target.to_owned(), (link.unwrap_or_default(), body))
    };
    text_of(file).lines().map(of).collect()
}

/// Ingests an example from a replay of `answers`, whose first page is at `target`, twice: nothing comes of the second run.
fn check(example: &str, answers: HashMap<String, Recorded>, target: &str, rows: u64) -> PathBuf {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(example);
    let origin = replay(answers);
    let folder = tempfile::tempdir().unwrap().keep();
    let url = format!("source.0.url={origin}{target}");
    let arguments = [
        "ingest",
        file.to_str().unwrap(),
        "--set",
        &url,
        "--set",
        "pipeline.root=out",
        "--json",
    ];
    for _ in 0..2 {
        let report = run(&folder, &arguments).expect(0).json();
        assert_eq!(
            (&report["rows"], &report["rejected"]),
            (&rows.into(), &0.into()),
            "{report}"
        );
        assert_eq!(report["sources"][0]["status"], "complete", "{report}");
    }
    folder
}

#[test]
fn rates_of_a_central_bank_are_asked_from_a_day_on() {
    let Some(data) = shared_data("json/recordings") else {
        return;
    };
    let mut answers = recording(&data.join("fx_boc.jsonl.gz"));
    let path = "/valet/observations/group/FX_RATES_DAILY/json";
    let (_, body) = answers[&format!("{path}?start_date=2026-03-12")].clone();
    let days = serde_json::from_str::<Value>(&body).unwrap()["observations"]
        .as_array()
        .unwrap()
        .clone();
    // The second run asks from a week before the newest day on.
    let newest = days
        .iter()
        .map(|day| day["d"].as_str().unwrap())
        .max()
        .unwrap();
    assert_eq!(newest, "2026-03-18");
    answers.insert(
        format!("{path}?start_date=2026-03-11"),
        (String::new(), body),
    );
    let folder = check("rates.toml", answers, path, days.len() as u64);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn issues_are_followed_along_their_links() {
    let Some(data) = shared_data("json/recordings") else {
        return;
    };
    let mut answers = recording(&data.join("github3py_repository_issues_state_all.jsonl.gz"));
    let target = "/repos/betamaxpy/betamax/issues?state=all&per_page=100";
    let pages = [
        "/repos/betamaxpy/betamax/issues?state=all&per_page=100",
        "/repositories/11439734/issues?state=all&per_page=100&page=2",
    ];
    let issues: Vec<Value> = pages
        .iter()
        .flat_map(|page| serde_json::from_str::<Vec<Value>>(&answers[*page].1).unwrap())
        .collect();
    let newest = issues
        .iter()
        .map(|issue| issue["updated_at"].as_str().unwrap())
        .max()
        .unwrap();
    // An hour before, as the second run asks: the newest issue comes once more.
    let hour: u32 = newest[11..13].parse().unwrap();
    let since = format!("{}{:02}{}", &newest[..11], hour - 1, &newest[13..]).replace(':', "%3A");
    let again: Vec<&Value> = issues
        .iter()
        .filter(|issue| issue["updated_at"] == newest)
        .collect();
    let again = (String::new(), serde_json::to_string(&again).unwrap());
    answers.insert(format!("{target}&since={since}"), again);
    let folder = check("issues.toml", answers, target, issues.len() as u64);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn earthquakes_are_features_of_one_document() {
    let Some(data) = shared_data("json") else {
        return;
    };
    let body = text_of(&data.join("usgs_earthquakes.geojson.gz"));
    let target = "/earthquakes/feed/v1.0/summary/all_week.geojson";
    let answers = HashMap::from([(target.to_owned(), (String::new(), body))]);
    let folder = check("earthquakes.toml", answers, target, 1_707);
    fs::remove_dir_all(folder).unwrap();
}
