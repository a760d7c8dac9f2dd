//! Summary of shards of numbers: keys that they contain, and moments of each feature over the
//! training rows.
//!
//! A shard is read completely, checked against its hash, and digested into a file beside it of 8
//! bytes a row, which is read in its place the next time. Memory: a few shards, and 16 bytes for
//! each matching key.

mod digest;
mod largest_cells;
mod training_cells;
mod unlike_cells;

use std::{
    collections::BTreeMap,
    fmt,
    hash::{Hash, Hasher},
    io::Cursor,
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray},
    datatypes::{DataType, SchemaRef, UInt64Type},
    error::ArrowError,
    ipc::reader::FileReader,
};
use bytes::Bytes;
use datafusion::{error::Result as EngineResult, logical_expr::ident, prelude::DataFrame};
use feedline_schemas::{
    ids::Hash128,
    manifest::{Shard, Split, SplitShards},
    report::FeatureShift,
};
use feedline_storage::Store;
use futures::{StreamExt, TryStreamExt, stream};

use self::{
    digest::{Digest, Moments},
    training_cells::TrainingCells,
};
use crate::{
    Error,
    engine::scalar_function::RowFunction,
    operators::{dedup::content_hash::key_of, split::code},
    schema::system_columns,
};

/// Path of the digest of the shard at `path`.
pub(super) fn digest_path(path: &str) -> String {
    Digest::path_of(path)
}

/// Shards read at the same time.
const READS: usize = 4;

/// Greatest number of shifts in a report.
const SHIFTS: usize = 10;

/// Shift of means in standard deviations that is worth a report (J. Cohen, "Statistical Power
/// Analysis", 2nd ed. 1988, calls a difference of 0.2 small and one of 0.5 medium).
const SHIFT: f64 = 0.25;

/// Unless they may be so by chance: so many standard errors.
const ERRORS: f64 = 4.0;

/// Most deviations of a report.
const MOST: f64 = FeatureShift::MOST_DEVIATIONS;

/// Largest difference of the variance of two values from that of their fractions, in variances, by rounding.
const ROUNDING: f64 = 1e-9;

/// Most new rows that may differ by chance from a feature that was the same in all rows.
const FEW: u32 = 5;

/// Keys and moments of shards.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardIndex {
    /// The keys that were asked for and are there, each with its splits, ascending.
    pub(crate) keys: Vec<(u64, u8)>,
    /// Of each feature of the training rows that were measured, then of the targets that are numbers.
    moments: Vec<Moments>,
    /// Of the numeric targets of all training rows, as stored.
    targets: Vec<Moments>,
    /// Of these training rows, those that differ from a feature that was the same in all earlier rows, by the place of the
    /// feature, where they were counted.
    unlike: BTreeMap<usize, u64>,
}

impl ShardIndex {
    fn merge(&mut self, other: Self) {
        self.keys.extend(other.keys);
        merge_all(&mut self.targets, other.targets);
        merge_all(&mut self.moments, other.moments);
    }

    /// The keys without their splits.
    pub(crate) fn known(&self) -> Arc<[u64]> {
        let mut keys: Vec<u64> = self.keys.iter().map(|(key, _)| *key).collect();
        keys.dedup();
        keys.into()
    }

    /// Rows of the training split with the numeric target at this place, and its mean as stored; `None` without any.
    pub(crate) fn target(&self, other: &Self, place: usize) -> Option<(f64, f64)> {
        let mut all = self.targets.get(place).copied().unwrap_or_default();
        all.merge(other.targets.get(place).copied().unwrap_or_default());
        (all.count > 0.0).then(|| (all.count, all.mean()))
    }

    /// Keys that are in one split here and in another in `other`.
    pub(crate) fn leaks(&self, other: &Self) -> Vec<u64> {
        let mut both: Vec<(u64, u8)> = [&self.keys[..], &other.keys].concat();
        both.sort_unstable();
        let same = both.chunk_by(|a, b| a.0 == b.0);
        let leaks = same.filter(|splits| splits[0].1 != splits[splits.len() - 1].1);
        leaks.map(|splits| splits[0].0).collect()
    }
}

/// Adds the sums of features or targets, place by place.
fn merge_all(all: &mut Vec<Moments>, other: Vec<Moments>) {
    all.resize(all.len().max(other.len()), Moments::default());
    for (all, some) in all.iter_mut().zip(other) {
        all.merge(some);
    }
}

