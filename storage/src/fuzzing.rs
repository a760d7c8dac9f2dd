//! Fuzz targets: each reads the bytes of one format, and checks what must hold for any bytes.
//!
//! They are built for tests, which replay `fuzz/corpus/`, and for `cargo fuzz`, which sets
//! `cfg(fuzzing)`.

#![expect(
    clippy::missing_panics_doc,
    reason = "a panic is the finding of a target"
)]

use bytes::Bytes;
use feedline_schemas::{
    commit::CommitEntry,
    ids::{Hash128, Name},
    log_snapshot::{LogPart, LogSums},
};

use crate::{
    log::{LogError, check_entry, decode_part, encode_part},
    tar::{Entry, Headers},
};

/// Entries of a commit log, one a line. An entry that is accepted is itself in a part of a
/// snapshot.
pub fn commit_log(data: &[u8]) {
    let source = Name::new("trades").expect("a name");
    let entries: Vec<CommitEntry> = data
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<CommitEntry>(line).ok())
        .collect();
    for line in data.split(|byte| *byte == b'\n') {
        match check_entry("memory://log", &source, 0, None, "log/0.json", line) {
            Ok(entry) => {
                assert_eq!((entry.sequence.get(), &entry.source), (0, &source));
                assert_eq!(entry.prev_hash, None);
            }
            Err(LogError::Damaged(reason)) => assert!(reason.contains("log/0.json"), "{reason}"),
            Err(LogError::Contract(error)) => {
                assert!(error.to_string().contains("memory://log"), "{error}");
            }
            Err(LogError::Storage(error)) => unreachable!("nothing is stored: {error}"),
        }
    }
    if entries.is_empty() {
        return;
    }
    let bytes = encode_part(&entries).expect("it is in memory");
    let part = LogPart {
        path: "log/part".to_owned(),
        first: entries[0].sequence,
        last: entries[entries.len() - 1].sequence,
        rows: 0,
        bytes: bytes.len() as u64,
        hash: Hash128::of(&bytes),
        sums: LogSums::default(),
        slices: None,
    };
    match decode_part(&part, &bytes) {
        Ok(again) => assert!(again == entries),
        // Numbers of entries that do not follow one another.
        Err(reason) => assert!(reason.contains("its entries"), "{reason}"),
    }
    assert!(decode_part(&part, &Bytes::copy_from_slice(data)).is_err());
}

/// The headers of a tar archive, as a reader of members walks over them. No member reaches beyond
/// a size that can be added to an offset.
pub fn tar_headers(data: &[u8]) {
    let mut headers = Headers::default();
    let mut rest = data;
    while let Some((header, behind)) = rest.split_first_chunk::<512>() {
        let bytes = match headers.header(header) {
            Err(reason) => {
                assert!(!reason.is_empty());
                return;
            }
            Ok(Entry::File { bytes, .. }) => {
                assert!(!headers.is_pending());
                bytes
            }
            Ok(Entry::Extension { bytes }) => {
                let data = usize::try_from(bytes)
                    .ok()
                    .and_then(|end| behind.get(..end));
                let Some(data) = data else { return };
                if headers.extend(data).is_err() {
                    return;
                }
                bytes
            }
            Ok(Entry::Link { .. } | Entry::Other | Entry::Zeros) => 0,
        };
        let padded = usize::try_from(crate::tar::padded(bytes)).unwrap_or(usize::MAX);
        let Some(next) = behind.get(padded..) else {
            return;
        };
        rest = next;
    }
}

#[cfg(test)]
mod tests {
    feedline_testkit::fuzz_replay::replays! { commit_log tar_headers }
}
