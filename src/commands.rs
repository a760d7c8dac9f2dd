//! The commands: load the configuration, wire the stages, print the report.

mod export;
mod first_look;
mod generate;

use std::{collections::BTreeMap, fs, num::NonZero, path::Path, sync::Arc, thread};

use anyhow::Context as _;
use clap::CommandFactory as _;
use feedline_preprocess::{Engine, KeptRows, SeriesRequest, TextEncoder};
use feedline_schemas::{
    amendment::AmendReport,
    config::{
        BaselinePolicy, ConfigError, DatasetKind, Loaded, Override, PIPELINE_SCHEMA, TrainConfig,
        load,
    },
    ids::Name,
    manifest::{Manifest, Split},
    progress::Progress,
    report::{
        DatasetReport, EditReport, ExpectReport, ExportReport, IngestReport, PredictReport,
        RunReport, SourceReport, TrainReport, Warning,
    },
    transform::{FittedTarget, TransformArtefact},
};
use feedline_storage::{
    PutNew, Store,
    clock::{Clock, SystemClock},
};
use feedline_trainer::{Choice, ChosenRun, Predicted, Resume, Use};
use serde::Serialize;
use serde_json::Value;

use self::generate::TextRun;
#[cfg(feature = "cluster")]
use crate::cluster;
use crate::{
    bench,
    check::{self, CheckReport},
    cli::{
        self, Bench, Building, Cli, Command, Dataset, Detail, Ingest, IngestCommand, LoaderBench,
        Options, Pipeline, Ranks, RejectRule, Runs, Serve, Shards, Weights,
    },
    decode_images,
    edit::Edit,
    environment::Environment,
    exit::{self, Outcome},
    explain,
    launch::{Order, Voice},
    output::{self, Inspection, PreviewReport, Text},
    plan::{PlanReport, TrainPlan},
    predict::{
        self, Answers, Output, Predict, images,
        multi::{self, PredictParts},
        series,
        split::SplitColumns,
        texts::{PredictTexts, TextSource},
    },
    progress::{self, Bars},
    runs::ShownRuns,
    serve,
    stop::Stop,
    tune,
};

/// Minimum number of partitions of queries on a cluster: tasks that its workers share. The result
/// does not depend on it.
const PARTITIONS: usize = 32;

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
        let launched = matches!(cli.command, Command::Rank { .. });
        let stop = Stop::on_signals(launched)?;
        let (progress, bars) = progress::for_terminal(environment.leads());
        let tools = Tools {
            environment: Arc::new(environment),
            progress,
            bars,
            clock: Arc::new(SystemClock),
            stop,
            hosts: Arc::default(),
        };
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
        Command::Run {
            pipeline,
            building,
            ranks,
            rejects,
            detail,
        } => {
            let work = Work::load(&pipeline, tools)?;
            work.run(&pipeline, building, ranks, (rejects, detail))
                .await
        }
        Command::Ingest(ingest) => Box::pin(run_ingest(ingest, tools)).await,
        Command::Serve(options) => run_serve(options, tools).await,
        Command::Shards(Shards::Build {
            pipeline,
            building,
            rejects,
            detail,
        }) => {
            let work = Work::load(&pipeline, tools)?;
            let report = work.build(building).await?;
            work.print(&report, detail, None)?;
            Ok(rejects.outcome(report.rejected))
        }
        Command::Export(options) => {
            let work = Work::load(&options.pipeline, tools)?;
            work.export_rows(&options).await
        }
        Command::Shards(Shards::Verify(dataset)) => verify(&dataset, tools).await,
        Command::Shards(Shards::Inspect(dataset)) => inspect(&dataset, tools).await,
        Command::Shards(Shards::Expect { pipeline, to }) => {
            Work::load(&pipeline, tools)?.expect(to).await
        }
        Command::Train {
            pipeline,
            resume,
            summary,
            ranks,
            detail,
        } => {
            let work = Work::load(&pipeline, tools)?;
            if summary {
                return work.summary().await;
            }
            let resume = match resume {
                true => Resume::Prolong,
                false => Resume::Fresh,
            };
            let changed = work.dataset_warning().await;
            let mut report = work.train_by(&pipeline, ranks, resume).await?;
            report.warnings.extend(changed);
            let next = work.next_of_model(&pipeline);
            work.print(&report, detail, Some(next))?;
            Ok(work.judge(&report.warnings).unwrap_or(Outcome::Done))
        }
        Command::Rank {
            pipeline,
            resume,
            prolong,
        } => {
            let resume = match (resume, prolong) {
                (true, true) => Resume::Prolong,
                (true, false) => Resume::Continue,
                (false, _) => Resume::Fresh,
            };
            run_rank(&pipeline, resume, tools).await
        }
        Command::Eval {
            pipeline,
            run,
            dataset,
            split,
            predictions,
        } => {
            let work = Work::load(&pipeline, tools)?;
            let predictions = predictions.as_deref();
            let (choice, dataset) = (run.choice(), dataset.as_deref());
            Box::pin(work.eval(&choice, dataset, split.into(), predictions)).await
        }
        Command::Predict(options) => {
            let work = Work::load(&options.pipeline, tools)?;
            work.predict(&options).await
        }
        Command::Tune(pipeline) => Work::load(&pipeline, tools)?.tune().await,
        Command::Runs(runs) => run_runs(runs, tools).await,
        Command::Weights(Weights::Export {
            pipeline,
            run,
            to,
            merge_lora,
            dtype,
            layout,
        }) => {
            let options = feedline_trainer::ExportOptions {
                merge_lora,
                precision: dtype.into(),
                layout: layout.into(),
            };
            let work = Work::load(&pipeline, tools)?;
            work.export(&run.choice(), &to, options).await
        }
        Command::Generate(options) => {
            let work = Work::load(&options.pipeline, tools)?;
            Box::pin(work.generate(&options)).await
        }
        Command::Edit(edit) => {
            let work = Work::load(&edit.pipeline, tools)?;
            let report = work.edit(&edit).await?;
            tools.print(&report, work.json)?;
            Ok(Outcome::Done)
        }
        Command::Plan { pipeline, ask } => Work::load(&pipeline, tools)?.plan(ask).await,
        Command::Init(options) => first_look::run_init(&options, tools).await,
        Command::Check { pipeline, offline } => {
            let work = Work::load(&pipeline, tools)?;
            let report = work.check(&pipeline, offline).await?;
            tools.print(&report, work.json)?;
            Ok(report.outcome())
        }
        Command::Explain { key, json } => {
            tools.print(&explain::explain(key.as_deref())?, json)?;
            Ok(Outcome::Done)
        }
        Command::Schema => {
            output::print_text(PIPELINE_SCHEMA)?;
            Ok(Outcome::Done)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "feedline", &mut script);
            output::print_text(&String::from_utf8_lossy(&script))?;
            Ok(Outcome::Done)
        }
        Command::Man { to } => {
            fs::create_dir_all(&to)?;
            clap_mangen::generate_to(Cli::command(), &to)?;
            Ok(Outcome::Done)
        }
        Command::Preview {
            pipeline,
            source,
            rows,
        } => {
            let is_pipeline = pipeline.file.extension().is_some_and(|end| end == "toml");
            let work = match is_pipeline {
                true => Work::load(&pipeline, tools)?,
                false => Work::of_table(&pipeline, tools)?,
            };
            work.preview(source, rows.map_or(0, usize::from)).await
        }
        Command::Bench(Bench::Loader(options)) => bench_loader(options, tools).await,
        Command::DecodeImages => decode_images::run(),
        #[cfg(feature = "cluster")]
        Command::Cluster(command) => {
            cluster::run(command, &tools.environment, tools.stop.clone()).await
        }
    }
}

