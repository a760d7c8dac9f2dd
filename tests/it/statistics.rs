//! Figures that have to be right: baselines and weights of datasets that grow, models that are no better than a baseline,
//! metrics over all tokens.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::{Value, json};

use crate::support::{Random, pipeline, run};

/// Rows of two features that say nothing of the target, to a file of their own.
fn write_rows(
    folder: &Path,
    name: &str,
    rows: u64,
    seed: u64,
    target: impl Fn(&mut Random) -> String,
) {
    let mut random = Random(seed);
    let mut csv = "a,b,y\n".to_owned();
    for _ in 0..rows {
        let (a, b) = (random.below(1_000_000), random.below(1_000_000));
        writeln!(csv, "{a},{b},{}", target(&mut random)).unwrap();
    }
    fs::write(folder.join(name), csv).unwrap();
}

/// A pipeline over `rows-*.csv` with these keys of `[dataset]` and `[train]`.
fn write_pipeline(folder: &Path, dataset: &str, train: &str) -> &'static str {
    let text = format!(
        "[pipeline]\nname = \"rows\"\nroot = \"out\"\n\
         [[source]]\nname = \"rows\"\ntype = \"files\"\nurl = \"rows-*.csv\"\n\
         [dataset]\ntarget = \"y\"\n{dataset}\n\
         [train]\nmodel = {{ type = \"mlp\", hidden = [8] }}\n{train}\n"
    );
    pipeline(folder, &text)
}

fn json_of(folder: &Path, arguments: &[&str]) -> Value {
    run(folder, &[arguments, &["--json"]].concat())
        .expect(0)
        .json()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn baseline_and_balanced_weights_of_a_grown_dataset_are_those_of_all_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = write_pipeline(
        at,
        "task = \"classification\"",
        "epochs = 3\nlearning_rate = 0.01\nrequire_better_than_baseline = \"ignore\"",
    );
    let label = |share: u64| {
        move |random: &mut Random| {
            let label = if random.below(100) < share { "A" } else { "B" };
            label.to_owned()
        }
    };
    write_rows(at, "rows-1.csv", 1_000, 1, label(90));
    run(at, &["ingest", file]).expect(0);
    run(at, &["shards", "build", file]).expect(0);
    write_rows(at, "rows-2.csv", 9_000, 2, label(10));
    run(at, &["ingest", file]).expect(0);
    let built = run(at, &["shards", "build", file, "--json"]).expect(0);
    let report = built.json();
    let shifts = report["added"]["shifts"].as_array().unwrap();
    let shift = shifts.iter().find(|shift| shift["feature"] == "y=A");
    let shift = shift.unwrap_or_else(|| panic!("{report}"));
    assert!(number(&shift["before"]) > 0.85 && number(&shift["after"]) < 0.15);
    assert!(built.stderr.contains("y=A"), "{}", built.stderr);

    // Most rows are of class B now: a model that learnt nothing is no better than naming it.
    let trained = json_of(at, &["train", file]);
    let (found, base) = (&trained["test"], &trained["baseline"]);
    assert!(number(&base["accuracy"]) > 0.78, "{trained}");
    assert!(number(&base["cross_entropy"]) < 0.55, "{trained}");
    let gain = number(&found["accuracy"]) - number(&base["accuracy"]);
    assert!(gain.abs() < 0.02, "{trained}");

    // Balanced weights make both classes as likely, whichever is the majority.
    let balanced = "train.loss.class_weights=\"balanced\"";
    let trained = json_of(at, &["train", file, "--set", balanced]);
    let surprise = number(&trained["test"]["cross_entropy"]);
    assert!((surprise - 2.0_f64.ln()).abs() < 0.05, "{trained}");
}

