//! Models that stay of use: on a dataset that has grown, on another one, by name, and trained for longer.

use std::{fs, path::Path};

use serde_json::Value;

use crate::support::{feedline, files, finish, pipeline, run};

/// Rows `from` to `to` as a file of their own.
fn write_rows(folder: &Path, name: &str, rows: std::ops::Range<u32>) {
    let mut csv = "id,a,b,y\n".to_owned();
    for i in rows {
        let (a, b) = (f64::from(i * 37 % 101), f64::from(i * 53 % 97));
        csv += &format!("{i},{a},{b},{}\n", 2.0 * a - b);
    }
    fs::write(folder.join(name), csv).unwrap();
}

/// A pipeline over `rows-*.csv` with these keys of `[dataset]` and `[train]`.
fn write_pipeline(folder: &Path, dataset: &str, train: &str) -> &'static str {
    let text = format!(
        "[pipeline]\nname = \"rows\"\nroot = \"out\"\n\
         [[source]]\nname = \"rows\"\ntype = \"files\"\nurl = \"rows-*.csv\"\n\
         [dataset]\ntarget = \"y\"\ndrop = [\"id\"]\n{dataset}\n\
         [train]\nmodel = {{ type = \"mlp\", hidden = [8] }}\nbatch_size = 32\npatience = 0\n{train}\n"
    );
    pipeline(folder, &text)
}

/// Lands the files and builds.
fn build(folder: &Path, file: &str) -> Value {
    run(folder, &["ingest", file]).expect(0);
    run(folder, &["shards", "build", file, "--json"])
        .expect(0)
        .json()
}

/// The report of a command that ends well.
fn json(folder: &Path, arguments: &[&str]) -> Value {
    run(folder, &[arguments, &["--json"]].concat())
        .expect(0)
        .json()
}

/// The name of the run that a report is about: the folder of its checkpoint.
fn run_of(trained: &Value) -> String {
    let checkpoint = trained["checkpoint"].as_str().unwrap();
    let folder = checkpoint.strip_suffix("/best.safetensors").unwrap();
    folder.rsplit('/').next().unwrap().to_owned()
}

/// Text in which every gap is one space.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A dataset that grows, and the commands that use a model of it.
struct Growing {
    folder: tempfile::TempDir,
    file: &'static str,
}

impl Growing {
    /// Predictions of the first rows, and the messages beside them.
    fn predictions(&self, more: &[&str]) -> (String, String) {
        let predict = [&["predict", self.file, "rows-00.csv"], more].concat();
        let found = run(self.folder.path(), &predict).expect(0);
        (found.stdout, words(&found.stderr))
    }

    /// Bytes of the exported weights, and the report.
    fn export(&self, more: &[&str]) -> (Vec<u8>, Value) {
        let export = ["weights", "export", self.file, "--to", "w.safetensors"];
        let report = json(self.folder.path(), &[&export, more].concat());
        let file = self.folder.path().join("w.safetensors");
        (fs::read(file).unwrap(), report)
    }

    /// Lands and appends the rows of growth number `growth`.
    fn grow(&self, growth: u32) -> Value {
        let begin = 400 + 20 * (growth - 1);
        let name = format!("rows-{growth:02}.csv");
        write_rows(self.folder.path(), &name, begin..begin + 20);
        build(self.folder.path(), self.file)
    }
}

#[test]
fn the_first_model_is_used_through_ten_growths_of_its_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_pipeline(folder.path(), "", "epochs = 2");
    let growing = Growing { folder, file };
    let at = growing.folder.path();
    write_rows(at, "rows-00.csv", 0..400);
    let built = build(at, file);
    let first = run_of(&json(at, &["train", file]));
    let (expected, said) = growing.predictions(&[]);
    assert!(
        said.contains(&format!("{first} (of this configuration and dataset)")),
        "{said}"
    );
    let (weights, report) = growing.export(&[]);
    assert_eq!(report["run"]["chosen"], "configuration");
    assert_eq!(report["bytes"], weights.len());

    for growth in 1..=10_u32 {
        let grown = growing.grow(growth);
        assert_ne!(grown["fingerprint"], built["fingerprint"]);
        // Every command takes the first run, and gives the same predictions.
        let (found, said) = growing.predictions(&[]);
        assert_eq!(found, expected, "growth {growth}");
        assert!(
            said.contains(&format!("{first} (the newest finished one that fits"))
                && said.contains("(this dataset before rows were added)"),
            "{said}"
        );
        if [1, 10].contains(&growth) {
            assert!(growing.export(&[]).0 == weights);
            check_eval_of_grown(&json(at, &["eval", file]), &first, &built, &grown);
        }
    }

    // A change of `[train]` is no other state of affairs.
    let changed = ["eval", file, "--set", "train.epochs=3"];
    assert_eq!(json(at, &changed)["run"]["differs"]["epochs"], "2");
    let second = run_of(&json(at, &["train", file, "--set", "train.epochs=30"]));
    check_runs_by_name(at, file, &first, &second);
    assert_eq!(growing.predictions(&["--run", &first]).0, expected);
    assert_ne!(growing.predictions(&["--run", "best"]).0, expected);
    assert!(growing.export(&["--run", &first]).0 == weights);
    check_lists(at, file, &first, built["fingerprint"].as_str().unwrap());
}

