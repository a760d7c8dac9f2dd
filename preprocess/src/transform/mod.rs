//! The one function that turns raw rows into features: in the batch build, the loader and prediction.
//!
//! Everything is computed in 64 bits, cell by cell and in the order of the steps, and rounded to 32 bits at the end; no
//! cell depends on another row of the batch, so one row gives the same bits as a million. Columns are bound by name.
//!
//! Layout of a row of `x`: the inputs in order; a numeric column gives one element and one more for each indicator
//! (`<column>__missing`, 1 where the cell was missing); a category gives one element (`ordinal`, `frequency`, and `target`
//! where that is a number or one of two classes), one per class (`<column>~<class>`), or one per id
//! (`<column>=__unknown__`, `<column>=__null__`, then `<column>=<value>`, of hashed texts `<column>=#<bucket>`). No fit gives two
//! elements one name.
//!
//! Cost: a column at a time, one pass per step over the batch's 64-bit cells, then one strided
//! write per element. Row-major cells are taken some rows at a time, so that all of this stays in
//! the nearest cache.

mod artefact_error;
mod bad_rows;
mod batch_columns;
mod bin_boundaries;
mod category;
mod cell;
mod characters;
mod groups;
mod layout;
mod numbers;
mod outside;
mod power;
pub(crate) mod reason;

use std::collections::{BTreeMap, HashMap};

use datafusion::arrow::array::{AsArray, FixedSizeBinaryArray, RecordBatch};
use feedline_schemas::transform::{FittedTarget, FoldBy, TransformArtefact};

use artefact_error::damaged;
use bad_rows::Bad;
pub(crate) use batch_columns::{cells, column_of};
use batch_columns::{column, numeric, text, wrong_type};
pub(crate) use bin_boundaries::BinBoundaries;
use category::CategoryPlan;
pub(crate) use cell::{CellOp, Probe, canonical};
pub(crate) use characters::{Characters, vocabulary_of};
use layout::plan;
pub(crate) use layout::{layout, new_layout, op_chain};
use numbers::{Made, landed};
pub(crate) use numbers::{Numbers, is_joint, is_shared};
use outside::FarBounds;
pub(crate) use outside::far_bounds;

use crate::{Error, schema::system_columns, staging::Matrix};

/// Rows in ascending order, by column.
type RowsByColumn = BTreeMap<String, Vec<usize>>;

/// A fitted transform, ready to be applied. It can only be made from an artefact, so only from a fit.
#[derive(Debug)]
pub struct Transform {
    artefact: TransformArtefact,
    numbers: Numbers,
    categories: Vec<CategoryPlan>,
    /// Class ids of a classification target.
    classes: HashMap<String, i32>,
    /// Bounds that new rows are compared with.
    bounds: Vec<FarBounds>,
}

/// Result of [`Transform::apply`] for a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// Features, `[rows, features]`, row-major; finite, never -0.0. Bad cells are 0.
    pub x: Vec<f32>,
    /// Targets of each row, where the artefact has a target and the batch its column, or those of
    /// all targets. Those of bad rows are 0.
    pub y: Option<TargetValues>,
    /// Rows that cannot be used, in ascending order, each once: row, reason, detail.
    pub bad: Vec<(usize, &'static str, String)>,
    /// Infinite cells of numeric columns in the usable rows, as they landed, by column. Columns
    /// without any are absent.
    pub infinite: BTreeMap<String, u64>,
    /// Cells that the caps of a `winsorize` step changed, by column, those of rows that cannot be
    /// used among them. Columns without any are absent.
    pub capped: BTreeMap<String, u64>,
    /// Usable rows with an unknown value, by category, in ascending order. Columns without any are
    /// absent.
    pub unknown: BTreeMap<String, Vec<usize>>,
}

/// Targets of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum TargetValues {
    /// `(y - offset) / scale`.
    Regression(Vec<f32>),
    /// The same of several targets, `[rows, targets]`.
    Regressions {
        /// The numbers.
        y: Vec<f32>,
        /// Number of targets, 2 or more.
        targets: usize,
    },
    /// Class ids.
    Classification(Vec<i32>),
}

