//! Sums over a sliding window, by two stacks: nothing is ever subtracted, so values that have left
//! the window leave no trace. A value that enters or leaves costs two sums on average, however long
//! the window is.

/// Combination of values, in their order.
pub(super) trait Sum: Copy {
    /// Of no value.
    const EMPTY: Self;
    /// Of one value, which is not NaN.
    fn of(value: f64) -> Self;
    /// Of the values of this and of those that come after.
    fn then(self, later: Self) -> Self;
}

/// The sum over a queue.
#[derive(Clone, Debug)]
pub(super) struct TwoStack<S> {
    /// The older values: each element is the sum of its value and of all younger ones here. The oldest is the last.
    front: Vec<S>,
    /// The younger values, oldest first.
    back: Vec<S>,
    /// The sum of `back`.
    sum: S,
}

impl<S: Sum> TwoStack<S> {
    pub(super) const fn new() -> Self {
        Self {
            front: Vec::new(),
            back: Vec::new(),
            sum: S::EMPTY,
        }
    }

    pub(super) fn push(&mut self, value: f64) {
        let one = S::of(value);
        self.back.push(one);
        self.sum = self.sum.then(one);
    }

    /// Drops the oldest value.
    pub(super) fn pop(&mut self) {
        if self.front.is_empty() {
            let mut sum = S::EMPTY;
            while let Some(one) = self.back.pop() {
                sum = one.then(sum);
                self.front.push(sum);
            }
            self.sum = S::EMPTY;
        }
        self.front.pop();
    }

    pub(super) fn total(&self) -> S {
        self.front
            .last()
            .map_or(self.sum, |older| older.then(self.sum))
    }

    pub(super) fn clear(&mut self) {
        self.front.clear();
        self.back.clear();
        self.sum = S::EMPTY;
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        (self.front.capacity() + self.back.capacity()) * size_of::<S>()
    }
}

/// Count, mean and sum of squared distances from the mean (T. Chan, G. Golub, R. LeVeque, "Updating formulae and a pairwise
/// algorithm for computing sample variances", 1979). Infinities are counted apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
    positive: u32,
    negative: u32,
}

impl Moments {
    /// The mean; infinite with an infinity, none with two that differ.
    pub(super) fn mean(self) -> Option<f64> {
        match (self.positive > 0, self.negative > 0) {
            (true, true) => None,
            (true, false) => Some(f64::INFINITY),
            (false, true) => Some(f64::NEG_INFINITY),
            (false, false) => (self.count > 0.0).then_some(self.mean),
        }
    }

    /// The deviation, divided by n - 1; none with an infinity.
    pub(super) fn deviation(self) -> Option<f64> {
        let is_finite = self.positive == 0 && self.negative == 0;
        (is_finite && self.count >= 2.0).then(|| (self.squares / (self.count - 1.0)).sqrt())
    }
}

impl Sum for Moments {
    const EMPTY: Self = Self {
        count: 0.0,
        mean: 0.0,
        squares: 0.0,
        positive: 0,
        negative: 0,
    };

    fn of(value: f64) -> Self {
        if value.is_finite() {
            return Self {
                count: 1.0,
                mean: value,
                ..Self::EMPTY
            };
        }
        Self {
            positive: u32::from(value > 0.0),
            negative: u32::from(value < 0.0),
            ..Self::EMPTY
        }
    }

    fn then(self, later: Self) -> Self {
        let (positive, negative) = (
            self.positive + later.positive,
            self.negative + later.negative,
        );
        let (a, b) = (self.count, later.count);
        let count = a + b;
        let (mean, squares) = if a == 0.0 {
            (later.mean, later.squares)
        } else if b == 0.0 {
            (self.mean, self.squares)
        } else {
            let apart = later.mean - self.mean;
            (
                self.mean + apart * b / count,
                self.squares + later.squares + apart * apart * a * b / count,
            )
        };
        Self {
            count,
            mean,
            squares,
            positive,
            negative,
        }
    }
}

/// The smallest value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Least(pub(super) f64);

impl Sum for Least {
    const EMPTY: Self = Self(f64::INFINITY);

    fn of(value: f64) -> Self {
        Self(value)
    }

    fn then(self, later: Self) -> Self {
        if later.0 < self.0 { later } else { self }
    }
}

/// The largest value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most(pub(super) f64);

impl Sum for Most {
    const EMPTY: Self = Self(f64::NEG_INFINITY);

    fn of(value: f64) -> Self {
        Self(value)
    }

    fn then(self, later: Self) -> Self {
        if later.0 > self.0 { later } else { self }
    }
}

/// The oldest and the newest value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends(pub(super) Option<[f64; 2]>);

impl Sum for Ends {
    const EMPTY: Self = Self(None);

    fn of(value: f64) -> Self {
        Self(Some([value, value]))
    }

    fn then(self, later: Self) -> Self {
        match (self.0, later.0) {
            (Some([oldest, _]), Some([_, newest])) => Self(Some([oldest, newest])),
            (one, other) => Self(one.or(other)),
        }
    }
}
