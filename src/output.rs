//! Output for people and scripts: reports on standard output, logs on standard error.

mod brief;
mod dataset;
mod delta;
mod export;
mod ingest;
mod performance;
mod preview;
pub(crate) mod used_run;

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    io::{IsTerminal as _, Write as _},
};

use feedline_loader::ShuffleQuality;
use feedline_preprocess::describe_step;
use feedline_schemas::{
    manifest::{
        BoxCounts, ConflictCounts, GroupCounts, JoinCounts, Layout, Manifest, NaiveForecast,
        NearDupCounts, NearImageCounts, RedactedCounts, SequenceCounts, TargetKind, TokenType,
    },
    report::{
        AddedReport, DatasetReport, EvalReport, ExpectReport, ImagesReport, MixedSource,
        NormalizedBy, RunReport, TrainReport, VerifyReport, Warning,
    },
    transform::TransformArtefact,
    units::ByteSize,
};
use feedline_trainer::Fit;
use serde::Serialize;
use tracing_subscriber::EnvFilter;

use self::ingest::{write_source, write_suggestions};
pub(crate) use self::{brief::Brief, preview::PreviewReport};
use crate::{
    bench::BenchReport,
    environment::Environment,
    exit::shown,
    plan::{PlanReport, TrainPlan},
};

/// Sends `tracing` events to standard error. On a terminal only warnings, since bars show the
/// progress there; of ranks that train together only errors, but for the first.
pub(crate) fn start_logs(environment: &Environment) {
    let default = if std::io::stderr().is_terminal() {
        "warn"
    } else {
        "warn,feedline=info"
    };
    let filter = if environment.leads() {
        environment.log_filter().unwrap_or(default)
    } else {
        "error"
    };
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .compact()
        .init();
}

/// Prints a report: as one line of JSON, or as text.
pub(crate) fn print<R: Serialize + Text>(report: &R, json: bool) -> anyhow::Result<()> {
    print_text(&text_of(report, json)?)
}

/// Prints text as it is.
pub(crate) fn print_text(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // The reader of the output has closed it.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// The same on standard error, if standard output has the requested data.
pub(crate) fn print_aside<R: Serialize + Text>(report: &R, json: bool) -> anyhow::Result<()> {
    std::io::stderr().write_all(text_of(report, json)?.as_bytes())?;
    Ok(())
}

fn text_of<R: Serialize + Text>(report: &R, json: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    if json {
        text = serde_json::to_string(report)?;
        text.push('\n');
    } else {
        report.write(&mut text)?;
        text = shown(&text);
    }
    Ok(text)
}

/// A report as text.
pub(crate) trait Text {
    fn write(&self, out: &mut String) -> fmt::Result;
}

impl Text for RunReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        if let Some(ingest) = &self.ingest {
            ingest.write(out)?;
        }
        if let Some(dataset) = &self.dataset {
            dataset.write(out)?;
        }
        if let Some(train) = &self.train {
            train.write(out)?;
        }
        Ok(())
    }
}

/// Counts of rejected records by reason, and one example after its reason.
pub(crate) fn write_rejects(
    reasons: &BTreeMap<String, u64>,
    sample: Option<&str>,
    out: &mut String,
) -> fmt::Result {
    write_reasons("  rejected", reasons, sample, out)
}

/// Writes a line for each reason; `sample`, which names its own reason, after that one.
fn write_reasons(
    name: &str,
    reasons: &BTreeMap<String, u64>,
    sample: Option<&str>,
    out: &mut String,
) -> fmt::Result {
    for (reason, count) in reasons {
        line(out, name, format!("{} {reason}", grouped(*count)))?;
        if let Some(sample) = sample.filter(|sample| reason_of(sample).as_ref() == Some(reason)) {
            line(out, "  for example", shortened(sample))?;
        }
    }
    Ok(())
}

