mod sections;

use feedline_schemas::{
    config::{LossKind, ModelConfig, ModelKind, NormKind, TrainConfig},
    ids::{Seed, Step},
};

use super::{
    parts::{PART_ROWS, part_count},
    *,
};
use crate::{
    config::settings,
    data::samples::{ModelInputs, Targets},
    float_casts::single,
    model::{interface::Shape, models},
    optim::loss,
    parallel::{RankPlace, Tree},
    random::Stream,
    testing::uniform,
};

/// A perceptron in plain f64, written for reading. Dropout is given as one mask per hidden layer.
struct Reference {
    widths: Vec<usize>,
}

impl Reference {
    fn outputs(&self, bucket: &[f64], x: &[f64], masks: &[Vec<f64>]) -> Vec<f64> {
        let mut x = x.to_vec();
        let mut rest = bucket;
        for (layer, pair) in self.widths.windows(2).enumerate() {
            let (from, to) = (pair[0], pair[1]);
            let (weight, after) = rest.split_at(from * to);
            let (bias, after) = after.split_at(to);
            rest = after;
            let dot =
                |j: usize| bias[j] + (0..from).map(|i| x[i] * weight[i * to + j]).sum::<f64>();
            x = (0..to).map(dot).collect();
            if layer + 2 < self.widths.len() {
                x = x
                    .iter()
                    .map(|z| 0.5 * z * (1.0 + erf(z / 2.0_f64.sqrt())))
                    .collect();
                if let Some(mask) = masks.get(layer) {
                    x.iter_mut().zip(mask).for_each(|(x, m)| *x *= m);
                }
            }
        }
        x
    }

    fn loss(&self, bucket: &[f64], samples: Samples<'_>) -> f64 {
        let rows = samples.rows();
        let inputs = samples.inputs.features;
        let loss = |row: usize| {
            let x = &samples.inputs.x[row * inputs..(row + 1) * inputs];
            let x: Vec<f64> = x.iter().map(|&v| v.into()).collect();
            let outputs = self.outputs(bucket, &x, &[]);
            match samples.targets {
                Targets::None => unreachable!("these samples have targets"),
                Targets::Numbers(y) => (outputs[0] - f64::from(y[row])).powi(2),
                Targets::Vectors { y, width } => {
                    let y = &y[row * width..(row + 1) * width];
                    let squares = outputs.iter().zip(y);
                    let squares = squares.map(|(output, y)| (output - f64::from(*y)).powi(2));
                    squares.sum::<f64>() / exact_len(width)
                }
                Targets::Classes(y) => {
                    let sum: f64 = outputs.iter().map(|o| o.exp()).sum();
                    sum.ln() - outputs[usize::try_from(y[row]).unwrap()]
                }
            }
        };
        (0..rows).map(loss).sum::<f64>() / exact_len(rows)
    }
}

/// The error function by its Taylor series, which is good to f64 for small arguments.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..60 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

fn engine(
    inputs: usize,
    hidden: &[u32],
    outputs: usize,
    dropout: f64,
    loss: LossKind,
) -> ModelEngine {
    let config = ModelConfig {
        hidden: Some(hidden.to_vec()),
        dropout,
        ..ModelConfig::default()
    };
    let shape = Shape::Rows { features: inputs };
    ModelEngine::new(models::build(&config, shape, outputs).unwrap(), loss.into())
}

fn stream(step: u64) -> Stream {
    Stream::dropout(Seed::new(1), Step::new(step))
}

/// Compares the gradient with central differences of the reference, every element.
fn check_gradient(hidden: &[u32], outputs: usize, loss: LossKind, targets: Targets<'_>) {
    let (inputs, rows) = (3, targets.len());
    let engine = engine(inputs, hidden, outputs, 0.0, loss);
    let mut widths = vec![inputs];
    widths.extend(hidden.iter().map(|&w| w as usize));
    widths.push(outputs);
    let reference = Reference { widths };
    let mut bucket = engine.model().initial(Seed::new(2));
    // Biases start at 0: move them, so that they are tested away from it.
    bucket
        .iter_mut()
        .zip(uniform(10_000, 50))
        .for_each(|(w, u)| *w += 0.1 * u);
    let x = uniform(rows * inputs, 51);
    let samples = Samples::of_rows(&x, inputs, targets);

    let mut gradient = vec![0.0; bucket.len()];
    let losses = engine
        .loss_and_gradient(&bucket, samples, (stream(0), 1.0), &mut gradient)
        .losses;
    let wide: Vec<f64> = bucket.iter().map(|&w| w.into()).collect();
    let expected = reference.loss(&wide, samples);
    assert!(
        (loss::sum(&losses) / exact_len(rows) - expected).abs() < 1e-6,
        "loss {} {expected}",
        loss::sum(&losses) / exact_len(rows)
    );
    for i in 0..bucket.len() {
        let at = |shift: f64| {
            let mut moved = wide.clone();
            moved[i] += shift;
            reference.loss(&moved, samples)
        };
        let difference = (at(1e-5) - at(-1e-5)) / 2e-5;
        let found = f64::from(gradient[i]);
        assert!(
            (found - difference).abs() < 2e-6 + 2e-5 * difference.abs(),
            "element {i}: {found} {difference}"
        );
    }
}

