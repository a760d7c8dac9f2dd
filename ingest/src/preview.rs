//! The columns of sources as the next run would land them.

mod dry_run;
mod early_warnings;
mod landed_columns;
mod masked;
mod requested_columns;

use std::collections::BTreeMap;

use feedline_http::SecretMasks;
use feedline_readers::{record::Record, remedy::Remedy};
use feedline_schemas::{
    commit::Position,
    config::{Bounded, PipelineConfig, SourceConfig},
    ids::Name,
    record::{ColumnType, split_path},
    report::{Warning, replace_warning},
};
use serde::Serialize;

pub use self::requested_columns::refused_columns;
use self::{
    dry_run::{DryRun, dry_run},
    early_warnings::{source_warnings, warn_of_alike_columns},
    landed_columns::{LandedColumns, read_landed},
};
use crate::{
    blocking::computing,
    children::tables,
    context::Context,
    error::Error,
    infer::{
        DistinctValues, Inferred, LargeIntegers, NumberEvidence, SeparatorSamples, Survey, Types,
    },
    run::open,
    settings::choose,
    source::{Page, Source},
    source_table::unit_of,
    source_type::ReadUnit,
    warnings::NEXT_PAGE_NOT_REQUESTED,
};

/// Most records, bytes and files that are read of files without a sample.
const MAX_RECORDS: usize = 4096;
const MAX_BYTES: u64 = 32 << 20;
const MAX_FILES: usize = 64;

/// The source with at most 4 tries of a request: a person waits for the result.
pub(crate) fn with_few_tries(config: &SourceConfig) -> SourceConfig {
    let mut config = config.clone();
    config.retry.max_tries = config.retry.max_tries.min(Bounded::literal::<4>());
    config
}

/// Columns of a source in the examined records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourcePreview {
    /// Source name.
    pub source: String,
    /// Number of examined records.
    pub rows: u64,
    /// True if the source has no other records.
    pub is_all: bool,
    /// Count of items that are not records, such as a row of another length than the header.
    pub bad: u64,
    /// A bad record: reason and place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bad_sample: Option<String>,
    /// Number of records that the contract was asked about: those of the first page, or of the first
    /// files; of files that have landed, those that the next run reads first, if there are any.
    pub decided: u64,
    /// Number of records among the `decided` ones that the contract would reject.
    pub rejected: u64,
    /// One of them: reason, details and record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected_sample: Option<String>,
    /// Error that would end a run: in these records, or at a sampled file that cannot be opened, if nothing has landed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    /// Number of records that are equal to one before, up to the 10,000th distinct one.
    #[serde(skip)]
    pub repeated: u64,
    /// Number of records of earlier runs that have landed or are rejected.
    #[serde(skip)]
    pub landed: u64,
    /// True if `csv.thousands_separator = "."`, with the decimal comma, reads numbers that land as text.
    #[serde(skip)]
    pub has_grouped_commas: bool,
    /// Columns in the order of their first appearance, without lists that land as child tables.
    pub columns: Vec<ColumnPreview>,
    /// Rows of each child table (`contract.children`) in the `decided` records that would land.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<String, u64>,
    /// First records as JSON, keys in byte order, at most the requested number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<String>,
    /// Warnings about decisions to review.
    pub warnings: Vec<Warning>,
    /// Reason that no preview is available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Settings that the error names.
    #[serde(skip)]
    pub remedies: Vec<Remedy>,
    /// True if the error is that of a server that refuses the credentials, or their absence.
    #[serde(skip)]
    pub is_denied: bool,
}

/// A column as it would land.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ColumnPreview {
    /// Name, as used in `contract.column` and in the landing zone.
    pub name: String,
    /// Type by its name in `contract.column.<name>.type`; `undecided` if no value shows it.
    pub r#type: &'static str,
    /// Records in which it is null, absent, or a spelling of a missing value.
    pub missing: u64,
    /// A few of its values.
    pub samples: Vec<String>,
    /// Values that are not missing among the examined records, up to the 10,000th distinct one.
    pub compared: u64,
    /// Count of distinct values among the `compared` ones.
    pub distinct: u64,
    /// True if its integers number the rows of each group: they count up by one and restart.
    #[serde(skip)]
    pub numbers_rows: bool,
    /// True if its integers count up by one in most rows and begin again, as the index of each file does.
    #[serde(skip)]
    pub restarts_index: bool,
    /// True if its integers rise from row to row, with or without gaps, and seldom begin again.
    #[serde(skip)]
    pub has_rising_index: bool,
    /// Lines of `csv`, such as `currency = "$"`, that read this text column as numbers.
    #[serde(skip)]
    pub number_settings: Vec<String>,
    /// Cells that show its decimal separator, or leave it open.
    #[serde(skip)]
    pub separators: SeparatorSamples,
    /// Evidence for the separators of its cells, if its type or its numbers depend on them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numbers: Option<NumberEvidence>,
    /// True for numbers with a decimal comma in some rows and a decimal point in others.
    #[serde(skip)]
    pub has_mixed_decimals: bool,
    /// True for strings, other than CSV cells, that are dates or times of ISO 8601.
    #[serde(skip)]
    pub are_times: bool,
    /// Number of records with each value that is not missing, if there are at most 64 short ones.
    #[serde(skip)]
    pub value_counts: Option<BTreeMap<String, u64>>,
    /// Integers that no 64-bit float holds, in a column of integers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub large_integers: Option<LargeIntegers>,
    /// Type of the column in the landing zone; none if no value shows it.
    #[serde(skip)]
    pub column_type: Option<ColumnType>,
}

