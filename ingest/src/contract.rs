//! The contract of a source: which columns it has, and what happens to a value that does not fit its column.
//!
//! The first value that is not null decides a column's type. After that a value either fits, is converted without loss
//! (counted), makes a new version of the schema, or is in conflict:
//!
//! | column | fits | converted | new version | conflict |
//! |---|---|---|---|---|
//! | `Null` | null | | any other value decides the type | |
//! | `Bool` | boolean | | | everything else |
//! | `Int64` | integer | `3.0`, text `"12"` | other floats: `Float64` | everything else |
//! | `Float64` | float | integer up to 2^53, text `"1.50"` | | everything else |
//! | `Utf8` | text | number or boolean to its JSON text | | list, object |
//! | `Json` | list, object | | | everything else |
//! | `Binary` | bytes | | | everything else |
//!
//! Null fits everywhere. Text converts to a number only if the number says the same: not `"012"`, `"12k"` or one with
//! more digits than a float holds. A cell (text without a type) is read as what it looks like, and stays as written in
//! a text column. An integer column becomes a float column unless this batch has landed an integer beyond 2^53 in it
//! (then it is a conflict); integers of earlier batches stay exact in their own files.
//!
//! `widen` turns a conflict between a scalar and a scalar column into a new version with a wider column, `Float64` if that
//! holds both and otherwise `Utf8`; no type holds a scalar beside a list, an object or bytes, so such a record is set aside. `freeze` allows new columns and undecided
//! ones to be decided, nothing else.
//!
//! All decisions of a batch are made before any of it is written, in the order of its records, and a record that is set
//! aside leaves no trace in the schema. The last schema of the batch applies to its whole file.

use std::collections::HashMap;

use feedline_schemas::{
    config::{ContractConfig, TypeContract},
    ids::SchemaVersion,
    record::{Column, ColumnType, RecordSchema, system},
};

use crate::{
    flatten::Leaf,
    json,
    value::{Value, shorten},
};

/// Integers up to this are exact as floats.
const MAX_EXACT: u64 = 1 << 53;

/// Why a record is set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// A fixed word, counted in the log.
    pub reason: &'static str,
    /// Column; empty when it is about the record as a whole.
    pub path: String,
    /// What exactly.
    pub detail: String,
}

/// What becomes of a record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It lands, with these cells: index of the column, value. A value that was nulled is absent.
    Land {
        /// Cells that are not null.
        cells: Vec<(usize, Value)>,
        /// Columns in which a value was replaced by null.
        nulled: Vec<usize>,
    },
    /// It is set aside.
    Reject(Rejection),
    /// The contract is `freeze` and the run stops.
    Stop(Rejection),
}

/// The schema of a source while a batch is decided.
#[derive(Clone, Debug)]
pub(crate) struct Contract<'a> {
    config: &'a ContractConfig,
    columns: Vec<Column>,
    by_name: HashMap<String, usize>,
    /// Whether this batch landed an integer beyond 2^53 in the column.
    big: Vec<bool>,
}

/// What a value does to its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Fits,
    Becomes(ColumnType),
    Conflict,
}

impl<'a> Contract<'a> {
    /// Begins a batch with the schema of the one before; no columns at first.
    pub(crate) fn new(config: &'a ContractConfig, before: Option<&RecordSchema>) -> Self {
        let columns = before
            .map(|schema| schema.columns.clone())
            .unwrap_or_default();
        let by_name = columns
            .iter()
            .enumerate()
            .map(|(i, column)| (column.name.clone(), i))
            .collect();
        Self {
            config,
            big: vec![false; columns.len()],
            by_name,
            columns,
        }
    }

    /// The schema after the batch: the one before, or its next version if anything changed.
    pub(crate) fn into_schema(self, before: Option<&RecordSchema>) -> RecordSchema {
        let version = match before {
            None => SchemaVersion::new(1),
            Some(schema) if schema.columns == self.columns => schema.version,
            Some(schema) => schema.version.next(),
        };
        RecordSchema {
            version,
            columns: self.columns,
        }
    }

