//! A source that is read in slices.

use std::sync::Mutex;

use feedline_schemas::config::{Bounded, DeclaredType, PaginationKind, SlicesConfig, UpperEnd};
use url::Url;

use super::*;
use crate::testing::{self, Scripted, Step, ok};

/// Records of an API: number and time.
type Rows = Arc<Mutex<Vec<(i64, i64)>>>;

/// An API of seven records a page, the newest first, with `from`, `to` and `offset`, which ends
/// after `cap` records.
pub(super) struct Api {
    pub(super) server: Scripted,
    rows: Rows,
}

pub(super) fn param(head: &str, name: &str) -> Option<String> {
    let target = head.split(' ').nth(1).unwrap();
    let url = Url::parse("http://h/").unwrap().join(target).unwrap();
    let mut pairs = url.query_pairs();
    let value = pairs.find(|(key, _)| key == name).map(|(_, value)| value);
    value.map(|value| value.into_owned())
}

fn number(head: &str, name: &str) -> i64 {
    param(head, name).map_or(0, |value| value.parse().unwrap())
}

impl Api {
    pub(super) async fn start(
        times: impl IntoIterator<Item = i64>,
        cap: usize,
        is_inclusive: bool,
    ) -> Self {
        let rows: Rows = Arc::new(Mutex::new((0..).zip(times).collect()));
        let served = Arc::clone(&rows);
        let server = Scripted::answering(move |_, head| {
            let rows = served.lock().unwrap();
            page(&rows, head, cap, is_inclusive)
        });
        Self {
            server: server.await,
            rows,
        }
    }

    /// Slices of a hundred, batches of about three pages, and a tiny dedup window.
    pub(super) fn config(&self, start: i64, end: i64) -> SourceConfig {
        let mut config = testing::config(self.server.url.as_str(), PaginationKind::Offset);
        config.name = Name::new("s").unwrap();
        config.batch.rows = Bounded::literal::<20>();
        config.batch.dedup_window = Some(1);
        config.slices = Some(SlicesConfig {
            from_param: "from".into(),
            to_param: Some("to".into()),
            start: start.to_string(),
            end: Some(end.to_string()),
            lag: "0s".into(),
            step: "100".into(),
            format: "integer".into(),
            upper: UpperEnd::Exclusive,
            clock: Default::default(),
        });
        config
    }

    /// The requested slices, each once, in order.
    fn asked(&self) -> Vec<(i64, i64)> {
        let heads = self.server.heads();
        let slices = heads
            .iter()
            .map(|head| (number(head, "from"), number(head, "to")));
        let mut slices: Vec<_> = slices.collect();
        slices.dedup();
        slices
    }
}

