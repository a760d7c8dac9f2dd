//! Forecasts: what has landed of a series to predictions of what comes next.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::Value;

use crate::support::{feedline, finish, run};

const SERIES: &str = "[pipeline]\nname = \"power\"\nroot = \"out\"\n\
    [[source]]\nname = \"power\"\ntype = \"files\"\nurl = \"power.csv\"\n\
    contract.column.at.type = \"text\"\n\
    [dataset]\ntarget = \"load\"\nfeatures = [\"warmth\", \"before\"]\n\
    split = { by = \"range\", train = 0.6, validation = 0.2, test = 0.2, embargo = 10 }\n\
    series = { time = \"at\", entity = [\"plant\"], max_gap = \"1h\" }\n\
    [[dataset.feature]]\nname = \"before\"\ntype = \"lag\"\ncolumn = \"load\"\nrows = 1\n";
const WINDOWS: &str = "[dataset.sequence]\nlength = 6\nhorizon = 3\nseason = 24\n";
const TRAIN: &str =
    "[train]\nmodel = { type = \"mlp\", hidden = [8] }\nbatch_size = 32\nepochs = 2\n";

/// Hours `hours` of two plants; the load follows the hour of the day.
fn write_readings(path: &Path, hours: std::ops::Range<u32>, with_load: bool) {
    let mut csv = "plant,at,warmth,load\n".to_owned();
    for hour in hours {
        for plant in ["north", "south"] {
            let day = 1 + hour / 24;
            let load = match with_load {
                true => load(plant, hour).to_string(),
                false => String::new(),
            };
            writeln!(
                csv,
                "{plant},2024-01-{day:02} {:02}:00:00,{},{load}",
                hour % 24,
                hour % 7
            )
            .unwrap();
        }
    }
    fs::write(path, csv).unwrap();
}

fn load(plant: &str, hour: u32) -> u32 {
    let of_plant = if plant == "north" { 100 } else { 300 };
    of_plant + (hour % 24) * 10 + hour % 5
}

fn predicted(folder: &Path, arguments: &[&str]) -> Vec<Value> {
    let found = run(folder, arguments).expect(0);
    let lines = found.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn the_next_horizon_of_each_entity_is_predicted_from_what_has_landed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_readings(&folder.join("power.csv"), 0..240, true);
    fs::write(
        folder.join("power.toml"),
        format!("{SERIES}{WINDOWS}{TRAIN}"),
    )
    .unwrap();
    run(folder, &["run", "power.toml"]).expect(0);
    let predicted = predicted(folder, &["predict", "power.toml"]);
    assert_eq!(predicted.len(), 6);
    for (row, one) in predicted.iter().enumerate() {
        let (plant, ahead) = (["north", "south"][row / 3], u32::try_from(row % 3).unwrap());
        assert_eq!(one["row"], row);
        assert_eq!(one["plant"], plant);
        // The last reading is that of hour 239, the end of day 10.
        assert_eq!(one["at"], format!("2024-01-10 {:02}:00:00", 21 + ahead));
        assert_eq!(one["target_time"], format!("2024-01-11T{ahead:02}:00:00Z"));
        assert_eq!(
            one["last_value"].as_f64(),
            Some(f64::from(load(plant, 237 + ahead)))
        );
        let season = f64::from(load(plant, 240 + ahead - 24));
        assert_eq!(one["seasonal_value"].as_f64(), Some(season));
        assert!(
            one["prediction"].as_f64().is_some_and(f64::is_finite),
            "{one}"
        );
        assert_eq!(one["error"], Value::Null);
    }
    // The same rows as a history, and as new rows behind it.
    write_readings(&folder.join("past.csv"), 0..230, true);
    write_readings(&folder.join("new.csv"), 230..240, true);
    let other = ["predict", "power.toml", "new.csv", "--history", "past.csv"];
    let found = self::predicted(folder, &other);
    assert_eq!(found.len(), 20);
    for (row, one) in predicted.iter().enumerate() {
        // New rows are in the order of their file, which alternates between the plants.
        let same = &found[2 * (7 + row % 3) + row / 3];
        assert_eq!(same["plant"], one["plant"]);
        assert_eq!(same["prediction"], one["prediction"], "{one} {same}");
        assert_eq!(same["target_time"], one["target_time"]);
    }
}

