//! The `files` source: files by path, URL or pattern, in the order of their names.
//!
//! A page is up to a few thousand records of one file, so reading can resume inside a file. The
//! position names the file with its hash and the number of records committed from it. A file that
//! was read to its end is listed with its size, hash and store metadata. It is not re-read while
//! these stay the same. [`crate::file_change`] decides about a file that has changed since.

mod first_names;
mod known_columns;
mod new_contents;
mod open_file;
mod page_builder;
pub(crate) mod source_type;
mod split_texts;
mod unread_files;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use feedline_http::{
    FileRequests, HttpCause, RequestPolicy, SecretMasks, WebOptions, certificates,
    without_user_info,
};
use feedline_readers::{file_format, notices::Notices, remedy::Remedy};
use feedline_schemas::{
    commit::{FileMark, FileProgress, PageRun, Position},
    config::{FileFormat, SourceConfig},
    report::Warning,
};
use feedline_storage::{Store, StoreOptions, clock::Clock};
use url::Url;

pub(crate) use self::new_contents::{check_missing_files, check_new_contents, list_existing};
use self::{
    known_columns::{KnownColumns, check_skipped_rows},
    open_file::{EMPTY_FILE, OpenFile, Opened},
    page_builder::Gathered,
    split_texts::SplitTexts,
    unread_files::{Unread, Young},
};
use crate::{
    blocking::blocking,
    context::Context,
    download::Download,
    error::{Error, innermost_cause},
    file_change::{Known, Policy},
    file_list::{FILES_GONE, FOLDERS_LEFT_OUT, FileList, Found, UNREAD_ENTRIES, UNSETTLED_FILE},
    file_marks::{self, Marks},
    infer::Survey,
    log_entries::Resumed,
    sample,
    source::{Page, Requests, Source},
};

/// Opens the files of `config`. They are listed when the first page is read.
///
/// # Errors
/// [`Error::Config`] for an invalid setting.
pub(crate) fn open(config: &SourceConfig, context: &Context) -> Result<Box<dyn Source>, Error> {
    file_format::of("", config)?;
    let policy = file_requests(config, context)?;
    let list = new_file_list(config, policy.as_ref(), context)?;
    let clock = Arc::clone(&context.clock);
    Ok(Box::new(Files::new(list, policy, clock)))
}

/// The list of the files of `config`. Web servers are requested as `policy` says.
fn new_file_list(
    config: &SourceConfig,
    policy: Option<&Arc<FileRequests<Error>>>,
    context: &Context,
) -> Result<FileList, Error> {
    let limits = &config.retry;
    let web = WebOptions {
        headers: policy.map(|policy| policy.headers()),
        policy: policy
            .cloned()
            .map(|policy| policy as Arc<dyn RequestPolicy>),
        private_hosts: config.private_hosts.clone(),
        trust_proxy: config.trust_proxy,
        tls: certificates(config, &context.requests_of(config.name.as_str()))?,
        connect_timeout: Duration::from_millis(limits.connect_timeout_ms),
        read_timeout: Duration::from_millis(limits.read_timeout_ms),
        total_timeout: Duration::from_millis(limits.total_timeout_ms),
        ..WebOptions::default()
    };
    let download = Download::of(config, &web.uncertain_ends, context)?;
    Ok(FileList {
        config: config.clone(),
        options: StoreOptions {
            web,
            ..context.store_options.clone()
        },
        notices: Notices::default(),
        download,
    })
}

/// The policy of requests for the files of `config`; `None` where they are not on web servers.
fn file_requests(
    config: &SourceConfig,
    context: &Context,
) -> Result<Option<Arc<FileRequests<Error>>>, Error> {
    if !config.is_web() {
        return Ok(None);
    }
    let base =
        Url::parse(&config.url).map_err(|e| Error::config("url", format!("it is no URL: {e}")))?;
    let context = context.requests_of(config.name.as_str());
    let requests = FileRequests::new(&base, config, &context)?;
    Ok(Some(Arc::new(requests)))
}

struct Files {
    list: FileList,
    /// Requests over http and https.
    requests: Arc<AtomicU64>,
    /// Their policy.
    policy: Option<Arc<FileRequests<Error>>>,
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
    /// Columns that the headers of CSV are compared with.
    columns: KnownColumns,
    /// Text files that were read to their ends.
    texts: SplitTexts,
    /// Error of the first sampled file that cannot be opened.
    unreadable: Option<Error>,
}

