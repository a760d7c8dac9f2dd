//! Comparison of a text with a file, such as one of `tests/snapshots/`.
//!
//! A test run with `FEEDLINE_WRITE_SNAPSHOTS=1` writes the files instead.

use std::{env, fs, path::Path};

/// Compares a text with a file, or writes the file.
pub fn compare(path: &Path, text: &str) {
    let text = format!("{text}\n");
    if env::var_os("FEEDLINE_WRITE_SNAPSHOTS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &text).unwrap();
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == text,
        "{} has drifted: run the test with FEEDLINE_WRITE_SNAPSHOTS=1, read the difference and commit it; the text is\n{text}",
        path.display()
    );
}
