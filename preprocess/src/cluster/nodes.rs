//! The processes of a cluster: its scheduler and its workers.

use std::{
    net::{SocketAddr, TcpListener as StdListener},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use arrow_flight::flight_service_server::FlightServiceServer;
use ballista_core::{
    config::TaskSchedulingPolicy,
    error::BallistaError,
    extension::SessionConfigExt as _,
    registry::BallistaFunctionRegistry,
    serde::protobuf::{
        GetJobStatusParams, scheduler_grpc_client::SchedulerGrpcClient,
        scheduler_grpc_server::SchedulerGrpcServer,
    },
    utils::create_grpc_server,
};
use ballista_executor::{
    ArrowFlightServerProvider,
    executor_process::{ExecutorProcessConfig, start_executor_process},
    flight_service::BallistaFlightService,
};
use ballista_scheduler::{
    cluster::BallistaCluster, config::SchedulerConfig, scheduler_process::create_scheduler,
};
use datafusion::{
    error::{DataFusionError, Result as EngineResult},
    execution::{
        SessionState, SessionStateBuilder,
        disk_manager::{DiskManagerBuilder, DiskManagerMode},
        runtime_env::RuntimeEnvBuilder,
    },
    prelude::{SessionConfig, SessionContext},
};
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use feedline_storage::StoreOptions;
use tokio::net::{TcpListener, TcpStream};
use tonic::{
    Code,
    service::interceptor::InterceptedService,
    transport::{Endpoint, Server, server::TcpIncoming},
};

use super::{
    attempts::FirstAttempts,
    codec::Codec,
    secret::{CLUSTER_SECRET, ClusterSecret, SecretCheck},
    stores::{Stores, Unread},
};
use crate::{
    Error,
    engine::{memory_pool::BoundedPool, scratch::Scratch},
    statistics::aggregates,
};

/// Largest message between the processes, in bytes: plans name each landed file, and functions travel with what they hold.
const MESSAGE_BYTES: u32 = 128 << 20;

/// Time to keep the data between the stages of a finished query.
const KEPT: Duration = Duration::from_secs(60);

/// Time a worker waits for its scheduler at the start, and between two attempts.
const PATIENCE: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(500);

/// Seconds without a sign of life after which a worker is given up, when nothing else is asked for.
const LOST_AFTER_S: u16 = 20;

/// Options of a scheduler.
#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    /// Secret that builds and workers must know.
    pub secret: ClusterSecret,
    /// Address that builds and workers reach it at; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Seconds without a heartbeat after which a worker is given up and its work rerun, 6 or more.
    /// Workers send heartbeats several times a second, and every 5 s where all their processors are
    /// busy.
    pub lost_after_s: u16,
}

impl SchedulerOptions {
    /// Returns the defaults: port 50050 of this machine, 20 s.
    #[must_use]
    pub fn new(secret: ClusterSecret) -> Self {
        Self {
            secret,
            listen: SocketAddr::from(([127, 0, 0, 1], 50050)),
            lost_after_s: LOST_AFTER_S,
        }
    }
}

/// Options of a worker.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Secret of the scheduler, which other workers and builds must know.
    pub secret: ClusterSecret,
    /// Folders and URLs that queries may read and write; any other is refused.
    pub roots: Vec<String>,
    /// Host and port of the scheduler.
    pub scheduler: (String, u16),
    /// Address that other workers reach it at; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Name or address that other workers reach it by; that of `listen` where absent.
    pub host: Option<String>,
    /// Tasks at a time, 1 or more.
    pub cores: usize,
    /// Memory that its tasks share before they spill, in bytes; absent for no limit.
    pub memory_bytes: Option<u64>,
    /// Local folder in which the worker creates its own, for data between stages and for spilled
    /// data. Leftovers of killed workers are removed.
    pub scratch: PathBuf,
    /// Settings and credentials of the stores of `roots`.
    pub store_options: StoreOptions,
}

