//! Words of a text, as GPT-2 divides it before pairs of bytes are merged.
//!
//! The same words as the regular expression of GPT-2's `src/encoder.py` finds,
//! `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, in one pass and without going back. They
//! follow one another without a gap. What is a letter, a number and white space is Unicode's word, from the tables of
//! the regular expressions that the `tokenizers` library runs.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};

/// Class of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Other,
    Letter,
    Number,
    Space,
}

/// Class of each character, by code point.
static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let mut kinds = vec![Kind::Other; char::MAX as usize + 1];
    for (class, kind) in [
        (r"\p{L}", Kind::Letter),
        (r"\p{N}", Kind::Number),
        (r"\s", Kind::Space),
    ] {
        let parsed = regex_syntax::parse(class).expect("a constant that is a class");
        let HirKind::Class(Class::Unicode(class)) = parsed.kind() else {
            unreachable!("a class of characters is one")
        };
        for range in class.ranges() {
            kinds[range.start() as usize..=range.end() as usize].fill(kind);
        }
    }
    kinds
});

/// Cuts a text.
#[derive(Debug)]
pub(super) struct Words<'a> {
    text: &'a str,
    at: usize,
    kinds: &'static [Kind],
}

impl<'a> Words<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self {
            text,
            at: 0,
            kinds: &KINDS,
        }
    }

    /// Kind and length of the character at byte `at`, if there is one.
    #[inline]
    fn kind(&self, at: usize) -> Option<(Kind, usize)> {
        let byte = *self.text.as_bytes().get(at)?;
        if byte.is_ascii() {
            return Some((self.kinds[usize::from(byte)], 1));
        }
        let character = self.text[at..].chars().next()?;
        Some((self.kinds[character as usize], character.len_utf8()))
    }

    /// End of the run of characters of `kind` that begins at `at`, and the start of its last
    /// character.
    #[inline]
    fn run(&self, kind: Kind, mut at: usize) -> (usize, usize) {
        let mut last = at;
        while let Some((found, bytes)) = self.kind(at) {
            if found != kind {
                break;
            }
            last = at;
            at += bytes;
        }
        (at, last)
    }

    /// End of the word that begins at `start`.
    fn end(&self, start: usize) -> usize {
        let rest = &self.text.as_bytes()[start..];
        if let Some(length) = contraction(rest) {
            return start + length;
        }
        let first = start + usize::from(rest[0] == b' ');
        if let Some((kind, bytes)) = self.kind(first)
            && kind != Kind::Space
        {
            return self.run(kind, first + bytes).0;
        }
        // White space belongs to the word behind it as far as that takes a blank: its last character is left over.
        let (end, last) = self.run(Kind::Space, start);
        if end == self.text.len() || last == start {
            end
        } else {
            last
        }
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.at == self.text.len() {
            return None;
        }
        let start = self.at;
        self.at = self.end(start);
        Some(&self.text.as_bytes()[start..self.at])
    }
}

/// Length of the English ending that `rest` begins with, such as that of "it's".
#[inline]
fn contraction(rest: &[u8]) -> Option<usize> {
    match rest {
        [b'\'', b's' | b't' | b'm' | b'd', ..] => Some(2),
        [b'\'', b'r' | b'v', b'e', ..] | [b'\'', b'l', b'l', ..] => Some(3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found: Vec<&str> = Words::of(text)
            .map(|word| std::str::from_utf8(word).unwrap())
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn words_take_one_blank_and_runs_of_space_leave_one() {
        check("", &[]);
        check("Hello world", &["Hello", " world"]);
        check("a  b\n\n c", &["a", " ", " b", "\n\n", " c"]);
        check("a\n\nb", &["a", "\n", "\n", "b"]);
        check("x \t ", &["x", " \t "]);
        check("\u{3000}\u{3000}字", &["\u{3000}", "\u{3000}", "字"]);
    }

    #[test]
    fn letters_numbers_and_signs_are_words_of_their_own() {
        check("abc123!?", &["abc", "123", "!?"]);
        check(
            "it's 's we'll'x",
            &["it", "'s", " '", "s", " we", "'ll", "'", "x"],
        );
        check("e\u{301}²Ⅷ", &["e", "\u{301}", "²Ⅷ"]);
    }
}
