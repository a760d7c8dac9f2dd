//! New rows to predictions, with the transform and the model of a pipeline.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::Stdio,
};

use feedline_preprocess::{Column, RowFormat, RowsOut};
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
    // A program that refuses its options reads no input.
    let _written = child.stdin.take().unwrap().write_all(input);
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
    let predict = [
        "predict",
        file,
        "homes.csv",
        "--passthrough",
        "price",
        "--json",
    ];
    let predicted = lines(&run(folder, &predict).expect(0));
    assert_eq!(predicted.len(), ROWS as usize);
    let rmse = validation_rmse(&predicted);
    let measured = metrics(folder, file)["rmse"].as_f64().unwrap();
    assert!(
        (rmse / measured - 1.0).abs() < 1e-5,
        "{rmse} against {measured}"
    );

    // A plan of a regression speaks of no classes.
    let planned = run(folder, &["plan", file]).expect(0).stdout;
    assert!(planned.contains("mixing"), "{planned}");
    assert!(!planned.contains("classes"), "{planned}");

    check_rows_through_a_pipe(folder, file, &predicted);
    check_rows_of_an_open_pipe(folder, file, &predicted);
    check_features_alone(folder, file);
    let bad = run(
        folder,
        &[
            "predict",
            file,
            "homes.csv",
            "--passthrough",
            "nothing",
            "--to",
            "x.csv",
        ],
    );
    assert!(
        bad.expect(1)
            .stderr
            .contains("it lacks 1 of the 4 needed columns: `nothing`")
    );
    assert!(!folder.join("x.csv").exists());
}

/// Error of the predictions of the validation split's rows.
fn validation_rmse(predicted: &[Value]) -> f64 {
    let squares: f64 = validation(predicted)
        .iter()
        .map(|one| {
            let price: f64 = one["price"].as_str().unwrap().parse().unwrap();
            (one["prediction"].as_f64().unwrap() - price).powi(2)
        })
        .sum();
    (squares / validation(predicted).len() as f64).sqrt()
}

/// One row at a time, through a pipe, in another format: the same numbers.
fn check_rows_through_a_pipe(folder: &Path, file: &str, predicted: &[Value]) {
    let rows = fs::read_to_string(folder.join("homes.csv")).unwrap();
    let mut objects = String::new();
    for line in rows.lines().skip(1).take(40) {
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
    for (alone, one) in lines(&alone).iter().zip(predicted) {
        assert_eq!(
            alone["prediction"].to_string(),
            one["prediction"].to_string()
        );
    }
}

/// A row of CSV is predicted while its pipe is open, with the same numbers.
fn check_rows_of_an_open_pipe(folder: &Path, file: &str, predicted: &[Value]) {
    let rows = fs::read_to_string(folder.join("homes.csv")).unwrap();
    let mut rows = rows.split_inclusive('\n');
    let mut command = feedline(folder);
    command.args(["predict", file, "-", "--format", "csv"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let header = rows.next().unwrap();
    for (number, row) in rows.take(3).enumerate() {
        let text = if number == 0 { header } else { "" };
        write!(input, "{text}{row}").unwrap();
        let line = output.next().unwrap().unwrap();
        let found: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(found["row"], number);
        let expected = predicted[number]["prediction"].to_string();
        assert_eq!(found["prediction"].to_string(), expected);
    }
    drop(input);
    assert!(output.next().is_none());
    assert!(child.wait().unwrap().success());
}

/// The features alone, in a file that appears complete or not at all.
fn check_features_alone(folder: &Path, file: &str) {
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
}

#[test]
fn classes_have_probabilities_by_name_and_bad_rows_keep_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_homes(folder);
    let file = pipeline(folder, &text("dear", "price", "classification"));
    run(folder, &["run", file]).expect(0);
    let predicted = lines(
        &run(
            folder,
            &["predict", file, "homes.csv", "--passthrough", "dear"],
        )
        .expect(0),
    );
    let hits = validation(&predicted)
        .iter()
        .filter(|one| one["prediction"] == one["dear"]);
    let accuracy = hits.count() as f64 / validation(&predicted).len() as f64;
    let measured = metrics(folder, file)["accuracy"].as_f64().unwrap();
    assert!(
        (accuracy - measured).abs() < 1e-12,
        "{accuracy} against {measured}"
    );
    let first = &predicted[0];
    let sum =
        first["probability=yes"].as_f64().unwrap() + first["probability=no"].as_f64().unwrap();
    assert!((sum - 1.0).abs() < 1e-12, "{first}");

    let csv = b"size,district,garden\n50,01,true\n50,01\n60,99,false\n";
    let done = piped(
        folder,
        file,
        csv,
        &["--format", "csv", "--to", "predicted.csv", "--json"],
    )
    .expect(0);
    assert_eq!(done.json()["rejected_by_reason"]["ragged_row"], 1);
    let predicted = fs::read_to_string(folder.join("predicted.csv")).unwrap();
    let predicted: Vec<&str> = predicted.lines().collect();
    assert!(
        predicted[0].starts_with("row,prediction,probability="),
        "{predicted:?}"
    );
    assert_eq!(
        predicted[2],
        "1,,,,ragged_row,\"line 3 (byte 32 of the file): 2 fields, the header has 3\""
    );
    assert_eq!(predicted.len(), 4);
    check_input_is_kept(folder, file, csv);
}

/// Predictions never replace the rows that they are made of.
fn check_input_is_kept(folder: &Path, file: &str, rows: &[u8]) {
    fs::write(folder.join("rows.csv"), rows).unwrap();
    let refused = run(folder, &["predict", file, "rows.csv", "--to", "./rows.csv"]).expect(1);
    let part = "`--to` is the input `rows.csv`, which the predictions would replace";
    assert!(refused.stderr.contains(part), "{refused:#?}");
    assert_eq!(fs::read(folder.join("rows.csv")).unwrap(), rows);
}

/// Predictions of a split as `eval` writes them, by the row of the file that each is about.
fn predictions_of_split(folder: &Path, file: &str) -> (Value, Vec<(usize, Value)>) {
    let to = "split.ndjson";
    let arguments = [
        "eval",
        file,
        "--split",
        "validation",
        "--predictions",
        to,
        "--json",
    ];
    let report = run(folder, &arguments).expect(0).json();
    assert_eq!(report["predictions"], to);
    let text = fs::read_to_string(folder.join(to)).unwrap();
    let lines = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["source"], "homes");
        assert_eq!(line["key"].as_str().unwrap().len(), 16);
        let row = line["row"].as_u64().unwrap();
        (usize::try_from(row).unwrap(), line)
    });
    (report, lines.collect())
}

