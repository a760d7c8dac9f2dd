//! Predictions of rows that lack the columns which joins of the dataset add.

use std::{collections::BTreeMap, fmt::Write as _, fs, io::Write as _, path::Path, process::Stdio};

use serde_json::Value;

use crate::support::{Finished, feedline, finish, pipeline, run};

const ORDERS: u32 = 400;

const PIPELINE: &str = r#"
[pipeline]
name = "orders"
root = "out"

[[source]]
name = "orders"
type = "files"
url = "orders.csv"

[[source]]
name = "shops"
type = "files"
url = "shops.csv"

[[source]]
name = "prices"
type = "files"
url = "prices.csv"

[dataset]
target = "total"
drop = ["placed_at"]
passthrough = ["id"]
split = { train = 0.7, validation = 0.15, test = 0.15 }

[[dataset.join]]
source = "shops"
left = "shop"
right = "name"
unmatched = "drop"

[[dataset.join]]
source = "prices"
match = "asof"
left = "shop"
time = { column = "placed_at" }
right_time = { column = "changed_at" }

[train]
model = { type = "mlp", hidden = [8] }
batch_size = 32
epochs = 3
"#;

/// The shop of order `i`; the sixth is unknown.
fn shop(i: u32) -> u32 {
    i * 7 % 6
}

/// Day of May on which order `i` was placed.
fn day(i: u32) -> u32 {
    3 + i * 11 % 25
}

/// Day on which the price of order `i` was set: the last one before the order.
fn price_day(i: u32) -> u32 {
    (day(i) - 2) / 5 * 5 + 1
}

fn price(shop: u32, day: u32) -> u32 {
    10 * shop + day
}

fn city(shop: u32) -> &'static str {
    ["Rome", "Oslo", "Lyon"][(shop % 3) as usize]
}

/// Order `i`, with the columns that joins add if `is_joined`.
fn order(i: u32, is_joined: bool) -> String {
    let (shop, day, quantity) = (shop(i), day(i), 1 + i % 9);
    let price = price(shop, price_day(i));
    let total = quantity * price;
    let joined = match is_joined {
        true => format!(",{},{price}", city(shop)),
        false => String::new(),
    };
    format!("{i},s{shop},2024-05-{day:02}T00:00:00Z,{quantity},{total}{joined}\n")
}

fn write_files(folder: &Path) {
    let mut orders = "id,shop,placed_at,quantity,total\n".to_owned();
    let mut joined = "id,shop,placed_at,quantity,total,city,price\n".to_owned();
    for i in 0..ORDERS {
        orders += &order(i, false);
        if shop(i) < 5 {
            joined += &order(i, true);
        }
    }
    fs::write(folder.join("orders.csv"), orders).unwrap();
    fs::write(folder.join("joined.csv"), joined).unwrap();
    let mut shops = "name,city\n".to_owned();
    let mut prices = "shop,changed_at,price\n".to_owned();
    for shop in 0..5 {
        writeln!(shops, "s{shop},{}", city(shop)).unwrap();
        for day in (1..30).step_by(5) {
            let price = price(shop, day);
            writeln!(prices, "s{shop},2024-05-{day:02}T00:00:00Z,{price}").unwrap();
        }
    }
    fs::write(folder.join("shops.csv"), shops).unwrap();
    fs::write(folder.join("prices.csv"), prices).unwrap();
}

/// Bits of the predictions by id, or the reason of a row without one.
type Predictions = BTreeMap<u32, Result<u64, String>>;

fn predictions(folder: &Path, file: &str) -> Predictions {
    let text = fs::read_to_string(folder.join(file)).unwrap();
    let rows = text.lines().map(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        let id = match &row["id"] {
            Value::String(id) => id.parse().unwrap(),
            id => u32::try_from(id.as_u64().unwrap()).unwrap(),
        };
        let found = match row["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(row["prediction"].as_f64().unwrap().to_bits()),
        };
        (id, found)
    });
    rows.collect()
}

