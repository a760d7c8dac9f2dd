//! Texts as sets of n-gram hashes.
//!
//! Text → Unicode normalization → tokens → n-grams → hashes, sorted, each once. A token is a word (a run of letters,
//! marks, numbers and `_`; Python's `\w+`, and its marks) or a character; combining marks stay with their letters, so
//! that no vowel sign is lost. Letters are lower-cased one by one, without rules of a language. A text of fewer than n
//! tokens is one n-gram, of all of them; a text without tokens is the empty set, which is near to nothing.
//!
//! The hash of an n-gram is a polynomial over the xxh3-64 of its tokens modulo 2^64, mixed: two additions and two
//! multiplications a token, whatever n is.

use std::borrow::Cow;

use feedline_schemas::config::{Digits, NearDupConfig, NearDupUnit, Normalization, Punctuation};
use unicode_normalization::{
    IsNormalized, UnicodeNormalization, char::is_combining_mark, is_nfc_quick, is_nfkc_quick,
};
use xxhash_rust::xxh3::xxh3_64;

use super::scripts::is_mostly_unsegmented;

/// Base of the polynomial: odd, so that multiplying loses no bit (2^64 divided by the golden ratio).
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Start of a text of characters, so that no n-gram of characters equals one of words.
const OF_CHARACTERS: u64 = 0xd1b5_4a32_d192_ed03;

/// Divides texts into sets of n-gram hashes.
#[derive(Clone, Debug)]
pub struct Shingler {
    unit: NearDupUnit,
    ngram: usize,
    ngram_characters: usize,
    normalize: Normalization,
    lowercase: bool,
    punctuation: Punctuation,
    digits: Digits,
    /// Replacement of each byte of ASCII, [`BETWEEN`] where it ends a word; only if each becomes
    /// one byte.
    ascii: Option<[u8; 128]>,
}

/// Separator of words, which never occurs in one: no byte of ASCII.
const BETWEEN: u8 = 0xff;

/// Role of a character.
enum Role {
    /// Part of a token.
    Part,
    /// Part of a token, as a digit.
    Digit,
    /// Ends a token.
    End,
    /// Removed.
    Nothing,
}

impl Shingler {
    /// Creates a shingler with the settings for near-duplicates; n-grams hold at least one token.
    #[must_use]
    pub fn new(config: &NearDupConfig) -> Self {
        let mut shingler = Self {
            unit: config.unit,
            ngram: config.ngram.max(1),
            ngram_characters: config.ngram_characters.max(1),
            normalize: config.normalize,
            lowercase: config.lowercase,
            punctuation: config.punctuation,
            digits: config.digits,
            ascii: None,
        };
        shingler.ascii = shingler.table();
        shingler
    }

    /// Replacement of each byte of ASCII, if each becomes one byte.
    fn table(&self) -> Option<[u8; 128]> {
        if self.digits == Digits::Zero || self.punctuation == Punctuation::Remove {
            return None;
        }
        let mut table = [BETWEEN; 128];
        for (byte, becomes) in (0_u8..).zip(&mut table) {
            if matches!(self.role(char::from(byte)), Role::Part | Role::Digit) {
                *becomes = if self.lowercase {
                    byte.to_ascii_lowercase()
                } else {
                    byte
                };
            }
        }
        Some(table)
    }

    /// The hashes of the n-grams of `text`, sorted, each once.
    #[must_use]
    pub fn shingles(&self, text: &str) -> Vec<u64> {
        let text = normalized(text, self.normalize);
        let by_characters = match self.unit {
            NearDupUnit::Words => false,
            NearDupUnit::Characters => true,
            NearDupUnit::Auto => !text.is_ascii() && is_mostly_unsegmented(&text),
        };
        let mut hashes = if by_characters {
            ngrams(
                &self.characters(&text),
                self.ngram_characters,
                OF_CHARACTERS,
            )
        } else {
            ngrams(&self.words(&text), self.ngram, 0)
        };
        hashes.sort_unstable();
        hashes.dedup();
        hashes
    }

    fn role(&self, character: char) -> Role {
        if character.is_ascii_alphabetic() {
            Role::Part
        } else if character.is_whitespace() {
            Role::End
        } else if character.is_numeric() {
            Role::Digit
        } else if character.is_alphabetic() || character == '_' || is_combining_mark(character) {
            Role::Part
        } else {
            match self.punctuation {
                Punctuation::Space => Role::End,
                Punctuation::Remove => Role::Nothing,
                Punctuation::Keep => Role::Part,
            }
        }
    }

