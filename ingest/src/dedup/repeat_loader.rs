//! Loads the landed records that a source may return again into its dedup window.
//!
//! A page run may return the records from its bound on. A batch of slices may return those of its
//! slices and of the slices next to them. The result depends only on the log, the configuration
//! and, for cursors ahead of it, the time. So a resumed run skips the same records as an
//! uninterrupted one.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Duration,
};

use feedline_schemas::{
    commit::{DataFile, PageRun, Position},
    config::SourceConfig,
    ids::Sequence,
    log_effect::holder,
};

use super::{
    Window,
    known_rejects::{reject_hashes, rejects_from_bound, rejects_of_earlier_crawls},
    page_runs::{
        ahead, is_below_bound, is_bounded, is_earlier, known_from_bound, known_of_all, page_run,
    },
    read_hashes_of, read_rows,
};
use crate::{
    backfill::{neighbours, rereads_failed, span},
    commit_log::CommitLog,
    error::Error,
    watermark::Incremental,
};

/// Landed records that the dedup window has, because they may be returned again.
#[derive(Debug, Default)]
pub(crate) struct RepeatLoader {
    /// True if those of the current page run are loaded.
    is_loaded: bool,
    /// Slices: batches whose records the window contains.
    batches: BTreeSet<Sequence>,
    /// Slices: batches whose rejects the window knows.
    reject_batches: BTreeSet<Sequence>,
}

impl RepeatLoader {
    /// Returns true if the records that the page run may return again are loaded.
    pub(crate) fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    /// Loads the landed records that the page run at the end of `log` may return again.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::Log`], [`Error::Landed`], [`Error::Storage`].
    pub(crate) async fn load_for_page_run(
        &mut self,
        config: &SourceConfig,
        log: &mut CommitLog,
        window: &mut Window,
        now: Duration,
    ) -> Result<(), Error> {
        if config.slices.is_some() || is_read_once(config) {
            // Each batch loads its own.
            return Ok(());
        }
        // Each value has a bound of its own: every record may come again.
        let incremental = config.incremental.as_ref();
        let incremental = incremental.filter(|_| config.for_each.is_none());
        let incremental = incremental.map(Incremental::new).transpose()?;
        let highs = match incremental {
            Some(_) => log.highs().await?,
            None => Vec::new(),
        };
        let is_again = !config.refresh.is_never() || config.for_each.is_some();
        let mut run = page_run(log.last(), incremental.as_ref(), &highs, is_again, now)?;
        if let Some(run) = run.as_mut().filter(|_| config.for_each.is_some()) {
            (run.since, run.ahead) = (None, Vec::new());
            // A pass that requests failed values again has the number of the pass in which they failed.
            run.number += u64::from(run.ledger.as_deref().is_some_and(rereads_failed));
        }
        let key = key_columns(config);
        let (known, files) = match &run {
            Some(run) => records_of(run, log, !key.is_empty()).await?,
            None => (HashSet::new(), Vec::new()),
        };
        window.know_rejects(rejects_before(config, run.as_ref(), log).await?);
        // The keys of the window's own records are known already.
        let key = if known.is_empty() { Vec::new() } else { key };
        window.know(known);
        for file in files.iter().filter(|_| !key.is_empty()) {
            let rows = read_rows(log.landing(), file, &key).await?;
            window.note_rows(rows);
        }
        self.is_loaded = true;
        Ok(())
    }

    /// Loads the landed records that the batch from the end of `log` to `next` may return again:
    /// those of its slices and of the slices next to them. For values without slices, only a
    /// restarted value has any, and one whose requests failed before.
    ///
    /// # Errors
    /// [`Error::Log`], [`Error::Landed`], [`Error::Storage`].
    pub(crate) async fn load_for_slices(
        &mut self,
        config: &SourceConfig,
        log: &mut CommitLog,
        window: &mut Window,
        next: &Position,
    ) -> Result<(), Error> {
        let is_again = config.for_each.is_some() && !is_read_once(config);
        if next.ledger().is_none() || is_again || config.dedup_window() == 0 {
            return Ok(());
        }
        let last = log.last().map(|entry| entry.state.position.clone());
        let before = last.unwrap_or_default();
        let is_restarted = before.run().is_some_and(|run| run.restarted)
            || before.ledger().is_some_and(rereads_failed);
        if config.slices.is_none() && !is_restarted {
            self.forget(window);
            return Ok(());
        }
        if let Some(interval) = span(&before, next) {
            log.load_near(interval).await?;
        }
        let entries = log.entries();
        let at = |index: usize| entries[index].sequence;
        let ends = entries.iter().map(|entry| &entry.state.position);
        let mut indices = neighbours(ends, next);
        if entries
            .first()
            .is_some_and(|first| first.sequence.get() > 0)
        {
            // What it has read is not known without the entry before, and is not near.
            indices.remove(&0);
        }
        let near: BTreeSet<Sequence> = indices.iter().map(|index| at(*index)).collect();
        if self.batches.is_empty() || !self.batches.is_subset(&near) {
            self.forget(window);
        }
        self.load_rejects(log, window, &indices, &near).await?;
        let mut hashes = Vec::new();
        // Rows of several batches may be in the files of one.
        let mut batches: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
        for index in indices {
            if !self.batches.contains(&at(index)) {
                let own = batches.entry(holder(entries, index)).or_default();
                own.insert(at(index).get());
            }
        }
        for (index, own) in batches {
            for file in &entries[index].files {
                let landing = log.landing();
                hashes.extend(read_hashes_of(landing, file, |batch| own.contains(&batch)).await?);
            }
        }
        window.know_more(hashes);
        self.batches = near;
        // The window will also contain the records of this batch.
        self.batches.insert(log.next_sequence());
        Ok(())
    }

