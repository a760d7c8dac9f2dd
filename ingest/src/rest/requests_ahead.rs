//! Requests on their way: that of the page to be read, and those of pages behind it whose address
//! is known.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use tokio::task::{AbortHandle, JoinSet};

use super::{
    fetcher::{FetchOutcome, Fetched, Fetcher},
    response_origin::{Answered, Origin},
};
use feedline_http::{Http, Request, Retry, Speculation};

use crate::error::Error;

/// Pages on their way or unread, for each request at a time. More than one, so that a page that
/// takes longer does not stop the requests behind it.
const PER_REQUEST: usize = 4;
/// Bytes of unread pages above which no further one is requested.
const UNREAD_BYTES: u64 = 64 << 20;

/// Requests on their way, and pages that came and are unread.
#[derive(Debug)]
pub(super) struct RequestsAhead {
    fetcher: Arc<Fetcher>,
    retry: Retry,
    /// Most requests at a time.
    concurrency: usize,
    asked: HashMap<Request, Asked>,
    tasks: JoinSet<(Request, u64, Fetched)>,
    /// Number of the newest request.
    number: u64,
    /// Retries of the pages that came.
    retries: u64,
}

/// A page that was requested.
#[derive(Debug)]
enum Asked {
    /// On its way.
    Sent {
        number: u64,
        task: AbortHandle,
        speculation: Speculation,
    },
    Came(Box<Fetched>),
}

/// A page to request.
pub(super) struct Wanted {
    pub(super) request: Request,
    /// True for the first page of a page run.
    pub(super) is_first: bool,
    /// Statuses that are not retried.
    pub(super) end_status: Vec<u16>,
    /// True if the page may not exist.
    pub(super) is_speculative: bool,
}

impl RequestsAhead {
    pub(super) fn new(fetcher: Fetcher, retry: Retry, concurrency: usize) -> Self {
        Self {
            fetcher: Arc::new(fetcher),
            retry,
            concurrency,
            asked: HashMap::new(),
            tasks: JoinSet::new(),
            number: 0,
            retries: 0,
        }
    }

    pub(super) fn http(&self) -> &Http {
        &self.fetcher.http
    }

    /// Executor of the retries of one more request.
    pub(super) fn retry(&self) -> Retry {
        self.retry.beside(self.number + 1)
    }

    /// Retries so far.
    pub(super) fn retries(&self) -> u64 {
        self.retries
    }

    /// Adds retries of a page that came before.
    pub(super) fn add_retries(&mut self, retries: u64) {
        self.retries += retries;
    }

    /// Fetches the page of `request` beside all others; `is_first` is true for the first one of a page run.
    pub(super) async fn fetch_now(
        &self,
        origin: &Origin,
        (request, is_first): (&Request, bool),
        end_status: &[u16],
    ) -> Fetched {
        let is_final = |status| end_status.contains(&status);
        let page = (request, is_first);
        let fetched = self.fetcher.fetch(origin, page, self.retry(), is_final);
        fetched.await
    }

    /// Most pages that are on their way or unread.
    pub(super) fn window(&self) -> usize {
        match self.concurrency {
            1 => 1,
            more => more * PER_REQUEST,
        }
    }

    /// The page of `request`, if it came and is unread.
    pub(super) fn peek(&self, request: &Request) -> Option<&Answered> {
        match self.asked.get(request)? {
            Asked::Came(fetched) => match &fetched.outcome {
                Ok(FetchOutcome::Answered(answered)) => answered.as_deref(),
                _ => None,
            },
            Asked::Sent { .. } => None,
        }
    }

    /// Requests the pages that are `wanted`, in this order, as far as the limits allow; always the
    /// first one. Gives up those that are wanted no longer.
    pub(super) fn ask(&mut self, origin: &Arc<Origin>, wanted: Vec<Wanted>) {
        let requests: HashSet<&Request> = wanted.iter().map(|wanted| &wanted.request).collect();
        self.asked.retain(|request, asked| {
            let is_wanted = requests.contains(request);
            if let (false, Asked::Sent { task, .. }) = (is_wanted, &*asked) {
                task.abort();
            }
            is_wanted
        });
        let is_sent = |asked: &&Asked| matches!(asked, Asked::Sent { .. });
        let mut sent = self.asked.values().filter(is_sent).count();
        let unread = self.asked.values().map(Asked::size).sum::<u64>();
        for (place, wanted) in wanted.into_iter().enumerate() {
            if let Some(asked) = self.asked.get(&wanted.request) {
                if let Asked::Sent { speculation, .. } = asked {
                    speculation.set(wanted.is_speculative);
                }
                continue;
            }
            if place > 0 && (sent >= self.concurrency || unread >= UNREAD_BYTES) {
                break;
            }
            self.send(origin, wanted);
            sent += 1;
        }
    }

    fn send(&mut self, origin: &Arc<Origin>, wanted: Wanted) {
        let Wanted {
            request,
            is_first,
            end_status,
            is_speculative,
        } = wanted;
        self.number += 1;
        let (number, retry) = (self.number, self.retry.beside(self.number));
        let (fetcher, origin) = (Arc::clone(&self.fetcher), Arc::clone(origin));
        let speculation = Speculation::new(is_speculative);
        let sent = Request {
            speculation: speculation.clone(),
            ..request.clone()
        };
        let task = self.tasks.spawn(async move {
            let is_final = |status| end_status.contains(&status);
            let page = (&sent, is_first);
            let fetched = fetcher.fetch(&origin, page, retry, is_final).await;
            (sent, number, fetched)
        });
        let asked = Asked::Sent {
            number,
            task,
            speculation,
        };
        self.asked.insert(request, asked);
    }

    /// Takes the page of `request`, if it came.
    pub(super) fn take(&mut self, request: &Request) -> Option<Fetched> {
        match self.asked.remove(request)? {
            Asked::Came(fetched) => Some(*fetched),
            sent @ Asked::Sent { .. } => {
                self.asked.insert(request.clone(), sent);
                None
            }
        }
    }

    /// Waits until a page comes.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if none is on its way.
    pub(super) async fn arrival(&mut self) -> Result<(), Error> {
        loop {
            let (request, number, fetched) = match self.tasks.join_next().await {
                Some(Ok(came)) => came,
                Some(Err(e)) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
                // Given up.
                Some(Err(_)) => continue,
                None => return Err(Error::Cancelled),
            };
            self.retries += fetched.retries;
            if let Some(asked) = self.asked.get_mut(&request)
                && matches!(asked, Asked::Sent { number: sent, .. } if *sent == number)
            {
                *asked = Asked::Came(Box::new(fetched));
                return Ok(());
            }
        }
    }
}

impl Asked {
    fn size(&self) -> u64 {
        match self {
            Self::Sent { .. } => 0,
            Self::Came(fetched) => fetched.size(),
        }
    }
}
