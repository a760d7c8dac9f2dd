//! Finding the files of a source: one file, a folder, or a pattern, in any store.

mod left_out_folders;
mod unread_entries;

use std::time::Duration;

use feedline_http::{WebFolders, without_user_info};
use feedline_readers::{
    charset,
    file_bytes::FileBytes,
    file_format::{self, Kind, Packing},
    glob,
    notices::{LeftOut, Notices},
    rows::Layout,
};
use feedline_schemas::{
    commit::Position,
    config::{FileFormat, SourceConfig},
};
use feedline_storage::{Error as StoreError, FolderListing, Listed, Store, StoreOptions};
use tracing::warn;

use self::unread_entries::UnreadEntries;
use crate::{
    download::{Download, Downloaded},
    error::{Error, describe_with_cause, innermost_cause},
};

/// Code of the warning that read files no longer exist.
pub(crate) const FILES_GONE: &str = "files_gone";

/// Code of the warning about entries of a folder that cannot be read as files.
pub(crate) const UNREAD_ENTRIES: &str = "unread_entries";

/// Code of the warning about folders that a web server lists, and whose files it does not.
pub(crate) const FOLDERS_LEFT_OUT: &str = "folders_left_out";

/// Code of the warning about files that are too young to be read, and left for a later run.
pub(crate) const UNSETTLED_FILE: &str = "unsettled_file";

/// Codes of warnings that are about the files of one run, and are not stored in the log.
pub(crate) const OF_ONE_RUN: [&str; 3] = [UNREAD_ENTRIES, FOLDERS_LEFT_OUT, UNSETTLED_FILE];

/// A file, with its layout where its name reveals the format.
type ListedFile = (Listed, Option<Layout>);

/// Reason why there is no list of files.
enum NotListed {
    /// No file is at `url`.
    NoFile(String),
    /// No file is at `url`, and there are entries or folders that cannot be read.
    NoReadableFile(String),
    Failed(Error),
}

impl From<Error> for NotListed {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<NotListed> for Error {
    fn from(reason: NotListed) -> Self {
        match reason {
            NotListed::NoFile(reason) | NotListed::NoReadableFile(reason) => {
                Self::config("url", reason)
            }
            NotListed::Failed(error) => error,
        }
    }
}

/// The labels of a file of images.
#[derive(Clone, Debug)]
pub(crate) struct Labels {
    pub(crate) store: Store,
    pub(crate) path: String,
    pub(crate) url: String,
    pub(crate) packing: Packing,
}

/// A file that the configuration names.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) store: Store,
    pub(crate) path: String,
    /// URL as configured: after a move of the pipeline with its files, it is still the same.
    pub(crate) url: String,
    /// Size, including that of its labels.
    pub(crate) bytes: u64,
    /// Time when the file or its labels were written, as reported by its store.
    pub(crate) modified: Option<Duration>,
    /// Mark of its content that its store has; none of a file with labels.
    pub(crate) etag: Option<String>,
    pub(crate) layout: Layout,
    pub(crate) labels: Option<Labels>,
}

impl Found {
    /// Opens and hashes the file, and its first `start` bytes.
    ///
    /// # Errors
    /// [`Error::Storage`], and [`Error::File`] for an object that is listed and not found.
    pub(crate) async fn open_bytes(&self, start: Option<u64>) -> Result<FileBytes, Error> {
        let opened = FileBytes::open(&self.store, &self.path, &self.url, start).await;
        opened.map_err(|error| self.describe_unopened(error))
    }

    /// Opens the file for a preview.
    ///
    /// # Errors
    /// As [`Self::open_bytes`].
    pub(crate) async fn peek_bytes(&self) -> Result<FileBytes, Error> {
        let opened = FileBytes::peek(&self.store, &self.path, &self.url).await;
        opened.map_err(|error| self.describe_unopened(error))
    }

    /// The error of opening the file. The path of an object lacks a `/` at either end of its key, so that an object may
    /// be listed and not be found.
    fn describe_unopened(&self, error: StoreError) -> Error {
        const OBJECT_STORES: [&str; 6] = ["s3", "s3a", "gs", "az", "abfs", "abfss"];
        let scheme = self.url.split_once("://").map_or("", |(scheme, _)| scheme);
        if !(error.is_not_found() && OBJECT_STORES.contains(&scheme)) {
            return error.into();
        }
        Error::File {
            url: self.url.clone(),
            reason: "it was found, and its store has no object with this key now: it was removed, or its key has a `/` more, at the beginning or the end; rename such an object, or delete it if it only marks a folder, and run the same command again".to_owned(),
        }
    }
}

