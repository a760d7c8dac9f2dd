//! The session of a build that has a cluster: its queries run there where they can, and here where not.

use std::{
    collections::BTreeSet,
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
    codec::Codec,
    nodes,
    spool::{self, Spool, Spooled, To},
};
use crate::shared;

/// Queries that this process has sent out.
static QUERIES: AtomicU64 = AtomicU64::new(0);

/// What the engine says of a query that was ended since a worker was lost.
const CANCELLED: &str = "Cancelled";

/// How often a query is run, when the cluster loses workers while it is.
const TRIES: u32 = 4;

/// Folder below the root of a pipeline for what queries leave.
const SCRATCH: &str = "feedline-scratch";

/// Age from which on what is left there by builds that died is removed.
const LEFT: Duration = Duration::from_secs(24 * 3600);

/// A cluster, by its scheduler.
#[derive(Clone, Debug)]
pub struct Cluster {
    address: String,
    /// Name of the folder that the rows of its queries come to lie in, which nobody else has.
    folder: String,
    /// Queries that it has run.
    queries: Arc<AtomicU64>,
}

impl Cluster {
    /// The cluster of the scheduler at `address`, such as `10.0.0.5:50050`.
    #[must_use]
    pub fn at(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            folder: spool::name(),
            queries: Arc::default(),
        }
    }

    /// Queries that it has run for this value and its clones. Others ran in this process.
    #[must_use]
    pub fn queries(&self) -> u64 {
        self.queries.load(Ordering::Relaxed)
    }

    /// A session whose queries run on the cluster where they can; what they leave lies below `root` until it is
    /// [`swept`](Self::sweep).
    pub(crate) fn session(
        &self,
        config: SessionConfig,
        runtime: Arc<RuntimeEnv>,
        root: &Store,
    ) -> Result<SessionContext> {
        let (_, _, folder) = root.child(SCRATCH).child(&self.folder).object_store();
        let planner = ClusterPlanner {
            session: Arc::new(Session {
                cluster: self.clone(),
                store: shared::url_of(root)?,
                folder,
            }),
            planner: DefaultPhysicalPlanner::default(),
        };
        let state = SessionStateBuilder::new()
            .with_config(nodes::settings(config))
            .with_runtime_env(runtime)
            .with_default_features()
            .with_query_planner(Arc::new(planner))
            .build();
        Ok(SessionContext::new_with_state(state))
    }

    /// Removes what its queries left below `root`, and what builds left there that died more than a day before `now`, the
    /// time since 1970.
    ///
    /// # Errors
    /// What the store says. What stays behind is in nobody's way.
    pub(crate) async fn sweep(
        &self,
        root: &Store,
        now: Duration,
    ) -> std::result::Result<(), feedline_storage::Error> {
        let own = format!("{SCRATCH}/{}/", self.folder);
        for left in root.list(SCRATCH).await? {
            let is_old = if left.path.ends_with(spool::ENDING) {
                now.saturating_sub(root.modified(&left.path).await?) > LEFT
            } else {
                false
            };
            if left.path.starts_with(&own) || is_old {
                root.delete(&left.path).await?;
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

/// What a session has beside its settings.
#[derive(Debug)]
struct Session {
    cluster: Cluster,
    /// The shared store, as plans name it.
    store: ObjectStoreUrl,
    /// Folder in it, for the rows of queries. Nobody else uses it.
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
        // Rows that are dealt out by turns would be dealt otherwise when a task is run again, so a scheduler leaves this out.
        let dealt = |node: Arc<dyn ExecutionPlan>| {
            let by_turns = node
                .downcast_ref::<RepartitionExec>()
                .filter(|repartition| {
                    matches!(repartition.partitioning(), Partitioning::RoundRobinBatch(_))
                });
            Ok(match by_turns {
                Some(repartition) => Transformed::yes(Arc::clone(repartition.input())),
                None => Transformed::no(node),
            })
        };
        let plan = plan.transform_up(dealt)?.data;
        if !self.is_shared(&plan)? {
            tracing::debug!("a query runs here, as it reads what only this machine has");
            return Ok(plan);
        }
        let Session { store, folder, .. } = &*self.session;
        let query = QUERIES.fetch_add(1, Ordering::Relaxed);
        let to = |name: Option<String>| To {
            store: store.as_str().to_owned(),
            folder: folder.to_string(),
            name,
        };
        let list = format!("query-{query}");
        let rows = Arc::new(Spool::new(Arc::clone(&plan), to(None)));
        let one = Arc::new(CoalescePartitionsExec::new(rows));
        let sent: Arc<dyn ExecutionPlan> = Arc::new(Spool::new(one, to(Some(list.clone()))));
        if let Err(error) =
            PhysicalPlanNode::try_from_physical_plan(Arc::clone(&sent), &Codec::default())
        {
            tracing::debug!(%error, "a query runs here, as it cannot travel");
            return Ok(plan);
        }
        let list = folder.clone().join(format!("{list}{}", spool::ENDING));
        Ok(Arc::new(Remote::new(
            &plan,
            sent,
            list,
            Arc::clone(&self.session),
        )))
    }
}

impl ClusterPlanner {
    /// Whether all that a plan reads is in the shared store, and it reads anything.
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

/// A query that the cluster runs when its first partition is asked for.
#[derive(Debug)]
struct Remote {
    sent: Arc<dyn ExecutionPlan>,
    /// Where the list of its files comes to lie.
    list: Path,
    session: Arc<Session>,
    properties: Arc<PlanProperties>,
    /// The files, when it has run.
    files: Arc<OnceCell<Vec<Spooled>>>,
}

impl Remote {
    fn new(
        plan: &Arc<dyn ExecutionPlan>,
        sent: Arc<dyn ExecutionPlan>,
        list: Path,
        session: Arc<Session>,
    ) -> Self {
        let partitions = plan.output_partitioning().partition_count().max(1);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(plan.schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self {
            sent,
            list,
            session,
            properties: Arc::new(properties),
            files: Arc::default(),
        }
    }
}

impl DisplayAs for Remote {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote: {}", self.session.cluster.address)
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
        let store = context.runtime_env().object_store(&self.session.store)?;
        let partitions = self.properties.output_partitioning().partition_count();
        let (files, session) = (Arc::clone(&self.files), Arc::clone(&self.session));
        let (sent, list) = (Arc::clone(&self.sent), self.list.clone());
        let rows = stream::once(async move {
            let run = || run(&session, &sent, partitions, &list, &context, &store);
            let files = files.get_or_try_init(run).await?;
            spool::read(store, files[partition].clone()).await
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            rows.try_flatten(),
        )))
    }
}

/// Has the cluster run a plan of so many partitions; returns the files that it left, one for each.
///
/// A scheduler that repairs a query after the loss of a worker may keep what a stage had done before and run all of it again:
/// the stage behind it reads both. So ours ends the queries that run then, and they are run again from here.
async fn run(
    session: &Session,
    sent: &Arc<dyn ExecutionPlan>,
    partitions: usize,
    list: &Path,
    context: &TaskContext,
    store: &Arc<dyn ObjectStore>,
) -> Result<Vec<Spooled>> {
    for _ in 0..TRIES {
        let files = match run_once(session, Arc::clone(sent), list.clone(), context, store).await {
            Err(error) if error.to_string().contains(CANCELLED) => Vec::new(),
            files => files?,
        };
        let distinct: BTreeSet<&Path> = files.iter().map(|file| &file.path).collect();
        if files.len() == partitions && distinct.len() == partitions {
            return Ok(files);
        }
        tracing::warn!(
            partitions,
            files = files.len(),
            "the cluster lost a worker; the query is run again"
        );
    }
    exec_err!(
        "the cluster at `df://{}` lost workers each of the {TRIES} times that it ran a query; build again when they stay",
        session.cluster.address
    )
}

async fn run_once(
    session: &Session,
    sent: Arc<dyn ExecutionPlan>,
    list: Path,
    context: &TaskContext,
    store: &Arc<dyn ObjectStore>,
) -> Result<Vec<Spooled>> {
    let config = context.session_config();
    let Cluster {
        address, queries, ..
    } = &session.cluster;
    // What comes back would be fetched from a worker, which may be gone by then: it is in the store.
    let done = execute_physical_plan::<PhysicalPlanNode>(
        format!("http://{address}"),
        &config.ballista_config(),
        sent,
        &Codec::default(),
        context.session_id().clone(),
        config.clone(),
    )
    .await;
    done.map(drop).map_err(|error| failed(address, &error))?;
    let list = Spooled {
        path: list,
        rows: None,
    };
    let lists = spool::read(Arc::clone(store), list).await?;
    let lists: Vec<_> = lists.try_collect().await?;
    let mut files = Vec::new();
    for list in &lists {
        files.extend(spool::listed(list)?);
    }
    let rows: u64 = files.iter().filter_map(|file| file.rows).sum();
    queries.fetch_add(1, Ordering::Relaxed);
    tracing::debug!(files = files.len(), rows, "a query was run by the cluster");
    Ok(files)
}

fn failed(address: &str, error: &DataFusionError) -> DataFusionError {
    exec_datafusion_err!(
        "the cluster at `df://{address}` did not run a query: {error}; look at the logs of its scheduler and workers, \
         or build with `--engine local`"
    )
}
