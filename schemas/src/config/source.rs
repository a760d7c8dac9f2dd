//! `[[source]]`.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    AuthConfig, BodyConfig, Bounded, BoundedCount, Bytes, ContractConfig, CrawlConfig, CsvConfig,
    ForEachConfig, GraphqlConfig, IncrementalConfig, LimitsConfig, Method, PageConfig,
    PaginationConfig, ParamsIn, Real, Refresh, ResponseConfig, RetryConfig, Seconds, SlicesConfig,
    SourceScheduleConfig, TextOrSecret, TlsConfig, ZeroToHalf, tagged::KeyTable,
};
use crate::ids::Name;

/// One source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceConfig {
    /// Name, unique in the pipeline; also the name of its landing folder.
    pub name: Name,
    /// Kind of the source: `rest` (an API), `html` (pages of a site) or `files`.
    pub r#type: SourceKind,
    /// `rest`: URL of the first page; `demo://market` starts the embedded API. `files`: a path, URL
    /// or glob (`data/*.csv.gz`); files are read in the order of their names. A URL with a query
    /// (`https://host/table?format=csv`), or with `params`, is one file that each run requests,
    /// read by `format` or by its `Content-Type`. `html`: the start page of the crawl.
    pub url: String,
    /// `rest`: path of the list of records in a page, keys joined with `.`; empty when the page is
    /// the list itself. In XML it is the path of the elements that are the records. In JSON a null at
    /// this path is an empty list; a missing field is an error, and so is an object, unless
    /// `response.single_record` is set.
    #[serde(default)]
    pub records: String,
    /// `rest`, and `files` over http(s): query parameters of each request.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
    /// `rest`, `html`, and `files` over http(s): headers of each request to the host of `url`. A
    /// secret is given as `{ env = "NAME" }` or `{ file = "PATH" }`. `rest`: a text may hold
    /// placeholders such as `{since}`, as `body.json`; a header whose text is one placeholder alone
    /// is left out of requests that do not have this parameter.
    #[serde(default)]
    pub headers: BTreeMap<String, TextOrSecret>,
    /// `rest`: method of each request: `GET` (default), `POST` or `PUT`. The last two have a `body`.
    #[serde(default, skip_serializing_if = "Method::is_get")]
    pub method: Method,
    /// `rest`: body of each request. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<BodyConfig>,
    /// `rest`: place of the parameters of `pagination`, `incremental`, `slices` and `for_each`:
    /// `query` or `body`. `params` are always in the query, and a parameter with a placeholder is
    /// only there. In `body.json` the name of a parameter is a path, keys joined with `.`, such as
    /// `filter.since`. Page numbers, offsets, page sizes, and bounds that are integers are sent as
    /// numbers there. Another value is sent as a number where the body has a number at its path,
    /// otherwise as text. Default: `body` where there is `body.json` or `body.form`, otherwise
    /// `query`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params_in: Option<ParamsIn>,
    /// `rest` with `method = "POST"`: true if the server does the same however often it receives a
    /// request, as for a search. Requests are then repeated after any failure. Default false: after
    /// a failure in which the server may have processed the request (a timeout, a broken response,
    /// a status 5xx) the run ends with an error. A failed connection, a status 429, and a status 503
    /// with `Retry-After` are always repeated. A run that resumes requests the page again that it
    /// had not committed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idempotent: bool,
    /// `rest`: query of a GraphQL API. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graphql: Option<GraphqlConfig>,
    /// `rest`: format of the responses. Default: JSON, or what their `Content-Type` names.
    #[serde(default, skip_serializing_if = "ResponseConfig::is_default")]
    pub response: ResponseConfig,
    /// `rest`, and `files` over http(s): authentication at the host of `url`. Default: only
    /// `headers` are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthConfig>,
    /// `rest`: pagination, the way from a page to the next one.
    #[serde(default)]
    pub pagination: PaginationConfig,
    /// `rest`: incremental reading, in which a rerun of a finished source requests newer records.
    /// Default: a finished source requests nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incremental: Option<IncrementalConfig>,
    /// `rest`: action of a run after a run that has read all records: `never` (default) requests
    /// nothing; `if_changed` reads all pages again, for feeds without a parameter for newer
    /// records. Records whose content has landed before, at any time, are dropped as duplicates. A
    /// changed record lands again.
    ///
    /// A page that came with `ETag` or `Last-Modified` is requested with them. An unchanged page
    /// (status 304) is counted as `unchanged` and not sent. This applies to `pagination` of the
    /// type `none`, and of the type `page` without a total, except for its last page. For other
    /// pages, a 304 would leave the next page unknown.
    ///
    /// It may be changed at any time. A run that finds a change reads the hashes of all landed
    /// records, about 20 bytes of memory per record. Not with `incremental`.
    #[serde(default, skip_serializing_if = "Refresh::is_never")]
    pub refresh: Refresh,
    /// `rest`: requests a range in slices. Default: one run of pages for all records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<SlicesConfig>,
    /// `rest`: requests each value of a list. Default: no list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_each: Option<ForEachConfig>,
    /// `rest`: path of an error in a page with status 200, for APIs that report errors with a
    /// success status. If its value is not null, false, zero or empty, the request is retried as
    /// after an error of the server. Default: `error` and `errors` of a page without records are
    /// errors, and beside records of JSON a warning (`errors_beside_records`). An empty list of JSON
    /// beside `success` or `ok` that is false or 0 is an error too, and so is one beside `status`,
    /// `code`, `status_code` or `statusCode` that is `error`, `fail`, `failed`, `failure`, 401, 403,
    /// 408, 429 or 500 to 599. Empty (`""`): no path is checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_path: Option<String>,
    /// `html`: selection of pages, and rate limiting of the crawl.
    #[serde(default, skip_serializing_if = "CrawlConfig::is_default")]
    pub crawl: CrawlConfig,
    /// `html`: extraction of records from pages.
    #[serde(default, skip_serializing_if = "PageConfig::is_default")]
    pub page: PageConfig,
    /// `rest`, `html`, `fetch`, and `files` over http(s): retries, timeouts and the largest body. A
    /// file without a query may have any size and be as slow as `read_timeout_ms` allows:
    /// `max_body_bytes` and `min_bytes_per_s` do not bound it.
    #[serde(default)]
    pub retry: RetryConfig,
    /// `rest`, `html`, `fetch`, and `files` over http(s): rate limiting of requests to a host.
    #[serde(default, skip_serializing_if = "LimitsConfig::is_default")]
    pub limits: LimitsConfig,
    /// `rest`, `html`, `fetch`, and `files` over http(s): hosts, by name or address, that data may
    /// lead to although their address is not a public one of the internet. Data lead to a host by a
    /// redirect, a link, a sitemap, a next page or the URL of a row. Hosts that the configuration
    /// names (`url`, `crawl.start`, `crawl.sitemaps`, `crawl.hosts`) need not be listed, but
    /// another port of the host of a URL must be. With `trust_proxy`, list a proxy with such an
    /// address too. Default: none, so that data cannot reach the network of this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub private_hosts: Vec<String>,
    /// `rest`, `html`, `fetch`, and `files` over http(s): if true, hosts that data lead to are
    /// requested through the proxy of the environment (`HTTPS_PROXY` and the like). The proxy then
    /// resolves their names, and feedline cannot check their addresses. The author of the data can
    /// reach every host that the proxy reaches by name. Hosts that the configuration names are
    /// always requested through the proxy. Default false: hosts that data lead to are requested
    /// without the proxy. Set it only if the proxy is the only way to the internet and itself
    /// refuses hosts of the private network.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub trust_proxy: bool,
    /// `rest`, `html`, `fetch`, and `files` over http(s): certificates for https. Default: those of
    /// the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsConfig>,
    /// `rest`, `html`: if true, the responses of each batch are archived for
    /// `feedline ingest replay`. Each batch has one Parquet file in `raw/`, with the bodies
    /// (decompressed), the status and the headers that pages are read by. Credentials from `auth`
    /// and from secrets of `headers` are masked in it, and cookies are not stored. A batch then
    /// also ends with the page that brings it to 128 MiB of bodies. It may be changed at any time,
    /// but a replay needs an archive that is complete from the first batch on. Default false:
    /// bodies are not stored. Set it if a contract or selectors may have to change later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archive_raw: bool,
    /// `files`: format; default `auto`, by the file's name.
    #[serde(default)]
    pub format: FileFormat,
    /// `files`: actions for files that change, and for those that are still being written.
    #[serde(default, skip_serializing_if = "FilesConfig::is_default")]
    pub files: FilesConfig,
    /// `files`: details of CSV. `rest`: the same for responses in CSV. `predict` reads CSV of new
    /// rows with them, whatever the format of the source. Records of another format are not read with
    /// them, with the warning `csv_not_used`.
    #[serde(default)]
    pub csv: CsvConfig,
    /// `files`: details of idx.
    #[serde(default)]
    pub idx: IdxConfig,
    /// `files`: details of plain text.
    #[serde(default)]
    pub text: TextConfig,
    /// `files`: selection of members of archives, and limits on their unpacked size.
    #[serde(default)]
    pub archive: ArchiveConfig,
    /// `files`: downloads an image for each row of a table. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch: Option<FetchConfig>,
    /// Inference of the types of columns before anything lands.
    #[serde(default, skip_serializing_if = "InferConfig::is_default")]
    pub infer: InferConfig,
    /// Data contract: rules for changes of the schema of records.
    #[serde(default)]
    pub contract: ContractConfig,
    /// Columns that identify the entity of a row, such as `["id"]`. Of the landed rows with one
    /// key, a dataset reads only the latest version, the row with the greatest `version`. All rows
    /// stay in the landing zone, and superseded ones count among the duplicates of a dataset. In a
    /// key of several columns a null is a value like any other (`key_has_nulls`); rows without any
    /// part are all read.
    ///
    /// A newer row has different content, which can put it into another split: name the key in
    /// `dataset.split.key` to keep it in the same split. A record that arrives again is dropped
    /// only if it equals the latest landed row of its key (and `version`). A record that returns to
    /// an earlier content lands, except with `slices`, and with `for_each` without `refresh` or
    /// `incremental`. With a key, a dataset is rebuilt from all rows whenever new rows have landed.
    /// Default: none, every row is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    /// Column that orders the rows with one `key`, such as `updated_at`; the row with the greatest
    /// value is the latest version. Numbers and timestamps are ordered by value, and null is the
    /// oldest. Texts that are decimal numbers are ordered by value. Texts that are ISO 8601 dates or
    /// RFC 3339 times are ordered as instants: without an offset in UTC, a date as its midnight.
    /// Other texts are ordered by their bytes, so `v9` is later than `v10`, and `31.01.2024` later
    /// than `01.02.2024`; the warning `version_is_text` names such a column: land dates with
    /// `contract.column.<name>.type = "timestamp"` and `contract.dates`. Where the order of bytes is
    /// right, as of `r0009` and `r0010`, declare the column `text`, which turns the warning off. It does
    /// not name months such as `2024-01`, ULIDs and UUIDs of version 7, whose bytes have the order of
    /// their times. Texts such as `1.9` and `1.10` are numbers, so `1.9` is later; the warning
    /// `version_is_number` names a column with both, since they may be version numbers of several
    /// parts. It also names a column of numbers from CSV cells, unless its type is declared. In a
    /// column of several forms, numbers are older than times, and times older than other texts. Of
    /// equal values, and of all rows by default, the row that landed last is the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Size of one commit.
    #[serde(default)]
    pub batch: BatchConfig,
    /// Times at which `feedline serve` runs the source. Default: it does not run it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<SourceScheduleConfig>,
    /// Licence of the data; recorded in the dataset's manifest.
    pub licence: Option<String>,
}

