//! URLs with a user or a password, which commands refuse.

use feedline_http::{has_user_info, redacted_location, without_user_info};

/// Reason that the URL of a store is refused; `None` if it has no user and no password.
pub(crate) fn store_fault(url: &str) -> Option<&'static str> {
    has_user_info(url).then_some(
        "has a user or a password before its host, and URLs are shown in logs and messages; remove what is between `://` and the \
         host: a store takes its credentials from environment variables, such as `AWS_ACCESS_KEY_ID` and \
         `AWS_SECRET_ACCESS_KEY`",
    )
}

/// Message that the URL of a command line is refused, with `remedy`; `None` if it has no user and no
/// password.
pub(crate) fn refusal(url: &str, remedy: &str) -> Option<String> {
    has_user_info(url).then(|| {
        format!(
            "`{}` was given with a user or a password before its host, and URLs are shown in logs and messages; {remedy}",
            redacted_location(&without_user_info(url))
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_url_is_shown_without_its_user_and_password() {
        let refused = refusal("s3://KEY:can/ary@bucket/x", "do this").unwrap();
        let begin = "`s3://bucket/x` was given";
        assert!(refused.starts_with(begin), "{refused}");
        assert!(refused.ends_with("; do this"), "{refused}");
        assert_eq!(refusal("s3://bucket/x@y", "do this"), None);
        assert!(store_fault("https://u@h/x").is_some());
        assert!(store_fault("abfss://lake@a.dfs.core.windows.net/x").is_none());
    }
}
