//! Tables of a report.

use super::text::escape;

/// A row of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct TableRow {
    /// Cells, as HTML.
    pub(crate) cells: Vec<String>,
    /// Class of the row, for a style.
    pub(crate) class: &'static str,
}

impl TableRow {
    /// A row of HTML.
    pub(crate) const fn new(cells: Vec<String>) -> Self {
        Self { cells, class: "" }
    }

    /// A row of text.
    pub(crate) fn of_text(cells: &[String]) -> Self {
        Self::new(cells.iter().map(|cell| escape(cell)).collect())
    }
}

/// A link.
pub(crate) fn link(to: &str, text: &str) -> String {
    format!("<a href=\"{}\">{}</a>", escape(to), escape(text))
}

/// A table whose first column is text and whose others are numbers. Cells are text, not HTML.
pub(crate) fn table(caption: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<TableRow> = rows.iter().map(|row| TableRow::of_text(row)).collect();
    table_of(caption, head, &rows)
}

/// The same of cells that are HTML.
pub(crate) fn table_of(caption: &str, head: &[&str], rows: &[TableRow]) -> String {
    let mut out = format!(
        "<div class=\"scroll\"><table><caption>{}</caption>\n<thead><tr>",
        escape(caption)
    );
    for (i, name) in head.iter().enumerate() {
        let class = if i == 0 { "" } else { " class=\"number\"" };
        out += &format!("<th scope=\"col\"{class}>{}</th>", escape(name));
    }
    out += "</tr></thead>\n<tbody>\n";
    for row in rows {
        out += &if row.class.is_empty() {
            "<tr>".to_owned()
        } else {
            format!("<tr class=\"{}\">", row.class)
        };
        for (i, cell) in row.cells.iter().enumerate() {
            out += &if i == 0 {
                format!("<th scope=\"row\">{cell}</th>")
            } else {
                format!("<td class=\"number\">{cell}</td>")
            };
        }
        out += "</tr>\n";
    }
    out + "</tbody></table></div>\n"
}