/// The run of an evaluation is `first`, which was trained before the dataset has grown.
fn check_eval_of_grown(report: &Value, first: &str, built: &Value, grown: &Value) {
    let used = &report["run"];
    assert_eq!(
        (&used["name"], &used["chosen"], &used["relation"]),
        (&Value::from(first), &"default".into(), &"grown".into())
    );
    assert_eq!(used["fingerprint"], built["fingerprint"]);
    assert_eq!(report["rows"], grown["test"], "{report} {grown}");
}

/// Two runs, each by its name, a part of it or a word, and a name of neither.
fn check_runs_by_name(folder: &Path, file: &str, first: &str, second: &str) {
    assert_ne!(first, second);
    for (name, expected, chosen) in [
        (first, first, "name"),
        (&second[..9], second, "name"),
        ("newest", second, "newest"),
        ("best", second, "best"),
    ] {
        let report = json(folder, &["eval", file, "--run", name]);
        let used = &report["run"];
        assert_eq!(
            (&used["name"], &used["chosen"]),
            (&Value::from(expected), &chosen.into())
        );
    }
    let refused = run(folder, &["eval", file, "--run", "zz"]).expect(2).stderr;
    assert!(
        refused.contains("none begins so") && refused.contains(first) && refused.contains(second),
        "{refused}"
    );
    let help = words(&run(folder, &["eval", "--help"]).expect(0).stdout);
    assert!(
        help.contains("`newest`") && help.contains("`best`"),
        "{help}"
    );
}

/// The lists have the dataset of each run, and say that the figures are of different rows.
fn check_lists(folder: &Path, file: &str, first: &str, fingerprint: &str) {
    let listed = run(folder, &["runs", "list", file]).expect(0).stdout;
    assert!(listed.contains(fingerprint), "{listed}");
    let compared = [
        "runs",
        "compare",
        file,
        first,
        "newest",
        "--html",
        "page.html",
    ];
    let compared = run(folder, &compared).expect(0).stdout;
    assert!(
        compared.contains("of different test sets and do not compare"),
        "{compared}"
    );
    let page = fs::read_to_string(folder.join("page.html")).unwrap();
    assert!(page.contains("of different test sets and do not compare"));
}

#[test]
fn a_model_keeps_its_transform_when_the_dataset_is_fitted_anew() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = write_pipeline(at, "", "epochs = 2");
    write_rows(at, "rows-00.csv", 0..400);
    build(at, file);
    let first = run_of(&json(at, &["train", file]));
    let expected = run(at, &["predict", file, "rows-00.csv"]).expect(0).stdout;
    write_rows(at, "rows-01.csv", 400..900);
    run(at, &["ingest", file]).expect(0);
    run(at, &["shards", "build", file, "--refit"]).expect(0);

    for command in [["eval", file].as_slice(), &["predict", file, "rows-00.csv"]] {
        let refused = words(&run(at, command).expect(1).stderr);
        assert!(
            refused.contains(&format!(
                "`{first}`: its features were made by another transform: `steps."
            )) && refused.contains("--run"),
            "{refused}"
        );
        // Only new rows can have another transform than the dataset.
        let is_predict = command[0] == "predict";
        let names_runs = refused.contains("or name a run with `--run`");
        assert_eq!(names_runs, is_predict, "{refused}");
    }
    let refused = words(&run(at, &["eval", file, "--run", &first]).expect(1).stderr);
    assert!(
        refused.contains("applies the run's own transform to raw rows"),
        "{refused}"
    );
    let found = run(at, &["predict", file, "rows-00.csv", "--run", &first]).expect(0);
    assert_eq!(found.stdout, expected);
    // The weights need no dataset at all.
    fs::remove_dir_all(at.join("out/dataset")).unwrap();
    let export = [
        "weights",
        "export",
        file,
        "--to",
        "w.safetensors",
        "--run",
        &first,
    ];
    run(at, &export).expect(0);
}

