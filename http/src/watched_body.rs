//! Bodies of responses that report to the policy of their requests when they break.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http_body::{Body, Frame, SizeHint};
use object_store::client::{HttpError, HttpResponse, HttpResponseBody};
use url::Url;

use crate::request_policy::RequestPolicy;

/// Body of a response to a request for `url`.
struct WatchedBody {
    body: HttpResponseBody,
    url: Url,
    policy: Arc<dyn RequestPolicy>,
}

impl fmt::Debug for WatchedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedBody").finish_non_exhaustive()
    }
}

impl Body for WatchedBody {
    type Data = <HttpResponseBody as Body>::Data;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, HttpError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Err(_))) = &polled {
            self.policy.note_broken_body(&self.url);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns `response` with a body that reports to `policy` if it breaks.
pub(crate) fn watch_body(
    response: HttpResponse,
    url: &Url,
    policy: &Arc<dyn RequestPolicy>,
) -> HttpResponse {
    response.map(|body| {
        HttpResponseBody::new(WatchedBody {
            body,
            url: url.clone(),
            policy: Arc::clone(policy),
        })
    })
}
