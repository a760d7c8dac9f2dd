//! `[source.pagination]` as the log of a source records it.

use serde::{Serialize, Serializer};

use super::{EndStatus, Pagination, PaginationConfig, PaginationKind};
use crate::config::BoundedCount;

/// All keys beside one another, as logs of sources have recorded them from the beginning: keys of other types have
/// their defaults.
#[derive(Serialize)]
struct Recorded<'a> {
    r#type: PaginationKind,
    page_param: &'a str,
    first_page: u64,
    page_size: u64,
    size_param: &'a Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset_param: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap: Option<u64>,
    cursor_param: &'a str,
    cursor_path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor_header: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_path: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    next_origins: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    time_path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_param: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_param: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    exclusive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_path: &'a Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_header: &'a Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    strict_total: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_records: Option<BoundedCount<1>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    has_more_path: Option<&'a str>,
    #[serde(skip_serializing_if = "<[EndStatus]>::is_empty")]
    end_status: &'a [EndStatus],
    #[serde(skip_serializing_if = "Option::is_none")]
    empty_pages: Option<u64>,
    max_pages: BoundedCount<1>,
}

impl Serialize for PaginationConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut recorded = Recorded {
            r#type: self.way.kind(),
            page_param: "page",
            first_page: 1,
            page_size: self.common.page_size,
            size_param: &self.common.size_param,
            offset_param: None,
            first_offset: None,
            overlap: None,
            cursor_param: "cursor",
            cursor_path: "next_cursor",
            cursor_header: None,
            next_path: None,
            next_origins: self.way.next_origins(),
            time_path: None,
            time_param: None,
            key_path: None,
            key_param: None,
            exclusive: false,
            total_path: &self.common.total_path,
            total_header: &self.common.total_header,
            strict_total: self.common.strict_total,
            max_records: self.common.max_records,
            has_more_path: self.way.has_more_path(),
            end_status: self.way.end_status(),
            empty_pages: Some(self.way.empty_pages()).filter(|pages| *pages > 1),
            max_pages: self.common.max_pages,
        };
        let unless = |text: &'_ str, default: &str| text != default;
        match &self.way {
            Pagination::None(_) | Pagination::Link(_) => {}
            Pagination::Page(keys) => {
                (recorded.page_param, recorded.first_page) = (&keys.page_param, keys.first_page);
            }
            Pagination::Offset(keys) => {
                let param = keys.offset_param.as_str();
                recorded.offset_param = Some(param).filter(|text| unless(text, "offset"));
                recorded.first_offset = Some(keys.first_offset).filter(|first| *first > 0);
                recorded.overlap = Some(keys.overlap.get()).filter(|overlap| *overlap > 0);
            }
            Pagination::Cursor(keys) => {
                recorded.cursor_param = &keys.cursor_param;
                recorded.cursor_path = &keys.cursor_path;
            }
            Pagination::HeaderCursor(keys) => {
                recorded.cursor_param = &keys.cursor_param;
                recorded.cursor_header = Some(&keys.cursor_header);
            }
            Pagination::NextUrl(keys) => {
                let path = keys.next_path.as_str();
                recorded.next_path = Some(path).filter(|text| unless(text, "next"));
            }
            Pagination::Keyset(keys) => {
                recorded.time_path = Some(&keys.time_path);
                recorded.time_param = Some(&keys.time_param);
                recorded.key_path = Some(&keys.key_path);
                recorded.key_param = keys.key_param.as_deref();
                recorded.exclusive = keys.exclusive;
            }
        }
        recorded.serialize(serializer)
    }
}
