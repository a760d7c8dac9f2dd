//! Splits that stay empty with few rows.

use feedline_ingest::{SourcePreview, landed};
use feedline_schemas::{
    config::{DatasetConfig, SplitConfig},
    ids::Name,
    manifest::Split,
    report::Warning,
};
use feedline_storage::Store;

use super::checked_source::CheckedSource;
use crate::output::counted;

/// Least chance of an empty split that is worth a warning.
const WORTH_A_WARNING: f64 = 0.05;

/// Reports that a split stays empty with the rows of the only source, which ends a build: as an
/// error where it is certain, and as a warning where it depends on the hash of each row.
pub(super) async fn judge_few_rows(
    settings: &DatasetConfig,
    preview: &SourcePreview,
    (name, source): (&Name, &mut CheckedSource),
    root: &Store,
) {
    let split = &settings.split;
    let is_cut = settings.kind.is_text() && !split.by.is_key();
    let is_by_fraction = !split.by.is_named() && split.until().is_empty();
    if !preview.is_all || preview.rows == 0 || source.error.is_some() || is_cut || !is_by_fraction {
        return;
    }
    let fractions = fractions(split);
    let shown: Vec<String> = fractions
        .iter()
        .map(|(split, fraction)| format!("{split} {fraction}"))
        .collect();
    let shown = shown.join(", ");
    let advice = "land more rows, or give it a larger fraction or none in `dataset.split`";
    let groups = groups(split, preview);
    let rows = counted(preview.rows, "row");
    // Rows that have landed before may no longer be in the source.
    let is_first = matches!(Box::pin(landed(root, name)).await, Ok(None));
    if groups < fractions.len() as u64 && is_first {
        source.error = Some(format!(
            "{rows} cannot fill {} splits ({shown}), and a build stops where one is empty; {advice}",
            fractions.len()
        ));
        return;
    }
    let chance = match split.by.is_key() {
        true => chance_of_an_empty_split(&fractions, groups),
        false => 0.0,
    };
    if chance >= WORTH_A_WARNING {
        let message = format!(
            "with {rows} a split ({shown}) stays empty by a chance of {:.0} %, and a build stops then; {advice}",
            chance * 100.0
        );
        let warning = Warning::new("few_rows", message).with_key("dataset.split");
        source.warnings.push(warning);
    }
}

/// Splits with a fraction, each with it.
fn fractions(split: &SplitConfig) -> Vec<(Split, f64)> {
    let fractions = [split.train, split.validation, split.test];
    let all = Split::ALL.into_iter().zip(fractions);
    all.filter(|(_, fraction)| *fraction > 0.0).collect()
}

/// Number of groups of rows that share a split: those of the key, if it is one column whose values
/// are known, and otherwise each row.
fn groups(split: &SplitConfig, preview: &SourcePreview) -> u64 {
    let [key] = split.key.as_slice() else {
        return preview.rows;
    };
    let mut columns = preview.columns.iter();
    let column = columns.find(|column| column.name == *key);
    column
        .filter(|column| column.compared + column.missing == preview.rows)
        .map_or(preview.rows, |column| column.distinct + column.missing)
}

/// Chance that some split gets none of `groups`, where each is in a split by its fraction:
/// by inclusion and exclusion over the splits that may be empty.
fn chance_of_an_empty_split(fractions: &[(Split, f64)], groups: u64) -> f64 {
    let groups = i32::try_from(groups).unwrap_or(i32::MAX);
    let empty_sets = 1..1_usize << fractions.len();
    let chance = empty_sets.map(|set| {
        let empty = fractions.iter().enumerate();
        let empty = empty.filter(|(at, _)| set & (1 << at) > 0);
        let fraction: f64 = empty.map(|(_, (_, fraction))| fraction).sum();
        let sign = if set.count_ones() % 2 == 1 { 1.0 } else { -1.0 };
        sign * (1.0 - fraction).max(0.0).powi(groups)
    });
    chance.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chance(train: f64, validation: f64, test: f64, groups: u64) -> f64 {
        let split = SplitConfig {
            train,
            validation,
            test,
            ..SplitConfig::default()
        };
        chance_of_an_empty_split(&fractions(&split), groups)
    }

    #[test]
    fn the_chance_of_an_empty_split_falls_with_the_rows() {
        // One of two halves is empty if both rows are in the other one.
        assert!((chance(0.5, 0.0, 0.5, 2) - 0.5).abs() < 1e-12);
        // Three rows in three splits: 3! orders of one row in each.
        let all = 6.0 * 0.8 * 0.1 * 0.1;
        assert!((chance(0.8, 0.1, 0.1, 3) - (1.0 - all)).abs() < 1e-12);
        assert!(chance(0.8, 0.1, 0.1, 30) > WORTH_A_WARNING);
        assert!(chance(0.8, 0.1, 0.1, 100) < WORTH_A_WARNING);
        assert!(chance(1.0, 0.0, 0.0, 1).abs() < 1e-12);
    }
}
