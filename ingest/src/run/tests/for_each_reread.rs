//! Re-reads of a range of a source with a list of values that some have left.

use std::sync::atomic::AtomicBool;

use feedline_schemas::{
    amendment::AmendReport,
    config::{Bounded, PaginationKind, SlicesConfig, UpperEnd},
};

use super::{
    for_each::{asked, each, texts},
    slices::{ingest_once, param},
    *,
};
use crate::{
    Reread, reread,
    testing::{self, Scripted, answer, ok},
};

/// A source of the slices of twenty of each value, from 0 to 100.
struct SlicedSource {
    server: Scripted,
    config: SourceConfig,
    root: Store,
    /// Version of the records.
    version: Arc<AtomicU64>,
    /// True once the slice from 40 on of the value B does not fail.
    is_mended: Arc<AtomicBool>,
}

impl SlicedSource {
    async fn start() -> Self {
        let version = Arc::new(AtomicU64::new(1));
        let is_mended = Arc::new(AtomicBool::new(true));
        let (served, mended) = (Arc::clone(&version), Arc::clone(&is_mended));
        let server = Scripted::answering(move |_, head| {
            let number = |name: &str| -> i64 { param(head, name).unwrap().parse().unwrap() };
            let is_b = param(head, "symbol").as_deref() == Some("B");
            if is_b && number("from") == 40 && !mended.load(Ordering::Relaxed) {
                return answer("403 No", "");
            }
            let version = served.load(Ordering::Relaxed);
            let items =
                (number("from")..number("to")).map(|n| format!(r#"{{"n": {n}, "v": {version}}}"#));
            ok(&format!(
                r#"{{"items": [{}]}}"#,
                items.collect::<Vec<_>>().join(",")
            ))
        })
        .await;
        let mut config = testing::config(server.url.as_str(), PaginationKind::None);
        config.name = Name::new("s").unwrap();
        config.retry.max_tries = Bounded::literal::<1>();
        config.batch.pages = Bounded::literal::<1>();
        config.slices = Some(SlicesConfig {
            from_param: "from".into(),
            to_param: Some("to".into()),
            start: "0".into(),
            end: Some("100".into()),
            lag: "0s".into(),
            step: "20".into(),
            format: "integer".into(),
            upper: UpperEnd::Exclusive,
            clock: Default::default(),
        });
        Self {
            server,
            config,
            root: Store::memory(),
            version,
            is_mended,
        }
    }

    fn list(&mut self, values: &[&str]) {
        self.config.for_each = Some(each("symbol", values));
    }

    async fn ingest(&self) -> Result<SourceReport, Error> {
        ingest_once(&self.root, &self.config).await
    }

    /// Re-reads the range from 20 to 40.
    async fn reread(&self, dry_run: bool) -> Result<AmendReport, Error> {
        let mut all = pipeline("unused");
        all.source[0] = self.config.clone();
        let what = Reread {
            from: Some("20".into()),
            to: Some("40".into()),
            ..Reread::default()
        };
        Box::pin(reread(
            &all,
            &self.config.name,
            &what,
            &context(&self.root),
            dry_run,
        ))
        .await
    }

    /// Number of rows with this text in a column.
    async fn count(&self, column: &str, text: &str) -> usize {
        let all = texts(&self.root, "s", column).await;
        all.iter().filter(|own| *own == text).count()
    }
}

#[tokio::test]
async fn a_reread_keeps_the_rows_of_values_that_have_left_the_list() {
    let mut source = SlicedSource::start().await;
    source.list(&["A", "B", "C"]);
    source.ingest().await.unwrap();
    source.list(&["A"]);
    source.version.store(2, Ordering::Relaxed);
    for dry_run in [true, false] {
        let report = source.reread(dry_run).await.unwrap();
        assert_eq!(
            (report.rows, report.ranges),
            (20, vec!["20 to 40".to_owned()])
        );
        let is_about_them = |note: &String| note.ends_with("their landed rows stay: `B`, `C`");
        assert!(report.notes.iter().any(is_about_them), "{:?}", report.notes);
    }
    let first = source.server.heads().len();
    let report = source.ingest().await.unwrap();
    assert_eq!(asked(&source.server, first), ["A"]);
    assert_eq!(report.rows, 300);
    for symbol in ["A", "B", "C"] {
        assert_eq!(source.count("symbol", symbol).await, 100, "{symbol}");
    }
    assert_eq!(source.count("v", "2").await, 20);
}

#[tokio::test]
async fn a_reread_of_batches_that_values_share_with_others_that_have_left_is_refused() {
    let mut source = SlicedSource::start().await;
    source.config.batch.pages = Bounded::literal::<100>();
    source.list(&["A", "B"]);
    source.ingest().await.unwrap();
    source.list(&["A"]);
    for dry_run in [true, false] {
        let error = source.reread(dry_run).await.unwrap_err().to_string();
        assert!(
            error.starts_with("`source.0.for_each`: ")
                && error.contains("have left the list (`B`)")
                && error.contains("put these values back"),
            "{error}"
        );
    }
    assert_eq!(source.count("symbol", "B").await, 100);
    // What the error names.
    let mut keyed = SlicedSource {
        config: source.config.clone(),
        ..SlicedSource::start().await
    };
    keyed.root = source.root.clone();
    keyed.config.key = vec!["symbol".into(), "n".into()];
    assert_eq!(keyed.reread(true).await.unwrap().rows, 0);
    source.list(&["A", "B"]);
    source.version.store(2, Ordering::Relaxed);
    assert_eq!(source.reread(false).await.unwrap().rows, 200);
    assert_eq!(source.ingest().await.unwrap().rows, 200);
    for (column, text, rows) in [("symbol", "A", 100), ("symbol", "B", 100), ("v", "2", 200)] {
        assert_eq!(source.count(column, text).await, rows, "{text}");
    }
}

#[tokio::test]
async fn a_value_that_left_in_the_middle_of_a_pass_and_returned_does_not_widen_a_reread() {
    let mut source = SlicedSource::start().await;
    source.is_mended.store(false, Ordering::Relaxed);
    source.list(&["A", "B", "C"]);
    source.ingest().await.unwrap_err();
    source.list(&["A", "C"]);
    source.ingest().await.unwrap();
    source.is_mended.store(true, Ordering::Relaxed);
    source.list(&["A", "B", "C"]);
    assert_eq!(source.ingest().await.unwrap().rows, 300);
    // B had twenty rows of the range before it left, and these have landed once.
    let report = source.reread(false).await.unwrap();
    assert_eq!(report.ranges, ["20 to 40"]);
    assert_eq!(report.rows, 60);
    assert_eq!(source.ingest().await.unwrap().rows, 300);
    // The withdrawn batches have no rows, so they do not widen the next one either.
    let report = source.reread(true).await.unwrap();
    assert_eq!((report.rows, report.batches.len()), (60, 3));
}
