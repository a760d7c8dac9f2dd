//! `docs/reference/errors.md`: every kind of error, what to do about it, and its messages, from the
//! error types of the crates.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
};

use super::{assert_generated, checkout, escaped, wrap};

/// A kind of error, in the order of the page.
struct Kind {
    title: &'static str,
    code: u8,
    /// Names of `ErrorKind` in the crates, and of variants in crates without it.
    names: &'static [&'static str],
    text: &'static str,
}

const KINDS: &[Kind] = &[
    Kind {
        title: "Configuration",
        code: 2,
        names: &["Config", "Location"],
        text: "The pipeline file, an option or a URL is wrong. A repetition does not help. The message \
               names the file, the line and the key. Correct it, and run `feedline check PIPELINE.toml`, \
               which lists all problems at once. `feedline explain KEY` describes a key.",
    },
    Kind {
        title: "Deferred",
        code: 4,
        names: &["Deferred"],
        text: "A server asked for a longer wait than `retry.max_wait_s`. All records so far have landed. \
               Run the same command after the named time; a schedule of `feedline serve` does that by \
               itself.",
    },
    Kind {
        title: "Stopped",
        code: 1,
        names: &["Cancelled", "Interrupted"],
        text: "A signal ended the command at a safe point. Nothing is lost. Run the same command again \
               to resume.",
    },
    Kind {
        title: "Data",
        code: 1,
        names: &["Input", "Data"],
        text: "A dataset, a landed file, a checkpoint or the content of the data is missing, corrupt or \
               outside of the configured bounds. Nothing was published. Correct the data or its bounds; \
               `feedline ingest verify` and `feedline shards verify` name corrupt files.",
    },
    Kind {
        title: "Retry",
        code: 1,
        names: &["Retry"],
        text: "The failure may pass. Run the same command again to resume.",
    },
    Kind {
        title: "Bug",
        code: 1,
        names: &["Bug"],
        text: "The program broke one of its own rules. Please report it with the message and the log.",
    },
    Kind {
        title: "Other failures",
        code: 1,
        names: &["Other"],
        text: "The message says what failed and what to do. Most of these are failures of a network, a \
               store, a disk or a server after all retries: run the same command again to resume.",
    },
];

/// Crates with an error type, and the part of the program that it is of.
const CRATES: [(&str, &str); 6] = [
    ("ingest", "Ingest"),
    ("preprocess", "Building a dataset"),
    ("loader", "Reading a dataset"),
    ("trainer", "Training"),
    ("storage", "Files and object stores"),
    ("image", "Images"),
];

/// A variant of an error type.
#[derive(Debug)]
struct Variant {
    name: String,
    text: String,
    message: String,
}

/// The content of the first string literal in a piece of Rust.
fn literal(source: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = source.split_once('"')?.1.chars().peekable();
    loop {
        match rest.next()? {
            '"' => return Some(out),
            '\\' => match rest.next()? {
                // A continued line: its indentation is no part of the text.
                '\n' => while rest.next_if(|c| c.is_whitespace()).is_some() {},
                'n' => out.push('\n'),
                c => out.push(c),
            },
            c => out.push(c),
        }
    }
}

/// The message with its placeholders as `<name>`; those without a name are `...`.
fn template(message: &str) -> String {
    let mut out = String::new();
    let message = message.replace("{{", "\u{1}").replace("}}", "\u{2}");
    let mut rest = message.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        let name = name.split(':').next().unwrap_or_default();
        match name.is_empty() || name.parse::<usize>().is_ok() {
            true => out.push_str("..."),
            false => write!(out, "<{name}>").unwrap(),
        }
        rest = after;
    }
    out.push_str(rest);
    out.replace('\u{1}', "{").replace('\u{2}', "}")
}

/// The variants of `pub enum Error` in a source file.
fn variants(source: &str) -> Vec<Variant> {
    let mut found = Vec::new();
    let body = source
        .split_once("pub enum Error {\n")
        .map_or("", |(_, rest)| rest);
    let body = body.split_once("\n}\n").map_or(body, |(body, _)| body);
    let (mut text, mut attribute) = (String::new(), String::new());
    let mut in_attribute = false;
    for line in body.lines() {
        let own = line.strip_prefix("    ").unwrap_or_default();
        if let Some(comment) = own.strip_prefix("///") {
            text.push_str(comment);
        } else if own.starts_with("#[error(") || in_attribute {
            attribute.push_str(line);
            attribute.push('\n');
            in_attribute = !own.ends_with(")]");
        } else if own.starts_with(|c: char| c.is_ascii_uppercase()) {
            let name = own
                .split(|c: char| !c.is_alphanumeric())
                .next()
                .unwrap_or_default();
            found.push(Variant {
                name: name.to_owned(),
                text: std::mem::take(&mut text).trim().to_owned(),
                message: literal(&attribute).unwrap_or_default(),
            });
            attribute.clear();
        }
    }
    found
}

