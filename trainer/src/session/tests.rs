//! Stories of runs on a toy dataset.

#[cfg(feature = "mpi")]
mod mpi;
mod ranks;

use std::collections::BTreeMap;

use feedline_schemas::{
    Classified as _, ErrorKind,
    checkpoint::CheckpointHeader,
    config::{
        AverageConfig, ClassWeightRule, ClassWeights, LoraConfig, LossKind, LossScaleConfig,
        NormKind, OptimizerKind, ParameterGroup, Precision, ScheduleKind, TrainConfig,
    },
    manifest::Split,
    report::{EarlyStop, TrainReport},
};
use feedline_storage::Store;

use crate::{
    Error, Resume,
    checkpoint::Expected,
    optim::optimizer::StateLayout,
    reporting::tensorboard::{self, tests::behind_the_version},
    testing::{Column, Fault, Toy, classification, config, contents, plan, regression, train},
};

mod device_sums;
mod guards;
mod injections;
mod on_device;
mod overflow;
mod saving;
mod shares;

/// Files of a finished run by path, and its report; rates and times in `metrics.jsonl` set to zero. Event files are
/// left out: they must follow from `metrics.jsonl`.
fn finished(store: &Store, report: TrainReport) -> (Vec<(String, Vec<u8>)>, TrainReport) {
    let (events, files): (BTreeMap<_, _>, BTreeMap<_, _>) = contents(store)
        .into_iter()
        .partition(|(path, _)| path.starts_with("events/"));
    let events = events.values().flat_map(|part| behind_the_version(part));
    let lines = String::from_utf8_lossy(&files["metrics.jsonl"]);
    assert!(events.copied().eq(tensorboard::events(&lines)));
    let steady = |path: &str, bytes: Vec<u8>| {
        if path == "metrics.jsonl" {
            without_times(&bytes)
        } else {
            bytes
        }
    };
    let files = files
        .into_iter()
        .map(|(path, bytes)| (path.clone(), steady(&path, bytes)))
        .collect();
    (
        files,
        TrainReport {
            data_wait_share: 0.0,
            resumed_at: None,
            ..report
        },
    )
}

fn without_times(bytes: &[u8]) -> Vec<u8> {
    let mut text = String::new();
    for line in String::from_utf8_lossy(bytes).lines() {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(line) = line.as_object_mut() {
            for time in [
                "communication_s",
                "hidden_communication_s",
                "rank_step_s",
                "slowest_rank",
                "slowest_ratio",
            ] {
                line.remove(time);
            }
        }
        for time in [
            "samples_per_s",
            "data_wait_share",
            "save_stall_s",
            "memory_bytes",
            "bytes_to_device",
            "bytes_from_device",
            "unix_s",
        ] {
            if line.get(time).is_some() {
                line[time] = 0.into();
            }
        }
        text += &(line.to_string() + "\n");
    }
    text.into_bytes()
}

fn undisturbed(config: &TrainConfig, toy: &Toy) -> (Vec<(String, Vec<u8>)>, TrainReport) {
    let store = Store::memory();
    let report = train(config, toy, Resume::Fresh, &store).unwrap();
    finished(&store, report)
}

/// Trains with faults, resuming after each, and compares everything with the undisturbed run.
fn check_resumed(config: &TrainConfig, make: fn(usize) -> Toy, faults: &[Fault]) {
    let expected = undisturbed(config, &make(64));
    let store = Store::memory();
    for fault in faults {
        let toy = make(64).with_fault(fault.clone());
        let error = train(config, &toy, Resume::Continue, &store).unwrap_err();
        let interrupted = matches!(fault, Fault::StopAt(_) | Fault::StopInValidation(_));
        assert_eq!(error.kind() == ErrorKind::Cancelled, interrupted, "{error}");
    }
    let report = train(config, &make(64), Resume::Continue, &store).unwrap();
    let (files, report) = finished(&store, report);
    assert_eq!(report, expected.1, "{faults:?}");
    for ((path, bytes), (expected_path, expected_bytes)) in
        last(&files).iter().zip(&last(&expected.0))
    {
        assert_eq!(path, expected_path, "{faults:?}");
        assert!(bytes == expected_bytes, "{path} differs: {faults:?}");
    }
}

