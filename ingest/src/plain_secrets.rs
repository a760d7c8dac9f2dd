//! Finds probable secrets in plain text in a configuration. They belong into the environment or a
//! file.

use feedline_http::is_secret;
use feedline_schemas::{
    config::{SourceConfig, TextOrSecret},
    report::Warning,
};
use serde_json::Value;
use url::Url;

use crate::rest::reference;

/// Warns of a source with probable secrets in plain text; `None` if it has none. Needs no data.
#[must_use]
pub fn warn_of_plain_secrets(config: &SourceConfig) -> Option<Warning> {
    let mut places = Vec::new();
    for (name, value) in &config.headers {
        if matches!(value, TextOrSecret::Text(text) if is_secret(name, text)) {
            places.push(format!("headers.{name}"));
        }
    }
    for (name, value) in &config.params {
        if is_secret(name, value) {
            places.push(format!("params.{name}"));
        }
    }
    if let Some(body) = &config.body {
        for (name, value) in body.form.iter().flatten() {
            if matches!(value, TextOrSecret::Text(text) if is_secret(name, text)) {
                places.push(format!("body.form.{name}"));
            }
        }
        if let Some(json) = &body.json {
            note_texts(json, "body.json", &mut places);
        }
    }
    if let Some(graphql) = &config.graphql {
        for (name, value) in &graphql.variables {
            note_text(name, value, "graphql.variables", &mut places);
        }
    }
    if let Ok(url) = Url::parse(&config.url) {
        let is_in_query = url
            .query_pairs()
            .any(|(name, value)| is_secret(&name, &value));
        if is_in_query {
            places.push("url".into());
        }
    }
    let key = places.first()?.clone();
    let seem = match places.len() {
        1 => "seems",
        _ => "seem",
    };
    let all = places.join("`, `");
    let message = format!(
        "`{all}` {seem} to hold a secret in plain text, visible to every reader of the configuration; use a reference: a header or a field of a body as `{{ env = \"NAME\" }}`, a parameter or a password with `auth`"
    );
    Some(Warning::new("plain_secret", message).with_key(&key))
}

/// Adds the places of probable secrets below `key` to `places`.
fn note_texts(value: &Value, key: &str, places: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                note_text(name, value, key, places);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| note_texts(item, key, places)),
        _ => {}
    }
}

fn note_text(name: &str, value: &Value, key: &str, places: &mut Vec<String>) {
    let key = format!("{key}.{name}");
    match value {
        // A placeholder is none.
        Value::String(text) if !text.starts_with('{') && is_secret(name, text) => places.push(key),
        other => {
            if reference(other).is_none() {
                note_texts(other, &key, places);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::{BodyConfig, SecretRef};

    use super::*;
    use crate::testing;

    #[test]
    fn a_source_with_secrets_in_plain_text_is_warned_of_by_their_keys_and_not_their_values() {
        let mut config = testing::config(
            "https://user:canary-pw@h/?token=canary-url",
            Default::default(),
        );
        config
            .params
            .insert("api_key".into(), "canary-param".into());
        let text = TextOrSecret::Text("canary-header".into());
        config.headers.insert("X-Api-Key".into(), text);
        config.body = Some(BodyConfig {
            json: Some(serde_json::json!({
                "deep": [{"password": "canary-body"}], "token": {"env": "T"}, "page_token": "{cursor}"
            })),
            ..BodyConfig::default()
        });
        let warning = warn_of_plain_secrets(&config).unwrap();
        assert_eq!(warning.code, "plain_secret");
        assert_eq!(warning.key.as_deref(), Some("headers.X-Api-Key"));
        let begin = "`headers.X-Api-Key`, `params.api_key`, `body.json.deep.password`, `url` seem to hold a secret";
        assert!(warning.message.starts_with(begin), "{}", warning.message);
        assert!(!warning.message.contains("canary"), "{}", warning.message);
    }

    #[test]
    fn references_and_plain_settings_are_not_warned_of() {
        let mut config = testing::config("https://h/?page=2&sort_key=date", Default::default());
        config.params.insert("api_key_type".into(), "public".into());
        let reference = SecretRef {
            env: Some("KEY".into()),
            file: None,
            prefix: String::new(),
        };
        let secret = TextOrSecret::Secret(reference);
        config.headers.insert("X-Api-Key".into(), secret);
        let text = TextOrSecret::Text("application/json".into());
        config.headers.insert("Accept".into(), text);
        assert_eq!(warn_of_plain_secrets(&config), None);
    }
}
