//! Reports of the commands with `--json`. The names are a contract; fields may be added.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    amendment::{CompactionReport, SettingsChanged},
    checkpoint::WorstSample,
    commit::{Decisions, Position},
    diagnostics::Diagnostics,
    edit::EditReference,
    failures::FailedRuns,
    ids::Hash128,
    lease::LastRun,
    manifest::{
        BoxCounts, ClassCounts, ConflictCounts, CutCounts, GroupCounts, JoinCounts, NaiveForecast,
        NearDupCounts, NearImageCounts, RedactedCounts, SequenceCounts, TokenCounts,
    },
    performance::Performance,
    run::{ContinuedFrom, RunState},
};

pub use crate::warning::{Warning, replace_warning};

/// Report of `run`: sections that did not run are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunReport {
    /// Ingest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingest: Option<IngestReport>,
    /// Dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dataset: Option<DatasetReport>,
    /// Training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<TrainReport>,
}

/// Report of ingest, over all sources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IngestReport {
    /// Rows in the landing zone (all runs).
    pub rows: u64,
    /// Records left out as identical to a landed one (all runs).
    pub duplicates: u64,
    /// Rejected records (all runs).
    pub rejected: u64,
    /// HTTP requests of this run, retries included.
    pub requests: u64,
    /// Requests of this run that were repeated.
    pub retries: u64,
    /// Batches committed (all runs).
    pub batches: u64,
    /// Landing zone.
    pub url: String,
    /// True when the run was asked to stop before its end; the next one resumes there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Per source.
    pub sources: Vec<SourceReport>,
}

/// Report of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceReport {
    /// Source name.
    pub name: String,
    /// `complete`, `partial`, `deferred` or `empty`; `failed` where this run of the source ended by an error, `damaged` where
    /// landed files are missing or damaged.
    pub status: String,
    /// The error that this run of the source ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Rows landed by all runs.
    pub rows: u64,
    /// Rows landed by this run; absent in `ingest status` and where the run failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_rows: Option<u64>,
    /// Rows landed in each child table.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<String, u64>,
    /// Duplicates left out.
    pub duplicates: u64,
    /// Rejected records.
    pub rejected: u64,
    /// Rejected records by reason.
    pub rejected_by_reason: BTreeMap<String, u64>,
    /// One rejected record and why.
    pub reject_sample: Option<String>,
    /// Pages that gave no record for a reason that is no failure, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub skipped: BTreeMap<String, u64>,
    /// Values converted without loss to their column's type.
    pub coerced: u64,
    /// Values that did not fit their column and were landed as null.
    pub nulled: u64,
    /// Decisions of the contract, by kind and column, with the first value of each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub decisions: Decisions,
    /// Warnings that hold as of the newest entry of the log, and those of this run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// Slices and values; absent where a source has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<SlicesReport>,
    /// Batches committed.
    pub batches: u64,
    /// Pages or files read.
    pub pages: u64,
    /// Requests of this run.
    pub requests: u64,
    /// Retries of this run.
    pub retries: u64,
    /// Bytes landed.
    pub bytes: u64,
    /// Data files, those of child tables included.
    #[serde(default)]
    pub files: u64,
    /// Landed files of all kinds that this start, or `ingest status`, has compared with the log: those that are new since
    /// another start, and in a run also a slice of the older ones that differs from run to run.
    #[serde(default)]
    pub compared_files: u64,
    /// Compaction after the run, if `ingest.compact` is set and files were many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacted: Option<CompactionReport>,
    /// Version of the record schema.
    pub schema_version: u32,
    /// Landing folder.
    pub url: String,
    /// `ingest status`: landed files that are missing or have another size than the log says, and of the newest ones those that do
    /// not end as they should. `ingest verify` reads the files themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damage: Vec<Damage>,
    /// Settings that were changed after records had landed: in a run those that it found changed, in `ingest status` the
    /// newest change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings_changed: Option<SettingsChanged>,
    /// `ingest status`: Delta tables over what has landed, and how far they are behind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delta: Vec<DeltaTableReport>,
    /// `ingest status`: the source's schedule and last runs, and the plan of its next run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing: Option<Standing>,
}

