//! Stories of runs on several ranks, which are threads here.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use feedline_schemas::units::ByteSize;
use feedline_storage::clock::Clock;

use super::*;
use crate::parallel::{Group, RankPlace};
use crate::{
    device::Backend,
    testing::{train_at, train_in},
};

/// Trains on `world` ranks, each with a dataset of its own making; the results by rank.
pub(super) fn on_ranks(
    world: usize,
    config: &TrainConfig,
    make: impl Fn(usize) -> Toy + Sync,
    resume: Resume,
    store: &Store,
) -> Vec<Result<TrainReport, String>> {
    on_ranks_at((world, &Backend::cpu()), config, make, resume, store)
}

/// The same on a device.
pub(super) fn on_ranks_at(
    (world, device): (usize, &Backend),
    config: &TrainConfig,
    make: impl Fn(usize) -> Toy + Sync,
    resume: Resume,
    store: &Store,
) -> Vec<Result<TrainReport, String>> {
    on_devices(&vec![device; world], config, make, resume, store)
}

/// The same on a device for each rank.
pub(super) fn on_devices(
    devices: &[&Backend],
    config: &TrainConfig,
    make: impl Fn(usize) -> Toy + Sync,
    resume: Resume,
    store: &Store,
) -> Vec<Result<TrainReport, String>> {
    let world = devices.len();
    thread::scope(|scope| {
        let on_one = |(rank, group): (usize, Group)| {
            let make = &make;
            scope.spawn(move || {
                let mut toy = make(rank);
                toy.place = RankPlace { rank, world };
                let at = (&group, devices[rank].clone());
                let report = train_at(at, config, &toy, resume, store);
                report.map_err(|error| error.to_string())
            })
        };
        let groups = Group::threads(world).into_iter().enumerate();
        let threads: Vec<_> = groups.map(on_one).collect();
        let threads = threads.into_iter();
        threads.map(|thread| thread.join().unwrap()).collect()
    })
}

/// Batches that four ranks share in complete parts.
pub(super) fn in_parts() -> TrainConfig {
    let mut config = config();
    config.parallel.parts = 4;
    config.parallel.check_every = 3;
    config
}

/// Compares every byte that a run leaves with that of one rank.
fn check_same(world: usize, config: &TrainConfig, make: fn(usize) -> Toy) {
    let expected = undisturbed(config, &make(64));
    let store = Store::memory();
    let reports = on_ranks(world, config, |_| make(64), Resume::Fresh, &store);
    for report in reports {
        let (files, report) = finished(&store, report.unwrap());
        assert_eq!(report, expected.1, "{world} ranks");
        for ((path, bytes), (_, expected)) in files.iter().zip(&expected.0) {
            assert!(bytes == expected, "{path} differs on {world} ranks");
        }
        assert_eq!(files.len(), expected.0.len());
    }
}

#[test]
fn two_and_four_ranks_leave_the_bytes_of_one() {
    for world in [1, 2, 4] {
        check_same(world, &in_parts(), regression);
        let mut config = in_parts();
        config.model.norm = Some(NormKind::Batch);
        check_same(world, &config, regression);
        let mut config = in_parts();
        let balanced = ClassWeightRule::Balanced;
        config.loss.class_weights = Some(ClassWeights::Rule(balanced));
        config.loss.label_smoothing = Some(0.05);
        check_same(world, &config, classification);
        let mut config = in_parts();
        config.optimizer.r#type = OptimizerKind::Lamb;
        config.average = Some(AverageConfig::default());
        // A section for each parameter, which may be frozen, beside all at once.
        config.parallel.bucket_bytes = ByteSize::new(4);
        config.freeze = vec!["layer.0.weight".into()];
        check_same(world, &config, two_classes);
        config.parallel.shard_optimizer = true;
        config.checkpoint.keep = 1;
        let whole = undisturbed(&config, &two_classes(64));
        let store = Store::memory();
        for report in on_ranks(world, &config, |_| two_classes(64), Resume::Fresh, &store) {
            let (files, report) = finished(&store, report.unwrap());
            assert_eq!(report, whole.1);
            let best = |files: &[(String, Vec<u8>)]| {
                files.iter().find(|f| f.0 == "best.safetensors").cloned()
            };
            assert!(best(&files) == best(&whole.0));
        }
        config.parallel.shard_optimizer = false;
        config.parallel.bucket_bytes = ByteSize::new(0);
        check_same(world, &config, two_classes);
    }
}

