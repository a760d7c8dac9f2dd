//! Columns that a split can be made by, and integers that may be times.

use feedline_ingest::{ColumnPreview, SourcePreview};
use feedline_schemas::record::ColumnType;

use super::{ColumnRoles, MIN_ROWS, names_entity, text_dates::find_text_dates};

/// A group that has several rows in at least one of so many rows is surely meant to repeat.
const OFTEN: u64 = 20;
/// Seconds from 1970 to 2000 and to 2040, between which integers may be times.
const TIMES_S: std::ops::Range<i64> = 946_684_800..2_208_988_800;

impl ColumnRoles {
    /// Finds the columns that a split can be made by: timestamps and an entity with several rows.
    pub(super) fn choose_split(&mut self, preview: &SourcePreview) {
        let columns = &preview.columns;
        self.entity = self.choose_entity(preview);
        let is_time = |column: &&ColumnPreview| column.column_type == Some(ColumnType::Timestamp);
        let target = self.target.as_deref();
        let is_text_time =
            |column: &&ColumnPreview| column.are_times && target != Some(column.name.as_str());
        let time = columns.iter().find(is_time);
        let time = time.or_else(|| columns.iter().find(is_text_time));
        let time = time.map(|column| column.name.clone());
        let dates = match &time {
            Some(_) => None,
            None => find_text_dates(preview, target),
        };
        self.time = time;
        if let Some(dates) = dates {
            (self.time, self.dates) = (Some(dates.column), Some(dates.setting));
        }
        if let Some(time) = &self.time {
            let dates = self.dates.as_ref();
            let set = dates.map(|setting| format!("set `{setting}` of the source and "));
            self.decisions.push(format!(
                "rows are split by a hash, not by `{time}`; to test on the newest rows, {}use the commented lines with `by = \"time\"`",
                set.unwrap_or_default()
            ));
        }
    }

    /// Chooses the identifier whose rows share a split: the first that repeats in many rows, or the one that repeats
    /// most. A build drops rows that are equal to one before, so they are no repeats.
    fn choose_entity(&mut self, preview: &SourcePreview) -> Option<String> {
        let target = self.target.as_ref();
        let mut columns = preview.columns.iter();
        let predicted = columns.find(|column| target == Some(&column.name));
        // The rows of another table in the same folder have no target.
        let without_target = predicted.map_or(0, |column| column.missing);
        let repeats = |column: &ColumnPreview| {
            let once = column.distinct + preview.repeated;
            column.compared.saturating_sub(once)
        };
        let is_entity = |column: &&ColumnPreview| {
            names_entity(&column.name)
                && target != Some(&column.name)
                && column.compared >= MIN_ROWS
                && column.distinct > 1
                && repeats(column) > 0
                && (column.missing + without_target < preview.rows || without_target == 0)
        };
        let found: Vec<&ColumnPreview> = preview.columns.iter().filter(is_entity).collect();
        let is_often = |column: &ColumnPreview| repeats(column) * OFTEN >= column.compared;
        let often = found.iter().find(|column| is_often(column));
        let entity = often.or_else(|| found.iter().max_by_key(|column| repeats(column)))?;
        let others = found
            .iter()
            .filter(|column| column.name != entity.name && is_often(column));
        let others: Vec<String> = others.map(|column| format!("`{}`", column.name)).collect();
        let others = match others.is_empty() {
            true => String::new(),
            false => format!(
                ", also to {}, in which rows repeat too",
                others.join(" or ")
            ),
        };
        let name = entity.name.clone();
        self.decisions.push(format!(
            "rows of one `{name}` share a split, so that none is in training and test; `dataset.split.key` changes it{others}"
        ));
        Some(name)
    }

    /// Adds the features whose integers may be times since 1970 to the decisions to review.
    pub(super) fn review_epochs(&mut self, columns: &[ColumnPreview]) {
        let features = columns.iter().filter(|column| self.is_feature(column));
        let reviews = features.filter_map(|column| {
            let unit = epoch_unit(column)?;
            let sample = column.samples.first()?;
            Some(format!(
                "`{}` has integers in the range of {unit} since 1970, such as `{sample}`, and is a feature; if they are times, list it \
                 in `dataset.drop`, or make timestamps of them by a query in `dataset.sql`",
                column.name
            ))
        });
        let reviews: Vec<String> = reviews.collect();
        self.decisions.extend(reviews);
    }
}

/// Unit of integers that may be times since 1970, by their samples; none for few distinct ones.
fn epoch_unit(column: &ColumnPreview) -> Option<&'static str> {
    if column.column_type != Some(ColumnType::Int64) || column.distinct < MIN_ROWS {
        return None;
    }
    let numbers: Option<Vec<i64>> = column
        .samples
        .iter()
        .map(|text| text.parse().ok())
        .collect();
    let numbers = numbers.filter(|numbers| !numbers.is_empty())?;
    let are_times = |per_second: i64| {
        let mut seconds = numbers.iter().map(|number| number / per_second);
        seconds.all(|second| TIMES_S.contains(&second))
    };
    match (are_times(1_000), are_times(1)) {
        (true, _) => Some("milliseconds"),
        (_, true) => Some("seconds"),
        _ => None,
    }
}