/// Schedule and last runs of a source, as reported by `ingest status`. Times are seconds since
/// 1970-01-01 UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Standing {
    /// When the newest batch was committed, by the clock of the store: entries of the log hold no times, so that equal pages
    /// make equal entries. Absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub committed_unix_s: Option<u64>,
    /// Seconds since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_s: Option<u64>,
    /// Incremental: the highest cursor of all records so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Seconds from it to now, where it is a time or a day (which begins at midnight UTC); absent for one of the future.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor_lag_s: Option<u64>,
    /// Until when a server asked to be left alone, where that is not over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before_unix_s: Option<u64>,
    /// The last run that `serve` made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_run: Option<LastRun>,
    /// Its runs that failed since the last one that did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<FailedRuns>,
    /// Program that runs it now, where a lease that has not ended says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// Versions of the record schema so far.
    pub schema_versions: u32,
    /// Columns of the newest one.
    pub columns: u64,
    /// Plan of the next run, for a person.
    pub next: String,
}

/// Progress of the slices and values of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlicesReport {
    /// Slices that are done, over all values, counted by the configured step.
    pub done: u64,
    /// Slices that are open. Where the range ends now, those of the pass that is under way.
    pub open: u64,
    /// Values that are done; of a source without a list there is one.
    pub values_done: u64,
    /// Values that are open. Of a list that another source gives, as many as were known when the last pass began.
    pub values_open: u64,
    /// Intervals that are done of the values with the least progress, such as
    /// `2026-01-01 to 2026-03-01`.
    pub ranges: Vec<String>,
    /// The slice or value that is being read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_work: Option<String>,
}

/// Report of `ingest delta`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeltaReport {
    /// True if the tables were removed and written again.
    pub rebuilt: bool,
    /// Per table: of each source its records, and its child tables.
    pub tables: Vec<DeltaTableReport>,
}

/// A Delta table over landed files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeltaTableReport {
    /// `SOURCE`, or `SOURCE.TABLE` for a child table.
    pub table: String,
    /// Folder of the table, as Delta readers open it.
    pub url: String,
    /// Newest version; absent for a table that cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Entry of the commit log that it follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// Entries of the commit log after that one.
    pub behind: u64,
    /// `ingest delta`: files of the table.
    pub files: u64,
    /// `ingest delta`: files that were written again, since a column has a wider type by now.
    pub copies: u64,
    /// Bytes of these.
    pub copied_bytes: u64,
    /// Reason why the table cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Decisions about the table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// Report of `ingest resume`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResumeReport {
    /// Per source.
    pub sources: Vec<ResumedSource>,
}

/// A source whose deferral was ended, if there was one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResumedSource {
    /// Source name.
    pub name: String,
    /// When the deferral would have ended, Unix time in seconds; absent for a source that was not deferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifted_until_unix_s: Option<u64>,
}

/// Report of `ingest repair`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RepairReport {
    /// True when nothing was changed.
    pub dry_run: bool,
    /// Per source.
    pub sources: Vec<RepairedSource>,
}

/// Repair of the commit log of a source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RepairedSource {
    /// Source name.
    pub name: String,
    /// Damage of the first bad entry; absent for an intact log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// Good entries, which stay.
    pub kept: u64,
    /// Entries from the first damaged one on.
    pub set_aside: u64,
    /// Rows that the good entries landed.
    pub rows: u64,
    /// Pages or files that they read.
    pub pages: u64,
    /// Position that the next run resumes from.
    pub position: Position,
    /// Folder that the removed entries were moved to.
    pub url: String,
    /// Rows that the removed entries had landed, as far as these can be read: the next run requests them again.
    #[serde(default)]
    pub rows_set_aside: u64,
    /// Pages or files that they had read.
    #[serde(default)]
    pub pages_set_aside: u64,
    /// Landed files that were lost or damaged and were restored from a copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restored: Vec<String>,
    /// Files that no entry names, which were moved: to `orphans/`, or beside the removed entries.
    #[serde(default)]
    pub unnamed: u64,
}

/// Report of `ingest verify`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LandingVerifyReport {
    /// Per source.
    pub sources: Vec<VerifiedSource>,
}