/// Differences between the features `names` of appended training rows and those `before`, the
/// greatest first.
pub(crate) fn shifts(
    names: &[String],
    before: &ShardIndex,
    added: &ShardIndex,
) -> Vec<FeatureShift> {
    let moments = before.moments.iter().zip(&added.moments).enumerate();
    let shifts = names
        .iter()
        .zip(moments)
        .filter_map(|(name, (place, (a, b)))| {
            let b = Measured {
                unlike: added.unlike.get(&place).copied(),
                ..Measured::of(*b)
            };
            shift_of(name, Measured::of(*a), b)
        });
    strongest(shifts.collect())
}

/// Moments of a feature over some rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) rows: f64,
    pub(crate) mean: f64,
    pub(crate) variance: f64,
    /// The least and the greatest cell.
    pub(crate) range: [f64; 2],
    /// Rows that differ from a feature that was the same in all earlier rows, where they were counted.
    pub(crate) unlike: Option<u64>,
}

impl Measured {
    fn of(moments: Moments) -> Self {
        Self {
            rows: moments.count,
            mean: moments.mean(),
            variance: moments.variance(),
            range: [moments.least, moments.greatest],
            unlike: None,
        }
    }

    /// Returns true if all cells are equal.
    fn is_constant(&self) -> bool {
        self.range[0] >= self.range[1]
    }

    /// Returns true if each cell is one of these two values, the lower one first: then the mean is a
    /// fraction of the rows, in units of their distance. Cells between them have a smaller variance
    /// (R. Bhatia, C. Davis, "A better bound on the variance", 2000).
    fn has_only(&self, [low, high]: [f64; 2]) -> bool {
        if self.is_constant() {
            return self.range[0] <= low || self.range[1] >= high;
        }
        let of_two = (self.mean - low) * (high - self.mean);
        (self.variance - of_two).abs() <= ROUNDING * self.variance
    }

    /// Returns true if all cells of both are one of two values.
    fn is_fraction_beside(&self, new: &Self) -> bool {
        let low = self.range[0].min(new.range[0]);
        let high = self.range[1].max(new.range[1]);
        [self, new].iter().all(|rows| rows.has_only([low, high]))
    }

    /// Returns the value of all these cells, if so few rows of `new` may differ from it that they have to be counted.
    pub(crate) fn constant_to_count(&self, new: &Self) -> Option<f64> {
        let may_be_few = self.is_constant()
            && !self.is_fraction_beside(new)
            && new.rows_away_from(self.range[0]) <= f64::from(FEW);
        may_be_few.then_some(self.range[0])
    }

    /// Returns the variance that differences of two such rows are measured by.
    fn variance_against(&self, new: &Self) -> f64 {
        let is_few = self.is_constant() && new.unlike.is_some_and(|rows| rows <= u64::from(FEW));
        match is_few || self.is_fraction_beside(new) {
            true => f64::midpoint(self.variance, new.variance),
            false => self.variance,
        }
    }

    /// Returns the number of rows that would give these moments if they were equal and all others were `value`: there are no
    /// fewer that differ from it (by the Cauchy-Schwarz inequality).
    fn rows_away_from(&self, value: f64) -> f64 {
        let difference = self.mean - value;
        let square = difference * difference;
        self.rows * square / (self.variance + square)
    }
}

/// Returns how feature `name` differs between the earlier rows `a` and the new rows `b`, if by more
/// than chance and rounding.
///
/// The deviation is that of the earlier rows: that of the new ones grows with their outliers, which
/// would hide the shift that they make. A fraction has no outliers, and a rare one hardly a deviation
/// of its own, so two fractions of the same two values have the root of the mean of both variances.
/// So has a feature that was the same in all rows, and differs in a few.
pub(crate) fn shift_of(name: &str, a: Measured, b: Measured) -> Option<FeatureShift> {
    if a.rows <= 0.0 || b.rows <= 0.0 {
        return None;
    }
    let difference = b.mean - a.mean;
    let deviation = a.variance_against(&b).sqrt();
    // Cells are rounded to 32 bits.
    let is_rounding = difference.abs() <= f64::from(f32::EPSILON) * a.mean.abs();
    let deviations = match is_rounding {
        true => 0.0,
        false => (difference / deviation).clamp(-MOST, MOST),
    };
    let chance = ERRORS * (1.0 / a.rows + 1.0 / b.rows).sqrt();
    (deviations.abs() > SHIFT.max(chance)).then(|| FeatureShift {
        feature: name.to_owned(),
        before: a.mean,
        after: b.mean,
        deviations,
    })
}

