//! Fuzz target of checkpoints.

use std::collections::{BTreeMap, HashMap};

use feedline_schemas::{
    checkpoint::CheckpointHeader, decode as decode_document, encode as encode_document,
};
use safetensors::{SafeTensors, tensor::TensorView};

use super::{
    METADATA_KEY, Snapshot,
    decode::{Expected, decode},
    encode::{Frozen, Numbers, encode, hash_of, with_header_hash},
};
use crate::model::layers::Parameter;

/// A checkpoint of a model of eight numbers: as it is, and with hashes that fit. One that is read
/// is written as bytes that read the same.
pub fn checkpoint(data: &[u8]) {
    check(data);
    if let Some(mended) = mended(data) {
        check(&mended);
    }
}

fn parameter(name: &str, shape: &[usize], range: std::ops::Range<usize>) -> Parameter {
    Parameter {
        name: name.to_owned(),
        shape: shape.to_vec(),
        range,
        decays: true,
        is_hidden: false,
    }
}

fn check(data: &[u8]) {
    let parameters = [
        parameter("layer.0.weight", &[2, 3], 0..6),
        parameter("layer.0.bias", &[2], 6..8),
    ];
    let state = vec![("first_moment".to_owned(), 8)];
    let expected = Expected {
        parameters: &parameters,
        state: &state,
    };
    let read = |bytes: &[u8]| decode("memory://x.safetensors", bytes, expected);
    match read(data) {
        Ok(snapshot) => {
            let written = encode(&parameters, frozen(snapshot)).concat();
            let again = read(&written).expect("a snapshot that was written can be read");
            assert!(encode(&parameters, frozen(again)).concat() == written);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn frozen(snapshot: Snapshot) -> Frozen {
    Frozen {
        header: snapshot.header,
        parameters: Numbers::new(snapshot.parameters),
        state: snapshot
            .state
            .into_iter()
            .map(|bucket| (bucket.name, Numbers::new(bucket.values)))
            .collect(),
        average: snapshot.average.map(Numbers::new),
        best: snapshot.best.map(Numbers::new),
    }
}

/// The file with its hashes computed, if it has tensors and a header.
fn mended(data: &[u8]) -> Option<Vec<u8>> {
    let file = SafeTensors::deserialize(data).ok()?;
    let (_, metadata) = SafeTensors::read_metadata(data).ok()?;
    let json = metadata.metadata().as_ref()?.get(METADATA_KEY)?;
    let header: CheckpointHeader = decode_document("x", json.as_bytes()).ok()?;
    let tensors: BTreeMap<&str, TensorView<'_>> = file.iter().collect();
    let tensor_hash = hash_of(tensors.iter().map(|(name, view)| (*name, view.data())));
    let header = with_header_hash(CheckpointHeader {
        tensor_hash,
        ..header
    });
    let json = String::from_utf8(encode_document(&header)).ok()?;
    let entries = HashMap::from([(METADATA_KEY.to_owned(), json)]);
    safetensors::serialize(file.tensors(), Some(entries)).ok()
}
