//! Choice of the columns of an MDS dataset that are read.

use feedline_schemas::manifest::TargetKind;

use super::{
    super::{
        config::ColumnMap,
        names::{IMAGES, TARGETS, TOKENS, UNKNOWN_CLASSES},
        roles::is_never_feature,
    },
    encoding::{Encoding, Number},
};

#[derive(Debug)]
pub(super) enum MdsPayload {
    /// Columns, their number type and the elements of a row that each gives; and the sum of those.
    Dense(Vec<(usize, Number, usize)>, usize),
    Images(usize),
    /// Column and its encoding, and true for ids of 16 bits.
    Tokens(usize, Encoding, bool),
}

/// Columns by name.
pub(super) struct NamedColumns<'a> {
    pub(super) names: &'a [String],
    pub(super) encodings: &'a [Encoding],
}

impl NamedColumns<'_> {
    fn find(&self, name: &str) -> Result<usize, String> {
        self.names.iter().position(|n| n == name).ok_or_else(|| {
            format!(
                "it has no column `{name}`, it has `{}`",
                self.names.join("`, `")
            )
        })
    }

    pub(super) fn target(
        &self,
        map: &ColumnMap,
        asked: Option<TargetKind>,
    ) -> Result<Option<(usize, Number)>, String> {
        let scalar = |column: usize| match self.encodings[column] {
            Encoding::Scalar(number) => Some((column, number)),
            _ => None,
        };
        if asked == Some(TargetKind::None) {
            return Ok(None);
        }
        if let Some(name) = &map.y {
            let found = scalar(self.find(name)?);
            return found
                .map(Some)
                .ok_or_else(|| format!("the target `{name}` is not a number"));
        }
        let found = TARGETS
            .iter()
            .find_map(|name| scalar(self.find(name).ok()?));
        match (found, asked) {
            (None, Some(_)) => Err("it has no target column; name it in `columns.y`".into()),
            _ => Ok(found),
        }
    }

    pub(super) fn key(&self, name: &str) -> Result<(usize, Encoding), String> {
        let column = self.find(name)?;
        match &self.encodings[column] {
            Encoding::Scalar(number) if number.is_float() => {
                Err(format!("the key `{name}` is not an integer, text or bytes"))
            }
            encoding => Ok((column, encoding.clone())),
        }
    }

    pub(super) fn payload(
        &self,
        map: &ColumnMap,
        y: Option<usize>,
        key: Option<usize>,
    ) -> Result<MdsPayload, String> {
        if let Some(name) = &map.image {
            let column = self.find(name)?;
            return match self.encodings[column] {
                Encoding::Bytes { .. } => Ok(MdsPayload::Images(column)),
                _ => Err(format!("column `{name}` is not an encoded image or bytes")),
            };
        }
        if let Some(name) = &map.tokens {
            let column = self.find(name)?;
            return self
                .tokens(column)
                .ok_or_else(|| format!("column `{name}` is not an array of integers"));
        }
        if !map.x.is_empty() {
            let columns = map.x.iter().map(|name| self.numbers(self.find(name)?));
            return Ok(dense(columns.collect::<Result<_, _>>()?));
        }
        let is_image = |e: &Encoding| matches!(e, Encoding::Bytes { is_image: true });
        let named = |names: &[&str]| names.iter().find_map(|name| self.find(name).ok());
        let is_bytes = |column: &usize| matches!(self.encodings[*column], Encoding::Bytes { .. });
        let image = named(IMAGES).filter(is_bytes);
        if let Some(column) = image.or_else(|| self.encodings.iter().position(is_image)) {
            return Ok(MdsPayload::Images(column));
        }
        if let Some(tokens) = named(TOKENS).and_then(|column| self.tokens(column)) {
            return Ok(tokens);
        }
        let free = (0..self.names.len()).filter(|c| Some(*c) != y && Some(*c) != key);
        let columns: Vec<_> = free
            .filter(|column| !is_never_feature(&self.names[*column]))
            .filter_map(|column| self.numbers(column).ok())
            .collect();
        if columns.is_empty() {
            return Err("it has no numeric columns; name those to read in `columns`".into());
        }
        Ok(dense(columns))
    }

    fn tokens(&self, column: usize) -> Option<MdsPayload> {
        let encoding = &self.encodings[column];
        let number = match encoding {
            Encoding::Array {
                number,
                elements: None,
            } => *number,
            Encoding::Array {
                number: Some(number),
                elements: Some(1..),
            } => Some(*number),
            _ => return None,
        };
        if number.is_some_and(Number::is_float) {
            return None;
        }
        let is_short = matches!(number, Some(Number::U8 | Number::U16));
        Some(MdsPayload::Tokens(column, encoding.clone(), is_short))
    }

    fn numbers(&self, column: usize) -> Result<(usize, Number, usize), String> {
        let (number, width) = self.encodings[column].width().ok_or_else(|| {
            format!(
                "column `{}` is not a number or an array with a fixed type and shape",
                self.names[column]
            )
        })?;
        Ok((column, number, width))
    }
}

fn dense(columns: Vec<(usize, Number, usize)>) -> MdsPayload {
    let features = columns.iter().map(|(_, _, width)| width).sum();
    MdsPayload::Dense(columns, features)
}

pub(super) fn target(number: Number, asked: Option<TargetKind>) -> Result<TargetKind, String> {
    match asked {
        Some(TargetKind::Classification { .. }) if number.is_float() => {
            Err("its target is not an integer, so it is not a class".into())
        }
        Some(asked) => Ok(asked),
        None if number.is_float() => Ok(TargetKind::Regression),
        None => Ok(TargetKind::Classification {
            classes: UNKNOWN_CLASSES,
        }),
    }
}
