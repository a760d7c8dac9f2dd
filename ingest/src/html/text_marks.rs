//! Marks in the texts of a page, which the extractor of articles carries along.
//!
//! The extractor puts a blank between the texts of two elements, collapses white space, and does
//! not know which texts a browser hides. Marks preserve what it loses: words that a tag divides, line
//! breaks, the lines of `pre`, and hidden texts. They are noncharacters (Unicode standard, 23.7),
//! which are not for interchange; those that a page has are removed.

use dom_query::{Document, NodeRef};

use super::node_text::{attribute, squeezed};

/// End of a text whose last word continues in the next one.
const WORD_END: char = '\u{fdd0}';
/// Start of a text that continues the last word before it.
const WORD_START: char = '\u{fdd1}';
/// Start and end of a hidden text.
const HIDDEN: char = '\u{fdd2}';
const SHOWN: char = '\u{fdd3}';
/// Line break before a text.
const BREAK: char = '\u{fdd4}';
/// White space of `pre`.
const LINE_END: char = '\u{fdd5}';
const BLANK: char = '\u{fdd6}';
const TAB: char = '\u{fdd7}';

/// Elements without text for a reader.
const IGNORED: &[&str] = &[
    "head", "script", "style", "noscript", "template", "textarea", "select", "iframe", "svg",
];
/// Elements in a line of text.
const INLINE: &[&str] = &[
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em",
    "font", "i", "kbd", "mark", "nobr", "q", "s", "samp", "small", "span", "strike", "strong",
    "sub", "sup", "time", "tt", "u", "var", "wbr",
];
/// Other elements in a line, which are no part of a word of an article.
const OBJECTS: &[&str] = &[
    "audio", "button", "canvas", "img", "input", "ins", "label", "meter", "object", "output",
    "progress", "ruby", "rb", "slot", "video",
];
/// Those of `INLINE` that change the look of a part of a word.
const WORD_PARTS: &[&str] = &[
    "b", "big", "code", "em", "i", "kbd", "mark", "s", "samp", "strike", "strong", "sub", "sup",
    "tt", "u", "var", "wbr",
];
/// Elements before which the extractor itself breaks the line.
const BROKEN: &[&str] = &[
    "p", "div", "section", "article", "h1", "h2", "h3", "h4", "h5", "h6", "br", "li",
];
/// Most hidden text of a page, as a multiple of the shown text. A page that hides more shows it
/// by a script.
const MOST_HIDDEN: usize = 4;

/// A page whose texts have marks.
pub(super) struct MarkedPage {
    pub(super) html: String,
    /// True if its body has a text for a reader.
    pub(super) has_text: bool,
    /// The texts that are not hidden, in their order.
    pub(super) texts: Vec<PageText>,
}

/// A text of a page, and its relation to the one before it.
#[derive(Debug)]
pub(super) struct PageText {
    pub(super) text: String,
    /// True if it begins a line.
    pub(super) is_new_line: bool,
    /// True if it continues the last word before it.
    pub(super) continues: bool,
}

/// Marks the texts of a page. The document itself has the marks afterwards.
pub(super) fn mark(document: &Document) -> MarkedPage {
    let texts = find_texts(document);
    let length = |is_hidden: bool| -> usize {
        let texts = texts.iter().filter(|text| text.is_hidden == is_hidden);
        texts.map(|text| text.text.len()).sum()
    };
    let hides = length(true) <= length(false).saturating_mul(MOST_HIDDEN);
    for text in &texts {
        text.node.set_text(text.marked(hides));
    }
    let html = document.html().to_string();
    let has_text = !texts.is_empty();
    let shown = texts.into_iter().filter(|text| !(text.is_hidden && hides));
    let shown = shown.map(|text| PageText {
        text: text.text,
        is_new_line: text.is_new_line,
        continues: text.continues,
    });
    MarkedPage {
        html,
        has_text,
        texts: shown.collect(),
    }
}

