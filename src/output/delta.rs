//! Report of `feedline ingest delta`, and Delta tables in `ingest status`.

use std::fmt::{self, Write as _};

use feedline_schemas::report::{DeltaReport, DeltaTableReport};

use super::text::{Text, grouped, grouped_as, line, write_warnings};

impl Text for DeltaReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        let rebuilt = if self.rebuilt {
            " (written again from the commit log)"
        } else {
            ""
        };
        writeln!(out, "delta{rebuilt}")?;
        if self.tables.is_empty() {
            line(out, "no tables", "nothing has landed yet")?;
        }
        for table in &self.tables {
            let text = format!("{}, {}", grouped_as(table.files, "file"), position(table));
            line(out, &table.table, text)?;
            line(out, "  table", &table.url)?;
            if table.copies > 0 {
                let text = format!(
                    "{} written again as {} bytes: their columns have wider types by now",
                    grouped_as(table.copies, "file"),
                    grouped(table.copied_bytes)
                );
                line(out, "  copied", text)?;
            }
            write_warnings(&table.warnings, out)?;
        }
        Ok(())
    }
}

/// Writes the Delta tables of a source.
pub(super) fn write_tables(tables: &[DeltaTableReport], out: &mut String) -> fmt::Result {
    for table in tables {
        let text = match &table.problem {
            Some(problem) => format!("`{}`: {problem}", table.table),
            None => format!("`{}`: {}", table.table, position(table)),
        };
        line(out, "  delta", text)?;
    }
    Ok(())
}

fn position(table: &DeltaTableReport) -> String {
    let version = table.version.unwrap_or_default();
    let sequence = table.sequence.unwrap_or_default();
    match table.behind {
        0 => format!("version {version}, up to entry {sequence}"),
        behind => format!(
            "version {version}, up to entry {sequence}, {} behind: run `feedline ingest delta`",
            grouped_as(behind, "entry")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_is_behind_names_the_command_that_brings_it_up() {
        let table = DeltaTableReport {
            table: "rates".into(),
            version: Some(4),
            sequence: Some(4),
            behind: 3,
            ..DeltaTableReport::default()
        };
        let mut out = String::new();
        write_tables(&[table], &mut out).unwrap();
        assert!(out.contains("3 entries behind"), "{out}");
        assert!(out.contains("feedline ingest delta"), "{out}");
    }
}
