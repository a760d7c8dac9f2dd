//! A pipeline's configuration: one TOML file with `[pipeline]`, `[[source]]`, `[dataset]`, `[train]` and `[tune]`.
//!
//! [`load`] is the first layer, what the user typed; each stage resolves its section into checked values of its own.
//! Unknown keys are refused with the nearest known one, and errors name file, line and key.

mod augment;
mod auth;
mod average;
mod background;
pub(crate) mod bounded;
mod contract;
mod crawl;
mod csv;
mod dataset;
mod device;
mod document;
mod embargo;
mod error;
mod expect;
mod expected_types;
mod feature;
mod for_each;
mod guard;
mod image;
mod incremental;
mod ingest;
mod init;
mod join;
mod limits;
mod load;
mod lora;
mod loss;
mod malformed;
mod mixture;
mod model;
mod near_dup;
mod oauth;
mod optimizer;
mod pagination;
mod parallel;
mod precision;
mod request;
mod response;
mod retry;
mod schedule;
mod secret;
mod sequence;
mod series;
mod slices;
mod source;
mod source_schedule;
mod split;
pub(crate) mod tagged;
mod target;
mod tls;
mod train;
mod tune;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    augment::{AugmentStep, Augmentation, ImageMixConfig, NormaliseBy},
    auth::{
        ApiKey, AuthConfig, AwsSignature, BasicAuth, BearerToken, GivenCookies, LoginBody,
        LoginSession,
    },
    average::AverageConfig,
    background::ImageBackground,
    bounded::{
        AboveZero, BelowOne, Bounded, BoundedCount, Bytes, Float, Fraction, FromZero, InsideOne,
        Interval, Millisecond, Milliseconds, NoUnit, NotNegative, OutOfRange, Positive, ReadNumber,
        Real, Second, Seconds, ToThousand, Unit, Whole, ZeroToHalf, ZeroToOne,
    },
    contract::{
        ChildConfig, ColumnContract, ColumnsContract, ContractConfig, DeclaredType, DuplicateKeys,
        JsonConfig, ListContract, MissingColumns, NullContract, TypeContract,
    },
    crawl::{CrawlConfig, PageConfig, PageExtract, Refresh},
    csv::{CsvConfig, NullSpellings},
    dataset::{
        ClassLabel, Conflicts, DatasetConfig, DatasetKind, DedupMode, PackMode, ShardConfig, Task,
        TokensConfig,
    },
    device::DeviceChoice,
    document::{DocumentConfig, PersonalData, QualityConfig},
    embargo::Embargo,
    error::{ConfigError, MarkedLine},
    expect::{ExpectConfig, OnViolation},
    feature::{
        CalendarFeature, CalendarPart, Closed, DerivedFeature, DifferenceFeature, FeatureConfig,
        FillFeature, LagFeature, Lookback, RollingFeature,
    },
    for_each::{ForEachConfig, MissingValue},
    guard::{GuardConfig, NotFinitePolicy},
    image::{
        BoxesOn, ImageDuplicates, ImageFilter, ImageResize, ImageSize, ImageStore,
        StoredImageConfig,
    },
    incremental::IncrementalConfig,
    ingest::{CompactConfig, IngestConfig, RetentionConfig},
    init::{InitConfig, WeightLayout},
    join::{JoinConfig, JoinDuplicates, KeyMatch, TimeColumn, Unmatched},
    limits::{LimitsConfig, ResetUnit},
    load::{Loaded, Override, load, nearest},
    lora::LoraConfig,
    loss::{ClassWeightRule, ClassWeights, LossConfig, LossKind, PositiveWeight},
    mixture::{SourceAtEnd, TrainMixture, TrainSource},
    model::{
        ActivationKind, BranchConfig, BranchKind, ImagesConfig, ModelConfig, ModelKind, NormKind,
        PoolKind, PositionKind,
    },
    near_dup::{Digits, NearDupConfig, NearDupKeep, NearDupUnit, Normalization, Punctuation},
    oauth::{
        ClientCredentials, CredentialsIn, JwtBearer, OauthConfig, OauthGrant, PasswordGrant,
        RefreshToken, TokenEndpoint,
    },
    optimizer::{OptimizerConfig, OptimizerKind, ParameterGroup},
    pagination::{
        BodyCursor, EndStatus, HeaderCursor, KeysetPages, LinkPages, NextUrlPages, NoPages,
        PageKeys, PageNumbers, PageOffsets, Pagination, PaginationConfig, PaginationKind,
    },
    parallel::{Collective, Compression, ParallelConfig},
    precision::{LossScaleConfig, Precision},
    request::{BodyConfig, GraphqlConfig, Method, ParamsIn, PartialData, QueryFile, QueryText},
    response::{ResponseConfig, ResponseFormat},
    retry::RetryConfig,
    schedule::{ScheduleConfig, ScheduleKind, ScheduleUnit},
    secret::{SecretRef, TextOrSecret},
    sequence::SequenceConfig,
    series::{AmbiguousTime, Gaps, SameTime, SeriesConfig, TimeSpan, TimeUnit},
    slices::{SliceClock, SlicesConfig, UpperEnd},
    source::{
        ArchiveConfig, BatchConfig, FetchConfig, FileFormat, FilesChanged, FilesConfig, IdxConfig,
        InferConfig, SourceConfig, SourceKind, TextConfig,
    },
    source_schedule::{Overlap, SourceScheduleConfig},
    split::{MissingKey, SplitBy, SplitConfig},
    target::TargetColumns,
    tls::TlsConfig,
    train::{
        BadShardsPolicy, BalanceRule, BaselinePolicy, CheckpointConfig, ClassBalanceConfig,
        LoaderCache, LoaderSettings, TrainConfig,
    },
    tune::{TuneConfig, TuneParameter, TuneRange, TuneScale, TuneStop, TuneStrategy, TuneValues},
};
pub use crate::steps::{
    Categories, Constant, Groups, HashBuckets, Impute, ImputeStrategy, Knn, MinMax,
    NeighbourWeights, Power, PowerMethod, Robust, Standardize, Step, StepConfig, TargetEncoding,
    UnknownCategories, VocabularyCategories, Winsorize,
};

