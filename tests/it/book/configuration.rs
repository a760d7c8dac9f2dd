//! `docs/reference/configuration/`: every key of a pipeline file, generated from its JSON Schema,
//! with values of the examples.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
};

use feedline_schemas::config::PIPELINE_SCHEMA;
use serde_json::Value;

use super::{
    assert_generated, checkout, escaped,
    markdown::{Item, first_sentence, items},
    pages, wrap,
};

const FOLDER: &str = "docs/reference/configuration";
const SOURCES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/");
/// Name of a key that the user chooses.
const OWN_NAME: &str = "<name>";
/// Most keys of a table that is described with the key that holds it.
const SMALL: usize = 4;
/// Most columns of an example.
const EXAMPLE_WIDTH: usize = 90;
/// Tables with a page of their own have at most this depth, such as 2 for `dataset.split`.
const PAGE_DEPTH: usize = 2;
/// Deepest table.
const MAX_DEPTH: usize = 8;

const INDEX: &str = r#"# Configuration

Every key of a pipeline file, generated from its JSON Schema. A pipeline is one TOML file with the
sections below; only `[pipeline]` is required. Each section and each table in it has a page, and
each key an anchor with its path, such as `dataset-split.md#dataset.split.key`.

- A key is written as a path: `dataset.split.key` is the key `key` of the table `[dataset.split]`.
- `[[source]]` is a list of tables. Its keys are written without a number: `source.url`. With
  `--set` the number is needed, as in `--set source.0.url=data.csv`.
- `<name>` in a path is a name that you choose.
- A type is one of TOML: string, integer, number (integer or float), boolean, list, table.
- `feedline explain KEY` prints the description of a key, `feedline schema` the JSON Schema, and
  `feedline check PIPELINE.toml` what is wrong with a file.
- An unknown key is an error that names the nearest known key.

"#;

/// The schema of pipeline files.
struct Schema(Value);

/// Form of a table in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Single,
    List,
    Map,
}

/// A shape of a table: one object of the schema.
#[derive(Clone, Copy)]
struct Shape<'a> {
    object: &'a Value,
    form: Form,
}

/// A key of a table in one or several of its shapes.
#[derive(Clone)]
struct Variant<'a> {
    /// Key and value that choose the shape, such as `type` and `rest`; empty where it is in all.
    only_with: Vec<(&'a str, &'a str)>,
    entry: &'a Value,
    is_required: bool,
    /// Description of the shape, for the key that chooses it.
    shape_text: &'a str,
}

/// A table of the pipeline file.
struct Table<'a> {
    path: String,
    /// As it is written, such as `[[source]]`.
    header: String,
    description: String,
    /// The key that holds the table; none for a section.
    held_by: Vec<Variant<'a>>,
    keys: BTreeMap<&'a str, Vec<Variant<'a>>>,
    /// Tables below with a section or a page of their own.
    below: Vec<Self>,
}

impl Schema {
    fn read() -> Self {
        Self(serde_json::from_str(PIPELINE_SCHEMA).unwrap())
    }

    /// The entry that a reference leads to.
    fn resolve<'a>(&'a self, entry: &'a Value) -> &'a Value {
        let name = entry["$ref"]
            .as_str()
            .and_then(|path| path.rsplit('/').next());
        name.map_or(entry, |name| self.resolve(&self.0["$defs"][name]))
    }

