//! Weights of PyTorch: in by `[train.init]`, out by `weights export`, with the outputs that PyTorch computes.

use std::{env, fmt::Write as _, fs, path::Path, process::Command};

use serde_json::Value;

use crate::support::{Finished, Random, finish, pipeline, python, run};

const PIPELINE: &str = r#"
[pipeline]
name = "rows"
root = "out"

[[source]]
name = "rows"
type = "files"
url = "rows.csv"

[dataset]
target = "y"

[train]
model = { type = "mlp", hidden = [16, 16] }
epochs = 1
learning_rate = 1e-12
batch_size = 64

[train.init]
from = "FROM"
rename = [["0.*", "layer.0.*"], ["2.*", "layer.1.*"], ["4.*", "layer.2.*"]]
"#;

/// Sixteen features and a target.
fn write_rows(folder: &Path) {
    let mut random = Random(11);
    let names: Vec<String> = (0..16).map(|i| format!("f{i}")).collect();
    let mut csv = format!("{},y\n", names.join(","));
    for _ in 0..400 {
        let cells: Vec<u64> = (0..16).map(|_| random.below(1000)).collect();
        for cell in &cells {
            write!(csv, "{cell}.5,").unwrap();
        }
        writeln!(csv, "{}.25", cells[0] + 2 * cells[1]).unwrap();
    }
    fs::write(folder.join("rows.csv"), csv).unwrap();
}

/// Python with numpy, and with PyTorch where `FEEDLINE_TORCH_PYTHON` names one that has it.
fn python_of_weights() -> Option<Command> {
    match env::var_os("FEEDLINE_TORCH_PYTHON") {
        Some(path) => Some(Command::new(path)),
        None => python("numpy"),
    }
}

fn script(arguments: &[&str]) -> Option<Finished> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/weights.py");
    let mut python = python_of_weights()?;
    Some(finish(python.arg(file).args(arguments).output().unwrap()).expect(0))
}

/// Predicts all rows, and compares with what the weights in `weights` compute.
fn check(folder: &Path, pipeline: &[&str], weights: &Path) {
    let predict = [&["predict"], pipeline, &["--to"]].concat();
    run(folder, &[&predict[..], &["y.ndjson", "rows.csv"]].concat()).expect(0);
    let features = [&predict[..], &["x.ndjson", "rows.csv", "--transform-only"]].concat();
    run(folder, &features).expect(0);
    let entries = fs::read_dir(folder.join("out/dataset")).unwrap();
    let mut names = entries.map(|entry| entry.unwrap().path());
    let is_transform = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("transform-")
    };
    let transform = names.find(is_transform).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let checked = script(&[
        "check",
        weights.to_str().unwrap(),
        &path("x.ndjson"),
        &path("y.ndjson"),
        transform.to_str().unwrap(),
    ]);
    eprintln!("{}: {}", weights.display(), checked.unwrap().stdout);
}

#[test]
fn weights_of_torch_with_square_layers_predict_the_same_in_and_out_and_no_layout_is_guessed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if script(&["make", folder.to_str().unwrap()]).is_none() {
        return;
    }
    write_rows(folder);
    for (name, layout, other) in [("torch", "torch", "feedline"), ("own", "feedline", "torch")] {
        let weights = folder.join(format!("{name}.safetensors"));
        let text = PIPELINE.replace("FROM", weights.to_str().unwrap());
        let file = pipeline(folder, &text);
        run(folder, &["ingest", file]).expect(0);
        run(folder, &["shards", "build", file]).expect(0);
        let refused = run(folder, &["train", file]).expect(2).stderr;
        assert!(refused.contains("`train.init.layout`"), "{refused}");
        assert!(
            refused.contains("a square matrix does not say"),
            "{refused}"
        );
        let set = format!("train.init.layout={other}");
        let refused = run(folder, &["train", file, "--set", &set])
            .expect(2)
            .stderr;
        assert!(refused.contains("as `train.init.layout` says"), "{refused}");
        let set = format!("train.init.layout={layout}");
        let own = [file, "--set", &set];
        run(folder, &[&["train"], &own[..]].concat()).expect(0);
        check(folder, &own, &weights);

        // Out in both layouts, and in again without a key.
        for out in ["torch", "feedline"] {
            let exported = folder.join(format!("{name}-as-{out}.safetensors"));
            let to = exported.to_str().unwrap();
            let export = [
                &["weights", "export"],
                &own[..],
                &["--to", to, "--layout", out],
            ];
            run(folder, &export.concat()).expect(0);
            check(folder, &own, &exported);
            let from = format!("train.init.from={to}");
            // Its tensors have the names of the model.
            let again = [file, "--set", &from, "--set", "train.init.rename=[]"];
            // Both files may hold the same bytes, which name the same run.
            run(folder, &[&["train", "--resume"], &again[..]].concat()).expect(0);
            check(folder, &again, &exported);
        }
    }
}

