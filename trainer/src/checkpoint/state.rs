//! Files of the optimizer's state, where each rank holds a share of it and writes that itself:
//! `checkpoints/step-<steps>.state-<rank>-of-<ranks>.safetensors`.
//!
//! A file is safetensors with a tensor `optimizer.all.<bucket>` for each bucket that is not empty: what the rank holds of
//! it. The shares of all ranks, one after the other, are the bucket. The header of the checkpoint has the hash of each whole
//! file, so that any changed byte is seen.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use bytes::Bytes;
use feedline_schemas::{
    checkpoint::CheckpointHeader,
    ids::{Epoch, Hash128, Step},
};
use safetensors::{SafeTensors, tensor::Dtype};
use xxhash_rust::xxh3::Xxh3;

use super::{
    Checkpoints, encode,
    encode::Numbers,
    paths::{FOLDER, state_path, state_paths},
    snapshot::state_name,
};
use crate::{
    error::Error,
    optim::optimizer::{StateBucket, StateLayout},
    parallel::RankPlace,
};

/// Times between looks whether the others have written theirs.
const POLL_MIN: Duration = Duration::from_millis(10);
const POLL_MAX: Duration = Duration::from_secs(1);

/// Content of a rank's file.
#[derive(Clone, Debug)]
pub(crate) struct StateFile {
    /// Step and epoch of the checkpoint.
    pub(super) at: (Step, Epoch),
    path: String,
    parts: Vec<Bytes>,
    /// Hash of the whole file.
    pub(crate) hash: Hash128,
}

impl StateFile {
    /// The file of the rank at this place. Reads every number once, to hash it.
    pub(crate) fn new(
        at: (Step, Epoch),
        RankPlace { rank, world }: RankPlace,
        state: &[(String, Numbers)],
    ) -> Self {
        let parts = encode::state(state);
        let mut hasher = Xxh3::new();
        parts.iter().for_each(|part| hasher.update(part));
        Self {
            at,
            path: state_path(at.0, rank, world),
            parts,
            hash: Hash128::new(hasher.digest128()),
        }
    }
}

impl Checkpoints {
    /// Writes a share of the state.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(super) fn save_state(&self, file: StateFile) -> Result<(), Error> {
        self.folder.put_parts(&file.path, file.parts)
    }

    /// Waits until all ranks have written their share of the state of the checkpoint with this header.
    ///
    /// # Errors
    /// [`Error::StateMissing`], or [`Error::Storage`].
    pub(super) fn await_state(&self, header: &CheckpointHeader) -> Result<(), Error> {
        let mut waited = Duration::ZERO;
        loop {
            let missing = self.missing_state(header)?;
            if missing.is_empty() {
                return Ok(());
            }
            if waited >= self.patience || self.folder.is_late() {
                return Err(Error::StateMissing {
                    url: self.folder.url_of(FOLDER),
                    ranks: missing.join(", "),
                    seconds: waited.as_secs(),
                });
            }
            let wait = (waited / 4).clamp(POLL_MIN, POLL_MAX);
            self.folder.pause(wait);
            waited += wait;
        }
    }

    fn missing_state(&self, header: &CheckpointHeader) -> Result<Vec<String>, Error> {
        if header.state_shards.is_empty() {
            return Ok(Vec::new());
        }
        let listed = self.folder.list(FOLDER)?;
        let missing = state_paths(header).enumerate();
        let missing = missing.filter(|(_, path)| listed.iter().all(|file| file.path != *path));
        Ok(missing.map(|(rank, _)| rank.to_string()).collect())
    }

    /// Verifies every byte of the state in files of its own; holds one file at a time.
    ///
    /// # Errors
    /// [`Error::Damaged`] or [`Error::Storage`].
    pub(super) fn verify_state(&self, header: &CheckpointHeader) -> Result<(), Error> {
        if header.state_shards.is_empty() {
            return Ok(());
        }
        let nothing = vec![0..0; self.state.len()];
        self.state_within(header, &nothing).map(|_| ())
    }

    /// Reads the part of each bucket of the state within `ranges`, out of files of its own; holds
    /// one file at a time besides.
    ///
    /// # Errors
    /// [`Error::Damaged`] or [`Error::Storage`].
    pub(crate) fn state_within(
        &self,
        header: &CheckpointHeader,
        ranges: &[Range<usize>],
    ) -> Result<Vec<StateBucket>, Error> {
        let mut begins = vec![0; self.state.len()];
        let mut found = empty(&self.state);
        for (path, hash) in state_paths(header).zip(&header.state_shards) {
            let damaged = |reason: String| Error::Damaged {
                url: self.folder.url_of(&path),
                reason,
            };
            let bytes = self.folder.get_opt(&path)?;
            let bytes = bytes.ok_or_else(|| damaged("it is missing".into()))?;
            let hashed = Hash128::of(&bytes);
            if hashed != *hash {
                let reason = format!("it has hash `{hashed}`, its checkpoint says `{hash}`");
                return Err(damaged(reason));
            }
            let mut shares = shares(&bytes).map_err(damaged)?;
            for (i, bucket) in found.iter_mut().enumerate() {
                let share = shares.remove(&state_name(&bucket.name)).unwrap_or_default();
                let (begin, wanted) = (begins[i], &ranges[i]);
                begins[i] += share.len();
                let from = wanted.start.clamp(begin, begins[i]) - begin;
                let to = wanted.end.clamp(begin, begins[i]) - begin;
                let words = &share[from..to];
                bucket
                    .values
                    .extend(words.iter().map(|word| f32::from_le_bytes(*word)));
            }
            if let Some(name) = shares.keys().next() {
                return Err(damaged(format!(
                    "it has a tensor `{name}` that is no state"
                )));
            }
        }
        let whole = self.state.iter().map(|(_, len)| *len);
        if !begins.iter().copied().eq(whole) {
            return Err(Error::Damaged {
                url: self.url(header.step),
                reason: "the shares of the optimizer's state do not make up all of it".into(),
            });
        }
        Ok(found)
    }
}

fn empty(layout: &StateLayout) -> Vec<StateBucket> {
    let bucket = |(name, _): &(String, usize)| StateBucket {
        name: name.clone(),
        values: Vec::new(),
    };
    layout.iter().map(bucket).collect()
}

/// The tensors of a file by name, as words.
fn shares(bytes: &[u8]) -> Result<BTreeMap<String, &[[u8; 4]]>, String> {
    let file = SafeTensors::deserialize(bytes)
        .map_err(|error| format!("it is not a safetensors file: {error}"))?;
    let mut shares = BTreeMap::new();
    for (name, view) in file.iter() {
        if view.dtype() != Dtype::F32 || view.shape().len() != 1 {
            let (dtype, shape) = (view.dtype(), view.shape());
            return Err(format!("tensor `{name}` is {dtype:?} {shape:?}"));
        }
        let (words, _) = view.data().as_chunks::<4>();
        shares.insert(name.to_owned(), words);
    }
    Ok(shares)
}
