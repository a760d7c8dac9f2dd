//! The `rest` source: pages of a JSON API.

mod answers;
mod ask;
mod layout;
mod place;

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use feedline_schemas::{
    commit::{CommitEntry, Ledger, PageRun, Position},
    config::{AuthConfig, FileFormat, MissingValue, SourceConfig},
    report::Warning,
};
use feedline_storage::{Store, clock::Clock};
use reqwest::{
    StatusCode,
    header::{CONTENT_RANGE, CONTENT_TYPE},
};
use url::Url;

pub use self::ask::{Suggestion, suggest};
use self::{
    answers::{Answered, Answers},
    layout::{Layout, Unusable},
    place::Place,
};
use crate::{
    blocking::computing,
    context::Context,
    demo::{self, DemoServer},
    download,
    error::Error,
    http::{Got, Http},
    json::Reader,
    ledger::Plan,
    pagination::{At, Contents, Paginator, Partial},
    raw::{Kept, Tape},
    retry::{Again, Failure, Retry},
    source::{Crawled, Page, Record, Requests, Source},
    warnings::WarningChange,
    watermark::{Incremental, highs},
};

/// Refusal that is not a failure.
enum Refusal {
    /// The page does not exist: the one before was the last.
    End(Box<Error>),
    /// The cursor has expired.
    Gone(Box<Error>),
    /// The value does not exist.
    Absent,
}

/// Opens the API that `config` describes; a `demo://` URL starts the embedded one.
///
/// # Errors
/// [`Error::Config`] when something cannot work, before any request.
pub(crate) async fn open(
    config: &SourceConfig,
    context: &Context,
) -> Result<Box<dyn Source>, Error> {
    Ok(Box::new(opened(config, context).await?))
}

async fn opened(config: &SourceConfig, context: &Context) -> Result<Rest, Error> {
    let retry = Retry::new(config.name.as_str(), &config.retry, context)?;
    let url = Url::parse(&config.url).map_err(|e| {
        Error::config(
            "url",
            format!("is not a URL ({e}); write `https://host/path`"),
        )
    })?;
    let (url, demo) = match url.scheme() {
        "http" | "https" => (url, None),
        "demo" => {
            let server = demo::serve(url.as_str()).await?;
            (server.url.clone(), Some(server))
        }
        other => {
            let reason =
                format!("`{other}` is not a scheme of a `rest` source, use https, http or demo");
            return Err(Error::config("url", reason));
        }
    };
    let plan = Plan::new(config, context).await?;
    let params = plan.iter().flat_map(Plan::params);
    let place = Place::new(config, url, params);
    let each = config.for_each.as_ref();
    let base = place.base();
    let key = match &config.auth {
        Some(AuthConfig::ApiKey(keys)) => keys.param.as_deref(),
        _ => None,
    };
    let pages = Paginator::new(&config.pagination, base, key)?;
    let incremental = config.incremental.as_ref().map(Incremental::new);
    let http = Http::new(base, &config.headers, &config.retry, context)?;
    let mut http = http.with_manners(config, 1);
    let origins = config.pagination.way.next_origins().iter();
    for origin in origins.filter_map(|origin| Url::parse(origin).ok()) {
        http.configure(&origin);
    }
    http.show_params(asked_params(config));
    Ok(Rest {
        layout: Layout::new(config, &pages),
        answers: Answers::new(config, &pages),
        place,
        plan,
        pages,
        incremental: incremental.transpose()?,
        keeps_all: config.dedup_window() == 0,
        highs: Vec::new(),
        skips_absent: each.is_some_and(|each| each.missing == MissingValue::Skip),
        is_resumed: true,
        is_our_pass: false,
        clock: Arc::clone(&context.clock),
        retry,
        http: http.with_auth(config.auth.as_ref(), context)?,
        reader: Arc::default(),
        _demo: demo,
    })
}

/// Query parameters that select the requested data and need not be secret.
fn asked_params(config: &SourceConfig) -> Vec<String> {
    let pages = &config.pagination;
    // The usual names are those of next URLs too.
    let usual = ["page", "offset", "cursor"];
    let own = pages.way.params();
    let mut all: Vec<String> = usual
        .into_iter()
        .chain(own)
        .map(ToOwned::to_owned)
        .collect();
    all.extend(pages.common.size_param.clone());
    all.extend(config.incremental.as_ref().map(|i| i.param.clone()));
    if let Some(slices) = &config.slices {
        all.push(slices.from_param.clone());
        all.extend(slices.to_param.clone());
    }
    all.extend(config.for_each.as_ref().map(|each| each.param.clone()));
    all
}

