//! Splits by what the data say: an expression, a column, the time, a frozen source; and columns that shards keep.

use std::collections::{BTreeMap, BTreeSet};

use arrow::{
    array::{Array, AsArray},
    datatypes::Int64Type,
};
use feedline_schemas::{
    manifest::Split,
    record::ColumnType::{self, Binary, Float64, Int64, Timestamp, Utf8},
    report::DatasetReport,
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::{
    Error,
    testing::{
        Cells, LandingZone, Written, blocks, build_with, coloured, contents, flip_bit, written,
    },
    verify,
};

/// W1 of the comparison with other tools.
const BUCKETS: &str = "split = { by = \"expression\", expression = \"\"\"case \
    when (id * 2654435761) % 4294967296 / 65536 % 10 < 8 then 'train' \
    when (id * 2654435761) % 4294967296 / 65536 % 10 = 8 then 'validation' else 'test' end\"\"\" }\n";

async fn zone(root: &Store, source: &str, columns: &[(&str, ColumnType)], rows: &[Cells]) {
    LandingZone::new(root, source, columns).batch(rows).await;
}

async fn build_a(root: &Store, dataset: &str, partitions: usize) -> Result<DatasetReport, Error> {
    build_with(root, &format!("sources = [\"a\"]\n{dataset}"), partitions).await
}

async fn failure(root: &Store, dataset: &str) -> String {
    build_a(root, dataset, 2).await.unwrap_err().to_string()
}

/// Splits of the rows of source `a`, by row number; without dropped rows.
async fn splits(root: &Store) -> BTreeMap<u64, Split> {
    let rows: Vec<Written> = written(&root.child("dataset")).await;
    let of_a = rows.iter().filter(|row| row.origin.source() == 0);
    of_a.map(|row| (row.origin.row(), row.split)).collect()
}

/// Rows of an id and a number, all different.
fn numbered(ids: impl Iterator<Item = i64>) -> Vec<Cells> {
    ids.enumerate()
        .map(|(i, id)| vec![json!(id), json!(i as f64 / 3.0), json!(i % 2)])
        .collect()
}

const NUMBERED: [(&str, ColumnType); 3] = [("id", Int64), ("x", Float64), ("label", Int64)];

#[tokio::test(flavor = "multi_thread")]
async fn an_expression_names_the_split_and_its_integers_are_exact() {
    let mut found = Vec::new();
    // The largest whose product with the factor has 64 bits.
    let ids: Vec<i64> = (0..800)
        .chain([3_474_701_543, 1 << 31, 4_000_000])
        .collect();
    for partitions in [1, 3] {
        let root = Store::memory();
        zone(&root, "a", &NUMBERED, &numbered(ids.iter().copied())).await;
        let config = format!(
            "{BUCKETS}target = \"label\"\ntask = \"classification\"\npassthrough = [\"id\", \"label\"]\n"
        );
        let report = build_a(&root, &config, partitions).await.unwrap();
        assert_eq!((report.rows_in, report.rejected), (803, 0));
        for (row, split) in splits(&root).await {
            let id = ids[usize::try_from(row).unwrap()];
            let bucket = i128::from(id) * 2_654_435_761 % (1 << 32) / (1 << 16) % 10;
            let expected = match bucket {
                0..8 => Split::Train,
                8 => Split::Validation,
                _ => Split::Test,
            };
            assert_eq!(split, expected, "{id}");
        }
        found.push(contents(&root.child("dataset")).await);
    }
    assert!(found[0] == found[1]);
}

#[tokio::test]
async fn an_integer_that_leaves_64_bits_ends_the_build() {
    let root = Store::memory();
    zone(
        &root,
        "a",
        &NUMBERED,
        &numbered((0..20).chain([3_474_701_544])),
    )
    .await;
    let message = failure(&root, BUCKETS).await;
    assert!(
        message.starts_with("`dataset.split.expression`: `3474701544 * 2654435761`"),
        "{message}"
    );
}

#[tokio::test]
async fn kept_columns_stand_in_the_shards_as_they_landed() {
    let root = Store::memory();
    let columns = [
        ("id", Int64),
        ("x", Float64),
        ("name", Utf8),
        ("at", Timestamp),
    ];
    let row = |i: i64| {
        let name = if i % 7 == 0 {
            Value::Null
        } else {
            json!(format!("row {i}"))
        };
        vec![
            json!(i + (1 << 60)),
            json!(i as f64),
            name,
            json!(i * 1_000_000),
        ]
    };
    zone(&root, "a", &columns, &(0..300).map(row).collect::<Vec<_>>()).await;
    let config = "passthrough = [\"id\", \"name\", \"at\"]\nshards = { block_bytes = 4096 }\n";
    build_a(&root, config, 2).await.unwrap();
    let dataset = root.child("dataset");
    let mut seen = 0;
    for (_, batch) in blocks(&dataset).await {
        let origins = batch["origin"].as_primitive::<arrow::datatypes::UInt64Type>();
        let ids = batch["id"].as_primitive::<Int64Type>();
        let (names, times) = (batch["name"].as_string::<i32>(), &batch["at"]);
        assert_eq!(batch["x"].as_fixed_size_list().value_length(), 1);
        for row in 0..batch.num_rows() {
            let i = i64::try_from(origins.value(row)).unwrap();
            assert_eq!(ids.value(row), i + (1 << 60));
            let name = names.is_valid(row).then(|| names.value(row).to_owned());
            assert_eq!(name, (i % 7 != 0).then(|| format!("row {i}")));
            let at = times.as_primitive::<arrow::datatypes::TimestampMicrosecondType>();
            assert_eq!(at.value(row), i * 1_000_000);
            seen += 1;
        }
    }
    assert_eq!(seen, 300);
    assert_eq!(
        verify(&dataset).await.unwrap().problems,
        Vec::<String>::new()
    );
    for (keep, part) in [
        ("\"ids\"", "there is no column `ids`"),
        ("\"id\", \"id\"", "listed twice"),
        ("\"x\"", "has the name of a system column of shards"),
    ] {
        let message = failure(&root, &format!("passthrough = [{keep}]\n")).await;
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn a_column_names_the_split_and_rows_that_it_does_not_are_set_aside() {
    let root = Store::memory();
    let fold = |i: usize| match i % 10 {
        0 => Value::Null,
        1 => json!("holdout"),
        2 => json!("test"),
        3 => json!("validation"),
        _ => json!("train"),
    };
    let rows: Vec<Cells> = (0..100).map(|i| vec![json!(i), fold(i)]).collect();
    zone(&root, "a", &[("x", Int64), ("fold", Utf8)], &rows).await;
    let config = "split = { by = \"column\", column = \"fold\" }\nmax_reject_fraction = 0.2\n";
    let report = build_a(&root, config, 2).await.unwrap();
    assert_eq!((report.train, report.validation, report.test), (60, 10, 10));
    assert_eq!(
        report.rejected_by_reason,
        BTreeMap::from([("no_split".to_owned(), 20)])
    );
    let sample = report.reject_sample.unwrap();
    assert!(
        sample.contains("\"column\":\"fold\",\"value\":\"NULL is not train, validation or test\""),
        "{sample}"
    );
    for (row, split) in splits(&root).await {
        let expected = fold(usize::try_from(row).unwrap());
        assert_eq!(Some(split.as_str()), expected.as_str());
    }
    for row in written(&root.child("dataset")).await {
        assert_eq!(row.x.len(), 1, "the column of the split is no feature");
    }
}

#[tokio::test]
async fn a_schema_version_without_the_column_names_no_split() {
    let root = Store::memory();
    let mut landing = LandingZone::new(&root, "a", &[("x", Int64)]);
    landing
        .batch(&(0..2).map(|i| vec![json!(i)]).collect::<Vec<_>>())
        .await;
    landing.evolve(&[("x", Float64), ("fold", Utf8)]);
    landing
        .batch(
            &(2..40)
                .map(|i| vec![json!(i), json!("train")])
                .collect::<Vec<_>>(),
        )
        .await;
    let config = "split = { by = \"expression\", expression = \"case when x >= 0 then fold end\" }\nmax_reject_fraction = 0.5\n";
    let report = build_a(&root, config, 2).await.unwrap();
    assert_eq!(
        (report.train, report.rejected_by_reason["no_split"]),
        (38, 2)
    );
}

#[tokio::test]
async fn an_expression_that_tears_a_key_apart_is_told_with_the_columns_of_the_key() {
    let root = Store::memory();
    let rows: Vec<Cells> = (0..40_i64).map(|i| vec![json!(i), json!(i / 4)]).collect();
    zone(&root, "a", &[("x", Int64), ("patient", Int64)], &rows).await;
    let config = |column: &str| {
        format!(
            "split = {{ by = \"expression\", key = [\"patient\"], expression = \"case when {column} % 10 < 8 then 'train' \
             else 'test' end\" }}\n"
        )
    };
    let message = failure(&root, &config("x")).await;
    let (before, example) = message.split_once(", such as `patient` = ").unwrap();
    assert_eq!(
        before,
        "`dataset.split.expression`: 4 keys appear in more than one split: rows with the same `patient` are given different \
         splits"
    );
    let (patient, advice) = example.split_once("; ").unwrap();
    assert!(["2", "4", "7", "9"].contains(&patient), "{message}");
    assert_eq!(
        advice,
        "write the expression over `patient` alone, or leave out `dataset.split.key`"
    );
    build_a(&root, &config("patient"), 2).await.unwrap();
}

#[tokio::test]
async fn splits_that_are_empty_since_all_rows_conflict_are_told_with_the_rows_that_were_left_out() {
    let root = Store::memory();
    let rows: Vec<Cells> = (0..40_i64)
        .map(|i| vec![json!(i / 2), json!(i % 2)])
        .collect();
    zone(&root, "a", &[("x", Int64), ("y", Int64)], &rows).await;
    let config = "target = \"y\"\nconflicts = \"drop\"\n";
    assert_eq!(
        failure(&root, config).await,
        "the train split is empty although its fraction is 0.8: 0 rows became 0 train, 0 validation, 0 test, and 20 were left out \
         (20 as `conflicting_target`); keep one row of those that differ in the target alone with `dataset.conflicts = \"first\"` \
         or `\"majority\"`"
    );
}

#[tokio::test]
async fn splits_that_an_embargo_or_groups_leave_empty_say_so_with_the_rows_that_these_took() {
    let root = Store::memory();
    let rows = (0..60).map(|i| (i, i % 2));
    zone(&root, "a", &TIMED, &timed(rows)).await;
    let by_time = |keys: &str| format!("split = {{ by = \"time\", time = \"ts\", {keys} }}\n");
    let embargo = "and 12 were left out (12 as `embargo`); `dataset.split.embargo` leaves out the rows next to a boundary";
    for (split, parts) in [
        (
            by_time("embargo = 12"),
            [
                "the validation split is empty although its fraction",
                embargo,
            ],
        ),
        (
            "split = { by = \"range\", embargo = 20 }\n".to_owned(),
            [
                "the validation split is empty although its fraction",
                embargo,
            ],
        ),
        (
            by_time("until = [\"30\", \"36\"], embargo = 6"),
            [
                "the validation split has no row: none between its boundaries is left, of 48 rows",
                embargo,
            ],
        ),
        (
            by_time("until = [\"30\", \"36\"], key = [\"patient\"]"),
            [
                "the train split has no row",
                "and 36 were left out (36 as `group_straddles`); a group of `dataset.split.key` belongs to the split of its last row",
            ],
        ),
    ] {
        let message = failure(&root, &split).await;
        for part in parts {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[tokio::test]
async fn trap_21_a_copy_or_an_entity_that_is_named_in_two_splits_ends_the_build() {
    let root = Store::memory();
    let columns = [("x", Int64), ("patient", Int64), ("fold", Utf8)];
    let fold = |i: i64| if i % 5 == 0 { "test" } else { "train" };
    let rows = |entity: fn(i64) -> i64| -> Vec<Cells> {
        (0..40)
            .map(|i| vec![json!(i), json!(entity(i)), json!(fold(i))])
            .collect()
    };
    zone(&root, "a", &columns, &rows(|i| i / 2)).await;
    let config = "split = { by = \"column\", column = \"fold\", key = [\"patient\"] }\n";
    let message = failure(&root, config).await;
    assert!(
        message.starts_with("`dataset.split.column`: 8 keys appear in more than one split")
            && message.contains("name one split for each `patient`"),
        "{message}"
    );
    let root = Store::memory();
    zone(
        &root,
        "a",
        &columns,
        &rows(|i| i / 5 * 2 + i64::from(i % 5 == 0)),
    )
    .await;
    build_a(&root, config, 2).await.unwrap();

    // An image is identified by its bytes, whatever its other columns hold.
    let root = Store::memory();
    let images: Vec<Cells> = (0..40_u32)
        .map(|i| {
            vec![
                json!(coloured(i / 2 * 2, [4, 4])),
                json!(["train", "test"][(i % 2) as usize]),
            ]
        })
        .collect();
    zone(&root, "a", &[("image", Binary), ("fold", Utf8)], &images).await;
    let config = "kind = \"images\"\nsplit = { by = \"column\", column = \"fold\" }\n";
    let message = failure(&root, &format!("{config}dedup = \"none\"\n")).await;
    assert!(
        message.contains("20 keys appear in more than one split"),
        "{message}"
    );
    let report = build_a(&root, config, 2).await.unwrap();
    assert_eq!((report.duplicates, report.train), (20, 20));
}

#[tokio::test]
async fn copies_that_are_kept_and_parted_by_their_order_are_told_of_with_a_way_out() {
    let root = Store::memory();
    let rows: Vec<Cells> = (0..400).map(|i| vec![json!(i % 200)]).collect();
    zone(&root, "a", &[("x", Int64)], &rows).await;
    let by_order = "split = { by = \"range\" }\n";
    let message = failure(&root, &format!("{by_order}dedup = \"none\"\n")).await;
    let (keys, advice) = message
        .split_once(" keys appear in more than one split (key `")
        .unwrap();
    assert_eq!(keys, "80", "{message}");
    assert!(
        advice.contains("set `dataset.dedup = \"exact\"`, or split by the hash of rows"),
        "{message}"
    );
    let apart = build_a(&root, by_order, 2).await.unwrap();
    assert_eq!(apart.duplicates, 200);
    let together = build_a(&root, "dedup = \"none\"\n", 2).await.unwrap();
    let counts = [together.train, together.validation, together.test];
    assert_eq!(counts.iter().sum::<u64>(), 400);
    assert!(counts.iter().all(|count| count % 2 == 0), "{counts:?}");
}

#[tokio::test]
async fn trap_34_a_rule_that_leaves_no_training_row_is_refused_with_counts() {
    let root = Store::memory();
    zone(&root, "a", &NUMBERED, &numbered(0..30)).await;
    let config = "split = { by = \"expression\", expression = \"case when id < 10 then 'validation' else 'test' end\" }\n";
    let message = failure(&root, config).await;
    assert!(
        message.contains("the train split has no row: it names none, of 30 rows that fell as 0 train, 10 validation, 20 test"),
        "{message}"
    );
    let config = "split = { by = \"time\", time = \"id\", until = [\"0\", \"5\"] }\n";
    let message = failure(&root, config).await;
    assert!(
        message.contains("`dataset.split.until`: the train split has no row"),
        "{message}"
    );
}

#[tokio::test]
async fn trap_22_rows_of_a_frozen_test_set_are_taken_from_the_others_and_never_the_reverse() {
    let mut found = Vec::new();
    for partitions in [1, 3] {
        let root = Store::memory();
        zone(&root, "a", &NUMBERED, &numbered(0..200)).await;
        // Ids 190 to 209: the first ten are rows of the other source, one of them twice.
        let mut frozen = numbered(0..210).split_off(190);
        frozen.push(frozen[0].clone());
        // Another row of an entity that the other source has.
        frozen.push(vec![json!(7), json!(-1.0), json!(0)]);
        zone(&root, "b", &NUMBERED, &frozen).await;
        let split = "train = 0.8, validation = 0.2, test = 0, frozen = \"b\"";
        let config = format!("sources = [\"a\"]\nsplit = {{ {split} }}\n");
        let report = build_with(&root, &config, partitions).await.unwrap();
        assert_eq!(
            (report.rows_in, report.duplicates, report.rejected),
            (222, 1, 0)
        );
        assert_eq!(
            report.filtered,
            BTreeMap::from([("of_frozen".to_owned(), 10)])
        );
        assert_eq!((report.train + report.validation, report.test), (190, 21));
        let rows = written(&root.child("dataset")).await;
        assert!(
            rows.iter()
                .all(|row| (row.split == Split::Test) == (row.origin.source() == 1))
        );
        let keyed = format!("sources = [\"a\"]\nsplit = {{ {split}, key = [\"id\"] }}\n");
        let report = build_with(&root, &keyed, partitions).await.unwrap();
        assert_eq!(report.filtered["of_frozen"], 11);
        assert!(!splits(&root).await.contains_key(&7));
        found.push(contents(&root.child("dataset")).await);
    }
    assert!(found[0] == found[1]);
}

#[tokio::test]
async fn a_frozen_source_is_the_whole_test_split_of_a_table() {
    let root = Store::memory();
    zone(&root, "a", &NUMBERED, &numbered(0..50)).await;
    zone(&root, "b", &NUMBERED, &numbered(100..120)).await;
    for (config, part) in [
        (
            "split = { frozen = \"c\", train = 0.9, validation = 0.1, test = 0 }\n",
            "no source `c`",
        ),
        (
            "split = { frozen = \"a\", train = 0.9, validation = 0.1, test = 0 }\n",
            "the only source",
        ),
    ] {
        let message = failure(&root, config).await;
        assert!(message.contains(part), "{message}");
    }
}

const TIMED: [(&str, ColumnType); 3] = [("ts", Int64), ("patient", Int64), ("x", Float64)];

/// Rows at these times of these patients, each another number.
fn timed(rows: impl Iterator<Item = (i64, i64)>) -> Vec<Cells> {
    rows.enumerate()
        .map(|(i, (time, patient))| vec![json!(time), json!(patient), json!(i as f64)])
        .collect()
}

#[tokio::test]
async fn trap_25_rows_are_split_by_their_instants_in_whatever_order_they_landed() {
    // 100 instants of three rows each, out of order.
    let time = |i: i64| (i * 37) % 100;
    let mut found = Vec::new();
    for partitions in [1, 3] {
        let root = Store::memory();
        zone(&root, "a", &TIMED, &timed((0..300).map(|i| (time(i), i)))).await;
        // Shares that end within an instant: its rows stay together, on the earlier side.
        let config = "split = { by = \"time\", time = \"ts\", train = 0.5, validation = 0.25, test = 0.25 }\n";
        build_a(&root, config, partitions).await.unwrap();
        let check = |splits: BTreeMap<u64, Split>, borders: [i64; 2], gone: &BTreeSet<i64>| {
            for i in 0..300_i64 {
                let at = time(i);
                let expected = match at {
                    _ if gone.contains(&at) => None,
                    _ if at < borders[0] => Some(Split::Train),
                    _ if at < borders[1] => Some(Split::Validation),
                    _ => Some(Split::Test),
                };
                let split = splits.get(&u64::try_from(i).unwrap()).copied();
                assert_eq!(split, expected, "row {i} at {at}");
            }
        };
        check(splits(&root).await, [50, 75], &BTreeSet::new());
        let config = "split = { by = \"time\", time = \"ts\", train = 0.504, validation = 0.25, test = 0.246 }\n";
        build_a(&root, config, partitions).await.unwrap();
        check(splits(&root).await, [51, 76], &BTreeSet::new());
        let config =
            "split = { by = \"time\", time = \"ts\", until = [\"40\", \"90\"], embargo = 2 }\n";
        build_a(&root, config, partitions).await.unwrap();
        check(
            splits(&root).await,
            [40, 90],
            &BTreeSet::from([40, 41, 90, 91]),
        );
        found.push(contents(&root.child("dataset")).await);
    }
    assert!(found[0] == found[1]);
}

#[tokio::test]
async fn trap_25_times_as_text_in_mixed_zones_are_one_order() {
    let root = Store::memory();
    // The hour is in UTC or in a zone two hours east of it; every tenth row has no time.
    let time = |i: i64| match i {
        _ if i % 10 == 9 => json!("yesterday"),
        _ if i % 2 == 0 => json!(format!("2024-03-31T{:02}:{:02}:00Z", i / 60, i % 60)),
        _ => json!(format!(
            "2024-03-31T{:02}:{:02}:00+02:00",
            i / 60 + 2,
            i % 60
        )),
    };
    let rows: Vec<Cells> = (0..240).map(|i| vec![time(i), json!(i)]).collect();
    zone(&root, "a", &[("ts", Utf8), ("x", Int64)], &rows).await;
    let config = "split = { by = \"time\", time = \"ts\", until = [\"2024-03-31T01:00:00\", \"2024-03-31T04:00:00+01:00\"], embargo = \"5m\" }\n\
                  max_reject_fraction = 0.2\n";
    let report = build_a(&root, config, 2).await.unwrap();
    assert_eq!(report.rejected_by_reason["no_split"], 24);
    assert_eq!(report.filtered["embargo"], 10);
    for (row, split) in splits(&root).await {
        let expected = match row {
            0..60 => Split::Train,
            65..180 => Split::Validation,
            185..240 => Split::Test,
            _ => panic!("row {row} is in an embargo"),
        };
        assert_eq!(split, expected, "row {row}");
    }
}

#[tokio::test]
async fn trap_24_with_an_embargo_no_window_of_its_span_reaches_over_a_border() {
    let root = Store::memory();
    let times: Vec<i64> = (0..400).map(|i| (i * i * 31) % 9973).collect();
    zone(&root, "a", &TIMED, &timed(times.iter().map(|t| (*t, 0)))).await;
    let config =
        "split = { by = \"time\", time = \"ts\", embargo = 50 }\nmax_reject_fraction = 0.5\n";
    build_a(&root, config, 2).await.unwrap();
    let splits = splits(&root).await;
    let of = |wanted: Split| -> Vec<i64> {
        let rows = splits.iter().filter(|(_, split)| **split == wanted);
        rows.map(|(row, _)| times[usize::try_from(*row).unwrap()])
            .collect()
    };
    for (before, behind) in [
        (Split::Train, Split::Validation),
        (Split::Validation, Split::Test),
    ] {
        let (last, first) = (
            of(before).into_iter().max().unwrap(),
            of(behind).into_iter().min().unwrap(),
        );
        assert!(
            first - last > 50,
            "{before} ends at {last}, {behind} begins at {first}"
        );
    }
}

#[tokio::test]
async fn a_group_belongs_to_the_split_of_its_last_row_and_neither_it_nor_time_leaks() {
    let mut found = Vec::new();
    for partitions in [1, 3] {
        let root = Store::memory();
        // Patients have several rows: some before, some after, some across a boundary.
        let rows: Vec<(i64, i64)> = (0..600)
            .map(|i| (i / 2, i / 30 + (i % 2) * i / 60))
            .collect();
        zone(&root, "a", &TIMED, &timed(rows.iter().copied())).await;
        let config = "split = { by = \"time\", time = \"ts\", key = [\"patient\"], train = 0.6, validation = 0.2, test = 0.2 }\n";
        let report = build_a(&root, config, partitions).await.unwrap();
        let border = |time: i64| match time {
            0..180 => Split::Train,
            180..240 => Split::Validation,
            _ => Split::Test,
        };
        let last = |patient: i64| {
            rows.iter()
                .filter(|row| row.1 == patient)
                .map(|row| row.0)
                .max()
        };
        let splits = splits(&root).await;
        let mut straddling = 0;
        for (i, (time, patient)) in rows.iter().enumerate() {
            let group = border(last(*patient).unwrap());
            let expected = (border(*time) == group).then_some(group);
            assert_eq!(splits.get(&(i as u64)).copied(), expected, "row {i}");
            straddling += u64::from(expected.is_none());
        }
        assert!(straddling > 0);
        assert_eq!(
            report.filtered,
            BTreeMap::from([("group_straddles".to_owned(), straddling)])
        );
        found.push(contents(&root.child("dataset")).await);
    }
    assert!(found[0] == found[1]);
}

#[tokio::test]
async fn a_column_of_the_time_that_does_not_fit_is_refused() {
    let root = Store::memory();
    zone(&root, "a", &TIMED, &timed((0..50).map(|i| (i, i)))).await;
    for (split, part) in [
        ("by = \"time\", time = \"x\"", "column `x` holds no times"),
        ("by = \"time\", time = \"tss\"", "did you mean `ts`?"),
        (
            "by = \"time\", time = \"ts\", embargo = \"7d\"",
            "a number of their unit",
        ),
    ] {
        let message = failure(&root, &format!("split = {{ {split} }}\n")).await;
        assert!(message.contains(part), "{split}: {message}");
    }
}

#[tokio::test]
async fn what_was_built_by_an_expression_is_checked_as_any_dataset_is() {
    let root = Store::memory();
    zone(&root, "a", &NUMBERED, &numbered(0..200)).await;
    build_a(&root, &format!("{BUCKETS}passthrough = [\"id\"]\n"), 2)
        .await
        .unwrap();
    let dataset = root.child("dataset");
    assert!(verify(&dataset).await.unwrap().problems.is_empty());
    let shards = contents(&dataset).await;
    let (path, bytes) = shards
        .iter()
        .find(|(path, _)| path.starts_with("shards/test"))
        .unwrap();
    flip_bit(&dataset, path, bytes.len() / 2).await;
    assert!(!verify(&dataset).await.unwrap().problems.is_empty());
}
