//! Dynamic scaling of the loss, for gradients in f16 (Micikevicius et al. 2018, arXiv 1710.03740, section 3.2; the rule is
//! that of PyTorch's `GradScaler`, with a floor).

use feedline_schemas::{
    checkpoint::LossScale, config::LossScaleConfig, count::counted, report::Warning,
};

use crate::{
    config::values::{above_zero, whole, within},
    error::{Error, config as wrong},
};

/// One dropped step in so many is worth a warning.
const MANY: u64 = 20;

/// Checks every value.
///
/// # Errors
/// [`Error::Config`] for the first that is out of range.
pub(crate) fn check(config: &LossScaleConfig) -> Result<(), Error> {
    let key = |name: &str| format!("loss_scale.{name}");
    above_zero(&key("floor"), config.floor)?;
    let floor = config.floor;
    within(
        &key("initial"),
        config.initial,
        config.initial >= floor,
        "at least `floor`",
    )?;
    within(
        &key("growth"),
        config.growth,
        config.growth >= 1.0,
        "at least 1",
    )?;
    whole(&key("growth_steps"), config.growth_steps, 1, u64::MAX)?;
    if config.backoff > 0.0 && config.backoff < 1.0 {
        return Ok(());
    }
    let reason = format!("it is {} and must be above 0 and below 1", config.backoff);
    Err(wrong(&key("backoff"), reason))
}

/// The scale before the first step.
pub(crate) fn start(config: &LossScaleConfig) -> LossScale {
    LossScale {
        scale: config.initial,
        good_steps: 0,
        dropped: 0,
    }
}

/// After a step whose gradient was finite.
pub(crate) fn good(config: &LossScaleConfig, state: &mut LossScale) {
    state.good_steps += 1;
    if state.good_steps < config.growth_steps {
        return;
    }
    state.good_steps = 0;
    let grown = state.scale * config.growth;
    // The loss is scaled in f32.
    if grown <= f64::from(f32::MAX) {
        state.scale = grown;
    }
}

/// After a step whose gradient was not finite. False at the floor, where the scale is not to blame.
pub(crate) fn bad(config: &LossScaleConfig, state: &mut LossScale) -> bool {
    if state.scale <= config.floor {
        return false;
    }
    state.scale = (state.scale * config.backoff).max(config.floor);
    state.good_steps = 0;
    state.dropped += 1;
    true
}

