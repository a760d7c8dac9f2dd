//! Warnings of dates in text columns that the dataset reads by a format of its own.

use feedline_ingest::FormattedDates;
use feedline_schemas::{
    config::PipelineConfig,
    report::{IngestReport, Warning},
};

/// Removes the warnings of the source called `source` that its dates land as text, where the dataset
/// reads all columns that they name by a format: its keys need the text, which `contract.dates` would
/// replace. A source that has `contract.dates` keeps its warnings.
pub(crate) fn remove_warnings(config: &PipelineConfig, source: &str, warnings: &mut Vec<Warning>) {
    let formatted = FormattedDates::new(config);
    warnings.retain(|warning| !formatted.cover(source, warning));
}

/// The same for all sources of a report.
pub(crate) fn remove_warnings_of_report(config: &PipelineConfig, report: &mut IngestReport) {
    for source in &mut report.sources {
        remove_warnings(config, &source.name, &mut source.warnings);
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        config::load,
        report::{SourceReport, WarnedColumn},
    };

    use super::*;

    /// Codes of the warnings that are left of those about `columns`.
    fn left(contract: &str, series: &str, columns: &[&str]) -> Vec<String> {
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"a\"\ntype = \"files\"\nurl = \"a.csv\"\n{contract}\
             [dataset]\ntarget = \"y\"\nseries = {{ {series} }}\n"
        );
        let config = load("p.toml", &text, &[]).unwrap().config;
        let warning = |code: &str| {
            let columns = columns.iter().map(|name| WarnedColumn::new(name));
            Warning::new(code, "dates land as text").with_columns(columns.collect())
        };
        let mut report = IngestReport::default();
        report.sources.push(SourceReport {
            name: "a".to_owned(),
            warnings: vec![warning("looks_like_dates"), warning("local_times")],
            ..SourceReport::default()
        });
        remove_warnings_of_report(&config, &mut report);
        let source = report.sources.remove(0);
        let warnings = source.warnings.into_iter();
        warnings.map(|warning| warning.code).collect()
    }

    #[test]
    fn dates_that_the_format_of_series_reads_need_no_format_of_their_source() {
        let (both, other) = (["looks_like_dates", "local_times"], ["local_times"]);
        let format = "time = \"Date\", clock = \"Time\", format = \"%d/%m/%Y %H:%M:%S\"";
        assert_eq!(left("", format, &["Date"]), other);
        assert_eq!(left("", "time = \"Date\"", &["Date"]), both);
        assert_eq!(left("", format, &["Date", "Born"]), both);
        assert_eq!(left("", format, &["Born"]), both);
        let dates = "[source.contract]\ndates = [\"%d/%m/%Y\"]\n";
        assert_eq!(left(dates, format, &["Date"]), both);
    }
}