/// The files that a configuration names.
#[derive(Clone, Debug)]
pub(crate) struct FileList {
    pub(crate) config: SourceConfig,
    pub(crate) options: StoreOptions,
    /// Collects decisions about the files.
    pub(crate) notices: Notices,
    /// Download of the file; none unless its URL has a query.
    pub(crate) download: Option<Download>,
}

impl FileList {
    /// Lists the files. If files of this URL were read before and no longer exist, there is nothing
    /// to do, and a warning says so. `has_more` is true if more files were read than `at` lists.
    pub(crate) async fn look(&self, at: &Position, has_more: bool) -> Result<Vec<Found>, Error> {
        match self.labelled().await {
            Err(NotListed::NoFile(reason) | NotListed::NoReadableFile(reason))
                if self.has_read(at, has_more) =>
            {
                let message = format!(
                    "no file is found, and those that were read are gone: {reason}; their rows stay in the landing zone"
                );
                warn!(source = %self.config.name, code = FILES_GONE, "{message}");
                self.notices.push(FILES_GONE, "url", message);
                Ok(Vec::new())
            }
            found => Ok(found?),
        }
    }

    /// Lists the files that are at `url` now; none if no file is. Unlike [`Self::look`], it fails where
    /// files may exist and cannot be listed.
    pub(crate) async fn list_existing(&self) -> Result<Vec<Found>, Error> {
        match self.labelled().await {
            Err(NotListed::NoFile(_)) => Ok(Vec::new()),
            found => Ok(found?),
        }
    }

    /// Requests the files at `urls`, which the listing of a web server lacks: it may leave out files that exist. Those
    /// that are not of the configured URL are not requested.
    ///
    /// # Errors
    /// [`Error::File`] for one that is not known to be missing (status 404 or 410).
    pub(crate) async fn check_missing(&self, urls: &[String]) -> Result<(), Error> {
        const UNKNOWN: &str = "the listing of `url` lacks it, and only status 404 or 410 of its own shows that it is missing; its landed rows stay";
        let folder = match self.pattern() {
            Some((folder, _)) => folder.to_owned(),
            None => format!("{}/", self.config.url.trim_end_matches('/')),
        };
        let store = self.store(&folder)?;
        for url in urls.iter().filter(|url| self.names(url)) {
            // The file of a `url` without a folder was requested itself.
            let Some(path) = url.strip_prefix(&folder) else {
                continue;
            };
            let found = match store.look_up(path).await {
                Ok(_) => "the server has it: permit the listing of its folder".to_owned(),
                Err(error) if error.is_not_found() => continue,
                Err(StoreError::Denied { source, .. }) => format!(
                    "access was refused: {}; check the credentials in the source's `auth` or `headers` and their permissions",
                    innermost_cause(source.as_ref()).trim_end_matches(": ")
                ),
                Err(error) => describe_with_cause(&error),
            };
            return Err(Error::File {
                url: url.clone(),
                reason: format!("{UNKNOWN}: {found}"),
            });
        }
        Ok(())
    }

    /// Returns true if everything was read, and a file of the configured URL was among it.
    fn has_read(&self, at: &Position, has_more: bool) -> bool {
        let Position::Done { files, .. } = at else {
            return false;
        };
        // Another folder would be refused as a change of settings.
        has_more
            || files
                .iter()
                .any(|file| self.names(&without_user_info(&file.url)))
    }

