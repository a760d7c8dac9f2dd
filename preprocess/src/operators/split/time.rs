//! Splitting by the time in a column, in whatever order rows landed.
//!
//! Times are integers: microseconds of UTC, or the values of an integer column. The training split
//! ends before the first boundary, validation before the second; rows with equal times stay
//! together. Boundaries that follow from fractions are exact order statistics of the usable rows:
//! the last time of a split is that of the row at its rank.
//!
//! With a key, a group belongs to the split of its last row. Its rows before that split are
//! rejected: they would show a model the groups that it is measured on. So neither time nor a group
//! leaks.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, StringArray, UInt8Array},
    datatypes::{DataType, Int64Type, UInt64Type},
};
use datafusion::{
    common::{JoinType, ScalarValue},
    error::Result as EngineResult,
    functions_aggregate::expr_fn::max,
    functions_window::expr_fn::row_number,
    logical_expr::{Expr, ExprFunctionExt, cast, ident, lit},
    prelude::DataFrame,
};
use feedline_schemas::{
    config::{Embargo, SplitConfig},
    count::counted,
    manifest::Split,
    record::{ColumnType, RecordSchema},
};
use serde::{Deserialize, Serialize};

use super::code;
use crate::{
    Error,
    engine::scalar_function::RowFunction,
    operators::{split::range::Ends, time_series::Instant},
    schema::{
        landed_cells::typed,
        landed_columns::{MergedColumn, find},
        reject_reason::{self, Reason},
        system_columns,
    },
};

/// Characters of a value shown in a reject.
const SHOWN: usize = 120;

/// Columns the plan adds for a while.
const PLACE: &str = "_place";
const LAST: &str = "_last";
const LAST_GROUP: &str = "_last_group";

/// Rule that splits rows by time.
#[derive(Clone, Debug)]
pub(crate) struct TimeRule {
    column: MergedColumn,
    /// First times of validation and test; computed from the fractions if absent.
    until: Option<[i64; 2]>,
    ends: Ends,
    /// Units of time after a boundary that the embargo rejects.
    embargo: i64,
    has_key: bool,
}

impl TimeRule {
    /// By the times of column `name`.
    ///
    /// # Errors
    /// [`Error::Config`] for a column that is missing or holds no times, and for invalid
    /// boundaries.
    pub(super) fn resolve(
        name: &str,
        split: &SplitConfig,
        columns: &[MergedColumn],
    ) -> Result<Self, Error> {
        const KEY: &str = "dataset.split.time";
        let column = find(KEY, name, columns)?.clone();
        let is_integer = column.r#type == ColumnType::Int64;
        if !is_integer && !matches!(column.r#type, ColumnType::Timestamp | ColumnType::Utf8) {
            let reason = format!(
                "column `{name}` holds no times; name one of time stamps, of dates as text (ISO 8601), or of integers"
            );
            return Err(Error::config(KEY, reason));
        }
        let embargo = match (&split.embargo(), is_integer) {
            (Embargo::Count(0), _) => 0,
            (Embargo::Count(units), true) => i64::try_from(*units).unwrap_or(i64::MAX),
            (Embargo::Span(text), false) => Embargo::micros(text)
                .map_err(|reason| Error::config("dataset.split.embargo", reason))?,
            (_, true) => {
                let reason =
                    format!("column `{name}` holds integers, so it is a number of their unit");
                return Err(Error::config("dataset.split.embargo", reason));
            }
            (_, false) => {
                let reason = "it is a span of time here, such as `7d`";
                return Err(Error::config("dataset.split.embargo", reason));
            }
        };
        Ok(Self {
            until: until(split.until(), is_integer)?,
            ends: Ends::new(split),
            embargo,
            has_key: !split.key.is_empty(),
            column,
        })
    }

    /// Returns true if the given boundaries leave rows for this split; `None` without given
    /// boundaries.
    pub(crate) fn expects(&self, split: Split) -> Option<bool> {
        let [validation, test] = self.until?;
        Some(split != Split::Validation || validation < test)
    }

    /// The time of rows of a schema version, as an integer; null where it cannot be read.
    pub(crate) fn instant(&self, schema: &RecordSchema) -> Result<Expr, Error> {
        let cell = typed(schema, &self.column.name, self.column.r#type)?;
        Ok(match self.column.r#type {
            ColumnType::Int64 => cell,
            ColumnType::Timestamp => cast(cell, DataType::Int64),
            _ => Instant::iso().over(vec![cell]),
        })
    }

    /// Returns true if the times are those of column `name`.
    pub(crate) fn is_of(&self, name: &str) -> bool {
        self.column.name == name
    }

