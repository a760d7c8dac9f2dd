//! Scripted courses of losses. `FEEDLINE_GUARD_TRACES` says how many of each kind; 4 without it.

use std::f64::consts::PI;

use feedline_schemas::ids::Seed;

use super::*;
use crate::{float_casts::exact, random::Stream};

const STEPS: u64 = 10_000;

fn traces() -> u64 {
    let asked = std::env::var_os("FEEDLINE_GUARD_TRACES");
    asked.map_or(4, |text| text.to_string_lossy().parse().unwrap())
}

/// Random numbers of one trace.
#[derive(Clone, Copy)]
struct Noise(Stream);

impl Noise {
    fn of(trace: u64) -> Self {
        Self(Stream::initialization(Seed::new(trace)).part(9))
    }
    fn uniform(self, index: u64) -> f64 {
        self.0.uniform(index)
    }
    /// Log-normal with median 1.
    fn around_1(self, step: u64, sigma: f64) -> f64 {
        let [u, v] = [2 * step, 2 * step + 1].map(|i| self.uniform(1_000_000 + i).max(1e-12));
        (sigma * (-2.0 * u.ln()).sqrt() * (2.0 * PI * v).cos()).exp()
    }
}

/// A loss and a learning rate at each step.
type Course = fn(Noise, u64) -> (f64, f64);

/// Losses that fall fast at first.
fn falling(noise: Noise, step: u64) -> (f64, f64) {
    let level = 0.05 + 2.3 * (-exact(step) / 150.0).exp();
    (level * noise.around_1(step, 0.3), 0.1)
}

/// Losses that fall when the learning rate does.
fn stairs(noise: Noise, step: u64) -> (f64, f64) {
    let stair = [1.0, 0.1, 0.01][usize::try_from(step / 4000).unwrap()];
    let level = 0.3 + 0.7 * stair;
    (level * noise.around_1(step, 0.2), 0.1 * stair)
}

/// Warm restarts: the loss rises with the rate, to five times what it was.
fn restarts(noise: Noise, step: u64) -> (f64, f64) {
    let wave = 0.5 + 0.5 * (PI * exact(step % 2000) / 2000.0).cos();
    let risen = (1.0 - (-exact(step % 2000) / 15.0).exp()) * wave;
    let level = 0.02 + 0.08 * if step < 2000 { wave } else { risen };
    (level * noise.around_1(step, 0.3), 0.1 * wave.max(0.01))
}

/// Losses of small batches, some with a rare sample that is hard.
fn rare<const PER_MILLE: u32>(noise: Noise, step: u64) -> (f64, f64) {
    let hard = noise.uniform(step) < f64::from(PER_MILLE) / 1000.0;
    let level = if hard { 1.0 } else { 0.02 };
    (level * noise.around_1(step, 0.4), 0.1)
}

/// Losses of single samples.
fn exponential(noise: Noise, step: u64) -> (f64, f64) {
    (-noise.uniform(step).max(1e-12).ln(), 0.1)
}

fn wild(noise: Noise, step: u64) -> (f64, f64) {
    (noise.around_1(step, 1.0), 0.1)
}

const QUIET: [(&str, Course); 11] = [
    ("falling", falling),
    ("stairs", stairs),
    ("restarts", restarts),
    ("rare 0.1%", rare::<1>),
    ("rare 1%", rare::<10>),
    ("rare 5%", rare::<50>),
    ("rare 10%", rare::<100>),
    ("rare 20%", rare::<200>),
    ("rare 30%", rare::<300>),
    ("exponential", exponential),
    ("log-normal", wild),
];

/// Divergences that the guard sees in a course.
fn divergences(config: &GuardConfig, noise: Noise, course: Course, steps: u64) -> Vec<u64> {
    let mut state = GuardState::default();
    let see = |step: &u64| {
        let (loss, rate) = course(noise, *step);
        let seen = SeenBatch {
            step: Step::new(*step),
            loss,
            norm: 1.0,
            rate,
            is_short: false,
        };
        let diverged = matches!(
            look(config, &mut state, seen),
            UpdateVerdict::Diverged { .. }
        );
        if diverged {
            state.spikes.clear();
        }
        diverged
    };
    (0..steps).filter(see).collect()
}

