//! Columns of numbers without a value in any training row.

use feedline_schemas::record::ColumnType::{Float64, Utf8};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::{
    read_manifest, read_transform,
    testing::{Cells, LandingZone, build_with},
};

const DATASET: &str =
    "sources = [\"a\"]\ntarget = \"y\"\nsplit = { by = \"column\", column = \"part\" }\n";
const IMPUTE: &str = "step = [{ type = \"impute\" }, { type = \"standardize\" }]\n";

/// 1,300 rows; three of validation and one of test have a value in `rare`, none of training.
async fn land() -> Store {
    let root = Store::memory();
    let columns = [
        ("x", Float64),
        ("rare", Float64),
        ("part", Utf8),
        ("y", Float64),
    ];
    let mut zone = LandingZone::new(&root, "a", &columns);
    let row = |i: u32| -> Cells {
        let part = match i {
            0..1200 => "train",
            1200..1250 => "validation",
            _ => "test",
        };
        let rare = match i {
            1200..1203 | 1299 => json!(f64::from(i)),
            _ => Value::Null,
        };
        vec![
            json!(f64::from(i) / 7.0),
            rare,
            json!(part),
            json!(f64::from(i % 9)),
        ]
    };
    zone.batch(&(0..1300).map(row).collect::<Vec<_>>()).await;
    root
}

async fn features(root: &Store) -> Vec<String> {
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let artefact = read_transform(&dataset, &manifest).await.unwrap();
    artefact
        .inputs
        .into_iter()
        .map(|input| input.name)
        .collect()
}

#[tokio::test]
async fn a_column_without_a_training_value_is_left_out_with_a_warning() {
    for partitions in [1, 4] {
        let root = land().await;
        let dataset = format!("{DATASET}{IMPUTE}");
        let report = build_with(&root, &dataset, partitions).await.unwrap();
        assert_eq!(features(&root).await, ["x"]);
        assert_eq!(
            report.dropped_columns["rare"],
            "holds no value in any training row"
        );
        let mut found = report
            .warnings
            .iter()
            .filter(|warning| warning.code == "columns_dropped");
        let warning = found.next().unwrap();
        assert_eq!(found.next(), None);
        assert_eq!(warning.key.as_deref(), Some("dataset.drop"));
        assert!(warning.is_about("rare"), "{warning:?}");
        for part in [
            "no value in any of 1200 training rows: `rare` (3 validation rows and 1 test row have one)",
            "`dataset.drop`",
            "`strategy = \"constant\"`",
        ] {
            assert!(warning.message.contains(part), "{warning:?}");
        }
    }
}

#[tokio::test]
async fn a_column_without_a_training_value_that_is_asked_for_stays() {
    let root = land().await;
    let asked = [
        "features = [\"x\", \"rare\"]\nstep = [{ type = \"impute\" }]\n",
        "step = [{ type = \"impute\", columns = [\"x\", \"rare\"] }]\n",
        // Nothing else would be left.
        "drop = [\"x\"]\nstep = [{ type = \"impute\" }]\n",
    ];
    for keys in asked {
        let error = build_with(&root, &format!("{DATASET}{keys}"), 2).await;
        let error = error.unwrap_err().to_string();
        let text = "cannot fit `impute` to column `rare`: none of its 1200 training rows has a finite value";
        assert!(error.contains(text), "{keys}: {error}");
    }
    let filled = format!(
        "{DATASET}step = [{{ type = \"impute\", strategy = \"constant\", value = 0.0 }}]\n"
    );
    build_with(&root, &filled, 2).await.unwrap();
    assert_eq!(features(&root).await, ["x", "rare"]);
}
