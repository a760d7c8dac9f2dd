//! The `files` source: files by path, URL or pattern, in the order of their names.
//!
//! A page is up to a few thousand records of one file, so reading can resume inside a file. The
//! position names the file with its hash and the number of records committed from it. A file that
//! was read to its end is listed with its size, hash and store metadata. It is not re-read while
//! these stay the same. [`crate::file_change`] decides about a file that has changed since.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use feedline_readers::{
    file_bytes::{Begin, FileBytes},
    file_format::{self, Kind},
    notices::Notices,
    record::Record,
    rows::{self, Rows},
};
use feedline_schemas::{
    commit::{FileMark, FilePart, FileProgress, PageRun, Position},
    config::{FileFormat, SourceConfig},
    ids::Hash128,
    report::Warning,
};
use feedline_storage::{
    Store, StoreOptions,
    clock::Clock,
    web::{RequestPolicy, WebOptions},
};
use url::Url;

use crate::{
    blocking::blocking,
    context::Context,
    download::Download,
    error::Error,
    file_change::{Change, Known, Policy, ends_in_a_line},
    file_copies::ReadContents,
    file_list::{FILES_GONE, FileList, Found},
    file_marks::{self, Marks},
    http::{FileRequests, certificates},
    infer::Survey,
    log_entries::Resumed,
    sample,
    source::{Page, PagePart, Requests, Source},
};

/// Most records of a page.
const PAGE: u64 = 4096;
/// A page ends with the record that brings it to this many bytes.
const PAGE_BYTES: u64 = 32 << 20;
/// A file written less long ago may still be being written: its last line may be cut.
const FRESH: Duration = Duration::from_secs(5);

/// Opens the files of `config`. They are listed when the first page is read.
///
/// # Errors
/// [`Error::Config`] for an invalid setting.
pub(crate) fn open(config: &SourceConfig, context: &Context) -> Result<Box<dyn Source>, Error> {
    file_format::of("", config)?;
    let limits = &config.retry;
    let policy = file_requests(config, context)?;
    let web = WebOptions {
        headers: policy.as_ref().map(|policy| policy.headers()),
        policy: policy
            .clone()
            .map(|policy| policy as Arc<dyn RequestPolicy>),
        private_hosts: config.private_hosts.clone(),
        trust_proxy: config.trust_proxy,
        tls: certificates(config, context)?,
        connect_timeout: Duration::from_millis(limits.connect_timeout_ms),
        read_timeout: Duration::from_millis(limits.read_timeout_ms),
        total_timeout: Duration::from_millis(limits.total_timeout_ms),
        ..WebOptions::default()
    };
    let requests = Arc::clone(&web.requests);
    let list = FileList {
        config: config.clone(),
        options: StoreOptions {
            web,
            ..context.store_options.clone()
        },
        notices: Notices::default(),
        download: Download::of(config, context)?,
    };
    Ok(Box::new(Files {
        list,
        requests,
        policy,
        clock: Arc::clone(&context.clock),
        found: None,
        passed: None,
        open: None,
        seen: HashSet::new(),
        marks: Marks::default(),
    }))
}

/// The policy of requests for the files of `config`; `None` where they are not on web servers.
fn file_requests(
    config: &SourceConfig,
    context: &Context,
) -> Result<Option<Arc<FileRequests>>, Error> {
    if !config.is_web() {
        return Ok(None);
    }
    let base =
        Url::parse(&config.url).map_err(|e| Error::config("url", format!("it is no URL: {e}")))?;
    FileRequests::new(&base, config, context)
        .map(Arc::new)
        .map(Some)
}

struct Files {
    list: FileList,
    /// Requests over http and https.
    requests: Arc<AtomicU64>,
    /// Their policy.
    policy: Option<Arc<FileRequests>>,
    clock: Arc<dyn Clock>,
    /// Files in reading order, once listed.
    found: Option<Vec<Found>>,
    /// Position after the last page, and the number of files before the next one.
    passed: Option<(Position, usize)>,
    open: Option<OpenFile>,
    /// Files that were opened since. Their size in `found` may be outdated.
    seen: HashSet<String>,
    /// Read files that positions do not list.
    marks: Marks,
}

impl Files {
    /// The next page, with the errors of stores and parsers.
    async fn read_page(&mut self, at: &Position) -> Result<Page, Error> {
        let (done, begun, pages) = split(at)?;
        let found = match self.found.take() {
            Some(found) => found,
            None => self.list.look(at, !self.marks.is_empty()).await?,
        };
        // A page at an earlier position than the last one ended at looks at all files again.
        let passed = self.passed.take().filter(|(end, _)| end == at);
        let passed = passed.map_or(0, |(_, passed)| passed);
        let found = &*self.found.insert(found);
        let config = &self.list.config;
        let young = Young {
            now: self.clock.unix(),
            settle: config.files.settle_s.duration(),
            notices: &self.list.notices,
        };
        let known = (done, &self.marks);
        let mut unread = Unread::new((found, passed), known, young, &mut self.seen);
        let mut file = unread.first(begun.as_ref())?;
        let mut begun = begun;
        let mut gathered = Gathered {
            records: Vec::new(),
            parts: Vec::new(),
            room: PAGE.min(config.batch.rows.get()),
            bytes: 0,
        };
        while let Some(now) = file {
            let skip = begun.as_ref().map_or(0, |begun| begun.records);
            let open = match self.open.take() {
                Some(open) if open.mark().url == now.url && open.read == skip => open,
                _ => {
                    let known = match begun.take() {
                        Some(begun) => Some(Known::begun(begun)),
                        None => unread.mark(&now.url).as_ref().map(Known::read),
                    };
                    let policy = Policy::of(config);
                    match OpenFile::open(now, known, policy, unread.young.now).await? {
                        Opened::Open(open) => *open,
                        Opened::Same(mark) => {
                            unread.refresh(mark);
                            file = unread.next();
                            continue;
                        }
                    }
                }
            };
            unread.begin(now, open.mark());
            let (open, back) = blocking(move || open.page(gathered)).await?;
            gathered = back;
            if open.ahead.is_some() {
                let current = Some(open.progress());
                self.open = Some(open);
                let (passed, done) = (unread.passed, unread.done);
                let next = Position::File { done, current };
                self.passed = Some((next.clone(), passed));
                return Ok(gathered.page(next));
            }
            unread.push(open.mark().clone());
            file = unread.next();
            // An image is a file of one record: a page gathers as many as fit.
            let is_over = gathered.is_full() || config.format != FileFormat::Image;
            if is_over && file.is_some() {
                // The next page begins with this file.
                let (passed, done) = (unread.passed - 1, unread.done);
                let current = None;
                let next = Position::File { done, current };
                self.passed = Some((next.clone(), passed));
                return Ok(gathered.page(next));
            }
            begun = None;
        }
        Ok(gathered.page(Position::Done {
            pages,
            files: unread.done,
            run: PageRun::default(),
        }))
    }
}