impl Transform {
    /// Loads an artefact after checking that its content matches its hash.
    ///
    /// # Errors
    /// [`Error::Input`] when the artefact was altered or contradicts itself.
    pub fn new(artefact: TransformArtefact) -> Result<Self, Error> {
        let found = artefact.compute_hash();
        if found != artefact.hash {
            return Err(damaged(format!(
                "its content has hash `{found}`, it should be `{}`",
                artefact.hash
            )));
        }
        let (numbers, categories) = plan(&artefact.inputs, &artefact.steps).map_err(damaged)?;
        if layout(&artefact.inputs, &artefact.steps).map_err(damaged)? != artefact.features {
            return Err(damaged(
                "its features are not those its steps make".to_owned(),
            ));
        }
        let classes = match &artefact.target {
            Some(FittedTarget::Classification { classes, .. }) => class_ids(classes)?,
            _ => HashMap::new(),
        };
        Ok(Self {
            bounds: FarBounds::of(&artefact),
            artefact,
            numbers,
            categories,
            classes,
        })
    }

    /// The artefact.
    #[must_use]
    pub fn artefact(&self) -> &TransformArtefact {
        &self.artefact
    }

    /// Length of a feature vector.
    #[must_use]
    pub fn features(&self) -> usize {
        self.artefact.features.len()
    }

    /// Transforms `batch`, which has the input columns by name (numeric as `Float64`, categories as text, null =
    /// missing) and may have the target and more.
    ///
    /// # Errors
    /// [`Error::Input`] when a column is absent or of another type. A bad value is no error: its row is named in
    /// [`Applied::bad`].
    pub fn apply(&self, batch: &RecordBatch) -> Result<Applied, Error> {
        self.apply_beside(batch, &Matrix::default())
    }

    /// As [`Self::apply`]; numeric columns may be in `numbers` instead.
    pub(crate) fn apply_beside(
        &self,
        batch: &RecordBatch,
        numbers: &Matrix,
    ) -> Result<Applied, Error> {
        self.apply_to(batch, numbers, &[])
    }

    /// As [`Self::apply_beside`] for rows of the training split, which have the hashes of their content and group beside them:
    /// where a category becomes what the target is like, each row gets the numbers of all other folds, so none of them is made
    /// of its own target.
    ///
    /// # Errors
    /// As [`Self::apply`]; also when a hash is absent though it is needed.
    pub(crate) fn apply_train(
        &self,
        batch: &RecordBatch,
        numbers: &Matrix,
    ) -> Result<Applied, Error> {
        let hashes = |plan: &CategoryPlan| {
            let name = match plan.fold_by()? {
                FoldBy::Content => system_columns::HASH,
                FoldBy::Group => system_columns::GROUP,
            };
            Some(column(batch, name).and_then(|hashes| {
                hashes
                    .as_fixed_size_binary_opt()
                    .ok_or_else(|| wrong_type(name, hashes, "a hash"))
            }))
        };
        let folds = self.categories.iter().map(|plan| hashes(plan).transpose());
        let folds = folds.collect::<Result<Vec<_>, Error>>()?;
        self.apply_to(batch, numbers, &folds)
    }

