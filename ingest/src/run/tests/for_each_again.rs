//! A source that is requested for each value of a list, and again by each run.

use std::sync::Mutex;

use feedline_schemas::config::{
    Bounded, DeclaredType, ForEachConfig, MissingValue, PaginationKind, Refresh,
};

use super::{
    slices::{ingest_once, param},
    *,
};
use crate::testing::{self, Scripted, Step, answer, ok};

/// Version and price of each symbol.
type Prices = Arc<Mutex<BTreeMap<String, (u32, u32)>>>;

/// A server of prices by symbol. With `has_tags` a response has its version as `ETag`.
struct Market {
    server: Scripted,
    prices: Prices,
}

impl Market {
    async fn start(symbols: &[&str], has_tags: bool) -> Self {
        let prices = symbols.iter().map(|name| ((*name).to_owned(), (1, 10)));
        let prices: Prices = Arc::new(Mutex::new(prices.collect()));
        let served = Arc::clone(&prices);
        let server = Scripted::answering(move |_, head| respond(&served, has_tags, head)).await;
        Self { server, prices }
    }

    fn put(&self, symbol: &str, version: u32, price: u32) {
        let mut prices = self.prices.lock().unwrap();
        prices.insert(symbol.to_owned(), (version, price));
    }

    /// A source of these symbols, with a window of one record.
    fn config(&self, symbols: &[&str]) -> SourceConfig {
        let mut config = testing::config(self.server.url.as_str(), PaginationKind::None);
        config.name = Name::new("s").unwrap();
        config.refresh = Refresh::IfChanged;
        config.batch.dedup_window = Some(1);
        config.retry.max_tries = Bounded::literal::<1>();
        config.limits.concurrency = Some(Bounded::literal::<1>());
        config.for_each = Some(ForEachConfig {
            param: "symbol".into(),
            values: symbols.iter().map(|name| (*name).to_owned()).collect(),
            source: None,
            column: None,
            r#as: None,
            missing: MissingValue::Stop,
        });
        config
    }

    /// Symbols of the requests since `first`.
    fn asked(&self, first: usize) -> Vec<String> {
        let heads = self.server.heads().split_off(first);
        heads
            .iter()
            .map(|head| param(head, "symbol").unwrap())
            .collect()
    }
}

fn respond(prices: &Prices, has_tags: bool, head: &str) -> Step {
    let prices = prices.lock().unwrap();
    let Some((version, price)) = prices.get(&param(head, "symbol").unwrap()) else {
        return answer("403 No", "");
    };
    let tag = format!("\"v{version}\"");
    let body = format!(r#"{{"items": [{{"price": {price}}}]}}"#);
    match has_tags {
        true if head.contains(&format!("if-none-match: {tag}\r\n")) => {
            answer("304 Not Modified", "")
        }
        true => answer(&format!("200 OK\r\nETag: {tag}"), &body),
        false => ok(&body),
    }
}

/// New rows, duplicates and batches of a run.
fn counts(report: &SourceReport) -> (Option<u64>, u64, u64) {
    (report.new_rows, report.duplicates, report.batches)
}

#[tokio::test]
async fn each_run_reads_every_value_again_and_lands_what_has_changed() {
    for has_tags in [false, true] {
        let market = Market::start(&["A", "B", "C"], has_tags).await;
        let config = market.config(&["A", "B", "C"]);
        let root = Store::memory();
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!(counts(&report), (Some(3), 0, 1));
        // Nothing has changed: every value is requested, and the log stays as it is.
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!(market.asked(3), ["A", "B", "C"]);
        assert_eq!((report.new_rows, report.batches), (Some(0), 1));
        let unchanged = report.skipped.get("unchanged").copied();
        assert_eq!(unchanged, has_tags.then_some(3));
        market.put("B", 2, 20);
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!(market.asked(6), ["A", "B", "C"]);
        assert_eq!(
            (report.new_rows, report.batches),
            (Some(1), 2),
            "{has_tags}"
        );
        assert_eq!(report.rows, 4);
    }
}

#[tokio::test]
async fn an_earlier_state_of_a_key_lands_again() {
    let market = Market::start(&["A"], false).await;
    let mut config = market.config(&["A"]);
    config.key = vec!["symbol".into()];
    let root = Store::memory();
    for (price, rows) in [(10, 1), (20, 1), (10, 1), (10, 0)] {
        market.put("A", 1, price);
        let report = ingest_once(&root, &config).await.unwrap();
        assert_eq!(report.new_rows, Some(rows), "{price}");
    }
}

#[tokio::test]
async fn a_reject_that_each_run_returns_counts_once() {
    let market = Market::start(&["A", "B"], false).await;
    let mut config = market.config(&["A", "B"]);
    config.contract.max_reject_fraction = Real::literal(1.0);
    let column = config
        .contract
        .column
        .entry("price".to_owned())
        .or_default();
    column.r#type = Some(DeclaredType::Bool);
    let root = Store::memory();
    for new_rejected in [2, 0, 0] {
        let report = ingest_once(&root, &config).await.unwrap();
        let found = (report.rejected, report.new_rejected);
        assert_eq!(found, (2, Some(new_rejected)));
    }
}

#[tokio::test]
async fn an_interrupted_pass_is_continued_and_not_begun_again() {
    let market = Market::start(&["A", "C"], false).await;
    let mut config = market.config(&["A", "B", "C"]);
    config.batch.pages = Bounded::literal::<1>();
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap_err();
    assert_eq!(market.asked(0), ["A", "B"]);
    market.put("B", 1, 10);
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!(market.asked(2), ["B", "C"]);
    assert_eq!(report.rows, 3);
    // The same in a pass that reads them again, with another value in the list by then.
    market.prices.lock().unwrap().remove("C");
    ingest_once(&root, &config).await.unwrap_err();
    assert_eq!(market.asked(4), ["A", "B", "C"]);
    market.put("C", 2, 30);
    market.put("D", 1, 10);
    config
        .for_each
        .as_mut()
        .unwrap()
        .values
        .insert(0, "D".into());
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!(market.asked(7), ["C", "D"]);
    assert_eq!((report.new_rows, report.rows), (Some(2), 5));
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!(market.asked(9), ["A", "B", "C", "D"]);
    assert_eq!(report.new_rows, Some(0));
}
