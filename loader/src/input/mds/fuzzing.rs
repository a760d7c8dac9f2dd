//! Fuzz target of MDS datasets.

use super::*;
use crate::input::config::ColumnMap;

/// The index of an MDS dataset up to its first byte 0, then the bytes of one shard.
///
/// Blocks of a shard whose offsets fit fill its bytes, and each has the rows that it should.
pub fn mds(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0);
    let (text, shard) = data.split_at(end.unwrap_or(data.len()));
    let shard = Bytes::copy_from_slice(shard.get(1..).unwrap_or_default());
    let Ok(index) = MdsIndex::read(text) else {
        return;
    };
    index.unchecked_hashes();
    for columns in [
        ColumnMap::default(),
        ColumnMap {
            image: Some("image".to_owned()),
            ..ColumnMap::default()
        },
        ColumnMap {
            tokens: Some("tokens".to_owned()),
            key: Some("key".to_owned()),
            ..ColumnMap::default()
        },
        ColumnMap {
            x: vec!["x".to_owned()],
            y: Some("y".to_owned()),
            ..ColumnMap::default()
        },
    ] {
        let config = InputConfig {
            columns,
            ..InputConfig::default()
        };
        let warnings = Arc::new(Warnings::new("memory".to_owned()));
        if let Ok((wanted, _)) = ChosenMdsColumns::find(&index, &config, &warnings) {
            read_shard(&index.shards[0], &shard, &wanted);
        }
    }
}

/// Reads the blocks of a shard, as [`Mds::read`] does.
fn read_shard(entry: &ShardEntry, stored: &Bytes, wanted: &ChosenMdsColumns) {
    let unpacked = match entry.zip_data {
        // A length of gigabytes would be the memory that it says.
        Some(_) if entry.raw_data.bytes > 1 << 20 => return,
        Some(_) => unpack(stored, entry),
        None => Ok(stored.clone()),
    };
    let Ok(raw) = unpacked else { return };
    let head = head_of(entry, &raw);
    let Ok(bounds) = bounds(head, entry, 3) else {
        return;
    };
    for (number, pair) in bounds.windows(2).enumerate() {
        assert!(pair[0] <= pair[1]);
        if pair[1] > raw.len() as u64 {
            return;
        }
        let rows = (entry.samples as usize - 3 * number).min(3);
        let block = raw.slice(at(pair[0])..at(pair[1]));
        if let Ok((mut read, keyed)) = wanted.rows(&block, rows) {
            read.name((!keyed).then(|| vec![0; rows]), vec![0; rows]);
            assert_eq!(read.rows(), rows);
        }
    }
}

/// The table of offsets of a plain shard, which is read alone.
fn head_of<'a>(entry: &ShardEntry, raw: &'a [u8]) -> &'a [u8] {
    let bytes = at(index::head_bytes(entry.samples));
    raw.get(..bytes).unwrap_or(raw)
}
