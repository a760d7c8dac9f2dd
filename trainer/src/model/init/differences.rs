//! Differences between a file of weights and a model.

use std::collections::BTreeSet;

use super::warnings::Warnings;
use crate::{
    error::{Error, config as wrong},
    model::{class_outputs::OutputHead, pytorch_layout},
};

/// Most names in a message.
const NAMED: usize = 10;

/// Differences between a file and a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// Tensors of the model that the file has not.
    pub(super) missing: Vec<String>,
    /// Tensors of the file that the model has not.
    pub(super) left_over: Vec<String>,
}

impl Differences {
    /// Refuses the differences, or warns of them where `strict` is false.
    pub(super) fn settle(
        &self,
        strict: bool,
        url: &str,
        head: Option<&OutputHead<'_>>,
        warnings: &mut Warnings,
    ) -> Result<(), Error> {
        if self.missing.is_empty() && self.left_over.is_empty() {
            return Ok(());
        }
        let (missing, left_over) = (list(&self.missing), list(&self.left_over));
        if !strict {
            let message = format!(
                "only in the model, and initialized as usual: {missing}; only in the file `{url}`, and not used: {left_over}"
            );
            warnings.push("unmatched_tensors", "train.init.strict", message);
            return Ok(());
        }
        let output = head.map_or_else(String::new, |head| {
            format!(" (the output layer of this model is `{}`)", head.pattern())
        });
        let example = self.example().unwrap_or_default();
        let reason = format!(
            "only in the model: {missing}; only in the file `{url}`: {left_over}; give the file's tensors the model's names with \
             `train.init.rename`{example}, list those of the model that begin as usual in `train.init.replace`{output}, or set \
             `train.init.strict = false`"
        );
        Err(wrong("init.from", reason))
    }

    /// A pair for `train.init.rename`, by the first tensors whose names end alike.
    fn example(&self) -> Option<String> {
        let parts = |name: &str| {
            let (layer, own) = name.rsplit_once('.')?;
            Some((layer.to_owned(), own.to_owned()))
        };
        self.missing.iter().find_map(|missing| {
            let (to, own) = parts(missing)?;
            let own_in_torch = pytorch_layout::torch_ending(&own);
            let mut left_over = self.left_over.iter().filter_map(|name| parts(name));
            let (from, _) = left_over.find(|(layer, found)| {
                *layer != to && (*found == own || Some(found.as_str()) == own_in_torch)
            })?;
            Some(format!(", such as `[[\"{from}.*\", \"{to}.*\"]]`"))
        })
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
        1 => first.join(", "),
        count if count > NAMED => format!("{count} tensors ({}, ..)", first.join(", ")),
        count => format!("{count} tensors ({})", first.join(", ")),
    }
}
