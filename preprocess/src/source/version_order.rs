//! Order of versions that are texts.
//!
//! A text has one of three forms: a decimal number, a time as ISO 8601 or RFC 3339, or any other
//! text. Numbers have the order of their values and times that of their instants, to the
//! nanosecond: a time without an offset is UTC, and a date is its midnight. Other texts have the
//! order of their bytes. Numbers are before times, and times before other texts; an empty text is
//! before them all. The place of a text in this order does not depend on other texts, so that it
//! is the same in any build, partition or export.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, StringArray},
    datatypes::{DataType, Int64Type},
};
use datafusion::{
    functions_aggregate::{
        count::count_all,
        expr_fn::{max, min},
    },
    logical_expr::ident,
    prelude::SessionContext,
};
use feedline_schemas::{record::ColumnType, report::Warning};
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    engine::scalar_function::RowFunction,
    operators::time_series::instant::Instant,
    schema::{landed_cells::typed, landed_columns::merge},
    source::{landed_scan::read_all, landing_zone::Landed, version_notation::TextNotation},
    warnings::{self, VersionTexts},
};

const FORM: &str = "_version_form";
const TEXT: &str = "_version_text";
const ROWS: &str = "_version_rows";
const LEAST: &str = "_version_least";
const MOST: &str = "_version_most";

/// Largest exponent of a number in a text.
const MOST_EXPONENT: i64 = 1_000_000;

/// Added to the place of a number's first digit, which makes it positive.
const FIRST_PLACE: i64 = 5_000_000_000;

/// Added to nanoseconds since 1970, which makes those of all years positive.
const FIRST_NANOS: i128 = 1 << 70;

/// Form of a text, in the order of the forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextForm {
    /// No character but spaces.
    Empty,
    /// A decimal number.
    Number,
    /// A date, or a date with a time.
    Time,
    /// Any other text.
    Other,
}

impl TextForm {
    /// First byte of the order of a text.
    const fn digit(self) -> &'static str {
        match self {
            Self::Empty => "0",
            Self::Number => "1",
            Self::Time => "2",
            Self::Other => "3",
        }
    }

    /// Form of `text`, and a text whose bytes have the order of the texts of that form.
    fn with_order(text: &str) -> (Self, String) {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return (Self::Empty, String::new());
        }
        if let Some(order) = number_order(trimmed) {
            return (Self::Number, order);
        }
        match Instant::iso().nanos_of_text(trimmed) {
            Some(nanos) => (Self::Time, format!("{:022}", nanos + FIRST_NANOS)),
            None => (Self::Other, text.to_owned()),
        }
    }
}

/// A text whose bytes have the order of a version that is a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct VersionOrder;

impl RowFunction for VersionOrder {
    const NAME: &'static str = "feedline_version_order";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], _: usize) -> datafusion::error::Result<ArrayRef> {
        let texts = columns[0].as_string::<i32>().iter();
        let ordered: StringArray = texts.map(|text| text.map(ordered_version)).collect();
        Ok(Arc::new(ordered))
    }
}

/// Notation of a version that is a text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct VersionForm;

impl RowFunction for VersionForm {
    const NAME: &'static str = "feedline_version_form";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], _: usize) -> datafusion::error::Result<ArrayRef> {
        let texts = columns[0].as_string::<i32>().iter();
        let digit = |text: &str| notation_of(text).digit();
        let notations: StringArray = texts.map(|text| text.map(digit)).collect();
        Ok(Arc::new(notations))
    }
}

fn notation_of(text: &str) -> TextNotation {
    match TextForm::with_order(text).0 {
        TextForm::Empty => TextNotation::Empty,
        TextForm::Number => TextNotation::of_number(text.trim()),
        TextForm::Time => TextNotation::Time,
        TextForm::Other => TextNotation::of_other(text),
    }
}

fn ordered_version(text: &str) -> String {
    let (form, order) = TextForm::with_order(text);
    format!("{}{order}", form.digit())
}

