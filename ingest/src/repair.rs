//! Going back to the last good entry of a damaged commit log.

use std::collections::BTreeMap;

use bytes::Bytes;
use feedline_schemas::{
    commit::{CommitEntry, DataFile},
    config::PipelineConfig,
    decode,
    ids::{Hash128, Name},
    report::{RepairReport, RepairedSource},
};
use feedline_storage::{Listed, Store, log::entry_path};

use crate::{
    context::Context,
    error::Error,
    landing_files::{
        LandingInventory,
        folders::{DAMAGED, ORPHANS, sequence_of},
        move_unnamed, restore, sweep,
    },
    landing_folder::landing,
    log_chain::{Chain, read_chain},
    log_snapshots,
    schedule::Holding,
    settings::choose,
    verify::{find_wrong_rows, wrong_files},
};

/// Checks the logs of the pipeline's sources and every file that they name; with `only`, those of
/// that source alone. Restores a lost or corrupt file from a copy, where the landing folder has
/// one. Otherwise truncates a corrupt log after its last valid entry. Moves the later entries and
/// their files to `damaged/<run_id>/` and deletes nothing. The next run re-reads the records of
/// those entries. Moves files that no entry names to `orphans/`. With `dry_run`, changes nothing.
///
/// Changes nothing while another program holds the source's lease. Waits for the lease where that
/// program may be dead. Moves entries from the last to the first, so that another repair can finish
/// a killed one. A run without a lease may add an entry meanwhile. The repair then moves that entry
/// too, or the run removes it itself.
///
/// # Errors
/// [`Error::Contract`] for a log that a newer release wrote: it is not corrupt. [`Error::Running`]
/// for a source that is being run, [`Error::Storage`] when the store fails; [`Error::Config`] as
/// for [`crate::ingest`].
pub async fn repair(
    config: &PipelineConfig,
    only: Option<&Name>,
    context: &Context,
    dry_run: bool,
) -> Result<RepairReport, Error> {
    let mut report = RepairReport {
        dry_run,
        sources: Vec::new(),
    };
    for (_, source) in choose(config, only)? {
        let folder = landing(&context.root, &source.name);
        // A source that has landed nothing needs no lease.
        let repaired = if dry_run || folder.list("").await?.is_empty() {
            let found = examine(&folder, &source.name, &mut Checked::new()).await?;
            found.report(&source.name)
        } else {
            let work = repair_source(&folder, &source.name, &context.run_id);
            Holding::of(&folder, &source.name, context)
                .during(work)
                .await?
        };
        report.sources.push(repaired);
    }
    Ok(report)
}

/// Log and its files, with the repairs that they need.
struct Findings {
    chain: Chain,
    /// Number of valid entries whose files are all intact or restorable.
    good: usize,
    /// Damage of the first entry that is not valid.
    damage: Option<String>,
    /// Files to restore, each with the path of its copy.
    copies: Vec<(DataFile, String)>,
    /// Objects of the log after the valid entries.
    behind: Vec<Listed>,
    rows_behind: u64,
    pages_behind: u64,
}

impl Findings {
    fn entries(&self) -> Vec<CommitEntry> {
        self.chain.first(self.good)
    }

    fn report(&self, source: &Name) -> RepairedSource {
        let state = self.entries().pop().map(|last| last.state);
        let state = state.unwrap_or_default();
        RepairedSource {
            name: source.to_string(),
            damage: self.damage.clone(),
            kept: self.good as u64,
            set_aside: self.behind.len() as u64,
            rows: state.totals.rows,
            pages: state.totals.pages,
            position: state.position,
            rows_set_aside: self.rows_behind,
            pages_set_aside: self.pages_behind,
            restored: self
                .copies
                .iter()
                .map(|(file, _)| file.path.clone())
                .collect(),
            ..RepairedSource::default()
        }
    }
}

/// Files read so far, each with its damage, if any.
type Checked = BTreeMap<String, Option<String>>;

