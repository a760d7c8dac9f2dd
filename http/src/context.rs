//! Components that the requests of a source receive from its caller.

use std::{fmt::Debug, sync::Arc};

use feedline_schemas::config::SecretRef;
use tokio::sync::watch;

use crate::{clock::Clock, hosts::Hosts, meter::RequestMeter};

/// Components of the requests of one source. Settings are in its configuration.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// Unique id of this process run: seed of waits, and part of ids in signed statements.
    pub run_id: String,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Resolver of secrets.
    pub secrets: Arc<dyn Secrets>,
    /// State of the requested hosts. Sources that share it share their request budgets.
    pub hosts: Arc<Hosts>,
    /// Requests and waits of the source.
    pub meter: Arc<RequestMeter>,
    /// Becomes true when the run should stop. It ends every try and every wait.
    pub cancel: watch::Receiver<bool>,
}

/// Resolver of secret references.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use feedline_http::Secrets;
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
