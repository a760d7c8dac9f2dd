//! `[[source]]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AuthConfig, Bounded, Bytes, ContractConfig, Count, CrawlConfig, ForEachConfig,
    IncrementalConfig, LimitsConfig, PageConfig, PaginationConfig, Real, Refresh, Seconds,
    SecretRef, SlicesConfig, SourceScheduleConfig, ZeroToHalf,
};
use crate::{ids::Name, units::ByteSize};

/// One source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// Name, unique in the pipeline; the landing folder is called after it.
    pub name: Name,
    /// `rest` (a JSON API), `html` (pages of a site) or `files`.
    pub r#type: SourceKind,
    /// `rest`: URL of the first page; `demo://market` starts the embedded API. `files`: a path, URL or glob
    /// (`data/*.csv.gz`); files are read in the order of their names. One with a query (`https://host/table?format=csv`), or
    /// with `params`, is one file that each run asks for, read as `format` or its `Content-Type` says. `html`: the page the crawl begins with.
    pub url: String,
    /// `rest`: path of the list of records in a page, keys joined with `.`; empty when the page is the list itself.
    #[serde(default)]
    pub records: String,
    /// `rest`, and `files` over http(s): query parameters of each request.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
    /// `rest`, `html`, and `files` behind a query: headers of each request to the host of `url`; a secret is given as `{ env = "NAME" }` or
    /// `{ file = "PATH" }`.
    #[serde(default)]
    pub headers: BTreeMap<String, TextOrSecret>,
    /// `rest`: proves to the host of `url` who is asking. Default: nothing is sent but `headers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthConfig>,
    /// `rest`: how to get from page to page.
    #[serde(default)]
    pub pagination: PaginationConfig,
    /// `rest`: asks a finished source for what is new. Default: a finished source stays finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incremental: Option<IncrementalConfig>,
    /// `rest`: what a run does after one that has read everything: `never` (default) asks for nothing, `changed` reads all
    /// pages again, for feeds that have no parameter to ask from. Records of equal content that have landed before, however
    /// long ago, are left out, and one that has changed lands again. A page that came with `ETag` or `Last-Modified` is asked
    /// for with them, and one that is unchanged (status 304) is counted as `unchanged` and not sent; with `pagination` of the
    /// type `none`, or `page` (all but the last one) without a total, since of no other page the next one is known then. It
    /// may be changed at any time. A run that finds a change reads the hashes of all that has landed, about 20 bytes of
    /// memory a record. Not with `incremental`.
    #[serde(default, skip_serializing_if = "Refresh::is_never")]
    pub refresh: Refresh,
    /// `rest`: asks for a range in slices. Default: everything is one run of pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<SlicesConfig>,
    /// `rest`: asks for each value of a list. Default: there is no such list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_each: Option<ForEachConfig>,
    /// `rest`: path of an error in a page that came with status 200; where something is there but null, false, zero or
    /// empty, the request is tried again as after a server's error. For APIs that report errors with success. Default:
    /// `error` and `errors` of a page without records are taken as one. Empty (`""`): none is looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_path: Option<String>,
    /// `html`: which pages are fetched, and how politely.
    #[serde(default, skip_serializing_if = "CrawlConfig::is_default")]
    pub crawl: CrawlConfig,
    /// `html`: what becomes of a page.
    #[serde(default, skip_serializing_if = "PageConfig::is_default")]
    pub page: PageConfig,
    /// `rest`, `html` and `fetch`: retries, time limits and the largest body. `files` over http(s): the time limits
    /// `connect_timeout_ms`, `read_timeout_ms` and `total_timeout_ms`.
    #[serde(default)]
    pub retry: RetryConfig,
    /// `rest`, `html` and `fetch`: how often a host is asked.
    #[serde(default, skip_serializing_if = "LimitsConfig::is_default")]
    pub limits: LimitsConfig,
    /// `rest`, `html`, `fetch`, and `files` over http(s): hosts, by name or address, that may be asked although their address
    /// is not one of the internet, where data lead to them: a redirect, a link, a sitemap, a next page, a row's URL. What the configuration
    /// itself names (`url`, `crawl.start`, `crawl.sitemaps`, `crawl.hosts`) need not be listed, but another port of the host
    /// of a URL must be. With `trust_proxy`, list a proxy with such an address too. Default none: data must not reach into
    /// this machine's network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub private_hosts: Vec<String>,
    /// `rest`, `html`, `fetch`, and `files` over http(s): asks hosts that data lead to through the proxy which the environment
    /// names (`HTTPS_PROXY` and the like). The proxy then looks their names up, so nothing here sees their addresses: whoever
    /// writes the data reaches every host by name that the proxy reaches. Hosts that the configuration names are asked through
    /// the proxy in any case. Default false: they are asked without it. Set it where the internet is reached through a proxy
    /// alone, and the proxy itself refuses hosts of the own network.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trust_proxy: bool,
    /// `rest`, `html`: keeps every answer that a batch was made of, as `feedline ingest replay` reads it: one Parquet file
    /// a batch in `raw/`, with the body as it came (decompressed), the status and the headers that pages are read by. What
    /// `auth` and secrets of `headers` have sent is masked in it, and no cookie is kept. A batch then also ends with the page
    /// that brings it to 128 MiB of bodies. May be changed at any time, but only what is kept from the first batch on can be
    /// replayed. Default false: bodies are not kept. Set it where a contract or selectors may have to change later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archive_raw: bool,
    /// `files`: format; default `auto`, by the file's name.
    #[serde(default)]
    pub format: FileFormat,
    /// `files`: handling of files that change, and of those that are still being written.
    #[serde(default, skip_serializing_if = "FilesConfig::is_default")]
    pub files: FilesConfig,
    /// `files`: details of CSV.
    #[serde(default)]
    pub csv: CsvConfig,
    /// `files`: details of idx.
    #[serde(default)]
    pub idx: IdxConfig,
    /// `files`: details of plain text.
    #[serde(default)]
    pub text: TextConfig,
    /// `files`: which members of archives are read, and how much may come out of one.
    #[serde(default)]
    pub archive: ArchiveConfig,
    /// `files`: downloads an image for each row of a table. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch: Option<FetchConfig>,
    /// Inference of the types of columns before anything lands.
    #[serde(default, skip_serializing_if = "InferConfig::is_default")]
    pub infer: InferConfig,
    /// What to do when records change their shape.
    #[serde(default)]
    pub contract: ContractConfig,
    /// Columns that name what a row is about, such as `["id"]`: of the landed rows with one key a dataset reads only the
    /// newest, the one of the greatest `version`. All of them stay in the landing zone, and those that are not the newest
    /// count among the duplicates of a dataset. A newer row has another content, by which it may come into another split: name
    /// the key in `dataset.split.key` to keep it where it was. A record that comes again is left out only if it equals the newest
    /// landed row of its key (and `version`): one that goes back to an earlier content lands, but for `slices` and `for_each`. With a key a dataset is rebuilt from all rows whenever some
    /// have landed. Default: none, every row is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    /// Column that tells which of the rows with one `key` is the newest, such as `updated_at`: numbers and points in time
    /// by their size, text by its bytes (dates must be written alike), null as the oldest. Of equal ones, and by default of
    /// all, the last that landed is the newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How much goes into one commit.
    #[serde(default)]
    pub batch: BatchConfig,
    /// When `feedline serve` runs the source. Default: it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<SourceScheduleConfig>,
    /// Licence of the data; recorded in the dataset's manifest.
    pub licence: Option<String>,
}

