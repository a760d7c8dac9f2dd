//! Finds secrets in text that a server may have written in another notation.
//!
//! A server that echoes a credential may write it as JSON (`\/`, `\u002B`), percent-encoded or
//! HTML-escaped. Each character of a secret is found in any of these notations, so a text may mix
//! them.

use std::ops::Range;

/// Minimum length of secrets that are found in any letter case: a shorter one may be a word.
pub(crate) const MIN_ANY_CASE_BYTES: usize = 8;
/// Longest run of backslashes before an escaped character.
const MAX_BACKSLASHES: usize = 16;
/// Longest HTML character reference, after `&`.
const MAX_REFERENCE_BYTES: usize = 12;
/// Longest part of a notation of one character at the end of a text: two escapes of a surrogate pair.
const MAX_SPLIT_BYTES: usize = 2 * (MAX_BACKSLASHES + 5);

/// Named HTML character references of characters that credentials have.
const NAMED_REFERENCES: [(&str, char); 14] = [
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
    ("quot", '"'),
    ("apos", '\''),
    ("sol", '/'),
    ("bsol", '\\'),
    ("plus", '+'),
    ("equals", '='),
    ("num", '#'),
    ("percnt", '%'),
    ("dollar", '$'),
    ("excl", '!'),
    ("commat", '@'),
];

/// Letter case of the secrets to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LetterCase {
    /// The case of the secret.
    Same,
    /// Any, unless the secret is short.
    Any,
}

impl LetterCase {
    /// The same, or that of a short `secret`.
    const fn of(self, secret: &str) -> Self {
        match secret.len() < MIN_ANY_CASE_BYTES {
            true => Self::Same,
            false => self,
        }
    }

    fn has_same(self, found: char, wanted: char) -> bool {
        found == wanted || self == Self::Any && found.eq_ignore_ascii_case(&wanted)
    }

    fn has_same_bytes(self, found: &[u8], wanted: &[u8]) -> bool {
        found == wanted || self == Self::Any && found.eq_ignore_ascii_case(wanted)
    }
}

/// Returns the first range of `text` that holds `secret`, in any notation.
pub(crate) fn find(text: &[u8], secret: &str, case: LetterCase) -> Option<Range<usize>> {
    let case = case.of(secret);
    starts(text, secret).find_map(|start| {
        let length = matched_length(&text[start..], secret, case)?;
        Some(start..start + length)
    })
}

/// Returns the first position at which the end of `text` is the beginning of `secret`, in any notation: a truncated
/// text may end within it. The last characters may be a notation of others.
pub(crate) fn find_split(text: &[u8], secret: &str, case: LetterCase) -> Option<usize> {
    let case = case.of(secret);
    starts(text, secret).find(|start| is_beginning(&text[*start..], secret, case))
}

/// Positions in `text` at which `secret` may begin.
fn starts(text: &[u8], secret: &str) -> impl Iterator<Item = usize> {
    let first = secret.bytes().next();
    let may_begin = move |byte: u8| {
        first.is_some_and(|first| byte.eq_ignore_ascii_case(&first))
            || matches!(byte, b'\\' | b'%' | b'&' | b'+')
    };
    let bytes = text.iter().enumerate();
    let starts = bytes.filter(move |(_, byte)| may_begin(**byte));
    starts.map(|(start, _)| start)
}

/// Returns true if `text` is the beginning of `secret`, and not all of it.
fn is_beginning(text: &[u8], secret: &str, case: LetterCase) -> bool {
    let mut ends = vec![0];
    for c in secret.chars() {
        if ends.iter().any(|end| may_be_split(&text[*end..])) {
            return true;
        }
        ends = next_ends(text, &ends, c, case);
        if ends.is_empty() {
            return false;
        }
    }
    false
}

/// Returns true if `rest` is empty, or may be a part of a notation of a character.
fn may_be_split(rest: &[u8]) -> bool {
    let is_of_notation = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'\\' | b'%' | b'&' | b'#' | b';')
    };
    match rest.first() {
        None => true,
        Some(b'\\' | b'%' | b'&') => {
            rest.len() <= MAX_SPLIT_BYTES && rest.iter().all(is_of_notation)
        }
        Some(_) => false,
    }
}

