//! Horizontal bars of counts by name.

use crate::{
    figure::{WIDTH, empty_figure, figure},
    text::{escape, exact, exact_len, shortened},
};

/// Height of a bar with its space, and where it begins.
const LINE: f64 = 24.0;
const LABEL: f64 = 170.0;

/// Characters of a name that are shown beside its bar.
const NAME_MAX: usize = 22;

/// Horizontal bars, each with its name, count and a note, as a `figure`.
#[must_use]
pub fn bars(title: &str, rows: &[(String, u64, String)]) -> String {
    if rows.is_empty() {
        return empty_figure(title, "There is nothing to draw.");
    }
    let most = rows.iter().map(|row| row.1).max().unwrap_or(0).max(1);
    let room = WIDTH - LABEL - 130.0;
    let (mut drawn, mut words) = (String::new(), format!("{title}."));
    for (i, (name, count, note)) in rows.iter().enumerate() {
        let y = LINE * exact_len(i);
        let long = (exact(*count) / exact(most) * room).max(if *count > 0 { 1.0 } else { 0.0 });
        let says = format!("{count}{}{note}", if note.is_empty() { "" } else { " " });
        words += &format!(" {name}: {says}.");
        drawn += &format!(
            "<g><title>{}</title><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect class=\"bar\" x=\"{LABEL}\" y=\"{:.1}\" width=\"{long:.1}\" height=\"16\"/>\
             <text class=\"strong\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>\n",
            escape(name),
            LABEL - 8.0,
            y + 16.0,
            escape(&shortened(name, NAME_MAX)),
            y + 3.0,
            LABEL + long + 6.0,
            y + 16.0,
            escape(&says)
        );
    }
    figure(
        title,
        &words,
        LINE * exact_len(rows.len()) + 2.0,
        &drawn,
        "",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bar_is_shorter_than_nothing() {
        assert!(bars("b", &[("x".into(), 0, String::new())]).contains("width=\"0.0\""));
        assert!(bars("b", &[]).contains("nothing to draw"));
    }
}
