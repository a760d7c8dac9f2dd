//! Parquet files with a card, as `datasets.load_dataset` reads them.

use std::{fmt::Write as _, sync::Arc};

use arrow::{
    array::{Array as _, ArrayRef, RecordBatch, StructArray, new_null_array},
    datatypes::{DataType, Field, Fields, Schema},
};
use feedline_schemas::{ids::Name, manifest::Split};
use serde_json::{Map, Value, json};

use super::{
    cells::cast_all,
    files::{FileLimits, PartFiles, PartWriter},
    out::OutFolder,
    parquet_files::{Naming, ParquetParts, ParquetSettings},
    table::{ColumnContent, ColumnFacts, ExportTable},
};
use crate::Error;

/// Metadata key that `datasets` reads features from.
const FEATURES: &str = "huggingface";

/// The columns as `datasets` has them.
pub(super) struct HubColumns {
    schema: Arc<Schema>,
    /// Features that do not follow from the types.
    features: Map<String, Value>,
    /// Columns that differ from those of the table, with the reason.
    pub(super) converted: Vec<(String, String)>,
}

impl HubColumns {
    /// `facts` are those of the columns of `table`.
    pub(super) fn new(table: &ExportTable, facts: &[ColumnFacts]) -> Self {
        let (mut fields, mut features) = (Vec::new(), Map::new());
        let mut converted = Vec::new();
        for (column, facts) in table.columns.iter().zip(facts) {
            let r#type = match &column.content {
                _ if facts.are_images(column) => {
                    features.insert(column.name.clone(), json!({ "_type": "Image" }));
                    let text = "images of the feature `Image`";
                    converted.push((column.name.clone(), text.to_owned()));
                    DataType::Struct(image_fields())
                }
                ColumnContent::Classes(names) => {
                    let feature = json!({ "names": names, "_type": "ClassLabel" });
                    features.insert(column.name.clone(), feature);
                    let text = "class ids of the feature `ClassLabel`, as int64";
                    converted.push((column.name.clone(), text.to_owned()));
                    DataType::Int64
                }
                _ => column.r#type.clone(),
            };
            // `datasets` knows no columns without nulls.
            fields.push(Field::new(&column.name, r#type, true));
        }
        Self {
            schema: Arc::new(Schema::new(fields)),
            features,
            converted,
        }
    }

    /// Settings of the files.
    pub(super) fn settings(
        &self,
        out: OutFolder,
        table: &ExportTable,
        compresses: bool,
        limits: FileLimits,
    ) -> Result<ParquetSettings, Error> {
        let mut facts = table.facts.clone();
        if !self.features.is_empty() {
            let features = json!({ "info": { "features": self.features } });
            facts.push((FEATURES.to_owned(), features.to_string()));
        }
        ParquetSettings::new(out, &self.schema, &facts, compresses, limits)
    }

    fn convert(schema: &Arc<Schema>, rows: &RecordBatch) -> Result<RecordBatch, Error> {
        let columns = rows.columns().iter().zip(schema.fields());
        let columns = columns.map(|(column, field)| match field.data_type() {
            DataType::Struct(_) => images(column),
            r#type => cast_all(column, r#type),
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }
}

fn image_fields() -> Fields {
    Fields::from(vec![
        Field::new("bytes", DataType::Binary, true),
        Field::new("path", DataType::Utf8, true),
    ])
}

/// Image files as cells of the feature `Image`.
fn images(files: &ArrayRef) -> Result<ArrayRef, Error> {
    let nulls = files.nulls().cloned();
    let paths = new_null_array(&DataType::Utf8, files.len());
    let columns = vec![cast_all(files, &DataType::Binary)?, paths];
    Ok(Arc::new(StructArray::try_new(
        image_fields(),
        columns,
        nulls,
    )?))
}

/// Files of a split.
pub(super) struct HubParts {
    schema: Arc<Schema>,
    files: Box<ParquetParts>,
}

impl HubParts {
    pub(super) fn new(
        columns: &HubColumns,
        settings: ParquetSettings,
        split: Option<Split>,
    ) -> Self {
        let naming = Naming::Counted(split_name(split));
        Self {
            schema: Arc::clone(&columns.schema),
            files: Box::new(ParquetParts::new(settings, split, naming)),
        }
    }
}

impl PartWriter for HubParts {
    fn write(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let rows = HubColumns::convert(&self.schema, rows)?;
        self.files.write(&rows)
    }

    fn finish(self: Box<Self>) -> Result<PartFiles, Error> {
        self.files.finish()
    }
}

/// Name of a split; landed rows are `train`, since there must be one.
fn split_name(split: Option<Split>) -> &'static str {
    split.unwrap_or(Split::Train).as_str()
}

/// The card of the splits with rows.
pub(super) fn card(pipeline: &Name, table: &ExportTable, columns: &HubColumns) -> String {
    let parts = table.parts.iter().filter(|part| part.rows > 0);
    let mut card = "---\nconfigs:\n- config_name: default\n  data_files:\n".to_owned();
    let mut rows = String::new();
    for part in parts {
        let name = split_name(part.split);
        // Writing to a string does not fail.
        write!(card, "  - split: {name}\n    path: data/{name}-*\n").ok();
        writeln!(rows, "| `{name}` | {} |", part.rows).ok();
    }
    write!(card, "pretty_name: \"{pipeline}\"\n---\n\n# {pipeline}\n\n").ok();
    for note in &table.notes {
        write!(card, "{note}\n\n").ok();
    }
    if table.parts.iter().all(|part| part.split.is_none()) {
        card.push_str("The rows have no splits; the name `train` says nothing about them.\n\n");
    }
    write!(
        card,
        "| split | rows |\n|---|---:|\n{rows}\n| column | type |\n|---|---|\n"
    )
    .ok();
    for field in columns.schema.fields() {
        let name = field.name().replace('|', "\\|").replace(['\n', '\r'], " ");
        let shown = match columns.features.get(field.name()) {
            Some(feature) => feature["_type"].as_str().unwrap_or_default().to_owned(),
            None => field.data_type().to_string(),
        };
        writeln!(card, "| `{name}` | {shown} |").ok();
    }
    card.push_str("\nWritten by feedline.\n");
    card
}
