//! Errors that a body reports.

use feedline_readers::{record::Record, value::Value};
use feedline_schemas::config::SourceConfig;
use url::Url;

use super::graphql::QueryErrors;

/// Keys that APIs report errors with.
pub(super) const ERRORS: [&str; 2] = ["error", "errors"];

/// Key and text of the error that is the only record of a page of lines.
pub(super) fn error_alone(records: &[Record]) -> Option<(String, String)> {
    let [record] = records else { return None };
    let value = record.value()?;
    let Value::Object(fields) = &*value else {
        return None;
    };
    let [(key, error)] = fields.as_slice() else {
        return None;
    };
    let is_error = ERRORS.contains(&key.as_str()) && is_something(error);
    is_error.then(|| (key.clone(), error_text(error)))
}

/// Error that a page reports beside the records at the path `records`, by the first key that APIs report
/// errors with. `value` looks up a key of the page.
pub(super) fn error_beside(
    records: &str,
    value: impl Fn(&str) -> Option<Value>,
) -> Option<QueryErrors> {
    let first = records.split('.').next()?;
    let mut keys = ERRORS.iter().filter(|key| **key != first);
    let error = keys.find_map(|key| value(key).filter(reports_error))?;
    Some(QueryErrors {
        text: error_text(&error),
        is_transient: false,
        has_data: true,
    })
}

/// Keys of a flag that is false in the response to a failed request.
const SUCCESS: [&str; 2] = ["success", "ok"];

/// Keys of a word or a code about the result of a request.
const RESULT: [&str; 4] = ["status", "code", "status_code", "statusCode"];

/// Words at [`RESULT`] of a failed request, without case.
const FAILED: [&str; 4] = ["error", "fail", "failed", "failure"];

/// Keys of [`RESULT`] that are parameters of the requests too, so that a page may repeat them.
pub(super) fn repeated_keys(config: &SourceConfig) -> Vec<&'static str> {
    let each = config.for_each.iter().map(|each| each.param.as_str());
    let names: Vec<&str> = config
        .params
        .keys()
        .map(String::as_str)
        .chain(each)
        .collect();
    let url = Url::parse(&config.url).ok();
    let is_in_url = |key: &str| {
        url.as_ref()
            .is_some_and(|url| url.query_pairs().any(|(name, _)| name == key))
    };
    let mut keys = RESULT.to_vec();
    keys.retain(|key| names.contains(key) || is_in_url(key));
    keys
}

/// Returns true for a flag of success that is false, also as a number or text.
fn is_false(flag: &Value) -> bool {
    match flag {
        Value::Bool(is_success) => !is_success,
        Value::Int(0) => true,
        Value::Text(text) => matches!(text.trim().to_lowercase().as_str(), "false" | "0"),
        _ => false,
    }
}

/// Returns true for a word or code of a failed request. Of the codes of HTTP these are the ones that
/// do not mean a list without records, as 404 may.
fn is_failure(result: &Value) -> bool {
    let is_failed = |code: i64| matches!(code, 401 | 403 | 408 | 429 | 500..=599);
    match result {
        Value::Int(code) => is_failed(*code),
        Value::Text(word) => {
            let word = word.trim().to_lowercase();
            FAILED.contains(&word.as_str()) || word.parse().is_ok_and(is_failed)
        }
        _ => false,
    }
}

/// Key and text of a failed request, by a flag, word or code beside an empty list at the path `records`.
/// `value` looks up a key of the page.
pub(super) fn failure_beside(
    records: &str,
    value: impl Fn(&str) -> Option<Value>,
) -> Option<(String, String)> {
    let first = records.split('.').next()?;
    let has_failed = |key: &str| match SUCCESS.contains(&key) {
        true => value(key).is_some_and(|flag| is_false(&flag)),
        false => value(key).is_some_and(|result| is_failure(&result)),
    };
    let mut keys = SUCCESS.into_iter().chain(RESULT);
    let key = keys.find(|&key| key != first && has_failed(key))?;
    let text = error_text(&value(key)?);
    let text = match value("message").or_else(|| value("msg")) {
        Some(Value::Text(message)) => format!("{text}: {message}"),
        _ => text,
    };
    Some((key.to_owned(), text))
}

/// Returns true if a document without an error shows that it is none: by a field at `error_path`, even
/// null or empty. An empty path is the document itself, so that no error is looked for.
pub(super) fn shows_no_error(document: &Value, error_path: Option<&str>) -> bool {
    error_path.is_some_and(|path| document.at(path).is_some())
}

