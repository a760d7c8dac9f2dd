//! Rows of a query in files of the shared store, which outlive the worker that made them.
//!
//! Two operators of one kind are at the top of a plan that is sent out. The lower one writes each
//! partition to a file of its own. A task does not know its partition, so files have unique names,
//! and a rerun task leaves another file. The upper one writes the names of the valid files, under
//! the one name that the build knows. Other files are never read and are removed with the folder.
//! Files are Arrow streams, whose ends prove that they are complete.

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::BuildHasher as _,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch, StringArray, UInt64Array},
    buffer::Buffer,
    datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type},
    ipc::{reader::StreamDecoder, writer::StreamWriter},
};
use bytes::Bytes;
use datafusion::{
    common::{exec_err, tree_node::TreeNodeRecursion},
    error::{DataFusionError, Result},
    execution::{SendableRecordBatchStream, TaskContext, object_store::ObjectStoreUrl},
    physical_expr::{EquivalenceProperties, LexOrdering, OrderingRequirements, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, Distribution, ExecutionPlan, ExecutionPlanProperties,
        InputDistributionRequirements, Partitioning, PlanProperties,
        execution_plan::{Boundedness, EmissionType},
        stream::RecordBatchStreamAdapter,
    },
};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectStore, ObjectStoreExt, buffered::BufWriter, path::Path};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;

/// Bytes that are written to the store at a time.
const PART: usize = 8 << 20;

/// Names that this process has given, and what sets them apart from those of others.
static NAMES: AtomicU64 = AtomicU64::new(0);
static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));

/// A name that nothing else has.
pub(super) fn name() -> String {
    let count = NAMES.fetch_add(1, Ordering::Relaxed);
    format!("{:016x}-{count}", *PROCESS)
}

/// Destination of rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct To {
    /// The store, as plans name it.
    pub(super) store: String,
    /// Folder in it.
    pub(super) folder: String,
    /// Name of the file, of a plan of one partition; one that nothing else has where absent.
    pub(super) name: Option<String>,
}

impl To {
    fn path(&self) -> Result<Path> {
        let folder = parsed(&self.folder)?;
        let name = self.name.clone().unwrap_or_else(name);
        Ok(folder.join(format!("{name}{ENDING}")))
    }
}

/// Ending of the names of files.
pub(super) const ENDING: &str = ".arrows";

fn parsed(path: &str) -> Result<Path> {
    Path::parse(path).map_err(|e| DataFusionError::External(Box::new(e)))
}

/// A file, as listed in the stream of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spooled {
    pub(super) path: Path,
    /// Number of its rows, if known.
    pub(super) rows: Option<u64>,
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("path", DataType::Utf8, false),
        Field::new("rows", DataType::UInt64, false),
    ]))
}

/// The files that a list names.
pub(super) fn listed(batch: &RecordBatch) -> Result<Vec<Spooled>> {
    let paths = batch.column(0).as_string_opt::<i32>();
    let rows = batch.column(1).as_primitive_opt::<UInt64Type>();
    let (Some(paths), Some(rows)) = (paths, rows) else {
        return exec_err!("a list of files has columns of other types");
    };
    let files = paths.iter().flatten().zip(rows.values());
    let files = files.map(|(path, rows)| {
        Ok(Spooled {
            path: parsed(path)?,
            rows: Some(*rows),
        })
    });
    files.collect()
}

/// Writes the rows of its input; hands on a row for each partition: the file, and how many rows it has.
#[derive(Debug)]
pub(super) struct Spool {
    input: Arc<dyn ExecutionPlan>,
    to: To,
    /// Order of the rows, and whether they are one partition. Without it, the planner of the stages
    /// would remove the operators that provide it as unused.
    order: Option<LexOrdering>,
    is_one: bool,
    properties: Arc<PlanProperties>,
}

impl Spool {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, to: To) -> Self {
        let order = input.output_ordering().cloned();
        let is_one = input.output_partitioning().partition_count() == 1;
        Self::as_before(input, to, order, is_one)
    }

    fn as_before(
        input: Arc<dyn ExecutionPlan>,
        to: To,
        order: Option<LexOrdering>,
        is_one: bool,
    ) -> Self {
        let partitions = input.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            input,
            to,
            order,
            is_one,
            properties: Arc::new(properties),
        }
    }

    pub(super) fn to(&self) -> &To {
        &self.to
    }
}