impl SourceConfig {
    /// Whether what it reads comes from web servers: it downloads what rows name, or its own URL begins with `http://` or
    /// `https://`, in any case of letters.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.fetch.is_some() || self.is_web()
    }

    /// Size of the deduplication window in records: `batch.dedup_window`, or its default for this type.
    #[must_use]
    pub fn dedup_window(&self) -> u64 {
        let default = match self.r#type {
            SourceKind::Rest | SourceKind::Html => 100_000,
            SourceKind::Files => 0,
        };
        self.batch.dedup_window.unwrap_or(default)
    }

    /// Whether its URL begins with `http://` or `https://`.
    #[must_use]
    pub fn is_web(&self) -> bool {
        let scheme = self.url.split_once("://").map_or("", |(scheme, _)| scheme);
        ["http", "https"]
            .iter()
            .any(|web| scheme.eq_ignore_ascii_case(web))
    }
}

/// Kind of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// A JSON API.
    Rest,
    /// Pages of a site, found by links and sitemaps.
    Html,
    /// Files: CSV, JSON, NDJSON, Parquet, images, idx images, text; plain, gzip or zstd.
    Files,
}

/// A header's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected text, or a reference to a secret, `{ env = \"NAME\" }` or `{ file = \"PATH\" }`"
)]
pub enum TextOrSecret {
    /// Plain text.
    Text(String),
    /// A secret.
    Secret(SecretRef),
}

