//! Weights to begin with, from a safetensors file.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use feedline_schemas::{config::InitConfig, ids::Hash128};
use safetensors::{
    SafeTensors,
    tensor::{Dtype, TensorView},
};

use crate::{
    Context,
    error::{Error, config as wrong},
    layers::{Layout, Parameter},
    pattern,
};

/// Before the names of weights in the files of runs.
const PREFIX: &str = "parameter.";

/// Most names in a message.
const NAMED: usize = 10;

/// A file of weights.
#[derive(Clone, Debug)]
pub(crate) struct Weights {
    url: String,
    bytes: Bytes,
    /// Hash of its bytes.
    pub(crate) hash: Hash128,
}

/// What a file and a model do not have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Differences {
    /// Tensors of the model that the file has not.
    missing: Vec<String>,
    /// Tensors of the file that the model has not.
    left_over: Vec<String>,
}

impl Weights {
    /// Reads the file that `config` names.
    ///
    /// # Errors
    /// [`Error::Config`] when the context has no store for it; [`Error::Storage`].
    pub(crate) async fn read(config: &InitConfig, context: &Context) -> Result<Self, Error> {
        let Some(store) = &context.weights else {
            return Err(wrong("init.from", "the store of the file was not opened"));
        };
        let (_, name) = split(&config.from);
        let bytes = store.get(name).await?;
        Ok(Self {
            url: store.url_of(name),
            hash: Hash128::of(&bytes),
            bytes,
        })
    }

    /// Puts the file's weights into `bucket`; what is to be replaced, or is missing where that is allowed, stays.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the file cannot be read, or a tensor has another shape or a number that is not finite;
    /// [`Error::Config`] for differences, where `config` is strict, and for a pattern that describes nothing.
    pub(crate) fn put(
        &self,
        config: &InitConfig,
        layout: &Layout,
        bucket: &mut [f32],
    ) -> Result<(), Error> {
        let file = SafeTensors::deserialize(&self.bytes);
        let file = file.map_err(|e| self.damaged(format!("it is not a safetensors file: {e}")))?;
        let mut tensors = renamed(file.iter().collect(), &config.rename)?;
        let entries = layout.entries();
        let names = entries.iter().map(|entry| entry.name.as_str());
        pattern::check("init.replace", "parameter", &config.replace, names)?;
        let mut differences = Differences::default();
        for (i, entry) in entries.iter().enumerate() {
            let found = tensors.remove(&entry.name);
            if pattern::any(&config.replace, &entry.name) {
                continue;
            }
            match found {
                Some(view) => self.copy(&view, entry, &mut bucket[entry.range.clone()])?,
                None if layout.is_adapter(i) => {}
                None => differences.missing.push(entry.name.clone()),
            }
        }
        differences.left_over = tensors.into_keys().collect();
        differences.settle(config.strict, &self.url)
    }

    fn copy(
        &self,
        view: &TensorView<'_>,
        entry: &Parameter,
        values: &mut [f32],
    ) -> Result<(), Error> {
        let name = &entry.name;
        if view.shape() != entry.shape {
            let (found, expected) = (view.shape(), &entry.shape);
            return Err(self.damaged(format!(
                "tensor `{name}` is {found:?}, the model's is {expected:?}; to begin with a new one, name it in \
                 `train.init.replace`"
            )));
        }
        let numbers = numbers(view).ok_or_else(|| {
            let found = view.dtype();
            self.damaged(format!(
                "tensor `{name}` is {found:?} and must be F32, F16 or BF16"
            ))
        })?;
        if let Some(bad) = numbers.iter().find(|number| !number.is_finite()) {
            return Err(self.damaged(format!("tensor `{name}` holds `{bad}`")));
        }
        values.copy_from_slice(&numbers);
        Ok(())
    }

    fn damaged(&self, reason: String) -> Error {
        Error::Damaged {
            url: self.url.clone(),
            reason,
        }
    }
}

/// The folder and the name of a file.
#[must_use]
pub fn split(url: &str) -> (&str, &str) {
    url.rsplit_once('/').unwrap_or((".", url))
}

/// The tensors by the model's names.
fn renamed<'a>(
    tensors: BTreeMap<&'a str, TensorView<'a>>,
    rename: &[[String; 2]],
) -> Result<BTreeMap<String, TensorView<'a>>, Error> {
    // A checkpoint holds more than the weights.
    let of_run = tensors.keys().any(|name| name.starts_with(PREFIX));
    let mut found = BTreeMap::new();
    for (name, view) in tensors {
        let name = match name.strip_prefix(PREFIX) {
            Some(name) => name,
            None if of_run => continue,
            None => name,
        };
        let mut renamings = rename.iter();
        let new = renamings.find_map(|[pattern, to]| pattern::rename(pattern, to, name));
        let new = new.unwrap_or_else(|| name.to_owned());
        if found.insert(new.clone(), view).is_some() {
            let reason = format!("two tensors of the file become `{new}`");
            return Err(wrong("init.rename", reason));
        }
    }
    Ok(found)
}