/// Reason named by an example: as `reason` of a line of rejects, or as a prefix between backticks.
fn reason_of(sample: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Line {
        reason: String,
    }
    if let Ok(line) = serde_json::from_str::<Line>(sample) {
        return Some(line.reason);
    }
    let (reason, _) = sample.strip_prefix('`')?.split_once('`')?;
    Some(reason.to_owned())
}

fn write_filtered(
    reasons: &BTreeMap<String, u64>,
    sample: Option<&str>,
    near_dup: Option<&NearDupCounts>,
    redacted: Option<&RedactedCounts>,
    out: &mut String,
) -> fmt::Result {
    write_reasons("  left out", reasons, sample, out)?;
    if let Some(found) = redacted {
        let text = format!(
            "{} e-mail addresses, {} telephone numbers, {} cards",
            found.emails, found.phones, found.cards
        );
        line(out, "redacted", text)?;
    }
    match near_dup {
        None => Ok(()),
        Some(found) => line(
            out,
            "near copies",
            format!(
                "{} clusters among {} documents, the largest of {}; bands of {} x {}",
                found.clusters, found.documents, found.largest, found.bands, found.rows
            ),
        ),
    }
}

/// Writes the counts of accepted rows that violate an expectation, by column and expectation.
fn write_unexpected(by_path: &BTreeMap<String, u64>, out: &mut String) -> fmt::Result {
    write_reasons("  unexpected", by_path, None, out)
}

fn write_conflicts(
    conflicts: Option<ConflictCounts>,
    groups: Option<GroupCounts>,
    out: &mut String,
) -> fmt::Result {
    if let Some(ConflictCounts { contents, rows }) = conflicts {
        let text = format!("{contents} contents with several targets, in {rows} rows");
        line(out, "conflicts", text)?;
    }
    if let Some(found) = groups {
        let text = format!(
            "{} train, {} validation, {} test, the largest of {} rows",
            found.train, found.validation, found.test, found.largest
        );
        line(out, "groups", text)?;
    }
    Ok(())
}

fn write_joins(joins: &[JoinCounts], out: &mut String) -> fmt::Result {
    for join in joins {
        let JoinCounts {
            source,
            matched,
            unmatched,
            unused,
        } = join;
        let text = format!(
            "`{source}`: {matched} rows matched, {unmatched} did not; {unused} of its rows unused"
        );
        line(out, "joined", text)?;
    }
    Ok(())
}

fn write_windows(
    windows: Option<&SequenceCounts>,
    naive: &[NaiveForecast],
    out: &mut String,
) -> fmt::Result {
    let Some(found) = windows else { return Ok(()) };
    let text = format!(
        "{} of {} rows each; of the other rows {} lack a whole window and {} the stride leaves out",
        found.windows, found.length, found.incomplete, found.skipped
    );
    line(out, "windows", text)?;
    for forecast in naive {
        let splits = forecast.splits.iter();
        let splits = splits.map(|(split, metrics)| format!("{split} rmse {:.6}", metrics.rmse));
        let text = format!(
            "{}, {} rows before: {}",
            forecast.method.as_str(),
            forecast.lag,
            splits.collect::<Vec<_>>().join(", ")
        );
        line(out, "naive", text)?;
    }
    Ok(())
}

fn write_images(
    near: Option<&NearImageCounts>,
    boxes: Option<&BoxCounts>,
    out: &mut String,
) -> fmt::Result {
    if let Some(found) = near {
        let text = format!(
            "{} clusters among {} images, the largest of {}; bands of {} x {}",
            found.clusters, found.images, found.largest, found.bands, found.bits
        );
        line(out, "near images", text)?;
    }
    if let Some(boxes) = boxes {
        let text = format!(
            "{} in the images, {} outside of them",
            boxes.kept, boxes.lost
        );
        line(out, "boxes", text)?;
    }
    Ok(())
}

