//! Batches that are left out, and losses that diverge.

use feedline_schemas::config::NotFinitePolicy;
use safetensors::SafeTensors;

use super::*;

/// Tensors of a checkpoint by name.
pub(super) fn tensors(files: &BTreeMap<String, Vec<u8>>, step: u64) -> BTreeMap<String, Vec<u8>> {
    let bytes = &files[&format!("checkpoints/step-{step:08}.safetensors")];
    let file = SafeTensors::deserialize(bytes).unwrap();
    let tensors = file.iter().filter(|(name, _)| !name.starts_with("best."));
    tensors
        .map(|(name, view)| (name.to_owned(), view.data().to_vec()))
        .collect()
}

pub(super) fn lines(files: &BTreeMap<String, Vec<u8>>, kind: &str) -> Vec<serde_json::Value> {
    let text = String::from_utf8_lossy(&files["metrics.jsonl"]);
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines
        .filter(|line: &serde_json::Value| line["kind"] == kind)
        .collect()
}

/// A run that leaves bad batches out, and keeps every checkpoint.
pub(super) fn lenient() -> TrainConfig {
    let mut config = config();
    config.guard.not_finite = NotFinitePolicy::Skip;
    (config.checkpoint.every_steps, config.checkpoint.keep) = (1, 99);
    config.average = Some(AverageConfig {
        decay: 0.9,
        warmup: true,
    });
    config
}

pub(super) fn poisoned(batch: usize) -> Toy {
    let mut toy = regression(batch);
    toy.splits[0].x[4 * 137] = f32::NAN;
    toy
}

#[test]
fn a_run_that_leaves_batches_out_resumes_bit_for_bit() {
    for step in [1, 2, 3, 4, 6] {
        check_resumed(&lenient(), poisoned, &[Fault::StopAt(step)]);
    }
    let mut config = lenient();
    config.guard.max_skipped = 2;
    let error = train(&config, &poisoned(50), Resume::Fresh, &Store::memory()).unwrap_err();
    assert!(matches!(error, Error::TooManySkipped { .. }), "{error}");
    config.guard.window_steps = 4;
    let report = train(&config, &poisoned(50), Resume::Fresh, &Store::memory()).unwrap();
    assert_eq!(report.skipped_batches, 3);
}

#[test]
fn a_run_without_any_update_is_an_error_and_many_skipped_batches_are_a_warning() {
    let mut config = lenient();
    config.guard.max_skipped = 99;
    let all_poisoned = |batch: usize| {
        let mut toy = regression(batch);
        toy.splits[0].x.fill(f32::NAN);
        toy
    };
    let store = Store::memory();
    for resume in [Resume::Fresh, Resume::Continue] {
        let error = train(&config, &all_poisoned(50), resume, &store).unwrap_err();
        let Error::OnlySkipped { skipped, steps } = error else {
            panic!("{error}")
        };
        assert_eq!((skipped, steps), (12, 12));
    }
    let epochs = lines(&contents(&store), "epoch");
    assert_eq!(epochs.len(), 3);
    assert!(epochs.iter().all(|line| line.get("train_loss").is_none()));
    let warning = |toy: &Toy| {
        let report = train(&config, toy, Resume::Fresh, &Store::memory()).unwrap();
        let mut warnings = report.warnings.into_iter();
        warnings.find(|warning| warning.code == "skipped_batches")
    };
    let found = warning(&poisoned(50)).unwrap();
    assert!(
        found.message.contains("3 batches skipped in 12 steps"),
        "{found:?}"
    );
    assert_eq!(found.key.as_deref(), Some("train.guard.not_finite"));
    assert_eq!(warning(&regression(50)), None);
}

