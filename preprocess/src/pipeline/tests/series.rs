//! Datasets of series, from landing zone to shards.

use std::collections::BTreeMap;

use feedline_schemas::{
    config::DeclaredType,
    manifest::Split,
    record::ColumnType::{self, Float64, Int64, Utf8},
    report::DatasetReport,
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::{
    Error, build, read_manifest,
    testing::{Cells, LandingZone, Written, build_with, contents, context, pipeline, written},
};

const COLUMNS: [(&str, ColumnType); 3] = [("at", Utf8), ("v", Float64), ("y", Float64)];
/// Not scaled, so that shards hold what the series made.
const PLAIN: &str = "sources = [\"a\"]\ntarget = \"y\"\nscale_target = false\nshards = { shuffle = false }\nmax_reject_fraction = 1.0\n\
                     step = [{ type = \"impute\", strategy = \"constant\", value = -1.0 }]\n";
const HALVES: &str =
    "split = { by = \"range\", train = 0.5, validation = 0.25, test = 0.25, embargo = EMBARGO }\n";

/// An hourly row; `i` is the hour, the value and the target.
fn hour(i: i64) -> Cells {
    let (day, hour) = (1 + i / 24, i % 24);
    vec![
        json!(format!("2024-01-{day:02} {hour:02}:00:00")),
        json!(i),
        json!(i),
    ]
}

async fn built(
    columns: &[(&str, ColumnType)],
    rows: &[Cells],
    dataset: &str,
) -> Result<(Vec<Written>, DatasetReport), Error> {
    let root = Store::memory();
    LandingZone::new(&root, "a", columns).batch(rows).await;
    let report = build_with(&root, &format!("{PLAIN}{dataset}"), 2).await?;
    let mut rows = written(&root.child("dataset")).await;
    rows.sort_by_key(|row| row.origin);
    Ok((rows, report))
}

fn halves(embargo: u32) -> String {
    HALVES.replace("EMBARGO", &embargo.to_string())
}

#[tokio::test]
async fn features_are_inputs_like_any_other() {
    let rows: Vec<Cells> = (0..48).map(hour).collect();
    let dataset = "split = { train = 1.0, validation = 0.0, test = 0.0 }\n\
                   series = { time = \"at\", zone = \"Europe/Rome\" }\n\
                   feature = [{ name = \"before\", type = \"lag\", column = \"y\", rows = 2 },\n\
                   { name = \"day\", type = \"rolling_mean\", column = \"v\", window = \"3h\", min_periods = 3 },\n\
                   { name = \"hour\", type = \"calendar\", part = \"hour\" }]\n";
    let (rows, _) = built(&COLUMNS, &rows, dataset).await.unwrap();
    assert_eq!(rows.len(), 48);
    // The time itself is no feature: the value, the target two hours before, the mean, the hour.
    assert_eq!(rows[0].x, [0.0, -1.0, -1.0, 0.0]);
    assert_eq!(rows[2].x, [2.0, 0.0, -1.0, 2.0]);
    assert_eq!(rows[30].x, [30.0, 28.0, 28.0, 6.0]);
}

#[tokio::test]
async fn trap_24_windows_that_straddle_a_border_need_an_embargo_or_a_setting() {
    let rows: Vec<Cells> = (0..80).map(hour).collect();
    let feature =
        "feature = [{ name = \"m\", type = \"rolling_mean\", column = \"v\", window = \"3h\" }]\n";
    let dataset = |embargo: u32, keys: &str| {
        let split = halves(embargo);
        format!("{split}series = {{ time = \"at\"{keys} }}\n{feature}")
    };
    for embargo in [0, 2] {
        let error = built(&COLUMNS, &rows, &dataset(embargo, "")).await;
        let error = error.unwrap_err().to_string();
        assert!(
            error.starts_with("`dataset.split.embargo`: features of")
                && error.contains("warm_start"),
            "{error}"
        );
    }
    let (found, report) = built(&COLUMNS, &rows, &dataset(3, "")).await.unwrap();
    assert_eq!(report.filtered["embargo"], 6);
    // The first row after the boundary looks back over the rejected rows.
    let first = found.iter().find(|row| row.split == Split::Validation);
    assert_eq!(first.unwrap().x, [43.0, 41.0]);
    let warm = dataset(0, ", warm_start = true");
    let (found, _) = built(&COLUMNS, &rows, &warm).await.unwrap();
    assert_eq!(found[40].x, [40.0, 38.0]);
}

#[tokio::test]
async fn trap_25_rows_that_land_out_of_order_are_read_in_order() {
    let mut rows: Vec<Cells> = (0..40).map(hour).collect();
    let dataset = "split = { train = 1.0, validation = 0.0, test = 0.0 }\nseries = { time = \"at\" }\n\
                   feature = [{ name = \"m\", type = \"rolling_max\", column = \"v\", window = \"2h\" }]\n";
    let (expected, _) = built(&COLUMNS, &rows, dataset).await.unwrap();
    rows.reverse();
    let (mut found, _) = built(&COLUMNS, &rows, dataset).await.unwrap();
    found.reverse();
    let x = |rows: &[Written]| rows.iter().map(|row| row.x.clone()).collect::<Vec<_>>();
    assert_eq!(x(&found), x(&expected));
}

#[tokio::test]
async fn rows_that_stand_nowhere_in_time_are_set_aside_and_shift_nothing() {
    let mut rows: Vec<Cells> = (0..40).map(hour).collect();
    rows[10][0] = json!("soon");
    rows[20][0] = Value::Null;
    // A reading without a target is a reading.
    rows[30][2] = Value::Null;
    rows[30][1] = json!(1000);
    rows.push(vec![rows[39][0].clone(), json!(5.0), json!(6.0)]);
    let dataset = "split = { train = 1.0, validation = 0.0, test = 0.0 }\n\
                   series = { time = \"at\", duplicates = \"first\" }\n\
                   feature = [{ name = \"m\", type = \"lag\", column = \"v\", rows = 1 }]\n";
    let (found, report) = built(&COLUMNS, &rows, dataset).await.unwrap();
    assert_eq!(report.rejected_by_reason["time_unreadable"], 2);
    assert_eq!(report.rejected_by_reason["target_missing"], 1);
    assert_eq!(report.filtered["same_time"], 1);
    let before: BTreeMap<String, String> = found
        .iter()
        .map(|row| (row.x[0].to_string(), row.x[1].to_string()))
        .collect();
    for (value, expected) in [("11", "9"), ("21", "19"), ("31", "1000")] {
        assert_eq!(before[value], expected);
    }
    assert_eq!(found.len(), 37);
}

#[tokio::test]
async fn a_time_that_clocks_skip_is_rejected_as_such_where_the_split_is_by_it_too() {
    let columns = [("day", Utf8), ("clock", Utf8), ("y", Float64)];
    // Clocks of Rome skip 02:00 on the 28th.
    let row = |i: i64| {
        vec![
            json!(format!("{}/03/2004", 27 + i / 24)),
            json!(format!("{:02}:00:00", i % 24)),
            json!(i),
        ]
    };
    let rows: Vec<Cells> = (0..72).map(row).collect();
    let dataset = "split = { by = \"time\", time = \"day\", train = 0.5, validation = 0.25, test = 0.25 }\n\
                   series = { time = \"day\", clock = \"clock\", format = \"%d/%m/%Y %H:%M:%S\", zone = \"Europe/Rome\" }\n\
                   feature = [{ name = \"hour\", type = \"calendar\", part = \"hour\" }]\n";
    let (_, report) = built(&columns, &rows, dataset).await.unwrap();
    let expected = BTreeMap::from([("time_unreadable".to_owned(), 1)]);
    assert_eq!(report.rejected_by_reason, expected);
    let sample = report.reject_sample.unwrap_or_default();
    let value = "28/03/2004 02:00:00 (clocks in Europe/Rome skip this time)";
    assert!(sample.contains(value), "{sample}");
}

#[tokio::test]
async fn numbers_that_are_no_times_in_their_unit_name_its_key() {
    // The last rows have milliseconds.
    let row = |i: i64| {
        let seconds = 1_767_225_600 + 3_600 * i;
        let at = if i < 30 { seconds } else { 1_000 * seconds };
        vec![json!(at), json!(i), json!(i)]
    };
    let columns = [("at", Int64), ("v", Float64), ("y", Float64)];
    let rows: Vec<Cells> = (0..40).map(row).collect();
    let root = Store::memory();
    LandingZone::new(&root, "a", &columns).batch(&rows).await;
    let dataset = format!(
        "{}split = {{ train = 1.0, validation = 0.0, test = 0.0 }}\nseries = {{ time = \"at\", unit = \"s\" }}\n\
         feature = [{{ name = \"m\", type = \"lag\", column = \"v\", rows = 1 }}]\n",
        PLAIN.replace("max_reject_fraction = 1.0\n", "")
    );
    let error = build_with(&root, &dataset, 2).await.unwrap_err();
    let error = error.to_string();
    assert!(error.contains("time_unreadable: 10"), "{error}");
    assert!(error.contains("`dataset.series.unit`"), "{error}");
    assert!(!error.contains("dataset.series.format"), "{error}");
}

#[tokio::test]
async fn spans_of_days_behind_a_day_of_23_hours_are_a_warning() {
    // Clocks of Rome are set forward on the 31st of March.
    let row = |i: i64| {
        let (month, day) = (3 + (i - 1) / 31, 1 + (i - 1) % 31);
        let at = format!("2024-{month:02}-{day:02}");
        vec![json!(at), json!(i), json!(i)]
    };
    let rows: Vec<Cells> = (1..=60).map(row).collect();
    for (span, expected) in [
        ("window = \"7d\"", 7),
        ("window = \"167h\"", 0),
        ("rows = 7", 0),
    ] {
        let dataset = format!(
            "split = {{ train = 1.0, validation = 0.0, test = 0.0 }}\n\
             series = {{ time = \"at\", zone = \"Europe/Rome\" }}\n\
             feature = [{{ name = \"week\", type = \"lag\", column = \"v\", {span} }}]\n"
        );
        let (found, report) = built(&COLUMNS, &rows, &dataset).await.unwrap();
        let is_other = |row: &&Written| row.x[1].to_bits() != (row.x[0] - 7.0).to_bits();
        let others = found[7..].iter().filter(is_other);
        assert_eq!(others.count(), expected, "{span}");
        let mut warnings = report.warnings.iter();
        let warning = warnings.find(|warning| warning.code == "uneven_days");
        let begin = warning.map(|warning| warning.message.starts_with("7 rows along `at`"));
        assert_eq!(begin, (expected > 0).then_some(true), "{warning:?}");
    }
}

#[tokio::test]
async fn a_zone_of_timestamps_is_a_warning_unless_they_are_declared() {
    let columns = [
        ("at", ColumnType::Timestamp),
        ("v", Float64),
        ("y", Float64),
    ];
    let row = |i: i64| vec![json!(i * 3_600_000_000), json!(i), json!(i)];
    let rows: Vec<Cells> = (0..48).map(row).collect();
    let dataset = format!(
        "{PLAIN}split = {{ train = 1.0, validation = 0.0, test = 0.0 }}\n\
         series = {{ time = \"at\", zone = \"Europe/Rome\" }}\n\
         feature = [{{ name = \"hour\", type = \"calendar\", part = \"hour\" }}]\n"
    );
    for (declared, expected) in [(None, true), (Some(DeclaredType::Timestamp), false)] {
        let root = Store::memory();
        LandingZone::new(&root, "a", &columns).batch(&rows).await;
        let mut config = pipeline(&dataset);
        let contract = &mut config.source[0].contract;
        contract.column.entry("at".to_owned()).or_default().r#type = declared;
        let (context, _scratch) = context(&root, 2);
        let report = Box::pin(build(&config, &context)).await.unwrap();
        let mut warnings = report.warnings.iter();
        let is_warned = warnings.any(|warning| warning.code == "zone_of_instants");
        assert_eq!(is_warned, expected, "{declared:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_37_one_entity_with_nearly_all_rows_needs_no_more_memory() {
    const ROWS: i64 = 40_000;
    let columns = [("t", Int64), ("who", Utf8), ("v", Float64)];
    // Of a hundred rows one belongs to another entity. They land in no order.
    let row = |i: i64| -> Cells {
        let at = i * 7_919 % ROWS;
        let who = match at % 100 {
            99 => format!("other {}", at % 700),
            _ => "most".to_owned(),
        };
        vec![json!(at), json!(who), json!(at * 31 % 1_000)]
    };
    let dataset = "sources = [\"a\"]\nsplit = { by = \"range\", train = 0.8, validation = 0.1, test = 0.1 }\n\
                   series = { time = \"t\", unit = \"s\", entity = [\"who\"], warm_start = true }\n\
                   feature = [{ name = \"m\", type = \"rolling_mean\", column = \"v\", window = \"500s\" },\n\
                   { name = \"s\", type = \"rolling_std\", column = \"v\", rows = 100 },\n\
                   { name = \"l\", type = \"lag\", column = \"v\", rows = 24 }]\n";
    let mut found = Vec::new();
    for (partitions, memory_bytes) in [(1, None), (2, Some(8 << 20)), (8, None)] {
        let root = Store::memory();
        let mut zone = LandingZone::new(&root, "a", &columns);
        for start in 0..8 {
            let rows: Vec<Cells> = (start * ROWS / 8..(start + 1) * ROWS / 8)
                .map(row)
                .collect();
            zone.batch(&rows).await;
        }
        let (mut context, _scratch) = context(&root, partitions);
        context.memory_bytes = memory_bytes;
        build(&pipeline(dataset), &context).await.unwrap();
        found.push(contents(&root.child("dataset")).await);
    }
    assert!(found[0] == found[1] && found[0] == found[2]);
}

#[tokio::test]
async fn a_dataset_without_series_is_the_same_dataset() {
    // What configures no series must hash as before there were any.
    let text = serde_json::to_string(&pipeline("target = \"y\"").dataset.unwrap()).unwrap();
    assert!(
        !text.contains("series") && !text.contains("feature\""),
        "{text}"
    );
    let root = Store::memory();
    let rows: Vec<Cells> = (0..40).map(hour).collect();
    LandingZone::new(&root, "a", &COLUMNS).batch(&rows).await;
    build_with(&root, &format!("{PLAIN}{}", halves(0)), 2)
        .await
        .unwrap();
    let manifest = read_manifest(&root.child("dataset")).await.unwrap();
    assert_eq!(manifest.counts.train, 20);
}
