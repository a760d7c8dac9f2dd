//! System calls of ingest on the disk, seen by strace: a kill at each call that changes a file, and
//! the possible losses of a power cut.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    kills::{landing, named_files},
    support::{count_files, feedline, finish, pipeline, run},
};

/// A few batches, with repeated records, rejects, a child table and an archive of responses.
const SMALL: &str = r#"
[pipeline]
name = "small"
root = "out"

[[source]]
name = "market"
type = "rest"
url = "demo://market?seed=11&rows=450&page_size=50"
records = "data.items"
pagination = { type = "cursor", cursor_param = "cursor", cursor_path = "paging.next_cursor" }
batch = { rows = 150, dedup_window = 1000 }
retry = { base_ms = 1, cap_ms = 5 }
archive_raw = true
contract = { children = { flags = { parent = { quote = "id" } } } }
"#;

/// Folders of its files.
const FOLDERS: [&str; 4] = ["data/", "rejects/", "raw/", "children/flags/"];

/// Calls that change files or make them durable. A file that is opened to be written to is empty until `write`.
const CALLS: [&str; 7] = [
    "mkdir",
    "write",
    "fsync",
    "rename",
    "linkat",
    "unlink",
    "ftruncate",
];

fn has_strace() -> bool {
    let found = Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let has = found.is_ok_and(|status| status.success());
    if !has {
        eprintln!("skipped: strace is not installed");
    }
    has
}

/// An ingest under strace with these options; its exit code (-1 when it was killed) and the calls.
fn traced(folder: &Path, options: &[&str]) -> (i32, String) {
    traced_command(folder, options, &["ingest", pipeline(folder, SMALL)])
}

/// The same of another command.
fn traced_command(folder: &Path, options: &[&str], arguments: &[&str]) -> (i32, String) {
    let log = folder.join("calls");
    let mut command = feedline(folder);
    let program = command.get_program().to_owned();
    let mut strace = Command::new("strace");
    strace
        .current_dir(folder)
        .env("FEEDLINE_LOG", "error")
        .stdin(Stdio::null());
    strace
        .args(["-f", "-y", "-qq", "-s", "0", "-o"])
        .arg(&log)
        .args(options);
    strace.arg(program).args(arguments);
    command = strace;
    let ended = finish(command.output().unwrap());
    (ended.code, fs::read_to_string(log).unwrap())
}

fn trace_all() -> String {
    format!("trace={}", CALLS.join(","))
}

#[test]
fn a_kill_at_every_call_that_writes_loses_and_doubles_nothing() {
    if !has_strace() {
        return;
    }
    let undisturbed = tempfile::tempdir().unwrap();
    let (code, calls) = traced(undisturbed.path(), &["-e", &trace_all()]);
    assert_eq!(code, 0, "{calls}");
    let expected = landing(&undisturbed.path().join("out/landing/market"));
    assert_eq!(expected.entries.len(), 3);
    for folder in FOLDERS {
        assert!(expected.files_in(folder) > 0, "{folder}");
    }
    let mut killed = 0;
    for call in CALLS {
        let made = calls
            .lines()
            .filter(|line| line.contains(&format!(" {call}(")))
            .count();
        for number in 1..=made {
            let folder = tempfile::tempdir().unwrap();
            let inject = format!("inject={call}:signal=KILL:when={number}");
            let (code, _) = traced(
                folder.path(),
                &["-e", &format!("trace={call}"), "-e", &inject],
            );
            // The order of threads may make it one call less.
            killed += usize::from(code != 0);
            run(folder.path(), &["ingest", "pipeline.toml"]).expect(0);
            let found = landing(&folder.path().join("out/landing/market"));
            assert!(found == expected, "after a kill at {call} {number}");
        }
    }
    eprintln!("{killed} kills at calls that write, the same rows and bytes each time");
    assert!(killed > 30, "{killed}");
}