#[test]
fn gradient_of_squared_error_equals_finite_differences() {
    let y = uniform(7, 52);
    check_gradient(&[5, 4], 1, LossKind::Mse, Targets::Numbers(&y));
    check_gradient(&[], 1, LossKind::Mse, Targets::Numbers(&y));
}

#[test]
fn gradient_of_cross_entropy_equals_finite_differences() {
    let y = [0, 2, 1, 2, 3, 0, 0, 1];
    check_gradient(&[6], 4, LossKind::CrossEntropy, Targets::Classes(&y));
    check_gradient(&[3, 3, 3], 4, LossKind::CrossEntropy, Targets::Classes(&y));
}

#[test]
fn gradient_of_a_batch_in_parts_equals_finite_differences() {
    let y = uniform(2 * PART_ROWS + 3, 53);
    check_gradient(&[2], 1, LossKind::Mse, Targets::Numbers(&y));
}

/// Losses and gradient of one step on a batch of several parts, as bits.
fn bits(threads: usize, rows: usize, dropout: f64) -> Vec<u32> {
    let model = engine(24, &[256, 256], 1, dropout, LossKind::Mse).model;
    let engine = ModelEngine::with_threads(model, LossKind::Mse.into(), threads);
    let bucket = engine.model().initial(Seed::new(2));
    let (x, y) = (uniform(24 * rows, 54), uniform(rows, 55));
    let samples = Samples::of_rows(&x, 24, Targets::Numbers(&y));
    let mut gradient = vec![0.0; bucket.len()];
    let losses = engine
        .loss_and_gradient(&bucket, samples, (stream(3), 1.0), &mut gradient)
        .losses;
    losses
        .iter()
        .chain(&gradient)
        .map(|v| v.to_bits())
        .collect()
}

#[test]
fn gradient_has_the_same_bits_in_every_run_and_on_any_number_of_threads() {
    for rows in [2 * PART_ROWS + 100, 37] {
        let first = bits(1, rows, 0.2);
        for threads in [0, 1, 2, 3, 4, 2, 2] {
            assert!(
                bits(threads, rows, 0.2) == first,
                "{threads} threads, {rows} rows"
            );
        }
        for pool in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(pool)
                .build()
                .unwrap();
            assert!(pool.install(|| bits(1, rows, 0.2)) == first, "{pool:?}");
        }
    }
}

#[test]
fn dropout_follows_the_step_and_is_off_in_prediction() {
    let engine = engine(8, &[64], 1, 0.5, LossKind::Mse);
    let bucket = engine.model().initial(Seed::new(2));
    let (x, y) = (uniform(8 * 16, 56), uniform(16, 57));
    let samples = Samples::of_rows(&x, 8, Targets::Numbers(&y));
    let losses = |step| {
        engine
            .loss_and_gradient(
                &bucket,
                samples,
                (stream(step), 1.0),
                &mut vec![0.0; bucket.len()],
            )
            .losses
    };
    assert_eq!(losses(1), losses(1));
    assert_ne!(losses(1), losses(2));
    assert_eq!(
        engine.predict(&engine.weights(&bucket), samples),
        engine.predict(&engine.weights(&bucket), samples)
    );
    assert_ne!(
        engine.predict(&engine.weights(&bucket), samples).losses,
        losses(1)
    );
}

#[test]
fn prediction_of_many_rows_comes_in_row_order() {
    let engine = engine(1, &[], 1, 0.0, LossKind::Mse);
    let rows = u16::try_from(5 * PART_ROWS + 1).unwrap();
    let x: Vec<f32> = (0..rows).map(f32::from).collect();
    let samples = Samples::of_rows(&x, 1, Targets::Numbers(&x));
    assert_eq!(
        engine
            .predict(&engine.weights(&[1.0, 0.0]), samples)
            .outputs,
        x
    );
}

