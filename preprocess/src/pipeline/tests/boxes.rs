//! Datasets whose images have boxes.

use std::{collections::BTreeMap, fs};

use arrow::{array::AsArray, datatypes::UInt64Type};
use feedline_schemas::{
    manifest::{BoxCounts, Layout},
    record::ColumnType::{Binary, Float64, Int64, Json, Utf8},
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::{
    read_manifest,
    testing::{self, Cells, LandingZone, blocks, build_images, coloured, contents, shared},
    verify,
};

fn file(i: u32) -> Vec<u8> {
    coloured(i, [40, 20])
}

async fn land(root: &Store, rows: &[Cells]) {
    let columns = [("image", Binary), ("label", Int64), ("marks", Json)];
    LandingZone::new(root, "a", &columns).batch(rows).await;
}

/// 120 images, each with a box that identifies it, and one that is outside.
fn rows() -> Vec<Cells> {
    let each = (0..120_u32).map(|i| {
        let marks = format!(
            r#"[{{"bbox": [{}, 2, 4, 6], "label": "n{i}"}}, [50, 0, 2, 2]]"#,
            i % 30
        );
        vec![json!(file(i)), json!(i % 3), json!(marks)]
    });
    each.collect()
}

const HALF: &str = "store = \"png\", resize = \"exact\", size = [10, 20], boxes = \"marks\"";

#[tokio::test]
async fn boxes_come_along_with_their_images_whatever_the_partitions() {
    let mut found = Vec::new();
    for partitions in [1, 3] {
        let root = Store::memory();
        let mut all = rows();
        all.push(vec![json!(file(500)), json!(1), Value::Null]);
        all.push(vec![json!(file(501)), json!(1), json!("[[1, 2]]")]);
        land(&root, &all).await;
        let report = build_images(&root, HALF, partitions).await.unwrap();
        assert_eq!(
            report.boxes,
            Some(BoxCounts {
                kept: 120,
                lost: 120
            })
        );
        assert_eq!(report.rejected_by_reason["bad_boxes"], 1);
        assert!(
            report
                .reject_sample
                .unwrap()
                .contains("is not four numbers")
        );
        let dataset = root.child("dataset");
        let manifest = read_manifest(&dataset).await.unwrap();
        assert_eq!(manifest.counts.boxes, report.boxes);
        assert_eq!(
            verify(&dataset).await.unwrap().problems,
            Vec::<String>::new()
        );
        let mut count = 0;
        for (_, batch) in blocks(&dataset).await {
            let origins = batch["origin"].as_primitive::<UInt64Type>();
            let boxes = batch["boxes"].as_string::<i64>();
            for (origin, boxes) in origins.values().iter().zip(boxes) {
                let row = origin & 0xff_ffff;
                let left = f64::from(u32::try_from(row % 30).unwrap()) / 2.0;
                let expected = match row {
                    120 => "[]".to_owned(),
                    row => format!(r#"[{{"bbox":[{left:?},1.0,2.0,3.0],"label":"n{row}"}}]"#),
                };
                assert_eq!(boxes, Some(expected.as_str()));
                count += 1;
            }
        }
        assert_eq!(count, 121);
        found.push(contents(&dataset).await);
    }
    assert_eq!(found[0], found[1]);
}

#[tokio::test]
async fn a_column_that_holds_no_boxes_is_refused_and_datasets_without_boxes_have_no_column() {
    let root = Store::memory();
    land(&root, &rows()).await;
    for (column, expected) in [
        (
            "label",
            "`dataset.image.boxes`: column `label` holds no lists",
        ),
        ("mark", "`dataset.image.boxes`: there is no column `mark`"),
    ] {
        let image = format!("boxes = \"{column}\"");
        let refused = build_images(&root, &image, 1).await.unwrap_err();
        let refused = refused.to_string();
        assert!(refused.starts_with(expected), "{refused}");
    }
    let refused = build_images(&root, "boxes_on = \"file\"", 1).await;
    let refused = refused.unwrap_err().to_string();
    let expected = "`dataset.image.boxes_on`: it belongs to `boxes`";
    assert!(refused.starts_with(expected), "{refused}");
    let report = build_images(&root, "store = \"png\"", 1).await.unwrap();
    assert_eq!(report.boxes, None);
    for (_, batch) in blocks(&root.child("dataset")).await {
        assert!(batch.column_by_name("boxes").is_none());
    }
}

#[tokio::test]
async fn a_schema_version_whose_column_holds_numbers_loses_its_rows_in_plain_sight() {
    let root = Store::memory();
    let columns = |marks| [("image", Binary), ("label", Int64), ("marks", marks)];
    let mut zone = LandingZone::new(&root, "a", &columns(Json));
    zone.batch(&rows()).await;
    zone.evolve(&columns(Float64));
    let row = |i: u32, marks: Value| vec![json!(file(i)), json!(1), marks];
    zone.batch(&[row(500, json!(2.5)), row(501, Value::Null)])
        .await;
    let report = build_images(&root, HALF, 1).await.unwrap();
    assert_eq!(report.rejected_by_reason["bad_boxes"], 1);
    let sample = report.reject_sample.unwrap();
    assert!(sample.contains("it is no list"), "{sample}");
    assert_eq!(report.train + report.validation + report.test, 121);
}

/// The texts of the boxes of a dataset by the keys of its rows.
async fn texts(root: &Store) -> BTreeMap<u64, String> {
    let mut found = BTreeMap::new();
    for (_, batch) in blocks(&root.child("dataset")).await {
        let origins = batch["origin"].as_primitive::<UInt64Type>().values();
        let boxes = batch["boxes"].as_string::<i64>().iter().flatten();
        found.extend(origins.iter().copied().zip(boxes.map(str::to_owned)));
    }
    found
}

#[tokio::test]
async fn rows_of_several_parts_have_the_boxes_of_their_images_which_are_no_numbers() {
    let root = Store::memory();
    let columns = [
        ("image", Binary),
        ("label", Int64),
        ("marks", Utf8),
        ("size", Float64),
    ];
    let each = rows().into_iter().zip(0..).map(|(mut row, i)| {
        row.push(json!(f64::from(i % 9)));
        row
    });
    let mut zone = LandingZone::new(&root, "a", &columns);
    zone.batch(&each.collect::<Vec<_>>()).await;
    let multi = |more: &str| {
        format!(
            "sources = [\"a\"]\nkind = \"multi\"\nimage_column = \"image\"\ntarget = \"label\"\n\
             task = \"classification\"\nimage = {{ {HALF} }}\n{more}"
        )
    };
    let named = multi("features = [\"size\", \"marks\"]");
    let refused = testing::build_with(&root, &named, 1).await.unwrap_err();
    let expected = "`dataset.features`: `marks` is the image or the text of the rows, or belongs";
    assert!(refused.to_string().starts_with(expected), "{refused}");
    let report = testing::build_with(&root, &multi(""), 2).await.unwrap();
    assert_eq!((report.boxes.unwrap().kept, report.rejected), (120, 0));
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    assert!(matches!(manifest.layout, Layout::Multi { features: 1, .. }));
    assert!(verify(&dataset).await.unwrap().problems.is_empty());
    let found = texts(&root).await;
    assert_eq!(found.len(), 120);
    assert!(found[&5].contains(r#""label":"n5""#), "{}", found[&5]);
}

/// The micrographs with the boxes of their table, which has a row for each.
#[tokio::test]
async fn boxes_of_real_images_are_halved_with_them_and_none_is_lost() {
    let Some(table) = shared("images/bccd/labels.csv") else {
        return;
    };
    let mut boxes: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let table_text = fs::read_to_string(&table).unwrap();
    for line in table_text.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let [x, y, right, bottom] = [4, 5, 6, 7].map(|at: usize| cells[at].parse::<i64>().unwrap());
        let found = json!({ "bbox": [x, y, right - x, bottom - y], "label": cells[3] });
        boxes.entry(cells[0].to_owned()).or_default().push(found);
    }
    let root = Store::memory();
    let each = boxes.iter().map(|(name, boxes)| {
        let file = fs::read(table.with_file_name(name)).unwrap();
        let text = serde_json::to_string(boxes).unwrap();
        vec![json!(file), json!(1), json!(text)]
    });
    land(&root, &each.collect::<Vec<_>>()).await;
    let dataset = "sources = [\"a\"]\nkind = \"images\"\nsplit = { train = 1, validation = 0, test = 0 }\n\
                   image = { store = \"raw\", resize = \"shorter_side\", size = 240, boxes = \"marks\" }\n";
    let report = testing::build_with(&root, dataset, 2).await.unwrap();
    let all = boxes.values().map(Vec::len).sum::<usize>() as u64;
    assert_eq!(all, 935);
    assert_eq!(report.boxes, Some(BoxCounts { kept: all, lost: 0 }));
    for (origin, text) in texts(&root).await {
        let row = usize::try_from(origin & 0xff_ffff).unwrap();
        let (_, landed) = boxes.iter().nth(row).unwrap();
        let stored: Vec<Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(stored.len(), landed.len());
        for (stored, landed) in stored.iter().zip(landed) {
            assert_eq!(stored["label"], landed["label"]);
            for side in 0..4 {
                let number = |found: &Value| found["bbox"][side].as_f64().unwrap();
                assert!((number(stored) * 2.0 - number(landed)).abs() < 1e-9);
            }
        }
    }
}
