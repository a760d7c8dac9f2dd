//! Re-parses archived responses with the current settings, without sending requests.
//!
//! A replay uses the code of a run; responses come from a [`Tape`] in place of servers. Each batch
//! of the archive becomes an entry of a log of its own, in the order of the archive. So a killed
//! replay resumes after its last entry, and the same settings land the same files. The requests
//! must be the same as in the archived run.

use std::sync::Arc;

use feedline_http::Secrets;
use feedline_schemas::{
    amendment::WithdrawnReason,
    commit::{CommitEntry, Position},
    config::{Bounded, PipelineConfig, SecretRef, SourceConfig},
    ids::Name,
    report::{IngestReport, SourceReport},
};
use feedline_storage::Store;
use tracing::info;

use super::{
    batch_reader::{Gathered, begins_again},
    open,
    source_run::Run,
};
use crate::{
    commit_log::{CommitLog, landed},
    context::Context,
    demo,
    error::Error,
    landing_folder::landing,
    raw::Tape,
    report::{add, source_report},
    setting_changes::{check_same, recorded},
    settings::{choose, config_hash},
    source::{Requests, Source},
    source_table::unit_of,
    source_type::ReadUnit,
    watermark::note_interruption,
};

/// Re-parses the responses that the pipeline's sources have archived below `from`, and lands their
/// records below the root of `context`; only the source called `only`, if given. Sources without an
/// archive are skipped, unless named. No request is sent and no secret is read.
///
/// # Errors
/// [`Error::Config`] if there is nothing to replay, or if the first batches are not archived;
/// [`Error::Archive`] if the settings need a response that the archive lacks; and as for
/// [`crate::ingest`]. Batches replayed before that stay, and the next call resumes after them.
pub async fn replay(
    config: &PipelineConfig,
    only: Option<&Name>,
    from: &Store,
    context: &Context,
) -> Result<IngestReport, Error> {
    let chosen = choose(config, only)?;
    if from.url() == context.root.url() {
        let reason = "is the root of the archive itself; replay into another one, such as with `--set pipeline.root=FOLDER`";
        return Err(Error::config("pipeline.root", reason));
    }
    let context = Context {
        secrets: Arc::new(Unneeded),
        ..context.clone()
    };
    let mut report = IngestReport {
        url: context.root.url_of("landing"),
        ..IngestReport::default()
    };
    for (index, source) in chosen {
        let under = |error: Error| error.under(&format!("source.{index}"));
        let entries = archived(source, from).await.map_err(under)?;
        if entries.is_empty() && only.is_none() {
            info!(source = %source.name, "has no archive and is passed over");
            continue;
        }
        let archive = landing(from, &source.name);
        // Boxed: the future of a source is large.
        let replayed = Box::pin(replay_source(source, &entries, &archive, &context)).await;
        add(&mut report, replayed.map_err(under)?);
    }
    if report.sources.is_empty() {
        let reason = format!(
            "no source of the pipeline has an archive below `{}`: set `archive_raw = true` before the first run of it",
            from.url()
        );
        return Err(Error::config("source", reason));
    }
    Ok(report)
}

/// Entries with archived responses that `config` has landed below `from`.
async fn archived(config: &SourceConfig, from: &Store) -> Result<Vec<CommitEntry>, Error> {
    if unit_of(config) == ReadUnit::File {
        return Ok(Vec::new());
    }
    let landed = landed(from, &config.name).await?;
    let mut entries = landed.map(|landed| landed.entries).unwrap_or_default();
    let withdrawn = entries.iter().flat_map(|entry| &entry.withdrawn);
    let mut deleted = withdrawn.filter(|withdrawn| withdrawn.reason != WithdrawnReason::Retried);
    if let Some(deleted) = deleted.next() {
        let reason = format!(
            "has no responses of batch {} any more, which was deleted or re-read, and later batches build on it; ingest again into another `pipeline.root`",
            deleted.sequence
        );
        return Err(Error::config("archive_raw", reason));
    }
    let bare = |entry: &CommitEntry| entry.raw.is_empty() && entry.counts.pages > 0;
    if let Some(bare) = entries.iter().find(|entry| bare(entry))
        && entries.iter().any(|entry| !entry.raw.is_empty())
    {
        let reason = format!(
            "was not set for all of what has landed: entry {} of the log at `{}` has no archived responses, and later entries build on it; ingest again with it into another `pipeline.root`",
            bare.sequence,
            landing(from, &config.name).url()
        );
        return Err(Error::config("archive_raw", reason));
    }
    entries.retain(|entry| !entry.raw.is_empty());
    Ok(entries)
}