/// Reads the log and all files that are not in `checked`; changes nothing.
async fn examine(landing: &Store, source: &Name, checked: &mut Checked) -> Result<Findings, Error> {
    let listed = landing.list("log").await?;
    let chain = read_chain(landing, source, &listed).await?;
    let mut damage = chain.damage.as_ref().map(|damage| damage.reason.clone());
    let mut good = chain.len();
    let mut copies = Vec::new();
    // An entry may exclude earlier ones, so the loop checks again the files that a shorter log
    // names.
    loop {
        let entries = chain.first(good);
        let named = entries.iter().flat_map(CommitEntry::named_files);
        let unread: Vec<_> = named
            .filter(|file| !checked.contains_key(&file.path))
            .collect();
        let mut wrong = wrong_files(landing, &unread).await?;
        for file in unread {
            checked.insert(file.path.clone(), wrong.remove(&file.path));
        }
        copies.clear();
        let bad = find_bad(landing, &entries, checked, &mut copies).await?;
        let Some((index, reason)) = bad else { break };
        (good, damage) = (index, Some(reason));
    }
    let behind: Vec<_> = listed.iter().skip(good).cloned().collect();
    let (mut rows_behind, mut pages_behind) = (0, 0);
    for file in &behind {
        let body = landing.get(&file.path).await?;
        // An unreadable entry cannot be counted; it is moved like the others.
        if let Ok(entry) = decode::<CommitEntry>(&file.path, &body) {
            rows_behind += entry.counts.rows;
            pages_behind += entry.counts.pages;
        }
    }
    Ok(Findings {
        chain,
        good,
        damage,
        copies,
        behind,
        rows_behind,
        pages_behind,
    })
}

/// Finds the first entry with a damaged file that has no copy. Adds the copies found to `copies`.
async fn find_bad(
    landing: &Store,
    entries: &[CommitEntry],
    checked: &Checked,
    copies: &mut Vec<(DataFile, String)>,
) -> Result<Option<(usize, String)>, Error> {
    let mut listed = None;
    for (index, entry) in entries.iter().enumerate() {
        for file in entry.named_files() {
            let Some(Some(reason)) = checked.get(&file.path) else {
                continue;
            };
            let listed = match &mut listed {
                Some(listed) => listed,
                none => none.insert(landing.list("").await?),
            };
            if let Some(copy) = find_copy(landing, file, listed).await? {
                copies.push((file.clone(), copy));
                continue;
            }
            let path = entry_path(entry.sequence.get());
            let reason = format!("`{}`, which `{path}` names: {reason}", file.path);
            // A file that a later entry put in the place of others: without that entry these count.
            let written = sequence_of(&file.path).and_then(|own| usize::try_from(own).ok());
            let index = written.filter(|own| *own < entries.len()).unwrap_or(index);
            return Ok(Some((index, reason)));
        }
    }
    Ok(None)
}

/// Finds a copy of a file that a start or a repair moved elsewhere below the landing folder.
async fn find_copy(
    landing: &Store,
    file: &DataFile,
    listed: &[Listed],
) -> Result<Option<String>, Error> {
    let end = format!("/{}", file.path);
    for other in listed {
        if other.path.ends_with(&end) && other.bytes == file.bytes {
            let bytes = landing.get_opt(&other.path).await?;
            // A wrong number of rows in the log entry is not mended by a copy of the file.
            let is_copy = |bytes: Bytes| {
                Hash128::of(&bytes) == file.hash && find_wrong_rows(bytes, file).is_none()
            };
            if bytes.is_some_and(is_copy) {
                return Ok(Some(other.path.clone()));
            }
        }
    }
    Ok(None)
}

