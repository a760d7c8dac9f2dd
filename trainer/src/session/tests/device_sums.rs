//! Ranks that sum on their devices, beside ranks that sum in host memory. Host memory is in the place of NCCL here; all else is
//! what runs with it.

use feedline_schemas::{
    config::{CheckpointConfig, Collective, Compression, NotFinitePolicy, ParallelConfig},
    units::ByteSize,
};

use super::{
    guards::{hard, lenient, lines, poisoned, tensors, watchful},
    on_device::{FEW, best, bus, devices, error},
    ranks::{in_parts, on_devices, on_ranks_at},
    *,
};
use crate::{device::Backend, parallel::Group, testing::train_at};

/// The same, whose ranks sum on their devices.
fn on_device(config: &TrainConfig) -> TrainConfig {
    TrainConfig {
        parallel: ParallelConfig {
            collective: Collective::Nccl,
            ..config.parallel.clone()
        },
        ..config.clone()
    }
}

/// Loss, norm of the gradient and learning rate of each step.
fn steps(store: &Store) -> Vec<[f64; 3]> {
    let lines = lines(&contents(store), "step");
    let of_line = |line: &serde_json::Value| {
        ["loss", "gradient_norm", "learning_rate"].map(|key| line[key].as_f64().unwrap())
    };
    lines.iter().map(of_line).collect()
}

/// Trains on ranks whose reports must be good.
fn train_on_ranks(
    at: (usize, &Backend),
    config: &TrainConfig,
    make: impl Fn() -> Toy + Sync,
) -> (Store, Vec<TrainReport>) {
    let store = Store::memory();
    let reports = on_ranks_at(at, config, |_| make(), Resume::Fresh, &store);
    (store, reports.into_iter().map(Result::unwrap).collect())
}

/// Trains with sums on devices, and in host memory, and compares steps, weights and metrics.
fn check_sums(name: &str, world: usize, config: &TrainConfig, make: impl Fn() -> Toy + Sync) {
    let mut config = config.clone();
    (config.log_every, config.parallel.check_every) = (1, 1);
    // Sums in another order round to other short numbers.
    let tolerance = match config.precision {
        Precision::F32 => 1e-3,
        Precision::Bf16 | Precision::F16 => 1e-2,
    };
    for device in devices() {
        if device.check(config.precision).is_err() {
            continue;
        }
        let name = format!("{name}, {world} ranks on {}", device.name);
        let (expected, of_host) = train_on_ranks((world, &device), &config, &make);
        let (found, of_device) = train_on_ranks((world, &device), &on_device(&config), &make);
        let (steps_found, steps_expected) = (steps(&found), steps(&expected));
        assert_eq!(steps_found.len(), steps_expected.len(), "{name}");
        for (step, (found, expected)) in steps_found.iter().zip(steps_expected).enumerate() {
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (found - expected).abs() <= tolerance * expected.abs(),
                    "{name}, step {step}: {found} {expected}"
                );
            }
        }
        let (numbers, expected) = (best(&found), best(&expected));
        assert!(numbers.keys().eq(expected.keys()), "{name}");
        for (tensor, expected) in &expected {
            let error = error(&numbers[tensor], expected);
            assert!(error < 2.0 * tolerance, "{name}: {tensor}: {error}");
        }
        for report in &of_device {
            for (metric, expected) in &of_host[0].test {
                let difference = (report.test[metric] - expected).abs();
                let most = tolerance * expected.abs().max(0.1);
                assert!(difference < most, "{name}: {metric} {expected}");
            }
        }
    }
}

#[test]
fn every_optimizer_takes_the_steps_of_sums_in_host_memory() {
    use OptimizerKind::{Adafactor, Adam, Adamw, Lamb, Lars, Muon, Sgd};
    for kind in [Sgd, Adam, Adamw, Lamb, Lars, Adafactor, Muon] {
        let mut config = in_parts();
        config.optimizer.r#type = kind;
        config.learning_rate = if kind == Sgd { 0.1 } else { 0.02 };
        config.clip_norm = 0.5;
        config.average = Some(AverageConfig::default());
        // Of four ranks some have no share of so small a model.
        let with_four = (kind == Adamw).then_some((true, 4));
        for (shard_optimizer, world) in [(false, 2), (true, 2)].into_iter().chain(with_four) {
            config.parallel.shard_optimizer = shard_optimizer;
            let name = format!("{kind:?}, shares: {shard_optimizer}");
            check_sums(&name, world, &config, || regression(64));
        }
    }
}

