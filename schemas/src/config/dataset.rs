//! `[dataset]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    StoredImageConfig,
    document::DocumentConfig,
    expect::ExpectConfig,
    join::JoinConfig,
    near_dup::NearDupConfig,
    sequence::SequenceConfig,
    series::{FeatureConfig, SeriesConfig},
    split::SplitConfig,
    target::TargetColumns,
};
use crate::{
    ids::{Seed, TableName},
    transform::CategoryEncoding,
    units::ByteSize,
};

/// The dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DatasetConfig {
    /// What a row becomes: `rows` of numbers (default), `images`, `characters`, `tokens`, or `multi`, several of them.
    #[serde(skip_serializing_if = "DatasetKind::is_rows")]
    pub kind: DatasetKind,
    /// `images`: column of whole image files. Default `image`. `characters` and `tokens`: column of documents.
    /// Default `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// `multi`: column of the image file that each row has. Absent: rows have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_column: Option<String>,
    /// `multi`: column of the text that each row has as tokens. Absent: rows have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_column: Option<String>,
    /// `images`, `multi`: how they are decoded and stored. Default: files are stored as they came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<StoredImageConfig>,
    /// `tokens`, `multi`: how documents become token ids, and those rows. Default: a tokenizer is learnt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokensConfig>,
    /// Parquet files that are read as they lie, without a `[[source]]` and a landing zone: a local path, relative to where the
    /// program is started, whose last part may have `*` and `?`, such as `in/*.parquet`. All have the same columns. Use it
    /// for large tables that somebody keeps and nobody changes: nothing is copied, and a file that changes makes another
    /// dataset. For `kind = "rows"`, in place of `sources`. Absent: rows are those of sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    /// Sources whose rows are put under one another; `<source>.<table>` is a child table of one (`contract.children`), with a
    /// row for each item of a list. Default: all sources of the pipeline that nothing else names, without child tables.
    pub sources: Vec<TableName>,
    /// SQL query (of Apache DataFusion) whose result is the rows of the dataset, over tables that are called as `sources` are (a child table
    /// in double quotes), before any other step: for what no key says, such as a condition, a computed column or a
    /// sum over another source. Names are written as they are. Integers are exact: a sum, difference or product, or a `sum` over
    /// rows, that leaves 64 bits ends the build; compute with a `cast(... as double)` or `cast(... as decimal(38, 0))` there. The
    /// query runs in one partition; sums and means of floats
    /// follow the order of the rows, and an `order by` with `limit` must leave no ties, or the result is not the same
    /// for every memory limit. Rows are told apart by their content; the origin of a row is its place among them in
    /// the order of their hashes. Default: the rows of the sources, one under another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
    /// Sources whose columns are put beside the rows that have their keys, such as labels from a table. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub join: Vec<JoinConfig>,
    /// Column to predict, or for `kind = "rows"` a list of columns of numbers that one model predicts, such as `["low", "high"]`. Each
    /// of several is standardized by itself (`scale_target`), a row that lacks one is rejected, the loss of a row is the mean over
    /// its targets, and metrics are given for each by name. Absent: shards without a target.
    pub target: Option<TargetColumns>,
    /// `regression` (default) or `classification`.
    pub task: Task,
    /// `classification`: all classes of the target in the order of their ids, from 0, such as `["no", "yes"]` or
    /// `[0, 1, 2]`. Texts are written as they landed. Rows with another label are rejected as `unlisted_class`. List the
    /// classes where ids must stay the same whatever lands, where a class may have no training row yet, or to choose
    /// class 1 of two, which `f1` and `positive_weight` are about. Default: the classes of the training split, numbers by
    /// value, then texts by code points; rows of other classes are rejected as `unknown_class`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassLabel>,
    /// Columns that are features. Default: every column but target, key, dropped and system columns. A target may be listed where
    /// `dataset.sequence` has a horizon of 1 or more: windows then hold its past, which is known when the forecast is made.
    pub features: Vec<String>,
    /// Columns that are left out of the features.
    pub drop: Vec<String>,
    /// Columns read as categories although they hold numbers.
    pub categorical: Vec<String>,
    /// `rows`: columns that the shards hold beside the features, each under its own name and as it landed, to find or check
    /// rows by, such as an id. `eval --predictions` writes them beside each prediction; of a window they are those of the row that is
    /// predicted, such as its entity and time. Dates, times of day and timestamps without a zone of `dataset.files` are texts here. They are
    /// no features unless `features` or a step lists them. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passthrough: Vec<String>,
    /// Text values read as missing, compared after trimming spaces. Default `[]`. The empty text is always missing.
    pub null_values: Vec<String>,
    /// Numbers read as missing, such as `-200`. Default `[]`.
    pub missing_values: Vec<f64>,
    /// Decimal sign of texts that are read as numbers, one character, such as `","` for `3,5`: features, a target that is a number,
    /// and the columns of series; also in rows to predict. What landed as a number is taken as it is, a number among texts lands as text, and a CSV column lands as
    /// numbers where its cells look like such: where `1.234` is meant as 1234, give it `type = "text"` in
    /// `source.contract.column`. A text that is no number by these signs is missing, and set aside as a target. Default `"."`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decimal_separator: Option<char>,
    /// Sign between groups of three digits in such texts, one character, such as `"."` for `1.234,56`. Texts without groups are
    /// numbers as well; groups of another length are none. Default: there is none, so `1,234` is no number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thousands_separator: Option<char>,
    /// `exact` (default): of rows with equal content the first landed is kept; a build that drops more than one per cent of its
    /// rows so warns of it. `none`: all that landed are kept, for tables where equal rows are different observations; a source
    /// leaves out equal records before, unless its `batch.dedup_window` is 0, as it is for `files` by default. All copies of a row are in one split, so the splits
    /// may miss their shares.
    pub dedup: DedupMode,
    /// `rows`: columns that are no part of the content, such as an id or when a record was read: rows that differ in
    /// nothing else are copies of one another. They stay columns like others. List them where each record comes with
    /// something of its own, so that no copy would ever be found. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dedup_ignore: Vec<String>,
    /// `rows`: what becomes of rows that are equal but for the target: `first`, `majority` or `drop`. Set it where one thing may
    /// have been labelled twice: such rows are one content then, which stands in one split and counts once. Default: the
    /// target is part of the content, so each of them is a row of its own, and they may stand in several splits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<Conflicts>,
    /// What happens to documents first. Absent: they are taken as they landed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<DocumentConfig>,
    /// Documents that are nearly the same. Absent: they are not looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near_dup: Option<NearDupConfig>,
    /// What makes the rows series in time. Absent: they have no order but that in which they landed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<SeriesConfig>,
    /// Features made of the past of a series. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub feature: Vec<FeatureConfig>,
    /// Windows over a series, as samples. Absent: every row is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<SequenceConfig>,
    /// How rows are split.
    pub split: SplitConfig,
    /// Steps, in the order they are applied. Default: impute by the median, winsorize at 1 and 99 %, standardize, and
    /// categories one-hot. Each is fitted on the training split, on the output of the step before.
    pub step: Option<Vec<StepConfig>>,
    /// True to store a regression target standardized (inverted in every report). Default true. Without it the largest numbers of
    /// several targets decide their loss.
    pub scale_target: Option<bool>,
    /// Shards.
    pub shards: ShardConfig,
    /// Largest share of rows that may be rejected, 0 to 1; above it the build stops. Where rows are appended it is a share of all rows,
    /// those before included; appended rows above it by themselves are a warning. Default 0.05.
    pub max_reject_fraction: Option<f64>,
    /// Largest share of a row's features that may be missing as it landed, 0 to 1: rows that lack more are left out, and
    /// counted, before the split and before anything is fitted. Lower it where a row of mostly filled cells would teach
    /// nothing. Default: no row is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_missing_fraction: Option<f64>,
    /// What columns are expected to hold. Absent: nothing is. Set it where a source may change in silence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<ExpectConfig>,
    /// Whether the build also writes what each feature and the target hold in each split (`profile-<hash>.json`) and a page
    /// about the dataset (`report-<fingerprint>.html`): rows through each stage, histograms, drift. Default false: it takes
    /// three to six more passes over the training rows and two over the others, and one over what has landed of their columns,
    /// which tells nulls, NaN, empty texts and what is no number apart. It describes all rows, so rows that land later are not
    /// added to such a dataset: it is built and fitted anew from all of them, and a model is to be trained again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub profile: bool,
}