async fn run_ingest(ingest: Ingest, tools: &Tools) -> anyhow::Result<Outcome> {
    match ingest.command {
        Some(IngestCommand::Status(pipeline)) => {
            let work = Work::load(&pipeline, tools)?;
            let now = tools.clock.unix();
            let report = feedline_ingest::standing(&work.loaded.config, &work.root, now).await;
            let report = report.map_err(|e| work.ingest_error(e))?;
            tools.print(&report, work.json)?;
            let is_bad = report.sources.iter().any(|s| !s.damage.is_empty());
            return Ok(if is_bad { Outcome::Bad } else { Outcome::Done });
        }
        Some(IngestCommand::Verify { pipeline, source }) => {
            let work = Work::load(&pipeline, tools)?;
            return work.verify_landing(source).await;
        }
        Some(IngestCommand::Repair {
            pipeline,
            source,
            dry_run,
        }) => {
            let work = Work::load(&pipeline, tools)?;
            return work.repair(source, dry_run).await;
        }
        Some(IngestCommand::Resume { pipeline, source }) => {
            let work = Work::load(&pipeline, tools)?;
            return work.resume(source).await;
        }
        Some(IngestCommand::Reset {
            pipeline,
            source,
            dry_run,
        }) => {
            let work = Work::load(&pipeline, tools)?;
            let (name, context) = (work.source(&source)?, work.ingesting());
            let reset = feedline_ingest::reset(&work.loaded.config, &name, &context, dry_run).await;
            return work.amended(reset, RejectRule::default());
        }
        Some(IngestCommand::Reread {
            pipeline,
            source,
            from,
            to,
            files,
            dry_run,
            rejects,
        }) => {
            let work = Work::load(&pipeline, tools)?;
            let what = feedline_ingest::Reread { from, to, files };
            return work.reread(&source, &what, dry_run, rejects).await;
        }
        Some(IngestCommand::Rewind {
            pipeline,
            source,
            to,
            dry_run,
        }) => {
            let work = Work::load(&pipeline, tools)?;
            let (name, context) = (work.source(&source)?, work.ingesting());
            let config = &work.loaded.config;
            let rewound = feedline_ingest::rewind(config, &name, to, &context, dry_run);
            return work.amended(Box::pin(rewound).await, RejectRule::default());
        }
        Some(IngestCommand::Compact {
            pipeline,
            source,
            target_bytes,
            dry_run,
        }) => {
            let work = Work::load(&pipeline, tools)?;
            let (name, context) = (work.source(&source)?, work.ingesting());
            let (config, bytes) = (&work.loaded.config, target_bytes.bytes());
            let merged = feedline_ingest::compact(config, &name, bytes, &context, dry_run);
            return work.amended(Box::pin(merged).await, RejectRule::default());
        }
        Some(IngestCommand::Delta {
            pipeline,
            source,
            rebuild,
        }) => {
            let work = Work::load(&pipeline, tools)?;
            return work.delta(source, rebuild).await;
        }
        Some(IngestCommand::RetryRejects {
            pipeline,
            source,
            dry_run,
            rejects,
        }) => {
            let work = Work::load(&pipeline, tools)?;
            let (name, context) = (work.source(&source)?, work.ingesting());
            let retried =
                feedline_ingest::retry_rejects(&work.loaded.config, &name, &context, dry_run);
            return work.amended(Box::pin(retried).await, rejects);
        }
        Some(IngestCommand::Delete {
            pipeline,
            source,
            batch,
            dry_run,
        }) => {
            let work = Work::load(&pipeline, tools)?;
            let (name, context) = (work.source(&source)?, work.ingesting());
            let config = &work.loaded.config;
            let deleted = feedline_ingest::delete(config, &name, &batch, &context, dry_run).await;
            return work.amended(deleted, RejectRule::default());
        }
        Some(IngestCommand::Replay {
            pipeline,
            from,
            source,
            rejects,
        }) => {
            let work = Work::load(&pipeline, tools)?;
            return work.replay(&from, source, rejects).await;
        }
        None => {}
    }
    let file = ingest.file.context("the pipeline file is missing")?;
    let work = Work::load(
        &Pipeline {
            file,
            options: ingest.options,
        },
        tools,
    )?;
    let rejects = ingest.rejects;
    let only = ingest.source.map(|text| work.source(&text)).transpose()?;
    let (report, error) = work.ingest_or_stop(only.as_ref()).await?;
    work.print(&report, ingest.detail, None)?;
    match error {
        Some(error) => Err(error),
        None => Ok(rejects.outcome(report.rejected)),
    }
}

async fn run_serve(options: Serve, tools: &Tools) -> anyhow::Result<Outcome> {
    let mut scheduler = feedline_ingest::Scheduler::new(usize::from(options.at_once));
    for file in options.files {
        let set = options.set.clone();
        let work = Work::load(
            &Pipeline {
                file,
                options: Options { set, json: false },
            },
            tools,
        )?;
        let added = scheduler.add(work.loaded.config.clone(), &work.ingesting());
        added.map_err(|e| work.ingest_error(e))?;
    }
    let (listen, unhealthy_after) = (options.listen, options.unhealthy_after);
    serve::serve(scheduler, listen, unhealthy_after, Arc::clone(&tools.clock)).await?;
    Ok(Outcome::Done)
}

/// Runs one of the processes that `--ranks` starts, and reports its end to the launcher.
async fn run_rank(pipeline: &Pipeline, resume: Resume, tools: &Tools) -> anyhow::Result<Outcome> {
    let voice = Voice::begin(tools.environment.group()?, Arc::clone(&tools.stop.flag))?;
    let heard = Tools {
        progress: voice.at_the_first_news(Arc::clone(&tools.progress)),
        ..tools.clone()
    };
    let train = async { Work::load(pipeline, &heard)?.train(resume).await };
    let result = train.await;
    tools.clear_bars();
    voice.end(result);
    Ok(Outcome::Done)
}

async fn run_runs(runs: Runs, tools: &Tools) -> anyhow::Result<Outcome> {
    let now_ms = u64::try_from(tools.clock.unix().as_millis())?;
    match runs {
        Runs::List { pipeline, all } => {
            let work = Work::load(&pipeline, tools)?;
            let list = feedline_trainer::runs::list(&work.root.child("train"), now_ms).await?;
            tools.print(&ShownRuns::new(list, all), work.json)?;
        }
        Runs::Compare {
            file,
            runs,
            html,
            options,
        } => {
            let work = Work::load(&Pipeline { file, options }, tools)?;
            let folder = work.root.child("train");
            let found = feedline_trainer::runs::compare(&folder, &runs, now_ms).await?;
            if let Some(path) = html {
                fs::write(&path, found.html())
                    .with_context(|| format!("cannot write `{}`", path.display()))?;
            }
            tools.print(&found, work.json)?;
        }
    }
    Ok(Outcome::Done)
}

async fn bench_loader(options: LoaderBench, tools: &Tools) -> anyhow::Result<Outcome> {
    let (clock, stop) = (Arc::clone(&tools.clock), tools.stop.clone());
    let store_options = tools.environment.store_options();
    let json = options.json;
    let run = move || bench::loader(&options, store_options, &clock, &stop);
    tools.print(&tokio::task::spawn_blocking(run).await??, json)?;
    Ok(Outcome::Done)
}

async fn verify(dataset: &Dataset, tools: &Tools) -> anyhow::Result<Outcome> {
    check_is_dataset(dataset, tools)?;
    let store = tools.open(&dataset.url)?;
    let report = tools
        .stop
        .unless_stopped(feedline_preprocess::verify(&store))
        .await??;
    tools.print(&report, dataset.json)?;
    Ok(if report.problems.is_empty() {
        Outcome::Done
    } else {
        Outcome::Bad
    })
}

async fn inspect(dataset: &Dataset, tools: &Tools) -> anyhow::Result<Outcome> {
    check_is_dataset(dataset, tools)?;
    let store = tools.open(&dataset.url)?;
    let manifest = feedline_preprocess::read_manifest(&store).await?;
    let transform = feedline_preprocess::read_transform(&store, &manifest).await?;
    tools.print(
        &Inspection {
            url: store.url(),
            manifest,
            transform,
        },
        dataset.json,
    )?;
    Ok(Outcome::Done)
}

