//! Files of rejected images, as their rows name them.

use std::collections::{BTreeMap, BTreeSet};

use arrow::{
    array::{Array, AsArray},
    datatypes::UInt64Type,
};
use datafusion::{logical_expr::ident, prelude::SessionContext};
use feedline_schemas::record::ColumnType;
use futures::TryStreamExt;

use super::prepare::Build;
use crate::{
    Error,
    operators::content_column::ContentKind,
    schema::{
        landed_cells::origin,
        system_columns::{self, column},
    },
    source::{
        landed_scan::read,
        landing_zone::{Generation, Landed},
    },
    staging::rejects::Rejects,
};

/// Column of the path of a file, and last key of one in an object of `bytes` and `path`.
const PATH: &str = "path";

/// Rejected rows whose files are looked up, at most.
const MAX_NAMED: usize = 1 << 20;

impl Build<'_> {
    /// Names the files of rejected images, where the landed rows have their paths.
    pub(super) async fn name_files(
        &self,
        session: &SessionContext,
        rejects: &mut Rejects,
    ) -> Result<(), Error> {
        let mut payloads = self.spec.payloads();
        let image = payloads.find(|payload| payload.kind == ContentKind::Image);
        let Some(image) = image.filter(|_| rejects.all() > 0) else {
            return Ok(());
        };
        let object = image.column.strip_suffix(".bytes");
        let beside = object.map(|object| format!("{object}.{PATH}"));
        let names: Vec<&str> = beside.as_deref().into_iter().chain([PATH]).collect();
        let rows = rejects.origins(session, MAX_NAMED).await?;
        let mut files = BTreeMap::new();
        for (index, table) in (0..).zip(self.tables()) {
            for generation in &table.generations {
                let Some(name) = path_column(generation, &names) else {
                    continue;
                };
                let found = read_paths(session, (index, table, generation), name, &rows);
                files.extend(found.await?);
            }
        }
        rejects.set_landed_files(files);
        Ok(())
    }
}

/// The first of `names` that is a column of text.
fn path_column<'n>(generation: &Generation, names: &[&'n str]) -> Option<&'n str> {
    let is_text = |name: &&&str| {
        let mut columns = generation.schema.columns.iter();
        columns.any(|column| column.name == **name && column.r#type == ColumnType::Utf8)
    };
    names.iter().find(is_text).copied()
}

/// Texts of the column `name` in the `rows` of a table.
async fn read_paths(
    session: &SessionContext,
    (index, table, generation): (u64, &Landed, &Generation),
    name: &str,
    rows: &BTreeSet<u64>,
) -> Result<BTreeMap<u64, String>, Error> {
    let columns = vec![
        origin(index).alias(system_columns::ORIGIN),
        ident(name).alias(PATH),
    ];
    let frame = read(session, table, generation)?.select(columns)?;
    let mut batches = frame.execute_stream().await?;
    let mut found = BTreeMap::new();
    while let Some(batch) = batches.try_next().await? {
        let origins = column(&batch, system_columns::ORIGIN).as_primitive::<UInt64Type>();
        let paths = column(&batch, PATH).as_string::<i32>();
        for (row, origin) in origins.values().iter().enumerate() {
            if paths.is_valid(row) && rows.contains(origin) {
                found.insert(*origin, paths.value(row).to_owned());
            }
        }
    }
    Ok(found)
}
