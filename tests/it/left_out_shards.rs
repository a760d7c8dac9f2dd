//! Shards of a dataset that are gone when a model is trained and evaluated.

use std::{fs, path::Path};

use serde_json::Value;

use crate::support::{pipeline, run};

const PIPELINE: &str = r#"[pipeline]
name = "rows"
root = "out"
[[source]]
name = "rows"
type = "files"
url = "rows-*.csv"
[dataset]
target = "y"
drop = ["id"]
[train]
model = { type = "mlp", hidden = [4] }
epochs = 1
loader = { bad_shards = "skip" }
"#;

/// Lands rows as a file of their own, and adds them to the dataset as shards of their own.
fn add(folder: &Path, file: &str, name: &str, rows: std::ops::Range<u32>) {
    let mut csv = "id,a,b,y\n".to_owned();
    for i in rows {
        let (a, b) = (f64::from(i * 37 % 101), f64::from(i * 53 % 97));
        csv += &format!("{i},{a},{b},{}\n", 2.0 * a - b);
    }
    fs::write(folder.join(name), csv).unwrap();
    run(folder, &["ingest", file]).expect(0);
    run(folder, &["shards", "build", file]).expect(0);
}

#[test]
fn shards_that_are_left_out_are_named_in_the_reports() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = pipeline(at, PIPELINE);
    add(at, file, "rows-1.csv", 0..400);
    add(at, file, "rows-2.csv", 400..600);
    let train = at.join("out/dataset/shards/train");
    let shards = fs::read_dir(&train).unwrap();
    let mut names: Vec<String> = shards
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".arrow"))
        .collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
    fs::remove_file(train.join(&names[1])).unwrap();
    for arguments in [
        &["train", file, "--json"] as &[&str],
        &["eval", file, "--split", "train", "--json"],
    ] {
        let report = run(at, arguments).expect(0).json();
        let warnings = report["warnings"].as_array().unwrap();
        let found: Vec<&Value> = warnings
            .iter()
            .filter(|warning| warning["code"] == "shards_left_out")
            .collect();
        let [warning] = found[..] else {
            panic!("{report}")
        };
        let message = warning["message"].as_str().unwrap();
        assert!(message.contains("1 shard of the train split"), "{message}");
        assert!(message.contains(&names[1]), "{message}");
        assert_eq!(warning["key"], "train.loader.bad_shards");
    }
    let runs = fs::read_dir(at.join("out/train")).unwrap();
    let records = runs.filter_map(|run| fs::read(run.unwrap().path().join("run.json")).ok());
    let records: Vec<Vec<u8>> = records.collect();
    let [record] = &records[..] else {
        panic!("{} records", records.len())
    };
    let record: Value = serde_json::from_slice(record).unwrap();
    let left_out = &record["left_out_shards"]["train"];
    assert_eq!(left_out["shards"], 1, "{record}");
    let path = format!("shards/train/{}", names[1]);
    assert_eq!(left_out["paths"], serde_json::json!([path]), "{record}");
    assert!(left_out["rows"].as_u64().unwrap() > 0, "{record}");
}
