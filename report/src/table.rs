//! Tables, whose first column names the row.

use std::ops::RangeBounds;

use crate::text::escape;

/// A row of a table.
#[derive(Clone, Debug, Default)]
pub struct TableRow {
    /// Cells, as HTML.
    pub cells: Vec<String>,
    /// Class of the row, for a style.
    pub class: &'static str,
}

impl TableRow {
    /// A row of HTML.
    #[must_use]
    pub const fn new(cells: Vec<String>) -> Self {
        Self { cells, class: "" }
    }

    /// A row of text.
    #[must_use]
    pub fn of_text(cells: &[String]) -> Self {
        Self::new(cells.iter().map(|cell| escape(cell)).collect())
    }

    /// Rows of text.
    #[must_use]
    pub fn of_texts(rows: &[Vec<String>]) -> Vec<Self> {
        rows.iter().map(|row| Self::of_text(row)).collect()
    }
}

/// A link. The path is relative.
#[must_use]
pub fn link(to: &str, text: &str) -> String {
    format!("<a href=\"{}\">{}</a>", escape(to), escape(text))
}

/// A table of texts; columns in `numbers` are right-aligned.
#[must_use]
pub fn table(
    caption: &str,
    head: &[&str],
    numbers: impl RangeBounds<usize>,
    rows: &[Vec<String>],
) -> String {
    table_of(caption, head, numbers, &TableRow::of_texts(rows))
}

/// The same of cells that are HTML.
#[must_use]
pub fn table_of(
    caption: &str,
    head: &[&str],
    numbers: impl RangeBounds<usize>,
    rows: &[TableRow],
) -> String {
    let class = |i: usize| match numbers.contains(&i) {
        true => " class=\"number\"",
        false => "",
    };
    let mut out = format!(
        "<div class=\"scroll\"><table><caption>{}</caption>\n<thead><tr>",
        escape(caption)
    );
    for (i, name) in head.iter().enumerate() {
        out += &format!("<th scope=\"col\"{}>{}</th>", class(i), escape(name));
    }
    out += "</tr></thead>\n<tbody>\n";
    for TableRow { cells, class: of } in rows {
        out += &match *of {
            "" => "<tr>".to_owned(),
            of => format!("<tr class=\"{of}\">"),
        };
        for (i, cell) in cells.iter().enumerate() {
            out += &match i {
                0 => format!("<th scope=\"row\">{cell}</th>"),
                _ => format!("<td{}>{cell}</td>", class(i)),
            };
        }
        out += "</tr>\n";
    }
    out + "</tbody></table></div>\n"
}

/// The same, where rows after the first `at_once` are folded away.
#[must_use]
pub fn foldable(
    caption: &str,
    head: &[&str],
    numbers: impl RangeBounds<usize> + Clone,
    rows: &[TableRow],
    at_once: usize,
) -> String {
    let (first, rest) = rows.split_at(rows.len().min(at_once));
    let mut out = table_of(caption, head, numbers.clone(), first);
    if !rest.is_empty() {
        out += &format!(
            "<details><summary>{} more</summary>\n{}</details>\n",
            rest.len(),
            table_of("The others.", head, numbers, rest)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_numbers_are_at_the_right_and_rows_have_classes() {
        let cells = ["<a>", "1", "b"].map(str::to_owned).to_vec();
        let page = table(
            "c & d",
            &["x", "n", "y"],
            1..2,
            std::slice::from_ref(&cells),
        );
        let row = "<tr><th scope=\"row\">&lt;a&gt;</th><td class=\"number\">1</td><td>b</td></tr>";
        assert!(page.contains(row), "{page}");
        assert!(page.contains("<th scope=\"col\" class=\"number\">n</th><th scope=\"col\">y</th>"));
        assert!(page.contains("<caption>c &amp; d</caption>"), "{page}");
        let best = TableRow {
            class: "best",
            ..TableRow::new(vec![link("r.html", "<r>")])
        };
        let page = table_of("", &["x"], 1.., &[best]);
        let row = "<tr class=\"best\"><th scope=\"row\"><a href=\"r.html\">&lt;r&gt;</a></th></tr>";
        assert!(page.contains(row), "{page}");
    }

    #[test]
    fn rows_after_the_first_are_folded_away() {
        let rows: Vec<TableRow> = ["a", "b", "c"]
            .map(|name| TableRow::of_text(&[name.to_owned()]))
            .into();
        assert_eq!(
            foldable("x", &["n"], 1.., &rows, 3),
            table_of("x", &["n"], 1.., &rows)
        );
        let page = foldable("x", &["n"], 1.., &rows, 1);
        let (shown, folded) = page.split_once("<details><summary>2 more").unwrap();
        assert!(shown.contains(">a<") && folded.contains(">b<") && folded.contains(">c<"));
    }
}
