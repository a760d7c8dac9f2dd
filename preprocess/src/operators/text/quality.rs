//! Filters of documents by their form: how long, how punctuated, how repetitive. None knows a language.
//!
//! Limits and their sources are those of [`QualityConfig`]. Where a rule was written for English it is widened: ends of
//! sentences and bullets are those of many scripts, and where words have no spaces between them characters are words.
//! Lines and paragraphs that hold no character but spaces do not count.

use std::collections::{HashMap, HashSet};

use feedline_schemas::config::QualityConfig;
use unicode_normalization::char::is_combining_mark;
use xxhash_rust::xxh3::xxh3_64;

use super::near::scripts::is_mostly_unsegmented;

/// Characters of a short line, at most.
const SHORT: usize = 30;

/// Characters of a document that a reason shows.
const SHOWN: usize = 80;

/// Ends of sentences that end one whatever follows.
const STOPS: &str = "。！？｡…।॥؟۔։።။៕";

/// Ends of sentences where a space, a quote or a bracket follows.
const POINTS: &str = ".!?";

/// Characters that may close a sentence after its end.
const CLOSING: &str = "\"')]}»”’」』）】";

/// Marks that begin an item of a list by themselves, and such as need a space after them.
const BULLETS: &str = "•‣◦●○■□▪▫";
const DASHES: &str = "-*–—·";

/// The first filter that `text` fails, by its limit, and what was found.
pub(crate) fn fault(text: &str, limits: &QualityConfig) -> Option<(&'static str, String)> {
    let document = Document::new(text);
    let failed = document
        .sizes(limits)
        .or_else(|| document.lines(limits))
        .or_else(|| document.repetitions(limits))
        .or_else(|| document.ngrams(limits))?;
    let shown: String = text.chars().take(SHOWN).collect();
    Some((failed.0, format!("{} in: {shown}", rounded(failed.1))))
}

/// A failed filter and the value it saw.
type Failed = Option<(&'static str, f64)>;

/// Returns the first of `checks` with a value outside its limits.
fn first<const N: usize>(checks: [(&'static str, f64, f64, f64); N]) -> Failed {
    let outside = |(_, found, least, most): &(&str, f64, f64, f64)| found < least || found > most;
    let failed = checks.into_iter().find(outside);
    failed.map(|(reason, found, ..)| (reason, found))
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "counts are below 2^53")]
const fn float(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "limits are below 2^53")]
const fn limit(count: u64) -> f64 {
    count as f64
}

/// `part` of `whole`; 0 of nothing.
fn share(part: usize, whole: usize) -> f64 {
    float(part) / float(whole.max(1))
}

struct Document<'a> {
    text: &'a str,
    characters: usize,
    /// True if words are characters.
    by_characters: bool,
    words: Vec<&'a str>,
    /// Characters of each word.
    lengths: Vec<usize>,
    lines: Vec<&'a str>,
}

impl<'a> Document<'a> {
    fn new(text: &'a str) -> Self {
        let by_characters = is_mostly_unsegmented(text);
        let words = if by_characters {
            let characters = text.char_indices().filter(|(_, c)| is_of_word(*c));
            characters
                .map(|(at, c)| &text[at..at + c.len_utf8()])
                .collect()
        } else {
            words(text)
        };
        Self {
            text,
            characters: text.chars().count(),
            by_characters,
            lengths: words.iter().map(|word| word.chars().count()).collect(),
            words,
            lines: text
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .collect(),
        }
    }