#[test]
fn the_baseline_of_a_grown_regression_predicts_the_mean_of_all_training_rows() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = write_pipeline(at, "", "epochs = 1\nlearning_rate = 1e-12");
    let around = |mean: f64| {
        move |random: &mut Random| {
            let noise = random.below(2_000_001);
            let noise = u32::try_from(noise).unwrap();
            format!("{}", mean + f64::from(noise) / 1e6 - 1.0)
        }
    };
    write_rows(at, "rows-1.csv", 300, 3, around(0.0));
    run(at, &["ingest", file]).expect(0);
    run(at, &["shards", "build", file]).expect(0);
    write_rows(at, "rows-2.csv", 2_700, 4, around(10.0));
    run(at, &["ingest", file]).expect(0);
    run(at, &["shards", "build", file]).expect(0);
    let manifest = fs::read_to_string(at.join("out/dataset/CURRENT")).unwrap();
    let manifest = fs::read_to_string(at.join("out/dataset").join(manifest.trim())).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(manifest["target"]["rows"], manifest["counts"]["train"]);
    let mean = number(&manifest["target"]["mean"]);
    assert!((mean - 9.0).abs() < 0.2, "{mean}");
    let trained = json_of(at, &["train", file]);
    let r2 = number(&trained["baseline"]["r2"]);
    assert!(r2.abs() < 0.05, "{trained}");
    let measured = json_of(at, &["eval", file]);
    assert_eq!(measured["baseline"], trained["baseline"]);
}

#[test]
fn a_dataset_of_other_settings_is_said_to_be_where_it_is_trained_on_or_measured() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = write_pipeline(at, "", "epochs = 1");
    write_rows(at, "rows-1.csv", 300, 3, |random| {
        random.below(1000).to_string()
    });
    run(at, &["run", file]).expect(0);
    let codes = |arguments: &[&str]| {
        let report = json_of(at, arguments);
        let warnings = report["warnings"].as_array().cloned().unwrap_or_default();
        warnings
            .iter()
            .any(|w| w["code"] == "dataset_settings_changed")
    };
    // Rows that have landed since are no other settings.
    write_rows(at, "rows-2.csv", 50, 4, |random| {
        random.below(1000).to_string()
    });
    run(at, &["ingest", file]).expect(0);
    assert!(!codes(&["eval", file]));
    assert!(!codes(&["eval", file, "--set", "train.epochs=2"]));
    let changed = [
        "--set",
        "dataset.split.train=0.7",
        "--set",
        "dataset.split.test=0.2",
    ];
    assert!(codes(&[&["eval", file][..], &changed].concat()));
    assert!(codes(
        &[&["train", file, "--resume"][..], &changed].concat()
    ));
}

#[test]
fn predictions_and_searches_on_a_dataset_of_other_settings_are_said_to_be_that() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let search = "[tune]\ntrials = 2\n[[tune.parameter]]\nkey = \"train.learning_rate\"\nvalues = [0.01, 0.02]";
    let file = write_pipeline(at, "", &format!("epochs = 1\n{search}"));
    write_rows(at, "rows-1.csv", 300, 3, |random| {
        random.below(1000).to_string()
    });
    run(at, &["run", file]).expect(0);
    let has_warning = |report: &Value| {
        let warnings = report["warnings"].as_array().into_iter().flatten();
        warnings
            .filter(|w| w["code"] == "dataset_settings_changed")
            .count()
            == 1
    };
    let changed = [
        "--set",
        "dataset.split.train=0.7",
        "--set",
        "dataset.split.test=0.2",
    ];
    let predict = ["predict", file, "rows-1.csv", "--to", "predictions.csv"];
    let same = json_of(at, &predict);
    assert!(
        !has_warning(&same) && same["used"]["relation"] == "same",
        "{same}"
    );
    let predict = [&predict[..], &changed].concat();
    let other = json_of(at, &predict);
    assert!(
        has_warning(&other) && other["used"]["relation"].is_null(),
        "{other}"
    );
    let shown = run(at, &predict).expect(0).stdout;
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let part = "and the existing dataset, which was built with other settings";
    assert!(shown.contains(part), "{shown}");
    let tune = ["tune", file];
    assert!(!has_warning(&json_of(at, &tune)["train"]));
    let searched = json_of(at, &[&tune[..], &changed].concat());
    assert!(has_warning(&searched["train"]), "{searched}");
}

