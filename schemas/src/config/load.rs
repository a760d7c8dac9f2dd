//! Reading a pipeline file, with overrides, into the typed configuration; errors point at the line.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{ConfigError, MarkedLine, PipelineConfig, expected_types, malformed, tagged};

/// One `--set key=value`. The key is a path such as `train.epochs` or `source.0.url`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Path, keys joined with `.`; a number indexes a list.
    pub key: String,
    /// Value as typed: read as TOML if it is TOML, otherwise as text.
    pub value: String,
}

impl std::str::FromStr for Override {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => Ok(Self {
                key: key.trim().to_owned(),
                value: value.trim().to_owned(),
            }),
            _ => Err(format!(
                "`{text}` is not `key=value`, such as `train.epochs=5`"
            )),
        }
    }
}

/// Returns true if a key may hold credentials in plain text, which no message may show.
fn may_be_secret(key: &str) -> bool {
    key.split('.')
        .any(|part| matches!(part, "auth" | "headers" | "params" | "body" | "variables"))
}

/// A loaded configuration that knows the lines of its keys.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: PipelineConfig,
    file: String,
    text: String,
    overrides: Vec<Override>,
}

impl Loaded {
    /// The same file, read with these overrides in place of the first ones.
    ///
    /// # Errors
    /// As [`load`].
    pub fn again(&self, overrides: &[Override]) -> Result<Self, ConfigError> {
        load(&self.file, &self.text, overrides)
    }

    /// Text of the file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Overrides that the file was read with, in their order.
    #[must_use]
    pub fn overrides(&self) -> &[Override] {
        &self.overrides
    }

    /// Returns true if the file has `key` (a path such as `dataset.target`) and no override sets it.
    #[must_use]
    pub fn is_written(&self, key: &str) -> bool {
        let is_set = self.overrides.iter().any(|item| item.key == key);
        !is_set && span_of(&self.text, key, PairPart::Value).is_some()
    }

    /// An error about `key` (a path such as `dataset.target`), with its line when the file has the key.
    ///
    /// ```
    /// use feedline_schemas::config::load;
    ///
    /// let text = "[pipeline]\nname = 'trades'\n[dataset]\ntarget = 'prise'\n";
    /// let loaded = load("trades.toml", text, &[])?;
    /// let error = loaded.error("dataset.target", "no source has this column");
    /// let message = "trades.toml:4: `dataset.target`: no source has this column";
    /// assert_eq!(error.to_string(), message);
    /// # Ok::<(), feedline_schemas::config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn error(&self, key: &str, reason: impl Into<String>) -> ConfigError {
        let source = ConfigSource {
            file: &self.file,
            text: &self.text,
            overrides: &self.overrides,
        };
        source.error(key, reason.into(), &[(key, PairPart::Value)])
    }
}

/// Text and overrides that a configuration is read from.
#[derive(Clone, Copy)]
struct ConfigSource<'a> {
    file: &'a str,
    text: &'a str,
    overrides: &'a [Override],
}

/// Part of a pair that an error is about.
#[derive(Clone, Copy, PartialEq)]
enum PairPart {
    Key,
    Value,
}

