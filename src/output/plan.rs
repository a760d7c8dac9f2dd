//! Report of `plan`.

use std::fmt::{self, Write as _};

use feedline_loader::ShuffleQuality;
use feedline_schemas::units::ByteSize;
use feedline_trainer::Fit;

use super::{
    ingest::{write_source, write_suggestions},
    text::{Text, counted, line, write_warnings},
};
use crate::plan::{PlanReport, TrainPlan};

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
        if let Some(train) = &self.train {
            write_train_plan(train, out)?;
        }
        write_warnings(&self.warnings, out)
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
    line(out, "steps", steps(train, loader.samples, loader.batches))?;
    line(
        out,
        "an epoch reads",
        format!(
            "{}, {} in {}",
            counted(loader.samples, "sample"),
            ByteSize::new(loader.bytes),
            counted(loader.requests, "request")
        ),
    )?;
    line(
        out,
        "held to shuffle",
        format!(
            "{}: windows of {} in {}",
            ByteSize::new(loader.window_bytes),
            counted(loader.window_blocks.into(), "block"),
            counted(loader.domains.into(), "domain")
        ),
    )?;
    line(out, "mixing", mixing(&loader.shuffle))?;
    train.fit.as_ref().map_or(Ok(()), |fit| write_fit(fit, out))
}

/// Steps of a run whose epochs have so many samples and batches. The only batch of an epoch may be smaller than it was set.
fn steps(train: &TrainPlan, samples: u64, batches: u64) -> String {
    let set = u64::from(train.batch_size);
    let note = match samples < set {
        true => format!(" (all there are; `train.batch_size` is {set})"),
        false => String::new(),
    };
    format!(
        "{} of {}{note}: {batches} an epoch, at most {}",
        train.steps,
        counted(set.min(samples), "sample"),
        counted(train.epochs, "epoch")
    )
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
        let batches = need.batches_bytes.map_or_else(String::new, |bytes| {
            format!(
                ", {} of them for batches copied ahead",
                ByteSize::new(bytes)
            )
        });
        line(
            out,
            need.of,
            format!("about {bytes} besides the above{batches}; {available}{verdict}"),
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

#[cfg(test)]
mod tests {
    use feedline_trainer::Need;

    use super::*;

    #[test]
    fn steps_have_no_more_samples_than_there_are() {
        let of = |samples: u64, batches: u64| {
            let train = TrainPlan {
                dataset: String::new(),
                epochs: 20,
                steps: 20 * batches,
                batch_size: 256,
                loader: None,
                fit: None,
            };
            steps(&train, samples, batches)
        };
        let expected = "20 of 80 samples (all there are; `train.batch_size` is 256): 1 an epoch, at most 20 epochs";
        assert_eq!(of(80, 1), expected);
        let expected = "40 of 256 samples: 2 an epoch, at most 20 epochs";
        assert_eq!(of(257, 2), expected);
    }

    #[test]
    fn the_memory_of_a_gpu_names_that_of_batches_copied_ahead() {
        let fit = Fit {
            needs: vec![Need {
                of: "GPU memory",
                bytes: 3 << 20,
                batches_bytes: Some(1 << 20),
                available_bytes: Some(2 << 20),
            }],
            advice: Vec::new(),
            ranks: None,
        };
        let mut text = String::new();
        write_fit(&fit, &mut text).unwrap();
        assert_eq!(
            text.lines().next(),
            Some(
                "  GPU memory       about 3.0 MiB besides the above, 1.0 MiB of them for batches copied ahead; \
                 2.0 MiB available; it does not fit"
            )
        );
    }
}
