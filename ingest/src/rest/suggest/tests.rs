//! Sources that are requested once for a suggestion.

use feedline_schemas::config::Bounded;
use feedline_schemas::config::{AuthConfig, SecretRef, TextOrSecret};

use super::*;
use crate::testing::{Scripted, Step, answer, config, context, ok};

async fn asked(sources: Vec<SourceConfig>, context: &Context) -> Result<Vec<Suggestion>, Error> {
    let mut pipeline = feedline_schemas::config::load("p", "[pipeline]\nname = \"p\"\n", &[])
        .unwrap()
        .config;
    pipeline.source = sources;
    suggest(&pipeline, context).await
}

async fn one(
    script: impl IntoIterator<Item = Step>,
    set: impl FnOnce(&mut SourceConfig),
) -> (Scripted, Suggestion) {
    let server = Scripted::start(script).await;
    let mut source = config(server.url.as_str(), PaginationKind::None);
    source.retry.max_tries = Bounded::literal::<5>();
    set(&mut source);
    let mut all = asked(vec![source], &context()).await.unwrap();
    (server, all.remove(0))
}

fn secret(name: &str) -> SecretRef {
    SecretRef {
        env: Some(name.into()),
        file: None,
        prefix: String::new(),
    }
}

#[tokio::test]
async fn one_request_with_headers_and_parameters_of_the_source_brings_a_suggestion() {
    let body = r#"{"data": {"rows": [{"id": 1}]}, "next_cursor": "abcdefgh-cursor"}"#;
    let (server, suggestion) = one([ok(body)], |source| {
        source.params.insert("limit".into(), "9".into());
        let key = TextOrSecret::Secret(secret("KEY"));
        source.headers.insert("X-Key".into(), key);
    })
    .await;
    assert_eq!(server.targets(), ["/?limit=9"]);
    assert!(server.heads()[0].contains("x-key: secret-KEY"));
    assert_eq!(
        suggestion.pagination.as_deref(),
        Some(
            "pagination = { type = \"cursor\", cursor_param = \"cursor\", cursor_path = \"next_cursor\" }"
        )
    );
    assert_eq!(
        suggestion.records.as_deref(),
        Some("records = \"data.rows\"")
    );
    let shown = format!("{suggestion:?}");
    assert!(
        !shown.contains("abcdefgh") && !shown.contains("secret-KEY"),
        "{shown}"
    );
}

