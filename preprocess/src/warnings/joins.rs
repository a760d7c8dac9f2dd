//! Warnings of joins in which rows find no row of the joined source.

use feedline_schemas::{count::counted, record::ColumnType, report::Warning};

use super::{
    message::{GROUPS, first_of, percent, share, warning},
    spelling::{difference, folded, list_alike},
};
use crate::{
    operators::join::unmatched::MissedKey,
    schema::landed_columns::{shown, values_of},
};

/// Fraction of the rows below which those that find a row of the joined source are few.
const FEW: f64 = 0.1;

/// Number of new rows below which none of them may find a row by chance.
const FEW_ROWS: u64 = 10;

/// Probability of that, by the rows of the dataset, below which it is a warning.
const CHANCE: f64 = 0.01;

/// Rows of a join that found none, and why.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnmatchedRows<'a> {
    pub(crate) source: &'a str,
    /// Columns that are compared: of the rows, and of the source.
    pub(crate) columns: [&'a str; 2],
    /// Types of the two columns, if they are keys.
    pub(crate) types: Option<[ColumnType; 2]>,
    /// True for a join by time.
    pub(crate) by_time: bool,
    pub(crate) matched: u64,
    pub(crate) unmatched: u64,
    /// True for rows to predict.
    pub(crate) are_new: bool,
    /// For rows to predict, rows of the dataset with and without a match, if they are known.
    pub(crate) built: Option<[u64; 2]>,
    /// Missed keys that the source has in another spelling.
    pub(crate) alike: &'a [MissedKey],
}

/// Warns of a join in which few rows find a row, or some do not for the spelling of their key alone.
pub(crate) fn unmatched_rows(found: &UnmatchedRows<'_>) -> Option<Warning> {
    let rows = found.matched + found.unmatched;
    let is_few = rows > 0 && share(found.matched, rows) < FEW && found.is_no_chance();
    let key = match found.types {
        _ if found.are_new => "dataset.join.unmatched",
        Some(_) => "dataset.join.left",
        None => "dataset.join.time",
    };
    (is_few || !found.alike.is_empty()).then(|| {
        let [left, right] = found.columns.map(shown);
        let count = match found.matched {
            0 => "none".to_owned(),
            matched => format!("{matched} ({})", percent(matched, rows)),
        };
        let source = found.source;
        let noun = if found.are_new { "new row" } else { "row" };
        let all = counted(rows, noun);
        let find = if rows == 1 { "finds" } else { "find" };
        let message = format!(
            "{count} of {all} {find} a row of `{source}` by `{left}`{}{}{}",
            found.of_dataset(),
            found.of_types(&left, &right),
            found.of_keys()
        );
        warning("join_unmatched", key, message)
    })
}

impl UnmatchedRows<'_> {
    /// Returns true unless few new rows lack a match by chance, or about as many do as in the dataset.
    fn is_no_chance(&self) -> bool {
        let rows = self.matched + self.unmatched;
        let built = self.built.map(|[matched, unmatched]| {
            let all = matched + unmatched;
            share(matched, all)
        });
        match built {
            _ if !self.are_new => true,
            None => rows >= FEW_ROWS,
            Some(built) if rows < FEW_ROWS => {
                let rows = i32::try_from(rows).unwrap_or(i32::MAX);
                (1.0 - built).powi(rows) < CHANCE
            }
            Some(built) => share(self.matched, rows) < built / 2.0,
        }
    }

    /// Rows of the dataset with a match, beside new ones.
    fn of_dataset(&self) -> String {
        let Some([matched, unmatched]) = self.built else {
            return String::new();
        };
        let all = matched + unmatched;
        let rows = counted(all, "row");
        let fraction = percent(matched, all);
        format!(", and {matched} ({fraction}) of {rows} of the dataset did")
    }

    /// Types of the two keys, where these differ.
    fn of_types(&self, left: &str, right: &str) -> String {
        match self.types.map(|types| types.map(values_of)) {
            Some([own, theirs]) if own != theirs => format!(
                "; column `{left}` of the rows holds {own}, and column `{right}` of `{}` holds {theirs}",
                self.source
            ),
            _ => String::new(),
        }
    }

    /// Keys that differ in how they are written only, and how to make them equal.
    fn of_keys(&self) -> String {
        let source = self.source;
        let right = shown(self.columns[1]);
        if self.alike.is_empty() {
            let times =
                "a row finds the latest row of an earlier time, so compare the times of both";
            let keys = format!(
                "keys are compared as text, so compare them with column `{right}` of `{source}`"
            );
            return match (self.types.is_some(), self.by_time) {
                (true, true) => format!("; {keys}; {times}"),
                (false, _) => format!("; {times}"),
                (true, false) => format!("; {keys}"),
            };
        }
        let rows: u64 = self.alike.iter().map(|key| key.rows).sum();
        let pairs: Vec<String> = self.alike.iter().map(pair).collect();
        let difference = match self.alike.iter().all(is_spelling) {
            true => difference(&pairs),
            false => "how they are written",
        };
        let find = if rows == 1 { "finds" } else { "find" };
        format!(
            "; {} {find} none although `{source}` has their key, since keys are compared as text and these differ in \
             {difference}: {}; {}",
            counted(rows, "row"),
            first_of(&pairs, GROUPS),
            self.advice()
        )
    }

    /// A way to make the keys equal.
    fn advice(&self) -> String {
        let advice = match self.types.map(|types| types.map(values_of)) {
            _ if self.are_new => {
                return format!("write the keys of new rows as `{}` has them", self.source);
            }
            Some([own, theirs]) if own != theirs => {
                "land both columns with one type, which `contract.column.<name>.type` of their sources sets: `\"text\"` keeps them as \
                 they are written there"
            }
            _ if self.alike.iter().all(is_spelling) => {
                "write them alike in the sources, or join the tables in `dataset.sql` by `lower(trim(...))`"
            }
            _ => "write them alike in the sources",
        };
        advice.to_owned()
    }
}