/// A perceptron with one hidden layer of three and a batch norm.
fn normed(threads: usize) -> ModelEngine {
    let config = ModelConfig {
        hidden: Some(vec![3]),
        norm: Some(NormKind::Batch),
        ..ModelConfig::default()
    };
    let model = models::build(&config, Shape::Rows { features: 2 }, 1).unwrap();
    ModelEngine::with_threads(model, LossKind::Mse.into(), threads)
}

#[test]
fn running_statistics_move_a_tenth_of_the_way_to_those_of_the_batch() {
    let rows = 2 * PART_ROWS + 3;
    let (x, y) = (uniform(2 * rows, 58), uniform(rows, 59));
    let samples = Samples::of_rows(&x, 2, Targets::Numbers(&y));
    let run = |threads| {
        let engine = normed(threads);
        let mut bucket = engine.model().initial(Seed::new(2));
        let mut gradient = vec![0.0; bucket.len()];
        let computed = engine.loss_and_gradient(&bucket, samples, (stream(0), 1.0), &mut gradient);
        engine.move_buffers(&mut bucket, &computed.buffers, rows);
        bucket
    };
    let bucket = run(1);
    let trained = normed(1).model().layout().trained_len();
    assert_eq!(bucket.len(), trained + 6);
    for unit in 0..3 {
        let outputs = x
            .chunks(2)
            .map(|x| x[0] * bucket[unit] + x[1] * bucket[3 + unit]);
        let mean = outputs.map(f64::from).sum::<f64>() / exact_len(rows);
        let found = f64::from(bucket[trained + unit]);
        assert!((found - 0.1 * mean).abs() < 1e-6, "{found} {mean}");
    }
    let bits = |bucket: &[f32]| bucket.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&bucket), bits(&run(3)));
}

/// Images and packed tokens.
struct Mixed {
    pixels: Vec<u8>,
    classes: Vec<i32>,
    ids: Vec<u32>,
    segments: Vec<u32>,
    positions: Vec<u32>,
}

impl Mixed {
    const IMAGES: Shape = Shape::Images {
        channels: 3,
        height: 8,
        width: 8,
    };
    const TOKENS: Shape = Shape::Tokens {
        length: 300,
        vocabulary: 5,
    };

    fn new() -> Self {
        let pixels = (0..70 * 8 * 8 * 3_u32).map(|i| u8::try_from(i * 31 % 251).unwrap());
        Self {
            pixels: pixels.collect(),
            classes: (0..70).map(|i| i % 3).collect(),
            ids: (0..10 * 301).map(|i| i * 7 % 5).collect(),
            segments: (0..10 * 301).map(|i| 1 + i % 301 / 100).collect(),
            positions: (0..10 * 301).map(|i| i % 301 % 100).collect(),
        }
    }

    fn images(&self) -> Samples<'_> {
        let images = ModelInputs {
            pixels: &self.pixels,
            sides: [8, 8],
            ..ModelInputs::default()
        };
        Samples::new(70, images, Targets::Classes(&self.classes))
    }

    fn tokens(&self) -> Samples<'_> {
        let tokens = ModelInputs {
            tokens: &self.ids,
            segments: &self.segments,
            positions: &self.positions,
            length: 301,
            ..ModelInputs::default()
        };
        Samples::new(10, tokens, Targets::None)
    }
}

/// An engine for a model of `config`.
fn engine_of(config: &TrainConfig, shape: Shape, threads: usize) -> ModelEngine {
    let model = models::build(&models::filled(config), shape, 5).unwrap();
    let passes = settings::passes(config, model.layout()).unwrap();
    ModelEngine::with_threads(model, LossKind::CrossEntropy.into(), threads).with_passes(passes)
}

/// Result of a step of a model of `config`, as bits.
fn step_bits(config: ModelConfig, shape: Shape, samples: Samples<'_>, threads: usize) -> Vec<u32> {
    let config = TrainConfig {
        model: config,
        ..TrainConfig::default()
    };
    let engine = engine_of(&config, shape, threads);
    let bucket = engine.model().initial(Seed::new(2));
    let mut gradient = vec![0.0; bucket.len()];
    let computed = engine.loss_and_gradient(&bucket, samples, (stream(3), 1.0), &mut gradient);
    let numbers = computed.losses.iter().chain(&computed.buffers);
    let numbers = numbers.chain(&gradient).map(|v| v.to_bits());
    numbers.collect()
}

