//! Writing of pieces: rows are gathered, partitioned by split and bucket, and written, a piece for
//! each that has any.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{Array, AsArray, RecordBatch, UInt32Array},
    compute::{concat_batches, take_record_batch},
    datatypes::UInt8Type,
    ipc::writer::FileWriter,
};

use super::{
    super::matrix,
    Sizes,
    form::Form,
    piece::{SpillPiece, Varied},
};
use crate::{
    Error,
    engine::scratch::create_file,
    operators::split::ShuffleKey,
    schema::system_columns::{self, column},
};

/// Bytes that are written at a time: the system keeps what it is given at once in pages as large as that, and large ones are
/// seldom among those that were in use a moment ago.
const PIECE: usize = 256 << 10;

/// Pieces of one worker, by split.
#[derive(Debug, Default)]
pub(in crate::staging) struct Written(pub(super) [Vec<SpillPiece>; 3]);

/// Writes the pieces of one worker.
pub(in crate::staging) struct SpillWriter {
    form: Form,
    order: ShuffleKey,
    sizes: Sizes,
    paths: [PathBuf; 3],
    files: [Option<Open>; 3],
    /// Of each of the rows that wait, its pile.
    which: Vec<usize>,
    piles: Piles,
    /// Columns that are of no fixed width, of the rows that wait.
    waiting: Vec<RecordBatch>,
    waiting_bytes: usize,
    written: Written,
}

/// Rows that wait, pile by pile, and room to work in.
struct Piles {
    numbers: Vec<Vec<f32>>,
    fixed: Vec<Vec<u8>>,
    room: (Vec<f32>, Vec<u8>),
}

/// Files of one split.
struct Open {
    rows: Out,
    /// Columns that are of no fixed width; absent where there are none.
    varied: Option<(FileWriter<Out>, usize)>,
}

impl Open {
    /// Adds rows of the columns that are of no fixed width, if there are any.
    fn add_varied(&mut self, rows: &RecordBatch) -> Result<Option<Varied>, Error> {
        let Some((file, batches)) = &mut self.varied else {
            return Ok(None);
        };
        let path = Arc::clone(&file.get_ref().path);
        let start = file.get_ref().bytes;
        file.write(rows).map_err(|e| Error::scratch(&path, e))?;
        let index = *batches;
        *batches += 1;
        Ok(Some(Varied {
            bytes: start..file.get_ref().bytes,
            file: path,
            index,
        }))
    }
}

/// A file, and the bytes written to it so far.
struct Out {
    path: Arc<Path>,
    file: BufWriter<File>,
    bytes: u64,
}

impl Out {
    fn create(path: &Path) -> Result<Self, Error> {
        let file = create_file(path)?;
        Ok(Self {
            path: path.into(),
            file: BufWriter::with_capacity(PIECE, file),
            bytes: 0,
        })
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.write_all(bytes).map_err(|e| self.failed(e))
    }

