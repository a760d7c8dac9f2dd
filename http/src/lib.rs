//! Requests over HTTP: the client of sources, and the connections of stores of http files.
//!
//! [`Http`] sends one request at a time for a source: it waits for its turn at the host, attaches
//! credentials, follows redirects, and decompresses the body within limits. [`Retry`] repeats what
//! fails for a while. [`StoreConnector`] is for the stores of files: they send by their own client,
//! and [`FileRequests`] gives their requests the rates, waits and retries of the source.
//!
//! Both have in common, so that no request has two policies: the [`Guard`] that keeps data from
//! leading into the network of this machine, certificates ([`Tls`]), redirects and the user agent.
//!
//! Components come from the caller: the [`clock`], secrets and the state of hosts
//! ([`RequestContext`]). An [`Error`] has a cause, [`HttpCause`]; no decision follows from the text of
//! a message.

#[cfg(feature = "client")]
mod auth;
pub mod backoff;
#[cfg(feature = "client")]
mod classification;
#[cfg(feature = "client")]
mod client;
pub mod clock;
#[cfg(feature = "client")]
mod configured_secrets;
#[cfg(feature = "client")]
mod context;
#[cfg(feature = "client")]
mod encoding;
#[cfg(feature = "client")]
mod error;
mod failed_response;
#[cfg(all(feature = "client", any(test, fuzzing)))]
pub mod fuzzing;
mod guard;
#[cfg(feature = "client")]
mod headers;
#[cfg(feature = "client")]
mod hosts;
#[cfg(feature = "client")]
mod http_cause;
mod location;
#[cfg(feature = "client")]
pub mod meter;
#[cfg(feature = "client")]
mod pace;
#[cfg(feature = "client")]
mod proxy;
#[cfg(feature = "client")]
mod redact;
#[cfg(feature = "client")]
mod redirect;
#[cfg(feature = "client")]
mod request;
mod request_policy;
#[cfg(feature = "client")]
pub mod retry;
mod retry_after;
#[cfg(feature = "client")]
mod rotated_tokens;
mod secret_masks;
mod secret_names;
mod secret_notations;
#[cfg(feature = "client")]
pub mod server_time;
mod store_connector;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tls;
#[cfg(feature = "client")]
mod transport;

#[cfg(feature = "client")]
pub use self::{
    auth::proof::without_param,
    client::{
        Got, Http,
        certificates::certificates,
        file_requests::FileRequests,
        page::{Answer, Wanted, unzipped},
    },
    context::{RequestContext, Secrets},
    error::Error,
    hosts::{Hosts, Speculation},
    http_cause::HttpCause,
    redact::redacted,
    request::{Request, RequestBody},
    retry::{
        Retry,
        failed_try::{Again, Failure, TriedError},
    },
};
pub use self::{
    failed_response::{BodyStart, mask_failed},
    guard::{FoundAddresses, Guard, Lookup, REFUSED, Resolver, Verdict, system},
    location::{has_user_info, redacted_location, without_user_info, without_users_of_urls},
    request_policy::{RequestPolicy, SendOnce, Sent, TryCredentials},
    retry_after::retry_after,
    secret_masks::SecretMasks,
    secret_names::is_secret,
    store_connector::{
        EncodedPath, StoreConnector, USER_AGENT, UncertainEnds, WebFolders, WebOptions, refusal,
    },
    tls::Tls,
};
