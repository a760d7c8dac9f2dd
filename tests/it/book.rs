//! The book: every block of README.md and docs/**/*.md runs, links lead somewhere, and generated
//! pages are those of the code.
//!
//! Comments before a block say what it is for: `<!-- file: NAME -->` writes it to a file of the
//! page's folder, `<!-- exit: N -->` expects another exit code, `<!-- norun: REASON -->` leaves it
//! out, and `<!-- run: COMMAND -->` is a command that the page does not show. Any other `toml` block
//! must parse as a pipeline. `FEEDLINE_BOOK_PAGE=WORD` runs only the pages whose path has the word.
//! `FEEDLINE_PYTHON_WHEEL=PYTHON` names a Python with the wheel, for blocks of Python.

mod blocks;
mod configuration;
mod contents;
mod errors;
mod links;
mod markdown;

use std::{env, fs, path::Path};

/// A page, by its path in the checkout.
#[derive(Clone, Debug)]
struct Page {
    path: String,
    text: String,
}

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Adds the Markdown files below `folder`, by their paths in `root`.
fn add_pages(root: &Path, folder: &Path, pages: &mut Vec<Page>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_pages(root, &path, pages);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            let own = path
                .strip_prefix(root)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            let text = fs::read_to_string(&path).unwrap();
            pages.push(Page { path: own, text });
        }
    }
}

/// README.md and the pages of docs, in the order of their paths. SUMMARY.md is no page.
fn pages() -> Vec<Page> {
    let root = checkout();
    let mut pages = vec![Page {
        path: "README.md".to_owned(),
        text: fs::read_to_string(root.join("README.md")).unwrap(),
    }];
    add_pages(root, &root.join("docs"), &mut pages);
    pages.retain(|page| page.path != "docs/SUMMARY.md");
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    pages
}

/// True where generated files are written before they are compared.
fn is_writing() -> bool {
    env::var_os("FEEDLINE_WRITE_SCHEMAS").is_some()
}

/// Asserts that a generated file is up to date. With `FEEDLINE_WRITE_SCHEMAS=1` it writes it first.
fn assert_generated(path: &str, text: &str) {
    let file = checkout().join(path);
    if is_writing() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    let differs = found.lines().zip(text.lines()).position(|(a, b)| a != b);
    assert!(
        found == text,
        "{path} has drifted (line {}): run the test with FEEDLINE_WRITE_SCHEMAS=1 and commit the file",
        differs.unwrap_or(found.lines().count().min(text.lines().count())) + 1
    );
}

/// Breaks a text into lines of at most 100 columns; the first begins with `first`, the others with
/// as many spaces. A word that Markdown would read as a list or a heading never begins a line.
fn wrap(first: &str, text: &str) -> String {
    const WIDTH: usize = 100;
    let indent = " ".repeat(first.len());
    let mut units: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_marker =
            word.starts_with(['-', '+', '*', '#', '>', '=', '|']) || ["1.", "1)"].contains(&word);
        match units.last_mut() {
            Some(unit) if is_marker => {
                unit.push(' ');
                unit.push_str(word);
            }
            _ => units.push(word.to_owned()),
        }
    }
    let (mut out, mut used) = (first.to_owned(), first.len());
    for (at, unit) in units.iter().enumerate() {
        let width = unit.chars().count();
        if at > 0 && used + 1 + width > WIDTH {
            out.push('\n');
            out.push_str(&indent);
            used = indent.len();
        } else if at > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(unit);
        used += width;
    }
    out.push('\n');
    out
}

/// The text with `<` escaped outside of code, and links of Rust's documentation as plain code.
fn escaped(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    let last = parts.len() - 1;
    let parts = parts.into_iter().enumerate().map(|(at, part)| {
        if at % 2 == 1 {
            return part.to_owned();
        }
        let part = match at > 0 {
            true => part.strip_prefix(']').unwrap_or(part),
            false => part,
        };
        let part = match at < last {
            true => part.strip_suffix('[').unwrap_or(part),
            false => part,
        };
        part.replace('<', "&lt;")
    });
    parts.collect::<Vec<_>>().join("`")
}
