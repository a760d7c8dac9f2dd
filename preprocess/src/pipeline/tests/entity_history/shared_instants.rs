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
