use serde_json::{Map, json};

use super::*;
use crate::config::{ConfigError, load};

/// A table or a list around a value.
#[derive(Clone)]
enum Around {
    /// The keys that the table needs, and the key of the value.
    Table(Map<String, Value>, String),
    List,
}

/// A key of a pipeline file.
struct FoundKey {
    key: String,
    around: Vec<Around>,
    forms: Vec<&'static Value>,
}

impl FoundKey {
    /// Adds all keys below this one, and this one.
    fn add(self, seen: &[&'static Value], all: &mut Vec<Self>) {
        for form in self.forms.iter().copied() {
            if seen.iter().any(|earlier| std::ptr::eq(*earlier, form)) {
                continue;
            }
            let seen = [seen, &[form]].concat();
            let properties = form.get("properties").and_then(Value::as_object);
            for (name, schema) in properties.into_iter().flatten() {
                let around = Around::Table(needed(form), name.clone());
                self.below(name, around, schema).add(&seen, all);
            }
            let any = form.get("additionalProperties");
            if let Some(schema) = any.filter(|schema| schema.is_object()) {
                let around = Around::Table(Map::new(), "t".to_owned());
                self.below("t", around, schema).add(&seen, all);
            }
            if let Some(schema) = form.get("items") {
                self.below("0", Around::List, schema).add(&seen, all);
            }
        }
        all.push(self);
    }

    fn below(&self, name: &str, around: Around, schema: &'static Value) -> Self {
        Self {
            key: format!("{}.{name}", self.key)
                .trim_start_matches('.')
                .to_owned(),
            around: [&self.around[..], &[around]].concat(),
            forms: forms_of(schema),
        }
    }

    /// Text of a pipeline file with `value` at this key.
    fn file_with(&self, value: Value) -> String {
        let around = self.around.iter().rev();
        let root = around.fold(value, |value, around| match around {
            Around::List => json!([value]),
            Around::Table(needed, name) => {
                let mut table = needed.clone();
                table.insert(name.clone(), value);
                Value::Object(table)
            }
        });
        let mut root = root.as_object().unwrap().clone();
        root.entry("pipeline").or_insert(json!({ "name": "a" }));
        let lines = root.iter();
        let lines = lines.map(|(key, value)| format!("{key} = {}\n", toml(value)));
        lines.collect()
    }

    fn takes(&self, names: &[&str]) -> bool {
        let has = |form: &&Value| names.iter().any(|name| has_type(form, name));
        self.forms.iter().any(has)
    }
}

/// The required keys of a table, each with a value.
fn needed(table: &'static Value) -> Map<String, Value> {
    let required = table.get("required").and_then(Value::as_array);
    let names = required.into_iter().flatten().filter_map(Value::as_str);
    let valued = |name: &str| (name.to_owned(), a_value(&table["properties"][name]));
    names.map(valued).collect()
}

fn a_value(schema: &'static Value) -> Value {
    let forms = forms_of(schema);
    let form = forms.iter().copied().find(|form| !has_type(form, "null"));
    let form = form.unwrap();
    let listed = form.get("enum").and_then(|all| all.get(0));
    if let Some(word) = form.get("const").or(listed) {
        return word.clone();
    }
    let least = form.get("minimum").and_then(Value::as_u64);
    let types = ["object", "array", "string", "boolean"];
    match types.into_iter().find(|name| has_type(form, name)) {
        Some("object") => Value::Object(needed(form)),
        Some("array") => json!([]),
        Some("string") => json!("a"),
        Some("boolean") => json!(true),
        _ => json!(least.unwrap_or(1).max(1)),
    }
}

fn toml(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(toml).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(keys) => {
            let pairs = keys.iter();
            let pairs: Vec<String> = pairs
                .map(|(key, value)| format!("{key} = {}", toml(value)))
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
        value => value.to_string(),
    }
}

/// Parts of messages of serde that name a type of Rust, or of serde itself.
const WORDS_OF_SERDE: [&str; 18] = [
    "unit variant",
    "struct ",
    " enum ",
    "did not match",
    "string or map",
    "string only",
    " identifier",
    "invalid type: sequence",
    "invalid type: map",
    "expected a sequence",
    "expected a map",
    "expected a tuple",
    "expected a boolean",
    "array of length",
    "expected u",
    "expected i",
    "expected f",
    "expected unit",
];

#[test]
fn no_key_with_a_wrong_type_is_refused_with_a_type_of_rust() {
    let root = FoundKey {
        key: String::new(),
        around: Vec::new(),
        forms: forms_of(&SCHEMA),
    };
    let mut all = Vec::new();
    root.add(&[], &mut all);
    all.pop();
    assert!(all.len() > 500, "{}", all.len());
    let wrong = [
        (&["string"][..], json!("x")),
        (&["integer", "number"][..], json!(7)),
        (&["array"][..], json!([7])),
        (&["object"][..], json!({ "zz": 1 })),
    ];
    let (mut cases, mut reached) = (0, 0);
    for key in &all {
        for (types, value) in &wrong {
            if key.takes(types) {
                continue;
            }
            let text = key.file_with(value.clone());
            // A list may be read as the fields of a table.
            let Err(ConfigError {
                key: refused,
                reason,
                ..
            }) = load("p.toml", &text, &[])
            else {
                continue;
            };
            let found = WORDS_OF_SERDE.iter().find(|word| reason.contains(**word));
            assert_eq!(found, None, "{}: {reason}\n{text}", key.key);
            cases += 1;
            reached += usize::from(refused == key.key);
        }
    }
    assert!(reached * 10 > cases * 7, "{reached} of {cases}");
}

#[test]
fn tables_lists_and_words_are_named_with_an_example() {
    let head = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"a.csv\"\n[dataset]\n";
    for (line, expected) in [
        (
            "series = \"at\"",
            "series`: invalid type: string \"at\", expected a table with keys such as `",
        ),
        (
            "step = \"standardize\"",
            "step`: invalid type: string \"standardize\", expected a list of tables with keys such as `type`, ",
        ),
        (
            "join = \"p\"",
            "join`: invalid type: string \"p\", expected a list of tables with keys such as `",
        ),
        (
            "drop = \"p\"",
            "drop`: invalid type: string \"p\", expected a list, such as [\"a\", \"b\"]",
        ),
        (
            "expect = [7]",
            "expect`: invalid type: list, expected a table with keys such as `file`, ",
        ),
        (
            "image = { size = \"x\" }",
            "image.size`: expected a whole number, or a list of height and width, such as [224, 224]",
        ),
        (
            "conflicts = 7",
            "conflicts`: invalid type, expected `first`, `majority` or `drop`",
        ),
    ] {
        let error = load("p.toml", &format!("{head}{line}\n"), &[]).unwrap_err();
        let message = error.to_string();
        let begin = format!("p.toml:8: `dataset.{expected}");
        assert!(message.starts_with(&begin), "{message}");
    }
}