    /// Returns true if the times are strings of column `name`, for which another rule may have a
    /// format.
    pub(crate) fn is_text_of(&self, name: &str) -> bool {
        self.column.r#type == ColumnType::Utf8 && self.is_of(name)
    }

    /// Returns advice for rows whose strings this rule cannot read as times.
    pub(crate) fn advice(&self) -> Option<String> {
        (self.column.r#type == ColumnType::Utf8).then(|| {
            format!(
                "texts are read as ISO 8601 (`2024-01-31T08:30:00Z`): where `{}` is written otherwise, say how with \
                 `contract.dates` of its source before it lands, such as [\"%d/%m/%Y\"], or with `dataset.series.format` where \
                 it is the time of series; else correct the source or raise the limit",
                self.column.name
            )
        })
    }

    /// The reason that a row of a schema version has already, if any, or that it has no time, which is `instant`.
    pub(crate) fn judged(
        &self,
        reject: Expr,
        instant: Expr,
        schema: &RecordSchema,
    ) -> Result<Expr, Error> {
        let cell = typed(schema, &self.column.name, self.column.r#type)?;
        // A column of any other type already holds times.
        let landed = match self.column.r#type {
            ColumnType::Utf8 => cell,
            _ => lit(ScalarValue::Utf8(None)),
        };
        let at = self.column.name.clone();
        Ok(Timeless { at }.over(vec![reject, instant, landed]))
    }

    /// `rows` with their splits, and without their times.
    pub(crate) async fn split(&self, rows: DataFrame) -> Result<DataFrame, Error> {
        let borders = match self.until {
            Some(starts) => Borders {
                starts,
                embargo: self.embargo,
            },
            None => self.found(&rows).await?,
        };
        tracing::info!(column = %self.column.name, borders = ?borders.starts, "rows are split by time");
        let names: Vec<String> = rows
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .filter(|name| name != system_columns::TIME)
            .collect();
        let (rows, last) = match self.has_key {
            true => (with_last(rows)?, LAST),
            false => (rows, system_columns::TIME),
        };
        let columns = names.iter().map(|name| match name.as_str() {
            system_columns::SPLIT => ByTime(borders).over(vec![ident(last)]).alias(name),
            system_columns::REJECT => {
                let arguments = vec![ident(name), ident(system_columns::TIME), ident(last)];
                AfterBorder(borders).over(arguments).alias(name)
            }
            name => ident(name),
        });
        Ok(rows.select(columns.collect::<Vec<_>>())?)
    }

    /// Boundaries computed from the fractions over the usable rows.
    async fn found(&self, rows: &DataFrame) -> Result<Borders, Error> {
        let usable = rows
            .clone()
            .filter(ident(system_columns::REJECT).is_null())?;
        let times = usable.select(vec![ident(system_columns::TIME)])?;
        let ends = self.ends.among(times.clone().count().await? as u64);
        let place = row_number()
            .order_by(vec![ident(system_columns::TIME).sort(true, false)])
            .build()?
            .alias(PLACE);
        let at_ends = ident(PLACE)
            .eq(lit(ends[0]))
            .or(ident(PLACE).eq(lit(ends[1])));
        let mut starts = [i64::MIN; 2];
        for batch in times
            .window(vec![place])?
            .filter(at_ends)?
            .collect()
            .await?
        {
            let times = batch.column(0).as_primitive::<Int64Type>();
            let places = batch.column(1).as_primitive::<UInt64Type>();
            for row in 0..batch.num_rows() {
                for (start, _) in starts
                    .iter_mut()
                    .zip(ends)
                    .filter(|(_, end)| *end == places.value(row))
                {
                    *start = times.value(row).saturating_add(1);
                }
            }
        }
        Ok(Borders {
            starts,
            embargo: self.embargo,
        })
    }
}

/// The rows, each with the last time of its group.
fn with_last(rows: DataFrame) -> Result<DataFrame, Error> {
    let usable = rows
        .clone()
        .filter(ident(system_columns::REJECT).is_null())?;
    let last = usable
        .aggregate(
            vec![ident(system_columns::GROUP)],
            vec![max(ident(system_columns::TIME)).alias(LAST)],
        )?
        .select(vec![
            ident(system_columns::GROUP).alias(LAST_GROUP),
            ident(LAST),
        ])?;
    // The side that comes first is held in memory: 24 bytes for each group.
    Ok(last.join(
        rows,
        JoinType::Right,
        &[LAST_GROUP],
        &[system_columns::GROUP],
        None,
    )?)
}

