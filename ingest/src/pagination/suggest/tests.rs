//! Made-up responses.

use feedline_schemas::config::{SourceConfig, load};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::*;
use crate::pagination::Paginator;

fn headers(list: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        let name = HeaderName::try_from(*name).unwrap();
        (name, HeaderValue::try_from(*value).unwrap())
    };
    list.iter().map(pair).collect()
}

/// The source that the lines make, if they are such as a pipeline may have.
pub(super) fn source(found: &Found) -> SourceConfig {
    let mut text =
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"http://h.example/\"\n"
            .to_owned();
    for line in [&found.records, &found.pagination].into_iter().flatten() {
        text += line;
        text.push('\n');
    }
    let source = load("p", &text, &[]).unwrap_or_else(|e| panic!("{e}: {text}"));
    let source = source.config.source.into_iter().next().unwrap();
    Paginator::new(
        &source.pagination,
        &Url::parse("http://h.example/").unwrap(),
        None,
    )
    .unwrap();
    source
}

fn found(url: &str, head: &[(&str, &str)], body: &str) -> Found {
    let url = Url::parse("http://h.example/v1/")
        .unwrap()
        .join(url)
        .unwrap();
    let body = Value::parse(body.as_bytes()).unwrap();
    let found = suggest(&headers(head), &body, &url, "");
    source(&found);
    found
}

fn check(url: &str, head: &[(&str, &str)], body: &str, line: &str, part: &str) {
    let found = found(url, head, body);
    let shown = found.pagination.as_deref().unwrap_or_default();
    assert_eq!(shown, line, "{body}: {found:?}");
    assert!(found.reason.contains(part), "{body}: {found:?}");
}

/// This many records without order.
fn items(count: usize) -> String {
    let items: Vec<String> = (0..count)
        .map(|i| format!("{{\"id\":{}}}", i * 7 % 10))
        .collect();
    items.join(",")
}

#[test]
fn headers_that_lead_on_are_found_before_bodies() {
    let link = "<http://h.example/v1/?page=2&token=abcdefgh>; rel=\"next\"";
    let body = r#"{"items": [{"id": 1}], "next": "http://h.example/x", "total": 9}"#;
    let line = "pagination = { type = \"link\", total_path = \"total\" }";
    check("?", &[("link", link)], body, line, "`Link` header");
    let line = "pagination = { type = \"link\", total_header = \"x-total\" }";
    check(
        "?",
        &[("link", link), ("X-Total", "7")],
        "[{\"id\":1}]",
        line,
        "next page",
    );
    let line = "pagination = { type = \"header_cursor\", cursor_param = \"cursor\", cursor_header = \"x-next-cursor\" }";
    check(
        "?",
        &[("X-Next-Cursor", "abc")],
        "[{\"id\":1}]",
        line,
        "`cursor` is a guess",
    );
    let line = "pagination = { type = \"page\", page_param = \"page\", page_size = 1 }";
    check(
        "?per_page=1",
        &[("X-Next-Page", "2")],
        "[{\"id\":1}]",
        line,
        "`x-next-page`",
    );
    check(
        "?",
        &[("X-Next-Page", "")],
        "[{\"id\":1}]",
        "",
        "names a next page",
    );
    let last = "<http://h.example/v1/?page=1>; rel=\"first\"";
    check("?", &[("link", last)], "[{\"id\":1}]", "", "no next page");
}

/// Checks the settings that a body suggests.
fn check_body(body: &str, line: &str) {
    let shown = found("?", &[], body).pagination.unwrap_or_default();
    assert_eq!(shown, line, "{body}");
}

