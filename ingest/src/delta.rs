//! Delta tables over landed files, for tools that read such tables.
//!
//! A table is a view: `_delta_log/` beside the data files of a source names the files that count, as
//! the commit log has them. It is written behind each commit if `ingest.delta` is set, and at any
//! time by [`delta`]. The commit log never depends on it. The records of a source are the table
//! `landing/<source>/data`, and each child table is `landing/<source>/children/<table>`.
//!
//! - A version follows one entry of the commit log, or several after a kill, and names it: see
//!   [`log`]. It is written after that entry, and before files that no longer count are moved.
//! - Files are those that landed, without a copy. The exception are files whose columns have wider
//!   types by now, or names that differ from others in case only: see [`widen`]. The landed files stay
//!   in the folder, so the table asks `VACUUM` to keep files that it does not name.
//! - No deletion vector is needed: feedline rewrites a file to remove a part of its rows.
//! - Two writers: the commit log fences them. A version is created only if it is absent, and a writer
//!   that finds another one reads the table again.
//! - A table that another program has changed is an error, and `--rebuild` writes it again.

mod checkpoint;
mod columns;
mod follow;
mod log;
mod sync;
pub(crate) mod table;
mod widen;

use std::collections::BTreeSet;

use feedline_schemas::{
    commit::CommitEntry,
    config::PipelineConfig,
    ids::Name,
    report::{Damage, DeltaReport, DeltaTableReport},
};
use feedline_storage::Store;

pub(crate) use self::follow::DeltaFollower;
use self::{
    follow::{left_out, read_whole},
    log::TableHead,
    sync::{Stamp, TableRef, is_of_log, sync},
    table::{DeltaTable, WIDENED, folder, tables},
};
use crate::{
    context::Context, error::Error, landing_folder::landing, log_chain::Chain, schedule::Holding,
    settings::choose,
};

/// Remedy for a table that differs from the log.
const REBUILD: &str = "`feedline ingest delta PIPELINE.toml --rebuild` writes it again";

/// Brings the Delta tables of the pipeline's sources (only of the source called `only`, if given) up
/// to their commit logs, and creates those that are missing. With `rebuild` they are removed and
/// written again; landed files stay.
///
/// # Errors
/// [`Error::Delta`] if another program has changed a table, or if it cannot have the rows;
/// [`Error::Running`] while another program holds the source's lease, [`Error::Config`],
/// [`Error::Log`] and [`Error::Landed`] for damage, [`Error::Storage`].
pub async fn delta(
    config: &PipelineConfig,
    only: Option<&Name>,
    context: &Context,
    rebuild: bool,
) -> Result<DeltaReport, Error> {
    let mut report = DeltaReport {
        rebuilt: rebuild,
        ..DeltaReport::default()
    };
    context.root.check_creates().await?;
    for (_, source) in choose(config, only)? {
        let landing = landing(&context.root, &source.name);
        let holding = Holding::of(&landing, &source.name, context);
        // Boxed: the future of a source is large.
        let work = Box::pin(write_source(&landing, &source.name, context, rebuild));
        report.tables.extend(holding.during(work).await?);
    }
    Ok(report)
}

async fn write_source(
    landing: &Store,
    source: &Name,
    context: &Context,
    rebuild: bool,
) -> Result<Vec<DeltaTableReport>, Error> {
    let Some((entries, entry_hash)) = read_whole(landing, source).await? else {
        return Ok(Vec::new());
    };
    let stamp = Stamp::of(context);
    let mut reports = Vec::new();
    for table in tables(&entries) {
        let of = TableRef {
            landing,
            source,
            table: &table,
        };
        let root = of.root();
        if rebuild {
            log::remove(&root).await?;
        }
        let synced = sync(&of, &entries, entry_hash, &stamp).await?;
        remove_unused(&root, &synced.head).await?;
        reports.push(DeltaTableReport {
            table: of.name(),
            url: root.url(),
            version: Some(synced.head.version),
            sequence: Some(synced.head.mark.sequence.get()),
            behind: 0,
            files: synced.files,
            copies: synced.copies,
            copied_bytes: synced.copied_bytes,
            problem: None,
            warnings: left_out(&of.name(), &synced.left_out).into_iter().collect(),
        });
    }
    Ok(reports)
}