/// Returns the length of `secret` at the start of `text`, the longest of several.
fn matched_length(text: &[u8], secret: &str, case: LetterCase) -> Option<usize> {
    let mut chars = secret.chars();
    let mut ends = char_lengths(text, chars.next()?, case);
    for c in chars {
        ends = next_ends(text, &ends, c, case);
        if ends.is_empty() {
            break;
        }
    }
    ends.into_iter().max()
}

/// Returns the ends of the notations of `c` in `text` that begin at one of `ends`.
fn next_ends(text: &[u8], ends: &[usize], c: char, case: LetterCase) -> Vec<usize> {
    let mut next = Vec::new();
    for end in ends {
        let lengths = char_lengths(&text[*end..], c, case);
        next.extend(lengths.into_iter().map(|length| end + length));
    }
    next.sort_unstable();
    next.dedup();
    next
}

/// Returns the lengths of the notations of `c` at the start of `text`.
fn char_lengths(text: &[u8], c: char, case: LetterCase) -> Vec<usize> {
    let mut utf8 = [0; 4];
    let plain = c.encode_utf8(&mut utf8).as_bytes();
    let mut lengths = Vec::new();
    let start = text.get(..plain.len());
    if start.is_some_and(|start| case.has_same_bytes(start, plain)) {
        lengths.push(plain.len());
    }
    match text.first() {
        Some(b'\\') => lengths.extend(backslash_lengths(text, c, case)),
        Some(b'%') => lengths.extend(percent_length(text, plain)),
        Some(b'&') => lengths.extend(reference_length(text, c, case)),
        Some(b'+') if c == ' ' => lengths.push(1),
        _ => {}
    }
    lengths
}

/// Lengths of `c` behind a backslash. JSON in a string of JSON has several.
fn backslash_lengths(text: &[u8], c: char, case: LetterCase) -> Vec<usize> {
    let bytes = text.iter().take(MAX_BACKSLASHES);
    let run = bytes.take_while(|byte| **byte == b'\\').count();
    let escaped = &text[run..];
    let mut lengths = Vec::new();
    if c == '\\' {
        lengths.extend(2..=run);
    } else if c.is_ascii_punctuation() && escaped.first().is_some_and(|b| char::from(*b) == c) {
        lengths.push(run + 1);
    }
    if let Some((found, length)) = unicode_escape(escaped)
        && case.has_same(found, c)
    {
        lengths.push(run + length);
    }
    lengths
}

/// The character of `uXXXX` at the start of `text`, or of a surrogate pair, and its length.
fn unicode_escape(text: &[u8]) -> Option<(char, usize)> {
    let first = utf16_unit(text)?;
    if let Some(found) = char::from_u32(first.into()) {
        return Some((found, 5));
    }
    let rest = text.get(5..)?;
    let run = rest.iter().take_while(|byte| **byte == b'\\').count();
    let second = utf16_unit(rest.get(run..)?)?;
    let found = char::decode_utf16([first, second]).next()?.ok()?;
    Some((found, 10 + run))
}

fn utf16_unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"u")?.get(..4)?;
    u16::try_from(number(digits, 16)?).ok()
}

/// Length of the percent-encoded bytes `plain` at the start of `text`.
fn percent_length(text: &[u8], plain: &[u8]) -> Option<usize> {
    let mut rest = text;
    for byte in plain {
        rest = rest.strip_prefix(b"%")?;
        loop {
            let (digits, after) = rest.split_at_checked(2)?;
            rest = after;
            match number(digits, 16)? {
                code if code == u32::from(*byte) => break,
                // The percent sign was encoded again.
                0x25 => {}
                _ => return None,
            }
        }
    }
    Some(text.len() - rest.len())
}

/// Length of the HTML character reference of `c` at the start of `text`.
fn reference_length(text: &[u8], c: char, case: LetterCase) -> Option<usize> {
    let mut rest = text.strip_prefix(b"&")?;
    // The ampersand was escaped again.
    while let Some(after) = rest.strip_prefix(b"amp;")
        && (c != '&' || after.starts_with(b"amp;"))
    {
        rest = after;
    }
    let mut bytes = rest.iter().take(MAX_REFERENCE_BYTES);
    let end = bytes.position(|byte| *byte == b';')?;
    let name = &rest[..end];
    let found = match name.strip_prefix(b"#") {
        Some(code) => {
            let hex = code.strip_prefix(b"x").or_else(|| code.strip_prefix(b"X"));
            let code = hex.map_or_else(|| number(code, 10), |hex| number(hex, 16));
            char::from_u32(code?)?
        }
        None => {
            let mut named = NAMED_REFERENCES.iter();
            named.find(|(known, _)| known.as_bytes() == name)?.1
        }
    };
    let length = text.len() - rest.len() + end + 1;
    case.has_same(found, c).then_some(length)
}