    /// The alternatives of an entry, references resolved, without `null`.
    fn alternatives<'a>(&'a self, entry: &'a Value, found: &mut Vec<&'a Value>) {
        let entry = self.resolve(entry);
        let lists = ["anyOf", "oneOf", "allOf"]
            .iter()
            .filter_map(|key| entry[*key].as_array());
        let before = found.len();
        for alternative in lists.flatten() {
            self.alternatives(alternative, found);
        }
        let is_leaf = found.len() == before && entry["type"] != "null";
        if is_leaf || entry["properties"].is_object() {
            found.push(entry);
        }
    }

    fn all_alternatives<'a>(&'a self, entry: &'a Value) -> Vec<&'a Value> {
        let mut found = Vec::new();
        self.alternatives(entry, &mut found);
        found
    }

    /// The shapes of the tables that an entry may be: itself, items of its list, values of its map.
    fn shapes<'a>(&'a self, entry: &'a Value) -> Vec<Shape<'a>> {
        let mut shapes = Vec::new();
        for alternative in self.all_alternatives(entry) {
            if alternative["properties"].is_object() {
                shapes.push(Shape {
                    object: alternative,
                    form: Form::Single,
                });
            }
            let patterns = alternative["patternProperties"].as_object();
            let patterns = patterns.into_iter().flat_map(serde_json::Map::values);
            let own = patterns.chain([&alternative["additionalProperties"]]);
            let own = own
                .filter(|own| own.is_object())
                .map(|own| (own, Form::Map));
            let items = Some(&alternative["items"]).filter(|items| items.is_object());
            let items = items.map(|items| (items, Form::List));
            for (entry, form) in own.chain(items) {
                let objects = self.shapes(entry).into_iter();
                shapes.extend(objects.map(|shape| Shape { form, ..shape }));
            }
        }
        shapes
    }

    /// Keys of some shapes of a table. Equal entries of several shapes are one variant.
    fn keys<'a>(&'a self, shapes: &[Shape<'a>]) -> BTreeMap<&'a str, Vec<Variant<'a>>> {
        let mut keys: BTreeMap<&str, Vec<Variant<'_>>> = BTreeMap::new();
        for shape in shapes {
            let properties = shape.object["properties"].as_object();
            let required = shape.object["required"].as_array();
            let required: Vec<&str> = required
                .map(|names| names.iter().filter_map(Value::as_str).collect())
                .unwrap_or_default();
            let tag = properties.into_iter().flatten();
            let tag =
                tag.filter_map(|(name, entry)| Some((name.as_str(), entry["const"].as_str()?)));
            let tag: Vec<(&str, &str)> = match shapes.len() {
                1 => vec![],
                _ => tag.collect(),
            };
            for (name, entry) in properties.into_iter().flatten() {
                let variants = keys.entry(name).or_default();
                let is_required = required.contains(&name.as_str());
                let is_tag = entry["const"].is_string();
                let same = variants.iter_mut().find(|known| known.entry == entry);
                match same {
                    Some(known) => {
                        known.only_with.extend(tag.iter().copied());
                        known.is_required &= is_required;
                    }
                    None => variants.push(Variant {
                        only_with: if is_tag { vec![] } else { tag.clone() },
                        entry,
                        is_required,
                        shape_text: shape.object["description"].as_str().unwrap_or_default(),
                    }),
                }
            }
        }
        let tagged = shapes.len();
        for variants in keys.values_mut() {
            for variant in variants {
                if variant.only_with.len() >= tagged {
                    variant.only_with.clear();
                }
            }
        }
        keys
    }

    /// The table at `path`, with those below it; `None` where the key holds no table.
    fn table<'a>(&'a self, path: &str, held_by: &[Variant<'a>], depth: usize) -> Option<Table<'a>> {
        let entries = held_by.iter().map(|variant| variant.entry);
        let shapes: Vec<Shape<'_>> = entries.flat_map(|entry| self.shapes(entry)).collect();
        let form = shapes.first()?.form;
        let path = match form {
            Form::Map => format!("{path}.{OWN_NAME}"),
            _ => path.to_owned(),
        };
        let keys = self.keys(&shapes);
        let mut below = Vec::new();
        if depth < MAX_DEPTH {
            for (name, variants) in &keys {
                let own = self.table(&format!("{path}.{name}"), variants, depth + 1);
                below.extend(own.filter(|table| !table.is_small()));
            }
        }
        let header = match form {
            Form::List => format!("[[{path}]]"),
            _ => format!("[{path}]"),
        };
        Some(Table {
            description: self.description(held_by[0].entry, &shapes),
            path,
            header,
            held_by: held_by.to_vec(),
            keys,
            below,
        })
    }

    /// The entry's own description, else that of what it refers to.
    fn description(&self, entry: &Value, shapes: &[Shape<'_>]) -> String {
        let text = |entry: &Value| entry["description"].as_str().map(ToOwned::to_owned);
        let own = text(entry).or_else(|| text(self.resolve(entry)));
        let shape = || shapes.first().and_then(|shape| text(shape.object));
        own.or_else(shape).unwrap_or_default()
    }

    /// Types of a value, such as `integer from 1 or list of strings`.
    fn types(&self, entry: &Value) -> Vec<String> {
        let mut types: Vec<String> = Vec::new();
        for shape in self.all_alternatives(entry) {
            for name in self.types_of_shape(shape) {
                if !types.contains(&name) {
                    types.push(name);
                }
            }
        }
        types
    }

    fn types_of_shape(&self, shape: &Value) -> Vec<String> {
        if shape["const"].is_string() || shape["enum"].is_array() {
            return vec!["string".to_owned()];
        }
        let names: Vec<&str> = match &shape["type"] {
            Value::String(name) => vec![name],
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            _ => vec![],
        };
        let names = names.into_iter().filter(|name| *name != "null");
        let range = range(shape);
        names
            .map(|name| match name {
                "array" => {
                    let items = self.types(&shape["items"]).join(" or ");
                    let exact = shape["minItems"]
                        .as_u64()
                        .filter(|_| shape["minItems"] == shape["maxItems"]);
                    match (exact, items.as_str()) {
                        (_, "") => "list".to_owned(),
                        (Some(count), items) => format!("list of {count}, each {items}"),
                        (None, items) => format!("list of {items}"),
                    }
                }
                "object" => match shape["additionalProperties"].is_object() {
                    true => {
                        let values = self.types(&shape["additionalProperties"]);
                        format!("table of {}", values.join(" or "))
                    }
                    false => "table".to_owned(),
                },
                "integer" | "number" => format!("{name}{range}"),
                other => other.to_owned(),
            })
            .collect()
    }

    /// Words that a value may be, each with its description.
    fn values(&self, entry: &Value) -> Vec<(String, String)> {
        let mut values: Vec<(String, String)> = Vec::new();
        for shape in self.all_alternatives(entry) {
            let text = shape["description"].as_str().unwrap_or_default();
            let listed = shape["enum"].as_array().into_iter().flatten();
            let words = listed.chain([&shape["const"]]).filter_map(Value::as_str);
            for word in words {
                if values.iter().all(|(known, _)| known != word) {
                    values.push((word.to_owned(), text.to_owned()));
                }
            }
        }
        values
    }
}

/// Range of a number, such as ` from 0 to 1`.
fn range(shape: &Value) -> String {
    let number = |key: &str| {
        Some(&shape[key])
            .filter(|value| value.is_number())
            .map(ToString::to_string)
    };
    let low = number("minimum").map(|low| format!(" from {low}"));
    let low = low.or_else(|| number("exclusiveMinimum").map(|low| format!(" above {low}")));
    let high = number("maximum").map(|high| format!(" to {high}"));
    let high = high.or_else(|| number("exclusiveMaximum").map(|high| format!(" below {high}")));
    low.unwrap_or_default() + &high.unwrap_or_default()
}

impl Table<'_> {
    /// A table that is described with the key that holds it.
    fn is_small(&self) -> bool {
        self.keys.len() <= SMALL && self.below.is_empty() && self.path.matches('.').count() > 1
    }

    /// Count of keys in the path, without names that the user chooses.
    fn depth(&self) -> usize {
        self.path
            .split('.')
            .filter(|part| *part != OWN_NAME)
            .count()
    }

    fn file(&self) -> String {
        let parts = self.path.split('.').filter(|part| *part != OWN_NAME);
        let parts = parts.take(PAGE_DEPTH).collect::<Vec<_>>();
        format!("{}.md", parts.join("-"))
    }
}

