//! One model of several targets, from the rows to predictions and weights.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::support::{Random, files, pipeline, run};

const ROWS: u32 = 1200;

/// Names of the targets, and what one more of `u` and of `v` adds to each.
const TARGETS: [(&str, f64, f64); 3] = [
    ("low", 3.0, -2.0),
    ("high", 50_000.0, 10_000.0),
    ("mean, tiny", -0.000_25, 0.001),
];

fn target(place: usize, u: f64, v: f64) -> f64 {
    let (_, of_u, of_v) = TARGETS[place];
    let offset = [7.0, -1e6, 0.5][place];
    offset + of_u * u + of_v * v
}

/// Rows `rows` of two features and three linear targets; every 100th row lacks `low`, and every 60th `high`.
fn write_rows(path: &Path, rows: std::ops::Range<u32>) {
    let mut random = Random(u64::from(rows.start) + 11);
    let mut csv = "id,u,v,low,high,\"mean, tiny\",label\n".to_owned();
    for id in rows {
        let [u, v] = [0, 1].map(|_| random.below(2001) as f64 / 100.0 - 10.0);
        let cell = |place: usize, every: u32| match every > 0 && id % every == 5 {
            true => String::new(),
            false => target(place, u, v).to_string(),
        };
        let label = if u > 0.0 { "up" } else { "down" };
        let (low, high, tiny) = (cell(0, 100), cell(1, 60), cell(2, 0));
        writeln!(csv, "{id},{u},{v},{low},{high},{tiny},{label}").unwrap();
    }
    fs::write(path, csv).unwrap();
}

fn text(target: &str, dataset: &str, train: &str) -> String {
    format!(
        "[pipeline]\nname = \"rows\"\nroot = \"out\"\n\
         [[source]]\nname = \"rows\"\ntype = \"files\"\nurl = \"rows-*.csv\"\n\
         [dataset]\ntarget = {target}\nfeatures = [\"u\", \"v\"]\n\
         split = {{ by = \"range\", train = 0.5, validation = 0.25, test = 0.25 }}\n{dataset}\n\
         [train]\nmodel = {{ type = \"mlp\", hidden = [] }}\nbatch_size = 32\npatience = 0\n{train}\n"
    )
}

/// The step that a linear model sees through.
const STANDARDIZED: &str = "step = [{ type = \"standardize\" }]";

const LIST: &str = "[\"low\", \"high\", \"mean, tiny\"]";

const LINEAR: &str = "epochs = 60\nlearning_rate = 0.01";

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    run(folder, &[arguments, &["--json"]].concat())
        .expect(0)
        .json()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key]
        .as_f64()
        .unwrap_or_else(|| panic!("`{key}` in {value}"))
}

/// The best weights of the only run.
fn weights(folder: &Path) -> PathBuf {
    let all = files(&folder.join("out/train")).into_iter();
    let mut best = all.filter(|(path, _)| path.ends_with("best.safetensors"));
    let (path, _) = best.next().unwrap();
    folder.join("out/train").join(path)
}

#[test]
fn linear_targets_of_different_scales_are_learnt_measured_and_predicted_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_rows(&at.join("rows-0.csv"), 0..ROWS);
    let file = pipeline(at, &text(LIST, STANDARDIZED, LINEAR));
    let screen = run(at, &["run", file, "--verbose"]).expect(0).stdout;
    for part in [
        "test r2.high",
        "test rmse.mean, tiny",
        "12 without `low`",
        "16 without `high`",
        "over the targets as stored",
    ] {
        assert!(screen.contains(part), "`{part}` in {screen}");
    }
    let trained = &json(at, &["run", file])["train"];
    assert_eq!(trained["targets"], serde_json::json!(names()));
    check_metrics(&trained["test"], &trained["baseline"]);
    check_shown_targets(at);
    check_coefficients(at, file);
    check_measured_rows(at, file, trained);
    check_weights_by_name(at, file);
}