#[test]
fn predictions_of_a_split_have_the_truth_and_the_bits_of_predict() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_homes(folder);
    let homes = fs::read_to_string(folder.join("homes.csv")).unwrap();
    let homes: Vec<Vec<&str>> = homes
        .lines()
        .skip(1)
        .map(|line| line.split(',').collect())
        .collect();

    let file = pipeline(folder, &text("price", "dear", "regression"));
    run(folder, &["run", file]).expect(0);
    let (report, rows) = predictions_of_split(folder, file);
    assert_eq!(rows.len(), validation(&homes).len());
    let predicted = lines(&run(folder, &["predict", file, "homes.csv"]).expect(0));
    let mut squares = 0.0;
    for (row, line) in &rows {
        let price: f64 = homes[*row][4].parse().unwrap();
        let truth = line["truth"].as_f64().unwrap();
        assert!((truth - price).abs() < 1e-4, "{line} of {price}");
        assert_eq!(line["prediction"], predicted[*row]["prediction"], "{line}");
        assert_eq!(predicted[*row]["row"], line["row"], "both count from 0");
        squares += (line["prediction"].as_f64().unwrap() - truth).powi(2);
    }
    let rmse = (squares / f64::from(u32::try_from(rows.len()).unwrap())).sqrt();
    let measured = report["metrics"]["rmse"].as_f64().unwrap();
    assert!((rmse / measured - 1.0).abs() < 1e-9, "{rmse} {measured}");

    let file = pipeline(folder, &text("dear", "price", "classification"));
    run(folder, &["run", file]).expect(0);
    let (report, rows) = predictions_of_split(folder, file);
    let predicted = lines(&run(folder, &["predict", file, "homes.csv"]).expect(0));
    let mut hits = 0.0;
    for (row, line) in &rows {
        assert_eq!(line["truth"], homes[*row][5], "{line}");
        for column in ["prediction", "probability=no", "probability=yes"] {
            assert_eq!(line[column], predicted[*row][column], "{line}");
        }
        hits += f64::from(u8::from(line["truth"] == line["prediction"]));
    }
    let accuracy = hits / f64::from(u32::try_from(rows.len()).unwrap());
    let measured = report["metrics"]["accuracy"].as_f64().unwrap();
    assert!((accuracy - measured).abs() < 1e-12, "{accuracy} {measured}");

    for to in ["split.csv", "split.parquet"] {
        run(folder, &["eval", file, "--predictions", to]).expect(0);
        assert!(folder.join(to).metadata().unwrap().len() > 0);
    }
    let header = fs::read_to_string(folder.join("split.csv")).unwrap();
    let header = header.lines().next().unwrap();
    assert_eq!(
        header,
        "key,source,sequence,row,truth,prediction,probability=no,probability=yes"
    );
    let refused = run(folder, &["eval", file, "--predictions", "split.txt"]).expect(1);
    assert!(refused.stderr.contains("`.parquet`"), "{refused:?}");
}

