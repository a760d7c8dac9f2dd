//! Configurations as flat lists of keys, for tables and comparisons.

use std::collections::BTreeMap;

use feedline_schemas::config::TrainConfig;
use serde_json::Value;

/// The configuration by key, such as `model.hidden`; values as JSON, those that are absent left out.
pub(crate) fn flat(config: &TrainConfig) -> BTreeMap<String, String> {
    let mut flat = BTreeMap::new();
    let value = serde_json::to_value(config).expect("a configuration has string keys");
    add("", &value, &mut flat);
    flat
}

fn add(key: &str, value: &Value, flat: &mut BTreeMap<String, String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                let key = if key.is_empty() {
                    name.clone()
                } else {
                    format!("{key}.{name}")
                };
                add(&key, value, flat);
            }
        }
        Value::String(text) => drop(flat.insert(key.to_owned(), text.clone())),
        other => drop(flat.insert(key.to_owned(), other.to_string())),
    }
}

/// The keys whose values are not the same in all of `configs`, each with its values in their order.
pub(crate) fn differences(configs: &[&TrainConfig]) -> BTreeMap<String, Vec<Option<String>>> {
    let flats: Vec<_> = configs.iter().map(|config| flat(config)).collect();
    let mut differing = BTreeMap::new();
    for key in flats.iter().flat_map(BTreeMap::keys) {
        let values: Vec<_> = flats.iter().map(|flat| flat.get(key).cloned()).collect();
        if values.windows(2).any(|pair| pair[0] != pair[1]) {
            differing.insert(key.clone(), values);
        }
    }
    differing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_that_differ_are_named() {
        let plain = TrainConfig::default();
        let mut other = plain.clone();
        (other.learning_rate, other.model.hidden) = (0.5, Some(vec![8, 8]));
        let found = differences(&[&plain, &other]);
        let expected = BTreeMap::from([
            (
                "learning_rate".to_owned(),
                vec![Some("0.001".to_owned()), Some("0.5".to_owned())],
            ),
            (
                "model.hidden".to_owned(),
                vec![None, Some("[8,8]".to_owned())],
            ),
        ]);
        assert_eq!(found, expected);
        assert!(differences(&[&plain]).is_empty());
    }
}