/// JSON Schema of a pipeline file.
pub const PIPELINE_SCHEMA: &str = include_str!("../../json/pipeline.schema.json");
use crate::ids::Name;

/// A whole pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PipelineConfig {
    /// Name and place of the pipeline.
    pub pipeline: PipelineSection,
    /// Sources to ingest.
    #[serde(default, deserialize_with = "source::read")]
    #[schemars(schema_with = "source::schema")]
    pub source: Vec<SourceConfig>,
    /// Landing zones of all sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingest: Option<IngestConfig>,
    /// Dataset to build from them.
    pub dataset: Option<DatasetConfig>,
    /// Model to train on the dataset.
    pub train: Option<TrainConfig>,
    /// Search for keys of `train`, made by `feedline tune`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tune: Option<TuneConfig>,
}

/// `[pipeline]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PipelineSection {
    /// Name: 1 to 64 of `a-z`, `0-9`, `_`, `-`.
    pub name: Name,
    /// Where everything lands, as a URL or path; `landing/`, `dataset/` and `train/` are made below it.
    /// Default `feedline-data/<name>` in the working folder. Change it to land in a bucket (`s3://bucket/prefix`).
    pub root: Option<String>,
    /// Sources that are read at a time by `feedline ingest` and `feedline run`, 1 to 256. Default 8. Of these, at
    /// most 4 read files, which keep a processor busy; a source of an API mostly waits. Each one
    /// holds up to two batches in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_sources: Option<Bounded<u32, 1, 256>>,
}

impl PipelineSection {
    /// Where everything lands.
    #[must_use]
    pub fn root(&self) -> String {
        self.root
            .clone()
            .unwrap_or_else(|| format!("feedline-data/{}", self.name))
    }
}
