//! A store that is slow, overloaded, broken or changed under the run: real requests over loopback.

use std::{error::Error as _, time::Duration};

use feedline_loader::{Error, FetchConfig, FetchError, Loader, LoaderConfig};
use feedline_schemas::manifest::Manifest;
use feedline_storage::{Store, StoreOptions};

use crate::{
    SHARDS, collect, config,
    dataset::publish_train,
    failure, open,
    server::{Asked, Fault, Server},
};

const SECOND: &str = "shards/train/00001.arrow";

/// A dataset behind a server, and the same in memory to compare with.
pub(super) struct Remote {
    pub(super) server: Server,
    pub(super) plain: Store,
    pub(super) manifest: Manifest,
}

impl Remote {
    pub(super) async fn new() -> Self {
        Self::of(SHARDS).await
    }

    pub(super) async fn of(shape: &[&[u32]]) -> Self {
        let plain = Store::memory();
        let manifest = publish_train(&plain, shape).await;
        Self {
            manifest,
            server: Server::with_objects_of(&plain).await,
            plain,
        }
    }

    pub(super) fn http(&self) -> Store {
        Store::open(&self.server.url(), &StoreOptions::default()).unwrap()
    }

    pub(super) fn s3(&self) -> Store {
        s3(&self.server)
    }

    /// The epoch comes out right over both kinds of stores, whatever `rule` does to requests for shards; then `then`
    /// looks at the loader and the requests of the epoch.
    pub(super) async fn survives(
        &self,
        config: &LoaderConfig,
        rule: impl Fn(&Asked) -> Fault + Send + Sync + Clone + 'static,
        then: impl Fn(&Loader, &[Asked]),
    ) {
        let undisturbed = open(&self.plain, config).await;
        let expected = collect(undisturbed.epoch(undisturbed.start_state()).unwrap());
        for store in [self.http(), self.s3()] {
            self.server.forget();
            let loader = open(&store, config).await;
            let rule = rule.clone();
            self.server.set(move |asked| rule(asked));
            let batches = collect(loader.epoch(loader.start_state()).unwrap());
            assert_eq!(batches, expected, "{}", store.url());
            let mut log = self.server.log();
            // Those without a range ask for sizes.
            log.retain(|asked| asked.path.contains("/shards/") && asked.range.is_some());
            then(&loader, &log);
        }
    }

    /// The error of an epoch, whose first batches may come.
    pub(super) async fn fails(
        &self,
        config: &LoaderConfig,
        rule: impl Fn(&Asked) -> Fault + Send + Sync + 'static,
    ) -> Error {
        let loader = open(&self.http(), config).await;
        self.server.set(rule);
        failure(loader.epoch(loader.start_state()).unwrap())
    }
}

/// The server's objects as those of a bucket.
pub(super) fn s3(server: &Server) -> Store {
    let vars = [
        ("AWS_ENDPOINT_URL", server.endpoint()),
        ("AWS_ALLOW_HTTP", "true".into()),
        ("AWS_REGION", "us-east-1".into()),
        ("AWS_ACCESS_KEY_ID", "any".into()),
        ("AWS_SECRET_ACCESS_KEY", "any".into()),
    ];
    let options = StoreOptions {
        vars: vars.map(|(k, v)| (k.to_owned(), v)).into(),
        ..StoreOptions::default()
    };
    Store::open("s3://bucket", &options).unwrap()
}

/// Short waits, no hedges, and all else far away: only what a test is about can happen.
pub(super) fn quick() -> LoaderConfig {
    LoaderConfig {
        fetch: FetchConfig {
            deadline: Duration::from_secs(60),
            attempt_least: Duration::from_secs(30),
            attempt_most: Duration::from_secs(30),
            progress_window: Duration::from_secs(30),
            hedge_permille: 0,
            backoff: Duration::from_millis(2),
            backoff_most: Duration::from_millis(20),
            ..FetchConfig::new()
        },
        ..config(16)
    }
}

pub(super) fn fetch_error(error: &Error) -> &FetchError {
    match error {
        Error::Read { source, .. } => source,
        other => unreachable!("{other:?}"),
    }
}

pub(super) fn in_second(asked: &Asked) -> bool {
    asked.path.ends_with(SECOND)
}

pub(super) fn is_block(asked: &Asked) -> bool {
    asked.range.as_ref().is_some_and(|range| range.start > 0)
}

/// Requests for shards that ask for something a second time.
fn again(log: &[Asked]) -> usize {
    log.iter().filter(|asked| asked.earlier > 0).count()
}

