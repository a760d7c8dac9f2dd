//! Keeping secrets out of messages.

use std::{
    cmp::Reverse,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use url::{Url, form_urlencoded};

use crate::{
    failed_response::BodyStart,
    secret_masks::{
        MASK, MIN_SECRET_BYTES, SecretMasks, before_split, without, without_split_char,
    },
    secret_notations::{LetterCase, find},
};

/// More tokens than a source uses at a time.
const MAX_LATE: usize = 64;
/// Minimum length of session cookies. A shorter one may be a word such as the name of a language.
const MIN_SESSION_BYTES: usize = 16;

/// Query parameters that only select a part of a list.
const SHOWN_PARAMS: [&str; 28] = [
    "after",
    "before",
    "cursor",
    "date",
    "day",
    "direction",
    "end",
    "end_date",
    "from",
    "limit",
    "max_results",
    "month",
    "offset",
    "order",
    "order_by",
    "page",
    "page_size",
    "per_page",
    "since",
    "skip",
    "sort",
    "sort_by",
    "start",
    "start_date",
    "to",
    "until",
    "updated_since",
    "year",
];
/// More of a body is not shown.
const MAX_EXCERPT_CHARS: usize = 200;
/// Longer values are not shown.
const MAX_SHOWN_BYTES: usize = 80;

/// Formats `url` for messages: without user, password and fragment, and with masked query values.
///
/// The name of a parameter does not reveal whether it is a secret. So only numbers of up to nine
/// digits are shown, and the values of parameters that page through lists.
#[must_use]
pub fn redacted(url: &Url) -> String {
    redacted_but(url, &[])
}

/// The same, with the values of the parameters called `shown`.
pub(crate) fn redacted_but(url: &Url, shown: &[String]) -> String {
    let shows = |key: &str| {
        let name = form_urlencoded::parse(key.as_bytes()).next();
        name.is_some_and(|(name, _)| {
            SHOWN_PARAMS.contains(&&*name) || shown.iter().any(|shown| *shown == name)
        })
    };
    redacted_by(url, |key, value| {
        is_plain_number(value) || value.len() <= MAX_SHOWN_BYTES && shows(key)
    })
}

/// The same with all values masked but small numbers.
pub(crate) fn redacted_strictly(url: &Url) -> String {
    redacted_by(url, |_, value| is_plain_number(value))
}

fn redacted_by(url: &Url, shows: impl Fn(&str, &str) -> bool) -> String {
    let mut shown = format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default());
    if let Some(port) = url.port() {
        shown += &format!(":{port}");
    }
    shown += url.path();
    for (i, pair) in url
        .query()
        .into_iter()
        .flat_map(|query| query.split('&'))
        .enumerate()
    {
        shown.push(if i == 0 { '?' } else { '&' });
        match pair.split_once('=') {
            Some((key, value)) if shows(key, value) => shown += pair,
            Some((key, _)) => shown += &format!("{key}={MASK}"),
            None => shown += MASK,
        }
    }
    shown
}

fn is_plain_number(value: &str) -> bool {
    value.len() <= 9 && value.bytes().all(|b| b.is_ascii_digit())
}

/// Strings that must not be shown, even if a server echoes them.
#[derive(Default)]
pub(crate) struct Secretive {
    /// The longest first: one may be part of another.
    known: Vec<String>,
    /// Credentials among `known`.
    proofs: Vec<String>,
    /// Strings to mask in archived bodies.
    masked: Vec<String>,
    /// Strings added by responses, the newest last, and true for credentials.
    late: Mutex<Vec<(String, bool)>>,
}

impl std::fmt::Debug for Secretive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secretive({} texts)", self.known.len())
    }
}

impl Secretive {
    pub(crate) fn add(&mut self, text: &str) {
        if text.len() >= MIN_SECRET_BYTES {
            self.known.push(text.to_owned());
            self.known.sort_unstable_by_key(|text| Reverse(text.len()));
        }
    }

    /// Adds a credential.
    pub(crate) fn add_proof(&mut self, text: &str) {
        self.add(text);
        self.proofs.push(text.to_owned());
    }

    /// Returns true if `text` contains a credential.
    pub(crate) fn is_revealed_by(&self, text: &str) -> bool {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let late = late.iter().filter(|(_, is_proof)| *is_proof);
        let mut proofs = late.map(|(text, _)| text).chain(&self.proofs);
        proofs.any(|proof| {
            let is_long = proof.len() >= MIN_SECRET_BYTES;
            is_long && find(text.as_bytes(), proof, LetterCase::Same).is_some()
        })
    }

    /// Adds a credential from a response, such as a token; the last [`MAX_LATE`] of them are kept.
    pub(crate) fn add_late(&self, text: &str) {
        self.add_given(text, true);
    }

    /// Adds a cookie from a response. It counts as a credential only if it is long enough.
    pub(crate) fn add_late_cookie(&self, text: &str) {
        self.add_given(text, text.len() >= MIN_SESSION_BYTES);
    }

