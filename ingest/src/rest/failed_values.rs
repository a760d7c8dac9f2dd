//! Values of a list whose requests fail. The others are read, and the run ends with an error that
//! names those that failed. The ledger keeps them for the next pass.

use feedline_http::HttpCause;
use feedline_schemas::{
    Classified, ErrorKind,
    commit::{Ledger, Position},
};

use super::{Rest, page, page_positions::ended};
use crate::{
    backfill::{MOST_REMEMBERED, show_values},
    error::{Error, describe_with_cause},
    source::{Crawled, Page},
};

/// Values that may fail one after another. More of them show that the source fails, and end it.
/// Values that have failed before do not count.
const MOST_IN_A_ROW: usize = 10;

/// Values that failed in the current pass of this process.
#[derive(Debug, Default)]
pub(super) struct FailedValues {
    source: String,
    texts: Vec<String>,
    /// Text and kind of the first error.
    first: Option<(String, ErrorKind)>,
    /// Index of the value after the last one that failed.
    next: Option<u64>,
    /// Values that failed one after another, up to that one.
    in_a_row: usize,
    /// True if the last one cannot be remembered for another request.
    is_beyond_limit: bool,
}

impl FailedValues {
    pub(super) fn new(source: &str) -> Self {
        Self {
            source: source.to_owned(),
            ..Self::default()
        }
    }

    /// Forgets them at the beginning of a pass, which requests them again.
    pub(super) fn clear(&mut self) {
        *self = Self::new(&self.source);
    }

    /// Adds the value in work of `ledger`, which `next` follows. Returns false if too many have failed
    /// one after another.
    fn add(&mut self, text: String, error: &Error, ledger: &Ledger, next: &Ledger) -> bool {
        self.push(text, error);
        if ledger.failed.binary_search(&ledger.value).is_err() {
            let is_next = self.next == Some(ledger.value);
            self.in_a_row = if is_next { self.in_a_row + 1 } else { 1 };
        }
        self.next = next.slice.map(|_| next.value);
        self.in_a_row < MOST_IN_A_ROW
    }

    /// Adds a value that cannot be remembered beside all others, and returns the error about them.
    fn end_beyond_limit(&mut self, text: String, error: &Error) -> Option<Error> {
        self.push(text, error);
        self.is_beyond_limit = true;
        self.error()
    }

    fn push(&mut self, text: String, error: &Error) {
        self.texts.push(text);
        if self.first.is_none() {
            self.first = Some((describe_with_cause(error), error.kind()));
        }
    }

    /// The error about them; `None` if there are none.
    pub(super) fn error(&self) -> Option<Error> {
        let (first, kind) = self.first.clone()?;
        let others = "the next run begins with it, and the values after it were not requested";
        // The last of too many is still the value in work, and not among the failed ones of the ledger.
        let (failed, others) = match self.texts.split_last() {
            Some((last, _)) if self.is_beyond_limit => (
                &self.texts[..],
                format!(
                    "and `{}` is beyond the {MOST_REMEMBERED} failed or absent values that are remembered for another request: {others}",
                    last.escape_debug()
                ),
            ),
            Some((last, failed)) if self.in_a_row >= MOST_IN_A_ROW => (
                failed,
                format!(
                    "and then `{}`, the {MOST_IN_A_ROW}th in a row: {others}",
                    last.escape_debug()
                ),
            ),
            _ => (&self.texts[..], "and all others were read".to_owned()),
        };
        Some(Error::FailedValues {
            r#source: self.source.clone(),
            failed: failed.len() as u64,
            values: show_values(failed),
            others,
            first,
            kind,
        })
    }
}

impl Rest {
    /// Passes over the value of a list whose page at `before` failed with `error`: returns an empty
    /// page that ends at the next value.
    ///
    /// # Errors
    /// `error` if it is about the whole source, and if the records that have landed of the value would
    /// land again; [`Error::FailedValues`] if too many values have failed one after another, and if
    /// the value cannot be remembered.
    pub(super) fn pass_over(&mut self, before: &Position, error: Error) -> Result<Page, Error> {
        if !is_of_value(&error) {
            return Err(error);
        }
        let Some((number, ledger)) = self.failed_slice(before) else {
            return Err(error);
        };
        let plan = self.plan.as_ref();
        let Some(text) = plan.and_then(|plan| plan.value_of(&ledger)) else {
            return Err(error);
        };
        let next = plan.and_then(|plan| plan.advance_failed(ledger.clone()));
        let Some(next) = next else {
            return Err(self.failed.end_beyond_limit(text, &error).unwrap_or(error));
        };
        tracing::warn!(source = %self.failed.source, value = %text, %error, "the value failed: it is requested again by the next run, and the others are read");
        if !self.failed.add(text, &error, &ledger, &next) {
            return Err(self.failed.error().unwrap_or(error));
        }
        self.moved_up.clear();
        let next = ended(number, next);
        self.deepen(&next);
        Ok(Page {
            // No page was read.
            crawled: Some(Crawled::default()),
            ..page(Vec::new(), next)
        })
    }

