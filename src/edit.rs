//! `feedline edit`: a trained model edits the texts of a dataset.

use std::fmt::{self, Write as _};

use feedline_preprocess::EditSource;
use feedline_schemas::{
    config::TrainConfig,
    edit::{Documents, EditRule, TextFigures},
    report::EditReport,
};
use feedline_storage::Store;
use feedline_trainer::Prior;
use tokio::task::spawn_blocking;

use crate::output::{Text, counted, line, number, write_warnings};

/// Dataset, model and rule of an edit.
pub(crate) struct Edit {
    pub(crate) source: Store,
    pub(crate) target: Store,
    pub(crate) rule: EditRule,
    pub(crate) config: TrainConfig,
    pub(crate) training: feedline_trainer::Context,
    pub(crate) writing: feedline_preprocess::Context,
}

impl Edit {
    /// Writes the edited dataset, or finds an existing one. May be dropped at any await: nothing is
    /// published before the end.
    pub(crate) async fn run(self) -> anyhow::Result<EditReport> {
        let Self {
            source,
            target,
            rule,
            config,
            training,
            writing,
        } = self;
        let source = EditSource::open(&source).await?;
        source.check_target(&target).await?;
        let (special, trained_on) = (source.special().to_vec(), training.dataset.clone());
        source.check_ids_of(&trained_on).await?;
        let open = move || Prior::open(&config, rule, &special, &training).map_err(Box::new);
        let prior = spawn_blocking(open).await?.map_err(|error| *error)?;
        let (reference, warnings) = (prior.reference().clone(), prior.warnings().to_vec());
        if let Some(mut report) = source.found(&target, &rule, &reference).await? {
            report.warnings.extend(warnings);
            return Ok(report);
        }
        // The model moves to the computing thread, and back.
        let mut prior = Some(prior);
        let edit = async |documents: Documents| -> anyhow::Result<Vec<u32>> {
            let mut ours = prior.take().expect("one block is edited at a time");
            let work = move || (ours.edit(&documents).map_err(Box::new), ours);
            let (ids, ours) = spawn_blocking(work).await?;
            prior = Some(ours);
            Ok(ids.map_err(|error| *error)?)
        };
        let shards = source.write(&target, &writing, edit).await?;
        let measures = prior.expect("no block is being edited").measures();
        let published = source.publish(&target, shards, (rule, reference), measures);
        let mut report = published.await?;
        report.warnings.extend(warnings);
        Ok(report)
    }
}

impl Text for EditReport {
    fn write(&self, out: &mut String) -> fmt::Result {
        let note = match self.up_to_date {
            true => " (nothing new: kept as it was)",
            false => "",
        };
        writeln!(out, "edit{note}")?;
        let (counts, rule) = (&self.edit.counts, &self.edit.rule);
        let of_predicted = |tokens| share(tokens, counts.predicted);
        line(
            out,
            "tokens",
            format!(
                "{} in {}",
                counts.tokens,
                counted(counts.documents, "document")
            ),
        )?;
        let over = format!(
            "{} ({}) at or over {}",
            counts.over,
            of_predicted(counts.over),
            rule.threshold
        );
        line(out, "certain", over)?;
        let changed = format!(
            "{} ({}), of {} resampled",
            counts.changed,
            of_predicted(counts.changed),
            counts.redrawn
        );
        line(out, "changed", changed)?;
        for (name, figures) in [("before", &self.edit.before), ("after", &self.edit.after)] {
            write_figures(name, figures, out)?;
        }
        write_warnings(&self.warnings, out)?;
        line(out, "model", &self.edit.prior.run)?;
        line(out, "fingerprint", &self.fingerprint)?;
        line(out, "dataset", &self.url)
    }
}

fn write_figures(name: &str, figures: &TextFigures, out: &mut String) -> fmt::Result {
    let TextFigures {
        perplexity: found,
        bigrams,
    } = figures;
    let quantiles = [found.p1, found.p10, found.p50, found.p90, found.p99].map(number);
    line(
        out,
        name,
        format!(
            "perplexity {}; of 1, 10, 50, 90 and 99 % of {} at most {}",
            number(found.all),
            counted(found.windows, "window"),
            quantiles.join(", ")
        ),
    )?;
    line(
        out,
        "",
        format!(
            "{} different pairs of tokens, entropy {} bits, the most frequent hundredth has {:.2} % of all",
            bigrams.distinct,
            number(bigrams.entropy_bits),
            100.0 * bigrams.top_share
        ),
    )
}

/// A share in percent.
#[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits")]
fn share(part: u64, of: u64) -> String {
    format!("{:.3} %", 100.0 * part as f64 / of.max(1) as f64)
}