fn names() -> [&'static str; TARGETS.len()] {
    TARGETS.map(|(name, ..)| name)
}

/// Metrics of the test split and of the baseline, each of its target and of all.
fn check_metrics(test: &Value, baseline: &Value) {
    for name in names() {
        let [r2, guess] = [test, baseline].map(|of| number(of, &format!("r2.{name}")));
        assert!(r2 > 0.9999 && guess < 0.05, "{name}: {r2}, {guess}");
    }
    // In units, the errors are as far apart as the scales are.
    let [low, high] = ["low", "high"].map(|name| number(baseline, &format!("rmse.{name}")));
    assert!(low < 100.0 && high > 100_000.0, "{low} {high}");
    let of_all = number(baseline, "rmse");
    assert!((of_all - 1.0).abs() < 0.1, "{of_all}");
    assert!(number(test, "r2") > 0.9999);
}

/// The report of the run and `inspect` name each target.
fn check_shown_targets(folder: &Path) {
    let page = fs::read_to_string(weights(folder).with_file_name("report.html")).unwrap();
    assert!(
        page.contains("Predictions of mean, tiny, test split"),
        "{page}"
    );
    let dataset = format!("{}", folder.join("out/dataset").display());
    let inspected = run(folder, &["shards", "inspect", &dataset]).expect(0);
    let inspected = inspected.stdout;
    assert!(
        inspected.contains("3 numbers to predict") && inspected.contains("high: mean"),
        "{inspected}"
    );
    run(folder, &["shards", "verify", &dataset]).expect(0);
}

/// One more of a feature adds its coefficient to a prediction.
fn check_coefficients(folder: &Path, file: &str) {
    fs::write(folder.join("new.csv"), "u,v\n0,0\n1,0\n0,1\n,1\n").unwrap();
    let predictions = lines(&run(folder, &["predict", file, "new.csv"]).expect(0).stdout);
    for (place, (name, of_u, of_v)) in TARGETS.into_iter().enumerate() {
        let of = |row: usize| number(&predictions[row], &format!("prediction={name}"));
        let scale = of_u.abs().max(of_v.abs());
        for (found, expected) in [
            (of(0), target(place, 0.0, 0.0)),
            (of(1) - of(0), of_u),
            (of(2) - of(0), of_v),
        ] {
            let far = (found - expected).abs() / scale;
            assert!(far < 0.02, "{name}: {found}, {expected}");
        }
        assert_eq!(predictions[3][&format!("prediction={name}")], Value::Null);
    }
    assert_eq!(predictions[3]["error"], "missing_value");
}

/// Every row of the test split has truth and prediction of each target, the same as `predict` gives.
fn check_measured_rows(folder: &Path, file: &str, trained: &Value) {
    let test = &trained["test"];
    let measured = json(folder, &["eval", file, "--predictions", "test.ndjson"]);
    assert_eq!(measured["metrics"], *test);
    assert_eq!(measured["targets"], trained["targets"]);
    let rows = lines(&fs::read_to_string(folder.join("test.ndjson")).unwrap());
    assert_eq!(measured["rows"], rows.len());
    assert!(rows.len() > 250, "{}", rows.len());
    let predicted = lines(&run_predict(folder, file));
    let landed = fs::read_to_string(folder.join("rows-0.csv")).unwrap();
    let landed: Vec<&str> = landed.lines().skip(1).collect();
    let mut squares = 0.0;
    for row in &rows {
        let place = usize::try_from(row["row"].as_u64().unwrap()).unwrap();
        check_measured_row(row, &predicted[place], landed[place]);
        let [own, truth] = ["prediction=high", "truth=high"].map(|key| number(row, key));
        squares += (own - truth).powi(2);
    }
    let rmse: f64 = f64::sqrt(squares / rows.len() as f64);
    let expected = number(test, "rmse.high");
    assert!((rmse / expected - 1.0).abs() < 1e-6, "{rmse} {expected}");
}

