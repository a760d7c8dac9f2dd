//! Links between pages: each leads to a file and an anchor that exist. Links to other hosts are
//! checked by their form alone.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use super::{Page, checkout, markdown, pages};

/// Pages outside of the book whose links are checked too.
const OTHERS: [&str; 6] = [
    "ARCHITECTURE.md",
    "BENCHMARKS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "examples/README.md",
];

/// Beginnings of URLs of files in the checkout.
const REPOSITORY: [&str; 2] = [
    concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/"),
    concat!(env!("CARGO_PKG_REPOSITORY"), "/tree/main/"),
];

/// Removes `..` without a look at the disk.
fn normalized(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if out.file_name().is_some() => {
                out.pop();
            }
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

/// Reason that a link of a page is wrong.
fn problem(root: &Path, page: &Page, target: &str) -> Option<String> {
    let own_file = REPOSITORY
        .iter()
        .find_map(|prefix| target.strip_prefix(prefix));
    if let Some(path) = own_file {
        let path = path.split('#').next().unwrap_or_default();
        return (!root.join(path).exists()).then(|| "names no file of the checkout".to_owned());
    }
    if target.contains("://") || target.starts_with("mailto:") {
        let parsed = url::Url::parse(target);
        let is_known = |url: &url::Url| ["https", "http", "mailto"].contains(&url.scheme());
        return match parsed {
            Ok(url) if is_known(&url) => None,
            _ => Some("is not a URL".to_owned()),
        };
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let own = Path::new(&page.path);
    let file = match path {
        "" => own.to_owned(),
        path => normalized(&own.parent().unwrap_or(Path::new("")).join(path)),
    };
    if own.starts_with("docs") && !file.starts_with("docs") {
        return Some("leaves the book: use the URL of the repository".to_owned());
    }
    let mut on_disk = root.join(&file);
    if on_disk.is_dir() && !own.starts_with("docs") {
        return None;
    }
    if on_disk.is_dir() {
        on_disk.push("README.md");
    }
    if !on_disk.is_file() {
        return Some("leads to no file".to_owned());
    }
    if anchor.is_empty() || on_disk.extension().is_none_or(|ending| ending != "md") {
        return None;
    }
    let text = fs::read_to_string(&on_disk).unwrap();
    (!markdown::anchors(&text).contains(anchor)).then(|| "leads to no heading or anchor".to_owned())
}

/// All wrong links of some pages.
fn problems(root: &Path, pages: &[Page]) -> Vec<String> {
    let mut problems = Vec::new();
    for page in pages {
        for (line, target) in markdown::links(&page.text) {
            if let Some(reason) = problem(root, page, &target) {
                problems.push(format!("{}:{line}: `{target}` {reason}", page.path));
            }
        }
    }
    problems
}

#[test]
fn every_link_leads_to_a_page_and_an_anchor() {
    let mut all = pages();
    for path in OTHERS {
        if let Ok(text) = fs::read_to_string(checkout().join(path)) {
            all.push(Page {
                path: path.to_owned(),
                text,
            });
        }
    }
    let wrong = problems(checkout(), &all);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn links_without_a_file_an_anchor_or_within_the_book_are_found() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("docs")).unwrap();
    fs::write(folder.path().join("docs/b.md"), "# B\n\n## Two words\n").unwrap();
    fs::write(folder.path().join("c.md"), "# C\n").unwrap();
    let text = "# A\n[1](b.md#two-words) [2](b.md#three) [3](d.md) [4](../c.md) [5](#a) [6](ftp://x)\n\
                [7](https://github.com/feedline/feedline/blob/main/gone.md)\n";
    let page = Page {
        path: "docs/a.md".to_owned(),
        text: text.to_owned(),
    };
    fs::write(folder.path().join("docs/a.md"), text).unwrap();
    let found = problems(folder.path(), &[page]);
    let targets = [
        "b.md#three",
        "d.md",
        "../c.md",
        "ftp://x",
        "https://github.com/feedline/feedline/blob/main/gone.md",
    ];
    assert_eq!(found.len(), targets.len(), "{found:?}");
    for (found, target) in found.iter().zip(targets) {
        assert!(found.contains(&format!("`{target}`")), "{found}");
    }
}
