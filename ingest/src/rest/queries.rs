//! GraphQL on a scripted server.

use serde_json::{Value as Json, json};

use super::{requests::source, tests::read, *};
use crate::testing::{Scripted, Step, ok, read_all};

const QUERY: &str = "query Issues($owner: String!, $after: String) { repository(owner: $owner) { issues(first: 2, after: $after) { nodes { i } pageInfo { endCursor hasNextPage } } } }";

fn connection(server: &Scripted, more: &str) -> SourceConfig {
    let lines = format!(
        "[source.graphql]\nquery = '{QUERY}'\nvariables = {{ owner = 'o' }}\nconnection = 'repository.issues'\n{more}"
    );
    SourceConfig {
        records: String::new(),
        ..source(server, &lines)
    }
}

/// A page of a connection with its list at `key`.
fn page_of(key: &str, items: &str, end: Option<&str>) -> Step {
    let info = json!({"hasNextPage": end.is_some(), "endCursor": end.or(Some("last"))});
    ok(&format!(
        r#"{{"data": {{"repository": {{"issues": {{"{key}": {items}, "pageInfo": {info}}}}}}}}}"#
    ))
}

#[tokio::test]
async fn a_connection_is_read_to_its_end_by_its_nodes_or_edges() {
    for (key, items) in [
        ("nodes", [r#"[{"i": 0}, {"i": 1}]"#, r#"[{"i": 2}]"#]),
        (
            "edges",
            [
                r#"[{"node": {"i": 0}}, {"cursor": "x", "node": {"i": 1}}]"#,
                r#"[{"node": {"i": 2}}]"#,
            ],
        ),
    ] {
        for reopen_every in [1, usize::MAX] {
            let script = [
                page_of(key, items[0], Some("c1")),
                page_of(key, items[1], None),
            ];
            let server = Scripted::start(script).await;
            let config = connection(&server, "");
            let (records, _) = read_all(&config, reopen_every).await.unwrap();
            assert_eq!(records, [r#"{"i":0}"#, r#"{"i":1}"#, r#"{"i":2}"#]);
            let sent: Vec<Json> = server
                .heads()
                .iter()
                .map(|head| serde_json::from_str(head.split_once("\r\n\r\n").unwrap().1).unwrap())
                .collect();
            let first = json!({"query": QUERY, "variables": {"owner": "o"}});
            let second = json!({"query": QUERY, "variables": {"owner": "o", "after": "c1"}});
            assert_eq!(sent, [first, second]);
            assert!(server.heads()[0].starts_with("POST /search "));
        }
    }
}

#[tokio::test]
async fn errors_without_data_end_the_run_unless_they_pass() {
    let failed = |code: &str| {
        ok(&format!(
            r#"{{"data": null, "errors": [{{"message": "no", "type": "{code}"}}]}}"#
        ))
    };
    let last = page_of("nodes", r#"[{"i": 0}]"#, None);
    let server = Scripted::start([failed("RATE_LIMITED"), last.clone()]).await;
    let (records, requests) = read(&connection(&server, "")).await.unwrap();
    assert_eq!((records.len(), requests.retries), (1, 1));
    let server = Scripted::start([failed("NOT_FOUND"), last]).await;
    let error = read(&connection(&server, ""))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("it has GraphQL errors and no data: `no, code NOT_FOUND`"),
        "{error}"
    );
    assert_eq!(server.heads().len(), 1);
}

#[tokio::test]
async fn errors_beside_data_are_refused_or_warned_of() {
    let partial = r#"{"data": {"repository": {"issues": {"nodes": [{"i": 0}, null], "pageInfo": {"hasNextPage": false}}}},
                      "errors": [{"message": "no right", "path": ["repository", "issues", "nodes", 1]}]}"#;
    let server = Scripted::start([ok(partial)]).await;
    let error = read(&connection(&server, "")).await.unwrap_err();
    assert!(matches!(error, Error::Incomplete { .. }), "{error:?}");
    let error = error.to_string();
    assert!(
        error.contains("`no right at repository.issues.nodes.1`"),
        "{error}"
    );
    assert!(
        error.contains("`graphql.partial_data = \"warn\"`"),
        "{error}"
    );
    assert_eq!(server.heads().len(), 1);

    let config = connection(&server, "partial_data = 'warn'");
    let mut source = open(&config, &crate::testing::context()).await.unwrap();
    let page = source.next_page(&Position::Start).await.unwrap();
    assert_eq!(page.records.len(), 2);
    let changes = source.take_warnings();
    let [WarningChange::Raise(warning)] = changes.as_slice() else {
        panic!("{changes:?}");
    };
    assert_eq!(warning.code, "graphql_partial_data");
    assert!(warning.message.contains("no right"), "{}", warning.message);
}

#[tokio::test]
async fn a_connection_that_says_it_has_more_but_not_where_is_incomplete() {
    let body = r#"{"data": {"repository": {"issues": {"nodes": [{"i": 0}], "pageInfo": {"hasNextPage": true, "endCursor": null}}}}}"#;
    let server = Scripted::start([ok(body)]).await;
    let error = read(&connection(&server, "")).await.unwrap_err();
    assert!(matches!(error, Error::Incomplete { .. }), "{error:?}");
}