    /// Decides about a record, and takes over what it changes in the schema if it lands.
    pub(crate) fn admit(&mut self, leaves: Vec<Leaf>) -> Verdict {
        if let Err(rejection) = self.check_names(&leaves) {
            return Verdict::Reject(rejection);
        }
        let mut changes = Vec::new();
        let mut nulled = Vec::new();
        for (i, leaf) in leaves.iter().enumerate() {
            let Some(column) = self.by_name.get(&leaf.name).copied() else {
                continue;
            };
            match self.resolve(column, &leaf.value) {
                Fit::Fits => {}
                Fit::Becomes(r#type) => changes.push((column, r#type)),
                Fit::Conflict => {
                    let rejection = self.conflict(column, &leaf.value);
                    match self.config.types {
                        TypeContract::NullValue => nulled.push(i),
                        TypeContract::Freeze => return Verdict::Stop(rejection),
                        TypeContract::QuarantineRow | TypeContract::Widen => {
                            return Verdict::Reject(rejection);
                        }
                    }
                }
            }
        }
        for (column, r#type) in changes {
            self.columns[column].r#type = r#type;
        }
        self.land(leaves, &nulled)
    }

    fn land(&mut self, leaves: Vec<Leaf>, nulled_leaves: &[usize]) -> Verdict {
        let mut cells = Vec::with_capacity(leaves.len());
        let mut nulled = Vec::new();
        for (i, leaf) in leaves.into_iter().enumerate() {
            let column = self.column(leaf.name, &leaf.value);
            if nulled_leaves.contains(&i) {
                nulled.push(column);
            } else if leaf.value != Value::Null {
                self.big[column] |= self.columns[column].r#type == ColumnType::Int64
                    && integer(&leaf.value).is_some_and(|v| v.unsigned_abs() > MAX_EXACT);
                cells.push((column, leaf.value));
            }
        }
        Verdict::Land { cells, nulled }
    }

    /// Index of the column called `name`, made for `value` if it is new.
    fn column(&mut self, name: String, value: &Value) -> usize {
        if let Some(column) = self.by_name.get(&name) {
            return *column;
        }
        let index = self.columns.len();
        let field_id = self
            .columns
            .iter()
            .map(|column| column.field_id)
            .max()
            .unwrap_or_default()
            + 1;
        self.columns.push(Column {
            field_id,
            name: name.clone(),
            r#type: infer(value),
        });
        self.big.push(false);
        self.by_name.insert(name, index);
        index
    }

    fn check_names(&self, leaves: &[Leaf]) -> Result<(), Rejection> {
        if let Some(leaf) = leaves
            .iter()
            .find(|leaf| leaf.name.starts_with(system::PREFIX))
        {
            return Err(Rejection {
                reason: "reserved_key",
                path: leaf.name.clone(),
                detail: format!(
                    "column names that begin with `{}` are feedline's own",
                    system::PREFIX
                ),
            });
        }
        let most = self.config.max_columns as usize;
        let mut new = leaves
            .iter()
            .filter(|leaf| !self.by_name.contains_key(&leaf.name));
        match new.nth(most.saturating_sub(self.columns.len())) {
            None => Ok(()),
            Some(leaf) => Err(Rejection {
                reason: "too_many_columns",
                path: leaf.name.clone(),
                detail: format!(
                    "the source has {} columns, `contract.max_columns` is {most}",
                    self.columns.len()
                ),
            }),
        }
    }

    /// What `value` does to `column` under the contract's mode.
    fn resolve(&self, column: usize, value: &Value) -> Fit {
        let have = self.columns[column].r#type;
        let fit = match fit(have, value) {
            Fit::Becomes(ColumnType::Float64) if have == ColumnType::Int64 && self.big[column] => {
                Fit::Conflict
            }
            fit => fit,
        };
        match (fit, self.config.types) {
            (Fit::Becomes(_), TypeContract::Freeze) if have != ColumnType::Null => Fit::Conflict,
            (Fit::Conflict, TypeContract::Widen) => self.wider(column, value),
            (fit, _) => fit,
        }
    }

    /// A conflict under `widen`: the narrowest type that holds the scalars of `column` and `value`.
    fn wider(&self, column: usize, value: &Value) -> Fit {
        match self.columns[column].r#type {
            ColumnType::Int64 if !self.big[column] && float(value).is_some() => {
                Fit::Becomes(ColumnType::Float64)
            }
            ColumnType::Json | ColumnType::Binary => Fit::Conflict,
            _ if is_whole(infer(value)) => Fit::Conflict,
            _ => Fit::Becomes(ColumnType::Utf8),
        }
    }

