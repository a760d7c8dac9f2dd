//! Rows of a series with their past: their numbers are those of a build, bit for bit.

mod gaps;
mod missing_inputs;
mod shared_instants;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use feedline_schemas::{
    ids::Name,
    manifest::NaiveMethod,
    record::ColumnType::{self, Bool, Float64, Utf8},
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::{
    Error, LandedRows, SeriesBatch, SeriesRequest, Transform, build, read_manifest, read_transform,
    series_columns, series_rows,
    testing::{Cells, LandingZone, context, pipeline, written},
};

const COLUMNS: [(&str, ColumnType); 4] =
    [("who", Utf8), ("at", Utf8), ("v", Float64), ("y", Float64)];
const SERIES: &str = "sources = [\"a\"]\nfeatures = [\"v\", \"mean\"]\ntarget = \"y\"\nmax_reject_fraction = 1.0\n\
     series = { time = \"at\", entity = [\"who\"], max_gap = \"1h\", gaps = \"restart\" }\n\
     \
     [[dataset.feature]]\nname = \"mean\"\ntype = \"rolling_mean\"\ncolumn = \"y\"\nrows = 3\nclosed = \"left\"\n";
const ALL: &str = "[dataset.split]\ntrain = 1.0\nvalidation = 0.0\ntest = 0.0\n";
const SPLIT: &str =
    "[dataset.split]\nby = \"range\"\ntrain = 0.5\nvalidation = 0.25\ntest = 0.25\nembargo = 6\n";
const WINDOWS: &str = "[dataset.sequence]\nlength = 4\nhorizon = 6\nseason = 4\n";

/// A reading; `target` is null for one that is to be predicted.
fn reading(who: i64, hour: i64) -> Cells {
    let y = (hour * 7 + who * 3) % 23;
    vec![
        json!(format!("e{who}")),
        json!(format!(
            "2024-01-{:02} {:02}:00:00",
            1 + hour / 24,
            hour % 24
        )),
        json!((hour * 31 + who) % 17),
        json!(y),
    ]
}

fn readings(hours: std::ops::Range<i64>) -> Vec<Cells> {
    hours
        .flat_map(|hour| [0, 1].map(|who| reading(who, hour)))
        .collect()
}

/// All rows of `request`, by entity and time.
async fn given(
    root: &Store,
    dataset: &str,
    request: SeriesRequest,
) -> Result<(Vec<String>, SeriesBatch), Error> {
    let (context, _scratch) = context(root, 2);
    let store = root.child("dataset");
    let manifest = read_manifest(&store).await?;
    let transform = Transform::new(read_transform(&store, &manifest).await?)?;
    let config = pipeline(dataset);
    let mut rows = series_rows(&config, &manifest, Arc::new(transform), request, &context).await?;
    let (names, mut all) = (rows.kept(), SeriesBatch::default());
    all.kept = vec![Vec::new(); names.len()];
    while let Some(batch) = rows.next().await? {
        all.bad.extend(
            batch
                .bad
                .into_iter()
                .map(|(row, fault)| (all.rows + row, fault)),
        );
        all.rows += batch.rows;
        all.row_numbers.extend(batch.row_numbers);
        all.x.extend(batch.x);
        for (all, cells) in all.kept.iter_mut().zip(batch.kept) {
            all.extend(cells);
        }
        all.target_times.extend(batch.target_times);
        all.last.extend(batch.last);
        all.season.extend(batch.season);
    }
    Ok((names, all))
}

async fn landed(root: &Store, name: &str, rows: &[Cells]) -> LandedRows {
    LandingZone::new(root, name, &COLUMNS).batch(rows).await;
    rows_of(root, name)
}

/// The rows that have landed as `name`.
fn rows_of(root: &Store, name: &str) -> LandedRows {
    let mut config = pipeline("sources = [\"a\"]\n");
    let mut source = config.source.remove(0);
    source.name = Name::new(name).unwrap();
    LandedRows {
        file: format!("{name}.csv"),
        lists_columns: true,
        root: root.clone(),
        source,
        starts: Vec::new(),
        rejected_columns: Vec::new(),
        is_empty: false,
    }
}

/// The entity of a row whose columns are those of the series.
fn who_of(given: &SeriesBatch, row: usize) -> i64 {
    i64::from(given.kept[0][row].as_deref() == Some("e1"))
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// The samples of a built dataset by their target.
async fn built(root: &Store, dataset: &str) -> BTreeMap<(u64, u64), Vec<u32>> {
    let (context, _scratch) = context(root, 2);
    build(&pipeline(dataset), &context).await.unwrap();
    let rows = written(&root.child("dataset")).await.into_iter();
    rows.map(|row| {
        (
            (row.origin.sequence().get(), row.origin.row()),
            bits(&row.x),
        )
    })
    .collect()
}

#[tokio::test]
async fn forecasts_read_the_windows_that_a_build_makes_once_the_targets_have_landed() {
    let dataset = format!("{SERIES}{ALL}{WINDOWS}");
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &COLUMNS);
    zone.batch(&readings(0..60)).await;
    built(&root, &dataset).await;
    let (names, given) = Box::pin(given(&root, &dataset, SeriesRequest::default()))
        .await
        .unwrap();
    assert_eq!(names, ["who", "at"]);
    assert_eq!((given.rows, given.bad.len()), (12, 0));
    // The next six hours of each entity, one forecast each.
    let times: Vec<String> = (60..66)
        .map(|hour: i64| format!("2024-01-{:02}T{:02}:00:00Z", 1 + hour / 24, hour % 24))
        .collect();
    let found: Vec<&str> = given
        .target_times
        .iter()
        .flatten()
        .map(String::as_str)
        .collect();
    assert_eq!(found, [&times[..], &times[..]].concat());
    for (row, at) in (0..12).zip((54..60).chain(54..60)) {
        let who = who_of(&given, row);
        let y = |hour: i64| reading(who, hour)[3].as_f64();
        assert_eq!(given.last[row], y(at), "{row}");
        // Two seasons of four hours before the target are the newest that are known.
        assert_eq!(given.season[row], y(at + 6 - 8), "{row}");
    }
    // The targets land, in the test split, and every window of theirs is the same.
    zone.batch(&readings(60..66)).await;
    let store = root.child("dataset");
    let before = read_transform(&store, &read_manifest(&store).await.unwrap())
        .await
        .unwrap();
    let more = format!("{dataset}# grown\n");
    let (context, _scratch) = context(&root, 1);
    crate::refit(&pipeline(&more), &context).await.unwrap();
    let after = read_transform(&store, &read_manifest(&store).await.unwrap())
        .await
        .unwrap();
    let rows = written(&store).await;
    let transforms = [before, after].map(|artefact| Transform::new(artefact).unwrap());
    for (row, hour) in (0..12).zip((60..66).chain(60..66)) {
        let place = 2 * (hour - 60) + who_of(&given, row).unsigned_abs();
        let mut window = rows
            .iter()
            .filter(|found| (found.origin.sequence().get(), found.origin.row()) == (1, place));
        let window = window.next().unwrap();
        // The later fit has other means: in the units that landed the windows are the same.
        let [forecast, sample] = [
            (&transforms[0], &given.x[row * 8..][..8]),
            (&transforms[1], &window.x),
        ]
        .map(|(transform, x)| transform.invert(x));
        for ((name, forecast), (_, sample)) in forecast.iter().zip(&sample) {
            for (forecast, sample) in forecast.iter().zip(sample) {
                assert!(
                    (forecast - sample).abs() < 1e-5,
                    "{name}: {forecast} {sample}"
                );
            }
        }
    }
}

#[tokio::test]
async fn new_rows_are_given_the_numbers_that_a_build_gives_them_bit_for_bit() {
    for (dataset, numbers) in [
        (format!("{SERIES}{ALL}"), 2),
        (format!("{SERIES}{ALL}{WINDOWS}"), 8),
    ] {
        let root = Store::memory();
        let mut zone = LandingZone::new(&root, "a", &COLUMNS);
        zone.batch(&readings(0..50)).await;
        zone.batch(&readings(50..60)).await;
        let samples = built(&root, &dataset).await;
        // The same rows; the last ten hours are new and have no target.
        let mut new = readings(50..60);
        new.iter_mut().for_each(|row| row[3] = Value::Null);
        let new = landed(&root, "new", &new).await;
        let history = landed(&root, "past", &readings(0..50)).await;
        let request = SeriesRequest {
            rows: Some(new),
            history: Some(history),
            keep: vec!["v".to_owned()],
        };
        let (names, given) = Box::pin(given(&root, &dataset, request)).await.unwrap();
        assert_eq!(names, ["v", "who", "at"]);
        assert_eq!(given.rows, 20);
        let mut compared = 0;
        for row in 0..20 {
            let who = given.kept[1][row].as_deref().unwrap() == "e1";
            let hour = row % 10;
            // Of windows the sample is that of the target, six rows on. The mean looks at targets, which new rows lack: the
            // first of them has all of its past.
            let target = if numbers == 8 { hour + 6 } else { hour };
            let sample = samples.get(&(1, 2 * target as u64 + u64::from(who)));
            let is_of_past = hour == 0;
            if let (Some(sample), true) = (sample, is_of_past) {
                assert_eq!(
                    bits(&given.x[row * numbers..][..numbers]),
                    *sample,
                    "{dataset} {row}"
                );
                compared += 1;
            }
        }
        assert_eq!(compared, 2, "{dataset}");
    }
}

#[tokio::test]
async fn new_rows_are_joined_as_those_of_the_build() {
    let dataset = SERIES
        .replace("\"mean\"]", "\"mean\", \"height\"]")
        .replace(
            "series =",
            "join = [{ source = \"b\", left = \"who\", right = \"id\" }]\nseries =",
        );
    let dataset = format!("{dataset}{ALL}");
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &COLUMNS);
    zone.batch(&readings(0..50)).await;
    zone.batch(&readings(50..60)).await;
    // The other entity has no row there.
    LandingZone::new(&root, "b", &[("id", Utf8), ("height", Float64)])
        .batch(&[vec![json!("e1"), json!(7.0)]])
        .await;
    let samples = built(&root, &dataset).await;
    let request = async || SeriesRequest {
        rows: Some(landed(&root, "new", &readings(50..60)).await),
        history: Some(landed(&root, "past", &readings(0..50)).await),
        keep: vec!["height".to_owned()],
    };
    let (names, found) = Box::pin(given(&root, &dataset, request().await))
        .await
        .unwrap();
    assert_eq!((names[0].as_str(), found.rows), ("height", 20));
    for row in 0..20 {
        if found.kept[1][row].as_deref() == Some("e0") {
            let detail = &found.bad[&row].detail;
            assert_eq!(detail, "`unmatched`: column `who`: `e0`", "{row}");
            continue;
        }
        let place = 2 * (row as u64 % 10) + 1;
        let x = &found.x[row * 3..][..3];
        assert_eq!(Some(&bits(x)), samples.get(&(1, place)), "{row}");
    }
    assert_eq!(found.bad.len(), 10);
    // Rows that have the joined column already cannot get it.
    let columns = [&COLUMNS[..], &[("height", Float64)]].concat();
    let mut again = request().await;
    let mut zone = LandingZone::new(&root, "new", &columns);
    zone.batch(&[[reading(1, 50), vec![json!(7.0)]].concat()])
        .await;
    again.keep.clear();
    let refused = Box::pin(given(&root, &dataset, again)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot use the rows to predict: they have column `height`, which a join of the dataset adds; remove the column, so \
         that the rows are joined as in a build"
    );
}