/// Returns true if more of an extracted text is hidden than shown.
pub(super) fn is_mostly_hidden(text: &str) -> bool {
    let (mut is_hidden, mut hidden, mut shown) = (false, 0_usize, 0_usize);
    for c in text.chars() {
        match c {
            HIDDEN => is_hidden = true,
            SHOWN => is_hidden = false,
            _ if c.is_whitespace() || is_mark(c) => {}
            _ if is_hidden => hidden += 1,
            _ => shown += 1,
        }
    }
    hidden > shown
}

/// Text of an element as a browser shows it, with every run of white space as one space. Blocks and line breaks separate
/// words. Scripts and hidden elements in it are left out, the latter only if there is other text.
pub(super) fn shown_text(of: &NodeRef<'_>) -> String {
    let shown = text_within(of, false);
    if shown.is_empty() {
        return text_within(of, true);
    }
    shown
}

/// Entry of the stack of a depth-first walk through an element.
enum ElementPart<'a> {
    Node(NodeRef<'a>),
    /// End of a block.
    BlockEnd,
}

fn text_within(of: &NodeRef<'_>, with_hidden: bool) -> String {
    let mut text = String::new();
    let mut left = vec![ElementPart::Node(*of)];
    while let Some(part) = left.pop() {
        let ElementPart::Node(node) = part else {
            text.push(' ');
            continue;
        };
        if node.is_text() {
            text.push_str(&node.text());
            continue;
        }
        if node.id != of.id
            && let Some(name) = node.node_name()
        {
            if IGNORED.contains(&&*name) || !with_hidden && is_hidden(&node, &name) {
                continue;
            }
            if !INLINE.contains(&&*name) && !OBJECTS.contains(&&*name) && !name.contains('-') {
                text.push(' ');
                left.push(ElementPart::BlockEnd);
            }
        }
        let children = node.children().into_iter().rev();
        left.extend(children.map(ElementPart::Node));
    }
    squeezed(&text)
}

/// Removes the hidden elements of a page; returns its HTML.
pub(super) fn remove_hidden(document: &Document) -> String {
    for node in document.root().descendants() {
        let name = node.node_name();
        if name.is_some_and(|name| is_hidden(&node, &name)) {
            node.remove_from_parent();
        }
    }
    document.html().to_string()
}

/// Text without marks, where the marks change nothing.
pub(super) fn without_marks(text: &str) -> String {
    text.replace(is_mark, "")
}

/// Joins the words of an extracted text, breaks its lines and removes hidden texts. The marks in
/// lines of `pre` stay: see [`restore_lines`].
pub(super) fn join_texts(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let (mut is_hidden, mut is_after_hidden) = (false, false);
    // Length of the text that the next one may continue.
    let mut end = None;
    for c in text.chars() {
        match c {
            HIDDEN => is_hidden = true,
            SHOWN => (is_hidden, is_after_hidden) = (false, true),
            _ if is_hidden => {}
            WORD_END => end = Some(joined.len()),
            WORD_START => {
                let is_blank = |at: &usize| {
                    let between = joined.get(*at..).unwrap_or("x");
                    between.bytes().all(|byte| byte == b' ')
                };
                if let Some(at) = end.take().filter(is_blank) {
                    joined.truncate(at);
                }
            }
            BREAK => joined.push('\n'),
            ' ' if is_after_hidden && joined.ends_with([' ', '\n']) => {}
            c => {
                is_after_hidden = false;
                joined.push(c);
            }
        }
    }
    joined
}

/// Puts the white space of `pre` in place of its marks.
pub(super) fn restore_lines(text: &str) -> String {
    let restored = text.split('\n').map(|line| {
        let line = line.trim_start_matches(LINE_END);
        let line = line.trim_end_matches(|c: char| matches!(c, LINE_END | BLANK | TAB));
        let chars = line.chars().map(|c| match c {
            LINE_END => '\n',
            BLANK => ' ',
            TAB => '\t',
            c => c,
        });
        chars.collect::<String>()
    });
    restored.collect::<Vec<_>>().join("\n")
}

