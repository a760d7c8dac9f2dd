//! `index.json` of an MDS dataset.

use std::collections::BTreeMap;

use serde::Deserialize;
use xxhash_rust::xxh3::Xxh3;

/// Most bytes of a shard: its offsets have 32 bits.
const MOST_SHARD: u64 = 1 << 32;

/// The index.
#[derive(Debug, Deserialize)]
pub(super) struct MdsIndex {
    version: u32,
    pub(super) shards: Vec<ShardEntry>,
    /// Roles of the columns, of an export of feedline.
    #[serde(default, rename = "feedline.columns")]
    pub(super) roles: Option<serde_json::Value>,
}

/// A shard as the index has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct ShardEntry {
    version: u32,
    format: String,
    pub(super) column_names: Vec<String>,
    pub(super) column_encodings: Vec<String>,
    pub(super) column_sizes: Vec<Option<u32>>,
    compression: Option<String>,
    pub(super) raw_data: FileEntry,
    pub(super) zip_data: Option<FileEntry>,
    pub(super) samples: u32,
}

/// A file as the index has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct FileEntry {
    pub(super) basename: String,
    pub(super) bytes: u64,
    #[serde(default)]
    pub(super) hashes: BTreeMap<String, String>,
}

/// Bytes before the settings in a shard: the number of samples and the offsets.
pub(super) fn head_bytes(samples: u32) -> u64 {
    4 * (u64::from(samples) + 2)
}

impl MdsIndex {
    /// Parses an index.
    ///
    /// # Errors
    /// Description of the error in the index.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let index: Self = serde_json::from_slice(text)
            .map_err(|e| format!("it is not the index of an MDS dataset: {e}"))?;
        if index.version != 2 {
            return Err(format!(
                "it has version `{}`, and only `2` can be read",
                index.version
            ));
        }
        let mut shards = index.shards.iter();
        if let Some(first) = index.shards.first() {
            shards.try_for_each(|shard| shard.check(first))?;
        }
        Ok(index)
    }

    /// The first shard with hashes that are all of unsupported kinds, so that none is compared.
    pub(super) fn unchecked_hashes(&self) -> Option<&str> {
        let has_none = |file: &FileEntry| !file.hashes.is_empty() && Digest::of(file).is_none();
        let mut files = self.shards.iter().map(ShardEntry::stored);
        files
            .find(|file| has_none(file))
            .map(|file| file.basename.as_str())
    }
}

impl ShardEntry {
    /// The file in the store: the compressed one, if any.
    pub(super) fn stored(&self) -> &FileEntry {
        self.zip_data.as_ref().unwrap_or(&self.raw_data)
    }

    fn check(&self, first: &Self) -> Result<(), String> {
        let name = &self.stored().basename;
        if self.format != "mds" || self.version != 2 {
            return Err(format!(
                "shard `{name}` is of format `{}`, version `{}`; only `mds`, version `2`, can be read",
                self.format, self.version
            ));
        }
        let columns = self.column_names.len();
        if self.column_encodings.len() != columns || self.column_sizes.len() != columns {
            return Err(format!(
                "shard `{name}` does not have an encoding and a size for each column"
            ));
        }
        let is_same = self.column_names == first.column_names
            && self.column_encodings == first.column_encodings
            && self.column_sizes == first.column_sizes;
        if !is_same {
            return Err(format!(
                "shard `{name}` has the columns {}, and shard `{}` has {}",
                self.columns(),
                first.stored().basename,
                first.columns()
            ));
        }
        let packing = self
            .compression
            .as_deref()
            .map(|c| c.split(':').next().unwrap_or(c));
        if self.zip_data.is_some() && packing != Some("zstd") {
            return Err(format!(
                "shard `{name}` is compressed with `{}`, and only `zstd` can be read",
                packing.unwrap_or("?")
            ));
        }
        let bytes = self.raw_data.bytes;
        if bytes >= MOST_SHARD {
            return Err(format!(
                "shard `{name}` says that it has `{bytes}` bytes, more than its offsets of 32 bits can address"
            ));
        }
        if u64::from(self.samples) * 4 > bytes {
            return Err(format!(
                "shard `{name}` has `{}` samples and too few bytes",
                self.samples
            ));
        }
        Ok(())
    }