/// The keys of each type.
const KEYS: KeyTable = KeyTable {
    tag: "type",
    default: "",
    common: &[
        "name",
        "url",
        "retry",
        "limits",
        "private_hosts",
        "trust_proxy",
        "tls",
        "infer",
        "contract",
        "key",
        "version",
        "batch",
        "schedule",
        "licence",
    ],
    variants: &[
        (
            "rest",
            &[
                "records",
                "params",
                "headers",
                "method",
                "body",
                "params_in",
                "idempotent",
                "graphql",
                "response",
                "csv",
                "auth",
                "pagination",
                "incremental",
                "refresh",
                "slices",
                "for_each",
                "error_path",
                "archive_raw",
            ],
        ),
        ("html", &["headers", "crawl", "page", "archive_raw"]),
        (
            "files",
            &[
                "records", "params", "headers", "auth", "format", "files", "csv", "idx", "text",
                "archive", "fetch",
            ],
        ),
    ],
};

/// Reads `[[source]]`, and refuses a key of another type.
pub(super) fn read<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<SourceConfig>, D::Error> {
    Ok(KEYS.read_list(deserializer)?.unwrap_or_default())
}

pub(super) fn schema(generator: &mut SchemaGenerator) -> Schema {
    let table = KEYS.schema::<SourceConfig>(generator);
    schemars::json_schema!({ "type": "array", "items": table })
}

