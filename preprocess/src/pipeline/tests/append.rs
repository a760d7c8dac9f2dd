mod changed_columns;
mod earlier_version;

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{Arc, Mutex},
    thread,
};

use feedline_schemas::{
    ids::{Hash128, Origin, Sequence},
    manifest::Split,
    progress::{Event, Progress},
    record::ColumnType::{self, Bool, Float64, Int64, Utf8},
    report::FeatureShift,
};
use feedline_storage::{Effect, Faults, Operation, Rule, Store};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::pipeline::*;
use crate::{
    read_manifest,
    source::landing_zone::Landed,
    testing::{Cells, LandingZone, build_with, contents, context, flip_bit, pipeline, written},
    verify,
};

const COLUMNS: [(&str, ColumnType); 4] = [
    ("id", Int64),
    ("size", Float64),
    ("kind", Utf8),
    ("price", Float64),
];
const DATASET: &str = "sources = [\"a\"]\ntarget = \"price\"\ndrop = [\"id\"]\n";

/// Row `i` of a market that does not change with time: every eleventh size is missing, there are
/// three kinds, and one price in 97 is missing, so that the row is rejected.
fn row(i: u64) -> Cells {
    let size = (i * 7919 % 1000) as f64 / 7.0;
    vec![
        json!(i),
        json!((!i.is_multiple_of(11)).then_some(size)),
        json!(["x", "y", "z"][(i % 3) as usize]),
        json!((!is_bad(i)).then_some(size * 2.0 + (i % 5) as f64)),
    ]
}

fn is_bad(i: u64) -> bool {
    i % 97 == 5
}

fn rows(range: Range<u64>) -> Vec<Cells> {
    range.map(row).collect()
}

fn bad(range: Range<u64>) -> u64 {
    range.filter(|i| is_bad(*i)).count() as u64
}

/// 600 rows in source `a`.
async fn market(root: &Store) -> LandingZone {
    let mut zone = LandingZone::new(root, "a", &COLUMNS);
    zone.batch(&rows(0..300)).await;
    zone.batch(&rows(300..600)).await;
    zone
}

async fn refit_with(root: &Store, dataset: &str) -> Result<DatasetReport, Error> {
    let (context, _scratch) = context(root, 2);
    refit(&pipeline(dataset), &context).await
}

async fn manifest(root: &Store) -> Manifest {
    read_manifest(&root.child("dataset")).await.unwrap()
}

/// Origin, key and split of each row.
async fn placed(root: &Store) -> BTreeSet<(Origin, u64, Split)> {
    let rows = written(&root.child("dataset")).await;
    let placed: BTreeSet<_> = rows.iter().map(|r| (r.origin, r.key, r.split)).collect();
    assert_eq!(placed.len(), rows.len(), "no row appears twice");
    placed
}

