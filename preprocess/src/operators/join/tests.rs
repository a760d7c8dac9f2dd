use feedline_schemas::{
    record::ColumnType::{self, Binary, Float64, Int64, Utf8},
    report::DatasetReport,
};
use feedline_storage::Store;
use serde_json::{Value, json};

use super::*;
use crate::{
    build, read_manifest, read_transform,
    testing::{Cells, LandingZone, contents, context, pipeline, written},
    verify,
};

/// Splits by a column that no join changes, so that rows stay where they are.
const BASE: &str = "target = \"y\"\nscale_target = false\nstep = [{ type = \"impute\", strategy = \"constant\", value = -1.0 }]\n\
                    split = { key = [\"path\"] }\nfeatures = [\"size\"]\n";

async fn build_with(
    root: &Store,
    dataset: &str,
    partitions: usize,
    memory_bytes: Option<u64>,
) -> Result<DatasetReport, Error> {
    let (mut context, _scratch) = context(root, partitions);
    context.memory_bytes = memory_bytes;
    build(&pipeline(dataset), &context).await
}

async fn refused(root: &Store, dataset: &str) -> String {
    let refused = build_with(root, dataset, 2, None).await;
    refused.unwrap_err().to_string()
}

fn row(i: i64) -> Cells {
    vec![json!(format!("photos/{}/{i}.jpg", i % 7)), json!(i)]
}

/// 300 rows in two batches of source `a`.
async fn rows(root: &Store) {
    let mut zone = LandingZone::new(root, "a", &[("path", Utf8), ("y", Int64)]);
    for part in [0..150, 150..300] {
        zone.batch(&part.map(row).collect::<Vec<Cells>>()).await;
    }
}

/// Labels in source `b` for those of rows `0..320` that no 10 divides, in batches of different columns and types.
async fn labels(root: &Store) {
    let label = |i: i64, size: Value| vec![json!(format!("{i}.jpg")), size];
    let wanted = |part: std::ops::Range<i64>| part.filter(|i| i % 10 != 0);
    let mut zone = LandingZone::new(root, "b", &[("file", Utf8), ("size", Int64)]);
    let whole = wanted(0..100).map(|i| label(i, json!(2 * i)));
    zone.batch(&whole.collect::<Vec<_>>()).await;
    zone.evolve(&[("file", Utf8), ("size", Float64)]);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let halves = wanted(100..320).map(|i| label(i, json!(2.0 * i as f64)));
    zone.batch(&halves.collect::<Vec<_>>()).await;
}

async fn both() -> Store {
    let root = Store::memory();
    rows(&root).await;
    labels(&root).await;
    root
}

fn joined(rule: &str) -> String {
    format!(
        "{BASE}max_reject_fraction = 0.2\njoin = [{{ source = \"b\", left = \"path\", right = \"file\", match = \"name\", \
         unmatched = \"{rule}\" }}]\n"
    )
}

/// Place among the landed rows, and the joined number.
async fn found(root: &Store) -> Vec<(u64, f32)> {
    let rows = written(&root.child("dataset")).await;
    let mut found: Vec<(u64, f32)> = rows
        .iter()
        .map(|row| {
            (
                row.origin.sequence().get() * 150 + row.origin.row(),
                row.x[0],
            )
        })
        .collect();
    found.sort_by_key(|(place, _)| *place);
    found
}

#[tokio::test]
async fn every_row_gets_what_the_other_source_says_of_its_key() {
    for (rule, left) in [("reject", 270), ("drop", 270), ("null", 300)] {
        let root = both().await;
        let report = build_with(&root, &joined(rule), 2, None).await.unwrap();
        assert_eq!(report.train + report.validation + report.test, left);
        assert_eq!((report.rows_in, report.duplicates), (300, 0));
        let expected = JoinCounts {
            source: Name::new("b").unwrap(),
            matched: 270,
            unmatched: 30,
            unused: 18,
        };
        assert_eq!(report.joins, [expected]);
        let (rejected, filtered) = match rule {
            "reject" => (30, 0),
            "drop" => (0, 30),
            _ => (0, 0),
        };
        assert_eq!(report.rejected, rejected);
        assert_eq!(report.filtered.values().sum::<u64>(), filtered);
        for (place, size) in found(&root).await {
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let expected = if place % 10 == 0 {
                -1.0
            } else {
                2.0 * place as f32
            };
            assert!(
                (size - expected).abs() < f32::EPSILON,
                "row {place}: {size}"
            );
        }
        assert!(
            verify(&root.child("dataset"))
                .await
                .unwrap()
                .problems
                .is_empty()
        );
    }
}

