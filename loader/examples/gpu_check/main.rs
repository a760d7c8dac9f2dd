//! Shows on a machine with an NVIDIA GPU what the device side of the loader promises, one JSON line per figure.
//!
//! ```text
//! cargo run --release -p feedline-loader --features cuda --example gpu_check [-- --quick]
//! ```
//!
//! It ends with 0 when every figure meets its bar, 1 when one does not, and 2 with "no GPU" where there is none. With
//! `--quick` it does less of everything and sets no bars, for tools that slow it down.
#![cfg_attr(
    feature = "cuda",
    expect(clippy::print_stdout, reason = "figures are what it is for")
)]
#![expect(clippy::print_stderr, reason = "errors are for people")]

use std::process::ExitCode;

#[cfg(feature = "cuda")]
mod copies;
#[cfg(feature = "cuda")]
#[expect(
    dead_code,
    clippy::unwrap_used,
    reason = "the tests' datasets, only partly used here"
)]
#[path = "../../tests/it/dataset.rs"]
mod dataset;
#[cfg(feature = "cuda")]
mod gathered;
#[cfg(feature = "cuda")]
mod kernels;
#[cfg(feature = "cuda")]
mod source;
#[cfg(feature = "cuda")]
mod whole;

#[cfg(not(feature = "cuda"))]
fn main() -> ExitCode {
    eprintln!("no GPU: this was built without the feature `cuda`");
    ExitCode::from(2)
}

/// Runtime for the loaders.
#[cfg(feature = "cuda")]
fn runtime() -> Result<tokio::runtime::Runtime, feedline_loader::Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.map_err(|source| feedline_loader::Error::Thread {
        stage: "check",
        source,
    })
}

#[cfg(feature = "cuda")]
fn main() -> ExitCode {
    use feedline_loader::{Error, device::cuda::Cuda};

    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let cuda = match Cuda::open(0) {
        Ok(cuda) => cuda,
        Err(error @ Error::NoDevice { .. }) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
        Err(error) => return failed(&error),
    };
    let mut report = Report {
        has_bars: !is_quick,
        missed: 0,
    };
    let checks = cuda
        .name()
        .map(|name| println!("{}", serde_json::json!({ "check": "device", "name": name })))
        .and_then(|()| kernels::check(&cuda, &mut report))
        .and_then(|()| copies::check(&cuda, &mut report, is_quick))
        .and_then(|()| whole::check(&cuda, &mut report, is_quick))
        .and_then(|()| gathered::check(&cuda, &mut report, is_quick));
    match checks {
        Err(error) => failed(&error),
        Ok(()) if report.missed > 0 => ExitCode::FAILURE,
        Ok(()) => ExitCode::SUCCESS,
    }
}

#[cfg(feature = "cuda")]
fn failed(error: &dyn std::error::Error) -> ExitCode {
    let cause = error.source().map(|cause| format!(": {cause}"));
    eprintln!("{error}{}", cause.unwrap_or_default());
    ExitCode::FAILURE
}

/// Prints figures and counts those that miss their bar.
#[cfg(feature = "cuda")]
struct Report {
    has_bars: bool,
    missed: u32,
}

#[cfg(feature = "cuda")]
impl Report {
    /// A figure that is right or wrong whatever the speed.
    fn must(&mut self, check: &str, passes: bool, details: serde_json::Value) {
        self.missed += u32::from(!passes);
        println!(
            "{}",
            serde_json::json!({ "check": check, "pass": passes, "details": details })
        );
    }

    /// A measured figure with its bar.
    fn measured(&mut self, check: &str, value: f64, unit: &str, bar: &str, passes: bool) {
        let passes = self.has_bars.then_some(passes);
        self.missed += u32::from(passes == Some(false));
        println!(
            "{}",
            serde_json::json!({ "check": check, "value": value, "unit": unit, "bar": bar, "pass": passes })
        );
    }

    /// A measured figure that explains another.
    fn note(&self, check: &str, value: f64, unit: &str) {
        println!(
            "{}",
            serde_json::json!({ "check": check, "value": value, "unit": unit })
        );
    }
}
