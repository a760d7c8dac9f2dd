//! Maximum nesting depth of the elements of a page, and the number of attributes of a tag. Both
//! come from its tags, before anything builds a tree of them.
//!
//! The time to parse a tag grows with the square of its attributes, since each is compared with
//! those before it. The time to build a tree grows with its depth for every tag, and walking it may
//! need stack. Elements whose end is optional (`p`, `li`, `td`) are not counted: without a counted
//! one between them they end each other. An end tag ends the elements opened since its own, but not
//! beyond a table's cell or the like. The end tag of a formatting element (`b`) ends only one of
//! these, as the HTML standard requires (13.2.6.4.7).

use std::collections::HashMap;

/// Maximum depth; deeper pages are rejected. Browsers stop at 512.
pub(super) const MAX_DEPTH: usize = 1_000;
/// Maximum number of attributes of a tag; pages with more are rejected. Tags written by hand or by
/// a program have a few dozen.
pub(super) const MAX_ATTRIBUTES: usize = 1_000;

const VOID: &[&[u8]] = &[
    b"area",
    b"base",
    b"br",
    b"col",
    b"embed",
    b"hr",
    b"img",
    b"input",
    b"link",
    b"meta",
    b"param",
    b"source",
    b"track",
    b"wbr",
    b"frame",
    b"keygen",
    b"basefont",
    b"bgsound",
];
const OPTIONAL_END: &[&[u8]] = &[
    b"p",
    b"li",
    b"dt",
    b"dd",
    b"tr",
    b"td",
    b"th",
    b"thead",
    b"tbody",
    b"tfoot",
    b"option",
    b"optgroup",
    b"colgroup",
    b"rt",
    b"rp",
    b"html",
    b"head",
    b"body",
];
const FORMATTING: &[&[u8]] = &[
    b"a", b"b", b"big", b"code", b"em", b"font", b"i", b"nobr", b"s", b"small", b"strike",
    b"strong", b"tt", b"u",
];
/// End tags of other elements do not reach beyond these.
const MARKERS: &[&[u8]] = &[
    b"table",
    b"caption",
    b"template",
    b"object",
    b"applet",
    b"marquee",
    b"svg",
    b"math",
    b"select",
];
/// Elements whose content is text.
const RAW: &[&[u8]] = &[
    b"script",
    b"style",
    b"textarea",
    b"title",
    b"xmp",
    b"iframe",
    b"noembed",
    b"noframes",
];

/// Measures of a page's tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tags {
    /// An estimate of how deeply elements are nested.
    pub(super) depth: usize,
    /// Greatest number of attributes of a tag, duplicates included.
    pub(super) attributes: usize,
}

/// Measures a page; it stops once one is beyond `MAX_DEPTH` or `MAX_ATTRIBUTES`.
pub(super) fn measure(page: &[u8]) -> Tags {
    let mut open = Open::default();
    let mut tags = Tags::default();
    let mut at = 0;
    while let Some(start) = find(page, at, b"<") {
        at = start + 1;
        if page[at..].starts_with(b"!--") {
            at = comment_end(page, at + 3);
            continue;
        }
        let is_end = page.get(at) == Some(&b'/');
        let from = at + usize::from(is_end);
        if !page.get(from).is_some_and(u8::is_ascii_alphabetic) {
            continue;
        }
        let name = name(&page[from..]);
        let tag = tag_end(page, from + name.len());
        at = tag.end;
        if is_end {
            open.end(&name);
        } else if !tag.closes_itself || !open.is_foreign() {
            open.start(&name);
            if RAW.contains(&name.as_slice()) {
                at = raw_end(page, at, &name);
            }
        }
        tags.depth = tags.depth.max(open.depth());
        tags.attributes = tags.attributes.max(tag.attributes);
        if tags.depth > MAX_DEPTH || tags.attributes > MAX_ATTRIBUTES {
            break;
        }
    }
    tags
}

#[derive(Default)]
struct Open {
    stack: Vec<Vec<u8>>,
    /// Number of open elements by name.
    counts: HashMap<Vec<u8>, usize>,
    formatting: HashMap<Vec<u8>, usize>,
    formatted: usize,
}

impl Open {
    fn depth(&self) -> usize {
        self.stack.len() + self.formatted
    }

    /// Returns true if `<x/>` is an element without content here.
    fn is_foreign(&self) -> bool {
        let count = |name: &[u8]| self.counts.get(name).copied().unwrap_or(0);
        count(b"svg") + count(b"math") > 0
    }

    fn start(&mut self, name: &[u8]) {
        if VOID.contains(&name) || OPTIONAL_END.contains(&name) {
            return;
        }
        if FORMATTING.contains(&name) {
            *self.formatting.entry(name.to_vec()).or_default() += 1;
            self.formatted += 1;
            return;
        }
        *self.counts.entry(name.to_vec()).or_default() += 1;
        self.stack.push(name.to_vec());
    }

    fn end(&mut self, name: &[u8]) {
        if let Some(count) = self.formatting.get_mut(name).filter(|count| **count > 0) {
            *count -= 1;
            self.formatted -= 1;
            return;
        }
        if self.counts.get(name).is_none_or(|count| *count == 0) {
            return;
        }
        // Only from the innermost marker inwards: elements outside it cannot be closed from here.
        let marker = self
            .stack
            .iter()
            .rposition(|open| MARKERS.contains(&open.as_slice()));
        let own = self.stack.iter().rposition(|open| open == name);
        if own < marker && !MARKERS.contains(&name) {
            return;
        }
        while let Some(open) = self.stack.pop() {
            if let Some(count) = self.counts.get_mut(&open) {
                *count -= 1;
            }
            if open == name {
                return;
            }
        }
    }
}

