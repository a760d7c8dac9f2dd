//! Datasets whose training splits are mixed.
//!
//! The dataset that is trained on is the loader's first source, whatever its place in the configuration; the others follow
//! in their order. A model sees samples of all of them as one, so their shards must hold the same things under the same
//! fitted transform; that is checked before any shard is read.

use std::{collections::BTreeSet, sync::Arc};

use feedline_loader::{Loader, LoaderConfig, MixtureConfig, SourceEnd, SourceWeight};
use feedline_schemas::{
    config::{SourceAtEnd, TrainMixture, TrainSource},
    ids::Hash128,
    loader_state::LoaderState,
    manifest::Manifest,
    report::{MixedSource, Warning},
    transform::{FittedTarget, TransformArtefact},
};
use feedline_storage::{Store, clock::Clock};

use crate::{
    config::{loader_keys::in_section, values::at_least_zero},
    data::{
        shared_rows::{self, OtherDataset, SharedRows},
        transform_artefact::read_transform,
    },
    error::{Error, config as wrong},
    float_casts::exact,
    model::class_outputs,
};

/// Most sources of a mixture.
const SOURCES_MAX: usize = 1 << 12;

/// Reason why rows of a dataset with a source of the same name cannot be compared by their keys.
const NO_SHARED_KEYS: &str = "their rows have no keys in common, as where other columns or ids make up a row or \
                              `dataset.dedup_ignore` differs";

/// Key of the datasets of a mixture.
const KEY: &str = "train.mixture.sources";

/// Code of the warning of datasets that share rows, or names of sources, with the one that is measured.
const SHARES_SOURCES: &str = "mixture_shares_sources";

/// Code of the warning of rows that were not compared.
const NOT_COMPARED: &str = "mixture_not_compared";

/// Checks every value of `mixture` that needs no dataset.
///
/// # Errors
/// [`Error::Config`] for the first value that cannot be used.
pub(crate) fn check(mixture: &TrainMixture) -> Result<(), Error> {
    let sources = &mixture.sources;
    if sources.len() > SOURCES_MAX {
        let reason = format!("it has {} entries, use up to {SOURCES_MAX}", sources.len());
        return Err(wrong("mixture.sources", reason));
    }
    let own = sources.iter().filter(|s| s.dataset.is_none()).count();
    if own != 1 {
        let reason = format!(
            "{own} of its entries have no `dataset`, and one must have none: it stands for the dataset that is trained on; \
             `{{ weight = 0 }}` only validates and tests on that"
        );
        return Err(wrong("mixture.sources", reason));
    }
    let mut urls = BTreeSet::new();
    for (i, source) in sources.iter().enumerate() {
        let key = |field: &str| format!("mixture.sources.{i}.{field}");
        if let Some(weight) = source.weight {
            at_least_zero(&key("weight"), weight)?;
        }
        if let Some(url) = &source.dataset
            && !urls.insert(url)
        {
            let reason = format!("`{url}` is listed twice; add up the weights of both");
            return Err(wrong(&key("dataset"), reason));
        }
        if source.dataset.is_none() && source.fingerprint.is_some() {
            let reason = "only a dataset that is named here has it; leave it out";
            return Err(wrong(&key("fingerprint"), reason));
        }
    }
    let weights: Vec<f64> = sources.iter().filter_map(|s| s.weight).collect();
    if !weights.is_empty() && weights.len() < sources.len() {
        let reason = "some entries have a `weight` and some have none; give all or none";
        return Err(wrong("mixture.sources", reason));
    }
    if !weights.is_empty() && weights.iter().sum::<f64>() <= 0.0 {
        let reason = "all weights are 0; give at least one entry a `weight` above 0";
        return Err(wrong("mixture.sources", reason));
    }
    if mixture.samples_per_epoch == Some(0) {
        return Err(wrong(
            "mixture.samples_per_epoch",
            "it is 0 and must be at least 1",
        ));
    }
    Ok(())
}

