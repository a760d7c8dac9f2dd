//! Blocks that stay in memory from one pass to the next, where the whole split fits.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{assembly::block_types::LoadedBlock, source_block::SourceBlock};

/// Blocks of all passes of a loader; always empty where they would not all fit.
#[derive(Debug)]
pub(crate) struct EpochCache {
    fits: bool,
    blocks: Mutex<HashMap<SourceBlock, Arc<LoadedBlock>>>,
}

impl EpochCache {
    /// Keeps blocks if `fits`.
    pub(crate) fn new(fits: bool) -> Self {
        Self {
            fits,
            blocks: Mutex::default(),
        }
    }

    /// A block of an earlier pass.
    pub(crate) fn get(&self, block: SourceBlock) -> Option<Arc<LoadedBlock>> {
        if !self.fits {
            return None;
        }
        let blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.get(&block).map(Arc::clone)
    }

    /// Keeps a block for later passes.
    pub(crate) fn put(&self, block: SourceBlock, rows: &Arc<LoadedBlock>) {
        if self.fits {
            let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
            blocks.insert(block, Arc::clone(rows));
        }
    }
}
