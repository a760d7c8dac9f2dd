//! Learns merges from the words of a text (Sennrich, Haddow, Birch 2016, arXiv 1508.07909, algorithm 1) over bytes.
//!
//! In each round the pair of neighbours that comes most often becomes a token; of equals the one whose left, then right,
//! id is smallest, as in the `tokenizers` library. Counts are exact and of 64 bits, and do not depend on the order of
//! words, so the same words give the same merges however they were counted.
//!
//! Cost: memory for each distinct word and pair; per round, the words that hold its pair.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::words::Words;

/// Longest piece of a word that is counted as one, in bytes: nothing that long is worth a token.
const LONGEST: usize = 256;

/// A pair that comes more seldom is not worth a token.
const FEWEST: u64 = 2;

/// Bytes of a document that are chosen or left out together.
const PIECE: usize = 1 << 16;

/// Number of occurrences of each word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WordCounts(HashMap<Box<[u8]>, u64>);

/// Sample of pieces of documents: a fraction of all, by a hash of the document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    seed: u64,
    /// Draws below it, of 2^64, are counted.
    below: u128,
}

impl Sample {
    /// Counts about `wanted` of `total` bytes, all if there are no more.
    pub(crate) fn new(wanted: u64, total: u64, seed: u64) -> Self {
        let below = (u128::from(wanted) << 64) / u128::from(total.max(1));
        Self { seed, below }
    }

    /// Returns true if piece `number` of the document with this content hash is counted.
    fn holds(&self, hash: &[u8], number: usize) -> bool {
        if self.below >= 1 << 64 {
            return true;
        }
        let mut name = hash.to_vec();
        name.extend((number as u64).to_le_bytes());
        u128::from(xxh3_64_with_seed(&name, self.seed)) < self.below
    }
}

impl WordCounts {
    /// Adds what `sample` holds of a document with this content hash. Returns the bytes that were counted.
    pub(crate) fn add(&mut self, text: &str, hash: &[u8], sample: &Sample) -> u64 {
        let (mut at, mut counted) = (0, 0);
        let mut piece = None;
        for word in Words::of(text) {
            let number = at / PIECE;
            let holds = match piece {
                Some((same, holds)) if same == number => holds,
                _ => sample.holds(hash, number),
            };
            piece = Some((number, holds));
            at += word.len();
            if holds {
                counted += word.len() as u64;
                word.chunks(LONGEST).for_each(|part| self.count(part, 1));
            }
        }
        counted
    }

    /// Adds the counts of other documents.
    pub(crate) fn merge(&mut self, other: Self) {
        for (word, count) in other.0 {
            self.count(&word, count);
        }
    }

    fn count(&mut self, word: &[u8], times: u64) {
        match self.0.get_mut(word) {
            Some(count) => *count += times,
            None => {
                self.0.insert(word.into(), times);
            }
        }
    }
}

/// Learnt tokens and merges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Learnt {
    /// The bytes of each token, by id: single bytes in the order given, then what merges made.
    pub(crate) tokens: Vec<Vec<u8>>,
    /// Left and right id of each merge, first learnt first.
    pub(crate) merges: Vec<[u32; 2]>,
}

/// Learns up to `most` tokens, those of single bytes included, which get the ids of their places in `bytes`.
pub(crate) fn learn(counts: WordCounts, bytes: &[u8; 256], most: usize) -> Learnt {
    let mut learner = Learner::new(counts, bytes);
    while learner.tokens.len() < most
        && let Some(pair) = learner.next()
    {
        learner.merge(pair);
    }
    Learnt {
        tokens: learner.tokens,
        merges: learner.merges,
    }
}

struct Learner {
    tokens: Vec<Vec<u8>>,
    ids: HashMap<Vec<u8>, u32>,
    merges: Vec<[u32; 2]>,
    words: Vec<Word>,
    pairs: HashMap<[u32; 2], Pair>,
    /// Counts as they were when pairs were last looked at; some of them are too high by now.
    heap: BinaryHeap<(u64, Reverse<[u32; 2]>)>,
}

struct Word {
    ids: Vec<u32>,
    count: u64,
}

#[derive(Default)]
struct Pair {
    count: u64,
    /// Words that hold the pair, or once did.
    words: Vec<u32>,
}

