//! Datasets joined by time, from landing zones to shards.

use feedline_schemas::{
    config::{PipelineConfig, load},
    record::ColumnType::{Float64, Int64, Timestamp, Utf8},
    report::DatasetReport,
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::{
    Error, build, read_manifest,
    testing::{Cells, LandingZone, contents, context, written},
    verify,
};

/// One split, and cells as they were joined.
const PLAIN: &str = "sources = [\"a\"]\ntarget = \"y\"\nscale_target = false\nmax_reject_fraction = 1.0\nshards = { shuffle = false }\n\
                     split = { train = 1.0, validation = 0.0, test = 0.0 }\n\
                     step = [{ type = \"impute\", strategy = \"constant\", value = -1.0 }]\n";

fn pipeline(dataset: &str) -> PipelineConfig {
    let source =
        |name: &str| format!("[[source]]\nname = \"{name}\"\ntype = \"files\"\nurl = \"x.csv\"\n");
    let sources: String = ["a", "b", "c"].map(source).concat();
    let text = format!("[pipeline]\nname = \"p\"\n{sources}[dataset]\n{dataset}\n");
    load("p.toml", &text, &[]).unwrap().config
}

async fn built(root: &Store, dataset: &str) -> Result<DatasetReport, Error> {
    let (context, _scratch) = context(root, 2);
    build(&pipeline(&format!("{PLAIN}{dataset}")), &context).await
}

async fn failure(root: &Store, dataset: &str) -> String {
    built(root, dataset).await.unwrap_err().to_string()
}

/// Rows of the dataset, in the order they landed.
async fn found(root: &Store) -> Vec<Vec<f32>> {
    let mut rows = written(&root.child("dataset")).await;
    rows.sort_by_key(|row| row.origin);
    rows.into_iter().map(|row| row.x).collect()
}

fn at(time: &str) -> Value {
    json!(format!("2024-01-01 {time}:00"))
}

/// Rows at times in source `a`.
async fn rows() -> Store {
    let root = Store::memory();
    let rows = [
        (json!(0), at("00:00")),
        (json!(0), at("00:30")),
        (json!(0), at("05:00")),
        (json!(0), at("05:30")),
        (json!(1), at("02:00")),
        (json!(1), at("04:00")),
        (json!(2), at("05:00")),
        (Value::Null, at("05:00")),
        (json!(0), json!("soon")),
    ];
    let rows = rows.into_iter().enumerate();
    let rows: Vec<Cells> = rows.map(|(y, (who, at))| vec![who, at, json!(y)]).collect();
    LandingZone::new(&root, "a", &[("who", Int64), ("at", Utf8), ("y", Int64)])
        .batch(&rows)
        .await;
    root
}

/// The same, and readings in source `b`, which lands its newest first.
async fn both() -> Store {
    let root = rows().await;
    let mut zone = LandingZone::new(&root, "b", &[("id", Utf8), ("at", Utf8), ("v", Float64)]);
    zone.batch(&[
        vec![json!("0"), at("05:00"), json!(2.0)],
        vec![json!("1"), at("03:00"), json!(7.0)],
    ])
    .await;
    zone.batch(&[
        vec![json!("0"), at("00:00"), json!(1.0)],
        vec![json!("0"), json!("never"), json!(9.0)],
    ])
    .await;
    root
}

/// A join by `who` and the time, with further keys.
fn joined(keys: &str) -> String {
    format!(
        "features = [\"v\", \"old\"]\njoin = [{{ source = \"b\", left = \"who\", right = \"id\", match = \"asof\", \
         time = {{ column = \"at\" }}, age = \"old\"{keys} }}]\n"
    )
}

#[tokio::test]
async fn every_row_gets_the_newest_that_came_before_it() {
    let none = [-1.0, -1.0];
    let hours = |hours: f32| 3_600.0 * hours;
    let cases: [(&str, [[f32; 2]; 6]); 3] = [
        (
            "",
            [
                none,
                [1.0, hours(0.5)],
                [1.0, hours(5.0)],
                [2.0, hours(0.5)],
                none,
                [7.0, hours(1.0)],
            ],
        ),
        (
            ", allow_exact_matches = true",
            [
                [1.0, 0.0],
                [1.0, hours(0.5)],
                [2.0, 0.0],
                [2.0, hours(0.5)],
                none,
                [7.0, hours(1.0)],
            ],
        ),
        (
            ", tolerance = \"1h\"",
            [
                none,
                [1.0, hours(0.5)],
                none,
                [2.0, hours(0.5)],
                none,
                [7.0, hours(1.0)],
            ],
        ),
    ];
    for (keys, expected) in cases {
        let root = both().await;
        let keys = format!(", unmatched = \"null\"{keys}");
        let report = built(&root, &joined(&keys)).await.unwrap();
        let rows = found(&root).await;
        assert_eq!(rows[..6], expected, "{keys}");
        // No such key, no key, no time.
        assert_eq!(rows[6..], [none; 3], "{keys}");
        let join = &report.joins[0];
        let partners = expected.iter().filter(|row| row[0] > 0.0).count() as u64;
        assert_eq!(
            (join.matched, join.unmatched, join.unused),
            (partners, 9 - partners, 1)
        );
        let checked = verify(&root.child("dataset")).await.unwrap();
        assert!(checked.problems.is_empty());
    }
}

#[tokio::test]
async fn superseded_versions_of_a_joined_source_are_joined_to_no_row() {
    let root = rows().await;
    let columns = [("n", Int64), ("id", Utf8), ("at", Utf8), ("v", Float64)];
    let mut zone = LandingZone::new(&root, "b", &columns);
    let reading = |n: i64, hour: &str, v: f64| vec![json!(n), json!("0"), at(hour), json!(v)];
    zone.batch(&[reading(1, "00:10", 5.0), reading(2, "00:00", 1.0)])
        .await;
    // Reading 1 was moved.
    zone.batch(&[reading(1, "05:10", 6.0)]).await;
    let dataset = format!("{PLAIN}{}", joined(", unmatched = \"null\""));
    let values = async |key: &[&str]| {
        let mut config = pipeline(&dataset);
        config.source[1].key = key.iter().map(|key| (*key).to_owned()).collect();
        let (context, _scratch) = context(&root, 2);
        let report = build(&config, &context).await.unwrap();
        let rows = found(&root).await;
        (
            rows.iter().take(4).map(|row| row[0]).collect::<Vec<_>>(),
            report.joins[0].unused,
        )
    };
    assert_eq!(values(&[]).await, (vec![-1.0, 5.0, 5.0, 6.0], 1));
    assert_eq!(values(&["n"]).await, (vec![-1.0, 1.0, 1.0, 6.0], 0));
}

#[tokio::test]
async fn rows_that_nothing_came_before_are_set_aside_by_the_rule_of_the_join() {
    for (rule, rejected, filtered) in [("reject", 5, 0), ("drop", 0, 5), ("null", 0, 0)] {
        let root = both().await;
        let keys = format!(", unmatched = \"{rule}\"");
        let report = built(&root, &joined(&keys)).await.unwrap();
        assert_eq!(report.rejected, rejected);
        assert_eq!(report.filtered.values().sum::<u64>(), filtered);
        assert_eq!(report.train, 9 - rejected - filtered);
        if rule == "reject" {
            let sample = report.reject_sample.unwrap();
            assert!(sample.contains("0 at 2024-01-01T00:00:00Z"), "{sample}");
        }
    }
}

#[tokio::test]
async fn one_of_several_readings_of_one_time_counts_by_rule() {
    let root = both().await;
    let mut zone = LandingZone::new(&root, "c", &[("who", Int64), ("at", Utf8), ("v", Int64)]);
    let reading = |time: &str, v: i64| vec![json!(0), at(time), json!(v)];
    zone.batch(&[reading("00:05", 0), reading("00:10", 3)])
        .await;
    zone.batch(&[reading("00:10", 4)]).await;
    let join = |rule: &str| {
        format!(
            "features = [\"v\"]\njoin = [{{ source = \"c\", left = \"who\", match = \"asof\", time = {{ column = \"at\" }}, \
             unmatched = \"null\"{rule} }}]\n"
        )
    };
    assert_eq!(
        failure(&root, &join("")).await,
        "`dataset.join.0.duplicates`: two rows of `0` in source `c` are at 2024-01-01T00:10:00Z (row 1 of batch 0 and row 0 of \
         batch 1), so neither is the newest; say which of them is taken, the `first` or the `last`, or land one of them"
    );
    for (rule, expected) in [("first", 3.0_f32), ("last", 4.0)] {
        let join = join(&format!(", duplicates = \"{rule}\""));
        let report = built(&root, &join).await.unwrap();
        assert_eq!(found(&root).await[1], [expected]);
        assert_eq!(report.joins[0].unused, 2);
    }
}

#[tokio::test]
async fn times_are_read_as_series_read_them_and_a_key_is_not_needed() {
    let root = rows().await;
    // 04:30 in UTC, as microseconds; and 04:45, as the local time of Rome.
    let mut zone = LandingZone::new(&root, "b", &[("when", Timestamp), ("rate", Float64)]);
    zone.batch(&[vec![json!(1_704_083_400_000_000_i64), json!(5.0)]])
        .await;
    let mut zone = LandingZone::new(
        &root,
        "c",
        &[("day", Utf8), ("hour", Utf8), ("price", Int64)],
    );
    zone.batch(&[vec![json!("01/01/2024"), json!("05:45"), json!(8)]])
        .await;
    let dataset = "features = [\"rate\", \"price\"]\njoin = [\
        { source = \"b\", match = \"asof\", time = { column = \"at\" }, right_time = { column = \"when\" }, unmatched = \"null\" }, \
        { source = \"c\", match = \"asof\", time = { column = \"at\" }, right_time = { column = \"day\", clock = \"hour\", \
        format = \"%d/%m/%Y %H:%M\", zone = \"Europe/Rome\" }, unmatched = \"null\" }]\n";
    let report = built(&root, dataset).await.unwrap();
    let rows = found(&root).await;
    // The row without a key has a time, which is all that is asked.
    assert_eq!(rows[5], [-1.0, -1.0]);
    for later in [2, 3, 6, 7] {
        assert_eq!(rows[later], [5.0, 8.0]);
    }
    assert_eq!(rows[8], [-1.0, -1.0]);
    let matched: Vec<u64> = report.joins.iter().map(|join| join.matched).collect();
    assert_eq!(matched, [4, 4]);
}

#[tokio::test]
async fn a_join_by_time_can_use_what_an_earlier_join_brought() {
    let root = both().await;
    let mut zone = LandingZone::new(&root, "c", &[("who", Int64), ("station", Utf8)]);
    zone.batch(&[vec![json!(0), json!("1")], vec![json!(1), json!("0")]])
        .await;
    let dataset = "features = [\"v\"]\njoin = [{ source = \"c\", left = \"who\", unmatched = \"null\" }, \
                   { source = \"b\", left = \"station\", right = \"id\", match = \"asof\", time = { column = \"at\" }, \
                   unmatched = \"null\" }]\n";
    let report = built(&root, dataset).await.unwrap();
    let expected = [-1.0_f32, -1.0, 7.0, 7.0, 1.0, 1.0, -1.0, -1.0, -1.0].map(|v| vec![v]);
    assert_eq!(found(&root).await, expected);
    let join = &report.joins[1];
    assert_eq!((join.matched, join.unmatched, join.unused), (4, 5, 2));
    let manifest = read_manifest(&root.child("dataset")).await.unwrap();
    assert_eq!(manifest.counts.joins, report.joins);
}

/// Rows in three batches, every 10 seconds, and readings of ten entities in two, which land in no order.
async fn many(root: &Store, reading: impl Fn(i64) -> Value) {
    let columns = [("who", Int64), ("t", Int64), ("y", Int64)];
    let mut zone = LandingZone::new(root, "a", &columns);
    for part in [0..400, 400..800, 800..1_200] {
        let row = |i: i64| vec![json!(i * 7 % 12), json!(10 * (i * 611 % 1_200)), json!(i)];
        zone.batch(&part.map(row).collect::<Vec<Cells>>()).await;
    }
    let columns = |v| [("who", Utf8), ("ms", Int64), ("v", v)];
    let mut zone = LandingZone::new(root, "b", &columns(Int64));
    let cells = |i: i64| {
        let place = i * 7_919 % 20_000;
        let who = (place % 10).to_string();
        vec![json!(who), json!(place * 600), reading(place)]
    };
    zone.batch(&(0..9_000).map(cells).collect::<Vec<Cells>>())
        .await;
    zone.evolve(&columns(Float64));
    zone.batch(&(9_000..20_000).map(cells).collect::<Vec<Cells>>())
        .await;
}

const MANY: &str = "features = [\"v\"]\njoin = [{ source = \"b\", left = \"who\", match = \"asof\", \
                    time = { column = \"t\", unit = \"s\" }, right_time = { column = \"ms\", unit = \"ms\" }, \
                    unmatched = \"null\" }]\n";

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_depend_neither_on_partitions_nor_on_memory() {
    let mut all = Vec::new();
    for (partitions, memory_bytes) in [(1, None), (2, Some(8 << 20)), (8, None)] {
        let root = Store::memory();
        many(&root, |place| json!(place)).await;
        let (mut context, _scratch) = context(&root, partitions);
        context.memory_bytes = memory_bytes;
        let dataset = format!("{PLAIN}{MANY}");
        let report = build(&pipeline(&dataset), &context).await.unwrap();
        let join = &report.joins[0];
        // Two of twelve entities have no readings, and nothing comes before the first.
        assert_eq!(
            (report.rows_in, join.matched + join.unmatched),
            (1_200, 1_200)
        );
        assert!((990..=1_000).contains(&join.matched), "{}", join.matched);
        all.push(contents(&root.child("dataset")).await);
    }
    assert!(all[0] == all[1] && all[0] == all[2]);
}

#[tokio::test]
async fn trap_23_readings_from_an_instant_on_change_no_row_before_it() {
    const CUT: i64 = 6_000;
    let mut all = Vec::new();
    for is_changed in [false, true] {
        let root = Store::memory();
        let reading = |place: i64| match is_changed && place * 600 >= CUT * 1_000 {
            true => json!(-place),
            false => json!(place),
        };
        many(&root, reading).await;
        built(&root, MANY).await.unwrap();
        all.push(found(&root).await);
    }
    let time = |i: i64| 10 * (i * 611 % 1_200);
    let same: Vec<bool> = all[0]
        .iter()
        .zip(&all[1])
        .map(|(one, other)| one == other)
        .collect();
    assert!((0..).zip(&same).all(|(i, same)| *same || time(i) > CUT));
    // What was changed is seen behind it.
    assert!(same.iter().filter(|same| !**same).count() > 300);
}

#[tokio::test]
async fn a_time_that_is_numbers_on_one_side_and_text_on_the_other_asks_for_both_to_be_said() {
    let root = Store::memory();
    let columns = [("who", Int64), ("at", Int64), ("y", Int64)];
    LandingZone::new(&root, "a", &columns)
        .batch(&[vec![json!(0), json!(1_704_067_200), json!(1)]])
        .await;
    let columns = [("who", Int64), ("at", Utf8), ("v", Float64)];
    LandingZone::new(&root, "b", &columns)
        .batch(&[vec![json!(0), json!("2023-12-31 23:00:00"), json!(2.0)]])
        .await;
    let join = |times: &str| {
        format!(
            "features = [\"v\"]\njoin = [{{ source = \"b\", left = \"who\", match = \"asof\", {times} }}]\n"
        )
    };
    let refused = failure(&root, &join("time = { column = \"at\", unit = \"s\" }")).await;
    assert_eq!(
        refused,
        "`dataset.join.0.right_time`: column `at` holds numbers in the rows and text in source `b`, so `time` cannot say how \
         both are read; say here when the rows of `b` were known, such as `right_time = { column = \"at\" }`"
    );
    let times = "time = { column = \"at\", unit = \"s\" }, right_time = { column = \"at\" }";
    built(&root, &join(times)).await.unwrap();
    assert_eq!(found(&root).await, [[2.0]]);
}

#[tokio::test]
async fn a_zone_of_timestamps_names_the_type_with_which_it_applies() {
    let root = rows().await;
    let columns = [("id", Int64), ("at", Timestamp), ("v", Float64)];
    LandingZone::new(&root, "b", &columns)
        .batch(&[vec![json!(0), json!(0), json!(1.0)]])
        .await;
    let join = "join = [{ source = \"b\", left = \"who\", right = \"id\", match = \"asof\", time = { column = \"at\" }, \
                right_time = { column = \"at\", zone = \"Europe/Berlin\" } }]\n";
    let refused = failure(&root, join).await;
    assert!(
        refused.starts_with("`dataset.join.0.right_time.zone`: column `at` holds no text"),
        "{refused}"
    );
    assert!(
        refused.contains("`contract.column.\"at\".type = \"text\"`"),
        "{refused}"
    );
}

#[tokio::test]
async fn wrong_settings_are_named() {
    let root = both().await;
    let check = async |keys: &str, message: &str| {
        let refused = failure(&root, &format!("join = [{{ source = \"b\", {keys} }}]\n")).await;
        assert!(refused.starts_with(message), "{refused}");
    };
    let asof = |keys: &str| format!("left = \"who\", right = \"id\", match = \"asof\", {keys}");
    for key in [
        "time = { column = \"at\" }",
        "right_time = { column = \"at\" }",
        "tolerance = \"1h\"",
        "allow_exact_matches = true",
        "duplicates = \"last\"",
        "age = \"old\"",
    ] {
        let name = key.split(' ').next().unwrap();
        let message = format!("`dataset.join.0.{name}`: only a join by time has this key");
        check(&format!("left = \"who\", right = \"id\", {key}"), &message).await;
    }
    check(
        &asof("tolerance = \"1h\""),
        "`dataset.join.0.time`: name the column with the time of each row",
    )
    .await;
    check(
        &asof("time = { column = \"ta\" }"),
        "`dataset.join.0.time.column`: there is no column `ta` among `who`, `at`, `y`",
    )
    .await;
    check(
        &asof("time = { column = \"y\" }"),
        "`dataset.join.0.time.unit`: column `y` holds numbers: say whether they are",
    )
    .await;
    check(
        &asof("time = { column = \"y\", unit = \"s\" }"),
        "`dataset.join.0.right_time`: source `b` has no column `y`; say here when the rows of `b` were known",
    )
    .await;
    check(
        &asof("time = { column = \"at\" }, right_time = { column = \"at\", zone = \"Nowhere\" }"),
        "`dataset.join.0.right_time.zone`: there is no time zone `Nowhere`",
    )
    .await;
    check(
        &asof("time = { column = \"at\" }, age = \"v\""),
        "`dataset.join.0.age`: there is a column `v`, choose another name",
    )
    .await;
    check(
        "right = \"id\", match = \"asof\", time = { column = \"at\" }",
        "`dataset.join.0.left`: name the column of the rows",
    )
    .await;
    check(
        "right = \"id\"",
        "`dataset.join.0.left`: name the column of the rows",
    )
    .await;
}