impl Text for DatasetReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        let what = match (&self.added, &self.anew) {
            _ if self.up_to_date => " (nothing new: kept as it was)".to_owned(),
            (Some(_), _) => " (what has landed since was added)".to_owned(),
            (None, Some(why)) => format!(" (rebuilt and refitted: {why})"),
            (None, None) => String::new(),
        };
        writeln!(out, "dataset{what}")?;
        line(
            out,
            "rows",
            format!(
                "{} read, {} duplicates dropped, {} rejected",
                grouped(self.rows_in),
                grouped(self.duplicates),
                grouped(self.rejected)
            ),
        )?;
        write_rejects(&self.rejected_by_reason, self.reject_sample.as_deref(), out)?;
        dataset::write_rejected_targets(&self.rejected_targets, out)?;
        write_filtered(
            &self.filtered,
            self.reject_sample.as_deref(),
            self.near_dup.as_ref(),
            self.redacted.as_ref(),
            out,
        )?;
        write_unexpected(&self.unexpected, out)?;
        write_conflicts(self.conflicts, self.groups, out)?;
        write_joins(&self.joins, out)?;
        write_images(self.near_images.as_ref(), self.boxes.as_ref(), out)?;
        write_windows(self.sequence.as_ref(), &self.naive, out)?;
        write_warnings(&self.warnings, out)?;
        line(
            out,
            "split",
            format!(
                "{} train, {} validation, {} test",
                grouped(self.train),
                grouped(self.validation),
                grouped(self.test)
            ),
        )?;
        if let Some(tokens) = &self.tokens {
            line(
                out,
                "tokens",
                format!(
                    "{} train, {} validation, {} test, {} of them unknown",
                    grouped(tokens.train),
                    grouped(tokens.validation),
                    grouped(tokens.test),
                    grouped(tokens.unknown)
                ),
            )?;
        }
        if let Some(cut) = self.cut.filter(|cut| cut.rows > 0) {
            let text = format!("{} tokens, off the ends of {} texts", cut.tokens, cut.rows);
            line(out, "cut off", text)?;
        }
        line(
            out,
            "shards",
            format!("{} in {}", self.shards, ByteSize::new(self.bytes)),
        )?;
        if let Some(added) = &self.added {
            write_added(added, out)?;
        }
        line(out, "fingerprint", &self.fingerprint)?;
        if let Some(report) = &self.report {
            line(out, "report", report)?;
        }
        line(out, "dataset", &self.url)
    }
}

/// Writes warnings, each with the key that changes the decision.
pub(crate) fn write_warnings(warnings: &[Warning], out: &mut String) -> fmt::Result {
    for Warning { code, message, key } in warnings {
        let key = key.as_ref().map(|key| format!("; see `{key}`"));
        let text = format!(
            "{}: {message}{}",
            code.replace('_', " "),
            key.unwrap_or_default()
        );
        line(out, "  warning", text)?;
    }
    Ok(())
}

fn write_added(added: &AddedReport, out: &mut String) -> fmt::Result {
    line(
        out,
        "added",
        format!(
            "{} read, {} duplicates dropped, {} rejected; {} train, {} validation, {} test in {} shards, {} shards kept",
            added.rows_in,
            added.duplicates,
            added.rejected,
            added.train,
            added.validation,
            added.test,
            added.shards,
            added.kept_shards
        ),
    )?;
    for shift in &added.shifts {
        let text = format!(
            "{}: mean {} where it was {}, {:.2} deviations away; `--refit` fits it again",
            shift.feature,
            number(shift.after),
            number(shift.before),
            shift.deviations.abs()
        );
        line(out, "  shifted", text)?;
    }
    Ok(())
}

impl Text for ExpectReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        line(out, "columns", self.columns.to_string())?;
        line(out, "expectations", &self.file)
    }
}

