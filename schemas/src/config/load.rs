//! Reading a pipeline file, with overrides, into the typed configuration; errors point at the line.

use std::fmt;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::PipelineConfig;

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

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// File.
    pub file: String,
    /// Line, from 1; absent when the key is not in the file.
    pub line: Option<usize>,
    /// Key path.
    pub key: String,
    /// What is wrong and what to do.
    pub reason: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.key.is_empty() {
            write!(f, ": `{}`", self.key)?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for ConfigError {}

/// A loaded configuration that can still say where its keys stand.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: PipelineConfig,
    file: String,
    text: String,
}

impl Loaded {
    /// The same file, read with these overrides in place of the first ones.
    ///
    /// # Errors
    /// As [`load`].
    pub fn again(&self, overrides: &[Override]) -> Result<Self, ConfigError> {
        load(&self.file, &self.text, overrides)
    }

    /// An error about `key` (a path such as `dataset.target`), with its line when the file has the key.
    #[must_use]
    pub fn error(&self, key: &str, reason: impl Into<String>) -> ConfigError {
        ConfigError {
            file: self.file.clone(),
            line: line_of(&self.text, key),
            key: key.to_owned(),
            reason: reason.into(),
        }
    }
}

/// Parses the text of `file` and applies `overrides` in order.
///
/// # Errors
/// [`ConfigError`] for malformed TOML, an unknown key (with the nearest known one), a wrong type or a missing key.
pub fn load(file: &str, text: &str, overrides: &[Override]) -> Result<Loaded, ConfigError> {
    let mut table: toml::Table = text.parse().map_err(|e: toml::de::Error| ConfigError {
        file: file.to_owned(),
        line: e.span().map(|span| line_at(text, span.start)),
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
    let config = serde_path_to_error::deserialize(toml::Value::Table(table)).map_err(|e| {
        let inner = e.inner().message().to_owned();
        let key = key_path(&e.path().to_string(), &inner);
        let line = line_of(text, &key).or_else(|| line_of(text, parent(&key)));
        ConfigError {
            file: file.to_owned(),
            line,
            reason: moved(&key, &inner).unwrap_or_else(|| explain(&inner)),
            key,
        }
    })?;
    Ok(Loaded {
        config,
        file: file.to_owned(),
        text: text.to_owned(),
    })
}

/// serde's path stops at the table for an unknown or missing field, whose name stands in the message.
fn key_path(path: &str, message: &str) -> String {
    let path = path.trim_matches('.').replace("[", ".").replace("]", "");
    let field = message
        .strip_prefix("unknown field `")
        .or_else(|| message.strip_prefix("missing field `"))
        .and_then(|rest| rest.split('`').next());
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

fn explain(message: &str) -> String {
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
            None => message.to_owned(),
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

fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())]
        .iter()
        .filter(|b| **b == b'\n')
        .count()
        + 1
}

/// Line of the key at `path`, from 1.
fn line_of(text: &str, path: &str) -> Option<usize> {
    enum Node<'a, 'i> {
        Table(&'a DeTable<'i>),
        Value(&'a DeValue<'i>),
    }
    if path.is_empty() {
        return None;
    }
    let document = DeTable::parse(text).ok()?;
    let mut node = Node::Table(document.get_ref());
    let mut offset = 0;
    for key in path.split('.') {
        let (start, value): (usize, &Spanned<DeValue<'_>>) = match node {
            Node::Table(table) | Node::Value(DeValue::Table(table)) => {
                let (found, value) = table.iter().find(|(k, _)| k.get_ref().as_ref() == key)?;
                (found.span().start, value)
            }
            Node::Value(DeValue::Array(items)) => {
                let value = items.get(key.parse::<usize>().ok()?)?;
                (value.span().start, value)
            }
            Node::Value(_) => return None,
        };
        offset = start;
        node = Node::Value(value.get_ref());
    }
    Some(line_at(text, offset))
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
        assert_eq!(config.source[0].batch.rows, 10_000);
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
    fn a_renamed_key_or_value_names_the_new_one() {
        let schema: serde_json::Value =
            serde_json::from_str(crate::config::PIPELINE_SCHEMA).unwrap();
        for (before, now) in RENAMED_KEYS {
            let key = before
                .replace(".children.*", ".children.t")
                .replace('*', "0");
            let now = now.replace(".children.*", ".children.t").replace('*', "0");
            let whole =
                GOOD.to_owned() + "[dataset]\n[[dataset.feature]]\nname = \"f\"\ntype = \"lag\"\n";
            let overrides = [format!("{key}=1").parse().unwrap()];
            let error = load("p.toml", &whole, &overrides).unwrap_err();
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
            let error = check(GOOD, &[&format!("{key}={before}")]).unwrap_err();
            assert!(
                error.ends_with(&format!("`{before}` is now called `{now}`")),
                "{error}"
            );
            let error = check(GOOD, &[&format!("{key}={now}")])
                .err()
                .unwrap_or_default();
            assert!(!error.contains("unknown"), "{error}");
        }
    }

    #[test]
    fn a_loss_that_is_text_says_that_it_is_a_table_now() {
        let error = check(GOOD, &["train.loss=mse"]).unwrap_err();
        assert_eq!(
            error,
            "p.toml:9: `train.loss`: this is a table now, such as `loss = { type = \"mse\" }`"
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
}