/// Advice where the split rule rejects most of the rows that a split lacks; `None` if it rejects
/// none.
pub(crate) fn advice_on(left_out: &BTreeMap<String, u64>) -> Option<&'static str> {
    let rows = |reason: &str| left_out.get(reason).copied().unwrap_or(0);
    match (
        rows(reject_reason::GROUP_STRADDLES),
        rows(reject_reason::EMBARGO),
    ) {
        (0, 0) => None,
        (groups, embargo) if groups > embargo => Some(
            "a group of `dataset.split.key` belongs to the split of its last row, and its rows before that split are left \
             out: name a key whose groups end sooner, or leave it out",
        ),
        _ => Some(
            "`dataset.split.embargo` leaves out the rows next to a boundary: shorten it, move the boundaries, or land more rows",
        ),
    }
}

/// Reads the two boundaries of the configuration.
fn until(borders: &[String], is_integer: bool) -> Result<Option<[i64; 2]>, Error> {
    let fault = |reason: String| Error::config("dataset.split.until", reason);
    let read = |bound: &String| match is_integer {
        true => bound
            .trim()
            .parse()
            .map_err(|_| fault(format!("`{bound}` is no integer, as the times are"))),
        false => Instant::iso().of_text(bound).ok_or_else(|| {
            fault(format!(
                "`{bound}` is no time; write it as `2024-01-01` or `2024-01-01T00:00:00Z`"
            ))
        }),
    };
    match borders {
        [] => Ok(None),
        [validation, test] => {
            let [validation, test] = [read(validation)?, read(test)?];
            if validation > test {
                let reason = "the test split begins before the validation split does; write the earlier border first";
                return Err(fault(reason.into()));
            }
            Ok(Some([validation, test]))
        }
        other => Err(fault(format!(
            "it has {}, and takes two: where validation and where test begin (twice the same for no validation)",
            counted(other.len() as u64, "boundary")
        ))),
    }
}

/// Reason to reject a row, from its earlier reason, if any, its time, and the time as it landed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Timeless {
    /// Column of the time.
    at: String,
}

impl RowFunction for Timeless {
    const NAME: &'static str = "feedline_timeless";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> EngineResult<ArrayRef> {
        let (reasons, times) = (columns[0].as_string::<i32>(), &columns[1]);
        let landed = columns[2].as_string::<i32>();
        let reason = |row: usize| {
            if reasons.is_valid(row) {
                return Some(reasons.value(row).to_owned());
            }
            let shown = match landed.is_valid(row) {
                true => format!(
                    "`{}` is no time of ISO 8601; name its format in `contract.dates` of its source, or in `dataset.series.format`",
                    landed.value(row).chars().take(SHOWN).collect::<String>()
                ),
                false => "it has no time".to_owned(),
            };
            let reason = Reason {
                reason: reject_reason::NO_SPLIT.to_owned(),
                column: self.at.clone(),
                value: shown,
            };
            times.is_null(row).then(|| reason.to_json())
        };
        Ok(Arc::new((0..rows).map(reason).collect::<StringArray>()))
    }
}

/// Boundaries between splits in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Borders {
    /// First instants that are validation's and test's.
    starts: [i64; 2],
    embargo: i64,
}

impl Borders {
    /// The split of an instant, and whether it is too near to the one before.
    fn split_of(self, time: i64) -> (Split, bool) {
        let [validation, test] = self.starts;
        let (split, start) = match time {
            _ if time < validation => return (Split::Train, false),
            _ if time < test => (Split::Validation, validation),
            _ => (Split::Test, test),
        };
        (split, time.saturating_sub(start) < self.embargo)
    }
}

/// Split of rows by the time that decides it; the first split for rows without a time, which are
/// rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ByTime(Borders);

impl RowFunction for ByTime {
    const NAME: &'static str = "feedline_split_by_time";
    const RETURNS: DataType = DataType::UInt8;

    fn call(&self, columns: &[ArrayRef], _: usize) -> EngineResult<ArrayRef> {
        let times = columns[0].as_primitive::<Int64Type>().iter();
        let split = |time: Option<i64>| time.map_or(Split::Train, |time| self.0.split_of(time).0);
        let codes = times.map(|time| code(split(time)));
        Ok(Arc::new(UInt8Array::from_iter_values(codes)))
    }
}

/// Reason to reject a row, from its earlier reason, if any, its time, and the last time of its
/// group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct AfterBorder(Borders);

impl RowFunction for AfterBorder {
    const NAME: &'static str = "feedline_behind_time";
    const RETURNS: DataType = DataType::Utf8;