/// Previews the sources, or only the source `only`, with their first `rows` records; lands and
/// writes nothing. Secrets of a source that it repeats in records are masked. For `files` it reads the sample for type inference, and of files without one,
/// such as texts, up to 64 files; for other sources it reads their first page. A request is tried at
/// most 4 times, or `retry.max_tries` if that is less. Columns that have landed below the root keep
/// their types, and the contract decides about records as in the next run.
///
/// ```
/// use feedline_ingest::preview;
/// use feedline_schemas::{config::load, record::ColumnType};
///
/// # #[derive(Debug)]
/// # struct NoSecrets;
/// # impl feedline_ingest::Secrets for NoSecrets {
/// #     fn resolve(&self, _: &feedline_schemas::config::SecretRef) -> Result<String, String> {
/// #         Err("there are no secrets".to_owned())
/// #     }
/// # }
/// # let context = feedline_ingest::Context {
/// #     root: feedline_storage::Store::memory(),
/// #     store_options: feedline_storage::StoreOptions::default(),
/// #     progress: std::sync::Arc::new(feedline_schemas::progress::Silent),
/// #     clock: std::sync::Arc::new(feedline_storage::clock::SystemClock),
/// #     secrets: std::sync::Arc::new(NoSecrets),
/// #     hosts: std::sync::Arc::default(),
/// #     metrics: std::sync::Arc::default(),
/// #     formatted_dates: std::sync::Arc::default(),
/// #     is_trial: false,
/// #     run_id: "run".to_owned(),
/// #     delta: false,
/// #     cancel: tokio::sync::watch::channel(false).1,
/// # };
/// # let folder = tempfile::tempdir()?;
/// # let file = folder.path().join("trades.csv");
/// # let text = format!(
/// #     "[pipeline]\nname = 'p'\n[[source]]\nname = 's'\ntype = 'files'\nurl = '{}'\n\
/// #      csv = {{ delimiter = ';', decimal_separator = ',' }}\n", file.display()
/// # );
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// // The source has `csv = { delimiter = ";", decimal_separator = "," }`.
/// std::fs::write(&file, "id;price\n1;9,5\n2;8,25\n")?;
/// let config = load("p.toml", &text, &[])?.config;
/// let previews = preview(&config, None, 1, &context).await?;
/// let price = &previews[0].columns[1];
/// assert_eq!(price.name, "price");
/// assert_eq!(price.column_type, Some(ColumnType::Float64));
/// assert_eq!((previews[0].rows, previews[0].records.len()), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Config`] for a source that cannot be read as configured, [`Error::Storage`],
/// [`Error::Cancelled`]. A [`SourcePreview`] reports the errors of reading its source.
pub async fn preview(
    config: &PipelineConfig,
    only: Option<&Name>,
    rows: usize,
    context: &Context,
) -> Result<Vec<SourcePreview>, Error> {
    let mut all = Vec::new();
    for (index, source) in choose(config, only)? {
        let masks = SecretMasks::configured(source, &*context.secrets);
        let mut remedies = Vec::new();
        // Boxed: the future of a source is large.
        let looked = Box::pin(look(source, rows, context, &mut remedies)).await;
        match looked {
            Ok(mut preview) => {
                preview.mask(&masks);
                all.push(preview);
            }
            Err(error @ Error::Config { .. }) => {
                return Err(error.under(&format!("source.{index}")));
            }
            Err(error @ (Error::Cancelled | Error::Storage(_))) => return Err(error),
            Err(error) => all.push(SourcePreview {
                source: source.name.to_string(),
                is_denied: matches!(&error, Error::Http { cause, .. } if cause.is_denied()),
                error: Some(masks.mask_message(&error.to_string())),
                remedies,
                ..SourcePreview::default()
            }),
        }
    }
    Ok(all)
}

