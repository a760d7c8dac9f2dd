//! Texts of this crate's errors.

use std::path::Path;

use feedline_testkit::error_texts::{Texts, variants};

use crate::{
    ContractError,
    config::{ConfigError, MarkedLine},
    format::{COMMIT, MANIFEST, RUN},
    pnm::PnmError,
    shard_table::TableError,
};

#[test]
fn the_texts_of_all_errors_are_those_of_the_snapshot() {
    let mut texts = Texts::default();
    texts.add_variants(
        "ContractError",
        &variants!(ContractError: Malformed, Newer, Outdated, Unsupported),
        &documents(),
    );
    texts.add_variants(
        "PnmError",
        &variants!(PnmError: Unsupported, Truncated, Corrupt),
        &[
            PnmError::Unsupported("no PGM or PPM"),
            PnmError::Truncated,
            PnmError::Corrupt("it has bytes after its last pixel"),
        ],
    );
    let table = TableError {
        path: "tables/train-0123456789abcdef.arrow".into(),
        reason: "it has 3 rows, and the manifest says 4".into(),
    };
    texts.add("TableError", &table);
    for (line, key) in [
        (Some(7), "dataset.target"),
        (None, "train.epochs"),
        (Some(3), ""),
    ] {
        let error = ConfigError {
            file: "pipeline.toml".into(),
            line: line.map(|number| MarkedLine {
                number,
                column: 10,
                width: 5,
                text: "target = \"price\"".into(),
            }),
            key: key.into(),
            reason: "REASON".into(),
        };
        texts.add("ConfigError", &error);
    }
    texts.check(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")),
        "schemas",
    );
}

fn documents() -> [ContractError; 5] {
    [
        ContractError::Malformed {
            what: "file:///data/dataset/manifest-000001.json".into(),
            path: "counts.rows_in".into(),
            reason: "invalid type: string \"x\", expected u64".into(),
            tag: &MANIFEST,
        },
        ContractError::Newer {
            what: "file:///data/landing/prices/log/00000000000000000007.json".into(),
            path: "mood".into(),
            reason: "unknown field `mood`".into(),
        },
        ContractError::Outdated {
            what: "file:///data/dataset/manifest-000001.json".into(),
            tag: &MANIFEST,
            found_version: 2,
        },
        ContractError::Outdated {
            what: "file:///data/train/0123456789abcdef/run.json".into(),
            tag: &RUN,
            found_version: 1,
        },
        ContractError::Unsupported {
            what: "file:///data/landing/prices/log/00000000000000000007.json".into(),
            found_format: COMMIT.format.into(),
            found_version: 9,
            tag: &COMMIT,
        },
    ]
}
