//! Numbers whose digits a column of floats rounds: explanation of the warning about them, and the
//! warning after they have landed.

use feedline_schemas::{
    config::{DeclaredType, SourceConfig},
    report::{Finding, WarnedColumn},
};

/// Code of the warning about them.
pub(super) const DIGITS_ROUNDED: &str = "digits_rounded";

/// The finding.
pub(super) const ROUNDED: &str = "numbers of more than 17 digits are rounded to 64-bit floats";

/// The advice; `is_beyond_decimal` for numbers that do not fit a decimal.
pub(super) const fn advice(is_beyond_decimal: bool) -> &'static str {
    match is_beyond_decimal {
        true => {
            "declare the column `text` to keep all digits, since some have more than a `decimal` keeps (20 digits before the point and 18 behind it)"
        }
        false => "declare the column `decimal`, or `text`, to keep all digits",
    }
}

/// Returns the finding of a landed warning as it holds under `config`: without the columns that are declared
/// `float` by now, and with advice to reset for those of another declared type.
pub(super) fn hold(mut finding: Finding, config: &SourceConfig) -> Option<Finding> {
    let declared = |column: &WarnedColumn| config.contract.column.get(&column.name)?.r#type;
    let rounded = &mut finding.columns;
    rounded.retain(|column| declared(column) != Some(DeclaredType::Float));
    let found = rounded.iter().filter(|column| declared(column).is_some());
    let found: Vec<String> = found.map(|column| format!("`{}`", column.name)).collect();
    if rounded.is_empty() || found.is_empty() {
        return (!rounded.is_empty()).then_some(finding);
    }
    let reset = format!(
        "the type of {} is declared, but rows that landed before keep rounded digits: `feedline ingest reset \
         PIPELINE.toml {}` re-reads everything with it",
        found.join(", "),
        config.name
    );
    finding.advice = match found.len() < rounded.len() {
        true => format!("{}; {reset}", finding.advice),
        false => reset,
    };
    Some(finding)
}

#[cfg(test)]
mod tests {
    use feedline_readers::{record::Record, value::Value};
    use feedline_schemas::{config::PaginationKind, report::Warning};

    use super::*;
    use crate::{held_warnings::holding, infer::Survey};

    const LONG: &str = "0.12345678901234567891";

    fn source() -> SourceConfig {
        crate::testing::config("http://h/", PaginationKind::Page)
    }

    /// The warning about columns of these names, each with a number whose digits are rounded.
    fn landed(names: &[&str]) -> Vec<Warning> {
        let mut survey = Survey::new(&source());
        for number in ["0.5", LONG] {
            let cells = names.iter().map(|name| {
                let cell = Value::Cell(number.to_owned());
                ((*name).to_owned(), cell)
            });
            survey.add(&Record::Value(Value::Object(cells.collect())));
        }
        survey.infer(&source()).warnings
    }

    /// Messages about the `landed` columns with these declared types.
    fn held(landed: &[Warning], declared: &[(&str, DeclaredType)]) -> Vec<String> {
        let mut config = source();
        for (name, r#type) in declared {
            let columns = &mut config.contract.column;
            columns.entry((*name).to_owned()).or_default().r#type = Some(*r#type);
        }
        let held = holding(&config, landed).into_iter();
        held.map(|warning| warning.message).collect()
    }

    #[test]
    fn advice_that_is_followed_after_the_numbers_landed_becomes_advice_to_reset() {
        let both = landed(&["a", "b"]);
        let (a, b) = (format!("`a` (`{LONG}`)"), format!("`b` (`{LONG}`)"));
        let advice = format!("{ROUNDED}; {}", advice(true));
        let message = format!("{a}, {b}: {advice}");
        let other = held(&both, &[("c", DeclaredType::Text)]);
        assert_eq!(other, std::slice::from_ref(&message));
        let reset = |names: &str| {
            format!(
                "; the type of {names} is declared, but rows that landed before keep rounded digits: `feedline ingest \
                 reset PIPELINE.toml {}` re-reads everything with it",
                source().name
            )
        };
        let one = held(&both, &[("a", DeclaredType::Text)]);
        assert_eq!(one, [message + &reset("`a`")]);
        let types = [("a", DeclaredType::Text), ("b", DeclaredType::Decimal)];
        let all = format!("{a}, {b}: {ROUNDED}{}", reset("`a`, `b`"));
        assert_eq!(held(&both, &types), [all]);
    }

    #[test]
    fn a_column_that_is_declared_float_is_no_longer_named() {
        let both = landed(&["a", "b"]);
        let other = format!("`b` (`{LONG}`): {ROUNDED}; {}", advice(true));
        assert_eq!(held(&both, &[("a", DeclaredType::Float)]), [other]);
        let types = [("a", DeclaredType::Float), ("b", DeclaredType::Float)];
        assert!(held(&both, &types).is_empty());
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let types = names[..5].iter().map(|name| (*name, DeclaredType::Float));
        let types: Vec<(&str, DeclaredType)> = types.collect();
        let (f, g) = (format!("`f` (`{LONG}`)"), format!("`g` (`{LONG}`)"));
        let more = format!("{f}, {g}: {ROUNDED}; {}", advice(true));
        assert_eq!(held(&landed(&names), &types), [more]);
    }
}