async fn check(root: &Store) {
    let checked = verify(&root.child("dataset")).await.unwrap();
    assert_eq!((checked.leaked_keys, checked.problems), (0, vec![]));
    assert_eq!(checked.rows, placed(root).await.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_landed_since_become_shards_behind_the_old_ones() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    let first = build_with(&root, DATASET, 2).await.unwrap();
    assert_eq!(first.added, None);
    let dataset = root.child("dataset");
    let (before, old) = (contents(&dataset).await, manifest(&root).await);
    // What is in the dataset is not read again.
    let landed = root.child("landing/a");
    for file in landed.list("data").await.unwrap() {
        landed.delete(&file.path).await.unwrap();
    }
    zone.batch(&rows(600..900)).await;

    let report = build_with(&root, DATASET, 2).await.unwrap();
    let added = report.added.unwrap();
    // The same row under another `id`, which no model sees, may be in another split.
    assert!(added.equal_rows_not_compared);
    let good = 300 - bad(600..900);
    assert_eq!(
        (added.rows_in, added.duplicates, added.rejected),
        (300, 0, 300 - good)
    );
    assert_eq!(added.train + added.validation + added.test, good);
    assert_eq!(
        (report.rows_in, report.rejected, report.train),
        (900, bad(0..900), first.train + added.train)
    );
    assert_eq!(
        (added.kept_shards, added.kept_shards + added.shards),
        (first.shards, report.shards)
    );

    let new = manifest(&root).await;
    assert_eq!(new.transform, old.transform);
    assert_eq!(new.sources[0].sequence.get(), 2);
    assert_eq!(new.additions.len(), 1);
    let addition = &new.additions[0];
    assert_eq!((&addition.behind, addition.rows_in), (&old.sources, 300));
    assert_eq!(addition.rows, [added.train, added.validation, added.test]);
    for (at, (new, old)) in new.splits.iter().zip(&old.splits).enumerate() {
        let (kept, behind) = new.shards.split_at(old.shards.len());
        assert_eq!(kept, old.shards);
        assert_eq!(addition.first_shards[at], old.shards.len() as u64);
        let rows: u64 = behind.iter().map(|shard| shard.rows).sum();
        assert_eq!(rows, addition.rows[at]);
    }
    let after = contents(&dataset).await;
    let stays = |path: &str| before.get(path) == after.get(path);
    assert!(before.keys().all(|path| path == "CURRENT" || stays(path)));
    check(&root).await;
    let again = build_with(&root, DATASET, 2).await.unwrap();
    assert_eq!((again.up_to_date, again.added), (true, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_additions_hold_the_rows_and_the_splits_of_one_build() {
    let (root, whole) = (Store::memory(), Store::memory());
    let mut zones = [&root, &whole].map(|root| LandingZone::new(root, "a", &COLUMNS));
    let mut splits = BTreeSet::new();
    let mut report = DatasetReport::default();
    for range in [0..600, 600..800, 550..900, 0..100, 900..901, 890..1300] {
        for zone in &mut zones {
            zone.batch(&rows(range.clone())).await;
        }
        report = build_with(&root, DATASET, 2).await.unwrap();
        let now = placed(&root).await;
        assert!(splits.is_subset(&now), "an existing row moved");
        splits = now;
    }
    let all = build_with(&whole, DATASET, 2).await.unwrap();
    assert_eq!(manifest(&root).await.additions.len(), 5);
    assert_eq!(placed(&root).await, placed(&whole).await);
    assert_eq!(
        [report.rows_in, report.train, report.validation, report.test],
        [all.rows_in, all.train, all.validation, all.test]
    );
    // A rejected row is no row of the dataset, so it is rejected again when it lands again.
    assert_eq!(
        report.duplicates + report.rejected,
        all.duplicates + all.rejected
    );
    check(&root).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn additions_are_byte_equal_for_any_number_of_partitions_and_any_memory() {
    let dataset = format!(
        "{DATASET}passthrough = [\"id\"]\nshards = {{ shard_bytes = \"64 KiB\", block_bytes = \"4 KiB\" }}\n"
    );
    let mut found = Vec::new();
    for (partitions, memory_bytes) in [(1, None), (3, None), (2, Some(4 << 20))] {
        let root = Store::memory();
        let mut zone = LandingZone::new(&root, "a", &COLUMNS);
        let (mut context, _scratch) = context(&root, partitions);
        context.memory_bytes = memory_bytes;
        for range in [0..5000, 5000..9000, 8000..14_000] {
            zone.batch(&rows(range)).await;
            build(&pipeline(&dataset), &context).await.unwrap();
        }
        assert_eq!(manifest(&root).await.additions.len(), 2);
        check(&root).await;
        found.push(contents(&root.child("dataset")).await);
    }
    assert!(found.iter().all(|f| *f == found[0]));
}

#[tokio::test]
async fn an_addition_that_dies_at_any_write_leaves_the_dataset_and_is_repeated_byte_for_byte() {
    let (undisturbed, root) = (Store::memory(), Store::memory());
    for root in [&undisturbed, &root] {
        let mut zone = market(root).await;
        build_with(root, DATASET, 2).await.unwrap();
        zone.batch(&rows(600..900)).await;
    }
    build_with(&undisturbed, DATASET, 2).await.unwrap();
    let before = manifest(&root).await;
    for (operation, path) in [
        (Operation::Put, "00000-"),
        (Operation::Put, "shards/validation/00001-"),
        (Operation::Put, "rejects/"),
        (Operation::Create, "manifest-"),
        (Operation::Put, "CURRENT"),
    ] {
        let rule = Rule {
            operation,
            path_contains: path.into(),
            skip: 0,
            times: u64::MAX,
            effect: Effect::FailBefore,
        };
        let faulty = root.with_faults(Faults::new(vec![rule]));
        assert!(build_with(&faulty, DATASET, 2).await.is_err(), "{path}");
        assert_eq!(manifest(&root).await, before, "{path}");
        check(&root).await;
    }
    build_with(&root, DATASET, 3).await.unwrap();
    let [found, expected] = [&root, &undisturbed].map(|root| root.child("dataset"));
    assert!(contents(&found).await == contents(&expected).await);
}

#[tokio::test]
async fn copies_of_rows_that_are_there_add_nothing_but_a_position() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let before = placed(&root).await;
    let again: Vec<Cells> = (0..200).filter(|i| !is_bad(*i)).map(row).collect();
    zone.batch(&again).await;
    let added = build_with(&root, DATASET, 2).await.unwrap().added.unwrap();
    assert_eq!(
        (added.rows_in, added.duplicates, added.shards),
        (again.len() as u64, again.len() as u64, 0)
    );
    assert_eq!(manifest(&root).await.sources[0].sequence.get(), 2);
    assert_eq!(placed(&root).await, before);
    check(&root).await;
    assert!(build_with(&root, DATASET, 2).await.unwrap().up_to_date);
}

#[tokio::test]
async fn without_dedup_copies_are_added_in_the_split_of_the_rows_that_are_there() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    let dataset = format!("{DATASET}dedup = \"none\"\n");
    build_with(&root, &dataset, 2).await.unwrap();
    zone.batch(&rows(0..300)).await;
    let report = build_with(&root, &dataset, 2).await.unwrap();
    let added = report.added.unwrap();
    let good = 300 - bad(0..300);
    assert_eq!(
        (
            added.duplicates,
            added.train + added.validation + added.test
        ),
        (0, good)
    );
    check(&root).await;
}

#[tokio::test]
async fn only_the_source_that_has_grown_is_read() {
    let root = Store::memory();
    market(&root).await;
    let mut other = LandingZone::new(&root, "b", &COLUMNS);
    other.batch(&rows(10_000..10_200)).await;
    let dataset = "target = \"price\"\ndrop = [\"id\"]\n";
    build_with(&root, dataset, 2).await.unwrap();
    let before = placed(&root).await;
    other.batch(&rows(10_100..10_400)).await;
    let added = build_with(&root, dataset, 2).await.unwrap().added.unwrap();
    assert_eq!(added.rows_in, 300);
    let now = placed(&root).await;
    let new: BTreeSet<_> = now.difference(&before).collect();
    assert_eq!(new.len() as u64, 200 - bad(10_200..10_400));
    assert!(
        new.iter()
            .all(|(at, ..)| (at.source(), at.sequence().get()) == (1, 1))
    );
    let positions = manifest(&root).await.sources;
    assert_eq!(
        positions
            .iter()
            .map(|s| s.sequence.get())
            .collect::<Vec<_>>(),
        [1, 1]
    );
}

#[tokio::test]
async fn splits_that_rows_name_or_borders_give_hold_for_new_rows() {
    for split in [
        "by = \"expression\", expression = \"case when id % 700 < 400 then 'train' when id % 700 < 500 then 'validation' \
         else 'test' end\"",
        "by = \"time\", time = \"id\", until = [\"400\", \"500\"]",
    ] {
        let root = Store::memory();
        let mut zone = market(&root).await;
        let dataset = format!("{DATASET}split = {{ {split} }}\n");
        build_with(&root, &dataset, 2).await.unwrap();
        let before = placed(&root).await;
        zone.batch(&rows(600..1100)).await;
        let added = build_with(&root, &dataset, 2).await.unwrap().added.unwrap();
        let is_named = split.contains("expression");
        let expected = |i: u64| match (is_named, i % 700) {
            (false, _) | (true, 500..) => Split::Test,
            (true, 0..400) => Split::Train,
            (true, 400..500) => Split::Validation,
        };
        let good = || (600..1100).filter(|i| !is_bad(*i));
        let counts =
            Split::ALL.map(|split| good().filter(|i| expected(*i) == split).count() as u64);
        assert_eq!(
            [added.train, added.validation, added.test],
            counts,
            "{split}"
        );
        assert!(before.is_subset(&placed(&root).await), "{split}");
        check(&root).await;
    }
}

#[tokio::test]
async fn splits_that_all_rows_decide_are_not_moved_unasked() {
    for (split, key) in [
        ("by = \"range\"", "by"),
        ("by = \"time\", time = \"id\"", "until"),
        (
            "by = \"time\", time = \"id\", until = [\"400\", \"500\"], key = [\"id\"]",
            "key",
        ),
    ] {
        let root = Store::memory();
        let mut zone = market(&root).await;
        let dataset = format!("{DATASET}split = {{ {split} }}\n");
        build_with(&root, &dataset, 2).await.unwrap();
        let before = contents(&root.child("dataset")).await;
        zone.batch(&rows(600..900)).await;
        let error = build_with(&root, &dataset, 2).await.unwrap_err();
        let key = format!("dataset.split.{key}");
        assert_eq!(crate::testing::config_key(&error), Some(&*key));
        assert!(error.to_string().contains("pass `--refit` to"), "{error}");
        assert!(contents(&root.child("dataset")).await == before, "{key}");

        let report = refit_with(&root, &dataset).await.unwrap();
        assert_eq!((report.rows_in, report.added), (900, None), "{key}");
        assert!(build_with(&root, &dataset, 2).await.unwrap().up_to_date);
    }
}

#[tokio::test]
async fn no_other_reason_to_build_anew_moves_rows_to_other_splits_unasked() {
    let join = "[[dataset.join]]\nsource = \"b\"\nleft = \"kind\"\nright = \"name\"\n";
    let sql = "sql = \"select id, size, kind, price from a\"\n";
    for split in ["by = \"range\"", "by = \"time\", time = \"id\""] {
        let split = format!("{DATASET}split = {{ {split} }}\n");
        for (written, edited, is_wider) in [
            // An unused column, where the query or the join hides that the configuration is the
            // same.
            (format!("{split}{join}"), format!("{split}{join}"), true),
            (format!("{sql}{split}"), format!("{sql}{split}"), true),
            (
                split.clone(),
                format!("{split}dedup_ignore = [\"size\"]\n"),
                false,
            ),
            (
                split.clone(),
                split
                    .replace("[\"a\"]", "[\"a\", \"b\"]")
                    .replace("[\"id\"]", "[\"id\", \"name\", \"rank\"]"),
                false,
            ),
        ] {
            let root = Store::memory();
            let mut zone = market(&root).await;
            let names = [("name", Utf8), ("rank", Float64)];
            let shops = ["x", "y", "z"].map(|name| vec![json!(name), json!(name.len())]);
            LandingZone::new(&root, "b", &names).batch(&shops).await;
            build_with(&root, &written, 2).await.unwrap();
            let before = contents(&root.child("dataset")).await;
            let new = match is_wider {
                true => {
                    zone.evolve(&[COLUMNS.as_slice(), &[("late", Bool)]].concat());
                    let late = |i| [row(i), vec![json!(true)]].concat();
                    (600..900).map(late).collect()
                }
                false => rows(600..900),
            };
            zone.batch(&new).await;
            let error = build_with(&root, &edited, 2).await.unwrap_err();
            assert!(
                error.to_string().contains("pass `--refit` to"),
                "{edited}: {error}"
            );
            assert!(contents(&root.child("dataset")).await == before, "{edited}");
            let report = refit_with(&root, &edited).await.unwrap();
            assert_eq!(report.added, None, "{edited}");
        }
    }
}

/// Lands rows and builds the dataset with them, once, while another build says what it is doing.
#[derive(Debug)]
struct Meanwhile {
    root: Store,
    zone: Mutex<Option<LandingZone>>,
    lands: Range<u64>,
}

impl Progress for Meanwhile {
    fn report(&self, _: Event<'_>) {
        let Some(mut zone) = self.zone.lock().unwrap().take() else {
            return;
        };
        let (root, lands) = (self.root.clone(), self.lands.clone());
        let other = thread::spawn(move || {
            Runtime::new().unwrap().block_on(async {
                if !lands.is_empty() {
                    zone.batch(&rows(lands)).await;
                }
                build_with(&root, DATASET, 2).await.unwrap();
            });
        });
        other.join().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_another_one_overtook_takes_nothing_back() {
    for is_addition in [false, true] {
        for lands in [900..1200, 0..0] {
            let root = Store::memory();
            let mut zone = market(&root).await;
            if is_addition {
                build_with(&root, DATASET, 2).await.unwrap();
                zone.batch(&rows(600..900)).await;
            }
            let (mut context, _scratch) = context(&root, 2);
            context.progress = Arc::new(Meanwhile {
                root: root.clone(),
                zone: Mutex::new(Some(zone)),
                lands: lands.clone(),
            });
            let built = build(&pipeline(DATASET), &context).await;
            let landed = 600 + 300 * (u64::from(is_addition) + u64::from(!lands.is_empty()));
            if lands.is_empty() {
                assert_eq!(built.unwrap().rows_in, landed, "both made the same");
            } else {
                let error = built.unwrap_err().to_string();
                assert!(
                    error.contains("another build published the dataset"),
                    "{error}"
                );
            }
            check(&root).await;
            let report = build_with(&root, DATASET, 2).await.unwrap();
            assert!(report.up_to_date);
            assert_eq!(report.rows_in, landed);
        }
    }
}

#[tokio::test]
async fn a_new_column_moves_no_split_that_all_rows_decide() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    let dataset = format!("{DATASET}split = {{ by = \"range\" }}\n");
    build_with(&root, &dataset, 2).await.unwrap();
    let before = manifest(&root).await;
    zone.evolve(&[COLUMNS.as_slice(), &[("late", Bool)]].concat());
    let late = |i| [row(i), vec![json!(true)]].concat();
    zone.batch(&(600..900).map(late).collect::<Vec<_>>()).await;
    let error = build_with(&root, &dataset, 2).await.unwrap_err();
    assert!(error.to_string().contains("pass `--refit` to"), "{error}");
    assert_eq!(manifest(&root).await, before);
}

#[tokio::test]
async fn refitting_gives_the_dataset_of_one_build() {
    let (root, whole) = (Store::memory(), Store::memory());
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    zone.batch(&rows(600..900)).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let old = manifest(&root).await;
    let report = refit_with(&root, DATASET).await.unwrap();
    assert_eq!((report.up_to_date, report.added), (false, None));

    market(&whole).await.batch(&rows(600..900)).await;
    build_with(&whole, DATASET, 2).await.unwrap();
    let (found, expected) = (manifest(&root).await, manifest(&whole).await);
    assert_eq!(found, expected);
    assert_ne!(found.transform.hash, old.transform.hash);
    assert!(build_with(&root, DATASET, 2).await.unwrap().up_to_date);
    // The rebuild gives the same bytes, so the damaged shard is intact again.
    let dataset = root.child("dataset");
    let shard = &expected.splits[0].shards[0].path;
    let whole = dataset.get(shard).await.unwrap();
    let mut damaged = whole.to_vec();
    damaged[whole.len() / 2] ^= 1;
    dataset.put(shard, damaged.into()).await.unwrap();
    assert!(!refit_with(&root, DATASET).await.unwrap().up_to_date);
    assert_eq!(manifest(&root).await, expected);
    assert_eq!(dataset.get(shard).await.unwrap(), whole);
}

#[tokio::test]
async fn a_dataset_whose_manifest_cannot_be_read_is_only_made_anew_when_it_is_asked_for() {
    let root = Store::memory();
    market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let before = manifest(&root).await;
    let dataset = root.child("dataset");
    for damage in ["x", "", "manifest-000009.json"] {
        dataset.put("CURRENT", damage.into()).await.unwrap();
        let error = build_with(&root, DATASET, 2).await.unwrap_err();
        assert!(matches!(error, Error::Input { .. }), "{error}");
        assert!(error.to_string().contains("CURRENT"), "{error}");
        assert!(!refit_with(&root, DATASET).await.unwrap().up_to_date);
        assert_eq!(manifest(&root).await, before);
    }
}

/// Builds `before`, lands more, builds `after`, and checks that the dataset is rebuilt.
async fn made_anew(before: &PipelineConfig, after: &PipelineConfig, more: &[Cells]) {
    let root = Store::memory();
    let mut zone = market(&root).await;
    LandingZone::new(&root, "b", &COLUMNS)
        .batch(&rows(5000..5100))
        .await;
    let (context, _scratch) = context(&root, 2);
    build(before, &context).await.unwrap();
    let old = manifest(&root).await;
    if more.iter().any(|row| row.len() > COLUMNS.len()) {
        zone.evolve(&[COLUMNS.as_slice(), &[("late", Bool)]].concat());
    }
    zone.batch(more).await;
    let report = build(after, &context).await.unwrap();
    assert_eq!((report.up_to_date, report.added), (false, None));
    let new = manifest(&root).await;
    assert_eq!(new.additions, []);
    assert!(new.counts.rows_in > old.counts.rows_in);
}

#[tokio::test]
async fn where_rows_cannot_be_added_the_dataset_is_made_anew() {
    let more = rows(600..900);
    let both = "target = \"price\"\ndrop = [\"id\"]\n";
    for dataset in [
        format!("{DATASET}profile = true\n"),
        format!("{both}shards = {{ shuffle = false }}\n"),
        format!("{both}split = {{ frozen = \"b\", train = 0.8, validation = 0.2, test = 0.0 }}\n"),
        format!("{DATASET}sql = \"select id, size, price from a\"\n"),
        format!(
            "{DATASET}split = {{ by = \"expression\", expression = \"case when id % 10 < 8 then 'train' else 'test' \
             end\", key = [\"id\"] }}\n"
        ),
    ] {
        let config = pipeline(&dataset);
        made_anew(&config, &config, &more).await;
    }
    // Newer rows of a key replace existing ones.
    let mut keyed = pipeline(DATASET);
    keyed.source[0].key = vec!["id".to_owned()];
    made_anew(&keyed, &keyed, &more).await;
    // Another configuration, and another column.
    let config = pipeline(DATASET);
    let salted = pipeline(&format!("{DATASET}split = {{ salt = \"x\" }}\n"));
    made_anew(&config, &salted, &more).await;
    let late: Vec<Cells> = more
        .iter()
        .map(|row| [row.clone(), vec![json!(true)]].concat())
        .collect();
    made_anew(&config, &config, &late).await;
}

#[tokio::test]
async fn what_is_expected_of_rows_is_expected_of_new_ones_and_what_of_columns_of_all() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("expect.toml");
    let expected = |more: &str| {
        let text = format!("[[column]]\nname = \"size\"\nkind = \"numeric\"\nmin = 0.0\n{more}");
        std::fs::write(&file, text).unwrap();
        format!(
            "{DATASET}expect = {{ file = \"{}\", on_violation = \"reject\" }}\n",
            file.display()
        )
    };
    let root = Store::memory();
    let mut zone = market(&root).await;
    let dataset = expected("");
    build_with(&root, &dataset, 2).await.unwrap();
    let mut more = rows(600..900);
    for row in &mut more[..3] {
        row[1] = json!(-1.0);
    }
    zone.batch(&more).await;
    let report = build_with(&root, &dataset, 2).await.unwrap();
    assert_eq!(report.rejected_by_reason["expected_min"], 3);
    assert_eq!(report.added.unwrap().rejected, 3 + bad(603..900));

    let dataset = expected("max_missing_fraction = 0.5\n");
    made_anew(&pipeline(&dataset), &pipeline(&dataset), &rows(600..900)).await;
}

#[tokio::test]
async fn a_log_that_was_begun_anew_is_another_dataset() {
    let root = Store::memory();
    market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let mut zone = LandingZone::new(&root, "a", &COLUMNS);
    for range in [1000..1300, 1300..1600, 1600..1900] {
        zone.batch(&rows(range)).await;
    }
    let report = build_with(&root, DATASET, 2).await.unwrap();
    assert_eq!((report.rows_in, report.added), (900, None));
    assert_eq!(report.rejected, bad(1000..1900));
}

#[tokio::test]
async fn a_class_that_the_transform_does_not_know_is_set_aside_with_its_reason() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    let dataset =
        "sources = [\"a\"]\ntarget = \"kind\"\ntask = \"classification\"\ndrop = [\"id\"]\n";
    build_with(&root, dataset, 2).await.unwrap();
    let mut more = rows(600..900);
    for row in &mut more[..4] {
        row[2] = json!("w");
    }
    zone.batch(&more).await;
    let report = build_with(&root, dataset, 2).await.unwrap();
    assert_eq!(report.rejected_by_reason["unknown_class"], 4);
    assert_eq!(report.added.unwrap().rejected, 4);
    check(&root).await;
}

#[tokio::test]
async fn trap_05_added_rows_of_an_unknown_category_are_set_aside_where_the_step_says_so() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    let steps = "step = [{ type = \"impute\" }, { type = \"categories\", unknown = \"reject\" }]\n";
    let dataset = format!("{DATASET}{steps}");
    build_with(&root, &dataset, 2).await.unwrap();
    let mut more = rows(600..680);
    for row in &mut more[..4] {
        row[2] = json!("w");
    }
    zone.batch(&more).await;
    let report = build_with(&root, &dataset, 2).await.unwrap();
    assert_eq!(report.rejected_by_reason["unknown_category"], 4);
    assert_eq!(report.added.unwrap().rejected, 4);
    check(&root).await;
}

#[tokio::test]
async fn rows_set_aside_are_a_share_of_all_rows() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let before = manifest(&root).await;
    let unpriced = |range: Range<u64>| -> Vec<Cells> {
        let without = |i| [&row(i)[..3], &[Value::Null]].concat();
        range.map(without).collect()
    };
    // Alone it would be more than a twentieth.
    zone.batch(&[unpriced(600..610), rows(610..620)].concat())
        .await;
    let added = build_with(&root, DATASET, 2).await.unwrap().added.unwrap();
    assert_eq!((added.rows_in, added.rejected), (20, 10));
    let there = manifest(&root).await;
    assert_ne!(there.fingerprint, before.fingerprint);
    zone.batch(&unpriced(700..750)).await;
    let error = build_with(&root, DATASET, 2).await.unwrap_err();
    let all = bad(0..600) + 60;
    let expected = format!("{all} of 670 rows were rejected");
    assert!(error.to_string().contains(&expected), "{error}");
    assert_eq!(manifest(&root).await, there);
}

