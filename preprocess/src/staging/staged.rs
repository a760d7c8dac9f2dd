//! Typed rows of each split in scratch: counted, read in no order, or in the order they are written.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{array::Array, datatypes::SchemaRef, util::display::array_value_to_string};
use datafusion::{
    error::DataFusionError,
    execution::object_store::ObjectStoreUrl,
    logical_expr::{SortExpr, ident},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::manifest::{NearImageCounts, Split};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};

use super::{
    exact_dedup::Repeated, matrix::Matrix, ordered_batches::Ordered, spill::SpilledRows,
    split_groups::Groups, unusable_images::UnusableImages,
};
use crate::{
    Error,
    engine::scalar_function::RowFunction,
    operators::{
        dedup::conflicts::LabelConflicts,
        images::TransparentImages,
        split::{ShuffleKey, code},
    },
    schema::{no_feature::NoFeatureReason, system_columns},
    source::parquet_scan::{ParquetFiles, ScanFile},
};

/// A text column with more distinct values than this names rows rather than sorting them.
const MANY_VALUES: usize = 1000;

/// A text column with fewer distinct values than this is a category even in a tiny dataset.
const FEW_VALUES: usize = 16;

/// The typed rows of each split, in scratch.
pub(crate) struct Staged {
    pub(super) session: SessionContext,
    /// The scratch folder.
    pub(super) folder: PathBuf,
    pub(super) schema: SchemaRef,
    pub(super) splits: [Part; 3],
    /// The rows, where they are not in files of the splits, and how many buckets of them are put in order at a time.
    pub(super) pieces: Option<(Arc<SpilledRows>, usize)>,
    /// Distinct training values of the text columns that are features by default.
    pub(super) distinct: BTreeMap<String, Distinct>,
    /// Images whose embeddings are near, where they are looked for.
    pub(crate) near_images: Option<NearImageCounts>,
    /// Content of the most rows, with split and bucket of the first of them, where staging found copies by their hashes.
    pub(super) repeated: Option<(Repeated, Option<(Split, usize)>)>,
    /// Images of equal pixels and different targets.
    pub(crate) conflicts: LabelConflicts,
    /// Images that cannot be decoded.
    pub(crate) unusable: UnusableImages,
    /// Images with pixels that are not opaque.
    pub(crate) transparent: TransparentImages,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub(super) files: Vec<ScanFile>,
    pub(super) rows: u64,
}

impl Staged {
    pub(crate) fn rows(&self, split: Split) -> u64 {
        self.splits[usize::from(code(split))].rows
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The rows, and on how many threads they are looked at, where they can be without the engine.
    pub(crate) fn pieces(&self) -> Option<(Arc<SpilledRows>, usize)> {
        self.pieces.clone()
    }

    pub(crate) fn total(&self) -> u64 {
        self.splits.iter().map(|part| part.rows).sum()
    }

    /// The rows of `split`, in no particular order.
    pub(crate) fn frame(&self, split: Split) -> Result<DataFrame, Error> {
        if let Some((pieces, _)) = &self.pieces {
            return pieces.frame(&self.session, split);
        }
        let table = ParquetFiles {
            store: ObjectStoreUrl::local_filesystem(),
            schema: Arc::clone(&self.schema),
            files: self.splits[usize::from(code(split))].files.clone(),
        };
        Ok(self.session.read_table(Arc::new(table))?)
    }

    /// The rows of `split` in the order they are written: shuffled by key, or as they landed. The order is total. Where it is
    /// the `last` time that they are read, what has been read may not be there any longer.
    pub(crate) async fn ordered(
        &self,
        split: Split,
        shuffle: Option<ShuffleKey>,
        last: bool,
    ) -> Result<BoxStream<'static, Result<Ordered, DataFusionError>>, Error> {
        if let Some((pieces, ahead)) = &self.pieces {
            return Ok(pieces.ordered(split, *ahead, last));
        }
        let rows = self.frame(split)?.sort(order(shuffle))?;
        let rows = rows.execute_stream().await?;
        let numbers = Matrix::default();
        let ordered = move |rows| Ordered {
            rows,
            numbers: numbers.clone(),
        };
        Ok(rows.map_ok(ordered).boxed())
    }

