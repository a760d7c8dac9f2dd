//! WebDataset.

use feedline_schemas::manifest::TargetKind;
use feedline_storage::Store;

use super::{classes, extents, failure, image_files, keys, numbers, open, read_all, refused};
use crate::{
    dataset::image,
    foreign::archive,
    input::{
        RowContent,
        config::{ColumnMap, InputConfig},
    },
};

/// Members of samples in the order that archivers give them.
fn members(samples: std::ops::Range<u64>, folder: &str) -> Vec<(String, Vec<u8>)> {
    let mut members = Vec::new();
    for sample in samples {
        let name = |extension: &str| format!("{folder}{sample:06}.{extension}");
        members.push((name("cls"), format!("{}\n", sample % 5).into_bytes()));
        members.push((name("JPG"), large_image(sample)));
        members.push((
            name("json"),
            format!(r#"{{"score": {}.5}}"#, sample).into_bytes(),
        ));
        members.push((name("seg.png"), b"a mask".to_vec()));
    }
    members
}

/// Large enough for several blocks.
fn large_image(sample: u64) -> Vec<u8> {
    let mut bytes = image(sample);
    bytes.resize(bytes.len() + 100_000, 7);
    bytes
}

async fn archives() -> Store {
    let store = Store::memory();
    let long = format!("{}/{}/", "long".repeat(30), "name".repeat(20));
    let (first, second) = (members(0..25, ""), members(25..40, &long));
    store.put("data-000.tar", archive(&first)).await.unwrap();
    store.put("data-001.tar", archive(&second)).await.unwrap();
    store
}

#[tokio::test]
async fn samples_are_grouped_by_name_and_cut_into_blocks() {
    let store = archives().await;
    let input = open(&store, &InputConfig::default()).await;
    let target = TargetKind::Classification { classes: 5 };
    assert_eq!(*input.record(), RowContent::Images { target });
    let blocks = read_all(&input, &store).await.unwrap();
    assert!(blocks.len() > 3, "{}", blocks.len());
    assert_eq!(
        image_files(&blocks),
        (0..40).map(large_image).collect::<Vec<_>>()
    );
    assert_eq!(classes(&blocks), (0..40).map(|i| i % 5).collect::<Vec<_>>());
    let mut unique = keys(&blocks);
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), 40);
    let again = open(&store, &InputConfig::default()).await;
    assert_eq!(again.fingerprint(), input.fingerprint());
    store
        .put("data-001.tar", archive(&members(25..41, "")))
        .await
        .unwrap();
    let changed = open(&store, &InputConfig::default()).await;
    assert_ne!(changed.fingerprint(), input.fingerprint());
}

#[tokio::test]
async fn images_are_not_copied() {
    let store = archives().await;
    let input = open(&store, &InputConfig::default()).await;
    let rows = input.read(0, 0, &extents(&store)).await.unwrap();
    let crate::input::block_rows::BlockRows::Images(rows) = rows else {
        panic!()
    };
    assert_eq!(rows.bytes.len() as u64, input.block_bytes(0));
}

#[tokio::test]
async fn labels_come_from_json_when_a_key_is_named() {
    let store = archives().await;
    let config = InputConfig {
        columns: ColumnMap {
            y: Some("score".into()),
            image: Some("seg.png".into()),
            ..ColumnMap::default()
        },
        ..InputConfig::default()
    };
    let input = open(&store, &config).await;
    let target = TargetKind::Regression;
    assert_eq!(*input.record(), RowContent::Images { target });
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(image_files(&blocks), vec![b"a mask".to_vec(); 40]);
}

async fn refused_archive(members: &[(&str, &str)]) -> String {
    let store = Store::memory();
    let members: Vec<_> = members
        .iter()
        .map(|(name, data)| ((*name).to_owned(), data.as_bytes().to_vec()))
        .collect();
    store.put("x.tar", archive(&members)).await.unwrap();
    refused(&store, &InputConfig::default()).await
}

