//! The ring, the pool and the filling of batches under every order of events that a scheduler thinks of.
//!
//! The files are the loader's own, compiled with the locks, threads and queues of [shuttle](shuttle). A thread may be
//! stopped at each of their calls; a story that hangs or fails is printed with the order of events that led to it, and
//! can be run again with `shuttle::replay`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step of a test's own setup is a failed test"
)]

use feedline_loader::{Error, device};
use feedline_schemas::guard;

mod assembly;
mod stubs;
mod sync;

use std::{
    collections::{BTreeMap, VecDeque},
    convert::Infallible,
};

use feedline_schemas::{
    ids::{Epoch, Hash128, Seed, Step},
    loader_state::{LastBatch, LoaderState, SampleUnit},
};
use stubs::{deliver, metrics, source_block};
use sync::{
    Arc,
    channel::{Receiver, Sender, bounded},
    thread::{self, JoinHandle},
};

use crate::{
    assembly::{
        batch_task::BatchTask,
        block_types::LoadedRun,
        fill::{FillScratch, Filler},
        pool::ThreadPool,
        progress::Progress,
        ready_queue::{Outcome, ReadyQueue, ready_queue},
        ring::Ring,
        slab::{Slab, SlabShape},
        turns::{AwaitedTurn, Turns},
    },
    deliver::batch::Batch,
    metrics::{Meters, Timer},
};

const ROWS: usize = 5;
/// Three tasks a batch.
const TASK_ROWS: usize = 2;
const SHAPE: SlabShape = SlabShape {
    rows: ROWS,
    row_bytes: [1, 0, 0, 0, 0],
};

/// Events of a pass.
#[derive(Clone, Copy, Default)]
struct Story {
    slabs: u32,
    threads: usize,
    batches: u64,
    /// Batches the caller takes before it is gone.
    takes: u64,
    /// Batches the caller keeps while it asks for the next, fewer than there are slabs.
    keeps: usize,
    panics_at: Option<(u64, usize)>,
}

struct Pass {
    ring: Ring,
    pool: Arc<ThreadPool<FillScratch>>,
    done: Receiver<Outcome>,
    early: BTreeMap<u64, Result<Batch, Error>>,
    progress: Arc<Progress>,
    stop: Sender<Infallible>,
    assembler: JoinHandle<()>,
}

/// Inputs of the assemble thread.
struct Assembler {
    ring: Ring,
    pool: Arc<ThreadPool<FillScratch>>,
    filler: Arc<Filler>,
    done: ReadyQueue,
    progress: Arc<Progress>,
    stopped: Receiver<Infallible>,
}

impl Assembler {
    /// As the loader's own, once the blocks of each batch are there.
    fn run(self, batches: u64) {
        for number in 0..batches {
            let slab = loop {
                if let Ok(slab) = self.ring.free().try_recv() {
                    break slab;
                }
                if self.stopped.is_closed() {
                    return;
                }
                thread::yield_now();
            };
            let run = LoadedRun {
                window: Arc::new(number),
                positions: 0..ROWS as u64,
            };
            let filling = BatchTask {
                number,
                rows: ROWS,
                padding: 0,
                place: (),
                mixing: None,
                state: state(),
                lease: self.ring.lease(slab),
                filler: Arc::clone(&self.filler),
                done: self.done.clone(),
                progress: Arc::clone(&self.progress),
            };
            filling.submit(&self.pool, self.ring.shape(), vec![run], TASK_ROWS);
        }
    }
}

impl Pass {
    fn start(story: Story) -> Self {
        let meters = Meters {
            decode_busy: Timer,
            decode_starved: Timer,
        };
        let ring = Ring::new(SHAPE, story.slabs, None);
        let pool = Arc::new(ThreadPool::new(
            story.threads,
            story.threads,
            Arc::new(meters),
        ));
        pool.start().unwrap();
        let (ready_queue, done, _waker) = ready_queue();
        let (stop, stopped) = bounded(0);
        let progress = Arc::new(Progress::default());
        let assembler = Assembler {
            ring: ring.clone(),
            pool: Arc::clone(&pool),
            filler: Arc::new(Filler {
                kind: (),
                target: (),
                panics_at: story.panics_at,
            }),
            done: ready_queue,
            progress: Arc::clone(&progress),
            stopped,
        };
        Self {
            ring,
            pool,
            done,
            early: BTreeMap::new(),
            progress,
            stop,
            assembler: thread::spawn(move || assembler.run(story.batches)),
        }
    }

    /// The next batch, as the loader's iterator finds it.
    fn next(&mut self, number: u64) -> Result<Batch, Error> {
        loop {
            if let Some(outcome) = self.early.remove(&number) {
                return outcome.map(|mut batch| {
                    batch.hand_out(&self.ring);
                    batch
                });
            }
            let (number, outcome) = self.done.recv().expect("every batch comes");
            self.early.insert(number, outcome);
        }
    }

    /// Ends the pass, as dropping the loader's iterator does. The pool stays.
    fn finish(self) -> (Ring, Arc<ThreadPool<FillScratch>>) {
        self.progress.cancel();
        drop(self.early);
        drop(self.stop);
        self.assembler.join().unwrap();
        drop(self.done);
        (self.ring, self.pool)
    }
}

