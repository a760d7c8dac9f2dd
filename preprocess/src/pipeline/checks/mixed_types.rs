//! Columns that hold text in one source and another type in another: values that are equal may have
//! two texts.

use arrow::array::{Array, AsArray};
use datafusion::{functions_aggregate::expr_fn::min, logical_expr::ident, prelude::SessionContext};
use feedline_schemas::{record::ColumnType, report::Warning};

use crate::{
    Error,
    operators::dedup::conflicts,
    pipeline::prepare::Build,
    schema::{
        landed_cells::typed,
        landed_columns::{MergedColumn, merge},
    },
    source::{landed_scan::read_all, landing_zone::Landed},
    warnings::{self, MixedColumn, SourceColumnType},
};

const TEXT: &str = "_mixed_text";

impl Build<'_> {
    /// Warns of columns that are text only since the sources have different types for them.
    pub(in crate::pipeline) async fn mixed_types(
        &self,
        session: &SessionContext,
    ) -> Result<Option<Warning>, Error> {
        let tables = self.tables();
        let columns: Vec<Vec<MergedColumn>> = tables
            .iter()
            .map(|table| merge(table.generations.iter().map(|g| &g.schema)))
            .collect();
        let mut mixed = Vec::new();
        for MergedColumn { name, .. } in self.input.columns.iter().filter(|c| self.is_compared(c)) {
            let types: Vec<(&Landed, ColumnType)> = tables
                .iter()
                .zip(&columns)
                .filter_map(|(table, columns)| {
                    let column = columns.iter().find(|column| column.name == *name)?;
                    Some((table, column.r#type))
                })
                .filter(|(_, r#type)| *r#type != ColumnType::Null)
                .collect();
            if types.iter().all(|(_, r#type)| *r#type == ColumnType::Utf8) || types.len() < 2 {
                continue;
            }
            let mut sources = Vec::with_capacity(types.len());
            for (table, r#type) in types {
                sources.push(SourceColumnType {
                    source: table.reference.name.to_string(),
                    r#type,
                    example: Box::pin(first_text(session, table, name)).await?,
                });
            }
            mixed.push(MixedColumn {
                name: name.clone(),
                sources,
            });
        }
        Ok(warnings::mixed_types(&mixed))
    }

    /// Returns true for a column that is text and decides which rows are equal, or is read for something.
    fn is_compared(&self, column: &MergedColumn) -> bool {
        let config = &self.spec.config;
        let is_read = self.has_use(&column.name) && !config.drop.contains(&column.name);
        let is_content =
            conflicts::compares_columns(config) && conflicts::is_content(config, &column.name);
        column.r#type == ColumnType::Utf8 && (is_read || is_content)
    }
}

/// The least text of column `name` of a source.
async fn first_text(
    session: &SessionContext,
    source: &Landed,
    name: &str,
) -> Result<Option<String>, Error> {
    let texts = read_all(session, source, |schema| {
        Ok(vec![typed(schema, name, ColumnType::Utf8)?.alias(TEXT)])
    })?;
    let Some(texts) = texts else { return Ok(None) };
    let least = texts.aggregate(Vec::new(), vec![min(ident(TEXT))])?;
    let least = least.collect().await?;
    Ok(least.first().and_then(|batch| {
        let texts = batch.column(0).as_string::<i32>();
        (!texts.is_empty() && texts.is_valid(0)).then(|| texts.value(0).to_owned())
    }))
}