/// The entries with their places: the one of the dataset that is trained on, then the others.
fn in_order(mixture: &TrainMixture) -> Vec<(usize, &TrainSource)> {
    let mut sources: Vec<_> = mixture.sources.iter().enumerate().collect();
    sources.sort_by_key(|(_, source)| source.dataset.is_some());
    sources
}

fn of_loader(mixture: &TrainMixture) -> MixtureConfig {
    let sources = in_order(mixture).into_iter();
    let weights = sources.map(|(_, source)| SourceWeight {
        weight: source.weight,
        end: match source.end {
            SourceAtEnd::Repeat => SourceEnd::Repeat,
            SourceAtEnd::Stop => SourceEnd::Stop,
        },
    });
    MixtureConfig {
        sources: weights.collect(),
        stratified: mixture.stratified,
        samples_per_epoch: mixture.samples_per_epoch,
    }
}

/// The mixture with the fingerprints of its datasets, read where none are given.
///
/// # Errors
/// [`Error::Loader`] for what is wrong with a manifest, [`Error::Storage`] for a URL that leads nowhere.
pub(crate) async fn settled(
    mixture: &TrainMixture,
    dataset: &Store,
) -> Result<TrainMixture, Error> {
    let mut mixture = mixture.clone();
    for source in &mut mixture.sources {
        if let (Some(url), None) = (&source.dataset, source.fingerprint) {
            let manifest = feedline_loader::read_manifest(&dataset.open_another(url)?).await?;
            source.fingerprint = Some(manifest.fingerprint);
        }
    }
    Ok(mixture)
}

/// A warning of datasets whose training rows are rows that are measured: rows of the validation or test split of `dataset`, by
/// their keys. Where these are too many, or have no key in common, it is of datasets that were made of sources of the same name.
///
/// # Errors
/// As [`settled`].
pub(crate) async fn leak_warning(
    mixture: &TrainMixture,
    dataset: &Store,
    manifest: &Manifest,
) -> Result<Option<Warning>, Error> {
    let mut others = Vec::new();
    for source in &mixture.sources {
        let is_trained_on = source.weight.is_none_or(|weight| weight > 0.0);
        let Some(url) = source.dataset.as_ref().filter(|_| is_trained_on) else {
            continue;
        };
        let store = dataset.open_another(url)?;
        let manifest = feedline_loader::read_manifest(&store).await?;
        others.push(OtherDataset {
            url: url.clone(),
            store,
            manifest,
        });
    }
    if others.is_empty() {
        return Ok(None);
    }
    let compared = shared_rows::find(dataset, manifest, &others).await;
    let warning = of_comparison(manifest, &others, compared);
    if let Some(warning) = &warning {
        tracing::warn!(code = warning.code, key = KEY, "{}", warning.message);
    }
    Ok(warning)
}

/// The warning of the rows that other datasets of a mixture share with those that are measured, or that they were not compared.
fn of_comparison(
    manifest: &Manifest,
    others: &[OtherDataset],
    compared: Result<SharedRows<'_>, String>,
) -> Option<Warning> {
    let (code, message) = match compared {
        Ok(found) => {
            let of_names = of_source_names(manifest, found.not_comparable, NO_SHARED_KEYS);
            let messages = [of_rows(&found.shared), of_names].into_iter().flatten();
            let messages: Vec<String> = messages.collect();
            if messages.is_empty() {
                return None;
            }
            (SHARES_SOURCES, messages.join("; "))
        }
        Err(reason) => {
            let of_names = format!("their splits were not compared, since {reason}");
            match of_source_names(manifest, others, &of_names) {
                Some(message) => (SHARES_SOURCES, message),
                None => (NOT_COMPARED, not_compared(&reason)),
            }
        }
    };
    Some(Warning::new(code, message).with_key(KEY))
}

/// The message that it is not known whether other datasets, of other sources, have rows that are measured.
fn not_compared(reason: &str) -> String {
    format!(
        "training rows of the other datasets of the mixture were not compared with the rows of the validation and test split that \
         measure, since {reason}; if datasets may have equal rows, build them as one dataset"
    )
}

