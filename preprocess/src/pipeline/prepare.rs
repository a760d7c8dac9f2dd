//! A build, prepared: what has landed was read, and the configuration resolved against it.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use feedline_schemas::{
    config::{DatasetConfig, PipelineConfig},
    ids::{Hash128, Name},
    manifest::{Manifest, SourceReference, Split},
    transform::TransformArtefact,
};
use feedline_storage::Store;

use super::{
    input::BuildInput,
    sources::{BuildVersion, chosen, frozen, input_hash},
    tokenizer::TokenizerInput,
};
use crate::{
    Context, Error,
    engine::scratch::Scratch,
    operators::{
        dedup::near::{self, NearDup},
        expectations::Expect,
        join,
        time_series::Sequence,
    },
    pass_progress::PassProgress,
    schema::{column_roles, dataset_spec::DatasetSpec},
    shards::manifest::pointer,
    source::landing_zone::{Landed, unpacked},
    staging::Staged,
};

/// Bytes of a group in the memory of a join, about.
const GROUP_BYTES: u64 = 48;

/// A build of a dataset.
pub(super) struct Build<'a> {
    pub(super) context: &'a Context,
    pub(super) name: &'a Name,
    /// The section as it was written.
    pub(super) dataset: &'a DatasetConfig,
    /// The section, resolved against the landed columns.
    pub(super) spec: DatasetSpec,
    pub(super) input: BuildInput,
    pub(super) tokenizer: TokenizerInput,
    /// The dataset's folder.
    pub(super) store: Store,
    pub(super) previous: PreviousDataset,
}

/// The dataset that the build replaces or extends.
#[derive(Default)]
pub(super) struct PreviousDataset {
    /// Pointer to the current manifest, as read before anything else.
    pub(super) pointer: Option<Bytes>,
    /// State before the latest landing, for a full rebuild.
    pub(super) earlier: Option<Earlier>,
    /// Counts of the dataset being appended to.
    pub(super) counts: PreviousCounts,
    /// Reason for a rebuild of an existing dataset.
    pub(super) rebuild_reason: Option<String>,
    /// The dataset, if a rebuild can put its rows into other splits.
    pub(super) movable: Option<Box<MovableDataset>>,
}

/// Counts of a dataset before rows are appended; all zero for a full build.
#[derive(Default)]
pub(super) struct PreviousCounts {
    /// Shards of each split.
    pub(super) shards: [usize; 3],
    /// Rows, rejected ones included, duplicates not.
    pub(super) rows: u64,
    /// Rejected rows by reason.
    pub(super) rejected: BTreeMap<String, u64>,
}

impl PreviousCounts {
    /// Counts of the dataset of `manifest`.
    pub(super) fn of(manifest: &Manifest) -> Self {
        let counts = &manifest.counts;
        let shards = |split| manifest.split(split).map_or(0, |split| split.shards.len());
        Self {
            shards: Split::ALL.map(shards),
            rows: counts.rows_in.saturating_sub(counts.duplicates),
            rejected: counts.rejected.clone(),
        }
    }
}

/// Settings of a dataset, compared with those of this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatasetSettings {
    Same,
    /// The same, but an earlier version of feedline built the dataset.
    EarlierVersion,
    Other,
}

/// Changes since a dataset was built.
#[derive(Clone, Copy, Debug)]
pub(super) struct DatasetChanges {
    pub(super) settings: DatasetSettings,
    /// True if a joined source has changed.
    pub(super) has_joined: bool,
    /// True if a source of rows or a frozen one may have changed.
    pub(super) has_rows: bool,
    /// True if a source may lack rows that had landed.
    pub(super) lacks_rows: bool,
}

/// Cause for which a rebuild can put rows of the earlier dataset into other splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveCause {
    /// The smallest hash of a group of near-duplicates decides its split, and groups can have changed.
    Groups,
    /// Columns of joined sources that have changed decide the splits.
    Join,
    /// An earlier version of feedline built the dataset.
    EarlierVersion,
    /// Other settings can have changed the groups, the joined columns or the contents that decide the splits.
    Settings,
    /// Newer versions or withdrawn rows alone: the content of a row, or all rows together, decide the splits.
    Rows,
}

