//! `feedline explain`: a key of the pipeline file, from its JSON Schema.

use std::fmt;

use feedline_schemas::config::PIPELINE_SCHEMA;
use serde::Serialize;
use serde_json::Value;

use crate::output::Text;

/// Maximum depth of nested tables in a search.
const MAX_DEPTH: usize = 8;
/// Most keys that are listed as alternatives.
const MAX_LISTED: usize = 20;
/// Columns of a line.
const WIDTH: usize = 100;

/// A key, as the schema describes it.
#[derive(Debug, Serialize)]
pub(crate) struct KeyReport {
    /// Path, such as `dataset.split.key`.
    pub(crate) key: String,
    /// Types of its value, such as `text or list of text`.
    pub(crate) r#type: String,
    /// Default, as TOML.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default: Option<String>,
    /// Valid values, if they are words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) values: Vec<String>,
    /// Description.
    pub(crate) description: String,
    /// Keys below it, each with the first sentence of its description.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) keys: Vec<(String, String)>,
    /// The same keys by table, if a tag such as `type = "impute"` selects one of several tables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tables: Vec<TaggedKeys>,
}

/// Keys of a table that a tag selects.
#[derive(Debug, Serialize)]
pub(crate) struct TaggedKeys {
    /// The tag, such as `type = "impute"`; empty for keys of all tables.
    pub(crate) tag: String,
    /// Keys, each with the first sentence of its description.
    pub(crate) keys: Vec<(String, String)>,
}

/// Looks up `key`, a path or the last part of one. Indices of list items are optional: `source.url`
/// is `source.0.url`.
///
/// # Errors
/// A message with similar keys, if no key or several keys match.
pub(crate) fn explain(key: Option<&str>) -> anyhow::Result<KeyReport> {
    let schema = Schema::read()?;
    let Some(key) = key.map(|key| key.trim_matches(['.', '[', ']'])) else {
        return Ok(schema.report("", &schema.root()));
    };
    let key = without_indexes(key);
    if let Some(found) = schema.find(&key) {
        return Ok(schema.report(&key, &found));
    }
    let mut all = Vec::new();
    schema.walk("", &schema.root(), 0, &mut all);
    let last = |path: &String| path.rsplit('.').next().map(ToOwned::to_owned);
    // Messages about a source name its keys without `source`.
    let below = format!(".{key}");
    let ends_with = |path: &&String| key.contains('.') && path.ends_with(&below);
    let named: Vec<&String> = all
        .iter()
        .filter(|path| last(path) == Some(key.clone()) || ends_with(path))
        .collect();
    match named.as_slice() {
        [] => {}
        [path] => {
            let found = schema.find(path);
            return found
                .map(|found| schema.report(path, &found))
                .ok_or_else(|| anyhow::anyhow!("`{path}` is not in the schema"));
        }
        many => {
            let more = many.len().saturating_sub(MAX_LISTED);
            let mut listed: Vec<String> = many.iter().map(|path| format!("  {path}")).collect();
            listed.truncate(MAX_LISTED);
            if more > 0 {
                listed.push(format!("  and {more} more"));
            }
            return Err(unknown(format!(
                "`{key}` is the name of {} keys, write one of them:\n{}",
                many.len(),
                listed.join("\n")
            )));
        }
    }
    let nearest = all.iter().map(|path| {
        let own = strsim::jaro_winkler(path, &key);
        let by_name = last(path).map_or(0.0, |name| strsim::jaro_winkler(&name, &key));
        (own.max(by_name), path)
    });
    let mut nearest: Vec<(f64, &String)> = nearest.collect();
    nearest.sort_by(|a, b| b.0.total_cmp(&a.0));
    let nearest = nearest.iter().take(3).map(|(_, path)| format!("`{path}`"));
    let nearest: Vec<String> = nearest.collect();
    Err(unknown(format!(
        "no key is called `{key}`; the nearest are {}",
        nearest.join(", ")
    )))
}

fn unknown(reason: String) -> anyhow::Error {
    feedline_schemas::config::ConfigError {
        file: "explain".to_owned(),
        line: None,
        key: String::new(),
        reason,
    }
    .into()
}

fn without_indexes(key: &str) -> String {
    let parts = key.split('.').filter(|part| part.parse::<usize>().is_err());
    parts.collect::<Vec<_>>().join(".")
}

/// The JSON Schema of a pipeline file.
struct Schema(Value);

