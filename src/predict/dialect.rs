//! Format of new rows: that of the dataset's sources.

use std::path::Path;

use anyhow::{anyhow, bail};
use feedline_readers::file_format::{Kind, named};
use feedline_schemas::config::{
    ArchiveConfig, ColumnContract, ContractConfig, CsvConfig, DeclaredType, FileFormat,
    PipelineConfig, SourceConfig,
};

/// Dialect of new rows of CSV: that of the files of `sources`. A source of another format has no
/// say, unless all are. `is_csv` is true if the new rows are known to be CSV.
///
/// # Errors
/// CSV, and sources with different dialects: the one of the new rows is unknown.
pub(super) fn csv_dialect<'a>(
    sources: impl Iterator<Item = &'a SourceConfig> + Clone,
    is_csv: bool,
) -> anyhow::Result<CsvConfig> {
    let mut own: Vec<&SourceConfig> = sources.clone().filter(|source| has_csv(source)).collect();
    if own.is_empty() {
        own = sources.collect();
    }
    let null_values = own.iter().flat_map(|source| source.csv.null_values.clone());
    let null_values = null_values.collect();
    let mut delimiters: Vec<&String> = own
        .iter()
        .filter_map(|source| source.csv.delimiter.as_ref())
        .collect();
    delimiters.sort_unstable();
    delimiters.dedup();
    let delimiter = match delimiters[..] {
        [one] => Some(one.clone()),
        _ => None,
    };
    let different = own.split_first().and_then(|(first, others)| {
        let mut others = others.iter();
        others.find_map(|other| Some((first, other, differing_key(&first.csv, &other.csv)?)))
    });
    let dialect = match (different, own.first()) {
        (Some((first, other, key)), _) if is_csv => bail!(
            "the sources `{}` and `{}` of the dataset differ in `{key}`, so it is unknown how a CSV file of new rows is \
             written; give the new rows as NDJSON or Parquet, or make the sources alike",
            first.name,
            other.name
        ),
        (None, Some(first)) => first.csv.clone(),
        _ => CsvConfig::default(),
    };
    Ok(CsvConfig {
        delimiter,
        null_values,
        ..dialect
    })
}

/// The error of different dialects with the advice to list sources. A query needs all of its own.
pub(super) fn advise_sources(error: &anyhow::Error, has_query: bool) -> anyhow::Error {
    let advice = match has_query {
        true => "",
        false => ", or list those that the rows come from in `dataset.sources`",
    };
    anyhow!("{error}{advice}")
}

/// The dialect with numbers as programs write them: that of rows which no source has.
pub(super) fn with_plain_numbers(csv: CsvConfig) -> CsvConfig {
    CsvConfig {
        decimal_separator: None,
        thousands_separator: None,
        percent: false,
        currency: None,
        ..csv
    }
}

/// The part of the source's contract that rows of a query have: its date formats and that of the result,
/// and the columns that are declared as text, whose cells are in no format of numbers.
pub(super) fn query_contract(source: &SourceConfig) -> ContractConfig {
    let columns = source.contract.column.iter();
    let texts = columns.filter(|(_, column)| column.r#type == Some(DeclaredType::Text));
    let as_text = |name: &String| {
        let column = ColumnContract {
            r#type: Some(DeclaredType::Text),
            ..ColumnContract::default()
        };
        (name.clone(), column)
    };
    ContractConfig {
        dates: row_dates(source),
        column: texts.map(|(name, _)| as_text(name)).collect(),
        ..ContractConfig::default()
    }
}

/// Contract of rows of the result of a query over `source` that land in a folder of their own: its date
/// formats, and ISO 8601 as the result has it. The types are those of the result.
pub(super) fn query_row_contract(source: &SourceConfig) -> ContractConfig {
    ContractConfig {
        dates: row_dates(source),
        ..ContractConfig::default()
    }
}

/// Contract of rows as `source` has them that land in a folder of their own: that of the source, and
/// RFC 3339 beside its date formats.
pub(super) fn row_contract(source: &SourceConfig) -> ContractConfig {
    ContractConfig {
        dates: row_dates(source),
        ..source.contract.clone()
    }
}

/// Date formats of new rows of the dataset of `config`: those of the sources that its rows come from.
pub(crate) fn dates_of_rows(config: &PipelineConfig) -> Vec<String> {
    let dataset = config.dataset.as_ref();
    let has_files = dataset.is_some_and(|dataset| dataset.files.is_some());
    let is_own = |source: &&SourceConfig| {
        !has_files && dataset.is_none_or(|dataset| super::is_own(dataset, &source.name))
    };
    let mut dates = Vec::new();
    for format in config.source.iter().filter(is_own).flat_map(row_dates) {
        if !dates.contains(&format) {
            dates.push(format);
        }
    }
    dates
}

/// Date formats of new rows as `source`, or a query over it, has them: its own, and RFC 3339 unless one of
/// them reads such cells in another way. Without any, RFC 3339 is the only one.
fn row_dates(source: &SourceConfig) -> Vec<String> {
    let mut dates = source.contract.dates.clone();
    let is_settled = |format: &String| format == "rfc3339" || format.contains("%Y-%d");
    if !dates.is_empty() && !dates.iter().any(is_settled) {
        dates.push("rfc3339".to_owned());
    }
    dates
}

/// Path of the rows in a document of JSON: that of all `sources` with one, if they agree.
pub(super) fn records<'a>(sources: impl Iterator<Item = &'a SourceConfig>) -> String {
    let mut paths: Vec<&String> = sources
        .map(|source| &source.records)
        .filter(|path| !path.is_empty())
        .collect();
    paths.dedup();
    match paths[..] {
        [one] => one.clone(),
        _ => String::new(),
    }
}

