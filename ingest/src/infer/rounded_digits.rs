//! Numbers whose digits a column of floats rounds: explanation of the warning about them, and the
//! warning after they have landed.

use feedline_schemas::{
    config::{DeclaredType, SourceConfig},
    report::Warning,
};

/// Code of the warning about them.
pub(super) const DIGITS_ROUNDED: &str = "digits_rounded";

/// Begin of the explanation in its message, behind the columns.
pub(super) const ROUNDED: &str = "numbers of more than 17 digits are rounded to 64-bit floats";

/// End of the description of a column.
const END: &str = "`)";

/// Explains the warning; `is_beyond_decimal` for numbers that do not fit a decimal.
pub(super) fn explain(is_beyond_decimal: bool) -> String {
    let advice = match is_beyond_decimal {
        true => {
            "declare the column `text` to keep all digits, since some have more than a `decimal` keeps (20 digits before the point and 18 behind it)"
        }
        false => "declare the column `decimal`, or `text`, to keep all digits",
    };
    format!("{ROUNDED}; {advice}")
}

/// Returns a landed warning as it holds under `config`: without the columns that are declared
/// `float` by now, and with advice to reset for those of another declared type. Other warnings are
/// not changed.
pub(crate) fn follow_rounded_digits(
    mut warning: Warning,
    config: &SourceConfig,
) -> Option<Warning> {
    let parts = warning.message.split_once(&format!(": {ROUNDED}"));
    let Some((columns, advice)) = parts.filter(|_| warning.code == DIGITS_ROUNDED) else {
        return Some(warning);
    };
    let (named, more) = columns.rsplit_once(END).unwrap_or((columns, ""));
    let is_rounded = |column: &&str| {
        let declared = declared(column, config);
        declared.is_none_or(|(_, r#type)| r#type != DeclaredType::Float)
    };
    let rounded: Vec<&str> = named
        .split(&format!("{END}, "))
        .filter(is_rounded)
        .collect();
    let columns = match rounded[..] {
        [] if more.is_empty() => return None,
        [] => more.trim_start_matches(" and ").to_owned(),
        _ => format!("{}{END}{more}", rounded.join(&format!("{END}, "))),
    };
    let found = rounded.iter().filter_map(|column| declared(column, config));
    let found: Vec<String> = found.map(|(name, _)| format!("`{name}`")).collect();
    let has_open = found.len() < rounded.len() || !more.is_empty();
    let advice = if has_open { advice } else { "" };
    let reset = match found[..] {
        [] => String::new(),
        _ => format!(
            "; the type of {} is declared, but rows that landed before keep rounded digits: `feedline ingest reset \
             PIPELINE.toml {}` re-reads everything with it",
            found.join(", "),
            config.name
        ),
    };
    warning.message = format!("{columns}: {ROUNDED}{advice}{reset}");
    Some(warning)
}

/// Name and declared type of the described column, if its type is declared.
fn declared<'c>(column: &str, config: &'c SourceConfig) -> Option<(&'c str, DeclaredType)> {
    let mut columns = config.contract.column.iter();
    let own = columns.find(|(name, _)| column.starts_with(&format!("`{name}` (")));
    own.and_then(|(name, own)| Some((name.as_str(), own.r#type?)))
}

#[cfg(test)]
mod tests {
    use feedline_readers::{record::Record, value::Value};
    use feedline_schemas::config::PaginationKind;

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
        let advice = explain(true);
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
        let other = format!("`b` (`{LONG}`): {}", explain(true));
        assert_eq!(held(&both, &[("a", DeclaredType::Float)]), [other]);
        let types = [("a", DeclaredType::Float), ("b", DeclaredType::Float)];
        assert!(held(&both, &types).is_empty());
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let types = names[..5].iter().map(|name| (*name, DeclaredType::Float));
        let types: Vec<(&str, DeclaredType)> = types.collect();
        let more = format!("2 more columns: {}", explain(true));
        assert_eq!(held(&landed(&names), &types), [more]);
    }
}