/// A row of the test split, with its prediction by `predict` and the row as it landed.
fn check_measured_row(row: &Value, predicted: &Value, landed: &str) {
    let [_, u, v, ..] = landed.split(',').collect::<Vec<_>>()[..] else {
        panic!("{landed}")
    };
    let [u, v] = [u, v].map(|cell| cell.parse::<f64>().unwrap());
    for (of, name) in names().into_iter().enumerate() {
        let truth = number(row, &format!("truth={name}"));
        let expected = target(of, u, v);
        let far = (truth - expected).abs() / expected.abs().max(1.0);
        assert!(far < 1e-5, "{name}: {truth}, {expected}");
        let key = format!("prediction={name}");
        let [own, other] = [row, predicted].map(|of| number(of, &key));
        let spread = [50.0, 5e5, 0.01][of];
        assert!(
            (own - other).abs() < 1e-5 * spread,
            "{name}: {own}, {other}"
        );
    }
}

/// The exported weights name their outputs; another order is matched by name, and fewer are refused.
fn check_weights_by_name(folder: &Path, file: &str) {
    let exported = ["weights", "export", file, "--to", "w.safetensors"];
    run(folder, &exported).expect(0);
    let moved = text(
        "[\"mean, tiny\", \"high\", \"low\"]",
        STANDARDIZED,
        "epochs = 1\nlearning_rate = 1e-9\n\
        init = { from = \"w.safetensors\" }",
    );
    let moved = moved.replace("root = \"out\"", "root = \"other\"");
    fs::write(folder.join("moved.toml"), moved).unwrap();
    let moved = run(folder, &["run", "moved.toml", "--json"]).expect(0);
    assert!(
        moved.stderr.contains("were matched by name"),
        "{}",
        moved.stderr
    );
    let moved = &moved.json()["train"]["test"];
    for name in names() {
        let key = format!("r2.{name}");
        assert!(number(moved, &key) > 0.999, "{moved}");
    }
    let others = text(
        "[\"low\", \"high\"]",
        STANDARDIZED,
        "epochs = 1\ninit = { from = \"w.safetensors\" }",
    );
    let others = others.replace("root = \"out\"", "root = \"two\"");
    fs::write(folder.join("others.toml"), others).unwrap();
    let refused = run(folder, &["run", "others.toml"]).expect(2).stderr;
    assert!(
        refused.contains("the file has `mean, tiny`, the dataset has not")
            && refused.contains("train.init.replace"),
        "{refused}"
    );
}

#[test]
fn a_list_of_one_target_is_that_target_alone_and_the_bytes_are_those_of_before() {
    let folders = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let mut all = Vec::new();
    for (folder, target) in folders.iter().zip(["\"low\"", "[\"low\"]"]) {
        let at = folder.path();
        write_rows(&at.join("rows-0.csv"), 0..400);
        let file = pipeline(at, &text(target, "", "epochs = 2"));
        let report = run(at, &["run", file, "--json"]).expect(0).json();
        let bytes = fs::read(weights(at)).unwrap();
        let run = weights(at)
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_owned();
        let fingerprint = report["dataset"]["fingerprint"]
            .as_str()
            .unwrap()
            .to_owned();
        let predicted = run_predict(at, file);
        all.push((fingerprint, run, bytes, predicted));
    }
    assert!(all[0] == all[1]);
    // Names that stay as long as the formats do.
    let (fingerprint, run, _, predicted) = &all[0];
    assert_eq!(fingerprint, "599afc3b2bcde94dc953350a11684280");
    assert_eq!(run, "a4a06de32a1b40cd");
    assert!(
        predicted.starts_with("{\"row\":0,\"prediction\":"),
        "{predicted}"
    );
}

fn run_predict(at: &Path, file: &str) -> String {
    run(at, &["predict", file, "rows-0.csv"]).expect(0).stdout
}

