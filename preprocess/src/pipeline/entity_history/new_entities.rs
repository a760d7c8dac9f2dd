//! Entities of new rows that have no row in the past.

use feedline_schemas::{manifest::KeptColumn, report::Warning};

use crate::pipeline::prepare::Build;

/// Counter of entities that only new rows have.
#[derive(Debug)]
pub(super) struct NewEntities {
    /// Columns of the entity.
    columns: Vec<String>,
    /// Their places among the passthrough columns.
    places: Vec<usize>,
    /// True if features are made of earlier rows.
    looks_back: bool,
    /// The entity at hand.
    entity: Vec<u8>,
    has_past: bool,
    /// Its new rows with a prediction.
    rows: u64,
    /// Cells of the entity in the first of them.
    name: String,
    found: FoundEntities,
}

/// Entities without a past, and their rows.
#[derive(Debug, Default)]
struct FoundEntities {
    entities: u64,
    rows: u64,
    sample: String,
}

impl Build<'_> {
    /// Counter for new rows with these passthrough columns. `None` without entities or past rows, and where
    /// the splits are made of entities: the model is then made for others than those of training.
    pub(super) fn new_entities(&self, kept: &[KeptColumn]) -> Option<NewEntities> {
        let series = self.spec.series.as_ref()?;
        let split = &self.dataset.split;
        let is_of_entity = |name: &String| series.entity.contains(name);
        let is_by_entity =
            split.by.is_key() && !split.key.is_empty() && split.key.iter().all(is_of_entity);
        if series.entity.is_empty() || self.tables().is_empty() || is_by_entity {
            return None;
        }
        let place = |name: &String| kept.iter().position(|column| column.name == *name);
        let places = series.entity.iter().map(place);
        Some(NewEntities::new(
            series.entity.clone(),
            places.collect::<Option<_>>()?,
            series.looks_back(),
        ))
    }
}

impl NewEntities {
    /// Counter of entities in `columns`, which are at `places` among the passthrough columns. Features
    /// are made of earlier rows if it `looks_back`.
    fn new(columns: Vec<String>, places: Vec<usize>, looks_back: bool) -> Self {
        Self {
            columns,
            places,
            looks_back,
            entity: Vec::new(),
            has_past: false,
            rows: 0,
            name: String::new(),
            found: FoundEntities::default(),
        }
    }

    /// Takes a row of the past. The rows of an entity follow one another.
    pub(super) fn add_past(&mut self, entity: &[u8]) {
        self.enter(entity);
        self.has_past = true;
    }

    /// Takes a new row with a prediction, and its passthrough cells.
    pub(super) fn add_new(&mut self, entity: &[u8], cells: &[Option<String>]) {
        self.enter(entity);
        self.rows += 1;
        if self.rows == 1 && !self.has_past {
            let cell = |place: &usize| cells.get(*place)?.as_deref();
            let cells: Vec<&str> = self.places.iter().filter_map(cell).collect();
            self.name = cells.join("`, `");
        }
    }

    fn enter(&mut self, entity: &[u8]) {
        if self.entity != entity {
            self.close();
            self.entity.clear();
            self.entity.extend_from_slice(entity);
        }
    }

    /// Ends the entity at hand.
    pub(super) fn close(&mut self) {
        if self.rows > 0 && !self.has_past {
            if self.found.entities == 0 {
                self.found.sample = std::mem::take(&mut self.name);
            }
            self.found.entities += 1;
            self.found.rows += self.rows;
        }
        (self.rows, self.has_past) = (0, false);
    }

    /// Warns of the entities so far, if any.
    pub(super) fn warning(&self) -> Option<Warning> {
        let FoundEntities {
            entities,
            rows,
            sample,
        } = &self.found;
        let have = match entities {
            0 => return None,
            1 => "entity has",
            _ => "entities have",
        };
        let columns = self.columns.join("`, `");
        let predicted = match rows {
            1 => "1 row is predicted".to_owned(),
            rows => format!("{rows} rows are predicted"),
        };
        // A usable row has its window, so earlier rows would change features alone.
        let rest = match self.looks_back {
            true => {
                "with features of these rows alone; check how the entity is written, or give its earlier rows \
                 (`feedline ingest`, `--history`)"
            }
            false => {
                "though training may have no row of such an entity; check how the entity is written"
            }
        };
        let message = format!(
            "{entities} {have} no rows but the new ones, such as `{sample}` in `{columns}`, so {predicted} {rest}"
        );
        let warning = Warning::new("unknown_entities", message);
        Some(warning.with_key("dataset.series.entity"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_that_only_new_rows_have_are_counted_with_their_predictions() {
        let columns = ["plant", "unit"].map(str::to_owned).to_vec();
        let mut entities = NewEntities::new(columns, vec![2, 0], true);
        let cells = |plant: &str| [Some("1"), None, Some(plant)].map(|c| c.map(str::to_owned));
        entities.add_past(b"known");
        entities.add_new(b"known", &cells("known"));
        // Rows of the past may come after new ones.
        entities.add_new(b"late", &cells("late"));
        entities.add_past(b"late");
        entities.close();
        assert_eq!(entities.warning(), None);
        entities.add_new(b"first", &cells("zz"));
        entities.add_new(b"first", &cells("zz"));
        entities.add_past(b"another");
        entities.add_new(b"second", &cells("yy"));
        entities.close();
        entities.close();
        let warning = entities.warning().unwrap();
        assert_eq!(warning.code, "unknown_entities");
        let begin = "2 entities have no rows but the new ones, such as `zz`, `1` in `plant`, `unit`, so 3 rows are predicted";
        assert!(warning.message.starts_with(begin), "{}", warning.message);
        let earlier = "with features of these rows alone";
        assert!(warning.message.contains(earlier), "{}", warning.message);
    }

    #[test]
    fn earlier_rows_are_not_asked_for_without_features_of_them() {
        let mut entities = NewEntities::new(vec!["unit".to_owned()], vec![0], false);
        entities.add_new(b"first", &[Some("zz".to_owned())]);
        entities.close();
        let expected = "1 entity has no rows but the new ones, such as `zz` in `unit`, so 1 row is predicted though training \
                        may have no row of such an entity; check how the entity is written";
        assert_eq!(entities.warning().unwrap().message, expected);
    }
}
