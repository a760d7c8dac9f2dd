//! Write pass for windows over series as samples.
//!
//! The rows of a split are read by entity and in the order of time, transformed, and combined into
//! windows, which wait in scratch until they are read in the order of the shards. Both orders come
//! from sorts that spill; in between memory holds one batch of rows and one window.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{
        ArrayRef, AsArray, FixedSizeBinaryArray, FixedSizeListArray, Float32Array, Int32Array,
        RecordBatch, UInt64Array,
    },
    buffer::Buffer,
    compute::take,
    datatypes::{DataType, Field, Float32Type, Int32Type, Int64Type, Schema, SchemaRef},
};
use datafusion::{
    execution::object_store::ObjectStoreUrl,
    logical_expr::ident,
    prelude::{DataFrame, SessionContext},
};
use feedline_schemas::manifest::{SequenceCounts, Split, SplitShards};
use futures::TryStreamExt;

use super::{
    prepare::Build,
    rows::{RowWriter, TextCounts, set_aside},
    write_pass::{Fitted, SplitCells, Written, add_cells},
};
use crate::{
    Error, Transform,
    engine::{
        scratch::{Scratch, ScratchFile},
        session,
    },
    operators::{
        passthrough_columns,
        split::{ShuffleKey, code},
        time_series::{self, KnownTargets, NaiveErrors, NaiveLags, Sequence, Windows},
    },
    pass_progress::PassProgress,
    schema::system_columns::{self, column},
    shards::{shard_layout::ShardLayout, writer::SplitWriter},
    source::parquet_scan::{ParquetFiles, ScanFile},
    staging::{Matrix, Staged, order, rejects::RejectWriter},
    statistics::exact_sum::ExactMoments,
    tokenizer::Encoded,
    transform::{Applied, TargetValues},
};

/// The numbers of a window as bytes, little-endian.
const X: &str = "_x";
const Y: &str = "_y";

/// Bytes of windows that are held before they are written to scratch.
const HELD: usize = 8 << 20;

/// Bytes of a batch of windows, unless one window has more.
const BATCH_BYTES: usize = 32 << 20;

/// Most bytes of a window.
const WINDOW_BYTES: usize = 256 << 20;

