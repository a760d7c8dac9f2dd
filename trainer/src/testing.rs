//! A dataset of vectors, with faults, for tests.

#[cfg(feature = "nvidia")]
pub(crate) mod mock;
#[cfg(feature = "mpi")]
pub(crate) mod mpi;

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use feedline_schemas::{
    Versioned,
    checkpoint::{BestEpoch, WorstSample},
    config::{Collective, ModelConfig, ScheduleConfig, TrainConfig},
    ids::{Epoch, Hash128, Seed, Sequence, Step},
    loader_state::{LastBatch, LoaderState, SampleUnit},
    manifest::{Layout, Split, TargetKind},
    progress::Silent,
    report::TrainReport,
    run::{RunRecord, RunState},
};
use feedline_storage::{
    Store,
    clock::{Clock, SystemClock},
};

use crate::{
    Resume,
    checkpoint::run_folder::{RunFolder, runtime},
    config::settings::{self, TrainSettings},
    data::{
        samples::{Batches, Data, RankBatch, Samples, Targets},
        task::Task,
    },
    device::Backend,
    error::Error,
    evaluation::metrics::Metrics,
    model::{engine::ModelEngine, models},
    parallel::{Group, RankPlace},
    plan::{InputNames, RunPlan},
    random::Stream,
    reporting::status::Tracker,
    session::{TrainSession, run_context::Watch},
};

/// Targets of a toy split.
#[derive(Clone, Debug)]
pub(crate) enum Column {
    Numbers(Vec<f32>),
    Classes(Vec<i32>),
}

/// Rows of a toy split; the key of row i is i.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    pub(crate) x: Vec<f32>,
    pub(crate) features: usize,
    pub(crate) y: Column,
}

impl Rows {
    fn len(&self) -> usize {
        self.x.len() / self.features
    }

    /// The share at `place` of a batch of these rows.
    fn pick(
        &self,
        rows: &[usize],
        state: LoaderState,
        RankPlace { rank, world }: RankPlace,
    ) -> ToyBatch {
        let global_rows = rows.len();
        let border = |rank: usize| rank * global_rows / world;
        let first_row = border(rank);
        let rows = &rows[first_row..border(rank + 1)];
        let x = rows
            .iter()
            .flat_map(|&row| &self.x[row * self.features..(row + 1) * self.features]);
        let y = match &self.y {
            Column::Numbers(y) => Column::Numbers(rows.iter().map(|&row| y[row]).collect()),
            Column::Classes(y) => Column::Classes(rows.iter().map(|&row| y[row]).collect()),
        };
        let keys = rows.iter().map(|&row| row as u64).collect();
        ToyBatch {
            rows: Self {
                x: x.copied().collect(),
                features: self.features,
                y,
            },
            keys,
            state,
            first_row,
            global_rows,
        }
    }
}

/// A batch of a toy split.
#[derive(Debug)]
pub(crate) struct ToyBatch {
    rows: Rows,
    keys: Vec<u64>,
    state: LoaderState,
    first_row: usize,
    global_rows: usize,
}

impl RankBatch for ToyBatch {
    fn samples(&self) -> Samples<'_> {
        let targets = match &self.rows.y {
            Column::Numbers(y) => Targets::Numbers(y),
            Column::Classes(y) => Targets::Classes(y),
        };
        let samples = Samples::of_rows(&self.rows.x, self.rows.features, targets);
        samples.within(self.first_row, self.global_rows)
    }
    fn keys(&self) -> &[u64] {
        &self.keys
    }
    /// Row i is row i of the first batch of the first source.
    fn origins(&self) -> &[u64] {
        &self.keys
    }
    fn state(&self) -> &LoaderState {
        &self.state
    }
}

/// Fault that occurs once.
#[derive(Clone, Debug, Default)]
pub(crate) enum Fault {
    #[default]
    None,
    /// The stop flag is set while this training batch, counted from 0 over the whole process, is on its way.
    StopAt(u64),
    /// The stop flag is set in the pass over the validation split with this number.
    StopInValidation(u64),
    /// The process "dies" before this training batch.
    DieAt(u64),
}