/// Labels as [`labels`], and too many unused ones to be held in 4 MiB.
async fn many_labels(root: &Store) {
    labels(root).await;
    let mut zone = LandingZone::new(root, "c", &[("file", Utf8), ("size", Int64)]);
    let label = |i: i64| vec![json!(format!("{i}.jpg")), json!(2 * i)];
    let own = (0..300).filter(|i| i % 10 != 0);
    let all = own.chain(1_000_000..1_060_000).map(label);
    zone.batch(&all.collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn the_bytes_depend_neither_on_partitions_nor_on_how_keys_are_found() {
    let dataset = joined("reject").replace("\"b\"", "\"c\"");
    let mut expected = None;
    for (partitions, memory) in [
        (1, None),
        (2, None),
        (8, None),
        (1, Some(4 << 20)),
        (2, Some(4 << 20)),
    ] {
        let root = Store::memory();
        rows(&root).await;
        many_labels(&root).await;
        let (mut context, _scratch) = context(&root, partitions);
        context.memory_bytes = memory;
        build(&pipeline_of(&["a", "c"], &dataset), &context)
            .await
            .unwrap();
        let found = contents(&root.child("dataset")).await;
        let expected = expected.get_or_insert_with(|| found.clone());
        assert!(
            found == *expected,
            "{partitions} partitions, {memory:?} bytes"
        );
    }
}

#[tokio::test]
async fn what_is_joined_on_is_held_in_memory_only_where_it_is_small() {
    let root = both().await;
    for (joined_bytes, operator) in [(0, "HashJoinExec"), (1 << 20, "SortMergeJoinExec")] {
        let (mut context, scratch) = context(&root, 2);
        context.memory_bytes = Some(4 << 20);
        let session =
            crate::engine::session::session(&context, scratch.path(), 2, None, joined_bytes)
                .unwrap();
        let config = pipeline(&joined("reject"));
        let [a, b] = [0, 1].map(|at: usize| Landed::read(&root, &config.source[at], None));
        let (a, b) = (a.await.unwrap(), b.await.unwrap());
        let mut merged = landed_columns::merge(a.generations.iter().map(|g| &g.schema));
        let joins = resolve(config.dataset.as_ref().unwrap(), &mut merged, &[b]).unwrap();
        let generation = &a.generations[0];
        let rows = read(&session, &a, generation).unwrap();
        let rows = beside(&session, rows, &generation.schema, &joins).unwrap();
        let plan = rows.create_physical_plan().await.unwrap();
        let plan = datafusion::physical_plan::displayable(&*plan).indent(false);
        assert!(plan.to_string().contains(operator), "{plan}");
    }
}

#[tokio::test]
async fn a_key_that_stands_twice_is_refused_and_shown() {
    let root = both().await;
    let mut again = LandingZone::new(&root, "c", &[("file", Utf8), ("size", Int64)]);
    let twice = ["1.jpg", "x/7.jpg", "7.jpg"].map(|file| vec![json!(file), json!(1)]);
    again.batch(&twice).await;
    let pipeline = |matching: &str| {
        let join = format!(
            "{BASE}join = [{{ source = \"c\", left = \"path\", right = \"file\", match = \"{matching}\", unmatched = \"null\" }}]\n"
        );
        pipeline_of(&["a", "c"], &join)
    };
    let (context, _scratch) = context(&root, 2);
    let refused = build(&pipeline("name"), &context).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`dataset.join.0.right`: 1 key appears more than once in column `file` of source `c`, such as `7.jpg` in 2 \
         rows; compare more of it with `match`, or a row would be taken several times: land each key once, or join by another \
         column"
    );
    assert!(build(&pipeline("exact"), &context).await.is_ok());
}

/// Columns of the shops of source `b`, whose rows are versions of one shop each.
const SHOPS: [(&str, ColumnType); 3] = [("id", Int64), ("file", Utf8), ("size", Int64)];

#[tokio::test]
async fn of_a_joined_source_with_a_key_the_latest_version_is_taken() {
    let root = Store::memory();
    rows(&root).await;
    let shop = |i: i64, size: i64| vec![json!(i), json!(i.to_string()), json!(size)];
    let mut zone = LandingZone::new(&root, "b", &SHOPS);
    zone.batch(&(0..300).map(|i| shop(i, -i)).collect::<Vec<_>>())
        .await;
    zone.batch(&(0..300).map(|i| shop(i, i)).collect::<Vec<_>>())
        .await;
    let dataset = format!(
        "{BASE}join = [{{ source = \"b\", left = \"path\", right = \"file\", match = \"stem\" }}]\n"
    );
    let mut config = pipeline_of(&["a", "b"], &dataset);
    let (context, _scratch) = context(&root, 2);
    let refused = build(&config, &context).await.unwrap_err().to_string();
    assert!(
        refused.contains("300 keys appear more than once"),
        "{refused}"
    );
    config.source[1].key = vec!["id".to_owned()];
    let report = build(&config, &context).await.unwrap();
    let join = &report.joins[0];
    assert_eq!((join.matched, join.unmatched, join.unused), (300, 0, 0));
    for (place, size) in found(&root).await {
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let expected = place as f32;
        assert!((size - expected).abs() < f32::EPSILON, "{place}: {size}");
    }
    // Other versions are other values, so another dataset.
    config.source[1].version = Some("size".to_owned());
    zone.batch(&[shop(3, 1)]).await;
    build(&config, &context).await.unwrap();
    config.source[1].version = None;
    assert!(!build(&config, &context).await.unwrap().up_to_date);
    let sizes = found(&root).await;
    assert!(sizes.contains(&(3, 1.0)), "{sizes:?}");
}

#[tokio::test]
async fn keys_that_appear_twice_name_the_key_of_the_source_as_a_remedy() {
    let root = Store::memory();
    rows(&root).await;
    let mut zone = LandingZone::new(&root, "b", &SHOPS);
    let shop = |id: i64| vec![json!(id), json!("photos/7/7.jpg"), json!(id)];
    zone.batch(&[shop(1), shop(2)]).await;
    let dataset =
        format!("{BASE}join = [{{ source = \"b\", left = \"path\", right = \"file\" }}]\n");
    let mut config = pipeline_of(&["a", "b"], &dataset);
    let (context, _scratch) = context(&root, 2);
    let refused = build(&config, &context).await.unwrap_err().to_string();
    assert!(
        refused.ends_with(
            "a row would be taken several times: if these rows are versions of one thing, set `key = [\"file\"]` of source `b`, \
             so that the latest version of each is read; else land each key once, or join by another column"
        ),
        "{refused}"
    );
    config.source[1].key = vec!["id".to_owned()];
    let refused = build(&config, &context).await.unwrap_err().to_string();
    assert!(
        refused.ends_with(
            "`key` of the source says which rows are versions of one thing (`id`), and these are not; land each key once, or \
             join by another column"
        ),
        "{refused}"
    );
}

fn pipeline_of(sources: &[&str], dataset: &str) -> feedline_schemas::config::PipelineConfig {
    let each = sources
        .iter()
        .map(|name| format!("[[source]]\nname = \"{name}\"\ntype = \"files\"\nurl = \"x.csv\"\n"));
    let text = format!(
        "[pipeline]\nname = \"p\"\n{}[dataset]\n{dataset}",
        each.collect::<String>()
    );
    feedline_schemas::config::load("p.toml", &text, &[])
        .unwrap()
        .config
}

#[tokio::test]
async fn rows_that_would_share_a_partner_by_name_are_refused() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &[("path", Utf8), ("y", Int64)]);
    let rows = [
        "cat/1.jpg",
        "dog/1.jpg",
        "dog/2.jpg",
        "cat/0.jpg",
        "x/0.jpg",
    ];
    zone.batch(&rows.map(|path| vec![json!(path), json!(1)]))
        .await;
    labels(&root).await;
    assert_eq!(
        refused(&root, &joined("null")).await,
        "`dataset.join.0.match`: rows with different keys would share a row of source `b`: `cat/1.jpg` and \
         `dog/1.jpg` are both `1.jpg` (1 such); compare whole keys with `match = \"exact\"`, or join by another column"
    );
}

