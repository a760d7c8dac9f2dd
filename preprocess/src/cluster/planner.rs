//! Session of a build with a cluster: its queries run there where they can, and locally otherwise.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use ballista_core::{execution_plans::execute_physical_plan, extension::SessionConfigExt as _};
use datafusion::{
    catalog::Session as EngineSession,
    common::{
        exec_datafusion_err, exec_err,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    datasource::{physical_plan::FileScanConfig, source::DataSourceExec},
    error::{DataFusionError, Result},
    execution::{
        SendableRecordBatchStream, SessionStateBuilder, TaskContext, context::QueryPlanner,
        object_store::ObjectStoreUrl, runtime_env::RuntimeEnv,
    },
    logical_expr::LogicalPlan,
    physical_expr::{EquivalenceProperties, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
        PlanProperties,
        coalesce_partitions::CoalescePartitionsExec,
        execution_plan::{Boundedness, EmissionType},
        repartition::RepartitionExec,
        stream::RecordBatchStreamAdapter,
    },
    physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner},
    prelude::{SessionConfig, SessionContext},
};
use datafusion_proto::{physical_plan::AsExecutionPlan, protobuf::PhysicalPlanNode};
use feedline_storage::Store;
use futures::{TryStreamExt, stream};
use object_store::{ObjectStore, path::Path};
use tokio::sync::OnceCell;

use super::{
    attempts::REFUSED,
    codec::Codec,
    nodes,
    secret::ClusterSecret,
    spool::{self, Spool, Spooled, To},
};
use crate::engine::store_urls;

/// Scheduler messages of queries that failed because a worker was lost: tasks were refused, could
/// not fetch data, or received only a part of it. The scheduler sends the text of an error, and no type.
const LOST: [&str; 7] = [
    REFUSED,
    "has failed 1 times",
    "GrpcConnectionError",
    "TonicError",
    "h2 protocol error",
    "code: 'The service is currently unavailable'",
    "code: 'The operation was cancelled'",
];

/// Attempts to run a query while the cluster loses workers.
const TRIES: u32 = 4;

/// Folder below the root of a pipeline for what queries leave.
const SCRATCH: &str = "feedline-scratch";

/// Age after which leftovers of dead builds are removed.
const LEFT: Duration = Duration::from_secs(24 * 3600);

/// A cluster, by its scheduler. Builds at the same time may use clones of one.
#[derive(Clone, Debug)]
pub struct Cluster {
    address: String,
    /// Secret that its programs share; without one they refuse every query.
    secret: Option<ClusterSecret>,
    /// Name of the folder for the rows of its queries, unique for each build.
    pub(crate) folder: String,
    /// Queries that it has run.
    queries: Arc<AtomicU64>,
}

