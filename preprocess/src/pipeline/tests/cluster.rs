//! A dataset that is built on a cluster is the one that is built without. The cluster is in this process, but for its
//! addresses that of the commands.

use std::{collections::BTreeMap, net::SocketAddr, path::Path};

use bytes::Bytes;
use feedline_schemas::record::ColumnType::{self, Float64, Int64, Timestamp, Utf8};
use feedline_storage::{Store, StoreOptions};
use serde_json::json;
use tempfile::TempDir;
use tokio::{sync::oneshot, task::JoinSet};

use crate::{
    Engine, build,
    cluster::{Cluster, ClusterSecret, SchedulerOptions, WorkerOptions, scheduler, worker},
    testing::{Cells, LandingZone, contents, context, pipeline},
};

const COLUMNS: [(&str, ColumnType); 5] = [
    ("id", Int64),
    ("size", Float64),
    ("kind", Utf8),
    ("at", Timestamp),
    ("price", Float64),
];

/// Row `i`: every eleventh size is missing, there are three kinds, and some prices are absent, so
/// that the row is rejected.
fn row(i: u32) -> Cells {
    let size = (!i.is_multiple_of(11)).then_some(f64::from(i) / 4.0);
    let price = (i % 500 != 77).then_some(f64::from(i) * 2.0 + 1.0);
    vec![
        json!(i),
        json!(size),
        json!(["x", "y", "z"][i as usize % 3]),
        json!(1_700_000_000_000_000 + u64::from(i) * 1_000_000),
        json!(price),
    ]
}

fn secret() -> ClusterSecret {
    ClusterSecret::new("a secret of a cluster").unwrap()
}

/// Options of a worker that may use the folders for temporary files.
fn worker_options(scheduler: SocketAddr, scratch: &Path, secret: ClusterSecret) -> WorkerOptions {
    WorkerOptions {
        secret,
        roots: vec![std::env::temp_dir().display().to_string()],
        scheduler: (scheduler.ip().to_string(), scheduler.port()),
        listen: "127.0.0.1:0".parse().unwrap(),
        host: None,
        cores: 2,
        memory_bytes: Some(256 << 20),
        scratch: scratch.to_owned(),
        store_options: StoreOptions::default(),
    }
}

/// A scheduler and its workers, which end with it.
struct InProcess {
    address: String,
    _tasks: JoinSet<Result<(), crate::Error>>,
    _scratch: TempDir,
}

async fn in_process(workers: usize) -> InProcess {
    let (scratch, mut tasks) = (tempfile::tempdir().unwrap(), JoinSet::new());
    let (ready, is_ready) = oneshot::channel();
    let options = SchedulerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        ..SchedulerOptions::new(secret())
    };
    let tell = move |address| ready.send(address).unwrap();
    tasks.spawn(scheduler(options, tell, std::future::pending()));
    let address = is_ready.await.unwrap();
    for _ in 0..workers {
        let options = worker_options(address, scratch.path(), secret());
        tasks.spawn(worker(options, std::future::pending()));
    }
    InProcess {
        address: address.to_string(),
        _tasks: tasks,
        _scratch: scratch,
    }
}

/// A root on this disk, with three batches that hold copies of each other's rows.
async fn landed() -> (Store, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    // A name that URLs write in another way.
    let place = folder.path().join("with space, 50 % é");
    let root = Store::open(place.to_str().unwrap(), &StoreOptions::default()).unwrap();
    let mut zone = LandingZone::new(&root, "a", &COLUMNS);
    for range in [0..3_000, 2_000..5_000, 4_500..9_000] {
        zone.batch(&range.map(row).collect::<Vec<_>>()).await;
    }
    (root, folder)
}

async fn built(dataset: &str, engine: &Engine, partitions: usize) -> BTreeMap<String, Bytes> {
    let (root, _folder) = landed().await;
    let (mut context, _scratch) = context(&root, partitions);
    context.engine = engine.clone();
    build(&pipeline(dataset), &context).await.unwrap();
    let left = root.list("feedline-scratch").await.unwrap();
    assert!(left.is_empty(), "what queries leave is removed: {left:?}");
    contents(&root.child("dataset")).await
}