/// Shapes of a value that the schema allows, references resolved.
type Shapes<'a> = Vec<&'a Value>;

/// A key found: its own entry, for description and default, and the shapes of its value.
struct FoundKey<'a> {
    entry: &'a Value,
    shapes: Shapes<'a>,
    /// Tag of the table that has the entry, such as `type = "robust"`; empty where the table has none.
    tag: String,
    /// Entries of other tables with a description of their own, each with its tag.
    others: Vec<(String, &'a Value)>,
}

impl Schema {
    fn read() -> anyhow::Result<Self> {
        Ok(Self(serde_json::from_str(PIPELINE_SCHEMA)?))
    }

    fn root(&self) -> FoundKey<'_> {
        FoundKey {
            entry: &self.0,
            shapes: vec![&self.0],
            tag: String::new(),
            others: Vec::new(),
        }
    }

    /// The shapes of an entry: through references and alternatives, without `null`.
    fn shapes<'a>(&'a self, entry: &'a Value, shapes: &mut Shapes<'a>) {
        if let Some(name) = entry["$ref"]
            .as_str()
            .and_then(|path| path.rsplit('/').next())
        {
            return self.shapes(&self.0["$defs"][name], shapes);
        }
        let alternatives = ["anyOf", "oneOf", "allOf"];
        let alternatives = alternatives.iter().filter_map(|key| entry[*key].as_array());
        let before = shapes.len();
        for alternative in alternatives.flatten() {
            self.shapes(alternative, shapes);
        }
        let is_leaf = shapes.len() == before && entry["type"] != "null";
        if is_leaf || entry["properties"].is_object() {
            shapes.push(entry);
        }
    }

    fn found<'a>(&'a self, entry: &'a Value) -> FoundKey<'a> {
        let mut shapes = Vec::new();
        self.shapes(entry, &mut shapes);
        FoundKey {
            entry,
            shapes,
            tag: String::new(),
            others: Vec::new(),
        }
    }

    /// Returns the keys below, each with its entry. Items of lists are included; `<name>` is
    /// a user-chosen name. Alternatives of a tagged table have their keys together.
    fn below<'a>(&'a self, found: &FoundKey<'a>) -> Vec<(String, FoundKey<'a>)> {
        let mut keys: Vec<(String, FoundKey<'a>)> = Vec::new();
        for shape in &found.shapes {
            if let Some(properties) = shape["properties"].as_object() {
                for (name, entry) in properties {
                    match keys.iter_mut().find(|(known, _)| known == name) {
                        Some((_, found)) => {
                            self.shapes(entry, &mut found.shapes);
                            let others = found.others.iter().map(|(_, entry)| *entry);
                            let mut known = others.chain(Some(found.entry));
                            if known.all(|known| known["description"] != entry["description"]) {
                                found.others.push((tag_of(properties), entry));
                            }
                        }
                        None => {
                            let tag = tag_of(properties);
                            let found = self.found(entry);
                            keys.push((name.clone(), FoundKey { tag, ..found }));
                        }
                    }
                }
            }
            let own = shape["patternProperties"].as_object();
            let own = own.into_iter().flat_map(|patterns| patterns.values());
            let own = own.chain(Some(&shape["additionalProperties"]));
            for entry in own.filter(|entry| entry.is_object()) {
                if !entry["$ref"].is_null() || entry["properties"].is_object() {
                    keys.push(("<name>".to_owned(), self.found(entry)));
                }
            }
            if shape["items"].is_object() {
                keys.extend(self.below(&self.found(&shape["items"])));
            }
        }
        keys
    }

    /// Returns the keys below by table; none if no tag selects a table.
    fn tables(&self, found: &FoundKey<'_>) -> Vec<TaggedKeys> {
        let mut tables: Vec<TaggedKeys> = Vec::new();
        self.collect_tables(found, &mut tables);
        let (mut tagged, plain): (Vec<TaggedKeys>, Vec<TaggedKeys>) =
            tables.into_iter().partition(|table| !table.tag.is_empty());
        if tagged.len() < 2 {
            return Vec::new();
        }
        let (first, others) = tagged.split_at(1);
        let of_all = |key: &&(String, String)| others.iter().all(|table| table.keys.contains(key));
        let shared: Vec<(String, String)> = first[0].keys.iter().filter(of_all).cloned().collect();
        for table in &mut tagged {
            table.keys.retain(|key| !shared.contains(key));
        }
        tagged.dedup_by(|next, table| {
            let is_alike = next.keys == table.keys;
            if is_alike {
                table.tag = format!("{} or {}", table.tag, next.tag);
            }
            is_alike
        });
        let mut keys: Vec<(String, String)> = plain.into_iter().flat_map(|p| p.keys).collect();
        keys.extend(shared);
        if !keys.is_empty() {
            let tag = String::new();
            tagged.insert(0, TaggedKeys { tag, keys });
        }
        tagged
    }

    fn collect_tables(&self, found: &FoundKey<'_>, tables: &mut Vec<TaggedKeys>) {
        for shape in &found.shapes {
            if let Some(properties) = shape["properties"].as_object() {
                let own = properties.iter();
                let own = own.filter(|(_, entry)| !entry["const"].is_string());
                let keys = own.map(|(name, entry)| {
                    let text = description(&self.found(entry));
                    (name.clone(), first_sentence(&text))
                });
                let keys: Vec<(String, String)> = keys.collect();
                let tag = tag_of(properties);
                match tables.iter_mut().find(|table| table.tag == tag) {
                    Some(table) => table.keys.extend(keys),
                    None => tables.push(TaggedKeys { tag, keys }),
                }
            }
            if shape["items"].is_object() {
                self.collect_tables(&self.found(&shape["items"]), tables);
            }
        }
    }

    fn find(&self, key: &str) -> Option<FoundKey<'_>> {
        let mut at = self.root();
        for part in key.split('.') {
            let mut below = self.below(&at);
            let exact = below.iter().position(|(name, _)| name == part);
            let own = || below.iter().position(|(name, _)| name == "<name>");
            let position = exact.or_else(own)?;
            at = below.swap_remove(position).1;
        }
        Some(at)
    }

    /// Adds all paths below.
    fn walk(&self, prefix: &str, found: &FoundKey<'_>, depth: usize, all: &mut Vec<String>) {
        if depth > MAX_DEPTH {
            return;
        }
        for (name, found) in self.below(found) {
            let path = match prefix {
                "" => name,
                prefix => format!("{prefix}.{name}"),
            };
            self.walk(&path, &found, depth + 1, all);
            // Several shapes of a table may have the key.
            if !all.contains(&path) {
                all.push(path);
            }
        }
    }

    fn report(&self, key: &str, found: &FoundKey<'_>) -> KeyReport {
        let keys = self.below(found).into_iter().map(|(name, found)| {
            let text = description(&found);
            (name, first_sentence(&text))
        });
        let keys = keys.collect();
        let mut types: Vec<String> = Vec::new();
        for shape in &found.shapes {
            for name in self.types(shape) {
                if !types.contains(&name) {
                    types.push(name);
                }
            }
        }
        let default = &found.entry["default"];
        KeyReport {
            key: key.to_owned(),
            r#type: types.join(" or "),
            default: (!default.is_null() && !default.is_object()).then(|| default.to_string()),
            values: values(&found.shapes),
            description: description(found),
            keys,
            tables: self.tables(found),
        }
    }

    fn types(&self, shape: &Value) -> Vec<String> {
        if shape["const"].is_string() || shape["enum"].is_array() {
            return vec!["text".to_owned()];
        }
        let names: Vec<&str> = match &shape["type"] {
            Value::String(name) => vec![name],
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let named = names.into_iter().filter(|name| *name != "null");
        named
            .map(|name| match name {
                "array" => match shape["items"].is_object() {
                    true => {
                        let mut items: Vec<String> = Vec::new();
                        for shape in &self.found(&shape["items"]).shapes {
                            for name in self.types(shape) {
                                if !items.contains(&name) {
                                    items.push(name);
                                }
                            }
                        }
                        format!("list of {}", items.join(" or "))
                    }
                    false => "list".to_owned(),
                },
                "string" => "text".to_owned(),
                "object" => "table".to_owned(),
                "number" => "number".to_owned(),
                "boolean" => "true or false".to_owned(),
                other => other.to_owned(),
            })
            .map(
                |name| match (shape["minimum"].as_f64(), shape["maximum"].as_f64()) {
                    (Some(low), Some(high)) => format!("{name} from {low} to {high}"),
                    (Some(low), None) if low > 0.0 => format!("{name} from {low}"),
                    _ => name,
                },
            )
            .collect()
    }
}

