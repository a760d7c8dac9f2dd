//! The feed with a mock of the queue of copies, under random schedules of delays and failures.
//!
//! The mock runs a copy some time after it was ordered, from the memory that was lent to it, as late as the tensor
//! library may: in the second flush that follows. A slab of the loader is written again as soon as it is given back. Each
//! schedule is a function of its seed.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use burn::tensor::Bytes;
use feedline_schemas::{ids::Seed, loader_state::LoaderState};

use super::{CopyQueue, FedBatch, copy_ahead};
use crate::{
    data::samples::{Data as _, ModelInputs, RankBatch, Samples, Targets},
    error::Error,
    model::input::ColumnBytes,
    random::Stream,
    testing,
};

const SCHEDULES: u64 = 10_000;

/// Draws of a schedule.
#[derive(Debug)]
struct FeedDraws {
    stream: Stream,
    drawn: u64,
}

impl FeedDraws {
    fn new(seed: u64, part: u64) -> Self {
        Self {
            stream: Stream::search(Seed::new(seed), part),
            drawn: 0,
        }
    }

    fn below(&mut self, most: u64) -> u64 {
        self.drawn += 1;
        self.stream.bits(self.drawn) % most
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// Failure of a schedule, of the batch with a number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FeedFailure {
    /// The device panics while copies are ordered.
    Order(u64),
    /// A copy fails when it runs.
    Copy(u64),
    /// The loader has no such batch.
    Load(u64),
}

impl FeedFailure {
    fn batch(self) -> u64 {
        let (Self::Order(batch) | Self::Copy(batch) | Self::Load(batch)) = self;
        batch
    }
}

/// Events of a pass.
#[derive(Clone, Copy, Debug)]
struct FeedSchedule {
    seed: u64,
    batches: u64,
    ahead: usize,
    slabs: usize,
    /// Batches that the steps hold at a time.
    held: usize,
    /// Batches that are asked for.
    wanted: u64,
    failure: Option<FeedFailure>,
}

impl FeedSchedule {
    fn new(seed: u64) -> Self {
        let mut draws = FeedDraws::new(seed, 0);
        let batches = 1 + draws.below(12);
        let ahead = 1 + usize::try_from(draws.below(4)).unwrap();
        let mut held = 1 + usize::try_from(draws.below(2)).unwrap();
        let mut slabs = ahead + held + 2;
        // Waiting for a slab takes a millisecond.
        if draws.one_in(100) {
            held = 1;
            slabs = 2 + usize::try_from(draws.below(2)).unwrap();
        }
        let wanted = if draws.one_in(4) {
            draws.below(batches + 1)
        } else {
            batches + 1
        };
        let batch = draws.below(batches);
        let failure = match draws.below(6) {
            0 => Some(FeedFailure::Order(batch)),
            1 => Some(FeedFailure::Copy(batch)),
            2 => Some(FeedFailure::Load(batch)),
            _ => None,
        };
        Self {
            seed,
            batches,
            ahead,
            slabs,
            held,
            wanted,
            failure,
        }
    }

