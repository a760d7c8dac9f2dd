//! Warnings of keys that have no effect in a run, or hardly the one that they are set for.

use feedline_schemas::{
    config::{GuardConfig, LoraConfig, ModelKind, TrainConfig},
    count::counted,
    manifest::DatasetCounts,
    report::Warning,
};

use crate::{
    data::task::Task,
    float_casts::{exact, exact_len},
    model::layers::Layout,
    optim::{
        loss::Loss,
        schedule::{Course, Schedule, Stairs},
    },
};

/// Code of a key without effect.
const NO_EFFECT: &str = "no_effect";

/// Warnings of a configuration, resolved, for a model with this layout and a run with this schedule.
pub(crate) fn warnings(config: &TrainConfig, schedule: &Schedule, layout: &Layout) -> Vec<Warning> {
    let found = [
        of_steps(schedule),
        of_patience(config, schedule),
        of_guard(&config.guard),
        of_average(config, schedule),
        of_skip(config, layout),
        of_dropout(config, layout),
        config.lora.as_ref().and_then(|lora| of_rank(lora, layout)),
        of_frozen_base(config),
    ];
    let found: Vec<Warning> = found.into_iter().flatten().collect();
    found.iter().for_each(log);
    found
}

fn log(warning: &Warning) {
    tracing::warn!(code = warning.code, "{}", warning.message);
}

/// Warning of a batch that was set to more samples than the training split of these `counts` has, where an epoch of the run
/// has so many `batches`. The default size is no wish for batches of that size.
pub(crate) fn of_batch(
    config: &TrainConfig,
    counts: &DatasetCounts,
    batches: u64,
) -> Option<Warning> {
    let (size, rows) = (u64::from(config.batch_size), counts.train);
    // A sample of tokens is no row, and a mixture has rows of several datasets.
    let is_other = counts.tokens.is_some() || config.mixture.is_some();
    let is_default = config.batch_size == TrainConfig::default().batch_size;
    if is_other || is_default || batches != 1 || size <= rows {
        return None;
    }
    let message = format!(
        "`train.batch_size = {size}` is more than the training split has, {}: each epoch is one step with all of them; a \
         smaller batch takes more steps",
        counted(rows, "sample")
    );
    let warning = Warning::new("large_batch", message).with_key("train.batch_size");
    log(&warning);
    Some(warning)
}

/// Least part of another class in a row that is too large, beyond that of equal weights: a fraction of the part of its own class.
const OUTWEIGHED: f64 = 0.5;

/// Warning of label smoothing that, with the weights of the classes, pulls the rows of a class towards another class at least
/// half as much as towards their own: each class has its part of the smoothed target times its weight. Rows whose
/// features say little are then predicted as that class, long before both parts are equal.
pub(crate) fn of_smoothing(loss: &Loss, task: &Task) -> Option<Warning> {
    let Loss::CrossEntropy {
        smoothing,
        weights: Some(weights),
    } = loss
    else {
        return None;
    };
    let Task::Classification { counts, names } = task else {
        return None;
    };
    let spread = smoothing / exact_len(weights.len());
    let (heaviest, most) = names
        .iter()
        .zip(weights)
        .max_by(|a, b| a.1.total_cmp(b.1))?;
    let towards_heaviest = spread * f64::from(*most);
    let classes = names.iter().zip(weights).zip(counts);
    let outweighed = classes.filter_map(|((name, weight), rows)| {
        let weight = f64::from(*weight);
        let own = weight * (1.0 - smoothing + spread);
        // Parts of classes of equal weight cancel out.
        let excess = towards_heaviest - spread * weight;
        let is_outweighed = *rows > 0 && excess > 0.0 && excess >= own * OUTWEIGHED;
        is_outweighed.then_some((name, own, *rows))
    });
    let (name, own, _) = outweighed.max_by_key(|(_, _, rows)| *rows)?;
    let effect = match own <= towards_heaviest {
        true => format!("the model learns to predict `{heaviest}` for it"),
        false => format!("the model can predict `{heaviest}` for too many such rows"),
    };
    let message = format!(
        "`train.loss.label_smoothing = {smoothing}` gives a part of each target to every class, times the weight of that class: \
         a row of `{name}` counts {own:.3} for `{name}` and {towards_heaviest:.3} for `{heaviest}`, so {effect}; set \
         `label_smoothing = 0`, or balance by `train.loader.balance` in place of `class_weights`"
    );
    let warning =
        Warning::new("smoothing_outweighs_classes", message).with_key("train.loss.label_smoothing");
    log(&warning);
    Some(warning)
}

