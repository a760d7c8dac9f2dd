//! Keys of rows that find no row of the joined source, beside keys of it that mean the same and are
//! written otherwise.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray},
    datatypes::Int64Type,
    error::ArrowError,
};
use datafusion::{
    common::JoinType,
    functions_aggregate::expr_fn::count,
    logical_expr::{ident, lit},
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::{manifest::JoinCounts, record::RecordSchema, report::Warning};
use futures::TryStreamExt;
use xxhash_rust::xxh3::xxh3_64;

use super::{landed_beside, resolved_join::Join};
use crate::{
    Error,
    engine::union::append_rows,
    operators::time_series::Instant,
    source::{landing_zone::Landed, latest_version::read_latest},
    warnings::{self, UnmatchedRows, folded},
};

const LEFT: &str = "_join_left";
const RIGHT: &str = "_join_right";
const ROWS: &str = "_join_rows";

/// Keys that are held at a time, at most.
const HELD: usize = 1 << 16;

/// A key of rows that the joined source does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MissedKey {
    pub(crate) key: String,
    /// Rows with the key, and with others that mean the same.
    pub(crate) rows: u64,
    /// Key of the joined source that means the same.
    pub(crate) partner: Option<String>,
}

/// Missed keys by the hash of what they mean. Where there are many, a part of all, which follows from the keys alone.
#[derive(Debug, Default)]
pub(crate) struct MissedKeys {
    keys: HashMap<u64, MissedKey>,
    /// Hashes with any of so many upper bits are left out.
    bits: u32,
}

impl MissedKeys {
    /// Adds so many rows with a key that is no key of the joined source.
    pub(crate) fn add(&mut self, key: &str, rows: u64) {
        let hash = hash_of(key);
        if self.bits > 0 && hash >> (64 - self.bits) != 0 {
            return;
        }
        let missed = self.keys.entry(hash).or_default();
        missed.rows += rows;
        if missed.key.is_empty() || *key < *missed.key {
            key.clone_into(&mut missed.key);
        }
        while self.keys.len() > HELD {
            self.bits += 1;
            let bits = self.bits;
            self.keys.retain(|hash, _| hash >> (64 - bits) == 0);
        }
    }

    /// The keys and their rows, as columns of the engine.
    fn to_batch(&self) -> Result<RecordBatch, ArrowError> {
        let missed = self.keys.values();
        let keys: StringArray = missed.clone().map(|m| Some(m.key.as_str())).collect();
        let rows: Int64Array = missed.map(|m| i64::try_from(m.rows).ok()).collect();
        let columns: [(&str, ArrayRef); 2] = [(LEFT, Arc::new(keys)), (ROWS, Arc::new(rows))];
        RecordBatch::try_from_iter(columns)
    }

    /// Notes a key of the joined source.
    fn compare(&mut self, key: &str) {
        let Some(missed) = self.keys.get_mut(&hash_of(key)) else {
            return;
        };
        if missed
            .partner
            .as_ref()
            .is_none_or(|known| key < known.as_str())
        {
            missed.partner = Some(key.to_owned());
        }
    }

    /// Those that mean the same as a key of the joined source, in order.
    fn alike(self) -> Vec<MissedKey> {
        let keys = self.keys.into_values();
        let mut alike: Vec<MissedKey> = keys.filter(|key| key.partner.is_some()).collect();
        alike.sort_unstable();
        alike
    }
}

fn hash_of(key: &str) -> u64 {
    xxh3_64(meaning(key).as_bytes())
}

/// Writes a key without differences of blanks, letter case, leading zeros, and ways to write a time.
fn meaning(key: &str) -> String {
    let text = key.trim();
    // A whole number as a float.
    let whole = text
        .split_once('.')
        .filter(|(_, zeros)| !zeros.is_empty() && zeros.bytes().all(|digit| digit == b'0'));
    let digits = whole.map_or(text, |(whole, _)| whole);
    if !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()) {
        let number = digits.trim_start_matches('0');
        return if number.is_empty() { "0" } else { number }.to_owned();
    }
    match Instant::iso().of_text(text) {
        Some(micros) => format!("@{micros}"),
        None => folded(text),
    }
}

/// Warns of joins in which few rows find a row of the joined source, or some do not for the spelling
/// of their key alone. `counts` are those of the `joins` over the landed rows of `sources`.
///
/// # Errors
/// Those of the engine.
pub(crate) async fn find_warnings(
    session: &SessionContext,
    sources: &[Landed],
    joins: &[Join],
    counts: &[JoinCounts],
) -> Result<Vec<Warning>, Error> {
    let mut found = Vec::new();
    for ((index, join), counts) in joins.iter().enumerate().zip(counts) {
        let alike = match join.left.is_some() && counts.unmatched > 0 {
            true => {
                let landed = landed_beside(session, sources, &joins[..index])?;
                Box::pin(join.alike_keys(session, landed)).await?
            }
            false => Vec::new(),
        };
        found.extend(warnings::unmatched_rows(&UnmatchedRows {
            source: join.name().as_str(),
            columns: join.columns_compared(),
            types: join.key_types,
            by_time: join.asof.is_some(),
            matched: counts.matched,
            unmatched: counts.unmatched,
            are_new: false,
            built: None,
            alike: &alike,
        }));
    }
    Ok(found)
}

