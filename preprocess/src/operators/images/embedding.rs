//! Images whose embeddings are near: candidates by random projections, every one of them verified.
//!
//! A bit of a signature is the side of a random hyperplane that a vector is on; it is equal for two
//! vectors with probability `1 - angle / pi` (Charikar, "Similarity estimation techniques from
//! rounding algorithms", 2002). Bands of bits make candidates as those of MinHash do, in the same
//! index; a pair is used when the cosine of its vectors, computed from all of their numbers,
//! reaches the threshold.
//!
//! The result depends only on the set of vectors: each is in the index once, under a hash of its
//! numbers, whatever images have it and in whatever order they come.

use std::{collections::HashSet, f64::consts::PI, path::Path};

use feedline_schemas::count::counted;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    Error,
    operators::text::near::{Clusters, Entry, Index, Scheme, Sketch, mixed},
};

/// Hyperplanes, at most.
const PLANES: usize = 1024;
/// Longest band, in bits.
const LONGEST_BAND: usize = 24;
/// Share of the pairs at the threshold that must become candidates.
const RECALL: f64 = 0.99;
/// Raised when equal settings give other hyperplanes than before.
const SEED: u64 = 0x656d_6265_6400_0001;
/// Most numbers of an embedding.
const MOST: usize = 1 << 16;
/// Bytes of vectors and bands held in memory; the rest goes to disk.
const MEMORY: u64 = 256 << 20;
/// Products that are summed side by side.
const LANES: usize = 16;

/// The numbers of a cell, a JSON list; none where it is null.
///
/// # Errors
/// Description of the fault.
pub(super) fn parsed(cell: Option<&str>) -> Result<Option<Vec<f32>>, String> {
    let Some(cell) = cell.filter(|cell| !matches!(cell.trim(), "" | "null")) else {
        return Ok(None);
    };
    let numbers: Vec<f32> =
        serde_json::from_str(cell).map_err(|error| format!("it is no list of numbers: {error}"))?;
    if !(1..=MOST).contains(&numbers.len()) {
        return Err(format!("it has {} numbers, use 1 to {MOST}", numbers.len()));
    }
    if numbers.iter().any(|number| !number.is_finite()) {
        return Err("a number is larger than 32-bit floats are".into());
    }
    Ok(Some(numbers))
}

/// The longest bands, so the fewest candidates, that still find 99 of 100 pairs at the threshold.
fn scheme(cosine: f64) -> Scheme {
    let equal = 1.0 - cosine.clamp(-1.0, 1.0).acos() / PI;
    let schemes = (1..=LONGEST_BAND).rev().map(|rows| Scheme {
        bands: PLANES / rows,
        rows,
    });
    let mut schemes = schemes;
    schemes
        .find(|scheme| scheme.probability(equal) >= RECALL)
        .unwrap_or(Scheme {
            bands: PLANES,
            rows: 1,
        })
}

/// Embedding of a row, as seen by the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Near to none: there is none, or it has no direction.
    Nothing,
    /// One of them, by its name: equal ones have the same.
    Vector(u64),
    /// It cannot be compared, for this reason.
    Odd(String),
}

/// Gathers embeddings of one length, and finds those that are near.
#[derive(Debug)]
pub(crate) struct Neighbours {
    scheme: Scheme,
    /// Numbers of an embedding.
    length: usize,
    /// Hyperplanes, `[bands * rows, length]`.
    planes: Vec<f32>,
    /// Names of the vectors in the index.
    names: HashSet<u64>,
    index: Index,
}

impl Neighbours {
    /// None yet; two of `length` numbers are near whose cosine is at least `cosine`. What does not fit in memory goes to
    /// `folder`.
    ///
    /// # Errors
    /// [`Error::Scratch`] when the folder cannot be made.
    pub(crate) fn new(cosine: f64, length: usize, folder: &Path) -> Result<Self, Error> {
        let scheme = scheme(cosine);
        Ok(Self {
            scheme,
            length,
            planes: planes(scheme.bands * scheme.rows, length),
            names: HashSet::new(),
            index: Index::of_vectors(cosine, MEMORY, folder)?,
        })
    }

    /// Bands and their bits.
    pub(crate) fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Adds the embedding of an image.
    ///
    /// # Errors
    /// [`Error::Scratch`] when the disk fails.
    pub(crate) fn add(&mut self, cell: Option<&str>) -> Result<Seen, Error> {
        let vector = match parsed(cell) {
            Ok(None) => return Ok(Seen::Nothing),
            Ok(Some(vector)) => vector,
            Err(told) => return Ok(Seen::Odd(told)),
        };
        if vector.len() != self.length {
            let (found, usual) = (vector.len(), self.length);
            return Ok(Seen::Odd(format!(
                "it has {}, most have {usual}",
                counted(found as u64, "number")
            )));
        }
        if vector.iter().all(|number| *number == 0.0) {
            return Ok(Seen::Nothing);
        }
        let set = packed(&vector);
        let bytes: Vec<u8> = set.iter().flat_map(|two| two.to_le_bytes()).collect();
        let name = xxh3_64(&bytes);
        if self.names.insert(name) {
            let entry = Entry {
                is_frozen: false,
                id: name,
                group: 0,
            };
            let bands = self.bands(vector);
            self.index.add(entry, name, &Sketch { set, bands })?;
        }
        Ok(Seen::Vector(name))
    }

