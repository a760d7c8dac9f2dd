//! `[dataset]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    StoredImageConfig,
    bounded::{Bounded, Bytes, Fraction},
    document::DocumentConfig,
    expect::ExpectConfig,
    feature::FeatureConfig,
    join::JoinConfig,
    near_dup::NearDupConfig,
    sequence::SequenceConfig,
    series::SeriesConfig,
    split::SplitConfig,
    step::StepConfig,
    target::TargetColumns,
};
use crate::{
    ids::{Seed, TableName},
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
    pub max_reject_fraction: Option<Fraction>,
    /// Largest share of a row's features that may be missing as it landed, 0 to 1: rows that lack more are left out, and
    /// counted, before the split and before anything is fitted. Lower it where a row of mostly filled cells would teach
    /// nothing. Default: no row is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_missing_fraction: Option<Fraction>,
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
    pub vocabulary: Option<Bounded<u32, 257, 1_000_000>>,
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
    pub window: Option<Bounded<u32, 1, 65_536>>,
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

/// `[dataset.shards]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShardConfig {
    /// Size of a shard, 64 KiB to 4 GiB; a shard ends with the block that reaches it. Default 64 MiB. A store that is no local
    /// disk is given a shard whole: two of them are in memory, one that fills and one that is on its way.
    pub shard_bytes: Bytes<{ 64 << 10 }, { 4 << 30 }>,
    /// Size of a block, 4 KiB to 64 MiB; the unit of checksums, reads and shuffling. Default 1 MiB; smaller blocks
    /// shuffle a small dataset better.
    pub block_bytes: Bytes<{ 4 << 10 }, { 64 << 20 }>,
    /// Whether rows are written in a tagged random order. Default true; false keeps the landing order.
    pub shuffle: bool,
    /// Seed of that order. Default 0.
    pub seed: Seed,
}

impl Default for ShardConfig {
    fn default() -> Self {
        Self {
            shard_bytes: Bytes::literal::<{ 64 << 20 }>(),
            block_bytes: Bytes::literal::<{ 1 << 20 }>(),
            shuffle: true,
            seed: Seed::new(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::load;

    fn refused(dataset: &str) -> String {
        let text = format!("[pipeline]\nname = \"p\"\n\n[dataset]\n{dataset}\n");
        load("p.toml", &text, &[]).unwrap_err().to_string()
    }

    #[test]
    fn a_wrong_key_of_the_dataset_is_refused_with_its_line_and_path() {
        for (dataset, expected) in [
            (
                "max_reject_fraction = 2.0",
                "p.toml:5: `dataset.max_reject_fraction`: must be 0 to 1, got 2",
            ),
            (
                "max_missing_fraction = nan",
                "p.toml:5: `dataset.max_missing_fraction`: must be 0 to 1, got NaN",
            ),
            (
                "shards = { block_bytes = 100 }",
                "p.toml:5: `dataset.shards.block_bytes`: must be 4 KiB to 64 MiB, got 100 B",
            ),
            (
                "sequence = { length = 0 }",
                "p.toml:5: `dataset.sequence.length`: must be 1 to 65,536, got 0",
            ),
            (
                "tokens = { vocabulary = 256 }",
                "p.toml:5: `dataset.tokens.vocabulary`: must be 257 to 1,000,000, got 256",
            ),
            (
                "\n[[dataset.step]]\ntype = \"impute\"\n\n[[dataset.step]]\ntype = \"min_max\"\nlower = 0.1",
                "p.toml:11: `dataset.step.1.lower`: this key belongs to `type = \"winsorize\"` and `type = \"robust\"`; `type = \
                 \"min_max\"` has the keys `type`, `columns`, `clip`",
            ),
            (
                "[[dataset.step]]\ntype = \"impute\"\nstratgy = \"mean\"",
                "p.toml:7: `dataset.step.0.stratgy`: unknown key `stratgy`, did you mean `strategy`? known here: ",
            ),
            (
                "[[dataset.step]]\ntype = \"imput\"",
                "p.toml:6: `dataset.step.0.type`: unknown value `imput`, did you mean `impute`? known here: impute, winsorize",
            ),
            (
                "[[dataset.step]]\ntype = \"impute\"\nstrategy = \"knn\"\nneighbours = 0",
                "p.toml:8: `dataset.step.0.neighbours`: must be 1 to 1,000, got 0",
            ),
            (
                "[[dataset.step]]\ntype = \"impute\"\nstrategy = \"constant\"\nvalue = nan",
                "p.toml:8: `dataset.step.0.value`: `NaN` is not a finite number",
            ),
            (
                "[[dataset.step]]\ntype = \"power\"\ncolumns = \"a\"",
                "p.toml:7: `dataset.step.0.columns`: invalid type: string \"a\", expected a sequence",
            ),
            (
                "[[dataset.step]]\ncolumns = [\"a\"]",
                "p.toml:5: `dataset.step.0.type`: this key is required and absent, add it",
            ),
            (
                "[dataset.split]\nby = \"time\"",
                "p.toml:5: `dataset.split.time`: `by = \"time\"` needs this key, such as `time = \"timestamp\"`",
            ),
            (
                "[dataset.split]\ntest = 0.2",
                "p.toml:5: `dataset.split`: train, validation and test are 0.8 + 0.1 + 0.2",
            ),
        ] {
            let error = refused(dataset);
            assert!(error.starts_with(expected), "{error}\n{expected}");
        }
    }
}
