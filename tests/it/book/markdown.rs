//! The parts of a Markdown page that the tests need: blocks of code, headings, links.

use std::collections::{BTreeMap, BTreeSet};

/// A block of code.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Line of its first fence, from 1.
    pub(super) line: usize,
    pub(super) language: String,
    pub(super) text: String,
    /// Comments directly before it, such as `exit: 3`, by name.
    pub(super) notes: BTreeMap<String, String>,
}

/// An item of a page that is run, in the order of the page.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// `<!-- run: COMMAND -->`
    Hidden {
        line: usize,
        command: String,
    },
    Block(Block),
}

/// Names of comments that have a meaning.
const NOTES: [&str; 5] = ["file", "exit", "norun", "run", "doctest"];

/// Number and character of the fence that a line begins with.
fn fence(line: &str) -> Option<(usize, char)> {
    let line = line.trim_start();
    let sign = line.chars().next().filter(|c| "`~".contains(*c))?;
    let length = line.chars().take_while(|c| *c == sign).count();
    (length >= 3).then_some((length, sign))
}

/// The blocks and hidden commands of a page.
///
/// # Errors
/// A message with the line of a block without an end, or of a comment without a meaning before one.
pub(super) fn items(page: &str) -> Result<Vec<Item>, String> {
    let mut items = Vec::new();
    let mut notes = BTreeMap::new();
    let mut unknown = None;
    let mut lines = (1..).zip(page.lines());
    while let Some((line, text)) = lines.next() {
        let trimmed = text.trim();
        let comment = trimmed
            .strip_prefix("<!--")
            .and_then(|rest| rest.strip_suffix("-->"));
        if let Some(comment) = comment.map(str::trim) {
            let (name, value) = comment.split_once(':').unwrap_or((comment, ""));
            let (name, value) = (name.trim(), value.trim());
            match name {
                "run" => items.push(Item::Hidden {
                    line,
                    command: value.to_owned(),
                }),
                name if NOTES.contains(&name) => {
                    notes.insert(name.to_owned(), value.to_owned());
                }
                _ => unknown = Some(comment.to_owned()),
            }
        } else if let Some((length, sign)) = fence(text) {
            if let Some(comment) = unknown.take() {
                return Err(format!(
                    "line {line}: `{comment}` before a block means nothing"
                ));
            }
            let indent = text.len() - text.trim_start().len();
            let language = trimmed.trim_start_matches(sign);
            let language = language.split([' ', ',', '{']).next().unwrap_or_default();
            let mut body = String::new();
            loop {
                let Some((_, text)) = lines.next() else {
                    return Err(format!("line {line}: the block has no end"));
                };
                if fence(text).is_some_and(|(own, same)| own >= length && same == sign) {
                    break;
                }
                let spaces = text.len() - text.trim_start().len();
                body.push_str(&text[spaces.min(indent)..]);
                body.push('\n');
            }
            items.push(Item::Block(Block {
                line,
                language: language.to_owned(),
                text: body,
                notes: std::mem::take(&mut notes),
            }));
        } else if !trimmed.is_empty() {
            notes.clear();
            unknown = None;
        }
    }
    Ok(items)
}

/// The page without blocks of code; each line keeps its number.
pub(super) fn prose(page: &str) -> Vec<(usize, &str)> {
    let mut open: Option<(usize, char)> = None;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        match (open, fence(line)) {
            (None, Some(opening)) => open = Some(opening),
            (Some((length, sign)), Some((own, same))) if own >= length && same == sign => {
                open = None;
            }
            (None, None) => lines.push((number, line)),
            (Some(_), _) => {}
        }
    }
    lines
}

/// A heading's anchor, as mdBook and GitHub make it.
pub(super) fn slug(heading: &str) -> String {
    let text = without_links(heading);
    let kept = text.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// The text with links and images replaced by their texts.
pub(super) fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('[') {
        let Some((label, target)) = link(&rest[at..]) else {
            out.push_str(&rest[..=at]);
            rest = &rest[at + 1..];
            continue;
        };
        out.push_str(rest[..at].trim_end_matches('!'));
        out.push_str(&without_links(label));
        rest = &rest[at + label.len() + target.len() + 4..];
    }
    out + rest
}

/// Label and target of the link that the text begins with.
fn link(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    let end = text.char_indices().find_map(|(at, c)| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })?;
    let target = text[end + 1..].strip_prefix('(')?;
    let target = &target[..target.find(')')?];
    Some((&text[1..end], target))
}

/// Level and text of each heading.
pub(super) fn headings(page: &str) -> Vec<(usize, String)> {
    let lines = prose(page).into_iter();
    let headings = lines.filter_map(|(_, line)| {
        let level = line.chars().take_while(|c| *c == '#').count();
        let text = line[level..].strip_prefix(' ')?;
        (1..=6)
            .contains(&level)
            .then(|| (level, text.trim().to_owned()))
    });
    headings.collect()
}

