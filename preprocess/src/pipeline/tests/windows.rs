//! Datasets of windows over series, from landing zone to shards.

use arrow::{
    array::AsArray,
    datatypes::{Float32Type, UInt64Type},
};
use feedline_schemas::{
    ids::Origin,
    manifest::{Layout, SequenceCounts, Split},
    record::ColumnType::{self, Float64, Int64, Utf8},
    report::DatasetReport,
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::{
    Error, build, read_manifest,
    testing::{
        Cells, LandingZone, Written, blocks, build_with, contents, context, pipeline, written,
    },
    verify,
};

const COLUMNS: [(&str, ColumnType); 4] =
    [("who", Utf8), ("at", Utf8), ("v", Float64), ("y", Float64)];
/// Not scaled, so that shards hold what landed.
const PLAIN: &str = "sources = [\"a\"]\nfeatures = [\"v\"]\ntarget = \"y\"\nscale_target = false\nmax_reject_fraction = 1.0\n\
                     step = [{ type = \"impute\", strategy = \"constant\", value = -1.0 }]\n\
                     series = { time = \"at\", entity = [\"who\"], max_gap = \"1h\" }\n";
const ALL: &str = "split = { train = 1.0, validation = 0.0, test = 0.0 }\n";

/// A row of an entity, with a value and a target that are unique.
fn reading(who: i64, hour: i64, at: i64) -> Cells {
    let value = 1_000 * who + hour;
    vec![
        json!(format!("e{who}")),
        json!(format!("2024-01-{:02} {:02}:00:00", 1 + at / 24, at % 24)),
        json!(value),
        json!(-value),
    ]
}

async fn built(rows: &[Cells], dataset: &str) -> Result<(Store, DatasetReport), Error> {
    let root = Store::memory();
    LandingZone::new(&root, "a", &COLUMNS).batch(rows).await;
    let report = build_with(&root, &format!("{PLAIN}{dataset}"), 2).await?;
    Ok((root, report))
}

async fn failure(rows: &[Cells], dataset: &str) -> String {
    built(rows, dataset).await.unwrap_err().to_string()
}

/// The windows in the order of their targets.
async fn found(root: &Store) -> Vec<Written> {
    let mut rows = written(&root.child("dataset")).await;
    rows.sort_by_key(|row| row.origin);
    rows
}

#[tokio::test]
async fn a_sample_is_a_window_and_the_target_of_the_row_behind_it() {
    let rows: Vec<Cells> = (0..48).map(|hour| reading(0, hour, hour)).collect();
    let dataset = format!("{ALL}sequence = {{ length = 3 }}\nshards = {{ shuffle = false }}\n");
    let (root, report) = built(&rows, &dataset).await.unwrap();
    let expected = SequenceCounts {
        length: 3,
        horizon: 1,
        windows: 45,
        incomplete: 3,
        skipped: 0,
    };
    assert_eq!((report.train, report.sequence), (45, Some(expected)));
    let mut hour: u8 = 3;
    for (_, batch) in blocks(&root.child("dataset")).await {
        let windows = batch["x"].as_fixed_size_list();
        let targets = batch["y"].as_primitive::<Float32Type>();
        for row in 0..batch.num_rows() {
            let window = windows.value(row);
            let window = window.as_primitive::<Float32Type>().values();
            assert_eq!(window[..], [hour - 3, hour - 2, hour - 1].map(f32::from));
            assert_eq!(targets.value(row).to_bits(), (-f32::from(hour)).to_bits());
            hour += 1;
        }
    }
    assert_eq!(hour, 48);
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    assert!(matches!(manifest.layout, Layout::Dense { features: 3, .. }));
    assert_eq!(manifest.counts.sequence, Some(expected));
    assert!(verify(&dataset).await.unwrap().problems.is_empty());
}

#[tokio::test]
async fn the_stride_leaves_windows_out_and_a_horizon_of_none_ends_with_the_target() {
    let rows: Vec<Cells> = (0..20).map(|hour| reading(0, hour, hour)).collect();
    let dataset = format!("{ALL}sequence = {{ length = 2, horizon = 0, stride = 5 }}\n");
    let (root, report) = built(&rows, &dataset).await.unwrap();
    let windows: Vec<Vec<f32>> = found(&root).await.into_iter().map(|row| row.x).collect();
    assert_eq!(
        windows,
        [1.0_f32, 6.0, 11.0, 16.0].map(|v| vec![v - 1.0, v])
    );
    let counts = report.sequence.unwrap();
    assert_eq!(
        (counts.windows, counts.incomplete, counts.skipped),
        (4, 1, 15)
    );
}

#[tokio::test]
async fn trap_24_a_window_reaches_over_no_border_gap_entity_or_row_that_was_set_aside() {
    // Two entities land in turn, so hours 0 to 39 are for training, to 59 for validation, to 79 for the test.
    let mut rows = Vec::new();
    for hour in 0..80 {
        rows.push(reading(0, hour, hour));
        // A day without readings.
        rows.push(reading(1, hour, if hour < 70 { hour } else { hour + 24 }));
    }
    rows[20][3] = Value::Null;
    let dataset = "split = { by = \"range\", train = 0.5, validation = 0.25, test = 0.25 }\nsequence = { length = 3 }\n";
    let (root, report) = built(&rows, dataset).await.unwrap();
    // Of each stretch of rows the first three have no window: 40, 20 and 20 of both entities; of one, 10 and 29 for 40; of the
    // other, 10 and 10 for 20.
    assert_eq!(
        (report.train, report.validation, report.test),
        (37 + 7 + 26, 17 + 17, 17 + 7 + 7)
    );
    assert_eq!(report.sequence.unwrap().incomplete, 3 * 8);
    let starts = |split: Split| match split {
        Split::Train => 0.0,
        Split::Validation => 40.0,
        Split::Test => 60.0,
    };
    for row in found(&root).await {
        let hours: Vec<f32> = row.x.iter().map(|v| v % 1_000.0).collect();
        assert!(
            row.x
                .windows(2)
                .all(|pair| (pair[1] - pair[0] - 1.0).abs() < 1e-6),
            "{row:?}"
        );
        let end = u16::try_from(row.origin.row() / 2).unwrap();
        assert!((f32::from(end) - hours[2] - 1.0).abs() < 1e-6, "{row:?}");
        assert!(hours[0] >= starts(row.split), "{row:?}");
        if row.x[0] < 1_000.0 {
            assert!(!hours.contains(&10.0) && end != 10, "{row:?}");
        } else {
            assert!(hours[0] >= 70.0 || end < 70, "{row:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_depend_neither_on_partitions_nor_on_memory() {
    const ROWS: i64 = 6_000;
    let columns = [("who", Int64), ("t", Int64), ("v", Float64), ("y", Float64)];
    // They land in no order.
    let row = |i: i64| -> Cells {
        let at = i * 4_441 % ROWS;
        vec![
            json!(at % 70),
            json!(at),
            json!(at * 31 % 1_000),
            json!(at % 97),
        ]
    };
    let dataset = "sources = [\"a\"]\ntarget = \"y\"\npassthrough = [\"t\"]\nsplit = { key = [\"who\"], train = 0.6, validation = 0.2, test = 0.2 }\n\
                   series = { time = \"t\", unit = \"s\", entity = [\"who\"] }\nsequence = { length = 32, horizon = 2 }\n";
    let mut found = Vec::new();
    for (partitions, memory_bytes) in [(1, None), (2, Some(8 << 20)), (8, None)] {
        let root = Store::memory();
        let mut zone = LandingZone::new(&root, "a", &columns);
        for start in 0..4 {
            let rows = (start * ROWS / 4..(start + 1) * ROWS / 4).map(row);
            zone.batch(&rows.collect::<Vec<Cells>>()).await;
        }
        let (mut context, _scratch) = context(&root, partitions);
        context.memory_bytes = memory_bytes;
        let report = build(&pipeline(dataset), &context).await.unwrap();
        // An entity is never split, so each loses only its first rows.
        assert_eq!(report.sequence.unwrap().incomplete, 70 * 33);
        found.push(contents(&root.child("dataset")).await);
    }
    assert!(found[0] == found[1] && found[0] == found[2]);
}

#[tokio::test]
async fn wrong_settings_are_named() {
    let rows: Vec<Cells> = (0..40).map(|hour| reading(0, hour, hour)).collect();
    // Neighbours would be torn apart.
    let refused = failure(&rows, "sequence = { length = 3 }\n").await;
    assert!(
        refused.starts_with("`dataset.split.by`: rows that follow one another"),
        "{refused}"
    );
    let refused = failure(&rows, &format!("{ALL}sequence = {{ length = 60 }}\n")).await;
    let part = "`dataset.sequence.length`: no window fits into the train split: among its 40 rows nowhere 61";
    assert!(refused.starts_with(part), "{refused}");
    let dataset = format!("{PLAIN}{ALL}sequence = {{ length = 3 }}\n");
    let without = dataset.lines().filter(|line| !line.starts_with("series"));
    let without = without.collect::<Vec<_>>().join("\n");
    let root = Store::memory();
    LandingZone::new(&root, "a", &COLUMNS).batch(&rows).await;
    let refused = build_with(&root, &without, 1)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.starts_with("`dataset.sequence`: windows are over time"),
        "{refused}"
    );
    let without = dataset.replace("target = \"y\"\nscale_target = false\n", "");
    let without = without.replace("length = 3", "length = 3, horizon = 1");
    let refused = build_with(&root, &without, 1)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.starts_with("`dataset.sequence.horizon`: there is no `dataset.target`"),
        "{refused}"
    );
}

/// One column of distinct numbers: the value of hour `hour`.
fn planted(hour: i64) -> i64 {
    1_000 + hour * hour
}

#[tokio::test]
async fn a_window_of_the_target_itself_ends_before_the_row_that_is_predicted() {
    let rows: Vec<Cells> = (0..60_i64)
        .map(|hour| vec![json!(hour), json!(planted(hour))])
        .collect();
    for (horizon, given) in [(1, "length = 4"), (3, "length = 4, horizon = 3")] {
        let root = Store::memory();
        let columns = [("at", Int64), ("v", Float64)];
        LandingZone::new(&root, "a", &columns).batch(&rows).await;
        let dataset = format!(
            "sources = [\"a\"]\nfeatures = [\"v\"]\ntarget = \"v\"\nscale_target = false\nstep = []\nprofile = true\n\
             series = {{ time = \"at\", unit = \"s\" }}\nsequence = {{ {given} }}\n\
             split = {{ by = \"range\", train = 0.5, validation = 0.25, test = 0.25 }}\n"
        );
        let report = build_with(&root, &dataset, 2).await.unwrap();
        let windows = report.train + report.validation + report.test;
        // A window is within one split.
        assert_eq!(windows, 60 - 3 * (3 + horizon), "{report:?}");
        let value = |hour: u64| planted(i64::try_from(hour).unwrap()) as f32;
        for window in found(&root).await {
            let hour = window.origin.row();
            let last = hour - horizon;
            let expected: Vec<f32> = (last - 3..=last).map(value).collect();
            assert_eq!(window.x, expected, "{hour}");
            assert!(!window.x.contains(&value(hour)), "{hour}");
        }
        for (_, batch) in blocks(&root.child("dataset")).await {
            let origins = batch["origin"].as_primitive::<UInt64Type>();
            let targets = batch["y"].as_primitive::<Float32Type>();
            for (origin, y) in origins.values().iter().zip(targets.values()) {
                let hour = Origin::from_packed(*origin).row();
                assert_eq!(y.to_bits(), value(hour).to_bits(), "{hour}");
            }
        }
        assert!(
            verify(&root.child("dataset"))
                .await
                .unwrap()
                .problems
                .is_empty()
        );
    }
}

#[tokio::test]
async fn the_target_is_no_feature_of_rows_and_of_windows_that_end_with_it() {
    let rows: Vec<Cells> = (0..60_i64)
        .map(|hour| vec![json!(hour), json!(planted(hour)), json!("a")])
        .collect();
    let root = Store::memory();
    let columns = [("at", Int64), ("v", Float64), ("c", Utf8)];
    LandingZone::new(&root, "a", &columns).batch(&rows).await;
    let series = "series = { time = \"at\", unit = \"s\" }\n";
    let windows = |given: &str| format!("{series}sequence = {{ length = 2{given} }}\n{ALL}");
    for (dataset, expected) in [
        (
            format!("features = [\"v\"]\ntarget = \"v\"\n{ALL}"),
            "`dataset.features`: `v` is the target, a model would be given the answer; remove it",
        ),
        (
            format!(
                "features = [\"v\"]\ntarget = \"v\"\n{}",
                windows(", horizon = 0")
            ),
            "a window ends with the row that is predicted, so a model would be given the answer; set the horizon to 1 or more",
        ),
        (
            format!(
                "features = [\"c\"]\ntarget = \"c\"\ntask = \"classification\"\n{}",
                windows("")
            ),
            "windows hold the past of targets that are numbers only",
        ),
        (
            format!(
                "features = [\"v\"]\ncategorical = [\"v\"]\ntarget = \"v\"\n{}",
                windows("")
            ),
            "`dataset.categorical`: `v` is the target and a number to predict",
        ),
        (
            format!("drop = [\"c\"]\ntarget = \"v\"\n{}", windows("")),
            "windows may hold the past of the target: `features = [\"v\"]`",
        ),
    ] {
        let dataset = format!("sources = [\"a\"]\n{dataset}");
        let refused = build_with(&root, &dataset, 1)
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}

#[tokio::test]
async fn caps_that_make_later_windows_constant_are_a_warning() {
    let rows: Vec<Cells> = (0..80).map(|hour| reading(0, hour, hour)).collect();
    let steps = "value = -1.0 }, { type = \"winsorize\" }]";
    let dataset = format!(
        "{}split = {{ by = \"range\", train = 0.5, validation = 0.25, test = 0.25 }}\nsequence = {{ length = 3 }}\n",
        PLAIN.replace("value = -1.0 }]", steps)
    );
    let root = Store::memory();
    LandingZone::new(&root, "a", &COLUMNS).batch(&rows).await;
    let report = build_with(&root, &dataset, 2).await.unwrap();
    let mut warnings = report.warnings.iter();
    let found = warnings.find(|warning| warning.code == "mostly_capped");
    let found = found.unwrap_or_else(|| panic!("{:#?}", report.warnings));
    let part = "`v` (100.0 % of 20 validation rows, 100.0 % of 20 test rows; ";
    assert!(found.message.contains(part), "{found:?}");
}

#[tokio::test]
async fn windows_over_missing_rows_are_a_warning_unless_a_gap_ends_them() {
    // Hour 20 of the first entity is missing; the second has all.
    let hours = (0..48).filter(|hour| *hour != 20);
    let mut rows: Vec<Cells> = hours.map(|hour| reading(0, hour, hour)).collect();
    rows.extend((0..48).map(|hour| reading(1, hour, hour)));
    let sequence = format!("{ALL}sequence = {{ length = 3 }}\n");
    let (_, ended) = built(&rows, &sequence).await.unwrap();
    let dataset = format!("{PLAIN}{sequence}").replace(", max_gap = \"1h\"", "");
    let root = Store::memory();
    LandingZone::new(&root, "a", &COLUMNS).batch(&rows).await;
    let report = build_with(&root, &dataset, 2).await.unwrap();
    let found = |report: &DatasetReport| -> Vec<String> {
        let warnings = report.warnings.iter();
        let long = warnings.filter(|warning| warning.code == "long_steps");
        long.map(|warning| warning.message.clone()).collect()
    };
    let [message] = &found(&report)[..] else {
        panic!("{:?}", report.warnings);
    };
    for part in [
        "1 of 93 steps",
        "`at`",
        "1 of 2 entities",
        "2h where 1h",
        "`\"90m\"`",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(found(&ended), [""; 0]);
    let windows = |report: &DatasetReport| report.sequence.unwrap().windows;
    assert_eq!((windows(&report), windows(&ended)), (89, 86));
}

#[tokio::test]
async fn a_seasonal_forecast_is_not_known_where_a_gap_hides_the_season_before() {
    // Each hour the target falls by one. Five hours without rows are between two runs of twelve.
    let hours = (0..12).chain(17..29);
    let rows: Vec<Cells> = hours.map(|hour| reading(0, hour, hour)).collect();
    let sequence = format!("{ALL}sequence = {{ length = 2, season = 6 }}\n");
    let (_, report) = built(&rows, &sequence).await.unwrap();
    let found: Vec<(u32, u64, f64)> = report
        .naive
        .iter()
        .map(|forecast| {
            let metrics = forecast.splits[&Split::Train];
            (forecast.lag, metrics.windows, metrics.rmse)
        })
        .collect();
    let [(1, 20, last), (6, 12, season)] = found[..] else {
        panic!("{found:?}");
    };
    assert!((last - 1.0).abs() < 1e-4, "{last}");
    assert!((season - 6.0).abs() < 1e-4, "{season}");
}

#[tokio::test]
async fn an_entity_without_any_window_is_named() {
    let mut rows: Vec<Cells> = (0..48).map(|hour| reading(0, hour, hour)).collect();
    // Every third hour, each behind a gap, and an entity with fewer rows than a window needs.
    rows.extend((0..16).map(|row| reading(1, row, 3 * row)));
    rows.extend((0..2).map(|hour| reading(2, hour, hour)));
    let sequence = format!("{ALL}passthrough = [\"who\"]\nsequence = {{ length = 3 }}\n");
    let (_, report) = built(&rows, &sequence).await.unwrap();
    let mut warnings = report.warnings.iter();
    let found = warnings.find(|warning| warning.code == "entities_without_windows");
    let found = found.unwrap_or_else(|| panic!("{:#?}", report.warnings));
    for part in [
        "1 of 3 entities have no window in any split, such as (who = `e1`): ",
        "need 4 rows",
        "their 16 usable rows apart",
        "1 entity with fewer than 4",
    ] {
        assert!(found.message.contains(part), "{part}: {found:?}");
    }
    let (_, report) = built(&rows[..48], &sequence).await.unwrap();
    let mut codes = report.warnings.iter().map(|warning| &warning.code);
    assert!(codes.all(|code| code != "entities_without_windows"));
}
