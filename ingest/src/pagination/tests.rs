//! Walks without requests.

use feedline_readers::value::Value;
use feedline_schemas::report::Warning;
use serde_json::json;

use super::*;
use crate::{
    testing::{pages, way},
    warnings::WarningChange,
};

fn base() -> Url {
    Url::parse("https://api.example/v1/items?q=1").unwrap()
}

fn of(config: PaginationConfig) -> Paginator {
    Paginator::new(&config, &base(), Some("api_key")).unwrap()
}

fn paginator(r#type: PaginationKind) -> Paginator {
    of(PaginationConfig {
        way: way(r#type),
        ..PaginationConfig::default()
    })
}

fn record(body: &str) -> Record {
    Record::Value(Value::parse(body.as_bytes()).unwrap())
}

fn contents(records: usize, token: Option<&str>) -> Contents {
    Contents {
        records: (0..records)
            .map(|i| record(&format!(r#"{{"i":{i}}}"#)))
            .collect(),
        token: token.map(ToOwned::to_owned),
        names_next: false,
        has_more: None,
        partial: None,
        total: None,
        hash: None,
        url: base(),
    }
}

fn at(page: u64, cursor: Option<&str>) -> At {
    At {
        page,
        cursor: cursor.map(ToOwned::to_owned),
        run: PageRun::default(),
    }
}

/// URL of a page.
fn url_of(pages: &Paginator, at: &At) -> Result<Url, Error> {
    Ok(match pages.target(at)? {
        Target::Params(params) => with_query(
            &base(),
            params.into_iter().map(|param| (param.name, param.value)),
        ),
        Target::Url(url) => url,
    })
}

/// Position after a page with `records` records and `token`.
fn step(
    pages: &mut Paginator,
    page: u64,
    cursor: Option<&str>,
    records: usize,
    token: Option<&str>,
) -> Result<Option<String>, String> {
    match pages.next(at(page, cursor), &mut contents(records, token)) {
        Ok(Position::Page {
            page: next, cursor, ..
        }) => {
            assert_eq!(next, page + 1);
            Ok(Some(cursor.unwrap_or_else(|| next.to_string())))
        }
        Ok(Position::Done { pages, .. }) => {
            assert_eq!(pages, page + 1);
            Ok(None)
        }
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

fn query(pages: &Paginator, page: u64, cursor: Option<&str>) -> String {
    let url = url_of(pages, &at(page, cursor)).unwrap();
    url.query().unwrap_or_default().to_owned()
}

/// Follows cursors, page i naming `cursors[i]`; returns the message that stopped it, if any.
fn walk(r#type: PaginationKind, cursors: &[&str]) -> Option<String> {
    let mut pages = paginator(r#type);
    let mut at: Option<String> = None;
    for (page, cursor) in (0..).zip(cursors) {
        match step(&mut pages, page, at.as_deref(), 1, Some(cursor)) {
            Ok(next) => at = next,
            Err(message) => return Some(message),
        }
    }
    None
}

#[test]
fn fault_25_a_cursor_that_comes_back_is_an_error_that_names_it() {
    for kind in [PaginationKind::Cursor, PaginationKind::HeaderCursor] {
        let mut walked = paginator(kind);
        assert_eq!(
            step(&mut walked, 0, None, 1, Some("a")),
            Ok(Some("a".into()))
        );
        assert!(step(&mut walked, 1, Some("a"), 1, Some("a")).is_err());
    }
    assert_eq!(walk(PaginationKind::Cursor, &["a", "b", "c"]), None);
    for circle in [
        &["a", "a"][..],
        &["a", "b", "a"],
        &["x", "a", "b", "c", "a"],
    ] {
        let message = walk(PaginationKind::Cursor, circle).unwrap();
        assert!(
            message.contains("`a`") && message.contains("circles"),
            "{message}"
        );
        assert!(
            message.contains("or the API ignores the query parameter `cursor`"),
            "{message}"
        );
    }
}

#[test]
fn fault_25_a_next_url_that_comes_back_is_an_error_that_names_it_without_its_secrets() {
    let urls = [
        "?p=2&token=hidden",
        "?p=3&token=hidden",
        "?p=2&token=hidden",
    ];
    for kind in [PaginationKind::Link, PaginationKind::NextUrl] {
        assert_eq!(walk(kind, &urls[..2]), None);
        let message = walk(kind, &urls).unwrap();
        assert!(message.contains("/v1/items?p=2&token=***"), "{message}");
        assert!(!message.contains("hidden"), "{message}");
        assert!(!message.contains("query parameter"), "{message}");
    }
}

#[test]
fn fault_25_pages_with_the_same_records_are_an_error_that_names_them() {
    let walk = |hashes: &[&str]| {
        let mut pages = paginator(PaginationKind::Page);
        let next = (0..).zip(hashes).map(|(page, hash)| {
            let mut contents = contents(1, None);
            contents.hash = Some(Hash128::of(hash.as_bytes()));
            pages.next(at(page, None), &mut contents)
        });
        next.collect::<Result<Vec<_>, _>>()
            .map_err(|e| e.to_string())
    };
    assert!(walk(&["a", "b", "c"]).is_ok());
    // Pages have the numbers that were requested. A last page that comes again can be avoided.
    let advice = "`pagination.total_path` or `pagination.has_more_path`, or `pagination.page_size`";
    let message = walk(&["a", "a"]).unwrap_err();
    assert!(
        message.contains("page 2 has the same records as page 1") && message.contains(advice),
        "{message}"
    );
    let message = walk(&["x", "a", "b", "a"]).unwrap_err();
    assert!(
        message.contains("page 4 has the same records as page 2") && !message.contains(advice),
        "{message}"
    );
}

#[test]
fn fault_25_earlier_records_under_ever_new_cursors_are_an_error_after_three_pages() {
    let walk = |hashes: &[&str]| -> Result<(), String> {
        let mut pages = paginator(PaginationKind::Cursor);
        let mut cursor: Option<String> = None;
        for (page, hash) in (0..).zip(hashes) {
            let mut contents = Contents {
                hash: Some(Hash128::of(hash.as_bytes())),
                ..contents(1, Some(&format!("c{page}")))
            };
            let next = pages.next(at(page, cursor.as_deref()), &mut contents);
            cursor = match next.map_err(|error| error.to_string())? {
                Position::Page { cursor, .. } => cursor,
                other => panic!("{other:?}"),
            };
        }
        Ok(())
    };
    assert_eq!(walk(&["a", "a", "a", "b", "a", "a"]), Ok(()));
    let check = |hashes: &[&str], part: &str| {
        let message = walk(hashes).unwrap_err();
        for part in [part, "`cursor`", "`batch.dedup_window = 0`"] {
            assert!(message.contains(part), "{message}");
        }
    };
    check(
        &["a", "a", "a", "a"],
        "pages 2 to 4 have the records of earlier pages, the last one those of page 1",
    );
    check(
        &["a", "b", "c", "b", "c", "b"],
        "pages 4 to 6 have the records of earlier pages, the last one those of page 2",
    );
}

#[test]
fn a_cursor_that_marks_the_last_page_names_the_key_that_ends_the_pages() {
    for mark in ["0", "-1", "null"] {
        let message = walk(PaginationKind::Cursor, &["a", mark, mark]).unwrap();
        assert!(message.contains("`pagination.has_more_path`"), "{message}");
    }
    let other = walk(PaginationKind::Cursor, &["a", "b", "b"]).unwrap();
    assert!(!other.contains("has_more_path"), "{other}");
}

#[test]
fn a_circle_is_found_after_resuming_inside_it() {
    let mut pages = paginator(PaginationKind::Cursor);
    assert!(step(&mut pages, 50_000, Some("b"), 1, Some("a")).is_ok());
    assert!(step(&mut pages, 50_001, Some("a"), 1, Some("b")).is_err());
}

#[test]
fn asking_for_the_same_page_again_is_no_circle() {
    let mut pages = paginator(PaginationKind::Cursor);
    for _ in 0..2 {
        assert!(step(&mut pages, 1, Some("a"), 1, Some("b")).is_ok());
        assert!(step(&mut pages, 2, Some("b"), 1, Some("c")).is_ok());
    }
    // A new run of pages leads the same way.
    assert!(step(&mut pages, 0, None, 1, Some("b")).is_ok());
}

#[test]
fn fault_26_cursor_pages_go_on_through_an_empty_page_and_end_without_a_cursor() {
    let mut pages = paginator(PaginationKind::Cursor);
    assert_eq!(
        step(&mut pages, 0, None, 0, Some("a")),
        Ok(Some("a".into()))
    );
    assert_eq!(step(&mut pages, 1, Some("a"), 9, None), Ok(None));
    assert_eq!(query(&pages, 1, Some("a/?&")), "q=1&cursor=a%2F%3F%26");
}

#[test]
fn numbered_pages_end_at_an_empty_page() {
    let mut unsized_pages = paginator(PaginationKind::Page);
    assert_eq!(query(&unsized_pages, 0, None), "q=1&page=1");
    assert_eq!(
        step(&mut unsized_pages, 0, None, 1, None),
        Ok(Some("1".into()))
    );
    assert_eq!(step(&mut unsized_pages, 1, None, 0, None), Ok(None));
    let mut sized = of(pages(json!({
        "type": "page", "page_size": 10, "size_param": "limit", "first_page": 0,
    })));
    assert_eq!(query(&sized, 3, None), "q=1&limit=10&page=3");
    assert_eq!(step(&mut sized, 0, None, 10, None), Ok(Some("1".into())));
    assert_eq!(step(&mut sized, 1, None, 9, None), Ok(Some("2".into())));
    assert_eq!(step(&mut sized, 2, None, 0, None), Ok(None));
}

#[test]
fn numbered_pages_end_at_as_many_empty_pages_as_are_set() {
    let mut paged = of(pages(json!({"type": "page", "empty_pages": 2})));
    for (page, records) in (0..).zip([0, 2, 0, 1, 0]) {
        let next = step(&mut paged, page, None, records, None);
        assert_eq!(next, Ok(Some((page + 1).to_string())));
    }
    assert_eq!(step(&mut paged, 5, None, 0, None), Ok(None));
    // A refused page is the end behind an empty one.
    let mut paged = of(pages(json!({"type": "page", "empty_pages": 2})));
    step(&mut paged, 0, None, 3, None).unwrap();
    match paged.next(at(1, None), &mut contents(0, None)).unwrap() {
        Position::Page { page, cursor, run } => {
            assert!(paged.is_end(&At { page, cursor, run }, 404));
        }
        other => panic!("{other:?}"),
    }
    // A total that has come needs no second one.
    let keys = json!({"type": "page", "empty_pages": 2, "total_path": "total"});
    let mut paged = of(pages(keys));
    let mut run = PageRun::default();
    for (page, records) in [(0, 3), (1, 0)] {
        let mut contents = Contents {
            total: Some(3),
            ..contents(records, None)
        };
        let at = At {
            run,
            ..at(page, None)
        };
        let next = paged.next(at, &mut contents).unwrap();
        assert_eq!(matches!(next, Position::Done { .. }), records == 0);
        run = next.run().unwrap().clone();
    }
}

#[test]
fn a_process_that_resumes_behind_the_last_record_does_not_miss_a_total() {
    let resumed = || of(pages(json!({"type": "page", "total_path": "total"})));
    let mut paged = resumed();
    let end = paged.next(at(4, None), &mut Contents::nothing(base()));
    assert!(matches!(end, Ok(Position::Done { .. })));
    assert_eq!(paged.take_warnings(), []);
    let mut paged = resumed();
    step(&mut paged, 4, None, 2, None).unwrap();
    paged
        .next(at(5, None), &mut Contents::nothing(base()))
        .unwrap();
    let warnings = format!("{:?}", paged.take_warnings());
    assert!(warnings.contains("no_total"), "{warnings}");
    let strict = json!({"type": "page", "total_path": "total", "strict_total": true});
    let mut paged = of(pages(strict.clone()));
    let end = paged.next(at(4, None), &mut Contents::nothing(base()));
    assert!(matches!(end, Ok(Position::Done { .. })));
    let warnings = format!("{:?}", paged.take_warnings());
    assert!(warnings.contains("were not compared"), "{warnings}");
    let mut paged = of(pages(strict));
    step(&mut paged, 4, None, 2, None).unwrap();
    let end = paged.next(at(5, None), &mut Contents::nothing(base()));
    assert!(end.is_err());
}

#[test]
fn a_total_that_lacks_one_page_names_the_first_page() {
    let check = |first_page: u64, total: u64, is_named: bool| {
        let mut pages = of(pages(
            json!({"type": "page", "first_page": first_page, "total_path": "total"}),
        ));
        let mut next = at(0, None);
        for records in [2, 1, 0] {
            let mut contents = Contents {
                total: Some(total),
                ..contents(records, None)
            };
            if let Position::Page { page, cursor, run } = pages.next(next, &mut contents).unwrap() {
                next = At { page, cursor, run };
            } else {
                assert_eq!(records, 0);
                break;
            }
        }
        let warnings = crate::warnings::apply(Vec::new(), pages.take_warnings());
        let codes: Vec<&str> = warnings.iter().map(|held| held.code.as_str()).collect();
        assert_eq!(codes, ["total_differs"]);
        let message = &warnings[0].message;
        let advice = "if the API counts its pages from 0, the first one is missing: set `pagination.first_page` = 0";
        assert_eq!(message.contains(advice), is_named, "{message}");
    };
    check(1, 5, true);
    check(0, 5, false);
    check(1, 6, false);
}

#[test]
fn a_short_page_of_a_list_that_grows_is_no_sign_of_small_pages() {
    // Code and message of the warning after pages of these many records, if it is raised.
    let check_with = |keys: serde_json::Value, counts: &[usize], part: Option<(&str, &str)>| {
        let mut pages = of(pages(keys.clone()));
        let mut next = at(0, None);
        for records in counts {
            let mut contents = contents(*records, None);
            match pages.next(next, &mut contents).unwrap() {
                Position::Page { page, cursor, run } => next = At { page, cursor, run },
                other => panic!("{other:?}"),
            }
        }
        let warnings = crate::warnings::apply(Vec::new(), pages.take_warnings());
        let is_expected = match part {
            Some((code, part)) => {
                warnings.len() == 1
                    && warnings[0].code == code
                    && warnings[0].message.contains(part)
            }
            None => warnings.is_empty(),
        };
        assert!(is_expected, "{keys} {counts:?}: {warnings:?}");
    };
    let check = |kind: &str, counts: &[usize], part: Option<(&str, &str)>| {
        check_with(json!({"type": kind, "page_size": 20}), counts, part);
    };
    check("offset", &[20, 20, 1, 3], None);
    check("offset", &[7, 20, 1, 3], None);
    let smaller = Some(("small_pages", "the server gives smaller pages"));
    check("offset", &[1, 3], smaller);
    // The records between the pages that were requested are missing, whatever pages come later.
    let missing = Some(("short_middle_page", "added to that page are missing"));
    check("page", &[20, 20, 1, 3], missing);
    check("page", &[20, 20, 1, 20, 5], missing);
    check("page", &[20, 1, 20, 20], missing);
    check("page", &[7, 3], smaller);
    let filtered = json!({"type": "page", "page_size": 20, "empty_pages": 2});
    check_with(filtered, &[20, 17, 15], None);
}

#[test]
fn a_second_page_that_is_the_first_one_again_names_the_first_page() {
    let check = |first_page: u64, page_size: u64, is_named: bool| {
        let keys = json!({"type": "page", "first_page": first_page, "page_size": page_size});
        let mut pages = of(pages(keys));
        let repeated = || Contents {
            hash: Some(Hash128::of(b"the same records")),
            ..contents(2, None)
        };
        let second = match pages.next(at(0, None), &mut repeated()).unwrap() {
            Position::Page { page, cursor, run } => At { page, cursor, run },
            other => panic!("{other:?}"),
        };
        let message = match pages.next(second, &mut repeated()) {
            Err(error) => error.to_string(),
            Ok(_) => {
                let warnings = crate::warnings::apply(Vec::new(), pages.take_warnings());
                assert_eq!(warnings[0].code, "repeated_page");
                warnings[0].message.clone()
            }
        };
        let advice = "if it counts its pages from 1, it returned the first one for the numbers 0 and 1: set `pagination.first_page` = 1";
        assert_eq!(message.contains(advice), is_named, "{message}");
    };
    // A page of fewer records than were requested is taken as the end, and a full one is an error.
    for page_size in [10, 2] {
        check(0, page_size, true);
        check(1, page_size, false);
    }
}

#[test]
fn offsets_grow_by_what_has_come() {
    let mut pages = of(pages(
        json!({"type": "offset", "offset_param": "skip", "first_offset": 1}),
    ));
    assert_eq!(query(&pages, 0, None), "q=1&skip=1");
    assert_eq!(step(&mut pages, 0, None, 7, None), Ok(Some("8".into())));
    assert_eq!(query(&pages, 1, Some("8")), "q=1&skip=8");
    assert_eq!(
        step(&mut pages, 1, Some("8"), 3, None),
        Ok(Some("11".into()))
    );
    assert_eq!(step(&mut pages, 2, Some("11"), 0, None), Ok(None));
    assert!(
        step(&mut pages, 2, Some("x"), 1, None)
            .unwrap_err()
            .contains("no offset")
    );
}

#[test]
fn next_urls_stay_on_the_origin_and_are_kept_without_it_and_the_key() {
    let check = |target: &str, kept: Result<&str, &str>, url: &str| {
        let mut pages = of(pages(
            json!({"type": "next_url", "next_origins": ["https://eu.example"]}),
        ));
        match step(&mut pages, 0, None, 1, Some(target)) {
            Ok(next) => {
                assert_eq!(Ok(next.as_deref().unwrap()), kept);
                let asked = url_of(&pages, &at(1, next.as_deref())).unwrap();
                assert_eq!(asked.as_str(), url);
            }
            Err(message) => assert!(message.contains(kept.unwrap_err()), "{message}"),
        }
    };
    let ok = |target, kept, url| check(target, Ok(kept), url);
    ok("?p=2", "/v1/items?p=2", "https://api.example/v1/items?p=2");
    ok(
        "more?p=%20#x",
        "/v1/more?p=%20",
        "https://api.example/v1/more?p=%20",
    );
    ok(
        "https://API.example:443/a?api_key=s&p=2",
        "/a?p=2",
        "https://api.example/a?p=2",
    );
    ok("/a?api_key=s", "/a", "https://api.example/a");
    // A path that looks like a host stays a path.
    ok(
        "https://api.example//evil.example/x",
        "//evil.example/x",
        "https://api.example//evil.example/x",
    );
    ok(
        "https://user:pw@api.example/a",
        "/a",
        "https://api.example/a",
    );
    ok(
        "https://eu.example/a?api_key=1",
        "https://eu.example/a?api_key=1",
        "https://eu.example/a?api_key=1",
    );
    let refused = |target, part| check(target, Err(part), "");
    refused("http://api.example/v1?p=2", "leads to `http://api.example`");
    refused(
        "https://api.example:8443/",
        "leads to `https://api.example:8443`",
    );
    refused(
        "//evil.example/?s=hidden",
        "leads to `https://evil.example`, which is not",
    );
    refused(
        "https://user:pw@eu.example/a",
        "leads to `https://eu.example`",
    );
    refused("file:///etc/passwd", "of the scheme `file`");
    refused("https://", "is none");
}

#[test]
fn more_pages_than_allowed_are_an_error_that_names_the_cursor() {
    let pages = of(pages(json!({"type": "cursor", "max_pages": 2})));
    assert!(pages.target(&at(1, Some("a"))).is_ok());
    let message = pages.target(&at(2, Some("b"))).unwrap_err().to_string();
    assert!(
        message.contains("`b`") && message.contains("max_pages"),
        "{message}"
    );
}

#[test]
fn a_header_that_cannot_be_one_names_its_key() {
    for (kind, key) in [("header_cursor", "cursor_header"), ("page", "total_header")] {
        let mut keys = json!({ "type": kind });
        keys[key] = "a b".into();
        match Paginator::new(&pages(keys), &base(), None) {
            Err(Error::Config { key: found, .. }) => assert_eq!(found, format!("pagination.{key}")),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_overlap_that_is_set_in_the_middle_of_a_run_goes_back_by_a_page() {
    let numbers = |range: std::ops::Range<u64>| Contents {
        records: range
            .map(|id| record(&format!(r#"{{"id":{id}}}"#)))
            .collect(),
        ..contents(0, None)
    };
    let plain = json!({"type": "offset", "page_size": 3});
    let landed = of(pages(plain)).next(at(2, Some("6")), &mut numbers(6..9));
    let Ok(Position::Page { run, .. }) = landed else {
        panic!("{landed:?}");
    };
    let mut overlapping = of(pages(
        json!({"type": "offset", "page_size": 3, "overlap": 1}),
    ));
    let next = At {
        run,
        ..at(3, Some("9"))
    };
    let back = overlapping.next(next, &mut numbers(9..12));
    let Ok(Position::Page { page, cursor, run }) = back else {
        panic!("{back:?}");
    };
    assert_eq!(cursor.as_deref(), Some("6"));
    let mut again = numbers(6..9);
    let next = overlapping.next(At { page, cursor, run }, &mut again);
    assert_eq!(again.records.len(), 2);
    assert!(
        matches!(&next, Ok(Position::Page { cursor: Some(cursor), .. }) if cursor == "8"),
        "{next:?}"
    );
}

#[test]
fn a_possible_cap_is_none_once_a_page_run_has_more_records() {
    let message = "1000 records have come, a number at which many APIs stop";
    let held = [Warning::new("common_cap", message)];
    let mut read = paginator(PaginationKind::Cursor);
    read.restore(&held, true);
    for (came, is_over) in [(61, false), (1_001, true)] {
        read.came = Some(came);
        read.check_total(&PageRun::default(), None).unwrap();
        let changes = read.take_warnings();
        let is_lifted = changes.contains(&WarningChange::Lift("common_cap"));
        assert_eq!(is_lifted, is_over, "{came}: {changes:?}");
    }
}