/// Name, ranks, data, and what is asked for.
type SumCase<'a> = (
    &'a str,
    usize,
    &'a (dyn Fn() -> Toy + Sync),
    &'a dyn Fn(&mut TrainConfig),
);

#[test]
fn what_a_run_is_asked_for_happens_where_ranks_sum_on_devices() {
    // The gradient of a bias before a norm is 0 but for rounding, which Adam would make steps of.
    let batch_norm = |c: &mut TrainConfig| {
        c.model.norm = Some(NormKind::Batch);
        c.optimizer.r#type = OptimizerKind::Sgd;
    };
    let weighted = |c: &mut TrainConfig| {
        let balanced = ClassWeightRule::Balanced;
        c.loss.class_weights = Some(ClassWeights::Rule(balanced));
        c.loss.label_smoothing = Some(0.1);
    };
    let in_shares = |c: &mut TrainConfig| {
        batch_norm(c);
        c.parallel.shard_optimizer = true;
        c.freeze = vec!["layer.0.*".into()];
    };
    let cases: [SumCase<'_>; 9] = [
        ("shares", 3, &|| regression(66), &in_shares),
        ("four ranks", 4, &|| regression(64), &|_| {}),
        // The last batch has two rows: the first rank has none of them.
        ("no rows", 3, &|| regression(66), &|c| c.parallel.parts = 1),
        ("batch norm", 2, &|| regression(66), &batch_norm),
        ("class weights", 2, &|| classification(64), &weighted),
        ("class weights", 3, &|| classification(37), &weighted),
        ("frozen", 2, &|| regression(64), &|c| {
            c.freeze = vec!["layer.0.*".into()];
        }),
        ("adapters", 2, &|| regression(64), &|c| {
            c.lora = Some(LoraConfig::default());
        }),
        ("dropout", 2, &|| regression(64), &|c| c.model.dropout = 0.2),
    ];
    for (name, world, make, change) in cases {
        let mut config = in_parts();
        change(&mut config);
        check_sums(name, world, &config, make);
    }
}

/// One rank alone knows the bad row; no rank takes the step, and the row is named as by one rank.
#[test]
fn no_batch_of_nan_on_one_rank_changes_a_number_on_any() {
    let mut config = lenient();
    config.parallel = in_parts().parallel;
    config.parallel.check_every = 1;
    config.guard.max_skipped = 1000;
    for shard_optimizer in [false, true] {
        config.parallel.shard_optimizer = shard_optimizer;
        check_left_out(&config);
    }
}

fn check_left_out(config: &TrainConfig) {
    let make = || {
        let mut toy = poisoned(64);
        toy.splits[0].x[4 * 17] = f32::INFINITY;
        toy
    };
    let alone = Store::memory();
    train(config, &make(), Resume::Fresh, &alone).unwrap();
    let expected = lines(&contents(&alone), "skipped");
    assert!(expected.len() > 3);
    for device in devices() {
        let (store, reports) = train_on_ranks((2, &device), &on_device(config), make);
        let files = contents(&store);
        let skipped = lines(&files, "skipped");
        assert_eq!(skipped.len(), expected.len());
        for (found, expected) in skipped.iter().zip(&expected) {
            assert_eq!(found["samples"], expected["samples"]);
            assert_eq!(found["what"], expected["what"]);
            let step = found["step"].as_u64().unwrap();
            if step > 1 {
                assert!(tensors(&files, step) == tensors(&files, step - 1), "{step}");
            }
        }
        for report in &reports {
            assert_eq!(report.skipped_batches, expected.len() as u64);
        }
        // The same bits, if the hosts learn of it at once or only while the next batch is computed.
        let unseen = TrainConfig {
            checkpoint: CheckpointConfig {
                every_steps: 0,
                ..config.checkpoint.clone()
            },
            ..config.clone()
        };
        let (unseen, _) = train_on_ranks((2, &device), &on_device(&unseen), make);
        assert!(best(&unseen) == best(&store));
    }
}

#[test]
fn a_bad_batch_ends_the_run_on_all_ranks_with_the_error_of_one() {
    let mut config = in_parts();
    config.guard.not_finite = NotFinitePolicy::Stop;
    let alone = train(&config, &poisoned(50), Resume::Fresh, &Store::memory());
    let expected = alone.unwrap_err().to_string();
    for device in devices() {
        let make = |_| poisoned(50);
        let at = (2, &device);
        let store = Store::memory();
        for report in on_ranks_at(at, &on_device(&config), make, Resume::Fresh, &store) {
            assert_eq!(report.unwrap_err(), expected);
        }
    }
}

