//! Checks of `[dataset]` before any row is read.

use std::collections::BTreeMap;

use feedline_schemas::{
    config::{DatasetConfig, PipelineConfig},
    ids::{Name, SchemaVersion},
    record::{Column, RecordSchema},
    transform::InputKind,
};
use feedline_storage::Store;
use serde::Serialize;

use crate::{
    Context, Error,
    pipeline::{
        Build,
        sources::{Chosen, chosen, frozen, joined},
        tokenizer,
    },
    schema::{
        column_roles,
        dataset_spec::{DatasetSpec, Input},
        landed_columns,
        no_feature::NoFeatureReason,
    },
    source::landing_zone::has_landed,
};

/// Columns of a dataset and their use, as its settings resolve them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckedDataset {
    /// Features that are read as numbers.
    pub numeric: Vec<String>,
    /// Features that are read as categories.
    pub categorical: Vec<String>,
    /// Columns that a model predicts.
    pub targets: Vec<String>,
    /// Columns that are no features since a key names them for another use, each with the reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub no_features: BTreeMap<String, String>,
    /// Those of `numeric` that no key lists.
    #[serde(skip)]
    pub numeric_by_default: Vec<String>,
    /// Source whose records are the first rows; none where a query makes the rows, and for files and child tables.
    #[serde(skip)]
    pub first_source: Option<Name>,
    /// Reason that the columns are not checked yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unchecked: Option<String>,
}

/// Checks the values of `[dataset]` that need no columns. A pipeline without the section passes.
///
/// # Errors
/// [`Error::Config`] for the first wrong value.
pub fn check(config: &PipelineConfig) -> Result<(), Error> {
    let Some(dataset) = &config.dataset else {
        return Ok(());
    };
    column_roles::check_numbers(dataset)?;
    chosen(dataset, &config.source)?;
    frozen(dataset, &config.source)?;
    joined(dataset, &config.source)?;
    tokenizer::resolve(dataset).map(drop)
}

/// Resolves `[dataset]` against the columns that its sources have landed, or, for those that have landed nothing, against
/// `previewed` columns by the source's name. Reads no row. None for a pipeline without the section.
///
/// # Errors
/// [`Error::Config`] where the settings do not fit the columns, [`Error::Input`] for a damaged commit log, and errors of the
/// store.
pub async fn check_columns(
    config: &PipelineConfig,
    context: &Context,
    previewed: &BTreeMap<Name, Vec<Column>>,
) -> Result<Option<CheckedDataset>, Error> {
    check(config)?;
    let Some(dataset) = &config.dataset else {
        return Ok(None);
    };
    let rows = chosen(dataset, &config.source)?;
    let others = [
        frozen(dataset, &config.source)?,
        joined(dataset, &config.source)?,
    ];
    let first = first_source(dataset, &rows);
    let all = rows.iter().chain(others.iter().flatten());
    let Some(missing) = first_missing(all, &context.root).await? else {
        let build = Box::pin(Build::prepare(config, context)).await?;
        return Ok(Some(CheckedDataset::new(&build.spec, first)));
    };
    if let Some(rows) = made_rows(dataset) {
        return Ok(Some(CheckedDataset::unchecked(format!(
            "columns of {rows} are checked once `{missing}` has landed"
        ))));
    }
    let schemas: Option<Vec<RecordSchema>> = rows
        .iter()
        .map(|chosen| previewed_schema(chosen, previewed))
        .collect();
    let Some(schemas) = schemas else {
        return Ok(Some(CheckedDataset::unchecked(format!(
            "the columns of {} are not known yet",
            names_of(&rows)
        ))));
    };
    let spec = column_roles::resolve(dataset, &landed_columns::merge(&schemas))?;
    Ok(Some(CheckedDataset::new(&spec, first)))
}

/// Source whose records are the first rows of the dataset.
fn first_source(dataset: &DatasetConfig, rows: &[Chosen<'_>]) -> Option<Name> {
    let (source, table) = rows.first()?;
    let is_of_records = table.is_none() && dataset.sql.is_none();
    is_of_records.then(|| source.name.clone())
}

/// Rows whose columns are known only once all sources have landed.
fn made_rows(dataset: &DatasetConfig) -> Option<&'static str> {
    match () {
        () if dataset.sql.is_some() => Some("rows made by `dataset.sql`"),
        () if !dataset.join.is_empty() => Some("rows of `dataset.join`"),
        () => None,
    }
}

/// Name of the first source that has landed nothing.
async fn first_missing<'a>(
    sources: impl Iterator<Item = &'a Chosen<'a>>,
    root: &Store,
) -> Result<Option<&'a Name>, Error> {
    let mut missing = None;
    for (source, _) in sources {
        if !has_landed(root, &source.name).await? {
            missing = missing.or(Some(&source.name));
        }
    }
    Ok(missing)
}

fn names_of(sources: &[Chosen<'_>]) -> String {
    let names = sources.iter().map(|(source, table)| match table {
        Some(table) => format!("`{}.{table}`", source.name),
        None => format!("`{}`", source.name),
    });
    names.collect::<Vec<_>>().join(", ")
}

/// The previewed columns of a source's records.
fn previewed_schema(
    (source, table): &Chosen<'_>,
    previewed: &BTreeMap<Name, Vec<Column>>,
) -> Option<RecordSchema> {
    let columns = previewed.get(&source.name).filter(|_| table.is_none())?;
    Some(RecordSchema {
        version: SchemaVersion::new(1),
        columns: columns.clone(),
    })
}

impl CheckedDataset {
    fn new(spec: &DatasetSpec, first_source: Option<Name>) -> Self {
        let is_default =
            |input: &&Input| input.by_default && input.column.kind == InputKind::Numeric;
        let by_default = spec.inputs.iter().filter(is_default);
        let of_kind = |kind: InputKind| {
            let inputs = spec.inputs.iter().map(|input| &input.column);
            let of_kind = inputs.filter(|column| column.kind == kind);
            of_kind.map(|column| column.name.clone()).collect()
        };
        let others = column_roles::columns_in_other_use(&spec.config, &spec.inputs);
        let others = others.into_iter();
        Self {
            no_features: others
                .map(|(name, key)| (name, NoFeatureReason::NamedIn(key).to_string()))
                .collect(),
            numeric: of_kind(InputKind::Numeric),
            categorical: of_kind(InputKind::Categorical),
            targets: spec.targets().map(|target| target.column.clone()).collect(),
            numeric_by_default: by_default.map(|input| input.column.name.clone()).collect(),
            first_source,
            unchecked: None,
        }
    }

    fn unchecked(reason: String) -> Self {
        Self {
            unchecked: Some(reason),
            ..Self::default()
        }
    }
}