#[tokio::test]
async fn samples_that_are_not_whole_are_refused_by_name() {
    let check = async |members: &[(&str, &str)], message: &str| {
        let error = refused_archive(members).await;
        assert!(error.contains(message), "{error}");
    };
    check(
        &[("a.jpg", "x"), ("a.jpg", "y")],
        "sample `a` has two members `jpg`",
    )
    .await;
    check(
        &[("a.jpg", "x"), ("a.png", "y")],
        "sample `a` has two images",
    )
    .await;
    check(
        &[("a.jpg", "x"), ("b.jpg", "y"), ("a.cls", "1")],
        "sample `a` has no image",
    )
    .await;
    check(
        &[("a.jpg", "x"), ("b.jpg", "y"), ("a.jpg", "1")],
        "key `a` comes twice, with other samples in between",
    )
    .await;
    check(
        &[("a.cls", "x"), ("a.jpg", "y")],
        "sample `a`: its label is not a number",
    )
    .await;
    check(
        &[("a.cls", "1"), ("a.jpg", "x"), ("b.jpg", "y")],
        "`1` of its `2` samples have a label",
    )
    .await;
    check(
        &[("README", "x"), (".hidden.jpg", "y")],
        "none of its files has a sample",
    )
    .await;
}

#[tokio::test]
async fn an_archive_cut_anywhere_is_refused() {
    let store = Store::memory();
    let members: Vec<_> = (0..3).map(|i| (format!("{i}.jpg"), image(i))).collect();
    let whole = archive(&members);
    store.put("x.tar", whole.clone()).await.unwrap();
    open(&store, &InputConfig::default()).await;
    for length in (0..whole.len() - 511).step_by(64) {
        store.put("x.tar", whole.slice(..length)).await.unwrap();
        let error = refused(&store, &InputConfig::default()).await;
        assert!(error.contains("truncated"), "{length}: {error}");
    }
}

/// A member whose data is an archive of its own, behind a pax header that states its true size while its own header says
/// that it is empty: a reader that believes the latter would find the inner archive's members.
#[tokio::test]
async fn a_smuggled_archive_is_refused_and_an_honest_one_inside_is_data() {
    let inner = archive(&[("evil.jpg".to_owned(), b"evil".to_vec())]);
    let mut builder = tar::Builder::new(Vec::new());
    let size = inner.len().to_string();
    builder
        .append_pax_extensions([("size", size.as_bytes())])
        .unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_path("good.jpg").unwrap();
    header.set_size(0);
    header.set_cksum();
    let mut smuggled = builder.into_inner().unwrap();
    smuggled.truncate(1024);
    smuggled.extend_from_slice(header.as_bytes());
    smuggled.extend_from_slice(&inner);
    let store = Store::memory();
    store.put("x.tar", smuggled.into()).await.unwrap();
    let error = refused(&store, &InputConfig::default()).await;
    assert!(error.contains("a member has two sizes"), "{error}");

    let honest = archive(&[("good.jpg".to_owned(), inner.to_vec())]);
    store.put("x.tar", honest).await.unwrap();
    let input = open(&store, &InputConfig::default()).await;
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(image_files(&blocks), [inner.to_vec()]);
}

#[tokio::test]
async fn an_archive_that_changes_during_the_run_is_refused() {
    let store = archives().await;
    let input = open(&store, &InputConfig::default()).await;
    read_all(&input, &store).await.unwrap();
    let mut bytes = store.get("data-000.tar").await.unwrap().to_vec();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    store.put("data-000.tar", bytes.into()).await.unwrap();
    let error = failure(&input, &store).await;
    assert!(error.contains("when it was first read"), "{error}");
}

fn with(columns: ColumnMap) -> InputConfig {
    InputConfig {
        columns,
        ..InputConfig::default()
    }
}

#[tokio::test]
async fn a_name_that_no_sample_has_is_refused_with_those_they_have() {
    let store = archives().await;
    let named = |y: &str| {
        with(ColumnMap {
            y: Some(y.into()),
            ..ColumnMap::default()
        })
    };
    for name in ["labl", "json.labl"] {
        let error = refused(&store, &named(name)).await;
        assert!(
            error.contains(&format!("called `{name}`, which `columns.y` names"))
                && error.contains("`cls`, `jpg`, `json`, `seg.png`"),
            "{error}"
        );
    }
    for columns in [
        ColumnMap {
            key: Some("a".into()),
            ..ColumnMap::default()
        },
        ColumnMap {
            tokens: Some("a".into()),
            ..ColumnMap::default()
        },
    ] {
        let error = refused(&store, &with(columns)).await;
        assert!(error.contains("an image and a label are read"), "{error}");
    }
    let columns = ColumnMap {
        x: vec!["a".into()],
        ..ColumnMap::default()
    };
    let error = refused(&store, &with(columns)).await;
    assert!(
        error.contains("sample `000000`: its json has no `a`, it has `score`"),
        "{error}"
    );
    let input = open(&store, &named("json.score")).await;
    let target = TargetKind::Regression;
    assert_eq!(*input.record(), RowContent::Images { target });
}

