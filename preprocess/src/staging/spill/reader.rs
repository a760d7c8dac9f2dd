//! Reading of pieces: the numbers of one, or its other columns.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs::File,
    io::{self, BufReader},
    ops::Range,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::Arc,
};

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::filter_record_batch,
    error::ArrowError,
    ipc::reader::FileReader,
};
use datafusion::error::DataFusionError;

use super::{form::Form, piece::SpillPiece};

/// Bytes of a page, of memory and of most file systems.
const PAGE: u64 = 4096;

/// Least size of a hole that is worth the system call.
const LEAST_HOLE: u64 = 64 << 10;

/// Files that are open.
pub(super) struct Reader {
    form: Form,
    /// Columns to read of those that are no numbers; absent for all.
    columns: Option<Vec<usize>>,
    files: HashMap<Arc<Path>, File>,
    /// Of columns of no fixed width.
    varied: HashMap<Arc<Path>, FileReader<BufReader<File>>>,
    /// Numbers and cells of fixed width of the piece at hand.
    room: (Vec<f32>, Vec<u8>),
    /// True if pieces are freed after reading.
    last: bool,
}

impl Reader {
    /// Reads rows in `form`.
    pub(super) fn new(form: &Form) -> Self {
        Self {
            form: form.clone(),
            columns: None,
            files: HashMap::new(),
            varied: HashMap::new(),
            room: Default::default(),
            last: false,
        }
    }

    /// Reads these columns alone of those that are no numbers.
    pub(super) fn of_columns(self, columns: Vec<usize>) -> Self {
        let columns = Some(columns);
        Self { columns, ..self }
    }

    /// Reads what [`Self::give_up`] may take away where it is the `last` time.
    pub(super) fn given_up(self, last: bool) -> Self {
        Self { last, ..self }
    }

    /// The rows of a piece that are no copies, without their numbers.
    pub(super) fn read(&mut self, piece: &SpillPiece) -> Result<RecordBatch, DataFusionError> {
        let mut fixed = std::mem::take(&mut self.room.1);
        fixed.clear();
        self.fixed(piece, &mut fixed)?;
        let varied = self.varied(piece)?;
        let rows = u32::try_from(piece.kept_rows()).expect("a piece has fewer than 2^32 rows");
        let places: Vec<u32> = (0..rows).collect();
        let wanted = self.columns.as_deref();
        let rows = self.form.rows(wanted, &fixed, &places, varied.as_ref());
        self.room.1 = fixed;
        Ok(rows?)
    }

    /// Adds the cells of fixed width of the rows of a piece that are no copies to `rows`.
    pub(super) fn fixed(
        &mut self,
        piece: &SpillPiece,
        rows: &mut Vec<u8>,
    ) -> Result<(), DataFusionError> {
        let (width, start) = (self.form.fixed.row_bytes(), rows.len());
        rows.resize(start + piece.rows * width, 0);
        let numbers = piece.rows * self.form.numbers.len() * size_of::<f32>();
        self.bytes(piece, numbers, &mut rows[start..])?;
        if let Some(kept) = &piece.kept {
            let mut end = start;
            for (from, to) in kept.set_slices() {
                let own = start + from * width..start + to * width;
                let count = own.len();
                rows.copy_within(own, end);
                end += count;
            }
            rows.truncate(end);
        }
        Ok(())
    }