/// Returns the largest shifts, in descending order.
pub(crate) fn strongest(mut shifts: Vec<FeatureShift>) -> Vec<FeatureShift> {
    shifts.sort_by(|a, b| b.deviations.abs().total_cmp(&a.deviations.abs()));
    shifts.truncate(SHIFTS);
    shifts
}

/// The keys of rows, ascending, each once. Takes 8 bytes of memory a row.
pub(crate) async fn keys_of(rows: DataFrame) -> Result<Arc<[u64]>, Error> {
    let hashes = rows.select(vec![ident(system_columns::HASH)])?;
    let mut batches = Box::pin(hashes.execute_stream()).await?;
    let mut keys = Vec::new();
    while let Some(batch) = batches.try_next().await? {
        let hashes = batch.column(0).as_fixed_size_binary();
        keys.extend((0..hashes.len()).map(|row| key_of(hashes.value(row))));
    }
    keys.sort_unstable();
    keys.dedup();
    Ok(keys.into())
}

/// Searches the shards of all `splits` for the `wanted` keys, which ascend, and measures the
/// features of the first `measured` shards of the training split. `schema` is that of the shards of
/// a split; `progress` gets the rows of each shard.
pub(crate) async fn look(
    dataset: &Store,
    splits: &[SplitShards],
    wanted: &Arc<[u64]>,
    measured: u64,
    schema: impl Fn(Split) -> SchemaRef,
    progress: impl Fn(u64),
) -> Result<ShardIndex, Error> {
    let mut all = ShardIndex::default();
    for split in splits {
        let schema = schema(split.split);
        let mut shards = stream::iter((0..).zip(split.shards.clone()))
            .map(|(place, shard): (u64, Shard)| {
                let looking = Looking {
                    split: split.split,
                    measures: split.split == Split::Train && place < measured,
                    numbers: numbers(&schema),
                    schema: Arc::clone(&schema),
                    wanted: Arc::clone(wanted),
                    url: dataset.url_of(&shard.path),
                };
                looking.at(dataset, shard)
            })
            .buffered(READS);
        while let Some((rows, seen)) = shards.try_next().await? {
            all.merge(seen);
            progress(rows);
        }
    }
    all.keys.sort_unstable();
    all.keys.dedup();
    Ok(all)
}

/// Request for one shard.
struct Looking {
    split: Split,
    /// True if its features are measured.
    measures: bool,
    /// Number of numeric targets; they are behind the features.
    numbers: usize,
    schema: SchemaRef,
    wanted: Arc<[u64]>,
    url: String,
}

impl Looking {
    async fn at(self, dataset: &Store, shard: Shard) -> Result<(u64, ShardIndex), Error> {
        let (looking, shard) = (Arc::new(self), Arc::new(shard));
        let path = Digest::path_of(&shard.path);
        if let Some(file) = dataset.get_opt(&path).await? {
            let (looking, of) = (Arc::clone(&looking), Arc::clone(&shard));
            let work = move || {
                let digest = Digest::decode(&file, &of);
                Ok(digest.map(|digest| looking.seen(&digest)))
            };
            if let Some(seen) = blocking(work).await? {
                return Ok((shard.rows, seen));
            }
        }
        let (bytes, rows) = (dataset.get(&shard.path).await?, shard.rows);
        let work = move || {
            let digest = looking.digest(&bytes, &shard)?;
            Ok((looking.seen(&digest), digest.encode(&shard)))
        };
        let (seen, file) = blocking(work).await?;
        dataset.put(&path, Bytes::from(file)).await?;
        Ok((rows, seen))
    }

    /// Requested part of a digest.
    fn seen(&self, digest: &Digest) -> ShardIndex {
        let wanted = digest.keys.iter();
        let wanted = wanted.filter(|key| self.wanted.binary_search(key).is_ok());
        let moments = match self.measures {
            true => digest.moments.clone(),
            false => Vec::new(),
        };
        let features = digest.moments.len().saturating_sub(self.numbers);
        let targets = digest.moments[features..].to_vec();
        ShardIndex {
            keys: wanted.map(|key| (*key, code(self.split))).collect(),
            moments,
            targets,
            unlike: BTreeMap::new(),
        }
    }

