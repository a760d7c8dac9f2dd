//! Checkpoints: `checkpoints/step-<steps taken, 8 digits>.safetensors` and `best.safetensors` in the run's folder.
//!
//! A file is safetensors with one metadata entry, `feedline`, that holds the [`CheckpointHeader`]. Tensors, all f32:
//! `parameter.<name>`, `average.<name>` where an average of the weights is kept, `optimizer.all.<bucket>` for each bucket of the optimizer's state that is not empty, and
//! `best.<name>` when the best weights are not the current ones. `best.safetensors` has the best weights as
//! `parameter.<name>` and nothing else.
//! `header_hash` covers the header, `tensor_hash` in it the tensors, so a changed byte anywhere that matters is seen.
//!
//! A checkpoint is there complete or not at all. Older ones are removed only after a newer one is durable, so a crash at
//! any instant leaves at least one; when the newest cannot be used the one before it is taken.

use std::collections::{BTreeMap, HashMap};

use feedline_schemas::{
    ContractError,
    checkpoint::CheckpointHeader,
    decode as decode_document, encode as encode_document,
    ids::{Hash128, Step},
};
use safetensors::{
    SafeTensors,
    tensor::{Dtype, TensorView},
};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    error::Error,
    model::{Parameter, bucket_len},
    optimizer::{StateBucket, StateLayout},
    run_folder::RunFolder,
};

/// Path of the best weights in the run's folder.
pub(crate) const BEST_PATH: &str = "best.safetensors";

const FOLDER: &str = "checkpoints";
const METADATA_KEY: &str = "feedline";

/// What a checkpoint holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Snapshot {
    /// The header; its hashes are filled in when it is written.
    pub(crate) header: CheckpointHeader,
    /// All parameters.
    pub(crate) parameters: Vec<f32>,
    /// State of the optimizer; none in `best.safetensors`.
    pub(crate) state: Vec<StateBucket>,
    /// The average of the weights, where one is kept.
    pub(crate) average: Option<Vec<f32>>,
    /// The best weights, when they are not `parameters`.
    pub(crate) best: Option<Vec<f32>>,
}

/// A [`Snapshot`] that borrows its tensors.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotRef<'a> {
    /// The header; its hashes are filled in.
    pub(crate) header: CheckpointHeader,
    /// All parameters.
    pub(crate) parameters: &'a [f32],
    /// State of the optimizer.
    pub(crate) state: &'a [StateBucket],
    /// The average of the weights.
    pub(crate) average: Option<&'a [f32]>,
    /// The best weights, when they are not `parameters`.
    pub(crate) best: Option<&'a [f32]>,
}

/// Serializes a snapshot; the same snapshot always gives the same bytes.
pub(crate) fn encode(layout: &[Parameter], snapshot: SnapshotRef<'_>) -> Vec<u8> {
    let mut tensors: BTreeMap<String, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    let mut add_bucket = |prefix: &str, bucket: &[f32]| {
        for parameter in layout {
            let bytes = to_bytes(&bucket[parameter.range.clone()]);
            tensors.insert(
                format!("{prefix}.{}", parameter.name),
                (parameter.shape.clone(), bytes),
            );
        }
    };
    add_bucket("parameter", snapshot.parameters);
    if let Some(average) = snapshot.average {
        add_bucket("average", average);
    }
    if let Some(best) = snapshot.best {
        add_bucket("best", best);
    }
    for StateBucket { name, values } in snapshot.state {
        if !values.is_empty() {
            tensors.insert(state_name(name), (vec![values.len()], to_bytes(values)));
        }
    }
    let tensor_hash = hash_of(
        tensors
            .iter()
            .map(|(name, (_, bytes))| (name.as_str(), bytes.as_slice())),
    );
    let header = with_header_hash(CheckpointHeader {
        tensor_hash,
        ..snapshot.header
    });
    let json = String::from_utf8(encode_document(&header)).expect("JSON is UTF-8");
    let views = tensors.iter().map(|(name, (shape, bytes))| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes)
            .expect("the bucket has the layout's length");
        (name, view)
    });
    safetensors::serialize(
        views,
        Some(HashMap::from([(METADATA_KEY.to_owned(), json)])),
    )
    .expect("a model has fewer tensors than fill a safetensors header")
}

fn state_name(bucket: &str) -> String {
    format!("optimizer.all.{bucket}")
}

/// What a file of snapshots holds.
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
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| damaged(e.to_string()))?;
    let json = metadata
        .metadata()
        .as_ref()
        .and_then(|entries| entries.get(METADATA_KEY));
    let json = json.ok_or_else(|| damaged(format!("it has no metadata entry `{METADATA_KEY}`")))?;
    let header: CheckpointHeader = decode_document(url, json.as_bytes()).map_err(|e| match e {
        ContractError::Malformed { path, reason, .. } => {
            damaged(format!("its header is malformed at `{path}`: {reason}"))
        }
        other => Error::Contract(other),
    })?;
    if with_header_hash(header.clone()).header_hash != header.header_hash {
        return Err(damaged("its header does not match its hash".into()));
    }
    let tensors: BTreeMap<&str, TensorView<'_>> = file.iter().collect();
    let found = hash_of(tensors.iter().map(|(name, view)| (*name, view.data())));
    if found != header.tensor_hash {
        return Err(damaged(format!(
            "its tensors have hash `{found}`, its header says `{}`",
            header.tensor_hash
        )));
    }
    let mut reader = Reader {
        tensors,
        damaged: &damaged,
    };
    let snapshot = Snapshot {
        parameters: reader.bucket("parameter", layout)?,
        state: reader.state(expected.state)?,
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

/// Takes tensors out of a file.
struct Reader<'a, F> {
    tensors: BTreeMap<&'a str, TensorView<'a>>,
    damaged: &'a F,
}