/// A text whose bytes have the order of decimal numbers; `None` for a text that is none.
///
/// A number is 0.DIGITS times a power of ten, compared by sign, power and digits, none of them
/// rounded.
fn number_order(text: &str) -> Option<String> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || !(-MOST_EXPONENT..=MOST_EXPONENT).contains(&exponent) {
        return None;
    }
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Some("1".to_owned());
    }
    let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
    let place = FIRST_PLACE + i64::try_from(whole.len()).ok()? + exponent - zeros;
    let magnitude = format!("{place:010}{}", significant.trim_end_matches('0'));
    if !is_negative {
        return Some(format!("2{magnitude}"));
    }
    // The larger magnitude comes first; `~` is after all digits, so -12 comes after -12.5.
    let complement = magnitude
        .bytes()
        .map(|digit| char::from(b'0' + b'9' - digit));
    Some(format!("0{}~", complement.collect::<String>()))
}

/// Column that decides which row of a key is the latest, if it holds text. Of a child table, that
/// of its records.
fn text_column(source: &Landed) -> Option<&str> {
    let (key, version) = source.newest();
    let version = version.filter(|_| !key.is_empty())?;
    let records = source.records.as_deref().unwrap_or(source);
    let merged = merge(records.generations.iter().map(|g| &g.schema));
    let mut merged = merged.iter();
    let is_text = merged.any(|c| c.name == version && c.r#type == ColumnType::Utf8);
    is_text.then_some(version)
}

/// Warns, in the log too, of versions of `source` that are ordered by the bytes of their texts, whose
/// texts have several forms, or that may be no numbers. Reads one column.
///
/// # Errors
/// Failures of the engine.
pub(crate) async fn check_versions(
    session: &SessionContext,
    source: &Landed,
) -> Result<Option<Warning>, Error> {
    let Some(column) = text_column(source) else {
        return Ok(None);
    };
    let records = source.records.as_deref().unwrap_or(source);
    let found = Box::pin(texts_by_notation(session, records, column)).await?;
    let name = records.reference.name.to_string();
    let is_declared = records.has_declared_version;
    let warning = warnings::doubtful_versions(&name, column, &found, is_declared);
    if let Some(Warning { message, .. }) = &warning {
        tracing::warn!("{message}");
    }
    Ok(warning)
}

/// Returns true if `warning` advises a declaration about the versions of `source` that has been made since.
pub(crate) fn is_declared_since(warning: &Warning, source: &Landed) -> bool {
    let records = source.records.as_deref().unwrap_or(source);
    let version = records.version.as_deref();
    let name = records.reference.name.to_string();
    version
        .filter(|_| records.has_declared_version)
        .is_some_and(|column| warnings::advises_text(warning, &name, column))
}

/// Counts and examples of the texts in `column`, by their notations.
async fn texts_by_notation(
    session: &SessionContext,
    records: &Landed,
    column: &str,
) -> Result<Vec<VersionTexts>, Error> {
    let texts = read_all(session, records, |schema| {
        let text = typed(schema, column, ColumnType::Utf8)?;
        let form = VersionForm.over(vec![text.clone()]);
        Ok(vec![form.alias(FORM), text.alias(TEXT)])
    })?;
    let Some(texts) = texts else {
        return Ok(Vec::new());
    };
    let measures = vec![
        count_all().alias(ROWS),
        min(ident(TEXT)).alias(LEAST),
        max(ident(TEXT)).alias(MOST),
    ];
    let forms = texts.aggregate(vec![ident(FORM)], measures)?;
    let forms = forms.select(vec![ident(FORM), ident(ROWS), ident(LEAST), ident(MOST)])?;
    let mut found = Vec::new();
    for batch in Box::pin(forms.collect()).await? {
        let [forms, least, most] = [0, 2, 3].map(|at: usize| batch.column(at).as_string::<i32>());
        let rows = batch.column(1).as_primitive::<Int64Type>();
        for row in (0..batch.num_rows()).filter(|row| forms.is_valid(*row)) {
            let mut all = TextNotation::ALL.into_iter();
            if let Some(notation) = all.find(|one| one.digit() == forms.value(row)) {
                found.push(VersionTexts {
                    notation,
                    rows: Some(rows.value(row).unsigned_abs()),
                    least: least.value(row).to_owned(),
                    most: most.value(row).to_owned(),
                });
            }
        }
    }
    found.sort_unstable_by_key(|texts| texts.notation);
    Ok(found)
}

/// Warns of a text column that is the `version` of a source, if these `samples` of its values would
/// be ordered by their bytes, have several forms, or may be no numbers. `is_declared` says that the
/// source declares the column `text`, so that the order of bytes is right.
#[must_use]
pub fn check_version_samples(
    source: &str,
    column: &str,
    samples: &[String],
    is_declared: bool,
) -> Option<Warning> {
    let mut by_notation: BTreeMap<TextNotation, BTreeSet<&str>> = BTreeMap::new();
    for sample in samples {
        let texts = by_notation.entry(notation_of(sample)).or_default();
        texts.insert(sample);
    }
    let found = by_notation.into_iter().filter_map(|(notation, texts)| {
        Some(VersionTexts {
            notation,
            rows: None,
            least: (*texts.first()?).to_owned(),
            most: (*texts.last()?).to_owned(),
        })
    });
    warnings::doubtful_versions(source, column, &found.collect::<Vec<_>>(), is_declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that each text is before the next one.
    fn check_rising(texts: &[&str]) {
        for pair in texts.windows(2) {
            let [first, second] = [pair[0], pair[1]].map(ordered_version);
            assert!(first < second, "{pair:?}: {first} {second}");
        }
    }

    fn check_equal(one: &str, other: &str) {
        assert_eq!(
            ordered_version(one),
            ordered_version(other),
            "{one} {other}"
        );
    }

    #[test]
    fn versions_of_numbers_in_texts_have_the_order_of_their_values() {
        check_rising(&[
            "-1e3",
            "-12.5",
            "-12",
            "-0.5",
            "-0.05",
            "0",
            "0.05",
            ".5",
            "9",
            "010",
            "11",
            "12.05",
            "12.5",
            "1e2",
            "9999999999999999999",
            "99999999999999999999",
            "100000000000000000000",
        ]);
        check_equal("007", "7");
        check_equal("7.0", "+7");
        check_equal("-0", "0.0");
        check_equal(" 1200 ", "1.2e3");
    }

    #[test]
    fn versions_of_times_in_texts_have_the_order_of_their_instants() {
        check_rising(&[
            "-009999-06-01",
            "1969-12-31T23:59:59.9Z",
            "2026-01-31",
            "2026-02-01T01:00:00+02:00",
            "2026-02-01T00:00:00Z",
            "2026-02-01T00:00:00.12Z",
            "2026-02-01 00:00:00.123",
            "2026-02-01T00:00:00.123456Z",
            "2026-02-01T00:00:00.1234561Z",
            "2026-02-01T00:00:00.123456199Z",
            "2026-02-01T00:00:00.5Z",
            "2026-02-01T00:30:00Z",
            "2026-02-02",
            "9999-12-01",
            "9999-12-31",
            "9999-12-31T23:59:59.999999999Z",
        ]);
        check_equal("2026-02-01", "2026-02-01T02:00:00+02:00");
        check_equal("2026-02-01 10:00:00", "2026-02-01T10:00:00Z");
    }

    #[test]
    fn other_texts_have_the_order_of_their_bytes_after_times_after_numbers() {
        check_rising(&["", "99", "2026-01-02", "2026-01-10", "9a", "v10", "v9"]);
        check_rising(&["01.02.2024", "31.01.2024"]);
        for other in [
            "-",
            ".",
            "e5",
            "1e",
            "+-1",
            "1.2.3",
            "1,5",
            "NaN",
            "1e9999999",
        ] {
            assert_eq!(TextForm::with_order(other).0, TextForm::Other, "{other}");
        }
    }

    #[test]
    fn samples_are_warned_of_unless_all_are_numbers_or_all_are_times() {
        let found = |samples: &[&str]| {
            let samples: Vec<String> = samples.iter().map(|text| (*text).to_owned()).collect();
            check_version_samples("s", "u", &samples, false)
        };
        assert_eq!(found(&["7", "10", "", "1.5"]), None);
        assert_eq!(found(&["2026-02-01", "2026-02-01T10:00:00.5Z"]), None);
        assert_eq!(found(&["v1", "v1"]), None);
        let warning = found(&["v9", "v10"]).unwrap();
        assert_eq!(warning.code, "version_is_text");
        assert!(warning.message.contains("`v10` and `v9`"), "{warning:?}");
        assert!(found(&["7", "2026-02-01"]).is_some());
        assert_eq!(found(&["2024-01", "2023-12"]), None);
        assert!(found(&["2024-01", "2023-12-01"]).is_some());
        let warning = found(&["1.9", "1.10", "2"]).unwrap();
        assert_eq!(warning.code, "version_is_number");
    }
}
