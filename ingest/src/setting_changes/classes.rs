//! Class of every setting of a source: the effect of a change after records have landed.
//!
//! A test walks the keys of `[[source]]`, and another compares `docs/settings-after-landing.md`
//! with this table.

use self::{
    Class::{Immediate, Logged, Refused},
    Effect::{Folder, Incremental, Next, NextFile, Pages},
};

/// Class of a change of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Takes effect from the event named here, and is not recorded.
    Immediate(&'static str),
    /// Takes effect and is recorded.
    Logged(Effect),
    /// Refused, for this reason.
    Refused(&'static str),
}

/// Effect of a recorded change on the next reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Applies to the read named here and later ones; the position stays.
    Next(&'static str),
    /// Restarts an unfinished run of pages; its landed records are dropped as duplicates.
    Pages,
    /// Begins the next page run at `incremental.start`; landed records are dropped as duplicates.
    Incremental,
    /// Applies from the next file on; refused inside a file.
    NextFile,
    /// `url`: for `files`, another pattern in the same folder; otherwise refused.
    Folder,
}

/// Key below `[[source]]`, and its class. `*` matches a name that the user chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) pattern: &'static str,
    pub(crate) class: Class,
}

const fn key(pattern: &'static str, class: Class) -> Key {
    Key { pattern, class }
}

const OTHER_DATA: &str = "it returns other records, or the same ones in another form";
const OTHER_VALUES: &str = "the log counts finished parts by the old values";
const OTHER_UNITS: &str = "the log counts finished parts in the old units";
const CRAWL_BEGUN: &str = "the crawl has begun with the old ones, and knows URLs by them";

