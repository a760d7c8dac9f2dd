//! The readable text of a page and its metadata.

use dom_query::Document;
use feedline_readers::{record::Record, value::Value};
use rs_trafilatura::{ExtractResult, Options, extract_with_options};
use url::Url;

use super::{node_text::squeezed, repeated_text::take_once, text_marks};

/// Builds the record of a page with the address `url`, fetched at `fetched`; `None` if it has no
/// text. The texts of the document have marks afterwards.
pub(super) fn record(document: &Document, url: &Url, fetched: &Url) -> Option<Record> {
    let page = text_marks::mark(document);
    let mut found = extract(&page.html)?;
    // The extractor does not know what is hidden, and may have chosen that alone.
    if text_marks::is_mostly_hidden(&found.content_text)
        && let Some(shown) = extract(&text_marks::remove_hidden(document))
    {
        found = shown;
    }
    let text = text_marks::restore_lines(&tidy(&text_marks::join_texts(&found.content_text)));
    if !page.has_text && is_title(document, &text) {
        return None;
    }
    let text = match take_once(document, &page.texts, &text) {
        Some(once) => tidy(&once),
        None => text,
    };
    let about = found.metadata;
    let told = |text: Option<String>| {
        let text = text.map(|text| text_marks::without_marks(&text));
        text.filter(|text| !text.trim().is_empty())
    };
    (!text.is_empty()).then(|| {
        about_page(
            (url, fetched),
            [
                told(about.title),
                told(about.author),
                about.date.map(|date| date.to_rfc3339()),
                told(about.description),
                told(about.sitename),
                told(about.language),
            ],
            text,
        )
    })
}

/// Extracts the main text of a page; `None` for one without content. The extractor does not get the
/// URL: its guesses from that make the text worse (F1 0.949 instead of 0.953 on the pages of the
/// tests).
fn extract(html: &str) -> Option<ExtractResult> {
    let options = Options {
        // It would truncate at this byte, marks included, and panics within a character.
        max_extracted_len: usize::MAX,
        ..Options::default()
    };
    extract_with_options(html, &options).ok()
}

/// Returns true if a text has nothing but titles of the page, which the extractor takes where it
/// finds no other text.
fn is_title(document: &Document, text: &str) -> bool {
    let mut rest = squeezed(text);
    for title in document.select("title").nodes() {
        rest = rest.replace(&squeezed(&title.text()), "");
    }
    rest.trim().is_empty()
}

/// Lines without white space around them and no more than one blank line between two.
fn tidy(text: &str) -> String {
    let mut tidy = String::with_capacity(text.len());
    for line in text.lines().map(str::trim) {
        if !line.is_empty() {
            tidy += line;
            tidy.push('\n');
        } else if !tidy.is_empty() && !tidy.ends_with("\n\n") {
            tidy.push('\n');
        }
    }
    tidy.truncate(tidy.trim_end().len());
    tidy
}

/// The record of a page that is nothing but text.
pub(super) fn plain(url: &Url, text: String) -> Record {
    about_page((url, url), [const { None }; 6], text)
}

