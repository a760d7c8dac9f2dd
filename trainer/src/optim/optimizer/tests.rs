//! Each optimizer against PyTorch's (`tests/torch/optimizers.py`), or against its paper's algorithm in f64 where PyTorch
//! has none.

use std::collections::BTreeMap;

use feedline_schemas::config::{OptimizerConfig, OptimizerKind, ParameterGroup};

use super::{algorithm::PIECE, *};
use crate::{
    float_casts::{exact, single},
    model::interface::Parameter,
};

const STEPS: u64 = 24;

/// As in `optimizers.py`: a matrix, a vector that does not decay, a stack of matrices.
fn parameters() -> Vec<Parameter> {
    let mut begin = 0;
    let shapes: [(&str, &[usize]); 3] =
        [("matrix", &[3, 4]), ("vector", &[4]), ("stack", &[2, 3, 2])];
    shapes
        .into_iter()
        .map(|(name, shape)| {
            let len: usize = shape.iter().product();
            begin += len;
            Parameter {
                name: name.into(),
                shape: shape.into(),
                range: begin - len..begin,
                decays: shape.len() > 1,
                is_hidden: shape.len() > 1,
            }
        })
        .collect()
}

#[test]
fn parameters_of_muon_are_matrices_inside_and_the_others_are_of_adamw() {
    let counts = count_parameters(&parameters());
    assert_eq!((counts.matrices, counts.muon, counts.adamw), (2, 24, 4));
}

const LENGTH: u32 = 28;

fn rate(step: u64) -> f64 {
    0.05 / (1.0 + 0.1 * exact(step))
}

fn gradient(step: u64) -> Vec<f64> {
    let of = |i: u32| {
        let wave = (0.9 * exact(step) + 1.7 * f64::from(i)).sin();
        wave * f64::from(1 + i % 3) * 0.4
    };
    (0..LENGTH).map(of).collect()
}

fn initial() -> Vec<f64> {
    let of = |i| (1.3 * f64::from(i)).cos() * 0.8;
    (0..LENGTH).map(of).collect()
}

fn singles(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&v| single(v)).collect()
}

fn of(kind: OptimizerKind, change: impl FnOnce(&mut OptimizerConfig)) -> OptimizerConfig {
    let mut config = OptimizerConfig {
        r#type: kind,
        ..OptimizerConfig::default()
    };
    change(&mut config);
    resolve(&config).unwrap()
}

/// The weights after each step. The gradient is given at half its size and scaled back, as clipping scales.
fn course(config: &OptimizerConfig) -> Vec<Vec<f32>> {
    let mut bucket = singles(&initial());
    let mut optimizer = Optimizer::new(config, &parameters());
    let mut step = |step| {
        let half: Vec<f64> = gradient(step).iter().map(|g| g / 2.0).collect();
        optimizer.step(&mut bucket, &singles(&half), step, rate(step), 2.0);
        bucket.clone()
    };
    (1..=STEPS).map(&mut step).collect()
}

fn check(name: &str, config: &OptimizerConfig, expected: &[Vec<f64>]) {
    let found = course(config);
    assert_eq!(found.len(), expected.len(), "{name}");
    for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            let difference = (f64::from(*found) - expected).abs();
            assert!(
                difference < 2e-6,
                "{name}, step {}, element {i}: {found}, expected {expected}",
                step + 1
            );
        }
    }
}