/// A toy dataset of three splits.
#[derive(Debug)]
pub(crate) struct Toy {
    pub(crate) splits: [Rows; 3],
    pub(crate) batch: usize,
    pub(crate) seed: Seed,
    pub(crate) fault: Fault,
    pub(crate) stop: Arc<AtomicBool>,
    /// Training batches, counted from the start of the run, whose targets are a hundred times as large.
    pub(crate) hard: Range<u64>,
    /// Time that the run's folder has once the run was asked to stop.
    pub(crate) patience: Duration,
    /// Batches missing at the end of each epoch.
    pub(crate) short_by: u64,
    /// Whose share of the batches it gives.
    pub(crate) place: RankPlace,
    pub(crate) clock: Arc<dyn Clock>,
    served: AtomicU64,
    validations: AtomicU64,
}

impl Toy {
    pub(crate) fn with_fault(self, fault: Fault) -> Self {
        Self { fault, ..self }
    }
}

impl Data for Toy {
    type Batch = ToyBatch;

    fn start(&self) -> LoaderState {
        LoaderState {
            format: LoaderState::TAG.format.into(),
            version: LoaderState::TAG.version,
            fingerprint: FINGERPRINT,
            order_version: 2,
            seed: self.seed,
            domains: 1,
            window_blocks: 1,
            extent_bytes: 0,
            global_batch: u32::try_from(self.batch).unwrap(),
            last_batch: LastBatch::Keep,
            unit: SampleUnit::Rows,
            mixture: None,
            skipped: None,
            split: Split::Train,
            shuffle: true,
            epoch: Epoch::new(0),
            batch: Step::new(0),
        }
    }

    fn batches_per_epoch(&self) -> u64 {
        self.splits[0].len().div_ceil(self.batch) as u64
    }

    fn epoch(&self, from: LoaderState) -> Result<Batches<'_, ToyBatch>, Error> {
        let order = shuffled(self.splits[0].len(), from.seed, from.epoch);
        let first = from.batch.get();
        let batches: Vec<ToyBatch> = (first..self.batches_per_epoch() - self.short_by)
            .map(|number| {
                let begin = usize::try_from(number).unwrap() * self.batch;
                let rows = &order[begin..(begin + self.batch).min(order.len())];
                let mut batch = self.splits[0].pick(
                    rows,
                    LoaderState {
                        batch: Step::new(number + 1),
                        ..from.clone()
                    },
                    self.place,
                );
                let since_start = from.epoch.get() * self.batches_per_epoch() + number;
                if let (true, Column::Numbers(y)) =
                    (self.hard.contains(&since_start), &mut batch.rows.y)
                {
                    y.iter_mut().for_each(|y| *y *= 100.0);
                }
                batch
            })
            .collect();
        Ok(Box::new(batches.into_iter().map(|batch| {
            let served = self.served.fetch_add(1, Ordering::Relaxed);
            match self.fault {
                Fault::DieAt(at) if at == served => {
                    return Err(Error::Runtime(std::io::Error::other("killed")));
                }
                Fault::StopAt(at) if at == served => self.stop.store(true, Ordering::Relaxed),
                _ => {}
            }
            Ok(batch)
        })))
    }

    fn sequential(&self, split: Split) -> Result<Batches<'_, ToyBatch>, Error> {
        if split == Split::Validation {
            let number = self.validations.fetch_add(1, Ordering::Relaxed);
            if matches!(self.fault, Fault::StopInValidation(at) if at == number) {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
        let rows = &self.splits[Split::ALL.iter().position(|s| *s == split).unwrap()];
        let all: Vec<usize> = (0..rows.len()).collect();
        let batches: Vec<_> = all
            .chunks(self.batch)
            .map(|part| Ok(rows.pick(part, self.start(), self.place)))
            .collect();
        Ok(Box::new(batches.into_iter()))
    }
}

/// Fisher and Yates' shuffle, keyed by seed and epoch.
fn shuffled(n: usize, seed: Seed, epoch: Epoch) -> Vec<usize> {
    let stream = Stream::initialization(seed).part(usize::try_from(epoch.get()).unwrap());
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        let j = stream.bits(i as u64) % (i as u64 + 1);
        order.swap(i, usize::try_from(j).unwrap());
    }
    order
}

pub(crate) const FINGERPRINT: Hash128 = Hash128::new(77);

/// Uniform numbers in ±1.
pub(crate) fn uniform(n: usize, stream: usize) -> Vec<f32> {
    let stream = Stream::initialization(Seed::new(99)).part(stream);
    #[expect(clippy::cast_possible_truncation, reason = "test data")]
    (0..n as u64)
        .map(|i| (2.0 * stream.uniform(i) - 1.0) as f32)
        .collect()
}

