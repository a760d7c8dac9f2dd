//! Page-locking by the CUDA driver, against a mock of it: a library with the driver's names, which the trainer's tests use
//! too. It is compiled by the tests, and loaded as the driver is.
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
    device::{Pinning, cuda::Cuda},
};
use tempfile::TempDir;

use crate::page_locking::{features, loader};

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
        assert_eq!(
            counters["registrations"], 0,
            "{scenario}, {fail}: {counters:?}"
        );
        counters
    }
}

#[test]
fn all_batches_are_page_locked_once_and_unlocked_in_the_end() {
    let mock_driver = MockDriver::new();
    let locked = mock_driver.passes("locked", "");
    assert_eq!(locked["most_registered"], 4);
    let plain = mock_driver.passes("plain", "");
    assert_eq!(plain["most_registered"], 0);
}

#[test]
fn a_pass_that_is_dropped_leaves_no_memory_locked() {
    let counters = MockDriver::new().passes("dropped", "");
    assert_eq!(counters["most_registered"], 4, "one ring is used again");
}

#[test]
fn refused_page_locking_costs_no_batch() {
    let mock_driver = MockDriver::new();
    for (refused, scenario, most) in [(1, "refused", 0), (2, "refused", 1), (4, "fewer", 3)] {
        let fail = format!("cuMemHostRegister_v2:{refused}:2");
        let counters = mock_driver.passes(scenario, &fail);
        assert_eq!(counters["most_registered"], most, "{refused}");
    }
}

#[test]
fn a_failure_of_the_driver_is_one_error_that_names_the_call() {
    let mock_driver = MockDriver::new();
    for (fail, words) in [
        ("cuDeviceGetName:1:2", "name the GPU"),
        ("cuMemGetInfo_v2:1:2", "ask the GPU for its free memory"),
        ("cuDeviceGetUuid:1:2", "ask the GPU for its UUID"),
    ] {
        let (output, _) = mock_driver.run("failing", fail);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{fail}: {output:#?}");
        assert!(said.contains(words), "{fail}: {said}");
        assert!(said.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{fail}: {said}");
    }
}

/// Batches of a pass, and how many are page-locked; compared with a pass in other memory.
async fn check_pass(lock: Option<&Arc<Cuda>>, pinning: Pinning) -> usize {
    let loader = loader(4).await;
    if let Some(cuda) = lock {
        loader.lock_batches(Arc::<Cuda>::clone(cuda));
    }
    let (found, locked) = features(&loader);
    assert!(found == features(&self::loader(4).await).0);
    assert_eq!(loader.metrics().pinning, pinning);
    locked
}

/// Asks the driver for all that the trainer wants to know of a GPU.
fn describe(cuda: &Cuda) -> Result<(), Error> {
    assert_eq!(cuda.name()?, "mock");
    assert!(cuda.free_bytes()? > 0);
    assert_eq!(cuda.uuid()?.len(), 40);
    assert_eq!(cuda.pci_bus_id()?, "00000002:3b:05.0");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the tests beside it run it with the mock"]
async fn a_scenario() {
    let Some(scenario) = env::var_os(SCENARIO) else {
        return;
    };
    let cuda = Arc::new(Cuda::open(0).unwrap());
    match scenario.to_str().unwrap() {
        "locked" => assert_eq!(check_pass(Some(&cuda), Pinning::Whole).await, 13),
        "plain" => assert_eq!(check_pass(None, Pinning::NotAsked).await, 0),
        "refused" => assert_eq!(check_pass(Some(&cuda), Pinning::Refused).await, 0),
        "fewer" => assert_eq!(check_pass(Some(&cuda), Pinning::Fewer).await, 13),
        "dropped" => {
            let loader = loader(4).await;
            loader.lock_batches(Arc::<Cuda>::clone(&cuda));
            for taken in 0..6 {
                let pass = loader.epoch(loader.start_state()).unwrap();
                assert_eq!(pass.take(taken).filter_map(Result::ok).count(), taken);
            }
        }
        "failing" => {
            let Err(error) = describe(&cuda) else {
                panic!("the failure was not noticed")
            };
            println!("{error}: {:?}", std::error::Error::source(&error));
        }
        other => panic!("no scenario `{other}`"),
    }
}
