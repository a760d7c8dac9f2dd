//! Rows of several splits that are equal in the target and in every feature, before any step, and
//! differ in columns that are no features, such as an id.
//!
//! Duplicates are rows that are equal in all columns as they landed, so a row under another id is no
//! duplicate, and may be in another split. Neither is a row with another word for a missing value.
//! Some tables have such rows without a fault, so they are counted and never dropped.

use std::ops::Range;

use arrow::{
    array::{Array, ArrayRef, AsArray, BinaryArray, Float64Array, RecordBatch, StringArray},
    datatypes::Float64Type,
};
use feedline_schemas::{
    config::DedupMode,
    manifest::{Layout, Split},
    record::ColumnType,
    report::Warning,
    transform::{InputKind, TransformArtefact},
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    Error, Transform,
    operators::{dedup::conflicts, images::Images, split::code},
    pipeline::prepare::Build,
    shards::audit::suspects,
    staging::Matrix,
    transform::{Applied, TargetValues},
    warnings,
};

/// Rows whose hashes are held, about and at most: 32 MiB. Of more rows those with the least hashes are looked at, so that equal
/// ones are all among them or none.
const MOST_ROWS: u64 = 4 << 20;

/// Hashes of the features and the target of rows, by split.
#[derive(Debug, Default)]
pub(in crate::pipeline) struct EqualRows {
    hashes: [Vec<u64>; 3],
    /// Upper bits of a hash that must be 0; nothing where no rows are looked at.
    bits: Option<u32>,
}

impl EqualRows {
    /// For `rows` in all; `None` where they need not be looked at.
    pub(in crate::pipeline) fn new(rows: Option<u64>) -> Self {
        let bits = rows.map(|rows| {
            let parts = rows.div_ceil(MOST_ROWS).max(1).next_power_of_two();
            parts.trailing_zeros()
        });
        Self {
            hashes: Default::default(),
            bits,
        }
    }

    /// Returns whether rows are looked at.
    pub(in crate::pipeline) const fn is_asked(&self) -> bool {
        self.bits.is_some()
    }

    /// Adds the rows of a batch of `split` that can be used.
    pub(in crate::pipeline) fn add(&mut self, split: Split, hashes: &[u64], applied: &Applied) {
        let mut bad = applied.bad.iter().map(|(row, ..)| *row).peekable();
        for (row, hash) in hashes.iter().enumerate() {
            if bad.next_if_eq(&row).is_none() {
                self.add_hash(split, *hash);
            }
        }
    }

    /// Adds the row of `split` with this hash.
    pub(super) fn add_hash(&mut self, split: Split, hash: u64) {
        let Some(bits) = self.bits else { return };
        if bits == 0 || hash >> (64 - bits) == 0 {
            self.hashes[usize::from(code(split))].push(hash);
        }
    }

    /// Rows of validation and test that equal a training row, each with the rows looked at; and whether these are a part of all.
    pub(in crate::pipeline) fn found(self) -> ([(u64, u64); 2], bool) {
        let rows = [1, 2].map(|split: usize| self.hashes[split].len() as u64);
        let is_sample = self.bits.is_some_and(|bits| bits > 0);
        let mut equal = [0; 2];
        let train = code(Split::Train);
        let mut keys = suspects((0..).zip(self.hashes).collect());
        keys.sort_unstable();
        for same in keys.chunk_by(|a, b| a.0 == b.0) {
            if same[0].1 == train {
                for (_, split) in same.iter().filter(|(_, split)| *split != train) {
                    equal[usize::from(*split) - 1] += 1;
                }
            }
        }
        ([(equal[0], rows[0]), (equal[1], rows[1])], is_sample)
    }
}

/// Rows whose cells are put beside one another at a time.
const TILE: usize = 64;

/// Hashes of the inputs of the rows of a batch, before any step, of their images and texts in the columns `contents`, and of
/// their target. What a step makes equal is not equal here: a filled cell differs from one that landed with the value, and so do
/// two cells beyond a cap.
pub(in crate::pipeline) fn hashes_of(
    transform: &Transform,
    (rows, contents): (&RecordBatch, &[String]),
    numbers: &Matrix,
    applied: &Applied,
) -> Vec<u64> {
    let inputs = InputsBeside::of(transform, (rows, contents), numbers);
    let width = inputs.floats.len();
    let mut cells = vec![0.0; TILE * width];
    let mut hashes = Vec::with_capacity(rows.num_rows());
    for first in (0..rows.num_rows()).step_by(TILE) {
        let last = rows.num_rows().min(first + TILE);
        inputs.fill(first..last, &mut cells);
        for row in first..last {
            let target = applied.y.as_ref().map_or(0, |y| seed_of(y, row));
            let hash = xxh3_64_with_seed(bytemuck::cast_slice(numbers.row(row)), target);
            let own = &cells[(row - first) * width..][..width];
            hashes.push(inputs.hash(row, own, hash));
        }
    }
    hashes
}