#[test]
fn new_rows_get_features_of_the_past_that_has_landed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_readings(&folder.join("power.csv"), 0..240, true);
    fs::write(folder.join("power.toml"), format!("{SERIES}{TRAIN}")).unwrap();
    run(folder, &["run", "power.toml"]).expect(0);
    write_readings(&folder.join("new.csv"), 240..241, false);
    let found = predicted(
        folder,
        &[
            "predict",
            "power.toml",
            "new.csv",
            "--passthrough",
            "warmth",
        ],
    );
    assert_eq!(found.len(), 2);
    for (one, plant) in found.iter().zip(["north", "south"]) {
        assert_eq!(
            (&one["plant"], &one["warmth"]),
            (&plant.into(), &"2".into())
        );
        assert_eq!(
            one["last_value"].as_f64(),
            Some(f64::from(load(plant, 239)))
        );
        assert!(one["prediction"].is_f64(), "{one}");
    }
    // The same rows from standard input, which is the default.
    let options = ["predict", "power.toml", "--format", "csv"];
    let inputs: [&[&str]; 2] = [&[], &["-"]];
    for more in inputs {
        let mut command = feedline(folder);
        command.args(options).args(more);
        command.args(["--passthrough", "warmth"]);
        command.stdin(fs::File::open(folder.join("new.csv")).unwrap());
        let piped = finish(command.output().unwrap()).expect(0);
        let piped = piped.stdout.lines();
        let piped: Vec<Value> = piped.map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(piped, found, "{more:?}");
    }
    // Text where numbers landed is no other reading of the same column.
    fs::write(
        folder.join("odd.csv"),
        "plant,at,warmth,load\nnorth,2024-01-11 00:00:00,warm,\n",
    )
    .unwrap();
    let refused = run(folder, &["predict", "power.toml", "odd.csv"]).expect(1);
    assert!(refused.stderr.contains("`warmth`"), "{}", refused.stderr);
}

#[test]
fn new_rows_of_a_series_keep_their_places_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_readings(&folder.join("power.csv"), 0..240, true);
    // Timestamps here, which one unreadable cell must not turn into text.
    let series = SERIES.replace("contract.column.at.type = \"text\"\n", "");
    fs::write(folder.join("power.toml"), format!("{series}{TRAIN}")).unwrap();
    run(folder, &["run", "power.toml"]).expect(0);
    let rows = "plant,at,warmth,load\n\
        south,2024-01-11 01:00:00,warm,\n\
        south,2024-01-11 00:00:00,1,\n\
        north,unknown,1,\n\
        north,2024-01-11 00:00:00,1,\n";
    fs::write(folder.join("new.csv"), rows).unwrap();
    let found = predicted(folder, &["predict", "power.toml", "new.csv"]);
    let plants: Vec<&Value> = found.iter().map(|one| &one["plant"]).collect();
    assert_eq!(plants, ["south", "south", "north", "north"]);
    for (row, one) in found.iter().enumerate() {
        assert_eq!(one["row"], row);
        let (is_bad, column) = (row % 2 == 0, ["warmth", "at"][row / 2]);
        assert_eq!(one["prediction"].is_null(), is_bad, "{one}");
        if is_bad {
            assert_eq!(one["error"], "type_conflict", "{one}");
            let detail = one["detail"].as_str().unwrap();
            assert!(detail.contains(&format!("`{column}`")), "{one}");
        }
    }

    // Without any row before them, features are made of the new rows alone.
    fs::write(folder.join("none.csv"), "plant,at,warmth,load\n").unwrap();
    let cold = ["predict", "power.toml", "new.csv", "--history", "none.csv"];
    let done = run(folder, &cold).expect(0);
    let said = done.stderr;
    assert!(said.contains("`none.csv` has no rows"), "{said}");
    assert_eq!(done.stdout.lines().count(), 4);
    // The new rows come from standard input, which has none.
    let piped = ["predict", "power.toml", "--history", "none.csv"];
    let said = run(folder, &piped).expect(0).stderr;
    assert!(said.contains("so nothing was predicted"), "{said}");
}