    /// Reads a shard.
    fn digest(&self, bytes: &Bytes, shard: &Shard) -> Result<Digest, Error> {
        check_content(bytes, shard, &self.url)?;
        let mut digest = Digest::default();
        let reader = FileReader::try_new(Cursor::new(bytes), Some(self.columns()?))?;
        for batch in reader {
            let batch = batch?;
            let keys = of(batch.column_by_name("key"))?.as_primitive::<UInt64Type>();
            digest.keys.extend_from_slice(keys.values());
            if self.split != Split::Train {
                continue;
            }
            let TrainingCells { x, width, y } = TrainingCells::of(&batch)?;
            let count = width + self.numbers;
            digest.moments.resize(count, Moments::default());
            for row in x.chunks_exact(width.max(1)) {
                digest
                    .moments
                    .iter_mut()
                    .zip(row)
                    .for_each(|(m, x)| m.add(*x));
            }
            let targets = &mut digest.moments[width..];
            if !targets.is_empty() {
                for row in y.chunks_exact(targets.len()) {
                    let cells = targets.iter_mut().zip(row);
                    cells.for_each(|(moments, y)| moments.add(*y));
                }
            }
        }
        Ok(digest)
    }

    /// Places of the columns to read.
    fn columns(&self) -> Result<Vec<usize>, ArrowError> {
        let is_train = self.split == Split::Train;
        let wanted = |name: &str| name == "key" || is_train && (name == "x" || name == "y");
        let fields = self.schema.fields().iter().enumerate();
        let found = fields.filter(|(_, field)| wanted(field.name()));
        let found: Vec<usize> = found.map(|(place, _)| place).collect();
        match found.is_empty() {
            true => Err(ArrowError::SchemaError("no column `key`".into())),
            false => Ok(found),
        }
    }
}

/// Checks the bytes of a shard against its hash.
fn check_content(bytes: &Bytes, shard: &Shard, url: &str) -> Result<(), Error> {
    let found = Hash128::of(bytes);
    if found == shard.hash {
        return Ok(());
    }
    Err(Error::input(
        format!("`{url}`"),
        format!(
            "its content has hash {found}, the manifest says {}",
            shard.hash
        ),
        "restore it, or rebuild the dataset with `--refit`",
    ))
}

/// Numeric targets of shards.
fn numbers(schema: &SchemaRef) -> usize {
    let target = schema.field_with_name("y");
    target.map_or(0, |field| match field.data_type() {
        DataType::Float32 => 1,
        DataType::FixedSizeList(_, targets) => usize::try_from(*targets).unwrap_or_default(),
        _ => 0,
    })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done?
}

fn of(column: Option<&ArrayRef>) -> Result<&ArrayRef, ArrowError> {
    column.ok_or_else(|| ArrowError::SchemaError("a column of the layout is absent".into()))
}

/// Returns true for rows with a content hash that is not among some keys, which ascend.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct IsNew(pub(crate) Arc<[u64]>);

impl fmt::Debug for IsNew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IsNew({} keys)", self.0.len())
    }
}

/// Plans are hashed often, and have one of these.
impl Hash for IsNew {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.len().hash(state);
    }
}

