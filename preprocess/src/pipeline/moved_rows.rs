//! Rows of a dataset that are in another split once it is rebuilt from all rows.
//!
//! A row is found by its landing position, whatever its content is by then, and by its content
//! where a source has withdrawn rows. Where the content decides the split, rows of a source with a
//! key that are no longer found are counted too. Each shard is read once, and some millions of rows
//! are compared at a time, so memory is bounded.

use std::io::Cursor;

use arrow::{
    array::{ArrayRef, AsArray},
    datatypes::UInt64Type,
    error::ArrowError,
    ipc::reader::FileReader,
};
use bytes::Bytes;
use datafusion::logical_expr::ident;
use feedline_schemas::{
    config::SplitBy,
    count::counted,
    ids::{Hash128, Origin},
    manifest::{Manifest, Shard, Split},
    report::Warning,
};
use feedline_storage::Store;
use futures::{StreamExt, TryStreamExt, stream};

use super::prepare::{Build, DatasetChanges, DatasetSettings, MovableDataset, MoveCause};
use crate::{
    Error,
    operators::{
        dedup::content_hash::key_of,
        join::Join,
        split::{Rule, code},
    },
    schema::{landed_columns::shown, system_columns},
    staging::Staged,
    warnings::{
        list_moves, rows_changed_split, rows_not_compared, splits_not_compared, toml_string,
    },
};

/// Rows of the earlier dataset that are compared at a time, or those of one larger shard: 192 MiB, beside the shards that are
/// read. Few in tests.
const ROWS_AT_A_TIME: usize = if cfg!(test) { 64 } else { 8 << 20 };

/// Most shards read at the same time.
const READS: usize = 4;

/// Bytes of shards that are in memory at a time, unless one has more: all of a shard is read, with the pixels of its images, to
/// compare its hash.
const READ_BYTES: u64 = 1 << 30;

/// Row in a shard of the earlier dataset.
struct StoredRow {
    origin: u64,
    /// First bytes of the content hash.
    key: u64,
    split: u8,
    /// True if the rebuilt dataset has the row.
    is_found: bool,
}

impl StoredRow {
    /// Returns true if it is of a source that is true in `chosen`.
    fn is_of(&self, chosen: &[bool]) -> bool {
        let source = usize::try_from(Origin::from_packed(self.origin).source());
        source.is_ok_and(|source| chosen.get(source) == Some(&true))
    }
}

/// Rows of the earlier dataset whose splits have changed.
#[derive(Debug, Default)]
struct MovedRows {
    /// Rows by the split before and the split now, each in the order of [`Split::ALL`].
    moved: [[u64; 3]; 3],
    /// Rows of sources with a key that are no longer found.
    replaced: u64,
    /// Other rows that are no longer found.
    unfound: u64,
    /// True if a row has the content that it had, so that both builds hash contents in one way.
    has_equal: bool,
    /// True if such a row moves only where settings of the split have changed, which is no warning.
    ignores_equal: bool,
}

impl MovedRows {
    /// Marks the earlier `row` as found, and counts it if it is in another split now, by its code. `is_equal` is true if it has
    /// the content that it had.
    fn add(&mut self, row: &mut StoredRow, split: u8, is_equal: bool) {
        row.is_found = true;
        self.has_equal |= is_equal;
        if row.split != split && !(self.ignores_equal && is_equal) {
            self.moved[usize::from(row.split)][usize::from(split)] += 1;
        }
    }

    fn total(&self) -> u64 {
        self.moved.iter().flatten().sum()
    }
}

