//! Charset that a server names for JSON that is not UTF-8.

use feedline_readers::value::Value;

/// Reason of a text that is not UTF-8.
const INVALID_UTF8: &str = "invalid_utf8";

/// Length of the longest reported name.
const MAX_NAME_BYTES: usize = 40;

/// Adds the charset that `content_type` names, if it is another than UTF-8, to the faults of texts
/// that are not UTF-8.
pub(super) fn name_charset(document: &mut Value, content_type: &str) {
    if let Some(charset) = other_charset(content_type) {
        add_to_faults(document, charset);
    }
}

/// The name of a charset other than UTF-8, as it is written.
fn other_charset(content_type: &str) -> Option<&str> {
    let mut params = content_type.split(';').filter_map(|part| {
        let (key, value) = part.split_once('=')?;
        let is_charset = key.trim().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim().trim_matches(['"', '\'']))
    });
    let name = params.next()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    let is_name = !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(is_plain);
    let mut utf8 = ["utf-8", "utf8"].into_iter();
    (is_name && !utf8.any(|known| name.eq_ignore_ascii_case(known))).then_some(name)
}

fn add_to_faults(value: &mut Value, charset: &str) {
    match value {
        Value::List(items) => items
            .iter_mut()
            .for_each(|item| add_to_faults(item, charset)),
        Value::Object(entries) => entries
            .iter_mut()
            .for_each(|(_, value)| add_to_faults(value, charset)),
        Value::Fault(fault) if fault.reason == INVALID_UTF8 => {
            fault.detail += &format!(
                "; its `Content-Type` names the charset `{charset}`, but JSON must be UTF-8 (RFC 8259)"
            );
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_charset_is_added_to_a_text_that_is_not_utf8() {
        let detail = |content_type: &str| {
            let mut document = Value::parse(b"[{\"n\": \"\xe9\"}]").unwrap();
            name_charset(&mut document, content_type);
            let (_, fault) = document.fault().unwrap();
            fault.detail.clone()
        };
        let named = detail("application/json; charset=\"ISO-8859-1\"");
        assert!(
            named.contains("names the charset `ISO-8859-1`, but JSON must be UTF-8"),
            "{named}"
        );
        for other in [
            "",
            "application/json",
            "application/json; charset=UTF-8",
            "application/json; charset=`x`",
        ] {
            assert!(!detail(other).contains("charset"), "{other}");
        }
    }
}
