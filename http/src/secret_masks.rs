//! Masks of secrets in text.

mod message;

use std::cmp::Reverse;

use self::message::{may_be_word, without_word};
use crate::{
    location::without_users_of_urls,
    secret_notations::{LetterCase, find, find_split},
};

/// Minimum length of masked secrets: shorter values would match everywhere.
pub(crate) const MIN_SECRET_BYTES: usize = 4;
pub(crate) const MASK: &str = "***";
/// End of a shortened sample.
const SHORTENED: &str = "...";

/// Masks each `secret` in `body`, in any notation. Returns the number of masks too; `None` if there
/// are none.
pub(crate) fn without(body: &[u8], secret: &str, case: LetterCase) -> Option<(Vec<u8>, u32)> {
    let (mut kept, mut rest, mut count) = (Vec::new(), body, 0);
    while let Some(found) = find(rest, secret, case) {
        kept.extend_from_slice(&rest[..found.start]);
        kept.extend_from_slice(MASK.as_bytes());
        rest = &rest[found.end..];
        count += 1;
    }
    kept.extend_from_slice(rest);
    (count > 0).then_some((kept, count))
}

/// `text`, the start of a longer one, without its end from the first secret on that the end may have split. What is left
/// has all of each secret in it.
pub(crate) fn before_split<'t>(text: &'t [u8], secrets: &[&str]) -> &'t [u8] {
    let text = without_split_char(text);
    let secrets = || secrets.iter();
    let splits = secrets().filter_map(|secret| find_split(text, secret, LetterCase::Any));
    let Some(mut end) = splits.min() else {
        return text;
    };
    let around = |end: usize| secrets().find_map(|secret| start_around(text, secret, end));
    while let Some(start) = around(end) {
        end = start;
    }
    &text[..end]
}

/// Start of the `secret` in `text` that the position `at` is inside of.
fn start_around(text: &[u8], secret: &str, at: usize) -> Option<usize> {
    let mut from = 0;
    while let Some(found) = find(&text[from..], secret, LetterCase::Any) {
        let (start, end) = (from + found.start, from + found.end);
        if start < at && at < end {
            return Some(start);
        }
        from = end;
    }
    None
}

/// `text` without the bytes of a character that its end has split.
pub(crate) fn without_split_char(text: &[u8]) -> &[u8] {
    let last = text.utf8_chunks().last();
    let invalid = last.map_or(&[][..], |chunk| chunk.invalid());
    match str::from_utf8(invalid) {
        Err(error) if error.error_len().is_none() => &text[..text.len() - invalid.len()],
        _ => text,
    }
}

/// Secrets of a source or a store, to mask in messages about its records and in responses to its requests.
#[derive(Clone, Default)]
pub struct SecretMasks(pub(crate) Vec<String>);

impl std::fmt::Debug for SecretMasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretMasks({} secrets)", self.0.len())
    }
}

impl SecretMasks {
    /// Masks of `secrets`, except those of fewer than four bytes.
    #[must_use]
    pub fn of(mut secrets: Vec<String>) -> Self {
        secrets.retain(|secret| secret.len() >= MIN_SECRET_BYTES);
        secrets.sort_unstable_by_key(|secret| Reverse(secret.len()));
        Self(secrets)
    }

    /// These masks, and those of `more` secrets.
    #[must_use]
    pub fn with(&self, more: Vec<String>) -> Self {
        Self::of(self.0.iter().cloned().chain(more).collect())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `text` with a mask in place of each secret, in any notation and letter case, and of
    /// the beginning of one that a shortened sample ends with.
    #[must_use]
    pub fn mask(&self, text: &str) -> String {
        self.mask_where(text, |_| false)
    }

    /// The same for the start of a longer text, which loses its end from a secret on that it may have split.
    pub(crate) fn mask_start(&self, start: &str) -> String {
        let secrets: Vec<&str> = self.0.iter().map(String::as_str).collect();
        let kept = before_split(start.as_bytes(), &secrets);
        self.mask(&String::from_utf8_lossy(kept))
    }

    /// Masks secrets in a message of feedline as [`mask`](Self::mask) does in text of others. A secret of fewer than
    /// eight letters or digits may be a word of the message: it is masked between backticks, where messages quote the
    /// text of others, and elsewhere where it is no word of a sentence. URLs lose their users and passwords.
    #[must_use]
    pub fn mask_message(&self, message: &str) -> String {
        self.mask_where(&without_users_of_urls(message), may_be_word)
    }

    fn mask_where(&self, text: &str, may_be_word: impl Fn(&str) -> bool) -> String {
        let mut shown = text.to_owned();
        for secret in &self.0 {
            if may_be_word(secret) {
                shown = without_word(&shown, secret);
            } else if let Some((kept, _)) = without(shown.as_bytes(), secret, LetterCase::Any) {
                shown = String::from_utf8_lossy(&kept).into_owned();
            }
            shown = without_beginning(&shown, secret);
        }
        shown
    }
}

/// Masks the beginning of `secret` before each mark of a shortened text.
fn without_beginning(text: &str, secret: &str) -> String {
    let mut parts = text.split(SHORTENED).peekable();
    let mut shown = String::with_capacity(text.len());
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            shown += part;
            break;
        }
        let mut begins = secret.char_indices().rev().map(|(end, _)| &secret[..end]);
        let cut = begins.find(|begin| begin.len() >= MIN_SECRET_BYTES && part.ends_with(*begin));
        match cut {
            Some(begin) => {
                shown += part.strip_suffix(begin).unwrap_or_default();
                shown += MASK;
            }
            None => shown += part,
        }
        shown += SHORTENED;
    }
    shown
}