/// Orders whose `paid` lands as booleans, `amount` as floats, `n` as integers and `code` as
/// strings, which a step reads as numbers.
fn write_orders(folder: &Path) {
    let mut lines = String::new();
    for i in 0..40 {
        let (paid, amount, n) = (i % 3 == 0, f64::from(i) + 0.5, i % 7);
        writeln!(
            lines,
            r#"{{"paid":{paid},"amount":{amount},"n":{n},"code":"{i}","y":{i}}}"#
        )
        .unwrap();
    }
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("a.ndjson"), lines).unwrap();
}

/// A file of one row, and whether the row can be used.
type OddFile = (&'static str, Vec<u8>, bool);

fn odd_files() -> Vec<OddFile> {
    let mut files = Vec::new();
    for (cells, is_fine) in [
        (r#""paid":"false","amount":1.5,"n":1"#, false),
        (r#""paid":"False","amount":1.5,"n":1"#, false),
        (r#""paid":0,"amount":1.5,"n":1"#, false),
        (r#""paid":true,"amount":"12,5","n":1"#, false),
        (r#""paid":true,"amount":"n/a","n":1"#, false),
        (r#""paid":true,"amount":9007199254740993,"n":1"#, false),
        (r#""paid":true,"amount":1.5,"n":"2.5""#, false),
        (r#""paid":true,"amount":1.5,"n":true"#, false),
        (r#""paid":true,"amount":"1.50","n":"12""#, true),
        (r#""paid":null,"amount":null,"n":2.5"#, true),
    ] {
        let line = format!("{{{cells},\"code\":\"x\",\"y\":1}}\n");
        files.push(("b.ndjson", line.into_bytes(), is_fine));
    }
    for (cells, is_fine) in [
        ("no,1.5,1", false),
        ("f,1.5,1", false),
        ("0,1.5,1", false),
        ("true,\"12,5\",1", false),
        ("true,12.5 EUR,1", false),
        ("true,inf,1", false),
        ("true,1.5,x", false),
        ("TRUE, 1e3 ,2.5", true),
        ("?,,012", false),
        ("?,,", true),
    ] {
        let csv = format!("paid,amount,n,code,y\n{cells},x,1\n");
        files.push(("b.csv", csv.into_bytes(), is_fine));
    }
    let text = |text: &str| Column::Text(vec![Some(text.to_owned())]);
    let float = |value: f64| Column::Long(vec![Some(value)]);
    for (paid, amount, n, is_fine) in [
        (text("false"), float(1.5), float(1.0), false),
        (float(0.0), float(1.5), float(1.0), false),
        (Column::Text(vec![None]), text("12,5"), float(1.0), false),
        (Column::Text(vec![None]), float(1.5), text("x"), false),
        (Column::Text(vec![None]), text("1.50"), text("12"), true),
        (Column::Text(vec![None]), float(f64::NAN), float(2.5), true),
    ] {
        let columns = vec![paid, amount, n, text("x"), float(1.0)];
        files.push(("b.parquet", parquet(columns), is_fine));
    }
    files
}

fn parquet(columns: Vec<Column>) -> Vec<u8> {
    let names = ["paid", "amount", "n", "code", "y"].map(str::to_owned);
    let mut bytes = Vec::new();
    let mut out = RowsOut::new(&mut bytes, RowFormat::Parquet, &names).unwrap();
    out.write(columns).unwrap();
    out.finish().unwrap();
    bytes
}

#[test]
fn a_row_that_could_not_land_is_set_aside_with_the_reason_that_ingest_has() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_orders(&folder.join("clean"));
    let mut text = "[pipeline]\nname = \"orders\"\nroot = \"out\"\n\
        [dataset]\nsources = [\"clean\"]\ntarget = \"y\"\n\
        split = { train = 1.0, validation = 0.0, test = 0.0 }\n\
        step = [{ type = \"impute\", columns = [\"paid\", \"amount\", \"n\", \"code\"] }]\n"
        .to_owned();
    let files = odd_files();
    let mut names = vec!["clean".to_owned()];
    for i in 0..files.len() {
        names.push(format!("odd{i}"));
        write_orders(&folder.join(&names[i + 1]));
    }
    for name in &names {
        write!(
            text,
            "[[source]]\nname = \"{name}\"\ntype = \"files\"\nurl = \"{name}/*\"\ncsv = {{ null_values = [\"?\"] }}\n"
        )
        .unwrap();
    }
    let file = pipeline(folder, &text);
    run(folder, &["ingest", file, "--json"]).expect(0);
    // Files that arrive once the column types are settled.
    for (i, (odd, bytes, _)) in files.iter().enumerate() {
        fs::write(folder.join(&names[i + 1]).join(odd), bytes).unwrap();
    }
    let landed = run(folder, &["ingest", file, "--json"]).expect(0).json();
    run(folder, &["shards", "build", file]).expect(0);
    for (i, (odd, _, is_fine)) in files.iter().enumerate() {
        let name = &names[i + 1];
        let sources = landed["sources"].as_array().unwrap();
        let source = sources.iter().find(|source| source["name"] == **name);
        let source = source.unwrap();
        let path = format!("{name}/{odd}");
        let only = ["predict", file, &path, "--transform-only", "--json"];
        let done = run(folder, &[&only[..], &["--to", "predicted.ndjson"]].concat());
        // The only row is rejected: there is no prediction.
        let done = done.expect(i32::from(!is_fine));
        let report = done.json();
        for key in ["rejected", "rejected_by_reason"] {
            assert_eq!(report[key], source[key], "{path}: {report} {source}");
        }
        let predicted = fs::read_to_string(folder.join("predicted.ndjson")).unwrap();
        let one: Value = serde_json::from_str(&predicted).unwrap();
        if *is_fine {
            assert_eq!(one["error"], Value::Null, "{path}: {one}");
            // Values that no step can read as a number are missing, as in the build, and reported.
            let warning = done
                .stderr
                .lines()
                .find(|line| line.contains("cells of a column"));
            let warning = warning.unwrap_or_else(|| panic!("{path}: {}", done.stderr));
            assert!(warning.contains("code"), "{warning}");
            continue;
        }
        assert_eq!(one["error"], "type_conflict", "{path}: {one}");
        let detail = one["detail"].as_str().unwrap();
        let sample = source["reject_sample"].as_str().unwrap();
        let expected = format!("`type_conflict`: `{odd}`: {detail}: ");
        assert!(
            sample.starts_with(&expected),
            "{path}: {sample}, not {expected}"
        );
    }
}

#[test]
fn what_is_unusual_about_a_row_is_counted_and_flagged_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_homes(folder);
    let file = pipeline(folder, &text("price", "dear", "regression"));
    run(folder, &["run", file]).expect(0);
    let rows = concat!(
        "{\"size\":50,\"district\":\"01\",\"garden\":true}\n",
        "{\"size\":1e9,\"district\":\"77\",\"garden\":true}\n",
        "{\"district\":\"02\"}\n",
    );
    let plain = piped(folder, file, rows.as_bytes(), &["--json"]).expect(0);
    assert_eq!(lines(&plain).len(), 3);
    let report: Value = serde_json::from_str(plain.stderr.lines().last().unwrap()).unwrap();
    let counts = |key: &str| report[key].clone();
    assert_eq!(
        counts("missing_cells"),
        serde_json::json!({ "garden": 1, "size": 1 })
    );
    assert_eq!(
        counts("unknown_categories"),
        serde_json::json!({ "district": 1 })
    );
    assert_eq!(counts("far_outside"), serde_json::json!({ "size": 1 }));

    let flagged = piped(folder, file, rows.as_bytes(), &["--flags"]).expect(0);
    let predicted = lines(&flagged);
    let flags: Vec<&Value> = predicted.iter().map(|one| &one["flags"]).collect();
    let expected = [
        Value::Null,
        "`district` has an unknown category; `size` is far beyond the caps of `winsorize`".into(),
        "2 of 3 inputs are missing".into(),
    ];
    assert_eq!(flags, expected.iter().collect::<Vec<_>>());
    // The numbers are the same, and the screen has the counts.
    for (flagged, plain) in predicted.iter().zip(lines(&plain)) {
        assert_eq!(flagged["prediction"], plain["prediction"]);
    }
    for part in [
        "rows with a category that too few training rows have, or none: `district` (1)",
        "cells far beyond the caps of `winsorize`: `size` (1)",
        "cells without a value: `garden` (1), `size` (1)",
    ] {
        assert!(flagged.stderr.contains(part), "{}", flagged.stderr);
    }
}