    /// Batches that arrive, and the reason that the next one does not.
    fn expected(&self) -> (u64, Option<String>) {
        match self.failure {
            Some(failure) if failure.batch() < self.wanted => {
                (failure.batch(), Some(reason(failure.batch())))
            }
            _ => (self.batches.min(self.wanted), None),
        }
    }
}

fn reason(batch: u64) -> String {
    format!("batch {batch} is lost")
}

/// Memory of the loader that is free.
#[derive(Debug, Default)]
struct FreeSlabs(Mutex<Vec<MockSlab>>);

impl FreeSlabs {
    fn lock(&self) -> MutexGuard<'_, Vec<MockSlab>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of a slab, and its content: that number and the number of its batch.
#[derive(Debug)]
struct MockSlab {
    number: u64,
    words: Box<[f32; 2]>,
}

/// A batch in a slab, which is free again when this is dropped.
#[derive(Debug)]
struct SlabBatch {
    number: u64,
    slab: Option<MockSlab>,
    free: Arc<FreeSlabs>,
    state: LoaderState,
}

impl Drop for SlabBatch {
    fn drop(&mut self) {
        if let Some(mut slab) = self.slab.take() {
            *slab.words = [f32::NAN; 2];
            self.free.lock().push(slab);
        }
    }
}

impl RankBatch for SlabBatch {
    fn samples(&self) -> Samples<'_> {
        let slab = self.slab.as_ref().expect("only `drop` takes it");
        let inputs = ModelInputs {
            x: &slab.words[..],
            features: 2,
            ..ModelInputs::default()
        };
        Samples::new(1, inputs, Targets::None)
    }
    fn keys(&self) -> &[u64] {
        std::slice::from_ref(&self.number)
    }
    fn origins(&self) -> &[u64] {
        std::slice::from_ref(&self.number)
    }
    fn state(&self) -> &LoaderState {
        &self.state
    }
}

/// A copy that was ordered.
#[derive(Debug)]
struct OrderedCopy {
    batch: u64,
    slab: u64,
    lent: Bytes,
    /// Flushes before it was ordered.
    flushes: u64,
}

/// A mock of the queue of copies.
#[derive(Debug)]
struct MockCopies(Mutex<CopyState>);

#[derive(Debug)]
struct CopyState {
    draws: FeedDraws,
    failure: Option<FeedFailure>,
    ordered: VecDeque<OrderedCopy>,
    flushes: u64,
    /// Bytes that have arrived, by batch.
    arrived: BTreeMap<u64, Vec<u8>>,
    failed: Option<String>,
    /// Broken promises.
    broken: Vec<String>,
}

/// The two words of a batch in a slab, as they are in memory.
#[expect(clippy::cast_precision_loss, reason = "there are few")]
fn words(slab: u64, batch: u64) -> [f32; 2] {
    [slab as f32, batch as f32]
}

/// The number that a word holds.
fn number(word: f32) -> u64 {
    let mut numbers = 0..100;
    let found = numbers.find(|number| words(*number, 0)[0].to_bits() == word.to_bits());
    found.expect("it is one of the few numbers there are")
}

impl CopyState {
    /// Runs the copy that was ordered first.
    fn run_first(&mut self) {
        let Some(copy) = self.ordered.pop_front() else {
            return;
        };
        // A device that has failed copies nothing more.
        if self.failed.is_some() {
            return;
        }
        if self.failure == Some(FeedFailure::Copy(copy.batch)) {
            self.failed = Some(reason(copy.batch));
            return;
        }
        if *copy.lent != *bytemuck::cast_slice::<f32, u8>(&words(copy.slab, copy.batch)) {
            let text = format!(
                "the slab of batch {} was reused before its copy",
                copy.batch
            );
            self.broken.push(text);
        }
        self.arrived.insert(copy.batch, copy.lent.to_vec());
    }

    /// Runs some of the copies, as time passes.
    fn run_some(&mut self) {
        while !self.ordered.is_empty() && self.draws.one_in(3) {
            self.run_first();
        }
    }
}

impl MockCopies {
    fn lock(&self) -> MutexGuard<'_, CopyState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that no copy reads a slab that is about to be written.
    fn check_idle(&self, slab: u64) {
        let mut state = self.lock();
        if let Some(copy) = state.ordered.iter().find(|copy| copy.slab == slab) {
            let text = format!("slab {slab} is reused while batch {} is copied", copy.batch);
            state.broken.push(text);
        }
    }

    /// Checks that all of a batch has arrived.
    fn check_arrived(&self, batch: u64) {
        let mut state = self.lock();
        if !state.arrived.contains_key(&batch) {
            let text = format!("batch {batch} is handed over before its copy has ended");
            state.broken.push(text);
        }
    }
}

impl CopyQueue for MockCopies {
    type Copied = u64;

    fn order(&self, samples: Samples<'_>, columns: &dyn ColumnBytes) -> u64 {
        let mut state = self.lock();
        state.run_some();
        let [slab, batch] = [0, 1].map(|at| number(samples.inputs.x[at]));
        if state.failure == Some(FeedFailure::Order(batch)) {
            drop(state);
            panic!("{}", reason(batch));
        }
        let flushes = state.flushes;
        state.ordered.push_back(OrderedCopy {
            batch,
            slab,
            lent: columns.bytes(|samples| bytemuck::cast_slice(samples.inputs.x)),
            flushes,
        });
        state.run_some();
        batch
    }

