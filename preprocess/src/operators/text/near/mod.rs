//! Near-duplicate documents: candidates by MinHash and locality-sensitive hashing, every one of them verified.
//!
//! A document is the set of hashes of its n-grams (`shingles`). A [`Signer`] makes a [`Sketch`] of it: the set and one
//! hash a band, equal for two documents with a probability that grows with their Jaccard similarity (Broder 1997;
//! bands of rows as in Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", 3.4). An [`Index`] takes sketches
//! in any order from any thread, sorts bands and keeps sets on disk where memory ends, and clusters: documents that
//! share a band are joined when the exact Jaccard similarity of their sets reaches the threshold, and only then.
//!
//! The clusters are the connected components of those verified pairs: a pure function of the documents, their ids and
//! the settings. A sketch depends on nothing but its document, so signing scales with threads; clustering is one pass
//! in the order of the bands.
//!
//! Exact means: over 64-bit hashes of n-grams, which are equal for two of a million different ones with a probability
//! of 3e-8.
//!
//! Of three documents, the second repeats the first one but for its end:
//!
//! ```
//! use feedline_preprocess::text::near::{Entry, Index, Signer};
//! use feedline_schemas::config::NearDupConfig;
//!
//! # let folder = tempfile::tempdir()?;
//! # let scratch = folder.path().join("near");
//! let text = |range: std::ops::Range<u32>| {
//!     range.map(|number| format!("word{number} ")).collect::<String>()
//! };
//! let config = NearDupConfig::default();
//! let (signer, mut index) = (Signer::new(&config), Index::new(&config, &scratch)?);
//! let documents = [text(0..60), text(0..58), text(100..160)];
//! for (id, document) in (0..).zip(&documents) {
//!     let entry = Entry { is_frozen: false, id, group: 0 };
//!     index.add(entry, id, &signer.sketch(document))?;
//! }
//! let clusters = index.cluster()?;
//! assert_eq!((clusters.clusters, clusters.members.len()), (1, 1));
//! assert_eq!(clusters.member(1).map(|member| member.first.id), Some(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod alike;
mod bands;
mod clusters;
mod entry;
mod forest;
mod index;
pub(super) mod scripts;
mod sets;
pub(super) mod shingles;
mod sign;

#[cfg(test)]
mod corpus_tests;
#[cfg(test)]
mod tests;

pub use clusters::{Clusters, Member};
pub use entry::Entry;
pub use index::Index;
pub use shingles::Shingler;
pub(crate) use shingles::{mixed, normalized};
pub use sign::{Scheme, Signer, Sketch};
