//! Values that settings of the dataset name: splits of a column, and the listed classes.

use std::collections::BTreeMap;

use feedline_ingest::{ColumnPreview, SourcePreview};
use feedline_schemas::{
    config::{ClassLabel, DatasetConfig, SplitBy, Task},
    manifest::Split,
    record::ColumnType,
    report::{WarnedColumn, Warning},
};

use crate::output::counted;

/// Most values that a message names.
const NAMED: usize = 3;

/// Warnings of rows of the only source whose value names no split or no listed class. A build may
/// reject the fraction `limit` of them.
pub(super) fn warn_of_named_values(
    settings: &DatasetConfig,
    targets: &[String],
    preview: &SourcePreview,
    limit: f64,
) -> Vec<Warning> {
    let is_many = |rows: u64| rows as f64 > limit * preview.rows as f64;
    let split = match &settings.split.by {
        SplitBy::Column(name) => {
            find(preview, name).and_then(|column| warn_of_splits(column, is_many))
        }
        _ => None,
    };
    let classes = match targets {
        [target] if settings.task == Task::Classification && !settings.classes.is_empty() => {
            find(preview, target)
                .and_then(|column| warn_of_classes(&settings.classes, column, is_many))
        }
        _ => None,
    };
    split.into_iter().chain(classes).collect()
}

fn find<'a>(preview: &'a SourcePreview, name: &str) -> Option<&'a ColumnPreview> {
    preview.columns.iter().find(|column| column.name == name)
}

/// Warns where no value, or too few, are names of splits.
fn warn_of_splits(column: &ColumnPreview, is_many: impl Fn(u64) -> bool) -> Option<Warning> {
    let is_split = |value: &str| Split::ALL.iter().any(|split| split.as_str() == value);
    let counts = column.value_counts.as_ref()?;
    let others = count_others(counts, is_split);
    let is_none = counts.keys().all(|value| !is_split(value));
    if others == 0 || !(is_none || is_many(others)) {
        return None;
    }
    let message = format!(
        "{} of {} looked at in column `{}` {} not `train`, `validation` or `test`, such as {}; such rows are rejected; map \
         them with `dataset.split.by = \"expression\"`, or name another column",
        others,
        counted(column.compared, "value"),
        column.name,
        if others == 1 { "is" } else { "are" },
        name_others(counts, is_split)
    );
    let warning = Warning::new("column_names_no_split", message).with_key("dataset.split.column");
    Some(warning.with_columns(vec![WarnedColumn::new(&column.name)]))
}

/// Warns of classes without a row beside rows of unlisted classes, and of many such rows.
fn warn_of_classes(
    classes: &[ClassLabel],
    column: &ColumnPreview,
    is_many: impl Fn(u64) -> bool,
) -> Option<Warning> {
    let counts = column.value_counts.as_ref()?;
    let values = normalize_all(counts.keys(), column.column_type)?;
    let labels: Vec<String> = classes.iter().map(label_text).collect();
    let listed: Vec<String> = labels
        .iter()
        .filter_map(|label| normalize(label, column.column_type))
        .collect();
    let is_listed = |value: &str| {
        let value = normalize(value, column.column_type);
        value.is_some_and(|value| listed.contains(&value))
    };
    let others = count_others(counts, is_listed);
    let absent = labels.iter().filter(|label| {
        let label = normalize(label, column.column_type);
        label.is_none_or(|label| !values.contains(&label))
    });
    let absent: Vec<String> = absent
        .take(NAMED)
        .map(|label| format!("`{label}`"))
        .collect();
    if others == 0 || (absent.is_empty() && !is_many(others)) {
        return None;
    }
    let absent = match absent.is_empty() {
        true => String::new(),
        false => format!(", and no row has {}", absent.join(", ")),
    };
    let message = format!(
        "{} of {} looked at in the target `{}` {} none of `dataset.classes`, such as {}{absent}; such rows are rejected",
        others,
        counted(column.compared, "label"),
        column.name,
        if others == 1 { "is" } else { "are" },
        name_others(counts, is_listed)
    );
    let warning = Warning::new("unlisted_classes", message).with_key("dataset.classes");
    Some(warning.with_columns(vec![WarnedColumn::new(&column.name)]))
}

fn count_others(counts: &BTreeMap<String, u64>, is_named: impl Fn(&str) -> bool) -> u64 {
    let others = counts.iter().filter(|(value, _)| !is_named(value));
    others.map(|(_, count)| count).sum()
}