#[test]
fn a_dataset_of_other_settings_is_said_to_be_where_it_is_planned_on_or_exported() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = write_pipeline(at, "", "epochs = 1");
    write_rows(at, "rows-1.csv", 300, 3, |random| {
        random.below(1000).to_string()
    });
    let changed = [
        "--set",
        "dataset.split.train=0.7",
        "--set",
        "dataset.split.test=0.2",
    ];
    let codes = |arguments: &[&str]| {
        let report = json_of(at, arguments);
        let warnings = report["warnings"].as_array().cloned().unwrap_or_default();
        let codes = warnings.iter().map(|w| w["code"].as_str().unwrap());
        codes.map(str::to_owned).collect::<Vec<_>>()
    };
    run(at, &["ingest", file]).expect(0);
    // Nothing is built yet.
    assert!(codes(&[&["plan", file][..], &changed].concat()).is_empty());
    run(at, &["shards", "build", file]).expect(0);
    let export = ["export", file, "--format", "parquet", "--overwrite", "--to"];
    let of_dataset = [&export[..], &["dataset"]].concat();
    let of_source = [&export[..], &["source", "--source", "rows"]].concat();
    for command in [&["plan", file][..], &of_dataset[..], &of_source[..]] {
        assert!(codes(command).is_empty(), "{command:?}");
    }
    for command in [&["plan", file][..], &of_dataset[..]] {
        let found = codes(&[command, &changed].concat());
        assert_eq!(found, ["dataset_settings_changed"], "{command:?}");
    }
    assert!(codes(&[&of_source[..], &changed].concat()).is_empty());
    // Settings that no build accepts are other ones too.
    let refused = ["--set", "dataset.expect.file=absent.toml"];
    for command in [&["plan", file][..], &of_dataset[..], &["train", file][..]] {
        let report = json_of(at, &[command, &refused].concat());
        let warnings = report["warnings"].as_array().unwrap();
        let changed = |w: &&Value| w["code"] == "dataset_settings_changed";
        let warning = warnings.iter().find(changed).unwrap();
        assert_eq!(warning["key"], "dataset.expect.file", "{command:?}");
        let message = warning["message"].as_str().unwrap();
        assert!(message.contains("absent.toml` does not exist"), "{message}");
    }
    let shown = run(at, &[&of_dataset[..], &changed].concat()).expect(0);
    let part = "the exported rows are those of the existing dataset";
    assert!(shown.stdout.contains(part) && shown.stderr.contains(part));
}

#[test]
fn a_mixture_of_datasets_of_one_source_is_said_to_leak() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = write_pipeline(at, "", "epochs = 1");
    write_rows(at, "rows-1.csv", 300, 3, |random| {
        random.below(1000).to_string()
    });
    run(at, &["ingest", file]).expect(0);
    // Nothing is fitted, so that a number means the same in both.
    let plain = [
        "--set",
        "dataset.step=[]",
        "--set",
        "dataset.scale_target=false",
    ];
    run(at, &[&["shards", "build", file][..], &plain].concat()).expect(0);
    fs::rename(at.join("out/dataset"), at.join("other")).unwrap();
    let salt = [&plain[..], &["--set", "dataset.split.salt=x"]].concat();
    run(at, &[&["shards", "build", file][..], &salt].concat()).expect(0);
    let sources = format!(
        "train.mixture.sources=[{{weight=0.7}},{{dataset={:?},weight=0.3}}]",
        at.join("other")
    );
    let mixed = [&["train", file, "--set", &sources][..], &salt].concat();
    let report = json_of(at, &mixed);
    let warnings = report["warnings"].as_array().unwrap();
    let leak = warnings
        .iter()
        .find(|w| w["code"] == "mixture_shares_sources");
    let message = leak.map(|leak| leak["message"].as_str().unwrap().to_owned());
    let counts_rows = |message: String| message.contains(" rows of the test split");
    assert!(message.is_some_and(counts_rows), "{report}");
}

