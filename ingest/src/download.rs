//! A file behind a URL with a query, such as a table export of an API.
//!
//! No store has it. It is requested like a page of an API, with the source's `params`, `headers`
//! and `retry`. It is held in memory (`retry.max_body_bytes` bounds it) and read from there. Each
//! run requests it and detects changes by its bytes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use feedline_http::{Got, Http, RequestContext, Retry, UncertainEnds, redacted};
use feedline_readers::file_format;
use feedline_schemas::config::{FileFormat, SourceConfig};
use feedline_storage::{Listed, Store};
use reqwest::header::{CONTENT_TYPE, ETAG, HeaderMap};
use url::Url;

use crate::{context::Context, error::Error};

/// Request for one file.
#[derive(Clone, Debug)]
pub(crate) struct Download {
    url: Url,
    http: Arc<Http>,
    config: SourceConfig,
    requests: RequestContext,
    retries: Arc<AtomicU64>,
    uncertain_ends: UncertainEnds,
}

/// A file that was downloaded.
pub(crate) struct Downloaded {
    pub(crate) store: Store,
    pub(crate) listed: Listed,
    /// URL without the values of its query: a key may be one.
    pub(crate) url: String,
    pub(crate) body: Bytes,
    /// Its `Content-Type`; empty without one.
    pub(crate) content_type: String,
}

impl Downloaded {
    /// Format by its `Content-Type`.
    pub(crate) fn format(&self) -> Option<FileFormat> {
        file_format::of_media_type(&self.content_type)
    }
}

impl Download {
    /// Resolves the download of `config`; `None` if its URL has no query and it has no `params`. A file
    /// without a known end is added to `uncertain_ends`.
    ///
    /// # Errors
    /// [`Error::Config`] for a URL, a header or a secret that cannot be sent.
    pub(crate) fn of(
        config: &SourceConfig,
        uncertain_ends: &UncertainEnds,
        context: &Context,
    ) -> Result<Option<Self>, Error> {
        let has_query = config.url.contains('?') || !config.params.is_empty();
        if !(config.is_web() && has_query) {
            return Ok(None);
        }
        let mut url = Url::parse(&config.url)
            .map_err(|e| Error::config("url", format!("it is no URL: {e}")))?;
        if !config.params.is_empty() {
            url.query_pairs_mut().extend_pairs(&config.params);
        }
        let requests = context.requests_of(config.name.as_str());
        let http = Http::new(&url, &config.headers, &config.retry, &requests)?;
        let http = http.with_tls(config, &requests)?;
        let http = http.accepting("*/*").with_limits(config, 1);
        Ok(Some(Self {
            url,
            http: Arc::new(http.with_auth(config.auth.as_ref(), &requests)?),
            config: config.clone(),
            requests,
            retries: Arc::default(),
            uncertain_ends: uncertain_ends.clone(),
        }))
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.http.requests()
    }

    /// Tries beyond the first so far.
    pub(crate) fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Downloads the file, with the tries of `retry`.
    ///
    /// # Errors
    /// [`Error::Http`], [`Error::Body`], [`Error::Deferred`], [`Error::Cancelled`].
    pub(crate) async fn get(&self) -> Result<Downloaded, Error> {
        let SourceConfig { name, retry, .. } = &self.config;
        let mut retry = Retry::new(name.as_str(), retry, &self.requests);
        let fetched = retry.run(|| self.http.fetch(&self.url)).await;
        self.retries.fetch_add(retry.retries(), Ordering::Relaxed);
        let Got {
            headers,
            body,
            has_known_end,
            ..
        } = fetched?;
        if !has_known_end {
            self.uncertain_ends.add(&self.url);
        }
        let path = self.url.path().rsplit('/').next().unwrap_or_default();
        let path = if path.is_empty() { "download" } else { path };
        let store = Store::memory();
        let bytes = body.len() as u64;
        store.put(path, body.clone()).await?;
        Ok(Downloaded {
            listed: Listed {
                path: path.to_owned(),
                bytes,
                modified: None,
                etag: header(&headers, ETAG.as_str()).map(str::to_owned),
            },
            store,
            url: redacted(&self.url),
            body,
            content_type: header(&headers, CONTENT_TYPE.as_str())
                .unwrap_or_default()
                .to_owned(),
        })
    }
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{config::load, report::IngestReport};

    use super::*;
    use crate::{
        run::ingest,
        testing::{Scripted, answer, context, raw},
    };

