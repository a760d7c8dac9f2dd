//! The README's main job.

use std::{path::Path, process::Command};

use crate::support::{feedline, finish, run};

#[test]
fn quickstart_trains_a_model_that_beats_the_mean_and_a_second_run_finds_all_done() {
    let folder = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart.toml");
    let arguments = [
        "run",
        file.to_str().unwrap(),
        "--json",
        "--set",
        "train.epochs=8",
    ];
    let first = run(folder.path(), &arguments).expect(0).json();
    let (ingest, dataset, train) = (&first["ingest"], &first["dataset"], &first["train"]);
    assert_eq!(dataset["rows_in"], ingest["rows"]);
    assert!(
        ingest["retries"].as_u64() > Some(0) && ingest["rejected"].as_u64() > Some(0),
        "{ingest}"
    );
    let splits: u64 = ["train", "validation", "test"]
        .iter()
        .map(|s| dataset[s].as_u64().unwrap())
        .sum();
    let gone = dataset["duplicates"].as_u64().unwrap() + dataset["rejected"].as_u64().unwrap();
    assert_eq!(dataset["rows_in"].as_u64(), Some(splits + gone));
    let (rmse, baseline) = (
        train["test"]["rmse"].as_f64().unwrap(),
        train["baseline"]["rmse"].as_f64().unwrap(),
    );
    assert!(rmse < 0.8 * baseline, "{rmse} against {baseline}");
    for url in [
        &ingest["url"],
        &dataset["url"],
        &train["checkpoint"],
        &train["metrics"],
    ] {
        assert!(folder.path().join(url.as_str().unwrap()).exists(), "{url}");
    }

    let second = run(folder.path(), &arguments).expect(0).json();
    assert_eq!(second["dataset"]["up_to_date"], true);
    assert_eq!(second["ingest"]["rows"], ingest["rows"]);
    assert_eq!(second["train"]["test"], train["test"]);
    let status = run(
        folder.path(),
        &["ingest", "status", file.to_str().unwrap(), "--json"],
    )
    .expect(0)
    .json();
    assert_eq!(status["rows"], ingest["rows"]);
    let eval = run(
        folder.path(),
        &[
            "eval",
            file.to_str().unwrap(),
            "--json",
            "--split",
            "test",
            "--set",
            "train.epochs=8",
        ],
    );
    assert_eq!(eval.expect(0).json()["metrics"], train["test"]);
}

#[test]
fn help_names_the_commands_and_the_exit_codes() {
    let help = finish(feedline(Path::new(".")).arg("--help").output().unwrap())
        .expect(0)
        .stdout;
    for word in ["run", "ingest", "shards", "train", "eval", "Exit codes"] {
        assert!(help.contains(word), "{word} is not in\n{help}");
    }
    finish(feedline(Path::new(".")).arg("fly").output().unwrap()).expect(2);
}

#[test]
fn a_terminal_shows_bars_and_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart.toml");
    let small = "demo://market?rows=1000&rude=false";
    let command = format!(
        "{} ingest {} --set 'source.0.url={small}'",
        env!("CARGO_BIN_EXE_feedline"),
        file.display()
    );
    // `script` gives the command a terminal; it is part of every Debian.
    let mut script = Command::new("script");
    script
        .args(["-qec", &command, "/dev/null"])
        .current_dir(folder.path());
    let shown = finish(script.output().unwrap()).expect(0).stdout;
    assert!(
        shown.contains("ingest market") && shown.contains("rows landed"),
        "{shown}"
    );
    assert!(!shown.contains("panicked"), "{shown}");
}