/// A JSON API that is being read.
#[derive(Debug)]
struct Rest {
    place: Place,
    plan: Option<Plan>,
    layout: Layout,
    pages: Paginator,
    incremental: Option<Incremental>,
    /// Incremental: the highest cursors in the log.
    highs: Vec<String>,
    /// Origin of responses, and their archive.
    answers: Answers,
    /// True if equal records count as different ones.
    keeps_all: bool,
    /// True if a value unknown to the server has no records.
    skips_absent: bool,
    /// True if no page has been read by this process.
    is_resumed: bool,
    /// Slices: true if this process began the pass.
    is_our_pass: bool,
    clock: Arc<dyn Clock>,
    retry: Retry,
    http: Http,
    /// Reads the bodies.
    reader: Arc<Mutex<Reader>>,
    /// The embedded API lives as long as its reader.
    _demo: Option<DemoServer>,
}

#[async_trait]
impl Source for Rest {
    async fn next_page(&mut self, position: &Position) -> Result<Page, Error> {
        let Some(mut at) = self.place(position)? else {
            return Ok(page(Vec::new(), position.clone()));
        };
        let url = self.pages.url(&self.base(&at.run)?, &at)?;
        // Only a cursor of an earlier process may have expired. A fresh one is refused for another
        // reason.
        let may_be_gone = (self.is_resumed || self.answers.are_replayed())
            && at.page > 0
            && self.pages.has_cursors()
            && !at.run.restarted;
        let may_be_absent = self.skips_absent && at.page == 0;
        let asked = at.clone();
        let (http, layout, pages) = (&self.http, &self.layout, &self.pages);
        let (answers, reader) = (&self.answers, &self.reader);
        let tried = self.retry.run(|| async {
            match fetch(http, answers, (layout, reader), pages, &url).await {
                Ok(answered) => Ok(Ok(answered)),
                Err(Failure { error, again })
                    if again == Again::End
                        || error.status().is_some_and(|s| pages.is_end(&asked, s)) =>
                {
                    Ok(Err(Refusal::End(error)))
                }
                Err(Failure {
                    error,
                    again: Again::Gone,
                }) if may_be_gone => Ok(Err(Refusal::Gone(error))),
                Err(Failure {
                    error,
                    again: Again::Absent,
                }) if may_be_absent => {
                    tracing::warn!(%error, "the value does not exist: it is skipped");
                    Ok(Err(Refusal::Absent))
                }
                Err(failure) => Err(failure),
            }
        });
        let tried = tried.await;
        let tried = tried.map_err(|error| self.pages.advise(&at, error))?;
        if let Some(next) = self.end_by_server(&mut at, position)? {
            return Ok(page(Vec::new(), next));
        }
        let answered = match tried {
            Ok(answered) => answered,
            Err(Refusal::End(error)) => {
                tracing::info!(%error, "no page exists after the last one");
                self.answers.keep_end(&self.http, &url, &error);
                self.is_resumed = false;
                let next = self.after(at, &mut Contents::nothing(url))?;
                return Ok(page(Vec::new(), next));
            }
            Err(Refusal::Gone(error)) => {
                self.answers.keep_gone(&self.http, &url, &error);
                return self.restart(at.run, &error);
            }
            Err(Refusal::Absent) => return Ok(self.absent(at.run)),
        };
        self.answers.keep(&self.http, &url, answered.as_ref());
        let Some(Answered {
            mut contents,
            headers,
            ..
        }) = answered
        else {
            self.is_resumed = false;
            return Ok(unchanged(self.pages.next_unread(at)));
        };
        let validator = self
            .answers
            .validator(&self.http, &url, &contents, &headers);
        self.is_resumed = false;
        if let Some(incremental) = &self.incremental {
            let now = self.http.server_time().trusted(self.clock.unix());
            let noted = incremental.note(&mut at.run, &contents.records, now);
            noted.map_err(|reason| Error::Body {
                url: self.http.shown(&url),
                reason,
            })?;
        }
        let next = self.after(at, &mut contents)?;
        if let Position::Page {
            cursor: Some(cursor),
            ..
        } = &next
            && self.http.is_revealed_by(cursor)
        {
            return Err(Error::Body {
                url: self.http.shown(&url),
                reason: "its next cursor or URL contains the secret of `auth`, and would be stored in the commit log; if it is a query parameter, name it in `auth.param`".into(),
            });
        }
        let validator = validator.filter(|_| self.pages.is_known_unread(&next));
        Ok(Page {
            crawled: validator.map(|validator| Crawled {
                urls: 1,
                validators: vec![validator],
                ..Crawled::default()
            }),
            ..page(contents.records, next)
        })
    }