#[test]
fn several_targets_keep_their_model_and_their_means_when_rows_are_added() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_rows(&at.join("rows-0.csv"), 0..ROWS);
    let dataset =
        "split = { train = 0.6, validation = 0.2, test = 0.2 }\n".to_owned() + STANDARDIZED;
    let all = text(LIST, &dataset, LINEAR);
    let by_range = "split = { by = \"range\", train = 0.5, validation = 0.25, test = 0.25 }\n";
    let file = pipeline(at, &all.replace(by_range, ""));
    let first = run(at, &["run", file, "--json"]).expect(0).json();
    let expected = run_predict(at, file);

    write_rows(&at.join("rows-1.csv"), ROWS..ROWS + 600);
    run(at, &["ingest", file]).expect(0);
    let grown = json(at, &["shards", "build", file]);
    assert!(grown["added"]["train"].as_u64().unwrap() > 200, "{grown}");
    assert_eq!(
        grown["rejected_targets"],
        serde_json::json!({ "high": 24, "low": 18 })
    );
    assert_eq!(run_predict(at, file), expected);
    let measured = json(at, &["eval", file]);
    assert_eq!(measured["run"]["relation"], "grown");
    assert_ne!(grown["fingerprint"], first["dataset"]["fingerprint"]);
    for (name, ..) in TARGETS {
        assert!(
            number(&measured["metrics"], &format!("r2.{name}")) > 0.9999,
            "{measured}"
        );
    }

    // The means that the baseline predicts are those of all training rows, each of its target.
    let name = fs::read_to_string(at.join("out/dataset/CURRENT")).unwrap();
    let manifest = fs::read_to_string(at.join("out/dataset").join(name.trim())).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let others = manifest["other_targets"].as_array().unwrap();
    let summaries = [&manifest["target"], &others[0], &others[1]];
    for (place, summary) in summaries.into_iter().enumerate() {
        assert_eq!(summary["rows"], grown["train"]);
        let (_, of_u, of_v) = TARGETS[place];
        let far = (number(summary, "mean") - target(place, 0.0, 0.0)).abs();
        // Both features are 0 on average.
        assert!(far < of_u.abs().max(of_v.abs()), "{place}: {summary}");
    }

    // A run of other targets, or of the same in another order, is not taken for one of these.
    for other in [
        "[\"high\", \"low\", \"mean, tiny\"]",
        "[\"low\", \"high\"]",
        "\"low\"",
    ] {
        let set = format!("dataset.target={other}");
        run(at, &["shards", "build", file, "--set", &set]).expect(0);
        let refused = run(at, &["eval", file, "--set", &set]).expect(1).stderr;
        assert!(refused.contains("`target`"), "{refused}");
    }
}

#[test]
fn a_target_that_is_a_feature_is_told_for_each_target() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_rows(&at.join("rows-0.csv"), 0..ROWS);
    let file = pipeline(at, &text("[\"high\", \"low\"]", "", ""));
    // `twice` is `low`, and no other target is a feature by default.
    let leaking = fs::read_to_string(at.join(file)).unwrap().replace(
        "features = [\"u\", \"v\"]",
        "drop = [\"id\", \"label\", \"mean, tiny\"]\nsql = \"select *, low * 2.0 + 1.0 as twice from rows\"",
    );
    fs::write(at.join("leaking.toml"), leaking).unwrap();
    run(at, &["ingest", "leaking.toml"]).expect(0);
    let built = json(at, &["shards", "build", "leaking.toml"]);
    let warnings: Vec<&str> = built["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|warning| warning["code"].as_str().unwrap().starts_with("target_"))
        .map(|warning| warning["message"].as_str().unwrap())
        .collect();
    let of = |target: &str| warnings.iter().filter(|text| text.contains(target)).count();
    assert_eq!(
        (of("`low` away"), of("`high` away")),
        (1, 0),
        "{warnings:?}"
    );
    // `high` is a sum of `u` and `v`.
    assert_eq!(of("the target `high` is a sum"), 1, "{warnings:?}");
    let manifest = fs::read_to_string(at.join("out/dataset/CURRENT")).unwrap();
    let manifest = fs::read_to_string(at.join("out/dataset").join(manifest.trim())).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["layout"]["features"], 3);
    assert_eq!(
        manifest["layout"]["target"],
        serde_json::json!({ "kind": "regressions", "targets": 2 })
    );
}

