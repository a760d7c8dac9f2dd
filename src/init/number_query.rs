//! Query that makes numbers of a text column, such as `EUR 1523,54`.

use feedline_ingest::ColumnPreview;

/// Most characters of a currency sign or unit.
const MAX_UNIT: usize = 12;
/// Signs of currencies and units, beside letters.
const UNIT_SIGNS: &str = "$€£¥₹₽₩₺%°/ \u{a0}";
/// Words beside a number that multiply it, in lower case.
const MULTIPLIERS: [&str; 13] = [
    "k", "m", "b", "t", "bn", "mn", "mm", "mio", "mrd", "tsd", "thousand", "million", "billion",
];

/// Settings of a dataset that make a number of the text column, if its samples share a currency sign
/// or unit and one decimal separator. The query has no value for a cell of another form, so that a
/// build rejects its row.
pub(super) fn number_by_sql(column: &ColumnPreview, source: &str) -> Option<String> {
    let samples: Option<Vec<_>> = column.samples.iter().map(|s| split_number(s)).collect();
    let samples = samples?;
    let (before, _, behind) = *samples.first()?;
    let is_alike = samples
        .iter()
        .all(|sample| (sample.0, sample.2) == (before, behind));
    let has_unit = !before.is_empty() || !behind.is_empty();
    if !is_alike || !has_unit || !is_unit(before) || !is_unit(behind) {
        return None;
    }
    let numbers: Vec<&str> = samples.iter().map(|sample| sample.1).collect();
    let has_comma = has_decimal_comma(&numbers)?;
    let name = column.name.as_str();
    let cell = identifier(name);
    let (pattern, number) = match has_comma {
        true => (
            r"-?([0-9]{1,3}(\.[0-9]{3})+,[0-9]+|[0-9]+(,[0-9]+)?)",
            format!(
                "replace(replace(regexp_replace({cell}, '[^0-9.,-]', '', 'g'), '.', ''), ',', '.')"
            ),
        ),
        false => (
            r"-?([0-9]{1,3}(,[0-9]{3})+\.[0-9]+|[0-9]+(\.[0-9]+)?)",
            format!("regexp_replace({cell}, '[^0-9.-]', '', 'g')"),
        ),
    };
    let [before, behind] = [before, behind].map(|unit| unit.replace('$', r"\$"));
    let before = with_spaces(&before, [&before, r"\s*"]);
    let behind = with_spaces(&behind, [r"\s*", &behind]);
    let new = format!("{} number", name.trim());
    let sql = format!(
        "select *, case when regexp_like({cell}, '^\\s*{before}{pattern}{behind}\\s*$') \
         then try_cast({number} as double) end as {} from {}",
        identifier(&new),
        identifier(source)
    );
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    Some(format!(
        "if it is a number, set `dataset.sql = {}`, `dataset.target = {}` and `{name}` in `dataset.drop`; the query has no value \
         for a cell of another form, and a build rejects its row",
        quoted(&sql),
        quoted(&new)
    ))
}

/// Text before a number, the number, and the text behind it.
fn split_number(text: &str) -> Option<(&str, &str, &str)> {
    let is_of_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '-' | '+');
    let (before, _) = text.split_at(text.find(is_of_number)?);
    let rest = text.strip_prefix(before)?;
    let number = rest.trim_end_matches(|c: char| !is_of_number(c));
    let behind = rest.strip_prefix(number)?;
    Some((before.trim(), number, behind.trim()))
}

/// Returns true for a short currency sign or unit that does not multiply the number.
fn is_unit(text: &str) -> bool {
    let is_of_unit = |c: char| c.is_alphabetic() || UNIT_SIGNS.contains(c);
    let lower = text.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphabetic());
    text.chars().count() <= MAX_UNIT
        && text.chars().all(is_of_unit)
        && words.all(|word| !MULTIPLIERS.contains(&word))
}

