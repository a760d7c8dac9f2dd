mod append;
mod boxes;
mod children;
mod classes;
#[cfg(feature = "cluster")]
mod cluster;
mod content_columns;
mod counts;
mod documents;
mod embeddings;
mod entity_history;
mod hash_partitioned;
mod images;
mod latest_versions;
mod leaks;
mod moved_rows;
mod near_duplicates;
mod row_numbers;
mod series;
mod several_contents;
mod sizes;
mod splits;
mod sql;
mod tokens;
mod train_values;
mod transparency;
mod traps;
mod warned;
mod windows;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use feedline_schemas::{
    ids::{Hash128, Origin, Seed},
    manifest::{Layout, Split, TargetKind},
    record::ColumnType::{self, Bool, Float64, Int64, Utf8},
};
use feedline_storage::{Effect, Faults, Operation, Rule, Store};
use serde_json::{Value, json};

use super::*;
use crate::{
    pipeline::{input::BuildInput, prepare::PreviousDataset, tokenizer::TokenizerInput},
    read_manifest, read_transform,
    schema::{column_roles, landed_columns::MergedColumn},
    shards::{
        manifest::{pointer, publish, put_tables, republish},
        shard_layout::ShardLayout,
        writer::{Row, SplitWriter},
    },
    staging::rejects::Rejects,
    testing::{
        Cells, LandingZone, Written, build_with, contents, context, flip_bit, pipeline, written,
    },
    verify,
};

const COLUMNS: [(&str, ColumnType); 4] = [
    ("id", Int64),
    ("size", Float64),
    ("kind", Utf8),
    ("price", Float64),
];
const DATASET: &str = "sources = [\"a\"]\ntarget = \"price\"\ndrop = [\"id\"]\n";

/// Row `i` of a small market: every eleventh size is missing, there are three kinds.
fn row(i: u64) -> Cells {
    let size = if i.is_multiple_of(11) {
        Value::Null
    } else {
        json!(i as f64 / 7.0)
    };
    vec![
        json!(i),
        size,
        json!(["x", "y", "z"][(i % 3) as usize]),
        json!(i as f64 * 2.0 + 1.0),
    ]
}

fn rows(range: std::ops::Range<u64>) -> Vec<Cells> {
    range.map(row).collect()
}

/// Two batches of 300 rows in source `a`.
async fn market(root: &Store) -> LandingZone {
    let mut zone = LandingZone::new(root, "a", &COLUMNS);
    zone.batch(&rows(0..300)).await;
    zone.batch(&rows(300..600)).await;
    zone
}

async fn failure(root: &Store, dataset: &str) -> String {
    build_with(root, dataset, 2).await.unwrap_err().to_string()
}

fn split_by_key(rows: &[Written]) -> BTreeMap<u64, Split> {
    rows.iter().map(|row| (row.key, row.split)).collect()
}

