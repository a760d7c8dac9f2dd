//! NVML's calls against a mock of it.

use std::{env, path::PathBuf, sync::Arc};

use feedline_schemas::performance::{GpuUse, MeanAndPeak, StepTime};

use super::*;
use crate::{
    reporting::{performance::GpuSampler, status::Tracker},
    testing::mock::MockLibraries,
};

/// Number of the GPU that a process reads; without one the scenario does nothing.
const GPU: &str = "FEEDLINE_MOCK_GPU";

/// A mock with these macros, and its path.
fn mock(macros: &[&str]) -> (MockLibraries, PathBuf) {
    let libraries = MockLibraries::new();
    let path = libraries.compile("tests/mock/nvml.c", LIBRARY, macros);
    (libraries, path)
}

/// The first of the two GPUs.
fn first() -> GpuName {
    GpuName {
        uuid: "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae00".to_owned(),
        pci_bus_id: Some("00000002:3b:05.0".to_owned()),
    }
}

/// So many readings of a GPU.
fn read(macros: &[&str], name: &GpuName, count: usize) -> Result<Vec<GpuReading>, String> {
    let (_libraries, path) = mock(macros);
    let mut readings = Vec::new();
    read_named(path, name, |reading| {
        readings.push(reading);
        readings.len() < count
    })?;
    Ok(readings)
}

fn reading(utilization: f64, bytes: f64, watts: Option<f64>, degrees: f64) -> GpuReading {
    GpuReading {
        utilization_percent: Some(utilization),
        memory_bytes: Some(bytes),
        power_w: watts,
        temperature_c: Some(degrees),
    }
}

#[test]
fn figures_are_read_in_the_units_that_they_are_reported_in() {
    let readings = read(&[], &first(), 3).unwrap();
    let expected = [
        reading(50.0, 2e9, Some(250.0), 40.0),
        reading(100.0, 6e9, Some(650.5), 61.0),
        reading(60.0, 4e9, Some(300.0), 55.0),
    ];
    assert_eq!(readings, expected);
}

#[test]
fn a_figure_that_is_refused_or_has_no_function_is_absent_and_the_others_are_read() {
    // `NVML_ERROR_NOT_SUPPORTED`, `NVML_ERROR_GPU_IS_LOST`.
    for lacking in [
        "-DNVML_MOCK_POWER=3",
        "-DNVML_MOCK_POWER=15",
        "-DNVML_MOCK_WITHOUT_POWER",
    ] {
        let readings = read(&[lacking], &first(), 2).unwrap();
        let expected = [
            reading(50.0, 2e9, None, 40.0),
            reading(100.0, 6e9, None, 61.0),
        ];
        assert_eq!(readings, expected, "{lacking}");
    }
}

#[test]
fn a_figure_that_is_refused_again_and_again_is_logged_once() {
    let (_libraries, path) = mock(&["-DNVML_MOCK_POWER=3"]);
    let nvml = Nvml::builder().lib_path(path.as_os_str()).init().unwrap();
    let device = first().find(&nvml).unwrap();
    let mut failed = FailedFigures::default();
    for _ in 0..3 {
        failed.read(&device);
    }
    assert_eq!(failed.0, ["power"]);
}

#[test]
fn a_gpu_without_its_uuid_is_found_by_its_address() {
    let without_uuid = ["-DNVML_MOCK_WITHOUT_UUID"];
    let readings = read(&without_uuid, &first(), 1).unwrap();
    assert_eq!(readings[0].memory_bytes, Some(2e9));
    for pci_bus_id in [None, Some("00000000:01:00.0".to_owned())] {
        let name = GpuName {
            pci_bus_id,
            ..first()
        };
        let reason = read(&without_uuid, &name, 1).unwrap_err();
        assert!(reason.contains(&name.uuid), "{reason}");
    }
}

#[test]
fn a_library_that_is_absent_or_refuses_is_a_reason_and_no_failure() {
    let path = "/nowhere/libnvidia-ml.so.1";
    let reason = read_named(path, &first(), |_| false).unwrap_err();
    assert!(reason.contains(path), "{reason}");
    // `NVML_ERROR_DRIVER_NOT_LOADED`.
    let reason = read(&["-DNVML_MOCK_INIT=9"], &first(), 1).unwrap_err();
    assert!(reason.contains("driver"), "{reason}");
}

/// The mocks number their GPUs in opposite orders, as CUDA and NVML may.
#[test]
fn the_thread_reads_the_gpu_that_cuda_has_under_its_number() {
    let libraries = MockLibraries::new();
    libraries.compile_driver();
    let run = |gpu: &str| {
        let mut command = libraries.command("performance::nvml::tests::a_scenario");
        command.env("FEEDLINE_MOCK_DRIVER_DEVICES", "2");
        let output = command.env(GPU, gpu).output().unwrap();
        assert!(output.status.success(), "{gpu}: {output:#?}");
    };
    run("none");
    libraries.compile("tests/mock/nvml.c", LIBRARY, &[]);
    run("0");
    run("1");
}

#[test]
#[ignore = "the test before it runs it with the mocks"]
fn a_scenario() {
    let Some(gpu) = env::var_os(GPU).and_then(|gpu| gpu.into_string().ok()) else {
        return;
    };
    let tracker = Arc::new(Tracker::default());
    let number = gpu.parse().unwrap_or(0);
    let sampler = GpuSampler::start(Some(number), &tracker).unwrap();
    // It is dropped after the first reading, which begins at once.
    drop(sampler);
    let step_time = StepTime {
        compute_s: 1.0,
        ..StepTime::default()
    };
    tracker.performance.set_steps(step_time, 1.0);
    let found = tracker.performance.report().unwrap().gpu;
    let same = |value| {
        Some(MeanAndPeak {
            mean: value,
            peak: value,
        })
    };
    let of = |[percent, bytes, watts, degrees]: [f64; 4]| GpuUse {
        readings: 1,
        utilization_percent: same(percent),
        memory_bytes: same(bytes),
        power_w: same(watts),
        temperature_c: same(degrees),
    };
    let expected = match gpu.as_str() {
        "none" => None,
        "0" => Some(of([50.0, 2e9, 250.0, 40.0])),
        _ => Some(of([1.0, 1.0, 1.0, 1.0])),
    };
    assert_eq!(found, expected);
    let line = serde_json::to_string(&tracker.performance.take_line(1.0)).unwrap();
    let has_power = line.contains("\"gpu_power_w\":250.0");
    assert_eq!(has_power, gpu == "0", "{line}");
}