impl Build<'_> {
    /// A window must be a sample that can be held.
    pub(super) fn check_sequence(&self, transform: &Transform) -> Result<(), Error> {
        let Some(sequence) = self.sequence() else {
            return Ok(());
        };
        // As many rows are at hand while windows are made.
        let length = sequence.length as usize + sequence.horizon as usize;
        let features = transform.features();
        if length
            .saturating_mul(features)
            .saturating_mul(size_of::<f32>())
            <= WINDOW_BYTES
        {
            return Ok(());
        }
        Err(Error::config(
            "dataset.sequence.length",
            format!(
                "{length} rows of {features} features, `horizon` among them, are more than the 256 MiB that may be held for a sample; \
                 use fewer of either"
            ),
        ))
    }

    pub(super) async fn write_windows(
        &self,
        staged: &Staged,
        fitted: &Arc<Fitted>,
        layout: &ShardLayout,
        scratch: &Scratch,
        sequence: Sequence,
    ) -> Result<Written, Error> {
        let numbers = sequence.length as usize * fitted.transform.features();
        let bytes = numbers * size_of::<f32>();
        let session = self.windows_session(scratch, bytes)?;
        let mut pass = self.windows_pass(staged, fitted, scratch, sequence, bytes);
        let mut splits = Vec::with_capacity(3);
        let mut classes: [Vec<u64>; 3] = Default::default();
        let mut targets = Vec::new();
        for split in Split::ALL {
            let windows = pass.windows(split).await?;
            let mut each = RowWriter::new(&self.spec, &layout.layout, &mut pass.rejects);
            let written = self.write_windows_of(&session, layout, (split, windows), &mut each);
            let written = Box::pin(written).await?;
            classes[usize::from(code(split))] = std::mem::take(&mut each.classes);
            if split == Split::Train {
                targets = std::mem::take(&mut each.targets);
            }
            if written.rows == 0 && staged.rows(split) > 0 {
                return Err(no_window(split, staged.rows(split), sequence));
            }
            splits.push(written);
        }
        pass.finish(splits, classes, targets)
    }

    /// Session of the engine whose batches hold windows of `bytes` bytes.
    fn windows_session(&self, scratch: &Scratch, bytes: usize) -> Result<SessionContext, Error> {
        let spill = scratch.path("spill-windows");
        let columns = self.spec.kept.len() + 4;
        let session = session::session(self.context, &spill, columns, Some(bytes as u64), 0)?;
        let at_once = (BATCH_BYTES / bytes.max(1)).max(1);
        {
            let state = session.state_ref();
            let mut state = state.write();
            let config = state.config_mut();
            let rows = config.batch_size().min(at_once);
            *config = config.clone().with_batch_size(rows);
        }
        Ok(session)
    }

    fn windows_pass<'p>(
        &self,
        staged: &'p Staged,
        fitted: &'p Arc<Fitted>,
        scratch: &'p Scratch,
        sequence: Sequence,
        bytes: usize,
    ) -> WindowsPass<'p> {
        WindowsPass {
            staged,
            fitted,
            scratch,
            sequence,
            bytes: i32::try_from(bytes).expect("a window is no larger than 256 MiB"),
            kept: self
                .spec
                .kept
                .iter()
                .map(passthrough_columns::named)
                .collect(),
            meter: PassProgress::new(&self.context.progress, "shards: windows", staged.total()),
            rejects: RejectWriter::new(scratch.path("rejects-transform.parquet")),
            naive: NaiveErrors::new(sequence),
            counts: SequenceCounts {
                length: sequence.length,
                horizon: sequence.horizon,
                ..SequenceCounts::default()
            },
            infinite: SplitCells::new(),
            capped: SplitCells::new(),
            unknown: SplitCells::new(),
        }
    }

    /// Writes the windows of a split, which are in scratch, to its shards, in the order of these.
    async fn write_windows_of(
        &self,
        session: &SessionContext,
        layout: &ShardLayout,
        (split, windows): (Split, Option<(ScanFile, SchemaRef)>),
        each: &mut RowWriter<'_>,
    ) -> Result<SplitShards, Error> {
        let sizes = &self.spec.config.shards;
        let mut writer = SplitWriter::new(&self.store, layout, split);
        let mut rows = 0;
        if let Some((file, schema)) = windows {
            let shuffle = sizes.shuffle.then(|| ShuffleKey::new(sizes.seed));
            let sorted = read(session, file, schema)?.sort(order(shuffle))?;
            let mut batches = sorted.execute_stream().await?;
            while let Some(batch) = batches.try_next().await? {
                let (values, none) = (applied(&batch), Encoded::default());
                rows += each.write(&batch, &values, &none, &mut writer).await?;
            }
        }
        Ok(SplitShards {
            split,
            rows,
            shards: writer.finish().await?,
            table: None,
        })
    }
}

fn no_window(split: Split, rows: u64, sequence: Sequence) -> Error {
    let span = u64::from(sequence.length) + u64::from(sequence.horizon);
    let reason = format!(
        "no window fits into the {split} split: among its {rows} rows nowhere {span} of one entity follow one another without a \
         gap; use a shorter window or horizon, land more, or give the split no share"
    );
    Error::config("dataset.sequence.length", reason)
}

fn read(session: &SessionContext, file: ScanFile, schema: SchemaRef) -> Result<DataFrame, Error> {
    let table = ParquetFiles {
        store: ObjectStoreUrl::local_filesystem(),
        schema,
        files: vec![file],
    };
    Ok(session.read_table(Arc::new(table))?)
}

/// Makes windows of staged rows.
struct WindowsPass<'a> {
    staged: &'a Staged,
    fitted: &'a Arc<Fitted>,
    scratch: &'a Scratch,
    sequence: Sequence,
    /// Bytes of a window.
    bytes: i32,
    /// Passthrough columns, under their names in the plan.
    kept: Vec<String>,
    meter: PassProgress,
    rejects: RejectWriter,
    counts: SequenceCounts,
    naive: NaiveErrors,
    infinite: SplitCells,
    capped: SplitCells,
    unknown: SplitCells,
}

/// Windows of a split that are being made.
struct SplitWindows {
    split: Split,
    windows: Windows,
    known: KnownTargets,
    /// Windows so far.
    made: u64,
}

