//! Profile of a numeric column in one pass: kinds of cells, range, exact mean and deviation.

use crate::statistics::{
    exact_sum::{ExactMoments, Short, Summary},
    quantile::Tally,
};

/// Mergeable profile of a column. Range and moments are those of the finite cells.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    tally: Tally,
    min: f64,
    max: f64,
    moments: ExactMoments,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            tally: Tally::default(),
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            moments: ExactMoments::default(),
        }
    }
}

impl Profile {
    /// Kinds of cells.
    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Smallest and largest finite value, neither of them -0.0.
    pub(crate) fn range(&self) -> Option<(f64, f64)> {
        (self.min <= self.max).then_some((self.min, self.max))
    }

    /// Mean and deviation of the finite values.
    pub(crate) fn summary(&self) -> Option<Summary> {
        self.moments.summary()
    }

    /// Looks at values.
    pub(crate) fn add_all(&mut self, values: &[f64]) {
        let Self {
            tally,
            min,
            max,
            moments,
        } = self;
        let mut range = |value: f64| {
            // Adding 0.0 makes -0.0 the same value as 0.0: which of them is smaller must not depend on the order.
            let value = value + 0.0;
            *min = if value < *min { value } else { *min };
            *max = if value > *max { value } else { *max };
            value
        };
        if !Short::suits(values) {
            tally.add_all(values, |value| moments.add(range(value)));
            return;
        }
        for values in values.chunks(Short::MOST) {
            let mut short = Short::EMPTY;
            tally.add_all(values, |value| moments.add_beside(&mut short, range(value)));
            short.settle(moments);
        }
    }

    /// Looks at `count` missing cells.
    pub(crate) fn add_missing(&mut self, count: u64) {
        self.tally.missing += count;
    }

    /// Bytes held.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.moments.size()
    }

    /// The state as bytes: tally, range, moments.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.tally.to_bytes();
        bytes.extend(self.min.to_le_bytes());
        bytes.extend(self.max.to_le_bytes());
        bytes.extend(self.moments.to_bytes());
        bytes
    }

    /// Adds another part's state; `None` when `bytes` are not such a state.
    pub(crate) fn merge_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        let (tally, rest) = Tally::take(bytes)?;
        let (min, rest) = rest.split_first_chunk::<8>()?;
        let (max, rest) = rest.split_first_chunk::<8>()?;
        let moments = ExactMoments::from_bytes(rest)?;
        self.tally.merge(&tally);
        self.min = self.min.min(f64::from_le_bytes(*min));
        self.max = self.max.max(f64::from_le_bytes(*max));
        self.moments.merge(&moments);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinities_and_nan_are_counted_and_leave_the_numbers_alone() {
        let mut profile = Profile::default();
        profile.add_all(&[f64::INFINITY, 3.0, f64::NAN, -0.0, f64::NEG_INFINITY]);
        profile.add_missing(2);
        assert_eq!(
            profile.tally(),
            Tally {
                finite: 2,
                missing: 3,
                low_infinite: 1,
                high_infinite: 1
            }
        );
        assert_eq!(profile.range(), Some((0.0, 3.0)));
        assert_eq!(profile.range().unwrap().0.to_bits(), 0.0f64.to_bits());
        assert_eq!(
            profile.summary(),
            Some(Summary {
                mean: 1.5,
                deviation: 1.5
            })
        );
    }

    #[test]
    fn many_values_at_a_time_are_the_same_as_one_by_one() {
        let value = |i: u32| match i % 7 {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => -0.0,
            3 => 0.1 * f64::from(i),
            _ => f64::from(i) - 90_000.0,
        };
        let values: Vec<f64> = (0..200_000).map(value).collect();
        let (mut together, mut alone) = (Profile::default(), Profile::default());
        together.add_all(&values);
        values
            .iter()
            .for_each(|x| alone.add_all(std::slice::from_ref(x)));
        assert_eq!(together.to_bytes(), alone.to_bytes());
        assert_eq!(together.tally().cells(), 200_000);
    }

    #[test]
    fn an_empty_part_changes_nothing() {
        let mut profile = Profile::default();
        profile.add_all(&[2.0]);
        profile.merge_bytes(&Profile::default().to_bytes()).unwrap();
        assert_eq!(profile.range(), Some((2.0, 2.0)));
        assert_eq!(Profile::default().range(), None);
        assert!(profile.merge_bytes(&[1, 2, 3]).is_none());
    }
}
