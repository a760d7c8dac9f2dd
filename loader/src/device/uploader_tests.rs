use std::{
    mem,
    sync::{Mutex, MutexGuard},
};

use super::*;
use crate::device::{
    HostDriver,
    fake::{
        Choices,
        driver::{Fake, FakeDriver, FaultPlan},
    },
};

/// A ring of slabs whose batch `n` is full of bytes that follow from `n`.
struct FakeHost {
    ring: Arc<FakeRing>,
    next: u64,
    batches: u64,
    /// True when the next batch is made already.
    ready: Arc<Mutex<bool>>,
    fails_at: Option<u64>,
}

struct FakeRing {
    free: Mutex<Vec<Vec<u8>>>,
    driver: Arc<FakeDriver>,
}

struct FakeBatch {
    slab: Vec<u8>,
    number: u64,
    ring: Arc<FakeRing>,
}

impl FakeRing {
    fn free(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.free.lock().unwrap()
    }
}

impl Iterator for FakeHost {
    type Item = Result<FakeBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.batches {
            return None;
        }
        let number = self.next;
        self.next += 1;
        if self.fails_at == Some(number) {
            self.next = self.batches;
            return Some(Err(Error::BatchesHeld { slabs: 9 }));
        }
        let free = self.ring.free().pop();
        let mut slab = free.expect("the loader would wait for a slab for ever");
        fill(number, &mut slab);
        self.ring.driver.lend(&slab);
        Some(Ok(FakeBatch {
            slab,
            number,
            ring: Arc::clone(&self.ring),
        }))
    }
}

fn fill(number: u64, slab: &mut [u8]) {
    for (i, byte) in slab.iter_mut().enumerate() {
        *byte = (number * 31 + i as u64 * 7 % 251).to_le_bytes()[0];
    }
}

impl HostBatches for FakeHost {
    type Batch = FakeBatch;

    fn is_ready(&mut self) -> bool {
        *self.ready.lock().unwrap() && !self.ring.free().is_empty()
    }
}

impl HostBatch for FakeBatch {
    type Info = u64;

    fn info(&self) -> u64 {
        self.number
    }

    fn parts(&self) -> Vec<&[u8]> {
        let (front, back) = self.slab.split_at(self.slab.len() / 3);
        vec![front, back]
    }

    fn edge(&self, part: &[u8]) -> usize {
        // In the middle, at the end, or beyond it, as a slab's edge may be.
        part.len().div_ceil(2) + usize::try_from(self.number % 3).unwrap() * part.len() / 2
    }
}

impl Drop for FakeBatch {
    fn drop(&mut self) {
        self.ring.driver.take_back(&self.slab);
        let mut slab = mem::take(&mut self.slab);
        // The next batch is written as soon as the slab is free.
        slab.fill(0xEE);
        self.ring.free().push(slab);
    }
}

struct Bench {
    driver: Arc<FakeDriver>,
    ring: Arc<FakeRing>,
    ready: Arc<Mutex<bool>>,
    compute: usize,
    uploader: Uploader<Fake, FakeHost>,
}

const SLAB: usize = 1_000;

fn bench(slabs: usize, buffers: u32, batches: u64) -> Bench {
    let driver = Arc::new(FakeDriver::default());
    let ring = Arc::new(FakeRing {
        free: Mutex::new(vec![vec![0; SLAB]; slabs]),
        driver: Arc::clone(&driver),
    });
    let ready = Arc::new(Mutex::new(true));
    let host = FakeHost {
        ring: Arc::clone(&ring),
        next: 0,
        batches,
        ready: Arc::clone(&ready),
        fails_at: None,
    };
    let compute = driver.stream();
    let uploader = Uploader::new(
        Arc::new(Fake(Arc::clone(&driver))),
        compute,
        host,
        buffers,
        SLAB + PART_ALIGNMENT,
    );
    Bench {
        driver,
        ring,
        ready,
        compute,
        uploader: uploader.unwrap(),
    }
}

/// The stream that the uploader made; the test's own is the first.
const COPY: usize = 1;

type Held = DeviceBatch<Fake, u64>;

impl Bench {
    fn kernel(&self, batch: &Held) {
        self.driver
            .kernel(self.compute, *batch.info(), batch.memory(), batch.parts());
    }

    /// Everything the device has to do.
    fn run_all(&self) {
        while self.driver.step(COPY) | self.driver.step(self.compute) {}
    }

    fn check_bytes(&self) {
        for (batch, bytes) in &self.driver.world().seen {
            let mut expected = vec![0; SLAB];
            fill(*batch, &mut expected);
            assert!(*bytes == expected, "batch {batch} is not what was sent");
        }
    }
}

