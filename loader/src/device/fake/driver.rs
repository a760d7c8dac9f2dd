//! A device whose streams move only when the test says so, with errors to order.
//!
//! It watches over the two promises that the uploader makes: memory that a queued copy reads is not given back, and
//! device memory that queued work uses is not freed. It reads and writes the memory only when the copy runs, so that
//! a slab filled too early or a buffer written too early shows in the bytes.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard},
};

use crate::device::{DeviceFault, Driver};

mod gather;

#[derive(Debug, Default)]
pub(crate) struct FakeDriver(Mutex<World>);

#[derive(Debug, Default)]
pub(crate) struct World {
    streams: Vec<Stream>,
    memories: Vec<Option<Vec<u8>>>,
    /// Host memory that may be read, bytes by address.
    lent: BTreeMap<usize, usize>,
    /// Bytes that kernels read, in the order they ran.
    pub(crate) seen: Vec<(u64, Vec<u8>)>,
    /// Broken promises.
    pub(crate) violations: Vec<String>,
    pub(crate) plan: FaultPlan,
    calls: u64,
    steps: u64,
    dead: bool,
}

/// Errors to inject.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FaultPlan {
    /// This call fails, counted from 1.
    pub(crate) call: Option<u64>,
    /// This piece of queued work fails, counted from 1, and all calls after it.
    pub(crate) work: Option<u64>,
    /// All calls after `call` fail too.
    pub(crate) sticky: bool,
}

#[derive(Debug, Default)]
struct Stream {
    queue: VecDeque<DriverWork>,
    done: u64,
}

#[derive(Debug)]
enum DriverWork {
    Copy {
        from: Range<usize>,
        to: usize,
        offset: usize,
    },
    Wait {
        stream: usize,
        done: u64,
    },
    Read {
        memory: usize,
        ranges: Vec<Range<usize>>,
        batch: u64,
    },
    Gather(gather::Gathering),
}

#[derive(Debug)]
pub(crate) struct FakeMemory {
    world: Arc<FakeDriver>,
    index: usize,
}

/// The work that was in a stream when it was recorded.
#[derive(Debug, Default)]
pub(crate) struct FakeEvent(Mutex<(usize, u64)>);

/// Makes a driver's handle of itself, for memory to find its way back.
#[derive(Debug)]
pub(crate) struct Fake(pub(crate) Arc<FakeDriver>);

impl FakeDriver {
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    /// A call to the driver.
    fn call(&self) -> Result<MutexGuard<'_, World>, DeviceFault> {
        let mut world = self.world();
        world.calls += 1;
        if world.dead {
            return Err(fault());
        }
        if world.plan.call == Some(world.calls) {
            world.dead = world.plan.sticky;
            return Err(fault());
        }
        Ok(world)
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.world().calls
    }

    /// Host memory that copies may read from now on.
    pub(crate) fn lend(&self, bytes: &[u8]) {
        self.lend_at(bytes.as_ptr().expose_provenance(), bytes.len());
    }

    /// As `lend`, by address, which was exposed.
    pub(crate) fn lend_at(&self, address: usize, bytes: usize) {
        self.world().lent.insert(address, bytes);
    }

    /// Host memory is going to be filled again, or freed.
    pub(crate) fn take_back(&self, bytes: &[u8]) {
        self.take_back_at(bytes.as_ptr().addr());
    }

    /// As `take_back`, by address.
    pub(crate) fn take_back_at(&self, address: usize) {
        let mut world = self.world();
        let bytes = world.lent.remove(&address).unwrap_or(0);
        let range = address..address + bytes;
        let read = world.streams.iter().flat_map(|s| &s.queue).any(
            |w| matches!(w, DriverWork::Copy { from, .. } if from.start < range.end && range.start < from.end),
        );
        // A dead device runs nothing any more, but the caller cannot know that.
        if read {
            world
                .violations
                .push("a slab was given back under a copy".into());
        }
    }

    /// Queues a kernel that reads parts of `memory`.
    pub(crate) fn kernel(
        &self,
        stream: usize,
        batch: u64,
        memory: &FakeMemory,
        parts: &[Range<usize>],
    ) {
        self.world().streams[stream]
            .queue
            .push_back(DriverWork::Read {
                memory: memory.index,
                ranges: parts.to_vec(),
                batch,
            });
    }

    /// Adds a stream.
    pub(crate) fn stream(&self) -> usize {
        let mut world = self.world();
        world.streams.push(Stream::default());
        world.streams.len() - 1
    }

    /// Does the next piece of work of a stream, when it has one that need not wait.
    pub(crate) fn step(&self, stream: usize) -> bool {
        self.world().step(stream)
    }
}

impl World {
    /// The next piece of queued work fails.
    pub(crate) fn fail_next_work(&mut self) {
        self.plan.work = Some(self.steps + 1);
    }