#[async_trait]
impl Source for Files {
    async fn next_page(&mut self, at: &Position) -> Result<Page, Error> {
        let failure = |policy: &Arc<FileRequests>| policy.take_failure();
        // An older one was of a request that was not needed.
        self.policy.as_ref().and_then(failure);
        let page = self.read_page(at).await;
        // A parser only says that it could not read on.
        page.map_err(|error| self.policy.as_ref().and_then(failure).unwrap_or(error))
    }

    async fn restore(&mut self, landing: &Store, resumed: &Resumed) -> Result<(), Error> {
        if let Some(last) = &resumed.last {
            self.marks = Marks::restore(landing, &last.state).await?;
        }
        Ok(())
    }

    fn fold(&mut self, marks: &[FileMark]) {
        self.marks.add(marks);
        let end = self.passed.as_mut().map(|(end, _)| end);
        if let Some(listed) = end.and_then(file_marks::listed) {
            listed.clear();
        }
    }

    async fn survey(&mut self) -> Result<Option<Survey>, Error> {
        match &self.found {
            Some(found) => sample::survey(&self.list.config, found).await.map(Some),
            None => Ok(None),
        }
    }

    fn requests(&self) -> Requests {
        Requests {
            requests: self.requests.load(Ordering::Relaxed)
                + self.list.download.as_ref().map_or(0, Download::requests),
            retries: self.policy.as_ref().map_or(0, |policy| policy.retries()),
        }
    }

    fn warnings(&mut self) -> Vec<Warning> {
        self.list.notices.all()
    }

    /// Files that are gone: no batch is committed then.
    fn run_warnings(&self) -> Vec<Warning> {
        let mut warnings = self.list.notices.all();
        warnings.retain(|warning| warning.code == FILES_GONE);
        warnings
    }
}

/// Records of a page.
struct Gathered {
    records: Vec<Record>,
    parts: Vec<PagePart>,
    /// Number of files that may still be added.
    room: u64,
    bytes: u64,
}

impl Gathered {
    const fn is_full(&self) -> bool {
        self.room == 0 || self.bytes >= PAGE_BYTES
    }

    fn page(self, next: Position) -> Page {
        Page {
            records: self.records,
            next,
            crawled: None,
            parts: self.parts,
        }
    }
}

type State = (Vec<FileMark>, Option<FileProgress>, u64);

fn split(at: &Position) -> Result<State, Error> {
    match at.clone() {
        Position::Start => Ok((Vec::new(), None, 0)),
        Position::File { done, current } => Ok((done, current, 0)),
        Position::Done { files, pages, .. } => Ok((files, None, pages)),
        Position::Page { .. } => Err(Error::config(
            "type",
            "this source has been read as `rest` before; restore that type, give the source another name, or run `feedline ingest reset`",
        )),
    }
}

/// Check for files that are too young to be read.
struct Young<'f> {
    now: Duration,
    settle: Duration,
    notices: &'f Notices,
}

impl Young<'_> {
    fn is(&self, file: &Found) -> bool {
        let age = file.modified.map(|at| self.now.saturating_sub(at));
        let is_young = !self.settle.is_zero() && age.is_some_and(|age| age < self.settle);
        if let (true, Some(age)) = (is_young, age) {
            let message = format!(
                "`{}` was written {} s ago and is left for a later run (`files.settle_s` = {})",
                file.url,
                age.as_secs(),
                self.settle.as_secs()
            );
            self.notices
                .push("unsettled_file", "files.settle_s", message);
        }
        is_young
    }
}

/// The files that have not been read, one after another.
struct Unread<'f> {
    found: &'f [Found],
    /// Number of `found` files that were passed. Another page need not look at them: with many files
    /// that would take most of the time.
    passed: usize,
    young: Young<'f>,
    /// Indices in `done`, by URL.
    places: HashMap<String, usize>,
    done: Vec<FileMark>,
    /// Marks that `done` does not have, or has newer ones of.
    older: &'f Marks,
    /// Files that this process has opened.
    seen: &'f mut HashSet<String>,
}

