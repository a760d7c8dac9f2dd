//! The rows of a table, each with the file at a URL that it names.
//!
//! Rows are read one at a time, and several of their files are requested at a time, in row order. A
//! page takes the finished ones from the front. Positions are those of the table, so a resumed run
//! continues after the last landed row and requests no file of a landed row again. A row whose file
//! cannot be fetched is a bad record. If a server asks for a long wait, the run is deferred at that
//! row.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use feedline_http::{Http, Retry, SecretMasks};
use feedline_readers::{record::Record, remedy::Remedy, value::Value};
use feedline_schemas::{
    commit::{FileMark, Position},
    config::{Bounded, FetchConfig, FileFormat, SourceConfig},
    report::Warning,
};
use feedline_storage::Store;
use tokio::task::JoinSet;
use url::Url;

use crate::{
    context::Context,
    error::Error,
    files,
    infer::Survey,
    log_entries::Resumed,
    source::{Page, PagePart, Requests, Source},
};

/// Most rows of a page.
const PAGE: usize = 64;
/// A page ends with the row that brings it to this many bytes.
const PAGE_BYTES: u64 = 32 << 20;

/// Opens the tables that `config` names.
///
/// # Errors
/// [`Error::Config`] for a setting that cannot work.
pub(crate) fn open(
    config: &SourceConfig,
    fetch: &FetchConfig,
    context: &Context,
) -> Result<Box<dyn Source>, Error> {
    if matches!(
        config.format,
        FileFormat::Idx | FileFormat::Text | FileFormat::Image
    ) {
        let reason = "URLs are cells of a table: set `format` to `csv`, `json`, `ndjson` or `parquet`, or remove this table";
        return Err(Error::config("fetch", reason));
    }
    if fetch.column == fetch.into {
        let reason = "it is the column of URLs; choose a name of its own";
        return Err(Error::config("fetch.into", reason));
    }
    let mut one = config.clone();
    one.batch.rows = Bounded::literal::<1>();
    one.limits.concurrency.get_or_insert(fetch.concurrency);
    let requests = context.requests_of(config.name.as_str());
    let http = Http::for_images(fetch.private, &config.retry, &requests);
    let http = http.with_tls(config, &requests)?;
    let http = http.with_limits(&one, fetch.concurrency.get() as usize);
    Ok(Box::new(Fetching {
        table: files::open(&one, context)?,
        fetch: fetch.clone(),
        http: Arc::new(http),
        retry: Retry::new(config.name.as_str(), &config.retry, &requests),
        ahead: Ahead::default(),
        retries: 0,
    }))
}

struct Fetching {
    /// Pages of one row.
    table: Box<dyn Source>,
    fetch: FetchConfig,
    http: Arc<Http>,
    retry: Retry,
    ahead: Ahead,
    /// Retries of finished files.
    retries: u64,
}

/// Rows that are read and not handed out yet.
#[derive(Default)]
struct Ahead {
    /// Position where the next page begins; none before the first.
    at: Option<Position>,
    /// Position where the next row begins; none after the last.
    read_to: Option<Position>,
    rows: VecDeque<Row>,
    /// Files being fetched, by the number of the row.
    asked: JoinSet<(u64, Got)>,
    /// Finished files.
    got: BTreeMap<u64, Got>,
    /// Rows so far.
    count: u64,
}

struct Row {
    what: What,
    /// The table that it is of.
    parts: Vec<PagePart>,
    /// Position where the row after it begins.
    next: Position,
}

enum What {
    /// The table has no row here, only a position.
    Nothing,
    /// A row without a file.
    Ready(Record),
    /// A row whose file is being fetched under this number.
    Asked(u64, Value),
    /// The table cannot be read on.
    Failed(Error),
}

/// A file, and the retries that it took.
struct Got {
    file: Result<Bytes, Error>,
    retries: u64,
}

#[async_trait]
impl Source for Fetching {
    async fn next_page(&mut self, at: &Position) -> Result<Page, Error> {
        let page = self.page(at).await;
        if page.is_err() {
            // If it is called again, it starts there again.
            self.ahead = Ahead::default();
        }
        page
    }

    async fn restore(&mut self, landing: &Store, resumed: &Resumed) -> Result<(), Error> {
        self.table.restore(landing, resumed).await
    }

    async fn save(&mut self, landing: &Store) -> Result<(), Error> {
        self.table.save(landing).await
    }

    fn fold(&mut self, marks: &[FileMark]) {
        self.table.fold(marks);
    }

    fn remedies(&self) -> Vec<Remedy> {
        self.table.remedies()
    }

    fn warnings(&mut self) -> Vec<Warning> {
        self.table.warnings()
    }

    fn run_warnings(&self) -> Vec<Warning> {
        self.table.run_warnings()
    }

    fn secret_masks(&self) -> SecretMasks {
        self.table.secret_masks()
    }

    async fn survey(&mut self, survey: Survey) -> Result<Option<Survey>, Error> {
        self.table.survey(survey).await
    }

    fn take_unreadable(&mut self) -> Option<Error> {
        self.table.take_unreadable()
    }

    fn requests(&self) -> Requests {
        Requests {
            requests: self.http.requests() + self.table.requests().requests,
            retries: self.retries,
        }
    }
}