/// The numbers of a tensor in f32; `None` for a type that does not fit.
pub(crate) fn numbers(view: &TensorView<'_>) -> Option<Vec<f32>> {
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

impl Differences {
    /// Refuses them or tells of them.
    fn settle(&self, strict: bool, url: &str) -> Result<(), Error> {
        if self.missing.is_empty() && self.left_over.is_empty() {
            return Ok(());
        }
        let (missing, left_over) = (list(&self.missing), list(&self.left_over));
        if !strict {
            tracing::warn!(
                url,
                missing,
                left_over,
                "the file of weights and the model differ"
            );
            return Ok(());
        }
        let reason = format!(
            "the file lacks {missing} of the model, and the model {left_over} of the file; see `train.init.rename` and \
             `train.init.replace`, or set `train.init.strict = false`"
        );
        Err(wrong("init.from", reason))
    }
}

/// Their number, and the first of them.
fn list(names: &[String]) -> String {
    let first: BTreeSet<String> = names
        .iter()
        .take(NAMED)
        .map(|name| format!("`{name}`"))
        .collect();
    let first: Vec<String> = first.into_iter().collect();
    match names.len() {
        0 => "nothing".to_owned(),
        count if count > NAMED => format!("{count} tensors ({}, ..)", first.join(", ")),
        count => format!("{count} tensors ({})", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::{Builder, Initial};

    fn layout() -> Layout {
        let mut b = Builder::new();
        b.within("block.0", |b| {
            b.parameter("weight", &[2, 2], true, Initial::Constant(0.0))
        });
        b.within("last", |b| {
            b.parameter("bias", &[2], false, Initial::Constant(0.0))
        });
        b.within("norm", |b| b.buffer("mean", &[1], 9.0));
        b.finish()
    }

    fn file(tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) -> Weights {
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            (
                *name,
                TensorView::new(*dtype, shape.to_vec(), bytes).unwrap(),
            )
        });
        let bytes = safetensors::serialize(views, None).unwrap();
        Weights {
            url: "memory:///w".into(),
            hash: Hash128::of(&bytes),
            bytes: bytes.into(),
        }
    }

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    fn config() -> InitConfig {
        InitConfig {
            from: "memory:///w".into(),
            rename: vec![],
            strict: true,
            replace: vec![],
        }
    }

    const ONE_TWO_F16: [u8; 4] = [0x00, 0x3c, 0x00, 0x40];
    const ONE_TWO_BF16: [u8; 4] = [0x80, 0x3f, 0x00, 0x40];

    #[test]
    fn weights_of_a_run_of_any_type_are_put_by_name_and_its_other_tensors_are_left() {
        let file = file(&[
            (
                "parameter.block.0.weight",
                Dtype::F32,
                &[2, 2],
                f32s(&[1.0, 2.0, 3.0, 4.0]),
            ),
            (
                "parameter.last.bias",
                Dtype::F16,
                &[2],
                ONE_TWO_F16.to_vec(),
            ),
            (
                "parameter.norm.mean",
                Dtype::BF16,
                &[1],
                ONE_TWO_BF16[2..].to_vec(),
            ),
            ("optimizer.all.first_moment", Dtype::F32, &[1], f32s(&[7.0])),
        ]);
        let mut bucket = vec![0.0; 7];
        file.put(&config(), &layout(), &mut bucket).unwrap();
        assert_eq!(bucket, [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 2.0]);
    }

    #[test]
    fn foreign_names_are_renamed_and_what_is_replaced_may_have_another_shape() {
        let file = file(&[
            (
                "encoder.h.0.w",
                Dtype::BF16,
                &[2, 2],
                [ONE_TWO_BF16, ONE_TWO_BF16].concat(),
            ),
            ("last.bias", Dtype::F32, &[3], f32s(&[0.0; 3])),
            ("stats.mean", Dtype::F32, &[1], f32s(&[5.0])),
        ]);
        let config = InitConfig {
            rename: vec![
                ["encoder.h.*.w".into(), "block.*.weight".into()],
                ["stats.*".into(), "norm.*".into()],
            ],
            replace: vec!["last.*".into()],
            ..config()
        };
        let mut bucket = vec![8.0; 7];
        file.put(&config, &layout(), &mut bucket).unwrap();
        assert_eq!(bucket, [1.0, 2.0, 1.0, 2.0, 8.0, 8.0, 5.0]);
    }

    #[test]
    fn differences_are_refused_by_name_or_allowed() {
        let file = file(&[
            ("block.0.weight", Dtype::F32, &[2, 2], f32s(&[1.0; 4])),
            ("norm.mean", Dtype::F32, &[1], f32s(&[1.0])),
            ("pooler.weight", Dtype::F32, &[1], f32s(&[1.0])),
        ]);
        let mut bucket = vec![0.0; 7];
        let error = file
            .put(&config(), &layout(), &mut bucket)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("lacks 1 tensors (`last.bias`)") && error.contains("(`pooler.weight`)"),
            "{error}"
        );
        let config = InitConfig {
            strict: false,
            ..config()
        };
        file.put(&config, &layout(), &mut bucket).unwrap();
        assert_eq!(bucket, [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn another_shape_another_type_and_a_nan_are_refused() {
        let refused = |dtype, shape: &[usize], bytes| {
            let file = file(&[("block.0.weight", dtype, shape, bytes)]);
            let config = InitConfig {
                strict: false,
                ..config()
            };
            let mut bucket = vec![0.0; 7];
            file.put(&config, &layout(), &mut bucket)
                .unwrap_err()
                .to_string()
        };
        assert!(
            refused(Dtype::F32, &[4], f32s(&[0.0; 4])).contains("is [4], the model's is [2, 2]")
        );
        assert!(refused(Dtype::U8, &[2, 2], vec![0; 4]).contains("F32, F16 or BF16"));
        assert!(refused(Dtype::F32, &[2, 2], f32s(&[0.0, f32::NAN, 0.0, 0.0])).contains("`NaN`"));
    }
}
