//! Values that no model should see: NaN, infinity, and classes that the dataset does not have.

use feedline_schemas::manifest::TargetKind;

use super::block_rows::{BadRow, BlockRows, BlockTarget};
use super::{config::BadValues, record::RowContent};
use crate::Error;

/// Numbers looked at together: few enough to stay in the nearest cache for the second look.
const STRETCH: usize = 4096;

/// Looks at the rows of a block as `policy` says and notes the bad ones in it.
///
/// # Errors
/// The first bad row, when bad rows are to fail.
pub(super) fn check(
    rows: &mut BlockRows,
    record: &RowContent,
    policy: BadValues,
) -> Result<(), BadRow> {
    let mut bad = Vec::new();
    let (y, target) = match (&*rows, record) {
        (BlockRows::Dense(dense), RowContent::Dense { features, target }) => {
            if policy != BadValues::Keep {
                numbers(&dense.x, *features as usize, &mut bad);
            }
            (&dense.y, *target)
        }
        (BlockRows::Images(images), RowContent::Images { target }) => (&images.y, *target),
        (
            BlockRows::Multi(multi),
            RowContent::Multi {
                features, target, ..
            },
        ) => {
            if policy != BadValues::Keep {
                numbers(&multi.x, *features as usize, &mut bad);
            }
            (&multi.y, *target)
        }
        _ => return Ok(()),
    };
    match (y, target) {
        (BlockTarget::Regression(y), kind) if policy != BadValues::Keep => {
            let width = match kind {
                TargetKind::Regressions { targets } => targets as usize,
                _ => 1,
            };
            targets(y, width, &mut bad);
        }
        (BlockTarget::Classification(y), TargetKind::Classification { classes: count }) => {
            classes(y, count, &mut bad)
        }
        _ => {}
    }
    if bad.is_empty() {
        return Ok(());
    }
    bad.sort_by_key(|bad| bad.row);
    bad.dedup_by_key(|bad| bad.row);
    if policy == BadValues::Skip {
        rows.set_aside(bad);
        return Ok(());
    }
    Err(bad.swap_remove(0))
}

/// The error for a bad row.
pub(super) fn error(shard: String, block: u32, bad: BadRow) -> Error {
    Error::BadValue {
        shard,
        block,
        row: bad.row,
        reason: bad.reason,
    }
}

fn numbers(x: &[f32], features: usize, bad: &mut Vec<BadRow>) {
    for at in not_finite(x) {
        note(bad, at / features, || {
            format!("`{}` in element `{}` of `x`", x[at], at % features)
        });
    }
}

fn targets(y: &[f32], width: usize, bad: &mut Vec<BadRow>) {
    for at in not_finite(y) {
        note(bad, at / width.max(1), || {
            let number = match width {
                1 => String::new(),
                _ => format!(" with number `{}` of `y`", at % width),
            };
            format!("the target `{}`{number}", y[at])
        });
    }
}

fn classes(y: &[i32], count: u32, bad: &mut Vec<BadRow>) {
    let fits = |class: i32| u32::try_from(class).is_ok_and(|class| class < count);
    if y.iter().all(|class| fits(*class)) {
        return;
    }
    for (at, class) in y.iter().enumerate().filter(|(_, class)| !fits(**class)) {
        note(bad, at, || {
            format!("class `{class}`, and the dataset has `{count}` classes")
        });
    }
}

fn note(bad: &mut Vec<BadRow>, row: usize, reason: impl FnOnce() -> String) {
    let row = u32::try_from(row).unwrap_or(u32::MAX);
    if bad.last().is_none_or(|last| last.row != row) {
        bad.push(BadRow {
            row,
            reason: reason(),
        });
    }
}

/// Indices of what is not finite. A stretch without any is passed over without a branch for each number.
fn not_finite(values: &[f32]) -> impl Iterator<Item = usize> {
    let stretches = values.chunks(STRETCH).enumerate();
    stretches
        .filter(|(_, stretch)| !all_finite(stretch))
        .flat_map(|(number, stretch)| {
            let odd = stretch.iter().enumerate().filter(|(_, v)| !v.is_finite());
            odd.map(move |(at, _)| number * STRETCH + at)
        })
}

fn all_finite(values: &[f32]) -> bool {
    const EXPONENT: u32 = 0x7f80_0000;
    let odd = |v: &f32| u32::from(v.to_bits() & EXPONENT == EXPONENT);
    values.iter().fold(0, |found, v| found | odd(v)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::block_rows::DenseRows;

    fn rows(x: Vec<f32>, y: BlockTarget) -> BlockRows {
        BlockRows::Dense(DenseRows {
            keys: vec![0; x.len() / 2].into(),
            origins: vec![0; x.len() / 2].into(),
            x: x.into(),
            y,
            bad: Vec::new(),
        })
    }

    fn record(target: TargetKind) -> RowContent {
        RowContent::Dense {
            features: 2,
            target,
        }
    }

    #[test]
    fn bad_rows_are_found_wherever_they_are_and_once_each() {
        let mut x = vec![1.0; 20_000];
        for at in [0, 4096, 8191, 8192, 8193, 19_999] {
            x[at] = if at % 2 == 0 { f32::NAN } else { f32::INFINITY };
        }
        let y = BlockTarget::Classification(vec![3; 10_000].into());
        let record = record(TargetKind::Classification { classes: 4 });
        let mut skipped = rows(x.clone(), y.clone());
        check(&mut skipped, &record, BadValues::Skip).unwrap();
        let found: Vec<_> = skipped.bad().iter().map(|bad| bad.row).collect();
        assert_eq!(found, [0, 2048, 4095, 4096, 9999]);
        let failed = check(&mut rows(x.clone(), y.clone()), &record, BadValues::Fail);
        let failed = failed.unwrap_err();
        assert_eq!(
            (failed.row, failed.reason.as_str()),
            (0, "`NaN` in element `0` of `x`")
        );
        let mut kept = rows(x, y);
        check(&mut kept, &record, BadValues::Keep).unwrap();
        assert_eq!(kept.bad(), []);
    }

    #[test]
    fn a_class_out_of_range_is_never_kept() {
        let record = record(TargetKind::Classification { classes: 4 });
        for class in [-1, 4, i32::MAX] {
            let y = BlockTarget::Classification(vec![0, class].into());
            for policy in [BadValues::Fail, BadValues::Keep] {
                let failed = check(&mut rows(vec![0.0; 4], y.clone()), &record, policy);
                let reason = format!("class `{class}`, and the dataset has `4` classes");
                assert_eq!(failed.unwrap_err(), BadRow { row: 1, reason });
            }
            let mut skipped = rows(vec![0.0; 4], y);
            check(&mut skipped, &record, BadValues::Skip).unwrap();
            assert_eq!(skipped.bad().len(), 1);
        }
    }

    #[test]
    fn a_target_that_is_no_number_is_told_from_an_element() {
        let y = BlockTarget::Regression(vec![0.0, f32::NEG_INFINITY].into());
        let failed = check(
            &mut rows(vec![0.0; 4], y),
            &record(TargetKind::Regression),
            BadValues::Fail,
        );
        assert_eq!(failed.unwrap_err().reason, "the target `-inf`");
    }
}
