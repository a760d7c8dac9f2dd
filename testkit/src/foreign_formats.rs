//! Writes files of datasets in formats that are not ours.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use bytes::Bytes;
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    file::properties::WriterProperties,
};

/// A Parquet file of these columns, zstd-compressed.
pub fn parquet(columns: Vec<(&str, ArrayRef)>, rows_per_group: usize) -> Bytes {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(rows_per_group))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap().into()
}

/// An archive of these members.
pub fn archive(members: &[(String, Vec<u8>)]) -> Bytes {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, data) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, name, data.as_slice())
            .unwrap();
    }
    builder.into_inner().unwrap().into()
}

/// Encoding of an MDS column, and its size if that is fixed.
pub type MdsColumn<'a> = (&'a str, &'a str, Option<u32>);

/// An MDS dataset: index and shards.
#[derive(Debug)]
pub struct Mds<'a> {
    /// Columns of its samples.
    pub columns: &'a [MdsColumn<'a>],
    /// Shards are compressed.
    pub is_packed: bool,
    /// Their entries of the index.
    pub shards: Vec<serde_json::Value>,
    /// Names and bytes of the files of the shards.
    pub files: Vec<(String, Bytes)>,
}

impl<'a> Mds<'a> {
    /// A dataset without shards.
    #[must_use]
    pub const fn new(columns: &'a [MdsColumn<'a>], is_packed: bool) -> Self {
        Self {
            columns,
            is_packed,
            shards: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Adds a shard whose samples have these values, one for each column.
    pub fn shard(&mut self, samples: &[Vec<Vec<u8>>]) {
        let settings = br#"{"size_limit": 67108864}"#;
        let encode = |sample: &Vec<Vec<u8>>| {
            let values = sample.iter().zip(self.columns);
            let lengths = values.filter(|(_, column)| column.2.is_none());
            let mut bytes: Vec<u8> = lengths
                .flat_map(|(value, _)| u32::try_from(value.len()).unwrap().to_le_bytes())
                .collect();
            bytes.extend(sample.concat());
            bytes
        };
        let samples: Vec<_> = samples.iter().map(encode).collect();
        let mut raw = u32::try_from(samples.len()).unwrap().to_le_bytes().to_vec();
        let mut offset = 4 * (samples.len() + 2) + settings.len();
        for length in samples.iter().map(Vec::len).chain([0]) {
            raw.extend(u32::try_from(offset).unwrap().to_le_bytes());
            offset += length;
        }
        raw.extend_from_slice(settings);
        raw.extend(samples.concat());
        let name = format!("shard.{:05}.mds", self.shards.len());
        let entry = |name: &str, bytes: &[u8]| {
            let hash = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(bytes));
            serde_json::json!({"basename": name, "bytes": bytes.len(), "hashes": {"xxh3_64": hash}})
        };
        let (names, encodings, sizes): (Vec<_>, Vec<_>, Vec<_>) = self
            .columns
            .iter()
            .map(|(name, encoding, size)| (*name, *encoding, *size))
            .collect();
        let mut shard = serde_json::json!({
            "column_names": names, "column_encodings": encodings, "column_sizes": sizes,
            "compression": null, "format": "mds", "hashes": ["xxh3_64"], "raw_data": entry(&name, &raw),
            "samples": samples.len(), "size_limit": 67_108_864, "version": 2, "zip_data": null,
        });
        if self.is_packed {
            let packed = zstd::bulk::compress(&raw, 3).unwrap();
            let name = format!("{name}.zstd");
            shard["compression"] = "zstd:3".into();
            shard["zip_data"] = entry(&name, &packed);
            self.files.push((name, packed.into()));
        } else {
            self.files.push((name, raw.into()));
        }
        self.shards.push(shard);
    }

    /// The index of all shards.
    pub fn index(&self) -> Bytes {
        let index = serde_json::json!({"version": 2, "shards": self.shards});
        index.to_string().into_bytes().into()
    }

    /// Writes the dataset below `folder` of `store`.
    pub async fn put(&self, store: &feedline_storage::Store) {
        store.put("index.json", self.index()).await.unwrap();
        for (name, bytes) in &self.files {
            store.put(name, bytes.clone()).await.unwrap();
        }
    }
}

/// An array as an `ArrayRef`.
pub fn column(array: impl arrow::array::Array + 'static) -> ArrayRef {
    Arc::new(array)
}