#[test]
fn a_model_worse_than_its_baseline_is_said_to_be_and_fails_where_it_must() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // Weights stay as they began.
    let file = write_pipeline(at, "", "epochs = 3\nlearning_rate = 1e-12");
    write_rows(at, "rows-1.csv", 600, 5, |random| {
        random.below(1000).to_string()
    });
    run(at, &["ingest", file]).expect(0);
    run(at, &["shards", "build", file]).expect(0);
    let shown = run(at, &["train", file]).expect(0).stdout;
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "train worse than baseline: rmse on the validation split is",
        "of a baseline that looks at no feature; see `train.require_better_than_baseline`",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let again = |policy: &str, code: i32| {
        let set = format!("train.require_better_than_baseline=\"{policy}\"");
        let trained = run(at, &["train", file, "--resume", "--json", "--set", &set]);
        trained.expect(code).json()
    };
    // The policy names no other run.
    let failed = again("fail", 1);
    assert_eq!(failed["warnings"][0]["code"], "worse_than_baseline");
    assert_eq!(
        failed["warnings"][0]["key"],
        "train.require_better_than_baseline"
    );
    let report = failed["report"].as_str().unwrap();
    let page = fs::read_to_string(at.join(report.trim_start_matches("file://"))).unwrap();
    assert!(page.contains("Worse than the baseline."));
    let ignored = again("ignore", 0);
    assert_eq!(ignored.get("warnings"), None);
    assert_eq!(ignored["checkpoint"], failed["checkpoint"]);
    let measured = json_of(at, &["eval", file, "--split", "validation"]);
    assert_eq!(measured["warnings"][0]["code"], "worse_than_baseline");
}

#[test]
fn training_rows_encoded_by_the_target_are_said_to_be_when_they_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut random = Random(6);
    let mut csv = "city,a,y\n".to_owned();
    for _ in 0..600 {
        let city = random.below(9);
        writeln!(
            csv,
            "c{city},{},{}",
            random.below(1000),
            10 * city + random.below(9)
        )
        .unwrap();
    }
    fs::write(at.join("rows-1.csv"), csv).unwrap();
    let steps =
        "step = [{ type = \"standardize\" }, { type = \"categories\", encoding = \"target\" }]";
    let file = write_pipeline(at, steps, "epochs = 2");
    run(at, &["run", file]).expect(0);
    let warning_of = |split: &str| {
        let report = json_of(at, &["eval", file, "--split", split]);
        let warnings = report["warnings"].as_array().cloned().unwrap_or_default();
        let mut warnings = warnings.into_iter();
        warnings.find(|w| w["code"] == "target_encoded_training_rows")
    };
    let warning = warning_of("train").unwrap();
    assert_eq!(warning["findings"][0]["columns"][0]["name"], "city");
    assert_eq!(warning_of("validation"), None);
}

#[test]
fn a_search_of_the_loss_is_by_a_metric_that_losses_of_all_kinds_have() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write_rows(at, "rows-1.csv", 400, 7, |random| {
        random.below(1000).to_string()
    });
    let tune = |metric: &str| {
        let search = format!(
            "epochs = 2\n[tune]\nstrategy = \"grid\"\n{metric}\n\
             [[tune.parameter]]\nkey = \"train.loss.type\"\nvalues = [\"mse\", \"huber\", \"mae\"]\n"
        );
        write_pipeline(at, "", &search)
    };
    let file = tune("");
    run(at, &["ingest", file]).expect(0);
    run(at, &["shards", "build", file]).expect(0);
    let found = json_of(at, &["tune", file]);
    assert_eq!(found["metric"], "rmse");
    tune("metric = \"loss\"");
    let refused = run(at, &["tune", file]).expect(2).stderr;
    for part in ["tune.metric", "`train.loss.type` is searched", "`rmse`"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}