fn state() -> LoaderState {
    LoaderState {
        format: String::new(),
        version: 1,
        fingerprint: Hash128::new(0),
        order_version: 1,
        seed: Seed::new(0),
        domains: 1,
        window_blocks: 1,
        extent_bytes: 0,
        global_batch: 1,
        last_batch: LastBatch::default(),
        unit: SampleUnit::default(),
        mixture: None,
        skipped: None,
        split: feedline_schemas::manifest::Split::Train,
        shuffle: true,
        epoch: Epoch::new(0),
        batch: Step::new(0),
    }
}

fn check(batch: &Batch, number: u64) {
    assert_eq!(
        batch.bytes(),
        [number.to_le_bytes()[0]; ROWS],
        "batch {number} is complete"
    );
}

/// Takes batches until the story says otherwise; an error ends it as it ends a pass.
fn take(story: Story) -> Pass {
    let mut pass = Pass::start(story);
    let mut held = VecDeque::new();
    for number in 0..story.takes {
        match pass.next(number) {
            Ok(batch) => {
                check(&batch, number);
                held.push_back((number, batch));
            }
            Err(error) => {
                assert!(matches!(error, Error::Worker { .. }), "{error}");
                assert_eq!(story.panics_at.map(|(batch, _)| batch), Some(number));
                break;
            }
        }
        if held.len() > story.keeps {
            let (number, batch) = held.pop_front().unwrap();
            check(&batch, number);
            drop(batch);
        }
    }
    for (number, batch) in held {
        check(&batch, number);
    }
    pass
}

/// A slab in the ring has all its memory.
fn check_slab(slab: &Slab) {
    assert_eq!(slab.column(0).len(), ROWS, "a part of the slab is lost");
}

/// Ends the pass and sees every slab come back.
fn all_slabs_come_back(story: Story) {
    let (ring, pool) = take(story).finish();
    let slabs: Vec<_> = (0..story.slabs)
        .map(|_| ring.free().recv().unwrap())
        .collect();
    slabs.iter().for_each(check_slab);
    assert_eq!((slabs.len(), ring.in_use()), (story.slabs as usize, 0));
    // Its threads end, or the story hangs.
    drop(pool);
}

fn every_order(story: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(story.clone(), 1_500);
    shuttle::check_pct(story, 500, 3);
}

#[test]
fn whole_passes_give_every_batch_once_and_whole() {
    for (slabs, threads, keeps) in [(2, 1, 0), (2, 2, 1), (3, 2, 2)] {
        let story = Story {
            slabs,
            threads,
            keeps,
            batches: 5,
            takes: 5,
            ..Story::default()
        };
        every_order(move || all_slabs_come_back(story));
    }
}

#[test]
fn a_caller_that_leaves_in_mid_pass_gets_every_slab_back() {
    for takes in [0, 1, 3] {
        let story = Story {
            slabs: 3,
            threads: 2,
            keeps: 1,
            batches: 6,
            takes,
            ..Story::default()
        };
        every_order(move || all_slabs_come_back(story));
    }
}

#[test]
fn fault_24_a_panic_in_a_worker_is_an_error_of_its_batch_and_costs_no_slab() {
    for row in [0, 3, 4] {
        let story = Story {
            slabs: 2,
            threads: 2,
            batches: 4,
            takes: 4,
            panics_at: Some((1, row)),
            ..Story::default()
        };
        every_order(move || all_slabs_come_back(story));
    }
}

#[test]
fn a_loader_that_is_dropped_with_work_in_its_queue_ends_its_threads() {
    let story = Story {
        slabs: 3,
        threads: 2,
        batches: 6,
        takes: 1,
        ..Story::default()
    };
    every_order(move || {
        let (ring, pool) = take(story).finish();
        drop(pool);
        assert_eq!(ring.in_use(), 0);
        // Slabs whose tasks were dropped are gone; the remaining ones are complete.
        while let Ok(slab) = ring.free().try_recv() {
            check_slab(&slab);
        }
    });
}

#[test]
fn threads_that_rest_leave_no_task_behind() {
    let story = Story {
        slabs: 2,
        threads: 3,
        batches: 3,
        takes: 3,
        ..Story::default()
    };
    every_order(move || {
        let mut pass = Pass::start(story);
        for number in 0..story.takes {
            // The controller moves the number of threads while batches are filled.
            pass.pool
                .set_active(1 + usize::try_from(number).unwrap() % 3)
                .unwrap();
            check(&pass.next(number).unwrap(), number);
        }
        drop(pass.finish());
    });
}

#[test]
fn turns_are_granted_until_the_caller_is_gone_and_the_thread_always_ends() {
    for (most, taken, ends) in [(1, 5, true), (2, 5, false), (9, 12, true), (8, 3, true)] {
        every_order(move || {
            let turns = Arc::new(Turns::default());
            let (ready, batches) = bounded(usize::MAX);
            let maker = {
                let turns = Arc::clone(&turns);
                thread::spawn(move || {
                    let mut made = 0;
                    // A caller that does not end the pass takes all.
                    while (ends || made < taken)
                        && turns.try_take(most).unwrap_or_else(|| turns.take(most))
                            == AwaitedTurn::Granted
                    {
                        made += 1;
                        ready.send(()).unwrap();
                    }
                    made
                })
            };
            for _ in 0..taken {
                batches.recv().expect("every batch comes");
                turns.give_back();
            }
            if ends {
                turns.end();
            }
            let made = maker.join().unwrap();
            assert!((taken..=taken + most).contains(&made), "{made}");
        });
    }
}
