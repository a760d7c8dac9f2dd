//! Logarithms and power transforms: which numbers they can be fitted to, and the power of the greatest likelihood.
//!
//! With `y(λ)` the transformed column and `c` the logarithms whose sum is that of the Jacobian, the likelihood is
//! `-n/2·ln var y + (λ - 1)·Σ c` (Yeo and Johnson 2000, equation 3.1; Box and Cox 1964, equation 8). It is concave in λ, so
//! its maximum is the only root of the slope, `mean c - cov(y, dy/dλ) / var y`. The root is found to 12 digits: closer than
//! by searching for the maximum itself, which is flat there (scipy's search ends at 8 digits). The covariance comes from
//! the deviations of `y + dy/dλ` and of `y - dy/dλ`, which are exact sums rounded once: any order of the rows and any
//! partitioning gives the same λ.
//!
//! Numbers far from 1 that differ little have powers that differ in their last digits. So a column
//! of numbers above 0 is divided by its geometric mean, which shifts the likelihood by a constant
//! and keeps its maximum; one of numbers from 1 on is treated as `box_cox` of `1 + x`, which is the
//! same.
//!
//! A power that flattens such numbers moves them all but to its limit, and rounding takes the rest
//! of their differences: after scaling only noise would remain. So powers that leave too little of
//! them are excluded (see [`limits`]).
//!
//! Cost: about ten passes over the rows, in each three logarithms and powers a value; all columns of the step share them.

use datafusion::logical_expr::{Expr, ident};
use feedline_schemas::{
    config::{PowerMethod, Step, StepConfig},
    transform::{FittedLog1p, FittedPower},
};
use libm::{exp, expm1, log, log1p};

use super::progress::{Fit, STEP, is_constant};
use crate::{
    Error,
    statistics::aggregates::{self, Profile},
    transform::{CellOp, Probe, op_chain},
};

/// The power is looked for here, and beyond up to [`WIDEST`].
const BRACKET: (f64, f64) = (-2.0, 2.0);
/// No power beyond: numbers that ask for it are nearly constant.
const WIDEST: f64 = 32.0;
/// A power must leave the least and the greatest number apart by this share of what it makes of them: then rounding moves them
/// by at most a millionth of the way between them.
const LEAST_SPREAD: f64 = 1e6 * f64::EPSILON;
/// Halvings that find a limit to the last digit.
const HALVINGS: usize = 64;
/// Tolerance of the root, relative to 1 or itself.
const TOLERANCE: f64 = 1e-12;
/// Logarithm of a power up to which a column is measured by its mean: beyond, the power itself may have no digits left, and the
/// search should see that.
const REACH: f64 = 30.0;
/// Slope where the power overflows or leaves no difference between numbers: only its sign is known.
const STEEP: f64 = 1e9;
/// Passes after which the search ends in any case; halving alone needs 45.
const MOST_PASSES: usize = 100;

impl Fit {
    pub(crate) async fn log1p(&self, columns: &[String]) -> Result<Vec<FittedLog1p>, Error> {
        for (name, profile) in columns.iter().zip(self.profiles(columns).await?) {
            let (min, _) = profile
                .range()
                .ok_or_else(|| self.nothing_to_fit("log1p", name))?;
            if min <= -1.0 {
                let reason = format!(
                    "cannot take the logarithm of 1 plus column `{name}`: its smallest training value is {min}, it must be \
                     above -1; use a `power` step, or cap it by a `winsorize` step before"
                );
                return Err(Error::config(STEP, reason));
            }
        }
        let names = columns.iter().cloned();
        Ok(names.map(|name| FittedLog1p { name }).collect())
    }

