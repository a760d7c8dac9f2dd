//! Texts of this crate's errors.

use std::{io, path::Path};

use feedline_testkit::error_texts::{Texts, variants};

use super::Error;

#[test]
fn the_texts_of_all_errors_are_those_of_the_snapshot() {
    let url = || "s3://bucket/landing/prices/data/1.parquet".to_owned();
    let samples = [
        Error::NotFound { url: url() },
        Error::Full {
            url: url(),
            source: io::Error::other("the disk has no space left"),
        },
        Error::Denied {
            url: url(),
            source: "status 403".into(),
        },
        Error::Location {
            url: "ftp://host/data".into(),
            reason: "scheme `ftp` is not supported; use a path, file://, s3://, gs://, az:// or http(s)://".into(),
        },
        Error::Short {
            url: url(),
            wanted: 4096,
            got: 100,
        },
        Error::Refused {
            operation: "read",
            url: "https://host/data.csv".into(),
            reason: "`host` resolves to an address of a private network".into(),
        },
        Error::Io {
            operation: "write",
            url: "file:///data/x".into(),
            source: io::Error::other("too many open files"),
        },
        Error::Remote {
            operation: "list",
            url: url(),
            source: object_store::Error::NotImplemented {
                operation: "OPERATION".into(),
                implementer: "STORE".into(),
            },
        },
        Error::Injected {
            operation: "write",
            url: url(),
            when: "before",
        },
    ];
    let mut texts = Texts::default();
    let variants = variants!(
        Error: NotFound, Full, Denied, Location, Short, Refused, Io, Remote, Injected
    );
    texts.add_variants("Error", &variants, &samples);
    texts.check(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")),
        "storage",
    );
}
