//! From bands to clusters: every pair that joins two clusters is verified.
//!
//! The documents of one band hash are a bucket, in the order of their keys. In a bucket of up to
//! [`PAIRS`] documents all pairs that are not joined yet are compared. A larger one, a hub, is
//! checked in a star: each document against all of up to [`CENTRES`] centres, the first document
//! and those that matched none before them, frozen documents before others. Then other passes go
//! over the documents that would be kept, which are fewer, until a pass joins nothing. So the kept
//! documents have no near-duplicates in buckets of up to [`PAIRS`], and in hubs none near a centre;
//! two documents that are near, share hubs only and are near no centre of any of them stay apart.
//! [`Clusters::hubs`] counts the buckets that could hide such a pair.
//!
//! Skipping joined pairs leaves the components of the verified pairs unchanged, so buckets of up to
//! [`PAIRS`] documents make the result independent of every order. The keys that decide a star come
//! from the documents too.

use std::collections::HashMap;

use super::{alike::Alike, bands::Sorted, entry::Entry, forest::Forest, sets::Sets};
use crate::Error;

/// Documents of a bucket whose pairs are all looked at.
const PAIRS: usize = 64;

/// Centres of a star.
const CENTRES: usize = 16;

/// Clusters of up to this many documents are never too large.
const SMALL: u64 = 1000;

/// A near-duplicate of another document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Its id.
    pub id: u64,
    /// Its group.
    pub group: u8,
    /// The first document of its cluster.
    pub first: Entry,
}

/// Result of clustering.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clusters {
    /// Every document that is not the first of its cluster and not frozen, by id.
    pub members: Vec<Member>,
    /// Documents in the index, frozen ones included.
    pub documents: u64,
    /// Of them, those without a word: they are near to nothing.
    pub empty: u64,
    /// Clusters of two documents or more.
    pub clusters: u64,
    /// Documents of the largest cluster, frozen ones left out.
    pub largest: u64,
    /// Pairs whose similarity was computed.
    pub verified: u64,
    /// Hubs of the first pass: buckets that were checked in a star.
    pub hubs: u64,
}

impl Clusters {
    /// Entry of `id`, if it is a near-duplicate of another document.
    #[must_use]
    pub fn member(&self, id: u64) -> Option<&Member> {
        let at = self.members.binary_search_by_key(&id, |member| member.id);
        at.ok().map(|at| &self.members[at])
    }

    /// Returns true if the largest cluster holds more than `share` of the documents, and more than
    /// 1,000.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
    pub fn is_chained(&self, share: f64) -> bool {
        self.largest > SMALL && self.largest as f64 > share * self.documents as f64
    }
}

/// Documents by number, while they are joined.
pub(super) struct Clustering {
    pub(super) entries: Entries,
    pub(super) sets: Sets,
    pub(super) threshold: f64,
    pub(super) alike: Alike,
    pub(super) forest: Forest,
    pub(super) verified: u64,
    pub(super) hubs: u64,
    /// The set of a document that is compared with several, and the other one.
    pub(super) held: Option<u32>,
    pub(super) left: Vec<u64>,
    pub(super) right: Vec<u64>,
}

/// Id and mark of every document.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pub(super) ids: Vec<u64>,
    pub(super) marks: Vec<u8>,
}

impl Entries {
    pub(super) fn get(&self, document: u32) -> Entry {
        let at = document as usize;
        Entry::unpacked(self.ids[at], self.marks[at])
    }
}

impl Clustering {
    /// Joins what the bands bring together.
    pub(super) fn run(mut self, bands: &Sorted) -> Result<Clusters, Error> {
        let mut hubs = None;
        loop {
            let joined = self.pass(bands, hubs.is_some())?;
            let stars = self.hubs;
            hubs.get_or_insert(stars);
            if stars == 0 || joined == 0 {
                break;
            }
        }
        Ok(self.clusters(hubs.unwrap_or(0)))
    }

