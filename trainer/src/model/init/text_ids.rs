//! Token ids of a file of weights, compared with those of a dataset.

use std::collections::{BTreeMap, BTreeSet};

use feedline_schemas::checkpoint::TextIds;

use super::{warnings::Warnings, weights_file::Weights};
use crate::{
    error::{Error, config as wrong},
    model::{
        class_outputs::{self, OutputHead, Outputs, match_classes},
        layers::{Layout, Parameter},
        pytorch_layout::FoundTensor,
    },
};

/// Name of the table with a vector for each token id, by custom.
const TABLE: &str = "tokens.weight";

/// Returns whether a parameter of this name is a table with a vector for each token id, of the model or of a branch of it.
fn is_table(name: &str) -> bool {
    let before = name.strip_suffix(TABLE);
    before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// Names of the parameters with a row or a column for each token id: tables, and an output layer that scores the ids.
fn of_ids<'l>(layout: &'l Layout, head: Option<&OutputHead<'_>>) -> Vec<&'l str> {
    let entries = layout.entries();
    let table = entries.iter().find(|entry| is_table(&entry.name));
    let ids = table.and_then(|table| table.shape.first());
    let scores = |entry: &Parameter| {
        let has = head.is_some_and(|head| head.has(&entry.name));
        has && ids.is_some() && entry.shape.last() == ids
    };
    let found = entries.iter();
    let found = found.filter(|entry| is_table(&entry.name) || scores(entry));
    found.map(|entry| entry.name.as_str()).collect()
}

impl Weights {
    /// Checks that the file's weights are for the token ids `wanted`, unless all parameters that depend on ids begin as usual.
    /// `taken` are names of those of the file's `tensors` that the model takes.
    ///
    /// # Errors
    /// [`Error::Config`] for ids of another tokenizer or of other characters.
    pub(super) fn match_text_ids(
        &self,
        wanted: &TextIds,
        (layout, head): (&Layout, Option<&OutputHead<'_>>),
        (taken, tensors): (&BTreeSet<String>, &BTreeMap<String, FoundTensor<'_>>),
        warnings: &mut Warnings,
    ) -> Result<(), Error> {
        let of_ids = of_ids(layout, head);
        let begin_as_usual = !of_ids.is_empty() && !of_ids.iter().any(|name| taken.contains(*name));
        if taken.is_empty() || begin_as_usual {
            return Ok(());
        }
        let Some(found) = self.text_ids() else {
            let message = format!(
                "`{}` does not name the tokenizer that its weights are for, so they are taken for the token ids of the dataset; \
                 weights that `feedline weights export` of this version writes name it",
                self.url
            );
            warnings.push("unnamed_text_ids", "train.init.from", message);
            return Ok(());
        };
        match difference(&found, wanted) {
            None => Ok(()),
            Some(mut difference) => {
                if have_as_many_ids(layout, tensors) {
                    difference.push_str(copy_hint(&found, wanted));
                }
                Err(self.refuse_text_ids(&difference, wanted, &of_ids))
            }
        }
    }

    /// The error of a file whose weights are for other token ids.
    fn refuse_text_ids(&self, difference: &str, wanted: &TextIds, of_ids: &[&str]) -> Error {
        let layers = of_ids.iter().filter_map(|name| name.rsplit_once('.'));
        let patterns: BTreeSet<String> =
            layers.map(|(layer, _)| format!("\"{layer}.*\"")).collect();
        let patterns: Vec<String> = patterns.into_iter().collect();
        let build = match wanted {
            TextIds::Tokenizer(_) => {
                "build the dataset with the tokenizer of the weights (`dataset.tokens.tokenizer`; a run has it as \
                 `tokenizer.json` in its folder)"
            }
            TextIds::Characters(_) => {
                "build one dataset of the texts of both, or use `dataset.kind = \"tokens\"` with one tokenizer"
            }
        };
        let replace = match patterns.is_empty() {
            true => String::new(),
            false => format!(
                "; to begin the layers of the ids as usual, set `train.init.replace = [{}]`",
                patterns.join(", ")
            ),
        };
        let reason = format!(
            "the weights of `{}` are for other token ids than those of the dataset: {difference}; {build}{replace}",
            self.url
        );
        wrong("init.from", reason)
    }
}

/// Text that says how token ids of a file differ from those of a dataset; `None` where they mean the same.
fn difference(found: &TextIds, wanted: &TextIds) -> Option<String> {
    match (found, wanted) {
        (TextIds::Characters(found), TextIds::Characters(wanted)) => {
            let (found, wanted) = (names(found), names(wanted));
            match match_classes(&found, &wanted) {
                Ok(Outputs::InOrder) => None,
                Ok(Outputs::Moved(_)) => Some(format!(
                    "the characters have other ids, there they are {}, here {}",
                    class_outputs::list(&found),
                    class_outputs::list(&wanted)
                )),
                Err(differences) => Some(format!("of the characters {differences}")),
            }
        }
        _ if found == wanted => None,
        _ => Some(format!(
            "there they are of {}, here of {}",
            describe(found),
            describe(wanted)
        )),
    }
}

/// Returns whether a table of the file has as many ids as that of the model.
fn have_as_many_ids(layout: &Layout, tensors: &BTreeMap<String, FoundTensor<'_>>) -> bool {
    let mut tables = layout.entries().iter().filter(|e| is_table(&e.name));
    tables.any(|table| {
        let of_file = tensors.get(&table.name);
        of_file.is_some_and(|of_file| of_file.shape().first() == table.shape.first())
    })
}

/// Advice for two tokenizers with the same number of ids, which can be one.
fn copy_hint(found: &TextIds, wanted: &TextIds) -> &'static str {
    match (found, wanted) {
        (TextIds::Tokenizer(_), TextIds::Tokenizer(_)) => {
            " (both have the same number of ids; a reformatted copy of the same tokenizer has another hash, so use the run's own \
             `tokenizer.json`)"
        }
        _ => "",
    }
}

/// The characters as names that can be printed.
fn names(characters: &str) -> Vec<String> {
    let characters = characters.chars();
    characters.map(|c| c.escape_debug().to_string()).collect()
}

fn describe(text_ids: &TextIds) -> String {
    match text_ids {
        TextIds::Tokenizer(hash) => format!("the tokenizer `{hash}`"),
        TextIds::Characters(characters) => {
            format!("the characters {}", class_outputs::list(&names(characters)))
        }
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{config::InitConfig, ids::Hash128};
    use safetensors::{
        SafeTensors,
        tensor::{Dtype, TensorView},
    };

    use super::*;
    use crate::{
        checkpoint::METADATA_KEY,
        model::{
            init::{InitTarget, TEXT_IDS_KEY},
            layers::{Builder, Embedding, Gain, Linear},
            pytorch_layout,
        },
        plan::InputNames,
    };

    fn tokenizer(number: u128) -> TextIds {
        TextIds::Tokenizer(Hash128::new(number))
    }

    fn characters(text: &str) -> TextIds {
        TextIds::Characters(text.to_owned())
    }

    /// Weights of a table of three ids and of a layer that scores them, all 1.
    fn file(metadata: Option<(&str, String)>) -> Weights {
        let numbers: Vec<u8> = [1.0_f32; 6].iter().flat_map(|v| v.to_le_bytes()).collect();
        let tensors = [("tokens.weight", [3, 2]), ("scores.weight", [2, 3])];
        let views = tensors.map(|(name, shape)| {
            let view = TensorView::new(Dtype::F32, shape.to_vec(), &numbers).unwrap();
            (name, view)
        });
        let metadata = metadata.map(|(key, text)| [(key.to_owned(), text)].into());
        let bytes = safetensors::serialize(views, metadata).unwrap();
        Weights {
            url: "memory:///w".into(),
            hash: Hash128::of(&bytes),
            bytes: bytes.into(),
        }
    }

    /// An export whose weights are for these ids.
    fn export(text_ids: &TextIds) -> Weights {
        file(Some((
            TEXT_IDS_KEY,
            serde_json::to_string(text_ids).unwrap(),
        )))
    }

    /// A table of so many ids, and a layer that scores three.
    fn layout(ids: usize) -> Layout {
        let mut b = Builder::new();
        Embedding::new(&mut b, "tokens", [ids, 2], 4, Gain::Normal(1.0));
        Linear::with_bias(&mut b, "scores", &[2], 3, Gain::Glorot, false);
        b.finish()
    }

    /// Puts the weights into a model of the same layers for a dataset with these ids; gives the table and codes of warnings.
    fn put(
        file: &Weights,
        wanted: TextIds,
        replace: &[&str],
    ) -> Result<(Vec<f32>, Vec<String>), String> {
        let layout = layout(3);
        let features = InputNames {
            features: Vec::new(),
            text_ids: Some(wanted),
            transform: None,
        };
        let target = InitTarget {
            outputs: 3,
            classes: &[],
            features: &features,
            reconstructs: false,
            targets: &[],
        };
        let config = InitConfig {
            from: "memory:///w".into(),
            rename: vec![],
            layout: None,
            strict: true,
            replace: replace.iter().map(|name| (*name).to_owned()).collect(),
            classes: vec![],
            allow_other_transform: false,
        };
        let mut bucket = vec![0.0; layout.len()];
        let put = file.put(&config, &layout, &target, &mut bucket);
        let warnings = put.map_err(|error| error.to_string())?;
        let codes = warnings.into_iter().map(|warning| warning.code).collect();
        Ok((bucket, codes))
    }

    #[test]
    fn weights_for_another_tokenizer_are_refused_with_both_unless_its_layers_begin_as_usual() {
        let header = serde_json::json!({ "step": 7, "text_ids": tokenizer(1) });
        for file in [
            export(&tokenizer(1)),
            file(Some((METADATA_KEY, header.to_string()))),
        ] {
            let (bucket, codes) = put(&file, tokenizer(1), &[]).unwrap();
            assert_eq!((&bucket[..6], codes.len()), (&[1.0; 6][..], 0));
            // The layer that scores ids alone is enough.
            for replace in [vec![], vec!["tokens.*"]] {
                let error = put(&file, tokenizer(2), &replace).unwrap_err();
                for part in [
                    Hash128::new(1).to_string().as_str(),
                    Hash128::new(2).to_string().as_str(),
                    "a reformatted copy of the same tokenizer has another hash",
                    "`dataset.tokens.tokenizer`",
                    "set `train.init.replace = [\"scores.*\", \"tokens.*\"]`",
                ] {
                    assert!(error.contains(part), "{part}: {error}");
                }
            }
            put(&file, tokenizer(2), &["scores.*", "tokens.*"]).unwrap();
        }
    }

    #[test]
    fn a_copy_of_a_tokenizer_is_suspected_only_where_the_numbers_of_ids_are_equal() {
        let weights = export(&tokenizer(1));
        let tensors = SafeTensors::deserialize(&weights.bytes).unwrap();
        for ids in [3, 4] {
            let layout = layout(ids);
            let tensors = tensors.iter();
            let tensors = tensors.map(|(name, tensor)| (name.to_owned(), tensor));
            let tensors = pytorch_layout::own_names(tensors.collect(), &layout);
            assert_eq!(have_as_many_ids(&layout, &tensors), ids == 3);
        }
        assert_eq!(copy_hint(&tokenizer(1), &characters("ab")), "");
    }

    #[test]
    fn weights_for_other_characters_are_refused_by_character() {
        let file = export(&characters("ab\n"));
        put(&file, characters("ab\n"), &[]).unwrap();
        for (wanted, part) in [
            (
                characters("abc"),
                "the dataset has `c`, the file has not; the file has `\\n`",
            ),
            (
                characters("b\na"),
                "there they are `a`, `b`, `\\n`, here `b`, `\\n`, `a`",
            ),
            (tokenizer(1), "there they are of the characters `a`"),
        ] {
            let error = put(&file, wanted, &[]).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn weights_that_name_no_tokenizer_are_taken_with_a_warning() {
        for metadata in [None, Some((METADATA_KEY, "{\"step\": 7}".to_owned()))] {
            let (bucket, codes) = put(&file(metadata), tokenizer(1), &[]).unwrap();
            assert_eq!(bucket[..6], [1.0; 6]);
            assert_eq!(codes, ["unnamed_text_ids"]);
        }
    }
}