/// The commit log of a source, with every file that it names read and hashed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerifiedSource {
    /// Source name.
    pub name: String,
    /// Landing folder.
    pub url: String,
    /// Entries that are good and follow one another.
    pub entries: u64,
    /// Files that they name and that are as they say.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Rows that these entries landed.
    pub rows: u64,
    /// All that is wrong, in the order of the log; empty for a landing zone that is intact.
    pub damage: Vec<Damage>,
    /// Files of batches that no entry names: of a run that was killed, or that is under way. The next run moves them.
    pub unnamed: Vec<String>,
    /// Files in `orphans/`, where files go that no entry names; nothing needs them.
    pub orphans: u64,
}

/// A part of a landing zone that is not as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Damage {
    /// File or log entry, relative to the landing folder.
    pub path: String,
    /// Number of the entry that names the file, or that is damaged itself.
    pub entry: u64,
    /// Description of the damage.
    pub reason: String,
}

/// Report of a shard build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DatasetReport {
    /// Rows read.
    pub rows_in: u64,
    /// Rows dropped as duplicates.
    pub duplicates: u64,
    /// Rejected rows.
    pub rejected: u64,
    /// Rejected rows by reason.
    pub rejected_by_reason: BTreeMap<String, u64>,
    /// Rows rejected since one of several targets is missing or no number as it landed, by the first such target.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected_targets: BTreeMap<String, u64>,
    /// One rejected row and why.
    pub reject_sample: Option<String>,
    /// Columns that landed and are no features although the configuration does not say so, each with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped_columns: BTreeMap<String, String>,
    /// Rows left out because the configuration says so, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub filtered: BTreeMap<String, u64>,
    /// Rows that are not as expected and were kept, by column and expectation (`price.max`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unexpected: BTreeMap<String, u64>,
    /// Rows that were equal but for their target, where one of them is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<ConflictCounts>,
    /// Groups of the split's key, where a tolerance asks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<GroupCounts>,
    /// Result of the search for near-duplicates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near_dup: Option<NearDupCounts>,
    /// Personal data that was replaced in the documents that were kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redacted: Option<RedactedCounts>,
    /// Results of the joins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joins: Vec<JoinCounts>,
    /// Images whose embeddings are near.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_images: Option<NearImageCounts>,
    /// Boxes in the images that were kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boxes: Option<BoxCounts>,
    /// Classes of the target by id, with their rows; none where the target is no class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassCounts>,
    /// Training rows.
    pub train: u64,
    /// Validation rows.
    pub validation: u64,
    /// Test rows.
    pub test: u64,
    /// Token ids of each split, where rows are documents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenCounts>,
    /// Ids truncated from texts that were longer than a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<CutCounts>,
    /// Counts of windows over series; then the splits count windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<SequenceCounts>,
    /// Naive forecasts of these windows, to compare a model with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub naive: Vec<NaiveForecast>,
    /// Shards written or found.
    pub shards: u64,
    /// Bytes of the shards.
    pub bytes: u64,
    /// True when the shards of an earlier build with the same inputs were found and kept.
    pub up_to_date: bool,
    /// Manifest fingerprint.
    pub fingerprint: String,
    /// Dataset folder.
    pub url: String,
    /// Page about the dataset (HTML), where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// Rows that this build appended to an existing dataset; absent where it made all of it, or
    /// nothing. The other figures are of the complete dataset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<AddedReport>,
    /// Reason that an existing dataset was rebuilt and refitted from all rows; absent where it was
    /// not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anew: Option<String>,
    /// Decisions of the build that a person should know of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// Rows that a build appended to an existing dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AddedReport {
    /// Rows that had landed since.
    pub rows_in: u64,
    /// Duplicates among these, of one another or of earlier rows.
    pub duplicates: u64,
    /// Rejected rows among these.
    pub rejected: u64,
    /// Training rows added.
    pub train: u64,
    /// Validation rows added.
    pub validation: u64,
    /// Test rows added.
    pub test: u64,
    /// Shards added.
    pub shards: u64,
    /// Shards that stay as they were.
    pub kept_shards: u64,
    /// Features, the target of a regression and the shares of classes (`<column>=<class>`) whose
    /// appended training rows differ from those that the transform was fitted on. The most
    /// different first, at most ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shifts: Vec<FeatureShift>,
}