#[tokio::test]
async fn fault_02_damage_on_the_way_is_asked_for_once_more() {
    let remote = Remote::new().await;
    let flip = |asked: &Asked| match in_second(asked) && asked.earlier == 0 && is_block(asked) {
        true => Fault::Flip(700),
        false => Fault::None,
    };
    remote
        .survives(&quick(), flip, |loader, log| {
            let fetches = loader.metrics().fetches;
            assert_eq!(fetches.crc_failures, 10, "every block of that shard");
            assert_eq!(again(log), 10);
        })
        .await;
}

#[tokio::test]
async fn fault_04_a_body_that_breaks_off_is_continued_at_that_place() {
    let remote = Remote::new().await;
    let cut = |asked: &Asked| match in_second(asked) && asked.earlier == 0 {
        // The continued ones are ranges of their own, so that they break off again, until little is missing.
        true => Fault::Cut(1500),
        false => Fault::None,
    };
    remote
        .survives(&quick(), cut, |loader, log| {
            let fetches = loader.metrics().fetches;
            assert!(fetches.resumed_bodies >= 10, "{fetches:?}");
            assert!(fetches.retries.broken >= fetches.resumed_bodies);
            let mut continued = log.iter().filter(|asked| asked.if_match.is_some());
            assert!(continued.next().is_some(), "the same version is asked for");
        })
        .await;
}

#[tokio::test]
async fn fault_05_a_storm_of_refusals_slows_down_and_does_not_end_the_pass() {
    let remote = Remote::new().await;
    let storm = |asked: &Asked| match asked.earlier {
        0 => Fault::Status(503, None),
        1 => Fault::Status(429, None),
        _ => Fault::None,
    };
    remote
        .survives(&quick(), storm, |loader, log| {
            let fetches = loader.metrics().fetches;
            assert_eq!(fetches.retries.throttled, 2 * fetches.extents);
            assert_eq!(log.len() as u64, 3 * fetches.extents);
            assert!(fetches.permits < 16, "the limit fell: {fetches:?}");
        })
        .await;
}

#[tokio::test]
async fn fault_05_the_time_a_server_asks_for_is_never_shortened() {
    let remote = Remote::of(&[&[40; 3]]).await;
    let busy = |asked: &Asked| match asked.earlier {
        0 => Fault::Status(503, Some("1")),
        _ => Fault::None,
    };
    remote
        .survives(&quick(), busy, |_, log| {
            for second in log.iter().filter(|asked| asked.earlier == 1) {
                let first = log
                    .iter()
                    .find(|asked| asked.range == second.range)
                    .unwrap();
                let waited = second.at - first.at;
                assert!(waited >= Duration::from_secs(1), "{waited:?}");
            }
            assert_eq!(again(log), log.len() / 2);
        })
        .await;
}

#[tokio::test]
async fn fault_05_an_error_comes_only_after_the_deadline_and_counts_what_failed() {
    let remote = Remote::new().await;
    let mut config = quick();
    config.fetch.deadline = Duration::from_secs(4);
    let error = remote
        .fails(&config, |asked| match in_second(asked) {
            true => Fault::Status(503, None),
            false => Fault::None,
        })
        .await;
    let fetch = fetch_error(&error);
    assert!(fetch.is_retryable());
    assert!(
        matches!(fetch, FetchError::Unavailable { attempts: 3.., failures, .. } if failures.contains(" throttled")),
        "{fetch}"
    );
    assert!(
        error.source().unwrap().source().is_some(),
        "the last response"
    );
}

#[tokio::test]
async fn fault_05_a_wait_longer_than_any_time_is_over_the_deadline() {
    let remote = Remote::new().await;
    let error = remote
        .fails(&quick(), |asked| match in_second(asked) {
            true => Fault::Status(503, Some("18446744073709551615")),
            false => Fault::None,
        })
        .await;
    let fetch = fetch_error(&error);
    assert!(
        matches!(fetch, FetchError::Unavailable { failures, .. } if failures.contains("throttled")),
        "{fetch}"
    );
}

#[tokio::test]
async fn fault_06_failures_of_the_server_are_retried_and_counted_apart() {
    let remote = Remote::new().await;
    let failing = |asked: &Asked| match asked.earlier {
        0 => Fault::Status(500, None),
        1 => Fault::Status(502, None),
        2 => Fault::Status(504, None),
        3 => Fault::Cut(0),
        _ => Fault::None,
    };
    remote
        .survives(&quick(), failing, |loader, _| {
            let fetches = loader.metrics().fetches;
            assert_eq!(fetches.retries.server, 3 * fetches.extents);
            assert_eq!(fetches.retries.broken, fetches.extents);
            assert_eq!(fetches.retries.throttled, 0);
        })
        .await;
}