#[test]
fn the_length_of_the_sections_of_a_gradient_changes_no_bit() {
    for shard_optimizer in [false, true] {
        let mut config = on_device(&in_parts());
        config.parallel.shard_optimizer = shard_optimizer;
        for device in devices() {
            let trained = [0, 4, 200].map(|bytes| {
                config.parallel.bucket_bytes = ByteSize::new(bytes);
                best(&train_on_ranks((3, &device), &config, || regression(66)).0)
            });
            assert!(trained.iter().all(|weights| *weights == trained[0]));
        }
    }
}

#[test]
fn a_scale_of_the_loss_is_lowered_by_all_ranks_alike() {
    let mut config = overflowing();
    config.parallel = in_parts().parallel;
    check_sums("loss scale", 2, &config, || regression(64));
}

/// The last exchange of a step ends alone, and those of the sections before it ran beside the computation.
#[test]
fn exchanges_of_sections_are_times_beside_the_computation() {
    let mut config = on_device(&in_parts());
    (config.log_every, config.checkpoint.every_steps) = (1, 0);
    // A section for each of the four parameters of two layers, and one for all.
    for (bytes, sections) in [(4, 4.0), (0, 1.0)] {
        config.parallel.bucket_bytes = ByteSize::new(bytes);
        for device in devices() {
            let (store, _) = train_on_ranks((2, &device), &config, || regression(64));
            for line in lines(&contents(&store), "step") {
                let times = ["communication_s", "hidden_communication_s"];
                let times = times.map(|key| line[key].as_f64().unwrap());
                let difference = (times[0] - 0.5).abs() + (times[1] - 0.5 * sections).abs();
                assert!(difference < 1e-9, "{line}");
            }
        }
    }
}

/// The rank that fails has not begun the exchanges of the next step, which the other one has.
#[test]
fn a_rank_whose_next_batch_is_missing_says_so_after_a_step_that_was_left_out() {
    let mut config = on_device(&lenient());
    config.parallel.parts = in_parts().parallel.parts;
    // A checkpoint waits for its step: then no exchange is under way when the next step begins.
    (config.guard.max_skipped, config.checkpoint.every_steps) = (1000, 0);
    for device in devices() {
        let make = |rank| {
            let mut toy = poisoned(64);
            toy.splits[0].x.fill(f32::INFINITY);
            toy.short_by = rank as u64;
            toy
        };
        let store = Store::memory();
        let reports = on_ranks_at((2, &device), &config, make, Resume::Fresh, &store);
        let [first, second] = &reports[..] else {
            panic!("{reports:?}");
        };
        let error = second.as_ref().unwrap_err();
        assert!(error.contains("epoch 1 ended after"), "{error}");
        assert!(first.as_ref().unwrap_err().contains("rank 1"), "{first:?}");
    }
}

/// The steps after it are those of ranks that sum in host memory.
#[test]
fn a_divergence_takes_the_weights_of_all_ranks_back() {
    let mut config = watchful();
    config.parallel.check_every = 1;
    for shard_optimizer in [false, true] {
        config.parallel.shard_optimizer = shard_optimizer;
        check_sums("rollback", 2, &config, || hard(8));
    }
    config.parallel.shard_optimizer = false;
    for device in devices() {
        let (store, reports) = train_on_ranks((2, &device), &on_device(&config), || hard(8));
        for report in reports {
            assert_eq!((report.rollbacks, report.steps), (1, 75));
        }
        let files = contents(&store);
        let line = &lines(&files, "rollback")[0];
        assert_eq!((&line["step"], &line["to"]), (&45.into(), &35.into()));
        assert!(tensors(&files, 45) == tensors(&files, 35));
    }
}

/// The wish of one rank to stop reaches the others with the sums.
#[test]
fn ranks_that_one_of_them_stops_or_kills_resume_with_the_same_bits() {
    for shard_optimizer in [false, true] {
        let mut config = on_device(&in_parts());
        (config.log_every, config.checkpoint.every_steps) = (1, 3);
        // A batch is asked for in its step, so that the stop comes there.
        config.loader.device_prefetch = 0;
        config.average = Some(AverageConfig::default());
        config.parallel.shard_optimizer = shard_optimizer;
        check_resumed_ranks(&config);
    }
}

