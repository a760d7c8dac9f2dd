//! The side of a run that reads: pages from a position on, until they make a batch.

use std::sync::Arc;

use feedline_schemas::{commit::Position, config::SourceConfig};

use crate::{
    backfill::CursorLines,
    batch::Batch,
    context::Context,
    error::Error,
    file_list::OF_ONE_RUN,
    raw::{Exchange, Kept, Tape},
    source::Source,
    warnings::WarningChange,
};

/// Pages that make a batch.
pub(super) struct GatheredPages {
    pub(super) batch: Batch,
    /// Responses of the batch, if they are archived.
    pub(super) answers: Vec<Exchange>,
    /// Warnings that its pages raise and clear.
    pub(super) warnings: Vec<WarningChange>,
    /// Text with the newest cursors of the values of a list, as its last page left them.
    pub(super) cursors: Option<CursorLines>,
}

/// A batch that has been read, with its start and end positions.
pub(super) struct Gathered {
    pub(super) pages: GatheredPages,
    pub(super) from: Position,
    pub(super) next: Position,
    /// Error that ends the run with this batch.
    pub(super) ended: Option<Error>,
}

/// The side of a run that reads.
pub(super) struct BatchReader<'a> {
    pub(super) config: &'a SourceConfig,
    pub(super) context: &'a Context,
    /// Archive of responses to replay. The batches are then those of the archive.
    pub(super) tape: Option<Arc<Tape>>,
    /// Records that have been read before.
    pub(super) read: u64,
}

impl BatchReader<'_> {
    /// Reads pages from `from` on until they make a batch. The end of a batch depends only on the
    /// pages, except for a requested delay, a stop, and a failure of a source with a list of values.
    /// Then the pages read before it are a batch, returned with the reason. A value that fails alone
    /// is passed over.
    pub(super) async fn gather(
        self,
        source: &mut dyn Source,
        from: Position,
    ) -> Result<Gathered, Error> {
        let mut batch = Batch::default();
        let mut next = from.clone();
        let ended = loop {
            if self.context.is_cancelled() {
                break Some(Error::Cancelled);
            }
            let page = match self.next_page(source, &next, batch.len()).await {
                // A server that admits fewer pages at a time than a batch needs must not stall the
                // run forever.
                Err(reason @ (Error::Deferred { .. } | Error::Cancelled)) => break Some(reason),
                // A value that fails in every run must not hold back the others.
                Err(reason) if self.config.for_each.is_some() => {
                    match source.pass_over_value(&next, reason) {
                        Ok(page) => page,
                        Err(reason) => break Some(reason),
                    }
                }
                page => page?,
            };
            let at = batch.push(page)?;
            let is_again = begins_again(&next, &at);
            next = at;
            self.report(batch.len(), &next);
            let is_done = matches!(next, Position::Done { .. });
            let is_full = match &self.tape {
                Some(tape) => tape.left() == 0,
                None => {
                    batch.is_full(&self.config.batch) || source.raw().is_some_and(|r| r.is_full())
                }
            };
            if is_full || is_done || is_again {
                break None;
            }
        };
        let mut warnings = source.warnings();
        warnings.retain(|warning| !OF_ONE_RUN.contains(&warning.code.as_str()));
        batch.warn(warnings);
        Ok(Gathered {
            pages: GatheredPages {
                batch,
                answers: source.raw().map(Kept::take).unwrap_or_default(),
                warnings: source.take_warnings(),
                cursors: source.value_cursors(),
            },
            from,
            next,
            ended,
        })
    }
}

/// Returns true if a page run was abandoned and another one begins, which may return landed records
/// again.
pub(super) fn begins_again(from: &Position, to: &Position) -> bool {
    let number = |position: &Position| match position {
        Position::Page { run, .. } => Some(run.number),
        _ => None,
    };
    number(from).is_some_and(|before| number(to).is_some_and(|after| after != before))
}
