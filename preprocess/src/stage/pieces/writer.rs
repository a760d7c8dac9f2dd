//! Writing pieces: rows are gathered, dealt out by split and bucket, and written, a piece for each that has any.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{Array, AsArray, RecordBatch, UInt32Array},
    buffer::Buffer,
    compute::{concat_batches, take_record_batch},
    datatypes::{UInt8Type, UInt64Type},
    error::ArrowError,
    ipc::writer::FileWriter,
};

use super::{
    super::{column, matrix},
    Form, Piece, Sizes,
    form::stored_as,
};
use crate::{Error, columns::system, split::ShuffleKey};

/// What one worker wrote.
#[derive(Debug, Default)]
pub(in crate::stage) struct Written(pub(super) [Vec<Piece>; 3]);

/// Writes the pieces of one worker.
pub(in crate::stage) struct PieceWriter {
    form: Form,
    order: ShuffleKey,
    sizes: Sizes,
    paths: [PathBuf; 3],
    files: [Option<Open>; 3],
    waiting: Vec<RecordBatch>,
    /// Numbers of the rows that wait.
    numbers: Vec<f32>,
    waiting_bytes: usize,
    written: Written,
}

struct Open {
    path: Arc<Path>,
    file: FileWriter<File>,
    batches: usize,
    /// Where numbers go.
    numbers: (Arc<Path>, File),
    /// Bytes of them so far.
    bytes: u64,
}

impl PieceWriter {
    /// Writes rows in `form`, those of each split to two files of its own.
    pub(in crate::stage) fn new(
        form: Form,
        order: ShuffleKey,
        sizes: Sizes,
        paths: [PathBuf; 3],
    ) -> Self {
        Self {
            form,
            order,
            sizes,
            paths,
            files: [None, None, None],
            waiting: Vec::new(),
            numbers: Vec::new(),
            waiting_bytes: 0,
            written: Written::default(),
        }
    }

    /// Takes rows.
    pub(in crate::stage) fn push(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let before = self.numbers.len();
        let numbers = self.form.numbers_of(rows);
        matrix::add_rows(&numbers, rows.num_rows(), &mut self.numbers);
        self.waiting_bytes += (self.numbers.len() - before) * size_of::<f32>();
        let stored = &self.form.stored;
        let others = stored.fields().iter().map(|field| {
            let found = column(rows, field.name());
            stored_as(found, field.data_type())
        });
        let others = others.collect::<Result<_, _>>()?;
        let others = RecordBatch::try_new(Arc::clone(stored), others)?;
        for column in others.columns() {
            self.waiting_bytes += column.to_data().get_slice_memory_size()?;
        }
        self.waiting.push(others);
        match self.waiting_bytes >= self.sizes.gathered {
            true => self.deal(),
            false => Ok(()),
        }
    }

    /// Completes the files.
    pub(in crate::stage) fn finish(mut self) -> Result<Written, Error> {
        self.deal()?;
        for open in self.files.into_iter().flatten() {
            let Open { path, mut file, .. } = open;
            file.finish().map_err(|e| Error::scratch(&path, e))?;
        }
        Ok(self.written)
    }

    /// Writes what has been gathered, a piece for each split and bucket.
    fn deal(&mut self) -> Result<(), Error> {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let rows = concat_batches(&self.form.stored, &waiting)?;
        drop(waiting);
        let (places, ends) = self.dealt(&rows);
        let rows = take_record_batch(&rows, &places)?;
        let width = self.form.numbers.len();
        let numbers = Buffer::from_vec(matrix::taken(&self.numbers, width, places.values()));
        self.numbers.clear();
        let row_bytes = width * size_of::<f32>();
        let mut start = 0;
        for (pile, end) in ends.into_iter().enumerate() {
            if start < end {
                let (split, bucket) = (pile >> self.sizes.bits, pile & self.last_bucket());
                let numbers = &numbers.as_slice()[start * row_bytes..end * row_bytes];
                self.write(split, bucket, &rows.slice(start, end - start), numbers)?;
            }
            start = end;
        }
        Ok(())
    }

    fn last_bucket(&self) -> usize {
        (1 << self.sizes.bits) - 1
    }

    /// The places of the rows, those of one split and bucket beside one another, and where each such pile ends.
    fn dealt(&self, rows: &RecordBatch) -> (UInt32Array, Vec<usize>) {
        let hashes = column(rows, system::HASH).as_fixed_size_binary();
        let splits = column(rows, system::SPLIT).as_primitive::<UInt8Type>();
        let pile = |row: usize| {
            let key = self.order.key(hashes.value(row));
            let bucket = key.checked_shr(64 - self.sizes.bits).unwrap_or(0);
            let bucket = usize::try_from(bucket).expect("a few bits fit");
            usize::from(splits.value(row)) << self.sizes.bits | bucket
        };
        let piles: Vec<usize> = (0..rows.num_rows()).map(pile).collect();
        let mut ends = vec![0; 3 << self.sizes.bits];
        piles.iter().for_each(|pile| ends[*pile] += 1);
        let mut next = Vec::with_capacity(ends.len());
        let mut sum = 0;
        for end in &mut ends {
            next.push(sum);
            sum += *end;
            *end = sum;
        }
        let mut places = vec![0_u32; piles.len()];
        for (row, pile) in (0..).zip(piles) {
            places[next[pile]] = row;
            next[pile] += 1;
        }
        (places.into(), ends)
    }

    fn write(
        &mut self,
        split: usize,
        bucket: usize,
        rows: &RecordBatch,
        numbers: &[u8],
    ) -> Result<(), Error> {
        let open = match &mut self.files[split] {
            Some(open) => open,
            closed => {
                let path: Arc<Path> = self.paths[split].as_path().into();
                let failed = |e: ArrowError| Error::scratch(&path, e);
                let file = File::create(&path).map_err(|e| Error::scratch(&path, e))?;
                let file = FileWriter::try_new(file, &self.form.stored).map_err(failed)?;
                let beside: Arc<Path> = path.with_extension("numbers").into();
                let numbers = File::create(&beside).map_err(|e| Error::scratch(&beside, e))?;
                closed.insert(Open {
                    path,
                    file,
                    batches: 0,
                    numbers: (beside, numbers),
                    bytes: 0,
                })
            }
        };
        open.file
            .write(rows)
            .map_err(|e| Error::scratch(&open.path, e))?;
        let (beside, file) = &mut open.numbers;
        let written = file.write_all(numbers);
        written.map_err(|e| Error::scratch(beside, e))?;
        let origins = column(rows, system::ORIGIN).as_primitive::<UInt64Type>();
        self.written.0[split].push(Piece {
            file: Arc::clone(&open.path),
            index: open.batches,
            numbers: (Arc::clone(beside), open.bytes),
            bucket,
            rows: rows.num_rows(),
            origins: origins.values().to_vec(),
            kept: None,
        });
        open.batches += 1;
        open.bytes += numbers.len() as u64;
        Ok(())
    }
}