impl WindowsPass<'_> {
    /// Result of the pass, once the windows of all splits were written.
    fn finish(
        self,
        splits: Vec<SplitShards>,
        classes: [Vec<u64>; 3],
        targets: Vec<ExactMoments>,
    ) -> Result<Written, Error> {
        tracing::info!(
            windows = self.counts.windows,
            incomplete = self.counts.incomplete,
            skipped = self.counts.skipped,
            "windows were made"
        );
        Ok(Written {
            splits,
            rejects: self.rejects.finish()?,
            texts: [TextCounts::default(); 3],
            boxes: None,
            sequence: Some(self.counts),
            naive: self.naive.into_forecasts(),
            infinite: self.infinite,
            capped: self.capped,
            unknown: self.unknown,
            classes,
            targets,
            extremes: Default::default(),
            equal: None,
        })
    }

    /// The windows of a split in scratch, if there are any: content, origin and what is kept of the row of the target, that
    /// target, and the numbers of the window.
    async fn windows(&mut self, split: Split) -> Result<Option<(ScanFile, SchemaRef)>, Error> {
        let by_time = [
            time_series::ENTITY,
            time_series::TIME,
            system_columns::ORIGIN,
        ];
        let by_time = by_time.map(|name| ident(name).sort(true, false));
        let rows = self.staged.frame(split)?.sort(Vec::from(by_time))?;
        let mut rows = rows.execute_stream().await?;
        let features = self.fitted.transform.features();
        let mut state = SplitWindows {
            split,
            windows: Windows::new(self.sequence, features),
            known: KnownTargets::new(NaiveLags::new(Some(self.sequence))),
            made: 0,
        };
        let mut open: Option<(ScratchFile, SchemaRef)> = None;
        while let Some(batch) = rows.try_next().await? {
            let fitted = Arc::clone(self.fitted);
            let (batch, applied) = transformed(fitted, split, batch).await?;
            self.meter.add(batch.num_rows() as u64);
            let bad = set_aside(&mut self.rejects, &batch, &applied)?;
            self.count_cells(split, &applied);
            if open.is_none() {
                let schema = self.schema(&batch, applied.y.as_ref())?;
                let path = self.scratch.path(&format!("windows-{split}.parquet"));
                open = Some((ScratchFile::new(path, Arc::clone(&schema)), schema));
            }
            let Some(file) = &mut open else { continue };
            self.add_windows(&mut state, file, (&batch, &applied), &bad)?;
        }
        state.windows.count(state.made, &mut self.counts);
        match open {
            Some((file, schema)) => Ok(file.finish()?.map(|file| (file, schema))),
            None => Ok(None),
        }
    }

    /// Counts infinite cells, capped cells and unknown values, those of bad rows among them.
    fn count_cells(&mut self, split: Split, applied: &Applied) {
        add_cells(&mut self.infinite, split, &applied.infinite);
        add_cells(&mut self.capped, split, &applied.capped);
        let unknown = applied.unknown.iter();
        let unknown = unknown.map(|(column, rows)| (column.clone(), rows.len() as u64));
        add_cells(&mut self.unknown, split, &unknown.collect());
    }

    /// Writes the windows that end at the good rows of a batch.
    fn add_windows(
        &mut self,
        state: &mut SplitWindows,
        (file, schema): &mut (ScratchFile, SchemaRef),
        (batch, applied): (&RecordBatch, &Applied),
        bad: &[bool],
    ) -> Result<(), Error> {
        let features = self.fitted.transform.features();
        let entities = column(batch, time_series::ENTITY).as_fixed_size_binary();
        let places = column(batch, time_series::PLACE).as_primitive::<Int64Type>();
        let (mut ends, mut x): (Vec<usize>, Vec<f32>) = (Vec::new(), Vec::new());
        for (row, is_bad) in bad.iter().enumerate() {
            let (entity, place) = (entities.value(row), places.value(row));
            let numbers = &applied.x[row * features..(row + 1) * features];
            let numbers = (!is_bad).then_some(numbers);
            let target = match &applied.y {
                Some(TargetValues::Regression(y)) if !is_bad => {
                    self.fitted.transform.unscale(y[row])
                }
                _ => None,
            };
            state.known.push(entity, place, target);
            if state.windows.step(entity, place, numbers, &mut x) {
                ends.push(row);
                let naive = state.known.forecasts(entity, place);
                self.naive.add(state.split, target, naive);
            }
            if x.len() * size_of::<f32>() >= HELD {
                state.made += ends.len() as u64;
                file.write(&self.samples(schema, batch, applied, &ends, &x)?)?;
                (ends, x) = (Vec::new(), Vec::new());
            }
        }
        state.made += ends.len() as u64;
        file.write(&self.samples(schema, batch, applied, &ends, &x)?)
    }

    fn schema(&self, rows: &RecordBatch, y: Option<&TargetValues>) -> Result<SchemaRef, Error> {
        let names = [system_columns::HASH, system_columns::ORIGIN].into_iter();
        let names = names.chain(self.kept.iter().map(String::as_str));
        let mut fields = Vec::new();
        for name in names {
            let of_rows = rows.schema();
            fields.push(of_rows.field_with_name(name)?.clone());
        }
        fields.extend(y.map(|y| {
            let r#type = match y {
                TargetValues::Regression(_) => DataType::Float32,
                TargetValues::Regressions { targets, .. } => of_targets(*targets),
                TargetValues::Classification(_) => DataType::Int32,
            };
            Field::new(Y, r#type, false)
        }));
        fields.push(Field::new(X, DataType::FixedSizeBinary(self.bytes), false));
        Ok(Arc::new(Schema::new(fields)))
    }

    /// The windows `x` that end at these rows of a batch.
    fn samples(
        &self,
        schema: &SchemaRef,
        batch: &RecordBatch,
        applied: &Applied,
        ends: &[usize],
        x: &[f32],
    ) -> Result<RecordBatch, Error> {
        let at: UInt64Array = ends.iter().map(|row| Some(*row as u64)).collect();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            columns.push(match (field.name().as_str(), &applied.y) {
                (X, _) => {
                    let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
                    let bytes = Buffer::from_vec(bytes);
                    Arc::new(FixedSizeBinaryArray::try_new(self.bytes, bytes, None)?)
                }
                (Y, Some(TargetValues::Regression(y))) => {
                    let y = ends.iter().map(|row| y[*row]);
                    Arc::new(Float32Array::from_iter_values(y))
                }
                (Y, Some(TargetValues::Regressions { y, targets })) => {
                    let rows = ends
                        .iter()
                        .flat_map(|row| &y[row * targets..(row + 1) * targets]);
                    let y = Arc::new(Float32Array::from_iter_values(rows.copied()));
                    let (item, width) = (Arc::new(item()), width_of(*targets));
                    Arc::new(FixedSizeListArray::try_new(item, width, y, None)?)
                }
                (Y, Some(TargetValues::Classification(y))) => {
                    let y = ends.iter().map(|row| y[*row]);
                    Arc::new(Int32Array::from_iter_values(y))
                }
                (name, _) => take(column(batch, name), &at, None)?,
            });
        }
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    }
}