/// The message about the datasets that train on rows which are measured, if there are any.
fn of_rows(found: &[String]) -> Option<String> {
    (!found.is_empty()).then(|| {
        format!(
            "training splits of other datasets of the mixture have rows of the validation or test split that measures, so the \
             figures are too good: {}; build all with the same `dataset.split`, or as one dataset",
            found.join("; ")
        )
    })
}

/// The message about the datasets that were made of sources that the dataset which is measured has, too, if there are any;
/// `reason` says why their rows were not found or excluded.
fn of_source_names<'a>(
    manifest: &Manifest,
    others: impl IntoIterator<Item = &'a OtherDataset>,
    reason: &str,
) -> Option<String> {
    let of_dataset = |other: &OtherDataset| {
        let shared = other.shared_sources(manifest).into_iter();
        let shared: Vec<String> = shared.map(|name| format!("`{name}`")).collect();
        (!shared.is_empty()).then(|| format!("`{}` ({})", other.url, shared.join(", ")))
    };
    let found: Vec<String> = others.into_iter().filter_map(of_dataset).collect();
    (!found.is_empty()).then(|| {
        format!(
            "datasets of the mixture have sources of the same name as the dataset whose validation and test splits measure: {}; \
             {reason}, so their training rows may be rows of these splits, and the figures too good; build all with the same \
             columns and the same `dataset.split`, or as one dataset",
            found.join(", ")
        )
    })
}

/// Opens the training splits of all datasets as one, the settings being those of a split.
///
/// # Errors
/// [`Error::Config`] for datasets that cannot be mixed; what opening them says.
pub(crate) async fn open(
    dataset: &Store,
    mixture: &TrainMixture,
    settings: &LoaderConfig,
    clock: Arc<dyn Clock>,
) -> Result<Loader, Error> {
    let manifest = feedline_loader::read_manifest(dataset).await?;
    let artefact = read_transform(dataset, &manifest).await?;
    let mut stores = vec![dataset.clone()];
    let mut fingerprints = vec![manifest.fingerprint];
    for (i, source) in in_order(mixture) {
        let Some(url) = &source.dataset else { continue };
        let store = dataset.open_another(url)?;
        let found = feedline_loader::read_manifest(&store).await?;
        let other = read_transform(&store, &found).await?;
        check_pin(i, source, found.fingerprint)?;
        if let Some(difference) = difference((&manifest, &artefact), (&found, &other)) {
            let reason = format!(
                "it cannot be mixed with `{}`: {difference}; build both with the same transform, or land both as sources of one \
                 `[dataset]`",
                dataset.url()
            );
            return Err(wrong(&format!("mixture.sources.{i}.dataset"), reason));
        }
        fingerprints.push(found.fingerprint);
        stores.push(store);
    }
    let settings = LoaderConfig {
        mixture: Some(of_loader(mixture)),
        ..settings.clone()
    };
    let opened = Loader::open_mixture(&stores, &settings, clock).await;
    let loader = opened.map_err(in_section)?;
    // Each was read twice.
    if !loader.sources().map(|s| s.fingerprint).eq(fingerprints) {
        return Err(Error::Dataset {
            url: dataset.url(),
            reason:
                "a dataset of its mixture was built again while it was being opened; start again"
                    .into(),
        });
    }
    Ok(loader)
}

fn check_pin(i: usize, source: &TrainSource, found: Hash128) -> Result<(), Error> {
    match source.fingerprint {
        Some(wanted) if wanted != found => {
            let reason = format!(
                "it is `{wanted}`, and the dataset has `{found}` now; leave it out to train on the dataset as it is"
            );
            Err(wrong(&format!("mixture.sources.{i}.fingerprint"), reason))
        }
        _ => Ok(()),
    }
}

