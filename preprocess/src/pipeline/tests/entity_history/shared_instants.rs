//! Rows of one instant, some of them without a target.

use super::*;

/// Three rows of each hour, and none of them the same; the first has no target.
fn triples(hours: std::ops::Range<i64>) -> Vec<Cells> {
    let of_hour = |hour: i64| {
        let at = reading(0, hour).remove(1);
        [(0_i64, None), (7, Some(4_i64)), (2, Some(6))].map(|(more, y)| {
            vec![
                json!("e0"),
                at.clone(),
                json!((hour * 31) % 17 + more),
                json!(y.map(|y| y + hour % 5)),
            ]
        })
    };
    hours.flat_map(of_hour).collect()
}

#[tokio::test]
async fn rows_without_a_target_count_alike_in_builds_features_and_forecasts() {
    // The row that is kept of those of an instant.
    for (rule, kept) in [("first", 1), ("last", 2), ("mean", 1)] {
        let dataset = format!(
            "sources = [\"a\"]\nfeatures = [\"v\", \"now\"]\ntarget = \"y\"\nmax_reject_fraction = 1.0\n\
             series = {{ time = \"at\", entity = [\"who\"], duplicates = \"{rule}\" }}\n\
             [[dataset.feature]]\nname = \"now\"\ntype = \"rolling_mean\"\ncolumn = \"v\"\nrows = 1\n\
             closed = \"right\"\n{ALL}[dataset.sequence]\nlength = 2\nhorizon = 1\n"
        );
        let root = Store::memory();
        LandingZone::new(&root, "a", &COLUMNS)
            .batch(&triples(0..30))
            .await;
        let samples = built(&root, &dataset).await;
        let sample = &samples[&(0, 3 * 29 + kept)];
        // The feature over the row alone is its value.
        assert_eq!((sample[0], sample[2]), (sample[1], sample[3]), "{rule}");
        let history = landed(&root, "past", &triples(0..29)).await;
        let request = SeriesRequest {
            history: Some(history),
            ..SeriesRequest::default()
        };
        let (_, given) = Box::pin(given(&root, &dataset, request)).await.unwrap();
        assert_eq!((given.rows, given.bad.len()), (1, 0), "{rule}");
        assert_eq!(bits(&given.x), *sample, "{rule}");
    }
}

#[tokio::test]
async fn among_new_rows_of_an_instant_the_row_of_the_build_is_predicted() {
    for (rule, kept) in [("first", 1), ("last", 2), ("mean", 1)] {
        let dataset = format!(
            "sources = [\"a\"]\nfeatures = [\"v\", \"now\"]\ntarget = \"y\"\nmax_reject_fraction = 1.0\n\
             series = {{ time = \"at\", entity = [\"who\"], duplicates = \"{rule}\" }}\n\
             [[dataset.feature]]\nname = \"now\"\ntype = \"rolling_mean\"\ncolumn = \"v\"\nrows = 1\n\
             closed = \"right\"\n{ALL}"
        );
        let root = Store::memory();
        LandingZone::new(&root, "a", &COLUMNS)
            .batch(&triples(0..30))
            .await;
        let samples = built(&root, &dataset).await;
        let sample = &samples[&(0, 3 * 29 + kept)];
        let history = landed(&root, "past", &triples(0..29)).await;
        let request = SeriesRequest {
            rows: Some(landed(&root, "new", &triples(29..30)).await),
            history: Some(history),
            ..SeriesRequest::default()
        };
        let (_, given) = Box::pin(given(&root, &dataset, request)).await.unwrap();
        assert_eq!((given.rows, given.bad.len()), (3, 2), "{rule}");
        let row = (0..3).find(|row| !given.bad.contains_key(row)).unwrap();
        assert_eq!(given.row_numbers[row], kept, "{rule}");
        assert_eq!(bits(&given.x[2 * row..2 * row + 2]), *sample, "{rule}");
    }
}

#[tokio::test]
async fn a_new_row_without_a_target_is_predicted_though_the_past_has_its_instant() {
    let dataset = format!(
        "{}{ALL}",
        SERIES.replace("entity =", "duplicates = \"last\", entity =")
    );
    let root = Store::memory();
    LandingZone::new(&root, "a", &COLUMNS)
        .batch(&readings(0..60))
        .await;
    built(&root, &dataset).await;
    let mut row = reading(1, 59);
    row[2] = json!(100);
    row[3] = Value::Null;
    let request = SeriesRequest {
        rows: Some(landed(&root, "new", &[row]).await),
        ..SeriesRequest::default()
    };
    let (_, given) = Box::pin(given(&root, &dataset, request)).await.unwrap();
    assert_eq!((given.rows, given.bad.len()), (1, 0));
}

