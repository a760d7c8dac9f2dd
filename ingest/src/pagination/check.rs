//! Checking `[source.pagination]`.

use feedline_schemas::config::{PaginationConfig, PaginationKind};
use url::Url;

use crate::error::Error;

/// Refuses settings that cannot work.
pub(super) fn check(config: &PaginationConfig) -> Result<(), Error> {
    use PaginationKind::{Cursor, HeaderCursor, Keyset, NextUrl, None, Offset, Page};
    let wrong = |key: &str, reason: &str| Err(Error::config(format!("pagination.{key}"), reason));
    let kind = config.r#type;
    if config.max_pages == 0 {
        return wrong("max_pages", "0 allows no page at all, use 1 or more");
    }
    if config.max_records == Some(0) {
        return wrong("max_records", "0 allows no record at all, use 1 or more");
    }
    if config.overlap > 0 {
        if kind != Offset {
            return wrong("overlap", "is for `offset` only; remove it");
        }
        let most = config
            .page_size
            .checked_sub(1)
            .unwrap_or(u64::MAX)
            .min(1_000);
        if config.overlap > most {
            return wrong(
                "overlap",
                "is out of range: use 0 to 1,000, less than `page_size`",
            );
        }
    }
    if config.has_more_path.is_some() && matches!(kind, None | Keyset) {
        return wrong("has_more_path", "is not for this `type`; remove it");
    }
    if !config.end_status.is_empty() && kind == None {
        return wrong(
            "end_status",
            "is for sources of several pages; set `pagination.type`, or remove this",
        );
    }
    let is_refusal = |status: &u16| (400..=599).contains(status);
    if let Some(other) = config.end_status.iter().find(|status| !is_refusal(status)) {
        return wrong(
            "end_status",
            &format!("{other} is out of range: use statuses from 400 to 599"),
        );
    }
    if config.size_param.is_some() && config.page_size == 0 {
        return wrong(
            "size_param",
            "is sent with `page_size`, which is not set; set it or remove this key",
        );
    }
    let sends_cursor = matches!(kind, Cursor | HeaderCursor);
    let header = config.cursor_header.clone().unwrap_or_default();
    let needed = [
        (
            kind == Page,
            "page_param",
            &config.page_param,
            "query parameter of the page number",
        ),
        (
            kind == Offset,
            "offset_param",
            &config.offset_param,
            "query parameter of the offset",
        ),
        (
            sends_cursor,
            "cursor_param",
            &config.cursor_param,
            "query parameter of the cursor",
        ),
        (
            kind == Cursor,
            "cursor_path",
            &config.cursor_path,
            "path of the next cursor in the body",
        ),
        (
            kind == HeaderCursor,
            "cursor_header",
            &header,
            "response header of the next cursor",
        ),
        (
            kind == NextUrl,
            "next_path",
            &config.next_path,
            "path of the next URL in the body",
        ),
    ];
    for (is_needed, key, text, what) in needed {
        if is_needed && text.is_empty() {
            return wrong(key, &format!("is empty; give the {what}"));
        }
    }
    for origin in &config.next_origins {
        let is_origin = Url::parse(origin).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.host().is_some()
                && url.path() == "/"
                && url.query().is_none()
        });
        if !is_origin {
            return wrong(
                "next_origins",
                &format!(
                    "`{}` is no origin, write `https://host`",
                    origin.escape_debug()
                ),
            );
        }
    }
    if config.strict_total && config.total_path.is_none() && config.total_header.is_none() {
        return wrong(
            "strict_total",
            "needs `total_path` or `total_header`; set one or remove this key",
        );
    }
    Ok(())
}