#[tokio::test]
async fn naive_forecasts_are_measured_on_the_windows_of_each_split() {
    let dataset = format!("{SERIES}{SPLIT}{WINDOWS}");
    let root = Store::memory();
    LandingZone::new(&root, "a", &COLUMNS)
        .batch(&readings(0..80))
        .await;
    let (context, _scratch) = context(&root, 2);
    let report = build(&pipeline(&dataset), &context).await.unwrap();
    let found: Vec<_> = report
        .naive
        .iter()
        .map(|found| (found.method, found.lag))
        .collect();
    assert_eq!(
        found,
        [(NaiveMethod::LastValue, 6), (NaiveMethod::Seasonal, 8)]
    );
    for (split, rows) in [
        ("train", report.train),
        ("validation", report.validation),
        ("test", report.test),
    ] {
        let targets: Vec<(i64, i64)> = written(&root.child("dataset"))
            .await
            .iter()
            .filter(|row| row.split.to_string() == split)
            .map(|row| {
                (
                    i64::try_from(row.origin.row() % 2).unwrap(),
                    i64::try_from(row.origin.row() / 2).unwrap(),
                )
            })
            .collect();
        assert_eq!(targets.len() as u64, rows);
        let y = |who: i64, hour: i64| reading(who, hour)[3].as_f64().unwrap();
        let squares: f64 = targets
            .iter()
            .map(|(who, hour)| (y(*who, *hour) - y(*who, hour - 6)).powi(2))
            .sum();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let rmse = (squares / targets.len() as f64).sqrt();
        let measured = report.naive[0]
            .splits
            .iter()
            .find(|(one, _)| one.to_string() == split)
            .unwrap()
            .1;
        assert_eq!(measured.windows, rows);
        assert!(
            (measured.rmse - rmse).abs() < 1e-4,
            "{split}: {} {rmse}",
            measured.rmse
        );
    }
}