/// Of the calls of a compaction, one in so many is killed; `FEEDLINE_COMPACT_CALLS=1` kills all.
const COMPACT_CALLS: usize = 5;

/// Copies a folder with what is in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Verifies the landing zone; returns its rows and the number of files that no entry names.
fn verified(folder: &Path) -> (u64, usize) {
    let report = run(folder, &["ingest", "verify", "pipeline.toml", "--json"]).expect(0);
    let source = &report.json()["sources"][0];
    let unnamed = source["unnamed"].as_array().map(Vec::len);
    (
        source["rows"].as_u64().unwrap(),
        unnamed.unwrap_or_default(),
    )
}

#[test]
fn a_compaction_killed_at_a_call_that_writes_leaves_every_row_once() {
    if !has_strace() {
        return;
    }
    let asked = std::env::var_os("FEEDLINE_COMPACT_CALLS");
    let step = asked.map_or(COMPACT_CALLS, |text| {
        text.to_str().unwrap().parse().unwrap()
    });
    let landed = tempfile::tempdir().unwrap();
    let file = pipeline(landed.path(), SMALL);
    run(landed.path(), &["ingest", file]).expect(0);
    let (rows, _) = verified(landed.path());
    let compact = ["ingest", "compact", file, "market"];
    let undisturbed = tempfile::tempdir().unwrap();
    copy(landed.path(), undisturbed.path());
    let (code, calls) = traced_command(undisturbed.path(), &["-e", &trace_all()], &compact);
    assert_eq!(code, 0, "{calls}");
    let merged = |folder: &Path| {
        let zone = folder.join("out/landing/market");
        ["data", "children/flags"].map(|folder| count_files(&zone.join(folder)))
    };
    // A new column begins another file.
    let expected = merged(undisturbed.path());
    assert!(expected[0] < 3 && expected[1] < 3, "{expected:?}");
    let mut killed = 0;
    for call in CALLS {
        let made = calls
            .lines()
            .filter(|line| line.contains(&format!(" {call}(")))
            .count();
        for number in (1..=made).step_by(step) {
            let folder = tempfile::tempdir().unwrap();
            copy(landed.path(), folder.path());
            let inject = format!("inject={call}:signal=KILL:when={number}");
            let options = ["-e", &format!("trace={call}"), "-e", &inject];
            let (code, _) = traced_command(folder.path(), &options, &compact);
            killed += usize::from(code != 0);
            // A reader between the kill and the next writer sees all rows.
            assert_eq!(verified(folder.path()).0, rows, "after {call} {number}");
            run(folder.path(), &["ingest", file]).expect(0);
            assert_eq!(verified(folder.path()), (rows, 0), "after {call} {number}");
            run(folder.path(), &compact).expect(0);
            assert_eq!(verified(folder.path()), (rows, 0), "after {call} {number}");
            assert_eq!(merged(folder.path()), expected, "after {call} {number}");
        }
    }
    eprintln!("{killed} kills of a compaction at calls that write");
    assert!(killed > 5, "{killed}");
}

/// State that is sure to be on the disk after a power cut.
#[derive(Default)]
struct Disk {
    /// Files with bytes that were not synced.
    dirty: BTreeSet<String>,
    /// Names that their folders may not have: made, and the folder not synced since.
    loose: BTreeSet<String>,
    /// Files that an entry of the log names, by the entry's path.
    named: BTreeMap<String, Vec<String>>,
}

