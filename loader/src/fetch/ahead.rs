//! Extents of several blocks, read together before the blocks ask for them.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::join_all;

use super::{Extent, Extents, FetchError};

/// [`Extents`] with some read in advance. Each of these is given out once: a second request for it
/// means that it was found bad, and reads it again, alone.
#[derive(Debug)]
pub(crate) struct Ahead<'a> {
    inner: &'a dyn Extents,
    there: Mutex<HashMap<Extent, Result<Bytes, FetchError>>>,
}

impl<'a> Ahead<'a> {
    /// Reads `wanted`, those that touch together.
    pub(crate) async fn read(inner: &'a dyn Extents, wanted: &[Extent]) -> Self {
        let runs = wanted.chunk_by(touch);
        let read = join_all(runs.map(|run| inner.get_run(run))).await;
        let there = wanted.iter().cloned().zip(read.into_iter().flatten());
        Self {
            inner,
            there: Mutex::new(there.collect()),
        }
    }
}

/// Returns true if `next` begins in the same file where `last` ends.
fn touch(last: &Extent, next: &Extent) -> bool {
    last.path == next.path && last.range.end == next.range.start
}

#[async_trait]
impl Extents for Ahead<'_> {
    async fn get(&self, extent: &Extent) -> Result<Bytes, FetchError> {
        let there = {
            let mut there = self.there.lock().unwrap_or_else(PoisonError::into_inner);
            there.remove(extent)
        };
        match there {
            Some(read) => read,
            None => self.inner.get(extent).await,
        }
    }

    fn keeps(&self) -> bool {
        self.inner.keeps()
    }
}
