//! Similarity of two documents: of their sets, or of their vectors.

use super::sign::jaccard;

/// Measure of similarity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alike {
    /// By the Jaccard similarity of their sets.
    Jaccard,
    /// By the cosine of their vectors, two 32-bit floats in a member, the first in its lower half.
    Cosine,
}

impl Alike {
    /// Returns true if documents of so many members can be near at all.
    #[expect(
        clippy::cast_precision_loss,
        reason = "sets have fewer than 2^53 members"
    )]
    pub(super) fn can_reach(self, threshold: f64, sizes: [u64; 2]) -> bool {
        let [small, large] = [sizes[0].min(sizes[1]), sizes[0].max(sizes[1])];
        match self {
            // Not if the smaller set were part of the larger, and that is too small.
            Self::Jaccard => small as f64 / large as f64 >= threshold,
            Self::Cosine => small == large,
        }
    }

    /// Returns true if two documents are near.
    pub(super) fn reaches(self, threshold: f64, a: &[u64], b: &[u64]) -> bool {
        match self {
            Self::Jaccard => jaccard(a, b) >= threshold,
            Self::Cosine => cosine(a, b) >= threshold,
        }
    }
}

/// The cosine of two vectors, summed in 64 bits in their order; not a number where one has no direction.
fn cosine(a: &[u64], b: &[u64]) -> f64 {
    let halves = |both: u64| {
        let bytes = both.to_le_bytes();
        let (halves, _) = bytes.as_chunks::<4>();
        [halves[0], halves[1]].map(|half| f64::from(f32::from_le_bytes(half)))
    };
    let (mut dot, mut of_a, mut of_b) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        for (a, b) in halves(*a).into_iter().zip(halves(*b)) {
            dot += a * b;
            of_a += a * a;
            of_b += b * b;
        }
    }
    // One root of the product: of equal vectors the cosine is then 1 exactly.
    dot / f64::sqrt(of_a * of_b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(pairs: &[[f32; 2]]) -> Vec<u64> {
        let pack =
            |[low, high]: &[f32; 2]| u64::from(low.to_bits()) | (u64::from(high.to_bits()) << 32);
        pairs.iter().map(pack).collect()
    }

    #[test]
    fn a_cosine_is_that_of_the_numbers() {
        let (a, b) = (
            packed(&[[3.0, 4.0], [0.0, 0.0]]),
            packed(&[[4.0, 3.0], [0.0, 0.0]]),
        );
        assert!((cosine(&a, &b) - 0.96).abs() < 1e-15);
        assert!((cosine(&a, &a) - 1.0).abs() < 1e-15);
        assert!(Alike::Cosine.reaches(1.0, &a, &packed(&[[6.0, 8.0], [0.0, 0.0]])));
        assert!(!Alike::Cosine.reaches(-1.0, &a, &packed(&[[0.0; 2]; 2])));
        assert!(!Alike::Cosine.can_reach(0.5, [2, 3]));
    }
}
