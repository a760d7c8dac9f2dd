//! Batches that go wrong. `FEEDLINE_INJECTIONS` says how many samples are poisoned; 20 without it.

use burn::tensor::Tensor;
use feedline_schemas::config::NotFinitePolicy;
use safetensors::SafeTensors;

use super::*;
use crate::{
    engine::Engine,
    layers::{Buffer, Builder, Gain, Layout, Linear, Pass},
    model::{Input, Model},
    parallel::Group,
    testing::train_on,
};

/// Tensors of a checkpoint by name.
fn tensors(files: &BTreeMap<String, Vec<u8>>, step: u64) -> BTreeMap<String, Vec<u8>> {
    let bytes = &files[&format!("checkpoints/step-{step:08}.safetensors")];
    let file = SafeTensors::deserialize(bytes).unwrap();
    let tensors = file.iter().filter(|(name, _)| !name.starts_with("best."));
    tensors
        .map(|(name, view)| (name.to_owned(), view.data().to_vec()))
        .collect()
}

fn lines(files: &BTreeMap<String, Vec<u8>>, kind: &str) -> Vec<serde_json::Value> {
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

#[test]
fn a_poisoned_sample_changes_no_bit_of_weights_optimizer_and_average() {
    let asked = std::env::var_os("FEEDLINE_INJECTIONS");
    let count = asked.map_or(20, |text| text.to_string_lossy().parse().unwrap());
    let poisons = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e38, -f32::NAN];
    let mut config = lenient();
    config.epochs = 1;
    for injection in 0..count {
        let mut toy = regression(50);
        let (row, poison) = (injection * 37 % 200, poisons[injection % poisons.len()]);
        if injection % 2 == 0 && !poison.is_finite() {
            toy.splits[0].x[4 * row + injection % 4] = poison;
        } else {
            let Column::Numbers(y) = &mut toy.splits[0].y else {
                unreachable!()
            };
            y[row] = poison;
        }
        let store = Store::memory();
        let report = train(&config, &toy, Resume::Fresh, &store).unwrap();
        assert_eq!(
            report.skipped_batches, 1,
            "{injection}: {poison} in row {row}"
        );
        let files = contents(&store);
        let skipped = lines(&files, "skipped");
        let step = skipped[0]["step"].as_u64().unwrap();
        assert_eq!(skipped[0]["samples"][0]["key"], format!("{row:016x}"));
        assert_eq!(skipped[0]["samples"][0]["row"], row);
        if step > 1 {
            assert!(
                tensors(&files, step) == tensors(&files, step - 1),
                "{injection}"
            );
        }
        if step < 4 {
            assert!(
                tensors(&files, step) != tensors(&files, step + 1),
                "{injection}"
            );
        }
    }
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

/// Where a model goes wrong in training.
#[derive(Clone, Copy, Debug)]
enum Place {
    Activation,
    Gradient,
    Statistics,
}

/// A linear model whose numbers are bad in training.
#[derive(Debug)]
struct Bad {
    layer: Linear,
    buffer: Buffer,
    layout: Layout,
    place: Place,
}

impl Bad {
    fn new(place: Place) -> Self {
        let mut builder = Builder::new();
        let layer = Linear::new(&mut builder, "layer", &[4], 1, Gain::Glorot);
        let buffer = builder.buffer("seen", &[1], 0.5);
        Self {
            layer,
            buffer,
            layout: builder.finish(),
            place,
        }
    }
}

impl Model for Bad {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn forward(&self, pass: &mut Pass<'_>, input: &Input) -> Tensor<2> {
        let outputs = self.layer.forward(pass, input.rows());
        if !pass.is_training() {
            return outputs;
        }
        match self.place {
            Place::Activation => outputs * f32::INFINITY,
            // The square root of 0 is 0, and its slope is not finite.
            Place::Gradient => outputs.clone() + (outputs * 0.0).sqrt(),
            Place::Statistics => {
                let seen = outputs.clone().mean() * f32::NAN;
                pass.observe(self.buffer, seen);
                outputs
            }
        }
    }
}

#[test]
fn bad_activations_gradients_and_statistics_change_nothing_either() {
    for place in [Place::Activation, Place::Gradient, Place::Statistics] {
        let (toy, store) = (regression(50), Store::memory());
        let mut config = lenient();
        config.guard.max_skipped = 99;
        let loss = plan(&config, &toy).settings.loss().clone();
        let model = Bad::new(place);
        let first = model.initial(config.seed);
        let engine = Engine::new(Box::new(model), loss);
        let report = train_on(
            (&Group::alone(), engine),
            &config,
            &toy,
            Resume::Fresh,
            &store,
        )
        .unwrap();
        assert_eq!(report.skipped_batches, 12, "{place:?}");
        let files = contents(&store);
        let last = tensors(&files, 12);
        for (name, bytes) in &last {
            let zero = bytes.iter().all(|byte| *byte == 0);
            assert!(zero || !name.starts_with("optimizer."), "{place:?} {name}");
        }
        for parameter in Bad::new(place).layout().entries() {
            let numbers = first[parameter.range.clone()].iter();
            let expected: Vec<u8> = numbers.flat_map(|v| v.to_le_bytes()).collect();
            let name = format!("parameter.{}", parameter.name);
            assert!(last[&name] == expected, "{place:?} {name}");
        }
    }
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
    assert_eq!(lines(&contents(&store), "rollback")[0]["to"], 0);
    config.guard.max_rollbacks = 0;
    let error = train(&config, &toy, Resume::Fresh, &Store::memory()).unwrap_err();
    assert!(matches!(error, Error::Diverged { .. }), "{error}");
}