#[test]
fn a_bad_cell_rejects_its_row_only_where_it_is_needed_and_texts_of_that_row_stay_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_readings(&folder.join("power.csv"), 0..240, true);
    let readings = fs::read_to_string(folder.join("power.csv")).unwrap();
    let mut rows = String::new();
    for line in readings.lines() {
        let cell = if line.ends_with("load") { "code" } else { "7" };
        writeln!(rows, "{line},{cell}").unwrap();
    }
    fs::write(folder.join("power.csv"), rows).unwrap();
    let series = SERIES.replace("[dataset]\n", "[dataset]\ndrop = [\"code\"]\n");
    fs::write(folder.join("power.toml"), series).unwrap();
    run(folder, &["run", "power.toml"]).expect(0);

    let rows = "{\"plant\":\"north\",\"at\":\"2024-01-11 00:00:00\",\"warmth\":1,\"code\":\"x\"}\n\
        {\"plant\":1.10,\"at\":123456789012345678901234,\"warmth\":\"warm\",\"code\":7}\n\
        {\"plant\":\"south\",\"at\":\"2024-01-11 00:00:00\",\"warmth\":1,\"code\":8}\n";
    fs::write(folder.join("new.ndjson"), rows).unwrap();
    let only = ["predict", "power.toml", "new.ndjson", "--transform-only"];
    let found = predicted(folder, &only);
    // Nothing reads `code`, which may be anything.
    fs::write(folder.join("good.ndjson"), rows.replace("\"x\"", "9")).unwrap();
    let good = ["predict", "power.toml", "good.ndjson", "--transform-only"];
    let good = predicted(folder, &good);
    assert_eq!((&found[0], &found[2]), (&good[0], &good[2]));
    let texts = [
        ("north", "2024-01-11 00:00:00"),
        ("1.10", "123456789012345678901234"),
        ("south", "2024-01-11 00:00:00"),
    ];
    assert_eq!(found.len(), texts.len());
    for (row, (one, (plant, at))) in found.iter().zip(texts).enumerate() {
        assert_eq!((&one["plant"], &one["at"]), (&plant.into(), &at.into()));
        let error = [Value::Null, "type_conflict".into()];
        assert_eq!(one["error"], error[row % 2], "{one}");
    }
    let carried = [&only[..], &["--passthrough", "code"]].concat();
    for (row, one) in predicted(folder, &carried).iter().enumerate() {
        assert_eq!(one["error"].is_null(), row == 2, "{one}");
    }

    // A column that only the new file has, and no row that lands.
    let row =
        "{\"plant\":\"north\",\"at\":\"2024-01-11 00:00:00\",\"warmth\":\"warm\",\"id\":\"A7\"}\n";
    fs::write(folder.join("bad.ndjson"), row).unwrap();
    let options = [
        "--transform-only",
        "--passthrough",
        "id",
        "--fail-on-rejects",
    ];
    let bad = [&["predict", "power.toml", "bad.ndjson"][..], &options].concat();
    let done = run(folder, &bad).expect(3);
    let one: Value = serde_json::from_str(done.stdout.trim()).unwrap();
    assert_eq!(one["id"], "A7", "{one}");
    assert_eq!(one["error"], "type_conflict", "{one}");
}

/// The readings of `hours` with a column `trip` of integers that no float holds, which the dataset
/// does not need.
fn write_trips(path: &Path, hours: std::ops::Range<u32>) {
    write_readings(path, hours, true);
    let readings = fs::read_to_string(path).unwrap();
    let mut rows = String::new();
    for (row, line) in readings.lines().enumerate() {
        match row {
            0 => writeln!(rows, "{line},trip").unwrap(),
            row => writeln!(rows, "{line},{}", 9_007_199_254_740_993 + 2 * row).unwrap(),
        }
    }
    fs::write(path, rows).unwrap();
}