/// Numbers of a report by name, which may differ by a share of 1e-3.
pub(super) fn assert_close(found: &TrainReport, expected: &TrainReport) {
    for (name, value) in &expected.test {
        let found = found.test[name];
        assert!(
            (found - value).abs() < 1e-3 * value.abs(),
            "{name}: {found} {value}"
        );
    }
}

#[test]
fn three_ranks_come_close_to_one() {
    let expected = undisturbed(&in_parts(), &regression(64)).1;
    let store = Store::memory();
    for report in on_ranks(3, &in_parts(), |_| regression(64), Resume::Fresh, &store) {
        assert_close(&report.unwrap(), &expected);
    }
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    let expected = undisturbed(&in_parts(), &regression(64));
    for (worlds, same) in [([4, 2, 1], true), ([1, 4, 2], true), ([4, 1, 3], false)] {
        let store = Store::memory();
        for (world, step) in worlds.into_iter().zip([2, 4, u64::MAX]) {
            // The signal reaches one rank only.
            let make = |rank| {
                let stop = rank + 1 == world && step < u64::MAX;
                let fault = if stop {
                    Fault::StopAt(step)
                } else {
                    Fault::None
                };
                regression(64).with_fault(fault)
            };
            for report in on_ranks(world, &in_parts(), make, Resume::Continue, &store) {
                match report {
                    Err(error) => assert!(error.contains("interrupted"), "{error}"),
                    Ok(report) => {
                        assert_close(&report, &expected.1);
                        let (files, report) = finished(&store, report);
                        if same {
                            assert_eq!(report, expected.1, "{worlds:?}");
                            assert!(last(&files) == last(&expected.0), "{worlds:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_rank_that_dies_is_named_by_all_and_the_run_goes_on_from_its_checkpoint() {
    let mut config = in_parts();
    config.checkpoint.every_steps = 3;
    let expected = undisturbed(&config, &regression(64));
    let store = Store::memory();
    let make = |rank| {
        let dies = if rank == 2 {
            Fault::DieAt(7)
        } else {
            Fault::None
        };
        regression(64).with_fault(dies)
    };
    let errors = on_ranks(4, &config, make, Resume::Fresh, &store);
    for (rank, error) in errors.into_iter().enumerate() {
        let error = error.unwrap_err();
        assert!(
            rank == 2 || error.contains("rank `2` failed"),
            "{rank}: {error}"
        );
    }
    for report in on_ranks(4, &config, |_| regression(64), Resume::Continue, &store) {
        let (files, report) = finished(&store, report.unwrap());
        assert_eq!(report, expected.1);
        assert!(last(&files) == last(&expected.0));
    }
}

#[test]
fn all_ranks_name_the_sample_that_is_not_finite() {
    let store = Store::memory();
    let make = |_| {
        let mut toy = regression(64);
        toy.splits[0].x[4 * 77] = f32::NAN;
        toy
    };
    let errors = on_ranks(4, &in_parts(), make, Resume::Fresh, &store);
    let alone = on_ranks(1, &in_parts(), make, Resume::Fresh, &Store::memory());
    for error in errors {
        assert_eq!(error, alone[0]);
        assert!(error.unwrap_err().contains("`000000000000004d`"));
    }
}

#[test]
fn ranks_leave_the_same_batches_out_and_go_back_to_the_same_weights() {
    for world in [2, 4] {
        for (mut config, make) in [
            (guards::lenient(), guards::poisoned as fn(usize) -> Toy),
            (guards::watchful(), guards::hard),
        ] {
            config.parallel.parts = 4;
            config.parallel.check_every = 1;
            check_same(world, &config, make);
        }
    }
}

#[test]
fn ranks_that_went_back_go_on_with_another_number_of_ranks() {
    let mut config = guards::watchful();
    config.parallel.parts = 4;
    let expected = undisturbed(&config, &guards::hard(8));
    for step in [43, 45, 50] {
        let store = Store::memory();
        let make = |rank| {
            let stop = if rank == 1 {
                Fault::StopAt(step)
            } else {
                Fault::None
            };
            guards::hard(8).with_fault(stop)
        };
        for report in on_ranks(2, &config, make, Resume::Fresh, &store) {
            assert!(report.unwrap_err().contains("interrupted"));
        }
        let reports = on_ranks(4, &config, |_| guards::hard(8), Resume::Continue, &store);
        for report in reports {
            let (files, report) = finished(&store, report.unwrap());
            assert_eq!(report, expected.1, "stopped at step {step}");
            assert!(last(&files) == last(&expected.0), "stopped at step {step}");
        }
    }
}

#[test]
fn a_signal_during_validation_stops_all_ranks() {
    let store = Store::memory();
    let make = |rank| {
        let toy = regression(64);
        if rank == 1 {
            return toy.with_fault(Fault::StopInValidation(1));
        }
        toy
    };
    for report in on_ranks(2, &in_parts(), make, Resume::Fresh, &store) {
        assert!(report.unwrap_err().contains("interrupted"));
    }
    let expected = undisturbed(&in_parts(), &regression(64));
    for report in on_ranks(2, &in_parts(), |_| regression(64), Resume::Continue, &store) {
        assert_eq!(finished(&store, report.unwrap()).1, expected.1);
    }
}

#[test]
fn a_rank_with_other_weights_is_named() {
    let store = Store::memory();
    // Another seed gives other initial weights; nothing else here looks at it.
    let results = thread::scope(|scope| {
        let store = &store;
        let on_one = |(rank, group): (usize, Group)| {
            scope.spawn(move || {
                let mut config = in_parts();
                config.model.dropout = 0.0;
                if rank == 1 {
                    config.seed = feedline_schemas::ids::Seed::new(6);
                }
                let mut toy = regression(64);
                toy.place = RankPlace { rank, world: 3 };
                train_in(&group, &config, &toy, Resume::Fresh, store)
            })
        };
        let groups = Group::threads(3).into_iter().enumerate();
        let threads: Vec<_> = groups.map(on_one).collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap());
        results.collect::<Vec<_>>()
    });
    for result in results {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("rank(s) 1 differ"), "{error}");
        assert!(error.contains("after step `3`"), "{error}");
    }
    assert!(contents(&store).keys().all(|path| !path.contains("step-")));
}

/// A clock that advances by `step_ms` whenever it is read.
#[derive(Debug)]
struct Steady {
    step_ms: u64,
    looks: AtomicU64,
}

impl Clock for Steady {
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.step_ms * self.looks.fetch_add(1, Ordering::Relaxed))
    }

    fn unix(&self) -> Duration {
        Duration::ZERO
    }
}

#[test]
fn lines_of_metrics_tell_how_fast_each_rank_is() {
    let mut config = in_parts();
    config.epochs = 12;
    config.patience = 0;
    config.log_every = 10;
    let make = |rank| {
        let clock = Steady {
            step_ms: if rank == 2 { 5 } else { 1 },
            looks: AtomicU64::new(0),
        };
        let mut toy = regression(64);
        toy.clock = Arc::new(clock);
        toy
    };
    let store = Store::memory();
    for report in on_ranks(4, &config, make, Resume::Fresh, &store) {
        report.unwrap();
    }
    let lines = String::from_utf8(contents(&store)["metrics.jsonl"].clone()).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|line| line["kind"] == "step");
    let paces: Vec<_> = lines.map(|line| (line["step"].clone(), line)).collect();
    assert!(paces.len() >= 4, "{paces:?}");
    for (step, line) in paces {
        if step.as_u64().unwrap() % 20 != 0 {
            assert_eq!(line.get("rank_step_s"), None, "{line}");
            continue;
        }
        assert_eq!(line["rank_step_s"].as_array().unwrap().len(), 4, "{line}");
        assert_eq!(line["slowest_rank"], 2, "{line}");
        let ratio = line["slowest_ratio"].as_f64().unwrap();
        assert!((2.0..=5.5).contains(&ratio), "{line}");
    }
}
