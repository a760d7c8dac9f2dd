//! Patterns of robots.txt (RFC 9309, 2.2.2 and 2.2.3): a prefix of a path; `*` is any text, and `$`
//! at the end is the end of the path.

use feedline_readers::glob::wild;

/// A pattern, its octets in the form that paths are compared in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    octets: Vec<u8>,
    /// Number of octets as written. The larger one of two matching patterns wins.
    pub(super) weight: usize,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        let (body, is_whole) = match text.strip_suffix('$') {
            Some(body) => (body, true),
            None => (text, false),
        };
        let mut octets = octets(body.as_bytes());
        if !is_whole {
            octets.push(b'*');
        }
        Self {
            weight: text.len(),
            octets,
        }
    }

    /// Returns true if it matches `path`, which is given by [`octets`].
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        wild(&self.octets, path, |p| *p == b'*', |_| true, |p, c| p == c)
    }
}

/// Canonical form for comparing paths: letters, digits and `-._~` plain, all other percent-encoded
/// octets with capital digits, and those beyond ASCII percent-encoded.
pub(super) fn octets(text: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |at: usize| {
        let value = char::from(*text.get(at)?).to_digit(16)?;
        u8::try_from(value).ok()
    };
    let mut out = Vec::with_capacity(text.len());
    let escape = |out: &mut Vec<u8>, octet: u8| {
        out.extend([
            b'%',
            DIGITS[usize::from(octet >> 4)],
            DIGITS[usize::from(octet & 15)],
        ]);
    };
    let mut at = 0;
    while let Some(&octet) = text.get(at) {
        at += 1;
        match (octet, digit(at), digit(at + 1)) {
            (b'%', Some(high), Some(low)) => {
                let decoded = high << 4 | low;
                at += 2;
                if decoded.is_ascii_alphanumeric() || b"-._~".contains(&decoded) {
                    out.push(decoded);
                } else {
                    escape(&mut out, decoded);
                }
            }
            (octet, ..) if octet.is_ascii() => out.push(octet),
            (octet, ..) => escape(&mut out, octet),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let rule = Pattern::new(pattern);
        let matches = |path: &&str| rule.matches(&octets(path.as_bytes()));
        assert!(yes.iter().all(matches), "{pattern} {yes:?}");
        assert!(!no.iter().any(matches), "{pattern} {no:?}");
    }

    #[test]
    fn a_pattern_is_the_beginning_of_a_path() {
        check(
            "/fish",
            &["/fish", "/fish.html", "/fish/salmon", "/fisheries?id=1"],
            &["/Fish", "/a/fish", "/"],
        );
        check("/fish/", &["/fish/", "/fish/x"], &["/fish", "/fish.html"]);
        check("/", &["/", "/a"], &[]);
    }

    #[test]
    fn stars_are_any_text_and_the_dollar_is_the_end() {
        check(
            "/*.php",
            &["/a.php", "/a/b.php?x", "/.php"],
            &["/", "/windows.PHP"],
        );
        check(
            "/*.php$",
            &["/a.php", "/a.php.php"],
            &["/a.php?x", "/a.php5"],
        );
        check(
            "/fish*.php",
            &["/fish.php", "/fishheads/catfish.php?p=1"],
            &["/Fish.PHP"],
        );
        check("/a$b", &["/a$bc"], &["/a"]);
        check("*", &["/", "/x"], &[]);
    }

    #[test]
    fn octets_are_compared_whatever_way_they_are_written() {
        check("/a%3cd", &["/a%3Cd", "/a%3cd.html"], &["/a<d"]);
        check("/%7Ejoe", &["/~joe/", "/%7ejoe"], &[]);
        check("/ö", &["/%C3%B6", "/%c3%b6x", "/ö"], &["/o"]);
        check("/100%", &["/100%", "/100%zz"], &["/100"]);
    }
}