/// Returns true for numbers with a decimal comma, false for a decimal point or integers, and none
/// where a separator may also be one of thousands.
fn has_decimal_comma(numbers: &[&str]) -> Option<bool> {
    let fits = |decimal: char, group: char| {
        let certain: Option<Vec<bool>> = numbers
            .iter()
            .map(|number| is_certain(number, decimal, group))
            .collect();
        certain.is_some_and(|certain| certain.contains(&true))
    };
    let are_integers = numbers.iter().all(|number| !number.contains([',', '.']));
    match (fits(',', '.'), fits('.', ',') || are_integers) {
        (true, false) => Some(true),
        (false, true) => Some(false),
        _ => None,
    }
}

/// Returns true if the number has this decimal separator, false if it may have it, and none if it
/// does not.
fn is_certain(number: &str, decimal: char, group: char) -> Option<bool> {
    let digits = number.strip_prefix('-').unwrap_or(number);
    let (whole, part) = match digits.split_once(decimal) {
        Some((whole, part)) => (whole, Some(part)),
        None => (digits, None),
    };
    let mut groups = whole.split(group);
    let first = groups.next().unwrap_or_default();
    let others: Vec<&str> = groups.collect();
    let is_grouped = !others.is_empty();
    let fits = are_digits(first)
        && part.is_none_or(are_digits)
        && others
            .iter()
            .all(|group| group.len() == 3 && are_digits(group))
        && (!is_grouped || (first.len() <= 3 && part.is_some()));
    let is_no_group =
        |part: &str| is_grouped || part.len() != 3 || first.len() > 3 || first.starts_with('0');
    fits.then(|| part.is_some_and(is_no_group))
}

fn are_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A unit with the spaces between it and the number, as `parts`; empty without a unit.
fn with_spaces(unit: &str, parts: [&str; 2]) -> String {
    match unit {
        "" => String::new(),
        _ => parts.concat(),
    }
}

/// A name in double quotes of SQL.
pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    fn advise(name: &str, samples: &[&str]) -> Option<String> {
        let column = ColumnPreview {
            name: name.to_owned(),
            samples: samples.iter().map(|text| (*text).to_owned()).collect(),
            ..ColumnPreview::default()
        };
        number_by_sql(&column, "shop")
    }

    #[test]
    fn the_query_that_makes_a_number_of_a_text_is_valid_toml_and_refuses_other_cells() {
        let advice = advise(" price \"x\" ", &["$ 1,234.5", "$ 12"]).unwrap();
        let settings: Vec<&str> = advice.split('`').skip(1).step_by(2).collect();
        let settings = settings[..2].join("\n");
        let text = format!("{settings}\n[pipeline]\nname = \"p\"\n");
        let dataset = load("p.toml", &text, &[]).unwrap().config.dataset.unwrap();
        assert_eq!(dataset.targets(), ["price \"x\" number"]);
        let expected = r#"select *, case when regexp_like(" price ""x"" ", '^\s*\$\s*-?([0-9]{1,3}(,[0-9]{3})+\.[0-9]+|[0-9]+(\.[0-9]+)?)\s*$') then try_cast(regexp_replace(" price ""x"" ", '[^0-9.-]', '', 'g') as double) end as "price ""x"" number" from "shop""#;
        assert_eq!(dataset.sql.as_deref(), Some(expected));
    }

    #[test]
    fn a_decimal_comma_becomes_a_point() {
        for samples in [["EUR 1523,54", "EUR 7"], ["1.523,54 EUR", "98,5 EUR"]] {
            let advice = advise("y", &samples).unwrap();
            let comma =
                "replace(replace(regexp_replace(\"y\", '[^0-9.,-]', '', 'g'), '.', ''), ',', '.')";
            assert!(advice.contains(comma), "{advice}");
        }
    }

    #[test]
    fn texts_that_may_be_other_numbers_get_no_query() {
        let cases: [&[&str]; 8] = [
            &["1.45k", "2.5k"],
            &["12 Mio EUR"],
            // Two units, two notations, and a separator of either meaning.
            &["5 kg", "300 g"],
            &["EUR 1,5", "EUR 1.5"],
            &["EUR 1,234", "EUR 2,345"],
            &["EUR 1,2,3"],
            &["12", "13"],
            &[],
        ];
        for samples in cases {
            assert_eq!(advise("y", samples), None, "{samples:?}");
        }
    }
}
