//! Features by name: weights that are taken from a dataset to one that has the features in another order.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::Value;

use crate::support::{Finished, Random, pipeline, run};

const ROWS: u32 = 600;

/// Numbers that the target depends on, each in another way.
fn write_rows(folder: &Path) {
    let mut random = Random(17);
    let mut csv = "a,b,c,d,y\n".to_owned();
    for _ in 0..ROWS {
        let [a, b, c, d] = [(); 4].map(|()| random.below(1000));
        let y = 8 * a + 2 * b + 1000 - c;
        writeln!(csv, "{a},{b},{c},{d},{y}").unwrap();
    }
    fs::write(folder.join("rows.csv"), csv).unwrap();
}

/// Lands, builds and trains on these features.
fn train(folder: &Path, features: &str, train: &str) -> Finished {
    write_rows(folder);
    let text = format!(
        "[pipeline]\nname = \"rows\"\nroot = \"out\"\n\
         [[source]]\nname = \"rows\"\ntype = \"files\"\nurl = \"rows.csv\"\n\
         [dataset]\ntarget = \"y\"\nfeatures = {features}\n\
         [train]\nmodel = {{ type = \"mlp\", hidden = [16] }}\nbatch_size = 50\n{train}\n"
    );
    let file = pipeline(folder, &text);
    run(folder, &["ingest", file]).expect(0);
    run(folder, &["shards", "build", file]).expect(0);
    run(folder, &["train", file, "--json"])
}

fn rmse(report: &Value) -> f64 {
    report["test"]["rmse"].as_f64().unwrap()
}

fn codes(report: &Value) -> Vec<&str> {
    let warnings = report["warnings"].as_array().map_or(&[][..], Vec::as_slice);
    warnings
        .iter()
        .map(|w| w["code"].as_str().unwrap())
        .collect()
}

/// Settings under which weights stay as they began.
fn still(from: &str) -> String {
    format!("epochs = 1\nlearning_rate = 1e-12\ninit = {{ from = \"{from}\" }}")
}

#[test]
fn weights_follow_features_in_another_order_and_other_features_are_refused() {
    let first = tempfile::tempdir().unwrap();
    let trained = train(
        first.path(),
        "[\"a\", \"b\", \"c\", \"d\"]",
        "epochs = 40\nlearning_rate = 0.02",
    );
    let trained = trained.expect(0).json();
    let export = first.path().join("weights.safetensors");
    let export = export.to_str().unwrap();
    let file = "pipeline.toml";
    run(first.path(), &["weights", "export", file, "--to", export]).expect(0);
    let checkpoint = trained["checkpoint"].as_str().unwrap();
    for from in [checkpoint, export] {
        let other = tempfile::tempdir().unwrap();
        let moved = train(other.path(), "[\"d\", \"c\", \"b\", \"a\"]", &still(from));
        let moved = moved.expect(0).json();
        assert_eq!(codes(&moved), ["moved_features"], "{moved}");
        let (before, after) = (rmse(&trained), rmse(&moved));
        assert!(
            (before - after).abs() < 0.01 * before,
            "{before} then {after}"
        );
    }
    let other = tempfile::tempdir().unwrap();
    let refused = train(other.path(), "[\"a\", \"b\", \"c\"]", &still(export));
    let refused = refused.expect(2).stderr;
    for part in [
        "the file has `d`, the dataset has not",
        "`train.init.replace",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}