#[test]
fn all_tokens_but_the_first_of_a_document_count_in_metrics_however_documents_are_packed() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut random = Random(8);
    let mut lines = String::new();
    for document in 0..60 {
        let length = 60 + random.below(200);
        let text: String = (0..length)
            .map(|_| char::from(b'a' + u8::try_from(random.below(6)).unwrap()))
            .collect();
        writeln!(lines, "{}", json!({ "id": document, "text": text })).unwrap();
    }
    fs::write(at.join("rows.jsonl"), lines).unwrap();
    let text = "[pipeline]\nname = \"text\"\nroot = \"out\"\n\
         [[source]]\nname = \"rows\"\ntype = \"files\"\nurl = \"rows.jsonl\"\n\
         [dataset]\nkind = \"characters\"\n\
         [train]\nepochs = 1\nbatch_size = 8\n\
         model = { type = \"transformer\", layers = 1, width = 8, heads = 1, context = 16 }\n";
    let file = pipeline(at, text);
    run(at, &["ingest", file]).expect(0);
    let built = json_of(at, &["shards", "build", file]);
    let characters = built["tokens"]["test"].as_u64().unwrap();
    let documents = built["test"].as_u64().unwrap();
    let tokens = |pack: &str, context: u32| {
        let pack = format!("train.loader.pack=\"{pack}\"");
        let context = format!("train.model.context={context}");
        let trained = json_of(at, &["train", file, "--set", &pack, "--set", &context]);
        trained["test_tokens"].as_u64().unwrap()
    };
    let expected = characters - documents;
    assert_eq!(tokens("best_fit", 16), expected);
    assert_eq!(tokens("fill", 16), expected);
    assert_eq!(tokens("best_fit", 24), expected);
}

#[test]
fn a_column_of_which_one_row_is_all_the_variance_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut random = Random(9);
    let mut csv = "a,b,y\n".to_owned();
    for row in 0..900 {
        let a = match row {
            7 => "1e300".to_owned(),
            _ => random.below(1000).to_string(),
        };
        let y = match row {
            11 => "1e38".to_owned(),
            _ => random.below(1000).to_string(),
        };
        writeln!(csv, "{a},{},{y}", random.below(1000)).unwrap();
    }
    fs::write(at.join("rows-1.csv"), csv).unwrap();
    let file = write_pipeline(
        at,
        "step = [{ type = \"standardize\" }]\nsplit = { by = \"range\" }",
        "epochs = 1",
    );
    run(at, &["ingest", file]).expect(0);
    let built = json_of(at, &["shards", "build", file]);
    let warnings = built["warnings"].as_array().unwrap();
    let of_code = warnings
        .iter()
        .filter(|w| w["code"] == "one_row_is_the_variance");
    let found: Vec<[&str; 2]> = of_code
        .map(|w| ["message", "key"].map(|name| w[name].as_str().unwrap()))
        .collect();
    let [[feature, of_feature], [target, of_target]] = found[..] else {
        panic!("{built}")
    };
    assert!(feature.contains("of `a`:"), "{feature}");
    assert!(feature.contains("`winsorize`"), "{feature}");
    assert_eq!(of_feature, "dataset.step");
    // No step changes a target.
    assert!(target.contains("of the target `y`:"), "{target}");
    assert!(!target.contains("`winsorize`"), "{target}");
    assert_eq!(of_target, "dataset.expect");
}

#[test]
fn batch_norm_is_the_same_on_two_ranks_where_the_last_batch_is_short() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let train = "epochs = 3\nlearning_rate = 0.01\n";
    let file = write_pipeline(at, "split = { by = \"range\" }", train);
    let text = fs::read_to_string(at.join(file)).unwrap();
    let normed = text.replace("hidden = [8] }", "hidden = [8], norm = \"batch\" }");
    fs::write(at.join(file), normed).unwrap();
    // 560 training rows: batches of 256, 256 and 48.
    write_rows(at, "rows-1.csv", 700, 10, |random| {
        random.below(1000).to_string()
    });
    run(at, &["ingest", file]).expect(0);
    run(at, &["shards", "build", file]).expect(0);
    let one = json_of(at, &["train", file]);
    fs::remove_dir_all(at.join("out/train")).unwrap();
    let two = run(at, &["train", file, "--ranks", "2", "--json"]).expect(0);
    assert_eq!(two.json()["test"], one["test"]);
    assert!(!two.stderr.contains("learns otherwise"), "{}", two.stderr);
    fs::remove_dir_all(at.join("out/train")).unwrap();
    // One ghost batch is not shared out.
    let whole = ["--set", "train.model.ghost_batch=256"];
    let two = run(at, &[&["train", file, "--ranks", "2"], &whole[..]].concat()).expect(0);
    assert!(two.stderr.contains("learns otherwise"), "{}", two.stderr);
}
