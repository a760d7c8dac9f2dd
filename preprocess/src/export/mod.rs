//! Landed rows and datasets as files that other tools read: Parquet, Hugging Face, WebDataset, MDS.
//!
//! [`export`] reads what the commit log or the manifest names, one file at a time. Files get their names when all rows are
//! written. The card or index of the format comes behind them, and the record of the export last, so a killed export leaves no
//! folder that looks finished; the next one replaces it.

mod cells;
mod file_names;
mod files;
mod hub;
mod landed;
mod mds;
mod out;
mod parquet_files;
mod samples;
mod shards;
mod table;
mod target;
mod widen;

use std::{collections::BTreeMap, sync::Arc};

use arrow::datatypes::DataType;
use bytes::Bytes;
use feedline_schemas::{
    config::SourceConfig,
    export::{DataExportReport, ExportFormat, ExportedFile, ROLES},
    ids::{Hash128, Name},
    progress::Progress,
};
use feedline_storage::Store;

use self::{
    file_names::CARD,
    files::{FileLimits, PartFiles, PartWriter},
    hub::{HubColumns, HubParts},
    mds::{MdsColumns, MdsParts},
    out::{OutFolder, name_files},
    parquet_files::{Naming, ParquetParts, ParquetSettings},
    samples::SampleParts,
    table::{ColumnFacts, ExportPart, ExportTable},
    target::ExportTarget,
    widen::RoundedNumbers,
};
use crate::{Context, Error, pass_progress::PassProgress, pipeline::check_table};

/// Bytes of a file, by default.
const FILE_BYTES: u64 = 256 << 20;
/// Bytes of an MDS shard, by default: as its own writer has it.
const MDS_BYTES: u64 = 64 << 20;

/// Rows to export.
#[derive(Clone, Debug)]
pub enum ExportSelection<'a> {
    /// The rows that a source has landed.
    Landed {
        /// The source.
        source: &'a SourceConfig,
        /// One of its child tables, in place of its records.
        table: Option<Name>,
        /// True for all landed versions of a key, not only the latest.
        all_versions: bool,
    },
    /// The dataset of the pipeline.
    Dataset,
}

/// Settings of an export.
#[derive(Clone, Debug)]
pub struct ExportRequest<'a> {
    /// The pipeline's name: a folder is only replaced by exports of the same one.
    pub pipeline: &'a Name,
    /// Rows to export.
    pub selection: ExportSelection<'a>,
    /// Format of the files.
    pub format: ExportFormat,
    /// Rows of a file, at most, 1 or more; without a limit if absent.
    pub rows_per_file: Option<u64>,
    /// Bytes of a file, about; by default 256 MiB, of MDS 64 MiB and at most 2 GiB.
    pub max_bytes: Option<u64>,
    /// True if files are compressed; by default those of Parquet are. WebDataset files never are.
    pub compress: Option<bool>,
    /// Column with texts of documents, which WebDataset stores as files of their own; used if the rows have it.
    pub text_column: Option<&'a str>,
    /// True if a finished export is replaced.
    pub overwrite: bool,
    /// Id of this process, unlike that of any other.
    pub run: String,
}

