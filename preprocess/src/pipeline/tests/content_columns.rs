//! Datasets of images and of characters.

use std::collections::BTreeSet;

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::{Int32Type, UInt16Type},
};
use feedline_schemas::{
    manifest::{Layout, TargetKind, TokenCounts, TokenType},
    pnm,
    record::ColumnType::{Binary, Int64, Utf8},
    transform::FittedTarget,
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::{
    read_manifest, read_transform,
    testing::{Cells, LandingZone, blocks, build_with, contents, flip_bit},
    verify,
};

const IMAGES: &str =
    "sources = [\"a\"]\nkind = \"images\"\ntarget = \"label\"\ntask = \"classification\"\n";
const CHARACTERS: &str = "sources = [\"a\"]\nkind = \"characters\"\n";

/// A grey image of 4 x 1 pixels that holds the number `i`, and its class.
fn image(i: u32) -> Vec<u8> {
    [pnm::header(4, 1, 1).as_bytes(), &i.to_be_bytes()].concat()
}

fn image_row(i: u32) -> Cells {
    vec![json!(image(i)), json!(class(i))]
}

fn class(i: u32) -> i64 {
    i64::from(i % 3) * 10
}

/// 400 images in source `a`; ten come twice, the second time with another label.
async fn album(root: &Store) {
    let mut zone = LandingZone::new(root, "a", &[("image", Binary), ("label", Int64)]);
    let rows: Vec<Cells> = (0..400).map(image_row).collect();
    zone.batch(&rows).await;
    let again = (0..10).map(|i| vec![json!(image(i)), json!(99)]);
    zone.batch(&again.collect::<Vec<_>>()).await;
}

/// Numbers and class ids of the images in a block.
fn images(batch: &RecordBatch) -> Vec<(u32, i32)> {
    let files = batch["image"].as_binary::<i64>().iter().flatten();
    let classes = batch["y"].as_primitive::<Int32Type>().values().iter();
    let number = |file: &[u8]| {
        let pixels = pnm::Pnm::parse(file).unwrap().pixels;
        u32::from_be_bytes(pixels.try_into().unwrap())
    };
    files.map(number).zip(classes.copied()).collect()
}

#[tokio::test]
async fn every_image_is_stored_once_as_it_came_with_its_class() {
    let root = Store::memory();
    album(&root).await;
    let report = build_with(&root, IMAGES, 2).await.unwrap();
    assert_eq!(
        (report.rows_in, report.duplicates, report.rejected),
        (410, 10, 0)
    );
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let target = TargetKind::Classification { classes: 3 };
    assert_eq!(manifest.layout, Layout::Images { target });
    let artefact = read_transform(&dataset, &manifest).await.unwrap();
    let Some(FittedTarget::Classification { classes, .. }) = &artefact.target else {
        panic!("{artefact:?}")
    };
    assert_eq!(classes.iter().collect::<BTreeSet<_>>().len(), 3);
    let mut seen = BTreeSet::new();
    for (_, batch) in blocks(&dataset).await {
        for (number, id) in images(&batch) {
            assert!(seen.insert(number), "image {number} is there twice");
            let id = usize::try_from(id).unwrap();
            assert_eq!(classes[id], class(number).to_string());
        }
    }
    assert_eq!(seen, (0..400).collect());
    assert!(verify(&dataset).await.unwrap().problems.is_empty());
}

#[tokio::test]
async fn images_come_out_the_same_for_any_number_of_partitions() {
    let mut found = Vec::new();
    for partitions in [1, 3] {
        let root = Store::memory();
        album(&root).await;
        let blocks = format!("{IMAGES}shards = {{ block_bytes = \"4 KiB\" }}");
        build_with(&root, &blocks, partitions).await.unwrap();
        found.push(contents(&root.child("dataset")).await);
    }
    assert!(found[0] == found[1]);
}

#[tokio::test]
async fn what_is_no_image_is_set_aside_with_its_reason() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &[("image", Binary), ("label", Int64)]);
    let mut rows: Vec<Cells> = (0..200).map(image_row).collect();
    rows.push(vec![json!([71, 73, 70]), json!(1)]);
    rows.push(vec![Value::Null, json!(1)]);
    rows.push(vec![json!(image(500)), Value::Null]);
    zone.batch(&rows).await;
    let report = build_with(&root, IMAGES, 2).await.unwrap();
    let reasons: Vec<_> = report.rejected_by_reason.into_iter().collect();
    assert_eq!(
        reasons,
        [
            ("not_an_image".to_owned(), 2),
            ("target_missing".to_owned(), 1)
        ]
    );
    assert_eq!(report.train + report.validation + report.test, 200);
}