/// A pipeline of the examples or the pages, and where it is.
struct Example {
    label: String,
    url: String,
    table: toml::Table,
}

/// The examples, then the pipelines of how-to pages.
fn examples() -> Vec<Example> {
    let root = checkout();
    let mut found = Vec::new();
    let mut files = Vec::new();
    let mut folders = vec![root.join("examples")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    // The quickstart first: it is the one that readers know.
    files.sort_by_key(|path| (path.parent() != Some(&root.join("examples")), path.clone()));
    for file in files {
        let path = file
            .strip_prefix(root)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let table: toml::Table = fs::read_to_string(&file).unwrap().parse().unwrap();
        if table.contains_key("pipeline") {
            found.push(Example {
                label: file.file_name().unwrap().to_str().unwrap().to_owned(),
                url: format!("{SOURCES}{path}"),
                table,
            });
        }
    }
    for page in pages() {
        let Some(own) = page.path.strip_prefix("docs/how-to/") else {
            continue;
        };
        let title = page.text.lines().next().unwrap_or_default();
        for item in items(&page.text).unwrap_or_default() {
            let Item::Block(block) = item else { continue };
            let is_wrong = block.notes.contains_key("norun") || block.language != "toml";
            if let Some(table) = block.text.parse().ok().filter(|_| !is_wrong) {
                found.push(Example {
                    label: title.trim_start_matches(['#', ' ']).to_owned(),
                    url: format!("../../how-to/{own}"),
                    table,
                });
            }
        }
    }
    found
}

/// The first value at a path. Lists are searched in their order.
fn at<'a>(value: &'a toml::Value, path: &[&str]) -> Option<&'a toml::Value> {
    let Some((first, rest)) = path.split_first() else {
        return Some(value);
    };
    match value {
        toml::Value::Array(items) => items.iter().find_map(|item| at(item, path)),
        toml::Value::Table(table) if *first == OWN_NAME => {
            table.values().find_map(|value| at(value, rest))
        }
        toml::Value::Table(table) => at(table.get(*first)?, rest),
        _ => None,
    }
}

