//! Handling of damaged, truncated and foreign files.

use std::collections::BTreeMap;

use feedline_schemas::checkpoint::{BestEpoch, EarlyStopping, RunningLoss};
use proptest::prelude::*;

use safetensors::SafeTensors;

use super::{decode::*, encode::encode, *};
use crate::{
    data::samples::Data,
    model::interface::bucket_len,
    plan::Position,
    testing::{config, engine, plan, regression},
};

fn layout() -> Vec<Parameter> {
    engine(&plan(&small(), &regression(64)))
        .model()
        .parameters()
        .to_vec()
}

fn small() -> TrainConfig {
    let mut config = config();
    config.model.hidden = Some(vec![2]);
    config
}

/// A header with these numbers in it.
fn header(loss_sum: f64, loss: f64, metric: f64) -> CheckpointHeader {
    let toy = regression(64);
    let metrics = BTreeMap::from([("rmse".to_owned(), metric)]);
    let best = BestEpoch {
        epoch: Default::default(),
        step: Step::new(4),
        loss,
        metrics,
        baseline: BTreeMap::new(),
        worst: vec![],
        diagnostics: None,
    };
    plan(&small(), &toy).header(&Position {
        step: Step::new(7),
        epoch: Default::default(),
        loader: toy.start(),
        early_stopping: EarlyStopping {
            best: Some(best),
            evaluations_since_best: 1,
            finished: false,
        },
        plateau: Default::default(),
        loss_scale: None,
        running: RunningLoss {
            loss_sum,
            unsmoothed_sum: None,
            weight: 3.0,
            updates_before: Some(4),
        },
        guard: Default::default(),
    })
}

/// Reads a file with the two moments of Adam.
fn read(url: &str, bytes: &[u8], parameters: &[Parameter]) -> Result<Snapshot, Error> {
    let len = bucket_len(parameters);
    let moment = |name: &str| (format!("{name}_moment"), len);
    let state = &vec![moment("first"), moment("second")];
    decode(url, bytes, Expected { parameters, state })
}

/// The bytes of a snapshot with everything in it.
fn full() -> Vec<u8> {
    let layout = layout();
    encode(&layout, everything(&layout)).concat()
}

/// A snapshot with everything in it.
fn everything(layout: &[Parameter]) -> Frozen {
    let uniform = |stream| Numbers::new(crate::testing::uniform(bucket_len(layout), stream));
    Frozen {
        header: header(0.1, 0.2, 0.3),
        parameters: uniform(80),
        state: vec![
            ("first_moment".into(), uniform(81)),
            ("second_moment".into(), uniform(80)),
        ],
        average: Some(uniform(80)),
        best: Some(uniform(81)),
    }
}

#[test]
fn best_weights_that_are_the_current_ones_are_left_out_and_a_bit_makes_them_others() {
    let layout = layout();
    let best_in = |best: Numbers| {
        let frozen = Frozen {
            best: Some(best),
            ..everything(&layout)
        };
        let bytes = encode(&layout, frozen).concat();
        read("x", &bytes, &layout).unwrap().best
    };
    let mut values = everything(&layout).parameters.to_vec();
    values[3] = 0.0;
    let zero = Numbers::new(values);
    assert_eq!(best_in(everything(&layout).parameters), None);
    assert_eq!(best_in(Numbers::clone(&zero)), Some(zero.to_vec()));
}

/// The parts together are what the library of the format writes of the same tensors.
#[test]
fn the_file_is_that_of_the_formats_own_library() {
    let bytes = full();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let theirs = safetensors::serialize(file.tensors(), metadata.metadata().clone()).unwrap();
    assert!(bytes == theirs);
}

