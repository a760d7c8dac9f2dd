//! Session of the engine for the queries of a build: its memory, its disk and its stores.

use std::{ops::RangeInclusive, path::Path, sync::Arc};

use datafusion::{
    execution::{
        disk_manager::{DiskManagerBuilder, DiskManagerMode},
        runtime_env::RuntimeEnvBuilder,
    },
    prelude::{SessionConfig, SessionContext},
};

use crate::{
    Context, Error,
    engine::{Engine, memory_pool::BoundedPool, store_urls},
    operators::split,
    source::superseded_files::WithSuperseded,
    statistics::aggregates,
};

/// Memory each partition of a sort keeps for merging, at most; the engine's own default.
const SORT_RESERVE: usize = 10 << 20;

/// Rows of a batch: the engine's own default, fewer under a tight memory limit.
const BATCH_ROWS: RangeInclusive<usize> = 64..=8192;

/// Bytes of a batch of images or documents, about.
const PAYLOAD_BATCH: u64 = 32 << 20;

/// Rough size of a row's system columns and of another cell, in bytes, to choose the size of batches by.
const SYSTEM_BYTES: usize = 64;
const CELL_BYTES: usize = 16;

/// An engine session that spills to `spill` and reads the landing zone; its frames have about `columns` columns, and a
/// payload of `payload_bytes`. What is joined on has `joined_bytes`.
pub(crate) fn session(
    context: &Context,
    spill: &Path,
    columns: usize,
    payload_bytes: Option<u64>,
    joined_bytes: u64,
) -> Result<SessionContext, Error> {
    // A hash join holds one side in memory, one that sorts neither; with one partition the engine only knows the first.
    let sorts = context
        .memory_bytes
        .is_some_and(|bytes| joined_bytes >= bytes / 8);
    let sorts = sorts || !context.engine.is_local();
    let partitions = context.partitions.max(if sorts { 2 } else { 1 });
    let config = SessionConfig::new()
        .with_target_partitions(partitions)
        .with_collect_statistics(false);
    let mut config = split::names_as_written(config);
    let disk = DiskManagerBuilder::default()
        .with_mode(DiskManagerMode::Directories(vec![spill.to_owned()]))
        .with_max_temp_directory_size(u64::MAX);
    if let Some(bytes) = payload_bytes {
        let rows = PAYLOAD_BATCH / bytes.max(1);
        config = config.with_batch_size(clamped(rows));
    }
    config.options_mut().optimizer.prefer_hash_join = !sorts;
    let mut runtime = RuntimeEnvBuilder::new().with_disk_manager_builder(disk);
    if let Some(bytes) = context.memory_bytes {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // The reserves of all partitions together must leave room for the rows, and every merge holds a batch of
        // each of its inputs.
        let reserve = SORT_RESERVE.min(bytes / (16 * partitions));
        config.options_mut().execution.sort_spill_reservation_bytes = reserve;
        let payload = usize::try_from(payload_bytes.unwrap_or(0)).unwrap_or(usize::MAX);
        let row_bytes = (SYSTEM_BYTES + CELL_BYTES * columns).saturating_add(payload);
        let batch_rows = bytes / row_bytes.saturating_mul(64 * partitions);
        config = config.with_batch_size(clamped(batch_rows as u64));
        runtime = runtime.with_memory_pool(Arc::new(BoundedPool::new(bytes, reserve)));
    }
    let runtime = runtime.build_arc()?;
    let session = match &context.engine {
        Engine::Local => SessionContext::new_with_config_rt(config, runtime),
        #[cfg(feature = "cluster")]
        Engine::Cluster(cluster) => cluster.session(config, runtime, &context.root)?,
    };
    aggregates::register(&session);
    let (_, store, _) = context.root.object_store();
    let store = Arc::new(WithSuperseded(store));
    session.register_object_store(store_urls::url_of(&context.root)?.as_ref(), store);
    Ok(session)
}

/// Rows of a batch when so many would suit.
fn clamped(rows: u64) -> usize {
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    rows.clamp(*BATCH_ROWS.start(), *BATCH_ROWS.end())
}