impl Join {
    /// Warns as [`find_warnings`] does, of a join of new rows: with these `missed` keys, and so many
    /// rows with and without a match. `columns` are the compared ones of the rows and of the source,
    /// `built` the counts of all joins in the build.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) async fn find_warning_of_new_rows(
        &self,
        session: &SessionContext,
        columns: [&str; 2],
        [matched, unmatched]: [u64; 2],
        missed: &MissedKeys,
        built: &[JoinCounts],
    ) -> Result<Option<Warning>, Error> {
        let built = built.get(self.index);
        let built = built.filter(|counts| counts.source == *self.name());
        let alike = match self.left.is_some() && !missed.keys.is_empty() {
            true => {
                let keys = session.read_batch(missed.to_batch()?)?;
                Box::pin(self.alike_among(session, keys)).await?
            }
            false => Vec::new(),
        };
        Ok(warnings::unmatched_rows(&UnmatchedRows {
            source: self.name().as_str(),
            columns,
            types: self.key_types,
            by_time: self.asof.is_some(),
            matched,
            unmatched,
            are_new: true,
            built: built.map(|counts| [counts.matched, counts.unmatched]),
            alike: &alike,
        }))
    }

    /// Key columns, or times without a key: that of the rows, and that of the source.
    pub(crate) fn columns_compared(&self) -> [&str; 2] {
        let time = self.asof.as_ref().map(|asof| &asof.time.column);
        let left = self.left.as_ref().or(time).map_or("", String::as_str);
        [left, self.right.as_deref().unwrap_or(left)]
    }

    /// The keys of the `landed` rows that the source does not have, and has in another spelling.
    async fn alike_keys(
        &self,
        session: &SessionContext,
        landed: Vec<(DataFrame, RecordSchema)>,
    ) -> Result<Vec<MissedKey>, Error> {
        let mut keys = None;
        for (rows, schema) in landed {
            let rows = rows.select(vec![self.left_key(&schema).alias(LEFT)])?;
            keys = Some(append_rows(keys, rows)?);
        }
        let Some(keys) = keys else {
            return Ok(Vec::new());
        };
        let keys = keys.filter(ident(LEFT).is_not_null())?;
        let keys = keys.aggregate(vec![ident(LEFT)], vec![count(lit(1_i64)).alias(ROWS)])?;
        Box::pin(self.alike_among(session, keys)).await
    }

    /// Those of `keys`, which have their rows beside them, that the source does not have, and has in
    /// another spelling.
    async fn alike_among(
        &self,
        session: &SessionContext,
        keys: DataFrame,
    ) -> Result<Vec<MissedKey>, Error> {
        let theirs = read_latest(session, &self.source, |schema| {
            Ok(vec![self.right_key(schema).alias(RIGHT)])
        })?;
        let Some(theirs) = theirs else {
            return Ok(Vec::new());
        };
        let theirs = theirs.filter(ident(RIGHT).is_not_null())?;
        let only = theirs
            .clone()
            .join(keys, JoinType::RightAnti, &[RIGHT], &[LEFT], None)?;
        let mut missed = MissedKeys::default();
        let mut batches = Box::pin(only.execute_stream()).await?;
        while let Some(batch) = batches.try_next().await? {
            let keys = batch.column(0).as_string::<i32>();
            let rows = batch.column(1).as_primitive::<Int64Type>();
            for (row, key) in keys.iter().enumerate() {
                let rows = u64::try_from(rows.value(row)).unwrap_or(0);
                key.into_iter().for_each(|key| missed.add(key, rows));
            }
        }
        if missed.keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut batches = Box::pin(theirs.execute_stream()).await?;
        while let Some(batch) = batches.try_next().await? {
            let keys = batch.column(0).as_string::<i32>().iter().flatten();
            keys.for_each(|key| missed.compare(key));
        }
        Ok(missed.alike())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_the_same_whatever_their_blanks_case_zeros_and_form_of_a_time() {
        for [one, other] in [
            ["S4", " s4"],
            ["0", "00"],
            ["7", "007"],
            ["7", "7.0"],
            ["2026-01-01", "2026-01-01T00:00:00Z"],
            ["2026-01-01T02:00:00+02:00", "2026-01-01"],
        ] {
            assert_eq!(meaning(one), meaning(other), "{one} {other}");
        }
        for [one, other] in [["S4", "S5"], ["7", "70"], ["7", "7.5"], ["a", ""]] {
            assert_ne!(meaning(one), meaning(other), "{one} {other}");
        }
    }

    #[test]
    fn missed_keys_are_bounded_and_those_held_follow_from_the_keys_alone() {
        let held = |keys: &mut dyn Iterator<Item = u64>| {
            let mut missed = MissedKeys::default();
            keys.for_each(|key| missed.add(&format!("k{key}"), 1));
            let mut held: Vec<u64> = missed.keys.into_keys().collect();
            held.sort_unstable();
            held
        };
        let many = 3 * HELD as u64;
        let found = held(&mut (0..many));
        assert!((1000..=HELD).contains(&found.len()), "{}", found.len());
        assert_eq!(found, held(&mut (0..many).rev()));
    }
}