fn check_resumed_ranks(config: &TrainConfig) {
    for device in devices() {
        let run = |fault: Option<Fault>, resume, store: &Store| {
            let make = |rank| match &fault {
                Some(fault) if rank == 1 => regression(64).with_fault(fault.clone()),
                _ => regression(64),
            };
            on_ranks_at((2, &device), config, make, resume, store)
        };
        let undisturbed = Store::memory();
        let reports = run(None, Resume::Fresh, &undisturbed);
        for fault in [Fault::StopAt(1), Fault::StopAt(4), Fault::DieAt(7)] {
            let store = Store::memory();
            let ended = run(Some(fault.clone()), Resume::Continue, &store);
            if let Fault::StopAt(at) = fault {
                // All ranks learn of the stop in the numbers of the step, which are looked at beside the next one.
                let taken = lines(&contents(&store), "step").len() as u64;
                assert!(
                    (at + 1..=at + 3).contains(&taken),
                    "{taken} steps, stopped at {at}"
                );
            }
            for (rank, report) in ended.into_iter().enumerate() {
                let error = report.unwrap_err();
                match fault {
                    Fault::StopAt(_) => assert!(error.contains("interrupted"), "{error}"),
                    _ if rank == 0 => assert!(error.contains("rank 1"), "{error}"),
                    _ => assert!(error.contains("I/O runtime"), "{error}"),
                }
            }
            let resumed = run(None, Resume::Continue, &store);
            for (found, expected) in resumed.iter().zip(&reports) {
                let (found, expected) = (found.as_ref().unwrap(), expected.as_ref().unwrap());
                assert_eq!(found.test, expected.test, "{fault:?}");
            }
            assert!(best(&store) == best(&undisturbed), "{fault:?}");
        }
    }
}

/// The gradient is rounded, and no other sum: the first loss, before any step, is that of full numbers.
#[test]
fn short_gradients_round_nothing_else() {
    let mut config = on_device(&in_parts());
    (config.log_every, config.parallel.check_every) = (1, 1);
    let mut short = config.clone();
    short.parallel.compress = Compression::Bf16;
    let mut checked = 0;
    for device in devices() {
        if device.check(Precision::Bf16).is_err() {
            continue;
        }
        checked += 1;
        let alone = Store::memory();
        let at = (&Group::alone(), device.clone());
        train_at(at, &config, &regression(64), Resume::Fresh, &alone).unwrap();
        let (full, _) = train_on_ranks((2, &device), &config, || regression(64));
        let (rounded, _) = train_on_ranks((2, &device), &short, || regression(64));
        let (full, rounded) = (steps(&full), steps(&rounded));
        let [loss, norm, _] = rounded[0];
        assert_eq!(loss.to_bits(), full[0][0].to_bits());
        // In bf16 it would differ by up to 4e-3.
        let of_one = steps(&alone)[0][0];
        assert!((loss - of_one).abs() < 1e-5 * of_one, "{loss} {of_one}");
        let difference = (norm - full[0][1]).abs() / full[0][1];
        assert!(difference > 0.0 && difference < 4e-3, "{difference}");
        for (found, expected) in rounded.iter().zip(&full) {
            let difference = (found[0] - expected[0]).abs();
            assert!(difference < 0.02 * expected[0], "{found:?} {expected:?}");
        }
    }
    assert!(checked > 0, "no device here computes in bf16");
}

#[test]
fn a_step_of_ranks_moves_no_gradient_over_the_bus() {
    let mut config = on_device(&in_parts());
    (config.log_every, config.checkpoint.every_steps) = (1, 0);
    config.parallel.check_every = 1_000_000;
    config.model.hidden = Some(vec![256, 256]);
    config.model.dropout = 0.0;
    for device in devices() {
        let (store, _) = train_on_ranks((2, &device), &config, || regression(64));
        let steps = bus(&store);
        let per_epoch = steps.len() / usize::try_from(config.epochs).unwrap();
        let later = steps.chunks(per_epoch).flat_map(|epoch| &epoch[1..]);
        let later: Vec<[u64; 2]> = later.copied().collect();
        assert!(later.len() > 3, "{steps:?}");
        let batch = 64 * 4 * 4 + 64 * 4;
        for [up, down] in later {
            assert!(up <= batch + FEW, "{}: {up} bytes", device.name);
            assert!(down <= FEW, "{}: {down} bytes", device.name);
        }
    }
}

#[test]
fn ranks_on_different_devices_are_refused_where_they_sum_on_them() {
    let devices = ["one", "another"].map(|model| Backend {
        model: model.to_owned(),
        ..Backend::stand_in()
    });
    let devices: Vec<_> = devices.iter().collect();
    let make = |_| regression(64);
    let config = on_device(&in_parts());
    for report in on_devices(&devices, &config, make, Resume::Fresh, &Store::memory()) {
        let error = report.unwrap_err();
        for part in ["`train.parallel.collective`", "another, one", "`tcp`"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
