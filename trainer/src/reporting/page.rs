//! `/metrics`: the numbers of a running training in the text format of OpenMetrics, which Prometheus reads.

use std::{fmt, net::SocketAddr, sync::Arc};

use axum::{Router, extract::State, http::header::CONTENT_TYPE, response::IntoResponse, routing};
use feedline_storage::pages::{self, ClientLimits};
use prometheus_client::{
    collector::Collector,
    encoding::{
        DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric, text::encode,
    },
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use tokio::{net::TcpListener, runtime::Handle, task::JoinHandle};

use super::status::{Rates, Tracker};
use crate::{
    error::{Error, config as wrong},
    reporting::performance::GpuReading,
};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The page; gone when dropped.
#[derive(Debug)]
pub(crate) struct MetricsPage {
    server: JoinHandle<()>,
}

impl Drop for MetricsPage {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl MetricsPage {
    /// Serves what `tracker` hears at `address`, on `runtime`. Returns the address it took.
    ///
    /// # Errors
    /// [`Error::Config`] when the address cannot be had.
    pub(crate) fn serve(
        runtime: &Handle,
        address: SocketAddr,
        tracker: Arc<Tracker>,
    ) -> Result<(Self, SocketAddr), Error> {
        let refused = |error: std::io::Error| {
            let reason = format!(
                "cannot listen on `{address}`: {error}; another run may serve its numbers there: choose another port, or 0 \
                 for any free one"
            );
            wrong("metrics_listen", reason)
        };
        let listener = runtime
            .block_on(TcpListener::bind(address))
            .map_err(refused)?;
        let taken = listener.local_addr().map_err(refused)?;
        let mut registry = Registry::with_prefix("feedline_train");
        registry.register_collector(Box::new(TrackerCollector(tracker)));
        let router = Router::new()
            .route("/metrics", routing::get(text))
            .with_state(Arc::new(registry));
        let server = runtime.spawn(pages::serve(listener, router, ClientLimits::default()));
        tracing::info!(address = %taken, "serving the numbers of the run at `/metrics`");
        Ok((Self { server }, taken))
    }
}

async fn text(State(registry): State<Arc<Registry>>) -> impl IntoResponse {
    let mut text = String::new();
    encode(&mut text, &registry).expect("text can always grow");
    ([(CONTENT_TYPE, OPEN_METRICS)], text)
}

/// The metrics as they are when somebody asks.
#[derive(Debug)]
struct TrackerCollector(Arc<Tracker>);

impl Collector for TrackerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status = self.0.status();
        let out = &mut Out(&mut encoder);
        let help = "Steps, one per batch, with those that were left out";
        out.gauge("step", help, Some(status.step))?;
        out.gauge(
            "steps_planned",
            "Optimizer steps of all epochs",
            Some(status.steps_planned),
        )?;
        out.gauge("epochs", "Epochs finished", Some(status.epochs))?;
        out.gauge(
            "parameters",
            "Trainable parameters",
            Some(status.parameters),
        )?;
        out.gauge("loss", "Mean loss of the newest batch", status.loss)?;
        out.gauge(
            "validation_loss",
            "Mean validation loss of the newest epoch",
            status.validation_loss,
        )?;
        let best = status.best.map(|best| best.loss);
        out.gauge("best_validation_loss", "Lowest mean validation loss", best)?;
        out.counter(
            "checkpoints",
            "Checkpoints written by this process",
            status.checkpoints,
        )?;
        let help = "Checkpoints that this process could not write";
        out.counter("failed_checkpoints", help, status.failed_checkpoints)?;
        let help = "Steps that the weights know nothing of: left out, or stepped past when the weights went back";
        out.counter("skipped_steps", help, status.skipped_steps)?;
        let help = "Steps left out, since their gradient overflowed f16";
        out.counter("dropped_steps", help, status.dropped_steps)?;
        let help = "Times that the weights went back, since the loss had diverged";
        out.counter("rollbacks", help, status.rollbacks)?;
        out.rates(status.rates)?;
        out.device(self.0.performance.newest())?;
        let help = "Metrics of the validation split after the newest epoch, in the target's units";
        let metrics = encoder.encode_descriptor("validation", help, None, MetricType::Gauge);
        let mut metrics = metrics?;
        for (name, value) in &status.validation {
            let name = name.strip_prefix("validation_").unwrap_or(name);
            ConstGauge::new(*value).encode(metrics.encode_family(&[("metric", name)])?)?;
        }
        Ok(())
    }
}

