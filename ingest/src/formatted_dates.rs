//! Dates in text columns that the dataset reads by a format of its own.

use std::collections::{BTreeMap, BTreeSet};

use feedline_schemas::{
    config::{DatasetConfig, PipelineConfig},
    report::Warning,
};

use crate::infer::LOOKS_LIKE_DATES;

/// Columns of times and times of day that a key of the dataset has a format for, by source. The key
/// needs their text, which `contract.dates` would replace.
#[derive(Clone, Debug, Default)]
pub struct FormattedDates(BTreeMap<String, BTreeSet<String>>);

impl FormattedDates {
    /// Finds the columns. The columns of a query are not those that land, and a source that has
    /// `contract.dates` has none.
    #[must_use]
    pub fn new(config: &PipelineConfig) -> Self {
        let mut found = Self::default();
        let datasets = config.dataset.iter();
        for dataset in datasets.filter(|dataset| dataset.sql.is_none()) {
            let own = own_sources(config, dataset);
            let series = dataset.series.iter();
            for series in series.filter(|series| series.format.is_some()) {
                found.add(&own, &series.time, series.clock.as_ref());
            }
            for join in &dataset.join {
                let joined = [join.source.as_str()];
                let right = join.right_time.as_ref().or(join.time.as_ref());
                let right = right.map(|time| (&joined[..], time));
                let times = join.time.iter().map(|time| (&own[..], time));
                let times = times.chain(right);
                for (sources, time) in times.filter(|(_, time)| time.format.is_some()) {
                    found.add(sources, &time.column, time.clock.as_ref());
                }
            }
        }
        let sources = config.source.iter();
        for source in sources.filter(|source| !source.contract.dates.is_empty()) {
            found.0.remove(source.name.as_str());
        }
        found
    }

    fn add(&mut self, sources: &[&str], time: &str, clock: Option<&String>) {
        for source in sources {
            let columns = self.0.entry((*source).to_owned()).or_default();
            columns.insert(time.to_owned());
            columns.extend(clock.cloned());
        }
    }

    /// Returns true for a warning of the source called `source` that dates land as text, if it is
    /// about these columns alone.
    #[must_use]
    pub fn cover(&self, source: &str, warning: &Warning) -> bool {
        let Some(columns) = self.0.get(source) else {
            return false;
        };
        let mut warned = warning.columns().peekable();
        warning.code == LOOKS_LIKE_DATES
            && warned.peek().is_some()
            && warned.all(|column| columns.contains(&column.name))
    }
}

/// Names of the sources whose records are rows of the dataset.
fn own_sources<'a>(config: &'a PipelineConfig, dataset: &'a DatasetConfig) -> Vec<&'a str> {
    if !dataset.sources.is_empty() {
        let tables = dataset.sources.iter();
        let records = tables.filter(|table| table.table.is_none());
        return records.map(|table| table.source.as_str()).collect();
    }
    let against = dataset.near_dup.iter().flat_map(|near| &near.against);
    let joined = dataset.join.iter().map(|join| &join.source);
    let beside: Vec<_> = joined.chain(against).collect();
    let sources = config.source.iter().map(|source| &source.name);
    let own = sources.filter(|name| !beside.contains(name));
    own.map(|name| name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use feedline_schemas::{config::load, report::WarnedColumn};

    use super::*;
    use crate::{
        context::Context,
        files::tests::Folder,
        ingest,
        testing::{self, traced},
    };

    /// Sources among `a`, `b` and `c` whose warning of the column `Date` a dataset with these `keys`
    /// covers.
    fn covered(contract: &str, keys: &str) -> String {
        let source = |name: &str| {
            format!(
                "[[source]]\nname = \"{name}\"\ntype = \"files\"\nurl = \"{name}.csv\"\n{contract}"
            )
        };
        let sources: String = ["a", "b", "c"].map(source).concat();
        let text = format!("[pipeline]\nname = \"p\"\n{sources}[dataset]\ntarget = \"y\"\n{keys}");
        let config = load("p.toml", &text, &[]).unwrap().config;
        let found = FormattedDates::new(&config);
        // Columns decide, whatever the message has.
        let about = |code: &str, names: &[&str]| {
            let columns = names.iter().map(|name| WarnedColumn::new(name));
            Warning::new(code, "dates land as text").with_columns(columns.collect())
        };
        let warning = about(LOOKS_LIKE_DATES, &["Date"]);
        let others = [
            about("local_times", &["Date"]),
            about(LOOKS_LIKE_DATES, &["Date", "Day"]),
            about(LOOKS_LIKE_DATES, &[]),
        ];
        let names = ["a", "b", "c"].into_iter();
        let names = names.filter(|name| {
            assert!(others.iter().all(|other| !found.cover(name, other)));
            found.cover(name, &warning)
        });
        names.collect()
    }

    #[test]
    fn formats_of_the_dataset_are_those_of_the_sources_that_it_reads_the_column_of() {
        let series = "series = { time = \"Date\", format = \"%d/%m/%Y\" }\n";
        assert_eq!(covered("", series), "abc");
        assert_eq!(covered("", &format!("sources = [\"b\"]\n{series}")), "b");
        assert_eq!(covered("", "series = { time = \"Date\" }\n"), "");
        let dates = "contract = { dates = [\"%d/%m/%Y\"] }\n";
        assert_eq!(covered(dates, series), "");
        let join = |times: &str| {
            covered(
                "",
                &format!(
                    "[[dataset.join]]\nsource = \"c\"\nleft = \"k\"\nmatch = \"asof\"\n{times}"
                ),
            )
        };
        let (date, at) = (
            "{ column = \"Date\", format = \"%d/%m/%Y\" }",
            "{ column = \"at\" }",
        );
        assert_eq!(join(&format!("time = {date}\n")), "abc");
        assert_eq!(join(&format!("time = {date}\nright_time = {at}\n")), "ab");
        assert_eq!(join(&format!("time = {at}\nright_time = {date}\n")), "c");
    }

    #[tokio::test]
    async fn a_trial_and_dates_that_the_dataset_reads_by_a_format_log_no_advice() {
        let days: String = (1..=28)
            .map(|day| format!("{day:02}/01/2024,{day}\n"))
            .collect();
        let folder = Folder::new(&[("a.csv", format!("Date,y\n{days}").as_bytes())]);
        for (format, is_trial, is_logged) in [
            ("", false, true),
            ("", true, false),
            (", format = \"%d/%m/%Y\"", false, false),
        ] {
            let text = format!(
                "[pipeline]\nname = \"p\"\n[[source]]\nname = \"a\"\ntype = \"files\"\nurl = \"{}\"\n\
                 [dataset]\ntarget = \"y\"\nseries = {{ time = \"Date\"{format} }}\n",
                folder.path("a.csv")
            );
            let config = load("p.toml", &text, &[]).unwrap().config;
            let context = Context {
                formatted_dates: Arc::new(FormattedDates::new(&config)),
                is_trial,
                ..testing::context()
            };
            let (lines, report) = traced(Box::pin(ingest(&config, None, &context))).await;
            let source = report.unwrap().sources.remove(0);
            let codes: Vec<_> = source.warnings.iter().map(|found| &found.code).collect();
            assert_eq!(codes, [LOOKS_LIKE_DATES]);
            assert_eq!(lines.contains("contract.dates"), is_logged, "{lines}");
        }
    }
}
