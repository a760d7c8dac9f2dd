//! Runs whose weights stay on a device, beside those of the processor. The device is the processor itself in the place of a
//! GPU, and in a build with `wgpu` an adapter too, where there is one.

use feedline_schemas::config::{NotFinitePolicy, ParallelConfig};
use safetensors::SafeTensors;

use super::{
    guards::{hard, lenient, lines, poisoned, tensors, watchful},
    ranks::{assert_close, in_parts, on_devices, on_ranks_at},
    *,
};
use crate::{device::Backend, model::layers::check::adapter, parallel::Group, testing::train_at};

/// The processor as a device, and an adapter where there is one.
pub(super) fn devices() -> Vec<Backend> {
    [Some(Backend::stand_in()), adapter()]
        .into_iter()
        .flatten()
        .collect()
}

/// Numbers of the newest checkpoint by tensor.
fn newest(store: &Store) -> BTreeMap<String, Vec<f32>> {
    let files = contents(store);
    let newest = files
        .iter()
        .rfind(|(path, _)| path.starts_with("checkpoints/"));
    tensors_of(newest.unwrap().1)
}

/// Numbers of a file by tensor.
fn tensors_of(bytes: &[u8]) -> BTreeMap<String, Vec<f32>> {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let numbers = |bytes: &[u8]| {
        let bytes = bytes.as_chunks::<4>().0.iter();
        bytes.map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    file.iter()
        .map(|(name, view)| (name.to_owned(), numbers(view.data())))
        .collect()
}

/// Length of the difference as a share of the length.
pub(super) fn error(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let length = |values: &mut dyn Iterator<Item = f32>| {
        let squares = values.map(|value| f64::from(value).powi(2));
        squares.sum::<f64>().sqrt()
    };
    let difference = length(&mut found.iter().zip(expected).map(|(a, b)| a - b));
    difference / length(&mut expected.iter().copied()).max(1e-6)
}

/// Trains on the processor and on each device, and compares checkpoints and losses.
fn check_devices(name: &str, config: &TrainConfig, make: fn(usize) -> Toy) {
    let expected = Store::memory();
    let report = train(config, &make(64), Resume::Fresh, &expected).unwrap();
    for device in devices() {
        if device.check(config.precision).is_err() {
            continue;
        }
        let store = Store::memory();
        let name = format!("{name} on {}", device.name);
        let found = train_at(
            (&Group::alone(), device),
            config,
            &make(64),
            Resume::Fresh,
            &store,
        )
        .unwrap();
        // Sums in another order round to other short numbers.
        let tolerance = match config.precision {
            Precision::F32 => 1e-3,
            Precision::Bf16 | Precision::F16 => 1e-2,
        };
        let (numbers, of_processor) = (newest(&store), newest(&expected));
        assert!(numbers.keys().eq(of_processor.keys()), "{name}");
        for (tensor, expected) in &of_processor {
            let error = error(&numbers[tensor], expected);
            assert!(
                error < 2.0 * tolerance,
                "{name}: {tensor} differs by {error}"
            );
        }
        for (metric, expected) in &report.test {
            let difference = (found.test[metric] - expected).abs();
            assert!(
                difference < tolerance * expected.abs().max(0.1),
                "{name}: {metric} {} {expected}",
                found.test[metric]
            );
        }
        let steps = |store: &Store| {
            let lines = lines(&contents(store), "step");
            let of_line = |line: &serde_json::Value| {
                ["loss", "gradient_norm", "learning_rate"].map(|key| line[key].as_f64().unwrap())
            };
            lines.iter().map(of_line).collect::<Vec<_>>()
        };
        let (found, expected) = (steps(&store), steps(&expected));
        assert_eq!(found.len(), expected.len(), "{name}");
        for (found, expected) in found.iter().zip(expected) {
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    (found - expected).abs() <= tolerance * expected.abs(),
                    "{name}: {found} {expected}"
                );
            }
        }
    }
}

