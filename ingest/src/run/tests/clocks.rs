//! Wall clocks that are wrong.

use std::{
    sync::Mutex,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use feedline_schemas::config::{
    IncrementalConfig, PaginationKind, Refresh, SlicesConfig, UpperEnd,
};
use feedline_storage::clock::Clock;

use super::{slices::param, *};
use crate::testing::{self, Scripted, Step, answer};

pub(super) const DAY: u64 = 86_400;
/// 2026-11-22T10:00:00Z.
const NOW: u64 = 1_795_341_600;

/// A wall clock set by hand.
#[derive(Debug)]
pub(super) struct Wall(pub(super) Mutex<u64>);

impl Wall {
    pub(super) fn at(unix_s: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(unix_s)))
    }

    pub(super) fn set(&self, unix_s: u64) {
        *self.0.lock().unwrap() = unix_s;
    }
}

impl Clock for Wall {
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    fn unix(&self) -> Duration {
        Duration::from_secs(*self.0.lock().unwrap())
    }
}

pub(super) fn date_of(unix_s: u64) -> String {
    let at: SystemTime = UNIX_EPOCH + Duration::from_secs(unix_s);
    httpdate::fmt_http_date(at)
}

/// A success of a server with the clock `unix_s`, sent as `Date` if given.
pub(super) fn dated(unix_s: Option<u64>, body: &str) -> Step {
    let date = unix_s.map(|at| format!("\r\nDate: {}", date_of(at)));
    answer(&format!("200 OK{}", date.unwrap_or_default()), body)
}

/// Runs a source on a machine whose clock is `wall`.
async fn run_at(
    root: &Store,
    config: &SourceConfig,
    wall: &Arc<Wall>,
) -> Result<SourceReport, Error> {
    let context = Context {
        clock: Arc::clone(wall) as _,
        ..context(root)
    };
    run_source(config, &context).await
}

/// Lists the landed days since 1970, in order; each has one record.
async fn landed_days(root: &Store) -> Vec<i64> {
    let mut days = numbers(root).await;
    days.sort_unstable();
    days
}

fn codes(report: &SourceReport) -> Vec<&str> {
    let codes = report.warnings.iter();
    codes.map(|warning| warning.code.as_str()).collect()
}

