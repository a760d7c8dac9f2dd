//! Preparation of documents in a plan: normalized and redacted before anything else reads them,
//! then filtered by their form. So documents that only differ before normalization are exact
//! duplicates.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, StringArray, UInt64Array},
    datatypes::{DataType, UInt64Type},
};
use datafusion::{
    error::Result as EngineResult,
    logical_expr::{Expr, ident, lit},
    prelude::DataFrame,
};
use feedline_schemas::{
    config::{DatasetConfig, DocumentConfig, Normalization, PersonalData, QualityConfig},
    manifest::{RedactedCounts, Split},
};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::{
    Error,
    engine::scalar_function::RowFunction,
    operators::{
        content_column::{ContentColumn, ContentKind},
        text::{near::normalized, quality, redact::redacted},
    },
    schema::{
        reject_reason::{self, Reason},
        system_columns,
    },
    staging::Staged,
};

/// Bits of each count in `_redacted`.
const BITS: u32 = 21;

/// Checks that `[dataset.text]` has documents to prepare.
///
/// # Errors
/// [`Error::Config`] when rows hold something else, and for a kind of data that is listed twice.
pub(crate) fn check(config: &DatasetConfig, payload: Option<&ContentColumn>) -> Result<(), Error> {
    let Some(text) = &config.text else {
        return Ok(());
    };
    if payload.is_none_or(|payload| payload.kind != ContentKind::Text) {
        return Err(Error::config(
            "dataset.text",
            "it prepares documents, which a dataset of this `dataset.kind` does not hold; remove it",
        ));
    }
    let kinds = &text.redact;
    if (1..kinds.len()).any(|i| kinds[..i].contains(&kinds[i])) {
        return Err(Error::config(
            "dataset.text.redact",
            "a kind is listed twice",
        ));
    }
    text.quality.as_ref().map_or(Ok(()), check_limits)
}

/// Shares, rates and lengths that can be met, and can be written down.
fn check_limits(limits: &QualityConfig) -> Result<(), Error> {
    let one = [
        ("min_mean_word", limits.min_mean_word),
        ("max_mean_word", limits.max_mean_word),
        ("max_symbols", limits.max_symbols),
        ("max_bullet_lines", limits.max_bullet_lines),
        ("max_ellipsis_lines", limits.max_ellipsis_lines),
        ("min_alphabetic_words", limits.min_alphabetic_words),
        ("min_punctuated_lines", limits.min_punctuated_lines),
        ("max_short_lines", limits.max_short_lines),
        ("max_line_breaks", limits.max_line_breaks),
        ("max_repeated_lines", limits.max_repeated_lines),
        (
            "max_repeated_line_characters",
            limits.max_repeated_line_characters,
        ),
        ("max_repeated_paragraphs", limits.max_repeated_paragraphs),
        (
            "max_repeated_paragraph_characters",
            limits.max_repeated_paragraph_characters,
        ),
    ];
    let top = limits.max_top_ngrams.map(|limit| ("max_top_ngrams", limit));
    let repeated = limits.max_repeated_ngrams;
    let repeated = repeated.map(|limit| ("max_repeated_ngrams", limit));
    let all = one.into_iter().chain(top).chain(repeated);
    let refuse = |key: &str, reason: String| {
        let key = format!("dataset.text.quality.{key}");
        Err(Error::config(key, reason))
    };
    for (key, limit) in all {
        if !limit.is_finite() || limit < 0.0 {
            let reason = format!(
                "it is `{limit}`, use a number from 0; a large one, such as `1e9`, is no limit"
            );
            return refuse(key, reason);
        }
    }
    if limits.min_words > limits.max_words {
        let reason = format!(
            "it is `{}`, more than `max_words` = {}, so no document would be left",
            limits.min_words, limits.max_words
        );
        return refuse("min_words", reason);
    }
    if limits
        .max_characters
        .is_some_and(|most| most < limits.min_characters)
    {
        let reason = "it is more than `max_characters`, so no document would be left";
        return refuse("min_characters", reason.into());
    }
    if limits.min_mean_word > limits.max_mean_word {
        let reason = "it is more than `max_mean_word`, so no document would be left";
        return refuse("min_mean_word", reason.into());
    }
    Ok(())
}