#[tokio::test]
async fn landed_rows_that_new_ones_replace_are_no_rejected_past() {
    // With the first row of an instant, the new row does not count, and the other landed one is rejected as in a build.
    for (rule, expected) in [("last", 0), ("first", 1)] {
        let dataset = format!(
            "{}{ALL}",
            SERIES.replace("entity =", &format!("duplicates = \"{rule}\", entity ="))
        );
        let root = Store::memory();
        let mut twice = reading(1, 59);
        twice[2] = json!(50);
        let rows = [readings(0..60), vec![twice]].concat();
        LandingZone::new(&root, "a", &COLUMNS).batch(&rows).await;
        built(&root, &dataset).await;
        let (context, _scratch) = context(&root, 2);
        let store = root.child("dataset");
        let manifest = read_manifest(&store).await.unwrap();
        let transform = Transform::new(read_transform(&store, &manifest).await.unwrap()).unwrap();
        let transform = Arc::new(transform);
        // Without a new row at its time, a landed row is rejected for the other one.
        for (name, hour, expected) in [("same", 59, expected), ("later", 60, 1)] {
            let request = SeriesRequest {
                rows: Some(landed(&root, name, &[new_reading(hour)]).await),
                ..SeriesRequest::default()
            };
            let (config, transform) = (pipeline(&dataset), Arc::clone(&transform));
            let rows = series_rows(&config, &manifest, transform, request, &context);
            let mut rows = Box::pin(rows).await.unwrap();
            while rows.next().await.unwrap().is_some() {}
            assert_eq!(rows.rejected_before(), expected, "{rule} {name}");
            let is_rejected = (rule, name) == ("first", "same");
            assert_eq!(
                rows.new_same_time(),
                u64::from(is_rejected),
                "{rule} {name}"
            );
        }
    }
}

/// Reading of the entity `e1` to predict.
fn new_reading(hour: i64) -> Cells {
    let mut row = reading(1, hour);
    row[2] = json!(100);
    row[3] = Value::Null;
    row
}

#[tokio::test]
async fn only_a_new_row_whose_time_has_landed_is_rejected() {
    let plain = format!("{SERIES}{ALL}");
    let queried = format!("sql = \"select who, at, v, y from a\"\n{plain}");
    // The past of a query is its result, so no history is taken.
    let advised = "`dataset.series.duplicates = \"last\"`";
    for (dataset, advice) in [(plain, "with `--history`"), (queried, advised)] {
        let root = Store::memory();
        LandingZone::new(&root, "a", &COLUMNS)
            .batch(&readings(0..60))
            .await;
        built(&root, &dataset).await;
        let rows = [59, 60].map(new_reading);
        let request = SeriesRequest {
            rows: Some(landed(&root, "new", &rows).await),
            ..SeriesRequest::default()
        };
        let (_, given) = Box::pin(given(&root, &dataset, request)).await.unwrap();
        assert_eq!((given.rows, given.bad.len()), (2, 1));
        let detail = "`same_time`: another row of its entity at `2024-01-03T11:00:00Z` counts, which has landed";
        let bad = (0..2).find_map(|row| Some((given.row_numbers[row], given.bad.get(&row)?)));
        let (number, fault) = bad.unwrap();
        assert_eq!(number, 0);
        assert!(fault.detail.starts_with(detail), "{}", fault.detail);
        assert!(fault.detail.contains(advice), "{}", fault.detail);
    }
}

#[tokio::test]
async fn a_new_row_is_the_newer_version_of_the_landed_row_with_its_key() {
    let mut config = pipeline(&format!("{SERIES}{ALL}"));
    config.source[0].key = vec!["who".to_owned(), "at".to_owned()];
    let root = Store::memory();
    LandingZone::new(&root, "a", &COLUMNS)
        .batch(&readings(0..60))
        .await;
    let (context, _scratch) = context(&root, 2);
    Box::pin(build(&config, &context)).await.unwrap();
    let mut later = new_reading(59);
    later[2] = json!(101);
    let store = root.child("dataset");
    let manifest = read_manifest(&store).await.unwrap();
    let transform = Transform::new(read_transform(&store, &manifest).await.unwrap()).unwrap();
    let transform = Arc::new(transform);
    // Of two new versions the last one counts.
    for (name, new) in [
        ("new", vec![new_reading(59)]),
        ("newer", vec![new_reading(59), later]),
    ] {
        let request = SeriesRequest {
            rows: Some(landed(&root, name, &new).await),
            ..SeriesRequest::default()
        };
        let rows = series_rows(
            &config,
            &manifest,
            Arc::clone(&transform),
            request,
            &context,
        );
        let mut rows = Box::pin(rows).await.unwrap();
        let given = rows.next().await.unwrap().unwrap();
        let older = new.len() - 1;
        assert_eq!((given.rows, given.bad.len()), (new.len(), older), "{name}");
        let row = (0..new.len()).find(|row| !given.bad.contains_key(row));
        let number = given.row_numbers[row.unwrap()];
        assert_eq!(number, older as u64, "{:?}", given.bad);
        assert!(rows.next().await.unwrap().is_none());
        assert_eq!((rows.copies(), rows.rejected_before()), (0, 0));
    }
}

#[tokio::test]
async fn new_rows_of_a_query_have_its_result_as_their_past() {
    let plain = format!("{SERIES}{ALL}");
    let queried = format!("sql = \"select who, at, v, y from a\"\n{plain}");
    let mut found = Vec::new();
    for dataset in [plain, queried] {
        let root = Store::memory();
        LandingZone::new(&root, "a", &COLUMNS)
            .batch(&readings(0..60))
            .await;
        built(&root, &dataset).await;
        let request = SeriesRequest {
            rows: Some(landed(&root, "new", &[new_reading(60)]).await),
            ..SeriesRequest::default()
        };
        let (_, given) = Box::pin(given(&root, &dataset, request)).await.unwrap();
        assert_eq!((given.rows, given.bad.len()), (1, 0), "{dataset}");
        found.push((bits(&given.x), given.kept));
    }
    assert_eq!(found[0], found[1]);
}
