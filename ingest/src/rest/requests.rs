//! Requests with methods and bodies, and what they are when they fail.

use feedline_schemas::config::load;
use serde_json::{Value as Json, json};

use super::{tests::read, *};
use crate::testing::{Scripted, Step, answer, context, ok, read_all};

/// The source at `server` with `lines` of its own, and next to no backoff.
pub(super) fn source(server: &Scripted, lines: &str) -> SourceConfig {
    let text = format!(
        "[pipeline]\nname = 'p'\n[[source]]\nname = 's'\ntype = 'rest'\nurl = '{}search'\nrecords = 'items'\nretry = {{ base_ms = 1, cap_ms = 2, max_tries = 3 }}\n{lines}",
        server.url
    );
    load("p.toml", &text, &[]).unwrap().config.source.remove(0)
}

/// Bodies of the requests so far.
fn bodies(server: &Scripted) -> Vec<String> {
    let heads = server.heads().into_iter();
    heads
        .map(|head| head.split_once("\r\n\r\n").unwrap().1.to_owned())
        .collect()
}

fn json_bodies(server: &Scripted) -> Vec<Json> {
    let bodies = bodies(server).into_iter();
    bodies
        .map(|body| serde_json::from_str(&body).unwrap())
        .collect()
}

/// Pages of one record with a cursor, then the last one.
async fn cursors() -> Scripted {
    Scripted::start([
        ok(r#"{"items": [{"i": 0}], "next": "a"}"#),
        ok(r#"{"items": [{"i": 1}], "next": "b"}"#),
        ok(r#"{"items": [{"i": 2}], "next": null}"#),
    ])
    .await
}

const CURSOR: &str = "pagination = { type = 'cursor', cursor_param = 'page.after', cursor_path = 'next', page_size = 1, size_param = 'page.size' }";

#[tokio::test]
async fn a_json_body_has_the_parameters_at_their_paths_and_a_resumed_run_sends_the_same() {
    for reopen_every in [1, usize::MAX] {
        let server = cursors().await;
        let lines = format!(
            "method = 'POST'\nparams.q = '1'\nbody.json = {{ filter = {{ open = true }}, day = 2026-01-02 }}\n{CURSOR}"
        );
        let (records, _) = read_all(&source(&server, &lines), reopen_every)
            .await
            .unwrap();
        assert_eq!(records, [r#"{"i":0}"#, r#"{"i":1}"#, r#"{"i":2}"#]);
        let fixed =
            |page: Json| json!({"filter": {"open": true}, "day": "2026-01-02", "page": page});
        let expected = [
            fixed(json!({"size": 1})),
            fixed(json!({"size": 1, "after": "a"})),
            fixed(json!({"size": 1, "after": "b"})),
        ];
        assert_eq!(json_bodies(&server), expected);
        for head in server.heads() {
            assert!(head.starts_with("POST /search?q=1 HTTP/1.1\r\n"), "{head}");
            assert!(
                head.contains("content-type: application/json\r\n"),
                "{head}"
            );
        }
    }
}

#[tokio::test]
async fn forms_and_texts_are_sent_as_they_are_written() {
    let server = cursors().await;
    let lines = format!(
        "method = 'POST'\nbody.form = {{ q = 'a b', key = {{ env = 'KEY' }}, none = '{{page.after}}' }}\n{CURSOR}"
    );
    read(&source(&server, &lines)).await.unwrap();
    assert_eq!(
        bodies(&server),
        [
            "key=secret-KEY&q=a+b&page.size=1",
            "key=secret-KEY&none=a&q=a+b&page.size=1",
            "key=secret-KEY&none=b&q=a+b&page.size=1"
        ]
    );
    let form = "content-type: application/x-www-form-urlencoded\r\n";
    assert!(server.heads().iter().all(|head| head.contains(form)));

    let server = cursors().await;
    let lines = format!(
        "method = 'PUT'\nheaders.X-From = '{{page.after}}'\nheaders.X-Fixed = 'f'\nbody = {{ text = '<after>{{page.after}}</after>', content_type = 'application/xml' }}\n{CURSOR}"
    );
    read(&source(&server, &lines)).await.unwrap();
    assert_eq!(
        bodies(&server),
        ["<after></after>", "<after>a</after>", "<after>b</after>"]
    );
    let heads = server.heads();
    assert!(
        heads
            .iter()
            .all(|head| head.starts_with("PUT /search?page.size=1 ")
                && head.contains("content-type: application/xml\r\n")
                && head.contains("x-fixed: f\r\n")),
        "{heads:?}"
    );
    assert!(!heads[0].contains("x-from"), "{heads:?}");
    assert!(heads[1].contains("x-from: a\r\n"), "{heads:?}");
}

#[tokio::test]
async fn slices_values_and_bounds_stand_in_the_body_with_their_types() {
    let pages = |head: &str| {
        let body: Json = serde_json::from_str(head.split_once("\r\n\r\n").unwrap().1).unwrap();
        let items = match body["p"].as_u64() {
            Some(1) => json!([{ "of": body["where"]["id"] }]),
            _ => json!([]),
        };
        ok(&json!({ "items": items }).to_string())
    };
    let server = Scripted::answering(move |_, head| pages(head)).await;
    let lines = "method = 'POST'\nbody.json = { where = { id = 0 } }\n\
                 pagination = { type = 'page', page_param = 'p', page_size = 2 }\n\
                 for_each = { param = 'where.id', values = ['7', '8'], as = 'id' }\n\
                 slices = { from_param = 'where.from', to_param = 'where.to', format = 'integer', start = '0', end = '20', step = '10' }";
    read(&source(&server, lines)).await.unwrap();
    let first = json_bodies(&server).remove(0);
    assert_eq!(
        first,
        json!({"p": 1, "where": {"id": 7, "from": 0, "to": 10}})
    );
    let ids: Vec<Json> = json_bodies(&server)
        .iter()
        .map(|body| body["where"]["id"].clone())
        .collect();
    assert!(ids.contains(&json!(8)), "{ids:?}");

    let server = Scripted::start([ok(r#"{"items": [{"at": 5}]}"#)]).await;
    let lines = "method = 'POST'\nbody.json.filters = [{ op = '>=', value = '{since}' }]\n\
                 incremental = { cursor = 'at', param = 'since', start = '3' }";
    read(&source(&server, lines)).await.unwrap();
    let expected = json!({"filters": [{"op": ">=", "value": 3}]});
    assert_eq!(json_bodies(&server), [expected]);
}

#[tokio::test]
async fn next_urls_are_requested_with_the_same_method_and_body() {
    let server = Scripted::start([
        ok(r#"{"items": [{"i": 0}], "next": "/search?p=2"}"#),
        ok(r#"{"items": [{"i": 1}]}"#),
    ])
    .await;
    let lines = "method = 'POST'\nbody.json.q = 1\npagination.type = 'next_url'";
    read(&source(&server, lines)).await.unwrap();
    assert_eq!(server.targets(), ["/search", "/search?p=2"]);
    assert_eq!(bodies(&server), [r#"{"q":1}"#, r#"{"q":1}"#]);
}

#[tokio::test]
async fn placeholders_and_paths_that_lead_nowhere_are_refused_before_any_request() {
    let server = Scripted::start([ok("[]")]).await;
    let check = async |lines: &str, key: &str, part: &str| {
        let error = open(&source(&server, lines), &context()).await.err();
        let error = error.unwrap().to_string();
        assert!(error.starts_with(&format!("`{key}`: ")), "{error}");
        assert!(error.contains(part), "{error}");
    };
    let post = |rest: &str| format!("method = 'POST'\n{CURSOR}\n{rest}");
    check(
        &post("body.json.a.b = '{sinse}'"),
        "body.json.a.b",
        "the parameters are `page.after`, `page.size`",
    )
    .await;
    check(&post("body.form.a = '{sinse}'"), "body.form.a", "`{sinse}`").await;
    check(&post("headers.a = '{sinse}'"), "headers.a", "`{sinse}`").await;
    check(
        &post("body = { text = '{sinse}', content_type = 'a/b' }"),
        "body.text",
        "`{sinse}`",
    )
    .await;
    check(
        &post("body.json.page = 'x'"),
        "body.json",
        "has a text at `page`",
    )
    .await;
    check(
        &post("body.json.page.size = []"),
        "body.json",
        "has a list at `page.size`",
    )
    .await;
    check(
        &post("body.json.key = { file = 'x' }"),
        "body.json.key",
        "there are no files",
    )
    .await;
    check(
        "graphql.query = 'query { a }'\npagination = { type = 'cursor', cursor_param = 'after' }",
        "graphql.query",
        "does not use the variable `$after`",
    )
    .await;
    assert!(server.heads().is_empty());
}

#[tokio::test]
async fn a_post_is_repeated_only_where_that_is_safe() {
    const GOOD: &str = r#"{"items": [{"i": 1}]}"#;
    let broken = || Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{".to_vec());
    let check = async |first: Step, lines: &str, is_repeated: bool| {
        let server = Scripted::start([first, ok(GOOD)]).await;
        let read = read(&source(&server, lines)).await;
        assert_eq!(
            server.heads().len(),
            if is_repeated { 2 } else { 1 },
            "{lines}"
        );
        match read {
            Ok((records, _)) => assert!(is_repeated && records.len() == 1),
            Err(error) => {
                let error = error.to_string();
                assert!(
                    !is_repeated && error.contains("set the source's `idempotent = true`"),
                    "{error}"
                );
            }
        }
    };
    let post = "method = 'POST'\nbody.json = {}";
    check(answer("500 Oh", ""), post, false).await;
    check(answer("503 Busy", ""), post, false).await;
    check(broken(), post, false).await;
    check(ok("<html>"), post, false).await;
    check(answer("429 Slow", ""), post, true).await;
    // The server says when: the run ends as deferred, and a later one sends it.
    let server = Scripted::start([answer("503 Busy\r\nRetry-After: 9999", "")]).await;
    let error = read(&source(&server, post)).await.unwrap_err();
    assert!(matches!(error, Error::Deferred { .. }), "{error}");
    let idempotent = "method = 'POST'\nbody.json = {}\nidempotent = true";
    let query = "graphql.query = '{ a }'";
    for repeated in [idempotent, "method = 'PUT'\nbody.json = {}", query] {
        check(answer("500 Oh", ""), repeated, true).await;
        check(broken(), repeated, true).await;
        check(ok("<html>"), repeated, true).await;
    }
    // Nothing was sent.
    let gone = Scripted::start([ok(GOOD)]).await;
    let config = source(&gone, post);
    drop(gone);
    let error = read(&config).await.unwrap_err().to_string();
    assert!(
        error.contains("cannot connect") && error.contains("the last of 3 tries"),
        "{error}"
    );
}

#[tokio::test]
async fn a_redirected_post_keeps_its_body_or_is_refused() {
    let check = async |status: &str, to: &str, expected: Result<(), &str>| {
        let server = Scripted::start([
            answer(&format!("{status} Moved\r\nLocation: {to}"), ""),
            ok(r#"{"items": [{"i": 1}]}"#),
        ])
        .await;
        let config = source(&server, "method = 'POST'\nbody.json.q = 1");
        match (read(&config).await, expected) {
            (Ok(_), Ok(())) => {
                assert_eq!(bodies(&server), [r#"{"q":1}"#, r#"{"q":1}"#]);
                assert_eq!(server.targets(), ["/search", "/there"]);
                assert!(server.heads()[1].starts_with("POST"));
            }
            (Err(error), Err(part)) => {
                let error = error.to_string();
                assert!(error.contains(part), "{error}");
                assert_eq!(server.heads().len(), 1);
            }
            (read, _) => panic!("{status}: {read:?}"),
        }
    };
    check("307", "/there", Ok(())).await;
    check("308", "/there", Ok(())).await;
    for status in ["301", "302", "303"] {
        let part = "/there` with status 30";
        check(status, "/there", Err(part)).await;
    }
    let other = "to another server, `https://other.example/there`";
    check("307", "https://other.example/there", Err(other)).await;
}

#[tokio::test]
async fn a_secret_in_a_body_is_not_shown_even_if_the_server_echoes_it() {
    let server = Scripted::start([answer("400 Bad", r#"{"key": "secret-KEY"}"#)]).await;
    let lines = "method = 'POST'\nbody.json.key = { env = 'KEY' }";
    let error = read(&source(&server, lines)).await.unwrap_err().to_string();
    assert_eq!(bodies(&server), [r#"{"key":"secret-KEY"}"#]);
    assert!(
        error.contains("400") && !error.contains("secret-KEY"),
        "{error}"
    );
}