#[test]
fn a_model_is_evaluated_on_another_dataset_of_the_same_columns_and_classes() {
    let make = |dataset: &str, rows: std::ops::Range<u32>, column: &str| {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[pipeline]\nname = \"p\"\nroot = \"out\"\n\
             [[source]]\nname = \"rows\"\ntype = \"files\"\nurl = \"rows.csv\"\n\
             [dataset]\ntarget = \"place\"\ntask = \"classification\"\nstep = []\n{dataset}\n\
             [train]\nmodel = {{ type = \"mlp\", hidden = [8] }}\nbatch_size = 32\nepochs = 40\nlearning_rate = 0.02\n"
        );
        let file = pipeline(folder.path(), &text);
        let mut csv = format!("{column},place\n");
        for i in rows {
            let x = f64::from(i * 37 % 1009) / 1009.0;
            let place = if x < 0.3 { "left" } else { "right" };
            csv += &format!("{x},{place}\n");
        }
        fs::write(folder.path().join("rows.csv"), csv).unwrap();
        build(folder.path(), file);
        folder
    };
    let first = make("", 0..500, "x");
    let file = "pipeline.toml";
    let trained = json(first.path(), &["train", file]);
    assert!(
        trained["test"]["accuracy"].as_f64().unwrap() > 0.9,
        "{trained}"
    );
    let eval = |other: &Path| {
        let url = other.join("out/dataset");
        run(
            first.path(),
            &["eval", file, "--dataset", url.to_str().unwrap(), "--json"],
        )
    };
    // Other rows, and the classes in another order.
    let other = make("classes = [\"right\", \"left\"]", 500..900, "x");
    let report = eval(other.path()).expect(0).json();
    assert!(
        report["metrics"]["accuracy"].as_f64().unwrap() > 0.9,
        "{report}"
    );
    assert_eq!(report["classes"], serde_json::json!(["right", "left"]));
    let used = &report["run"];
    assert_eq!(used["relation"], "other");
    assert_eq!(used["warnings"][0]["code"], "rows_may_have_been_trained_on");
    let set = format!("train.dataset={:?}", other.path().join("out/dataset"));
    let by_key = json(first.path(), &["eval", file, "--set", &set]);
    assert_eq!(by_key["metrics"], report["metrics"]);

    let refused = |other: &Path| words(&eval(other).expect(1).stderr);
    let columns = refused(make("", 0..500, "z").path());
    assert!(
        columns.contains("the dataset lacks the column `x`, and the run knows no column `z`"),
        "{columns}"
    );
    let listed = "classes = [\"left\", \"right\", \"above\"]";
    let classes = refused(make(listed, 0..500, "x").path());
    assert!(
        classes.contains("the dataset has `above`, the run has not"),
        "{classes}"
    );
}

/// The bytes of a run's best weights and newest checkpoint.
fn weights(folder: &Path, name: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = files(&folder.join("out/train").join(name));
    found.retain(|(path, _)| path.ends_with(".safetensors"));
    let last = found.iter().map(|(path, _)| path.clone()).max().unwrap();
    found.retain(|(path, _)| *path == last || path == "best.safetensors");
    found
}

/// The bits do not depend on the number of ranks, nor the learning rates on the length.
const CONSTANT: &str =
    "epochs = 2\nschedule = { type = \"constant\", warmup_steps = 5 }\nparallel = { parts = 2 }";

/// A dataset whose training has this configuration.
fn prepared(train: &str) -> (tempfile::TempDir, &'static str) {
    let folder = tempfile::tempdir().unwrap();
    let file = write_pipeline(folder.path(), "", train);
    write_rows(folder.path(), "rows-00.csv", 0..400);
    build(folder.path(), file);
    (folder, file)
}