#[tokio::test]
async fn new_rows_with_a_time_that_clocks_show_twice_are_warned_of_once() {
    let series = SERIES.replace("time = \"at\"", "time = \"at\", zone = \"Europe/Berlin\"");
    let dataset = format!("{series}{ALL}");
    let root = Store::memory();
    LandingZone::new(&root, "a", &COLUMNS)
        .batch(&readings(0..20))
        .await;
    built(&root, &dataset).await;
    let new = ["01:30:00", "02:10:00", "02:40:00", "04:00:00"];
    let row = |clock: &str| {
        let at = format!("2025-10-26 {clock}");
        vec![json!("e0"), json!(at), json!(1), json!(2)]
    };
    let new = landed(&root, "new", &new.map(row)).await;
    let request = SeriesRequest {
        rows: Some(new),
        ..SeriesRequest::default()
    };
    let (context, _scratch) = context(&root, 2);
    let store = root.child("dataset");
    let manifest = read_manifest(&store).await.unwrap();
    let artefact = read_transform(&store, &manifest).await.unwrap();
    let transform = Arc::new(Transform::new(artefact).unwrap());
    let config = pipeline(&dataset);
    let rows = series_rows(&config, &manifest, transform, request, &context);
    let mut rows = Box::pin(rows).await.unwrap();
    assert_eq!(rows.repeated_times(), None);
    while rows.next().await.unwrap().is_some() {}
    let found = rows.repeated_times().unwrap();
    for part in [
        "2 times of `at`",
        "such as `2025-10-26 02:10:00`",
        "the first is in row 1",
    ] {
        assert!(found.message.contains(part), "{}", found.message);
    }
}