impl RowFunction for IsNew {
    const NAME: &'static str = "feedline_is_new";
    const RETURNS: DataType = DataType::Boolean;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> EngineResult<ArrayRef> {
        let hashes = columns[0].as_fixed_size_binary();
        let is_new = |row: usize| self.0.binary_search(&key_of(hashes.value(row))).is_err();
        let is_new = (0..rows).map(|row| Some(is_new(row)));
        Ok(Arc::new(is_new.collect::<BooleanArray>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(cells: impl IntoIterator<Item = f32>) -> ShardIndex {
        let (mut moments, mut unlike) = (Moments::default(), 0);
        for cell in cells {
            moments.add(cell);
            unlike += u64::from(cell != 0.0);
        }
        ShardIndex {
            moments: vec![moments],
            unlike: BTreeMap::from([(0, unlike)]),
            ..ShardIndex::default()
        }
    }

    /// Deviations in the report.
    fn told(before: &ShardIndex, added: &ShardIndex) -> Vec<f64> {
        let shifts = shifts(&["a".to_owned()], before, added);
        shifts.iter().map(|shift| shift.deviations).collect()
    }

    /// `rows` cells of mean `mean` and deviation 1.
    fn around(mean: f32, rows: usize) -> ShardIndex {
        seen((0..rows).map(|row| mean + if row % 2 == 0 { 1.0 } else { -1.0 }))
    }

    #[test]
    fn means_that_lie_apart_are_told_in_deviations() {
        let before = around(0.0, 10_000);
        assert_eq!(told(&before, &around(0.5, 1000)), [0.5]);
        assert_eq!(told(&before, &around(-2.0, 1000)), [-2.0]);
        assert_eq!(told(&before, &around(0.125, 10_000)), [0.0; 0]);
    }

    #[test]
    fn an_outlier_among_the_new_rows_does_not_hide_the_shift_that_it_makes() {
        let before = around(0.0, 10_000);
        let cells = (0..100).map(|row| if row == 0 { 8000.0 } else { 0.0 });
        assert_eq!(told(&before, &seen(cells)), [80.0]);
    }

    #[test]
    fn fractions_of_rare_values_differ_by_the_deviations_of_both() {
        let indicator = |of: u16, rows: u16| {
            let cells = (0..rows).map(move |row| f32::from(u8::from(row < of)));
            seen(cells)
        };
        // One row of a value that one of 10,000 rows had is chance.
        assert_eq!(told(&indicator(1, 10_000), &indicator(1, 100)), [0.0; 0]);
        let found = told(&indicator(0, 10_000), &indicator(50, 100));
        assert!((found[0] - 0.5_f64.sqrt() * 2.0).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn rare_values_of_a_scaled_feature_differ_by_the_deviations_of_both() {
        // 2 of 3,224 rows have a 1, which a step has scaled.
        let scaled = |ones: u16, rows: u16| {
            let cells = (0..rows).map(move |row| if row < ones { 40.125 } else { -0.025 });
            seen(cells)
        };
        assert_eq!(told(&scaled(2, 3224), &scaled(1, 78)), [0.0; 0]);
        let found = told(&scaled(2, 3224), &scaled(39, 78));
        assert!((1.0..2.0).contains(&found[0]), "{found:?}");
    }

    #[test]
    fn a_few_rows_that_differ_from_a_constant_feature_are_chance() {
        let before = seen([0.0; 3000]);
        let with = |others: &[f32]| {
            let same = std::iter::repeat_n(0.0, 820 - others.len());
            seen(others.iter().copied().chain(same))
        };
        assert_eq!(told(&before, &with(&[3.0])), [0.0; 0]);
        assert_eq!(told(&before, &with(&[3.0, 5.0])), [0.0; 0]);
        let many: Vec<f32> = (0..100_u8).map(f32::from).collect();
        assert_eq!(told(&before, &with(&many)), [MOST]);
        // By their moments alone, all might be one row.
        let extreme: Vec<f32> = many.into_iter().chain([1e6]).collect();
        assert_eq!(told(&before, &with(&extreme)), [MOST]);
        let may_be_few = |others: &[f32]| {
            let [old, new] = [&before, &with(others)].map(|rows| Measured::of(rows.moments[0]));
            old.constant_to_count(&new)
        };
        assert_eq!(may_be_few(&extreme), Some(0.0));
        assert_eq!(may_be_few(&[3.0, 5.0]), Some(0.0));
        assert_eq!(may_be_few(&[3.0]), None);
        assert_eq!(may_be_few(&[3.0; 400]), None);
    }

    #[test]
    fn what_few_rows_show_by_chance_is_not_told() {
        let before = around(0.0, 10_000);
        assert_eq!(told(&before, &around(0.5, 10)), [0.0; 0]);
        assert_eq!(told(&before, &seen([])), [0.0; 0]);
        assert_eq!(told(&seen([]), &before), [0.0; 0]);
    }

    #[test]
    fn a_feature_that_was_the_same_in_all_rows_is_told_when_it_changes() {
        let before = seen([0.0; 1000]);
        assert_eq!(told(&before, &seen([0.0; 1000])), [0.0; 0]);
        assert_eq!(told(&before, &seen([3.0; 1000])), [MOST]);
        // A tenth of the rows has a category that was unknown.
        let unknown = (0..1000).map(|row| f32::from(u8::from(row % 10 == 0)));
        let found = told(&before, &seen(unknown));
        assert!(
            (found[0] - (0.2_f64 / 0.9).sqrt()).abs() < 1e-12,
            "{found:?}"
        );
    }

    #[test]
    fn keys_of_other_splits_are_leaks() {
        let keys = |keys: &[(u64, u8)]| ShardIndex {
            keys: keys.to_vec(),
            ..ShardIndex::default()
        };
        let before = keys(&[(1, 0), (2, 1), (3, 2), (3, 2)]);
        assert_eq!(*before.known(), [1, 2, 3]);
        assert_eq!(before.leaks(&keys(&[(1, 0), (2, 1)])), [0; 0]);
        assert_eq!(before.leaks(&keys(&[(1, 0), (2, 2), (3, 0)])), [2, 3]);
    }
}
