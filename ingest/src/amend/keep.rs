//! Saves withdrawn data in a folder beside the landing folder.

use std::{collections::BTreeSet, fs, io::ErrorKind};

use feedline_storage::{Store, log::entry_path};

use crate::{blocking::blocking, commit_log::CommitLog, context::Context, error::Error};

/// A folder of saved data: `landing/<source>.<n>`. No source name has a dot, so it cannot be a
/// source's folder.
pub(super) struct KeptFolder {
    /// Its name.
    pub(super) name: String,
    store: Store,
}

impl KeptFolder {
    /// Returns the next free folder. A folder that a killed command has begun for the same log is
    /// reused.
    ///
    /// # Errors
    /// [`Error::Storage`].
    pub(super) async fn next(log: &CommitLog, context: &Context) -> Result<Self, Error> {
        let own = log.landing().get_opt(&entry_path(0)).await?;
        let used: BTreeSet<String> = log.kept_folders().into_iter().collect();
        for n in 1_u64.. {
            let name = format!("{}.{n}", log.source());
            if used.contains(&name) {
                continue;
            }
            let store = context.root.child(&format!("landing/{name}"));
            let first = store.get_opt(&entry_path(0)).await?;
            if first.is_none() || first == own {
                return Ok(Self { name, store });
            }
        }
        unreachable!("there are more numbers than folders")
    }

    /// URL of the folder.
    pub(super) fn url(&self) -> String {
        self.store.url()
    }

    /// Copies files and then the first `entries` entries of the log, so that the result is a
    /// landing folder as before. On a local disk they are hard links: landed files are never
    /// rewritten.
    ///
    /// # Errors
    /// [`Error::Storage`], [`Error::Landed`] for a file that is absent.
    pub(super) async fn fill(
        &self,
        log: &CommitLog,
        paths: impl IntoIterator<Item = String>,
        entries: u64,
    ) -> Result<(), Error> {
        let entries = (0..entries).map(entry_path);
        for path in paths.into_iter().chain(entries) {
            self.copy(log.landing(), &path).await?;
        }
        Ok(())
    }

    async fn copy(&self, from: &Store, path: &str) -> Result<(), Error> {
        if let (Some(source), Some(target)) = (from.local_path(), self.store.local_path()) {
            let (source, target) = (source.join(path), target.join(path));
            let is_linked = blocking(move || {
                let made = target.parent().map_or(Ok(()), fs::create_dir_all);
                Ok(match made.and_then(|()| fs::hard_link(source, target)) {
                    Ok(()) => true,
                    Err(error) => error.kind() == ErrorKind::AlreadyExists,
                })
            });
            if is_linked.await? {
                return Ok(());
            }
        }
        // A disk without links, or a store that is none.
        let bytes = match from.get(path).await {
            Err(e) if e.is_not_found() => {
                return Err(Error::Landed {
                    url: from.url_of(path),
                    reason: "it is absent".into(),
                });
            }
            bytes => bytes?,
        };
        self.store.put(path, bytes).await?;
        Ok(())
    }
}
