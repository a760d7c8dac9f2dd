//! Fuzz targets: each reads the bytes of one format, and checks what must hold for any bytes.
//!
//! They are built for tests, which replay `fuzz/corpus/`, and for `cargo fuzz`, which sets
//! `cfg(fuzzing)`.

#![expect(
    clippy::missing_panics_doc,
    reason = "a panic is the finding of a target"
)]

use bytes::Bytes;
use feedline_schemas::manifest::{Block, Layout, TargetKind, TokenType};

use crate::input::{block_rows, columns::ShardColumns};
pub use crate::input::{
    fuzzing::{parquet_dataset, webdataset},
    mds_fuzzing::mds,
    webdataset_fuzzing::webdataset_labels,
};

/// A shard of our own: two bytes of the length of its head, two of the length of a block's
/// metadata, a byte of its rows, the head and the block. Its checksums fit.
///
/// A block that is accepted has the rows that were said.
pub fn shard(data: &[u8]) {
    let Some(([h0, h1, m0, m1, rows], bytes)) = data.split_first_chunk() else {
        return;
    };
    let head = usize::from(u16::from_le_bytes([*h0, *h1]));
    let metadata = u16::from_le_bytes([*m0, *m1]);
    let Some((head, block)) = bytes.split_at_checked(head) else {
        return;
    };
    let Some(body) = block.len().checked_sub(metadata.into()) else {
        return;
    };
    let target = TargetKind::Classification { classes: 5 };
    for layout in [
        Layout::Dense {
            features: 3,
            target,
        },
        Layout::Images { target },
        Layout::Tokens {
            id: TokenType::U16,
            vocabulary: 100,
        },
    ] {
        let Ok(columns) = ShardColumns::read(head, &layout) else {
            continue;
        };
        let described = Block {
            offset: head.len() as u64,
            metadata_bytes: metadata.into(),
            body_bytes: body as u64,
            rows: (*rows).into(),
            crc32c: 0,
            tokens: None,
        };
        let block = Bytes::copy_from_slice(block);
        match block_rows::decode(block, &described, &columns, &layout) {
            Ok(read) => {
                assert_eq!(read.rows(), usize::from(*rows));
                assert_eq!(read.keys().len(), read.rows());
                assert_eq!(read.origins().len(), read.rows());
                for row in 0..read.rows() {
                    read.image(row);
                }
            }
            Err(reason) => assert!(!reason.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    feedline_testkit::fuzz_replay::replays! { mds parquet_dataset shard webdataset webdataset_labels }
}