/// The files a resumed run must have in common with an undisturbed one: checkpoints of interruptions are extra.
fn last(files: &[(String, Vec<u8>)]) -> Vec<(String, Vec<u8>)> {
    let newest = files
        .iter()
        .rfind(|(path, _)| path.starts_with("checkpoints/"))
        .cloned();
    files
        .iter()
        .filter(|(path, _)| !path.starts_with("checkpoints/"))
        .cloned()
        .chain(newest)
        .collect()
}

#[test]
fn stopping_at_each_step_and_resuming_equals_never_having_stopped() {
    let (config, steps) = (config(), 3 * 4);
    for step in 0..steps {
        check_resumed(&config, regression, &[Fault::StopAt(step)]);
    }
    check_resumed(&config, classification, &[Fault::StopAt(7)]);
}

#[test]
fn dying_at_each_step_and_resuming_from_the_last_checkpoint_equals_never_having_died() {
    let mut config = config();
    config.checkpoint.every_steps = 3;
    for step in 0..3 * 4 {
        check_resumed(&config, regression, &[Fault::DieAt(step)]);
    }
}

#[test]
fn a_run_stopped_again_and_again_equals_one_never_stopped() {
    let mut config = config();
    config.patience = 2;
    let faults: Vec<_> = std::iter::repeat_n(Fault::StopAt(0), 5)
        .chain([Fault::DieAt(2), Fault::StopAt(1)])
        .collect();
    check_resumed(&config, regression, &faults);
}

#[test]
fn a_run_that_patience_ends_says_so() {
    let mut config = config();
    // A rate that moves no weight, so no epoch is better than the first.
    (config.learning_rate, config.epochs, config.patience) = (1e-30, 9, 2);
    let (_, report) = undisturbed(&config, &regression(64));
    let stop = EarlyStop {
        planned_epochs: 9,
        patience: 2,
    };
    assert_eq!((report.epochs, report.best_epoch), (3, 1));
    assert_eq!(report.stopped_early, Some(stop));
    config.patience = 0;
    let (_, report) = undisturbed(&config, &regression(64));
    assert_eq!((report.epochs, report.stopped_early), (9, None));
}

#[test]
fn stopping_during_validation_measures_the_epoch_again() {
    for pass in 0..3 {
        check_resumed(&config(), regression, &[Fault::StopInValidation(pass)]);
    }
}

#[test]
fn every_optimizer_learns_and_resumes_bit_for_bit() {
    use OptimizerKind::{Adafactor, Adam, Adamw, Lamb, Lars, Muon, Sgd};
    let mut results = Vec::new();
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
        config.optimizer.l1 = 1e-4;
        let faults = [Fault::StopAt(1), Fault::StopAt(4), Fault::DieAt(1)];
        check_resumed(&config, regression, &faults);
        config.epochs = 30;
        let (_, report) = undisturbed(&config, &regression(64));
        let share = report.test["rmse"] / report.baseline["rmse"];
        assert!(share < 0.7, "{kind:?}, momentum {momentum:?}: {share}");
        results.push(report.test["rmse"].to_bits());
    }
    results.sort_unstable();
    results.dedup();
    assert_eq!(results.len(), 8, "each optimizer has a course of its own");
}

/// Two classes; the second is rarer.
fn two_classes(batch: usize) -> Toy {
    let mut toy = classification(batch);
    for rows in &mut toy.splits {
        let Column::Classes(y) = &mut rows.y else {
            unreachable!()
        };
        y.iter_mut().for_each(|y| *y = i32::from(*y == 0));
    }
    toy
}

