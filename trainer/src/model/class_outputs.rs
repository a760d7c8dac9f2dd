//! Output layer of a classifier, matched to the classes of a dataset by name.
//!
//! Output `i` of a model is for class `i`. Two datasets may give the same classes other ids, so weights of one are taken
//! for the other by moving the columns of the output layer. With one output for two classes, the logit of the second
//! above the first, the other order is the other sign.

use std::collections::{HashMap, HashSet};

use feedline_schemas::count::first_of;

use crate::model::layers::Layout;

/// Most classes that a message names.
const NAMED: usize = 10;

/// Output layer of a model.
#[derive(Clone, Debug)]
pub(crate) struct OutputHead<'a> {
    layout: &'a Layout,
    /// Its name, such as `layer.2`.
    name: &'a str,
}

/// Positions of the outputs for a dataset's classes among those of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outputs {
    /// In the same order.
    InOrder,
    /// The output for class `i` is that of the file at the place `[i]`.
    Moved(Vec<usize>),
}

impl<'a> OutputHead<'a> {
    /// The output layer of a model with so many outputs: its last fully connected layer. `None` where that puts out another
    /// number, as in a model of one's own whose outputs are computed otherwise.
    pub(crate) fn of(layout: &'a Layout, outputs: usize) -> Option<Self> {
        let (name, found) = layout.last_linear()?;
        (found == outputs).then_some(Self { layout, name })
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.name
    }

    /// Pattern of the names of its parameters.
    pub(crate) fn pattern(&self) -> String {
        format!("{}.*", self.name)
    }

    /// Returns true if a parameter is one of its own, with one column for each output.
    pub(crate) fn has(&self, parameter: &str) -> bool {
        let own = parameter.strip_prefix(self.name);
        own.is_some_and(|own| matches!(own, ".weight" | ".bias" | ".lora_b"))
    }

    /// Moves the columns of those of its parameters that are `taken` from a file.
    pub(crate) fn arrange(
        &self,
        places: &[usize],
        bucket: &mut [f32],
        taken: impl Fn(&str) -> bool,
    ) {
        let entries = self.layout.entries().iter();
        for entry in entries.filter(|entry| self.has(&entry.name) && taken(&entry.name)) {
            let values = &mut bucket[entry.range.clone()];
            match entry.shape.last() {
                Some(outputs) if *outputs == places.len() => {
                    for row in values.chunks_exact_mut(places.len()) {
                        let old = row.to_vec();
                        for (value, place) in row.iter_mut().zip(places) {
                            *value = old[*place];
                        }
                    }
                }
                // One output for two classes, which have changed places.
                _ => values.iter_mut().for_each(|value| *value = -*value),
            }
        }
    }
}

/// Finds the outputs for the classes `wanted` among those for the classes `found`.
///
/// # Errors
/// Text that names the classes with an output on one side only.
pub(crate) fn match_classes(found: &[String], wanted: &[String]) -> Result<Outputs, String> {
    match_classes_of("the file", found, wanted)
}

/// As [`match_classes`], where `owner` has the classes `found`.
///
/// # Errors
/// As [`match_classes`].
pub(crate) fn match_classes_of(
    owner: &str,
    found: &[String],
    wanted: &[String],
) -> Result<Outputs, String> {
    if found == wanted {
        return Ok(Outputs::InOrder);
    }
    let places: HashMap<&String, usize> = found.iter().zip(0..).collect();
    let known: HashSet<&String> = wanted.iter().collect();
    let missing: Vec<&String> = wanted.iter().filter(|c| !places.contains_key(c)).collect();
    let left_over: Vec<&String> = found
        .iter()
        .filter(|class| !known.contains(class))
        .collect();
    let mut differences = Vec::new();
    if !missing.is_empty() {
        differences.push(format!(
            "the dataset has {}, {owner} has not",
            list(&missing)
        ));
    }
    if !left_over.is_empty() {
        differences.push(format!(
            "{owner} has {}, the dataset has not",
            list(&left_over)
        ));
    }
    if found.len() != places.len() {
        differences.push(format!("{owner} has a class twice"));
    }
    if !differences.is_empty() {
        return Err(differences.join("; "));
    }
    Ok(Outputs::Moved(
        wanted.iter().map(|class| places[class]).collect(),
    ))
}

/// The first of some classes as text, and how many more there are.
pub(crate) fn list<S: AsRef<str>>(classes: &[S]) -> String {
    let classes = classes.iter().map(|class| format!("`{}`", class.as_ref()));
    first_of(&classes.collect::<Vec<_>>(), NAMED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::layers::{Builder, Gain, Linear};

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn layout(outputs: usize) -> Layout {
        let mut b = Builder::new();
        Linear::new(&mut b, "layer.0", &[1], 2, Gain::He);
        Linear::new(&mut b, "layer.1", &[2], outputs, Gain::Glorot);
        b.finish()
    }

    #[test]
    fn columns_of_the_output_layer_follow_their_classes() {
        let layout = layout(3);
        assert!(OutputHead::of(&layout, 2).is_none());
        let head = OutputHead::of(&layout, 3).unwrap();
        assert_eq!(
            (head.name(), head.pattern().as_str()),
            ("layer.1", "layer.1.*")
        );
        let (found, wanted) = (names(&["9", "8", "1"]), names(&["1", "8", "9"]));
        let outputs = match_classes(&found, &wanted).unwrap();
        let Outputs::Moved(places) = outputs else {
            panic!("{outputs:?}")
        };
        assert_eq!(places, [2, 1, 0]);
        // Weights and bias of the first layer, then two rows of weights, and the bias.
        let mut bucket = vec![
            0.1, 0.2, 0.3, 0.4, 19.0, 18.0, 11.0, 29.0, 28.0, 21.0, 9.0, 8.0, 1.0,
        ];
        head.arrange(&places, &mut bucket, |_| true);
        let expected = [
            0.1, 0.2, 0.3, 0.4, 11.0, 18.0, 19.0, 21.0, 28.0, 29.0, 1.0, 8.0, 9.0,
        ];
        assert_eq!(bucket, expected);
        head.arrange(&places, &mut bucket, |name| name == "layer.1.bias");
        assert_eq!(bucket[4..10], expected[4..10]);
        assert_eq!(bucket[10..], [9.0, 8.0, 1.0]);
    }

    #[test]
    fn one_output_for_two_classes_changes_its_sign() {
        let layout = layout(1);
        let head = OutputHead::of(&layout, 1).unwrap();
        let mut bucket = vec![0.1, 0.2, 0.3, 0.4, 5.0, -6.0, 7.0];
        head.arrange(&[1, 0], &mut bucket, |_| true);
        assert_eq!(bucket, [0.1, 0.2, 0.3, 0.4, -5.0, 6.0, -7.0]);
    }

    #[test]
    fn classes_that_differ_are_named_on_both_sides() {
        let of = |found: &[&str], wanted: &[&str]| match_classes(&names(found), &names(wanted));
        assert_eq!(of(&["a", "b"], &["a", "b"]), Ok(Outputs::InOrder));
        assert_eq!(
            of(&["a", "b", "d"], &["a", "b", "c"]).unwrap_err(),
            "the dataset has `c`, the file has not; the file has `d`, the dataset has not"
        );
        assert_eq!(
            of(&["a", "b"], &["a"]).unwrap_err(),
            "the file has `b`, the dataset has not"
        );
        assert_eq!(
            of(&["a", "b", "a"], &["b", "a"]).unwrap_err(),
            "the file has a class twice"
        );
    }
}
