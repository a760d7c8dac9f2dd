//! Saved lists of values, and reports about them.

use feedline_schemas::config::PaginationKind;

use super::{
    for_each::{each, texts, warned},
    slices::ingest_once,
    *,
};
use crate::{
    rewind,
    testing::{self, Scripted, ok},
    verify,
};

/// A source of one record for each value.
struct ListSource {
    /// Responds as long as it exists.
    _server: Scripted,
    config: SourceConfig,
    root: Store,
}

impl ListSource {
    async fn start() -> Self {
        let server = Scripted::answering(|_, _| ok(r#"{"items": [{"n": 1}]}"#)).await;
        let mut config = testing::config(server.url.as_str(), PaginationKind::None);
        config.name = Name::new("s").unwrap();
        Self {
            _server: server,
            config,
            root: Store::memory(),
        }
    }

    async fn ingest(&mut self, values: &[&str]) -> SourceReport {
        self.config.for_each = Some(each("symbol", values));
        ingest_once(&self.root, &self.config).await.unwrap()
    }

    fn pipeline(&self) -> PipelineConfig {
        let mut all = pipeline("unused");
        all.source[0] = self.config.clone();
        all
    }

    /// Paths and reasons of the faults that `verify` finds.
    async fn faults(&self) -> Vec<(String, String)> {
        let report = verify(&self.pipeline(), None, &self.root).await.unwrap();
        let damage = report.sources[0].damage.iter();
        let faults = damage.map(|damage| (damage.path.clone(), damage.reason.clone()));
        faults.collect()
    }

    /// Paths of the saved lists.
    async fn lists(&self) -> Vec<String> {
        let files = self.root.list("landing/s/values").await.unwrap();
        files.into_iter().map(|file| file.path).collect()
    }
}

#[tokio::test]
async fn values_that_have_left_the_list_are_neither_done_nor_open() {
    let mut source = ListSource::start().await;
    source.ingest(&["A", "B", "C"]).await;
    let counts = |report: &SourceReport| {
        let slices = report.slices.clone().unwrap();
        (slices.values_done, slices.values_open)
    };
    assert_eq!(counts(&source.ingest(&["A", "C"]).await), (2, 0));
    // Before a run has seen them, new values are open, and a removed one does not count.
    source.config.for_each = Some(each("symbol", &["D", "A", "E", "F"]));
    let report = status(&source.pipeline(), &source.root).await.unwrap();
    assert_eq!(counts(&report.sources[0]), (1, 3));
    assert_eq!(counts(&source.ingest(&["D", "A", "E", "F"]).await), (4, 0));
}

#[tokio::test]
async fn verify_reports_a_saved_list_that_is_missing_or_damaged() {
    let mut source = ListSource::start().await;
    source.ingest(&["A", "B"]).await;
    assert!(source.faults().await.is_empty());
    let list = source.lists().await.remove(0);
    source.root.put(&list, "\"A\"\n\"C\"".into()).await.unwrap();
    let check = async |source: &ListSource, beginning: &str| {
        let faults = source.faults().await;
        let [(path, reason)] = &faults[..] else {
            panic!("{faults:?}");
        };
        assert!(list.ends_with(path.as_str()), "{path}");
        for part in [
            "the next run accepts only a list that begins with the 2 values counted",
            "run `feedline ingest` once with that list, which saves it (`feedline ingest repair` does not)",
        ] {
            let is_described = reason.starts_with(beginning) && reason.contains(part);
            assert!(is_described, "{reason}");
        }
    };
    check(&source, "its content does not have the hash of its name; ").await;
    source.root.delete(&list).await.unwrap();
    check(&source, "it is missing; ").await;
    // A run with the same list saves it.
    source.ingest(&["A", "B"]).await;
    assert!(source.faults().await.is_empty());
}

#[tokio::test]
async fn a_rewind_to_a_list_that_is_not_saved_any_more_says_so() {
    let mut source = ListSource::start().await;
    source.ingest(&["A"]).await;
    source.ingest(&["A", "B"]).await;
    let notes = async |source: &ListSource| {
        let (all, context) = (source.pipeline(), context(&source.root));
        let report = rewind(&all, &source.config.name, 0, &context, true).await;
        report.unwrap().notes
    };
    let is_about_list = |note: &String| note.starts_with("the list of values of that time");
    let found = notes(&source).await;
    assert!(!found.iter().any(is_about_list), "{found:?}");
    for list in source.lists().await {
        source.root.delete(&list).await.unwrap();
    }
    let found = notes(&source).await;
    assert!(found.iter().any(is_about_list), "{found:?}");
}

#[tokio::test]
async fn a_value_that_returns_is_warned_of_where_its_rows_land_again() {
    for (window, warns) in [(Some(0), true), (Some(1), true), (None, false)] {
        let mut source = ListSource::start().await;
        source.config.batch.dedup_window = window;
        source.ingest(&["A", "B"]).await;
        let report = source.ingest(&["A"]).await;
        assert_eq!(warned(&report, "values_returned"), None);
        let report = source.ingest(&["A", "B"]).await;
        let message = warned(&report, "values_returned");
        assert_eq!(message.is_some(), warns, "{window:?}");
        let message = message.unwrap_or("1 value has returned to the list (`B`): ");
        assert!(
            message.starts_with("1 value has returned to the list (`B`): "),
            "{message}"
        );
        let rows = texts(&source.root, "s", "symbol").await.len();
        // With a window of one record, B is the newest one.
        assert_eq!(rows, if window == Some(0) { 3 } else { 2 });
        let report = source.ingest(&["A", "B"]).await;
        assert_eq!(warned(&report, "values_returned"), None);
    }
}
