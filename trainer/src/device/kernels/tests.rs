//! Kernels on an adapter beside the processor, where their callers use operations of the library.

use burn::tensor::{Device, Tensor, TensorData};
use feedline_schemas::config::{OptimizerConfig, OptimizerKind, ParameterGroup};

use super::*;
use crate::{
    device::numbers,
    float_casts::exact_len,
    model::{
        interface::Parameter,
        layers::check::adapter,
        packed_bucket::{ALIGNMENT, Pack},
    },
    optim::optimizer::{DeviceOptimizer, Optimizer, StepVerdict, resolve},
    testing::uniform,
};

fn on(device: &Device, values: &[f32]) -> Tensor<1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

fn device() -> Option<Device> {
    let found = adapter().map(|adapter| adapter.device);
    if found.is_none() {
        eprintln!("skipped: no adapter");
    }
    found
}

#[test]
fn sums_and_lengths_of_any_number_are_those_in_f64() {
    let Some(device) = device() else { return };
    for len in [1, 2, 127, 128, 129, 1000, 128 * 128, 128 * 128 + 1, 300_001] {
        let values = uniform(len, 5);
        let wide: Vec<f64> = values.iter().map(|&v| f64::from(v)).collect();
        let x = on(&device, &values);
        let found = f64::from(numbers(total(&x).unwrap())[0]);
        let sizes: f64 = wide.iter().map(|v| v.abs()).sum();
        let error = (found - wide.iter().sum::<f64>()).abs();
        assert!(error <= 1e-6 * sizes, "{len}: {error}");
        let found = f64::from(numbers(length(&x).unwrap())[0]);
        let expected = wide.iter().map(|v| v * v).sum::<f64>().sqrt();
        assert!(
            (found / expected - 1.0).abs() < 1e-5,
            "{len}: {found} for {expected}"
        );
    }
}

#[test]
fn a_length_overflows_last_and_is_not_finite_where_an_element_is_not() {
    let Some(device) = device() else { return };
    for len in [3, 500, 40_000] {
        let length = |values: &[f32]| numbers(length(&on(&device, values)).unwrap())[0];
        let most = f32::MAX / 4.0;
        let mut values = vec![0.0; len];
        assert!(length(&values).abs() < f32::MIN_POSITIVE, "{len}");
        values[len - 1] = most;
        values[len / 2] = most;
        let found = length(&values) / most;
        assert!((found - 2.0_f32.sqrt()).abs() < 1e-5, "{len}: {found}");
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for place in [0, len / 2, len - 1] {
                let mut values = vec![1.0; len];
                values[place] = bad;
                assert!(!length(&values).is_finite(), "{len} {place} {bad}");
            }
        }
    }
}

/// More entries than a kernel packs, some of them missing.
#[test]
fn packed_tensors_are_at_their_places_with_zeros_between() {
    let Some(device) = device() else { return };
    let lens = [5, 300, 1, 128, 129, 7, 64, 2, 1000, 3, 40, 9, 11];
    let mut end = 0;
    let ranges = lens.map(|len: usize| {
        end += len;
        end - len..end
    });
    let pack = Pack::new(ranges);
    for kept in [
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12][..],
        &[12],
        &[0, 5, 6, 11],
        &[1, 2, 3, 4, 7, 8, 9],
    ] {
        let parts = |device: &Device| {
            let part = |&entry: &usize| (entry, on(device, &uniform(lens[entry], 7)));
            kept.iter().map(part).collect::<Vec<_>>()
        };
        let found = numbers(pack.join(parts(&device), &device));
        let processor = Device::flex();
        let expected = numbers(pack.join(parts(&processor), &processor));
        assert_eq!(found, expected, "{kept:?}");
        let placed = kept.iter().map(|&entry| lens[entry]).sum::<usize>();
        assert_eq!(
            found.iter().filter(|x| **x != 0.0).count(),
            placed,
            "{kept:?}"
        );
    }
}

/// Parameters of several groups, some longer than a run of settings.
fn parameters() -> Vec<Parameter> {
    let mut end = 0;
    [
        ("a.weight", ALIGNMENT * 3 + 5),
        ("a.bias", 5),
        ("b.weight", 40),
        ("b.bias", ALIGNMENT),
    ]
    .into_iter()
    .map(|(name, len)| {
        end += len;
        Parameter {
            name: name.into(),
            shape: vec![len],
            range: end - len..end,
            decays: name.ends_with("weight"),
            is_hidden: false,
        }
    })
    .collect()
}

