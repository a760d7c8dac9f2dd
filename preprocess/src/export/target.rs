//! Folder of an export: empty, or one that an earlier export of the same pipeline has written.

use std::{fs, path::Path};

use bytes::Bytes;
use feedline_schemas::{
    decode, encode,
    export::{ExportFormat, ExportRecord, ExportState, ExportedFile, ExportedRows, RECORD},
    format::EXPORT,
    ids::Name,
    manifest::Split,
};
use feedline_storage::Store;

use super::{
    file_names::{CARD, INDEX, TOKENIZER, TRANSFORM},
    out::of_incoming,
};
use crate::Error;

/// Prefix of the temporary files of a local disk.
const TEMPORARY: &str = ".tmp-";

/// A folder that may be written, and its files.
pub(super) struct ExportTarget<'a> {
    store: &'a Store,
    /// Files of an earlier export.
    earlier: Vec<String>,
    /// True if that export was complete.
    pub(super) replaces: bool,
}

impl<'a> ExportTarget<'a> {
    /// Checks that `store` may be written. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Input`] for a folder with files of others, of another pipeline, or of a finished export without `overwrite`.
    pub(super) async fn check(
        store: &'a Store,
        pipeline: &Name,
        overwrite: bool,
    ) -> Result<Self, Error> {
        let listed = store.list("").await?;
        let what = || format!("folder `{}`", store.url());
        let found: Vec<String> = listed.into_iter().map(|file| file.path).collect();
        if found.is_empty() {
            return Ok(Self {
                store,
                earlier: found,
                replaces: false,
            });
        }
        let Some(record) = store.get_opt(RECORD).await? else {
            let reason = format!(
                "it is not empty: it has `{}`, and no record of an export (`{RECORD}`)",
                found[0]
            );
            return Err(Error::input(
                what(),
                reason,
                "name an empty or new folder with `--to`",
            ));
        };
        let record: ExportRecord = decode(&store.url_of(RECORD), &record)?;
        if record.pipeline != *pipeline {
            let reason = format!("it holds an export of the pipeline `{}`", record.pipeline);
            return Err(Error::input(
                what(),
                reason,
                "name another folder with `--to`",
            ));
        }
        let is_complete = record.state == ExportState::Complete;
        if is_complete && !overwrite {
            let reason = format!(
                "it holds a finished export of {} as {}",
                named(&record.of),
                record.files_format.name()
            );
            let advice = "replace it with `--overwrite`, or name another folder with `--to`";
            return Err(Error::input(what(), reason, advice));
        }
        let is_own = |path: &String| {
            let listed = record.files.iter().any(|file| file.path == **path);
            listed || (!is_complete && is_export_file(path)) || path == RECORD
        };
        if let Some(foreign) = found.iter().find(|path| !is_own(path)) {
            let reason = format!("it has `{foreign}`, which no export wrote");
            let advice = "move that file elsewhere, or name another folder with `--to`";
            return Err(Error::input(what(), reason, advice));
        }
        Ok(Self {
            store,
            earlier: found,
            replaces: is_complete,
        })
    }

    /// Marks the folder as incomplete, and removes the files of the earlier export, those that describe the others first.
    pub(super) async fn begin(&self, record: &ExportRecord) -> Result<(), Error> {
        self.store.put(RECORD, Bytes::from(encode(record))).await?;
        let (data, descriptions): (Vec<&String>, _) = self
            .earlier
            .iter()
            .filter(|path| *path != RECORD)
            .partition(|path| is_data(path));
        for path in descriptions.into_iter().chain(data) {
            self.store.delete(path).await?;
        }
        let local = self.store.local_path();
        if let Some(folder) = local.filter(|_| !self.earlier.is_empty()) {
            tokio::task::spawn_blocking(move || remove_leftovers(&folder)).await?;
        }
        Ok(())
    }

    /// Checks that no other process has begun an export here since this one was `begun`.
    ///
    /// # Errors
    /// [`Error::Input`] if one has.
    pub(super) async fn check_undisturbed(&self, begun: &ExportRecord) -> Result<(), Error> {
        let found = self.store.get_opt(RECORD).await?;
        if found.is_some_and(|found| found == encode(begun)) {
            return Ok(());
        }
        Err(Error::input(
            format!("folder `{}`", self.store.url()),
            "another export was begun in it before this one ended",
            "run one of them again, or give each a folder of its own",
        ))
    }