/// A feature whose appended training rows differ from those before, in the units of the shards:
/// after all steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FeatureShift {
    /// Name of the feature, or of the target.
    pub feature: String,
    /// Mean of the training rows that the transform was fitted on.
    pub before: f64,
    /// Mean of those that were added.
    pub after: f64,
    /// Difference of the means, in standard deviations (of both, as the root of the mean of their variances); at most 1,000
    /// either way.
    pub deviations: f64,
}

/// Report of `shards expect`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExpectReport {
    /// Columns with expectations.
    pub columns: u64,
    /// The file that was written.
    pub file: String,
}

/// Parameters that Muon updates, and those that it leaves to AdamW.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MuonParameters {
    /// Matrices and kernels inside the model, which Muon updates.
    pub matrices: u64,
    /// Parameters in these matrices.
    pub muon: u64,
    /// Parameters that AdamW updates: embeddings, the last layer, biases and scales of norms.
    pub adamw: u64,
}

/// Report of training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrainReport {
    /// Optimizer steps taken.
    pub steps: u64,
    /// Step of the checkpoint that the command began with: at `steps`, it trained nothing. Absent
    /// for a run that began at its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<u64>,
    /// Seed.
    pub seed: u64,
    /// Epochs finished.
    pub epochs: u64,
    /// Epoch whose weights were kept, from 1.
    pub best_epoch: u64,
    /// Trainable parameters.
    pub parameters: u64,
    /// Parameters by the algorithm that updates them; absent for optimizers other than `muon`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub muon: Option<MuonParameters>,
    /// Device that computed, such as `cpu` or `NVIDIA H200 (cuda:0)`.
    #[serde(default)]
    pub device: String,
    /// Names of the classes by id; none where the model predicts no class. Of two, `f1` is about the second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Names of the targets where the model predicts several numbers of each row. The metrics of each have its name behind a dot; without
    /// one, `rmse` and `mae` are over the targets as stored (standardized, unless `dataset.scale_target` is false), and `r2` is the mean.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Metrics on the test split, in the target's units.
    pub test: BTreeMap<String, f64>,
    /// The same metrics of the baseline: always the training mean, or the most frequent training class.
    pub baseline: BTreeMap<String, f64>,
    /// Metrics on the validation split of the kept weights.
    pub validation: BTreeMap<String, f64>,
    /// The same metrics of the baseline on the validation split.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub validation_baseline: BTreeMap<String, f64>,
    /// Tokens of the test split that were predicted, which its metrics are means over; absent where the model predicts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_tokens: Option<u64>,
    /// Warnings about the model, such as `worse_than_baseline`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// The 20 validation samples with the largest losses under the kept weights; none for tokens.
    #[serde(default)]
    pub worst: Vec<WorstSample>,
    /// Diagnostics on the test split; absent where tokens or the features themselves are predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_diagnostics: Option<Diagnostics>,
    /// Diagnostics on the validation split of the kept weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_diagnostics: Option<Diagnostics>,
    /// Batches left out, since their loss or gradient was not finite.
    #[serde(default)]
    pub skipped_batches: u64,
    /// Times that the weights went back, since the loss had diverged.
    #[serde(default)]
    pub rollbacks: u64,
    /// Treatment of images; absent where the dataset has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<ImagesReport>,
    /// Samples that each dataset of a mixture gave, in the order of the loader: the one that is trained on, then the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mixture: Vec<MixedSource>,
    /// Share of the training time the trainer waited for batches, 0 to 1.
    pub data_wait_share: f64,
    /// Speed of the steps that this command took, and use of the device; absent where it took none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub performance: Option<Performance>,
    /// Checkpoint with the kept weights.
    pub checkpoint: String,
    /// Metrics file (JSON lines).
    pub metrics: String,
    /// Page with the curves and everything else about the run (HTML).
    #[serde(default)]
    pub report: String,
    /// The checkpoint of another run that this one began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued_from: Option<ContinuedFrom>,
    /// Reason why `--resume` found no checkpoint to continue from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_over: Option<String>,
}

