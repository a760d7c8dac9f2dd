//! Weights to begin with, from a safetensors file.

mod differences;
mod feature_order;
mod matrix_layout;
mod output_order;
mod renaming;
mod text_ids;
mod transform_hashes;
mod warnings;
mod weights_file;

use std::collections::{BTreeMap, BTreeSet};

use feedline_schemas::{
    checkpoint::TransformHashes,
    config::{InitConfig, WeightLayout},
    report::Warning,
};

pub use self::weights_file::split;
pub(crate) use self::weights_file::{
    CLASSES_KEY, FEATURES_KEY, LAYOUT_KEY, STATISTICS_KEY, TARGETS_KEY, TEXT_IDS_KEY,
    TRANSFORM_KEY, Weights,
};
use self::{
    differences::Differences, feature_order::arrange_rows, matrix_layout::FileMatrix,
    renaming::renamed, warnings::Warnings,
};
use crate::{
    config::name_pattern,
    error::Error,
    model::{
        class_outputs::OutputHead,
        layers::{Layout, Parameter},
        pytorch_layout::{self, FoundTensor},
    },
    plan::InputNames,
};

/// Ending of a counter of PyTorch's batch norm, which computes nothing.
const BATCH_COUNTER: &str = "num_batches_tracked";

/// Model that weights are loaded into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InitTarget<'a> {
    /// Numbers that the model puts out per row.
    pub(crate) outputs: usize,
    /// Classes of the dataset by id; none where no class is predicted.
    pub(crate) classes: &'a [String],
    /// Features of a row of the dataset, and the meaning of its token ids.
    pub(crate) features: &'a InputNames,
    /// `true` where the model gives the features back.
    pub(crate) reconstructs: bool,
    /// Targets of the dataset by output, where several numbers are predicted; otherwise none.
    pub(crate) targets: &'a [String],
}

impl Weights {
    /// Puts the file's weights into `bucket`; what is to be replaced, or is missing where that is allowed, stays. The
    /// columns of the output layer follow the classes of `target`, and the rows of layers that read features follow its
    /// features; token ids must be the same. Returns warnings.
    ///
    /// # Errors
    /// [`Error::Config`] when the file cannot be read, or a tensor has another shape or a number that is not finite; for a
    /// layout that is unknown or mixed; for differences, where `config` is strict; for a pattern that describes nothing,
    /// for outputs of other classes, for other features, and for other token ids.
    pub(crate) fn put(
        &self,
        config: &InitConfig,
        layout: &Layout,
        target: &InitTarget<'_>,
        bucket: &mut [f32],
    ) -> Result<Vec<Warning>, Error> {
        let file = self.tensors()?;
        let tensors = renamed(file.iter().collect(), &config.rename)?;
        let tensors = pytorch_layout::own_names(tensors, layout);
        let entries = layout.entries();
        let names = entries.iter().map(|entry| entry.name.as_str());
        name_pattern::check("init.replace", "parameter", &config.replace, names)?;
        let head = OutputHead::of(layout, target.outputs);
        let is_taken =
            |name: &str| tensors.contains_key(name) && !name_pattern::any(&config.replace, name);
        let taken: BTreeSet<String> = entries
            .iter()
            .filter(|entry| is_taken(&entry.name))
            .map(|entry| entry.name.clone())
            .collect();
        let mut warnings = Warnings::default();
        let places = self.match_outputs(config, target, head.as_ref(), &taken, &mut warnings)?;
        let InputNames {
            features,
            text_ids,
            transform,
        } = target.features;
        if let Some(text_ids) = text_ids {
            let parameters = (layout, head.as_ref());
            let of_file = (&taken, &tensors);
            self.match_text_ids(text_ids, parameters, of_file, &mut warnings)?;
        }
        let readers = layout.readers(features.len());
        let moved = self.match_features(features, &readers, &taken, &mut warnings)?;
        if let Some(transform) = transform.as_ref().filter(|_| !config.allow_other_transform) {
            let wanted = TransformHashes {
                features: transform.features,
                targets: transform.targets.filter(|_| !target.reconstructs),
            };
            self.compare_transforms(
                &wanted,
                (readers.as_slice(), head.as_ref()),
                &taken,
                &mut warnings,
            );
        }
        let matrices = matrices_of(layout, &taken, &tensors);
        let file_layout = self.find_layout(config, &matrices, &mut warnings)?;
        let differences = self.copy_tensors(
            tensors,
            config,
            (layout, file_layout),
            head.as_ref(),
            bucket,
        )?;
        differences.settle(config.strict, &self.url, head.as_ref(), &mut warnings)?;
        if let (Some(head), Some(places)) = (head, places) {
            head.arrange(&places, bucket, |name| taken.contains(name));
        }
        if let Some(places) = moved {
            arrange_rows(layout, &readers, &places, bucket, &taken);
            let outputs = OutputHead::of(layout, places.len());
            if let Some(outputs) = outputs.filter(|_| target.reconstructs) {
                outputs.arrange(&places, bucket, |name| taken.contains(name));
            }
        }
        Ok(warnings.0)
    }

