//! Numbers and texts as a page shows them.

/// A number as short as it can be read: `1.2M`, `30k`, `0.015`, `1e-5`.
pub(crate) fn number(value: f64) -> String {
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

/// Text escaped for HTML, in attributes too.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
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
}