impl Disk {
    /// Follows one call; what a power cut right after it could break.
    fn follow(&mut self, line: &str) -> Option<String> {
        let call = line.split_once(' ')?.1.trim_start();
        let (name, arguments) = call.split_once('(')?;
        let quoted: Vec<&str> = arguments.split('"').skip(1).step_by(2).collect();
        let of_fd = || Some(arguments.split_once('<')?.1.split_once('>')?.0.to_owned());
        match name {
            // Streams and sockets are no files; no entry names them.
            "write" => {
                self.dirty.insert(of_fd()?);
            }
            "fsync" if !line.contains("INJECTED") => {
                let path = of_fd()?;
                self.dirty.remove(&path);
                let inside = format!("{path}/");
                self.loose.retain(|name| {
                    name.strip_prefix(&inside)
                        .is_none_or(|rest| rest.contains('/'))
                });
            }
            "mkdir" => {
                self.loose.insert((*quoted.first()?).to_owned());
            }
            "rename" | "linkat" => {
                // The empty text of `-s 0` is never a path: strace shows full paths.
                let [from, to] = quoted[..] else { return None };
                let is_dirty = self.dirty.contains(from);
                if is_dirty {
                    self.dirty.insert(to.to_owned());
                }
                self.loose.insert(to.to_owned());
                return self.lacks(to, is_dirty);
            }
            _ => {}
        }
        None
    }

    /// Files that an entry that has just got its name could lack after a power cut.
    fn lacks(&self, entry: &str, is_dirty: bool) -> Option<String> {
        let files = self.named.get(entry)?;
        if is_dirty {
            return Some(format!("{entry} itself is not synced"));
        }
        let above = |path: &str| -> Vec<String> {
            Path::new(path)
                .ancestors()
                .map(|p| p.display().to_string())
                .collect()
        };
        files.iter().find_map(|file| {
            if self.dirty.contains(file) {
                return Some(format!("{entry} names {file}, whose bytes are not synced"));
            }
            let loose = above(file)
                .into_iter()
                .find(|path| self.loose.contains(path))?;
            Some(format!("{entry} names {file}, and {loose} may be gone"))
        })
    }
}

/// Damage that a power cut at any moment of these calls could do, and entries that may be gone at
/// the end.
fn after_power_cut(folder: &Path, calls: &str) -> Vec<String> {
    let zone = folder.join("out/landing/market");
    let mut disk = Disk::default();
    for entry in fs::read_dir(zone.join("log")).unwrap() {
        let path = entry.unwrap().path();
        let text: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let files = named_files(&text);
        let files = files
            .iter()
            .map(|path| zone.join(path).display().to_string());
        disk.named
            .insert(path.display().to_string(), files.collect());
    }
    assert_eq!(disk.named.len(), 3);
    let mut broken: Vec<String> = calls.lines().filter_map(|line| disk.follow(line)).collect();
    broken.extend(
        disk.named
            .keys()
            .filter(|entry| disk.loose.contains(*entry))
            .map(|entry| format!("{entry} may be gone")),
    );
    broken
}

#[test]
fn fault_08_no_entry_is_on_the_disk_before_what_it_names() {
    if !has_strace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (code, calls) = traced(folder.path(), &["-e", &trace_all()]);
    assert_eq!(code, 0, "{calls}");
    let broken = after_power_cut(folder.path(), &calls);
    assert!(broken.is_empty(), "{broken:#?}");

    // A program whose syncs do nothing is found out, and so is one without those of files, or of folders.
    let lines = |keep: &dyn Fn(&str) -> bool| -> String {
        let kept = calls
            .lines()
            .filter(|line| !line.contains("fsync(") || keep(line));
        kept.map(|line| format!("{line}\n")).collect()
    };
    for (what, keep) in [
        ("none", &(|_: &str| false) as &dyn Fn(&str) -> bool),
        ("those of folders", &|line: &str| !line.contains(".tmp-")),
        ("those of files", &|line: &str| line.contains(".tmp-")),
    ] {
        assert!(
            !after_power_cut(folder.path(), &lines(keep)).is_empty(),
            "only {what}"
        );
    }
    let without = tempfile::tempdir().unwrap();
    let (code, calls) = traced(
        without.path(),
        &["-e", &trace_all(), "-e", "inject=fsync:retval=0"],
    );
    assert_eq!(code, 0);
    assert!(
        !after_power_cut(without.path(), &calls).is_empty(),
        "syncs that do nothing"
    );
}