    async fn restore(&mut self, landing: &Store, entries: &[CommitEntry]) -> Result<(), Error> {
        let ledger = entries.last().and_then(|last| last.state.position.ledger());
        if let (Some(plan), Some(ledger)) = (&mut self.plan, ledger) {
            plan.check(ledger)?;
            plan.learn(entries);
        }
        if self.incremental.is_some() {
            self.highs = highs(entries);
        }
        let held = entries.last().map(|last| &last.state.warnings[..]);
        let is_whole = self.plan.is_none() && self.incremental.is_none();
        self.pages
            .restore(held.unwrap_or_default(), is_whole || entries.is_empty());
        self.answers.restore(landing, entries).await
    }

    fn raw(&mut self) -> Option<&mut Kept> {
        self.answers.kept()
    }

    fn replay(&mut self, tape: Arc<Tape>) {
        self.answers.replay(tape);
    }

    fn take_warnings(&mut self) -> Vec<WarningChange> {
        self.pages.take_warnings()
    }

    fn run_warnings(&self) -> Vec<Warning> {
        let decides =
            self.incremental.is_some() || self.plan.as_ref().is_some_and(Plan::asks_server);
        self.http
            .server_time()
            .warning()
            .filter(|_| decides)
            .into_iter()
            .collect()
    }

    fn requests(&self) -> Requests {
        Requests {
            requests: self.http.requests(),
            retries: self.retry.retries(),
        }
    }
}

impl Rest {
    /// Returns the page to request; `None` if everything has been read.
    fn place(&mut self, at: &Position) -> Result<Option<At>, Error> {
        let incremental = self.incremental.as_ref();
        if let (Some(plan), Position::Start | Position::Done { .. }) = (&self.plan, at) {
            let number = at.run().map_or(0, |run| run.number);
            let pass = plan.begin(at.ledger());
            self.is_our_pass = true;
            return Ok(pass.map(|ledger| At {
                run: run_of(number, ledger),
                ..At::default()
            }));
        }
        Ok(match at {
            Position::Start => Some(At {
                run: incremental.map(Incremental::first_run).unwrap_or_default(),
                ..At::default()
            }),
            Position::Page { page, cursor, run } => Some(At {
                page: *page,
                cursor: cursor.clone(),
                run: run.clone(),
            }),
            Position::Done { run, .. } => match incremental {
                Some(incremental) => Some(At {
                    run: incremental.next_run(run, &self.highs, self.clock.unix())?,
                    ..At::default()
                }),
                None if self.answers.are_asked_again() => Some(At {
                    run: PageRun {
                        number: run.number + 1,
                        ..PageRun::default()
                    },
                    ..At::default()
                }),
                None => None,
            },
            Position::File { .. } => {
                let reason = "is `rest`, but the landed data comes from files; give this source another name";
                return Err(Error::config("type", reason));
            }
        })
    }

    /// The URL with the parameters that all pages of a run have.
    fn base(&self, run: &PageRun) -> Result<Url, Error> {
        match (&self.plan, &run.ledger) {
            (Some(plan), Some(ledger)) => self.place.url(plan.query(ledger)?),
            _ => {
                let since = self.incremental.as_ref().and_then(|i| i.query(run));
                self.place.url(since.into_iter().collect())
            }
        }
    }

