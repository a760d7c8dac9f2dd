//! Parts of reports as text: lines, counts, numbers, rejects and warnings.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use feedline_readers::value::one_line;
pub(crate) use feedline_schemas::count::counted;
use feedline_schemas::{
    count::noun_of,
    report::{WarnedColumn, Warning},
};

/// A report as text.
pub(crate) trait Text {
    fn write(&self, out: &mut String) -> fmt::Result;
}

/// Counts of rejected records by reason, and one example after its reason.
pub(crate) fn write_rejects(
    reasons: &BTreeMap<String, u64>,
    sample: Option<&str>,
    out: &mut String,
) -> fmt::Result {
    write_rejects_with_keys(reasons, &BTreeMap::new(), sample, out)
}

/// The same, each reason with the configuration keys that change it.
pub(super) fn write_rejects_with_keys(
    reasons: &BTreeMap<String, u64>,
    keys: &BTreeMap<String, Vec<String>>,
    sample: Option<&str>,
    out: &mut String,
) -> fmt::Result {
    write_reasons_with_keys("  rejected", reasons, keys, sample, out)
}

/// Writes a line for each reason; `sample`, which names its own reason, after that one.
pub(super) fn write_reasons(
    name: &str,
    reasons: &BTreeMap<String, u64>,
    sample: Option<&str>,
    out: &mut String,
) -> fmt::Result {
    write_reasons_with_keys(name, reasons, &BTreeMap::new(), sample, out)
}

fn write_reasons_with_keys(
    name: &str,
    reasons: &BTreeMap<String, u64>,
    keys: &BTreeMap<String, Vec<String>>,
    sample: Option<&str>,
    out: &mut String,
) -> fmt::Result {
    for (reason, count) in reasons {
        let keys = keys.get(reason).map_or_else(String::new, |keys| {
            format!("; see `{}`", keys.join("` or `"))
        });
        line(out, name, format!("{} {reason}{keys}", grouped(*count)))?;
        if let Some(sample) = sample.filter(|sample| reason_of(sample).as_ref() == Some(reason)) {
            line(out, "  for example", shortened(sample))?;
        }
    }
    Ok(())
}

/// Reason named by an example: as `reason` of a line of rejects, or as a prefix between backticks.
fn reason_of(sample: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct RejectLine {
        reason: String,
    }
    if let Ok(line) = serde_json::from_str::<RejectLine>(sample) {
        return Some(line.reason);
    }
    let (reason, _) = sample.strip_prefix('`')?.split_once('`')?;
    Some(reason.to_owned())
}

/// Columns of a warning for its message, each with its values in parentheses.
pub(crate) fn shown_columns(columns: &[WarnedColumn]) -> Vec<String> {
    let columns = columns.iter();
    columns
        .map(|column| format!("`{}` ({})", column.name, column.found))
        .collect()
}

/// Writes warnings, each with the key that changes the decision.
pub(crate) fn write_warnings(warnings: &[Warning], out: &mut String) -> fmt::Result {
    write_warnings_of("", warnings, out)
}

/// The same, each after the words `of`, which say when it was found.
pub(super) fn write_warnings_of(of: &str, warnings: &[Warning], out: &mut String) -> fmt::Result {
    for warning in warnings {
        let Warning {
            code, message, key, ..
        } = warning;
        let key = key.as_ref().map(|key| format!("; see `{key}`"));
        let text = format!(
            "{of}{}: {message}{}",
            code.replace('_', " "),
            key.unwrap_or_default()
        );
        line(out, "  warning", text)?;
    }
    Ok(())
}

/// Truncates to at most 160 characters; the rejects have the complete sample.
pub(crate) fn shortened(sample: &str) -> String {
    match sample.char_indices().nth(160) {
        Some((end, _)) => format!("{}...", &sample[..end]),
        None => sample.to_owned(),
    }
}

/// Five significant digits or more.
pub(crate) fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 1e6 || (magnitude > 0.0 && magnitude < 1e-4) {
        format!("{value:.5e}")
    } else if magnitude >= 1_000.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.5}")
    }
}

/// A count and its noun in the singular or the plural.
pub(super) fn counted_as(count: u64, one: &str, many: &str) -> String {
    let noun = if count == 1 { one } else { many };
    format!("{} {noun}", grouped(count))
}

/// A count with its digits in groups, and its noun.
pub(crate) fn grouped_as(count: u64, noun: &str) -> String {
    format!("{} {}", grouped(count), noun_of(count, noun))
}

/// A count with its digits in groups of three from 10,000 on.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Seconds since 1970-01-01 UTC as a signed number; the largest one for more.
pub(super) fn signed(unix_s: u64) -> i64 {
    i64::try_from(unix_s).unwrap_or(i64::MAX)
}

/// A time in UTC, from seconds since 1970-01-01 UTC.
pub(super) fn when(unix_s: i64) -> String {
    let time = jiff::Timestamp::from_second(unix_s);
    time.map_or_else(|_| format!("Unix time {unix_s}"), |time| time.to_string())
}

/// Writes a name and a value as one line, whatever characters the value has.
pub(crate) fn line(out: &mut String, name: &str, value: impl AsRef<str>) -> fmt::Result {
    writeln!(out, "  {name:<16} {}", one_line(value.as_ref()))
}

/// Writes a name and a value of several lines, which begin below each other.
pub(crate) fn lines(out: &mut String, name: &str, value: &str) -> fmt::Result {
    let indent = " ".repeat(19);
    for (number, text) in value.lines().enumerate() {
        match number {
            0 => line(out, name, text)?,
            _ => writeln!(out, "{indent}{}", one_line(text))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_line_ends_is_one_line() {
        let mut out = String::new();
        let message = "`m` (1 texts such as `a\nb\u{7}`): mixed";
        write_warnings(&[Warning::new("mixed_types", message)], &mut out).unwrap();
        lines(&mut out, "problem", "p.toml:1: wrong\n  | x = 1\n").unwrap();
        let expected = "    warning        mixed types: `m` (1 texts such as `a\\nb\\u{7}`): mixed
  problem          p.toml:1: wrong
                     | x = 1
";
        assert_eq!(out, expected);
    }

    #[test]
    fn digits_of_large_counts_are_grouped() {
        let counts = [0, 9_999, 10_000, 123_456, 1_234_567].map(grouped);
        assert_eq!(counts, ["0", "9999", "10,000", "123,456", "1,234,567"]);
    }
}
