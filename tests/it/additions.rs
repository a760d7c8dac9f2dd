//! Files that come after a dataset was built.

use std::{fs, path::Path};

use serde_json::Value;

use crate::support::{pipeline, run};

/// Rows `from` to `to` as a file of their own.
fn write(folder: &Path, name: &str, rows: std::ops::Range<u32>) {
    let mut csv = "id,a,b,y\n".to_owned();
    for i in rows {
        let (a, b) = (f64::from(i * 37 % 101), f64::from(i * 53 % 97));
        csv += &format!("{i},{a},{b},{}\n", 2.0 * a - b);
    }
    fs::write(folder.join(name), csv).unwrap();
}

const PIPELINE: &str = r#"[pipeline]
name = "rows"
root = "out"
[[source]]
name = "rows"
type = "files"
url = "rows-*.csv"
[dataset]
target = "y"
drop = ["id"]
"#;

/// The report on the dataset of a command for the pipeline.
fn dataset_report(folder: &Path, arguments: &[&str]) -> Value {
    let report = run(folder, &[arguments, &["pipeline.toml", "--json"]].concat())
        .expect(0)
        .json();
    match report.get("dataset") {
        Some(dataset) => dataset.clone(),
        None => report,
    }
}

#[test]
fn rows_that_land_later_are_added_and_refit_makes_all_anew() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = pipeline(at, PIPELINE);
    write(at, "rows-1.csv", 0..400);
    let first = dataset_report(at, &["run"]);
    assert_eq!(
        (&first["rows_in"], &first["added"]),
        (&400.into(), &Value::Null)
    );
    write(at, "rows-2.csv", 400..500);
    let second = dataset_report(at, &["run"]);
    assert_eq!(second["rows_in"], 500);
    assert_eq!(second["added"]["rows_in"], 100);
    assert_eq!(second["added"]["kept_shards"], first["shards"]);
    let inspected = run(at, &["shards", "inspect", "out/dataset"]).expect(0);
    assert!(
        inspected.stdout.contains("behind log position rows 0"),
        "{}",
        inspected.stdout
    );
    let verified = run(at, &["shards", "verify", "out/dataset", "--json"]).expect(0);
    assert_eq!(verified.json()["problems"], serde_json::json!([]));
    check_limits(at, file);

    write(at, "rows-3.csv", 500..520);
    let shown = run(at, &["run", file]).expect(0).stdout;
    let line = format!("  {:<16} 20 read, 0 duplicates dropped", "added");
    assert!(shown.contains(&line), "{shown}");
    let refitted = dataset_report(at, &["shards", "build", "--refit"]);
    assert_eq!(
        (&refitted["rows_in"], &refitted["added"]),
        (&520.into(), &Value::Null)
    );
    assert_eq!(dataset_report(at, &["run"])["up_to_date"], true);
    check_split_by_place(at);
}

#[test]
fn changed_settings_that_change_no_row_leave_the_dataset_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    pipeline(at, PIPELINE);
    write(at, "rows-1.csv", 0..400);
    let first = dataset_report(at, &["run"]);
    for setting in [
        "contract.dates=[\"%d/%m/%Y\"]",
        "contract.max_columns=77",
        "csv.null_values=[\"zzz\"]",
        "infer.rows=50",
        "batch.rows=7",
    ] {
        let setting = format!("source.0.{setting}");
        let again = dataset_report(at, &["run", "--set", &setting]);
        assert_eq!(again["up_to_date"], true, "{setting}");
        assert_eq!(again["fingerprint"], first["fingerprint"], "{setting}");
    }
    let refitted = dataset_report(at, &["shards", "build", "--refit"]);
    assert_eq!(refitted["fingerprint"], first["fingerprint"]);
}

/// Neither memory nor partitions change the result of a build, and senseless values are refused.
fn check_limits(folder: &Path, file: &str) {
    let rebuild = |limits: &[&str]| {
        let build = [
            "shards",
            "build",
            "--refit",
            "--set",
            "pipeline.root=\"sub/../out\"",
        ];
        dataset_report(folder, &[&build[..], limits].concat())["fingerprint"].clone()
    };
    let expected = rebuild(&[]);
    assert_eq!(rebuild(&["--memory", "64", "--partitions", "5"]), expected);
    for (flag, value) in [
        ("--memory", "63"),
        ("--memory", "2GiB"),
        ("--partitions", "0"),
    ] {
        let refused = run(folder, &["shards", "build", file, flag, value])
            .expect(2)
            .stderr;
        assert!(
            refused.contains(flag) && refused.contains(value),
            "{refused}"
        );
    }
}

/// A decision that depends on all rows is made again only with `--refit`.
fn check_split_by_place(folder: &Path) {
    let file = pipeline(folder, &format!("{PIPELINE}split = {{ by = \"range\" }}\n"));
    dataset_report(folder, &["run"]);
    write(folder, "rows-4.csv", 520..600);
    let refused = run(folder, &["run", file]).expect(2).stderr;
    assert!(
        refused.contains("dataset.split.by") && refused.contains("pass `--refit`"),
        "{refused}"
    );
    let refitted = dataset_report(folder, &["run", "--refit"]);
    assert_eq!(refitted["rows_in"], 600);
}
