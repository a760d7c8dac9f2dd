//! Object stores: S3, Google Cloud Storage, Azure, HTTP, and memory.

mod listed_keys;

use std::{collections::VecDeque, ops::Range, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use feedline_http::EncodedPath;
use futures::{StreamExt as _, TryStreamExt as _, future::ready, stream};
use object_store::{
    Attribute, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt as _,
    PutMode, PutOptions, PutPayload, UpdateVersion,
    path::{Path, PathPart},
};
use url::Url;

use self::listed_keys::without_markers;
use crate::{
    Answer, Error, FailureClass, Listed, ReadFailure, ReadOnce, StoreOptions,
    backend::{Backend, Created, NameRange, is_in_ranges},
    clients::{self, Clients, Note, Notes},
    error::NO_BUCKET,
};

/// Largest object sent with one request. The client limits a request to 30 s, so a slow line could
/// never write a larger one.
const WHOLE_BYTES: usize = 16 << 20;
/// Part size of a larger object, except for the last part; S3 requires at least 5 MiB.
const PART_BYTES: usize = 8 << 20;
/// Most parts of an object; S3 accepts 10,000.
const MOST_PARTS: usize = 9_000;
/// Parts sent concurrently.
const PARTS_AT_ONCE: usize = 4;

/// The folder of an object store that paths begin at.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectRoot {
    pub(crate) path: Path,
    /// The same as in the URL of a web server, percent-encoded; `None` for another store.
    pub(crate) url_path: Option<String>,
}

/// The store that `url` is of, and its folder there.
pub(crate) fn reached(
    url: &Url,
    options: &StoreOptions,
) -> object_store::Result<(Box<dyn ObjectStore>, ObjectRoot)> {
    if let Some(web) = clients::web(url, &options.web)? {
        let root = ObjectRoot {
            path: Path::from_url_path(url.path())?,
            url_path: Some(url.path().to_owned()),
        };
        return Ok((web, root));
    }
    let (store, path) = clients::retrying(url, &options.vars)?;
    let root = ObjectRoot {
        path,
        url_path: None,
    };
    Ok((store, root))
}

/// A folder of an object store.
#[derive(Clone, Debug)]
pub(crate) struct ObjectBackend {
    store: Arc<dyn ObjectStore>,
    root: ObjectRoot,
    /// URL that paths are shown behind, without credentials: `scheme://host`, with the bucket if the path has it.
    base: String,
    /// Clients of reads that are tried once.
    clients: Arc<Clients>,
    /// True if paths of a web server are percent-encoded, as in a URL.
    has_encoded_paths: bool,
}

