//! Changes of a source's settings after records have landed.
//!
//! The log records the settings that decide what is fetched and how it is parsed. They are in its
//! first entry and in each entry after a change. A run compares them with its own before it reads
//! anything. Every change belongs to one of three classes:
//!
//! - Immediate: it takes effect at once and needs no record, since no record of the source depends
//!   on it.
//! - Logged: an amendment of the log records it, with the first entry that it applies to. The
//!   amendment moves the position so that reading resumes without a lost or duplicate record.
//! - Refused, with the commands that resolve it: landed and future records could not be
//!   distinguished.

mod classes;
mod url_user;

use std::{cmp::Ordering, collections::BTreeMap, fmt::Write as _};

use feedline_http::{Secrets, redacted};
use feedline_readers::value::shorten;
use feedline_schemas::{
    amendment::{SettingChange, SettingsRecord},
    commit::{CommitEntry, PageRun, Position},
    config::SourceConfig,
    ids::Hash128,
};
use serde_json::Value;
use tracing::warn;
use url::Url;

use self::{
    classes::{Class, Effect, class_of},
    url_user::{drops_user_info, may_drop_user_info},
};
use crate::{
    commit_log::{Commit, CommitLog},
    contract::{Before, Contract},
    error::Error,
    request_settings::without_references,
    source_table::{has_key, source_type, unit_of},
    source_type::ReadUnit,
    watermark::Mark,
};

/// Maximum length of a displayed value, in characters.
const SHOWN: usize = 60;

/// Settings that the log records, by key: those whose change is logged or refused. Headers,
/// parameters, bodies and queries are recorded as hashes only, since they may contain a key in
/// plain text.
pub(crate) fn recorded(config: &SourceConfig) -> BTreeMap<String, String> {
    let json = |value: serde_json::Result<Value>| {
        value.expect("settings have string keys and finite numbers")
    };
    let mut all = BTreeMap::new();
    flatten("", &json(serde_json::to_value(config)), &mut all);
    // Tables that are omitted where all their values are defaults.
    flatten(
        "crawl",
        &json(serde_json::to_value(&config.crawl)),
        &mut all,
    );
    flatten("page", &json(serde_json::to_value(&config.page)), &mut all);
    for (name, child) in &config.contract.children {
        // A child table without any key still counts as one.
        let path = child.path.clone().unwrap_or_else(|| name.to_string());
        all.insert(format!("contract.children.{name}.path"), path.into());
    }
    let source_type = source_type(config);
    let is_recorded = |key: &str| {
        let class = class_of(key);
        !source_type.is_idle(config, key)
            && has_key(config, key)
            && matches!(class, Some(Class::Logged(_) | Class::Refused(_)))
    };
    all.into_iter()
        .filter(|(key, _)| is_recorded(key))
        .map(|(key, value)| {
            let shown = shown_value(&key, &value);
            (key, shown)
        })
        .collect()
}

/// Collects the leaves of the tables in `value`, by key. A reference to a secret is no leaf: it may
/// change at any time.
fn flatten(path: &str, value: &Value, all: &mut BTreeMap<String, Value>) {
    match value {
        value if matches!(path, "body.json" | "graphql.variables") => {
            all.insert(path.to_owned(), without_references(value));
        }
        Value::Object(fields) => {
            if path.starts_with("headers.") || path.starts_with("body.form.") {
                return;
            }
            for (key, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                flatten(&format!("{path}{dot}{key}"), value, all);
            }
        }
        Value::Null => {}
        value => {
            all.insert(path.to_owned(), value.clone());
        }
    }
}

fn shown_value(key: &str, value: &Value) -> String {
    let text = value.to_string();
    let hash = |text: &str| format!("\"xxh3:{}\"", Hash128::of(text.as_bytes()).short());
    let hashed = [
        "headers.",
        "params.",
        "body.json",
        "body.form.",
        "body.xml",
        "body.text",
        "graphql.query",
        "graphql.variables",
    ];
    if hashed.iter().any(|start| key.starts_with(start)) {
        return hash(&text);
    }
    let url = value.as_str().filter(|_| key == "url");
    match url.and_then(|url| Url::parse(url).ok().map(|parsed| (url, parsed))) {
        Some((url, parsed)) if is_revealing(&parsed) => {
            let shown = format!("{} {}", redacted(&parsed), hash(url).replace('"', ""));
            Value::String(shown).to_string()
        }
        _ => text,
    }
}

/// Returns true if a URL may contain a secret.
fn is_revealing(url: &Url) -> bool {
    url.query().is_some() || !url.username().is_empty() || url.password().is_some()
}

