//! `feedline predict` for features computed from earlier rows, and for models that read windows of
//! rows.
//!
//! New rows, and a history in a file, land in a folder of their own first, with the settings of the
//! dataset's source. So a cell has the same meaning as in the landing zone.

mod column_types;
mod imputed_features;
mod landed_file;
mod unneeded_cells;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::mpsc::sync_channel,
    thread,
};

use anyhow::Context as _;
use feedline_ingest::Landed;
use feedline_preprocess::{
    Column, Fault, LandedRows, SeriesBatch, SeriesRows, Transform, UnusualCells,
};
use feedline_schemas::{
    config::{
        ContractConfig, CsvConfig, DeclaredType, FileFormat, Fraction, InferConfig, PipelineConfig,
        SourceConfig, TypeContract,
    },
    record::ColumnType,
    report::{PredictReport, SourceReport},
};
use feedline_storage::{Store, StoreOptions, private};
use tokio::runtime::Handle;

pub(crate) use self::{
    imputed_features::imputed_features_warning,
    landed_file::{FileReject, LandedFile},
    unneeded_cells::unneeded_cells_warning,
};
use super::{
    Answers, Given, Output, WAITING, dialect, is_own,
    ordered::{EntityCell, OrderedRows, RowOrder},
};
use crate::stop::Stop;

/// Rejected rows that are formatted at a time.
const REJECT_ROWS: usize = 4096;

