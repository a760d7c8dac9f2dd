//! Replays of the corpus of a fuzz target in the ordinary tests of a crate.
//!
//! `FEEDLINE_FUZZ_MUTATIONS` is the number of changed inputs that follow the corpus, none by default.

use std::{fs, panic, path::Path};

/// One test for each target, of its name, in a module below that of the targets.
#[macro_export]
macro_rules! replays {
    ($($target:ident)*) => {$(
        #[test]
        fn $target() {
            $crate::fuzz_replay::replay(stringify!($target), super::$target);
        }
    )*};
}
pub use crate::replays;

/// Numbers that look random, by splitmix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap()
    }
}

/// Runs `target` on each file of its corpus, then on changed ones.
pub fn replay(name: &str, target: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let mut paths: Vec<_> = fs::read_dir(folder.join(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let corpus: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(corpus.len() > 1, "the corpus of `{name}` has no seeds");
    for (path, input) in paths.iter().zip(&corpus) {
        run(target, input, &path.display().to_string());
    }
    let count = std::env::var_os("FEEDLINE_FUZZ_MUTATIONS");
    let count: u64 = count.map_or(0, |count| count.to_str().unwrap().parse().unwrap());
    for round in 0..count {
        let mut numbers = Numbers(round);
        let mut input = corpus[numbers.below(corpus.len())].clone();
        for _ in 0..=numbers.below(4) {
            change(&mut input, &corpus, &mut numbers);
        }
        run(
            target,
            &input,
            &format!("mutation {round}: {}", input.escape_ascii()),
        );
    }
}

#[expect(clippy::print_stdout, reason = "a failed test shows it")]
fn run(target: fn(&[u8]), input: &[u8], name: &str) {
    if let Err(panic) = panic::catch_unwind(|| target(input)) {
        println!("the input is {name}");
        panic::resume_unwind(panic);
    }
}

/// Changes one place of `input`: bits, bytes, a part of another input, a part removed or repeated.
fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], numbers: &mut Numbers) {
    let at = numbers.below(input.len() + 1);
    let end = (at + 1 + numbers.below(16)).min(input.len());
    match numbers.below(6) {
        0 if at < input.len() => input[at] ^= 1 << numbers.below(8),
        1 if at < input.len() => input[at] = numbers.next().to_le_bytes()[0],
        2 => drop(input.drain(at.min(end)..end)),
        3 => {
            let part = input[at.min(end)..end].to_vec();
            input.splice(at..at, part);
        }
        4 => {
            let other = &corpus[numbers.below(corpus.len())];
            let from = numbers.below(other.len() + 1);
            let to = (from + numbers.below(64)).min(other.len());
            input.splice(at..at, other[from..to].iter().copied());
        }
        _ => input.truncate(at.max(1)),
    }
}
