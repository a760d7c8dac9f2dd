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
    target::TargetColumns,
};
use crate::{
    ids::{Seed, TableName},
    steps::StepConfig,
    units::ByteSize,
};

/// The dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DatasetConfig {
    /// Kind of sample that each row becomes: `rows` of numbers (default), `images`, `characters`,
    /// `tokens`, or `multi`, which combines several.
    #[serde(skip_serializing_if = "DatasetKind::is_rows")]
    pub kind: DatasetKind,
    /// `images`: column that holds the image files. Default `image`. `characters` and `tokens`:
    /// column of documents. Default `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// `multi`: column that holds the image file of each row. Absent: rows have no image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_column: Option<String>,
    /// `multi`: column that holds the text of each row, which is stored as token ids. Absent: rows
    /// have no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_column: Option<String>,
    /// `images`, `multi`: decoding and storage of images. Default: files are stored as they landed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<StoredImageConfig>,
    /// `tokens`, `multi`: tokenization of documents, and the rows made from them. Default: a
    /// tokenizer is trained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokensConfig>,
    /// Parquet files to read directly, without a `[[source]]` and a landing zone. A local path,
    /// relative to the working directory of the program; its last part may contain `*` and `?`,
    /// such as `in/*.parquet`. All files have the same columns. Use it for large tables that are
    /// maintained elsewhere and do not change: nothing is copied, and a changed file makes another
    /// dataset. For `kind = "rows"`, in place of `sources`. Absent: the rows are those of the
    /// sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    /// Sources whose rows are concatenated. `<source>.<table>` is a child table of a source
    /// (`contract.children`), with a row for each item of a list. Default: all sources of the
    /// pipeline that no other key names, without child tables.
    pub sources: Vec<TableName>,
    /// SQL query (Apache DataFusion) whose result is the rows of the dataset. It runs before all
    /// other steps. Its tables have the names in `sources`; write a child table in double quotes.
    /// Use it for operations that no key offers, such as a condition, a computed column or a sum
    /// over another source. Names keep their case. Integers are exact: a sum, difference or
    /// product, or a `sum` over rows, that overflows 64 bits stops the build. Use
    /// `cast(... as double)` or `cast(... as decimal(38, 0))` there. The query runs in one
    /// partition. Sums and means of floats follow the order of the rows, and an `order by` with
    /// `limit` must leave no ties. Otherwise the result depends on the memory limit. Rows are
    /// identified by their content. The origin of a row is its position among all rows in the order
    /// of their hashes. Default: the rows of the sources, concatenated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
    /// Sources whose columns are joined to the rows by key, such as labels from a table. Default
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub join: Vec<JoinConfig>,
    /// Column to predict. For `kind = "rows"` also a list of numeric columns that one model
    /// predicts, such as `["low", "high"]`. Each of several targets is standardized by itself
    /// (`scale_target`), and a row that lacks one is rejected. The loss of a row is the mean over
    /// its targets, and metrics are reported for each target by name. Absent: shards without a
    /// target.
    pub target: Option<TargetColumns>,
    /// `regression` (default) or `classification`.
    pub task: Task,
    /// `classification`: all classes of the target in the order of their ids, from 0, such as
    /// `["no", "yes"]` or `[0, 1, 2]`. Strings are written as they landed. Rows with another label
    /// are rejected as `unlisted_class`. List the classes where ids must not depend on the landed
    /// data, or where a class may have no training row yet. Also list them to choose class 1 of
    /// two, to which `f1` and `positive_weight` refer. Default: the classes of the training split,
    /// numbers by value, then strings by code points; rows of other classes are rejected as
    /// `unknown_class`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassLabel>,
    /// Columns that are features, beside those of `[[dataset.feature]]`. To have the latter alone,
    /// list one of them. Default, also for an empty list: every column but target, key, dropped and
    /// system columns. A target may be listed where `dataset.sequence` has a horizon of 1 or more. Windows
    /// then contain its past values, which are known when the forecast is made.
    pub features: Vec<String>,
    /// Columns to exclude from the features. They must not be listed in `features`, in `categorical`
    /// or in the `columns` of a step.
    pub drop: Vec<String>,
    /// Numeric columns to read as categories. All of them must be features.
    pub categorical: Vec<String>,
    /// `rows`: columns that the shards store beside the features under their own names, with the
    /// landed values, such as an id to find or check rows by. `eval --predictions` writes them
    /// beside each prediction. For a window they are those of the predicted row, such as its entity
    /// and time. Dates, times of day and timestamps without a zone of `dataset.files` are stored as
    /// strings here. They are features only if `features` or a step lists them. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passthrough: Vec<String>,
    /// Strings read as missing, compared after trimming spaces. Default `[]`. The empty string is
    /// always missing. Rows are compared for `dedup` before this: two that differ only in the string
    /// for a missing value are no duplicates. `source.csv.null_values` makes such strings nulls
    /// before they land.
    pub null_values: Vec<String>,
    /// Numbers read as missing, such as `-200`, after rows are compared for `dedup`. Default `[]`.
    pub missing_values: Vec<f64>,
    /// Decimal separator of strings that are read as numbers, one character, such as `","` for
    /// `3,5`. It applies to features, to a numeric target and to the columns of series, also in
    /// rows to predict. Values that landed as numbers are not affected; a number in a column of
    /// strings lands as a string. A CSV column whose cells look like numbers lands as numbers:
    /// where `1.234` means 1234, set `type = "text"` for it in `source.contract.column`. A string
    /// that is not a number in this format is missing; a row with such a target is rejected.
    /// Default `"."`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decimal_separator: Option<char>,
    /// Thousands separator of strings that are read as numbers, one character, such as `"."` for
    /// `1.234,56`. It separates groups of three digits. `" "` means a space, a no-break space, a
    /// thin space and a narrow no-break space, and `"'"` also a typographic apostrophe. Strings
    /// without groups are numbers, too; strings with groups of another length are not, except for
    /// Indian groups with `","`, such as `4,05,638`. Groups with an exponent but no decimals, such
    /// as `1,234E2`, are no number. Default: no separator, so `1,234` is not a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thousands_separator: Option<char>,
    /// `exact` (default): of rows with equal content, the first landed is kept. Cells are compared
    /// as they landed, before `null_values` and `missing_values`. A warning reports a build that
    /// drops more than 1 % of its rows as duplicates, unless a source has a `key`: older versions
    /// of its records are expected and are counted with them. `none`: all landed rows are kept, for
    /// tables where equal rows are different observations. A source drops equal records before they
    /// land, unless its `batch.dedup_window` is 0, the default of sources with `type = "files"`.
    /// With a split by content, all duplicates of a row are in one split, so the splits may miss
    /// their fractions.
    pub dedup: DedupMode,
    /// `rows` and `multi`: columns that are not part of the content, such as an id or the time at
    /// which a record was read. Rows that differ only in these columns are duplicates. The columns
    /// are otherwise used like all others. List columns whose values differ in every record, because
    /// otherwise no duplicate is found. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dedup_ignore: Vec<String>,
    /// `rows` and `multi`: treatment of rows that are equal except for the target: `first`,
    /// `majority` or `drop`. Set it where an item may have been labelled twice: such rows then have
    /// one content, which is in one split and counts once. Default: the target is part of the
    /// content, so each of them is a separate row, and they may be in several splits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<Conflicts>,
    /// Preparation of documents before they are compared, split and tokenized. Absent: documents
    /// are used as they landed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<DocumentConfig>,
    /// Detection of near-duplicate documents. Absent: near-duplicates are not detected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near_dup: Option<NearDupConfig>,
    /// Time and entities of rows that are time series. Absent: rows have only the order in which
    /// they landed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<SeriesConfig>,
    /// Features computed from the past of a series. Default none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub feature: Vec<FeatureConfig>,
    /// Windows over a series, as samples. Absent: every row is a sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<SequenceConfig>,
    /// Assignment of rows to training, validation and test.
    pub split: SplitConfig,
    /// Steps, in the order they are applied. Default: impute by the median, winsorize at 1 and 99
    /// %, standardize, and categories one-hot. Each is fitted on the training split, on the output
    /// of the step before.
    pub step: Option<Vec<StepConfig>>,
    /// If true, a regression target is stored standardized, and every report inverts this. Default
    /// true. If false, the targets with the largest numbers dominate the loss of several targets.
    pub scale_target: Option<bool>,
    /// Shards.
    pub shards: ShardConfig,
    /// Largest fraction of rows that may be rejected, 0 to 1; above it the build stops. Where rows
    /// are appended, it is a fraction of all rows, including earlier ones. A warning reports
    /// appended rows that exceed it by themselves. Default 0.05.
    pub max_reject_fraction: Option<Fraction>,
    /// Largest fraction of a row's features that may be missing as landed, 0 to 1. Rows that lack
    /// more are filtered out as `too_many_missing` and counted, before the split and before
    /// anything is fitted. Lower it where a row of mostly imputed cells would teach a model
    /// nothing. Default: no row is filtered out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_missing_fraction: Option<Fraction>,
    /// Expectations for the columns. Absent: none. Set it where a source may change unnoticed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect: Option<ExpectConfig>,
    /// If true, the build also writes statistics of each feature and the target in each split
    /// (`profile-<hash>.json`) and a dataset report (`report-<fingerprint>.html`). The report has
    /// rows through each stage, histograms and drift. Default false: it takes three to six more
    /// passes over the training rows and two over the others. One more pass over the landed values
    /// of these columns distinguishes nulls, NaN, empty strings and values that are not numbers.
    /// The report describes all rows, so later rows are not appended to such a dataset. It is
    /// rebuilt and refitted from all of them, and a model must be trained again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub profile: bool,
}