    fn apply_to(
        &self,
        batch: &RecordBatch,
        numbers: &Matrix,
        folds: &[Option<&FixedSizeBinaryArray>],
    ) -> Result<Applied, Error> {
        let features = self.features();
        let mut x = vec![0f32; batch.num_rows() * features];
        let mut bad = Bad::default();
        let mut infinite: Vec<(usize, usize)> = Vec::new();
        let mut capped = vec![0_u64; features];
        self.numbers.apply(batch, numbers, &mut |first, made| {
            let x = &mut x[first * features..];
            match made {
                Made::Landed(plan, cells) => {
                    // Branch-free, so that the compiler can check several cells at once.
                    if cells.iter().fold(false, |any, x| any | x.is_infinite()) {
                        let cells = (first..).zip(cells).filter(|(_, x)| x.is_infinite());
                        infinite.extend(cells.map(|(row, _)| (row, plan.place)));
                    }
                }
                Made::Capped(plan, cells) => capped[plan.place] += cells,
                Made::Marked(place, cells) => {
                    let marks = cells.iter().map(|x| f32::from(u8::from(x.is_nan())));
                    self.write(x, place, marks);
                }
                Made::Number(plan, cells) if all_fit(cells) => {
                    self.write(x, plan.place, cells.iter().map(|x| short(*x)));
                }
                Made::Number(plan, cells) => {
                    let cells = (first..).zip(cells);
                    let rounded = cells.map(|(row, x)| {
                        if x.is_infinite() {
                            let landed = landed(batch, numbers, &plan.name, row..row + 1);
                            let cell = landed.iter().flatten().next();
                            bad.add(row, reason::NOT_FINITE, || {
                                let why = plan.why_infinite(*cell.unwrap_or(x));
                                format!("column `{}` {why}", plan.name)
                            });
                        }
                        rounded(row, *x, &plan.name, &mut bad)
                    });
                    self.write(x, plan.place, rounded);
                }
            }
        })?;
        let mut unknown: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, plan) in self.categories.iter().enumerate() {
            let values = text(batch, &plan.name)?;
            let folds = folds.get(at).copied().flatten();
            let mut rows = Vec::new();
            plan.write(&values, folds, &mut x, features, &mut bad, &mut rows);
            if !rows.is_empty() {
                unknown.insert(plan.name.clone(), rows);
            }
        }
        let y = self.target(batch, &mut bad)?;
        let infinite = self.infinite_of_usable(&infinite, &bad);
        for rows in unknown.values_mut().filter(|_| !bad.0.is_empty()) {
            rows.retain(|row| !bad.0.contains_key(row));
        }
        unknown.retain(|_, rows| !rows.is_empty());
        let bad = bad
            .0
            .into_iter()
            .map(|(row, (reason, detail))| (row, reason, detail))
            .collect();
        Ok(Applied {
            x,
            y,
            bad,
            infinite,
            capped: self.by_column(&capped),
            unknown,
        })
    }

    /// Counts infinite cells, each a row and an element, by column; not those of bad rows.
    fn infinite_of_usable(&self, cells: &[(usize, usize)], bad: &Bad) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for (_, place) in cells.iter().filter(|(row, _)| !bad.0.contains_key(row)) {
            let mut plans = self.numbers.plans().iter();
            if let Some(plan) = plans.find(|plan| plan.place == *place) {
                *counts.entry(plan.name.clone()).or_default() += 1;
            }
        }
        counts
    }

    /// The counts of elements that are not 0, by the name of the numeric column.
    fn by_column(&self, counts: &[u64]) -> BTreeMap<String, u64> {
        let plans = self.numbers.plans().iter();
        let counts = plans.map(|plan| (&plan.name, counts[plan.place]));
        let counts = counts.filter(|(_, count)| *count > 0);
        counts.map(|(name, count)| (name.clone(), count)).collect()
    }

    /// Inverts the features `x`, `[rows, features]`, to the units they landed in: each numeric
    /// column by its name, in the order of the inputs. Lost information stays lost: filled or
    /// capped cells keep those values. Numbers that no power makes are infinite. Columns that were
    /// scaled by groups are missing: use [`Self::invert_rows`].
    #[must_use]
    pub fn invert(&self, x: &[f32]) -> Vec<(&str, Vec<f64>)> {
        let mut columns = self.columns_of(x);
        if self.numbers.invert(None, &mut columns).is_err() {
            unreachable!("without rows no column can be absent");
        }
        let found = self.numbers.plans().iter().zip(columns).enumerate();
        let known = found.filter(|(place, _)| !self.numbers.hides(*place));
        known
            .map(|(_, (plan, cells))| (plan.name.as_str(), cells))
            .collect()
    }

    /// As [`Self::invert`], of all numeric columns: `batch` has the rows that `x` was made of, or at least the columns that
    /// steps group them by.
    ///
    /// # Errors
    /// [`Error::Input`] when such a column is absent or of another type, or there are not as many rows.
    pub fn invert_rows(
        &self,
        x: &[f32],
        batch: &RecordBatch,
    ) -> Result<Vec<(&str, Vec<f64>)>, Error> {
        if x.len() != batch.num_rows() * self.features() {
            let rows = x.len() / self.features().max(1);
            return Err(Error::input(
                "the rows to invert",
                format!("there are {}, and features of {rows}", batch.num_rows()),
                "give the rows that the features were made of",
            ));
        }
        let mut columns = self.columns_of(x);
        self.numbers.invert(Some(batch), &mut columns)?;
        let plans = self.numbers.plans().iter().zip(columns);
        Ok(plans
            .map(|(plan, cells)| (plan.name.as_str(), cells))
            .collect())
    }

    /// Returns the rows of `batch` with a number far outside of the training rows, by column, in ascending order, by the rule
    /// of [`outside`]. Then those with a number that caps change, unless they are the caps of groups. Columns without any are
    /// absent.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub(crate) fn rows_outside(&self, batch: &RecordBatch) -> Result<[RowsByColumn; 2], Error> {
        let [mut far, mut capped] = [RowsByColumn::new(), RowsByColumn::new()];
        for bounds in &self.bounds {
            let found = bounds.rows_outside(batch)?;
            for (rows, all) in [(found.far, &mut far), (found.capped, &mut capped)] {
                if !rows.is_empty() {
                    all.insert(bounds.name.clone(), rows);
                }
            }
        }
        Ok([far, capped])
    }

    /// Returns true if numbers of `column` are far outside by the caps of a `winsorize` step, which are not the range of the
    /// training rows.
    #[must_use]
    pub fn has_caps_as_bounds(&self, column: &str) -> bool {
        let mut bounds = self.bounds.iter();
        bounds.any(|bounds| bounds.name == column && bounds.is_of_caps())
    }

    /// The elements of the numeric columns.
    fn columns_of(&self, x: &[f32]) -> Vec<Vec<f64>> {
        let rows = x.chunks_exact(self.features().max(1));
        let column = |place: usize| rows.clone().map(|row| f64::from(row[place])).collect();
        let plans = self.numbers.plans().iter();
        plans.map(|plan| column(plan.place)).collect()
    }

    /// A stored regression target in its own units: `y · scale + offset`; `None` for a class, for several targets or without one.
    #[must_use]
    pub fn unscale(&self, y: f32) -> Option<f64> {
        match &self.artefact.target {
            Some(FittedTarget::Regression { scale, offset, .. })
                if self.artefact.other_targets.is_empty() =>
            {
                Some(f64::from(y) * scale + offset)
            }
            _ => None,
        }
    }

    fn write(&self, x: &mut [f32], place: usize, values: impl Iterator<Item = f32>) {
        for (row, value) in x.chunks_exact_mut(self.features()).zip(values) {
            row[place] = value;
        }
    }

    /// Several targets, where the batch has the columns of all.
    fn several_targets(
        &self,
        batch: &RecordBatch,
        bad: &mut Bad,
    ) -> Result<Option<TargetValues>, Error> {
        let targets = self.artefact.targets();
        if targets
            .clone()
            .any(|target| batch.column_by_name(target.column()).is_none())
        {
            return Ok(None);
        }
        let width = targets.clone().count();
        let mut y = vec![0.0; batch.num_rows() * width];
        for (place, target) in targets.enumerate() {
            let FittedTarget::Regression {
                column,
                scale,
                offset,
                ..
            } = target
            else {
                let column = target.column();
                return Err(damaged(format!("target `{column}` of several is a class")));
            };
            let of_rows = scaled(batch, column, [*scale, *offset], bad)?;
            for (row, y) in y.chunks_exact_mut(width).zip(of_rows) {
                row[place] = y;
            }
        }
        Ok(Some(TargetValues::Regressions { y, targets: width }))
    }

    fn target(&self, batch: &RecordBatch, bad: &mut Bad) -> Result<Option<TargetValues>, Error> {
        if !self.artefact.other_targets.is_empty() {
            return self.several_targets(batch, bad);
        }
        let (column, fitted) = match &self.artefact.target {
            Some(
                fitted @ (FittedTarget::Regression { column, .. }
                | FittedTarget::Classification { column, .. }),
            ) if batch.column_by_name(column).is_some() => (column, fitted),
            _ => return Ok(None),
        };
        Ok(Some(match fitted {
            FittedTarget::Regression { scale, offset, .. } => {
                TargetValues::Regression(scaled(batch, column, [*scale, *offset], bad)?)
            }
            FittedTarget::Classification { .. } => {
                let values = text(batch, column)?;
                let ids = values.iter().enumerate().map(|(row, class)| match class {
                    None => missing_target(row, column, bad),
                    Some(class) => self.classes.get(class).copied().unwrap_or_else(|| {
                        bad.add(row, reason::UNKNOWN_CLASS, || {
                            format!("column `{column}`: class `{class}` does not occur in the training split")
                        });
                        0
                    }),
                });
                TargetValues::Classification(ids.collect())
            }
        }))
    }
}

