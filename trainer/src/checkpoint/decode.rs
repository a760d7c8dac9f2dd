//! Reads a snapshot and verifies every byte of it.

use std::collections::BTreeMap;

use feedline_schemas::{
    ContractError, checkpoint::CheckpointHeader, decode as decode_document,
    encode as encode_document,
};
use safetensors::{
    SafeTensors,
    tensor::{Dtype, Metadata, TensorView},
};

use super::{
    encode::{hash_of, with_header_hash},
    snapshot::{METADATA_KEY, Snapshot, state_name},
};
use crate::{
    error::Error,
    model::interface::{Parameter, bucket_len},
    optim::optimizer::{StateBucket, StateLayout},
};

/// Expected content of a file of snapshots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    /// The model's parameters.
    pub(crate) parameters: &'a [Parameter],
    /// The optimizer's state; empty for `best.safetensors`.
    pub(crate) state: &'a StateLayout,
}

/// Reads a snapshot and verifies every byte of it. `url` is for messages.
///
/// # Errors
/// [`Error::Damaged`], or [`Error::Contract`] when it was written by a newer version.
pub(crate) fn decode(url: &str, bytes: &[u8], expected: Expected<'_>) -> Result<Snapshot, Error> {
    let layout = expected.parameters;
    let damaged = |reason: String| Error::Damaged {
        url: url.to_owned(),
        reason,
    };
    let file = SafeTensors::deserialize(bytes)
        .map_err(|e| damaged(format!("it is not a safetensors file: {e}")))?;
    let (len, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| damaged(e.to_string()))?;
    if !is_as_written(&bytes[8..8 + len], &metadata) {
        return Err(damaged(
            "its list of tensors is not as it was written".into(),
        ));
    }
    let json = metadata
        .metadata()
        .as_ref()
        .and_then(|entries| entries.get(METADATA_KEY));
    let json = json.ok_or_else(|| damaged(format!("it has no metadata entry `{METADATA_KEY}`")))?;
    let header: CheckpointHeader = decode_document(url, json.as_bytes()).map_err(|e| match e {
        ContractError::Malformed { path, reason, .. }
        // A flipped bit makes an unknown name.
        | ContractError::Newer { path, reason, .. } => {
            damaged(format!("its header is malformed at `{path}`: {reason}"))
        }
        other => Error::Contract(other),
    })?;
    if with_header_hash(header.clone()).header_hash != header.header_hash {
        return Err(damaged("its header does not match its hash".into()));
    }
    // Another text may say the same, and only what was written is taken.
    if encode_document(&header) != json.as_bytes() {
        return Err(damaged("its header is not as it was written".into()));
    }
    let tensors: BTreeMap<&str, TensorView<'_>> = file.iter().collect();
    let found = hash_of(tensors.iter().map(|(name, view)| (*name, view.data())));
    if found != header.tensor_hash {
        return Err(damaged(format!(
            "its tensors have hash `{found}`, its header says `{}`",
            header.tensor_hash
        )));
    }
    let mut reader = TensorReader {
        tensors,
        damaged: &damaged,
    };
    let snapshot = Snapshot {
        parameters: reader.bucket("parameter", layout)?,
        state: match header.state_shards.as_slice() {
            [] => reader.state(expected.state)?,
            _ => Vec::new(),
        },
        average: reader.bucket_opt("average", layout)?,
        best: reader.bucket_opt("best", layout)?,
        header,
    };
    match reader.tensors.keys().next() {
        None => Ok(snapshot),
        Some(name) => Err(damaged(format!(
            "it has a tensor `{name}` that the model has not"
        ))),
    }
}

/// Returns true if a file that holds these tensors begins so: with their list, and spaces.
fn is_as_written(text: &[u8], metadata: &Metadata) -> bool {
    let list = serde_json::to_vec(metadata).expect("metadata has string keys");
    let rest = text.strip_prefix(list.as_slice());
    rest.is_some_and(|rest| rest.iter().all(|byte| *byte == b' '))
}

/// Takes tensors out of a file.
struct TensorReader<'a, F> {
    tensors: BTreeMap<&'a str, TensorView<'a>>,
    damaged: &'a F,
}

impl<F: Fn(String) -> Error> TensorReader<'_, F> {
    fn has(&self, prefix: &str) -> bool {
        self.tensors.keys().any(|name| name.starts_with(prefix))
    }

    /// The bucket, where the file has any of it.
    fn bucket_opt(
        &mut self,
        prefix: &str,
        layout: &[Parameter],
    ) -> Result<Option<Vec<f32>>, Error> {
        let there = self.has(&format!("{prefix}."));
        there.then(|| self.bucket(prefix, layout)).transpose()
    }

    fn bucket(&mut self, prefix: &str, layout: &[Parameter]) -> Result<Vec<f32>, Error> {
        let mut bucket = Vec::with_capacity(bucket_len(layout));
        for parameter in layout {
            bucket.extend(self.tensor(&format!("{prefix}.{}", parameter.name), &parameter.shape)?);
        }
        Ok(bucket)
    }

    fn state(&mut self, layout: &StateLayout) -> Result<Vec<StateBucket>, Error> {
        let mut bucket = |(name, len): &(String, usize)| {
            let values = if *len > 0 {
                self.tensor(&state_name(name), &[*len])?
            } else {
                vec![]
            };
            Ok(StateBucket {
                name: name.clone(),
                values,
            })
        };
        layout.iter().map(&mut bucket).collect()
    }

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Error> {
        let view = self
            .tensors
            .remove(name)
            .ok_or_else(|| (self.damaged)(format!("it lacks tensor `{name}`")))?;
        if view.dtype() != Dtype::F32 || view.shape() != shape {
            let (dtype, found) = (view.dtype(), view.shape());
            return Err((self.damaged)(format!(
                "tensor `{name}` is {dtype:?} {found:?}, the model's is F32 {shape:?}"
            )));
        }
        let (words, _) = view.data().as_chunks::<4>();
        Ok(words.iter().map(|word| f32::from_le_bytes(*word)).collect())
    }
}
