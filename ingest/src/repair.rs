//! Going back to the last good entry of a damaged commit log.

use feedline_schemas::{
    commit::{CommitEntry, DataFile},
    config::PipelineConfig,
    ids::{Hash128, Name},
    report::{RepairReport, RepairedSource},
};
use feedline_storage::{Listed, Store};

use crate::{
    commit_log::{checked, entry_path, landing},
    error::Error,
    settings::choose,
};

/// Checks the logs of the pipeline's sources (only of the one called `only`, if given) and every file that they name. A log
/// with damage is cut behind its last good entry; the entries after it go to `damaged/<run_id>/`, nothing is deleted,
/// and the next run reads again what they had brought. With `dry_run` nothing is changed.
///
/// Entries are moved from the last to the first, so that a repair that is cut off is finished by another.
///
/// # Errors
/// [`Error::Storage`] when the store fails; [`Error::Config`] as for [`crate::ingest`].
pub async fn repair(
    config: &PipelineConfig,
    only: Option<&Name>,
    root: &Store,
    run_id: &str,
    dry_run: bool,
) -> Result<RepairReport, Error> {
    let mut report = RepairReport {
        dry_run,
        sources: Vec::new(),
    };
    for (_, source) in choose(config, only)? {
        let folder = landing(root, &source.name);
        let repaired = repair_source(&folder, &source.name, run_id, dry_run).await?;
        report.sources.push(repaired);
    }
    Ok(report)
}

async fn repair_source(
    landing: &Store,
    source: &Name,
    run_id: &str,
    dry_run: bool,
) -> Result<RepairedSource, Error> {
    let listed = landing.list("log").await?;
    let (good, damage) = good_entries(landing, source, &listed).await?;
    let state = good
        .last()
        .map(|entry| entry.state.clone())
        .unwrap_or_default();
    let mut repaired = RepairedSource {
        name: source.to_string(),
        kept: good.len() as u64,
        rows: state.totals.rows,
        pages: state.totals.pages,
        position: state.position,
        ..RepairedSource::default()
    };
    let Some(reason) = damage else {
        return Ok(repaired);
    };
    repaired.damage = Some(reason);
    repaired.set_aside = (listed.len() - good.len()) as u64;
    repaired.url = landing.url_of(&format!("damaged/{run_id}"));
    if !dry_run {
        for file in listed.iter().skip(good.len()).rev() {
            let bytes = landing.get(&file.path).await?;
            let kept = format!("damaged/{run_id}/{}", file.path);
            landing.put(&kept, bytes).await?;
            landing.delete(&file.path).await?;
        }
    }
    Ok(repaired)
}

/// The entries up to the first that is damaged, and what is wrong with that one.
async fn good_entries(
    landing: &Store,
    source: &Name,
    listed: &[Listed],
) -> Result<(Vec<CommitEntry>, Option<String>), Error> {
    let mut good: Vec<CommitEntry> = Vec::new();
    let mut last_hash = None;
    for file in listed {
        let wanted = entry_path(good.len() as u64);
        if file.path != wanted {
            let reason = format!("`{}` was found where `{wanted}` should be", file.path);
            return Ok((good, Some(reason)));
        }
        let body = landing.get(&file.path).await?;
        let entry = match checked(
            landing,
            source,
            good.len() as u64,
            last_hash,
            &file.path,
            &body,
        ) {
            Ok(entry) => entry,
            Err(error) => return Ok((good, Some(error.to_string()))),
        };
        let others = [
            &entry.rejects,
            &entry.frontier,
            &entry.validators,
            &entry.raw,
        ];
        let children = entry.children.values().map(|table| &table.files);
        let others = others.into_iter().chain(children).flatten();
        for named in entry.files.iter().chain(others) {
            if let Some(reason) = damage(landing, named).await? {
                let reason = format!("`{}`, which `{}` names, {reason}", named.path, file.path);
                return Ok((good, Some(reason)));
            }
        }
        last_hash = Some(Hash128::of(&body));
        good.push(entry);
    }
    Ok((good, None))
}

/// What is wrong with a landed file.
async fn damage(landing: &Store, file: &DataFile) -> Result<Option<String>, Error> {
    let Some(bytes) = landing.get_opt(&file.path).await? else {
        return Ok(Some("is absent".into()));
    };
    let hash = Hash128::of(&bytes);
    Ok((hash != file.hash).then(|| format!("has the hash {hash}, and should have {}", file.hash)))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use bytes::Bytes;
    use feedline_schemas::{commit::Position, config::load};

    use super::*;
    use crate::{context::Context, http::testing, run::ingest};

    /// A pipeline of five files, each of which is a batch.
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

    /// What lies in the folders `data` and `log`: entries without what their run gave them.
    async fn landed(root: &Store) -> BTreeMap<String, Bytes> {
        let landing = root.child("landing/s");
        let mut all = BTreeMap::new();
        for file in landing.list("data").await.unwrap() {
            all.insert(file.path.clone(), landing.get(&file.path).await.unwrap());
        }
        for file in landing.list("log").await.unwrap() {
            let bytes = landing.get(&file.path).await.unwrap();
            let entry: CommitEntry = feedline_schemas::decode(&file.path, &bytes).unwrap();
            let counts = serde_json::to_vec(&(entry.files, entry.state)).unwrap();
            all.insert(file.path, counts.into());
        }
        all
    }

    /// Does `harm` to a whole landing zone, and checks what is said, what is kept and that all is there again at the end.
    async fn check(harm: impl AsyncFn(&Store), kept: u64, part: &str) {
        let (_folder, config) = pipeline();
        let root = Store::memory();
        bring(&config, &root).await.unwrap();
        let whole = landed(&root).await;
        let report = repair(&config, None, &root, "r", true).await.unwrap();
        assert!(
            report.sources[0].damage.is_none() && report.sources[0].kept == 5,
            "{report:?}"
        );
        harm(&root.child("landing/s")).await;
        let harmed = root.list("").await.unwrap();
        for dry_run in [true, false] {
            let report = repair(&config, None, &root, "r", dry_run).await.unwrap();
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
            "is not the one it was written after",
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
            "is absent",
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