impl ObjectBackend {
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        root: ObjectRoot,
        base: String,
        clients: Clients,
    ) -> Self {
        Self {
            store,
            root,
            base,
            clients: Arc::new(clients),
            has_encoded_paths: false,
        }
    }

    /// The same folder, for reads of paths that are percent-encoded as in a URL. Those of another store than a
    /// web server are not.
    pub(crate) fn with_encoded_paths(&self) -> Self {
        Self {
            has_encoded_paths: self.root.url_path.is_some(),
            ..self.clone()
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.store)
    }

    pub(crate) fn location(&self, path: &str) -> Path {
        path.split('/')
            .filter(|part| !part.is_empty())
            .fold(self.root.path.clone(), |location, part| {
                location.join(Self::part(part))
            })
    }

    /// A part of a path, as listings have it. Clients percent-encode it for their requests.
    fn part(part: &str) -> PathPart<'_> {
        PathPart::parse(part).unwrap_or_else(|_| PathPart::from(part))
    }

    /// Path of a request in the URL, where paths are percent-encoded.
    fn encoded_path(&self, path: &str) -> Option<EncodedPath> {
        let root = self.root.url_path.as_deref();
        let root = root.filter(|_| self.has_encoded_paths)?;
        let root = root.trim_end_matches('/');
        Some(EncodedPath(match path {
            "" => root.to_owned(),
            path => format!("{root}/{path}"),
        }))
    }

    /// Options of a read of `path`.
    fn read_options(&self, path: &str) -> GetOptions {
        let mut options = GetOptions::default();
        if let Some(path) = self.encoded_path(path) {
            options.extensions.insert(path);
        }
        options
    }

    /// The response without its body.
    async fn head(&self, path: &str) -> Result<GetResult, Error> {
        let options = self.read_options(path).with_head(true);
        let head = self.store.get_opts(&self.location(path), options).await;
        head.map_err(|e| self.error("look up", path, e))
    }

    /// Objects with their paths below the root.
    fn below_root(&self, found: Vec<ObjectMeta>) -> Vec<Listed> {
        let root = match self.root.path.as_ref() {
            "" => 0,
            root => root.len() + 1,
        };
        let path = |meta: &ObjectMeta| {
            let path = meta.location.as_ref().get(root..);
            path.unwrap_or_default().to_owned()
        };
        let listed = |meta: ObjectMeta| listed(path(&meta), meta);
        found.into_iter().map(listed).collect()
    }

    /// The objects of a listing of `folder`, the one at `prefix`, that can be read.
    fn list_readable(
        &self,
        folder: &str,
        found: Vec<ObjectMeta>,
        prefix: &Path,
    ) -> Result<Vec<Listed>, Error> {
        let found = without_markers(found, prefix).map_err(|reason| Error::Refused {
            operation: "list",
            url: self.url_of(folder),
            reason,
        })?;
        Ok(self.below_root(found))
    }

    fn error(&self, operation: &'static str, path: &str, source: object_store::Error) -> Error {
        Error::remote(operation, self.url_of(path), source)
    }

    /// Error of a write, which needs no object: only the bucket can be missing.
    fn write_error(
        &self,
        operation: &'static str,
        path: &str,
        source: object_store::Error,
    ) -> Error {
        match source {
            object_store::Error::NotFound { .. } => Error::Refused {
                operation,
                url: self.url_of(path),
                reason: NO_BUCKET.to_owned(),
            },
            source => self.error(operation, path, source),
        }
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
        // A failed body was truncated, however the client reports it.
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

/// Classifies an error without a request or with an invalid response.
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

impl ObjectBackend {
    /// Uploads an object of `bytes` bytes in parts, some concurrently, each with its own request,
    /// time limit and retries. The earlier object remains until the last request, which names all
    /// parts.
    async fn put_large(
        &self,
        path: &str,
        parts: &[Bytes],
        bytes: usize,
    ) -> object_store::Result<()> {
        let mut upload = self.store.put_multipart(&self.location(path)).await?;
        let size = PART_BYTES.max(bytes.div_ceil(MOST_PARTS));
        let sent = async {
            let payloads = split_parts(parts, size).map(|payload| upload.put_part(payload));
            // Part numbers follow the order of creation, not of sending.
            let requests: Vec<_> = payloads.collect();
            let mut requests = stream::iter(requests).buffered(PARTS_AT_ONCE);
            while requests.try_next().await?.is_some() {}
            upload.complete().await
        };
        if let Err(error) = sent.await {
            if let Err(left) = upload.abort().await {
                tracing::debug!(path, error = %left, "parts of an unfinished upload stay until the store removes them");
            }
            return Err(error);
        }
        Ok(())
    }
}

/// Splits several buffers into pieces of `size` bytes, the last one shorter, without a copy.
fn split_parts(parts: &[Bytes], size: usize) -> impl Iterator<Item = PutPayload> {
    let mut left: VecDeque<Bytes> = parts
        .iter()
        .filter(|part| !part.is_empty())
        .cloned()
        .collect();
    std::iter::from_fn(move || {
        let (mut piece, mut room) = (Vec::new(), size);
        while room > 0
            && let Some(mut part) = left.pop_front()
        {
            if part.len() > room {
                left.push_front(part.split_off(room));
            }
            room -= part.len();
            piece.push(part);
        }
        (!piece.is_empty()).then(|| PutPayload::from_iter(piece))
    })
}

#[async_trait]
impl Backend for ObjectBackend {
    fn url_of(&self, path: &str) -> String {
        match self.encoded_path(path) {
            Some(EncodedPath(path)) => format!("{}{path}", self.base),
            None => format!("{}/{}", self.base, self.location(path)),
        }
    }

    async fn get(&self, path: &str) -> Result<Bytes, Error> {
        let (location, options) = (self.location(path), self.read_options(path));
        let read = async { self.store.get_opts(&location, options).await?.bytes().await };
        read.await.map_err(|e| self.error("read", path, e))
    }

    async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, Error> {
        let location = self.location(path);
        let options = self.read_options(path).with_range(Some(range));
        let read = async { self.store.get_opts(&location, options).await?.bytes().await };
        read.await.map_err(|e| self.error("read", path, e))
    }

    async fn read_once(&self, path: &str, read: &ReadOnce) -> Result<Answer, ReadFailure> {
        let notes = Arc::new(Notes::default());
        let mut options = GetOptions {
            range: Some(GetRange::Bounded(read.range.clone())),
            if_match: read.if_match.clone(),
            ..self.read_options(path)
        };
        options.extensions.insert(Arc::clone(&notes));
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
        Ok(self.head(path).await?.meta.size)
    }

    async fn look_up(&self, path: &str) -> Result<Listed, Error> {
        Ok(self.look_up_with_encoding(path).await?.0)
    }

    async fn look_up_with_encoding(&self, path: &str) -> Result<(Listed, Option<String>), Error> {
        let GetResult {
            meta, attributes, ..
        } = self.head(path).await?;
        let encoding = attributes.get(&Attribute::ContentEncoding);
        let encoding = encoding.map(|encoding| (**encoding).to_owned());
        Ok((listed(path.to_owned(), meta), encoding))
    }

    async fn modified(&self, path: &str) -> Result<Duration, Error> {
        let meta = self.head(path).await?.meta;
        let unix_ms = u64::try_from(meta.last_modified.timestamp_millis()).unwrap_or(0);
        Ok(Duration::from_millis(unix_ms))
    }

    async fn put(&self, path: &str, parts: Vec<Bytes>) -> Result<(), Error> {
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        if bytes > WHOLE_BYTES {
            match self.put_large(path, &parts, bytes).await {
                // Such a store accepts single-request uploads only.
                Err(
                    object_store::Error::NotImplemented { .. }
                    | object_store::Error::NotSupported { .. },
                ) => {}
                put => return put.map_err(|e| self.write_error("write", path, e)),
            }
        }
        let payload = PutPayload::from_iter(parts);
        let put = self.store.put(&self.location(path), payload).await;
        put.map(drop)
            .map_err(|e| self.write_error("write", path, e))
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
            Err(e) => Err(self.write_error("create", path, e)),
        }
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        let (source, target) = (self.location(from), self.location(to));
        let copied = self.store.copy(&source, &target).await;
        copied.map_err(|e| self.error("move", from, e))?;
        self.delete(from).await
    }

    async fn swap(&self, path: &str, before: Option<Bytes>, bytes: Bytes) -> Result<bool, Error> {
        let location = self.location(path);
        let read = async {
            let found = self.store.get(&location).await?;
            let version = UpdateVersion {
                e_tag: found.meta.e_tag.clone(),
                version: found.meta.version.clone(),
            };
            Ok((found.bytes().await?, version))
        };
        let found = match read.await {
            Ok(found) => Some(found),
            Err(object_store::Error::NotFound { .. }) => None,
            Err(e) => return Err(self.error("read", path, e)),
        };
        if found.as_ref().map(|(bytes, _)| bytes) != before.as_ref() {
            return Ok(false);
        }
        let mode = found.map_or(PutMode::Create, |(_, version)| PutMode::Update(version));
        let options = PutOptions::from(mode);
        let put = self
            .store
            .put_opts(&location, bytes.clone().into(), options);
        match put.await {
            Ok(_) => Ok(true),
            // The response to a first try may have been lost: the content shows which write won.
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => Ok(self.get(path).await? == bytes),
            // Without conditional requests the check before is the only protection.
            Err(
                object_store::Error::NotImplemented { .. }
                | object_store::Error::NotSupported { .. },
            ) => self.put(path, vec![bytes]).await.map(|()| true),
            Err(e) => Err(self.write_error("write", path, e)),
        }
    }

    async fn list(&self, folder: &str) -> Result<Vec<Listed>, Error> {
        let prefix = self.location(folder);
        let found: Result<Vec<_>, _> = self.store.list(Some(&prefix)).try_collect().await;
        let found = found.map_err(|e| self.error("list", folder, e))?;
        self.list_readable(folder, found, &prefix)
    }

    async fn list_own(&self, folder: &str) -> Result<Vec<Listed>, Error> {
        let prefix = self.location(folder);
        let found = self.store.list_with_delimiter(Some(&prefix)).await;
        let found = found.map_err(|e| self.error("list", folder, e))?;
        self.list_readable(folder, found.objects, &prefix)
    }

    async fn list_ranges(&self, folder: &str, ranges: &[NameRange]) -> Result<Vec<Listed>, Error> {
        let prefix = self.location(folder);
        let mut all = Vec::new();
        for range in ranges {
            let offset = self.location(folder).join(Self::part(&range.after));
            let end = range.before.as_deref();
            let end = end.map(|end| self.location(folder).join(Self::part(end)));
            // Stores list in the order of names, so pages after the end are not requested.
            let found = self.store.list_with_offset(Some(&prefix), &offset);
            let found = found.try_take_while(|meta| {
                let is_before = end.as_ref().is_none_or(|end| meta.location < *end);
                ready(Ok(is_before))
            });
            let found: Result<Vec<_>, _> = found.try_collect().await;
            all.extend(found.map_err(|e| self.error("list", folder, e))?);
        }
        let mut found = self.below_root(all);
        found.retain(|listed| is_in_ranges(&listed.path, folder, ranges));
        Ok(found)
    }

    async fn delete(&self, path: &str) -> Result<(), Error> {
        match self.store.delete(&self.location(path)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(self.error("delete", path, e)),
        }
    }
}