fn is_mark(c: char) -> bool {
    (WORD_END..=TAB).contains(&c)
}

/// A text node, and its relation to those around it.
struct TextNode<'a> {
    node: NodeRef<'a>,
    text: String,
    is_hidden: bool,
    is_pre: bool,
    is_code: bool,
    /// Number of line breaks before it.
    breaks: usize,
    is_new_line: bool,
    continues: bool,
    is_continued: bool,
}

impl TextNode<'_> {
    /// The text with its marks; those of hidden texts if the page `hides` them.
    fn marked(&self, hides: bool) -> String {
        if self.is_hidden {
            return match hides {
                true => format!("{HIDDEN}{}{SHOWN}", self.text),
                false => self.text.clone(),
            };
        }
        let mut marked = BREAK.to_string().repeat(self.breaks);
        if self.continues {
            marked.push(WORD_START);
        }
        match self.is_pre {
            true => push_lines(&mut marked, &self.text),
            false if self.breaks > 0 => marked.push_str(self.text.trim_start()),
            false => marked.push_str(&self.text),
        }
        if self.is_continued {
            marked.push(WORD_END);
        }
        marked
    }
}

/// Adds a text of `pre`. A blank between two words stays one, since the extractor counts words.
fn push_lines(marked: &mut String, text: &str) {
    let mut is_after_word = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let is_before_word = chars.peek().is_some_and(|next| next.is_alphanumeric());
        marked.push(match c {
            '\n' => LINE_END,
            '\t' => TAB,
            ' ' if !(is_after_word && is_before_word) => BLANK,
            c => c,
        });
        is_after_word = c.is_alphanumeric();
    }
}

/// The elements that start or end between two texts.
#[derive(Default)]
struct TextGap {
    /// Line breaks that the extractor does not make.
    breaks: usize,
    /// True if the texts are on two lines.
    is_line_end: bool,
    /// True if the texts are on two lines or have white space between them.
    is_apart: bool,
    /// True if one of the elements does more than to change the look of a part of a word.
    has_others: bool,
    /// Depth compared with that of the first text, and the lowest depth on the way.
    depth: i64,
    lowest: i64,
}

impl TextGap {
    fn pass(&mut self, name: &str, is_start: bool) {
        self.depth += if is_start { 1 } else { -1 };
        self.lowest = self.lowest.min(self.depth);
        self.has_others |= !WORD_PARTS.contains(&name);
        if INLINE.contains(&name) {
            return;
        }
        (self.is_line_end, self.is_apart) = (true, true);
        match name {
            "pre" | "blockquote" | "dl" => self.breaks = 2,
            "dt" | "dd" | "figcaption" => self.breaks = self.breaks.max(1),
            _ if is_start && BROKEN.contains(&name) => self.breaks = 0,
            _ => {}
        }
    }

    /// Returns true if a word can continue behind the gap. Two elements in a row, such as links of a
    /// menu, are mostly apart by their style.
    fn is_in_word(&self) -> bool {
        !self.has_others || self.lowest == 0 || self.depth == self.lowest
    }
}

/// The texts found so far, and the place in the document.
#[derive(Default)]
struct TextWalk<'a> {
    found: Vec<TextNode<'a>>,
    gap: TextGap,
    /// Numbers of open elements that change the texts in them.
    hidden: usize,
    pre: usize,
    code: usize,
    tables: usize,
}

/// The texts of a page in their order, without recursion.
fn find_texts(document: &Document) -> Vec<TextNode<'_>> {
    let mut walk = TextWalk::default();
    let mut at = Some(document.root());
    while let Some(node) = at {
        if node.is_text() {
            walk.take(node);
        } else if walk.enter(&node)
            && let Some(child) = node.first_child()
        {
            at = Some(child);
            continue;
        }
        at = walk.next_after(node);
    }
    walk.found
}

