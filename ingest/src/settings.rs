//! Checking the settings that all kinds of sources share.

use feedline_schemas::{
    config::{
        Bounded, ContractConfig, CrawlConfig, CsvConfig, NullSpellings, Pagination,
        PaginationConfig, PipelineConfig, Refresh, SourceConfig, SourceKind, TextOrSecret,
    },
    csv_cell,
    ids::{Hash128, Name},
};

use crate::{children, contract::is_format, error::Error, ledger, request_settings};

/// The sources to run, with their index in the configuration.
pub(crate) fn choose<'a>(
    config: &'a PipelineConfig,
    only: Option<&Name>,
) -> Result<Vec<(usize, &'a SourceConfig)>, Error> {
    let names: Vec<&str> = config
        .source
        .iter()
        .map(|source| source.name.as_str())
        .collect();
    for (i, source) in config.source.iter().enumerate() {
        if names[..i].contains(&source.name.as_str()) {
            let reason = format!(
                "`{}` is the name of another source already, choose a name of its own",
                source.name
            );
            return Err(Error::config(format!("source.{i}.name"), reason));
        }
        check(source)
            .and_then(|()| ledger::check(source, &config.source))
            .map_err(|e| e.under(&format!("source.{i}")))?;
    }
    let chosen: Vec<_> = config
        .source
        .iter()
        .enumerate()
        .filter(|(_, source)| only.is_none_or(|only| *only == source.name))
        .collect();
    match only {
        _ if names.is_empty() => Err(Error::config(
            "source",
            "the pipeline has no `[[source]]` to ingest, add one",
        )),
        Some(only) if chosen.is_empty() => Err(Error::config(
            "source",
            format!(
                "no source is called `{only}`; there are: {}",
                names.join(", ")
            ),
        )),
        _ => Ok(chosen),
    }
}

/// The source called `name`, with its index.
pub(crate) fn one<'a>(
    config: &'a PipelineConfig,
    name: &Name,
) -> Result<(usize, &'a SourceConfig), Error> {
    let chosen = choose(config, Some(name))?;
    chosen
        .into_iter()
        .next()
        .ok_or_else(|| Error::config("source", format!("no source is called `{name}`")))
}

/// Settings that every kind of source shares.
fn check(source: &SourceConfig) -> Result<(), Error> {
    check_manners(source)?;
    check_contract(&source.contract)?;
    csv_cell::check(&source.csv).map_err(|(key, reason)| Error::config(key, reason))?;
    check_idle_keys(source)?;
    request_settings::check(source)?;
    if !source.refresh.is_never() && source.incremental.is_some() {
        let reason = "reads everything again, and `incremental` asks for what is new alone; remove one of them";
        return Err(Error::config("refresh", reason));
    }
    Ok(())
}

/// Refuses keys that have no effect for such a source of its type.
fn check_idle_keys(source: &SourceConfig) -> Result<(), Error> {
    use SourceKind::Files;
    let kind = source.r#type;
    // A single file with a query is requested like an API.
    let downloads =
        kind == Files && source.is_web() && (source.url.contains('?') || !source.params.is_empty());
    let keys: [(&str, bool, bool, &str); 4] = [
        (
            "params",
            source.params.is_empty(),
            kind != Files || downloads,
            "`rest`, and for one file of `files` over http(s)",
        ),
        (
            "headers",
            source.headers.is_empty(),
            kind != Files || source.is_web(),
            "`rest` and `html`, and for `files` over http(s)",
        ),
        (
            "limits",
            source.limits.is_default(),
            kind != Files || source.is_foreign(),
            "`rest` and `html`, and for `files` over http(s) or with `fetch`",
        ),
        (
            "tls",
            source.tls.is_none(),
            kind != Files || source.is_foreign(),
            "`rest` and `html`, and for `files` over http(s) or with `fetch`",
        ),
    ];
    for (key, is_default, is_used, types) in keys {
        if !is_default && !is_used {
            let reason =
                format!("is for sources of the types {types}, and does nothing here; remove it");
            return Err(Error::config(key, reason));
        }
    }
    Ok(())
}

/// Settings of the contract.
fn check_contract(contract: &ContractConfig) -> Result<(), Error> {
    children::tables(contract)?;
    match contract.dates.iter().find(|format| !is_format(format)) {
        None => Ok(()),
        Some(format) => Err(Error::config(
            "contract.dates",
            format!(
                "`{format}` is no format of points in time: use `rfc3339`, or a pattern such as `%Y-%m-%d %H:%M:%S`"
            ),
        )),
    }
}

fn check_manners(source: &SourceConfig) -> Result<(), Error> {
    let limits = &source.limits;
    if limits.burst.is_some() && limits.requests_per_s.is_none() {
        let reason = "nothing is held back without `limits.requests_per_s`; set it, or remove this";
        return Err(Error::config("limits.burst", reason));
    }
    if let Some(host) = source
        .private_hosts
        .iter()
        .find(|host| url::Host::parse(host).is_err() && host.parse::<std::net::Ipv6Addr>().is_err())
    {
        let reason = format!(
            "`{host}` is no host; write a name or an address alone, such as `wiki.corp` or `10.0.0.7`"
        );
        return Err(Error::config("private_hosts", reason));
    }
    Ok(())
}

