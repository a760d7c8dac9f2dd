//! Writing pieces: rows are gathered, dealt out by split and bucket, and written, a piece for each that has any.

use std::{
    fs::File,
    io::{Seek, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{Array, AsArray, RecordBatch, UInt32Array},
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
    /// Of each of the rows that wait, its pile.
    piles: Vec<usize>,
    /// Numbers of the rows that wait, pile by pile, and room to work in.
    numbers: (Vec<Vec<f32>>, Vec<f32>),
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
            piles: Vec::new(),
            numbers: (vec![Vec::new(); 3 << sizes.bits], Vec::new()),
            waiting_bytes: 0,
            written: Written::default(),
        }
    }

    /// Takes rows.
    pub(in crate::stage) fn push(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let before = self.piles.len();
        self.find_piles(rows);
        let numbers = self.form.numbers_of(rows);
        let (piles, room) = &mut self.numbers;
        matrix::add_rows(&numbers, &self.piles[before..], piles, room);
        self.waiting_bytes += rows.num_rows() * numbers.len() * size_of::<f32>();
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
        let (places, ends) = self.dealt();
        let mut start = 0;
        for (pile, end) in ends.into_iter().enumerate() {
            if start < end {
                let (split, bucket) = (pile >> self.sizes.bits, pile & self.last_bucket());
                let mut numbers = std::mem::take(&mut self.numbers.0[pile]);
                // A pile at a time: what one was in is used again for the next.
                let rows = take_record_batch(&rows, &places.slice(start, end - start))?;
                self.write(split, bucket, &rows, bytemuck::cast_slice(&numbers))?;
                numbers.clear();
                // Copies of one row are all in one pile: one that has become large for them is not kept so.
                numbers.shrink_to(self.sizes.gathered / size_of::<f32>() / 8);
                self.numbers.0[pile] = numbers;
            }
            start = end;
        }
        Ok(())
    }

    fn last_bucket(&self) -> usize {
        (1 << self.sizes.bits) - 1
    }

    /// Finds out which split and bucket each of `rows` is of.
    fn find_piles(&mut self, rows: &RecordBatch) {
        let hashes = column(rows, system::HASH).as_fixed_size_binary();
        let splits = column(rows, system::SPLIT).as_primitive::<UInt8Type>();
        let (order, bits) = (&self.order, self.sizes.bits);
        let pile = |row: usize| {
            let key = order.key(hashes.value(row));
            let bucket = key.checked_shr(64 - bits).unwrap_or(0);
            let bucket = usize::try_from(bucket).expect("a few bits fit");
            usize::from(splits.value(row)) << bits | bucket
        };
        self.piles.extend((0..rows.num_rows()).map(pile));
    }

    /// The places of the rows that wait, those of one pile beside one another, and where each pile ends.
    fn dealt(&mut self) -> (UInt32Array, Vec<usize>) {
        let piles = std::mem::take(&mut self.piles);
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
        let failed = |e: std::io::Error| Error::scratch(&open.path, e);
        let start = open.file.get_mut().stream_position().map_err(failed)?;
        open.file
            .write(rows)
            .map_err(|e| Error::scratch(&open.path, e))?;
        let end = open.file.get_mut().stream_position().map_err(failed)?;
        let (beside, file) = &mut open.numbers;
        let written = file.write_all(numbers);
        written.map_err(|e| Error::scratch(beside, e))?;
        let origins = column(rows, system::ORIGIN).as_primitive::<UInt64Type>();
        self.written.0[split].push(Piece {
            file: Arc::clone(&open.path),
            index: open.batches,
            bytes: start..end,
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
