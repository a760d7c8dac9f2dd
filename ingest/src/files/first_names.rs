//! Names in the first records of a file, which are compared with the landed columns.

use std::collections::HashSet;

use feedline_readers::{
    file_bytes::{Begin, FileBytes},
    file_format::Kind,
    notices::Notices,
    rows::{self, Layout, Rows},
    value::Value,
};

use crate::{
    csv_header::{has_header, header_of},
    file_change::Policy,
};

/// Number of records of NDJSON whose keys are compared.
const RECORDS: usize = 100;

/// Names in the first records of a file that is read from its beginning.
#[derive(Debug)]
pub(super) enum FirstNames {
    /// None are compared.
    Unknown,
    /// Names in the header of CSV.
    Header(Vec<String>),
    /// Keys of the first records of NDJSON.
    Keys(Vec<String>),
    /// NDJSON whose keys are not compared.
    Lines,
}

impl FirstNames {
    /// Returns the names in `file`, which `rows` are the records of.
    ///
    /// # Errors
    /// Those of the reader.
    pub(super) fn of(
        rows: &mut dyn Rows,
        file: &FileBytes,
        layout: &Layout,
        policy: Policy,
    ) -> Result<Self, String> {
        Ok(match layout.kind {
            Kind::Ndjson if policy.compares_keys => Self::Keys(first_keys(file, layout)?),
            Kind::Ndjson => Self::Lines,
            _ if has_header(layout) => Self::Header(header_of(rows, layout)?),
            _ => Self::Unknown,
        })
    }

    /// Returns true for a file without records that may have lost them: one without the header that
    /// CSV has, or one of NDJSON.
    pub(super) fn are_missing(&self) -> bool {
        match self {
            Self::Unknown => false,
            Self::Header(names) => names.is_empty(),
            Self::Keys(_) | Self::Lines => true,
        }
    }
}

/// Keys of the first records of a file of NDJSON.
fn first_keys(file: &FileBytes, layout: &Layout) -> Result<Vec<String>, String> {
    // The records are read again to land, and what is decided about them is noted then.
    let layout = Layout {
        notices: Notices::default(),
        ..layout.clone()
    };
    let mut rows = rows::open::open(file, None, &layout, Begin::default(), 0)?;
    let (mut keys, mut seen) = (Vec::new(), HashSet::new());
    for _ in 0..RECORDS {
        let Ok(Some(record)) = rows.next() else { break };
        if let Some(Value::Object(fields)) = record.into_value() {
            let new = fields.into_iter().map(|(key, _)| key);
            keys.extend(new.filter(|key| seen.insert(key.clone())));
        }
    }
    Ok(keys)
}
