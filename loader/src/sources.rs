//! The inputs of a loader, and what happens to blocks that cannot be used.

use std::sync::Arc;

use crate::{
    CacheMetrics, Error,
    assembly::block_types::LoadedBlock,
    block_table::BlockId,
    cache::CachedExtents,
    class_balance::rows_by_class::ByClass,
    fetch::{Ahead, Extent, Extents, budget::Permit},
    input::{OpenedSplit, block_rows::BlockRows},
    metrics::Meters,
    order::{Need, balance::Balance},
    quarantine::Quarantine,
    source_block::SourceBlock,
};

/// The inputs by source number.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) inputs: Vec<SourceInput>,
    pub(crate) quarantine: Arc<Quarantine>,
    pub(crate) meters: Arc<Meters>,
}

/// An input and where its bytes come from.
#[derive(Debug)]
pub(crate) struct SourceInput {
    pub(crate) input: Arc<OpenedSplit>,
    pub(crate) extents: Arc<dyn Extents>,
    /// The same, when they come through a cache.
    pub(crate) cache: Option<Arc<CachedExtents>>,
    /// Most bytes of blocks that are asked for together; 0 where that saves nothing.
    pub(crate) joined_bytes: u64,
    /// True when its rows are pieces of one stream of tokens, across documents.
    pub(crate) is_stream: bool,
    /// Ids of a row that holds one document, which longer ones are truncated to.
    pub(crate) document_length: Option<u32>,
    /// Balance of its classes, if they are balanced.
    pub(crate) balance: Option<Arc<Balance>>,
}

impl Sources {
    /// Bytes that a block takes in memory.
    pub(crate) fn block_bytes(&self, (source, block): SourceBlock) -> u64 {
        self.inputs[source as usize].input.block_bytes(block)
    }

    /// Source of the bytes of a block.
    pub(crate) fn extents(&self, need: Need) -> &dyn Extents {
        &*self.inputs[need.source as usize].extents
    }

    /// Returns true if `next` is to be read together with `count` blocks from `first` on that are
    /// read together.
    pub(crate) fn joins(&self, first: &Need, count: usize, next: &Need) -> bool {
        let source = &self.inputs[first.source as usize];
        let follows = first.block as usize + count == next.block as usize;
        (next.source, next.first) == (first.source, first.first)
            && follows
            && source
                .input
                .block_table()
                .joins(first.block, next.block, source.joined_bytes)
    }