/// The warning of a run of `steps` that left out more than one in [`MANY`], or as many as its warm-up has. A drop after each
/// growth of the scale is usual, and does not count for the warm-up.
pub(crate) fn warning(
    config: &LossScaleConfig,
    state: &LossScale,
    steps: u64,
    warmup_steps: u64,
) -> Option<Warning> {
    let dropped = state.dropped;
    let early = dropped.saturating_sub(steps / config.growth_steps.max(1));
    let spans_warmup = warmup_steps > 0 && early >= warmup_steps;
    if dropped.saturating_mul(MANY) <= steps && !spans_warmup {
        return None;
    }
    let warmup = match spans_warmup {
        true => format!(", at least as many as the warm-up has ({warmup_steps})"),
        false => String::new(),
    };
    let scale = state.scale;
    let lower = match state.good_steps {
        0 => format!(
            "begin with a scale of the loss much lower than `{scale}`, which it has now and has not tried yet"
        ),
        _ => format!("begin with a lower scale of the loss, such as `{scale}`, which it has now"),
    };
    let message = format!(
        "{} of {steps} moved no weight, since the gradient overflowed f16{warmup}; the schedule advanced without them: {lower}, or \
         set `train.precision` to `bf16` or `f32`",
        counted(dropped, "step")
    );
    Some(Warning::new("dropped_steps", message).with_key("train.loss_scale.initial"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `torch/loss_scale.py` writes it: the scale after each step, by PyTorch's rule.
    #[test]
    fn scales_are_those_of_pytorch_above_the_floor() {
        #[derive(serde::Deserialize)]
        struct Case {
            initial: f64,
            growth: f64,
            growth_steps: u64,
            backoff: f64,
            finite: Vec<bool>,
            scales: Vec<f64>,
        }
        let cases = include_str!("../../tests/torch/loss_scale.json");
        let cases: Vec<Case> = serde_json::from_str(cases).unwrap();
        assert!(cases.len() > 2);
        for case in cases {
            let config = LossScaleConfig {
                initial: case.initial,
                growth: case.growth,
                growth_steps: case.growth_steps,
                backoff: case.backoff,
                floor: 1e-30,
            };
            let mut state = start(&config);
            for (i, (finite, expected)) in case.finite.iter().zip(&case.scales).enumerate() {
                if *finite {
                    good(&config, &mut state);
                } else {
                    assert!(bad(&config, &mut state));
                }
                assert!((state.scale / expected - 1.0).abs() < 1e-6, "step {i}");
            }
            let dropped = case.finite.iter().filter(|finite| !**finite).count();
            assert_eq!(state.dropped, dropped as u64);
        }
    }

    #[test]
    fn at_the_floor_the_scale_is_not_to_blame() {
        let config = LossScaleConfig {
            initial: 3.0,
            ..LossScaleConfig::default()
        };
        let mut state = start(&config);
        assert!(bad(&config, &mut state));
        assert!(bad(&config, &mut state));
        assert!((state.scale - 1.0).abs() < 1e-12, "{}", state.scale);
        assert!(!bad(&config, &mut state));
        assert_eq!(state.dropped, 2);
    }

    #[test]
    fn many_dropped_steps_and_those_of_a_whole_warmup_are_a_warning() {
        let config = LossScaleConfig::default();
        let found = |dropped, steps, warmup_steps| {
            let state = LossScale {
                scale: 1024.0,
                good_steps: 3,
                dropped,
            };
            warning(&config, &state, steps, warmup_steps)
        };
        assert_eq!(found(0, 100, 10), None);
        assert_eq!(found(5, 100, 10), None);
        let many = found(12, 15, 0).unwrap();
        assert_eq!(many.code, "dropped_steps");
        assert_eq!(many.key.as_deref(), Some("train.loss_scale.initial"));
        assert!(many.message.contains("12 steps of 15"), "{}", many.message);
        assert!(many.message.contains("such as `1024`"), "{}", many.message);
        let warmup = found(4, 1000, 4).unwrap().message;
        let as_many = "overflowed f16, at least as many as the warm-up has (4); the schedule";
        assert!(warmup.contains(as_many), "{warmup}");
        // One drop for each growth of the scale.
        assert_eq!(found(100, 200_000, 100), None);
    }

    #[test]
    fn a_scale_that_no_step_has_tried_is_not_proposed() {
        let state = LossScale {
            scale: 1024.0,
            good_steps: 0,
            dropped: 12,
        };
        let found = warning(&LossScaleConfig::default(), &state, 15, 0);
        let message = found.unwrap().message;
        assert!(message.contains("much lower than `1024`"), "{message}");
        assert!(!message.contains("such as"), "{message}");
    }

    #[test]
    fn values_out_of_range_are_named() {
        let refused = |change: fn(&mut LossScaleConfig)| {
            let mut config = LossScaleConfig::default();
            change(&mut config);
            check(&config).unwrap_err().to_string()
        };
        for (key, message) in [
            ("initial", refused(|c| c.initial = 0.5)),
            ("growth", refused(|c| c.growth = 0.9)),
            ("growth_steps", refused(|c| c.growth_steps = 0)),
            ("backoff", refused(|c| c.backoff = 1.0)),
            ("floor", refused(|c| c.floor = 0.0)),
        ] {
            assert!(
                message.contains(&format!("`train.loss_scale.{key}`")),
                "{message}"
            );
        }
        assert!(check(&LossScaleConfig::default()).is_ok());
    }
}
