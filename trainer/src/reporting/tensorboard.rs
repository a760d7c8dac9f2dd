//! TensorBoard event files, a function of `metrics.jsonl`.
//!
//! A file is a sequence of records: length (u64), masked CRC-32C of the length's bytes, data, masked CRC-32C of the data;
//! all little-endian. The mask is `rotate_right(crc, 15) + 0xa282ead8` (TensorFlow, `tsl/lib/io/record_writer.h`). The
//! data is an `Event` message (`event.proto`): the first record of a file names the version, each other holds the numbers
//! of one line as scalars at its step and time. Numbers of a `step` line are called `train/<field>`, those of an `epoch`
//! line `validation/<metric>`, or `epoch/<field>` when they are not of the validation split.
//!
//! A process writes one file of a run. On a local disk it grows at its end, since a reader keeps
//! the file that it has opened. An object cannot grow: it is written as one, and only once it is an
//! eighth longer, so that all writes together stay below ten times its length. A run that resumes
//! writes all that its checkpoint knows into a new file and removes the others; a reader that has
//! seen later steps drops them then.

use serde_json::{Map, Value};

use crate::{checkpoint::run_folder::RunFolder, error::Error, float_casts::single};

/// Folder of the parts.
const FOLDER: &str = "events";

/// Content of a file's first record.
const VERSION: &str = "brain.Event:2";

/// An object is written again when what is new is at least this fraction of what it has.
const NEW_SHARE: usize = 8;

/// The event file of a process.
#[derive(Debug)]
pub(crate) struct EventFiles {
    /// Path of the file; not known before it is first written.
    path: Option<String>,
    /// Bytes of `file` that are written.
    written: usize,
    /// The whole file.
    file: Vec<u8>,
}

impl EventFiles {
    /// A file that will hold the events of `lines` and of those added.
    pub(crate) fn new(lines: &str) -> Self {
        let mut file = version();
        file.extend(events(lines));
        Self {
            path: None,
            written: 0,
            file,
        }
    }

    /// Adds a line of metrics.
    pub(crate) fn add(&mut self, line: &str) {
        self.file.extend(events(line));
    }

    /// Writes what was added, if the file can grow or enough was added.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn flush(&mut self, folder: &RunFolder) -> Result<(), Error> {
        let new = self.file.len() - self.written;
        if !folder.is_local() && self.path.is_some() && new * NEW_SHARE < self.written {
            return Ok(());
        }
        self.finish(folder)
    }

    /// Writes all that was added.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(crate) fn finish(&mut self, folder: &RunFolder) -> Result<(), Error> {
        let Some(path) = self.path.clone() else {
            return self.begin(folder);
        };
        let new = self.file[self.written..].to_vec();
        if new.is_empty() {
            return Ok(());
        }
        let has_grown = folder.put_tail(&path, self.written, new);
        // A file that was removed or truncated is rewritten.
        if !has_grown.unwrap_or(false) {
            folder.put(&path, self.file.clone())?;
        }
        self.written = self.file.len();
        Ok(())
    }

    /// Writes the file for the first time, then removes those of earlier processes.
    fn begin(&mut self, folder: &RunFolder) -> Result<(), Error> {
        let old = folder.list(FOLDER)?;
        let numbers = old.iter().filter_map(|listed| number_of(&listed.path));
        let path = path(numbers.max().map_or(0, |number| number + 1));
        folder.put(&path, self.file.clone())?;
        for listed in old {
            folder.delete(&listed.path)?;
        }
        self.path = Some(path);
        self.written = self.file.len();
        Ok(())
    }
}

fn path(number: u64) -> String {
    format!("{FOLDER}/events.out.tfevents.{number:010}.feedline")
}

fn number_of(path: &str) -> Option<u64> {
    path.rsplit('.').nth(1)?.parse().ok()
}

/// The record that begins a file.
fn version() -> Vec<u8> {
    let mut event = double(1, 0.0);
    event.extend(bytes(3, VERSION.as_bytes()));
    record(&event)
}

/// The records of lines of metrics, one for each that has a step.
pub(crate) fn events(lines: &str) -> Vec<u8> {
    lines
        .lines()
        .filter_map(event)
        .flat_map(|e| record(&e))
        .collect()
}

/// `Event { double wall_time = 1; int64 step = 2; Summary summary = 5; }`.
fn event(line: &str) -> Option<Vec<u8>> {
    let line: Map<String, Value> = serde_json::from_str(line).ok()?;
    let step = line.get("step")?.as_u64()?;
    let of_epoch = line.get("kind")? == "epoch";
    let mut event = double(
        1,
        line.get("unix_s")
            .and_then(Value::as_f64)
            .unwrap_or_default(),
    );
    event.extend(number(2, step));
    let mut summary = Vec::new();
    for (name, value) in &line {
        let known = matches!(name.as_str(), "step" | "epoch" | "unix_s");
        if let (false, Some(value)) = (known, value.as_f64()) {
            summary.extend(bytes(1, &scalar(&tag(name, of_epoch), value)));
        }
    }
    event.extend(bytes(5, &summary));
    Some(event)
}

