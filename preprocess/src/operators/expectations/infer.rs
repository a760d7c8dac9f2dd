//! Expectations from the profile of a dataset, for people to edit.

use feedline_schemas::{
    expect::{Expectations, ExpectedColumn},
    profile::{CategoricalProfile, DatasetProfile, NumericProfile},
    transform::InputKind,
};
use feedline_storage::Store;

use crate::{Error, read_manifest, read_profile};

/// A category with more values than this is expected to bring new ones.
const FEW_VALUES: u64 = 100;

/// Margin for missing cells above the found ones, as a fraction.
const MORE_MISSING: f64 = 0.05;

/// Infers expectations of the columns of the current dataset from its training split alone.
///
/// Numbers: their range, extended by a tenth, but not past zero. Categories of at most 100 values:
/// those values. A column without a missing cell requires a value in each row; others may lack five
/// in a hundred more cells than before.
///
/// # Errors
/// As [`read_manifest`]; [`Error::Config`] for a dataset without a profile.
pub async fn infer_expectations(dataset: &Store) -> Result<Expectations, Error> {
    let manifest = read_manifest(dataset).await?;
    let Some(profile) = read_profile(dataset, &manifest).await? else {
        let reason = "the dataset was built without a profile; set it to true and build again";
        return Err(Error::config("dataset.profile", reason));
    };
    Ok(infer(&profile))
}

pub(super) fn infer(profile: &DatasetProfile) -> Expectations {
    let numeric = profile.numeric.iter().filter_map(number);
    Expectations {
        column: numeric
            .chain(profile.categorical.iter().filter_map(text))
            .collect(),
    }
}

fn number(column: &NumericProfile) -> Option<ExpectedColumn> {
    let train = column.splits.first()?;
    let (min, max) = (train.min?, train.max?);
    let wider = max / 10.0 - min / 10.0;
    let (mut low, mut high) = (min - wider, max + wider);
    if min >= 0.0 {
        low = low.max(0.0);
    }
    if max <= 0.0 {
        high = high.min(0.0);
    }
    let infinite = (train.low_infinite > 0, train.high_infinite > 0);
    let mut expected = column_of(
        &column.name,
        InputKind::Numeric,
        train.missing,
        train.cells(),
    );
    expected.min = (!infinite.0 && low.is_finite()).then_some(low);
    expected.max = (!infinite.1 && high.is_finite()).then_some(high);
    Some(expected)
}

fn text(column: &CategoricalProfile) -> Option<ExpectedColumn> {
    let train = column.splits.first()?;
    let mut expected = column_of(
        &column.name,
        InputKind::Categorical,
        train.missing,
        train.cells(),
    );
    let are_few = train.distinct <= FEW_VALUES && train.other == 0;
    expected.values = (are_few && !column.values.is_empty()).then(|| column.values.clone());
    Some(expected)
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
fn column_of(name: &str, kind: InputKind, missing: u64, cells: u64) -> ExpectedColumn {
    let share = missing as f64 / cells.max(1) as f64 + MORE_MISSING;
    ExpectedColumn {
        name: name.to_owned(),
        kind,
        required: missing == 0,
        min: None,
        max: None,
        max_missing_fraction: (missing > 0).then(|| (share * 100.0).ceil().min(100.0) / 100.0),
        unique: false,
        values: None,
    }
}
