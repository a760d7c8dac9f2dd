//! Rows of a dataset that are in another split once it is rebuilt from all rows.
//!
//! A row is found by its landing position, whatever its content is by then, and by its content
//! where a source has withdrawn rows. Where the content decides the split, rows of a source with a
//! key that are no longer found are counted too. Each shard is read once, and some millions of rows
//! are compared at a time, so memory is bounded.

use std::io::Cursor;

use arrow::{
    array::{Array, ArrayRef, AsArray},
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

use super::prepare::{Build, DatasetChanges, DatasetSettings, MovableDataset};
use crate::{
    Error,
    operators::{
        dedup::content_hash::key_of,
        join::Join,
        split::{Rule, code},
    },
    schema::system_columns,
    staging::Staged,
    warnings::{
        list_moves, rows_changed_split, rows_not_compared, splits_not_compared, toml_string,
    },
};

/// Rows of the earlier dataset that are compared at a time, or those of one larger shard: 192 MiB, beside the shards that are
/// read. Few in tests.
const ROWS_AT_A_TIME: usize = if cfg!(test) { 64 } else { 8 << 20 };

/// Shards read at the same time.
const READS: usize = 4;

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
}

impl MovedRows {
    /// Counts a row that was in the split `before` and is in the split `now`, by their codes.
    fn add(&mut self, before: u8, now: u8) {
        if before != now {
            self.moved[usize::from(before)][usize::from(now)] += 1;
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
        // Rows of a query have no landing position, and a divided document has parts in all splits.
        if self.input.query.is_some() || self.cuts_documents() {
            return None;
        }
        let DatasetChanges {
            settings,
            lacks_rows,
            ..
        } = changes;
        let is_by_hash = matches!(self.spec.rule, Rule::Hash);
        let is_grouped = self.grouping_key().is_some();
        let is_joined = changes.has_joined && self.has_joined_split();
        let by_content = self.splits_by_content();
        let is_changed = match settings {
            DatasetSettings::EarlierVersion => true,
            DatasetSettings::Other => is_grouped || by_content,
            DatasetSettings::Same => {
                is_grouped || self.replaces_contents() || (lacks_rows && !is_by_hash)
            }
        };
        // Only then is it certain that a row has moved because of a join.
        let is_exact = settings == DatasetSettings::Same && !(is_grouped && changes.has_rows);
        (is_joined || is_changed).then(|| {
            Box::new(MovableDataset {
                manifest,
                settings,
                is_joined,
                is_refused: is_joined && is_by_hash && is_exact,
                ignores_equal: settings == DatasetSettings::Other && by_content && !is_grouped,
                lacks_rows,
                hides_moves: lacks_rows
                    && (is_joined || (by_content && settings != DatasetSettings::Same)),
            })
        })
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

    /// Returns true if a newer version of a row can be in another split: a source has a key, and the content decides the split.
    fn replaces_contents(&self) -> bool {
        let mut sources = self.input.sources.iter();
        self.splits_by_content() && sources.any(|source| !source.newest().0.is_empty())
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
        let hides_moves = before.hides_moves && (before.is_joined || !found.has_equal);
        let unfound = (hides_moves && found.unfound > 0)
            .then(|| rows_not_compared(found.unfound, before.is_joined));
        Ok(moved.into_iter().chain(unfound).collect())
    }

    /// Key of the setting that moves rows of the dataset `before`, and all that may have moved them.
    fn cause_of_moves(&self, before: &MovableDataset) -> (&'static str, String) {
        let grouping = self.grouping_key();
        let causes = [
            (
                grouping.is_some(),
                "the smallest hash of a group decides its split, and groups have changed",
            ),
            (
                before.is_joined,
                "joined columns or settings that decide their splits have changed",
            ),
            (
                before.settings == DatasetSettings::EarlierVersion,
                "an earlier version of feedline built that dataset",
            ),
            (
                before.settings == DatasetSettings::Other,
                "settings of the dataset have changed, and the content of rows with them",
            ),
        ];
        let causes = causes.into_iter().filter(|(is_one, _)| *is_one);
        let causes: Vec<&str> = causes.map(|(_, cause)| cause).collect();
        let cause = match causes.is_empty() {
            true => "rows that had landed no longer count".to_owned(),
            false => causes.join(", or "),
        };
        let grouping = grouping.filter(|_| !before.is_joined);
        (grouping.unwrap_or("dataset.split.key"), cause)
    }

    /// Error of a rebuild that moves rows because of a join and needs `--refit`.
    fn refuse_moves(&self, found: &MovedRows) -> Error {
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
        let mut shards: Vec<(Split, Shard)> = Vec::new();
        for splits in &before.manifest.splits {
            let split = splits.split;
            shards.extend(splits.shards.iter().map(|shard| (split, shard.clone())));
        }
        let total: u64 = shards.iter().map(|(_, shard)| shard.rows).sum();
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        let mut rows = Vec::with_capacity(total.min(ROWS_AT_A_TIME));
        let mut found = MovedRows::default();
        let dataset = &self.store;
        let mut shards = stream::iter(shards)
            .map(|(split, shard): (Split, Shard)| read_shard(dataset, split, shard))
            .buffered(READS);
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
        rows.sort_unstable_by_key(|row| row.origin);
        match_origins(staged, rows, before.ignores_equal, found).await?;
        let replaces = self.replaces_contents();
        // The key of a window is not that of a row.
        let matches_all = before.lacks_rows && self.sequence().is_none();
        if replaces || matches_all {
            let keyed = self.keyed_sources();
            rows.retain(|row| !row.is_found && (matches_all || row.is_of(&keyed)));
            match_contents(staged, rows, before.ignores_equal, found).await?;
            let missing = rows.iter().filter(|row| !row.is_found);
            let (newer, others): (Vec<_>, Vec<_>) =
                missing.partition(|row| replaces && row.is_of(&keyed));
            found.replaced += newer.len() as u64;
            found.unfound += others.len() as u64;
        }
        rows.clear();
        Ok(())
    }

    /// True for each source that has a key.
    fn keyed_sources(&self) -> Vec<bool> {
        let sources = self.input.sources.iter();
        sources
            .map(|source| !source.newest().0.is_empty())
            .collect()
    }
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

/// Finds the `staged` rows among the earlier `rows`, which are in the order of their origins, and counts those that have moved.
/// Those of the same content do not count if it `ignores_equal` ones.
async fn match_origins(
    staged: &Staged,
    rows: &mut [StoredRow],
    ignores_equal: bool,
    found: &mut MovedRows,
) -> Result<(), Error> {
    for split in Split::ALL {
        let columns = [system_columns::ORIGIN, system_columns::HASH].map(ident);
        let staged = staged.frame(split)?.select(columns.to_vec())?;
        let mut batches = Box::pin(staged.execute_stream()).await?;
        while let Some(batch) = batches.try_next().await? {
            let origins = batch.column(0).as_primitive::<UInt64Type>().values();
            let hashes = batch.column(1).as_fixed_size_binary();
            for (place, origin) in origins.iter().enumerate() {
                let Ok(earlier) = rows.binary_search_by_key(origin, |row| row.origin) else {
                    continue;
                };
                let row = &mut rows[earlier];
                row.is_found = true;
                let is_equal = row.key == key_of(hashes.value(place));
                found.has_equal |= is_equal;
                if !(ignores_equal && is_equal) {
                    found.add(row.split, code(split));
                }
            }
        }
    }
    Ok(())
}

/// Finds the `staged` rows among the earlier `rows` by their content, and counts those that have moved, unless it
/// `ignores_equal` rows.
async fn match_contents(
    staged: &Staged,
    rows: &mut [StoredRow],
    ignores_equal: bool,
    found: &mut MovedRows,
) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_unstable_by_key(|row| row.key);
    for split in Split::ALL {
        let hashes = staged
            .frame(split)?
            .select(vec![ident(system_columns::HASH)])?;
        let mut batches = Box::pin(hashes.execute_stream()).await?;
        while let Some(batch) = batches.try_next().await? {
            let hashes = batch.column(0).as_fixed_size_binary();
            for place in 0..hashes.len() {
                let key = key_of(hashes.value(place));
                let first = rows.partition_point(|row| row.key < key);
                // All rows of a content are found at once.
                let same = rows[first..].iter_mut();
                let same = same.take_while(|row| row.key == key && !row.is_found);
                for row in same {
                    row.is_found = true;
                    found.has_equal = true;
                    if !ignores_equal {
                        found.add(row.split, code(split));
                    }
                }
            }
        }
    }
    Ok(())
}