impl Text for TrainReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        let what = match self.resumed_at {
            Some(step) if step >= self.steps => {
                " (nothing new: trained before, measured again)".to_owned()
            }
            Some(step) => format!(" (resumed after step {})", grouped(step)),
            None => String::new(),
        };
        writeln!(out, "train{what}")?;
        line(
            out,
            "steps",
            format!(
                "{} in {}, seed {}, {} parameters; weights of epoch {} kept",
                grouped(self.steps),
                counted(self.epochs, "epoch"),
                self.seed,
                grouped(self.parameters),
                self.best_epoch
            ),
        )?;
        if let Some(counts) = &self.muon {
            let text = format!(
                "Muon updates {} parameters in {}, AdamW the other {}",
                grouped(counts.muon),
                counted_as(counts.matrices, "matrix", "matrices"),
                grouped(counts.adamw)
            );
            line(out, "optimizer", text)?;
        }
        // The processor goes without saying.
        if !matches!(self.device.as_str(), "" | "cpu") {
            line(out, "device", &self.device)?;
        }
        line(
            out,
            "data wait",
            format!("{:.1} % of the training time", self.data_wait_share * 100.0),
        )?;
        performance::write(self, out)?;
        if let Some(images) = &self.images {
            write_training_images(images, out)?;
        }
        for source in &self.mixture {
            write_mixed(source, &self.mixture, out)?;
        }
        if self.skipped_batches > 0 {
            line(out, "left out", format!("{} batches", self.skipped_batches))?;
        }
        if self.rollbacks > 0 {
            line(out, "went back", format!("{} times", self.rollbacks))?;
        }
        if let Some(from) = &self.continued_from {
            used_run::write_continued(from, out)?;
        }
        if let Some(reason) = &self.started_over {
            line(out, "not resumed", reason)?;
        }
        write_metrics("test", &self.test, &self.baseline, out)?;
        write_tokens("test tokens", self.test_tokens, out)?;
        dataset::write_positive(&self.classes, out)?;
        dataset::write_targets(&self.targets, out)?;
        write_warnings(&self.warnings, out)?;
        line(out, "checkpoint", &self.checkpoint)?;
        line(out, "metrics", &self.metrics)?;
        line(out, "report", &self.report)
    }
}

fn write_training_images(images: &ImagesReport, out: &mut String) -> fmt::Result {
    let from = match images.normalized_by {
        NormalizedBy::Dataset => {
            "of the training split; `train.images.normalize = \"imagenet\"` takes those of ImageNet"
        }
        NormalizedBy::Imagenet => {
            "of ImageNet; `train.images.normalize = \"dataset\"` takes those of a dataset that has them"
        }
        NormalizedBy::Init => {
            "of the weights of `train.init`; `train.images.normalize` takes others"
        }
        NormalizedBy::Given => "of `train.images`",
    };
    let (mean, deviation) = (images.mean, images.deviation);
    line(
        out,
        "images",
        format!("normalised by mean {mean:.4?} and deviation {deviation:.4?} {from}"),
    )?;
    let changes = match (images.augmented, images.mixed) {
        (false, false) => return Ok(()),
        (true, false) => "augmented",
        (false, true) => "mixed in pairs, and so are their targets",
        (true, true) => "augmented and mixed in pairs, and so are their targets",
    };
    line(
        out,
        "in training",
        format!(
            "images are {changes}: the training loss is of these, validation and test of images as they are"
        ),
    )
}

/// A dataset of a mixture.
fn write_mixed(source: &MixedSource, all: &[MixedSource], out: &mut String) -> fmt::Result {
    let sum: u64 = all.iter().map(|source| source.given).sum();
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let part = source.given as f64 / sum.max(1) as f64;
    line(
        out,
        "mixed",
        format!(
            "{}: {} samples, {:.2} % of all at a weight of {:.2} %; it has {}",
            source.dataset,
            source.given,
            part * 100.0,
            source.share * 100.0,
            source.samples
        ),
    )
}

impl Text for feedline_trainer::Summary {
    fn write(&self, out: &mut String) -> fmt::Result {
        write!(out, "{self}")
    }
}