/// Bounds of compressed files: the widest of `sources`.
pub(super) fn archive<'a>(sources: impl Iterator<Item = &'a SourceConfig>) -> ArchiveConfig {
    let widest = sources.max_by_key(|source| source.archive.max_ratio.get());
    widest
        .map(|source| source.archive.clone())
        .unwrap_or_default()
}

/// Returns true if the new rows at `place` are CSV, by the option `--format` or by their name.
pub(super) fn is_csv(format: FileFormat, place: Option<&str>) -> bool {
    let file = place.filter(|place| !Path::new(place).is_dir());
    is_csv_file(format, file.unwrap_or_default())
}

/// Returns true if the format of the file `name` lists its columns before its rows.
pub(super) fn lists_columns(format: FileFormat, name: &str) -> bool {
    let kind = named(name, format, None).map(|(kind, _)| kind);
    matches!(kind, Some(Kind::Csv { .. } | Kind::Parquet | Kind::Arrow))
}

/// Returns false for a file `name` of another format than CSV. An archive may hold CSV.
pub(super) fn may_hold_csv(format: FileFormat, name: &str) -> bool {
    let kind = named(name, format, None).map(|(kind, _)| kind);
    !matches!(
        kind,
        Some(Kind::Json | Kind::Ndjson | Kind::Parquet | Kind::Arrow)
    )
}

fn is_csv_file(format: FileFormat, name: &str) -> bool {
    matches!(named(name, format, None), Some((Kind::Csv { .. }, _)))
}

/// Returns true for a source that reads CSV, by its settings or by its URL.
fn has_csv(source: &SourceConfig) -> bool {
    if source.csv != CsvConfig::default() {
        return true;
    }
    let path = source.url.split(['?', '#']).next().unwrap_or_default();
    is_csv_file(source.format, path)
}

