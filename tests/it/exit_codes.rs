//! Exit codes of commands that reject rows.

use std::{fmt::Write as _, fs, path::Path};

use crate::support::{pipeline, run};

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
    let mut rows = "id,size,price\n".to_owned();
    for i in 0..300 {
        let size = if i == 7 {
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
    fs::write(folder.join("new.csv"), "id,size\n1,5\n2,unknown\n").unwrap();
    pipeline(folder, PIPELINE)
}

#[test]
fn rejected_rows_within_the_bounds_are_no_failure_unless_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let file = write(folder);
    for arguments in [
        &["ingest", file][..],
        &["shards", "build", file],
        &["run", file],
        &["predict", file, "new.csv"],
        &["ingest", "retry-rejects", file, "rows"],
        &["ingest", "reread", file, "rows", "--file", "rows.csv"],
    ] {
        let done = run(folder, &[arguments, &["--json"]].concat()).expect(0);
        let report = match done.stdout.lines().last() {
            Some(line) if line.contains("\"rejected\"") => line.to_owned(),
            _ => done.stderr.clone(),
        };
        assert!(report.contains("rejected"), "{arguments:?}: {done:#?}");
        run(folder, &[arguments, &["--fail-on-rejects"]].concat()).expect(3);
    }
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