    /// The powers depend on `rest`, the steps behind, in nothing: it only says whether shards could not hold a column.
    pub(crate) async fn power(
        &self,
        columns: &[String],
        method: PowerMethod,
        rest: &[StepConfig],
    ) -> Result<Vec<FittedPower>, Error> {
        let mut searches = Vec::with_capacity(columns.len());
        for (name, profile) in columns.iter().zip(self.profiles(columns).await?) {
            let (Some((min, max)), Some(summary)) = (profile.range(), profile.summary()) else {
                return Err(self.nothing_to_fit("power", name));
            };
            if method == PowerMethod::BoxCox && min <= 0.0 {
                let reason = format!(
                    "cannot fit `box_cox` to column `{name}`: its smallest training value is {min}, all must be above 0; use \
                     `method = \"yeo_johnson\"`"
                );
                return Err(Error::config(STEP, reason));
            }
            let constant = is_constant(summary, profile.tally().finite);
            searches.push(Search {
                name: name.clone(),
                finite: profile.tally().finite,
                range: (min, max),
                constant,
                weight: 0.0,
                centred: None,
                root: (!constant).then(|| Root::within(limits((min, max), method))),
            });
        }
        let open = searches.iter_mut().filter(|search| search.root.is_some());
        let mut open: Vec<&mut Search> = open.collect();
        let weights = open.iter().map(|search| {
            let weight = CellOp::Probe(Probe::Weight(method));
            self.probe(&search.name, None, weight)
        });
        let weights = self.rows.profiles(weights.collect()).await?;
        for (search, weight) in open.iter_mut().zip(weights) {
            search.weight = weight.summary().map_or(0.0, |summary| summary.mean);
            search.center(method);
        }
        self.weigh_centred(&mut open).await?;
        for _ in 0..MOST_PASSES {
            open.retain(|search| search.next().is_some());
            if open.is_empty() {
                break;
            }
            self.pass(&mut open, method).await?;
        }
        for search in &searches {
            search.warn(method, is_scaled(rest, &search.name));
        }
        let fitted = searches.into_iter().map(|search| search.fitted(method));
        Ok(fitted.collect())
    }

    /// Asks for the means of the logarithms of the columns that are measured by their means.
    async fn weigh_centred(&self, open: &mut [&mut Search]) -> Result<(), Error> {
        let mut centred = Vec::with_capacity(open.len());
        for search in open.iter_mut() {
            let Search {
                name, centred: to, ..
            } = &mut **search;
            if let Some(to) = to {
                centred.push((name.as_str(), to));
            }
        }
        if centred.is_empty() {
            return Ok(());
        }
        let weights = centred.iter().map(|(name, to)| {
            let weight = CellOp::Probe(Probe::Weight(PowerMethod::BoxCox));
            self.probe(name, Some(to.op.clone()), weight)
        });
        let weights = self.rows.profiles(weights.collect()).await?;
        for ((_, to), weight) in centred.into_iter().zip(weights) {
            to.weight = weight.summary().map_or(0.0, |summary| summary.mean);
        }
        Ok(())
    }

    /// One evaluation of each open search.
    async fn pass(&self, open: &mut [&mut Search], method: PowerMethod) -> Result<(), Error> {
        let mut probes = Vec::with_capacity(3 * open.len());
        for search in open.iter() {
            let lambda = search.next().expect("only open searches are asked");
            let centred = search.centred_at(lambda).map(|centred| centred.op);
            let method = match centred {
                Some(_) => PowerMethod::BoxCox,
                None => method,
            };
            let ops = [
                CellOp::Power { method, lambda },
                CellOp::Probe(Probe::Sum { method, lambda }),
                CellOp::Probe(Probe::Difference { method, lambda }),
            ];
            probes.extend(ops.map(|op| self.probe(&search.name, centred.clone(), op)));
        }
        let profiles = self.rows.profiles(probes).await?;
        for (search, profiles) in open.iter_mut().zip(profiles.chunks_exact(3)) {
            search.absorb(profiles);
        }
        Ok(())
    }

    /// The column as the steps so far leave it, then `first`, if it is to be measured otherwise, and `op`.
    fn probe(&self, column: &str, first: Option<CellOp>, op: CellOp) -> Expr {
        let mut ops = op_chain(self.open_steps(), column);
        ops.extend(first);
        ops.push(op);
        aggregates::cell(ident(column), &ops)
    }
}

