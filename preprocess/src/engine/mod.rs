//! Engine for the queries of a build: its own process, or a cluster.

pub(crate) mod external_sort;
pub(crate) mod memory_pool;
pub(crate) mod scalar_function;
pub(crate) mod scratch;
pub(crate) mod session;
pub(crate) mod store_urls;
#[cfg(feature = "cluster")]
pub(crate) mod udf_codec;
pub(crate) mod union;

use std::{fmt, str::FromStr, time::Duration};

use feedline_storage::Store;

#[cfg(feature = "cluster")]
use crate::cluster::{Cluster, ClusterSecret};

/// Engine for the queries of a build. The result does not depend on it.
#[derive(Clone, Debug, Default)]
pub enum Engine {
    /// In the process that builds.
    #[default]
    Local,
    /// On a cluster, as far as they can; the rest in the process that builds.
    #[cfg(feature = "cluster")]
    Cluster(Cluster),
}

impl Engine {
    /// Returns true if all queries run in this process.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::Local)
    }

    /// Gives the cluster the secret that its programs share; the local engine needs none.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a cluster without a secret or with one that is too short.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(unused_variables, reason = "there are no clusters")
    )]
    pub fn with_secret(self, secret: Option<&str>) -> Result<Self, crate::Error> {
        match self {
            Self::Local => Ok(self),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => {
                let secret = ClusterSecret::new(secret.unwrap_or_default())?;
                Ok(Self::Cluster(cluster.with_secret(secret)))
            }
        }
    }

    /// The same for one build, with a place of its own for what its queries leave: builds may share an engine.
    pub(crate) fn of_build(&self) -> Self {
        match self {
            Self::Local => Self::Local,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => Self::Cluster(cluster.of_build()),
        }
    }

    /// Removes what the queries of a build left below `root`; `now` is the time since 1970.
    #[cfg_attr(
        not(feature = "cluster"),
        expect(unused_variables, reason = "nothing has left this process")
    )]
    pub(crate) async fn sweep(&self, root: &Store, now: Duration) {
        match self {
            Self::Local => {}
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => {
                if let Err(error) = cluster.sweep(root, now).await {
                    tracing::warn!(%error, "rows of queries remain in the store; a build after a day removes them");
                }
            }
        }
    }
}

impl FromStr for Engine {
    type Err = String;

    /// `local`, or `df://HOST:PORT` of a scheduler.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "local" {
            return Ok(Self::Local);
        }
        let address = text.strip_prefix("df://").map(|a| a.trim_end_matches('/'));
        let parts = address.and_then(|address| address.rsplit_once(':'));
        let is_address = parts.is_some_and(|(host, port)| {
            !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|p| p > 0)
        });
        match address.filter(|_| is_address) {
            Some(address) => on_cluster(address),
            None => Err(format!(
                "`{text}` is no engine; use `local`, or `df://HOST:PORT` with the address of a scheduler"
            )),
        }
    }
}

#[cfg(feature = "cluster")]
fn on_cluster(address: &str) -> Result<Engine, String> {
    Ok(Engine::Cluster(Cluster::at(address)))
}

#[cfg(not(feature = "cluster"))]
fn on_cluster(address: &str) -> Result<Engine, String> {
    Err(format!(
        "this program has no cluster support and cannot use `{address}`; build it with `--features cluster`, or use `local`"
    ))
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => write!(f, "df://{}", cluster.address()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_named_by_their_addresses() {
        assert_eq!("local".parse::<Engine>().unwrap().to_string(), "local");
        for wrong in [
            "",
            "df://",
            "df://host",
            "df://host:0",
            "df://host:x",
            "df://a/b:1",
            "http://host:1",
        ] {
            let message = wrong.parse::<Engine>().unwrap_err();
            assert!(
                message.contains("use `local`, or `df://HOST:PORT`"),
                "{message}"
            );
        }
    }

    #[cfg(not(feature = "cluster"))]
    #[test]
    fn a_program_without_clusters_says_so() {
        let message = "df://host:50050".parse::<Engine>().unwrap_err();
        assert!(message.contains("`--features cluster`"), "{message}");
    }

    #[cfg(feature = "cluster")]
    #[test]
    fn a_cluster_is_the_one_of_its_scheduler() {
        for text in ["df://host:50050", "df://[::1]:50050"] {
            assert_eq!(text.parse::<Engine>().unwrap().to_string(), text);
        }
    }
}