/// A fall or a period of the learning rate that the run does not reach.
fn of_steps(schedule: &Schedule) -> Option<Warning> {
    let total = schedule.total_steps;
    let (key, message) = match &schedule.course {
        Course::Stairs { at, .. } => {
            let (key, last) = match at {
                Stairs::Every(every) => ("every", *every),
                Stairs::Milestones(steps) => ("milestones", *steps.last()?),
            };
            if last < total {
                return None;
            }
            let what = "the learning rate falls";
            let steps = counted(total, "step");
            (
                key,
                format!("the run has {steps}, and {what} after step {last}"),
            )
        }
        Course::Restarts { period, .. }
            if schedule.warmup_steps.saturating_add(*period) > total =>
        {
            let steps = counted(total, "step");
            let message =
                format!("the run has {steps} and ends within its first period of {period}");
            ("period", message)
        }
        _ => return None,
    };
    let key = format!("train.schedule.{key}");
    Some(Warning::new(NO_EFFECT, message).with_key(&key))
}

/// A plateau that ends the run before it lowers the learning rate.
fn of_patience(config: &TrainConfig, schedule: &Schedule) -> Option<Warning> {
    let Course::Plateau { patience, .. } = schedule.course else {
        return None;
    };
    let stop = config.patience;
    (stop > 0 && patience >= stop).then(|| {
        let message = format!(
            "training stops after {} without a lower loss (`train.patience`), before the learning rate falls after \
             more than {patience}",
            counted(stop.into(), "epoch")
        );
        Warning::new(NO_EFFECT, message).with_key("train.schedule.patience")
    })
}

/// Least fraction of initial weights in an average, after the last step, that is too large.
const INITIAL_FRACTION: f64 = 0.5;

/// A moving average that is mostly the initial weights even after the last step: their fraction is the decay to the power of
/// the steps. With a warm-up of the decay they lose their influence early.
fn of_average(config: &TrainConfig, schedule: &Schedule) -> Option<Warning> {
    let average = config.average.as_ref().filter(|average| !average.warmup)?;
    let (decay, steps) = (average.decay, schedule.total_steps);
    let initial = (exact(steps) * decay.ln()).exp();
    (initial >= INITIAL_FRACTION).then(|| {
        let message = format!(
            "the run has {}, and `train.average.decay = {decay}` without `train.average.warmup` leaves {:.1} % of the initial \
             weights in the average that is kept: lower the decay, or set `train.average.warmup = true`",
            counted(steps, "step"),
            100.0 * initial
        );
        Warning::new("slow_average", message).with_key("train.average.decay")
    })
}

/// Keys of a guard that is off.
fn of_guard(guard: &GuardConfig) -> Option<Warning> {
    let usual = GuardConfig::default();
    let is_set =
        guard.spike_steps != usual.spike_steps || guard.max_rollbacks != usual.max_rollbacks;
    (guard.spike_factor == 0.0 && is_set).then(|| {
        let message = "`train.guard.spike_factor = 0` looks for no spikes, so `spike_steps` and `max_rollbacks` have no effect";
        Warning::new(NO_EFFECT, message).with_key("train.guard.spike_factor")
    })
}

/// Skips in a model without a hidden layer that is as wide as its input.
fn of_skip(config: &TrainConfig, layout: &Layout) -> Option<Warning> {
    let model = &config.model;
    if model.r#type != ModelKind::Mlp || model.skip != Some(true) {
        return None;
    }
    let weights = layout.trained_entries().iter().filter(|entry| {
        entry.shape.len() == 2
            && entry.name.starts_with("layer.")
            && entry.name.ends_with(".weight")
    });
    let weights: Vec<&[usize]> = weights.map(|entry| entry.shape.as_slice()).collect();
    // The last layer is not hidden.
    let hidden = weights.split_last().map_or(&[][..], |(_, hidden)| hidden);
    if hidden.iter().any(|shape| shape[0] == shape[1]) {
        return None;
    }
    let message = "`train.model.skip` adds the input of a hidden layer that is as wide as its output, and the model has none, so \
                   it has no effect; give neighbouring layers of `train.model.hidden` the same width";
    Some(Warning::new(NO_EFFECT, message).with_key("train.model.skip"))
}

/// Dropout in a model without a layer that has any.
fn of_dropout(config: &TrainConfig, layout: &Layout) -> Option<Warning> {
    (config.model.dropout > 0.0 && layout.dropouts() == 0).then(|| {
        let message = "dropout is part of hidden layers, and the model has none, so `train.model.dropout` has no effect; give \
                       `train.model.hidden` a layer";
        Warning::new(NO_EFFECT, message).with_key("train.model.dropout")
    })
}

