//! The type `files`, with or without `fetch`.

use async_trait::async_trait;
use feedline_readers::file_format::{Kind, named};
use feedline_schemas::{
    commit::Position,
    config::{CsvConfig, FileFormat, NullSpellings, SourceConfig},
    report::Warning,
};

use crate::{
    context::Context,
    error::Error,
    fetch,
    source::Source,
    source_type::{EarlierReadings, ReadUnit, SourceType, append_settings},
};

/// Files, and the files that their rows name.
#[derive(Debug)]
pub(crate) struct FilesType;

#[async_trait]
impl SourceType for FilesType {
    async fn open(
        &self,
        config: &SourceConfig,
        context: &Context,
    ) -> Result<Box<dyn Source>, Error> {
        match &config.fetch {
            None => super::open(config, context),
            Some(fetch) => fetch::open(config, fetch, context),
        }
    }

    fn check(&self, _: &SourceConfig) -> Result<(), Error> {
        Ok(())
    }

    fn unit(&self) -> ReadUnit {
        ReadUnit::File
    }

    fn own_keys(&self) -> &'static [&'static str] {
        &[
            "records", "csv", "format", "idx", "text", "archive", "fetch", "files",
        ]
    }

    fn is_idle(&self, _: &SourceConfig, _: &str) -> bool {
        false
    }

    fn uses_key(&self, config: &SourceConfig, key: &str) -> bool {
        match key {
            // A single file with a query is requested like an API.
            "params" => config.is_web() && (config.url.contains('?') || !config.params.is_empty()),
            "headers" | "auth" => config.is_web(),
            "limits" | "tls" => config.is_foreign(),
            _ => true,
        }
    }

    fn encode_settings(&self, config: &SourceConfig) -> serde_json::Result<Vec<u8>> {
        let SourceConfig { url, records, .. } = config;
        let csv = (&config.csv.delimiter, &config.csv.null_values);
        let plain = ("files", url, records, config.format, csv);
        let fetch = config.fetch.as_ref();
        let fetch = fetch.map(|fetch| ("fetch", &fetch.column, &fetch.into));
        let mut all = match (&config.idx.labels, &config.text.separator, fetch) {
            (None, None, None) => serde_json::to_vec(&plain),
            (labels, separator, None) => serde_json::to_vec(&(plain, (labels, separator))),
            (.., fetch) => serde_json::to_vec(&(plain, fetch)),
        }?;
        if let Some(member) = &config.archive.member {
            append_settings(&mut all, "member", member.as_bytes());
        }
        if !config.params.is_empty() {
            append_settings(&mut all, "params", &serde_json::to_vec(&config.params)?);
        }
        let dialect = CsvConfig {
            delimiter: None,
            null_values: Vec::new(),
            null_spellings: NullSpellings::default(),
            ..config.csv.clone()
        };
        if dialect != CsvConfig::default() {
            append_settings(&mut all, "csv", &serde_json::to_vec(&dialect)?);
        }
        Ok(all)
    }

    fn looks_for_more(&self, _: &SourceConfig) -> bool {
        true
    }

    fn describe_next_run(&self, _: &SourceConfig, earlier: &EarlierReadings<'_>) -> String {
        format!(
            "reads files that are not among the {} read before",
            earlier.files
        )
    }

    fn rejects_have_cells(
        &self,
        config: &SourceConfig,
        _: &[Warning],
        position: &Position,
    ) -> Result<bool, Error> {
        let kind = named("", config.format, None);
        let is_bytes = config.fetch.is_some() || kind.is_some_and(|(kind, _)| kind.has_bytes());
        let kinds: Vec<Kind> = files_read(position)
            .into_iter()
            .filter_map(|url| named(&url, config.format, None).map(|(kind, _)| kind))
            .collect();
        if is_bytes || kinds.iter().any(|kind| kind.has_bytes()) {
            let reason = "has records with bytes, which `rejects/` stores in a lossy form only; re-read the files with `feedline ingest reread`";
            return Err(Error::config("format", reason));
        }
        let is_csv = |kind: &Kind| matches!(kind, Kind::Csv { .. });
        Ok(config.format == FileFormat::Csv || (!kinds.is_empty() && kinds.iter().all(is_csv)))
    }

    fn decodes_csv(&self, config: &SourceConfig, _: &[Warning], position: &Position) -> bool {
        // A member of an archive is read in the configured format.
        let is_open = matches!(config.format, FileFormat::Auto | FileFormat::Csv);
        let may_be_csv = |url: &str| match named(url, config.format, None) {
            Some((Kind::Csv { .. }, _)) => true,
            Some((Kind::Tar | Kind::Zip, _)) => is_open,
            _ => false,
        };
        may_be_csv(&config.url) || files_read(position).iter().any(|url| may_be_csv(url))
    }
}

/// Files that a position lists, and the current one.
fn files_read(position: &Position) -> Vec<String> {
    let (done, current) = match position {
        Position::File { done, current } => (done, current.as_ref()),
        Position::Done { files, .. } => (files, None),
        Position::Start | Position::Page { .. } => return Vec::new(),
    };
    let current = current.map(|file| file.url.clone());
    done.iter()
        .map(|mark| mark.url.clone())
        .chain(current)
        .collect()
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        commit::{FileMark, PageRun},
        config::load,
        ids::Hash128,
    };

    use super::*;

    #[test]
    fn csv_is_decoded_if_one_of_the_files_may_be_csv() {
        let check = |format: &str, files: &[&str], expected: bool| {
            let text = format!(
                "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"in\"\nformat = \"{format}\"\n"
            );
            let config = load("p", &text, &[]).unwrap().config.source.remove(0);
            let mark = |url: &&str| FileMark {
                url: (*url).to_owned(),
                bytes: 1,
                hash: Hash128::of(url.as_bytes()),
                modified_unix_ms: None,
                etag: None,
            };
            let position = Position::Done {
                pages: 0,
                files: files.iter().map(mark).collect(),
                run: PageRun::default(),
            };
            let found = FilesType.decodes_csv(&config, &[], &position);
            assert_eq!(found, expected, "{format} {files:?}");
        };
        check("auto", &["in/a.csv", "in/b.ndjson"], true);
        check("auto", &["in/a.zip"], true);
        check("auto", &["in/b.ndjson"], false);
        check("auto", &[], false);
        check("text", &["in/a.zip"], false);
    }
}