#[test]
fn urls_in_bodies_are_found_by_their_names() {
    let check = |body: &str, path: &str| {
        let line = format!("pagination = {{ type = \"next_url\", next_path = \"{path}\" }}");
        check_body(body, &line);
    };
    check(
        r#"{"results": [{"a": 1}], "next": "https://h.example/?page=2"}"#,
        "next",
    );
    check(
        r#"{"data": [{"a": 1}], "links": {"self": "/a", "next": "/b?p=2"}}"#,
        "links.next",
    );
    check(
        r#"{"data": [{"a": 1}], "_links": {"next": {"href": "?p=2"}}}"#,
        "_links.next.href",
    );
    check(
        r#"{"value": [{"a": 1}], "@odata.nextLink": "https://h.example/x"}"#,
        r"@odata\\.nextLink",
    );
    // Fields of a record do not belong to the page.
    check_body(
        r#"{"items": [{"a": 1, "next": "/b", "next_cursor": "x"}]}"#,
        "",
    );
    check_body(r#"{"items": [{"a": 1}], "next": null}"#, "");
}

#[test]
fn cursors_in_bodies_are_found_by_their_names() {
    for (body, param, path) in [
        (
            r#"{"data": [{"a": 1}], "paging": {"next": "abc"}}"#,
            "cursor",
            "paging.next",
        ),
        (
            r#"{"items": [{"a": 1}], "nextPageToken": "abc"}"#,
            "pageToken",
            "nextPageToken",
        ),
        (
            r#"{"items": [{"a": 1}], "meta": {"next_page_token": "x"}}"#,
            "page_token",
            "meta.next_page_token",
        ),
        (
            r#"{"items": [{"a": 1}], "NextToken": "abc"}"#,
            "NextToken",
            "NextToken",
        ),
        (
            r#"{"items": [{"a": 1}], "next_cursor": 17}"#,
            "cursor",
            "next_cursor",
        ),
        (
            r#"{"items": [{"a": 1}], "pageInfo": {"endCursor": "abc"}}"#,
            "after",
            "pageInfo.endCursor",
        ),
        // The surest name counts, not the first one.
        (
            r#"{"items": [{"a": 1}], "cursor": "a", "next_cursor": "b"}"#,
            "cursor",
            "next_cursor",
        ),
        // Empty, but in the place of a longer list's cursor.
        (
            r#"{"items": [{"a": 1}], "next_cursor": ""}"#,
            "cursor",
            "next_cursor",
        ),
        (
            r#"{"items": [{"a": 1}], "next_cursor": null}"#,
            "cursor",
            "next_cursor",
        ),
    ] {
        let line = format!(
            "pagination = {{ type = \"cursor\", cursor_param = \"{param}\", cursor_path = \"{path}\" }}"
        );
        check_body(body, &line);
    }
}

#[test]
fn the_number_of_the_next_page_in_a_body_is_found_by_its_name() {
    let line = "pagination = { type = \"page\", page_param = \"page\" }";
    check(
        "?",
        &[],
        r#"{"items": [{"a": 1}], "next_page": 2}"#,
        line,
        "number of the next page",
    );
}

#[test]
fn page_1_as_the_next_page_shows_that_pages_count_from_0() {
    let line = "pagination = { type = \"page\", page_param = \"page\", first_page = 0 }";
    check_body(r#"{"items": [{"a": 1}], "next_page": 1}"#, line);
    check(
        "?",
        &[("X-Next-Page", "1")],
        "[{\"id\":1}]",
        line,
        "`x-next-page`",
    );
}

#[test]
fn a_total_above_what_came_asks_for_pages_or_offsets() {
    let two = items(2);
    let body = |more: &str| format!("{{\"items\": [{two}], {more}}}");
    let line = "pagination = { type = \"page\", page_param = \"page\", total_path = \"total\" }";
    check("?", &[], &body("\"total\": 5"), line, "a guess");
    let line = "pagination = { type = \"page\", page_param = \"page\", first_page = 0, page_size = 2, total_path = \"meta.totalCount\" }";
    check(
        "?",
        &[],
        &body(r#""meta": {"totalCount": "5", "page": 0, "perPage": 2}"#),
        line,
        "`meta.page`",
    );
    let line = "pagination = { type = \"offset\", offset_param = \"offset\", page_size = 2, total_path = \"count\" }";
    check(
        "?limit=2",
        &[],
        &body(r#""count": 5, "offset": 0"#),
        line,
        "`offset`",
    );
    let line = "pagination = { type = \"offset\", offset_param = \"startIndex\", first_offset = 1, total_path = \"totalResults\" }";
    check(
        "?",
        &[],
        &body(r#""totalResults": 5, "startIndex": 1"#),
        line,
        "`startIndex`",
    );
    let line = "pagination = { type = \"offset\", offset_param = \"skip\", page_size = 2, total_path = \"hits.total.value\" }";
    check(
        "?skip=0&take=2",
        &[],
        &body(r#""hits": {"total": {"value": 5}}"#),
        line,
        "in its URL",
    );
    let line = "pagination = { type = \"page\", page_param = \"pageNumber\", page_size = 2, total_header = \"x-total-count\" }";
    check(
        "?pageNumber=1&n=2",
        &[("X-Total-Count", "5")],
        &format!("[{two}]"),
        line,
        "in its URL",
    );
    check("?", &[], &body("\"total\": 2"), "", "are all");
    check(
        "?",
        &[],
        &body("\"total\": \"many\""),
        "",
        "names a next page",
    );
}

#[test]
fn a_count_of_pages_above_one_asks_for_pages() {
    let body = format!("{{\"data\":[{}],\"page\":1,\"total_pages\":3}}", items(10));
    check(
        "?page=1",
        &[],
        &body,
        "pagination = { type = \"page\", page_param = \"page\" }",
        "`total_pages` says that there are more pages",
    );
    let one = body.replace("\"total_pages\":3", "\"total_pages\":1");
    assert!(!found("?page=1", &[], &one).reason.contains("more pages"));
}

#[test]
fn ascending_records_may_be_asked_for_by_their_id_or_time() {
    let list = |record: &dyn Fn(u32) -> String| {
        let records: Vec<String> = (0..20).map(record).collect();
        format!("[{}]", records.join(","))
    };
    let ids = list(&|i| format!("{{\"id\": {}}}", i * 3 + 7));
    let line = "pagination = { type = \"keyset\", time_path = \"id\", time_param = \"since\", key_path = \"id\", page_size = 20, exclusive = true }";
    check("?", &[], &ids, line, "ascending order of `id`");
    let times = list(&|i| {
        format!(
            "{{\"id\": \"k{}\", \"updated_at\": \"2026-01-{:02}T00:00:00Z\"}}",
            i * 7 % 20,
            i / 2 + 1
        )
    });
    let line = "pagination = { type = \"keyset\", time_path = \"updated_at\", time_param = \"since\", key_path = \"id\", page_size = 20 }";
    check("?", &[], &times, line, "ascending order of `updated_at`");
    let falling = list(&|i| format!("{{\"id\": {}}}", 100 - i));
    check("?", &[], &falling, "", "as many as a page may hold");
    // Nineteen are no page.
    let few = ids.rsplit_once(',').unwrap().0.to_owned() + "]";
    check("?", &[], &few, "", "19 records came");
    check("?", &[], "[{\"id\":1}]", "", "1 record came");
}

#[test]
fn the_list_of_records_is_found_where_it_is() {
    let records = |body: &str| found("?", &[], body).records;
    assert_eq!(records("[{\"a\":1}]"), None);
    assert_eq!(
        records(r#"{"tags": ["a","b","c"], "data": {"items": [{"a":1}]}}"#).unwrap(),
        "records = \"data.items\""
    );
    assert_eq!(
        records(r#"{"few": [{"a":1}], "many": [{"a":1},{"a":2}]}"#).unwrap(),
        "records = \"many\""
    );
    assert_eq!(
        records(r#"{"a.b": [{"a":1}]}"#).unwrap(),
        r#"records = "a\\.b""#
    );
    let none = found("?", &[], r#"{"error": "no such thing"}"#);
    assert_eq!((none.pagination, none.records), (None, None));
    assert!(
        none.reason.contains("no list of records"),
        "{}",
        none.reason
    );
}

#[test]
fn names_that_cannot_be_told_and_deep_or_wide_bodies_are_passed_over() {
    for body in [
        r#"{"items": [{"a":1}], "x\" }\nurl = \"http://evil": {"next_cursor": "a"}}"#.to_owned(),
        format!(
            "{{\"items\": [{{\"a\":1}}], \"{}\": {{\"next_cursor\": \"a\"}}}}",
            "k".repeat(65)
        ),
        r#"{"items": [{"a":1}], "a": {"b": {"c": {"d": {"next_cursor": "a"}}}}}"#.to_owned(),
    ] {
        let found = found("?", &[], &body);
        assert_eq!(found.pagination, None, "{body}");
    }
    let wide: Vec<String> = (0..5_000).map(|i| format!("\"k{i}\": {i}")).collect();
    let body = format!(
        "{{\"items\": [{{\"a\":1}}], {}, \"next_cursor\": \"a\"}}",
        wide.join(",")
    );
    assert_eq!(found("?", &[], &body).pagination, None);
}

/// The sign of further pages of a page with 20 records at `records`.
fn further(
    head: &[(&str, &str)],
    beside: &str,
    records: &str,
    is_incremental: bool,
) -> Option<FurtherPages> {
    let url = Url::parse("http://h.example/v1/").unwrap();
    let beside = Value::parse(beside.as_bytes()).unwrap();
    let page = OnePage {
        beside: &beside,
        records,
        count: 20,
        is_incremental,
    };
    further_pages(&headers(head), &page, &url)
}

#[test]
fn a_sign_of_further_pages_is_found_beside_the_records() {
    let check = |head: &[(&str, &str)], beside: &str, line: Option<&str>, part: &str| {
        let found = further(head, beside, "data", false).unwrap();
        let line = line.map(|keys| format!("pagination = {{ type = {keys} }}"));
        assert_eq!(found.pagination, line, "{found:?}");
        assert!(found.reason.contains(part), "{found:?}");
    };
    let link = [("link", "</x?page=2>; rel=\"next\"")];
    check(&link, "null", Some("\"link\""), "`Link` header");
    check(
        &[],
        r#"{"data": [], "next": "/x?page=2", "total": 60, "has_more": true}"#,
        Some("\"next_url\", next_path = \"next\", total_path = \"total\""),
        "`next` is the URL of the next page",
    );
    let total = "\"page\", page_param = \"page\", total_header = \"x-total-count\"";
    check(
        &[("X-Total-Count", "60")],
        "[]",
        Some(total),
        "more records than the 20 that came",
    );
    check(
        &[],
        r#"{"data": [], "has_more": true}"#,
        None,
        "`has_more` says that there are more pages, and nothing in it shows how",
    );
    check(
        &[],
        r#"{"data": [], "has_more": 1}"#,
        None,
        "`has_more` says that there are more pages",
    );
    check(
        &[],
        r#"{"data": [], "page": 1, "hasNext": true}"#,
        Some("\"page\", page_param = \"page\""),
        "`hasNext` says that there are more pages",
    );
    check(
        &[],
        r#"{"data": [], "meta": {"current_page": 1, "last_page": 3, "total": 60}}"#,
        Some("\"page\", page_param = \"page\", total_path = \"meta.total\""),
        "`meta.total` says that there are more records than the 20 that came",
    );
    let flagged = "\"cursor\", cursor_param = \"after\", cursor_path = \"Page_Info.endCursor\", has_more_path = \"Page_Info.hasNextPage\"";
    check(
        &[],
        r#"{"data": [], "Page_Info": {"hasNextPage": true, "endCursor": "abc"}}"#,
        Some(flagged),
        "`Page_Info.endCursor` has a cursor",
    );
    check(
        &[],
        r#"{"data": [], "_links": {"next": {"href": "/x?page=2"}}}"#,
        Some("\"next_url\", next_path = \"_links.next.href\""),
        "URL of the next page",
    );
}

#[test]
fn a_sign_of_further_pages_is_found_on_the_path_to_the_records() {
    let beside =
        r#"{"took": 3, "_shards": {"total": 25}, "hits": {"total": {"value": 60}, "data": []}}"#;
    let found = further(&[], beside, "hits.data", false).unwrap();
    assert!(found.reason.contains("`hits.total.value`"), "{found:?}");
    let beside = r#"{"response_metadata": {"next_cursor": "abc"}, "members": []}"#;
    let found = further(&[], beside, "members", true).unwrap();
    assert!(found.reason.contains("has a cursor"), "{found:?}");
    let all = r#"{"_shards": {"total": 25}, "hits": {"total": {"value": 20}, "data": []}}"#;
    assert_eq!(further(&[], all, "hits.data", false), None);
}

#[test]
fn a_flag_that_ends_the_pages_is_part_of_a_suggested_cursor() {
    check(
        "?",
        &[],
        r#"{"items": [{"a": 1}], "pageInfo": {"hasNextPage": false, "endCursor": "abc"}}"#,
        "pagination = { type = \"cursor\", cursor_param = \"after\", cursor_path = \"pageInfo.endCursor\", has_more_path = \"pageInfo.hasNextPage\" }",
        "`pageInfo.endCursor` has a cursor",
    );
    // No boolean.
    check(
        "?",
        &[],
        r#"{"items": [{"a": 1}], "has_more": "false", "next_cursor": "abc"}"#,
        "",
        "`has_more` says that there are no more pages",
    );
    check(
        "?",
        &[],
        r#"{"items": [{"a": 1}], "has_more": false, "total": 9, "pages": 5}"#,
        "",
        "`has_more` says that there are no more pages",
    );
}

#[test]
fn a_single_page_has_no_sign_of_further_ones() {
    let check = |head: &[(&str, &str)], beside: &str| {
        assert_eq!(further(head, beside, "data", false), None, "{beside}");
    };
    check(&[], "[]");
    check(&[], r#"{"data": [], "next": null, "next_cursor": null}"#);
    let all = r#"{"data": [], "has_more": false, "total": 20, "count": 20}"#;
    check(&[], all);
    check(&[("link", "</x?page=1>; rel=\"prev\"")], "[]");
    for beside in [
        // A flag that ends the pages.
        r#""has_more": false, "next_cursor": "abc", "next": "/x", "total": 60, "pages": 3"#,
        r#""hasMore": 0, "total": 60"#,
        r#""has_more": "false", "next_cursor": "abc""#,
        r#""pageInfo": {"hasNextPage": false, "endCursor": "abc"}"#,
        // The last page.
        r#""meta": {"current_page": 3, "last_page": 3, "per_page": 20, "total": 60}"#,
        r#""page": 3, "pages": "3", "total": 60"#,
        // Objects that do not describe the page.
        r#""order": {"total": 15000}"#,
        r#""facets": {"color": {"total": 400}}"#,
        r#""aggregations": {"price": {"count": 400}}"#,
        r#""info": {"hits": {"total": 400}}"#,
        r#""book": {"title": "x", "pages": 320}"#,
        r#""meta": {"page": {"data": {"total": 400}}}"#,
        // Text that is no cursor.
        r#""pageInfo": {"endCursor": "abc"}"#,
        r#""next": "Alan Turing", "after": "2026-01-01", "cursor": "abc", "marker": "x""#,
        r#""next_cursor": "null", "nextPageToken": "None""#,
    ] {
        check(&[], &format!("{{\"data\": [], {beside}}}"));
    }
    // A total may count all records, not only the new ones.
    let total = [("X-Total-Count", "60")];
    let beside = r#"{"data": [], "total": 60}"#;
    assert_eq!(further(&total, beside, "data", true), None);
    assert!(further(&[], beside, "data", false).is_some());
}

#[test]
fn a_flag_of_further_pages_makes_a_short_list_doubtful() {
    let found = found("?", &[], r#"{"data": [{"id": 1}], "has_more": true}"#);
    assert_eq!(found.pagination, None);
    assert_eq!(found.unnumbered.as_deref(), Some("page"));
}

#[test]
fn a_flag_of_something_else_than_the_page_is_no_sign_in_a_suggestion() {
    let body = r#"{"data": [{"id": 1}], "page": 1, "facets": {"color": {"more": true}}}"#;
    let found = found("?", &[], body);
    assert_eq!((found.pagination, found.unnumbered), (None, None));
}
