//! New rows to predictions, with the transform and the model of a pipeline.

use std::{fmt::Write as _, fs, io::Write as _, path::Path, process::Stdio};

use serde_json::Value;

use crate::support::{Finished, Random, feedline, finish, pipeline, run};

const ROWS: u32 = 900;

/// A price by size, district and garden; some sizes are missing.
fn write_homes(folder: &Path) {
    let mut random = Random(3);
    let mut csv = "id,size,district,garden,price,dear\n".to_owned();
    for id in 0..ROWS {
        let size = 20 + random.below(100);
        let district = random.below(4);
        let garden = random.below(2) == 1;
        let price = size as f64 * (1.0 + district as f64 / 4.0) + if garden { 20.0 } else { 0.0 };
        let dear = if price > 110.0 { "yes" } else { "no" };
        let size = if id % 17 == 0 {
            "?".to_owned()
        } else {
            size.to_string()
        };
        writeln!(csv, "{id},{size},0{district},{garden},{price},{dear}").unwrap();
    }
    fs::write(folder.join("homes.csv"), csv).unwrap();
}

/// Splits by order, so that the rows of each split are known.
fn text(target: &str, other: &str, task: &str) -> String {
    format!(
        "[pipeline]\nname = \"homes\"\nroot = \"out\"\n\
         [[source]]\nname = \"homes\"\ntype = \"files\"\nurl = \"homes.csv\"\ncsv = {{ null_values = [\"?\"] }}\n\
         [dataset]\ntarget = \"{target}\"\ntask = \"{task}\"\ndrop = [\"id\", \"{other}\"]\n\
         split = {{ by = \"range\", train = 0.5, validation = 0.25, test = 0.25 }}\n\
         [train]\nmodel = {{ type = \"mlp\", hidden = [16] }}\nbatch_size = 50\nepochs = 4\n"
    )
}

fn lines(finished: &Finished) -> Vec<Value> {
    let lines = finished.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Predictions of `input`, given on standard input.
fn piped(folder: &Path, file: &str, input: &[u8], more: &[&str]) -> Finished {
    let mut command = feedline(folder);
    command.args(["predict", file, "-"]).args(more);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    finish(child.wait_with_output().unwrap())
}

fn metrics(folder: &Path, file: &str) -> Value {
    let eval = run(folder, &["eval", file, "--split", "validation", "--json"]);
    eval.expect(0).json()["metrics"].clone()
}

/// Rows of the validation split.
fn validation<T>(all: &[T]) -> &[T] {
    &all[(ROWS as usize / 2)..(ROWS as usize * 3 / 4)]
}

#[test]
fn predictions_of_the_landed_rows_are_those_that_eval_measures() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_homes(folder);
    let file = pipeline(folder, &text("price", "dear", "regression"));
    run(folder, &["run", file]).expect(0);
    let done = run(
        folder,
        &["predict", file, "homes.csv", "--keep", "price", "--json"],
    )
    .expect(0);
    let answers = lines(&done);
    assert_eq!(answers.len(), ROWS as usize);
    let squares: f64 = validation(&answers)
        .iter()
        .map(|answer| {
            let price: f64 = answer["price"].as_str().unwrap().parse().unwrap();
            (answer["prediction"].as_f64().unwrap() - price).powi(2)
        })
        .sum();
    let rmse = (squares / validation(&answers).len() as f64).sqrt();
    let measured = metrics(folder, file)["rmse"].as_f64().unwrap();
    assert!(
        (rmse / measured - 1.0).abs() < 1e-5,
        "{rmse} against {measured}"
    );

    // One row at a time, through a pipe, in another format: the same numbers.
    let lines_of = fs::read_to_string(folder.join("homes.csv")).unwrap();
    let mut objects = String::new();
    for line in lines_of.lines().skip(1).take(40) {
        let cells: Vec<&str> = line.split(',').collect();
        let size = if cells[1] == "?" { "null" } else { cells[1] };
        writeln!(
            objects,
            "{{\"garden\":{},\"size\":{size},\"district\":\"{}\"}}",
            cells[3], cells[2]
        )
        .unwrap();
    }
    let alone = piped(folder, file, objects.as_bytes(), &["--batch-rows", "1"]).expect(0);
    for (alone, answer) in lines(&alone).iter().zip(&answers) {
        assert_eq!(
            alone["prediction"].to_string(),
            answer["prediction"].to_string()
        );
    }

    // The features alone, and a file that is there whole or not at all.
    let only = [
        "predict",
        file,
        "homes.csv",
        "--transform-only",
        "--to",
        "features.parquet",
        "--json",
    ];
    let report = run(folder, &only).expect(0).json();
    assert_eq!(
        (&report["rows"], &report["rejected"]),
        (&ROWS.into(), &0.into())
    );
    assert_eq!(
        report["ignored"],
        serde_json::json!(["id", "price", "dear"])
    );
    assert_eq!(
        &fs::read(folder.join("features.parquet")).unwrap()[..4],
        b"PAR1"
    );
    let bad = run(
        folder,
        &[
            "predict",
            file,
            "homes.csv",
            "--keep",
            "nothing",
            "--to",
            "x.csv",
        ],
    );
    assert!(
        bad.expect(1)
            .stderr
            .contains("it lacks 1 of the 4 columns that are asked for: `nothing`")
    );
    assert!(!folder.join("x.csv").exists());
}

#[test]
fn classes_have_probabilities_by_name_and_bad_rows_keep_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_homes(folder);
    let file = pipeline(folder, &text("dear", "price", "classification"));
    run(folder, &["run", file]).expect(0);
    let answers = lines(&run(folder, &["predict", file, "homes.csv", "--keep", "dear"]).expect(0));
    let hits = validation(&answers)
        .iter()
        .filter(|answer| answer["prediction"] == answer["dear"]);
    let accuracy = hits.count() as f64 / validation(&answers).len() as f64;
    let measured = metrics(folder, file)["accuracy"].as_f64().unwrap();
    assert!(
        (accuracy - measured).abs() < 1e-12,
        "{accuracy} against {measured}"
    );
    let first = &answers[0];
    let sum =
        first["probability=yes"].as_f64().unwrap() + first["probability=no"].as_f64().unwrap();
    assert!((sum - 1.0).abs() < 1e-12, "{first}");

    let csv = b"size,district,garden\n50,01,true\n50,01\n60,99,false\n";
    let done = piped(
        folder,
        file,
        csv,
        &["--format", "csv", "--to", "answers.csv", "--json"],
    )
    .expect(3);
    assert_eq!(done.json()["rejected_by_reason"]["ragged_row"], 1);
    let answers = fs::read_to_string(folder.join("answers.csv")).unwrap();
    let answers: Vec<&str> = answers.lines().collect();
    assert!(
        answers[0].starts_with("row,prediction,probability="),
        "{answers:?}"
    );
    assert_eq!(
        answers[2],
        "2,,,,ragged_row,\"line 3: 2 fields, the header has 3\""
    );
    assert_eq!(answers.len(), 4);
}
