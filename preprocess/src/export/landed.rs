//! Landed rows of a table at the latest position of its log, with the columns and types of all schema versions together.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{ArrayRef, AsArray, BooleanArray, RecordBatch, new_null_array},
    compute::filter_record_batch,
    datatypes::{DataType, SchemaRef, UInt64Type},
};
use bytes::Bytes;
use datafusion::{logical_expr::ident, prelude::DataFrame};
use feedline_schemas::{
    config::SourceConfig,
    export::ExportedRows,
    ids::{Name, Origin},
    record::{ColumnType, RecordSchema, system},
    report::Warning,
};
use futures::TryStreamExt as _;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};

use super::{
    cells::cast_all,
    table::{ExportColumn, ExportPart, ExportTable, ReadRows, RowFile, TakeRows, schema_of},
    widen::{RoundedNumbers, WidenedColumn},
};
use crate::{
    Context, Error,
    engine::{scratch::Scratch, session},
    schema::{
        landed_columns::{MergedColumn, landed_type, merge},
        system_columns,
    },
    source::{
        landing_zone::Landed,
        latest_version::{self, LatestVersion},
        superseded_files,
        version_order::check_versions,
    },
};

/// Bytes of the rows that are read together, about.
const BATCH_BYTES: u64 = 8 << 20;
/// Rows that are read together, at most.
const BATCH_ROWS: u64 = 8192;

