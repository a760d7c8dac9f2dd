//! Quantiles of row-major columns that no step has changed: one pass, and two for the columns that
//! it leaves.

use std::sync::Arc;

use datafusion::logical_expr::Expr;

use super::{Quantiles, Rows, changed};
use crate::{
    Error,
    staging::SpilledRows,
    statistics::{
        aggregates,
        quantile::{
            Answer, HEAD_BYTES, Heads, Narrow, NarrowSearch, Sample, ShortSearch, Tails, Wanted,
            sample_rows,
        },
    },
};

/// Rows above which counting halves of keys is faster than collecting values.
const SHORT_ROWS: u64 = 1 << 14;

/// The rows, threads to look at them, and memory that their states may take together, in bytes.
#[derive(Clone, Copy)]
struct Look<'a> {
    pieces: &'a Arc<SpilledRows>,
    threads: usize,
    state_bytes: usize,
}

impl Rows {
    /// Quantiles of row-major columns that no step has changed; `None` for any other.
    pub(super) async fn short_quantiles(
        &self,
        columns: &[(Expr, Vec<Wanted>)],
    ) -> Result<Vec<Option<Quantiles>>, Error> {
        let mut answers = vec![None; columns.len()];
        let is_worth = (SHORT_ROWS..=u64::from(u32::MAX)).contains(&self.count);
        let Some((pieces, threads)) = self.pieces.as_ref().filter(|_| is_worth) else {
            return Ok(answers);
        };
        let look = Look {
            pieces,
            threads: *threads,
            state_bytes: self.state_bytes / (self.partitions + 1),
        };
        let place = |column: &Expr| {
            let (name, ops) = aggregates::cell_of(column)?;
            pieces.place(&name).filter(|_| ops.is_empty())
        };
        let places = columns.iter().enumerate();
        let short = places.filter_map(|(at, (column, _))| Some((at, place(column)?)));
        let short: Vec<(usize, usize)> = short.collect();
        for some in short.chunks(self.per_query(HEAD_BYTES)) {
            let asked = some
                .iter()
                .map(|(at, place)| (*place, columns[*at].1.clone()));
            let asked: Vec<(usize, Vec<Wanted>)> = asked.collect();
            let mut found = look.once(&asked, self.count).await?;
            let open = (0..asked.len()).filter(|at| found[*at].is_none());
            let open: Vec<usize> = open.collect();
            let left = open.iter().map(|at| asked[*at].clone()).collect();
            for (at, answer) in open.iter().zip(look.twice(left).await?) {
                found[*at] = Some(answer);
            }
            for ((at, _), found) in some.iter().zip(found) {
                let Some((tally, quantiles)) = found else {
                    continue;
                };
                self.check(tally)?;
                answers[*at] = Some(Quantiles { tally, quantiles });
            }
        }
        Ok(answers)
    }
}

impl Look<'_> {
    /// Looks once at all of `rows` rows, where some of them say; nothing of a column for which they say wrong.
    async fn once(
        self,
        asked: &[(usize, Vec<Wanted>)],
        rows: u64,
    ) -> Result<Vec<Option<Answer>>, Error> {
        let sample = Sample::new(asked.iter().map(|(place, _)| *place));
        let some = sample_rows(rows, asked.len(), self.state_bytes);
        let sample = self.pieces.some(sample, some, Sample::add).await?;
        let wanted = asked.iter().map(|(_, wanted)| wanted.clone()).collect();
        let search = NarrowSearch::new(wanted, sample, rows);
        if search.bytes() > self.state_bytes {
            return Ok(vec![None; asked.len()]);
        }
        let pass = search.pass();
        let pass = self
            .pieces
            .pass(pass, self.threads, Narrow::add, Narrow::merge);
        Ok(search.into_quantiles(pass.await?))
    }

    /// Looks twice; nothing where that takes too much memory.
    async fn twice(self, asked: Vec<(usize, Vec<Wanted>)>) -> Result<Vec<Answer>, Error> {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let mut search = ShortSearch::new(asked);
        let heads = search.heads();
        let heads = self
            .pieces
            .pass(heads, self.threads, Heads::add, Heads::merge);
        search.absorb_heads(&heads.await?);
        if search.tail_bytes() > self.state_bytes {
            return Ok(Vec::new());
        }
        let tails = search.tails();
        let tails = self
            .pieces
            .pass(tails, self.threads, Tails::add, Tails::merge);
        let absorbed = search.absorb_tails(&tails.await?);
        absorbed.map_err(|inconsistent| changed(&inconsistent.to_string()))?;
        Ok(search.into_quantiles())
    }
}