/// Differences that would give one number or id of a sample two meanings.
fn difference(
    (manifest, artefact): (&Manifest, &TransformArtefact),
    (other_manifest, other_artefact): (&Manifest, &TransformArtefact),
) -> Option<String> {
    let names = |manifest: &Manifest| -> Vec<String> {
        let classes = manifest.counts.classes.iter();
        classes.map(|class| class.name.clone()).collect()
    };
    let (classes, other_classes) = (names(manifest), names(other_manifest));
    if classes != other_classes {
        return Some(format!(
            "its classes are {}, and not {}; `dataset.classes` fixes their order",
            class_outputs::list(&other_classes),
            class_outputs::list(&classes)
        ));
    }
    if manifest.layout != other_manifest.layout {
        let layout = |manifest: &Manifest| {
            serde_json::to_string(&manifest.layout).expect("a layout has string keys")
        };
        return Some(format!(
            "its shards hold `{}`, and not `{}`",
            layout(other_manifest),
            layout(manifest)
        ));
    }
    let (ours, theirs) = (meaning(artefact), meaning(other_artefact));
    if ours.tokens != theirs.tokens {
        return Some("it has another tokenizer".to_owned());
    }
    if ours.characters != theirs.characters {
        return Some("its characters have other ids".to_owned());
    }
    let features = ours.features.iter().zip(&theirs.features);
    if let Some((feature, _)) = features.clone().find(|(a, b)| a != b) {
        return Some(format!("its features differ from `{}` on", feature.name));
    }
    let mut steps = ours.steps.iter().zip(&theirs.steps);
    if ours.steps.len() != theirs.steps.len() {
        return Some("its features were made by other steps".to_owned());
    }
    if let Some((step, _)) = steps.find(|(a, b)| a != b) {
        let kind = serde_json::to_value(step).unwrap_or_default();
        let kind = kind.get("type").and_then(|kind| kind.as_str());
        return Some(format!(
            "its step `{}` was fitted on other rows, so the same number means another value",
            kind.unwrap_or_default()
        ));
    }
    if let Some(targets) = other_targets(&ours, &theirs) {
        return Some(targets);
    }
    let is_same = ours.target == theirs.target && ours.other_targets == theirs.other_targets;
    (!is_same).then(|| {
        "its target is scaled otherwise, so the same number means another value".to_owned()
    })
}

/// Names of several targets that differ.
fn other_targets(ours: &TransformArtefact, theirs: &TransformArtefact) -> Option<String> {
    let (own, other) = (ours.target_names(), theirs.target_names());
    (own != other).then(|| {
        format!(
            "its targets are {}, and not {}; list them in `dataset.target` in the same order",
            class_outputs::list(&other),
            class_outputs::list(&own)
        )
    })
}

/// The part of a transform that decides the meaning of what shards hold.
fn meaning(artefact: &TransformArtefact) -> TransformArtefact {
    let mut artefact = artefact.clone();
    if let Some(tokens) = &mut artefact.tokens {
        tokens.column.clear();
        tokens.learnt_bytes = None;
    }
    if let Some(characters) = &mut artefact.characters {
        characters.column.clear();
        characters.counts.clear();
    }
    // Of several targets the names decide which number is which.
    let is_one = artefact.other_targets.is_empty();
    let targets = artefact.target.iter_mut();
    for target in targets.chain(&mut artefact.other_targets) {
        match target {
            FittedTarget::Regression { column, mean, .. } => {
                if is_one {
                    column.clear();
                }
                *mean = 0.0;
            }
            FittedTarget::Classification { column, counts, .. } => {
                column.clear();
                counts.clear();
            }
        }
    }
    artefact
}