impl ConfigSource<'_> {
    /// An error about `key`, marked at the first of `places` that the file has. A value of an override is shown as that.
    fn error(&self, key: &str, reason: String, places: &[(&str, PairPart)]) -> ConfigError {
        let is_set = |item: &&Override| {
            let rest = key.strip_prefix(item.key.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if let Some(Override { key: set, value }) = self.overrides.iter().rev().find(is_set) {
            let value = if may_be_secret(key) { "***" } else { value };
            return ConfigError {
                file: format!("--set {set}={value}"),
                line: None,
                key: key.to_owned(),
                reason,
            };
        }
        let span = places
            .iter()
            .find_map(|(path, part)| span_of(self.text, path, *part));
        let line = span.map(|span| MarkedLine::of(self.text, span));
        let line = match line {
            Some(line) if may_be_secret(key) || line.may_have_secret() => Some(line.masked()),
            line => line,
        };
        ConfigError {
            file: self.file.to_owned(),
            line,
            key: key.to_owned(),
            reason,
        }
    }
}

/// Parses the text of `file` and applies `overrides` in order.
///
/// ```
/// use feedline_schemas::config::{Override, load};
///
/// let text = "[pipeline]\nname = 'trades'\n[train]\nepochs = 30\n";
/// let overrides = ["train.epochs=5".parse::<Override>()?];
/// let config = load("trades.toml", text, &overrides)?.config;
/// assert_eq!(config.pipeline.root(), "feedline-data/trades");
/// assert_eq!(config.train.map(|train| train.epochs), Some(5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ConfigError`] for malformed TOML, an unknown key (with the nearest known one), a key of another `type`, a wrong type,
/// a value out of range or a missing key.
pub fn load(file: &str, text: &str, overrides: &[Override]) -> Result<Loaded, ConfigError> {
    let mut table: toml::Table = text.parse().map_err(|e: toml::de::Error| ConfigError {
        file: file.to_owned(),
        line: e.span().map(|span| malformed::marked_line(text, span)),
        key: String::new(),
        reason: format!("malformed TOML: {}", e.message()),
    })?;
    for item in overrides {
        set(&mut table, item).map_err(|reason| ConfigError {
            file: format!("--set {}={}", item.key, item.value),
            line: None,
            key: item.key.clone(),
            reason,
        })?;
    }
    let source = ConfigSource {
        file,
        text,
        overrides,
    };
    let config = serde_path_to_error::deserialize(toml::Value::Table(table))
        .map_err(|e| source.refused(&e.path().to_string(), e.inner().message()))?;
    Ok(Loaded {
        config,
        file: file.to_owned(),
        text: text.to_owned(),
        overrides: overrides.to_owned(),
    })
}

impl ConfigSource<'_> {
    /// The error for a message of serde about the table or value at `path`.
    fn refused(&self, path: &str, message: &str) -> ConfigError {
        // Tables with a `type` put the rest of the path in front of the message.
        let (below, message) = tagged::located(message);
        let path = match (path, below) {
            (path, "") => path.to_owned(),
            ("." | "?", below) => below.to_owned(),
            (path, below) => format!("{path}.{below}"),
        };
        let key = key_path(&path, message);
        let list = match message.starts_with("invalid ") {
            true => expected_types::list_for_table(&key),
            false => None,
        };
        let (key, message) = match list {
            Some(table) => (table.to_owned(), "invalid type: sequence, expected struct "),
            None => (key, message),
        };
        let moved = moved(&key, message);
        let is_about_key = moved.is_some()
            || message.starts_with("unknown field")
            || message.starts_with("this key belongs to");
        let part = match message.starts_with("unknown variant") || !is_about_key {
            true => PairPart::Value,
            false => PairPart::Key,
        };
        let reason = moved.unwrap_or_else(|| explain(&key, message));
        let reason = match may_be_secret(&key) {
            true => without_value(&reason),
            false => reason,
        };
        let parents = std::iter::successors(Some(parent(&key)), |path| Some(parent(path)));
        let parents = parents.take_while(|path| !path.is_empty());
        let places: Vec<(&str, PairPart)> = std::iter::once((key.as_str(), part))
            .chain(parents.map(|path| (path, PairPart::Key)))
            .collect();
        self.error(&key, reason, &places)
    }
}

/// `reason` without the string that it quotes.
fn without_value(reason: &str) -> String {
    let quoted = reason
        .split_once("invalid type: string \"")
        .and_then(|(before, rest)| Some((before, rest.rsplit_once("\", expected")?.1)));
    match quoted {
        Some((before, behind)) => format!("{before}invalid type: string, expected{behind}"),
        None => reason.to_owned(),
    }
}