    /// Hashes of the words.
    fn words(&self, text: &str) -> Vec<u64> {
        if let Some(table) = self.ascii.as_ref().filter(|_| text.is_ascii()) {
            let folded: Vec<u8> = text.bytes().map(|b| table[usize::from(b)]).collect();
            let words = folded.split(|byte| *byte == BETWEEN);
            return words.filter(|word| !word.is_empty()).map(xxh3_64).collect();
        }
        self.scanned_words(text)
    }

    /// As [`words`](Self::words), character by character.
    fn scanned_words(&self, text: &str) -> Vec<u64> {
        let mut words = Vec::with_capacity(text.len() / 6);
        let mut word = Vec::new();
        self.scan(text, |piece| match piece {
            Some(character) => push(&mut word, character),
            None if word.is_empty() => {}
            None => {
                words.push(xxh3_64(&word));
                word.clear();
            }
        });
        words
    }

    /// Hashes of the characters.
    fn characters(&self, text: &str) -> Vec<u64> {
        let mut characters = Vec::with_capacity(text.len() / 3);
        self.scan(text, |piece| {
            characters.extend(piece.map(|character| mixed(u64::from(character) + 1)));
        });
        characters
    }

    /// Gives the characters of tokens as they are compared, and `None` where a token ends.
    fn scan(&self, text: &str, mut piece: impl FnMut(Option<char>)) {
        let mut in_number = false;
        for character in text.chars() {
            let role = self.role(character);
            let was_in_number = in_number;
            // A removed character does not divide a number.
            in_number = match role {
                Role::Digit => true,
                Role::Nothing => in_number,
                Role::Part | Role::End => false,
            };
            match role {
                Role::Digit if self.digits == Digits::Zero => {
                    if !was_in_number {
                        piece(Some('0'));
                    }
                }
                Role::Part | Role::Digit if !self.lowercase => piece(Some(character)),
                Role::Part | Role::Digit if character.is_ascii() => {
                    piece(Some(character.to_ascii_lowercase()));
                }
                Role::Part | Role::Digit => character.to_lowercase().for_each(|c| piece(Some(c))),
                Role::End => piece(None),
                Role::Nothing => {}
            }
        }
        piece(None);
    }
}

