//! Starting the binary, waiting without sleeping, finding data and Python.

use std::{
    env, fs,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde_json::Value;

/// A command of the binary under test, run in `folder`.
pub(crate) fn feedline(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feedline"));
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .env("FEEDLINE_LOG", "warn");
    command
}

/// Output and exit status of a finished command.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    /// The last line of standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        let line = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: no JSON in {self:#?}"))
    }

    /// Asserts the exit code.
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }
}

/// Runs `arguments` to the end.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Finished {
    finish(feedline(folder).args(arguments).output().unwrap())
}

pub(crate) fn finish(output: Output) -> Finished {
    Finished {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Starts `arguments` with its output thrown away.
pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Child {
    feedline(folder)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A response to a request: status, further lines of the head, body.
pub(crate) type Answer = (&'static str, String, String);

/// Serves HTTP on loopback, one request a connection: `answer` is given the target of each. Returns
/// the origin.
pub(crate) fn serve(mut answer: impl FnMut(&str) -> Answer + Send + 'static) -> String {
    serve_bytes(move |target| {
        let (status, head, body) = answer(target);
        let answer = format!(
            "HTTP/1.1 {status}\r\n{head}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        answer.into_bytes()
    })
}

/// Serves, like [`serve`], responses whose bytes need not be text.
pub(crate) fn serve_bytes(mut answer: impl FnMut(&str) -> Vec<u8> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A client that gave up, or was killed, before it sent its request has no target.
            let Ok(Some(target)) = read_target(&stream) else {
                continue;
            };
            let answer = answer(&target);
            // A client that has what it wants may be gone.
            let _sent = stream.write_all(&answer);
        }
    });
    origin
}

/// Reads a request and returns its target.
fn read_target(stream: &TcpStream) -> io::Result<Option<String>> {
    let mut reader = BufReader::new(stream);
    let (mut request, mut header) = (String::new(), String::new());
    reader.read_line(&mut request)?;
    while reader.read_line(&mut header)? > 2 {
        header.clear();
    }
    Ok(request.split(' ').nth(1).map(str::to_owned))
}

/// Kills `child` with SIGKILL once `ready` holds and `delay` has passed, or sees it end. Returns whether it was killed.
pub(crate) fn kill_when(
    mut child: Child,
    delay: Duration,
    mut ready: impl FnMut() -> bool,
) -> bool {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "ended by itself with {status}");
            return false;
        }
        if ready() {
            break;
        }
        wait(Duration::from_millis(1));
    }
    wait(delay);
    child.kill().unwrap();
    !child.wait().unwrap().success()
}

/// Lets other processes work for `time`.
pub(crate) fn wait(time: Duration) {
    let (_sender, receiver) = mpsc::channel::<()>();
    assert!(receiver.recv_timeout(time).is_err());
}

/// A seeded sequence of numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// Number of files in a folder; a missing folder has none.
pub(crate) fn count_files(folder: &Path) -> u64 {
    let names =
        fs::read_dir(folder).map(|entries| entries.filter_map(Result::ok).map(|e| e.file_name()));
    let count = names.map(|n| {
        n.filter(|n| !n.to_string_lossy().starts_with(".tmp-"))
            .count()
    });
    count.unwrap_or(0).try_into().unwrap()
}

/// All files below a folder by relative path, with their bytes; temporary files do not count.
pub(crate) fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    fn walk(folder: &Path, prefix: &str, found: &mut Vec<(String, Vec<u8>)>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with(".tmp-") {
                continue;
            }
            let path = if prefix.is_empty() {
                name
            } else {
                format!("{prefix}/{name}")
            };
            if entry.path().is_dir() {
                walk(&entry.path(), &path, found);
            } else if let Ok(bytes) = fs::read(entry.path()) {
                // A file that a running process has just removed is no longer there.
                found.push((path, bytes));
            }
        }
    }
    let mut found = Vec::new();
    walk(folder, "", &mut found);
    found.sort();
    found
}