    /// The columns of no fixed width of the rows of a piece that are no copies; `None` where none is wanted.
    pub(super) fn varied(
        &mut self,
        piece: &SpillPiece,
    ) -> Result<Option<RecordBatch>, DataFusionError> {
        let (Some(varied), Some(columns)) = (&piece.varied, self.varied_columns()) else {
            return Ok(None);
        };
        let reader = match self.varied.entry(Arc::clone(&varied.file)) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(new) => {
                let file = BufReader::new(open(&varied.file, self.last)?);
                new.insert(FileReader::try_new(file, Some(columns))?)
            }
        };
        reader.set_index(varied.index)?;
        let cut = || ArrowError::IpcError(format!("`{}` was cut", varied.file.display()));
        let batch = reader.next().ok_or_else(cut)??;
        Ok(Some(match &piece.kept {
            Some(kept) => filter_record_batch(&batch, &BooleanArray::from(kept.clone()))?,
            None => batch,
        }))
    }

    /// Wanted columns of variable width; `None` if there are none.
    fn varied_columns(&self) -> Option<Vec<usize>> {
        let is_wanted = |column: &usize| {
            let columns = self.columns.as_ref();
            columns.is_none_or(|columns| columns.contains(column))
        };
        let all = self.form.varied.iter().enumerate();
        let wanted = all.filter(|(_, column)| is_wanted(column));
        let wanted: Vec<usize> = wanted.map(|(at, _)| at).collect();
        (!wanted.is_empty()).then_some(wanted)
    }

    /// Adds the numbers of the rows of a piece that are no copies to `rows`.
    pub(super) fn numbers(
        &mut self,
        piece: &SpillPiece,
        rows: &mut Vec<f32>,
    ) -> Result<(), DataFusionError> {
        let start = rows.len();
        rows.resize(start + piece.kept_rows() * self.form.numbers.len(), 0.0);
        self.kept_numbers(piece, &mut rows[start..])
    }

    /// Puts the numbers of the rows of a piece that are no copies in place of `cells`, which are as many.
    pub(super) fn kept_numbers(
        &mut self,
        piece: &SpillPiece,
        cells: &mut [f32],
    ) -> Result<(), DataFusionError> {
        let Some(kept) = &piece.kept else {
            return self.numbers_from(piece, 0, cells);
        };
        let width = self.form.numbers.len();
        let mut all = std::mem::take(&mut self.room.0);
        all.resize(piece.rows * width, 0.0);
        self.numbers_from(piece, 0, &mut all)?;
        let mut rest = cells;
        for (start, end) in kept.set_slices() {
            let (own, behind) = rest.split_at_mut((end - start) * width);
            own.copy_from_slice(&all[start * width..end * width]);
            rest = behind;
        }
        self.room.0 = all;
        Ok(())
    }

    /// Puts some of the numbers of a piece, from `first` of them on, in place of `cells`.
    pub(super) fn numbers_from(
        &mut self,
        piece: &SpillPiece,
        first: usize,
        cells: &mut [f32],
    ) -> Result<(), DataFusionError> {
        let first = first * size_of::<f32>();
        self.bytes(piece, first, bytemuck::cast_slice_mut(cells))
    }

    /// Puts bytes of a piece, from `first` of them on, in place of `bytes`.
    fn bytes(
        &mut self,
        piece: &SpillPiece,
        first: usize,
        bytes: &mut [u8],
    ) -> Result<(), DataFusionError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let file = match self.files.entry(Arc::clone(&piece.file)) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(new) => new.insert(open(&piece.file, self.last)?),
        };
        let read = file.read_exact_at(bytes, piece.start + first as u64);
        let named = |e: io::Error| {
            io::Error::new(e.kind(), format!("scratch `{}`: {e}", piece.file.display()))
        };
        Ok(read.map_err(named)?)
    }

    /// Gives the disk and the memory of a piece back to the system after its last read. The next
    /// files need as much, and recently used pages cost a tenth of new ones. Where a file system
    /// cannot, both are given back with the file. Does nothing before the last read.
    pub(super) fn give_up(&self, piece: &SpillPiece) {
        if !self.last {
            return;
        }
        if let Some(file) = self.files.get(&piece.file) {
            let length = (piece.rows * self.form.row_bytes()) as u64;
            hole(file, &(piece.start..piece.start + length));
        }
        let varied = piece.varied.as_ref();
        let reader = varied.and_then(|varied| Some((varied, self.varied.get(&varied.file)?)));
        if let Some((varied, reader)) = reader {
            hole(reader.get_ref().get_ref(), &varied.bytes);
        }
    }
}

/// A file to read, and to take out of it what has been where it is read for the `last` time.
fn open(path: &Path, last: bool) -> io::Result<File> {
    File::options().read(true).write(last).open(path)
}

/// Takes the whole pages among `bytes` out of a file.
#[cfg(target_os = "linux")]
fn hole(file: &File, bytes: &Range<u64>) {
    use rustix::fs::{FallocateFlags, fallocate};

    let (start, end) = (bytes.start.next_multiple_of(PAGE), bytes.end / PAGE * PAGE);
    if start + LEAST_HOLE <= end {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let done = fallocate(file, flags, start, end - start);
        if let Err(error) = done {
            tracing::trace!(%error, "scratch keeps what has been read");
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn hole(_: &File, _: &Range<u64>) {}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