fn configurations() -> Vec<OptimizerConfig> {
    let of = |kind, change: &dyn Fn(&mut OptimizerConfig)| {
        let mut config = OptimizerConfig {
            r#type: kind,
            ..OptimizerConfig::default()
        };
        change(&mut config);
        resolve(&config).unwrap()
    };
    let group = |parameters: &str, rate_factor| ParameterGroup {
        parameters: parameters.into(),
        rate_factor,
        weight_decay: None,
        l2: None,
        l1: Some(0.02),
    };
    vec![
        of(OptimizerKind::Adamw, &|_| ()),
        of(OptimizerKind::Adam, &|c| {
            c.l2 = 0.1;
            c.l1 = 0.01;
            c.group = vec![group("b.*", 0.3)];
        }),
        of(OptimizerKind::Sgd, &|c| c.momentum = Some(0.9)),
        of(OptimizerKind::Sgd, &|c| {
            c.momentum = Some(0.8);
            c.nesterov = Some(true);
            c.weight_decay = Some(0.1);
            c.group = vec![group("a.*", 2.0)];
        }),
        of(OptimizerKind::Sgd, &|c| {
            c.momentum = Some(0.5);
            c.dampening = Some(0.25);
        }),
    ]
}

#[test]
fn steps_by_kernels_are_those_of_the_processor_and_none_where_a_step_is_left_out() {
    let Some(device) = device() else { return };
    let parameters = parameters();
    let len = parameters.last().map_or(0, |last| last.range.end);
    for config in configurations() {
        let mut bucket = uniform(len, 11);
        let mut expected = Optimizer::new(&config, &parameters);
        let mut found = DeviceOptimizer::new(&config, &parameters, expected.state(), &device);
        let pack = found.pack().clone();
        let mut weights = pack.upload(&bucket, &device);
        for step in 1..=6_usize {
            let number = step as u64;
            let (rate, scale) = (0.05 / exact_len(step), 0.5);
            let gradient = uniform(len, 20 + step);
            let packed = pack.upload(&gradient, &device);
            // As after a batch that is not finite: nothing may move, also where the gradient is no number.
            let left_out = StepVerdict::judge(
                sums_of(f32::NAN, &device),
                GradientScale {
                    factor: 1.0,
                    nominal: 1.0,
                    loss_scale: 1.0,
                    clip_norm: 0.0,
                },
            );
            let bad = packed.clone() * f32::NAN;
            weights = found.step(&weights, bad, &left_out, number, rate);
            let verdict = StepVerdict::taken(scale, &device);
            weights = found.step(&weights, packed, &verdict, number, rate);
            expected.step(&mut bucket, &gradient, number, rate, scale);
            let mut moved = vec![0.0; len];
            pack.unpack(&numbers(weights.clone()), &mut moved);
            for (i, (found, expected)) in moved.iter().zip(&bucket).enumerate() {
                let close = (found - expected).abs() <= 2e-6 * (1.0 + expected.abs());
                assert!(
                    close,
                    "{config:?} step {step}, weight {i}: {found} for {expected}"
                );
            }
        }
        let mut state = expected.state().to_vec();
        found.download(&mut state).unwrap();
        for (found, expected) in state.iter().zip(expected.state()) {
            for (found, expected) in found.values.iter().zip(&expected.values) {
                assert!(
                    (found - expected).abs() <= 1e-6 * (1.0 + expected.abs()),
                    "{config:?}"
                );
            }
        }
        let packed = numbers(weights);
        let of_entries: usize = parameters.iter().map(|p| p.range.len()).sum();
        assert!(packed.iter().filter(|w| **w != 0.0).count() <= of_entries);
    }
}

fn sums_of(loss: f32, device: &Device) -> JudgedSums {
    let tensor = |number| on(device, &[number]);
    JudgedSums {
        loss: tensor(loss),
        unsmoothed: tensor(1.0),
        norm: tensor(1.0),
        buffers: tensor(0.0),
        of_ranks: None,
    }
}