/// The search for the power of a column.
#[derive(Debug)]
struct Search {
    name: String,
    /// Finite training values.
    finite: u64,
    /// Least and greatest of them.
    range: (f64, f64),
    constant: bool,
    /// Mean of the logarithms.
    weight: f64,
    /// The column measured by its geometric mean, where it can be.
    centred: Option<Centred>,
    /// None for a constant column.
    root: Option<Root>,
}

/// A column of numbers above 0, measured by its geometric mean.
#[derive(Clone, Debug)]
struct Centred {
    /// Divides by it.
    op: CellOp,
    /// Mean of the logarithms then, near 0.
    weight: f64,
    /// Largest logarithm of the column as it is, without its sign.
    reach: f64,
}

impl Search {
    /// Chooses what the column is measured by, from the mean of its logarithms.
    fn center(&mut self, method: PowerMethod) {
        let (least, greatest) = self.range;
        let mean = match method {
            PowerMethod::BoxCox => 0.0,
            PowerMethod::YeoJohnson if least >= 1.0 => -1.0,
            PowerMethod::YeoJohnson => return,
        };
        let scale = exp(self.weight);
        let [least, greatest] = [least, greatest].map(|x| log(x - mean).abs());
        self.centred = scale.is_normal().then_some(Centred {
            op: CellOp::Standardize { mean, scale },
            weight: 0.0,
            reach: least.max(greatest),
        });
    }

    /// The column measured by its mean, where that is of use for this power.
    fn centred_at(&self, lambda: f64) -> Option<Centred> {
        let is_near = |centred: &Centred| lambda.abs() * centred.reach <= REACH;
        self.centred.clone().filter(is_near)
    }

    fn next(&self) -> Option<f64> {
        self.root.as_ref().and_then(Root::next)
    }

    /// Takes the profiles of the power, of the power plus its slope, and of the power less it.
    fn absorb(&mut self, profiles: &[Profile]) {
        let Some(lambda) = self.next() else { return };
        let centred = self.centred_at(lambda);
        let weight = centred.map_or(self.weight, |centred| centred.weight);
        let Some(root) = &mut self.root else { return };
        let deviation = |profile: &Profile| {
            let all = profile.tally().finite == self.finite;
            let summary = profile.summary().filter(|_| all)?;
            summary.deviation.is_finite().then_some(summary.deviation)
        };
        let known = (|| {
            let [power, sum, difference] = profiles else {
                return None;
            };
            let power = deviation(power).filter(|power| *power > 0.0)?;
            let (sum, difference) = (deviation(sum)?, deviation(difference)?);
            let covariance = (sum - difference) / power * ((sum + difference) / power) / 4.0;
            let slope = weight - covariance;
            slope.is_finite().then_some(slope)
        })();
        // Powers overflow and saturate away from 1, where nothing is changed.
        root.absorb(known.unwrap_or(if lambda > 1.0 { -STEEP } else { STEEP }));
    }

    /// The power. Never -0.0, so that equal fits have equal bytes.
    fn lambda(&self) -> f64 {
        self.root.as_ref().map_or(1.0, Root::best) + 0.0
    }

    /// Warns of a power that is not the best one, and of a column that shards cannot hold.
    fn warn(&self, method: PowerMethod, is_scaled: bool) {
        let Some(root) = &self.root else { return };
        let (column, lambda) = (&self.name, self.lambda());
        if root.is_at_limit() && lambda.abs() >= WIDEST {
            tracing::warn!(
                %column, lambda,
                "no power within the limits makes this column most like a normal distribution"
            );
        } else if root.is_at_limit() {
            tracing::warn!(
                %column, lambda,
                "the power that makes this column most like a normal distribution would lose its values to rounding, so the \
                 last that keeps them is taken; put a `standardize` step before `power`, or subtract what its values share"
            );
        }
        let mut ends = [self.range.0, self.range.1];
        CellOp::Power { method, lambda }.apply(&mut ends);
        let ends = ends.map(short);
        if !is_scaled && ends[0].is_finite() && ends[0].to_bits() == ends[1].to_bits() {
            tracing::warn!(
                %column, lambda, value = ends[0],
                "the powers of a column are equal in the 32 bits of shards; put a `standardize` step before `power`, or behind it"
            );
        }
    }

