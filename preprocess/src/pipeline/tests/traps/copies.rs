//! The same for copies whose targets differ, and for groups that miss their shares.

use std::collections::BTreeMap;

use feedline_schemas::manifest::ConflictCounts;

use super::*;
use crate::testing::contents;

const LABELLED: [(&str, ColumnType); 3] = [("id", Int64), ("a", Float64), ("y", Float64)];
const KEYS: &str =
    "target = \"y\"\nscale_target = false\nstep = []\ndrop = [\"id\"]\ndedup_ignore = [\"id\"]\n";

/// Contents 0 to 59 in rows 0 to 59. Below 20 they come again with another target, in rows 60 to 79, and below 10 once more
/// with that other one. Each row has an id of its own.
fn labelled() -> Vec<Cells> {
    let first = (0..60).map(|a| (a, a));
    let again = (0..20).chain(0..10).map(|a| (a, a + 1000));
    let rows = first.chain(again).enumerate();
    rows.map(|(id, (a, y))| vec![json!(id), json!(f64::from(a)), json!(f64::from(y))])
        .collect()
}

async fn settled(conflicts: &str) -> Built {
    let dataset = format!("{ALL}{KEYS}{conflicts}\n");
    built(&LABELLED, &labelled(), &dataset).await.unwrap()
}

/// Rows that were kept, by their place.
fn kept(built: &Built) -> Vec<u64> {
    built.rows.iter().map(|row| row.origin.row()).collect()
}

#[tokio::test]
async fn trap_33_of_rows_that_differ_in_the_target_alone_the_rule_keeps_one_or_none() {
    let conflicts = Some(ConflictCounts {
        contents: 20,
        rows: 50,
    });
    let first = settled("conflicts = \"first\"").await;
    assert_eq!(kept(&first), (0..60).collect::<Vec<_>>());
    let majority = settled("conflicts = \"majority\"").await;
    // Below 10 two of three have the other target; from 10 on there is one of each, and the first one counts.
    assert_eq!(kept(&majority), (10..70).collect::<Vec<_>>());
    let dropped = settled("conflicts = \"drop\"").await;
    assert_eq!(kept(&dropped), (20..60).collect::<Vec<_>>());
    for built in [&first, &majority, &dropped] {
        assert_eq!(built.report.conflicts, conflicts);
        assert_eq!((built.report.duplicates, built.report.rejected), (30, 0));
    }
    let left_out = BTreeMap::from([("conflicting_target".to_owned(), 20)]);
    assert_eq!(dropped.report.filtered, left_out);
    assert!(first.report.filtered.is_empty() && majority.report.filtered.is_empty());
    let sample = dropped.report.reject_sample.unwrap();
    assert!(
        sample.contains("\"column\":\"y\",\"value\":\"2 different values"),
        "{sample}"
    );
}