/// What a row becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DatasetKind {
    /// Numbers, made of its columns.
    #[default]
    Rows,
    /// An image, stored as it came. Rows with the same bytes in `content` are one image, whatever else they hold.
    Images,
    /// A document as ids of its characters, for a model that predicts the next one. Id 0 is a character that the
    /// training split lacks.
    Characters,
    /// A document as ids of pieces of words, for a model that predicts the next one.
    Tokens,
    /// An image, a text as token ids, and numbers made of the other columns, as far as there are any, for a `multi` model
    /// that predicts a target from all of them. A row without its image or text is set aside. Rows are the same when
    /// all of their columns are; rows that share an image share a split with `image.duplicates` `pixels` or
    /// `perceptual`, or with the column as `split.key`.
    Multi,
}

impl DatasetKind {
    /// Whether rows become rows of numbers.
    #[must_use]
    pub const fn is_rows(&self) -> bool {
        matches!(self, Self::Rows)
    }

    /// Whether rows become documents.
    #[must_use]
    pub const fn is_text(&self) -> bool {
        matches!(self, Self::Characters | Self::Tokens)
    }
}

/// `[dataset.tokens]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokensConfig {
    /// Location of a `tokenizer.json`. Default: one of GPT-2's kind (byte-level pairs) is learnt from the training split.
    pub tokenizer: Option<String>,
    /// Ids of a tokenizer that is learnt, 257 to 1,000,000: fewer where no more pairs come twice. More ids make
    /// shorter documents and a larger model. Default 8,192; GPT-2 has 50,257.
    pub vocabulary: Option<u32>,
    /// Bytes of the training split that a tokenizer is learnt from: pieces of 64 KiB, chosen by `seed`, where there are
    /// more. Each distinct word of them is held in memory: where few words come again, as in scripts without spaces,
    /// up to ten times these bytes. Default 1 GiB.
    pub sample_bytes: Option<ByteSize>,
    /// Seed of that choice. Default 0.
    pub seed: Option<Seed>,
    /// Special token put behind each document, so that a model learns where they end; the empty text puts none. Documents
    /// that `split.by = "range"` cuts get none. Default: the first of `<|endoftext|>`, `<|end_of_text|>`, `</s>` and
    /// `<eos>` that the tokenizer has; a tokenizer that is learnt gets the first.
    pub end_of_text: Option<String>,
    /// Ids that a model reads of a row, 1 to 65,536, where `train.model.context` does not say: the length that documents
    /// are packed to. Default: the model's own. `multi`: most ids of a row; what a text has beyond them is left out, and
    /// counted. Default 128.
    pub window: Option<u32>,
    /// How documents become rows, where `train.loader.pack` does not say. Default `best_fit`.
    pub pack: PackMode,
}