/// The empty key, as TOML writes it.
const EMPTY_KEY: &str = "\"\"";

/// serde's path stops at the table for an unknown or missing field, whose name is in the message.
fn key_path(path: &str, message: &str) -> String {
    let path = path.trim_matches('.').replace("[", ".").replace("]", "");
    let field = message
        .strip_prefix("unknown field `")
        .or_else(|| message.strip_prefix("missing field `"))
        .and_then(|rest| rest.split('`').next())
        .map(|field| if field.is_empty() { EMPTY_KEY } else { field });
    match field {
        Some(field) if path.is_empty() || path == "?" => field.to_owned(),
        Some(field) if path.rsplit('.').next() != Some(field) => format!("{path}.{field}"),
        _ => path,
    }
}

fn parent(key: &str) -> &str {
    key.rsplit_once('.').map_or("", |(parent, _)| parent)
}

/// Renamed keys, old and new; `*` is an index of a list or a name.
const RENAMED_KEYS: [(&str, &str); 34] = [
    ("dataset.picture", "dataset.image"),
    ("dataset.picture_column", "dataset.image_column"),
    (
        "dataset.image.look_alike_bits",
        "dataset.image.perceptual_bits",
    ),
    ("dataset.keep", "dataset.passthrough"),
    ("dataset.decimal_sign", "dataset.decimal_separator"),
    ("dataset.thousands_sign", "dataset.thousands_separator"),
    ("dataset.max_missing_share", "dataset.max_missing_fraction"),
    ("dataset.max_reject_share", "dataset.max_reject_fraction"),
    (
        "dataset.near_dup.max_cluster_share",
        "dataset.near_dup.max_cluster_fraction",
    ),
    ("dataset.feature.*.of", "dataset.feature.*.column"),
    ("source.*.again", "source.*.refresh"),
    ("source.*.crawl.again", "source.*.crawl.refresh"),
    (
        "source.*.csv.decimal_sign",
        "source.*.csv.decimal_separator",
    ),
    (
        "source.*.csv.thousands_sign",
        "source.*.csv.thousands_separator",
    ),
    (
        "source.*.contract.vanished",
        "source.*.contract.missing_columns",
    ),
    (
        "source.*.contract.children.*.vanished",
        "source.*.contract.children.*.missing_columns",
    ),
    (
        "source.*.contract.max_reject_share",
        "source.*.contract.max_reject_fraction",
    ),
    (
        "source.*.infer.max_odd_share",
        "source.*.infer.max_odd_fraction",
    ),
    ("train.pictures", "train.images"),
    ("train.images.normalise", "train.images.normalize"),
    ("train.model.small_pictures", "train.model.small_images"),
    (
        "train.loader.max_bad_share",
        "train.loader.max_bad_fraction",
    ),
    ("train.loader.deadline_seconds", "train.loader.deadline_s"),
    ("train.loader.stall_seconds", "train.loader.stall_s"),
    (
        "train.parallel.join_seconds",
        "train.parallel.rendezvous_timeout_s",
    ),
    (
        "train.parallel.silence_seconds",
        "train.parallel.heartbeat_timeout_s",
    ),
    ("train.parallel.timeout_seconds", "train.parallel.timeout_s"),
    (
        "train.schedule.final_share",
        "train.schedule.final_fraction",
    ),
    ("train.beta1", "train.optimizer.beta1"),
    ("train.beta2", "train.optimizer.beta2"),
    ("train.epsilon", "train.optimizer.epsilon"),
    ("train.weight_decay", "train.optimizer.weight_decay"),
    ("train.warmup_steps", "train.schedule.warmup_steps"),
    ("train.final_rate_share", "train.schedule.final_fraction"),
];

/// Renamed values: key, old and new.
const RENAMED_VALUES: [(&str, &str, &str); 5] = [
    ("dataset.kind", "pictures", "images"),
    ("dataset.image.duplicates", "look_alikes", "perceptual"),
    ("source.*.format", "picture", "image"),
    ("source.*.refresh", "changed", "if_changed"),
    ("source.*.crawl.refresh", "changed", "if_changed"),
];

