//! A folder in a store.

mod object_url;

use std::{ops::Range, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use feedline_http::redacted_location;
use object_store::{ObjectStore, local::LocalFileSystem, memory::InMemory, path::Path};
use tokio::sync::OnceCell;
use url::Url;

use crate::{
    Answer, Error, Faults, FolderListing, Growing, Listed, LocalFiles, ReadFailure, ReadOnce,
    StoreOptions,
    backend::{Backend, Created, NameRange},
    clients::Clients,
    faults::FaultyBackend,
    growing::{Depth, sweep},
    local::{LocalBackend, resolved},
    location::{KINDS, check_is_path, shown_marks},
    object::{ObjectBackend, ObjectRoot},
};

/// Tries of a create with an unknown outcome, and the first wait between them.
const CREATE_TRIES: u32 = 5;
const CREATE_WAIT: Duration = Duration::from_millis(100);

/// Outcome of [`Store::put_new`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutNew {
    /// The object exists and it is ours.
    Created,
    /// Another object existed first; these are its bytes.
    Taken(Bytes),
}

/// A folder in a store. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    backend: Arc<dyn Backend>,
    place: Place,
    /// Folder below the backend's root; empty or without a slash at either end.
    folder: String,
    has_faults: bool,
    /// Set once the store has refused to create an existing object.
    creates: Arc<OnceCell<()>>,
    /// Options that it was opened with.
    options: Arc<StoreOptions>,
}

#[derive(Clone, Debug)]
enum Place {
    Local(LocalBackend),
    Object { base: Url, backend: ObjectBackend },
}

impl Store {
    /// Opens a folder by URL or path. Nothing is created or requested yet.
    ///
    /// # Errors
    /// [`Error::Location`] if the URL's scheme is unknown, its path would end at a `?` or `#`, or a
    /// setting of the store is wrong.
    pub fn open(url: &str, options: &StoreOptions) -> Result<Self, Error> {
        let location = |reason: String| Error::Location {
            url: redacted_location(url),
            reason,
        };
        let Some((scheme, rest)) = url.split_once("://") else {
            let local = Self::local(PathBuf::from(url));
            let local = local.map_err(|e| location(format!("{e}; {KINDS}")))?;
            return Ok(local.reached_with(options));
        };
        if ["file", "s3", "s3a", "gs", "az", "abfs", "abfss"].contains(&scheme) {
            check_is_path(url).map_err(|reason| Error::Location {
                url: shown_marks(url),
                reason,
            })?;
        }
        let opened = match scheme {
            "file" => {
                let path = Url::parse(url).ok().and_then(|u| u.to_file_path().ok());
                let path = path.ok_or_else(|| {
                    location("a file URL needs an absolute path; write `file:///` before it".into())
                })?;
                Self::local(path).map_err(|e| location(format!("{e}; {KINDS}")))
            }
            "memory" => Ok(Self::memory()),
            "s3" | "s3a" | "gs" | "az" | "abfs" | "abfss" | "http" | "https" => {
                Self::open_object(url, (scheme, rest), options).map_err(location)
            }
            _ => Err(location(format!("unknown scheme `{scheme}`; {KINDS}"))),
        };
        Ok(opened?.reached_with(options))
    }

    /// Opens another folder by URL or path, with the same options. Nothing is created or requested
    /// yet.
    ///
    /// # Errors
    /// Like [`Store::open`].
    pub fn open_another(&self, url: &str) -> Result<Self, Error> {
        Self::open(url, &self.options)
    }

    fn reached_with(self, options: &StoreOptions) -> Self {
        Self {
            options: Arc::new(options.clone()),
            ..self
        }
    }

    /// A new, empty store in memory.
    ///
    /// # Panics
    /// Never: the URL is a constant.
    #[must_use]
    pub fn memory() -> Self {
        let base = Url::parse("memory:///").expect("a constant that is a URL");
        let store = Arc::new(InMemory::new());
        let clients = Clients::same(Arc::<InMemory>::clone(&store));
        let name = base.as_str().trim_end_matches('/').to_owned();
        let backend = ObjectBackend::new(store, ObjectRoot::default(), name, clients);
        Self::object(base, backend)
    }

    fn local(root: PathBuf) -> std::io::Result<Self> {
        let backend = LocalBackend::new(resolved(&root)?);
        Ok(Self {
            backend: Arc::new(backend.clone()),
            place: Place::Local(backend),
            folder: String::new(),
            has_faults: false,
            creates: Arc::default(),
            options: Arc::default(),
        })
    }

