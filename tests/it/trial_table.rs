//! The table of findings in `tests/trials.md` has every finding, and names tests that exist.

use std::{collections::BTreeSet, fs, path::Path};

/// Folders whose tests the table may name.
const TESTS_IN: [&str; 15] = [
    "http/src",
    "readers/src",
    "readers/tests",
    "schemas/src",
    "storage/src",
    "storage/tests",
    "ingest/src",
    "ingest/tests",
    "preprocess/src",
    "loader/src",
    "loader/tests",
    "trainer/src",
    "trainer/tests",
    "python/tests",
    "src",
];

/// Sections of the table, and how many findings each has.
const SECTIONS: [(&str, u32); 9] = [
    ("ingest", 35),
    ("tables S", 12),
    ("tables B", 12),
    ("durability", 13),
    ("security", 15),
    ("training S", 10),
    ("training C", 5),
    ("statistics", 13),
    ("later", 32),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Adds the names of all functions in the Rust and Python files below a folder.
fn add_functions(folder: &Path, found: &mut BTreeSet<String>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_functions(&path, found);
            continue;
        }
        let keyword = match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => "fn ",
            Some("py") => "def ",
            _ => continue,
        };
        let text = fs::read_to_string(&path).unwrap();
        let names = text.split(keyword).skip(1);
        let names = names.filter_map(|rest| rest.split_once('('));
        found.extend(names.map(|(name, _)| name.to_owned()));
    }
}

#[test]
fn each_finding_of_the_trials_has_a_row_with_tests_that_exist_or_a_reason() {
    let mut functions = BTreeSet::new();
    for folder in TESTS_IN.iter().chain(&["tests/it"]) {
        add_functions(&root().join(folder), &mut functions);
    }
    let table = fs::read_to_string(root().join("tests/trials.md")).unwrap();
    for (section, last) in SECTIONS {
        for number in 1..=last {
            let space = match section.contains(' ') {
                true => "",
                false => " ",
            };
            let finding = format!("{section}{space}{number}");
            let begin = format!("| {finding} | ");
            let rows: Vec<&str> = table
                .lines()
                .filter(|row| row.starts_with(&begin))
                .collect();
            let [row] = rows[..] else {
                panic!("`{finding}` has {} rows", rows.len());
            };
            // Finding, description, tests, outcome before, outcome after.
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let ["", _, _, tests, before, after, ""] = cells[..] else {
                panic!("{} cells in: {row}", cells.len());
            };
            assert!(!before.is_empty() && !after.is_empty(), "{row}");
            let tests: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
            assert!(!tests.is_empty() || after.starts_with("open: "), "{row}");
            for test in tests {
                assert!(functions.contains(test), "no test `{test}`: {row}");
            }
        }
    }
}
