//! Numbers of pages, where the first response does not show them.

use std::collections::HashSet;

use super::{Found, body::list, line::quoted, order::KEYS};
use feedline_readers::value::Value;

impl Found {
    /// Suggests pages that are numbered by the query parameter `param`.
    pub(crate) fn numbered_by(self, param: &str) -> Self {
        let name = quoted(param);
        Self {
            pagination: Some(format!(
                "pagination = {{ type = \"page\", page_param = {name} }}"
            )),
            reason: format!("pages 1 and 2 by the parameter `{param}` have different records"),
            after_last: None,
            ..self
        }
    }

    /// Suggests no pages, as a request for the records behind the last one by `param` returned the same.
    pub(crate) fn without_keyset(self, param: &str) -> Self {
        Self {
            pagination: None,
            reason: format!(
                "nothing in it names a next page, and a request for the records behind the last one by the parameter `{param}` returned the same records: it may be a list without pages; look into the API's documentation if it has more records"
            ),
            after_last: None,
            ..self
        }
    }

    /// Sets that pages count from 0.
    pub(crate) fn counting_from_zero(mut self) -> Self {
        if let Some(line) = &mut self.pagination
            && let Some(keys) = line.strip_suffix(" }")
        {
            *line = format!("{keys}, first_page = 0 }}");
            self.reason += "; `first_page` = 0, because pages 0 and 1 have different records";
        }
        self
    }
}

/// Returns true if both pages have records, no record is in both, and their ids are not the same. So
/// pages 0 and 1 show that the first page has the number 0: an API that counts from 1 refuses page 0,
/// returns none of its records, or returns its first page for it. Pages 1 and 2 show that the
/// parameter numbers pages.
pub(crate) fn have_different_records(first: &Value, second: &Value, records: &str) -> bool {
    let (Some((_, first)), Some((_, second))) = (list(first, records), list(second, records))
    else {
        return false;
    };
    let known: HashSet<String> = first.iter().map(Value::canonical).collect();
    let is_new = |record: &Value| !known.contains(&record.canonical());
    let are_full = !first.is_empty() && !second.is_empty();
    are_full && !have_the_same_ids(first, second) && second.iter().all(is_new)
}

/// Returns true if both documents have the same records, but for fields that change with each request.
pub(crate) fn have_equal_records(first: &Value, second: &Value, records: &str) -> bool {
    match (list(first, records), list(second, records)) {
        (Some((_, first)), Some((_, second))) => {
            first == second || have_the_same_ids(first, second)
        }
        _ => false,
    }
}

/// Returns true if the records of both pages have the same ids, in the same order. Other fields may
/// change with each request, such as the time of the response.
fn have_the_same_ids(first: &[Value], second: &[Value]) -> bool {
    let Some(Value::Object(entries)) = first.first() else {
        return false;
    };
    // Without a usual name, a field of one record alone may have the same value in all records.
    let others = entries.iter().map(|(key, _)| key.as_str());
    let others = others.filter(|_| first.len() > 1);
    let (numbering, others): (Vec<_>, Vec<_>) = others.partition(|key| numbers_rows(first, key));
    let mut keys = KEYS.into_iter().chain(others).chain(numbering);
    let ids = keys.find_map(|key| Some((key, distinct_values(first, key)?)));
    ids.is_some_and(|(key, ids)| values(second, key).is_some_and(|values| values == ids))
}

/// Returns true if the values at `key` number the records of a page, from 0 or 1.
fn numbers_rows(records: &[Value], key: &str) -> bool {
    let is_from = |start: i64| {
        let mut numbered = records.iter().zip(start..);
        numbered.all(|(record, number)| match record {
            Value::Object(entries) => entries
                .iter()
                .any(|(name, value)| name == key && *value == Value::Int(number)),
            _ => false,
        })
    };
    is_from(0) || is_from(1)
}

/// The values at `key`, if all records have one and no two have the same.
fn distinct_values(records: &[Value], key: &str) -> Option<Vec<String>> {
    let values = values(records, key)?;
    let count = values.iter().collect::<HashSet<_>>().len();
    (count == values.len()).then_some(values)
}

/// The single values at `key`, if all records have one.
fn values(records: &[Value], key: &str) -> Option<Vec<String>> {
    let value = |record: &Value| {
        let Value::Object(entries) = record else {
            return None;
        };
        let (_, value) = entries.iter().find(|(name, _)| name == key)?;
        match value {
            Value::Null | Value::List(_) | Value::Object(_) | Value::Fault(_) => None,
            single => Some(single.canonical()),
        }
    };
    records.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_without_a_common_record_are_different() {
        let check = |zero: &str, one: &str, expected: bool| {
            let [zero, one] = [zero, one].map(|text| Value::parse(text.as_bytes()).unwrap());
            assert_eq!(
                have_different_records(&zero, &one, "items"),
                expected,
                "{zero:?} {one:?}"
            );
        };
        let first = r#"{"items": [{"id": 1, "a": 2}, {"id": 2, "a": 3}]}"#;
        check(first, r#"{"items": [{"id": 3}]}"#, true);
        check(first, r#"{"items": [{"a": 2, "id": 1}, {"id": 2}]}"#, false);
        check(first, first, false);
        check(first, r#"{"items": []}"#, false);
        check(r#"{"items": []}"#, first, false);
        check(r#"{"error": "page must be at least 1"}"#, first, false);
    }

    #[test]
    fn pages_with_the_same_ids_are_the_same_page_though_other_fields_change() {
        let check = |first: &str, second: &str, expected: bool| {
            let page = |records: &str| Value::parse(format!("[{records}]").as_bytes()).unwrap();
            let found = have_different_records(&page(first), &page(second), "");
            assert_eq!(found, expected, "{first} {second}");
        };
        let first = r#"{"kind": "a", "now": 1.5, "id": 1}, {"kind": "a", "now": 1.6, "id": 2}"#;
        let later = r#"{"kind": "a", "now": 2.5, "id": 1}, {"kind": "a", "now": 2.6, "id": 2}"#;
        check(first, later, false);
        let next = later.replace("\"id\": 2", "\"id\": 3");
        check(first, &next.replace("\"id\": 1", "\"id\": 4"), true);
        // The first field that is different in all records takes the place of an id.
        check(
            r#"{"kind": "a", "code": "x", "now": 1}, {"kind": "a", "code": "y", "now": 1}"#,
            r#"{"kind": "a", "code": "x", "now": 2}, {"kind": "a", "code": "y", "now": 2}"#,
            false,
        );
        // The number of a row is the last choice: it can start again on each page.
        check(
            r#"{"rank": 1, "name": "a"}, {"rank": 2, "name": "b"}"#,
            r#"{"rank": 1, "name": "c"}, {"rank": 2, "name": "d"}"#,
            true,
        );
        check(
            r#"{"rank": 0, "name": "a", "now": 1}, {"rank": 1, "name": "b", "now": 1}"#,
            r#"{"rank": 0, "name": "a", "now": 2}, {"rank": 1, "name": "b", "now": 2}"#,
            false,
        );
        // It is one if no other field is different in all records.
        check(
            r#"{"user_no": 1, "now": 1}, {"user_no": 2, "now": 1}"#,
            r#"{"user_no": 1, "now": 2}, {"user_no": 2, "now": 2}"#,
            false,
        );
        // One record alone shows no field that is different in all of them.
        check(
            r#"{"kind": "a", "code": 1}"#,
            r#"{"kind": "a", "code": 2}"#,
            true,
        );
        check(r#"{"id": 1, "now": 1}"#, r#"{"id": 1, "now": 2}"#, false);
    }
}