/// Dataset whose rows can be in other splits once it is rebuilt.
pub(super) struct MovableDataset {
    pub(super) manifest: Manifest,
    /// One cause at least.
    pub(super) causes: Vec<MoveCause>,
    /// True if the rebuild is refused where rows change their splits; otherwise it warns.
    pub(super) is_refused: bool,
    /// True if a source may lack rows that had landed: a row can have another landing position.
    pub(super) lacks_rows: bool,
}

impl MovableDataset {
    /// Returns true if `cause` is one of its causes.
    pub(super) fn has(&self, cause: MoveCause) -> bool {
        self.causes.contains(&cause)
    }
}

/// Sources and transform of a dataset before more rows landed.
pub(super) struct Earlier {
    pub(super) sources: Vec<SourceReference>,
    pub(super) artefact: TransformArtefact,
}

impl<'a> Build<'a> {
    /// Reads what has landed, and resolves the configuration against it. Nothing is written.
    ///
    /// # Errors
    /// As [`build`](super::build), as far as no row is looked at.
    pub(super) async fn prepare(
        config: &'a PipelineConfig,
        context: &'a Context,
    ) -> Result<Self, Error> {
        let missing = || {
            Error::config(
                "dataset",
                "the pipeline has no `[dataset]` section, add one",
            )
        };
        let dataset = config.dataset.as_ref().ok_or_else(missing)?;
        let rows = chosen(dataset, &config.source)?;
        let against = frozen(dataset, &config.source)?;
        let has_foreign = rows.iter().any(|(source, _)| source.is_foreign());
        let store = context.root.child("dataset");
        // Before anything is read: who publishes from now on may have read more.
        let pointer = pointer(&store).await?;
        let selected = (rows, against);
        let input = BuildInput::read(dataset, &config.source, selected, &context.root);
        let mut input = Box::pin(input).await?;
        let mut spec = resolve_spec(dataset, &mut input, context).await?;
        let tokenizer = TokenizerInput::read(dataset, context).await?;
        isolate_images(&mut spec, has_foreign, context)?;
        let previous = PreviousDataset {
            pointer,
            ..PreviousDataset::default()
        };
        let mut build = Self {
            context,
            name: &config.pipeline.name,
            dataset,
            spec,
            input,
            tokenizer,
            store,
            previous,
        };
        build.input.hash = build.inputs_of(&build.spec.config, None);
        Ok(build)
    }
}

/// Resolves the section against the landed columns, to which joins add theirs.
async fn resolve_spec(
    dataset: &DatasetConfig,
    input: &mut BuildInput,
    context: &Context,
) -> Result<DatasetSpec, Error> {
    let joins = join::resolve(dataset, &mut input.columns, &input.joined)?;
    let mut spec = DatasetSpec {
        joins,
        ..column_roles::resolve(dataset, &input.columns)?
    };
    if let Some(expect) = &dataset.expect {
        spec.expect = Some(Expect::read(expect, &spec, context).await?);
    }
    near::check_frozen(spec.near_dup.as_ref(), &input.frozen)?;
    if let Some(series) = &mut spec.series {
        let names = input.names.iter().map(ToString::to_string);
        Arc::make_mut(series).sources = names.collect();
    }
    Ok(spec)
}

/// Has images decoded in processes of their own, where the configuration or a foreign source asks for it.
fn isolate_images(
    spec: &mut DatasetSpec,
    has_foreign: bool,
    context: &Context,
) -> Result<(), Error> {
    let held = spec.payload.iter_mut().chain(&mut spec.parts);
    for images in held.filter_map(|held| held.images.as_mut()) {
        images.isolated(has_foreign, context.decoder.as_deref())?;
    }
    Ok(())
}

