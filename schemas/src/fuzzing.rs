//! Fuzz targets: each reads the bytes of one format, and checks what must hold for any bytes.
//!
//! They are built for tests, which replay `fuzz/corpus/`, and for `cargo fuzz`, which sets
//! `cfg(fuzzing)`.

#![expect(
    clippy::missing_panics_doc,
    reason = "a panic is the finding of a target"
)]

use crate::{
    Versioned,
    checkpoint::CheckpointHeader,
    commit::CommitEntry,
    config, decode, encode,
    export::ExportRecord,
    failures::FailedRuns,
    ids::Hash128,
    lease::LeaseEntry,
    loader_state::LoaderState,
    log_snapshot::LogSnapshot,
    manifest::{Block, Manifest, Shard},
    number, pnm,
    profile::DatasetProfile,
    record::DECIMAL_SCALE,
    run::RunRecord,
    run_warnings::RunWarnings,
    shard_table,
    transform::TransformArtefact,
};

/// A pipeline's configuration. An error names the file and a key or a line, and a configuration
/// without overrides is itself.
pub fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match config::load("pipeline.toml", text, &[]) {
        Ok(loaded) => {
            let again = loaded.again(&[]).expect("it is loaded");
            assert!(again.config == loaded.config);
            let error = loaded.error("pipeline.name", "it is refused");
            assert!(error.to_string().contains("pipeline.toml"));
        }
        Err(error) => {
            let shown = error.to_string();
            assert!(shown.contains("pipeline.toml"), "{shown}");
            assert!(error.line.is_some() || !error.key.is_empty(), "{shown}");
        }
    }
}

/// A document of each versioned format. A document that is read is written as bytes that read the
/// same.
pub fn document(data: &[u8]) {
    check_document::<CheckpointHeader>(data);
    check_document::<CommitEntry>(data);
    check_document::<DatasetProfile>(data);
    check_document::<ExportRecord>(data);
    check_document::<FailedRuns>(data);
    check_document::<LeaseEntry>(data);
    check_document::<LoaderState>(data);
    check_document::<LogSnapshot>(data);
    check_document::<Manifest>(data);
    check_document::<RunRecord>(data);
    check_document::<RunWarnings>(data);
    check_document::<TransformArtefact>(data);
}

fn check_document<T: Versioned>(data: &[u8]) {
    match decode::<T>("document.json", data) {
        Ok(document) => {
            let written = encode(&document);
            let again = decode::<T>("document.json", &written);
            let again = again.expect("a document that was written can be read");
            assert!(encode(&again) == written);
        }
        Err(error) => assert!(error.to_string().contains("document.json")),
    }
}

/// A table of shards: two bytes of the length of its metadata, a byte of its rows, and a record
/// batch. Its checksum fits.
pub fn shard_table(data: &[u8]) {
    let Some(([low, high, rows], bytes)) = data.split_first_chunk() else {
        return;
    };
    let metadata = u32::from(*low) | u32::from(*high) << 8;
    let Some(body) = bytes.len().checked_sub(metadata as usize) else {
        return;
    };
    let part = Block {
        offset: 0,
        metadata_bytes: metadata,
        body_bytes: body as u64,
        rows: (*rows).into(),
        crc32c: crc32c::crc32c(bytes),
        tokens: None,
    };
    let table = Shard {
        path: "tables/train.arrow".to_owned(),
        rows: (*rows).into(),
        bytes: bytes.len() as u64,
        hash: Hash128::new(0),
        blocks: vec![part.clone()],
        head_crc32c: None,
        lengths: None,
    };
    match shard_table::read_part(&table, &part, bytes) {
        Ok(shards) => {
            assert_eq!(shards.len(), usize::from(*rows));
            let (table, file) = shard_table::write(crate::manifest::Split::Train, &shards)
                .expect("shards that were read can be written");
            assert_eq!(shard_table::read(&table, &file).ok(), Some(shards));
        }
        Err(error) => assert!(error.to_string().contains("tables/train.arrow")),
    }
}

/// A number as JSON and CSV have it: its value is that of Rust's parser, and its decimal form reads
/// as itself.
pub fn number(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let parsed = number::number(text);
    match parsed {
        Some(number::Number::Int(value)) => assert_eq!(text.parse(), Ok(value)),
        Some(number::Number::Float(value)) => {
            assert!(value.is_finite());
            let own: f64 = text.parse().expect("a number of JSON is one of Rust");
            assert_eq!(own.to_bits(), value.to_bits());
        }
        None => {}
    }
    assert!(parsed.is_none() || number::is_number(text));
    if number::is_number(text) {
        assert!(serde_json::from_str::<serde_json::Number>(text).is_ok() || parsed.is_none());
        if let Some(whole) = number::decimal(text) {
            let again = number::decimal(&format!("{whole}e-{DECIMAL_SCALE}"));
            assert_eq!(again, Some(whole));
        }
    }
}

/// A PNM file: as many pixels as its header says.
pub fn pnm(data: &[u8]) {
    match pnm::Pnm::parse(data) {
        Ok(image) => {
            assert!(pnm::is_pnm(data));
            let pixels = u64::from(image.width) * u64::from(image.height);
            let values = pixels * u64::from(image.channels);
            assert_eq!(image.pixels.len() as u64, values);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

#[cfg(test)]
mod tests {
    feedline_testkit::fuzz_replay::replays! { config document number pnm shard_table }
}