#[test]
fn every_step_equals_pytorchs() {
    use OptimizerKind::{Adafactor, Adam, Adamw, Sgd};
    let text = include_str!("../../../tests/torch/optimizers.json");
    let courses: BTreeMap<String, Vec<Vec<f64>>> = serde_json::from_str(text).unwrap();
    let adam = |c: &mut OptimizerConfig| c.beta2 = Some(0.99);
    let cases = [
        ("sgd", of(Sgd, |_| ())),
        ("sgd_l2", of(Sgd, |c| c.l2 = 0.3)),
        (
            "sgd_momentum",
            of(Sgd, |c| {
                (c.momentum, c.dampening, c.l2) = (Some(0.9), Some(0.2), 0.3);
            }),
        ),
        (
            "sgd_nesterov",
            of(Sgd, |c| (c.momentum, c.nesterov) = (Some(0.8), Some(true))),
        ),
        ("adam", of(Adam, adam)),
        ("adam_l2", of(Adam, |c| (c.beta2, c.l2) = (Some(0.99), 0.3))),
        (
            "adamw",
            of(Adamw, |c| {
                (c.beta2, c.weight_decay) = (Some(0.99), Some(0.3))
            }),
        ),
        ("adafactor", of(Adafactor, |_| ())),
        (
            "adafactor_decay",
            of(Adafactor, |c| {
                (c.update_clip, c.weight_decay) = (Some(1.2), Some(0.3));
            }),
        ),
    ];
    assert_eq!(cases.len(), courses.len());
    for (name, config) in cases {
        check(name, &config, &courses[name]);
    }
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// Algorithm 2 of LAMB's paper for one layer, in f64, written for reading.
fn lamb_reference(decay: f64) -> Vec<Vec<f64>> {
    let (beta1, beta2, epsilon) = (0.9_f64, 0.99_f64, 1e-6);
    let mut x = initial();
    let (mut m, mut v) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    let mut step = |t: u64| {
        let g = gradient(t);
        let power = i32::try_from(t).unwrap();
        for layer in parameters() {
            let lambda = if layer.decays { decay } else { 0.0 };
            let mut u = Vec::new();
            for i in layer.range.clone() {
                m[i] = beta1 * m[i] + (1.0 - beta1) * g[i];
                v[i] = beta2 * v[i] + (1.0 - beta2) * g[i] * g[i];
                let m_hat = m[i] / (1.0 - beta1.powi(power));
                let v_hat = v[i] / (1.0 - beta2.powi(power));
                u.push(m_hat / (v_hat.sqrt() + epsilon) + lambda * x[i]);
            }
            let ratio = if layer.decays {
                norm(&x[layer.range.clone()]) / norm(&u)
            } else {
                1.0
            };
            for (i, u) in layer.range.zip(u) {
                x[i] -= rate(t) * ratio * u;
            }
        }
        x.clone()
    };
    (1..=STEPS).map(&mut step).collect()
}

#[test]
fn lamb_follows_its_paper() {
    for decay in [0.0, 0.3] {
        let config = of(OptimizerKind::Lamb, |c| {
            (c.beta2, c.weight_decay) = (Some(0.99), Some(decay));
        });
        check("lamb", &config, &lamb_reference(decay));
    }
}

/// Algorithm 1 of LARS's paper, in f64, written for reading.
fn lars_reference(decay: f64) -> Vec<Vec<f64>> {
    let (momentum, trust) = (0.8, 0.02);
    let mut w = initial();
    let mut v = vec![0.0; w.len()];
    let mut step = |t: u64| {
        let g = gradient(t);
        for layer in parameters() {
            let range = layer.range.clone();
            let (beta, local) = if layer.decays {
                let of_weights = norm(&w[range.clone()]);
                let local = trust * of_weights / (norm(&g[range.clone()]) + decay * of_weights);
                (decay, local)
            } else {
                (0.0, 1.0)
            };
            for i in range {
                v[i] = momentum * v[i] + rate(t) * local * (g[i] + beta * w[i]);
                w[i] -= v[i];
            }
        }
        w.clone()
    };
    (1..=STEPS).map(&mut step).collect()
}

#[test]
fn lars_follows_its_paper() {
    for decay in [0.0, 0.3] {
        let config = of(OptimizerKind::Lars, |c| {
            (c.momentum, c.trust, c.weight_decay) = (Some(0.8), Some(0.02), Some(decay));
        });
        check("lars", &config, &lars_reference(decay));
    }
}

/// `orthogonal(u)` for the rows of a matrix, by the iteration of Newton and Schulz in f64.
fn orthogonal_reference(u: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let product = |a: &[Vec<f64>], b: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let cell = |row: &[f64], j: usize| row.iter().zip(b).map(|(a, b)| a * b[j]).sum();
        let row = |row: &Vec<f64>| (0..b[0].len()).map(|j| cell(row, j)).collect();
        a.iter().map(row).collect()
    };
    let turned = |a: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let column = |j: usize| a.iter().map(|row| row[j]).collect();
        (0..a[0].len()).map(column).collect()
    };
    let length = u.iter().flatten().map(|v| v * v).sum::<f64>().sqrt();
    let scaled = |row: &Vec<f64>| row.iter().map(|v| v / (length + 1e-7)).collect();
    let mut x: Vec<Vec<f64>> = u.iter().map(scaled).collect();
    for _ in 0..5 {
        let square = product(&x, &turned(&x));
        let fourth = product(&square, &square);
        let (third, fifth) = (product(&square, &x), product(&fourth, &x));
        for (i, row) in x.iter_mut().enumerate() {
            for (j, v) in row.iter_mut().enumerate() {
                *v = 3.4445 * *v - 4.7750 * third[i][j] + 2.0315 * fifth[i][j];
            }
        }
    }
    x
}