#[test]
fn a_bad_cell_of_a_series_leaves_the_types_of_its_column_to_the_other_rows() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_trips(&folder.join("power.csv"), 0..240);
    let series = SERIES.replace("[dataset]\n", "[dataset]\ndrop = [\"trip\"]\n");
    fs::write(folder.join("power.toml"), series).unwrap();
    run(folder, &["run", "power.toml"]).expect(0);
    write_trips(&folder.join("past.csv"), 200..240);

    let write_new = |trips: [&str; 3]| {
        let [first, second, third] = trips;
        let rows = format!(
            "plant,at,warmth,load,trip\n\
             north,2024-01-11 00:00:00,1,110,{first}\n\
             south,2024-01-11 00:00:00,1,310,{second}\n\
             north,2024-01-11 01:00:00,1,120,{third}\n"
        );
        fs::write(folder.join("new.csv"), rows).unwrap();
    };
    let only = ["predict", "power.toml", "new.csv", "--transform-only"];
    let carried = [&only[..], &["--passthrough", "trip"]].concat();
    let replaced = [&carried[..], &["--history", "past.csv"]].concat();
    let large = "9007199254740995";
    let is_bad = |one: &Value| one["error"] == "type_conflict";
    write_new([large, "bad", "49"]);
    for arguments in [&carried, &replaced] {
        let found = predicted(folder, arguments);
        assert_eq!(found[0]["trip"], large, "{found:?}");
        assert_eq!(found[2]["trip"], "49", "{found:?}");
        let bad: Vec<bool> = found.iter().map(is_bad).collect();
        assert_eq!(bad, [false, true, false], "{found:?}");
    }
    // A fraction makes the column one of floats, as in ingest, where no such integer comes before it.
    for (trips, expected) in [
        (["7", "bad", "5.5"], [false, true, false]),
        ([large, "bad", "5.5"], [false, true, true]),
        (["5.5", "bad", large], [false, true, true]),
        ([large, "6", "5.5"], [false, false, true]),
        (["1e-05", "bad", "3"], [false, true, false]),
        (["1E3", "6", "5.5"], [true, false, false]),
    ] {
        write_new(trips);
        let found = predicted(folder, &carried);
        let bad: Vec<bool> = found.iter().map(is_bad).collect();
        assert_eq!(bad, expected, "{found:?}");
    }
}

#[test]
fn a_column_of_integers_takes_fractions_whatever_another_one_has() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_trips(&folder.join("power.csv"), 0..240);
    let series = SERIES.replace("[dataset]\n", "[dataset]\ndrop = [\"trip\"]\n");
    fs::write(folder.join("power.toml"), series).unwrap();
    run(folder, &["run", "power.toml"]).expect(0);

    let rows = "plant,at,warmth,load,trip\n\
        north,2024-01-11 00:00:00,1.5,110,7\n\
        south,2024-01-11 00:00:00,bad,310,9\n\
        north,2024-01-11 01:00:00,2,120,9007199254740993\n\
        south,2024-01-11 01:00:00,2.5,320,5.5\n\
        north,2024-01-11 02:00:00,3,130,bad\n";
    fs::write(folder.join("new.csv"), rows).unwrap();
    let only = ["predict", "power.toml", "new.csv", "--transform-only"];
    let found = predicted(folder, &[&only[..], &["--passthrough", "trip"]].concat());
    let bad = found.iter().map(|one| one["error"] == "type_conflict");
    let bad: Vec<bool> = bad.collect();
    assert_eq!(bad, [false, true, false, true, true], "{found:?}");
}

