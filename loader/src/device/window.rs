//! Blocks in device memory, for kernels that build batches from them.
//!
//! Whole blocks go to the device once and stay while batches need rows of them, as the loader's shuffle windows do in
//! host memory; each batch is then a list of (slot, row) places, for
//! [`Kernels::gather_rows`](super::cuda::Kernels::gather_rows) and its like. The processor touches no row, and the link
//! carries each block once in the order of reading.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    ops::Range,
    sync::Arc,
};

use super::{
    DeviceFault, Driver, HostBatch, PART_ALIGNMENT,
    copies::{Copies, Landing},
};
use crate::Error;

/// Slots in device memory, each with room for one block, allocated once.
///
/// As in the [`Uploader`](super::Uploader), copies wait on the device for the kernels that read what was there before,
/// and kernels for the copies they read; nobody waits for the device. An error of the device stays.
pub struct DeviceWindow<D: Driver, B> {
    copies: Copies<D, B>,
    compute: D::Stream,
    slots: Vec<Arc<Landing<D>>>,
    /// Where the parts of a block start in its slot.
    columns: Vec<Range<usize>>,
    slot_bytes: usize,
    /// The slot consumed longest ago is used first.
    free: VecDeque<u32>,
    held: HashMap<u64, Held>,
    fault: Option<DeviceFault>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    slot: u32,
    /// Whether kernels wait for its copy already.
    is_awaited: bool,
}

impl<D: Driver, B: HostBatch> DeviceWindow<D, B> {
    /// Allocates `slots` slots for blocks whose parts have at most `columns` bytes each. Kernels that read them are to be
    /// queued to `compute`.
    ///
    /// # Errors
    ///
    /// The device has not enough memory or failed.
    pub fn new(
        driver: &Arc<D>,
        compute: D::Stream,
        slots: u32,
        columns: &[usize],
    ) -> Result<Self, Error> {
        let mut slot_bytes = 0_usize;
        let mut place = |bytes: &usize| {
            let start = slot_bytes;
            slot_bytes = (start + bytes).next_multiple_of(PART_ALIGNMENT);
            start..start + bytes
        };
        let columns = columns.iter().map(&mut place).collect();
        let memory = Arc::new(driver.allocate(slot_bytes * slots as usize)?);
        let landing = |slot: u32| {
            let start = slot as usize * slot_bytes;
            Landing::new(driver, &memory, start..start + slot_bytes).map(Arc::new)
        };
        Ok(Self {
            copies: Copies::new(driver)?,
            compute,
            slots: (0..slots).map(landing).collect::<Result<_, _>>()?,
            columns,
            slot_bytes,
            free: (0..slots).collect(),
            held: HashMap::new(),
            fault: None,
        })
    }

    /// Slots without a block.
    #[must_use]
    pub fn free_slots(&self) -> usize {
        self.free.len()
    }