impl<'a> TextWalk<'a> {
    /// Starts a node; returns true if it may have texts.
    fn enter(&mut self, node: &NodeRef<'a>) -> bool {
        let Some(name) = node.node_name() else {
            return true;
        };
        if IGNORED.contains(&&*name) {
            self.gap.is_apart = true;
            return false;
        }
        self.gap.pass(&name, true);
        for open in self.open_counts(node, &name) {
            *open += 1;
        }
        true
    }

    fn leave(&mut self, node: &NodeRef<'a>) {
        let Some(name) = node.node_name() else {
            return;
        };
        if IGNORED.contains(&&*name) {
            return;
        }
        self.gap.pass(&name, false);
        for open in self.open_counts(node, &name) {
            *open = open.saturating_sub(1);
        }
    }

    /// The counts of open elements that the element `name` is one of.
    fn open_counts(&mut self, node: &NodeRef<'a>, name: &str) -> Vec<&mut usize> {
        let mut counts = Vec::new();
        if is_hidden(node, name) {
            counts.push(&mut self.hidden);
        }
        match name {
            "pre" => counts.push(&mut self.pre),
            "code" => counts.push(&mut self.code),
            "table" => counts.push(&mut self.tables),
            _ => {}
        }
        counts
    }

    /// Leaves a node, and the elements that end with it; returns the next node.
    fn next_after(&mut self, node: NodeRef<'a>) -> Option<NodeRef<'a>> {
        let mut last = Some(node);
        while let Some(node) = last {
            self.leave(&node);
            if let Some(next) = node.next_sibling() {
                return Some(next);
            }
            last = node.parent();
        }
        None
    }

    fn take(&mut self, node: NodeRef<'a>) {
        let own = node.text();
        let text = without_marks(&own);
        if text.len() < own.len() {
            node.set_text(text.clone());
        }
        let (is_hidden, is_pre) = (self.hidden > 0, self.pre > 0);
        let is_blank = text.trim().is_empty();
        if text.is_empty() || is_blank && (is_hidden || !is_pre) {
            self.gap.is_apart |= !text.is_empty();
            return;
        }
        let mut text = TextNode {
            node,
            text,
            is_hidden,
            is_pre,
            is_code: self.code > 0,
            breaks: 0,
            is_new_line: false,
            continues: false,
            is_continued: false,
        };
        if is_hidden {
            self.gap.is_apart = true;
        } else {
            let gap = std::mem::take(&mut self.gap);
            // The extractor has a line for each row of a table.
            text.breaks = if self.tables > 0 { 0 } else { gap.breaks };
            text.is_new_line = gap.is_line_end;
            if let Some(last) = self.found.last_mut() {
                text.continues = !gap.is_apart && is_one_word(last, &text, &gap);
                last.is_continued = text.continues;
            }
        }
        self.found.push(text);
    }
}

/// Returns true if there is no white space between two texts on one line.
fn is_one_word(last: &TextNode<'_>, text: &TextNode<'_>, gap: &TextGap) -> bool {
    let has_space =
        last.text.ends_with(char::is_whitespace) || text.text.starts_with(char::is_whitespace);
    let is_word = !has_space && (gap.is_in_word() || last.is_code && text.is_code);
    last.is_pre && text.is_pre || is_word
}

/// Returns true if a browser does not show the element, by its own attributes.
fn is_hidden(node: &NodeRef<'_>, name: &str) -> bool {
    if matches!(name, "html" | "body") {
        return false;
    }
    let is_found = |value: &str| value.trim().eq_ignore_ascii_case("until-found");
    if node.has_attr("hidden") && !is_found(&attribute(node, "hidden")) {
        return true;
    }
    let style = attribute(node, "style").to_ascii_lowercase();
    style.split(';').any(|rule| {
        let rule: String = rule.split_whitespace().collect();
        let rule = rule.trim_end_matches("!important");
        matches!(rule, "display:none" | "visibility:hidden")
    })
}
