//! One request for an extent, or for what is still missing of it.

use std::{io, time::Duration};

use feedline_storage::{Answer, Error, FailureClass, Lane, ReadFailure, ReadOnce};
use futures::StreamExt as _;
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    Extent, FetchError,
    joined::{Joined, JoinedPieces},
    meters::Cause,
    remote::RemoteExtents,
};

/// Part of an extent that has arrived so far.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) pieces: JoinedPieces,
    /// Version they belong to; without one they cannot be continued.
    etag: Option<String>,
}

/// Reason of a failed request.
#[derive(Debug)]
pub(super) enum RequestFailure {
    /// It may succeed when made again.
    Retry {
        cause: Cause,
        retry_after: Option<Duration>,
        error: Error,
    },
    /// It will not.
    Final(FetchError),
}

/// A request that failed, and what came before it did.
#[derive(Debug)]
pub(super) struct FailedRequest {
    pub(super) failure: RequestFailure,
    pub(super) partial: Option<Partial>,
}

impl Partial {
    /// Returns true if the rest can be requested by itself.
    fn can_go_on(&self) -> bool {
        self.pieces.filled > 0 && !self.pieces.is_whole() && self.etag.is_some()
    }
}

impl FailedRequest {
    pub(super) const fn is_final(&self) -> bool {
        matches!(self.failure, RequestFailure::Final(_))
    }

    fn new(cause: Cause, error: Error, partial: Partial) -> Self {
        Self {
            failure: RequestFailure::Retry {
                cause,
                retry_after: None,
                error,
            },
            partial: Some(partial).filter(Partial::can_go_on),
        }
    }

    /// This failure, with the longer of the two partial results.
    pub(super) fn with_longer(mut self, other: Self) -> Self {
        let filled = |failed: &Self| failed.partial.as_ref().map_or(0, |p| p.pieces.filled);
        if filled(&other) > filled(&self) {
            self.partial = other.partial;
        }
        self
    }
}

/// Bytes that arrived in the current window.
struct ArrivalWindow {
    end: Instant,
    bytes: u64,
}

impl RemoteExtents {
    /// Asks once; gives up at `deadline`, or when too little comes.
    pub(super) async fn attempt(
        &self,
        joined: &Joined,
        lane: Lane,
        partial: Option<Partial>,
        deadline: Instant,
        on_answer: impl FnOnce(),
    ) -> Result<Partial, FailedRequest> {
        let extent = &joined.whole;
        let mut partial = partial.unwrap_or_else(|| self.nothing_yet(joined));
        let read = self.request(extent, lane, &partial);
        let wanted = read.range.end - read.range.start;
        let asked = timeout_at(deadline, self.store.read_once(&extent.path, &read)).await;
        let answer = match asked {
            Ok(Ok(answer)) => answer,
            Ok(Err(failure)) => return Err(self.failed(extent, failure, partial).await),
            Err(_) => return Err(self.gave_up(extent, Cause::TimedOut, partial)),
        };
        on_answer();
        if let Err(error) = self.accept(extent, &answer, wanted) {
            return Err(FailedRequest {
                failure: RequestFailure::Final(error),
                partial: None,
            });
        }
        partial.etag.clone_from(&answer.etag);
        self.receive(extent, answer, partial, deadline).await
    }

    fn nothing_yet(&self, joined: &Joined) -> Partial {
        Partial {
            pieces: joined.pieces(&self.pool),
            etag: None,
        }
    }

    fn request(&self, extent: &Extent, lane: Lane, partial: &Partial) -> ReadOnce {
        self.meters.fetches.requests.add(1);
        if partial.pieces.filled > 0 {
            self.meters.fetches.resumed_bodies.add(1);
        }
        ReadOnce {
            range: extent.range.start + partial.pieces.filled as u64..extent.range.end,
            if_match: self.pins.if_match(&extent.path),
            lane,
        }
    }

    /// Checks that the response is about the right object and all of the range.
    fn accept(&self, extent: &Extent, answer: &Answer, wanted: u64) -> Result<(), FetchError> {
        let url = || self.store.url_of(&extent.path);
        let etag = answer.etag.as_deref();
        let same = self.pins.check(&extent.path, etag, answer.object_bytes);
        same.map_err(|reason| FetchError::Changed { url: url(), reason })?;
        if answer.body_bytes < wanted {
            return Err(FetchError::Truncated {
                url: url(),
                range: extent.range.clone(),
                size: answer.object_bytes,
            });
        }
        Ok(())
    }