/// Refuses a pipeline file where a dataset is expected, and names its dataset.
fn check_is_dataset(dataset: &Dataset, tools: &Tools) -> anyhow::Result<()> {
    let file = Path::new(&dataset.url);
    if file.extension().is_none_or(|end| end != "toml") || !file.is_file() {
        return Ok(());
    }
    let pipeline = Pipeline {
        file: file.to_owned(),
        options: Options {
            set: Vec::new(),
            json: false,
        },
    };
    let folder = Work::load(&pipeline, tools)?.root.child("dataset").url();
    anyhow::bail!(
        "`{}` is a pipeline file, and this command reads a dataset; that of the pipeline is `{folder}`",
        dataset.url
    )
}

/// Refuses a folder and a file of data where a pipeline file is expected.
fn check_is_pipeline(file: &Path) -> Result<(), ConfigError> {
    let shown = file.display();
    let reason = match (file.is_dir(), crate::init::is_data_file(&shown.to_string())) {
        (true, _) => "it is a folder",
        (false, true) if file.is_file() => "it is a file of data",
        _ => return Ok(()),
    };
    Err(ConfigError {
        file: shown.to_string(),
        line: None,
        key: String::new(),
        reason: format!(
            "{reason}, and this command reads a pipeline file (TOML); `feedline init {}` writes one for it",
            output::shell_word(&shown.to_string())
        ),
    })
}

/// Resources of every command.
#[derive(Clone, Debug)]
struct Tools {
    environment: Arc<Environment>,
    progress: Arc<dyn Progress>,
    bars: Option<Arc<Bars>>,
    clock: Arc<dyn Clock>,
    stop: Stop,
    /// One request budget for each host, shared by all pipelines of the process.
    hosts: Arc<feedline_ingest::Hosts>,
}

impl Tools {
    fn clear_bars(&self) {
        if let Some(bars) = &self.bars {
            bars.clear();
        }
    }

    /// Prints a report, once for all ranks that train together.
    fn print<R: Serialize + Text>(&self, report: &R, json: bool) -> anyhow::Result<()> {
        self.clear_bars();
        if self.environment.leads() {
            output::print(report, json)?;
        }
        Ok(())
    }

    fn open(&self, url: &str) -> anyhow::Result<Store> {
        Ok(Store::open(url, &self.environment.store_options())?)
    }
}

/// A loaded pipeline and the tools to work on it.
#[derive(Debug)]
struct Work<'a> {
    loaded: Loaded,
    set: Vec<Override>,
    root: Store,
    json: bool,
    tools: &'a Tools,
}

impl<'a> Work<'a> {
    fn load(pipeline: &Pipeline, tools: &'a Tools) -> anyhow::Result<Self> {
        check_is_pipeline(&pipeline.file)?;
        Self::of_text(&read(&pipeline.file)?, pipeline, tools)
    }

    /// Loads a pipeline whose only source is the data file given instead of a pipeline file.
    fn of_table(pipeline: &Pipeline, tools: &'a Tools) -> anyhow::Result<Self> {
        // A JSON string is a TOML string too.
        let url = serde_json::to_string(&pipeline.file.display().to_string())?;
        let text = format!(
            "[pipeline]\nname = \"preview\"\n[[source]]\nname = \"file\"\ntype = \"files\"\nurl = {url}\n"
        );
        Self::of_text(&text, pipeline, tools)
    }

    fn of_text(text: &str, pipeline: &Pipeline, tools: &'a Tools) -> anyhow::Result<Self> {
        let Options { set, json } = &pipeline.options;
        let loaded = load(&pipeline.file.display().to_string(), text, set)?;
        let root = Store::open(
            &loaded.config.pipeline.root(),
            &tools.environment.store_options(),
        )
        .map_err(|e| loaded.error("pipeline.root", e.to_string()))?;
        let mut work = Self {
            loaded,
            set: set.clone(),
            root,
            json: *json,
            tools,
        };
        let folder = pipeline.file.parent().unwrap_or(Path::new(""));
        let read = feedline_ingest::read_queries(&mut work.loaded.config, folder);
        read.map_err(|error| work.ingest_error(error))?;
        Ok(work)
    }

    /// Runs all stages.
    async fn run(
        &self,
        pipeline: &Pipeline,
        building: Building,
        ranks: Ranks,
        (rejects, detail): (RejectRule, Detail),
    ) -> anyhow::Result<Outcome> {
        self.check_settings()?;
        if let Some(reason) = check::missing_dataset(&self.loaded.config, &self.root).await {
            return Err(self.loaded.error("train", reason).into());
        }
        let config = &self.loaded.config;
        let mut report = RunReport::default();
        if !config.source.is_empty() {
            let (ingest, error) = self.ingest().await?;
            report.ingest = Some(ingest);
            if let Some(error) = error {
                // A failed command reports no result, except for sources that succeeded.
                if config.source.len() > 1 {
                    self.print(&report, detail, None)?;
                }
                return Err(error);
            }
        }
        if config.dataset.is_some() {
            report.dataset = Some(self.build(building).await?);
        }
        if config.train.is_some() {
            report.train = Some(self.train_by(pipeline, ranks, Resume::Continue).await?);
        }
        let next = report.train.is_some().then(|| self.next_of_model(pipeline));
        self.print(&report, detail, next)?;
        let rejected =
            report.ingest.map_or(0, |i| i.rejected) + report.dataset.map_or(0, |d| d.rejected);
        let train = report.train.as_ref();
        let judged = train.and_then(|train| self.judge(&train.warnings));
        Ok(judged.unwrap_or(rejects.outcome(rejected)))
    }

    /// Commands for a trained model.
    fn next_of_model(&self, pipeline: &Pipeline) -> String {
        let file = pipeline.file.display().to_string();
        let file = output::shell_word(&file);
        // Another root, source or model is another run.
        let set = pipeline.options.set.iter();
        let set: String = set
            .map(|set| format!(" --set '{}={}'", set.key, set.value))
            .collect();
        let dataset = self.loaded.config.dataset.as_ref();
        let is_text = dataset.is_some_and(|dataset| dataset.kind.is_text());
        let first = match is_text {
            true => format!("feedline generate {file} --prompt TEXT{set}"),
            false => format!("feedline predict {file} NEW_ROWS{set}"),
        };
        format!("open the report; `{first}`, `feedline eval {file}{set}`")
    }

    /// Prints the report of a run; `next` names the commands that come next.
    fn print<R: Serialize + Text>(
        &self,
        report: &R,
        detail: Detail,
        next: Option<String>,
    ) -> anyhow::Result<()> {
        let brief = output::Brief {
            report,
            verbose: detail.verbose,
            next,
        };
        self.tools.print(&brief, self.json)
    }

    /// Returns `Bad` for a model that is no better than its baseline, if that is required.
    fn judge(&self, warnings: &[Warning]) -> Option<Outcome> {
        let train = self.loaded.config.train.as_ref()?;
        let must = train.require_better_than_baseline == BaselinePolicy::Fail;
        let is_behind = warnings.iter().any(|w| w.code == "worse_than_baseline");
        if !must || !is_behind {
            return None;
        }
        tracing::error!(
            key = "train.require_better_than_baseline",
            "the model is worse than its baseline, which this key makes a failure; everything is saved"
        );
        Some(Outcome::Bad)
    }

