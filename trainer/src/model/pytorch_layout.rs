//! Weights as PyTorch holds and names them.
//!
//! | here | PyTorch |
//! |---|---|
//! | weight of a fully connected layer `[in, out]` | `weight` `[out, in]` |
//! | `scale`, `shift`, `running_variance` of a norm | `weight`, `bias`, `running_var` |
//! | LSTM: `input` `[in, 4 width]`, `state` `[width, 4 width]` | `weight_ih_l0`, `weight_hh_l0`, both transposed |
//! | LSTM: `bias.input`, `bias.forget`, `bias.cell_output` | the sum of `bias_ih_l0` and `bias_hh_l0` |
//!
//! Convolutions, embeddings and running means have one layout and name on both sides, and so has the order of an LSTM's
//! gates (input, forget, cell, output).

use std::{collections::BTreeMap, ops::Range};

use safetensors::tensor::{Dtype, TensorView};

use crate::model::layers::Layout;

/// Endings of a norm's tensors, here and in PyTorch.
const NORM: [(&str, &str); 3] = [
    ("scale", "weight"),
    ("shift", "bias"),
    ("running_variance", "running_var"),
];

/// Matrices of an LSTM layer, here and in PyTorch.
const LSTM: [(&str, &str); 2] = [("input", "weight_ih_l0"), ("state", "weight_hh_l0")];

/// Biases of an LSTM layer, one after the other.
const LSTM_BIASES: [&str; 3] = ["bias.input", "bias.forget", "bias.cell_output"];

/// Biases of an LSTM layer in PyTorch, which are added.
const TORCH_BIASES: [&str; 2] = ["bias_ih_l0", "bias_hh_l0"];

/// A tensor of a file, or the part of one that is a tensor of the model.
#[derive(Clone, Debug)]
pub(crate) struct FoundTensor<'a> {
    view: TensorView<'a>,
    /// Numbers that are added to it.
    added: Option<TensorView<'a>>,
    /// Elements; all without it.
    part: Option<Range<usize>>,
}

impl<'a> FoundTensor<'a> {
    const fn of(view: TensorView<'a>) -> Self {
        Self {
            view,
            added: None,
            part: None,
        }
    }

    /// Its shape.
    pub(crate) fn shape(&self) -> Vec<usize> {
        match &self.part {
            Some(part) => vec![part.len()],
            None => self.view.shape().to_vec(),
        }
    }

    /// Its numbers in f32.
    ///
    /// # Errors
    /// The type, where it is not one of numbers that a model has.
    pub(crate) fn numbers(&self) -> Result<Vec<f32>, Dtype> {
        let of = |view: &TensorView<'_>| numbers(view).ok_or_else(|| view.dtype());
        let mut numbers = of(&self.view)?;
        if let Some(added) = &self.added {
            for (number, added) in numbers.iter_mut().zip(of(added)?) {
                *number += added;
            }
        }
        Ok(match &self.part {
            Some(part) => numbers[part.clone()].to_vec(),
            None => numbers,
        })
    }
}

/// A tensor to be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedTensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    /// Row-major.
    pub(crate) values: Vec<f32>,
}

/// Ending of a norm's tensor in PyTorch, by that here.
pub(crate) fn torch_ending(own: &str) -> Option<&'static str> {
    let mut endings = NORM.iter();
    let (_, torch) = endings.find(|(ending, _)| *ending == own)?;
    Some(torch)
}

/// True for a matrix that PyTorch holds transposed.
pub(crate) fn is_matrix(layout: &Layout, entry: usize) -> bool {
    let name = &layout.entries()[entry].name;
    let is_of_lstm = || {
        let lstms = lstms(layout);
        let mut own = lstms
            .iter()
            .flat_map(|lstm| LSTM.map(|(own, _)| (lstm, own)));
        own.any(|(lstm, own)| *name == format!("{lstm}.{own}"))
    };
    layout.is_linear(entry) || is_of_lstm()
}

/// `values`, `[rows, columns]`, as `[columns, rows]`.
pub(crate) fn transposed(values: &[f32], [rows, columns]: [usize; 2]) -> Vec<f32> {
    let column = |column: usize| (0..rows).map(move |row| values[row * columns + column]);
    (0..columns).flat_map(column).collect()
}