    /// Loads the rejects of the batches `near`, which are at `indices` of the log, into the window.
    async fn load_rejects(
        &mut self,
        log: &CommitLog,
        window: &mut Window,
        indices: &BTreeSet<usize>,
        near: &BTreeSet<Sequence>,
    ) -> Result<(), Error> {
        if !self.reject_batches.is_subset(near) {
            window.know_rejects(HashSet::new());
            self.reject_batches.clear();
        }
        let batches = indices.iter().filter_map(|index| log.entries().get(*index));
        let unread = batches.filter(|entry| !self.reject_batches.contains(&entry.sequence));
        let files: Vec<DataFile> = unread
            .flat_map(|entry| entry.rejects.iter().cloned())
            .collect();
        window.know_more_rejects(reject_hashes(log.landing(), files).await?);
        self.reject_batches.clone_from(near);
        Ok(())
    }

    /// Removes the records and rejects of earlier slices from the window.
    fn forget(&mut self, window: &mut Window) {
        window.know(HashSet::new());
        window.know_rejects(HashSet::new());
        self.batches.clear();
        self.reject_batches.clear();
    }
}

/// Loads the hashes of open rejects that a source may return again in its page run `run`, or in a
/// repeated crawl.
async fn rejects_before(
    config: &SourceConfig,
    run: Option<&PageRun>,
    log: &mut CommitLog,
) -> Result<HashSet<u128>, Error> {
    let has_rejects = log
        .last()
        .is_some_and(|last| last.state.totals.rejected > 0);
    if !has_rejects {
        return Ok(HashSet::new());
    }
    if !config.crawl.refresh.is_never() {
        log.load_until(|_| false).await?;
        return rejects_of_earlier_crawls(log.landing(), log.entries()).await;
    }
    let Some(run) = run.filter(|run| run.number > 0) else {
        return Ok(HashSet::new());
    };
    if !is_bounded(run) {
        // Every page may be read again.
        log.load_until(|_| false).await?;
    }
    rejects_from_bound(log.landing(), log.entries(), run, &config.key).await
}

/// Loads the hashes of landed records that the page run `run` may return again. Also returns the
/// data files whose keys decide about them. Of older entries, those are read that may have such
/// records.
async fn records_of(
    run: &PageRun,
    log: &mut CommitLog,
    has_key: bool,
) -> Result<(HashSet<u128>, Vec<DataFile>), Error> {
    let mut known = ahead(run);
    if run.number == 0 && (known.is_empty() || !has_key) {
        return Ok((known, Vec::new()));
    }
    if run.number > 0 && is_bounded(run) {
        log.load_until(|entry| is_below_bound(entry, run)).await?;
        let (found, files) = known_from_bound(log.landing(), log.entries(), run).await?;
        known.extend(found);
        return Ok((known, files));
    }
    let files = log.files_before(|entry| is_earlier(entry, run)).await?;
    known.extend(known_of_all(log.landing(), &files).await?);
    let all = files.all.into_iter().map(|(_, file)| file);
    Ok((known, all.collect()))
}

/// Returns true if each value of a list is read once.
fn is_read_once(config: &SourceConfig) -> bool {
    config.for_each.is_some() && config.refresh.is_never() && config.incremental.is_none()
}

/// Columns that distinguish rows of one key and version from others. Slices return the state of a
/// key at another time, and values are read once: there only the content distinguishes rows.
pub(crate) fn key_columns(config: &SourceConfig) -> Vec<String> {
    if config.key.is_empty() || config.slices.is_some() || is_read_once(config) {
        return Vec::new();
    }
    config.key.iter().chain(&config.version).cloned().collect()
}