impl<'f> Unread<'f> {
    fn new(
        (found, passed): (&'f [Found], usize),
        (done, older): (Vec<FileMark>, &'f Marks),
        young: Young<'f>,
        seen: &'f mut HashSet<String>,
    ) -> Self {
        let places = done.iter().enumerate();
        Self {
            found,
            passed,
            older,
            young,
            places: places.map(|(i, mark)| (mark.url.clone(), i)).collect(),
            done,
            seen,
        }
    }

    /// Returns the file to resume with: the one in progress, or the first unread one.
    fn first(&mut self, begun: Option<&FileProgress>) -> Result<Option<&'f Found>, Error> {
        let Some(begun) = begun else {
            return Ok(self.next());
        };
        let file = self.found.iter().find(|file| file.url == begun.url);
        file.map(Some).ok_or_else(|| Error::File {
            url: begun.url.clone(),
            reason: format!(
                "{} of its records have landed, and now it is missing; restore it",
                begun.records
            ),
        })
    }

    /// The next file that has not been read, or may have changed since.
    fn next(&mut self) -> Option<&'f Found> {
        loop {
            let file = self.found.get(self.passed)?;
            self.passed += 1;
            let is_seen = self.seen.contains(&file.url);
            let mark = self.mark(&file.url);
            let is_known = mark.is_some_and(|mark| is_seen || is_same(&mark, file));
            if !is_known && !self.young.is(file) {
                return Some(file);
            }
        }
    }

    /// Returns the recorded mark of a file that was read.
    fn mark(&self, url: &str) -> Option<FileMark> {
        match self.places.get(url) {
            Some(place) => Some(self.done[*place].clone()),
            None => self.older.of(url),
        }
    }

    /// Records a checked file that has not changed.
    fn refresh(&mut self, mark: FileMark) {
        self.seen.insert(mark.url.clone());
        if let Some(place) = self.places.get(&mark.url) {
            self.done[*place] = mark;
        } else if self.older.of(&mark.url).is_some_and(|older| older != mark) {
            self.push(mark);
        }
    }

    /// Begins to read a file, for the first time or again, and drops older notes about it.
    fn begin(&mut self, file: &Found, mark: &FileMark) {
        let url = &file.url;
        let is_new = !self.seen.contains(url) && self.mark(url).is_none();
        // Copies among images are a matter of the dataset.
        if is_new && file.layout.kind != Kind::Image {
            let exists = |url: &str| self.found.iter().any(|file| file.url == url);
            let read = ReadContents {
                done: &self.done,
                older: self.older,
            };
            read.note(mark, exists, self.young.notices);
        }
        if let Some(place) = self.places.remove(url) {
            self.done.remove(place);
            self.places
                .values_mut()
                .filter(|other| **other > place)
                .for_each(|other| *other -= 1);
        }
        self.seen.insert(url.clone());
    }

    /// A file has been read.
    fn push(&mut self, mark: FileMark) {
        self.places.insert(mark.url.clone(), self.done.len());
        self.done.push(mark);
    }
}

/// Returns true if the store reports no change of a file since it was read. The file itself is not
/// read.
fn is_same(mark: &FileMark, file: &Found) -> bool {
    let modified = file.modified.map(unix_ms);
    mark.bytes == file.bytes
        && match (&mark.etag, &file.etag, mark.modified_unix_ms, modified) {
            (Some(before), Some(now), ..) => before == now,
            (.., Some(before), Some(now)) => before == now,
            _ => true,
        }
}

fn unix_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A file, once it is opened.
enum Opened {
    /// It has not changed since it was read.
    Same(FileMark),
    Open(Box<OpenFile>),
}

/// A file that is being read.
struct OpenFile {
    /// URL, size and hash, including those of its labels.
    mark: FileMark,
    rows: Box<dyn Rows>,
    /// Position where the reading began.
    begin: Begin,
    /// Records handed out, from there.
    read: u64,
    /// The record after them: without one, the file is over.
    ahead: Option<Record>,
    /// True if the records to be handed out supersede the landed ones of this file.
    supersedes: bool,
}

impl OpenFile {
    async fn open(
        file: &Found,
        known: Option<Known>,
        policy: Policy,
        now: Duration,
    ) -> Result<Opened, Error> {
        let start = known.as_ref().and_then(Known::bytes);
        let bytes = FileBytes::open(&file.store, &file.path, &file.url, start).await?;
        let mut mark = bytes.mark.clone();
        mark.modified_unix_ms = file.modified.map(unix_ms);
        mark.etag.clone_from(&file.etag);
        let mut labels = None;
        if let Some(found) = &file.labels {
            let file = FileBytes::open(&found.store, &found.path, &found.url, None).await?;
            mark.bytes += file.mark.bytes;
            let both = [mark.hash, file.mark.hash].map(|hash| hash.get().to_be_bytes());
            mark.hash = Hash128::of(both.as_flattened());
            labels = Some((file, found.packing));
        }
        let layout = file.layout.clone();
        let is_fresh = file
            .modified
            .is_some_and(|at| now.saturating_sub(at) < FRESH);
        blocking(move || {
            let unreadable = |reason| Error::File {
                url: mark.url.clone(),
                reason,
            };
            let (begin, skip, supersedes) = match known {
                None => (Begin::default(), 0, false),
                Some(known) => {
                    let change = Change::of(&known, &bytes, mark.hash, &layout, policy);
                    match change.map_err(unreadable)? {
                        Change::None if known.is_read => return Ok(Opened::Same(mark)),
                        Change::None | Change::GrownWhile => (known.begin, known.records, false),
                        Change::Grown(begin) => (begin, 0, false),
                        Change::Other => (Begin::default(), 0, true),
                    }
                }
            };
            let begin = match begin.lines {
                0 => bytes.begin(begin.byte).map_err(|e| unreadable(e.to_string()))?,
                _ => begin,
            };
            let mut rows =
                rows::open::open(&bytes, labels.as_ref(), &layout, begin, skip).map_err(unreadable)?;
            let ahead = rows.next().map_err(unreadable)?;
            let notices = &layout.notices;
            if ahead.is_none() && skip == 0 && begin == Begin::default() {
                let how = match mark.bytes {
                    0 => "is empty (0 bytes)".to_owned(),
                    bytes => format!("has no rows in its {bytes} bytes"),
                };
                notices.push("empty_file", "", format!("`{}` {how}", mark.url));
            }
            let unended = || ends_in_a_line(&bytes, &layout);
            if is_fresh && unended().map_err(|e| unreadable(e.to_string()))? {
                let message = format!(
                    "the last line of `{}` has no line end, and the file was written a moment ago: if it is still being written, that row is truncated; a later run reads the appended part, and such a row again",
                    mark.url
                );
                notices.push("unfinished_file", "files.settle_s", message);
            }
            Ok(Opened::Open(Box::new(Self {
                mark,
                rows,
                begin,
                read: skip,
                ahead,
                supersedes,
            })))
        })
        .await
    }

