//! Features that leak the target: a copy of it, a function of it, parts that it is the sum of, or numbers that are missing where
//! it has a value.
//!
//! The search covers some training rows, so it finds a column that is nearly the target, and not
//! one that is only a little better than chance. The thresholds are high: a strong feature is no
//! fault, a column without error is nearly always the target itself, recorded when it was known.

use std::collections::{BTreeMap, BTreeSet};

/// Rows that are looked at, at most.
pub(crate) const SAMPLE_ROWS: usize = 8_192;

/// Rows below which nothing is looked for.
const FEW_ROWS: usize = 50;

/// Correlation, of values or of ranks, above which a single feature leaks the target.
const CORRELATION: f64 = 0.9995;

/// Rank correlation that a feature must have beside its correlation: a few huge values make that near one.
const RANKS: f64 = 0.95;

/// Fraction of the target's variance that a sum of features leaves, at most: it is exact but for rounding.
const RESIDUAL: f64 = 1e-6;

/// Fraction of the target's standard deviation up to which the sum of a row is its target.
pub(crate) const EQUAL: f64 = 1e-3;

/// Features that a sum has, at most.
const MOST_TERMS: usize = 64;

/// Rows for each term of a sum, at least: as many terms as rows give any target.
const ROWS_A_TERM: usize = 20;

/// Fraction of missing cells above which a feature is a term of a sum only beside features with the same rows.
const MISSING: f64 = 0.2;

/// Features with more missing cells whose rows sums are looked for in, at most.
const SPARSE: usize = 8;

/// Rows that have all terms of a sum, at least: one in so many of those with a target.
const PART_OF_ROWS: usize = 20;

/// Fraction of rows whose class is that of most rows with their value, at least.
const PURITY: f64 = 0.999;

/// Errors of the most frequent class that may be left, at most.
const ERRORS_LEFT: f64 = 0.01;

/// Fraction of the variance of a number that the values of a category explain, at least.
const EXPLAINED: f64 = 0.9999;

/// Mean rows of a value, at least: a value of its own in each row gives any target.
const ROWS_A_VALUE: usize = 10;

/// Rows below which a number whose ranges have one class each is no leak: a measured number separates the classes of small tables,
/// such as petals of 100 irises do.
const RANGE_ROWS: usize = 300;

/// A feature and its cells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cells {
    /// Numbers, NaN where missing.
    Numbers(Vec<f64>),
    /// Values of a category.
    Texts(Vec<Option<String>>),
}

/// A numeric feature: its name and its cells.
type Number<'a> = (&'a str, &'a [f64]);

/// A way in which a feature gives the target away.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Leak {
    /// A line through its values is the target: the correlation.
    Line { column: String, correlation: f64 },
    /// Its order is that of the target: the correlation of ranks.
    Order { column: String, correlation: f64 },
    /// Each of its values has one class: the fraction of rows for which that holds.
    Values { column: String, fraction: f64 },
    /// Each of its values has one target: the fraction of the variance that they explain.
    Groups { column: String, explained: f64 },
    /// Its ranges of values have one class each: their count.
    Ranges { column: String, ranges: usize },
    /// Its missing cells have one class, and its others too: the fraction of rows for which that holds.
    MissingClass { column: String, fraction: f64 },
    /// Its missing cells have one target, and its others too: the fraction of the variance that they explain.
    MissingNumber { column: String, explained: f64 },
    /// A sum of features is the target: their factors and the fraction of the variance that is left, in these rows.
    Sum {
        terms: Vec<(String, f64)>,
        residual: f64,
        rows: SumRows,
    },
}

/// Rows that a sum of features was looked for in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SumRows {
    /// Those with a target.
    pub(crate) known: usize,
    /// Those of them that have all features compared.
    pub(crate) compared: usize,
    /// Those of these whose sum is the target, to [`EQUAL`] of its standard deviation.
    pub(crate) equal: usize,
}