#[tokio::test]
async fn fault_06_a_server_that_goes_away_is_named_with_the_kind_of_failure() {
    let mut remote = Remote::new().await;
    let mut config = quick();
    // Long enough for a second try on a busy machine.
    config.fetch.deadline = Duration::from_secs(3);
    let loader = open(&remote.http(), &config).await;
    remote.server.stop();
    let error = failure(loader.epoch(loader.start_state()).unwrap());
    assert!(
        matches!(fetch_error(&error), FetchError::Unavailable { failures, .. } if failures.contains("no connection")),
        "{error:?}"
    );
    assert!(loader.metrics().fetches.retries.connect > 0);
}

#[tokio::test]
async fn fault_07_a_body_that_drips_is_given_up_and_asked_for_elsewhere() {
    let remote = Remote::of(&[&[40; 6]]).await;
    let mut config = quick();
    config.fetch.progress_window = Duration::from_millis(200);
    // What continues a body is a range of its own, so that only some requests may drip: this is the first for a shard.
    let drip = |asked: &Asked| match asked.number == 4 {
        true => Fault::Drip(Duration::from_millis(5)),
        false => Fault::None,
    };
    remote
        .survives(&config, drip, |loader, _| {
            let fetches = loader.metrics().fetches;
            assert!(fetches.retries.stalled >= 1, "{fetches:?}");
            assert!(fetches.resumed_bodies >= 1, "{fetches:?}");
            assert_eq!(fetches.retries.timed_out, 0);
        })
        .await;
}

#[tokio::test]
async fn fault_08_a_request_that_hangs_is_given_up_at_the_deadline_of_its_size() {
    let remote = Remote::new().await;
    let mut config = quick();
    config.fetch.attempt_least = Duration::from_millis(200);
    config.fetch.attempt_most = Duration::from_millis(200);
    config.fetch.least_bytes_per_second = 1 << 30;
    let hang = |asked: &Asked| match in_second(asked) && asked.earlier == 0 {
        true => Fault::Hang,
        false => Fault::None,
    };
    remote
        .survives(&config, hang, |loader, log| {
            let fetches = loader.metrics().fetches;
            // Its 10 blocks: its head is that of the first shard. A slow machine may time out more.
            assert!(fetches.retries.timed_out >= 10, "{fetches:?}");
            assert!(again(log) >= 10);
        })
        .await;
}

#[tokio::test]
async fn fault_08_what_is_late_is_asked_for_a_second_time_within_the_budget() {
    let shape: Vec<&[u32]> = vec![&[40; 100]; 8];
    let remote = Remote::of(&shape).await;
    remote.server.set_latency(Duration::from_millis(5));
    let mut config = quick();
    config.fetch.hedge_permille = 45;
    config.fetch.hedge_least = Duration::from_millis(20);
    // The first hundreds teach what is usual; then one in fifty hangs, and nothing but a hedge can save it.
    let hang = |asked: &Asked| {
        let hangs = (150..700).contains(&asked.number) && asked.number.is_multiple_of(50);
        match hangs && is_block(asked) && asked.earlier == 0 {
            true => Fault::Hang,
            false => Fault::None,
        }
    };
    remote
        .survives(&config, hang, |loader, _| {
            let fetches = loader.metrics().fetches;
            assert!(fetches.hedges_won >= 5, "{fetches:?}");
            assert_eq!(fetches.retries.timed_out, 0);
            assert_eq!(fetches.requests, fetches.extents + fetches.hedges);
            assert!(fetches.hedges * 20 <= fetches.requests, "{fetches:?}");
        })
        .await;
}

#[tokio::test]
async fn fault_09_refused_access_is_tried_once_more_with_new_credentials() {
    let remote = Remote::new().await;
    let refuse = |asked: &Asked| match asked.earlier {
        0 => Fault::Status(403, None),
        _ => Fault::None,
    };
    remote
        .survives(&quick(), refuse, |loader, _| {
            let fetches = loader.metrics().fetches;
            assert!(fetches.refreshed_credentials >= 1, "{fetches:?}");
            assert_eq!(fetches.retries.denied, fetches.extents);
        })
        .await;
}

