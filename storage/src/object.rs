//! Object stores: S3, Google Cloud Storage, Azure, HTTP, and memory.

use std::{ops::Range, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::{
    Extensions, GetOptions, GetRange, GetResult, ObjectStore, ObjectStoreExt as _, PutMode,
    PutOptions, PutPayload, path::Path,
};

use crate::{
    Answer, Error, FailureClass, Listed, ReadFailure, ReadOnce,
    backend::{Backend, Created},
    clients::{Clients, Note, Notes},
};

/// A folder of an object store.
#[derive(Clone, Debug)]
pub(crate) struct ObjectBackend {
    store: Arc<dyn ObjectStore>,
    root: Path,
    /// `scheme://host`, without credentials.
    base: String,
    /// For reads that are tried once.
    clients: Arc<Clients>,
}

impl ObjectBackend {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        root: Path,
        base: String,
        clients: Clients,
    ) -> Self {
        Self {
            store,
            root,
            base,
            clients: Arc::new(clients),
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.store)
    }

    pub(crate) fn location(&self, path: &str) -> Path {
        path.split('/')
            .filter(|part| !part.is_empty())
            .fold(self.root.clone(), Path::join_part)
    }

    fn error(&self, operation: &'static str, path: &str, source: object_store::Error) -> Error {
        Error::remote(operation, self.url_of(path), source)
    }

    fn failure(&self, path: &str, note: Note, source: object_store::Error) -> ReadFailure {
        ReadFailure {
            class: note.class.unwrap_or_else(|| class_of(&source)),
            retry_after: note.retry_after,
            error: self.error("read", path, source),
        }
    }

    fn answer(self, path: String, result: GetResult) -> Answer {
        let (etag, object_bytes) = (result.meta.e_tag.clone(), result.meta.size);
        let body_bytes = result.range.end.saturating_sub(result.range.start);
        // A body that fails was cut, whatever the client says about it.
        let cut = Note {
            class: Some(FailureClass::Broken),
            retry_after: None,
        };
        let body = result.into_stream();
        let body = body.map_err(move |e| self.failure(&path, cut, e)).boxed();
        Answer {
            etag,
            object_bytes,
            body_bytes,
            body,
        }
    }
}

/// What an error says when no request was made, or its answer makes no sense.
fn class_of(error: &object_store::Error) -> FailureClass {
    match error {
        object_store::Error::NotFound { .. } => FailureClass::Missing,
        object_store::Error::Precondition { .. } => FailureClass::Changed,
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => FailureClass::Denied,
        // The store in memory has no other failure.
        object_store::Error::Generic { store, .. } if *store == "InMemory" => FailureClass::PastEnd,
        object_store::Error::NotSupported { .. } | object_store::Error::NotImplemented { .. } => {
            FailureClass::Fatal
        }
        _ => FailureClass::Other,
    }
}

/// `Path::join` by reference, for folding.
trait JoinPart {
    fn join_part(self, part: &str) -> Self;
}

impl JoinPart for Path {
    fn join_part(self, part: &str) -> Self {
        self.join(part)
    }
}

#[async_trait]
impl Backend for ObjectBackend {
    fn url_of(&self, path: &str) -> String {
        format!("{}/{}", self.base, self.location(path))
    }

    async fn get(&self, path: &str) -> Result<Bytes, Error> {
        let read = async { self.store.get(&self.location(path)).await?.bytes().await };
        read.await.map_err(|e| self.error("read", path, e))
    }

    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, Error> {
        let result = self.store.get_range(&self.location(path), range).await;
        result.map_err(|e| self.error("read", path, e))
    }

    async fn read_once(&self, path: &str, read: &ReadOnce) -> Result<Answer, ReadFailure> {
        let notes = Arc::new(Notes::default());
        let mut extensions = Extensions::new();
        extensions.insert(Arc::clone(&notes));
        let options = GetOptions {
            range: Some(GetRange::Bounded(read.range.clone())),
            if_match: read.if_match.clone(),
            extensions,
            ..GetOptions::default()
        };
        let ask = async {
            let client = self.clients.get(read.lane)?;
            client.get_opts(&self.location(path), options).await
        };
        match ask.await {
            Ok(result) => Ok(self.clone().answer(path.to_owned(), result)),
            Err(source) => Err(self.failure(path, notes.read(), source)),
        }
    }

    fn reconnect(&self) {
        self.clients.forget();
    }

    async fn size(&self, path: &str) -> Result<u64, Error> {
        let meta = self.store.head(&self.location(path)).await;
        meta.map(|m| m.size)
            .map_err(|e| self.error("look up", path, e))
    }

    async fn modified(&self, path: &str) -> Result<Duration, Error> {
        let meta = self.store.head(&self.location(path)).await;
        let meta = meta.map_err(|e| self.error("look up", path, e))?;
        let unix_ms = u64::try_from(meta.last_modified.timestamp_millis()).unwrap_or(0);
        Ok(Duration::from_millis(unix_ms))
    }

    async fn put(&self, path: &str, parts: Vec<Bytes>) -> Result<(), Error> {
        let payload = PutPayload::from_iter(parts);
        let put = self.store.put(&self.location(path), payload).await;
        put.map(drop).map_err(|e| self.error("write", path, e))
    }

    async fn create(&self, path: &str, bytes: Bytes) -> Result<Created, Error> {
        let options = PutOptions::from(PutMode::Create);
        match self
            .store
            .put_opts(&self.location(path), bytes.into(), options)
            .await
        {
            Ok(_) => Ok(Created::Yes),
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => Ok(Created::AlreadyThere),
            Err(e) => Err(self.error("create", path, e)),
        }
    }

    async fn list(&self, folder: &str) -> Result<Vec<Listed>, Error> {
        let prefix = self.location(folder);
        let found: Result<Vec<_>, _> = self.store.list(Some(&prefix)).try_collect().await;
        let found = found.map_err(|e| self.error("list", folder, e))?;
        let root = if self.root.as_ref().is_empty() {
            0
        } else {
            self.root.as_ref().len() + 1
        };
        let listed = |meta: object_store::ObjectMeta| Listed {
            path: meta
                .location
                .as_ref()
                .get(root..)
                .unwrap_or_default()
                .to_owned(),
            bytes: meta.size,
        };
        Ok(found.into_iter().map(listed).collect())
    }

    async fn delete(&self, path: &str) -> Result<(), Error> {
        match self.store.delete(&self.location(path)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(self.error("delete", path, e)),
        }
    }
}
