//! Each fuzz target has a program, a corpus, and a test that replays it.

use std::{collections::BTreeSet, fs, path::Path};

/// Crates with targets.
const CRATES: [&str; 9] = [
    "schemas",
    "http",
    "storage",
    "image",
    "readers",
    "ingest",
    "preprocess",
    "loader",
    "trainer",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Names in a folder, without their extension.
fn names_in(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().path());
    let stem = |path: std::path::PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    names.map(stem).collect()
}

/// Names of the targets that the tests of a crate replay.
fn replayed(name: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(name).join("src/fuzzing.rs")).unwrap();
    let (_, list) = text.split_once("replays! {").unwrap();
    let (list, _) = list.split_once('}').unwrap();
    list.split_whitespace().map(ToOwned::to_owned).collect()
}

#[test]
fn every_fuzz_target_is_a_program_and_is_replayed() {
    let programs = names_in("fuzz/fuzz_targets");
    assert_eq!(names_in("fuzz/corpus"), programs);
    let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    let (mut replays, mut count) = (BTreeSet::new(), 0);
    for name in CRATES {
        for target in replayed(name) {
            let source = format!("fuzz/fuzz_targets/{target}.rs");
            let source = fs::read_to_string(root().join(source)).unwrap();
            let called = format!("feedline_{name}::fuzzing::{target}(data);");
            assert!(
                source.contains(&called),
                "{target} does not call `{called}`"
            );
            let bin = format!("name = \"{target}\"\npath = \"fuzz_targets/{target}.rs\"\n");
            assert!(
                manifest.contains(&bin),
                "{target} is missing in its manifest"
            );
            replays.insert(target);
            count += 1;
        }
    }
    assert_eq!((&replays, replays.len()), (&programs, count));
}