#[tokio::test]
async fn fault_09_access_that_stays_refused_ends_the_pass_after_one_more_try() {
    let remote = Remote::new().await;
    let error = remote
        .fails(&quick(), |asked| match in_second(asked) {
            true => Fault::Status(403, None),
            false => Fault::None,
        })
        .await;
    let FetchError::Denied { url, .. } = fetch_error(&error) else {
        unreachable!("{error:?}")
    };
    assert!(url.ends_with(SECOND), "{url}");
    // Those without a range asked for the size when it was opened.
    let asked = remote.server.log().into_iter().filter(in_second);
    let asked: Vec<_> = asked.filter(|asked| asked.range.is_some()).collect();
    assert!(asked.iter().any(|asked| asked.earlier == 1), "{asked:?}");
    assert!(asked.iter().all(|asked| asked.earlier <= 1), "{asked:?}");
}

#[tokio::test]
async fn fault_10_a_shard_deleted_during_the_run_is_named_with_the_manifest() {
    let remote = Remote::new().await;
    let loader = open(&remote.http(), &quick()).await;
    remote.server.remove(SECOND);
    let error = failure(loader.epoch(loader.start_state()).unwrap());
    let Error::ShardMissing { shard, fingerprint } = &error else {
        unreachable!("{error:?}")
    };
    assert!(shard.ends_with(SECOND));
    assert_eq!(*fingerprint, loader.manifest().unwrap().fingerprint);
    // Those without a range asked for the size when it was opened.
    let asked = remote.server.log().into_iter().filter(in_second);
    let asked = asked.filter(|asked| asked.range.is_some()).count();
    assert!(asked <= 10, "asking again does not help: {asked}");
}

#[tokio::test]
async fn fault_11_a_shard_overwritten_during_the_run_is_never_mixed_with_the_old_one() {
    for etag in ["\"other\"", "W/\"other\""] {
        let remote = Remote::new().await;
        if etag.starts_with("W/") {
            for listed in remote.plain.list("").await.unwrap() {
                let bytes = remote.server.object(&listed.path);
                remote
                    .server
                    .put_as(&listed.path, bytes, "W/\"first\"".into());
            }
        }
        // The same bytes under another version: no checksum could differ.
        let bytes = remote.server.object(SECOND);
        // Little enough memory that blocks are read again.
        let config = LoaderConfig {
            prefetch_bytes: 40_000,
            ..quick()
        };
        let loader = open(&remote.http(), &config).await;
        let mut first = loader.epoch(loader.start_state()).unwrap();
        first
            .by_ref()
            .take(70)
            .for_each(|batch| drop(batch.unwrap()));
        drop(first);
        remote.server.put_as(SECOND, bytes, etag.into());
        let again = open(&remote.http(), &quick()).await;
        assert!(
            again
                .epoch(again.start_state())
                .unwrap()
                .all(|batch| batch.is_ok())
        );
        let error = failure(loader.sequential().unwrap());
        let fetch = fetch_error(&error);
        assert!(
            fetch.to_string().starts_with("dataset changed: "),
            "{fetch}"
        );
    }
}

#[tokio::test]
async fn redirects_are_followed() {
    let remote = Remote::new().await;
    remote
        .survives(
            &quick(),
            |_| Fault::Redirect,
            |loader, log| {
                let fetches = loader.metrics().fetches;
                assert_eq!(log.len() as u64, 2 * fetches.requests);
            },
        )
        .await;
}

#[tokio::test]
async fn all_faults_together_lose_nothing_and_mix_up_nothing() {
    let remote = Remote::new().await;
    let mut config = quick();
    config.fetch.hedge_permille = 45;
    config.fetch.attempt_least = Duration::from_millis(300);
    config.fetch.attempt_most = Duration::from_millis(300);
    config.fetch.progress_window = Duration::from_millis(100);
    config.fetch.least_bytes_per_second = 1 << 20;
    let mixed = |asked: &Asked| {
        let draw = (asked.number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        match draw % 20 {
            // Damage twice would be an error.
            _ if asked.number == 8 => Fault::Flip(9),
            0 => Fault::Status(503, None),
            1 => Fault::Status(500, None),
            2 => Fault::Cut(1000),
            3 => Fault::Drip(Duration::from_millis(3)),
            4 => Fault::Hang,
            5 => Fault::Late(Duration::from_millis(40)),
            7 => Fault::Redirect,
            _ => Fault::None,
        }
    };
    remote
        .survives(&config, mixed, |loader, _| {
            let fetches = loader.metrics().fetches;
            assert!(fetches.extents >= 32, "{fetches:?}");
        })
        .await;
}