/// Removes copies that the newest version of a table does not name, of killed programs.
async fn remove_unused(root: &Store, head: &TableHead) -> Result<(), Error> {
    let copies = root.list(WIDENED).await?;
    if copies.is_empty() {
        return Ok(());
    }
    let used = log::replay(root, head).await?.files;
    for copy in copies.iter().filter(|copy| !used.contains_key(&copy.path)) {
        root.delete(&copy.path).await?;
    }
    Ok(())
}

/// Reports the Delta tables of a source whose log ends with `entries`; none if there are none.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn status(
    landing: &Store,
    source: &Name,
    entries: &[CommitEntry],
) -> Result<Vec<DeltaTableReport>, Error> {
    let Some(last) = entries.last() else {
        return Ok(Vec::new());
    };
    let mut reports = Vec::new();
    for table in tables(entries) {
        let of = TableRef {
            landing,
            source,
            table: &table,
        };
        let root = of.root();
        let mut report = DeltaTableReport {
            table: of.name(),
            url: root.url(),
            ..DeltaTableReport::default()
        };
        match log::head(&root).await {
            Ok(None) => continue,
            Ok(Some(head)) => {
                let followed = head.mark.sequence.get();
                report.version = Some(head.version);
                report.sequence = Some(followed);
                report.behind = last.sequence.get().saturating_sub(followed);
                if !is_of_log(landing, &head.mark).await? {
                    report.problem = Some(not_of_log(followed));
                }
            }
            Err(error @ Error::Delta { .. }) => report.problem = Some(error.to_string()),
            Err(error) => return Err(error),
        }
        reports.push(report);
    }
    Ok(reports)
}

fn not_of_log(sequence: u64) -> String {
    format!(
        "it follows an entry {sequence} that the commit log no longer has, since a repair; `feedline ingest delta` brings it up to the log"
    )
}

/// Compares the Delta tables of a source with its log at the entries that they follow. A table that is
/// behind is not damaged. `entries` are those of `chain`, as a run reads them.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn verify(
    landing: &Store,
    source: &Name,
    chain: &Chain,
    entries: &[CommitEntry],
) -> Result<Vec<Damage>, Error> {
    let mut damage = Vec::new();
    for table in tables(entries) {
        let of = TableRef {
            landing,
            source,
            table: &table,
        };
        let (entry, reason) = match wrong_table(&of, chain).await {
            Ok(None) => continue,
            Ok(Some((entry, reason))) => (entry, format!("{reason}; {REBUILD}")),
            Err(Error::Delta { reason, .. }) => (0, reason),
            Err(error) => return Err(error),
        };
        damage.push(Damage {
            path: format!("{}/{}", folder(&table), log::LOG),
            entry,
            reason: format!("the Delta table: {reason}"),
        });
    }
    Ok(damage)
}

/// First difference of a table from the log, with the entry that it follows.
async fn wrong_table(of: &TableRef<'_>, chain: &Chain) -> Result<Option<(u64, String)>, Error> {
    let root = of.root();
    let Some(head) = log::head(&root).await? else {
        return Ok(None);
    };
    let sequence = head.mark.sequence.get();
    if !is_of_log(of.landing, &head.mark).await? {
        return Ok(Some((sequence, not_of_log(sequence))));
    }
    let count = usize::try_from(sequence).unwrap_or(usize::MAX);
    if count >= chain.len() {
        // A writer has added entries since the log was read.
        return Ok(None);
    }
    let state = log::replay(&root, &head).await?;
    let expected = DeltaTable::of(&chain.first(count + 1), of.table);
    let paths: BTreeSet<&str> = expected.files.iter().map(|f| f.path.as_str()).collect();
    let wrong = |reason: String| Ok(Some((sequence, reason)));
    if let Some(extra) = state.files.keys().find(|p| !paths.contains(p.as_str())) {
        return wrong(format!("it names `{extra}`, which the log does not"));
    }
    if state.schema != expected.columns.schema_string() {
        return wrong("it has other columns than the log".to_owned());
    }
    for file in &expected.files {
        let Some(found) = state.files.get(&file.path) else {
            return wrong(format!("it does not name `{}`", file.path));
        };
        if found.rows != file.file.rows {
            return wrong(format!("it has another number of rows of `{}`", file.path));
        }
        if !file.is_copy() {
            continue;
        }
        match root.size(&file.path).await {
            Err(e) if e.is_not_found() => return wrong(format!("`{}` is missing", file.path)),
            size => {
                if size? != found.bytes {
                    return wrong(format!("`{}` has another size than it says", file.path));
                }
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