/// Bits of the target of a row, or a hash of them where it has several.
fn seed_of(y: &TargetValues, row: usize) -> u64 {
    match y {
        TargetValues::Regression(y) => u64::from(y[row].to_bits()),
        TargetValues::Regressions { y, targets } => {
            let numbers = &y[row * targets..(row + 1) * targets];
            xxh3_64_with_seed(bytemuck::cast_slice(numbers), 0)
        }
        TargetValues::Classification(ids) => u64::from(ids[row].cast_unsigned()),
    }
}

/// Inputs of a batch that are not in its matrix of numbers.
struct InputsBeside<'a> {
    floats: Vec<&'a Float64Array>,
    texts: Vec<&'a StringArray>,
    /// Image files.
    files: Vec<&'a BinaryArray>,
}

impl<'a> InputsBeside<'a> {
    fn of(
        transform: &Transform,
        (rows, contents): (&'a RecordBatch, &[String]),
        numbers: &Matrix,
    ) -> Self {
        let inputs = transform.artefact().inputs.iter();
        let beside = inputs.filter(|input| numbers.place(&input.name).is_none());
        let names = beside.map(|input| &input.name).chain(contents);
        let beside: Vec<&ArrayRef> = names.filter_map(|name| rows.column_by_name(name)).collect();
        let floats = beside.iter();
        let (texts, files) = (floats.clone(), floats.clone());
        Self {
            floats: floats
                .filter_map(|column| column.as_primitive_opt::<Float64Type>())
                .collect(),
            texts: texts
                .filter_map(|column| column.as_string_opt::<i32>())
                .collect(),
            files: files
                .filter_map(|column| column.as_binary_opt::<i32>())
                .collect(),
        }
    }

    /// Puts the floats of `rows` into `cells`, row by row.
    fn fill(&self, rows: Range<usize>, cells: &mut [f64]) {
        let width = self.floats.len();
        for (at, column) in self.floats.iter().enumerate() {
            for row in rows.clone() {
                // Never -0.0, which is the same number, and one NaN for all missing cells.
                cells[(row - rows.start) * width + at] = match column.is_valid(row) {
                    true => column.value(row) + 0.0,
                    false => f64::NAN,
                };
            }
        }
    }

    /// Adds a row with these floats to the `hash` of its other cells.
    fn hash(&self, row: usize, floats: &[f64], mut hash: u64) -> u64 {
        if !floats.is_empty() {
            hash = xxh3_64_with_seed(bytemuck::cast_slice(floats), hash);
        }
        let texts = self.texts.iter().map(|column| {
            let is_there = column.is_valid(row);
            is_there.then(|| column.value(row).as_bytes())
        });
        let files = self.files.iter().map(|column| {
            let is_there = column.is_valid(row);
            is_there.then(|| column.value(row))
        });
        for cell in texts.chain(files) {
            hash = match cell {
                Some(bytes) => xxh3_64_with_seed(bytes, hash),
                None => xxh3_64_with_seed(&[], !hash),
            };
        }
        hash
    }
}

/// Differences of rows that no model sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pipeline) enum UnseenDifferences {
    /// No difference, or rows that are not compared.
    None,
    /// Values of these columns.
    Columns(Vec<String>),
    /// Words for a missing value, and ways to write a number, in columns that a model sees.
    Notation,
}

impl UnseenDifferences {
    /// Returns true if rows can be equal to a model and differ.
    pub(in crate::pipeline) fn exist(&self) -> bool {
        *self != Self::None
    }
}