/// A file of the shared data folder, or `None` (with a message) where the folder is absent.
pub(crate) fn shared_data(path: &str) -> Option<PathBuf> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shared/data")
        .join(path);
    if file.exists() {
        return Some(file);
    }
    eprintln!("skipped: the data file `{path}` is not here");
    None
}

/// A Python with `modules`, or `None` (with a message). In CI it must be there.
pub(crate) fn python(modules: &str) -> Option<Command> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment names the Python that tests use"
    )]
    let (path, ci) = (
        env::var("FEEDLINE_PYTHON").unwrap_or_else(|_| "python3".into()),
        env::var("CI").is_ok(),
    );
    let works = Command::new(&path)
        .arg("-c")
        .arg(format!("import {modules}"))
        .output();
    if works.is_ok_and(|o| o.status.success()) {
        return Some(Command::new(path));
    }
    assert!(
        !ci,
        "CI must have a Python with {modules}: see tests/requirements.txt"
    );
    eprintln!(
        "skipped: no Python with {modules}; install tests/requirements.txt and set FEEDLINE_PYTHON"
    );
    None
}

/// Node.js, and the folder of its packages, if `package` is among them; or `None` (with a message).
/// In CI it must be there.
pub(crate) fn node(package: &str) -> Option<(Command, PathBuf)> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment names the packages that tests use"
    )]
    let (folder, ci) = (env::var("FEEDLINE_NODE").ok(), env::var("CI").is_ok());
    let packages = folder.map(|folder| Path::new(&folder).join("node_modules"));
    let packages = packages.filter(|packages| packages.join(package).is_dir());
    let works = Command::new("node").arg("--version").output();
    let is_there = works.is_ok_and(|output| output.status.success());
    if let Some(packages) = packages.filter(|_| is_there) {
        return Some((Command::new("node"), packages));
    }
    assert!(
        !ci,
        "CI must have Node.js with {package}: see tests/node/package.json"
    );
    eprintln!(
        "skipped: no Node.js with {package}; run `npm ci` beside a copy of tests/node/package.json and set FEEDLINE_NODE to that folder"
    );
    None
}

/// The Python with PyTorch that `FEEDLINE_TORCH_PYTHON` names, or `None` (with a message). It brings several GB, so CI need
/// not have it.
pub(crate) fn python_with_torch() -> Option<Command> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment says which Python tests use"
    )]
    let path = env::var("FEEDLINE_TORCH_PYTHON").ok();
    if path.is_none() {
        eprintln!("skipped: `FEEDLINE_TORCH_PYTHON` names no Python with PyTorch");
    }
    path.map(Command::new)
}

/// Writes a pipeline file into `folder` and returns its name.
pub(crate) fn pipeline(folder: &Path, text: &str) -> &'static str {
    fs::write(folder.join("pipeline.toml"), text).unwrap();
    "pipeline.toml"
}

/// A folder with a dataset of so many rows of `a`, `b` and `y`, which is `target` of both, and the name of the pipeline
/// file in it. The file ends with `sections`; its root is the folder `out`.
pub(crate) fn prepared(
    rows: u32,
    target: fn(f64, f64) -> f64,
    sections: &str,
) -> (tempfile::TempDir, &'static str) {
    const ROWS: &str = r#"
[pipeline]
name = "rows"
root = "out"

[[source]]
name = "rows"
type = "files"
url = "rows.csv"

[dataset]
target = "y"
"#;
    let folder = tempfile::tempdir().unwrap();
    let mut csv = "a,b,y\n".to_owned();
    for i in 0..rows {
        let (a, b) = (
            f64::from(i * 37 % 101) / 50.0,
            f64::from(i * 53 % 97) / 50.0,
        );
        csv += &format!("{a},{b},{}\n", target(a, b));
    }
    fs::write(folder.path().join("rows.csv"), csv).unwrap();
    let file = pipeline(folder.path(), &format!("{ROWS}{sections}"));
    run(folder.path(), &["ingest", file]).expect(0);
    run(folder.path(), &["shards", "build", file]).expect(0);
    (folder, file)
}
