//! The readable text of a page and its metadata.

use feedline_readers::{record::Record, value::Value};
use rs_trafilatura::{Options, extract_with_options};
use url::Url;

/// Builds the record of a page with the address `url`, fetched at `fetched`; `None` if it has no
/// text.
pub(super) fn record(page: &str, url: &Url, fetched: &Url) -> Option<Record> {
    // It fails on pages without content, which have no text. It does not get the URL: its guesses
    // from that make the text worse (F1 0.949 instead of 0.953 on the pages of the tests).
    let found = extract_with_options(page, &Options::default()).ok()?;
    let text = tidy(&found.content_text);
    let about = found.metadata;
    let told = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
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
            let found = match record(&unzipped(&file), &url, &url) {
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