/// A smooth function of four features, without noise.
pub(crate) fn regression(batch: usize) -> Toy {
    let rows = |n: usize, part: usize| {
        let x = uniform(4 * n, part);
        let y = x
            .chunks(4)
            .map(|r| (2.0 * r[0]).sin() + r[1] * r[2] - 0.5 * r[3])
            .collect();
        Rows {
            x,
            features: 4,
            y: Column::Numbers(y),
        }
    };
    toy([rows(200, 0), rows(60, 1), rows(60, 2)], batch)
}

/// Three classes by the angle of two features.
pub(crate) fn classification(batch: usize) -> Toy {
    let rows = |n: usize, part: usize| {
        let x = uniform(2 * n, part);
        let class = |r: &[f32]| {
            if r[0] > 0.3 {
                0
            } else {
                i32::from(r[1] > 0.0) + 1
            }
        };
        let y = x.chunks(2).map(class).collect();
        Rows {
            x,
            features: 2,
            y: Column::Classes(y),
        }
    };
    toy([rows(300, 3), rows(90, 4), rows(90, 5)], batch)
}

pub(crate) fn toy(splits: [Rows; 3], batch: usize) -> Toy {
    Toy {
        splits,
        batch,
        seed: Seed::new(5),
        fault: Fault::None,
        stop: Arc::default(),
        hard: 0..0,
        patience: Duration::from_secs(60),
        short_by: 0,
        place: RankPlace::ALONE,
        clock: Arc::new(SystemClock),
        served: AtomicU64::default(),
        validations: AtomicU64::default(),
    }
}

/// A small, quick configuration.
pub(crate) fn config() -> TrainConfig {
    TrainConfig {
        model: ModelConfig {
            hidden: Some(vec![16]),
            dropout: 0.1,
            ..ModelConfig::default()
        },
        epochs: 3,
        seed: Seed::new(5),
        learning_rate: 0.02,
        schedule: ScheduleConfig {
            warmup_steps: Some(3),
            ..ScheduleConfig::default()
        },
        patience: 0,
        log_every: 2,
        ..TrainConfig::default()
    }
}

/// The plan of `config` on `toy`.
pub(crate) fn plan(config: &TrainConfig, toy: &Toy) -> RunPlan {
    let features = u32::try_from(toy.splits[0].features).unwrap();
    let (target, task) = match &toy.splits[0].y {
        Column::Numbers(_) => (
            TargetKind::Regression,
            Task::Regression {
                mean: 10.0,
                offset: 10.0,
                scale: 2.0,
            },
        ),
        Column::Classes(y) => {
            let most = y.iter().copied().max().unwrap();
            let count = |class| y.iter().filter(|y| **y == class).count() as u64;
            (
                TargetKind::Classification {
                    classes: u32::try_from(most + 1).unwrap(),
                },
                Task::Classification {
                    counts: (0..=most).map(count).collect(),
                    names: (0..=most).map(|class| class.to_string()).collect(),
                },
            )
        }
    };
    RunPlan {
        settings: TrainSettings::resolve(config, &task).unwrap(),
        task,
        layout: Layout::Dense { features, target },
        features: InputNames::default(),
        fingerprint: FINGERPRINT,
        init: None,
        dataset_url: "memory:toy".into(),
        images: None,
        is_of_query: false,
    }
}

/// The engine of a plan.
pub(crate) fn engine(plan: &RunPlan) -> ModelEngine {
    engine_at(plan, RankPlace::ALONE)
}

/// The engine of a plan on one of several ranks.
fn engine_at(plan: &RunPlan, place: RankPlace) -> ModelEngine {
    let config = &plan.settings.config().model;
    let model = models::build(config, plan.shape(), plan.outputs()).unwrap();
    let lora = plan.settings.config().lora.as_ref();
    let model = crate::model::interface::adapted(model, lora).unwrap();
    let passes = settings::passes(plan.settings.config(), model.layout()).unwrap();
    ModelEngine::new(model, plan.settings.loss().clone())
        .with_passes(passes)
        .with_cut(plan.settings.cut(place, u64::MAX))
}

/// Trains on a toy dataset, with the run's folder at `store`.
pub(crate) fn train(
    config: &TrainConfig,
    toy: &Toy,
    resume: Resume,
    store: &Store,
) -> Result<TrainReport, Error> {
    train_in(&Group::alone(), config, toy, resume, store)
}