/// Type of several targets of a row.
fn of_targets(targets: usize) -> DataType {
    DataType::FixedSizeList(Arc::new(item()), width_of(targets))
}

fn item() -> Field {
    Field::new("item", DataType::Float32, false)
}

fn width_of(targets: usize) -> i32 {
    i32::try_from(targets).expect("fewer than 2^31 targets")
}

/// Transforms a batch.
async fn transformed(
    fitted: Arc<Fitted>,
    split: Split,
    batch: RecordBatch,
) -> Result<(RecordBatch, Applied), Error> {
    let work = move || {
        let applied = match split {
            Split::Train => fitted.transform.apply_train(&batch, &Matrix::default())?,
            _ => fitted.transform.apply(&batch)?,
        };
        Ok((batch, applied))
    };
    let joined = tokio::task::spawn_blocking(work).await;
    joined?
}

/// Windows that were read back.
fn applied(batch: &RecordBatch) -> Applied {
    let windows = column(batch, X).as_fixed_size_binary();
    let windows = (0..batch.num_rows()).flat_map(|row| windows.value(row).chunks_exact(4));
    let number = |bytes: &[u8]| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let y = batch.column_by_name(Y).map(|y| match y.data_type() {
        DataType::Float32 => {
            TargetValues::Regression(y.as_primitive::<Float32Type>().values().to_vec())
        }
        DataType::FixedSizeList(_, targets) => {
            let y = y.as_fixed_size_list().values();
            TargetValues::Regressions {
                y: y.as_primitive::<Float32Type>().values().to_vec(),
                targets: usize::try_from(*targets).unwrap_or_default(),
            }
        }
        _ => TargetValues::Classification(y.as_primitive::<Int32Type>().values().to_vec()),
    });
    Applied {
        x: windows.map(number).collect(),
        y,
        bad: Vec::new(),
        infinite: BTreeMap::new(),
        capped: BTreeMap::new(),
        unknown: BTreeMap::new(),
    }
}
