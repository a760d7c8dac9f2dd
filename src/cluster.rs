//! `feedline cluster`: the processes that run queries of builds with `--engine df://HOST:PORT`.

use std::{net::SocketAddr, num::NonZero, path::PathBuf, thread};

use clap::{Args, Subcommand};
use feedline_preprocess::cluster::{
    ClusterSecret, SchedulerOptions, WorkerOptions, scheduler, worker,
};

use crate::{environment::Environment, exit::Outcome, stop::Stop};

#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// Distribute the queries of builds to workers, until a signal ends it. It refuses workers and
    /// builds without the same `FEEDLINE_CLUSTER_SECRET`
    Scheduler(Scheduler),
    /// Run queries of builds, until a signal ends it; running ones end first. With
    /// `FEEDLINE_CLUSTER_SECRET`, anyone can read and write all data below its roots, and use its
    /// memory and disk
    Worker(WorkerCommand),
}

#[derive(Debug, Args)]
pub(crate) struct Scheduler {
    /// Address that builds and workers connect to; port 0 takes any free one. Traffic is not
    /// encrypted, so anyone who can read it can also use the workers: keep it in a private network
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:50050")]
    pub(crate) listen: SocketAddr,
    /// Seconds without a heartbeat after which a worker is given up and its work is repeated, 6 to
    /// 3600; with few seconds, a busy worker may be given up
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u16).range(6..=3600))]
    pub(crate) lost_after: u16,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerCommand {
    /// Folder or URL that queries may read and write, such as the `pipeline.root` of builds; any
    /// other is refused. May be repeated
    #[arg(long, value_name = "URL", required = true)]
    pub(crate) root: Vec<String>,
    /// Address of the scheduler
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:50050", value_parser = host_and_port)]
    pub(crate) scheduler: (String, u16),
    /// Address that other workers fetch data from; port 0 takes any free one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Name or address that other workers reach it by, if it differs from that of `--listen`
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// Tasks that it runs at a time; by default one for each processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) cores: Option<u16>,
    /// Memory that its tasks share before they spill, in MiB, 64 or more; by default half of the
    /// free memory
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..=1 << 30))]
    pub(crate) memory: Option<u64>,
    /// Folder for data between the stages of queries, on a large disk; by default the one for
    /// temporary files
    #[arg(long, value_name = "FOLDER")]
    pub(crate) scratch: Option<PathBuf>,
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let text = text.strip_prefix("df://").unwrap_or(text);
    let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    let port = parts.and_then(|(_, port)| port.parse().ok());
    match parts.zip(port).filter(|(_, port)| *port > 0) {
        Some(((host, _), port)) => Ok((host.to_owned(), port)),
        None => Err("use the host and the port of a scheduler, such as `10.0.0.5:50050`".into()),
    }
}

/// Runs a process of a cluster to its end.
///
/// # Errors
/// The process cannot start, or fails.
pub(crate) async fn run(
    command: Cluster,
    environment: &Environment,
    stop: Stop,
) -> anyhow::Result<Outcome> {
    let mut watch = stop.watch;
    let stopped = async move {
        // The sender lives as long as the process.
        let _stopped = watch.wait_for(|stop| *stop).await;
    };
    let secret = ClusterSecret::new(environment.cluster_secret().unwrap_or_default())?;
    match command {
        Cluster::Scheduler(options) => {
            let options = SchedulerOptions {
                secret,
                listen: options.listen,
                lost_after_s: options.lost_after,
            };
            let ready = |address: SocketAddr| {
                tracing::info!(%address, "the scheduler takes workers, and builds with `--engine df://{address}`");
            };
            Box::pin(scheduler(options, ready, stopped)).await?;
        }
        Cluster::Worker(options) => {
            let cores = thread::available_parallelism().map_or(1, NonZero::get);
            let options = WorkerOptions {
                secret,
                roots: options.root,
                scheduler: options.scheduler,
                listen: options.listen,
                host: options.host,
                cores: options.cores.map_or(cores, usize::from),
                memory_bytes: options
                    .memory
                    .map(|mib| mib << 20)
                    .or_else(Environment::memory_bytes),
                scratch: options.scratch.unwrap_or_else(Environment::scratch),
                store_options: environment.store_options(),
            };
            Box::pin(worker(options, stopped)).await?;
        }
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedulers_are_named_by_host_and_port() {
        let found = ("host".to_owned(), 7);
        for text in ["host:7", "df://host:7"] {
            assert_eq!(host_and_port(text).unwrap(), found);
        }
        assert_eq!(host_and_port("[::1]:7").unwrap().0, "[::1]");
        for wrong in ["", "host", ":7", "host:0", "host:x", "host:70000"] {
            assert!(
                host_and_port(wrong).unwrap_err().contains("such as"),
                "{wrong}"
            );
        }
    }
}