    fn end(&mut self) -> Result<(), Error> {
        self.flush().map_err(|e| self.failed(e))
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::scratch(&self.path, error)
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // What is as long as the buffer goes past it.
        let count = self.file.write(&bytes[..bytes.len().min(PIECE)])?;
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl SpillWriter {
    /// Writes rows in `form`, those of each split to files of its own.
    pub(in crate::staging) fn new(
        form: Form,
        order: ShuffleKey,
        sizes: Sizes,
        paths: [PathBuf; 3],
    ) -> Self {
        let piles = 3 << sizes.bits;
        Self {
            form,
            order,
            sizes,
            paths,
            files: [None, None, None],
            which: Vec::new(),
            piles: Piles {
                numbers: vec![Vec::new(); piles],
                fixed: vec![Vec::new(); piles],
                room: Default::default(),
            },
            waiting: Vec::new(),
            waiting_bytes: 0,
            written: Written::default(),
        }
    }

    /// Takes rows.
    pub(in crate::staging) fn push(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let before = self.which.len();
        self.find_piles(rows);
        let which = &self.which[before..];
        let form = &self.form;
        let numbers = form.numbers_of(rows);
        let Piles {
            numbers: piles,
            fixed,
            room: (cells, bytes),
        } = &mut self.piles;
        matrix::add_rows(&numbers, which, piles, cells);
        let stored = form.stored_of(rows)?;
        form.fixed.add_rows(&stored, which, fixed, bytes);
        self.waiting_bytes += rows.num_rows() * form.row_bytes();
        match form.varied.is_empty() {
            true => self.which.clear(),
            false => {
                let varied = RecordBatch::try_new(Arc::clone(&form.stored), stored)?;
                let varied = varied.project(&form.varied)?;
                for column in varied.columns() {
                    self.waiting_bytes += column.to_data().get_slice_memory_size()?;
                }
                self.waiting.push(varied);
            }
        }
        match self.waiting_bytes >= self.sizes.gathered {
            true => self.deal(),
            false => Ok(()),
        }
    }

    /// Completes the files.
    pub(in crate::staging) fn finish(mut self) -> Result<Written, Error> {
        self.deal()?;
        for mut open in self.files.into_iter().flatten() {
            open.rows.end()?;
            if let Some((mut varied, _)) = open.varied {
                let finished = varied.finish();
                finished.map_err(|e| Error::scratch(&varied.get_ref().path, e))?;
                varied.get_mut().end()?;
            }
        }
        Ok(self.written)
    }

    /// Writes what has been gathered, a piece for each split and bucket.
    fn deal(&mut self) -> Result<(), Error> {
        self.waiting_bytes = 0;
        let varied = match self.waiting.is_empty() {
            true => None,
            false => {
                let rows = concat_batches(&self.form.varied_schema, &self.waiting)?;
                self.waiting.clear();
                Some((rows, self.dealt()))
            }
        };
        let mut first = 0;
        for pile in 0..self.piles.fixed.len() {
            let fixed = std::mem::take(&mut self.piles.fixed[pile]);
            let rows = fixed.len() / self.form.fixed.row_bytes();
            if rows > 0 {
                // A pile at a time: what one was in is used again for the next.
                let varied = varied
                    .as_ref()
                    .map(|(all, places)| take_record_batch(all, &places.slice(first, rows)));
                self.write(pile, &fixed, varied.transpose()?.as_ref())?;
                first += rows;
            }
            // Copies of one row are all in one pile: one that has become large for them is not kept so.
            let most = self.sizes.gathered / 8;
            self.piles.fixed[pile] = emptied(fixed, most);
            let numbers = std::mem::take(&mut self.piles.numbers[pile]);
            self.piles.numbers[pile] = emptied(numbers, most / size_of::<f32>());
        }
        Ok(())
    }

    /// Finds out which split and bucket each of `rows` is of.
    fn find_piles(&mut self, rows: &RecordBatch) {
        let hashes = column(rows, system_columns::HASH).as_fixed_size_binary();
        let splits = column(rows, system_columns::SPLIT).as_primitive::<UInt8Type>();
        let (order, bits) = (&self.order, self.sizes.bits);
        let pile = |row: usize| {
            let key = order.key(hashes.value(row));
            let bucket = key.checked_shr(64 - bits).unwrap_or(0);
            let bucket = usize::try_from(bucket).expect("a few bits fit");
            usize::from(splits.value(row)) << bits | bucket
        };
        self.which.extend((0..rows.num_rows()).map(pile));
    }

    /// The places of the rows that wait, those of one pile beside one another.
    fn dealt(&mut self) -> UInt32Array {
        let mut next = vec![0; self.piles.fixed.len() + 1];
        self.which.iter().for_each(|pile| next[pile + 1] += 1);
        for pile in 1..next.len() {
            next[pile] += next[pile - 1];
        }
        let mut places = vec![0_u32; self.which.len()];
        for (row, pile) in (0..).zip(self.which.drain(..)) {
            places[next[pile]] = row;
            next[pile] += 1;
        }
        places.into()
    }

    /// Writes a pile: its numbers, its cells of `fixed` width, and its other columns.
    fn write(
        &mut self,
        pile: usize,
        fixed: &[u8],
        varied: Option<&RecordBatch>,
    ) -> Result<(), Error> {
        let (split, bucket) = (pile >> self.sizes.bits, pile & ((1 << self.sizes.bits) - 1));
        let open = match &mut self.files[split] {
            Some(open) => open,
            closed => closed.insert(Open::create(&self.paths[split], &self.form)?),
        };
        let start = open.rows.bytes;
        open.rows
            .add(bytemuck::cast_slice(&self.piles.numbers[pile]))?;
        open.rows.add(fixed)?;
        let varied = match varied {
            Some(rows) => open.add_varied(rows)?,
            None => None,
        };
        let rows = fixed.chunks_exact(self.form.fixed.row_bytes());
        let origins: Vec<u64> = rows.map(|row| self.form.origin_of(row)).collect();
        self.written.0[split].push(SpillPiece {
            file: Arc::clone(&open.rows.path),
            start,
            varied,
            bucket,
            rows: origins.len(),
            origins,
            kept: None,
        });
        Ok(())
    }
}

impl Open {
    fn create(path: &Path, form: &Form) -> Result<Self, Error> {
        let varied = match form.varied.is_empty() {
            true => None,
            false => {
                let file = Out::create(path)?;
                let writer = FileWriter::try_new(file, &form.varied_schema);
                Some((writer.map_err(|e| Error::scratch(path, e))?, 0))
            }
        };
        Ok(Self {
            rows: Out::create(&path.with_extension("rows"))?,
            varied,
        })
    }
}

/// The list without what was in it, and with room for `most` at most.
fn emptied<T>(mut list: Vec<T>, most: usize) -> Vec<T> {
    list.clear();
    list.shrink_to(most);
    list
}
