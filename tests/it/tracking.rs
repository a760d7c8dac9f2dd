//! Outputs of a training for people and other programs: event files, pages, the list of runs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::support::{self, finish, python, run};

const TRAINING: &str = r#"
[train]
model = { type = "mlp", hidden = [16] }
batch_size = 32
epochs = 6
learning_rate = 0.01
log_every = 3
"#;

/// A folder with a dataset of 600 rows, and the name of the pipeline file in it.
fn prepared() -> (tempfile::TempDir, &'static str) {
    support::prepared(600, |a, b| 2.0 * a - b, TRAINING)
}

/// The folder of the only run.
fn only_run(root: &Path) -> PathBuf {
    let runs = fs::read_dir(root.join("out/train")).unwrap();
    // The list of runs is a file beside them.
    let mut runs = runs.filter(|entry| entry.as_ref().unwrap().path().is_dir());
    let only = runs.next().unwrap().unwrap().path();
    assert!(runs.next().is_none());
    only
}

#[test]
fn tensorboard_reads_the_numbers_of_the_metrics_file() {
    let (folder, file) = prepared();
    run(folder.path(), &["train", file]).expect(0);
    let Some(mut python) = python("tensorboard") else {
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/events.py");
    python.arg(script).arg(only_run(folder.path()));
    eprintln!("{}", finish(python.output().unwrap()).expect(0).stdout);
}

#[test]
fn a_run_that_another_process_trains_is_refused() {
    let (folder, file) = prepared();
    run(folder.path(), &["train", file]).expect(0);
    let held = fs::File::open(only_run(folder.path())).unwrap();
    held.try_lock().unwrap();
    let refused = run(folder.path(), &["train", file, "--resume"]).expect(1);
    let reason = "another process trains this run";
    assert!(refused.stderr.contains(reason), "{refused:?}");
    drop(held);
    run(folder.path(), &["train", file, "--resume"]).expect(0);
}

#[test]
fn runs_are_listed_and_compared_by_what_differs() {
    let (folder, file) = prepared();
    let none = run(folder.path(), &["runs", "list", file]).expect(0);
    assert!(none.stdout.starts_with("no runs in "), "{}", none.stdout);
    let first = run(folder.path(), &["train", file, "--json"])
        .expect(0)
        .json();
    let page = folder.path().join(first["report"].as_str().unwrap());
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("From the curves") && page.contains("</html>"));
    run(
        folder.path(),
        &[
            "train",
            file,
            "--set",
            "train.seed=7",
            "--set",
            "train.learning_rate=0.03",
        ],
    )
    .expect(0);

    let list = run(folder.path(), &["runs", "list", file, "--json"])
        .expect(0)
        .json();
    let runs = list["runs"].as_array().unwrap();
    assert_eq!(
        (runs.len(), &runs[0]["seed"], &runs[1]["seed"]),
        (2, &7.into(), &0.into())
    );
    for run in runs {
        assert_eq!(
            (&run["state"], &run["metric"]),
            (&"finished".into(), &"rmse".into())
        );
        assert_eq!(run["differs"].as_object().unwrap().len(), 2, "{run}");
    }
    assert_eq!(runs[1]["test"], first["test"]["rmse"]);
    let table = run(folder.path(), &["runs", "list", file]).expect(0).stdout;
    assert!(table.contains("learning_rate = 0.03, seed = 7"), "{table}");
    assert!(table.lines().all(|l| l.chars().count() <= 100), "{table}");

    let name = |i: usize| runs[i]["name"].as_str().unwrap();
    let arguments = [
        "runs",
        "compare",
        file,
        name(0),
        &name(1)[..9],
        "--html",
        "both.html",
    ];
    let table = run(folder.path(), &arguments).expect(0).stdout;
    assert!(table.lines().all(|l| l.chars().count() <= 100), "{table}");
    assert!(
        table.contains("learning_rate") && table.contains("test_rmse"),
        "{table}"
    );
    assert!(!table.contains("batch_size"), "{table}");
    let page = fs::read_to_string(folder.path().join("both.html")).unwrap();
    assert!(page.contains(name(0)) && page.contains(name(1)));
    let wrong = run(folder.path(), &["runs", "compare", file, name(0), "zzz"]).expect(2);
    assert!(
        wrong.stderr.contains("`zzz` names no single run"),
        "{}",
        wrong.stderr
    );
}