/// Settings that a session needs for its plans to be split into stages, and for its connections to be
/// accepted by the programs of the cluster.
pub(super) fn settings(config: SessionConfig, secret: &ClusterSecret) -> SessionConfig {
    let mut config = config
        .upgrade_for_ballista()
        .with_ballista_override_create_grpc_client_endpoint(secret.sign_connections())
        .with_ballista_grpc_client_max_message_size(MESSAGE_BYTES as usize);
    let options = config.options_mut();
    // A filter that one operator fills while another runs cannot reach other processes.
    options.optimizer.enable_dynamic_filter_pushdown = false;
    options.optimizer.enable_join_dynamic_filter_pushdown = false;
    options.optimizer.enable_topk_dynamic_filter_pushdown = false;
    options.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
    // Statistics say which side of a join is small enough to be sent to all, by sizes of files and not of rows.
    options.optimizer.hash_join_single_partition_threshold = 0;
    options.optimizer.hash_join_single_partition_threshold_rows = 0;
    config
}

/// A state with our functions in it. They hold nothing; those that do travel by themselves.
fn state(config: SessionConfig) -> EngineResult<SessionState> {
    let runtime = RuntimeEnvBuilder::new().with_object_store_registry(Arc::new(Unread));
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime.build_arc()?)
        .with_default_features()
        .build();
    let context = SessionContext::new_with_state(state);
    aggregates::register(&context);
    Ok(context.state())
}

/// Runs a scheduler until `stop` is done. `ready` gets its address when it accepts builds and
/// workers.
///
/// It keeps its state in memory: builds that wait for it fail when it ends, and are rerun.
///
/// # Errors
/// [`Error::Config`] when the address cannot be bound, [`Error::Engine`] when the service fails.
pub async fn scheduler(
    options: SchedulerOptions,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let refused = |error| refused(options.listen, &error);
    let listener = TcpListener::bind(options.listen).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let lost_after = u64::from(options.lost_after_s.max(6));
    let secret = options.secret;
    let check = SecretCheck(secret.clone());
    let config = SchedulerConfig {
        external_host: host_of(address),
        bind_host: host_of(address),
        bind_port: address.port(),
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        finished_job_data_clean_up_interval_seconds: KEPT.as_secs(),
        finished_job_state_clean_up_interval_seconds: KEPT.as_secs(),
        grpc_server_max_decoding_message_size: MESSAGE_BYTES,
        grpc_server_max_encoding_message_size: MESSAGE_BYTES,
        grpc_client_max_message_size: MESSAGE_BYTES,
        executor_timeout_seconds: lost_after,
        expire_dead_executor_interval_seconds: (lost_after / 4).max(1),
        no_executors_grace_period_seconds: lost_after * 3,
        // A stage whose data are gone is not begun again: see `attempts`.
        stage_max_failures: 1,
        override_config_producer: Some(Arc::new(move || settings(SessionConfig::new(), &secret))),
        override_session_builder: Some(Arc::new(state)),
        override_physical_codec: Some(Arc::new(Codec::default())),
        ..SchedulerConfig::default()
    };
    config.validate().map_err(failed)?;
    let cluster = BallistaCluster::new_from_config(&config)
        .await
        .map_err(failed)?;
    let service = create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, Arc::new(config));
    let service = Box::pin(service).await.map_err(failed)?;
    let service = SchedulerGrpcServer::new(service)
        .max_encoding_message_size(MESSAGE_BYTES as usize)
        .max_decoding_message_size(MESSAGE_BYTES as usize);
    let served = Server::builder()
        .add_service(InterceptedService::new(service, check))
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)));
    ready(address);
    tokio::select! {
        ended = served => ended.map_err(failed),
        () = stop => Ok(()),
    }
}

