//! Pages on an HTTP server to a trained model.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use feedline_loader::{Split, TokensConfig};
use feedline_storage::{Store, StoreOptions};
use serde_json::Value;

use crate::{
    inputs::pieces,
    support::{Random, count_files, files, kill_when, pipeline, run, serve, shared_data, start},
};

/// Pages of a server, by path.
pub(crate) type Pages = BTreeMap<String, Vec<u8>>;

/// A server on loopback; what it does not have is absent.
pub(crate) struct Site {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
}

impl Site {
    fn start(pages: Pages) -> Self {
        Self::of(|_| pages)
    }

    /// A server of the pages that `make` makes, given the URL of the first one.
    pub(crate) fn of(make: impl FnOnce(&str) -> Pages) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let pages = make(&format!("http://127.0.0.1:{port}/"));
        let (asked, stop) = (
            Arc::<Mutex<Vec<String>>>::default(),
            Arc::<AtomicBool>::default(),
        );
        let (seen, over) = (Arc::clone(&asked), Arc::clone(&stop));
        thread::spawn(move || {
            for socket in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                // A client that was killed leaves its connection.
                if let Ok(path) = socket.and_then(|socket| answer(socket, &pages)) {
                    seen.lock().unwrap().push(path);
                }
            }
        });
        Self { port, asked, stop }
    }

    /// URL of its first page.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Paths that it was asked for.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

fn answer(socket: TcpStream, pages: &Pages) -> std::io::Result<String> {
    let mut reader = BufReader::new(&socket);
    let (mut path, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line)? > 2 {
        if path.is_empty() {
            path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        }
        line.clear();
    }
    let kind = match path.rsplit_once('.') {
        Some((_, "txt")) => "text/plain",
        Some((_, "xml")) => "application/xml",
        Some((_, "zip")) => "application/zip",
        _ => "text/html",
    };
    let (status, body) = match pages.get(&path) {
        Some(body) => ("200 OK", body.as_slice()),
        None => ("404 Not Found", b"".as_slice()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut socket = &socket;
    socket.write_all(head.as_bytes())?;
    socket.write_all(body)?;
    Ok(path)
}

/// A list of links to pages.
fn index<'a>(paths: impl Iterator<Item = &'a String>) -> Vec<u8> {
    let links: String = paths
        .map(|path| format!("<li><a href=\"{path}\">{path}</a></li>"))
        .collect();
    format!("<html><head><title>All articles</title></head><body><ul>{links}</ul></body></html>")
        .into()
}

const NOUNS: [&str; 8] = [
    "river", "garden", "harbour", "market", "library", "bridge", "museum", "station",
];
const VERBS: [&str; 6] = ["opened", "closed", "grew", "moved", "changed", "survived"];

/// An article of made-up sentences.
fn made_up(number: u64) -> String {
    let mut random = Random(number);
    let mut pick =
        |words: &[&'static str]| words[usize::try_from(random.below(words.len() as u64)).unwrap()];
    let mut text = String::new();
    for _ in 0..4 {
        text += "<p>";
        for _ in 0..6 {
            text += &format!(
                "The {} near the {} {} before the {} {}. ",
                pick(&NOUNS),
                pick(&NOUNS),
                pick(&VERBS),
                pick(&NOUNS),
                pick(&VERBS)
            );
        }
        text += "</p>";
    }
    format!(
        "<!doctype html><html lang=\"en\"><head><title>Story {number}</title></head><body><nav><a href=\"/\">Home</a></nav>\
         <article><h1>Story {number}</h1>{text}</article><footer>All rights reserved</footer></body></html>"
    )
}

/// Runs the example on a site, and sees that its model learns. The same once more asks for nothing.
fn run_example(site: &Site, further: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/web/pages.toml");
    let url = format!("source.0.url={}", site.url());
    let mut arguments = vec!["run", example.to_str().unwrap(), "--json", "--set", &url];
    arguments.extend(["--set", "source.0.crawl.delay_ms=0"]);
    arguments.extend(further.iter().flat_map(|setting| ["--set", setting]));
    let report = run(folder.path(), &arguments).expect(0).json();
    let asked = site.asked();
    assert_conserved(
        &report["dataset"],
        &folder.path().join("feedline-data/pages/dataset"),
    );
    let mut once = asked.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), asked.len(), "every URL is asked for once");
    let again = run(folder.path(), &arguments).expect(0).json();
    assert_eq!(again["dataset"]["up_to_date"], true);
    assert_eq!(site.asked().len(), asked.len());
    assert_learnt(&report, &epochs(folder.path()));
    report
}

