//! Output of a preview.

use std::fmt::{self, Write as _};

use feedline_ingest::{ColumnPreview, SourcePreview};
use feedline_readers::value::one_line;
use serde::Serialize;

use super::text::{Text, counted, line, shortened, write_warnings};

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
        repeated: _,
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

#[cfg(test)]
mod tests {
    use super::*;

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