impl Build<'_> {
    /// The dataset of `manifest`, if a rebuild after these `changes` can put its rows into other splits.
    pub(super) fn movable(
        &self,
        manifest: Manifest,
        changes: DatasetChanges,
    ) -> Option<Box<MovableDataset>> {
        let causes = self.causes_of_moves(changes);
        let is_by_join = causes.contains(&MoveCause::Join)
            && (matches!(self.spec.rule, Rule::Hash)
                || self.joins_decide_splits(changes)
                || self.values_decide_splits(changes));
        let is_by_rows = causes.contains(&MoveCause::Groups) && changes.has_rows;
        (!causes.is_empty()).then(|| {
            Box::new(MovableDataset {
                manifest,
                causes,
                // Only then is it certain that a row has moved because of a join.
                is_refused: is_by_join && !is_by_rows && changes.settings == DatasetSettings::Same,
                lacks_rows: changes.lacks_rows,
            })
        })
    }

    /// All causes for which a rebuild after these `changes` can put rows into other splits.
    fn causes_of_moves(&self, changes: DatasetChanges) -> Vec<MoveCause> {
        // Rows of a query have no landing position, and a divided document has parts in all splits.
        if self.input.query.is_some() || self.cuts_documents() {
            return Vec::new();
        }
        let groups = self.grouping_key().map(|_| MoveCause::Groups);
        let is_joined =
            changes.has_joined && (self.has_joined_split() || self.joins_decide_splits(changes));
        let join = is_joined.then_some(MoveCause::Join);
        let has_others = groups.is_some() || join.is_some();
        let other = match changes.settings {
            DatasetSettings::EarlierVersion => Some(MoveCause::EarlierVersion),
            DatasetSettings::Other => {
                (has_others || self.splits_by_content()).then_some(MoveCause::Settings)
            }
            DatasetSettings::Same => {
                let is_counted = changes.lacks_rows && !matches!(self.spec.rule, Rule::Hash);
                (!has_others && (is_counted || self.replaces_contents())).then_some(MoveCause::Rows)
            }
        };
        groups.into_iter().chain(join).chain(other).collect()
    }

    /// Returns true if a joined source alone has changed, and rows are found again by their landing positions: the rebuild can
    /// compare their splits.
    pub(super) fn compares_splits(&self, changes: DatasetChanges) -> bool {
        let is_alone = changes.has_joined && !changes.has_rows;
        is_alone
            && changes.settings == DatasetSettings::Same
            && self.spec.config.kind.is_rows()
            && self.input.query.is_none()
            // The landing position of a window is that of one of its rows.
            && self.sequence().is_none()
    }

    /// Returns true if a joined source alone has changed, and all rows together decide the splits: rows that become equal, or get
    /// another time, can move others.
    fn joins_decide_splits(&self, changes: DatasetChanges) -> bool {
        self.compares_splits(changes) && self.check_splits_stay("").is_err()
    }

    /// Returns true if the values of a row alone decide its split, and its landing position finds it again: no other row can have
    /// moved it.
    fn values_decide_splits(&self, changes: DatasetChanges) -> bool {
        // New rows can divide a series into other windows.
        let keeps_windows = self.sequence().is_none() || !changes.has_rows;
        keeps_windows && !changes.lacks_rows && self.check_splits_stay("").is_ok()
    }

    /// Returns true if columns of joined sources decide the split of a row.
    fn has_joined_split(&self) -> bool {
        let split = &self.spec.config.split;
        let brought = |name: &String| {
            let mut brought = self.spec.joins.iter().flat_map(Join::brought);
            brought.any(|column| column.name == *name)
        };
        let mut named = split.key.iter().chain(split.column()).chain(split.time());
        match (&self.spec.rule, &split.by) {
            (Rule::Hash, _) if split.key.is_empty() => !self.spec.joins.is_empty(),
            // An expression may name any column.
            (_, SplitBy::Expression(_)) => !self.spec.joins.is_empty(),
            _ => named.any(brought),
        }
    }

    /// Key of the setting that lets new rows move earlier ones to the split of their group, if there is one.
    fn grouping_key(&self) -> Option<&'static str> {
        if !matches!(self.spec.rule, Rule::Hash) {
            return None;
        }
        let images = self.spec.images();
        match images.is_some_and(|images| images.how.hashes) {
            true => Some("dataset.image.duplicates"),
            false => self.spec.near_dup.as_ref().map(|_| "dataset.near_dup"),
        }
    }

    /// Returns true if the content of a row decides its split.
    fn splits_by_content(&self) -> bool {
        let split = &self.spec.config.split;
        let fractions = [split.train, split.validation, split.test];
        let splits = fractions.iter().filter(|fraction| **fraction > 0.0).count();
        matches!(self.spec.rule, Rule::Hash)
            && split.key.is_empty()
            && splits > 1
            // The key of a window is not that of a row.
            && self.sequence().is_none()
    }

    /// True for each source whose newer versions of rows can be in another split: it has a key, and the content decides the split.
    fn versioned_sources(&self) -> Vec<bool> {
        let by_content = self.splits_by_content();
        let sources = self.input.sources.iter();
        sources
            .map(|source| by_content && !source.newest().0.is_empty())
            .collect()
    }

    /// Returns true if a newer version of a row can be in another split.
    fn replaces_contents(&self) -> bool {
        self.versioned_sources().contains(&true)
    }

    /// Compares the splits of `staged` rows with those in the dataset that they replace, and warns of rows that have moved.
    ///
    /// # Errors
    /// [`Error::Config`] where rows have moved because of a join; [`Error::Input`] for a damaged shard, where they may have.
    pub(super) async fn check_moved_rows(&self, staged: &Staged) -> Result<Vec<Warning>, Error> {
        let Some(before) = &self.previous.movable else {
            return Ok(Vec::new());
        };
        let found = match self.find_moved_rows(before, staged).await {
            // The rebuild replaces the damaged shard.
            Err(Error::Input { what, reason, .. }) if !before.is_refused => {
                return Ok(vec![splits_not_compared(&what, &reason)]);
            }
            found => found?,
        };
        if before.is_refused && found.total() > 0 {
            return Err(self.refuse_moves(&found));
        }
        let (key, cause) = self.cause_of_moves(before);
        let moved = rows_changed_split(&found.moved, found.replaced, (key, cause.as_str()));
        let is_joined = before.has(MoveCause::Join);
        let has_others = before.has(MoveCause::EarlierVersion) || before.has(MoveCause::Settings);
        let hashes_others = has_others && self.splits_by_content() && !found.has_equal;
        let hides_moves = before.lacks_rows && (is_joined || hashes_others);
        let unfound =
            (hides_moves && found.unfound > 0).then(|| rows_not_compared(found.unfound, is_joined));
        Ok(moved.into_iter().chain(unfound).collect())
    }

    /// Key of the setting that moves rows of the dataset `before`, and all that may have moved them.
    fn cause_of_moves(&self, before: &MovableDataset) -> (&'static str, String) {
        let key = self.grouping_key().filter(|_| !before.has(MoveCause::Join));
        let causes = before.causes.iter().map(|cause| match cause {
            MoveCause::Groups => {
                "the smallest hash of a group decides its split, and groups have changed"
            }
            MoveCause::Join => "joined columns or settings that decide their splits have changed",
            MoveCause::EarlierVersion => "an earlier version of feedline built that dataset",
            MoveCause::Settings => {
                "settings of the dataset have changed, and the content of rows with them"
            }
            MoveCause::Rows => "rows that had landed no longer count",
        });
        let causes: Vec<&str> = causes.collect();
        (key.unwrap_or("dataset.split.key"), causes.join(", or "))
    }

    /// Error of a rebuild that moves rows because of a join and needs `--refit`.
    fn refuse_moves(&self, found: &MovedRows) -> Error {
        let cause = format!(
            "a joined source has changed since the dataset was built, so {} would be in another split ({})",
            counted(found.total(), "row"),
            list_moves(&found.moved)
        );
        if let Err(error) = self.check_splits_stay(&cause) {
            return error;
        }
        if let Some(error) = self.refuse_moves_by_values(&cause) {
            return error;
        }
        let decides = match self.spec.config.split.key.is_empty() {
            true => "the content of a row decides its split",
            false => "this key has a column that changes",
        };
        let reason = format!(
            "{} of the dataset would be in another split ({}), since joined columns have changed: {decides}, and a model may have \
             been fitted on such rows; pass `--refit` to split, fit and rebuild, or set this key to {}, which splits all rows once \
             more and then keeps them in their splits",
            counted(found.total(), "row"),
            list_moves(&found.moved),
            self.advised_key()
        );
        Error::config("dataset.split.key", reason)
    }

    /// The same error, with this `cause`, where a column or an expression decides the split of a row; `None` where a hash does.
    fn refuse_moves_by_values(&self, cause: &str) -> Option<Error> {
        let (key, decides) = match &self.spec.config.split.by {
            SplitBy::Key { .. } | SplitBy::Range { .. } => return None,
            SplitBy::Expression(_) => ("expression", "the expression reads its columns".to_owned()),
            SplitBy::Column(name) => (
                "column",
                format!("its column `{}` names the split", shown(name)),
            ),
            SplitBy::Time { column, .. } => (
                "time",
                format!(
                    "the time in its column `{}` decides the split",
                    shown(column)
                ),
            ),
        };
        let reason = format!(
            "{cause}, and {decides}: a model may have been fitted on such rows; pass `--refit` to split, fit and rebuild, or split \
             by columns of the rows that do not change"
        );
        Some(Error::config(format!("dataset.split.{key}"), reason))
    }

    /// Columns that keep rows in their splits, for an error: the key of the only source, if it has one.
    fn advised_key(&self) -> String {
        let is_free = self.spec.config.split.key.is_empty();
        match self.input.sources.as_slice() {
            [source] if is_free && !source.key.is_empty() => {
                let names: Vec<String> = source.key.iter().map(|name| toml_string(name)).collect();
                format!("`[{}]`", names.join(", "))
            }
            _ => "columns that identify a row and do not change".to_owned(),
        }
    }

    /// Compares the rows of the dataset `before` with the `staged` ones.
    async fn find_moved_rows(
        &self,
        before: &MovableDataset,
        staged: &Staged,
    ) -> Result<MovedRows, Error> {
        let splits = &before.manifest.splits;
        let shards = splits.iter().flat_map(|found| {
            let shards = found.shards.iter().cloned();
            shards.map(move |shard| (found.split, shard))
        });
        let shards: Vec<(Split, Shard)> = shards.collect();
        let total: u64 = splits.iter().map(|found| found.rows).sum();
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        let mut rows = Vec::with_capacity(total.min(ROWS_AT_A_TIME));
        let mut found = MovedRows {
            ignores_equal: before.has(MoveCause::Settings)
                && !before.has(MoveCause::Groups)
                && self.splits_by_content(),
            ..MovedRows::default()
        };
        let dataset = &self.store;
        let largest = shards.iter().map(|(_, shard)| shard.bytes).max();
        let mut shards = stream::iter(shards)
            .map(|(split, shard): (Split, Shard)| read_shard(dataset, split, shard))
            .buffered(reads_at_a_time(largest.unwrap_or(0)));
        while let Some(more) = shards.try_next().await? {
            if rows.len() + more.len() > ROWS_AT_A_TIME {
                self.compare_rows(before, staged, &mut rows, &mut found)
                    .await?;
            }
            rows.extend(more);
        }
        self.compare_rows(before, staged, &mut rows, &mut found)
            .await?;
        Ok(found)
    }

    /// Compares some `rows` of the dataset `before` with the `staged` ones, adds those that have changed to `found`, and clears
    /// `rows`.
    async fn compare_rows(
        &self,
        before: &MovableDataset,
        staged: &Staged,
        rows: &mut Vec<StoredRow>,
        found: &mut MovedRows,
    ) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        match_origins(staged, rows, found).await?;
        let versioned = self.versioned_sources();
        // The key of a window is not that of a row.
        let matches_all = before.lacks_rows && self.sequence().is_none();
        rows.retain(|row| !row.is_found && (matches_all || row.is_of(&versioned)));
        match_contents(staged, rows, found).await?;
        for row in rows.drain(..).filter(|row| !row.is_found) {
            match row.is_of(&versioned) {
                true => found.replaced += 1,
                false => found.unfound += 1,
            }
        }
        Ok(())
    }
}

