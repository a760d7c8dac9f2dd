//! Checks of a URL and of the variables of its store, before a client is created from them.

use object_store::{
    ObjectStoreScheme, aws::AmazonS3ConfigKey, azure::AzureConfigKey, gcp::GoogleConfigKey,
};
use url::Url;

use crate::StoreOptions;

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

/// Form that the value of a variable must have.
enum ValueForm {
    /// URL of a server.
    Endpoint,
    /// One line without white space or quotes around it.
    Line,
    /// A document, which may have any text.
    Document,
}

/// Checks the values of the variables that the store of `url` reads. The client would panic at some
/// wrong ones, such as a line end in a header.
///
/// # Errors
/// The name of the variable and the remedy. The value may be a secret and is not shown.
pub(crate) fn check_variables(url: &Url, options: &StoreOptions) -> Result<(), String> {
    let Ok((scheme, _)) = ObjectStoreScheme::parse(url) else {
        return Ok(());
    };
    for (name, value) in &options.vars {
        let wrong = match value_form(&scheme, &name.to_ascii_lowercase()) {
            None | Some(ValueForm::Document) => None,
            Some(ValueForm::Line) => line_fault(value),
            Some(ValueForm::Endpoint) => line_fault(value).or_else(|| endpoint_fault(value)),
        };
        if let Some(wrong) = wrong {
            return Err(format!("environment variable `{name}` {wrong}"));
        }
    }
    Ok(())
}

/// The form of the value of the variable `name`; `None` if the store does not read it.
fn value_form(scheme: &ObjectStoreScheme, name: &str) -> Option<ValueForm> {
    let form = match scheme {
        ObjectStoreScheme::AmazonS3 => match name.parse::<AmazonS3ConfigKey>().ok()? {
            AmazonS3ConfigKey::Endpoint
            | AmazonS3ConfigKey::S3Endpoint
            | AmazonS3ConfigKey::StsEndpoint => ValueForm::Endpoint,
            _ => ValueForm::Line,
        },
        ObjectStoreScheme::GoogleCloudStorage => match name.parse::<GoogleConfigKey>().ok()? {
            GoogleConfigKey::BaseUrl => ValueForm::Endpoint,
            GoogleConfigKey::ServiceAccountKey => ValueForm::Document,
            _ => ValueForm::Line,
        },
        ObjectStoreScheme::MicrosoftAzure => match name.parse::<AzureConfigKey>().ok()? {
            AzureConfigKey::Endpoint => ValueForm::Endpoint,
            _ => ValueForm::Line,
        },
        _ => return None,
    };
    Some(form)
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
    let is_web = parsed.is_some_and(|url| matches!(url.scheme(), "http" | "https"));
    let is_right = is_web && value.contains("://") && !value.contains(char::is_whitespace);
    (!is_right)
        .then_some("is no URL of a server; set it to one with `http://` or `https://`, or unset it")
}

#[cfg(test)]
mod tests {
    use crate::{Store, StoreOptions};

    fn open(url: &str, vars: &[(&str, &str)]) -> Result<Store, String> {
        let vars = vars.iter();
        let options = StoreOptions {
            vars: vars
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..StoreOptions::default()
        };
        Store::open(url, &options).map_err(|error| error.to_string())
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
        }
        // A web server has queries, and a plain path is no URL.
        open("https://example.org/a?b=c", &[]).unwrap();
        let local = open("/tmp/a#b?c", &[]).unwrap();
        assert!(local.url().ends_with("/tmp/a#b?c"));
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
            ("s3://lake/x", "AWS_ENDPOINT_URL", "", "no URL"),
            ("s3://lake/x", "AWS_ENDPOINT_URL_S3", "//hush", "no URL"),
            ("gs://lake/x", "GOOGLE_BASE_URL", "hush", "no URL"),
            ("az://lake/x", "AZURE_STORAGE_ENDPOINT", "hush", "no URL"),
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
        }
        // Another store does not read it.
        open("https://example.org/x", &[(key, "hush\n")]).unwrap();
        open("s3://lake/x", &[("AWS_ENDPOINT_URL", "https://minio:9000")]).unwrap();
        open("s3://lake/x", &[("GOOGLE_BASE_URL", "hush")]).unwrap();
    }
}