const DATASETS: [&str; 5] = [
    "drop = [\"id\", \"at\"]\nshards = { block_bytes = 4096, shard_bytes = 65536 }\n",
    "drop = [\"at\"]\ndedup = \"none\"\nmissing_values = [2.5]\nsplit = { key = [\"id\", \"kind\"] }\n",
    "drop = [\"id\", \"at\"]\nsplit = { by = \"expression\", expression = \"case when id % 10 < 8 then 'train' when id % 10 = 8 then 'validation' else 'test' end\" }\n",
    "drop = [\"id\", \"at\"]\nmax_reject_fraction = 0.1\nsplit = { by = \"time\", time = \"at\", embargo = \"1m\" }\n",
    "drop = [\"id\", \"at\"]\nstep = [{ type = \"bin\", bins = 32 }, { type = \"impute\" }, { type = \"standardize\" }, { type = \"categories\" }]\n",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cluster_gives_the_bytes_that_one_process_gives() {
    let nodes = in_process(2).await;
    for dataset in DATASETS {
        let dataset = format!("sources = [\"a\"]\ntarget = \"price\"\n{dataset}");
        let expected = built(&dataset, &Engine::Local, 2).await;
        assert!(expected.keys().any(|path| path.starts_with("rejects/")));
        for partitions in [1, 2, 8] {
            let cluster = Cluster::at(&nodes.address).with_secret(secret());
            let found = built(&dataset, &Engine::Cluster(cluster.clone()), partitions).await;
            assert!(
                cluster.queries() > 0,
                "nothing was run on the cluster: {dataset}"
            );
            assert_eq!(
                found.keys().collect::<Vec<_>>(),
                expected.keys().collect::<Vec<_>>()
            );
            assert!(found == expected, "{partitions}: {dataset}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cluster_that_is_not_there_is_named() {
    let (root, _folder) = landed().await;
    let (mut context, _scratch) = context(&root, 2);
    let address = format!("127.0.0.1:{}", feedline_testkit::free_port::free_port());
    let cluster = Cluster::at(&address).with_secret(secret());
    // Rows of another build by the same value.
    let others = format!("feedline-scratch/{}/rows.arrows", cluster.folder);
    root.put(&others, Bytes::from("rows")).await.unwrap();
    context.engine = Engine::Cluster(cluster);
    let dataset = "sources = [\"a\"]\ntarget = \"price\"\n";
    let error = build(&pipeline(dataset), &context).await.unwrap_err();
    let message = format!("{error}: {:?}", std::error::Error::source(&error));
    assert!(message.contains(&format!("df://{address}")), "{message}");
    assert!(
        root.child("dataset")
            .get_opt("CURRENT")
            .await
            .unwrap()
            .is_none()
    );
    let left = root.list("feedline-scratch").await.unwrap();
    let left: Vec<String> = left.into_iter().map(|file| file.path).collect();
    assert_eq!(left, [others]);
}

/// Builds on the cluster of `address` and returns the error, with its cause.
async fn build_error(address: &str, secret: ClusterSecret) -> String {
    let (root, _folder) = landed().await;
    let (mut context, _scratch) = context(&root, 2);
    context.engine = Engine::Cluster(Cluster::at(address).with_secret(secret));
    let dataset = pipeline("sources = [\"a\"]\ntarget = \"price\"\n");
    let error = build(&dataset, &context).await.unwrap_err();
    format!("{error}: {:?}", std::error::Error::source(&error))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cluster_refuses_builds_and_workers_that_do_not_know_its_secret() {
    let nodes = in_process(1).await;
    let other = ClusterSecret::new("the secret of another cluster").unwrap();
    let message = build_error(&nodes.address, other.clone()).await;
    assert!(message.contains("`FEEDLINE_CLUSTER_SECRET`"), "{message}");

    let scratch = tempfile::tempdir().unwrap();
    let address = nodes.address.parse().unwrap();
    let options = worker_options(address, scratch.path(), other);
    let error = worker(options, std::future::pending()).await.unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("FEEDLINE_CLUSTER_SECRET") && message.contains(&nodes.address),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_uses_no_folder_that_is_not_below_its_roots() {
    let scratch = tempfile::tempdir().unwrap();
    let (ready, is_ready) = oneshot::channel();
    let options = SchedulerOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        ..SchedulerOptions::new(secret())
    };
    let mut tasks = JoinSet::new();
    let tell = move |address| ready.send(address).unwrap();
    tasks.spawn(scheduler(options, tell, std::future::pending()));
    let address = is_ready.await.unwrap();
    let mut options = worker_options(address, scratch.path(), secret());
    options.roots = vec![scratch.path().display().to_string()];
    tasks.spawn(worker(options, std::future::pending()));
    let message = build_error(&address.to_string(), secret()).await;
    assert!(message.contains("`--root` of this worker"), "{message}");
}
