//! The samples of a split with the largest losses, which help to find bad records.

use feedline_schemas::{checkpoint::WorstSample, diagnostics::TargetValue, ids::Origin};

/// Samples kept.
const KEPT: usize = 20;

/// The samples with the largest losses, largest first; of equal losses the first in row order.
#[derive(Clone, Debug, Default)]
pub(super) struct Worst {
    kept: Vec<WorstSample>,
    /// True where origins name no landed rows.
    is_of_query: bool,
}

impl Worst {
    /// The samples of rows that a query made, which have no place in the landing zone.
    pub(super) fn of_query() -> Self {
        Self {
            kept: Vec::new(),
            is_of_query: true,
        }
    }

    /// Adds rows; `values` gives the target and the prediction of one. Where losses are not one per row, as of tokens, nothing
    /// is kept.
    pub(super) fn add(
        &mut self,
        losses: &[f32],
        keys: &[u64],
        origins: &[u64],
        values: impl Fn(usize) -> [Option<TargetValue>; 2],
    ) {
        if losses.len() != keys.len() || losses.len() != origins.len() {
            return;
        }
        let least = self.kept.get(KEPT - 1).map(|sample| sample.loss);
        let rows = losses
            .iter()
            .map(|&loss| f64::from(loss))
            .zip(keys)
            .zip(origins)
            .enumerate();
        let worse = rows.filter(|(_, ((loss, _), _))| least.is_none_or(|least| *loss > least));
        let has_place = !self.is_of_query;
        self.kept.extend(worse.map(|(row, ((loss, key), origin))| {
            let [target, prediction] = values(row);
            let place = has_place.then(|| Origin::from_packed(*origin));
            WorstSample {
                loss,
                key: format!("{key:016x}"),
                source: place.map(Origin::source),
                sequence: place.map(Origin::sequence),
                row: place.map(Origin::row),
                target,
                prediction,
            }
        }));
        self.kept.sort_by(|a, b| b.loss.total_cmp(&a.loss));
        self.kept.truncate(KEPT);
    }

    /// The samples.
    pub(super) fn samples(&self) -> &[WorstSample] {
        &self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_losses_of_all_batches_are_kept_and_of_equal_ones_the_first() {
        let losses: Vec<f32> = (0..200_u8)
            .map(|i| f32::from(i.wrapping_mul(37) % 50))
            .collect();
        let keys: Vec<u64> = (0..200).collect();
        let origin = |key: &u64| Origin::pack(3, 7, 1000 + key).unwrap().packed();
        let origins: Vec<u64> = keys.iter().map(origin).collect();
        let mut worst = Worst::default();
        for begin in (0..200).step_by(33) {
            let rows = begin..(begin + 33).min(200);
            let begin = f64::from(u8::try_from(begin).unwrap());
            let values = |row: usize| {
                let row = begin + crate::float_casts::exact_len(row);
                [Some(TargetValue::Number(row)), None]
            };
            worst.add(
                &losses[rows.clone()],
                &keys[rows.clone()],
                &origins[rows],
                values,
            );
        }
        let mut expected: Vec<u64> = keys.clone();
        expected.sort_by(|&a, &b| {
            let loss = |key: u64| losses[usize::try_from(key).unwrap()];
            loss(b).total_cmp(&loss(a)).then(a.cmp(&b))
        });
        let rows = worst.samples().iter().filter_map(|sample| sample.row);
        let found: Vec<u64> = rows.map(|row| row - 1000).collect();
        assert_eq!(found, expected[..KEPT]);
        let first = &worst.samples()[0];
        let sequence = first.sequence.map(|sequence| sequence.get());
        assert_eq!((first.source, sequence), (Some(3), Some(7)));
        assert_eq!(first.key, format!("{:016x}", expected[0]));
        let row = crate::float_casts::exact(expected[0]);
        assert_eq!(first.target, Some(TargetValue::Number(row)));
        assert!((first.loss - 49.0).abs() < 1e-12);
    }

    #[test]
    fn rows_of_a_query_have_no_place_in_the_landing_zone() {
        let mut worst = Worst::of_query();
        let origin = Origin::pack(0, 0, 774).unwrap().packed();
        worst.add(&[1.0], &[5], &[origin], |_| [None, None]);
        let [sample] = worst.samples() else {
            panic!("{worst:?}")
        };
        assert_eq!(sample.key, "0000000000000005");
        assert_eq!(
            (sample.source, sample.sequence, sample.row),
            (None, None, None)
        );
    }

    #[test]
    fn losses_that_are_not_of_rows_are_not_kept() {
        let mut worst = Worst::default();
        worst.add(&[1.0, 2.0, 3.0], &[1], &[1], |_| [None, None]);
        assert_eq!(worst.samples(), []);
    }
}
