//! Archived parts of responses, and reading them back.

use std::collections::BTreeMap;

use feedline_schemas::{
    commit::CommitEntry,
    config::{RetryConfig, SecretRef, TextOrSecret},
    ids::Sequence,
};
use feedline_storage::Store;

use super::{file::read, *};
use crate::testing::context;

/// A client whose secret is `secret-TOKEN`.
fn http(base: &Url) -> Http {
    let reference = SecretRef {
        env: Some("TOKEN".into()),
        file: None,
        prefix: "Bearer ".into(),
    };
    let headers = BTreeMap::from([("Authorization".to_owned(), TextOrSecret::Secret(reference))]);
    Http::new(
        base,
        &headers,
        &RetryConfig::default(),
        &context().requests_of("quotes"),
    )
    .unwrap()
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        (
            HeaderName::from_static(name),
            HeaderValue::try_from(*value).unwrap(),
        )
    };
    let mut headers = HeaderMap::new();
    for (name, value) in pairs.iter().map(pair) {
        headers.append(name, value);
    }
    headers
}

fn answer(url: &str, from: &str, lines: &[(&'static str, &str)], body: &str) -> Exchange {
    let base = Url::parse("https://a.example/v1").unwrap();
    let (url, from) = (Url::parse(url).unwrap(), Url::parse(from).unwrap());
    let came = Came {
        status: StatusCode::OK,
        headers: &headers(lines),
        body: &Bytes::copy_from_slice(body.as_bytes()),
        from: &from,
    };
    let keeper = Keeper::new(vec![HeaderName::from_static("x-next")]);
    keeper.answer(&http(&base), &Request::get(url), came)
}

#[test]
fn what_pages_are_read_by_is_kept_and_nothing_else() {
    let url = "https://a.example/v1?page=2&key=hidden-value";
    let lines = [
        ("content-type", "application/json"),
        ("etag", "\"e\""),
        ("link", "</a>; rel=next"),
        ("link", "</b>; rel=last"),
        ("set-cookie", "s=1"),
        ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("authorization", "x"),
    ];
    let kept = answer(url, url, &lines, "{\"echo\": \"secret-TOKEN\"}");
    let names: Vec<&str> = kept.headers.keys().map(String::as_str).collect();
    // An absent header is archived without a value.
    assert_eq!(names, ["content-type", "etag", "link", "x-next"]);
    assert_eq!(kept.headers["link"], ["</a>; rel=next", "</b>; rel=last"]);
    assert!(kept.headers["x-next"].is_empty());
    assert_eq!(kept.headers().get_all(LINK).iter().count(), 2);
    assert_eq!(
        (&kept.body[..], kept.masked),
        (&b"{\"echo\": \"***\"}"[..], 1)
    );
    assert_eq!(kept.url, "/v1?page=2&key=***");
    let kept = format!("{kept:?}");
    assert!(
        !kept.contains("hidden-value") && !kept.contains("1994"),
        "{kept}"
    );
}

#[test]
fn places_are_those_of_the_source_wherever_it_is() {
    let home = Url::parse("http://u:p@h:1/x").unwrap().origin();
    let check = |url: &str, expected: &str, to_see: &str| {
        let url = Url::parse(url).unwrap();
        assert_eq!(
            (place(&url, &home), shown(&url, &home)),
            (expected.into(), to_see.into())
        );
    };
    check("http://h:1/a?b=c#d", "/a?b=c", "/a?b=***");
    check("http://u:p@h:1", "/", "/");
    check("http://h:2/a?b=7", "http://h:2/a?b=7", "http://h:2/a?b=7");
    check("https://h/a", "https://h/a", "https://h/a");
}

#[test]
fn where_a_body_came_from_is_kept_without_its_query() {
    let from = |from: &str| {
        let url = "https://a.example/v1/x?p=1";
        let kept = answer(url, from, &[], "");
        (
            kept.from.clone(),
            kept.from(&Url::parse(url).unwrap()).to_string(),
        )
    };
    let same = "https://a.example/v1/x?p=1";
    assert_eq!(from(same), (None, same.to_owned()));
    let moved = from("https://a.example/v2/y?signed=text");
    assert_eq!(
        moved,
        (Some("/v2/y".into()), "https://a.example/v2/y".into())
    );
    let away = from("https://b.example/z?signed=text");
    let there = "https://b.example/z".to_owned();
    assert_eq!(away, (Some(there.clone()), there));
}

#[tokio::test]
async fn a_file_gives_back_what_was_written_byte_by_byte() {
    let base = Url::parse("https://a.example/v1").unwrap();
    let mut all: Vec<Exchange> = (0..300)
        .map(|i| {
            let url = format!("https://a.example/v1?page={i}");
            answer(&url, &url, &[("etag", "\"e\"")], &"body ".repeat(i))
        })
        .collect();
    all[7].body = Bytes::from_static(&[0, 0xff, 0xfe, b'\n']);
    let keeper = Keeper::new(Vec::new());
    all.push(keeper.nothing(&http(&base), &Request::get(base.clone()), "robots", None));
    let detail = Some("why".to_owned());
    all.push(keeper.nothing(
        &http(&base),
        &Request::get(base.clone()),
        "unreachable",
        detail,
    ));
    let encoded = file(&all, Sequence::new(3)).unwrap().unwrap();
    assert_eq!(encoded.file.rows, 302);
    assert!(encoded.file.path.starts_with("raw/00000000000000000003-"));
    assert!(file(&[], Sequence::new(3)).unwrap().is_none());
    let same = file(&all, Sequence::new(3)).unwrap().unwrap();
    assert_eq!(same.bytes, encoded.bytes);
    let landing = Store::memory();
    landing
        .put(&encoded.file.path, encoded.bytes)
        .await
        .unwrap();
    assert_eq!(read(&landing, &encoded.file).await.unwrap(), all);
    // A file of another kind is refused.
    let mut other = encoded.file.clone();
    landing.put(&other.path, "PAR1".into()).await.unwrap();
    assert!(read(&landing, &other).await.is_err());
    other.hash = Hash128::of(b"PAR1");
    assert!(read(&landing, &other).await.is_err());
}

#[tokio::test]
async fn a_tape_gives_each_answer_once_in_the_order_of_its_url() {
    let url = "https://a.example/v1?page=2";
    let all = [
        answer(url, url, &[], "first"),
        answer(url, url, &[], "second"),
    ];
    let encoded = file(&all, Sequence::new(0)).unwrap().unwrap();
    let landing = Store::memory();
    landing
        .put(&encoded.file.path, encoded.bytes)
        .await
        .unwrap();
    let entry = entry_with(encoded.file);
    let tape = Tape::default();
    tape.load(&landing, &entry).await.unwrap();
    let url = Url::parse(url).unwrap();
    let home = url.origin();
    for (body, left) in [("first", 1), ("second", 0)] {
        let kept = tape.take(&Request::get(url.clone()), &home, &[]).unwrap();
        assert_eq!((&kept.body[..], tape.left()), (body.as_bytes(), left));
    }
    tape.check_used_up().unwrap();
    let error = tape
        .take(&Request::get(url.clone()), &home, &[])
        .unwrap_err()
        .to_string();
    assert!(error.contains("no response to `/v1?page=2`"), "{error}");
}

/// An entry that names `file` as its responses.
fn entry_with(file: feedline_schemas::commit::DataFile) -> CommitEntry {
    let entry = serde_json::json!({
        "format": "feedline.commit", "version": 1, "source": "s", "sequence": 0, "prev_hash": null,
        "epoch": 1, "run_id": "r", "batch_id": "b", "config_hash": Hash128::of(b"").to_string(),
        "schema": {"version": 1, "columns": []}, "files": [], "rejects": [],
        "raw": [file],
        "counts": feedline_schemas::commit::BatchCounts::default(),
        "state": feedline_schemas::commit::SourceState::default(),
    });
    serde_json::from_value(entry).unwrap()
}