#[test]
fn every_optimizer_moves_weights_on_a_device_as_on_the_processor() {
    use OptimizerKind::{Adafactor, Adam, Adamw, Lamb, Lars, Muon, Sgd};
    for (kind, momentum, rate) in [
        (Sgd, None, 0.1),
        (Sgd, Some(0.9), 0.02),
        (Adam, None, 0.02),
        (Adamw, None, 0.02),
        (Lamb, None, 0.02),
        (Lars, Some(0.8), 5.0),
        (Adafactor, None, 0.1),
        (Muon, None, 0.02),
    ] {
        let mut config = config();
        config.learning_rate = rate;
        (config.optimizer.r#type, config.optimizer.momentum) = (kind, momentum);
        (config.optimizer.l1, config.optimizer.l2) = (1e-4, 1e-3);
        if kind != Adam {
            config.optimizer.weight_decay = Some(0.05);
        }
        config.optimizer.group = vec![ParameterGroup {
            rate_factor: 0.5,
            ..group("layer.0.*")
        }];
        config.clip_norm = 0.5;
        check_devices(&format!("{kind:?} {momentum:?}"), &config, regression);
    }
}

fn group(parameters: &str) -> ParameterGroup {
    ParameterGroup {
        parameters: parameters.into(),
        rate_factor: 1.0,
        weight_decay: None,
        l2: None,
        l1: None,
    }
}

/// Name, data, and what is asked for.
type DeviceCase<'a> = (&'a str, fn(usize) -> Toy, &'a dyn Fn(&mut TrainConfig));

#[test]
fn what_a_run_is_asked_for_happens_on_a_device_too() {
    // The gradient of a bias before a norm is 0 but for rounding, which Adam would make steps of.
    let batch_norm = |c: &mut TrainConfig| {
        c.model.norm = Some(NormKind::Batch);
        c.optimizer.r#type = OptimizerKind::Sgd;
    };
    let cases: [DeviceCase<'_>; 8] = [
        ("classes", classification, &|c| {
            c.loss.label_smoothing = Some(0.1);
        }),
        ("average", regression, &|c| {
            c.average = Some(AverageConfig {
                decay: 0.9,
                warmup: true,
            });
        }),
        ("batch norm", regression, &batch_norm),
        ("micro-batches", regression, &|c| c.micro_batch = Some(16)),
        ("parts", regression, &|c| {
            c.parallel = ParallelConfig {
                parts: 4,
                ..ParallelConfig::default()
            };
        }),
        ("frozen", regression, &|c| {
            c.freeze = vec!["layer.0.*".into()]
        }),
        ("adapters", regression, &|c| {
            c.lora = Some(LoraConfig::default());
        }),
        ("bf16", regression, &|c| c.precision = Precision::Bf16),
    ];
    for (name, make, change) in cases {
        let mut config = config();
        change(&mut config);
        check_devices(name, &config, make);
    }
}

/// Stops or dies on a device, resumes there, and compares everything with the undisturbed run, bit by bit.
fn check_resumed_on(
    device: &Backend,
    config: &TrainConfig,
    make: fn(usize) -> Toy,
    faults: &[Fault],
) {
    if device.check(config.precision).is_err() {
        return;
    }
    let run = |toy: &Toy, resume, store: &Store| {
        train_at(
            (&Group::alone(), device.clone()),
            config,
            toy,
            resume,
            store,
        )
    };
    let undisturbed = Store::memory();
    let report = run(&make(64), Resume::Fresh, &undisturbed).unwrap();
    let expected = finished(&undisturbed, report);
    let store = Store::memory();
    for fault in faults {
        let toy = make(64).with_fault(fault.clone());
        run(&toy, Resume::Continue, &store).unwrap_err();
    }
    let report = run(&make(64), Resume::Continue, &store).unwrap();
    let (files, report) = finished(&store, report);
    assert_eq!(report, expected.1, "{faults:?}");
    for ((path, bytes), (expected_path, expected_bytes)) in
        last(&files).iter().zip(&last(&expected.0))
    {
        assert_eq!(path, expected_path, "{faults:?}");
        assert!(bytes == expected_bytes, "{path} differs: {faults:?}");
    }
}

#[test]
fn a_run_on_a_device_that_is_stopped_and_resumed_has_the_same_bits() {
    let mut config = lenient();
    config.checkpoint.every_steps = 3;
    for device in devices() {
        for fault in [
            Fault::StopAt(1),
            Fault::StopAt(4),
            Fault::DieAt(7),
            Fault::DieAt(8),
            Fault::StopInValidation(1),
        ] {
            check_resumed_on(&device, &config, regression, &[fault]);
        }
        check_resumed_on(&device, &config, poisoned, &[Fault::StopAt(3)]);
        check_resumed_on(
            &device,
            &overflowing(),
            regression,
            &[Fault::StopAt(1), Fault::StopAt(5)],
        );
    }
    let stand_in = Backend::stand_in();
    for step in [42, 44, 45, 46] {
        check_resumed_on(&stand_in, &watchful(), hard, &[Fault::StopAt(step)]);
    }
}

/// Numbers of a bad batch change nothing, if the host learns of it at once or only while the next one is computed.
#[test]
fn no_batch_of_nan_changes_a_number_on_a_device() {
    let mut config = lenient();
    config.guard.max_skipped = 1000;
    config.epochs = 34;
    let run = |device: Backend, every_steps| {
        let store = Store::memory();
        let config = TrainConfig {
            checkpoint: feedline_schemas::config::CheckpointConfig {
                every_steps,
                keep: 999,
                ..config.checkpoint.clone()
            },
            ..config.clone()
        };
        // Three of the four batches of an epoch have such a row.
        let mut toy = poisoned(64);
        toy.splits[0].x[4 * 17] = f32::INFINITY;
        toy.splits[0].x[4 * 180] = f32::NAN;
        let report = train_at(
            (&Group::alone(), device),
            &config,
            &toy,
            Resume::Fresh,
            &store,
        )
        .unwrap();
        (store, report)
    };
    for device in devices() {
        let (store, report) = run(device.clone(), 1);
        let files = contents(&store);
        let skipped = lines(&files, "skipped");
        assert!(skipped.len() >= 68, "{}", skipped.len());
        assert_eq!(report.skipped_batches, skipped.len() as u64);
        for line in &skipped {
            let step = line["step"].as_u64().unwrap();
            if step > 1 {
                assert!(tensors(&files, step) == tensors(&files, step - 1), "{step}");
            }
        }
        let (unseen, late) = run(device, 0);
        assert_eq!(late.skipped_batches, report.skipped_batches);
        assert!(newest(&unseen) == newest(&store), "the same bits");
    }
}

#[test]
fn a_device_reports_the_same_faults_as_the_processor() {
    let mut strict = config();
    strict.checkpoint.every_steps = 0;
    let refused = |config: &TrainConfig, toy: &Toy, device: Option<Backend>| {
        let store = Store::memory();
        let run = match device {
            Some(device) => train_at(
                (&Group::alone(), device),
                config,
                toy,
                Resume::Fresh,
                &store,
            ),
            None => train(config, toy, Resume::Fresh, &store),
        };
        run.unwrap_err().to_string()
    };
    let mut watchful = watchful();
    watchful.guard.max_rollbacks = 0;
    watchful.guard.not_finite = NotFinitePolicy::Stop;
    let at_floor = || {
        let mut config = overflowing();
        let scale = config.loss_scale.as_mut().unwrap();
        scale.floor = scale.initial;
        config
    };
    for device in devices() {
        let of = |config: &TrainConfig, toy: &Toy| {
            let expected = refused(config, toy, None);
            (refused(config, toy, Some(device.clone())), expected)
        };
        let (found, expected) = of(&strict, &poisoned(50));
        assert_eq!(found, expected);
        if device.check(Precision::F16).is_ok() {
            let (found, expected) = of(&at_floor(), &regression(64));
            let before_value = |text: &str| text.split(" is ").next().unwrap().to_owned();
            assert_eq!(before_value(&found), before_value(&expected));
        }
        let (found, expected) = of(&watchful, &hard(8));
        let before_loss = |text: &str| text.split("the loss is").next().unwrap().to_owned();
        assert_eq!(before_loss(&found), before_loss(&expected));
    }
}

#[test]
fn a_divergence_on_a_device_takes_the_weights_back() {
    for device in devices() {
        let store = Store::memory();
        let report = train_at(
            (&Group::alone(), device),
            &watchful(),
            &hard(8),
            Resume::Fresh,
            &store,
        )
        .unwrap();
        assert_eq!((report.rollbacks, report.steps), (1, 75));
        let files = contents(&store);
        let line = &lines(&files, "rollback")[0];
        assert_eq!((&line["step"], &line["to"]), (&45.into(), &35.into()));
        assert!(tensors(&files, 45) == tensors(&files, 35));
        assert!(tensors(&files, 40) != tensors(&files, 35));
    }
}

#[test]
fn a_checkpoint_of_one_device_is_read_on_another() {
    let mut config = lenient();
    config.checkpoint.every_steps = 3;
    let expected = Store::memory();
    train(&config, &regression(64), Resume::Fresh, &expected).unwrap();
    for device in devices() {
        for device_first in [true, false] {
            let store = Store::memory();
            let run = |on_device: bool, toy: &Toy| match on_device {
                true => train_at(
                    (&Group::alone(), device.clone()),
                    &config,
                    toy,
                    Resume::Continue,
                    &store,
                ),
                false => train(&config, toy, Resume::Continue, &store),
            };
            let stopped = regression(64).with_fault(Fault::StopAt(5));
            run(device_first, &stopped).unwrap_err();
            run(!device_first, &regression(64)).unwrap();
            let found = newest(&store);
            for (tensor, expected) in &newest(&expected) {
                let error = error(&found[tensor], expected);
                assert!(error < 2e-3, "{tensor} differs by {error}");
            }
        }
    }
}

#[test]
fn ranks_on_devices_train_what_one_rank_does() {
    let expected = Store::memory();
    let alone = train(&in_parts(), &regression(64), Resume::Fresh, &expected).unwrap();
    for device in devices() {
        let store = Store::memory();
        let at = (2, &device);
        let reports = on_ranks_at(at, &in_parts(), |_| regression(64), Resume::Fresh, &store);
        for report in reports {
            assert_close(&report.unwrap(), &alone);
        }
    }
}

/// Ranks whose optimizer is on the device, whole or in shares.
#[test]
fn ranks_move_weights_on_their_devices_as_on_the_processor() {
    use OptimizerKind::{Adafactor, Adamw, Lamb, Lars, Muon, Sgd};
    for (kind, shard_optimizer) in [
        (Sgd, false),
        (Adamw, false),
        (Lars, true),
        (Lamb, true),
        (Adafactor, true),
        (Muon, true),
    ] {
        let mut config = in_parts();
        config.optimizer.r#type = kind;
        config.parallel.shard_optimizer = shard_optimizer;
        config.parallel.check_every = 1;
        config.clip_norm = 0.5;
        config.average = Some(AverageConfig::default());
        // The gradient of a bias before such a norm is 0 but for rounding.
        let has_norm = matches!(kind, Sgd | Lars);
        if has_norm {
            config.model.norm = Some(NormKind::Batch);
        }
        let counts = |tensor: &str| {
            !(has_norm && tensor.starts_with("parameter.layer.") && tensor.ends_with("bias"))
        };
        let on = |device: &Backend| {
            let store = Store::memory();
            let make = |_| regression(64);
            let reports = on_ranks_at((2, device), &config, make, Resume::Fresh, &store);
            let reports = reports.into_iter().map(Result::unwrap);
            (store, reports.collect::<Vec<_>>())
        };
        let (expected, of_processor) = on(&Backend::cpu());
        for device in devices() {
            let name = format!("{kind:?} on {}", device.name);
            let (store, reports) = on(&device);
            for report in &reports {
                assert_close(report, &of_processor[0]);
            }
            let (found, expected) = (best(&store), best(&expected));
            assert!(found.keys().eq(expected.keys()), "{name}");
            for (tensor, expected) in expected.iter().filter(|(tensor, _)| counts(tensor)) {
                let error = error(&found[tensor], expected);
                assert!(error < 2e-3, "{name}: {tensor} differs by {error}");
            }
        }
    }
}

/// Numbers of the best weights by tensor.
pub(super) fn best(store: &Store) -> BTreeMap<String, Vec<f32>> {
    let files = contents(store);
    tensors_of(&files["best.safetensors"])
}

#[test]
fn ranks_on_devices_that_are_stopped_resume_with_the_same_bits() {
    let mut config = in_parts();
    config.checkpoint.every_steps = 3;
    config.parallel.shard_optimizer = true;
    for device in devices() {
        let run = |fault: Option<Fault>, resume, store: &Store| {
            let make = |rank| match &fault {
                Some(fault) if rank == 1 => regression(64).with_fault(fault.clone()),
                _ => regression(64),
            };
            on_ranks_at((2, &device), &config, make, resume, store)
        };
        let undisturbed = Store::memory();
        let reports = run(None, Resume::Fresh, &undisturbed);
        let store = Store::memory();
        for report in run(Some(Fault::StopAt(4)), Resume::Continue, &store) {
            report.unwrap_err();
        }
        let resumed = run(None, Resume::Continue, &store);
        for (found, expected) in resumed.iter().zip(&reports) {
            let (found, expected) = (found.as_ref().unwrap(), expected.as_ref().unwrap());
            assert_eq!(found.test, expected.test);
        }
        assert!(best(&store) == best(&undisturbed), "{}", device.name);
    }
}

/// Weights would drift apart where each device rounds in its own way.
#[test]
fn ranks_on_different_devices_move_weights_on_the_processor_and_say_so() {
    let stand_in = Backend::stand_in();
    let other = Backend {
        model: "another".to_owned(),
        ..Backend::stand_in()
    };
    let mut config = in_parts();
    config.log_every = 1;
    for (second, warns) in [(&other, true), (&stand_in, false)] {
        let store = Store::memory();
        let make = |_| regression(64);
        let devices = [&stand_in, second];
        let reports = on_devices(&devices, &config, make, Resume::Fresh, &store);
        for report in reports {
            let warnings = report.unwrap().warnings;
            let found = warnings.iter().find(|w| w.code == "different_devices");
            assert_eq!(found.is_some(), warns);
            if let Some(warning) = found {
                assert!(
                    warning.message.contains("another, cpu"),
                    "{}",
                    warning.message
                );
                assert_eq!(warning.key.as_deref(), Some("train.device"));
            }
        }
    }
}

/// Bytes of each step that was followed by no checkpoint: to the device, and from it.
pub(super) fn bus(store: &Store) -> Vec<[u64; 2]> {
    let lines = lines(&contents(store), "step");
    let of_line = |line: &serde_json::Value| {
        ["bytes_to_device", "bytes_from_device"].map(|key| line[key].as_u64().unwrap())
    };
    lines.iter().map(of_line).collect()
}

/// Smallest count of other bytes that a step may move.
pub(super) const FEW: u64 = 4096;

#[test]
fn a_step_moves_its_batch_over_the_bus_and_no_weights() {
    let mut config = config();
    (config.log_every, config.checkpoint.every_steps) = (1, 0);
    config.model.hidden = Some(vec![256, 256]);
    config.model.dropout = 0.2;
    config.average = Some(AverageConfig::default());
    for device in devices() {
        let store = Store::memory();
        let toy = regression(64);
        let at = (&Group::alone(), device.clone());
        train_at(at, &config, &toy, Resume::Fresh, &store).unwrap();
        let batch = 64 * 4 * 4 + 64 * 4;
        let is_processor = crate::device::is_processor(&device.device);
        let mask = if is_processor { 64 * 512 * 4 } else { 0 };
        let steps = bus(&store);
        // The first takes the weights to the device, the first after an epoch those of the validation.
        let per_epoch = steps.len() / usize::try_from(config.epochs).unwrap();
        let later = steps.chunks(per_epoch).flat_map(|epoch| &epoch[1..]);
        let later: Vec<[u64; 2]> = later.copied().collect();
        assert!(later.len() > 3, "{steps:?}");
        for [up, down] in later {
            assert!(up <= batch + mask + FEW, "{}: {up} bytes", device.name);
            assert!(down <= FEW, "{}: {down} bytes", device.name);
        }
        let weights = 4 * (256 * 256 + 5 * 256);
        assert!(steps[0][0] > weights, "{steps:?}");
    }
}