/// The run whose model a command used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsedRun {
    /// Name.
    pub name: String,
    /// Manner of the choice.
    pub chosen: ChosenBy,
    /// Dataset folder that it was trained on.
    pub dataset: String,
    /// Fingerprint of that dataset's manifest.
    pub fingerprint: String,
    /// Rows of that dataset's training split; absent where the run's record does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Relation of that dataset to the one at hand; absent where the command used none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relation: Option<DatasetRelation>,
    /// Keys of `[train]` whose values in the run differ from the configuration, with those of the run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub differs: BTreeMap<String, String>,
    /// Last known state of the run, where it has not finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<RunState>,
    /// Observations about the choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// Manner in which a run was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChosenBy {
    /// It is the run of the configuration and dataset.
    Configuration,
    /// There is none of these, and it is the newest finished run that fits.
    Default,
    /// `--run newest`.
    Newest,
    /// `--run best`.
    Best,
    /// `--run` with the beginning of its name.
    Name,
}

/// The dataset that a run was trained on, beside another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DatasetRelation {
    /// They are the same.
    Same,
    /// The other is it with rows that were added: those of a split were in the same split.
    Grown,
    /// They are two datasets: rows that are measured may have been trained on.
    Other,
}

/// Report of `weights export`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExportReport {
    /// The run that the weights are of.
    pub run: UsedRun,
    /// File that was written.
    pub to: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Treatment of images by a training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImagesReport {
    /// Mean of red, green and blue that is subtracted, as shares of 255; of one channel, the first.
    pub mean: [f32; 3],
    /// Standard deviation that is divided by, as a share of 255; of one channel, the first.
    pub deviation: [f32; 3],
    /// Origin of both.
    pub normalized_by: NormalizedBy,
    /// True where training images change at random (`train.images.augment`).
    pub augmented: bool,
    /// True where training images are mixed in pairs (`train.images.mix`): the training loss is then that of mixed targets.
    pub mixed: bool,
}

/// Origin of the mean and the standard deviation that images are normalised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormalizedBy {
    /// The training split of the dataset.
    Dataset,
    /// ImageNet.
    Imagenet,
    /// The run that the weights of `train.init` are of.
    Init,
    /// `train.images.mean` and `train.images.deviation`.
    Given,
}

/// Dataset of a mixture, and the samples that it gave to a training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MixedSource {
    /// Its folder.
    pub dataset: String,
    /// Fingerprint of its manifest.
    pub fingerprint: Hash128,
    /// Share of the samples that its weight asks for, 0 to 1.
    pub share: f64,
    /// Samples of its training split.
    pub samples: u64,
    /// Samples that it gave in all epochs, rows that came again included.
    pub given: u64,
}

/// Report of `eval`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalReport {
    /// Split.
    pub split: String,
    /// Rows.
    pub rows: u64,
    /// Names of the classes by id; none where the model predicts no class. Of two, `f1` is about the second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Names of the targets where the model predicts several numbers of each row. The metrics of each have its name behind a dot; without
    /// one, `rmse` and `mae` are over the targets as stored (standardized, unless `dataset.scale_target` is false), and `r2` is the mean.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Tokens that were predicted, which the metrics are means over; absent where the model predicts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Metrics in the target's units.
    pub metrics: BTreeMap<String, f64>,
    /// Metrics of the baseline.
    pub baseline: BTreeMap<String, f64>,
    /// Warnings about the figures, such as `worse_than_baseline`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// The 20 samples with the largest losses; none for tokens.
    #[serde(default)]
    pub worst: Vec<WorstSample>,
    /// Diagnostics; absent where tokens or the features themselves are predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnostics: Option<Diagnostics>,
    /// Checkpoint.
    pub checkpoint: String,
    /// Dataset that was measured.
    #[serde(default)]
    pub dataset: String,
    /// The run that the weights are of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<UsedRun>,
    /// File with the predictions of all rows, where one was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predictions: Option<String>,
}

