//! Visits ahead: to URLs behind those that are processed next.

use std::{collections::BTreeMap, sync::Arc};

use futures::FutureExt;
use tokio::task::JoinSet;

use super::visit::{Visit, Visitor};
use crate::{error::Error, frontier::Frontier, raw::Exchange};

/// URLs that are visited, or were and wait to be processed.
const WINDOW: u64 = 128;
/// Visits at a time, including those that wait for their host.
const STARTED: u64 = 64;
/// Bytes of pages that wait to be processed above which no further URL is visited.
const UNREAD_BYTES: u64 = 64 << 20;

/// Result of a visit, with the archived exchange.
type Visited = Result<(Visit, Option<Exchange>), Error>;

/// Visits to URLs of the frontier, which may be over.
#[derive(Default)]
pub(super) struct VisitsAhead {
    tasks: JoinSet<(u64, Visited)>,
    /// Visits that are over, by the index of their URL.
    done: BTreeMap<u64, Visited>,
    /// Index of the first URL without a visit.
    next: u64,
    /// True if the URLs failed in an earlier run.
    is_retry: bool,
}

impl VisitsAhead {
    /// Visits to URLs that failed in an earlier run.
    pub(super) fn of_failed() -> Self {
        Self {
            is_retry: true,
            ..Self::default()
        }
    }

    /// Waits for the visits to the first `count` URLs of the frontier, and returns their results in
    /// its order, up to the first error. Meanwhile, URLs behind them are visited if `is_ahead`.
    pub(super) async fn take(
        &mut self,
        visitor: &Arc<Visitor>,
        frontier: &mut Frontier,
        count: u64,
        is_ahead: bool,
    ) -> (Vec<(Visit, Option<Exchange>)>, Option<Error>) {
        let first = frontier.next();
        let window = if is_ahead { WINDOW.max(count) } else { count };
        let mut error = None;
        for number in first..first + count {
            loop {
                self.start(visitor, frontier, number, first + window);
                if self.done.contains_key(&number) {
                    break;
                }
                self.arrival().await;
            }
            if let Some(Err(_)) = self.done.get(&number) {
                error = self.done.remove(&number).and_then(Result::err);
                break;
            }
        }
        let mut taken = Vec::new();
        while let Some(Ok(visited)) = self.done.remove(&(first + taken.len() as u64)) {
            taken.push(visited);
            if taken.len() as u64 == count {
                break;
            }
        }
        if error.is_some() {
            // The URL is visited again if the crawl continues.
            *self = Self {
                is_retry: self.is_retry,
                ..Self::default()
            };
        }
        (taken, error)
    }

    /// Starts visits in the order of the frontier up to the index `end`, as far as the limits allow;
    /// always the one with the index `number`.
    fn start(&mut self, visitor: &Arc<Visitor>, frontier: &mut Frontier, number: u64, end: u64) {
        let first = frontier.next();
        self.next = self.next.max(first);
        let unread = self.done.values().flatten();
        let unread: u64 = unread.map(|(visit, _)| visit.size()).sum();
        let free = STARTED.saturating_sub(self.tasks.len() as u64);
        let free = if unread < UNREAD_BYTES { free } else { 0 };
        let end = end.min(self.next + free).max(number + 1);
        let end = end.min(frontier.len());
        if end <= self.next {
            return;
        }
        let peeked = usize::try_from(end - first).unwrap_or(usize::MAX);
        let behind = usize::try_from(self.next - first).unwrap_or(usize::MAX);
        for found in frontier.peek(peeked).into_iter().skip(behind) {
            let (visitor, number, is_retry) = (Arc::clone(visitor), self.next, self.is_retry);
            let visit = async move { (number, visitor.visit(number, found, is_retry).await) };
            let mut visit = visit.boxed();
            // Its first step is made here, so that visits wait for their host in this order.
            match (&mut visit).now_or_never() {
                Some((number, visited)) => drop(self.done.insert(number, visited)),
                None => drop(self.tasks.spawn(visit)),
            }
            self.next += 1;
        }
    }

    /// Waits until a visit is over, if there is one.
    async fn arrival(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok((number, visited))) => drop(self.done.insert(number, visited)),
            Some(Err(e)) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
            Some(Err(_)) | None => {}
        }
    }
}