/// The text of each split, from its ids; an unknown one is `?`.
async fn texts(dataset: &Store) -> [String; 3] {
    let manifest = read_manifest(dataset).await.unwrap();
    let artefact = read_transform(dataset, &manifest).await.unwrap();
    let known = artefact.characters.unwrap().characters;
    let mut texts = [const { String::new() }; 3];
    for (split, batch) in blocks(dataset).await {
        let documents = batch["tokens"].as_list::<i32>();
        let ids = documents.values().as_primitive::<UInt16Type>();
        let character = |id: &u16| match id.checked_sub(1) {
            Some(known_id) => known[usize::from(known_id)],
            None => '?',
        };
        texts[split as usize].extend(ids.values().iter().map(character));
    }
    texts
}

async fn documents(root: &Store, documents: &[&str]) {
    let mut zone = LandingZone::new(root, "a", &[("text", Utf8)]);
    let rows: Vec<Cells> = documents.iter().map(|text| vec![json!(text)]).collect();
    zone.batch(&rows).await;
}

#[tokio::test]
async fn one_text_is_cut_in_order_and_only_its_first_part_makes_the_vocabulary() {
    let root = Store::memory();
    documents(&root, &["bbbaaaacc dädd\n1234z"]).await;
    let config = format!(
        "{CHARACTERS}split = {{ by = \"range\", train = 0.75, validation = 0.2, test = 0.05 }}"
    );
    let report = build_with(&root, &config, 2).await.unwrap();
    let dataset = root.child("dataset");
    assert_eq!(
        texts(&dataset).await,
        [
            "bbbaaaacc dädd\n".to_owned(),
            "????".to_owned(),
            "?".to_owned()
        ]
    );
    let manifest = read_manifest(&dataset).await.unwrap();
    let artefact = read_transform(&dataset, &manifest).await.unwrap();
    let fitted = artefact.characters.unwrap();
    assert_eq!(fitted.characters, ['a', 'b', 'd', 'c', '\n', ' ', 'ä']);
    assert_eq!(fitted.counts, [4, 3, 3, 2, 1, 1, 1]);
    let layout = Layout::Tokens {
        id: TokenType::U16,
        vocabulary: 8,
    };
    assert_eq!(manifest.layout, layout);
    let tokens = TokenCounts {
        train: 15,
        validation: 4,
        test: 1,
        unknown: 5,
    };
    assert_eq!(report.tokens, Some(tokens));
    assert_eq!((report.rows_in, report.duplicates), (1, 0));
    assert_eq!((report.train, report.validation, report.test), (1, 1, 1));
    assert!(verify(&dataset).await.unwrap().problems.is_empty());
}

#[tokio::test]
async fn documents_stay_whole_unless_they_are_to_be_cut() {
    let texts_of: Vec<String> = (0..300).map(|i| format!("document {i}.")).collect();
    let mut landed: Vec<&str> = texts_of.iter().map(String::as_str).collect();
    landed.extend(["document 7.", "document 8.", ""]);
    let total: u64 = texts_of.iter().map(|text| text.len() as u64).sum();
    let mut found = Vec::new();
    for partitions in [1, 3] {
        let root = Store::memory();
        documents(&root, &landed).await;
        let config = format!("{CHARACTERS}shards = {{ block_bytes = \"4 KiB\", shuffle = false }}");
        let report = build_with(&root, &config, partitions).await.unwrap();
        assert_eq!(
            (report.rows_in, report.duplicates, report.rejected),
            (303, 2, 1)
        );
        assert_eq!(report.tokens.unwrap().total(), total);
        let dataset = root.child("dataset");
        let all = texts(&dataset).await.concat();
        for text in &texts_of {
            assert_eq!(all.matches(text.as_str()).count(), 1, "{text}");
        }
        found.push(contents(&dataset).await);
    }
    assert!(found[0] == found[1]);
}

