//! Scan of landed rows: a schema version of a source as a frame.

use std::sync::Arc;

use datafusion::{
    execution::object_store::ObjectStoreUrl,
    logical_expr::Expr,
    prelude::{DataFrame, SessionContext},
};

use feedline_schemas::record::RecordSchema;

use crate::{
    Error,
    engine::{store_urls, union::append_rows},
    schema::landed_columns::landed_schema,
    source::{
        landing_zone::{Generation, Landed},
        parquet_scan::{ParquetFiles, ScanFile},
    },
};

/// Columns of the rows of all schema versions of `source`, as `columns` has them of each; `None`
/// without a landed row.
pub(crate) fn read_all(
    session: &SessionContext,
    source: &Landed,
    columns: impl Fn(&RecordSchema) -> Result<Vec<Expr>, Error>,
) -> Result<Option<DataFrame>, Error> {
    let mut all: Option<DataFrame> = None;
    for generation in &source.generations {
        let columns = columns(&generation.schema)?;
        let rows = read(session, source, generation)?.select(columns)?;
        all = Some(append_rows(all, rows)?);
    }
    Ok(all)
}

/// The rows of a schema version of `source`.
pub(crate) fn read(
    session: &SessionContext,
    source: &Landed,
    generation: &Generation,
) -> Result<DataFrame, Error> {
    if let Some(files) = &source.in_place {
        return files.frame(session);
    }
    let schema = Arc::new(landed_schema(&generation.schema, source.records.is_some()));
    if let Some(file) = &source.local {
        let table = ParquetFiles {
            store: ObjectStoreUrl::local_filesystem(),
            schema,
            files: vec![file.clone()],
        };
        return Ok(session.read_table(Arc::new(table))?);
    }
    let (_, _, folder) = source.store.object_store();
    let file = |f: &feedline_schemas::commit::DataFile| ScanFile {
        path: f
            .path
            .split('/')
            .fold(folder.clone(), |path, part| path.join(part)),
        bytes: f.bytes,
    };
    let table = ParquetFiles {
        store: store_urls::url_of(&source.store)?,
        schema,
        files: generation.files.iter().map(file).collect(),
    };
    Ok(session.read_table(Arc::new(table))?)
}
