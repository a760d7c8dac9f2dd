//! Shared parts of the tests of sources.

use std::sync::Arc;

pub(crate) use feedline_http::testing::{
    Scripted, Served, Step, answer, config, gzip, ok, pages, raw, set_key, traced, way,
};
use feedline_readers::record::Record;
use feedline_schemas::{commit::Position, config::SourceConfig, progress::Silent};
use feedline_storage::{Store, StoreOptions};
use tokio::sync::watch;

use crate::{context::Context, error::Error, rest, source::Requests};

pub(crate) fn context() -> Context {
    context_after(0)
}

/// Context of a process that begins so many seconds after that of [`context`].
pub(crate) fn context_after(seconds: u64) -> Context {
    Context {
        root: Store::memory(),
        store_options: StoreOptions::default(),
        progress: Arc::new(Silent),
        clock: feedline_http::testing::clock_after(seconds),
        secrets: feedline_http::testing::secrets(),
        hosts: Arc::default(),
        metrics: Arc::default(),
        formatted_dates: Arc::default(),
        is_trial: false,
        run_id: "run".into(),
        delta: false,
        cancel: watch::channel(false).1,
    }
}

/// Reads a source to its end, or to the first error. Reopens it after every `reopen_every` pages.
pub(crate) async fn read_all(
    config: &SourceConfig,
    reopen_every: usize,
) -> Result<(Vec<String>, Requests), Error> {
    let mut source = rest::open(config, &context()).await?;
    let (mut at, mut records) = (Position::Start, Vec::new());
    for page in 1.. {
        let read = source.next_page(&at).await?;
        records.extend(read.records.iter().map(|record| match record {
            Record::Bad { reason, raw, .. } => format!("{reason} {raw}"),
            record => record.canonical(),
        }));
        at = read.next;
        if matches!(at, Position::Done { .. }) {
            break;
        }
        if page % reopen_every == 0 {
            source = rest::open(config, &context()).await?;
        }
    }
    Ok((records, source.requests()))
}
