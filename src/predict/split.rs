//! Predictions of all rows of a split, for `feedline eval --predictions`.
//!
//! One row for each sample, in the order of the dataset. It has the sample's columns of
//! `dataset.passthrough` as landed (for a window, those of the predicted row), its key, its origin,
//! its target (`truth`) and the prediction. Predictions are in the target's units or class names,
//! with the probability of each class. Several targets have both each, as `truth=NAME` and
//! `prediction=NAME`.

use anyhow::Context as _;
use feedline_preprocess::{Column, PassthroughRow, PassthroughRows};
use feedline_schemas::{
    ids::Origin,
    manifest::{Manifest, Split},
    report::{EvalReport, Warning},
    transform::{FittedTarget, TransformArtefact},
};
use feedline_trainer::{ChosenRun, Context, MeasuredRows, Predicted, Truths};

use tokio::runtime::Handle;

use super::{Output, named_target, passthrough::renamed};

/// Columns that identify the sample of a row.
const SAMPLE: [&str; 4] = ["key", "source", "sequence", "row"];

/// Name in place of a source for rows of `dataset.sql`, as in their rejects.
const QUERY: &str = "sql";

/// Distance of a target from its offset from that on 32 bits round it by a half or more.
const ROUNDED_FROM: f64 = 8_388_608.0;

/// Columns of the file.
#[derive(Debug)]
pub(crate) struct SplitColumns {
    /// Names of the sources by their numbers in origins.
    sources: Vec<String>,
    /// Names of the classes by id; empty if a number is predicted.
    classes: Vec<String>,
    has_target: bool,
    /// Names of the targets if there are several.
    targets: Vec<String>,
    /// Numbers that were subtracted from the targets that are numbers, before they were stored.
    offsets: Vec<f64>,
}

impl SplitColumns {
    pub(crate) fn new(manifest: &Manifest, artefact: &TransformArtefact) -> Self {
        Self {
            sources: origin_names(manifest),
            classes: match &artefact.target {
                Some(FittedTarget::Classification { classes, .. }) => classes.clone(),
                _ => Vec::new(),
            },
            has_target: artefact.target.is_some(),
            targets: artefact.target_names(),
            offsets: artefact.targets().filter_map(offset_of).collect(),
        }
    }

    /// Evaluates the model on `split`, and writes the predictions to `output`, with the passthrough
    /// columns of the shards. Blocks; `runtime` reads these.
    pub(crate) fn evaluate(
        &self,
        chosen: &ChosenRun,
        (split, mut kept): (Split, Option<PassthroughRows>),
        context: &Context,
        output: Output,
        runtime: &Handle,
    ) -> anyhow::Result<EvalReport> {
        let to = output.name();
        let (mut report, mut farthest) = (None, 0.0_f64);
        let gives_rows_back = chosen.reconstructs();
        let kept_names = kept.iter().flat_map(PassthroughRows::names);
        let mut names: Vec<String> = kept_names.map(|name| named(name)).collect();
        names.extend(self.names(gives_rows_back));
        output.write(&names, |out| {
            let mut write = |rows: MeasuredRows| -> anyhow::Result<()> {
                let mut columns = match &mut kept {
                    Some(kept) => runtime.block_on(beside(kept, &rows.origins))?,
                    None => Vec::new(),
                };
                farthest = farthest.max(self.farthest(&rows.truths));
                columns.extend(self.columns(rows));
                Ok(out.write(columns)?)
            };
            let mut written: anyhow::Result<()> = Ok(());
            let mut each = |rows: MeasuredRows| {
                written = write(rows);
                written.is_ok()
            };
            let measured = feedline_trainer::evaluate_rows(chosen, split, context, &mut each);
            written?;
            report = Some(measured?);
            Ok(())
        })?;
        let mut report = report.expect("a file that is written has a report");
        report.warnings.extend(rounding_warning(farthest));
        Ok(EvalReport {
            predictions: Some(to),
            ..report
        })
    }

    fn names(&self, gives_rows_back: bool) -> Vec<String> {
        let mut names = SAMPLE.map(str::to_owned).to_vec();
        if gives_rows_back || !self.has_target {
            names.push("difference".to_owned());
            return names;
        }
        if !self.targets.is_empty() {
            for what in ["truth", "prediction"] {
                names.extend(self.targets.iter().map(|name| named_target(what, name)));
            }
            return names;
        }
        names.extend(["truth", "prediction"].map(str::to_owned));
        let classes = self.classes.iter();
        names.extend(classes.map(|class| format!("probability={class}")));
        names
    }

    /// Largest distance of a target from its offset.
    fn farthest(&self, truths: &Truths) -> f64 {
        let numbers = match truths {
            Truths::Numbers(numbers) | Truths::Vectors(numbers) => numbers.as_slice(),
            Truths::None | Truths::Classes(_) => &[],
        };
        let pairs = numbers.iter().zip(self.offsets.iter().cycle());
        let distances = pairs.map(|(number, offset)| (number - offset).abs());
        distances.fold(0.0, f64::max)
    }

