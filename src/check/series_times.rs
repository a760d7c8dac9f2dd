//! Times of a series that a build cannot read, in the rows looked at.

use feedline_ingest::SourcePreview;
use feedline_preprocess::{SeriesCells, reads_time, warn_of_instants, warn_of_windowless_entities};
use feedline_schemas::{
    config::{DatasetConfig, DeclaredType, PipelineConfig, SeriesConfig, SourceConfig},
    record::ColumnType,
    report::{WarnedColumn, Warning},
};
use serde_json::{Map, Value};

use super::checked_source::CheckedSource;
use crate::output::shortened;

/// Most rows whose times are read.
const MOST_ROWS: usize = 10_000;

/// First records that a preview has to return so that their times can be read.
pub(super) fn rows_with_times(config: &PipelineConfig) -> usize {
    match config.dataset.as_ref().and_then(series_of) {
        Some(_) => MOST_ROWS,
        None => 0,
    }
}

fn series_of(settings: &DatasetConfig) -> Option<&SeriesConfig> {
    let series = settings.series.as_ref();
    series.filter(|_| settings.kind.is_rows())
}

/// Warns of a zone of times of `source` that land as instants, unless its contract declares them as such. The type of a column
/// of a query is known to the build alone.
pub(super) fn warn_of_zone(
    settings: &DatasetConfig,
    source: &SourceConfig,
    preview: &SourcePreview,
) -> Option<Warning> {
    let series = series_of(settings).filter(|_| settings.sql.is_none())?;
    let declared = source.contract.column.get(&series.time);
    if declared.and_then(|column| column.r#type) == Some(DeclaredType::Timestamp) {
        return None;
    }
    let mut columns = preview.columns.iter();
    let column = columns.find(|column| column.name == series.time)?;
    warn_of_instants(series, column.column_type?)
}