impl Build<'_> {
    /// Hash of all inputs of the dataset: the resolved `config` and the positions of its sources,
    /// or the positions in `at`.
    pub(super) fn inputs_of(
        &self,
        config: &DatasetConfig,
        at: Option<[&[SourceReference]; 3]>,
    ) -> Hash128 {
        self.inputs_of_version(BuildVersion::CURRENT, config, at)
    }

    /// The same hash as a build of another `version` has it.
    pub(super) fn inputs_of_version(
        &self,
        version: BuildVersion,
        config: &DatasetConfig,
        at: Option<[&[SourceReference]; 3]>,
    ) -> Hash128 {
        input_hash(
            version,
            self.name,
            config,
            self.tokenizer
                .given
                .as_ref()
                .map(|given| given.tokenizer.hash()),
            self.spec.expect.as_ref().map(|expect| expect.hash),
            [&self.input.sources, &self.input.joined, &self.input.frozen],
            at,
        )
    }

    /// Settings that may have changed where that hash is another. It is of all of them, so the key is not known.
    pub(super) fn changed_settings(&self) -> String {
        let parts = [
            (true, "a key of `[dataset]`"),
            (
                self.tokenizer.given.is_some(),
                "the file of `dataset.tokens.tokenizer`",
            ),
            (self.spec.expect.is_some(), "the file of `dataset.expect`"),
            (!self.input.joined.is_empty(), "a joined source"),
        ];
        let parts = parts.into_iter().filter(|(may_change, _)| *may_change);
        let parts: Vec<&str> = parts.map(|(_, part)| part).collect();
        format!(
            "{} or the version of feedline has changed",
            parts.join(", ")
        )
    }

    /// The tables that rows are read from.
    pub(super) fn tables(&self) -> &[Landed] {
        self.input.tables()
    }

    /// About how many bytes a row's image or text has; landed files are packed.
    pub(super) fn payload_bytes(&self) -> Option<u64> {
        let bytes = unpacked(self.tables()).saturating_add(self.joined_bytes());
        let each = bytes / self.input.rows.max(1);
        let carried = self.spec.near_dup.as_ref().and_then(NearDup::carried);
        let holds = self.spec.payloads().next().is_some() || carried.is_some();
        holds.then_some(each)
    }

    /// About how many bytes the sources have that are joined on.
    pub(super) fn joined_bytes(&self) -> u64 {
        // Each row may be a group of its own, which its last time is found by.
        let split = &self.spec.config.split;
        let is_grouped = split.by.is_time() && !split.key.is_empty();
        let groups = if is_grouped {
            self.input.rows.saturating_mul(GROUP_BYTES)
        } else {
            0
        };
        let is_frozen = |source: &&Landed| Some(&source.reference.name) == split.frozen();
        let frozen: u64 = self
            .input
            .sources
            .iter()
            .filter(is_frozen)
            .map(|s| s.rows() * GROUP_BYTES)
            .sum();
        unpacked(&self.input.joined) + groups + frozen
    }

    /// Rows that were neither dropped nor rejected. A document split by range has one training
    /// part.
    pub(super) fn kept(&self, staged: &Staged) -> u64 {
        if self.cuts_documents() {
            staged.rows(Split::Train)
        } else {
            staged.total()
        }
    }

    /// Returns true if each document is divided into one part per split.
    pub(super) fn cuts_documents(&self) -> bool {
        self.spec.config.split.by.is_range() && self.spec.payload.is_some()
    }

    /// The pass that looks for near-duplicates.
    pub(super) fn near_dup<'a>(&'a self, scratch: &'a Scratch) -> Option<near::Pass<'a>> {
        let progress = &self.context.progress;
        self.spec.near_dup.as_ref().map(|near| near::Pass {
            near,
            names: &self.input.names,
            frozen: &self.input.frozen,
            scratch,
            meter: Arc::new(PassProgress::new(
                progress,
                "shards: near-duplicates",
                self.input.rows,
            )),
        })
    }

    /// The windows that are the samples, where rows are not.
    pub(super) fn sequence(&self) -> Option<Sequence> {
        self.spec.series.as_ref().and_then(|series| series.sequence)
    }
}