/// Previews a source. The settings that an error about its files names go to `remedies`.
async fn look(
    config: &SourceConfig,
    rows: usize,
    context: &Context,
    remedies: &mut Vec<Remedy>,
) -> Result<SourcePreview, Error> {
    let config = &with_few_tries(config);
    let (landed, unread) = read_landed(config, context).await?;
    let mut source = open_restored(config, context, landed.as_ref()).await?;
    let read = source.next_page(&Position::Start).await;
    let mut page = read.inspect_err(|_| *remedies = source.remedies())?;
    let mut is_first_all = matches!(page.next, Position::Done { .. });
    let sample = match is_first_all {
        true => None,
        false => take_sample(source.as_mut(), config).await?,
    };
    // A file that has landed is not read again.
    let unreadable = source.take_unreadable().filter(|_| landed.is_none());
    let unreadable = unreadable.map(|error| error.to_string());
    let has_sample = sample.as_ref().is_some_and(|survey| survey.rows() > 0);
    // A row with `fetch` is a download.
    if unit_of(config) == ReadUnit::File && !has_sample && config.fetch.is_none() {
        let read = read_on(source.as_mut(), page).await;
        page = read.inspect_err(|_| *remedies = source.remedies())?;
        is_first_all = matches!(page.next, Position::Done { .. });
    }
    let mut noticed = source_warnings(source.as_mut(), &page);
    noticed.extend(unread);
    let next = match Box::pin(read_next(landed.as_ref(), config, context)).await {
        Err(Error::Cancelled) => return Err(Error::Cancelled),
        next => next.map_err(|error| error.to_string()),
    };
    let masks = source.secret_masks();
    let config = config.clone();
    computing(move || {
        let is_sample_all = sample.as_ref().is_some_and(Survey::is_all);
        let records = page
            .records
            .iter()
            .filter(|record| record.value().is_some());
        let records: Vec<String> = records.take(rows).map(Record::canonical).collect();
        // Files without columns to infer, such as texts, have no sample.
        let sample = sample.filter(|survey| survey.rows() > 0 || page.records.is_empty());
        let survey = sample.unwrap_or_else(|| {
            let mut survey = Survey::new(&config).counting_distinct();
            for file in &page.parts {
                survey.places_mut().push_file(&config.url, &file.part);
            }
            page.records.iter().for_each(|record| survey.add(record));
            survey
        });
        let types = landed.as_ref().map(LandedColumns::types);
        let inferred = survey.infer_after(&config, &types.unwrap_or_default());
        let mut codes = noticed.iter().map(|warning| warning.code.as_str());
        let is_one_of_more = codes.any(|code| code == NEXT_PAGE_NOT_REQUESTED);
        let mut preview = SourcePreview {
            records,
            is_all: (is_first_all || is_sample_all) && !is_one_of_more,
            landed: landed.as_ref().map_or(0, |landed| landed.records),
            warnings: noticed,
            ..SourcePreview::default()
        };
        let is_landed = landed.is_some() && !matches!(next, Ok(Some(_)));
        let (page, stop) = match next {
            Ok(next) => (next.unwrap_or(page), None),
            Err(reason) => (page, Some(reason)),
        };
        let dry_run = dry_run(&config, page, &inferred, landed.as_ref(), is_landed);
        preview.take_columns(&config, &survey, inferred, &dry_run.types);
        preview.take_decisions(dry_run);
        if unit_of(&config) == ReadUnit::Page && landed.is_none() && !preview.is_all {
            preview.qualify_types();
        }
        preview.stop = stop.or(preview.stop.take()).or(unreadable);
        preview.mask(&masks);
        Ok(preview)
    })
    .await
}

/// Opens a source, which knows the columns that have `landed` of its files.
async fn open_restored(
    config: &SourceConfig,
    context: &Context,
    landed: Option<&LandedColumns>,
) -> Result<Box<dyn Source>, Error> {
    let mut source = open(config, context).await?;
    if let (ReadUnit::File, Some(landed)) = (unit_of(config), landed) {
        landed.restore_columns(source.as_mut(), config).await?;
    }
    Ok(source)
}

/// Samples all records of a source that can look ahead, unless its configuration wants no sample.
async fn take_sample(
    source: &mut dyn Source,
    config: &SourceConfig,
) -> Result<Option<Survey>, Error> {
    match config.infer.rows.get() {
        0 => Ok(None),
        _ => source.survey(Survey::new(config).counting_distinct()).await,
    }
}

/// Adds the records of the next files to a first page: a text is a file of one record, and the
/// first files may have none.
async fn read_on(source: &mut dyn Source, mut page: Page) -> Result<Page, Error> {
    for _ in 1..MAX_FILES {
        let bytes: u64 = page.records.iter().map(Record::size).sum();
        let is_enough = page.records.len() >= MAX_RECORDS || bytes >= MAX_BYTES;
        if is_enough || matches!(page.next, Position::Done { .. }) {
            break;
        }
        let next = source.next_page(&page.next).await?;
        page.records.extend(next.records);
        page.parts.extend(next.parts);
        page.next = next.next;
    }
    Ok(page)
}