impl Cluster {
    /// The cluster of the scheduler at `address`, such as `10.0.0.5:50050`.
    #[must_use]
    pub fn at(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            secret: None,
            folder: spool::name(),
            queries: Arc::default(),
        }
    }

    /// Sets the secret that the programs of the cluster share.
    #[must_use]
    pub fn with_secret(mut self, secret: ClusterSecret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// The cluster for one build, which only removes its own rows.
    pub(crate) fn of_build(&self) -> Self {
        Self {
            folder: spool::name(),
            ..self.clone()
        }
    }

    /// Number of queries that it has run for this value and its clones. Others ran in this process.
    #[must_use]
    pub fn queries(&self) -> u64 {
        self.queries.load(Ordering::Relaxed)
    }

    /// A session whose queries run on the cluster where they can; their files are stored below
    /// `root` until [`Self::sweep`] removes them.
    pub(crate) fn session(
        &self,
        config: SessionConfig,
        runtime: Arc<RuntimeEnv>,
        root: &Store,
    ) -> Result<SessionContext> {
        let Some(secret) = &self.secret else {
            return exec_err!("the cluster at `df://{}` needs a secret", self.address);
        };
        let (_, _, folder) = root.child(SCRATCH).child(&self.folder).object_store();
        let planner = ClusterPlanner {
            session: Arc::new(Session {
                cluster: self.clone(),
                store: store_urls::url_of(root)?,
                folder,
            }),
            planner: DefaultPhysicalPlanner::default(),
        };
        let state = SessionStateBuilder::new()
            .with_config(nodes::settings(config, secret))
            .with_runtime_env(runtime)
            .with_default_features()
            .with_query_planner(Arc::new(planner))
            .build();
        Ok(SessionContext::new_with_state(state))
    }

    /// Removes what its queries left below `root`, and the folders of builds there that died: they wrote nothing in the day
    /// before `now`, the time since 1970.
    ///
    /// # Errors
    /// Errors of the store. Files that remain do no harm.
    pub(crate) async fn sweep(
        &self,
        root: &Store,
        now: Duration,
    ) -> std::result::Result<(), feedline_storage::Error> {
        let left = root.list(SCRATCH).await?;
        let own = format!("{SCRATCH}/{}", self.folder);
        let mut folders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for file in &left {
            let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            if folder == own || file.path.ends_with(spool::ENDING) {
                folders.entry(folder).or_default().push(&file.path);
            }
        }
        for (folder, files) in folders {
            if folder == own || is_dead(root, &files, now).await? {
                for file in files {
                    root.delete(file).await?;
                }
            }
        }
        Ok(())
    }

    /// Host and port of the scheduler.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// Returns true if no file of a folder was written in the day before `now`. A new file means that
/// its build is alive and may still read the old ones.
async fn is_dead(
    root: &Store,
    files: &[&str],
    now: Duration,
) -> std::result::Result<bool, feedline_storage::Error> {
    for file in files {
        match root.modified(file).await {
            Ok(modified) if now.saturating_sub(modified) > LEFT => {}
            Ok(_) => return Ok(false),
            // Whoever made it is removing it.
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// State of a session besides its settings.
#[derive(Debug)]
struct Session {
    cluster: Cluster,
    /// The shared store, as plans name it.
    store: ObjectStoreUrl,
    /// Folder in it for the rows of queries, used by this session only.
    folder: Path,
}

/// Plans as the engine does, and then for the cluster.
struct ClusterPlanner {
    session: Arc<Session>,
    planner: DefaultPhysicalPlanner,
}

impl fmt::Debug for ClusterPlanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterPlanner")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl QueryPlanner for ClusterPlanner {
    async fn create_physical_plan(
        &self,
        logical: &LogicalPlan,
        session: &dyn EngineSession,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.planner.create_physical_plan(logical, session).await?;
        if !self.is_shared(&plan)? {
            tracing::debug!("a query runs locally: it reads data that only this machine has");
            return Ok(plan);
        }
        let query = Query {
            rows: undealt(Arc::clone(&plan))?,
            session: Arc::clone(&self.session),
        };
        let sent = query.sent(String::new());
        if let Err(error) = PhysicalPlanNode::try_from_physical_plan(sent, &Codec::default()) {
            tracing::debug!(%error, "a query runs locally: it cannot be serialized");
            return Ok(plan);
        }
        Ok(Arc::new(Remote::new(query)))
    }
}

/// A plan without the places where rows are dealt out by turns: they would be dealt otherwise when a task is run again, so a
/// scheduler leaves them out.
fn undealt(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let without = |node: Arc<dyn ExecutionPlan>| {
        let by_turns = node
            .downcast_ref::<RepartitionExec>()
            .filter(|dealt| matches!(dealt.partitioning(), Partitioning::RoundRobinBatch(_)));
        Ok(match by_turns {
            Some(dealt) => Transformed::yes(Arc::clone(dealt.input())),
            None => Transformed::no(node),
        })
    };
    Ok(plan.transform_up(without)?.data)
}

impl ClusterPlanner {
    /// Returns true if the plan reads something, and only from the shared store.
    fn is_shared(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
        let (mut leaves, mut shared) = (0_usize, 0_usize);
        plan.apply(|node| {
            if node.children().is_empty() {
                leaves += 1;
                let scan = node
                    .downcast_ref::<DataSourceExec>()
                    .and_then(|source| source.data_source().downcast_ref::<FileScanConfig>());
                if scan.is_some_and(|scan| scan.object_store_url == self.session.store) {
                    shared += 1;
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(leaves > 0 && leaves == shared)
    }
}

/// A query for the cluster.
#[derive(Clone, Debug)]
struct Query {
    rows: Arc<dyn ExecutionPlan>,
    session: Arc<Session>,
}

impl Query {
    /// The plan that leaves the rows in the store, and the list of their files under this name.
    fn sent(&self, list: String) -> Arc<dyn ExecutionPlan> {
        let Session { store, folder, .. } = &*self.session;
        let to = |name: Option<String>| To {
            store: store.as_str().to_owned(),
            folder: folder.to_string(),
            name,
        };
        let rows = Arc::new(Spool::new(Arc::clone(&self.rows), to(None)));
        let one = Arc::new(CoalescePartitionsExec::new(rows));
        Arc::new(Spool::new(one, to(Some(list))))
    }

    fn partitions(&self) -> usize {
        let partitions = self.rows.output_partitioning().partition_count();
        partitions.max(1)
    }
}

/// Files that a query left, or its error message, which each partition reports.
type Outcome = std::result::Result<Vec<Spooled>, String>;

/// A query that the cluster runs when its first partition is asked for, and not again for the others, whatever comes of it;
/// only where that partition is given up while the query runs, the next one runs it.
#[derive(Debug)]
struct Remote {
    query: Query,
    properties: Arc<PlanProperties>,
    /// The files, or why there are none, when it has run.
    files: Arc<OnceCell<Outcome>>,
}

impl Remote {
    fn new(query: Query) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(query.rows.schema()),
            Partitioning::UnknownPartitioning(query.partitions()),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            query,
            properties: Arc::new(properties),
            files: Arc::default(),
        }
    }
}

impl DisplayAs for Remote {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote: {}", self.query.session.cluster.address)
    }
}

impl ExecutionPlan for Remote {
    fn name(&self) -> &'static str {
        "Remote"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let (files, query) = (Arc::clone(&self.files), self.query.clone());
        let store = context.runtime_env().object_store(&query.session.store)?;
        let rows = stream::once(async move {
            let run = async {
                let files = run(&query, &context, &store).await;
                files.map_err(|error| error.message().into_owned())
            };
            let outcome = files.get_or_init(|| run).await;
            match outcome {
                Ok(files) => spool::read(store, files[partition].clone()).await,
                Err(message) => exec_err!("{message}"),
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            rows.try_flatten(),
        )))
    }
}

/// Has the cluster run a query; returns the files that it left, one for each partition.
///
/// A query ends when a worker is lost that had data of it, and is run again from here: see `attempts`.
async fn run(
    query: &Query,
    context: &TaskContext,
    store: &Arc<dyn ObjectStore>,
) -> Result<Vec<Spooled>> {
    let (partitions, cluster) = (query.partitions(), &query.session.cluster);
    for _ in 0..TRIES {
        let files = match run_once(query, context, store).await {
            Err(error) if is_of_lost_worker(&error) => {
                tracing::debug!(%error, "a query ended early");
                Vec::new()
            }
            files => files?,
        };
        let distinct: BTreeSet<&Path> = files.iter().map(|file| &file.path).collect();
        if files.len() == partitions && distinct.len() == partitions {
            cluster.queries.fetch_add(1, Ordering::Relaxed);
            return Ok(files);
        }
        tracing::warn!(
            partitions,
            files = files.len(),
            "the cluster lost a worker; rerunning the query"
        );
    }
    exec_err!(
        "the cluster at `df://{}` lost workers each of the {TRIES} times that it ran a query; build again when they stay",
        cluster.address
    )
}

fn is_of_lost_worker(error: &DataFusionError) -> bool {
    let message = error.to_string();
    // Who cannot reach the scheduler has no query that failed.
    message.contains("Job ") && LOST.iter().any(|lost| message.contains(lost))
}

async fn run_once(
    query: &Query,
    context: &TaskContext,
    store: &Arc<dyn ObjectStore>,
) -> Result<Vec<Spooled>> {
    let config = context.session_config();
    let Session {
        cluster, folder, ..
    } = &*query.session;
    // A name of its own for each time, as a task that everybody took for lost may still write the list of the time before.
    let list = format!("list-{}", spool::name());
    // What comes back would be fetched from a worker, which may be gone by then: it is in the store.
    let done = Box::pin(execute_physical_plan::<PhysicalPlanNode>(
        format!("http://{}", cluster.address),
        &config.ballista_config(),
        query.sent(list.clone()),
        &Codec::default(),
        context.session_id().clone(),
        config.clone(),
    ))
    .await;
    let done = done.map(drop);
    done.map_err(|error| failed(&cluster.address, &error))?;
    let list = Spooled {
        path: folder.clone().join(format!("{list}{}", spool::ENDING)),
        rows: None,
    };
    let lists = spool::read(Arc::clone(store), list).await?;
    let lists: Vec<_> = lists.try_collect().await?;
    let mut files = Vec::new();
    for list in &lists {
        files.extend(spool::listed(list)?);
    }
    let rows: u64 = files.iter().filter_map(|file| file.rows).sum();
    tracing::debug!(files = files.len(), rows, "a query was run by the cluster");
    Ok(files)
}

fn failed(address: &str, error: &DataFusionError) -> DataFusionError {
    exec_datafusion_err!(
        "the cluster at `df://{address}` did not run a query: {error}; look at the logs of its scheduler and workers, \
         or build with `--engine local`"
    )
}

#[cfg(test)]
mod tests {
    use std::{fs::File, time::SystemTime};

    use arrow::{
        array::{ArrayRef, Int64Array, RecordBatch},
        datatypes::{DataType, Field, Schema},
    };
    use datafusion::{
        execution::runtime_env::RuntimeEnvBuilder,
        physical_plan::{displayable, empty::EmptyExec},
    };
    use object_store::memory::InMemory;

    use super::*;
    use crate::cluster::secret::tests::secret;
    use crate::source::parquet_scan::{ParquetFiles, ScanFile};

    #[test]
    fn only_a_query_that_lost_a_worker_is_run_again() {
        for (message, expected) in [
            (
                "Job q failed: Job failed due to stage 2 failed: Task failed due to runtime execution error: \
                 DataFusionError(Execution(\"a stage was begun again, as a worker was lost\"))",
                true,
            ),
            (
                "Job q failed: Job failed due to stage 3 failed: Stage 3 has failed 1 times, most recent failure reason: \"x\"",
                true,
            ),
            (
                "Job q failed: Job failed due to stage 2 failed: Task failed due to runtime execution error: \
                 DataFusionError(Shared(External(ArrowError(IpcError(\"Arrow error: Ipc error: code: 'Unknown error', message: \
                 \\\"h2 protocol error: error reading a body from connection\\\", source: hyper::Error(Body, Error { kind: \
                 Io(Kind(ConnectionReset)) })\")))))",
                true,
            ),
            (
                "Job q failed: Job failed due to stage 1 failed: Task 0 in Stage 1 failed 4 times, fail the stage",
                false,
            ),
            (
                "Job q failed: all executors were lost and no executor re-registered within 18s",
                false,
            ),
            (
                "tonic::transport::Error(Transport, ConnectError(GrpcConnectionError))",
                false,
            ),
        ] {
            let error = DataFusionError::Execution(message.to_owned());
            assert_eq!(is_of_lost_worker(&error), expected, "{message}");
            // As it comes from a query.
            assert_eq!(is_of_lost_worker(&failed("a:1", &error)), expected);
        }
    }

    #[tokio::test]
    async fn rows_are_not_dealt_out_by_turns() {
        const STORE: &str = "shared://66";
        let session = SessionContext::new();
        let store = ObjectStoreUrl::parse(STORE).unwrap();
        session.register_object_store(store.as_ref(), Arc::new(InMemory::new()));
        let file = ScanFile {
            path: "landing/a.parquet".into(),
            bytes: 9,
        };
        let field = Field::new("x", DataType::Float64, true);
        let table = ParquetFiles {
            store,
            schema: Arc::new(Schema::new(vec![field])),
            files: vec![file.clone(), file],
        };
        let rows = session.read_table(Arc::new(table)).unwrap();
        let plan = rows.create_physical_plan().await.unwrap();
        let dealt = RepartitionExec::try_new(plan, Partitioning::RoundRobinBatch(7)).unwrap();
        let plan: Arc<dyn ExecutionPlan> = Arc::new(CoalescePartitionsExec::new(Arc::new(dealt)));
        let shown =
            |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).indent(true).to_string();
        assert!(
            shown(&plan).contains("RoundRobinBatch(7)"),
            "{}",
            shown(&plan)
        );
        let plan = undealt(plan).unwrap();
        assert!(
            !shown(&plan).contains("RoundRobinBatch"),
            "{}",
            shown(&plan)
        );
    }

    /// A cluster without a scheduler.
    fn cluster() -> Cluster {
        Cluster::at("127.0.0.1:1").with_secret(secret())
    }

    /// A query of so many partitions, for a cluster without a scheduler.
    fn unanswered(partitions: usize, session: &SessionContext) -> Remote {
        const STORE: &str = "shared://66";
        let store = ObjectStoreUrl::parse(STORE).unwrap();
        session.register_object_store(store.as_ref(), Arc::new(InMemory::new()));
        let field = Field::new("x", DataType::Float64, true);
        let rows = EmptyExec::new(Arc::new(Schema::new(vec![field])));
        Remote::new(Query {
            rows: Arc::new(rows.with_partitions(partitions)),
            session: Arc::new(Session {
                cluster: cluster(),
                store,
                folder: Path::from("scratch"),
            }),
        })
    }

    async fn error_of(query: &Remote, partition: usize, session: &SessionContext) -> String {
        let rows = query.execute(partition, session.task_ctx()).unwrap();
        let rows: Result<Vec<_>> = rows.try_collect().await;
        rows.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_query_that_fails_is_sent_once_for_all_its_partitions() {
        let session =
            SessionContext::new_with_config(nodes::settings(SessionConfig::new(), &secret()));
        let query = unanswered(3, &session);
        let first = error_of(&query, 0, &session).await;
        assert!(first.contains("`df://127.0.0.1:1` did not run"), "{first}");
        for partition in [1, 2] {
            assert_eq!(error_of(&query, partition, &session).await, first);
        }
        let kept = query.files.get().unwrap().as_ref().unwrap_err();
        assert_eq!(first, format!("Execution error: {kept}"));

        // The stored outcome is reported, without a new request.
        let query = unanswered(2, &session);
        query.files.set(Err("it was lost".to_owned())).unwrap();
        for partition in [0, 1] {
            let error = error_of(&query, partition, &session).await;
            assert_eq!(error, "Execution error: it was lost");
        }
    }

    #[tokio::test]
    async fn builds_remove_what_is_theirs_and_what_died() {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().to_str().unwrap();
        let root = Store::open(base, &feedline_storage::StoreOptions::default()).unwrap();
        let cluster = cluster();
        let (one, other) = (cluster.of_build(), cluster.of_build());
        let put = async |folder: &str, file: &str, age_s: u64| {
            let path = format!("{SCRATCH}/{folder}/{file}");
            root.put(&path, "rows".into()).await.unwrap();
            let now = root.modified(&path).await.unwrap();
            let written = SystemTime::UNIX_EPOCH + now - Duration::from_secs(age_s);
            let file = File::options().write(true).open(place.path().join(path));
            file.unwrap().set_modified(written).unwrap();
            now
        };
        let day = LEFT.as_secs();
        put(one.folder.as_str(), "rows.arrows", 0).await;
        put(one.folder.as_str(), "list", 0).await;
        put(other.folder.as_str(), "rows.arrows", 0).await;
        put("alive", "old.arrows", 2 * day).await;
        put("alive", "new.arrows", day - 3600).await;
        put("dead", "rows.arrows", 2 * day).await;
        let now = put("dead", "note", 2 * day).await;
        one.sweep(&root, now).await.unwrap();
        let left = root.list(SCRATCH).await.unwrap();
        let mut expected = [
            format!("{SCRATCH}/{}/rows.arrows", other.folder),
            format!("{SCRATCH}/alive/new.arrows"),
            format!("{SCRATCH}/alive/old.arrows"),
            format!("{SCRATCH}/dead/note"),
        ];
        expected.sort();
        assert_eq!(
            left.into_iter().map(|l| l.path).collect::<Vec<_>>(),
            expected
        );
    }

    #[tokio::test]
    async fn what_only_this_machine_has_is_read_here() {
        let cluster = cluster();
        let runtime = RuntimeEnvBuilder::new().build_arc().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let root = Store::open(
            folder.path().to_str().unwrap(),
            &feedline_storage::StoreOptions::default(),
        );
        let session = cluster.session(SessionConfig::new(), runtime, &root.unwrap());
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let batch = RecordBatch::try_from_iter([("x", column)]).unwrap();
        let rows = session.unwrap().read_batch(batch).unwrap();
        let found = rows.collect().await.unwrap();
        assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
        assert_eq!(cluster.queries(), 0);
    }
}
