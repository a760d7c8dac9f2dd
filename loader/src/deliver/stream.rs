//! The batches of a pass for async callers.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures::Stream;

use crate::{Batch, EpochBatches, Error};

/// [`EpochBatches`] as a stream: waits without blocking a thread, on any executor. There is no stall timeout; put one
/// around it. Dropping it blocks for as long as dropping [`EpochBatches`] does.
///
/// ```no_run
/// use feedline_loader::{Error, Loader};
/// use futures::TryStreamExt as _;
///
/// # async fn example() -> Result<(), Error> {
/// let loader = Loader::builder("out/dataset").open().await?;
/// let mut batches = loader.stream()?;
/// while let Some(batch) = batches.try_next().await? {
///     println!("{} rows, {} batches to come", batch.rows(), batches.remaining());
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct BatchStream(EpochBatches);

impl BatchStream {
    pub(crate) fn new(batches: EpochBatches) -> Self {
        Self(batches)
    }

    /// Batches still to come.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.0.remaining()
    }
}

impl Stream for BatchStream {
    type Item = Result<Batch, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll(context)
    }
}