#[tokio::test]
async fn new_rows_have_their_numbers_in_the_file_and_need_no_past() {
    let dataset = format!("{SERIES}{ALL}");
    let root = Store::memory();
    LandingZone::new(&root, "a", &COLUMNS)
        .batch(&readings(0..20))
        .await;
    built(&root, &dataset).await;
    let new = landed(&root, "new", &readings(20..22)).await;
    let none = LandedRows {
        is_empty: true,
        ..new.clone()
    };
    let request = |rows: &LandedRows| SeriesRequest {
        rows: Some(LandedRows {
            starts: vec![5],
            ..rows.clone()
        }),
        history: Some(none.clone()),
        ..SeriesRequest::default()
    };
    let (_, found) = Box::pin(given(&root, &dataset, request(&new)))
        .await
        .unwrap();
    let mut numbers = found.row_numbers.clone();
    numbers.sort_unstable();
    assert_eq!(numbers, [5, 6, 7, 8]);
    for (row, number) in found.row_numbers.iter().enumerate() {
        let who = i64::try_from((number - 5) % 2).unwrap();
        assert_eq!(who_of(&found, row), who, "{number}");
    }
    let (_, found) = Box::pin(given(&root, &dataset, request(&none)))
        .await
        .unwrap();
    assert_eq!(found.rows, 0);
}