    fn conflict(&self, column: usize, value: &Value) -> Rejection {
        let Column { name, r#type, .. } = &self.columns[column];
        Rejection {
            reason: "type_conflict",
            path: name.clone(),
            detail: format!(
                "column `{name}` is {}, the value is {} `{}`",
                noun(*r#type),
                value.kind(),
                shorten(&value.canonical(), 100)
            ),
        }
    }
}

fn noun(r#type: ColumnType) -> &'static str {
    match r#type {
        ColumnType::Null => "undecided",
        ColumnType::Bool => "boolean",
        ColumnType::Int64 => "integer",
        ColumnType::Float64 => "float",
        ColumnType::Utf8 => "text",
        ColumnType::Json => "JSON (lists or objects)",
        ColumnType::Binary => "bytes",
    }
}

/// Whether values of this type never become text.
fn is_whole(r#type: ColumnType) -> bool {
    matches!(r#type, ColumnType::Json | ColumnType::Binary)
}

/// The type a column gets from its first value.
fn infer(value: &Value) -> ColumnType {
    match value {
        Value::Null => ColumnType::Null,
        Value::Bool(_) => ColumnType::Bool,
        Value::Int(_) => ColumnType::Int64,
        Value::Float(_) => ColumnType::Float64,
        Value::Text(_) => ColumnType::Utf8,
        Value::List(_) | Value::Object(_) => ColumnType::Json,
        Value::Bytes(_) => ColumnType::Binary,
        Value::Cell(text) => infer(&read_cell(text)),
    }
}

/// What a cell looks like: boolean, integer, float or text. Spaces around do not matter.
fn read_cell(text: &str) -> Value {
    match text.trim() {
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        trimmed => json::number(trimmed).unwrap_or_else(|| Value::Text(text.to_owned())),
    }
}

fn fit(column: ColumnType, value: &Value) -> Fit {
    if *value == Value::Null {
        return Fit::Fits;
    }
    let fits = |fits: bool| if fits { Fit::Fits } else { Fit::Conflict };
    match column {
        ColumnType::Null => Fit::Becomes(infer(value)),
        ColumnType::Bool => fits(boolean(value).is_some()),
        ColumnType::Int64 if integer(value).is_some() => Fit::Fits,
        ColumnType::Int64 if infer(value) == ColumnType::Float64 => {
            Fit::Becomes(ColumnType::Float64)
        }
        ColumnType::Int64 => Fit::Conflict,
        ColumnType::Float64 => fits(float(value).is_some()),
        ColumnType::Utf8 => fits(!is_whole(infer(value))),
        ColumnType::Json | ColumnType::Binary => fits(infer(value) == column),
    }
}

/// The value as a boolean column holds it.
pub(crate) fn boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::Cell(text) => match read_cell(text) {
            Value::Bool(value) => Some(value),
            _ => None,
        },
        _ => None,
    }
}

/// The value as an integer column holds it.
pub(crate) fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int(value) => Some(*value),
        Value::Float(value) => whole(*value),
        Value::Text(text) => match json::number(text) {
            Some(Value::Int(value)) => Some(value),
            _ => None,
        },
        Value::Cell(text) => match read_cell(text) {
            Value::Int(value) => Some(value),
            Value::Float(value) => whole(value),
            _ => None,
        },
        _ => None,
    }
}