#[test]
fn a_training_that_is_prolonged_twice_ends_with_the_bits_of_the_long_one_elsewhere() {
    let (folder, file) = prepared(CONSTANT);
    let at = folder.path();
    let first = run_of(&json(at, &["train", file]));
    let prolong = |epochs: u32, more: &[&str]| {
        let set = format!("train.epochs={epochs}");
        let arguments = [&["train", file, "--resume", "--set", &set], more].concat();
        json(at, &arguments)
    };
    let second = prolong(4, &[]);
    let from = &second["continued_from"];
    assert_eq!(
        (&from["run"], &from["epoch"], &from["before"]["epochs"]),
        (&Value::from(first.as_str()), &2.into(), &"2".into())
    );
    let ranks = ["--ranks", "2"];
    let third = prolong(6, &ranks);
    assert_eq!(third["continued_from"]["run"], run_of(&second).as_str());
    assert_eq!(third["continued_from"]["equals_one_run"], true);
    assert_eq!(third["epochs"], 6);
    let name = run_of(&third);
    let said = run(at, &["train", file, "--resume", "--set", "train.epochs=6"]).expect(0);
    let said = words(&said.stdout);
    assert!(
        said.contains("continues run") && said.contains("has the bits of one run of this length"),
        "{said}"
    );
    let page = fs::read_to_string(at.join("out/train").join(&name).join("report.html")).unwrap();
    assert!(page.contains("Continues run"));
    let epochs =
        fs::read_to_string(at.join("out/train").join(&name).join("metrics.jsonl")).unwrap();
    assert_eq!(
        epochs
            .lines()
            .filter(|line| line.contains("\"kind\":\"epoch\""))
            .count(),
        6
    );

    // Another machine has the same name for the run, since it has the same fingerprint for the dataset.
    let (elsewhere, file) = prepared(CONSTANT);
    let long = json(
        elsewhere.path(),
        &["train", file, "--set", "train.epochs=6"],
    );
    assert_eq!(run_of(&long), name);
    assert_eq!(long["test"], third["test"]);
    let (found, expected) = (weights(at, &name), weights(elsewhere.path(), &name));
    assert_eq!(found.len(), 2);
    assert!(found == expected, "the weights differ");

    let less = json(
        elsewhere.path(),
        &[
            "train",
            file,
            "--resume",
            "--set",
            "train.epochs=7",
            "--set",
            "train.patience=1",
        ],
    );
    let from = &less["continued_from"];
    assert_eq!(from["equals_one_run"], false, "{less}");
    let reason = from["reason"].as_str().unwrap();
    assert!(
        reason.contains("`train.patience = 1`") && !reason.contains("learning rate"),
        "{reason}"
    );
}

#[test]
fn a_resume_says_when_its_result_is_another_and_when_there_is_nothing_to_resume() {
    let (folder, file) = prepared("epochs = 2\nschedule = { warmup_steps = 5 }");
    let at = folder.path();
    let first = run(at, &["train", file, "--resume"]).expect(0);
    assert!(
        words(&first.stdout).contains("not resumed no checkpoint is of this configuration"),
        "{first:#?}"
    );
    assert!(
        first
            .stderr
            .contains("found no checkpoint to continue from"),
        "{first:#?}"
    );
    // A cosine of another length has other rates.
    let longer = ["train", file, "--resume", "--set", "train.epochs=4"];
    let longer = run(at, &longer).expect(0);
    assert!(
        words(&longer.stdout).contains("the result is not that of one run with this configuration"),
        "{longer:#?}"
    );
    assert!(
        longer.stderr.contains("continuing another run"),
        "{longer:#?}"
    );
    // So have other learning rates, and a chain keeps it in mind.
    let set = [
        "--set",
        "train.epochs=5",
        "--set",
        "train.learning_rate=0.0005",
    ];
    let report = json(at, &[&["train", file, "--resume"][..], &set].concat());
    assert_eq!(report["continued_from"]["equals_one_run"], false);
    // Fewer epochs than were taken, and another model, are no prolongation.
    for (set, reason) in [
        ("train.epochs=1", "epochs already, and `train.epochs` is 1"),
        ("train.model.hidden=[9]", "it differs in `model.hidden` too"),
    ] {
        let report = json(at, &["train", file, "--resume", "--set", set]);
        let said = report["started_over"].as_str().unwrap();
        assert!(said.contains(reason), "{said}");
        assert_eq!(report["continued_from"], Value::Null);
    }
    // `run` never continues another run: its result is a function of the configuration and the data.
    let report = json(at, &["run", file, "--set", "train.epochs=3"]);
    assert_eq!(report["train"]["continued_from"], Value::Null);
}