/// `[source.retry]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryConfig {
    /// Most tries of one request, 1 to 100. Default 8.
    pub max_tries: Bounded<u32, 1, 100>,
    /// First backoff in milliseconds; try n waits a random time up to `base_ms * 2^n` (full jitter). Default 500.
    pub base_ms: u64,
    /// Longest backoff in milliseconds. Default 60,000.
    pub cap_ms: u64,
    /// Longest wait a server may ask for with Retry-After, or with the reset of a quota that is used up, in seconds; asked
    /// for more, the run ends as deferred (exit code 4). A run before that time asks for nothing and ends the same way, one
    /// after it goes on. Default 300.
    pub max_wait_s: u64,
    /// Longest deferral, in seconds, 1 to 31,536,000: a server that asks for more (`Retry-After: 3153600000`, a reset
    /// years ahead) is asked again after this time. `feedline ingest resume` ends a deferral at once. Default 86,400, a
    /// day; raise it for a server that bans who comes back early.
    pub max_deferral_s: Seconds<1, 31_536_000>,
    /// Time to connect, in milliseconds. Default 10,000.
    pub connect_timeout_ms: u64,
    /// Longest silence while reading, in milliseconds. Default 30,000.
    pub read_timeout_ms: u64,
    /// Whole time of one request, in milliseconds. Default 300,000.
    pub total_timeout_ms: u64,
    /// Largest response body, decompressed. Default 64 MiB.
    pub max_body_bytes: ByteSize,
    /// Least speed of a body that goes on, in bytes per second over 10 s, 0 to 1,000,000; a slower one is cut off and
    /// asked for again. Default 100; 0 for a server that sends a byte now and then while it works.
    pub min_bytes_per_s: Count<0, 1_000_000>,
    /// Longest time of one request over all of its tries and their waits, in seconds, at least 1; a wait that would end
    /// later is not begun. Default 3,600. To outlast an outage, raise it together with `max_tries`.
    pub max_elapsed_s: Seconds<1>,
    /// Failures of a host in a row, in spite of retries, after which its circuit opens: until it answers again, it gets one
    /// request per cooldown, and the tries between count as failed without being sent. 0 to 1,000; 0 is never. Default 10.
    pub circuit_failures: Bounded<u32, 0, 1_000>,
    /// Time from the opening of a circuit to the first request that probes it, in seconds, 1 to 3,600; doubled after each
    /// probe that fails, to 600 s or itself if that is more. Default 30.
    pub circuit_cooldown_s: Seconds<1, 3_600>,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            max_tries: Bounded::literal::<8>(),
            base_ms: 500,
            cap_ms: 60_000,
            max_wait_s: 300,
            max_deferral_s: Bounded::literal::<86_400>(),
            connect_timeout_ms: 10_000,
            read_timeout_ms: 30_000,
            total_timeout_ms: 300_000,
            max_body_bytes: ByteSize::mib(64),
            min_bytes_per_s: Bounded::literal::<100>(),
            max_elapsed_s: Bounded::literal::<3_600>(),
            circuit_failures: Bounded::literal::<10>(),
            circuit_cooldown_s: Bounded::literal::<30>(),
        }
    }
}