impl Build<'_> {
    /// Differences of rows that no model sees. None where rows are compared by an image or a document alone, or samples are
    /// windows of them.
    pub(in crate::pipeline) fn unseen_differences(
        &self,
        artefact: &TransformArtefact,
        layout: &Layout,
    ) -> UnseenDifferences {
        let has_columns = matches!(layout, Layout::Dense { .. } | Layout::Multi { .. });
        if !has_columns || self.sequence().is_some() {
            return UnseenDifferences::None;
        }
        let columns = self.unseen_columns(artefact);
        if !columns.is_empty() {
            UnseenDifferences::Columns(columns)
        } else if self.differ_in_notation(artefact) {
            UnseenDifferences::Notation
        } else {
            UnseenDifferences::None
        }
    }

    /// Returns true if duplicates are dropped, and rows may differ in how their features are written alone.
    fn differ_in_notation(&self, artefact: &TransformArtefact) -> bool {
        let config = &self.spec.config;
        let is_text = |name: &str| {
            let mut columns = self.input.columns.iter();
            columns.any(|column| column.name == name && column.r#type == ColumnType::Utf8)
        };
        let mut inputs = artefact.inputs.iter();
        let has_words = !config.null_values.is_empty() || !config.missing_values.is_empty();
        config.dedup == DedupMode::Exact
            && (has_words
                || inputs.any(|input| input.kind == InputKind::Numeric && is_text(&input.name)))
    }

    /// Columns that make rows different and that no model sees.
    fn unseen_columns(&self, artefact: &TransformArtefact) -> Vec<String> {
        let config = &self.spec.config;
        let is_seen = |name: &str| {
            let mut inputs = artefact.inputs.iter();
            let mut contents = self.spec.payloads();
            let mut beside = self.spec.images().into_iter().flat_map(Images::beside);
            config.is_target(name)
                || inputs.any(|input| input.name == name)
                || contents.any(|content| content.column == name)
                || beside.any(|(column, _)| column == name)
        };
        let columns = self.input.columns.iter().filter(|column| {
            column.r#type != ColumnType::Null
                && conflicts::is_content(config, &column.name)
                && config.split.column() != Some(&column.name)
                && !is_seen(&column.name)
        });
        columns.map(|column| column.name.clone()).collect()
    }

    /// Warns of rows of validation and test that equal training rows.
    pub(in crate::pipeline) async fn equal_rows(
        &self,
        rows: EqualRows,
        differences: UnseenDifferences,
    ) -> Result<Option<Warning>, Error> {
        if !rows.is_asked() {
            return Ok(None);
        }
        let found = tokio::task::spawn_blocking(move || rows.found()).await;
        let (equal, is_sample) = found?;
        let mut columns = match differences {
            UnseenDifferences::None => return Ok(None),
            UnseenDifferences::Notation => {
                return Ok(warnings::equal_as_read(equal, is_sample));
            }
            UnseenDifferences::Columns(columns) => columns,
        };
        // Readings of series differ in these.
        if let Some(series) = &self.spec.series {
            columns.retain(|name| !series.is_time(name) && !series.entity.contains(name));
        }
        let keeps_copies = self.spec.config.dedup == DedupMode::None;
        let ignored = &self.spec.config.dedup_ignore;
        Ok(warnings::equal_rows(
            equal,
            (&columns, ignored),
            (is_sample, keeps_copies),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_sample_are_equal_to_all_that_they_equal() {
        let applied = Applied {
            x: Vec::new(),
            y: None,
            bad: Vec::new(),
            infinite: std::collections::BTreeMap::new(),
            capped: std::collections::BTreeMap::new(),
            unknown: std::collections::BTreeMap::new(),
        };
        let spread = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut rows = EqualRows::new(Some(MOST_ROWS * 3));
        rows.add(
            Split::Train,
            &(0..40_000).map(spread).collect::<Vec<_>>(),
            &applied,
        );
        rows.add(
            Split::Test,
            &(36_000..44_000).map(spread).collect::<Vec<_>>(),
            &applied,
        );
        let ([validation, (equal, of)], is_sample) = rows.found();
        assert_eq!((validation, is_sample), ((0, 0), true));
        assert!(
            of.abs_diff(2000) < 100 && equal.abs_diff(1000) < 80,
            "{equal} of {of}"
        );
    }

    #[test]
    fn rows_that_cannot_be_used_equal_nothing() {
        let applied = Applied {
            x: Vec::new(),
            y: None,
            bad: vec![(1, "missing_value", String::new())],
            infinite: std::collections::BTreeMap::new(),
            capped: std::collections::BTreeMap::new(),
            unknown: std::collections::BTreeMap::new(),
        };
        let mut rows = EqualRows::new(Some(10));
        rows.add(Split::Train, &[1, 2, 3], &applied);
        rows.add(Split::Validation, &[3, 1, 2, 2], &applied);
        let (equal, is_sample) = rows.found();
        // The second row of each batch is rejected.
        assert_eq!((equal, is_sample), ([(1, 3), (0, 0)], false));
        assert!(!EqualRows::new(None).is_asked());
    }
}