/// Writes rows to the folder `target`, which must be empty or hold an earlier export of the same pipeline. The files of that
/// one are removed first.
///
/// It may be dropped at any await; the folder is then incomplete, and the next export replaces it. One file that is read and
/// one that is written are in memory at a time, or only a part of the latter on a local disk.
///
/// ```
/// # use std::sync::Arc;
/// # use arrow::array::{ArrayRef, Int64Array, RecordBatch};
/// use feedline_preprocess::{ExportRequest, ExportSelection, build, export};
/// use feedline_schemas::{config::load, export::ExportFormat};
/// use feedline_storage::Store;
///
/// # let folder = tempfile::tempdir()?;
/// # let file = folder.path().join("houses.parquet");
/// # let context = feedline_preprocess::Context {
/// #     root: Store::memory(),
/// #     progress: Arc::new(feedline_schemas::progress::Silent),
/// #     clock: Arc::new(feedline_storage::clock::SystemClock),
/// #     partitions: 1,
/// #     memory_bytes: None,
/// #     store_options: feedline_storage::StoreOptions::default(),
/// #     decoder: None,
/// #     engine: feedline_preprocess::Engine::Local,
/// #     scratch: folder.path().join("scratch"),
/// # };
/// # let column = |number: fn(i64) -> i64| -> ArrayRef {
/// #     Arc::new(Int64Array::from_iter_values((0..300).map(number)))
/// # };
/// # let rows = RecordBatch::try_from_iter([
/// #     ("area", column(|i| i)),
/// #     ("price", column(|i| 3 * i + 7 * i % 61)),
/// # ])?;
/// # let out = std::fs::File::create(&file)?;
/// # let mut writer = parquet::arrow::ArrowWriter::try_new(out, rows.schema(), None)?;
/// # writer.write(&rows)?;
/// # writer.close()?;
/// # let file = file.display();
/// # let text = format!(
/// #     "[pipeline]\nname = 'houses'\n[dataset]\nfiles = '{file}'\ntarget = 'price'\n"
/// # );
/// let config = load("houses.toml", &text, &[])?.config;
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
/// build(&config, &context).await?;
/// let target = Store::memory();
/// let request = ExportRequest {
///     pipeline: &config.pipeline.name,
///     selection: ExportSelection::Dataset,
///     format: ExportFormat::HuggingFace,
///     rows_per_file: None,
///     max_bytes: None,
///     compress: None,
///     text_column: None,
///     overwrite: false,
///     run: "run 7".to_owned(),
/// };
/// let report = export(request.clone(), &target, &context).await?;
/// assert_eq!(report.rows, 300);
/// assert!(target.get("data/train-00000-of-00001.parquet").await.is_ok());
/// // A finished export is only replaced on request.
/// assert!(export(request, &target, &context).await.is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Config`] for a child table that the source has not; [`Error::Input`] for a folder that may not be written, for a
/// source that has landed nothing, a dataset that is not built, and for damaged files; [`Error::ExportCount`] if other rows were written than the log or the manifest has; failures of the
/// stores.
pub async fn export(
    request: ExportRequest<'_>,
    target: &Store,
    context: &Context,
) -> Result<DataExportReport, Error> {
    let folder = ExportTarget::check(target, request.pipeline, request.overwrite).await?;
    let table = open(&request, context).await?;
    let format = FormatPlan::of(&request, &table, target, context).await?;
    let record = target::record(
        request.pipeline,
        table.of.clone(),
        request.format,
        request.run.clone(),
    );
    folder.begin(&record).await?;
    let out = OutFolder::new(target);
    let (written, rounded) = write(&table, &format, &context.progress, &out).await?;
    folder.check_undisturbed(&record).await?;
    name_files(target, &written.files).await?;
    let described = describe(&request, &table, &format, &written, target).await?;
    let report = report(
        &request,
        &table,
        format,
        (&written, &rounded, &described),
        &folder,
        target,
    );
    let files = written.files.into_iter().map(|stored| stored.file);
    let files = files.chain(described);
    folder.finish(&record, files.collect()).await?;
    Ok(report)
}

async fn open(request: &ExportRequest<'_>, context: &Context) -> Result<ExportTable, Error> {
    let mut table = match &request.selection {
        ExportSelection::Landed {
            source,
            table,
            all_versions,
        } => {
            if let Some(table) = table {
                check_table("source", source, table)?;
            }
            landed::open((source, table.as_ref()), *all_versions, context).await?
        }
        ExportSelection::Dataset => shards::open(&context.root.child("dataset")).await?,
    };
    let is_text = |column: &&table::ExportColumn| {
        column.r#type == DataType::Utf8 && Some(column.name.as_str()) == request.text_column
    };
    table.text = table.columns.iter().find(is_text).map(|c| c.name.clone());
    table
        .facts
        .push(("feedline.pipeline".to_owned(), request.pipeline.to_string()));
    if let Some(roles) = table.roles_text()? {
        table.facts.push((ROLES.to_owned(), roles));
    }
    if !table.json_text.is_empty() {
        let names = table.json_text.join("`, `");
        table
            .notes
            .push(format!("JSON text, as it landed: `{names}`."));
    }
    Ok(table)
}