impl SourceConfig {
    /// Returns true if its data come from web servers: it downloads files that rows name, or its
    /// own URL begins with `http://` or `https://`, in upper or lower case.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.fetch.is_some() || self.is_web()
    }

    /// Size of the deduplication window in records: `batch.dedup_window`, or its default for this
    /// type.
    #[must_use]
    pub fn dedup_window(&self) -> u64 {
        let default = match self.r#type {
            SourceKind::Rest | SourceKind::Html => 100_000,
            SourceKind::Files => 0,
        };
        self.batch.dedup_window.unwrap_or(default)
    }

    /// Returns true if its URL begins with `http://` or `https://`.
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
    /// An API, mostly one of JSON.
    Rest,
    /// Pages of a site, found by links and sitemaps.
    Html,
    /// Files: CSV, JSON, NDJSON, Parquet, images, idx images, text; plain, gzip or zstd.
    Files,
}

impl SourceKind {
    /// All types, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Rest, Self::Html, Self::Files];
}

/// Format of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileFormat {
    /// By the name of the file: `.csv`, `.tsv`, `.json`, `.ndjson` or `.jsonl`, `.parquet`,
    /// `.arrow`, `.arrows`, `.feather` or `.ipc`; then optionally `.gz` or `.zst`.
    ///
    /// An archive (`.zip`, `.tar`, `.tar.gz`, `.tgz`, `.tar.zst`) gives the records of its members,
    /// in the order of the archive. Each member is read as a file of its name. Members whose names
    /// show no format are skipped. With another `format`, all members are read in that format.
    /// `archive.member` selects members; with `auto`, archives found in a folder are read only if
    /// it is set.
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
    /// Arrow IPC: a file (Feather of version 2) or a stream, also compressed by LZ4 or Zstandard
    /// inside.
    Arrow,
    /// idx images, the layout of MNIST; never chosen by name. A record is `image`, the pixels as a
    /// complete PGM file (grey) or PPM file (RGB). If `idx.labels` names a file of labels, it also
    /// has `label`, an integer.
    Idx,
    /// Plain text in UTF-8, or in UTF-16 with a byte order mark; never chosen by name. A record is
    /// `text`: the complete file, or a part between two occurrences of `text.separator`; and `path`
    /// and `folder` of the file, as for images.
    Text,
    /// Image files; never chosen by name. A record is one file: `image`, its bytes; `path`, its
    /// path below the folder of `url` (the part before the first wildcard); and `folder`, the name
    /// of its parent folder. In a folder, files whose names end as those of images are read.
    ///
    /// An archive (`.zip`, `.tar`, `.tar.gz`, `.tgz`, `.tar.zst`) gives a record for each member
    /// whose name is that of an image. `path` is then the path of the archive, `!/` and the name of
    /// the member, and `folder` is that of the member. `archive` limits the unpacked size.
    Image,
}

