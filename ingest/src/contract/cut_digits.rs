//! Timestamps with digits beyond microseconds, which are cut.

use std::collections::BTreeMap;

use feedline_schemas::{
    commit::{Decisions, Noted},
    count::{counted, first_counted},
    report::Warning,
};

/// Kind of decision: digits beyond microseconds that are not zero are cut; also the code of the
/// warning about them. A column keeps its type, so it holds until a reset.
pub(crate) const DIGITS_CUT: &str = "timestamp_digits_cut";

/// Most columns that a warning names.
const NAMED: usize = 5;

/// Returns true if the fraction of a timestamp has digits beyond microseconds that are not zero.
pub(super) fn has_cut_digits(text: &str) -> bool {
    const MICROS: usize = 6;
    let fraction = text
        .rsplit_once(['.', ','])
        .map_or("", |(_, behind)| behind);
    let digits = fraction.bytes().take_while(u8::is_ascii_digit);
    let mut cut = digits.skip(MICROS);
    cut.any(|digit| digit != b'0')
}

/// The warning about timestamps of a batch whose digits were cut, if there are any.
pub(crate) fn cut_warning(decisions: &Decisions) -> Option<Warning> {
    let shown = list_columns(decisions.get(DIGITS_CUT)?);
    let message = format!(
        "{shown}: digits beyond microseconds are cut, since timestamps land in microseconds; to keep all digits declare the column `text`, and where rows have landed run `feedline ingest reset PIPELINE.toml SOURCE`, which re-reads everything"
    );
    Some(Warning::new(DIGITS_CUT, message).with_key("contract.column.<name>.type"))
}

/// The first of `columns` with their counts and samples, and the number of the others.
pub(super) fn list_columns(columns: &BTreeMap<String, Noted>) -> String {
    let named = columns.iter();
    let named = named.map(|(name, Noted { count, sample })| {
        let values = counted(*count, "value");
        format!("`{name}` ({values} of a batch, such as {sample})")
    });
    let named: Vec<String> = named.collect();
    first_counted(&named, NAMED, "column")
}

#[cfg(test)]
mod tests {
    use feedline_schemas::commit::note;

    use super::*;

    #[test]
    fn the_warning_names_columns_counts_and_the_key() {
        let mut decisions = Decisions::new();
        assert_eq!(cut_warning(&decisions), None);
        let sample = || "`2024-01-01T00:00:00.1234567`".to_owned();
        note(&mut decisions, DIGITS_CUT, "ts", 2, sample);
        let warning = cut_warning(&decisions).unwrap();
        let begin = "`ts` (2 values of a batch, such as `2024-01-01T00:00:00.1234567`): digits beyond microseconds are cut";
        assert!(warning.message.starts_with(begin), "{}", warning.message);
        assert_eq!(warning.key.as_deref(), Some("contract.column.<name>.type"));
    }
}