/// Samples that each dataset of a mixture gave before `state`; empty where there is no mixture.
pub(crate) fn given(
    loader: &Loader,
    mixture: Option<&TrainMixture>,
    dataset_url: &str,
    state: &LoaderState,
) -> Vec<MixedSource> {
    let Some(mixture) = mixture else {
        return Vec::new();
    };
    let given = loader.given(state.clone()).unwrap_or_default();
    let entries = in_order(mixture);
    let weights: Vec<f64> = entries
        .iter()
        .zip(loader.sources())
        .map(|((_, entry), source)| entry.weight.unwrap_or(exact(source.samples)))
        .collect();
    let sum: f64 = weights.iter().sum();
    let sources = loader.sources().zip(entries).zip(weights).zip(given);
    sources
        .map(|(((source, (_, entry)), weight), given)| MixedSource {
            dataset: entry.dataset.clone().unwrap_or(dataset_url.to_owned()),
            fingerprint: source.fingerprint,
            share: weight / sum,
            samples: source.samples,
            given,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        ids::{Sequence, TableName},
        manifest::SourceReference,
    };
    use feedline_testkit::numbered_dataset::publish_train;

    use super::*;

    fn refused(json: &str) -> String {
        let mixture = serde_json::from_str(json).unwrap();
        check(&mixture).unwrap_err().to_string()
    }

    #[test]
    fn a_mixture_that_cannot_be_is_refused_before_anything_is_opened() {
        for (json, word) in [
            (r#"{"sources": []}"#, "0 of its entries have no `dataset`"),
            (
                r#"{"sources": [{}, {}]}"#,
                "2 of its entries have no `dataset`",
            ),
            (
                r#"{"sources": [{"weight": 1}, {"dataset": "a"}]}"#,
                "give all or none",
            ),
            (
                r#"{"sources": [{"weight": 0}, {"dataset": "a", "weight": 0}]}"#,
                "all weights are 0",
            ),
            (
                r#"{"sources": [{}, {"dataset": "a"}, {"dataset": "a"}]}"#,
                "`train.mixture.sources.2.dataset`: `a` is listed twice",
            ),
            (
                r#"{"sources": [{}, {"dataset": "a", "weight": -1}]}"#,
                "`train.mixture.sources.1.weight`: it is -1",
            ),
            (
                r#"{"sources": [{}, {"dataset": "a"}], "samples_per_epoch": 0}"#,
                "`train.mixture.samples_per_epoch`",
            ),
        ] {
            let error = refused(json);
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn the_dataset_that_is_trained_on_is_the_loaders_first() {
        let json = r#"{"sources": [{"dataset": "a", "weight": 3, "end": "stop"}, {"weight": 1}], "stratified": true}"#;
        let mixture: TrainMixture = serde_json::from_str(json).unwrap();
        check(&mixture).unwrap();
        let found = of_loader(&mixture);
        let weights: Vec<_> = found.sources.iter().map(|s| s.weight).collect();
        assert_eq!(weights, [Some(1.0), Some(3.0)]);
        assert_eq!(found.sources[1].end, SourceEnd::Stop);
        assert!(found.stratified);
    }

    #[tokio::test]
    async fn sources_of_the_same_name_are_named_where_rows_are_not_compared() {
        let source = |name: &str| SourceReference {
            name: TableName::new(name).unwrap(),
            sequence: Sequence::new(1),
            entry_hash: Hash128::new(1),
            licence: None,
        };
        let store = Store::memory();
        let mut own = publish_train(&store, &[&[1]]).await;
        own.sources = vec![source("rows"), source("more")];
        let other = |names: &[&str]| OtherDataset {
            url: "memory:///other".into(),
            store: store.clone(),
            manifest: Manifest {
                sources: names.iter().map(|name| source(name)).collect(),
                ..own.clone()
            },
        };
        let named = |names: &[&str]| of_source_names(&own, &[other(names)], NO_SHARED_KEYS);
        assert_eq!(named(&["elsewhere"]), None);
        let found = named(&["elsewhere", "rows"]).unwrap();
        for part in [
            "`memory:///other` (`rows`); their rows have no keys in common",
            "`dataset.dedup_ignore` differs, so their training rows may be",
        ] {
            assert!(found.contains(part), "{part}: {found}");
        }
        let not_compared = |names: &[&str]| {
            let reason = Err("there are too many".to_owned());
            of_comparison(&own, &[other(names)], reason).unwrap()
        };
        for (names, code) in [
            (&["rows"], "mixture_shares_sources"),
            (&["elsewhere"], "mixture_not_compared"),
        ] {
            let warning = not_compared(names);
            assert_eq!(warning.code, code);
            assert!(
                warning.message.contains("not compared")
                    && warning.message.contains("since there are too many"),
                "{}",
                warning.message
            );
        }
        let nothing = of_comparison(&own, &[other(&["rows"])], Ok(SharedRows::default()));
        assert_eq!(nothing, None);
    }
}