    /// Returns the position after a page. If a page run ends or cannot return all records, that is
    /// the position of the next slice or value.
    fn after(&mut self, at: At, contents: &mut Contents) -> Result<Position, Error> {
        let (Some(plan), Some(ledger)) = (&self.plan, at.run.ledger.clone()) else {
            return self.pages.next(at, contents);
        };
        let number = at.run.number;
        if self.pages.is_beyond_cap(contents.total)
            && let Some(halves) = plan.cut(&ledger)
        {
            // They will be returned again.
            contents.records.clear();
            return Ok(self.begun_again(&ledger, halves, number));
        }
        let next = self.pages.next(at, contents);
        plan.mark(&ledger, &mut contents.records);
        match next {
            Err(Error::Incomplete { url, reason }) => match plan.cut(&ledger) {
                Some(halves) if !self.keeps_all => Ok(self.begun_again(&ledger, halves, number)),
                cut => {
                    let why = if cut.is_some() {
                        "is not halved, since with `batch.dedup_window` = 0 its landed records would land again"
                    } else {
                        "cannot be halved further"
                    };
                    let reason = format!("{} {why}, and {reason}", plan.show(&ledger));
                    Err(Error::Incomplete { url, reason })
                }
            },
            Ok(Position::Done { .. }) => Ok(ended(number, plan.advance(*ledger))),
            other => other,
        }
    }

    /// Ends a pass over slices at the current time of the server's clock, taken from its newest
    /// response. Changes `at` to the pass that ends there. Where the requested slice reaches beyond
    /// that time, its page does not count, and the result is the position to resume from. The same
    /// holds where this machine's clock proves to be behind and nothing has to be read again.
    fn end_by_server(&self, at: &mut At, position: &Position) -> Result<Option<Position>, Error> {
        let (Some(plan), Some(ledger), 0) = (&self.plan, &at.run.ledger, at.page) else {
            return Ok(None);
        };
        let (local, server_time) = (self.clock.unix(), self.http.server_time());
        let server = server_time.server().filter(|_| plan.asks_server());
        if let (Some(server), Some(before), Position::Done { .. }) =
            (server, position.ledger(), position)
            && ledger.reread.is_some()
            && plan.doubt(before, server).is_none()
        {
            return Ok(Some(position.clone()));
        }
        let now = server.map_or(local, |server| server.min(local));
        let cut = plan.end_at(ledger, now, self.is_our_pass);
        if self.keeps_all
            && (ledger.reread.is_some() || cut.as_ref().is_some_and(|cut| cut.reread.is_some()))
        {
            let reason = "is 0, which keeps equal records; by the log, future slices were read, so a clock was ahead then, and re-reading them would land records twice: set `dedup_window`";
            return Err(Error::config("batch.dedup_window", reason));
        }
        let Some(cut) = cut else { return Ok(None) };
        let is_same = cut.slice == ledger.slice;
        if is_same {
            at.run.ledger = Some(Box::new(cut));
            return Ok(None);
        }
        Ok(Some(ended(at.run.number, cut)))
    }

    /// A slice that the server knows nothing of.
    fn absent(&self, run: PageRun) -> Page {
        let ledger = self.plan.as_ref().zip(run.ledger);
        let next = ledger.map_or(Position::Start, |(plan, ledger)| {
            ended(run.number, plan.advance_absent(*ledger))
        });
        let crawled = Crawled {
            urls: 1,
            skipped: [("not_found", 1)].into(),
            ..Crawled::default()
        };
        Page {
            records: Vec::new(),
            next,
            crawled: Some(crawled),
            parts: Vec::new(),
        }
    }

    /// Position at the lower half of a slice that has more records than the API returns.
    fn begun_again(&self, cut: &Ledger, halves: Ledger, number: u64) -> Position {
        if let Some(plan) = &self.plan {
            let (slice, half) = (plan.show(cut), plan.show(&halves));
            tracing::info!(
                slice,
                half,
                "more records than the API returns: the slice is halved"
            );
        }
        begin(run_of(number, halves))
    }

    /// Restarts a page run whose cursor the server no longer knows. The caller skips its landed
    /// records when they are returned again.
    fn restart(&self, run: PageRun, error: &Error) -> Result<Page, Error> {
        if self.keeps_all {
            let reason = format!(
                "is 0, which keeps equal records; {error}: the cursor seems to have expired, and a restart would land every record twice; set `dedup_window`, or remove the source's landing folder"
            );
            return Err(Error::config("batch.dedup_window", reason));
        }
        tracing::warn!(%error, "the cursor has expired, so the page run restarts");
        let next = begin(PageRun {
            number: run.number + 1,
            restarted: true,
            records: 0,
            boundary: Vec::new(),
            ..run
        });
        Ok(page(Vec::new(), next))
    }
}