    fn mark(&self) -> &FileMark {
        &self.mark
    }

    /// Progress of the reading.
    fn progress(&self) -> FileProgress {
        FileProgress {
            url: self.mark.url.clone(),
            records: self.read,
            hash: self.mark.hash,
            bytes: Some(self.mark.bytes),
            from: self.begin.byte,
        }
    }

    /// Adds records, at least one if there are any.
    fn page(mut self, mut to: Gathered) -> Result<(Self, Gathered), Error> {
        let before = self.read;
        while !to.is_full()
            && let Some(record) = self.ahead.take()
        {
            to.bytes += record.size();
            to.records.push(record);
            to.room -= 1;
            self.read += 1;
            let next = self.rows.next();
            self.ahead = next.map_err(|reason| Error::File {
                url: self.mark.url.clone(),
                reason,
            })?;
        }
        to.parts.push(PagePart {
            part: FilePart {
                url: self.mark.url.clone(),
                records: self.read - before,
            },
            supersedes: std::mem::take(&mut self.supersedes),
        });
        Ok((self, to))
    }
}

#[cfg(test)]
mod archive_tests;
#[cfg(test)]
mod idx_tests;
#[cfg(test)]
mod image_tests;
#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;

    use feedline_schemas::config::{FilesChanged, load};
    use feedline_storage::clock::SystemClock;

    use super::*;

    /// A `files` source called `s`.
    pub(crate) fn source(url: &str) -> SourceConfig {
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = '{url}'\n"
        );
        load("p", &text, &[]).unwrap().config.source.remove(0)
    }

    pub(crate) struct Folder(tempfile::TempDir);

    impl Folder {
        pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            files
                .iter()
                .for_each(|(name, content)| folder.write(name, content));
            folder
        }

        pub(crate) fn write(&self, name: &str, content: &[u8]) {
            let path = self.0.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }

        pub(crate) fn path(&self, name: &str) -> String {
            format!("{}/{name}", self.0.path().display())
        }

        pub(crate) fn source(&self, name: &str) -> SourceConfig {
            source(&self.path(name))
        }
    }

    fn files(config: &SourceConfig) -> Files {
        let list = FileList {
            config: config.clone(),
            options: StoreOptions::default(),
            notices: Notices::default(),
            download: None,
        };
        Files {
            list,
            requests: Arc::default(),
            policy: None,
            clock: Arc::new(SystemClock),
            found: None,
            passed: None,
            open: None,
            seen: HashSet::new(),
            marks: Marks::default(),
        }
    }

    /// All pages from `at`: records for a reader, and the position after each page.
    pub(crate) async fn pages(
        config: &SourceConfig,
        at: Position,
    ) -> Result<Vec<(Vec<String>, Position)>, Error> {
        let mut files = files(config);
        let mut at = at;
        let mut pages = Vec::new();
        loop {
            let page = files.next_page(&at).await?;
            at = page.next.clone();
            let show = |record: &Record| match record {
                record @ (Record::Value(_) | Record::Json(_)) => record.canonical(),
                Record::Bad {
                    raw,
                    reason,
                    detail,
                } => format!("{reason} | {detail} | {raw}"),
            };
            pages.push((page.records.iter().map(show).collect(), page.next));
            if matches!(at, Position::Done { .. }) {
                return Ok(pages);
            }
        }
    }

    pub(crate) async fn records(config: &SourceConfig) -> Vec<String> {
        pages(config, Position::Start)
            .await
            .unwrap()
            .into_iter()
            .flat_map(|(records, _)| records)
            .collect()
    }

    pub(crate) async fn refused(config: &SourceConfig) -> String {
        pages(config, Position::Start)
            .await
            .unwrap_err()
            .to_string()
    }

    pub(crate) fn gzip(content: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(content).unwrap();
        writer.finish().unwrap()
    }

    #[tokio::test]
    async fn csv_gives_cells_as_written_and_nulls() {
        let folder = Folder::new(&[(
            "a.csv",
            b"\xef\xbb\xbfid,name,\n007, NA ,1.50\n,\"x, \"\"y\"\"\",\n",
        )]);
        let mut config = folder.source("a.csv");
        config.csv.null_values = vec!["NA".into()];
        let expected = [
            r#"{"column_3":"1.50","id":"007","name":null}"#,
            r#"{"column_3":null,"id":null,"name":"x, \"y\""}"#,
        ];
        assert_eq!(records(&config).await, expected);
    }

    #[tokio::test]
    async fn fault_42_ragged_and_broken_rows_are_bad_records_with_their_place() {
        let folder = Folder::new(&[("a.csv", b"a,b\n1,2\n3\n4,5,\"6,7\"\n8,\xff\n9,10\n")]);
        let expected = [
            r#"{"a":"1","b":"2"}"#,
            "ragged_row | line 3 (byte 8 of the file): 1 fields, the header has 2 | 3",
            "ragged_row | line 4 (byte 10 of the file): 3 fields, the header has 2 | 4,5,\"6,7\"",
            "invalid_utf8 | line 5 (byte 20 of the file): column `b` is not UTF-8: set `csv.encoding`, such as to `windows-1252` | 8,\u{fffd}",
            r#"{"a":"9","b":"10"}"#,
        ];
        assert_eq!(records(&folder.source("a.csv")).await, expected);
    }

    #[tokio::test]
    async fn tsv_and_other_delimiters_are_read() {
        let folder = Folder::new(&[("a.tsv", b"a\tb\n1,5\t2\n"), ("b.csv", b"a;b\n1;2\n")]);
        assert_eq!(
            records(&folder.source("a.tsv")).await,
            [r#"{"a":"1,5","b":"2"}"#]
        );
        let mut config = folder.source("b.csv");
        config.csv.delimiter = Some(";".into());
        assert_eq!(records(&config).await, [r#"{"a":"1","b":"2"}"#]);
    }

    #[tokio::test]
    async fn a_header_with_a_name_twice_is_refused() {
        let folder = Folder::new(&[("a.csv", b"a,b,a\n")]);
        assert!(
            refused(&folder.source("a.csv"))
                .await
                .ends_with("its header line has `a` twice; give every column a name of its own, or set `csv.header = false` if it is no header")
        );
    }

    #[tokio::test]
    async fn fault_42_ndjson_sets_bad_lines_aside_with_their_place() {
        let folder = Folder::new(&[(
            "a.ndjson",
            b"{\"a\":1}\r\n\n{\"a\":\n[1]\n{\"a\":1,\"a\":2}\n{\"a\":2}",
        )]);
        let expected = [
            r#"{"a":1}"#,
            "malformed_line | line 3 (byte 10 of the file): the document ends at byte 5, where a value should be | {\"a\":",
            "not_an_object | line 4 (byte 16 of the file): a list where an object should be | [1]",
            // The contract decides about it.
            r#"{"a":1,"a":2}"#,
            r#"{"a":2}"#,
        ];
        assert_eq!(records(&folder.source("a.ndjson")).await, expected);
    }

    #[tokio::test]
    async fn json_gives_the_elements_of_its_list() {
        let folder = Folder::new(&[
            ("a.json", br#"[{"a":1},2]"#),
            ("b.json", br#"{"x":{"y":[{"a":1}]},"n":0}"#),
        ]);
        let expected = [
            r#"{"a":1}"#,
            "not_an_object | element 2: an integer where an object should be | 2",
        ];
        assert_eq!(records(&folder.source("a.json")).await, expected);
        let mut config = folder.source("b.json");
        config.records = "x.y".into();
        assert_eq!(records(&config).await, [r#"{"a":1}"#]);
        config.records = "x".into();
        assert!(
            refused(&config)
                .await
                .ends_with("set `records` to the path of the list (lists in it: `y`)")
        );
        config.records = "z".into();
        assert!(
            refused(&config)
                .await
                .ends_with("no `z` exists at `records` = `z`, only `x`, `n`")
        );
        config.records = "n.a".into();
        assert!(
            refused(&config)
                .await
                .ends_with("`a` of `records` = `n.a` is looked for in an integer")
        );
    }

    #[tokio::test]
    async fn packed_files_read_as_plain_ones() {
        let plain = b"{\"a\":1}\n{\"a\":2}\n";
        // Two gzip members and two zstd frames are one file.
        let gz = [gzip(&plain[..8]), gzip(&plain[8..])].concat();
        let zst = [
            zstd::encode_all(&plain[..3], 1).unwrap(),
            zstd::encode_all(&plain[3..], 1).unwrap(),
        ]
        .concat();
        let folder = Folder::new(&[("a.jsonl.gz", &gz), ("a.jsonl.zst", &zst)]);
        let expected = [r#"{"a":1}"#, r#"{"a":2}"#];
        assert_eq!(records(&folder.source("a.jsonl.gz")).await, expected);
        assert_eq!(records(&folder.source("a.jsonl.zst")).await, expected);
    }

    #[tokio::test]
    async fn a_packed_file_that_was_cut_is_an_error_and_not_an_end() {
        let content: String = (0..5000).map(|i| format!("{{\"a\":{i}}}\n")).collect();
        let gz = gzip(content.as_bytes());
        let zst = zstd::encode_all(content.as_bytes(), 1).unwrap();
        let folder = Folder::new(&[
            ("a.jsonl.gz", &gz[..gz.len() - 9]),
            ("a.jsonl.zst", &zst[..zst.len() - 2]),
        ]);
        assert!(
            refused(&folder.source("a.jsonl.gz"))
                .await
                .contains("cannot read file")
        );
        assert!(
            refused(&folder.source("a.jsonl.zst"))
                .await
                .contains("cannot read file")
        );
    }

    #[tokio::test]
    async fn files_are_read_in_the_order_of_their_names() {
        let line = |i: u32| format!("{{\"a\":{i}}}\n").into_bytes();
        let (one, two, three) = (line(1), line(2), line(3));
        let folder = Folder::new(&[
            ("d/b.ndjson", &two),
            ("d/c/x.ndjson", &three),
            ("d/a.ndjson", &one),
            ("d/README", b""),
        ]);
        assert_eq!(
            records(&folder.source("d/*.ndjson")).await,
            [r#"{"a":1}"#, r#"{"a":2}"#]
        );
        for url in ["d", "d/", "d/**/*.ndjson", "**/*.ndjson", "*/?.ndjson"] {
            let expected = [r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":3}"#];
            assert_eq!(
                records(&folder.source(url)).await[..2],
                expected[..2],
                "{url}"
            );
        }
        assert_eq!(records(&folder.source("d")).await.len(), 3);
    }

    #[tokio::test]
    async fn images_share_pages_and_one_that_cannot_be_unpacked_is_one_bad_record() {
        let folder = Folder::new(&[
            ("d/1.png", b"1"),
            ("d/2.png.gz", &gzip(b"2")[..12]),
            ("d/3.png", b"3"),
            ("d/4.png", b"4"),
            ("d/5.png", b"5"),
        ]);
        let mut config = folder.source("d");
        config.format = FileFormat::Image;
        config.batch.rows = feedline_schemas::config::Bounded::literal::<3>();
        let found = pages(&config, Position::Start).await.unwrap();
        let lengths: Vec<usize> = found.iter().map(|(records, _)| records.len()).collect();
        assert_eq!(lengths, [3, 2]);
        assert!(
            found[0].0[1].contains("unreadable_image"),
            "{:?}",
            found[0].0
        );
        let Position::File {
            done,
            current: None,
        } = &found[0].1
        else {
            panic!("{:?}", found[0].1)
        };
        assert_eq!(done.len(), 3);
        let rest = pages(&config, found[0].1.clone()).await.unwrap();
        assert_eq!(rest, found[1..]);
    }

    #[tokio::test]
    async fn reading_goes_on_at_every_page_as_if_it_had_never_stopped() {
        let lines = |from: u32, to: u32| {
            (from..to)
                .map(|i| format!("{{\"a\":{i}}}\n"))
                .collect::<String>()
        };
        let csv: String = std::iter::once("a\n".to_owned())
            .chain((0..7).map(|i| format!("{i}\n")))
            .collect();
        let array = format!("[{}]", lines(0, 5).trim().replace('\n', ","));
        let folder = Folder::new(&[
            ("1.ndjson", lines(0, 10).as_bytes()),
            ("2.csv", csv.as_bytes()),
            ("3.csv", b""),
            ("4.json", array.as_bytes()),
            ("5.parquet", &feedline_readers::testing::numbers(11)),
        ]);
        let mut config = folder.source("*");
        config.batch.rows = feedline_schemas::config::Bounded::literal::<3>();
        let whole = pages(&config, Position::Start).await.unwrap();
        assert_eq!(whole.len(), 4 + 3 + 1 + 2 + 4);
        for (i, (_, position)) in whole.iter().enumerate().take(whole.len() - 1) {
            assert_eq!(
                pages(&config, position.clone()).await.unwrap(),
                whole[i + 1..],
                "after page {i}"
            );
        }
    }

    #[tokio::test]
    async fn a_later_run_reads_only_new_files() {
        let folder = Folder::new(&[("b.ndjson", b"{\"a\":1}\n")]);
        let config = folder.source("*.ndjson");
        let (_, done) = pages(&config, Position::Start)
            .await
            .unwrap()
            .pop()
            .unwrap();
        assert_eq!(
            pages(&config, done.clone()).await.unwrap(),
            [(vec![], done.clone())]
        );
        folder.write("a.ndjson", b"{\"a\":2}\n");
        let (records, later) = pages(&config, done.clone()).await.unwrap().pop().unwrap();
        assert_eq!(records, [r#"{"a":2}"#]);
        let Position::Done { files, .. } = later else {
            panic!("{later:?}")
        };
        assert_eq!(files.len(), 2);
        std::fs::remove_file(folder.0.path().join("a.ndjson")).unwrap();
        std::fs::remove_file(folder.0.path().join("b.ndjson")).unwrap();
        assert_eq!(
            pages(&config, done.clone()).await.unwrap(),
            [(vec![], done)]
        );
    }

    #[tokio::test]
    async fn a_file_that_has_grown_is_read_on_from_every_page() {
        for (name, header) in [("a.ndjson", ""), ("a.csv", "a\n")] {
            let row = |i: u32| match header {
                "" => format!("{{\"a\":{i}}}\n"),
                _ => format!("{i}\n"),
            };
            let content = |to: u32| header.to_owned() + &(1..=to).map(row).collect::<String>();
            let folder = Folder::new(&[(name, content(2).as_bytes())]);
            let mut config = folder.source(name);
            config.batch.rows = feedline_schemas::config::Bounded::literal::<1>();
            let whole = pages(&config, Position::Start).await.unwrap();
            let values = |found: Vec<(Vec<String>, Position)>| -> String {
                let records = found.into_iter().flat_map(|(records, _)| records);
                records
                    .collect::<String>()
                    .replace(['{', '}', '"', ':', 'a'], "")
            };
            for to in [4, 5] {
                folder.write(name, content(to).as_bytes());
                let all: String = (1..=to).map(|i| i.to_string()).collect();
                for (place, (_, position)) in whole.iter().enumerate() {
                    let found = pages(&config, position.clone()).await.unwrap();
                    assert_eq!(values(found), all[place + 1..], "{name} from {place}");
                }
            }
            // And from every page of the appended part.
            let grown = pages(&config, whole[1].1.clone()).await.unwrap();
            folder.write(name, content(7).as_bytes());
            for (place, (_, position)) in grown.iter().enumerate() {
                let found = pages(&config, position.clone()).await.unwrap();
                assert_eq!(values(found), "34567"[place + 1..], "{name} from {place}");
            }
            config.files.changed = FilesChanged::Refuse;
            for (_, position) in whole {
                let error = pages(&config, position).await.unwrap_err().to_string();
                assert!(
                    error.contains("it has changed since its records landed"),
                    "{error}"
                );
            }
        }
    }

    /// The parser removes it from the beginning of what it reads, which is not that of the file.
    #[tokio::test]
    async fn a_mark_at_the_beginning_of_appended_rows_is_text_as_it_is_in_a_whole_file() {
        let folder = Folder::new(&[("a.csv", b"a\n1\n")]);
        let config = folder.source("a.csv");
        let (_, before) = pages(&config, Position::Start).await.unwrap().remove(0);
        folder.write("a.csv", "a\n1\n\u{feff}2\n".as_bytes());
        let whole = pages(&config, Position::Start).await.unwrap().remove(0);
        let appended = pages(&config, before).await.unwrap().remove(0);
        assert_eq!(appended.0, ["{\"a\":\"\u{feff}2\"}"]);
        assert_eq!(appended.0, whole.0[1..]);
    }

    /// Returns the codes and keys of the warnings from reading the files of `config`.
    async fn told(config: &SourceConfig) -> Vec<(String, String)> {
        let mut files = files(config);
        let mut at = Position::Start;
        while !matches!(at, Position::Done { .. }) {
            at = files.next_page(&at).await.unwrap().next;
        }
        let told = files.warnings().into_iter();
        told.filter(|warning| warning.code != "unfinished_file")
            .map(|warning| (warning.code, warning.key.unwrap_or_default()))
            .collect()
    }

    fn one(code: &str, key: &str) -> Vec<(String, String)> {
        vec![(code.to_owned(), key.to_owned())]
    }

    #[tokio::test]
    async fn the_delimiter_is_that_which_splits_all_lines_alike() {
        let found = |content: &'static str| async move {
            let folder = Folder::new(&[("a.csv", content.as_bytes())]);
            let config = folder.source("a.csv");
            (records(&config).await.join(" "), told(&config).await)
        };
        let by_delimiter = one("csv_delimiter", "csv.delimiter");
        let semicolons = found("a;b\n1,5;2\n\"x;y\";3\n").await;
        assert_eq!(
            semicolons,
            (
                r#"{"a":"1,5","b":"2"} {"a":"x;y","b":"3"}"#.into(),
                by_delimiter.clone()
            )
        );
        let tabs = found("a\tb\n1\t2\n").await;
        assert_eq!(tabs, (r#"{"a":"1","b":"2"}"#.into(), by_delimiter.clone()));
        // A comma in a name does not hide it.
        let named = found("a, of b;c\n1;2\n3;4\n").await;
        assert_eq!(named.1, by_delimiter);
        assert!(
            named.0.starts_with(r#"{"a, of b":"1","c":"2"}"#),
            "{}",
            named.0
        );
        // One column of text stays one, with a warning where that may be wrong.
        assert_eq!(found("a\nx;y\nz\n").await.1, []);
        assert_eq!(found("a;b\nx;y;z\n").await.1, by_delimiter);
        assert_eq!(found("a,b\n1;1,2;2\n").await.1, []);
        let folder = Folder::new(&[("a.csv", b"a;b|c\n1;2|3\n")]);
        let error = refused(&folder.source("a.csv")).await;
        assert!(
            error.ends_with("`;` and `|` each split its lines alike; set `csv.delimiter`"),
            "{error}"
        );
        let mut config = folder.source("a.csv");
        config.csv.delimiter = Some("|".into());
        assert_eq!(records(&config).await, [r#"{"a;b":"1;2","c":"3"}"#]);
        assert_eq!(told(&config).await, []);
    }

    #[tokio::test]
    async fn a_large_file_is_split_as_its_beginning_is() {
        let rows = (0..30_000).map(|i| format!("{i};{}\n", i % 7));
        let content: String = std::iter::once("a;b\n".to_owned()).chain(rows).collect();
        let folder = Folder::new(&[("a.csv", content.as_bytes())]);
        let all = records(&folder.source("a.csv")).await;
        assert_eq!(all.len(), 30_000);
        assert_eq!(all[29_999], r#"{"a":"29999","b":"4"}"#);
    }

    #[tokio::test]
    async fn other_encodings_are_read_by_their_mark_or_by_the_key() {
        let wide = |text: &str, bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            text.encode_utf16().flat_map(bytes).collect()
        };
        let text = "a,b\nä,1\n\u{1f600},2\n";
        let expected = [r#"{"a":"ä","b":"1"}"#, "{\"a\":\"\u{1f600}\",\"b\":\"2\"}"];
        let marked = format!("\u{feff}{text}");
        for content in [
            wide(&marked, u16::to_le_bytes),
            wide(&marked, u16::to_be_bytes),
        ] {
            let folder = Folder::new(&[("a.csv", &content)]);
            let mut config = folder.source("a.csv");
            assert_eq!(records(&config).await, expected);
            assert_eq!(told(&config).await, one("csv_encoding", "csv.encoding"));
            config.csv.encoding = Some("utf-16".into());
            assert_eq!(records(&config).await, expected);
            assert_eq!(told(&config).await, []);
        }
        let folder = Folder::new(&[("a.csv", &wide(text, u16::to_le_bytes))]);
        let mut config = folder.source("a.csv");
        let error = refused(&config).await;
        assert!(
            error.contains("set `csv.encoding` to `utf-16le`"),
            "{error}"
        );
        config.csv.encoding = Some("utf-16le".into());
        assert_eq!(records(&config).await, expected);
        let folder = Folder::new(&[("a.csv", b"\xe4,b\n\xe41,\x802\n")]);
        let mut config = folder.source("a.csv");
        let error = refused(&config).await;
        assert!(error.contains("set `csv.encoding`"), "{error}");
        for label in ["latin-1", "windows-1252", "ISO_8859-1"] {
            config.csv.encoding = Some(label.into());
            assert_eq!(
                records(&config).await,
                [r#"{"b":"€2","ä":"ä1"}"#],
                "{label}"
            );
        }
        config.csv.encoding = Some("klingon".into());
        let error = refused(&config).await;
        assert!(
            error.starts_with("`csv.encoding`: `klingon` is no encoding"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn bytes_that_are_none_of_the_encoding_end_the_run_with_their_place() {
        let long: String = (0..40_000).map(|i| format!("{i}\n")).collect();
        let mut content: Vec<u8> = long.encode_utf16().flat_map(u16::to_le_bytes).collect();
        content.extend([0x00, 0xd8, 0x0a, 0x00]);
        let folder = Folder::new(&[("a.csv", &content)]);
        let mut config = folder.source("a.csv");
        config.csv.encoding = Some("utf-16le".into());
        let error = refused(&config).await;
        assert!(error.contains("it is not UTF-16LE at byte "), "{error}");
    }

    #[tokio::test]
    async fn files_without_a_header_have_the_names_that_are_given() {
        let folder = Folder::new(&[("a.csv", b"\xef\xbb\xbf5.1,x\n4.9,y\n")]);
        let mut config = folder.source("a.csv");
        let by_header = one("header_looks_like_data", "csv.header");
        assert_eq!(told(&config).await, [] as [(String, String); 0]);
        folder.write("a.csv", b"\xef\xbb\xbf5.1,3.5,x\n4.9,3,y\n");
        assert_eq!(told(&config).await, by_header);
        config.csv.header = false;
        assert_eq!(
            records(&config).await,
            [
                r#"{"column_1":"5.1","column_2":"3.5","column_3":"x"}"#,
                r#"{"column_1":"4.9","column_2":"3","column_3":"y"}"#
            ]
        );
        assert_eq!(told(&config).await, []);
        config.csv.columns = ["l", "w", "s"].map(str::to_owned).to_vec();
        config.batch.rows = feedline_schemas::config::Bounded::literal::<1>();
        let whole = pages(&config, Position::Start).await.unwrap();
        assert_eq!(whole[0].0, [r#"{"l":"5.1","s":"x","w":"3.5"}"#]);
        assert_eq!(
            pages(&config, whole[0].1.clone()).await.unwrap(),
            whole[1..]
        );
        config.csv.header = true;
        assert_eq!(records(&config).await, [r#"{"l":"4.9","s":"y","w":"3"}"#]);
        config.csv.columns.pop();
        let error = refused(&config).await;
        assert!(
            error.contains("has 3 fields, and `csv.columns` names 2"),
            "{error}"
        );
    }

    #[test]
    fn a_header_of_numbers_that_count_up_is_one() {
        let looks = |header: &str| {
            let cells: Vec<String> = header.split(',').map(str::to_owned).collect();
            feedline_readers::csv_dialect::looks_like_data(&cells)
        };
        for data in [
            "5.1,3.5,1.4,0.2,setosa",
            "39, State-gov, 77516, Bachelors, 13",
            "1,1",
            "2,1,0",
        ] {
            assert!(looks(data), "{data}");
        }
        for names in ["a,b", "country,2000,2001,2002", "0,1,2,3", "id,2", ""] {
            assert!(!looks(names), "{names}");
        }
    }

    #[tokio::test]
    async fn lines_before_the_header_comments_and_quotes_are_read_as_configured() {
        let folder = Folder::new(&[("a.csv", b"Report\n\na,b\n# made by hand\n1,\"2\n3\n")]);
        let mut config = folder.source("a.csv");
        config.csv.skip_rows = 2;
        config.csv.comment = Some("#".into());
        config.csv.quote = Some(String::new());
        assert_eq!(
            records(&config).await,
            [
                r#"{"a":"1","b":"\"2"}"#,
                "ragged_row | line 6 (byte 32 of the file): 1 fields, the header has 2 | 3"
            ]
        );
        folder.write("a.csv", b"a,b\n'1,2',3\n");
        let mut config = folder.source("a.csv");
        config.csv.quote = Some("'".into());
        assert_eq!(records(&config).await, [r#"{"a":"1,2","b":"3"}"#]);
        let refuses = |change: fn(&mut SourceConfig)| {
            let mut config = source("a.csv");
            change(&mut config);
            file_format::of("a.csv", &config).unwrap_err().to_string()
        };
        assert!(
            refuses(|c| c.csv.quote = Some("ab".into())).starts_with("`csv.quote`: use one ASCII")
        );
        assert!(
            refuses(|c| c.csv.comment = Some(String::new()))
                .starts_with("`csv.comment`: use one ASCII")
        );
        assert!(
            refuses(|c| {
                c.csv.quote = Some("'".into());
                c.csv.comment = Some("'".into());
            })
            .contains("must be different")
        );
        assert!(
            refuses(|c| c.csv.columns = vec!["a".into(), "a".into()])
                .starts_with("`csv.columns`: `a` (number 1, from 0)")
        );
        assert!(refuses(|c| c.csv.skip_rows = 1_000_001).starts_with("`csv.skip_rows`"));
    }

    #[tokio::test]
    async fn a_file_without_rows_is_told_by_name() {
        for (name, content) in [
            ("a.csv", &b""[..]),
            ("b.csv", b"a,b\n"),
            ("c.ndjson", b"\n"),
        ] {
            let folder = Folder::new(&[(name, content)]);
            let mut files = files(&folder.source(name));
            files.next_page(&Position::Start).await.unwrap();
            let told = files.warnings();
            assert_eq!(told[0].code, "empty_file");
            assert!(told[0].message.contains(name), "{told:?}");
        }
    }

    #[tokio::test]
    async fn a_missing_file_is_one_clear_error() {
        let folder = Folder::new(&[("x.txt", b"")]);
        let place = folder.0.path().display().to_string();
        assert_eq!(
            refused(&folder.source("no.csv")).await,
            format!(
                "`url`: file or folder `{place}/no.csv` does not exist (looked for `{place}/no.csv`); check the path, a relative one begins at the current folder"
            )
        );
        assert!(
            refused(&folder.source("*.csv"))
                .await
                .starts_with(&format!("`url`: no file matches `{place}/*.csv`"))
        );
        assert!(
            refused(&folder.source("x.txt"))
                .await
                .contains("has no known extension")
        );
        assert!(
            refused(&folder.source(""))
                .await
                .contains("none that ends in .csv")
        );
        assert!(
            refused(&source("ftp://x/y.csv"))
                .await
                .contains("unknown scheme")
        );
    }
}
