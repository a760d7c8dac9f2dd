//! A table beside a folder of images to a model of numbers, images and texts.

use std::{fmt::Write as _, fs, path::Path, time::Duration};

use serde_json::Value;

use crate::{
    ranks::{assert_same, forget, weights},
    support::{Random, count_files, kill_when, pipeline, run, start, wait},
};

const PIPELINE: &str = r#"
[pipeline]
name = "parts"
root = "out"

[[source]]
name = "album"
type = "files"
format = "image"
url = "album"

[[source]]
name = "table"
type = "files"
url = "table.csv"

[dataset]
kind = "multi"
image_column = "image"
text_column = "sentence"
features = ["number", "shade"]
target = "price"
image = { store = "png", duplicates = "pixels" }
tokens = { vocabulary = 300, window = 8 }
join = [{ source = "table", left = "path", right = "file", match = "name", unmatched = "drop" }]
split = { train = 0.7, validation = 0.15, test = 0.15 }
shards = { block_bytes = "4 KiB" }

[train]
model = { type = "multi", hidden = [16], branches = [
  { type = "dense", hidden = [8] },
  { type = "cnn", channels = [4], hidden = [8] },
  { type = "embedding", width = 8, hidden = [8] },
] }
images = { height = 8, width = 8, mean = [0.5, 0.5, 0.5], deviation = [0.3, 0.3, 0.3] }
batch_size = 64
epochs = 24
patience = 0
learning_rate = 0.01
parallel = { parts = 2, heartbeat_timeout_s = 5 }
checkpoint = { every_steps = 11 }
"#;

const WORDS: [&str; 4] = ["ant", "bee", "cat", "dog"];
const ROWS: u64 = 480;

/// Images of one colour with noise, and a table of prices. A price is the sum of what a number, the colour and the first
/// word of a sentence say, each as much as the others; the table lacks every 40th image.
fn album(folder: &Path) {
    let mut random = Random(7);
    fs::create_dir_all(folder.join("album/some")).unwrap();
    let mut table = "file,number,shade,sentence,price\n".to_owned();
    for i in 0..ROWS {
        let (number, red, word) = (random.below(1000), random.below(200), random.below(4));
        let mut file = b"P6\n8 8\n255\n".to_vec();
        for _ in 0..64 {
            let level = |base: u64, random: &mut Random| (base + random.below(40)).to_le_bytes()[0];
            file.extend([
                level(red, &mut random),
                level(90, &mut random),
                level(90, &mut random),
            ]);
        }
        fs::write(folder.join(format!("album/some/{i}.ppm")), file).unwrap();
        if i % 40 == 0 {
            continue;
        }
        let tail = [
            "and a bird",
            "near the old river",
            "sat on the mat by the wall of the old house",
        ];
        let sentence = format!(
            "{} {}",
            WORDS[usize::try_from(word).unwrap()],
            tail[usize::try_from(random.below(3)).unwrap()]
        );
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let price = number as f64 / 1000.0 + red as f64 / 200.0 + word as f64 / 3.0;
        let shade = ["light", "", "dark"][usize::try_from(random.below(3)).unwrap()];
        writeln!(table, "{i}.ppm,{number},{shade},{sentence},{price}").unwrap();
    }
    fs::write(folder.join("table.csv"), table).unwrap();
}

/// A folder with the dataset, and the name of the pipeline file in it.
pub(crate) fn prepared() -> (tempfile::TempDir, &'static str, Value) {
    let folder = tempfile::tempdir().unwrap();
    album(folder.path());
    let file = pipeline(folder.path(), PIPELINE);
    run(folder.path(), &["ingest", file]).expect(0);
    let built = run(folder.path(), &["shards", "build", file, "--json"]).expect(0);
    let report = built.json();
    (folder, file, report)
}

fn r2(folder: &Path, file: &str, more: &[&str]) -> f64 {
    let mut arguments = vec!["train", file, "--json"];
    arguments.extend(more);
    let report = run(folder, &arguments).expect(0).json();
    report["test"]["r2"].as_f64().unwrap()
}