#[tokio::test]
async fn a_column_that_only_rejected_rows_have_can_be_passed_through() {
    let dataset = format!("{SERIES}{ALL}");
    let root = Store::memory();
    LandingZone::new(&root, "a", &COLUMNS)
        .batch(&readings(0..20))
        .await;
    built(&root, &dataset).await;
    let new = landed(&root, "new", &readings(20..22)).await;
    let request = |is_empty: bool, rejected: &[&str]| SeriesRequest {
        rows: Some(LandedRows {
            rejected_columns: rejected.iter().map(|name| (*name).to_owned()).collect(),
            is_empty,
            ..new.clone()
        }),
        keep: vec!["id".to_owned()],
        ..SeriesRequest::default()
    };
    for (is_empty, rows) in [(true, 0), (false, 4)] {
        let request = request(is_empty, &["id", "v"]);
        let (names, found) = Box::pin(given(&root, &dataset, request)).await.unwrap();
        assert_eq!(names, ["id", "who", "at"]);
        assert_eq!(found.kept[0], vec![None; rows]);
    }
    let refused = Box::pin(given(&root, &dataset, request(true, &[])));
    let refused = refused.await.unwrap_err().to_string();
    assert!(refused.contains("there is no column `id`"), "{refused}");
}

/// Readings of the hours `hours` with a `note` of this type.
async fn land_noted(root: &Store, name: &str, hours: [i64; 2], note: (ColumnType, Value)) {
    let mut columns = COLUMNS.to_vec();
    columns.push(("note", note.0));
    let rows = readings(hours[0]..hours[1]).into_iter().map(|mut row| {
        row.push(note.1.clone());
        row
    });
    let rows: Vec<Cells> = rows.collect();
    LandingZone::new(root, name, &columns).batch(&rows).await;
}

#[tokio::test]
async fn only_columns_that_rows_need_must_have_the_types_that_landed() {
    let dataset = format!("{SERIES}{ALL}");
    let root = Store::memory();
    land_noted(&root, "a", [0, 20], (Utf8, json!("dry"))).await;
    built(&root, &dataset).await;
    land_noted(&root, "new", [20, 22], (Bool, json!(true))).await;
    let new = rows_of(&root, "new");
    let request = |keep: &[&str]| SeriesRequest {
        rows: Some(new.clone()),
        keep: keep.iter().map(|name| (*name).to_owned()).collect(),
        ..SeriesRequest::default()
    };
    let (_, found) = Box::pin(given(&root, &dataset, request(&[])))
        .await
        .unwrap();
    assert_eq!((found.rows, found.bad.len()), (4, 0));
    let refused = Box::pin(given(&root, &dataset, request(&["note"])));
    let refused = refused.await.unwrap_err().to_string();
    let part = "column `note` holds true and false here, and text where it landed";
    assert!(refused.contains(part), "{refused}");

    let (context, _scratch) = context(&root, 2);
    for (keep, more) in [(vec![], None), (vec!["note".to_owned()], Some("note"))] {
        let config = pipeline(&dataset);
        let found = Box::pin(series_columns(&config, &keep, &context)).await;
        let expected = ["at", "v", "who", "y"].into_iter().chain(more);
        let expected: BTreeSet<String> = expected.map(str::to_owned).collect();
        assert_eq!(found.unwrap(), expected);
    }
}

