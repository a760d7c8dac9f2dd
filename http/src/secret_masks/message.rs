//! Masks in messages of feedline, whose own words may equal a configured secret.
//!
//! A variable such as `MODE=page` is a secret by its reference alone. Messages have that word too, and would lose it.
//! They quote the text of others between backticks, so that the word is masked there, and outside of them wherever it
//! is part of other text than a sentence, such as in `mode=page`.

use std::ops::Range;

use super::MASK;
use crate::secret_notations::{LetterCase, MIN_ANY_CASE_BYTES, find};

/// Returns true for a secret that may be a word or a number of a sentence.
pub(super) fn may_be_word(secret: &str) -> bool {
    let has_only = |is: fn(&u8) -> bool| secret.bytes().all(|byte| is(&byte));
    secret.len() < MIN_ANY_CASE_BYTES
        && (has_only(u8::is_ascii_alphabetic) || has_only(u8::is_ascii_digit))
}

/// Returns `text` with a mask in place of `word`, except in sentences and in names of keys such as `page_size`.
pub(super) fn without_word(text: &str, word: &str) -> String {
    let bytes = text.as_bytes();
    let (mut shown, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(found) = find(&bytes[at..], word, LetterCase::Any) {
        let found = at + found.start..at + found.end;
        shown.extend_from_slice(&bytes[at..found.start]);
        shown.extend_from_slice(match is_own(bytes, &found) {
            true => &bytes[found.start..found.end],
            false => MASK.as_bytes(),
        });
        at = found.end;
    }
    shown.extend_from_slice(&bytes[at..]);
    String::from_utf8_lossy(&shown).into_owned()
}

/// Returns true if the text at `found` belongs to a sentence or to the name of a key.
fn is_own(text: &[u8], found: &Range<usize>) -> bool {
    let (before, after) = (&text[..found.start], &text[found.end..]);
    let is_quoted = before.iter().filter(|byte| **byte == b'`').count() % 2 == 1;
    if !is_quoted {
        let begins = before.last().is_none_or(|byte| is_of_sentence(*byte, b"("));
        return begins
            && after
                .first()
                .is_none_or(|byte| is_of_sentence(*byte, b".,;:)"));
    }
    let is_of_key = |byte: &&u8| matches!(**byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.');
    let start = before.iter().rev().find(|byte| !is_of_key(byte));
    let end = after.iter().find(|byte| !is_of_key(byte));
    let is_name = start == Some(&b'`') && end == Some(&b'`');
    let is_part = |byte: Option<&u8>| byte.is_some_and(|byte| !matches!(byte, b'.' | b'`'));
    is_name && (is_part(before.last()) || is_part(after.first()))
}

fn is_of_sentence(byte: u8, marks: &[u8]) -> bool {
    byte.is_ascii_alphanumeric()
        || byte.is_ascii_whitespace()
        || byte == b'-'
        || marks.contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_feedline_is_shown_and_one_of_others_is_masked() {
        let check = |text: &str, expected: &str| assert_eq!(without_word(text, "page"), expected);
        for own in [
            "page 3 of a page-wise list, its pages; the last page.",
            "a total (page by page): the page",
            "set `pagination.page_size` or `page_size`",
        ] {
            check(own, own);
        }
        check("`page`, `a page`, `pages of`", "`***`, `a ***`, `***s of`");
        check("`http://h/page?x=%3Dpage`", "`http://h/***?x=%3D***`");
        check("mode=page, \"page\", /page", "mode=***, \"***\", /***");
        check(
            "`a` of the page: `{\"m\":\"page\"}`",
            "`a` of the page: `{\"m\":\"***\"}`",
        );
        check("`p\\u0061ge` on a page", "`***` on a page");
    }

    #[test]
    fn only_short_secrets_of_letters_or_of_digits_may_be_words() {
        for (secret, expected) in [
            ("page", true),
            ("None", true),
            ("1000", true),
            ("t0ken", false),
            ("pass-w", false),
            ("password", false),
            ("12345678", false),
        ] {
            assert_eq!(may_be_word(secret), expected, "{secret}");
        }
    }
}
