//! Options of the access to stores.

use std::collections::BTreeMap;

use feedline_http::WebOptions;

/// Access to stores: the variables `AWS_*`, `GOOGLE_*`, `AZURE_*` of the environment, by name.
#[derive(Clone, Default)]
pub struct StoreOptions {
    /// Variables by name, as in the stores' own tools (`AWS_ENDPOINT_URL`, `AWS_REGION`, ...).
    pub vars: BTreeMap<String, String>,
    /// Requests for files over http and https, which no variable changes.
    pub web: WebOptions,
}

impl std::fmt::Debug for StoreOptions {
    /// Shows names only: the values hold credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.vars.keys()).finish()
    }
}