    fn object(base: Url, backend: ObjectBackend) -> Self {
        Self {
            backend: Arc::new(backend.clone()),
            place: Place::Object { base, backend },
            folder: String::new(),
            has_faults: false,
            creates: Arc::default(),
            options: Arc::default(),
        }
    }

    /// A folder below this one.
    #[must_use]
    pub fn child(&self, path: &str) -> Self {
        Self {
            folder: self.full(path),
            ..self.clone()
        }
    }

    /// The same folder, for reads of paths that are percent-encoded as in a URL: a web server is asked for
    /// them as they are. Nothing changes for another store, and for one with faults.
    #[must_use]
    pub fn with_encoded_paths(&self) -> Self {
        let Place::Object { base, backend } = &self.place else {
            return self.clone();
        };
        if self.has_faults {
            return self.clone();
        }
        let backend = backend.with_encoded_paths();
        Self {
            backend: Arc::new(backend.clone()),
            place: Place::Object {
                base: base.clone(),
                backend,
            },
            ..self.clone()
        }
    }

    /// The same folder, with faults.
    #[must_use]
    pub fn with_faults(&self, faults: Arc<Faults>) -> Self {
        Self {
            backend: Arc::new(FaultyBackend {
                inner: Arc::clone(&self.backend),
                faults,
            }),
            has_faults: true,
            ..self.clone()
        }
    }

    /// URL of this folder, without credentials; a plain path on the local disk.
    #[must_use]
    pub fn url(&self) -> String {
        self.backend.url_of(&self.folder)
    }

    /// URL of an object in it.
    #[must_use]
    pub fn url_of(&self, path: &str) -> String {
        self.backend.url_of(&self.full(path))
    }

    /// The folder's path, when it is on the local disk.
    #[must_use]
    pub fn local_path(&self) -> Option<PathBuf> {
        match &self.place {
            Place::Local(local) => Some(local.path_of(&self.folder)),
            Place::Object { .. } => None,
        }
    }

    /// Reads a complete object.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is absent, otherwise the error of the store.
    pub async fn get(&self, path: &str) -> Result<Bytes, Error> {
        self.backend.get(&self.full(path)).await
    }