/// Returns true if a source may have more to read after a complete run.
pub(crate) fn looks_for_more(source: &SourceConfig) -> bool {
    match source.r#type {
        SourceKind::Files => true,
        SourceKind::Html => !source.crawl.refresh.is_never(),
        SourceKind::Rest => {
            source.incremental.is_some()
                || !source.refresh.is_never()
                || source.slices.is_some()
                || source.for_each.is_some()
        }
    }
}

/// Hash of the settings that decide which data is fetched and how it is parsed. Settings that only
/// bound, retry or batch may change between runs, and so may secrets.
pub(crate) fn config_hash(config: &SourceConfig) -> Hash128 {
    let SourceConfig { url, records, .. } = config;
    // Tuples: their order is fixed here, and a new setting must not change the hash of
    // configurations without it.
    let decisive = match config.r#type {
        SourceKind::Rest => {
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
            let lists = ledger::hashed(config);
            let all = if !lists.is_empty() {
                serde_json::to_vec(&(plain, kind, bound, lists))
            } else if kind.is_empty() && bound.is_none() {
                serde_json::to_vec(&plain)
            } else {
                serde_json::to_vec(&(plain, kind, bound))
            };
            let request = request_settings::hashed(config);
            let all = match request.is_empty() {
                true => all,
                false => all.map(|all| [&all[..], b"\0request ", &request].concat()),
            };
            let response = request_settings::hashed_response(config);
            match response.is_empty() {
                true => all,
                false => all.map(|all| [&all[..], b"\0response ", &response].concat()),
            }
        }
        SourceKind::Html => {
            let crawl = CrawlConfig {
                delay_ms: Bounded::default(),
                max_crawl_delay_s: Bounded::default(),
                concurrency: 0,
                refresh: Refresh::Never,
                contact: None,
                ..config.crawl.clone()
            };
            serde_json::to_vec(&("html", url, crawl, &config.page))
        }
        SourceKind::Files => {
            let csv = (&config.csv.delimiter, &config.csv.null_values);
            let plain = ("files", url, records, config.format, csv);
            let fetch = config.fetch.as_ref();
            let fetch = fetch.map(|fetch| ("fetch", &fetch.column, &fetch.into));
            let all = match (&config.idx.labels, &config.text.separator, fetch) {
                (None, None, None) => serde_json::to_vec(&plain),
                (labels, separator, None) => serde_json::to_vec(&(plain, (labels, separator))),
                (.., fetch) => serde_json::to_vec(&(plain, fetch)),
            };
            // A JSON document never continues after its end.
            let all = match &config.archive.member {
                None => all,
                Some(member) => all.map(|all| [&all[..], b"\0member ", member.as_bytes()].concat()),
            };
            let all = match config.params.is_empty() {
                true => all,
                false => {
                    let params = serde_json::to_vec(&config.params);
                    all.and_then(|all| Ok([all, b"\0params ".to_vec(), params?].concat()))
                }
            };
            let dialect = CsvConfig {
                delimiter: None,
                null_values: Vec::new(),
                null_spellings: NullSpellings::default(),
                ..config.csv.clone()
            };
            if dialect == CsvConfig::default() {
                all
            } else {
                let dialect = serde_json::to_vec(&dialect);
                all.and_then(|all| Ok([all, b"\0csv ".to_vec(), dialect?].concat()))
            }
        }
    };
    Hash128::of(&decisive.expect("settings have string keys and finite numbers"))
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
    use feedline_schemas::config::load;

    use super::*;

    const TWO: &str = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"a\"\ntype = \"files\"\nurl = \"x\"\n[[source]]\nname = \"b\"\ntype = \"rest\"\nurl = \"http://h/\"\n";

    fn pipeline(overrides: &[&str]) -> PipelineConfig {
        let overrides: Vec<_> = overrides.iter().map(|text| text.parse().unwrap()).collect();
        load("p", TWO, &overrides).unwrap().config
    }

    fn refused(overrides: &[&str], only: Option<&str>) -> String {
        let only = only.map(|name| Name::new(name).unwrap());
        choose(&pipeline(overrides), only.as_ref())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn sources_are_chosen_by_name_in_order() {
        let config = pipeline(&[]);
        let chosen = |only: Option<&str>| {
            let only = only.map(|name| Name::new(name).unwrap());
            choose(&config, only.as_ref())
                .unwrap()
                .into_iter()
                .map(|(i, _)| i)
                .collect::<Vec<_>>()
        };
        assert_eq!(chosen(None), [0, 1]);
        assert_eq!(chosen(Some("b")), [1]);
    }

    #[test]
    fn what_cannot_be_run_names_its_key() {
        assert_eq!(
            refused(&[], Some("c")),
            "`source`: no source is called `c`; there are: a, b"
        );
        assert_eq!(
            refused(&["source.1.name=a"], None),
            "`source.1.name`: `a` is the name of another source already, choose a name of its own"
        );
        for (key, value, range) in [
            ("0.csv.thousands_separator", "'.'", "declare both"),
            ("1.limits.burst", "5", "nothing is held back"),
            ("1.private_hosts", "['http://a/']", "is no host"),
            ("0.tls", "{ca={file='ca.pem'}}", "does nothing here"),
        ] {
            let message = refused(&[&format!("source.{key}={value}")], None);
            assert!(
                message.starts_with(&format!("`source.{key}`: ")) && message.contains(range),
                "{message}"
            );
        }
        for (idle, key) in [
            ("source.0.limits.requests_per_s=1", "limits"),
            ("source.0.params.q='1'", "params"),
            ("source.0.headers.h=v", "headers"),
        ] {
            let (index, refused) = (&idle[..8], refused(&[idle], None));
            assert!(
                refused.starts_with(&format!("`{index}.{key}`: ")),
                "{refused}"
            );
            assert!(refused.contains("does nothing"), "{refused}");
        }
        let both = [
            "source.1.refresh=if_changed",
            "source.1.incremental={cursor='c',param='p'}",
        ];
        assert!(refused(&both, None).starts_with("`source.1.refresh`: reads everything again"));
        assert_eq!(
            refused(&["source=[]"], None),
            "`source`: the pipeline has no `[[source]]` to ingest, add one"
        );
    }

    #[test]
    fn sources_that_ask_for_more_when_they_are_complete_are_told() {
        let check = |overrides: &[&str], expected: bool| {
            assert_eq!(
                looks_for_more(&pipeline(overrides).source[1]),
                expected,
                "{overrides:?}"
            );
        };
        check(&[], false);
        check(&["source.1.refresh=if_changed"], true);
        check(&["source.1.incremental={cursor='c',param='p'}"], true);
        check(&["source.1.type=html"], false);
        check(
            &["source.1.type=html", "source.1.crawl.refresh=if_changed"],
            true,
        );
    }

    #[test]
    fn the_hash_of_settings_that_were_there_before_stays() {
        let config = pipeline(&["source.1.params.q='1'", "source.1.pagination.type=cursor"]);
        let hash = config_hash(&config.source[1]);
        assert_eq!(hash.to_string(), "0e4b83b6df0d4603edc6762c2b6b8456");
    }

    #[test]
    fn the_hash_covers_what_is_fetched_and_nothing_else() {
        let hash =
            |index: usize, overrides: &[&str]| config_hash(&pipeline(overrides).source[index]);
        for other in [
            "url=y",
            "records=r",
            "format=csv",
            "csv.null_values=['NA']",
            "csv.decimal_separator=','",
            "csv.percent=true",
            "idx.labels=l",
            "text.separator='--'",
            "archive.member='*.csv'",
        ] {
            assert_ne!(
                hash(0, &[]),
                hash(0, &[&format!("source.0.{other}")]),
                "{other}"
            );
        }
        for same in [
            "batch.rows=3",
            "contract.types=widen",
            "infer.rows=5",
            "csv.null_spellings=none",
            "archive.max_ratio=7",
            "licence=MIT",
        ] {
            assert_eq!(
                hash(0, &[]),
                hash(0, &[&format!("source.0.{same}")]),
                "{same}"
            );
        }
        for other in [
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
        ] {
            assert_ne!(
                hash(1, &[]),
                hash(1, &[&format!("source.1.{other}")]),
                "{other}"
            );
        }
        let offset = |more: &[&str]| {
            let all = ["source.1.pagination.type=offset"].into_iter();
            hash(1, &all.chain(more.iter().copied()).collect::<Vec<_>>())
        };
        assert_ne!(
            offset(&[]),
            offset(&["source.1.pagination.offset_param=skip"])
        );
        assert_ne!(offset(&[]), offset(&["source.1.pagination.first_offset=1"]));
        let page = |overrides: &[&str]| {
            let all = ["source.1.type=html"]
                .into_iter()
                .chain(overrides.iter().copied());
            hash(1, &all.collect::<Vec<_>>())
        };
        for other in ["crawl.depth=1", "crawl.allow=['/a']", "page.land=['/a']"] {
            assert_ne!(page(&[]), page(&[&format!("source.1.{other}")]), "{other}");
        }
        for same in [
            "crawl.delay_ms=1",
            "crawl.contact='x'",
            "crawl.concurrency=2",
            "crawl.refresh=if_changed",
        ] {
            assert_eq!(page(&[]), page(&[&format!("source.1.{same}")]), "{same}");
        }
        for same in [
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
        ] {
            assert_eq!(
                hash(1, &[]),
                hash(1, &[&format!("source.1.{same}")]),
                "{same}"
            );
        }
    }
}
