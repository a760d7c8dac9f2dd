//! `docs/SUMMARY.md` and `docs/llms.txt`: every page of the book once, in its part.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{
    Page, assert_generated, configuration,
    markdown::{first_paragraph, first_sentence, headings, links, without_links},
    pages,
};

/// URL of the sources, where `llms.txt` leads to.
const SOURCES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/");

/// A part of the book: its title, and pages or folders in their order.
struct Part {
    title: &'static str,
    entries: &'static [Entry],
}

/// An entry of a part, by its path in `docs/`. Pages that do not exist are left out.
enum Entry {
    Page(&'static str),
    /// The pages of a folder: those that its README.md links to by subject, else the named ones
    /// first and the others by name.
    Folder(&'static str, &'static [&'static str]),
}

use Entry::{Folder, Page as Single};

const EXPLANATIONS: &[&str] = &[
    "exactly-once",
    "commit-log",
    "reading-sources",
    "rejects-and-contracts",
    "leakage",
    "exact-statistics",
    "duplicates",
    "time-series",
    "building-datasets",
    "shards",
    "tokens",
    "images",
    "loader",
    "trainer",
    "data-parallel",
    "cluster",
    "command-line",
    "security",
    "decisions",
];

const FORMATS: &[&str] = &[
    "commit-log",
    "landing-files",
    "delta-tables",
    "manifest",
    "shards",
    "transform",
    "loader-state",
    "checkpoint",
    "exports",
    "reports",
];

const PARTS: &[Part] = &[
    Part {
        title: "Tutorials",
        entries: &[Folder("tutorials", &["quickstart"])],
    },
    Part {
        title: "How-to",
        entries: &[Folder("how-to", &[])],
    },
    Part {
        title: "Coming from another tool",
        entries: &[Folder("coming-from", &[])],
    },
    Part {
        title: "Reference",
        entries: &[
            Folder("reference/configuration", &[]),
            Single("settings-after-landing.md"),
            Single("reference/cli.md"),
            Single("reference/errors.md"),
            Single("reference/exit-codes.md"),
            Single("reference/metrics.md"),
            Single("reference/python.md"),
            Folder("reference/formats", FORMATS),
            Single("reference/limitations.md"),
        ],
    },
    Part {
        title: "Explanation",
        entries: &[Folder("explanation", EXPLANATIONS)],
    },
    Part {
        title: "About",
        entries: &[
            Single("guarantees.md"),
            Single("benchmarks.md"),
            Single("glossary.md"),
            Single("changelog.md"),
        ],
    },
];

/// A line of the table of contents.
#[derive(Debug)]
struct Line {
    depth: usize,
    title: String,
    /// Path in `docs/`; `None` for a subject that groups pages.
    path: Option<String>,
}

/// The book's pages without README.md, by their paths in `docs/`.
struct Book(Vec<Page>);

impl Book {
    fn read() -> Self {
        let mut pages = pages();
        pages.retain(|page| page.path.starts_with("docs/"));
        for page in &mut pages {
            page.path = page.path["docs/".len()..].to_owned();
        }
        Self(pages)
    }

    fn find(&self, path: &str) -> Option<&Page> {
        self.0.iter().find(|page| page.path == path)
    }

    fn line(&self, depth: usize, path: &str) -> Option<Line> {
        let page = self.find(path)?;
        Some(Line {
            depth,
            title: title(page),
            path: Some(path.to_owned()),
        })
    }

    /// The lines of a folder.
    fn folder(&self, folder: &str, order: &[&str]) -> Vec<Line> {
        let prefix = format!("{folder}/");
        let own = self
            .0
            .iter()
            .filter_map(|page| page.path.strip_prefix(&prefix));
        let mut rest: Vec<&str> = own.filter(|name| *name != "README.md").collect();
        let mut lines = Vec::new();
        let mut depth = 0;
        if let Some(index) = self.find(&format!("{prefix}README.md")) {
            lines.push(Line {
                depth,
                title: title(index),
                path: Some(index.path.clone()),
            });
            depth += 1;
            for line in by_subject(index, depth) {
                let path = line.path.as_deref();
                let at = path.and_then(|path| rest.iter().position(|name| *name == path));
                match (path, at) {
                    (None, _) => lines.push(line),
                    (Some(path), Some(at)) => {
                        lines.push(Line {
                            path: Some(format!("{prefix}{path}")),
                            ..line
                        });
                        rest.remove(at);
                    }
                    (Some(_), None) => {}
                }
            }
            // A subject without pages is none.
            let is_empty = |at: usize| {
                let next = lines.get(at + 1);
                lines[at].path.is_none() && next.is_none_or(|next| next.depth <= lines[at].depth)
            };
            let empty: BTreeSet<usize> = (0..lines.len()).filter(|at| is_empty(*at)).collect();
            let mut at = 0;
            lines.retain(|_| {
                at += 1;
                !empty.contains(&(at - 1))
            });
        }
        for name in order {
            let name = format!("{name}.md");
            if let Some(at) = rest.iter().position(|own| *own == name) {
                lines.extend(self.line(depth, &format!("{prefix}{name}")));
                rest.remove(at);
            }
        }
        lines.extend(
            rest.iter()
                .filter_map(|name| self.line(depth, &format!("{prefix}{name}"))),
        );
        lines
    }

    /// The lines of a part.
    fn part(&self, part: &Part) -> Vec<Line> {
        let mut lines = Vec::new();
        for entry in part.entries {
            match entry {
                Single(path) => lines.extend(self.line(0, path)),
                Folder("reference/configuration", _) => {
                    lines.extend(configuration::contents().into_iter().map(
                        |(depth, title, path)| Line {
                            depth,
                            title,
                            path: Some(format!("reference/configuration/{path}")),
                        },
                    ))
                }
                Folder("reference/formats", order) => {
                    lines.push(Line {
                        depth: 0,
                        title: "Formats".to_owned(),
                        path: None,
                    });
                    let own = self.folder("reference/formats", order).into_iter();
                    lines.extend(own.map(|line| Line { depth: 1, ..line }));
                }
                Folder(folder, order) => lines.extend(self.folder(folder, order)),
            }
        }
        lines
    }
}

/// The first heading, without links.
fn title(page: &Page) -> String {
    let first = headings(&page.text).into_iter().next();
    let (_, title) = first.unwrap_or_else(|| panic!("{} has no heading", page.path));
    without_links(&title)
}

/// The links of an index page to pages of its folder, each under the heading that it follows.
fn by_subject(index: &Page, depth: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut has_subject = false;
    for line in index.text.lines() {
        if let Some(subject) = line.strip_prefix("## ") {
            has_subject = true;
            lines.push(Line {
                depth,
                title: subject.trim().to_owned(),
                path: None,
            });
        }
        let is_item = line.starts_with("- [") || line.starts_with("| [") || is_numbered(line);
        let Some((_, target)) = links(line).into_iter().next().filter(|_| is_item) else {
            continue;
        };
        let label = line
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'));
        lines.push(Line {
            depth: depth + usize::from(has_subject),
            title: label.map(|(label, _)| label.to_owned()).unwrap_or_default(),
            path: Some(target),
        });
    }
    lines
}

/// Such as `1. [Quickstart](quickstart.md)`.
fn is_numbered(line: &str) -> bool {
    let number = line.split_once(". [");
    number.is_some_and(|(number, _)| number.parse::<u32>().is_ok())
}

#[test]
fn the_table_of_contents_has_every_page_once() {
    configuration::write();
    let book = Book::read();
    let mut text = "# Summary\n\n".to_owned();
    let mut listed = BTreeSet::new();
    if let Some(page) = book.find("introduction.md") {
        writeln!(text, "[{}](introduction.md)", title(page)).unwrap();
        listed.insert("introduction.md".to_owned());
    }
    for part in PARTS {
        let lines = book.part(part);
        if lines.is_empty() {
            continue;
        }
        writeln!(text, "\n# {}\n", part.title).unwrap();
        for line in lines {
            let indent = "  ".repeat(line.depth);
            let path = line.path.unwrap_or_default();
            writeln!(text, "{indent}- [{}]({path})", line.title).unwrap();
            assert!(
                path.is_empty() || listed.insert(path.clone()),
                "{path} is listed twice"
            );
        }
    }
    let all: BTreeSet<String> = book.0.iter().map(|page| page.path.clone()).collect();
    let missing: Vec<&String> = all.difference(&listed).collect();
    assert!(missing.is_empty(), "in no part of the book: {missing:?}");
    assert_generated("docs/SUMMARY.md", &text);
}

#[test]
fn llms_txt_has_a_line_for_every_page() {
    configuration::write();
    let book = Book::read();
    let about = env!("CARGO_PKG_DESCRIPTION");
    let mut text = format!("# feedline\n\n> {about}.\n");
    let describe = |page: &Page| {
        let paragraph = first_paragraph(&page.text);
        let sentence = first_sentence(&paragraph);
        assert!(!sentence.is_empty(), "{} has no first sentence", page.path);
        let title = title(page);
        format!("- [{title}]({SOURCES}{}): {sentence}\n", page.path)
    };
    if let Some(page) = book.find("introduction.md") {
        text.push('\n');
        text += &describe(page);
    }
    for part in PARTS {
        let lines = book.part(part).into_iter();
        let lines = lines.filter_map(|line| book.find(&line.path?));
        let lines: Vec<String> = lines.map(&describe).collect();
        if !lines.is_empty() {
            writeln!(text, "\n## {}\n", part.title).unwrap();
            text.extend(lines);
        }
    }
    assert_generated("docs/llms.txt", &text);
}