    /// At most `most` training rows, which follow from their content alone, with the columns `names` at least.
    pub(crate) async fn some_train(
        &self,
        names: &[&str],
        most: usize,
    ) -> Result<Vec<Ordered>, Error> {
        let mut found: Vec<Ordered> = Vec::new();
        let mut left = most;
        if let Some((pieces, _)) = &self.pieces {
            // The first rows as they are shuffled, of as few buckets as have them.
            let mut rows = pieces.ordered(Split::Train, 1, false);
            while left > 0
                && let Some(Ordered { rows, numbers }) = rows.try_next().await?
            {
                let count = rows.num_rows().min(left);
                left -= count;
                found.push(Ordered {
                    rows: rows.slice(0, count),
                    numbers: numbers.slice(0..count),
                });
            }
            return Ok(found);
        }
        let system = [system_columns::HASH, system_columns::ORIGIN];
        let columns = names.iter().copied().chain(system).map(ident);
        let rows = self
            .frame(Split::Train)?
            .select(columns.collect::<Vec<_>>())?;
        let rows = rows.sort(order(Some(ShuffleKey::of_reference())))?;
        for rows in Box::pin(rows.limit(0, Some(most))?.collect()).await? {
            let numbers = Matrix::default();
            found.push(Ordered { rows, numbers });
        }
        Ok(found)
    }

    /// Content of the most rows, where copies were found by their hashes.
    pub(crate) fn repeated(&self) -> Option<Repeated> {
        self.repeated.map(|(repeated, _)| repeated)
    }

    /// Cells of the columns `names` in the first row of [`Self::repeated`], if it was staged: `None` for a missing cell.
    pub(crate) async fn repeated_cells(
        &self,
        names: &[&str],
    ) -> Result<Option<Vec<Option<String>>>, Error> {
        let Some((repeated, Some((split, bucket)))) = self.repeated else {
            return Ok(None);
        };
        let Some((pieces, _)) = &self.pieces else {
            return Ok(None);
        };
        let pieces = Arc::clone(pieces);
        let work = move || pieces.bucket(split, bucket, false);
        let read = tokio::task::spawn_blocking(work).await;
        let rows = read??;
        let Some(row) = rows.position(repeated.first) else {
            return Ok(None);
        };
        let mut cells = Vec::with_capacity(names.len());
        for name in names {
            let Some(cell) = rows.cell(name, row) else {
                return Ok(None);
            };
            let text = cell.is_valid(0).then(|| array_value_to_string(&cell, 0));
            cells.push(text.transpose()?);
        }
        Ok(Some(cells))
    }

    /// The groups of the split's key.
    pub(crate) async fn groups(&self) -> Result<Groups, Error> {
        const SAMPLES: usize = 5;
        if let Some((pieces, _)) = &self.pieces {
            let pieces = Arc::clone(pieces);
            let work = move || pieces.groups(SAMPLES);
            let joined = tokio::task::spawn_blocking(work).await;
            return Ok(joined??);
        }
        let mut rows = self.frame(Split::Train)?;
        for other in [Split::Validation, Split::Test] {
            rows = rows.union(self.frame(other)?)?;
        }
        Groups::count(rows, SAMPLES).await
    }

    /// Counts the rows that have no key, where their group is their content.
    pub(crate) async fn without_key(&self) -> Result<u64, Error> {
        let mut rows = 0;
        for split in Split::ALL {
            let found = self.frame(split)?;
            let found =
                found.filter(ident(system_columns::GROUP).eq(ident(system_columns::HASH)))?;
            rows += Box::pin(found.count()).await? as u64;
        }
        Ok(rows)
    }

    /// Columns of text and of times that are features only by default and hold (nearly) a value per row, such as
    /// names, ids and timestamps. They are dropped from the features, each with the reason. `is_time` returns true for a column
    /// of times.
    pub(crate) fn identifiers(
        &self,
        is_time: impl Fn(&str) -> bool,
    ) -> BTreeMap<String, NoFeatureReason> {
        let rows = usize::try_from(self.rows(Split::Train)).unwrap_or(usize::MAX);
        let why = |(name, d): (&String, &Distinct)| {
            let many = d.0.len();
            let [own, different] = match is_time(name) {
                true => [NoFeatureReason::OwnTimes, NoFeatureReason::ManyTimes],
                false => [NoFeatureReason::OwnTexts, NoFeatureReason::ManyTexts],
            };
            let reason = match many {
                _ if many > FEW_VALUES && many > rows / 2 => own,
                _ if many > MANY_VALUES => different,
                _ => return None,
            };
            Some((name.clone(), reason))
        };
        self.distinct.iter().filter_map(why).collect()
    }
}

/// The order that rows are written in: shuffled by key, or as they landed. It is total.
pub(crate) fn order(shuffle: Option<ShuffleKey>) -> Vec<SortExpr> {
    let key = shuffle.map(|key| key.over(vec![ident(system_columns::HASH)]));
    let columns = key.into_iter().chain([ident(system_columns::ORIGIN)]);
    columns.map(|column| column.sort(true, false)).collect()
}

/// Hashes of distinct values, no more than needed to prove that there are many.
#[derive(Clone, Debug, Default)]
pub(super) struct Distinct(pub(super) HashSet<u64>);

impl Distinct {
    pub(super) fn add(&mut self, hash: u64) {
        if self.0.len() <= MANY_VALUES {
            self.0.insert(hash);
        }
    }
}
