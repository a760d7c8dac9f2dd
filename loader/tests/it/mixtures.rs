//! Mixtures of datasets whose rows may mean different things.

use std::sync::Arc;

use arrow::array::{Float32Array, Int32Array};
use feedline_loader::{
    ColumnMap, Error, InputConfig, Loader, LoaderConfig, MixtureConfig, SourceWeight, TokensConfig,
    image::{Crop, ImageConfig},
};
use feedline_schemas::{
    encode,
    format::TRANSFORM,
    ids::Hash128,
    manifest::{Layout, Split, TargetKind, TokenType},
    transform::{
        Feature, FittedStandardize, FittedStep, FittedTarget, FittedTokens, TransformArtefact,
    },
};
use feedline_storage::{Store, clock::SystemClock};

use crate::{
    SHARDS, config,
    dataset::{FEATURES, publish_layout, publish_manifest, publish_train},
    foreign::{archive, column, parquet},
    formats::png,
};

const NAMES: [&str; 3] = ["area", "rooms", "age"];

fn two() -> LoaderConfig {
    LoaderConfig {
        mixture: Some(MixtureConfig {
            sources: vec![SourceWeight::default(); 2],
            ..MixtureConfig::default()
        }),
        ..config(50)
    }
}

async fn mix(datasets: [Store; 2], config: &LoaderConfig) -> Result<Loader, Error> {
    Loader::open_mixture(&datasets, config, Arc::new(SystemClock)).await
}

async fn check_refused(datasets: [Store; 2], config: &LoaderConfig, difference: &str) {
    let error = mix(datasets, config).await.unwrap_err();
    assert!(
        matches!(error, Error::Config { key: "mixture", .. }),
        "{error:?}"
    );
    let error = error.to_string();
    let expected = format!("cannot be mixed: {difference}");
    assert!(error.contains(&expected), "{error}");
}

/// A transform that standardizes features of these names.
fn transform(names: [&str; 3], mean: f64) -> TransformArtefact {
    let feature = |name: &str| Feature {
        name: name.to_owned(),
        column: name.to_owned(),
        category: None,
    };
    let column = |name: &str| FittedStandardize {
        name: name.to_owned(),
        mean,
        deviation: 2.0,
        scale: 2.0,
        constant: false,
        groups: None,
    };
    TransformArtefact {
        format: TRANSFORM.format.to_owned(),
        version: TRANSFORM.version,
        hash: Hash128::new(0),
        fitted_rows: 1,
        null_values: Vec::new(),
        missing_values: Vec::new(),
        inputs: Vec::new(),
        steps: vec![FittedStep::Standardize {
            columns: names.map(column).to_vec(),
        }],
        features: names.map(feature).to_vec(),
        target: None,
        other_targets: Vec::new(),
        characters: None,
        images: None,
        tokens: None,
        signs: None,
    }
}

/// A dataset with this transform.
async fn published(layout: Layout, mut transform: TransformArtefact) -> Store {
    let store = Store::memory();
    let mut manifest = publish_layout(&store, layout, &[(Split::Train, SHARDS)]).await;
    transform.hash = transform.compute_hash();
    let path = &manifest.transform.path;
    store.put(path, encode(&transform).into()).await.unwrap();
    manifest.transform.hash = transform.hash;
    publish_manifest(&store, manifest).await;
    store
}

async fn rows(target: TargetKind, transform: TransformArtefact) -> Store {
    let layout = Layout::Dense {
        features: FEATURES,
        target,
    };
    published(layout, transform).await
}

fn number(column: &str, scale: f64) -> FittedTarget {
    FittedTarget::Regression {
        column: column.to_owned(),
        mean: 5.0,
        scale,
        offset: 5.0,
    }
}

#[tokio::test]
async fn features_of_other_names_or_in_another_order_are_not_mixed() {
    let dataset = async |names| rows(TargetKind::None, transform(names, 1.0)).await;
    let loader = mix([dataset(NAMES).await, dataset(NAMES).await], &two()).await;
    assert_eq!(loader.unwrap().warnings(), Vec::<String>::new());
    let turned = dataset(["area", "age", "rooms"]).await;
    let difference = "element `1` of `x` is `rooms` in the first and `age` in the second";
    check_refused([dataset(NAMES).await, turned], &two(), difference).await;
}

#[tokio::test]
async fn other_fitted_numbers_are_a_warning_and_counts_are_none() {
    let warnings = async |second: TransformArtefact| {
        let first = TransformArtefact {
            target: Some(number("price", 2.0)),
            ..transform(NAMES, 1.0)
        };
        let kind = TargetKind::Regression;
        let datasets = [rows(kind, first).await, rows(kind, second).await];
        mix(datasets, &two()).await.unwrap().warnings()
    };
    let of_more_rows = TransformArtefact {
        fitted_rows: 9,
        target: Some(number("cost", 2.0)),
        ..transform(NAMES, 1.0)
    };
    assert_eq!(warnings(of_more_rows).await, Vec::<String>::new());
    let moved = TransformArtefact {
        target: Some(number("price", 2.0)),
        ..transform(NAMES, 7.0)
    };
    let found = warnings(moved).await;
    assert!(
        found.len() == 1
            && found[0].contains("its step `standardize` has other fitted numbers than dataset"),
        "{found:?}"
    );
    let scaled = TransformArtefact {
        target: Some(number("price", 3.0)),
        ..transform(NAMES, 1.0)
    };
    let found = warnings(scaled).await;
    assert!(
        found.len() == 1 && found[0].contains("its target is scaled by other numbers"),
        "{found:?}"
    );
}