#[test]
fn a_model_of_all_parts_knows_what_no_part_alone_tells() {
    let (folder, file, report) = prepared();
    let folder = folder.path();
    let joined = &report["joins"][0];
    assert_eq!(
        [&joined["matched"], &joined["unmatched"], &joined["unused"]],
        [468, 12, 0].map(Value::from).each_ref()
    );
    assert_eq!(report["filtered"]["unmatched_dropped"], 12);
    let cut = &report["cut"];
    assert!(cut["rows"].as_u64().unwrap() > 100, "{report}");
    assert!(cut["tokens"].as_u64().unwrap() > cut["rows"].as_u64().unwrap());
    let verified = run(folder, &["shards", "verify", "out/dataset", "--json"]).expect(0);
    assert!(verified.json()["problems"].as_array().unwrap().is_empty());
    let summary = run(folder, &["train", file, "--summary"]).expect(0).stdout;
    for layer in [
        "branch.0.layer.0",
        "branch.1.conv.0",
        "branch.2.tokens",
        "joined.last",
    ] {
        assert!(summary.contains(layer), "{summary}");
    }

    let all = r2(folder, file, &[]);
    assert!(all > 0.9, "all parts: {all}");
    for branch in [
        r#"{ type = "dense", hidden = [16] }"#,
        r#"{ type = "cnn", channels = [4], hidden = [16] }"#,
        r#"{ type = "embedding", width = 8, hidden = [16] }"#,
    ] {
        let alone = format!("train.model.branches=[{branch}]");
        let alone = r2(folder, file, &["--set", &alone]);
        assert!(alone > 0.05 && alone < 0.75, "{branch}: {alone}");
    }
    // Adapters beside frozen branches, and other readers of the same parts.
    let tuned = r2(
        folder,
        file,
        &[
            "--set",
            r#"train.freeze=["branch.1.*"]"#,
            "--set",
            r#"train.model.branches=[{ type = "dense" }, { type = "vit", width = 8, layers = 1, heads = 2 }, { type = "transformer", width = 8, layers = 1, heads = 2 }]"#,
            "--set",
            "train.epochs=2",
        ],
    );
    assert!(tuned.is_finite());
}

/// Options of the short training that new rows are predicted with.
const SHORT: [&str; 2] = ["--set", "train.epochs=2"];

/// Predictions of `rows`, with the report.
fn predict(folder: &Path, file: &str, rows: &str) -> (Value, Vec<Value>) {
    let predict = [
        "predict",
        file,
        rows,
        "--images",
        "album",
        "--passthrough",
        "price",
    ];
    let to = ["--to", "new.ndjson", "--json"];
    let report = run(folder, &[&predict[..], &SHORT, &to].concat())
        .expect(0)
        .json();
    (report, lines(&folder.join("new.ndjson")))
}

/// The rows of texts that are truncated have a flag, the others and rejected ones have none.
fn check_flags_of_truncated_texts(folder: &Path, file: &str) {
    let predict = ["predict", file, "long.csv", "--images", "album", "--flags"];
    for to in ["flags.ndjson", "flags.csv"] {
        let to = ["--to", to];
        run(folder, &[&predict[..], &SHORT, &to].concat()).expect(0);
    }
    let flag = "`sentence` is truncated, as it is longer than the model reads";
    let flagged = lines(&folder.join("flags.ndjson"));
    let flags = flagged.iter().map(|line| line["flags"].as_str());
    assert_eq!(flags.collect::<Vec<_>>(), [Some(flag), None, None]);
    let table = fs::read_to_string(folder.join("flags.csv")).unwrap();
    let marked = table.lines().map(|line| line.contains(flag));
    assert_eq!(marked.collect::<Vec<_>>(), [false, true, false, false]);
}

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn new_rows_with_images_and_texts_are_predicted_as_eval_does_and_bad_ones_keep_their_place() {
    let (folder, file, _) = prepared();
    let folder = folder.path();
    run(folder, &[&["train", file][..], &SHORT].concat()).expect(0);
    let eval = ["eval", file, "--predictions", "test.ndjson"];
    run(folder, &[&eval[..], &SHORT].concat()).expect(0);

    let (report, predicted) = predict(folder, file, "table.csv");
    let (rows, rejected) = (ROWS - ROWS / 40, 0);
    assert_eq!(
        (&report["rows"], &report["rejected"]),
        (&rows.into(), &rejected.into()),
        "{report}"
    );
    let measured = lines(&folder.join("test.ndjson"));
    assert!(measured.len() > 40);
    check_same_predictions(&measured, &predicted);

    let table = fs::read_to_string(folder.join("table.csv")).unwrap();
    let sentence = ["ant"; 50].join(" ");
    let long = format!(
        "{}\n2.ppm,1,light,{sentence},1\n2.ppm,1,light,ant,1\n7.gone,1,light,{sentence},1\n",
        table.lines().next().unwrap()
    );
    fs::write(folder.join("long.csv"), long).unwrap();
    let (report, _) = predict(folder, file, "long.csv");
    let mut warnings = report["warnings"].as_array().unwrap().iter();
    let truncated = warnings.find(|warning| warning["code"] == "truncated_texts");
    let message = truncated.unwrap()["message"].as_str().unwrap();
    let expected = "2 texts longer than the 8 tokens that the model reads";
    assert!(message.starts_with(expected), "{message}");
    check_flags_of_truncated_texts(folder, file);

    write_odd_rows(folder);
    let (report, odd) = predict(folder, file, "odd.csv");
    assert_eq!(report["rejected"], 5, "{report}");
    assert_eq!(
        odd[0]["prediction"].to_string(),
        predicted[0]["prediction"].to_string()
    );
    let errors: Vec<&str> = odd[1..]
        .iter()
        .map(|line| line["error"].as_str().unwrap())
        .collect();
    assert_eq!(
        errors,
        [
            "file_unreadable",
            "no_text",
            "no_image",
            "row_rejected",
            "type_conflict"
        ]
    );
    assert!(
        odd[4]["detail"].as_str().unwrap().contains("image_"),
        "{}",
        odd[4]
    );
}

