//! Checking a landing zone to the last byte: the chain of its log, and the hash of every file.

use std::collections::BTreeMap;

use bytes::Bytes;
use feedline_schemas::{
    commit::{CommitEntry, DataFile},
    config::PipelineConfig,
    ids::{Hash128, Name},
    log_effect,
    log_snapshot::HEADS,
    report::{Damage, LandingVerifyReport, VerifiedSource},
};
use feedline_storage::{
    Store,
    log::{self, newest_sequence},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use parquet::file::reader::{FileReader as _, SerializedFileReader};

use crate::{
    backfill::{wrong_cursors, wrong_lists},
    delta,
    error::Error,
    landing_files::{LandingInventory, inventory::MISSING},
    landing_folder::landing,
    log_chain::read_settled_chain,
    log_entries::log_error,
    settings::choose,
};

/// Files that are read concurrently; each is in memory completely.
const AT_ONCE: usize = 4;
/// Number of times that a source is verified which a writer keeps changing.
const TRIES: u32 = 16;

/// Reads the logs of the pipeline's sources (only of the source called `only`, if given) and every
/// file that they name. Reports all faults and changes nothing.
///
/// ```
/// use feedline_ingest::{ingest, verify};
/// # use feedline_schemas::config::load;
///
/// # #[derive(Debug)]
/// # struct NoSecrets;
/// # impl feedline_ingest::Secrets for NoSecrets {
/// #     fn resolve(&self, _: &feedline_schemas::config::SecretRef) -> Result<String, String> {
/// #         Err("there are no secrets".to_owned())
/// #     }
/// # }
/// # let context = feedline_ingest::Context {
/// #     root: feedline_storage::Store::memory(),
/// #     store_options: feedline_storage::StoreOptions::default(),
/// #     progress: std::sync::Arc::new(feedline_schemas::progress::Silent),
/// #     clock: std::sync::Arc::new(feedline_storage::clock::SystemClock),
/// #     secrets: std::sync::Arc::new(NoSecrets),
/// #     hosts: std::sync::Arc::default(),
/// #     metrics: std::sync::Arc::default(),
/// #     formatted_dates: std::sync::Arc::default(),
/// #     is_trial: false,
/// #     run_id: "run".to_owned(),
/// #     delta: false,
/// #     cancel: tokio::sync::watch::channel(false).1,
/// # };
/// # let folder = tempfile::tempdir()?;
/// # let file = folder.path().join("trades.csv");
/// # std::fs::write(&file, "id,price\n1,9.5\n")?;
/// # let text = format!(
/// #     "[pipeline]\nname = 'p'\n[[source]]\nname = 'trades'\ntype = 'files'\nurl = '{}'\n",
/// #     file.display()
/// # );
/// # let config = load("p.toml", &text, &[])?.config;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// ingest(&config, None, &context).await?;
/// let sound = verify(&config, None, &context.root).await?;
/// assert!(sound.sources[0].damage.is_empty());
///
/// let data = context.root.child("landing/trades/data");
/// let landed = data.list("").await?;
/// data.put(&landed[0].path, "other bytes".into()).await?;
/// let damaged = verify(&config, None, &context.root).await?;
/// assert_eq!(damaged.sources[0].damage[0].path, format!("data/{}", landed[0].path));
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Contract`] for a log that a newer release wrote, [`Error::Storage`] if the store fails,
/// [`Error::Config`] as for [`crate::ingest`].
pub async fn verify(
    config: &PipelineConfig,
    only: Option<&Name>,
    root: &Store,
) -> Result<LandingVerifyReport, Error> {
    let mut report = LandingVerifyReport::default();
    for (_, source) in choose(config, only)? {
        let folder = landing(root, &source.name);
        report
            .sources
            .push(verify_source(&folder, &source.name).await?);
    }
    Ok(report)
}

/// Verifies a source. If a writer has moved files meanwhile, damage is looked for again.
async fn verify_source(landing: &Store, source: &Name) -> Result<VerifiedSource, Error> {
    for _ in 1..TRIES {
        let before = newest_sequence(landing).await?;
        let verified = verify_once(landing, source).await?;
        if verified.damage.is_empty() || newest_sequence(landing).await? == before {
            return Ok(verified);
        }
    }
    verify_once(landing, source).await
}

async fn verify_once(landing: &Store, source: &Name) -> Result<VerifiedSource, Error> {
    let listed = landing.list("log").await?;
    let chain = read_settled_chain(landing, source, &listed).await?;
    let entries = chain.entries();
    let named: Vec<_> = entries.iter().flat_map(CommitEntry::named_files).collect();
    let mut wrong = wrong_files(landing, &named).await?;
    let inventory = LandingInventory::take(landing, &entries).await?;
    let mut verified = VerifiedSource {
        name: source.to_string(),
        url: landing.url(),
        entries: entries.len() as u64,
        rows: entries.last().map_or(0, |last| last.state.totals.rows),
        unnamed: inventory
            .unnamed
            .into_iter()
            .map(|file| file.path)
            .collect(),
        orphans: inventory.orphans.len() as u64,
        ..VerifiedSource::default()
    };
    for entry in &entries {
        for file in entry.named_files() {
            if let Some(reason) = wrong.remove(&file.path) {
                verified.damage.push(Damage {
                    path: file.path.clone(),
                    entry: entry.sequence.get(),
                    reason,
                });
            } else {
                verified.files += 1;
                verified.bytes += file.bytes;
            }
        }
    }
    if chain.damage.is_none() {
        let snapshots = wrong_snapshots(landing, source, &entries).await?;
        verified.damage.extend(snapshots);
        let tables = delta::verify(landing, source, &chain, &entries).await?;
        verified.damage.extend(tables);
        verified
            .damage
            .extend(wrong_lists(landing, &entries).await?);
        verified
            .damage
            .extend(wrong_cursors(landing, &entries).await?);
    }
    verified.damage.extend(chain.damage);
    Ok(verified)
}

/// Compares the newest snapshot with the log, and reports the others that do not fit. A wrong
/// snapshot does no harm by itself: it is passed over.
async fn wrong_snapshots(
    landing: &Store,
    source: &Name,
    entries: &[CommitEntry],
) -> Result<Vec<Damage>, Error> {
    let entry = entries.last().map_or(0, |last| last.sequence.get());
    let damage = |reason: String| Damage {
        path: HEADS.to_owned(),
        entry,
        reason: format!("{reason}; remove it, the log itself has everything"),
    };
    let open = async || {
        let opened = log::open(landing, source, None).await;
        opened.map_err(|e| log_error(landing, e))
    };
    let mut opened = open().await?;
    loop {
        let passed_over = std::mem::take(&mut opened.passed_over);
        let mut found: Vec<Damage> = passed_over.into_iter().map(damage).collect();
        let Some(snapshot) = &opened.snapshot else {
            return Ok(found);
        };
        match log::read_parts(landing, &snapshot.parts).await? {
            Ok(covered) => {
                found.extend(difference(covered, &opened.entries, entries).map(damage));
                let lists = snapshot.frontier.iter().chain(&snapshot.validators);
                let lists: Vec<_> = lists.map(|list| &list.file).collect();
                let wrong = wrong_files(landing, &lists).await?;
                let wrong = wrong.into_iter();
                found.extend(wrong.map(|(path, reason)| damage(format!("`{path}`: {reason}"))));
                return Ok(found);
            }
            Err(reason) => {
                // A writer removes the parts of a snapshot after it has written newer ones.
                let now = open().await?;
                if now.snapshot == opened.snapshot {
                    found.push(damage(reason));
                    return Ok(found);
                }
                opened = now;
            }
        }
    }
}

/// First difference of the entries `covered` by a snapshot from those of the log, once the entries
/// `later` than the snapshot are applied to them.
fn difference(
    mut covered: Vec<CommitEntry>,
    later: &[CommitEntry],
    entries: &[CommitEntry],
) -> Option<String> {
    for newer in later {
        log_effect::apply(&mut covered, newer);
    }
    let differs = covered.iter().zip(entries).find(|(covered, entry)| {
        let mut entry = (*entry).clone();
        log_effect::settle(&mut entry);
        entry != **covered
    });
    let (differs, _) = differs?;
    Some(format!(
        "the newest snapshot has another entry {} than the log amounts to",
        differs.sequence
    ))
}

/// Reads `files` and returns the faults of damaged ones, by path.
///
/// # Errors
/// [`Error::Storage`].
pub(crate) async fn wrong_files(
    landing: &Store,
    files: &[&DataFile],
) -> Result<BTreeMap<String, String>, Error> {
    // A check waits for its turn as a reference to its file: a future of it is much larger.
    let checks = stream::iter(files.iter().copied()).map(|file| check_file(landing, file));
    let found = checks
        .buffered(AT_ONCE)
        .try_filter_map(async |found| Ok(found));
    found.try_collect().await
}

/// Checks a landed file; returns its path with its fault, if it has one.
async fn check_file(landing: &Store, file: &DataFile) -> Result<Option<(String, String)>, Error> {
    let reason = wrong(landing, file).await?;
    Ok(reason.map(|reason| (file.path.clone(), reason)))
}

/// Checks a landed file; returns its fault.
async fn wrong(landing: &Store, file: &DataFile) -> Result<Option<String>, Error> {
    let Some(bytes) = landing.get_opt(&file.path).await? else {
        return Ok(Some(MISSING.to_owned()));
    };
    let hash = Hash128::of(&bytes);
    Ok(match hash == file.hash {
        true => find_wrong_rows(bytes, file),
        false => Some(format!(
            "it has the hash {hash} and should have {}",
            file.hash
        )),
    })
}

/// Compares the number of rows of an intact data or reject file with its log entry.
pub(crate) fn find_wrong_rows(bytes: Bytes, file: &DataFile) -> Option<String> {
    let folder = file.path.split('/').next();
    if !matches!(folder, Some("data" | "rejects")) {
        return None;
    }
    let rows = match SerializedFileReader::new(bytes) {
        Ok(reader) => reader.metadata().file_metadata().num_rows(),
        Err(error) => return Some(format!("it is no Parquet file: {error}")),
    };
    (u64::try_from(rows) != Ok(file.rows)).then(|| {
        format!(
            "it has {rows} rows and its log entry says {}; its hash is right, so the entry is damaged",
            file.rows
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use feedline_schemas::{commit::Position, config::load};

    use super::*;
    use crate::{
        context::Context,
        log_chain::{Chain, read_chain},
        run::ingest,
        testing,
    };

    /// Files that each entry of a log lists as read.
    fn files_listed(chain: &Chain) -> Vec<usize> {
        let listed = |entry: &CommitEntry| match &entry.state.position {
            Position::File { done, .. } | Position::Done { files: done, .. } => done.len(),
            other => panic!("{other:?}"),
        };
        chain.entries().iter().map(listed).collect()
    }

    #[tokio::test]
    async fn an_entry_with_a_wrong_count_is_damage_with_both_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.csv");
        fs::write(&file, "a\n1\n2\n").unwrap();
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{}\"\n",
            file.display()
        );
        let config = load("p.toml", &text, &[]).unwrap().config;
        let context = Context {
            root: Store::memory(),
            ..testing::context()
        };
        ingest(&config, None, &context).await.unwrap();
        let landing = landing(&context.root, &config.source[0].name);
        let path = log::entry_path(0);
        let entry = String::from_utf8(landing.get(&path).await.unwrap().to_vec()).unwrap();
        let edited = entry.replacen("\"rows\": 2", "\"rows\": 3", 1);
        landing.put(&path, edited.into()).await.unwrap();
        let report = verify(&config, None, &context.root).await.unwrap();
        let [damage] = report.sources[0].damage.as_slice() else {
            panic!("{report:?}")
        };
        assert_eq!((&damage.path, damage.entry), (&path, 0));
        let expected = "its `counts.rows` is 2, and its data files have 3 rows";
        assert!(damage.reason.ends_with(expected), "{damage:?}");
    }

    #[tokio::test]
    async fn of_a_long_log_only_the_last_entry_is_held_with_its_position() {
        let folder = tempfile::tempdir().unwrap();
        for i in 0..5 {
            fs::write(folder.path().join(format!("{i}.csv")), format!("a\n{i}\n")).unwrap();
        }
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{}/*.csv\"\nbatch = {{ rows = 1 }}\n",
            folder.path().display()
        );
        let config = load("p.toml", &text, &[]).unwrap().config;
        let root = Store::memory();
        let context = Context {
            root: root.clone(),
            ..testing::context()
        };
        ingest(&config, None, &context).await.unwrap();
        let landing = landing(&root, &config.source[0].name);
        let listed = landing.list("log").await.unwrap();
        let read = async |settled: bool| {
            let name = &config.source[0].name;
            let chain = match settled {
                true => read_settled_chain(&landing, name, &listed).await,
                false => read_chain(&landing, name, &listed).await,
            };
            files_listed(&chain.unwrap())
        };
        let (complete, settled) = (read(false).await, read(true).await);
        let (last, before) = settled.split_last().unwrap();
        assert_eq!(complete.len(), settled.len());
        assert!(
            complete[..before.len()].iter().any(|files| *files > 0),
            "{complete:?}"
        );
        assert!(before.iter().all(|files| *files == 0), "{settled:?}");
        assert_eq!(Some(last), complete.last());
        let report = verify(&config, None, &root).await.unwrap();
        assert!(report.sources[0].damage.is_empty(), "{report:?}");
        assert_eq!(report.sources[0].rows, 5);
    }
}