#[test]
fn a_slab_goes_through_its_states_in_order() {
    let mut b = bench(2, 2, 3);
    let first = b.uploader.next().unwrap().unwrap();
    // Two are being copied, the loader has no slab left.
    assert_eq!((b.uploader.copies.len(), b.ring.free().len()), (2, 0));
    b.kernel(&first);
    assert!(!b.driver.step(b.compute), "kernels wait for the copy");
    while b.driver.step(COPY) {}
    b.uploader.pump().unwrap();
    assert_eq!((b.uploader.copies.len(), b.ring.free().len()), (0, 2));
    assert!(b.uploader.free.is_empty());
    drop(first);
    // Consumed: queued behind the kernel, whether or not it has run.
    b.uploader.pump().unwrap();
    assert_eq!((b.uploader.copies.len(), b.ring.free().len()), (1, 1));
    assert!(!b.driver.step(COPY), "the copy waits for the kernel");
    b.run_all();
    for expected in [1, 2] {
        let batch = b.uploader.next().unwrap().unwrap();
        assert_eq!(*batch.info(), expected);
        b.kernel(&batch);
    }
    assert!(b.uploader.next().is_none());
    b.run_all();
    assert_eq!(b.driver.world().seen.len(), 3);
    b.check_bytes();
    assert!(b.driver.world().violations.is_empty());
    let totals = b.uploader.totals();
    assert_eq!(
        (totals.batches, totals.bytes, totals.starved),
        (3, 3 * SLAB as u64, 0)
    );
}

#[test]
fn holding_every_device_batch_is_said_and_not_waited_for() {
    let mut b = bench(3, 2, 9);
    let _first = b.uploader.next().unwrap().unwrap();
    let second = b.uploader.next().unwrap().unwrap();
    assert!(matches!(
        b.uploader.next(),
        Some(Err(Error::DeviceBatchesHeld))
    ));
    drop(second);
    assert_eq!(*b.uploader.next().unwrap().unwrap().info(), 2);
}

#[test]
fn an_error_of_the_loader_comes_behind_the_batches_before_it() {
    let mut b = bench(5, 4, 9);
    b.uploader.host.as_mut().unwrap().fails_at = Some(2);
    for expected in [0, 1] {
        assert_eq!(*b.uploader.next().unwrap().unwrap().info(), expected);
    }
    assert!(matches!(
        b.uploader.next(),
        Some(Err(Error::BatchesHeld { slabs: 9 }))
    ));
    assert!(b.uploader.next().is_none());
}

#[test]
fn a_batch_that_does_not_fit_is_refused() {
    let driver = Arc::new(FakeDriver::default());
    let ring = Arc::new(FakeRing {
        free: Mutex::new(vec![vec![0; SLAB]]),
        driver: Arc::clone(&driver),
    });
    let host = FakeHost {
        ring,
        next: 0,
        batches: 1,
        ready: Arc::default(),
        fails_at: None,
    };
    let stream = driver.stream();
    let mut uploader = Uploader::new(Arc::new(Fake(driver)), stream, host, 1, SLAB - 1).unwrap();
    let error = uploader.next().unwrap().unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("the device buffers have `999`"), "{source}");
}

#[test]
fn the_twin_without_a_device_gives_the_same_batches() {
    let Bench { uploader, .. } = bench(3, 2, 5);
    // The host half of the bench, with the other driver.
    let mut uploader = uploader;
    let host = uploader.host.take().unwrap();
    let twin = Uploader::new(Arc::new(HostDriver), (), host, 2, SLAB + 256).unwrap();
    let mut count = 0;
    for batch in twin {
        let batch = batch.unwrap();
        let mut expected = vec![0; SLAB];
        fill(*batch.info(), &mut expected);
        let found: Vec<u8> = batch
            .parts()
            .iter()
            .cloned()
            .flat_map(|p| batch.memory().to_vec(p))
            .collect();
        assert_eq!(found, expected);
        count += 1;
    }
    assert_eq!(count, 5);
}

#[test]
fn fault_30_an_error_of_the_copy_stream_is_given_at_the_next_batch_and_stays() {
    let mut b = bench(3, 2, 9);
    let first = b.uploader.next().unwrap().unwrap();
    // The device fails in the middle of the first copy.
    b.driver.world().plan.work = Some(3);
    while b.driver.step(COPY) {}
    for _ in 0..3 {
        assert!(matches!(b.uploader.next(), Some(Err(Error::Device { .. }))));
    }
    drop(first);
    let (driver, ring) = (Arc::clone(&b.driver), Arc::clone(&b.ring));
    drop(b.uploader);
    assert!(driver.world().violations.is_empty(), "a copy may still run");
    assert_eq!(ring.free().len(), 1, "the two slabs it may read are kept");
}