/// Reports times of the only source that a build cannot read, where it may reject the fraction `limit` of the
/// rows, and entities without a window. Unreadable times are an error if all rows were looked at, and
/// otherwise a warning; windows are known if they were.
pub(super) fn judge_series_times(
    settings: &DatasetConfig,
    preview: &SourcePreview,
    source: &mut CheckedSource,
    limit: f64,
) {
    let Some(series) = series_of(settings).filter(|_| source.error.is_none()) else {
        return;
    };
    let mut columns = preview.columns.iter();
    let column = columns.find(|column| column.name == series.time);
    let Some(r#type) = column.and_then(|column| column.column_type) else {
        return;
    };
    let rows = preview.records.len();
    let are_all = preview.is_all && preview.landed == 0 && rows as u64 == preview.rows;
    if let Some((found, key, unread)) = unreadable_times(series, r#type, preview) {
        if are_all && unread as f64 > limit * rows as f64 {
            source.error = Some(format!(
                "{found}, and a build rejects them: more than `dataset.max_reject_fraction` = {limit} allows"
            ));
            return;
        }
        let message =
            format!("{found}; such rows are rejected, and more than {limit} of all stop the build");
        let warning = Warning::new("times_unreadable", message).with_key(key);
        let columns = vec![WarnedColumn::new(&series.time)];
        source.warnings.push(warning.with_columns(columns));
    }
    if are_all {
        let cells = preview.records.iter();
        let cells = cells.filter_map(|record| cells_of(settings, series, record));
        let cells: Vec<SeriesCells> = cells.collect();
        source
            .warnings
            .extend(warn_of_windowless_entities(settings, r#type, &cells));
    }
}

/// Finds times that cannot be read: a sentence without its end, the key that reads them, and their number.
fn unreadable_times(
    series: &SeriesConfig,
    r#type: ColumnType,
    preview: &SourcePreview,
) -> Option<(String, &'static str, usize)> {
    let records = preview.records.iter();
    let times = records.filter_map(|record| time_of(series, &parse_record(record)?));
    let unread: Vec<String> = times
        .filter(|time| !reads_time(series, r#type, time))
        .collect();
    let first = unread.first()?;
    let (key, reading) = match (series.unit, &series.format) {
        (Some(_), _) => ("dataset.series.unit", "in `dataset.series.unit`"),
        (None, Some(_)) => ("dataset.series.format", "by `dataset.series.format`"),
        (None, None) => (
            "dataset.series.format",
            "as ISO 8601, without `dataset.series.format`",
        ),
    };
    let found = format!(
        "{} of {} rows looked at have a time in `{}` that cannot be read {reading}, such as `{}`",
        unread.len(),
        preview.records.len(),
        series.time,
        shortened(first)
    );
    Some((found, key, unread.len()))
}

fn parse_record(record: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(record).ok()
}

/// Text of a cell; `None` if it is missing.
fn text_of(cells: &Map<String, Value>, name: &str) -> Option<String> {
    match cells.get(name)? {
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

/// The time of a record, with the time of day where that has a column; `None` if it is missing.
fn time_of(series: &SeriesConfig, cells: &Map<String, Value>) -> Option<String> {
    let date = text_of(cells, &series.time)?;
    Some(match &series.clock {
        None => date,
        Some(clock) => format!("{} {}", date.trim(), text_of(cells, clock)?.trim()),
    })
}

/// The cells of a record that make windows; `None` if those of its time or entity are missing.
fn cells_of(settings: &DatasetConfig, series: &SeriesConfig, record: &str) -> Option<SeriesCells> {
    let cells = parse_record(record)?;
    let entity = series.entity.iter().map(|name| text_of(&cells, name));
    let mut targets = settings.targets().iter();
    Some(SeriesCells {
        entity: entity.collect::<Option<_>>()?,
        time: time_of(series, &cells)?,
        lacks_target: targets.any(|name| text_of(&cells, name).is_none()),
    })
}

#[cfg(test)]
mod tests {
    use feedline_ingest::ColumnPreview;
    use feedline_schemas::{config::load, record::ColumnType};

    use super::*;

    /// The source after a check of these times.
    fn check(series: &str, r#type: ColumnType, times: &[Value], is_all: bool) -> CheckedSource {
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"a\"\ntype = \"files\"\nurl = \"a/*\"\n\
             [dataset]\ntarget = \"y\"\nseries = {{ {series} }}\n"
        );
        let config = load("p.toml", &text, &[]).unwrap().config;
        assert_eq!(rows_with_times(&config), MOST_ROWS);
        let column = ColumnPreview {
            name: "ts".to_owned(),
            column_type: Some(r#type),
            ..ColumnPreview::default()
        };
        let records = times.iter();
        let records = records.map(|time| serde_json::json!({ "ts": time, "y": 1 }).to_string());
        let preview = SourcePreview {
            rows: times.len() as u64,
            is_all,
            columns: vec![column],
            records: records.collect(),
            ..SourcePreview::default()
        };
        let mut source = CheckedSource::not_asked(&config.source[0].name);
        let settings = config.dataset.unwrap();
        judge_series_times(&settings, &preview, &mut source, 0.05);
        source
    }

    #[test]
    fn numbers_in_another_unit_are_an_error_of_all_rows_and_a_warning_of_some() {
        let series = "time = \"ts\", unit = \"s\"";
        let mut times = vec![Value::from(1_767_225_600); 18];
        times.extend([Value::from(1_767_225_600_000_i64), Value::Null]);
        times.push(Value::from(1_767_229_200_000_i64));
        let all = check(series, ColumnType::Int64, &times, true);
        let error = all.error.unwrap();
        let begin = "2 of 21 rows looked at have a time in `ts` that cannot be read in `dataset.series.unit`, such as `1767225600000`";
        assert!(error.starts_with(begin), "{error}");
        assert!(error.contains("`dataset.max_reject_fraction` = 0.05"));
        let some = check(series, ColumnType::Int64, &times, false);
        assert_eq!(some.error, None);
        let [warning] = &some.warnings[..] else {
            panic!("{some:?}");
        };
        assert_eq!(warning.code, "times_unreadable");
        assert_eq!(warning.key.as_deref(), Some("dataset.series.unit"));
        assert!(warning.is_about("ts"), "{warning:?}");
        let good = check(series, ColumnType::Int64, &times[..18], true);
        assert!(good.error.is_none() && good.warnings.is_empty(), "{good:?}");
    }

    #[test]
    fn entities_without_a_window_are_named_if_all_rows_were_looked_at() {
        let text = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"a\"\ntype = \"files\"\nurl = \"a/*\"\n\
            [dataset]\ntarget = \"y\"\nsplit = { by = \"range\" }\nsequence = { length = 2 }\n\
            series = { time = \"ts\", unit = \"s\", entity = [\"who\"], max_gap = \"1s\" }\n";
        let config = load("p.toml", text, &[]).unwrap().config;
        let column = ColumnPreview {
            name: "ts".to_owned(),
            column_type: Some(ColumnType::Int64),
            ..ColumnPreview::default()
        };
        let record =
            |who: &str, ts: u32| serde_json::json!({ "who": who, "ts": ts, "y": 1 }).to_string();
        let records = (0..5).flat_map(|row| [record("fast", row), record("slow", 5 * row)]);
        let mut preview = SourcePreview {
            rows: 10,
            is_all: true,
            columns: vec![column],
            records: records.collect(),
            ..SourcePreview::default()
        };
        let settings = config.dataset.unwrap();
        let warnings = |preview: &SourcePreview| {
            let mut source = CheckedSource::not_asked(&config.source[0].name);
            judge_series_times(&settings, preview, &mut source, 0.05);
            source.warnings
        };
        let found = warnings(&preview);
        let [warning] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(warning.code, "entities_without_windows");
        assert!(warning.message.contains("(who = `slow`)"), "{warning:?}");
        preview.is_all = false;
        assert_eq!(warnings(&preview), []);
    }

    #[test]
    fn a_zone_of_times_that_land_as_instants_is_warned_of_unless_they_are_declared() {
        let check = |source: &str, sql: Option<&str>, r#type: ColumnType| {
            let text = format!(
                "[pipeline]\nname = \"p\"\n[[source]]\nname = \"a\"\ntype = \"files\"\nurl = \"a/*\"\n{source}\
                 [dataset]\ntarget = \"y\"\nseries = {{ time = \"ts\", zone = \"Europe/Rome\" }}\n"
            );
            let config = load("p.toml", &text, &[]).unwrap().config;
            let mut settings = config.dataset.unwrap();
            settings.sql = sql.map(str::to_owned);
            let column = ColumnPreview {
                name: "ts".to_owned(),
                column_type: Some(r#type),
                ..ColumnPreview::default()
            };
            let preview = SourcePreview {
                columns: vec![column],
                ..SourcePreview::default()
            };
            let warning = warn_of_zone(&settings, &config.source[0], &preview);
            warning.map(|warning| warning.code)
        };
        let found = check("", None, ColumnType::Timestamp);
        assert_eq!(found.as_deref(), Some("zone_of_instants"));
        assert_eq!(check("", None, ColumnType::Utf8), None);
        let declared = "contract.column.ts.type = \"timestamp\"\n";
        assert_eq!(check(declared, None, ColumnType::Timestamp), None);
        let sql = Some("select * from a");
        assert_eq!(check("", sql, ColumnType::Timestamp), None);
    }

    #[test]
    fn strings_of_another_format_name_that_key() {
        let times = ["2024-03-31T08:00:00Z", "31/03/2024 09:00"].map(Value::from);
        let found = check("time = \"ts\"", ColumnType::Utf8, &times, false);
        let [warning] = &found.warnings[..] else {
            panic!("{found:?}");
        };
        assert_eq!(warning.key.as_deref(), Some("dataset.series.format"));
        assert!(warning.message.contains("`31/03/2024 09:00`"), "{found:?}");
    }
}
