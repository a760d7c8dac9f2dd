//! `[source.for_each]`, checked, and the values that another source has landed.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use arrow::{
    array::{Array, AsArray},
    datatypes::{DataType, Int64Type},
};
use feedline_readers::{record::Record, value::Value};
use feedline_schemas::{
    commit::{DataFile, Ledger, Position},
    config::{ForEachConfig, SourceConfig},
    ids::{Hash128, Name},
};

use super::saved_list::REMOVED;
use crate::{
    context::Context,
    error::Error,
    landed_file,
    landing_folder::landing,
    log_entries::{Kept, LogEntries},
};

/// List of values to request, one after another.
#[derive(Clone, Debug)]
pub(super) struct Values {
    pub(super) param: String,
    /// Column that is added to records.
    pub(super) column: Option<String>,
    /// Strings and integers. Their texts are distinct, but for those of removed values.
    pub(super) values: Vec<Value>,
    /// Indices of values that have left the list.
    pub(super) removed: BTreeSet<u64>,
    /// False if the source of the values has not been read to its end: others may be missing.
    pub(super) is_complete: bool,
    /// Texts of landed values that cannot be requested.
    pub(super) unusable: Vec<String>,
    /// Source of the values.
    pub(super) source: Option<String>,
    /// The source that requests them.
    pub(super) name: String,
}