    async fn bring(text: &str, root: &Store) -> Result<IngestReport, Error> {
        let text = format!("[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\n{text}\n");
        let config = load("p.toml", &text, &[]).unwrap().config;
        let context = Context {
            root: root.clone(),
            ..context()
        };
        ingest(&config, None, &context).await
    }

    fn csv(body: &str) -> crate::testing::Step {
        answer("200 OK\r\nContent-Type: text/csv; charset=utf-8", body)
    }

    #[tokio::test]
    async fn a_table_behind_a_query_is_a_file_that_may_grow() {
        let bodies = ["d;v\n1;2\n", "d;v\n1;2\n", "d;v\n1;2\n3;4\n", "d;v\n9;9\n"];
        let server = Scripted::start(bodies.map(csv)).await;
        let text = format!(
            "type = \"files\"\nurl = \"{}table?key=plain\"\nparams = {{ format = \"csv\" }}\nheaders = {{ token = {{ env = \"T\" }} }}\n",
            server.url
        );
        let root = Store::memory();
        for rows in [1, 1, 2, 1] {
            assert_eq!(bring(&text, &root).await.unwrap().rows, rows);
        }
        assert_eq!(server.targets(), ["/table?key=plain&format=csv"; 4]);
        let heads = server.heads();
        assert!(heads[0].contains("token: secret-T"), "{heads:?}");
        for file in root.list("landing/s/log").await.unwrap() {
            let entry = String::from_utf8(root.get(&file.path).await.unwrap().to_vec()).unwrap();
            assert!(
                !entry.contains("plain") && !entry.contains("secret-T"),
                "{entry}"
            );
        }
    }

    #[tokio::test]
    async fn new_content_of_equal_length_lands() {
        let bodies = ["d;v\n1;2\n", "d;v\n1;2\n", "d;v\n1;3\n"];
        let server = Scripted::start(bodies.map(csv)).await;
        let text = format!("type = \"files\"\nurl = \"{}table?day=1\"\n", server.url);
        let root = Store::memory();
        for new_rows in [1, 0, 1] {
            let report = bring(&text, &root).await.unwrap();
            let source = &report.sources[0];
            assert_eq!((source.rows, source.new_rows), (1, Some(new_rows)));
        }
    }

    #[tokio::test]
    async fn a_download_that_broke_off_is_counted_as_a_retry() {
        let broken = raw(
            "200 OK\r\nContent-Type: text/csv\r\nContent-Length: 8",
            b"d;v\n",
        );
        let server = Scripted::start([broken, csv("d;v\n1;2\n")]).await;
        let text = format!(
            "type = \"files\"\nurl = \"{}table?key=a\"\nretry = {{ base_ms = 1, cap_ms = 2 }}",
            server.url
        );
        let report = bring(&text, &Store::memory()).await.unwrap();
        assert_eq!(report.rows, 1);
        let source = &report.sources[0];
        assert_eq!((source.requests, source.retries), (2, 1));
    }

    #[tokio::test]
    async fn a_download_has_the_declared_encoding() {
        let body = b"d;v\nK\xf6ln;1\nF\xfcssen;2\n";
        let head = "200 OK\r\nContent-Type: text/csv; charset=ISO-8859-1\r\nContent-Length: 20";
        let server = Scripted::start([raw(head, body)]).await;
        let text = format!("type = \"files\"\nurl = \"{}t?x=1\"\n", server.url);
        let report = bring(&text, &Store::memory()).await.unwrap();
        assert_eq!((report.rows, report.sources[0].rejected), (2, 0));
    }

    #[tokio::test]
    async fn a_file_whose_format_nothing_tells_is_one_clear_error() {
        let server = Scripted::start([answer("200 OK", "a\n1\n")]).await;
        let text = format!("type = \"files\"\nurl = \"{}t?x=1\"\n", server.url);
        let error = bring(&text, &Store::memory())
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("set `format`, such as to `csv`"), "{error}");
        let text = format!("{text}format = \"csv\"\n");
        assert_eq!(bring(&text, &Store::memory()).await.unwrap().rows, 1);
    }

    #[tokio::test]
    async fn a_table_where_json_should_be_says_so_at_once() {
        let server = Scripted::start([csv("FREQ,V\nM,1\n")]).await;
        let text = format!(
            "type = \"rest\"\nurl = \"{}t?x=1\"\nresponse = {{ format = \"json\" }}\n",
            server.url
        );
        let error = bring(&text, &Store::memory())
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("`response.format = \"csv\"`"), "{error}");
        assert_eq!(server.heads().len(), 1, "{error}");
    }
}