    /// Returns a warning if the pipeline's own dataset was built with other settings of
    /// `[dataset]`, or from other files. Newly landed rows make no difference.
    async fn dataset_warning(&self) -> Option<Warning> {
        let config = &self.loaded.config;
        let train = config.train.as_ref();
        if config.dataset.is_none() || train.is_some_and(|train| train.dataset.is_some()) {
            return None;
        }
        let manifest = feedline_preprocess::read_manifest(&self.root.child("dataset")).await;
        let (manifest, context) = (manifest.ok()?, self.preprocessing(Engine::Local));
        let built = feedline_preprocess::is_built_by(config, &manifest, &context).await;
        // Without a readable landing zone there is nothing to compare.
        if built.ok()? {
            return None;
        }
        let message = "the dataset was built with other settings than `[dataset]` has now, or from other files: the model is of the \
                       existing dataset; run `feedline shards build` for one with these settings";
        tracing::warn!(key = "dataset", "{message}");
        Some(Warning::new("dataset_settings_changed", message).with_key("dataset"))
    }

    /// Runs all sources. Returns their report, and the error that ends the run once the report is
    /// printed.
    async fn ingest(&self) -> anyhow::Result<(IngestReport, Option<anyhow::Error>)> {
        self.has_sources()?;
        let (config, context) = (&self.loaded.config, self.ingesting());
        let end = feedline_ingest::ingest_all(config, None, &context).await;
        let end = end.map_err(|e| self.ingest_error(e))?;
        let error = end.error.map(|e| self.ingest_error(e));
        Ok((end.report, error))
    }

    /// Runs all sources, or the one called `only`. A stop by SIGTERM is no failure, since the next
    /// run resumes from there.
    async fn ingest_or_stop(
        &self,
        only: Option<&Name>,
    ) -> anyhow::Result<(IngestReport, Option<anyhow::Error>)> {
        self.has_sources()?;
        let (config, context) = (&self.loaded.config, self.ingesting());
        let end = feedline_ingest::ingest_all(config, only, &context).await;
        let end = end.map_err(|e| self.ingest_error(e))?;
        match end.error {
            Some(feedline_ingest::Error::Cancelled) if self.tools.stop.is_terminated() => {
                let report = feedline_ingest::stopped(config, only, &context).await;
                Ok((report.map_err(|e| self.ingest_error(e))?, None))
            }
            error => Ok((end.report, error.map(|e| self.ingest_error(e)))),
        }
    }

    async fn resume(&self, source: Option<String>) -> anyhow::Result<Outcome> {
        let only = source.map(|text| self.source(&text)).transpose()?;
        let (config, context) = (&self.loaded.config, self.ingesting());
        let report = feedline_ingest::resume(config, only.as_ref(), &context).await;
        self.tools
            .print(&report.map_err(|e| self.ingest_error(e))?, self.json)?;
        Ok(Outcome::Done)
    }

    async fn delta(&self, source: Option<String>, rebuild: bool) -> anyhow::Result<Outcome> {
        let only = source.map(|text| self.source(&text)).transpose()?;
        let (config, context) = (&self.loaded.config, self.ingesting());
        let report = feedline_ingest::delta(config, only.as_ref(), &context, rebuild);
        let report = Box::pin(report).await.map_err(|e| self.ingest_error(e))?;
        self.tools.print(&report, self.json)?;
        Ok(Outcome::Done)
    }

    fn has_sources(&self) -> Result<(), ConfigError> {
        if self.loaded.config.source.is_empty() {
            let reason = "the pipeline has no source; add a `[[source]]`";
            return Err(self.loaded.error("source", reason));
        }
        Ok(())
    }

    async fn verify_landing(&self, source: Option<String>) -> anyhow::Result<Outcome> {
        let only = source.map(|text| self.source(&text)).transpose()?;
        let verify = feedline_ingest::verify(&self.loaded.config, only.as_ref(), &self.root).await;
        let report = verify.map_err(|e| self.ingest_error(e))?;
        let is_bad = report.sources.iter().any(|s| !s.damage.is_empty());
        self.tools.print(&report, self.json)?;
        Ok(if is_bad { Outcome::Bad } else { Outcome::Done })
    }

    /// Repairs logs; the outcome is bad if a damaged log could not be repaired.
    async fn repair(&self, source: Option<String>, dry_run: bool) -> anyhow::Result<Outcome> {
        let only = source.map(|text| self.source(&text)).transpose()?;
        let (config, context) = (&self.loaded.config, self.ingesting());
        let repair = feedline_ingest::repair(config, only.as_ref(), &context, dry_run).await;
        let report = repair.map_err(|e| self.ingest_error(e))?;
        let is_bad = dry_run && report.sources.iter().any(|source| source.damage.is_some());
        self.tools.print(&report, self.json)?;
        Ok(if is_bad { Outcome::Bad } else { Outcome::Done })
    }

    /// Previews sources; the outcome is bad if one cannot be read.
    async fn preview(&self, source: Option<String>, rows: usize) -> anyhow::Result<Outcome> {
        self.has_sources()?;
        let only = source.map(|text| self.source(&text)).transpose()?;
        let (config, context) = (&self.loaded.config, self.ingesting());
        let previews = feedline_ingest::preview(config, only.as_ref(), rows, &context).await;
        let sources = previews.map_err(|e| self.ingest_error(e))?;
        let is_bad = sources.iter().any(|source| source.error.is_some());
        self.tools.print(&PreviewReport { sources }, self.json)?;
        Ok(if is_bad { Outcome::Bad } else { Outcome::Done })
    }

    /// Checks settings, secrets and sources.
    async fn check(&self, pipeline: &Pipeline, is_offline: bool) -> anyhow::Result<CheckReport> {
        let file = pipeline.file.display().to_string();
        let (ingest, preprocess) = (self.ingesting(), self.preprocessing(Engine::Local));
        check::check(&self.loaded, file, &ingest, &preprocess, is_offline).await
    }

    /// Checks the settings of all stages that need no data, so that a later stage does not fail
    /// after an earlier one has worked for hours.
    fn check_settings(&self) -> anyhow::Result<()> {
        let config = &self.loaded.config;
        if config.dataset.is_some() {
            self.check_dataset()?;
        }
        match &config.train {
            Some(train) => check::training(config, train).map_err(|e| self.trainer_error(*e)),
            None => Ok(()),
        }
    }

    /// Checks `[dataset]`.
    fn check_dataset(&self) -> anyhow::Result<()> {
        let config = &self.loaded.config;
        if let Some(reason) = config.dataset.as_ref().and_then(check::dropped_target) {
            return Err(self.loaded.error("dataset.drop", reason).into());
        }
        feedline_preprocess::check(config).map_err(|e| self.preprocess_error(e))?;
        Ok(())
    }

    /// Withdraws a part of a source and reads it again.
    async fn reread(
        &self,
        source: &str,
        what: &feedline_ingest::Reread,
        dry_run: bool,
        rejects: RejectRule,
    ) -> anyhow::Result<Outcome> {
        let name = self.source(source)?;
        let (config, context) = (&self.loaded.config, self.ingesting());
        let reread = feedline_ingest::reread(config, &name, what, &context, dry_run).await;
        let mut report = reread.map_err(|e| self.ingest_error(e))?;
        if report.sequence.is_some() {
            let (ingested, error) = match self.ingest_or_stop(Some(&name)).await {
                Ok((ingested, error)) => (Some(ingested), error),
                Err(error) => (None, Some(error)),
            };
            report.ingest = ingested;
            if let Some(error) = error {
                // The report of the withdrawn part stays valid even if the second read fails.
                self.tools.print(&report, self.json)?;
                return Err(error);
            }
        }
        self.amended(Ok(report), rejects)
    }

    /// Prints the result of an amendment of a log.
    fn amended(
        &self,
        report: Result<AmendReport, feedline_ingest::Error>,
        rejects: RejectRule,
    ) -> anyhow::Result<Outcome> {
        let report = report.map_err(|e| self.ingest_error(e))?;
        self.tools.print(&report, self.json)?;
        let read = report.ingest.as_ref().map_or(0, |read| read.rejected);
        Ok(rejects.outcome(report.still_rejected + read))
    }