/// How documents of tokens become rows of equal length. Shards hold whole documents; whoever reads them packs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PackMode {
    /// Whole documents, longest first, each into the fullest row that has room; longer ones are cut. A little padding.
    #[default]
    BestFit,
    /// All documents end to end, cut wherever a row is full. No padding but in the last row.
    Fill,
    /// As `fill`, and a model sees all of a row, also what other documents have before its place, and predicts the first id
    /// of a document as well: one stream of tokens.
    Stream,
}

/// What is predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// A number.
    #[default]
    Regression,
    /// A class.
    Classification,
}

/// Label of a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a text, a number or a boolean")]
pub enum ClassLabel {
    /// In a column of booleans.
    Boolean(bool),
    /// In a column of numbers, or of texts that are written so.
    Integer(i64),
    /// In a column of numbers.
    Number(f64),
    /// In a column of texts.
    Text(String),
}

/// Treatment of equal rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DedupMode {
    /// Rows with equal content (the columns feedline adds do not count) are one row.
    #[default]
    Exact,
    /// All rows that landed are kept. Copies share a split by hash; a `key`, an order, a column or an expression may part them. A source leaves out equal records
    /// before they land, unless its `batch.dedup_window` is 0, as it is for `files` by default.
    None,
}

/// What becomes of rows that are equal but for their target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Conflicts {
    /// The one that landed first is kept.
    First,
    /// One of the target that most of them have is kept, the first landed; of targets that as many have, that of the row
    /// that landed first.
    Majority,
    /// None is kept: the content is left out, as `conflicting_target`. Rows that agree are copies as ever.
    Drop,
}