/// Finds the features that give a number away.
pub(crate) fn of_number(features: &[(String, Cells)], target: &[f64]) -> Vec<Leak> {
    let known: Vec<usize> = (0..target.len())
        .filter(|row| target[*row].is_finite())
        .collect();
    if known.len() < FEW_ROWS {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (column, cells) in features {
        let leak = match cells {
            Cells::Numbers(cells) => line_or_order(column, cells, target),
            Cells::Texts(cells) => groups(column, cells, target),
        };
        found.extend(leak);
    }
    if found.is_empty() {
        found.extend(sum(features, target, &known));
    }
    found
}

/// Finds the features that give a class away.
pub(crate) fn of_class(features: &[(String, Cells)], target: &[Option<String>]) -> Vec<Leak> {
    let rows_of = rows_of_classes(target);
    let Some(rows) = rows_with_others(&rows_of) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (column, cells) in features {
        let of_values = |fraction| Leak::Values {
            column: column.clone(),
            fraction,
        };
        let leak = match cells {
            Cells::Texts(cells) => {
                let values = cells.iter().map(Option::as_deref);
                purity(values, target, rows).map(of_values)
            }
            Cells::Numbers(cells) => {
                let keys = cells
                    .iter()
                    .map(|cell| (!cell.is_nan()).then(|| bits(*cell)));
                purity(keys, target, rows)
                    .map(of_values)
                    .or_else(|| ranges(column, cells, target, &rows_of))
            }
        };
        found.extend(leak);
    }
    found
}

/// Finds out if the numeric feature `column` gives the target away by its missing cells, which a step fills.
pub(crate) fn of_missing(column: &str, cells: &[f64], target: &Cells) -> Option<Leak> {
    let is_missing = || cells.iter().map(|cell| cell.is_nan());
    let missing = is_missing().filter(|is_missing| *is_missing).count();
    if missing.min(cells.len() - missing) < ROWS_A_VALUE {
        return None;
    }
    let column = column.to_owned();
    match target {
        Cells::Numbers(target) => {
            let known = target.iter().filter(|y| y.is_finite()).count();
            let explained = explained_by(is_missing(), target).filter(|_| known >= FEW_ROWS)?;
            Some(Leak::MissingNumber { column, explained })
        }
        Cells::Texts(target) => {
            let rows = rows_with_others(&rows_of_classes(target))?;
            let fraction = purity(is_missing(), target, rows)?;
            Some(Leak::MissingClass { column, fraction })
        }
    }
}

/// Rows of each class.
fn rows_of_classes(target: &[Option<String>]) -> BTreeMap<&str, usize> {
    let mut rows_of: BTreeMap<&str, usize> = BTreeMap::new();
    for class in target.iter().flatten() {
        *rows_of.entry(class).or_default() += 1;
    }
    rows_of
}

/// Rows with a class, and those that the most frequent class gets wrong: with hardly any, nothing can be found.
fn rows_with_others(rows_of: &BTreeMap<&str, usize>) -> Option<(usize, usize)> {
    let rows: usize = rows_of.values().sum();
    let others = rows - rows_of.values().max()?;
    (rows >= FEW_ROWS && others >= ROWS_A_VALUE).then_some((rows, others))
}

/// The bits of a number, zero positive.
fn bits(cell: f64) -> u64 {
    (cell + 0.0).to_bits()
}

fn line_or_order(column: &str, cells: &[f64], target: &[f64]) -> Option<Leak> {
    let pairs = cells.iter().zip(target);
    let pairs = pairs.filter(|(x, y)| x.is_finite() && y.is_finite());
    let (x, y): (Vec<f64>, Vec<f64>) = pairs.map(|(x, y)| (*x, *y)).unzip();
    let known = target.iter().filter(|y| y.is_finite()).count();
    if x.len() < FEW_ROWS || x.len() * 2 < known {
        return None;
    }
    let line = correlation(&x, &y)?;
    // The ranks of two columns without any relation need not be made.
    if line.abs() < 0.1 {
        return None;
    }
    let order = correlation(&ranks(&x), &ranks(&y))?;
    let column = column.to_owned();
    if line.abs() >= CORRELATION && order.abs() >= RANKS {
        let correlation = line;
        return Some(Leak::Line {
            column,
            correlation,
        });
    }
    (order.abs() >= CORRELATION).then_some(Leak::Order {
        column,
        correlation: order,
    })
}

/// Pearson's correlation; nothing where one of the two is constant.
fn correlation(x: &[f64], y: &[f64]) -> Option<f64> {
    let (x, y) = (centred(x)?, centred(y)?);
    let product = dot(&x, &y);
    (product.is_finite()).then(|| product.clamp(-1.0, 1.0))
}

/// The values less their mean, of length one; nothing where they are constant but for rounding.
fn centred(values: &[f64]) -> Option<Vec<f64>> {
    let most = values.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
    if most == 0.0 || !most.is_finite() {
        return None;
    }
    // Scaled first, so that no square overflows.
    let scaled: Vec<f64> = values.iter().map(|x| x / most).collect();
    let mean = scaled.iter().sum::<f64>() / count(scaled.len());
    let centred: Vec<f64> = scaled.iter().map(|x| x - mean).collect();
    let length = dot(&centred, &centred).sqrt();
    let least = 1e-12 * count(values.len()).sqrt();
    (length > least).then(|| centred.iter().map(|x| x / length).collect())
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

#[expect(clippy::cast_precision_loss, reason = "a sample has few rows")]
fn count(rows: usize) -> f64 {
    rows as f64
}

/// Ranks from 0, of equal values their mean.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|a, b| values[*a].total_cmp(&values[*b]).then(a.cmp(b)));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    for same in order.chunk_by(|a, b| bits(values[*a]) == bits(values[*b])) {
        let mean = count(2 * start + same.len() - 1) / 2.0;
        same.iter().for_each(|row| ranks[*row] = mean);
        start += same.len();
    }
    ranks
}