/// Matches a key path against a pattern and, where it matches, puts what `*` matched into `new`.
fn renamed(key: &str, pattern: &str, new: &str) -> Option<String> {
    let (keys, patterns): (Vec<&str>, Vec<&str>) =
        (key.split('.').collect(), pattern.split('.').collect());
    let pairs = || keys.iter().zip(&patterns);
    if keys.len() != patterns.len()
        || !pairs().all(|(key, pattern)| *pattern == "*" || key == pattern)
    {
        return None;
    }
    let mut matched = pairs()
        .filter(|(_, pattern)| **pattern == "*")
        .map(|(key, _)| *key);
    let new = new.split('.').map(|part| match part {
        "*" => matched.next().unwrap_or("*"),
        part => part,
    });
    Some(new.collect::<Vec<_>>().join("."))
}

fn moved(key: &str, message: &str) -> Option<String> {
    if key == "train.loss" && message.starts_with("invalid type: string") {
        return Some("this is a table now, such as `loss = { type = \"mse\" }`".to_owned());
    }
    if let Some(value) = message
        .strip_prefix("unknown variant `")
        .and_then(|rest| rest.split('`').next())
    {
        let now = RENAMED_VALUES
            .iter()
            .find(|(at, before, _)| *before == value && renamed(key, at, at).is_some());
        return now.map(|(_, _, now)| format!("`{value}` is now called `{now}`"));
    }
    let now = RENAMED_KEYS
        .iter()
        .find_map(|(before, now)| renamed(key, before, now))?;
    Some(format!("this key is now called `{now}`"))
}

/// Replaces the types of serde, of a value that it read and of the one that it expects at `key`, by the words of TOML.
fn in_words_of_toml(key: &str, message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let is_length = found.starts_with("invalid length");
    let found = match found {
        "invalid type: sequence" => "invalid type: list",
        "invalid type: map" => "invalid type: table",
        // A value that is no word.
        "invalid type: unit variant" => "invalid type",
        _ if is_length && expected.starts_with("struct ") => "invalid type: list",
        found => found,
    };
    let words = expected_types::in_words_of_toml(key, expected);
    format!("{found}, expected {}", words.as_deref().unwrap_or(expected))
}

fn explain(key: &str, message: &str) -> String {
    let Some((name, known)) = message
        .strip_prefix("unknown field `")
        .or_else(|| message.strip_prefix("unknown variant `"))
        .and_then(|rest| rest.split_once('`'))
    else {
        return match message
            .strip_prefix("missing field `")
            .and_then(|rest| rest.split('`').next())
        {
            Some(_) => "this key is required and absent, add it".to_owned(),
            None => in_words_of_toml(key, message),
        };
    };
    let what = if message.starts_with("unknown field") {
        "key"
    } else {
        "value"
    };
    let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    match nearest(name, known.iter().copied()) {
        Some(nearest) if strsim::jaro_winkler(name, nearest) > 0.7 => {
            format!(
                "unknown {what} `{name}`, did you mean `{nearest}`? known here: {}",
                known.join(", ")
            )
        }
        _ => format!("unknown {what} `{name}`; known here: {}", known.join(", ")),
    }
}

/// The most similar of some names, by their common letters; `None` where there are none.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |known: &str| strsim::jaro_winkler(name, known);
    known.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}

