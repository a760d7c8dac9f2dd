//! The secrets that the configuration of a source refers to, to mask without a request.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use feedline_schemas::config::{AuthConfig, SecretRef, SourceConfig, TextOrSecret};
use serde_json::Value;

use crate::{context::Secrets, secret_masks::SecretMasks, secret_names::is_secret};

/// Keys of `auth` that are names: alone they are no secrets, and may be words of the data.
const NAMES: [&str; 3] = ["user", "client_id", "access_key_id"];

impl SecretMasks {
    /// Masks of the secrets of `config` that can be found now. Unlike [`Http::secret_masks`], it has no
    /// tokens or cookies of responses.
    ///
    /// [`Http::secret_masks`]: crate::Http::secret_masks
    #[must_use]
    pub fn configured(config: &SourceConfig, secrets: &dyn Secrets) -> Self {
        let mut found = Vec::new();
        let mut settings = serde_json::to_value(config).unwrap_or_default();
        if let Some(auth) = settings.get_mut("auth").and_then(Value::as_object_mut) {
            auth.retain(|key, _| !NAMES.contains(&key.as_str()));
        }
        add_references(&settings, secrets, &mut found);
        for (name, value) in &config.headers {
            match value {
                TextOrSecret::Text(text) if is_secret(name, text) => found.push(text.clone()),
                TextOrSecret::Text(_) | TextOrSecret::Secret(_) => {}
            }
        }
        if let Some(AuthConfig::Basic(keys)) = &config.auth {
            let user = match &keys.user {
                TextOrSecret::Text(user) => Ok(user.clone()),
                TextOrSecret::Secret(reference) => secrets.resolve(reference),
            };
            if let (Ok(user), Ok(password)) = (user, secrets.resolve(&keys.password)) {
                found.push(STANDARD.encode(format!("{user}:{password}")));
            }
        }
        Self::of(found)
    }
}

/// Adds the secrets that `value` refers to, at any depth. One that cannot be found is passed over.
fn add_references(value: &Value, secrets: &dyn Secrets, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => match reference(value) {
            Some(reference) => {
                if let Ok(text) = secrets.resolve(&reference) {
                    let secret = text.strip_prefix(&reference.prefix).unwrap_or(&text);
                    found.push(secret.to_owned());
                }
            }
            None => fields
                .values()
                .for_each(|field| add_references(field, secrets, found)),
        },
        Value::Array(items) => items
            .iter()
            .for_each(|item| add_references(item, secrets, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The reference to a secret that a table is.
fn reference(value: &Value) -> Option<SecretRef> {
    let fields = value.as_object()?;
    let is_reference = fields.contains_key("env") || fields.contains_key("file");
    let reference = is_reference.then(|| serde_json::from_value(value.clone()).ok());
    reference?
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;
    use crate::testing::secrets;

    #[test]
    fn secrets_that_can_be_found_are_masked_wherever_the_configuration_refers_to_them() {
        let text = "[pipeline]\nname = 'p'\n[[source]]\nname = 's'\ntype = 'rest'\nurl = 'http://h/'\nmethod = 'POST'\n\
                    headers = { X-A = { env = 'HEADER', prefix = 'Token ' }, X-Api-Key = 'plain-key', Accept = 'text/csv' }\n\
                    body.json = { deep = [{ a = { env = 'BODY' } }], lost = { file = 'absent' } }\n\
                    auth = { type = 'basic', user = { env = 'USER' }, password = { env = 'PASSWORD' } }\n";
        let config = load("p", text, &[]).unwrap().config.source.remove(0);
        let masks = SecretMasks::configured(&config, &*secrets());
        let basic = STANDARD.encode("secret-USER:secret-PASSWORD");
        for secret in [
            "secret-HEADER",
            "secret-BODY",
            "secret-PASSWORD",
            "plain-key",
            &basic,
        ] {
            assert_eq!(masks.mask(&format!("a {secret} b")), "a *** b", "{secret}");
        }
        for shown in ["secret-USER", "text/csv", "absent", "Token 1"] {
            assert_eq!(masks.mask(shown), shown);
        }
    }
}