/// `[[dataset.step]]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepConfig {
    /// `impute`, `winsorize`, `standardize`, `min_max`, `robust`, `log1p`, `power` or `categories`.
    pub r#type: StepKind,
    /// Columns it applies to. Default: every numeric (for `categories` every categorical) feature. A column of text that a
    /// numeric step lists is read as numbers, and a cell that is none is missing: the build warns of such cells, and stops where
    /// they are more than half of those that landed with a value. An integer beyond 2^53 sets its row aside, as in a column of
    /// integers.
    #[serde(default)]
    pub columns: Vec<String>,
    /// `impute`: `median` (default), `mean`, `most_frequent`, `constant` or `knn`.
    pub strategy: Option<ImputeStrategy>,
    /// `impute` with `constant`: the value.
    pub value: Option<f64>,
    /// `impute`: whether to add a column `<name>__missing` of 0 and 1. Default false.
    pub indicator: Option<bool>,
    /// `winsorize`: lower percentile, 0 to 1. Default 0.01. `robust`: lower end of the spread. Default 0.25.
    pub lower: Option<f64>,
    /// `winsorize`: upper percentile, 0 to 1. Default 0.99. `robust`: upper end of the spread. Default 0.75.
    pub upper: Option<f64>,
    /// `categories`: `one_hot` (default), `ordinal`, `frequency`, `hash` or `target`.
    pub encoding: Option<CategoryEncoding>,
    /// `categories` but `hash`: most known values, 1 to 100,000; rarer ones become unknown. Default 100; 10,000 for
    /// `frequency` and `target`, which take one element however many there are.
    pub max_values: Option<u32>,
    /// `categories` but `hash`: fewest training rows of a known value, 1 or more; rarer ones become unknown. Raise it
    /// where rare values are noise. Default 1. With `by`: fewest finite training values of a group with numbers of its own,
    /// 1 or more; smaller groups use those of all rows. Default 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_count: Option<u64>,
    /// `categories` but `hash`: what becomes of a row with a value that the training split lacks: `accept` (default, it has the
    /// reserved id of unknown values) or `reject` (it is set aside as `unknown_category`, in the splits, in rows that are
    /// added and in those to predict, and counts towards `max_reject_fraction`). Choose `reject` where a new value is a fault of
    /// the source; then every training value is known, and the build stops where there are more than `max_values`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<UnknownCategories>,
    /// `categories` with `target`: parts that the training split is cut into, 2 to 100, by a keyed hash of the rows' content.
    /// A training row gets numbers that its own part had no share in; the fewer parts, the noisier these are. Default 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folds: Option<u32>,
    /// `categories` with `target`: rows of the mean over all rows that are added to those of each value, 0 or more. Raise it
    /// where values of few rows make noise. Default 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smoothing: Option<f64>,
    /// `winsorize` and `standardize`: column of categories, such as a station, of which each value has caps or a mean and
    /// deviation of its own, at most 10,000 values. It must be a feature. Use it where groups differ in level or spread, so
    /// that what is usual in one is an outlier in another. Values that the training split lacks, or has few rows of, use the
    /// numbers of all rows, as do missing ones. Default: all rows are one group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// `categories` with `hash`: values share so many ids, 1 to 65,536. More mean fewer values that share one, and a longer
    /// row. Default 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<u32>,
    /// `min_max`: whether a value outside of the training range becomes 0 or 1. Default false: it leaves the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<bool>,
    /// `power`: `yeo_johnson` (default) or `box_cox`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<PowerMethod>,
    /// `impute` with `knn`: neighbours whose values make one, 1 to 1,000. More are smoother. Default 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<u32>,
    /// `impute` with `knn`: `uniform` (default) or `distance`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<NeighbourWeights>,
    /// `impute` with `knn`: training rows that neighbours are looked for among, 1 to 100,000, chosen by a hash of their
    /// content where there are more. The artefact holds them, at most 5,000,000 cells; the time a row takes grows with
    /// them. Default 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_rows: Option<u32>,
}

