//! The rows of an Arrow IPC file or stream as records.
//!
//! Both have the same messages in order: a schema, dictionaries, record batches and a mark of the end. A file has `ARROW1`
//! before and a footer behind them, so one pass reads it too. The sizes that a message states are checked before memory is
//! allocated for them. A file without its end is refused, since its last batches may be missing.
//!
//! Format: Arrow columnar format 1.5, "IPC Streaming Format" and "IPC File Format".

use std::{
    collections::VecDeque,
    io::{self, Read},
};

use arrow::{
    array::RecordBatch,
    buffer::Buffer,
    compute::cast,
    datatypes::SchemaRef,
    ipc::{self, reader::StreamDecoder},
};
use feedline_schemas::{guard::catching, record::ColumnType};

use crate::{
    declared_type::declared_type,
    parquet_limits::with_views,
    record::Record,
    record_batches::{Portions, check_names, names_of, nested_of},
    rows::{NextRow, RecordPlace, Rows},
    value_view::ValueView,
};

/// First and last bytes of a file.
const MAGIC: &[u8; 6] = b"ARROW1";
/// Fewest bytes before the first message of a file: the magic, padded.
const MAGIC_BYTES: usize = 8;
/// Most bytes before the end of the first prefix of a file; writers pad the magic to 64 bytes at most.
const PADDED_MAGIC: u64 = 72;
/// Bytes before the head of a message: a mark and the length of the head.
const PREFIX: usize = 8;
/// First bytes of a message.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// Maximum bytes of the head of a message.
const HEAD: usize = 64 << 20;
/// Maximum bytes of the body of a message, stored and decompressed.
const BODY: u64 = 1 << 30;
/// Most rows of a batch: columns of nulls take no bytes.
const BATCH: i64 = 16 << 20;
/// Rows converted at a time.
const ROWS: usize = 1024;

/// Reads rows; a row is an object of its columns.
pub(crate) struct ArrowRows<R> {
    reader: R,
    /// Bytes read.
    bytes: u64,
    is_file: bool,
    is_ended: bool,
    decoder: StreamDecoder,
    /// Schema with views, once it was read.
    schema: Option<SchemaRef>,
    /// Decoded batches, the first without the rows that were converted.
    batches: VecDeque<RecordBatch>,
    portions: Portions,
}

impl<R: Read + Send + 'static> ArrowRows<R> {
    /// Opens a file or stream. Its rows may have `max_ratio` times its size.
    ///
    /// # Errors
    /// The reason why it is unreadable.
    pub(crate) fn boxed(mut reader: R, max_ratio: u64) -> Result<Box<dyn Rows>, String> {
        let mut first = Vec::new();
        let read = (&mut reader)
            .take(MAGIC_BYTES as u64)
            .read_to_end(&mut first);
        read.map_err(|e| e.to_string())?;
        if first.starts_with(b"FEA1") {
            return Err("it is Feather of version 1; write it again in version 2".into());
        }
        let is_file = first.starts_with(MAGIC);
        if !is_file && !first.starts_with(&CONTINUATION) {
            return Err(
                "it is no Arrow IPC file and no Arrow IPC stream by its first bytes".into(),
            );
        }
        let rest = if is_file { Vec::new() } else { first };
        Ok(Box::new(ArrowRows {
            reader: io::Cursor::new(rest).chain(reader),
            bytes: if is_file { MAGIC_BYTES as u64 } else { 0 },
            is_file,
            is_ended: false,
            decoder: StreamDecoder::new(),
            schema: None,
            batches: VecDeque::new(),
            portions: Portions::new(0, max_ratio),
        }))
    }
}

impl<R: Read> ArrowRows<R> {
    /// Makes the next records ready, if there are more.
    fn fill(&mut self) -> Result<(), String> {
        while self.portions.is_empty() {
            if self.portions.has_rows() {
                self.portions.convert()?;
            } else if let Some(batch) = self.batches.pop_front() {
                let rows = batch.num_rows().min(ROWS);
                self.portions.set_rows(self.viewed(&batch.slice(0, rows))?);
                let rest = batch.num_rows() - rows;
                if rest > 0 {
                    self.batches.push_front(batch.slice(rows, rest));
                }
            } else if self.is_ended {
                return Ok(());
            } else {
                self.read_message()?;
            }
        }
        Ok(())
    }

    /// The rows with every text and all bytes as views.
    fn viewed(&self, batch: &RecordBatch) -> Result<RecordBatch, String> {
        let schema = self
            .schema
            .clone()
            .ok_or_else(|| damaged("it has rows before its schema"))?;
        let fields = schema.fields().iter().zip(batch.columns());
        let columns = fields.map(|(field, column)| cast(column, field.data_type()));
        let columns = columns
            .collect::<Result<_, _>>()
            .map_err(|e| e.to_string())?;
        RecordBatch::try_new(schema, columns).map_err(|e| e.to_string())
    }

    /// Reads one message, or the end.
    fn read_message(&mut self) -> Result<(), String> {
        let mut bytes = Vec::new();
        self.read_exactly(PREFIX, &mut bytes)?;
        // The magic of a file is padded with zeros.
        while self.is_file && bytes == [0; PREFIX] && self.bytes < PADDED_MAGIC {
            bytes.clear();
            self.read_exactly(PREFIX, &mut bytes)?;
        }
        let length: [u8; 4] = bytes[4..].try_into().expect("four of eight bytes");
        let length = u32::from_le_bytes(length) as usize;
        if bytes[..4] != CONTINUATION || length > HEAD {
            return Err(damaged("a message does not begin as one"));
        }
        if length == 0 {
            self.decode(bytes)?;
            self.is_ended = true;
            return self.check_end();
        }
        self.read_exactly(length, &mut bytes)?;
        let message =
            ipc::root_as_message(&bytes[PREFIX..]).map_err(|e| damaged(&e.to_string()))?;
        let body = u64::try_from(message.bodyLength()).unwrap_or(u64::MAX);
        if body > BODY {
            return Err(too_large(body));
        }
        self.read_exactly(
            usize::try_from(body).map_err(|e| e.to_string())?,
            &mut bytes,
        )?;
        let (head, body) = bytes[PREFIX..].split_at(length);
        let message = ipc::root_as_message(head).map_err(|e| damaged(&e.to_string()))?;
        let dictionary = message.header_as_dictionary_batch();
        let rows = message.header_as_record_batch();
        if let Some(rows) = rows.or_else(|| dictionary.and_then(|batch| batch.data())) {
            check_sizes(&rows, body)?;
        }
        self.portions.set_file_bytes(self.bytes);
        self.decode(bytes)
    }