/// Every token is read once, and every row is accounted for.
fn assert_conserved(report: &Value, folder: &Path) {
    let dataset = Store::open(folder.to_str().unwrap(), &StoreOptions::default()).unwrap();
    for (split, name) in Split::ALL.into_iter().zip(["train", "validation", "test"]) {
        // Rows that hold the longest document.
        let read: u64 = pieces(&dataset, split, TokensConfig::new(40_000))
            .values()
            .sum();
        assert_eq!(report["tokens"][name].as_u64(), Some(read), "{name}");
    }
    let count = |key: &str| report[key].as_u64().unwrap();
    let filtered: u64 = report["filtered"]
        .as_object()
        .unwrap()
        .values()
        .filter_map(Value::as_u64)
        .sum();
    let kept = count("train") + count("validation") + count("test");
    assert_eq!(
        count("rows_in"),
        kept + filtered + count("duplicates") + count("rejected"),
        "{report}"
    );
}

/// Losses of training by epoch.
fn epochs(folder: &Path) -> Vec<f64> {
    let metrics = files(folder)
        .into_iter()
        .find(|(path, _)| path.ends_with("metrics.jsonl"));
    let metrics = String::from_utf8(metrics.unwrap().1).unwrap();
    let lines = metrics
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .filter_map(|line| line["train_loss"].as_f64())
        .collect()
}

/// The loss fell, and the model is better than one that knows nothing but how often each token comes.
fn assert_learnt(report: &Value, epochs: &[f64]) {
    let loss = |part: &str| report["train"][part]["cross_entropy"].as_f64().unwrap();
    assert!(
        epochs.len() > 1 && epochs.windows(2).all(|pair| pair[1] < pair[0]),
        "{epochs:?}"
    );
    assert!(loss("test") < loss("baseline"), "{}", report["train"]);
    eprintln!(
        "losses {epochs:.3?}, test {:.3}, baseline {:.3}",
        loss("test"),
        loss("baseline")
    );
}

#[test]
fn a_site_becomes_a_trained_transformer() {
    let mut pages: Pages = (0..120)
        .map(|n| (format!("/articles/{n}.html"), made_up(n).into()))
        .collect();
    // Copies of the first ten with another title and an afterthought.
    for n in 0..10 {
        let copy = made_up(n).replace(
            "</article>",
            "<p>This story was told before, by somebody else.</p></article>",
        );
        pages.insert(format!("/articles/copy-{n}.html"), copy.into());
    }
    let listed = index(pages.keys());
    pages.insert("/".into(), listed);
    pages.insert("/private.html".into(), made_up(777).into());
    pages.insert(
        "/robots.txt".into(),
        b"User-agent: *\nDisallow: /private".to_vec(),
    );
    let site = Site::start(pages);
    let report = run_example(&site, &[]);
    let source = &report["ingest"]["sources"][0];
    assert_eq!(
        (&source["rows"], &source["rejected"]),
        (&130.into(), &0.into())
    );
    assert_eq!(source["skipped"]["links_only"], 1);
    let near = &report["dataset"]["near_dup"];
    assert_eq!(
        report["dataset"]["filtered"]["near_duplicate"], 10,
        "{near}"
    );
    let tokens = &report["dataset"]["tokens"];
    assert!(tokens["train"].as_u64().unwrap() > 10_000, "{tokens}");
}

/// Paths of the pages of the shared data.
fn shared_pages() -> Option<Vec<PathBuf>> {
    let articles = shared_data("html/article_extraction/html")?;
    let readability = shared_data("html/readability")?;
    let mut found: Vec<PathBuf> = fs::read_dir(articles)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    let folders = fs::read_dir(readability)
        .unwrap()
        .map(|e| e.unwrap().path());
    found.extend(
        folders
            .filter(|f| f.is_dir())
            .map(|f| f.join("source.html.gz")),
    );
    found.sort();
    Some(found)
}