    /// Bytes from one slot to the next.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Where the parts of a block start in its slot, in bytes.
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().map(|column| column.start)
    }

    /// The memory of all slots, one behind another. None for a window without slots.
    #[must_use]
    pub fn memory(&self) -> Option<&D::Memory> {
        self.slots.first().map(|slot| slot.memory())
    }

    /// Starts the copy of a block to a free slot and lets go of blocks whose copy is done. The block's memory is kept
    /// until its own is.
    ///
    /// # Errors
    ///
    /// No slot is free, the block is there already or does not fit, or the device failed.
    pub fn insert(&mut self, key: u64, block: B) -> Result<(), Error> {
        self.check()?;
        let places = self.places(key, &block)?;
        let refused = || DeviceFault::new("bring a block to the device", "every slot is taken");
        let slot = self.free.pop_front().ok_or_else(refused)?;
        let landing = Arc::clone(&self.slots[slot as usize]);
        let reaped = self.copies.reap();
        let sent = reaped.and_then(|()| self.copies.send(&Arc::new(block), &places, &landing));
        self.note(sent)?;
        let is_awaited = false;
        self.held.insert(key, Held { slot, is_awaited });
        Ok(())
    }

    /// The slot of a block, for kernels that are queued from now on; none when it is not there.
    ///
    /// # Errors
    ///
    /// The device failed.
    pub fn slot(&mut self, key: u64) -> Result<Option<u32>, Error> {
        self.check()?;
        let Some(held) = self.held.get_mut(&key) else {
            return Ok(None);
        };
        let slot = held.slot;
        if !held.is_awaited {
            held.is_awaited = true;
            let waits = self.slots[slot as usize].await_copy(&self.compute);
            self.note(waits)?;
        }
        Ok(Some(slot))
    }

    /// Frees the slot of a block. All kernels that read it are in the stream.
    ///
    /// # Errors
    ///
    /// The device failed.
    pub fn remove(&mut self, key: u64) -> Result<(), Error> {
        self.check()?;
        if let Some(Held { slot, .. }) = self.held.remove(&key) {
            let consumed = self.slots[slot as usize].consume(&self.compute);
            self.note(consumed)?;
            self.free.push_back(slot);
        }
        Ok(())
    }

    /// Lets go of blocks whose copy is done.
    ///
    /// # Errors
    ///
    /// The device failed.
    pub fn pump(&mut self) -> Result<(), Error> {
        self.check()?;
        let reaped = self.copies.reap();
        self.note(reaped)
    }

    fn places(&self, key: u64, block: &B) -> Result<Vec<Range<usize>>, DeviceFault> {
        let refused = |reason| Err(DeviceFault::new("bring a block to the device", reason));
        if self.held.contains_key(&key) {
            return refused(format!("block `{key}` is there already"));
        }
        let lengths: Vec<usize> = block.parts().iter().map(|part| part.len()).collect();
        let fits = |(length, column): (&usize, &Range<usize>)| *length <= column.len();
        if lengths.len() != self.columns.len() || !lengths.iter().zip(&self.columns).all(fits) {
            let room: Vec<usize> = self.columns.iter().map(Range::len).collect();
            return refused(format!(
                "its parts have `{lengths:?}` bytes and the slots room for `{room:?}`"
            ));
        }
        let place = |(length, column): (usize, &Range<usize>)| column.start..column.start + length;
        Ok(lengths.into_iter().zip(&self.columns).map(place).collect())
    }

    fn check(&self) -> Result<(), DeviceFault> {
        self.fault.clone().map_or(Ok(()), Err)
    }

    fn note(&mut self, result: Result<(), DeviceFault>) -> Result<(), Error> {
        result.map_err(|fault| self.fault.get_or_insert(fault).clone().into())
    }
}

impl<D: Driver, B> Drop for DeviceWindow<D, B> {
    /// Kernels may still read blocks that nobody removed.
    fn drop(&mut self) {
        for Held { slot, .. } in self.held.values() {
            // After an error the slot keeps its memory for good.
            self.slots[*slot as usize].consume(&self.compute).ok();
        }
    }
}

