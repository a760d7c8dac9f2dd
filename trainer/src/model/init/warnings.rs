//! Warnings about a file of weights.

use feedline_schemas::report::Warning;

use crate::model::class_outputs;

/// Warnings about a file of weights, which are logged too.
#[derive(Debug, Default)]
pub(super) struct Warnings(pub(super) Vec<Warning>);

impl Warnings {
    pub(super) fn push(&mut self, code: &str, key: &str, message: String) {
        tracing::warn!(code, key, "{message}");
        self.0.push(Warning::new(code, message).with_key(key));
    }

    /// Outputs that are matched by the names of `of`, in the order of the file and of the dataset.
    pub(super) fn push_moved(
        &mut self,
        of: &str,
        url: &str,
        layer: &str,
        [file, dataset]: [&[String]; 2],
    ) {
        let message = format!(
            "the {of} of `{url}` are in the order {}, and those of the dataset {}: the columns of `{layer}` were matched by name",
            class_outputs::list(file),
            class_outputs::list(dataset)
        );
        self.push("reordered_outputs", "train.init.from", message);
    }
}