    async fn replay(
        &self,
        from: &str,
        source: Option<String>,
        rejects: RejectRule,
    ) -> anyhow::Result<Outcome> {
        let only = source.map(|text| self.source(&text)).transpose()?;
        let from = self.tools.open(from)?;
        let (config, context) = (&self.loaded.config, self.ingesting());
        let replay = feedline_ingest::replay(config, only.as_ref(), &from, &context).await;
        let report = replay.map_err(|e| self.ingest_error(e))?;
        self.tools.print(&report, self.json)?;
        Ok(rejects.outcome(report.rejected))
    }

    /// As [`ingesting`](Self::ingesting), apart from what has landed.
    fn inspecting(&self) -> feedline_ingest::Context {
        feedline_ingest::Context {
            root: Store::memory(),
            ..self.ingesting()
        }
    }

    fn ingesting(&self) -> feedline_ingest::Context {
        let config = &self.loaded.config;
        feedline_ingest::Context {
            root: self.root.clone(),
            progress: Arc::clone(&self.tools.progress),
            clock: Arc::clone(&self.tools.clock),
            secrets: Arc::clone(&self.tools.environment) as Arc<dyn feedline_ingest::Secrets>,
            hosts: Arc::clone(&self.tools.hosts),
            meters: Arc::default(),
            run_id: self.run_id(),
            delta: config.ingest.as_ref().is_some_and(|ingest| ingest.delta),
            cancel: self.tools.stop.watch.clone(),
            store_options: self.tools.environment.store_options(),
        }
    }

    async fn build(&self, building: Building) -> anyhow::Result<DatasetReport> {
        if self.loaded.config.dataset.is_none() {
            return Err(self
                .loaded
                .error(
                    "dataset",
                    "the pipeline has no `[dataset]`; add one to build shards",
                )
                .into());
        }
        self.check_dataset()?;
        let secret = self.tools.environment.cluster_secret();
        let mut context = self.preprocessing(building.engine.with_secret(secret)?);
        if let Some(mib) = building.memory {
            context.memory_bytes = Some(mib << 20);
        }
        if let Some(partitions) = building.partitions {
            context.partitions = usize::from(partitions);
        }
        let build = async {
            match building.refit {
                true => feedline_preprocess::refit(&self.loaded.config, &context).await,
                false => feedline_preprocess::build(&self.loaded.config, &context).await,
            }
        };
        // Boxed: the future of a build is large. Dropping it is safe: nothing is published yet.
        let report = self.tools.stop.unless_stopped(Box::pin(build)).await?;
        report.map_err(|e| self.preprocess_error(e))
    }

    /// Infers expectations and writes them to a new file.
    async fn expect(&self, to: Option<String>) -> anyhow::Result<Outcome> {
        let dataset = self.root.child("dataset");
        let found = feedline_preprocess::infer_expectations(&dataset).await;
        let found = found.map_err(|e| self.preprocess_error(e))?;
        let config = self.loaded.config.dataset.as_ref();
        let named = config.and_then(|dataset| Some(dataset.expect.as_ref()?.file.clone()));
        let to = to.or(named).unwrap_or_else(|| "expect.toml".to_owned());
        let (folder, name) = match to.rsplit_once('/') {
            None => (".", to.as_str()),
            Some(("", name)) => ("/", name),
            Some(parts) => parts,
        };
        let file = self.tools.open(folder)?;
        let report = ExpectReport {
            columns: found.column.len() as u64,
            file: file.url_of(name),
        };
        let written = file.put_new(name, found.to_toml().into()).await?;
        anyhow::ensure!(
            matches!(written, PutNew::Created),
            "`{}` is there already; remove it, or name another file with `--to`",
            report.file
        );
        self.tools.print(&report, self.json)?;
        Ok(Outcome::Done)
    }

    fn preprocessing(&self, engine: Engine) -> feedline_preprocess::Context {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        feedline_preprocess::Context {
            root: self.root.clone(),
            progress: Arc::clone(&self.tools.progress),
            clock: Arc::clone(&self.tools.clock),
            partitions: if engine.is_local() {
                cores
            } else {
                cores.max(PARTITIONS)
            },
            memory_bytes: Environment::memory_bytes(),
            store_options: self.tools.environment.store_options(),
            decoder: std::env::current_exe().ok(),
            engine,
            scratch: Environment::scratch(),
        }
    }

    async fn edit(&self, options: &cli::Edit) -> anyhow::Result<EditReport> {
        let (config, training) = self.training()?;
        let source = match &options.dataset {
            Some(url) => self.tools.open(url)?,
            None => training.dataset.clone(),
        };
        let edit = Edit {
            source,
            target: self.tools.open(&options.to)?,
            rule: options.rule(),
            config,
            training,
            writing: self.preprocessing(Engine::Local),
        };
        let report = self.tools.stop.unless_stopped(Box::pin(edit.run())).await?;
        report.map_err(|error| self.stage_error(error))
    }

    /// Trains in this process, or with the requested number of processes.
    async fn train_by(
        &self,
        pipeline: &Pipeline,
        ranks: Ranks,
        resume: Resume,
    ) -> anyhow::Result<TrainReport> {
        let Some(ranks) = ranks.ranks else {
            let report = self.train(resume).await;
            return report.map_err(|error| exit::with_advice(error, resume));
        };
        let (config, context) = self.training()?;
        anyhow::ensure!(
            !context.group.has_others(),
            "`--ranks` starts the ranks itself; leave it out where torchrun or Slurm starts them"
        );
        self.tools.clear_bars();
        let order = Order::new(usize::from(ranks), pipeline, config.parallel)?;
        let order = order.resuming(resume);
        let seed = u64::try_from(self.tools.clock.unix().as_nanos() & u128::from(u64::MAX))?;
        let (stop, clock) = (context.stop, context.clock);
        let resumes = resume != Resume::Fresh;
        let train = move || order.carry_out(resumes, seed, &stop, &*clock);
        tokio::task::spawn_blocking(train).await?
    }

    async fn train(&self, resume: Resume) -> anyhow::Result<TrainReport> {
        let (config, context) = self.training()?;
        let train = move || feedline_trainer::train(&config, resume, &context).map_err(Box::new);
        let report = tokio::task::spawn_blocking(train).await?;
        report.map_err(|e| self.trainer_error(*e))
    }

    async fn tune(&self) -> anyhow::Result<Outcome> {
        let Some(config) = self.loaded.config.tune.clone() else {
            let reason = "the pipeline has no `[tune]`; add one to search";
            return Err(self.loaded.error("tune", reason).into());
        };
        let (_, context) = self.training()?;
        let (folder, loaded, set) = (
            self.root.child("tune"),
            self.loaded.clone(),
            self.set.clone(),
        );
        let search = move || {
            let make = |values: &[(String, Value)]| tune::made(&loaded, &set, values);
            feedline_trainer::tune::tune(&config, &make, &folder, &context).map_err(Box::new)
        };
        let report = tokio::task::spawn_blocking(search).await?;
        self.tools
            .print(&report.map_err(|e| self.trainer_error(*e))?, self.json)?;
        Ok(Outcome::Done)
    }

    async fn summary(&self) -> anyhow::Result<Outcome> {
        let (config, context) = self.training()?;
        let summarize = move || feedline_trainer::summarize(&config, &context).map_err(Box::new);
        let summary = tokio::task::spawn_blocking(summarize).await?;
        self.tools
            .print(&summary.map_err(|e| self.trainer_error(*e))?, self.json)?;
        Ok(Outcome::Done)
    }

