//! `feedline`: takes data from the web to the GPU.

mod bench;
mod check;
mod cli;
#[cfg(feature = "cluster")]
mod cluster;
mod commands;
mod decode_images;
mod edit;
mod environment;
mod exit;
mod explain;
mod formatted_times;
mod generate;
mod init;
mod launch;
mod output;
mod plan;
mod predict;
mod progress;
mod runs;
mod serve;
#[cfg(test)]
mod snapshots;
mod stop;
mod tune;
mod user_info;

use std::process::ExitCode;

use clap::{Parser as _, error::ErrorKind as UsageKind};

/// `.cargo/config.toml` has its settings.
#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::usage(&error),
    };
    let environment = environment::Environment::read();
    if let Err(reason) = output::start_logs(&environment) {
        return exit::usage(&clap::Error::raw(UsageKind::InvalidValue, reason + "\n"));
    }
    match commands::run(cli, environment) {
        Ok(outcome) => outcome.code(),
        Err(error) => exit::failed(&error),
    }
}