impl Text for EvalReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "eval")?;
        match self.tokens {
            Some(tokens) => line(
                out,
                "split",
                format!("{}, {tokens} tokens predicted", self.split),
            )?,
            None => line(out, "split", format!("{}, {} rows", self.split, self.rows))?,
        }
        write_metrics(&self.split, &self.metrics, &self.baseline, out)?;
        dataset::write_positive(&self.classes, out)?;
        dataset::write_targets(&self.targets, out)?;
        if let Some(used) = &self.run {
            used_run::write(used, out)?;
        }
        line(out, "dataset", &self.dataset)?;
        write_warnings(&self.warnings, out)?;
        if let Some(predictions) = &self.predictions {
            line(out, "predictions", predictions)?;
        }
        line(out, "checkpoint", &self.checkpoint)
    }
}

/// Writes the number of predicted tokens, over which the means are taken.
fn write_tokens(name: &str, tokens: Option<u64>, out: &mut String) -> fmt::Result {
    tokens.map_or(Ok(()), |tokens| {
        line(out, name, format!("{tokens} predicted"))
    })
}

fn write_metrics(
    split: &str,
    metrics: &BTreeMap<String, f64>,
    baseline: &BTreeMap<String, f64>,
    out: &mut String,
) -> fmt::Result {
    for (name, value) in metrics {
        let beside = baseline
            .get(name)
            .map_or_else(String::new, |b| format!("   (baseline {})", number(*b)));
        line(
            out,
            &format!("{split} {name}"),
            format!("{}{beside}", number(*value)),
        )?;
    }
    Ok(())
}

/// Truncates to at most 160 characters; the rejects have the complete sample.
pub(crate) fn shortened(sample: &str) -> String {
    match sample.char_indices().nth(160) {
        Some((end, _)) => format!("{}...", &sample[..end]),
        None => sample.to_owned(),
    }
}

/// Five significant digits or more.
pub(crate) fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 1e6 || (magnitude > 0.0 && magnitude < 1e-4) {
        format!("{value:.5e}")
    } else if magnitude >= 1_000.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.5}")
    }
}

impl Text for VerifyReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "{}",
            if self.problems.is_empty() {
                "verified"
            } else {
                "damaged"
            }
        )?;
        line(
            out,
            "checked",
            format!(
                "{} shards, {} blocks, {} rows",
                self.shards, self.blocks, self.rows
            ),
        )?;
        line(out, "leaked keys", self.leaked_keys.to_string())?;
        for problem in &self.problems {
            line(out, "problem", problem)?;
        }
        line(out, "fingerprint", &self.fingerprint)?;
        line(out, "dataset", &self.url)
    }
}

/// Output of `shards inspect`.
#[derive(Debug, Serialize)]
pub(crate) struct Inspection {
    pub(crate) url: String,
    pub(crate) manifest: Manifest,
    pub(crate) transform: TransformArtefact,
}