/// The category whose values explain (nearly) all of the variance.
fn groups(column: &str, cells: &[Option<String>], target: &[f64]) -> Option<Leak> {
    let explained = explained_by(cells.iter().map(Option::as_deref), target)?;
    Some(Leak::Groups {
        column: column.to_owned(),
        explained,
    })
}

/// The fraction of the variance that these values explain, if it is (nearly) all.
fn explained_by<T: Ord>(values: impl Iterator<Item = T>, target: &[f64]) -> Option<f64> {
    let mut of_value: BTreeMap<T, Vec<f64>> = BTreeMap::new();
    let mut all = Vec::new();
    for (value, y) in values.zip(target).filter(|(_, y)| y.is_finite()) {
        of_value.entry(value).or_default().push(*y);
        all.push(*y);
    }
    if of_value.len() < 2 || of_value.len() * ROWS_A_VALUE > all.len() {
        return None;
    }
    let total = variation(&all);
    let within: f64 = of_value.values().map(|values| variation(values)).sum();
    let explained = 1.0 - within / total;
    (explained >= EXPLAINED).then_some(explained)
}

/// Sum of the squares of what values differ from their mean by.
fn variation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / count(values.len().max(1));
    values.iter().map(|x| (x - mean) * (x - mean)).sum()
}

/// The fraction of rows whose class is that of most rows with their value, if that is nearly all of them.
fn purity<T: Ord>(
    values: impl Iterator<Item = T>,
    target: &[Option<String>],
    (rows, others): (usize, usize),
) -> Option<f64> {
    let mut of_value: BTreeMap<T, BTreeMap<&str, usize>> = BTreeMap::new();
    for (value, class) in values.zip(target) {
        if let Some(class) = class {
            let of_class = of_value.entry(value).or_default();
            *of_class.entry(class).or_default() += 1;
        }
    }
    if of_value.len() < 2 || of_value.len() * ROWS_A_VALUE > rows {
        return None;
    }
    let right = of_value.values().map(|classes| classes.values().max());
    let right: usize = right.flatten().sum();
    let wrong = count(rows - right);
    let fraction = 1.0 - wrong / count(rows);
    (fraction >= PURITY && wrong <= ERRORS_LEFT * count(others)).then_some(fraction)
}

/// The number whose ranges have one class each: as many ranges as classes.
fn ranges(
    column: &str,
    cells: &[f64],
    target: &[Option<String>],
    rows_of: &BTreeMap<&str, usize>,
) -> Option<Leak> {
    let pairs = cells.iter().zip(target);
    let mut pairs: Vec<(f64, &str)> = pairs
        .filter_map(|(x, class)| Some((*x, class.as_deref()?)))
        .collect();
    // A row without the number has a class that no range gives.
    if pairs.len() < RANGE_ROWS || pairs.iter().any(|(x, _)| x.is_nan()) {
        return None;
    }
    pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
    let mut runs = 0;
    let mut last: Option<&str> = None;
    for same in pairs.chunk_by(|a, b| bits(a.0) == bits(b.0)) {
        let class = same[0].1;
        if same.iter().any(|(_, other)| *other != class) {
            return None;
        }
        if last != Some(class) {
            (runs, last) = (runs + 1, Some(class));
        }
    }
    let classes = rows_of.values().filter(|rows| **rows >= ROWS_A_VALUE);
    let is_told = runs == rows_of.len() && classes.count() == rows_of.len();
    is_told.then(|| Leak::Ranges {
        column: column.to_owned(),
        ranges: runs,
    })
}