#[test]
fn real_pages_become_a_trained_transformer() {
    let Some(paths) = shared_pages() else {
        return;
    };
    let mut pages = Pages::new();
    for (number, path) in paths.iter().enumerate() {
        let mut page = String::new();
        let file = fs::File::open(path).unwrap();
        flate2::read::GzDecoder::new(file)
            .read_to_string(&mut page)
            .unwrap();
        // The same page under another URL: its own metadata shows that it is the same.
        if number < 5 {
            pages.insert(
                format!("/articles/{number:03}-again.html"),
                page.clone().into(),
            );
        }
        // The same story, with a few words more where its paragraphs end.
        if (5..15).contains(&number) {
            let more = "</p><p>This was first told by somebody else.</p>";
            let copy = page.replacen("</p>", more, 6);
            pages.insert(format!("/articles/{number:03}-copy.html"), copy.into());
        }
        pages.insert(format!("/articles/{number:03}.html"), page.into());
    }
    assert_eq!(pages.len(), 70 + 24 + 5 + 10);
    let listed = index(pages.keys());
    pages.insert("/".into(), listed);
    let site = Site::start(pages);
    let settings = [
        "source.0.crawl.depth=1",
        "train.epochs=2",
        "train.batch_size=32",
    ];
    let report = run_example(&site, &settings);
    let source = &report["ingest"]["sources"][0];
    let count = |key: &str| source[key].as_u64().unwrap();
    // Some pages ask not to be kept; all others are.
    let noindex = source["skipped"]["noindex"].as_u64().unwrap();
    assert_eq!(
        (count("pages"), count("rejected"), noindex),
        (110, 0, 3),
        "{source}"
    );
    assert_eq!(
        count("rows") + count("duplicates") + noindex,
        109,
        "{source}"
    );
    // Pages of equal text at several addresses all land, each with the address of its request.
    assert_eq!(count("duplicates"), 0, "{source}");
    let near = &report["dataset"]["near_dup"];
    assert!(near["copies"].as_u64().unwrap() >= 5, "{near}");
    assert_eq!(
        report["dataset"]["filtered"]["near_duplicate"],
        near["copies"]
    );
    eprintln!("{source:#}\n{near:#}");
}

#[test]
fn a_missing_sitemap_is_logged_and_reported_by_each_run() {
    let site = Site::start(Pages::from([("/".to_owned(), made_up(1).into())]));
    let config = format!(
        "[pipeline]\nname = \"crawl\"\nroot = \"out\"\n[[source]]\nname = \"site\"\ntype = \"html\"\nurl = \"{0}\"\n\
         crawl = {{ delay_ms = 0, refresh = \"if_changed\", sitemaps = [\"{0}map.xml\"] }}\n",
        site.url()
    );
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(folder.path(), &config);
    for _ in 0..2 {
        let ended = run(folder.path(), &["ingest", file, "--json"]).expect(0);
        let logged = ended.stderr.lines();
        let logged = logged.filter(|line| line.contains("map.xml` does not exist"));
        assert_eq!(logged.count(), 1, "{}", ended.stderr);
        let report = ended.json();
        let mut warnings = report["sources"][0]["warnings"].as_array().unwrap().iter();
        assert!(
            warnings.any(|warning| warning["code"] == "missing_sitemap"),
            "{report}"
        );
    }
}