impl<D: Driver, B> fmt::Debug for DeviceWindow<D, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceWindow")
            .field("slots", &self.slots.len())
            .field("slot_bytes", &self.slot_bytes)
            .field("free", &self.free.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{
        Choices,
        driver::{Fake, FakeDriver, FaultPlan},
    };

    struct Block {
        parts: [Vec<u8>; 2],
        driver: Arc<FakeDriver>,
    }

    const COLUMNS: [usize; 2] = [300, 40];
    const COMPUTE: usize = 0;
    const COPY: usize = 1;

    fn content(key: u64) -> [Vec<u8>; 2] {
        let byte = |i: u64| (key * 37 + i * 11).to_le_bytes()[0];
        [
            (0..300 - key % 7).map(byte).collect(),
            (0..40).map(byte).collect(),
        ]
    }

    fn block(driver: &Arc<FakeDriver>, key: u64) -> Block {
        let parts = content(key);
        parts.iter().for_each(|part| driver.lend(part));
        let driver = Arc::clone(driver);
        Block { parts, driver }
    }

    impl HostBatch for Block {
        type Info = ();

        fn info(&self) {}

        fn parts(&self) -> Vec<&[u8]> {
            self.parts.iter().map(Vec::as_slice).collect()
        }
    }

    impl Drop for Block {
        fn drop(&mut self) {
            for part in &mut self.parts {
                self.driver.take_back(part);
                part.fill(0xEE);
            }
        }
    }

    fn window(slots: u32) -> (Arc<FakeDriver>, DeviceWindow<Fake, Block>) {
        let driver = Arc::new(FakeDriver::default());
        assert_eq!(driver.stream(), COMPUTE);
        let fake = Arc::new(Fake(Arc::clone(&driver)));
        let window = DeviceWindow::new(&fake, COMPUTE, slots, &COLUMNS).unwrap();
        (driver, window)
    }

    /// Queues a kernel that reads a block.
    fn read(
        driver: &FakeDriver,
        window: &mut DeviceWindow<Fake, Block>,
        key: u64,
    ) -> Result<(), Error> {
        let slot = window.slot(key)?.expect("it is there") as usize;
        let starts: Vec<usize> = window
            .columns()
            .map(|c| c + slot * window.slot_bytes())
            .collect();
        let ranges = starts
            .into_iter()
            .zip(content(key))
            .map(|(start, part)| start..start + part.len());
        driver.kernel(
            COMPUTE,
            key,
            window.memory().unwrap(),
            &ranges.collect::<Vec<_>>(),
        );
        Ok(())
    }

    #[test]
    fn a_block_is_sent_once_and_read_until_it_is_removed() {
        let (driver, mut window) = window(1);
        window.insert(5, block(&driver, 5)).unwrap();
        assert_eq!(window.slot(6).unwrap(), None);
        read(&driver, &mut window, 5).unwrap();
        read(&driver, &mut window, 5).unwrap();
        window.remove(5).unwrap();
        window.insert(6, block(&driver, 6)).unwrap();
        read(&driver, &mut window, 6).unwrap();
        assert!(!driver.step(COMPUTE), "the kernels wait for the copy");
        while driver.step(COPY) | driver.step(COMPUTE) {}
        let seen: Vec<u64> = driver.world().seen.iter().map(|(key, _)| *key).collect();
        assert_eq!(seen, [5, 5, 6]);
        for (key, bytes) in &driver.world().seen {
            assert_eq!(*bytes, content(*key).concat());
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_and_does_no_harm() {
        let (driver, mut window) = window(1);
        let check = |window: &mut DeviceWindow<Fake, Block>, key, block, message: &str| {
            let error = window.insert(key, block).unwrap_err();
            let source = std::error::Error::source(&error).unwrap().to_string();
            assert!(source.contains(message), "{source}");
        };
        let mut large = block(&driver, 0);
        large.parts[1].push(0);
        check(&mut window, 0, large, "room for `[300, 40]`");
        window.insert(1, block(&driver, 1)).unwrap();
        check(&mut window, 1, block(&driver, 1), "there already");
        check(&mut window, 2, block(&driver, 2), "every slot is taken");
        read(&driver, &mut window, 1).unwrap();
    }

    /// Blocks come, are read and go in some order while the streams move.
    fn story(seed: u64, plan: impl Fn(&mut Choices) -> FaultPlan) {
        let mut choose = Choices(seed);
        let slots = 1 + u32::try_from(choose.below(4)).unwrap();
        let (driver, mut window) = window(slots);
        let mut plan = plan(&mut choose);
        plan.call = plan.call.map(|call| call + driver.calls());
        driver.world().plan = plan;
        let (mut next, mut held, mut reads) = (0, Vec::new(), 0);
        let result = (0..300).try_for_each(|_| -> Result<(), Error> {
            match choose.below(6) {
                0 => drop(driver.step(COPY)),
                1 => drop(driver.step(COMPUTE)),
                2 => window.pump()?,
                3 if window.free_slots() > 0 => {
                    window.insert(next, block(&driver, next))?;
                    held.push(next);
                    next += 1;
                }
                4 if !held.is_empty() => {
                    let key = held[usize::try_from(choose.below(held.len() as u64)).unwrap()];
                    read(&driver, &mut window, key)?;
                    reads += 1;
                }
                5 if !held.is_empty() => {
                    let at = usize::try_from(choose.below(held.len() as u64)).unwrap();
                    window.remove(held.swap_remove(at))?;
                }
                _ => {}
            }
            Ok(())
        });
        let has_faults = plan.call.is_some() || plan.work.is_some();
        if let Err(error) = &result {
            assert!(
                has_faults && matches!(error, Error::Device { .. }),
                "{error}"
            );
            assert!(window.pump().is_err(), "it stays");
        }
        drop(window);
        if result.is_ok() && !driver.world().is_dead() {
            assert_eq!(
                driver.world().seen.len(),
                reads,
                "memory was freed under kernels"
            );
        }
        let world = driver.world();
        assert!(
            world.violations.is_empty(),
            "seed {seed}: {:?}",
            world.violations
        );
        for (key, bytes) in &world.seen {
            assert!(*bytes == content(*key).concat(), "seed {seed}: block {key}");
        }
    }

    #[test]
    fn any_order_of_events_shows_kernels_the_right_blocks() {
        (0..500).for_each(|seed| story(seed, |_| FaultPlan::default()));
    }

    #[test]
    fn fault_30_no_error_at_any_point_frees_a_block_under_a_copy() {
        for seed in 0..700 {
            story(seed, |choose| FaultPlan {
                call: (choose.below(2) == 0).then(|| 1 + choose.below(150)),
                work: (choose.below(2) == 0).then(|| 1 + choose.below(100)),
                sticky: choose.below(2) == 0,
            });
        }
    }
}