#[tokio::test]
async fn a_build_accounts_for_every_row() {
    let root = Store::memory();
    market(&root).await;
    let report = build_with(&root, DATASET, 2).await.unwrap();
    assert_eq!(
        (report.rows_in, report.duplicates, report.rejected),
        (600, 0, 0)
    );
    assert_eq!(report.train + report.validation + report.test, 600);
    assert!(!report.up_to_date);
    let dataset = root.child("dataset");
    let rows = written(&dataset).await;
    assert_eq!(
        rows.iter().map(|r| r.origin).collect::<BTreeSet<_>>().len(),
        600
    );
    let manifest = read_manifest(&dataset).await.unwrap();
    let artefact = read_transform(&dataset, &manifest).await.unwrap();
    assert_eq!(artefact.fitted_rows, report.train);
    assert!(
        rows.iter()
            .all(|r| r.x.len() == artefact.features.len() && r.x.iter().all(|x| x.is_finite()))
    );
    let checked = verify(&dataset).await.unwrap();
    assert_eq!(
        (checked.rows, checked.leaked_keys, checked.problems),
        (600, 0, vec![])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_32_of_equal_rows_in_any_batch_or_source_the_first_landed_is_kept() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    zone.batch(&[rows(5..9), rows(5..7), rows(600..640)].concat())
        .await;
    // Another source sends the same rows with its columns in another order.
    let mut other = LandingZone::new(
        &root,
        "b",
        &[COLUMNS[3], COLUMNS[0], COLUMNS[2], COLUMNS[1]],
    );
    let turned = |r: Cells| vec![r[3].clone(), r[0].clone(), r[2].clone(), r[1].clone()];
    other
        .batch(&rows(0..50).into_iter().map(turned).collect::<Vec<_>>())
        .await;
    let report = build_with(&root, "target = \"price\"\ndrop = [\"id\"]\n", 4)
        .await
        .unwrap();
    assert_eq!((report.rows_in, report.duplicates), (696, 56));
    let kept: BTreeSet<Origin> = written(&root.child("dataset"))
        .await
        .iter()
        .map(|r| r.origin)
        .collect();
    let expected = |sequence: u64, rows: std::ops::Range<u64>| {
        rows.map(move |row| Origin::pack(0, sequence, row).unwrap())
    };
    assert_eq!(
        kept,
        expected(0, 0..300)
            .chain(expected(1, 0..300))
            .chain(expected(2, 6..46))
            .collect()
    );
}

#[tokio::test]
async fn without_dedup_copies_are_kept_and_share_a_split() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    zone.batch(&rows(0..300)).await;
    let report = build_with(&root, &format!("{DATASET}dedup = \"none\"\n"), 2)
        .await
        .unwrap();
    assert_eq!(
        (
            report.duplicates,
            report.train + report.validation + report.test
        ),
        (0, 900)
    );
    assert_eq!(verify(&root.child("dataset")).await.unwrap().leaked_keys, 0);
}

#[tokio::test]
async fn adding_rows_and_widening_columns_moves_no_old_row_to_another_split() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let before = split_by_key(&written(&root.child("dataset")).await);
    zone.evolve(&[
        ("id", Float64),
        COLUMNS[1],
        COLUMNS[2],
        COLUMNS[3],
        ("late", Bool),
    ]);
    let late = |i: u64| [row(i), vec![json!(i.is_multiple_of(2))]].concat();
    let again = (0..20).map(|i| [row(i), vec![Value::Null]].concat());
    zone.batch(&again.chain((600..1200).map(late)).collect::<Vec<_>>())
        .await;
    let report = build_with(&root, DATASET, 2).await.unwrap();
    assert_eq!(report.duplicates, 20);
    let after = split_by_key(&written(&root.child("dataset")).await);
    assert_eq!(after.len(), 1200);
    assert_eq!(
        before
            .iter()
            .filter(|(key, split)| after.get(key) != Some(split))
            .count(),
        0
    );
}