/// Number of shards of up to `largest` bytes that are read at the same time.
fn reads_at_a_time(largest: u64) -> usize {
    let reads = READ_BYTES / largest.max(1);
    usize::try_from(reads).map_or(READS, |reads| reads.clamp(1, READS))
}

/// Reads the rows of a shard of `split`.
async fn read_shard(dataset: &Store, split: Split, shard: Shard) -> Result<Vec<StoredRow>, Error> {
    let url = dataset.url_of(&shard.path);
    let Some(bytes) = dataset.get_opt(&shard.path).await? else {
        return Err(unusable(&url, "it is missing".to_owned()));
    };
    let read = move || decode_shard(&bytes, split, &shard, &url);
    let read = tokio::task::spawn_blocking(read).await;
    read?
}

/// Error of a shard that cannot be compared.
fn unusable(url: &str, reason: String) -> Error {
    let advice = "restore it, or rebuild the dataset with `--refit`";
    Error::input(format!("`{url}`"), reason, advice)
}

fn decode_shard(
    bytes: &Bytes,
    split: Split,
    shard: &Shard,
    url: &str,
) -> Result<Vec<StoredRow>, Error> {
    let found = Hash128::of(bytes);
    if found != shard.hash {
        let expected = shard.hash;
        let reason = format!("its content has hash {found}, the manifest says {expected}");
        return Err(unusable(url, reason));
    }
    let schema = FileReader::try_new(Cursor::new(bytes), None)?.schema();
    let index_of = |name: &str| {
        let found = schema.index_of(name);
        found.map_err(|error| unusable(url, error.to_string()))
    };
    let wanted = vec![index_of("key")?, index_of("origin")?];
    // Key and origin of a row have 16 bytes.
    let most = bytes.len() / 16;
    let expected = usize::try_from(shard.rows).map_or(most, |rows| rows.min(most));
    let mut rows = Vec::with_capacity(expected);
    for batch in FileReader::try_new(Cursor::new(bytes), Some(wanted))? {
        let batch = batch?;
        let origins = numbers(batch.column_by_name("origin"))?.as_primitive::<UInt64Type>();
        let keys = numbers(batch.column_by_name("key"))?.as_primitive::<UInt64Type>();
        let both = origins.values().iter().zip(keys.values());
        rows.extend(both.map(|(origin, key)| StoredRow {
            origin: *origin,
            key: *key,
            split: code(split),
            is_found: false,
        }));
    }
    Ok(rows)
}

