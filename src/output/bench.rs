//! Report of `bench`.

use std::fmt::{self, Write as _};

use feedline_schemas::units::ByteSize;

use super::text::{Text, counted, line};
use crate::bench::BenchReport;

impl Text for BenchReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "loader: {}, batches of {}", self.kind, self.batch_size)?;
        line(
            out,
            "samples",
            format!("{} in {:.3} s", self.samples, self.seconds),
        )?;
        line(
            out,
            "rate",
            format!(
                "{:.0} samples/s, {}/s",
                self.samples_per_second,
                whole_bytes(self.bytes_per_second)
            ),
        )?;
        line(
            out,
            "opened in",
            format!("{:.0} ms", self.open_seconds * 1e3),
        )?;
        line(
            out,
            "first batch",
            format!("after {:.0} ms", self.first_batch_seconds * 1e3),
        )?;
        line(
            out,
            "data wait",
            format!("{:.2} % of the time after it", self.stall_share * 1e2),
        )?;
        if let Some(rate) = self.headspace_samples_per_second {
            line(
                out,
                "headspace",
                format!("{rate:.0} samples/s over one batch"),
            )?;
        }
        line(
            out,
            "processor",
            format!(
                "{:.2} s; busy: reading {:.2} s, filling {:.2} s",
                self.cpu_seconds, self.metrics.fetch.busy_seconds, self.metrics.decode.busy_seconds
            ),
        )?;
        line(
            out,
            "memory",
            format!("{} at most", ByteSize::new(self.peak_memory_bytes)),
        )?;
        line(
            out,
            "blocks",
            format!(
                "{} read, {}; {} read again",
                self.metrics.blocks,
                ByteSize::new(self.metrics.block_bytes),
                self.metrics.refetches
            ),
        )?;
        if self.metrics.quarantined > 0 {
            line(
                out,
                "replaced",
                format!(
                    "{} that could not be used",
                    counted(self.metrics.quarantined, "sample")
                ),
            )?;
        }
        line(out, "dataset", &self.url)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive and far below 2^63"
)]
fn whole_bytes(rate: f64) -> ByteSize {
    ByteSize::new(rate as u64)
}
