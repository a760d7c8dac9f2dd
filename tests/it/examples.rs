//! Examples of public APIs, against their recorded responses on loopback. Skipped where the shared
//! data is absent.

use std::{
    collections::HashMap,
    fs,
    io::{Cursor, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::mpsc,
};

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::{
    pages::{Pages, Site},
    support::{files, run, serve, shared_data},
};

/// Headers and body of a response.
type Recorded = (String, String);

fn text_of(path: &Path) -> String {
    let mut text = String::new();
    GzDecoder::new(fs::File::open(path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    text
}

/// Responses by path and query; a request that was not recorded is not found. `ORIGIN` in a
/// response is this server.
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

fn example_file(example: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("examples")
        .join(example)
}

/// Ingests an example whose first page is at `url` into a folder.
fn ingest(example: &str, url: &str, folder: &Path) -> Value {
    let file = example_file(example);
    let url = format!("source.0.url={url}");
    let arguments = [
        "ingest",
        file.to_str().unwrap(),
        "--set",
        &url,
        "--set",
        "pipeline.root=out",
        "--json",
    ];
    run(folder, &arguments).expect(0).json()
}

/// Ingests an example from a replay of `answers`, whose first page is at `target`, twice: the
/// second run adds nothing.
fn check(example: &str, answers: HashMap<String, Recorded>, target: &str, rows: u64) {
    let origin = replay(answers);
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let report = ingest(example, &format!("{origin}{target}"), folder.path());
        assert_eq!(
            (&report["rows"], &report["rejected"]),
            (&rows.into(), &0.into()),
            "{report}"
        );
        assert_eq!(report["sources"][0]["status"], "complete", "{report}");
    }
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
    check("web/rates.toml", answers, path, days.len() as u64);
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
    check("web/issues.toml", answers, target, issues.len() as u64);
}

#[test]
fn earthquakes_are_features_of_one_document() {
    let Some(data) = shared_data("json") else {
        return;
    };
    let body = text_of(&data.join("usgs_earthquakes.geojson.gz"));
    let target = "/earthquakes/feed/v1.0/summary/all_week.geojson";
    // The week after: an earthquake is measured again, another one is new, and most no longer
    // appear.
    let mut week: Value = serde_json::from_str(&body).unwrap();
    let features = week["features"].as_array_mut().unwrap();
    features.truncate(10);
    features[0]["properties"]["updated"] = 1_900_000_000_000_u64.into();
    features[1]["id"] = "new1".into();
    let weeks = [body.clone(), body, week.to_string()];
    let mut weeks = weeks.into_iter();
    let origin = serve(move |_| ("200 OK", String::new(), weeks.next().unwrap()));
    let folder = tempfile::tempdir().unwrap();
    for (rows, duplicates) in [(1_707, 0), (1_707, 0), (1_709, 8)] {
        let report = ingest(
            "web/earthquakes.toml",
            &format!("{origin}{target}"),
            folder.path(),
        );
        assert_eq!(
            (&report["rows"], &report["duplicates"], &report["rejected"]),
            (&rows.into(), &duplicates.into(), &0.into()),
            "{report}"
        );
    }
}

/// A sitemap, or an index of some.
fn sitemap(element: &str, urls: impl Iterator<Item = String>) -> Vec<u8> {
    let list = if element == "url" {
        "urlset"
    } else {
        "sitemapindex"
    };
    let urls: String = urls
        .map(|url| format!("<{element}><loc>{url}</loc></{element}>"))
        .collect();
    format!(
        "<?xml version=\"1.0\"?><{list} xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">{urls}</{list}>"
    )
    .into()
}

/// There is no recording of the site that the example names: real pages of newspapers replace its
/// news.
#[test]
fn news_are_found_by_their_sitemaps() {
    let Some(data) = shared_data("html/article_extraction/html") else {
        return;
    };
    let mut articles: Vec<PathBuf> = fs::read_dir(data)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    articles.sort();
    assert_eq!(articles.len(), 70);
    let site = Site::of(|origin| {
        let path = |number: usize| format!("government/news/story-{number:02}");
        let whole = |number: usize| format!("{origin}{}", path(number));
        let others = [
            "government/publications/a-form",
            "government/news/withdrawn/old",
        ];
        let others = others.map(|other| format!("{origin}{other}"));
        let robots = format!(
            "User-agent: *\nDisallow: /government/news/withdrawn/\nSitemap: {origin}sitemap.xml\n"
        );
        let mut pages = Pages::from([
            (
                "/".to_owned(),
                b"<html><body>Welcome</body></html>".to_vec(),
            ),
            ("/robots.txt".to_owned(), robots.into_bytes()),
            (
                "/sitemap.xml".to_owned(),
                sitemap(
                    "sitemap",
                    (1..=2).map(|i| format!("{origin}sitemap-{i}.xml")),
                ),
            ),
            (
                "/sitemap-1.xml".to_owned(),
                sitemap("url", (0..40).map(whole).chain(others)),
            ),
            (
                "/sitemap-2.xml".to_owned(),
                sitemap("url", (35..70).map(whole)),
            ),
        ]);
        for (number, article) in articles.iter().enumerate() {
            pages.insert(format!("/{}", path(number)), text_of(article).into_bytes());
        }
        pages
    });
    let folder = tempfile::tempdir().unwrap();
    let file = example_file("web/sitemap.toml");
    let settings = [
        format!("source.0.url={}", site.url()),
        format!("source.0.crawl.sitemaps=['{}robots.txt']", site.url()),
        "source.0.crawl.delay_ms=0".to_owned(),
        "pipeline.root=out".to_owned(),
    ];
    let mut arguments = vec!["ingest", file.to_str().unwrap(), "--json"];
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let report = run(folder.path(), &arguments).expect(0).json();
    let source = &report["sources"][0];
    let noindex = source["skipped"]["noindex"].as_u64().unwrap_or(0);
    assert_eq!(
        source["rows"].as_u64().unwrap() + source["duplicates"].as_u64().unwrap() + noindex,
        70,
        "{source}"
    );
    assert!(noindex <= 3, "{source}");
    assert_eq!(source["skipped"]["robots"], 1, "{source}");
    assert_eq!(source["rejected"], 0, "{source}");
    let asked = site.asked();
    let of = |part: &str| asked.iter().filter(|path| path.contains(part)).count();
    assert_eq!(
        (of("/news/story-"), of("publications"), of("withdrawn")),
        (70, 0, 0),
        "{asked:?}"
    );
    // A later run asks for all of it again, and nothing lands twice.
    let again = run(folder.path(), &arguments).expect(0).json();
    assert_eq!(again["rows"], report["rows"], "{again}");
}

/// A zip archive of one file.
fn zip(name: &str, content: &str) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    writer
        .start_file(name, zip::write::SimpleFileOptions::default())
        .unwrap();
    writer.write_all(content.as_bytes()).unwrap();
    writer.finish().unwrap().into_inner()
}

/// The shared data hold the bank's file as it was in its archive.
#[test]
fn rates_in_an_archive_land_once_and_later_copies_add_what_is_new() {
    let Some(data) = shared_data("timeseries/ecb_eurofxref_hist.csv.gz") else {
        return;
    };
    let csv = text_of(&data);
    let days = csv.lines().count() - 1;
    assert_eq!(days, 6_983);
    let site = Site::of(|_| {
        Pages::from([(
            "/stats/eurofxref/eurofxref-hist.zip".to_owned(),
            zip("eurofxref-hist.csv", &csv),
        )])
    });
    let folder = tempfile::tempdir().unwrap();
    let file = example_file("web/rates-archive.toml");
    let ingest = |url: &str, root: &str| {
        let settings = [
            format!("source.0.url={url}"),
            format!("pipeline.root={root}"),
        ];
        let mut arguments = vec!["ingest", file.to_str().unwrap(), "--json"];
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        run(folder.path(), &arguments).expect(0).json()
    };
    let url = format!("{}stats/eurofxref/eurofxref-hist.zip", site.url());
    for _ in 0..2 {
        let report = ingest(&url, "out");
        assert_eq!(
            (&report["rows"], &report["rejected"]),
            (&days.into(), &0.into()),
            "{report}"
        );
        assert_eq!(report["sources"][0]["status"], "complete", "{report}");
    }

    // A copy of some days ago, and one of today: the newest days come first.
    let mut lines: Vec<&str> = csv.lines().collect();
    let newest: Vec<&str> = lines.drain(1..6).collect();
    assert!(newest[0].starts_with("2026-04-13"), "{newest:?}");
    fs::create_dir(folder.path().join("rates")).unwrap();
    let copies = [
        ("2026-04-02.zip", lines.join("\n")),
        ("2026-04-13.zip", csv.clone()),
    ];
    for ((name, content), rows) in copies.iter().zip([days - 5, days]) {
        let copy = folder.path().join("rates").join(name);
        fs::write(copy, zip("eurofxref-hist.csv", content)).unwrap();
        let report = ingest("rates/*.zip", "copies");
        assert_eq!(report["rows"], rows, "{report}");
    }
}

/// All pipeline files of the folder `examples`, by their paths in it. A file of expectations is none.
fn all_examples() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let is_pipeline = |name: &String| name.ends_with(".toml") && !name.ends_with("-expect.toml");
    let names = files(&folder).into_iter().map(|(name, _)| name);
    names.filter(is_pipeline).collect()
}

