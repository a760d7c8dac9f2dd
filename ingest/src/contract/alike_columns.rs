//! Columns whose names differ only in case, separators or Unicode form, and that no more records have
//! than one column could have.
//!
//! Such a pair is mostly one column under two names: one file writes `Menge`, the next `menge`. Records
//! with both are not counted, so the counts do not exclude some where others have neither.

use std::collections::BTreeMap;

use feedline_schemas::{commit::Presence, count::first_counted, record::system, report::Warning};
use unicode_normalization::UnicodeNormalization as _;

/// Code of the warning.
const COLUMNS_ALIKE: &str = "columns_alike";

/// Most pairs that the warning names.
const NAMED: usize = 5;

/// The name without case, spaces and separators, in one Unicode form.
pub(crate) fn folded(name: &str) -> String {
    let letters = name.nfkc().flat_map(char::to_lowercase);
    letters
        .filter(|c| !matches!(c, '_' | '-') && !c.is_whitespace())
        .nfkc()
        .collect()
}

/// The warning about pairs of `columns`, by name, that are alike and, by their counts, may never be in
/// one record, if there are any.
pub(crate) fn alike_warning<'a>(
    columns: impl IntoIterator<Item = &'a str>,
    presence: &Presence,
) -> Option<Warning> {
    let mut alike: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let own = columns.into_iter();
    for name in own.filter(|name| !name.starts_with(system::PREFIX)) {
        alike.entry(folded(name)).or_default().push(name);
    }
    let may_be_apart = |a: &str, b: &str| {
        let (a, b) = (presence.missing(a).absent, presence.missing(b).absent);
        a > 0 && b > 0 && a + b >= presence.rows
    };
    let mut pairs = Vec::new();
    for names in alike.values() {
        for (i, first) in names.iter().enumerate() {
            let others = names[i + 1..].iter();
            let others = others.filter(|b| may_be_apart(first, b));
            pairs.extend(others.map(|b| (*first, *b)));
        }
    }
    if pairs.is_empty() {
        return None;
    }
    let named = pairs.iter().map(|(a, b)| format!("`{a}` and `{b}`"));
    let named: Vec<String> = named.collect();
    let difference = match pairs.iter().all(|(a, b)| a.is_ascii() && b.is_ascii()) {
        true => "case or separators",
        false => "case, separators or Unicode form",
    };
    let message = format!(
        "{}: the names differ only in {difference}, and by their counts no record needs to have both, so they may be one column that was renamed; each lands apart. If they are one, rename it in the files and re-read them, or join both with coalesce(...) in `dataset.sql`; `contract.columns = \"freeze\"` stops a run at a new column",
        first_counted(&named, NAMED, "pair")
    );
    Some(Warning::new(COLUMNS_ALIKE, message).with_key("contract.columns"))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::commit::Missing;

    use super::*;

    /// The warning of ten records; each column has the number of records without it.
    fn warning(columns: &[(&str, u64)]) -> Option<String> {
        let missing = columns.iter().map(|(name, absent)| {
            let missing = Missing {
                absent: *absent,
                null: 0,
            };
            ((*name).to_owned(), missing)
        });
        let presence = Presence {
            rows: 10,
            missing: missing.filter(|(_, missing)| missing.absent > 0).collect(),
            ..Presence::default()
        };
        let names = columns.iter().map(|(name, _)| *name);
        alike_warning(names, &presence).map(|warning| warning.message)
    }

    #[test]
    fn a_column_under_two_names_is_reported() {
        let message = warning(&[("Menge", 4), ("x", 0), ("menge", 6)]).unwrap();
        assert!(
            message.starts_with("`Menge` and `menge`: the names differ"),
            "{message}"
        );
        let message = warning(&[("Gr\u{f6}\u{df}e", 4), ("gro\u{308}\u{df}e", 6)]).unwrap();
        assert!(
            message.contains("only in case, separators or Unicode form"),
            "{message}"
        );
        assert!(warning(&[("a b", 5), ("a\u{a0}b", 5)]).is_some());
        let message = warning(&[("user_id", 5), ("User ID", 9), ("userId", 6)]).unwrap();
        let pairs = "`user_id` and `User ID`, `user_id` and `userId`, `User ID` and `userId`:";
        assert!(message.starts_with(pairs), "{message}");
    }

    #[test]
    fn counts_do_not_exclude_records_with_both() {
        // A record may have both where two have neither.
        let message = warning(&[("a", 9), ("A", 9)]).unwrap();
        assert!(
            message.contains("by their counts no record needs"),
            "{message}"
        );
        assert!(!message.contains("no record has"), "{message}");
    }

    #[test]
    fn columns_of_one_record_are_two() {
        assert_eq!(warning(&[("Menge", 0), ("menge", 0)]), None);
        assert_eq!(warning(&[("Menge", 0), ("menge", 9)]), None);
        assert_eq!(warning(&[("Menge", 3), ("menge", 6)]), None);
        assert_eq!(warning(&[("a", 5), ("b", 5)]), None);
    }
}
