//! Transform of a file of weights, compared with that of a dataset.

use std::collections::BTreeSet;

use feedline_schemas::checkpoint::TransformHashes;

use super::{feature_order, warnings::Warnings, weights_file::Weights};
use crate::model::class_outputs::OutputHead;

/// Code of the warning.
const CODE: &str = "other_transform";

/// Key that accepts the weights.
const KEY: &str = "train.init.allow_other_transform";

impl Weights {
    /// Warns of weights that were trained on features or targets of another transform than `wanted`, as far as the file says
    /// and the layers that depend on them are `taken` from it. `readers` are the layers that read features.
    pub(super) fn compare_transforms(
        &self,
        wanted: &TransformHashes,
        (readers, head): (&[&str], Option<&OutputHead<'_>>),
        taken: &BTreeSet<String>,
        warnings: &mut Warnings,
    ) {
        let Some(found) = self.transform_hashes() else {
            return;
        };
        let reads = |name: &String| {
            readers
                .iter()
                .any(|reader| feature_order::reads(reader, name))
        };
        let scores = |name: &String| head.is_none_or(|head| head.has(name));
        let takes_readers = readers.is_empty() || taken.iter().any(reads);
        if takes_readers && !taken.is_empty() && found.features != wanted.features {
            let layers: Vec<String> = readers.iter().map(|name| format!("{name}.*")).collect();
            let effect = "features made by another transform than that of the dataset (other means, scales, fill values or \
                          categories): the same value of a column is another number to them";
            self.warn_of_transform(effect, &layers, warnings);
        }
        let has_scales = found.targets.is_some() && wanted.targets.is_some();
        if has_scales && found.targets != wanted.targets && taken.iter().any(scores) {
            let layers: Vec<String> = head.iter().map(|head| head.pattern()).collect();
            let effect = "a target that was scaled by another mean and deviation than that of the dataset: their outputs are \
                          other values here";
            self.warn_of_transform(effect, &layers, warnings);
        }
    }

    fn warn_of_transform(&self, effect: &str, layers: &[String], warnings: &mut Warnings) {
        let layers: Vec<String> = layers.iter().map(|layer| format!("\"{layer}\"")).collect();
        let replace = match layers.is_empty() {
            true => String::new(),
            false => format!(
                ", start these layers as usual (`train.init.replace = [{}]`)",
                layers.join(", ")
            ),
        };
        let message = format!(
            "the weights of `{}` were trained on {effect}, until training has adapted them; append the rows to the dataset of \
             the weights, which keeps its transform{replace}, or accept it with `{KEY} = true`",
            self.url
        );
        warnings.push(CODE, KEY, message);
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{config::InitConfig, ids::Hash128};
    use safetensors::tensor::{Dtype, TensorView};

    use super::*;
    use crate::{
        checkpoint::METADATA_KEY,
        model::{
            init::{InitTarget, TRANSFORM_KEY},
            layers::{Builder, Gain, Linear},
        },
        plan::InputNames,
    };

    fn hashes(features: u128, targets: u128) -> TransformHashes {
        TransformHashes {
            features: Hash128::new(features),
            targets: Some(Hash128::new(targets)),
        }
    }

    /// Weights of two layers, from two features to one output.
    fn file(key: &str, text: &str) -> Weights {
        let ones: Vec<u8> = [1.0_f32; 6].iter().flat_map(|v| v.to_le_bytes()).collect();
        let tensors = [("first.weight", [2, 3]), ("last.weight", [3, 1])];
        let views = tensors.map(|(name, shape)| {
            let bytes = &ones[..4 * shape[0] * shape[1]];
            let view = TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap();
            (name, view)
        });
        let metadata = [(key.to_owned(), text.to_owned())].into();
        let bytes = safetensors::serialize(views, Some(metadata)).unwrap();
        Weights {
            url: "memory:///w".into(),
            hash: Hash128::of(&bytes),
            bytes: bytes.into(),
        }
    }

    /// Messages of the warnings about the transform, of weights for a dataset of these hashes.
    fn messages(file: &Weights, wanted: TransformHashes, config: &InitConfig) -> Vec<String> {
        let mut b = Builder::new();
        Linear::with_bias(&mut b, "first", &[2], 3, Gain::Glorot, false);
        Linear::with_bias(&mut b, "last", &[3], 1, Gain::Glorot, false);
        let layout = b.finish();
        let names = InputNames {
            features: vec!["age".to_owned(), "size".to_owned()],
            text_ids: None,
            transform: Some(wanted),
        };
        let target = InitTarget {
            outputs: 1,
            classes: &[],
            features: &names,
            reconstructs: false,
            targets: &[],
        };
        let mut bucket = vec![0.0; layout.len()];
        let found = file.put(config, &layout, &target, &mut bucket).unwrap();
        let found = found.into_iter().filter(|warning| warning.code == CODE);
        found.map(|warning| warning.message).collect()
    }

    fn replacing(replace: &[&str]) -> InitConfig {
        InitConfig {
            from: "memory:///w".into(),
            rename: vec![],
            layout: None,
            strict: true,
            replace: replace.iter().map(|name| (*name).to_owned()).collect(),
            classes: vec![],
            allow_other_transform: false,
        }
    }

    #[test]
    fn weights_of_another_transform_are_named_unless_its_layers_begin_as_usual_or_it_is_accepted() {
        let header = serde_json::json!({ "step": 7, "transform": hashes(1, 2) });
        let export = serde_json::to_string(&hashes(1, 2)).unwrap();
        for file in [
            file(METADATA_KEY, &header.to_string()),
            file(TRANSFORM_KEY, &export),
        ] {
            let count = |features, targets, config: &InitConfig| {
                messages(&file, hashes(features, targets), config).len()
            };
            let all = &replacing(&[]);
            assert_eq!(count(1, 2, all), 0);
            assert_eq!(count(9, 9, all), 2);
            assert_eq!(count(9, 9, &replacing(&["first.*"])), 1);
            assert_eq!(count(9, 9, &replacing(&["first.*", "last.*"])), 0);
            let accepted = InitConfig {
                allow_other_transform: true,
                ..replacing(&[])
            };
            assert_eq!(count(9, 9, &accepted), 0);
            for (features, targets, parts) in [
                (
                    9,
                    2,
                    [
                        "another number to them",
                        "`train.init.replace = [\"first.*\"]`",
                    ],
                ),
                (
                    1,
                    9,
                    [
                        "another mean and deviation",
                        "`train.init.replace = [\"last.*\"]`",
                    ],
                ),
            ] {
                let found = messages(&file, hashes(features, targets), all);
                assert_eq!(found.len(), 1, "{found:?}");
                assert!(
                    parts.iter().all(|part| found[0].contains(part)),
                    "{found:?}"
                );
                assert!(found[0].contains("`train.init.allow_other_transform = true`"));
            }
        }
        let unnamed = file("step", "7");
        assert_eq!(messages(&unnamed, hashes(9, 9), &replacing(&[])).len(), 0);
    }
}
