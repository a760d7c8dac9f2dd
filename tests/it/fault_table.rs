//! The table of ingest's faults names the tests that there are.

use std::{collections::BTreeSet, fs, path::Path};

/// Names of the tests in the files below a folder that bear a fault's number.
fn tests_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let after = text.split("fn fault_").skip(1);
            let names = after
                .filter_map(|rest| rest.split_once('('))
                .map(|(name, _)| name);
            let names = names.filter(|name| name.starts_with(|c: char| c.is_ascii_digit()));
            found.extend(names.map(|name| format!("fault_{name}")));
        }
    }
}

#[test]
fn each_of_the_54_faults_has_its_tests_in_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut there = BTreeSet::new();
    for folder in ["ingest/src", "storage/src", "tests/it", "preprocess/src"] {
        tests_below(&root.join(folder), &mut there);
    }
    let table = fs::read_to_string(root.join("tests/ingest-faults.md")).unwrap();
    let mut named = BTreeSet::new();
    for number in 1..=54 {
        let begin = format!("| {number} | ");
        let row = table.lines().find(|line| line.starts_with(&begin)).unwrap();
        let tests: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "{row}");
        for test in tests {
            assert!(test.starts_with(&format!("fault_{number:02}_")), "{row}");
            named.insert(test.to_owned());
        }
    }
    assert_eq!(named, there);
}