fn about_page((url, fetched): (&Url, &Url), about: [Option<String>; 6], text: String) -> Record {
    const NAMES: [&str; 6] = ["title", "author", "date", "description", "site", "language"];
    let mut entries = vec![
        ("url".to_owned(), Value::Text(url.to_string())),
        ("fetched_url".to_owned(), Value::Text(fetched.to_string())),
    ];
    let about = NAMES.iter().zip(about);
    entries.extend(
        about.map(|(name, value)| ((*name).to_owned(), value.map_or(Value::Null, Value::Text))),
    );
    entries.push(("text".to_owned(), Value::Text(text)));
    Record::Value(Value::Object(entries))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        io::Read,
        path::{Path, PathBuf},
    };

    use super::*;

    fn unzipped(path: &Path) -> String {
        let mut text = String::new();
        let file = std::fs::File::open(path).unwrap();
        flate2::read::GzDecoder::new(file)
            .read_to_string(&mut text)
            .unwrap();
        text
    }

    /// Sequences of four words and their counts; a shorter text is one sequence. The benchmark of
    /// the pages calls them shingles (its `evaluate.py`).
    fn shingles(text: &str) -> BTreeMap<Vec<&str>, f64> {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let words: Vec<&str> = text
            .split(|c| !is_part(c))
            .filter(|w| !w.is_empty())
            .collect();
        let mut counts = BTreeMap::new();
        let runs = words.len().saturating_sub(3).max(1);
        for at in 0..runs {
            let run = words[at..words.len().min(at + 4)].to_vec();
            *counts.entry(run).or_default() += 1.0;
        }
        counts
    }

    /// Precision and recall of a text.
    fn score(truth: &str, found: &str) -> (f64, f64) {
        let (truth, found) = (shingles(truth), shingles(found));
        let of = |counts: &BTreeMap<Vec<&str>, f64>, run| counts.get(run).copied().unwrap_or(0.0);
        let hits: f64 = truth.iter().map(|(run, n)| n.min(of(&found, run))).sum();
        let share = |all: f64| if all > 0.0 { hits / all } else { 0.0 };
        (share(found.values().sum()), share(truth.values().sum()))
    }

    #[test]
    fn articles_are_told_from_what_is_around_them() {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/html/article_extraction");
        if !folder.exists() {
            eprintln!("skipped: the pages of `html/article_extraction` are not here");
            return;
        }
        let truth = unzipped(&folder.join("ground-truth.json.gz"));
        let truth: BTreeMap<String, serde_json::Value> = serde_json::from_str(&truth).unwrap();
        let (mut precision, mut recall) = (0.0, 0.0);
        for (id, page) in &truth {
            let file: PathBuf = folder.join(format!("html/{id}.html.gz"));
            let url = Url::parse(page["url"].as_str().unwrap()).unwrap();
            let document = Document::from(unzipped(&file).as_str());
            let found = match record(&document, &url, &url) {
                Some(Record::Value(value)) => match value.at("text") {
                    Some(Value::Text(text)) => text.clone(),
                    other => panic!("{other:?}"),
                },
                other => panic!("{id}: {other:?}"),
            };
            let (p, r) = score(page["articleBody"].as_str().unwrap(), &found);
            (precision, recall) = (precision + p, recall + r);
        }
        let pages = f64::from(u32::try_from(truth.len()).unwrap());
        let (precision, recall) = (precision / pages, recall / pages);
        let f1 = 2.0 * precision * recall / (precision + recall);
        eprintln!("{pages} pages: precision {precision:.4}, recall {recall:.4}, F1 {f1:.4}");
        assert!(truth.len() == 70 && f1 > 0.95, "{f1}");
    }

    /// Text of an article that has `body` between two of its paragraphs.
    fn text_around(body: &str) -> String {
        let around =
            "<p>The river authority said on Monday that repairs to the old dam would take \
            another two years, since engineers had found cracks in its eastern wall.</p>"
                .repeat(6);
        let page = format!(
            "<html><head><title>Dam</title></head>\
             <body><article>{around}<p>Begin</p>{body}<p>End</p>{around}</article></body></html>"
        );
        let text = page_text(&page).unwrap();
        let (_, after) = text.split_once("Begin").unwrap();
        after.split_once("End").unwrap().0.to_owned()
    }

    fn page_text(page: &str) -> Option<String> {
        let url = Url::parse("http://h/").unwrap();
        match record(&Document::from(page), &url, &url)? {
            Record::Value(value) => match value.at("text") {
                Some(Value::Text(text)) => Some(text.clone()),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn words_and_signs_are_not_divided_by_inline_tags() {
        let check = |body: &str, expected: &str| assert_eq!(text_around(body).trim(), expected);
        check(
            "<p>Drink H<sub>2</sub>O, said <b>B</b>ob (<em>the chief</em>); it is un<i>believ</i>able.</p>",
            "Drink H2O, said Bob (the chief); it is unbelievable.",
        );
        check(
            "<p>It sp<span>a</span>ns \"<code>foo</code>\" and (<a href=/x>a link</a>) <b>here</b> <i>too</i>.</p>",
            "It spans \"foo\" and (a link) here too.",
        );
        check("<p><b>H</b><sub>2</sub>O</p>", "H2O");
        // Such elements are mostly apart by their style.
        check("<p><span>3 May</span><span>Dam</span></p>", "3 May Dam");
    }

    #[test]
    fn preformatted_text_has_its_lines_and_blocks_have_their_own() {
        let code = "<pre><code><span>def</span> <span>f</span>(x):\n    if x:\n        return 1\n\treturn  2\n</code></pre>";
        assert_eq!(
            text_around(code),
            "\n\ndef f(x):\n    if x:\n        return 1\n\treturn  2\n\n"
        );
        assert_eq!(
            text_around("<dl><dt>Term</dt><dd> One.</dd><dt>Other</dt><dd>Two.</dd></dl>"),
            "\n\nTerm\nOne.\nOther\nTwo.\n\n"
        );
        assert_eq!(
            text_around("<blockquote>Said so.</blockquote>"),
            "\n\nSaid so.\n\n"
        );
    }

    #[test]
    fn hidden_text_is_no_text_unless_nearly_all_is_hidden() {
        let hidden = "<p style='color:red; DISPLAY : none !important'>One</p><div hidden>Two</div>\
            <p>Three <span style='visibility:hidden'>four</span> five</p>\
            <p hidden=until-found>Six</p><p aria-hidden=true>Seven</p>";
        assert_eq!(text_around(hidden), "\n\nThree five\n\nSix\n\nSeven\n\n");
        let long = "Some words of a page that its script shows once it has run. ".repeat(9);
        let page = format!("<body><a>Menu</a><article hidden><p>{long}</p></article></body>");
        let text = page_text(&page).unwrap();
        assert!(text.contains("its script shows"), "{text}");
    }

    #[test]
    fn a_long_hidden_text_beside_a_short_article_leaves_the_article() {
        let sentence = |of: &str, count: usize| {
            format!("<p>The {of} says that the office is closed until the end of the month.</p>")
                .repeat(count)
        };
        let (dialog, note) = (sentence("dialog", 40), sentence("note", 14));
        let page = format!(
            "<body><div>{note}</div><article style='display:none'>{dialog}</article></body>"
        );
        let text = page_text(&page).unwrap();
        assert!(text.contains("The note says"), "{text}");
        assert!(!text.contains("dialog"), "{text}");
    }

    #[test]
    fn a_long_text_with_marks_is_not_truncated() {
        // A line has marks of nine bytes.
        let lines = "a  b\n".repeat(100_000);
        let text = text_around(&format!("<pre>{lines}</pre>"));
        assert_eq!(text.matches("a  b").count(), 100_000);
    }

    #[test]
    fn a_page_whose_body_has_no_text_is_not_its_title() {
        for body in [
            "<div id=root></div><script>x()</script>",
            "<noscript>You need to enable JavaScript to run this app.</noscript><div></div>",
            "<img src=a.png>",
            "",
        ] {
            let page =
                format!("<html><head><title>My\n App</title></head><body>{body}</body></html>");
            assert_eq!(page_text(&page), None, "{body}");
        }
    }

    #[test]
    fn the_text_of_a_short_page_without_paragraphs_lands_once_and_without_the_title() {
        let check = |page: &str, expected: &str| {
            assert_eq!(page_text(page).as_deref(), Some(expected), "{page}");
        };
        check(
            "<html><head><title>Tbl</title></head><body><table><tr>\
             <td>Some old page says that the office is closed.</td></tr></table></body></html>",
            "Some old page says that the office is closed.",
        );
        check(
            "<body><div>One <b>t</b>wo</div><div>Three</div></body>",
            "One two\nThree",
        );
    }

    #[test]
    fn marks_of_a_page_itself_do_not_land() {
        let text = text_around("<p>A\u{fdd2}b&#xfdd3;c\u{fdd0} \u{fdd1}d</p>");
        assert_eq!(text.trim(), "Abc d");
    }

    #[test]
    fn white_space_of_the_markup_does_not_stay() {
        assert_eq!(tidy("\n  \n a  b \n\n \n\t\n c\nd\n \n"), "a  b\n\nc\nd");
        assert_eq!(tidy(" \n\t"), "");
    }

    #[test]
    fn texts_are_scored_by_their_runs_of_four_words() {
        assert_eq!(score("a b c d e", "a b c d e"), (1.0, 1.0));
        assert_eq!(score("a b c d e", "a b c d x"), (0.5, 0.5));
        assert_eq!(score("a b c d", "a b c d e f"), (1.0 / 3.0, 1.0));
        assert_eq!(score("a b", "a b"), (1.0, 1.0));
        assert_eq!(score("a b", ""), (0.0, 0.0));
    }
}
