//! Speed of the steps and use of the device, on the page of a run.

use feedline_report::{some_steps, table};
use feedline_schemas::performance::{GpuUse, MeanAndPeak, Performance};

use super::curves::Curves;

/// Bytes of a GiB.
const GIB: f64 = 1_073_741_824.0;

/// Charts of the device, where lines have its figures.
pub(super) fn charts(curves: &Curves) -> String {
    let percent = "% of the device's peak";
    let share = curves.of_some_steps(|p| p.flops_share.map(|share| share * 100.0));
    let busy = "% of the time that a kernel ran";
    let utilization = curves.of_some_steps(|p| p.gpu_utilization_percent);
    let power = curves.of_some_steps(|p| p.gpu_power_w);
    some_steps("Share of peak FLOPS", percent, share)
        + &some_steps("GPU utilization", busy, utilization)
        + &some_steps("GPU power", "watts", power)
}

/// The section; empty for a run that took no step.
pub(super) fn section(performance: Option<&Performance>) -> String {
    let Some(found) = performance else {
        return String::new();
    };
    let time = found.step_time;
    let row = |name: &str, seconds: f64| {
        let share = format!("{:.1} %", seconds / time.total_s() * 100.0);
        vec![name.to_owned(), format!("{seconds:.1}"), share]
    };
    let rows = [
        row("waiting for data", time.data_wait_s),
        row("computing", time.compute_s),
        row("communication", time.communication_s),
        row("checkpoints", time.checkpoint_s),
    ];
    let caption = "Time of the training steps since the last start, by use.";
    let mut out = "<h2>Performance</h2>\n".to_owned();
    out += &format!("<p>{}</p>\n", speed(found));
    out += &table(caption, &["use", "seconds", "fraction"], 1.., &rows);
    out + &found.gpu.as_ref().map_or_else(String::new, of_gpu)
}

fn speed(found: &Performance) -> String {
    let share = match (found.flops_share, found.peak_flops_per_s) {
        (Some(share), Some(peak)) => format!(
            "{:.1} % of the published peak, {:.1} TFLOP/s",
            share * 100.0,
            peak / 1e12
        ),
        _ => "share of the device's peak unknown".to_owned(),
    };
    format!(
        "{:.1} samples per second of {:.3} GFLOP each, an estimate from the layers: {:.3} TFLOP/s, {share}.",
        found.samples_per_s,
        found.flops_per_sample / 1e9,
        found.flops_per_s / 1e12
    )
}

fn of_gpu(gpu: &GpuUse) -> String {
    let row = |name: &str, figure: Option<MeanAndPeak>, unit: f64| {
        let cell = |value: f64| format!("{:.1}", value / unit);
        let cells = figure.map_or_else(
            || ["not reported".to_owned(), "not reported".to_owned()],
            |figure| [figure.mean, figure.peak].map(cell),
        );
        let [mean, peak] = cells;
        vec![name.to_owned(), mean, peak]
    };
    let rows = [
        row("utilization, %", gpu.utilization_percent, 1.0),
        row("memory in use, GiB", gpu.memory_bytes, GIB),
        row("power, W", gpu.power_w, 1.0),
        row("temperature, °C", gpu.temperature_c, 1.0),
    ];
    let caption = format!(
        "The GPU of rank 0 in {} readings; other processes on it are included.",
        gpu.readings
    );
    table(&caption, &["figure", "mean", "peak"], 1.., &rows)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::performance::StepTime;

    use super::*;

    #[test]
    fn a_run_without_a_known_device_says_so_and_has_no_table_of_a_gpu() {
        assert_eq!(section(None), "");
        let performance = Performance {
            step_time: StepTime {
                data_wait_s: 1.0,
                compute_s: 2.0,
                communication_s: 0.5,
                checkpoint_s: 0.5,
            },
            samples_per_s: 250.0,
            flops_per_sample: 4e9,
            flops_per_s: 1e12,
            ..Performance::default()
        };
        let page = section(Some(&performance));
        for part in [
            "250.0 samples per second of 4.000 GFLOP each",
            "1.000 TFLOP/s, share of the device's peak unknown",
            "waiting for data</th><td class=\"number\">1.0</td><td class=\"number\">25.0 %</td>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("GPU"), "{page}");
    }

    #[test]
    fn figures_of_a_gpu_are_shown_with_their_units() {
        let [mean, peak] = [1.5 * GIB, 3.0 * GIB];
        let performance = Performance {
            step_time: StepTime {
                compute_s: 2.0,
                ..StepTime::default()
            },
            peak_flops_per_s: Some(989.4e12),
            flops_share: Some(0.4),
            gpu: Some(GpuUse {
                readings: 12,
                memory_bytes: Some(MeanAndPeak { mean, peak }),
                ..GpuUse::default()
            }),
            ..Performance::default()
        };
        let page = section(Some(&performance));
        for part in [
            "40.0 % of the published peak, 989.4 TFLOP/s",
            "in 12 readings",
            "memory in use, GiB</th><td class=\"number\">1.5</td><td class=\"number\">3.0</td>",
            "power, W</th><td class=\"number\">not reported</td>",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
