//! Blocks in device memory, for kernels that build batches from them.
//!
//! Whole blocks go to the device once and stay while batches need rows of them, as the loader's shuffle windows do in
//! host memory; each batch is then a list of (slot, row) places for a kernel. The processor touches no row, and the link
//! carries each block once in the order of reading.

use std::{fmt, ops::Range, sync::Arc};

use super::{
    DeviceFault, Driver, PART_ALIGNMENT,
    copies::{CopyStream, LandingMemory},
    staging::Staged,
};

/// Slots in device memory, each with room for one block, allocated once.
///
/// As in the [`Uploader`](super::Uploader), copies wait on the device for the kernels that read the
/// previous content, and kernels for the copies they read; no thread waits for the device.
pub(super) struct DeviceWindow<D: Driver> {
    slots: Vec<Arc<LandingMemory<D>>>,
    columns: Vec<Range<usize>>,
    slot_bytes: usize,
}

/// Byte ranges of the parts of a block in a slot, and the length of a slot.
pub(super) fn slot_layout(columns: impl Iterator<Item = usize>) -> (Vec<Range<usize>>, usize) {
    let mut end = 0_usize;
    let place = |bytes: usize| {
        let start = end;
        end = (start + bytes).next_multiple_of(PART_ALIGNMENT);
        start..start + bytes
    };
    let columns = columns.map(place).collect();
    (columns, end)
}

impl<D: Driver> DeviceWindow<D> {
    /// Allocates `slots` slots for blocks whose parts have at most `columns` bytes each.
    ///
    /// # Errors
    ///
    /// The device has not enough memory or failed.
    pub(super) fn new(
        driver: &Arc<D>,
        slots: u32,
        columns: impl Iterator<Item = usize>,
    ) -> Result<Self, DeviceFault> {
        let (columns, slot_bytes) = slot_layout(columns);
        let memory = Arc::new(driver.allocate(slot_bytes * slots as usize)?);
        let landing = |slot: u32| {
            let start = slot as usize * slot_bytes;
            LandingMemory::new(driver, &memory, start..start + slot_bytes).map(Arc::new)
        };
        Ok(Self {
            slots: (0..slots).map(landing).collect::<Result<_, _>>()?,
            columns,
            slot_bytes,
        })
    }

    /// Number of slots.
    pub(super) fn slots(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Bytes from one slot to the next.
    pub(super) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Byte ranges of the parts of a block in its slot.
    pub(super) fn columns(&self) -> &[Range<usize>] {
        &self.columns
    }

    /// The memory of all slots, one behind another. None for a window without slots.
    pub(super) fn memory(&self) -> Option<&D::Memory> {
        self.slots.first().map(|slot| slot.memory())
    }

    /// Starts the copy of a block to a slot, behind the kernels that read its previous content.
    ///
    /// # Errors
    ///
    /// The block does not fit, or the device failed.
    pub(super) fn send(
        &self,
        slot: u32,
        block: Staged,
        copies: &mut CopyStream<D, Staged>,
    ) -> Result<(), DeviceFault> {
        let places = self.places(block.lengths())?;
        copies.send(&Arc::new(block), &places, &self.slots[slot as usize])
    }

    /// Lets kernels queued to `compute` from now on find in a slot what was sent to it last.
    pub(super) fn await_copy(&self, slot: u32, compute: &D::Stream) -> Result<(), DeviceFault> {
        self.slots[slot as usize].await_copy(compute)
    }

    /// Says that all kernels that read what is in a slot are in `compute`; what is sent there next waits for them.
    pub(super) fn consume(&self, slot: u32, compute: &D::Stream) -> Result<(), DeviceFault> {
        self.slots[slot as usize].consume(compute)
    }

    fn places(&self, lengths: &[usize]) -> Result<Vec<Range<usize>>, DeviceFault> {
        let fits = |(length, column): (&usize, &Range<usize>)| *length <= column.len();
        if lengths.len() != self.columns.len() || !lengths.iter().zip(&self.columns).all(fits) {
            let room: Vec<usize> = self.columns.iter().map(Range::len).collect();
            let reason =
                format!("its parts have `{lengths:?}` bytes and the slots room for `{room:?}`");
            return Err(DeviceFault::new("bring a block to the device", reason));
        }
        let place = |(length, column): (&usize, &Range<usize>)| column.start..column.start + length;
        Ok(lengths.iter().zip(&self.columns).map(place).collect())
    }
}

impl<D: Driver> fmt::Debug for DeviceWindow<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceWindow")
            .field("slots", &self.slots.len())
            .field("slot_bytes", &self.slot_bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_slots_begin_where_kernels_read_the_widest_units() {
        let (columns, slot_bytes) = slot_layout([300, 40, 0, 7].into_iter());
        assert_eq!(columns, [0..300, 512..552, 768..768, 768..775]);
        assert_eq!(slot_bytes, 1024);
    }
}