/// Repairs one log, whose lease is held.
async fn repair_source(
    landing: &Store,
    source: &Name,
    run_id: &str,
) -> Result<RepairedSource, Error> {
    sweep(landing).await;
    let (mut first, mut checked) = (None::<RepairedSource>, Checked::new());
    // A run without a lease may append entries after the truncation, until it checks the log and
    // removes them itself.
    for round in 0_u32.. {
        let found = examine(landing, source, &mut checked).await?;
        for (file, copy) in &found.copies {
            restore(landing, file, copy).await?;
            checked.remove(&file.path);
        }
        let to = match round {
            0 => format!("{DAMAGED}/{run_id}"),
            round => format!("{DAMAGED}/{run_id}-{round}"),
        };
        for file in found.behind.iter().rev() {
            match landing
                .rename(&file.path, &format!("{to}/{}", file.path))
                .await
            {
                Err(e) if e.is_not_found() => {}
                done => done?,
            }
        }
        let (entries, next) = (found.entries(), found.good as u64);
        log_snapshots::remove_from(landing, next).await?;
        let inventory = LandingInventory::take(landing, &entries).await?;
        let to = if found.damage.is_some() {
            to.as_str()
        } else {
            ORPHANS
        };
        let unnamed = move_unnamed(landing, next, &inventory.unnamed, to)
            .await?
            .len() as u64;
        let is_cut = !found.behind.is_empty();
        let mut report = found.report(source);
        report.unnamed = unnamed;
        if is_cut {
            report.url = landing.url_of(to);
        }
        let total = match first.take() {
            None => report,
            Some(mut total) => {
                total.set_aside += report.set_aside;
                total.rows_set_aside += report.rows_set_aside;
                total.pages_set_aside += report.pages_set_aside;
                total.unnamed += report.unnamed;
                (total.kept, total.rows, total.pages) = (report.kept, report.rows, report.pages);
                total.position = report.position;
                total
            }
        };
        if !is_cut {
            return Ok(total);
        }
        first = Some(total);
    }
    Ok(first.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use feedline_schemas::{commit::Position, config::load};

    use super::*;
    use crate::{context::Context, run::ingest, testing};

    /// A pipeline of five files, one batch each.
    fn pipeline() -> (tempfile::TempDir, PipelineConfig) {
        let folder = tempfile::tempdir().unwrap();
        for i in 0..5 {
            fs::write(folder.path().join(format!("{i}.csv")), format!("a\n{i}\n")).unwrap();
        }
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{}/*.csv\"\nbatch = {{ rows = 1 }}\n",
            folder.path().display()
        );
        (folder, load("p.toml", &text, &[]).unwrap().config)
    }

    async fn bring(config: &PipelineConfig, root: &Store) -> Result<(), Error> {
        let context = Context {
            root: root.clone(),
            ..testing::context()
        };
        ingest(config, None, &context).await.map(|_| ())
    }

    fn by(root: &Store) -> Context {
        Context {
            root: root.clone(),
            run_id: "r".into(),
            ..testing::context()
        }
    }

    async fn mend(config: &PipelineConfig, root: &Store, dry_run: bool) -> RepairReport {
        repair(config, None, &by(root), dry_run).await.unwrap()
    }

    /// Files in the folders `data` and `log`; entries without their run-specific fields.
    async fn landed(root: &Store) -> BTreeMap<String, Bytes> {
        let landing = root.child("landing/s");
        let mut all = BTreeMap::new();
        for file in landing.list("data").await.unwrap() {
            all.insert(file.path.clone(), landing.get(&file.path).await.unwrap());
        }
        for file in landing.list("log").await.unwrap() {
            let bytes = landing.get(&file.path).await.unwrap();
            let entry: CommitEntry = decode(&file.path, &bytes).unwrap();
            let counts = serde_json::to_vec(&(entry.files, entry.state)).unwrap();
            all.insert(file.path, counts.into());
        }
        all
    }

    /// Applies `harm` to an intact landing zone, and checks the report, the kept entries, and that
    /// all data is back at the end.
    async fn check(harm: impl AsyncFn(&Store), kept: u64, part: &str) {
        let (_folder, config) = pipeline();
        let root = Store::memory();
        bring(&config, &root).await.unwrap();
        let whole = landed(&root).await;
        let report = mend(&config, &root, true).await;
        assert!(
            report.sources[0].damage.is_none() && report.sources[0].kept == 5,
            "{report:?}"
        );
        harm(&root.child("landing/s")).await;
        let harmed = root.list("").await.unwrap();
        for dry_run in [true, false] {
            let report = mend(&config, &root, dry_run).await;
            let [source] = &report.sources[..] else {
                panic!("{report:?}")
            };
            assert!(
                source.damage.as_ref().is_some_and(|d| d.contains(part)),
                "{source:?}"
            );
            assert_eq!((source.kept, source.rows), (kept, kept), "{source:?}");
            assert_eq!(source.position == Position::Start, kept == 0);
            if dry_run {
                assert_eq!(root.list("").await.unwrap(), harmed, "nothing is changed");
            } else {
                let aside = root.list("landing/s/damaged/r/log").await.unwrap();
                assert_eq!(aside.len() as u64, source.set_aside);
            }
        }
        bring(&config, &root).await.unwrap();
        assert_eq!(landed(&root).await, whole);
    }

    #[tokio::test]
    async fn fault_09_a_damaged_entry_is_refused_and_the_log_cut_behind_the_last_good_one() {
        let change = async |landing: &Store, change: fn(&mut Vec<u8>)| {
            let path = entry_path(3);
            let mut bytes = landing.get(&path).await.unwrap().to_vec();
            change(&mut bytes);
            landing.put(&path, bytes.into()).await.unwrap();
        };
        check(
            async |l: &Store| change(l, |b| b.truncate(b.len() / 2)).await,
            3,
            "3.json",
        )
        .await;
        // The entry itself is good JSON of another text: the next one shows it.
        let flip = |b: &mut Vec<u8>| {
            *b = String::from_utf8(b.clone())
                .unwrap()
                .replace("\"run_id\": \"run\"", "\"run_id\": \"ruN\"")
                .into()
        };
        check(
            async |l: &Store| change(l, flip).await,
            4,
            "is not the one it was written after, so entry 3 or 4 is damaged",
        )
        .await;
    }

    /// Replaces text in an entry.
    async fn edit(landing: &Store, sequence: u64, edits: &[(&str, &str)]) {
        let path = entry_path(sequence);
        let mut text = String::from_utf8(landing.get(&path).await.unwrap().to_vec()).unwrap();
        for (from, to) in edits {
            assert!(text.contains(from), "{from} in {text}");
            text = text.replace(from, to);
        }
        landing.put(&path, text.into()).await.unwrap();
    }

    #[tokio::test]
    async fn of_an_edited_entry_and_the_one_after_it_the_edited_one_is_blamed() {
        let edits = [("\"run_id\": \"run\"", "\"run_id\": \"ruN\"")];
        check(
            async |l: &Store| edit(l, 1, &edits).await,
            1,
            "01.json` is damaged: the entry after it was written after other bytes",
        )
        .await;
    }

    #[tokio::test]
    async fn wrong_counts_of_the_newest_entry_are_damage() {
        let totals = ("\"rows\": 5,", "\"rows\": 5400,");
        check(
            async |l: &Store| edit(l, 4, &[totals]).await,
            4,
            "`state.totals.rows` is 5400, and not the sum of 4 before it and its own 1",
        )
        .await;
        // Counts that agree with one another, and not with the data file.
        let edits = [
            ("\"rows\": 5,", "\"rows\": 6,"),
            ("\"rows\": 1,", "\"rows\": 2,"),
        ];
        check(
            async |l: &Store| edit(l, 4, &edits).await,
            4,
            "it has 1 rows and its log entry says 2",
        )
        .await;
    }

    #[tokio::test]
    async fn an_entry_or_a_file_that_is_gone_is_missed() {
        check(
            async |l: &Store| l.delete(&entry_path(2)).await.unwrap(),
            2,
            "should be",
        )
        .await;
        check(
            async |l: &Store| l.delete(&entry_path(0)).await.unwrap(),
            0,
            "should be",
        )
        .await;
        let data = async |l: &Store, i: usize| l.list("data").await.unwrap()[i].path.clone();
        check(
            async |l: &Store| l.delete(&data(l, 1).await).await.unwrap(),
            1,
            "is missing",
        )
        .await;
        check(
            async |l: &Store| {
                l.put(&data(l, 4).await, Bytes::from_static(b"x"))
                    .await
                    .unwrap()
            },
            4,
            "has the hash",
        )
        .await;
    }

    #[tokio::test]
    async fn a_damaged_log_says_how_to_repair_it() {
        let (_folder, config) = pipeline();
        let root = Store::memory();
        bring(&config, &root).await.unwrap();
        root.child("landing/s")
            .delete(&entry_path(1))
            .await
            .unwrap();
        let error = bring(&config, &root).await.unwrap_err().to_string();
        assert!(error.contains("ingest repair"), "{error}");
    }
}
