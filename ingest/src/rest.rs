//! The `rest` source: pages of an API.

mod beside_records;
mod body;
mod empty_pages;
mod failed_values;
mod fetcher;
mod further_pages;
pub(crate) mod graphql;
mod json_charset;
mod layout;
mod markup;
mod only_page;
mod page_fields;
mod page_positions;
mod refusals;
mod reported_errors;
mod request_builder;
mod requests_ahead;
mod response;
mod response_origin;
mod resumed_run;
pub(crate) mod source_type;
mod suggest;
mod template;
mod upcoming_positions;
mod xml_paths;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use feedline_http::{Http, Request, Retry, SecretMasks, server_time::Clocks};
use feedline_readers::{notices::Notices, record::Record};
use feedline_schemas::{
    commit::{PageRun, Position},
    config::{AuthConfig, Bounded, MissingValue, ResponseFormat, SourceConfig},
    report::Warning,
};
use feedline_storage::{Store, clock::Clock};
use url::Url;

pub use self::suggest::{Suggestion, suggest};
use self::{
    failed_values::FailedValues,
    fetcher::{FetchOutcome, Fetched, Fetcher},
    layout::Layout,
    refusals::Refusal,
    request_builder::RequestBuilder,
    requests_ahead::RequestsAhead,
    response::{Form, Forms, NotedPage, Response},
    response_origin::{Answered, Answers},
};
pub(crate) use self::{response::has_cells, template::reference};
use crate::{
    backfill::{CursorLines, Plan, ValueCursors},
    context::Context,
    demo::{self, DemoServer},
    error::Error,
    log_entries::Resumed,
    pagination::{At, Contents, Paginator, Target},
    param::Param,
    raw::{Kept, Tape},
    source::{Crawled, Page, Requests, Source},
    warnings::{WarningChange, WarningChanges},
    watermark::Incremental,
};

/// Requests of a source at a time, by default.
const CONCURRENCY: u32 = 4;

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
    let requests = context.requests_of(config.name.as_str());
    let retry = Retry::new(config.name.as_str(), &config.retry, &requests);
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
    let config = &*graphql::effective(config);
    let plan = Plan::new(config, context).await?;
    let incremental = config.incremental.as_ref().map(Incremental::new);
    let mut incremental = incremental.transpose()?;
    if let Some(incremental) = incremental.as_mut().filter(|_| config.for_each.is_some()) {
        incremental.allow_pages_without();
    }
    let in_url: Vec<&str> = plan.iter().flat_map(Plan::params).collect();
    let mut params = in_url.clone();
    params.extend(incremental.as_ref().map(Incremental::param));
    params.extend(config.pagination.way.params());
    params.extend(config.pagination.common.size_param.as_deref());
    let (place, secrets) = RequestBuilder::new(config, &url, (&params, &in_url), context)?;
    let http = client(config, &place, &secrets, context)?;
    let each = config.for_each.as_ref();
    let base = place.base();
    let key = match &config.auth {
        Some(AuthConfig::ApiKey(keys)) => keys.param.as_deref(),
        _ => None,
    };
    let keeps_all = config.dedup_window() == 0;
    let mut pages = Paginator::new(&config.pagination, base, key)?;
    pages.recognize_records(&config.key, !keeps_all);
    let clock = Arc::clone(&context.clock);
    let notices = Notices::default();
    let layout = Layout::new(config, &pages, &notices)?;
    let known_xml = layout.known_xml();
    let missing = each.map(|each| each.missing);
    let fetcher = Fetcher::new(http, layout, pages.fields(), missing, Arc::clone(&clock));
    Ok(Rest {
        answers: Answers::new(config, &pages),
        ahead: RequestsAhead::new(fetcher, retry, concurrency(config)),
        guesses_pages: guesses_pages(config),
        depth: 1,
        place,
        plan,
        pages,
        incremental,
        warnings: WarningChanges::default(),
        is_query: config.graphql.is_some(),
        notices,
        forms: Forms::default(),
        is_auto: config.response.format.is_auto(),
        known_xml,
        records: config.records.clone(),
        keeps_all,
        highs: Vec::new(),
        cursors: ValueCursors::default(),
        has_lost_cursors: false,
        skips_absent: each.is_some_and(|each| each.missing == MissingValue::Skip),
        failed: FailedValues::new(config.name.as_str()),
        is_resumed: true,
        moved_up: Vec::new(),
        is_our_pass: false,
        is_pass_resumed: false,
        clock,
        _demo: demo,
    })
}