    fn fitted(self, method: PowerMethod) -> FittedPower {
        FittedPower {
            lambda: self.lambda(),
            name: self.name,
            method,
            constant: self.constant,
        }
    }
}

/// Returns true if one of the steps brings the column `name` near 0.
fn is_scaled(steps: &[StepConfig], name: &str) -> bool {
    let mut steps = steps.iter();
    steps.any(|step| {
        let scales = matches!(
            step.step,
            Step::Standardize(_) | Step::Robust(_) | Step::MinMax(_)
        );
        scales && step.columns.iter().any(|c| c == name)
    })
}

/// The least and the greatest power that keep apart the ends of a column's `range`. Those of numbers on both sides of where
/// powers change nothing are always apart.
fn limits((least, greatest): (f64, f64), method: PowerMethod) -> (f64, f64) {
    let width = |near: f64| log1p(((greatest - least) / near).min(f64::MAX));
    match method {
        PowerMethod::YeoJohnson if least > 0.0 => {
            let flattest = flattest(log1p(least), width(1.0 + least));
            (flattest, WIDEST)
        }
        // The power of the opposite number, for 2 less λ.
        PowerMethod::YeoJohnson if greatest < 0.0 => {
            let flattest = flattest(log1p(-greatest), width(1.0 - greatest));
            (-WIDEST, (2.0 - flattest).min(WIDEST))
        }
        PowerMethod::BoxCox if least > 1.0 => (flattest(log(least), width(least)), WIDEST),
        // The power of the inverse number, for the opposite λ.
        PowerMethod::BoxCox if greatest < 1.0 => (-WIDEST, -flattest(-log(greatest), width(least))),
        PowerMethod::YeoJohnson | PowerMethod::BoxCox => (-WIDEST, WIDEST),
    }
}

/// Least power that keeps numbers apart whose logarithms begin at `near`, above 0, and end `width`
/// further on. If the numbers are no further apart themselves, a power that changes nothing.
fn flattest(near: f64, width: f64) -> f64 {
    // Of the distance of the powers and the greater of them; it grows with λ.
    let spread = |lambda: f64| {
        if lambda == 0.0 {
            width / (near + width)
        } else {
            exp(lambda * near) * expm1(lambda * width) / expm1(lambda * (near + width))
        }
    };
    let enough = spread(1.0).min(LEAST_SPREAD);
    let (mut flat, mut apart) = (-WIDEST, 1.0);
    if spread(flat) >= enough {
        return flat;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(flat, apart);
        if spread(middle) >= enough {
            apart = middle;
        } else {
            flat = middle;
        }
    }
    apart
}

/// The number as shards hold it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rounding to 32 bits is the purpose"
)]
fn short(number: f64) -> f32 {
    number as f32
}

/// The root of a falling function: a bracket is found, then narrowed by inverse quadratic interpolation where that is safe
/// and by halving where not (T. Chandrupatla, "A new hybrid quadratic/bisection algorithm for finding the zero of a
/// nonlinear function without using derivatives", Advances in Engineering Software 28(3), 1997).
#[derive(Clone, Debug)]
struct Root {
    /// Least and greatest argument.
    limits: (f64, f64),
    /// The points of the bracket, and the one before: argument and value. The first is the newest.
    points: Vec<(f64, f64)>,
    /// Share of the way from the newest point to the other end.
    way: f64,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    /// Asks for the lower end, then for the upper.
    #[default]
    Bracket,
    Narrow,
    /// The root, and whether the function has none within the limits.
    Found(f64, bool),
}

impl Root {
    /// The root between `limits`, if there is one.
    fn within(limits: (f64, f64)) -> Self {
        Self {
            limits,
            points: Vec::new(),
            way: 0.0,
            state: State::default(),
        }
    }