fn page(rows: &[(i64, i64)], head: &str, cap: usize, is_inclusive: bool) -> Step {
    let (from, to) = (number(head, "from"), number(head, "to"));
    let is_in = |time: i64| from <= time && (time < to || (is_inclusive && time == to));
    let mut rows: Vec<_> = rows.iter().filter(|(_, time)| is_in(*time)).collect();
    rows.sort_by_key(|(n, time)| (-time, *n));
    let total = rows.len();
    rows.truncate(cap);
    let symbol = param(head, "symbol").unwrap_or_default();
    let shown = rows
        .iter()
        .skip(usize::try_from(number(head, "offset")).unwrap())
        .take(7);
    let shown = shown.map(|(n, time)| format!(r#"{{"n":{n},"t":{time},"of":"{symbol}"}}"#));
    let shown: Vec<_> = shown.collect();
    ok(&format!(
        r#"{{"items": [{}], "total": {total}}}"#,
        shown.join(",")
    ))
}

pub(super) async fn ingest_once(
    root: &Store,
    config: &SourceConfig,
) -> Result<SourceReport, Error> {
    run_source(config, &context(root)).await
}

/// All numbers that have landed, in order of size.
pub(super) async fn landed_numbers(root: &Store) -> Vec<i64> {
    let mut all = numbers(root).await;
    all.sort_unstable();
    all
}

/// Times from 0 to 999: 150 of them dense in the sixth slice, others sparse.
fn times() -> Vec<i64> {
    let thin = (0..120).map(|i| i * 37 % 1_000);
    thin.chain((0..150).map(|i| 520 + i % 10)).collect()
}

#[tokio::test]
async fn fault_27_a_slice_that_reaches_the_cap_is_bisected_and_every_record_lands_once() {
    let api = Api::start(times(), 50, false).await;
    let mut config = api.config(0, 1_000);
    config.pagination.common.max_records = Some(Bounded::literal::<50>());
    let root = Store::memory();
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!(landed_numbers(&root).await, (0..270).collect::<Vec<_>>());
    assert_eq!(report.status, "complete");
    // Records of a slice before its halving are returned again.
    assert!(report.duplicates >= 100, "{}", report.duplicates);
    let asked = api.asked();
    for slice in [
        (500, 600),
        (500, 550),
        (500, 525),
        (525, 550),
        (550, 600),
        (900, 1_000),
    ] {
        assert!(asked.contains(&slice), "{slice:?} {asked:?}");
    }

    // With a known total it splits before it reads, so no record comes twice.
    config.pagination.common.total_path = Some("total".into());
    let (root, api) = (Store::memory(), Api::start(times(), 50, false).await);
    config.url = api.server.url.to_string();
    let told = ingest_once(&root, &config).await.unwrap();
    assert_eq!(landed_numbers(&root).await, (0..270).collect::<Vec<_>>());
    assert_eq!(told.duplicates, 0);
    assert!(told.requests < report.requests);
}

#[tokio::test]
async fn fault_27_a_slice_that_stops_at_a_round_number_below_its_total_is_cut_though_no_cap_is_told()
 {
    let times = || (0..1_500).map(|i| i % 100);
    let api = Api::start(times(), 1_000, false).await;
    let mut config = api.config(0, 100);
    config.pagination.common.total_path = Some("total".into());
    let root = Store::memory();
    ingest_once(&root, &config).await.unwrap();
    assert_eq!(landed_numbers(&root).await, (0..1_500).collect::<Vec<_>>());
    assert!(api.asked().contains(&(50, 100)), "{:?}", api.asked());

    // With kept duplicates, the records would land twice.
    config.batch.dedup_window = Some(0);
    let error = ingest_once(&Store::memory(), &config).await.unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error, Error::Incomplete { .. }) && text.contains("`batch.dedup_window` = 0"),
        "{text}"
    );
}

#[tokio::test]
async fn fault_27_a_slice_of_the_smallest_unit_that_reaches_the_cap_is_incomplete_and_named() {
    for total_path in [None, Some("total".to_owned())] {
        let api = Api::start(std::iter::repeat_n(707, 60), 50, false).await;
        let mut config = api.config(0, 1_000);
        config.pagination.common.max_records = Some(Bounded::literal::<50>());
        config.pagination.common.total_path = total_path;
        let root = Store::memory();
        for _ in 0..2 {
            let error = ingest_once(&root, &config).await.unwrap_err();
            assert!(matches!(error, Error::Incomplete { .. }), "{error}");
            let error = error.to_string();
            let part = "did not return all of its records: ";
            assert!(
                error.contains(part)
                    && error.contains("the slice 707 to 708 cannot be halved further"),
                "{error}"
            );
        }
    }
    // One more second of resolution in the API would do; so does a cap that it does not have.
    let api = Api::start(std::iter::repeat_n(707, 60), 70, false).await;
    let mut config = api.config(0, 1_000);
    config.pagination.common.max_records = Some(Bounded::literal::<70>());
    let root = Store::memory();
    assert_eq!(ingest_once(&root, &config).await.unwrap().rows, 60);
}

