//! Rows of the tables of a page.

use dom_query::{Document, NodeRef};
use feedline_readers::{record::Record, value::Value};
use url::Url;

use super::{node_text::attribute, text_marks::shown_text};

/// Most columns a cell may span; as the HTML standard has it.
const MAX_SPAN: usize = 1_000;

/// Returns a record for each row below the header of each table that has one. The first row is a
/// header if all of its cells are `th` or it is in `thead`. Further rows of a `thead` belong to the
/// header too. A cell that spans several columns or rows counts in each of them. Also returns the
/// number of tables with text and without a header, except those around other tables.
pub(super) fn records(document: &Document, url: &Url) -> (Vec<Record>, u64) {
    let (mut records, mut headless) = (Vec::new(), 0);
    for (number, table) in document.select("table").nodes().iter().enumerate() {
        let mut rows = grid(table).into_iter().peekable();
        let mut header: Vec<Row> = Vec::new();
        while let Some(row) = rows.next_if(|row| match header.is_empty() {
            true => row.is_header,
            false => row.is_in_head,
        }) {
            header.push(row);
        }
        if header.is_empty() {
            let has_text = rows.any(|row| row.cells.iter().any(|cell| !cell.is_empty()));
            headless += u64::from(has_text && !has_table(table));
            continue;
        }
        let names = names(&header_texts(&header));
        for row in rows.filter(|row| !row.is_header) {
            records.push(record(url, number, &names, row));
        }
    }
    (records, headless)
}

/// Returns true for a table around another one.
fn has_table(table: &NodeRef<'_>) -> bool {
    table.descendants_it().any(|node| node.has_name("table"))
}

fn record(url: &Url, table: usize, names: &[String], row: Row) -> Record {
    let number = i64::try_from(table).unwrap_or(i64::MAX);
    if row.cells.len() > names.len() {
        return Record::Bad {
            raw: row.cells.join(" | "),
            reason: "ragged_row",
            detail: format!(
                "table {table} of {url}: {} cells, the header has {}",
                row.cells.len(),
                names.len()
            ),
        };
    }
    let mut entries = vec![
        ("url".to_owned(), Value::Text(url.to_string())),
        ("table".to_owned(), Value::Int(number)),
    ];
    let mut cells = row.cells.into_iter();
    entries.extend(names.iter().map(|name| {
        let cell = cells.next().filter(|cell| !cell.is_empty());
        (name.clone(), cell.map_or(Value::Null, Value::Cell))
    }));
    Record::Value(Value::Object(entries))
}

/// Texts of a header of several rows: for each column those from above to below, where one that spans rows counts once.
fn header_texts(rows: &[Row]) -> Vec<String> {
    let columns = rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
    let text = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.cells.get(column));
        let mut texts: Vec<&str> = cells
            .map(String::as_str)
            .filter(|cell| !cell.is_empty())
            .collect();
        texts.dedup();
        texts.join(" ")
    };
    (0..columns).map(text).collect()
}

/// Names of columns: the header cells. An empty one becomes `column_<number>`, and a repeated one
/// gets the suffix `_2` and so on.
fn names(header: &[String]) -> Vec<String> {
    let mut names: Vec<String> = vec!["url".into(), "table".into()];
    for (i, text) in header.iter().enumerate() {
        let base = if text.is_empty() {
            format!("column_{}", i + 1)
        } else {
            text.clone()
        };
        let numbered = (2..).map(|n| format!("{base}_{n}"));
        let name = std::iter::once(base.clone())
            .chain(numbered)
            .find(|name| !names.contains(name));
        names.extend(name);
    }
    names.split_off(2)
}

struct Row {
    cells: Vec<String>,
    is_header: bool,
    is_in_head: bool,
}

/// Returns the cells of a table, without those of nested tables.
fn grid(table: &NodeRef<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    // Cells that span further rows, by column: remaining rows, and their text.
    let mut hanging: Vec<(usize, String)> = Vec::new();
    for (row, in_head) in own_rows(table) {
        let mut cells = Vec::new();
        let mut all_head = true;
        for cell in row
            .children()
            .into_iter()
            .filter(|c| c.has_name("td") || c.has_name("th"))
        {
            all_head &= cell.has_name("th");
            fill(&mut cells, &mut hanging);
            let span = |name| {
                attribute(&cell, name)
                    .trim()
                    .parse()
                    .unwrap_or(1)
                    .clamp(1, MAX_SPAN)
            };
            let (columns, down, text) = (span("colspan"), span("rowspan"), shown_text(&cell));
            for _ in 0..columns.min(MAX_SPAN.saturating_sub(cells.len())) {
                let at = cells.len();
                if hanging.len() <= at {
                    hanging.resize(at + 1, (0, String::new()));
                }
                hanging[at] = (down - 1, text.clone());
                cells.push(text.clone());
            }
        }
        let has_own = !cells.is_empty();
        fill(&mut cells, &mut hanging);
        if has_own {
            rows.push(Row {
                cells,
                is_header: in_head || all_head,
                is_in_head: in_head,
            });
        }
    }
    rows
}