    fn columns(&self) -> String {
        let columns = self.column_names.iter().zip(&self.column_encodings);
        let texts: Vec<_> = columns
            .map(|(name, encoding)| format!("`{name}: {encoding}`"))
            .collect();
        texts.join(", ")
    }
}

/// A hash of a file that can be compared.
pub(super) struct Digest {
    state: Box<Xxh3>,
    expected: String,
    is_long: bool,
}

impl Digest {
    /// The strongest hash of `file` that is known here.
    pub(super) fn of(file: &FileEntry) -> Option<Self> {
        let find = |name: &str, is_long| {
            file.hashes.get(name).map(|expected| Self {
                state: Box::default(),
                expected: expected.to_ascii_lowercase(),
                is_long,
            })
        };
        find("xxh3_128", true)
            .or_else(|| find("xxh128", true))
            .or_else(|| find("xxh3_64", false))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
    }

    /// # Errors
    /// A message that the hashes differ.
    pub(super) fn finish(self) -> Result<(), String> {
        let found = if self.is_long {
            format!("{:032x}", self.state.digest128())
        } else {
            format!("{:016x}", self.state.digest())
        };
        if found == self.expected {
            Ok(())
        } else {
            Err(format!(
                "its hash is `{found}` and the index says `{}`",
                self.expected
            ))
        }
    }

    /// Compares the hash of `bytes`, if there is one.
    pub(super) fn check(file: &FileEntry, bytes: &[u8]) -> Result<(), String> {
        Self::of(file).map_or(Ok(()), |mut digest| {
            digest.update(bytes);
            digest.finish()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(change: impl Fn(&mut serde_json::Value)) -> Result<MdsIndex, String> {
        let shard = |name: &str| {
            serde_json::json!({
                "column_encodings": ["jpeg", "int"], "column_names": ["image", "label"],
                "column_sizes": [null, 8], "compression": null, "format": "mds", "hashes": ["xxh3_64"],
                "raw_data": {"basename": name, "bytes": 100, "hashes": {"xxh3_64": "00"}},
                "samples": 3, "size_limit": 67108864, "version": 2, "zip_data": null
            })
        };
        let mut index =
            serde_json::json!({"version": 2, "shards": [shard("a.mds"), shard("b.mds")]});
        change(&mut index);
        MdsIndex::read(index.to_string().as_bytes())
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        assert_eq!(index(|_| {}).unwrap().shards.len(), 2);
        let refuse = |change: fn(&mut serde_json::Value), message: &str| {
            let error = index(change).unwrap_err();
            assert!(error.contains(message), "{error}");
        };
        refuse(|i| i["version"] = 3.into(), "version `3`");
        refuse(
            |i| i["shards"][1]["format"] = "json".into(),
            "shard `b.mds` is of format `json`",
        );
        refuse(
            |i| i["shards"][1]["column_encodings"][1] = "int32".into(),
            "shard `b.mds` has the columns `image: jpeg`, `label: int32`, and shard `a.mds` has `image: jpeg`, `label: int`",
        );
        refuse(
            |i| {
                i["shards"][0]["compression"] = "br:11".into();
                i["shards"][0]["zip_data"] = i["shards"][0]["raw_data"].clone();
            },
            "compressed with `br`",
        );
        refuse(|i| i["shards"][0]["samples"] = 26.into(), "too few bytes");
        refuse(
            |i| i["shards"][1]["raw_data"]["bytes"] = u64::MAX.into(),
            "shard `b.mds` says that it has `18446744073709551615` bytes, more than its offsets",
        );
        assert!(MdsIndex::read(b"[]").is_err());
    }

    #[test]
    fn the_strongest_known_hash_is_compared() {
        let mut file = FileEntry {
            basename: "a".into(),
            bytes: 3,
            hashes: BTreeMap::new(),
        };
        assert!(Digest::check(&file, b"abc").is_ok());
        let sum = xxhash_rust::xxh3::xxh3_64(b"abc");
        file.hashes.insert("sha1".into(), "0".into());
        file.hashes.insert("xxh3_64".into(), format!("{sum:016X}"));
        assert!(Digest::check(&file, b"abc").is_ok());
        assert!(
            Digest::check(&file, b"abd")
                .unwrap_err()
                .starts_with("its hash is")
        );
        file.hashes.insert("xxh3_128".into(), "0".into());
        assert!(Digest::check(&file, b"abc").is_err());
    }
}