/// The features whose sum, each times a factor, is the target in the rows that have all of them.
///
/// Features with few missing cells are compared first, then all features that enough rows have together. The few rows that have
/// a part may lack most other features, so the rows of some features with many missing cells are looked at by themselves.
fn sum(features: &[(String, Cells)], target: &[f64], known: &[usize]) -> Option<Leak> {
    let numbers = features.iter().filter_map(|(name, cells)| match cells {
        Cells::Numbers(cells) => Some((name.as_str(), &cells[..])),
        Cells::Texts(_) => None,
    });
    let numbers: Vec<Number<'_>> = numbers.collect();
    let missing = |at: usize| known.len() - rows_with(numbers[at].1, known).len();
    let few = MISSING * count(known.len());
    let (dense, mut sparse): (Vec<usize>, Vec<usize>) =
        (0..numbers.len()).partition(|at| count(missing(*at)) <= few);
    if let Some(leak) = sum_of(&numbers, &dense, target, known) {
        return Some(leak);
    }
    sparse.sort_by_cached_key(|at| missing(*at));
    let mut starts = vec![known.to_vec()];
    for at in sparse {
        let rows = rows_with(numbers[at].1, known);
        if starts.len() <= SPARSE && !starts.contains(&rows) {
            starts.push(rows);
        }
    }
    let least = (known.len() / PART_OF_ROWS).max(FEW_ROWS);
    let mut tried = vec![dense];
    starts.into_iter().find_map(|start| {
        let together = present_together(&numbers, start, least);
        if tried.contains(&together) {
            return None;
        }
        let found = sum_of(&numbers, &together, target, known);
        tried.push(together);
        found
    })
}

/// Those of `rows` that have a number in `cells`.
fn rows_with(cells: &[f64], rows: &[usize]) -> Vec<usize> {
    let rows = rows.iter().copied();
    rows.filter(|row| cells[*row].is_finite()).collect()
}

