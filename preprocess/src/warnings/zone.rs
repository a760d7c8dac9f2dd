//! Warnings of time zones, and of local times.

use feedline_schemas::{config::SeriesConfig, count::counted, record::ColumnType, report::Warning};

use super::message::{quoted, warned_columns, warning};
use crate::schema::landed_columns::{MergedColumn, shown};

const ZONE_OF_INSTANTS: &str = "zone_of_instants";

/// Key of the zone of a series.
const ZONE: &str = "dataset.series.zone";

/// Warns of a series whose times landed as instants, so that its zone sets calendar parts only.
pub(crate) fn of_instants(series: &SeriesConfig, columns: &[MergedColumn]) -> Option<Warning> {
    let mut columns = columns.iter();
    let column = columns.find(|column| column.name == series.time)?;
    let begin = describe_instants(series, column.r#type)?;
    let (zone, name) = (series.zone.as_deref()?, shown(&column.name));
    let message = format!(
        "{begin}, and times without an \
         offset, if there were any, were read as UTC when they landed; to read such times in `{zone}`, land them as text in \
         another root, with `contract.column.\"{name}\".type = \"text\"` of the source; if the timestamps are right, declare \
         this type as `timestamp`, and this warning is gone; a dataset that is kept has its warnings until \
         `feedline shards build --refit`"
    );
    Some(
        warning(ZONE_OF_INSTANTS, ZONE, message)
            .with_columns(warned_columns([column.name.as_str()])),
    )
}

/// Warns of a series whose times will land with this type, if they are instants and its zone sets calendar parts only.
pub fn warn_of_instants(series: &SeriesConfig, r#type: ColumnType) -> Option<Warning> {
    let begin = describe_instants(series, r#type)?;
    let (zone, name) = (series.zone.as_deref()?, shown(&series.time));
    let message = format!(
        "{begin}, and times without an offset, if there are any, are read as UTC when they land; to read such times in `{zone}`, \
         land them as text, with `contract.column.\"{name}\".type = \"text\"` of the source (in another root, if rows have \
         landed); if the timestamps are right, declare this type as `timestamp`, and this warning is gone"
    );
    Some(
        warning(ZONE_OF_INSTANTS, ZONE, message)
            .with_columns(warned_columns([series.time.as_str()])),
    )
}

/// Beginning of both messages; `None` unless times of this type are instants and the series has another zone than UTC.
fn describe_instants(series: &SeriesConfig, r#type: ColumnType) -> Option<String> {
    let zone = series.zone.as_deref().filter(|zone| *zone != "UTC")?;
    (r#type == ColumnType::Timestamp).then(|| {
        format!(
            "column `{}` has timestamps, which are instants already: `zone` = `{zone}` sets calendar parts only",
            shown(&series.time)
        )
    })
}

/// Times that clocks show twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepeatedHour {
    /// Times of series.
    Series,
    /// Times of the rows that a source is joined to.
    Rows,
    /// Times of a source that is joined.
    Source,
}

/// Warns of `rows` landed rows with a local time in the hour that clocks repeat, such as `sample`. `zone` is that of the
/// configuration.
pub(crate) fn repeated_hour(
    of: RepeatedHour,
    column: &str,
    zone: Option<&str>,
    rows: u64,
    sample: &str,
) -> Warning {
    let (key, which) = match of {
        RepeatedHour::Series => (
            "dataset.series.ambiguous",
            "as the earlier, so rows of the second hour have the times of the first, and features may be made of later rows",
        ),
        RepeatedHour::Rows => (
            "dataset.join.time.ambiguous",
            "as the earlier, so rows of the second hour may find a row that is an hour too old",
        ),
        RepeatedHour::Source => (
            "dataset.join.right_time.ambiguous",
            "as the later, so rows of the first hour are found an hour too late",
        ),
    };
    let zone = zone.map_or_else(|| "their zone".to_owned(), |zone| format!("`{zone}`"));
    let (have, are, read, them) = match rows {
        1 => ("has", "is", "it is", "it"),
        _ => ("have", "are", "all are", "them"),
    };
    let message = format!(
        "{} of `{}` {have} no offset and {are} in the hour that clocks in {zone} show twice, such as {}; {read} read {which}; \
         land {them} with an offset or in UTC, or choose the reading with `{key}`",
        counted(rows, "time"),
        shown(column),
        quoted(sample)
    );
    warning("ambiguous_times", key, message).with_columns(warned_columns([column]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_clocks_show_twice_are_a_warning_with_how_they_are_read() {
        for (of, key, part) in [
            (
                RepeatedHour::Series,
                "dataset.series.ambiguous",
                "as the earlier",
            ),
            (
                RepeatedHour::Rows,
                "dataset.join.time.ambiguous",
                "an hour too old",
            ),
            (
                RepeatedHour::Source,
                "dataset.join.right_time.ambiguous",
                "as the later",
            ),
        ] {
            let found = repeated_hour(of, "at", Some("Europe/Rome"), 3, "2024-10-27 02:30");
            assert_eq!(found.code, "ambiguous_times");
            assert_eq!(found.key.as_deref(), Some(key));
            for part in [
                part,
                "3 times of `at` have no offset and are",
                "`Europe/Rome`",
                "`2024-10-27 02:30`",
                &format!("choose the reading with `{key}`"),
            ] {
                assert!(found.message.contains(part), "{found:?}");
            }
        }
        let one = repeated_hour(RepeatedHour::Series, "at", None, 1, "2024-10-27 02:30");
        let part = "1 time of `at` has no offset and is in the hour";
        assert!(one.message.contains(part), "{one:?}");
        assert!(
            one.message.contains("; it is read as the earlier"),
            "{one:?}"
        );
    }

    #[test]
    fn a_zone_of_times_that_are_instants_is_a_warning() {
        let series = |zone: &str| -> SeriesConfig {
            serde_json::from_value(serde_json::json!({"time": "t", "zone": zone})).unwrap()
        };
        let column = |r#type| MergedColumn {
            name: "t".to_owned(),
            r#type,
        };
        let find = |zone, r#type| of_instants(&series(zone), &[column(r#type)]);
        assert_eq!(find("UTC", ColumnType::Timestamp), None);
        assert_eq!(find("Europe/Berlin", ColumnType::Utf8), None);
        let found = find("Europe/Berlin", ColumnType::Timestamp).unwrap();
        assert_eq!(found.code, "zone_of_instants");
        assert!(found.message.contains("read as UTC"), "{}", found.message);
        let silenced = "declare this type as `timestamp`, and this warning is gone";
        assert!(found.message.contains(silenced), "{}", found.message);
        let kept = "until `feedline shards build --refit`";
        assert!(found.message.ends_with(kept), "{}", found.message);
        // A check finds the same before the times land.
        let check = |zone, r#type| warn_of_instants(&series(zone), r#type);
        assert_eq!(check("UTC", ColumnType::Timestamp), None);
        assert_eq!(check("Europe/Berlin", ColumnType::Utf8), None);
        let early = check("Europe/Berlin", ColumnType::Timestamp).unwrap();
        assert_eq!((early.code, early.key), (found.code, found.key));
        assert!(early.message.contains(silenced), "{}", early.message);
    }
}