/// Format of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileFormat {
    /// By the file's name: `.csv`, `.tsv`, `.json`, `.ndjson` or `.jsonl`, `.parquet`; `.gz` and `.zst` behind it.
    ///
    /// An archive (`.zip`, `.tar`, `.tar.gz`, `.tgz`, `.tar.zst`) gives the records of its members, one member after the
    /// other in its order, each read as a file of its name would be; members whose names tell no format are left out. With
    /// another `format` all members are read as that. `archive.member` chooses among them; with `auto`, archives that are met
    /// in a folder are read only where it is set.
    #[default]
    Auto,
    /// Comma-separated values with a header line.
    Csv,
    /// One JSON document: a list of objects, or an object with the list at `records`.
    Json,
    /// One JSON object per line.
    Ndjson,
    /// Parquet.
    Parquet,
    /// idx images, the layout of MNIST; never chosen by name. A record is `image`, the pixels as a whole PGM file
    /// (grey) or PPM file (RGB), and `label`, an integer, where `idx.labels` names a file of them.
    Idx,
    /// Plain UTF-8 text; never chosen by name. A record is `text`: the whole file, or a part between two
    /// `text.separator`s.
    Text,
    /// Whole images; never chosen by name. A record is one file: `image`, its bytes; `path`, where it lies below the
    /// folder of `url` (what stands before the first wildcard); and `folder`, the name of the folder right above it. Of a
    /// folder, files are read whose names end as images do. An archive (`.zip`, `.tar`, `.tar.gz`, `.tgz`, `.tar.zst`)
    /// gives a record for each member that is an image by its name: `path` is that of the archive, `!/` and the member's
    /// name, and `folder` the member's. `archive` bounds what comes out of it.
    Image,
}

/// `[source.files]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilesConfig {
    /// Handling of a file that has changed since it was read: `replace` (default), `append` or `refuse`. It may be
    /// changed at any time.
    pub changed: FilesChanged,
    /// Seconds for which a file must not have been written before it is read, 0 to 31,536,000, by the clock of its store; a
    /// younger one is left for a later run, with a warning. Default 0: a file is read as it is. Set it where
    /// files are written slowly into the folder that is read; stores that do not say when a file was written have none
    /// that is too young.
    pub settle_s: Seconds<0, 31_536_000>,
}

impl FilesConfig {
    /// True for the defaults.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Handling of a file that has changed since it was read.
///
/// A plain CSV or NDJSON file that has grown, its old bytes untouched, is read on from where it ended; where its last line was
/// cut in the middle, it is read again and what had landed of it is superseded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FilesChanged {
    /// A file that has grown is read on; of one that has changed otherwise, and of every packed file, archive, Parquet or
    /// JSON document that has changed at all, the rows that had landed are superseded by its new content, with a warning. The files of
    /// the landing zone that held them are kept in `superseded/`. Not with `fetch`, where it is refused.
    #[default]
    Replace,
    /// A file that has grown is read on; one that has changed otherwise ends the run. For logs and other files that are
    /// only ever added to.
    Append,
    /// Any change ends the run. For files that must never change.
    Refuse,
}