#[tokio::test]
async fn columns_of_one_name_are_refused_unless_told_apart() {
    let root = Store::memory();
    rows(&root).await;
    let mut zone = LandingZone::new(&root, "b", &[("path", Utf8), ("y", Int64), ("size", Int64)]);
    let label = |i: i64| vec![row(i)[0].clone(), json!(-i), json!(i)];
    zone.batch(&(0..300).map(label).collect::<Vec<_>>()).await;
    let join = |more: &str| format!("join = [{{ source = \"b\", left = \"path\"{more} }}]\n");
    assert_eq!(
        refused(&root, &format!("{BASE}{}", join(""))).await,
        "`dataset.join.0.columns`: the rows already have a column `y`, which `b` has too; list the columns that \
         are wanted here, or put something before their names with `prefix`"
    );
    for (more, features) in [
        (", columns = [\"size\"]", "size"),
        (", prefix = \"b_\"", "b_size"),
    ] {
        let dataset =
            format!("{BASE}{}", join(more)).replace("[\"size\"]\n", &format!("[\"{features}\"]\n"));
        let dataset = dataset.replace(
            "features = [\"size\"]",
            &format!("features = [\"{features}\"]"),
        );
        build_with(&root, &dataset, 1, None).await.unwrap();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let is_own = |(place, size): &(u64, f32)| (*size - *place as f32).abs() < f32::EPSILON;
        assert!(found(&root).await.iter().all(is_own));
    }
}

