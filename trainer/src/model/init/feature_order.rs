//! Features of a file of weights, matched to those of a dataset by name.

use std::collections::{BTreeSet, HashMap};

use super::{warnings::Warnings, weights_file::Weights};
use crate::{
    error::{Error, config as wrong},
    model::{class_outputs, layers::Layout},
};

/// Returns whether a parameter of this name has a row for each feature that the layer reads.
pub(super) fn reads(layer: &str, name: &str) -> bool {
    let own = name.strip_prefix(layer);
    own.is_some_and(|own| matches!(own, ".weight" | ".input" | ".lora_a"))
}

/// Moves the rows of those parameters of layers that read features that are `taken` from a file: row `i` is that of the file
/// at the place `[i]`.
pub(super) fn arrange_rows(
    layout: &Layout,
    readers: &[&str],
    places: &[usize],
    bucket: &mut [f32],
    taken: &BTreeSet<String>,
) {
    for entry in layout.entries() {
        if !taken.contains(&entry.name) || !readers.iter().any(|layer| reads(layer, &entry.name)) {
            continue;
        }
        let width = entry.range.len() / places.len();
        let old = bucket[entry.range.clone()].to_vec();
        let rows = bucket[entry.range.clone()].chunks_exact_mut(width);
        for (row, place) in rows.zip(places) {
            row.copy_from_slice(&old[place * width..(place + 1) * width]);
        }
    }
}

impl Weights {
    /// For each feature of the dataset its place among those that the file's weights are for; `None` where they are in order.
    /// `readers` are the layers that read features.
    ///
    /// # Errors
    /// [`Error::Config`] for other features, and for the same in another order where no layer is known to read them.
    pub(super) fn match_features(
        &self,
        features: &[String],
        readers: &[&str],
        taken: &BTreeSet<String>,
        warnings: &mut Warnings,
    ) -> Result<Option<Vec<usize>>, Error> {
        let is_read = |name: &String| readers.iter().any(|layer| reads(layer, name));
        let begins_as_usual = !readers.is_empty() && !taken.iter().any(is_read);
        if features.is_empty() || taken.is_empty() || begins_as_usual {
            return Ok(None);
        }
        let Some(found) = self.named_features() else {
            let message = format!(
                "`{}` does not name the features that its weights are for, so they are taken for the dataset's features in order: \
                 {}; weights that `feedline weights export` of this version writes name them",
                self.url,
                class_outputs::list(features)
            );
            warnings.push("unnamed_features", "train.init.from", message);
            return Ok(None);
        };
        if found == features {
            return Ok(None);
        }
        let places = find_places(&found, features, !readers.is_empty());
        let places = places.map_err(|what| self.refuse_features(&what, readers))?;
        let message = format!(
            "the features of the weights of `{}` have another order than those of the dataset ({}); the weights were matched \
             to them by name",
            self.url,
            describe_orders(&found, features)
        );
        warnings.push("moved_features", "train.init.from", message);
        Ok(Some(places))
    }

    /// The error of a file whose weights are for other features.
    fn refuse_features(&self, what: &str, readers: &[&str]) -> Error {
        let patterns: Vec<String> = readers
            .iter()
            .map(|layer| format!("\"{layer}.*\""))
            .collect();
        let advice = match patterns.is_empty() {
            true => "build the dataset with those features in that order (`dataset.features`)"
                .to_owned(),
            false => format!(
                "to begin the layer that reads them as usual, set `train.init.replace = [{}]`",
                patterns.join(", ")
            ),
        };
        let reason = format!(
            "the weights of `{}` are for other features than those of the dataset: {what}; {advice}",
            self.url
        );
        wrong("init.from", reason)
    }
}

/// For each feature its place among those of a file.
///
/// # Errors
/// Text that names the features on one side only, or says why the order cannot be changed.
fn find_places(
    found: &[String],
    features: &[String],
    has_readers: bool,
) -> Result<Vec<usize>, String> {
    let places: HashMap<&String, usize> = found.iter().zip(0..).collect();
    let of_dataset: BTreeSet<&String> = features.iter().collect();
    let missing: Vec<&String> = features
        .iter()
        .filter(|f| !places.contains_key(f))
        .collect();
    let left_over: Vec<&String> = found.iter().filter(|f| !of_dataset.contains(f)).collect();
    let mut differences = Vec::new();
    if !missing.is_empty() {
        differences.push(format!(
            "the dataset has {}, the file has not",
            class_outputs::list(&missing)
        ));
    }
    if !left_over.is_empty() {
        differences.push(format!(
            "the file has {}, the dataset has not",
            class_outputs::list(&left_over)
        ));
    }
    if !differences.is_empty() {
        return Err(differences.join("; "));
    }
    if places.len() != found.len() || found.len() != features.len() {
        return Err("a feature appears twice".to_owned());
    }
    if !has_readers {
        let orders = describe_orders(found, features);
        return Err(format!("the same in another order, {orders}"));
    }
    Ok(features.iter().map(|name| places[name]).collect())
}

/// The order of the features of a file, and that of a dataset.
fn describe_orders(found: &[String], features: &[String]) -> String {
    format!(
        "there they are {}, here {}",
        class_outputs::list(found),
        class_outputs::list(features)
    )
}