/// `[source.csv]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CsvConfig {
    /// Field separator, one ASCII character. Default `,` (a tab for `.tsv`); where the header is a single column by that, but
    /// one of `;`, tab, `|` and `,` splits all of the first lines alike, that one, with a warning.
    pub delimiter: Option<String>,
    /// True where the first line holds the names of the columns. Default true. Without, they are those of `columns`, or
    /// `column_1`, `column_2` and so on.
    #[serde(skip_serializing_if = "is_true")]
    pub header: bool,
    /// Names of the columns, in their order; they replace those of the header. Default `[]`: those of the header.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// Encoding of the file, such as `utf-8`, `utf-16`, `latin-1`, `windows-1252` or `shift_jis` (a label of the WHATWG
    /// Encoding Standard). Default `utf-8`; a byte order mark of UTF-16 decides by itself, with a warning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Sign around fields that hold delimiters or line ends, one ASCII character; empty for files without any, whose quotes
    /// are text. Default `"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// Sign that lines which are no rows begin with, one ASCII character such as `#`. Default: there are no such lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Lines before the header, or the first row where there is none, that are passed over, 0 to 1,000,000. Default 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub skip_rows: u64,
    /// Cells read as missing besides the empty one, in every column, compared after trimming spaces. Default `[]`: only the
    /// usual ones, see `null_spellings`.
    pub null_values: Vec<String>,
    /// Spellings of a missing value that are read as missing in columns of numbers, booleans and timestamps only: `usual`
    /// (default; `NA`, `N/A`, `#N/A`, `NaN`, `NULL`, `None`, `-`, `?` and such) or `none`, where each is a value that does not fit
    /// its column. In a text column they stay what they are: `None` may be a category. What is read as missing is counted.
    #[serde(skip_serializing_if = "NullSpellings::is_usual")]
    pub null_spellings: NullSpellings,
    /// Decimal sign of numbers, one character, such as `","` for `1000,14`. Text columns stay as they are written. Default
    /// `"."`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decimal_separator: Option<char>,
    /// Sign between groups of three digits, one character, such as `"."` for `1.234,56` or `","` for `1,234.56`. Numbers without
    /// groups are numbers as well; groups of another length are none. Default: there is none, so `1,234` is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thousands_separator: Option<char>,
    /// Accepts numbers with a percent sign behind them; `17%` is read as 17. Default false: such a column is text.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub percent: bool,
}

/// Spellings that are read as missing where the other cells of a column are no texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NullSpellings {
    /// The usual ones.
    #[default]
    Usual,
    /// None.
    None,
}

impl NullSpellings {
    /// True for [`NullSpellings::Usual`].
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::Usual
    }
}

/// `[source.infer]`: how the types of columns are found before anything lands.
///
/// The type of a column follows from all of the first batch, and for `files` from a sample of all files, whatever the order
/// of the rows. Files of tables that hold no more rows than `rows` are looked through as a whole; of more, up to 64 files spread
/// evenly over the list are looked at, and of a large CSV or NDJSON file that is not compressed eight parts spread evenly over it.
/// Types that `contract.column` declares are not looked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InferConfig {
    /// Rows of `files` that are looked at before the first batch lands, 0 to 10,000,000, and at most 32 MiB of them. Default
    /// 100,000. More of them makes it less likely that a value of a kind not seen before is rejected; with 0 the first batch
    /// alone decides.
    pub rows: Count<0, 10_000_000>,
    /// Largest share of values that are no numbers, or no dates, in a column that is taken for one of numbers or dates, 0 to
    /// 0.5. They are warned of, and handled as `contract.types` says. A column with more is text, and so is any such
    /// column where `contract.types` is `widen`. Default 0.01; with 0 a single one makes the column text.
    pub max_odd_fraction: Real<ZeroToHalf>,
}

impl Default for InferConfig {
    fn default() -> Self {
        Self {
            rows: Bounded::literal::<100_000>(),
            max_odd_fraction: Real::literal(0.01),
        }
    }
}

