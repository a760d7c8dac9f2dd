//! Interface of the driver for building batches on the device.

use std::{fmt, ops::Range, sync::PoisonError};

use super::{
    ColumnLayout, Driver, HostDriver, HostDriverMemory, RowPlace, TokenPiece, gather_rows,
    gather_tokens,
};
use crate::Error;

/// Bytes of device memory.
pub type Part<'a, M> = (&'a M, Range<usize>);

/// A driver whose device builds batches from blocks in its memory. Calls return at once; the work is done in the order
/// of the stream, and reads what was written earlier in this stream, or what the stream waited for.
///
/// [`HostDriver`] is the twin without a device.
pub trait Gather: Driver {
    /// The device's code, loaded once per pass.
    type Kernels: fmt::Debug + Send + Sync;

    /// Loads the code.
    ///
    /// # Errors
    ///
    /// It cannot be compiled or loaded on this machine, or the device failed.
    fn load_kernels(&self) -> Result<Self::Kernels, Error>;

    /// Queues [`gather_rows`](super::gather_rows()): `places` holds a [`RowPlace`] for each row.
    ///
    /// # Errors
    ///
    /// Something does not fit into its memory, or the device failed.
    fn gather_rows(
        kernels: &Self::Kernels,
        stream: &Self::Stream,
        window: &Self::Memory,
        column: &ColumnLayout,
        places: Part<'_, Self::Memory>,
        out: Part<'_, Self::Memory>,
    ) -> Result<(), Error>;

    /// Queues [`gather_tokens`](super::gather_tokens()): `pieces` holds [`TokenPiece`]s, `out` 32-bit ids.
    ///
    /// # Errors
    ///
    /// Something does not fit into its memory, or the device failed.
    fn gather_tokens(
        kernels: &Self::Kernels,
        stream: &Self::Stream,
        window: &Self::Memory,
        column: &ColumnLayout,
        pieces: Part<'_, Self::Memory>,
        pad: u32,
        out: Part<'_, Self::Memory>,
    ) -> Result<(), Error>;
}

impl Gather for HostDriver {
    type Kernels = ();

    fn load_kernels(&self) -> Result<(), Error> {
        Ok(())
    }

    fn gather_rows(
        (): &(),
        (): &(),
        window: &HostDriverMemory,
        column: &ColumnLayout,
        (places, range): Part<'_, HostDriverMemory>,
        (out, to): Part<'_, HostDriverMemory>,
    ) -> Result<(), Error> {
        let places: Vec<RowPlace> = bytemuck::pod_collect_to_vec(&places.to_vec(range));
        let window = window.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = out.0.lock().unwrap_or_else(PoisonError::into_inner);
        gather_rows(&window, column, &places, &mut out[to]);
        Ok(())
    }

    fn gather_tokens(
        (): &(),
        (): &(),
        window: &HostDriverMemory,
        column: &ColumnLayout,
        (pieces, range): Part<'_, HostDriverMemory>,
        pad: u32,
        (out, to): Part<'_, HostDriverMemory>,
    ) -> Result<(), Error> {
        let pieces: Vec<TokenPiece> = bytemuck::pod_collect_to_vec(&pieces.to_vec(range));
        let window = window.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = out.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ids: Vec<u32> = bytemuck::pod_collect_to_vec(&out[to.clone()]);
        gather_tokens(&window, column, &pieces, pad, &mut ids);
        out[to].copy_from_slice(bytemuck::cast_slice(&ids));
        Ok(())
    }
}
