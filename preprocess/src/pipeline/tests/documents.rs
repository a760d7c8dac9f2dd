//! Datasets of documents that are prepared first.

use std::collections::BTreeMap;

use feedline_schemas::{
    manifest::RedactedCounts,
    record::ColumnType::{Float64, Utf8},
};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::{
    read_manifest,
    testing::{Cells, LandingZone, build_with, contents},
};

const DOCUMENTS: &str = "sources = [\"a\"]\nkind = \"characters\"\n";
const TRAIN: &str = "split = { train = 1.0, validation = 0.0, test = 0.0 }\n";

async fn land(root: &Store, texts: &[String]) {
    let mut zone = LandingZone::new(root, "a", &[("text", Utf8)]);
    let rows: Vec<Cells> = texts.iter().map(|text| vec![json!(text)]).collect();
    zone.batch(&rows).await;
}

/// The characters of a dataset, as its artefact lists them.
async fn alphabet(root: &Store) -> String {
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let artefact = crate::read_transform(&dataset, &manifest).await.unwrap();
    serde_json::to_string(&artefact).unwrap()
}

#[tokio::test]
async fn texts_of_one_normal_form_are_one_document() {
    let root = Store::memory();
    let texts = ["caf\u{e9}", "cafe\u{301}", "cafe", "\u{ff21}"].map(str::to_owned);
    land(&root, &texts).await;
    let with = |text: &str| format!("{DOCUMENTS}{TRAIN}{text}");
    let report = build_with(&root, &with(""), 2).await.unwrap();
    assert_eq!((report.duplicates, report.train), (0, 4));
    let report = build_with(&root, &with("text = {}"), 2).await.unwrap();
    assert_eq!((report.duplicates, report.train), (1, 3));
    let texts = alphabet(&root).await;
    assert!(
        texts.contains('\u{e9}') && !texts.contains('\u{301}'),
        "{texts}"
    );
    let nfkc = with("text = { normalize = \"nfkc\" }");
    build_with(&root, &nfkc, 2).await.unwrap();
    assert!(!alphabet(&root).await.contains('\u{ff21}'));
    let none = with("text = { normalize = \"none\" }");
    assert_eq!(build_with(&root, &none, 2).await.unwrap().train, 4);
}

#[tokio::test]
async fn rows_without_a_text_are_rejects_and_no_duplicates() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &[("text", Utf8)]);
    let mut rows: Vec<Cells> = (0..200).map(|i| vec![json!(format!("text {i}"))]).collect();
    let none = [Value::Null, json!(""), json!(" \n\t"), json!("\u{a0}")];
    rows.extend(none.iter().chain(&none).map(|cell| vec![cell.clone()]));
    zone.batch(&rows).await;
    for split in [TRAIN, "split = { by = \"key\" }\n"] {
        for text in ["", "text = {}\n"] {
            let dataset = format!("{DOCUMENTS}{split}{text}");
            let report = build_with(&root, &dataset, 2).await.unwrap();
            let rejected = BTreeMap::from([("no_text".to_owned(), 8)]);
            assert_eq!(
                (report.duplicates, report.rejected_by_reason),
                (0, rejected),
                "{dataset}"
            );
        }
    }
}

#[tokio::test]
async fn too_many_rows_without_a_text_are_counted_in_the_error_with_the_key_of_the_limit() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &[("text", Utf8)]);
    let mut rows: Vec<Cells> = (0..100).map(|i| vec![json!(format!("text {i}"))]).collect();
    rows.extend((0..25).map(|i| vec![json!(" ".repeat(i % 3))]));
    zone.batch(&rows).await;
    let dataset = format!("{DOCUMENTS}{TRAIN}");
    let error = build_with(&root, &dataset, 2).await.unwrap_err();
    let error = error.to_string();
    for part in [
        "25 of 125 rows were rejected, more than `dataset.max_reject_fraction` = 0.05 allows (no_text: 25)",
        "25 of the 25 have a missing, empty or blank text (`no_text`): leave such rows out in the source",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let report = build_with(&root, &format!("{dataset}max_reject_fraction = 0.5\n"), 2).await;
    let expected = BTreeMap::from([("no_text".to_owned(), 25)]);
    assert_eq!(report.unwrap().rejected_by_reason, expected);
}

#[tokio::test]
async fn documents_of_two_splits_that_differ_in_line_ends_or_outer_blanks_are_warned_of() {
    let warning = async |texts: &[String], more: &str| {
        let root = Store::memory();
        land(&root, texts).await;
        let dataset = format!("{DOCUMENTS}{more}");
        let report = build_with(&root, &dataset, 2).await.unwrap();
        assert_eq!(report.rows_in, texts.len() as u64);
        let mut warnings = report.warnings.into_iter();
        warnings.find(|warning| warning.code == "equal_documents")
    };
    let texts: Vec<String> = (0..200)
        .map(|i| format!("note {i}\nof two lines\n"))
        .collect();
    assert_eq!(warning(&texts, "").await, None);
    let crlf = texts.iter().map(|text| text.replace('\n', "\r\n"));
    let ended = texts.iter().map(|text| format!("{text}\n"));
    let trimmed = texts.iter().map(|text| text.trim().to_owned());
    let copies: [Vec<String>; 3] = [crlf.collect(), ended.collect(), trimmed.collect()];
    for copies in copies {
        let both = [texts.clone(), copies].concat();
        let found = warning(&both, "").await.unwrap();
        assert_eq!(found.key.as_deref(), Some("dataset.near_dup"));
        let part = "equal a training document but for line ends (CRLF or LF)";
        assert!(found.message.contains(part), "{found:?}");
        for more in ["near_dup = {}\n", "near_dup = { keep = \"all\" }\n"] {
            assert_eq!(warning(&both, more).await, None, "{more}");
        }
    }
}