#[test]
fn a_bad_cell_that_is_not_needed_rejects_a_row_of_a_history_and_is_counted_in_new_rows() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_trips(&folder.join("power.csv"), 0..240);
    let series = SERIES.replace("[dataset]\n", "[dataset]\ndrop = [\"trip\"]\n");
    fs::write(folder.join("power.toml"), series).unwrap();
    run(folder, &["run", "power.toml"]).expect(0);

    // The last reading of the south has a bad cell: ingest would reject it.
    write_trips(&folder.join("past.csv"), 200..240);
    let past = fs::read_to_string(folder.join("past.csv")).unwrap();
    let (rows, last) = past.trim_end().rsplit_once('\n').unwrap();
    let (cells, _) = last.rsplit_once(',').unwrap();
    fs::write(folder.join("past.csv"), format!("{rows}\n{cells},bad\n")).unwrap();
    fs::write(folder.join("without.csv"), format!("{rows}\n")).unwrap();
    let new = "plant,at,warmth,load,trip\n\
        north,2024-01-11 00:00:00,1,110,bad\n\
        south,2024-01-11 00:00:00,1,310,49.5\n";
    // Ingest would land the fraction: it makes the column one of floats.
    fs::write(folder.join("new.csv"), new).unwrap();
    let only = ["predict", "power.toml", "new.csv", "--transform-only"];
    let with = |history: &'static str| [&only[..], &["--history", history]].concat();
    let found = predicted(folder, &with("past.csv"));
    assert_eq!(found, predicted(folder, &with("without.csv")));

    let more = ["--to", "features.ndjson", "--json"];
    let report_of = |history: &'static str| {
        let arguments = [with(history), more.to_vec()].concat();
        run(folder, &arguments).expect(0).json()
    };
    let report = report_of("past.csv");
    assert_eq!(report["rejected"], 0, "{report}");
    let before = |report: &Value| report["rejected_before"].as_u64().unwrap();
    assert_eq!(before(&report), before(&report_of("without.csv")) + 1);
    let warnings = report["warnings"].as_array().unwrap();
    let mut warnings = warnings.iter();
    let warning = warnings.find(|warning| warning["code"] == "unneeded_cells");
    let message = warning.unwrap()["message"].as_str().unwrap();
    assert!(message.contains("`trip` (1, `\"bad\"`)"), "{message}");
}

#[test]
fn a_row_of_a_history_without_a_required_column_is_rejected_and_a_new_row_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_trips(&folder.join("power.csv"), 0..240);
    let required = "contract.required = [\"trip\"]\ncontract.nulls = \"quarantine_row\"\n\
        [dataset]\ndrop = [\"trip\"]\n";
    let series = SERIES.replace("[dataset]\n", required);
    fs::write(folder.join("power.toml"), series).unwrap();
    run(folder, &["run", "power.toml"]).expect(0);

    // The last reading of the south has no trip: ingest would reject it.
    write_trips(&folder.join("past.csv"), 200..240);
    let past = fs::read_to_string(folder.join("past.csv")).unwrap();
    let (rows, last) = past.trim_end().rsplit_once('\n').unwrap();
    let (cells, _) = last.rsplit_once(',').unwrap();
    fs::write(folder.join("past.csv"), format!("{rows}\n{cells},\n")).unwrap();
    fs::write(folder.join("without.csv"), format!("{rows}\n")).unwrap();
    let new = "plant,at,warmth,load\n\
        north,2024-01-11 00:00:00,1,110\n\
        south,2024-01-11 00:00:00,1,310\n";
    fs::write(folder.join("new.csv"), new).unwrap();
    let only = ["predict", "power.toml", "new.csv", "--transform-only"];
    let with = |history: &'static str| [&only[..], &["--history", history]].concat();
    let found = predicted(folder, &with("past.csv"));
    assert_eq!(found, predicted(folder, &with("without.csv")));

    let more = ["--to", "features.ndjson", "--json"];
    let report_of = |history: &'static str| {
        let arguments = [with(history), more.to_vec()].concat();
        run(folder, &arguments).expect(0).json()
    };
    let report = report_of("past.csv");
    assert_eq!(report["rejected"], 0, "{report}");
    let before = |report: &Value| report["rejected_before"].as_u64().unwrap();
    assert_eq!(before(&report), before(&report_of("without.csv")) + 1);
}