#[tokio::test]
async fn wrong_settings_are_named() {
    let root = both().await;
    let mut images = LandingZone::new(&root, "c", &[("file", Utf8), ("image", Binary)]);
    images.batch(&[vec![json!("1.jpg"), json!([1])]]).await;
    let check = async |join: &str, message: &str| {
        let pipeline = pipeline_of(
            &["a", "b", "c"],
            &format!("{BASE}sources = [\"a\"]\njoin = [{{ {join} }}]\n"),
        );
        let (context, _scratch) = context(&root, 1);
        let refused = build(&pipeline, &context).await.unwrap_err().to_string();
        assert!(refused.starts_with(message), "{refused}");
    };
    check(
        "source = \"b\", left = \"path\"",
        "`dataset.join.0.left`: there is no column `path` among `file`, `size`",
    )
    .await;
    check(
        "source = \"b\", left = \"paht\", right = \"file\"",
        "`dataset.join.0.left`: there is no column `paht` among `path`, `y`; did you mean `path`?",
    )
    .await;
    check(
        "source = \"c\", left = \"path\", right = \"image\"",
        "`dataset.join.0.right`: column `image` holds bytes, so it cannot be a key",
    )
    .await;
    check(
        "source = \"a\", left = \"path\"",
        "`dataset.sources`: `a` is in `dataset.join` too",
    )
    .await;
    check(
        "source = \"d\", left = \"path\"",
        "`dataset.join`: there is no source `d` among a, b, c",
    )
    .await;
}

#[tokio::test]
async fn a_join_can_use_what_an_earlier_one_brought_and_all_sources_are_recorded() {
    let root = Store::memory();
    rows(&root).await;
    let mut kinds = LandingZone::new(&root, "b", &[("file", Utf8), ("kind", Float64)]);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let kind = |i: i64| vec![json!(i.to_string()), json!((i % 4) as f64)];
    kinds.batch(&(0..300).map(kind).collect::<Vec<_>>()).await;
    let mut sizes = LandingZone::new(&root, "c", &[("id", Int64), ("size", Int64)]);
    let size = |i: i64| vec![json!(i), json!(100 + i)];
    sizes.batch(&(0..4).map(size).collect::<Vec<_>>()).await;
    let join = "join = [{ source = \"b\", left = \"path\", right = \"file\", match = \"stem\" }, \
                { source = \"c\", left = \"kind\", right = \"id\" }]\n";
    let pipeline = pipeline_of(&["a", "b", "c"], &format!("{BASE}{join}"));
    let (context, _scratch) = context(&root, 2);
    let report = build(&pipeline, &context).await.unwrap();
    assert_eq!(
        report
            .joins
            .iter()
            .map(|j| (j.matched, j.unmatched, j.unused))
            .collect::<Vec<_>>(),
        [(300, 0, 0); 2]
    );
    for (place, size) in found(&root).await {
        assert_eq!(
            size.to_bits(),
            f32::from(u16::try_from(100 + place % 4).unwrap()).to_bits()
        );
    }
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let names: Vec<String> = manifest
        .sources
        .iter()
        .map(|s| s.name.to_string())
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(
        read_transform(&dataset, &manifest)
            .await
            .unwrap()
            .inputs
            .len(),
        1
    );
    assert!(build(&pipeline, &context).await.unwrap().up_to_date);
    // What lands in a source that is joined on makes another dataset.
    sizes.batch(&[size(7)]).await;
    let report = build(&pipeline, &context).await.unwrap();
    assert_eq!((report.up_to_date, report.joins[1].unused), (false, 1));
}

#[tokio::test]
async fn rows_that_a_join_leaves_out_do_not_count_in_later_joins() {
    for (rule, expected) in [
        ("reject", (270, 0, 30)),
        ("drop", (270, 0, 30)),
        ("null", (300, 0, 0)),
    ] {
        let root = both().await;
        let mut levels = LandingZone::new(&root, "c", &[("id", Int64), ("level", Int64)]);
        let level = |i: i64| vec![json!(i), json!(i % 4)];
        levels.batch(&(0..300).map(level).collect::<Vec<_>>()).await;
        let joins = format!(
            "max_reject_fraction = 0.2\njoin = [{{ source = \"b\", left = \"path\", right = \"file\", match = \"name\", \
             unmatched = \"{rule}\" }}, {{ source = \"c\", left = \"y\", right = \"id\" }}]\n"
        );
        let pipeline = pipeline_of(&["a", "b", "c"], &format!("{BASE}{joins}"));
        let (context, _scratch) = context(&root, 2);
        let report = build(&pipeline, &context).await.unwrap();
        let JoinCounts {
            matched,
            unmatched,
            unused,
            ..
        } = report.joins[1];
        assert_eq!((matched, unmatched, unused), expected, "{rule}");
    }
}
