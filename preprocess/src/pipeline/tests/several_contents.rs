//! Datasets whose rows have several parts.

use std::collections::{BTreeMap, BTreeSet};

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::{Float32Type, Int32Type, UInt16Type, UInt64Type},
};
use feedline_schemas::{
    ids::Origin,
    manifest::{CutCounts, Layout, RowTokens, Split, TargetKind, TokenType},
    pnm,
    record::ColumnType::{Binary, Float64, Int64, Utf8},
    transform::FittedTarget,
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::pipeline::*;
use crate::{
    Tokenizer, read_manifest, read_transform,
    testing::{self, Cells, LandingZone, blocks, contents, context, flip_bit, pipeline},
    verify,
};

const MULTI: &str = "sources = [\"a\"]\nkind = \"multi\"\nimage_column = \"photo\"\ntext_column = \"words\"\n\
                     target = \"label\"\ntask = \"classification\"\nshards = { block_bytes = 4096 }\n";
const PLAIN: &str = "features = [\"size\"]\ntokens = { vocabulary = 257, window = 6 }\n\
                     step = [{ type = \"impute\", strategy = \"constant\", value = -1.0 }]\n";

async fn build_with(
    root: &Store,
    dataset: &str,
    partitions: usize,
) -> Result<DatasetReport, Error> {
    testing::build_with(root, &format!("{MULTI}{dataset}"), partitions).await
}

async fn refused(root: &Store, dataset: &str) -> String {
    let refused = build_with(root, dataset, 1).await;
    refused.unwrap_err().to_string()
}

/// A grey image of 8 x 8 pixels, unlike those of other numbers.
fn image(i: u32) -> Vec<u8> {
    let level = |at: u32| (i * 97 + at * (13 + i % 29)).to_le_bytes()[0];
    let pixels: Vec<u8> = (0..64).map(level).collect();
    [pnm::header(8, 8, 1).as_bytes(), &pixels].concat()
}

fn words(i: u32) -> String {
    ["a", "row", &format!("number {i}"), "it is"][..=(i % 4) as usize].join(" ")
}

fn size(i: u32) -> Value {
    match i % 7 {
        0 => Value::Null,
        _ => json!(f64::from(i) / 2.0),
    }
}

fn row(i: u32) -> Cells {
    let label = ["low", "high"][(i % 2) as usize];
    vec![json!(image(i)), json!(words(i)), size(i), json!(label)]
}

async fn land(root: &Store, batches: &[Vec<Cells>]) {
    let columns = [
        ("photo", Binary),
        ("words", Utf8),
        ("size", Float64),
        ("label", Utf8),
    ];
    let mut zone = LandingZone::new(root, "a", &columns);
    for rows in batches {
        zone.batch(rows).await;
    }
}

async fn rows() -> Store {
    let root = Store::memory();
    let part = |rows: std::ops::Range<u32>| rows.map(row).collect::<Vec<_>>();
    land(&root, &[part(0..150), part(150..400)]).await;
    root
}

/// A row as the shards hold it.
struct Stored {
    split: Split,
    /// Place among the landed rows.
    i: u32,
    x: Vec<f32>,
    photo: Option<Vec<u8>>,
    ids: Option<Vec<u32>>,
    label: i32,
}

fn stored_in(split: Split, batch: &RecordBatch) -> Vec<Stored> {
    let column = |name: &str| batch.column_by_name(name);
    let origins = batch["origin"].as_primitive::<UInt64Type>();
    let labels = batch["y"].as_primitive::<Int32Type>();
    let row = |row: usize| {
        let origin = Origin::from_packed(origins.value(row));
        let place = origin.sequence().get() * 150 + origin.row();
        Stored {
            split,
            i: u32::try_from(place).unwrap(),
            x: column("x").map_or_else(Vec::new, |x| {
                let x = x.as_fixed_size_list().value(row);
                x.as_primitive::<Float32Type>().values().to_vec()
            }),
            photo: column("image").map(|p| p.as_binary::<i64>().value(row).to_vec()),
            ids: column("tokens").map(|ids| {
                let ids = ids.as_list::<i32>().value(row);
                let ids = ids.as_primitive::<UInt16Type>().values().to_vec();
                ids.into_iter().map(u32::from).collect()
            }),
            label: labels.value(row),
        }
    };
    (0..batch.num_rows()).map(row).collect()
}

async fn stored(root: &Store) -> Vec<Stored> {
    let blocks = blocks(&root.child("dataset")).await;
    let rows = blocks.iter().map(|(split, batch)| stored_in(*split, batch));
    rows.flatten().collect()
}

#[tokio::test]
async fn every_row_has_all_of_its_parts_and_what_a_text_is_too_long_by_is_counted() {
    let root = rows().await;
    let report = build_with(&root, PLAIN, 2).await.unwrap();
    assert_eq!(
        (report.rows_in, report.duplicates, report.rejected),
        (400, 0, 0)
    );
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let layout = Layout::Multi {
        features: 1,
        images: true,
        tokens: Some(RowTokens {
            id: TokenType::U16,
            vocabulary: 257,
            length: 6,
        }),
        target: TargetKind::Classification { classes: 2 },
    };
    assert_eq!(manifest.layout, layout);
    let artefact = read_transform(&dataset, &manifest).await.unwrap();
    let Some(FittedTarget::Classification { classes, .. }) = &artefact.target else {
        panic!("{:?}", artefact.target);
    };
    let file = dataset
        .get(&manifest.tokens.unwrap().tokenizer)
        .await
        .unwrap();
    let tokenizer = Tokenizer::new(&file).unwrap();
    let (mut seen, mut cut, mut kept) = (BTreeSet::new(), CutCounts::default(), 0);
    for row in stored(&root).await {
        assert!(seen.insert(row.i));
        let expected = size(row.i).as_f64().unwrap_or(-1.0);
        assert!((f64::from(row.x[0]) - expected).abs() < 1e-9);
        assert_eq!(row.photo, Some(image(row.i)));
        let class = usize::try_from(row.label).unwrap();
        assert_eq!(classes[class], ["low", "high"][(row.i % 2) as usize]);
        let mut ids = Vec::new();
        tokenizer.encode(&words(row.i), &mut ids).unwrap();
        // The end of a text is an id of its own.
        ids.push(256);
        let left = ids.len().saturating_sub(6);
        cut.rows += u64::from(left > 0);
        cut.tokens += left as u64;
        ids.truncate(6);
        kept += ids.len() as u64;
        assert_eq!(row.ids, Some(ids));
    }
    assert_eq!(seen.len(), 400);
    assert!(cut.rows > 100);
    assert_eq!(report.cut, Some(cut));
    assert_eq!(report.tokens.unwrap().total(), kept);
    assert!(verify(&dataset).await.unwrap().problems.is_empty());
    let train = manifest.splits.first().unwrap();
    assert!(train.shards[0].blocks.len() > 2);
    assert!(train.shards[0].lengths.is_none());
}

#[tokio::test]
async fn the_bytes_do_not_depend_on_partitions_and_damage_is_found() {
    let decoded = "features = [\"size\"]\nimage = { store = \"png\", resize = \"exact\", size = 6, duplicates = \"perceptual\" }\n";
    for dataset in [PLAIN, decoded] {
        let mut found = Vec::new();
        for partitions in [1, 2, 8] {
            let root = rows().await;
            build_with(&root, dataset, partitions).await.unwrap();
            found.push(contents(&root.child("dataset")).await);
        }
        assert!(found.iter().all(|f| *f == found[0]));
    }
    let root = rows().await;
    build_with(&root, PLAIN, 1).await.unwrap();
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let shard = &manifest.splits[0].shards[0];
    let at = usize::try_from(shard.blocks[1].offset).unwrap() + 700;
    flip_bit(&dataset, &shard.path, at).await;
    let problems = verify(&dataset).await.unwrap().problems;
    assert!(problems[0].contains("block 1"), "{problems:?}");
}

#[tokio::test]
async fn rows_have_the_parts_that_are_asked_for() {
    let only = |more: &str| {
        format!(
            "sources = [\"a\"]\nkind = \"multi\"\ntarget = \"label\"\ntask = \"classification\"\n{more}"
        )
    };
    for (more, x, photo, ids) in [
        (
            "text_column = \"words\"\nfeatures = [\"size\"]\n",
            1,
            false,
            true,
        ),
        (
            "image_column = \"photo\"\nfeatures = [\"size\"]\n",
            1,
            true,
            false,
        ),
        (
            "image_column = \"photo\"\ntext_column = \"words\"\ndrop = [\"size\"]\n",
            0,
            true,
            true,
        ),
        // Every other column is a feature unless something says otherwise.
        (
            "image_column = \"photo\"\ntext_column = \"words\"\n",
            1,
            true,
            true,
        ),
    ] {
        let root = rows().await;
        let (context, _scratch) = context(&root, 2);
        build(&pipeline(&only(more)), &context).await.unwrap();
        for row in stored(&root).await {
            let found = (row.x.len(), row.photo.is_some(), row.ids.is_some());
            assert_eq!(found, (x, photo, ids), "{more}");
        }
        let problems = verify(&root.child("dataset")).await.unwrap().problems;
        assert_eq!(problems, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_row_without_one_of_its_parts_is_set_aside_with_the_reason() {
    let root = Store::memory();
    let mut all: Vec<Cells> = (0..150).map(row).collect();
    all[3][0] = Value::Null;
    all[4][1] = Value::Null;
    all[5][1] = json!("");
    all[6][0] = json!(image(6)[..30].to_vec());
    all[8][3] = Value::Null;
    land(&root, &[all]).await;
    let image = "image = { store = \"png\" }\n";
    let report = build_with(&root, &format!("{PLAIN}{image}"), 2)
        .await
        .unwrap();
    let reasons: Vec<_> = report.rejected_by_reason.iter().collect();
    let expected = [
        ("image_truncated", 1),
        ("no_text", 2),
        ("not_an_image", 1),
        ("target_missing", 1),
    ];
    let expected: Vec<(String, u64)> = expected.map(|(r, n)| (r.to_owned(), n)).to_vec();
    assert_eq!(
        reasons,
        expected.iter().map(|(r, n)| (r, n)).collect::<Vec<_>>()
    );
    let seen: BTreeSet<u32> = stored(&root).await.iter().map(|row| row.i).collect();
    assert_eq!(seen.len(), 145);
    assert!([3, 4, 5, 6, 8].iter().all(|i| !seen.contains(i)));
}

/// Rows 0 to 150 again: some as they were, others with the image of one and another text.
async fn with_copies() -> Store {
    let root = Store::memory();
    let own: Vec<Cells> = (0..150).map(row).collect();
    let mut again = own.clone();
    for (i, row) in again.iter_mut().enumerate().skip(20) {
        row[1] = json!(format!("other words {i}"));
    }
    land(&root, &[own, again]).await;
    root
}

#[tokio::test]
async fn rows_are_the_same_when_all_of_their_parts_are_and_those_of_one_image_can_share_a_split() {
    let root = with_copies().await;
    let report = build_with(&root, PLAIN, 2).await.unwrap();
    assert_eq!(report.duplicates, 20);
    assert!(torn(&root).await > 0, "images are in several splits");
    for together in [
        "split = { key = [\"photo\"] }\n",
        "image = { store = \"png\", duplicates = \"pixels\" }\n",
    ] {
        let root = with_copies().await;
        let report = build_with(&root, &format!("{PLAIN}{together}"), 2)
            .await
            .unwrap();
        assert_eq!(report.duplicates, 20, "{together}");
        assert_eq!(report.train + report.validation + report.test, 280);
        assert_eq!(torn(&root).await, 0, "{together}");
    }
}

/// Images in more than one split.
async fn torn(root: &Store) -> usize {
    let mut splits: BTreeMap<u32, BTreeSet<Split>> = BTreeMap::new();
    for row in stored(root).await {
        splits.entry(row.i % 150).or_default().insert(row.split);
    }
    splits.values().filter(|splits| splits.len() > 1).count()
}

/// Replaces `from` by `to` in the configuration, adds `more`, and expects a refusal that begins with `message`.
async fn check_refused(root: &Store, [from, to, more, message]: [&str; 4]) {
    let (context, _scratch) = context(root, 1);
    let config = format!("{MULTI}{more}").replace(from, to);
    let refused = build(&pipeline(&config), &context).await.unwrap_err();
    let refused = refused.to_string();
    assert!(refused.starts_with(&format!("`{message}")), "{refused}");
}

#[tokio::test]
async fn parts_without_a_fitting_column_are_named() {
    let root = rows().await;
    let both = "image_column = \"photo\"\ntext_column = \"words\"\n";
    let none = "dataset.kind`: rows of several parts have an image or a text";
    check_refused(&root, [both, "", "", none]).await;
    let no_image = "dataset.image_column`: column `words` does not hold image files";
    check_refused(&root, ["\"photo\"", "\"words\"", "", no_image]).await;
    let no_text = "dataset.text_column`: column `size` does not hold text";
    check_refused(&root, ["\"words\"", "\"size\"", "", no_text]).await;
    let misspelt = "dataset.text_column`: there is no column `wrods`";
    check_refused(&root, ["\"words\"", "\"wrods\"", "", misspelt]).await;
    let (multi, one) = ("kind = \"multi\"", "kind = \"rows\"");
    let other_kind = "dataset.image_column`: it is for `dataset.kind = \"multi\"`";
    check_refused(&root, [multi, one, "", other_kind]).await;
    let (target, text) = ("target = \"label\"", "target = \"words\"");
    let both_uses = "dataset.target`: it is also the payload of the rows";
    check_refused(&root, [target, text, "", both_uses]).await;
}

#[tokio::test]
async fn settings_that_do_not_go_together_are_named() {
    let root = rows().await;
    let looks =
        "image = { store = \"png\", duplicates = \"pixels\" }\nsplit = { by = \"range\" }\n";
    for (more, message) in [
        (
            "content = \"photo\"\n",
            "dataset.content`: rows of several parts name them",
        ),
        (
            "features = [\"words\"]\n",
            "dataset.features`: `words` is the image or the text",
        ),
        (
            "tokens = { pack = \"fill\" }\n",
            "dataset.tokens.pack`: the text of a row stays in its row",
        ),
        (
            looks,
            "dataset.split.by`: rows that share an image share a split",
        ),
    ] {
        check_refused(&root, ["", "", more, message]).await;
    }
    let text = "text_column = \"words\"\n";
    let (tokens, message) = ("tokens = { window = 8 }\n", "dataset.tokens`: it is for");
    check_refused(&root, [text, "", tokens, message]).await;
    let image = "image_column = \"photo\"\n";
    let steps = "image = { store = \"png\" }\n";
    let message = "dataset.image`: the rows have no image";
    check_refused(&root, [image, "", steps, message]).await;
    let refused = refused(&root, "near_dup = { keep = \"all\" }\n").await;
    assert!(refused.contains("dataset.near_dup.keep"), "{refused}");
}

/// Texts, each landed three times under different ids; of every tenth the last copy has another label.
async fn texts_under_several_ids() -> Store {
    let root = Store::memory();
    let row = |id: u32| {
        let i = id % 300;
        let is_other = id >= 600 && i.is_multiple_of(10);
        let label = ["low", "high"][((i + u32::from(is_other)) % 2) as usize];
        vec![json!(id), json!(format!("the text {i}")), json!(label)]
    };
    let rows: Vec<Cells> = (0..900).map(row).collect();
    let columns = [("id", Int64), ("words", Utf8), ("label", Utf8)];
    LandingZone::new(&root, "a", &columns).batch(&rows).await;
    root
}

#[tokio::test]
async fn copies_of_a_text_under_another_id_are_counted_and_dropped_by_the_named_key() {
    const TEXTS: &str = "sources = [\"a\"]\nkind = \"multi\"\ntext_column = \"words\"\ntarget = \"label\"\n\
                         task = \"classification\"\ndrop = [\"id\"]\ntokens = { vocabulary = 257, window = 6 }\n";
    let root = texts_under_several_ids().await;
    let report = testing::build_with(&root, TEXTS, 2).await.unwrap();
    assert_eq!(report.duplicates, 0);
    let warnings = &report.warnings;
    let equal = warnings
        .iter()
        .find(|warning| warning.code == "equal_rows")
        .unwrap();
    assert_eq!(equal.key.as_deref(), Some("dataset.dedup_ignore"));
    let remedy = "dedup_ignore = [\"id\"]\n";
    assert!(equal.message.contains(remedy.trim()), "{equal:?}");
    for (conflicts, duplicates, kept) in [
        ("", 570, 330),
        ("conflicts = \"majority\"\n", 600, 300),
        ("conflicts = \"drop\"\n", 600, 270),
    ] {
        let dataset = format!("{TEXTS}{remedy}{conflicts}");
        let report = testing::build_with(&root, &dataset, 2).await.unwrap();
        let rows = report.train + report.validation + report.test;
        assert_eq!((report.duplicates, rows), (duplicates, kept), "{conflicts}");
        let mut codes = report.warnings.iter().map(|warning| warning.code.as_str());
        assert!(codes.all(|code| code != "equal_rows"), "{conflicts}");
    }
}

#[tokio::test]
async fn rows_are_equal_to_a_model_if_their_images_and_their_texts_are() {
    let columns = [
        ("photo", Binary),
        ("words", Utf8),
        ("size", Float64),
        ("label", Utf8),
        ("id", Int64),
    ];
    for (part, is_equal) in [(None, true), (Some(0), false), (Some(1), false)] {
        let cells = |id: u32| {
            let mut cells = row(id % 150);
            if let Some(part) = part.filter(|_| id >= 150) {
                let mut other: Cells = row(id);
                cells[part] = other.swap_remove(part);
            }
            cells.push(json!(id));
            cells
        };
        let rows: Vec<Cells> = (0..300).map(cells).collect();
        let root = Store::memory();
        LandingZone::new(&root, "a", &columns).batch(&rows).await;
        let report = build_with(&root, PLAIN, 2).await.unwrap();
        let mut codes = report.warnings.iter().map(|warning| warning.code.as_str());
        assert_eq!(codes.any(|code| code == "equal_rows"), is_equal, "{part:?}");
    }
}

#[tokio::test]
async fn rows_without_an_image_are_rejects_where_a_rule_chooses_among_labels() {
    let root = Store::memory();
    let mut all: Vec<Cells> = (0..150).map(row).collect();
    for other in [3, 4, 5] {
        all[other][0] = Value::Null;
        all[other][1] = json!("no image");
        all[other][2] = json!(1.0);
    }
    land(&root, &[all]).await;
    let report = build_with(&root, &format!("{PLAIN}conflicts = \"drop\"\n"), 2)
        .await
        .unwrap();
    assert_eq!(
        (report.duplicates, report.rejected_by_reason),
        (0, BTreeMap::from([("not_an_image".to_owned(), 3)]))
    );
}