    fn call(&self, columns: &[ArrayRef], rows: usize) -> EngineResult<ArrayRef> {
        let reasons = columns[0].as_string::<i32>();
        let [times, lasts] = [1, 2].map(|i: usize| columns[i].as_primitive::<Int64Type>());
        let reason = |row: usize| {
            if reasons.is_valid(row) {
                return Some(reasons.value(row).to_owned());
            }
            let (own, near) = self.0.split_of(times.value(row));
            let group = self.0.split_of(lasts.value(row)).0;
            let (reason, value) = if own < group {
                (
                    reject_reason::GROUP_STRADDLES,
                    format!(
                        "a row of the {own} split whose group has its last in the {group} split"
                    ),
                )
            } else if near {
                (
                    reject_reason::EMBARGO,
                    format!("among the first rows of the {own} split"),
                )
            } else {
                return None;
            };
            let reason = Reason {
                reason: reason.to_owned(),
                column: String::new(),
                value,
            };
            Some(reason.to_json())
        };
        Ok(Arc::new((0..rows).map(reason).collect::<StringArray>()))
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::SplitBy;

    use super::*;

    #[test]
    fn a_border_is_the_first_instant_of_its_split_and_the_embargo_begins_there() {
        let borders = Borders {
            starts: [10, 20],
            embargo: 3,
        };
        let splits: String = (7..26)
            .map(|time| match borders.split_of(time) {
                (Split::Train, false) => 't',
                (Split::Validation, false) => 'v',
                (Split::Test, false) => 'e',
                (Split::Train, true) => '!',
                (_, true) => '-',
            })
            .collect();
        assert_eq!(splits, "ttt---vvvvvvv---eee");
    }

    #[test]
    fn instants_at_the_ends_of_time_are_no_overflow() {
        let borders = Borders {
            starts: [i64::MIN, i64::MAX],
            embargo: i64::MAX,
        };
        assert_eq!(borders.split_of(i64::MIN), (Split::Validation, true));
        assert_eq!(borders.split_of(i64::MAX), (Split::Test, true));
    }

    #[test]
    fn rows_and_borders_are_read_as_series_read_a_time_and_are_utc_without_an_offset() {
        let split = |border: &str| SplitConfig {
            by: SplitBy::Time {
                column: "at".to_owned(),
                until: vec![border.to_owned(); 2],
                embargo: Embargo::default(),
            },
            ..SplitConfig::default()
        };
        let columns = [MergedColumn {
            name: "at".into(),
            r#type: ColumnType::Utf8,
        }];
        let read = |text: &str| {
            let rule = TimeRule::resolve("at", &split(text), &columns);
            rule.ok().map(|rule| rule.until.map(|[border, _]| border))
        };
        let row = |text: &str| Instant::iso().of_text(text);
        for text in [
            "2024-02-29T12:00:00Z",
            "2024-02-29T12:00Z",
            "2024-02-29T12:00",
            "2024-02-29T12",
            "20240229T120000",
            "2024-02-29 12:00:00",
            "2024-02-29T12:00:00,000",
            "2024-02-29T13:00:00+01:00",
            "2024-02-29T13:00:00+0100",
            "2024-02-29T13:00:00+01",
            "2024-02-29 13:00:00 +01",
            "2024-02-29 12:00:00 UTC",
            " 2024-02-29T12:00:00 ",
        ] {
            assert_eq!(row(text), Some(1_709_208_000_000_000), "{text}");
            assert_eq!(read(text), Some(row(text)), "{text}");
        }
        assert_eq!(row("1970-01-02"), Some(86_400_000_000));
        let last = Some(253_402_214_400_000_000);
        assert_eq!((row("9999-12-31"), read("9999-12-31")), (last, Some(last)));
        for bad in [
            "",
            "noon",
            "2024-13-01",
            "2023-02-29",
            "2024-02-29T12:00:60Z",
        ] {
            assert_eq!((row(bad), read(bad)), (None, None), "{bad}");
        }
    }

    #[test]
    fn borders_are_two_and_in_order() {
        let texts = |borders: &[&str]| borders.iter().map(|b| (*b).to_owned()).collect::<Vec<_>>();
        assert_eq!(until(&[], false).unwrap(), None);
        assert_eq!(until(&texts(&["3", "9"]), true).unwrap(), Some([3, 9]));
        for (borders, is_integer, part) in [
            (&["2024-01-01"][..], false, "takes two"),
            (&["2024-01-01", "soon"], false, "`soon` is no time"),
            (&["1", "2024"], false, "`1` is no time"),
            (&["2024-01-01", "5"], true, "no integer"),
            (&["9", "3"], true, "earlier border first"),
        ] {
            let message = until(&texts(borders), is_integer).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
