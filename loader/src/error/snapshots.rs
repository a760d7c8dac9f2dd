//! Texts of this crate's errors.

use std::{io, path::Path, sync::Arc};

use feedline_schemas::{ContractError, ids::Hash128, manifest::Split};
use feedline_testkit::error_texts::{Texts, variants};

use super::{Difference, Error};
use crate::{
    FetchError,
    device::{DeviceFault, LockRefused},
};

const SHARD: &str = "s3://bucket/dataset/shards/train/00003-0123456789abcdef.arrow";

#[test]
fn the_texts_of_all_errors_are_those_of_the_snapshot() {
    let mut texts = Texts::default();
    let variants = variants!(
        Error: Config, NoDataset, Storage, Contract, Manifest, Fingerprint, EmptySplit, StateMismatch,
        ShardMissing, ShardTruncated, ShardSchema, Corrupt, Read, BatchesHeld, Thread, Worker, NoDevice,
        Device, Location, TooManyBad, Stalled, Forked, File, BadValue
    );
    let mut samples = of_dataset();
    samples.extend(of_shards());
    samples.extend(of_process());
    texts.add_variants("Error", &variants, &samples);
    let variants = variants!(
        FetchError: Missing, Truncated, Corrupt, Changed, Denied, Unavailable, Read
    );
    texts.add_variants("FetchError", &variants, &of_fetch());
    texts.add(
        "DeviceFault",
        &DeviceFault::new("name the GPU", "out of memory"),
    );
    texts.add(
        "LockRefused",
        &LockRefused::new("the limit on locked memory is 64 KiB"),
    );
    texts.check(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")),
        "loader",
    );
}

fn url() -> String {
    "s3://bucket/dataset".to_owned()
}

fn absent() -> feedline_storage::Error {
    feedline_storage::Error::NotFound { url: SHARD.into() }
}

fn of_dataset() -> Vec<Error> {
    let hash = Hash128::new;
    vec![
        Error::Config {
            key: "batch_size",
            reason: "0 is out of range; give 1 or more".into(),
        },
        Error::NoDataset {
            url: url(),
            reason: "`CURRENT` is missing; build the dataset first".into(),
        },
        Error::Storage {
            url: url(),
            source: Box::new(absent()),
        },
        Error::Contract {
            url: url(),
            source: ContractError::Newer {
                what: "manifest-000001.json".into(),
                path: "mood".into(),
                reason: "unknown field `mood`".into(),
            },
        },
        Error::Manifest {
            url: url(),
            reason: "split `train` has 10 rows and its shards 9".into(),
        },
        Error::Fingerprint {
            url: format!("{}/manifest-000001.json", url()),
            found: hash(1),
            computed: hash(2),
        },
        Error::EmptySplit {
            url: url(),
            split: Split::Test,
        },
        Error::StateMismatch {
            differences: vec![Difference {
                field: "seed",
                state: "1".into(),
                loader: "2".into(),
            }],
        },
        Error::Location {
            source: Box::new(feedline_storage::Error::Location {
                url: "ftp://host/data".into(),
                reason: "scheme `ftp` is not supported; use a path, file://, s3://, gs://, az:// or http(s)://".into(),
            }),
        },
        Error::File {
            url: "file:///data/rows.parquet".into(),
            reason: "column `x` is missing; name another".into(),
        },
    ]
}

fn of_shards() -> Vec<Error> {
    let truncated = |found| Error::ShardTruncated {
        shard: SHARD.into(),
        expected: 4096,
        found,
    };
    vec![
        Error::ShardMissing {
            shard: SHARD.into(),
            fingerprint: Hash128::new(1),
        },
        truncated(100),
        truncated(5000),
        Error::ShardSchema {
            shard: SHARD.into(),
            reason: "`x` is missing".into(),
        },
        Error::Corrupt {
            shard: SHARD.into(),
            block: 9,
            reason: "its checksum is `00000001` and the manifest says `00000002`".into(),
        },
        Error::Read {
            shard: SHARD.into(),
            block: 9,
            source: Box::new(FetchError::Missing { url: SHARD.into() }),
        },
        Error::TooManyBad {
            bad: 20,
            samples: 1000,
            most_share: 0.01,
            shard: "shards/train/00003.arrow".into(),
            block: 9,
            row: 4,
            reason: "the image has 0 bytes".into(),
        },
        Error::BadValue {
            shard: SHARD.into(),
            block: 9,
            row: 4,
            reason: "NaN in feature `size`".into(),
        },
    ]
}

fn of_process() -> Vec<Error> {
    vec![
        Error::BatchesHeld { slabs: 2 },
        Error::Thread {
            stage: "decode",
            source: io::Error::other("the limit on threads is reached"),
        },
        Error::Worker {
            stage: "decode",
            reason: "index out of bounds".into(),
        },
        Error::NoDevice {
            reason: "the driver is not installed".into(),
        },
        Error::Device {
            source: DeviceFault::new("name the GPU", "the device was lost"),
        },
        Error::Stalled {
            rank: 0,
            batch: 12,
            seconds: 600,
            stage: "fetch",
            detail: "it waits for 3 requests".into(),
        },
        Error::Forked {
            started_in: 17,
            used_in: 18,
        },
    ]
}

fn of_fetch() -> [FetchError; 7] {
    let url = || SHARD.to_owned();
    let source = || Arc::new(absent());
    [
        FetchError::Missing { url: url() },
        FetchError::Truncated {
            url: url(),
            range: 0..9,
            size: 7,
        },
        FetchError::Corrupt {
            url: url(),
            range: 0..9,
            expected: 1,
            found: 2,
        },
        FetchError::Changed {
            url: url(),
            reason: "its ETag is another".into(),
        },
        FetchError::Denied {
            url: url(),
            source: source(),
        },
        FetchError::Unavailable {
            url: url(),
            range: 0..9,
            attempts: 4,
            seconds: 300,
            failures: "3 throttled, 1 reset".into(),
            source: source(),
        },
        FetchError::Read {
            url: url(),
            source: source(),
        },
    ]
}
