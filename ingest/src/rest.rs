//! The `rest` source: pages of a JSON API.

use async_trait::async_trait;
use feedline_schemas::{
    commit::Position,
    config::SourceConfig,
    record::{join_path, split_path},
};
use url::Url;

use crate::{
    blocking::blocking,
    context::Context,
    demo::{self, DemoServer},
    error::Error,
    http::{Http, redacted},
    pagination::Paginator,
    retry::{Again, Failure, Retry},
    source::{Page, Record, Requests, Source},
    value::Value,
};

/// Opens the API that `config` describes; a `demo://` URL starts the embedded one.
///
/// # Errors
/// [`Error::Config`] when something cannot work, before any request.
pub(crate) async fn open(
    config: &SourceConfig,
    context: &Context,
) -> Result<Box<dyn Source>, Error> {
    let retry = Retry::new(config.name.as_str(), &config.retry, context)?;
    let pages = Paginator::new(&config.pagination)?;
    let url = Url::parse(&config.url).map_err(|e| {
        Error::config(
            "url",
            format!("is not a URL ({e}); write `https://host/path`"),
        )
    })?;
    let (url, demo) = match url.scheme() {
        "http" | "https" => (url, None),
        "demo" => {
            let server = demo::serve(url.as_str()).await?;
            (server.url.clone(), Some(server))
        }
        other => {
            let reason =
                format!("`{other}` is not a scheme of a `rest` source, use https, http or demo");
            return Err(Error::config("url", reason));
        }
    };
    let base = with_query(
        &url,
        config.params.iter().map(|(k, v)| (k.as_str(), v.clone())),
    );
    let http = Http::new(&base, &config.headers, &config.retry, context)?;
    let http = http.with_manners(config, 1);
    let layout = Layout {
        records: config.records.clone(),
        cursor: pages.cursor_path().map(ToOwned::to_owned),
    };
    Ok(Box::new(Rest {
        base,
        layout,
        pages,
        retry,
        http,
        _demo: demo,
    }))
}

/// A JSON API that is being read.
#[derive(Debug)]
struct Rest {
    base: Url,
    layout: Layout,
    pages: Paginator,
    retry: Retry,
    http: Http,
    /// The embedded API lives as long as its reader.
    _demo: Option<DemoServer>,
}

#[async_trait]
impl Source for Rest {
    async fn next_page(&mut self, at: &Position) -> Result<Page, Error> {
        let (page, cursor) = match at {
            Position::Start => (0, None),
            Position::Page { page, cursor } => (*page, cursor.as_deref()),
            Position::Done { .. } => {
                return Ok(Page {
                    records: Vec::new(),
                    next: at.clone(),
                    crawled: None,
                });
            }
            Position::File { .. } => {
                let reason = "is `rest`, but what has landed comes from files; give this source another name";
                return Err(Error::config("type", reason));
            }
        };
        let endless = |reason| Error::Body {
            url: redacted(&self.base),
            reason,
        };
        let query = self.pages.query(page, cursor).map_err(endless)?;
        let url = with_query(&self.base, query);
        let (http, layout) = (&self.http, &self.layout);
        let read = self.retry.run(|| fetch(http, layout, &url)).await?;
        if let (0, Some(path), None) = (page, self.pages.cursor_path(), &read.cursor) {
            // A wrong path looks the same as a source of one page: it must not pass in silence.
            tracing::warn!(
                url = redacted(&url),
                cursor_path = path,
                "the first page names no next one"
            );
        }
        let next = self
            .pages
            .next(page, cursor, read.records.len(), read.cursor);
        Ok(Page {
            records: read.records,
            next: next.map_err(endless)?,
            crawled: None,
        })
    }

    fn requests(&self) -> Requests {
        Requests {
            requests: self.http.requests(),
            retries: self.retry.retries(),
        }
    }
}

/// One try of one page. A body that is not the expected document is tried again: it may be an error page sent with 200.
async fn fetch(http: &Http, layout: &Layout, url: &Url) -> Result<Contents, Failure> {
    let body = http.get(url).await?;
    let (layout, shown) = (layout.clone(), redacted(url));
    let read = move || {
        layout
            .read(&body)
            .map_err(|reason| Error::Body { url: shown, reason })
    };
    blocking(read).await.map_err(|error| Failure {
        error: Box::new(error),
        again: Again::Backoff,
    })
}