#[tokio::test]
async fn rows_of_one_key_share_a_split_whatever_the_type_of_the_key() {
    let root = Store::memory();
    let with_owner = |i: u64, owner: Value| [row(i), vec![owner]].concat();
    let columns = |owner: ColumnType| [COLUMNS.as_slice(), &[("owner", owner)]].concat();
    let mut zone = LandingZone::new(&root, "a", &columns(Int64));
    zone.batch(
        &(0..300)
            .map(|i| with_owner(i, json!(i % 60)))
            .collect::<Vec<_>>(),
    )
    .await;
    zone.evolve(&columns(Utf8));
    zone.batch(
        &(300..600)
            .map(|i| with_owner(i, json!((i % 60).to_string())))
            .collect::<Vec<_>>(),
    )
    .await;
    build_with(
        &root,
        &format!("{DATASET}split = {{ key = [\"owner\"] }}\n"),
        3,
    )
    .await
    .unwrap();
    let mut splits: BTreeMap<u64, BTreeSet<Split>> = BTreeMap::new();
    for row in written(&root.child("dataset")).await {
        let id = row.origin.sequence().get() * 300 + row.origin.row();
        splits.entry(id % 60).or_default().insert(row.split);
    }
    assert_eq!(splits.len(), 60);
    assert!(splits.values().all(|s| s.len() == 1), "{splits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dataset_is_byte_equal_for_any_number_of_partitions_and_any_store() {
    let mut found = Vec::new();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("with space, 50 % é");
    let local = Store::open(place.to_str().unwrap(), &Default::default()).unwrap();
    for (root, partitions) in [(Store::memory(), 1), (Store::memory(), 2), (local, 8)] {
        let mut zone = market(&root).await;
        let unpriced = |i: u64| [&row(i)[..3], &[Value::Null]].concat();
        let unpriced = (700..720).map(unpriced).collect();
        zone.batch(&[rows(0..20), unpriced].concat()).await;
        build_with(
            &root,
            &format!("{DATASET}shards = {{ block_bytes = 4096, shard_bytes = 65536 }}\n"),
            partitions,
        )
        .await
        .unwrap();
        found.push(contents(&root.child("dataset")).await);
    }
    assert!(
        found[0].keys().any(|path| path.starts_with("rejects/")),
        "{:?}",
        found[0].keys()
    );
    assert_eq!(
        found[0].keys().collect::<Vec<_>>(),
        found[1].keys().collect::<Vec<_>>()
    );
    assert!(found.iter().all(|f| *f == found[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn trap_36_a_build_under_a_small_memory_limit_spills_and_gives_the_same_bytes() {
    let mut found = Vec::new();
    for memory_bytes in [None, Some(4 << 20)] {
        let root = Store::memory();
        let mut zone = LandingZone::new(&root, "a", &COLUMNS);
        for start in 0..8 {
            zone.batch(&rows(start * 10_000..(start + 1) * 10_000))
                .await;
        }
        let (mut context, _scratch) = context(&root, 2);
        context.memory_bytes = memory_bytes;
        build(&pipeline(DATASET), &context).await.unwrap();
        found.push(contents(&root.child("dataset")).await);
    }
    assert!(found[0] == found[1]);
}

#[tokio::test]
async fn shards_have_full_blocks_and_end_when_they_are_full() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &COLUMNS);
    zone.batch(&rows(0..20_000)).await;
    build_with(
        &root,
        &format!("{DATASET}shards = {{ block_bytes = 4096, shard_bytes = 65536 }}\n"),
        2,
    )
    .await
    .unwrap();
    let manifest = read_manifest(&root.child("dataset")).await.unwrap();
    let train = manifest.split(Split::Train).unwrap();
    assert!(train.shards.len() > 3);
    let (last, full) = train.shards.split_last().unwrap();
    let block_rows = full[0].blocks[0].rows;
    assert!(
        full.iter()
            .flat_map(|s| &s.blocks)
            .all(|b| b.rows == block_rows && b.offset % 64 == 0)
    );
    assert!(
        full.iter()
            .all(|s| s.bytes >= 65_536 && s.bytes < 65_536 + 3 * 4096)
    );
    assert!(
        last.blocks
            .iter()
            .rev()
            .skip(1)
            .all(|b| b.rows == block_rows)
    );
}

#[tokio::test]
async fn rows_are_shuffled_by_seed_or_kept_in_landing_order() {
    let mut orders = Vec::new();
    for shards in ["{ seed = 1 }", "{ seed = 2 }", "{ shuffle = false }"] {
        let root = Store::memory();
        market(&root).await;
        build_with(&root, &format!("{DATASET}shards = {shards}\n"), 4)
            .await
            .unwrap();
        let rows = written(&root.child("dataset")).await;
        orders.push(
            rows.iter()
                .filter(|r| r.split == Split::Train)
                .map(|r| r.origin)
                .collect::<Vec<_>>(),
        );
        let manifest = read_manifest(&root.child("dataset")).await.unwrap();
        let seed = shards
            .contains("seed")
            .then(|| Seed::new(orders.len() as u64));
        assert_eq!(manifest.shuffle_seed, seed);
    }
    assert!(orders[2].is_sorted());
    assert!(!orders[0].is_sorted() && orders[0] != orders[1]);
}

#[tokio::test]
async fn rows_in_order_are_split_by_place_and_those_behind_a_border_are_set_aside() {
    let mut found = Vec::new();
    for partitions in [1, 3] {
        let root = Store::memory();
        let mut zone = market(&root).await;
        // A copy of an early row takes no place.
        zone.batch(&rows(10..11)).await;
        let config = format!(
            "{DATASET}split = {{ by = \"range\", train = 0.5, validation = 0.25, test = 0.25, embargo = 10 }}"
        );
        let report = build_with(&root, &config, partitions).await.unwrap();
        assert_eq!(
            (report.rows_in, report.duplicates, report.rejected),
            (601, 1, 0)
        );
        assert_eq!(report.filtered["embargo"], 20);
        assert_eq!(
            (report.train, report.validation, report.test),
            (300, 140, 140)
        );
        let dataset = root.child("dataset");
        for row in written(&dataset).await {
            let place = 300 * row.origin.sequence().get() + row.origin.row();
            let expected = match place {
                0..300 => Split::Train,
                310..450 => Split::Validation,
                460..600 => Split::Test,
                _ => panic!("row {place} is in an embargo"),
            };
            assert_eq!(row.split, expected, "row {place}");
        }
        found.push(contents(&dataset).await);
    }
    assert!(found[0] == found[1]);
}

#[tokio::test]
async fn a_second_build_of_the_same_inputs_finds_the_first() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    zone.batch(&[vec![json!(9), json!(1.0), json!("x"), Value::Null]])
        .await;
    let first = build_with(&root, DATASET, 2).await.unwrap();
    assert_eq!(first.rejected, 1);
    let before = contents(&root.child("dataset")).await;
    let second = build_with(&root, DATASET, 4).await.unwrap();
    assert!(second.up_to_date && !first.up_to_date);
    assert_eq!(
        DatasetReport {
            up_to_date: false,
            ..second
        },
        first
    );
    assert!(contents(&root.child("dataset")).await == before);
    zone.batch(&rows(600..700)).await;
    let third = build_with(&root, DATASET, 2).await.unwrap();
    assert!(!third.up_to_date && third.fingerprint != first.fingerprint);
    assert!(
        root.child("dataset")
            .get_opt("manifest-000002.json")
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn a_lost_shard_is_built_again_with_the_same_bytes() {
    let root = Store::memory();
    market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let dataset = root.child("dataset");
    let before = contents(&dataset).await;
    let shard = before.keys().find(|p| p.starts_with("shards/")).unwrap();
    dataset.delete(shard).await.unwrap();
    assert!(!build_with(&root, DATASET, 2).await.unwrap().up_to_date);
    assert!(contents(&dataset).await == before);
}

#[tokio::test]
async fn trap_53_a_build_that_dies_at_any_write_shows_nothing_and_is_repeated_byte_for_byte() {
    let undisturbed = Store::memory();
    market(&undisturbed).await;
    build_with(&undisturbed, DATASET, 2).await.unwrap();
    let undisturbed = contents(&undisturbed.child("dataset")).await;

    let root = Store::memory();
    market(&root).await;
    let everything = |operation: Operation, path: &str| Rule {
        operation,
        path_contains: path.into(),
        skip: 0,
        times: u64::MAX,
        effect: Effect::FailBefore,
    };
    for (operation, path) in [
        (Operation::Put, "shards/validation"),
        (Operation::Put, "transform-"),
        (Operation::Create, "manifest-"),
        (Operation::Put, "CURRENT"),
    ] {
        let faulty = root.with_faults(Faults::new(vec![everything(operation, path)]));
        assert!(build_with(&faulty, DATASET, 2).await.is_err(), "{path}");
        let error = read_manifest(&root.child("dataset")).await.unwrap_err();
        assert!(error.to_string().contains("no finished build"), "{error}");
    }
    build_with(&root, DATASET, 3).await.unwrap();
    assert!(contents(&root.child("dataset")).await == undisturbed);
}

#[tokio::test]
async fn a_flipped_bit_in_a_landed_file_is_refused_before_anything_is_written() {
    let root = Store::memory();
    market(&root).await;
    let landed = root.child("landing/a");
    let path = landed.list("data").await.unwrap()[1].path.clone();
    flip_bit(&landed, &path, 1000).await;
    let error = failure(&root, DATASET).await;
    assert!(
        error.contains(&path) && error.contains("the commit log says"),
        "{error}"
    );
    assert!(contents(&root.child("dataset")).await.is_empty());
}

#[tokio::test]
async fn a_commit_log_with_a_gap_or_a_changed_entry_is_refused() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    zone.batch(&rows(600..610)).await;
    let log = root.child("landing/a");
    let entry = "log/00000000000000000001.json";
    let whole = log.get(entry).await.unwrap();

    let text = String::from_utf8(whole.to_vec()).unwrap();
    log.put(entry, text.replace("batch-1", "batch-X").into())
        .await
        .unwrap();
    let error = failure(&root, DATASET).await;
    assert!(
        error.contains("00000000000000000002.json")
            && error.contains("is not the one it was written after"),
        "{error}"
    );

    log.delete(entry).await.unwrap();
    let error = failure(&root, DATASET).await;
    assert!(
        error.contains("`log/00000000000000000002.json` was found where"),
        "{error}"
    );
}

#[tokio::test]
async fn bad_targets_are_set_aside_with_reason_and_origin() {
    let root = Store::memory();
    let mut zone = LandingZone::new(
        &root,
        "a",
        &[COLUMNS[0], COLUMNS[1], COLUMNS[2], ("price", Utf8)],
    );
    let text_price = |i: u64| {
        let price = if i == 7 {
            json!("on request")
        } else {
            json!(format!("{}", i * 2))
        };
        vec![
            json!(i),
            json!(1.5),
            json!("x"),
            if i == 9 { json!("n/a") } else { price },
        ]
    };
    zone.batch(&(0..200).map(text_price).collect::<Vec<_>>())
        .await;
    let report = build_with(&root, &format!("{DATASET}null_values = [\"n/a\"]\n"), 2)
        .await
        .unwrap();
    let expected =
        [("target_missing", 1), ("target_not_numeric", 1)].map(|(r, n)| (r.to_owned(), n));
    assert_eq!(report.rejected_by_reason, expected.into());
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let lines = dataset.get(&manifest.rejects[0]).await.unwrap();
    assert_eq!(
        std::str::from_utf8(&lines).unwrap(),
        concat!(
            r#"{"source":"a","sequence":0,"row":7,"reason":"target_not_numeric","column":"price","value":"on request"}"#,
            "\n",
            r#"{"source":"a","sequence":0,"row":9,"reason":"target_missing","column":"price","value":""}"#,
            "\n",
        )
    );
    assert!(report.reject_sample.unwrap().contains("on request"));
    assert_eq!(
        verify(&dataset).await.unwrap().problems,
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn too_many_bad_rows_stop_the_build_before_it_publishes() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    let without_price = |i: u64| [&row(i)[..3], &[Value::Null]].concat();
    zone.batch(&(600..700).map(without_price).collect::<Vec<_>>())
        .await;
    let error = build_with(&root, DATASET, 2).await.unwrap_err();
    let Error::TooManyRejects {
        rejected,
        rows,
        ref file,
        ..
    } = error
    else {
        panic!("{error}")
    };
    assert_eq!((rejected, rows), (100, 700));
    assert!(error.to_string().contains("target_missing: 100"), "{error}");
    let dataset = root.child("dataset");
    let left: Vec<String> = contents(&dataset).await.into_keys().collect();
    assert_eq!(left.len(), 1);
    assert!(file.ends_with(&left[0]), "{file}");
    assert!(
        build_with(&root, &format!("{DATASET}max_reject_fraction = 0.2\n"), 2)
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn a_key_in_two_splits_is_found_by_the_audit_and_by_verify() {
    let root = Store::memory();
    market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let dataset = root.child("dataset");
    let mut manifest = read_manifest(&dataset).await.unwrap();
    let stolen = written(&dataset)
        .await
        .into_iter()
        .find(|r| r.split == Split::Train)
        .unwrap();

    let layout = ShardLayout::of(&manifest);
    let mut writer = SplitWriter::new(&dataset, &layout, Split::Test);
    let values = crate::TargetValues::Regression(vec![0.0]);
    let y = Some((&values, 0));
    writer
        .push(Row {
            x: &stolen.x,
            image: None,
            boxes: None,
            tokens: None,
            y,
            key: stolen.key,
            origin: stolen.origin.packed(),
            kept: None,
        })
        .await
        .unwrap();
    let planted = writer.finish().await.unwrap();
    manifest.splits[2].rows += 1;
    manifest.counts.test += 1;
    manifest.splits[2].shards.extend(planted);

    let (context, _scratch) = context(&root, 1);
    let config = pipeline(DATASET);
    let spec = column_roles::resolve(config.dataset.as_ref().unwrap(), &merged()).unwrap();
    let build = Build {
        context: &context,
        name: &config.pipeline.name,
        dataset: config.dataset.as_ref().unwrap(),
        spec,
        input: BuildInput {
            hash: Hash128::new(0),
            names: vec![],
            joined: Vec::new(),
            frozen: Vec::new(),
            sources: vec![],
            query: None,
            made: Vec::new(),
            rows: 0,
            columns: Vec::new(),
            declares_instants: false,
        },
        tokenizer: TokenizerInput::default(),
        store: dataset.clone(),
        previous: PreviousDataset::default(),
    };
    let error = build.audit(&manifest.splits, &layout).await.unwrap_err();
    assert!(matches!(error, Error::Leak { keys: 1, .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains(&format!("key `{:016x}` in train and test", stolen.key)),
        "{error}"
    );

    manifest.fingerprint = manifest.compute_fingerprint();
    republish(&dataset, &manifest).await.unwrap();
    let report = verify(&dataset).await.unwrap();
    assert_eq!(report.leaked_keys, 1);
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
}

fn merged() -> Vec<MergedColumn> {
    COLUMNS
        .iter()
        .map(|(name, r#type)| MergedColumn {
            name: (*name).to_owned(),
            r#type: *r#type,
        })
        .collect()
}

#[tokio::test]
async fn a_dataset_whose_shards_lie_in_tables_is_read_and_verified_like_any_other() {
    let root = Store::memory();
    market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let dataset = root.child("dataset");
    let listed = read_manifest(&dataset).await.unwrap();
    let mut manifest = listed.clone();
    let tables = manifest.add_tables(0).unwrap();
    let path = tables[0].0.clone();
    put_tables(&dataset, tables).await.unwrap();
    manifest.fingerprint = manifest.compute_fingerprint();
    republish(&dataset, &manifest).await.unwrap();
    assert_eq!(read_manifest(&dataset).await.unwrap(), manifest);
    for (ours, listed) in manifest.splits.iter().zip(&listed.splits) {
        assert_eq!(ours.shards, listed.shards);
        assert!(ours.table.is_some() && listed.table.is_none());
    }
    let report = verify(&dataset).await.unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(
        report.rows,
        listed.splits.iter().map(|s| s.rows).sum::<u64>()
    );
    flip_bit(&dataset, &path, 700).await;
    let error = read_manifest(&dataset).await.unwrap_err().to_string();
    assert!(error.contains("its hash is"), "{error}");
}

#[tokio::test]
async fn verify_names_the_damaged_block_and_goes_on() {
    let root = Store::memory();
    market(&root).await;
    build_with(
        &root,
        &format!("{DATASET}shards = {{ block_bytes = 4096 }}\n"),
        2,
    )
    .await
    .unwrap();
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let train = &manifest.split(Split::Train).unwrap().shards[0];
    let block = &train.blocks[2];
    let inside = block.offset + u64::from(block.metadata_bytes) + 100;
    flip_bit(&dataset, &train.path, usize::try_from(inside).unwrap()).await;
    let test = &manifest.split(Split::Test).unwrap().shards[0];
    dataset.delete(&test.path).await.unwrap();
    let report = verify(&dataset).await.unwrap();
    assert_eq!(report.problems.len(), 3, "{:?}", report.problems);
    assert!(report.problems[0].contains(&format!(
        "{}`: block 2 at offset {}",
        train.path, block.offset
    )));
    assert!(report.problems[2].contains("does not exist"));
}

#[tokio::test]
async fn trap_40_a_changed_manifest_or_artefact_is_refused() {
    let root = Store::memory();
    market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let text = String::from_utf8(
        dataset
            .get(&manifest.transform.path)
            .await
            .unwrap()
            .to_vec(),
    )
    .unwrap();
    dataset
        .put(
            &manifest.transform.path,
            text.replacen("\"fitted_rows\": ", "\"fitted_rows\": 1", 1)
                .into(),
        )
        .await
        .unwrap();
    let error = read_transform(&dataset, &manifest)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("the manifest says"), "{error}");
    let path = "manifest-000001.json";
    let text = String::from_utf8(dataset.get(path).await.unwrap().to_vec()).unwrap();
    dataset
        .put(path, text.replacen("\"train\": ", "\"train\": 1", 1).into())
        .await
        .unwrap();
    let error = read_manifest(&dataset).await.unwrap_err().to_string();
    assert!(error.contains("fingerprint"), "{error}");
}

#[tokio::test]
async fn a_text_column_with_a_value_per_row_is_left_out_unless_asked_for() {
    let root = Store::memory();
    let mut zone = LandingZone::new(
        &root,
        "a",
        &[
            ("at", Utf8),
            ("size", Float64),
            ("kind", Utf8),
            ("price", Float64),
        ],
    );
    let dated = |i: u64| [vec![json!(format!("2024-01-01T{i}"))], row(i)[1..].to_vec()].concat();
    zone.batch(&(0..300).map(dated).collect::<Vec<_>>()).await;
    let inputs = async |dataset: &str| {
        build_with(&root, dataset, 2).await.unwrap();
        let manifest = read_manifest(&root.child("dataset")).await.unwrap();
        let artefact = read_transform(&root.child("dataset"), &manifest)
            .await
            .unwrap();
        artefact
            .inputs
            .into_iter()
            .map(|i| i.name)
            .collect::<Vec<_>>()
    };
    let default = "sources = [\"a\"]\ntarget = \"price\"\n";
    assert_eq!(inputs(default).await, ["size", "kind"]);
    assert_eq!(
        inputs(&format!("{default}categorical = [\"at\"]\n")).await,
        ["at", "size", "kind"]
    );
}

#[tokio::test]
async fn a_classification_target_becomes_class_ids() {
    let root = Store::memory();
    market(&root).await;
    build_with(
        &root,
        "sources = [\"a\"]\ntarget = \"kind\"\ntask = \"classification\"\n",
        2,
    )
    .await
    .unwrap();
    let manifest = read_manifest(&root.child("dataset")).await.unwrap();
    let Layout::Dense { target, .. } = manifest.layout else {
        panic!("{:?}", manifest.layout)
    };
    assert_eq!(target, TargetKind::Classification { classes: 3 });
    assert_eq!(
        verify(&root.child("dataset")).await.unwrap().problems,
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn a_dataset_without_a_target_has_no_y() {
    let root = Store::memory();
    market(&root).await;
    build_with(&root, "sources = [\"a\"]\n", 2).await.unwrap();
    let manifest = read_manifest(&root.child("dataset")).await.unwrap();
    let Layout::Dense { target, .. } = manifest.layout else {
        panic!("{:?}", manifest.layout)
    };
    assert_eq!(target, TargetKind::None);
}

#[tokio::test]
async fn an_empty_split_names_counts_and_a_way_out() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &COLUMNS);
    zone.batch(&rows(0..3)).await;
    let error = failure(&root, DATASET).await;
    insta::assert_snapshot!(error, @"the validation split is empty although its fraction is 0.1: 3 rows became 3 train, 0 validation, 0 test; land more rows, or give this split a larger share or none");
}

#[tokio::test]
async fn a_target_that_is_not_there_is_named_with_its_nearest() {
    let root = Store::memory();
    market(&root).await;
    insta::assert_snapshot!(failure(&root, "sources = [\"a\"]\ntarget = \"prize\"\n").await, @"`dataset.target`: there is no column `prize` among `id`, `size`, `kind`, `price`; did you mean `price`?");
}

#[tokio::test]
async fn a_target_of_text_is_named_with_a_value() {
    let root = Store::memory();
    market(&root).await;
    insta::assert_snapshot!(failure(&root, "sources = [\"a\"]\ntarget = \"kind\"\n").await, @r#"`dataset.target`: column `kind` is not numeric, its first value is `x`; name a column of numbers, or set `dataset.task = "classification"` to predict it as a class"#);
}

#[tokio::test]
async fn a_source_that_never_landed_is_named() {
    let root = Store::memory();
    market(&root).await;
    insta::assert_snapshot!(failure(&root, "target = \"price\"\n").await, @"cannot use source `b`: no rows have landed in `memory:/landing/b`; run `feedline ingest` first, or look at what it reported if it has run");
    insta::assert_snapshot!(failure(&root, "sources = [\"c\"]\n").await, @"`dataset.sources`: there is no source `c` among a, b");
}

#[tokio::test]
async fn what_a_killed_build_left_in_scratch_is_removed_by_the_next() {
    let root = Store::memory();
    market(&root).await;
    let (context, scratch) = context(&root, 1);
    let left = scratch.path().join("build-0");
    std::fs::create_dir_all(left.join("spill")).unwrap();
    std::fs::write(left.join("train-0.parquet"), b"junk").unwrap();
    build(&pipeline(DATASET), &context).await.unwrap();
    assert!(!left.exists());
}

#[tokio::test]
async fn a_split_with_a_share_of_zero_is_empty_and_no_error() {
    let root = Store::memory();
    market(&root).await;
    let split = "split = { train = 0.9, validation = 0.1, test = 0.0 }\n";
    let report = build_with(&root, &format!("{DATASET}{split}"), 2)
        .await
        .unwrap();
    assert_eq!((report.test, report.train + report.validation), (0, 600));
    assert_eq!(
        verify(&root.child("dataset")).await.unwrap().problems,
        Vec::<String>::new()
    );
}

#[test]
fn a_split_whose_rows_were_set_aside_is_not_said_to_be_named_by_nothing() {
    let mut rejects = Rejects::default();
    let why = |fell, rejects: &Rejects| {
        checks::splits::why_empty(Split::Test, fell, rejects).unwrap_or_default()
    };
    assert_eq!(
        why(None, &rejects),
        "the test split is empty: nothing names it"
    );
    rejects.count("unknown_class", 20);
    assert_eq!(
        why(Some(10), &rejects),
        "the test split is empty: all 10 rows of it were rejected, and 20 were left out (20 as `unknown_class`)"
    );
    assert!(why(None, &rejects).starts_with(
        "the test split is empty: nothing names it, or all rows that do were rejected, and 20"
    ));
    assert_eq!(why(Some(0), &rejects), "");
}

#[tokio::test]
async fn a_dataset_that_is_built_anew_says_why() {
    let root = Store::memory();
    let mut zone = market(&root).await;
    let dataset = format!("{DATASET}profile = true\n");
    let first = build_with(&root, &dataset, 2).await.unwrap();
    assert_eq!(first.anew, None);
    zone.batch(&rows(600..700)).await;
    let second = build_with(&root, &dataset, 2).await.unwrap();
    let why = second.anew.unwrap_or_default();
    assert!(
        why.contains("`dataset.profile` describes all rows"),
        "{why}"
    );
    assert_eq!(build_with(&root, &dataset, 2).await.unwrap().anew, None);
}

#[tokio::test]
async fn a_build_that_stalls_before_its_pointer_does_not_bring_an_older_dataset_back() {
    let root = Store::memory();
    market(&root).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let dataset = root.child("dataset");
    let first = read_manifest(&dataset).await.unwrap();
    let before = pointer(&dataset).await.unwrap();
    let other = |rows_in: u64| {
        let mut manifest = first.clone();
        manifest.counts.rows_in = rows_in;
        manifest.fingerprint = manifest.compute_fingerprint();
        manifest
    };
    let (small, large) = (other(400), other(600));
    // The smaller build has checked and stalls; the larger one starts and finishes meanwhile.
    let stalls = Faults::new(vec![Rule {
        operation: Operation::Put,
        path_contains: "CURRENT".into(),
        skip: 0,
        times: 1,
        effect: Effect::Delay(Duration::from_millis(300)),
    }]);
    let stalled = dataset.with_faults(stalls);
    let (late, early) = tokio::join!(
        publish(&stalled, before.as_ref(), &small),
        publish(&dataset, before.as_ref(), &large)
    );
    early.unwrap();
    let error = late.unwrap_err().to_string();
    assert!(error.contains("another build published"), "{error}");
    let current = read_manifest(&dataset).await.unwrap();
    assert_eq!(current.counts.rows_in, 600);
}