    /// Reads a complete object, or `None` if it is absent.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn get_opt(&self, path: &str) -> Result<Option<Bytes>, Error> {
        match self.get(path).await {
            Err(e) if e.is_not_found() => Ok(None),
            other => other.map(Some),
        }
    }

    /// Reads exactly the bytes of `range`.
    ///
    /// # Errors
    /// [`Error::Short`] if fewer arrive, [`Error::NotFound`], or the error of the store.
    pub async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes, Error> {
        let wanted = range.end.saturating_sub(range.start);
        if wanted == 0 {
            return Ok(Bytes::new());
        }
        let bytes = self.backend.get_range(&self.full(path), range).await?;
        let got = bytes.len() as u64;
        if got == wanted {
            Ok(bytes)
        } else {
            Err(Error::Short {
                url: self.url_of(path),
                wanted,
                got,
            })
        }
    }

    /// Reads part of an object with one request, without retries; the body is streamed.
    ///
    /// # Errors
    /// [`ReadFailure`], with the class of the failure.
    pub async fn read_once(&self, path: &str, read: &ReadOnce) -> Result<Answer, ReadFailure> {
        self.backend.read_once(&self.full(path), read).await
    }

    /// Drops the connections and credentials of [`Store::read_once`], so that the next request
    /// makes new ones.
    pub fn reconnect(&self) {
        self.backend.reconnect();
    }

    /// Returns this folder's files, if it is on the local disk and has no faults. They are opened
    /// at their first read.
    #[must_use]
    pub fn local_files(&self) -> Option<LocalFiles> {
        if self.has_faults {
            return None;
        }
        self.local_path().map(LocalFiles::new)
    }

    /// Starts a file in `folder` that is written piece by piece, for an object that need not be in
    /// memory at once. `None` if the store is no local disk, or has faults: use [`put`](Self::put)
    /// there. Blocks the thread.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn grow(&self, folder: &str) -> Result<Option<Growing>, Error> {
        let local = self.local_path().filter(|_| !self.has_faults);
        let begun = local.map(|root| Growing::begin(self, &root.join(folder)));
        let begun = begun.transpose();
        begun.map_err(|e| Error::io("write into", self.url_of(folder), e))
    }

    /// Removes temporary files in `folder` whose process died. These are an hour older than a file
    /// written now, by the clock of the disk, and no process holds them. Does nothing if the store
    /// is no local disk. Blocks the thread.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn sweep(&self, folder: &str) -> Result<(), Error> {
        self.swept(folder, Depth::One)
    }

    /// Runs [`sweep`](Self::sweep) in `folder` and all folders below it.
    ///
    /// # Errors
    /// Any error of the disk.
    pub fn sweep_all(&self, folder: &str) -> Result<(), Error> {
        self.swept(folder, Depth::All)
    }

    fn swept(&self, folder: &str, depth: Depth) -> Result<(), Error> {
        let local = self.local_path().filter(|_| !self.has_faults);
        let swept = local.map_or(Ok(()), |root| sweep(&root.join(folder), depth));
        swept.map_err(|e| Error::io("read", self.url_of(folder), e))
    }

    /// Returns the size of an object in bytes.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is absent, otherwise the error of the store.
    pub async fn size(&self, path: &str) -> Result<u64, Error> {
        self.backend.size(&self.full(path)).await
    }

    /// Returns size, timestamp and etag of an object, as [`list`](Self::list) does.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it is absent, otherwise the error of the store.
    pub async fn look_up(&self, path: &str) -> Result<Listed, Error> {
        let found = self.backend.look_up(&self.full(path)).await?;
        let path = path.to_owned();
        Ok(Listed { path, ..found })
    }

    /// Like [`look_up`](Self::look_up), with the `Content-Encoding` that the store reports, if it reports one.
    /// The size is that of the encoded bytes.
    ///
    /// # Errors
    /// Like [`look_up`](Self::look_up).
    pub async fn look_up_with_encoding(
        &self,
        path: &str,
    ) -> Result<(Listed, Option<String>), Error> {
        let full = self.full(path);
        let (found, encoding) = self.backend.look_up_with_encoding(&full).await?;
        let path = path.to_owned();
        Ok((Listed { path, ..found }, encoding))
    }

    /// Returns the time when an object was written, since 1970-01-01 UTC, by the clock of the
    /// store. Only for display, never for decisions.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is absent, otherwise the error of the store.
    pub async fn modified(&self, path: &str) -> Result<Duration, Error> {
        self.backend.modified(&self.full(path)).await
    }

    /// Writes an object and replaces an existing one. Atomic and durable when it returns.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Denied`], or the error of the store; the old object then still
    /// exists.
    pub async fn put(&self, path: &str, bytes: Bytes) -> Result<(), Error> {
        self.put_parts(path, vec![bytes]).await
    }

    /// Like [`put`](Self::put), for an object in several `parts`, one after the other. They are not
    /// copied into one.
    ///
    /// # Errors
    /// Like [`put`](Self::put).
    pub async fn put_parts(&self, path: &str, parts: Vec<Bytes>) -> Result<(), Error> {
        self.backend.put(&self.full(path), parts).await
    }

    /// Truncates a file at `offset` and writes `bytes` there, so that a growing file need not be
    /// rewritten completely. Does nothing and returns false if files cannot be changed: the store
    /// is no local disk, or has faults.
    ///
    /// Durable when it returns, but not atomic: a crash may leave part of `bytes`, never less than
    /// `offset` bytes.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Full`], or the error of the disk, such as a file shorter than
    /// `offset`.
    pub async fn put_tail(&self, path: &str, offset: u64, bytes: Bytes) -> Result<bool, Error> {
        match &self.place {
            Place::Local(local) if !self.has_faults => {
                local.put_tail(&self.full(path), offset, bytes).await?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Creates an object if it is absent. Atomic and durable when it returns.
    ///
    /// If the store's response is lost, or reports that the object exists, the object is read back:
    /// bytes equal to ours mean that our write landed. So `bytes` must hold an id that no other
    /// writer uses. Waits at most about 1.5 s in all between tries.
    ///
    /// # Errors
    /// The error of the store, if the outcome is still unknown after 5 tries. The write may then
    /// have landed, and a further call with the same bytes finds out.
    pub async fn put_new(&self, path: &str, bytes: Bytes) -> Result<PutNew, Error> {
        let full = self.full(path);
        let mut wait = CREATE_WAIT;
        let mut tries = 0;
        loop {
            tries += 1;
            let outcome = self.backend.create(&full, bytes.clone()).await;
            let lost = match outcome {
                Ok(Created::Yes) => return Ok(PutNew::Created),
                Ok(Created::AlreadyThere) => None,
                Err(e) if e.is_retryable() => Some(e),
                Err(e) => return Err(e),
            };
            match self.get_opt(path).await {
                Ok(Some(found)) if found == bytes => return Ok(PutNew::Created),
                Ok(Some(found)) => return Ok(PutNew::Taken(found)),
                // Absent: the write did not land (S3 returns 409 for a conflict that no writer
                // wins).
                Ok(None) if tries < CREATE_TRIES => {}
                Err(e) if e.is_retryable() && tries < CREATE_TRIES => {}
                Ok(None) => {
                    return Err(lost.unwrap_or_else(|| Error::Location {
                        url: self.url_of(path),
                        reason: "the store reports both that the object exists and that it does not; run the same command again, or use a store with conditional writes".into(),
                    }));
                }
                Err(e) => return Err(e),
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
    }

    /// Replaces an object if it holds `before` (`None`: is absent). Otherwise changes nothing and
    /// returns false. The write is atomic, and durable on return.
    ///
    /// An object store uses `If-Match`, so a late write replaces nothing. A local disk uses a lock
    /// of the folder, which programs of other machines do not see.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Denied`], or another error of the store.
    pub async fn swap(
        &self,
        path: &str,
        before: Option<Bytes>,
        bytes: Bytes,
    ) -> Result<bool, Error> {
        self.backend.swap(&self.full(path), before, bytes).await
    }

    /// Checks that the store refuses to create an object that exists. If it ignores `If-None-Match:
    /// *`, two programs that write a log at once would overwrite each other's entries.
    ///
    /// Checks once for each opened store, and skips local disks and memory. Leaves one small
    /// object, `feedline-create-check`, at the store's root.
    ///
    /// # Errors
    /// [`Error::Location`] for such a store, or the error of the store.
    pub async fn check_creates(&self) -> Result<(), Error> {
        const PATH: &str = "feedline-create-check";
        let Place::Object { base, backend } = &self.place else {
            return Ok(());
        };
        if base.scheme() == "memory" {
            return Ok(());
        }
        let check = async {
            for _ in 0..2 {
                match backend.create(PATH, Bytes::from_static(b"feedline")).await {
                    Ok(Created::AlreadyThere) => return Ok(()),
                    Ok(Created::Yes) => {}
                    Err(e) => return Err(e),
                }
            }
            Err(Error::Location {
                url: backend.url_of(PATH),
                reason: "the store created an object that existed already: it ignores `If-None-Match: *`, so two programs that write at once would overwrite each other's log; use a store, gateway or version of it with conditional writes".into(),
            })
        };
        self.creates.get_or_try_init(|| check).await.map(drop)
    }

    /// Lists all objects below `prefix` (a folder; empty for all), sorted by path.
    ///
    /// # Errors
    /// The error of the store. A folder that does not exist is an empty one.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Listed>, Error> {
        let found = self.backend.list(&self.full(prefix)).await?;
        Ok(self.inside(found))
    }

    /// Lists the objects of this folder, without those of folders below it, sorted by path. A web server is not
    /// asked for the folders below.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn list_own(&self) -> Result<Vec<Listed>, Error> {
        let found = self.backend.list_own(&self.folder).await?;
        Ok(self.inside(found))
    }

    /// Lists all objects, sorted by path, and the entries of a local folder that are not listed.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub async fn list_with_skipped(&self) -> Result<FolderListing, Error> {
        let Place::Local(local) = &self.place else {
            return self.list("").await.map(FolderListing::from);
        };
        local.list_below(&self.folder, "").await
    }

    /// Lists the objects of `folder` whose names are in one of `ranges`, sorted by path, without those of folders below it.
    /// An object store lists only these; a local disk reads the names of all once, and the metadata of these.
    ///
    /// # Errors
    /// The error of the store. A folder that does not exist is an empty one.
    pub async fn list_ranges(
        &self,
        folder: &str,
        ranges: &[NameRange],
    ) -> Result<Vec<Listed>, Error> {
        let found = self.backend.list_ranges(&self.full(folder), ranges).await?;
        Ok(self.inside(found))
    }

    /// Sorts objects, with their paths in this folder.
    fn inside(&self, mut found: Vec<Listed>) -> Vec<Listed> {
        let cut = if self.folder.is_empty() {
            0
        } else {
            self.folder.len() + 1
        };
        for listed in &mut found {
            listed.path = listed.path.get(cut..).unwrap_or_default().to_owned();
        }
        found.sort();
        found
    }

    /// Renames an object, replacing one that has the new name. Atomic on a local disk. Elsewhere
    /// the store copies and then removes it, so that a crash leaves both or the new one.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it is absent, otherwise the error of the store.
    pub async fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        self.backend.rename(&self.full(from), &self.full(to)).await
    }

    /// Removes an object; an absent one is fine.
    ///
    /// # Errors
    /// The error of the store.
    pub async fn delete(&self, path: &str) -> Result<(), Error> {
        self.backend.delete(&self.full(path)).await
    }

    /// Returns this folder for a query engine: the URL to register the store under, the store, and
    /// the folder's path in it.
    ///
    /// # Panics
    /// Never: an absolute path is a valid store path.
    #[must_use]
    pub fn object_store(&self) -> (Url, Arc<dyn ObjectStore>, Path) {
        match &self.place {
            Place::Local(local) => {
                let base = Url::parse("file:///").expect("a constant that is a URL");
                let path =
                    Path::from_absolute_path(local.path_of(&self.folder)).unwrap_or_default();
                (base, Arc::new(LocalFileSystem::new()), path)
            }
            Place::Object { base, backend } => (
                base.clone(),
                backend.store(),
                backend.location(&self.folder),
            ),
        }
    }

    fn full(&self, path: &str) -> String {
        let path = path.trim_matches('/');
        match (self.folder.as_str(), path) {
            ("", path) => path.to_owned(),
            (folder, "") => folder.to_owned(),
            (folder, path) => format!("{folder}/{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use futures::TryStreamExt as _;
    use object_store::ObjectStoreExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::{Effect, FailureClass, Lane, Operation, Rule};

    #[tokio::test]
    async fn an_object_above_16_mib_is_uploaded_in_parts_and_read_back_whole() {
        let store = Store::memory();
        let bytes: Vec<u8> = (0..40_000_000_u32)
            .map(|i| i.to_le_bytes()[i as usize % 3])
            .collect();
        let (first, second) = bytes.split_at(9_999_999);
        let parts = [first, second].map(Bytes::copy_from_slice).to_vec();
        store.put_parts("large", parts).await.unwrap();
        assert!(store.get("large").await.unwrap() == bytes);
    }

    #[tokio::test]
    async fn a_listing_of_ranges_has_these_objects_of_that_folder_alone() {
        let folder = tempfile::tempdir().unwrap();
        let local = Store::open(&folder.path().display().to_string(), &Default::default());
        for store in [Store::memory(), local.unwrap()] {
            let store = store.child("zone");
            for path in [
                "data/1", "data/2", "data/3", "data/4/5", "datb/9", "data.x/7",
            ] {
                store.put(path, path.into()).await.unwrap();
            }
            let list_in = async |folder: &str, ranges: &[NameRange]| {
                let found = store.list_ranges(folder, ranges).await.unwrap();
                found.into_iter().map(|f| f.path).collect::<Vec<_>>()
            };
            let list =
                async |folder: &str, name: &str| list_in(folder, &[NameRange::after(name)]).await;
            assert_eq!(list("data", "1").await, ["data/2", "data/3"]);
            assert_eq!(list("data", "").await, ["data/1", "data/2", "data/3"]);
            assert!(list("data", "3").await.is_empty() && list("none", "").await.is_empty());
            let first = NameRange {
                after: String::new(),
                before: Some("2".into()),
            };
            let ranges = [first.clone(), NameRange::after("2")];
            assert_eq!(list_in("data", &ranges).await, ["data/1", "data/3"]);
            assert_eq!(list_in("data", &[first]).await, ["data/1"]);
        }
    }

    #[tokio::test]
    async fn a_pointer_is_replaced_only_if_it_is_what_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let local = Store::open(&folder.path().display().to_string(), &Default::default());
        for store in [Store::memory(), local.unwrap()] {
            let swap = async |before: Option<&'static str>, after: &'static str| {
                let before = before.map(|text| Bytes::from_static(text.as_bytes()));
                store.swap("CURRENT", before, after.into()).await.unwrap()
            };
            assert!(!swap(Some("1"), "2").await, "there is none");
            assert!(swap(None, "1").await);
            assert!(!swap(None, "2").await);
            assert!(swap(Some("1"), "3").await);
            // A writer that read before the third write comes late.
            assert!(!swap(Some("1"), "2").await);
            assert_eq!(store.get("CURRENT").await.unwrap(), "3");
        }
    }

    /// Starts an S3 server that accepts every write if `is_blind`, and otherwise refuses to create
    /// an existing object.
    async fn s3(is_blind: bool) -> StoreOptions {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let mut is_there = false;
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\nfeedline") {
                    request.push(socket.read_u8().await.unwrap());
                }
                let head = String::from_utf8_lossy(&request).to_lowercase();
                assert!(
                    head.starts_with("put ") && head.contains("if-none-match: *"),
                    "{head}"
                );
                let status = match is_there && !is_blind {
                    true => "412 Precondition Failed",
                    false => "200 OK\r\nETag: \"1\"",
                };
                is_there = true;
                let answer =
                    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let vars = [
            ("AWS_ENDPOINT_URL", format!("http://{address}")),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "a".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "b".to_owned()),
        ];
        StoreOptions {
            vars: vars
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            ..StoreOptions::default()
        }
    }

    #[tokio::test]
    async fn a_store_that_creates_what_exists_is_refused() {
        let blind = Store::open("s3://bucket/root", &s3(true).await).unwrap();
        let error = blind.check_creates().await.unwrap_err().to_string();
        assert!(error.contains("ignores `If-None-Match: *`"), "{error}");
        let right = Store::open("s3://bucket/root", &s3(false).await).unwrap();
        right.check_creates().await.unwrap();
        // Another program finds the object that the first has left.
        right.child("landing").check_creates().await.unwrap();
    }

    fn rule(operation: Operation, effect: Effect, times: u64) -> Rule {
        Rule {
            operation,
            path_contains: String::new(),
            skip: 0,
            times,
            effect,
        }
    }

    #[tokio::test]
    async fn a_root_is_where_its_path_leads_however_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(real.join("a/b")).unwrap();
        std::fs::create_dir_all(real.join("x/y")).unwrap();
        std::os::unix::fs::symlink(real.join("x/y"), real.join("a/link")).unwrap();
        for (written, expected) in [
            ("a/b/../../c", "c"),
            ("a/b/..", "a"),
            ("a/./b/../new/../c", "a/c"),
            // The parent of the folder that a link points to.
            ("a/link/../z", "x/z"),
            ("a/link", "a/link"),
        ] {
            let url = real.join(written);
            let store = Store::open(url.to_str().unwrap(), &Default::default()).unwrap();
            assert_eq!(store.local_path(), Some(real.join(expected)), "{written}");
            store.put("f/one", "1".into()).await.unwrap();
            let (_, objects, path) = store.object_store();
            let found = objects.get(&path.join("f").join("one")).await.unwrap();
            assert_eq!(found.bytes().await.unwrap(), "1", "{written}");
        }
        let root = Store::open("/../..", &Default::default()).unwrap();
        assert_eq!(root.local_path(), Some(PathBuf::from("/")));
    }

    /// Contract of every kind of store.
    async fn check(store: Store) {
        let store = store.child("a/b");
        assert!(store.get("x").await.unwrap_err().is_not_found());
        assert_eq!(store.get_opt("x").await.unwrap(), None);
        assert_eq!(store.list("").await.unwrap(), []);
        store.put("d/x", "one".into()).await.unwrap();
        store.put("d/x", "two!".into()).await.unwrap();
        assert_eq!(store.get("d/x").await.unwrap(), "two!");
        let parts = ["t", "", "wo", "!"].map(Bytes::from).to_vec();
        store.put_parts("d/x", parts).await.unwrap();
        assert_eq!(store.get("d/x").await.unwrap(), "two!");
        assert_eq!(store.get_range("d/x", 1..3).await.unwrap(), "wo");
        assert!(matches!(
            store.get_range("d/x", 2..9).await,
            Err(Error::Short {
                got: 2,
                wanted: 7,
                ..
            })
        ));
        store.put("d/z", "old".into()).await.unwrap();
        store.rename("d/x", "e/f/z").await.unwrap();
        assert!(store.get_opt("d/x").await.unwrap().is_none());
        store.rename("e/f/z", "d/z").await.unwrap();
        assert_eq!(store.get("d/z").await.unwrap(), "two!", "it replaces");
        assert!(
            store
                .rename("e/f/z", "d/x")
                .await
                .unwrap_err()
                .is_not_found()
        );
        store.rename("d/z", "d/x").await.unwrap();
        assert_eq!(store.size("d/x").await.unwrap(), 4);
        let year_2020 = Duration::from_secs(1_577_836_800);
        assert!(store.modified("d/x").await.unwrap() > year_2020);
        assert!(store.modified("x").await.unwrap_err().is_not_found());
        check_reads_once(&store).await;
        assert_eq!(
            store.put_new("d/y", "mine".into()).await.unwrap(),
            PutNew::Created
        );
        assert_eq!(
            store.put_new("d/y", "mine".into()).await.unwrap(),
            PutNew::Created
        );
        assert_eq!(
            store.put_new("d/y", "theirs".into()).await.unwrap(),
            PutNew::Taken("mine".into())
        );
        let listed = store.list("").await.unwrap();
        assert_eq!(
            listed.iter().map(|l| l.path.as_str()).collect::<Vec<_>>(),
            ["d/x", "d/y"]
        );
        let inner = store.child("d");
        let found = inner.list("").await.unwrap().remove(1);
        assert_eq!((&*found.path, found.bytes), ("y", 4));
        assert!(found.modified.unwrap() > year_2020);
        assert_eq!(inner.look_up("y").await.unwrap(), found);
        assert!(inner.look_up("z").await.unwrap_err().is_not_found());
        store.delete("d/x").await.unwrap();
        store.delete("d/x").await.unwrap();
        assert_eq!(store.list("d").await.unwrap().len(), 1);
    }

    /// The same, for reads that are tried once; `d/x` is `two!`.
    async fn check_reads_once(store: &Store) {
        let read = |range| ReadOnce {
            range,
            if_match: None,
            lane: Lane::First,
        };
        let answer = store.read_once("d/x", &read(1..9)).await.unwrap();
        assert_eq!((answer.object_bytes, answer.body_bytes), (4, 3));
        let body: BytesMut = answer.body.try_collect().await.unwrap();
        assert_eq!(body, "wo!");
        let missing = store.read_once("y", &read(0..1)).await.unwrap_err();
        assert_eq!(missing.class, FailureClass::Missing);
        let Some(etag) = answer.etag else { return };
        let if_match = |etag: &str| ReadOnce {
            if_match: Some(etag.to_owned()),
            lane: Lane::Second,
            ..read(0..1)
        };
        assert!(store.read_once("d/x", &if_match(&etag)).await.is_ok());
        let changed = store
            .read_once("d/x", &if_match("other"))
            .await
            .unwrap_err();
        assert_eq!(changed.class, FailureClass::Changed);
    }

    #[tokio::test]
    async fn memory_keeps_the_contract() {
        check(Store::memory()).await;
    }

    #[tokio::test]
    async fn the_local_disk_keeps_the_contract_and_leaves_no_temporary_files() {
        let folder = tempfile::tempdir().unwrap();
        check(Store::open(folder.path().to_str().unwrap(), &StoreOptions::default()).unwrap())
            .await;
        let url = Url::from_file_path(folder.path().join("url")).unwrap();
        check(Store::open(url.as_str(), &StoreOptions::default()).unwrap()).await;
        let names: Vec<_> = std::fs::read_dir(folder.path().join("a/b/d"))
            .unwrap()
            .collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[tokio::test]
    async fn the_tail_of_a_local_file_is_replaced_and_nothing_else_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap(), &StoreOptions::default()).unwrap();
        let missing = store.put_tail("x", 0, "a".into()).await.unwrap_err();
        assert!(missing.is_not_found());
        store.put("x", "one\ntorn".into()).await.unwrap();
        assert!(store.put_tail("x", 4, "two\n".into()).await.unwrap());
        assert!(store.put_tail("x", 8, "3".into()).await.unwrap());
        assert_eq!(store.get("x").await.unwrap(), "one\ntwo\n3");
        assert!(store.put_tail("x", 99, "far".into()).await.is_err());
        assert_eq!(store.get("x").await.unwrap(), "one\ntwo\n3");
        let faulty = store.with_faults(Faults::new(vec![]));
        for other in [faulty, Store::memory()] {
            assert!(!other.put_tail("x", 0, "!".into()).await.unwrap());
        }
        assert_eq!(store.get("x").await.unwrap(), "one\ntwo\n3");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_is_resolved_by_reading_back() {
        let plain = Store::memory();
        let faulty = plain.with_faults(Faults::new(vec![rule(
            Operation::Create,
            Effect::FailAfter,
            1,
        )]));
        assert_eq!(
            faulty.put_new("log/0", "mine".into()).await.unwrap(),
            PutNew::Created
        );
        assert_eq!(plain.get("log/0").await.unwrap(), "mine");
    }

    #[tokio::test(start_paused = true)]
    async fn a_writer_that_never_reads_back_believes_what_did_not_happen() {
        for (effect, there) in [
            (Effect::FailBefore, None),
            (Effect::FailAfter, Some(Bytes::from("mine"))),
            (Effect::Conflict, None),
        ] {
            let plain = Store::memory();
            let rules = vec![rule(Operation::Create, effect, 1)];
            let bad = plain.with_faults(Faults::without_read_back(rules));
            let put = bad.put_new("log/0", "mine".into()).await;
            assert_eq!(put.unwrap(), PutNew::Created);
            assert_eq!(plain.get_opt("log/0").await.unwrap(), there);
        }
        let plain = Store::memory();
        plain.put("log/0", "another's".into()).await.unwrap();
        let bad = plain.with_faults(Faults::without_read_back(vec![]));
        let put = bad.put_new("log/0", "mine".into()).await;
        assert_eq!(put.unwrap(), PutNew::Created);
        assert_eq!(plain.get("log/0").await.unwrap(), "another's");
    }

    #[tokio::test(start_paused = true)]
    async fn fault_05_a_conflict_that_nobody_won_is_tried_again() {
        let conflicts = |times| {
            let rule = rule(Operation::Create, Effect::Conflict, times);
            Store::memory().with_faults(Faults::new(vec![rule]))
        };
        let created = conflicts(2).put_new("log/0", "mine".into()).await;
        assert_eq!(created.unwrap(), PutNew::Created);
        let error = conflicts(99).put_new("log/0", "mine".into()).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("exists and that it does not"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_did_not_land_is_made_again() {
        let faulty = Store::memory().with_faults(Faults::new(vec![rule(
            Operation::Create,
            Effect::FailBefore,
            2,
        )]));
        assert_eq!(
            faulty.put_new("log/0", "mine".into()).await.unwrap(),
            PutNew::Created
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_that_stays_unknown_is_an_error() {
        let faulty = Store::memory().with_faults(Faults::new(vec![rule(
            Operation::Create,
            Effect::FailBefore,
            99,
        )]));
        let error = faulty.put_new("log/0", "mine".into()).await.unwrap_err();
        assert!(
            matches!(error, Error::Injected { when: "before", .. }),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_full_disk_is_named_and_the_old_object_stays() {
        let plain = Store::memory();
        plain.put("x", "old".into()).await.unwrap();
        let faulty = plain.with_faults(Faults::new(vec![rule(Operation::Put, Effect::Full, 1)]));
        assert!(faulty.put("x", "new".into()).await.unwrap_err().is_full());
        assert_eq!(plain.get("x").await.unwrap(), "old");
    }

    #[tokio::test]
    async fn concurrent_creators_have_one_winner_per_name() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_str().unwrap(), &StoreOptions::default()).unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for writer in 0..8 {
            let store = store.clone();
            tasks.spawn(async move {
                let mut won = 0;
                for name in 0..25 {
                    let bytes = Bytes::from(format!("writer {writer}"));
                    won += u32::from(
                        store.put_new(&format!("log/{name}"), bytes).await.unwrap()
                            == PutNew::Created,
                    );
                }
                won
            });
        }
        let won: u32 = tasks.join_all().await.into_iter().sum();
        assert_eq!(won, 25);
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_created_is_no_missing_object() {
        let store = Store::open("/proc/feedline-nope", &Default::default()).unwrap();
        let error = store.put("x", "1".into()).await.unwrap_err();
        assert!(!error.is_not_found(), "{error}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        let expected = "the folder `/proc/feedline-nope` cannot be created";
        assert!(cause.contains(expected), "{cause}");
    }

    #[test]
    fn a_bad_location_says_what_to_write() {
        let open = |url| {
            Store::open(url, &StoreOptions::default())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            open("ftp://user:secret@host/x"),
            "cannot use `ftp://host/x` as a location: unknown scheme `ftp`; use a path, file://, s3://, gs://, az:// or http(s)://"
        );
        assert!(open("s3://").contains("the bucket or host is missing"));
    }

    #[test]
    fn urls_never_show_credentials() {
        let vars = [
            ("AWS_ACCESS_KEY_ID", "whisper"),
            ("AWS_SECRET_ACCESS_KEY", "hush"),
        ];
        let options = StoreOptions {
            vars: vars.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            ..StoreOptions::default()
        };
        let store = Store::open("s3://bucket/some/prefix", &options).unwrap();
        assert_eq!(store.url_of("x/y"), "s3://bucket/some/prefix/x/y");
        let shown = format!("{store:?}{options:?}{}", store.url());
        assert!(!shown.contains("hush"), "{shown}");
    }
}
