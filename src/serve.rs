//! `feedline serve`: scheduled sources, and the pages that tell of them.

use std::{fmt::Write as _, net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing,
};
use feedline_ingest::{Board, Scheduler, Served};
use feedline_schemas::lease::RunOutcome;
use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use serde_json::json;
use tokio::net::TcpListener;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Runs `scheduler` until it is asked to stop, and answers at `listen` meanwhile.
///
/// # Errors
/// When the address cannot be had.
pub(crate) async fn serve(scheduler: Scheduler, listen: SocketAddr) -> anyhow::Result<()> {
    let refused = || {
        format!(
            "cannot listen on `{listen}`; another program may: choose another port with `--listen`, or 0 for any free one"
        )
    };
    let listener = TcpListener::bind(listen).await.with_context(refused)?;
    let address = listener.local_addr().with_context(refused)?;
    let board = scheduler.board();
    tracing::info!(%address, sources = board.read().len(), "serving; `/healthz` and `/metrics` tell how it goes");
    let router = Router::new()
        .route("/healthz", routing::get(healthz))
        .route("/metrics", routing::get(metrics))
        .with_state(board);
    let pages = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::warn!(%error, "`/healthz` and `/metrics` are no longer served");
        }
    });
    scheduler.run().await;
    pages.abort();
    Ok(())
}

/// 200 while every source is served, 503 when one is not any more.
async fn healthz(State(board): State<Arc<Board>>) -> impl IntoResponse {
    let all = board.read();
    let dead: Vec<_> = all
        .iter()
        .filter_map(|served| {
            let why = served.dead.as_ref()?;
            Some(json!({ "pipeline": served.pipeline, "source": served.source, "why": why }))
        })
        .collect();
    let status = if dead.is_empty() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = json!({ "sources": all.len(), "dead": dead }).to_string();
    (status, [(CONTENT_TYPE, "application/json")], body)
}

async fn metrics(State(board): State<Arc<Board>>) -> impl IntoResponse {
    let mut text = String::new();
    // Text can always grow; the encoder has no other error.
    if encode(&mut text, &registry(&board.read())).is_err() {
        let _written = writeln!(text, "# EOF");
    }
    ([(CONTENT_TYPE, OPEN_METRICS)], text)
}

type Labels = Vec<(&'static str, String)>;

/// The metrics as they are now.
fn registry(all: &[Served]) -> Registry {
    let mut registry = Registry::with_prefix("feedline_source");
    let of = |served: &Served| -> Labels {
        vec![
            ("pipeline", served.pipeline.clone()),
            ("source", served.source.clone()),
        ]
    };
    let runs = Family::<Labels, Counter>::default();
    for served in all {
        for outcome in RunOutcome::ALL {
            let mut labels = of(served);
            labels.push(("outcome", outcome.name().to_owned()));
            let ended = served.runs.get(&outcome).copied().unwrap_or(0);
            runs.get_or_create(&labels).inc_by(ended);
        }
    }
    registry.register("runs", "Runs of this program that ended", runs);
    let mut counter = |name: &str, help: &str, value: fn(&Served) -> u64| {
        let family = Family::<Labels, Counter>::default();
        for served in all {
            family.get_or_create(&of(served)).inc_by(value(served));
        }
        registry.register(name, help, family);
    };
    counter(
        "requests",
        "Requests of runs of this program that ended well",
        |s| s.requests,
    );
    counter("retries", "Repeated requests among them", |s| s.retries);
    let mut gauge = |name: &str, help: &str, value: fn(&Served) -> Option<i64>| {
        let family = Family::<Labels, Gauge>::default();
        for served in all {
            if let Some(value) = value(served) {
                family.get_or_create(&of(served)).set(value);
            }
        }
        registry.register(name, help, family);
    };
    gauge("running", "Whether it runs now", |s| {
        Some(i64::from(s.running_since_unix_s.is_some()))
    });
    gauge("next_run_timestamp_seconds", "When it is due next", |s| {
        s.next_unix_s
    });
    gauge(
        "complete_timestamp_seconds",
        "When a run of it was complete last",
        |s| s.complete_unix_s,
    );
    gauge("landed_rows", "Rows in its landing zone", |s| {
        of_log(s, |r| r.rows)
    });
    gauge("duplicates", "Duplicates left out, all runs", |s| {
        of_log(s, |r| r.duplicates)
    });
    gauge("rejected", "Records set aside, all runs", |s| {
        of_log(s, |r| r.rejected)
    });
    gauge("schema_version", "Version of its record schema", |s| {
        s.report.as_ref().map(|report| report.schema_version.into())
    });
    registry
}

fn of_log(
    served: &Served,
    value: fn(&feedline_schemas::report::SourceReport) -> u64,
) -> Option<i64> {
    served
        .report
        .as_ref()
        .map(|report| i64::try_from(value(report)).unwrap_or(i64::MAX))
}
