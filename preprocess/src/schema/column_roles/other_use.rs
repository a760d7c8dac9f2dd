//! Columns that are no features since a key names them for another use.

use std::collections::BTreeMap;

use feedline_schemas::config::DatasetConfig;

use crate::{
    Error,
    schema::{dataset_spec::Input, landed_columns::listed},
};

/// Columns of `dataset.passthrough` and of the split that are no features because these keys name
/// them, each with the key. None where `dataset.features` lists the features. Targets, dropped
/// columns and times are no features by their own keys.
pub(crate) fn columns_in_other_use(
    config: &DatasetConfig,
    inputs: &[Input],
) -> BTreeMap<String, &'static str> {
    let mut found = BTreeMap::new();
    if !config.features.is_empty() || !config.kind.is_rows() {
        return found;
    }
    let split = config.split.column().map_or(&[][..], std::slice::from_ref);
    let lists: [(&'static str, &[String]); 3] = [
        ("dataset.passthrough", &config.passthrough),
        ("dataset.split.column", split),
        ("dataset.split.key", &config.split.key),
    ];
    let is_input = |name: &String| inputs.iter().any(|input| input.column.name == *name);
    let series = config.series.iter();
    let of_series = series.flat_map(|series| std::iter::once(&series.time).chain(&series.clock));
    let times: Vec<&String> = of_series.chain(config.split.time()).collect();
    let is_own = |name: &String| {
        config.is_target(name) || config.drop.contains(name) || times.contains(&name)
    };
    for (key, names) in lists {
        for name in names {
            if !is_own(name) && !is_input(name) {
                found.insert(name.clone(), key);
            }
        }
    }
    found
}

/// Error of a dataset in which no column is a feature: `advice` follows the columns that keys name
/// for another use.
pub(super) fn no_feature_left(config: &DatasetConfig, advice: &str) -> Error {
    let mut by_key: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, key) in columns_in_other_use(config, &[]) {
        by_key.entry(key).or_default().push(name);
    }
    let others = by_key.iter().map(|(key, names)| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        format!("; {} named in `{key}`", is_or_are(&names))
    });
    let others: String = others.collect();
    Error::config(
        "dataset.features",
        format!(
            "no column is left to be a feature{others}; list some, or drop and key fewer{advice}"
        ),
    )
}

fn is_or_are(names: &[&str]) -> String {
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", listed(names, "`"))
}
