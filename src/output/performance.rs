//! Speed of a training on a GPU.

use std::fmt;

use feedline_schemas::{
    performance::{GpuUse, MeanAndPeak, Performance, StepTime},
    report::TrainReport,
    units::ByteSize,
};

use super::text::line;

/// Writes where the time went, the speed, and the figures of the device. The processor goes without saying.
pub(super) fn write(report: &TrainReport, out: &mut String) -> fmt::Result {
    let Some(found) = &report.performance else {
        return Ok(());
    };
    if matches!(report.device.as_str(), "" | "cpu") {
        return Ok(());
    }
    line(out, "step time", of_time(found.step_time))?;
    line(out, "speed", of_speed(found))?;
    match &found.gpu {
        Some(gpu) => line(out, "gpu", of_gpu(gpu)),
        None => Ok(()),
    }
}

fn of_time(time: StepTime) -> String {
    let percent = |seconds: f64| seconds / time.total_s() * 100.0;
    format!(
        "data {:.1} %, compute {:.1} %, communication {:.1} %, checkpoints {:.1} %",
        percent(time.data_wait_s),
        percent(time.compute_s),
        percent(time.communication_s),
        percent(time.checkpoint_s)
    )
}

fn of_speed(found: &Performance) -> String {
    let share = found.flops_share.map_or_else(
        || "share of peak unknown".to_owned(),
        |share| format!("{:.1} % of peak", share * 100.0),
    );
    let rate = in_flops(found.flops_per_s);
    format!("{:.1} samples/s, {rate}, {share}", found.samples_per_s)
}

/// Operations per second in the largest unit that they fill.
fn in_flops(per_s: f64) -> String {
    let units = [(1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s")];
    let filled = units.into_iter().find(|(unit, _)| per_s >= *unit);
    let (unit, name) = filled.unwrap_or(units[2]);
    format!("{:.1} {name}", per_s / unit)
}

/// Mean and peak of each figure that the GPU reports.
fn of_gpu(gpu: &GpuUse) -> String {
    let number = |unit: &'static str| move |value: f64| format!("{value:.0} {unit}");
    let bytes = |value: f64| ByteSize::new(whole(value)).to_string();
    let figures = [
        of_figure("utilization", gpu.utilization_percent, number("%")),
        of_figure("memory", gpu.memory_bytes, bytes),
        of_figure("power", gpu.power_w, number("W")),
        of_figure("temperature", gpu.temperature_c, number("°C")),
    ];
    let figures: Vec<String> = figures.into_iter().flatten().collect();
    if figures.is_empty() {
        return "reports no figures".to_owned();
    }
    figures.join(", ")
}

fn of_figure(
    name: &str,
    figure: Option<MeanAndPeak>,
    shown: impl Fn(f64) -> String,
) -> Option<String> {
    let MeanAndPeak { mean, peak } = figure?;
    Some(format!("{name} {} (peak {})", shown(mean), shown(peak)))
}

/// The whole part of a number of bytes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes of a GPU are not negative and far below 2^53"
)]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(device: &str, performance: Performance) -> String {
        let report = TrainReport {
            device: device.to_owned(),
            performance: Some(performance),
            ..TrainReport::default()
        };
        let mut out = String::new();
        write(&report, &mut out).unwrap();
        out
    }

    fn performance() -> Performance {
        Performance {
            step_time: StepTime {
                data_wait_s: 1.0,
                compute_s: 8.0,
                communication_s: 0.5,
                checkpoint_s: 0.5,
            },
            samples_per_s: 1234.5,
            flops_per_s: 4e14,
            ..Performance::default()
        }
    }

    #[test]
    fn small_rates_are_shown_in_small_units() {
        let shown = [4e14, 7.64e7, 2.5e10, 0.0].map(in_flops);
        let expected = [
            "400.0 TFLOP/s",
            "76.4 MFLOP/s",
            "25.0 GFLOP/s",
            "0.0 MFLOP/s",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn of_an_unknown_gpu_the_share_of_the_peak_is_unknown() {
        let text = shown("some GPU (cuda:0)", performance());
        let expected = "  step time        data 10.0 %, compute 80.0 %, communication 5.0 %, checkpoints 5.0 %\n  \
                        speed            1234.5 samples/s, 400.0 TFLOP/s, share of peak unknown\n";
        assert_eq!(text, expected);
        assert_eq!(shown("cpu", performance()), "");
    }

    #[test]
    fn figures_that_a_gpu_does_not_report_are_left_out() {
        let figure = |mean, peak| Some(MeanAndPeak { mean, peak });
        let text = shown(
            "NVIDIA H200 (cuda:0)",
            Performance {
                flops_share: Some(0.4043),
                gpu: Some(GpuUse {
                    readings: 3,
                    utilization_percent: figure(87.4, 100.0),
                    memory_bytes: figure(1_073_741_824.0, 3_221_225_472.0),
                    power_w: None,
                    temperature_c: figure(52.0, 61.0),
                }),
                ..performance()
            },
        );
        assert!(text.contains("400.0 TFLOP/s, 40.4 % of peak\n"), "{text}");
        let gpu = "  gpu              utilization 87 % (peak 100 %), memory 1.0 GiB (peak 3.0 GiB), temperature 52 °C (peak 61 °C)\n";
        assert!(text.ends_with(gpu), "{text}");
    }
}
