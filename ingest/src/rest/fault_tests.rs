//! Faults between pages, by the numbers of the list of faults.

use feedline_schemas::config::{Bounded, PaginationKind, SecretRef, TextOrSecret};

use super::{
    tests::{LAST, paged, param, read},
    *,
};
use crate::testing::{Scripted, answer, ok, read_all, set_key, traced};

/// Numbers by `offset`, five a page; some are removed or put in front after the second request.
async fn shifting_server(change: fn(&mut Vec<u64>)) -> Scripted {
    Scripted::answering(move |number, head| {
        let mut ids: Vec<u64> = (100..120).collect();
        if number >= 2 {
            change(&mut ids);
        }
        let offset: usize = param(head, "offset").unwrap().parse().unwrap();
        let shown = ids.iter().skip(offset).take(5);
        let shown: Vec<String> = shown.map(|id| format!(r#"{{"id":{id}}}"#)).collect();
        ok(&format!(r#"{{"items": [{}]}}"#, shown.join(",")))
    })
    .await
}

#[tokio::test]
async fn fault_28_records_removed_while_paging_by_offset_leave_no_gap_with_an_overlap() {
    let removed = |ids: &mut Vec<u64>| drop(ids.drain(..2));
    let many_removed = |ids: &mut Vec<u64>| drop(ids.drain(1..7));
    let front_removed = |ids: &mut Vec<u64>| drop(ids.drain(..4));
    let inserted = |ids: &mut Vec<u64>| ids.insert(0, 99);
    let unchanged = |_: &mut Vec<u64>| {};
    let check = async |change: fn(&mut Vec<u64>), overlap: u64, lost: usize| {
        let server = shifting_server(change).await;
        let mut config = paged(&server, PaginationKind::Offset);
        set_key(&mut config, "overlap", overlap);
        // Without an overlap, a process that resumes would find out.
        let reopen_every = if overlap > 0 { 1 } else { usize::MAX };
        let (records, _) = read_all(&config, reopen_every).await.unwrap();
        let is_there = |id: &u64| records.contains(&format!(r#"{{"id":{id}}}"#));
        let found = (100..120).filter(is_there).count();
        assert_eq!(20 - found, lost, "{records:?}");
    };
    check(removed, 0, 2).await;
    check(removed, 3, 0).await;
    check(front_removed, 0, 4).await;
    check(front_removed, 3, 0).await;
    check(many_removed, 0, 6).await;
    check(many_removed, 3, 0).await;
    check(inserted, 3, 0).await;
    check(unchanged, 3, 0).await;
}

#[tokio::test]
async fn a_list_that_grows_at_its_top_while_it_is_read_with_an_overlap_ends() {
    // A record is put in front for every second request; 5 a page.
    let server = Scripted::answering(|number, head| {
        let added = number as u64 / 2;
        let ids: Vec<u64> = (100 - added..123).collect();
        let offset: usize = param(head, "offset").unwrap().parse().unwrap();
        let shown = ids.iter().skip(offset).take(5);
        let shown: Vec<String> = shown.map(|id| format!(r#"{{"id":{id}}}"#)).collect();
        ok(&format!(r#"{{"items": [{}]}}"#, shown.join(",")))
    })
    .await;
    let mut config = paged(&server, PaginationKind::Offset);
    set_key(&mut config, "overlap", 2);
    config.limits.concurrency = Some(Bounded::literal::<1>());
    let mut source = open(&config, &crate::testing::context()).await.unwrap();
    let (mut at, mut found) = (Position::Start, std::collections::BTreeSet::new());
    while !matches!(at, Position::Done { .. }) {
        let page = source.next_page(&at).await.unwrap();
        found.extend(page.records.iter().map(Record::canonical));
        at = page.next;
    }
    let is_there = |id: u64| found.contains(&format!(r#"{{"id":{id}}}"#));
    assert!((100..123).all(is_there), "{found:?}");
    let warnings = source.take_warnings();
    assert!(
        format!("{warnings:?}").find("small_pages").is_none(),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn cursors_in_headers_links_and_urls_in_bodies_are_followed() {
    let server = Scripted::start([
        answer("200 OK\r\nX-Next: a b", r#"{"items": [{"i": 0}]}"#),
        answer("200 OK\r\nX-Next: ", r#"{"items": [{"i": 1}]}"#),
    ])
    .await;
    let header = paged(&server, PaginationKind::HeaderCursor);
    assert_eq!(read(&header).await.unwrap().0.len(), 2);
    assert_eq!(server.targets(), ["/", "/?cursor=a+b"]);

    let server = Scripted::start([
        answer(
            "200 OK\r\nLink: </v1?p=2>; rel=next",
            r#"{"items": [{"i": 0}]}"#,
        ),
        answer("200 OK\r\nLink: <?p=3>; rel=\"next\"", r#"{"items": []}"#),
        answer(
            "200 OK\r\nLink: <?p=1>; rel=first",
            r#"{"items": [{"i": 1}]}"#,
        ),
    ])
    .await;
    let mut link = paged(&server, PaginationKind::Link);
    link.params.insert("size".into(), "9".into());
    assert_eq!(read_all(&link, 1).await.unwrap().0.len(), 2);
    assert_eq!(server.targets(), ["/?size=9", "/v1?p=2", "/v1?p=3"]);

    let server = Scripted::start([
        ok(r#"{"items": [{"i": 0}], "next": "b?p=2"}"#),
        ok(r#"{"items": [{"i": 1}], "next": ""}"#),
    ])
    .await;
    let next_url = paged(&server, PaginationKind::NextUrl);
    assert_eq!(read_all(&next_url, 1).await.unwrap().0.len(), 2);
    assert_eq!(server.targets(), ["/", "/b?p=2"]);
}

#[tokio::test]
async fn a_next_url_to_another_host_is_refused_or_gets_no_secret() {
    let other = Scripted::start([ok(r#"{"items": [{"i": 1}]}"#)]).await;
    let body = format!(r#"{{"items": [{{"i": 0}}], "next": "{}x"}}"#, other.url);
    let server = Scripted::start([ok(&body)]).await;
    let mut config = paged(&server, PaginationKind::NextUrl);
    let secret = SecretRef {
        env: Some("KEY".into()),
        file: None,
        prefix: String::new(),
    };
    let secret = TextOrSecret::Secret(secret);
    config.headers.insert("X-Key".into(), secret);
    let error = read(&config).await.unwrap_err().to_string();
    assert!(error.contains("`pagination.next_origins`"), "{error}");
    assert_eq!(other.heads().len(), 0);
    let origin = other.url.origin().ascii_serialization();
    // The configuration names it, so `private_hosts` need not.
    set_key(&mut config, "next_origins", vec![origin]);
    assert!(config.private_hosts.is_empty());
    assert_eq!(read(&config).await.unwrap().0.len(), 2);
    assert!(server.heads()[0].contains("secret-KEY"));
    assert!(!other.heads()[0].contains("secret-KEY"));
}

/// Records `{"i":N}` from 0 to `total`, by `offset` and `limit`, at most `most` a page and none
/// from `end` on.
async fn offset_server(total: u64, most: u64, end: u64) -> Scripted {
    Scripted::answering(move |_, head| {
        let offset: u64 = param(head, "offset").unwrap().parse().unwrap();
        let limit = param(head, "limit").map_or(most, |limit| limit.parse().unwrap());
        let last = (offset + limit.min(most)).min(end).min(total);
        let records: Vec<String> = (offset..last).map(|i| format!(r#"{{"i":{i}}}"#)).collect();
        let body = format!(r#"{{"items": [{}], "n": {total}}}"#, records.join(","));
        answer(&format!("200 OK\r\nX-Total: {total}"), &body)
    })
    .await
}

#[tokio::test]
async fn offsets_leave_no_gap_when_the_server_gives_less_than_it_is_asked_for() {
    let server = offset_server(10, 3, u64::MAX).await;
    let mut config = paged(&server, PaginationKind::Offset);
    let (records, _) = read_all(&config, 1).await.unwrap();
    assert_eq!(records.len(), 10);
    assert_eq!(records[9], r#"{"i":9}"#);
    // For pages of 4 it returns 3 records.
    config.pagination.common.page_size = 4;
    config.pagination.common.size_param = Some("limit".into());
    assert_eq!(read_all(&config, 1).await.unwrap().0.len(), 10);
    config.pagination.common.total_path = Some("n".into());
    config.pagination.common.strict_total = true;
    assert_eq!(read_all(&config, 1).await.unwrap().0.len(), 10);
}

#[tokio::test]
async fn fault_25_an_api_that_ignores_the_page_is_found_out() {
    let server = Scripted::start([ok(r#"{"items": [{"i": 0}]}"#)]).await;
    for kind in [PaginationKind::Page, PaginationKind::Offset] {
        let error = read(&paged(&server, kind)).await.unwrap_err().to_string();
        assert!(
            error.contains("page 2 has the same records as page 1"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn fault_27_an_api_that_stops_at_a_number_of_records_is_incomplete() {
    let server = offset_server(10_500, 1_000, 10_000).await;
    let mut config = paged(&server, PaginationKind::Offset);
    assert_eq!(read(&config).await.unwrap().0.len(), 10_000);
    config.pagination.common.max_records = Some(Bounded::literal::<10_000>());
    let check = async |config: &SourceConfig, part: &str| {
        let error = read_all(config, 1).await.unwrap_err().to_string();
        assert!(
            error.contains("incomplete") && error.contains(part) && error.contains("`slices`"),
            "{error}"
        );
    };
    check(&config, "10000 records have come").await;
    config.pagination.common.total_header = Some("X-Total".into());
    check(&config, "10000 of 10500 records have come").await;
    // As many records as the cap, and the total confirms that these are all.
    let server = offset_server(10_000, 1_000, 10_000).await;
    config.url = server.url.to_string();
    assert_eq!(read(&config).await.unwrap().0.len(), 10_000);
}

#[tokio::test]
async fn fault_27_a_round_number_below_the_total_is_incomplete_without_being_told_the_cap() {
    let cut = async |total: u64, end: u64, kind: PaginationKind, has_total: bool| {
        let server = offset_server(total, 1_000, end).await;
        let mut config = paged(&server, kind);
        config.pagination.common.total_path = has_total.then(|| "n".into());
        let (lines, read) = traced(Box::pin(read_all(&config, 1))).await;
        let warns = lines.contains("`pagination.max_records`");
        match read {
            Ok((records, _)) => (Ok(records.len()), warns),
            Err(Error::Incomplete { reason, .. }) => (Err(reason), warns),
            Err(other) => panic!("{other}"),
        }
    };
    let offset = PaginationKind::Offset;
    let (stopped, _) = cut(20_000, 10_000, offset, true).await;
    let reason = stopped.unwrap_err();
    for part in [
        "10000 of 20000 records have come",
        "`pagination.max_records` = 10000",
        "`slices`",
        "remove `pagination.total_path`",
    ] {
        assert!(reason.contains(part), "{reason}");
    }
    let (stopped, _) = cut(3_001, 3_000, offset, true).await;
    assert!(stopped.is_err());
    let none = offset_server(20_000, 1_000, 10_000).await;
    let mut single = paged(&none, PaginationKind::None);
    single.url = format!("{}?offset=0", none.url);
    single.pagination.common.total_path = Some("n".into());
    let reason = read(&single).await.unwrap_err().to_string();
    assert!(reason.contains("`feedline plan --ask`"), "{reason}");

    // An estimate, a list that shrank, a complete one, and one that ends for another reason.
    assert_eq!(cut(20_000, 9_990, offset, true).await, (Ok(9_990), false));
    assert_eq!(cut(9, 7, offset, true).await, (Ok(7), false));
    assert_eq!(cut(10_000, 10_000, offset, true).await, (Ok(10_000), false));
    assert_eq!(cut(20_000, 0, offset, true).await, (Ok(0), false));
}

#[tokio::test]
async fn fault_27_an_end_at_a_common_cap_without_a_total_is_told() {
    let warns = async |end: u64, reopen_every: usize, max_records: Option<u64>| {
        let server = offset_server(20_500, 500, end).await;
        let mut config = paged(&server, PaginationKind::Offset);
        config.pagination.common.max_records = max_records.map(|most| Bounded::new(most).unwrap());
        let (lines, read) = traced(Box::pin(read_all(&config, reopen_every))).await;
        assert_eq!(read.unwrap().0.len() as u64, end);
        lines.contains("records have come, a number") && lines.contains("`pagination.max_records`")
    };
    assert!(warns(10_000, usize::MAX, None).await);
    assert!(warns(1_000, usize::MAX, None).await);
    assert!(!warns(2_500, usize::MAX, None).await);
    // No warning with a configured cap, and none for a run that began in the middle.
    assert!(!warns(1_000, usize::MAX, Some(9_000)).await);
    assert!(!warns(1_000, 1, None).await);
}

#[tokio::test]
async fn fault_32_a_total_that_disagrees_fails_where_it_is_strict() {
    let server = offset_server(9, 3, 7).await;
    let mut config = paged(&server, PaginationKind::Offset);
    for (path, header) in [(Some("n"), None), (None, Some("x-total"))] {
        config.pagination.common.total_path = path.map(Into::into);
        config.pagination.common.total_header = header.map(Into::into);
        config.pagination.common.strict_total = false;
        let (lines, read_) = traced(Box::pin(read_all(&config, 1))).await;
        assert_eq!(read_.unwrap().0.len(), 7);
        assert!(
            lines.contains("7 records have come, and the API says that there are 9"),
            "{lines}"
        );
        config.pagination.common.strict_total = true;
        let error = read_all(&config, 1).await.unwrap_err().to_string();
        assert!(
            error.contains("7 records have come, and it says that there are 9"),
            "{error}"
        );
    }
    config.pagination.common.total_header = Some("x-absent".into());
    let error = read(&config).await.unwrap_err().to_string();
    assert!(error.contains("has no total"), "{error}");
}

#[tokio::test]
async fn fault_19_an_error_in_a_success_is_tried_again_and_never_an_empty_page() {
    let error = r#"{"items": [], "error": {"code": "quota for secret-KEY"}}"#;
    let server = Scripted::start([ok(error), ok(error), ok(LAST)]).await;
    let mut config = paged(&server, PaginationKind::Cursor);
    let secret = SecretRef {
        env: Some("KEY".into()),
        file: None,
        prefix: String::new(),
    };
    let secret = TextOrSecret::Secret(secret);
    config.headers.insert("X-Key".into(), secret);
    config.error_path = Some("error".into());
    assert_eq!(read(&config).await.unwrap().0, [r#"{"i":2}"#]);
    assert_eq!(server.heads().len(), 3);

    config.error_path = Some("error.code".into());
    config.url = Scripted::start([ok(error)]).await.url.to_string();
    let server = Scripted::start([ok(error)]).await;
    config.url = server.url.to_string();
    let message = read(&config).await.unwrap_err().to_string();
    let part = "an error at `error_path`: `quota for ***` (the last of 5 tries)";
    assert!(message.contains(part), "{message}");
}

#[tokio::test]
async fn fault_19_what_says_nothing_at_the_error_path_is_no_error() {
    for nothing in ["null", "false", "0", "\"\"", "[]", "{}"] {
        let body = format!(r#"{{"items": [{{"i": 2}}], "error": {nothing}}}"#);
        let server = Scripted::start([ok(&body)]).await;
        let mut config = paged(&server, PaginationKind::None);
        config.error_path = Some("error".into());
        assert_eq!(read(&config).await.unwrap().0.len(), 1, "{nothing}");
    }
}
