//! Texts of this crate's errors.

use std::path::Path;

use feedline_http::HttpCause;
use feedline_schemas::{ContractError, ErrorKind, ids::Sequence};
use feedline_testkit::error_texts::{Texts, variants};

use super::Error;

const API: &str = "https://api.example/v1/prices?page=3";
const LOG: &str = "file:///data/landing/prices/log";

#[test]
fn the_texts_of_all_errors_are_those_of_the_snapshot() {
    let mut texts = Texts::default();
    let variants = variants!(
        Error: Config, Http, Body, Incomplete, FailedValues, Deferred, Cancelled, File, TooManyRejects, Frozen, Fenced,
        Replaced, Running, Log, Landed, Delta, Archive, Archived, Encode, Storage, Contract
    );
    let mut samples = of_requests();
    samples.extend(of_records());
    samples.extend(of_logs());
    texts.add_variants("Error", &variants, &samples);
    texts.check(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")),
        "ingest",
    );
}

#[test]
fn an_error_of_a_request_keeps_its_text() {
    let (url, reason) = (API.to_owned(), "it has no `items`".to_owned());
    for error in [
        feedline_http::Error::Config {
            key: "headers.X-Key".into(),
            reason: reason.clone(),
        },
        feedline_http::Error::Http {
            url: url.clone(),
            cause: HttpCause::CircuitOpen,
            what: "its host failed 10 times in a row".into(),
            advice: "wait".into(),
        },
        feedline_http::Error::Body { url, reason },
    ] {
        let text = error.to_string();
        assert_eq!(Error::from(error).to_string(), text);
    }
}

fn of_requests() -> Vec<Error> {
    vec![
        Error::config(
            "source.0.pagination.page_size",
            "0 is out of range; give 1 to 10,000",
        ),
        Error::Http {
            url: API.into(),
            cause: HttpCause::Status(503),
            what: "the server answered 503 Service Unavailable, and 5 tries are used up".into(),
            advice: "run again later, or raise `retry.max_tries`".into(),
        },
        Error::Body {
            url: API.into(),
            reason: "`data.items` is absent; correct `records`".into(),
        },
        Error::Incomplete {
            url: API.into(),
            reason: "900 of 1,000 came; lower `page_size`".into(),
        },
        Error::FailedValues {
            r#source: "prices".into(),
            failed: 2,
            values: "`MSFT`, `ORCL`".into(),
            others: "and all others were read".into(),
            first: "cannot fetch `https://api.example/v1/prices?symbol=MSFT`: the server answered 500 Internal Server Error, and 5 tries are used up; run again later".into(),
            kind: ErrorKind::Retry,
        },
        Error::Deferred {
            r#source: "prices".into(),
            until_unix_s: 1_780_000_000,
            wait_s: 3_600,
            reason: "`Retry-After` is 3600 s".into(),
        },
        Error::Cancelled,
        Error::Archive {
            url: "file:///data/landing/prices/raw".into(),
            reason: "it has no response of this request; set `archive_raw = true` and ingest first"
                .into(),
        },
        Error::Archived("the connection was reset".into()),
    ]
}

fn of_records() -> Vec<Error> {
    let frozen = |key: &str| Error::Frozen {
        r#source: "prices".into(),
        key: key.to_owned(),
        detail: "column `n` is integer, the value is text `\"x\"`".into(),
        record: "{\"n\":\"x\"}".into(),
    };
    vec![
        Error::File {
            url: "file:///data/prices.csv".into(),
            reason: "line 7 has 3 cells and the header 4; correct the line".into(),
        },
        Error::TooManyRejects {
            r#source: "prices".into(),
            rejected: 60,
            records: 1_000,
            scope: "records",
            max_share: 0.05,
            reason: "type_mismatch".into(),
            sample: "row 7 of prices.csv: `size` is `many`".into(),
        },
        frozen("types"),
        frozen("column.n.types"),
        frozen("columns"),
        frozen("nulls"),
        frozen("missing_columns"),
        Error::Encode {
            what: "rows".into(),
            cause: parquet::errors::ParquetError::General("CAUSE".into()),
        },
    ]
}

fn of_logs() -> Vec<Error> {
    vec![
        Error::Fenced {
            r#source: "prices".into(),
            sequence: Sequence::new(7),
            other_run: "r2".into(),
            other_epoch: 3,
            epoch: 2,
        },
        Error::Replaced {
            r#source: "prices".into(),
            sequence: Sequence::new(7),
            before: 6,
        },
        Error::Running {
            r#source: "prices".into(),
            holder: "host-17".into(),
        },
        Error::Log {
            url: LOG.into(),
            reason: "entry 6 is missing".into(),
        },
        Error::Landed {
            url: "file:///data/landing/prices/data/6.parquet".into(),
            reason: "it has 10 bytes and its log entry says 4096".into(),
        },
        Error::Delta {
            url: "/data/landing/prices/data".into(),
            reason: "its version 7 was written by `Apache-Spark/4.0.0`, and only feedline may change it; `feedline ingest delta PIPELINE.toml --rebuild` writes it again from the commit log".into(),
        },
        Error::Storage(feedline_storage::Error::NotFound { url: LOG.into() }),
        Error::Contract(ContractError::Newer {
            what: LOG.into(),
            path: "mood".into(),
            reason: "unknown field `mood`".into(),
        }),
    ]
}
