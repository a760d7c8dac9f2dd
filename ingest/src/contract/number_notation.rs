//! Cells in foreign notation: numbers with other separators, spelled-out missing values, and bytes.

use std::mem;

use feedline_readers::{
    image_signature::image_format,
    value::{Value, hex},
};
use feedline_schemas::{
    commit::Decisions,
    config::TypeContract,
    record::ColumnType,
    report::{WarnedColumn, Warning},
};

use super::{
    Contract, PERCENT_READ, declared,
    fit::{self, Fit},
    text_bytes,
};
use crate::flatten::Leaf;

/// Kind of decision: a spelling of a missing value that is read as missing.
const READ_AS_MISSING: &str = "read_as_missing";
/// Kind of decision: a cell of bytes that starts like an image file and lands as bytes.
const IMAGE_BYTES: &str = "image_as_bytes";
/// Kind of decision: such a cell that lands as text of hexadecimal digits.
const IMAGE_TEXT: &str = "image_as_text";
/// Codes of the warnings about them. A column keeps its type, so they hold until a reset.
pub(crate) const IMAGE_WARNINGS: [&str; 2] = [IMAGE_BYTES, IMAGE_TEXT];

/// Warnings about columns of bytes with images.
pub(crate) fn image_warnings(decisions: &Decisions) -> Vec<Warning> {
    let whats = [
        "cells that begin like image files land as bytes, for a dataset with `kind = \"images\"` and the column as `content`; \
         declare the column `bytes` if it is one of images",
        "cells that begin like image files land as text of hexadecimal digits, since the column is text already or most of \
         its cells are no images; to land bytes declare the column `bytes`, and where rows have landed run `feedline \
         ingest reset PIPELINE.toml SOURCE`, which re-reads everything",
    ];
    let codes = IMAGE_WARNINGS.iter().zip(whats);
    let told = codes.filter_map(|(code, what)| {
        let columns = decisions.get(*code)?;
        let names: Vec<&str> = columns.keys().map(String::as_str).collect();
        let message = format!("`{}`: {what}", names.join("`, `"));
        let warning = Warning::new(code, message).with_key("contract.column.<name>.type");
        let columns = names.iter().map(|name| WarnedColumn::new(name));
        Some(warning.with_columns(columns.collect()))
    });
    told.collect()
}

impl Contract<'_> {
    /// Converts cells for their columns. Returns the indices of the cells whose notation is invalid
    /// for numbers of this source.
    pub(super) fn translate(&mut self, leaves: &mut [Leaf], places: &[usize]) -> Vec<usize> {
        let mut unreadable = Vec::new();
        for (i, (leaf, place)) in leaves.iter_mut().zip(places).enumerate() {
            if let Value::ByteCell(bytes) = &mut leaf.value {
                let bytes = mem::take(bytes);
                leaf.value = self.bytes_or_text(&leaf.name, *place, bytes);
                continue;
            }
            let Value::Cell(text) = &leaf.value else {
                continue;
            };
            let column = self.type_at(&leaf.name, *place);
            let is_open = column == ColumnType::Null;
            if is_open || column.is_number() {
                match self.format.number(text) {
                    Some(number) if *number == **text => continue,
                    Some(number) => {
                        let is_zero = || number.parse::<f64>().is_ok_and(|value| value == 0.0);
                        if text.trim_end().ends_with('%') && !is_zero() {
                            let mark = (PERCENT_READ, leaf.name.clone(), String::new());
                            self.pending.push(mark);
                        }
                        leaf.value = Value::Cell(number.into_owned());
                        continue;
                    }
                    // A spelling of a missing value does not give a column its type.
                    None if is_open && !self.format.is_missing(text.trim()) => continue,
                    None => {}
                }
            } else if !is_of_cells(column) {
                continue;
            }
            if self.format.is_missing(text.trim()) {
                let sample = format!("`{}`", text.trim());
                self.pending
                    .push((READ_AS_MISSING, leaf.name.clone(), sample));
                leaf.value = Value::Null;
            } else if column.is_number() && fit::infer(&leaf.value).is_number() {
                unreadable.push(i);
            }
        }
        unreadable
    }

    /// Returns the type of the column at `place`, called `name`, or its planned type.
    fn type_at(&self, name: &str, place: usize) -> ColumnType {
        match self.columns.get(place).map(|column| column.r#type) {
            None | Some(ColumnType::Null) => declared(self.config, name)
                .or(self.planned.get(name).copied())
                .unwrap_or(ColumnType::Null),
            Some(have) => have,
        }
    }

    /// Converts a cell of bytes for its column. In a column without a type, an image file stays
    /// bytes. Where another type is declared, UTF-8 is text, and other bytes do not fit.
    fn bytes_or_text(&mut self, name: &str, place: usize, bytes: Vec<u8>) -> Value {
        let declared = declared(self.config, name);
        if declared.is_some_and(|declared| declared != ColumnType::Binary) {
            let text = String::from_utf8(bytes);
            return text.map_or_else(|other| Value::Bytes(other.into_bytes()), Value::Text);
        }
        let image = image_format(&bytes);
        let is_bytes = match self.type_at(name, place) {
            ColumnType::Null => image.is_some(),
            // Hexadecimal digits could be read as another value, such as a number.
            r#type => r#type != ColumnType::Utf8,
        };
        if let (None, false, None) = (image, is_bytes, declared) {
            let decision = text_bytes::decision_of(&bytes);
            let decision = decision.map(|(kind, sample)| (kind, name.to_owned(), sample));
            self.pending.extend(decision);
        }
        if let (Some(format), None) = (image, declared) {
            let kind = if is_bytes { IMAGE_BYTES } else { IMAGE_TEXT };
            let sample = format!("a {format} of {} bytes", bytes.len());
            self.pending.push((kind, name.to_owned(), sample));
        }
        match is_bytes {
            true => Value::Bytes(bytes),
            false => Value::Text(hex(&bytes)),
        }
    }

    /// Returns the type that the untyped column `name` gets from `value`.
    pub(super) fn first_type(&self, name: &str, value: &Value) -> ColumnType {
        let Some(planned) = self.planned.get(name).copied() else {
            return self.reading.infer(value);
        };
        match self.reading.fit(planned, value) {
            Fit::Becomes(wider) => wider,
            Fit::Conflict if self.rule(name).types == TypeContract::Widen => {
                match planned == ColumnType::Int64 && fit::is_code(value) {
                    true => ColumnType::Utf8,
                    false => planned.widest(self.reading.infer(value)),
                }
            }
            Fit::Fits | Fit::Conflict => planned,
        }
    }
}

/// Returns true for types, other than numbers, whose values are not just the text of their cells.
const fn is_of_cells(column: ColumnType) -> bool {
    matches!(column, ColumnType::Bool | ColumnType::Timestamp)
}