#[test]
fn a_file_of_a_series_without_a_needed_column_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_readings(&folder.join("power.csv"), 0..240, true);
    fs::write(folder.join("power.toml"), SERIES).unwrap();
    run(folder, &["run", "power.toml"]).expect(0);
    let rows = "plant,at,Warmth\nnorth,2024-01-11 00:00:00,1\n";
    fs::write(folder.join("new.csv"), rows).unwrap();
    let only = ["predict", "power.toml", "new.csv", "--transform-only"];
    let refused = run(folder, &only).expect(1).stderr;
    let words: Vec<&str> = refused.split_whitespace().collect();
    let expected =
        "`new.csv`: it lacks 1 of the 3 needed columns: `warmth`; did you mean `Warmth`?";
    assert!(words.join(" ").contains(expected), "{refused}");
    // Objects need not have all keys: the report names those that no row has.
    let row = "{\"plant\":\"north\",\"at\":\"2024-01-11 00:00:00\",\"Warmth\":1}\n";
    fs::write(folder.join("new.ndjson"), row).unwrap();
    let only = ["predict", "power.toml", "new.ndjson", "--transform-only"];
    let report = [&only[..], &["--to", "x.csv", "--json"]].concat();
    let report = run(folder, &report).expect(0).json();
    assert_eq!(report["absent"], serde_json::json!(["warmth"]), "{report}");
    assert_eq!(report["missing_cells"]["warmth"], 1, "{report}");
}

#[test]
fn features_without_earlier_values_are_counted_flagged_and_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_readings(&folder.join("power.csv"), 0..240, true);
    fs::write(folder.join("power.toml"), SERIES).unwrap();
    run(folder, &["run", "power.toml"]).expect(0);
    let predict = ["predict", "power.toml", "new.csv", "--transform-only"];
    let to = ["--to", "x.csv", "--flags", "--json"];
    let report_of = || {
        let report = run(folder, &[&predict[..], &to].concat()).expect(0).json();
        let warnings = report["warnings"].as_array().into_iter().flatten();
        let codes = warnings.map(|one| one["code"].as_str().unwrap().to_owned());
        let codes: Vec<String> = codes.collect();
        (report, codes)
    };
    // The load before the first hour is known, and those before the others are not.
    write_readings(&folder.join("new.csv"), 240..246, false);
    let (report, codes) = report_of();
    assert_eq!(report["missing_cells"]["before"], 10, "{report}");
    assert_eq!(codes, ["imputed_features"]);
    let flagged = predicted(folder, &[&predict[..], &["--flags"]].concat());
    for (row, one) in flagged.iter().enumerate() {
        let expected = (row >= 2).then_some("1 of 2 inputs is missing");
        assert_eq!(one["flags"].as_str(), expected, "{one}");
    }

    write_readings(&folder.join("new.csv"), 240..246, true);
    let (report, codes) = report_of();
    assert_eq!(report["missing_cells"], Value::Null, "{report}");
    assert!(codes.is_empty(), "{report}");
    let new = fs::read_to_string(folder.join("new.csv")).unwrap();
    fs::write(folder.join("new.csv"), new.replace("north", "nroth")).unwrap();
    let (report, codes) = report_of();
    assert_eq!(report["missing_cells"]["before"], 1, "{report}");
    assert!(codes.contains(&"unknown_entities".to_owned()), "{report}");
}