#[tokio::test]
async fn trap_33_without_a_rule_rows_that_differ_in_the_target_are_rows_of_their_own() {
    let found = settled("").await;
    assert_eq!((found.report.duplicates, found.rows.len()), (10, 80));
    assert_eq!(found.report.conflicts, None);
    let keys = KEYS.replace("dedup_ignore = [\"id\"]\n", "");
    let ids = built(&LABELLED, &labelled(), &format!("{ALL}{keys}"))
        .await
        .unwrap();
    assert_eq!((ids.report.duplicates, ids.rows.len()), (0, 90));
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_33_what_is_kept_depends_on_no_partitions() {
    for rule in ["first", "majority", "drop"] {
        let mut found = Vec::new();
        for partitions in [1, 4] {
            let root = Store::memory();
            let mut zone = LandingZone::new(&root, "a", &LABELLED);
            for batch in labelled().chunks(13) {
                zone.batch(batch).await;
            }
            let split = "split = { train = 0.6, validation = 0.2, test = 0.2 }\n";
            let dataset = format!("{split}{KEYS}conflicts = \"{rule}\"\n");
            finished(&root, &dataset, partitions).await.unwrap();
            found.push(contents(&root.child("dataset")).await);
        }
        assert!(found[0] == found[1], "{rule}");
    }
}

#[tokio::test]
async fn trap_33_rows_without_a_usable_target_have_no_say() {
    let columns = [("a", Float64), ("y", Utf8)];
    // Two rows without a class land first, then one of another class, then two that agree.
    let classes = [Value::Null, json!(""), json!("x"), json!("z"), json!("z")];
    let rows: Vec<Cells> = classes
        .into_iter()
        .flat_map(|class| (0..30).map(move |a| vec![json!(f64::from(a)), class.clone()]))
        .collect();
    let keys = "target = \"y\"\ntask = \"classification\"\nstep = []\n";
    for (rule, row) in [("first", 60), ("majority", 90)] {
        let dataset = format!("{ALL}{keys}conflicts = \"{rule}\"\n");
        let found = built(&columns, &rows, &dataset).await.unwrap();
        assert_eq!(kept(&found), (row..row + 30).collect::<Vec<_>>());
        let report = found.report;
        assert_eq!((report.duplicates, report.rejected), (120, 0));
        let conflicts = report.conflicts.unwrap();
        assert_eq!((conflicts.contents, conflicts.rows), (30, 90));
    }
}

#[tokio::test]
async fn rules_for_copies_that_do_not_go_together_are_refused_by_name() {
    for (keys, part) in [
        (
            "conflicts = \"first\"",
            "`dataset.conflicts`: rows have no target to differ in",
        ),
        (
            "target = \"y\"\nconflicts = \"drop\"\ndedup = \"none\"",
            "`dataset.conflicts`: duplicates are kept",
        ),
        (
            "dedup_ignore = [\"id\"]\ndedup = \"none\"",
            "`dataset.dedup_ignore`: duplicates are kept",
        ),
        ("dedup_ignore = [\"ids\"]", "did you mean `id`?"),
        ("dedup_ignore = [\"id\", \"id\"]", "listed twice"),
        (
            "target = \"y\"\ndedup_ignore = [\"y\"]",
            "`y` is the target",
        ),
        (
            "target = \"y\"\nconflicts = \"first\"\ndedup_ignore = [\"id\", \"a\"]",
            "no column is left that rows could differ in",
        ),
        (
            "kind = \"characters\"\ncontent = \"a\"\ndedup_ignore = [\"id\"]",
            "images and documents are compared by their content",
        ),
    ] {
        let message = match built(&LABELLED, &labelled(), &format!("{keys}\n")).await {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{keys}"),
        };
        assert!(message.contains(part), "{keys}: {message}");
    }
}

/// Half of the rows belong to one, the others to a hundred.
fn visits() -> Vec<Cells> {
    let who = |i: i32| if i < 500 { 0 } else { 1 + i % 100 };
    (0..1000)
        .map(|i| vec![json!(who(i)), json!(f64::from(i))])
        .collect()
}

const VISITS: [(&str, ColumnType); 2] = [("who", Int64), ("x", Float64)];

#[tokio::test]
async fn trap_35_shares_that_a_large_group_misses_are_told_with_rows_and_groups() {
    // With and without the engine's sorts.
    for shuffle in [true, false] {
        let visited = async |tolerance: &str| {
            let split = format!("split = {{ key = [\"who\"]{tolerance} }}\n");
            let shards = format!("shards = {{ shuffle = {shuffle} }}\n");
            built(&VISITS, &visits(), &format!("{split}{shards}")).await
        };
        let message = match visited(", tolerance = 0.03").await {
            Err(error) => error.to_string(),
            Ok(_) => panic!("no split of these groups is near to its share"),
        };
        for part in [
            "`dataset.split.tolerance`: the ",
            " of 1000 rows, a share of 0.",
            "groups of `who` are not divided",
            "the largest of 500 rows",
        ] {
            assert!(message.contains(part), "{message}");
        }
        let groups = visited(", tolerance = 1.0").await.unwrap().report.groups;
        let groups = groups.unwrap();
        assert_eq!(groups.train + groups.validation + groups.test, 101);
        assert_eq!(groups.largest, 500);
        let free = visited("").await.unwrap().report;
        assert_eq!(
            (free.groups, free.train + free.validation + free.test),
            (None, 1000)
        );
    }
}

#[tokio::test]
async fn trap_34_a_group_that_is_most_of_the_rows_leaves_no_split_empty_in_silence() {
    let who = |i: i32| i32::from(i >= 900);
    let rows: Vec<Cells> = (0..1000)
        .map(|i| vec![json!(who(i)), json!(f64::from(i))])
        .collect();
    let message = match built(&VISITS, &rows, "split = { key = [\"who\"] }\n").await {
        Err(error) => error.to_string(),
        Ok(_) => panic!("two groups cannot fill three splits"),
    };
    assert!(
        message.contains("`who` has too few distinct values to fill every split"),
        "{message}"
    );
    assert!(message.contains("1000"), "{message}");
}