#[test]
fn fault_30_an_error_behind_the_kernels_is_given_too() {
    let mut b = bench(3, 2, 9);
    let first = b.uploader.next().unwrap().unwrap();
    b.run_all();
    let calls = FaultPlan {
        call: Some(b.driver.calls() + 1),
        ..FaultPlan::default()
    };
    b.driver.world().plan = calls;
    drop(first);
    assert!(matches!(b.uploader.next(), Some(Err(Error::Device { .. }))));
    // Only one call failed: the device still responds, so its copies are known to be done.
    let ring = Arc::clone(&b.ring);
    drop(b.uploader);
    assert_eq!(ring.free().len(), 3);
}

/// A device, a loader and a consumer that take turns in the order of a seed.
struct UploadStory {
    seed: u64,
    choose: Choices,
    bench: Bench,
    slabs: u64,
    buffers: u64,
    batches: u64,
    plan: FaultPlan,
    /// Batches that the consumer holds.
    held: VecDeque<Held>,
    /// Batches that it was given.
    given: u64,
}

impl UploadStory {
    fn new(seed: u64, faults: impl Fn(&mut Choices) -> FaultPlan) -> Self {
        let mut choose = Choices(seed);
        let slabs = 2 + choose.below(3);
        let buffers = 1 + choose.below(3);
        let batches = choose.below(20);
        let bench = bench(
            usize::try_from(slabs).unwrap(),
            u32::try_from(buffers).unwrap(),
            batches,
        );
        let mut plan = faults(&mut choose);
        plan.call = plan.call.map(|c| c + bench.driver.calls());
        bench.driver.world().plan = plan;
        Self {
            seed,
            choose,
            bench,
            slabs,
            buffers,
            batches,
            plan,
            held: VecDeque::new(),
            given: 0,
        }
    }

    /// Lets everything that can happen happen in some order, until the batches end. Returns whether they end with an error.
    fn run(&mut self) -> bool {
        loop {
            let b = &mut self.bench;
            match self.choose.below(7) {
                0 | 1 => drop(b.driver.step(COPY)),
                2 => drop(b.driver.step(b.compute)),
                3 => *b.ready.lock().unwrap() = self.choose.below(2) == 0,
                4 => drop(self.held.pop_front()),
                5 if b.uploader.pump().is_err() => return true,
                5 => {}
                _ if (self.held.len() as u64) < self.buffers => match b.uploader.next() {
                    None => return false,
                    Some(Ok(batch)) => self.take_batch(batch),
                    Some(Err(error)) => {
                        assert!(matches!(error, Error::Device { .. }), "{error}");
                        return true;
                    }
                },
                _ => {}
            }
        }
    }

    fn take_batch(&mut self, batch: Held) {
        assert_eq!(*batch.info(), self.given);
        self.given += 1;
        self.bench.kernel(&batch);
        self.held.push_back(batch);
    }

    fn check_end(&mut self, failed: bool) {
        if !failed {
            assert_eq!(self.given, self.batches);
            return;
        }
        assert!(self.plan.call.is_some() || self.plan.work.is_some());
        let next = self.bench.uploader.next();
        assert!(matches!(next, Some(Err(Error::Device { .. }))), "it stays");
    }

    /// Drops the uploader before or after the batches that are held, and checks all that the device saw.
    fn check_dropped(self) {
        let Self {
            seed,
            mut choose,
            mut held,
            ..
        } = self;
        let Bench {
            driver,
            ring,
            uploader,
            ..
        } = self.bench;
        if choose.below(2) == 0 {
            held.clear();
            drop(uploader);
        } else {
            drop(uploader);
            held.clear();
        }
        let world = driver.world();
        let violations = &world.violations;
        assert!(violations.is_empty(), "seed {seed}: {violations:?}");
        for (batch, bytes) in &world.seen {
            let mut expected = vec![0; SLAB];
            fill(*batch, &mut expected);
            assert!(
                *bytes == expected,
                "seed {seed}: batch {batch} is not what was sent"
            );
        }
        if self.plan.call.is_none() && self.plan.work.is_none() {
            assert_eq!(
                world.seen.len() as u64,
                self.batches,
                "every kernel ran before its memory was freed"
            );
            assert_eq!(ring.free().len() as u64, self.slabs, "no slab is lost");
        }
    }
}

fn check_story(seed: u64, faults: impl Fn(&mut Choices) -> FaultPlan) {
    let mut story = UploadStory::new(seed, faults);
    let failed = story.run();
    story.check_end(failed);
    story.check_dropped();
}

#[test]
fn any_order_of_events_gives_every_batch_once_and_whole() {
    for seed in 0..1_000 {
        check_story(seed, |_| FaultPlan::default());
    }
}

#[test]
fn fault_30_no_error_at_any_point_frees_a_slab_under_a_copy() {
    for seed in 0..1_500 {
        check_story(seed, |choose| FaultPlan {
            call: (choose.below(2) == 0).then(|| 1 + choose.below(120)),
            work: (choose.below(2) == 0).then(|| 1 + choose.below(80)),
            sticky: choose.below(2) == 0,
        });
    }
}
