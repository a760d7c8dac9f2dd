//! URLs that have lost a user and a password, which earlier releases took: the source is the same one.
//!
//! The log has the old URL in its redacted form, with a hash of all of it if it has a user or a query. Without a query
//! the redacted form shows that the rest is equal. With one only the hash does, and the user and the password that are
//! in `auth` by now.

use feedline_http::{Secrets, redacted};
use feedline_schemas::{
    amendment::SettingChange,
    config::{AuthConfig, SourceConfig, TextOrSecret},
    ids::Hash128,
};
use url::{Url, form_urlencoded};

/// Separates the redacted form of a URL and its hash.
const HASH: &str = " xxh3:";

/// Returns true if `url` has lost its user and password, and the rest is equal.
pub(super) fn drops_user_info(
    change: &SettingChange,
    config: &SourceConfig,
    secrets: &dyn Secrets,
) -> bool {
    let Some((before, after)) = hash_and_url(change, config) else {
        return false;
    };
    let is_before = |url: &String| Hash128::of(url.as_bytes()).short() == before;
    after.query().is_none()
        || urls_with_user(config, &after, secrets)
            .iter()
            .any(is_before)
}

/// Returns true if `url` may have lost its user and password: only values of its query are unknown.
pub(super) fn may_drop_user_info(change: &SettingChange, config: &SourceConfig) -> bool {
    hash_and_url(change, config).is_some()
}

/// The hash of the old URL, and the new one, if their redacted forms are equal.
fn hash_and_url(change: &SettingChange, config: &SourceConfig) -> Option<(String, Url)> {
    let before: String = serde_json::from_str(change.before.as_deref()?).ok()?;
    let (shown, hash) = before.split_once(HASH)?;
    let after = Url::parse(&config.url).ok()?;
    let is_same = change.key == "url" && redacted(&after) == shown;
    is_same.then(|| (hash.to_owned(), after))
}

/// The URL with the user and the password of `auth` before its host, in the notations that it may have had.
fn urls_with_user(config: &SourceConfig, url: &Url, secrets: &dyn Secrets) -> Vec<String> {
    let Some(AuthConfig::Basic(keys)) = &config.auth else {
        return Vec::new();
    };
    let user = match &keys.user {
        TextOrSecret::Text(user) => Ok(user.clone()),
        TextOrSecret::Secret(reference) => secrets.resolve(reference),
    };
    let (Ok(user), Ok(password)) = (user, secrets.resolve(&keys.password)) else {
        return Vec::new();
    };
    let Some((scheme, rest)) = config.url.split_once("://") else {
        return Vec::new();
    };
    let escape = |text: &str| -> String {
        let escaped: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
        escaped.replace('+', "%20")
    };
    let mut parsed = url.clone();
    let is_set = parsed.set_username(&user).is_ok() && parsed.set_password(Some(&password)).is_ok();
    let by_url = is_set.then(|| {
        let password = parsed.password().unwrap_or_default();
        (parsed.username().to_owned(), password.to_owned())
    });
    let escaped = (escape(&user), escape(&password));
    let notations = [Some((user, password)), by_url, Some(escaped)];
    let with_user = |(user, password): (String, String)| match password.as_str() {
        "" => format!("{scheme}://{user}@{rest}"),
        password => format!("{scheme}://{user}:{password}@{rest}"),
    };
    notations.into_iter().flatten().map(with_user).collect()
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::load;

    use super::*;
    use crate::setting_changes::recorded;

    const AUTH: &str = "auth = { type = 'basic', user = 'u', password = { env = 'PASSWORD' } }";

    fn source(url: &str, more: &str) -> SourceConfig {
        let text = format!(
            "[pipeline]\nname = 'p'\n[[source]]\nname = 's'\ntype = 'rest'\nurl = '{url}'\n{more}\n"
        );
        load("p", &text, &[]).unwrap().config.source.remove(0)
    }

    /// Returns whether the change is accepted, and whether it may be one.
    fn check(before: &str, after: &str, more: &str) -> (bool, bool) {
        let url_of = |config: &SourceConfig| Some(recorded(config)["url"].clone());
        let after = source(after, more);
        let change = SettingChange {
            key: "url".to_owned(),
            before: url_of(&source(before, "")),
            after: url_of(&after),
            effect: String::new(),
        };
        let secrets = crate::testing::context().secrets;
        let may_drop = may_drop_user_info(&change, &after);
        (drops_user_info(&change, &after, &*secrets), may_drop)
    }

    #[test]
    fn a_url_without_its_former_user_is_the_same_url() {
        for (before, after, expected) in [
            ("http://u:pw@h/x/*.csv", "http://h/x/*.csv", true),
            ("http://u@h", "http://h", true),
            ("http://u:pw@h/x", "http://h/y", false),
            ("http://h/x", "http://h/y", false),
            ("http://h/x?token=a", "http://h/x", false),
        ] {
            let found = check(before, after, "");
            assert_eq!(found, (expected, expected), "{before} {after}");
        }
    }

    #[test]
    fn with_a_query_the_credentials_in_auth_show_that_the_rest_is_equal() {
        let before = "http://u:secret-PASSWORD@h/x?a=b";
        assert_eq!(check(before, "http://h/x?a=b", AUTH), (true, true));
        assert_eq!(check(before, "http://h/x?a=b", ""), (false, true));
        assert_eq!(check(before, "http://h/x?a=c", AUTH), (false, true));
        assert_eq!(check(before, "http://h/y?a=b", AUTH), (false, false));
        let other = "http://u:other@h/x?a=b";
        assert_eq!(check(other, "http://h/x?a=b", AUTH), (false, true));
        let escaped = "http://u%40h:secret%2DPASSWORD@h/x?a=b";
        let user = AUTH.replace("'u'", "'u@h'");
        assert_eq!(check(escaped, "http://h/x?a=b", &user), (false, true));
        let escaped = "http://u%40h:secret-PASSWORD@h/x?a=b";
        assert_eq!(check(escaped, "http://h/x?a=b", &user), (true, true));
    }
}
