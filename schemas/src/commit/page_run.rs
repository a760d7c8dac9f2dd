//! Run of pages in the position of a source.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Ledger, is_zero};
use crate::ids::Hash128;

/// A run of pages of a `rest` source: from a first page to the last one. A source has more than one when it is
/// incremental, when a cursor has expired, and for each slice and value. Only what the source's configuration needs is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PageRun {
    /// Number of the run of pages, from 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub number: u64,
    /// True for a second attempt, since the cursor of the one before had expired.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restarted: bool,
    /// Incremental: the bound that its pages are asked from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Incremental: the highest cursor of all records so far, those of earlier runs of pages included, and those without
    /// that were ahead of the time when they came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<String>,
    /// Incremental: the records whose cursors were ahead of the time when they came, and are still beyond the bound: they
    /// come again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ahead: Vec<CursorAhead>,
    /// Incremental: the first resumption of the run of pages by another process. Records of the pages before it may have
    /// changed until then, so the next run of pages requests them again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<Interruption>,
    /// Records that its pages brought, where they are counted.
    #[serde(skip_serializing_if = "is_zero")]
    pub records: u64,
    /// Records that have come and will come again: with keyset, xxh3-128 of the keys that have come
    /// with the last record's time; with an overlap of offsets, of the last records' canonical
    /// forms. With `page`, and `offset` without an overlap: of the last record's canonical form, and of
    /// what identifies it, which a process that resumes looks for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub boundary: Vec<Hash128>,
    /// `page`, `offset`: the last page, where it had fewer records than `pagination.page_size`, or none, and did not say
    /// whether it is the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short: Option<ShortPage>,
    /// `offset` without an overlap: records of the last page, where it is not in `short` and they are not
    /// `pagination.page_size`.
    #[serde(skip_serializing_if = "is_zero")]
    pub page_records: u64,
    /// `slices`, `for_each`: what is done, and the slice and value that the pages are of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Box<Ledger>>,
    /// `html`: pages that failed.
    #[serde(skip_serializing_if = "FailedPages::is_default")]
    pub failed_pages: Box<FailedPages>,
}

/// Pages of a crawl that failed and may be available later, by the numbers of their URLs in the frontier: the order in which
/// URLs were found, from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FailedPages {
    /// Those that a run requests again, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<u64>,
    /// Within such a run: those from the first number to before the second one, maybe none, are not requested yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<[u64; 2]>,
    /// Number of further pages that failed, which only a repeated crawl requests.
    #[serde(skip_serializing_if = "is_zero")]
    pub beyond_limit: u64,
}

/// An interruption of an incremental run of pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interruption {
    /// `high` of the run of pages at that time: the next bound follows no newer cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<String>,
}

/// A page with fewer records than were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShortPage {
    /// Its records.
    pub records: u64,
    /// xxh3-128 of them; a page that repeats them has the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<Hash128>,
}

/// A record with a cursor in the future.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CursorAhead {
    /// Its cursor.
    pub cursor: String,
    /// xxh3-128 of its canonical form; absent where it covers several records, or one whose form is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<Hash128>,
}

impl PageRun {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl FailedPages {
    /// Returns true if no page has failed.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_pages_are_few_bytes_and_absent_without_any() {
        let mut run = PageRun::default();
        assert_eq!(serde_json::to_string(&run).unwrap(), "{}");
        run.failed_pages.numbers = vec![7, 12];
        let text = r#"{"failed_pages":{"numbers":[7,12]}}"#;
        assert_eq!(serde_json::to_string(&run).unwrap(), text);
        assert_eq!(serde_json::from_str::<PageRun>(text).unwrap(), run);
        run.failed_pages.open = Some([12, 40]);
        run.failed_pages.beyond_limit = 3;
        let text = r#"{"failed_pages":{"numbers":[7,12],"open":[12,40],"beyond_limit":3}}"#;
        assert_eq!(serde_json::to_string(&run).unwrap(), text);
        assert_eq!(serde_json::from_str::<PageRun>(text).unwrap(), run);
    }
}
