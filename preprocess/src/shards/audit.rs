//! Audit of a written dataset: shards against their manifest entries, keys against the other
//! splits.

use std::{num::NonZero, ops::Range, sync::Arc, thread};

use arrow::datatypes::SchemaRef;
use datafusion::{common::runtime::SpawnedTask, error::DataFusionError};
use feedline_schemas::manifest::{Lengths, Shard, Split, SplitShards};
use feedline_storage::Store;
use futures::{StreamExt, TryStreamExt, stream};

use self::read::Source;
use crate::Error;

mod read;

/// Keys held in memory at a time: 256 MiB, and twice as much for those that may be in several splits. More rows than this are
/// audited in several passes, each over a range of keys.
const KEYS_AT_A_TIME: u64 = 32 << 20;

/// Bytes of shards that are in memory at a time, unless one has more there.
const MEMORY: u64 = 160 << 20;

/// Leaked keys that are named.
const SAMPLES: usize = 5;

/// The keys of some rows of the split with this code.
pub(crate) type Keys = (u8, Vec<u64>);

/// Findings over all shards.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) shards: u64,
    pub(crate) blocks: u64,
    pub(crate) rows: u64,
    /// Keys found in more than one split.
    pub(crate) leaked: u64,
    /// Some of them.
    pub(crate) leaks: Vec<String>,
    /// Faults of shards.
    pub(crate) problems: Vec<String>,
}

/// Reads every shard of `splits` from `dataset`, some at a time. `schema` gives the expected schema
/// of a split's shards; `seen` gets the rows of each shard.
pub(crate) async fn audit(
    dataset: &Store,
    splits: &[SplitShards],
    schema: impl Fn(Split) -> SchemaRef,
    seen: impl Fn(u64),
) -> Result<Findings, Error> {
    let rows: u64 = splits.iter().map(|s| s.rows).sum();
    let is_local = dataset.local_files().is_some();
    let all = splits.iter().flat_map(|split| &split.shards);
    let largest = all.map(|shard| held(shard, is_local)).max().unwrap_or(0);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let at_once = MEMORY / largest.max(1);
    let at_once = usize::try_from(at_once).map_or(threads, |most| most.clamp(1, threads));
    let passes = rows.div_ceil(KEYS_AT_A_TIME).max(1);
    let mut findings = Findings::default();
    for pass in 0..passes {
        let mut keys: Vec<Keys> = Vec::new();
        for split in splits {
            let code = crate::operators::split::code(split.split);
            let expected = schema(split.split);
            let checks = split.shards.iter().map(|shard| {
                let check = check(dataset.clone(), shard.clone(), Arc::clone(&expected));
                async move {
                    // Dropped with what waits for it.
                    let checked = SpawnedTask::spawn(check).join().await;
                    checked.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?
                }
            });
            let mut checks = stream::iter(checks).buffered(at_once);
            for shard in &split.shards {
                let Some((found, mut own)) = checks.try_next().await? else {
                    break;
                };
                if pass == 0 {
                    findings.shards += 1;
                    findings.blocks += shard.blocks.len() as u64;
                    findings.rows += own.len() as u64;
                    findings.problems.extend(
                        found
                            .into_iter()
                            .map(|p| format!("shard `{}`: {p}", shard.path)),
                    );
                    seen(shard.rows);
                }
                if passes > 1 {
                    let range = range(pass, passes);
                    own.retain(|key| range.contains(&u128::from(*key)));
                }
                own.shrink_to_fit();
                keys.push((code, own));
            }
        }
        find_leaks(keys, &mut findings);
    }
    Ok(findings)
}

/// Bytes of a shard that are in memory at a time: of a local file those of a block, else all.
fn held(shard: &Shard, is_local: bool) -> u64 {
    let blocks = shard.blocks.iter();
    let largest =
        blocks.map(|block| u64::from(block.metadata_bytes).saturating_add(block.body_bytes));
    match is_local {
        true => largest.max().unwrap_or(0),
        false => shard.bytes,
    }
}