#[tokio::test]
async fn training_rows_that_lie_elsewhere_than_those_fitted_on_are_told() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    zone.batch(&rows(600..1200)).await;
    let added = build_with(&root, DATASET, 2).await.unwrap().added.unwrap();
    assert_eq!(added.shifts, []);
    let mut odd = rows(1200..1500);
    for row in &mut odd {
        row[1] = json!(500.0);
        row[2] = json!("w");
    }
    zone.batch(&odd).await;
    let added = build_with(&root, DATASET, 2).await.unwrap().added.unwrap();
    let deviations = |name: &str| {
        let found = added.shifts.iter().find(|shift| shift.feature == name);
        found.map(|shift| shift.deviations)
    };
    assert!(deviations("size").unwrap() > 1.0, "{:?}", added.shifts);
    assert!(deviations("kind=__unknown__").unwrap() > 1.0);
    assert!(deviations("kind=x").unwrap() < -0.5);
    assert_eq!(deviations("price"), None);
}

#[tokio::test]
async fn many_rows_that_differ_from_a_constant_feature_are_a_shift_whatever_extremes_they_have() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &COLUMNS);
    let dataset =
        format!("{DATASET}step = [{{ type = \"impute\" }}, {{ type = \"categories\" }}]\n");
    let with_sizes = |range: Range<u64>, size: fn(u64) -> f64| -> Vec<Cells> {
        let mut cells = rows(range.clone());
        for (i, row) in range.zip(&mut cells) {
            row[1] = json!(size(i));
        }
        cells
    };
    zone.batch(&with_sizes(0..600, |_| 0.0)).await;
    build_with(&root, &dataset, 2).await.unwrap();
    // By their moments, those of a million may be all that differ.
    let extreme = |i: u64| match i % 8 {
        0 if i < 632 => 1e6,
        0 => (i % 5) as f64 + 1.0,
        _ => 0.0,
    };
    zone.batch(&with_sizes(600..900, extreme)).await;
    let added = build_with(&root, &dataset, 2).await.unwrap().added.unwrap();
    let is_size = |shift: &FeatureShift| shift.feature == "size";
    assert!(added.shifts.iter().any(is_size), "{:?}", added.shifts);
    let few = |i: u64| match i {
        910..913 => (i - 905) as f64,
        _ => 0.0,
    };
    zone.batch(&with_sizes(900..1200, few)).await;
    let added = build_with(&root, &dataset, 2).await.unwrap().added.unwrap();
    assert!(!added.shifts.iter().any(is_size), "{:?}", added.shifts);
}