fn set(table: &mut toml::Table, item: &Override) -> Result<(), String> {
    let value = format!("v = {}", item.value)
        .parse::<toml::Table>()
        .ok()
        .and_then(|mut parsed| (parsed.len() == 1).then(|| parsed.remove("v")).flatten())
        .unwrap_or_else(|| toml::Value::String(item.value.clone()));
    let keys: Vec<&str> = item.key.split('.').collect();
    let (last, front) = keys.split_last().ok_or("the key is empty")?;
    let mut root = toml::Value::Table(std::mem::take(table));
    let mut at = &mut root;
    for key in front {
        at = step(at, key)?;
    }
    match at {
        toml::Value::Table(inner) => {
            inner.insert((*last).to_owned(), value);
        }
        toml::Value::Array(items) => *index(items, last)? = value,
        _ => {
            return Err(format!(
                "`{}` is not a table, so `{last}` cannot be set in it",
                front.join(".")
            ));
        }
    }
    if let toml::Value::Table(inner) = root {
        *table = inner;
    }
    Ok(())
}

fn step<'v>(at: &'v mut toml::Value, key: &str) -> Result<&'v mut toml::Value, String> {
    match at {
        toml::Value::Table(inner) => Ok(inner
            .entry(key.to_owned())
            .or_insert_with(|| toml::Value::Table(toml::Table::new()))),
        toml::Value::Array(items) => index(items, key),
        _ => Err(format!(
            "nothing can be set below `{key}`: it is not a table"
        )),
    }
}

fn index<'v>(items: &'v mut [toml::Value], key: &str) -> Result<&'v mut toml::Value, String> {
    let count = items.len();
    key.parse::<usize>()
        .ok()
        .and_then(|i| items.get_mut(i))
        .ok_or_else(|| format!("`{key}` is not an index into a list of {count}; the first is 0"))
}