    /// Evaluates, and writes the predictions of all rows to the file `predictions`, if given.
    async fn eval(
        &self,
        choice: &Choice,
        dataset: Option<&str>,
        split: Split,
        predictions: Option<&Path>,
    ) -> anyhow::Result<Outcome> {
        let (config, mut context) = self.training()?;
        if let Some(url) = dataset {
            context.dataset = self.tools.open(url)?;
        }
        let chosen = self.choose(choice, Use::Shards, &config, &context).await?;
        let written = match predictions {
            Some(file) => {
                let manifest = feedline_preprocess::read_manifest(&context.dataset).await?;
                let artefact =
                    feedline_preprocess::read_transform(&context.dataset, &manifest).await?;
                let columns = SplitColumns::new(&manifest, &artefact);
                let kept = KeptRows::of(&context.dataset, &manifest, split);
                self.warn_of_unnamed_windows(&manifest);
                Some((columns, kept, Output::of(Some(file), false)?))
            }
            None => None,
        };
        let runtime = tokio::runtime::Handle::current();
        let evaluate = move || match written {
            Some((columns, kept, output)) => {
                columns.evaluate(&chosen, (split, kept), &context, output, &runtime)
            }
            None => Ok(feedline_trainer::evaluate_run(
                &chosen, None, split, &context,
            )?),
        };
        let changed = match dataset {
            None => self.dataset_warning().await,
            Some(_) => None,
        };
        let report = tokio::task::spawn_blocking(evaluate).await?;
        let mut report = report.map_err(|error| self.stage_error(error))?;
        report.warnings.extend(changed);
        self.tools.print(&report, self.json)?;
        Ok(self.judge(&report.warnings).unwrap_or(Outcome::Done))
    }

    /// Warns if the columns of a file of window predictions identify neither entity nor time.
    fn warn_of_unnamed_windows(&self, manifest: &Manifest) {
        let dataset = self.loaded.config.dataset.as_ref();
        let Some(series) = dataset.and_then(|dataset| dataset.series.as_ref()) else {
            return;
        };
        let is_kept = |name: &&String| manifest.kept.iter().any(|kept| kept.name == **name);
        let wanted = series.entity.iter().chain([&series.time]);
        let missing: Vec<String> = wanted
            .filter(|name| !is_kept(name))
            .map(|name| format!("\"{name}\""))
            .collect();
        if manifest.counts.sequence.is_some() && !missing.is_empty() {
            tracing::warn!(
                missing = missing.join(", "),
                "the file names windows by the row of their target, without entity or time, which the shards do not keep; to have \
                 them, list these columns in `dataset.passthrough` and build again"
            );
        }
    }

    /// Chooses the run whose model is used.
    async fn choose(
        &self,
        choice: &Choice,
        used_on: Use,
        config: &TrainConfig,
        context: &feedline_trainer::Context,
    ) -> anyhow::Result<ChosenRun> {
        let (choice, config, context) = (choice.clone(), config.clone(), context.clone());
        let choose =
            move || feedline_trainer::choose(&config, &choice, used_on, &context).map_err(Box::new);
        let chosen = tokio::task::spawn_blocking(choose).await?;
        chosen.map_err(|error| self.trainer_error(*error))
    }

    async fn predict(&self, options: &cli::Predict) -> anyhow::Result<Outcome> {
        let dataset = self.dataset()?;
        // It is logged.
        let _changed = self.dataset_warning().await;
        let manifest = feedline_preprocess::read_manifest(&dataset).await?;
        let mut artefact = feedline_preprocess::read_transform(&dataset, &manifest).await?;
        let dataset = self.loaded.config.dataset.as_ref();
        let is_multi = dataset.is_some_and(|dataset| dataset.kind == DatasetKind::Multi);
        anyhow::ensure!(
            is_multi || (options.images.is_none() && options.image_column.is_none()),
            "`--images` and `--image-column` are for rows with an image beside their numbers (`dataset.kind = \"multi\"`); \
             leave them out"
        );
        if !options.transform_only
            && dataset.is_some_and(|dataset| dataset.kind == DatasetKind::Images)
        {
            let images = self.predict_images(options, &manifest);
            return Box::pin(images).await;
        }
        if dataset.is_some_and(|dataset| dataset.kind.is_text()) {
            return Box::pin(self.predict_texts(options, &manifest)).await;
        }
        if is_multi && !options.transform_only {
            return Box::pin(self.predict_parts(options, &manifest)).await;
        }
        let mut features = dataset.iter().flat_map(|dataset| &dataset.feature);
        let is_of_past = manifest.counts.sequence.is_some()
            || features.any(|feature| artefact.inputs.iter().any(|i| i.name == feature.name));
        let model = match options.transform_only {
            true => None,
            false => {
                // Past rows come from the dataset, so the run must fit it.
                let used_on = match is_of_past {
                    true => Use::Shards,
                    false => Use::NewRows,
                };
                let (config, context) = self.training()?;
                let choice = options.run.choice();
                let chosen = self.choose(&choice, used_on, &config, &context).await?;
                artefact = chosen.transform().clone();
                Some((chosen, context))
            }
        };
        if is_of_past || options.history.is_some() {
            return Box::pin(self.predict_series(options, model, &manifest, artefact)).await;
        }
        let landed = match dataset {
            // The rows came from a query or from files.
            Some(dataset) if dataset.sql.is_some() || dataset.files.is_some() => BTreeMap::new(),
            _ => feedline_preprocess::landed_types(&self.root, &manifest).await?,
        };
        let predict = Predict {
            rows: options.rows.clone().unwrap_or_else(|| "-".to_owned()),
            reading: predict::reading(options, &self.loaded.config, landed)?,
            to: options.to.clone(),
            escapes_formulas: options.escape_formulas,
            flags: options.flags,
            transform: feedline_preprocess::Transform::new(artefact)?,
            model,
            stop: self.tools.stop.clone(),
        };
        let report = tokio::task::spawn_blocking(move || predict.run()).await?;
        self.finish_predict(options, report)
    }

    /// Predicts image files, which are decoded and resized like those of the dataset.
    async fn predict_images(
        &self,
        options: &cli::Predict,
        manifest: &Manifest,
    ) -> anyhow::Result<Outcome> {
        let Some(place) = &options.rows else {
            anyhow::bail!(
                "the model reads images; give a folder, an image file or an archive of them"
            );
        };
        anyhow::ensure!(
            options.history.is_none() && options.keep.is_empty() && !options.flags,
            "`--history`, `--passthrough` and `--flags` are for rows of a table, and the model reads images; leave them out"
        );
        let (config, training) = self.training()?;
        let choice = options.run.choice();
        let chosen = self
            .choose(&choice, Use::Shards, &config, &training)
            .await?;
        // Outputs follow the classes that the run was trained on, whatever ids the dataset has now.
        let artefact = chosen.transform().clone();
        let model = (chosen, training);
        self.check_built_by(manifest).await?;
        let context = self.preprocessing(Engine::Local);
        let folder = series::Folder::create(&context.scratch)?;
        let format = options.format.map(Into::into);
        let landing = images::landing(place, format, &self.loaded.config, folder.path())?;
        let found = self.land(&landing).await?;
        let context = feedline_preprocess::Context {
            root: landing.root.clone(),
            ..context
        };
        let build = Box::pin(feedline_preprocess::refit(&landing.config, &context));
        let built = self.tools.stop.unless_stopped(build).await?;
        let dataset = landing.root.child("dataset");
        let (dataset, rejected) = match built {
            // No image is usable, and the report needs the reason of each.
            Err(feedline_preprocess::Error::TooManyRejects { .. }) => (
                None,
                feedline_preprocess::all_rejected_rows(&dataset).await?,
            ),
            built => {
                built.with_context(|| format!("cannot predict the images of `{place}`"))?;
                let built = feedline_preprocess::read_manifest(&dataset).await?;
                let rejected = feedline_preprocess::rejected_rows(&dataset, &built).await?;
                (Some(dataset), rejected)
            }
        };
        let landed = landing.landed();
        let landed_images = images::LandedImages {
            paths: feedline_preprocess::landed_texts(&landed.root, &landed.source, images::PATH)
                .await?,
            rejected,
            dataset,
        };
        let output = Output::of(options.to.as_deref(), options.escape_formulas)?;
        let mut report = PredictReport {
            transform: artefact.hash.to_string(),
            to: output.name(),
            ..PredictReport::default()
        };
        let is_class = matches!(artefact.target, Some(FittedTarget::Classification { .. }));
        let answers = Answers {
            predictor: None,
            names: Vec::new(),
            transform: Arc::new(feedline_preprocess::Transform::new(artefact)?),
            kept: vec![images::PATH.to_owned()],
            numbers: Vec::new(),
            predicted: Some(match is_class {
                true => Predicted::Classes {
                    ids: Vec::new(),
                    probabilities: Vec::new(),
                },
                false => Predicted::Numbers(Vec::new()),
            }),
            flags: false,
        };
        let answer = move || -> anyhow::Result<PredictReport> {
            landed_images.answer(&answers, &model, output, &mut report)?;
            series::add_rejects(&mut report, &found);
            Ok(report)
        };
        let report = tokio::task::spawn_blocking(answer).await?;
        drop(folder);
        self.finish_predict(options, report)
    }