/// Report of `shards verify`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerifyReport {
    /// Dataset folder.
    pub url: String,
    /// Manifest fingerprint.
    pub fingerprint: String,
    /// Shards checked.
    pub shards: u64,
    /// Blocks checked.
    pub blocks: u64,
    /// Rows counted.
    pub rows: u64,
    /// Keys found in more than one split.
    pub leaked_keys: u64,
    /// Problems found; empty when there are none.
    pub problems: Vec<String>,
}

/// Report of editing a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EditReport {
    /// Edited dataset, model, counts of tokens, and figures before and after.
    #[serde(flatten)]
    pub edit: EditReference,
    /// Signs that the text became narrower, for people; empty where it did not.
    pub warnings: Vec<String>,
    /// True when the dataset of an earlier edit of the same was found and kept.
    pub up_to_date: bool,
    /// Fingerprint of the new dataset.
    pub fingerprint: String,
    /// Its folder.
    pub url: String,
}

/// Report of `generate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GenerateReport {
    /// The run that the weights are of.
    pub run: UsedRun,
    /// Place of the weights.
    pub checkpoint: String,
    /// The prompt, prepared as the texts of the dataset.
    pub prompt: String,
    /// Its tokens.
    pub prompt_tokens: u64,
    /// Most tokens that the model reads.
    pub context: u64,
    /// Rule that the tokens were drawn by.
    #[serde(flatten)]
    pub rule: GeneratingRule,
    /// The texts.
    pub texts: Vec<GeneratedText>,
    /// Warnings, such as `prompt_cut`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// Rule that the tokens of a text are drawn by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratingRule {
    /// Most tokens of a text.
    pub tokens: u32,
    /// Divisor of the scores before a token is drawn; 0 takes the most probable one.
    pub temperature: f64,
    /// Most tokens to draw from, the most probable ones; all of them when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// Share of the probability to draw from, 0 to 1: the fewest tokens, most probable first, that have it; all of them
    /// when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Seed of the draws.
    pub seed: u64,
}

/// A generated text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratedText {
    /// Text after the prompt.
    pub text: String,
    /// Its tokens, without the one that ends a text.
    pub tokens: u64,
    /// Reason why it ends.
    pub end: GeneratedEnd,
}

/// Reason why a generated text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GeneratedEnd {
    /// The model gave the token that ends a text.
    EndOfText,
    /// It has the requested number of tokens.
    Length,
    /// It was stopped.
    Stopped,
}

/// Report of `predict`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictReport {
    /// Rows read, and written.
    pub rows: u64,
    /// Of these, rows without a prediction.
    pub rejected: u64,
    /// Those by reason.
    pub rejected_by_reason: BTreeMap<String, u64>,
    /// One of them and why.
    pub reject_sample: Option<String>,
    /// Columns of the file that are not used, where its format names them.
    pub ignored: Vec<String>,
    /// Delimiter of the CSV file, where another than the usual one was detected by the columns that
    /// it gives. The key `csv.delimiter` of the source sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detected_delimiter: Option<char>,
    /// Inputs that no row had: they were missing everywhere.
    pub absent: Vec<String>,
    /// Missing cells of each input in the rows with a prediction. Inputs without any are absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missing_cells: BTreeMap<String, u64>,
    /// Rows of each category whose value the transform does not know. Categories without any are absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown_categories: BTreeMap<String, u64>,
    /// Cells of each number far outside of the training rows: below or above the range of a `min_max` step, or beyond the caps of a
    /// `winsorize` step by more than the caps are apart. Numbers without any, and those without such a step, are absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub far_outside: BTreeMap<String, u64>,
    /// New rows of a series without a prediction of their own: duplicates of landed rows, or of one
    /// another.
    #[serde(default)]
    pub copies: u64,
    /// Rows of the past of a series that were rejected, as in a build, or when the history was read.
    #[serde(default)]
    pub rejected_before: u64,
    /// Columns that the predictions are ordered by, entity first, then time; none where they are in the order of the rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ordered_by: Vec<String>,
    /// Hash of the transform artefact.
    pub transform: String,
    /// Run that the weights are of; absent where only the transform was applied.
    pub run: Option<String>,
    /// Choice of that run, and its dataset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<UsedRun>,
    /// File of the weights.
    pub checkpoint: Option<String>,
    /// File of the predictions; `-` is standard output.
    pub to: String,
}