#[tokio::test]
async fn a_label_in_json_is_found_by_its_usual_names_and_said() {
    let store = Store::memory();
    let members: Vec<(String, Vec<u8>)> = (0..6)
        .flat_map(|i: u64| {
            let json = format!(r#"{{"caption": "c", "label": {}}}"#, i % 3);
            [
                (format!("{i}.jpg"), image(i)),
                (format!("{i}.json"), json.into_bytes()),
                (format!("{i}.mask.png"), image(i)),
            ]
        })
        .collect();
    store.put("x.tar", archive(&members)).await.unwrap();
    let input = open(&store, &InputConfig::default()).await;
    let target = TargetKind::Classification { classes: 3 };
    assert_eq!(*input.record(), RowContent::Images { target });
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(classes(&blocks), [0, 1, 2, 0, 1, 2]);
    let warnings = input.warnings().join("\n");
    assert!(
        warnings.contains("labels are read from the `json` members, where their key is `label`"),
        "{warnings}"
    );
    assert!(warnings.contains("`mask.png` are not"), "{warnings}");
}

/// Archives of samples that are JSON alone, each behind a first member with `roles`, if there are any.
async fn rows(roles: Option<&str>) -> Store {
    let store = Store::memory();
    for (archive_number, samples) in [(0, 0..40_u32), (1, 40..60)] {
        let roles = roles.map(|text| ("__feedline__".to_owned(), text.as_bytes().to_vec()));
        let row = |i: u32| {
            let json = format!(
                r#"{{"a": {i}.0, "b": [{i}, -1], "kind": {}, "id": {}, "note": "n"}}"#,
                i % 3,
                100 + i
            );
            (format!("{i:09}.json"), json.into_bytes())
        };
        let members: Vec<_> = roles.into_iter().chain(samples.map(row)).collect();
        let path = format!("train-{archive_number}.tar");
        store.put(&path, archive(&members)).await.unwrap();
    }
    store
}

#[tokio::test]
async fn rows_of_numbers_are_read_from_json_where_their_keys_are_named() {
    let expected: Vec<f32> = (0..60_u8)
        .flat_map(|i| [f32::from(i), -1.0, f32::from(i)])
        .collect();
    let store = rows(None).await;
    let error = refused(&store, &InputConfig::default()).await;
    assert!(
        error.contains("sample `000000000` has no image; to read rows of numbers")
            && error.contains("`columns.x`"),
        "{error}"
    );
    let named = with(ColumnMap {
        x: vec!["b".into(), "a".into()],
        y: Some("kind".into()),
        key: Some("id".into()),
        ..ColumnMap::default()
    });
    let roles =
        r#"{"features": ["b", "a"], "targets": ["kind"], "classes": ["u", "v", "w"], "key": "id"}"#;
    for (store, config) in [
        (store, named),
        (rows(Some(roles)).await, InputConfig::default()),
    ] {
        let input = open(&store, &config).await;
        let target = TargetKind::Classification { classes: 3 };
        let features = 3;
        assert_eq!(*input.record(), RowContent::Dense { features, target });
        let blocks = read_all(&input, &store).await.unwrap();
        assert_eq!(numbers(&blocks), expected);
        assert_eq!(classes(&blocks), (0..60).map(|i| i % 3).collect::<Vec<_>>());
        assert_eq!(keys(&blocks), (100..160).collect::<Vec<_>>());
        assert_eq!(input.warnings(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn archives_that_cannot_be_read_as_rows_say_why() {
    let store = rows(Some(r#"{"tokens": "tokens"}"#)).await;
    let error = refused(&store, &InputConfig::default()).await;
    assert!(
        error.contains("documents of token ids") && error.contains("Parquet or MDS"),
        "{error}"
    );
    let store = rows(Some(r#"{"features": ["a"]}"#)).await;
    let other = [
        (
            "__feedline__".to_owned(),
            br#"{"features": ["b"]}"#.to_vec(),
        ),
        ("9.json".to_owned(), br#"{"a": 1, "b": 2}"#.to_vec()),
    ];
    store.put("train-2.tar", archive(&other)).await.unwrap();
    let error = refused(&store, &InputConfig::default()).await;
    assert!(
        error.contains("train-2.tar") && error.contains("of another export"),
        "{error}"
    );
    let empty = Store::memory();
    let lists = [("9.json".to_owned(), br#"{"a": []}"#.to_vec())];
    empty.put("x.tar", archive(&lists)).await.unwrap();
    let named = with(ColumnMap {
        x: vec!["a".into()],
        ..ColumnMap::default()
    });
    let error = refused(&empty, &named).await;
    assert!(error.contains("rows have no numbers"), "{error}");
    let uneven = [("9.json".to_owned(), br#"{"a": [1, 2]}"#.to_vec())];
    store.put("train-2.tar", archive(&uneven)).await.unwrap();
    let error = refused(&store, &named).await;
    assert!(
        error.contains("have `1` numbers, and those of another `2`"),
        "{error}"
    );
}

#[tokio::test]
async fn images_beside_json_without_a_target_are_warned_of() {
    let store = Store::memory();
    let members = [
        ("0.jpg".to_owned(), image(0)),
        ("0.json".to_owned(), br#"{"folder": 1}"#.to_vec()),
    ];
    store.put("x.tar", archive(&members)).await.unwrap();
    let warnings = open(&store, &InputConfig::default()).await.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("no target is read"),
        "{warnings:?}"
    );
    let none = InputConfig {
        target: Some(TargetKind::None),
        ..InputConfig::default()
    };
    assert_eq!(open(&store, &none).await.warnings(), Vec::<String>::new());
}

#[tokio::test]
async fn labels_are_not_read_where_the_target_is_none() {
    let store = Store::memory();
    let members = [
        ("0.jpg".to_owned(), image(0)),
        ("0.cls".to_owned(), b"cat".to_vec()),
    ];
    store.put("x.tar", archive(&members)).await.unwrap();
    let error = refused(&store, &InputConfig::default()).await;
    assert!(error.contains("set `target` to none"), "{error}");
    let target = TargetKind::None;
    let none = InputConfig {
        target: Some(target),
        ..InputConfig::default()
    };
    let input = open(&store, &none).await;
    assert_eq!(*input.record(), RowContent::Images { target });
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(image_files(&blocks), [image(0)]);
}

#[tokio::test]
async fn labels_of_64_bits_are_no_classes_and_as_numbers_are_rounded_with_a_warning() {
    let store = Store::memory();
    let members = [
        ("0.jpg".to_owned(), image(0)),
        ("0.cls".to_owned(), i64::MAX.to_string().into_bytes()),
    ];
    store.put("x.tar", archive(&members)).await.unwrap();
    let error = failure(&open(&store, &InputConfig::default()).await, &store).await;
    assert!(error.contains("class `-1`"), "{error}");
    let numbers = InputConfig {
        target: Some(TargetKind::Regression),
        ..InputConfig::default()
    };
    let input = open(&store, &numbers).await;
    read_all(&input, &store).await.unwrap();
    let warnings = input.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("integers of the target `cls` are rounded"),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn labels_under_two_keys_are_not_taken_for_one() {
    let store = Store::memory();
    let members = [
        ("0.jpg".to_owned(), image(0)),
        ("0.json".to_owned(), br#"{"y": 1, "label": 5}"#.to_vec()),
        ("1.jpg".to_owned(), image(1)),
        ("1.json".to_owned(), br#"{"label": 6}"#.to_vec()),
    ];
    store.put("x.tar", archive(&members)).await.unwrap();
    let error = refused(&store, &InputConfig::default()).await;
    assert!(
        error.contains("under different keys, `label`, `y`; name one in `columns.y`"),
        "{error}"
    );
    let named = with(ColumnMap {
        y: Some("label".into()),
        ..ColumnMap::default()
    });
    let input = open(&store, &named).await;
    let blocks = read_all(&input, &store).await.unwrap();
    assert_eq!(classes(&blocks), [5, 6]);
}

#[tokio::test]
async fn a_target_that_is_also_a_feature_is_warned_of() {
    let store = rows(None).await;
    let named = with(ColumnMap {
        x: vec!["a".into(), "kind".into()],
        y: Some("kind".into()),
        ..ColumnMap::default()
    });
    let warnings = open(&store, &named).await.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("the target `kind` is also a feature"),
        "{warnings:?}"
    );
}