    /// Joins those that are near; the ids are their names.
    ///
    /// # Errors
    /// [`Error::Scratch`] when the disk fails.
    pub(crate) fn clusters(self) -> Result<Clusters, Error> {
        self.index.cluster()
    }

    fn bands(&self, mut vector: Vec<f32>) -> Vec<u64> {
        // Only the direction counts; without its size no product is too large or too small for its type.
        let largest = vector.iter().fold(0.0_f32, |most, n| most.max(n.abs()));
        vector.iter_mut().for_each(|number| *number /= largest);
        let planes = self.planes.chunks_exact(vector.len());
        let sides: Vec<bool> = planes.map(|plane| dot(plane, &vector) >= 0.0).collect();
        let bands = (1..).zip(sides.chunks_exact(self.scheme.rows));
        bands
            .map(|(band, sides)| {
                let bits = sides.iter();
                let bits = bits.fold(0, |bits, side| (bits << 1) | u64::from(*side));
                mixed(mixed(band) ^ bits)
            })
            .collect()
    }
}

/// The sum of the products, in an order that does not depend on the machine.
fn dot(plane: &[f32], vector: &[f32]) -> f32 {
    let (plane, plane_end) = plane.as_chunks::<LANES>();
    let (vector, vector_end) = vector.as_chunks::<LANES>();
    let mut sums = [0.0_f32; LANES];
    for (a, b) in plane.iter().zip(vector) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    for (sum, (a, b)) in sums.iter_mut().zip(plane_end.iter().zip(vector_end)) {
        *sum += a * b;
    }
    sums.iter().sum()
}

/// Hyperplanes by their normals: numbers of a hash, of nearly the same spread in every direction, as the sum of four even
/// ones is nearly normal.
fn planes(count: usize, length: usize) -> Vec<f32> {
    (0..count * length).map(|at| normal(SEED, at)).collect()
}

/// Number `at` of a sequence, -2 to 2.
fn normal(seed: u64, at: usize) -> f32 {
    let bytes = mixed(seed.wrapping_add(mixed(at as u64))).to_le_bytes();
    let (parts, _) = bytes.as_chunks::<2>();
    let parts = parts
        .iter()
        .map(|part| f32::from(u16::from_le_bytes(*part)));
    parts.sum::<f32>() / 65_536.0 - 2.0
}