/// The value as a float column holds it.
pub(crate) fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Int(value) => exact(*value),
        Value::Float(value) => Some(*value),
        Value::Text(text) => match json::number(text)? {
            Value::Int(value) => exact(value),
            Value::Float(value) => {
                (decimal(text) == decimal(&format!("{value:e}"))).then_some(value)
            }
            _ => None,
        },
        Value::Cell(text) => match read_cell(text) {
            Value::Int(value) => exact(value),
            Value::Float(value) => Some(value),
            _ => None,
        },
        _ => None,
    }
}

/// The value as a text column holds it.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) | Value::Cell(text) => Some(text.clone()),
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => Some(value.canonical()),
        _ => None,
    }
}

/// The value as a column of bytes holds it.
pub(crate) fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Bytes(bytes) => Some(bytes.clone()),
        _ => None,
    }
}

/// Whether a landed value was converted to get into a column of type `column`. A cell has no type to convert from.
pub(crate) fn is_coerced(column: ColumnType, value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Cell(_)) && infer(value) != column
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the value is a whole number of at most 2^53"
)]
#[expect(
    clippy::float_cmp,
    reason = "whole numbers are equal to their own truncation, exactly"
)]
fn whole(value: f64) -> Option<i64> {
    (value.trunc() == value && value.abs() <= 9_007_199_254_740_992.0).then_some(value as i64)
}

#[expect(clippy::cast_precision_loss, reason = "integers up to 2^53 are exact")]
fn exact(value: i64) -> Option<f64> {
    (value.unsigned_abs() <= MAX_EXACT).then_some(value as f64)
}

