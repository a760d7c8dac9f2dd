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

use crate::{
    entry_counts::{EntryTotals, find_wrong_count},
    error::Error,
};

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

    /// Finds the damaged one of two entries: the last one of the chain, and the one after it, whose `damage` is that it
    /// names another hash for the last one. The hash of its own bytes is `hash`, and `next` is the one that the entry
    /// after it names. A damaged last entry is removed from the chain.
    fn blame(&mut self, mut damage: Damage, hash: Hash128, next: Option<Hash128>) -> Damage {
        let before = damage.entry.saturating_sub(1);
        match next {
            Some(next) if next == hash => {
                self.written.pop();
                let path = entry_path(before);
                let reason = format!(
                    "`{path}` is damaged: the entry after it was written after other bytes than it has"
                );
                Damage {
                    path,
                    entry: before,
                    reason,
                }
            }
            Some(_) => damage,
            None => {
                damage.reason += &format!(
                    ", so entry {before} or {} is damaged, and no later entry shows which",
                    damage.entry
                );
                damage
            }
        }
    }

    /// Applies `reduce` to the entry before the last one.
    fn reduce_second_last(&mut self, reduce: fn(&mut CommitEntry)) {
        let index = self.written.len().checked_sub(2);
        if let Some(entry) = index.and_then(|index| self.written.get_mut(index)) {
            reduce(entry);
        }
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

/// Reads the entries in `listed`, up to the first damaged one; `reduce` is applied to each entry that has another one
/// behind it. An entry whose counts contradict its files or the totals before it is damaged too.
async fn read_entries(
    landing: &Store,
    source: &Name,
    listed: &[Listed],
    reduce: fn(&mut CommitEntry),
) -> Result<Chain, Error> {
    let mut chain = Chain::default();
    let (mut before, mut totals) = (None, EntryTotals::default());
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
                if let Some(reason) = find_wrong_count(totals, &entry) {
                    chain.damage = Some(damaged(format!("`{wanted}` is damaged: {reason}")));
                    return Ok(chain);
                }
                totals = EntryTotals::of(&entry);
                // The entry after the last one may show that the last one is damaged.
                chain.reduce_second_last(reduce);
                chain.written.push(entry);
            }
            Err(LogError::Damaged(reason)) => {
                let damage = damaged(reason);
                let names_other = link_of(&body).is_some_and(|link| {
                    let is_other = before.is_some_and(|before| before != link.prev_hash);
                    link.sequence == sequence && is_other
                });
                chain.damage = Some(match names_other {
                    true => {
                        let next = next_link(landing, listed.get(index + 1)).await?;
                        chain.blame(damage, hash, next)
                    }
                    false => damage,
                });
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
    chain.reduce_second_last(reduce);
    Ok(chain)
}

/// Returns true if the object `next` names another hash for the object before it. An unreadable
/// object does not count.
async fn contradicts(landing: &Store, next: Option<&Listed>, hash: Hash128) -> Result<bool, Error> {
    let link = next_link(landing, next).await?;
    Ok(link.is_some_and(|link| link != hash))
}

/// Hash that the object `next` names for the object before it; `None` if it is absent or unreadable.
async fn next_link(landing: &Store, next: Option<&Listed>) -> Result<Option<Hash128>, Error> {
    let Some(next) = next else { return Ok(None) };
    let link = link_of(&landing.get(&next.path).await?);
    Ok(link.map(|link| link.prev_hash))
}

/// The parts of an entry, of whatever version, that chain it to the one before it.
#[derive(Debug, serde::Deserialize)]
struct EntryLink {
    sequence: u64,
    prev_hash: Hash128,
}

/// The link of an entry; `None` if it is the first one or unreadable.
fn link_of(body: &[u8]) -> Option<EntryLink> {
    serde_json::from_slice(body).ok()
}