/// The part of all 64-bit keys that `pass` of `passes` looks at.
fn range(pass: u64, passes: u64) -> Range<u128> {
    let edge = |pass: u64| (u128::from(pass) << 64) / u128::from(passes);
    edge(pass)..edge(pass + 1)
}

/// The keys of the largest split that may be in another, and all those of the others. A key is a hash, so its lower bits say
/// where in a filter it has its own.
pub(crate) fn suspects(keys: Vec<Keys>) -> Vec<(u64, u8)> {
    const FILTER_BITS: usize = 16;
    let mut rows = [0; Split::ALL.len()];
    for (split, own) in &keys {
        rows[usize::from(*split)] += own.len();
    }
    let largest = (0..).zip(rows).max_by_key(|(_, rows)| *rows);
    let (largest, most) = largest.unwrap_or_default();
    let others = rows.iter().sum::<usize>() - most;
    let words = (others * FILTER_BITS).div_ceil(64);
    let mut filter = vec![0_u64; words.next_power_of_two()];
    let mask = filter.len() as u64 * 64 - 1;
    let place = |key: u64| {
        let bit = key & mask;
        let word = usize::try_from(bit / 64).expect("it is within the filter");
        (word, 1 << (bit % 64))
    };
    let mut found = Vec::with_capacity(others);
    for (split, own) in keys.iter().filter(|(split, _)| *split != largest) {
        for key in own {
            let (word, bit) = place(*key);
            filter[word] |= bit;
            found.push((*key, *split));
        }
    }
    for (split, own) in keys.into_iter().filter(|(split, _)| *split == largest) {
        let own = own.into_iter().filter(|key| {
            let (word, bit) = place(*key);
            filter[word] & bit != 0
        });
        found.extend(own.map(|key| (key, split)));
    }
    found
}

fn find_leaks(keys: Vec<Keys>, findings: &mut Findings) {
    let mut keys = suspects(keys);
    keys.sort_unstable();
    for group in keys.chunk_by(|a, b| a.0 == b.0) {
        let (first, last) = (group[0], group[group.len() - 1]);
        if first.1 == last.1 {
            continue;
        }
        findings.leaked += 1;
        if findings.leaks.len() < SAMPLES {
            let name = |code: u8| Split::ALL[usize::from(code)];
            findings.leaks.push(format!(
                "key `{:016x}` in {} and {}",
                first.0,
                name(first.1),
                name(last.1)
            ));
        }
    }
}

/// Checks one shard and returns its faults, and its keys if the file is intact.
async fn check(
    dataset: Store,
    shard: Shard,
    schema: SchemaRef,
) -> Result<(Vec<String>, Vec<u64>), Error> {
    let mut source = match dataset.local_files() {
        Some(files) => Source::local(files, &shard.path),
        None => match dataset.get(&shard.path).await {
            Ok(bytes) => Source::Whole(bytes.into()),
            Err(e) if e.is_not_found() => return Ok(read::absent()),
            Err(e) => return Err(e.into()),
        },
    };
    let lengths = match &shard.lengths {
        Some(listed) => Some(lengths_of(&dataset, listed, shard.rows).await?),
        None => None,
    };
    let work = move || read::check(&mut source, &shard, &schema, lengths);
    let worked = SpawnedTask::spawn_blocking(work).join().await;
    worked.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?
}

/// The lengths of a shard's documents, or what is wrong with their file.
async fn lengths_of(
    dataset: &Store,
    listed: &Lengths,
    rows: u64,
) -> Result<Result<Vec<u32>, String>, Error> {
    let bytes = dataset.get_opt(&listed.path).await?.unwrap_or_default();
    if rows.checked_mul(4) != Some(bytes.len() as u64) || crc32c::crc32c(&bytes) != listed.crc32c {
        let path = &listed.path;
        return Ok(Err(format!(
            "the lengths of its documents, `{path}`, are missing or damaged"
        )));
    }
    let numbers = bytes.as_chunks::<4>().0.iter();
    Ok(Ok(numbers
        .map(|bytes| u32::from_le_bytes(*bytes))
        .collect()))
}

#[cfg(test)]
mod tests;
