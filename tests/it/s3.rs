//! The whole line on an S3-compatible server.

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use feedline_testkit::free_port::free_port;

use crate::support::{Random, feedline, finish, pipeline, python, serve, wait};

/// A moto server on a free loopback port; ends with the value.
pub(crate) struct S3 {
    process: Child,
    pub(crate) port: u16,
}

impl S3 {
    /// Makes a bucket, or an object `bucket/key`, whatever its key; the server does not check signatures.
    fn put(&self, path: &str, content: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let request = format!(
            "PUT /{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{content}",
            content.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut status = String::new();
        let mut answer = BufReader::new(stream);
        answer.read_line(&mut status).unwrap();
        answer.read_to_end(&mut Vec::new()).unwrap();
        assert!(status.contains("200"), "{status}");
    }

    /// The last object with this text in its name, as far as one page of a listing shows them.
    pub(crate) fn last(&self, text: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let request =
            "GET /lake?list-type=2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let keys = answer.split("<Key>").skip(1);
        let keys = keys.filter_map(|rest| rest.split('<').next());
        keys.filter(|key| key.contains(text))
            .map(str::to_owned)
            .last()
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.process
            .kill()
            .and_then(|()| self.process.wait())
            .unwrap();
    }
}

pub(crate) fn start_s3() -> Option<S3> {
    let mut command = python("moto.server")?;
    let port = free_port();
    command.args([
        "-m",
        "moto.server",
        "-H",
        "127.0.0.1",
        "-p",
        &port.to_string(),
    ]);
    let process = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let s3 = S3 { process, port };
    for _ in 0..600 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            s3.put("lake", "");
            return Some(s3);
        }
        wait(Duration::from_millis(100));
    }
    panic!("the S3 server did not start within a minute");
}

/// The program with credentials of the S3 server on `port`.
fn with_s3(folder: &Path, port: u16) -> Command {
    let mut command = feedline(folder);
    command
        .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"))
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_ACCESS_KEY_ID", "id")
        .env("AWS_SECRET_ACCESS_KEY", "canary-of-a-secret")
        .env("AWS_REGION", "us-east-1");
    command
}

