//! Hash of the settings that decide which data is fetched.

use feedline_schemas::{
    config::{
        Bounded, CrawlConfig, CsvConfig, NullSpellings, Pagination, PaginationConfig, Refresh,
        SourceConfig, SourceKind, TextOrSecret,
    },
    ids::Hash128,
};

use crate::{backfill, request_settings};

/// Hash of the settings that decide which data is fetched and how it is parsed. Settings that only
/// bound, retry or batch may change between runs, and so may secrets.
pub(crate) fn config_hash(config: &SourceConfig) -> Hash128 {
    let decisive = match config.r#type {
        SourceKind::Rest => encode_api(config),
        SourceKind::Html => encode_crawl(config),
        SourceKind::Files => encode_files(config),
    };
    Hash128::of(&decisive.expect("settings have string keys and finite numbers"))
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
            append(&mut all, name, &part);
        }
    }
    Ok(all)
}

fn encode_crawl(config: &SourceConfig) -> serde_json::Result<Vec<u8>> {
    let crawl = CrawlConfig {
        delay_ms: Bounded::default(),
        max_crawl_delay_s: Bounded::default(),
        concurrency: 0,
        refresh: Refresh::Never,
        contact: None,
        ..config.crawl.clone()
    };
    serde_json::to_vec(&("html", &config.url, crawl, &config.page))
}

fn encode_files(config: &SourceConfig) -> serde_json::Result<Vec<u8>> {
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
        append(&mut all, "member", member.as_bytes());
    }
    if !config.params.is_empty() {
        append(&mut all, "params", &serde_json::to_vec(&config.params)?);
    }
    let dialect = CsvConfig {
        delimiter: None,
        null_values: Vec::new(),
        null_spellings: NullSpellings::default(),
        ..config.csv.clone()
    };
    if dialect != CsvConfig::default() {
        append(&mut all, "csv", &serde_json::to_vec(&dialect)?);
    }
    Ok(all)
}

/// Adds a part after the settings of the first version: a JSON document never continues after its
/// end.
fn append(all: &mut Vec<u8>, name: &str, part: &[u8]) {
    all.push(0);
    all.extend_from_slice(name.as_bytes());
    all.push(b' ');
    all.extend_from_slice(part);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::pipeline;

    /// Hash of the source `index`, a `files` source at 0 and a `rest` source at 1.
    fn hash(index: usize, settings: &[&str]) -> Hash128 {
        let settings = settings
            .iter()
            .map(|setting| format!("source.{index}.{setting}"));
        let settings: Vec<String> = settings.collect();
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        config_hash(&pipeline(&settings).source[index])
    }

    /// Checks that each of `other` changes the hash of a source with the settings `base`, and each
    /// of `same` does not.
    fn check(index: usize, base: &[&str], other: &[&str], same: &[&str]) {
        let with = |setting: &str| hash(index, &[base, &[setting]].concat());
        let plain = hash(index, base);
        for other in other {
            assert_ne!(plain, with(other), "{other}");
        }
        for same in same {
            assert_eq!(plain, with(same), "{same}");
        }
    }

    #[test]
    fn the_hash_of_settings_that_were_there_before_stays() {
        let config = pipeline(&["source.1.params.q='1'", "source.1.pagination.type=cursor"]);
        let hash = config_hash(&config.source[1]);
        assert_eq!(hash.to_string(), "0e4b83b6df0d4603edc6762c2b6b8456");
    }

    #[test]
    fn the_hash_of_files_covers_what_is_read_and_nothing_else() {
        let other = [
            "url=y",
            "records=r",
            "format=csv",
            "csv.null_values=['NA']",
            "csv.decimal_separator=','",
            "csv.percent=true",
            "idx.labels=l",
            "text.separator='--'",
            "archive.member='*.csv'",
        ];
        let same = [
            "batch.rows=3",
            "contract.types=widen",
            "infer.rows=5",
            "csv.null_spellings=none",
            "archive.max_ratio=7",
            "licence=MIT",
        ];
        check(0, &[], &other, &same);
    }

    #[test]
    fn the_hash_of_an_api_covers_what_is_fetched_and_nothing_else() {
        let other = [
            "url=http://i/",
            "params.q='1'",
            "headers.h=v",
            "pagination.type=page",
            "pagination.page_size=7",
            "pagination.type=link",
            "incremental={cursor='c',param='p'}",
            "method=POST",
            "graphql={query='{ a }'}",
            "response.format=csv",
            "csv.delimiter=';'",
        ];
        let same = [
            "limits.requests_per_s=2.5",
            "private_hosts=['a.corp']",
            "trust_proxy=true",
            "tls={ca={file='ca.pem'}}",
            "headers.h={env='H'}",
            "pagination.max_pages=3",
            "retry.max_tries=2",
            "auth={type='bearer',secret={env='T'}}",
            "error_path='error'",
            "refresh=if_changed",
            "archive_raw=true",
            "pagination.max_records=9",
            "pagination.total_path='n'",
        ];
        check(1, &[], &other, &same);
        let offset = ["pagination.offset_param=skip", "pagination.first_offset=1"];
        check(1, &["pagination.type=offset"], &offset, &[]);
    }

    #[test]
    fn the_hash_of_a_crawl_covers_its_pages_and_not_its_pace() {
        let other = ["crawl.depth=1", "crawl.allow=['/a']", "page.land=['/a']"];
        let same = [
            "crawl.delay_ms=1",
            "crawl.contact='x'",
            "crawl.concurrency=2",
            "crawl.refresh=if_changed",
        ];
        check(1, &["type=html"], &other, &same);
    }
}
