//! Groups of perceptual duplicates, found without comparing all pairs.
//!
//! Two hashes of 64 bits that differ in at most `t` bits are equal in at least one of `t + 1` bands (pigeon-hole). So the
//! images are sorted by each band in turn, and only those with an equal band are compared: about `n^2 (t + 1) / 2^(64 /
//! (t + 1))` comparisons of two words for `n` different hashes, `n^2 / 1,600` at `t = 4`.

use std::collections::HashMap;

use crate::Looks;

/// Most bits in which two hashes may differ and still be found by the search.
pub const MOST_BITS: u32 = 8;

/// Joins in `groups`, which has a member for each image, the perceptual duplicates: images that
/// differ in at most `bits` of the 64 bits of the pHash, and in at most twice as many of the dHash.
/// An image without hashes matches no other. The groups depend on the images alone, not on their
/// order.
///
/// ```
/// use feedline_image::{Groups, Looks, perceptual};
///
/// let looks = |phash| Some(Looks { phash, dhash: 0 });
/// let images = [looks(0b1111), looks(!0), looks(0b0111), None];
/// let mut groups = Groups::new(images.len());
/// perceptual(&images, 4, &mut groups);
/// // The third image is a duplicate of the first.
/// assert_eq!(groups.into_firsts(), [0, 1, 0, 3]);
/// ```
///
/// # Panics
/// If `bits` is over [`MOST_BITS`], or `groups` has another number of members.
pub fn perceptual(looks: &[Option<Looks>], bits: u32, groups: &mut Groups) {
    assert!(bits <= MOST_BITS, "bands would be shorter than 7 bits");
    assert_eq!(looks.len(), groups.parent.len(), "a member for each image");
    // Equal ones are one to the search.
    let mut first: HashMap<Looks, u32> = HashMap::new();
    let mut distinct = Vec::new();
    for (index, looks) in (0..).zip(looks) {
        if let Some(looks) = looks {
            match first.get(looks) {
                Some(first) => groups.join(*first, index),
                None => {
                    first.insert(*looks, index);
                    distinct.push((*looks, index));
                }
            }
        }
    }
    let bands = Band::all(bits);
    for (number, band) in bands.iter().enumerate() {
        distinct.sort_unstable_by_key(|(looks, index)| (band.of(looks.phash), *index));
        for same in distinct.chunk_by(|a, b| band.of(a.0.phash) == band.of(b.0.phash)) {
            for (place, (looks, index)) in same.iter().enumerate() {
                for (other, other_index) in &same[place + 1..] {
                    let [phash, dhash] = looks.distance(other);
                    let is_near = phash <= bits && dhash <= 2 * bits;
                    // A pair that agrees in an earlier band was met there.
                    let is_new = || {
                        let earlier = &bands[..number];
                        earlier
                            .iter()
                            .all(|b| b.of(looks.phash) != b.of(other.phash))
                    };
                    if is_near && is_new() {
                        groups.join(*index, *other_index);
                    }
                }
            }
        }
    }
}

/// Some neighbouring bits of a hash.
#[derive(Clone, Copy, Debug)]
struct Band {
    shift: u32,
    mask: u64,
}

impl Band {
    /// `bits + 1` bands of nearly equal length.
    fn all(bits: u32) -> Vec<Self> {
        let count = bits + 1;
        (0..count)
            .map(|band| {
                let (from, to) = (64 * band / count, 64 * (band + 1) / count);
                Self {
                    shift: from,
                    mask: u64::MAX >> (64 - (to - from)),
                }
            })
            .collect()
    }

    const fn of(self, hash: u64) -> u64 {
        hash >> self.shift & self.mask
    }
}

/// Disjoint sets of the numbers from 0, each named by its smallest member.
#[derive(Clone, Debug)]
pub struct Groups {
    parent: Vec<u32>,
}

impl Groups {
    /// Creates `count` members, each in a group of its own.
    ///
    /// # Panics
    /// If `count` is 2^32 or more.
    #[must_use]
    pub fn new(count: usize) -> Self {
        let count = u32::try_from(count).expect("fewer than 2^32 images");
        Self {
            parent: (0..count).collect(),
        }
    }

    fn first(&mut self, mut member: u32) -> u32 {
        while self.parent[member as usize] != member {
            let above = self.parent[self.parent[member as usize] as usize];
            self.parent[member as usize] = above;
            member = above;
        }
        member
    }

    /// Joins the groups of two members.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.first(a), self.first(b));
        self.parent[a.max(b) as usize] = a.min(b);
    }

    /// Returns the smallest member of each member's group.
    #[must_use]
    pub fn into_firsts(mut self) -> Vec<u32> {
        (0..self.parent.len())
            .map(|member| self.first(u32::try_from(member).unwrap_or(u32::MAX)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same by comparing all pairs, again and again until nothing changes.
    fn brute_force(looks: &[Option<Looks>], bits: u32) -> Vec<u32> {
        let mut first: Vec<u32> = (0..).take(looks.len()).collect();
        loop {
            let before = first.clone();
            for (a, of_a) in looks.iter().enumerate() {
                for (b, of_b) in looks.iter().enumerate() {
                    let (Some(of_a), Some(of_b)) = (of_a, of_b) else {
                        continue;
                    };
                    let [phash, dhash] = of_a.distance(of_b);
                    if phash <= bits && dhash <= 2 * bits {
                        let least = first[a].min(first[b]);
                        (first[a], first[b]) = (least, least);
                    }
                }
            }
            if before == first {
                return first;
            }
        }
    }

    /// Images around a few others, so that some are near, some are chained and some are just too far.
    fn images() -> impl Strategy<Value = Vec<Option<Looks>>> {
        let flips = || prop::collection::vec(0..64_u32, 0..12);
        let one = (0..4_u64, flips(), flips(), 0..8_u8).prop_map(|(base, p, d, none)| {
            let flipped = |hash: u64, flips: &[u32]| flips.iter().fold(hash, |h, bit| h ^ 1 << bit);
            let base = base.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (none > 0).then(|| Looks {
                phash: flipped(base, &p),
                dhash: flipped(!base, &d),
            })
        });
        prop::collection::vec(one, 0..60)
    }

    fn groups(looks: &[Option<Looks>], bits: u32) -> Vec<u32> {
        let mut groups = Groups::new(looks.len());
        perceptual(looks, bits, &mut groups);
        groups.into_firsts()
    }

    proptest! {
        #[test]
        fn groups_are_those_of_all_pairs(looks in images(), bits in 0..=MOST_BITS) {
            prop_assert_eq!(groups(&looks, bits), brute_force(&looks, bits));
        }

        #[test]
        fn the_order_of_images_changes_no_group(looks in images(), bits in 0..=MOST_BITS) {
            let count = looks.len();
            let forwards = groups(&looks, bits);
            let reversed: Vec<_> = looks.into_iter().rev().collect();
            let backwards = groups(&reversed, bits);
            for a in 0..count {
                for b in 0..count {
                    let there = backwards[count - 1 - a] == backwards[count - 1 - b];
                    prop_assert_eq!(forwards[a] == forwards[b], there);
                }
            }
        }
    }

    #[test]
    fn bands_cover_every_bit_once() {
        for bits in 0..=MOST_BITS {
            let all = Band::all(bits)
                .iter()
                .map(|band| band.mask << band.shift)
                .sum::<u64>();
            assert_eq!(all, u64::MAX, "{bits}");
        }
    }
}