    fn sizes(&self, limits: &QualityConfig) -> Failed {
        let count = self.words.len();
        let mean = share(self.lengths.iter().sum(), count);
        let any = (0.0, f64::INFINITY);
        let by_words = |least, most| {
            if self.by_characters {
                any
            } else {
                (least, most)
            }
        };
        let (least_mean, most_mean) = by_words(limits.min_mean_word, limits.max_mean_word);
        let (_, longest) = by_words(0.0, limit(limits.max_word));
        let letters = self
            .words
            .iter()
            .filter(|word| word.chars().any(char::is_alphabetic));
        let ellipses = self.text.matches("...").count() + self.text.matches('…').count();
        let most = limits.max_characters.map_or(f64::INFINITY, limit);
        let least = limit(limits.min_characters);
        first([
            (
                "min_words",
                float(count),
                limit(limits.min_words),
                f64::INFINITY,
            ),
            ("max_words", float(count), 0.0, limit(limits.max_words)),
            (
                "min_characters",
                float(self.characters),
                least,
                f64::INFINITY,
            ),
            ("max_characters", float(self.characters), 0.0, most),
            ("min_mean_word", mean, least_mean, f64::INFINITY),
            ("max_mean_word", mean, 0.0, most_mean),
            (
                "max_word",
                float(self.lengths.iter().copied().max().unwrap_or(0)),
                0.0,
                longest,
            ),
            (
                "max_symbols",
                share(self.text.matches('#').count(), count),
                0.0,
                limits.max_symbols,
            ),
            (
                "max_symbols",
                share(ellipses, count),
                0.0,
                limits.max_symbols,
            ),
            (
                "min_alphabetic_words",
                share(letters.count(), count),
                limits.min_alphabetic_words,
                1.0,
            ),
            (
                "min_sentences",
                float(self.sentences()),
                limit(limits.min_sentences),
                f64::INFINITY,
            ),
        ])
    }

    fn lines(&self, limits: &QualityConfig) -> Failed {
        let of_lines = |is: fn(&str) -> bool| {
            share(
                self.lines.iter().filter(|line| is(line)).count(),
                self.lines.len(),
            )
        };
        let punctuated = if self.by_characters {
            1.0
        } else {
            of_lines(is_punctuated)
        };
        let breaks = share(self.text.matches('\n').count(), self.words.len());
        first([
            (
                "max_bullet_lines",
                of_lines(is_bullet),
                0.0,
                limits.max_bullet_lines,
            ),
            (
                "max_ellipsis_lines",
                of_lines(ends_open),
                0.0,
                limits.max_ellipsis_lines,
            ),
            (
                "min_punctuated_lines",
                punctuated,
                limits.min_punctuated_lines,
                1.0,
            ),
            (
                "max_short_lines",
                of_lines(is_short),
                0.0,
                limits.max_short_lines,
            ),
            ("max_line_breaks", breaks, 0.0, limits.max_line_breaks),
        ])
    }

    fn repetitions(&self, limits: &QualityConfig) -> Failed {
        let paragraphs = self
            .text
            .split("\n\n")
            .map(str::trim)
            .filter(|p| !p.is_empty());
        let (lines, in_lines) = repeated(self.lines.iter().copied());
        let (again, in_paragraphs) = repeated(paragraphs.clone());
        first([
            (
                "max_repeated_lines",
                share(lines, self.lines.len()),
                0.0,
                limits.max_repeated_lines,
            ),
            (
                "max_repeated_line_characters",
                share(in_lines, self.characters),
                0.0,
                limits.max_repeated_line_characters,
            ),
            (
                "max_repeated_paragraphs",
                share(again, paragraphs.count()),
                0.0,
                limits.max_repeated_paragraphs,
            ),
            (
                "max_repeated_paragraph_characters",
                share(in_paragraphs, self.characters),
                0.0,
                limits.max_repeated_paragraph_characters,
            ),
        ])
    }

    fn ngrams(&self, limits: &QualityConfig) -> Failed {
        let hashes: Vec<u64> = self
            .words
            .iter()
            .map(|word| xxh3_64(word.as_bytes()))
            .collect();
        let whole = self.lengths.iter().sum();
        let top = (2..).zip(limits.max_top_ngrams).find_map(|(n, most)| {
            let found = share(self.in_top(&hashes, n), whole);
            (found > most).then_some(("max_top_ngrams", found))
        });
        let repeated = || {
            (5..).zip(limits.max_repeated_ngrams).find_map(|(n, most)| {
                let found = share(self.in_repeated(&hashes, n), whole);
                (found > most).then_some(("max_repeated_ngrams", found))
            })
        };
        top.or_else(repeated)
    }

