//! The commands: load the configuration, wire the stages, print the report.

mod amend;
mod bench;
mod check;
mod delta;
mod edit;
mod eval;
mod expect;
mod export;
mod first_look;
mod generate;
mod help;
mod ingest;
mod model;
mod own_dataset;
mod plan;
mod predict;
mod preview;
mod run;
mod runs;
mod serve;
mod shards;
mod tools;
mod train;
mod tune;
mod unset_variables;
mod weights;
mod work;

use self::tools::Tools;
#[cfg(feature = "cluster")]
use crate::cluster;
use crate::{
    cli::{BenchCommand, Cli, Command},
    decode_images,
    environment::Environment,
    exit::Outcome,
    stop::Stop,
};

/// Runs a command to its end.
pub(crate) fn run(cli: Cli, environment: Environment) -> anyhow::Result<Outcome> {
    // Its address space is bounded, and a runtime's threads would use some of it for every core.
    if matches!(cli.command, Command::DecodeImages) {
        return decode_images::run();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async {
        let launched = matches!(cli.command, Command::Rank(_));
        let tools = Tools::new(environment, Stop::on_signals(launched)?);
        let outcome = Box::pin(dispatch(cli.command, &tools)).await;
        tools.clear_bars();
        outcome
    });
    // Remaining tasks (a signal listener, a dropped transfer) are not awaited.
    runtime.shutdown_background();
    outcome
}

async fn dispatch(command: Command, tools: &Tools) -> anyhow::Result<Outcome> {
    match command {
        Command::Init(options) => first_look::run_init(&options, tools).await,
        Command::Check { pipeline, offline } => {
            check::check_pipeline(&pipeline, offline, tools).await
        }
        Command::Run(options) => run::run_pipeline(options, tools).await,
        Command::Ingest(options) => Box::pin(ingest::run_ingest(options, tools)).await,
        Command::Serve(options) => serve::serve_schedules(options, tools).await,
        Command::Shards(command) => shards::run_shards(command, tools).await,
        Command::Export(options) => export::export_rows(&options, tools).await,
        Command::Train(options) => train::train_model(options, tools).await,
        Command::Rank(options) => train::train_rank(&options, tools).await,
        Command::Eval(options) => Box::pin(eval::evaluate_run(options, tools)).await,
        Command::Predict(options) => Box::pin(predict::predict_rows(&options, tools)).await,
        Command::Tune(pipeline) => tune::search(&pipeline, tools).await,
        Command::Runs(command) => runs::show_runs(command, tools).await,
        Command::Weights(command) => weights::run_weights(command, tools).await,
        Command::Generate(options) => Box::pin(generate::continue_prompt(&options, tools)).await,
        Command::Edit(options) => edit::edit_texts(&options, tools).await,
        Command::Plan { pipeline, ask } => plan::show_plan(&pipeline, ask, tools).await,
        Command::Preview(options) => preview::preview_sources(options, tools).await,
        Command::Explain { key, json } => help::explain_key(key.as_deref(), json, tools),
        Command::Schema => help::print_schema(),
        Command::Completions { shell } => help::print_completions(shell),
        Command::Man { to } => help::write_manual(&to),
        Command::Bench(BenchCommand::Loader(options)) => bench::bench_loader(options, tools).await,
        Command::DecodeImages => decode_images::run(),
        #[cfg(feature = "cluster")]
        Command::Cluster(command) => {
            cluster::run(command, &tools.environment, tools.stop.clone()).await
        }
    }
}
