//! Environment variables of secrets that are not set: an error about one of them names the others
//! too.

use feedline_schemas::config::{PipelineConfig, SecretRef};
use serde_json::Value;

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

/// Variables of the sources that are not set, each with its key, in the order of the sources.
pub(super) struct UnsetVariables(Vec<(String, String)>);

impl UnsetVariables {
    /// Finds those of `config` that `is_set` denies.
    pub(super) fn of(config: &PipelineConfig, is_set: impl Fn(&str) -> bool) -> Self {
        let mut found = Vec::new();
        for (index, source) in config.source.iter().enumerate() {
            if let Ok(source) = serde_json::to_value(source) {
                collect(&source, &format!("source.{index}"), "", &mut found);
            }
        }
        found.retain(|(variable, _)| !is_set(variable));
        Self(found)
    }

    /// Returns true if one of them has the secret at `key`, so that an error at `key` is about it.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.at(key).is_some()
    }

    /// Adds the other variables to the `reason` of an error at `key`, if that is about one.
    pub(super) fn name_others(&self, key: &str, mut reason: String) -> String {
        let Some(known) = self.at(key) else {
            return reason;
        };
        let mut others: Vec<&(String, String)> = Vec::new();
        for unset in &self.0 {
            let is_listed = others.iter().any(|other| other.0 == unset.0);
            if unset.0 != known && !is_listed {
                others.push(unset);
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

    /// The first variable of the secrets at `key`.
    fn at(&self, key: &str) -> Option<&str> {
        let mut all = self.0.iter();
        let (variable, _) = all.find(|(_, own)| own == key)?;
        Some(variable)
    }
}

/// Finds the variables of the secrets in `value`, which is at `key` and the last part of that is
/// `name`. Items of a list have the key of the list, as in errors about them.
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
            for item in items {
                collect(item, key, "", found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The variable of a reference to a secret. One that also names a file is refused before it is read.
fn variable_of(value: &Value) -> Option<String> {
    value.get("env")?.as_str()?;
    let reference: SecretRef = serde_json::from_value(value.clone()).ok()?;
    reference.env.filter(|_| reference.file.is_none())
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;

    const SOURCES: &str = r#"
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

    fn unset() -> UnsetVariables {
        let config = load("p", SOURCES, &[]).unwrap().config;
        UnsetVariables::of(&config, |name| name == "SET")
    }

    #[test]
    fn an_unset_variable_is_reported_with_all_others_of_the_sources() {
        let unset = unset();
        let check = |key: &str, expected: &str| {
            // The words of the reason do not count.
            let reason = "its secret is missing";
            let found = unset.name_others(key, reason.to_owned());
            assert_eq!(found, format!("{reason}{expected}"), "{key}");
        };
        check(
            "source.0.auth.secret",
            "; also not set: `B` (`source.1.auth.password`), `C` (`source.1.headers.X-Key`)",
        );
        check(
            "source.1.headers.X-Key",
            "; also not set: `A` (`source.0.auth.secret`), `B` (`source.1.auth.password`)",
        );
        check("source.1.auth.user", "");
        check("source.0.url", "");
    }

    #[test]
    fn an_error_is_about_an_unset_variable_by_its_key() {
        let unset = unset();
        for (key, expected) in [
            ("source.0.auth.secret", true),
            ("source.1.headers.X-Other", true),
            ("source.1.auth.user", false),
            ("source.0.params", false),
            ("dataset.target", false),
        ] {
            assert_eq!(unset.has_key(key), expected, "{key}");
        }
    }

    #[test]
    fn secrets_of_a_list_have_its_key() {
        let value = serde_json::json!({ "ids": [{ "env": "A" }, { "x": { "env": "B" } }] });
        let mut found = Vec::new();
        collect(&value, "source.0.body", "", &mut found);
        let expected = [("A", "source.0.body.ids"), ("B", "source.0.body.ids.x")];
        let expected = expected.map(|(variable, key)| (variable.to_owned(), key.to_owned()));
        assert_eq!(found, expected);
    }
}
