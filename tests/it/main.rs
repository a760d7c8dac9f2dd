//! Stories that cross crates: the real binary, real HTTP on loopback, real files, a real S3-compatible server.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "tests: their helpers too"
)]

mod additions;
mod ahead;
mod augment;
mod awkward_tables;
mod aws;
mod book;
mod children;
mod classes;
mod closed_output;
#[cfg(feature = "cluster")]
mod cluster;
mod decisions;
mod deferred;
mod delta;
mod edit;
mod ends;
mod evolved;
mod examples;
mod exit_codes;
mod export;
mod exported_roles;
mod fault_table;
mod features;
mod first_look;
mod forecast;
mod formats;
mod front_door;
mod fuzz;
mod generate;
mod graphql;
mod http2;
mod images;
mod ingest_stop;
mod inputs;
mod kept_models;
mod kills;
mod left_out_shards;
mod log_kills;
mod market;
mod memory;
mod multi;
mod nginx;
mod oauth;
mod orphans;
mod pages;
mod predict;
mod predict_joins;
mod predict_passthrough;
mod predict_query;
mod proxies;
mod python;
mod quickstart;
mod rank_kills;
mod ranks;
mod reference;
mod replay;
mod s3;
mod save_kills;
mod secrets;
mod serve;
mod several_targets;
mod sigterm;
mod simulated_days;
mod statistics;
mod style;
mod support;
mod texts;
mod tls;
mod torchrun;
mod tracking;
mod transparency;
mod trial_table;
mod trials_shown;
mod tune;
mod types;
mod values;
mod way_out;
mod weights;
mod write_kills;
mod wrong_input;