    /// Writes the record of the complete export.
    ///
    /// # Errors
    /// As [`check_undisturbed`](Self::check_undisturbed).
    pub(super) async fn finish(
        &self,
        begun: &ExportRecord,
        files: Vec<ExportedFile>,
    ) -> Result<(), Error> {
        self.check_undisturbed(begun).await?;
        let complete = ExportRecord {
            state: ExportState::Complete,
            files,
            ..begun.clone()
        };
        Ok(self
            .store
            .put(RECORD, Bytes::from(encode(&complete)))
            .await?)
    }
}

/// The record of an export that begins.
pub(super) fn record(
    pipeline: &Name,
    of: ExportedRows,
    files_format: ExportFormat,
    run: String,
) -> ExportRecord {
    ExportRecord {
        format: EXPORT.format.to_owned(),
        version: EXPORT.version,
        pipeline: pipeline.clone(),
        of,
        files_format,
        state: ExportState::Writing { run },
        files: Vec::new(),
    }
}

/// Name of exported rows for people.
pub(super) fn named(of: &ExportedRows) -> String {
    match of {
        ExportedRows::Source { name, .. } => format!("source `{name}`"),
        ExportedRows::Dataset { name, .. } => format!("dataset `{name}`"),
    }
}

/// Returns true for the path of a file that an export may write, whatever its format: of a killed one it is not recorded which
/// of them it wrote.
fn is_export_file(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_split = |name: &str| Split::ALL.iter().any(|split| split.as_str() == name);
    let is_folder = folder.is_empty() || folder == "data" || is_split(folder);
    let is_description = [CARD, INDEX, TRANSFORM, TOKENIZER].contains(&name);
    let name = of_incoming(name).unwrap_or(name);
    let is_part = |name: &str| {
        // `part-00000`, `train-000000` or `train-00000-of-00005`.
        let mut words = name.split('-');
        let begins = words
            .next()
            .is_some_and(|word| word == "part" || is_split(word));
        begins && words.all(|word| word == "of" || is_number(word))
    };
    let is_rows = match name.split_once('.') {
        Some((name, "parquet" | "tar")) => is_part(name),
        Some(("shard", rest)) => {
            let number = rest.strip_suffix(".mds.zstd");
            let number = number.or_else(|| rest.strip_suffix(".mds"));
            number.is_some_and(is_number)
        }
        _ => false,
    };
    is_folder && (is_rows || is_description)
}

fn is_number(word: &str) -> bool {
    word.len() >= 5 && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true for the path of a file with rows.
fn is_data(path: &str) -> bool {
    let path = path.rsplit_once('/').map_or(path, |(_, name)| name);
    let name = of_incoming(path).unwrap_or(path);
    [".parquet", ".tar", ".mds", ".mds.zstd"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// Removes the temporary files of a killed export on a local disk. Errors are left to the writes that follow.
fn remove_leftovers(folder: &Path) {
    let below = Split::ALL.iter().map(|split| folder.join(split.as_str()));
    for folder in below.chain([folder.to_owned(), folder.join("data")]) {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                fs::remove_file(entry.path()).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_exports_give_are_taken_for_files_of_a_killed_one() {
        for own in [
            "part-00000.parquet",
            "train/part-00012.parquet",
            "train/.part-00012.parquet.incoming",
            "data/test-00000-of-00002.parquet",
            "data/.test-00000.parquet.incoming",
            "validation-000003.tar",
            "train/shard.00001.mds",
            "train/.shard.00001.mds.zstd.incoming",
            "README.md",
            "train/index.json",
            "_feedline_transform.json",
        ] {
            assert!(is_export_file(own), "{own}");
        }
        for foreign in [
            "mine.parquet",
            "part-mine.parquet",
            "data/train.csv",
            "other/part-00000.parquet",
            "train-old.tar",
            "shard.mine.mds",
            "notes.incoming",
            ".notes.txt.incoming",
        ] {
            assert!(!is_export_file(foreign), "{foreign}");
        }
    }
}
