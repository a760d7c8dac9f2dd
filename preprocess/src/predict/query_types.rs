//! Types of the columns of a query, for new rows of a dataset that `dataset.sql` makes.

use std::collections::BTreeMap;

use feedline_schemas::{
    config::PipelineConfig,
    ids::SchemaVersion,
    manifest::Manifest,
    record::{Column, ColumnType, RecordSchema},
};

use super::reader::landed::landed_columns_of;
use crate::{
    Context, Error,
    pipeline::sources::{chosen, columns_hash},
    source::{
        landing_zone::{Generation, Landed},
        sql::Query,
    },
};

/// Types of the columns of the query of `config` by name, over the columns that its sources had landed
/// when the dataset of `manifest` was built. The logs of the sources are read, and no row. Without a
/// query, or if the landing zone or the query is another one than in the build, no types are known.
pub async fn query_types(
    config: &PipelineConfig,
    manifest: &Manifest,
    context: &Context,
) -> BTreeMap<String, ColumnType> {
    let query = match Box::pin(resolve(config, manifest, context)).await {
        Ok(query) => query,
        Err(error) => {
            tracing::warn!(
                %error,
                "the types of the columns of the query are unknown, so each cell of new rows is read by its own type"
            );
            None
        }
    };
    let columns = query.into_iter().flat_map(|query| query.schema.columns);
    columns.map(|column| (column.name, column.r#type)).collect()
}

/// Plans the query over its sources as they were in the build.
///
/// # Errors
/// Sources that cannot be read, and a query that cannot be planned.
async fn resolve(
    config: &PipelineConfig,
    manifest: &Manifest,
    context: &Context,
) -> Result<Option<Query>, Error> {
    let Some(dataset) = &config.dataset else {
        return Ok(None);
    };
    let built = manifest.columns_hash;
    let is_built = built.is_none_or(|built| built == columns_hash(dataset));
    // Files that are read in place have no log of their columns.
    let has_log = dataset.files.is_none();
    let Some(sql) = dataset.sql.as_ref().filter(|_| is_built && has_log) else {
        return Ok(None);
    };
    let mut sources = Vec::new();
    for (source, table) in chosen(dataset, &config.source)? {
        let landed = Landed::read(&context.root, source, table.as_ref()).await?;
        let name = landed.reference.name.clone();
        let columns = landed_columns_of(&context.root, manifest, |read| *read == name).await?;
        if columns.is_empty() {
            return Ok(None);
        }
        let columns = columns.into_iter().map(|column| Column {
            field_id: 0,
            name: column.name,
            r#type: column.r#type,
            whole: false,
        });
        let schema = RecordSchema {
            version: SchemaVersion::new(0),
            columns: columns.collect(),
        };
        let files = landed.files().cloned().collect();
        sources.push(Landed {
            generations: vec![Generation { schema, files }],
            ..landed
        });
    }
    Query::resolve(sql, &sources).await.map(Some)
}
