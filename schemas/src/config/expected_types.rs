//! Words for the tables, lists and values that a key takes, from the JSON Schema of a pipeline file.

use std::sync::LazyLock;

use serde_json::Value;

use super::PIPELINE_SCHEMA;

/// Most keys of a table that a message names.
const NAMED_KEYS: usize = 4;

static SCHEMA: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(PIPELINE_SCHEMA).unwrap_or_default());

/// Replaces what serde expects at `key` by words of TOML; `None` where it is in such words.
pub(super) fn in_words_of_toml(key: &str, expected: &str) -> Option<String> {
    let begins = |words: &[&str]| words.iter().any(|word| expected.starts_with(word));
    Some(match expected {
        "u8" => format!("a whole number from 0 to {}", u8::MAX),
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" | "usize" => "a whole number from 0".to_owned(),
        "i32" | "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a map" => "a table".to_owned(),
        "string or map" | "string only" | "variant identifier" => words_at(key),
        "a sequence" => list_at(key),
        _ if begins(&["an array of length", "a tuple of size"]) => list_at(key),
        _ if begins(&["struct ", "internally tagged enum "]) => table_at(key),
        _ => return None,
    })
}

/// The table above `key`, if `key` is an index into a list that is there instead: serde reads a list as the fields of a table, in
/// their order.
pub(super) fn list_for_table(key: &str) -> Option<&str> {
    let mut forms = forms_of(&SCHEMA);
    let mut end = 0;
    for part in key.split('.') {
        let is_index = part.bytes().all(|byte| byte.is_ascii_digit());
        let below = forms_below(&forms, part);
        if is_index && below.is_empty() && named_keys(&forms).is_some() {
            return key.get(..end);
        }
        forms = below;
        end += part.len() + usize::from(end > 0);
    }
    None
}

fn table_at(key: &str) -> String {
    let keys = named_keys(&forms_at(key)).unwrap_or_default();
    format!("a table{}", with_keys(&keys))
}

fn list_at(key: &str) -> String {
    let mut forms = forms_at(key).into_iter();
    let Some(list) = forms.find(|form| has_type(form, "array")) else {
        return "a list".to_owned();
    };
    let items = list.get("items").map(forms_of).unwrap_or_default();
    if let Some(keys) = named_keys(&items) {
        return format!("a list of tables{}", with_keys(&keys));
    }
    let count = |key: &str| list.get(key).and_then(Value::as_u64);
    let is_any = |types: &[&str]| {
        let mut items = items.iter();
        items.any(|item| types.iter().any(|name| has_type(item, name)))
    };
    match count("maxItems") {
        Some(most) if count("minItems") == Some(most) => format!("a list of {most} values"),
        _ if is_any(&["string"]) => "a list, such as [\"a\", \"b\"]".to_owned(),
        _ if is_any(&["integer", "number"]) => "a list of numbers, such as [1, 2]".to_owned(),
        _ => "a list".to_owned(),
    }
}

fn words_at(key: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for form in forms_at(key) {
        let of_enum = form.get("enum").and_then(Value::as_array);
        let of_const = form.get("const").into_iter();
        let all = of_const.chain(of_enum.into_iter().flatten());
        for word in all.filter_map(Value::as_str) {
            let word = format!("`{word}`");
            if !words.contains(&word) {
                words.push(word);
            }
        }
    }
    match words.pop() {
        None => "a text".to_owned(),
        Some(only) if words.is_empty() => only,
        Some(last) => format!("{} or {last}", words.join(", ")),
    }
}

fn with_keys(keys: &[&str]) -> String {
    match keys.is_empty() {
        true => String::new(),
        false => format!(" with keys such as `{}`", keys.join("`, `")),
    }
}

/// The first keys of the tables among `forms`, required ones before others; `None` where no form is a table.
fn named_keys(forms: &[&'static Value]) -> Option<Vec<&'static str>> {
    let mut tables: Vec<&'static Value> = forms.to_vec();
    tables.retain(|form| has_type(form, "object"));
    tables.first()?;
    let required = tables
        .iter()
        .copied()
        .filter_map(|table| table.get("required")?.as_array())
        .flatten()
        .filter_map(Value::as_str);
    let all = tables
        .iter()
        .copied()
        .filter_map(|table| table.get("properties")?.as_object())
        .flat_map(|keys| keys.keys().map(String::as_str));
    let mut named: Vec<&str> = Vec::new();
    for key in required.chain(all) {
        if named.len() < NAMED_KEYS && !named.contains(&key) {
            named.push(key);
        }
    }
    Some(named)
}

fn has_type(form: &Value, name: &str) -> bool {
    match form.get("type") {
        Some(Value::String(found)) => found == name,
        Some(Value::Array(all)) => all.iter().any(|found| found.as_str() == Some(name)),
        _ => false,
    }
}

/// Forms of the value at `key`, without references; empty for a key that the schema does not have.
fn forms_at(key: &str) -> Vec<&'static Value> {
    let below = |forms: Vec<&'static Value>, part| forms_below(&forms, part);
    key.split('.').fold(forms_of(&SCHEMA), below)
}

/// Forms of `part`, a key or an index, below values of these `forms`.
fn forms_below(forms: &[&'static Value], part: &str) -> Vec<&'static Value> {
    let is_index = part.bytes().all(|byte| byte.is_ascii_digit());
    let below = |form: &'static Value| {
        let named = form.get("properties").and_then(|keys| keys.get(part));
        let any = form.get("additionalProperties");
        let any = any.filter(|schema| schema.is_object());
        named.or(any).or(form.get("items").filter(|_| is_index))
    };
    let schemas = forms.iter().copied().filter_map(below);
    schemas.flat_map(forms_of).collect()
}

/// A schema, or those that it refers to.
fn forms_of(schema: &'static Value) -> Vec<&'static Value> {
    let name = schema.get("$ref").and_then(Value::as_str);
    let named = name.and_then(|name| SCHEMA.pointer(name.trim_start_matches('#')));
    let listed = ["anyOf", "oneOf", "allOf"].map(|key| schema.get(key)?.as_array());
    let listed = listed.into_iter().flatten().flatten();
    let all = named.into_iter().chain(listed);
    let mut forms: Vec<&'static Value> = all.flat_map(forms_of).collect();
    if forms.is_empty() {
        forms.push(schema);
    }
    forms
}

#[cfg(test)]
mod tests;