#[test]
fn at_most_one_false_alarm_in_ten_thousand_steps_of_noisy_losses() {
    let config = GuardConfig::default();
    let first = GuardConfig {
        spike_steps: 1,
        ..GuardConfig::default()
    };
    for (name, course) in QUIET {
        let of = |config: &GuardConfig| -> f64 {
            let found = (0..traces()).map(|t| divergences(config, Noise::of(t), course, STEPS));
            exact(found.map(|f| f.len() as u64).sum()) / exact(traces())
        };
        let found = of(&config);
        println!(
            "{name}: {found} false alarms in {STEPS} steps; were one spike enough: {}",
            of(&first)
        );
        assert!(found <= 1.0, "{name}: {found}");
    }
}

#[test]
fn losses_that_jump_and_stay_are_found() {
    let config = GuardConfig::default();
    let mut found = 0;
    for trace in 0..traces() * 25 {
        let noise = Noise::of(trace);
        let sigma = 0.05 + 0.35 * noise.uniform(1);
        let begin = 150 + trace * 37 % 1500;
        let height = 4.0 * 25.0_f64.powf(noise.uniform(2));
        let mut state = GuardState::default();
        let divergence = (0..begin + 60).find(|&step| {
            let spike = step >= begin;
            // Spikes fade over hundreds of steps, if at all.
            let fading = (-exact(step.saturating_sub(begin)) / 300.0).exp();
            let level = (0.2 + 2.0 * (-exact(step) / 300.0).exp())
                * if spike {
                    1.0 + (height - 1.0) * fading
                } else {
                    1.0
                };
            let seen = SeenBatch {
                step: Step::new(step),
                loss: level * noise.around_1(step, sigma),
                norm: 1.0,
                rate: 0.1,
                is_short: false,
            };
            matches!(
                look(&config, &mut state, seen),
                UpdateVerdict::Diverged { .. }
            )
        });
        found += u64::from(divergence.is_some_and(|step| step >= begin));
    }
    let share = exact(found) / exact(traces() * 25);
    println!("{found} of {} divergences found", traces() * 25);
    assert!(share >= 0.99, "{share}");
}

fn seen(step: u64, loss: f64, norm: f64) -> SeenBatch {
    SeenBatch {
        step: Step::new(step),
        loss,
        norm,
        rate: 0.1,
        is_short: false,
    }
}

#[test]
fn nothing_counts_before_the_window_is_full_and_one_spike_is_only_told() {
    let config = GuardConfig {
        spike_window: 4,
        ..GuardConfig::default()
    };
    let mut state = GuardState::default();
    let mut look = |step, loss, norm| look(&config, &mut state, seen(step, loss, norm));
    let normal = [1.0, 1.1, 100.0, 0.9];
    for (step, loss) in (1..).zip(normal) {
        assert_eq!(look(step, loss, 1.0), UpdateVerdict::Fine);
    }
    for step in 5..9 {
        assert_eq!(look(step, 1.0, 1.0), UpdateVerdict::Fine);
    }
    let alarm = |what, value, mean| UpdateVerdict::Alarm(Alarm { what, value, mean });
    assert_eq!(look(9, 3.1, 1.0), alarm("loss", 3.1, 1.0));
    assert_eq!(look(10, 3.1, 1.0), UpdateVerdict::Fine, "told once");
    assert_eq!(look(11, 1.0, 1.0), UpdateVerdict::Fine);
    assert_eq!(look(12, 1.0, 1.0), UpdateVerdict::Fine);
    assert_eq!(look(13, 1.0, 10.5), alarm("gradient norm", 10.5, 1.0));
}

