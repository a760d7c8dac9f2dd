//! Texts of a frozen source, which is no part of the dataset.

use datafusion::prelude::{DataFrame, SessionContext};
use feedline_schemas::config::DocumentConfig;

use crate::{
    Error,
    engine::union::append_rows,
    operators::document,
    schema::{
        landed_cells::{landed, origin, text},
        system_columns,
    },
    source::{landed_scan::read, landing_zone::Landed},
};

/// The texts in column `name` of a source that is no part of the dataset, as `named`, `prepared` as documents are, with
/// origins as of source `index`.
pub(super) fn texts(
    session: &SessionContext,
    source: &Landed,
    index: u64,
    (name, named): (&str, &str),
    prepared: Option<&DocumentConfig>,
) -> Result<DataFrame, Error> {
    let mut all: Option<DataFrame> = None;
    for generation in &source.generations {
        let columns = vec![
            origin(index).alias(system_columns::ORIGIN),
            text(landed(&generation.schema, name)).alias(named),
        ];
        let rows = read(session, source, generation)?;
        let rows = match prepared {
            Some(text) => document::prepared(rows, name, text)?,
            None => rows,
        };
        let rows = rows.select(columns)?;
        all = Some(append_rows(all, rows)?);
    }
    Ok(all.expect("a landed source has at least one row, so at least one file"))
}