impl Text for Inspection {
    fn write(&self, out: &mut String) -> fmt::Result {
        let Manifest {
            layout,
            splits,
            sources,
            counts,
            tokens,
            ..
        } = &self.manifest;
        writeln!(out, "dataset {}", self.manifest.dataset)?;
        line(out, "layout", layout_text(layout))?;
        let kept = &self.manifest.kept;
        if !kept.is_empty() {
            let names: Vec<&str> = kept.iter().map(|column| column.name.as_str()).collect();
            line(out, "kept", names.join(", "))?;
        }
        if let Some(tokens) = tokens {
            let end = match tokens.end_of_text {
                Some(id) => format!("id {id} behind each document"),
                None => "nothing behind documents".to_owned(),
            };
            line(out, "tokenizer", format!("{}, {end}", tokens.tokenizer))?;
        }
        if let Some(edit) = &self.manifest.edit {
            let text = format!("from {} by {}", edit.source, edit.prior.run);
            line(out, "edited", text)?;
        }
        for source in sources {
            let licence = source.licence.as_deref().unwrap_or("not stated");
            line(
                out,
                "source",
                format!(
                    "{} at log position {}, licence {licence}",
                    source.name, source.sequence
                ),
            )?;
        }
        line(
            out,
            "rows",
            format!(
                "{} read, {} duplicates dropped",
                counts.rows_in, counts.duplicates
            ),
        )?;
        write_rejects(&counts.rejected, None, out)?;
        dataset::write_rejected_targets(&counts.rejected_targets, out)?;
        write_filtered(
            &counts.filtered,
            None,
            counts.near_dup.as_ref(),
            counts.redacted.as_ref(),
            out,
        )?;
        write_unexpected(&counts.unexpected, out)?;
        write_conflicts(counts.conflicts, counts.groups, out)?;
        write_joins(&counts.joins, out)?;
        write_images(counts.near_images.as_ref(), counts.boxes.as_ref(), out)?;
        write_windows(counts.sequence.as_ref(), &self.manifest.naive, out)?;
        for split in splits {
            let blocks: usize = split.shards.iter().map(|s| s.blocks.len()).sum();
            let bytes = split.shards.iter().map(|s| s.bytes).sum();
            let text = format!(
                "{} rows, {} shards, {blocks} blocks, {}",
                split.rows,
                split.shards.len(),
                ByteSize::new(bytes)
            );
            line(out, split.split.as_str(), text)?;
        }
        for addition in &self.manifest.additions {
            let [train, validation, test] = addition.rows;
            let positions = addition.behind.iter();
            let positions: Vec<String> = positions
                .map(|source| format!("{} {}", source.name, source.sequence))
                .collect();
            let text = format!(
                "{train} train, {validation} validation, {test} test, behind log position {}",
                positions.join(", ")
            );
            line(out, "added", text)?;
        }
        for step in &self.transform.steps {
            for (name, text) in describe_step(step, number) {
                line(out, name, text)?;
            }
        }
        dataset::write_numbers(&self.transform, out)?;
        dataset::write_classes(&self.transform, &counts.classes, out)?;
        dataset::write_dropped(&self.manifest.dropped_columns, out)?;
        write_warnings(&self.manifest.warnings, out)?;
        line(out, "fingerprint", self.manifest.fingerprint.to_string())?;
        line(out, "dataset", &self.url)
    }
}

fn layout_text(layout: &Layout) -> String {
    match layout {
        Layout::Dense { features, target } => {
            format!("{features} features (f32), {}", target_text(*target))
        }
        Layout::Images { target } => format!("encoded images, {}", target_text(*target)),
        Layout::Tokens { id, vocabulary } => {
            let bits = id_bits(*id);
            format!("documents as {bits}-bit ids of {vocabulary} tokens")
        }
        Layout::Multi {
            features,
            images,
            tokens,
            target,
        } => {
            let mut parts = Vec::new();
            if *features > 0 {
                parts.push(format!("{features} features (f32)"));
            }
            if *images {
                parts.push("an encoded image".to_owned());
            }
            if let Some(tokens) = tokens {
                let (bits, length) = (id_bits(tokens.id), tokens.length);
                let vocabulary = tokens.vocabulary;
                parts.push(format!(
                    "up to {length} {bits}-bit ids of {vocabulary} tokens"
                ));
            }
            format!("{}, {}", parts.join(", "), target_text(*target))
        }
    }
}

fn id_bits(id: TokenType) -> u32 {
    match id {
        TokenType::U16 => 16,
        TokenType::U32 => 32,
    }
}

fn target_text(target: TargetKind) -> String {
    match target {
        TargetKind::None => "no target".to_owned(),
        TargetKind::Regression => "a number to predict".to_owned(),
        TargetKind::Regressions { targets } => format!("{targets} numbers to predict"),
        TargetKind::Classification { classes } => format!("{classes} classes to predict"),
    }
}

impl Text for PlanReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        if !self.sources.is_empty() {
            writeln!(out, "status of the sources")?;
        }
        for source in &self.sources {
            write_source(source, out)?;
        }
        if let Some(suggestions) = &self.suggestions {
            write_suggestions(suggestions, out)?;
        }
        match &self.train {
            Some(train) => write_train_plan(train, out),
            None => Ok(()),
        }
    }
}