impl InferConfig {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for CsvConfig {
    fn default() -> Self {
        Self {
            delimiter: None,
            header: true,
            columns: Vec::new(),
            encoding: None,
            quote: None,
            comment: None,
            skip_rows: 0,
            null_values: Vec::new(),
            null_spellings: NullSpellings::default(),
            decimal_separator: None,
            thousands_separator: None,
            percent: false,
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_true(value: &bool) -> bool {
    *value
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// `[source.idx]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IdxConfig {
    /// Path or URL of the file with a label for each image; `url` then names one file of images. Default: none.
    pub labels: Option<String>,
}

/// `[source.text]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextConfig {
    /// What stands between two records and belongs to neither, such as `"\n\n"` for a blank line; a part without any
    /// visible character is no record. Default: none, a file is one record.
    pub separator: Option<String>,
}

/// `[source.archive]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArchiveConfig {
    /// Pattern of the members that are read, such as `*.csv` or `**/API_*.csv`: `*` stays inside a folder, `**` does not. An
    /// archive without such a member is refused. Default: those whose names tell a format, or are images; none is read that
    /// is hidden by a dot, nor in a folder that is. With `format = "image"`, members with another ending than images have
    /// are read if the pattern has it, as `**/*.pbm` does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Most members of an archive, at least 1; one with more is refused. Default 10,000,000.
    pub max_members: Count<1>,
    /// Most bytes of a member, unpacked, 1 B to 1 GiB; memory holds one. A larger image is set aside in `rejects/`, a larger
    /// table or text ends the run. Default 64 MiB.
    pub max_member_bytes: Bytes<1, { 1 << 30 }>,
    /// How many times its own size (or 16 MiB, if that is more) an archive may unpack to, at least 1; one that goes
    /// beyond is refused, as it may be made to exhaust memory. The rows of a Parquet file likewise, with the bytes of their
    /// texts and 8 for a number: one whose texts are few and repeated may need more. Default 200.
    pub max_ratio: Count<1>,
}

impl Default for ArchiveConfig {
    fn default() -> Self {
        Self {
            member: None,
            max_members: Bounded::literal::<10_000_000>(),
            max_member_bytes: Bounded::literal::<{ 64 << 20 }>(),
            max_ratio: Bounded::literal::<200>(),
        }
    }
}

/// `[source.fetch]`: for each row of a table, the file at a URL in it. A row keeps its other columns, rows keep their
/// order, and one whose file cannot be had, after the tries of `retry`, is set aside in `rejects/` with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchConfig {
    /// Column with an `http` or `https` URL in each row.
    pub column: String,
    /// Column that gets the bytes of the file; the table must have none of this name. Default `image`.
    #[serde(default = "image")]
    pub into: String,
    /// Most files that are asked for at a time, 1 to 64; each may take `retry.max_body_bytes` of memory. Default 8.
    #[serde(default = "eight")]
    pub concurrency: Bounded<u32, 1, 64>,
    /// Whether hosts of this machine and its network may be asked; else a row that names one, or is redirected to one, is
    /// set aside. Default false.
    #[serde(default)]
    pub private: bool,
}

fn image() -> String {
    "image".into()
}

fn eight() -> Bounded<u32, 1, 64> {
    Bounded::literal::<8>()
}

/// `[source.batch]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BatchConfig {
    /// A batch is committed at the end of the page that reaches this many records, 1 to 1,000,000. Default 10,000.
    /// Smaller batches lose less work in a crash, larger ones make fewer files.
    pub rows: Count<1, 1_000_000>,
    /// A batch is committed after this many pages at the latest, at least 1. Default 100.
    pub pages: Count<1>,
    /// A batch is committed at the end of the page that brings its records to this size, 1 B to 128 MiB. Default `32 MiB`.
    /// Up to four sources are read at a time, and of each one batch is read while another is written; a record takes about
    /// twice its text. A smaller bound saves memory where records are large.
    pub bytes: Bytes<1, { 128 << 20 }>,
    /// An identical record (same content) among this many landed ones before it is left out as a duplicate; 0 keeps
    /// all. 16 bytes of memory each. Default 100,000 for `rest` and `html`, whose pages may overlap; 0 for `files`, whose rows
    /// are identified by their positions: equal rows all land.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedup_window: Option<u64>,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self {
            rows: Bounded::literal::<10_000>(),
            pages: Bounded::literal::<100>(),
            bytes: Bounded::literal::<{ 32 << 20 }>(),
            dedup_window: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::load;