fn listed(path: String, meta: ObjectMeta) -> Listed {
    let unix_ms = u64::try_from(meta.last_modified.timestamp_millis());
    Listed {
        path,
        bytes: meta.size,
        // A server without timestamps sends the Unix epoch.
        modified: unix_ms.ok().filter(|ms| *ms > 0).map(Duration::from_millis),
        etag: meta.e_tag,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    #[tokio::test]
    async fn listed_objects_are_read_whatever_their_names() {
        let store = Store::memory();
        let (_, objects, _) = store.object_store();
        for name in [
            "in/a~1.csv",
            "in/zürich.csv",
            "in/50%.csv",
            "in/[x] y.csv",
            "in/%20.csv",
        ] {
            let path = Path::parse(name).unwrap();
            objects.put(&path, name.to_owned().into()).await.unwrap();
        }
        let folder = store.child("in");
        let listed = folder.list("").await.unwrap();
        assert_eq!(listed.len(), 5);
        for file in listed {
            let content = folder.get(&file.path).await.unwrap();
            assert_eq!(content, format!("in/{}", file.path));
        }
    }

    #[test]
    fn a_write_that_finds_nothing_names_the_bucket_and_not_the_object() {
        let missing = || object_store::Error::NotFound {
            path: "x".into(),
            source: "status 404".into(),
        };
        let store = Arc::new(object_store::memory::InMemory::new());
        let clients = Clients::same(Arc::<object_store::memory::InMemory>::clone(&store));
        let root = ObjectRoot::default();
        let backend = ObjectBackend::new(store, root, "s3://nobucket".into(), clients);
        let written = backend.write_error("write", "x", missing());
        assert_eq!(
            written.to_string(),
            "cannot write `s3://nobucket/x`: the store has no such bucket or container; create it, or correct the URL"
        );
        assert!(!written.is_not_found() && !written.is_retryable());
        assert!(backend.error("read", "x", missing()).is_not_found());
        for code in ["NoSuchBucket", "ContainerNotFound"] {
            let body = format!("404 Not Found: <Error><Code>{code}</Code></Error>");
            let read = object_store::Error::NotFound {
                path: "x".into(),
                source: body.clone().into(),
            };
            let list = object_store::Error::Generic {
                store: "S3",
                source: body.into(),
            };
            for (operation, error) in [("read", read), ("list", list)] {
                let error = backend.error(operation, "x", error);
                let expected = format!("cannot {operation} `s3://nobucket/x`: {NO_BUCKET}");
                assert_eq!(error.to_string(), expected);
                assert!(!error.is_retryable());
            }
        }
    }

    #[test]
    fn parts_are_cut_anew_without_losing_a_byte() {
        let parts = [3_usize, 0, 10, 1, 6].map(|length| Bytes::from(vec![b'x'; length]));
        let sizes = |size| {
            let pieces = split_parts(&parts, size);
            pieces
                .map(|piece| piece.content_length())
                .collect::<Vec<_>>()
        };
        assert_eq!(sizes(8), [8, 8, 4]);
        assert_eq!(sizes(20), [20]);
        assert_eq!(sizes(1).len(), 20);
        assert_eq!(split_parts(&[], 8).count(), 0);
    }
}