    /// Positions of the outputs for the dataset's classes or targets among those of the file; `None` where they are in order,
    /// or none are taken.
    fn match_outputs(
        &self,
        config: &InitConfig,
        target: &InitTarget<'_>,
        head: Option<&OutputHead<'_>>,
        taken: &BTreeSet<String>,
        warnings: &mut Warnings,
    ) -> Result<Option<Vec<usize>>, Error> {
        if !head.is_none_or(|head| taken.iter().any(|name| head.has(name))) {
            return Ok(None);
        }
        match target.targets.is_empty() {
            false => self.places_of_targets(target.targets, head, warnings),
            true => self.places(config, target.classes, head, warnings),
        }
    }

    /// Copies the tensors of the file into `bucket`, except those to be replaced. Returns the differences from the model.
    fn copy_tensors(
        &self,
        mut tensors: BTreeMap<String, FoundTensor<'_>>,
        config: &InitConfig,
        (layout, file_layout): (&Layout, WeightLayout),
        head: Option<&OutputHead<'_>>,
        bucket: &mut [f32],
    ) -> Result<Differences, Error> {
        let mut differences = Differences::default();
        for (i, entry) in layout.entries().iter().enumerate() {
            let found = tensors.remove(&entry.name);
            if name_pattern::any(&config.replace, &entry.name) {
                continue;
            }
            match found {
                Some(tensor) => {
                    let of_head = head.filter(|head| head.has(&entry.name));
                    let is_transposed =
                        file_layout == WeightLayout::Torch && pytorch_layout::is_matrix(layout, i);
                    let values = self.values(&tensor, entry, of_head, is_transposed)?;
                    bucket[entry.range.clone()].copy_from_slice(&values);
                }
                None if layout.is_adapter(i) => {}
                None => differences.missing.push(entry.name.clone()),
            }
        }
        differences.left_over = tensors.into_keys().collect();
        differences
            .left_over
            .retain(|name| name.rsplit('.').next() != Some(BATCH_COUNTER));
        Ok(differences)
    }

    /// The numbers of a tensor for `entry`, in its order.
    fn values(
        &self,
        tensor: &FoundTensor<'_>,
        entry: &Parameter,
        head: Option<&OutputHead<'_>>,
        is_transposed: bool,
    ) -> Result<Vec<f32>, Error> {
        let name = &entry.name;
        let mut expected = entry.shape.clone();
        if is_transposed {
            expected.reverse();
        }
        let found = tensor.shape();
        if found != expected {
            let anew = match head {
                Some(head) => format!(
                    "to start with a new output layer, set `train.init.replace = [\"{}\"]`",
                    head.pattern()
                ),
                None => "to begin with a new one, name it in `train.init.replace`".to_owned(),
            };
            return Err(self.refused(&format!(
                "tensor `{name}` is {found:?}, the model's is {expected:?}; {anew}"
            )));
        }
        let numbers = tensor.numbers().map_err(|found| {
            self.refused(&format!(
                "tensor `{name}` is {found:?} and must be F32, F16 or BF16; convert it"
            ))
        })?;
        if let Some(bad) = numbers.iter().find(|number| !number.is_finite()) {
            return Err(self.refused(&format!(
                "tensor `{name}` holds `{bad}`; use weights that are finite"
            )));
        }
        Ok(match is_transposed {
            true => pytorch_layout::transposed(&numbers, [expected[0], expected[1]]),
            false => numbers,
        })
    }
}