    #[test]
    fn what_comes_from_web_servers_is_foreign_in_any_case_of_letters() {
        let with = |url: &str, more: &str, expected: bool| {
            let text = format!(
                "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{url}\"\n{more}"
            );
            let source = load("p", &text, &[]).unwrap().config.source.remove(0);
            assert_eq!(source.is_foreign(), expected, "{url}");
        };
        let check = |url: &str, expected: bool| with(url, "", expected);
        with("a.csv", "fetch = { column = \"url\" }", true);
        check("http://a.example/1.png", true);
        check("HTTPS://a.example/1.png", true);
        check("http-images/1.png", false);
        check("s3://bucket/http://", false);
        check("/data/images/", false);
    }

    #[test]
    fn a_number_out_of_its_range_is_refused_with_the_range() {
        for (key, value, reason) in [
            ("batch.rows", "0", "must be 1 to 1,000,000, got 0"),
            ("batch.pages", "0", "must be at least 1, got 0"),
            ("batch.bytes", "0", "must be 1 B to 128 MiB, got 0 B"),
            (
                "batch.bytes",
                "'129 MiB'",
                "must be 1 B to 128 MiB, got 129 MiB",
            ),
            (
                "infer.rows",
                "10000001",
                "must be 0 to 10,000,000, got 10,000,001",
            ),
            ("infer.max_odd_fraction", "0.6", "must be 0 to 0.5, got 0.6"),
            ("files.settle_s", "-1", "must be 0 to 31,536,000 s, got -1"),
            (
                "contract.max_columns",
                "10001",
                "must be 1 to 10,000, got 10,001",
            ),
            ("contract.max_keys", "0", "must be 1 to 10,000, got 0"),
            ("contract.max_depth", "65", "must be 1 to 64, got 65"),
            (
                "contract.max_reject_fraction",
                "1.5",
                "must be 0 to 1, got 1.5",
            ),
            ("contract.null_drift", "-0.1", "must be 0 to 1, got -0.1"),
            (
                "contract.json.max_depth",
                "129",
                "must be 1 to 128, got 129",
            ),
            ("contract.json.max_items", "0", "must be at least 1, got 0"),
            (
                "contract.json.max_text_bytes",
                "0",
                "must be at least 1 B, got 0 B",
            ),
            (
                "limits.requests_per_s",
                "0.0",
                "must be more than 0 and at most 1000, got 0",
            ),
            (
                "limits.requests_per_s",
                "nan",
                "must be more than 0 and at most 1000, got NaN",
            ),
            ("limits.concurrency", "65", "must be 1 to 64, got 65"),
            ("limits.burst", "1001", "must be 1 to 1,000, got 1,001"),
            ("retry.max_tries", "101", "must be 1 to 100, got 101"),
            ("retry.max_elapsed_s", "0", "must be at least 1 s, got 0"),
            (
                "retry.circuit_failures",
                "1001",
                "must be 0 to 1,000, got 1,001",
            ),
            (
                "retry.circuit_cooldown_s",
                "3601",
                "must be 1 to 3,600 s, got 3,601",
            ),
            (
                "archive.max_member_bytes",
                "'2 GiB'",
                "must be 1 B to 1 GiB, got 2 GiB",
            ),
            ("crawl.depth", "1001", "must be 0 to 1,000, got 1,001"),
            ("crawl.max_pages", "0", "must be 1 to 100,000,000, got 0"),
            (
                "crawl.delay_ms",
                "86400001",
                "must be 0 to 86,400,000 ms, got 86,400,001",
            ),
            ("schedule.every_s", "0", "must be 1 to 31,536,000 s, got 0"),
            (
                "schedule.jitter_s",
                "86401",
                "must be 0 to 86,400 s, got 86,401",
            ),
            (
                "fetch",
                "{column = 'u', concurrency = 0}",
                "must be 1 to 64, got 0",
            ),
        ] {
            let text = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"x\"\n";
            let set = format!("source.0.{key}={value}").parse().unwrap();
            let error = load("p", text, &[set]).unwrap_err();
            assert_eq!(error.reason, reason, "{key} = {value}");
            assert!(error.key.starts_with(&format!("source.0.{key}")), "{error}");
        }
    }
}
