//! Blocks of several sources.

use crate::block_table::BlockId;

/// A block of a source: the number of the source, and that of the block in it.
pub(crate) type SourceBlock = (u32, BlockId);
