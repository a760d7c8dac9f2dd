//! Identity of a training, which its ranks compare part by part.

use xxhash_rust::xxh3::xxh3_64;

/// Parts that the ranks of a job must share, as a message names those that differ.
const PARTS: [&str; 4] = [
    "another configuration",
    "another dataset",
    "other initial weights",
    "another version of feedline",
];

/// The parts, and the job.
const HASHES: usize = PARTS.len() + 1;

/// Hashes of the parts and of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JobIdentity([u64; HASHES]);

impl JobIdentity {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub(super) const BYTES: usize = 8 * HASHES;

    /// Identity of a job whose parts are the lines of `text`: configuration, dataset, initial weights, version.
    pub(super) fn new(text: &str, job: &str) -> Self {
        let mut hashes = [xxh3_64(b""); HASHES];
        for (hash, part) in hashes.iter_mut().zip(text.splitn(PARTS.len(), '\n')) {
            *hash = xxh3_64(part.as_bytes());
        }
        hashes[PARTS.len()] = xxh3_64(job.as_bytes());
        Self(hashes)
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        self.0.iter().flat_map(|hash| hash.to_le_bytes()).collect()
    }

    /// Parses the bytes of [`to_bytes`](Self::to_bytes); missing ones are zero.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        let mut hashes = [0; HASHES];
        for (hash, word) in hashes.iter_mut().zip(words) {
            *hash = u64::from_le_bytes(*word);
        }
        Self(hashes)
    }

    /// Returns true if both are of one job.
    pub(super) fn is_of_job(self, other: Self) -> bool {
        self.0[PARTS.len()] == other.0[PARTS.len()]
    }

    /// Reason that `rank`, whose identity this is, does not belong to rank 0, whose identity is `first`; `None` where their
    /// parts are equal.
    pub(super) fn difference(self, first: Self, rank: usize) -> Option<String> {
        let parts = PARTS.iter().zip(self.0.iter().zip(&first.0));
        let differing: Vec<&str> = parts
            .filter(|(_, (own, first))| own != first)
            .map(|(name, _)| *name)
            .collect();
        (!differing.is_empty()).then(|| {
            let names = differing.join(" and ");
            format!("rank {rank} has {names} than rank 0; start all with the same")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_its_parts() {
        let first = JobIdentity::new("a\nb\n\nc", "job");
        let difference = |text: &str| JobIdentity::new(text, "job").difference(first, 2);
        assert_eq!(difference("a\nb\n\nc"), None);
        for (text, names) in [
            ("x\nb\n\nc", "another configuration"),
            ("a\nx\n\nc", "another dataset"),
            ("a\nb\nx\nc", "other initial weights"),
            ("a\nb\n\nx", "another version of feedline"),
            ("x\nx\n\nc", "another configuration and another dataset"),
            ("a", "another dataset and another version of feedline"),
        ] {
            let expected = format!("rank 2 has {names} than rank 0; start all with the same");
            assert_eq!(difference(text), Some(expected));
        }
    }

    #[test]
    fn a_job_is_no_part_and_bytes_hold_all() {
        let own = JobIdentity::new("a\nb", "job");
        let other = JobIdentity::new("a\nb", "another");
        assert_eq!(own.difference(other, 1), None);
        assert!(own.is_of_job(own) && !own.is_of_job(other));
        for identity in [own, other] {
            let bytes = identity.to_bytes();
            assert_eq!(bytes.len(), JobIdentity::BYTES);
            assert_eq!(JobIdentity::read(&bytes), identity);
        }
    }
}