    /// Takes the body, as long as enough of it comes.
    async fn receive(
        &self,
        extent: &Extent,
        mut answer: Answer,
        mut partial: Partial,
        deadline: Instant,
    ) -> Result<Partial, FailedRequest> {
        let mut window = self.window();
        loop {
            let due = deadline.min(window.end);
            match timeout_at(due, answer.body.next()).await {
                Ok(Some(Ok(bytes))) => {
                    let (meters, append) = (&self.meters, crc32c::crc32c_append);
                    let sum = |crc, part: &_| meters.time(&meters.check, || append(crc, part));
                    if !partial.pieces.append(&bytes, sum) {
                        return Err(self.cut_off(extent, partial));
                    }
                    window.bytes += bytes.len() as u64;
                }
                Ok(None) if partial.pieces.is_whole() => return Ok(partial),
                Ok(None) => return Err(self.cut_off(extent, partial)),
                Ok(Some(Err(failure))) => return Err(self.failed(extent, failure, partial).await),
                Err(_) => {}
            }
            let now = Instant::now();
            if now >= deadline && !partial.pieces.is_whole() {
                return Err(self.gave_up(extent, Cause::TimedOut, partial));
            }
            if now >= window.end {
                if window.bytes < self.least_window_bytes() {
                    return Err(self.gave_up(extent, Cause::Stalled, partial));
                }
                window = self.window();
            }
        }
    }

    fn window(&self) -> ArrivalWindow {
        ArrivalWindow {
            end: Instant::now() + self.config.progress_window,
            bytes: 0,
        }
    }

    fn least_window_bytes(&self) -> u64 {
        let millis = u64::try_from(self.config.progress_window.as_millis()).unwrap_or(u64::MAX);
        self.config.least_bytes_per_second.saturating_mul(millis) / 1000
    }

    fn cut_off(&self, extent: &Extent, partial: Partial) -> FailedRequest {
        let error = Error::Short {
            url: self.store.url_of(&extent.path),
            wanted: extent.bytes() as u64,
            got: partial.pieces.filled as u64,
        };
        FailedRequest::new(Cause::Broken, error, partial)
    }

    fn gave_up(&self, extent: &Extent, cause: Cause, partial: Partial) -> FailedRequest {
        let text = match cause {
            Cause::Stalled => "bytes came too slowly",
            _ => "it took too long",
        };
        let error = Error::Io {
            operation: "read",
            url: self.store.url_of(&extent.path),
            source: io::Error::new(io::ErrorKind::TimedOut, text),
        };
        FailedRequest::new(cause, error, partial)
    }

    /// Decides whether a failure is worth another try.
    async fn failed(
        &self,
        extent: &Extent,
        failure: ReadFailure,
        partial: Partial,
    ) -> FailedRequest {
        let cause = match failure.class {
            FailureClass::Throttled => Cause::Throttled,
            FailureClass::Server => Cause::Server,
            FailureClass::Dns => Cause::Dns,
            FailureClass::Connect => Cause::Connect,
            FailureClass::Tls => Cause::Tls,
            FailureClass::Broken => Cause::Broken,
            FailureClass::TimedOut => Cause::TimedOut,
            FailureClass::Denied => Cause::Denied,
            FailureClass::Missing
            | FailureClass::Changed
            | FailureClass::PastEnd
            | FailureClass::Fatal => {
                return FailedRequest {
                    failure: RequestFailure::Final(self.explain(extent, failure).await),
                    partial: None,
                };
            }
            _ => Cause::Other,
        };
        let mut failed = FailedRequest::new(cause, failure.error, partial);
        if let RequestFailure::Retry { retry_after, .. } = &mut failed.failure {
            *retry_after = failure.retry_after;
        }
        failed
    }

    async fn explain(&self, extent: &Extent, failure: ReadFailure) -> FetchError {
        let url = self.store.url_of(&extent.path);
        match failure.class {
            FailureClass::Missing => FetchError::Missing { url },
            FailureClass::Changed => FetchError::Changed {
                url,
                reason: "the store says that it has another ETag".into(),
            },
            FailureClass::PastEnd => FetchError::Truncated {
                url,
                range: extent.range.clone(),
                size: self.size(extent).await,
            },
            _ => FetchError::Read {
                url,
                source: failure.error.into(),
            },
        }
    }

    /// Size of the object, or 0 when it is not known in time: it only serves the message.
    async fn size(&self, extent: &Extent) -> u64 {
        let size = self.store.size(&extent.path);
        match timeout(self.config.attempt_least, size).await {
            Ok(Ok(size)) => size,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{super::Identity, *};

    #[test]
    fn only_a_part_of_a_known_version_is_continued() {
        let extent = Extent {
            path: "x".into(),
            range: 5..15,
            crc32c: None,
            identity: Identity::Checksum,
            first: 0,
        };
        let check = |filled: usize, etag: Option<&str>, expected: bool| {
            let mut pieces = Joined::from(&extent).pieces(&Arc::default());
            assert!(pieces.append(&vec![1; filled], crc32c::crc32c_append));
            let etag = etag.map(str::to_owned);
            assert_eq!(Partial { pieces, etag }.can_go_on(), expected, "{filled}");
        };
        check(0, Some("1"), false);
        check(4, Some("1"), true);
        check(4, None, false);
        // The rest of a body that was too long would be a range of nothing.
        check(10, Some("1"), false);
    }
}