/// The number of `digits`; `None` for anything else, such as a sign.
fn number(digits: &[u8], radix: u32) -> Option<u32> {
    let are_digits = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = str::from_utf8(digits).ok().filter(|_| are_digits)?;
    u32::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(secret: &str, written: &str) {
        let text = format!(r#"{{"error":"bad {written} here"}}"#);
        let found = find(text.as_bytes(), secret, LetterCase::Same);
        assert_eq!(found.map(|range| &text[range]), Some(written), "{text}");
    }

    #[test]
    fn a_secret_is_found_in_the_notations_of_json() {
        check("a/b+c=d", "a/b+c=d");
        check("a/b+c=d", r"a\/b+c=d");
        check("a/b+c=d", r"a/b\u002Bc\u003dd");
        check("a\"b\\c", r#"a\"b\\c"#);
        check("a\"b\\c", r#"a\\\"b\\\\c"#);
        check("\"ab\"", r#"\"ab\""#);
        check("pä/€😀x", r"p\u00e4/\u20AC\ud83d\uDE00x");
        check("a&b<c>'d", r"a\u0026b\u003cc\u003e\u0027d");
    }

    #[test]
    fn a_secret_is_found_percent_encoded_and_escaped_for_html() {
        check("a/ä b", "a%2F%C3%A4+b");
        check("a/ä b", "a%2f%c3%a4%20b");
        check("a/bc", "a%252Fbc");
        check("a%41b", "a%2541b");
        check("a&b<\"'/", "a&amp;b&lt;&quot;&#39;&#x2F;");
        check("a&b<\"'/", "a&amp;amp;b&amp;lt;&#34;&apos;&sol;");
        check("ä&amp;x", "&#228;&amp;x");
    }

    #[test]
    fn a_long_secret_is_found_in_any_letter_case_if_that_is_wanted() {
        let find = |text: &str, secret, case| find(text.as_bytes(), secret, case);
        let lower = "bad wjalrxut\\/k7";
        assert_eq!(find(lower, "wJalrXUt/K7", LetterCase::Any), Some(4..16));
        assert_eq!(find(lower, "wJalrXUt/K7", LetterCase::Same), None);
        assert_eq!(find("the key", "KEY", LetterCase::Any), None);
    }

    #[test]
    fn a_secret_that_the_end_of_a_text_splits_is_found_in_any_notation() {
        let find = |text: &str, secret| find_split(text.as_bytes(), secret, LetterCase::Same);
        for (secret, written) in [
            ("a/b+c=d", r"a\/b\u002Bc\u003dd"),
            ("pä/€😀x", r"pä\/\u20AC\\ud83d\\uDE00x"),
            ("a/ä b", "a%252F%C3%A4+b"),
            ("a&b<x", "a&amp;amp;b&lt;x"),
        ] {
            for (end, _) in written.char_indices().skip(1) {
                let text = format!("bad {}", &written[..end]);
                assert_eq!(find(&text, secret), Some(4), "{text}");
            }
        }
        for text in ["bad a/b+c=d", "bad a/c", "bad a/b+c here", ""] {
            assert_eq!(find(text, "a/b+c=d"), None, "{text}");
        }
    }

    #[test]
    fn other_text_is_no_secret() {
        let texts = ["a/c", "a%2", "a&", "a&#x2F", "a\\", "a\\u00", "a\\u+02fb"];
        for text in texts {
            let found = find(text.as_bytes(), "a/b", LetterCase::Any);
            assert_eq!(found, None, "{text}");
        }
        assert_eq!(find(&[0xff, 0, b'%'], "a/b", LetterCase::Same), None);
        assert_eq!(find(b"abc", "", LetterCase::Same), None);
    }
}