/// A missed key and that of the source, as text with the rows of the first.
fn pair(missed: &MissedKey) -> String {
    let partner = missed.partner.as_deref().unwrap_or_default();
    let rows = format!(" ({})", counted(missed.rows, "row"));
    list_alike(&[(missed.key.as_str(), rows), (partner, String::new())])
}

/// Returns true for keys that differ in blanks, letter case or Unicode form.
fn is_spelling(missed: &MissedKey) -> bool {
    folded(&missed.key) == folded(missed.partner.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(rows: [u64; 2], types: Option<[ColumnType; 2]>, alike: &[[&str; 2]]) -> Option<String> {
        find_of(false, None, rows, types, alike).map(|warning| warning.message)
    }

    fn find_of(
        are_new: bool,
        built: Option<[u64; 2]>,
        rows: [u64; 2],
        types: Option<[ColumnType; 2]>,
        alike: &[[&str; 2]],
    ) -> Option<Warning> {
        let alike: Vec<MissedKey> = alike
            .iter()
            .map(|[key, partner]| MissedKey {
                key: (*key).to_owned(),
                rows: 3,
                partner: Some((*partner).to_owned()),
            })
            .collect();
        let [matched, unmatched] = rows;
        unmatched_rows(&UnmatchedRows {
            source: "d",
            columns: ["day", "on"],
            types,
            by_time: types.is_none(),
            matched,
            unmatched,
            are_new,
            built,
            alike: &alike,
        })
    }

    #[test]
    fn keys_of_new_rows_are_written_as_the_source_has_them() {
        let text = Some([ColumnType::Utf8; 2]);
        assert_eq!(find_of(true, None, [3, 3], text, &[]), None);
        let zeros = find_of(true, None, [0, 3], text, &[["39", "0039"]]).unwrap();
        assert_eq!(zeros.code, "join_unmatched");
        assert_eq!(zeros.key.as_deref(), Some("dataset.join.unmatched"));
        for part in [
            "none of 3 new rows find a row of `d` by `day`; 3 rows find none although `d` has their key",
            "differ in how they are written: `39` (3 rows) and `0039`",
            "; write the keys of new rows as `d` has them",
        ] {
            assert!(zeros.message.contains(part), "{part}: {}", zeros.message);
        }
        let one = find_of(true, None, [0, 1], text, &[["39", "0039"]]).unwrap();
        let part = "none of 1 new row finds a row";
        assert!(one.message.starts_with(part), "{one:?}");
    }

    #[test]
    fn new_rows_without_a_match_are_compared_with_those_of_the_dataset() {
        let text = Some([ColumnType::Utf8; 2]);
        let find = |built, rows| find_of(true, built, rows, text, &[]);
        for (built, rows, is_warned) in [
            (None, [0, 9], false),
            (None, [0, 10], true),
            (Some([320, 280]), [0, 1], false),
            (Some([320, 280]), [0, 6], false),
            // 0.47^7 is less than 0.01.
            (Some([320, 280]), [0, 7], true),
            (Some([600, 0]), [0, 1], true),
            (Some([320, 280]), [1, 19], true),
            (Some([30, 570]), [1, 19], false),
            (Some([30, 570]), [0, 20], true),
            (Some([0, 600]), [0, 20], false),
        ] {
            let found = find(built, rows);
            assert_eq!(found.is_some(), is_warned, "{built:?} {rows:?}: {found:?}");
        }
        let found = find(Some([320, 280]), [0, 20]).unwrap().message;
        let part = "20 new rows find a row of `d` by `day`, and 320 (53.3 %) of 600 rows of the dataset did;";
        assert!(found.contains(part), "{found}");
    }

    #[test]
    fn a_join_in_which_few_rows_find_a_row_is_a_warning() {
        let text = Some([ColumnType::Utf8; 2]);
        assert_eq!(find([20, 180], text, &[]), None);
        assert_eq!(find([0, 0], text, &[]), None);
        let none = find([0, 200], text, &[]).unwrap();
        assert!(
            none.starts_with("none of 200 rows find a row of `d` by `day`; keys are compared"),
            "{none}"
        );
        let few = find([19, 181], text, &[]).unwrap();
        assert!(few.starts_with("19 (9.5 %) of 200 rows"), "{few}");
        let by_time = find([0, 200], None, &[]).unwrap();
        assert!(
            by_time.contains("latest row of an earlier time"),
            "{by_time}"
        );
    }

    #[test]
    fn keys_that_mean_the_same_are_a_warning_with_both_and_a_remedy() {
        let types = Some([ColumnType::Timestamp, ColumnType::Utf8]);
        let dates = find([0, 3], types, &[["2026-01-01T00:00:00Z", "2026-01-01"]]).unwrap();
        for part in [
            "column `day` of the rows holds timestamps, and column `on` of `d` holds text",
            "3 rows find none although `d` has their key",
            "differ in how they are written: `2026-01-01T00:00:00Z` (3 rows) and `2026-01-01`",
            "`contract.column.<name>.type`",
        ] {
            assert!(dates.contains(part), "{part}: {dates}");
        }
        let text = Some([ColumnType::Utf8; 2]);
        let spelled = find([197, 3], text, &[["s4", "S4 "]]).unwrap();
        for part in [
            "197 (98.5 %) of 200 rows",
            "blanks or letter case",
            "lower(trim(...))",
        ] {
            assert!(spelled.contains(part), "{part}: {spelled}");
        }
    }
}