impl Files {
    fn new(
        list: FileList,
        policy: Option<Arc<FileRequests<Error>>>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            requests: Arc::clone(&list.options.web.requests),
            list,
            policy,
            clock,
            found: None,
            passed: None,
            open: None,
            seen: HashSet::new(),
            marks: Marks::default(),
            columns: KnownColumns::default(),
            texts: SplitTexts::default(),
            unreadable: None,
        }
    }

    /// Ends a page at the position `next`, behind so many `passed` files.
    fn end_page(&mut self, gathered: Gathered, next: Position, passed: usize) -> Page {
        self.passed = Some((next.clone(), passed));
        gathered.page(next)
    }

    /// The next page, with the errors of stores and parsers.
    async fn read_page(&mut self, at: &Position) -> Result<Page, Error> {
        let (done, mut begun, pages) = split(at)?;
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
        let mut gathered = Gathered::new(config.batch.rows.get());
        while let Some(now) = file {
            let skip = begun.as_ref().map_or(0, |begun| begun.records);
            let mut open = match self.open.take() {
                Some(open) if open.mark().url == now.url && open.read == skip => open,
                _ => {
                    let known = match begun.take() {
                        Some(begun) => Some(Known::begun(begun)),
                        None => unread.mark(&now.url).as_ref().map(Known::read),
                    };
                    let policy = Policy::of(config).comparing(self.columns.compares_keys());
                    let ends = &self.list.options.web.uncertain_ends;
                    match OpenFile::open(now, known, policy, unread.young.now, ends).await? {
                        Opened::Open(open) => {
                            self.columns
                                .check_file(&open, &config.contract, &self.list.notices)?;
                            *open
                        }
                        Opened::Emptied => {
                            unread.keep_mark(&now.url);
                            file = unread.next();
                            continue;
                        }
                        Opened::Same(mark) => {
                            unread.refresh(mark);
                            file = unread.next();
                            continue;
                        }
                    }
                }
            };
            unread.begin(now, open.mark());
            (open, gathered) = blocking(move || open.page(gathered)).await?;
            self.columns.note_members(&mut open, &self.list);
            if !open.is_over() {
                let current = Some(open.progress());
                self.open = Some(open);
                let (passed, done) = (unread.passed, unread.done);
                let next = Position::File { done, current };
                return Ok(self.end_page(gathered, next, passed));
            }
            self.texts.add(now, open.read);
            unread.push(open.mark().clone());
            file = unread.next();
            // An image is a file of one record: a page gathers as many as fit.
            let is_over = gathered.is_full() || config.format != FileFormat::Image;
            if is_over && file.is_some() {
                // The next page begins with this file.
                let (passed, done, current) = (unread.passed - 1, unread.done, None);
                let next = Position::File { done, current };
                return Ok(self.end_page(gathered, next, passed));
            }
            begun = None;
        }
        self.texts.warn(&config.text, &self.list.notices);
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
        let failure = |policy: &Arc<FileRequests<Error>>| policy.take_failure();
        // An older one was of a request that was not needed.
        self.policy.as_ref().and_then(failure);
        let page = self.read_page(at).await;
        // A parser only says that it could not read on.
        page.map_err(|error| match &self.policy {
            Some(policy) => failure(policy).unwrap_or_else(|| refused_by_server(error)),
            None => error,
        })
    }

    async fn restore(&mut self, landing: &Store, resumed: &Resumed) -> Result<(), Error> {
        if let Some(last) = &resumed.last {
            self.marks = Marks::restore(landing, &last.state).await?;
            self.columns = KnownColumns::landed(resumed);
            self.texts.note_landed();
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

    async fn survey(&mut self, survey: Survey) -> Result<Option<Survey>, Error> {
        let Some(found) = &self.found else {
            return Ok(None);
        };
        let config = &self.list.config;
        let sampled = sample::survey(survey, config, found).await?;
        let notices = &self.list.notices;
        check_skipped_rows(notices)?;
        self.columns
            .note_sample(&sampled.headers, &config.contract, notices);
        self.unreadable = sampled.unreadable;
        Ok(Some(sampled.survey))
    }

    fn take_unreadable(&mut self) -> Option<Error> {
        self.unreadable.take()
    }

    fn requests(&self) -> Requests {
        Requests {
            requests: self.requests.load(Ordering::Relaxed)
                + self.policy.as_ref().map_or(0, |policy| policy.requests())
                + self.list.download.as_ref().map_or(0, Download::requests),
            retries: self.policy.as_ref().map_or(0, |policy| policy.retries())
                + self.list.download.as_ref().map_or(0, Download::retries),
        }
    }

    fn secret_masks(&self) -> SecretMasks {
        let policy = self.policy.as_ref();
        policy.map_or_else(SecretMasks::default, |policy| policy.secret_masks())
    }

    fn remedies(&self) -> Vec<Remedy> {
        self.list.notices.remedies()
    }

    fn warnings(&mut self) -> Vec<Warning> {
        self.list.notices.all()
    }

    /// Files that are gone, empty, too young or cannot be read: no batch may be committed then.
    fn run_warnings(&self) -> Vec<Warning> {
        let mut warnings = self.list.notices.all();
        let of_run = [
            FILES_GONE,
            UNREAD_ENTRIES,
            FOLDERS_LEFT_OUT,
            EMPTY_FILE,
            UNSETTLED_FILE,
        ];
        warnings.retain(|warning| of_run.contains(&warning.code.as_str()));
        warnings
    }
}

/// The error of a file over http whose server wants other credentials; another error as it is.
fn refused_by_server(error: Error) -> Error {
    let Error::Storage(feedline_storage::Error::Denied { url, source }) = error else {
        return error;
    };
    let cause = innermost_cause(source.as_ref());
    Error::Http {
        url,
        cause: HttpCause::Denied,
        what: format!("access was refused: {cause}"),
        advice: "check the credentials in the source's `auth` or `headers` and their permissions"
            .to_owned(),
    }
}

type State = (Vec<FileMark>, Option<FileProgress>, u64);

fn split(at: &Position) -> Result<State, Error> {
    match at.clone() {
        Position::Start => Ok((Vec::new(), None, 0)),
        Position::File { mut done, current } => {
            forget_users(&mut done);
            let current = current.map(|file| FileProgress {
                url: without_user_info(&file.url).into_owned(),
                ..file
            });
            Ok((done, current, 0))
        }
        Position::Done {
            mut files, pages, ..
        } => {
            forget_users(&mut files);
            Ok((files, None, pages))
        }
        Position::Page { .. } => Err(Error::config(
            "type",
            "this source has been read as `rest` before; restore that type, give the source another name, or run `feedline ingest reset`",
        )),
    }
}

/// Removes user and password from URLs of files: earlier releases read files with some in `url`.
fn forget_users(marks: &mut [FileMark]) {
    for mark in marks {
        mark.url = without_user_info(&mark.url).into_owned();
    }
}

#[cfg(test)]
mod request_tests;
#[cfg(test)]
pub(crate) mod tests;