    /// Predicts rows that have an image, a text or both beside their numbers.
    async fn predict_parts(
        &self,
        options: &cli::Predict,
        manifest: &Manifest,
    ) -> anyhow::Result<Outcome> {
        anyhow::ensure!(
            options.history.is_none(),
            "`--history` is for series, and the rows have images or texts; remove it"
        );
        let config = &self.loaded.config;
        let dataset = config.dataset.as_ref().context("there is a dataset")?;
        let (train, context) = self.training()?;
        let choice = options.run.choice();
        let chosen = self.choose(&choice, Use::NewRows, &train, &context).await?;
        let column = multi::image_column(options, dataset);
        let images = match column {
            Some(column) => {
                self.check_built_by(manifest).await?;
                let folder = multi::image_folder(options)?;
                Some((column, multi::ImageFiles::new(folder, dataset)?))
            }
            None => None,
        };
        let encoder = match &chosen.transform().tokens {
            Some(_) => {
                let store = self.dataset()?;
                Some(
                    self.text_encoder(&chosen, &context, manifest, &store)
                        .await?,
                )
            }
            None => None,
        };
        let landed = feedline_preprocess::landed_types(&self.root, manifest).await?;
        let is_table = |name: &Name| multi::is_table(config, name);
        let predict = PredictParts {
            rows: options.rows.clone().unwrap_or_else(|| "-".to_owned()),
            reading: predict::reading_as(options, config, landed, is_table)?,
            transform: feedline_preprocess::Transform::new(chosen.transform().clone())?,
            encoder,
            images,
            chosen,
            context,
            output: Output::of(options.to.as_deref(), options.escape_formulas)?,
            flags: options.flags,
            stop: self.tools.stop.clone(),
        };
        let report = tokio::task::spawn_blocking(move || predict.run()).await?;
        self.finish_predict(options, report)
    }

    /// Creates the text encoder for the model of a run.
    async fn text_encoder(
        &self,
        chosen: &ChosenRun,
        context: &feedline_trainer::Context,
        manifest: &Manifest,
        dataset: &Store,
    ) -> anyhow::Result<TextEncoder> {
        let (run, runs) = (chosen.clone(), context.clone());
        let tokenizer = tokio::task::spawn_blocking(move || run.tokenizer(&runs).map_err(Box::new));
        let tokenizer = tokenizer
            .await?
            .map_err(|error| self.trainer_error(*error))?;
        let encoder = TextEncoder::open(chosen.transform(), tokenizer, manifest, dataset).await;
        encoder.map_err(|e| self.preprocess_error(e))
    }

    /// Checks that images are decoded like those of the dataset.
    async fn check_built_by(&self, manifest: &Manifest) -> anyhow::Result<()> {
        let context = self.preprocessing(Engine::Local);
        let built = Box::pin(feedline_preprocess::is_built_by(
            &self.loaded.config,
            manifest,
            &context,
        ));
        if !built.await.map_err(|e| self.preprocess_error(e))? {
            let reason = "it is not what the dataset was built by, so images could be decoded in another way than those that the \
                          model knows; build the dataset again (`feedline shards build`), or use the configuration that it was \
                          built by";
            return Err(self.loaded.error("dataset", reason).into());
        }
        Ok(())
    }

    /// Prints the report of predictions.
    fn finish_predict(
        &self,
        options: &cli::Predict,
        report: anyhow::Result<PredictReport>,
    ) -> anyhow::Result<Outcome> {
        let report = report.map_err(|error| self.stage_error(error))?;
        self.tools.clear_bars();
        match options.to {
            Some(_) => output::print(&report, self.json)?,
            None => output::print_aside(&report, self.json)?,
        }
        predict::check_any_predicted(&report, options)?;
        Ok(options.rejects.outcome(report.rejected))
    }

    /// Scores texts with the vocabulary of the run and its language model.
    async fn predict_texts(
        &self,
        options: &cli::Predict,
        manifest: &Manifest,
    ) -> anyhow::Result<Outcome> {
        anyhow::ensure!(
            options.history.is_none(),
            "`--history` is for series, and the model reads texts; remove it"
        );
        anyhow::ensure!(
            !options.flags,
            "`--flags` is for rows of features, and the model reads texts; remove it"
        );
        anyhow::ensure!(
            !options.transform_only,
            "`--transform-only` writes the features of rows, and texts have none: the model reads their token ids; remove it"
        );
        let dataset = self.dataset()?;
        let TextRun {
            chosen,
            context,
            encoder,
        } = self.text_run(&options.run, manifest, &dataset).await?;
        let landed = feedline_preprocess::landed_types(&self.root, manifest).await?;
        let reading = predict::reading(options, &self.loaded.config, landed)?;
        let place = options.rows.as_deref().unwrap_or("-");
        let source = TextSource::open(place, &reading, encoder.column(), &self.loaded.config)?;
        let predict = PredictTexts {
            kept: source.kept(&reading),
            source,
            encoder,
            chosen,
            context,
            output: Output::of(options.to.as_deref(), options.escape_formulas)?,
            stop: self.tools.stop.clone(),
        };
        let report = tokio::task::spawn_blocking(move || predict.run()).await?;
        self.finish_predict(options, report)
    }

    /// Predicts rows with features computed from earlier rows, or windows of rows.
    async fn predict_series(
        &self,
        options: &cli::Predict,
        model: Option<(ChosenRun, feedline_trainer::Context)>,
        manifest: &Manifest,
        artefact: TransformArtefact,
    ) -> anyhow::Result<Outcome> {
        anyhow::ensure!(
            !options.flags,
            "`--flags` is for rows that need no rows before them, and features are computed from the past of each entity; remove it"
        );
        let context = self.preprocessing(Engine::Local);
        let folder = series::Folder::create(&context.scratch)?;
        let landed = feedline_preprocess::landed_types(&self.root, manifest).await?;
        let mut report = PredictReport::default();
        let mut request = SeriesRequest {
            keep: options.keep.clone(),
            ..SeriesRequest::default()
        };
        let files = [
            ("rows", options.rows.as_deref(), &mut request.rows),
            ("history", options.history.as_deref(), &mut request.history),
        ];
        for (name, file, rows) in files {
            let Some(file) = file else { continue };
            let format = match name {
                "rows" => options.format.map(Into::into),
                _ => None,
            };
            let config = &self.loaded.config;
            let landing = series::Landing::of(file, name, format, config, &landed, folder.path())?;
            let found = self.land(&landing).await?;
            match name {
                "rows" => series::add_rejects(&mut report, &found),
                _ => report.rejected_before += found.rejected,
            }
            *rows = Some(landing.landed());
        }
        let transform = Arc::new(feedline_preprocess::Transform::new(artefact)?);
        let opened = feedline_preprocess::series_rows(
            &self.loaded.config,
            manifest,
            Arc::clone(&transform),
            request,
            &context,
        );
        let rows = Box::pin(opened)
            .await
            .map_err(|e| self.preprocess_error(e))?;
        let output = Output::of(options.to.as_deref(), options.escape_formulas)?;
        report.transform = transform.artefact().hash.to_string();
        report.to = output.name();
        let stop = self.tools.stop.clone();
        let runtime = tokio::runtime::Handle::current();
        let answer = move || -> anyhow::Result<PredictReport> {
            let predictor = match &model {
                Some((chosen, context)) => {
                    let features = rows.numbers();
                    Some(predict::open_model(chosen, context, features, &mut report)?)
                }
                None => None,
            };
            report.ordered_by = rows.order().to_vec();
            let (texts, numbers) = series::further_names(&rows);
            let answers = Answers {
                predictor,
                names: series::window_names(&transform, &rows),
                transform,
                kept: rows.kept().into_iter().chain(texts).collect(),
                numbers,
                predicted: None,
                flags: false,
            };
            series::answer(rows, &answers, output, (&stop, &runtime), &mut report)?;
            Ok(report)
        };
        let report = tokio::task::spawn_blocking(answer).await?;
        drop(folder);
        self.finish_predict(options, report)
    }

