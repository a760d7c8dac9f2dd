//! Numbers of pages, where the first response does not show them.

use std::collections::HashSet;

use super::{Found, body::list, line::quoted};
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
            is_by_order: false,
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

/// Returns true if both pages have records, and no record is in both. So pages 0 and 1 show that
/// the first page has the number 0: an API that counts from 1 refuses page 0, returns none of its
/// records, or returns its first page for it. Pages 1 and 2 show that the parameter numbers pages.
pub(crate) fn have_different_records(first: &Value, second: &Value, records: &str) -> bool {
    let (Some((_, first)), Some((_, second))) = (list(first, records), list(second, records))
    else {
        return false;
    };
    let known: HashSet<String> = first.iter().map(Value::canonical).collect();
    let is_new = |record: &Value| !known.contains(&record.canonical());
    !first.is_empty() && !second.is_empty() && second.iter().all(is_new)
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
}