/// Reads the records that the next run of files reads first; none if nothing has landed or the run
/// finds nothing new. A row with `fetch` is a download, and a file of a web server is the first page.
async fn read_next(
    landed: Option<&LandedColumns>,
    config: &SourceConfig,
    context: &Context,
) -> Result<Option<Page>, Error> {
    let is_of_files =
        unit_of(config) == ReadUnit::File && !config.is_web() && config.fetch.is_none();
    let Some(landed) = landed.filter(|_| is_of_files) else {
        return Ok(None);
    };
    let (mut source, position) = landed.resume(config, context).await?;
    let page = source.next_page(position).await?;
    let page = read_on(source.as_mut(), page).await?;
    Ok((!page.records.is_empty()).then_some(page))
}

impl SourcePreview {
    /// Takes the columns of the survey. A column without an inferred type has its type of `dry_run`,
    /// the first records as they land.
    fn take_columns(
        &mut self,
        config: &SourceConfig,
        survey: &Survey,
        inferred: Inferred,
        dry_run: &Types,
    ) {
        let alike = warn_of_alike_columns(&inferred);
        // Tables that cannot be read are the error of the dry run.
        let tables = tables(&config.contract).unwrap_or_default();
        let is_table = |name: &str| {
            let keys = split_path(name);
            let mut lists = tables.iter().filter(|table| table.of.is_none());
            lists.any(|table| table.keys == keys)
        };
        let columns = inferred.columns.into_iter();
        let columns = columns.filter(|found| !is_table(&found.name));
        let columns = columns.map(|found| {
            let values = survey.distinct(&found.name);
            let landed = dry_run.get(&found.name).copied();
            let column_type = found
                .r#type
                .or(landed.filter(|landed| type_name(Some(*landed)) != JSON))
                .or(values.and_then(|values| values.content_type));
            ColumnPreview {
                r#type: type_name(column_type),
                missing: found.missing,
                samples: found.samples,
                compared: values.map_or(0, |values| values.compared),
                distinct: values.map_or(0, DistinctValues::count),
                numbers_rows: survey.numbers_rows(&found.name),
                restarts_index: survey.restarts_index(&found.name),
                has_rising_index: survey.has_rising_index(&found.name),
                number_settings: found.number_settings,
                separators: found.separators,
                numbers: found.numbers,
                has_mixed_decimals: found.has_mixed_decimals,
                are_times: found.are_times,
                value_counts: values.and_then(DistinctValues::counts).cloned(),
                large_integers: found.large_integers,
                column_type,
                name: found.name,
            }
        });
        self.columns = columns.collect();
        self.has_grouped_commas = inferred.has_grouped_commas;
        let (bad, bad_sample) = survey.bad();
        self.source = config.name.to_string();
        self.rows = survey.rows();
        self.repeated = survey.repeated();
        self.bad = bad;
        self.bad_sample = bad_sample.map(ToOwned::to_owned);
        let found = inferred.warnings.into_iter().chain(alike);
        found.for_each(|warning| replace_warning(&mut self.warnings, warning));
    }

    /// Takes the decisions of the contract.
    fn take_decisions(&mut self, dry_run: DryRun) {
        let DryRun {
            decided,
            rejected,
            sample,
            children,
            types: _,
            warnings,
            stop,
        } = dry_run;
        (self.decided, self.rejected, self.rejected_sample) = (decided, rejected, sample);
        (self.children, self.stop) = (children, stop);
        for warning in warnings {
            replace_warning(&mut self.warnings, warning);
        }
    }
}

/// Name of the type of lists and objects.
const JSON: &str = "json";

/// The name of a type in `contract.column.<name>.type`.
const fn type_name(found: Option<ColumnType>) -> &'static str {
    match found {
        None | Some(ColumnType::Null) => "undecided",
        Some(ColumnType::Bool) => "bool",
        Some(ColumnType::Int64) => "int",
        Some(ColumnType::Float64) => "float",
        Some(ColumnType::Decimal) => "decimal",
        Some(ColumnType::Timestamp) => "timestamp",
        Some(ColumnType::Utf8) => "text",
        Some(ColumnType::Binary) => "bytes",
        Some(
            ColumnType::List
            | ColumnType::ListBool
            | ColumnType::ListInt64
            | ColumnType::ListFloat64
            | ColumnType::ListUtf8
            | ColumnType::Json,
        ) => JSON,
    }
}

#[cfg(test)]
mod tests;