/// The matrices of the model that are taken from a file.
fn matrices_of<'l>(
    layout: &'l Layout,
    taken: &BTreeSet<String>,
    tensors: &BTreeMap<String, FoundTensor<'_>>,
) -> Vec<FileMatrix<'l>> {
    let entries = layout.entries().iter().enumerate();
    entries
        .filter(|(i, entry)| pytorch_layout::is_matrix(layout, *i) && taken.contains(&entry.name))
        .map(|(_, entry)| (entry, tensors[&entry.name].shape()))
        .collect()
}

#[cfg(test)]
mod tests {
    use feedline_schemas::ids::Hash128;
    use safetensors::tensor::{Dtype, TensorView};

    use super::*;
    use crate::model::layers::{Builder, Gain, Initial, Linear};

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
        described_file(tensors, None)
    }

    fn described_file(
        tensors: &[(&str, Dtype, &[usize], Vec<u8>)],
        metadata: Option<(&str, &str)>,
    ) -> Weights {
        let metadata = metadata.map(|(key, text)| [(key.to_owned(), text.to_owned())].into());
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            (
                *name,
                TensorView::new(*dtype, shape.to_vec(), bytes).unwrap(),
            )
        });
        let bytes = safetensors::serialize(views, metadata).unwrap();
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
            layout: None,
            strict: true,
            replace: vec![],
            classes: vec![],
            allow_other_transform: false,
        }
    }

    static NO_NAMES: InputNames = InputNames {
        features: Vec::new(),
        text_ids: None,
        transform: None,
    };

    static NUMBER: InitTarget<'static> = InitTarget {
        outputs: 1,
        classes: &[],
        features: &NO_NAMES,
        reconstructs: false,
        targets: &[],
    };

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
        file.put(&config(), &layout(), &NUMBER, &mut bucket)
            .unwrap();
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
        file.put(&config, &layout(), &NUMBER, &mut bucket).unwrap();
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
            .put(&config(), &layout(), &NUMBER, &mut bucket)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(
                "only in the model: `last.bias`; only in the file `memory:///w`: `pooler.weight`; "
            ),
            "{error}"
        );
        let config = InitConfig {
            strict: false,
            ..config()
        };
        let warnings = file.put(&config, &layout(), &NUMBER, &mut bucket).unwrap();
        assert_eq!(bucket, [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
        let warning = warnings.iter().find(|w| w.code == "unmatched_tensors");
        let warning = warning.unwrap();
        assert_eq!(warning.key.as_deref(), Some("train.init.strict"));
        assert_eq!(
            warning.message,
            "only in the model, and initialized as usual: `last.bias`; only in the file `memory:///w`, and not used: `pooler.weight`"
        );
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
            file.put(&config, &layout(), &NUMBER, &mut bucket)
                .unwrap_err()
                .to_string()
        };
        assert!(
            refused(Dtype::F32, &[4], f32s(&[0.0; 4])).contains("is [4], the model's is [2, 2]")
        );
        assert!(refused(Dtype::U8, &[2, 2], vec![0; 4]).contains("F32, F16 or BF16"));
        assert!(refused(Dtype::F32, &[2, 2], f32s(&[0.0, f32::NAN, 0.0, 0.0])).contains("`NaN`"));
    }

    /// Weights of a classifier of one feature: the columns are 1 and 2, the bias is 3 and 4.
    fn classifier(metadata: Option<(&str, &str)>) -> Weights {
        let tensors = [
            ("last.weight", Dtype::F32, &[1, 2][..], f32s(&[1.0, 2.0])),
            ("last.bias", Dtype::F32, &[2], f32s(&[3.0, 4.0])),
        ];
        described_file(&tensors, metadata)
    }

    fn put_classes(
        file: &Weights,
        config: &InitConfig,
        classes: &[&str],
    ) -> Result<Vec<f32>, String> {
        let mut b = Builder::new();
        Linear::new(&mut b, "last", &[1], classes.len(), Gain::Glorot);
        let layout = b.finish();
        let classes: Vec<String> = classes.iter().map(|class| (*class).to_owned()).collect();
        let target = InitTarget {
            outputs: classes.len(),
            classes: &classes,
            features: &NO_NAMES,
            reconstructs: false,
            targets: &[],
        };
        let mut bucket = vec![0.0; layout.len()];
        let put = file.put(config, &layout, &target, &mut bucket);
        put.map(|_| bucket).map_err(|error| error.to_string())
    }

    const FEATURES: &str = "[\"age\", \"dose\", \"pulse\"]";

    /// Puts weights of a layer of three features, whose rows are 1, 2 and 3, into a model for `features`.
    fn put_features(
        metadata: Option<(&str, &str)>,
        replace: &[&str],
        features: &[&str],
    ) -> Result<(Vec<f32>, Vec<String>), String> {
        let rows: Vec<f32> = [1.0, 2.0, 3.0]
            .into_iter()
            .flat_map(|row| [row; 2])
            .collect();
        let tensors = [
            ("layer.0.weight", Dtype::F32, &[3, 2][..], f32s(&rows)),
            ("layer.0.bias", Dtype::F32, &[2], f32s(&[7.0, 8.0])),
            ("layer.1.weight", Dtype::F32, &[2, 1], f32s(&[4.0, 5.0])),
            ("layer.1.bias", Dtype::F32, &[1], f32s(&[6.0])),
        ];
        let mut b = Builder::new();
        Linear::new(&mut b, "layer.0", &[features.len()], 2, Gain::He);
        Linear::new(&mut b, "layer.1", &[2], 1, Gain::Glorot);
        let layout = b.finish();
        let features = InputNames {
            features: features.iter().map(|name| (*name).to_owned()).collect(),
            text_ids: None,
            transform: None,
        };
        let target = InitTarget {
            features: &features,
            ..NUMBER
        };
        let config = InitConfig {
            replace: replace.iter().map(|name| (*name).to_owned()).collect(),
            layout: metadata.is_none().then_some(WeightLayout::Feedline),
            ..config()
        };
        let mut bucket = vec![0.0; layout.len()];
        let put = described_file(&tensors, metadata).put(&config, &layout, &target, &mut bucket);
        let warnings = put.map_err(|error| error.to_string())?;
        Ok((
            bucket,
            warnings.into_iter().map(|warning| warning.code).collect(),
        ))
    }

    #[test]
    fn weights_of_features_in_another_order_are_matched_to_them_by_name() {
        let run = format!("{{\"step\": 7, \"features\": {FEATURES}}}");
        for named in [("feedline", run.as_str()), ("features", FEATURES)] {
            let same = put_features(Some(named), &[], &["age", "dose", "pulse"]);
            let expected = [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 7.0, 8.0, 4.0, 5.0, 6.0];
            assert_eq!(same, Ok((expected.to_vec(), vec![])), "{named:?}");
            let moved = put_features(Some(named), &[], &["pulse", "age", "dose"]);
            let expected = [3.0, 3.0, 1.0, 1.0, 2.0, 2.0, 7.0, 8.0, 4.0, 5.0, 6.0];
            assert_eq!(
                moved,
                Ok((expected.to_vec(), vec!["moved_features".to_owned()])),
                "{named:?}"
            );
        }
    }

    #[test]
    fn weights_of_other_features_are_refused_by_name_unless_their_layer_begins_as_usual() {
        let named = Some(("features", FEATURES));
        let features = ["age", "dose", "weight"];
        let error = put_features(named, &[], &features).unwrap_err();
        for part in [
            "the dataset has `weight`, the file has not",
            "the file has `pulse`, the dataset has not",
            "set `train.init.replace = [\"layer.0.*\"]`",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let (bucket, warnings) = put_features(named, &["layer.0.*"], &features).unwrap();
        assert_eq!((&bucket[8..], warnings.len()), (&[4.0, 5.0, 6.0][..], 0));
        assert!(bucket[..8].iter().all(|number| number.to_bits() == 0));
    }

    #[test]
    fn weights_that_name_no_features_are_taken_in_order_with_a_warning() {
        for metadata in [None, Some(("feedline", "{\"step\": 7}"))] {
            let (bucket, warnings) = put_features(metadata, &[], &["a", "b", "c"]).unwrap();
            assert_eq!(bucket[..6], [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
            assert_eq!(warnings, ["unnamed_features"], "{metadata:?}");
        }
    }

    #[test]
    fn a_renaming_that_describes_no_tensor_is_refused_with_the_nearest_name() {
        let file = file(&[
            ("encoder.h.0.w", Dtype::F32, &[2, 2], f32s(&[1.0; 4])),
            ("last.bias", Dtype::F32, &[2], f32s(&[0.0; 2])),
            ("stats.mean", Dtype::F32, &[1], f32s(&[5.0])),
        ]);
        let config = InitConfig {
            rename: vec![
                ["stats.*".into(), "norm.*".into()],
                ["encoders.h.*.w".into(), "block.*.weight".into()],
            ],
            strict: false,
            ..config()
        };
        let error = file.put(&config, &layout(), &NUMBER, &mut [0.0; 7]);
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("`train.init.rename`")
                && error.contains("`encoders.h.*.w` describes no tensor of the file")
                && error.contains("the nearest name there is `encoder.h.0.w`"),
            "{error}"
        );
    }

    #[test]
    fn outputs_of_a_run_or_an_export_follow_the_classes_of_the_dataset_by_name() {
        for named in [
            ("feedline", "{\"step\": 7, \"classes\": [\"no\", \"yes\"]}"),
            ("classes", "[\"no\", \"yes\"]"),
        ] {
            let file = classifier(Some(named));
            let same = put_classes(&file, &config(), &["no", "yes"]);
            assert_eq!(same, Ok(vec![1.0, 2.0, 3.0, 4.0]), "{named:?}");
            let moved = put_classes(&file, &config(), &["yes", "no"]);
            assert_eq!(moved, Ok(vec![2.0, 1.0, 4.0, 3.0]), "{named:?}");
        }
    }

    #[test]
    fn outputs_for_other_classes_are_refused_with_names_unless_they_begin_anew() {
        let file = classifier(Some(("classes", "[\"no\", \"yes\"]")));
        for classes in [&["no", "maybe"][..], &["maybe", "no", "yes"]] {
            let error = put_classes(&file, &config(), classes).unwrap_err();
            assert!(
                error.contains("the dataset has `maybe`, the file has not"),
                "{error}"
            );
            assert!(
                error.contains("`train.init.replace = [\"last.*\"]`"),
                "{error}"
            );
            let anew = InitConfig {
                replace: vec!["last.*".into()],
                ..config()
            };
            let bucket = put_classes(&file, &anew, classes).unwrap();
            assert!(
                bucket.iter().all(|number| number.to_bits() == 0),
                "{bucket:?}"
            );
        }
    }

    #[test]
    fn a_run_without_class_names_is_refused_and_a_foreign_file_is_taken_by_id() {
        let run = classifier(Some(("feedline", "{\"step\": 7}")));
        let error = put_classes(&run, &config(), &["no", "yes"]).unwrap_err();
        assert!(
            error.contains("a release that did not name them"),
            "{error}"
        );
        assert!(error.contains("`train.init.classes`"), "{error}");
        let foreign = classifier(None);
        let by_id = put_classes(&foreign, &config(), &["no", "yes"]);
        assert_eq!(by_id, Ok(vec![1.0, 2.0, 3.0, 4.0]));
        let named = InitConfig {
            classes: vec!["yes".into(), "no".into()],
            ..config()
        };
        for file in [&run, &foreign] {
            let moved = put_classes(file, &named, &["no", "yes"]);
            assert_eq!(moved, Ok(vec![2.0, 1.0, 4.0, 3.0]));
        }
        let own = classifier(Some(("classes", "[\"no\", \"yes\"]")));
        let error = put_classes(&own, &named, &["no", "yes"]).unwrap_err();
        assert!(
            error.contains("its outputs are for `no`, `yes`; remove this key"),
            "{error}"
        );
    }

    #[test]
    fn outputs_follow_several_targets_by_name_and_others_are_refused() {
        let put = |file: &Weights, targets: &[&str]| {
            let mut b = Builder::new();
            Linear::new(&mut b, "last", &[1], targets.len(), Gain::Glorot);
            let layout = b.finish();
            let targets: Vec<String> = targets.iter().map(|name| (*name).to_owned()).collect();
            let target = InitTarget {
                outputs: targets.len(),
                classes: &[],
                targets: &targets,
                features: &NO_NAMES,
                reconstructs: false,
            };
            let mut bucket = vec![0.0; layout.len()];
            let put = file.put(&config(), &layout, &target, &mut bucket);
            put.map(|_| bucket).map_err(|error| error.to_string())
        };
        for named in [
            (
                "feedline",
                "{\"step\": 7, \"targets\": [\"low\", \"high\"]}",
            ),
            ("targets", "[\"low\", \"high\"]"),
        ] {
            let file = classifier(Some(named));
            assert_eq!(put(&file, &["low", "high"]), Ok(vec![1.0, 2.0, 3.0, 4.0]));
            assert_eq!(put(&file, &["high", "low"]), Ok(vec![2.0, 1.0, 4.0, 3.0]));
            let error = put(&file, &["low", "mean"]).unwrap_err();
            assert!(
                error.contains("the dataset has `mean`, the file has not"),
                "{error}"
            );
            assert!(
                error.contains("`train.init.replace = [\"last.*\"]`"),
                "{error}"
            );
            let error = put_classes(&file, &config(), &["no", "yes"]).unwrap_err();
            assert!(error.contains("predicts no classes"), "{error}");
        }
        let of_classes = classifier(Some(("classes", "[\"no\", \"yes\"]")));
        let error = put(&of_classes, &["low", "high"]).unwrap_err();
        assert!(error.contains("are for the classes `no`, `yes`"), "{error}");
        let unnamed = put(&classifier(None), &["low", "high"]);
        assert_eq!(unnamed, Ok(vec![1.0, 2.0, 3.0, 4.0]));
    }

    #[test]
    fn a_message_about_the_output_layer_names_that_of_this_model() {
        let file = described_file(
            &[
                ("last.weight", Dtype::F32, &[2, 2], f32s(&[0.0; 4])),
                ("last.bias", Dtype::F32, &[2], f32s(&[0.0; 2])),
            ],
            Some(("classes", "[\"no\", \"yes\"]")),
        );
        let error = put_classes(&file, &config(), &["no", "yes"]).unwrap_err();
        assert!(
            error.contains("is [2, 2], the model's is [1, 2]; to start with a new output layer, set `train.init.replace = [\"last.*\"]`"),
            "{error}"
        );
        let file = described_file(&[], Some(("classes", "[\"no\", \"yes\"]")));
        let error = put_classes(&file, &config(), &["no", "yes"]).unwrap_err();
        assert!(
            error.contains("the output layer of this model is `last.*`"),
            "{error}"
        );
    }

    /// A model of a layer of 2 inputs and 3 outputs and, where it `has_square`, one of 3 and 3.
    fn two_layers(has_square: bool) -> Layout {
        let mut b = Builder::new();
        Linear::with_bias(&mut b, "a", &[2], 3, Gain::He, false);
        if has_square {
            Linear::with_bias(&mut b, "b", &[3], 3, Gain::Glorot, false);
        }
        b.finish()
    }

    /// Weights of the layer `a` in a shape, and of `b` where it exists, each number by its place.
    fn matrices(a: [usize; 2], has_square: bool, metadata: Option<(&str, &str)>) -> Weights {
        let (a_numbers, b_numbers): (Vec<f32>, Vec<f32>) = (
            (1..=6_u8).map(f32::from).collect(),
            (11..=19_u8).map(f32::from).collect(),
        );
        let mut tensors = vec![("a.weight", Dtype::F32, &a[..], f32s(&a_numbers))];
        if has_square {
            tensors.push(("b.weight", Dtype::F32, &[3, 3], f32s(&b_numbers)));
        }
        described_file(&tensors, metadata)
    }

    fn put_matrices(
        file: &Weights,
        layout: Option<WeightLayout>,
        has_square: bool,
    ) -> Result<Vec<f32>, String> {
        let config = InitConfig { layout, ..config() };
        let model = two_layers(has_square);
        let mut bucket = vec![0.0; model.len()];
        let put = file.put(&config, &model, &NUMBER, &mut bucket);
        put.map(|_| bucket).map_err(|error| error.to_string())
    }

    const AS_WRITTEN: [f32; 15] = [
        1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0, 18.0, 19.0,
    ];
    const TRANSPOSED: [f32; 15] = [
        1.0, 3.0, 5.0, 2.0, 4.0, 6.0, 11.0, 14.0, 17.0, 12.0, 15.0, 18.0, 13.0, 16.0, 19.0,
    ];

    #[test]
    fn the_layout_of_a_foreign_file_follows_from_shapes_that_are_not_square() {
        let own = put_matrices(&matrices([2, 3], false, None), None, false);
        assert_eq!(own.unwrap(), AS_WRITTEN[..6]);
        let torch = put_matrices(&matrices([3, 2], false, None), None, false);
        assert_eq!(torch.unwrap(), TRANSPOSED[..6]);
    }

    #[test]
    fn a_square_matrix_of_unknown_layout_is_refused_with_the_key_that_decides() {
        for (shape, others) in [([2, 3], "`feedline`"), ([3, 2], "`torch`")] {
            let file = matrices(shape, true, None);
            let error = put_matrices(&file, None, true).unwrap_err();
            for part in [
                "`train.init.layout`",
                "tensor `b.weight`",
                "a square matrix does not say whether it is [in, out] or [out, in]",
                &format!("the other matrices have the shapes of {others}"),
                "set it to \"torch\"",
            ] {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
        let own = put_matrices(
            &matrices([2, 3], true, None),
            Some(WeightLayout::Feedline),
            true,
        );
        assert_eq!(own.unwrap(), AS_WRITTEN);
        let torch = put_matrices(
            &matrices([3, 2], true, None),
            Some(WeightLayout::Torch),
            true,
        );
        assert_eq!(torch.unwrap(), TRANSPOSED);
    }

    #[test]
    fn a_wrong_layout_and_matrices_of_two_layouts_are_refused() {
        let wrong = put_matrices(
            &matrices([2, 3], true, None),
            Some(WeightLayout::Torch),
            true,
        );
        let error = wrong.unwrap_err();
        assert!(
            error.contains("tensor `a.weight` is [2, 3], which is [in, out] of layout `feedline`")
                && error.contains("as `train.init.layout` says"),
            "{error}"
        );
        let mut b = Builder::new();
        Linear::with_bias(&mut b, "a", &[2], 3, Gain::He, false);
        Linear::with_bias(&mut b, "b", &[3], 1, Gain::Glorot, false);
        let model = b.finish();
        let file = file(&[
            ("a.weight", Dtype::F32, &[3, 2], f32s(&[0.0; 6])),
            ("b.weight", Dtype::F32, &[3, 1], f32s(&[0.0; 3])),
        ]);
        let mut bucket = vec![0.0; model.len()];
        let mixed = file.put(&config(), &model, &NUMBER, &mut bucket);
        let error = mixed.unwrap_err().to_string();
        assert!(
            error.contains("its matrices are of two layouts: tensor `b.weight` is [3, 1]"),
            "{error}"
        );
    }

    #[test]
    fn a_file_that_names_its_layout_is_taken_by_it_and_a_key_that_differs_is_refused() {
        for (named, shape, expected) in [
            (("feedline.layout", "torch"), [3, 2], TRANSPOSED),
            (("feedline.layout", "feedline"), [2, 3], AS_WRITTEN),
            (("feedline", "{\"step\": 7}"), [2, 3], AS_WRITTEN),
        ] {
            let file = matrices(shape, true, Some(named));
            let found = put_matrices(&file, None, true).unwrap();
            assert_eq!(found, expected, "{named:?}");
            let is_torch = named.1 == "torch";
            let other = match is_torch {
                true => WeightLayout::Feedline,
                false => WeightLayout::Torch,
            };
            let error = put_matrices(&file, Some(other), true).unwrap_err();
            assert!(
                error.contains("the file says that its layout is `")
                    && error.contains("remove this key"),
                "{error}"
            );
        }
    }

    #[test]
    fn names_that_differ_are_listed_by_side_with_a_pair_to_rename_them() {
        let file = file(&[("fc1.weight", Dtype::F32, &[2, 3], f32s(&[0.0; 6]))]);
        let error = put_matrices(&file, None, false).unwrap_err();
        assert!(
            error.contains(
                "only in the model: `a.weight`; only in the file `memory:///w`: `fc1.weight`"
            ) && error.contains("such as `[[\"fc1.*\", \"a.*\"]]`"),
            "{error}"
        );
        assert!(!error.contains("remove it and resume"), "{error}");
    }
}
