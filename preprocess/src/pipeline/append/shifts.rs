//! Differences between appended training rows and those that the transform was fitted on.

use feedline_schemas::{
    manifest::{ClassCounts, TargetSummary},
    report::FeatureShift,
    transform::{FittedTarget, TransformArtefact},
};

use crate::{
    Error,
    shards::shard_index::{Measured, ShardIndex, shift_of, shifts, strongest},
};

/// Leaked keys that are named.
const SAMPLES: usize = 5;

/// The strongest shifts of features, numeric targets and classes in the rows `added`, each also logged.
pub(super) fn find_shifts(
    artefact: &TransformArtefact,
    there: &ShardIndex,
    added: &ShardIndex,
    classes: &[ClassCounts],
) -> Vec<FeatureShift> {
    let mut all = shifts(&names_of(artefact), there, added);
    all.extend(class_shifts(artefact, classes));
    let found = strongest(all);
    for shift in &found {
        tracing::warn!(
            feature = shift.feature,
            before = shift.before,
            after = shift.after,
            deviations = shift.deviations,
            "new training rows differ from those that the transform was fitted on; `--refit` refits it"
        );
    }
    found
}

/// Names of the features, then of the targets that are numbers.
fn names_of(artefact: &TransformArtefact) -> Vec<String> {
    let features = artefact.features.iter().map(|feature| feature.name.clone());
    let targets = artefact.targets().filter_map(|target| match target {
        FittedTarget::Regression { column, .. } => Some(column.clone()),
        FittedTarget::Classification { .. } => None,
    });
    features.chain(targets).collect()
}

/// Classes with another share of the appended training rows, `added`, than of those that the transform was fitted on, each by
/// the name `<column>=<class>`.
fn class_shifts(artefact: &TransformArtefact, added: &[ClassCounts]) -> Vec<FeatureShift> {
    let Some(FittedTarget::Classification { column, counts, .. }) = &artefact.target else {
        return Vec::new();
    };
    let fitted: u64 = counts.iter().sum();
    let appended: u64 = added.iter().map(|class| class.train).sum();
    let shifts = counts.iter().zip(added).filter_map(|(before, class)| {
        let name = format!("{column}={}", class.name);
        shift_of(&name, share(*before, fitted), share(class.train, appended))
    });
    shifts.collect()
}

/// The share of `count` of `rows` rows, as the mean of a feature that is 1 or 0.
#[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
fn share(count: u64, rows: u64) -> Measured {
    let mean = count as f64 / rows.max(1) as f64;
    Measured {
        rows: rows as f64,
        mean,
        variance: mean * (1.0 - mean),
        range: [0.0, 1.0],
        unlike: None,
    }
}

/// The numeric targets of `artefact` over the training rows of both; none where one has no rows.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it counts rows"
)]
pub(super) fn targets_of_all(
    artefact: &TransformArtefact,
    there: &ShardIndex,
    added: &ShardIndex,
) -> Vec<TargetSummary> {
    let targets = artefact.targets().enumerate().map(|(place, target)| {
        let FittedTarget::Regression { scale, offset, .. } = target else {
            return None;
        };
        let (rows, stored) = there.target(added, place)?;
        Some(TargetSummary {
            rows: rows as u64,
            mean: stored * scale + offset,
        })
    });
    let targets: Option<Vec<TargetSummary>> = targets.collect();
    targets.unwrap_or_default()
}

/// Checks that no appended row is in another split than an existing row with the same key.
pub(super) fn check_leaks(there: &ShardIndex, added: &ShardIndex) -> Result<(), Error> {
    let leaks = there.leaks(added);
    if leaks.is_empty() {
        return Ok(());
    }
    let named = leaks.iter().take(SAMPLES);
    Err(Error::Leak {
        keys: leaks.len() as u64,
        samples: named.map(|key| format!("key `{key:016x}`")).collect(),
    })
}