#[tokio::test]
async fn answers_that_are_no_page_give_one_line_after_one_request() {
    let check = async |step: Step, parts: &[&str]| {
        let (server, suggestion) =
            one([step], |source| source.error_path = Some("error".into())).await;
        assert_eq!(server.heads().len(), 1);
        assert_eq!((&suggestion.pagination, &suggestion.reason), (&None, &None));
        let error = suggestion.error.unwrap();
        assert!(
            parts.iter().all(|part| error.contains(part)) && !error.contains('\n'),
            "{error}"
        );
    };
    check(
        answer("404 Not Found", "nothing\nhere"),
        &["cannot fetch", "404"],
    )
    .await;
    check(answer("503 Busy", ""), &["cannot fetch", "503"]).await;
    check(
        ok("<html>\n</html>"),
        &["not valid JSON", "looks like HTML"],
    )
    .await;
    check(ok(""), &["not valid JSON"]).await;
    check(
        ok(r#"{"error": "no\nquota"}"#),
        &["has status 200 and an error at `error_path`", "quota"],
    )
    .await;
}

#[tokio::test]
async fn a_secret_that_comes_back_as_a_name_is_not_shown() {
    let body = r#"{"items": [{"id": 1}], "secret-KEY": {"next_cursor": "a"}}"#;
    let (_, suggestion) = one([ok(body)], |source| {
        let auth = "type = \"bearer\"\nsecret = { env = \"KEY\" }";
        source.auth = Some(auth_of(auth));
    })
    .await;
    let shown = format!("{suggestion:?}");
    assert!(
        !shown.contains("secret-KEY") && shown.contains("hold a secret"),
        "{shown}"
    );
}

#[tokio::test]
async fn pages_0_and_1_show_the_first_page_where_the_response_does_not() {
    #[derive(Clone, Copy)]
    enum PageZero {
        First,
        Refused,
        SameAsPageOne,
    }
    let check = async |zero: PageZero, keys: &str, requests: usize| {
        let server = Scripted::answering(move |_, head| {
            let is_zero = head.contains("page=0") || !head.contains("page=");
            let id = match zero {
                PageZero::First if is_zero => 0,
                PageZero::Refused if head.contains("page=0") => {
                    return answer("400 Bad Request", "pages count from 1");
                }
                _ => 1,
            };
            ok(&format!(r#"{{"items": [{{"id": {id}}}], "total": 3}}"#))
        })
        .await;
        let source = config(server.url.as_str(), PaginationKind::None);
        let found = asked(vec![source], &context()).await.unwrap().remove(0);
        let line = format!("pagination = {{ type = \"page\", page_param = \"page\", {keys} }}");
        assert_eq!(found.pagination, Some(line), "{found:?}");
        let reason = found.reason.unwrap_or_default();
        let is_shown = reason.contains("pages 0 and 1 have different records");
        assert_eq!(is_shown, keys.contains("first_page"), "{reason}");
        assert_eq!(server.targets()[1..], ["/?page=0", "/?page=1"][..requests]);
    };
    let from_zero = "total_path = \"total\", first_page = 0";
    check(PageZero::First, from_zero, 2).await;
    check(PageZero::SameAsPageOne, "total_path = \"total\"", 2).await;
    check(PageZero::Refused, "total_path = \"total\"", 1).await;
}

#[tokio::test]
async fn a_count_of_a_full_page_is_no_total_and_pages_1_and_2_show_the_others() {
    let check = async |numbers: bool, expected: Option<&str>| {
        let server = Scripted::answering(move |_, head| {
            let page = ["page=1", "page=2"]
                .iter()
                .position(|part| head.contains(part));
            let page = page.map_or(0, |page| page + 1);
            let first = if numbers { page * 10 } else { 0 };
            let items: Vec<String> = (first..first + 10)
                .map(|id| format!(r#"{{"id": {id}}}"#))
                .collect();
            let items = items.join(", ");
            ok(&format!(r#"{{"items": [{items}], "count": 10}}"#))
        })
        .await;
        let source = config(server.url.as_str(), PaginationKind::None);
        let found = asked(vec![source], &context()).await.unwrap().remove(0);
        assert_eq!(found.pagination.as_deref(), expected, "{found:?}");
        let reason = found.reason.unwrap_or_default();
        let shown = match numbers {
            true => "pages 1 and 2 by the parameter `page` have different records",
            false => "`count` may count the records of this page alone; 10 records came",
        };
        assert!(reason.contains(shown), "{reason}");
        let pages = ["/?page=1", "/?page=2", "/?page=0", "/?page=1"];
        let requests = if numbers { 4 } else { 2 };
        assert_eq!(server.targets()[1..], pages[..requests]);
    };
    let pages = "pagination = { type = \"page\", page_param = \"page\", first_page = 0 }";
    check(true, Some(pages)).await;
    check(false, None).await;
}

fn auth_of(text: &str) -> AuthConfig {
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"http://h.example/\"\n[source.auth]\n{text}\n"
    );
    let source = feedline_schemas::config::load("p", &text, &[])
        .unwrap()
        .config
        .source
        .remove(0);
    source.auth.unwrap()
}

#[tokio::test]
async fn only_sources_without_pagination_are_requested_even_if_rows_have_landed() {
    let server = Scripted::start([ok(r#"{"items": [{"id": 1}]}"#)]).await;
    let bare = config(server.url.as_str(), PaginationKind::None);
    let paged = SourceConfig {
        name: feedline_schemas::ids::Name::new("paged").unwrap(),
        ..config(server.url.as_str(), PaginationKind::Link)
    };
    let context = context();
    let first = asked(vec![bare.clone(), paged.clone()], &context)
        .await
        .unwrap();
    assert_eq!(first.len(), 1);
    assert_eq!(
        (first[0].source.as_str(), server.heads().len()),
        ("quotes", 1)
    );
    // Nothing was landed, so it is requested again.
    assert_eq!(asked(vec![bare.clone()], &context).await.unwrap().len(), 1);
    let mut pipeline = feedline_schemas::config::load("p", "[pipeline]\nname = \"p\"\n", &[])
        .unwrap()
        .config;
    pipeline.source = vec![bare.clone()];
    crate::ingest(&pipeline, None, &context).await.unwrap();
    let before = server.heads().len();
    assert_eq!(asked(vec![bare, paged], &context).await.unwrap(), first);
    assert_eq!(server.heads().len(), before + 1);
}

#[tokio::test]
async fn ascending_records_are_a_keyset_only_if_it_is_followed_and_pages_1_and_2_are_equal() {
    let check = async |numbers: bool, filters: bool, kind: Option<&str>| {
        let server = Scripted::answering(move |_, head| {
            let second = numbers && head.contains("page=2");
            let none = numbers && head.contains("page=0");
            let is_behind = filters && head.contains("since=19");
            let first = if second || is_behind { 20 } else { 0 };
            let last = if none { first } else { first + 20 };
            let items: Vec<String> = (first..last)
                .map(|id| format!(r#"{{"id": {id}}}"#))
                .collect();
            ok(&format!(r#"{{"items": [{}]}}"#, items.join(", ")))
        })
        .await;
        let source = config(server.url.as_str(), PaginationKind::None);
        let found = asked(vec![source], &context()).await.unwrap().remove(0);
        let line = found.pagination.as_deref();
        let quoted = line.and_then(|line| line.split('"').nth(1));
        assert_eq!(quoted, kind, "{found:?}");
        let targets = server.targets();
        assert_eq!(targets[1..3], ["/?page=1", "/?page=2"]);
        if !numbers {
            assert_eq!(targets[3..], ["/?since=19"]);
            let reason = found.reason.unwrap_or_default();
            assert_eq!(reason.contains("the same records"), !filters, "{reason}");
        }
    };
    check(true, false, Some("page")).await;
    check(false, true, Some("keyset")).await;
    // A list that ignores all parameters.
    check(false, false, None).await;
}

#[tokio::test]
async fn a_private_address_that_an_answer_leads_to_is_not_asked() {
    let server = Scripted::start([answer("302 Found\r\nLocation: http://127.0.0.2:9/x", "")]).await;
    let source = config(server.url.as_str(), PaginationKind::None);
    let all = asked(vec![source], &context()).await.unwrap();
    let error = all[0].error.as_deref().unwrap();
    assert!(error.contains("private_hosts"), "{error}");
}