    /// Next point to evaluate; `None` when the root is found.
    fn next(&self) -> Option<f64> {
        let within = |at: f64| Some(at.clamp(self.limits.0, self.limits.1));
        match (self.state, &self.points[..]) {
            (State::Found(..), _) => None,
            (State::Bracket, []) => within(BRACKET.0),
            // The function falls: a positive value asks for more, a negative one for less.
            (State::Bracket, [(_, value)]) if *value > 0.0 => within(BRACKET.1),
            (State::Bracket, [(last, _), ..]) => within(last * 2.0),
            (State::Narrow, points) => {
                let ((newest, _), (other, _)) = (points[0], points[1]);
                Some(newest + self.way * (other - newest))
            }
        }
    }

    fn absorb(&mut self, value: f64) {
        let Some(at) = self.next() else { return };
        if value == 0.0 {
            self.state = State::Found(at, false);
            return;
        }
        match self.state {
            State::Found(..) => {}
            State::Bracket => self.widen(at, value),
            State::Narrow => self.narrow(at, value),
        }
    }

    fn widen(&mut self, at: f64, value: f64) {
        let turned = self
            .points
            .first()
            .is_some_and(|(_, before)| (before > &0.0) != (value > 0.0));
        self.points.insert(0, (at, value));
        self.points.truncate(2);
        if turned {
            self.way = 0.5;
            self.state = State::Narrow;
        } else if at <= self.limits.0 && value < 0.0 || at >= self.limits.1 && value > 0.0 {
            self.state = State::Found(at, true);
        }
    }

    fn narrow(&mut self, at: f64, value: f64) {
        let (newest, other) = (self.points[0], self.points[1]);
        let same = (newest.1 > 0.0) == (value > 0.0);
        let (opposite, third) = if same {
            (other, newest)
        } else {
            (newest, other)
        };
        self.points = vec![(at, value), opposite, third];
        let ((a, fa), (b, fb), (c, fc)) = (self.points[0], self.points[1], self.points[2]);
        let (nearest, _) = if fa.abs() < fb.abs() {
            (a, fa)
        } else {
            (b, fb)
        };
        let least = TOLERANCE * nearest.abs().max(1.0) / (b - a).abs();
        if least > 0.5 {
            self.state = State::Found(nearest, false);
            return;
        }
        let (xi, phi) = ((a - b) / (c - b), (fa - fb) / (fc - fb));
        let way = if phi * phi < xi && (1.0 - phi) * (1.0 - phi) < 1.0 - xi {
            fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        } else {
            0.5
        };
        self.way = way.clamp(least, 1.0 - least);
    }

    fn best(&self) -> f64 {
        match self.state {
            State::Found(root, _) => root,
            _ => {
                let nearest = self
                    .points
                    .iter()
                    .min_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
                nearest.map_or(1.0, |(at, _)| *at)
            }
        }
    }

