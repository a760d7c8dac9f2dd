//! The columns of sources as they would land, before anything does.

use feedline_schemas::{
    commit::Position,
    config::{PipelineConfig, SourceConfig},
    ids::Name,
    record::ColumnType,
    report::Warning,
};
use serde::Serialize;

use crate::{
    blocking::computing, context::Context, error::Error, infer::Survey, run::open, settings::choose,
};

/// The columns of a source as the records that were looked at have them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourcePreview {
    /// Source name.
    pub source: String,
    /// Records that were looked at.
    pub rows: u64,
    /// True if the source has no other records.
    pub is_all: bool,
    /// Count of items that are not records, such as a row of another length than the header.
    pub bad: u64,
    /// One of them: reason and place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bad_sample: Option<String>,
    /// Columns in the order of their first appearance.
    pub columns: Vec<ColumnPreview>,
    /// Warnings about decisions that a person should know of.
    pub warnings: Vec<Warning>,
    /// Reason that no preview is available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A column as it would land.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ColumnPreview {
    /// Name, as used in `contract.column` and in the landing zone.
    pub name: String,
    /// Type by its name in `contract.column.<name>.type`; `undecided` if no value shows it.
    pub r#type: &'static str,
    /// Records in which it is missing: null, absent, or a spelling of it.
    pub missing: u64,
    /// A few of its values.
    pub samples: Vec<String>,
}

/// Previews the sources, or only the source `only`; lands and writes nothing. For `files` it reads
/// the sample for type inference, for other sources their first page.
///
/// # Errors
/// [`Error::Config`] for a source that cannot be read as configured, [`Error::Storage`],
/// [`Error::Cancelled`]. A [`SourcePreview`] reports the errors of reading its source.
pub async fn preview(
    config: &PipelineConfig,
    only: Option<&Name>,
    context: &Context,
) -> Result<Vec<SourcePreview>, Error> {
    let mut all = Vec::new();
    for (index, source) in choose(config, only)? {
        // Boxed: the future of a source is large.
        match Box::pin(look(source, context)).await {
            Ok(preview) => all.push(preview),
            Err(error @ Error::Config { .. }) => {
                return Err(error.under(&format!("source.{index}")));
            }
            Err(error @ (Error::Cancelled | Error::Storage(_))) => return Err(error),
            Err(error) => all.push(SourcePreview {
                source: source.name.to_string(),
                error: Some(error.to_string()),
                ..SourcePreview::default()
            }),
        }
    }
    Ok(all)
}

async fn look(config: &SourceConfig, context: &Context) -> Result<SourcePreview, Error> {
    let mut source = open(config, context).await?;
    let page = source.next_page(&Position::Start).await?;
    let is_first_all = matches!(page.next, Position::Done { .. });
    let sample = match is_first_all || config.infer.rows == 0 {
        true => None,
        false => source.survey().await?,
    };
    let config = config.clone();
    computing(move || {
        let is_sample_all = sample.as_ref().is_some_and(Survey::is_all);
        let survey = sample.unwrap_or_else(|| {
            let mut survey = Survey::new(&config);
            page.records.iter().for_each(|record| survey.add(record));
            survey
        });
        Ok(told(&config, &survey, is_first_all || is_sample_all))
    })
    .await
}

fn told(config: &SourceConfig, survey: &Survey, is_all: bool) -> SourcePreview {
    let inferred = survey.infer(config);
    let columns = inferred.columns.into_iter().map(|found| ColumnPreview {
        name: found.name,
        r#type: type_name(found.r#type),
        missing: found.missing,
        samples: found.samples,
    });
    let (bad, bad_sample) = survey.bad();
    SourcePreview {
        source: config.name.to_string(),
        rows: survey.rows(),
        is_all,
        bad,
        bad_sample: bad_sample.map(ToOwned::to_owned),
        columns: columns.collect(),
        warnings: inferred.warnings,
        error: None,
    }
}

/// The name of a type in `contract.column.<name>.type`.
const fn type_name(found: Option<ColumnType>) -> &'static str {
    match found {
        None | Some(ColumnType::Null) => "undecided",
        Some(ColumnType::Bool) => "bool",
        Some(ColumnType::Int64) => "int",
        Some(ColumnType::Float64) => "float",
        Some(ColumnType::Decimal) => "decimal",
        Some(ColumnType::Timestamp) => "timestamp",
        Some(ColumnType::Utf8) => "text",
        Some(ColumnType::Binary) => "bytes",
        Some(
            ColumnType::List
            | ColumnType::ListBool
            | ColumnType::ListInt64
            | ColumnType::ListFloat64
            | ColumnType::ListUtf8
            | ColumnType::Json,
        ) => "json",
    }
}

#[cfg(test)]
mod tests;