#[test]
fn every_example_passes_the_check_that_sends_no_request() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let root = format!("pipeline.root={}", folder.path().display());
    let examples = all_examples();
    assert!(examples.len() > 10, "{examples:?}");
    for name in examples {
        let file = format!("examples/{name}");
        let arguments = ["check", &file, "--offline", "--json", "--set", &root];
        let report = run(checkout, &arguments).expect(0).json();
        assert_eq!(report["problems"], serde_json::json!([]), "{name}");
    }
    assert_eq!(files(folder.path()).len(), 0, "a check writes nothing");
}

#[test]
fn every_example_begins_with_a_sentence_and_the_schema_of_its_keys() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(checkout.join("examples/README.md")).unwrap();
    for (name, content) in files(&checkout.join("examples")) {
        if !name.ends_with(".toml") {
            continue;
        }
        let text = String::from_utf8(content).unwrap();
        let mut lines = text.lines();
        let sentence = lines.next().unwrap();
        assert!(
            sentence.starts_with("# ") && sentence.ends_with('.'),
            "{name}: {sentence}"
        );
        let schema = lines.next().unwrap().strip_prefix("#:schema ");
        let schema = schema.unwrap_or_else(|| panic!("{name}: no schema in the second line"));
        let example = checkout.join("examples").join(&name);
        let file = example.parent().unwrap().join(schema);
        let wanted = match name.ends_with("-expect.toml") {
            true => "schemas/json/expect.schema.json",
            false => "schemas/json/pipeline.schema.json",
        };
        assert_eq!(
            file.canonicalize().unwrap(),
            checkout.join(wanted).canonicalize().unwrap(),
            "{name}"
        );
        assert!(readme.contains(&format!("]({name})")), "{name}");
    }
}