/// The weights after each step of Muon, in f64: the two matrices by their orthogonal momentum, the vector by AdamW.
fn muon_reference(nesterov: bool) -> Vec<Vec<f64>> {
    const MOMENTUM: f64 = 0.8;
    let mut weights = initial();
    let (mut velocity, mut first, mut second) = ([0.0; 28], [0.0; 4], [0.0; 4]);
    let mut step = |step: u64| {
        let (gradient, rate) = (gradient(step), rate(step));
        for (range, columns) in [(0..12, 4), (16..28, 6)] {
            let moved: Vec<f64> = range
                .clone()
                .map(|i: usize| {
                    velocity[i] = MOMENTUM * velocity[i] + (1.0 - MOMENTUM) * gradient[i];
                    match nesterov {
                        true => (1.0 - MOMENTUM) * gradient[i] + MOMENTUM * velocity[i],
                        false => velocity[i],
                    }
                })
                .collect();
            let rows: Vec<Vec<f64>> = moved.chunks(columns).map(<[f64]>::to_vec).collect();
            let longest = f64::from(u8::try_from(columns.max(rows.len())).unwrap());
            let along = orthogonal_reference(&rows).into_iter().flatten();
            for (i, along) in range.zip(along) {
                weights[i] = weights[i] * (1.0 - rate * 0.1) - rate * 0.2 * longest.sqrt() * along;
            }
        }
        for i in 0..4 {
            let g = gradient[12 + i];
            first[i] = 0.9 * first[i] + 0.1 * g;
            second[i] = 0.999 * second[i] + 0.001 * g * g;
            let corrected = [
                first[i] / (1.0 - 0.9_f64.powf(exact(step))),
                second[i] / (1.0 - 0.999_f64.powf(exact(step))),
            ];
            weights[12 + i] -= rate * corrected[0] / (corrected[1].sqrt() + 1e-8);
        }
        weights.clone()
    };
    (1..=STEPS).map(&mut step).collect()
}

#[test]
fn muon_follows_its_paper_and_updates_vectors_by_adamw() {
    for nesterov in [true, false] {
        let config = of(OptimizerKind::Muon, |c| {
            (c.momentum, c.nesterov) = (Some(0.8), Some(nesterov));
        });
        check("muon", &config, &muon_reference(nesterov));
    }
}

#[test]
fn adafactor_treats_rows_and_columns_alike() {
    let (rows, columns) = (3, 150);
    let matrix = |rows: usize, columns: usize| Parameter {
        name: "matrix".into(),
        shape: vec![rows, columns],
        range: 0..rows * columns,
        decays: true,
        is_hidden: true,
    };
    let transposed = |values: &[f32]| -> Vec<f32> {
        let column = |i| values.iter().skip(i).step_by(columns).copied();
        (0..columns).flat_map(column).collect()
    };
    let config = of(OptimizerKind::Adafactor, |_| ());
    let weights = crate::testing::uniform(rows * columns, 92);
    let (mut wide, mut tall) = (weights.clone(), transposed(&weights));
    let mut of_wide = Optimizer::new(&config, &[matrix(rows, columns)]);
    let mut of_tall = Optimizer::new(&config, &[matrix(columns, rows)]);
    for step in 1..=5 {
        let mut g = crate::testing::uniform(rows * columns, 92 + usize::try_from(step).unwrap());
        let factor = |i: usize| f32::from(u8::try_from(i % columns).unwrap()) / 50.0;
        g.iter_mut().enumerate().for_each(|(i, g)| *g *= factor(i));
        of_wide.step(&mut wide, &g, step, 0.1, 1.0);
        of_tall.step(&mut tall, &transposed(&g), step, 0.1, 1.0);
    }
    for (wide, tall) in transposed(&wide).iter().zip(&tall) {
        assert!((wide - tall).abs() < 1e-6, "{wide} {tall}");
    }
}

#[test]
fn l1_pulls_towards_zero_by_the_same_amount_and_leaves_zero_alone() {
    let config = of(OptimizerKind::Sgd, |c| c.l1 = 0.5);
    let mut bucket = vec![0.0; 28];
    (bucket[0], bucket[1], bucket[12]) = (3.0, -0.2, 3.0);
    let before = bucket.clone();
    Optimizer::new(&config, &parameters()).step(&mut bucket, &[0.0; 28], 1, 0.1, 1.0);
    let moved: Vec<f32> = bucket.iter().zip(before).map(|(a, b)| a - b).collect();
    assert!((moved[0] + 0.05).abs() < 1e-6 && (moved[1] - 0.05).abs() < 1e-6);
    assert!(moved[2..].iter().all(|m| m.to_bits() == 0), "{moved:?}");
}

