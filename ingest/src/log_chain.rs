//! The entries of a log as they were written, up to the first damaged one.

use feedline_schemas::{
    commit::CommitEntry,
    ids::{Hash128, Name},
    log_effect,
    report::Damage,
};
use feedline_storage::{
    Listed, Store,
    log::{LogError, check_entry, entry_path},
};

use crate::error::Error;

/// The valid part of a log, and its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    /// Entries as they were written; each names the hash of the entry before.
    written: Vec<CommitEntry>,
    /// Fault of the first object that is not such an entry.
    pub(crate) damage: Option<Damage>,
}

impl Chain {
    /// Returns the count of good entries.
    pub(crate) fn len(&self) -> usize {
        self.written.len()
    }

    /// The good entries, as a run reads them.
    pub(crate) fn entries(&self) -> Vec<CommitEntry> {
        self.first(self.len())
    }

    /// Returns the first `count` entries, like a run would read a log that ends there.
    pub(crate) fn first(&self, count: usize) -> Vec<CommitEntry> {
        let mut entries = Vec::with_capacity(count);
        for entry in self.written.iter().take(count) {
            log_effect::push(&mut entries, entry.clone());
        }
        entries
    }
}

/// Reads the entries in `listed`, up to the first damaged one.
///
/// # Errors
/// [`Error::Contract`] for an entry of another version, or with parts that only a newer release
/// knows, unless the entry after it shows that its bytes have changed. [`Error::Storage`].
pub(crate) async fn read_chain(
    landing: &Store,
    source: &Name,
    listed: &[Listed],
) -> Result<Chain, Error> {
    read_entries(landing, source, listed, |_| {}).await
}

/// As [`read_chain`], with all entries but the last settled: the positions and counts of a long log would take most of the
/// memory.
///
/// # Errors
/// As [`read_chain`].
pub(crate) async fn read_settled_chain(
    landing: &Store,
    source: &Name,
    listed: &[Listed],
) -> Result<Chain, Error> {
    read_entries(landing, source, listed, log_effect::settle).await
}

/// Reads the entries in `listed`, up to the first damaged one; `reduce` is applied to each entry that has another one behind it.
async fn read_entries(
    landing: &Store,
    source: &Name,
    listed: &[Listed],
    reduce: fn(&mut CommitEntry),
) -> Result<Chain, Error> {
    let mut chain = Chain::default();
    let mut before = None;
    for (index, file) in listed.iter().enumerate() {
        let sequence = index as u64;
        let wanted = entry_path(sequence);
        let damaged = |reason: String| Damage {
            path: file.path.clone(),
            entry: sequence,
            reason,
        };
        if file.path != wanted {
            let reason = format!("`{}` was found where `{wanted}` should be", file.path);
            chain.damage = Some(damaged(reason));
            return Ok(chain);
        }
        let body = landing.get(&file.path).await?;
        let hash = Hash128::of(&body);
        let url = landing.url_of(&file.path);
        match check_entry(&url, source, sequence, before, &file.path, &body) {
            Ok(entry) => {
                if let Some(before) = chain.written.last_mut() {
                    reduce(before);
                }
                chain.written.push(entry);
            }
            Err(LogError::Damaged(reason)) => {
                chain.damage = Some(damaged(reason));
                return Ok(chain);
            }
            Err(LogError::Contract(error)) => {
                let next = listed.get(index + 1);
                if !contradicts(landing, next, hash).await? {
                    return Err(error.into());
                }
                chain.damage = Some(damaged(
                    "the entry after it was written after other bytes than it has".to_owned(),
                ));
                return Ok(chain);
            }
            Err(LogError::Storage(error)) => return Err(error.into()),
        }
        before = Some(hash);
    }
    Ok(chain)
}

/// Returns true if the object `next` names another hash for the object before it. An unreadable
/// object does not count.
async fn contradicts(landing: &Store, next: Option<&Listed>, hash: Hash128) -> Result<bool, Error> {
    #[derive(serde::Deserialize)]
    struct Link {
        prev_hash: Hash128,
    }
    let Some(next) = next else { return Ok(false) };
    let body = landing.get(&next.path).await?;
    let link: Option<Link> = serde_json::from_slice(&body).ok();
    Ok(link.is_some_and(|link| link.prev_hash != hash))
}
