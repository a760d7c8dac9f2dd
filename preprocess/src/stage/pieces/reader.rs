//! Reading pieces: the numbers of one, or whatever else its rows have.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs::File,
    io::{BufReader, Read, Seek, SeekFrom},
    ops::Range,
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

use super::Piece;

/// Bytes of a page, of memory and of most file systems.
const PAGE: u64 = 4096;

/// Files that are open.
#[derive(Default)]
pub(super) struct Reader {
    files: HashMap<Arc<Path>, FileReader<BufReader<File>>>,
    /// Columns to read; absent for all.
    columns: Option<Vec<usize>>,
    /// Files of numbers.
    numbers: HashMap<Arc<Path>, File>,
    /// Numbers of the piece at hand.
    buffer: Vec<f32>,
    /// Files that lose what has been read.
    holed: HashMap<Arc<Path>, File>,
}

impl Reader {
    /// Reads one column alone, of those that are no numbers.
    pub(super) fn of_column(at: usize) -> Self {
        Self {
            columns: Some(vec![at]),
            ..Self::default()
        }
    }

    /// The rows of a piece that are no copies, without their numbers.
    pub(super) fn read(&mut self, piece: &Piece) -> Result<RecordBatch, DataFusionError> {
        let batch = self.whole(piece)?;
        Ok(match &piece.kept {
            Some(kept) => filter_record_batch(&batch, &BooleanArray::from(kept.clone()))?,
            None => batch,
        })
    }

    /// Adds the numbers of the rows of a piece that are no copies to `rows`; each row has `width` of them.
    pub(super) fn numbers(
        &mut self,
        piece: &Piece,
        width: usize,
        rows: &mut Vec<f32>,
    ) -> Result<(), DataFusionError> {
        if width == 0 {
            return Ok(());
        }
        let start = rows.len();
        rows.resize(start + piece.kept_rows() * width, 0.0);
        self.kept_numbers(piece, width, &mut rows[start..])
    }

    /// Puts the numbers of the rows of a piece that are no copies in place of `cells`, which are as many.
    pub(super) fn kept_numbers(
        &mut self,
        piece: &Piece,
        width: usize,
        cells: &mut [f32],
    ) -> Result<(), DataFusionError> {
        let Some(kept) = &piece.kept else {
            return self.all_numbers(piece, cells);
        };
        let mut all = std::mem::take(&mut self.buffer);
        all.resize(piece.rows * width, 0.0);
        self.all_numbers(piece, &mut all)?;
        let mut rest = cells;
        for (start, end) in kept.set_slices() {
            let (own, behind) = rest.split_at_mut((end - start) * width);
            own.copy_from_slice(&all[start * width..end * width]);
            rest = behind;
        }
        self.buffer = all;
        Ok(())
    }

    /// Puts the numbers of all rows of a piece in place of `cells`, which are as many.
    pub(super) fn all_numbers(
        &mut self,
        piece: &Piece,
        cells: &mut [f32],
    ) -> Result<(), DataFusionError> {
        self.numbers_from(piece, 0, cells)
    }

    /// Puts some of the numbers of a piece, from `first` of them on, in place of `cells`.
    pub(super) fn numbers_from(
        &mut self,
        piece: &Piece,
        first: usize,
        cells: &mut [f32],
    ) -> Result<(), DataFusionError> {
        if cells.is_empty() {
            return Ok(());
        }
        let (path, start) = &piece.numbers;
        let start = start + (first * size_of::<f32>()) as u64;
        let file = match self.numbers.entry(Arc::clone(path)) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(new) => new.insert(File::open(path)?),
        };
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(bytemuck::cast_slice_mut(cells))?;
        Ok(())
    }

    /// Gives the disk and the memory of a piece, which nobody reads again, back to the system: what is written next needs as
    /// much, and pages that were in use a moment ago cost a tenth of new ones. Where a file system cannot, both are given
    /// back with the file.
    pub(super) fn give_up(&mut self, piece: &Piece, width: usize) -> Result<(), DataFusionError> {
        let (numbers, start) = &piece.numbers;
        let length = (piece.rows * width * size_of::<f32>()) as u64;
        let both = [
            (numbers, *start..start + length),
            (&piece.file, piece.bytes.clone()),
        ];
        for (path, bytes) in both {
            let file = match self.holed.entry(Arc::clone(path)) {
                Entry::Occupied(open) => open.into_mut(),
                Entry::Vacant(new) => new.insert(File::options().write(true).open(path)?),
            };
            hole(file, &bytes);
        }
        Ok(())
    }

    /// All rows of a piece, without their numbers.
    pub(super) fn whole(&mut self, piece: &Piece) -> Result<RecordBatch, DataFusionError> {
        let reader = match self.files.entry(Arc::clone(&piece.file)) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(new) => {
                let file = File::open(&piece.file)?;
                new.insert(FileReader::try_new(
                    BufReader::new(file),
                    self.columns.clone(),
                )?)
            }
        };
        reader.set_index(piece.index)?;
        let cut = || ArrowError::IpcError(format!("`{}` was cut", piece.file.display()));
        Ok(reader.next().ok_or_else(cut)??)
    }
}

/// Takes the whole pages among `bytes` out of a file.
#[cfg(target_os = "linux")]
fn hole(file: &File, bytes: &Range<u64>) {
    use rustix::fs::{FallocateFlags, fallocate};

    let (start, end) = (bytes.start.next_multiple_of(PAGE), bytes.end / PAGE * PAGE);
    if start < end {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let done = fallocate(file, flags, start, end - start);
        if let Err(error) = done {
            tracing::trace!(%error, "scratch keeps what has been read");
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn hole(_: &File, _: &Range<u64>) {}