/// The tensors of a file by the names that the model has for them: PyTorch's names of norms and LSTM layers are translated.
pub(crate) fn own_names<'a>(
    tensors: BTreeMap<String, TensorView<'a>>,
    layout: &Layout,
) -> BTreeMap<String, FoundTensor<'a>> {
    let tensors = tensors.into_iter();
    let mut found: BTreeMap<String, FoundTensor<'a>> = tensors
        .map(|(name, view)| (name, FoundTensor::of(view)))
        .collect();
    for (own, torch) in translations(layout) {
        if !found.contains_key(&own)
            && let Some(tensor) = found.remove(&torch)
        {
            found.insert(own, tensor);
        }
    }
    for lstm in lstms(layout) {
        let names = TORCH_BIASES.map(|bias| format!("{lstm}.{bias}"));
        let [first, second] = names.map(|name| found.get(&name).cloned());
        let Some(first) = first else { continue };
        let is_like_it = |other: &FoundTensor<'_>| other.shape() == first.shape();
        let added = second.filter(is_like_it);
        let own = biases(layout, &lstm);
        if own
            .last()
            .is_none_or(|(_, part)| first.shape() != [part.end])
        {
            continue;
        }
        found.remove(&format!("{lstm}.{}", TORCH_BIASES[0]));
        if added.is_some() {
            found.remove(&format!("{lstm}.{}", TORCH_BIASES[1]));
        }
        for (name, part) in own {
            let tensor = FoundTensor {
                view: first.view.clone(),
                added: added.as_ref().map(|added| added.view.clone()),
                part: Some(part),
            };
            found.insert(name, tensor);
        }
    }
    found
}

/// The tensors of a bucket as they are.
pub(crate) fn own_tensors(layout: &Layout, bucket: &[f32]) -> Vec<NamedTensor> {
    let entries = layout.entries().iter();
    let tensor = entries.map(|entry| NamedTensor {
        name: entry.name.clone(),
        shape: entry.shape.clone(),
        values: bucket[entry.range.clone()].to_vec(),
    });
    tensor.collect()
}

/// The tensors of a bucket as PyTorch holds and names them.
pub(crate) fn torch_tensors(layout: &Layout, bucket: &[f32]) -> Vec<NamedTensor> {
    let names: BTreeMap<String, String> = translations(layout).into_iter().collect();
    let lstms = lstms(layout);
    let biases: Vec<_> = lstms.iter().map(|lstm| biases(layout, lstm)).collect();
    let is_bias = |name: &String| biases.iter().flatten().any(|(bias, _)| bias == name);
    let mut tensors = own_tensors(layout, bucket);
    for (entry, tensor) in tensors.iter_mut().enumerate() {
        if is_matrix(layout, entry) {
            tensor.values = transposed(&tensor.values, [tensor.shape[0], tensor.shape[1]]);
            tensor.shape.reverse();
        }
    }
    for (lstm, own) in lstms.iter().zip(&biases) {
        let part = |name: &String| tensors.iter().find(|tensor| tensor.name == *name);
        let parts = own.iter().filter_map(|(name, _)| part(name));
        let values: Vec<f32> = parts.flat_map(|tensor| tensor.values.clone()).collect();
        let zeros = vec![0.0; values.len()];
        for (name, values) in TORCH_BIASES.iter().zip([values, zeros]) {
            tensors.push(NamedTensor {
                name: format!("{lstm}.{name}"),
                shape: vec![values.len()],
                values,
            });
        }
    }
    tensors.retain(|tensor| !is_bias(&tensor.name));
    for tensor in &mut tensors {
        if let Some(torch) = names.get(&tensor.name) {
            tensor.name.clone_from(torch);
        }
    }
    tensors
}

/// Names here and in PyTorch, of tensors that are called differently.
fn translations(layout: &Layout) -> Vec<(String, String)> {
    let entries = layout.entries();
    let is_own = |name: &String| entries.iter().any(|entry| entry.name == *name);
    let norms = entries.iter().filter_map(|entry| {
        let (layer, own) = entry.name.rsplit_once('.')?;
        Some((
            entry.name.clone(),
            format!("{layer}.{}", torch_ending(own)?),
        ))
    });
    let lstms = lstms(layout);
    let lstms = lstms.iter().flat_map(|lstm| {
        LSTM.map(|(own, torch)| (format!("{lstm}.{own}"), format!("{lstm}.{torch}")))
    });
    let all = norms.chain(lstms);
    all.filter(|(_, torch)| !is_own(torch)).collect()
}

/// Names of the LSTM layers.
fn lstms(layout: &Layout) -> Vec<String> {
    let entries = layout.entries();
    let names = entries
        .iter()
        .filter_map(|entry| entry.name.strip_suffix(".input"));
    let is_lstm = |name: &&str| {
        let own = LSTM.iter().map(|(own, _)| *own).chain(LSTM_BIASES);
        let mut own = own.map(|own| format!("{name}.{own}"));
        own.all(|own| entries.iter().any(|entry| entry.name == own))
    };
    names.filter(is_lstm).map(str::to_owned).collect()
}