#[test]
fn what_does_not_go_with_several_targets_is_refused_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_rows(&at.join("rows-0.csv"), 0..300);
    let check = |target: &str, dataset: &str, code: i32, parts: &[&str]| {
        let file = pipeline(at, &text(target, dataset, ""));
        let refused = run(at, &["run", file]).expect(code).stderr;
        for part in parts {
            assert!(refused.contains(part), "`{part}` in {refused}");
        }
    };
    let both = "[\"low\", \"high\"]";
    check(
        "[\"low\", \"hihg\"]",
        "",
        2,
        &[
            "`dataset.target`",
            "there is no column `hihg`",
            "did you mean `high`?",
        ],
    );
    check(
        "[\"low\", \"label\"]",
        "",
        2,
        &[
            "`dataset.target`",
            "column `label` is not numeric",
            "columns of numbers, name others",
        ],
    );
    check(
        "[\"low\", \"high\", \"low\"]",
        "",
        2,
        &["`dataset.target`: `low` is listed twice"],
    );
    check("[]", "", 2, &["`dataset.target`: it lists no column"]);
    check("3", "", 2, &["dataset.target", "a list of names"]);
    check(
        both,
        "task = \"classification\"",
        2,
        &["`dataset.task`", "predicts numbers"],
    );
    check(
        both,
        "conflicts = \"first\"",
        2,
        &["`dataset.conflicts`", "name one target"],
    );
    check(
        "[\"low\", \"u\"]",
        "",
        2,
        &[
            "`dataset.features`",
            "`u` is one of the targets, a model would be given the answer",
        ],
    );
    check(
        both,
        "step = [{ type = \"categories\", columns = [\"u\"], encoding = \"target\" }]",
        2,
        &["`dataset.step.0.encoding`", "lists several", "`frequency`"],
    );
}

#[test]
fn windows_have_the_targets_of_the_row_that_is_ahead() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut csv = "at,u,v,low,high\n".to_owned();
    let mut random = Random(5);
    let mut before = [0.0; 2];
    for hour in 0..900 {
        let now = [0, 1].map(|_| random.below(2001) as f64 / 100.0 - 10.0);
        // Targets are made of the hour before.
        let [low, high] = [0, 1].map(|place| target(place, before[0], before[1]));
        writeln!(csv, "{hour},{},{},{low},{high}", now[0], now[1]).unwrap();
        before = now;
    }
    fs::write(at.join("rows-0.csv"), csv).unwrap();
    let dataset =
        "series = { time = \"at\", unit = \"s\" }\nsequence = { length = 2, horizon = 1 }\n"
            .to_owned()
            + STANDARDIZED;
    let file = pipeline(at, &text("[\"low\", \"high\"]", &dataset, LINEAR));
    let trained = run(at, &["run", file, "--json"]).expect(0).json();
    let test = &trained["train"]["test"];
    for name in ["low", "high"] {
        assert!(number(test, &format!("r2.{name}")) > 0.9999, "{test}");
    }
    let forecast = lines(&run(at, &["predict", file]).expect(0).stdout);
    assert_eq!(forecast.len(), 1, "{forecast:?}");
    for (place, name) in ["low", "high"].into_iter().enumerate() {
        let expected = target(place, before[0], before[1]);
        let found = number(&forecast[0], &format!("prediction={name}"));
        let far = (found - expected).abs() / [1.0, 50_000.0][place];
        assert!(far < 0.1, "{name}: {found}, {expected}");
    }
    assert_eq!(forecast[0]["target_time"], "1970-01-01T00:15:00Z");
}
