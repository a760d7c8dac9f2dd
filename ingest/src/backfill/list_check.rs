//! Saved lists of values that a log needs, and those that are missing or damaged.

use feedline_schemas::{
    commit::{CommitEntry, Ledger, Position},
    count::counted,
    ids::Hash128,
    report::Damage,
};
use feedline_storage::Store;

use super::saved_list::{path, read, saved_lists};
use crate::error::Error;

/// Checks the list that the newest entry has counted, and the other saved lists.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn wrong_lists(
    landing: &Store,
    entries: &[CommitEntry],
) -> Result<Vec<Damage>, Error> {
    let mut found = Vec::new();
    let saved = saved_lists(landing).await?;
    let newest = entries.last().and_then(list_of);
    if let (Some((hash, ledger)), Some(entry)) = (newest, entries.last())
        && !saved.contains(&hash)
        // A rewind past the kept lists notes it.
        && entry.rewound_to.is_none()
    {
        found.push(Damage {
            path: path(hash),
            entry: entry.sequence.get(),
            reason: format!("it is missing; {}", consequence(ledger)),
        });
    }
    for hash in saved {
        let is_named = |entry: &&CommitEntry| list_of(entry).is_some_and(|(own, _)| own == hash);
        let Some(entry) = entries.iter().rev().find(is_named) else {
            continue;
        };
        let Some((_, ledger)) = list_of(entry) else {
            continue;
        };
        if read(landing, hash).await?.is_some() {
            continue;
        }
        let reason = match newest.is_some_and(|(own, _)| own == hash) {
            true => consequence(ledger),
            false => "a rewind to this entry could not use it; remove it".to_owned(),
        };
        found.push(Damage {
            path: path(hash),
            entry: entry.sequence.get(),
            reason: format!("its content does not have the hash of its name; {reason}"),
        });
    }
    Ok(found)
}

/// Hash of the list that an entry has counted, and its ledger.
fn list_of(entry: &CommitEntry) -> Option<(Hash128, &Ledger)> {
    let ledger = entry.state.position.ledger()?;
    Some((ledger.values_hash?, ledger))
}

fn consequence(ledger: &Ledger) -> String {
    format!(
        "without it, the next run accepts only {}: run `feedline ingest` once with that list, which saves it (`feedline ingest repair` does not), restore the file from a copy, or run `feedline ingest reset`",
        accepted_list(ledger)
    )
}

/// The only list that a run accepts without the saved one.
fn accepted_list(ledger: &Ledger) -> String {
    format!(
        "a list that begins with the {} counted so far, in their order, and none if one of them has left the list",
        counted(ledger.values, "value")
    )
}

/// Note about a position whose list of values is not saved any more; `None` if it is, or needs none.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn note_unsaved_list(
    landing: &Store,
    position: &Position,
) -> Result<Option<String>, Error> {
    let Some(ledger) = position.ledger() else {
        return Ok(None);
    };
    let Some(hash) = ledger.values_hash else {
        return Ok(None);
    };
    if read(landing, hash).await?.is_some() {
        return Ok(None);
    }
    Ok(Some(format!(
        "the list of values of that time is not saved (the newest 16 are): the next run accepts only {}",
        accepted_list(ledger)
    )))
}
