//! New rows of a pipeline whose rows come from a query: read as the sources of the query are.

use std::{fmt::Write as _, fs, path::Path};

use crate::support::{pipeline, run};

/// A pipeline over `s.csv`, with `key` in its dataset.
fn text(key: &str) -> String {
    format!(
        "[pipeline]\nname = \"q\"\nroot = \"out\"\n\
         [[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"s.csv\"\n\
         csv = {{ delimiter = \";\", decimal_separator = \",\", thousands_separator = \".\" }}\n\
         contract = {{ dates = [\"%d.%m.%Y\"] }}\n\
         [dataset]\n{key}drop = [\"id\"]\nsplit = {{ train = 1, validation = 0, test = 0 }}\n\
         step = [{{ type = \"impute\" }}]\n"
    )
}

/// Features of the new rows, by the pipeline with this text.
fn features(folder: &Path, text: &str) -> String {
    let file = pipeline(folder, text);
    run(folder, &["run", file]).expect(0);
    let only = ["predict", file, "new.csv", "--transform-only"];
    run(folder, &only).expect(0).stdout
}

#[test]
fn rows_of_a_query_are_read_by_the_number_and_date_formats_of_its_sources() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut csv = "id;amount;day\n".to_owned();
    for id in 0..200 {
        let (thousands, rest) = (1 + id % 4, id * 37 % 1000);
        let day = 1 + id % 3;
        writeln!(csv, "{id};{thousands}.{rest:03};{day:02}.01.2024").unwrap();
    }
    fs::write(folder.join("s.csv"), csv).unwrap();
    let new = "amount;day\n1.432;02.01.2024\n1.304,44;2024-01-03\n900;01.01.2024\n1.5;01.01.2024\n";
    fs::write(folder.join("new.csv"), new).unwrap();
    let landed = features(folder, &text(""));
    let queried = features(folder, &text("sql = \"select id, amount, day from s\"\n"));
    assert!(landed.contains("\"amount\":1304.44"), "{landed}");
    assert_eq!(landed, queried);
}

#[test]
fn texts_of_a_query_that_look_like_grouped_numbers_are_the_categories_that_are_known() {
    for contract in ["", "contract.column.ver.type = \"text\"\n"] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut csv = "id;ver;n;y\n".to_owned();
        for id in 0..200 {
            let ver = ["1.125", "2.375", "3.5"][id % 3];
            writeln!(csv, "{id};{ver};{};{}", id * 7 % 11, id * 37 % 100).unwrap();
        }
        fs::write(folder.join("s.csv"), csv).unwrap();
        fs::write(folder.join("new.csv"), "ver;n\n1.125;1\n2.375;2\n3.5;3\n").unwrap();
        let text = |key: &str| {
            text(key)
                .replace("contract = { dates = [\"%d.%m.%Y\"] }\n", contract)
                .replace("step = [{ type = \"impute\" }]\n", "target = \"y\"\n")
        };
        let landed = features(folder, &text(""));
        let queried = features(folder, &text("sql = \"select id, ver, n, y from s\"\n"));
        assert_eq!(landed.matches("\"ver=1.125\":1.0").count(), 1, "{landed}");
        assert_eq!(landed, queried, "{contract}");
    }
}

#[test]
fn new_rows_of_a_series_that_a_query_makes_have_the_landed_rows_as_their_past() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut csv = "who;day;amount\n".to_owned();
    for day in 0..60 {
        let date = format!("{:02}.{:02}.2024", 1 + day % 30, 4 + day / 30);
        writeln!(csv, "a;{date};1.{:03},5", day * 37 % 1000).unwrap();
    }
    fs::write(folder.join("s.csv"), csv).unwrap();
    fs::write(folder.join("new.csv"), "who;day\na;31.05.2024\n").unwrap();
    let ndjson = "{\"who\":\"a\",\"day\":\"2024-05-31T00:00:00Z\"}\n";
    fs::write(folder.join("new.ndjson"), ndjson).unwrap();
    let text = |key: &str| {
        let series = "series = { time = \"day\", entity = [\"who\"] }\nfeatures = [\"before\"]\n";
        let text = text(&format!("{key}{series}")).replace("drop = [\"id\"]\n", "");
        let lag = "name = \"before\"\ntype = \"lag\"\ncolumn = \"amount\"\nrows = 1\n";
        format!("{text}[[dataset.feature]]\n{lag}")
    };
    let landed = features(folder, &text(""));
    assert!(landed.contains("\"before\":1183.5"), "{landed}");
    let text = text("sql = \"select who, day, amount from s\"\n");
    assert_eq!(features(folder, &text), landed);
    let file = pipeline(folder, &text);
    let only = ["predict", file, "new.ndjson", "--transform-only"];
    assert_eq!(run(folder, &only).expect(0).stdout, landed);
}

#[test]
fn predictions_for_rows_of_a_query_name_the_query_and_no_landed_rows() {
    let mut csv = "id;n;y\n".to_owned();
    for id in 0..150 {
        writeln!(csv, "{id};{};{}", id * 7 % 11, id * 37 % 100).unwrap();
    }
    let train = "[train]\nmodel = { type = \"mlp\", hidden = [4] }\nbatch_size = 20\nepochs = 1\n";
    for (query, source) in [("", "s"), ("sql = \"select id, n, y from s\"\n", "sql")] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(folder.join("s.csv"), &csv).unwrap();
        let key = format!("{query}target = \"y\"\npassthrough = [\"id\"]\n");
        let text = text(&key).replace("drop = [\"id\"]\n", "").replace(
            "train = 1, validation = 0, test = 0",
            "train = 0.6, validation = 0.2, test = 0.2",
        );
        let file = pipeline(folder, &format!("{text}{train}"));
        run(folder, &["run", file]).expect(0);
        let eval = ["eval", file, "--predictions", "test.csv", "--json"];
        let report = run(folder, &eval).expect(0).json();
        let worst = &report["worst"][0];
        assert!(worst["key"].is_string(), "{report}");
        let has_place = source == "s";
        for name in ["source", "sequence", "row"] {
            assert_eq!(worst.get(name).is_some(), has_place, "{name}: {report}");
        }
        let written = fs::read_to_string(folder.join("test.csv")).unwrap();
        let mut lines = written.lines();
        let header = lines.next().unwrap();
        assert!(
            header.starts_with("id,key,source,sequence,row,"),
            "{header}"
        );
        let mut sources = lines.map(|line| line.split(',').nth(2).unwrap());
        assert!(sources.all(|found| found == source), "{written}");
    }
}