/// Places of numbers that at least `least` of `rows` have together: those with the fewest missing cells first.
fn present_together(numbers: &[Number<'_>], mut rows: Vec<usize>, least: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by_cached_key(|at| rows.len() - rows_with(numbers[*at].1, &rows).len());
    let mut together = Vec::new();
    for at in order {
        let left = rows_with(numbers[at].1, &rows);
        if left.len() >= least {
            rows = left;
            together.push(at);
        }
    }
    together.sort_unstable();
    together
}

/// The features among `from` whose sum, each times a factor, is the target, in the rows that have all of `from`.
///
/// They are found one after the other: that which leaves the least of the target, with those before subtracted from all others
/// (pivoted Gram-Schmidt). Those without which the target can be had as well are left out afterwards.
fn sum_of(numbers: &[Number<'_>], from: &[usize], target: &[f64], known: &[usize]) -> Option<Leak> {
    let is_complete = |row: &&usize| from.iter().all(|at| numbers[*at].1[**row].is_finite());
    let rows: Vec<usize> = known.iter().filter(is_complete).copied().collect();
    let most = MOST_TERMS.min(rows.len() / ROWS_A_TERM);
    if rows.len() < FEW_ROWS || most < 2 {
        return None;
    }
    let of_rows = |cells: &[f64]| rows.iter().map(|row| cells[*row]).collect::<Vec<f64>>();
    let target = of_rows(target);
    let columns: Vec<(&str, Vec<f64>)> = from
        .iter()
        .map(|at| (numbers[*at].0, of_rows(numbers[*at].1)))
        .collect();
    let all: Vec<usize> = (0..columns.len()).collect();
    let cells: Vec<&[f64]> = columns.iter().map(|(_, cells)| &cells[..]).collect();
    let (mut terms, residual) = select(&cells, &target, &all, most)?;
    if residual > RESIDUAL {
        return None;
    }
    for term in terms.clone() {
        let rest: Vec<usize> = terms.iter().copied().filter(|t| *t != term).collect();
        let without = select(&cells, &target, &rest, rest.len());
        if without.is_some_and(|(_, residual)| residual <= RESIDUAL) {
            terms = rest;
        }
    }
    terms.sort_unstable();
    let factors = factors(&cells, &target, &terms)?;
    let (_, residual) = select(&cells, &target, &terms, terms.len())?;
    let rows = SumRows {
        known: known.len(),
        compared: rows.len(),
        equal: equal_rows(&cells, &target, &terms, &factors),
    };
    (terms.len() >= 2).then(|| Leak::Sum {
        terms: terms
            .iter()
            .map(|term| columns[*term].0.to_owned())
            .zip(factors)
            .collect(),
        residual,
        rows,
    })
}

/// Rows in which the sum of `terms`, each times its factor, and a constant are the target.
fn equal_rows(columns: &[&[f64]], target: &[f64], terms: &[usize], factors: &[f64]) -> usize {
    let sum = |row: usize| {
        let terms = terms.iter().zip(factors);
        terms
            .map(|(at, factor)| columns[*at][row] * factor)
            .sum::<f64>()
    };
    let left = target.iter().enumerate().map(|(row, y)| y - sum(row));
    let left: Vec<f64> = left.collect();
    let rows = count(left.len());
    let constant = left.iter().sum::<f64>() / rows;
    let most = EQUAL * (variation(target) / rows).sqrt();
    let equal = left.iter().filter(|left| (*left - constant).abs() <= most);
    equal.count()
}

/// The `most` columns among `from` that leave the least of the target, and the fraction of its variance that they leave.
fn select(
    columns: &[&[f64]],
    target: &[f64],
    from: &[usize],
    most: usize,
) -> Option<(Vec<usize>, f64)> {
    let mut left = centred(target)?;
    let mut open: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for at in from {
        open.extend(centred(columns[*at]).map(|column| (*at, column)));
    }
    let mut chosen = Vec::new();
    let mut residual = 1.0;
    while chosen.len() < most && residual > RESIDUAL * 1e-3 {
        let gain = |column: &Vec<f64>| dot(column, &left).abs();
        let best = open
            .iter()
            .map(|(at, column)| (*at, gain(column)))
            .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        let Some((at, gain)) = best.filter(|(_, gain)| *gain > 0.0) else {
            break;
        };
        let Some(base) = open.remove(&at) else { break };
        let share = dot(&base, &left);
        left.iter_mut()
            .zip(&base)
            .for_each(|(y, x)| *y -= share * x);
        let before = residual;
        residual = dot(&left, &left);
        if gain * gain < before * 1e-9 {
            break;
        }
        chosen.push(at);
        open.retain(|_, column| {
            let share = dot(&base, column);
            column
                .iter_mut()
                .zip(&base)
                .for_each(|(x, b)| *x -= share * b);
            let length = dot(column, column).sqrt();
            column.iter_mut().for_each(|x| *x /= length);
            // What is left of a column that others make up is rounding.
            length > 1e-7
        });
    }
    Some((chosen, residual))
}

/// The factor of each of `terms` in the sum that is nearest to the target: the normal equations of centred columns.
fn factors(columns: &[&[f64]], target: &[f64], terms: &[usize]) -> Option<Vec<f64>> {
    let mean = |cells: &[f64]| cells.iter().sum::<f64>() / count(cells.len());
    let minus_mean = |cells: &[f64]| {
        let mean = mean(cells);
        cells.iter().map(|x| x - mean).collect::<Vec<f64>>()
    };
    let y = minus_mean(target);
    let columns: Vec<Vec<f64>> = terms.iter().map(|at| minus_mean(columns[*at])).collect();
    let size = terms.len();
    let lengths: Vec<f64> = columns.iter().map(|x| dot(x, x).sqrt()).collect();
    let mut rows: Vec<Vec<f64>> = Vec::with_capacity(size);
    for (column, length) in columns.iter().zip(&lengths) {
        let others = columns.iter().zip(&lengths);
        let mut row: Vec<f64> = others
            .map(|(other, of_other)| dot(column, other) / (length * of_other))
            .collect();
        row.push(dot(column, &y) / length);
        rows.push(row);
    }
    for at in 0..size {
        let pivot = (at..size).max_by(|a, b| rows[*a][at].abs().total_cmp(&rows[*b][at].abs()))?;
        rows.swap(at, pivot);
        if rows[at][at].abs() < 1e-14 {
            return None;
        }
        let base = rows[at].clone();
        let others = rows.iter_mut().enumerate();
        for (_, row) in others.filter(|(other, _)| *other != at) {
            let share = row[at] / base[at];
            row.iter_mut().zip(&base).for_each(|(x, b)| *x -= share * b);
        }
    }
    let factors = (0..size).map(|at| rows[at][size] / rows[at][at] / lengths[at]);
    let factors: Vec<f64> = factors.collect();
    factors.iter().all(|x| x.is_finite()).then_some(factors)
}

/// The columns that leaks name, each once.
pub(crate) fn columns_of(leaks: &[Leak]) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for leak in leaks {
        match leak {
            Leak::Line { column, .. }
            | Leak::Order { column, .. }
            | Leak::Values { column, .. }
            | Leak::Groups { column, .. }
            | Leak::Ranges { column, .. }
            | Leak::MissingClass { column, .. }
            | Leak::MissingNumber { column, .. } => {
                names.insert(column.as_str());
            }
            Leak::Sum { terms, .. } => names.extend(terms.iter().map(|(name, _)| name.as_str())),
        }
    }
    names
}

#[cfg(test)]
mod tests;