#[tokio::test]
async fn documents_that_are_cut_are_counted_as_documents() {
    let root = Store::memory();
    let texts_of: Vec<String> = (0..20).map(|i| format!("{i:010}")).collect();
    let mut landed: Vec<&str> = texts_of.iter().map(String::as_str).collect();
    landed.extend(["0000000000", ""]);
    documents(&root, &landed).await;
    // The same digits in two parts would be a leak: the last ones differ.
    let config = format!(
        "{CHARACTERS}max_reject_fraction = 0.2\nsplit = {{ by = \"range\", train = 0.8, validation = 0.0, test = 0.2 }}"
    );
    let report = build_with(&root, &config, 2).await.unwrap();
    assert_eq!(
        (report.rows_in, report.duplicates, report.rejected),
        (22, 1, 1)
    );
    // All documents begin alike, and that part is stored for each.
    assert_eq!((report.train, report.validation, report.test), (20, 0, 20));
    let tokens = report.tokens.unwrap();
    assert_eq!((tokens.train, tokens.test), (160, 40));
}

#[tokio::test]
async fn equal_parts_of_documents_in_several_splits_name_the_split_that_keeps_them_together() {
    let root = Store::memory();
    documents(&root, &["xy", "yx"]).await;
    let config = |by: &str| {
        format!(
            "{CHARACTERS}split = {{ by = \"{by}\", train = 0.5, validation = 0.0, test = 0.5 }}"
        )
    };
    let error = build_with(&root, &config("range"), 1).await.unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("2 parts of documents have the same text in more than one split")
            && error.contains("`dataset.split.by = \"key\"`")
            && !error.contains("dedup"),
        "{error}"
    );
}

#[tokio::test]
async fn a_split_that_one_document_cannot_fill_says_how() {
    let root = Store::memory();
    documents(&root, &["one text"]).await;
    let error = build_with(&root, CHARACTERS, 1).await.unwrap_err();
    assert!(
        error.to_string().contains("`dataset.split.by = \"range\"`"),
        "{error}"
    );
}

#[tokio::test]
async fn damaged_lengths_are_found_and_built_again() {
    let root = Store::memory();
    documents(&root, &["0123456789 0123456789 abc"]).await;
    let config = format!("{CHARACTERS}split = {{ by = \"range\" }}");
    build_with(&root, &config, 1).await.unwrap();
    let dataset = root.child("dataset");
    let before = contents(&dataset).await;
    let path = before.keys().find(|p| p.ends_with(".lengths")).unwrap();
    flip_bit(&dataset, path, 0).await;
    let problems = verify(&dataset).await.unwrap().problems;
    assert!(
        problems[0].contains("are missing or damaged"),
        "{problems:?}"
    );
    dataset.delete(path).await.unwrap();
    assert!(!build_with(&root, &config, 1).await.unwrap().up_to_date);
    assert!(contents(&dataset).await == before);
}

#[tokio::test]
async fn keys_of_another_kind_are_refused() {
    let root = Store::memory();
    let columns = [("image", Binary), ("text", Utf8)];
    let mut zone = LandingZone::new(&root, "a", &columns);
    zone.batch(&[vec![json!(image(1)), json!("x")]]).await;
    let refused = async |config: &str| {
        let config = format!("sources = [\"a\"]\n{config}");
        build_with(&root, &config, 1).await.unwrap_err().to_string()
    };
    for (config, expected) in [
        ("content = \"text\"", "`dataset.content`: rows of numbers"),
        (
            "kind = \"characters\"\nsplit = { by = \"range\", embargo = 3 }",
            "`dataset.split.embargo`: it counts rows",
        ),
        (
            "target = \"image\"",
            "`dataset.target`: column `image` holds bytes",
        ),
        (
            "features = [\"image\"]",
            "`dataset.features`: column `image` holds bytes",
        ),
        (
            "kind = \"images\"\ndrop = [\"text\"]",
            "`dataset.drop`: a dataset of this",
        ),
        (
            "kind = \"images\"\ncontent = \"text\"",
            "`dataset.content`: column `text` does",
        ),
        (
            "kind = \"images\"\nsplit = { by = \"range\" }",
            "images have no order",
        ),
        (
            "kind = \"characters\"\ntarget = \"image\"",
            "`dataset.target`: a dataset of this",
        ),
        (
            "kind = \"characters\"\ncontent = \"image\"",
            "does not hold text",
        ),
        (
            "kind = \"characters\"\ncontent = \"txt\"",
            "did you mean `text`?",
        ),
    ] {
        let found = refused(config).await;
        assert!(found.contains(expected), "{config}: {found}");
    }
}