/// The first page of a run of pages.
fn begin(run: PageRun) -> Position {
    Position::Page {
        page: 0,
        cursor: None,
        run,
    }
}

/// Position after a slice: at the next one, or at the end of the pass.
fn ended(number: u64, ledger: Ledger) -> Position {
    let is_over = ledger.slice.is_none();
    let run = run_of(number, ledger);
    if !is_over {
        return begin(run);
    }
    // The batch has the number of pages.
    Position::Done {
        pages: 0,
        files: Vec::new(),
        run,
    }
}

/// A run of pages of a slice.
fn run_of(number: u64, ledger: Ledger) -> PageRun {
    PageRun {
        number,
        ledger: Some(Box::new(ledger)),
        ..PageRun::default()
    }
}

fn page(records: Vec<Record>, next: Position) -> Page {
    Page {
        records,
        next,
        crawled: None,
        parts: Vec::new(),
    }
}

/// A page that has not changed.
fn unchanged(next: Position) -> Page {
    Page {
        crawled: Some(Crawled {
            urls: 1,
            skipped: [("unchanged", 1)].into(),
            ..Crawled::default()
        }),
        ..page(Vec::new(), next)
    }
}

/// Requests a page once; `None` if it has not changed. A body that is not the expected document is
/// retried: it may be an error page sent with 200.
async fn fetch(
    http: &Http,
    answers: &Answers,
    (layout, reader): (&Layout, &Arc<Mutex<Reader>>),
    pages: &Paginator,
    url: &Url,
) -> Result<Option<Answered>, Failure> {
    let Some(Got {
        url: from,
        status,
        headers,
        body,
    }) = answers.get(http, url).await?
    else {
        return Ok(None);
    };
    let shown = || http.shown(url);
    let wrong = |reason| Failure {
        error: Box::new(Error::Body {
            url: shown(),
            reason,
        }),
        again: Again::Backoff,
    };
    let incomplete = |reason, again| Failure {
        error: Box::new(Error::Incomplete {
            url: shown(),
            reason,
        }),
        again,
    };
    let kept = answers.body(&body);
    let (layout, reader) = (layout.clone(), Arc::clone(reader));
    let read = move || {
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(layout.read(body.into(), &mut reader))
    };
    let read = computing(read).await;
    let read = read.map_err(|error| Failure {
        error: Box::new(error),
        again: Again::Never,
    })?;
    let kind = headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let found = read.map_err(|unusable| match unusable {
        // A retry would get the same table.
        Unusable::Wrong(reason) if download::format_of(kind) == Some(FileFormat::Csv) => Failure {
            again: Again::Never,
            ..wrong(format!(
                "{reason}, but a table (`Content-Type: {kind}`): set the source's `type = \"files\"` and `format = \"csv\"`, with the same `url`, `params` and `headers`"
            ))
        },
        Unusable::Wrong(reason) => wrong(reason),
        Unusable::Error(text) => {
            let text = http.excerpt(&text);
            wrong(format!(
                "it has status 200 and an error at `error_path`{text}"
            ))
        }
        Unusable::Suspect(key, text) => {
            let text = http.excerpt(&text);
            let reason = format!(
                "a page has status {}, no record and `{key}`{text}; set `error_path` to the path of the API's errors, or to \"\" if this is none",
                status.as_u16()
            );
            incomplete(reason, Again::Backoff)
        }
    })?;
    let total = pages.total_in(&headers).map_err(wrong)?;
    // A server that sends unreadable headers would send them again.
    let in_headers = pages
        .token_in(&headers)
        .map_err(|reason| incomplete(reason, Again::Never))?;
    let is_partial = status == StatusCode::PARTIAL_CONTENT;
    let range = headers.get(CONTENT_RANGE).and_then(|v| v.to_str().ok());
    Ok(Some(Answered {
        contents: Contents {
            records: found.records,
            token: found.token.or(in_headers.0),
            names_next: found.names_next || in_headers.1,
            has_more: found.has_more,
            partial: is_partial.then(|| Partial::of(range)),
            total: found.total.or(total),
            hash: found.hash,
            url: from,
        },
        headers,
        body: kept,
    }))
}

#[cfg(test)]
mod faults;
#[cfg(test)]
mod keyset;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
