//! Pages by time and key.

use feedline_schemas::config::PaginationKind;

use super::{
    tests::{paged, param, read},
    *,
};
use crate::testing::{Scripted, ok, read_all, set_key};

/// Records of `times`, keys counted from 0, by `since` and (if `by_key`) `after`, at most `most` a
/// page.
async fn keyset_server(times: Vec<i64>, most: usize, by_key: bool, is_exclusive: bool) -> Scripted {
    Scripted::answering(move |_, head| {
        let since: i64 = param(head, "since").map_or(i64::MIN, |since| since.parse().unwrap());
        let after = param(head, "after").filter(|_| by_key);
        let after: Option<usize> = after.map(|after| after.parse().unwrap());
        let is_wanted = |time: i64, key: usize| match after {
            Some(after) => time > since || (time == since && key > after),
            None if is_exclusive => time > since,
            None => time >= since,
        };
        let wanted = times
            .iter()
            .enumerate()
            .filter(|(key, time)| is_wanted(**time, *key));
        let records: Vec<String> = wanted
            .take(most)
            .map(|(key, time)| format!(r#"{{"t":{time},"k":"{key}"}}"#))
            .collect();
        ok(&format!(r#"{{"items": [{}]}}"#, records.join(",")))
    })
    .await
}

fn keyset(server: &Scripted, page_size: u64, by_key: bool) -> SourceConfig {
    let mut config = paged(server, PaginationKind::Keyset);
    let pages = &mut config.pagination;
    pages.common.page_size = page_size;
    if by_key {
        set_key(&mut config, "key_param", "after");
    }
    config
}

/// Reads it, reopened after each page, and checks that every key comes once and in order.
async fn check_keys(config: &SourceConfig, keys: usize) {
    let (records, _) = read_all(config, 1).await.unwrap();
    let expected: Vec<String> = (0..keys).map(|key| format!(r#""k":"{key}""#)).collect();
    assert_eq!(records.len(), keys);
    for (record, expected) in records.iter().zip(expected) {
        assert!(record.contains(&expected), "{record} {expected}");
    }
}

#[tokio::test]
async fn fault_29_fifteen_hundred_records_of_one_time_lose_none_in_pages_of_a_thousand() {
    let times: Vec<i64> = [vec![1; 700], vec![2; 1_500], vec![3; 10]].concat();
    let server = keyset_server(times, 1_000, true, false).await;
    check_keys(&keyset(&server, 1_000, true), 2_210).await;
}

#[tokio::test]
async fn fault_29_without_a_key_the_boundary_is_read_again_and_dropped_by_key() {
    let times: Vec<i64> = [vec![1; 3], vec![2; 6], vec![3; 5], vec![4; 1]].concat();
    let server = keyset_server(times, 7, false, false).await;
    check_keys(&keyset(&server, 7, false), 15).await;
    let none = keyset_server(vec![], 7, false, false).await;
    check_keys(&keyset(&none, 7, false), 0).await;
}

#[tokio::test]
async fn fault_29_more_records_of_one_time_than_a_page_holds_are_an_error_without_a_key() {
    let server = keyset_server(vec![5; 1_500], 1_000, false, false).await;
    let check = async |config: &SourceConfig, part: &str| {
        let error = read_all(config, 1).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    check(
        &keyset(&server, 1_000, false),
        "give `pagination.key_param`",
    )
    .await;
    check(&keyset(&server, 1_000, true), "circles").await;
}

#[tokio::test]
async fn fault_29_an_exclusive_bound_is_found_out_before_records_are_lost() {
    let check = async |times: Vec<i64>| {
        let server = keyset_server(times, 4, false, true).await;
        let error = read_all(&keyset(&server, 4, false), 1)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("it seems to give only later ones"),
            "{error}"
        );
    };
    check(vec![1, 2, 3, 3, 3, 4]).await;
    check(vec![3; 9]).await;
    // If no two records share a time, `exclusive` is allowed.
    let server = keyset_server((0..9).collect(), 4, false, true).await;
    let mut config = keyset(&server, 4, false);
    set_key(&mut config, "exclusive", true);
    check_keys(&config, 9).await;
}

#[tokio::test]
async fn records_out_of_order_or_without_time_or_key_are_an_error() {
    for (body, part) in [
        (
            r#"{"t":2,"k":1},{"t":1,"k":2}"#,
            "must be in ascending order",
        ),
        (r#"{"k":1}"#, "`pagination.time_path`"),
        (r#"{"t":1}"#, "`pagination.key_path`"),
        (
            r#"{"t":1,"k":1},{"t":"2026-03-01","k":2}"#,
            "different kinds",
        ),
    ] {
        let server = Scripted::start([ok(&format!(r#"{{"items": [{body}]}}"#))]).await;
        let error = read(&keyset(&server, 9, false))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_ignores_the_parameter_of_the_time_is_named() {
    let body = r#"{"items": [{"t":1,"k":1},{"t":2,"k":2}]}"#;
    let server = Scripted::start([ok(body)]).await;
    let error = read(&keyset(&server, 2, false)).await.unwrap_err();
    let error = error.to_string();
    for part in [
        "a page asked for with `since` = `2` begins with a record whose `t` is `1`",
        "the server seems to ignore the parameter `since` (`pagination.time_param`)",
    ] {
        assert!(error.contains(part), "{error}");
    }
}
