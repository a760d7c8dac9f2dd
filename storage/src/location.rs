//! Checks of a URL and of the variables of its store, before a client is created from them.

use std::collections::BTreeMap;

use feedline_http::redacted_location;
use object_store::{
    ClientConfigKey, ObjectStoreScheme, aws::AmazonS3ConfigKey, azure::AzureConfigKey,
    gcp::GoogleConfigKey, path::Path,
};
use url::{Position, Url};

use crate::StoreOptions;

/// Advice where a location is of no known kind.
pub(crate) const KINDS: &str = "use a path, file://, s3://, gs://, az:// or http(s)://";

/// Refuses a URL with a query or a fragment, where the store has neither: its path would end there,
/// and two folders could become one.
///
/// # Errors
/// The reason and the remedy.
pub(crate) fn check_is_path(url: &str) -> Result<(), String> {
    let (mark, encoded) = match url.chars().find(|c| matches!(c, '?' | '#')) {
        None => return Ok(()),
        Some('?') => ('?', "%3F"),
        Some(_) => ('#', "%23"),
    };
    Err(format!(
        "the path of such a URL ends at `{mark}`, and the rest would be ignored; write `{encoded}` for a `{mark}` of the path, or remove the rest"
    ))
}

/// Returns `url` for a message about the marks in its path, without credentials; its query may have some.
pub(crate) fn shown_marks(url: &str) -> String {
    let (url, query) = match url.split_once('?') {
        Some((url, _)) => (url, "?..."),
        None => (url, ""),
    };
    let (path, fragment) = url.split_at(url.find('#').unwrap_or(url.len()));
    format!("{}{fragment}{query}", redacted_location(path))
}

/// Returns the URL of the folder that the paths of a store begin at, when `folder` are the last parts of
/// the path of `url`. It has the bucket or container, wherever the URL has it, and no credentials.
pub(crate) fn shown_root(url: &Url, folder: &Path) -> String {
    let container = match (url.scheme(), url.username()) {
        // Only Azure has a container there; elsewhere it is a user.
        ("az" | "abfs" | "abfss", container) if !container.is_empty() => format!("{container}@"),
        _ => String::new(),
    };
    let host = &url[Position::BeforeHost..Position::BeforePath];
    let parts: Vec<&str> = url.path().split('/').filter(|p| !p.is_empty()).collect();
    let bucket = parts.len().saturating_sub(folder.parts().count());
    let bucket = parts.iter().take(bucket).map(|part| format!("/{part}"));
    let bucket: String = bucket.collect();
    format!("{}://{container}{host}{bucket}", url.scheme())
}

/// Form that the value of a variable must have.
enum ValueForm {
    /// URL of a server.
    Endpoint,
    /// One line without white space or quotes around it.
    Line,
    /// A document, which may have any text.
    Document,
}

/// A variable that a store reads.
struct StoreVariable<'a> {
    name: &'a str,
    value: &'a str,
    form: ValueForm,
}

/// Returns the variables that the store of `url` uses, and checks their values. The client would
/// panic at some wrong ones, such as a line end in a header. An empty variable is not used, and one
/// that another variable replaces is not used either.
///
/// # Errors
/// The name of the variable and the remedy. The value may be a secret and is not shown.
pub(crate) fn used_variables(
    url: &Url,
    options: &StoreOptions,
) -> Result<BTreeMap<String, String>, String> {
    let Ok((scheme, _)) = ObjectStoreScheme::parse(url) else {
        return Ok(options.vars.clone());
    };
    // By the client's key: of two names of a key, the client uses the last one.
    let mut by_key = BTreeMap::new();
    for (name, value) in options.vars.iter().filter(|(_, value)| !value.is_empty()) {
        if let Some((key, form)) = key_and_form(&scheme, &name.to_ascii_lowercase()) {
            by_key.insert(key, StoreVariable { name, value, form });
        }
    }
    remove_replaced(&mut by_key);
    let unpermitted = unpermitted_http(&by_key);
    let mut used = BTreeMap::new();
    for StoreVariable { name, value, form } in by_key.into_values() {
        let wrong = match form {
            ValueForm::Document => None,
            ValueForm::Line => line_fault(value),
            ValueForm::Endpoint => line_fault(value).or_else(|| endpoint_fault(value)),
        };
        if let Some(wrong) = wrong {
            return Err(format!("environment variable `{name}` {wrong}"));
        }
        used.insert(name.to_owned(), value.to_owned());
    }
    unpermitted.map_or(Ok(used), Err)
}

