//! Opening a folder of an object store, or of a web server, by its URL.

use url::Url;

use super::Store;
use crate::{
    StoreOptions,
    clients::Clients,
    location::{shown_root, used_variables},
    object::{ObjectBackend, reached},
};

impl Store {
    /// Opens `url`, which is `scheme://rest`. Nothing is requested yet.
    ///
    /// # Errors
    /// The reason, and what to do.
    pub(super) fn open_object(
        url: &str,
        (scheme, rest): (&str, &str),
        options: &StoreOptions,
    ) -> Result<Self, String> {
        if rest.is_empty() {
            return Err(format!(
                "the bucket or host is missing; write it after `{scheme}://`"
            ));
        }
        let malformed = |e: url::ParseError| format!("{e}; correct the URL");
        let parsed = Url::parse(url).map_err(malformed)?;
        let mut options = StoreOptions {
            vars: used_variables(&parsed, options)?,
            web: options.web.clone(),
        };
        if scheme == "http" {
            // A URL with `http` permits it.
            options.vars.insert("allow_http".into(), "true".into());
        }
        let (store, root) = reached(&parsed, &options).map_err(|e| {
            format!("{e}; correct the URL or the environment variables of its store")
        })?;
        let host = parsed.authority().rsplit('@').next().unwrap_or_default();
        let base = Url::parse(&format!("{scheme}://{host}")).map_err(malformed)?;
        let name = shown_root(&parsed, &root.path);
        let clients = Clients::new(parsed, options);
        let backend = ObjectBackend::new(store.into(), root, name, clients);
        Ok(Self::object(base, backend))
    }
}
