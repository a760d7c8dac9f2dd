//! Reports of a training and of an evaluation.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

use feedline_schemas::report::{EvalReport, ImagesReport, MixedSource, NormalizedBy, TrainReport};

use super::{
    dataset, performance,
    text::{Text, counted, counted_as, grouped, line, number, write_warnings},
    used_run,
};

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
        if let Some(stop) = &self.stopped_early {
            let text = format!(
                "{} of {} epochs: the validation loss did not improve for {} (`train.patience`)",
                self.epochs,
                stop.planned_epochs,
                counted(stop.patience.into(), "epoch")
            );
            line(out, "stopped early", text)?;
        }
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
        write_left_out(self, out)?;
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

/// Steps and batches that moved no weight, and rollbacks.
fn write_left_out(report: &TrainReport, out: &mut String) -> fmt::Result {
    if report.dropped_steps > 0 {
        let text = format!(
            "{} of {}, whose gradient overflowed f16: no weight moved",
            counted(report.dropped_steps, "step"),
            grouped(report.steps)
        );
        line(out, "dropped", text)?;
    }
    if report.skipped_batches > 0 {
        line(out, "left out", counted(report.skipped_batches, "batch"))?;
    }
    if report.rollbacks > 0 {
        line(out, "went back", counted(report.rollbacks, "time"))?;
    }
    Ok(())
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
            "{}: {}, {:.2} % of all at a weight of {:.2} %; it has {}",
            source.dataset,
            counted(source.given, "sample"),
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
                format!("{}, {} predicted", self.split, counted(tokens, "token")),
            )?,
            None => {
                let text = format!("{}, {}", self.split, counted(self.rows, "row"));
                line(out, "split", text)?;
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_overflowed_are_counted() {
        let text = |dropped_steps| {
            let report = TrainReport {
                steps: 15,
                dropped_steps,
                ..TrainReport::default()
            };
            let mut out = String::new();
            report.write(&mut out).unwrap();
            out
        };
        assert!(text(12).contains("12 steps of 15"), "{}", text(12));
        assert!(!text(0).contains("dropped"), "{}", text(0));
    }
}
