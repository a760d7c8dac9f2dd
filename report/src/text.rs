//! Numbers and texts as a page shows them.

/// A count as a float.
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub(crate) const fn exact(count: u64) -> f64 {
    count as f64
}

/// [`exact`] of a length.
pub(crate) const fn exact_len(length: usize) -> f64 {
    exact(length as u64)
}

/// The first `most` characters of a text, with a mark where it is longer.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A number as short as it can be read: `1.2M`, `30k`, `0.015`, `1e-5`.
#[must_use]
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    let (scaled, unit) = match magnitude {
        m if m >= 1e9 => return format!("{value:.2e}"),
        m if m >= 1e6 => (value / 1e6, "M"),
        m if m >= 1e4 => (value / 1e3, "k"),
        m if m > 0.0 && m < 1e-3 => {
            let text = format!("{value:.1e}");
            return text.replace(".0e", "e");
        }
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        m if m >= 100.0 => 0,
        m if m >= 10.0 => 1,
        m if m >= 1.0 => 2,
        _ => 4,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    let text = if text == "-0" { "0" } else { text };
    format!("{text}{unit}")
}

/// A number with four significant digits or so; a whole number as it is.
#[must_use]
pub fn significant(value: f64) -> String {
    let magnitude = value.abs();
    let text = match magnitude {
        m if m.fract() == 0.0 && m < 1e9 => format!("{value:.0}"),
        m if !(1e-3..1e7).contains(&m) => format!("{value:.3e}"),
        m if m >= 1000.0 => format!("{value:.1}"),
        m if m >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    };
    if text == "-0" { "0".to_owned() } else { text }
}

/// A fraction as a percentage.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.2} %", exact(part) / exact(whole) * 100.0)
}

/// Text escaped for HTML, including attributes. Characters that would hide or reverse other text
/// become `U+FFFD`.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            '\n' | '\t' => out.push(' '),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.push('\u{fffd}')
            }
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.015, "0.015"),
            (1e-5, "1e-5"),
            (2.5e-4, "2.5e-4"),
            (3.0, "3"),
            (12.34, "12.3"),
            (9_500.0, "9500"),
            (30_000.0, "30k"),
            (1_250_000.0, "1.25M"),
            (-0.5, "-0.5"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn significant_digits_are_four_and_texts_are_harmless() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1234.0, "1234"),
            (0.015, "0.0150"),
            (1e-5, "1.000e-5"),
            (54_321.98, "54322.0"),
            (12.345, "12.35"),
            (2.5e12, "2.500e12"),
        ] {
            assert_eq!(significant(value), text);
        }
        assert_eq!(
            escape("<a b='\"&'>\u{0}\u{202e}x\n"),
            "&lt;a b=&#39;&quot;&amp;&#39;&gt;\u{fffd}\u{fffd}x "
        );
        assert_eq!(
            shortened("äöüäöüäöüäöüäöüäöüäöüäöüäöü", 22).chars().count(),
            22 + 1
        );
    }
}