    /// Returns true if the configured URL is that of `file`, its folder, or a pattern that it
    /// matches.
    fn names(&self, file: &str) -> bool {
        let url = self.config.url.as_str();
        if let Some((folder, pattern)) = self.pattern() {
            let name = file.strip_prefix(folder);
            return name.is_some_and(|name| glob::matches(pattern, name));
        }
        let rest = file.strip_prefix(url.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Folder and pattern of a URL with wildcards.
    fn pattern(&self) -> Option<(&str, &str)> {
        let url = self.config.url.as_str();
        let place = url.find("://").map_or(0, |at| at + "://".len());
        let wildcards: &[char] = match self.config.is_web() {
            // A `?` begins a query there.
            true => &['*'],
            false => &['*', '?'],
        };
        let wildcard = url[place..].find(wildcards)?;
        let folder = url[place..place + wildcard].rfind('/');
        Some(url.split_at(folder.map_or(place, |slash| place + slash + 1)))
    }

    /// Returns the image file with its label file.
    async fn labelled(&self) -> Result<Vec<Found>, NotListed> {
        let mut found = self.list().await?;
        let is_any_archive = || found.iter().any(|file| file_format::is_archive(&file.path));
        if self.config.archive.member.is_some() && !is_any_archive() {
            let reason =
                "`url` names no archive (.zip, .tar, .tar.gz, .tgz or .tar.zst); remove this key";
            return Err(Error::config("archive.member", reason).into());
        }
        let Some(url) = &self.config.idx.labels else {
            return Ok(found);
        };
        let [images] = &mut found[..] else {
            let reason = format!(
                "it names the labels of one file, but `url` matches {} files; use one source for each",
                found.len()
            );
            return Err(Error::config("idx.labels", reason).into());
        };
        let name = url.rfind('/').map_or(0, |slash| slash + 1);
        let store = self.store_of("idx.labels", &url[..name])?;
        let store = store.with_encoded_paths();
        let path = url[name..].to_owned();
        check_is_file(&store, &path, "idx.labels", url)?;
        let labels = store
            .look_up(&path)
            .await
            .map_err(|e| match e.is_not_found() {
                true => Error::config(
                    "idx.labels",
                    format!(
                        "file `{url}` does not exist (looked for `{}`); check the path",
                        store.url_of(&path)
                    ),
                ),
                false => e.into(),
            })?;
        images.bytes += labels.bytes;
        images.modified = images.modified.max(labels.modified);
        images.etag = None;
        images.labels = Some(Labels {
            packing: file_format::packing(&path),
            url: url.clone(),
            store,
            path,
        });
        Ok(found)
    }

    async fn list(&self) -> Result<Vec<Found>, NotListed> {
        let url = self.config.url.as_str();
        let (scheme, place) = url.split_once("://").unwrap_or(("", url));
        if let Some(download) = &self.download {
            return Ok(self.downloaded(download).await?);
        }
        if let Some((folder, pattern)) = self.pattern() {
            return self.matching(folder, pattern).await;
        }
        match place.rfind('/') {
            Some(slash) if slash + 1 == place.len() => self.folder(url).await,
            None if !scheme.is_empty() => self.folder(&format!("{url}/")).await,
            slash => {
                self.single(slash.map_or(0, |slash| slash + 1 + (url.len() - place.len())))
                    .await
            }
        }
    }

    /// Downloads the file behind a query.
    async fn downloaded(&self, download: &Download) -> Result<Vec<Found>, Error> {
        let downloaded = download.get().await?;
        let told = Self {
            config: SourceConfig {
                format: match self.config.format {
                    FileFormat::Auto => downloaded.format().unwrap_or_default(),
                    configured => configured,
                },
                ..self.config.clone()
            },
            ..self.clone()
        };
        let Downloaded {
            store,
            listed,
            url,
            body,
            content_type,
        } = downloaded;
        let layout = told.layout(&listed.path, &url)?;
        let mut layout = layout.ok_or_else(|| {
            let reason = format!(
                "neither the path of `{url}` nor the `Content-Type` of its response shows its format; set `format`, such as to `csv`"
            );
            Error::config("format", reason)
        })?;
        let is_plain = layout.packing == Packing::Plain;
        let is_csv = matches!(layout.kind, Kind::Csv { .. });
        if is_csv && is_plain && layout.csv.encoding.is_none() {
            layout.csv.encoding =
                charset::table_encoding(&body, &content_type, &url, &self.notices);
        }
        Ok(vec![found_one(&store, listed, &url, layout)])
    }

    fn store(&self, folder: &str) -> Result<Store, Error> {
        self.store_of("url", folder)
    }

    fn store_of(&self, key: &str, folder: &str) -> Result<Store, Error> {
        open_store(key, folder, &self.options)
    }

    /// Returns the file at the configured URL, or those of the folder. Its name begins at `name`.
    async fn single(&self, name: usize) -> Result<Vec<Found>, NotListed> {
        let url = self.config.url.as_str();
        let store = self.store(&url[..name])?.with_encoded_paths();
        let path = &url[name..];
        let is_folder = store
            .local_path()
            .is_some_and(|folder| folder.join(path).is_dir());
        match store.look_up_with_encoding(path).await {
            Ok((listed, encoding)) if !is_folder => {
                check_is_file(&store, path, "url", url)?;
                let mut layout = self.layout(path, url)?.ok_or_else(|| unknown(url))?;
                layout.packing = packing_of(url, layout.packing, encoding.as_deref())?;
                Ok(vec![found_one(&store, listed, url, layout)])
            }
            Err(e) if !e.is_not_found() => Err(Error::from(e).into()),
            Ok(_) => self.folder(&format!("{url}/")).await,
            // A name with an ending is not tried as a folder: few web servers list one.
            Err(_) if self.config.is_web() && has_ending(path) => Err(NotListed::NoFile(format!(
                "the server of `{url}` has no such file (404 or 410); check the path"
            ))),
            Err(_) if store.local_path().is_none() => self.folder(&format!("{url}/")).await,
            Err(_) => Err(NotListed::NoFile(format!(
                "file or folder `{url}` does not exist (looked for `{}`); check the path, a relative one begins at the current folder",
                store.url_of(path)
            ))),
        }
    }

    /// Lists all files below `folder` whose names have a known extension.
    async fn folder(&self, folder: &str) -> Result<Vec<Found>, NotListed> {
        let (below, unread) = self.below(folder, "**").await?;
        let (known, others): (Vec<_>, Vec<_>) = below.into_iter().partition(|(listed, layout)| {
            layout.is_some() && file_format::is_meant(&listed.path, &self.config)
        });
        if known.is_empty() {
            let endings = match self.config.format {
                FileFormat::Image => ".jpg, .png or another image's, .zip or .tar".to_owned(),
                _ => file_format::known_endings() + " (archives with `archive.member`)",
            };
            let reason = format!(
                "file `{}` does not exist and, below it, none that ends in {endings}; check the path or set `format`",
                self.config.url
            );
            return Err(no_file(reason, unread));
        }
        let mut left_out = LeftOut::default();
        let is_hidden = |path: &str| path.split('/').any(|part| part.starts_with('.'));
        let others = others.iter().map(|(listed, _)| listed.path.as_str());
        others
            .filter(|path| !is_hidden(path))
            .for_each(|path| left_out.add(path));
        let advice = "set `url` to a pattern, such as `folder/**/*.dat`, to read them";
        left_out.push(&self.notices, folder, "url", advice);
        Ok(self.found(folder, known)?)
    }

    /// All files below `folder` that match `pattern`.
    async fn matching(&self, folder: &str, pattern: &str) -> Result<Vec<Found>, NotListed> {
        let (listed, unread) = self.below(folder, pattern).await?;
        if listed.is_empty() {
            let reason = format!(
                "no file matches `{}`; check the path, `*` stays inside one folder, `**` does not",
                self.config.url
            );
            return Err(no_file(reason, unread));
        }
        Ok(self.found(folder, listed)?)
    }

    /// Files below `folder` that match `pattern`, and the message about entries and folders that are not read, with
    /// a warning.
    async fn below(
        &self,
        folder: &str,
        pattern: &str,
    ) -> Result<(Vec<ListedFile>, Option<String>), Error> {
        let wanted = pattern.to_owned();
        let folders = WebFolders::with_filter(move |path| glob::may_match_below(&wanted, path));
        let mut options = self.options.clone();
        options.web.folders = folders.clone();
        let store = open_store("url", folder, &options)?;
        let is_of_one_folder = !pattern.contains('/') && !pattern.contains("**");
        let mut listing = match self.config.is_web() && is_of_one_folder {
            true => FolderListing::from(store.list_own().await?),
            false => store.list_with_skipped().await?,
        };
        listing
            .objects
            .retain(|file| glob::matches(pattern, &file.path));
        let unread = UnreadEntries::matching(pattern, listing.skipped);
        let unread = unread.message(folder);
        let left_out = left_out_folders::message(folder, &folders.left_out());
        for (code, message) in [(UNREAD_ENTRIES, &unread), (FOLDERS_LEFT_OUT, &left_out)] {
            if let Some(message) = message {
                self.notices.push(code, "url", message.clone());
            }
        }
        let with_layout = |file: Listed| {
            let layout = self.layout(&file.path, &format!("{folder}{}", file.path))?;
            Ok((file, layout))
        };
        let files: Result<Vec<_>, Error> = listing.objects.into_iter().map(with_layout).collect();
        let mut files = files?;
        if store.local_path().is_none() && !self.config.is_web() {
            files.retain(|(file, layout)| layout.is_some() || !marks_folder(file));
        }
        // A store has one of them: a local disk skips entries, a web server leaves folders out.
        Ok((files, unread.or(left_out)))
    }

    fn found(&self, folder: &str, listed: Vec<ListedFile>) -> Result<Vec<Found>, Error> {
        let store = self.store(folder)?;
        let found = listed.into_iter().map(|(listed, layout)| {
            let url = format!("{folder}{}", listed.path);
            let layout = layout.ok_or_else(|| unknown(&url))?;
            Ok(found_one(&store, listed, &url, layout))
        });
        found.collect()
    }

    /// Returns the layout of the file at `path`; none if its name does not reveal the format.
    /// Messages call the file `url`.
    fn layout(&self, path: &str, url: &str) -> Result<Option<Layout>, Error> {
        let SourceConfig {
            format,
            csv,
            records,
            text,
            archive,
            contract,
            ..
        } = &self.config;
        let named = file_format::of(path, &self.config)?;
        let delimiter = file_format::delimiter(&self.config)?;
        Ok(named.map(|(kind, packing)| Layout {
            kind,
            packing,
            name: url.to_owned(),
            notices: self.notices.clone(),
            format: *format,
            csv: csv.clone(),
            delimiter,
            known_columns: Vec::new(),
            sample_bytes: None,
            records: records.clone(),
            json: contract.json.clone(),
            text: text.clone(),
            archive: archive.clone(),
        }))
    }
}

/// Returns true if the last part of a path has an ending, such as `.csv`.
fn has_ending(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.')
        .is_some_and(|(stem, _)| !stem.is_empty())
}

/// Returns true for an object that may only mark an empty folder, as consoles of object stores create them: it has
/// no bytes, and a name without an ending.
fn marks_folder(file: &Listed) -> bool {
    file.bytes == 0 && !has_ending(&file.path)
}

/// Compression of the file at `url`: by its name, or by the `Content-Encoding` that its server reports.
///
/// # Errors
/// [`Error::File`] for an encoding that files are not decoded from.
fn packing_of(url: &str, named: Packing, encoding: Option<&str>) -> Result<Packing, Error> {
    if named != Packing::Plain {
        return Ok(named);
    }
    let encoding = encoding.unwrap_or_default().to_ascii_lowercase();
    let codings: Vec<&str> = encoding
        .split(',')
        .map(str::trim)
        .filter(|coding| !["", "identity", "aws-chunked"].contains(coding))
        .collect();
    match codings.as_slice() {
        [] => Ok(Packing::Plain),
        ["gzip" | "x-gzip"] => Ok(Packing::Gzip),
        ["zstd"] => Ok(Packing::Zstd),
        _ => Err(Error::File {
            url: url.to_owned(),
            reason: format!(
                "its server reports `Content-Encoding: {encoding}`, and a file is decoded from gzip and zstd only; store it without, or add a query to `url`, such as `?v=1`: then it is requested like a page of an API, which may have more encodings"
            ),
        }),
    }
}

fn found_one(store: &Store, listed: Listed, url: &str, layout: Layout) -> Found {
    Found {
        store: store.clone(),
        path: listed.path,
        url: url.to_owned(),
        bytes: listed.bytes,
        modified: listed.modified,
        etag: listed.etag,
        layout,
        labels: None,
    }
}

/// Refuses a pipe, socket or device: a file is read more than once.
fn check_is_file(store: &Store, path: &str, key: &str, url: &str) -> Result<(), Error> {
    let local = store.local_path().map(|folder| folder.join(path));
    match local.and_then(|path| path.metadata().ok()) {
        Some(found) if !found.is_file() && !found.is_dir() => {
            let reason = format!(
                "`{url}` is a pipe, socket or device, which cannot be read twice; write its data to a file"
            );
            Err(Error::config(key, reason))
        }
        _ => Ok(()),
    }
}

/// The error of a folder without files for the source. `reason` says so, `unread` names its entries
/// that cannot be read.
fn no_file(reason: String, unread: Option<String>) -> NotListed {
    match unread {
        Some(message) => NotListed::NoReadableFile(format!("{reason}; {message}")),
        None => NotListed::NoFile(reason),
    }
}

/// Opens `folder`, the current one if it is empty. Errors name `key`.
fn open_store(key: &str, folder: &str, options: &StoreOptions) -> Result<Store, Error> {
    let folder = if folder.is_empty() { "." } else { folder };
    Store::open(folder, options).map_err(|e| Error::config(key, e.to_string()))
}

fn unknown(url: &str) -> Error {
    let reason = format!(
        "the name of `{url}` has no known extension ({}); {}",
        file_format::known_endings(),
        file_format::workbook_remedy(url).unwrap_or("set `format`")
    );
    Error::config("format", reason)
}
