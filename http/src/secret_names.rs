//! Names of credentials among those of headers and parameters.

/// Parts of the names of credentials, without `-` and `_`.
const PARTS: [&str; 9] = [
    "apikey",
    "accesskey",
    "privatekey",
    "token",
    "secret",
    "password",
    "passwd",
    "credential",
    "authorization",
];
/// Complete names of such parameters.
const WHOLE: [&str; 5] = ["key", "auth", "pwd", "pass", "sig"];
/// Parts of the names of cursors and form tokens, which are not credentials.
const OTHERS: [&str; 6] = ["page", "next", "cursor", "continu", "csrf", "xsrf"];
/// Shorter values are no secrets.
const LETTERS: usize = 6;

/// Returns true if a header or parameter with this name and value seems to hold credentials.
#[must_use]
pub fn is_secret(name: &str, value: &str) -> bool {
    let last = name.rsplit(['-', '_', '.']).next();
    let is_type = last.is_some_and(|word| word.eq_ignore_ascii_case("type"));
    let name: String = name
        .chars()
        .filter(|c| !matches!(c, '-' | '_' | '.'))
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let is_named = WHOLE.contains(&name.as_str()) || PARTS.iter().any(|part| name.contains(part));
    let is_other = OTHERS.iter().any(|part| name.contains(part));
    let is_number = value.bytes().all(|b| b.is_ascii_digit()) && value.len() < 16;
    is_named && !is_type && !is_other && !is_number && value.len() >= LETTERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets_are_known_and_those_of_other_things_are_not() {
        let value = "s3cr3t-value";
        for name in [
            "X-Api-Key",
            "api_key",
            "apikey",
            "X-Auth-Token",
            "access_token",
            "client_secret",
            "key",
            "PRIVATE-TOKEN",
            "token_prototype",
            "password",
        ] {
            assert!(is_secret(name, value), "{name}");
        }
        for name in [
            "page_token",
            "next-token",
            "cursor",
            "keyword",
            "sort_key",
            "api_key_type",
            "Authorization-Type",
            "X-CSRF-Token",
            "accept",
        ] {
            assert!(!is_secret(name, value), "{name}");
        }
        for value in ["", "4096", "none"] {
            assert!(!is_secret("max_tokens", value), "{value}");
        }
    }
}