    /// Reads what is known to be needed for blocks of one source.
    pub(crate) async fn read_ahead(&self, run: &[Need]) -> Ahead<'_> {
        let source = &self.inputs[run[0].source as usize];
        let parts = run
            .iter()
            .flat_map(|need| source.input.parts(need.block, need.first));
        Ahead::read(&*source.extents, &parts.collect::<Vec<_>>()).await
    }

    /// Returns true if a source has a cache.
    pub(crate) fn has_cache(&self) -> bool {
        self.inputs.iter().any(|source| source.cache.is_some())
    }

    /// Extents to read for `needs`, of each source, as far as they are known beforehand.
    pub(crate) fn plans(&self, needs: impl Iterator<Item = Need>) -> Vec<Vec<Extent>> {
        let mut plans = vec![Vec::new(); self.inputs.len()];
        for need in needs {
            let source = need.source as usize;
            plans[source].extend(self.inputs[source].input.parts(need.block, need.first));
        }
        plans
    }

    /// Has the caches find out what they need to know about the files of these plans.
    pub(crate) async fn learn(&self, plans: &[Vec<Extent>]) {
        for (source, plan) in self.inputs.iter().zip(plans) {
            if let Some(cache) = &source.cache {
                cache.learn(plan).await;
            }
        }
    }

    /// Gives the caches a plan of reads, to follow those that they have.
    pub(crate) fn foresee(&self, plans: &[Vec<Extent>]) {
        for (source, plan) in self.inputs.iter().zip(plans) {
            if let Some(cache) = &source.cache {
                cache.foresee(plan);
            }
        }
    }

    /// Waits until the caches have on disk what they were given, or gave it up.
    pub(crate) async fn flush(&self) {
        for source in &self.inputs {
            if let Some(cache) = &source.cache {
                cache.flush().await;
            }
        }
    }

    /// Totals of all caches.
    pub(crate) fn cache_metrics(&self) -> CacheMetrics {
        let caches = self
            .inputs
            .iter()
            .filter_map(|source| source.cache.as_ref());
        caches.fold(CacheMetrics::default(), |total, cache| {
            total.plus(cache.counters())
        })
    }

    /// A block as messages name it.
    pub(crate) fn name(&self, source: u32, block: BlockId) -> String {
        let block_table = self.inputs[source as usize].input.block_table();
        let path = block_table.path(block_table.file_number(block));
        format!("block `{}` of `{path}`", block_table.number(block))
    }

    /// Blocks of all sources that were read twice because their bytes were not the right ones.
    pub(crate) fn rereads(&self) -> u64 {
        self.inputs
            .iter()
            .map(|source| source.input.rereads())
            .sum()
    }

    /// Reads a block by `extents`, which are those of its source. A damaged block is replaced by
    /// the next intact one of its source that has as many rows, and of a stream as many tokens, as
    /// long as so many samples may be replaced.
    ///
    /// # Errors
    /// Errors of the input.
    pub(crate) async fn load(
        &self,
        need: Need,
        permit: Permit,
        extents: &dyn Extents,
    ) -> Result<LoadedBlock, Error> {
        let source = &self.inputs[need.source as usize];
        let mut block = need.block;
        loop {
            let read = source.input.read(block, need.first, extents).await;
            match read {
                Ok(rows) => {
                    let by_class = source.by_class(block, &rows)?;
                    for bad in rows.bad() {
                        let row = (bad.row, rows.keys().get(bad.row as usize).copied());
                        self.quarantine
                            .add_row(need.source, block, row, bad.reason.clone())?;
                    }
                    if let Some(length) = source.document_length {
                        source.input.warn_of_truncated(&rows, length);
                    }
                    self.meters.blocks.add(1);
                    self.meters.block_bytes.add(source.input.block_bytes(block));
                    return Ok(LoadedBlock {
                        rows,
                        source: need.source,
                        block,
                        by_class,
                        _permit: permit,
                    });
                }
                Err(error) => match self.stand_in(need, block, &error) {
                    Some(next) => block = next,
                    None => return Err(error),
                },
            }
        }
    }

    /// The block to use in place of one that is damaged.
    fn stand_in(&self, need: Need, damaged: BlockId, error: &Error) -> Option<BlockId> {
        let Error::Corrupt { reason, .. } = error else {
            return None;
        };
        let source = &self.inputs[need.source as usize];
        let block_table = source.input.block_table();
        let rows = block_table.rows(need.block);
        let tokens = |block| source.is_stream.then(|| source.input.tokens(block));
        let next = (damaged + 1..block_table.block_count())
            .chain(0..need.block)
            .find(|block| block_table.rows(*block) >= rows && tokens(*block) >= tokens(need.block))
            .filter(|next| *next != need.block)?;
        if !self.quarantine.try_add_block(need.source, damaged, reason) {
            return None;
        }
        tracing::warn!(
            error = %error,
            stand_in = next,
            "a damaged block was quarantined and another is used in its place"
        );
        Some(next)
    }
}

impl SourceInput {
    /// The rows of a block by class, where classes are balanced.
    ///
    /// # Errors
    /// [`Error::File`], when there are not as many of each as were counted: the targets that were read then have no
    /// checksum of their own.
    fn by_class(&self, block: BlockId, rows: &BlockRows) -> Result<Option<ByClass>, Error> {
        let (Some(balance), Some(classes)) = (&self.balance, self.input.record().classes()) else {
            return Ok(None);
        };
        let by_class = ByClass::new(rows.classes(), classes);
        if balance.counts(block).eq(by_class.counts().iter().copied()) {
            return Ok(Some(by_class));
        }
        Err(Error::File {
            url: self.input.url_of(block),
            reason: format!(
                "block `{}` has other classes than were counted when the loader was opened, which were damaged on the \
                 way; open the loader again",
                self.input.block_table().number(block)
            ),
        })
    }
}
