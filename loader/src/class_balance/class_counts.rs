//! Counting the classes of a source when it is opened.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::rows_by_class::ByClass;
use crate::{
    Error, LoaderConfig,
    block_table::BlockId,
    order::{ClassBalance, balance::Balance},
    sources::SourceInput,
};

/// Reads the targets of all blocks and balances their classes.
///
/// For our own shards this takes two small requests for each block: one to locate the targets, one
/// for them. Files of other formats are read completely. At most [`LoaderConfig::reads`] run at a
/// time.
///
/// # Errors
/// [`Error::Config`], when there are no classes or weights do not fit them; errors of reading.
pub(crate) async fn balance(
    source: &SourceInput,
    extents: Option<Vec<BlockId>>,
    weights: &ClassBalance,
    config: &LoaderConfig,
) -> Result<Arc<Balance>, Error> {
    let refuse = |reason| Error::Config {
        key: "class_balance",
        reason,
    };
    let Some(classes) = source.input.record().classes() else {
        let reason = "the dataset has no classes as targets, leave it out";
        return Err(refuse(reason.into()));
    };
    // Otherwise only the largest class of these files is known, and others may be in another split or dataset.
    let input = &source.input;
    let has_names = input.manifest().is_some() || input.known_class_names().is_some();
    let is_declared = has_names || config.input.target.is_some();
    if let ClassBalance::Weighted(given) = weights
        && is_declared
        && given.len() as u64 > u64::from(classes)
    {
        return Err(refuse(format!(
            "it has `{}` weights and the dataset has `{classes}` classes, give each class one",
            given.len()
        )));
    }
    let reads =
        (0..source.input.block_table().block_count()).map(|block| counts(source, block, classes));
    let counts: Vec<_> = stream::iter(reads)
        .buffered(config.reads as usize)
        .try_collect()
        .await?;
    let balance = Balance::new(counts, weights, extents).map_err(refuse)?;
    Ok(Arc::new(balance))
}

async fn counts(
    source: &SourceInput,
    block: BlockId,
    classes: u32,
) -> Result<Vec<(u32, u32)>, Error> {
    let labels = source.input.classes(block, &*source.extents).await?;
    Ok(ByClass::new(&labels, classes).counts().to_vec())
}
