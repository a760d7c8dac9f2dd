//! Some of the training rows, taken from all over them.

use std::sync::Arc;

use datafusion::error::DataFusionError;

use super::{Looked, Piece, Pieces, reader::Reader};
use crate::Error;

impl Pieces {
    /// Shows `state` the numbers of some training rows, at most `rows`, as [`Self::pass`] does of all.
    ///
    /// Each piece gives its share, rows that lie side by side: where in the piece is another place for each, as rows may stand in
    /// the order of something. The same pieces give the same rows.
    pub(crate) async fn some<S: Send + 'static>(
        self: &Arc<Self>,
        state: S,
        rows: usize,
        add: fn(&mut S, &[f32], usize),
    ) -> Result<S, Error> {
        let pieces = Arc::clone(self);
        let look = move || pieces.look_at_some(state, rows, add);
        let looked = tokio::task::spawn_blocking(look).await;
        let looked = looked.map_err(|e| Error::Engine(DataFusionError::ExecutionJoin(Box::new(e))));
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
        let (mut reader, mut cells, mut seen) = (Reader::default(), Vec::new(), 0);
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

fn is_kept(piece: &Piece, row: usize) -> bool {
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
    use super::*;

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