fn name_others(counts: &BTreeMap<String, u64>, is_named: impl Fn(&str) -> bool) -> String {
    let others = counts.keys().filter(|value| !is_named(value));
    let others: Vec<String> = others
        .take(NAMED)
        .map(|value| format!("`{value}`"))
        .collect();
    others.join(", ")
}

/// A label as it is written in a pipeline.
fn label_text(label: &ClassLabel) -> String {
    match label {
        ClassLabel::Boolean(value) => value.to_string(),
        ClassLabel::Integer(value) => value.to_string(),
        ClassLabel::Number(value) => value.to_string(),
        ClassLabel::Text(value) => value.clone(),
    }
}

/// Values as a column of this type has them; none if one is of another type.
fn normalize_all<'a>(
    mut values: impl Iterator<Item = &'a String>,
    r#type: Option<ColumnType>,
) -> Option<Vec<String>> {
    values.try_fold(Vec::new(), |mut all, value| {
        all.push(normalize(value, r#type)?);
        Some(all)
    })
}

/// A value as a column of this type has it, so that `1` and `1.0` are one number.
fn normalize(value: &str, r#type: Option<ColumnType>) -> Option<String> {
    match r#type {
        Some(ColumnType::Utf8) => Some(value.trim().to_owned()),
        Some(ColumnType::Bool) => Some(value.to_lowercase()),
        Some(ColumnType::Int64 | ColumnType::Float64) => {
            let number: f64 = value.parse().ok()?;
            // The sum makes 0 of -0.
            Some((number + 0.0).to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    /// Codes and messages for a column `c` of these values, where the first of them is in 90 rows and each other one in 10.
    fn warn(dataset: &str, r#type: ColumnType, values: &[&str]) -> Vec<String> {
        let text = format!("[pipeline]\nname = \"p\"\n[dataset]\n{dataset}");
        let settings = load("p.toml", &text, &[]).unwrap().config.dataset.unwrap();
        let counts = values.iter().enumerate();
        let counts = counts.map(|(at, value)| ((*value).to_owned(), if at == 0 { 90 } else { 10 }));
        let counts: BTreeMap<String, u64> = counts.collect();
        let rows: u64 = counts.values().sum();
        let column = ColumnPreview {
            name: "c".to_owned(),
            compared: rows,
            column_type: Some(r#type),
            value_counts: Some(counts),
            ..ColumnPreview::default()
        };
        let preview = SourcePreview {
            rows,
            columns: vec![column],
            ..SourcePreview::default()
        };
        let warnings = warn_of_named_values(&settings, &["c".to_owned()], &preview, 0.05);
        assert!(warnings.iter().all(|warning| warning.is_about("c")));
        warnings
            .into_iter()
            .map(|warning| warning.message)
            .collect()
    }

    fn only(mut messages: Vec<String>) -> String {
        assert_eq!(messages.len(), 1, "{messages:?}");
        messages.remove(0)
    }

    #[test]
    fn a_column_that_names_no_split_is_warned_of() {
        let split = "target = \"y\"\nsplit = { by = \"column\", column = \"c\" }\n";
        let of = |values: &[&str]| warn(split, ColumnType::Utf8, values);
        assert_eq!(of(&["train", "validation", "test"]), [""; 0]);
        let message = only(of(&["basic", "plus"]));
        assert!(
            message.starts_with("100 of 100 values looked at in column `c` are not `train`"),
            "{message}"
        );
        let message = only(of(&["train", "valid", "Test"]));
        assert!(message.contains("20 of 110 values"), "{message}");
        assert!(message.contains("such as `Test`, `valid`;"), "{message}");
    }

    #[test]
    fn classes_without_a_row_and_rows_without_a_class_are_warned_of() {
        let of = |classes: &str, r#type, values: &[&str]| {
            let dataset =
                format!("target = \"c\"\ntask = \"classification\"\nclasses = {classes}\n");
            warn(&dataset, r#type, values)
        };
        assert_eq!(
            of("[0, 1]", ColumnType::Float64, &["0.0", "1.0", "1"]),
            [""; 0]
        );
        // A class may have no row yet.
        assert_eq!(of("[0, 1, 2]", ColumnType::Int64, &["0", "1"]), [""; 0]);
        assert_eq!(
            of("[true, false]", ColumnType::Bool, &["True", "False"]),
            [""; 0]
        );
        let message = only(of("[\"0\", \"2\"]", ColumnType::Int64, &["0", "1"]));
        let expected = "10 of 100 labels looked at in the target `c` are none of `dataset.classes`, such as `1`, and no row has `2`; \
                        such rows are rejected";
        assert_eq!(message, expected);
    }
}
