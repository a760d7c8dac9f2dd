//! Sample of the training rows, taken from all pieces.

use std::sync::Arc;

use super::{Looked, SpilledRows, piece::SpillPiece, reader::Reader};
use crate::Error;

impl SpilledRows {
    /// Shows `state` the numbers of some training rows, at most `rows`, as [`Self::pass`] does of all.
    ///
    /// Each piece gives its share, consecutive rows: the start within the piece differs by piece,
    /// as rows may have an order. The same pieces give the same rows.
    pub(crate) async fn some<S: Send + 'static>(
        self: &Arc<Self>,
        state: S,
        rows: usize,
        add: fn(&mut S, &[f32], usize),
    ) -> Result<S, Error> {
        let pieces = Arc::clone(self);
        let look = move || pieces.look_at_some(state, rows, add);
        let looked = tokio::task::spawn_blocking(look).await;
        let looked = looked.map_err(Error::from);
        Ok(looked??)
    }

    fn look_at_some<S>(
        &self,
        mut state: S,
        most: usize,
        add: fn(&mut S, &[f32], usize),
    ) -> Looked<S> {
        let width = self.form.numbers.len();
        let all: usize = self.train().map(|piece| piece.rows).sum();
        let share = |rows: usize| rows * most.min(all) / all.max(1);
        let (mut reader, mut cells, mut seen) = (Reader::new(&self.form), Vec::new(), 0);
        for (at, piece) in self.train().enumerate() {
            let count = share(seen + piece.rows) - share(seen);
            seen += piece.rows;
            let first = turn(at, piece.rows - count);
            cells.resize(count * width, 0.0);
            reader.numbers_from(piece, first * width, &mut cells)?;
            match &piece.kept {
                None => add(&mut state, &cells, width),
                Some(_) => {
                    let rows = cells.chunks_exact(width.max(1)).zip(first..);
                    let kept = rows.filter(|(_, row)| is_kept(piece, *row));
                    kept.for_each(|(cells, _)| add(&mut state, cells, width));
                }
            }
        }
        Ok(state)
    }
}

fn is_kept(piece: &SpillPiece, row: usize) -> bool {
    piece.kept.as_ref().is_none_or(|kept| kept.value(row))
}

/// A number up to `most` for each of some that follow one another, far from that of the one before.
fn turn(at: usize, most: usize) -> usize {
    /// The golden ratio's part of two to the power of 16.
    const STEP: usize = 40_503;
    let share = ((at % (1 << 16)) * STEP) % (1 << 16);
    (share * most) >> 16
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use arrow::{
        buffer::BooleanBuffer,
        datatypes::{DataType, Field, Schema},
    };
    use feedline_schemas::{ids::Seed, manifest::Split};

    use super::{super::Sizes, *};
    use crate::staging::spill::form::Form;
    use crate::{
        operators::split::{ShuffleKey, code},
        schema::system_columns,
    };

    /// Cells of rows of two numbers: the number of the row, and half of it.
    fn cells(rows: &[u8]) -> Vec<f32> {
        let cells = rows
            .iter()
            .flat_map(|row| [f32::from(*row), f32::from(*row) / 2.0]);
        cells.collect()
    }

    /// Storage format of rows with these columns of short numbers.
    fn form_of(names: [&str; 2]) -> Form {
        let fields = names.map(|name| Field::new(name, DataType::Float64, true));
        let system = [
            Field::new(system_columns::HASH, DataType::FixedSizeBinary(16), false),
            Field::new(system_columns::ORIGIN, DataType::UInt64, false),
        ];
        Form::new(
            &Arc::new(Schema::new([fields, system].concat())),
            &names.map(str::to_owned).into(),
            &names.into(),
        )
    }

    #[test]
    fn copies_are_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file: Arc<Path> = folder.path().join("train.numbers").into();
        let all: Vec<u8> = (0..12).collect();
        fs::write(&file, bytemuck::cast_slice::<f32, u8>(&cells(&all))).unwrap();
        let form = form_of(["a", "b"]);
        let sizes = Sizes {
            gathered: 0,
            bits: 0,
        };
        let piece = |start: u64, rows: usize, kept: Option<BooleanBuffer>| SpillPiece {
            file: Arc::clone(&file),
            start: start * 8,
            varied: None,
            bucket: 0,
            rows,
            origins: Vec::new(),
            kept,
        };
        let kept = [true, true, false, true, false, false, true, true];
        let kept = BooleanBuffer::from(&kept[..]);
        let mut pieces = SpilledRows::new(form, ShuffleKey::new(Seed::new(7)), sizes);
        let train = usize::from(code(Split::Train));
        pieces.splits[train] = vec![piece(0, 4, None), piece(4, 8, Some(kept))];
        // Of six rows those of the second piece are 6 to 9; one of them is a duplicate.
        for (most, expected) in [
            (100, &[0, 1, 2, 3, 4, 5, 7, 10, 11][..]),
            (6, &[0, 1, 7][..]),
            (0, &[][..]),
        ] {
            let shown = pieces.look_at_some(Vec::new(), most, |shown, cells, width| {
                assert_eq!(width, 2);
                shown.extend_from_slice(cells);
            });
            assert_eq!(shown.unwrap(), cells(expected), "{most}");
        }
    }

    #[test]
    fn turns_reach_all_parts_alike() {
        let mut tenths = [0; 10];
        (0..1000).for_each(|at| tenths[turn(at, 999) / 100] += 1);
        assert!(
            tenths.iter().all(|count| (90..110).contains(count)),
            "{tenths:?}"
        );
        assert_eq!(turn(5, 0), 0);
    }
}