    /// The numbers of each target, of `[rows, targets]`.
    fn by_target<'a>(&self, numbers: &'a [f64]) -> impl Iterator<Item = Vec<f64>> + use<'a> {
        let width = self.targets.len();
        let of = move |target: usize| numbers.iter().skip(target).step_by(width.max(1));
        (0..width).map(move |target| of(target).copied().collect())
    }

    fn columns(&self, rows: MeasuredRows) -> Vec<Column> {
        let count = rows.keys.len();
        let origins = || rows.origins.iter();
        let source = |number: u64| {
            let known = usize::try_from(number).ok();
            let known = known.and_then(|number| self.sources.get(number));
            known.cloned().unwrap_or_else(|| number.to_string())
        };
        let keys = rows.keys.iter().map(|key| Some(format!("{key:016x}")));
        let mut columns = vec![
            Column::Text(keys.collect()),
            Column::Text(origins().map(|o| Some(source(o.source()))).collect()),
            Column::Counts(origins().map(|o| o.sequence().get()).collect()),
            Column::Counts(origins().map(|o| o.row()).collect()),
        ];
        let name = |id: Option<usize>| self.classes.get(id?).cloned();
        let finite = |numbers: Vec<f64>| {
            let numbers = numbers.into_iter();
            Column::Long(numbers.map(|n| Some(n).filter(|n| n.is_finite())).collect())
        };
        match rows.truths {
            Truths::None => {}
            Truths::Numbers(numbers) => columns.push(finite(numbers)),
            Truths::Vectors(numbers) => columns.extend(self.by_target(&numbers).map(finite)),
            Truths::Classes(ids) => {
                let names = ids.into_iter().map(|id| name(Some(id)));
                columns.push(Column::Text(names.collect()));
            }
        }
        match rows.predicted {
            Predicted::Numbers(numbers) | Predicted::Differences(numbers) => {
                columns.push(finite(numbers));
            }
            Predicted::Vectors { numbers, .. } => {
                columns.extend(self.by_target(&numbers).map(finite));
            }
            Predicted::Classes { ids, probabilities } => {
                columns.push(Column::Text(ids.into_iter().map(name).collect()));
                let classes = self.classes.len();
                columns.extend((0..classes).map(|class| {
                    let cell = |row: usize| probabilities.get(row * classes + class).copied();
                    Column::Long((0..count).map(cell).collect())
                }));
            }
        }
        columns
    }
}

/// Number that was subtracted from a target that is a number, before it was stored.
fn offset_of(target: &FittedTarget) -> Option<f64> {
    match target {
        FittedTarget::Regression { offset, .. } => Some(*offset),
        FittedTarget::Classification { .. } => None,
    }
}

/// The warning of targets that 32 bits round by a half or more.
fn rounding_warning(farthest: f64) -> Option<Warning> {
    (farthest >= ROUNDED_FROM).then(|| {
        let by = farthest / (2.0 * ROUNDED_FROM);
        let message = format!(
            "shards store targets in 32 bits, so `truth` is rounded by up to `{by:.1}`; for exact numbers, join the \
             predictions to your data by a passthrough column"
        );
        Warning::new("rounded_truth", message).with_key("dataset.passthrough")
    })
}

/// Names of the sources by their numbers in origins. The rows of a query have one name, since they are no rows of a source.
fn origin_names(manifest: &Manifest) -> Vec<String> {
    if manifest.counts.are_of_query() {
        return vec![QUERY.to_owned()];
    }
    let sources = manifest.sources.iter();
    sources.map(|source| source.name.to_string()).collect()
}

/// Passthrough columns of the rows with the `origins`, which follow the rows read before.
async fn beside(kept: &mut PassthroughRows, origins: &[Origin]) -> anyhow::Result<Vec<Column>> {
    let mut columns = vec![Vec::with_capacity(origins.len()); kept.names().len()];
    for origin in origins {
        let row = kept.next().await?;
        let row = row.filter(|row| row.origin == *origin);
        let PassthroughRow { cells, .. } = row.with_context(|| {
            "the shards return their rows in another order than stored; this is a bug, please report it"
        })?;
        for (column, cell) in columns.iter_mut().zip(cells) {
            column.push(cell);
        }
    }
    Ok(columns.into_iter().map(Column::Text).collect())
}

/// Name of a passthrough column in the file, if another column has its name.
fn named(name: &str) -> String {
    let is_own = SAMPLE.contains(&name)
        || ["truth", "prediction", "difference"].contains(&name)
        || ["truth=", "prediction=", "probability="]
            .iter()
            .any(|beginning| name.starts_with(beginning));
    match is_own {
        true => renamed(name),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_that_their_shards_round_are_a_warning() {
        let warning = |offsets: &[f64], truths: Truths| {
            let columns = SplitColumns {
                sources: Vec::new(),
                classes: Vec::new(),
                has_target: true,
                targets: Vec::new(),
                offsets: offsets.to_vec(),
            };
            rounding_warning(columns.farthest(&truths))
        };
        // What counts is the distance from the offset.
        let close = Truths::Numbers(vec![1e9, 1e9 + 8e6]);
        assert_eq!(warning(&[1e9], close.clone()), None);
        let warned = warning(&[0.0], close).unwrap();
        assert_eq!(warned.code, "rounded_truth");
        assert!(warned.message.contains("up to `60.1`"), "{warned:?}");
        let several = Truths::Vectors(vec![5.0, 1e9, 6.0, 1e9 - 1e7]);
        assert!(warning(&[0.0, 1e9], several.clone()).is_some());
        assert_eq!(warning(&[0.0, 1e9 - 5e6], several), None);
        assert_eq!(warning(&[], Truths::Classes(vec![1])), None);
    }
}