/// Forwards connections to `port` and counts the parts that clients upload. Returns its own port.
fn count_parts(port: u16, parts: &Arc<AtomicU64>) -> u16 {
    const PART: &[u8] = b"?partNumber=";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    let parts = Arc::clone(parts);
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let [mut from, mut to] = [&server, &client].map(|s| s.try_clone().unwrap());
            thread::spawn(move || io::copy(&mut from, &mut to));
            let parts = Arc::clone(&parts);
            thread::spawn(move || {
                let (mut buffer, mut tail) = (vec![0; 64 << 10], Vec::new());
                while let Ok(count @ 1..) = client.read(&mut buffer) {
                    tail.extend_from_slice(&buffer[..count]);
                    let found = tail
                        .windows(PART.len())
                        .filter(|part| *part == PART)
                        .count();
                    parts.fetch_add(found.try_into().unwrap(), Ordering::Relaxed);
                    tail.drain(..tail.len().saturating_sub(PART.len() - 1));
                    if server.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    own
}

const PIPELINE: &str = r#"
[pipeline]
name = "lake"
root = "s3://lake/some/prefix"

[[source]]
name = "market"
type = "rest"
url = "demo://market?seed=5&rows=3000&page_size=200"
records = "data.items"
pagination = { type = "cursor", cursor_path = "paging.next_cursor" }
batch = { rows = 500 }
retry = { base_ms = 1, cap_ms = 5 }

[dataset]
target = "next_return"
drop = ["id"]
split = { key = ["id"] }
shards = { block_bytes = "16 KiB" }

[train]
model = { hidden = [32] }
epochs = 2
"#;

#[test]
fn the_whole_line_runs_on_an_s3_bucket_and_leaves_the_bytes_of_a_local_run() {
    let Some(s3) = start_s3() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(folder.path(), PIPELINE);
    let run = |arguments: &[&str]| {
        let mut command = with_s3(folder.path(), s3.port);
        let finished = finish(command.args(arguments).output().unwrap());
        assert!(!format!("{finished:?}").contains("canary"), "{finished:#?}");
        finished
    };
    let remote = run(&["run", file, "--json"]).expect(0).json();
    assert_eq!(remote["dataset"]["url"], "s3://lake/some/prefix/dataset");
    run(&["shards", "verify", "s3://lake/some/prefix/dataset"]).expect(0);
    run(&["ingest", file, "--json"]).expect(0);

    let local = run(&["run", file, "--json", "--set", "pipeline.root=out"])
        .expect(0)
        .json();
    assert_eq!(
        remote["dataset"]["fingerprint"].as_str().map(str::len),
        Some(32)
    );
    for key in ["train", "validation", "test", "duplicates"] {
        assert_eq!(remote["dataset"][key], local["dataset"][key], "{key}");
    }
    assert_eq!(remote["train"]["test"], local["train"]["test"]);
}

#[test]
fn a_process_killed_while_it_commits_to_s3_loses_and_doubles_nothing() {
    let Some(s3) = start_s3() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(folder.path(), PIPELINE);
    let command = || {
        let mut command = with_s3(folder.path(), s3.port);
        command.args(["ingest", file, "--json", "--set", "source.0.batch.rows=100"]);
        command
    };
    let mut random = Random(4);
    for _ in 0..12 {
        let mut child = command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait(Duration::from_millis(random.below(400)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let killed = finish(command().output().unwrap()).expect(0).json();
    let plain = finish(
        command()
            .args(["--set", "pipeline.root=out"])
            .output()
            .unwrap(),
    )
    .expect(0)
    .json();
    for key in ["rows", "duplicates", "rejected", "batches"] {
        assert_eq!(killed[key], plain[key], "{key}");
    }
}

#[test]
fn a_large_file_is_uploaded_to_s3_in_parts_and_is_read_back_intact() {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let Some(s3) = start_s3() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(11);
    let mut table = String::from("id,text\n");
    for id in 0..7_000 {
        let mut letter = || char::from(LETTERS[usize::try_from(random.below(64)).unwrap()]);
        let text: String = (0..4_000).map(|_| letter()).collect();
        table.push_str(&format!("{id},{text}\n"));
    }
    fs::write(folder.path().join("large.csv"), table).unwrap();
    let file = pipeline(
        folder.path(),
        r#"
[pipeline]
name = "large"
root = "s3://lake/large"

[[source]]
name = "table"
type = "files"
url = "large.csv"
"#,
    );
    let parts = Arc::new(AtomicU64::new(0));
    let port = count_parts(s3.port, &parts);
    let run = |arguments: &[&str]| {
        let mut command = with_s3(folder.path(), port);
        finish(command.args(arguments).output().unwrap()).expect(0)
    };
    let report = run(&["ingest", file, "--json"]).json();
    assert_eq!(
        (&report["rows"], &report["batches"]),
        (&7_000.into(), &1.into())
    );
    let uploaded = parts.load(Ordering::Relaxed);
    assert!(uploaded >= 3, "{uploaded}");
    run(&["ingest", "verify", file]);
}

#[test]
fn a_bucket_that_does_not_exist_is_named_by_commands_that_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let origin = serve(|_| {
        let body = "<Error><Code>NoSuchBucket</Code></Error>".to_owned();
        ("404 Not Found", String::new(), body)
    });
    let port = origin.rsplit(':').next().unwrap().parse().unwrap();
    fs::write(folder.path().join("numbers.csv"), "size,price\n1,2\n").unwrap();
    let file = pipeline(
        folder.path(),
        r#"
[pipeline]
name = "remote"
root = "s3://nobucket/remote"
[[source]]
name = "numbers"
type = "files"
url = "numbers.csv"
[dataset]
target = "price"
[train]
epochs = 1
"#,
    );
    let export = ["export", file, "--to", "out", "--format", "parquet"];
    for arguments in [
        &["check", file][..],
        &["shards", "build", file],
        &["train", file],
        &["runs", "list", file],
        &export,
    ] {
        let mut command = with_s3(folder.path(), port);
        let failed = finish(command.args(arguments).output().unwrap()).expect(1);
        for part in [
            "`s3://nobucket/",
            "no such bucket or container; create it, or correct the URL",
        ] {
            assert!(failed.stderr.contains(part), "{arguments:?} {failed:#?}");
        }
    }
}

#[test]
fn an_object_whose_key_is_no_path_is_read_or_named_in_an_error() {
    let Some(s3) = start_s3() else { return };
    s3.put("roots", "");
    for key in [
        "lake/parts/a.csv",
        "lake/parts//b.csv",
        "lake/dots/a.csv",
        "lake/dots/../b.csv",
        "lake/twice/a.csv",
        "lake/twice/a.csv/",
        "lake/ends/a.csv",
        "lake/ends/b.csv/",
        "lake/own/",
        "lake/own/a.csv",
        "lake/marks/a.csv",
        "roots//a.csv",
    ] {
        s3.put(key, "id\n1\n");
    }
    s3.put("lake/marks/", "");
    s3.put("lake/marks/sub/", "");
    let folder = tempfile::tempdir().unwrap();
    let ingest = |url: &str| {
        let text = format!(
            "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{url}\"\n"
        );
        fs::remove_dir_all(folder.path().join("out")).ok();
        let file = pipeline(folder.path(), &text);
        let mut command = with_s3(folder.path(), s3.port);
        finish(command.args(["ingest", file, "--json"]).output().unwrap())
    };
    let report = ingest("s3://lake/marks/").expect(0).json();
    assert_eq!(report["rows"], 1);
    // Each message names the key, and says to rename the object.
    for (url, part) in [
        (
            "s3://lake/parts/",
            "the key `parts//b.csv` of an object there has an empty part",
        ),
        (
            "s3://lake/parts/**/*.csv",
            "the key `parts//b.csv` of an object",
        ),
        (
            "s3://lake/dots/",
            "the key `dots/../b.csv` of an object there has a part that is",
        ),
        (
            "s3://lake/twice/",
            "two objects there are `twice/a.csv` without and with a `/`",
        ),
        (
            "s3://lake/ends/",
            "cannot read file `s3://lake/ends/b.csv`: it was found, and its store has no object with this key",
        ),
        (
            "s3://lake/own/",
            "the key `own/` of an object there ends with a `/`",
        ),
        (
            "s3://roots/",
            "cannot read file `s3://roots/a.csv`: it was found, and its store has no object with this key",
        ),
    ] {
        let failed = ingest(url);
        let shown = format!("{}{}", failed.stdout, failed.stderr);
        assert!(shown.contains(part), "{url}: {failed:#?}");
        assert!(shown.contains("rename"), "{url}: {failed:#?}");
    }
}
