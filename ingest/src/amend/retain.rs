//! Deleting superseded files.

use std::time::Duration;

use feedline_schemas::{amendment::CompactionReport, config::PipelineConfig};
use feedline_storage::{Listed, Store, log::entry_path};

use crate::{
    commit_log::{Commit, CommitLog},
    error::Error,
    superseded_files::ASIDE,
};

/// Most files that one entry names.
const MOST_FILES: usize = 10_000;

/// Deletes superseded files that `ingest.retention` does not keep. An entry of the log names them first:
/// a rewind behind it then fails with a reason, and a killed command is completed by the next one.
///
/// The age of a file counts from when it was superseded to when the newest entry was written, both by
/// the clock of the store. An entry that is newer than `now`, by the clock of this machine, was written
/// by a clock that was ahead: then the age counts to `now`. So a file is not deleted too early unless
/// both clocks are ahead.
///
/// # Errors
/// [`Error::Fenced`], [`Error::Storage`].
pub(super) async fn expire(
    config: &PipelineConfig,
    log: &mut CommitLog,
    counts: &mut CompactionReport,
    now: Duration,
    dry_run: bool,
) -> Result<(), Error> {
    let mut listed = log.landing().list(ASIDE).await?;
    let expired = match log.last() {
        Some(last) => {
            let path = entry_path(last.sequence.get());
            let newest = log.landing().modified(&path).await?;
            choose(config, &mut listed, newest.min(now))
        }
        None => Vec::new(),
    };
    let bytes = |files: &[Listed]| files.iter().map(|file| file.bytes).sum::<u64>();
    (counts.superseded_files, counts.superseded_bytes) = (listed.len() as u64, bytes(&listed));
    (counts.expired_files, counts.expired_bytes) = (expired.len() as u64, bytes(&expired));
    if dry_run {
        return Ok(());
    }
    for files in expired.chunks(MOST_FILES) {
        let Some(last) = log.last() else {
            return Ok(());
        };
        let mut commit = Commit::amending(last);
        commit.expired = files.iter().map(|file| own_path(file).to_owned()).collect();
        let sequence = log.next_sequence().get();
        log.append(commit).await?;
        counts.entries.push(sequence);
        delete(log.landing(), files).await?;
    }
    Ok(())
}

/// Takes the files that are not kept out of `listed`, oldest first. `newest` is when the newest entry was
/// written.
fn choose(config: &PipelineConfig, listed: &mut Vec<Listed>, newest: Duration) -> Vec<Listed> {
    let retention = config.ingest.as_ref().map(|ingest| &ingest.retention);
    let Some(retention) = retention else {
        return Vec::new();
    };
    listed.sort_by_key(|file| file.modified);
    let age = |file: &Listed| newest.saturating_sub(file.modified.unwrap_or(newest));
    let is_old = |file: &Listed| {
        retention
            .age_s
            .is_some_and(|most| age(file) >= most.duration())
    };
    let is_past_grace = |file: &Listed| age(file) >= retention.grace_s.duration();
    let old = listed.iter().take_while(|file| is_old(file)).count();
    let most = retention.files.map_or(usize::MAX, |files| {
        usize::try_from(files.get()).unwrap_or(usize::MAX)
    });
    let count = old.max(listed.len().saturating_sub(most));
    let graced = listed.iter().take_while(|file| is_past_grace(file)).count();
    listed.drain(..count.min(graced)).collect()
}

fn own_path(file: &Listed) -> &str {
    let path = file.path.strip_prefix(ASIDE).unwrap_or(&file.path);
    path.trim_start_matches('/')
}

async fn delete(landing: &Store, files: &[Listed]) -> Result<(), Error> {
    for file in files {
        landing.delete(&file.path).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    fn check(retention: &str, expected: &[&str]) {
        let text = format!("[pipeline]\nname = \"p\"\n[ingest]\nretention = {{ {retention} }}\n");
        let config = load("p.toml", &text, &[]).unwrap().config;
        let file = |path: &str, at: u64| Listed {
            path: format!("superseded/data/{path}"),
            bytes: 1,
            modified: Some(Duration::from_secs(at)),
            etag: None,
        };
        let mut listed = vec![file("c", 7_000), file("a", 1_000), file("b", 4_000)];
        let expired = choose(&config, &mut listed, Duration::from_secs(10_000));
        let expired: Vec<&str> = expired.iter().map(own_path).collect();
        assert_eq!(expired, expected, "{retention}");
        assert_eq!(listed.len() + expired.len(), 3);
    }

    #[test]
    fn the_oldest_files_go_first_and_none_within_its_grace_period() {
        check("", &[]);
        check("age_s = 8000", &["data/a"]);
        check("age_s = 5000", &["data/a", "data/b"]);
        check("files = 0, grace_s = 5000", &["data/a", "data/b"]);
        check("files = 2", &["data/a"]);
        check(
            "files = 0, age_s = 8000, grace_s = 0",
            &["data/a", "data/b", "data/c"],
        );
    }
}