fn of_kind(kind: ModelKind) -> ModelConfig {
    let narrow = matches!(kind, ModelKind::Transformer | ModelKind::Vit);
    ModelConfig {
        r#type: kind,
        dropout: 0.2,
        width: narrow.then_some(8),
        patch: (kind == ModelKind::Vit).then_some(4),
        ..ModelConfig::default()
    }
}

#[test]
fn images_and_tokens_give_the_same_bits_on_any_number_of_threads() {
    let mixed = Mixed::new();
    for (kind, shape, samples) in [
        (ModelKind::Cnn, Mixed::IMAGES, mixed.images()),
        (ModelKind::Transformer, Mixed::TOKENS, mixed.tokens()),
    ] {
        let bits = |threads| step_bits(of_kind(kind), shape, samples, threads);
        let one = bits(1);
        assert_eq!(one, bits(3));
        assert_eq!(one, bits(5));
    }
}

/// Contribution of a rank to a step on a batch of eight parts or more: loss, weight, gradient and
/// buffers.
fn of_rank(kind: ModelKind, shape: Shape, batch: Samples<'_>, place: RankPlace) -> Vec<f64> {
    let config = TrainConfig {
        model: of_kind(kind),
        ..TrainConfig::default()
    };
    let model = models::build(&models::filled(&config), shape, 5).unwrap();
    let engine = ModelEngine::new(model, LossKind::CrossEntropy.into()).with_cut(BatchCut {
        least: 8,
        place,
        ..BatchCut::BY_SHAPE
    });
    let bucket = engine.model().initial(Seed::new(2));
    let mut gradient = vec![0.0; bucket.len()];
    let border = |rank: usize| rank * batch.rows() / place.world;
    let share = batch.slice(border(place.rank)..border(place.rank + 1));
    let computed = engine.loss_and_gradient(&bucket, share, (stream(3), 1.0), &mut gradient);
    let wide = gradient
        .iter()
        .chain(&computed.buffers)
        .map(|v| (*v).into());
    [computed.loss_sum, computed.weight]
        .into_iter()
        .chain(wide)
        .collect()
}

#[test]
fn ranks_that_divide_the_parts_add_up_to_the_bits_of_one() {
    let mixed = Mixed::new();
    for (kind, shape, batch) in [
        (ModelKind::Cnn, Mixed::IMAGES, mixed.images()),
        (ModelKind::Transformer, Mixed::TOKENS, mixed.tokens()),
    ] {
        let alone = of_rank(kind, shape, batch, RankPlace::ALONE);
        // Sums beyond loss and weight are in f32.
        let add = |sum: &mut Vec<f64>, part: Vec<f64>| {
            for (at, (sum, part)) in sum.iter_mut().zip(part).enumerate() {
                *sum += part;
                if at >= 2 {
                    *sum = single(*sum).into();
                }
            }
        };
        for world in [2, 4, 8] {
            let mut tree = Tree::default();
            for rank in 0..world {
                let place = RankPlace { rank, world };
                tree.push(Some(of_rank(kind, shape, batch, place)), add);
            }
            let together = tree.finish(add).unwrap();
            assert!(together == alone, "{kind:?} on {world} ranks");
        }
    }
}

#[test]
fn blocks_that_are_computed_again_give_the_same_bits() {
    let mixed = Mixed::new();
    for (kind, shape, samples, some) in [
        (ModelKind::Cnn, Mixed::IMAGES, mixed.images(), "conv.1"),
        (ModelKind::Vit, Mixed::IMAGES, mixed.images(), "block.2"),
        (
            ModelKind::Transformer,
            Mixed::TOKENS,
            mixed.tokens(),
            "block.0",
        ),
    ] {
        let bits = |checkpoint: &[&str]| {
            let config = ModelConfig {
                checkpoint: checkpoint.iter().map(ToString::to_string).collect(),
                ..of_kind(kind)
            };
            step_bits(config, shape, samples, 2)
        };
        let kept = bits(&[]);
        assert!(bits(&["*"]) == kept, "{kind:?}, all");
        assert!(bits(&[some]) == kept, "{kind:?}, {some}");
    }
}

