//! Samples that could not be used and were replaced by others, and how many may be.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use serde::Serialize;

use crate::{
    Error,
    block_table::{BlockId, BlockTable},
    metrics::Meters,
};

/// A sample, or a block of samples, that could not be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Quarantined {
    /// File, relative to the dataset's folder.
    pub shard: String,
    /// Block in the shard, from 0.
    pub block: u32,
    /// Row in the block; none for the whole block.
    pub row: Option<u32>,
    /// Key of the row; none for the whole block.
    pub key: Option<u64>,
    /// Samples of it: 1, or the rows of the block.
    pub samples: u64,
    /// Reason of the quarantine.
    pub reason: String,
}

impl fmt::Display for Quarantined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(row) = self.row {
            write!(f, "row `{row}`")?;
            if let Some(key) = self.key {
                write!(f, " with key `{key}`")?;
            }
            f.write_str(" of ")?;
        }
        let Self {
            shard,
            block,
            reason,
            ..
        } = self;
        write!(f, "block `{block}` of `{shard}`: {reason}")
    }
}

/// Everything in quarantine, and the limit. Shared by all threads of a loader.
pub(crate) struct Quarantine {
    sources: Vec<Arc<BlockTable>>,
    samples: u64,
    most_share: f64,
    bad: Mutex<Bad>,
    meters: Arc<Meters>,
}

#[derive(Default)]
struct Bad {
    samples: u64,
    /// By source, block and row; a whole block has none.
    entries: BTreeMap<(u32, BlockId, Option<u32>), Quarantined>,
}

impl Quarantine {
    /// Nothing in quarantine yet; at most `most_share` of all samples of the sources may come.
    pub(crate) fn new(sources: Vec<Arc<BlockTable>>, most_share: f64, meters: Arc<Meters>) -> Self {
        Self {
            samples: sources
                .iter()
                .map(|block_table| block_table.samples())
                .sum(),
            sources,
            most_share,
            bad: Mutex::default(),
            meters,
        }
    }

    /// Returns true if the quarantine is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.meters.quarantined.get() == 0
    }

    /// Returns true if a row is known to be unusable.
    pub(crate) fn has(&self, source: u32, block: BlockId, row: u32) -> bool {
        // Nearly always nothing is in quarantine.
        self.meters.quarantined.get() > 0
            && self
                .lock()
                .entries
                .contains_key(&(source, block, Some(row)))
    }

    /// Sets a row aside.
    ///
    /// # Errors
    /// [`Error::TooManyBad`], when that is more than is allowed.
    pub(crate) fn add_row(
        &self,
        source: u32,
        block: BlockId,
        (row, key): (u32, Option<u64>),
        reason: String,
    ) -> Result<(), Error> {
        let entry = Quarantined {
            key,
            ..self.entry(source, block, Some(row), reason)
        };
        let (bad, is_new) = self.add((source, block, Some(row)), 1, entry.clone());
        if is_new {
            tracing::warn!(
                shard = entry.shard,
                block = entry.block,
                row,
                key,
                reason = entry.reason,
                "a sample cannot be used and another is given in its place"
            );
        }
        if self.is_allowed(bad) {
            Ok(())
        } else {
            Err(self.too_many(bad, entry))
        }
    }

    /// Quarantines a block. Returns false, and quarantines nothing, if that is not allowed.
    pub(crate) fn try_add_block(&self, source: u32, block: BlockId, reason: &str) -> bool {
        let rows = u64::from(self.sources[source as usize].rows(block));
        if !self.is_allowed(self.lock().samples + rows) {
            return false;
        }
        let entry = self.entry(source, block, None, reason.to_owned());
        self.add((source, block, None), rows, entry);
        true
    }

    /// The error for a block without usable rows.
    pub(crate) fn hopeless(&self, source: u32, block: BlockId) -> Error {
        let entry = self.entry(
            source,
            block,
            None,
            "none of its samples can be used".into(),
        );
        self.too_many(self.lock().samples, entry)
    }

    /// Everything in quarantine, by source, block and row.
    pub(crate) fn list(&self) -> Vec<Quarantined> {
        self.lock().entries.values().cloned().collect()
    }

    fn add(
        &self,
        key: (u32, BlockId, Option<u32>),
        samples: u64,
        entry: Quarantined,
    ) -> (u64, bool) {
        let mut bad = self.lock();
        let is_new = bad.entries.insert(key, entry).is_none();
        if is_new {
            bad.samples += samples;
            self.meters.quarantined.add(samples);
        }
        (bad.samples, is_new)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a share of samples needs no more digits"
    )]
    fn is_allowed(&self, bad: u64) -> bool {
        bad as f64 <= self.most_share * self.samples as f64
    }

    fn too_many(&self, bad: u64, last: Quarantined) -> Error {
        Error::TooManyBad {
            bad,
            samples: self.samples,
            most_share: self.most_share,
            shard: last.shard,
            block: last.block,
            row: last.row.unwrap_or(0),
            reason: last.reason,
        }
    }

    fn entry(&self, source: u32, block: BlockId, row: Option<u32>, reason: String) -> Quarantined {
        let block_table = &self.sources[source as usize];
        Quarantined {
            shard: block_table.path(block_table.file_number(block)),
            block: block_table.number(block),
            row,
            key: None,
            samples: row.map_or_else(|| u64::from(block_table.rows(block)), |_| 1),
            reason,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Bad> {
        self.bad.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Quarantine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quarantine")
            .field("samples", &self.lock().samples)
            .finish_non_exhaustive()
    }
}