/// `base` with query parameters; one that is there already is replaced. What is left is kept as it is written.
fn with_query<'a>(base: &Url, query: impl IntoIterator<Item = (&'a str, String)>) -> Url {
    let query: Vec<_> = query.into_iter().collect();
    let mut url = base.clone();
    if base
        .query_pairs()
        .any(|(key, _)| query.iter().any(|(k, _)| *k == key))
    {
        let kept = base
            .query_pairs()
            .filter(|(key, _)| query.iter().all(|(k, _)| k != key));
        url.query_pairs_mut().clear().extend_pairs(kept);
    }
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

/// Where in a body things are.
#[derive(Clone, Debug)]
struct Layout {
    /// Path of the list of records; empty for the body itself.
    records: String,
    /// Path of the next cursor.
    cursor: Option<String>,
}

/// What a body holds.
#[derive(Debug, PartialEq)]
struct Contents {
    records: Vec<Record>,
    cursor: Option<String>,
}

impl Layout {
    fn read(&self, body: &[u8]) -> Result<Contents, String> {
        // The body is not quoted: it may echo a secret.
        let document = Value::parse(body).map_err(|reason| {
            let is_markup = body.trim_ascii_start().starts_with(b"<");
            let kind = if is_markup {
                "; it looks like HTML or XML"
            } else {
                ""
            };
            format!("it is not valid JSON: {reason}{kind}")
        })?;
        let cursor = match &self.cursor {
            Some(path) => cursor(&document, path)?,
            None => None,
        };
        let records = match document.at(&self.records) {
            Some(Value::List(_)) => take_list(document, &self.records),
            other => return Err(self.no_list(&document, other)),
        };
        let record = |(i, value)| Record::of(value, || format!("record {i} of the page"));
        Ok(Contents {
            records: records.into_iter().enumerate().map(record).collect(),
            cursor,
        })
    }

    fn no_list(&self, document: &Value, found: Option<&Value>) -> String {
        let found = found.map_or("nothing", Value::kind);
        let place = if self.records.is_empty() {
            "as its body".into()
        } else {
            format!("at `{}`", self.records)
        };
        let mut lists = Vec::new();
        find_lists(document, &mut Vec::new(), &mut lists);
        let hint = match (lists.is_empty(), document) {
            (false, _) => format!(
                "it has lists at `{}`, set `records` to the right one",
                lists.join("`, `")
            ),
            (true, Value::Object(entries)) => {
                let keys: Vec<&str> = entries
                    .iter()
                    .take(10)
                    .map(|(key, _)| key.as_str())
                    .collect();
                format!(
                    "its keys are `{}`; it may be an error document, or `records` names the wrong place",
                    keys.join("`, `")
                )
            }
            (true, _) => "it may be an error document".into(),
        };
        format!("it has {found} {place} where the list of records should be; {hint}")
    }
}

/// The cursor at `path`: text or an integer; null, absent or empty is none.
fn cursor(document: &Value, path: &str) -> Result<Option<String>, String> {
    match document.at(path) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Text(text)) => Ok((!text.is_empty()).then(|| text.clone())),
        Some(Value::Int(number)) => Ok(Some(number.to_string())),
        Some(other) => Err(format!(
            "`pagination.cursor_path` = `{path}` is {} where a cursor (text or an integer) should be",
            other.kind()
        )),
    }
}

/// Takes the list at `path`, which is there, out of `document` without copying it.
fn take_list(document: Value, path: &str) -> Vec<Value> {
    let keys = if path.is_empty() {
        Vec::new()
    } else {
        split_path(path)
    };
    let found = keys.iter().try_fold(document, |at, key| match at {
        Value::Object(entries) => entries
            .into_iter()
            .find(|(k, _)| k == key)
            .map(|(_, value)| value),
        _ => None,
    });
    match found {
        Some(Value::List(items)) => items,
        _ => Vec::new(),
    }
}