    /// Characters of the run of `n` words that takes up most, over all its places.
    fn in_top(&self, hashes: &[u64], n: usize) -> usize {
        let mut counts: HashMap<u64, (usize, usize)> = HashMap::new();
        for (run, lengths) in hashes.windows(n).zip(self.lengths.windows(n)) {
            let found = counts
                .entry(run_hash(run))
                .or_insert((0, lengths.iter().sum()));
            found.0 += 1;
        }
        let twice = counts.values().filter(|(count, _)| *count > 1);
        twice
            .map(|(count, length)| count * length)
            .max()
            .unwrap_or(0)
    }

    /// Characters in repeated runs of `n` words, each counted once.
    fn in_repeated(&self, hashes: &[u64], n: usize) -> usize {
        let mut seen = HashSet::new();
        let (mut characters, mut counted) = (0, 0);
        for (start, run) in hashes.windows(n).enumerate() {
            if !seen.insert(run_hash(run)) {
                let fresh = counted.max(start)..start + n;
                characters += self.lengths[fresh].iter().sum::<usize>();
                counted = start + n;
            }
        }
        characters
    }

    /// Sentences, by their ends; what follows the last end is one more.
    fn sentences(&self) -> usize {
        let mut characters = self.text.chars().peekable();
        let (mut count, mut is_open) = (0, false);
        while let Some(character) = characters.next() {
            let next = characters.peek().copied();
            let is_last = !next.is_some_and(|c| STOPS.contains(c) || POINTS.contains(c));
            let ends = is_last && is_end(character, next);
            // Thai, Lao and Khmer put a space between sentences.
            let is_gap = self.by_characters && character.is_whitespace();
            if is_open && (ends || is_gap) {
                count += 1;
                is_open = false;
            } else if is_of_word(character) {
                is_open = true;
            }
        }
        count + usize::from(is_open)
    }
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || is_combining_mark(character)
}

/// Strings between spaces, without punctuation around them.
fn words(text: &str) -> Vec<&str> {
    let trimmed = text
        .split_whitespace()
        .map(|word| word.trim_matches(|c| !is_of_word(c)));
    trimmed.filter(|word| !word.is_empty()).collect()
}

fn is_end(character: char, next: Option<char>) -> bool {
    STOPS.contains(character)
        || (POINTS.contains(character)
            && next.is_none_or(|next| next.is_whitespace() || CLOSING.contains(next)))
}

fn run_hash(run: &[u64]) -> u64 {
    run.iter()
        .fold(0, |hash, word| super::near::shingles::mixed(hash ^ *word))
}

/// Elements that are equal to an earlier one, and their characters.
fn repeated<'a>(elements: impl Iterator<Item = &'a str>) -> (usize, usize) {
    let mut seen = HashSet::new();
    let again = elements.filter(|element| !seen.insert(*element));
    again.fold((0, 0), |(count, characters), element| {
        (count + 1, characters + element.chars().count())
    })
}

fn is_bullet(line: &str) -> bool {
    let mut characters = line.chars();
    characters.next().is_some_and(|mark| {
        BULLETS.contains(mark)
            || (DASHES.contains(mark) && characters.next().is_some_and(char::is_whitespace))
    })
}

fn ends_open(line: &str) -> bool {
    line.ends_with("...") || line.ends_with('…')
}

fn is_punctuated(line: &str) -> bool {
    line.ends_with(|c| POINTS.contains(c) || STOPS.contains(c) || CLOSING.contains(c))
}

fn is_short(line: &str) -> bool {
    line.chars().nth(SHORT).is_none()
}

#[cfg(test)]
mod tests;