/// `[source.files]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilesConfig {
    /// Action for a file that has changed since it was read: `replace` (default), `append` or
    /// `refuse`. It may be changed at any time.
    pub changed: FilesChanged,
    /// Seconds since the last write of a file before it is read, 0 to 31,536,000, by the clock of
    /// its store. A younger file is left for a later run, with a warning. Default 0: a file is read
    /// at once. Set it if files are written slowly into the source folder. In stores without
    /// modification times, no file is too young.
    pub settle_s: Seconds<0, 31_536_000>,
}

impl FilesConfig {
    /// Returns true for the defaults.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Action for a file that has changed since it was read.
///
/// A plain CSV or NDJSON file that has only grown is read from its previous end. If its last line
/// had been incomplete, the file is read again, and its landed rows are superseded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FilesChanged {
    /// Supersedes the landed rows of a changed file by its new content, with a warning. A file that
    /// has only grown is read from its previous end instead, but not a compressed file, archive,
    /// Parquet file or JSON document: any change of these supersedes. The previous files of the
    /// landing zone are kept in `superseded/`. Refused with `fetch`.
    #[default]
    Replace,
    /// Reads a file that has only grown from its previous end; another change ends the run. For
    /// logs and other append-only files.
    Append,
    /// Ends the run after any change. For files that must never change.
    Refuse,
}

