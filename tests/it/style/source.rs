//! Lines of a file, with its comments, its strings and its code apart.

/// One line.
#[derive(Default)]
pub(super) struct Line<'a> {
    /// As it is.
    pub(super) text: &'a str,
    /// Code, without strings and comments.
    pub(super) code: String,
    /// Text of comments; of a page all text.
    pub(super) comment: String,
    /// Text of strings.
    pub(super) strings: String,
}

/// A word of a text: letters, digits and `_`.
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    /// Returns whether only spaces are between it and the word before.
    pub(super) follows: bool,
}

/// Words of a text in order.
pub(super) fn words(text: &str) -> Vec<Word<'_>> {
    let bytes = text.as_bytes();
    let is_word =
        |at: usize| bytes[at].is_ascii_alphanumeric() || matches!(bytes[at], b'_' | 0x80..);
    let mut words = Vec::new();
    let (mut at, mut end) = (0, 0);
    while at < bytes.len() {
        if !is_word(at) {
            at += 1;
            continue;
        }
        let start = at;
        while at < bytes.len() && is_word(at) {
            at += 1;
        }
        let follows = start > 0 && bytes[end..start].iter().all(|byte| *byte == b' ');
        words.push(Word {
            text: &text[start..at],
            follows,
        });
        end = at;
    }
    words
}

/// Lines of a page, of JSON or of help: all of it is text. Of scripts and settings the comments and strings.
pub(super) fn lines_of_text<'a>(path: &str, text: &'a str) -> Vec<Line<'a>> {
    let is_script = [".py", ".sh", ".toml"]
        .iter()
        .any(|ending| path.ends_with(ending));
    let mut is_docstring = false;
    text.lines()
        .map(|text| {
            let mut line = Line {
                text,
                ..Line::default()
            };
            let quotes = text.matches("\"\"\"").count();
            if !is_script || is_docstring || quotes > 0 {
                text.clone_into(&mut line.comment);
            } else if let Some((code, comment)) = text.split_once("# ") {
                code.clone_into(&mut line.strings);
                comment.clone_into(&mut line.comment);
            } else {
                text.clone_into(&mut line.strings);
            }
            is_docstring ^= is_script && quotes % 2 == 1;
            // Code of a script is not read: only its quoted parts are text.
            let quoted: Vec<&str> = line.strings.split('"').skip(1).step_by(2).collect();
            line.strings = quoted.join(" ");
            line
        })
        .collect()
}

/// Place of the reader in Rust code.
enum State {
    Code,
    /// In a comment with this many `/*` open.
    Block(usize),
    Text,
    /// In a raw string that ends with a quote and this many `#`.
    Raw(usize),
}

/// Lines of Rust code.
pub(super) fn lines_of_rust(text: &str) -> Vec<Line<'_>> {
    let mut state = State::Code;
    text.lines()
        .map(|text| {
            let mut line = Line {
                text,
                ..Line::default()
            };
            let mut rest = text;
            while !rest.is_empty() {
                rest = step(&mut state, &mut line, rest);
            }
            line
        })
        .collect()
}

/// Reads a part of `rest`, and returns what follows.
fn step<'a>(state: &mut State, line: &mut Line<'_>, rest: &'a str) -> &'a str {
    match *state {
        State::Code => step_code(state, line, rest),
        State::Block(open) => {
            let (at, next) = match (rest.find("*/"), rest.find("/*")) {
                (Some(end), start) if start.is_none_or(|start| end < start) => (end + 2, open - 1),
                (_, Some(start)) => (start + 2, open + 1),
                _ => (rest.len(), open),
            };
            line.comment.push_str(&rest[..at]);
            *state = if next == 0 {
                State::Code
            } else {
                State::Block(next)
            };
            &rest[at..]
        }
        State::Text => {
            let at = rest.find(['"', '\\']).unwrap_or(rest.len());
            line.strings.push_str(&rest[..at]);
            let rest = &rest[at..];
            if let Some(rest) = rest.strip_prefix('"') {
                line.strings.push(' ');
                *state = State::Code;
                return rest;
            }
            // A backslash and the character behind it; at the end of a line the string continues.
            let mut characters = rest.chars();
            characters.nth(1);
            characters.as_str()
        }
        State::Raw(hashes) => {
            let end = format!("\"{}", "#".repeat(hashes));
            let Some(at) = rest.find(&end) else {
                line.strings.push_str(rest);
                return "";
            };
            line.strings.push_str(&rest[..at]);
            line.strings.push(' ');
            *state = State::Code;
            &rest[at + end.len()..]
        }
    }
}

fn step_code<'a>(state: &mut State, line: &mut Line<'_>, rest: &'a str) -> &'a str {
    let at = rest.find(['"', '/', '\'', 'r']).unwrap_or(rest.len());
    line.code.push_str(&rest[..at]);
    let rest = &rest[at..];
    if let Some(comment) = rest.strip_prefix("//") {
        line.comment.push_str(comment);
        return "";
    }
    if let Some(rest) = rest.strip_prefix("/*") {
        *state = State::Block(1);
        return rest;
    }
    if let Some(rest) = rest.strip_prefix('"') {
        *state = State::Text;
        return rest;
    }
    let hashes = rest
        .strip_prefix('r')
        .map(|rest| rest.len() - rest.trim_start_matches('#').len());
    let is_start = !line
        .code
        .ends_with(|c: char| c.is_alphanumeric() && c != 'b' || c == '_');
    if let Some(hashes) = hashes.filter(|hashes| is_start && rest[1 + hashes..].starts_with('"')) {
        *state = State::Raw(hashes);
        return &rest[2 + hashes..];
    }
    if let Some(quoted) = rest.strip_prefix('\'')
        && let Some(after) = after_character(quoted)
    {
        line.code.push_str("' '");
        return after;
    }
    let first = rest.chars().next().map_or(0, char::len_utf8);
    line.code.push_str(&rest[..first]);
    &rest[first..]
}

/// Text behind a character literal, of which `quoted` is all but the first quote; `None` for a lifetime.
fn after_character(quoted: &str) -> Option<&str> {
    if quoted.starts_with('\\') {
        let end = quoted.get(2..)?.find('\'')?;
        return Some(&quoted[2 + end + 1..]);
    }
    let mut characters = quoted.chars();
    characters.next()?;
    characters.as_str().strip_prefix('\'')
}

#[test]
fn comments_strings_and_code_are_told_apart() {
    let text = "let a = \"x // y\"; // z\nlet b = r#\"one \" \"#; '\"'; 'c: loop {}\nlet c = \"first \\\n    second\";";
    let lines = lines_of_rust(text);
    let parts: Vec<_> = lines
        .iter()
        .map(|line| (line.code.trim(), line.strings.trim(), line.comment.trim()))
        .collect();
    assert_eq!(
        parts,
        [
            ("let a = ;", "x // y", "z"),
            ("let b = ; ' '; 'c: loop {}", "one \"", ""),
            ("let c =", "first", ""),
            (";", "second", ""),
        ]
    );
}
