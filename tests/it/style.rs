//! A ratchet over the style of the tracked files: counts that may only fall.
//!
//! `tests/style.toml` has a bound for each count and the exceptions. The test fails above a bound, and also clearly below it, so
//! that the bound falls with the change. Run it with `FEEDLINE_WRITE_SNAPSHOTS=1` to lower the bounds; none is ever raised.

mod circles;
mod source;

use std::{
    collections::{BTreeMap, HashMap},
    env,
    fmt::Write as _,
    fs,
    path::Path,
    process::Command,
};

use serde::Deserialize;

use self::{
    circles::circles,
    source::{Line, lines_of_rust, lines_of_text, words},
};

const TABLE: &str = "tests/style.toml";
/// Longest line of a Markdown file, in characters.
const COLUMNS: usize = 100;
/// Longest function, in lines.
const FUNCTION_LINES: usize = 80;
/// Longest product file, in lines without its tests.
const FILE_LINES: usize = 600;
/// Types that may have one name.
const SAME_NAMES: usize = 2;
/// Files of one crate that may import each other in a circle.
const CIRCLE_FILES: usize = 4;
/// Places that a failure names.
const WORST: usize = 8;

/// Words of the old dialect by idea. Words of a phrase are separated by a space, alternatives of a word by `|`.
const DIALECT: [&str; 22] = [
    "anew",
    "what becomes|became|comes|came of",
    "tell|tells|told|telling",
    "stand|stands|lie|lies|lay",
    "set aside",
    "go|goes|went|going on",
    "wholly",
    "is|are|not whole",
    "that|which|what is|are|was|were there",
    "not there",
    "point|points in time",
    "picture|pictures",
    "answer|answers",
    "cut off|short",
    "is cut",
    "manners",
    "copies of row|rows|record|records|it",
    "by|of|from which",
    "nobody",
    "no one",
    "border|borders",
    "look-alike|look-alikes",
];

/// Words that no doc comment and none of its paragraphs begins with.
const RELATIVE: [&str; 8] = [
    "What", "Which", "Where", "How", "Whether", "Who", "That", "Why",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    bounds: BTreeMap<String, usize>,
    exception: Vec<Exception>,
}

/// A place where words of the old dialect are right.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    /// A file, or the beginning of its path.
    path: String,
    /// Part of the lines; all of the file by default.
    #[serde(default)]
    line: String,
    #[expect(dead_code, reason = "for readers of the table")]
    reason: String,
}

/// Names of the counts.
const COUNTS: [&str; 11] = [
    "dialect_docs",
    "dialect_shown",
    "dialect_strings",
    "dialect_comments",
    "dialect_tests",
    "relative_doc_comments",
    "long_markdown_lines",
    "shared_type_names",
    "long_functions",
    "long_files",
    "files_in_circles",
];

/// Faults of one kind: each with its place.
type Counts = BTreeMap<&'static str, Vec<String>>;

#[test]
fn no_count_of_the_style_rises_and_each_bound_is_close_to_its_count() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some(paths) = tracked(root) else {
        eprintln!("skipped: this is no git checkout");
        return;
    };
    let text = fs::read_to_string(root.join(TABLE)).unwrap();
    let table: Table = toml::from_str(&text).unwrap();
    let counts = count(root, &paths, &table.exception);
    let names: Vec<&str> = counts.keys().copied().collect();
    let bounds: Vec<&str> = table.bounds.keys().map(String::as_str).collect();
    assert_eq!(names, bounds, "{TABLE} has a bound for each count");
    if env::var_os("FEEDLINE_WRITE_SNAPSHOTS").is_some() {
        fs::write(root.join(TABLE), lowered(&text, &table, &counts)).unwrap();
        return;
    }
    let faults: Vec<String> = counts
        .iter()
        .filter_map(|(name, places)| fault(name, places, table.bounds[*name]))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// Files that git knows and that exist, without those of others.
fn tracked(root: &Path) -> Option<Vec<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()
        .ok()?;
    let text = String::from_utf8(listed.stdout)
        .ok()
        .filter(|_| listed.status.success())?;
    let own = |path: &&str| !path.is_empty() && !path.starts_with("third-party/");
    let paths = text
        .split('\0')
        .filter(own)
        .filter(|path| root.join(path).is_file());
    Some(paths.map(str::to_owned).collect())
}

/// The message of a count that left its bound.
fn fault(name: &str, places: &[String], bound: usize) -> Option<String> {
    let found = places.len();
    let mut message = if found > bound {
        format!("`{name}` is {found} and its bound is {bound}; correct the new places. Most are in")
    } else if found + bound / 50 + 2 < bound {
        format!(
            "`{name}` is {found} and its bound is {bound}: lower it in {TABLE} with this change (FEEDLINE_WRITE_SNAPSHOTS=1). \
             Most are in"
        )
    } else {
        return None;
    };
    let mut by_file: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for place in places {
        by_file
            .entry(place.split(':').next().unwrap())
            .or_default()
            .push(place);
    }
    let mut worst: Vec<_> = by_file.values().collect();
    worst.sort_by_key(|places| std::cmp::Reverse(places.len()));
    for places in worst.iter().take(WORST) {
        write!(message, "\n  {:5} {}", places.len(), places[0]).unwrap();
    }
    Some(message)
}