/// An API with a record for each day that has ended by the true clock; its responses have a `Date`
/// if `dates`.
async fn daily(true_time: &Arc<Wall>, dates: bool) -> Scripted {
    let clock = Arc::clone(true_time);
    Scripted::answering(move |_, head| {
        let now = clock.unix().as_secs();
        let day = |name| {
            let date: jiff::civil::Date = param(head, name).unwrap().parse().unwrap();
            let at = date.to_zoned(jiff::tz::TimeZone::UTC).unwrap();
            at.timestamp().as_second() / 86_400
        };
        let over = i64::try_from(now / DAY).unwrap();
        let days = day("from")..day("to").min(over);
        let items: Vec<String> = days.map(|day| format!(r#"{{"n":{day}}}"#)).collect();
        let body = format!(r#"{{"items": [{}]}}"#, items.join(","));
        dated(dates.then_some(now), &body)
    })
    .await
}

fn by_days(server: &Scripted) -> SourceConfig {
    let mut config = testing::config(server.url.as_str(), PaginationKind::None);
    config.name = Name::new("s").unwrap();
    config.slices = Some(SlicesConfig {
        from_param: "from".into(),
        to_param: Some("to".into()),
        start: "2026-11-20".into(),
        end: None,
        lag: "0s".into(),
        step: "1d".into(),
        format: "%Y-%m-%d".into(),
        upper: UpperEnd::Exclusive,
        clock: Default::default(),
    });
    config
}

#[tokio::test]
async fn a_clock_that_is_days_ahead_marks_no_day_as_done_that_the_server_has_not_seen() {
    let true_time = Wall::at(NOW);
    let server = daily(&true_time, true).await;
    let (root, config) = (Store::memory(), by_days(&server));
    let wall = Wall::at(NOW + 7 * DAY);
    let first = run_at(&root, &config, &wall).await.unwrap();
    assert_eq!(first.rows, 2);
    assert_eq!(
        first.slices.as_ref().unwrap().ranges,
        ["2026-11-20 to 2026-11-22"]
    );
    assert_eq!(codes(&first), ["clock_differs"]);
    // A repetition has no news, and adds no entry.
    let again = run_at(&root, &config, &wall).await.unwrap();
    assert_eq!((again.rows, again.batches), (2, first.batches));
    // Five days later the clock is right.
    true_time.set(NOW + 5 * DAY);
    wall.set(NOW + 5 * DAY);
    let right = run_at(&root, &config, &wall).await.unwrap();
    let first_day = i64::try_from(NOW / DAY).unwrap() - 2;
    assert_eq!(
        landed_days(&root).await,
        (first_day..first_day + 7).collect::<Vec<_>>()
    );
    assert_eq!((right.rows, codes(&right).len()), (7, 0));
}

#[tokio::test]
async fn days_that_were_marked_as_done_ahead_of_time_are_read_again_and_said() {
    let true_time = Wall::at(NOW - DAY);
    let server = daily(&true_time, false).await;
    let (root, config) = (Store::memory(), by_days(&server));
    let wall = Wall::at(NOW - DAY);
    assert_eq!(run_at(&root, &config, &wall).await.unwrap().rows, 1);
    // No response reports the time, and the clock goes wrong.
    true_time.set(NOW);
    wall.set(NOW + 7 * DAY);
    let wrong = run_at(&root, &config, &wall).await.unwrap();
    assert_eq!(wrong.rows, 2);
    assert_eq!(wrong.slices.unwrap().ranges, ["2026-11-20 to 2026-11-29"]);
    let asked = server.targets().len();
    true_time.set(NOW + 5 * DAY);
    wall.set(NOW + 5 * DAY);
    let right = run_at(&root, &config, &wall).await.unwrap();
    let first_day = i64::try_from(NOW / DAY).unwrap() - 2;
    assert_eq!(
        landed_days(&root).await,
        (first_day..first_day + 7).collect::<Vec<_>>()
    );
    assert_eq!(codes(&right), ["slices_read_again"]);
    // From the end of the last right pass on: the 21st to the 26th.
    assert_eq!(server.targets().len() - asked, 6);
    // With kept duplicates they would land twice: that is refused.
    let (other, mut keeps) = (Store::memory(), config.clone());
    keeps.batch.dedup_window = Some(0);
    wall.set(NOW + 9 * DAY);
    run_at(&other, &keeps, &wall).await.unwrap();
    wall.set(NOW + 5 * DAY);
    let error = run_at(&other, &keeps, &wall).await.unwrap_err().to_string();
    assert!(error.contains("batch.dedup_window"), "{error}");
}

#[tokio::test]
async fn a_clock_that_is_behind_reads_nothing_again_where_the_server_tells_the_time() {
    let true_time = Wall::at(NOW);
    let server = daily(&true_time, true).await;
    let (root, config) = (Store::memory(), by_days(&server));
    let wall = Wall::at(NOW);
    let first = run_at(&root, &config, &wall).await.unwrap();
    wall.set(NOW - DAY);
    let behind = run_at(&root, &config, &wall).await.unwrap();
    assert_eq!((behind.rows, behind.batches), (first.rows, first.batches));
    wall.set(NOW + DAY);
    true_time.set(NOW + DAY);
    let later = run_at(&root, &config, &wall).await.unwrap();
    assert_eq!((later.rows, later.duplicates), (3, 0));
}

/// API of records by their time of change; `since` selects the records at or after it.
async fn feed(rows: &Arc<Mutex<Vec<String>>>, true_time: &Arc<Wall>) -> Scripted {
    let (rows, clock) = (Arc::clone(rows), Arc::clone(true_time));
    Scripted::answering(move |_, head| {
        let since = param(head, "since").unwrap_or_default();
        let rows = rows.lock().unwrap();
        let shown = (0..).zip(rows.iter()).filter(|(_, at)| **at >= since);
        let items: Vec<String> = shown
            .map(|(n, at)| format!(r#"{{"n":{n},"at":"{at}"}}"#))
            .collect();
        let body = format!(r#"{{"items": [{}]}}"#, items.join(","));
        dated(Some(clock.unix().as_secs()), &body)
    })
    .await
}

fn by_time(server: &Scripted) -> SourceConfig {
    let mut config = testing::config(server.url.as_str(), PaginationKind::None);
    config.name = Name::new("s").unwrap();
    config.batch.dedup_window = Some(1);
    config.incremental = Some(IncrementalConfig {
        cursor: "at".into(),
        param: "since".into(),
        start: None,
        lookback: "0".into(),
        max_ahead: "5m".into(),
    });
    config
}

fn texts(times: &[&str]) -> Vec<String> {
    times.iter().map(|time| (*time).to_owned()).collect()
}

#[tokio::test]
async fn a_cursor_in_the_future_stalls_nothing_and_is_said() {
    let rows = Arc::new(Mutex::new(texts(&[
        "2026-11-20T00:00:00Z",
        "2099-01-01T00:00:00Z",
        "2026-11-21T00:00:00Z",
    ])));
    let true_time = Wall::at(NOW);
    let server = feed(&rows, &true_time).await;
    let (root, config, wall) = (Store::memory(), by_time(&server), Wall::at(NOW));
    let first = run_at(&root, &config, &wall).await.unwrap();
    assert_eq!((first.rows, codes(&first)), (3, vec!["cursor_in_future"]));
    for (day, time) in [(1, "2026-11-23T09:00:00Z"), (2, "2026-11-24T09:00:00Z")] {
        rows.lock().unwrap().push(time.into());
        true_time.set(NOW + day * DAY);
        wall.set(NOW + day * DAY);
        let report = run_at(&root, &config, &wall).await.unwrap();
        assert_eq!(
            report.rows,
            3 + day,
            "nothing stalls, and nothing lands twice"
        );
        assert_eq!(codes(&report), ["cursor_in_future"]);
    }
    let asked = server.targets();
    assert_eq!(asked[1], "/?since=2026-11-21T00%3A00%3A00Z", "{asked:?}");
    // A cursor ahead of now does not make the source up to date.
    let mut pipeline = pipeline("unused");
    pipeline.source[0] = config.clone();
    let now = Duration::from_secs(NOW + 2 * DAY);
    let standing = crate::status_with_lag(&pipeline, &root, now).await.unwrap();
    let standing = standing.sources[0].standing.clone().unwrap();
    assert_eq!(standing.cursor.unwrap(), "2026-11-24T09:00:00Z");
    assert_eq!(standing.cursor_lag_s, Some(3_600));
}

#[tokio::test]
async fn a_log_with_a_cursor_of_the_future_goes_on_from_the_newest_one_before_now() {
    let rows = Arc::new(Mutex::new(texts(&["2026-11-20T00:00:00Z"])));
    let true_time = Wall::at(NOW);
    let server = feed(&rows, &true_time).await;
    let (root, mut config, wall) = (Store::memory(), by_time(&server), Wall::at(NOW));
    run_at(&root, &config, &wall).await.unwrap();
    // As in earlier versions: without a limit, any cursor moves the bound.
    config.incremental.as_mut().unwrap().max_ahead = "365000d".into();
    rows.lock()
        .unwrap()
        .extend(texts(&["2026-11-21T00:00:00Z", "2099-01-01T00:00:00Z"]));
    assert_eq!(run_at(&root, &config, &wall).await.unwrap().rows, 3);
    let mut pipeline = pipeline("unused");
    config.incremental.as_mut().unwrap().max_ahead = "5m".into();
    pipeline.source[0] = config.clone();
    let standing = crate::status_with_lag(&pipeline, &root, Duration::from_secs(NOW))
        .await
        .unwrap();
    let standing = standing.sources[0].standing.clone().unwrap();
    assert_eq!(standing.cursor_lag_s, None);
    assert!(standing.next.contains("2026-11-20"), "{}", standing.next);
    rows.lock().unwrap().push("2026-11-22T00:00:00Z".into());
    let report = run_at(&root, &config, &wall).await.unwrap();
    assert_eq!((report.rows, codes(&report)), (4, vec!["cursor_in_future"]));
    let again = run_at(&root, &config, &wall).await.unwrap();
    assert_eq!((again.rows, again.batches), (4, report.batches));
}

#[tokio::test]
async fn a_wait_by_a_clock_a_year_ahead_lasts_no_longer_than_the_server_asked() {
    let true_time = Wall::at(NOW);
    let server = Scripted::start([
        answer("429 Too Many\r\nRetry-After: 7200", ""),
        dated(Some(NOW), r#"{"items": [{"n": 1}]}"#),
    ])
    .await;
    let (root, mut config) = (Store::memory(), by_days(&server));
    (config.slices, config.retry.max_wait_s) = (None, 300);
    true_time.set(NOW + 365 * DAY);
    let deferred = |ended: Result<SourceReport, Error>| match ended {
        Err(Error::Deferred { until_unix_s, .. }) => until_unix_s,
        other => panic!("{other:?}"),
    };
    let until = deferred(run_at(&root, &config, &true_time).await);
    assert!(until > NOW + 365 * DAY);
    // The clock is right again: at most the requested delay is left, and it is over then.
    true_time.set(NOW + 60);
    let until = deferred(run_at(&root, &config, &true_time).await);
    assert!(until <= NOW + 60 + 7_210, "{} s", until - NOW);
    assert_eq!(server.targets().len(), 1);
    true_time.set(NOW + 60 + 7_210);
    assert_eq!(run_at(&root, &config, &true_time).await.unwrap().rows, 1);
}

#[tokio::test]
async fn a_complete_source_is_deferred_while_a_server_wants_its_next_run_to_wait() {
    let wall = Wall::at(NOW);
    let server = Scripted::start([
        dated(Some(NOW), r#"{"items": [{"n": 1}]}"#),
        answer("429 Too Many\r\nRetry-After: 7200", ""),
    ])
    .await;
    let (root, mut config) = (Store::memory(), by_days(&server));
    (config.slices, config.retry.max_wait_s) = (None, 300);
    config.refresh = Refresh::IfChanged;
    let mut pipeline = pipeline("unused");
    pipeline.source[0] = config.clone();
    let status = async |seconds: u64| {
        let now = Duration::from_secs(NOW + seconds);
        let report = crate::status_with_lag(&pipeline, &root, now).await;
        report.unwrap().sources[0].status.clone()
    };
    assert_eq!(run_at(&root, &config, &wall).await.unwrap().rows, 1);
    assert_eq!(status(0).await, "complete");
    let deferred = run_at(&root, &config, &wall).await.unwrap_err();
    assert!(matches!(deferred, Error::Deferred { .. }), "{deferred}");
    assert_eq!(status(60).await, "deferred");
}