fn write_train_plan(train: &TrainPlan, out: &mut String) -> fmt::Result {
    writeln!(out, "training")?;
    line(out, "dataset", &train.dataset)?;
    let Some(loader) = &train.loader else {
        return line(
            out,
            "reads",
            "not known before the dataset is built: `feedline shards build`",
        );
    };
    line(
        out,
        "steps",
        format!(
            "{} of {} samples: {} an epoch, at most {} epochs",
            train.steps, train.batch_size, loader.batches, train.epochs
        ),
    )?;
    line(
        out,
        "an epoch reads",
        format!(
            "{} samples, {} in {} requests",
            loader.samples,
            ByteSize::new(loader.bytes),
            loader.requests
        ),
    )?;
    line(
        out,
        "held to shuffle",
        format!(
            "{}: windows of {} blocks in {} domains",
            ByteSize::new(loader.window_bytes),
            loader.window_blocks,
            loader.domains
        ),
    )?;
    line(out, "mixing", mixing(&loader.shuffle))?;
    train.fit.as_ref().map_or(Ok(()), |fit| write_fit(fit, out))
}

/// Quality of the shuffle, by the classes of the dataset where it has some.
fn mixing(shuffle: &ShuffleQuality) -> String {
    let spread = format!("spread {:.2}, 1 at best", shuffle.spread);
    match shuffle.classes_assumed {
        true => format!("{spread}, if rows were sorted by their targets"),
        false => format!(
            "{:.1} of {} classes in a batch if rows were sorted by class, {:.1} at best; {spread}",
            shuffle.classes_per_batch, shuffle.classes, shuffle.ideal_classes_per_batch
        ),
    }
}

fn write_fit(fit: &Fit, out: &mut String) -> fmt::Result {
    for need in &fit.needs {
        let available = match need.available_bytes {
            Some(bytes) => format!("{} available", ByteSize::new(bytes)),
            None => "how much is available is not known".to_owned(),
        };
        let verdict = if need.is_too_much() {
            "; it does not fit"
        } else {
            ""
        };
        let bytes = ByteSize::new(need.bytes);
        line(
            out,
            need.of,
            format!("about {bytes} besides the above; {available}{verdict}"),
        )?;
    }
    for advice in &fit.advice {
        line(out, "to make it fit", advice)?;
    }
    if fit.is_too_much() && fit.advice.is_empty() {
        line(
            out,
            "to make it fit",
            "use a smaller model, or a machine with more memory",
        )?;
    }
    if let Some(ranks) = &fit.ranks {
        line(out, "ranks", ranks)?;
    }
    Ok(())
}

impl Text for BenchReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "loader: {}, batches of {}", self.kind, self.batch_size)?;
        line(
            out,
            "samples",
            format!("{} in {:.3} s", self.samples, self.seconds),
        )?;
        line(
            out,
            "rate",
            format!(
                "{:.0} samples/s, {}/s",
                self.samples_per_second,
                whole_bytes(self.bytes_per_second)
            ),
        )?;
        line(
            out,
            "opened in",
            format!("{:.0} ms", self.open_seconds * 1e3),
        )?;
        line(
            out,
            "first batch",
            format!("after {:.0} ms", self.first_batch_seconds * 1e3),
        )?;
        line(
            out,
            "data wait",
            format!("{:.2} % of the time after it", self.stall_share * 1e2),
        )?;
        if let Some(rate) = self.headspace_samples_per_second {
            line(
                out,
                "headspace",
                format!("{rate:.0} samples/s over one batch"),
            )?;
        }
        line(
            out,
            "processor",
            format!(
                "{:.2} s; busy: reading {:.2} s, filling {:.2} s",
                self.cpu_seconds, self.metrics.fetch.busy_seconds, self.metrics.decode.busy_seconds
            ),
        )?;
        line(
            out,
            "memory",
            format!("{} at most", ByteSize::new(self.peak_memory_bytes)),
        )?;
        line(
            out,
            "blocks",
            format!(
                "{} read, {}; {} read again",
                self.metrics.blocks,
                ByteSize::new(self.metrics.block_bytes),
                self.metrics.refetches
            ),
        )?;
        if self.metrics.quarantined > 0 {
            line(
                out,
                "replaced",
                format!(
                    "{} samples that could not be used",
                    self.metrics.quarantined
                ),
            )?;
        }
        line(out, "dataset", &self.url)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive and far below 2^63"
)]
fn whole_bytes(rate: f64) -> ByteSize {
    ByteSize::new(rate as u64)
}

