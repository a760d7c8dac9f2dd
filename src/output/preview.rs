//! Output of a preview.

use std::fmt::{self, Write as _};

use feedline_ingest::{ColumnPreview, NumberEvidence, SourcePreview};
use feedline_readers::value::one_line;
use serde::Serialize;

use super::text::{Text, counted, line, shortened, write_warnings};

/// Most columns in the table of separators.
const MOST_SEPARATORS: usize = 20;

/// Columns of sources as they would land.
#[derive(Debug, Serialize)]
pub(crate) struct PreviewReport {
    pub(crate) sources: Vec<SourcePreview>,
}

impl Text for PreviewReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "preview: nothing is landed or written")?;
        self.sources
            .iter()
            .try_for_each(|source| write_preview(source, out))
    }
}

fn write_preview(preview: &SourcePreview, out: &mut String) -> fmt::Result {
    let SourcePreview {
        source,
        rows,
        is_all,
        bad,
        bad_sample,
        decided,
        rejected,
        rejected_sample,
        stop,
        columns,
        landed,
        children,
        records,
        warnings,
        error,
        ..
    } = preview;
    if let Some(error) = error {
        return line(out, source, error);
    }
    if columns.is_empty() && *bad == 0 && children.values().all(|items| *items == 0) {
        let text = match is_all {
            true => "no row: the data are empty, or have a header line alone",
            false => "no row in what was looked at, and there is more to read",
        };
        line(out, source, text)?;
        return write_warnings(warnings, out);
    }
    let which = match is_all {
        true => "all there are",
        false => "a sample",
    };
    let types = match landed {
        0 => "",
        _ => "; landed columns keep their types",
    };
    line(
        out,
        source,
        format!(
            "{} in {} ({which}){types}",
            counted(columns.len() as u64, "column"),
            counted(*rows, "row")
        ),
    )?;
    let names = columns.iter().map(|column| one_line(&column.name));
    let width = names.map(|name| name.chars().count());
    let width = width.max().unwrap_or_default().min(40);
    for column in columns {
        write_column(column, *rows, width, out)?;
    }
    write_separators(columns, out)?;
    for (table, items) in children {
        let (items, records) = (counted(*items, "row"), counted(*decided, "record"));
        let text = format!("`{table}`: {items} from the first {records}");
        line(out, "  child table", text)?;
    }
    for record in records {
        writeln!(out, "    {}", one_line(record))?;
    }
    if *bad > 0 {
        let sample = bad_sample.as_deref().unwrap_or_default();
        line(
            out,
            "  rejected",
            format!("{bad}, such as {}", shortened(sample)),
        )?;
    }
    if *rejected > 0 {
        let sample = shortened(rejected_sample.as_deref().unwrap_or_default());
        let text = format!("{rejected} of the first {decided} by the contract, such as {sample}");
        line(out, "  rejected", text)?;
    }
    if let Some(stop) = stop {
        line(out, "  a run fails", stop)?;
    }
    write_warnings(warnings, out)
}

fn write_column(column: &ColumnPreview, rows: u64, width: usize, out: &mut String) -> fmt::Result {
    let ColumnPreview {
        name,
        r#type,
        missing,
        samples,
        ..
    } = column;
    let lacking = match *missing {
        0 => String::new(),
        missing => format!("{missing} of {rows} missing"),
    };
    let samples: Vec<String> = samples.iter().map(|text| format!("`{text}`")).collect();
    let samples = samples.join(", ");
    let (name, samples) = (one_line(name), one_line(&samples));
    let text = format!("    {name:<width$}  {type:<9}  {lacking:<24}  {samples}");
    writeln!(out, "{}", text.trim_end())
}

/// Table of the columns whose numbers depend on separators.
fn write_separators(columns: &[ColumnPreview], out: &mut String) -> fmt::Result {
    let found = columns.iter().filter_map(|column| {
        let numbers = column.numbers.as_ref()?;
        Some(describe_separators(column, numbers))
    });
    let mut rows: Vec<[String; 5]> = found.collect();
    if rows.is_empty() {
        return Ok(());
    }
    let more = rows.len().saturating_sub(MOST_SEPARATORS);
    rows.truncate(MOST_SEPARATORS);
    let head = ["separators in", "type", "decimal", "thousands", "example"].map(str::to_owned);
    rows.insert(0, head);
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.max().unwrap_or_default()
    };
    let [name_width, type_width] = [width(0).min(40), width(1)];
    for [name, r#type, decimal, thousands, example] in &rows {
        let text = format!(
            "    {name:<name_width$}  {type:<type_width$}  {decimal:<7}  {thousands:<9}  {example}"
        );
        writeln!(out, "{}", one_line(&text))?;
    }
    if more > 0 {
        let columns = counted(more as u64, "more column");
        writeln!(out, "    and {columns}, which `--json` shows")?;
    }
    Ok(())
}