    /// Lands the file of `landing` in its folder.
    async fn land(&self, landing: &series::Landing) -> anyhow::Result<SourceReport> {
        let context = feedline_ingest::Context {
            root: landing.root.clone(),
            ..self.ingesting()
        };
        let ingest = feedline_ingest::ingest_all(&landing.config, None, &context);
        let end = Box::pin(ingest).await.map_err(anyhow::Error::from);
        let end = end.with_context(|| format!("cannot read `{}`", landing.file))?;
        if let Some(error) = end.error {
            return Err(
                anyhow::Error::from(error).context(format!("cannot read `{}`", landing.file))
            );
        }
        let found = end.report.sources.into_iter().next().unwrap_or_default();
        if let Some(error) = &found.error {
            anyhow::bail!("cannot read `{}`: {error}", landing.file);
        }
        Ok(found)
    }

    async fn export(
        &self,
        choice: &Choice,
        to: &str,
        options: feedline_trainer::ExportOptions,
    ) -> anyhow::Result<Outcome> {
        let (config, context) = self.training()?;
        let chosen = self.choose(choice, Use::Weights, &config, &context).await?;
        let run = chosen.used().clone();
        let export = move || {
            feedline_trainer::export_run(&chosen, None, options, &context).map_err(Box::new)
        };
        let file = tokio::task::spawn_blocking(export).await?;
        let file = file.map_err(|e| self.trainer_error(*e))?;
        let (folder, name) = feedline_trainer::weights_file(to);
        let store = self.tools.open(folder)?;
        let report = ExportReport {
            run,
            to: store.url_of(name),
            bytes: file.len() as u64,
        };
        store.put(name, file.into()).await?;
        self.tools.print(&report, self.json)?;
        Ok(Outcome::Done)
    }

    /// Shows the plan. With `ask`, sources are requested for a suggested pagination, and the
    /// outcome is bad if one returns no page.
    async fn plan(&self, ask: bool) -> anyhow::Result<Outcome> {
        let config = &self.loaded.config;
        let suggestions = if ask {
            let suggestions = feedline_ingest::suggest(config, &self.ingesting()).await;
            Some(suggestions.map_err(|e| self.ingest_error(e))?)
        } else {
            None
        };
        let mut told = suggestions.iter().flatten();
        let is_bad = told.any(|suggestion| suggestion.error.is_some());
        let status = feedline_ingest::status(config, &self.root).await;
        let sources = status.map_err(|e| self.ingest_error(e))?.sources;
        let train = if config.train.is_some() {
            let (config, context) = self.training()?;
            let plan = TrainPlan::new(&config, &context).await;
            let mut plan = plan.map_err(|e| self.trainer_error(e))?;
            if plan.loader.is_some() {
                let fit = move || feedline_trainer::fit(&config, &context).map_err(Box::new);
                let fit = tokio::task::spawn_blocking(fit).await?;
                plan.fit = Some(fit.map_err(|e| self.trainer_error(*e))?);
            }
            Some(plan)
        } else {
            None
        };
        let report = PlanReport {
            sources,
            suggestions,
            train,
        };
        self.tools.print(&report, self.json)?;
        Ok(if is_bad { Outcome::Bad } else { Outcome::Done })
    }

    fn training(&self) -> anyhow::Result<(TrainConfig, feedline_trainer::Context)> {
        let Some(config) = self.loaded.config.train.clone() else {
            return Err(self
                .loaded
                .error(
                    "train",
                    "the pipeline has no `[train]`; add one to train a model",
                )
                .into());
        };
        let context = feedline_trainer::Context {
            dataset: self.dataset()?,
            runs: self.root.child("train"),
            weights: match &config.init {
                Some(init) => {
                    let (folder, _) = feedline_trainer::weights_file(&init.from);
                    Some(self.tools.open(folder)?)
                }
                None => None,
            },
            progress: Arc::clone(&self.tools.progress),
            clock: Arc::clone(&self.tools.clock),
            stop: Arc::clone(&self.tools.stop.flag),
            group: self.tools.environment.group()?,
        };
        Ok((config, context))
    }

    /// Dataset to train on: the configured one, or the built one.
    fn dataset(&self) -> anyhow::Result<Store> {
        let train = self.loaded.config.train.as_ref();
        match train.and_then(|train| train.dataset.as_ref()) {
            Some(url) => self.tools.open(url),
            None => Ok(self.root.child("dataset")),
        }
    }

    /// The source called `text`.
    fn source(&self, text: &str) -> Result<Name, ConfigError> {
        let names = self.loaded.config.source.iter().map(|s| &s.name);
        names
            .clone()
            .find(|name| name.as_str() == text)
            .cloned()
            .ok_or_else(|| {
                let known: Vec<&str> = names.map(Name::as_str).collect();
                self.loaded.error(
                    "source",
                    format!(
                        "source `{text}` does not exist; the pipeline has: {}",
                        known.join(", ")
                    ),
                )
            })
    }

    /// Unique among runs on all machines that matter: time in nanoseconds and process.
    fn run_id(&self) -> String {
        format!(
            "{:032x}-{:08x}",
            self.tools.clock.unix().as_nanos(),
            std::process::id()
        )
    }

    /// An error of a stage, with the line of the key it is about.
    fn ingest_error(&self, error: feedline_ingest::Error) -> anyhow::Error {
        match error {
            feedline_ingest::Error::Config { key, reason } => {
                self.loaded.error(&key, reason).into()
            }
            error => error.into(),
        }
    }

    fn preprocess_error(&self, error: feedline_preprocess::Error) -> anyhow::Error {
        match error {
            feedline_preprocess::Error::Config { key, reason } => {
                self.loaded.error(&key, reason).into()
            }
            error => error.into(),
        }
    }

    /// Converts an error of several stages.
    fn stage_error(&self, error: anyhow::Error) -> anyhow::Error {
        let error = match error.downcast() {
            // The command that uses the model was interrupted, no training.
            Ok(feedline_trainer::Error::Interrupted { .. }) => {
                return anyhow::anyhow!("interrupted; rerun the same command");
            }
            Ok(error) => return self.trainer_error(error),
            Err(error) => error,
        };
        match error.downcast() {
            Ok(error) => self.preprocess_error(error),
            Err(error) => error,
        }
    }

    fn trainer_error(&self, error: feedline_trainer::Error) -> anyhow::Error {
        match error {
            feedline_trainer::Error::Config { key, reason } => {
                self.loaded.error(&key, reason).into()
            }
            error => error.into(),
        }
    }
}

fn read(file: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(file).map_err(|e| ConfigError {
        file: file.display().to_string(),
        line: None,
        key: String::new(),
        reason: format!("cannot read the pipeline file: {e}; check the path"),
    })
}