impl StepConfig {
    /// A step of this kind on `columns`, with the defaults of everything else.
    #[must_use]
    pub const fn new(r#type: StepKind, columns: Vec<String>) -> Self {
        Self {
            r#type,
            columns,
            strategy: None,
            value: None,
            indicator: None,
            lower: None,
            upper: None,
            encoding: None,
            max_values: None,
            min_count: None,
            unknown: None,
            folds: None,
            smoothing: None,
            by: None,
            buckets: None,
            clip: None,
            method: None,
            neighbours: None,
            weights: None,
            reference_rows: None,
        }
    }
}

/// Kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Fill missing numbers.
    Impute,
    /// Clip to percentiles.
    Winsorize,
    /// Subtract the mean, divide by the deviation.
    Standardize,
    /// Scale to 0 to 1.
    MinMax,
    /// Subtract the median, divide by the distance of two percentiles: outliers hardly count.
    Robust,
    /// The natural logarithm of one plus the number, for counts and sums that are never below 0. It cannot be fitted to a
    /// training value of -1 or less; a row of another split or to predict that has one is set aside as `not_finite`, unless a
    /// `winsorize` step before caps it.
    Log1p,
    /// Raise to the power that makes the training values most like a normal distribution; a `standardize` step behind it
    /// gives them mean 0 and deviation 1.
    Power,
    /// Encode categories.
    Categories,
}

/// What becomes of a row with a category that the training split lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnknownCategories {
    /// It stays, with the reserved id of unknown values.
    #[default]
    Accept,
    /// It is set aside.
    Reject,
}

/// What a missing number becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ImputeStrategy {
    /// The median of the observed values.
    #[default]
    Median,
    /// Their mean.
    Mean,
    /// The most frequent one; the smallest of several.
    MostFrequent,
    /// `value`.
    Constant,
    /// The mean over the nearest of the training rows that have the cell. Nearness is told by the step's columns as they
    /// are at that point, so scale them first: a column of large numbers decides alone otherwise.
    Knn,
}

/// How much each neighbour counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NeighbourWeights {
    /// All the same.
    #[default]
    Uniform,
    /// The nearer, the more: by one over the distance. Those at distance 0 count alone.
    Distance,
}

/// A family of power transforms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PowerMethod {
    /// For all numbers (I.-K. Yeo, R. Johnson, "A new family of power transformations", Biometrika 87(4), 2000).
    #[default]
    YeoJohnson,
    /// For numbers above 0 (G. Box, D. Cox, "An analysis of transformations", J. R. Stat. Soc. B 26(2), 1964). It cannot be
    /// fitted to other training values; a row of another split or to predict that has one which no power makes a number of (any
    /// below 0, and 0 where the power is 0 or less) is set aside as `not_finite`, unless a `winsorize` step before caps it.
    BoxCox,
}

/// `[dataset.shards]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShardConfig {
    /// Size of a shard, 64 KiB to 4 GiB; a shard ends with the block that reaches it. Default 64 MiB. A store that is no local
    /// disk is given a shard whole: two of them are in memory, one that fills and one that is on its way.
    pub shard_bytes: ByteSize,
    /// Size of a block, 4 KiB to 64 MiB; the unit of checksums, reads and shuffling. Default 1 MiB; smaller blocks
    /// shuffle a small dataset better.
    pub block_bytes: ByteSize,
    /// Whether rows are written in a keyed random order. Default true; false keeps the landing order.
    pub shuffle: bool,
    /// Seed of that order. Default 0.
    pub seed: Seed,
}

impl Default for ShardConfig {
    fn default() -> Self {
        Self {
            shard_bytes: ByteSize::mib(64),
            block_bytes: ByteSize::mib(1),
            shuffle: true,
            seed: Seed::new(0),
        }
    }
}
