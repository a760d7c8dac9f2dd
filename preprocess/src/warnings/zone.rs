//! Warnings of time zones.

use feedline_schemas::{config::SeriesConfig, record::ColumnType, report::Warning};

use super::message::warning;
use crate::schema::landed_columns::{MergedColumn, shown};

/// Warns of a series whose times landed as instants, so that its zone sets calendar parts only.
pub(crate) fn of_instants(series: &SeriesConfig, columns: &[MergedColumn]) -> Option<Warning> {
    let zone = series.zone.as_deref().filter(|zone| *zone != "UTC")?;
    let mut columns = columns.iter();
    let column = columns.find(|column| column.name == series.time)?;
    if column.r#type != ColumnType::Timestamp {
        return None;
    }
    let name = shown(&column.name);
    let message = format!(
        "column `{name}` has timestamps, which are instants already: `zone` = `{zone}` sets calendar parts, and times without an offset \
         were read as UTC when they landed; to read them in `{zone}`, land them as text in another root, with \
         `contract.column.\"{name}\".type = \"text\"` of the source"
    );
    Some(warning("zone_of_instants", "dataset.series.zone", message))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
