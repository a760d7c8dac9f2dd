//! Values that differ in their spelling only, and numbers that are written as text.

use std::collections::{BTreeMap, HashSet};

use feedline_schemas::count::counted;
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

use super::message::quoted;

/// Writes a value without differences of blanks, letter case and Unicode form.
pub(crate) fn folded(value: &str) -> String {
    let words: Vec<&str> = value.split_whitespace().collect();
    let words = words.join(" ");
    match words.is_ascii() {
        true => words.to_ascii_lowercase(),
        // A letter and its accent are one character or two.
        false => words
            .nfkc()
            .collect::<String>()
            .to_lowercase()
            .nfkc()
            .collect(),
    }
}

/// Names the differences of values that are [`alike`].
pub(super) fn difference(alike: &[String]) -> &'static str {
    match alike.iter().all(|values| values.is_ascii()) {
        true => "blanks or letter case",
        false => "blanks, letter case or Unicode form",
    }
}

/// Ways to write values alike that are [`alike`], for a message.
pub(super) fn remedy(alike: &[String]) -> &'static str {
    match alike.iter().any(|values| values.contains(r"\u{")) {
        true => {
            "write them alike in the source, in one Unicode form such as NFC, which no function of `dataset.sql` gives; \
             `replace(..., chr(160), ' ')` there mends no-break spaces"
        }
        false => "write them alike in the source, or with `lower(trim(...))` in `dataset.sql`",
    }
}

/// Lists values that are alike, each with a note such as its rows. Where two of them look the same,
/// accents of their own and blanks that are no space are escaped.
pub(crate) fn list_alike(group: &[(&str, String)]) -> String {
    let looks = |value: &str| -> String {
        let blank = |c: char| if c.is_whitespace() { ' ' } else { c };
        value.nfkc().map(blank).collect()
    };
    let looks: HashSet<String> = group.iter().map(|(value, _)| looks(value)).collect();
    let is_hidden = looks.len() < group.len();
    let shown = |value: &str| match is_hidden {
        true => quoted(&escape_hidden(value)),
        false => quoted(value),
    };
    let values = group.iter().map(|(value, note)| shown(value) + note);
    values.collect::<Vec<_>>().join(" and ")
}

/// Escapes the characters that look like none, or like others.
fn escape_hidden(value: &str) -> String {
    let is_hidden = |c: char| is_combining_mark(c) || (c.is_whitespace() && !c.is_ascii());
    let mut text = String::new();
    for c in value.chars() {
        match is_hidden(c) {
            true => text.extend(c.escape_unicode()),
            false => text.push(c),
        }
    }
    text
}

/// Groups values that are equal but for blanks, letter case and Unicode form, each group as text with
/// the rows of each value.
pub(super) fn alike<'a>(values: impl Iterator<Item = (&'a String, u64)>) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<(&str, u64)>> = BTreeMap::new();
    for (value, rows) in values {
        groups
            .entry(folded(value))
            .or_default()
            .push((value.as_str(), rows));
    }
    let several = groups.into_values().filter(|group| group.len() > 1);
    let mut several: Vec<Vec<(&str, u64)>> = several.collect();
    for group in &mut several {
        group.sort_by_key(|(value, rows)| (std::cmp::Reverse(*rows), *value));
    }
    several.sort_by_key(|group| std::cmp::Reverse(group.iter().map(|(_, rows)| rows).sum::<u64>()));
    let text = |group: Vec<(&str, u64)>| {
        let values = group.into_iter();
        let values = values.map(|(value, rows)| (value, format!(" ({})", counted(rows, "row"))));
        list_alike(&values.collect::<Vec<_>>())
    };
    several.into_iter().map(text).collect()
}

/// Returns whether a string is a number as people write one: with a point or a comma, a sign, a
/// percent sign.
pub(super) fn is_number(text: &str) -> bool {
    let text = text.trim().trim_end_matches('%').trim_end();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_code =
        digits.len() > 1 && digits.starts_with('0') && digits.as_bytes()[1].is_ascii_digit();
    if is_code || !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == ',') {
        return false;
    }
    let whole = digits
        .rsplit_once([',', '.'])
        .map_or(digits, |(whole, _)| whole);
    let mut groups = whole.split([',', '.']);
    let first = groups.next().map_or(0, str::len);
    let is_grouped = (1..=3).contains(&first) && groups.all(|group| group.len() == 3);
    digits.replace(',', ".").parse::<f64>().is_ok()
        || (is_grouped && digits.replace([',', '.'], "").parse::<u64>().is_ok())
}
