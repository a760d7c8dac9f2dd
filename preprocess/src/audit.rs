//! What was written, read back: shards against their manifest entries, keys against the other splits.

use std::{num::NonZero, ops::Range, sync::Arc, thread};

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::{SchemaRef, UInt64Type},
    error::ArrowError,
    ipc::reader::FileReader,
};
use datafusion::{common::runtime::SpawnedTask, error::DataFusionError};
use feedline_schemas::{
    ids::Hash128,
    manifest::{Lengths, Shard, Split, SplitShards},
};
use feedline_storage::Store;
use futures::{StreamExt, TryStreamExt, stream};

use crate::{
    Error,
    shard::{block_bytes, footer_blocks},
};

/// Keys held in memory at a time: 512 MiB. More rows than this are audited in several passes, each over a range of
/// keys.
const KEYS_AT_A_TIME: u64 = 32 << 20;

/// Bytes of the shards that are read at a time, unless one is larger.
const MEMORY: u64 = 160 << 20;

/// Leaked keys that are named.
const SAMPLES: usize = 5;

/// What reading every shard found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) shards: u64,
    pub(crate) blocks: u64,
    pub(crate) rows: u64,
    /// Keys found in more than one split.
    pub(crate) leaked: u64,
    /// Some of them.
    pub(crate) leaks: Vec<String>,
    /// What is wrong with shards.
    pub(crate) problems: Vec<String>,
}

/// Reads every shard of `splits` from `dataset`, some at a time. `schema` says what the shards of a split should look like;
/// `seen` is told the rows of each shard.
pub(crate) async fn audit(
    dataset: &Store,
    splits: &[SplitShards],
    schema: impl Fn(Split) -> SchemaRef,
    seen: impl Fn(u64),
) -> Result<Findings, Error> {
    let rows: u64 = splits.iter().map(|s| s.rows).sum();
    let all = splits.iter().flat_map(|split| &split.shards);
    let largest = all.map(|shard| shard.bytes).max().unwrap_or(0).max(1);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let at_once = usize::try_from(MEMORY / largest).unwrap_or(usize::MAX);
    let at_once = at_once.clamp(1, threads);
    let passes = rows.div_ceil(KEYS_AT_A_TIME).max(1);
    let mut findings = Findings::default();
    for pass in 0..passes {
        let mut keys: Vec<(u64, u8)> = Vec::new();
        for split in splits {
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
                let Some((found, shard_keys)) = checks.try_next().await? else {
                    break;
                };
                if pass == 0 {
                    findings.shards += 1;
                    findings.blocks += shard.blocks.len() as u64;
                    findings.rows += shard_keys.len() as u64;
                    findings.problems.extend(
                        found
                            .into_iter()
                            .map(|p| format!("shard `{}`: {p}", shard.path)),
                    );
                    seen(shard.rows);
                }
                let range = range(pass, passes);
                let here = shard_keys
                    .into_iter()
                    .filter(|key| range.contains(&u128::from(*key)));
                keys.extend(here.map(|key| (key, crate::split::code(split.split))));
            }
        }
        find_leaks(keys, &mut findings);
    }
    Ok(findings)
}

/// The part of all 64-bit keys that `pass` of `passes` looks at.
fn range(pass: u64, passes: u64) -> Range<u128> {
    let edge = |pass: u64| (u128::from(pass) << 64) / u128::from(passes);
    edge(pass)..edge(pass + 1)
}

/// Leaves the keys of the largest split that may be in another, and those of the others. A key is a hash, so its lower bits say
/// where in a filter it has its own.
fn leave_suspects(keys: &mut Vec<(u64, u8)>) {
    const FILTER_BITS: usize = 16;
    let rows = |split: &u8| keys.iter().filter(|(_, own)| own == split).count();
    let Some(largest) = (0..).take(Split::ALL.len()).max_by_key(rows) else {
        return;
    };
    let words = ((keys.len() - rows(&largest)) * FILTER_BITS).div_ceil(64);
    let mut filter = vec![0_u64; words.next_power_of_two()];
    let mask = filter.len() as u64 * 64 - 1;
    let place = |key: u64| {
        let bit = key & mask;
        let word = usize::try_from(bit / 64).expect("it lies in the filter");
        (word, 1 << (bit % 64))
    };
    for (key, _) in keys.iter().filter(|(_, split)| *split != largest) {
        let (word, bit) = place(*key);
        filter[word] |= bit;
    }
    keys.retain(|(key, split)| {
        let (word, bit) = place(*key);
        *split != largest || filter[word] & bit != 0
    });
}

