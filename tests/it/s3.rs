//! The whole line on an S3-compatible server.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Child, Stdio},
    time::Duration,
};

use crate::support::{Random, feedline, finish, pipeline, python, wait};

/// A moto server on a free loopback port; ends with the value.
pub(crate) struct S3 {
    process: Child,
    pub(crate) port: u16,
}

impl S3 {
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
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
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
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            // A bucket is made by a plain PUT; the server does not check signatures.
            stream.write_all(b"PUT /lake HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
            let mut status = String::new();
            let mut answer = BufReader::new(stream);
            answer.read_line(&mut status).unwrap();
            answer.read_to_end(&mut Vec::new()).unwrap();
            assert!(status.contains("200"), "{status}");
            return Some(s3);
        }
        wait(Duration::from_millis(100));
    }
    panic!("the S3 server did not start within a minute");
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
        let mut command = feedline(folder.path());
        command.args(arguments);
        command
            .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", s3.port))
            .env("AWS_ALLOW_HTTP", "true");
        command
            .env("AWS_ACCESS_KEY_ID", "id")
            .env("AWS_SECRET_ACCESS_KEY", "canary-of-a-secret")
            .env("AWS_REGION", "us-east-1");
        let finished = finish(command.output().unwrap());
        assert!(!format!("{finished:?}").contains("canary"), "{finished:#?}");
        finished
    };
    let remote = run(&["run", file, "--json"]).expect(3).json();
    assert_eq!(remote["dataset"]["url"], "s3://lake/some/prefix/dataset");
    run(&["shards", "verify", "s3://lake/some/prefix/dataset"]).expect(0);
    run(&["ingest", file, "--json"]).expect(3);

    let local = run(&["run", file, "--json", "--set", "pipeline.root=out"])
        .expect(3)
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
        let mut command = feedline(folder.path());
        command.args(["ingest", file, "--json", "--set", "source.0.batch.rows=100"]);
        command
            .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", s3.port))
            .env("AWS_ALLOW_HTTP", "true");
        command
            .env("AWS_ACCESS_KEY_ID", "id")
            .env("AWS_SECRET_ACCESS_KEY", "key")
            .env("AWS_REGION", "us-east-1");
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
    let killed = finish(command().output().unwrap()).expect(3).json();
    let plain = finish(
        command()
            .args(["--set", "pipeline.root=out"])
            .output()
            .unwrap(),
    )
    .expect(3)
    .json();
    for key in ["rows", "duplicates", "rejected", "batches"] {
        assert_eq!(killed[key], plain[key], "{key}");
    }
}