/// Formats an error for messages; it may contain secrets.
pub(super) fn error_text(error: &Value) -> String {
    match error {
        Value::Text(text) => text.clone(),
        other => other.canonical(),
    }
}

/// Texts that report no error, without case and the sign at their end.
const NO_ERROR: [&str; 11] = [
    "",
    "none",
    "null",
    "nil",
    "false",
    "ok",
    "success",
    "successful",
    "no error",
    "no errors",
    "n/a",
];

/// Returns true if a value at a key that APIs report errors with reports one: more than nulls, false,
/// zeros, empty texts and words such as `none`, also in lists and objects.
pub(super) fn reports_error(value: &Value) -> bool {
    match value {
        Value::Text(text) => {
            let word = text.trim().trim_end_matches(['.', '!']).to_lowercase();
            let is_zero = !word.is_empty() && word.bytes().all(|byte| byte == b'0');
            !is_zero && !NO_ERROR.contains(&word.as_str())
        }
        Value::Float(number) => number.abs() > 0.0,
        Value::Written(number) => number.value().abs() > 0.0,
        Value::List(items) => items.iter().any(reports_error),
        Value::Object(entries) => entries.iter().any(|(_, value)| reports_error(value)),
        other => is_something(other),
    }
}

/// Returns true if a value reports something: not null, false, zero or empty.
pub(super) fn is_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) => false,
        Value::Text(text) => !text.is_empty(),
        Value::List(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reports(error: serde_json::Value) -> bool {
        let text = json!({"items": [{"id": 1}], "error": error}).to_string();
        let document = Value::parse(text.as_bytes()).unwrap();
        error_beside("items", |key| document.at(key).cloned()).is_some()
    }

    #[test]
    fn a_flag_word_or_code_beside_an_empty_list_shows_a_failed_request() {
        let found = |document: serde_json::Value| {
            let document = Value::parse(document.to_string().as_bytes()).unwrap();
            failure_beside("data.items", |key| document.at(key).cloned())
        };
        let failed = |key: &str, text: &str| Some((key.to_owned(), text.to_owned()));
        let word = json!({"status": "Error", "message": "quota used up"});
        assert_eq!(found(word), failed("status", "Error: quota used up"));
        assert_eq!(found(json!({"success": false})), failed("success", "false"));
        let flag = json!({"ok": false, "msg": "late"});
        assert_eq!(found(flag), failed("ok", "false: late"));
        let code = json!({"code": 429, "msg": "too many requests"});
        assert_eq!(found(code), failed("code", "429: too many requests"));
        assert_eq!(
            found(json!({"statusCode": "503"})),
            failed("statusCode", "503")
        );
        assert_eq!(found(json!({"success": 0})), failed("success", "0"));
        assert_eq!(found(json!({"ok": "False"})), failed("ok", "False"));
        for none in [
            json!({"status": "ok", "message": "none left"}),
            json!({"status": "success"}),
            json!({"status": false}),
            json!({"status": 200}),
            json!({"code": 0}),
            json!({"code": 404, "message": "no records found"}),
            json!({"success": 1}),
            json!({"success": ""}),
            json!({"success": true, "ok": "error"}),
            json!({"success": null}),
            json!({"message": "error"}),
        ] {
            assert_eq!(found(none.clone()), None, "{none}");
        }
        let flag = |_: &str| Some(Value::Bool(false));
        assert_eq!(failure_beside("success", flag), failed("ok", "false"));
    }

    #[test]
    fn values_without_an_error_are_none_beside_records() {
        for none in [
            json!({"code": 0, "message": "ok"}),
            json!("none"),
            json!("No error."),
            json!(" 0 "),
            json!("00000"),
            json!({"message": null, "code": null}),
            json!({"occurred": false}),
            json!({"email": []}),
            json!([null]),
            json!([{}, [0, ""]]),
            json!(0.0),
        ] {
            assert!(!reports(none.clone()), "{none}");
        }
        for error in [
            json!("one row is late"),
            json!("error"),
            json!({"code": 7, "message": "ok"}),
            json!({"code": 0, "message": "quota used up"}),
            json!({"occurred": true}),
            json!({"email": ["is absent"]}),
            json!([null, "late"]),
        ] {
            assert!(reports(error.clone()), "{error}");
        }
    }
}
