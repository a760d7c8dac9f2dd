//! Reading pieces: the numbers of one, or whatever else its rows have.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
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
    /// Whether what has been read is given up.
    last: bool,
}

impl Reader {
    /// Reads one column alone, of those that are no numbers.
    pub(super) fn of_column(at: usize) -> Self {
        Self {
            columns: Some(vec![at]),
            ..Self::default()
        }
    }

    /// Reads what [`Self::give_up`] may take away.
    pub(super) fn for_the_last_time() -> Self {
        Self {
            last: true,
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
            Entry::Vacant(new) => new.insert(open(path, self.last)?),
        };
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(bytemuck::cast_slice_mut(cells))?;
        Ok(())
    }

    /// Gives the disk and the memory of a piece, which has been read and nobody reads again, back to the system: what is
    /// written next needs as much, and pages that were in use a moment ago cost a tenth of new ones. Where a file system
    /// cannot, both are given back with the file. Does nothing where this does not read for the last time.
    pub(super) fn give_up(&self, piece: &Piece, width: usize) {
        if !self.last {
            return;
        }
        let (path, start) = &piece.numbers;
        if let Some(file) = self.numbers.get(path) {
            let length = (piece.rows * width * size_of::<f32>()) as u64;
            hole(file, &(*start..start + length));
        }
        if let Some(reader) = self.files.get(&piece.file) {
            hole(reader.get_ref().get_ref(), &piece.bytes);
        }
    }

    /// All rows of a piece, without their numbers.
    pub(super) fn whole(&mut self, piece: &Piece) -> Result<RecordBatch, DataFusionError> {
        let reader = match self.files.entry(Arc::clone(&piece.file)) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(new) => {
                let file = open(&piece.file, self.last)?;
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

/// A file to read, and to take out of it what has been where it is read for the `last` time.
fn open(path: &Path, last: bool) -> io::Result<File> {
    File::options().read(true).write(last).open(path)
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

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::{collections::BTreeSet, fs, os::unix::fs::MetadataExt as _, path::Path, sync::Arc};

    use arrow::{
        array::{
            ArrayRef, AsArray, FixedSizeBinaryArray, Float64Array, RecordBatch, UInt8Array,
            UInt64Array,
        },
        datatypes::{DataType, Field, Schema, UInt64Type},
    };
    use feedline_schemas::{ids::Seed, manifest::Split};

    use super::super::{Form, PieceWriter, Pieces, Sizes, column};
    use crate::{
        columns::system,
        split::{ShuffleKey, code},
    };

    /// Rows of the training split with 64 numbers each.
    const ROWS: u64 = 2000;
    const WIDTH: usize = 64;

    fn staged(folder: &Path) -> Pieces {
        let names: BTreeSet<String> = (0..WIDTH).map(|i| format!("n{i:02}")).collect();
        let mut fields = vec![
            Field::new(system::HASH, DataType::FixedSizeBinary(16), false),
            Field::new(system::ORIGIN, DataType::UInt64, false),
            Field::new(system::SPLIT, DataType::UInt8, false),
        ];
        let numbers = names.iter();
        fields.extend(numbers.map(|name| Field::new(name, DataType::Float64, true)));
        let schema = Arc::new(Schema::new(fields));
        let form = Form::new(&schema, &names, &names.iter().map(String::as_str).collect());
        let sizes = Sizes {
            gathered: 1 << 20,
            bits: 1,
        };
        let order = ShuffleKey::new(Seed::new(3));
        let paths = Split::ALL.map(|split| folder.join(format!("{split}.arrow")));
        let mut writer = PieceWriter::new(form.clone(), order.clone(), sizes, paths);
        let hash = |row: u64| {
            [
                [0; 8],
                row.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(),
            ]
        };
        let hashes = (0..ROWS).map(|row| hash(row).concat());
        let hashes = FixedSizeBinaryArray::try_from_iter(hashes).unwrap();
        let train = UInt8Array::from_value(code(Split::Train), usize::try_from(ROWS).unwrap());
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(hashes),
            Arc::new((0..ROWS).collect::<UInt64Array>()),
            Arc::new(train),
        ];
        for i in 0..u8::try_from(WIDTH).unwrap() {
            let cells = (0..ROWS).map(|row| f64::from(u32::try_from(row).unwrap()) + f64::from(i));
            columns.push(Arc::new(cells.collect::<Float64Array>()));
        }
        let rows = RecordBatch::try_new(schema, columns).unwrap();
        writer.push(&rows).unwrap();
        let mut pieces = Pieces::new(form, order, sizes);
        pieces.add(writer.finish().unwrap());
        pieces
    }

    fn disk(folder: &Path) -> u64 {
        let files = fs::read_dir(folder).unwrap();
        let blocks = files.map(|file| file.unwrap().metadata().unwrap().blocks());
        blocks.sum::<u64>() * 512
    }

    fn read(pieces: &Pieces, bucket: usize, last: bool) -> (Vec<u64>, Vec<f64>) {
        let ordered = pieces.bucket(Split::Train, bucket, last).unwrap();
        let origins = column(&ordered.rows, system::ORIGIN).as_primitive::<UInt64Type>();
        let mut cells = Vec::new();
        ordered.numbers.fill(1, 0..origins.len(), &mut cells);
        (origins.values().to_vec(), cells)
    }

    #[test]
    fn what_is_read_for_the_last_time_takes_no_disk() {
        let folder = tempfile::tempdir().unwrap();
        let pieces = staged(folder.path());
        let before = disk(folder.path());
        assert!(before > ROWS * WIDTH as u64 * 4);
        let first = read(&pieces, 0, false);
        let second = read(&pieces, 1, false);
        assert_eq!(first.0.len() + second.0.len(), 2000);
        assert_eq!(disk(folder.path()), before, "it may be read again");
        assert_eq!(read(&pieces, 0, true), first);
        let half = disk(folder.path());
        assert!(half < before * 2 / 3, "{half} of {before}");
        // What is not given up is as it was.
        assert_eq!(read(&pieces, 1, true), second);
        let rest = disk(folder.path());
        // Pages that two pieces share stay, and the heads and ends of files.
        assert!(rest < before / 10, "{rest} of {before}");
    }
}