#[test]
fn weights_or_gradients_of_zero_keep_every_optimizer_finite() {
    for kind in ALL {
        for (weights, gradient) in [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)] {
            let config = of(kind, |_| ());
            let mut optimizer = Optimizer::new(&config, &parameters());
            let mut bucket = vec![weights; 28];
            for step in 1..=3 {
                optimizer.step(&mut bucket, &[gradient; 28], step, 0.1, 1.0);
            }
            assert!(bucket.iter().all(|w| w.is_finite()), "{kind:?} {bucket:?}");
            let moved = bucket[15].to_bits() != f32::to_bits(weights);
            assert_eq!(moved, gradient > 0.0, "{kind:?}: biases follow gradients");
        }
    }
}

const ALL: [OptimizerKind; 7] = [
    OptimizerKind::Sgd,
    OptimizerKind::Adam,
    OptimizerKind::Adamw,
    OptimizerKind::Lamb,
    OptimizerKind::Lars,
    OptimizerKind::Adafactor,
    OptimizerKind::Muon,
];

#[test]
fn the_factor_of_a_group_is_a_factor_of_the_rate() {
    let with = |rate_factor| {
        of(OptimizerKind::Adamw, |c| {
            c.group = vec![ParameterGroup {
                parameters: "stack".into(),
                rate_factor,
                weight_decay: None,
                l2: None,
                l1: None,
            }];
        })
    };
    let step = |config: &OptimizerConfig, rate| {
        let mut bucket = singles(&initial());
        let mut optimizer = Optimizer::new(config, &parameters());
        optimizer.step(&mut bucket, &singles(&gradient(1)), 1, rate, 1.0);
        bucket
    };
    let (plain, grouped, slower) = (
        step(&with(1.0), 0.1),
        step(&with(0.25), 0.1),
        step(&with(1.0), 0.025),
    );
    assert_eq!(grouped[..16], plain[..16]);
    assert_eq!(grouped[16..], slower[16..]);
    assert_ne!(plain[16..], slower[16..]);
}

#[test]
fn state_has_names_and_adafactor_keeps_rows_and_columns() {
    let layout = |config: &OptimizerConfig| state_layout(config, &parameters());
    let named = |names: &[(&str, usize)]| -> StateLayout {
        names.iter().map(|(n, len)| ((*n).into(), *len)).collect()
    };
    assert_eq!(layout(&of(OptimizerKind::Sgd, |_| ())), named(&[]));
    let momentum = of(OptimizerKind::Sgd, |c| c.momentum = Some(0.9));
    assert_eq!(layout(&momentum), named(&[("momentum", 28)]));
    let moments = named(&[("first_moment", 28), ("second_moment", 28)]);
    assert_eq!(layout(&of(OptimizerKind::Adamw, |_| ())), moments);
    let factored = named(&[
        ("row_moment", 3 + 6),
        ("column_moment", 4 + 4),
        ("second_moment", 4),
    ]);
    assert_eq!(layout(&of(OptimizerKind::Adafactor, |_| ())), factored);
    let matrices = named(&[("first_moment", 28), ("second_moment", 4)]);
    assert_eq!(layout(&of(OptimizerKind::Muon, |_| ())), matrices);
}

#[test]
fn a_step_has_the_same_bits_on_any_number_of_threads() {
    let (rows, columns, plain) = (331, 153, 2 * PIECE + 17);
    let parameter = |name: &str, shape: &[usize], begin: usize| Parameter {
        name: name.into(),
        shape: shape.into(),
        range: begin..begin + shape.iter().product::<usize>(),
        decays: shape.len() > 1,
        is_hidden: shape.len() > 1,
    };
    let layout = [
        parameter("matrix", &[rows, columns], 0),
        parameter("vector", &[plain], rows * columns),
    ];
    let n = rows * columns + plain;
    let (weights, gradient) = (
        crate::testing::uniform(n, 90),
        crate::testing::uniform(n, 91),
    );
    for kind in ALL {
        let config = of(kind, |c| c.l1 = 0.01);
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            pool.install(|| {
                let mut bucket = weights.clone();
                let mut optimizer = Optimizer::new(&config, &layout);
                for step in 1..=3 {
                    optimizer.step(&mut bucket, &gradient, step, 0.1, 0.7);
                }
                let state = optimizer.state().iter().flat_map(|s| &s.values);
                let bits = bucket.iter().chain(state).map(|w| w.to_bits());
                bits.collect::<Vec<_>>()
            })
        };
        let one = on(1);
        assert!(on(3) == one && on(5) == one, "{kind:?}");
    }
}