/// Key of `csv` with different values, other than the delimiter, which is detected, and
/// `null_values`, which are united.
fn differing_key(one: &CsvConfig, other: &CsvConfig) -> Option<&'static str> {
    [
        (one.header != other.header, "csv.header"),
        (one.columns != other.columns, "csv.columns"),
        (one.encoding != other.encoding, "csv.encoding"),
        (one.quote != other.quote, "csv.quote"),
        (one.escape != other.escape, "csv.escape"),
        (one.comment != other.comment, "csv.comment"),
        (one.skip_rows != other.skip_rows, "csv.skip_rows"),
        (
            one.decimal_separator != other.decimal_separator,
            "csv.decimal_separator",
        ),
        (
            one.thousands_separator != other.thousands_separator,
            "csv.thousands_separator",
        ),
        (one.percent != other.percent, "csv.percent"),
        (one.currency != other.currency, "csv.currency"),
        (
            one.null_spellings != other.null_spellings,
            "csv.null_spellings",
        ),
    ]
    .into_iter()
    .find_map(|(is_different, key)| is_different.then_some(key))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    fn pipeline(sources: &[(&str, &str)]) -> PipelineConfig {
        let mut text = "[pipeline]\nname = \"p\"\n".to_owned();
        for (number, (url, csv)) in sources.iter().enumerate() {
            text += &format!(
                "[[source]]\nname = \"s{number}\"\ntype = \"files\"\nurl = \"{url}\"\n{csv}\n"
            );
        }
        load("p.toml", &text, &[]).unwrap().config
    }

    #[test]
    fn new_rows_of_csv_have_the_dialect_of_the_sources() {
        let dialect = "csv = { quote = \"'\", comment = \"#\", skip_rows = 2, header = false, columns = [\"a\"], encoding = \"latin-1\" }";
        let config = pipeline(&[("a.csv", dialect), ("b.ndjson", "")]);
        let read = csv_dialect(config.source.iter(), true).unwrap();
        assert_eq!(
            (read.quote.as_deref(), read.comment.as_deref()),
            (Some("'"), Some("#"))
        );
        assert_eq!((read.skip_rows, read.header), (2, false));
        assert_eq!(read.columns, ["a"]);
        assert_eq!(read.encoding.as_deref(), Some("latin-1"));
    }

    #[test]
    fn csv_of_an_unknown_dialect_is_refused() {
        let config = pipeline(&[("a.csv", "csv = { quote = \"'\" }"), ("b.csv", "")]);
        let error = csv_dialect(config.source.iter(), true).unwrap_err();
        for (has_query, end) in [(true, "alike"), (false, "in `dataset.sources`")] {
            let error = advise_sources(&error, has_query).to_string();
            assert!(error.contains("differ in `csv.quote`"), "{error}");
            assert!(error.ends_with(end), "{error}");
        }
        // Rows of another format have no dialect.
        assert!(csv_dialect(config.source.iter(), false).is_ok());
        assert!(is_csv(FileFormat::Auto, Some("new.csv.gz")) && is_csv(FileFormat::Csv, None));
        assert!(!is_csv(FileFormat::Auto, Some("new.ndjson")) && !is_csv(FileFormat::Auto, None));
        // One delimiter of several is found in the file.
        let config = pipeline(&[
            ("a.csv", "csv = { delimiter = \";\" }"),
            ("b.csv", "csv = { delimiter = \"|\" }"),
        ]);
        let read = csv_dialect(config.source.iter(), true).unwrap();
        assert_eq!(read.delimiter, None);
    }

    #[test]
    fn tables_list_their_columns_and_objects_do_not() {
        for (format, name, expected) in [
            (FileFormat::Auto, "/t/rows-a.csv", true),
            (FileFormat::Auto, "/t/rows-a.tsv.gz", true),
            (FileFormat::Auto, "/t/rows-a.parquet", true),
            (FileFormat::Csv, "/t/rows.txt", true),
            (FileFormat::Auto, "/t/rows-a.ndjson", false),
            (FileFormat::Json, "/t/rows.csv", false),
        ] {
            assert_eq!(lists_columns(format, name), expected, "{name}");
        }
    }

    #[test]
    fn rows_of_a_query_have_the_date_formats_of_its_sources_and_rows_of_files_plain_numbers() {
        let keys = "csv = { delimiter = \";\", decimal_separator = \",\", thousands_separator = \".\", percent = true, \
                    currency = \"$\" }\ncontract = { dates = [\"%d.%m.%Y\"], types = \"null_value\", \
                    column = { code = { type = \"text\", types = \"freeze\" }, n = { type = \"int\" } } }";
        let config = pipeline(&[("a.csv", keys)]);
        let contract = query_contract(&config.source[0]);
        // The result has its timestamps in ISO 8601.
        assert_eq!(contract.dates, ["%d.%m.%Y", "rfc3339"]);
        assert_eq!(contract.types, ContractConfig::default().types);
        let declared = contract.column.iter();
        let declared = declared.map(|(name, own)| (name.as_str(), own.r#type, own.types));
        let expected = [("code", Some(DeclaredType::Text), None)];
        assert_eq!(declared.collect::<Vec<_>>(), expected);
        let plain = with_plain_numbers(csv_dialect(config.source.iter(), true).unwrap());
        let delimited = CsvConfig {
            delimiter: Some(";".to_owned()),
            ..CsvConfig::default()
        };
        assert_eq!(plain, delimited);
    }

    #[test]
    fn times_of_rfc_3339_are_read_beside_declared_formats_but_one_that_differs() {
        let dates = |dates: &str| {
            let keys = format!("contract.dates = {dates}\ncontract.types = \"null_value\"");
            let config = pipeline(&[("a.csv", &keys), ("b.csv", &keys)]);
            let contract = row_contract(&config.source[0]);
            assert_eq!(contract.types, config.source[0].contract.types);
            // Each format is named once.
            assert_eq!(dates_of_rows(&config), contract.dates);
            contract.dates
        };
        assert_eq!(dates("[\"%Y-%m-%d\"]"), ["%Y-%m-%d", "rfc3339"]);
        assert_eq!(
            dates("[\"rfc3339\", \"%d.%m.%Y\"]"),
            ["rfc3339", "%d.%m.%Y"]
        );
        assert_eq!(dates("[\"%Y-%d-%m\"]"), ["%Y-%d-%m"]);
        assert!(dates("[]").is_empty());
    }

    #[test]
    fn the_widest_bound_of_a_compressed_file_holds() {
        let bound = |ratio: u32| format!("archive = {{ max_ratio = {ratio} }}");
        let (low, high) = (bound(50), bound(900));
        let config = pipeline(&[("a.csv", &low), ("b.csv", &high), ("c.csv", &low)]);
        assert_eq!(archive(config.source.iter()).max_ratio.get(), 900);
        assert_eq!(archive([].iter()), ArchiveConfig::default());
    }

    #[test]
    fn a_document_of_new_rows_has_the_path_that_all_sources_have() {
        let path = |sources: &[(&str, &str)]| records(pipeline(sources).source.iter());
        assert_eq!(path(&[("a.json", "records = 'd'"), ("b.csv", "")]), "d");
        let two = [("a.json", "records = 'd'"), ("b.json", "records = 'e'")];
        assert_eq!(path(&two), "");
    }
}