#[test]
fn check_reports_weights_that_are_missing_or_of_another_model_before_a_training() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_rows(folder);
    let (text, _) = PIPELINE.split_once("[train.init]").unwrap();
    let file = pipeline(folder, &text.replace("rows.csv", "rows*.csv"));
    let check = |from: &str, more: &[&str], code: i32| {
        let init = format!("train.init={{ from = {from:?} }}");
        let check = [&["check", file, "--json", "--set", &init], more].concat();
        run(folder, &check).expect(code).json()
    };
    let only_problem = |report: &Value| {
        let problems = report["problems"].as_array().unwrap();
        assert_eq!(problems.len(), 1, "{report}");
        let problem = problems[0].as_str().unwrap().to_owned();
        assert!(problem.contains("train.init.from"), "{problem}");
        problem
    };
    let missing = only_problem(&check("base.safetensors", &[], 2));
    assert!(missing.contains("does not exist"), "{missing}");
    fs::write(folder.join("note.safetensors"), "a note").unwrap();
    let note = only_problem(&check("note.safetensors", &[], 2));
    assert!(note.contains("not a safetensors file"), "{note}");

    run(folder, &["run", file]).expect(0);
    let init = "train.init={ from = \"base.safetensors\" }";
    let refused = run(folder, &["train", file, "--set", init]).expect(2);
    assert!(refused.stderr.contains("train.init.from"), "{refused:#?}");
    let export = ["weights", "export", file, "--to", "base.safetensors"];
    run(folder, &export).expect(0);
    let same = check("base.safetensors", &[], 0);
    assert_eq!(same["train"]["init"]["warnings"], serde_json::json!([]));
    assert!(same["train"]["init"]["unchecked"].is_null(), "{same}");
    let wider = ["--set", "train.model.hidden=[8, 16]"];
    let wider = only_problem(&check("base.safetensors", &wider, 2));
    assert!(wider.contains("the model's is"), "{wider}");
    // The dataset of these settings is not built yet.
    for other in ["dataset.drop=[\"f3\"]", "pipeline.root=elsewhere"] {
        let other = check("base.safetensors", &["--set", other], 0);
        let reason = other["train"]["init"]["unchecked"].as_str().unwrap();
        assert!(reason.contains("once the dataset is built"), "{reason}");
    }
    // A dataset that is named is read as it is.
    let drop = "dataset.drop=[\"f3\"]";
    let named = ["--set", "train.dataset=\"out/dataset\"", "--set", drop];
    let named = check("base.safetensors", &named, 0);
    assert!(named["train"]["init"]["unchecked"].is_null(), "{named}");
    // Without requests, weights and datasets on this machine are read, and no others.
    let offline = check("base.safetensors", &["--offline"], 0);
    assert!(offline["train"]["init"]["unchecked"].is_null(), "{offline}");
    let remote = check("memory:///base.safetensors", &["--offline"], 0);
    let reason = remote["train"]["init"]["unchecked"].as_str().unwrap();
    assert!(reason.starts_with("the weights are not read"), "{reason}");
    // The next run builds the dataset again, for a column that has landed since.
    let mut more = String::new();
    let rows = fs::read_to_string(folder.join("rows.csv")).unwrap();
    for (i, line) in rows.lines().enumerate() {
        let cell = if i == 0 { "more" } else { "0.5" };
        writeln!(more, "{cell},{line}").unwrap();
    }
    fs::write(folder.join("rows2.csv"), more).unwrap();
    run(folder, &["ingest", file]).expect(0);
    let landed = check("base.safetensors", &[], 0);
    let reason = landed["train"]["init"]["unchecked"].as_str().unwrap();
    assert!(
        reason.contains("from all rows that have landed"),
        "{reason}"
    );
}