/// Bytes of the key or the value at `path`. A table has its key alone.
fn span_of(text: &str, path: &str, part: PairPart) -> Option<Range<usize>> {
    enum Node<'a, 'i> {
        Table(&'a DeTable<'i>),
        Value(&'a DeValue<'i>),
    }
    if path.is_empty() {
        return None;
    }
    let document = DeTable::parse(text).ok()?;
    let mut node = Node::Table(document.get_ref());
    let mut span = 0..0;
    for key in path.split('.') {
        let key = if key == EMPTY_KEY { "" } else { key };
        let (of_key, value): (Range<usize>, &Spanned<DeValue<'_>>) = match node {
            Node::Table(table) | Node::Value(DeValue::Table(table)) => {
                let (found, value) = table.iter().find(|(k, _)| k.get_ref().as_ref() == key)?;
                (found.span(), value)
            }
            Node::Value(DeValue::Array(items)) => {
                let value = items.get(key.parse::<usize>().ok()?)?;
                (value.span(), value)
            }
            Node::Value(_) => return None,
        };
        let is_value = part == PairPart::Value && !matches!(value.get_ref(), DeValue::Table(_));
        span = if is_value { value.span() } else { of_key };
        node = Node::Value(value.get_ref());
    }
    Some(span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ClassWeightRule, ClassWeights};

    fn check(text: &str, overrides: &[&str]) -> Result<PipelineConfig, String> {
        let overrides: Vec<Override> = overrides.iter().map(|o| o.parse().unwrap()).collect();
        load("p.toml", text, &overrides)
            .map(|l| l.config)
            .map_err(|e| e.to_string())
    }

    const GOOD: &str = "[pipeline]\nname = \"p\"\n\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"a.csv\"\n\n[train]\nepochs = 3\n";

    #[test]
    fn a_small_pipeline_loads_with_defaults() {
        let config = check(GOOD, &[]).unwrap();
        assert_eq!(config.pipeline.root(), "feedline-data/p");
        assert_eq!(config.train.unwrap().epochs, 3);
        assert_eq!(config.source[0].batch.rows.get(), 10_000);
    }

    #[test]
    fn overrides_reach_tables_lists_and_new_keys() {
        let config = check(
            GOOD,
            &[
                "source.0.url=b=c.csv",
                "train.epochs=7",
                "dataset.target=y",
                "train.model.hidden=[4]",
            ],
        );
        let config = config.unwrap();
        assert_eq!(config.source[0].url, "b=c.csv");
        assert_eq!(config.train.as_ref().unwrap().epochs, 7);
        assert_eq!(config.train.unwrap().model.hidden, Some(vec![4]));
        assert_eq!(config.dataset.unwrap().targets(), ["y"]);
    }

    #[test]
    fn an_unknown_key_is_refused_with_line_and_nearest() {
        let error = check(&GOOD.replace("epochs", "epoch"), &[]).unwrap_err();
        assert!(
            error.starts_with(
                "p.toml:10: `train.epoch`: unknown key `epoch`, did you mean `epochs`?"
            ),
            "{error}"
        );
        let error = check(&GOOD.replace("\"files\"", "\"file\""), &[]).unwrap_err();
        assert!(
            error.starts_with(
                "p.toml:6: `source.0.type`: unknown value `file`, did you mean `files`?"
            ),
            "{error}"
        );
    }

    #[test]
    fn an_empty_key_is_named_as_toml_writes_it() {
        for (text, expected) in [
            ("[\"\"]\n", "p.toml:1: `\"\"`: unknown key ``"),
            (
                "[pipeline]\nname = \"p\"\n\"\" = 1\n",
                "p.toml:3: `pipeline.\"\"`: unknown key ``",
            ),
        ] {
            let error = check(text, &[]).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    /// Error of a setting in a source of the type that it belongs to.
    fn refused_of_any_type(text: &str, setting: &str) -> Option<ConfigError> {
        let errors = ["rest", "html", "files"].map(|kind| {
            let kind = format!("source.0.type={kind}").parse().unwrap();
            load("p.toml", text, &[kind, setting.parse().unwrap()]).err()
        });
        let is_own = |error: &Option<ConfigError>| {
            error
                .as_ref()
                .is_none_or(|error| !error.reason.starts_with("this key belongs to"))
        };
        errors.into_iter().find(is_own).unwrap()
    }

    #[test]
    fn a_renamed_key_or_value_names_the_new_one() {
        let schema: serde_json::Value =
            serde_json::from_str(crate::config::PIPELINE_SCHEMA).unwrap();
        for (before, now) in RENAMED_KEYS {
            let key = before
                .replace(".children.*", ".children.t")
                .replace('*', "0");
            let now = now.replace(".children.*", ".children.t").replace('*', "0");
            let whole = GOOD.to_owned()
                + "[dataset]\n[[dataset.feature]]\nname = \"f\"\ntype = \"calendar\"\npart = \"hour\"\n";
            let error = refused_of_any_type(&whole, &format!("{key}=1")).unwrap();
            assert_eq!(
                (error.key.as_str(), error.reason),
                (key.as_str(), format!("this key is now called `{now}`"))
            );
            let name = now.rsplit('.').next().unwrap();
            assert!(
                schema.to_string().contains(&format!("\"{name}\":")),
                "{name}"
            );
        }
        for (key, before, now) in RENAMED_VALUES {
            let key = key.replace('*', "0");
            let error = refused_of_any_type(GOOD, &format!("{key}={before}"));
            let error = error.unwrap().to_string();
            assert!(
                error.ends_with(&format!("`{before}` is now called `{now}`")),
                "{error}"
            );
            let error = refused_of_any_type(GOOD, &format!("{key}={now}"));
            let error = error.map(|error| error.to_string()).unwrap_or_default();
            assert!(!error.contains("unknown"), "{error}");
        }
    }

    #[test]
    fn a_loss_that_is_text_says_that_it_is_a_table_now() {
        let error = check(GOOD, &["train.loss=mse"]).unwrap_err();
        assert_eq!(
            error,
            "--set train.loss=mse: `train.loss`: this is a table now, such as `loss = { type = \"mse\" }`"
        );
        let loss = |text: &str| check(GOOD, &[text]).unwrap().train.unwrap().loss;
        let weights = loss("train.loss.class_weights=[1, 2.5]").class_weights;
        assert_eq!(weights, Some(ClassWeights::Each(vec![1.0, 2.5])));
        let weights = loss("train.loss.class_weights=balanced").class_weights;
        let balanced = ClassWeights::Rule(ClassWeightRule::Balanced);
        assert_eq!(weights, Some(balanced));
    }

    #[test]
    fn malformed_toml_names_the_line() {
        let error = check("[pipeline]\nname = \n", &[]).unwrap_err();
        assert!(error.starts_with("p.toml:2: malformed TOML"), "{error}");
    }

    #[test]
    fn a_missing_key_names_its_table() {
        let error = check("[pipeline]\n", &[]).unwrap_err();
        assert_eq!(
            error,
            "p.toml:1: `pipeline.name`: this key is required and absent, add it"
        );
    }

    #[test]
    fn a_wrong_type_names_key_and_line() {
        let error = check(&GOOD.replace("epochs = 3", "epochs = \"many\""), &[]).unwrap_err();
        assert!(
            error.starts_with("p.toml:10: `train.epochs`: invalid type"),
            "{error}"
        );
    }

    #[test]
    fn an_override_out_of_range_says_so() {
        let error = check(GOOD, &["source.4.url=x"]).unwrap_err();
        assert!(
            error.contains("`4` is not an index into a list of 1"),
            "{error}"
        );
    }

    fn shown(text: &str, overrides: &[&str]) -> String {
        let overrides: Vec<Override> = overrides.iter().map(|o| o.parse().unwrap()).collect();
        let error = load("p.toml", text, &overrides).unwrap_err();
        error.with_excerpt()
    }

    #[test]
    fn the_line_is_shown_with_a_mark_under_key_or_value() {
        assert_eq!(
            shown(&GOOD.replace("epochs = 3", "epochs = \"many\""), &[]),
            "p.toml:10:10: `train.epochs`: invalid type: string \"many\", expected a whole number from 0\n   |\n10 | epochs = \"many\"\n   |          ^^^^^^"
        );
        let unknown = shown(&GOOD.replace("epochs", "epoch"), &[]);
        assert!(
            unknown.ends_with("\n   |\n10 | epoch = 3\n   | ^^^^^"),
            "{unknown}"
        );
        let missing = shown("[pipeline]\n", &[]);
        assert!(
            missing.starts_with("p.toml:1:2: `pipeline.name`"),
            "{missing}"
        );
        assert!(
            missing.ends_with("\n1 | [pipeline]\n  |  ^^^^^^^^"),
            "{missing}"
        );
        let malformed = shown("[pipeline]\nname = \n", &[]);
        assert!(
            malformed.starts_with("p.toml:2:8: malformed TOML"),
            "{malformed}"
        );
    }

    #[test]
    fn values_in_lists_and_inline_tables_are_marked() {
        let text = GOOD.to_owned()
            + "model = { hidden = [4, \"x\"] }\n[dataset]\ntarget = \"ü\" # é\nfeatures = [\n  \"a\",\n  7,\n]\n";
        let first = shown(&text, &[]);
        let expected = "\n16 |   7,\n   |   ^";
        assert!(first.ends_with(expected), "{first}");
        let second = shown(&text.replace("  7,\n", ""), &[]);
        let expected = "\n11 | model = { hidden = [4, \"x\"] }\n   |                        ^^^";
        assert!(second.ends_with(expected), "{second}");
        assert!(second.contains("`train.model.hidden.1`"), "{second}");
    }

    #[test]
    fn keys_of_another_type_are_marked_inside_their_table() {
        let rest = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"http://h/\"\n";
        let error = shown(
            &format!("{rest}pagination = {{ type = \"page\", cursor_path = \"next\" }}\n"),
            &[],
        );
        assert!(
            error.starts_with("p.toml:7:31: `source.0.pagination.cursor_path`: this key belongs to `type = \"cursor\"`; `type = \"page\"` has the keys `type`, "),
            "{error}"
        );
        assert!(
            error.ends_with("\n  |                               ^^^^^^^^^^^"),
            "{error}"
        );
        let error = shown(
            &format!("{rest}[source.pagination]\ntype = \"page\"\nfirst_page = \"x\"\n"),
            &[],
        );
        assert!(
            error.starts_with("p.toml:9:14: `source.0.pagination.first_page`: invalid type"),
            "{error}"
        );
        let error = shown(&format!("{rest}[source.pagination]\ntyp = \"page\"\n"), &[]);
        assert!(
            error.starts_with(
                "p.toml:8:1: `source.0.pagination.typ`: unknown key `typ`, did you mean `type`?"
            ),
            "{error}"
        );
        let error = shown(&format!("{rest}[source.auth]\ntype = \"bearer\"\n"), &[]);
        assert!(
            error.starts_with(
                "p.toml:7:9: `source.0.auth.secret`: `type = \"bearer\"` needs this key, add it"
            ),
            "{error}"
        );
    }

    #[test]
    fn credentials_in_plain_text_are_not_shown() {
        let rest = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"http://h/\"\n";
        let text = format!("{rest}auth = {{ type = \"bearer\", secret = \"s3cret\" }}\n");
        for error in [
            shown(&text, &[]),
            shown(rest, &["source.0.auth={type='bearer',secret='s3cret'}"]),
        ] {
            assert!(!error.contains("s3cret"), "{error}");
            assert!(error.contains("`source.0.auth.secret`"), "{error}");
        }
    }

    #[test]
    fn credentials_beside_the_faulty_key_are_not_shown() {
        let head = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\n";
        for line in [
            "url = \"http://h/\"\nlimits = { headers = \"hunter\\\"hunter2\", bogus = 1 }",
            "url = \"http://h/\"\nauth = { type = \"bearer\", secret = { env = \"hunter2\" }, bogus = 1 }",
            "url = \"http://me:hunter2@h/\"\nbatch = { rows = 0 } # http://me:hunter2@h/",
            "url = \"http://me:hunter2@h/",
            "url = 'http://h/'\n[source.headers]\nX-Key = \"hunter2",
            "url = 'http://h/'\n[source.headers]\nX-Key = 7\nOther = \"\"\"\nhunter2 = hunter2\n\"\"",
        ] {
            let error = load("p.toml", &format!("{head}{line}"), &[]).unwrap_err();
            let shown = error.with_excerpt();
            assert!(!shown.contains("hunter"), "{shown}");
        }
        let shown = load("p.toml", &GOOD.replace("epochs", "epoch"), &[]).unwrap_err();
        assert!(shown.with_excerpt().contains("epoch = 3"), "{shown}");
    }

    #[test]
    fn an_error_in_an_override_shows_the_override() {
        let error = shown(GOOD, &["train.epochs=many"]);
        assert!(
            error.starts_with("--set train.epochs=many: `train.epochs`: invalid type"),
            "{error}"
        );
        let error = load("p.toml", GOOD, &["train.epochs=4".parse().unwrap()])
            .unwrap()
            .error("train.epochs", "no");
        assert_eq!(
            error.to_string(),
            "--set train.epochs=4: `train.epochs`: no"
        );
        let error = load("p.toml", GOOD, &[])
            .unwrap()
            .error("train.epochs", "no");
        assert_eq!(error.to_string(), "p.toml:10: `train.epochs`: no");
        assert!(
            error
                .with_excerpt()
                .ends_with("\n10 | epochs = 3\n   |          ^")
        );
    }

    #[test]
    fn a_long_line_is_shown_around_its_mark() {
        let long = "x".repeat(300);
        let text = GOOD.replace(
            "epochs = 3",
            &format!("model = {{ hidden = [1], bias = \"{long}\", kind = 1 }}"),
        );
        let error = shown(&text, &[]);
        assert!(
            error.lines().all(|line| line.chars().count() < 1_000),
            "{error}"
        );
    }
}