#[test]
fn the_run_of_another_horizon_is_refused_with_a_way_to_have_both() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_readings(&folder.join("power.csv"), 0..240, true);
    let text = format!("{SERIES}{WINDOWS}{TRAIN}");
    fs::write(folder.join("power.toml"), text).unwrap();
    let done = run(folder, &["run", "power.toml", "--json"]).expect(0);
    let done = done.json();
    let checkpoint = done["train"]["checkpoint"].as_str().unwrap();
    let name = checkpoint.rsplit('/').nth(1).unwrap();
    let other = ["--set", "dataset.sequence.horizon=2"];
    run(folder, &[&["run", "power.toml"][..], &other].concat()).expect(0);
    let refused = run(folder, &["predict", "power.toml", "--run", name]).expect(1);
    let words: Vec<&str> = refused.stderr.split_whitespace().collect();
    let words = words.join(" ");
    assert!(words.contains("such as one for each horizon"), "{words}");
    assert!(!words.contains("`feedline predict --run`"), "{words}");
}

/// A series of one column, and a pipeline whose windows hold its past.
fn write_wave(folder: &Path, hours: u32) {
    let mut csv = "at,load\n".to_owned();
    for hour in 0..hours {
        writeln!(csv, "{hour},{}", wave(hour)).unwrap();
    }
    fs::write(folder.join("wave.csv"), csv).unwrap();
    let text = "[pipeline]\nname = \"wave\"\nroot = \"out\"\n\
        [[source]]\nname = \"wave\"\ntype = \"files\"\nurl = \"wave.csv\"\n\
        [dataset]\ntarget = \"load\"\nfeatures = [\"load\"]\npassthrough = [\"at\"]\n\
        step = [{ type = \"standardize\" }]\n\
        split = { by = \"range\", train = 0.6, validation = 0.2, test = 0.2 }\n\
        series = { time = \"at\", unit = \"s\" }\nsequence = { length = 3, horizon = 2 }\n\
        [train]\nmodel = { type = \"mlp\", hidden = [] }\nbatch_size = 32\nepochs = 60\nlearning_rate = 0.01\n";
    fs::write(folder.join("wave.toml"), text).unwrap();
}

/// A wave whose values are each a linear function of the two before it.
fn wave(hour: u32) -> f64 {
    500.0 + 200.0 * (f64::from(hour) * 0.7).sin()
}

#[test]
fn a_series_of_one_column_is_forecast_from_its_own_past() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_wave(folder, 600);
    let done = run(folder, &["run", "wave.toml", "--json"])
        .expect(0)
        .json();
    let r2 = done["train"]["test"]["r2"].as_f64().unwrap();
    assert!(r2 > 0.999, "{done}");
    let forecast = predicted(folder, &["predict", "wave.toml"]);
    assert_eq!(forecast.len(), 2);
    for (ahead, one) in forecast.iter().enumerate() {
        let expected = wave(600 + u32::try_from(ahead).unwrap());
        let found = one["prediction"].as_f64().unwrap();
        assert!((found - expected).abs() < 10.0, "{one} {expected}");
        // The window ends two hours before the target.
        assert_eq!(one["at"], (598 + ahead).to_string());
    }

    // Predictions of a split have the columns that the shards keep, those of the row that is predicted.
    let file = ["eval", "wave.toml", "--predictions", "test.csv"];
    let measured = run(folder, &file).expect(0);
    assert!(
        !measured.stderr.contains("dataset.passthrough"),
        "{}",
        measured.stderr
    );
    let found = fs::read_to_string(folder.join("test.csv")).unwrap();
    let mut lines = found.lines();
    assert_eq!(
        lines.next(),
        Some("at,key,source,sequence,row,truth,prediction")
    );
    let mut rows = 0;
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        let at: u32 = cells[0].parse().unwrap();
        assert_eq!(cells[4], cells[0]);
        let truth: f64 = cells[5].parse().unwrap();
        assert!((truth - wave(at)).abs() < 1e-3, "{line}");
        rows += 1;
    }
    assert_eq!(rows, 120 - 4);

    // Without them the command says how to have entity and time.
    let without = ["--set", "dataset.passthrough=[]", "--set", "train.epochs=1"];
    run(folder, &[&["run", "wave.toml"][..], &without].concat()).expect(0);
    let said = run(folder, &[&file[..], &without].concat())
        .expect(0)
        .stderr;
    assert!(
        said.contains("list these columns in `dataset.passthrough`"),
        "{said}"
    );
}
