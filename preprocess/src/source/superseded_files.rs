//! Files that a writer superseded while they were being read.
//!
//! A compaction moves the files that it has merged to `superseded/` of the source's landing folder, under the path that they
//! had, until retention removes them. A build that read the log before finds them there, and so reads the rows of one
//! position of the log to its end.

use std::{fmt, ops::Range, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use feedline_storage::{Error as StoreError, Store};
use futures::stream::BoxStream;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
};

/// Folder of superseded files, in the landing folder of a source.
const FOLDER: &str = "superseded";

/// Path of a file in the landing folder, after it was superseded.
pub(crate) fn path(path: &str) -> String {
    format!("{FOLDER}/{path}")
}

/// Reads a landed file, also one that was superseded since the log was read.
///
/// # Errors
/// The error of the store.
pub(crate) async fn get(store: &Store, landed: &str) -> std::result::Result<Bytes, StoreError> {
    match store.get(landed).await {
        Err(error) if error.is_not_found() => {
            let moved = store.get_opt(&path(landed)).await?;
            moved.ok_or(error)
        }
        read => read,
    }
}

/// A store that reads superseded files where they are now.
#[derive(Debug)]
pub(crate) struct WithSuperseded(pub(crate) Arc<dyn ObjectStore>);

impl WithSuperseded {
    /// The place of a landed file after it was superseded; `None` for another file.
    fn moved(location: &Path) -> Option<Path> {
        let parts: Vec<_> = location.parts().collect();
        let is_data =
            |part: &object_store::path::PathPart<'_>| matches!(part.as_ref(), "data" | "children");
        let at = (2..parts.len())
            .rev()
            .find(|at| parts[at - 2].as_ref() == "landing" && is_data(&parts[*at]))?;
        let (folder, file) = parts.split_at(at);
        let folder = folder.iter().map(|part| part.as_ref().to_owned());
        let file = file.iter().map(|part| part.as_ref().to_owned());
        let all: Vec<String> = folder.chain([FOLDER.to_owned()]).chain(file).collect();
        Path::parse(all.join("/")).ok()
    }
}

impl fmt::Display for WithSuperseded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with superseded files", self.0)
    }
}

#[async_trait]
impl ObjectStore for WithSuperseded {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.0.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        match self.0.get_opts(location, options.clone()).await {
            Err(error @ Error::NotFound { .. }) => match Self::moved(location) {
                Some(moved) => self.0.get_opts(&moved, options).await.map_err(|_| error),
                None => Err(error),
            },
            got => got,
        }
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        match self.0.get_ranges(location, ranges).await {
            Err(error @ Error::NotFound { .. }) => match Self::moved(location) {
                Some(moved) => self.0.get_ranges(&moved, ranges).await.map_err(|_| error),
                None => Err(error),
            },
            got => got,
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use object_store::{ObjectStoreExt as _, memory::InMemory};

    use super::*;

    #[tokio::test]
    async fn a_superseded_file_is_read_where_it_is_now() {
        let inner = Arc::new(InMemory::new());
        let store = WithSuperseded(Arc::<InMemory>::clone(&inner));
        for folder in ["data", "children/tags"] {
            let before = Path::from(format!("root/landing/s/{folder}/1.parquet"));
            let after = Path::from(format!("root/landing/s/superseded/{folder}/1.parquet"));
            inner.put(&after, "rows".into()).await.unwrap();
            let got = store.get(&before).await.unwrap().bytes().await.unwrap();
            assert_eq!(got, "rows");
            assert_eq!(store.get_range(&before, 1..3).await.unwrap(), "ow");
            let both = store.get_ranges(&before, &[0..2, 2..4]).await.unwrap();
            assert_eq!(both, ["ro", "ws"]);
        }
        for other in [
            "root/landing/s/log/1.json",
            "data/1.parquet",
            "landing/data",
        ] {
            let error = store.get(&Path::from(other)).await.unwrap_err();
            assert!(matches!(error, Error::NotFound { .. }), "{error}");
        }
    }
}
