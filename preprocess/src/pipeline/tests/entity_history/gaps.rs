//! Rows to predict behind a gap of the series.

use feedline_storage::Store;

use super::{ALL, COLUMNS, SERIES, WINDOWS, built, given, landed, readings};
use crate::{SeriesRequest, testing::LandingZone};

#[tokio::test]
async fn a_seasonal_value_of_before_a_gap_is_not_known_to_a_forecast() {
    let windows = WINDOWS.replace("season = 4", "season = 12");
    let dataset = format!("{SERIES}{ALL}{windows}");
    let root = Store::memory();
    LandingZone::new(&root, "a", &COLUMNS)
        .batch(&readings(0..60))
        .await;
    built(&root, &dataset).await;
    // The value of a season before the target is that of 6 rows before the last one of the window.
    for (name, hours, expected) in [("next", 60..64, true), ("later", 64..68, false)] {
        let rows = landed(&root, name, &readings(hours)).await;
        let request = SeriesRequest {
            rows: Some(rows),
            ..SeriesRequest::default()
        };
        let (_, found) = Box::pin(given(&root, &dataset, request)).await.unwrap();
        assert_eq!(found.rows, 8);
        let usable: Vec<usize> = (0..8).filter(|row| !found.bad.contains_key(row)).collect();
        let [.., last] = usable[..] else {
            panic!("{:?}", found.bad);
        };
        assert_eq!(found.season[last].is_some(), expected, "{name}");
        assert!(found.last[last].is_some(), "{name}");
    }
}