#[test]
fn frozen_parameters_have_no_gradient_and_the_others_the_same_as_ever() {
    let mixed = Mixed::new();
    let gradient = |freeze: &[&str], checkpoint: &[&str]| {
        let config = TrainConfig {
            model: ModelConfig {
                checkpoint: checkpoint.iter().map(ToString::to_string).collect(),
                ..of_kind(ModelKind::Transformer)
            },
            freeze: freeze.iter().map(ToString::to_string).collect(),
            ..TrainConfig::default()
        };
        let engine = engine_of(&config, Mixed::TOKENS, 1);
        let bucket = engine.model().initial(Seed::new(2));
        let mut gradient = vec![0.0; bucket.len()];
        engine.loss_and_gradient(&bucket, mixed.tokens(), (stream(3), 1.0), &mut gradient);
        let layout = engine.model().layout().clone();
        let of_entry = |entry: &Parameter| {
            let values = gradient[entry.range.clone()].iter();
            (entry.name.clone(), values.map(|v| v.to_bits()).collect())
        };
        layout
            .entries()
            .iter()
            .map(of_entry)
            .collect::<Vec<(String, Vec<u32>)>>()
    };
    let all = gradient(&[], &[]);
    for checkpoint in [&[][..], &["*"]] {
        let some = gradient(&["*s.weight", "block.0.*", "block.2.up.*"], checkpoint);
        for ((name, found), (_, expected)) in some.iter().zip(&all) {
            let frozen = ["tokens.", "positions.", "block.0.", "block.2.up."];
            if frozen.iter().any(|start| name.starts_with(start)) {
                assert!(found.iter().all(|bits| *bits == 0), "{name}");
            } else {
                assert!(found == expected, "{name}");
            }
        }
    }
}

/// A figure of this process's memory, in KiB.
fn kibibytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let found = status.lines().find_map(|line| line.strip_prefix(name));
    let found = found.unwrap().trim().trim_end_matches(" kB");
    found.parse().unwrap()
}