/// The client of the source, which sends its headers and credentials.
fn client(
    config: &SourceConfig,
    place: &RequestBuilder,
    secrets: &[String],
    context: &Context,
) -> Result<Http, Error> {
    let mut headers = config.headers.clone();
    headers.retain(|name, _| {
        place
            .own_headers()
            .all(|own| !name.eq_ignore_ascii_case(own.as_str()))
    });
    let requests = context.requests_of(config.name.as_str());
    let http = Http::new(place.base(), &headers, &config.retry, &requests)?;
    let http = http.with_tls(config, &requests)?;
    let http = http.accepting(Response::accept(config));
    let mut http = http.with_limits(config, concurrency(config));
    let origins = config.pagination.way.next_origins().iter();
    for origin in origins.filter_map(|origin| Url::parse(origin).ok()) {
        http.configure(&origin);
    }
    http.show_params(asked_params(config));
    secrets.iter().for_each(|secret| http.hide(secret));
    Ok(http.with_auth(config.auth.as_ref(), &requests)?)
}

/// Most requests of the source at a time.
fn concurrency(config: &SourceConfig) -> usize {
    config.limits.concurrency.map_or(CONCURRENCY, Bounded::get) as usize
}

/// Returns true if pages of a list are requested before the page in front of them has come. A record
/// that is added at the top of the list meanwhile moves the others, and one can pass from a page that
/// has not been answered to one that has. So this is done at the user's wish, and where an overlap of
/// the pages shows it.
const fn guesses_pages(config: &SourceConfig) -> bool {
    config.limits.concurrency.is_some() || config.pagination.way.overlap() > 0
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

/// An API that is being read.
#[derive(Debug)]
struct Rest {
    place: RequestBuilder,
    plan: Option<Plan>,
    pages: Paginator,
    incremental: Option<Incremental>,
    /// Warnings about what came, besides those about pages.
    warnings: WarningChanges,
    /// True for a query of GraphQL.
    is_query: bool,
    /// Decisions about the texts of responses.
    notices: Notices,
    /// Forms of the pages so far.
    forms: Forms,
    /// True if `Content-Type` decides the format of a page.
    is_auto: bool,
    /// True once a page of XML had records, now or in an earlier run.
    known_xml: Arc<AtomicBool>,
    /// Path of the records.
    records: String,
    /// Incremental: the highest cursors in the log.
    highs: Vec<String>,
    /// Incremental with a list of values: the newest cursor of each.
    cursors: ValueCursors,
    /// True if the file of the newest cursors is missing or damaged.
    has_lost_cursors: bool,
    /// Origin of responses, and their archive.
    answers: Answers,
    /// True if equal records count as different ones.
    keeps_all: bool,
    /// True if a value unknown to the server has no records.
    skips_absent: bool,
    /// Values whose requests failed.
    failed: FailedValues,
    /// True if no page has been read by this process.
    is_resumed: bool,
    /// Records of the page before the next one that moved there while the page run was interrupted.
    moved_up: Vec<Record>,
    /// Slices and values: true if this process began the pass.
    is_our_pass: bool,
    /// Slices and values: true if this process continues the pass of another one.
    is_pass_resumed: bool,
    clock: Arc<dyn Clock>,
    /// Requests on their way, and unread pages.
    ahead: RequestsAhead,
    /// True if pages are requested before the page in front of them has come.
    guesses_pages: bool,
    /// Pages of the current run that may be on their way without knowing that they exist.
    depth: u64,
    /// The embedded API lives as long as its reader.
    _demo: Option<DemoServer>,
}

#[async_trait]
impl Source for Rest {
    async fn next_page(&mut self, position: &Position) -> Result<Page, Error> {
        let changed = self.with_list(position);
        let (before, position) = (position, changed.as_ref().unwrap_or(position));
        let Some(mut at) = self.place_after(before, position)? else {
            return Ok(page(Vec::new(), position.clone()));
        };
        let (request, fetched) = self.fetched_whole(&at).await?;
        let Fetched {
            outcome, clocks, ..
        } = fetched;
        let tried = outcome.and_then(|outcome| match outcome {
            FetchOutcome::Answered(answered) => Ok(Ok(answered.map(|answered| *answered))),
            FetchOutcome::Refused(refused) => self.refusal(&at, refused).map(Err),
        });
        let tried = tried.map_err(|error| self.pages.advise(&at, error))?;
        if let Some(next) = self.end_by_server(&mut at, position, clocks)? {
            return Ok(page(Vec::new(), next));
        }
        if let Err(Refusal::Gone(error)) = &tried
            && self.pages.hashes_pages()
        {
            // In the archive, the response to the same request follows.
            let replayed = Box::pin(self.replay_page_before(&at, &request, error)).await?;
            return match replayed {
                Some(restart) => Ok(restart),
                None => self.next_page(position).await,
            };
        }
        if self.may_have_moved(&at, &tried)
            && let Some(restart) = Box::pin(self.check_page_before(&at, &request)).await?
        {
            return Ok(restart);
        }
        let mut records = self.take_moved_up(&mut at.run, &request, clocks)?;
        let mut page = match tried {
            Ok(answered) => {
                self.answers
                    .keep(self.ahead.http(), &request, answered.as_ref());
                match answered {
                    Some(answered) => self.page_of(at, &request, answered, clocks)?,
                    None => self.unchanged_page(at),
                }
            }
            Err(refusal) => self.page_after_refusal(at, request, refusal)?,
        };
        records.append(&mut page.records);
        page.records = records;
        Ok(page)
    }

    async fn restore(&mut self, landing: &Store, resumed: &Resumed) -> Result<(), Error> {
        let last = resumed.last.as_ref();
        let ledger = last.and_then(|last| last.state.position.ledger());
        if let (Some(plan), Some(ledger)) = (&mut self.plan, ledger) {
            plan.continue_list(landing, ledger).await?;
            plan.learn(&resumed.ends);
            plan.note_landed(last.map_or(0, |last| last.state.totals.rows));
        }
        if self.incremental.is_some() {
            self.highs.clone_from(&resumed.highs);
        }
        if let Some(hash) = ledger.and_then(|ledger| ledger.cursors) {
            let read = ValueCursors::read(landing, hash).await?;
            self.has_lost_cursors = read.is_none() && self.incremental.is_some();
            self.cursors = read.unwrap_or_default();
        }
        let held = last.map(|last| &last.state.warnings[..]);
        let is_whole = self.plan.is_none() && self.incremental.is_none();
        self.warnings.restore(held.unwrap_or_default());
        if self.warnings.has("response_is_xml") {
            self.known_xml.store(true, Ordering::Relaxed);
        }
        if last.is_some_and(|last| last.state.totals.rows > 0) {
            self.forms.note_landed();
        }
        self.pages
            .restore(held.unwrap_or_default(), is_whole || last.is_none());
        self.answers.restore(landing, &resumed.validators).await
    }

    async fn save(&mut self, landing: &Store) -> Result<(), Error> {
        match &self.plan {
            Some(plan) => plan.save_list(landing).await,
            None => Ok(()),
        }
    }

    fn pass_over_value(&mut self, at: &Position, error: Error) -> Result<Page, Error> {
        self.pass_over(at, error)
    }

    fn failed_values(&self) -> Option<Error> {
        self.failed.error()
    }

    fn raw(&mut self) -> Option<&mut Kept> {
        self.answers.kept()
    }

    fn replay(&mut self, tape: Arc<Tape>) {
        self.answers.replay(tape);
    }

    fn take_warnings(&mut self) -> Vec<WarningChange> {
        let mut all = self.pages.take_warnings();
        all.extend(self.warnings.take());
        all
    }

    fn run_warnings(&self) -> Vec<Warning> {
        let decides =
            self.incremental.is_some() || self.plan.as_ref().is_some_and(Plan::asks_server);
        self.ahead
            .http()
            .server_time()
            .warning()
            .filter(|_| decides)
            .into_iter()
            .chain(self.ahead.http().notices())
            .chain(self.notices.all())
            .chain(self.plan.iter().flat_map(Plan::list_warnings))
            .chain(self.cursors.warn_of_ahead())
            .chain(self.warn_of_lost_cursors())
            .collect()
    }

    fn value_cursors(&self) -> Option<CursorLines> {
        let is_wanted = self.plan.is_some() && self.incremental.is_some();
        Some(CursorLines {
            text: self.cursors.lines().filter(|_| is_wanted)?,
            is_lost: self.has_lost_cursors,
        })
    }

    fn requests(&self) -> Requests {
        Requests {
            requests: self.ahead.http().requests(),
            retries: self.ahead.retries(),
        }
    }

    fn secret_masks(&self) -> SecretMasks {
        self.ahead.http().secret_masks()
    }
}

impl Rest {
    /// The request of the page at `at`.
    fn request(&self, at: &At) -> Result<Request, Error> {
        let target = self.pages.target(at)?;
        let mut params = self.run_params(&at.run)?;
        match target {
            Target::Url(url) => self.place.request_at(url, &params),
            Target::Params(of_page) => {
                params.retain(|param| of_page.iter().all(|other| other.name != param.name));
                params.extend(of_page);
                self.place.request(&params)
            }
        }
    }

    /// The parameters that all pages of a run have.
    fn run_params(&self, run: &PageRun) -> Result<Vec<Param<'_>>, Error> {
        let since = self.incremental.as_ref().and_then(|i| i.query(run));
        let mut params = match (&self.plan, &run.ledger) {
            (Some(plan), Some(ledger)) => plan.query(ledger)?,
            _ => Vec::new(),
        };
        params.extend(since);
        Ok(params)
    }

    /// Returns the page of a response, and notes what it shows about the source.
    fn page_of(
        &mut self,
        mut at: At,
        request: &Request,
        answered: Answered,
        clocks: Clocks,
    ) -> Result<Page, Error> {
        let Answered {
            mut contents,
            headers,
            form,
            is_null,
            further,
            errors,
            ..
        } = answered;
        let validator = self
            .answers
            .validator(self.ahead.http(), request, &contents, &headers);
        self.note_form(form, &contents, &request.url)?;
        if let Some(errors) = errors {
            self.warn_of_errors(&errors);
        }
        if is_null {
            self.warn_of_null();
        }
        if let Some(further) = further {
            self.warn_of_further_pages(&further, contents.records.len());
        }
        self.is_resumed = false;
        if let Some(incremental) = &self.incremental {
            let noted = incremental.note(&mut at.run, &contents.records, clocks.earlier());
            noted.map_err(|reason| Error::Body {
                url: self.ahead.http().shown(&request.url),
                reason,
            })?;
        }
        let (next, is_known) = self.after(at, &mut contents)?;
        self.deepen(&next);
        self.check_cursor(&next, &request.url)?;
        let validator = validator.filter(|_| is_known);
        Ok(Page {
            crawled: validator.map(|validator| Crawled {
                urls: 1,
                validators: vec![validator],
                ..Crawled::default()
            }),
            ..page(contents.records, next)
        })
    }

    /// Refuses a next cursor that has the secret of `auth`: it would be stored.
    fn check_cursor(&self, next: &Position, url: &Url) -> Result<(), Error> {
        if let Position::Page {
            cursor: Some(cursor),
            ..
        } = next
            && self.ahead.http().is_revealed_by(cursor)
        {
            return Err(Error::Body {
                url: self.ahead.http().shown(url),
                reason: "its next cursor or URL contains the secret of `auth`, and would be stored in the commit log; if it is a query parameter, name it in `auth.param`".into(),
            });
        }
        Ok(())
    }

    /// A page that has not changed since it landed.
    fn unchanged_page(&mut self, at: At) -> Page {
        self.is_resumed = false;
        let (number, ledger) = (at.run.number, at.run.ledger.clone());
        let next = self.pages.next_unread(at);
        let next = self.behind_slice(next, number, ledger);
        self.deepen(&next);
        Page {
            crawled: Some(Crawled {
                urls: 1,
                skipped: [("unchanged", 1)].into(),
                ..Crawled::default()
            }),
            ..page(Vec::new(), next)
        }
    }

    /// Notes the form of the next page.
    ///
    /// # Errors
    /// [`Error::Body`] for a page unlike those before.
    fn note_form(&mut self, mut form: Form, contents: &Contents, url: &Url) -> Result<(), Error> {
        if form.format.is_auto() {
            // It has no body.
            return Ok(());
        }
        if form.format == ResponseFormat::Xml {
            form.mix(self.forms.newly_single(&contents.records));
            if !contents.records.is_empty() {
                self.known_xml.store(true, Ordering::Relaxed);
            }
        }
        let page = NotedPage {
            records: contents.records.len(),
            is_auto: self.is_auto,
        };
        let noted = self
            .forms
            .note(form, page, &self.records, &mut self.warnings);
        noted.map_err(|reason| {
            let http = self.ahead.http();
            let (shown, _) = http.masked(&reason.into());
            Error::Body {
                url: http.shown(url),
                reason: String::from_utf8_lossy(&shown).into_owned(),
            }
        })
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

#[cfg(test)]
mod ahead_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod formats_tests;
#[cfg(test)]
mod keyset;
#[cfg(test)]
mod queries;
#[cfg(test)]
mod recorded_exchange_tests;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod tests;
