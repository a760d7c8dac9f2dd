//! Environment variables of secrets that are not set: an error about one of them names the others
//! too.

use feedline_schemas::config::{PipelineConfig, SecretRef};
use serde_json::Value;

use crate::environment::UNSET;

/// Tables whose keys the user chooses, so that one may be called `env`.
const FREE_KEYS: [&str; 7] = [
    "columns",
    "cookies",
    "fields",
    "form",
    "headers",
    "params",
    "variables",
];

/// Adds the other variables of the sources that are not set to `reason`, if it is about one.
pub(super) fn name_other_variables(
    mut reason: String,
    config: &PipelineConfig,
    is_set: impl Fn(&str) -> bool,
) -> String {
    let Some(known) = unset_variable(&reason).map(str::to_owned) else {
        return reason;
    };
    let mut all = Vec::new();
    if let Ok(sources) = serde_json::to_value(&config.source) {
        collect(&sources, "source", "", &mut all);
    }
    all.sort_by(|(_, one), (_, other)| one.cmp(other));
    let mut others: Vec<(String, String)> = Vec::new();
    for (variable, key) in all {
        let is_known = variable == known || others.iter().any(|(other, _)| *other == variable);
        if !is_known && !is_set(&variable) {
            others.push((variable, key));
        }
    }
    let named = others
        .iter()
        .map(|(variable, key)| format!("`{variable}` (`{key}`)"));
    let named: Vec<String> = named.collect();
    if !named.is_empty() {
        reason.push_str("; also not set: ");
        reason.push_str(&named.join(", "));
    }
    reason
}

/// Returns true if one of `problems` names the variable that `reason` says is not set.
pub(super) fn is_variable_named(reason: &str, problems: &[String]) -> bool {
    let Some(name) = unset_variable(reason) else {
        return false;
    };
    let name = format!("`{name}`");
    let names = |problem: &String| problem.contains("not set") && problem.contains(&name);
    problems.iter().any(names)
}

/// Name of the variable that `reason` says is not set.
fn unset_variable(reason: &str) -> Option<&str> {
    let [before, after] = UNSET;
    let (name, _) = reason.strip_prefix(before)?.split_once(after)?;
    Some(name)
}

/// Finds the variables of the secrets in `value`, which is at `key` and the last part of that is
/// `name`.
fn collect(value: &Value, key: &str, name: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            if let Some(variable) = variable_of(value).filter(|_| !FREE_KEYS.contains(&name)) {
                found.push((variable, key.to_owned()));
                return;
            }
            for (name, value) in fields {
                collect(value, &format!("{key}.{name}"), name, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, &format!("{key}.{index}"), "", found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The variable of a reference to a secret.
fn variable_of(value: &Value) -> Option<String> {
    value.get("env")?.as_str()?;
    let reference: SecretRef = serde_json::from_value(value.clone()).ok()?;
    reference.env
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    #[test]
    fn an_unset_variable_is_reported_with_all_others_of_the_sources() {
        let text = r#"
[pipeline]
name = "p"

[[source]]
name = "a"
type = "rest"
url = "https://api.example.org/a"
auth = { type = "bearer", secret = { env = "A" } }
params = { env = "prod" }

[[source]]
name = "b"
type = "rest"
url = "https://api.example.org/b"
auth = { type = "basic", user = { env = "SET" }, password = { env = "B" } }
headers = { X-Key = { env = "C", prefix = "Key " }, X-Other = { env = "A" } }
"#;
        let config = load("p", text, &[]).unwrap().config;
        let check = |reason: &str, expected: &str| {
            let found = name_other_variables(reason.to_owned(), &config, |name| name == "SET");
            assert_eq!(found, format!("{reason}{expected}"));
        };
        check(
            "environment variable `A` is not set; set it",
            "; also not set: `B` (`source.1.auth.password`), `C` (`source.1.headers.X-Key`)",
        );
        check("is empty; set it to the secret", "");
    }

    #[test]
    fn a_variable_that_a_problem_names_is_known() {
        let problems = ["`B` is a column", "environment variable `A` is not set"];
        let problems = problems.map(str::to_owned);
        for (name, expected) in [("A", true), ("B", false), ("C", false)] {
            let reason = format!("environment variable `{name}` is not set; set it");
            assert_eq!(is_variable_named(&reason, &problems), expected, "{name}");
        }
        assert!(!is_variable_named("`A` is empty", &problems));
    }
}