fn push(word: &mut Vec<u8>, character: char) {
    if let Ok(byte) = u8::try_from(character)
        && byte.is_ascii()
    {
        word.push(byte);
    } else {
        word.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// `text` in a normalization form; borrowed where it is in that form already.
pub(crate) fn normalized(text: &str, form: Normalization) -> Cow<'_, str> {
    let is_already = text.is_ascii()
        || match form {
            Normalization::Nfc => is_nfc_quick(text.chars()) == IsNormalized::Yes,
            Normalization::Nfkc => is_nfkc_quick(text.chars()) == IsNormalized::Yes,
            Normalization::None => true,
        };
    match form {
        _ if is_already => Cow::Borrowed(text),
        Normalization::Nfkc => Cow::Owned(text.nfkc().collect()),
        Normalization::Nfc | Normalization::None => Cow::Owned(text.nfc().collect()),
    }
}

/// Hashes of all runs of `n` tokens, or of all tokens where there are fewer.
fn ngrams(tokens: &[u64], n: usize, start: u64) -> Vec<u64> {
    let n = n.min(tokens.len());
    if n == 0 {
        return Vec::new();
    }
    let first = tokens[..n].iter().fold(0_u64, |sum, token| {
        sum.wrapping_mul(BASE).wrapping_add(*token)
    });
    let oldest = (1..n).fold(1_u64, |power, _| power.wrapping_mul(BASE));
    let mut hashes = Vec::with_capacity(tokens.len() - n + 1);
    hashes.push(mixed(first ^ start));
    let mut sum = first;
    for (leaving, entering) in tokens.iter().zip(&tokens[n..]) {
        sum = sum
            .wrapping_sub(leaving.wrapping_mul(oldest))
            .wrapping_mul(BASE)
            .wrapping_add(*entering);
        hashes.push(mixed(sum ^ start));
    }
    hashes
}

/// A bijection of 64 bits after which every bit depends on every other (the finalizer of splitmix64; Steele, Lea and
/// Flood 2014).
pub(crate) const fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shingler(change: impl FnOnce(&mut NearDupConfig)) -> Shingler {
        let mut config = NearDupConfig::default();
        change(&mut config);
        Shingler::new(&config)
    }

    fn same(shingler: &Shingler, a: &str, b: &str, same: bool) {
        assert_eq!(
            shingler.shingles(a) == shingler.shingles(b),
            same,
            "{a} / {b}"
        );
    }

    #[test]
    fn ngrams_are_counted_once_and_a_short_text_is_one() {
        let plain = shingler(|_| {});
        let count = |text: &str| plain.shingles(text).len();
        assert_eq!(count("a b c d e"), 1);
        assert_eq!(count("a b c d e f"), 2);
        assert_eq!(count("a b c d e f a b c d e f"), 6);
        assert_eq!(count("a"), 1);
        for empty in ["", " \n", "!? ...", "\u{200d}"] {
            assert_eq!(count(empty), 0, "{empty:?}");
        }
        same(&plain, "a b", "b a", false);
        same(&plain, "a b", "ab", false);
    }

    proptest! {
        #[test]
        fn texts_of_ascii_are_folded_as_character_by_character(
            text in "[\\x00-\\x7f]{0,200}",
            lowercase: bool,
            keep: bool,
        ) {
            let shingler = shingler(|c| {
                c.lowercase = lowercase;
                if keep {
                    c.punctuation = Punctuation::Keep;
                }
            });
            prop_assert!(shingler.ascii.is_some());
            prop_assert_eq!(shingler.words(&text), shingler.scanned_words(&text));
        }
    }

    #[test]
    fn a_rolled_hash_is_the_hash_of_its_tokens_alone() {
        let tokens: Vec<u64> = (0..50).map(mixed).collect();
        for n in [1, 2, 5, 49, 50, 60] {
            let rolled = ngrams(&tokens, n, 7);
            let each: Vec<u64> = tokens
                .windows(n.min(50))
                .flat_map(|run| ngrams(run, n, 7))
                .collect();
            assert_eq!(rolled, each);
        }
    }

    #[test]
    fn forms_of_one_character_are_one() {
        let plain = shingler(|_| {});
        same(&plain, "caf\u{e9}", "cafe\u{301}", true);
        same(&plain, "\u{212b}ngstrom", "\u{c5}ngstrom", true);
        same(&plain, "caf\u{e9}", "cafe", false);
        same(&plain, "\u{ff21}\u{ff22}", "AB", false);
        same(
            &shingler(|c| c.normalize = Normalization::Nfkc),
            "\u{ff21}\u{ff22}",
            "AB",
            true,
        );
        same(
            &shingler(|c| c.normalize = Normalization::None),
            "caf\u{e9}",
            "cafe\u{301}",
            false,
        );
        // A vowel sign that is not a letter makes another word.
        same(&plain, "हिन्दी", "हिनदी", false);
    }

    #[test]
    fn case_punctuation_and_digits_follow_the_settings() {
        let plain = shingler(|_| {});
        same(&plain, "Straße ÄÖ, ends.", "straße äö ends", true);
        same(&plain, "don't", "don t", true);
        same(&plain, "snake_case", "snake case", false);
        same(&plain, "due 2024", "due 2025", false);
        same(&plain, "a\r\nb", "a b", true);
        same(&shingler(|c| c.lowercase = false), "A", "a", false);
        same(
            &shingler(|c| c.punctuation = Punctuation::Remove),
            "don't",
            "dont",
            true,
        );
        same(
            &shingler(|c| c.punctuation = Punctuation::Keep),
            "end.",
            "end",
            false,
        );
        let zero = shingler(|c| c.digits = Digits::Zero);
        same(&zero, "due 7 or 1999", "due 23 or 5", true);
        same(&zero, "v1.2", "v12", false);
        let bare = shingler(|c| {
            c.digits = Digits::Zero;
            c.punctuation = Punctuation::Remove;
        });
        same(&bare, "due 1,000 of it", "due 1000 of it", true);
    }

    #[test]
    fn scripts_without_spaces_are_compared_by_characters() {
        let plain = shingler(|_| {});
        assert_eq!(plain.shingles("我们今天去图书馆看书").len(), 3);
        same(
            &plain,
            "我们今天，去图书馆 看书",
            "我们今天去图书馆看书",
            true,
        );
        assert_eq!(
            shingler(|c| c.unit = NearDupUnit::Words)
                .shingles("我们今天去图书馆看书")
                .len(),
            1
        );
        let characters = shingler(|c| c.unit = NearDupUnit::Characters);
        assert_eq!(characters.shingles("abcdefghij").len(), 3);
        // One token each, of another unit.
        assert_ne!(characters.shingles("a"), plain.shingles("a"));
    }

    #[test]
    fn the_hashes_do_not_change_in_silence() {
        let found = shingler(|_| {}).shingles("The quick brown fox jumps.");
        assert_eq!(found, [4_374_134_181_244_797_815]);
    }
}