    /// Returns true if it failed for good.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    fn step(&mut self, stream: usize) -> bool {
        if self.dead {
            return false;
        }
        if let Some(DriverWork::Wait {
            stream: other,
            done,
        }) = self.streams[stream].queue.front()
            && self.streams[*other].done < *done
        {
            return false;
        }
        let Some(work) = self.streams[stream].queue.pop_front() else {
            return false;
        };
        self.steps += 1;
        if self.plan.work == Some(self.steps) {
            self.streams[stream].queue.push_front(work);
            self.dead = true;
            return false;
        }
        self.run(work);
        self.streams[stream].done += 1;
        true
    }

    fn run(&mut self, work: DriverWork) {
        match work {
            DriverWork::Wait { .. } => {}
            DriverWork::Gather(gathering) => gathering.run(&mut self.memories),
            DriverWork::Copy { from, to, offset } => {
                let lent = self.lent.range(..=from.start).next_back();
                if lent.is_none_or(|(start, length)| start + length < from.end) {
                    self.violations
                        .push("a copy read memory that was not lent".into());
                    return;
                }
                let source = std::ptr::with_exposed_provenance::<u8>(from.start);
                // SAFETY: the memory is lent, so it is allocated and not written to.
                let bytes = unsafe { std::slice::from_raw_parts(source, from.len()) };
                let memory = self.memories[to]
                    .as_mut()
                    .expect("a copy wrote to freed memory");
                memory[offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            DriverWork::Read {
                memory,
                ranges,
                batch,
            } => {
                let memory = self.memories[memory]
                    .as_ref()
                    .expect("a kernel read freed memory");
                let bytes = ranges
                    .into_iter()
                    .flat_map(|r| memory[r].to_vec())
                    .collect();
                self.seen.push((batch, bytes));
            }
        }
    }

    /// Runs everything until `done` pieces of a stream's work are done.
    fn run_until(&mut self, stream: usize, done: u64) -> Result<(), DeviceFault> {
        while self.streams[stream].done < done {
            let moved = (0..self.streams.len()).any(|s| self.step(s));
            if self.dead {
                return Err(fault());
            }
            assert!(moved, "the streams wait for each other");
        }
        Ok(())
    }
}

fn fault() -> DeviceFault {
    DeviceFault::new("run the fake's queued work", "CUDA_ERROR_ILLEGAL_ADDRESS")
}

impl Drop for FakeMemory {
    fn drop(&mut self) {
        let mut world = self.world.world();
        let index = self.index;
        let used = world
            .streams
            .iter()
            .flat_map(|s| &s.queue)
            .any(|w| match w {
                DriverWork::Copy { to, .. } => *to == index,
                DriverWork::Read { memory, .. } => *memory == index,
                DriverWork::Gather(gathering) => gathering.uses(index),
                DriverWork::Wait { .. } => false,
            });
        if used {
            world
                .violations
                .push("device memory was freed under its work".into());
        }
        world.memories[index] = None;
    }
}

impl Driver for Fake {
    type Memory = FakeMemory;
    type Event = FakeEvent;
    type Stream = usize;

    fn allocate(&self, bytes: usize) -> Result<FakeMemory, DeviceFault> {
        let mut world = self.0.call()?;
        world.memories.push(Some(vec![0xAA; bytes]));
        Ok(FakeMemory {
            world: Arc::clone(&self.0),
            index: world.memories.len() - 1,
        })
    }

    fn event(&self) -> Result<FakeEvent, DeviceFault> {
        self.0.call().map(|_| FakeEvent::default())
    }

    fn copy_stream(&self) -> Result<usize, DeviceFault> {
        drop(self.0.call()?);
        Ok(self.0.stream())
    }

    unsafe fn copy(
        &self,
        from: &[u8],
        to: &FakeMemory,
        offset: usize,
        stream: &usize,
    ) -> Result<(), DeviceFault> {
        let mut world = self.0.call()?;
        let start = from.as_ptr().addr();
        world.streams[*stream].queue.push_back(DriverWork::Copy {
            from: start..start + from.len(),
            to: to.index,
            offset,
        });
        Ok(())
    }

    fn record(&self, event: &FakeEvent, stream: &usize) -> Result<(), DeviceFault> {
        let world = self.0.call()?;
        let queue = &world.streams[*stream];
        *event.0.lock().unwrap() = (*stream, queue.done + queue.queue.len() as u64);
        Ok(())
    }

    fn wait(&self, stream: &usize, event: &FakeEvent) -> Result<(), DeviceFault> {
        let mut world = self.0.call()?;
        let (other, done) = *event.0.lock().unwrap();
        world.streams[*stream].queue.push_back(DriverWork::Wait {
            stream: other,
            done,
        });
        Ok(())
    }

    fn is_complete(&self, event: &FakeEvent) -> Result<bool, DeviceFault> {
        let world = self.0.call()?;
        let (stream, done) = *event.0.lock().unwrap();
        Ok(world.streams[stream].done >= done)
    }

    fn settle(&self, event: &FakeEvent) -> Result<(), DeviceFault> {
        let mut world = self.0.call()?;
        let (stream, done) = *event.0.lock().unwrap();
        world.run_until(stream, done)
    }

    fn drain(&self, stream: &usize) -> Result<(), DeviceFault> {
        let mut world = self.0.call()?;
        let queue = &world.streams[*stream];
        let all = queue.done + queue.queue.len() as u64;
        world.run_until(*stream, all)
    }
}
