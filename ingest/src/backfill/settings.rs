//! Checking `[source.slices]` and `[source.for_each]` against the other settings and sources.

use feedline_schemas::config::{ForEachConfig, SourceConfig};
use url::{Position, Url};

use super::{slices::Slices, values::Values};
use crate::error::Error;

/// Refuses settings that cannot be combined with slices or a list of values, and lists of an
/// unknown source.
///
/// # Errors
/// [`Error::Config`].
pub(crate) fn check(source: &SourceConfig, all: &[SourceConfig]) -> Result<(), Error> {
    let wrong = |key: &str, reason: String| Err(Error::config(key, reason));
    for (key, is_given) in [
        ("slices", source.slices.is_some()),
        ("for_each", source.for_each.is_some()),
    ] {
        if key == "slices" && is_given && source.incremental.is_some() {
            let reason = "cannot be combined with `incremental`: a range without `slices.end` requests new records by itself";
            return wrong(key, reason.into());
        }
        if key == "slices" && is_given && !source.refresh.is_never() {
            let reason = "cannot be combined with `refresh`, which does not record finished intervals; remove one of them";
            return wrong(key, reason.into());
        }
        if is_given && source.archive_raw {
            let reason = "cannot be combined with `archive_raw`: the requests depend on the clock and on other sources, which an archive does not hold; remove one of them";
            return wrong(key, reason.into());
        }
    }
    let Some(parent) = source
        .for_each
        .as_ref()
        .and_then(|each| each.source.as_ref())
    else {
        return Ok(());
    };
    if *parent == source.name {
        return wrong(
            "for_each.source",
            "is this source itself; name another one".into(),
        );
    }
    if !all.iter().any(|other| other.name == *parent) {
        let names: Vec<&str> = all.iter().map(|other| other.name.as_str()).collect();
        return wrong(
            "for_each.source",
            format!(
                "no source is called `{parent}`; the pipeline has: {}",
                names.join(", ")
            ),
        );
    }
    if depth(source, all).is_none() {
        return wrong(
            "for_each.source",
            format!(
                "`{parent}` gets its values, over others, from this source: one of them must get them elsewhere"
            ),
        );
    }
    Ok(())
}

/// Number of sources that must run before one, each for the next. Returns `None` for a cycle.
pub(crate) fn depth(source: &SourceConfig, all: &[SourceConfig]) -> Option<usize> {
    let parent = |source: &SourceConfig| {
        let each = source.for_each.as_ref()?;
        let name = each.source.as_ref()?;
        all.iter().find(|other| other.name == *name)
    };
    let (mut at, mut depth) = (source, 0);
    while let Some(next) = parent(at) {
        depth += 1;
        if depth > all.len() {
            return None;
        }
        at = next;
    }
    Some(depth)
}

/// Refuses combinations that cannot work, of settings that are valid alone.
pub(super) fn check_together(
    config: &SourceConfig,
    slices: Option<&Slices>,
    values: Option<&Values>,
) -> Result<(), Error> {
    let value = values.map(|values| values.param.as_str());
    if let (Some(slices), Some(value)) = (slices, value)
        && slices.params().any(|param| param == value)
    {
        let reason = "is a parameter of `slices` too; they need different ones";
        return Err(Error::config("for_each.param", reason));
    }
    let bound = config
        .incremental
        .as_ref()
        .map(|bound| bound.param.as_str());
    let of_pages = config.pagination.way.params();
    let of_pages = of_pages
        .into_iter()
        .chain(config.pagination.common.size_param.as_deref());
    for (key, param) in of_pages
        .map(|param| ("pagination", param))
        .chain(bound.map(|param| ("incremental", param)))
    {
        if value == Some(param) {
            let reason = format!("is a parameter of `{key}` too; they need different ones");
            return Err(Error::config("for_each.param", reason));
        }
    }
    if let Some(slices) = slices
        && config.dedup_window() == 0
        && (slices.shares_ends() || config.pagination.common.max_records.is_some())
    {
        let reason = "is 0, which keeps equal records, and slices that share an end or are halved return records twice; set it, or use `slices.upper` = `exclusive` and no `pagination.max_records`";
        return Err(Error::config("batch.dedup_window", reason));
    }
    let params = value
        .into_iter()
        .chain(slices.into_iter().flat_map(Slices::params));
    for param in params {
        if config.params.contains_key(param) {
            let reason =
                format!("has `{param}`, which `slices` or `for_each` sets; remove it here");
            return Err(Error::config("params", reason));
        }
        check_place(&config.url, param)?;
    }
    Ok(())
}

/// Refuses a URL with a parameter in its host.
fn check_place(url: &str, param: &str) -> Result<(), Error> {
    let (place, path) = (format!("{{{param}}}"), format!("{{+{param}}}"));
    if !url.contains(&place) && !url.contains(&path) {
        return Ok(());
    }
    let front = |value: &str| {
        let url = url.replace(&place, value).replace(&path, value);
        let url = Url::parse(&url).ok()?;
        Some(url[..Position::BeforePath].to_owned())
    };
    if front("a").is_some() && front("a") == front("b") {
        return Ok(());
    }
    let reason = format!("may have `{place}` in its path and query only");
    Err(Error::config("url", reason))
}

/// Settings that decide which data is fetched. The range may change: the log has its finished part.
pub(crate) fn hashed(config: &SourceConfig) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(slices) = &config.slices {
        let to_param = slices.to_param.clone().unwrap_or_default();
        let upper = format!("{:?}", slices.upper);
        all.extend(["slices".into(), slices.from_param.clone(), to_param]);
        all.extend([slices.format.clone(), upper]);
    }
    if let Some(each) = &config.for_each {
        let ForEachConfig {
            param,
            source,
            column,
            r#as,
            ..
        } = each;
        let source = source.as_ref().map(ToString::to_string);
        let column = column.clone().unwrap_or_default();
        let marked = r#as.clone().unwrap_or_else(|| param.clone());
        all.extend(["for_each".into(), param.clone()]);
        all.extend([source.unwrap_or_default(), column, marked]);
    }
    all
}