#[test]
fn every_loss_learns_and_resumes_bit_for_bit() {
    use LossKind::{BinaryCrossEntropy, CrossEntropy, Huber, Mae, Mse, Quantile};
    for (kind, make, better) in [
        (Mse, regression as fn(usize) -> Toy, "rmse"),
        (Mae, regression, "mae"),
        (Huber, regression, "mae"),
        (Quantile, regression, "mae"),
        (CrossEntropy, classification, "cross_entropy"),
        (CrossEntropy, two_classes, "cross_entropy"),
        (BinaryCrossEntropy, two_classes, "cross_entropy"),
    ] {
        let mut config = config();
        config.loss.r#type = Some(kind);
        if kind == CrossEntropy {
            config.loss.label_smoothing = Some(0.05);
            let balanced = ClassWeightRule::Balanced;
            config.loss.class_weights = Some(ClassWeights::Rule(balanced));
        }
        let faults = [Fault::StopAt(1), Fault::StopAt(3), Fault::DieAt(1)];
        check_resumed(&config, make, &faults);
        config.epochs = 30;
        let (_, report) = undisturbed(&config, &make(64));
        let share = report.test[better] / report.baseline[better];
        assert!(share < 0.6, "{kind:?}: {share}");
        if let Some(auc) = report.test.get("auc") {
            assert!(*auc > 0.95, "{kind:?}: {report:?}");
        }
    }
}

#[test]
fn a_quantile_is_measured_beside_the_best_constant_of_the_other_rows() {
    let mut config = config();
    config.loss.r#type = Some(LossKind::Quantile);
    config.loss.quantile = Some(0.9);
    let (_, report) = undisturbed(&config, &regression(64));
    for metrics in [
        &report.test,
        &report.baseline,
        &report.validation,
        &report.validation_baseline,
    ] {
        assert!(metrics["pinball"] > 0.0, "{metrics:?}");
        assert!((0.0..=1.0).contains(&metrics["coverage"]), "{metrics:?}");
    }
    assert!(report.baseline["coverage"] > 0.89, "{report:?}");
}

#[test]
fn a_wrong_record_of_the_validation_split_is_the_worst_sample() {
    let mut config = config();
    config.epochs = 20;
    let make = |batch| {
        let mut toy = regression(batch);
        let Column::Numbers(y) = &mut toy.splits[1].y else {
            unreachable!()
        };
        (y[41], y[7]) = (9.0, -7.0);
        toy
    };
    check_resumed(&config, make, &[Fault::StopAt(30), Fault::StopAt(9)]);
    let (_, report) = undisturbed(&config, &make(64));
    let rows: Vec<u64> = report
        .worst
        .iter()
        .filter_map(|sample| sample.row)
        .collect();
    assert_eq!((rows.len(), &rows[..2]), (20, &[41, 7][..]));
    assert!(report.worst.is_sorted_by(|a, b| a.loss >= b.loss));
    assert_eq!(report.worst[0].key, format!("{:016x}", 41));
}

#[test]
fn an_average_of_the_weights_is_what_is_validated_and_kept() {
    let mut config = config();
    config.average = Some(AverageConfig {
        decay: 0.9,
        warmup: true,
    });
    let faults = [Fault::StopAt(1), Fault::StopAt(4), Fault::DieAt(1)];
    check_resumed(&config, regression, &faults);
    let store = Store::memory();
    let report = train(&config, &regression(64), Resume::Fresh, &store).unwrap();
    let plan = plan(&config, &regression(64));
    let engine = crate::testing::engine(&plan);
    let layout = engine.model().layout();
    let parameters = layout.entries();
    let state = &plan.settings.optimizer_state(layout.trained_entries());
    let path = "checkpoints/step-00000012.safetensors";
    let expected = Expected { parameters, state };
    let last = crate::checkpoint::decode(path, &contents(&store)[path], expected).unwrap();
    // Validation gets better to the end here, so the average after the last step is the best.
    assert_eq!(report.best_epoch, 3, "{report:?}");
    assert!(last.average.is_some() && last.average == last.best);
    assert!(last.average.as_ref() != Some(&last.parameters));
    config.average = None;
    let (_, plain) = undisturbed(&config, &regression(64));
    assert_ne!(plain.validation, report.validation);
}

#[test]
fn validation_measures_without_label_smoothing() {
    let mut config = config();
    config.loss.label_smoothing = Some(0.3);
    let (files, _) = undisturbed(&config, &classification(64));
    let lines = files.into_iter().find(|(path, _)| path == "metrics.jsonl");
    let text = String::from_utf8(lines.unwrap().1).unwrap();
    let mut epochs = 0;
    for line in text.lines().filter(|line| line.contains("validation_loss")) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let number = |name: &str| line[name].as_f64().unwrap();
        let difference = number("validation_loss") - number("validation_cross_entropy");
        assert!(difference.abs() < 1e-6, "{line}");
        epochs += 1;
    }
    assert_eq!(epochs, 3);
}