    fn add_given(&self, text: &str, is_proof: bool) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        if text.len() >= MIN_SECRET_BYTES {
            if late.len() == MAX_LATE {
                late.remove(0);
            }
            late.push((text.to_owned(), is_proof));
        }
    }

    /// Adds a string to mask in archived bodies and in messages about records.
    pub(crate) fn mask(&mut self, text: &str) {
        if text.len() < MIN_SECRET_BYTES {
            return;
        }
        self.masked.push(text.to_owned());
        self.masked.sort_unstable_by_key(|text| Reverse(text.len()));
    }

    /// Returns the strings that [`masked`](Self::masked) masks at present.
    pub(crate) fn masks(&self) -> SecretMasks {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let late = late.iter().filter(|(_, is_proof)| *is_proof);
        let secrets = late.map(|(text, _)| text).chain(&self.masked);
        SecretMasks(secrets.cloned().collect())
    }

    /// Returns `body` with a mask in place of each secret, and the number of masks.
    pub(crate) fn masked(&self, body: &Bytes) -> (Bytes, u32) {
        let (mut kept, mut count) = (body.clone(), 0);
        for secret in &self.masks().0 {
            if let Some((bytes, found)) = without(&kept, secret, LetterCase::Same) {
                (kept, count) = (bytes.into(), count + found);
            }
        }
        (kept, count)
    }

    /// Adds the parts of `url` that [`redacted`] masks, both encoded and decoded.
    pub(crate) fn add_url(&mut self, url: &Url) {
        self.add(url.password().unwrap_or_default());
        self.add(url.username());
        for pair in url.query().into_iter().flat_map(|query| query.split('&')) {
            let value = pair.split_once('=').map_or(pair, |(_, value)| value);
            if !is_plain_number(value) {
                self.add(value);
                form_urlencoded::parse(pair.as_bytes()).for_each(|(_, value)| self.add(&value));
            }
        }
    }

    /// As [`excerpt`](Self::excerpt), of a `start` that loses its end from a secret on that it may have split.
    pub(crate) fn excerpt_of_start(&self, start: &BodyStart) -> String {
        match start.is_truncated {
            true => self.excerpt(self.before_split(&start.bytes)),
            false => self.excerpt(&start.bytes),
        }
    }

    fn before_split<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let secrets = late.iter().map(|(text, _)| text).chain(&self.known);
        let secrets: Vec<&str> = secrets.map(String::as_str).collect();
        before_split(text, &secrets)
    }

    /// ``: `start of the body` `` on one line, or nothing for an empty body.
    pub(crate) fn excerpt(&self, body: &[u8]) -> String {
        // The start of a body may end inside of a character.
        let mut text = String::from_utf8_lossy(without_split_char(body)).into_owned();
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        for secret in late.iter().map(|(text, _)| text).chain(&self.known) {
            if let Some((kept, _)) = without(text.as_bytes(), secret, LetterCase::Any) {
                text = String::from_utf8_lossy(&kept).into_owned();
            }
        }
        let is_readable = !text.contains(['\u{fffd}', '\0']);
        let line = text
            .split(|c: char| c.is_whitespace() || c.is_control() || turns_text(c))
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
        if is_readable && !line.is_empty() {
            match line.char_indices().nth(MAX_EXCERPT_CHARS) {
                Some((end, _)) => format!(": `{}...`", &line[..end]),
                None => format!(": `{line}`"),
            }
        } else {
            String::new()
        }
    }
}