/// Compares the settings with those in the log; logs a change or refuses it.
///
/// # Errors
/// [`Error::Config`] for a refused change, [`Error::Fenced`], [`Error::Storage`].
pub(crate) async fn adopt(
    config: &SourceConfig,
    log: &mut CommitLog,
    secrets: &dyn Secrets,
) -> Result<(), Error> {
    let now = recorded(config);
    let Some(last) = log.last().cloned() else {
        log.record(now);
        return Ok(());
    };
    let Some(before) = log.settings().map(|record| record.values) else {
        check_same(config, log)?;
        log.record(now);
        return Ok(());
    };
    let defaults = defaults(config);
    let mut changes = differences(&before, &now, &defaults);
    if changes.is_empty() {
        return Ok(());
    }
    let mut commit = Commit::amending(&last);
    let totals = &last.state.totals;
    let has_frontier = unit_of(config) == ReadUnit::Url;
    if totals.rows + totals.rejected == 0 && !has_frontier {
        commit.state.position = Position::Start;
        commit.state.marks = Vec::new();
        for change in &mut changes {
            change.effect = "nothing has landed, so reading starts from the beginning".to_owned();
        }
    } else {
        let position = &mut commit.state.position;
        for change in &mut changes {
            change.effect = effect(config, change, position, secrets).map_err(|reason| {
                let way = way_out(config, log, change, &reason);
                Error::config(change.key.clone(), way)
            })?;
        }
        check_contract(config, &last)?;
    }
    let sequence = log.next_sequence();
    for SettingChange { key, effect, .. } in &changes {
        warn!(source = %config.name, %sequence, "`{key}` was changed after records had landed: {effect}");
    }
    commit.settings = Some(SettingsRecord {
        values: now,
        changes,
    });
    log.append(commit).await?;
    // Another cursor changes all entries before.
    log.cover_amendments().await;
    Ok(())
}

/// Refuses a log that has no record of settings and was written with other ones.
///
/// # Errors
/// [`Error::Config`].
pub(crate) fn check_same(config: &SourceConfig, log: &CommitLog) -> Result<(), Error> {
    let is_other = |last: &CommitEntry| last.config_hash != log.config_hash();
    if !log.last().is_some_and(is_other) {
        return Ok(());
    }
    let name = &config.name;
    Err(Error::config(
        "url",
        format!(
            "`{}` was landed with other settings for fetching and parsing (url, records, params, headers, method, body, graphql, pagination, incremental, slices, for_each, crawl, page, format or csv), and its log does not record which; restore the settings, give the source another name, or run `feedline ingest reset PIPELINE.toml {name}`, which saves landed data under another name and re-reads everything",
            log.landing().url()
        ),
    ))
}