/// The table with each bound at its count, where that is lower.
fn lowered(text: &str, table: &Table, counts: &Counts) -> String {
    let mut written = text.to_owned();
    for (name, places) in counts {
        let bound = table.bounds[*name];
        let new = bound.min(places.len());
        written = written.replace(
            &format!("\n{name} = {bound}\n"),
            &format!("\n{name} = {new}\n"),
        );
    }
    written
}

/// All counts over the files.
fn count(root: &Path, paths: &[String], exceptions: &[Exception]) -> Counts {
    let mut found = Findings::new(exceptions);
    for path in paths {
        let Some(area) = Area::of(path) else { continue };
        let text = fs::read_to_string(root.join(path)).unwrap_or_default();
        found.add_file(path, area, text);
    }
    found.into_counts()
}

/// Faults of the files read so far, with the types and product files for the counts over all files.
struct Findings<'a> {
    exceptions: &'a [Exception],
    dialect: Dialect,
    counts: Counts,
    /// Places of types by name.
    types: BTreeMap<String, Vec<String>>,
    product_files: Vec<(String, String)>,
}

impl<'a> Findings<'a> {
    fn new(exceptions: &'a [Exception]) -> Self {
        Self {
            exceptions,
            dialect: Dialect::new(),
            counts: COUNTS.into_iter().map(|name| (name, Vec::new())).collect(),
            types: BTreeMap::new(),
            product_files: Vec::new(),
        }
    }

    fn add(&mut self, name: &'static str, place: String) {
        self.counts.get_mut(name).unwrap().push(place);
    }

    fn add_file(&mut self, path: &str, area: Area, text: String) {
        let is_rust = path.ends_with(".rs");
        let lines = if is_rust {
            lines_of_rust(&text)
        } else {
            lines_of_text(path, &text)
        };
        let product = product_lines(area, &lines);
        for (at, line) in lines.iter().enumerate() {
            let place = format!("{path}:{}: {}", at + 1, line.text.trim());
            let is_test = area == Area::Tests || (area == Area::Product && at >= product);
            if !is_excepted(self.exceptions, path, line.text) {
                self.add_dialect(line, area, is_test, &place);
            }
            if path.ends_with(".md") && is_long(line.text) {
                self.add("long_markdown_lines", place.clone());
            }
            if is_rust && begins_relative(&lines, at) {
                self.add("relative_doc_comments", place);
            }
            if is_rust
                && !is_test
                && let Some(name) = type_defined(&line.code)
            {
                let places = self.types.entry(name).or_default();
                places.push(format!("{path}:{}", at + 1));
            }
        }
        if !is_rust {
            return;
        }
        for (at, length) in long_functions(&lines) {
            self.add("long_functions", format!("{path}:{at}: {length} lines"));
        }
        if product > FILE_LINES {
            self.add("long_files", format!("{path}: {product} lines"));
        }
        if area == Area::Product {
            self.product_files.push((path.to_owned(), text));
        }
    }

    /// Counts the old dialect in the strings and the comment of a line.
    fn add_dialect(&mut self, line: &Line<'_>, area: Area, is_test: bool, place: &str) {
        for (text, name) in [
            (&line.strings, "dialect_strings"),
            (&line.comment, "dialect_comments"),
        ] {
            let name = match area {
                Area::Docs => "dialect_docs",
                Area::Shown => "dialect_shown",
                _ if is_test => "dialect_tests",
                _ => name,
            };
            for _ in 0..self.dialect.hits(text) {
                self.add(name, place.to_owned());
            }
        }
    }

    /// The counts, with those over all files.
    fn into_counts(mut self) -> Counts {
        for circle in circles(&self.product_files, CIRCLE_FILES) {
            for path in &circle {
                let (files, first) = (circle.len(), &circle[0]);
                self.add(
                    "files_in_circles",
                    format!("{path}: circle of {files} files with {first}"),
                );
            }
        }
        // One error type a crate is the rule.
        self.types.remove("Error");
        // Types that a macro names.
        self.types.remove("");
        for (name, places) in std::mem::take(&mut self.types) {
            if places.len() > SAME_NAMES {
                self.add(
                    "shared_type_names",
                    format!("{name}: {}", places.join(", ")),
                );
            }
        }
        self.counts
    }
}

/// Number of lines before the tests of a product file; 0 for files of other areas.
fn product_lines(area: Area, lines: &[Line<'_>]) -> usize {
    let product = match area {
        Area::Product => lines
            .iter()
            .position(|line| line.code.starts_with("mod tests {")),
        _ => Some(0),
    };
    product.unwrap_or(lines.len())
}

/// Kinds of files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Area {
    /// Pages that a user reads.
    Docs,
    /// Text that the program shows: help, errors, descriptions of keys.
    Shown,
    /// Code of the program and the package, and their settings.
    Product,
    /// Tests, what they share, benches and their tables.
    Tests,
}