/// Opens what `source`, or its child table, has landed. Of a source with a key, only the latest version of each key is read,
/// as by datasets, unless `all_versions` are wanted.
///
/// # Errors
/// As [`Landed::read`].
pub(super) async fn open(
    (source, table): (&SourceConfig, Option<&Name>),
    all_versions: bool,
    context: &Context,
) -> Result<ExportTable, Error> {
    let landed = Landed::read(&context.root, source, table).await?;
    let (latest, warning) = match all_versions {
        true => (None, None),
        false => latest(&landed, context).await?,
    };
    let latest = latest.map(Arc::new);
    let columns = merge(landed.generations.iter().map(|g| &g.schema));
    let system = system_columns(&landed).await?;
    let own = columns.iter();
    let own = own.map(|c| ExportColumn::plain(&c.name, landed_type(c.r#type), true));
    let exported: Vec<ExportColumn> = system.iter().cloned().chain(own).collect();
    let mut files = Vec::new();
    for generation in &landed.generations {
        let reader = Arc::new(LandedReader {
            system: system.clone(),
            columns: columns.clone(),
            schema: generation.schema.clone(),
            parent: landed.records.is_some(),
            latest: latest.clone(),
        });
        files.extend(generation.files.iter().map(|file| RowFile {
            path: file.path.clone(),
            bytes: file.bytes,
            hash: file.hash,
            rows: file.rows,
            reader: Arc::clone(&reader) as Arc<dyn ReadRows>,
        }));
    }
    let all = landed.rows();
    let mut table = ExportTable {
        of: ExportedRows::Source {
            name: landed.reference.name.clone(),
            sequence: landed.reference.sequence,
            entry_hash: landed.reference.entry_hash,
            latest: latest.is_some(),
        },
        store: landed.store.clone(),
        columns: exported,
        parts: vec![ExportPart {
            split: None,
            rows: all,
            files,
        }],
        older_versions: 0,
        warnings: warning.into_iter().collect(),
        converted: widened(&landed, &columns),
        json_text: json_text(&columns),
        left_out: BTreeMap::from([(
            system::HASH.to_owned(),
            "it only serves to find duplicates".to_owned(),
        )]),
        facts: facts(&landed),
        roles: None,
        notes: notes(&landed, latest.is_some()),
        beside: Vec::new(),
        text: None,
    };
    if let Some(latest) = latest {
        let kept = match landed.records {
            None => latest.len() as u64,
            Some(_) => count_kept(&table).await?,
        };
        table.older_versions = all.saturating_sub(kept);
        table.parts[0].rows = kept;
    }
    Ok(table)
}

/// Origins of the latest versions in landing order; of a child table, of the records whose rows are read. `None` for a source
/// without a key. 8 bytes a record are held in memory. Warns of versions that are ordered by the bytes of texts.
async fn latest(
    landed: &Landed,
    context: &Context,
) -> Result<(Option<Vec<u64>>, Option<Warning>), Error> {
    let records = landed.records.as_deref().unwrap_or(landed);
    let Some(newest) = LatestVersion::of(records)? else {
        return Ok((None, None));
    };
    // The engine would report a damaged file less clearly.
    landed.verify_files(|_| {}).await?;
    let scratch = Scratch::claim(&context.scratch)?;
    let session = session::session(
        context,
        &scratch.path("spill"),
        records.key.len() + 2,
        None,
        0,
    )?;
    let Some(all) = latest_version::versions(&session, records, &newest)? else {
        return Ok((Some(Vec::new()), None));
    };
    let warning = Box::pin(check_versions(&session, records)).await?;
    let origins = Box::pin(sorted(newest.keep(all)?)).await?;
    drop(scratch);
    Ok((Some(origins), warning))
}

async fn sorted(rows: DataFrame) -> Result<Vec<u64>, Error> {
    let origin = ident(system_columns::ORIGIN);
    let rows = rows
        .select(vec![origin.clone()])?
        .sort(vec![origin.sort(true, false)])?;
    let mut batches = rows.execute_stream().await?;
    let mut origins = Vec::new();
    while let Some(batch) = batches.try_next().await? {
        let column = batch.column(0).as_primitive::<UInt64Type>();
        origins.extend_from_slice(column.values());
    }
    Ok(origins)
}

/// Counts the rows of a child table whose record is a latest version.
async fn count_kept(table: &ExportTable) -> Result<u64, Error> {
    let mut kept = 0;
    for file in &table.parts[0].files {
        (kept, _) = table
            .read(file, kept, |kept, rows| {
                *kept += rows.num_rows() as u64;
                Ok(())
            })
            .await?;
    }
    Ok(kept)
}

/// Columns that find a row in the landing zone. Those of a child table depend on how deep its list is, so its first file names
/// them.
async fn system_columns(landed: &Landed) -> Result<Vec<ExportColumn>, Error> {
    let column = |name: &str| {
        let r#type = match name {
            system::SEQUENCE => DataType::UInt64,
            _ => DataType::UInt32,
        };
        ExportColumn::plain(name, r#type, false)
    };
    let mut found = vec![column(system::SEQUENCE), column(system::ROW)];
    let first = landed.files().next();
    if let Some(first) = first.filter(|_| landed.reference.name.table.is_some()) {
        let bytes = superseded_files::get(&landed.store, &first.path).await?;
        let metadata = ArrowReaderMetadata::load(&bytes, Default::default());
        let metadata = metadata.map_err(|e| unreadable(landed.store.url_of(&first.path), e))?;
        let names = metadata.schema().fields().iter().map(|field| field.name());
        let others = [system::SEQUENCE, system::ROW, system::HASH];
        let is_place =
            |name: &&String| name.starts_with(system::PREFIX) && !others.contains(&name.as_str());
        found.extend(names.filter(is_place).map(|name| column(name)));
    }
    Ok(found)
}

fn unreadable(url: String, error: impl std::fmt::Display) -> Error {
    let advice = "it was changed or damaged after it landed: restore it, or remove the source's landing folder and ingest again";
    Error::input(format!("`{url}`"), error.to_string(), advice)
}

fn facts(landed: &Landed) -> Vec<(String, String)> {
    let reference = &landed.reference;
    let mut facts = vec![
        ("feedline.source".to_owned(), reference.name.to_string()),
        (
            "feedline.sequence".to_owned(),
            reference.sequence.get().to_string(),
        ),
        (
            "feedline.entry_hash".to_owned(),
            reference.entry_hash.to_string(),
        ),
    ];
    if let Some(licence) = &reference.licence {
        facts.push(("feedline.licence".to_owned(), licence.clone()));
    }
    facts
}

fn notes(landed: &Landed, is_latest: bool) -> Vec<String> {
    let reference = &landed.reference;
    let mut notes = vec![format!(
        "Rows of the source `{}` as they had landed up to entry {} of its commit log, in landing order. `{}` and `{}` are the \
         batch of a row and its place there.",
        reference.name,
        reference.sequence.get(),
        system::SEQUENCE,
        system::ROW
    )];
    if is_latest {
        let key = landed.newest().0.join("`, `");
        notes.push(format!("Only the latest version of each `{key}` is here."));
    }
    if let Some(licence) = &reference.licence {
        notes.push(format!("Licence: {licence}."));
    }
    notes
}

fn json_text(columns: &[MergedColumn]) -> Vec<String> {
    let columns = columns.iter().filter(|c| c.r#type == ColumnType::Json);
    columns.map(|column| column.name.clone()).collect()
}

/// Columns that have another type in some schema versions, with these types.
fn widened(landed: &Landed, columns: &[MergedColumn]) -> BTreeMap<String, String> {
    let mut widened = BTreeMap::new();
    for column in columns {
        let versions = landed.generations.iter().flat_map(|g| &g.schema.columns);
        let mut earlier: Vec<String> = Vec::new();
        for version in versions.filter(|version| version.name == column.name) {
            let landed_as = landed_type(version.r#type);
            let text = format!("`{landed_as}`");
            let has_values = version.r#type != ColumnType::Null;
            let is_other = landed_as != landed_type(column.r#type);
            if has_values && is_other && !earlier.contains(&text) {
                earlier.push(text);
            }
        }
        if !earlier.is_empty() {
            let earlier = earlier.join(" and ");
            let now = landed_type(column.r#type);
            let text = format!("{earlier} in some schema versions, here all `{now}`");
            widened.insert(column.name.clone(), text);
        }
    }
    widened
}

/// Reads the files of one schema version.
#[derive(Debug)]
struct LandedReader {
    system: Vec<ExportColumn>,
    /// The source's columns, with their types over all versions.
    columns: Vec<MergedColumn>,
    /// The version of the files.
    schema: RecordSchema,
    /// True if `latest` are records, and rows are those of a child table.
    parent: bool,
    /// Origins of the rows to read, sorted; all rows if absent.
    latest: Option<Arc<Vec<u64>>>,
}

impl ReadRows for LandedReader {
    fn read(&self, file: Bytes, take: &mut TakeRows<'_>) -> Result<RoundedNumbers, Error> {
        let failed = |e: parquet::errors::ParquetError| Error::Arrow(e.into());
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(failed)?;
        let metadata = builder.metadata();
        let bytes = metadata.row_groups().iter().map(|g| g.total_byte_size());
        let bytes = u64::try_from(bytes.sum::<i64>()).unwrap_or_default();
        let rows = u64::try_from(metadata.file_metadata().num_rows()).unwrap_or_default();
        let batch = (BATCH_BYTES * rows / bytes.max(1)).clamp(1, BATCH_ROWS);
        let batch = usize::try_from(batch).unwrap_or(1);
        let reader = builder.with_batch_size(batch).build().map_err(failed)?;
        let exported = self.exported();
        let mut rounded = RoundedNumbers::default();
        for rows in reader {
            let rows = self.kept(rows?)?;
            if rows.num_rows() > 0 {
                take(&self.aligned(&rows, &exported, &mut rounded)?)?;
            }
        }
        Ok(rounded)
    }
}

impl LandedReader {
    fn exported(&self) -> SchemaRef {
        let own = self.columns.iter();
        let own = own.map(|c| ExportColumn::plain(&c.name, landed_type(c.r#type), true));
        schema_of(self.system.iter().cloned().chain(own))
    }

    /// The rows that are read.
    fn kept(&self, rows: RecordBatch) -> Result<RecordBatch, Error> {
        let Some(latest) = &self.latest else {
            return Ok(rows);
        };
        let place = if self.parent {
            system::PARENT
        } else {
            system::ROW
        };
        let [sequences, places] = [system::SEQUENCE, place].map(|name| number_column(&rows, name));
        let (sequences, places) = (sequences?, places?);
        let (sequences, places) = (
            sequences.as_primitive::<UInt64Type>().values(),
            places.as_primitive::<UInt64Type>().values(),
        );
        let origins = sequences.iter().zip(places.iter());
        let is_kept = origins.map(|(sequence, place)| {
            let origin = Origin::pack(0, *sequence, *place);
            origin.is_some_and(|origin| latest.binary_search(&origin.packed()).is_ok())
        });
        let is_kept: BooleanArray = is_kept.map(Some).collect();
        Ok(filter_record_batch(&rows, &is_kept)?)
    }

    /// The exported columns of rows of this schema version.
    fn aligned(
        &self,
        rows: &RecordBatch,
        exported: &SchemaRef,
        rounded: &mut RoundedNumbers,
    ) -> Result<RecordBatch, Error> {
        let system = self.system.iter();
        let system = system.map(|c| cast_all(&column_of(rows, &c.name)?, &c.r#type));
        let own = self.columns.iter().map(|c| self.own(rows, c, rounded));
        let columns = system.chain(own).collect::<Result<Vec<_>, Error>>()?;
        Ok(RecordBatch::try_new(Arc::clone(exported), columns)?)
    }

    fn own(
        &self,
        rows: &RecordBatch,
        column: &MergedColumn,
        rounded: &mut RoundedNumbers,
    ) -> Result<ArrayRef, Error> {
        let mut known = self.schema.columns.iter();
        let Some(found) = known.find(|known| known.name == column.name) else {
            let wanted = landed_type(column.r#type);
            return Ok(new_null_array(&wanted, rows.num_rows()));
        };
        let widened = WidenedColumn {
            name: &column.name,
            from: found.r#type,
            to: column.r#type,
        };
        widened.widen(&column_of(rows, &column.name)?, rounded)
    }
}

fn column_of(rows: &RecordBatch, name: &str) -> Result<ArrayRef, Error> {
    let column = rows.column_by_name(name).cloned();
    column.ok_or_else(|| {
        let reason = format!("it has no column `{name}`, which the commit log names");
        Error::input(
            "a landed file",
            reason,
            "run `feedline ingest verify` for all damage",
        )
    })
}

fn number_column(rows: &RecordBatch, name: &str) -> Result<ArrayRef, Error> {
    cast_all(&column_of(rows, name)?, &DataType::UInt64)
}