/// Adds spanning cells from above for the next columns.
fn fill(cells: &mut Vec<String>, hanging: &mut [(usize, String)]) {
    while let Some((left, text)) = hanging.get_mut(cells.len()).filter(|(left, _)| *left > 0) {
        *left -= 1;
        cells.push(text.clone());
    }
}

/// Rows of a table, and whether they are in its `thead`.
fn own_rows<'a>(table: &NodeRef<'a>) -> Vec<(NodeRef<'a>, bool)> {
    let mut rows = Vec::new();
    for part in table.children() {
        if part.has_name("tr") {
            rows.push((part, false));
            continue;
        }
        let in_head = part.has_name("thead");
        if in_head || part.has_name("tbody") || part.has_name("tfoot") {
            let own = part.children().into_iter().filter(|row| row.has_name("tr"));
            rows.extend(own.map(|row| (row, in_head)));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(html: &str, expected: &[&str]) {
        let url = Url::parse("http://h/").unwrap();
        let (found, _) = records(&Document::from(html), &url);
        let shown: Vec<_> = found
            .iter()
            .map(|record| match record {
                record @ (Record::Value(_) | Record::Json(_)) => {
                    record.canonical().replace(r#","url":"http://h/""#, "")
                }
                Record::Bad { reason, raw, .. } => format!("{reason}: {raw}"),
            })
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn rows_get_the_names_of_the_header() {
        check(
            "<table><tr><th>Currency<th>Rate\n EUR<th><th>Rate EUR</tr><tr><td>USD<td>1.1<td>x<td></table>\
             <table><tr><td>no header<tr><td>x</table>\
             <table><thead><tr><td>a</thead><tbody><tr><td>1<tr><td>2<td>3</table>",
            &[
                r#"{"Currency":"USD","Rate EUR":"1.1","Rate EUR_2":null,"column_3":"x","table":0}"#,
                r#"{"a":"1","table":2}"#,
                "ragged_row: 2 | 3",
            ],
        );
    }

    #[test]
    fn tables_without_a_header_are_counted_except_those_around_others() {
        let html = "<table><tr><th>a<tr><td>1</table><table><tr><td>x<tr><td>y</table>\
             <table><tr><td>z</table><table><tr><td></table>\
             <table><tr><td>layout <table><tr><th>b<tr><td>2</table></table>";
        let url = Url::parse("http://h/").unwrap();
        let (found, headless) = records(&Document::from(html), &url);
        assert_eq!((found.len(), headless), (2, 2));
    }

    #[test]
    fn spans_fill_the_cells_they_cover() {
        check(
            "<table><tr><th>a<th>b<th>c<tr><td rowspan=2>1<td colspan=2>2<tr><td>3<td>4<tr><td>5</table>",
            &[
                r#"{"a":"1","b":"2","c":"2","table":0}"#,
                r#"{"a":"1","b":"3","c":"4","table":0}"#,
                r#"{"a":"5","b":null,"c":null,"table":0}"#,
            ],
        );
    }

    #[test]
    fn a_cell_has_the_text_that_a_page_shows() {
        check(
            "<table><tr><th>a<br>b<th>c<tr><td>1<br>2<td><ins>1</ins><x-c>2</x-c><tr><td>1<br>2<td><span style='display:none'>0050</span>50<tr><td><p>3</p><p>4</p><td>\
             <i hidden>5</i></table>",
            &[
                r#"{"a b":"1 2","c":"12","table":0}"#,
                r#"{"a b":"1 2","c":"50","table":0}"#,
                r#"{"a b":"3 4","c":"5","table":0}"#,
            ],
        );
    }

    #[test]
    fn a_header_of_several_rows_names_columns_by_all_of_them() {
        check(
            "<table><thead><tr><th rowspan=2>day<th colspan=2>price<th>note</tr><tr><th>EUR<th>USD<th></tr></thead>\
             <tr><td>1<td>2<td>3<td>x<tr><th>day<th>EUR<th>USD<th>note</table>",
            &[r#"{"day":"1","note":"x","price EUR":"2","price USD":"3","table":0}"#],
        );
    }

    #[test]
    fn a_title_of_a_section_below_the_header_names_no_column() {
        check(
            "<table><tr><th>a<th>b<tr><th colspan=2>North<tr><td>1<td>2</table>",
            &[r#"{"a":"1","b":"2","table":0}"#],
        );
    }

    #[test]
    fn a_table_inside_a_table_is_one_of_its_own() {
        check(
            "<table><tr><th>a<tr><td>x <table><tr><th>b<tr><td>y</table></table>",
            &[r#"{"a":"x b y","table":0}"#, r#"{"b":"y","table":1}"#],
        );
    }
}