struct Out<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Out<'_, '_> {
    fn rates(&mut self, rates: Option<Rates>) -> fmt::Result {
        let of = |part: fn(&Rates) -> f64| rates.as_ref().map(part);
        self.gauge(
            "gradient_norm",
            "Global norm of the gradient before clipping",
            of(|r| r.gradient_norm),
        )?;
        self.gauge("learning_rate", "Learning rate", of(|r| r.learning_rate))?;
        self.gauge(
            "samples_per_second",
            "Samples trained on per second",
            of(|r| r.samples_per_s),
        )?;
        self.gauge(
            "data_wait_share",
            "Share of the time spent waiting for batches",
            of(|r| r.data_wait_share),
        )?;
        let communication = rates.and_then(|r| r.communication_s);
        self.gauge(
            "communication_seconds",
            "Seconds of steps spent on exchanges alone since the last line of metrics",
            communication,
        )?;
        self.gauge(
            "memory_bytes",
            "Bytes the process holds in memory",
            rates.and_then(|r| r.memory_bytes),
        )
    }

    /// Figures of the device; those that are not known are absent.
    fn device(&mut self, (gpu, share): (GpuReading, Option<f64>)) -> fmt::Result {
        let help =
            "Floating-point operations as a fraction of the peak of the devices, since the start";
        self.gauge("flops_share", help, share)?;
        self.gauge(
            "gpu_utilization_percent",
            "Percent of the time that a kernel ran on the GPU",
            gpu.utilization_percent,
        )?;
        self.gauge(
            "gpu_memory_bytes",
            "Bytes of memory of the GPU in use",
            gpu.memory_bytes,
        )?;
        self.gauge("gpu_power_watts", "Power draw of the GPU", gpu.power_w)?;
        let help = "Temperature of the GPU";
        self.gauge("gpu_temperature_celsius", help, gpu.temperature_c)
    }

    /// A number that is not known yet is left out.
    fn gauge<N: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        value: Option<N>,
    ) -> fmt::Result {
        let Some(value) = value else { return Ok(()) };
        let encoder = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(value).encode(encoder)
    }

    fn counter<N: EncodeCounterValue>(&mut self, name: &str, help: &str, value: N) -> fmt::Result {
        let encoder = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(encoder)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpStream,
    };

    use super::*;
    use feedline_schemas::{Classified as _, ErrorKind};

    use crate::checkpoint::run_folder::runtime;

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_request_is_answered_with_the_numbers_of_that_instant() {
        let runtime = runtime().unwrap();
        let tracker = Arc::new(Tracker::default());
        let any = "127.0.0.1:0".parse().unwrap();
        let served = MetricsPage::serve(runtime.handle(), any, Arc::clone(&tracker));
        let (_page, address) = served.unwrap();
        let before = get(address, "/metrics");
        assert!(before.starts_with("HTTP/1.1 200 OK\r\n"), "{before}");
        assert!(
            before.contains("content-type: application/openmetrics-text; version=1.0.0"),
            "{before}"
        );
        assert!(before.contains("\nfeedline_train_step 0\n"), "{before}");
        for absent in ["loss", "gpu_power_watts", "flops_share"] {
            let name = format!("\nfeedline_train_{absent} ");
            assert!(!before.contains(&name), "{before}");
        }
        tracker.performance.add(GpuReading {
            power_w: Some(250.5),
            ..GpuReading::default()
        });
        {
            let mut status = tracker.change();
            (status.step, status.loss, status.checkpoints) = (41, Some(0.25), 3);
            status.dropped_steps = 5;
            status.validation.insert("validation_rmse".into(), 2.5);
            status.rates = Some(Rates {
                learning_rate: 0.5,
                ..Rates::default()
            });
        }
        let after = get(address, "/metrics");
        for line in [
            "feedline_train_step 41",
            "feedline_train_loss 0.25",
            "feedline_train_dropped_steps_total 5",
            "feedline_train_learning_rate 0.5",
            "feedline_train_checkpoints_total 3",
            "feedline_train_validation{metric=\"rmse\"} 2.5",
            "feedline_train_gpu_power_watts 250.5",
            "# EOF",
        ] {
            assert!(after.contains(&format!("\n{line}\n")), "{line}: {after}");
        }
        assert!(get(address, "/").starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn an_address_that_is_taken_is_refused_with_the_key() {
        let runtime = runtime().unwrap();
        let serve = |address| MetricsPage::serve(runtime.handle(), address, Arc::default());
        let (_page, taken) = serve("127.0.0.1:0".parse().unwrap()).unwrap();
        let error = serve(taken).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        let begin = format!("cannot use `train.metrics_listen`: cannot listen on `{taken}`: ");
        assert!(error.to_string().starts_with(&begin), "{error}");
    }
}
