//! `feedline serve`: scheduled sources, with health and metrics pages.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    sync::{Arc, atomic::AtomicU64},
};

use anyhow::Context as _;
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing,
};
use feedline_ingest::{Cause, LogTotals, MetricsSnapshot, ScheduleStatus, Scheduler, ServedSource};
use feedline_schemas::lease::RunOutcome;
use feedline_storage::{
    clock::Clock,
    pages::{self, ClientLimits},
};
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use serde_json::json;
use tokio::net::TcpListener;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Runs `scheduler` until it is asked to stop, and serves HTTP at `listen` meanwhile.
///
/// # Errors
/// The address cannot be bound.
pub(crate) async fn serve(
    scheduler: Scheduler,
    listen: SocketAddr,
    unhealthy_after: u64,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<()> {
    let refused = || {
        format!(
            "cannot listen on `{listen}`; another program may: choose another port with `--listen`, or 0 for any free one"
        )
    };
    let listener = TcpListener::bind(listen).await.with_context(refused)?;
    let address = listener.local_addr().with_context(refused)?;
    let board = scheduler.board();
    tracing::info!(%address, sources = board.read().len(), "serving `/healthz` and `/metrics`");
    let shown = Shown {
        board,
        unhealthy_after,
        clock,
    };
    let router = Router::new()
        .route("/healthz", routing::get(healthz))
        .route("/metrics", routing::get(metrics))
        .with_state(shown);
    let pages = tokio::spawn(pages::serve(listener, router, ClientLimits::default()));
    scheduler.run().await;
    pages.abort();
    Ok(())
}

/// State behind the pages.
#[derive(Clone, Debug)]
struct Shown {
    board: Arc<ScheduleStatus>,
    /// Consecutive failed runs of a source before the response is 503.
    unhealthy_after: u64,
    clock: Arc<dyn Clock>,
}

/// Responds with 200 while every source is served and none has failed `unhealthy_after` times in a
/// row, otherwise with 503. The body lists failing sources, and what waiting sources wait for.
async fn healthz(State(shown): State<Shown>) -> impl IntoResponse {
    let all = shown.board.read();
    let dead: Vec<_> = all
        .iter()
        .filter_map(|served| {
            let why = served.dead.as_ref()?;
            Some(json!({ "pipeline": served.pipeline, "source": served.source, "why": why }))
        })
        .collect();
    let waiting: Vec<_> = all
        .iter()
        .filter_map(|served| {
            let waits_for = served.meter.read().waits_for;
            let what = waits_for.or_else(|| served.waits_for.clone())?;
            Some(json!({ "pipeline": served.pipeline, "source": served.source, "for": what }))
        })
        .collect();
    let failing: Vec<_> = all.iter().filter_map(failing).collect();
    let most = all.iter().map(ServedSource::failures).max().unwrap_or(0);
    let status = if dead.is_empty() && most < shown.unhealthy_after {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body =
        json!({ "sources": all.len(), "dead": dead, "failing": failing, "waiting": waiting })
            .to_string();
    (status, [(CONTENT_TYPE, "application/json")], body)
}

/// Describes a source whose last run failed, or could not begin, for `/healthz`.
fn failing(served: &ServedSource) -> Option<serde_json::Value> {
    if served.failures() == 0 {
        return None;
    }
    let last = served.last.as_ref();
    let error = served.store_error.as_ref();
    Some(json!({
        "pipeline": served.pipeline,
        "source": served.source,
        "failures": served.failures(),
        "complete_unix_s": served.complete_unix_s,
        "error": error.or(last.and_then(|last| last.reason.as_ref())),
    }))
}

async fn metrics(State(shown): State<Shown>) -> impl IntoResponse {
    let mut text = String::new();
    let now_s = shown.clock.unix().as_secs();
    // Text can always grow; the encoder has no other error.
    if encode(&mut text, &registry(&shown.board.read(), now_s)).is_err() {
        let _written = writeln!(text, "# EOF");
    }
    ([(CONTENT_TYPE, OPEN_METRICS)], text)
}

type Labels = Vec<(&'static str, String)>;
type Seconds = Counter<f64, AtomicU64>;

fn of(served: &ServedSource) -> Labels {
    vec![
        ("pipeline", served.pipeline.clone()),
        ("source", served.source.clone()),
    ]
}

fn with(served: &ServedSource, label: &'static str, value: &str) -> Labels {
    let mut labels = of(served);
    labels.push((label, value.to_owned()));
    labels
}

/// The metrics as they are at `now_s`, in seconds since 1970-01-01 UTC.
fn registry(all: &[ServedSource], now_s: u64) -> Registry {
    let mut registry = Registry::with_prefix("feedline_source");
    let read: Vec<(&ServedSource, MetricsSnapshot)> =
        all.iter().map(|s| (s, s.meter.read())).collect();
    runs(&mut registry, all);
    work(&mut registry, &read);
    times(&mut registry, all);
    log(&mut registry, &read, now_s);
    registry
}

fn runs(registry: &mut Registry, all: &[ServedSource]) {
    let runs = Family::<Labels, Counter>::default();
    for served in all {
        for outcome in RunOutcome::ALL {
            let ended = served.runs.get(&outcome).copied().unwrap_or(0);
            let labels = with(served, "outcome", outcome.name());
            runs.get_or_create(&labels).inc_by(ended);
        }
    }
    registry.register("runs", "Runs of this program that ended", runs);
    let each = || all.iter().map(|served| (of(served), served));
    let help = (
        "failures_in_a_row",
        "Runs that failed since the last one that was complete",
    );
    gauge(registry, help, each(), |served| {
        Some(i64::try_from(served.failures()).unwrap_or(i64::MAX))
    });
    let help = (
        "warnings",
        "Warnings in the report of its last run that ended well",
    );
    gauge(registry, help, each(), |served| {
        let report = served.report.as_ref()?;
        i64::try_from(report.warnings.len()).ok()
    });
}

/// Work of this program, current runs included.
fn work(registry: &mut Registry, read: &[(&ServedSource, MetricsSnapshot)]) {
    let requests = Family::<Labels, Counter>::default();
    let waited = Family::<Labels, Seconds>::default();
    let [retries, commits, rejects] = [(); 3].map(|()| Family::<Labels, Counter>::default());
    let committing = Family::<Labels, Seconds>::default();
    for (served, reading) in read {
        for (status, count) in &reading.requests {
            let status = status.map_or_else(|| "none".to_owned(), |status| status.to_string());
            let labels = with(served, "status", &status);
            requests.get_or_create(&labels).inc_by(*count);
        }
        for cause in Cause::ALL {
            let time = reading.waited.get(&cause).copied().unwrap_or_default();
            let labels = with(served, "cause", cause.name());
            waited.get_or_create(&labels).inc_by(time.as_secs_f64());
        }
        let labels = of(served);
        retries.get_or_create(&labels).inc_by(reading.retries);
        commits.get_or_create(&labels).inc_by(reading.commits);
        rejects.get_or_create(&labels).inc_by(reading.rejected);
        let time = reading.committing.as_secs_f64();
        committing.get_or_create(&labels).inc_by(time);
    }
    let help = "Requests by the status of their responses, `none` for those without one";
    registry.register("requests", help, requests);
    registry.register("retries", "Tries beyond the first", retries);
    let help = "Seconds waited by cause, of requests that wait at the same time each";
    registry.register("wait_seconds", help, waited);
    registry.register("commits", "Batches that were committed", commits);
    let help = "Records rejected by runs of this program";
    registry.register("new_rejects", help, rejects);
    let help = "Seconds from the last page of a batch to its entry in the log, of all batches";
    registry.register("commit_seconds", help, committing);
}

fn gauge<T>(
    registry: &mut Registry,
    (name, help): (&str, &str),
    all: impl IntoIterator<Item = (Labels, T)>,
    value: impl Fn(T) -> Option<i64>,
) {
    let family = Family::<Labels, Gauge>::default();
    for (labels, from) in all {
        if let Some(value) = value(from) {
            family.get_or_create(&labels).set(value);
        }
    }
    registry.register(name, help, family);
}

/// Runs in progress, and next runs.
fn times(registry: &mut Registry, all: &[ServedSource]) {
    let each = || all.iter().map(|served| (of(served), served));
    gauge(registry, ("running", "Whether it runs now"), each(), |s| {
        Some(i64::from(s.running_since_unix_s.is_some()))
    });
    let due = ("next_run_timestamp_seconds", "When it is due next");
    gauge(registry, due, each(), |s| s.next_unix_s);
    let complete = (
        "complete_timestamp_seconds",
        "When a run of it was complete last",
    );
    gauge(registry, complete, each(), |s| s.complete_unix_s);
}

/// Name, help and value of a metric.
type OfLog<'a> = (&'a str, &'a str, &'a dyn Fn(LogTotals) -> Option<u64>);

/// Totals of the logs, as of the last commit.
fn log(registry: &mut Registry, read: &[(&ServedSource, MetricsSnapshot)], now_s: u64) {
    let all: [OfLog<'_>; 6] = [
        ("landed_rows", "Rows in its landing zone", &|log| {
            Some(log.rows)
        }),
        (
            "duplicates",
            "Duplicates dropped by runs that committed a batch",
            &|log| Some(log.duplicates),
        ),
        ("rejected", "Rejected records that are open", &|log| {
            Some(log.rejected)
        }),
        ("batches", "Batches in its log", &|log| Some(log.batches)),
        ("schema_version", "Version of its record schema", &|log| {
            Some(log.schema_version.into())
        }),
        (
            "commit_timestamp_seconds",
            "When its newest batch with rows was committed",
            &|log| log.committed_unix_s,
        ),
    ];
    let gauge_value = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    for (name, help, value) in all {
        let each = read
            .iter()
            .map(|(served, reading)| (of(served), reading.landed));
        gauge(registry, (name, help), each, |log| {
            log.and_then(value).map(gauge_value)
        });
    }
    let each = read
        .iter()
        .map(|(served, reading)| (of(served), (served.since_unix_s, reading.landed)));
    let help = "Seconds since its newest batch with rows, or since the start without one";
    gauge(registry, ("lag_seconds", help), each, |(since, landed)| {
        // A commit of the future was made while the clock was ahead.
        let landed = landed.and_then(|log| log.committed_unix_s);
        let landed = landed.filter(|committed| *committed <= now_s);
        Some(gauge_value(now_s.saturating_sub(landed.unwrap_or(since))))
    });
}