/// A value in one line, the keys that say what a table is first.
fn inline(value: &toml::Value) -> String {
    match value {
        toml::Value::Table(table) => {
            let pairs = ordered(table).into_iter();
            let pairs = pairs.map(|(key, value)| format!("{} = {}", quoted(key), inline(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
        toml::Value::Array(items) => {
            let items = items.iter().map(inline).collect::<Vec<_>>();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

fn quoted(key: &str) -> String {
    let is_bare = key
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    match is_bare && !key.is_empty() {
        true => key.to_owned(),
        false => toml::Value::String(key.to_owned()).to_string(),
    }
}

fn ordered(table: &toml::Table) -> Vec<(&str, &toml::Value)> {
    const FIRST: [&str; 7] = ["name", "type", "kind", "by", "url", "format", "target"];
    let mut pairs: Vec<(&str, &toml::Value)> = table.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let place = |key: &str| {
        FIRST
            .iter()
            .position(|first| *first == key)
            .unwrap_or(FIRST.len())
    };
    pairs.sort_by_key(|(key, _)| (place(key), key.to_owned()));
    pairs
}

/// True for a value that is written as a table or a list of tables of its own.
fn is_section(value: &toml::Value) -> bool {
    let is_long = inline(value).len() > EXAMPLE_WIDTH;
    match value {
        toml::Value::Table(_) => is_long,
        toml::Value::Array(items) => {
            is_long && !items.is_empty() && items.iter().all(toml::Value::is_table)
        }
        _ => false,
    }
}

/// Writes a table with its header; keys first, then tables that are too long for a line.
fn write_toml(header: &str, path: &str, table: &toml::Table, out: &mut String) {
    writeln!(out, "{header}").unwrap();
    let pairs = ordered(table);
    for (key, value) in pairs.iter().filter(|(_, value)| !is_section(value)) {
        writeln!(out, "{} = {}", quoted(key), inline(value)).unwrap();
    }
    for (key, value) in pairs {
        let path = format!("{path}.{}", quoted(key));
        match value {
            value if !is_section(value) => {}
            toml::Value::Table(table) => {
                out.push('\n');
                write_toml(&format!("[{path}]"), &path, table, out);
            }
            toml::Value::Array(items) => {
                for item in items.iter().filter_map(toml::Value::as_table) {
                    out.push('\n');
                    write_toml(&format!("[[{path}]]"), &path, item, out);
                }
            }
            _ => {}
        }
    }
}

/// The configuration's pages, and the pieces that they are made of.
struct Reference<'a> {
    schema: &'a Schema,
    examples: &'a [Example],
    /// All anchors, each once.
    anchors: BTreeSet<String>,
    with_example: usize,
}

impl Reference<'_> {
    fn anchor(&mut self, path: &str, out: &mut String) {
        assert!(
            self.anchors.insert(path.to_owned()),
            "two anchors for `{path}`"
        );
        writeln!(out, "<a id=\"{}\"></a>", path.replace(['<', '>'], "")).unwrap();
    }

    /// The page of a table.
    fn page(&mut self, table: &Table<'_>) -> String {
        let mut out = format!("# `{}`\n\n", table.header);
        self.anchor(&table.path, &mut out);
        out.push('\n');
        self.table(table, &mut out);
        out
    }

    fn table(&mut self, table: &Table<'_>, out: &mut String) {
        let facts = self.facts(&table.held_by);
        let is_plain = ["Table.", "List of table."].contains(&facts.as_str());
        if table.depth() > 1 && !is_plain {
            out.push_str(&wrap("", &facts));
            out.push('\n');
        }
        out.push_str(&paragraphs(&table.description));
        self.table_example(table, out);
        out.push_str("\n| key | type | meaning |\n|---|---|---|\n");
        for (name, variants) in &table.keys {
            let path = format!("{}.{name}", table.path);
            let own = table
                .below
                .iter()
                .find(|own| own.path == path || own.path == format!("{path}.{OWN_NAME}"));
            let link = match own {
                Some(own) => own_link(table, own),
                None => format!("#{path}"),
            };
            let link = link.replace(['<', '>'], "");
            let types = self.type_of(variants);
            let text = self.text(&variants[0]);
            let text = escaped(first_sentence(&text)).replace('|', "\\|");
            writeln!(out, "| [`{name}`]({link}) | {types} | {text} |").unwrap();
        }
        for (name, variants) in &table.keys {
            let path = format!("{}.{name}", table.path);
            let is_table =
                |own: &Table<'_>| own.path == path || own.path == format!("{path}.{OWN_NAME}");
            if !table.below.iter().any(is_table) {
                let level = if table.depth() > PAGE_DEPTH {
                    "###"
                } else {
                    "##"
                };
                self.key(&path, level, variants, out);
            }
        }
        for own in table.below.iter().filter(|own| own.depth() > PAGE_DEPTH) {
            writeln!(out, "\n## `{}`\n", own.header).unwrap();
            self.anchor(&own.path, out);
            out.push('\n');
            self.table(own, out);
        }
    }

    fn type_of(&self, variants: &[Variant<'_>]) -> String {
        let mut types: Vec<String> = Vec::new();
        for name in variants
            .iter()
            .flat_map(|variant| self.schema.types(variant.entry))
        {
            if !types.contains(&name) {
                types.push(name);
            }
        }
        types.join(" or ")
    }

    fn text(&self, variant: &Variant<'_>) -> String {
        let own = variant.entry["description"].as_str();
        let text = own.map_or_else(
            || {
                self.schema
                    .description(variant.entry, &self.schema.shapes(variant.entry))
            },
            ToOwned::to_owned,
        );
        match (text.is_empty(), variant.entry["const"].is_string()) {
            (true, true) => "Kind of the table, which decides its other keys.".to_owned(),
            _ => text.replace('\n', " "),
        }
    }

    /// The section of a key.
    fn key(&mut self, path: &str, level: &str, variants: &[Variant<'_>], out: &mut String) {
        let name = path.rsplit('.').next().unwrap_or_default();
        out.push('\n');
        self.anchor(path, out);
        writeln!(out, "\n{level} `{name}`\n").unwrap();
        let is_kind = variants
            .iter()
            .all(|variant| variant.entry["const"].is_string());
        let groups: Vec<&[Variant<'_>]> = match is_kind {
            true => vec![variants],
            false => variants.chunks(1).collect(),
        };
        for (at, group) in groups.into_iter().enumerate() {
            if at > 0 {
                out.push('\n');
            }
            let first = &group[0];
            out.push_str(&wrap("", &self.facts(group)));
            let text = self.text(first);
            let own = first.entry["description"].as_str().unwrap_or(&text);
            out.push('\n');
            out.push_str(&paragraphs(own));
            self.leaf_note(first, out);
            let mut values: Vec<(String, String)> = Vec::new();
            for variant in group {
                for (word, text) in self.schema.values(variant.entry) {
                    let text = match is_kind && text.is_empty() {
                        true => variant.shape_text.to_owned(),
                        false => text,
                    };
                    values.push((word, text));
                }
            }
            if !values.is_empty() {
                out.push('\n');
            }
            for (word, text) in values {
                let text = escaped(&text.replace('\n', " "));
                let text = match text.trim() {
                    "" => format!("`\"{word}\"`"),
                    text => format!("`\"{word}\"`: {text}"),
                };
                out.push_str(&wrap("- ", &text));
            }
        }
        self.small_table(path, variants, out);
        self.example(path, name, out);
    }

    /// Type, default, and when a key may be used.
    fn facts(&self, variants: &[Variant<'_>]) -> String {
        let first = &variants[0];
        let mut facts = vec![self.type_of(variants)];
        if first.is_required {
            facts.push("required".to_owned());
        }
        if let Some(default) = default(first.entry) {
            facts.push(format!("default `{default}`"));
        }
        let mut by_tag: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (tag, value) in &first.only_with {
            by_tag
                .entry(tag)
                .or_default()
                .push(format!("`\"{value}\"`"));
        }
        for (tag, values) in by_tag {
            facts.push(format!("with `{tag}` = {}", values.join(", ")));
        }
        let mut facts = facts.join("; ");
        if let Some(first) = facts.get(..1).map(str::to_uppercase) {
            facts.replace_range(..1, &first);
        }
        format!("{facts}.")
    }

    /// Form of a value that has a name in the schema, such as a span of time.
    fn leaf_note(&self, variant: &Variant<'_>, out: &mut String) {
        let mut notes = BTreeSet::new();
        let mut entries = vec![variant.entry];
        while let Some(entry) = entries.pop() {
            let lists = ["anyOf", "allOf"]
                .iter()
                .filter_map(|key| entry[*key].as_array());
            entries.extend(lists.flatten());
            entries.extend(Some(&entry["items"]).filter(|items| items.is_object()));
            let own = self.schema.resolve(entry);
            let is_leaf = own["type"].is_string() || own["type"].is_array();
            let is_table = own["properties"].is_object();
            let is_named = !entry["$ref"].is_null() && is_leaf && !is_table;
            if let Some(text) = own["description"].as_str().filter(|_| is_named) {
                notes.insert(text.replace('\n', " "));
            }
        }
        for note in notes {
            let note = format!("Form: {}", escaped(note.trim_end_matches('.')));
            out.push('\n');
            out.push_str(&wrap("", &format!("{note}.")));
        }
    }

    /// Keys of a small table, in the section of the key that holds it.
    fn small_table(&mut self, path: &str, variants: &[Variant<'_>], out: &mut String) {
        let Some(table) = self.schema.table(path, variants, PAGE_DEPTH) else {
            return;
        };
        writeln!(out, "\nKeys of `{}`:\n", table.header).unwrap();
        for (name, variants) in &table.keys {
            let own = format!("{}.{name}", table.path);
            let known = !self.anchors.insert(own.clone());
            let id = own.replace(['<', '>'], "");
            let anchor = if known {
                String::new()
            } else {
                format!("<a id=\"{id}\"></a>")
            };
            let facts = self.facts(variants);
            let facts = facts.trim_end_matches('.');
            let text = escaped(&self.text(&variants[0]));
            let mut text = format!("{anchor}`{name}` ({}): {text}", lowercase_first(facts));
            let values = self.schema.values(variants[0].entry);
            if !values.is_empty() {
                let words: Vec<String> = values
                    .iter()
                    .map(|(word, _)| format!("`\"{word}\"`"))
                    .collect();
                text += &format!(" Values: {}.", words.join(", "));
            }
            out.push_str(&wrap("- ", &text));
        }
    }

    /// The value of a key in the first example that has it.
    fn example(&mut self, path: &str, name: &str, out: &mut String) {
        let parts: Vec<&str> = path.split('.').collect();
        let found = self.examples.iter().find_map(|example| {
            let root = toml::Value::Table(example.table.clone());
            let value = at(&root, &parts)?;
            let text = format!("{} = {}", quoted(name), inline(value));
            (text.len() <= EXAMPLE_WIDTH && !text.contains(['`', '\n'])).then_some((text, example))
        });
        if let Some((text, Example { label, url, .. })) = found {
            self.with_example += 1;
            writeln!(out, "\nExample: `{text}`").unwrap();
            out.push_str(&wrap("", &format!("([{label}]({url}))")));
        }
    }

    /// A table of the first example that has it, with what its section needs besides.
    fn table_example(&self, table: &Table<'_>, out: &mut String) {
        let parts: Vec<&str> = table.path.split('.').collect();
        let found = self.examples.iter().find_map(|example| {
            let root = toml::Value::Table(example.table.clone());
            let value = at(&root, &parts)?;
            (value.is_table() || value.is_array()).then_some(example)
        });
        let Some(example) = found else { return };
        let Some(section) = example.table.get(parts[0]) else {
            return;
        };
        let item = match section {
            toml::Value::Array(items) => items.iter().find(|item| at(item, &parts[1..]).is_some()),
            section => Some(section),
        };
        let Some(item) = item.and_then(toml::Value::as_table) else {
            return;
        };
        let mut kept = item.clone();
        if let Some(second) = parts.get(1) {
            let needed = ["name", "type", "url", "kind"];
            kept.retain(|key, _| key == *second || needed.contains(&key));
        }
        let header = match section.is_array() {
            true => format!("[[{}]]", parts[0]),
            false => format!("[{}]", parts[0]),
        };
        let mut text = String::new();
        write_toml(&header, parts[0], &kept, &mut text);
        writeln!(
            out,
            "\n```toml\n{text}```\n\nFrom [{}]({}).",
            example.label, example.url
        )
        .unwrap();
    }
}

fn lowercase_first(text: &str) -> String {
    let first = text.get(..1).map(str::to_lowercase).unwrap_or_default();
    first + text.get(1..).unwrap_or_default()
}

/// Link from the page of a table to one below it.
fn own_link(table: &Table<'_>, own: &Table<'_>) -> String {
    match own.file() == table.file() {
        true => format!("#{}", own.path),
        false => own.file(),
    }
}

/// The paragraphs of a description, in lines of the page.
fn paragraphs(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|text| wrap("", &escaped(text)));
    paragraphs.collect::<Vec<_>>().join("\n")
}

/// The default as TOML. A number of 32 bits is written with its own digits.
fn default(entry: &Value) -> Option<String> {
    let value = &entry["default"];
    if value.is_null() || value.is_object() {
        return None;
    }
    let is_single = |entry: &Value| entry["format"] == "float";
    let number = |value: &Value, is_single: bool| match value.is_f64() && is_single {
        true => value
            .to_string()
            .parse::<f32>()
            .map_or(value.to_string(), |v| v.to_string()),
        false => value.to_string(),
    };
    Some(match value {
        Value::Array(items) => {
            let is_single = is_single(&entry["items"]);
            let items: Vec<String> = items.iter().map(|item| number(item, is_single)).collect();
            format!("[{}]", items.join(", "))
        }
        value => number(value, is_single(entry)),
    })
}

/// Tables with pages, in the order of the index: each section, then the tables in it.
fn page_tables(schema: &Schema) -> Vec<Table<'_>> {
    const ORDER: [&str; 6] = ["pipeline", "ingest", "source", "dataset", "train", "tune"];
    let sections = schema.0["properties"].as_object().unwrap();
    let mut names: Vec<&String> = sections.keys().collect();
    names.sort_by_key(|name| {
        ORDER
            .iter()
            .position(|own| own == name)
            .unwrap_or(ORDER.len())
    });
    let tables = names.into_iter().map(|name| {
        let section = Variant {
            only_with: vec![],
            entry: &sections[name],
            is_required: false,
            shape_text: "",
        };
        schema.table(name, &[section], 1).unwrap()
    });
    tables.collect()
}

/// Depth, title and path of each page, for the table of contents.
pub(super) fn contents() -> Vec<(usize, String, String)> {
    let schema = Schema::read();
    let mut lines = vec![(0, "Configuration".to_owned(), "README.md".to_owned())];
    for table in page_tables(&schema) {
        lines.push((1, format!("`{}`", table.header), table.file()));
        let below = table.below.iter();
        lines.extend(below.map(|own| (2, format!("`{}`", own.header), own.file())));
    }
    lines
}

/// Each page with its path in the folder, the paths that have an anchor, and the count of those with
/// an example.
fn generate() -> (Vec<(String, String)>, BTreeSet<String>, usize) {
    let schema = Schema::read();
    let examples = examples();
    let mut reference = Reference {
        schema: &schema,
        examples: &examples,
        anchors: BTreeSet::new(),
        with_example: 0,
    };
    let mut index = INDEX.to_owned();
    let mut pages = Vec::new();
    for table in page_tables(&schema) {
        let mut add = |table: &Table<'_>, indent: &str| {
            let text = table.description.replace('\n', " ");
            let text = escaped(first_sentence(&text));
            let line = format!("[`{}`]({}): {text}", table.header, table.file());
            index.push_str(&wrap(&format!("{indent}- "), &line));
            pages.push((table.file(), reference.page(table)));
        };
        add(&table, "");
        for own in &table.below {
            add(own, "  ");
        }
    }
    pages.push(("README.md".to_owned(), index));
    (pages, reference.anchors, reference.with_example)
}

/// Writes the pages where the environment asks for it: other generated files have lines of them.
pub(super) fn write() {
    if !super::is_writing() {
        return;
    }
    for (path, text) in generate().0 {
        assert_generated(&format!("{FOLDER}/{path}"), &text);
    }
}

/// Keys of the schema by a walk of its own, without names that users choose.
fn walk(schema: &Schema, path: &str, entry: &Value, depth: usize, all: &mut BTreeSet<String>) {
    if depth > MAX_DEPTH {
        return;
    }
    for alternative in schema.all_alternatives(entry) {
        for (name, entry) in alternative["properties"].as_object().into_iter().flatten() {
            let own = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            walk(schema, &own, entry, depth + 1, all);
            all.insert(own);
        }
        let map = Some(&alternative["additionalProperties"]).filter(|own| own.is_object());
        let items = Some(&alternative["items"]).filter(|own| own.is_object());
        for entry in map.into_iter().chain(items) {
            walk(schema, path, entry, depth + 1, all);
        }
    }
}

#[test]
fn the_reference_of_configuration_is_that_of_the_schema() {
    let (pages, anchors, with_example) = generate();
    for (path, text) in &pages {
        assert_generated(&format!("{FOLDER}/{path}"), text);
    }
    let known: BTreeSet<&str> = pages.iter().map(|(path, _)| path.as_str()).collect();
    for entry in fs::read_dir(checkout().join(FOLDER)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            known.contains(name.as_str()),
            "{FOLDER}/{name} is of no table: remove it"
        );
    }
    eprintln!(
        "{} keys on {} pages, {with_example} with an example",
        anchors.len(),
        pages.len()
    );
}

#[test]
fn every_key_of_the_schema_has_an_anchor() {
    let schema = Schema::read();
    let mut keys = BTreeSet::new();
    walk(&schema, "", &schema.0, 0, &mut keys);
    assert!(keys.len() > 300, "{}", keys.len());
    let (pages, anchors, _) = generate();
    let own_names = |path: &String| path.replace(&format!(".{OWN_NAME}"), "");
    let found: BTreeSet<String> = anchors.iter().map(own_names).collect();
    let missing: Vec<&String> = keys.difference(&found).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let text: String = pages.into_iter().map(|(_, text)| text).collect();
    for path in &anchors {
        let id = path.replace(['<', '>'], "");
        assert_eq!(
            text.matches(&format!("<a id=\"{id}\">")).count(),
            1,
            "{path}"
        );
    }
}