/// A decimal number as sign, digits without zeros at either end, and the power of ten of the first digit's place.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (negative, mantissa) = mantissa
        .strip_prefix('-')
        .map_or((false, mantissa), |rest| (true, rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let leading = digits.len() - significant.len();
    let significant = significant.trim_end_matches('0');
    if significant.is_empty() {
        return Some((negative, String::new(), 0));
    }
    let point = i64::try_from(whole.len()).ok()? - i64::try_from(leading).ok()?;
    Some((
        negative,
        significant.to_owned(),
        exponent.parse::<i64>().ok()? + point,
    ))
}

#[cfg(test)]
mod tests {
    use ColumnType::{Binary, Bool, Float64, Int64, Json, Null, Utf8};
    use TypeContract::{Freeze, NullValue, QuarantineRow, Widen};

    use super::*;
    use crate::flatten::flatten;

    fn config(types: TypeContract) -> ContractConfig {
        ContractConfig {
            types,
            ..ContractConfig::default()
        }
    }

    fn leaves(record: &str) -> Vec<Leaf> {
        let Ok(Value::Object(entries)) = Value::parse(record.as_bytes()) else {
            panic!("{record}")
        };
        flatten(entries, 8)
    }

    /// Decides about values of column `v` one after another: `+` landed, `~` landed coerced, `0` nulled, `x` rejected,
    /// `!` stop; then the type of the column, with its final text for each landed value.
    fn check_values(
        types: TypeContract,
        values: impl IntoIterator<Item = Value>,
        verdicts: &str,
        r#type: ColumnType,
    ) {
        let config = config(types);
        let mut contract = Contract::new(&config, None);
        let mut landed = Vec::new();
        for value in values {
            landed.push(
                match contract.admit(vec![Leaf {
                    name: "v".into(),
                    value,
                }]) {
                    Verdict::Land { nulled, .. } if !nulled.is_empty() => Err('0'),
                    Verdict::Land { mut cells, .. } => {
                        Ok(cells.pop().map_or(Value::Null, |(_, value)| value))
                    }
                    Verdict::Reject(_) => Err('x'),
                    Verdict::Stop(_) => Err('!'),
                },
            );
        }
        let have = contract.columns[0].r#type;
        assert_eq!(have, r#type);
        let marks: String = landed
            .iter()
            .map(|landed| match landed {
                Ok(value) => {
                    let held = match have {
                        _ if *value == Value::Null => true,
                        Null => false,
                        Bool => boolean(value).is_some(),
                        Int64 => integer(value).is_some(),
                        Float64 => float(value).is_some(),
                        Utf8 => text(value).is_some(),
                        Json => matches!(value, Value::List(_) | Value::Object(_)),
                        Binary => bytes(value).is_some(),
                    };
                    assert!(
                        held,
                        "{value:?} was let into a column that ends as {have:?}"
                    );
                    if is_coerced(have, value) { '~' } else { '+' }
                }
                Err(mark) => *mark,
            })
            .collect();
        assert_eq!(marks, verdicts);
    }

    fn check(types: TypeContract, values: &str, verdicts: &str, r#type: ColumnType) {
        let Ok(Value::List(values)) = Value::parse(values.as_bytes()) else {
            panic!("{values}")
        };
        check_values(types, values, verdicts, r#type);
    }

    fn check_cells(cells: &[&str], verdicts: &str, r#type: ColumnType) {
        let cells = cells.iter().map(|cell| Value::Cell((*cell).to_owned()));
        check_values(QuarantineRow, cells, verdicts, r#type);
    }

    #[test]
    fn the_first_value_that_is_not_null_decides() {
        check(QuarantineRow, "[null]", "+", Null);
        check(QuarantineRow, "[null, true, 1]", "++x", Bool);
        check(QuarantineRow, "[null, 1]", "++", Int64);
        check(QuarantineRow, "[1.0, null]", "++", Float64);
        check(QuarantineRow, r#"["a", null]"#, "++", Utf8);
        check(QuarantineRow, "[[], {}, [1]]", "+++", Json);
    }

    #[test]
    fn bytes_are_a_column_of_their_own_in_every_mode() {
        let bytes = || Value::Bytes(vec![0, 255]);
        for types in [QuarantineRow, Widen] {
            let values = vec![Value::Null, bytes(), Value::Text("00ff".into()), bytes()];
            check_values(types, values, "++x+", Binary);
            check_values(types, vec![Value::Text("00ff".into()), bytes()], "+x", Utf8);
        }
    }

    #[test]
    fn lossless_values_are_converted_in_every_mode() {
        for types in [QuarantineRow, NullValue, Widen, Freeze] {
            check(types, r#"[1, "12", 3.0, "-7"]"#, "+~~~", Int64);
            check(types, r#"[1.5, 3, "2", "1.50", "6e2"]"#, "+~~~~", Float64);
            check(types, r#"["a", 1, 2.50, true]"#, "+~~~", Utf8);
        }
    }

    #[test]
    fn text_that_says_something_else_than_its_number_is_in_conflict() {
        check(
            QuarantineRow,
            r#"[1, "012", "12k", " 12", "", "1e3", "1.0"]"#,
            "+xxxxxx",
            Int64,
        );
        check(
            QuarantineRow,
            r#"[1.5, "0.10000000000000000001", "NaN", "9007199254740993"]"#,
            "+xxx",
            Float64,
        );
        check(
            QuarantineRow,
            r#"[1.5, "0.30000000000000004", "64321.10000000"]"#,
            "+~~",
            Float64,
        );
    }

    #[test]
    fn a_fraction_widens_an_integer_column_unless_frozen() {
        check(QuarantineRow, "[1, 2.5, 3]", "~+~", Float64);
        check(NullValue, "[1, 2.5, 3]", "~+~", Float64);
        check(Freeze, "[1, 2.5, 3]", "+!+", Int64);
    }

    #[test]
    fn integers_beyond_2_to_the_53_never_become_floats() {
        check(QuarantineRow, "[9007199254740993, 2.5]", "+x", Int64);
        check(
            QuarantineRow,
            "[2.5, 9007199254740993, 9007199254740992]",
            "+x~",
            Float64,
        );
        check(Widen, "[9007199254740993, 2.5]", "~~", Utf8);
        check(QuarantineRow, "[1, 9007199254740994.0]", "~+", Float64);
    }

    #[test]
    fn a_conflict_is_handled_by_contract() {
        check(QuarantineRow, r#"[1, "x", 2]"#, "+x+", Int64);
        check(NullValue, r#"[1, "x", 2]"#, "+0+", Int64);
        check(Freeze, r#"[1, "x", 2]"#, "+!+", Int64);
        check(Widen, r#"[1, "x", 2.5, true]"#, "~+~~", Utf8);
        check(Widen, r#"[1, "1.5"]"#, "~~", Float64);
        check(Widen, "[true, 1]", "~~", Utf8);
        check(Widen, "[1, [1], 2]", "+x+", Int64);
        check(Widen, "[[1], 1]", "+x", Json);
    }

    #[test]
    fn cells_are_read_as_what_they_look_like_and_kept_as_written_in_text() {
        check_cells(&["880", "880.5", "1e3", " 7 "], "++++", Float64);
        check_cells(&["1", "x"], "+x", Int64);
        check_cells(&["a", "007", "1.50", "true"], "++++", Utf8);
        check_cells(&["007", "8"], "++", Utf8);
        check_cells(&["true", "False", "yes"], "++x", Bool);
        check_cells(&["0.1", "NaN"], "+x", Float64);
        check_cells(&["12345678901234567890"], "+", Utf8);
        assert_eq!(text(&Value::Cell("1.50 ".into())).unwrap(), "1.50 ");
    }

    #[test]
    fn a_rejected_record_leaves_no_trace_in_the_schema() {
        let config = config(QuarantineRow);
        let mut contract = Contract::new(&config, None);
        contract.admit(leaves(r#"{"a":1,"n":null}"#));
        let before = contract.columns.clone();
        let verdict = contract.admit(leaves(r#"{"new":1,"n":true,"a":"x"}"#));
        let Verdict::Reject(rejection) = verdict else {
            panic!("{verdict:?}")
        };
        assert_eq!(
            rejection.detail,
            r#"column `a` is integer, the value is text `"x"`"#
        );
        assert_eq!(
            (rejection.reason, rejection.path.as_str()),
            ("type_conflict", "a")
        );
        assert_eq!(contract.columns, before);
    }

    #[test]
    fn columns_evolve_up_to_their_cap() {
        let config = ContractConfig {
            max_columns: 3,
            ..config(Freeze)
        };
        let mut contract = Contract::new(&config, None);
        assert!(matches!(
            contract.admit(leaves(r#"{"a":1,"b":1}"#)),
            Verdict::Land { .. }
        ));
        let verdict = contract.admit(leaves(r#"{"c":1,"d":1}"#));
        assert!(
            matches!(
                verdict,
                Verdict::Reject(Rejection {
                    reason: "too_many_columns",
                    ..
                })
            ),
            "{verdict:?}"
        );
        assert!(matches!(
            contract.admit(leaves(r#"{"c":1}"#)),
            Verdict::Land { .. }
        ));
        assert_eq!(
            contract
                .columns
                .iter()
                .map(|c| c.field_id)
                .collect::<Vec<_>>(),
            [1, 2, 3]
        );
    }

    #[test]
    fn reserved_names_are_rejected() {
        let config = config(QuarantineRow);
        let verdict = Contract::new(&config, None).admit(leaves(r#"{"_feedline_seq":1}"#));
        assert!(
            matches!(
                verdict,
                Verdict::Reject(Rejection {
                    reason: "reserved_key",
                    ..
                })
            ),
            "{verdict:?}"
        );
    }

    #[test]
    fn the_version_moves_only_when_something_changed() {
        let config = config(QuarantineRow);
        let version = |before: Option<&RecordSchema>, record: &str| {
            let mut contract = Contract::new(&config, before);
            contract.admit(leaves(record));
            contract.into_schema(before)
        };
        let first = version(None, r#"{"a":null}"#);
        let second = version(Some(&first), r#"{"a":1}"#);
        let same = version(Some(&second), r#"{"a":"3"}"#);
        let third = version(Some(&same), r#"{"a":2.5}"#);
        assert_eq!(
            [&first, &second, &same, &third].map(|s| s.version.get()),
            [1, 2, 2, 3]
        );
        assert_eq!(third.columns[0].field_id, 1);
    }
}
