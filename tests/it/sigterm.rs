//! A training that is stopped by SIGTERM, at any point, saves and leaves.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    s3,
    support::{Finished, Random, feedline, files, finish, pipeline, run, wait},
};

/// A process is given up after so many waits of [`LOOK`].
const LOOKS: u32 = 12_000;
const LOOK: Duration = Duration::from_millis(10);
/// Most runs that may end before their signal and are repeated.
const MOST_ENDED: u32 = 20;

/// Measuring takes about as long as the steps of an epoch.
const PIPELINE: &str = r#"
[pipeline]
name = "stopped"
root = "out"

[[source]]
name = "market"
type = "rest"
url = "demo://market?seed=11&rows=6000&page_size=500"
records = "data.items"
pagination = { type = "cursor", cursor_param = "cursor", cursor_path = "paging.next_cursor" }
batch = { rows = 1000 }

[dataset]
target = "next_return"
drop = ["id"]
split = { key = ["id"], train = 0.2, validation = 0.7, test = 0.1 }
"#;

const TRAIN: &str = r#"
[train]
model = { type = "mlp", hidden = [64], dropout = 0.1 }
batch_size = 32
epochs = 40
patience = 0
checkpoint = { every_steps = 20 }
"#;

/// A folder with the dataset, the pipeline's file in it, and the report of an undisturbed training.
fn prepared() -> (tempfile::TempDir, &'static str, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = pipeline(folder.path(), &format!("{PIPELINE}{TRAIN}"));
    run(folder.path(), &["ingest", file]).expect(0);
    run(folder.path(), &["shards", "build", file]).expect(0);
    let train = run(folder.path(), &["train", file, "--json"]).expect(0);
    (folder, file, train.json())
}

/// A training with its output kept.
fn training(folder: &Path, change: impl FnOnce(&mut Command)) -> Child {
    let mut command = feedline(folder);
    command.args(["train", "pipeline.toml", "--resume"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    change(&mut command);
    command.spawn().unwrap()
}

/// Sends SIGTERM and waits for the end.
fn terminate(mut child: Child) -> Finished {
    let sent = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    for look in 0..LOOKS {
        if child.try_wait().unwrap().is_some() {
            eprintln!("left after about {} ms", look * 10);
            return finish(child.wait_with_output().unwrap());
        }
        wait(LOOK);
    }
    child.kill().unwrap();
    panic!("it does not leave: {:#?}", child.wait_with_output());
}

/// Waits until `ready` holds while the process works.
fn until(child: &mut Child, ready: impl FnMut() -> bool) {
    assert!(is_ready(child, ready), "it ended by itself");
}

/// Waits until `ready` holds; returns false if the process ends first.
fn is_ready(child: &mut Child, mut ready: impl FnMut() -> bool) -> bool {
    for _ in 0..LOOKS {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if ready() {
            return true;
        }
        wait(LOOK);
    }
    panic!("what was waited for did not happen");
}

/// Sends SIGTERM to a process that works, and waits for its end.
fn stop(child: Child, works: bool) -> Finished {
    match works {
        true => terminate(child),
        false => finish(child.wait_with_output().unwrap()),
    }
}

/// Header of the newest checkpoint.
fn newest(train: &Path) -> Value {
    let found = files(train);
    let checkpoint = found.iter().rfind(|(path, _)| path.contains("/step-"));
    let Some((_, bytes)) = checkpoint else {
        return Value::Null;
    };
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let length = usize::try_from(length).unwrap();
    let json: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let header = json["__metadata__"]["feedline"].as_str().unwrap();
    serde_json::from_str(header).unwrap()
}

#[test]
fn an_interrupted_run_advises_to_rerun_it_and_the_rerun_resumes() {
    let (folder, _, undisturbed) = prepared();
    let train = folder.path().join("out/train");
    for _ in 0..MOST_ENDED {
        fs::remove_dir_all(&train).unwrap();
        let mut command = feedline(folder.path());
        command.args(["run", "pipeline.toml"]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let has_saved = is_ready(&mut child, || newest(&train) != Value::Null);
        let stopped = stop(child, has_saved);
        if stopped.code == 0 {
            continue;
        }
        let error = stopped.expect(1).stderr;
        assert!(
            error.contains(".safetensors`: rerun the same command"),
            "{error}"
        );
        assert!(!error.contains("--resume"), "{error}");
        let resumed = run(folder.path(), &["run", "pipeline.toml", "--json"])
            .expect(0)
            .json();
        assert!(
            resumed["train"]["resumed_at"].as_u64() > Some(0),
            "{resumed}"
        );
        assert_eq!(resumed["train"]["test"], undisturbed["test"]);
        return;
    }
    panic!("every run ended before its signal");
}

#[test]
fn a_training_told_to_stop_in_a_step_or_while_it_measures_saves_leaves_and_goes_on_bit_for_bit() {
    let (folder, file, undisturbed) = prepared();
    let train = folder.path().join("out/train");
    let weights = || {
        let mut found = files(&train);
        found.retain(|(path, _)| path.ends_with(".safetensors"));
        found
    };
    let expected = weights();
    let (epochs, steps) = (
        undisturbed["epochs"].as_u64().unwrap(),
        undisturbed["steps"].as_u64().unwrap(),
    );
    fs::remove_dir_all(&train).unwrap();
    let mut random = Random(5);
    let (mut in_steps, mut measuring, mut ended) = (0, 0, 0);
    while in_steps == 0 || measuring == 0 {
        let before = newest(&train);
        let mut child = training(folder.path(), |_| {});
        let has_saved = is_ready(&mut child, || newest(&train) != before);
        wait(Duration::from_micros(random.below(200_000)));
        let stopped = stop(child, has_saved);
        if stopped.code == 0 && ended < MOST_ENDED {
            // The run was over before the signal came.
            ended += 1;
            fs::remove_dir_all(&train).unwrap();
            continue;
        }
        let stopped = stopped.expect(1);
        assert!(
            stopped.stderr.contains(".safetensors` with `--resume`"),
            "{stopped:#?}"
        );
        let header = newest(&train);
        let [step, epoch] = ["step", "epoch"].map(|key| header[key].as_u64().unwrap());
        assert!(
            stopped
                .stderr
                .contains(&format!("step-{step:08}.safetensors")),
            "{stopped:#?}"
        );
        // An epoch that was measured is behind.
        if step == (epoch + 1) * (steps / epochs) {
            measuring += 1;
        } else {
            in_steps += 1;
        }
    }
    eprintln!("stopped {in_steps} times in steps, {measuring} times while measuring");
    let resumed = run(folder.path(), &["train", file, "--resume", "--json"]).expect(0);
    for key in ["steps", "test", "validation", "best_epoch"] {
        assert_eq!(resumed.json()[key], undisturbed[key], "{key}");
    }
    assert!(weights() == expected);
}

/// Passes connections on to a server until it is set to let everything hang.
struct Proxy {
    port: u16,
    hangs: Arc<AtomicBool>,
    /// True when something hangs.
    held: Arc<AtomicBool>,
}

impl Proxy {
    fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            hangs: Arc::default(),
            held: Arc::default(),
        };
        let (hangs, held) = (Arc::clone(&proxy.hangs), Arc::clone(&proxy.held));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
                let (answers, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || pass(answers, to, |_| false));
                let (hangs, held) = (Arc::clone(&hangs), Arc::clone(&held));
                thread::spawn(move || {
                    pass(client, server, |_| {
                        if !hangs.load(Ordering::SeqCst) {
                            return false;
                        }
                        held.store(true, Ordering::SeqCst);
                        while hangs.load(Ordering::SeqCst) {
                            wait(LOOK);
                        }
                        true
                    });
                });
            }
        });
        proxy
    }
}