/// The error of an endpoint of S3 with `http://`, if the client would refuse it.
fn unpermitted_http(by_key: &BTreeMap<String, StoreVariable<'_>>) -> Option<String> {
    use AmazonS3ConfigKey as Key;

    let mut endpoints = [Key::S3Endpoint, Key::Endpoint].into_iter();
    let endpoint = endpoints.find_map(|key| by_key.get(&key_name(&key)))?;
    let is_http = Url::parse(endpoint.value).is_ok_and(|url| url.scheme() == "http");
    let permits = by_key.get(&key_name(&Key::Client(ClientConfigKey::AllowHttp)));
    let is_permitted = permits.is_some_and(|permits| {
        let value = permits.value.to_ascii_lowercase();
        ["1", "true", "on", "yes", "y"].contains(&value.as_str())
    });
    (is_http && !is_permitted).then(|| {
        format!(
            "environment variable `{}` begins with `http://`, and requests without encryption are not permitted; set the variable `AWS_ALLOW_HTTP` to `true`, or use an endpoint with `https://`",
            endpoint.name
        )
    })
}

/// Removes the variables that the client of S3 ignores beside others.
fn remove_replaced(by_key: &mut BTreeMap<String, StoreVariable<'_>>) {
    use AmazonS3ConfigKey as Key;

    let is_set = |key: Key| by_key.contains_key(&key_name(&key));
    let has_keys = is_set(Key::AccessKeyId) || is_set(Key::SecretAccessKey);
    let asks_sts = !has_keys && is_set(Key::WebIdentityTokenFile) && is_set(Key::RoleArn);
    let ignored = [
        (Key::Endpoint, is_set(Key::S3Endpoint)),
        (Key::DefaultRegion, is_set(Key::Region)),
        (Key::StsEndpoint, !asks_sts),
    ];
    for (key, is_ignored) in ignored {
        if is_ignored {
            by_key.remove(&key_name(&key));
        }
    }
}

/// The client's own name of a key.
fn key_name(key: &impl AsRef<str>) -> String {
    key.as_ref().to_owned()
}

/// The client's key for the variable `name`, and the form of its value; `None` if the store does
/// not read it.
fn key_and_form(scheme: &ObjectStoreScheme, name: &str) -> Option<(String, ValueForm)> {
    match scheme {
        ObjectStoreScheme::AmazonS3 => {
            let key: AmazonS3ConfigKey = name.parse().ok()?;
            let form = match key {
                AmazonS3ConfigKey::Endpoint
                | AmazonS3ConfigKey::S3Endpoint
                | AmazonS3ConfigKey::StsEndpoint => ValueForm::Endpoint,
                _ => ValueForm::Line,
            };
            Some((key_name(&key), form))
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            let key: GoogleConfigKey = name.parse().ok()?;
            let form = match key {
                GoogleConfigKey::BaseUrl => ValueForm::Endpoint,
                GoogleConfigKey::ServiceAccountKey => ValueForm::Document,
                _ => ValueForm::Line,
            };
            Some((key_name(&key), form))
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let key: AzureConfigKey = name.parse().ok()?;
            let form = match key {
                AzureConfigKey::Endpoint => ValueForm::Endpoint,
                _ => ValueForm::Line,
            };
            Some((key_name(&key), form))
        }
        _ => None,
    }
}

fn line_fault(value: &str) -> Option<&'static str> {
    let is_quoted = ['"', '\''].iter().any(|quote| {
        let inner = value.strip_prefix(*quote);
        inner.is_some_and(|inner| inner.ends_with(*quote))
    });
    if value.trim() != value {
        Some("begins or ends with white space, such as the line end of a file; remove it")
    } else if is_quoted {
        Some("has quotes around its value; remove them")
    } else if value.chars().any(char::is_control) {
        Some("has a control character, such as a line end; set it to one line")
    } else {
        None
    }
}