/// Biases of an LSTM layer, and their elements in the one that holds all.
fn biases(layout: &Layout, lstm: &str) -> Vec<(String, Range<usize>)> {
    let mut end = 0;
    let names = LSTM_BIASES.iter().map(|bias| format!("{lstm}.{bias}"));
    let parts = names.filter_map(|name| {
        let mut entries = layout.entries().iter();
        let entry = entries.find(|entry| entry.name == name)?;
        let begin = end;
        end += entry.range.len();
        Some((name, begin..end))
    });
    parts.collect()
}

/// The numbers of a tensor in f32; `None` for a type that does not fit.
fn numbers(view: &TensorView<'_>) -> Option<Vec<f32>> {
    let halves = || view.data().as_chunks::<2>().0.iter();
    match view.dtype() {
        Dtype::F32 => {
            let words = view.data().as_chunks::<4>().0.iter();
            Some(words.map(|word| f32::from_le_bytes(*word)).collect())
        }
        Dtype::F16 => {
            let number = |half: &[u8; 2]| burn::tensor::f16::from_le_bytes(*half).to_f32();
            Some(halves().map(number).collect())
        }
        Dtype::BF16 => {
            let number = |half: &[u8; 2]| burn::tensor::bf16::from_le_bytes(*half).to_f32();
            Some(halves().map(number).collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::layers::{BatchNorm, Builder, Gain, LayerNorm, Linear, Lstm};

    fn model() -> Layout {
        let mut b = Builder::new();
        Linear::new(&mut b, "first", &[2], 3, Gain::He);
        BatchNorm::new(&mut b, "norm", &[3]);
        LayerNorm::new(&mut b, "block.norm", &[3]);
        Lstm::new(&mut b, "lstm", [4, 3], 2);
        b.finish()
    }

    fn bucket(layout: &Layout) -> Vec<f32> {
        let numbers = std::iter::successors(Some(0.0_f32), |last| Some(last + 1.0));
        numbers.take(layout.len()).collect()
    }

    #[test]
    fn tensors_have_the_names_and_shapes_of_torch() {
        let layout = model();
        let found = torch_tensors(&layout, &bucket(&layout));
        let mut found: Vec<(String, Vec<usize>)> = found
            .into_iter()
            .map(|tensor| (tensor.name, tensor.shape))
            .collect();
        found.sort();
        let expected: [(&str, &[usize]); 12] = [
            ("block.norm.bias", &[3]),
            ("block.norm.weight", &[3]),
            ("first.bias", &[3]),
            ("first.weight", &[3, 2]),
            ("lstm.bias_hh_l0", &[8]),
            ("lstm.bias_ih_l0", &[8]),
            ("lstm.weight_hh_l0", &[8, 2]),
            ("lstm.weight_ih_l0", &[8, 3]),
            ("norm.bias", &[3]),
            ("norm.running_mean", &[3]),
            ("norm.running_var", &[3]),
            ("norm.weight", &[3]),
        ];
        let expected = expected.map(|(name, shape)| (name.to_owned(), shape.to_vec()));
        assert_eq!(found, expected);
    }

    #[test]
    fn tensors_of_torch_come_back_by_the_names_of_the_model() {
        let layout = model();
        let bucket = bucket(&layout);
        let written = torch_tensors(&layout, &bucket);
        let bytes: Vec<Vec<u8>> = written
            .iter()
            .map(|tensor| tensor.values.iter().flat_map(|v| v.to_le_bytes()).collect())
            .collect();
        let views = written.iter().zip(&bytes).map(|(tensor, bytes)| {
            let view = TensorView::new(Dtype::F32, tensor.shape.clone(), bytes).unwrap();
            (tensor.name.clone(), view)
        });
        let mut found = own_names(views.collect(), &layout);
        for (i, entry) in layout.entries().iter().enumerate() {
            let tensor = found.remove(&entry.name).unwrap();
            let numbers = tensor.numbers().unwrap();
            let numbers = match is_matrix(&layout, i) {
                true => {
                    let shape = tensor.shape();
                    transposed(&numbers, [shape[0], shape[1]])
                }
                false => numbers,
            };
            assert_eq!(numbers, bucket[entry.range.clone()], "{}", entry.name);
        }
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn biases_of_an_lstm_are_added() {
        let layout = model();
        let bytes: Vec<u8> = (0..8_u8).flat_map(|v| f32::from(v).to_le_bytes()).collect();
        let view = || TensorView::new(Dtype::F32, vec![8], &bytes).unwrap();
        let tensors = ["lstm.bias_ih_l0", "lstm.bias_hh_l0"].map(|name| (name.to_owned(), view()));
        let found = own_names(tensors.into(), &layout);
        let forget = found["lstm.bias.forget"].numbers().unwrap();
        assert_eq!(forget, [4.0, 6.0]);
        let last = found["lstm.bias.cell_output"].numbers().unwrap();
        assert_eq!(last, [8.0, 10.0, 12.0, 14.0]);
    }
}