/// Runs a worker until the process gets SIGTERM or SIGINT: it accepts no more tasks, finishes those
/// that it has, and leaves. While it waits for its scheduler at the start, `stop` ends it. It waits
/// without limit for a scheduler that disappears later.
///
/// # Errors
/// [`Error::Config`] when the address cannot be bound, [`Error::Scratch`] without a folder,
/// [`Error::Input`] when the scheduler cannot be reached for half a minute at the start,
/// [`Error::Engine`] when the services fail.
pub async fn worker(options: WorkerOptions, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let scratch = Scratch::claim(&options.scratch)?;
    let (spill, data) = (scratch.path("spill"), scratch.path("stages"));
    for folder in [&spill, &data] {
        std::fs::create_dir_all(folder).map_err(|e| Error::scratch(folder, e))?;
    }
    let disk = DiskManagerBuilder::default()
        .with_mode(DiskManagerMode::Directories(vec![spill]))
        .with_max_temp_directory_size(u64::MAX);
    let mut runtime = RuntimeEnvBuilder::new()
        .with_disk_manager_builder(disk)
        .with_object_store_registry(Arc::new(Stores::open(
            &options.roots,
            &options.store_options,
        )?));
    if let Some(bytes) = options.memory_bytes {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        runtime = runtime.with_memory_pool(Arc::new(BoundedPool::new(
            bytes,
            bytes / (16 * options.cores.max(1)),
        )));
    }
    let runtime = runtime.build_arc()?;
    let functions = BallistaFunctionRegistry::from(&state(SessionConfig::new())?);
    let (scheduler_host, scheduler_port) = options.scheduler;
    let host = match options.host {
        Some(host) => host,
        None if options.listen.ip().is_unspecified() => {
            let reason = "a worker that listens on all addresses needs the address that other workers reach it by";
            return Err(Error::config("--host", reason));
        }
        None => host_of(options.listen),
    };
    tokio::select! {
        joined = join(&scheduler_host, scheduler_port, &options.secret) => joined?,
        () = stop => return Ok(()),
    }
    let free = || StdListener::bind(options.listen)?.local_addr();
    // The services take a configured port and cannot report a free one.
    let port = free()
        .map_err(|error| refused(options.listen, &error))?
        .port();
    let config = ExecutorProcessConfig {
        bind_host: host_of(options.listen),
        external_host: Some(host),
        port,
        scheduler_host,
        scheduler_port,
        // It has been waited for. The engine would do so without end, whatever is said here, with a warning twice a second.
        scheduler_connect_timeout_seconds: 0,
        vcores: options.cores.max(1),
        task_scheduling_policy: TaskSchedulingPolicy::PullStaged,
        work_dir: Some(data.display().to_string()),
        job_data_ttl_seconds: 24 * 3600,
        job_data_clean_up_interval_seconds: 600,
        grpc_max_decoding_message_size: MESSAGE_BYTES,
        grpc_max_encoding_message_size: MESSAGE_BYTES,
        // 0 leaves the memory to the pool above: shared evenly among tasks it would fail what cannot spill.
        memory_pool_size: Some(0),
        override_arrow_flight_service: Some(flight_service(&options.secret)),
        override_create_grpc_client_endpoint: Some(options.secret.sign_connections()),
        override_execution_engine: Some(Arc::new(FirstAttempts::default())),
        override_function_registry: Some(Arc::new(functions)),
        override_runtime_producer: Some(Arc::new(move |_| Ok(Arc::clone(&runtime)))),
        override_config_producer: Some(Arc::new(move || {
            settings(SessionConfig::new(), &options.secret)
        })),
        override_physical_codec: Some(Arc::new(Codec::default())),
        ..ExecutorProcessConfig::default()
    };
    Box::pin(start_executor_process(Arc::new(config)))
        .await
        .map_err(failed)
}

/// Builds the service that other workers fetch data between stages from, behind the check of the secret.
fn flight_service(secret: &ClusterSecret) -> Arc<ArrowFlightServerProvider> {
    let check = SecretCheck(secret.clone());
    Arc::new(move |folder, address, mut shutdown, config| {
        let service = FlightServiceServer::new(BallistaFlightService::new(folder))
            .max_encoding_message_size(MESSAGE_BYTES as usize)
            .max_decoding_message_size(MESSAGE_BYTES as usize);
        let service = InterceptedService::new(service, check.clone());
        tokio::spawn(async move {
            let served = create_grpc_server(&config)
                .add_service(service)
                .serve_with_shutdown(address, shutdown.recv());
            served.await.map_err(BallistaError::TonicError)
        })
    })
}

