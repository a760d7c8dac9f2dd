//! Message of an error and its causes in one line, without repetitions.
//!
//! Libraries put the text of a cause into their own and expose the cause as well, so a printed
//! chain repeats itself two or three times. Here a text that ends with that of a cause is truncated
//! before it, and labels that only name the library are left out.

use std::{borrow::Cow, error::Error, iter};

use feedline_schemas::count::first_of;

/// Labels that only name the library of the following text.
const LABELS: [&str; 12] = [
    "External error",
    "External",
    "Arrow error",
    "Parquet error",
    "Arrow: Parquet argument error",
    "Parquet argument error",
    "Object Store error",
    "IO error",
    "Io error",
    "Execution error",
    "Resources exhausted",
    "Error during planning",
];

/// Text that the engine puts between its own context and the cause.
const CAUSED_BY: &str = "caused by";

/// Text before the list of existing columns.
const FIELDS: &str = "Valid fields are ";

/// Columns that are named; the texts of errors are read by people.
const FIELDS_MAX: usize = 20;

/// Message of `error` and its causes in one line, without repetitions.
#[must_use]
pub fn message_with_causes(error: &(dyn Error + 'static)) -> String {
    let chain = iter::successors(Some(error), |error: &&(dyn Error + 'static)| {
        Error::source(*error)
    });
    let texts: Vec<String> = chain.map(|error| one_line(&error.to_string())).collect();
    let mut parts: Vec<&str> = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let causes = texts[at + 1..].iter().filter(|cause| !cause.is_empty());
        let own = causes
            .filter_map(|cause| text.strip_suffix(cause.as_str()))
            .min_by_key(|own| own.len());
        let own = without_labels(own.unwrap_or(text));
        if !own.is_empty() && !parts.iter().any(|part| part.contains(own)) {
            parts.push(own);
        }
    }
    parts.join(": ")
}

/// `text` on one line, with no more than [`FIELDS_MAX`] of the columns that it lists.
pub(crate) fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines = lines.map(few_fields).collect::<Vec<_>>();
    lines.join(" ")
}

fn few_fields(line: &str) -> Cow<'_, str> {
    let Some((before, fields)) = line.split_once(FIELDS) else {
        return Cow::Borrowed(line);
    };
    let fields: Vec<&str> = fields.split(", ").collect();
    if fields.len() <= FIELDS_MAX {
        return Cow::Borrowed(line);
    }
    let first = first_of(&fields, FIELDS_MAX);
    Cow::Owned(format!("{before}{FIELDS}{first}."))
}

/// `text` without the labels before it, a label behind it, and what it says twice.
fn without_labels(text: &str) -> &str {
    let between = |c: char| c == ':' || c.is_whitespace();
    let mut text = text.trim_matches(between);
    loop {
        let labels = LABELS.iter().filter_map(|label| {
            let rest = text.strip_prefix(label)?;
            (rest.is_empty() || rest.starts_with(':')).then_some(rest)
        });
        let shorter = labels.min_by_key(|rest| rest.len());
        let shorter = shorter.or_else(|| text.strip_suffix(CAUSED_BY));
        match shorter.or_else(|| once(text)) {
            Some(shorter) => text = shorter.trim_matches(between),
            None => return text,
        }
    }
}

/// Returns half of a `text` that repeats itself, as in `a: a`.
fn once(text: &str) -> Option<&str> {
    let half = text.len().checked_sub(2)? / 2;
    let (first, second) = (text.get(..half)?, text.get(half..)?);
    (half > 0 && second.strip_prefix(": ") == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use arrow::error::ArrowError;
    use datafusion::{common::DFSchema, error::DataFusionError, parquet::errors::ParquetError};

    use super::*;

    fn check(error: DataFusionError, expected: &str) {
        let error = crate::Error::Engine(error);
        let expected = format!("the query engine failed while building the dataset{expected}");
        assert_eq!(message_with_causes(&error), expected);
    }

    fn external(error: impl Error + Send + Sync + 'static) -> DataFusionError {
        DataFusionError::External(Box::new(error))
    }

    #[test]
    fn nested_errors_are_told_once() {
        let zero = || DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None);
        check(zero(), ": Divide by zero error");
        check(
            DataFusionError::Shared(Arc::new(zero())),
            ": Divide by zero error",
        );
        check(external(external(zero())), ": Divide by zero error");
        let plain = || io::Error::other("the disk is gone");
        let arrow = ArrowError::ExternalError(Box::new(plain()));
        check(
            DataFusionError::ArrowError(Box::new(arrow), None).context("reading `a`"),
            ": reading `a`: the disk is gone",
        );
        let parquet = ParquetError::External(Box::new(external(plain())));
        check(
            DataFusionError::ParquetError(Box::new(parquet)),
            ": the disk is gone",
        );
        let general = ParquetError::General("Failed to fetch metadata: not found".to_owned());
        check(
            DataFusionError::ParquetError(Box::new(general)),
            ": Failed to fetch metadata: not found",
        );
        let twice = DataFusionError::Execution("no such file: no such file".to_owned());
        check(twice, ": no such file");
    }

    #[test]
    fn an_error_of_the_engine_is_one_line_with_few_of_the_columns() {
        let fields = |count: usize| {
            let fields = (0..count).map(|i| {
                arrow::datatypes::Field::new(
                    format!("c{i}"),
                    arrow::datatypes::DataType::Int64,
                    true,
                )
            });
            DFSchema::try_from(arrow::datatypes::Schema::new(fields.collect::<Vec<_>>())).unwrap()
        };
        for (count, end) in [(3, "c0, c1, c2."), (200, "c18, c19 and 180 more.")] {
            let error = fields(count)
                .field_with_unqualified_name("zzzzzz")
                .unwrap_err();
            let text = message_with_causes(&error);
            assert!(!text.contains('\n') && text.ends_with(end), "{text}");
        }
    }

    #[test]
    fn texts_that_say_different_things_are_all_told() {
        let cause = io::Error::other("a cause");
        let error = crate::Error::scratch(std::path::Path::new("/s"), cause);
        let text = message_with_causes(&error);
        assert!(
            text.starts_with("cannot use scratch") && text.ends_with(": a cause"),
            "{text}"
        );
    }
}