/// Default settings of a source of this kind.
fn defaults(config: &SourceConfig) -> BTreeMap<String, String> {
    let bare = serde_json::json!({"name": config.name, "type": config.r#type, "url": config.url});
    serde_json::from_value::<SourceConfig>(bare)
        .map(|bare| recorded(&bare))
        .unwrap_or_default()
}

/// Differences between the settings. A key missing on one side has its default there: it is new in
/// the program, or was omitted.
fn differences(
    before: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
    defaults: &BTreeMap<String, String>,
) -> Vec<SettingChange> {
    let mut keys: Vec<&String> = before.keys().chain(now.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let of = |all: &BTreeMap<String, String>, key: &str| {
        let found = all.get(key).or_else(|| defaults.get(key));
        // An empty list or string equals an omitted key.
        found
            .filter(|value| !matches!(value.as_str(), "[]" | "\"\""))
            .cloned()
    };
    keys.into_iter()
        .filter(|key| class_of(key).is_some())
        .map(|key| SettingChange {
            key: key.clone(),
            before: of(before, key),
            after: of(now, key),
            effect: String::new(),
        })
        .filter(|change| change.before != change.after)
        .collect()
}

/// Message that landed records stay unchanged, with the commands that re-read those of the source.
fn describe_landed(config: &SourceConfig) -> String {
    let reread = match unit_of(config) {
        ReadUnit::File => ", or `ingest reread` with `--file`,",
        ReadUnit::Page if config.slices.is_some() => {
            ", or `ingest reread` with `--from` and `--to`,"
        }
        ReadUnit::Page if config.incremental.is_some() && config.for_each.is_none() => {
            ", or `ingest reread` with `--from`,"
        }
        ReadUnit::Page | ReadUnit::Url => "",
    };
    format!(
        "landed data stays unchanged until `feedline ingest reset PIPELINE.toml SOURCE`{reread} re-reads it"
    )
}

/// Moves `position` to where reading resumes under a change, and describes the effect.
///
/// # Errors
/// The reason for the refusal.
fn effect(
    config: &SourceConfig,
    change: &SettingChange,
    position: &mut Position,
    secrets: &dyn Secrets,
) -> Result<String, String> {
    let effect = match class_of(&change.key) {
        Some(Class::Logged(effect)) => effect,
        Some(Class::Refused(reason)) => return Err(reason.to_owned()),
        Some(Class::Immediate(_)) | None => return Ok(String::new()),
    };
    let is_done = matches!(position, Position::Done { .. });
    let stays = describe_landed(config);
    match effect {
        Effect::Next(what) => Ok(format!("it applies to the reading {what}; {stays}")),
        Effect::Pages if is_done => Ok(format!("it applies to the next page run; {stays}")),
        Effect::Pages => {
            let Position::Page { page, run, .. } = position else {
                return Ok(format!("it applies to the next page; {stays}"));
            };
            if *page == 0 {
                return Ok(format!("it applies to the next page; {stays}"));
            }
            if config.dedup_window() == 0 {
                return Err("the page run would have to restart, and `batch.dedup_window` = 0 would land its records twice".to_owned());
            }
            *position = begin_again(run.clone());
            Ok("the current page run restarts, and its landed records are skipped".to_owned())
        }
        Effect::Incremental => incremental(config, change, position),
        Effect::NextFile => match position {
            Position::File {
                current: Some(file),
                ..
            } => Err(format!(
                "`{}` is being read and {} of its records have landed: finish it with the old value first",
                file.url, file.records
            )),
            _ if unit_of(config) == ReadUnit::Page => Ok(format!(
                "it applies to the reading of the next page; {stays}"
            )),
            _ => Ok(format!("it applies to unread files; {stays}")),
        },
        Effect::Folder if drops_user_info(change, config, secrets) => Ok(format!(
            "it is the same URL without a user and a password; {stays}"
        )),
        Effect::Folder => {
            let folder = |text: &Option<String>| {
                let text = text.as_deref().unwrap_or_default().trim_matches('"');
                let plain = text.find(['*', '?', '[', '{']).unwrap_or(text.len());
                let end = text[..plain].rfind('/').map_or(0, |at| at + 1);
                text[..end].to_owned()
            };
            let is_same = folder(&change.before) == folder(&change.after);
            let is_files = unit_of(config) == ReadUnit::File;
            if is_files && is_same && config.fetch.is_none() {
                Ok(format!(
                    "files that match it and have not been read are read; {stays}"
                ))
            } else if is_files {
                Err("files are known by their addresses, so those of another folder would all be read as new ones".to_owned())
            } else if may_drop_user_info(change, config) {
                Err("another query may be another source, and its cursors are others; values of a query are known by a hash, which includes a user and a password before the host: if only these were removed, run once with `auth = { type = \"basic\", user = \"USER\", password = { env = \"VARIABLE\" } }` of the same two, and it counts as the same URL".to_owned())
            } else {
                Err("another address may be another source, and its cursors are others".to_owned())
            }
        }
    }
}

/// First page of a run of pages that restarts.
fn begin_again(run: PageRun) -> Position {
    Position::Page {
        page: 0,
        cursor: None,
        run: PageRun {
            number: run.number + 1,
            restarted: true,
            records: 0,
            boundary: Vec::new(),
            short: None,
            page_records: 0,
            ..run
        },
    }
}

/// Restarts an incremental source at its start, unless the start only moved forward.
fn incremental(
    config: &SourceConfig,
    change: &SettingChange,
    position: &mut Position,
) -> Result<String, String> {
    let Some(bound) = &config.incremental else {
        return Ok("a source that has been read to its end gets no further requests".to_owned());
    };
    let mark = |text: &Option<String>| {
        let text: String = serde_json::from_str(text.as_deref()?).ok()?;
        Mark::parse(&text).ok()
    };
    if change.key == "incremental.start"
        && let (Some(before), Some(after)) = (mark(&change.before), mark(&change.after))
        && before.compare(&after) == Ok(Ordering::Less)
    {
        return Ok(
            "nothing before it is requested any more; landed data stays unchanged".to_owned(),
        );
    }
    if config.dedup_window() == 0 {
        return Err("reading would have to restart from the beginning, and `batch.dedup_window` = 0 would land records twice".to_owned());
    }
    if let Some(ledger) = position.ledger_mut() {
        ledger.cursors = None;
    }
    match position {
        Position::Page { run, .. } => {
            let anew = PageRun {
                since: bound.start.clone(),
                high: None,
                interrupted: None,
                ..run.clone()
            };
            *position = begin_again(anew);
        }
        Position::Done { run, .. } => {
            (run.since, run.high) = (None, None);
        }
        Position::Start | Position::File { .. } => {}
    }
    Ok(
        "the next page run starts from `incremental.start` again, and landed records are skipped"
            .to_owned(),
    )
}

/// Refuses a declared type that does not fit landed records, before the change is logged.
fn check_contract(config: &SourceConfig, last: &CommitEntry) -> Result<(), Error> {
    let before = Before {
        schema: last.schema.clone(),
        presence: last.state.presence.clone(),
    };
    let before = Some(before).filter(|before| !before.schema.columns.is_empty());
    Contract::new(&config.contract, before.as_ref()).map(|_| ())
}

/// Reason for refusing a change, with the remedies.
fn way_out(config: &SourceConfig, log: &CommitLog, change: &SettingChange, reason: &str) -> String {
    let shown = |value: &Option<String>| match value {
        None => "not set".to_owned(),
        Some(value) => format!("`{}`", shorten(value, SHOWN)),
    };
    let mut text = format!(
        "was {} when `{}` was landed, and is {} now: {reason}",
        shown(&change.before),
        log.landing().url(),
        shown(&change.after),
    );
    write!(
        text,
        "; restore it, give the source another name, or run `feedline ingest reset PIPELINE.toml {}`, which saves landed data under another name and re-reads everything",
        config.name
    )
    .expect("writing to a string does not fail");
    text
}

#[cfg(test)]
mod tests;