/// `rows` as they landed, with the documents in `column` prepared, and counts of what was redacted.
pub(crate) fn prepared(
    rows: DataFrame,
    column: &str,
    text: &DocumentConfig,
) -> Result<DataFrame, Error> {
    let is_text = |name: &str, r#type: &DataType| name == column && *r#type == DataType::Utf8;
    let mut counts = lit(0_u64);
    let mut columns: Vec<Expr> = Vec::new();
    for field in rows.schema().fields() {
        let name = field.name();
        if is_text(name, field.data_type()) {
            let kinds = text.redact.clone();
            let normalize = text.normalize;
            let cell = vec![ident(name)];
            counts = Redactions(normalize, kinds.clone()).over(cell.clone());
            columns.push(Prepared(normalize, kinds).over(cell).alias(name));
        } else {
            columns.push(ident(name));
        }
    }
    columns.push(counts.alias(system_columns::REDACTED));
    Ok(rows.select(columns)?)
}

/// Returns a document in its normal form, without personal data of some kinds.
pub(crate) fn prepare(text: &str, form: Normalization, kinds: &[PersonalData]) -> String {
    redacted(&normalized(text, form), kinds).0.into_owned()
}

/// A document in its normal form, without personal data.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Prepared(Normalization, Vec<PersonalData>);

impl RowFunction for Prepared {
    const NAME: &'static str = "feedline_prepared_text";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], _: usize) -> EngineResult<ArrayRef> {
        let texts = columns[0].as_string::<i32>().iter();
        let prepared = texts.map(|text| text.map(|text| prepare(text, self.0, &self.1)));
        Ok(Arc::new(prepared.collect::<StringArray>()))
    }
}

/// Counts of redactions in a document: addresses, telephone numbers and cards, 21 bits each.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Redactions(Normalization, Vec<PersonalData>);

impl RowFunction for Redactions {
    const NAME: &'static str = "feedline_redactions";
    const RETURNS: DataType = DataType::UInt64;

    fn call(&self, columns: &[ArrayRef], _: usize) -> EngineResult<ArrayRef> {
        let texts = columns[0].as_string::<i32>().iter();
        let counts = texts.map(|text| {
            let counts = redacted(&normalized(text.unwrap_or(""), self.0), &self.1).1;
            let packed = [counts.emails, counts.phones, counts.cards]
                .into_iter()
                .enumerate();
            packed.fold(0, |sum, (place, count)| {
                let most = (1 << BITS) - 1;
                sum | u64::from(count.min(most)) << (BITS as usize * place)
            })
        });
        Ok(Arc::new(UInt64Array::from_iter_values(counts)))
    }
}

/// Counts of redactions over all kept rows.
pub(crate) async fn redactions(staged: &Staged) -> Result<RedactedCounts, Error> {
    let mut counts = RedactedCounts::default();
    for split in Split::ALL {
        let column = staged
            .frame(split)?
            .select(vec![ident(system_columns::REDACTED)])?;
        let mut batches = column.execute_stream().await?;
        while let Some(batch) = batches.try_next().await? {
            for packed in batch.column(0).as_primitive::<UInt64Type>().values() {
                let count = |place: u32| packed >> (BITS * place) & ((1 << BITS) - 1);
                counts.emails += count(0);
                counts.phones += count(1);
                counts.cards += count(2);
            }
        }
    }
    Ok(counts)
}

/// Reason to drop a document: its earlier reason, or a filter that it fails.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Quality {
    /// The column, to name it.
    pub(crate) column: String,
    pub(crate) limits: QualityConfig,
}

impl Quality {
    fn as_text(&self) -> String {
        format!("{self:?}")
    }
}

impl PartialEq for Quality {
    fn eq(&self, other: &Self) -> bool {
        self.as_text() == other.as_text()
    }
}

impl Eq for Quality {}

impl Hash for Quality {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_text().hash(state);
    }
}

impl RowFunction for Quality {
    const NAME: &'static str = "feedline_quality";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], _: usize) -> EngineResult<ArrayRef> {
        let before = columns[0].as_string::<i32>().iter();
        let texts = columns[1].as_string_opt::<i32>();
        let reasons = before.enumerate().map(|(row, before)| {
            let text = texts
                .filter(|texts| before.is_none() && texts.is_valid(row))?
                .value(row);
            let (limit, value) = quality::fault(text, &self.limits)?;
            let reason = Reason {
                reason: reject_reason::quality(limit),
                column: self.column.clone(),
                value,
            };
            Some(reason.to_json())
        });
        let before = columns[0].as_string::<i32>().iter();
        let reasons = before
            .zip(reasons)
            .map(|(before, now)| before.map(str::to_owned).or(now));
        Ok(Arc::new(reasons.collect::<StringArray>()))
    }
}