/// Paths of the first lists in `value`, at most five, down to four levels: for messages.
fn find_lists<'a>(value: &'a Value, path: &mut Vec<&'a str>, found: &mut Vec<String>) {
    match value {
        Value::List(_) if found.len() < 5 => found.push(join_path(path.iter().copied())),
        Value::Object(entries) if path.len() < 4 => {
            for (key, value) in entries {
                path.push(key);
                find_lists(value, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use feedline_schemas::config::PaginationKind;

    use super::*;
    use crate::{
        error::ErrorKind,
        http::testing::{Scripted, Step, answer, config, context, ok, raw, read_all},
    };

    async fn read(config: &SourceConfig) -> Result<(Vec<String>, Requests), Error> {
        read_all(config, usize::MAX).await
    }

    async fn read_script(script: &[Step]) -> Result<(Vec<String>, Requests), Error> {
        let server = Scripted::start(script.to_vec()).await;
        read(&config(server.url.as_str(), PaginationKind::Cursor)).await
    }

    const LAST: &str = r#"{"items": [{"i": 2}], "next": null}"#;

    #[tokio::test]
    async fn cursors_are_followed_through_an_empty_page_to_the_end() {
        let server = Scripted::start([
            ok(r#"{"items": [{"i": 0}, {"i": 1}], "next": "a&b"}"#),
            ok(r#"{"items": [], "next": 17}"#),
            ok(LAST),
        ])
        .await;
        let mut config = config(
            server.url.join("v1?key=x%20y&limit=5").unwrap().as_str(),
            PaginationKind::Cursor,
        );
        config.params.insert("sort".into(), "asc".into());
        let (records, requests) = read(&config).await.unwrap();
        assert_eq!(records, [r#"{"i":0}"#, r#"{"i":1}"#, r#"{"i":2}"#]);
        assert_eq!(
            requests,
            Requests {
                requests: 3,
                retries: 0
            }
        );
        let base = "/v1?key=x%20y&limit=5&sort=asc";
        assert_eq!(
            server.targets(),
            [
                base.to_owned(),
                format!("{base}&cursor=a%26b"),
                format!("{base}&cursor=17")
            ]
        );
    }

    #[tokio::test]
    async fn fault_18_every_transient_fault_is_tried_again_and_nothing_is_lost() {
        let faults = [
            answer("429 Too Many Requests\r\nRetry-After: 0", "{}"),
            answer(
                "429 Too Many Requests\r\nRetry-After: Sun, 06 Nov 1994 08:49:37 GMT",
                "{}",
            ),
            answer("408 Request Timeout", ""),
            answer("503 Service Unavailable", "busy"),
            raw("200 OK\r\nContent-Length: 400", br#"{"items": [{"i": 0}]"#),
            raw("200 OK\r\nContent-Length: 12", LAST.as_bytes()),
            raw(
                "200 OK\r\nTransfer-Encoding: chunked",
                b"9\r\n{\"items\":\r\n",
            ),
            raw("200 OK\r\nContent-Encoding: gzip", &[0x1f, 0x8b]),
            ok("<html>Bad gateway</html>"),
            ok(r#"{"error": "quota"}"#),
            ok(r#"{"items": null}"#),
            ok(""),
            Step::Send(Vec::new()),
        ];
        for fault in faults {
            let (records, requests) = read_script(&[fault.clone(), ok(LAST)]).await.unwrap();
            assert_eq!(records, [r#"{"i":2}"#], "{fault:?}");
            assert_eq!(
                requests,
                Requests {
                    requests: 2,
                    retries: 1
                },
                "{fault:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_fault_that_stays_ends_the_run_with_its_last_error() {
        let check = async |body: &str, part: &str| {
            let error = read_script(&[ok(body)]).await.unwrap_err().to_string();
            assert!(
                error.contains(part) && error.contains("(the last of 5 tries)"),
                "{error}"
            );
        };
        check("<html>\n Bad\n gateway</html>", "it looks like HTML or XML").await;
        check(
            r#"{"error": "quota", "code": 7}"#,
            "its keys are `error`, `code`",
        )
        .await;
        check(
            r#"{"data": {"rows": []}, "a.b": []}"#,
            r"it has lists at `data.rows`, `a\.b`",
        )
        .await;
        check(r#"{"items": {"i": 1}}"#, "it has an object at `items`").await;
        check(
            r#"{"items": [], "next": {"page": 2}}"#,
            "`pagination.cursor_path` = `next` is an object",
        )
        .await;
    }

    #[tokio::test]
    async fn a_final_status_is_asked_for_once() {
        let server = Scripted::start([answer("404 Not Found", "no such thing")]).await;
        let error = read(&config(server.url.as_str(), PaginationKind::None))
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("404 Not Found: `no such thing`"),
            "{error}"
        );
        assert_eq!(server.heads().len(), 1);
    }

    #[tokio::test]
    async fn a_long_retry_after_defers_the_run() {
        let error = read_script(&[answer("429 X\r\nRetry-After: 301", "")])
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deferred);
        assert!(
            error
                .to_string()
                .contains("source `quotes` is deferred until 1994-11-06T08:54:3"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_cursor_that_comes_back_ends_the_run() {
        let page = |next: &str| ok(&format!(r#"{{"items": [], "next": "{next}"}}"#));
        for circle in [vec![page("a")], vec![page("a"), page("b"), page("a")]] {
            let error = read_script(&circle).await.unwrap_err().to_string();
            assert!(
                error.contains("`a`") && error.contains("circles"),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn pages_beyond_the_limit_end_the_run() {
        let server = Scripted::start([ok(r#"{"items": [{}]}"#)]).await;
        let mut config = config(server.url.as_str(), PaginationKind::Page);
        config.pagination.max_pages = 3;
        let error = read(&config).await.unwrap_err().to_string();
        assert!(error.contains("`pagination.max_pages` = 3"), "{error}");
        assert_eq!(server.targets(), ["/?page=1", "/?page=2", "/?page=3"]);
    }

    #[tokio::test]
    async fn numbered_pages_replace_a_parameter_of_the_url() {
        let server = Scripted::start([ok(r#"[{"i": 0}]"#), ok("[]")]).await;
        let mut config = config(
            server.url.join("?page=9&q=1").unwrap().as_str(),
            PaginationKind::Page,
        );
        config.records = String::new();
        assert_eq!(read(&config).await.unwrap().0, [r#"{"i":0}"#]);
        assert_eq!(server.targets(), ["/?q=1&page=1", "/?q=1&page=2"]);
    }

    #[tokio::test]
    async fn things_that_are_no_records_are_set_aside() {
        let body = "\u{feff}{\"items\": [{\"i\": 0}, \"ERR\", null, [1]]}";
        let (records, _) = read_script(&[ok(body)]).await.unwrap();
        assert_eq!(
            records,
            [
                r#"{"i":0}"#,
                r#"not_an_object "ERR""#,
                "not_an_object null",
                "not_an_object [1]"
            ]
        );
    }

    #[tokio::test]
    async fn a_position_is_continued_and_an_end_stays_one() {
        let server = Scripted::start([ok(LAST)]).await;
        let mut source = open(
            &config(server.url.as_str(), PaginationKind::Cursor),
            &context(),
        )
        .await
        .unwrap();
        let at = Position::Page {
            page: 7,
            cursor: Some("abc".into()),
        };
        let page = source.next_page(&at).await.unwrap();
        assert_eq!(server.targets(), ["/?cursor=abc"]);
        assert_eq!(
            page.next,
            Position::Done {
                pages: 8,
                files: vec![]
            }
        );
        let end = source.next_page(&page.next).await.unwrap();
        assert_eq!((end.records.len(), end.next), (0, page.next));
        assert_eq!(server.heads().len(), 1);
    }

    #[tokio::test]
    async fn urls_that_cannot_work_name_their_key_and_no_secret() {
        for url in [
            "ftp://host/hunter22",
            "not a url hunter22",
            "http://",
            "demo://nothing",
            "demo://market?sed=hunter22",
        ] {
            let error = read(&config(url, PaginationKind::None)).await.unwrap_err();
            assert!(
                matches!(&error, Error::Config { key, .. } if key == "url"),
                "{error}"
            );
            assert!(!error.to_string().contains("hunter22"), "{error}");
        }
    }
}