/// A query that makes texts of integers, for rows with a text of their own.
const QUERIED: &str = r#"
[pipeline]
name = "queried"
root = "out"

[[source]]
name = "notes"
type = "files"
url = "notes.csv"

[dataset]
kind = "multi"
task = "classification"
text_column = "sentence"
target = "y"
sql = "select lpad(cast(code as varchar), 3, '0') as code, sentence, y from notes"
tokens = { vocabulary = 300, window = 8 }

[train]
model = { type = "multi" }
epochs = 1
"#;

#[test]
fn new_rows_of_a_query_with_texts_have_the_types_of_its_result() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut notes = "code,sentence,y\n".to_owned();
    for i in 0..300 {
        let (code, word, y) = (i % 9, WORDS[i % 4], i % 2);
        writeln!(notes, "{code},{word} near the old river {i},{y}").unwrap();
    }
    fs::write(folder.join("notes.csv"), notes).unwrap();
    let file = pipeline(folder, QUERIED);
    run(folder, &["run", file]).expect(0);
    let new = "code,sentence\n004,ant near the river\n";
    fs::write(folder.join("new.csv"), new).unwrap();
    let predict = ["predict", file, "new.csv", "--to", "new.ndjson", "--json"];
    let report = run(folder, &predict).expect(0).json();
    assert_eq!(report["rows"], 1, "{report}");
    assert_eq!(report["rejected"], 0, "{report}");
}

/// Each row that `eval` has measured has the same prediction among those of new rows.
fn check_same_predictions(measured: &[Value], predicted: &[Value]) {
    let number = |value: &Value| value.as_f64().unwrap();
    for line in measured {
        let same = predicted.iter().find(|own| {
            let price: f64 = own["price"].as_str().unwrap().parse().unwrap();
            (price - number(&line["truth"])).abs() < 1e-6
                && (number(&own["prediction"]) - number(&line["prediction"])).abs() < 1e-5
        });
        assert!(same.is_some(), "{line}");
    }
}

/// The first row of the table, and rows that lack something or have a damaged image.
fn write_odd_rows(folder: &Path) {
    let table = fs::read_to_string(folder.join("table.csv")).unwrap();
    let mut rows: Vec<&str> = table.lines().take(2).collect();
    rows.extend([
        "none.ppm,1,light,ant and a bird,1",
        "2.ppm,1,light,,1",
        ",1,light,ant and a bird,1",
        "broken.ppm,1,light,ant and a bird,1",
        "3.ppm,x,light,ant and a bird,1",
    ]);
    fs::write(folder.join("odd.csv"), rows.join("\n")).unwrap();
    fs::write(folder.join("album/broken.ppm"), "P6\n8 8\n255\n").unwrap();
}

#[test]
fn two_ranks_and_a_killed_training_end_with_the_bytes_of_one() {
    let (folder, file, _) = prepared();
    let folder = folder.path();
    let epochs = ["--set", "train.epochs=8"];
    let train = |more: &[&'static str]| {
        let mut arguments = vec!["train", file];
        arguments.extend(epochs.iter().chain(more));
        arguments
    };
    run(folder, &train(&[])).expect(0);
    let expected = weights(folder);
    forget(folder);
    run(folder, &train(&["--ranks", "2"])).expect(0);
    assert_same(folder, &expected, "2 ranks");
    forget(folder);
    let mut kills = 0;
    let mut random = Random(11);
    for _ in 0..3 {
        let runs = folder.join("out/train");
        let child = start(folder, &train(&["--resume"]));
        let delay = Duration::from_millis(random.below(120));
        kills += u32::from(kill_when(child, delay, || count_files(&runs) > 0));
        wait(Duration::from_millis(1));
    }
    assert!(kills > 0);
    run(folder, &train(&["--resume"])).expect(0);
    assert_same(folder, &expected, &format!("{kills} kills"));
}