    /// Decodes complete messages.
    fn decode(&mut self, messages: Vec<u8>) -> Result<(), String> {
        let mut buffer = Buffer::from_vec(messages);
        while !buffer.is_empty() {
            let decoded = self.decoder.decode(&mut buffer);
            if let Some(batch) = decoded.map_err(|e| damaged(&e.to_string()))? {
                self.batches.push_back(batch);
            }
            if self.schema.is_none()
                && let Some(schema) = self.decoder.schema()
            {
                check_names(&schema)?;
                self.schema = Some(with_views(&schema));
            }
        }
        Ok(())
    }

    /// Adds the next `count` bytes to `bytes`.
    fn read_exactly(&mut self, count: usize, bytes: &mut Vec<u8>) -> Result<(), String> {
        let mut reader = (&mut self.reader).take(count as u64);
        let read = reader.read_to_end(bytes).map_err(|e| e.to_string())?;
        self.bytes += read as u64;
        if read < count {
            return Err(
                "it ends without the mark of its end, so its last rows may be missing; download it again, or close the writer"
                    .into(),
            );
        }
        Ok(())
    }

    /// Checks the end of a file: a footer and the magic.
    fn check_end(&mut self) -> Result<(), String> {
        let mut rest = Vec::new();
        let read = (&mut self.reader).take(BODY).read_to_end(&mut rest);
        read.map_err(|e| e.to_string())?;
        match (self.is_file, rest.ends_with(MAGIC), rest.is_empty()) {
            (true, true, _) | (false, _, true) => Ok(()),
            (true, false, _) => Err(damaged("its footer is incomplete")),
            (false, _, false) => Err(damaged("it has more bytes behind the mark of its end")),
        }
    }
}

impl<R: Read + Send> Rows for ArrowRows<R> {
    fn next(&mut self) -> Result<Option<Record>, String> {
        if self.portions.is_empty() {
            guarded(|| self.fill())?;
        }
        Ok(self.portions.pop())
    }

    fn next_row(&mut self) -> Result<Option<NextRow>, String> {
        if self.portions.is_empty() {
            guarded(|| self.fill())?;
        }
        Ok(self.portions.pop_cells())
    }

    fn cell(&self, index: usize) -> ValueView<'_> {
        self.portions.cell(index)
    }

    fn value_below(&self, index: usize, below: &[String]) -> Option<ValueView<'_>> {
        self.portions.find(index, below)
    }

    fn numbered_place(&self) -> Option<RecordPlace> {
        Some(self.portions.place())
    }

    fn columns(&mut self) -> Result<Option<Vec<String>>, String> {
        while self.schema.is_none() && !self.is_ended {
            guarded(|| self.read_message())?;
        }
        let schema = self
            .schema
            .as_ref()
            .ok_or_else(|| damaged("it has no schema"))?;
        Ok(Some(names_of(schema)))
    }

    fn is_nested(&self, place: usize) -> bool {
        let schema = self.schema.as_ref();
        let nested = schema.map(|schema| nested_of(schema)).unwrap_or_default();
        nested.get(place).copied().unwrap_or_default()
    }

    fn declared_type(&self, place: usize, below: &[String]) -> Option<ColumnType> {
        declared_type(self.schema.as_ref()?, place, below)
    }
}

/// Runs `work` with the library; if it panics, the file is not read on.
fn guarded(work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let panicked = "the reader of Arrow failed on it";
    catching(work).unwrap_or_else(|panic| Err(damaged(&format!("{panicked}, {panic}"))))
}

/// Checks the sizes that a batch states, against its body and the limits.
fn check_sizes(batch: &ipc::RecordBatch<'_>, body: &[u8]) -> Result<(), String> {
    if !(0..=BATCH).contains(&batch.length()) {
        return Err(format!(
            "a record batch of {} rows is more than this program reads, {BATCH}; write the file with smaller batches",
            batch.length()
        ));
    }
    if batch.compression().is_none() {
        return Ok(());
    }
    let mut unpacked = 0_u64;
    for buffer in batch.buffers().into_iter().flatten() {
        let at = usize::try_from(buffer.offset()).unwrap_or(usize::MAX);
        let Some(stated) = body.get(at..).and_then(|rest| rest.first_chunk()) else {
            continue;
        };
        // -1 for a buffer that is not compressed.
        let stated = u64::try_from(i64::from_le_bytes(*stated)).unwrap_or(0);
        unpacked = unpacked.saturating_add(if buffer.length() == 0 { 0 } else { stated });
    }
    if unpacked > BODY {
        return Err(too_large(unpacked));
    }
    Ok(())
}

fn too_large(bytes: u64) -> String {
    format!(
        "a record batch of {bytes} bytes is more than this program reads, {BODY}; write the file with smaller batches"
    )
}

fn damaged(reason: &str) -> String {
    format!("it is damaged: {reason}; download it again")
}

#[cfg(test)]
mod tests;