impl Fetching {
    async fn page(&mut self, at: &Position) -> Result<Page, Error> {
        if self.ahead.at.as_ref() != Some(at) {
            self.ahead = Ahead {
                at: Some(at.clone()),
                read_to: Some(at.clone()),
                ..Ahead::default()
            };
        }
        let (mut records, mut bytes, mut next) = (Vec::new(), 0, at.clone());
        let mut parts: Vec<PagePart> = Vec::new();
        while records.len() < PAGE && bytes < PAGE_BYTES {
            self.read_ahead().await;
            let Some(row) = self.ahead.rows.pop_front() else {
                break;
            };
            let record = match row.what {
                What::Nothing => None,
                What::Ready(record) => Some(record),
                What::Asked(number, value) => match self.got(number).await {
                    Ok(file) => Some(self.with(value, file)?),
                    // The rows before it land first.
                    Err(error) if !records.is_empty() => {
                        let what = What::Failed(error);
                        self.ahead.rows.push_front(Row { what, ..row });
                        break;
                    }
                    Err(error) => return Err(error),
                },
                What::Failed(error) if !records.is_empty() => {
                    let what = What::Failed(error);
                    self.ahead.rows.push_front(Row { what, ..row });
                    break;
                }
                What::Failed(error) => return Err(error),
            };
            bytes += record.as_ref().map_or(0, Record::size);
            records.extend(record);
            parts.extend(row.parts);
            next = row.next;
        }
        self.ahead.at = Some(next.clone());
        Ok(Page {
            records,
            next,
            crawled: None,
            parts,
        })
    }

    /// Reads rows and starts to fetch their files, up to the concurrency limit.
    async fn read_ahead(&mut self) {
        while self.ahead.rows.len() < self.fetch.concurrency.get() as usize
            && let Some(at) = self.ahead.read_to.take()
        {
            let row = match self.table.next_page(&at).await {
                Ok(Page {
                    mut records,
                    next,
                    parts,
                    ..
                }) => {
                    let is_last = matches!(next, Position::Done { .. });
                    self.ahead.read_to = (!is_last).then(|| next.clone());
                    let what = records
                        .pop()
                        .map_or(What::Nothing, |record| self.ask(record));
                    Row { what, parts, next }
                }
                Err(error) => Row {
                    what: What::Failed(error),
                    parts: Vec::new(),
                    next: at,
                },
            };
            self.ahead.rows.push_back(row);
        }
    }

    /// Starts to fetch the file of a row.
    fn ask(&mut self, record: Record) -> What {
        if matches!(record, Record::Bad { .. }) {
            return What::Ready(record);
        }
        let Some(value) = record.into_value() else {
            return What::Nothing;
        };
        let url = match self.url(&value) {
            Ok(url) => url,
            Err((reason, detail)) => {
                return What::Ready(Record::Bad {
                    raw: value.written(),
                    reason,
                    detail,
                });
            }
        };
        self.ahead.count += 1;
        let number = self.ahead.count;
        let http = Arc::clone(&self.http);
        let mut retry = self.retry.beside(number);
        self.ahead.asked.spawn(async move {
            let file = retry.run(|| http.get(&url)).await.map_err(Error::from);
            let retries = retry.retries();
            (number, Got { file, retries })
        });
        What::Asked(number, value)
    }

    /// The URL of a row, or the reason and detail of why it has none.
    fn url(&self, row: &Value) -> Result<Url, (&'static str, String)> {
        let column = &self.fetch.column;
        let Value::Object(entries) = row else {
            return Err(("not_an_object", "it is no row of a table".into()));
        };
        let cell = entries.iter().find(|(name, _)| name == column);
        let text = match cell.map(|(_, cell)| cell) {
            Some(Value::Text(text) | Value::Cell(text)) => text.trim(),
            Some(Value::Null) => "",
            Some(other) => {
                let told = format!(
                    "column `{column}` has {} where a URL should be",
                    other.kind()
                );
                return Err(("no_url", told));
            }
            None => {
                let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
                let told = format!(
                    "column `{column}` does not exist, only `{}`",
                    names.join("`, `")
                );
                return Err(("no_url", told));
            }
        };
        if text.is_empty() {
            return Err(("no_url", format!("column `{column}` is empty")));
        }
        match Url::parse(text) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(url),
            Ok(url) => Err(("bad_url", format!("`{}` is not fetched", url.scheme()))),
            Err(e) => Err(("bad_url", format!("column `{column}` is no URL: {e}"))),
        }
    }

    /// Waits for the file of this number. `Ok(Err)` is the reason for a missing file; an error ends
    /// the run.
    async fn got(&mut self, number: u64) -> Result<Result<Bytes, String>, Error> {
        let got = loop {
            if let Some(got) = self.ahead.got.remove(&number) {
                break got;
            }
            match self.ahead.asked.join_next().await {
                Some(Ok((number, got))) => {
                    self.ahead.got.insert(number, got);
                }
                Some(Err(e)) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
                Some(Err(_)) | None => return Err(Error::Cancelled),
            }
        };
        self.retries += got.retries;
        match got.file {
            Ok(file) => Ok(Ok(file)),
            Err(Error::Http { url, what, .. }) => Ok(Err(format!("`{url}`: {what}"))),
            Err(Error::Body { url, reason }) => Ok(Err(format!("`{url}`: {reason}"))),
            Err(error) => Err(error),
        }
    }

    /// A row with its file.
    fn with(&self, row: Value, file: Result<Bytes, String>) -> Result<Record, Error> {
        let file = match file {
            Ok(file) => file,
            Err(detail) => {
                return Ok(Record::Bad {
                    raw: row.written(),
                    reason: "not_fetched",
                    detail,
                });
            }
        };
        let Value::Object(mut entries) = row else {
            return Ok(Record::Value(row));
        };
        let into = &self.fetch.into;
        if entries.iter().any(|(name, _)| name == into) {
            let reason = format!("the table has a column `{into}` already; choose another name");
            return Err(Error::config("fetch.into", reason));
        }
        entries.push((into.clone(), Value::Bytes(file.into())));
        Ok(Record::Value(Value::Object(entries)))
    }
}

#[cfg(test)]
mod tests;