    /// Goes through all buckets, or through what is left of them when only the first of each cluster is. Returns how
    /// many pairs were joined.
    fn pass(&mut self, bands: &Sorted, only_firsts: bool) -> Result<u64, Error> {
        self.hubs = 0;
        let mut joined = 0;
        let mut bucket: Vec<u32> = Vec::new();
        let mut hash = None;
        for band in bands.iter()? {
            let band = band?;
            if hash != Some(band.hash) {
                joined += self.bucket(&bucket)?;
                bucket.clear();
                hash = Some(band.hash);
            }
            if !only_firsts || self.forest.root(band.document) == band.document {
                bucket.push(band.document);
            }
        }
        Ok(joined + self.bucket(&bucket)?)
    }

    fn bucket(&mut self, documents: &[u32]) -> Result<u64, Error> {
        match documents.len() {
            0 | 1 => Ok(0),
            2..=PAIRS => self.all_pairs(documents),
            _ => {
                // Of what is frozen more depends: its documents are centres first.
                let (mut ordered, others): (Vec<u32>, Vec<u32>) = documents
                    .iter()
                    .partition(|document| self.entries.get(**document).is_frozen);
                ordered.extend(others);
                self.star(&ordered)
            }
        }
    }

    fn all_pairs(&mut self, documents: &[u32]) -> Result<u64, Error> {
        let mut joined = 0;
        for (i, a) in documents.iter().enumerate() {
            for b in &documents[i + 1..] {
                joined += u64::from(!self.forest.is_joined(*a, *b) && self.join(*a, *b)?);
            }
        }
        Ok(joined)
    }

    fn star(&mut self, documents: &[u32]) -> Result<u64, Error> {
        self.hubs += 1;
        let mut joined = 0;
        let mut centres: Vec<u32> = Vec::with_capacity(CENTRES);
        for document in documents {
            let mut is_near = false;
            for centre in &centres {
                let was_joined = self.forest.is_joined(*centre, *document);
                let joins = !was_joined && self.join(*centre, *document)?;
                joined += u64::from(joins);
                is_near |= was_joined || joins;
            }
            if !is_near && centres.len() < CENTRES {
                centres.push(*document);
            }
        }
        Ok(joined)
    }

    /// Joins two documents that are not joined, if they are near; returns true if they are.
    fn join(&mut self, a: u32, b: u32) -> Result<bool, Error> {
        let is_near = self.is_near(a, b)?;
        if is_near {
            let entries = &self.entries;
            self.forest
                .join(a, b, |a, b| entries.get(a) < entries.get(b));
        }
        Ok(is_near)
    }

    fn is_near(&mut self, a: u32, b: u32) -> Result<bool, Error> {
        let sizes = [self.sets.size(a), self.sets.size(b)];
        if !self.alike.can_reach(self.threshold, sizes) {
            return Ok(false);
        }
        self.verified += 1;
        if self.held != Some(a) {
            self.sets.read(a, &mut self.left)?;
            self.held = Some(a);
        }
        self.sets.read(b, &mut self.right)?;
        let near = self.alike.reaches(self.threshold, &self.left, &self.right);
        Ok(near)
    }

    fn clusters(mut self, hubs: u64) -> Clusters {
        let documents = self.sets.len();
        let mut sizes: HashMap<u32, u64> = HashMap::new();
        let mut members = Vec::new();
        let mut empty = 0;
        for document in 0..u32::try_from(documents).unwrap_or(u32::MAX) {
            empty += u64::from(self.sets.size(document) == 0);
            let root = self.forest.root(document);
            if root == document {
                continue;
            }
            let entry = self.entries.get(document);
            let first = self.entries.get(root);
            let size = sizes.entry(root);
            let size = size.or_insert(u64::from(!first.is_frozen));
            if !entry.is_frozen {
                *size += 1;
                members.push(Member {
                    id: entry.id,
                    group: entry.group,
                    first,
                });
            }
        }
        members.sort_unstable();
        Clusters {
            members,
            documents: documents as u64,
            empty,
            clusters: sizes.len() as u64,
            largest: sizes.values().copied().max().unwrap_or(0),
            verified: self.verified,
            hubs,
        }
    }
}
