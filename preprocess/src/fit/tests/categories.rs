//! Categories that become numbers, and hashed ones.
#![expect(clippy::float_cmp, reason = "what is promised is exact")]

use feedline_schemas::transform::{FittedCategories, FittedFrequency};

use super::*;

fn encoded(keys: Value) -> StepConfig {
    step_with("categories", &["c"], keys)
}

fn categories_of(artefact: &TransformArtefact) -> &FittedCategories {
    match &artefact.steps[..] {
        [FittedStep::Categories { columns }] => &columns[0],
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_frequency_is_the_share_of_the_training_rows_and_of_unknown_ones_it_is_zero() {
    let values = [
        Some("b"),
        Some("a"),
        None,
        Some("b"),
        Some("b"),
        None,
        None,
        Some("c"),
    ];
    let table = [("c", texts(&values))];
    let step = encoded(json!({ "encoding": "frequency", "max_values": 2 }));
    let artefact = fitted(&table, vec![step]).await;
    let found = categories_of(&artefact);
    assert_eq!(
        found.frequency,
        Some(FittedFrequency {
            rows: 8,
            missing: 3
        })
    );
    assert_eq!(
        (found.values.join(" "), &found.counts[..]),
        ("b a".to_owned(), &[3, 1][..])
    );
    let names: Vec<&str> = artefact.features.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["c"]);
    let later = [(
        "c",
        texts(&[Some("b"), Some("a"), None, Some("c"), Some("new")]),
    )];
    assert_eq!(
        applied(&artefact, &later).x,
        [0.375, 0.125, 0.375, 0.0, 0.0]
    );
}

#[tokio::test]
async fn values_in_too_few_rows_are_unknown() {
    let values = ["x", "x", "x", "y", "y", "z"].map(Some);
    let table = [("c", texts(&values))];
    for (fewest, known) in [(1, "x y z"), (2, "x y"), (3, "x"), (4, "")] {
        let step = encoded(json!({ "encoding": "ordinal", "min_count": fewest }));
        let artefact = fitted(&table, vec![step]).await;
        assert_eq!(categories_of(&artefact).values.join(" "), known);
        assert_eq!(categories_of(&artefact).min_count, Some(fewest));
        let unknown = applied(&artefact, &table)
            .x
            .iter()
            .filter(|x| **x == 0.0)
            .count();
        assert_eq!(unknown, [0, 1, 3, 6][usize::try_from(fewest).unwrap() - 1]);
    }
}

#[tokio::test]
async fn hashed_texts_have_a_bucket_each_whatever_was_in_train() {
    let table = [("c", texts(&[Some("x"), None]))];
    let step = encoded(json!({ "encoding": "hash", "buckets": 8 }));
    let artefact = fitted(&table, vec![step]).await;
    assert_eq!(categories_of(&artefact).values, [""; 0]);
    let names: Vec<&str> = artefact.features.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names[..4], ["c=__unknown__", "c=__null__", "c=#0", "c=#1"]);
    assert_eq!((names.len(), artefact.features[9].category), (10, Some(9)));
    let words: Vec<String> = (0..200).map(|i| format!("word {i}")).collect();
    let words: Vec<Option<&str>> = words.iter().map(|w| Some(w.as_str())).collect();
    let x = applied(&artefact, &[("c", texts(&words))]).x;
    let mut rows = [0; 10];
    for (row, word) in x.chunks(10).zip(&words) {
        let id = row.iter().position(|x| *x == 1.0).unwrap();
        let expected = xxhash_rust::xxh3::xxh3_64(word.unwrap().as_bytes()) % 8;
        assert_eq!((id as u64, row.iter().sum::<f32>()), (expected + 2, 1.0));
        rows[id] += 1;
    }
    assert_eq!(rows[..2], [0, 0]);
    assert!(rows[2..].iter().all(|rows| *rows > 5), "{rows:?}");
    let null = applied(&artefact, &[("c", texts(&[None]))]).x;
    assert_eq!(null.iter().position(|x| *x == 1.0), Some(1));
}

#[tokio::test]
async fn the_same_text_in_other_code_points_has_the_same_bucket() {
    let table = [("c", texts(&[Some("x")]))];
    let step = encoded(json!({ "encoding": "hash", "buckets": 60_000 }));
    let artefact = fitted(&table, vec![step]).await;
    let bucket = |text: &str| {
        let x = applied(&artefact, &[("c", texts(&[Some(text)]))]).x;
        x.iter().position(|x| *x == 1.0).unwrap()
    };
    assert_eq!(bucket("caf\u{e9}"), bucket("cafe\u{301}"));
    assert_eq!(bucket("\u{212b}"), bucket("\u{c5}"));
    assert_ne!(bucket("cafe"), bucket("caf\u{e9}"));
}

#[tokio::test]
async fn an_artefact_whose_encoding_lacks_its_numbers_is_refused() {
    let table = [("c", texts(&[Some("x"), Some("y")]))];
    let encodings = [
        ("frequency", "lack the rows that shares are of"),
        ("hash", "lack buckets"),
    ];
    for (encoding, message) in encodings {
        let mut artefact = fitted(&table, vec![encoded(json!({ "encoding": encoding }))]).await;
        let FittedStep::Categories { columns } = &mut artefact.steps[0] else {
            panic!("{:?}", artefact.steps)
        };
        (columns[0].frequency, columns[0].buckets) = (None, None);
        artefact.hash = artefact.compute_hash();
        let error = Transform::new(artefact).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[tokio::test]
async fn an_artefact_without_the_new_keys_is_what_it_was() {
    let table = [("c", texts(&[Some("x"), Some("y"), Some("x")]))];
    let artefact = fitted(&table, vec![step("categories", &["c"])]).await;
    let json = serde_json::to_string(&artefact.steps).unwrap();
    assert_eq!(
        json,
        "[{\"type\":\"categories\",\"columns\":[{\"name\":\"c\",\"values\":[\"x\",\"y\"],\"counts\":[2,1],\
         \"encoding\":\"one_hot\"}]}]"
    );
    assert_eq!(
        serde_json::from_str::<Vec<FittedStep>>(&json).unwrap(),
        artefact.steps
    );
}