#[test]
fn a_page_that_failed_is_counted_in_reports_and_lands_in_a_later_run() {
    let is_down = Arc::new(AtomicBool::new(true));
    let down = Arc::clone(&is_down);
    let origin = serve(move |target| {
        let body = match target {
            "/" => made_up(0) + "<a href=\"/1\">1</a>",
            "/1" if !down.load(Ordering::SeqCst) => made_up(1),
            "/1" => return ("503 Busy", String::new(), String::new()),
            _ => return ("404 Not Found", String::new(), String::new()),
        };
        ("200 OK", "Content-Type: text/html\r\n".to_owned(), body)
    });
    let config = format!(
        "[pipeline]\nname = \"crawl\"\nroot = \"out\"\n[[source]]\nname = \"site\"\ntype = \"html\"\nurl = \"{origin}/\"\n\
         crawl = {{ delay_ms = 0 }}\nretry = {{ max_tries = 1 }}\ncontract = {{ max_reject_fraction = 1.0 }}\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(folder.path(), &config);
    let ingest = || {
        let ended = run(folder.path(), &["ingest", file, "--json"]).expect(0);
        ended.json()["sources"][0].clone()
    };
    let first = ingest();
    assert_eq!(first["status"], "partial", "{first}");
    assert_eq!(first["rows"], 1, "{first}");
    assert_eq!(first["failed_pages"], 1, "{first}");
    let mut warnings = first["warnings"].as_array().unwrap().iter();
    assert!(
        warnings.any(|warning| warning["code"] == "pages_failed"),
        "{first}"
    );
    let status = run(folder.path(), &["ingest", "status", file]).expect(0);
    for part in ["requests 1 failed page again", "the last request of 1 page"] {
        assert!(status.stdout.contains(part), "{}", status.stdout);
    }
    is_down.store(false, Ordering::SeqCst);
    let second = ingest();
    assert_eq!(second["status"], "complete", "{second}");
    assert_eq!(second["rows"], 2, "{second}");
    assert_eq!(second["failed_pages"], Value::Null, "{second}");
}

const KILLS: u64 = 12;

#[test]
fn a_crawl_killed_at_twelve_points_lands_what_an_undisturbed_one_lands() {
    let mut pages: Pages = (0..150)
        .map(|n: u64| {
            let next: Vec<String> = (1..=3).map(|i| format!("/{}", (n * 2 + i) % 150)).collect();
            let links = String::from_utf8(index(next.iter())).unwrap();
            (format!("/{n}"), (made_up(n) + &links).into())
        })
        .collect();
    pages.insert("/".into(), index(["/0".to_owned()].iter()));
    let site = Site::start(pages);
    let config = format!(
        "[pipeline]\nname = \"crawl\"\nroot = \"out\"\n[[source]]\nname = \"site\"\ntype = \"html\"\nurl = \"{}\"\n\
         crawl = {{ delay_ms = 0, depth = 20 }}\nbatch = {{ pages = 5 }}\n",
        site.url()
    );
    let undisturbed = tempfile::tempdir().unwrap();
    let report = run(
        undisturbed.path(),
        &["ingest", pipeline(undisturbed.path(), &config), "--json"],
    );
    let report = report.expect(0).json();
    let batches = report["batches"].as_u64().unwrap();
    assert_eq!(
        (report["rows"].as_u64(), batches > 2 * KILLS),
        (Some(151), true),
        "{report}"
    );
    let expected = landed(undisturbed.path());

    let killed = tempfile::tempdir().unwrap();
    let file = pipeline(killed.path(), &config);
    let log = killed.path().join("out/landing/site/log");
    let mut random = Random(5);
    for kill in 0..KILLS {
        let target = count_files(&log) + 1 + random.below(batches / KILLS - 1);
        let delay = Duration::from_micros(random.below(15_000));
        let child = start(killed.path(), &["ingest", file]);
        if !kill_when(child, delay, || count_files(&log) >= target) {
            // On a busy machine the kills come late, and the crawl is over before the last ones.
            assert!(kill > KILLS / 2, "over before kill {kill}");
            break;
        }
    }
    run(killed.path(), &["ingest", file]).expect(0);
    assert!(
        landed(killed.path()) == expected,
        "what landed differs after {KILLS} kills"
    );
}

/// Data, rejects and frontier files that the log names, and its entries without what names a process.
fn landed(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let all = files(&folder.join("out/landing/site"));
    let mut named = String::new();
    let mut found = Vec::new();
    for (path, bytes) in all.iter().filter(|(path, _)| path.starts_with("log/")) {
        let mut entry: Value = serde_json::from_slice(bytes).unwrap();
        for key in ["run_id", "batch_id", "epoch", "prev_hash"] {
            entry.as_object_mut().unwrap().remove(key);
        }
        named += &entry.to_string();
        found.push((path.clone(), entry.to_string().into_bytes()));
    }
    found.extend(
        all.into_iter()
            .filter(|(path, _)| named.contains(path.as_str())),
    );
    found
}
