//! Checking the settings that all kinds of sources share.

mod config_hash;

use feedline_http::has_user_info;
use feedline_schemas::{
    commit::Position,
    config::{ContractConfig, PipelineConfig, SourceConfig, SourceKind},
    csv_cell,
    ids::Name,
};

pub(crate) use self::config_hash::config_hash;
use crate::{
    backfill, children,
    contract::is_format,
    due_times::DueTimes,
    error::Error,
    source_table::{source_type, unit_of},
    source_type::ReadUnit,
};

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
            .and_then(|()| backfill::check(source, &config.source))
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
    check_user_info(source)?;
    check_manners(source)?;
    check_contract(&source.contract)?;
    csv_cell::check(&source.csv).map_err(|(key, reason)| Error::config(key, reason))?;
    check_idle_keys(source)?;
    source_type(source).check(source)?;
    if !source.refresh.is_never() && source.incremental.is_some() {
        let reason = "reads everything again, and `incremental` asks for what is new alone; remove one of them";
        return Err(Error::config("refresh", reason));
    }
    if let Some(schedule) = &source.schedule {
        DueTimes::new(schedule)?;
    }
    check_ranges(source)
}

/// Refuses a user and a password in a URL: URLs are in logs, messages and warnings.
fn check_user_info(source: &SourceConfig) -> Result<(), Error> {
    let labels = source.idx.labels.as_deref().unwrap_or_default();
    let start = source
        .crawl
        .start
        .iter()
        .map(|url| ("crawl.start", url.as_str()));
    let sitemaps = source.crawl.sitemaps.iter();
    let sitemaps = sitemaps.map(|url| ("crawl.sitemaps", url.as_str()));
    let urls = [("url", source.url.as_str()), ("idx.labels", labels)];
    let mut urls = urls.into_iter().chain(start).chain(sitemaps);
    let Some((key, url)) = urls.find(|(_, url)| has_user_info(url)) else {
        return Ok(());
    };
    let begin = url.get(.."http".len()).unwrap_or_default();
    let is_web = begin.eq_ignore_ascii_case("http");
    let remedy = match source.r#type {
        SourceKind::Html => {
            "set `headers = { Authorization = { env = \"VARIABLE\", prefix = \"Basic \" } }`, with the base64 form of `USER:PASSWORD` in `VARIABLE`"
        }
        SourceKind::Files if !is_web => {
            "set the environment variables of the store, such as `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`"
        }
        SourceKind::Files | SourceKind::Rest => {
            "set `auth = { type = \"basic\", user = \"USER\", password = { env = \"VARIABLE\" } }`"
        }
    };
    let reason = format!(
        "has a user or a password before its host, and URLs are shown in logs and messages; remove what is between `://` and the host, and {remedy}"
    );
    Err(Error::config(key, reason))
}

/// Refuses `slices` and `for_each` for sources without pages of a list.
fn check_ranges(source: &SourceConfig) -> Result<(), Error> {
    let given = [
        ("slices", source.slices.is_some()),
        ("for_each", source.for_each.is_some()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((key, _)) if unit_of(source) != ReadUnit::Page => Err(Error::config(
            *key,
            "is for sources of the type `rest`; remove it",
        )),
        _ => Ok(()),
    }
}

/// Refuses keys that have no effect for such a source of its type.
fn check_idle_keys(source: &SourceConfig) -> Result<(), Error> {
    let keys: [(&str, bool, &str); 5] = [
        (
            "params",
            source.params.is_empty(),
            "`rest`, and for one file of `files` over http(s)",
        ),
        (
            "headers",
            source.headers.is_empty(),
            "`rest` and `html`, and for `files` over http(s)",
        ),
        (
            "auth",
            source.auth.is_none(),
            "`rest`, and for `files` over http(s)",
        ),
        (
            "limits",
            source.limits.is_default(),
            "`rest` and `html`, and for `files` over http(s) or with `fetch`",
        ),
        (
            "tls",
            source.tls.is_none(),
            "`rest` and `html`, and for `files` over http(s) or with `fetch`",
        ),
    ];
    for (key, is_default, types) in keys {
        if !is_default && !source_type(source).uses_key(source, key) {
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
    source_type(source).looks_for_more(source)
}

/// Returns true if the next run of a source at `position` sends requests: it has not been read to its
/// end, it may have more, or pages of a crawl failed and are requested again.
pub(crate) fn has_requests(source: &SourceConfig, position: &Position) -> bool {
    let is_done = matches!(position, Position::Done { .. });
    !is_done || looks_for_more(source) || failed_pages(position) > 0
}

/// Number of pages of a crawl that failed and that the next run requests again.
pub(crate) fn failed_pages(position: &Position) -> u64 {
    let failed = position.failed_pages();
    failed.map_or(0, |failed| failed.numbers.len() as u64)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    const TWO: &str = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"a\"\ntype = \"files\"\nurl = \"x\"\n[[source]]\nname = \"b\"\ntype = \"rest\"\nurl = \"http://h/\"\n";

    pub(super) fn pipeline(overrides: &[&str]) -> PipelineConfig {
        let overrides: Vec<_> = overrides.iter().map(|text| text.parse().unwrap()).collect();
        load("p", TWO, &overrides).unwrap().config
    }

    #[test]
    fn a_user_in_a_url_is_refused_with_the_key_for_it_and_without_the_password() {
        let check = |key: &str, url: &str, remedy: &str| {
            let error = refused(&[&format!("{key}=\"{url}\"")], None);
            let begin = format!("`{key}`: has a user or a password before its host");
            assert!(error.starts_with(&begin), "{error}");
            assert!(error.contains(remedy), "{error}");
            assert!(!error.contains("canary"), "{error}");
        };
        let auth = "`auth = { type = \"basic\", user = \"USER\"";
        check("source.0.url", "http://u:canary@h/dav/*.csv", auth);
        check(
            "source.0.url",
            "s3://KEY:can/ary@b/*.csv",
            "`AWS_SECRET_ACCESS_KEY`",
        );
        check("source.1.url", "https://canary@h/", auth);
        check(
            "source.0.idx.labels",
            "gs://u:canary@h/l",
            "environment variables",
        );
        let error = refused(
            &[
                "source.1.type=\"html\"",
                "source.1.url=\"http://u:canary@h/\"",
            ],
            None,
        );
        assert!(error.contains("`headers = { Authorization"), "{error}");
        for url in [
            "file:///data/a@b.csv",
            "abfss://lake@a.dfs.core.windows.net/x.csv",
        ] {
            let config = pipeline(&[&format!("source.0.url=\"{url}\"")]);
            assert!(choose(&config, None).is_ok(), "{url}");
        }
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
            ("0.schedule", "{}", "has no time"),
            ("1.schedule.cron", "'61 * * * *'", "no cron expression"),
            ("1.schedule.cron", "'0 2 31 2 *'", "never comes"),
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
        let hosts = ["source.1.type=html", "source.1.crawl.hosts=['http://h/']"];
        let message = refused(&hosts, None);
        assert!(
            message.starts_with("`source.1.crawl.hosts.0`: `http://h/` is no host"),
            "{message}"
        );
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
}