/// Kinds of variants, by the arms of `fn kind`; the name of `_` is empty.
fn kinds(source: &str) -> BTreeMap<String, String> {
    let body = source
        .split_once("fn kind(&self)")
        .map_or("", |(_, rest)| rest);
    let body = body.split_once("\n    }\n").map_or(body, |(body, _)| body);
    let mut kinds = BTreeMap::new();
    let mut patterns = String::new();
    for part in body.split("=>") {
        let (kind, next) = match part.split_once("ErrorKind::") {
            Some((_, rest)) => {
                let end = rest
                    .find(|c: char| !c.is_alphanumeric())
                    .unwrap_or(rest.len());
                rest.split_at(end)
            }
            None => ("", part),
        };
        if !kind.is_empty() {
            let names = patterns.split("Self::").skip(1);
            for name in names {
                let end = name
                    .find(|c: char| !c.is_alphanumeric())
                    .unwrap_or(name.len());
                kinds.insert(name[..end].to_owned(), kind.to_owned());
            }
            if patterns.contains("_ ") && !patterns.contains("Self::") {
                kinds.insert(String::new(), kind.to_owned());
            }
        }
        patterns = next.to_owned();
    }
    kinds
}

#[test]
fn the_reference_of_errors_is_that_of_the_error_types() {
    let mut by_kind: BTreeMap<&str, String> = BTreeMap::new();
    let mut names = BTreeSet::new();
    let mut count = 0;
    for (folder, part) in CRATES {
        let source = fs::read_to_string(checkout().join(folder).join("src/error.rs")).unwrap();
        let kinds = kinds(&source);
        let mut of_part: BTreeMap<&str, String> = BTreeMap::new();
        for Variant {
            name,
            text,
            message,
        } in variants(&source)
        {
            if message.is_empty() {
                continue;
            }
            let kind = kinds.get(&name).or_else(|| kinds.get(""));
            let kind = kind.cloned().unwrap_or_else(|| match name.as_str() {
                "Config" | "Location" => name.clone(),
                _ => "Other".to_owned(),
            });
            let known = KINDS.iter().find(|own| own.names.contains(&kind.as_str()));
            let known = known.unwrap_or_else(|| panic!("describe the kind `{kind}` of {folder}"));
            let out = of_part.entry(known.title).or_default();
            let id = format!("{folder}-{}", name.to_lowercase());
            assert!(names.insert(id.clone()), "two errors `{id}`");
            let text = text.trim_end_matches('.');
            writeln!(out, "\n<a id=\"{id}\"></a>\n").unwrap();
            out.push_str(&wrap("", &format!("**{}.**", escaped(text))));
            let message = template(&message).replace('\n', " ");
            writeln!(out, "\n```text\n{}```", wrap("", &message)).unwrap();
            count += 1;
        }
        for (title, text) in of_part {
            let out = by_kind.entry(title).or_default();
            write!(out, "\n### {title}: {}\n{text}", part.to_lowercase()).unwrap();
        }
    }
    assert!(count > 60, "{count}");
    let mut page = "# Errors\n\n".to_owned();
    page += &wrap(
        "",
        "Every kind of error, with its [exit code](exit-codes.md), what to do, and its messages, \
         generated from the error types of the program. A message begins with `error:` on standard \
         error and says what failed, where, why and what to do. Parts in `<...>` are values of the case. \
         An error that another one caused is printed after it.",
    );
    page.push_str("\n| kind | exit code |\n|---|---:|\n");
    let shown = KINDS.iter().filter(|kind| by_kind.contains_key(kind.title));
    let shown: Vec<&Kind> = shown.collect();
    for Kind { title, code, .. } in &shown {
        let anchor = super::markdown::slug(title);
        writeln!(page, "| [{title}](#{anchor}) | {code} |").unwrap();
    }
    for Kind {
        title, code, text, ..
    } in shown
    {
        writeln!(page, "\n## {title}\n\nExit code {code}.\n").unwrap();
        page.push_str(&wrap("", text));
        page.push_str(&by_kind[title]);
    }
    assert_generated("docs/reference/errors.md", &page);
}

#[test]
fn messages_and_kinds_are_read_from_the_source() {
    let source = "pub enum Error {\n    /// A key is\n    /// wrong.\n    #[error(\"`{key}`: {} \\\n             {{x}} {n:?}\", more(key))]\n    Config {\n        /// Key.\n        key: String,\n    },\n    /// Gone.\n    #[error(\"gone\")]\n    Gone(u8),\n}\n\
        impl Error {\n    pub fn kind(&self) -> ErrorKind {\n        match self {\n            Self::Config { .. } | Self::A(_) => ErrorKind::Config,\n            _ => ErrorKind::Other,\n        }\n    }\n}\n";
    let found = variants(source);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(found[0].text, "A key is wrong.");
    assert_eq!(template(&found[0].message), "`<key>`: ... {x} <n>");
    let kinds = kinds(source);
    assert_eq!(kinds["A"], "Config");
    assert_eq!(kinds["Config"], "Config");
    assert_eq!(kinds[""], "Other");
    assert_eq!(kinds.get("Gone"), None);
}