/// `[source.infer]`: inference of the types of columns before anything lands.
///
/// The type of a column follows from the complete first batch, and for `files` from a sample of all
/// files. The order of the rows has no influence. Files with at most `rows` rows together are
/// sampled completely. Otherwise up to 64 files, spread evenly over the list, are sampled. Of a
/// large uncompressed CSV or NDJSON file, eight parts spread evenly over it are sampled. Types that
/// `contract.column` declares are not inferred.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InferConfig {
    /// Rows of `files` that are sampled before the first batch lands, 0 to 10,000,000, and at most
    /// 32 MiB of them. Default 100,000. A larger sample makes rejects of values of an unseen kind
    /// less likely; with 0, only the first batch is used.
    pub rows: BoundedCount<0, 10_000_000>,
    /// Largest fraction of values that do not fit, in a column that is inferred as numbers or
    /// dates, 0 to 0.5. A warning reports such values, and `contract.types` applies to them. A
    /// column with a larger fraction is text. If `contract.types` is `widen`, any such value makes
    /// the column text. Default 0.01; with 0, a single such value makes the column text.
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

/// `[source.idx]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IdxConfig {
    /// Path or URL of the file with a label for each image; `url` then names a single file of
    /// images. Default: none.
    pub labels: Option<String>,
}

/// `[source.text]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextConfig {
    /// Text between two records that belongs to neither, such as `"\n\n"` for an empty line; `\n`
    /// matches CRLF too. A part without any visible character is not a record. Default: none, a file
    /// is one record.
    pub separator: Option<String>,
}

/// `[source.archive]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArchiveConfig {
    /// Pattern of the members to read, such as `*.csv` or `**/API_*.csv`: `*` matches within a
    /// folder, `**` across folders. An archive without a matching member is refused. Default:
    /// members whose names show a format, or images. Hidden members (a name or folder that begins
    /// with a dot) are not read. With `format = "image"`, members with a file extension that is not
    /// one of images are read if the pattern contains it, as `**/*.pbm` does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Most members of an archive, at least 1; one with more is refused. Default 10,000,000.
    pub max_members: BoundedCount<1>,
    /// Most bytes of a member, unpacked, 1 B to 1 GiB; memory holds one member. A larger image is
    /// written to `rejects/`; a larger table or text ends the run. Default 64 MiB.
    pub max_member_bytes: Bytes<1, { 1 << 30 }>,
    /// Largest ratio of the unpacked size of an archive to its own size (or to 16 MiB, if that is
    /// more), at least 1. An archive beyond it is refused as a possible decompression bomb. It also
    /// bounds the rows of a Parquet file, by the bytes of their texts and 8 for each number. A
    /// Parquet file with few, repeated texts may need more. Default 200.
    pub max_ratio: BoundedCount<1>,
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

