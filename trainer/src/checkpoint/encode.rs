//! A snapshot as the parts of a safetensors file: its header, then the tensors straight from their
//! memory, in name order. So writing a file takes no memory besides the snapshot's own.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use feedline_schemas::{checkpoint::CheckpointHeader, encode as encode_document, ids::Hash128};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use xxhash_rust::xxh3::Xxh3;

use super::snapshot::{METADATA_KEY, state_name};
use crate::model::interface::Parameter;

// Safetensors are little-endian, and a tensor is written as it is stored in memory.
const _: () = assert!(cfg!(target_endian = "little"));

/// The file's header is padded to a multiple of this.
const ALIGNMENT: usize = 8;

/// Numbers that are not changed as long as somebody writes them.
pub(crate) type Numbers = Arc<Vec<f32>>;

/// Content to write: a [`Snapshot`](super::Snapshot) whose numbers may have other owners.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    /// The header; its hashes are filled in.
    pub(crate) header: CheckpointHeader,
    /// All parameters.
    pub(crate) parameters: Numbers,
    /// State of the optimizer by bucket; none in `best.safetensors`.
    pub(crate) state: Vec<(String, Numbers)>,
    /// The average of the weights, where one is kept.
    pub(crate) average: Option<Numbers>,
    /// The best weights; left out of the file when they are `parameters`, bit for bit.
    pub(crate) best: Option<Numbers>,
}

/// One tensor: a shape and some of the numbers of a bucket.
#[derive(Clone, Debug)]
struct TensorPart {
    shape: Vec<usize>,
    numbers: Numbers,
    range: Range<usize>,
}

impl AsRef<[u8]> for TensorPart {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.numbers[self.range.clone()])
    }
}

/// The file of a snapshot in parts; the same snapshot always gives the same bytes. Reads every number once, to hash it.
pub(crate) fn encode(layout: &[Parameter], frozen: Frozen) -> Vec<Bytes> {
    let tensors = tensors(layout, &frozen);
    let tensor_hash = hash_of(tensors.iter().map(|(n, part)| (n.as_str(), part.as_ref())));
    let header = with_header_hash(CheckpointHeader {
        tensor_hash,
        ..frozen.header
    });
    let json = String::from_utf8(encode_document(&header)).expect("JSON is UTF-8");
    let entries = HashMap::from([(METADATA_KEY.to_owned(), json)]);
    file(file_header(&tensors, Some(entries)), tensors)
}

fn tensors(layout: &[Parameter], frozen: &Frozen) -> BTreeMap<String, TensorPart> {
    let mut tensors = BTreeMap::new();
    let different = |best: &&Numbers| {
        bytemuck::cast_slice::<f32, u8>(best) != bytemuck::cast_slice::<f32, u8>(&frozen.parameters)
    };
    let buckets = [
        ("parameter", Some(&frozen.parameters)),
        ("average", frozen.average.as_ref()),
        ("best", frozen.best.as_ref().filter(different)),
    ];
    for (prefix, numbers) in buckets {
        for (parameter, numbers) in layout.iter().zip(numbers.into_iter().cycle()) {
            let part = TensorPart {
                shape: parameter.shape.clone(),
                numbers: Arc::clone(numbers),
                range: parameter.range.clone(),
            };
            tensors.insert(format!("{prefix}.{}", parameter.name), part);
        }
    }
    tensors.extend(flat(&frozen.state));
    tensors
}

/// The tensors of some of the optimizer's state.
fn flat(state: &[(String, Numbers)]) -> impl Iterator<Item = (String, TensorPart)> {
    let some = state.iter().filter(|(_, numbers)| !numbers.is_empty());
    some.map(|(name, numbers)| {
        let part = TensorPart {
            shape: vec![numbers.len()],
            range: 0..numbers.len(),
            numbers: Arc::clone(numbers),
        };
        (state_name(name), part)
    })
}

/// A file of some of the optimizer's state, in parts.
pub(super) fn state(state: &[(String, Numbers)]) -> Vec<Bytes> {
    let tensors = flat(state).collect();
    let header = file_header(&tensors, None);
    file(header, tensors)
}

fn file(header: Vec<u8>, tensors: BTreeMap<String, TensorPart>) -> Vec<Bytes> {
    let mut parts = vec![header.into()];
    parts.extend(tensors.into_values().map(Bytes::from_owner));
    parts
}

/// Header before the tensors: the length of a JSON text, and the text, padded with spaces.
fn file_header(
    tensors: &BTreeMap<String, TensorPart>,
    entries: Option<HashMap<String, String>>,
) -> Vec<u8> {
    let mut end = 0;
    let infos = tensors.iter().map(|(name, part)| {
        let begin = end;
        end += part.as_ref().len();
        let info = TensorInfo {
            dtype: Dtype::F32,
            shape: part.shape.clone(),
            data_offsets: (begin, end),
        };
        (name.clone(), info)
    });
    let metadata = Metadata::new(entries, infos.collect())
        .expect("tensors follow each other, and each has its shape's length");
    let text = serde_json::to_string(&metadata).expect("metadata has string keys");
    let padded = text.len().next_multiple_of(ALIGNMENT);
    let mut header = (padded as u64).to_le_bytes().to_vec();
    header.extend(text.as_bytes());
    header.resize(header.len() + padded - text.len(), b' ');
    header
}

/// xxh3-128 over names and bytes, in the order given.
pub(super) fn hash_of<'a>(tensors: impl Iterator<Item = (&'a str, &'a [u8])>) -> Hash128 {
    let mut hasher = Xxh3::new();
    for (name, bytes) in tensors {
        hasher.update(name.as_bytes());
        hasher.update(bytes);
    }
    Hash128::new(hasher.digest128())
}

pub(super) fn with_header_hash(header: CheckpointHeader) -> CheckpointHeader {
    let zeroed = CheckpointHeader {
        header_hash: Hash128::new(0),
        ..header
    };
    let header_hash = Hash128::of(&encode_document(&zeroed));
    CheckpointHeader {
        header_hash,
        ..zeroed
    }
}
