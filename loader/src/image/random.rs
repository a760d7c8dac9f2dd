//! Randomness that is computed, not carried: Philox4x32-10.
//!
//! Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011): a block of four words is a
//! function of a counter of 128 bits and a key of 64, ten rounds of multiply and exclusive-or.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

/// One block of Philox4x32-10.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let (high_0, low_0) = multiply(MULTIPLIERS[0], counter[0]);
        let (high_1, low_1) = multiply(MULTIPLIERS[1], counter[2]);
        counter = [
            high_1 ^ counter[1] ^ key[0],
            low_1,
            high_0 ^ counter[3] ^ key[1],
            low_0,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

fn multiply(a: u32, b: u32) -> (u32, u32) {
    halves(u64::from(a) * u64::from(b))
}

/// The high and the low word.
#[expect(clippy::cast_possible_truncation, reason = "each half is what is kept")]
const fn halves(value: u64) -> (u32, u32) {
    ((value >> 32) as u32, value as u32)
}

/// The random numbers of one sample in one epoch, a separate sequence for each operation.
///
/// A block of key `seed` and counter (sample key, epoch) gives the key and half the counter of the sample's own
/// blocks; the other half of that counter is (operation, draw). So every number is a function of (seed, epoch, sample
/// key, operation, draw) and of nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleRandom {
    /// Sample and epoch: two words of counter, two of key.
    sample: [u32; 4],
    operation: u32,
    draw: u32,
    block: [u32; 4],
}

impl SampleRandom {
    /// The numbers of the sample with this key in this epoch, at operation 0.
    #[must_use]
    pub fn new(seed: u64, epoch: u64, sample: u64) -> Self {
        let ((seed_high, seed_low), (epoch_high, epoch_low), (high, low)) =
            (halves(seed), halves(epoch), halves(sample));
        Self {
            sample: philox([low, high, epoch_low, epoch_high], [seed_low, seed_high]),
            operation: 0,
            draw: 0,
            block: [0; 4],
        }
    }

    /// Goes to the first number of an operation.
    pub(crate) const fn begin(&mut self, operation: u32) {
        self.operation = operation;
        self.draw = 0;
    }

    /// A number of 32 random bits.
    pub(crate) fn word(&mut self) -> u32 {
        let place = (self.draw % 4) as usize;
        if place == 0 {
            let [a, b, c, d] = self.sample;
            self.block = philox([self.draw / 4, self.operation, a, b], [c, d]);
        }
        self.draw = self.draw.wrapping_add(1);
        self.block[place]
    }

    /// A number in `[0, 1)` of 53 random bits.
    pub(crate) fn unit(&mut self) -> f64 {
        let bits = (u64::from(self.word()) << 32 | u64::from(self.word())) >> 11;
        bits as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// A number in `[range[0], range[1])`.
    pub(crate) fn within(&mut self, range: [f32; 2]) -> f64 {
        let [least, most] = range.map(f64::from);
        least + (most - least) * self.unit()
    }

    /// True with this probability: never for 0, always for 1.
    pub(crate) fn happens(&mut self, probability: f32) -> bool {
        self.unit() < f64::from(probability)
    }

    /// A number below `n`, which is at least 1. A value is more likely than another by at most `n / 2^64`.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        let bits = u64::from(self.word()) << 32 | u64::from(self.word());
        halves(((u128::from(bits) * u128::from(n)) >> 64) as u64).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_paper() {
        // Test vectors of the authors' library Random123, file `kat_vectors`.
        let check = |counter, key, expected| assert_eq!(philox(counter, key), expected);
        check(
            [0; 4],
            [0; 2],
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
        );
        check(
            [u32::MAX; 4],
            [u32::MAX; 2],
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
        );
        check(
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        );
    }

    #[test]
    fn each_part_of_the_key_changes_the_numbers() {
        let first = |seed, epoch, sample, operation| {
            let mut random = SampleRandom::new(seed, epoch, sample);
            random.begin(operation);
            [random.word(), random.word()]
        };
        let mut seen = Vec::new();
        for high in [0, 1 << 32] {
            for (seed, epoch, sample, operation) in [
                (0, 0, 0, 0),
                (1, 0, 0, 0),
                (0, 1, 0, 0),
                (0, 0, 1, 0),
                (0, 0, 0, 1),
            ] {
                seen.push(first(seed | high, epoch | high, sample | high, operation));
            }
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 10);
    }

    #[test]
    fn an_operation_does_not_depend_on_what_was_drawn_before() {
        let mut random = SampleRandom::new(1, 2, 3);
        random.begin(5);
        let expected: Vec<_> = (0..9).map(|_| random.word()).collect();
        random.begin(4);
        for _ in 0..7 {
            random.word();
        }
        random.begin(5);
        assert_eq!((0..9).map(|_| random.word()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn numbers_are_even() {
        let mut random = SampleRandom::new(9, 0, 0);
        let (mut sum, mut counts) = (0.0, [0_u32; 7]);
        for _ in 0..70_000 {
            let unit = random.unit();
            assert!((0.0..1.0).contains(&unit));
            sum += unit;
            counts[random.below(7) as usize] += 1;
        }
        assert!((sum / 70_000.0 - 0.5).abs() < 0.005, "{sum}");
        // Five standard deviations of a binomial count.
        assert!(
            counts.iter().all(|c| c.abs_diff(10_000) < 470),
            "{counts:?}"
        );
        assert!(!random.happens(0.0) && random.happens(1.0));
    }
}