impl DisplayAs for Spool {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spool: {}", self.to.folder)
    }
}

impl ExecutionPlan for Spool {
    fn name(&self) -> &'static str {
        "Spool"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![if self.is_one {
            Distribution::SinglePartition
        } else {
            Distribution::UnspecifiedDistribution
        }])
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![self.order.clone().map(OrderingRequirements::from)]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => {
                let (to, order) = (self.to.clone(), self.order.clone());
                Ok(Arc::new(Self::as_before(input, to, order, self.is_one)))
            }
            _ => exec_err!("rows are written from one input"),
        }
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let url = ObjectStoreUrl::parse(&self.to.store)?;
        let store = context.runtime_env().object_store(&url)?;
        let rows = self.input.execute(partition, context)?;
        let path = self.to.path()?;
        let written = stream::once(async move {
            let rows = write(&store, &path, rows).await?;
            let columns: [ArrayRef; 2] = [
                Arc::new(StringArray::from(vec![path.as_ref()])),
                Arc::new(UInt64Array::from(vec![rows])),
            ];
            Ok(RecordBatch::try_new(schema(), columns.to_vec())?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema(), written)))
    }
}

/// Writes a file atomically; returns the number of its rows.
async fn write(
    store: &Arc<dyn ObjectStore>,
    path: &Path,
    mut rows: SendableRecordBatchStream,
) -> Result<u64> {
    let mut encoder = StreamWriter::try_new(Vec::new(), &rows.schema())?;
    let mut file = BufWriter::with_capacity(Arc::clone(store), path.clone(), PART);
    let mut count = 0;
    let outcome: Result<()> = async {
        while let Some(batch) = rows.try_next().await? {
            count += batch.num_rows() as u64;
            encoder.write(&batch)?;
            let encoded = std::mem::take(encoder.get_mut());
            file.put(encoded.into()).await?;
        }
        encoder.finish()?;
        let encoded = std::mem::take(encoder.get_mut());
        file.put(encoded.into()).await?;
        Ok(())
    }
    .await;
    match outcome {
        Ok(()) => {
            file.shutdown().await?;
            Ok(count)
        }
        Err(error) => {
            // What was begun goes with the folder, if it cannot be taken back.
            if let Err(failed) = file.abort().await {
                tracing::debug!(%path, error = %failed, "a file was begun and could not be taken back");
            }
            Err(error)
        }
    }
}

/// The rows of a file, in their order.
///
/// # Errors
/// When it is absent, ends early, or has another number of rows.
pub(super) async fn read(
    store: Arc<dyn ObjectStore>,
    file: Spooled,
) -> Result<impl futures::Stream<Item = Result<RecordBatch>> + Send> {
    let found = store.get(&file.path).await?;
    let reading = Reading {
        bytes: found.into_stream().boxed(),
        decoder: StreamDecoder::new(),
        rest: Buffer::from(Vec::<u8>::new()),
        file,
        rows: 0,
    };
    Ok(stream::try_unfold(reading, Reading::next))
}

struct Reading {
    bytes: stream::BoxStream<'static, object_store::Result<Bytes>>,
    decoder: StreamDecoder,
    /// Bytes that were read and not yet decoded.
    rest: Buffer,
    file: Spooled,
    rows: u64,
}

impl Reading {
    async fn next(mut self) -> Result<Option<(RecordBatch, Self)>> {
        loop {
            if let Some(batch) = self.decoder.decode(&mut self.rest)? {
                self.rows += batch.num_rows() as u64;
                return Ok(Some((batch, self)));
            }
            match self.bytes.try_next().await? {
                Some(bytes) => self.rest = Buffer::from(bytes),
                None => {
                    self.decoder.finish()?;
                    let Spooled { path, rows } = &self.file;
                    return match rows {
                        Some(rows) if self.rows != *rows => {
                            exec_err!("`{path}` has {} rows of {rows}", self.rows)
                        }
                        _ => Ok(None),
                    };
                }
            }
        }
    }
}