fn endpoint_fault(value: &str) -> Option<&'static str> {
    let parsed = Url::parse(value).ok();
    let parsed = parsed.filter(|url| {
        let is_web = matches!(url.scheme(), "http" | "https");
        is_web && value.contains("://") && !value.contains(char::is_whitespace)
    });
    let Some(url) = parsed else {
        return Some(
            "is no URL of a server; set it to one with `http://` or `https://`, or unset it",
        );
    };
    if !url.username().is_empty() || url.password().is_some() {
        Some(
            "has a user or a password, which errors would show; remove the part before `@`, and set the keys of the store",
        )
    } else if url.query().is_some() || url.fragment().is_some() {
        Some(
            "has a `?` or a `#`, and the paths of objects cannot follow these; remove the rest from there",
        )
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;

    fn with_vars(vars: &[(&str, &str)]) -> StoreOptions {
        let vars = vars.iter();
        StoreOptions {
            vars: vars
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..StoreOptions::default()
        }
    }

    fn open(url: &str, vars: &[(&str, &str)]) -> Result<Store, String> {
        Store::open(url, &with_vars(vars)).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_url_whose_path_would_end_early_is_refused() {
        for (url, encoded) in [
            ("s3://lake/h3#test", "%23"),
            ("s3://lake/q?v=hush", "%3F"),
            ("s3a://lake?x", "%3F"),
            ("gs://lake/a#b?c", "%23"),
            ("az://lake/a?b#c", "%3F"),
            ("file:///tmp/fr#x", "%23"),
        ] {
            let error = open(url, &[]).unwrap_err();
            assert!(error.contains(&format!("write `{encoded}`")), "{error}");
            assert!(!error.contains("hush"), "{error}");
            let query = url.find('?').unwrap_or(url.len());
            let shown = format!("cannot use `{}", &url[..query]);
            assert!(error.contains(&shown), "{error}");
        }
        // A web server has queries, and a plain path is no URL.
        open("https://example.org/a?b=c", &[]).unwrap();
        let local = open("/tmp/a#b?c", &[]).unwrap();
        assert!(local.url().ends_with("/tmp/a#b?c"));
    }

    #[tokio::test]
    async fn the_url_of_a_store_has_its_bucket_and_no_password() {
        let account = ("AZURE_STORAGE_ACCOUNT_NAME", "acc");
        for (url, expected) in [
            ("s3://lake/a/b", "s3://lake/a/b/x"),
            (
                "https://s3.eu-central-1.amazonaws.com/lake/a",
                "https://s3.eu-central-1.amazonaws.com/lake/a/x",
            ),
            (
                "https://acc.blob.core.windows.net/lake/a",
                "https://acc.blob.core.windows.net/lake/a/x",
            ),
            (
                "https://acc.blob.core.windows.net/lake",
                "https://acc.blob.core.windows.net/lake/x",
            ),
            (
                "abfss://lake@acc.dfs.core.windows.net/a",
                "abfss://lake@acc.dfs.core.windows.net/a/x",
            ),
            ("https://u:pw@h.example:81/a", "https://h.example:81/a/x"),
        ] {
            let store = open(url, &[account]).unwrap();
            assert_eq!(store.url_of("x"), expected);
        }
    }

    #[test]
    fn encoded_marks_are_those_of_the_path() {
        let bucket = open("s3://lake/h3%23test", &[]).unwrap();
        let (_, _, path) = bucket.child("x").object_store();
        assert_eq!(path.as_ref(), "h3#test/x");
        let local = open("file:///tmp/a%3Fb", &[]).unwrap();
        assert!(local.url().ends_with("/tmp/a?b"));
    }

    #[tokio::test]
    async fn a_variable_that_the_client_cannot_use_is_named_without_its_value() {
        let key = "AWS_ACCESS_KEY_ID";
        for (url, name, value, expected) in [
            ("s3://lake/x", key, "hush\n", "white space"),
            ("s3://lake/x", "AWS_SESSION_TOKEN", "hu\nsh", "control"),
            ("s3://lake/x", "AWS_SECRET_ACCESS_KEY", "'hush'", "quotes"),
            ("s3://lake/x", "AWS_ENDPOINT_URL", "hush:9000", "no URL"),
            ("s3://lake/x", "AWS_ENDPOINT_URL", " ", "white space"),
            ("s3://lake/x", "AWS_ENDPOINT_URL_S3", "//hush", "no URL"),
            ("gs://lake/x", "GOOGLE_BASE_URL", "hush", "no URL"),
            ("az://lake/x", "AZURE_STORAGE_ENDPOINT", "hush", "no URL"),
            (
                "s3://lake/x",
                "AWS_ENDPOINT_URL",
                "https://me:hush@m:9000",
                "a password",
            ),
            (
                "gs://lake/x",
                "GOOGLE_BASE_URL",
                "https://hush@m",
                "a password",
            ),
            (
                "s3://lake/x",
                "AWS_ENDPOINT_URL_S3",
                "https://m/?x=hush",
                "a `?` or a `#`",
            ),
            (
                "az://lake/x",
                "AZURE_STORAGE_ENDPOINT",
                "https://m/#hush",
                "a `?` or a `#`",
            ),
        ] {
            let error = open(url, &[(name, value)]).unwrap_err();
            let named = format!("environment variable `{name}`");
            assert!(
                error.contains(&named) && error.contains(expected),
                "{error}"
            );
            assert!(
                !error.contains("hush") && !error.contains("hu\n"),
                "{error}"
            );
            assert!(!error.contains("use a path"), "{error}");
        }
        // Another store does not read it.
        open("https://example.org/x", &[(key, "hush\n")]).unwrap();
        open("s3://lake/x", &[("AWS_ENDPOINT_URL", "https://minio:9000")]).unwrap();
        open("s3://lake/x", &[("GOOGLE_BASE_URL", "hush")]).unwrap();
    }

    /// The variables that a store in S3 uses of `vars`.
    fn used(vars: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        let url = Url::parse("s3://lake/x").unwrap();
        Ok(used_variables(&url, &with_vars(vars))?
            .into_iter()
            .collect())
    }

    #[test]
    fn only_the_variables_in_use_are_checked_and_an_empty_one_is_unset() {
        const GENERAL: &str = "AWS_ENDPOINT_URL";
        const SPECIFIC: &str = "AWS_ENDPOINT_URL_S3";
        const STS: &str = "AWS_ENDPOINT_URL_STS";
        let good = "https://minio:9000";
        for (vars, name) in [
            ([(GENERAL, ""), (SPECIFIC, good)], SPECIFIC),
            ([(GENERAL, "hush"), (SPECIFIC, good)], SPECIFIC),
            ([(GENERAL, good), (SPECIFIC, "")], GENERAL),
            ([("AWS_ENDPOINT", "hush"), (GENERAL, good)], GENERAL),
            ([("AWS_ENDPOINT", good), (GENERAL, "")], "AWS_ENDPOINT"),
            ([(GENERAL, good), (STS, "hush")], GENERAL),
            ([(GENERAL, good), ("AWS_ACCESS_KEY_ID", "")], GENERAL),
        ] {
            let expected = vec![(name.to_owned(), good.to_owned())];
            assert_eq!(used(&vars), Ok(expected), "{vars:?}");
        }
        let regions = [
            ("AWS_DEFAULT_REGION", "x\n"),
            ("AWS_REGION", "eu-central-1"),
        ];
        let expected = vec![("AWS_REGION".to_owned(), "eu-central-1".to_owned())];
        assert_eq!(used(&regions), Ok(expected));
        let token = ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token");
        for vars in [
            &[(GENERAL, good), (SPECIFIC, "hush")][..],
            &[token, ("AWS_ROLE_ARN", "arn"), (STS, "hush")],
        ] {
            let error = used(vars).unwrap_err();
            let (name, _) = vars[vars.len() - 1];
            assert!(error.contains(&format!("`{name}` is no URL")), "{error}");
        }
    }

    #[test]
    fn an_endpoint_without_encryption_needs_the_permission_that_its_error_names() {
        const NAME: &str = "AWS_ENDPOINT_URL";
        const PERMISSION: &str = "AWS_ALLOW_HTTP";
        let http = (NAME, "http://minio:9000");
        for vars in [
            &[http][..],
            &[http, (PERMISSION, "")],
            &[http, (PERMISSION, "false")],
            &[(NAME, "HTTP://minio:9000"), (PERMISSION, "0")],
        ] {
            let error = used(vars).unwrap_err();
            let parts = [NAME, PERMISSION, "to `true`"];
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
        for permission in ["true", "TRUE", "1"] {
            assert!(used(&[http, (PERMISSION, permission)]).is_ok());
        }
        let https = (NAME, "https://minio:9000");
        assert!(used(&[https, (PERMISSION, "false")]).is_ok());
    }

    #[test]
    fn a_store_reads_an_empty_variable_as_an_unset_one() {
        let empty = ("AWS_SECRET_ACCESS_KEY", "");
        open("s3://lake/x", &[("AWS_ACCESS_KEY_ID", ""), empty]).unwrap();
        // The client refuses one key without the other.
        let error = open("s3://lake/x", &[("AWS_ACCESS_KEY_ID", "id"), empty]).unwrap_err();
        assert!(error.ends_with("variables of its store"), "{error}");
    }
}
