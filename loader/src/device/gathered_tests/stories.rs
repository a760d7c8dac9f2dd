//! Whole passes on a device whose streams move when the test says so.

use std::collections::VecDeque;

use super::*;
use crate::device::{
    DeviceBatches, HostLock, LockRefused,
    fake::{
        Choices,
        driver::{Fake, FakeDriver, FaultPlan},
    },
};

/// Lends what is page-locked to a fake device, and sees to it that it is not taken back too early.
#[derive(Debug)]
struct Lending(Arc<FakeDriver>);

impl HostLock for Lending {
    fn lock(&self, address: usize, bytes: usize) -> Result<(), LockRefused> {
        self.0.lend_at(address, bytes);
        Ok(())
    }

    fn unlock(&self, address: usize) {
        self.0.take_back_at(address);
    }
}

/// Kernels read the same batch as the processor builds, whatever the order of events.
struct Story {
    driver: Arc<FakeDriver>,
    batches: DeviceBatches<Fake>,
    expected: Vec<Content>,
    held: VecDeque<DeviceBatch<Fake, BatchInfo>>,
    given: usize,
    buffers: usize,
}

/// The stream of the training step. That of copies comes behind it.
const COMPUTE: usize = 0;
const COPY: usize = 1;

impl Story {
    /// A pass over `loader` from a batch on, in a device that has `slots` slots more than it needs.
    fn new(loader: &Loader, choose: &mut Choices, plan: FaultPlan) -> Result<Self, Error> {
        let driver = Arc::new(FakeDriver::default());
        assert_eq!(driver.stream(), COMPUTE);
        loader.lock_batches(Arc::new(Lending(Arc::clone(&driver))));
        let whole = of_the_processor(loader, loader.start_state());
        let skip = usize::try_from(choose.below(3)).unwrap();
        let start = match skip {
            0 => loader.start_state(),
            _ => whole[skip - 1].3.clone(),
        };
        driver.world().plan = plan;
        let buffers = 1 + u32::try_from(choose.below(3)).unwrap();
        let config = DeviceConfig {
            buffers,
            staging_blocks: 1 + u32::try_from(choose.below(4)).unwrap(),
            window_bytes: least_window(loader, &start) + choose.below(4) * 1024,
            unfit: Unfit::Refuse,
        };
        let fake = Arc::new(Fake(Arc::clone(&driver)));
        let batches = loader.device_epoch(start, &fake, COMPUTE, &config)?;
        Ok(Self {
            driver,
            batches,
            expected: whole[skip..].to_vec(),
            held: VecDeque::new(),
            given: 0,
            buffers: buffers as usize,
        })
    }

    /// Asks for batches while the streams move, up to `most`. True when there are no more.
    fn run(&mut self, choose: &mut Choices, most: usize) -> Result<bool, Error> {
        while self.given < most {
            match choose.below(7) {
                0 | 1 => drop(self.driver.step(COPY)),
                2 => drop(self.driver.step(COMPUTE)),
                3 => drop(self.held.pop_front()),
                4 => self.batches.pump()?,
                _ if self.held.len() < self.buffers => match self.batches.next().transpose()? {
                    None => return Ok(true),
                    Some(batch) => {
                        let number = self.given as u64;
                        let memory = batch.memory();
                        self.driver.kernel(COMPUTE, number, memory, batch.parts());
                        assert_eq!(batch.info().state, self.expected[self.given].3);
                        self.held.push_back(batch);
                        self.given += 1;
                    }
                },
                _ => {}
            }
        }
        Ok(false)
    }

    /// Ends the pass, drops what is held and looks at what the kernels read.
    fn end(mut self, choose: &mut Choices, failed: bool) {
        if choose.below(2) == 0 {
            self.held.clear();
            drop(self.batches);
        } else {
            drop(self.batches);
            self.held.clear();
        }
        while self.driver.step(COPY) | self.driver.step(COMPUTE) {}
        let world = self.driver.world();
        assert!(world.violations.is_empty(), "{:?}", world.violations);
        for (batch, bytes) in &world.seen {
            let expected = self.expected[usize::try_from(*batch).unwrap()].0.concat();
            assert!(*bytes == expected, "batch {batch} is not what was sent");
        }
        if !failed && !world.is_dead() {
            assert_eq!(world.seen.len(), self.given, "every kernel ran");
        }
    }
}

fn stories(seeds: Range<u64>, plan: impl Fn(&mut Choices) -> FaultPlan) {
    let kinds = [
        (ROWS, config(50)),
        (tokens(TokenType::U16), with_tokens(33, TokenLayout::Stream)),
        (
            tokens(TokenType::U32),
            with_tokens(12, TokenLayout::Documents),
        ),
    ];
    for seed in seeds {
        let mut choose = Choices(seed);
        let (layout, config) = &kinds[usize::try_from(seed % 3).unwrap()];
        let loader = open(layout.clone(), config);
        let plan = plan(&mut choose);
        let has_faults = plan.call.is_some() || plan.work.is_some();
        let mut story = match Story::new(&loader, &mut choose, plan) {
            Ok(story) => story,
            Err(error) => {
                assert!(has_faults, "{error}");
                continue;
            }
        };
        let most = usize::try_from(choose.below(60)).unwrap();
        let result = story.run(&mut choose, most);
        let failed = result.is_err();
        match result {
            Ok(true) => assert_eq!(story.given, story.expected.len()),
            Ok(false) => {}
            Err(error) => {
                assert!(has_faults, "{error}");
                assert!(matches!(error, Error::Device { .. }), "{error}");
                let next = story.batches.next();
                assert!(matches!(next, Some(Err(Error::Device { .. }))), "it stays");
            }
        }
        story.end(&mut choose, failed);
    }
}

#[test]
fn any_order_of_events_shows_kernels_the_batches_of_the_processor() {
    stories(0..90, |_| FaultPlan::default());
}

#[test]
fn fault_30_no_error_at_any_point_frees_memory_under_a_copy_or_shows_wrong_bytes() {
    stories(0..150, |choose| FaultPlan {
        call: (choose.below(2) == 0).then(|| 1 + choose.below(400)),
        work: (choose.below(2) == 0).then(|| 1 + choose.below(300)),
        sticky: choose.below(2) == 0,
    });
}

#[test]
fn fault_30_an_error_while_a_block_is_copied_is_given_at_the_next_batch_and_stays() {
    let loader = open(ROWS, &config(50));
    let mut choose = Choices(3);
    let mut story = Story::new(&loader, &mut choose, FaultPlan::default()).unwrap();
    let first = story.batches.next().unwrap().unwrap();
    story.driver.world().fail_next_work();
    while story.driver.step(COPY) {}
    drop(first);
    for _ in 0..3 {
        let next = story.batches.next();
        assert!(matches!(next, Some(Err(Error::Device { .. }))));
    }
    story.end(&mut choose, true);
}