    fn is_at_limit(&self) -> bool {
        matches!(self.state, State::Found(_, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The root of `f`, and how often it was evaluated.
    fn root(f: impl Fn(f64) -> f64) -> (Root, usize) {
        root_within((-WIDEST, WIDEST), f)
    }

    fn root_within(limits: (f64, f64), f: impl Fn(f64) -> f64) -> (Root, usize) {
        let mut root = Root::within(limits);
        let mut evaluations = 0;
        while let Some(at) = root.next() {
            root.absorb(f(at));
            evaluations += 1;
            assert!(evaluations < MOST_PASSES, "{root:?}");
        }
        (root, evaluations)
    }

    #[test]
    fn the_root_is_found_to_twelve_digits_in_few_evaluations() {
        for expected in [-13.0, -2.0, -0.3, 0.0, 1e-9, 1.0, 1.99, 2.0, 7.5, 31.0] {
            let curves: [fn(f64, f64) -> f64; 3] = [
                |x, r| r - x,
                |x, r| (r - x) * (1.0 + x * x),
                |x, r| (r - x).tanh(),
            ];
            for f in curves {
                let (root, evaluations) = root(|x| f(x, expected));
                assert!(
                    (root.best() - expected).abs() < 1e-10,
                    "{expected} {root:?}"
                );
                assert!(evaluations <= 40, "{evaluations}");
                assert!(!root.is_at_limit());
            }
        }
    }

    #[test]
    fn values_of_which_only_the_sign_is_known_are_halved_away() {
        let (root, _) = root(|x| match x {
            x if x < 0.0 => STEEP,
            x if x > 1.5 => -STEEP,
            x => 0.7 - x,
        });
        assert!((root.best() - 0.7).abs() < 1e-11, "{root:?}");
    }

    #[test]
    fn a_function_without_a_root_ends_at_the_limit() {
        let (above, _) = root(|_| 1.0);
        assert_eq!((above.best(), above.is_at_limit()), (WIDEST, true));
        let (below, _) = root(|_| -1.0);
        assert_eq!((below.best(), below.is_at_limit()), (-WIDEST, true));
    }

    #[test]
    fn limits_nearer_than_the_bracket_end_the_search_too() {
        for limits in [(-0.5, 1.5), (1.0, WIDEST), (-WIDEST, -1.0), (-5.0, 5.0)] {
            let inside = f64::midpoint(limits.0, limits.1.min(4.0));
            for (expected, at, is_at_limit) in [
                (inside, inside, false),
                (40.0, limits.1, true),
                (-40.0, limits.0, true),
            ] {
                let (root, _) = root_within(limits, |x| {
                    assert!((limits.0..=limits.1).contains(&x), "{x}");
                    expected - x
                });
                assert!((root.best() - at).abs() < 1e-10, "{limits:?} {root:?}");
                assert_eq!(root.is_at_limit(), is_at_limit, "{limits:?} {root:?}");
            }
        }
    }

    /// Remaining relative distance of the ends of `range` after the power, in rounded numbers.
    fn left((least, greatest): (f64, f64), method: PowerMethod, lambda: f64) -> f64 {
        let mut ends = [least, greatest];
        CellOp::Power { method, lambda }.apply(&mut ends);
        let [a, b] = ends;
        (b - a) / a.abs().max(b.abs())
    }

    #[test]
    fn powers_within_the_limits_keep_numbers_apart_and_those_beyond_do_not() {
        use PowerMethod::{BoxCox, YeoJohnson};
        for (range, method, nears_lower) in [
            ((1990.0, 2023.0), YeoJohnson, true),
            ((1990.0, 2023.0), BoxCox, true),
            ((1e5, 1e5 + 20.0), YeoJohnson, true),
            ((1e300, 1.1e300), BoxCox, true),
            ((-2023.0, -1990.0), YeoJohnson, false),
            ((1e-5, 2e-5), BoxCox, false),
        ] {
            let (lower, upper) = limits(range, method);
            let (at, beyond, opposite) = match nears_lower {
                true => (lower, 1.1 * lower, upper),
                false => (upper, 1.1 * upper, lower),
            };
            assert!(
                (1.0 - left(range, method, at) / LEAST_SPREAD).abs() < 1e-3,
                "{range:?}"
            );
            assert!(left(range, method, beyond) < LEAST_SPREAD, "{range:?}");
            assert_eq!(opposite.abs().to_bits(), WIDEST.to_bits(), "{range:?}");
        }
        for (range, method) in [
            ((-1e9, 1e9), YeoJohnson),
            ((0.0, 1e9), YeoJohnson),
            ((3e-9, 4e-9), YeoJohnson),
            ((0.5, 1e9), BoxCox),
            ((5e-324, 1e308), BoxCox),
        ] {
            assert_eq!(limits(range, method), (-WIDEST, WIDEST), "{range:?}");
        }
        // Nearly constant numbers stay as they are, or are drawn apart.
        let (lower, _) = limits((1e6, 1e6 + 1e-4), YeoJohnson);
        assert!((lower - 1.0).abs() < 1e-6, "{lower}");
    }
}