fn find(page: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let rest = page.get(from..)?;
    rest.windows(what.len())
        .position(|w| w == what)
        .map(|at| from + at)
}

fn name(page: &[u8]) -> Vec<u8> {
    let end = page
        .iter()
        .position(|b| b.is_ascii_whitespace() || matches!(b, b'>' | b'/'));
    page[..end.unwrap_or(page.len())].to_ascii_lowercase()
}

/// Returns the end of a comment whose text begins at `from`. `<!-->` and `<!--->` are complete
/// comments.
fn comment_end(page: &[u8], from: usize) -> usize {
    let text = page.get(from..).unwrap_or_default();
    for empty in [&b">"[..], b"->"] {
        if text.starts_with(empty) {
            return from + empty.len();
        }
    }
    let mut at = from;
    while let Some(end) = find(page, at, b"--") {
        for close in [&b">"[..], b"!>"] {
            if page[end + 2..].starts_with(close) {
                return end + 2 + close.len();
            }
        }
        at = end + 1;
    }
    page.len()
}

/// The rest of a tag, after its name.
struct TagEnd {
    /// Index after its last byte.
    end: usize,
    /// True if it ends with `/>`.
    closes_itself: bool,
    attributes: usize,
}

/// Context of a byte in a tag.
#[derive(Clone, Copy)]
enum Within {
    Gap,
    Name,
    /// After a name, where an `=` starts a value.
    AfterName,
    /// After an `=`.
    Equals,
    Value,
    Quoted(u8),
}

/// Reads the attributes that begin at `at`, as the HTML standard specifies (13.2.5.32 to
/// 13.2.5.40).
fn tag_end(page: &[u8], at: usize) -> TagEnd {
    let mut within = Within::Gap;
    let mut attributes = 0;
    for (i, &b) in page.iter().enumerate().skip(at) {
        let is_space = b.is_ascii_whitespace();
        within = match (within, b) {
            (Within::Quoted(open), b) if b == open => Within::Gap,
            (Within::Quoted(open), _) => Within::Quoted(open),
            (_, b'>') => {
                return TagEnd {
                    end: i + 1,
                    closes_itself: page[i - 1] == b'/',
                    attributes,
                };
            }
            (Within::Equals, b'"' | b'\'') => Within::Quoted(b),
            (Within::Equals, _) if is_space => Within::Equals,
            (Within::Equals, _) => Within::Value,
            (Within::Value, _) if is_space => Within::Gap,
            (Within::Value, _) => Within::Value,
            (Within::Name | Within::AfterName, b'=') => Within::Equals,
            (Within::Name | Within::AfterName, _) if is_space => Within::AfterName,
            (_, b'/') => Within::Gap,
            (Within::Name, _) => Within::Name,
            (Within::Gap, _) if is_space => Within::Gap,
            (Within::Gap | Within::AfterName, _) => {
                attributes += 1;
                Within::Name
            }
        };
    }
    TagEnd {
        end: page.len(),
        closes_itself: false,
        attributes,
    }
}

/// Returns the offset where the end tag of a raw text element begins.
fn raw_end(page: &[u8], from: usize, name: &[u8]) -> usize {
    let mut at = from;
    while let Some(start) = find(page, at, b"</") {
        let rest = &page[start + 2..];
        if rest.len() >= name.len() && rest[..name.len()].eq_ignore_ascii_case(name) {
            return start;
        }
        at = start + 2;
    }
    page.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(page: &str, expected: usize) {
        assert_eq!(measure(page.as_bytes()).depth, expected, "{page}");
    }

    #[test]
    fn elements_are_counted_until_they_end() {
        check("", 0);
        check("text < 3 and <5", 0);
        check("<div><div></div></div><div>", 2);
        check("<DIV a='>' b=\"<div>\"><span/>x</DIV>", 2);
        check("<!-- <div><div> --><section>", 1);
        check("<div><script>if (a<b) '<div><div>'</script></div>", 2);
        check("<p><p><li>x<li>y<br><img><hr>", 0);
    }

    #[test]
    fn fault_48_sloppy_pages_stay_shallow() {
        check(&"<div><span>x</div>".repeat(5_000), 2);
        check(&"<li><a href=x>y</a>".repeat(5_000), 1);
        check(&"</div></span>".repeat(5_000), 0);
        check(&"<table><tr><td>x</table>".repeat(5_000), 1);
        check(&format!("<svg>{}</svg>", "<path d=''/>".repeat(5_000)), 1);
    }

    #[test]
    fn what_a_tree_would_nest_is_seen() {
        for nest in [
            "<div>",
            "<b>",
            "<font size=1><i>",
            "<div></x>",
            "<table><td>",
            "<div><table><td></div>",
            "<ul><li>",
            "<b><div></b>",
        ] {
            let page = nest.repeat(MAX_DEPTH + 1);
            assert!(measure(page.as_bytes()).depth > MAX_DEPTH, "{nest}");
        }
    }

    #[test]
    fn the_attributes_of_a_tag_are_counted_in_every_spelling() {
        let check = |page: &str, expected: usize| {
            assert_eq!(measure(page.as_bytes()).attributes, expected, "{page}");
        };
        check("<p>a b c</p>", 0);
        check("<p a><br b c=1 d = 2 e='f g' h=\"i>j\"k>", 6);
        check("<p a/b/c=/d =e/>", 4);
        check("<p a a a", 3);
        check("</p a b>", 2);
        check("<!-- <p a b> --><p c>", 1);
        check("<!--><p a b> -->", 2);
        check("<!---><p a b> -->", 2);
        check("<!-- --!><p a b> -->", 2);
        check("<script>a <b c d e</script><p f>", 1);
        let many = format!("<p {}>", "a ".repeat(MAX_ATTRIBUTES + 1));
        check(&many, MAX_ATTRIBUTES + 1);
    }
}
