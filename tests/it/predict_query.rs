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
    // The type of a column of a query is not known, so the reason has another word for it.
    let landed = landed.replace("`amount` is integer", "`amount` is number");
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
