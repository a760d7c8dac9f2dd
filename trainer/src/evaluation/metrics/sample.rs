//! A bounded sample of rows, spread evenly over a split whose length is not known.

/// Every `stride`-th value of those added, at most twice `most` of them. The same values in the same order give the same
/// sample.
#[derive(Clone, Debug)]
pub(super) struct EvenSample<T> {
    most: usize,
    stride: u64,
    seen: u64,
    kept: Vec<T>,
}

impl<T: Copy> EvenSample<T> {
    /// An empty sample that uses at most `most` values.
    pub(super) const fn new(most: usize) -> Self {
        Self {
            most,
            stride: 1,
            seen: 0,
            kept: Vec::new(),
        }
    }

    /// Adds a value.
    pub(super) fn add(&mut self, value: T) {
        if self.seen.is_multiple_of(self.stride) {
            if self.kept.len() == 2 * self.most {
                self.halve();
            }
            // Twice `most` is even: this value is at twice the stride too.
            self.kept.push(value);
        }
        self.seen += 1;
    }

    /// Keeps every other value.
    fn halve(&mut self) {
        let mut i = 0;
        self.kept.retain(|_| {
            i += 1;
            i % 2 == 1
        });
        self.stride *= 2;
    }

    /// At most `most` values, and how many were added from one of them to the next.
    pub(super) fn values(&self) -> (Vec<T>, u64) {
        let mut used = self.clone();
        if used.kept.len() > used.most {
            used.halve();
        }
        (used.kept, used.stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_spread_evenly_and_have_a_bound() {
        for count in [0, 1, 9, 10, 11, 20, 21, 40, 41, 999, 1000, 12_345] {
            let mut sample = EvenSample::new(10);
            (0..count).for_each(|i| sample.add(i));
            assert!(sample.kept.len() <= 20, "{count}");
            let (values, stride) = sample.values();
            let expected: Vec<u64> = (0..count)
                .step_by(usize::try_from(stride).unwrap())
                .collect();
            assert_eq!(values, expected, "{count}");
            assert!(
                values.len() <= 10 && values.len() as u64 >= count.min(5),
                "{count}"
            );
        }
    }
}