/// All anchors of a page.
pub(super) fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, heading) in headings(page) {
        let own = slug(&heading);
        let mut anchor = own.clone();
        let mut count = 0;
        while !anchors.insert(anchor.clone()) {
            count += 1;
            anchor = format!("{own}-{count}");
        }
    }
    for (_, line) in prose(page) {
        for attribute in ["id=\"", "name=\""] {
            let ids = line.split(attribute).skip(1);
            anchors.extend(ids.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
    anchors
}

/// Line and target of each link and image. Code has none.
pub(super) fn links(page: &str) -> Vec<(usize, String)> {
    // A link's text may continue on the next line, so paragraphs are searched and not lines.
    let mut text = String::new();
    let mut starts = Vec::new();
    for (number, line) in prose(page) {
        starts.push((text.len(), number));
        text.push_str(&without_code(line));
        text.push('\n');
    }
    let line_of = |at: usize| {
        let before = starts.partition_point(|(start, _)| *start <= at);
        starts[before - 1].1
    };
    let mut links = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("](").map(|at| at + from) {
        from = at + 2;
        if let Some(end) = text[from..].find([')', '\n']) {
            let target = text[from..from + end]
                .split(" \"")
                .next()
                .unwrap_or_default();
            links.push((line_of(at), target.trim().to_owned()));
        }
    }
    for (start, number) in starts {
        let line = text[start..].lines().next().unwrap_or_default();
        let definition = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "));
        links.extend(definition.map(|(_, target)| (number, target.trim().to_owned())));
        for attribute in ["href=\"", "src=\""] {
            let targets = line.split(attribute).skip(1);
            let targets = targets.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
            links.extend(targets.map(|target| (number, target)));
        }
    }
    links
}

/// The line with the content of `code` replaced by spaces.
fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate().map(|(at, part)| match at % 2 {
        0 => part.to_owned(),
        _ => " ".repeat(part.len()),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// The first paragraph after the first heading, on one line and without links.
pub(super) fn first_paragraph(page: &str) -> String {
    let mut words = Vec::new();
    let mut is_other = false;
    for (_, line) in prose(page) {
        let line = line.trim();
        if line.is_empty() && !words.is_empty() {
            break;
        }
        let begins_other = line.starts_with(['#', '<', '|', '-', '!']);
        is_other = !line.is_empty() && words.is_empty() && (is_other || begins_other);
        if !line.is_empty() && !is_other {
            words.push(line);
        }
    }
    without_links(&words.join(" "))
}

/// The first sentence of a paragraph.
pub(super) fn first_sentence(text: &str) -> &str {
    let ends = text.match_indices(". ");
    let mut ends = ends.filter(|(at, _)| text[..*at].matches('`').count().is_multiple_of(2));
    ends.next().map_or(text, |(at, _)| &text[..=at])
}

#[test]
fn blocks_have_their_notes_and_a_comment_without_a_meaning_is_an_error() {
    let page = "# A\n\n<!-- exit: 2 -->\n```sh\nfalse\n```\n\n<!-- run: true -->\n\n- b\n\n  ```toml\n  a = 1\n  ```\n";
    let found = items(page).unwrap();
    let [
        Item::Block(first),
        Item::Hidden { line, command },
        Item::Block(second),
    ] = &found[..]
    else {
        panic!("{found:?}");
    };
    assert_eq!((first.line, first.notes["exit"].as_str()), (4, "2"));
    assert_eq!((*line, command.as_str()), (8, "true"));
    assert_eq!(
        (second.text.as_str(), second.language.as_str()),
        ("a = 1\n", "toml")
    );
    assert!(second.notes.is_empty());
    let wrong = items("<!-- exti: 2 -->\n```sh\nfalse\n```\n").unwrap_err();
    assert!(wrong.contains("`exti: 2`"), "{wrong}");
    assert!(items("```sh\nfalse\n").is_err());
}

#[test]
fn anchors_and_links_are_those_of_the_rendered_page() {
    let page = "# The `a_b` key: [x](y.md)!\n\n## Same\n\n## Same\n\n<a id=\"a.b\"></a>\n\n\
                see [one\ntwo](p.md#q) and `[no](z)`, ![i](i.svg)\n\n```\n# no\n[no](z)\n```\n\n[r]: https://a.b\n";
    let found: Vec<String> = anchors(page).into_iter().collect();
    assert_eq!(found, ["a.b", "same", "same-1", "the-a_b-key-x"]);
    let found = links(page);
    let found: Vec<(usize, &str)> = found.iter().map(|(l, t)| (*l, t.as_str())).collect();
    assert_eq!(
        found,
        [
            (1, "y.md"),
            (10, "p.md#q"),
            (10, "i.svg"),
            (17, "https://a.b")
        ]
    );
}
