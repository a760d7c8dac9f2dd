//! Texts that the extractor of articles repeats.
//!
//! Of a page with few words and without paragraphs, it takes the text of each element one after
//! another, the title among them, and with it that of the elements in it again.

use dom_query::Document;

use super::{node_text::squeezed, text_marks::PageText};

/// Elements whose texts the extractor takes too, and that are no text for a reader.
const OTHERS: &str = "title, option, textarea";
/// Most texts of a page that is looked at: the extractor repeats those of pages with few words.
const MOST_TEXTS: usize = 200;

/// Returns the `texts` of a page once if the `extracted` text is longer than all of them, and has
/// nothing but them and the title; `None` for any other text.
pub(super) fn take_once(
    document: &Document,
    texts: &[PageText],
    extracted: &str,
) -> Option<String> {
    if texts.is_empty() || texts.len() > MOST_TEXTS {
        return None;
    }
    let extracted = condensed(extracted);
    let own: Vec<String> = texts.iter().map(|text| condensed(&text.text)).collect();
    let others = document.select(OTHERS);
    let others = others.nodes().iter().map(|node| condensed(&node.text()));
    let mut parts: Vec<String> = own.iter().cloned().chain(others).collect();
    if extracted.len() <= parts.iter().map(String::len).sum::<usize>() {
        return None;
    }
    // A long text may contain a short one.
    parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
    let mut rest = extracted.clone();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        rest = rest.replace(part.as_str(), "");
    }
    if !rest.is_empty() {
        return None;
    }
    let mut once = String::new();
    let is_found = |own: &String| extracted.contains(own.as_str());
    // Of a page of menus alone, it may take nothing but the title.
    let takes_all = !own.iter().any(is_found);
    let found = texts.iter().zip(&own);
    for (text, _) in found.filter(|found| takes_all || is_found(found.1)) {
        match (text.is_new_line, text.continues) {
            (true, _) => once.push('\n'),
            (false, true) => {}
            (false, false) => once.push(' '),
        }
        once.push_str(&squeezed(&text.text));
    }
    Some(once)
}

/// Text without white space.
fn condensed(text: &str) -> String {
    text.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(of: &[(&str, bool, bool)]) -> Vec<PageText> {
        let text = |(text, is_new_line, continues): &(&str, bool, bool)| PageText {
            text: (*text).to_owned(),
            is_new_line: *is_new_line,
            continues: *continues,
        };
        of.iter().map(text).collect()
    }

    #[test]
    fn repeated_texts_are_taken_once_and_others_stay() {
        let page = "<title>Two</title><select><option>1</option></select>";
        let document = Document::from(page);
        let texts = texts(&[
            ("One  cell", true, false),
            ("C ", true, false),
            ("c", false, false),
            ("ell", false, true),
            ("Menu", true, false),
        ]);
        let check = |extracted: &str, expected: Option<&str>| {
            let once = take_once(&document, &texts, extracted);
            assert_eq!(once.as_deref(), expected, "{extracted}");
        };
        let repeated = "TwoOne cellC cell1\nTwoTwoOne cellC cell1\nOne cellC cellcell11";
        check(repeated, Some("\nOne cell\nC cell"));
        check("One cell\nC cell", None);
        check(&format!("{repeated} and a description"), None);
        let many = format!("{repeated}{}", "Menu".repeat(2));
        check(&many, Some("\nOne cell\nC cell\nMenu"));
        let all = "\nOne cell\nC cell\nMenu";
        check(&"Two".repeat(9), Some(all));
    }
}