impl<F: Fn(String) -> Error> Reader<'_, F> {
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

fn to_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// xxh3-128 over names and bytes, in the order given.
fn hash_of<'a>(tensors: impl Iterator<Item = (&'a str, &'a [u8])>) -> Hash128 {
    let mut hasher = Xxh3::new();
    for (name, bytes) in tensors {
        hasher.update(name.as_bytes());
        hasher.update(bytes);
    }
    Hash128::new(hasher.digest128())
}

fn with_header_hash(header: CheckpointHeader) -> CheckpointHeader {
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

/// The checkpoints of a run.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoints<'a> {
    folder: &'a RunFolder,
    layout: Vec<Parameter>,
    state: StateLayout,
    keep: usize,
}

impl<'a> Checkpoints<'a> {
    /// The checkpoints in `folder` of a model with this layout, whose optimizer has state of that layout. The newest
    /// `keep` are kept.
    pub(crate) fn new(
        folder: &'a RunFolder,
        layout: &[Parameter],
        state: StateLayout,
        keep: u32,
    ) -> Self {
        Self {
            folder,
            layout: layout.to_vec(),
            state,
            keep: keep as usize,
        }
    }

    /// Where the checkpoint after `step` steps is.
    pub(crate) fn url(&self, step: Step) -> String {
        self.folder.url_of(&path(step))
    }

    /// Whether there is any.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn any(&self) -> Result<bool, Error> {
        Ok(!self.steps()?.is_empty())
    }

    /// Writes a checkpoint, then removes those that are too old.
    ///
    /// # Errors
    /// [`Error::Storage`] when it could not be written; one that could not be removed is only logged.
    pub(crate) fn save(&self, snapshot: SnapshotRef<'_>) -> Result<(), Error> {
        let step = snapshot.header.step;
        self.folder
            .put(&path(step), encode(&self.layout, snapshot))?;
        self.tidy(step);
        Ok(())
    }

    /// Removes what is older than the newest `keep` up to `newest`; a failure is only logged.
    pub(crate) fn tidy(&self, newest: Step) {
        if let Err(error) = self.remove_old(newest) {
            tracing::warn!(%error, "old checkpoints were not removed");
        }
    }

    /// Keeps the newest up to `newest`. Later ones can only be damaged ones that a resume stepped behind: they go when
    /// training has passed them by overwriting.
    fn remove_old(&self, newest: Step) -> Result<(), Error> {
        let steps: Vec<Step> = self
            .steps()?
            .into_iter()
            .filter(|step| *step <= newest)
            .collect();
        let old = steps.len().saturating_sub(self.keep);
        steps[..old]
            .iter()
            .try_for_each(|step| self.folder.delete(&path(*step)))
    }

    /// Reads the newest checkpoint that `usable` accepts, or `None` when there is none at all.
    ///
    /// # Errors
    /// [`Error::AllDamaged`] when there are some but none can be used; [`Error::Storage`] when one could not be read,
    /// which says nothing about what it holds.
    pub(crate) fn newest(
        &self,
        usable: impl Fn(&Snapshot) -> Result<(), String>,
    ) -> Result<Option<Snapshot>, Error> {
        let steps = self.steps()?;
        let mut first_refusal = None;
        for step in steps.iter().rev() {
            let url = self.url(*step);
            let Some(bytes) = self.folder.get_opt(&path(*step))? else {
                continue;
            };
            let refusal = match decode(&url, &bytes, self.expected(&self.state)) {
                Ok(snapshot) => match usable(&snapshot) {
                    Ok(()) => return Ok(Some(snapshot)),
                    Err(reason) => Error::Damaged { url, reason },
                },
                Err(error @ Error::Damaged { .. }) => error,
                Err(other) => return Err(other),
            };
            tracing::warn!(error = %refusal, "a checkpoint cannot be used; trying the one before it");
            first_refusal.get_or_insert(refusal);
        }
        match first_refusal {
            None => Ok(None),
            Some(source) => Err(Error::AllDamaged {
                url: self.folder.url(),
                count: steps.len(),
                source: Box::new(source),
            }),
        }
    }

    /// Writes the best weights.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn save_best(&self, snapshot: SnapshotRef<'_>) -> Result<(), Error> {
        self.folder.put(BEST_PATH, encode(&self.layout, snapshot))
    }

    /// Reads the best weights, or `None` when they were not written yet.
    ///
    /// # Errors
    /// [`Error::Damaged`] or [`Error::Storage`].
    pub(crate) fn best(&self) -> Result<Option<Snapshot>, Error> {
        let bytes = self.folder.get_opt(BEST_PATH)?;
        bytes
            .map(|bytes| {
                let url = self.folder.url_of(BEST_PATH);
                decode(&url, &bytes, self.expected(&StateLayout::new()))
            })
            .transpose()
    }

    fn expected<'b>(&'b self, state: &'b StateLayout) -> Expected<'b> {
        Expected {
            parameters: &self.layout,
            state,
        }
    }

    /// Steps of all checkpoints, rising.
    fn steps(&self) -> Result<Vec<Step>, Error> {
        let listed = self.folder.list(FOLDER)?;
        let mut steps: Vec<Step> = listed
            .iter()
            .filter_map(|file| step_of(&file.path))
            .collect();
        steps.sort_unstable();
        Ok(steps)
    }
}

fn path(step: Step) -> String {
    format!("{FOLDER}/step-{:08}.safetensors", step.get())
}

fn step_of(path: &str) -> Option<Step> {
    let name = path
        .strip_prefix(FOLDER)?
        .strip_prefix("/step-")?
        .strip_suffix(".safetensors")?;
    name.parse().ok().map(Step::new)
}

#[cfg(test)]
mod tests;