async fn replay_source(
    config: &SourceConfig,
    entries: &[CommitEntry],
    archive: &Store,
    context: &Context,
) -> Result<SourceReport, Error> {
    if entries.is_empty() {
        let reason = format!(
            "`{}` has no archive of it: set this before the first run",
            archive.url()
        );
        return Err(Error::config("archive_raw", reason));
    }
    let (name, hash) = (&config.name, config_hash(config));
    let log = CommitLog::open(&context.root, name, &context.run_id, hash).await?;
    let mut log = log.with_delta(context);
    check_same(config, &log)?;
    log.record(recorded(config));
    let own = log.entries().iter().filter(|entry| entry.is_batch());
    let own: Vec<u64> = own.map(|entry| entry.counts.pages).collect();
    check_side_by_side(&own, entries, log.landing())?;
    let done = own.len();
    let tape = Arc::new(Tape::default());
    let mut run = Run::begin(config, context, log).await?;
    run.tape = Some(Arc::clone(&tape));
    let asked = offline(config);
    let mut opened: Option<Box<dyn Source>> = None;
    for entry in entries.iter().skip(done) {
        tape.load(archive, entry).await?;
        let mut begin = run.position();
        if is_resumed(entry) {
            note_interruption(config, &mut begin);
        }
        // A run after a complete one was another process.
        let is_anew = matches!(begin, Position::Done { .. });
        let mut source = match opened.take().filter(|_| !is_anew) {
            Some(source) => source,
            None => {
                let mut source = open(&asked, context).await?;
                source.replay(Arc::clone(&tape));
                let resumed = run.log.resumed().await?;
                source.restore(run.log.landing(), &resumed).await?;
                run.load_repeats().await?;
                source
            }
        };
        let Gathered {
            pages, next, ended, ..
        } = run
            .reading(0)
            .gather(source.as_mut(), begin.clone())
            .await?;
        if let Some(error) = ended {
            return Err(error);
        }
        tape.check_used_up()?;
        let is_again = begins_again(&begin, &next);
        run.commit(pages, next, None).await?;
        if is_again {
            run.load_repeats().await?;
        }
        opened = Some(source);
    }
    let sums = run.log.sums().await?;
    let (landing, last) = (run.log.landing(), run.log.last());
    let mut report = source_report(config, landing, last, sums, Requests::default()).await;
    report.new_rows = Some(run.log.appended_rows());
    report.new_rejected = Some(run.log.appended_rejects());
    Ok(report)
}

/// Returns true if the archived run resumed an incremental page run with the `entry`.
fn is_resumed(entry: &CommitEntry) -> bool {
    let run = entry.state.position.run();
    run.is_some_and(|run| run.interrupted.is_some())
}

/// Refuses a log that is not a complete or partial replay of these entries; `own` are the pages of
/// its batches. Amendments of it, such as compactions, land nothing.
fn check_side_by_side(own: &[u64], archived: &[CommitEntry], landing: &Store) -> Result<(), Error> {
    let mut both = own.iter().zip(archived);
    if both.all(|(own, archived)| *own == archived.counts.pages) {
        return Ok(());
    }
    let reason = format!(
        "has landed in `{}` already, but not by a replay of this archive; choose another `pipeline.root`",
        landing.url()
    );
    Err(Error::config("name", reason))
}

/// Settings of `config` that send no requests.
fn offline(config: &SourceConfig) -> SourceConfig {
    let mut config = config.clone();
    if config.url.starts_with("demo:") {
        // The embedded API is not started.
        config.url = format!("http://demo.invalid{}", demo::PATH);
    }
    // An archive returns the same each time, so a retry is useless.
    config.retry.max_tries = Bounded::literal::<1>();
    config
}

/// Rejects every lookup: a replay sends no requests and needs no secrets.
#[derive(Debug)]
struct Unneeded;

impl Secrets for Unneeded {
    fn resolve(&self, reference: &SecretRef) -> Result<String, String> {
        Ok(format!("{}not-needed-for-a-replay", reference.prefix))
    }
}
