//! Features that number the rows of each group.

use feedline_schemas::{
    record::ColumnType::{Float64, Int64, Utf8},
    report::{DatasetReport, Warning},
};
use feedline_storage::Store;
use serde_json::json;

use crate::testing::{Cells, LandingZone, build_with};

const TARGET: &str = "sources = [\"a\"]\ntarget = \"y\"\n";

/// Rows of twelve trials of several lengths, in two batches.
async fn land_trials(root: &Store) {
    let columns = [
        ("trial", Utf8),
        ("sample", Int64),
        ("hour", Int64),
        ("y", Float64),
    ];
    let trials = (0..12_u32).flat_map(|trial| {
        let rows = 20 + trial * 13 % 17;
        (1..=rows).map(move |sample| (trial, sample))
    });
    let rows: Vec<Cells> = trials
        .enumerate()
        .map(|(row, (trial, sample))| {
            let y = f64::from(trial) + f64::from(sample * 7919 % 100) / 3.0;
            vec![
                json!(format!("t{trial}")),
                json!(sample),
                json!(row % 24),
                json!(y),
            ]
        })
        .collect();
    let mut zone = LandingZone::new(root, "a", &columns);
    let (first, second) = rows.split_at(150);
    zone.batch(first).await;
    zone.batch(second).await;
}

fn row_numbers(report: &DatasetReport) -> Vec<&Warning> {
    let warnings = report.warnings.iter();
    warnings
        .filter(|warning| warning.code == "looks_like_row_number")
        .collect()
}

#[tokio::test]
async fn a_row_number_that_restarts_with_each_group_is_named_and_a_cycle_is_not() {
    for partitions in [1, 3] {
        let root = Store::memory();
        land_trials(&root).await;
        let report = build_with(&root, TARGET, partitions).await.unwrap();
        let found = row_numbers(&report);
        let [warning] = found[..] else {
            panic!("{:#?}", report.warnings)
        };
        assert_eq!(warning.key.as_deref(), Some("dataset.drop"));
        let expected = "as the row number of a group does, and a feature: `sample`; leave it out";
        assert!(warning.message.contains(expected), "{}", warning.message);
    }
    let root = Store::memory();
    land_trials(&root).await;
    for keys in [
        "drop = [\"sample\"]\n",
        "features = [\"sample\", \"hour\"]\n",
    ] {
        let report = build_with(&root, &format!("{TARGET}{keys}"), 2).await;
        assert_eq!(row_numbers(&report.unwrap()), Vec::<&Warning>::new());
    }
}

#[tokio::test]
async fn an_index_without_a_header_that_begins_again_in_each_file_is_named() {
    for (name, expected) in [("column_1", 1), ("hour", 0)] {
        let root = Store::memory();
        let columns = [(name, Int64), ("load", Float64), ("y", Float64)];
        let mut zone = LandingZone::new(&root, "a", &columns);
        for file in 0..3_u32 {
            let rows = (0..60_u32).map(|row| {
                let load = f64::from((file * 60 + row) * 7919 % 1000) / 8.0;
                vec![json!(row), json!(load), json!(load * 2.0 + 0.5)]
            });
            zone.batch(&rows.collect::<Vec<Cells>>()).await;
        }
        let report = build_with(&root, TARGET, 2).await.unwrap();
        let found = row_numbers(&report);
        assert_eq!(found.len(), expected, "{name}: {:#?}", report.warnings);
        let mut messages = found.iter().map(|warning| &warning.message);
        assert!(messages.all(|message| message.contains("and a feature: `column_1`")));
    }
}

#[tokio::test]
async fn the_index_of_filtered_frames_is_named_by_its_name_or_its_rising_integers() {
    let is_kept = |row: &u32| row * 31 % 97 > 30;
    for (name, is_shuffled, more, expected) in [
        ("index", false, "", 1),
        ("Unnamed: 0", false, "", 1),
        ("column_1", false, "", 1),
        ("__index_level_0__", false, "", 1),
        // Its name is enough.
        ("__index_level_0__", true, "", 1),
        ("index", true, "", 0),
        ("hour", false, "", 0),
        ("index", false, "drop = [\"index\"]\n", 0),
        ("index", false, "features = [\"index\", \"load\"]\n", 0),
        (
            "__index_level_0__",
            false,
            "features = [\"__index_level_0__\", \"load\"]\n",
            0,
        ),
    ] {
        let root = Store::memory();
        let columns = [(name, Int64), ("load", Float64), ("y", Float64)];
        let mut zone = LandingZone::new(&root, "a", &columns);
        for file in 0..3_u32 {
            let rows = (0..90_u32).filter(is_kept).map(|row| {
                let load = f64::from((file * 90 + row) * 7919 % 1000) / 8.0;
                let number = if is_shuffled { row * 37 % 90 } else { row };
                vec![json!(number), json!(load), json!(load * 2.0 + 0.5)]
            });
            zone.batch(&rows.collect::<Vec<Cells>>()).await;
        }
        let report = build_with(&root, &format!("{TARGET}{more}"), 2).await;
        let report = report.unwrap();
        let found = row_numbers(&report);
        let case = format!("{name}, {is_shuffled}, {more}: {:#?}", report.warnings);
        assert_eq!(found.len(), expected, "{case}");
        for warning in found {
            let expected = format!("and a feature: `{name}`; it has the order of the rows");
            assert!(warning.message.contains(&expected), "{case}");
            assert_eq!(warning.key.as_deref(), Some("dataset.drop"));
        }
    }
}