/// Returns the entry's own description, else that of its shape.
fn description(found: &FoundKey<'_>) -> String {
    let own = found.entry["description"].as_str();
    let of_shape = || {
        found
            .shapes
            .iter()
            .find_map(|shape| shape["description"].as_str())
    };
    let is_tag =
        found.shapes.len() > 1 && found.shapes.iter().all(|shape| shape["const"].is_string());
    let text = own.or_else(of_shape);
    let text = text.unwrap_or(if is_tag {
        "Kind of the table, on which its other keys depend."
    } else {
        ""
    });
    let others = found.others.iter();
    let others = others.filter_map(|(tag, entry)| Some((tag, entry["description"].as_str()?)));
    let mut all: Vec<String> = others
        .map(|(tag, text)| format!("With {tag}: {text}"))
        .collect();
    match all.is_empty() {
        true => all.push(text.to_owned()),
        false => all.insert(0, format!("With {}: {text}", found.tag)),
    }
    all.join(" ").replace('\n', " ")
}

/// The tag of one table of several, such as `type = "robust"`.
fn tag_of(properties: &serde_json::Map<String, Value>) -> String {
    let tags = properties
        .iter()
        .filter_map(|(name, entry)| Some(format!("`{name} = \"{}\"`", entry["const"].as_str()?)));
    tags.collect::<Vec<_>>().join(" and ")
}