/// A format with the columns of the table in it.
enum FormatPlan {
    Parquet(Box<ParquetSettings>),
    Hub(HubColumns, Box<ParquetSettings>),
    Samples(FileLimits),
    Mds(MdsColumns, FileLimits, bool),
}

impl FormatPlan {
    async fn of(
        request: &ExportRequest<'_>,
        table: &ExportTable,
        target: &Store,
        context: &Context,
    ) -> Result<Self, Error> {
        let limits = FileLimits {
            rows: request.rows_per_file.unwrap_or(u64::MAX).max(1),
            bytes: request.max_bytes.unwrap_or(match request.format {
                ExportFormat::Mds => MDS_BYTES,
                _ => FILE_BYTES,
            }),
        };
        let compresses = |by_default| request.compress.unwrap_or(by_default);
        let out = OutFolder::new(target);
        Ok(match request.format {
            ExportFormat::Parquet => {
                let (schema, facts) = (table.schema(), &table.facts);
                let settings = ParquetSettings::new(out, &schema, facts, compresses(true), limits)?;
                Self::Parquet(Box::new(settings))
            }
            ExportFormat::HuggingFace => {
                let facts = survey(table, context, |table| {
                    let mut columns = table.columns.iter();
                    columns.any(|c| c.is_binary() && c.content == table::ColumnContent::Plain)
                });
                let columns = HubColumns::new(table, &facts.await?);
                let settings = columns.settings(out, table, compresses(true), limits)?;
                Self::Hub(columns, Box::new(settings))
            }
            ExportFormat::WebDataset => Self::Samples(limits),
            ExportFormat::Mds => {
                let facts = survey(table, context, |table| {
                    let mut columns = table.columns.iter();
                    columns.any(|column| column.nullable || column.is_binary())
                });
                let limits = FileLimits {
                    bytes: limits.bytes.min(mds::MOST_BYTES),
                    ..limits
                };
                Self::Mds(
                    MdsColumns::new(table, &facts.await?)?,
                    limits,
                    compresses(false),
                )
            }
        })
    }

    fn open(
        &self,
        table: &ExportTable,
        part: &ExportPart,
        out: OutFolder,
    ) -> Result<Box<dyn PartWriter>, Error> {
        let split = part.split;
        Ok(match self {
            Self::Parquet(settings) => {
                let folder = split.map(|split| split.as_str().to_owned());
                let naming = Naming::Parts(folder.unwrap_or_default());
                Box::new(ParquetParts::new((**settings).clone(), split, naming))
            }
            Self::Hub(columns, settings) => {
                Box::new(HubParts::new(columns, (**settings).clone(), split))
            }
            Self::Samples(limits) => Box::new(SampleParts::new(out, table, split, *limits)?),
            Self::Mds(columns, limits, compresses) => {
                Box::new(MdsParts::new(out, columns, split, (*limits, *compresses)))
            }
        })
    }
}

/// Facts about all cells if they are `needed`, else none.
async fn survey(
    table: &ExportTable,
    context: &Context,
    needed: impl Fn(&ExportTable) -> bool,
) -> Result<Vec<ColumnFacts>, Error> {
    if !needed(table) {
        return Ok(vec![ColumnFacts::default(); table.columns.len()]);
    }
    let meter = PassProgress::new(&context.progress, "export: types", table.rows_in_files());
    table.survey(&meter).await
}

/// Writes the files with rows, under their incoming names. Returns the numbers that were rounded too.
async fn write(
    table: &ExportTable,
    format: &FormatPlan,
    progress: &Arc<dyn Progress>,
    out: &OutFolder,
) -> Result<(PartFiles, RoundedNumbers), Error> {
    let meter = PassProgress::new(progress, "export: write", table.rows_in_files());
    let (mut all, mut rounded) = (PartFiles::default(), RoundedNumbers::default());
    for part in table.parts.iter().filter(|part| part.rows > 0) {
        let mut writer = format.open(table, part, out.clone())?;
        for file in &part.files {
            let read = table.read(file, writer, |writer, rows| writer.write(rows));
            let (next, of_file) = read.await?;
            writer = next;
            rounded.append(of_file);
            meter.add(file.rows);
        }
        let finish = tokio::task::spawn_blocking(move || writer.finish());
        let written = finish.await??;
        let rows: u64 = written.files.iter().map(|stored| stored.file.rows).sum();
        if rows != part.rows {
            return Err(Error::ExportCount {
                rows: part.rows,
                found: rows,
            });
        }
        all.files.extend(written.files);
        all.closing.extend(written.closing);
        all.not_finite += written.not_finite;
    }
    Ok((all, rounded))
}

