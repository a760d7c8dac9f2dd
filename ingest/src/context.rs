//! Resources that a run receives from its caller.

use std::{fmt::Debug, sync::Arc};

use feedline_schemas::{config::SecretRef, progress::Progress};
use feedline_storage::{Store, StoreOptions, clock::Clock};
use tokio::sync::watch;

use crate::{hosts::Hosts, meter::Meters};

/// Components of an ingest run. Settings are in the pipeline's configuration.
#[derive(Clone, Debug)]
pub struct Context {
    /// The pipeline's root folder; sources land in `landing/<name>/` below it.
    pub root: Store,
    /// Options for stores that `files` sources read from.
    pub store_options: StoreOptions,
    /// Receiver of progress.
    pub progress: Arc<dyn Progress>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Resolver of secrets.
    pub secrets: Arc<dyn Secrets>,
    /// State of the requested hosts. Runs that share it share their request budgets.
    pub hosts: Arc<Hosts>,
    /// Progress and waits of the pipeline's sources.
    pub meters: Arc<Meters>,
    /// Unique id of this process run, recorded in each commit.
    pub run_id: String,
    /// True if Delta tables are written behind commits (`ingest.delta`).
    pub delta: bool,
    /// Becomes true when the run should stop. It is checked between pages and in every wait. Pages
    /// read before that are committed, and a later run resumes after them.
    pub cancel: watch::Receiver<bool>,
}

impl Context {
    /// Returns true if the run should stop.
    pub(crate) fn is_cancelled(&self) -> bool {
        *self.cancel.borrow()
    }
}

/// Resolver of secret references.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use feedline_ingest::Secrets;
/// use feedline_schemas::config::SecretRef;
///
/// /// Variables that the program read when it started.
/// #[derive(Debug)]
/// struct Variables(BTreeMap<String, String>);
///
/// impl Secrets for Variables {
///     fn resolve(&self, reference: &SecretRef) -> Result<String, String> {
///         let name = reference.env.as_deref().ok_or("use `{ env = \"NAME\" }`")?;
///         let value = self.0.get(name).ok_or(format!("set `{name}`"))?;
///         Ok(format!("{}{value}", reference.prefix))
///     }
/// }
/// # let variables = Variables(BTreeMap::from([("TOKEN".to_owned(), "abc".to_owned())]));
/// # let (env, prefix) = (Some("TOKEN".to_owned()), "Bearer ".to_owned());
/// # let resolved = variables.resolve(&SecretRef { env, file: None, prefix });
/// # assert_eq!(resolved.as_deref(), Ok("Bearer abc"));
/// ```
pub trait Secrets: Debug + Send + Sync {
    /// Returns the secret, with the reference's prefix.
    ///
    /// # Errors
    /// A message that names the reference and the remedy, never the secret.
    fn resolve(&self, reference: &SecretRef) -> Result<String, String>;
}