impl Learner {
    fn new(counts: WordCounts, bytes: &[u8; 256]) -> Self {
        let tokens: Vec<Vec<u8>> = bytes.iter().map(|byte| vec![*byte]).collect();
        let mut id = [0; 256];
        for (byte, number) in bytes.iter().zip(0..) {
            id[usize::from(*byte)] = number;
        }
        let words = counts.0.into_iter().map(|(word, count)| Word {
            ids: word.iter().map(|byte| id[usize::from(*byte)]).collect(),
            count,
        });
        let mut learner = Self {
            ids: tokens.iter().cloned().zip(0..).collect(),
            tokens,
            merges: Vec::new(),
            words: words.collect(),
            pairs: HashMap::new(),
            heap: BinaryHeap::new(),
        };
        for (number, word) in (0..).zip(&learner.words) {
            for pair in word.ids.windows(2) {
                let pair = learner.pairs.entry([pair[0], pair[1]]).or_default();
                pair.add(word.count, number);
            }
        }
        let counted = learner.pairs.iter();
        learner.heap = counted
            .map(|(ids, pair)| (pair.count, Reverse(*ids)))
            .collect();
        learner
    }

    /// The pair that comes most often; none when no pair comes often enough.
    fn next(&mut self) -> Option<[u32; 2]> {
        while let Some((count, Reverse(ids))) = self.heap.pop() {
            let now = self.pairs.get(&ids).map_or(0, |pair| pair.count);
            if now != count {
                // Rarer pairs were put back with what they then had; what is gone is not.
                if now > 0 {
                    self.heap.push((now, Reverse(ids)));
                }
            } else if count >= FEWEST {
                return Some(ids);
            } else {
                return None;
            }
        }
        None
    }

    /// Makes a token of a pair.
    fn merge(&mut self, pair: [u32; 2]) {
        let id = self.token(pair);
        self.merges.push(pair);
        let mut words = std::mem::take(&mut self.pairs.entry(pair).or_default().words);
        words.sort_unstable();
        words.dedup();
        let mut grown = Vec::new();
        for number in words {
            let word = &mut self.words[number as usize];
            let count = word.count;
            word.merge(pair, id, |ids, change| {
                let counted = self.pairs.entry(ids).or_default();
                match change {
                    Change::Gone => counted.count -= count,
                    Change::New => {
                        counted.add(count, number);
                        grown.push(ids);
                    }
                }
            });
        }
        grown.sort_unstable();
        grown.dedup();
        for ids in grown {
            self.heap.push((self.pairs[&ids].count, Reverse(ids)));
        }
        if self.pairs[&pair].count == 0 {
            self.pairs.remove(&pair);
        }
    }

    /// The id of the token that a pair becomes. Another pair may have made the same one.
    fn token(&mut self, [left, right]: [u32; 2]) -> u32 {
        let bytes = [left, right]
            .map(|id| self.tokens[id as usize].as_slice())
            .concat();
        if let Some(id) = self.ids.get(&bytes) {
            return *id;
        }
        let id = u32::try_from(self.tokens.len()).expect("a vocabulary is far below 2^32");
        self.ids.insert(bytes.clone(), id);
        self.tokens.push(bytes);
        id
    }
}

/// Change of a pair's count in a word.
enum Change {
    Gone,
    New,
}

impl Pair {
    fn add(&mut self, count: u64, word: u32) {
        self.count += count;
        if self.words.last() != Some(&word) {
            self.words.push(word);
        }
    }
}