/// Takes a step of a transformer of 12 blocks and prints by how much the process's memory grows at most.
fn print_peak_of_a_step(checkpoint: &[&str], freeze: &[&str]) {
    let before = kibibytes("VmRSS:");
    let model = ModelConfig {
        r#type: ModelKind::Transformer,
        layers: Some(12),
        checkpoint: checkpoint.iter().map(ToString::to_string).collect(),
        ..ModelConfig::default()
    };
    let config = TrainConfig {
        model,
        freeze: freeze.iter().map(ToString::to_string).collect(),
        ..TrainConfig::default()
    };
    let ids: Vec<u32> = (0..8 * 129).map(|i| i % 64).collect();
    let tokens = ModelInputs {
        tokens: &ids,
        length: 129,
        ..ModelInputs::default()
    };
    let shape = Shape::Tokens {
        length: 128,
        vocabulary: 64,
    };
    let engine = engine_of(&config, shape, 1);
    let bucket = engine.model().initial(Seed::new(2));
    let samples = Samples::new(8, tokens, Targets::None);
    let mut gradient = vec![0.0; bucket.len()];
    engine.loss_and_gradient(&bucket, samples, (stream(3), 1.0), &mut gradient);
    println!("peak {}", kibibytes("VmHWM:") - before);
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn peak_of_a_step_that_keeps_all_blocks() {
    print_peak_of_a_step(&[], &[]);
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn peak_of_a_step_that_computes_all_blocks_again() {
    print_peak_of_a_step(&["*"], &[]);
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn peak_of_a_step_that_trains_the_last_block() {
    let blocks = (0..11).map(|i| format!("block.{i}.*"));
    let below: Vec<String> = blocks.chain(["*s.weight".to_owned()]).collect();
    let below: Vec<&str> = below.iter().map(String::as_str).collect();
    print_peak_of_a_step(&[], &below);
}

#[test]
fn blocks_that_are_computed_again_or_frozen_take_less_than_half_of_the_memory() {
    let peak = |test: &str| -> u64 {
        let test = format!("model::engine::tests::{test}");
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        let output = process
            .args(["--exact", &test, "--ignored", "--nocapture"])
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let peak = text.lines().find_map(|line| line.strip_prefix("peak "));
        peak.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    };
    let kept = peak("peak_of_a_step_that_keeps_all_blocks");
    let again = peak("peak_of_a_step_that_computes_all_blocks_again");
    println!("peak {kept} KiB, {again} KiB with blocks computed again");
    assert!(again < kept / 2, "{again} KiB of {kept} KiB");
    let frozen = peak("peak_of_a_step_that_trains_the_last_block");
    println!("peak {frozen} KiB with all but the last block frozen");
    assert!(frozen < kept / 2, "{frozen} KiB of {kept} KiB");
}

#[test]
#[ignore = "a measurement, not a check"]
fn steps_per_second() {
    use crate::optim::optimizer::{Optimizer, resolve};
    use feedline_schemas::config::OptimizerConfig;
    use feedline_storage::clock::{Clock, SystemClock};
    let clock = SystemClock;
    for (threads, rows, dropout) in [
        (1, 256, 0.0),
        (2, 256, 0.0),
        (1, 4096, 0.0),
        (2, 4096, 0.0),
        (2, 4096, 0.1),
    ] {
        let model = engine(64, &[256, 256], 1, dropout, LossKind::Mse).model;
        let engine = ModelEngine::with_threads(model, LossKind::Mse.into(), threads);
        let mut bucket = engine.model().initial(Seed::new(2));
        let (x, y) = (uniform(64 * rows, 54), uniform(rows, 55));
        let samples = Samples::of_rows(&x, 64, Targets::Numbers(&y));
        let mut gradient = vec![0.0; bucket.len()];
        let config = resolve(&OptimizerConfig::default()).unwrap();
        let mut optimizer = Optimizer::new(&config, engine.model().parameters());
        let steps = if rows > 1000 { 30 } else { 300 };
        let (mut engine_time, mut rest) = (0.0, 0.0);
        for step in 1..=steps {
            let start = clock.monotonic();
            engine.loss_and_gradient(&bucket, samples, (stream(step), 1.0), &mut gradient);
            let middle = clock.monotonic();
            std::hint::black_box(crate::optim::clip::sum_of_squares(&gradient));
            optimizer.step(&mut bucket, &gradient, step, 1e-3, 1.0);
            engine_time += (middle - start).as_secs_f64();
            rest += (clock.monotonic() - middle).as_secs_f64();
        }
        let per = 1e3 / f64::from(u32::try_from(steps).unwrap());
        println!(
            "threads {threads}, rows {rows}, dropout {dropout}: {:.2} ms gradient, {:.2} ms optimizer",
            engine_time * per,
            rest * per
        );
    }
}

#[test]
#[ignore = "a measurement, not a check"]
fn images_and_tokens_per_second() {
    use feedline_storage::clock::{Clock, SystemClock};
    let clock = SystemClock;
    let pixels = vec![77; 128 * 28 * 28 * 3];
    let classes = vec![1; 128];
    let images = ModelInputs {
        pixels: &pixels,
        sides: [28, 28],
        ..ModelInputs::default()
    };
    let images = Samples::new(128, images, Targets::Classes(&classes));
    let ids: Vec<u32> = (0..16 * 129).map(|i| i % 500).collect();
    let tokens = ModelInputs {
        tokens: &ids,
        length: 129,
        ..ModelInputs::default()
    };
    let tokens = Samples::new(16, tokens, Targets::None);
    let shapes = [
        Shape::Images {
            channels: 3,
            height: 28,
            width: 28,
        },
        Shape::Tokens {
            length: 128,
            vocabulary: 512,
        },
    ];
    let cnn = ModelConfig {
        r#type: ModelKind::Cnn,
        norm: Some(NormKind::None),
        ..ModelConfig::default()
    };
    let transformer = ModelConfig {
        r#type: ModelKind::Transformer,
        ..ModelConfig::default()
    };
    for (config, shape, samples) in [(cnn, shapes[0], images), (transformer, shapes[1], tokens)] {
        let config = TrainConfig {
            model: config,
            ..TrainConfig::default()
        };
        let model = models::build(&models::filled(&config), shape, 512).unwrap();
        let engine = ModelEngine::with_threads(model, LossKind::CrossEntropy.into(), 1);
        let bucket = engine.model().initial(Seed::new(2));
        let mut gradient = vec![0.0; bucket.len()];
        let start = clock.monotonic();
        for step in 0..5 {
            engine.loss_and_gradient(&bucket, samples, (stream(step), 1.0), &mut gradient);
        }
        let each = (clock.monotonic() - start).as_secs_f64() / 5.0;
        println!("{:?}: {:.0} ms a step", config.model.r#type, 1e3 * each);
        let facts = engine.model().layout().facts().iter();
        let kept: usize = facts.map(|layer| layer.kept + layer.scores).sum();
        let parts = part_count(shape, samples.rows(), bucket.len(), 1);
        let rows = samples.rows().div_ceil(parts);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find(|line| line.starts_with("VmHWM"));
        println!("kept by layers {} KiB, {peak:?}", kept * rows * 4 / 1024);
    }
}
