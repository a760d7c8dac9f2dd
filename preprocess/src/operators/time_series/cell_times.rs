//! Times of a series in cells that have not landed.

use feedline_schemas::{
    config::{DatasetConfig, Gaps, SeriesConfig},
    record::ColumnType,
};

use super::{
    instant::Instant,
    sequence,
    windowless::{WindowlessCounter, WindowlessCounts},
};

/// Cells of a row of a series that has not landed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesCells {
    /// Those of the entity, in the order of its columns.
    pub entity: Vec<String>,
    /// Its time; behind a space, the time of day that has a column of its own.
    pub time: String,
    /// True if a build would reject the row for its target.
    pub lacks_target: bool,
}

/// Returns true if a build reads the time of `series` in `cell` once it has landed in a column of this
/// type, or if the landing decides about it. Behind a space, `cell` has the time of day that has a column
/// of its own.
#[must_use]
pub fn reads_time(series: &SeriesConfig, r#type: ColumnType, cell: &str) -> bool {
    let instant = instant_of(series);
    match r#type {
        ColumnType::Utf8 => instant.of_text(cell).is_some(),
        ColumnType::Int64 if series.unit.is_some() => {
            let value: Option<i64> = cell.parse().ok();
            value.is_none_or(|value| instant.of_integer(value).is_some())
        }
        ColumnType::Float64 if series.unit.is_some() => {
            let value: Option<f64> = cell.parse().ok();
            value.is_none_or(|value| instant.of_float(value).is_some())
        }
        _ => true,
    }
}

fn instant_of(series: &SeriesConfig) -> Instant {
    Instant {
        format: series.format.clone(),
        unit: series.unit,
        zone: series.zone.clone(),
        ambiguous: series.ambiguous,
        ..Instant::iso()
    }
}

/// Counts entities without a window among `rows`, which are all rows of `dataset`; their times land in a
/// column of this type. `None` if the samples are no windows, gaps are errors, or times are not known yet.
pub(crate) fn count_windowless(
    dataset: &DatasetConfig,
    r#type: ColumnType,
    rows: &[SeriesCells],
) -> Option<WindowlessCounts> {
    let series = dataset.series.as_ref();
    let series = series.filter(|series| series.gaps != Some(Gaps::Error))?;
    let sequence = sequence::resolve(dataset, &series.entity).ok()??;
    let instant = instant_of(series);
    let micros = |cell: &str| match r#type {
        ColumnType::Utf8 => instant.of_text(cell),
        ColumnType::Int64 => instant.of_integer(cell.parse().ok()?),
        ColumnType::Float64 => instant.of_float(cell.parse().ok()?),
        ColumnType::Timestamp => Instant::iso().of_text(cell),
        _ => None,
    };
    let timed = rows.iter().filter_map(|row| {
        let time = micros(&row.time)?;
        Some((row.entity.as_slice(), time, row.lacks_target))
    });
    let mut timed: Vec<(&[String], i64, bool)> = timed.collect();
    // Formats that the landing reads by are not known here.
    if r#type == ColumnType::Timestamp && timed.len() < rows.len() {
        return None;
    }
    timed.sort_unstable();
    // Of the rows of an instant, one with a target counts.
    timed.dedup_by_key(|(entity, time, _)| (*entity, *time));
    let longest = series.max_gap.map_or(i64::MAX, |gap| gap.micros());
    let mut counter = WindowlessCounter::new(sequence.span());
    for (number, rows) in (0_u64..).zip(timed.chunk_by(|a, b| a.0 == b.0)) {
        let (mut place, mut before) = (0, None);
        for (cells, time, lacks_target) in rows {
            let is_gap = before.is_some_and(|before: i64| time.saturating_sub(before) > longest);
            place += if is_gap { 2 } else { 1 };
            before = Some(*time);
            let name = || name_of(&series.entity, cells);
            counter.add(&number.to_le_bytes(), place, !*lacks_target, name);
        }
    }
    Some(counter.finish())
}

/// The entity of a row in brackets, as a build names it.
fn name_of(columns: &[String], cells: &[String]) -> String {
    let cells = columns.iter().zip(cells);
    let cells: Vec<String> = cells
        .map(|(column, cell)| format!("{column} = `{cell}`"))
        .collect();
    match cells.is_empty() {
        true => String::new(),
        false => format!(" ({})", cells.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::TimeUnit;

    use super::*;
    use crate::testing::pipeline;

    #[test]
    fn rows_that_have_not_landed_have_the_windows_of_a_build() {
        let find = |series: &str, r#type, rows: &[(&str, &str, bool)]| {
            let dataset = format!(
                "target = \"y\"\nsplit = {{ by = \"range\" }}\n\
                 series = {{ time = \"t\", entity = [\"who\"]{series} }}\nsequence = {{ length = 2 }}\n"
            );
            let rows = rows.iter().map(|(who, time, has_target)| SeriesCells {
                entity: vec![(*who).to_owned()],
                time: (*time).to_owned(),
                lacks_target: !*has_target,
            });
            let rows: Vec<SeriesCells> = rows.collect();
            count_windowless(&pipeline(&dataset).dataset.unwrap(), r#type, &rows)
        };
        // The rows of `a` follow one another, and each of `b` comes behind a gap.
        let rows = [
            ("b", "6", true),
            ("a", "1", true),
            ("a", "3", true),
            ("a", "2", false),
            ("a", "2", true),
            ("b", "3", true),
            ("b", "9", true),
            ("c", "1", true),
        ];
        let gap = ", unit = \"s\", max_gap = \"2s\"";
        let found = find(gap, ColumnType::Int64, &rows).unwrap();
        assert_eq!((found.entities, found.without, found.rows), (3, 1, 3));
        assert_eq!(found.short, 1);
        assert_eq!(found.names, [" (who = `b`)"]);
        let none = find(", unit = \"s\"", ColumnType::Int64, &rows).unwrap();
        assert_eq!(none.without, 0);
        assert_eq!(find("", ColumnType::Timestamp, &rows), None);
    }

    #[test]
    fn cells_are_read_by_unit_and_format_as_their_column_lands() {
        let plain = SeriesConfig::default();
        let seconds = SeriesConfig {
            unit: Some(TimeUnit::S),
            ..SeriesConfig::default()
        };
        let days = SeriesConfig {
            format: Some("%d/%m/%Y %H:%M".to_owned()),
            ..SeriesConfig::default()
        };
        for (series, r#type, cell, expected) in [
            (&seconds, ColumnType::Int64, "1771905600", true),
            (&seconds, ColumnType::Int64, "1771905600000", false),
            (&seconds, ColumnType::Float64, "1771905600.5", true),
            (&seconds, ColumnType::Float64, "1771905600000", false),
            // The landing rejects it.
            (&seconds, ColumnType::Int64, "soon", true),
            // A unit is missing, which is an error of its own.
            (&plain, ColumnType::Int64, "1771905600000", true),
            (&plain, ColumnType::Utf8, "2026-02-24T04:00:00Z", true),
            (&plain, ColumnType::Utf8, "24/02/2026 04:00", false),
            (&days, ColumnType::Utf8, "24/02/2026 04:00", true),
            (&days, ColumnType::Utf8, "02/24/2026 04:00", false),
            (&plain, ColumnType::Timestamp, "soon", true),
        ] {
            assert_eq!(reads_time(series, r#type, cell), expected, "{cell}");
        }
    }
}