/// Kills a run at each write of a kind, resumes it, and compares with an uninterrupted one.
pub(super) async fn check_kills(config: &SourceConfig) {
    let root = Store::memory();
    ingest_once(&root, config).await.unwrap();
    let expected = snapshot(&root).await;
    let batches = entries(&root).await.len() as u64;
    assert!(batches > 5);
    for (operation, path, effect) in [
        (Operation::Put, "data/", Effect::FailAfter),
        (Operation::Create, "log/", Effect::FailBefore),
    ] {
        for batch in 0..batches {
            let root = Store::memory();
            let faults = Faults::new(vec![rule(operation, path, effect, batch, 99)]);
            // The last batches may have no rows, and so no file.
            if ingest_once(&root.with_faults(faults), config).await.is_ok() {
                assert!(batch > 3 && operation == Operation::Put);
                break;
            }
            ingest_once(&root, config).await.unwrap();
            assert_eq!(snapshot(&root).await, expected, "{operation:?} {batch}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_batch_slices_land_the_same_bytes() {
    let few = times().into_iter().step_by(3);
    let api = Api::start(few, 17, true).await;
    let mut config = api.config(0, 1_000);
    config.pagination.common.max_records = Some(Bounded::literal::<17>());
    Box::pin(check_kills(&config)).await;
}

#[tokio::test]
async fn a_wider_range_costs_what_is_missing() {
    let api = Api::start(times(), 1_000, false).await;
    let root = Store::memory();
    ingest_once(&root, &api.config(200, 400)).await.unwrap();
    assert_eq!(api.asked(), [(200, 300), (300, 400)]);
    let report = ingest_once(&root, &api.config(100, 700)).await.unwrap();
    assert_eq!(
        api.asked()[2..],
        [(100, 200), (400, 500), (500, 600), (600, 700)]
    );
    let wanted = |(_, time): &&(i64, i64)| (100..700).contains(time);
    let expected = api.rows.lock().unwrap().iter().filter(wanted).count();
    assert_eq!((report.rows, report.duplicates), (expected as u64, 0));
    // A range within the finished one sends no request, and neither does a repetition.
    for config in [api.config(300, 350), api.config(100, 700)] {
        let again = ingest_once(&root, &config).await.unwrap();
        assert_eq!((again.requests, again.batches), (0, report.batches));
    }
}

#[tokio::test(start_paused = true)]
async fn a_range_that_changes_in_the_middle_of_a_pass_counts_after_it() {
    let api = Api::start(times(), 1_000, false).await;
    let root = Store::memory();
    let faults = Faults::new(vec![rule(
        Operation::Create,
        "log/",
        Effect::FailBefore,
        2,
        99,
    )]);
    ingest_once(&root.with_faults(faults), &api.config(0, 600))
        .await
        .unwrap_err();
    let report = ingest_once(&root, &api.config(-100, 1_000)).await.unwrap();
    assert_eq!(landed_numbers(&root).await, (0..270).collect::<Vec<_>>());
    assert_eq!(report.slices.unwrap().open, 0);
    let asked = api.asked();
    let last = &asked[asked.len() - 6..];
    assert_eq!(last[..2], [(500, 600), (-100, 0)]);
    assert_eq!(last[5], (900, 1_000));
}

/// A source of slices that share their ends: ten records at each end, and a hundred between, more than
/// the window holds.
async fn with_shared_ends() -> (Api, SourceConfig) {
    let times = (0..=3).flat_map(|i| {
        vec![i * 100; 10]
            .into_iter()
            .chain(i * 100 + 1..i * 100 + 99)
    });
    let api = Api::start(times, 1_000, true).await;
    let mut config = api.config(0, 300);
    let slices = config.slices.as_mut().unwrap();
    (slices.format, slices.step) = ("unix_s".into(), "100s".into());
    slices.upper = UpperEnd::Inclusive;
    (api, config)
}

#[tokio::test]
async fn a_reject_at_an_end_that_two_slices_share_counts_once() {
    let (_api, mut config) = with_shared_ends().await;
    config.contract.max_reject_fraction = Real::literal(1.0);
    // An empty text.
    let column = config.contract.column.entry("of".to_owned()).or_default();
    column.r#type = Some(DeclaredType::Bool);
    let report = ingest_once(&Store::memory(), &config).await.unwrap();
    assert_eq!((report.rejected, report.duplicates), (334, 20));
}

#[tokio::test]
async fn what_lies_at_an_end_that_two_slices_share_lands_once() {
    let (_api, mut config) = with_shared_ends().await;
    let root = Store::memory();
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, report.duplicates), (334, 20));
    // A wider range shares an end with a range finished by another run.
    config.slices.as_mut().unwrap().end = Some("400".into());
    let report = ingest_once(&root, &config).await.unwrap();
    assert_eq!((report.rows, report.duplicates), (432, 30));
    assert_eq!(landed_numbers(&root).await, (0..432).collect::<Vec<_>>());
}

/// A run of a process that begins so many days after 1994-11-06.
async fn on_day(root: &Store, config: &SourceConfig, days: u64) -> SourceReport {
    let context = Context {
        root: root.clone(),
        ..testing::context_after(days * 86_400)
    };
    run_source(config, &context).await.unwrap()
}

#[tokio::test]
async fn without_an_end_a_finished_source_is_asked_for_what_has_become_due() {
    let server = Scripted::answering(|_, head| {
        let day = param(head, "day").unwrap();
        let symbol = param(head, "to").unwrap_or_default();
        ok(&format!(
            r#"{{"items": [{{"day": "{day}", "to": "{symbol}"}}]}}"#
        ))
    })
    .await;
    let mut config = testing::config(server.url.as_str(), PaginationKind::None);
    config.name = Name::new("s").unwrap();
    config.slices = Some(SlicesConfig {
        from_param: "day".into(),
        to_param: None,
        start: "1994-11-03".into(),
        end: None,
        lag: "1d".into(),
        step: "1d".into(),
        format: "%Y-%m-%d".into(),
        upper: UpperEnd::Exclusive,
        clock: Default::default(),
    });
    let root = Store::memory();
    let first = on_day(&root, &config, 0).await;
    assert_eq!(server.targets(), ["/?day=1994-11-03", "/?day=1994-11-04"]);
    assert_eq!((first.rows, first.batches), (2, 1));
    // On the same day nothing is due, and no entry is added.
    assert_eq!(on_day(&root, &config, 0).await.requests, 0);
    let later = on_day(&root, &config, 2).await;
    assert_eq!(
        server.targets()[2..],
        ["/?day=1994-11-05", "/?day=1994-11-06"]
    );
    assert_eq!((later.rows, later.batches), (4, 2));
    let slices = later.slices.unwrap();
    assert_eq!((slices.done, slices.open), (4, 0));
    assert_eq!(slices.ranges, ["1994-11-03 to 1994-11-07"]);
    // An end in the future counts as now.
    config.slices.as_mut().unwrap().end = Some("1994-12-01".into());
    let ahead = on_day(&root, &config, 3).await;
    assert_eq!((ahead.rows, ahead.requests), (5, 1));
    let slices = ahead.slices.unwrap();
    assert_eq!((slices.done, slices.open, slices.in_work), (5, 23, None));
}

#[tokio::test(start_paused = true)]
async fn status_tells_slices_done_and_open() {
    let api = Api::start(times(), 1_000, false).await;
    let config = api.config(0, 1_000);
    let mut pipeline = pipeline("unused");
    pipeline.source[0] = config.clone();
    let root = Store::memory();
    let slices = async |root: &Store| {
        let report = status(&pipeline, root).await.unwrap();
        report.sources[0].slices.clone().unwrap()
    };
    let none = slices(&root).await;
    assert_eq!((none.done, none.open, none.values_open), (0, 10, 1));
    let faults = Faults::new(vec![rule(
        Operation::Create,
        "log/",
        Effect::FailBefore,
        3,
        99,
    )]);
    ingest_once(&root.with_faults(faults), &config)
        .await
        .unwrap_err();
    let some = slices(&root).await;
    assert_eq!(some.done + some.open, 10);
    assert!((1..9).contains(&some.done), "{some:?}");
    assert_eq!(some.ranges, [format!("0 to {}", some.done * 100)]);
    assert!(
        some.in_work
            .unwrap()
            .starts_with(&format!("{} to ", some.done * 100))
    );
    ingest_once(&root, &config).await.unwrap();
    let all = slices(&root).await;
    assert_eq!((all.done, all.open, all.values_done), (10, 0, 1));
}

#[tokio::test]
async fn a_range_its_step_and_its_parameters_may_change_and_its_units_may_not() {
    let api = Api::start(times(), 1_000, false).await;
    let root = Store::memory();
    ingest_once(&root, &api.config(0, 200)).await.unwrap();
    let mut step = api.config(0, 300);
    step.slices.as_mut().unwrap().step = "50".into();
    ingest_once(&root, &step).await.unwrap();
    assert_eq!(api.asked()[2..], [(200, 250), (250, 300)]);
    let mut other = api.config(0, 200);
    other.slices.as_mut().unwrap().from_param = "after".into();
    let changed = ingest_once(&root, &other).await.unwrap().settings_changed;
    assert_eq!(changed.unwrap().changes[0].key, "slices.from_param");
    other.slices.as_mut().unwrap().format = "%Y".into();
    let error = ingest_once(&root, &other).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("`slices.format`: was `\"integer\"` when"),
        "{error}"
    );
}
