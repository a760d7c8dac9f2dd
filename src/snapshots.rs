//! Texts of `--help` of all commands.

use std::{collections::BTreeSet, fs, path::Path};

use clap::{Command, CommandFactory as _};
use feedline_testkit::snapshot_file::compare;

use crate::cli::Cli;

#[test]
fn the_help_of_every_command_is_that_of_its_snapshot() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/help");
    let mut names = BTreeSet::new();
    compare_help(
        &folder,
        &["feedline".to_owned()],
        &Cli::command(),
        &mut names,
    );
    for file in fs::read_dir(&folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        // Builds without the feature have no such command.
        let is_built = cfg!(feature = "cluster") || !name.starts_with("feedline-cluster");
        assert!(
            names.contains(&name) || !is_built,
            "there is no command of `{name}` any more: remove the file"
        );
    }
}

/// Compares the help of the command with this path, and of all below it.
fn compare_help(folder: &Path, path: &[String], command: &Command, names: &mut BTreeSet<String>) {
    let arguments = path.iter().map(String::as_str).chain(["--help"]);
    let shown = Cli::command().try_get_matches_from(arguments).unwrap_err();
    let name = format!("{}.txt", path.join("-"));
    // A build without the feature has one line less here.
    if cfg!(feature = "cluster") || path.len() > 1 {
        compare(&folder.join(&name), shown.to_string().trim_end());
    }
    names.insert(name);
    for below in command.get_subcommands() {
        let path = [path, &[below.get_name().to_owned()]].concat();
        compare_help(folder, &path, below, names);
    }
}