/// Passes bytes on until there are no more, or `lost` says that these never arrive.
fn pass(mut from: TcpStream, mut to: TcpStream, lost: impl Fn(&[u8]) -> bool) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if lost(&bytes[..count]) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        // It may be closed already.
        let _closed = stream.shutdown(Shutdown::Both);
    }
}

#[test]
fn a_training_told_to_stop_while_its_store_hangs_leaves_and_says_what_is_saved() {
    let Some(server) = s3::start_s3() else { return };
    let (folder, _, undisturbed) = prepared();
    let proxy = Proxy::to(server.port);
    let data = r#"dataset = "out/dataset""#;
    let remote = TRAIN.replace("[train]", &format!("[train]\n{data}"));
    let root = "[pipeline]\nname = \"stopped\"\nroot = \"s3://lake/stopped\"\n";
    let file = pipeline(folder.path(), &format!("{root}{remote}"));
    let on_s3 = |command: &mut Command| {
        command
            .env(
                "AWS_ENDPOINT_URL",
                format!("http://127.0.0.1:{}", proxy.port),
            )
            .env("AWS_ALLOW_HTTP", "true")
            .env("AWS_ACCESS_KEY_ID", "id")
            .env("AWS_SECRET_ACCESS_KEY", "key")
            .env("AWS_REGION", "us-east-1");
    };
    // Once with the final save alone, once with another one under way.
    for under_way in [false, true] {
        let before = server.last("step-");
        let mut child = training(folder.path(), on_s3);
        until(&mut child, || server.last("step-") != before);
        proxy.hangs.store(true, Ordering::SeqCst);
        if under_way {
            until(&mut child, || proxy.held.load(Ordering::SeqCst));
        }
        let stopped = terminate(child).expect(1);
        for part in [
            "could not be written in time; resume from",
            "which is after step",
        ] {
            assert!(stopped.stderr.contains(part), "{stopped:#?}");
        }
        proxy.held.store(false, Ordering::SeqCst);
        proxy.hangs.store(false, Ordering::SeqCst);
    }
    let mut command = feedline(folder.path());
    on_s3(command.args(["train", file, "--resume", "--json"]));
    let resumed = finish(command.output().unwrap()).expect(0).json();
    for key in ["steps", "test", "validation", "best_epoch"] {
        assert_eq!(resumed[key], undisturbed[key], "{key}");
    }
}