/// A numeric target as it is stored, `(y - offset) / scale`.
fn scaled(
    batch: &RecordBatch,
    column: &str,
    [scale, offset]: [f64; 2],
    bad: &mut Bad,
) -> Result<Vec<f32>, Error> {
    let cells = cells(&numeric(batch, column)?);
    let scaled = cells.into_iter().enumerate();
    let scaled = scaled.map(|(row, y)| match y.is_nan() {
        true => missing_target(row, column, bad),
        false => rounded(row, (y - offset) / scale, column, bad),
    });
    Ok(scaled.collect())
}

fn missing_target<T: Default>(row: usize, column: &str, bad: &mut Bad) -> T {
    bad.add(row, reason::TARGET_MISSING, || {
        format!("column `{column}` is the target and has no value")
    });
    T::default()
}

/// The cell rounded to 32 bits. Never -0.0, so that equal rows have equal bytes.
#[inline]
fn short(cell: f64) -> f32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounding to 32 bits is the purpose, and overflow is checked"
    )]
    let short = cell as f32;
    short + 0.0
}

/// Returns true if all cells can be stored. Branch-free, so that several are checked at once.
fn all_fit(cells: &[f64]) -> bool {
    cells
        .iter()
        .fold(true, |all, cell| all & short(*cell).is_finite())
}

/// The cell as it is stored; 0 in place of one that cannot be.
#[inline]
fn rounded(row: usize, cell: f64, column: &str, bad: &mut Bad) -> f32 {
    let short = short(cell);
    if short.is_finite() {
        return short;
    }
    let (reason, why) = match cell {
        _ if cell.is_nan() => (
            reason::MISSING_VALUE,
            "has no value and no `impute` step fills it".to_owned(),
        ),
        _ if cell.is_infinite() => (
            reason::NOT_FINITE,
            "is infinite and nothing caps it".to_owned(),
        ),
        _ => (
            reason::TOO_LARGE,
            format!("is `{cell:e}` after all steps, beyond the range of 32-bit floats"),
        ),
    };
    bad.add(row, reason, || format!("column `{column}` {why}"));
    0.0
}

fn class_ids(classes: &[String]) -> Result<HashMap<String, i32>, Error> {
    let ids: Option<HashMap<String, i32>> = (0..i32::MAX)
        .zip(classes)
        .map(|(id, class)| Some((class.clone(), id)))
        .collect();
    ids.filter(|ids| ids.len() == classes.len())
        .ok_or_else(|| damaged("it names a class twice".to_owned()))
}

#[cfg(test)]
mod tests;