impl Word {
    /// Replaces `pair` by `id`, from the left, and reports the changes of neighbouring pairs to
    /// `tell`.
    fn merge(&mut self, pair: [u32; 2], id: u32, mut tell: impl FnMut([u32; 2], Change)) {
        let [left, right] = pair;
        let (mut from, mut to) = (0_usize, 0_usize);
        while from < self.ids.len() {
            if self.ids[from..].starts_with(&pair) {
                tell(pair, Change::Gone);
                if let Some(before) = to.checked_sub(1).map(|before| self.ids[before]) {
                    tell([before, left], Change::Gone);
                    tell([before, id], Change::New);
                }
                if let Some(next) = self.ids.get(from + 2) {
                    tell([right, *next], Change::Gone);
                    tell([id, *next], Change::New);
                }
                self.ids[to] = id;
                from += 2;
            } else {
                self.ids[to] = self.ids[from];
                from += 1;
            }
            to += 1;
        }
        self.ids.truncate(to);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> [u8; 256] {
        std::array::from_fn(|byte| u8::try_from(byte).unwrap())
    }

    fn counted<'a>(words: impl IntoIterator<Item = (&'a str, u64)>) -> WordCounts {
        let mut counts = WordCounts::default();
        for (word, times) in words {
            counts.count(word.as_bytes(), times);
        }
        counts
    }

    fn check(words: &[(&str, u64)], most: usize, expected: &[&str]) {
        let learnt = learn(counted(words.iter().copied()), &bytes(), most);
        let tokens = learnt.tokens[256..].iter();
        let tokens: Vec<_> = tokens
            .map(|token| std::str::from_utf8(token).unwrap())
            .collect();
        assert_eq!(tokens, expected);
    }

    #[test]
    fn the_most_frequent_pair_is_first_and_the_smallest_of_equals() {
        // The example of the paper, whose words end with a mark.
        let words = [("low_", 5), ("lower_", 2), ("newest_", 6), ("widest_", 3)];
        check(&words, 261, &["es", "t_", "est_", "lo", "low"]);
        check(&[("cd", 3), ("ab", 3)], 300, &["ab", "cd"]);
        check(&[("ab", 1)], 300, &[]);
    }

    #[test]
    fn pairs_that_overlap_are_counted_as_they_are_merged() {
        check(&[("aaaa", 2)], 300, &["aa", "aaaa"]);
        check(&[("aaa", 2)], 300, &["aa", "aaa"]);
        check(&[("abab", 2), ("ab", 1)], 300, &["ab", "abab"]);
    }

    #[test]
    fn a_sample_is_a_share_and_does_not_hang_on_order() {
        let documents: Vec<String> = (0..2000).map(|i| format!("word{i} ")).collect();
        let hash = |i: usize| (i as u128).to_be_bytes();
        let total: u64 = documents.iter().map(|d| d.len() as u64).sum();
        let sample = Sample::new(total / 4, total, 7);
        let (mut forward, mut backward) = (WordCounts::default(), WordCounts::default());
        let mut counted = 0;
        for (i, text) in documents.iter().enumerate() {
            counted += forward.add(text, &hash(i), &sample);
        }
        for (i, text) in documents.iter().enumerate().rev() {
            backward.add(text, &hash(i), &sample);
        }
        assert_eq!(forward, backward);
        assert!(
            (total / 5..total / 3).contains(&counted),
            "{counted} of {total}"
        );
        let all = Sample::new(total, total, 7);
        let mut whole = WordCounts::default();
        for (i, text) in documents.iter().enumerate() {
            assert_eq!(whole.add(text, &hash(i), &all), text.len() as u64);
        }
        // Of one long document too a share is counted.
        let long = "some words ".repeat(200_000);
        let sample = Sample::new(long.len() as u64 / 4, long.len() as u64, 7);
        let counted = WordCounts::default().add(&long, &hash(0), &sample);
        let counted = usize::try_from(counted).unwrap();
        assert!(
            (long.len() / 8..long.len() / 2).contains(&counted),
            "{counted}"
        );
    }

    /// Tokens that the library learns, in the order of their ids.
    fn by_library(words: &[(String, u64)], most: usize) -> Vec<Vec<u8>> {
        use tokenizers::{
            Trainer,
            models::bpe::{BPE, BpeTrainer},
        };
        let mut trainer = BpeTrainer::builder()
            .show_progress(false)
            .vocab_size(most)
            .min_frequency(FEWEST)
            .build();
        let times = |(word, count): &(String, u64)| {
            std::iter::repeat_n(word.clone(), usize::try_from(*count).unwrap())
        };
        trainer
            .feed(words.iter().flat_map(times), |word| {
                Ok(vec![word.to_owned()])
            })
            .unwrap();
        let mut model = BPE::default();
        trainer.train(&mut model).unwrap();
        let mut tokens: Vec<(u32, String)> = model
            .get_vocab()
            .into_iter()
            .map(|(token, id)| (id, token))
            .collect();
        tokens.sort_unstable();
        tokens
            .into_iter()
            .map(|(_, token)| token.into_bytes())
            .collect()
    }

    proptest! {
        #[test]
        fn the_library_learns_the_same(
            words in proptest::collection::btree_map("[a-d]{1,12}", 1..9_u64, 1..20),
            merges in 0..30_usize,
        ) {
            let words: Vec<(String, u64)> = words.into_iter().collect();
            // The library knows the letters that come, we all bytes.
            let mut letters: Vec<u8> = words.iter().flat_map(|(word, _)| word.bytes()).collect();
            letters.sort_unstable();
            letters.dedup();
            let expected = by_library(&words, letters.len() + merges);
            let counts = counted(words.iter().map(|(word, count)| (word.as_str(), *count)));
            let learnt = learn(counts, &bytes(), 256 + merges);
            prop_assert_eq!(&learnt.tokens[256..], &expected[letters.len()..]);
        }
    }
}
