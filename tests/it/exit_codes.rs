//! Exit codes of commands that reject rows.

use std::{fmt::Write as _, fs, path::Path};

use crate::support::{Finished, pipeline, run};

const PIPELINE: &str = r#"
[pipeline]
name = "rows"
root = "out"

[[source]]
name = "rows"
type = "files"
url = "rows.csv"
contract = { column = { size = { type = "float" }, price = { type = "float" } } }

[dataset]
target = "price"

[train]
epochs = 1
batch_size = 32
"#;

/// 300 rows; one has no number as its size, and one has no price.
fn write(folder: &Path) -> &'static str {
    write_rows(folder, 300, &[7]);
    fs::write(folder.join("new.csv"), "id,size\n1,5\n2,unknown\n").unwrap();
    pipeline(folder, PIPELINE)
}

/// So many rows; those in `unknown` have no number as their size.
fn write_rows(folder: &Path, count: usize, unknown: &[usize]) {
    let mut rows = "id,size,price\n".to_owned();
    for i in 0..count {
        let size = if unknown.contains(&i) {
            "unknown".to_owned()
        } else {
            i.to_string()
        };
        let price = if i == 9 {
            String::new()
        } else {
            (3 * i).to_string()
        };
        writeln!(rows, "{i},{size},{price}").unwrap();
    }
    fs::write(folder.join("rows.csv"), rows).unwrap();
}

#[test]
fn rejected_rows_within_the_bounds_are_no_failure_unless_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = write(folder);
    let strict = |arguments: &[&str]| run(folder, &[arguments, &["--fail-on-rejects"]].concat());
    // Landing zones and datasets of their own, so that these commands reject the rows themselves.
    for (command, root) in [(&["ingest"][..], "a"), (&["run"][..], "b")] {
        let root = format!("pipeline.root={root}");
        strict(&[command, &[file, "--set", root.as_str()]].concat()).expect(3);
    }
    run(folder, &["ingest", file]).expect(0);
    strict(&["shards", "build", file]).expect(3);
    run(folder, &["run", file]).expect(0);
    for arguments in [
        &["predict", file, "new.csv"][..],
        &["ingest", "retry-rejects", file, "rows"],
        &["ingest", "reread", file, "rows", "--file", "rows.csv"],
    ] {
        let done = run(folder, &[arguments, &["--json"]].concat()).expect(0);
        let report = match done.stdout.lines().last() {
            Some(line) if line.contains("\"rejected\"") => line.to_owned(),
            _ => done.stderr.clone(),
        };
        assert!(report.contains("rejected"), "{arguments:?}: {done:#?}");
        strict(arguments).expect(3);
    }
}

#[test]
fn rejects_of_earlier_runs_are_no_failure_of_a_run_without_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = write(folder);
    let strict = |arguments: &[&str]| {
        let options = ["--json", "--fail-on-rejects"];
        run(folder, &[arguments, &options].concat())
    };
    let counts = |ended: Finished| {
        let report = ended.json();
        let source = &report["sources"][0];
        ["rejected", "new_rejected"].map(|name| {
            assert_eq!(report[name], source[name], "{report}");
            report[name].as_u64().unwrap()
        })
    };
    assert_eq!(counts(strict(&["ingest", file]).expect(3)), [1, 1]);
    assert_eq!(counts(strict(&["ingest", file]).expect(0)), [1, 0]);
    strict(&["shards", "build", file]).expect(3);
    strict(&["shards", "build", file]).expect(0);
    strict(&["run", file]).expect(0);
    // One more bad row in rows that follow.
    write_rows(folder, 340, &[7, 320]);
    assert_eq!(counts(strict(&["ingest", file]).expect(3)), [2, 1]);
    assert_eq!(counts(strict(&["ingest", file]).expect(0)), [2, 0]);
}

#[test]
fn rows_beyond_a_bound_are_a_failure_with_or_without_the_option() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = write(folder);
    let bound = ["--set", "source.0.contract.max_reject_fraction=0.001"];
    for option in [&[][..], &["--fail-on-rejects"]] {
        run(folder, &[&["ingest", file], &bound[..], option].concat()).expect(1);
    }
    run(folder, &["ingest", file]).expect(0);
    let bound = ["--set", "dataset.max_reject_fraction=0.001"];
    for option in [&[][..], &["--fail-on-rejects"]] {
        run(
            folder,
            &[&["shards", "build", file], &bound[..], option].concat(),
        )
        .expect(1);
    }
}
