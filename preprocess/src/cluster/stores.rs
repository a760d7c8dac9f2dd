//! Stores that a worker may use, and the placeholder of a scheduler, which opens none.

use std::{collections::HashMap, fmt, ops::Range, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::{
    common::{exec_datafusion_err, not_impl_err},
    error::Result as EngineResult,
    execution::object_store::ObjectStoreRegistry,
};
use feedline_storage::{Store, StoreOptions};
use futures::{StreamExt as _, stream, stream::BoxStream};
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetResult, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result as StoreResult, memory::InMemory, path::Path,
};
use url::Url;

use crate::{Error, engine::store_urls};

/// Stores of a worker by their base URLs, each with the roots that plans may use in it.
#[derive(Debug)]
pub(super) struct Stores(HashMap<String, Arc<RootedStore>>);

impl Stores {
    /// Opens the stores of `roots`: folders and URLs such as `s3://bucket/prefix`.
    ///
    /// # Errors
    /// [`Error::Config`] for a root that cannot be opened.
    pub(super) fn open(roots: &[String], options: &StoreOptions) -> Result<Self, Error> {
        let mut stores: HashMap<String, RootedStore> = HashMap::new();
        for root in roots {
            let store = Store::open(root, options).map_err(|e| {
                let reason = format!("{e}; name a folder or a URL that builds of this cluster use");
                Error::config("--root", reason)
            })?;
            let (base, store, folder) = store.object_store();
            let rooted = stores.entry(base.into()).or_insert(RootedStore {
                store,
                roots: Vec::new(),
            });
            rooted.roots.push(folder);
        }
        let stores = stores.into_iter();
        Ok(Self(stores.map(|(base, s)| (base, Arc::new(s))).collect()))
    }
}

impl ObjectStoreRegistry for Stores {
    fn register_store(&self, _: &Url, _: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        None
    }

    fn get_store(&self, url: &Url) -> EngineResult<Arc<dyn ObjectStore>> {
        if url.scheme() != store_urls::SCHEME {
            return not_impl_err!("a worker reads shared stores only, not `{url}`");
        }
        let base = store_urls::base_of(url.authority())
            .ok_or_else(|| exec_datafusion_err!("`{url}` is no name of a shared store"))?;
        let store = self.0.get(&base).ok_or_else(|| {
            exec_datafusion_err!(
                "a worker may not use the store `{base}`; start it with `--root` and the folder or URL that the build uses"
            )
        })?;
        Ok(Arc::clone(store) as _)
    }
}

/// Store of a worker, which may read and write below its roots. It deletes and copies nothing.
struct RootedStore {
    store: Arc<dyn ObjectStore>,
    roots: Vec<Path>,
}

impl RootedStore {
    /// Returns an error for a path that is not below a root.
    fn check(&self, path: &Path) -> StoreResult<()> {
        if self.roots.iter().any(|root| path.prefix_matches(root)) {
            return Ok(());
        }
        Err(refuse(path, "it is below no `--root` of this worker"))
    }
}

fn refuse(path: &Path, reason: &str) -> StoreError {
    StoreError::PermissionDenied {
        path: path.to_string(),
        source: reason.into(),
    }
}

impl fmt::Debug for RootedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RootedStore").field(&self.roots).finish()
    }
}

impl fmt::Display for RootedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RootedStore({})", self.store)
    }
}

#[async_trait]
impl ObjectStore for RootedStore {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> StoreResult<PutResult> {
        self.check(path)?;
        self.store.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.check(path)?;
        self.store.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> StoreResult<GetResult> {
        self.check(path)?;
        self.store.get_opts(path, options).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> StoreResult<Vec<Bytes>> {
        self.check(path)?;
        self.store.get_ranges(path, ranges).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        let refused =
            |path: StoreResult<Path>| path.and_then(|p| Err(refuse(&p, "workers delete nothing")));
        paths.map(refused).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        match self.check(prefix.unwrap_or(&Path::default())) {
            Ok(()) => self.store.list(prefix),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.check(prefix.unwrap_or(&Path::default()))?;
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, to: &Path, _: CopyOptions) -> StoreResult<()> {
        Err(refuse(to, "workers copy nothing"))
    }
}

/// Placeholder of a scheduler: the engine requires a store for each scan, but a scheduler only splits
/// plans into stages and reads nothing, so it needs no credentials.
#[derive(Debug)]
pub(super) struct Unread;

impl ObjectStoreRegistry for Unread {
    fn register_store(&self, _: &Url, _: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        None
    }

    fn get_store(&self, _: &Url) -> EngineResult<Arc<dyn ObjectStore>> {
        Ok(Arc::new(InMemory::new()))
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt as _;

    use super::*;

    fn url_of(base: &str) -> Url {
        let digits: String = base.bytes().map(|byte| format!("{byte:02x}")).collect();
        Url::parse(&format!("{}://{digits}", store_urls::SCHEME)).unwrap()
    }

    fn open(root: &std::path::Path) -> Stores {
        let root = root.display().to_string();
        Stores::open(&[root], &StoreOptions::default()).unwrap()
    }

    #[test]
    fn a_store_without_a_root_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let stores = open(folder.path());
        stores.get_store(&url_of("file:///")).unwrap();
        for base in ["s3://bucket", "http://169.254.169.254/"] {
            let error = stores.get_store(&url_of(base)).unwrap_err().to_string();
            assert!(
                error.contains(base) && error.contains("`--root`"),
                "{error}"
            );
        }
        let plain = Url::parse("file:///etc").unwrap();
        assert!(stores.get_store(&plain).is_err());
    }

    #[tokio::test]
    async fn only_what_is_below_a_root_is_read_or_written() {
        let folder = tempfile::tempdir().unwrap();
        let [root, other] = ["root", "root-2"].map(|name| folder.path().join(name));
        for folder in [&root, &other] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("file"), "x").unwrap();
        }
        let store = open(&root).get_store(&url_of("file:///")).unwrap();
        let path = |file: &std::path::Path| Path::from_absolute_path(file).unwrap();
        let [inside, outside] = [&root, &other].map(|folder| path(&folder.join("file")));
        store.get(&inside).await.unwrap();
        store.put(&inside, "y".into()).await.unwrap();
        assert_eq!(store.list(Some(&path(&root))).count().await, 1);

        let is_refused = |error: StoreError| {
            assert!(
                matches!(error, StoreError::PermissionDenied { .. }),
                "{error}"
            );
        };
        is_refused(store.get(&outside).await.unwrap_err());
        is_refused(store.head(&outside).await.unwrap_err());
        is_refused(store.get_ranges(&outside, &[0..1, 1..2]).await.unwrap_err());
        is_refused(store.put(&outside, "y".into()).await.unwrap_err());
        is_refused(store.put_multipart(&outside).await.err().unwrap());
        is_refused(store.list_with_delimiter(None).await.unwrap_err());
        let mut listed = store.list(Some(&path(&other)));
        is_refused(listed.next().await.unwrap().unwrap_err());
        is_refused(store.delete(&inside).await.unwrap_err());
        is_refused(store.copy(&inside, &outside).await.unwrap_err());
        is_refused(store.rename(&outside, &inside).await.unwrap_err());
        assert_eq!(std::fs::read(other.join("file")).unwrap(), b"x");
    }
}
