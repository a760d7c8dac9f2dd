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
    /// Missed keys that the source has in another spelling.
    pub(crate) alike: &'a [MissedKey],
}

/// Warns of a join in which few rows find a row, or some do not for the spelling of their key alone.
pub(crate) fn unmatched_rows(found: &UnmatchedRows<'_>) -> Option<Warning> {
    let rows = found.matched + found.unmatched;
    let is_few = rows > 0 && share(found.matched, rows) < FEW;
    let key = match found.types {
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
        let message = format!(
            "{count} of {rows} rows find a row of `{source}` by `{left}`{}{}",
            found.of_types(&left, &right),
            found.of_keys()
        );
        warning("join_unmatched", key, message)
    })
}

impl UnmatchedRows<'_> {
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
    fn advice(&self) -> &'static str {
        match self.types.map(|types| types.map(values_of)) {
            Some([own, theirs]) if own != theirs => {
                "land both columns with one type, which `contract.column.<name>.type` of their sources sets: `\"text\"` keeps them as \
                 they are written there"
            }
            _ if self.alike.iter().all(is_spelling) => {
                "write them alike in the sources, or join the tables in `dataset.sql` by `lower(trim(...))`"
            }
            _ => "write them alike in the sources",
        }
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
        let alike: Vec<MissedKey> = alike
            .iter()
            .map(|[key, partner]| MissedKey {
                key: (*key).to_owned(),
                rows: 3,
                partner: Some((*partner).to_owned()),
            })
            .collect();
        let [matched, unmatched] = rows;
        let found = unmatched_rows(&UnmatchedRows {
            source: "d",
            columns: ["day", "on"],
            types,
            by_time: types.is_none(),
            matched,
            unmatched,
            alike: &alike,
        });
        found.map(|warning| warning.message)
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