/// Words that a value may be.
fn values(shapes: &[&Value]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for shape in shapes {
        let listed = shape["enum"].as_array().into_iter().flatten();
        let all = listed.chain(Some(&shape["const"]));
        for word in all.filter_map(Value::as_str).map(ToOwned::to_owned) {
            // Several shapes may have the same words.
            if !words.contains(&word) {
                words.push(word);
            }
        }
    }
    words
}

fn first_sentence(text: &str) -> String {
    match text.split_once(". ") {
        Some((first, _)) => format!("{first}."),
        None => text.to_owned(),
    }
}

/// Breaks `text` into lines of at most `width` columns, each after `indent` spaces.
fn wrapped(text: &str, indent: usize, out: &mut String) {
    let mut used = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if used > 0 && indent + used + 1 + width > WIDTH {
            out.push('\n');
            used = 0;
        }
        if used == 0 {
            out.extend(std::iter::repeat_n(' ', indent));
        } else {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += width;
    }
    out.push('\n');
}

impl Text for KeyReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        use fmt::Write as _;

        let Self {
            key,
            r#type,
            default,
            values,
            description,
            keys,
            tables,
        } = self;
        if key.is_empty() {
            writeln!(
                out,
                "sections of a pipeline file; `feedline explain KEY` explains a key"
            )?;
        } else {
            write!(out, "{key}: {type}")?;
            if let Some(default) = default {
                write!(out, ", default {default}")?;
            }
            writeln!(out)?;
            wrapped(description, 2, out);
        }
        if !values.is_empty() {
            wrapped(&format!("Values: {}", values.join(", ")), 2, out);
        }
        if tables.is_empty() {
            return write_keys(keys, 2, out);
        }
        for TaggedKeys { tag, keys } in tables {
            match (tag.is_empty(), keys.is_empty()) {
                (true, _) => writeln!(out, "  in all tables")?,
                (false, true) => writeln!(out, "  with {tag}: no other key")?,
                (false, false) => writeln!(out, "  with {tag}")?,
            }
            write_keys(keys, 4, out)?;
        }
        Ok(())
    }
}