/// Returns true if a character makes a terminal reorder the text that follows.
fn turns_text(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, shown: &str) {
        assert_eq!(redacted(&Url::parse(url).unwrap()), shown);
    }

    #[test]
    fn urls_are_shown_without_anything_that_may_be_secret() {
        check(
            "http://user:pw@api.example:81/v1?page=3&api_key=abc#x",
            "http://api.example:81/v1?page=3&api_key=***",
        );
        check(
            "https://api.example/v1?k=1234567890&s3cr3t&a=",
            "https://api.example/v1?k=***&***&a=",
        );
        check("https://api.example", "https://api.example/");
        check(
            "https://api.example/v1?sort=asc&after=b64%3D&token=s3cr3t&session=abc",
            "https://api.example/v1?sort=asc&after=b64%3D&token=***&session=***",
        );
    }

    #[test]
    fn the_parameters_that_ask_for_a_page_are_shown() {
        let url = Url::parse("https://h/v1?page%5Bkey%5D=2026-01-01&key=abc").unwrap();
        let shown = redacted_but(&url, &["page[key]".to_owned()]);
        assert_eq!(shown, "https://h/v1?page%5Bkey%5D=2026-01-01&key=***");
    }

    #[test]
    fn kept_bodies_have_a_mask_where_a_secret_was() {
        let mut secretive = Secretive::default();
        secretive.add_url(&Url::parse("http://h/?q=shown-word").unwrap());
        secretive.mask("s3cr\"t");
        secretive.mask("abc");
        secretive.add_late("token-given");
        secretive.add_late_cookie("english");
        secretive.add_late_cookie("0123456789abcdef");
        let body = r#"{"a":"s3cr\"t shown-word abc","b":"token-given","c":"english 0123456789abcdef0123456789abcdef"}"#;
        let (kept, count) = secretive.masked(&Bytes::from(body));
        assert_eq!(
            kept,
            r#"{"a":"*** shown-word abc","b":"***","c":"english ******"}"#
        );
        assert_eq!(count, 4);
        let plain = Bytes::from_static(&[0xff, 0]);
        assert_eq!(secretive.masked(&plain), (plain, 0));
    }

    #[test]
    fn archived_bodies_have_a_mask_where_a_secret_was_escaped() {
        let mut secretive = Secretive::default();
        secretive.mask("K7/MD+EN");
        let body = Bytes::from_static(br"a K7\/MD+EN, K7\/MD\u002BEN, K7%2FMD%2BEN, k7/md+en");
        let (kept, count) = secretive.masked(&body);
        assert_eq!(kept, "a ***, ***, ***, k7/md+en");
        assert_eq!(count, 3);
    }

    #[test]
    fn excerpts_mask_a_secret_in_any_notation_and_letter_case() {
        let mut secretive = Secretive::default();
        secretive.add("wJalrXUt/K7+pä");
        secretive.add("Key");
        let body = r#"{"e":"wJalrXUt\/K7\u002bp\u00E4 or WJALRXUT/K7+pä, wJalrXUt%2fK7%2Bp%c3%a4, wJalrXUt&#x2F;K7&plus;pä; the key"}"#;
        assert_eq!(
            secretive.excerpt(body.as_bytes()),
            r#": `{"e":"*** or ***, ***, ***; the key"}`"#
        );
        secretive.add_proof("wJalrXUt/K7");
        assert!(secretive.is_revealed_by("next=wJalrXUt%2FK7"));
        assert!(!secretive.is_revealed_by("next=wJalrXUt"));
    }

    #[test]
    fn samples_of_records_mask_secrets_and_the_beginning_of_a_shortened_one() {
        let mut secretive = Secretive::default();
        secretive.mask("canary-0123456789");
        secretive.add_late("late-token");
        let masks = secretive.masks();
        assert_eq!(
            masks.mask("`a` (`canary-0123456789`), CANARY-0123456789, `late-token`"),
            "`a` (`***`), ***, `***`"
        );
        assert_eq!(
            masks.mask("such as `my canary-01...`, can..., more..."),
            "such as `my ***...`, can..., more..."
        );
        assert_eq!(format!("{masks:?}"), "SecretMasks(2 secrets)");
        let masks = SecretMasks::of(["page", "t0ken"].map(str::to_owned).to_vec());
        assert_eq!(masks.mask("the page t0ken `page`"), "the *** *** `***`");
        assert_eq!(
            masks.mask_message("the page t0ken `page`"),
            "the page *** `***`"
        );
        let shown = SecretMasks::default().mask_message("`http://u:pw@h/a` is gone");
        assert_eq!(shown, "`http://h/a` is gone");
    }

    #[test]
    fn excerpts_of_a_start_show_no_part_of_a_secret_that_its_end_splits() {
        let mut secretive = Secretive::default();
        secretive.add("wJalrXUt/K7pä");
        secretive.add_late("abcd-abcd");
        for (text, of_start, of_all) in [
            ("no wJalrX", "no", "no wJalrX"),
            ("no wJalrXUt%2", "no", "no wJalrXUt%2"),
            ("no wJalrXUt/K7p\u{e4}", "no ***", "no ***"),
            // Its end is the beginning of another one.
            ("no abcd-abcd", "no", "no ***"),
            ("abcd-abcd, WJALRXUT", "***,", "***, WJALRXUT"),
        ] {
            for (is_truncated, shown) in [(true, of_start), (false, of_all)] {
                let bytes = text.into();
                let start = BodyStart {
                    bytes,
                    is_truncated,
                };
                assert_eq!(secretive.excerpt_of_start(&start), format!(": `{shown}`"));
            }
        }
        let bytes = b"no wJalrXUt/K7p\xc3".into();
        let is_truncated = true;
        let start = BodyStart {
            bytes,
            is_truncated,
        };
        assert_eq!(secretive.excerpt_of_start(&start), ": `no`");
    }

    #[test]
    fn excerpts_mask_what_a_server_echoes() {
        let mut secretive = Secretive::default();
        secretive.add_url(&Url::parse("http://u:passw@h/?key=a%2Fbcd&page=12345").unwrap());
        secretive.add("t0ken");
        let body = b"bad key a/bcd\n or a%2Fbcd,\x1b[31m t0ken, passw on page 12345";
        assert_eq!(
            secretive.excerpt(body),
            ": `bad key *** or ***, [31m ***, *** on page 12345`"
        );
        let turned = "all \u{202e}drow\u{2066} is".as_bytes();
        assert_eq!(secretive.excerpt(turned), ": `all drow is`");
        assert_eq!(secretive.excerpt(b" \n"), "");
        assert_eq!(secretive.excerpt(&[0x1f, 0x8b, 0xff]), "");
        assert_eq!(secretive.excerpt(b"caf\xc3"), ": `caf`");
    }
}
