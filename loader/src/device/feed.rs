//! The upload thread: copies blocks to page-locked memory and starts their way to the device, in the order they are
//! asked for.
//!
//! Only this thread waits for a copy, and only when all staging buffers are in use by one. A slot
//! is written only after the caller's side reported that every kernel that reads its content is
//! queued; the copy then waits for those on the device.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crossbeam_channel::{Receiver, Sender};
use feedline_schemas::manifest::TokenType;

use super::{
    Driver,
    copies::CopyStream,
    fault::Health,
    slots::Upload,
    staging::{STAGE, Staged, Staging},
    window::DeviceWindow,
};
use crate::{
    Error,
    assembly::block_types::LoadedBlock,
    guard::catching,
    input::block_rows::{BlockRows, BlockTarget, TokenIds},
};

/// Columns of a block that go to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceColumns {
    /// Features, and targets when there are some.
    Rows,
    /// Token ids of this width.
    Tokens(TokenType),
}

/// Inputs of the upload thread.
pub(super) struct Feeder<D: Driver> {
    pub(super) window: Arc<DeviceWindow<D>>,
    /// Dropped before the staging memory, which it may be reading.
    pub(super) copies: CopyStream<D, Staged>,
    pub(super) staging: Staging,
    pub(super) columns: DeviceColumns,
    pub(super) uploads: Receiver<Upload>,
    /// Slots whose readers are all queued.
    pub(super) freed: Receiver<u32>,
    /// The slot of every upload, once its copy is queued, in the order of `uploads`.
    pub(super) landed: Sender<Result<u32, Error>>,
    pub(super) health: Health,
    /// Bytes sent.
    pub(super) bytes: Arc<AtomicU64>,
}

impl<D: Driver> Feeder<D> {
    /// Sends blocks until there are no more, the other end is gone, or something fails.
    pub(super) fn run(self) {
        let (landed, health) = (self.landed.clone(), self.health.clone());
        let result = catching(move || self.feed()).unwrap_or_else(|reason| {
            Err(Error::Worker {
                stage: STAGE,
                reason,
            })
        });
        if let Err(error) = health.note(result) {
            // A receiver that is gone has no use for it.
            landed.send(Err(error)).ok();
        }
    }

    fn feed(mut self) -> Result<(), Error> {
        let mut taken = vec![false; self.window.slots() as usize];
        while let Ok(Upload { slot, block }) = self.uploads.recv() {
            while taken[slot as usize] {
                match self.freed.recv() {
                    Ok(free) => taken[free as usize] = false,
                    Err(_) => return Ok(()),
                }
            }
            taken[slot as usize] = true;
            let parts = parts(&block, self.columns)?;
            let staged = self.staging.stage(&parts, &mut self.copies)?;
            let bytes: usize = staged.lengths().iter().sum();
            self.window.send(slot, staged, &mut self.copies)?;
            self.bytes.fetch_add(bytes as u64, Relaxed);
            if self.landed.send(Ok(slot)).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl<D: Driver> fmt::Debug for Feeder<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feeder").finish_non_exhaustive()
    }
}

/// The bytes of a block that go to the device.
fn parts(block: &LoadedBlock, columns: DeviceColumns) -> Result<Vec<&[u8]>, Error> {
    match (&block.rows, columns) {
        (BlockRows::Dense(rows), DeviceColumns::Rows) => {
            let mut parts = vec![bytemuck::cast_slice(&rows.x)];
            match &rows.y {
                BlockTarget::Regression(y) => parts.push(bytemuck::cast_slice(y)),
                BlockTarget::Classification(y) => parts.push(bytemuck::cast_slice(y)),
                BlockTarget::None => {}
            }
            Ok(parts)
        }
        (BlockRows::Tokens(rows), DeviceColumns::Tokens(id)) => match (&rows.ids, id) {
            (TokenIds::U16(ids), TokenType::U16) => Ok(vec![bytemuck::cast_slice(ids)]),
            (TokenIds::U32(ids), TokenType::U32) => Ok(vec![bytemuck::cast_slice(ids)]),
            _ => Err(foreign(block)),
        },
        _ => Err(foreign(block)),
    }
}

fn foreign(block: &LoadedBlock) -> Error {
    Error::Worker {
        stage: STAGE,
        reason: format!(
            "block {} of source {} holds another kind of record than its input says",
            block.block, block.source
        ),
    }
}