fn numbers(column: Option<&ArrayRef>) -> Result<&ArrayRef, ArrowError> {
    column.ok_or_else(|| ArrowError::SchemaError("a column of the layout is absent".into()))
}

/// Finds the `staged` rows among the earlier `rows` by their landing positions, and counts those that have moved.
async fn match_origins(
    staged: &Staged,
    rows: &mut [StoredRow],
    found: &mut MovedRows,
) -> Result<(), Error> {
    rows.sort_unstable_by_key(|row| row.origin);
    let visit = |origin: u64, key: u64, split: u8| {
        if let Ok(earlier) = rows.binary_search_by_key(&origin, |row| row.origin) {
            let row = &mut rows[earlier];
            let is_equal = row.key == key;
            found.add(row, split, is_equal);
        }
    };
    visit_staged(staged, visit).await
}

/// Finds the `staged` rows among the earlier `rows` by their content, and counts those that have moved.
async fn match_contents(
    staged: &Staged,
    rows: &mut [StoredRow],
    found: &mut MovedRows,
) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_unstable_by_key(|row| row.key);
    let visit = |_: u64, key: u64, split: u8| {
        let first = rows.partition_point(|row| row.key < key);
        // All rows of a content are found at once.
        let same = rows[first..].iter_mut();
        for row in same.take_while(|row| row.key == key && !row.is_found) {
            found.add(row, split, true);
        }
    };
    visit_staged(staged, visit).await
}

/// Calls `visit` with the landing position, the first bytes of the content hash and the code of the split of each `staged` row.
async fn visit_staged(staged: &Staged, mut visit: impl FnMut(u64, u64, u8)) -> Result<(), Error> {
    for split in Split::ALL {
        let columns = [system_columns::ORIGIN, system_columns::HASH].map(ident);
        let rows = staged.frame(split)?.select(columns.to_vec())?;
        let mut batches = Box::pin(rows.execute_stream()).await?;
        while let Some(batch) = batches.try_next().await? {
            let origins = batch.column(0).as_primitive::<UInt64Type>().values();
            let hashes = batch.column(1).as_fixed_size_binary();
            for (place, origin) in origins.iter().enumerate() {
                visit(*origin, key_of(hashes.value(place)), code(split));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_shards_are_read_at_a_time_the_larger_they_are() {
        for (largest, expected) in [(0, 4), (64 << 20, 4), (300 << 20, 3), (4 << 30, 1)] {
            assert_eq!(reads_at_a_time(largest), expected, "{largest}");
        }
    }
}