/// The same on a device.
pub(crate) fn train_at(
    (group, backend): (&Group, Backend),
    config: &TrainConfig,
    toy: &Toy,
    resume: Resume,
    store: &Store,
) -> Result<TrainReport, Error> {
    let engine = engine_at(&plan(config, toy), toy.place).on(backend);
    train_on((group, engine), config, toy, resume, store)
}

/// The same, as one of a group.
pub(crate) fn train_in(
    group: &Group,
    config: &TrainConfig,
    toy: &Toy,
    resume: Resume,
    store: &Store,
) -> Result<TrainReport, Error> {
    train_at((group, Backend::cpu()), config, toy, resume, store)
}

/// The same, with an engine of one's own.
pub(crate) fn train_on(
    (group, engine): (&Group, ModelEngine),
    config: &TrainConfig,
    toy: &Toy,
    resume: Resume,
    store: &Store,
) -> Result<TrainReport, Error> {
    let runtime = runtime()?;
    let folder =
        RunFolder::new(runtime.handle().clone(), store.clone()).with_patience(toy.patience);
    let plan = plan(config, toy);
    let ranks = group.join(&plan.identity(), &config.parallel, runtime.handle())?;
    // There is no NCCL here, and no GPU that it sums on.
    let ranks = match config.parallel.collective {
        Collective::Nccl if ranks.are_many() => ranks.summing_through_host(),
        _ => ranks,
    };
    let watch = Watch {
        progress: &Silent,
        clock: &*toy.clock,
        stop: &toy.stop,
        tracker: &Tracker::default(),
        ranks: &ranks,
    };
    let initial = engine.model().initial(config.seed);
    let session = TrainSession::start(&plan, toy, (engine, initial), &folder, watch);
    let session = session.and_then(|session| match resume {
        Resume::Fresh => session.fresh(),
        Resume::Continue | Resume::Prolong => session.resume(),
    });
    let report = session.and_then(|session| session.run(true));
    if let Err(error) = &report {
        ranks.abort(error);
    }
    report.map(Option::unwrap)
}

/// The record of a finished run.
pub(crate) fn record(name: &str) -> RunRecord {
    let metrics = |value| Metrics::from([("rmse".to_owned(), value)]);
    RunRecord {
        format: RunRecord::TAG.format.into(),
        version: RunRecord::TAG.version,
        name: name.into(),
        program: "0.0.0".into(),
        dataset: "memory:dataset".into(),
        fingerprint: FINGERPRINT,
        transform: None,
        columns_hash: None,
        layout: None,
        splits: std::collections::BTreeMap::new(),
        continued_from: None,
        classes: Vec::new(),
        targets: Vec::new(),
        config: TrainConfig::default(),
        state: RunState::Finished,
        reason: None,
        started_ms: 1_700_000_000_000,
        updated_ms: 1_700_000_060_000,
        ended_ms: Some(1_700_000_060_000),
        step: 4,
        dropped_steps: 0,
        steps_planned: 8,
        epochs: 1,
        parameters: 17,
        data_wait_share: 0.0,
        performance: None,
        best: Some(BestEpoch {
            epoch: Epoch::new(0),
            step: Step::new(4),
            loss: 0.4,
            metrics: metrics(1.9),
            baseline: metrics(5.0),
            worst: vec![WorstSample {
                loss: 3.0,
                key: "00000000000000ff".into(),
                source: Some(0),
                sequence: Some(Sequence::new(1)),
                row: Some(7),
                target: None,
                prediction: None,
            }],
            diagnostics: None,
        }),
        images: None,
        mixture: Vec::new(),
        quarantined: 0,
        left_out_shards: std::collections::BTreeMap::new(),
        test: metrics(2.0),
        baseline: metrics(5.0),
        diagnostics: None,
    }
}

/// All objects of a store by path.
pub(crate) fn contents(store: &Store) -> std::collections::BTreeMap<String, Vec<u8>> {
    let runtime = runtime().unwrap();
    runtime.block_on(async {
        let mut found = std::collections::BTreeMap::new();
        for listed in store.list("").await.unwrap() {
            let bytes = store.get(&listed.path).await.unwrap();
            found.insert(listed.path, bytes.to_vec());
        }
        found
    })
}