/// Two numbers in each.
fn packed(vector: &[f32]) -> Vec<u64> {
    let pairs = vector.chunks(2).map(|pair| {
        let second = pair.get(1).copied().unwrap_or(0.0);
        u64::from(pair[0].to_bits()) | (u64::from(second.to_bits()) << 32)
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors in groups of five around each of many centres, at distances that make cosines of 0.8
    /// to 1. With an `offset` all of them are in a cone, as those of many models are.
    fn vectors(count: usize, length: usize, offset: f32) -> Vec<Vec<f32>> {
        let centres = count.div_ceil(5);
        let each = (0..count).map(|i| {
            let spread = 0.04 * f32::from(u8::try_from(i % 11).unwrap());
            let part = |seed: usize, at: usize| normal(0x1234_5678, seed * 100_003 + at);
            let number = |at| part(i % centres, at) + spread * part(centres + i, at) + offset;
            (0..length).map(number).collect()
        });
        each.collect()
    }

    fn text(vector: &[f32]) -> String {
        serde_json::to_string(vector).unwrap()
    }

    /// The vector of length 1.
    fn unit(vector: &[f32]) -> Vec<f64> {
        let numbers: Vec<f64> = vector.iter().copied().map(f64::from).collect();
        let length = numbers.iter().map(|number| number * number).sum::<f64>();
        numbers
            .iter()
            .map(|number| number / length.sqrt())
            .collect()
    }

    const NEAR: f64 = 0.95;

    /// The name of the first of each vector's cluster, vectors added in this order, and the number of hubs.
    fn firsts(vectors: &[Vec<f32>], order: impl Iterator<Item = usize>) -> (Vec<u64>, u64) {
        let folder = tempfile::tempdir().unwrap();
        let length = vectors[0].len();
        let mut near = Neighbours::new(NEAR, length, &folder.path().join("near")).unwrap();
        let mut names = vec![0; vectors.len()];
        for at in order {
            let seen = near.add(Some(&text(&vectors[at]))).unwrap();
            let Seen::Vector(name) = seen else {
                panic!("{seen:?}");
            };
            names[at] = name;
        }
        let clusters = near.clusters().unwrap();
        let first = |name: &u64| clusters.member(*name).map_or(*name, |m| m.first.id);
        (names.iter().map(first).collect(), clusters.hubs)
    }

    /// Counts the pairs that are near by brute force, and those of them that share a cluster.
    /// Checks that a cluster only joins chains of near pairs.
    fn pairs(vectors: &[Vec<f32>], found: &[u64]) -> [u32; 2] {
        let units: Vec<Vec<f64>> = vectors.iter().map(|vector| unit(vector)).collect();
        let (mut near, mut joined) = (0, 0);
        let mut root: Vec<usize> = (0..vectors.len()).collect();
        for (a, one) in units.iter().enumerate() {
            for (b, other) in units.iter().enumerate().skip(a + 1) {
                let cosine: f64 = one.iter().zip(other).map(|(x, y)| x * y).sum();
                if cosine >= NEAR {
                    near += 1;
                    joined += u32::from(found[a] == found[b]);
                    let (from, to) = (root[a].max(root[b]), root[a].min(root[b]));
                    let others = root.iter_mut().filter(|root| **root == from);
                    others.for_each(|root| *root = to);
                }
            }
        }
        for (a, one) in found.iter().enumerate() {
            let b = found.iter().position(|other| other == one).unwrap();
            assert_eq!(root[a], root[b], "{a} and {b} are joined by no pairs");
        }
        [near, joined]
    }

    /// Recall against brute force.
    fn recall(count: usize, length: usize, offset: f32) -> f64 {
        let vectors = vectors(count, length, offset);
        let (found, hubs) = firsts(&vectors, 0..count);
        let (backwards, _) = firsts(&vectors, (0..count).rev());
        assert_eq!(found, backwards, "the order of {count} makes a difference");
        let [near, joined] = pairs(&vectors, &found);
        let recall = f64::from(joined) / f64::from(near);
        println!(
            "{count} x {length} + {offset}: {joined} of {near} pairs, {recall:.4}, {hubs} hubs"
        );
        assert!(near as usize > count / 2, "{near} pairs");
        recall
    }

    #[test]
    fn nearly_all_pairs_are_found_and_only_near_ones_whatever_their_order() {
        assert!(recall(800, 32, 0.0) >= 0.99);
    }

    #[test]
    fn embeddings_that_lie_in_a_cone_are_found_too_and_order_decides_nothing_in_hubs() {
        assert!(recall(600, 24, 0.6) >= 0.97);
    }

    #[test]
    fn equal_vectors_are_one_however_many_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let mut near = Neighbours::new(NEAR, 3, &folder.path().join("near")).unwrap();
        let names: HashSet<u64> = (0..200)
            .map(|_| match near.add(Some("[1, 2, 3]")).unwrap() {
                Seen::Vector(name) => name,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(names.len(), 1);
        let clusters = near.clusters().unwrap();
        assert_eq!((clusters.documents, clusters.hubs), (1, 0));
    }

    #[test]
    fn bands_find_what_they_should_at_every_threshold() {
        for cosine in [0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0] {
            let scheme = scheme(cosine);
            let equal = 1.0 - f64::acos(cosine) / PI;
            assert!(scheme.probability(equal) >= RECALL, "{cosine}: {scheme:?}");
            assert!(scheme.bands * scheme.rows <= PLANES);
        }
        assert_eq!(
            scheme(0.95),
            Scheme {
                bands: 46,
                rows: 22
            }
        );
    }

    #[test]
    fn a_cell_is_a_list_of_numbers_or_nothing() {
        assert_eq!(
            parsed(Some("[1, 2.5, -3e0]")),
            Ok(Some(vec![1.0, 2.5, -3.0]))
        );
        for nothing in [None, Some(""), Some("null")] {
            assert_eq!(parsed(nothing), Ok(None));
        }
        let long = text(&vec![0.5; MOST + 1]);
        for bad in [
            "[]", "{}", "[null]", "[1e99]", "7", "[\"1\"]", "[NaN]", &long,
        ] {
            assert!(parsed(Some(bad)).is_err(), "{bad:.20}");
        }
    }

    #[test]
    fn numbers_of_every_size_have_a_direction_but_zeros_have_none_and_other_lengths_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let mut near = Neighbours::new(NEAR, 2, &folder.path().join("near")).unwrap();
        let mut add = |cell: &str| near.add(Some(cell)).unwrap();
        assert_eq!(add("[0, -0.0]"), Seen::Nothing);
        assert_eq!(
            add("[1, 2, 3]"),
            Seen::Odd("it has 3 numbers, most have 2".into())
        );
        let cells = [
            "[1, 2]",
            "[3, 6]",
            "[1e38, 2e38]",
            "[1e-40, 2e-40]",
            "[2, -1]",
        ];
        let names = cells.map(|cell| match add(cell) {
            Seen::Vector(name) => name,
            other => panic!("{other:?}"),
        });
        let clusters = near.clusters().unwrap();
        let first = |name: u64| clusters.member(name).map_or(name, |m| m.first.id);
        assert!(
            names[..4]
                .iter()
                .all(|name| first(*name) == first(names[0]))
        );
        assert_ne!(first(names[4]), first(names[0]));
    }
}
