//! The calls of the CUDA driver, against a mock of it: a library with the driver's names that keeps device memory in host
//! memory and runs each stream on a thread, with delays. It is compiled by the tests, and loaded as the driver is.
//!
//! The library is found through `LD_LIBRARY_PATH`, which a process reads when it starts, so each test runs this program again.

use std::{
    collections::BTreeMap,
    env, fs,
    path::Path,
    process::{Command, Output},
    sync::Arc,
};

use feedline_loader::{
    Error,
    device::{DeviceBatch, Pinning, Uploader, cuda::Cuda},
};
use tempfile::TempDir;

use crate::device::{in_host_memory, loader};

/// Scenario of the process; without one it does nothing.
const SCENARIO: &str = "FEEDLINE_MOCK_DRIVER_SCENARIO";

/// The mock, and counters of what a process did with it.
struct MockDriver {
    folder: TempDir,
}

impl MockDriver {
    /// Compiles it.
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/mock_driver/cuda.c");
        let compiled = Command::new("cc")
            .args(["-std=c11", "-O1", "-shared", "-fPIC", "-pthread", "-o"])
            .arg(folder.path().join("libcuda.so"))
            .arg(source)
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{compiled:?}");
        Self { folder }
    }

    /// Runs a scenario in a process of its own, whose N-th call of a name fails with a code where `fail` says so.
    fn run(&self, scenario: &str, fail: &str) -> (Output, BTreeMap<String, i64>) {
        let log = self.folder.path().join("log");
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "mock_driver::a_scenario",
                "--ignored",
                "--nocapture",
            ])
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("FEEDLINE_MOCK_DRIVER_DELAY", "400")
            .env("FEEDLINE_MOCK_DRIVER_LOG", &log)
            .env(SCENARIO, scenario);
        if !fail.is_empty() {
            command.env("FEEDLINE_MOCK_DRIVER_FAIL", fail);
        }
        let output = command.output().unwrap();
        let counters = fs::read_to_string(log).unwrap_or_default();
        let counters = counters.lines().filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        (output, counters.collect())
    }

    /// The same for a scenario that passes: nothing is left over.
    fn passes(&self, scenario: &str, fail: &str) -> BTreeMap<String, i64> {
        let (output, counters) = self.run(scenario, fail);
        assert!(output.status.success(), "{scenario}, {fail}: {output:#?}");
        for name in ["allocations", "registrations", "events", "streams"] {
            assert_eq!(
                counters[name], 0,
                "{scenario}, {fail}: {name} of {counters:?}"
            );
        }
        counters
    }
}

#[test]
fn batches_arrive_whole_through_streams_that_overtake_each_other() {
    let mock_driver = MockDriver::new();
    let locked = mock_driver.passes("locked", "");
    assert_eq!((locked["copies_pageable"], locked["broken"]), (0, 0));
    assert!(locked["copies_locked"] >= 2 * 13, "{locked:?}");
    assert_eq!(locked["most_registered"], 4);
    let plain = mock_driver.passes("plain", "");
    assert_eq!((plain["copies_locked"], plain["registrations"]), (0, 0));
    assert!(plain["copies_pageable"] >= 2 * 13, "{plain:?}");
    assert_eq!(plain["bytes_copied"], locked["bytes_copied"]);
}

#[test]
fn a_pass_that_is_dropped_leaves_nothing_on_the_device() {
    MockDriver::new().passes("dropped", "");
}

#[test]
fn refused_page_locking_costs_no_batch() {
    let mock_driver = MockDriver::new();
    for (refused, locks) in [("1", 0), ("2", 0), ("4", 3)] {
        let fail = format!("cuMemHostRegister_v2:{refused}:2");
        let counters = mock_driver.passes("refused", &fail);
        let all_pageable = counters["copies_locked"] == 0;
        assert_eq!(all_pageable, locks == 0, "{refused}: {counters:?}");
    }
}

#[test]
fn a_failure_of_the_driver_is_one_error_that_names_the_call() {
    let mock_driver = MockDriver::new();
    for (fail, words) in [
        ("cuMemAlloc_v2:2:2", "allocate memory of the GPU"),
        ("cuStreamCreateWithPriority:1:2", "make the copy stream"),
        ("cuEventCreate:1:2", "make an event"),
        ("cuMemcpyHtoDAsync_v2:5:2", "copy a batch to the GPU"),
        ("cuEventRecord:3:2", "mark the end of work on the GPU"),
        ("cuStreamWaitEvent:2:2", "order the streams of the GPU"),
    ] {
        let (output, _) = mock_driver.run("failing", fail);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{fail}: {output:#?}");
        assert!(said.contains(words), "{fail}: {said}");
        assert!(said.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{fail}: {said}");
    }
    // A copy that fails while it runs is known by a later call.
    let (output, counters) = mock_driver.run("failing", "copy:4:700");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:#?}");
    assert!(said.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{said}");
    assert_eq!(counters["broken"], 700);
}

/// Bytes of the features of a pass, as the device has them; with the first error.
async fn on_the_device(cuda: &Arc<Cuda>, is_locked: bool) -> Result<(Vec<u8>, Pinning), Error> {
    let loader = loader(4).await;
    if is_locked {
        loader.lock_batches(Arc::<Cuda>::clone(cuda));
    }
    let stream = cuda.compute_stream()?;
    let pass = loader.epoch(loader.start_state())?;
    let uploader = Uploader::of_pass(Arc::clone(cuda), Arc::clone(&stream), pass, 3)?;
    let mut bytes = Vec::new();
    for batch in uploader {
        let batch: DeviceBatch<Cuda, _> = batch?;
        bytes.extend(cuda.read(batch.memory(), batch.parts()[0].clone(), &stream)?);
    }
    Ok((bytes, loader.metrics().pinning))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the tests beside it run it with the mock"]
async fn a_scenario() {
    let Some(scenario) = env::var_os(SCENARIO) else {
        return;
    };
    let expected = in_host_memory(&loader(4).await);
    let cuda = Arc::new(Cuda::open(0).unwrap());
    assert_eq!(cuda.name().unwrap(), "mock");
    match scenario.to_str().unwrap() {
        "locked" => {
            let (found, pinning) = on_the_device(&cuda, true).await.unwrap();
            assert!(found == expected && pinning == Pinning::Whole);
        }
        "plain" => {
            let (found, _) = on_the_device(&cuda, false).await.unwrap();
            assert!(found == expected);
        }
        "refused" => {
            let (found, pinning) = on_the_device(&cuda, true).await.unwrap();
            assert!(
                found == expected && pinning != Pinning::Whole,
                "{pinning:?}"
            );
        }
        "dropped" => {
            let loader = loader(4).await;
            loader.lock_batches(Arc::<Cuda>::clone(&cuda));
            for taken in 0..6 {
                let stream = cuda.compute_stream().unwrap();
                let pass = loader.epoch(loader.start_state()).unwrap();
                let uploader = Uploader::of_pass(Arc::clone(&cuda), stream, pass, 2).unwrap();
                assert_eq!(uploader.take(taken).filter_map(Result::ok).count(), taken);
            }
        }
        "failing" => {
            let Err(error) = on_the_device(&cuda, true).await else {
                panic!("the failure was not noticed")
            };
            println!("{error}: {:?}", std::error::Error::source(&error));
        }
        other => panic!("no scenario `{other}`"),
    }
}