    /// Number of the page run at `before`, and its ledger; `None` if its value cannot be passed over.
    fn failed_slice(&mut self, before: &Position) -> Option<(u64, Ledger)> {
        let changed = self.with_list(before);
        let position = changed.as_ref().unwrap_or(before);
        let at = self.place_after(before, position).ok()??;
        if at.page > 0 && self.keeps_all {
            return None;
        }
        let ledger = *at.run.ledger?;
        ledger.slice.is_some().then_some((at.run.number, ledger))
    }
}

/// Returns false for an error that requests of other values would have too, and for one that is not
/// about a request.
fn is_of_value(error: &Error) -> bool {
    match error {
        Error::Http { cause, .. } => match cause {
            // Credentials, permissions and rate limits.
            HttpCause::Status(status) => !matches!(status, 401 | 403 | 407 | 429),
            HttpCause::Other => true,
            _ => false,
        },
        Error::Body { .. } | Error::Incomplete { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(cause: HttpCause) -> Error {
        Error::Http {
            url: "http://h/".into(),
            cause,
            what: "the server responded 500".into(),
            advice: "run again later".into(),
        }
    }

    #[test]
    fn errors_of_credentials_limits_and_circuits_are_not_of_one_value() {
        for status in [400, 404, 410, 500, 503] {
            assert!(is_of_value(&http(HttpCause::Status(status))), "{status}");
        }
        assert!(is_of_value(&http(HttpCause::Other)));
        for status in [401, 403, 407, 429] {
            assert!(!is_of_value(&http(HttpCause::Status(status))), "{status}");
        }
        for cause in [HttpCause::InvalidGrant(400), HttpCause::CircuitOpen] {
            assert!(!is_of_value(&http(cause)), "{cause:?}");
        }
        assert!(!is_of_value(&Error::Cancelled));
        assert!(!is_of_value(&Error::config("url", "is wrong")));
    }

    #[test]
    fn values_that_fail_in_a_row_end_the_source_unless_they_failed_before() {
        let error = http(HttpCause::Status(500));
        let at = |value: u64, failed: &[u64]| Ledger {
            values: 100,
            value,
            slice: Some([0, 1]),
            failed: failed.to_vec(),
            ..Ledger::default()
        };
        let mut failed = FailedValues::new("s");
        assert!(failed.error().is_none());
        let mut add = |value: u64, before: &[u64]| {
            let text = value.to_string();
            failed.add(text, &error, &at(value, before), &at(value + 1, before))
        };
        for value in 0..9 {
            assert!(add(value, &[]), "{value}");
        }
        // The value 9 has been read, and the next two have failed before.
        assert!(add(10, &[10, 11]));
        assert!(add(11, &[10, 11]));
        for value in 20..29 {
            assert!(add(value, &[]), "{value}");
        }
        assert!(!add(29, &[]));
        let text = failed.error().map(|error| error.to_string());
        let text = text.unwrap_or_default();
        for part in [
            "20 values of `for_each` failed (`0`, `1`, `2`, `3`, `4` and 15 more), and then `29`, the 10th in a row",
            "the server responded 500",
        ] {
            assert!(text.contains(part), "{text}");
        }
        failed.clear();
        assert!(failed.error().is_none());
    }

    #[test]
    fn a_value_that_cannot_be_remembered_is_named_with_the_limit() {
        let error = http(HttpCause::Status(500));
        let mut failed = FailedValues::new("s");
        let text = failed.end_beyond_limit("x".into(), &error);
        let text = text.map(|error| error.to_string()).unwrap_or_default();
        let part = format!(
            "1 value of `for_each` failed (`x`), and `x` is beyond the {MOST_REMEMBERED} failed or absent values"
        );
        assert!(text.contains(&part), "{text}");
        failed.clear();
        assert!(failed.error().is_none());
    }
}
