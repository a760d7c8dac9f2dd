//! The tables of ingest's faults and of preprocessing's traps name the tests that there are.

use std::{collections::BTreeSet, fs, path::Path};

/// Folders of the tests of faults.
const FAULTS_IN: [&str; 6] = [
    "http/src",
    "readers/src",
    "ingest/src",
    "storage/src",
    "tests/it",
    "preprocess/src",
];
/// Folders of the tests of traps.
const TRAPS_IN: [&str; 3] = ["preprocess/src", "schemas/src", "tests/it"];
/// Traps of texts, images and tokens, which are no traps of tables or of time.
const OF_OTHER_DATA: [u32; 9] = [28, 29, 30, 47, 48, 49, 50, 51, 52];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Names of the tests in the files below a folder that begin with `prefix` and a number.
fn tests_below(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_below(&path, prefix, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let begin = format!("fn {prefix}");
            let after = text.split(&begin).skip(1);
            let names = after
                .filter_map(|rest| rest.split_once('('))
                .map(|(name, _)| name);
            let names = names.filter(|name| name.starts_with(|c: char| c.is_ascii_digit()));
            found.extend(names.map(|name| format!("{prefix}{name}")));
        }
    }
}

/// Holds the table `file`, a row for each number up to `last`, to the tests in `folders`; the numbers without a test.
fn check(file: &str, prefix: &str, last: u32, folders: &[&str]) -> Vec<u32> {
    let mut there = BTreeSet::new();
    for folder in folders {
        tests_below(&root().join(folder), prefix, &mut there);
    }
    let table = fs::read_to_string(root().join(file)).unwrap();
    let (mut named, mut without) = (BTreeSet::new(), Vec::new());
    for number in 1..=last {
        let begin = format!("| {number} | ");
        let row = table.lines().find(|line| line.starts_with(&begin)).unwrap();
        let tests: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        without.extend(tests.is_empty().then_some(number));
        for test in tests {
            assert!(test.starts_with(&format!("{prefix}{number:02}_")), "{row}");
            named.insert(test.to_owned());
        }
    }
    assert_eq!(named, there);
    without
}

#[test]
fn each_of_the_54_faults_has_its_tests_in_the_table() {
    let without = check("tests/ingest-faults.md", "fault_", 54, &FAULTS_IN);
    assert!(without.is_empty(), "{without:?}");
}

#[test]
fn each_of_the_55_traps_that_concerns_tables_and_time_has_its_tests_in_the_table() {
    let without = check("tests/preprocess-traps.md", "trap_", 55, &TRAPS_IN);
    assert_eq!(without, OF_OTHER_DATA);
}
