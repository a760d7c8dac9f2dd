//! Texts of this crate's errors.

use std::{collections::BTreeMap, io, path::Path};

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use feedline_schemas::{ContractError, manifest::Split};
use feedline_testkit::error_texts::{Texts, variants};

use super::Error;

#[test]
fn the_texts_of_all_errors_are_those_of_the_snapshot() {
    let mut texts = Texts::default();
    let variants = variants!(
        Error: Config, Input, TooManyRejects, Unexpected, EmptySplit, Lost, Miscounted, ExportCount, Leak,
        Scratch, UntrustedScratch, Decoder, Memory, Engine, Arrow, Storage, Contract
    );
    let mut samples = of_data();
    samples.extend(of_machine());
    texts.add_variants("Error", &variants, &samples);
    texts.check(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")),
        "preprocess",
    );
}

fn of_data() -> Vec<Error> {
    let rejects = || "file:///data/dataset/rejects/1.ndjson".to_owned();
    let unexpected = |rows| Error::Unexpected {
        rows,
        what: vec!["`price` is above its `max` = 500 in 3 rows, such as 812".into()],
        expectations: "file:///data/expect.toml".into(),
        file: Some(rejects()),
    };
    let empty = |left_out: &str| Error::EmptySplit {
        split: Split::Validation,
        share: 0.1,
        rows: 3,
        train: 3,
        validation: 0,
        test: 0,
        left_out: left_out.into(),
        advice: "land more rows, or give this split a larger share or none".into(),
    };
    vec![
        Error::config(
            "dataset.target",
            "there is no column `prize`; did you mean `price`?",
        ),
        Error::input(
            "source `prices`",
            "no rows have landed in `file:///data/landing/prices`",
            "run `feedline ingest` first",
        ),
        Error::TooManyRejects {
            rejected: 60,
            rows: 1_000,
            limit: 0.05,
            by_reason: BTreeMap::from([
                ("not_finite".to_owned(), 20),
                ("target_missing".to_owned(), 40),
            ]),
            sample: "row 7 of `prices`: no target".into(),
            file: rejects(),
            advice: "correct them, or raise the limit".into(),
        },
        unexpected(3),
        unexpected(0),
        empty(""),
        empty(", and 20 were left out"),
        Error::Lost {
            what: "tokens".into(),
            documents: 100,
            shards: 99,
        },
        Error::ExportCount {
            rows: 100,
            found: 99,
        },
        Error::Miscounted {
            rows: 100,
            found: 99,
        },
        Error::Leak {
            keys: 2,
            samples: vec!["key `00ff` in train and test".into()],
        },
        Error::Storage(feedline_storage::Error::NotFound { url: rejects() }),
        Error::Contract(ContractError::Newer {
            what: "file:///data/dataset/manifest-000001.json".into(),
            path: "mood".into(),
            reason: "unknown field `mood`".into(),
        }),
    ]
}

fn of_machine() -> Vec<Error> {
    let full = || io::Error::other("no space is left");
    vec![
        Error::scratch(Path::new("/tmp/feedline-1"), full()),
        Error::UntrustedScratch {
            path: "/tmp/feedline-1".into(),
            reason: "it belongs to user 7".into(),
        },
        Error::Decoder {
            program: "feedline".into(),
            reason: "could not be started".into(),
        },
        Error::Memory {
            reason: "2.0 KB more for a sort, of the limit of 64.0 MB".into(),
        },
        Error::Engine(DataFusionError::IoError(full())),
        Error::Engine(DataFusionError::Execution("CAUSE".into())),
        Error::Arrow(ArrowError::CastError("CAUSE".into())),
    ]
}