#[test]
fn a_plateau_remembers_across_resumes_and_lowers_the_rate() {
    let mut config = config();
    (config.epochs, config.schedule.r#type) = (8, ScheduleKind::Plateau);
    // Every epoch is one too many.
    (config.schedule.patience, config.schedule.threshold) = (Some(1), Some(0.99));
    config.schedule.factor = Some(0.5);
    let faults = [9, 1, 3, 2, 4].map(Fault::StopAt);
    check_resumed(&config, regression, &faults);
    let (files, _) = undisturbed(&config, &regression(64));
    let lines = files.into_iter().find(|(path, _)| path == "metrics.jsonl");
    let text = String::from_utf8(lines.unwrap().1).unwrap();
    let rates: Vec<f64> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter_map(|line| line["learning_rate"].as_f64())
        .collect();
    let expected = |step: u64| match step {
        0..=2 => 0.02 * (2.0 / 3.0),
        3..=12 => 0.02,
        13..=20 => 0.01,
        21..=28 => 0.005,
        _ => 0.0025,
    };
    assert_eq!(rates.len(), 16);
    for (rate, step) in rates.iter().zip((2..).step_by(2)) {
        assert!((rate - expected(step)).abs() < 1e-12, "step {step}: {rate}");
    }
}

#[test]
fn a_group_with_factor_0_stays_as_it_was() {
    let mut config = config();
    config.optimizer.group = vec![ParameterGroup {
        parameters: "layer.0.*".into(),
        rate_factor: 0.0,
        weight_decay: None,
        l2: None,
        l1: None,
    }];
    let store = Store::memory();
    train(&config, &regression(64), Resume::Fresh, &store).unwrap();
    let plan = plan(&config, &regression(64));
    let engine = crate::testing::engine(&plan);
    let parameters = engine.model().parameters();
    let expected = Expected {
        parameters,
        state: &plan
            .settings
            .optimizer_state(engine.model().layout().trained_entries()),
    };
    let path = "checkpoints/step-00000012.safetensors";
    let newest = crate::checkpoint::decode(path, &contents(&store)[path], expected).unwrap();
    let initial = engine.model().initial(config.seed);
    for parameter in parameters {
        let range = parameter.range.clone();
        let same = newest.parameters[range.clone()] == initial[range];
        assert_eq!(
            same,
            parameter.name.starts_with("layer.0."),
            "{parameter:?}"
        );
    }
}

#[test]
fn two_runs_with_one_seed_have_the_same_bits_and_another_seed_has_others() {
    let first = undisturbed(&config(), &regression(64));
    assert!(first == undisturbed(&config(), &regression(64)));
    let other = TrainConfig {
        seed: feedline_schemas::ids::Seed::new(6),
        ..config()
    };
    assert_ne!(undisturbed(&other, &regression(64)).1.test, first.1.test);
}

#[test]
fn regression_on_a_smooth_function_beats_the_mean_clearly() {
    let mut config = config();
    (config.epochs, config.model.hidden, config.model.dropout) = (60, Some(vec![32, 32]), 0.0);
    let report = train(&config, &regression(32), Resume::Fresh, &Store::memory()).unwrap();
    assert!(
        report.test["rmse"] < 0.15 * report.baseline["rmse"],
        "{report:?}"
    );
    assert!(report.test["r2"] > 0.95, "{report:?}");
}

#[test]
fn classification_of_three_regions_is_nearly_always_right() {
    let mut config = config();
    (config.epochs, config.model.hidden) = (60, Some(vec![32]));
    let report = train(
        &config,
        &classification(32),
        Resume::Fresh,
        &Store::memory(),
    )
    .unwrap();
    assert!(report.test["accuracy"] > 0.9, "{report:?}");
    assert!(report.baseline["accuracy"] < 0.5, "{report:?}");
}

#[test]
fn early_stopping_returns_the_best_weights() {
    // Noise to fit: validation gets worse while training gets better.
    let mut toy = regression(32);
    let Column::Numbers(y) = &mut toy.splits[0].y else {
        unreachable!()
    };
    y.iter_mut()
        .zip(crate::testing::uniform(200, 70))
        .for_each(|(y, noise)| *y += 2.0 * noise);
    let mut config = config();
    (config.epochs, config.patience, config.model.hidden) = (200, 3, Some(vec![64]));
    let store = Store::memory();
    let report = train(&config, &toy, Resume::Fresh, &store).unwrap();
    assert!(
        report.epochs < 200 && report.epochs == report.best_epoch + 3,
        "{report:?}"
    );

    let plan = plan(&config, &toy);
    let engine = crate::testing::engine(&plan);
    let files = contents(&store);
    let parameters = engine.model().parameters();
    let read = |path: &str, state: &StateLayout| {
        let expected = Expected { parameters, state };
        crate::checkpoint::decode(path, &files[path], expected).unwrap()
    };
    let best = read("best.safetensors", &vec![]).parameters;
    let newest = files
        .keys()
        .rfind(|path| path.starts_with("checkpoints/"))
        .unwrap();
    let newest = read(
        newest,
        &plan
            .settings
            .optimizer_state(engine.model().layout().trained_entries()),
    );
    assert!(
        newest.best.as_ref() == Some(&best),
        "kept in the checkpoint too"
    );
    assert!(newest.parameters != best);
    let measured = |bucket: &[f32], split| {
        let at = Default::default();
        let ranks = crate::parallel::Ranks::alone();
        let watch = super::Watch {
            progress: &feedline_schemas::progress::Silent,
            clock: &feedline_storage::clock::SystemClock,
            stop: &toy.stop,
            tracker: &Default::default(),
            ranks: &ranks,
        };
        let evaluation = super::evaluate(&plan, &engine, &toy, bucket, split, at, watch);
        evaluation.unwrap().unwrap()
    };
    let of_best = measured(&best, Split::Validation);
    assert_eq!(of_best.metrics(), report.validation);
    assert_eq!(measured(&best, Split::Test).metrics(), report.test);
    assert!(of_best.loss() < measured(&newest.parameters, Split::Validation).loss());
}

#[test]
fn a_bad_sample_stops_before_the_weights_change_and_is_named() {
    for poison in [f32::NAN, f32::INFINITY, 1e38] {
        let mut toy = regression(50);
        let Column::Numbers(y) = &mut toy.splits[0].y else {
            unreachable!()
        };
        y[137] = poison;
        let mut config = config();
        config.checkpoint.every_steps = 1;
        let store = Store::memory();
        let error = train(&config, &toy, Resume::Fresh, &store).unwrap_err();
        let Error::NotFinite { step, keys, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(keys, &format!("`{:016x}`", 137), "{error}");
        let taken = step.get() - 1;
        // The weights in the last checkpoint are those of a run whose batches were all good up to there.
        let good = regression(50).with_fault(Fault::StopAt(taken - 1));
        let other = Store::memory();
        assert!(train(&config, &good, Resume::Fresh, &other).is_err());
        let path = format!("checkpoints/step-{taken:08}.safetensors");
        assert!(
            contents(&store)[&path] == contents(&other)[&path],
            "poison {poison}"
        );
        let next = format!("checkpoints/step-{:08}.safetensors", step.get());
        assert!(!contents(&store).contains_key(&next));
    }
}

#[test]
fn a_bad_validation_sample_is_named() {
    let mut toy = regression(50);
    toy.splits[1].x[4 * 7] = f32::NAN;
    let error = train(&config(), &toy, Resume::Fresh, &Store::memory())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("validation split is `NaN`") && error.contains("`0000000000000007`"),
        "{error}"
    );
    assert!(error.contains("`train.guard.not_finite` holds for training batches only"));
}

#[test]
fn a_bad_test_sample_is_a_warning_and_the_trained_weights_are_kept() {
    let good = undisturbed(&config(), &regression(50)).1;
    let mut toy = regression(50);
    toy.splits[2].x[4 * 7] = f32::NAN;
    let store = Store::memory();
    let report = train(&config(), &toy, Resume::Fresh, &store).unwrap();
    assert!(report.test.is_empty() && report.baseline.is_empty());
    assert!(report.test_diagnostics.is_none());
    assert_eq!(report.validation, good.validation);
    let mut warnings = report.warnings.iter();
    let warning = warnings.find(|warning| warning.code == "test_not_finite");
    let message = &warning.unwrap().message;
    assert!(
        message.contains("test split is `NaN`") && message.contains("`0000000000000007`"),
        "{message}"
    );
    assert!(contents(&store).contains_key("best.safetensors"));
    let again = train(&config(), &toy, Resume::Continue, &store).unwrap();
    assert_eq!(again.warnings, report.warnings);
}

#[test]
fn a_class_id_out_of_range_is_refused() {
    let mut toy = classification(50);
    let Column::Classes(y) = &mut toy.splits[1].y else {
        unreachable!()
    };
    y[3] = 3;
    let error = train(&config(), &toy, Resume::Fresh, &Store::memory()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert!(
        error
            .to_string()
            .contains("key `0000000000000003` has class id 3, ids are below 3"),
        "{error}"
    );
}

#[test]
fn a_damaged_checkpoint_falls_back_to_the_one_before() {
    let config = config();
    let expected = undisturbed(&config, &regression(64));
    let store = Store::memory();
    let toy = regression(64).with_fault(Fault::StopAt(9));
    assert!(train(&config, &toy, Resume::Fresh, &store).is_err());
    damage(&store, "checkpoints/step-00000010.safetensors");
    let mut report = train(&config, &regression(64), Resume::Continue, &store).unwrap();
    let warning = report.warnings.pop().expect("the damaged one is reported");
    assert_eq!(warning.code, "damaged_checkpoint");
    assert!(
        warning.message.contains("step-00000010.safetensors"),
        "{}",
        warning.message
    );
    assert_eq!(finished(&store, report).1, expected.1);
}

#[test]
fn damaged_checkpoints_only_are_an_error() {
    let store = Store::memory();
    let toy = regression(64).with_fault(Fault::StopAt(9));
    assert!(train(&config(), &toy, Resume::Fresh, &store).is_err());
    let paths: Vec<String> = contents(&store)
        .into_keys()
        .filter(|path| path.starts_with("checkpoints/"))
        .collect();
    paths.iter().for_each(|path| damage(&store, path));
    let error = train(&config(), &regression(64), Resume::Continue, &store).unwrap_err();
    assert!(
        matches!(error, Error::AllDamaged { count: 3, .. }),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Data);
}

fn damage(store: &Store, path: &str) {
    let mut bytes = contents(store)[path].clone();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    crate::checkpoint::run_folder::runtime()
        .unwrap()
        .block_on(store.put(path, bytes.into()))
        .unwrap();
}

#[test]
fn a_fresh_start_refuses_a_folder_with_checkpoints_and_continuing_a_finished_run_measures_it_again()
{
    let store = Store::memory();
    let report = train(&config(), &regression(64), Resume::Fresh, &store).unwrap();
    let error = train(&config(), &regression(64), Resume::Fresh, &store).unwrap_err();
    assert!(matches!(error, Error::RunExists { .. }), "{error}");
    let before = finished(&store, report);
    let again = train(&config(), &regression(64), Resume::Continue, &store).unwrap();
    assert!(finished(&store, again) == before);
}

#[test]
fn only_the_newest_checkpoints_and_the_best_are_kept() {
    let mut config = config();
    (config.checkpoint.every_steps, config.checkpoint.keep) = (1, 2);
    let steps = |config: &TrainConfig| -> Vec<u64> {
        let (files, _) = undisturbed(config, &regression(64));
        let mut steps = Vec::new();
        for (path, _) in files {
            if let Some(name) = path.strip_prefix("checkpoints/step-") {
                steps.push(name.trim_end_matches(".safetensors").parse().unwrap());
            }
        }
        steps
    };
    // The clean one, the one that may turn out to be, and the newest.
    assert_eq!(steps(&config), [6, 11, 12]);
    config.guard.spike_factor = 0.0;
    assert_eq!(steps(&config), [11, 12]);
    config.checkpoint.keep_every_steps = 5;
    assert_eq!(steps(&config), [5, 10, 11, 12]);
    config.checkpoint.every_steps = 0;
    assert_eq!(steps(&config), [5, 10, 12], "they are written too");
}

#[test]
fn metrics_have_a_line_per_interval_and_per_epoch() {
    let (files, _) = undisturbed(&config(), &regression(64));
    let text = String::from_utf8(
        files
            .into_iter()
            .find(|(path, _)| path == "metrics.jsonl")
            .unwrap()
            .1,
    )
    .unwrap();
    let kinds: Vec<(String, u64)> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| {
            (
                line["kind"].as_str().unwrap().to_owned(),
                line["step"].as_u64().unwrap(),
            )
        })
        .collect();
    let one = |kind: &str, step| (kind.to_owned(), step);
    assert_eq!(
        kinds[..4],
        [
            one("step", 2),
            one("step", 4),
            one("epoch", 4),
            one("step", 6)
        ]
    );
    assert_eq!(kinds.len(), 6 + 3);
}

#[test]
fn an_epoch_that_ends_early_is_not_taken_for_a_whole_one() {
    let mut toy = regression(64);
    toy.short_by = 1;
    let error = train(&config(), &toy, Resume::Fresh, &Store::memory()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("epoch 1 ended after 3 of 4 batches"),
        "{error}"
    );
}

#[test]
fn running_statistics_belong_to_the_state_of_a_run() {
    let mut config = config();
    config.model.norm = Some(NormKind::Batch);
    check_resumed(
        &config,
        regression,
        &[Fault::StopAt(1), Fault::StopAt(4), Fault::DieAt(0)],
    );
    let (files, _) = undisturbed(&config, &regression(64));
    let (_, best) = files
        .iter()
        .find(|(path, _)| path == "best.safetensors")
        .unwrap();
    let best = safetensors::SafeTensors::deserialize(best).unwrap();
    let mean = best.tensor("parameter.layer.0.norm.running_mean").unwrap();
    assert!(mean.data().iter().any(|byte| *byte != 0), "it moved");
}

/// `config` with products in f16 or bf16.
fn short(precision: Precision) -> TrainConfig {
    TrainConfig {
        precision,
        ..config()
    }
}

/// Long enough that a few steps left out at the beginning do not show.
#[test]
fn products_in_short_types_reach_the_loss_of_f32() {
    let loss = |precision, toy: &Toy| {
        let store = Store::memory();
        let config = TrainConfig {
            epochs: 25,
            ..short(precision)
        };
        train(&config, toy, Resume::Fresh, &store).unwrap();
        let last = newest_headers(&store).pop().unwrap();
        last.early_stopping.best.unwrap().loss
    };
    for toy in [regression(64), classification(64)] {
        let exact = loss(Precision::F32, &toy);
        for (precision, tolerance) in [(Precision::Bf16, 0.01), (Precision::F16, 0.03)] {
            let found = loss(precision, &toy);
            println!("{precision:?}: {found} of {exact}");
            assert!(
                (found / exact - 1.0).abs() < tolerance,
                "{found} of {exact}"
            );
            assert!(found.to_bits() != exact.to_bits(), "products are short");
        }
    }
}

/// `config` in f16 with a scale that overflows some times at first, and then grows again.
fn overflowing() -> TrainConfig {
    TrainConfig {
        loss_scale: Some(LossScaleConfig {
            initial: 2.0_f64.powi(24),
            growth_steps: 3,
            ..LossScaleConfig::default()
        }),
        ..short(Precision::F16)
    }
}

#[test]
fn steps_whose_scaled_gradient_overflows_are_left_out_and_the_scale_is_lowered() {
    let store = Store::memory();
    train(&overflowing(), &regression(64), Resume::Fresh, &store).unwrap();
    let scales: Vec<_> = newest_headers(&store)
        .into_iter()
        .map(|header| header.loss_scale.unwrap())
        .collect();
    let (first, last) = (&scales[0], &scales[scales.len() - 1]);
    assert!(
        first.dropped > 0 && last.scale < 2.0_f64.powi(24),
        "{scales:?}"
    );
    assert!(last.dropped < 12, "{scales:?}");
}

/// Headers of the checkpoints that are kept, by rising step.
fn newest_headers(store: &Store) -> Vec<CheckpointHeader> {
    let files = contents(store);
    let files = files
        .iter()
        .filter(|(path, _)| path.starts_with("checkpoints/"));
    let header = |bytes: &[u8]| {
        let (_, metadata) = safetensors::SafeTensors::read_metadata(bytes).unwrap();
        let entries = metadata.metadata().as_ref().unwrap();
        serde_json::from_str(&entries["feedline"]).unwrap()
    };
    files.map(|(_, bytes)| header(bytes)).collect()
}

#[test]
fn a_run_in_f16_that_is_stopped_and_resumed_has_the_same_bits() {
    for step in [0, 1, 5, 8] {
        check_resumed(&overflowing(), regression, &[Fault::StopAt(step)]);
    }
}

#[test]
fn a_gradient_that_overflows_at_the_floor_ends_the_run() {
    let mut config = overflowing();
    let scale = config.loss_scale.as_mut().unwrap();
    scale.floor = scale.initial;
    let error = train(&config, &regression(64), Resume::Fresh, &Store::memory()).unwrap_err();
    assert!(
        matches!(
            error,
            Error::NotFinite {
                what: "gradient norm",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn the_scale_of_the_loss_does_not_change_what_is_learnt() {
    let loss = |initial| {
        let mut config = short(Precision::F16);
        config.optimizer.r#type = OptimizerKind::Sgd;
        config.clip_norm = 0.5;
        config.loss_scale = Some(LossScaleConfig {
            initial,
            ..LossScaleConfig::default()
        });
        let store = Store::memory();
        train(&config, &regression(64), Resume::Fresh, &store).unwrap();
        let last = newest_headers(&store).pop().unwrap();
        assert_eq!(last.loss_scale.unwrap().dropped, 0);
        last.early_stopping.best.unwrap().loss
    };
    let (small, large) = (loss(256.0), loss(4096.0));
    assert!((small / large - 1.0).abs() < 1e-4, "{small} {large}");
}

#[test]
fn frozen_parameters_stay_as_they_were_and_the_optimizer_knows_nothing_of_them() {
    let config = TrainConfig {
        freeze: vec!["layer.0.*".into()],
        ..config()
    };
    let (toy, store) = (regression(64), Store::memory());
    let report = train(&config, &toy, Resume::Fresh, &store).unwrap();
    let files = contents(&store);
    let newest = files
        .iter()
        .rfind(|(path, _)| path.starts_with("checkpoints/"));
    let file = safetensors::SafeTensors::deserialize(newest.unwrap().1).unwrap();
    let engine = crate::testing::engine(&plan(&config, &toy));
    let initial = engine.model().initial(config.seed);
    let mut moved = 0;
    for entry in engine.model().layout().entries() {
        let tensor = file.tensor(&format!("parameter.{}", entry.name)).unwrap();
        let before = initial[entry.range.clone()].iter();
        let before: Vec<u8> = before.flat_map(|v| v.to_le_bytes()).collect();
        let frozen = entry.name.starts_with("layer.0.");
        assert_eq!(tensor.data() == before, frozen, "{}", entry.name);
        moved += if frozen { 0 } else { entry.range.len() };
    }
    let moment = file.tensor("optimizer.all.first_moment").unwrap();
    assert_eq!(moment.shape(), [moved]);
    assert_eq!(report.parameters, moved as u64);
    check_resumed(&config, regression, &[Fault::StopAt(5)]);
}

#[test]
fn a_run_with_adapters_that_is_stopped_and_resumed_has_the_same_bits() {
    let config = TrainConfig {
        lora: Some(LoraConfig {
            dropout: 0.2,
            ..LoraConfig::default()
        }),
        micro_batch: Some(16),
        ..config()
    };
    check_resumed(&config, regression, &[Fault::StopAt(5)]);
}

#[test]
fn a_start_removes_checkpoints_that_killed_processes_were_writing() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().to_str().unwrap(), &Default::default()).unwrap();
    let file = |name: &str, age_s: u64| {
        let path = folder.path().join("checkpoints").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "half").unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let written = file.metadata().unwrap().modified().unwrap();
        file.set_modified(written - std::time::Duration::from_secs(age_s))
            .unwrap();
        path
    };
    for resume in [Resume::Fresh, Resume::Continue] {
        let (dead, young) = (file(".tmp-9-0-1", 7_200), file(".tmp-9-1-1", 60));
        train(&config(), &regression(64), resume, &store).unwrap();
        assert!(!dead.exists() && young.exists(), "{resume:?}");
    }
}