/// All keys, in the order of the configuration.
pub(crate) const KEYS: &[Key] = &[
    key(
        "name",
        Immediate(
            "it is another source, which starts from the beginning in its own folder; data landed under the old name stays there",
        ),
    ),
    key("type", Refused(OTHER_DATA)),
    key("url", Logged(Folder)),
    key("records", Refused(OTHER_DATA)),
    key("params.*", Logged(Pages)),
    key("headers.*", Logged(Next("of the next request"))),
    key("method", Logged(Pages)),
    key("body.json", Logged(Pages)),
    key("body.form.*", Logged(Pages)),
    key("body.xml", Logged(Pages)),
    key("body.text", Logged(Pages)),
    key("body.content_type", Logged(Next("of the next request"))),
    key("params_in", Logged(Pages)),
    key("idempotent", Immediate("from the next request on")),
    key("graphql.query", Logged(Pages)),
    key("graphql.operation", Logged(Pages)),
    key("graphql.variables", Logged(Pages)),
    key("graphql.connection", Refused(OTHER_DATA)),
    key("graphql.cursor", Logged(Next("of the next request"))),
    key("graphql.partial_data", Immediate("from the next page on")),
    key("response.format", Logged(Next("of the next page"))),
    key("response.lists", Logged(Next("of the next records"))),
    key("response.single_record", Logged(Next("of the next page"))),
    key("auth.type", Immediate("from the next request on")),
    key("auth.secret", Immediate("from the next request on")),
    key("auth.header", Immediate("from the next request on")),
    key("auth.param", Immediate("from the next request on")),
    key("auth.user", Immediate("from the next request on")),
    key("auth.password", Immediate("from the next request on")),
    key("auth.token_url", Immediate("from the next request on")),
    key("auth.client_id", Immediate("from the next request on")),
    key("auth.client_secret", Immediate("from the next request on")),
    key("auth.scope", Immediate("from the next request on")),
    key("auth.credentials", Immediate("from the next request on")),
    key("auth.grant", Immediate("from the next request on")),
    key("auth.refresh_token", Immediate("from the next request on")),
    key(
        "auth.refresh_token_file",
        Immediate("from the next request on"),
    ),
    key("auth.private_key", Immediate("from the next request on")),
    key("auth.key_id", Immediate("from the next request on")),
    key("auth.issuer", Immediate("from the next request on")),
    key("auth.subject", Immediate("from the next request on")),
    key("auth.audience", Immediate("from the next request on")),
    key("auth.claims.*", Immediate("from the next request on")),
    key("auth.region", Immediate("from the next request on")),
    key("auth.service", Immediate("from the next request on")),
    key("auth.access_key_id", Immediate("from the next request on")),
    key(
        "auth.secret_access_key",
        Immediate("from the next request on"),
    ),
    key("auth.session_token", Immediate("from the next request on")),
    key("auth.cookies.*", Immediate("from the next request on")),
    key("auth.login_url", Immediate("from the next request on")),
    key("auth.fields.*", Immediate("from the next request on")),
    key("auth.login_body", Immediate("from the next request on")),
    key("pagination.type", Logged(Pages)),
    key("pagination.page_param", Logged(Pages)),
    key("pagination.first_page", Logged(Pages)),
    key("pagination.empty_pages", Immediate("from the next page on")),
    key("pagination.page_size", Logged(Pages)),
    key("pagination.size_param", Logged(Pages)),
    key("pagination.offset_param", Logged(Pages)),
    key("pagination.first_offset", Logged(Pages)),
    key("pagination.overlap", Logged(Pages)),
    key("pagination.cursor_param", Logged(Pages)),
    key("pagination.cursor_path", Logged(Pages)),
    key("pagination.cursor_header", Logged(Pages)),
    key("pagination.next_path", Logged(Pages)),
    key(
        "pagination.next_origins",
        Immediate("from the next page on"),
    ),
    key("pagination.time_path", Logged(Pages)),
    key("pagination.time_param", Logged(Pages)),
    key("pagination.key_path", Logged(Pages)),
    key("pagination.key_param", Logged(Pages)),
    key("pagination.exclusive", Logged(Pages)),
    key("pagination.total_path", Immediate("from the next page on")),
    key(
        "pagination.total_header",
        Immediate("from the next page on"),
    ),
    key(
        "pagination.strict_total",
        Immediate("from the next page on"),
    ),
    key("pagination.max_records", Immediate("from the next page on")),
    key("pagination.max_pages", Immediate("from the next page on")),
    key(
        "pagination.has_more_path",
        Immediate("from the next page on"),
    ),
    key("pagination.end_status", Immediate("from the next page on")),
    key("incremental.cursor", Logged(Incremental)),
    key("incremental.param", Logged(Next("of the next request"))),
    key("incremental.start", Logged(Incremental)),
    key(
        "incremental.lookback",
        Immediate("from the next run of pages on"),
    ),
    key("incremental.max_ahead", Immediate("from the next page on")),
    key("refresh", Immediate("from the next run on")),
    key("slices.from_param", Logged(Pages)),
    key("slices.to_param", Logged(Pages)),
    key(
        "slices.start",
        Immediate(
            "from the next run on: unfinished parts of the range are requested; data landed outside of it stays",
        ),
    ),
    key(
        "slices.end",
        Immediate(
            "from the next run on: unfinished parts of the range are requested; data landed outside of it stays",
        ),
    ),
    key("slices.lag", Immediate("from the next run on")),
    key("slices.clock", Immediate("from the next run on")),
    key("slices.step", Immediate("from the next slice on")),
    key("slices.format", Refused(OTHER_UNITS)),
    key("slices.upper", Logged(Next("of the next slice"))),
    key("for_each.param", Refused(OTHER_VALUES)),
    key(
        "for_each.values",
        Immediate(
            "from the next run on: new values are read, and removed ones are not requested any more",
        ),
    ),
    key("for_each.source", Refused(OTHER_VALUES)),
    key("for_each.column", Refused(OTHER_VALUES)),
    key("for_each.as", Refused(OTHER_DATA)),
    key("for_each.missing", Immediate("from the next value on")),
    key("error_path", Immediate("from the next page on")),
    key("crawl.start", Refused(CRAWL_BEGUN)),
    key("crawl.sitemaps", Refused(CRAWL_BEGUN)),
    key(
        "crawl.links",
        Logged(Next(
            "of the next page; links of pages that were read stay as they were decided",
        )),
    ),
    key(
        "crawl.nofollow",
        Logged(Next(
            "of the next page; links of pages that were read stay as they were decided",
        )),
    ),
    key(
        "crawl.allow",
        Logged(Next(
            "of the next page; links of pages that were read stay as they were decided",
        )),
    ),
    key(
        "crawl.deny",
        Logged(Next(
            "of the next page; links of pages that were read stay as they were decided",
        )),
    ),
    key("crawl.hosts", Refused(CRAWL_BEGUN)),
    key("crawl.drop_params", Refused(CRAWL_BEGUN)),
    key(
        "crawl.depth",
        Logged(Next(
            "of the next page; links of pages that were read stay as they were decided",
        )),
    ),
    key("crawl.max_pages", Logged(Next("of the next page"))),
    key("crawl.max_host_pages", Logged(Next("of the next page"))),
    key("crawl.robots", Logged(Next("of the next page"))),
    key("crawl.delay_ms", Immediate("from the next request on")),
    key(
        "crawl.max_crawl_delay_s",
        Immediate("from the next request on"),
    ),
    key("crawl.concurrency", Immediate("from the next request on")),
    key("crawl.refresh", Immediate("from the next run on")),
    key("crawl.contact", Immediate("from the next request on")),
    key("page.extract", Logged(Next("of the next page"))),
    key("page.land", Logged(Next("of the next page"))),
    key("page.rows", Logged(Next("of the next page"))),
    key("page.columns.*", Logged(Next("of the next page"))),
    key("page.max_bytes", Logged(Next("of the next page"))),
    key("retry.max_tries", Immediate("from the next request on")),
    key("retry.base_ms", Immediate("from the next request on")),
    key("retry.cap_ms", Immediate("from the next request on")),
    key("retry.max_wait_s", Immediate("from the next request on")),
    key(
        "retry.max_deferral_s",
        Immediate("from the next request on"),
    ),
    key(
        "retry.connect_timeout_ms",
        Immediate("from the next request on"),
    ),
    key(
        "retry.read_timeout_ms",
        Immediate("from the next request on"),
    ),
    key(
        "retry.total_timeout_ms",
        Immediate("from the next request on"),
    ),
    key(
        "retry.max_body_bytes",
        Immediate("from the next request on"),
    ),
    key(
        "retry.min_bytes_per_s",
        Immediate("from the next request on"),
    ),
    key("retry.max_elapsed_s", Immediate("from the next request on")),
    key(
        "retry.circuit_failures",
        Immediate("from the next request on"),
    ),
    key(
        "retry.circuit_cooldown_s",
        Immediate("from the next request on"),
    ),
    key(
        "limits.requests_per_s",
        Immediate("from the next request on"),
    ),
    key("limits.burst", Immediate("from the next request on")),
    key("limits.concurrency", Immediate("from the next request on")),
    key("limits.reset_unit", Immediate("from the next request on")),
    key("private_hosts", Immediate("from the next request on")),
    key("trust_proxy", Immediate("from the next request on")),
    key("tls.ca", Immediate("from the next request on")),
    key("tls.client_cert", Immediate("from the next request on")),
    key("tls.client_key", Immediate("from the next request on")),
    key(
        "archive_raw",
        Immediate(
            "from the next batch on; only an archive from the first batch on can be replayed",
        ),
    ),
    key("format", Logged(NextFile)),
    key("files.changed", Immediate("from the next run on")),
    key("files.settle_s", Immediate("from the next run on")),
    key("csv.delimiter", Logged(NextFile)),
    key("csv.null_values", Logged(Next("of the next records"))),
    key("csv.null_spellings", Logged(Next("of the next records"))),
    key("csv.header", Logged(NextFile)),
    key("csv.columns", Logged(NextFile)),
    key("csv.encoding", Logged(NextFile)),
    key("csv.quote", Logged(NextFile)),
    key("csv.escape", Logged(NextFile)),
    key("csv.comment", Logged(NextFile)),
    key("csv.skip_rows", Logged(NextFile)),
    key("csv.decimal_separator", Logged(NextFile)),
    key("csv.thousands_separator", Logged(NextFile)),
    key("csv.percent", Logged(NextFile)),
    key("csv.currency", Logged(NextFile)),
    key(
        "infer.rows",
        Immediate("for a source without landed records; landed columns keep their types"),
    ),
    key(
        "infer.max_odd_fraction",
        Immediate("for a source without landed records; landed columns keep their types"),
    ),
    key("idx.labels", Refused(OTHER_DATA)),
    key("text.separator", Logged(NextFile)),
    key("archive.member", Logged(NextFile)),
    key("archive.max_members", Immediate("from the next file on")),
    key(
        "archive.max_member_bytes",
        Immediate("from the next file on"),
    ),
    key("archive.max_ratio", Immediate("from the next file on")),
    key("fetch.column", Refused(OTHER_DATA)),
    key("fetch.into", Refused(OTHER_DATA)),
    key("fetch.concurrency", Immediate("from the next request on")),
    key("fetch.private", Immediate("from the next request on")),
    key("contract.types", Logged(Next("of the next records"))),
    key("contract.columns", Logged(Next("of the next records"))),
    key("contract.required", Logged(Next("of the next records"))),
    key("contract.nulls", Logged(Next("of the next records"))),
    key(
        "contract.missing_columns",
        Logged(Next("of the next records")),
    ),
    key("contract.null_drift", Logged(Next("of the next records"))),
    key(
        "contract.column.*.type",
        Logged(Next(
            "of the next records; a type that cannot hold the landed values is refused",
        )),
    ),
    key(
        "contract.column.*.types",
        Logged(Next("of the next records")),
    ),
    key(
        "contract.column.*.nulls",
        Logged(Next("of the next records")),
    ),
    key("contract.lists", Logged(Next("of the next records"))),
    key(
        "contract.children.*.path",
        Logged(Next("of the next records")),
    ),
    key(
        "contract.children.*.of",
        Logged(Next("of the next records")),
    ),
    key(
        "contract.children.*.parent.*",
        Logged(Next("of the next records")),
    ),
    key(
        "contract.children.*.types",
        Logged(Next("of the next records")),
    ),
    key(
        "contract.children.*.columns",
        Logged(Next("of the next records")),
    ),
    key(
        "contract.children.*.nulls",
        Logged(Next("of the next records")),
    ),
    key(
        "contract.children.*.missing_columns",
        Logged(Next("of the next records")),
    ),
    key(
        "contract.children.*.required",
        Logged(Next("of the next records")),
    ),
    key(
        "contract.children.*.column.*.type",
        Logged(Next(
            "of the next records; a type that cannot hold the landed values is refused",
        )),
    ),
    key(
        "contract.children.*.column.*.types",
        Logged(Next("of the next records")),
    ),
    key(
        "contract.children.*.column.*.nulls",
        Logged(Next("of the next records")),
    ),
    key(
        "contract.duplicate_keys",
        Logged(Next("of the next records")),
    ),
    key("contract.dates", Logged(Next("of the next records"))),
    key("contract.max_columns", Logged(Next("of the next records"))),
    key("contract.max_keys", Logged(Next("of the next records"))),
    key("contract.max_depth", Logged(Next("of the next records"))),
    key(
        "contract.max_reject_fraction",
        Immediate("from the next batch on; records of earlier batches count"),
    ),
    key(
        "contract.json.max_depth",
        Logged(Next("of the next records")),
    ),
    key(
        "contract.json.max_keys",
        Logged(Next("of the next records")),
    ),
    key(
        "contract.json.max_items",
        Logged(Next("of the next records")),
    ),
    key(
        "contract.json.max_text_bytes",
        Logged(Next("of the next records")),
    ),
    key(
        "key",
        Immediate("from the next build of a dataset on, which re-reads all rows"),
    ),
    key(
        "version",
        Immediate("from the next build of a dataset on, which re-reads all rows"),
    ),
    key("batch.rows", Immediate("from the next batch on")),
    key("batch.pages", Immediate("from the next batch on")),
    key("batch.bytes", Immediate("from the next batch on")),
    key("batch.dedup_window", Logged(Next("of the next records"))),
    key(
        "schedule.cron",
        Immediate("from the next start of `feedline serve` on"),
    ),
    key(
        "schedule.every_s",
        Immediate("from the next start of `feedline serve` on"),
    ),
    key(
        "schedule.zone",
        Immediate("from the next start of `feedline serve` on"),
    ),
    key(
        "schedule.jitter_s",
        Immediate("from the next start of `feedline serve` on"),
    ),
    key(
        "schedule.overlap",
        Immediate("from the next start of `feedline serve` on"),
    ),
    key(
        "schedule.catch_up",
        Immediate("from the next start of `feedline serve` on"),
    ),
    key("licence", Immediate("from the next build of a dataset on")),
];

/// Class of the setting at `path`; `None` if no pattern matches.
pub(crate) fn class_of(path: &str) -> Option<Class> {
    let exact = KEYS.iter().find(|key| key.pattern == path);
    let found = exact.or_else(|| KEYS.iter().find(|key| is_match(key.pattern, path)));
    found.map(|key| key.class)
}

/// Returns true if a pattern matches; a user-chosen name may contain dots.
fn is_match(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == path,
        Some((front, behind)) => path.strip_prefix(front).is_some_and(|rest| {
            let ends = rest.char_indices().map(|(at, c)| at + c.len_utf8());
            ends.into_iter().any(|end| is_match(behind, &rest[end..]))
        }),
    }
}