#[test]
fn losses_that_have_fallen_to_nothing_and_short_batches_are_no_alarm() {
    let config = GuardConfig {
        spike_window: 4,
        ..GuardConfig::default()
    };
    let after = |loss: f64, is_short: bool, spike: f64| {
        let mut state = GuardState::default();
        for step in 1..=4 {
            look(&config, &mut state, seen(step, 1.0, 1.0));
        }
        for step in 5..=12 {
            look(&config, &mut state, seen(step, loss, loss));
        }
        let spike = SeenBatch {
            is_short,
            ..seen(13, spike, loss)
        };
        look(&config, &mut state, spike)
    };
    assert_eq!(after(1e-5, false, 4e-5), UpdateVerdict::Fine);
    assert_eq!(after(0.5, true, 2.0), UpdateVerdict::Fine);
    for (loss, spike) in [(0.5, 2.0), (1e-5, 0.2)] {
        let found = after(loss, false, spike);
        assert!(matches!(found, UpdateVerdict::Alarm(_)), "{loss} {found:?}");
    }
}

#[test]
fn as_many_spikes_in_a_row_as_configured_are_a_divergence() {
    for spike_steps in 1..4 {
        let config = GuardConfig {
            spike_window: 4,
            spike_steps,
            ..GuardConfig::default()
        };
        let mut state = GuardState::default();
        for step in 1..=4 {
            look(&config, &mut state, seen(step, 2.0, 1.0));
        }
        for spike in 1..=u64::from(spike_steps) {
            let verdict = look(&config, &mut state, seen(4 + spike, 6.5, 1.0));
            let diverged = verdict == UpdateVerdict::Diverged { mean: 2.0 };
            assert_eq!(diverged, spike == u64::from(spike_steps));
        }
    }
}

#[test]
fn a_checkpoint_is_clean_once_enough_losses_behind_it_were_calm() {
    let config = GuardConfig {
        spike_window: 2,
        spike_steps: 3,
        ..GuardConfig::default()
    };
    let mut state = GuardState::default();
    let calm = |state: &mut GuardState, steps| {
        for step in steps {
            look(&config, state, seen(step, 1.0, 1.0));
        }
    };
    calm(&mut state, 1..5);
    planned(&config, &mut state, Step::new(4));
    calm(&mut state, 5..7);
    planned(&config, &mut state, Step::new(6));
    assert_eq!(state.anchor, Step::new(0));
    look(&config, &mut state, seen(7, 9.0, 1.0));
    planned(&config, &mut state, Step::new(7));
    calm(&mut state, 8..10);
    assert_eq!(state.anchor, Step::new(0), "a spike resets the count");
    calm(&mut state, 10..11);
    assert_eq!((state.anchor, state.candidate), (Step::new(4), None));
}

#[test]
fn batches_left_out_are_counted_in_a_window() {
    let config = GuardConfig {
        max_skipped: 2,
        window_steps: 10,
        ..GuardConfig::default()
    };
    let mut state = GuardState::default();
    let found = [3, 5, 9, 13, 14].map(|s| may_skip(&config, &mut state, Step::new(s)));
    assert_eq!(found, [true, true, false, true, false]);
    assert_eq!(state.skipped_in_all, 3);
}

#[test]
fn weights_that_went_back_have_the_updates_they_had() {
    let then = GuardState {
        dropped: 3,
        ..GuardState::default()
    };
    let state = GuardState {
        dropped: 5,
        ..GuardState::default()
    };
    let (to, step) = (Step::new(40), Step::new(60));
    let back = went_back(&state, then, to, step);
    assert_eq!(step.get() - back.dropped, to.get() - 3);
}

#[test]
fn no_checkpoint_within_a_spike_is_one_to_go_back_to() {
    let config = GuardConfig {
        spike_factor: 3.0,
        ..GuardConfig::default()
    };
    let mut state = GuardState {
        spikes: vec![9.0],
        ..GuardState::default()
    };
    planned(&config, &mut state, Step::new(4));
    assert_eq!(state.candidate, None);
    state.spikes.clear();
    planned(&config, &mut state, Step::new(5));
    assert_eq!(state.candidate, Some(Step::new(5)));
}