#[test]
fn batches_that_were_skipped_under_another_policy_are_warned_of() {
    let mut strict = lenient();
    strict.guard.not_finite = NotFinitePolicy::Stop;
    let store = Store::memory();
    // Few of its batches are skipped.
    let few = || poisoned(8);
    let warnings = |config: &TrainConfig, resume| {
        let report = train(config, &few(), resume, &store).unwrap();
        let warnings = report.warnings.into_iter();
        let warnings = warnings.filter(|warning| warning.code == "skipped_batches");
        (report.skipped_batches, warnings.collect::<Vec<_>>())
    };
    assert_eq!(warnings(&lenient(), Resume::Fresh), (3, Vec::new()));
    assert_eq!(warnings(&lenient(), Resume::Continue), (3, Vec::new()));
    let (skipped, found) = warnings(&strict, Resume::Continue);
    let [warning] = &found[..] else {
        panic!("{found:?}")
    };
    let part = "by an earlier command with `not_finite = \"skip\"`; with `stop`, as it is set now, the run would have ended";
    assert!(warning.message.contains(part), "{warning:?}");
    assert_eq!(skipped, 3);
}

/// Divergence in the second epoch of 25 batches.
pub(super) fn hard(_: usize) -> Toy {
    let mut toy = regression(8);
    toy.hard = 42..47;
    toy
}

pub(super) fn watchful() -> TrainConfig {
    let mut config = lenient();
    config.checkpoint.every_steps = 5;
    (config.guard.spike_window, config.guard.spike_steps) = (10, 3);
    config
}

#[test]
fn a_divergence_takes_the_weights_back_to_a_clean_checkpoint_and_steps_past_its_batches() {
    let store = Store::memory();
    let report = train(&watchful(), &hard(8), Resume::Fresh, &store).unwrap();
    assert_eq!((report.rollbacks, report.steps), (1, 75));
    let files = contents(&store);
    let line = &lines(&files, "rollback")[0];
    // The one after step 40 was followed by two good steps only.
    assert_eq!((&line["step"], &line["to"]), (&45.into(), &35.into()));
    assert!(tensors(&files, 45) == tensors(&files, 35));
    assert!(tensors(&files, 40) != tensors(&files, 35));
    let (path, plain) = (&regression(8), Store::memory());
    let undisturbed = train(&watchful(), path, Resume::Fresh, &plain).unwrap();
    assert!(
        report.test["rmse"] < 1.5 * undisturbed.test["rmse"],
        "{report:?}"
    );
    let mut off = watchful();
    off.guard.spike_factor = 0.0;
    let report = train(&off, &hard(8), Resume::Fresh, &Store::memory()).unwrap();
    assert_eq!(report.rollbacks, 0);
}

#[test]
fn a_run_that_went_back_resumes_bit_for_bit() {
    for step in [38, 40, 42, 43, 44, 45, 46, 50, 60] {
        check_resumed(&watchful(), hard, &[Fault::StopAt(step)]);
    }
    check_resumed(&watchful(), hard, &[Fault::DieAt(43), Fault::DieAt(8)]);
    check_resumed(&watchful(), hard, &[Fault::DieAt(47)]);
}

#[test]
fn without_a_clean_checkpoint_it_is_the_start_and_too_many_rollbacks_end_the_run() {
    let mut config = watchful();
    config.checkpoint.every_steps = 0;
    let mut toy = hard(8);
    toy.hard = 15..18;
    let store = Store::memory();
    let report = train(&config, &toy, Resume::Fresh, &store).unwrap();
    assert_eq!(report.rollbacks, 1);
    let rollback = &lines(&contents(&store), "rollback")[0];
    assert_eq!(rollback["to"], 0);
    config.guard.max_rollbacks = 0;
    let error = train(&config, &toy, Resume::Fresh, &Store::memory()).unwrap_err();
    let Error::Diverged { step, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(rollback["step"], step.get());
}

#[test]
fn the_step_of_an_error_is_that_of_the_metrics() {
    let store = Store::memory();
    train(&lenient(), &poisoned(50), Resume::Fresh, &store).unwrap();
    let skipped = lines(&contents(&store), "skipped");
    let mut strict = lenient();
    strict.guard.not_finite = NotFinitePolicy::Stop;
    let error = train(&strict, &poisoned(50), Resume::Fresh, &Store::memory()).unwrap_err();
    let Error::NotFinite { step, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(skipped[0]["step"], step.get());
}