/// `[source.fetch]`: downloads the file at a URL in each row of a table. A row keeps its other
/// columns, and rows keep their order. A row whose file cannot be downloaded, after the tries of
/// `retry`, is written to `rejects/` with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FetchConfig {
    /// Column with an `http` or `https` URL in each row.
    pub column: String,
    /// Column for the bytes of the file; the table must not have a column of this name. Default
    /// `image`.
    #[serde(default = "image")]
    pub into: String,
    /// Most files that are requested at a time, 1 to 64; each may take `retry.max_body_bytes` of
    /// memory. Default 8.
    #[serde(default = "eight")]
    pub concurrency: Bounded<u32, 1, 64>,
    /// If true, hosts of this machine and its network may be requested. Otherwise a row with the
    /// URL of such a host, or with a redirect to one, is rejected. Default false.
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
    /// Number of records that end a batch, 1 to 1,000,000: it is committed at the end of the page
    /// that reaches this number. Default 10,000. Smaller batches lose less work in a crash, larger
    /// ones make fewer files.
    pub rows: BoundedCount<1, 1_000_000>,
    /// Number of pages after which a batch is committed at the latest, at least 1. Default 100.
    pub pages: BoundedCount<1>,
    /// Size of records that ends a batch, 1 B to 128 MiB: it is committed at the end of the page
    /// that reaches this size. Default `32 MiB`. Up to four sources are read at a time. Each reads
    /// one batch while it writes another, and a record takes about twice the size of its text. A
    /// smaller bound saves memory if records are large.
    pub bytes: Bytes<1, { 128 << 20 }>,
    /// Number of landed records that a record is compared with: an identical one (same content) is
    /// dropped as a duplicate. 0 keeps all records. Each takes 16 bytes of memory. Default 100,000
    /// for `rest` and `html`, whose pages may overlap. Default 0 for `files`, whose rows are
    /// identified by their positions: equal rows all land.
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
    use super::{KEYS, SourceKind};
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
    fn a_key_of_another_type_is_refused_at_its_line() {
        for (lines, expected) in [
            (
                "type = \"files\"\nrefresh = \"if_changed\"",
                "p.toml:6: `source.0.refresh`: this key belongs to `type = \"rest\"`; `type = \"files\"` has the keys",
            ),
            (
                "type = \"html\"\nincremental = { cursor = \"c\", param = \"p\" }",
                "p.toml:6: `source.0.incremental`: this key belongs to `type = \"rest\"`",
            ),
            (
                "type = \"files\"\narchive_raw = true",
                "p.toml:6: `source.0.archive_raw`: this key belongs to `type = \"rest\"` and `type = \"html\"`",
            ),
            (
                "type = \"html\"\ncsv = { delimiter = \";\" }",
                "p.toml:6: `source.0.csv`: this key belongs to `type = \"rest\"` and `type = \"files\"`",
            ),
            (
                "type = \"rest\"\nformat = \"csv\"",
                "p.toml:6: `source.0.format`: this key belongs to `type = \"files\"`",
            ),
            (
                "type = \"rest\"\ncrawl = { depth = 1 }",
                "p.toml:6: `source.0.crawl`: this key belongs to `type = \"html\"`",
            ),
            (
                "type = \"ftp\"",
                "p.toml:5: `source.0.type`: unknown value `ftp`; known here: rest, html, files",
            ),
            (
                "csv = {}",
                "`source.0.type`: this key is required and absent, add it",
            ),
            (
                "type = \"rest\"\nrefesh = \"never\"",
                "unknown key `refesh`, did you mean `refresh`?",
            ),
        ] {
            let text = format!(
                "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\n{lines}\nurl = \"u\"\n"
            );
            let error = load("p.toml", &text, &[]).unwrap_err().to_string();
            assert!(error.contains(expected), "{lines}: {error}");
        }
    }

    /// Key, value, and the reason that it is refused for.
    type RefusedNumber = (&'static str, &'static str, &'static str);

    const BATCHES_OUT_OF_RANGE: &[RefusedNumber] = &[
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
    ];

    const CONTRACTS_OUT_OF_RANGE: &[RefusedNumber] = &[
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
    ];

    const REQUESTS_OUT_OF_RANGE: &[RefusedNumber] = &[
        (
            "limits.requests_per_s",
            "0.0",
            "must be more than 0 and at most 1000, got 0",
        ),
        (
            "limits.requests_per_s",
            "nan",
            "`NaN` is not a finite number, write one",
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
            "fetch",
            "{column = 'u', concurrency = 0}",
            "must be 1 to 64, got 0",
        ),
    ];

    const CRAWLS_OUT_OF_RANGE: &[RefusedNumber] = &[
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
    ];

    #[test]
    fn every_type_of_source_has_its_keys() {
        let names: Vec<String> = SourceKind::ALL
            .iter()
            .map(|kind| serde_json::to_value(kind).unwrap())
            .map(|name| name.as_str().unwrap().to_owned())
            .collect();
        let with_keys: Vec<&str> = KEYS.variants.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, with_keys);
    }

    #[test]
    fn a_number_out_of_its_range_is_refused_with_the_range() {
        let tables = [
            BATCHES_OUT_OF_RANGE,
            CONTRACTS_OUT_OF_RANGE,
            REQUESTS_OUT_OF_RANGE,
            CRAWLS_OUT_OF_RANGE,
        ];
        for (key, value, reason) in tables.concat() {
            let kind = match key.split('.').next() {
                Some("crawl") => "html",
                Some("archive" | "fetch" | "files" | "csv") => "files",
                _ => "rest",
            };
            let text = format!(
                "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"{kind}\"\nurl = \"x\"\n"
            );
            let set = format!("source.0.{key}={value}").parse().unwrap();
            let error = load("p", &text, &[set]).unwrap_err();
            assert_eq!(error.reason, reason, "{key} = {value}");
            assert!(error.key.starts_with(&format!("source.0.{key}")), "{error}");
        }
    }
}
