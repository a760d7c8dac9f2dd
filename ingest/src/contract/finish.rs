//! The end of a batch.

use feedline_schemas::{
    commit::{Presence, note},
    config::MissingColumns,
    count::counted,
    ids::SchemaVersion,
    record::{Column, ColumnType, RecordSchema},
};

use super::{
    Closed, Contract, Rejection, map_columns,
    missing_values::{self, Met},
    text_bytes::settle_hex,
};

impl Contract<'_> {
    /// Ends the batch and checks for missing columns.
    ///
    /// # Errors
    /// The key and the reason of a violation that stops the run.
    pub(crate) fn close(mut self) -> Result<Closed, (&'static str, Rejection)> {
        let presence = self.judge();
        settle_hex(&mut self.decisions);
        let vanished = self
            .decisions
            .get(missing_values::VANISHED)
            .and_then(|v| v.iter().next());
        if let (MissingColumns::Freeze, Some((path, noted))) =
            (self.config.missing_columns, vanished)
        {
            let detail = format!("column `{path}` has vanished: {}", noted.sample);
            let (path, reason) = (path.clone(), missing_values::VANISHED);
            return Err((
                "missing_columns",
                Rejection {
                    reason,
                    path,
                    detail,
                },
            ));
        }
        let version = match self.before.map(|before| &before.schema) {
            None => SchemaVersion::new(1),
            Some(schema) if schema.columns == self.columns => schema.version,
            Some(schema) => schema.version.next(),
        };
        Ok(Closed {
            schema: RecordSchema {
                version,
                columns: self.columns,
            },
            presence,
            decisions: self.decisions,
        })
    }

    /// Returns the columns with values, this batch included, and raises the alarms.
    fn judge(&mut self) -> Presence {
        let nothing = Presence::default();
        let before = self.before.map_or(&nothing, |before| &before.presence);
        let known = self.before.map_or(0, |before| before.schema.columns.len());
        let mut after = Presence {
            rows: before.rows + self.rows,
            ..Presence::default()
        };
        for (i, (column, met)) in self.columns.iter().zip(&self.met).enumerate() {
            let name = &column.name;
            let change = missing_values::Change::new(before, name, i < known, (self.rows, *met));
            let sum = change.sum();
            if sum.sum() > 0 {
                after.missing.insert(name.clone(), sum);
            }
            if met.is_big && matches!(column.r#type, ColumnType::Int64 | ColumnType::ListInt64) {
                after.large_integers.insert(name.clone());
            }
            let percents = before.percents.get(name).copied().unwrap_or_default() + met.percents;
            if percents > 0 {
                after.percents.insert(name.clone(), percents);
            }
            let plain = self.plain_numbers(before, (column, met));
            if plain > 0 {
                after.plain_numbers.insert(name.clone(), plain);
            }
            // Keys of an object that is now stored as one column no longer make columns.
            let is_in_whole = || {
                self.whole
                    .iter()
                    .any(|whole| map_columns::is_below(name, whole))
            };
            if i < known && (self.whole.is_empty() || !is_in_whole()) {
                change.alarm(name, self.config.null_drift.get(), &mut self.decisions);
            }
            if self.rules[i].is_never_null {
                change.tell(name, &mut self.decisions);
            }
        }
        for name in self.unmade.iter().filter(|_| self.rows > 0) {
            let sample = || {
                let rows = counted(self.rows, "record");
                format!("{rows}, 0 with null and {} without it", self.rows)
            };
            note(
                &mut self.decisions,
                missing_values::REQUIRED_ABSENT,
                name,
                self.rows,
                sample,
            );
        }
        after
    }

    /// Returns the landed numbers of a column without a percent sign, this batch included. A cell of 0
    /// does not count: it is the same with the sign. Batches that are read without `csv.percent` are
    /// not counted: it costs a number for each column.
    fn plain_numbers(&self, before: &Presence, (column, met): (&Column, &Met)) -> u64 {
        let plain = before.plain_numbers.get(&column.name).copied();
        let is_counted = self.format.reads_percents() && column.r#type.is_number();
        let own = match is_counted {
            true => met.present.saturating_sub(met.percents + met.zeros),
            false => 0,
        };
        plain.unwrap_or_default() + own
    }
}