/// Adapters with more parameters than the matrices that they change.
fn of_rank(lora: &LoraConfig, layout: &Layout) -> Option<Warning> {
    let rank = lora.rank as usize;
    let sides = layout.adapted_sides();
    let largest = sides
        .into_iter()
        .max_by_key(|sides| sides.iter().min().copied())?;
    (largest.iter().all(|side| *side < rank)).then(|| {
        let [from, to] = largest;
        let message = format!(
            "adapters of rank {rank} have more parameters than the matrices that they change, the largest of which is \
             {from} x {to}: a rank below its sides does the same with fewer"
        );
        Warning::new("large_rank", message).with_key("train.lora.rank")
    })
}

/// Adapters to weights that were never trained.
fn of_frozen_base(config: &TrainConfig) -> Option<Warning> {
    (config.lora.is_some() && config.init.is_none()).then(|| {
        let message = "adapters change weights that stay as they are drawn, since no `train.init` gives trained ones";
        Warning::new("untrained_base", message).with_key("train.lora")
    })
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::{AverageConfig, ScheduleConfig, ScheduleKind};

    use super::*;
    use crate::optim::schedule;

    fn keys(config: &TrainConfig) -> Vec<String> {
        let resolved = TrainConfig {
            schedule: schedule::resolve(&config.schedule).unwrap(),
            ..config.clone()
        };
        let mut builder = crate::model::layers::Builder::new();
        let gain = crate::model::layers::Gain::He;
        crate::model::layers::Linear::new(&mut builder, "l", &[9], 16, gain);
        let plain = builder.finish();
        let layout = match &config.lora {
            Some(lora) => plain.adapted(lora).unwrap(),
            None => plain,
        };
        let schedule = schedule::schedule(&resolved, 10);
        let found = warnings(&resolved, &schedule, &layout);
        found
            .into_iter()
            .filter_map(|warning| warning.key)
            .collect()
    }

    fn with(change: impl FnOnce(&mut TrainConfig)) -> Vec<String> {
        let mut config = TrainConfig {
            epochs: 16,
            ..TrainConfig::default()
        };
        change(&mut config);
        keys(&config)
    }

    #[test]
    fn keys_that_the_run_does_not_reach_are_named() {
        let none: [&str; 0] = [];
        assert_eq!(with(|_| ()), none);
        let schedule = |r#type, change: fn(&mut ScheduleConfig)| {
            with(|c| {
                c.schedule.r#type = r#type;
                change(&mut c.schedule);
                c.patience = 5;
            })
        };
        use ScheduleKind::{CosineRestarts, Plateau, Step};
        let steps = |at| schedule(Step, at);
        assert_eq!(steps(|c| c.milestones = Some(vec![40, 159])), none);
        assert_eq!(
            steps(|c| c.milestones = Some(vec![40, 900])),
            ["train.schedule.milestones"]
        );
        assert_eq!(steps(|c| c.every = Some(160)), ["train.schedule.every"]);
        assert_eq!(
            schedule(CosineRestarts, |c| c.period = Some(100_000)),
            ["train.schedule.period"]
        );
        assert_eq!(schedule(CosineRestarts, |c| c.period = Some(50)), none);
        assert_eq!(
            schedule(Plateau, |c| c.patience = Some(9)),
            ["train.schedule.patience"]
        );
        assert_eq!(schedule(Plateau, |c| c.patience = Some(4)), none);
    }

    #[test]
    fn a_guard_that_is_off_and_adapters_that_do_little_are_named() {
        let off = with(|c| (c.guard.spike_factor, c.guard.spike_steps) = (0.0, 9));
        assert_eq!(off, ["train.guard.spike_factor"]);
        assert!(with(|c| c.guard.spike_factor = 0.0).is_empty());
        let of_rank = |rank| {
            with(|c| {
                c.lora = Some(LoraConfig {
                    rank,
                    ..LoraConfig::default()
                });
            })
        };
        assert_eq!(of_rank(400), ["train.lora.rank", "train.lora"]);
        assert_eq!(of_rank(4), ["train.lora"]);
    }

    #[test]
    fn an_average_that_keeps_most_of_the_initial_weights_is_named() {
        // Of 160 steps, 0.9957 to the power of 160 is 0.502, and 0.9956 to that power 0.494.
        let of = |decay, warmup| with(|c| c.average = Some(AverageConfig { decay, warmup }));
        let none: [&str; 0] = [];
        assert_eq!(of(0.99999, false), ["train.average.decay"]);
        assert_eq!(of(0.9957, false), ["train.average.decay"]);
        assert_eq!(of(0.9956, false), none);
        assert_eq!(of(0.0, false), none);
        assert_eq!(of(0.99999, true), none);
    }

    #[test]
    fn skips_without_a_layer_as_wide_as_its_input_are_named() {
        let of_widths = |widths: &[usize], skip| {
            let mut config = TrainConfig::default();
            config.model.r#type = ModelKind::Mlp;
            config.model.skip = skip;
            let mut builder = crate::model::layers::Builder::new();
            for (i, pair) in widths.windows(2).enumerate() {
                let (name, gain) = (format!("layer.{i}"), crate::model::layers::Gain::He);
                crate::model::layers::Linear::new(&mut builder, &name, &[pair[0]], pair[1], gain);
            }
            of_skip(&config, &builder.finish()).and_then(|warning| warning.key)
        };
        let named = Some("train.model.skip".to_owned());
        assert_eq!(of_widths(&[9, 16, 1], Some(true)), named);
        assert_eq!(of_widths(&[9, 16, 8, 1], Some(true)), named);
        // Neither the last layer nor a key that is not set.
        assert_eq!(of_widths(&[9, 1, 1], Some(true)), named);
        assert_eq!(of_widths(&[9, 16, 8, 1], Some(false)), None);
        assert_eq!(of_widths(&[9, 16, 8, 1], None), None);
        // A hidden layer as wide as the features, or as the one before.
        assert_eq!(of_widths(&[9, 9, 1], Some(true)), None);
        assert_eq!(of_widths(&[9, 16, 16, 1], Some(true)), None);
    }

    #[test]
    fn dropout_in_a_model_without_hidden_layers_is_named() {
        let of = |dropout, has_hidden: bool| {
            let mut config = TrainConfig::default();
            config.model.dropout = dropout;
            let mut builder = crate::model::layers::Builder::new();
            if has_hidden {
                crate::model::layers::Dropout::new(&mut builder, dropout);
            }
            of_dropout(&config, &builder.finish()).and_then(|warning| warning.key)
        };
        assert_eq!(of(0.1, false).as_deref(), Some("train.model.dropout"));
        assert_eq!(of(0.1, true), None);
        assert_eq!(of(0.0, false), None);
    }

    #[test]
    fn smoothing_that_outweighs_the_class_of_a_row_is_named_with_the_class_that_is_learnt() {
        let task = Task::Classification {
            counts: vec![1_600, 810, 2],
            names: ["a", "b", "rare"].map(String::from).to_vec(),
        };
        let of = |smoothing, weights: Option<[f32; 3]>| {
            let weights = weights.map(Vec::from);
            of_smoothing(&Loss::CrossEntropy { smoothing, weights }, &task)
        };
        // Balanced weights.
        let balanced = [0.502, 0.993, 402.0];
        let found = of(0.1, Some(balanced)).unwrap();
        assert_eq!(found.key.as_deref(), Some("train.loss.label_smoothing"));
        let parts = "a row of `a` counts 0.469 for `a` and 13.400 for `rare`, so the model learns to predict `rare`";
        assert!(found.message.contains(parts), "{}", found.message);
        assert_eq!(of(0.0, Some(balanced)), None);
        assert_eq!(of(0.1, None), None);
        // 0.1 / 3 * (7.5 - 0.5) is half of 0.5 * 0.9333.
        assert_eq!(of(0.1, Some([0.5, 1.0, 7.4])), None);
        let found = of(0.1, Some([0.5, 1.0, 7.6])).unwrap();
        let parts = "a row of `a` counts 0.467 for `a` and 0.253 for `rare`, so the model can predict `rare` for too many";
        assert!(found.message.contains(parts), "{}", found.message);
        // Classes of 90, 7 and 3 %, balanced.
        assert!(of(0.1, Some([0.37, 4.76, 11.1])).is_some());
        assert_eq!(of(0.9, Some([1.0; 3])), None);
    }

    #[test]
    fn a_batch_set_to_more_samples_than_there_are_is_named_with_their_number() {
        let of = |batch_size, rows, batches| {
            let config = TrainConfig {
                batch_size,
                ..TrainConfig::default()
            };
            let counts = DatasetCounts {
                train: rows,
                ..DatasetCounts::default()
            };
            of_batch(&config, &counts, batches)
        };
        let found = of(5_000, 80, 1).unwrap();
        assert_eq!(found.key.as_deref(), Some("train.batch_size"));
        assert!(found.message.contains("`train.batch_size = 5000`"));
        assert!(found.message.contains("80 samples"), "{}", found.message);
        assert!(of(5_000, 1, 1).unwrap().message.contains("1 sample:"));
        assert_eq!(of(80, 80, 1), None);
        assert_eq!(of(79, 80, 2), None);
        let default = TrainConfig::default().batch_size;
        assert_eq!(of(default, 80, 1), None);
    }
}
