//! Paths in the folder of a run.

/// Path of the record in a run's folder.
pub(crate) const RECORD_PATH: &str = "run.json";

/// Path of the copy of the transform.
pub(crate) const TRANSFORM_PATH: &str = "transform.json";

/// Path of the copy of the tokenizer, where the dataset holds tokens.
pub(crate) const TOKENIZER_PATH: &str = "tokenizer.json";

/// Path of the page.
pub(crate) const REPORT_PATH: &str = "report.html";