/// Predicts `rows` into a file, and returns the report.
fn predict(folder: &Path, file: &str, rows: &str, to: &str) -> Value {
    let predict = [
        "predict",
        file,
        rows,
        "--passthrough",
        "id",
        "--to",
        to,
        "--json",
    ];
    run(folder, &predict).expect(0).json()
}

/// Predictions of `lines`, given on standard input.
fn piped(folder: &Path, file: &str, lines: &str) -> Finished {
    let mut command = feedline(folder);
    command
        .args(["predict", file, "--batch-rows", "1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that refuses its options reads no input.
    let _written = child.stdin.take().unwrap().write_all(lines.as_bytes());
    finish(child.wait_with_output().unwrap())
}

#[test]
fn rows_of_the_base_table_are_joined_as_in_the_build_and_joined_rows_stay() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_files(folder);
    let file = pipeline(folder, PIPELINE);
    run(folder, &["run", file]).expect(0);

    let base = predict(folder, file, "orders.csv", "base.ndjson");
    let unmatched = u64::from(ORDERS / 6);
    let expected = serde_json::json!([
        { "source": "shops", "matched": u64::from(ORDERS) - unmatched, "unmatched": unmatched },
        // The rows that the join before has dropped are not counted.
        { "source": "prices", "matched": u64::from(ORDERS) - unmatched, "unmatched": 0 },
    ]);
    assert_eq!(base["joins"], expected);
    assert_eq!(base["rejected_by_reason"]["unmatched_dropped"], unmatched);
    assert_eq!(base.get("joined_before"), None);
    let base = predictions(folder, "base.ndjson");
    let ids: Vec<u32> = base.keys().copied().collect();
    assert_eq!(ids, (0..ORDERS).collect::<Vec<_>>());

    let joined = predict(folder, file, "joined.csv", "joined-out.ndjson");
    assert_eq!(joined.get("joins"), None);
    assert_eq!(joined["joined_before"], u64::from(ORDERS) - unmatched);
    let joined = predictions(folder, "joined-out.ndjson");
    for (id, found) in &base {
        let unknown = Err("unmatched_dropped".to_owned());
        assert_eq!(found, joined.get(id).unwrap_or(&unknown), "order {id}");
    }
    check_against_eval(folder, file, &base);

    let line = "{\"id\":3,\"shop\":\"s3\",\"placed_at\":\"2024-05-11T00:00:00Z\",\"quantity\":4}\n";
    let found = piped(folder, file, line).expect(0);
    assert!(found.stderr.contains("`prices`: 1 row"), "{found:?}");
    let found: Value = serde_json::from_str(found.stdout.trim()).unwrap();
    let found = found["prediction"].as_f64().unwrap().to_bits();
    assert_eq!(Ok(found), base[&3]);
    check_missing_source(folder, file, &joined);
}

/// The predictions of the test split are those that `eval` makes of the joined rows in its shards.
fn check_against_eval(folder: &Path, file: &str, base: &Predictions) {
    let eval = [
        "eval",
        file,
        "--split",
        "test",
        "--predictions",
        "test.ndjson",
    ];
    run(folder, &eval).expect(0);
    let measured = predictions(folder, "test.ndjson");
    assert!(measured.len() > 20);
    for (id, measured) in measured {
        let [measured, found] =
            [&measured, &base[&id]].map(|bits| f64::from_bits(*bits.as_ref().unwrap()));
        assert!((found / measured - 1.0).abs() < 1e-6, "order {id}");
    }
}

/// Rows that need a joined source which is not landed fail; others do not.
fn check_missing_source(folder: &Path, file: &str, joined: &Predictions) {
    fs::rename(folder.join("out/landing/prices"), folder.join("prices")).unwrap();
    let failed = run(folder, &["predict", file, "orders.csv", "--to", "x.ndjson"]).expect(1);
    let reason =
        "`orders.csv`: it lacks the joined columns `city`, `price`, and they cannot be joined";
    assert!(failed.stderr.contains(reason), "{failed:?}");
    assert!(failed.stderr.contains("source `prices`"), "{failed:?}");
    assert!(!folder.join("x.ndjson").exists());
    predict(folder, file, "joined.csv", "again.ndjson");
    assert_eq!(predictions(folder, "again.ndjson"), *joined);
}