/// Kind of sample that each row becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DatasetKind {
    /// Numbers, computed from its columns.
    #[default]
    Rows,
    /// An image. Without `dataset.image` its file is stored as it landed. Rows with the same bytes
    /// in `content` are one image, whatever their other columns hold.
    Images,
    /// A document as ids of its characters, for a model that predicts the next one. Id 0 is used
    /// for characters that the training split lacks.
    Characters,
    /// A document as ids of subword tokens, for a model that predicts the next one.
    Tokens,
    /// An image, a text as token ids, and numbers computed from the other columns, if there are
    /// any. A `multi` model predicts a target from all of them. A row without its image or text is
    /// rejected. Rows are duplicates if all of their columns are equal, apart from those in
    /// `dedup_ignore`. Rows that share an image share a split if `image.duplicates` is `pixels` or
    /// `perceptual`, or if the image column is the `split.key`.
    Multi,
}

impl DatasetKind {
    /// Returns true if rows become rows of numbers.
    #[must_use]
    pub const fn is_rows(&self) -> bool {
        matches!(self, Self::Rows)
    }

    /// Returns true if rows become documents.
    #[must_use]
    pub const fn is_text(&self) -> bool {
        matches!(self, Self::Characters | Self::Tokens)
    }
}

/// `[dataset.tokens]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokensConfig {
    /// Location of a `tokenizer.json`. Default: a tokenizer of GPT-2's kind (byte-level BPE) is
    /// trained on the training split.
    pub tokenizer: Option<String>,
    /// Number of ids of a tokenizer that is trained, 257 to 1,000,000; fewer where no more pairs
    /// occur twice. More ids make shorter documents and a larger model. Default 8,192; GPT-2 has
    /// 50,257.
    pub vocabulary: Option<Bounded<u32, 257, 1_000_000>>,
    /// Bytes of the training split that a tokenizer is trained on: pieces of 64 KiB, chosen by
    /// `seed`, if the split is larger. Each distinct word of them is held in memory. Where few
    /// words repeat, as in scripts without spaces, this takes up to ten times these bytes. Default
    /// 1 GiB.
    pub sample_bytes: Option<ByteSize>,
    /// Seed for the choice of the pieces of `sample_bytes`. Default 0.
    pub seed: Option<Seed>,
    /// Special token appended to each document, so that a model learns where documents end; the
    /// empty string appends none. Documents that `split.by = "range"` divides get none. Default:
    /// the first of `<|endoftext|>`, `<|end_of_text|>`, `</s>` and `<eos>` that the tokenizer has;
    /// a trained tokenizer gets `<|endoftext|>`.
    pub end_of_text: Option<String>,
    /// Number of ids that a model reads per row, 1 to 65,536, if `train.model.context` is absent:
    /// the length to which documents are packed. Default: the model's own. `multi`: most ids of a
    /// row; the rest of a text is dropped, and counted. Default 128.
    pub window: Option<Bounded<u32, 1, 65_536>>,
    /// Packing of documents into rows, if `train.loader.pack` is absent. Default `best_fit`.
    pub pack: PackMode,
}

