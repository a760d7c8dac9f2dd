//! Split keys whose rows the data put into several splits: a mistake of an expression or a column,
//! reported with a sample key.

use arrow::{array::AsArray, util::display::array_value_to_string};
use datafusion::{logical_expr::ident, prelude::SessionContext};
use feedline_schemas::config::SplitBy;
use futures::TryStreamExt;

use crate::{
    Error,
    error::keys_appear,
    operators::dedup::content_hash::{Cells, key_of},
    pipeline::prepare::Build,
    schema::{
        landed_cells::content_hash,
        system_columns::{self, column},
    },
    source::landed_scan::read,
    staging::Groups,
};

impl Build<'_> {
    /// Error for groups in several splits.
    pub(in crate::pipeline) async fn torn(
        &self,
        session: &SessionContext,
        groups: &Groups,
    ) -> Error {
        let config = &self.spec.config.split;
        let (keys, columns) = (groups.leaked, config.key.join("`, `"));
        let (at, advice) = match &config.by {
            SplitBy::Expression(_) => (
                "expression",
                format!("write the expression over `{columns}` alone"),
            ),
            SplitBy::Column(_) => ("column", format!("name one split for each `{columns}`")),
            _ => {
                let samples = groups.samples.iter().map(|key| Groups::named(*key));
                let samples = samples.collect();
                return Error::Leak { keys, samples };
            }
        };
        let example = match groups.samples.first() {
            // Without an example the message says enough.
            Some(key) => self.values_of(session, *key).await.ok().flatten(),
            None => None,
        };
        let example = example.map_or_else(String::new, |values| format!(", such as {values}"));
        let reason = format!(
            "{} in more than one split: rows with the same `{columns}` are given different splits{example}; {advice}, or leave \
             out `dataset.split.key`",
            keys_appear(keys)
        );
        Error::config(format!("dataset.split.{at}"), reason)
    }

    /// The cells of the split's key in the first row found whose key this is; nothing where it has a column that was joined on.
    async fn values_of(&self, session: &SessionContext, key: u64) -> Result<Option<String>, Error> {
        let names = &self.spec.config.split.key;
        for table in self.tables() {
            for generation in &table.generations {
                let columns = generation.schema.columns.iter();
                let columns = columns.map(|column| column.name.as_str());
                let there: Vec<&str> = columns
                    .filter(|column| names.iter().any(|name| name == column))
                    .collect();
                let hash = content_hash(there.iter().copied(), Cells::Text);
                let mut asked = vec![hash.alias(system_columns::GROUP)];
                asked.extend(there.iter().map(|name| ident(*name)));
                let rows = read(session, table, generation)?.select(asked)?;
                let mut rows = Box::pin(rows.execute_stream()).await?;
                while let Some(batch) = rows.try_next().await? {
                    let keys = column(&batch, system_columns::GROUP).as_fixed_size_binary();
                    let is_it = |row: &usize| key_of(keys.value(*row)) == key;
                    if let Some(row) = (0..batch.num_rows()).find(is_it) {
                        let cells = there.iter().zip(&batch.columns()[1..]);
                        let cells = cells.map(|(name, cells)| {
                            Ok(format!("`{name}` = {}", array_value_to_string(cells, row)?))
                        });
                        let cells = cells.collect::<Result<Vec<_>, Error>>()?;
                        return Ok((!cells.is_empty()).then(|| cells.join(", ")));
                    }
                }
            }
        }
        Ok(None)
    }
}