#[test]
fn equal_inputs_have_equal_fingerprints_and_run_names_in_two_folders() {
    let make = || {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let file = write_pipeline(at, "", "epochs = 1");
        write_rows(at, "rows-00.csv", 0..200);
        fs::write(
            at.join("rows-01.csv"),
            "id,a,b,y\n900,1,2,3\n901,4,x,5\n902,5,6,\n",
        )
        .unwrap();
        let ran = |arguments: &[&str]| finish(feedline(at).args(arguments).output().unwrap());
        ran(&["ingest", file]);
        ran(&["shards", "build", file]);
        write_rows(at, "rows-02.csv", 300..330);
        ran(&["ingest", file]);
        let built = ran(&["shards", "build", file, "--json"]).json();
        let trained = json(at, &["train", file]);
        (folder, built["fingerprint"].clone(), run_of(&trained))
    };
    let ((one, fingerprint, name), (other, same_fingerprint, same_name)) = (make(), make());
    assert_eq!((&fingerprint, &name), (&same_fingerprint, &same_name));
    let best = |folder: &Path| {
        fs::read(
            folder
                .join("out/train")
                .join(&name)
                .join("best.safetensors"),
        )
    };
    assert!(best(one.path()).unwrap() == best(other.path()).unwrap());
    // The landing zones are of two instants.
    let log =
        |folder: &Path| fs::read(folder.join("out/landing/rows/log/00000000000000000000.json"));
    assert!(log(one.path()).unwrap() != log(other.path()).unwrap());
}

#[test]
fn a_run_whose_record_says_less_is_used_on_its_own_dataset_only() {
    let (folder, file) = prepared("epochs = 1");
    let at = folder.path();
    let name = run_of(&json(at, &["train", file]));
    let run_folder = at.join("out/train").join(&name);
    let record = run_folder.join("run.json");
    let mut old: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    for field in ["transform", "columns_hash", "layout", "splits"] {
        assert!(
            old.as_object_mut().unwrap().remove(field).is_some(),
            "{field}"
        );
    }
    fs::write(&record, old.to_string()).unwrap();
    fs::remove_file(run_folder.join("transform.json")).unwrap();
    let other = ["eval", file, "--set", "train.epochs=9"];
    assert_eq!(json(at, &other)["run"]["name"], name.as_str());
    write_rows(at, "rows-01.csv", 400..450);
    build(at, file);
    let refused = words(&run(at, &["eval", file]).expect(1).stderr);
    assert!(
        refused.contains(&format!("`{name}`: an older version trained it")),
        "{refused}"
    );
}

#[test]
fn documents_of_development_versions_are_refused_until_the_dataset_is_built_again() {
    let (folder, file) = prepared("epochs = 1");
    let at = folder.path();
    let name = run_of(&json(at, &["train", file]));
    let record = at.join("out/train").join(&name).join("run.json");
    let manifest = at.join("out/dataset/manifest-000001.json");
    for (path, own, older) in [(&manifest, 3, 2), (&record, 2, 1)] {
        let text = fs::read_to_string(path).unwrap();
        let [own, older] = [own, older].map(|version| format!("\"version\": {version},"));
        let changed = text.replacen(&own, &older, 1);
        assert_ne!(changed, text);
        fs::write(path, changed).unwrap();
    }
    for command in [&["shards", "build", file][..], &["train", file]] {
        let refused = words(&run(at, command).expect(1).stderr);
        for part in [
            "it was written by a development version of feedline",
            "build the dataset again with `feedline shards build PIPELINE.toml --refit`",
        ] {
            assert!(refused.contains(part), "{refused}");
        }
    }
    let listed = run(at, &["runs", "list", file]).expect(0);
    assert!(!listed.stdout.contains(&name), "{listed:?}");
    let refused = words(&listed.stderr);
    assert!(
        refused.contains("written by a development version"),
        "{refused}"
    );
    run(at, &["shards", "build", file, "--refit"]).expect(0);
    json(at, &["train", file, "--resume"]);
}