#[tokio::test]
async fn the_key_of_a_join_is_a_column_that_rows_need() {
    let dataset = SERIES
        .replace("\"mean\"]", "\"mean\", \"height\"]")
        .replace(
            "series =",
            "join = [{ source = \"b\", left = \"note\", right = \"id\" }]\nseries =",
        );
    let dataset = format!("{dataset}{ALL}");
    let root = Store::memory();
    land_noted(&root, "a", [0, 20], (Utf8, json!("dry"))).await;
    LandingZone::new(&root, "b", &[("id", Utf8), ("height", Float64)])
        .batch(&[vec![json!("dry"), json!(7.0)]])
        .await;
    let (context, _scratch) = context(&root, 2);
    let config = pipeline(&dataset);
    let found = Box::pin(series_columns(&config, &[], &context)).await;
    let found = found.unwrap();
    assert!(found.contains("note"), "{found:?}");
}

#[tokio::test]
async fn another_configuration_is_refused() {
    let dataset = format!("{SERIES}{ALL}{WINDOWS}");
    let root = Store::memory();
    LandingZone::new(&root, "a", &COLUMNS)
        .batch(&readings(0..60))
        .await;
    built(&root, &dataset).await;
    let other = dataset.replace("rows = 3", "rows = 2");
    let refused = Box::pin(given(&root, &other, SeriesRequest::default()))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("is not the configuration of the dataset"),
        "{refused}"
    );
    let without = format!("{SERIES}{ALL}");
    let refused = Box::pin(given(&root, &without, SeriesRequest::default()))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("is not the configuration of the dataset"),
        "{refused}"
    );
}

#[tokio::test]
async fn windows_of_the_target_itself_forecast_from_what_has_landed_of_it() {
    let dataset = format!(
        "sources = [\"a\"]\nfeatures = [\"y\"]\ntarget = \"y\"\nscale_target = false\nstep = [{{ type = \"impute\" }}]\nmax_reject_fraction = 1.0\n\
         drop = [\"v\"]\nseries = {{ time = \"at\", entity = [\"who\"], max_gap = \"1h\" }}\n{ALL}\
         [dataset.sequence]\nlength = 4\nhorizon = 2\n"
    );
    let root = Store::memory();
    let mut rows = readings(0..60);
    // The newest reading of `e1` has no value, and is no past that a window could hold: it is not imputed.
    rows.last_mut().unwrap()[3] = Value::Null;
    LandingZone::new(&root, "a", &COLUMNS).batch(&rows).await;
    built(&root, &dataset).await;
    let (_, given) = Box::pin(given(&root, &dataset, SeriesRequest::default()))
        .await
        .unwrap();
    let y = |who: i64, hour: i64| reading(who, hour)[3].as_f64().unwrap();
    let mut windows = 0;
    for row in 0..given.rows {
        if given.bad.contains_key(&row) {
            continue;
        }
        let who = who_of(&given, row);
        let window: Vec<f64> = given.x[row * 4..][..4]
            .iter()
            .map(|y| (*y).into())
            .collect();
        let of = |last: i64| -> Vec<f64> { (last - 3..=last).map(|hour| y(who, hour)).collect() };
        let last = (3..60).rev().find(|last| of(*last) == window);
        assert!(last.is_some_and(|last| last >= 58), "{window:?}");
        windows += 1;
    }
    let faults: Vec<&str> = given.bad.values().map(|fault| fault.reason).collect();
    assert_eq!(
        (given.rows, windows, faults),
        (4, 3, vec!["target_missing"])
    );
}
