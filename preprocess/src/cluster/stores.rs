//! The stores of a worker, opened when a plan names them, and those of a scheduler, which opens none.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use datafusion::{
    common::{exec_datafusion_err, not_impl_err},
    error::Result,
    execution::object_store::ObjectStoreRegistry,
};
use feedline_storage::{Store, StoreOptions};
use object_store::{ObjectStore, memory::InMemory};
use url::Url;

use crate::shared;

/// Stores by their names in plans.
#[derive(Debug)]
pub(super) struct Stores {
    options: StoreOptions,
    opened: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
}

impl Stores {
    pub(super) fn new(options: StoreOptions) -> Self {
        Self {
            options,
            opened: Mutex::default(),
        }
    }
}

impl ObjectStoreRegistry for Stores {
    fn register_store(
        &self,
        url: &Url,
        store: Arc<dyn ObjectStore>,
    ) -> Option<Arc<dyn ObjectStore>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.insert(url.authority().to_owned(), store)
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        if url.scheme() != shared::SCHEME {
            return not_impl_err!("a worker reads shared stores only, not `{url}`");
        }
        let name = url.authority();
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = opened.get(name) {
            return Ok(Arc::clone(store));
        }
        let base = shared::base_of(name)
            .ok_or_else(|| exec_datafusion_err!("`{url}` is no name of a shared store"))?;
        let store = Store::open(&base, &self.options).map_err(|e| {
            exec_datafusion_err!(
                "a worker cannot open the store `{base}`: {e}; start it with the settings that the build has for it"
            )
        })?;
        let (_, store, _) = store.object_store();
        opened.insert(name.to_owned(), Arc::clone(&store));
        Ok(store)
    }
}

/// Stores that nobody reads: the engine wants one for each scan, and a scheduler only cuts plans into stages. So it needs no
/// credentials.
#[derive(Debug)]
pub(super) struct Unread;

impl ObjectStoreRegistry for Unread {
    fn register_store(&self, _: &Url, _: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        None
    }

    fn get_store(&self, _: &Url) -> Result<Arc<dyn ObjectStore>> {
        Ok(Arc::new(InMemory::new()))
    }
}
