//! Re-reading some files.

use std::collections::BTreeSet;

use feedline_readers::glob;
use feedline_schemas::{
    amendment::AmendReport,
    commit::{CommitEntry, Position},
};

use super::reread_batches::{RereadPlan, retried_with};
use crate::amend::missing_files::urls;

/// Files whose address matches, and those that share batches with them.
pub(super) fn plan_files(
    entries: &[CommitEntry],
    position: &Position,
    pattern: &str,
    report: &mut AmendReport,
) -> Option<RereadPlan> {
    let mut files = urls(position);
    files.retain(|url| is_match(pattern, url));
    if files.is_empty() {
        return None;
    }
    let (files, batches) = widen(entries, files);
    report.ranges = files.iter().cloned().collect();
    report
        .notes
        .push("batches are re-read completely, with all of their files".into());
    Some(RereadPlan {
        position: forget_files(position, &files),
        batches,
    })
}

/// URL of the file in progress.
fn begun(position: &Position) -> Option<String> {
    match position {
        Position::File { current, .. } => current.as_ref().map(|file| file.url.clone()),
        _ => None,
    }
}

/// The files that each batch was read from.
fn files_of_batches(entries: &[CommitEntry]) -> Vec<BTreeSet<String>> {
    let mut before = &Position::Start;
    let mut read = Vec::with_capacity(entries.len());
    for entry in entries {
        let after = &entry.state.position;
        let parts = entry.parts.iter().map(|part| part.url.clone());
        let mut of: BTreeSet<String> = parts.collect();
        // An entry of version 1 does not name the files of its records, but its position lists all of them.
        if of.is_empty() && !entry.is_amendment() && entry.version < 2 {
            of = urls(after).difference(&urls(before)).cloned().collect();
            of.extend(begun(before));
        }
        read.push(of);
        before = after;
    }
    read
}

/// Adds the files that share batches with `files`; returns all of them and their batches.
fn widen(
    entries: &[CommitEntry],
    mut files: BTreeSet<String>,
) -> (BTreeSet<String>, BTreeSet<usize>) {
    let read = files_of_batches(entries);
    let mut batches = BTreeSet::new();
    loop {
        let touching = read.iter().enumerate();
        let touching = touching.filter(|(_, of)| !of.is_disjoint(&files));
        batches.extend(touching.map(|(index, _)| index));
        batches = retried_with(entries, &batches);
        let known = files.len();
        for index in &batches {
            files.extend(read[*index].iter().cloned());
        }
        if files.len() == known {
            return (files, batches);
        }
    }
}

/// The position of a source that has not read `files`.
fn forget_files(position: &Position, files: &BTreeSet<String>) -> Position {
    let mut next = position.clone();
    match &mut next {
        Position::File { done, current } => {
            done.retain(|mark| !files.contains(&mark.url));
            current.take_if(|file| files.contains(&file.url));
        }
        Position::Done { files: done, .. } => done.retain(|mark| !files.contains(&mark.url)),
        Position::Start | Position::Page { .. } => {}
    }
    next
}

/// Returns true if a pattern matches an address, or as many of its last segments as the pattern
/// has.
fn is_match(pattern: &str, url: &str) -> bool {
    let segments = pattern.split('/').count();
    let mut starts: Vec<usize> = url.rmatch_indices('/').map(|(at, _)| at + 1).collect();
    starts.push(0);
    let end = starts.get(segments - 1).map(|at| &url[*at..]);
    glob::matches(pattern, url) || end.is_some_and(|end| glob::matches(pattern, end))
}
