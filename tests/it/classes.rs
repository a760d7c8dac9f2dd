//! Classes by name: datasets that give them other ids, and weights that are taken from one to the other.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::Value;

use crate::support::{Finished, Random, pipeline, run};

const ROWS: u32 = 900;

/// Points of a square and the third of it that they are in. `right` comes most often, `middle` least.
fn write_points(folder: &Path) {
    let mut random = Random(5);
    let mut csv = "x,y,place\n".to_owned();
    for _ in 0..ROWS {
        let (x, y) = (random.below(1000), random.below(1000));
        let place = match x {
            0..300 => "left",
            300..450 => "middle",
            _ => "right",
        };
        writeln!(csv, "{x},{y},{place}").unwrap();
    }
    fs::write(folder.join("points.csv"), csv).unwrap();
}

/// Writes the points and a pipeline with these keys of `[dataset]` and `[train]`.
fn write(folder: &Path, dataset: &str, train: &str) -> &'static str {
    write_points(folder);
    let text = format!(
        "[pipeline]\nname = \"points\"\nroot = \"out\"\n\
         [[source]]\nname = \"points\"\ntype = \"files\"\nurl = \"points.csv\"\n\
         [dataset]\ntarget = \"place\"\ntask = \"classification\"\n{dataset}\n\
         [train]\nmodel = {{ type = \"mlp\", hidden = [16] }}\nbatch_size = 50\n{train}\n"
    );
    pipeline(folder, &text)
}

/// Lands and builds; the build ends with this exit code.
fn build(folder: &Path, file: &str) -> Value {
    run(folder, &["ingest", file]).expect(0);
    run(folder, &["shards", "build", file, "--json"])
        .expect(0)
        .json()
}

fn train(folder: &Path, file: &str) -> Finished {
    build(folder, file);
    run(folder, &["train", file, "--json"])
}

fn accuracy(report: &Value) -> f64 {
    report["test"]["accuracy"].as_f64().unwrap()
}

/// Settings under which weights stay as they began.
fn still(from: &str) -> String {
    format!("epochs = 1\nlearning_rate = 1e-12\ninit = {{ from = \"{from}\" }}")
}

#[test]
fn weights_keep_their_accuracy_on_a_build_whose_classes_have_another_order() {
    let first = tempfile::tempdir().unwrap();
    let file = write(first.path(), "", "epochs = 60\nlearning_rate = 0.02");
    let trained = train(first.path(), file).expect(0).json();
    assert!(accuracy(&trained) > 0.9, "{trained}");
    assert_eq!(
        trained["classes"],
        serde_json::json!(["left", "middle", "right"])
    );
    let export = first.path().join("weights.safetensors");
    let export = export.to_str().unwrap();
    run(first.path(), &["weights", "export", file, "--to", export]).expect(0);

    let checkpoint = trained["checkpoint"].as_str().unwrap();
    for from in [checkpoint, export] {
        let other = tempfile::tempdir().unwrap();
        let listed = "classes = [\"right\", \"left\", \"middle\"]";
        let file = write(other.path(), listed, &still(from));
        let done = train(other.path(), file).expect(0);
        let moved = done.json();
        assert_eq!(
            moved["classes"],
            serde_json::json!(["right", "left", "middle"])
        );
        let difference = (accuracy(&moved) - accuracy(&trained)).abs();
        assert!(difference < 0.01, "{from}: {trained} then {moved}");
        let warnings = moved["warnings"].as_array().unwrap();
        let is_of_order = |warning: &Value| warning["code"] == "reordered_outputs";
        assert!(warnings.iter().any(is_of_order), "{moved}");
    }
}

#[test]
fn weights_of_other_classes_are_refused_with_their_names_and_the_layer_to_replace() {
    let first = tempfile::tempdir().unwrap();
    let file = write(first.path(), "", "epochs = 1");
    let trained = train(first.path(), file).expect(0).json();
    let checkpoint = trained["checkpoint"].as_str().unwrap();
    let other = tempfile::tempdir().unwrap();
    // Rows of `middle` are rejected.
    let listed = "classes = [\"left\", \"right\", \"above\"]\nmax_reject_fraction = 0.5";
    let file = write(other.path(), listed, &still(checkpoint));
    let built = build(other.path(), file);
    assert!(
        built["rejected_by_reason"]["unlisted_class"]
            .as_u64()
            .unwrap()
            > 0,
        "{built}"
    );
    let inspected = run(other.path(), &["shards", "inspect", "out/dataset"]).expect(0);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let inspected = words(&inspected.stdout);
    for part in [
        "classes place: 3, by id class 0 \"left\": ",
        "class 2 \"above\": 0 train, 0 validation, 0 test",
        "warning unlisted classes: ",
    ] {
        assert!(inspected.contains(part), "{part}: {inspected}");
    }
    let refused = words(&run(other.path(), &["train", file]).expect(2).stderr);
    for part in [
        "the dataset has `above`, the file has not; the file has `middle`, the dataset has not",
        "`train.init.replace = [\"layer.1.*\"]`",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let replace = "train.init.replace=[\"layer.1.*\"]";
    run(other.path(), &["train", file, "--set", replace]).expect(0);
    let weights = "train.loss.class_weights={ left = 2.0, middle = 3.0 }";
    let set = ["train", file, "--set", replace, "--set", weights];
    let unknown = words(&run(other.path(), &set).expect(2).stderr);
    assert!(
        unknown.contains("no class `middle`; its classes are `left`, `right`, `above`"),
        "{unknown}"
    );
}
