//! Fields of a document that pages are read by.

use feedline_readers::value::Value;

/// Full name of a key of the pagination.
pub(super) fn pagination_key(key: &str) -> &'static str {
    match key {
        "next_path" => "pagination.next_path",
        _ => "pagination.cursor_path",
    }
}

/// Reads the cursor or URL at `path`: text or (a cursor only) an integer; null, false, absent or empty
/// is `None`.
pub(super) fn token(
    found: Option<&Value>,
    key: &str,
    path: &str,
) -> Result<Option<String>, String> {
    match found {
        None | Some(Value::Null | Value::Bool(false)) => Ok(None),
        Some(Value::Text(text)) => Ok((!text.is_empty()).then(|| text.clone())),
        Some(Value::Int(number)) if key == "cursor_path" => Ok(Some(number.to_string())),
        Some(other) => Err(format!(
            "`pagination.{key}` = `{path}` is {} where {} should be",
            other.kind(),
            if key == "cursor_path" {
                "a cursor (text or an integer)"
            } else {
                "a URL"
            }
        )),
    }
}

/// Reads the boolean at `path`; `None` if it is null or absent.
pub(super) fn boolean(found: Option<&Value>, path: &str) -> Result<Option<bool>, String> {
    Ok(match found {
        None | Some(Value::Null) => None,
        Some(Value::Bool(is)) => Some(*is),
        Some(Value::Int(0)) => Some(false),
        Some(Value::Int(1)) => Some(true),
        Some(other) => {
            return Err(format!(
                "`pagination.has_more_path` = `{path}` is {} where a boolean should be",
                other.kind()
            ));
        }
    })
}

/// Reads the number of all records at `path`; `None` if it is null or absent.
///
/// # Errors
/// A message if it is no whole number.
pub(super) fn total(found: Option<&Value>, path: &str) -> Result<Option<u64>, String> {
    let number = match found {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Int(number)) => u64::try_from(*number).ok(),
        Some(Value::Text(text)) => text.parse().ok(),
        Some(_) => None,
    };
    let wrong = || format!("`pagination.total_path` = `{path}` is no whole number");
    number.map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_false_and_an_empty_text_are_no_next_page() {
        for key in ["cursor_path", "next_path"] {
            for end in [Value::Null, Value::Bool(false), Value::Text(String::new())] {
                assert_eq!(token(Some(&end), key, "next"), Ok(None), "{key} {end:?}");
            }
            assert!(token(Some(&Value::Bool(true)), key, "next").is_err());
        }
    }
}