impl Area {
    fn of(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap();
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        let folders = ["tests/", "testkit/", "bench/", "benches/"];
        let in_tests = folders
            .iter()
            .any(|f| path.starts_with(f) || path.contains(&format!("/{f}")));
        if path.starts_with("tests/snapshots/") && ending == "txt"
            || path.starts_with("schemas/json/")
        {
            return Some(Self::Shown);
        }
        match ending {
            "rs" | "py" | "sh" | "toml" | "md" if in_tests => Some(Self::Tests),
            "rs" if name.ends_with("tests.rs") || name == "testing.rs" => Some(Self::Tests),
            "md" => Some(Self::Docs),
            "toml" if path.starts_with("examples/") => Some(Self::Docs),
            "rs" | "py" | "sh" | "toml" => Some(Self::Product),
            _ => None,
        }
    }
}

fn is_excepted(exceptions: &[Exception], path: &str, line: &str) -> bool {
    exceptions
        .iter()
        .any(|e| path.starts_with(&e.path) && line.contains(&e.line))
}

/// Phrases of [`DIALECT`] by their first words.
struct Dialect(HashMap<&'static str, Vec<Vec<Vec<&'static str>>>>);

impl Dialect {
    fn new() -> Self {
        let mut phrases: HashMap<_, Vec<_>> = HashMap::new();
        for phrase in DIALECT {
            let words: Vec<Vec<&str>> = phrase
                .split(' ')
                .map(|word| word.split('|').collect())
                .collect();
            for first in &words[0] {
                phrases.entry(*first).or_default().push(words[1..].to_vec());
            }
        }
        Self(phrases)
    }

    /// Number of phrases in a text.
    fn hits(&self, text: &str) -> usize {
        if text.is_empty() {
            return 0;
        }
        let text = text.to_ascii_lowercase();
        let words = words(&text);
        let mut hits = 0;
        for (at, word) in words.iter().enumerate() {
            let Some(phrases) = self.0.get(word.text) else {
                continue;
            };
            let follow = |rest: &[Vec<&str>]| {
                rest.iter().enumerate().all(|(i, alternatives)| {
                    let next = words.get(at + 1 + i);
                    next.is_some_and(|next| next.follows && alternatives.contains(&next.text))
                })
            };
            hits += phrases.iter().filter(|rest| follow(rest)).count();
        }
        hits
    }
}

/// Text of a doc comment's line.
fn doc<'a>(line: &Line<'a>) -> Option<&'a str> {
    let text = line.text.trim_start();
    let text = text
        .strip_prefix("///")
        .or_else(|| text.strip_prefix("//!"))?;
    (!text.starts_with('/')).then_some(text.trim())
}

/// Returns whether a paragraph of a doc comment begins at this line, with a relative word.
fn begins_relative(lines: &[Line<'_>], at: usize) -> bool {
    let Some(text) = doc(&lines[at]) else {
        return false;
    };
    let first = text
        .split(|c: char| !c.is_alphanumeric())
        .next()
        .unwrap_or_default();
    let before = at.checked_sub(1).and_then(|before| doc(&lines[before]));
    RELATIVE.contains(&first) && before.is_none_or(str::is_empty)
}

/// Returns whether a line of a page is too long. Tables and links cannot be broken.
fn is_long(line: &str) -> bool {
    let breaks =
        !line.trim_start().starts_with('|') && !line.contains("](") && !line.contains("://");
    breaks && line.chars().count() > COLUMNS
}

/// Name of the type that is defined in a line of code.
fn type_defined(code: &str) -> Option<String> {
    let mut words = code
        .split_whitespace()
        .skip_while(|word| word.starts_with("pub"));
    let kind = words.next()?;
    let name = words
        .next()
        .filter(|_| ["struct", "enum", "trait", "union"].contains(&kind))?;
    let end = name
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(name.len());
    Some(name[..end].to_owned())
}

/// First lines (from 1) and lengths of functions that are too long.
fn long_functions(lines: &[Line<'_>]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let words = words(&line.code);
        let Some(function) = words.iter().position(|word| word.text == "fn") else {
            continue;
        };
        // `fn(` is a type.
        if words.get(function + 1).is_none_or(|name| !name.follows) {
            continue;
        }
        let length = length_of_function(&lines[at..]);
        if length > FUNCTION_LINES {
            found.push((at + 1, length));
        }
    }
    found
}

/// Lines up to the end of the function's body; 0 for one without a body.
fn length_of_function(lines: &[Line<'_>]) -> usize {
    let (mut braces, mut others) = (0_i64, 0_i64);
    for (at, line) in lines.iter().enumerate() {
        for byte in line.code.bytes() {
            match byte {
                b'(' | b'[' => others += 1,
                b')' | b']' => others -= 1,
                b'{' => braces += 1,
                b'}' => {
                    braces -= 1;
                    if braces == 0 {
                        return at + 1;
                    }
                }
                b';' if braces == 0 && others == 0 => return 0,
                _ => {}
            }
        }
    }
    0
}