/// A private folder, removed when its last user drops it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes one below `scratch`.
    pub(crate) fn create(scratch: &Path) -> anyhow::Result<Self> {
        let path = scratch.join(format!("predict-{}", std::process::id()));
        let create = || {
            private::claim_folder(scratch)?;
            match fs::remove_dir_all(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            private::create_folder(&path)
        };
        create().with_context(|| format!("cannot make the folder `{}`", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a temporary folder stays");
        }
    }
}

/// A file of rows, and the pipeline that lands it in a folder of its own.
#[derive(Clone)]
pub(crate) struct Landing {
    pub(crate) config: PipelineConfig,
    pub(crate) root: Store,
    /// The file as the user named it.
    pub(crate) file: String,
}

impl Landing {
    /// Copies `file` (`-` is standard input) into `folder`, to land as source `name` of the
    /// pipeline of `config`.
    pub(crate) fn of(
        file: &str,
        name: &str,
        format: Option<FileFormat>,
        config: &PipelineConfig,
        landed: &BTreeMap<String, ColumnType>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let copy = folder.join(copied_name(file, name, format)?);
        let target = private::private_file()
            .create_new(true)
            .write(true)
            .open(&copy);
        let mut target = target.with_context(|| format!("cannot write `{}`", copy.display()))?;
        let copied = match file {
            "-" => std::io::copy(&mut std::io::stdin().lock(), &mut target),
            path => fs::File::open(path).and_then(|mut file| std::io::copy(&mut file, &mut target)),
        };
        copied
            .and_then(|_| target.flush())
            .with_context(|| format!("cannot read `{file}`"))?;
        let url = copy
            .to_str()
            .context("the scratch folder is no UTF-8 path")?;
        let source = source(name, url, config, format.unwrap_or_default(), landed)?;
        let root = folder.join(format!("landed-{name}"));
        let root_url = root
            .to_str()
            .context("the scratch folder is no UTF-8 path")?;
        let mut pipeline = config.pipeline.clone();
        pipeline.root = Some(root_url.to_owned());
        Ok(Self {
            config: PipelineConfig {
                pipeline,
                source: vec![source],
                dataset: None,
                train: None,
                tune: None,
                ingest: None,
            },
            root: Store::open(root_url, &StoreOptions::default())?,
            file: file.to_owned(),
        })
    }

    /// The same file, where only cells of `needed` columns can reject a row. A cell of another column
    /// that does not fit is null, since nothing but the search for duplicates reads it.
    pub(crate) fn needing(mut self, needed: &BTreeSet<String>) -> Self {
        let Some(source) = self.config.source.first_mut() else {
            return self;
        };
        let contract = &mut source.contract;
        let types = std::mem::replace(&mut contract.types, TypeContract::NullValue);
        let nulls = std::mem::take(&mut contract.nulls);
        for (name, rules) in &mut contract.column {
            if !needed.contains(name) {
                (rules.types, rules.nulls) = (None, None);
            }
        }
        for name in needed {
            let rules = contract.column.entry(name.clone()).or_default();
            rules.types.get_or_insert(types);
            rules.nulls.get_or_insert(nulls);
        }
        self
    }

    /// The same file as the past of other rows: its rows must also have what the contract of the source
    /// of `config` requires, as when they are ingested.
    pub(crate) fn into_past(mut self, config: &PipelineConfig) -> Self {
        let own = own_source(config).map(|own| own.contract.required.clone());
        if let Some(source) = self.config.source.first_mut() {
            source.contract.required = own.unwrap_or_default();
        }
        self
    }

    /// The rows, once they have landed.
    pub(crate) fn landed(self) -> LandedRows {
        let mut sources = self.config.source.into_iter();
        let source = sources.next().expect("the pipeline has one source");
        LandedRows {
            file: match self.file == "-" {
                true => "standard input".to_owned(),
                false => self.file,
            },
            lists_columns: dialect::lists_columns(source.format, &source.url),
            root: self.root,
            source,
            starts: Vec::new(),
            rejected_columns: Vec::new(),
            is_empty: false,
        }
    }

    /// The log of what has landed; `None` before its first entry.
    pub(crate) async fn log(&self) -> anyhow::Result<Option<Landed>> {
        let Some(source) = self.config.source.first() else {
            return Ok(None);
        };
        let log = Box::pin(feedline_ingest::landed(&self.root, &source.name)).await;
        log.with_context(|| format!("cannot read `{}`", self.file))
    }
}

/// The source whose contract and notation new rows have: the first one that the dataset reads.
fn own_source(config: &PipelineConfig) -> Option<&SourceConfig> {
    let dataset = config.dataset.as_ref();
    let mut own = config.source.iter();
    own.find(|source| dataset.is_none_or(|dataset| is_own(dataset, &source.name)))
}

/// Returns a name with the extension of the file's format.
fn copied_name(file: &str, name: &str, format: Option<FileFormat>) -> anyhow::Result<String> {
    if file.contains("://") {
        anyhow::bail!("`{file}` is a URL; give a local file, or pipe the rows in");
    }
    if file == "-" {
        let ending = match format {
            Some(FileFormat::Csv) => "csv",
            Some(FileFormat::Parquet) => "parquet",
            _ => "ndjson",
        };
        return Ok(format!("{name}.{ending}"));
    }
    let file = Path::new(file).file_name().unwrap_or_default();
    let file = file.to_string_lossy().into_owned();
    // A pattern would match other files.
    let file: String = file
        .chars()
        .map(|c| if "*?[]{}".contains(c) { '_' } else { c })
        .collect();
    Ok(format!("{name}-{file}"))
}

/// The source that reads `url` as that of the dataset of `config` reads its files, with the types that
/// `landed`.
fn source(
    name: &str,
    url: &str,
    config: &PipelineConfig,
    format: FileFormat,
    landed: &BTreeMap<String, ColumnType>,
) -> anyhow::Result<SourceConfig> {
    let own = own_source(config);
    let dataset = config.dataset.as_ref();
    let has_query = dataset.is_some_and(|dataset| dataset.sql.is_some());
    let contract_of = |own: &SourceConfig| match has_query {
        true => dialect::query_row_contract(own),
        false => dialect::row_contract(own),
    };
    let plain = serde_json::json!({ "name": name, "type": "files", "url": url });
    let plain: SourceConfig = serde_json::from_value(plain).context("a plain source is one")?;
    let own_contract = own.map_or_else(ContractConfig::default, contract_of);
    let mut column = own_contract.column.clone();
    for (name, landed) in landed {
        let declared = match landed {
            ColumnType::Utf8 => DeclaredType::Text,
            ColumnType::Float64 => DeclaredType::Float,
            ColumnType::Decimal => DeclaredType::Decimal,
            // Integers may be floats here, and the formats of times are those of the source.
            _ => continue,
        };
        let rules = column.entry(name.clone()).or_default();
        rules.r#type.get_or_insert(declared);
    }
    // A row to predict lacks its target, and perhaps more; the model's transform decides what it
    // requires.
    let contract = ContractConfig {
        column,
        required: Vec::new(),
        children: BTreeMap::new(),
        max_reject_fraction: Fraction::literal(1.0),
        ..own_contract
    };
    Ok(SourceConfig {
        format,
        csv: match own {
            Some(own) if dialect::may_hold_csv(format, url) => own.csv.clone(),
            _ => CsvConfig::default(),
        },
        infer: own.map_or_else(InferConfig::default, |own| own.infer.clone()),
        contract,
        ..plain
    })
}

/// Counts rows of the file that did not land.
pub(crate) fn add_rejects(report: &mut PredictReport, landed: &SourceReport) {
    report.rows += landed.rejected;
    report.rejected += landed.rejected;
    for (reason, rows) in &landed.rejected_by_reason {
        *report.rejected_by_reason.entry(reason.clone()).or_default() += rows;
    }
    if report.reject_sample.is_none() {
        report.reject_sample.clone_from(&landed.reject_sample);
    }
}

/// Predicts `rows` and writes the predictions to `output`, with a line for each of `rejects`: in the
/// order of the file, or by entity where the rows are not those of a file. Blocks; `runtime` reads
/// the rows.
pub(crate) fn answer(
    rows: SeriesRows,
    rejects: Option<&[FileReject]>,
    answers: &Answers,
    output: Output,
    (stop, runtime): (&Stop, &Handle),
    report: &mut PredictReport,
) -> anyhow::Result<()> {
    let naive = rows.naive();
    let is_window = rows.window().is_some();
    let (entity, numbers) = (entity_places(&rows, answers), rows.numbers());
    let (sender, batches) = sync_channel(WAITING);
    let runtime = runtime.clone();
    let work = move || -> anyhow::Result<SeriesRows> {
        let mut rows = rows;
        let mut first = 0;
        while let Some(batch) = runtime.block_on(rows.next())? {
            let given = given(batch, first, is_window, naive);
            first += given.rows as u64;
            if sender.send(given).is_err() {
                break;
            }
        }
        Ok(rows)
    };
    let reader = thread::spawn(work);
    let mut ended = None;
    let closed = output.write(&answers.names(), |out| {
        out.write(answers.columns(answers.no_rows(), report))?;
        let mut ordered = OrderedRows::default();
        super::for_each(&batches, stop, |given| {
            let orders = match rejects {
                Some(_) => in_file(&given),
                None => by_entity(&given, &entity),
            };
            ordered.push(answers.columns(given, report), orders);
            Ok(())
        })?;
        ended = Some(super::joined(reader)?);
        for rejects in rejects.unwrap_or_default().chunks(REJECT_ROWS) {
            let given = rejected(rejects, answers, numbers);
            let orders = in_file(&given);
            ordered.push(rejected_columns(given, rejects, answers), orders);
        }
        Ok(ordered.write(answers.kept.len(), out)?)
    })?;
    report.warnings.extend(closed);
    let Some(rows) = ended else { return Ok(()) };
    super::warn_of_misfits(report);
    if report.rows > report.rejected {
        report.absent = rows.absent().to_vec();
    }
    super::add_training_caps(&answers.transform, report);
    super::warn_of_unusual_rows(report);
    let found = [
        rows.repeated_times(),
        rows.unknown_entities(),
        rows.undated_forecasts(),
    ];
    for found in found.into_iter().flatten() {
        super::warn(found, report);
    }
    report.same_time = rows.new_same_time();
    report.copies = rows.copies();
    report.rejected_before += rows.rejected_before();
    if report.copies > 0 {
        tracing::warn!(
            rows = report.copies,
            "rows have no prediction of their own: they are duplicates of landed rows, or of one another"
        );
    }
    if report.rejected_before > 0 {
        tracing::warn!(
            rows = report.rejected_before,
            "rows of the past cannot be used, as in a build: features and windows do without them"
        );
    }
    Ok(())
}

/// Order of the rows by their numbers in the file.
fn in_file(given: &Given) -> Vec<RowOrder> {
    let numbers = given.row_numbers.iter();
    numbers.map(|number| RowOrder::Number(*number)).collect()
}

/// Order of the rows by the passthrough columns in the places `entity`.
fn by_entity(given: &Given, entity: &[usize]) -> Vec<RowOrder> {
    let cells_of = |row: usize| {
        let cells = entity.iter().map(|place| {
            let cells = given.kept.get(*place);
            let cell = cells.and_then(|cells| cells.get(row)?.as_deref());
            EntityCell::of(cell)
        });
        RowOrder::Entity(cells.collect())
    };
    (0..given.rows).map(cells_of).collect()
}

/// Places of the entity's columns among the passthrough columns.
fn entity_places(rows: &SeriesRows, answers: &Answers) -> Vec<usize> {
    let entity = rows.order().split_last().map(|(_, entity)| entity);
    let entity = entity.unwrap_or_default().iter();
    let place = |name: &String| answers.kept.iter().position(|kept| kept == name);
    entity.filter_map(place).collect()
}

/// Rows that have not landed, with `numbers` undefined features each.
fn rejected(rejects: &[FileReject], answers: &Answers, numbers: usize) -> Given {
    let cells = |name: &String| -> Vec<Option<String>> {
        rejects.iter().map(|row| row.cell(name)).collect()
    };
    // The word is replaced by the reason itself.
    let fault = |row: &FileReject| Fault::new("row_rejected", row.detail.clone());
    Given {
        first: 0,
        row_numbers: rejects.iter().map(|row| row.number).collect(),
        rows: rejects.len(),
        x: vec![0.0; rejects.len() * numbers],
        bad: rejects.iter().map(fault).enumerate().collect(),
        kept: answers.kept.iter().map(cells).collect(),
        numbers: vec![vec![None; rejects.len()]; answers.numbers.len()],
        predicted: None,
        unusual: UnusualCells::default(),
    }
}

/// Columns of the output for rows that have not landed. [`add_rejects`] has counted them.
fn rejected_columns(given: Given, rejects: &[FileReject], answers: &Answers) -> Vec<Column> {
    let mut columns = answers.columns(given, &mut PredictReport::default());
    let reasons = rejects.iter().map(|row| Some(row.reason.clone()));
    // `error` and `detail` are the last columns but for `flags`.
    let error = columns.len() - 2 - usize::from(answers.flags);
    columns[error] = Column::Text(reasons.collect());
    columns
}

/// Further columns of the output, besides the passthrough columns.
pub(crate) fn further_names(rows: &SeriesRows) -> (Vec<String>, Vec<String>) {
    let window = rows.window().map(|_| "target_time".to_owned());
    let names = ["last_value", "seasonal_value"].into_iter();
    let naive = names.zip(rows.naive()).filter(|(_, is_there)| *is_there);
    let naive = naive.map(|(name, _)| name.to_owned());
    (window.into_iter().collect(), naive.collect())
}

fn given(batch: SeriesBatch, first: u64, is_window: bool, naive: [bool; 2]) -> Given {
    let SeriesBatch {
        rows,
        row_numbers,
        x,
        bad,
        mut kept,
        target_times,
        last,
        season,
        unusual,
    } = batch;
    kept.extend(is_window.then_some(target_times));
    let numbers = [last, season].into_iter().zip(naive);
    let numbers = numbers.filter(|(_, is_there)| *is_there);
    Given {
        first,
        row_numbers,
        rows,
        x,
        bad,
        kept,
        numbers: numbers.map(|(cells, _)| cells).collect(),
        predicted: None,
        unusual,
    }
}

/// Names of the numbers of a window: each feature with its distance from the last row.
pub(crate) fn window_names(transform: &Transform, rows: &SeriesRows) -> Vec<String> {
    let features = transform.artefact().features.iter();
    let features = features.map(|feature| super::named_feature(&feature.name));
    match rows.window() {
        None => features.collect(),
        Some((length, _)) => {
            let features: Vec<String> = features.collect();
            let before = (0..length).rev();
            before
                .flat_map(|back| features.iter().map(move |name| format!("{name}@-{back}")))
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::{NullContract, load};

    use super::*;

    #[test]
    fn only_needed_columns_keep_what_the_contract_of_the_source_does_with_their_cells() {
        let text = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"x.csv\"\n\
            contract.types = \"freeze\"\ncontract.nulls = \"quarantine_row\"\n\
            contract.column.a.types = \"widen\"\n\
            contract.column.b = { type = \"int\", types = \"freeze\", nulls = \"freeze\" }\n";
        let folder = tempfile::tempdir().unwrap();
        let url = folder.path().to_str().unwrap();
        let landing = Landing {
            config: load("p", text, &[]).unwrap().config,
            root: Store::open(url, &StoreOptions::default()).unwrap(),
            file: "x.csv".to_owned(),
        };
        let needed = BTreeSet::from(["a", "c"].map(str::to_owned));
        let landing = landing.needing(&needed);
        let contract = &landing.config.source[0].contract;
        let modes = (contract.types, contract.nulls);
        assert_eq!(modes, (TypeContract::NullValue, NullContract::Warn));
        let rejects = Some(NullContract::QuarantineRow);
        for (name, types, nulls) in [
            ("a", Some(TypeContract::Widen), rejects),
            ("b", None, None),
            ("c", Some(TypeContract::Freeze), rejects),
        ] {
            let own = &contract.column[name];
            assert_eq!((own.types, own.nulls), (types, nulls), "{name}");
        }
        assert_eq!(contract.column["b"].r#type, Some(DeclaredType::Int));
    }

    /// The source that reads `url` with the columns `landed`, for a source of German CSV.
    fn source_of(url: &str, dataset: &str, landed: &[(&str, ColumnType)]) -> SourceConfig {
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"x.csv\"\n\
             csv.decimal_separator = \",\"\ncontract.dates = [\"%d.%m.%Y\"]\n\
             contract.column.v.type = \"text\"\n[dataset]\ntarget = \"y\"\n{dataset}"
        );
        let config = load("p", &text, &[]).unwrap().config;
        let landed = landed.iter();
        let landed = landed.map(|(name, r#type)| ((*name).to_owned(), *r#type));
        source("rows", url, &config, FileFormat::Auto, &landed.collect()).unwrap()
    }

    #[test]
    fn only_files_that_may_hold_csv_are_read_by_the_csv_keys_of_the_source() {
        for (url, expected) in [
            ("rows.csv", Some(',')),
            ("rows.csv.gz", Some(',')),
            ("rows.zip", Some(',')),
            ("rows.txt", Some(',')),
            ("rows.ndjson", None),
            ("rows.json", None),
            ("rows.parquet", None),
            ("rows.arrow", None),
        ] {
            let found = source_of(url, "", &[]).csv.decimal_separator;
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn rows_of_a_query_have_the_types_of_its_columns_and_times_of_iso_beside_the_declared_ones() {
        let landed = [("v", ColumnType::Float64)];
        let plain = source_of("rows.csv", "", &landed).contract;
        assert_eq!(plain.column["v"].r#type, Some(DeclaredType::Text));
        assert_eq!(plain.dates, ["%d.%m.%Y", "rfc3339"]);
        let queried = source_of("rows.csv", "sql = \"select y, v from s\"\n", &landed).contract;
        assert_eq!(queried.column["v"].r#type, Some(DeclaredType::Float));
        assert_eq!(queried.dates, ["%d.%m.%Y", "rfc3339"]);
    }
}
