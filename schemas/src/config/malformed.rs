//! The line of a file that is no TOML, as a message may show it.
//!
//! The keys of such a file are not known. Its tables are: a table header is a line of its own. A line
//! is shown as it is where no key of its table holds credentials; of a source also where no line of
//! it so far names any. The strings of other lines are masked.

use std::ops::Range;

use super::MarkedLine;

/// Tables without credentials; only a URL may hold some.
const PLAIN_TABLES: [&str; 4] = ["pipeline", "dataset", "train", "tune"];
/// Parts of the names of keys that may hold credentials.
const SECRETS: [&str; 9] = [
    "auth",
    "header",
    "params",
    "body",
    "variables",
    "secret",
    "password",
    "token",
    "cookie",
];

/// The line that has the bytes `span` of `text`, masked if it may hold credentials.
pub(super) fn marked_line(text: &str, span: Range<usize>) -> MarkedLine {
    let line = MarkedLine::of(text, span);
    let lines: Vec<&str> = text.lines().take(line.number).collect();
    match is_plain(&lines) {
        true => line,
        false => line.masked(),
    }
}

/// Returns true if the last of `lines` holds no credentials.
fn is_plain(lines: &[&str]) -> bool {
    // Lines of a long string may look like headers.
    let has_long_string = |line: &&str| line.contains("\"\"\"") || line.contains("'''");
    if lines.iter().any(has_long_string) {
        return false;
    }
    let header = lines.iter().rposition(|line| table_of(line).is_some());
    let Some((at, table)) = header.and_then(|at| Some((at, table_of(lines[at])?))) else {
        return false;
    };
    let shown = lines.last().copied().unwrap_or_default();
    if shown.contains("://") {
        return false;
    }
    let first = table.split('.').next().unwrap_or_default();
    if PLAIN_TABLES.contains(&first) {
        return !shown.contains("secret") && !shown.contains("password");
    }
    let has_secret = |line: &&str| {
        SECRETS
            .iter()
            .any(|name| line.to_lowercase().contains(name))
    };
    first == "source" && !lines[at..].iter().any(has_secret)
}

/// The path in the header of a table; `None` for another line.
fn table_of(line: &str) -> Option<&str> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let inner = line.strip_prefix('[')?.strip_suffix(']')?;
    let path = match inner.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None => inner,
    };
    let is_bare = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    (!path.is_empty() && path.chars().all(is_bare)).then_some(path)
}

#[cfg(test)]
mod tests {
    use crate::config::load;

    fn shown(text: &str) -> String {
        load("p.toml", text, &[]).unwrap_err().with_excerpt()
    }

    #[test]
    fn a_line_that_holds_no_credentials_is_shown_as_it_is() {
        let head =
            "[pipeline]\nname = \"p\"\n\n[[source]]\nname = \"s\"\nauth = { type = \"none\" }\n";
        let dataset = shown(&format!("{head}\n[dataset]\ndrop = [\"x\\.y\", \"id\"]\n"));
        let expected = "\n  |\n9 | drop = [\"x\\.y\", \"id\"]\n  |            ^";
        assert!(dataset.ends_with(expected), "{dataset}");
        let step = shown(&format!(
            "{head}[[dataset.step]] # the first\ntype = \"impute\nby = 1\n"
        ));
        assert!(step.contains("8 | type = \"impute\n"), "{step}");
        let source = shown("[[source]]\nname = \"a\"\nkey = [\"a\\.b\"]\n");
        assert!(source.contains("3 | key = [\"a\\.b\"]\n"), "{source}");
    }

    #[test]
    fn a_line_that_may_hold_credentials_is_masked() {
        for text in [
            "key = \"hunter2\\.\"",
            "[[source]]\nauth = { secret = \"hunter2\\.\" }",
            "[[source]]\nheaders = {\n  name = \"hunter2\\.\" }",
            "[source.headers]\nname = \"hunter2\\.\"",
            "[source.auth]\nx = \"}\"\nname = \"hunter2\\.\"",
            "[[source]]\nurl = \"https://h/?sig=hunter2\\.\"",
            "[source.headers]\nx = \"\"\"\n[dataset]\nhunter2\\.\n\"\"\"",
            "[dataset]\nfiles = \"s3://hunter2\\.\"",
            "[other]\nname = \"hunter2\\.\"",
            "[[source]]\nlist = [\n[\"dataset\"]\nheaders = \"hunter2\\.\"",
        ] {
            let shown = shown(text);
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}