#[tokio::test]
async fn shards_that_were_looked_through_are_not_read_again() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    zone.batch(&rows(600..900)).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let dataset = root.child("dataset");
    let shard = manifest(&root).await.splits[0].shards[0].path.clone();
    let middle = dataset.get(&shard).await.unwrap().len() / 2;
    flip_bit(&dataset, &shard, middle).await;
    zone.batch(&rows(800..1200)).await;
    let added = build_with(&root, DATASET, 2).await.unwrap().added.unwrap();
    let good = 300 - bad(900..1200);
    assert_eq!(added.train + added.validation + added.test, good);

    // What is kept of it is damaged, so that it is read itself.
    let kept = format!("{}.keys", shard.trim_end_matches(".arrow"));
    flip_bit(&dataset, &kept, 50).await;
    zone.batch(&rows(1200..1300)).await;
    let error = build_with(&root, DATASET, 2).await.unwrap_err().to_string();
    assert!(error.contains(&shard), "{error}");
    flip_bit(&dataset, &shard, middle).await;
    build_with(&root, DATASET, 2).await.unwrap();
    check(&root).await;
    assert_eq!(placed(&root).await.len() as u64, 1300 - bad(0..1300));
}

#[tokio::test]
async fn a_damaged_shard_is_named_and_nothing_is_published() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let dataset = root.child("dataset");
    let shard = manifest(&root).await.splits[1].shards[0].clone();
    let middle = usize::try_from(shard.bytes / 2).unwrap();
    flip_bit(&dataset, &shard.path, middle).await;
    zone.batch(&rows(600..900)).await;
    let before = manifest(&root).await;
    let error = build_with(&root, DATASET, 2).await.unwrap_err().to_string();
    assert!(error.contains(&shard.path), "{error}");
    assert!(
        error.contains("rebuild the dataset with `--refit`"),
        "{error}"
    );
    assert_eq!(manifest(&root).await, before);
    refit_with(&root, DATASET).await.unwrap();
    check(&root).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dataset_of_rows_that_no_longer_count_is_made_anew_and_says_why() {
    for (withdrawn, reset, reason) in [
        (&[1][..], None, "has withdrawn rows of batch 1 by entry 2"),
        (&[][..], Some("a.1"), "was reset by entry 2"),
    ] {
        let root = Store::memory();
        let mut zone = market(&root).await;
        let first = build_with(&root, DATASET, 2).await.unwrap();
        assert_eq!(first.rows_in, 600);
        zone.amend(withdrawn, reset).await;
        if reset.is_some() {
            // Schema versions restart at the first, with other columns.
            zone = zone.with_first_schema(&[COLUMNS[0], COLUMNS[1], ("kind", Int64), COLUMNS[3]]);
            let kinds = |mut row: Cells| {
                row[2] = json!(7);
                row
            };
            let rows: Vec<Cells> = rows(600..900).into_iter().map(kinds).collect();
            zone.batch(&rows).await;
        }
        let second = build_with(&root, DATASET, 2).await.unwrap();
        assert_eq!(second.rows_in, 300, "{reason}");
        let why = second.anew.unwrap();
        assert!(why.contains(reason), "{why}");
        check(&root).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_amendment_that_takes_no_rows_back_lets_rows_be_added() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    zone.batch(&rows(600..700)).await;
    // Withdraws a batch that is not part of the dataset.
    zone.amend(&[2], None).await;
    zone.batch(&rows(700..900)).await;
    let report = build_with(&root, DATASET, 2).await.unwrap();
    assert_eq!((report.anew, report.added.unwrap().rows_in), (None, 200));
    check(&root).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn log_entries_without_rows_leave_the_dataset_up_to_date() {
    let profiled = format!("{DATASET}profile = true\n");
    for dataset in [DATASET, &profiled] {
        let root = Store::memory();
        let mut zone = market(&root).await;
        build_with(&root, dataset, 2).await.unwrap();
        let before = manifest(&root).await;
        // A changed setting, a page of duplicates and a compaction.
        zone.amend(&[], None).await;
        zone.batch(&[]).await;
        zone.merge(0, 1).await;
        assert!(build_with(&root, dataset, 2).await.unwrap().up_to_date);
        assert_eq!(manifest(&root).await, before);
        refit_with(&root, dataset).await.unwrap();
        assert_eq!(manifest(&root).await.fingerprint, before.fingerprint);
        zone.batch(&rows(600..700)).await;
        let report = build_with(&root, dataset, 2).await.unwrap();
        assert_eq!((report.up_to_date, report.rows_in), (false, 700));
        assert_eq!(manifest(&root).await.sources[0].sequence.get(), 5);
        check(&root).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dataset_that_names_an_entry_without_rows_is_appended_to() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    zone.amend(&[], None).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let mut old = manifest(&root).await;
    assert_eq!(old.sources[0].sequence.get(), 1);
    let store = root.child("landing/a");
    let entry = store.get("log/00000000000000000002.json").await.unwrap();
    old.sources[0].sequence = Sequence::new(2);
    old.sources[0].entry_hash = Hash128::of(&entry);
    let (context, _scratch) = context(&root, 2);
    let config = pipeline(DATASET);
    let build = Build::prepare(&config, &context).await.unwrap();
    old.input_hash = build.inputs_of(&build.spec.config, Some([&old.sources, &[], &[]]));
    zone.batch(&rows(600..700)).await;
    let build = Build::prepare(&config, &context).await.unwrap();
    let found = build.check_appendable(old).await.unwrap();
    let behind: u64 = found.ok().unwrap().behind.iter().map(Landed::rows).sum();
    assert_eq!(behind, 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn merged_files_change_no_dataset_and_rows_are_added_behind_them() {
    let expected = {
        let root = Store::memory();
        let mut zone = market(&root).await;
        build_with(&root, DATASET, 2).await.unwrap();
        zone.batch(&rows(600..700)).await;
        zone.batch(&rows(700..900)).await;
        build_with(&root, DATASET, 2).await.unwrap();
        placed(&root).await
    };
    // Ranges of batches that are merged: before the position of the dataset, after it, and across it, also twice.
    let ranges: [&[(u64, u64)]; 5] = [
        &[(0, 1)],
        &[(2, 3)],
        &[(1, 2)],
        &[(0, 3)],
        &[(1, 2), (0, 3)],
    ];
    for ranges in ranges {
        let root = Store::memory();
        let mut zone = market(&root).await;
        build_with(&root, DATASET, 2).await.unwrap();
        zone.batch(&rows(600..700)).await;
        zone.batch(&rows(700..900)).await;
        for (first, last) in ranges {
            zone.merge(*first, *last).await;
        }
        let report = build_with(&root, DATASET, 2).await.unwrap();
        let added = report.added.unwrap();
        assert_eq!((report.anew, added.rows_in), (None, 300), "{ranges:?}");
        assert_eq!(placed(&root).await, expected, "{ranges:?}");
        check(&root).await;
        // All rows are read from the merged file.
        refit_with(&root, DATASET).await.unwrap();
        assert_eq!(placed(&root).await, expected, "{ranges:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dataset_says_why_it_cannot_follow_a_merge_or_a_rewind() {
    // Retention has deleted the files that were merged across the position of the dataset.
    let root = Store::memory();
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    zone.batch(&rows(600..900)).await;
    zone.merge(1, 2).await;
    let landed = root.child("landing/a");
    for file in landed.list("superseded").await.unwrap() {
        landed.delete(&file.path).await.unwrap();
    }
    let report = build_with(&root, DATASET, 2).await.unwrap();
    assert_eq!(report.rows_in, 900);
    let why = report.anew.unwrap();
    assert!(
        why.contains("had batches 1 to 2 merged by entry 3") && why.contains("retention"),
        "{why}"
    );
    check(&root).await;

    let root = Store::memory();
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    zone.rewind(0).await;
    zone.batch(&rows(300..500)).await;
    let report = build_with(&root, DATASET, 2).await.unwrap();
    assert_eq!(report.rows_in, 500);
    let why = report.anew.unwrap();
    assert!(why.contains("was rewound to entry 0 by entry 2"), "{why}");
    check(&root).await;

    // A rewind to the position of the dataset, or a later one, takes none of its rows back.
    let root = Store::memory();
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    zone.batch(&rows(600..700)).await;
    zone.rewind(1).await;
    zone.batch(&rows(600..900)).await;
    let report = build_with(&root, DATASET, 2).await.unwrap();
    assert_eq!((report.anew, report.added.unwrap().rows_in), (None, 300));
    check(&root).await;
}

#[tokio::test]
async fn appended_rows_that_equal_one_another_under_other_ids_are_warned_of() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let copy = |i: u64| {
        let mut cells = row(i);
        cells[0] = json!(10_000 + i);
        cells
    };
    zone.batch(&rows(600..900)).await;
    zone.batch(&(600..900).map(copy).collect::<Vec<_>>()).await;
    let report = build_with(&root, DATASET, 2).await.unwrap();
    assert!(report.added.is_some(), "{report:?}");
    let found = report.warnings.iter().filter(|w| w.code == "equal_rows");
    let found: Vec<&str> = found.map(|w| w.message.as_str()).collect();
    assert_eq!(found.len(), 1, "{:?}", report.warnings);
    assert!(
        found[0].starts_with("in the rows appended last: "),
        "{found:?}"
    );
    assert!(
        found[0].contains("equal a training row in every feature"),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_rebuild_by_other_settings_names_only_those_that_the_dataset_has() {
    let root = Store::memory();
    market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let unscaled = format!("{DATASET}scale_target = false\n");
    let report = build_with(&root, &unscaled, 2).await.unwrap();
    let why = "a key of `[dataset]` or the version of feedline has changed";
    assert_eq!(report.anew.as_deref(), Some(why));
}
