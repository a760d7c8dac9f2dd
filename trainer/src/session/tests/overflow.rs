//! Steps that are left out, since their gradient overflows f16.

use super::{guards::lines, *};

/// As [`overflowing`], with a scale that no step of three epochs comes down from.
fn hopeless() -> TrainConfig {
    let mut config = overflowing();
    config.loss_scale.as_mut().unwrap().initial = 2.0_f64.powi(100);
    config
}

#[test]
fn steps_that_are_left_out_are_counted_and_named() {
    let store = Store::memory();
    let mut config = overflowing();
    config.log_every = 1;
    let report = train(&config, &regression(64), Resume::Fresh, &store).unwrap();
    let files = contents(&store);
    let (dropped, taken) = (lines(&files, "dropped"), lines(&files, "step"));
    assert!(report.dropped_steps > 0, "{report:?}");
    assert_eq!(dropped.len() as u64, report.dropped_steps);
    assert_eq!((dropped.len() + taken.len()) as u64, report.steps);
    assert_eq!(dropped[0]["step"], 1);
    assert_eq!(dropped[0]["loss_scale"], 2.0_f64.powi(24));
    let warning = |report: &TrainReport| {
        let mut warnings = report.warnings.iter();
        warnings
            .find(|warning| warning.code == "dropped_steps")
            .cloned()
    };
    let key = warning(&report).and_then(|warning| warning.key);
    assert_eq!(key.as_deref(), Some("train.loss_scale.initial"));
    let full = train(
        &super::config(),
        &regression(64),
        Resume::Fresh,
        &Store::memory(),
    )
    .unwrap();
    assert_eq!((full.dropped_steps, warning(&full)), (0, None));
}

#[test]
fn a_later_epoch_without_any_update_does_not_count_for_patience() {
    let mut config = overflowing();
    config.patience = 1;
    let scale = config.loss_scale.as_mut().unwrap();
    // After the four steps of the first epoch the scale is one that no step comes down from.
    (scale.initial, scale.growth, scale.growth_steps) = (1.0, 2.0_f64.powi(100), 4);
    let report = train(&config, &regression(64), Resume::Fresh, &Store::memory()).unwrap();
    assert_eq!((report.dropped_steps, report.steps), (8, 12));
    assert_eq!((report.epochs, report.stopped_early), (3, None));
    // Resuming within such an epoch changes nothing.
    for step in [4, 6, 9] {
        check_resumed(&config, regression, &[Fault::StopAt(step)]);
    }
}

#[test]
fn a_run_without_any_update_does_not_run_out_of_patience_and_is_an_error() {
    let mut config = hopeless();
    config.patience = 1;
    let store = Store::memory();
    for resume in [Resume::Fresh, Resume::Continue] {
        let error = train(&config, &regression(64), resume, &store).unwrap_err();
        let Error::NoUpdate { dropped, steps, .. } = &error else {
            panic!("{error}")
        };
        // Those of all three epochs.
        assert_eq!((*dropped, *steps), (12, 12));
        let message = error.to_string();
        let advice = "no scale of the loss has worked so far: set `train.loss_scale.initial` much lower than `";
        assert!(message.contains(advice), "{message}");
    }
}