    fn flush(&self) -> Result<(), String> {
        let mut state = self.lock();
        let before = state.flushes;
        while state
            .ordered
            .front()
            .is_some_and(|copy| copy.flushes < before)
        {
            state.run_first();
        }
        state.flushes += 1;
        state.failed.clone().map_or(Ok(()), Err)
    }
}

/// The batches of a loader, each in the slab that was given back last.
fn load<'a>(
    schedule: FeedSchedule,
    free: &'a Arc<FreeSlabs>,
    copies: &'a MockCopies,
) -> impl Iterator<Item = Result<SlabBatch, Error>> + Send + 'a {
    let state = testing::regression(8).start();
    let mut number = 0;
    std::iter::from_fn(move || {
        if schedule.failure == Some(FeedFailure::Load(number)) {
            return Some(Err(Error::Device {
                reason: reason(number),
            }));
        }
        if number == schedule.batches {
            return None;
        }
        let Some(mut slab) = free.lock().pop() else {
            let slabs = u32::try_from(schedule.slabs).unwrap();
            return Some(Err(feedline_loader::Error::BatchesHeld { slabs }.into()));
        };
        copies.check_idle(slab.number);
        *slab.words = words(slab.number, number);
        number += 1;
        Some(Ok(SlabBatch {
            number: number - 1,
            slab: Some(slab),
            free: Arc::clone(free),
            state: state.clone(),
        }))
    })
}

/// Uses batches as steps do. Returns how many came, and the reason that ended them.
fn use_batches(
    schedule: FeedSchedule,
    copies: &MockCopies,
    batches: &mut dyn Iterator<Item = Result<FedBatch<SlabBatch, u64>, Error>>,
) -> (u64, Option<String>) {
    let mut draws = FeedDraws::new(schedule.seed, 1);
    let mut held = VecDeque::new();
    let mut used = 0;
    while used < schedule.wanted {
        let batch = match batches.next() {
            None => break,
            Some(Ok(batch)) => batch,
            Some(Err(error)) => {
                assert!(batches.next().is_none(), "nothing follows a failure");
                let reason = match error {
                    Error::Device { reason } => reason,
                    other => other.to_string(),
                };
                return (used, Some(reason));
            }
        };
        assert_eq!(
            (batch.batch.batch.number, batch.uploaded),
            (used, Some(used))
        );
        copies.check_arrived(used);
        used += 1;
        held.push_back(batch);
        if held.len() > schedule.held {
            held.pop_front();
        }
        for _ in 0..draws.below(4) {
            thread::yield_now();
        }
    }
    (used, None)
}

/// Runs a schedule, and checks every promise.
fn check(seed: u64) {
    let schedule = FeedSchedule::new(seed);
    let free = Arc::new(FreeSlabs::default());
    for number in 0..schedule.slabs as u64 {
        let words = Box::new([f32::NAN; 2]);
        free.lock().push(MockSlab { number, words });
    }
    let copies = MockCopies(Mutex::new(CopyState {
        draws: FeedDraws::new(seed, 2),
        failure: schedule.failure,
        ordered: VecDeque::new(),
        flushes: 0,
        arrived: BTreeMap::new(),
        failed: None,
        broken: Vec::new(),
    }));
    let batches = Box::new(load(schedule, &free, &copies));
    let found = copy_ahead(&copies, schedule.ahead, batches, |batches| {
        Ok(use_batches(schedule, &copies, batches))
    });
    assert_eq!(found.unwrap(), schedule.expected(), "{schedule:?}");
    let mut state = copies.lock();
    while !state.ordered.is_empty() {
        state.run_first();
    }
    assert_eq!(state.broken, [""; 0], "{schedule:?}");
    assert_eq!(
        free.lock().len(),
        schedule.slabs,
        "every slab is free in the end: {schedule:?}"
    );
}

#[test]
fn fault_30_no_slab_is_reused_under_a_copy_and_every_failed_copy_is_an_error_with_its_name() {
    // A feed that is broken throughout fails here, before a schedule that never ends holds up the threads.
    (0..100).for_each(check);
    // A schedule mostly waits for its two threads to change.
    thread::scope(|scope| {
        for first in 100..108 {
            let seeds = (first..SCHEDULES).step_by(8);
            scope.spawn(move || seeds.for_each(check));
        }
    });
}