/// Writes the files that describe those with rows.
async fn describe(
    request: &ExportRequest<'_>,
    table: &ExportTable,
    format: &FormatPlan,
    written: &PartFiles,
    target: &Store,
) -> Result<Vec<ExportedFile>, Error> {
    let beside = table.beside.iter();
    let mut files: Vec<(String, Bytes)> = beside
        .map(|(path, content)| ((*path).to_owned(), content.clone()))
        .collect();
    let closing = written.closing.iter();
    files.extend(closing.map(|(path, content)| (path.clone(), content.clone().into())));
    if let FormatPlan::Hub(columns, _) = format {
        let card = hub::card(request.pipeline, table, columns);
        files.push((CARD.to_owned(), card.into()));
    }
    let mut described = Vec::with_capacity(files.len());
    for (path, content) in files {
        described.push(ExportedFile {
            split: None,
            rows: 0,
            bytes: content.len() as u64,
            hash: Hash128::of(&content),
            path: path.clone(),
        });
        target.put(&path, content).await?;
    }
    Ok(described)
}

fn report(
    request: &ExportRequest<'_>,
    table: &ExportTable,
    format: FormatPlan,
    (written, rounded, described): (&PartFiles, &RoundedNumbers, &[ExportedFile]),
    folder: &ExportTarget<'_>,
    target: &Store,
) -> DataExportReport {
    let splits = table.parts.iter();
    let splits = splits.filter_map(|part| Some((part.split?, part.rows)));
    let files = written.files.iter().map(|stored| &stored.file);
    let files = files.chain(described);
    DataExportReport {
        of: table.of.clone(),
        format: request.format,
        url: target.url(),
        rows: table.rows(),
        splits: splits.collect(),
        older_versions: table.older_versions,
        columns: table.columns.len() as u64,
        files: written.files.len() as u64,
        bytes: files.map(|file| file.bytes).sum(),
        converted: converted(table, format, rounded),
        json_text: table.json_text.clone(),
        not_finite: written.not_finite,
        left_out: table.left_out.clone(),
        replaced: folder.replaces,
        warnings: table.warnings.clone(),
    }
}

/// Columns whose values differ from those of the table, with the reason.
fn converted(
    table: &ExportTable,
    format: FormatPlan,
    rounded: &RoundedNumbers,
) -> BTreeMap<String, String> {
    let mut converted = table.converted.clone();
    let by_format = match format {
        FormatPlan::Parquet(_) => Vec::new(),
        FormatPlan::Hub(columns, _) => columns.converted,
        FormatPlan::Samples(_) => in_samples(table),
        FormatPlan::Mds(columns, ..) => columns.converted,
    };
    for (name, reason) in by_format.into_iter().chain(rounded.notes()) {
        let reason = match converted.remove(&name) {
            Some(earlier) => format!("{earlier}; {reason}"),
            None => reason,
        };
        converted.insert(name, reason);
    }
    converted
}

fn in_samples(table: &ExportTable) -> Vec<(String, String)> {
    let places = samples::columns(table).into_iter().zip(&table.columns);
    let reasons = places.filter_map(|(place, column)| {
        let reason = match place {
            samples::SampleColumn::File(prefix) => {
                format!("a file of its own, `KEY.{prefix}` and an extension by its content")
            }
            samples::SampleColumn::Text => "a file of its own, `KEY.txt`".to_owned(),
            samples::SampleColumn::Member(_) => match column.r#type {
                DataType::Timestamp(..) => {
                    "text in ISO 8601, since JSON has no timestamps".to_owned()
                }
                DataType::Decimal128(..) => "text, since JSON readers round decimals".to_owned(),
                _ => return None,
            },
        };
        Some((column.name.clone(), reason))
    });
    reasons.collect()
}