/// Writes a line for each key after `indent` spaces, and more where its description is long.
fn write_keys(keys: &[(String, String)], indent: usize, out: &mut String) -> fmt::Result {
    use fmt::Write as _;

    let width = keys.iter().map(|(name, _)| name.chars().count());
    let width = width.max().unwrap_or_default();
    for (name, text) in keys {
        let mut wrapped_text = String::new();
        wrapped(text, width + indent + 2, &mut wrapped_text);
        let rest = wrapped_text.trim_start();
        if rest.trim().is_empty() {
            writeln!(out, "{:indent$}{name}", "")?;
        } else {
            write!(out, "{:indent$}{name:<width$}  {rest}", "")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_key_is_explained_by_path_by_name_and_through_lists() {
        let key = explain(Some("dataset.split.key")).unwrap();
        assert_eq!(
            (key.key.as_str(), key.r#type.as_str()),
            ("dataset.split.key", "list of text")
        );
        assert!(
            key.description.contains("decide the split"),
            "{}",
            key.description
        );
        let url = explain(Some("source.0.url")).unwrap();
        assert_eq!(url.key, "source.url");
        assert_eq!(
            explain(Some("[dataset.split]")).unwrap().key,
            "dataset.split"
        );
        assert_eq!(explain(Some("max_reject_rows")).map(|k| k.key).ok(), None);
        assert_eq!(
            explain(Some("embargo")).unwrap().key,
            "dataset.split.embargo"
        );
    }

    #[test]
    fn keys_of_tagged_tables_are_listed_by_table() {
        let mut text = String::new();
        let step = explain(Some("dataset.step")).unwrap();
        step.write(&mut text).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let table = |tag: &str| -> Vec<&str> {
            let begin = lines.iter().position(|line| line.contains(tag)).unwrap();
            let rest = lines[begin + 1..].iter();
            let own = rest.take_while(|line| line.starts_with("    "));
            let keys = own.filter(|line| !line.starts_with("     "));
            keys.filter_map(|line| line.split_whitespace().next())
                .collect()
        };
        assert_eq!(table("in all tables"), ["columns"]);
        assert_eq!(table("with `type = \"robust\"`"), ["lower", "upper"]);
        assert_eq!(table("with `type = \"min_max\"`"), ["clip"]);
        assert!(
            text.contains("  with `type = \"log1p\"`: no other key\n"),
            "{text}"
        );
        // Keys of a table without tags are listed as before.
        assert!(explain(Some("dataset.image")).unwrap().tables.is_empty());
    }

    #[test]
    fn words_and_keys_below_are_listed() {
        let by = explain(Some("dataset.split.by")).unwrap();
        assert!(by.values.contains(&"time".to_owned()), "{:?}", by.values);
        let lower = explain(Some("dataset.step.lower")).unwrap().description;
        assert!(
            lower.starts_with("With `type = \"winsorize\"`: Lower percentile")
                && lower.contains("With `type = \"robust\"`: Lower end of the spread"),
            "{lower}"
        );
        let strategy = explain(Some("dataset.step.strategy")).unwrap();
        let words = "median, mean, most_frequent, constant, knn, quantile, uniform";
        assert_eq!(strategy.values.join(", "), words);
        let mut all = Vec::new();
        let schema = Schema::read().unwrap();
        schema.walk("", &schema.root(), 0, &mut all);
        for path in &all {
            let values = schema.report(path, &schema.find(path).unwrap()).values;
            let once: BTreeSet<&String> = values.iter().collect();
            assert_eq!(once.len(), values.len(), "{path}: {values:?}");
        }
        let momentum = explain(Some("train.optimizer.momentum")).unwrap();
        assert_eq!(momentum.r#type, "number");
        let train = explain(Some("train")).unwrap();
        assert!(
            train
                .keys
                .iter()
                .any(|(name, text)| name == "epochs" && !text.is_empty())
        );
        let column = explain(Some("source.contract.column.price.type")).unwrap();
        assert!(
            column.values.contains(&"timestamp".to_owned()),
            "{:?}",
            column.values
        );
    }

    #[test]
    fn a_name_of_several_keys_lists_them_and_an_unknown_one_the_nearest() {
        let many = explain(Some("columns")).unwrap_err().to_string();
        assert!(many.contains("dataset.step.columns"), "{many}");
        let types = explain(Some("type")).unwrap_err().to_string();
        let listed: Vec<&str> = types.lines().skip(1).collect();
        let mut once = listed.clone();
        once.dedup();
        assert_eq!(once, listed);
        assert!(
            types.contains(&format!("the name of {} keys", listed.len())),
            "{types}"
        );
        let none = explain(Some("train.epoch")).unwrap_err().to_string();
        assert!(none.contains("`train.epochs`"), "{none}");
    }

    #[test]
    fn every_key_has_a_description_and_a_type() {
        let schema = Schema::read().unwrap();
        let mut all = Vec::new();
        schema.walk("", &schema.root(), 0, &mut all);
        assert!(all.len() > 400, "{}", all.len());
        let bare: Vec<&String> = all
            .iter()
            .filter(|path| {
                let report = schema.report(path, &schema.find(path).unwrap());
                report.description.is_empty() || report.r#type.is_empty()
            })
            .collect();
        assert!(bare.is_empty(), "{bare:?}");
    }
}