fn find_leaks(mut keys: Vec<(u64, u8)>, findings: &mut Findings) {
    leave_suspects(&mut keys);
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

/// What is wrong with one shard, and its keys when the file is whole.
async fn check(
    dataset: Store,
    shard: Shard,
    schema: SchemaRef,
) -> Result<(Vec<String>, Vec<u64>), Error> {
    let mut keys = Vec::new();
    let bytes = match dataset.get(&shard.path).await {
        Ok(bytes) => bytes,
        Err(e) if e.is_not_found() => return Ok((vec!["the file does not exist".into()], keys)),
        Err(e) => return Err(e.into()),
    };
    let mut problems = Vec::new();
    if bytes.len() as u64 != shard.bytes {
        problems.push(format!(
            "the file has {} bytes, the manifest says {}",
            bytes.len(),
            shard.bytes
        ));
    }
    for (i, block) in shard.blocks.iter().enumerate() {
        let found = block_bytes(&bytes, block.offset, block.metadata_bytes, block.body_bytes)
            .map(crc32c::crc32c);
        if found != Some(block.crc32c) {
            problems.push(format!(
                "block {i} at offset {} is damaged: its checksum differs",
                block.offset
            ));
        }
    }
    let hash = Hash128::of(&bytes);
    if hash != shard.hash {
        problems.push(format!(
            "the file's hash is {hash}, the manifest says {}",
            shard.hash
        ));
    }
    let mut lengths = None;
    if let Some(listed) = &shard.lengths {
        match lengths_of(&dataset, listed, shard.rows).await? {
            Ok(found) => lengths = Some(found),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() {
        problems.extend(check_table(&bytes, &shard)?);
        match read(&bytes, &shard, &schema, lengths.as_deref(), &mut keys) {
            Ok(found) => problems.extend(found),
            Err(e) => problems.push(format!("the file is not a readable Arrow file: {e}")),
        }
    }
    Ok((problems, keys))
}

/// The lengths of a shard's documents, or what is wrong with their file.
async fn lengths_of(
    dataset: &Store,
    listed: &Lengths,
    rows: u64,
) -> Result<Result<Vec<u32>, String>, Error> {
    let bytes = dataset.get_opt(&listed.path).await?.unwrap_or_default();
    if bytes.len() as u64 != rows * 4 || crc32c::crc32c(&bytes) != listed.crc32c {
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

/// The footer's block table against the manifest's.
fn check_table(bytes: &[u8], shard: &Shard) -> Result<Option<String>, Error> {
    let expected: Vec<_> = shard
        .blocks
        .iter()
        .map(|b| (b.offset, b.metadata_bytes, b.body_bytes))
        .collect();
    let differs = footer_blocks(bytes)? != expected;
    Ok(differs.then(|| "the footer's block table differs from the manifest's".to_owned()))
}

/// Reads all blocks as any Arrow reader would.
fn read(
    bytes: &[u8],
    shard: &Shard,
    schema: &SchemaRef,
    lengths: Option<&[u32]>,
    keys: &mut Vec<u64>,
) -> Result<Vec<String>, ArrowError> {
    let mut problems = Vec::new();
    let reader = FileReader::try_new(std::io::Cursor::new(bytes), None)?;
    if reader.schema() != *schema {
        problems.push("its schema is not the one the manifest describes".into());
        return Ok(problems);
    }
    let mut rows = Vec::new();
    let mut tokens = Vec::new();
    let mut found_lengths = Vec::new();
    for batch in reader {
        let batch: RecordBatch = batch?;
        rows.push(batch.num_rows() as u64);
        let documents = batch
            .column_by_name("tokens")
            .and_then(|column| column.as_list_opt::<i32>());
        tokens.push(documents.map(|documents| documents.values().len() as u64));
        let each = documents.into_iter().flat_map(|d| d.offsets().lengths());
        found_lengths.extend(each.map(|length| u32::try_from(length).unwrap_or(u32::MAX)));
        let column = batch
            .column_by_name("key")
            .ok_or_else(|| ArrowError::SchemaError("no column `key`".into()))?;
        keys.extend_from_slice(column.as_primitive::<UInt64Type>().values());
    }
    let expected: Vec<u64> = shard.blocks.iter().map(|b| u64::from(b.rows)).collect();
    if rows != expected || rows.iter().sum::<u64>() != shard.rows {
        problems.push("the rows of its blocks are not those the manifest says".into());
    }
    let listed: Vec<Option<u64>> = shard.blocks.iter().map(|b| b.tokens).collect();
    if tokens != listed || lengths.is_some_and(|lengths| lengths != found_lengths) {
        problems.push("its documents are not as long as the manifest says".into());
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaks(passes: u64, keys: &[(u64, u8)]) -> (u64, Vec<String>) {
        let mut findings = Findings::default();
        for pass in 0..passes {
            let range = range(pass, passes);
            let here = keys
                .iter()
                .copied()
                .filter(|(key, _)| range.contains(&u128::from(*key)));
            find_leaks(here.collect(), &mut findings);
        }
        (findings.leaked, findings.leaks)
    }

    #[test]
    fn leaks_are_found_in_any_number_of_passes() {
        let keys: Vec<(u64, u8)> = vec![
            (0, 0),
            (7, 0),
            (7, 0),
            (u64::MAX, 2),
            (1 << 63, 1),
            (0, 2),
            (u64::MAX, 1),
            ((1 << 63) - 1, 0),
        ];
        // Many that are in one split alone change nothing.
        let mut many = keys.clone();
        for (i, split) in (0..5000_u64).zip([1, 0, 1, 1, 2].into_iter().cycle()) {
            let key = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 20 | 1 << 40;
            many.push((key, split));
        }
        let expected = [
            "key `0000000000000000` in train and test",
            "key `ffffffffffffffff` in validation and test",
        ];
        for passes in [1, 2, 3, 7] {
            for keys in [&keys, &many] {
                assert_eq!(
                    leaks(passes, keys),
                    (2, expected.map(str::to_owned).to_vec())
                );
            }
        }
    }
}