#[tokio::test]
async fn personal_data_is_out_of_every_shard_and_counted() {
    let root = Store::memory();
    let mut texts: Vec<String> = (0..50)
        .map(|i| format!("document {i} by zzz{i}@qqq.example"))
        .collect();
    texts.push("call +49 30 1234567, pay with 4111 1111 1111 1111".to_owned());
    texts.push("call +49 30 1234567, pay with 4111 1111 1111 1111".to_owned());
    land(&root, &texts).await;
    for split in [TRAIN, "split = { by = \"range\" }\n"] {
        let dataset =
            format!("{DOCUMENTS}{split}text = {{ redact = [\"email\", \"phone\", \"card\"] }}");
        let report = build_with(&root, &dataset, 3).await.unwrap();
        let expected = RedactedCounts {
            emails: 50,
            phones: 1,
            cards: 1,
        };
        // The copy was dropped, and so is not counted.
        assert_eq!((report.redacted, report.duplicates), (Some(expected), 1));
        let found = alphabet(&root).await;
        assert!(
            !found.contains("\"@\"") && !found.contains("\"q\""),
            "{found}"
        );
    }
    let manifest = read_manifest(&root.child("dataset")).await.unwrap();
    assert!(manifest.text.is_some_and(|text| text.redact.len() == 3));
    assert!(manifest.counts.redacted.is_some());
}

/// A document of sixty words that passes every filter.
fn good(i: usize) -> String {
    let word = |at: usize| {
        let end = if at % 10 == 9 { ".\n" } else { " " };
        let number = (i * 60 + at) * 7919 % 100_003;
        let number = format!("{number:05}");
        let letters = number.bytes().map(|b| char::from(b - b'0' + b'a'));
        letters.collect::<String>() + end
    };
    (0..60).map(word).collect()
}

#[tokio::test]
async fn documents_that_fail_a_filter_are_left_out_under_its_name() {
    let root = Store::memory();
    let mut texts: Vec<String> = (0..100).map(good).collect();
    texts.extend((0..30).map(|i| format!("too short, number {i}")));
    texts.push(good(200).replace('.', ""));
    land(&root, &texts).await;
    let plain = build_with(&root, DOCUMENTS, 2).await.unwrap();
    assert!(plain.filtered.is_empty() && plain.rejected == 0);
    let dataset = format!("{DOCUMENTS}text = {{ quality = {{}} }}");
    let report = build_with(&root, &dataset, 2).await.unwrap();
    let expected = [("quality_min_sentences", 1), ("quality_min_words", 30)];
    let expected = expected.map(|(reason, rows)| (reason.to_owned(), rows));
    // A choice of the configuration: no share of rejects is exceeded, and nothing was rejected.
    assert_eq!(
        (report.rejected, report.filtered.clone()),
        (0, BTreeMap::from(expected))
    );
    assert_eq!(report.train + report.validation + report.test, 100);
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    assert_eq!(manifest.counts.filtered, report.filtered);
    let lines = dataset.get(&manifest.rejects[0]).await.unwrap();
    let line: Value = serde_json::from_slice(lines.split(|b| *b == b'\n').next().unwrap()).unwrap();
    assert_eq!(line["reason"], "quality_min_words");
    assert_eq!(line["value"], "4 in: too short, number 0");
}

#[tokio::test]
async fn prepared_documents_come_out_the_same_for_any_number_of_partitions() {
    let mut found = Vec::new();
    for partitions in [1, 3] {
        let root = Store::memory();
        let mut texts: Vec<String> = (0..90).map(|i| good(i) + "x@y.example").collect();
        texts.extend((0..20).map(|i| format!("short {i}")));
        land(&root, &texts).await;
        let dataset = format!(
            "{DOCUMENTS}text = {{ redact = [\"email\"], quality = {{}} }}\nnear_dup = {{}}"
        );
        build_with(&root, &dataset, partitions).await.unwrap();
        found.push(contents(&root.child("dataset")).await);
    }
    assert!(found[0] == found[1]);
}

#[tokio::test]
async fn only_documents_are_prepared() {
    let root = Store::memory();
    let mut zone = LandingZone::new(&root, "a", &[("x", Float64), ("text", Utf8)]);
    let rows: Vec<Cells> = (0..50)
        .map(|i| vec![json!(f64::from(i)), json!("t")])
        .collect();
    zone.batch(&rows).await;
    let check = async |dataset: &str, key: &str| {
        let error = build_with(&root, dataset, 1).await.unwrap_err();
        assert_eq!(crate::testing::config_key(&error), Some(key), "{error}");
    };
    check("sources = [\"a\"]\ntext = {}", "dataset.text").await;
    let twice = format!("{DOCUMENTS}text = {{ redact = [\"email\", \"email\"] }}");
    check(&twice, "dataset.text.redact").await;
    for (key, limits) in [
        ("max_mean_word", "max_mean_word = inf"),
        ("max_symbols", "max_symbols = nan"),
        ("max_top_ngrams", "max_top_ngrams = [0.2, -0.1, 0.1]"),
        ("min_words", "min_words = 9, max_words = 8"),
        ("min_characters", "min_characters = 9, max_characters = 8"),
        ("min_mean_word", "min_mean_word = 11"),
    ] {
        let dataset = format!("{DOCUMENTS}text = {{ quality = {{ {limits} }} }}");
        check(&dataset, &format!("dataset.text.quality.{key}")).await;
    }
}