#[tokio::test]
async fn other_kinds_or_names_of_targets_are_not_mixed() {
    let dataset = async |target| rows(target, transform(NAMES, 1.0)).await;
    let datasets = [
        dataset(TargetKind::Regression).await,
        dataset(TargetKind::None).await,
    ];
    let difference = "the first has a number as target and the second has no target";
    check_refused(datasets, &two(), difference).await;
    let of_two = async |[first, second]: [&str; 2]| {
        let transform = TransformArtefact {
            target: Some(number(first, 1.0)),
            other_targets: vec![number(second, 1.0)],
            ..transform(NAMES, 1.0)
        };
        rows(TargetKind::Regressions { targets: 2 }, transform).await
    };
    let datasets = [of_two(["low", "high"]).await, of_two(["high", "low"]).await];
    let difference =
        "the targets of the first are `low`, `high` and those of the second are `high`, `low`";
    check_refused(datasets, &two(), difference).await;
}

#[tokio::test]
async fn ids_of_another_tokenizer_are_not_mixed() {
    let documents = async |column: &str, tokenizer: u128, learnt_bytes| {
        let tokens = FittedTokens {
            column: column.to_owned(),
            tokenizer: Hash128::new(tokenizer),
            vocabulary: 60_000,
            end_of_text: None,
            learnt_bytes,
        };
        let transform = TransformArtefact {
            tokens: Some(tokens),
            steps: Vec::new(),
            features: Vec::new(),
            ..transform(NAMES, 1.0)
        };
        let layout = Layout::Tokens {
            id: TokenType::U16,
            vocabulary: 60_000,
        };
        published(layout, transform).await
    };
    let config = LoaderConfig {
        tokens: Some(TokensConfig::new(9)),
        ..two()
    };
    let same = [
        documents("text", 1, Some(500)).await,
        documents("body", 1, None).await,
    ];
    let loader = mix(same, &config).await.unwrap();
    assert_eq!(loader.warnings(), Vec::<String>::new());
    let others = [
        documents("text", 1, None).await,
        documents("text", 2, None).await,
    ];
    let difference = "one id is not the same token in both";
    check_refused(others, &config, difference).await;
}

#[tokio::test]
async fn a_transform_that_is_missing_is_warned_of_and_a_changed_one_is_refused() {
    let store = Store::memory();
    publish_train(&store, SHARDS).await;
    let other = rows(TargetKind::Regression, transform(NAMES, 1.0)).await;
    let loader = mix([store.clone(), other.clone()], &two()).await.unwrap();
    let found = loader.warnings();
    assert!(
        found.len() == 1 && found[0].contains("its transform `transform-0.json` is missing"),
        "{found:?}"
    );
    let changed = TransformArtefact {
        hash: Hash128::new(3),
        ..transform(NAMES, 2.0)
    };
    let bytes = encode(&changed).into();
    other.put("transform-0.json", bytes).await.unwrap();
    let error = mix([store, other], &two()).await.unwrap_err().to_string();
    assert!(
        error.contains("transform-0.json`: its hash is `"),
        "{error}"
    );
}

#[tokio::test]
async fn tables_are_mixed_only_with_their_columns_in_one_order() {
    let table = async |names: [&str; 2]| {
        let store = Store::memory();
        let mut columns = Vec::new();
        for name in names {
            let values = (0..100_u8).map(f32::from);
            columns.push((name, column(Float32Array::from_iter_values(values))));
        }
        let classes = (0..100).map(|row| row % 3);
        columns.push(("label", column(Int32Array::from_iter_values(classes))));
        store.put("0.parquet", parquet(columns, 50)).await.unwrap();
        store
    };
    let datasets = [table(["a", "b"]).await, table(["b", "a"]).await];
    let difference = "element `0` of `x` is `a` in the first and `b` in the second";
    check_refused(datasets.clone(), &two(), difference).await;
    let named = InputConfig {
        columns: ColumnMap {
            x: vec!["b".into(), "a".into()],
            ..ColumnMap::default()
        },
        ..InputConfig::new()
    };
    let config = LoaderConfig {
        input: named,
        ..two()
    };
    let loader = mix(datasets, &config).await.unwrap();
    assert_eq!(loader.samples(), 200);
}

#[tokio::test]
async fn exports_whose_ids_are_other_classes_are_not_mixed() {
    let export = async |classes: &str| {
        let roles = format!(r#"{{"image": "image", "targets": ["folder"], "classes": {classes}}}"#);
        let mut members = vec![("__feedline__".to_owned(), roles.into_bytes())];
        for sample in 0..20 {
            let json = format!(r#"{{"folder": {}}}"#, sample % 2);
            members.push((format!("{sample:04}.json"), json.into_bytes()));
            members.push((format!("{sample:04}.png"), png(sample)));
        }
        let store = Store::memory();
        store.put("0.tar", archive(&members)).await.unwrap();
        store
    };
    let config = LoaderConfig {
        images: Some(ImageConfig::new(4, 4, Crop::Whole)),
        ..two()
    };
    let (first, second) = (r#"["a", "b"]"#, r#"["b", "a"]"#);
    mix([export(first).await, export(first).await], &config)
        .await
        .unwrap();
    let difference =
        "one id is not the same class in both: the first has `a`, `b` and the second has `b`, `a`";
    let datasets = [export(first).await, export(second).await];
    check_refused(datasets, &config, difference).await;
}