/// Waits for a scheduler to take connections, and checks that it has the same secret.
async fn join(host: &str, port: u16, secret: &ClusterSecret) -> Result<(), Error> {
    reached(host, port, PATIENCE).await?;
    let endpoint = Endpoint::from_shared(format!("http://{host}:{port}")).map_err(failed)?;
    let sign = secret.sign_connections();
    let endpoint = sign(endpoint).map_err(|e| Error::Engine(DataFusionError::External(e)))?;
    let channel = endpoint.connect().await.map_err(failed)?;
    // A query that does not exist: any response but a refusal shows that the secret is the same.
    let status = GetJobStatusParams {
        job_id: "feedline".to_owned(),
    };
    match SchedulerGrpcClient::new(channel)
        .get_job_status(status)
        .await
    {
        Err(status) if status.code() == Code::Unauthenticated => {
            let reason = format!("the scheduler at `{host}:{port}`: {}", status.message());
            Err(Error::config(CLUSTER_SECRET, reason))
        }
        Err(status) if status.code() == Code::Unavailable => Err(failed(status)),
        _ => Ok(()),
    }
}

/// Waits for a scheduler to take connections, for `patience` at most.
async fn reached(host: &str, port: u16, patience: Duration) -> Result<(), Error> {
    let address = format!("{host}:{port}");
    let mut reason = None;
    let connected = async {
        while let Err(error) = TcpStream::connect(&address).await {
            if reason.is_none() {
                tracing::warn!(%address, %error, "the scheduler cannot be reached yet");
            }
            reason = Some(error.to_string());
            tokio::time::sleep(AGAIN).await;
        }
    };
    let connected = tokio::time::timeout(patience, connected).await;
    connected.map_err(|_| {
        let reason = reason.unwrap_or_else(|| "it does not respond".to_owned());
        let advice = "start it first, or name its address with `--scheduler`";
        Error::input(format!("the scheduler at `{address}`"), reason, advice)
    })
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Engine(DataFusionError::External(Box::new(error)))
}

/// An address without its port, as URLs have it.
fn host_of(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

fn refused(listen: SocketAddr, error: &std::io::Error) -> Error {
    let reason = format!(
        "cannot listen on `{listen}`: {error}; another program may: choose another port, or 0 for any free one"
    );
    Error::config("--listen", reason)
}

#[cfg(test)]
mod tests {
    use arrow_flight::{Ticket, flight_service_client::FlightServiceClient};
    use ballista_core::utils::GrpcServerConfig;
    use ballista_executor::shutdown::ShutdownNotifier;
    use feedline_testkit::free_port::free_port;

    use super::*;
    use crate::cluster::secret::tests::secret;

    #[tokio::test]
    async fn a_worker_sends_rows_only_to_programs_that_know_the_secret() {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let (folder, notifier) = (tempfile::tempdir().unwrap(), ShutdownNotifier::new());
        let served = flight_service(&secret())(
            folder.path().display().to_string(),
            address,
            notifier.subscribe_for_shutdown(),
            GrpcServerConfig::default(),
        );
        reached("127.0.0.1", address.port(), PATIENCE)
            .await
            .unwrap();
        for is_signed in [false, true] {
            let mut endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
            if is_signed {
                endpoint = secret().sign_connections()(endpoint).unwrap();
            }
            let mut client = FlightServiceClient::new(endpoint.connect().await.unwrap());
            let refused = client.do_get(Ticket::default()).await.unwrap_err();
            let is_refused = refused.code() == Code::Unauthenticated;
            assert_eq!(is_refused, !is_signed, "{refused}");
        }
        served.abort();
    }

    #[tokio::test]
    async fn a_scheduler_that_is_not_there_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        reached("127.0.0.1", port, PATIENCE).await.unwrap();
        drop(listener);
        let patience = Duration::from_millis(1);
        let error = reached("127.0.0.1", port, patience).await.unwrap_err();
        let message = error.to_string();
        let expected = format!("cannot use the scheduler at `127.0.0.1:{port}`: ");
        assert!(message.starts_with(&expected), "{message}");
        assert!(
            message.ends_with("name its address with `--scheduler`"),
            "{message}"
        );
    }
}