fn tag(name: &str, of_epoch: bool) -> String {
    match (of_epoch, name.strip_prefix("validation_")) {
        (true, Some(metric)) => format!("validation/{metric}"),
        (true, None) => format!("epoch/{name}"),
        (false, _) => format!("train/{name}"),
    }
}

/// `Summary.Value { string tag = 1; float simple_value = 2; }`.
fn scalar(tag: &str, value: f64) -> Vec<u8> {
    let mut message = bytes(1, tag.as_bytes());
    message.push(2 << 3 | 5);
    message.extend(single(value).to_le_bytes());
    message
}

/// A field of type double.
fn double(field: u8, value: f64) -> Vec<u8> {
    let mut message = vec![field << 3 | 1];
    message.extend(value.to_le_bytes());
    message
}

/// A field of type int64 that is not negative.
fn number(field: u8, value: u64) -> Vec<u8> {
    let mut message = vec![field << 3];
    message.extend(varint(value));
    message
}

/// A field of type string or of a message.
fn bytes(field: u8, value: &[u8]) -> Vec<u8> {
    let mut message = vec![field << 3 | 2];
    message.extend(varint(value.len() as u64));
    message.extend(value);
    message
}

/// Seven bits a byte, the lowest first; all bytes but the last have the top bit.
fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = value.to_le_bytes()[0] & 0x7f;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = length.to_vec();
    record.extend(masked_crc(&length));
    record.extend(data);
    record.extend(masked_crc(data));
    record
}

fn masked_crc(data: &[u8]) -> [u8; 4] {
    crc32c::crc32c(data)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
        .to_le_bytes()
}

#[cfg(test)]
pub(crate) mod tests {
    use feedline_storage::Store;

    use super::*;
    use crate::{checkpoint::run_folder::runtime, testing::contents};

    /// The records of a part behind its first.
    pub(crate) fn behind_the_version(part: &[u8]) -> &[u8] {
        part.strip_prefix(version().as_slice()).unwrap()
    }

    #[test]
    fn the_bytes_are_those_that_tensorflow_writes() {
        // Written by TensorFlow's `EventsWriter` with wall time 0, up to the time itself.
        let begin = [24, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22];
        assert_eq!(version()[..12], begin);
        let line = r#"{"kind":"step","step":300,"epoch":1,"loss":0.5,"unix_s":2.0}"#;
        let mut expected = vec![9, 0, 0, 0, 0, 0, 0, 0, 64, 16, 172, 2];
        expected.extend([42, 19, 10, 17, 10, 10]);
        expected.extend(b"train/loss");
        expected.extend([21, 0, 0, 0, 63]);
        assert_eq!(event(line), Some(expected));
    }

    #[test]
    fn numbers_are_named_by_what_they_measure_and_nothing_else_is_a_scalar() {
        let text = |line| String::from_utf8_lossy(&event(line).unwrap()).into_owned();
        let line = r#"{"kind":"epoch","epoch":0,"step":4,"train_loss":0.5,"validation_rmse":2.0,"best":true}"#;
        let found = text(line);
        assert!(found.contains("epoch/train_loss"), "{found}");
        assert!(found.contains("validation/rmse"), "{found}");
        assert!(!found.contains("best"), "{found}");
        assert_eq!(event(r#"{"kind":"note"}"#), None);
    }

    fn line(step: u64) -> String {
        format!("{{\"kind\":\"step\",\"step\":{step},\"loss\":0.5}}\n")
    }

    /// Writes a thousand lines, each flushed, then resumes after 400 of them.
    fn check_one_file(store: &Store, most_seen: usize) {
        let runtime = runtime().unwrap();
        let folder = RunFolder::new(runtime.handle().clone(), store.clone());
        let all: String = (0..1000).map(line).collect();
        let mut files = EventFiles::new("");
        let mut lengths = Vec::new();
        for step in 0..1000 {
            files.add(&line(step));
            files.flush(&folder).unwrap();
            let written = contents(store);
            assert_eq!(written.len(), 1);
            lengths.push(written.values().next().unwrap().len());
        }
        lengths.dedup();
        assert!(
            lengths.is_sorted() && lengths.len() <= most_seen,
            "{}",
            lengths.len()
        );
        files.finish(&folder).unwrap();
        let written = contents(store);
        let (first, file) = written.first_key_value().unwrap();
        assert_eq!(behind_the_version(file), events(&all));

        let cut: String = (0..400).map(line).collect();
        EventFiles::new(&cut).finish(&folder).unwrap();
        let resumed = contents(store);
        let (path, file) = resumed.first_key_value().unwrap();
        assert_eq!((resumed.len(), path > first), (1, true));
        assert_eq!(behind_the_version(file), events(&cut));
    }

    #[test]
    fn a_process_writes_one_file_that_grows_and_a_resumed_run_replaces_it() {
        let folder = tempfile::tempdir().unwrap();
        let url = folder.path().display().to_string();
        let local = Store::open(&url, &feedline_storage::StoreOptions::default()).unwrap();
        check_one_file(&local, 1000);
        check_one_file(&Store::memory(), 60);
    }
}