/// Cells of the table for one column.
fn describe_separators(column: &ColumnPreview, numbers: &NumberEvidence) -> [String; 5] {
    let declared = match numbers.is_type_declared {
        true => " (declared)",
        false => "",
    };
    let shown = |sign: Option<char>| match (sign, &numbers.decimal_separator) {
        (Some(sign), _) => format!("`{sign}`"),
        (None, Some(_)) => "none".to_owned(),
        (None, None) => "-".to_owned(),
    };
    let place = numbers.place.as_ref();
    let place = place.map_or_else(String::new, |place| format!(" in {place}"));
    let number = match &numbers.number {
        Some(number) => format!("is read as {number}"),
        None if numbers.decimal_separator.is_some() => "is no number".to_owned(),
        None => "stays text".to_owned(),
    };
    [
        column.name.clone(),
        format!("{}{declared}", column.r#type),
        shown(numbers.decimal_separator),
        shown(numbers.thousands_separator),
        format!("`{}`{place} {number}; {}", numbers.cell, numbers.reason),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_of_numbers_are_in_a_table_with_the_evidence_and_an_example() {
        let column = |name: &str, r#type, numbers: Option<NumberEvidence>| ColumnPreview {
            name: name.into(),
            r#type,
            numbers,
            ..ColumnPreview::default()
        };
        let read = NumberEvidence {
            is_type_declared: true,
            decimal_separator: Some(','),
            thousands_separator: Some('.'),
            reason: "declared; 412 values with a decimal comma such as `1.234,56`".into(),
            cell: "3.287".into(),
            place: Some("line 7 of `b.csv`".into()),
            number: Some("3287".into()),
        };
        let default = NumberEvidence {
            decimal_separator: Some('.'),
            reason: "default; 2 values with an ambiguous point such as `1.234`".into(),
            cell: "1.234".into(),
            number: Some("1.234".into()),
            ..NumberEvidence::default()
        };
        let text = NumberEvidence {
            reason: "20 values with a decimal comma such as `88,54`".into(),
            cell: "88,\n54".into(),
            ..NumberEvidence::default()
        };
        let mut columns = vec![
            column("price", "float", Some(read)),
            column("id", "int", None),
            column("load", "float", Some(default)),
            column("codes", "text", Some(text.clone())),
        ];
        let mut out = String::new();
        write_separators(&columns, &mut out).unwrap();
        let expected = "    separators in  type              decimal  thousands  example
    price          float (declared)  `,`      `.`        `3.287` in line 7 of `b.csv` is read as 3287; \
declared; 412 values with a decimal comma such as `1.234,56`
    load           float             `.`      none       `1.234` is read as 1.234; \
default; 2 values with an ambiguous point such as `1.234`
    codes          text              -        -          `88,\\n54` stays text; \
20 values with a decimal comma such as `88,54`
";
        assert_eq!(out, expected);
        columns.extend((0..20).map(|i| column(&format!("c{i}"), "text", Some(text.clone()))));
        out.clear();
        write_separators(&columns, &mut out).unwrap();
        assert!(
            out.ends_with("    and 3 more columns, which `--json` shows\n"),
            "{out}"
        );
        out.clear();
        write_separators(&columns[1..2], &mut out).unwrap();
        assert_eq!(out, "");
    }

    #[test]
    fn columns_stand_in_a_table() {
        let column = |name: &str, r#type, missing, samples: &[&str]| ColumnPreview {
            name: name.into(),
            r#type,
            missing,
            samples: samples.iter().map(|text| (*text).to_owned()).collect(),
            ..ColumnPreview::default()
        };
        let report = PreviewReport {
            sources: vec![
                SourcePreview {
                    source: "houses".into(),
                    rows: 20,
                    decided: 3,
                    children: [("items".to_owned(), 12), ("parts".to_owned(), 1)].into(),
                    records: vec!["{\"a\":\"\u{85}\"}".into()],
                    is_all: true,
                    columns: vec![
                        column("Price", "int", 0, &["1", "2"]),
                        column("pm2\\.5", "float", 3, &["0.5"]),
                        column("a\nb", "text", 0, &["x\r\ny", "\u{1b}[1m"]),
                    ],
                    ..SourcePreview::default()
                },
                SourcePreview {
                    source: "gone".into(),
                    error: Some("there is no file".into()),
                    ..SourcePreview::default()
                },
            ],
        };
        let mut out = String::new();
        report.write(&mut out).unwrap();
        let expected = "preview: nothing is landed or written
  houses           3 columns in 20 rows (all there are)
    Price   int                                  `1`, `2`
    pm2\\.5  float      3 of 20 missing           `0.5`
    a\\nb    text                                 `x\\r\\ny`, `\\u{1b}[1m`
    child table    `items`: 12 rows from the first 3 records
    child table    `parts`: 1 row from the first 3 records
    {\"a\":\"\\u{85}\"}
  gone             there is no file
";
        assert_eq!(out, expected);
    }
}
