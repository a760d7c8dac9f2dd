//! The type `rest`.

use async_trait::async_trait;
use feedline_schemas::{
    commit::Position,
    config::{CsvConfig, Pagination, PaginationConfig, SourceConfig, TextOrSecret},
    report::Warning,
};

use super::has_cells;
use crate::{
    backfill,
    context::Context,
    error::Error,
    request_settings,
    source::Source,
    source_type::{EarlierReadings, ReadUnit, SourceType, append_settings},
    watermark::Incremental,
};

/// Pages of APIs.
#[derive(Debug)]
pub(crate) struct RestType;

#[async_trait]
impl SourceType for RestType {
    async fn open(
        &self,
        config: &SourceConfig,
        context: &Context,
    ) -> Result<Box<dyn Source>, Error> {
        super::open(config, context).await
    }

    fn check(&self, config: &SourceConfig) -> Result<(), Error> {
        request_settings::check(config)
    }

    fn unit(&self) -> ReadUnit {
        ReadUnit::Page
    }

    fn own_keys(&self) -> &'static [&'static str] {
        &[
            "records",
            "params",
            "headers",
            "method",
            "body",
            "params_in",
            "graphql",
            "response",
            "csv",
            "pagination",
            "incremental",
            "slices",
            "for_each",
        ]
    }

    fn is_idle(&self, config: &SourceConfig, key: &str) -> bool {
        // Most APIs have no tables.
        key.starts_with("csv.") && config.csv == CsvConfig::default()
    }

    fn uses_key(&self, _: &SourceConfig, _: &str) -> bool {
        true
    }

    fn encode_settings(&self, config: &SourceConfig) -> serde_json::Result<Vec<u8>> {
        encode_api(config)
    }

    fn looks_for_more(&self, config: &SourceConfig) -> bool {
        config.incremental.is_some()
            || !config.refresh.is_never()
            || config.slices.is_some()
            || config.for_each.is_some()
    }

    fn recheck_keys(&self, config: &SourceConfig) -> &'static [&'static str] {
        // Conditional requests exist for GET alone.
        match config.method.is_get() && config.graphql.is_none() {
            true => &["refresh", "incremental"],
            false => &["incremental"],
        }
    }

    fn describe_next_run(&self, config: &SourceConfig, earlier: &EarlierReadings<'_>) -> String {
        let since = config.incremental.as_ref().map(|incremental| {
            let incremental = Incremental::new(incremental)?;
            let next = incremental.next_run(earlier.run, earlier.highs, earlier.now)?;
            Ok::<_, Error>(next.since)
        });
        let interrupted = earlier.run.interrupted.as_ref();
        let again = match interrupted.is_some_and(|before| before.high != earlier.run.high) {
            true => {
                ", and those again that may have changed while the last page run was interrupted"
            }
            false => "",
        };
        match since {
            Some(Ok(Some(since))) => format!("requests new records since `{since}`{again}"),
            Some(Err(error)) => format!("fails: {error}"),
            Some(Ok(None)) | None => "requests new records".to_owned(),
        }
    }

    fn rejects_have_cells(
        &self,
        config: &SourceConfig,
        warnings: &[Warning],
        _: &Position,
    ) -> Result<bool, Error> {
        let has_warning = |code: &str| warnings.iter().any(|warning| warning.code == code);
        Ok(has_cells(config, has_warning))
    }

    fn decodes_csv(
        &self,
        config: &SourceConfig,
        warnings: &[Warning],
        position: &Position,
    ) -> bool {
        let has_cells = self.rejects_have_cells(config, warnings, position);
        has_cells.unwrap_or_default()
    }
}

// Settings are encoded as tuples: their order is fixed here, and a new setting must not change the
// hash of configurations without it.

fn encode_api(config: &SourceConfig) -> serde_json::Result<Vec<u8>> {
    let SourceConfig { url, records, .. } = config;
    let headers: Vec<_> = config
        .headers
        .iter()
        .filter(|(_, value)| matches!(value, TextOrSecret::Text(_)))
        .collect();
    let pages = page_settings(&config.pagination);
    let plain = ("rest", url, records, &config.params, headers, pages);
    let kind = kind_settings(&config.pagination);
    let bound = config.incremental.as_ref();
    let bound = bound.map(|bound| (&bound.cursor, &bound.param, &bound.start));
    let lists = backfill::hashed(config);
    let mut all = if !lists.is_empty() {
        serde_json::to_vec(&(plain, kind, bound, lists))
    } else if kind.is_empty() && bound.is_none() {
        serde_json::to_vec(&plain)
    } else {
        serde_json::to_vec(&(plain, kind, bound))
    }?;
    for (name, part) in [
        ("request", request_settings::hashed(config)),
        ("response", request_settings::hashed_response(config)),
    ] {
        if !part.is_empty() {
            append_settings(&mut all, name, &part);
        }
    }
    Ok(all)
}

/// Settings of a kind of pagination that decide which data is fetched, except those of every kind.
fn page_settings(config: &PaginationConfig) -> impl serde::Serialize {
    let (page_param, first_page) = match &config.way {
        Pagination::Page(keys) => (keys.page_param.as_str(), keys.first_page),
        _ => ("page", 1),
    };
    let (cursor_param, cursor_path) = match &config.way {
        Pagination::Cursor(keys) => (keys.cursor_param.as_str(), keys.cursor_path.as_str()),
        Pagination::HeaderCursor(keys) => (keys.cursor_param.as_str(), "next_cursor"),
        _ => ("cursor", "next_cursor"),
    };
    (
        config.way.kind(),
        page_param,
        first_page,
        config.common.page_size,
        &config.common.size_param,
        cursor_param,
        cursor_path,
    )
}

/// Settings of a kind of pagination that decide what is fetched, but for those of [`page_settings`].
fn kind_settings(config: &PaginationConfig) -> Vec<String> {
    match &config.way {
        Pagination::None(_) | Pagination::Page(_) | Pagination::Cursor(_) | Pagination::Link(_) => {
            Vec::new()
        }
        Pagination::Offset(keys) => vec![keys.offset_param.clone(), keys.first_offset.to_string()],
        Pagination::HeaderCursor(keys) => vec![keys.cursor_header.clone()],
        Pagination::NextUrl(keys) => vec![keys.next_path.clone()],
        Pagination::Keyset(keys) => vec![
            keys.time_path.clone(),
            keys.time_param.clone(),
            keys.key_path.clone(),
            keys.key_param.clone().unwrap_or_default(),
        ],
    }
}