#[test]
fn tensors_and_header_are_named_as_documented() {
    let bytes = full();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut names = file.names();
    names.sort_unstable();
    let expected = [
        "average.layer.0.bias",
        "average.layer.0.weight",
        "average.layer.1.bias",
        "average.layer.1.weight",
        "best.layer.0.bias",
        "best.layer.0.weight",
        "best.layer.1.bias",
        "best.layer.1.weight",
        "optimizer.all.first_moment",
        "optimizer.all.second_moment",
        "parameter.layer.0.bias",
        "parameter.layer.0.weight",
        "parameter.layer.1.bias",
        "parameter.layer.1.weight",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        file.tensor("parameter.layer.0.weight").unwrap().shape(),
        [4, 2]
    );
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let keys: Vec<_> = metadata.metadata().as_ref().unwrap().keys().collect();
    assert_eq!(keys, ["feedline"]);
    assert_eq!(bytes, full(), "the same snapshot gives the same bytes");
}

#[test]
fn every_changed_bit_is_refused() {
    let (bytes, layout) = (full(), layout());
    read("whole", &bytes, &layout).unwrap();
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[position] ^= 1 << bit;
            match read("changed", &changed, &layout) {
                Err(Error::Damaged { .. } | Error::Contract(_)) => {}
                Err(error) => panic!("{error}"),
                Ok(_) => panic!("byte {position}, bit {bit}"),
            }
        }
    }
}

#[test]
fn a_checkpoint_without_the_optimizers_state_or_with_that_of_another_is_refused() {
    let (bytes, parameters) = (full(), layout());
    let refused = |names: &[&str]| {
        let len = bucket_len(&parameters);
        let state = &names.iter().map(|name| ((*name).to_owned(), len)).collect();
        let parameters = &parameters;
        let result = decode("file:///x", &bytes, Expected { parameters, state });
        result.unwrap_err().to_string()
    };
    let message = refused(&["first_moment", "momentum"]);
    assert!(
        message.contains("it lacks tensor `optimizer.all.momentum`"),
        "{message}"
    );
    let message = refused(&["first_moment"]);
    assert!(
        message.contains("has a tensor `optimizer.all.second_moment`"),
        "{message}"
    );
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let (bytes, layout) = (full(), layout());
    for length in 0..bytes.len() {
        assert!(read("cut", &bytes[..length], &layout).is_err(), "{length}");
    }
}

#[test]
fn a_checkpoint_of_another_model_is_refused_and_says_why() {
    let mut other = small();
    other.model.hidden = Some(vec![3]);
    let layout = engine(&plan(&other, &regression(64)))
        .model()
        .parameters()
        .to_vec();
    let message = read("file:///x", &full(), &layout).unwrap_err().to_string();
    let expected = "cannot use checkpoint `file:///x`: tensor `parameter.layer.0.weight` is F32 [4, 2], the model's is \
                    F32 [4, 3]; restore it from a copy, or remove it and resume the run";
    assert_eq!(message, expected);
}

mod mutations;

proptest! {
    #[test]
    fn every_number_comes_back_bit_for_bit(
        numbers in prop::array::uniform3(any::<f64>().prop_filter("finite", |v| v.is_finite())),
        words in prop::collection::vec(any::<u32>(), 13),
    ) {
        let layout = layout();
        let bucket: Vec<f32> = words.iter().map(|word| f32::from_bits(*word)).collect();
        prop_assert_eq!(bucket.len(), bucket_len(&layout));
        let [loss_sum, loss, metric] = numbers;
        let written = header(loss_sum, loss, metric);
        let frozen = Frozen { header: written, parameters: Numbers::new(bucket), state: vec![], average: None, best: None };
        let bytes = encode(&layout, frozen).concat();
        let expected = Expected { parameters: &layout, state: &vec![] };
        let read = decode("read", &bytes, expected).unwrap();
        let best = read.header.early_stopping.best.unwrap();
        let found = [read.header.running.loss_sum, best.loss, best.metrics["rmse"]];
        prop_assert_eq!(found.map(f64::to_bits), numbers.map(f64::to_bits));
        let bits: Vec<u32> = read.parameters.iter().map(|value| value.to_bits()).collect();
        prop_assert_eq!(bits, words);
        prop_assert!(read.state.is_empty() && read.best.is_none());
    }
}