/// A count and its noun in the singular or the plural.
fn counted_as(count: u64, one: &str, many: &str) -> String {
    let noun = if count == 1 { one } else { many };
    format!("{} {noun}", grouped(count))
}

/// A count and its noun, in the plural but for 1.
pub(crate) fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// A count with its digits in groups of three from 10,000 on.
pub(crate) fn grouped(count: u64) -> String {
    let digits = count.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn line(out: &mut String, name: &str, value: impl AsRef<str>) -> fmt::Result {
    writeln!(out, "  {name:<16} {}", value.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_large_counts_are_grouped() {
        let counts = [0, 9_999, 10_000, 123_456, 1_234_567].map(grouped);
        assert_eq!(counts, ["0", "9999", "10,000", "123,456", "1,234,567"]);
    }

    #[test]
    fn an_inspection_tells_of_rows_that_are_not_as_expected() {
        let none = "0".repeat(32);
        let manifest = serde_json::json!({
            "format": "feedline.manifest",
            "version": 1,
            "fingerprint": none,
            "dataset": "prices",
            "input_hash": none,
            "layout": { "kind": "dense", "features": 1, "target": { "kind": "none" } },
            "transform": { "path": "transform.json", "hash": none, "dataset": "prices" },
            "shuffle_seed": null,
            "sources": [],
            "counts": {
                "rows_in": 9,
                "duplicates": 0,
                "rejected": {},
                "train": 7,
                "validation": 1,
                "test": 1,
                "unexpected": { "price.max": 4, "size.required": 2 },
            },
            "splits": [],
            "rejects": [],
        });
        let transform = serde_json::json!({
            "format": "feedline.transform",
            "version": 1,
            "hash": none,
            "fitted_rows": 7,
            "null_values": [],
            "missing_values": [],
            "inputs": [],
            "steps": [],
            "features": [],
            "target": null,
        });
        let inspection = Inspection {
            url: "memory:///".to_owned(),
            manifest: serde_json::from_value(manifest).unwrap(),
            transform: serde_json::from_value(transform).unwrap(),
        };
        let text = text_of(&inspection, false).unwrap();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = text.lines().map(words).collect();
        let unexpected = lines.iter().filter(|line| line.starts_with("unexpected"));
        assert_eq!(
            unexpected.collect::<Vec<_>>(),
            ["unexpected 4 price.max", "unexpected 2 size.required"]
        );
    }

    #[test]
    fn an_example_stands_behind_its_own_reason() {
        let counts = |reasons: &[&str]| {
            let reasons = reasons.iter().map(|reason| ((*reason).to_owned(), 2));
            reasons.collect::<BTreeMap<String, u64>>()
        };
        let (rejected, filtered) = (counts(&["a", "b"]), counts(&["c"]));
        let text = |sample: &str| {
            let mut out = String::new();
            write_rejects(&rejected, Some(sample), &mut out).unwrap();
            write_filtered(&filtered, Some(sample), None, None, &mut out).unwrap();
            let lines = out.lines().map(|line| line.split_whitespace().last());
            lines.flatten().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(text("`a`: x"), "a x b c");
        let line = "{\"row\":1,\"reason\":\"c\"}";
        assert_eq!(text(line), format!("a b c {line}"));
        assert_eq!(text("`other`: x"), "a b c");
    }
}