/// Packing of token documents into rows of equal length. Shards hold complete documents, and the
/// reader packs them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PackMode {
    /// Complete documents, longest first, each into the fullest row that has room; documents longer
    /// than a row are split. A little padding.
    #[default]
    BestFit,
    /// All documents end to end, split wherever a row is full. No padding except in the last row.
    Fill,
    /// As `fill`, but a model sees all earlier ids of a row, including those of other documents. It
    /// also predicts the first id of a document: one stream of tokens.
    Stream,
}

/// Type of the prediction.
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
    /// In a column of numbers, or of strings that are written as this number.
    Integer(i64),
    /// In a column of numbers.
    Number(f64),
    /// In a column of strings.
    Text(String),
}

/// Treatment of equal rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DedupMode {
    /// Rows with equal content are one row. Columns that feedline adds are not part of the content.
    #[default]
    Exact,
    /// All landed rows are kept. Duplicates share a split by hash; a `key`, an order, a column or
    /// an expression may separate them. A source drops equal records before they land, unless its
    /// `batch.dedup_window` is 0, the default of sources with `type = "files"`.
    None,
}

/// Treatment of rows that are equal except for their target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Conflicts {
    /// The row that landed first is kept.
    First,
    /// Of the rows with the most frequent target, the one that landed first is kept. Between
    /// equally frequent targets, that of the row that landed first is used.
    Majority,
    /// No row is kept: the content is filtered out as `conflicting_target`. Rows with equal targets
    /// are duplicates as usual.
    Drop,
}

/// `[dataset.shards]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShardConfig {
    /// Size of a shard, 64 KiB to 4 GiB; a shard ends with the block that reaches it. Default 64
    /// MiB. A store other than a local disk receives complete shards. Two of them are in memory,
    /// one that is being filled and one that is being uploaded.
    pub shard_bytes: Bytes<{ 64 << 10 }, { 4 << 30 }>,
    /// Size of a block, 4 KiB to 64 MiB; the unit of checksums, reads and shuffling. Default 1 MiB;
    /// smaller blocks shuffle a small dataset better.
    pub block_bytes: Bytes<{ 4 << 10 }, { 64 << 20 }>,
    /// If true, rows are written in a keyed random order. Default true; false keeps the landing
    /// order.
    pub shuffle: bool,
    /// Seed of the random order. Default 0.
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
                "p.toml:7: `dataset.step.0.columns`: invalid type: string \"a\", expected a list, such as [\"a\", \"b\"]",
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