impl Values {
    /// Reads the values of `config`, or those that its source has landed. Some strings would change
    /// the URL path; they are dropped from the list of a source.
    ///
    /// # Errors
    /// [`Error::Config`], and those of [`crate::landed`].
    pub(super) async fn new(
        config: &SourceConfig,
        each: &ForEachConfig,
        context: &Context,
    ) -> Result<Self, Error> {
        check(config, each)?;
        let (mut unusable, mut is_complete) = (Vec::new(), true);
        let values = match (&each.source, &each.column) {
            (Some(source), Some(column)) => {
                let mut values;
                (values, is_complete) = read(source, column, context).await?;
                values.retain(|value| {
                    let text = text(value);
                    let is_usable = !is_misleading(config, each, &text);
                    if !is_usable {
                        unusable.push(text);
                    }
                    is_usable
                });
                values
            }
            _ => each.values.iter().cloned().map(Value::Text).collect(),
        };
        let column = each.r#as.clone().unwrap_or_else(|| each.param.clone());
        Ok(Self {
            param: each.param.clone(),
            column: Some(column).filter(|column| !column.is_empty()),
            values,
            removed: BTreeSet::new(),
            is_complete,
            unusable,
            source: each.source.as_ref().map(ToString::to_string),
            name: config.name.to_string(),
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.values.len() as u64
    }

    /// Returns true for a value that has left the list.
    pub(super) fn is_removed(&self, index: u64) -> bool {
        self.removed.contains(&index)
    }

    /// The first `count` values that are not requested any more, by index. One that has returned to
    /// the list is requested under another index.
    pub(super) fn left(&self, count: u64) -> BTreeMap<u64, String> {
        let current = (0..).zip(&self.values);
        let current = current.filter(|(index, _)| !self.is_removed(*index));
        let current: HashSet<String> = current.map(|(_, value)| text(value)).collect();
        let removed = self.removed.iter().filter(|index| **index < count);
        let removed = removed.filter_map(|index| Some((*index, self.text(*index)?)));
        removed
            .filter(|(_, text)| !current.contains(text))
            .collect()
    }

    /// The text of a value.
    pub(super) fn text(&self, index: u64) -> Option<String> {
        self.get(index).map(text)
    }

    fn get(&self, index: u64) -> Option<&Value> {
        usize::try_from(index)
            .ok()
            .and_then(|index| self.values.get(index))
    }

    /// The first values as a saved list has them: a line for each.
    pub(super) fn lines(&self, count: u64) -> String {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let lines = (0..).zip(&self.values).take(count).map(|(index, value)| {
            let text = value.canonical();
            match self.is_removed(index) {
                true => format!("{REMOVED}{text}"),
                false => text,
            }
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Hash of the first values.
    pub(super) fn hash(&self, count: u64) -> Hash128 {
        Hash128::of(self.lines(count).as_bytes())
    }

    /// Returns true if they begin with the values that a ledger has counted.
    pub(super) fn continues(&self, ledger: &Ledger) -> bool {
        ledger.values <= self.len() && ledger.values_hash == Some(self.hash(ledger.values))
    }

    /// Error about values that a ledger has counted and the saved lists do not have.
    pub(super) fn refuse(&self, ledger: &Ledger) -> Error {
        let values = match ledger.values {
            1 => "value that was read".to_owned(),
            count => format!("{count} values that were read, in their order"),
        };
        let reset = format!(
            "run `feedline ingest reset PIPELINE.toml {}`, which saves its landed data under another name, so that the next run reads all current values from their beginning",
            self.name
        );
        match &self.source {
            None => Error::config(
                "for_each.values",
                format!(
                    "does not begin with the {values}, and the landing folder has no list of them to compare with; restore the earlier list, with new values at its end only, and run once: that saves the list, and it may be changed afterwards; if one had left it before, {reset}"
                ),
            ),
            Some(source) => Error::config(
                "for_each.source",
                format!(
                    "the landed values of `{source}` do not begin with the {values}, and the landing folder has no list of them to compare with: its rows were superseded, deleted, re-read or reset since, or its landing folder is another one; {reset}"
                ),
            ),
        }
    }

    /// Adds the column with a value to records that have none of its name.
    pub(super) fn mark(&self, index: u64, records: &mut [Record]) {
        let (Some(column), Some(value)) = (&self.column, self.get(index)) else {
            return;
        };
        for record in records {
            if let Record::Json(json) = record {
                *record = Record::Value(json.value());
            }
            if let Record::Value(Value::Object(entries)) = record
                && entries.iter().all(|(key, _)| key != column)
            {
                entries.push((column.clone(), value.clone()));
            }
        }
    }
}

/// Refuses settings that cannot work.
fn check(config: &SourceConfig, each: &ForEachConfig) -> Result<(), Error> {
    let wrong = |key: &str, reason: &str| Err(Error::config(format!("for_each.{key}"), reason));
    if each.param.is_empty() {
        return wrong(
            "param",
            "is empty; set it to the query parameter of a value",
        );
    }
    match (each.values.is_empty(), &each.source, &each.column) {
        (false, None, None) => {}
        (true, Some(_), Some(column)) if !column.is_empty() => return Ok(()),
        (true, Some(_), _) => {
            return wrong(
                "column",
                "is missing; set it to the column of `for_each.source` with the values",
            );
        }
        (true, None, Some(_)) => {
            return wrong("source", "is missing; set it to the source with the column");
        }
        (true, None, None) => {
            return wrong(
                "values",
                "are missing; set some, or `for_each.source` and `for_each.column`",
            );
        }
        (false, ..) => {
            return wrong(
                "values",
                "cannot be combined with `for_each.source` or `for_each.column`; remove one of them",
            );
        }
    }
    let mut seen = HashSet::new();
    for value in &each.values {
        let shown = value.escape_debug();
        if !seen.insert(value) {
            return wrong("values", &format!("have `{shown}` twice; remove one"));
        }
        if value.is_empty() || is_misleading(config, each, value) {
            return wrong(
                "values",
                &format!("have `{shown}`, which cannot be requested; remove it"),
            );
        }
    }
    Ok(())
}

/// Returns true if a value in the place of `{param}` would change the path of the URL, or one in the
/// place of `{+param}` the segments around its own.
fn is_misleading(config: &SourceConfig, each: &ForEachConfig, value: &str) -> bool {
    let param = &each.param;
    let is_segment = config.url.contains(&format!("{{{param}}}"));
    let is_path = config.url.contains(&format!("{{+{param}}}"));
    is_segment && matches!(value, "." | "..")
        || is_path && value.split('/').any(|part| matches!(part, "" | "." | ".."))
}

pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        other => other.canonical(),
    }
}

/// Distinct values of a landed column of a source, in the order of their first rows; and false if the
/// source has not been read to its end, as after a reset.
async fn read(source: &Name, column: &str, context: &Context) -> Result<(Vec<Value>, bool), Error> {
    let folder = landing(&context.root, source);
    let mut entries = LogEntries::open(&folder, source, Kept::Newest).await?;
    let Some(last) = entries.last() else {
        tracing::info!(%source, "has landed no values yet");
        return Ok((Vec::new(), false));
    };
    let position = &last.state.position;
    let is_complete = matches!(position, Position::Done { .. }) && !position.has_failures();
    let columns = last.schema.columns.clone();
    if !columns.is_empty() && !columns.iter().any(|own| own.name == column) {
        let names = columns.iter().map(|own| own.name.as_str());
        let names: Vec<&str> = names.take(30).collect();
        let reason = format!(
            "`{source}` has no column `{column}`; it has: `{}`",
            names.join("`, `")
        );
        return Err(Error::config("for_each.column", reason));
    }
    let files = entries.fold(Vec::new, |files: &mut Vec<DataFile>, entry| {
        files.extend(entry.files.iter().cloned());
    });
    let (mut values, mut seen) = (Vec::new(), HashSet::new());
    for file in files.await? {
        for rows in landed_file::read(&folder, &file, &[column], None).await? {
            let Some(array) = rows.column_by_name(column) else {
                continue;
            };
            for value in of_column(array.as_ref(), source, column)? {
                let text = text(&value);
                if !text.is_empty() && seen.insert(Hash128::of(text.as_bytes())) {
                    values.push(value);
                }
            }
        }
    }
    Ok((values, is_complete))
}

/// Reason for refusing the values of a column of `source`, with the remedy. `found` is the name of its type.
pub(crate) fn describe_refused_type(source: &Name, column: &str, found: &str) -> String {
    format!(
        "`{column}` of the source `{source}` has the type {found}, and only values of the types text and int can be requested; name another column, or set `contract.column.{column:?}.type = \"text\"` in that source, and run `feedline ingest reset PIPELINE.toml {source}` if rows of it have landed"
    )
}

/// Name in `contract.column.<name>.type` of the type of a landed column.
const fn name_of(stored: &DataType) -> &'static str {
    match stored {
        DataType::Boolean => "bool",
        DataType::Float64 => "float",
        DataType::Decimal128(..) => "decimal",
        DataType::Timestamp(..) => "timestamp",
        DataType::Binary => "bytes",
        _ => "json",
    }
}

/// Non-null values of a column of `source`.
fn of_column(array: &dyn Array, source: &Name, column: &str) -> Result<Vec<Value>, Error> {
    match array.data_type() {
        DataType::Int64 => {
            let ints = array.as_primitive::<Int64Type>().iter().flatten();
            Ok(ints.map(Value::Int).collect())
        }
        DataType::Utf8 => {
            let texts = array.as_string::<i32>().iter().flatten();
            Ok(texts.map(|text| Value::Text(text.to_owned())).collect())
        }
        other => {
            let reason = describe_refused_type(source, column, name_of(other));
            Err(Error::config("for_each.column", reason))
        }
    }
}
