//! Metrics of a split, in the target's units, for a model and for a baseline that looks at no feature.
//!
//! Regression: `rmse`, `mae`, `r2` (1 minus the residual over the total sum of squares about the split's own mean;
//! absent where the split's target is constant), and of a quantile `pinball` and `coverage` (see `quantile`). Of several
//! targets each has these as `<metric>.<target>`; `rmse`, `mae` and `pinball` without a name are over the targets as stored, so
//! that units do not weigh, and `r2` is the mean of the targets', absent where one of them has none. Classification: `accuracy`
//! (the first of equal outputs is taken), `cross_entropy` in nats, without smoothing and class weights, its exponential
//! `perplexity`, `f1_macro` over the classes that a row has or was held for, with more than five classes `top5_accuracy`, with
//! two `f1` of class 1 and `auc` (absent where a class has no rows). Tokens: `cross_entropy` and its exponential,
//! `perplexity`, over all predicted tokens. Autoencoder: `rmse` over all features as stored.
//!
//! The baseline predicts the training mean, for `pinball` and `coverage` the best constant of the split's other rows (absent with
//! one row), or the most frequent training class; its `cross_entropy` is that of the training frequencies, since a certain
//! prediction would make it infinite. For tokens it is that of frequencies too (see [`frequency_loss`]); for an autoencoder there
//! is none.

mod classification;
mod confusion;
mod quantile;
mod sample;
mod values;
mod worst;

use feedline_schemas::{
    checkpoint::WorstSample,
    diagnostics::{Diagnostics, NumberDiagnostics, SAMPLED_ROWS, TargetDiagnostics, TargetValue},
};

use self::{
    classification::Classification,
    quantile::{QuantileMeans, QuantileSums},
    sample::EvenSample,
    values::named,
    worst::Worst,
};
pub(crate) use self::{
    classification::largest,
    values::{Metrics, metric},
};
use crate::{
    data::{
        samples::Targets,
        task::{NumberTarget, Task},
    },
    float_casts::{exact, exact_len, single},
    model::engine::Prediction,
    optim::loss::{self, Loss},
};

/// Sums over the rows of a split, in row order.
#[derive(Clone, Debug)]
pub(crate) struct Evaluation {
    rows: u64,
    /// Rows of the split that are in no sum.
    left_out: u64,
    loss_sum: f64,
    /// Divisor of `loss_sum` for the mean.
    weight: f64,
    worst: Worst,
    sums: TaskSums,
}

#[derive(Clone, Debug)]
enum TaskSums {
    Regression(NumberSums),
    /// Of each target, by its name.
    Regressions(Vec<(NumberTarget, NumberSums)>),
    Classification {
        counts: Box<Classification>,
        names: Vec<String>,
    },
    /// Tokens: how often each id is to be predicted, for the baseline. For the model the loss is all.
    NextToken {
        counts: Vec<u64>,
    },
    /// Rows given back: the loss is all.
    Reconstruction,
}

/// Sums over the rows of one target that is a number.
#[derive(Clone, Debug)]
struct NumberSums {
    mean: f64,
    offset: f64,
    scale: f64,
    /// Of the model's errors.
    squares: f64,
    absolutes: f64,
    /// Of the differences to the training mean, which are the baseline's errors.
    baseline: f64,
    baseline_squares: f64,
    baseline_absolutes: f64,
    /// Of the model's errors, with their sign.
    errors: f64,
    /// Lowest and highest target as stored.
    range: [f32; 2],
    /// Targets and predictions.
    sample: EvenSample<[f32; 2]>,
    /// Sums for the quantile that is predicted; `None` with another loss.
    quantile: Option<QuantileSums>,
}

/// Mean squares and absolutes of errors, and the metrics that they make.
struct NumberErrors {
    squares: f64,
    absolutes: f64,
    /// Of the quantile that is predicted; `None` with another loss.
    quantile: Option<QuantileMeans>,
    metrics: Metrics,
}

/// Mean loss in nats of a baseline that predicts each id by its frequency among the other ids of the split, with 1 added to
/// the count of every id of the vocabulary (Laplace); at most that of equally likely ids.
fn frequency_loss(counts: &[u64]) -> f64 {
    let uniform = exact_len(counts.len()).ln();
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return uniform;
    }
    let others = exact(total - 1) + exact_len(counts.len());
    // An id is not among the others, and 1 is added: its count stays.
    let surprise = |count: u64| exact(count) * (others / exact(count)).ln();
    let present = counts.iter().filter(|count| **count > 0);
    let sum: f64 = present.map(|count| surprise(*count)).sum();
    (sum / exact(total)).min(uniform)
}

/// Metrics of predicted tokens, from their mean loss in nats.
fn tokens(loss: f64) -> Metrics {
    named([("cross_entropy", loss), ("perplexity", loss.exp())])
}

impl Evaluation {
    /// No rows yet.
    pub(crate) fn new(task: &Task) -> Self {
        let sums = match task {
            Task::Regression {
                mean,
                offset,
                scale,
            } => TaskSums::Regression(NumberSums::new(*mean, *offset, *scale)),
            Task::Regressions(targets) => {
                let sums = |t: &NumberTarget| NumberSums::new(t.mean, t.offset, t.scale);
                TaskSums::Regressions(targets.iter().map(|t| (t.clone(), sums(t))).collect())
            }
            Task::Classification { counts, names } => TaskSums::Classification {
                counts: Box::new(Classification::new(counts)),
                names: names.clone(),
            },
            Task::NextToken { vocabulary } => TaskSums::NextToken {
                counts: vec![0; *vocabulary],
            },
            Task::Reconstruction { .. } => TaskSums::Reconstruction,
        };
        Self {
            rows: 0,
            left_out: 0,
            loss_sum: 0.0,
            weight: 0.0,
            worst: Worst::default(),
            sums,
        }
    }

    /// The same of rows that `dataset.sql` made, if `is_of_query`: no sample is reported with a landed row.
    pub(crate) fn of_query(mut self, is_of_query: bool) -> Self {
        if is_of_query {
            self.worst = Worst::of_query();
        }
        self
    }

    /// The same of a model with this loss, which may have metrics of its own.
    pub(crate) fn with_loss(mut self, loss: &Loss) -> Self {
        let Loss::Quantile { quantile } = loss else {
            return self;
        };
        let sums = || Some(QuantileSums::new(*quantile));
        match &mut self.sums {
            TaskSums::Regression(target) => target.quantile = sums(),
            TaskSums::Regressions(targets) => {
                targets
                    .iter_mut()
                    .for_each(|(_, target)| target.quantile = sums());
            }
            TaskSums::Classification { .. }
            | TaskSums::NextToken { .. }
            | TaskSums::Reconstruction => {}
        }
        self
    }

    /// Adds rows: what the model says of them, and their targets.
    pub(crate) fn add(&mut self, prediction: &Prediction, targets: Targets<'_>) {
        let Prediction {
            outputs,
            losses,
            weight,
        } = prediction;
        self.rows += losses.len() as u64;
        self.loss_sum += loss::sum(losses);
        self.weight += weight;
        if matches!(
            self.sums,
            TaskSums::NextToken { .. } | TaskSums::Reconstruction
        ) {
            return;
        }
        match targets {
            Targets::None => {}
            Targets::Numbers(y) => self.add_numbers(outputs, y),
            Targets::Vectors { y, .. } => self.add_vectors(outputs, y),
            Targets::Classes(y) => self.add_classes(outputs, y),
        }
    }

    fn add_numbers(&mut self, outputs: &[f32], y: &[f32]) {
        let TaskSums::Regression(sums) = &mut self.sums else {
            unreachable!("numbers are the targets of a regression");
        };
        for (&output, &y) in outputs.iter().zip(y) {
            sums.add(output, y);
        }
    }

    fn add_vectors(&mut self, outputs: &[f32], y: &[f32]) {
        let TaskSums::Regressions(targets) = &mut self.sums else {
            unreachable!("several numbers are the targets of several regressions");
        };
        let width = targets.len().max(1);
        let rows = outputs.chunks_exact(width).zip(y.chunks_exact(width));
        for (outputs, y) in rows {
            for ((_, sums), (&output, &y)) in targets.iter_mut().zip(outputs.iter().zip(y)) {
                sums.add(output, y);
            }
        }
    }

    fn add_classes(&mut self, outputs: &[f32], y: &[i32]) {
        let TaskSums::Classification { counts, .. } = &mut self.sums else {
            unreachable!("classes are the targets of a classification");
        };
        counts.add(outputs, y);
    }

    /// Counts ids that were to be predicted.
    pub(crate) fn count_ids(&mut self, ids: &[i32]) {
        let Some(counts) = self.id_counts() else {
            return;
        };
        for id in ids {
            let at = usize::try_from(*id).ok();
            if let Some(count) = at.and_then(|at| counts.get_mut(at)) {
                *count += 1;
            }
        }
    }

    /// Number of times that each id was to be predicted, where tokens are predicted.
    pub(crate) fn id_counts(&mut self) -> Option<&mut [u64]> {
        match &mut self.sums {
            TaskSums::NextToken { counts } => Some(counts.as_mut_slice()),
            _ => None,
        }
    }

    /// Records the rows with the largest losses.
    pub(crate) fn add_worst(
        &mut self,
        prediction: &Prediction,
        targets: Targets<'_>,
        keys: &[u64],
        origins: &[u64],
    ) {
        let Prediction {
            outputs, losses, ..
        } = prediction;
        let sums = &self.sums;
        let values = |row| sums.values(outputs, targets, row);
        self.worst.add(losses, keys, origins, values);
    }

    /// The rows with the largest losses, largest first.
    pub(crate) fn worst(&self) -> Vec<WorstSample> {
        self.worst.samples().to_vec()
    }

    /// Rows added.
    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    /// Counts rows whose samples cannot be used.
    pub(crate) const fn leave_out(&mut self, rows: u64) {
        self.left_out += rows;
    }

    /// Rows whose samples cannot be used.
    pub(crate) const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Tokens that were predicted, where they are what is predicted.
    pub(crate) fn tokens(&self) -> Option<u64> {
        matches!(self.sums, TaskSums::NextToken { .. }).then_some(self.rows)
    }

    /// Mean loss, in the units of the stored target.
    pub(crate) fn loss(&self) -> f64 {
        loss::mean(self.loss_sum, self.weight)
    }

    /// Metrics of the model.
    #[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
    pub(crate) fn metrics(&self) -> Metrics {
        let n = self.rows as f64;
        match &self.sums {
            TaskSums::Regression(sums) => sums.errors(n).metrics,
            TaskSums::Regressions(targets) => of_targets(targets, |sums| sums.errors(n)),
            TaskSums::Classification { counts, .. } => counts.metrics(),
            TaskSums::NextToken { .. } => tokens(self.loss_sum / n),
            TaskSums::Reconstruction => named([("rmse", (self.loss_sum / n).sqrt())]),
        }
    }

    /// Diagnostics of the model; none where tokens or the features themselves are predicted.
    pub(crate) fn diagnostics(&self) -> Option<Diagnostics> {
        match &self.sums {
            TaskSums::Regression(sums) => {
                Some(Diagnostics::Regression(sums.diagnostics(self.rows)))
            }
            TaskSums::Regressions(targets) => {
                let of_target = |(target, sums): &(NumberTarget, NumberSums)| TargetDiagnostics {
                    target: target.name.clone(),
                    numbers: sums.diagnostics(self.rows),
                };
                Some(Diagnostics::Regressions(
                    targets.iter().map(of_target).collect(),
                ))
            }
            TaskSums::Classification { counts, .. } => {
                Some(Diagnostics::Classification(counts.diagnostics()))
            }
            TaskSums::NextToken { .. } | TaskSums::Reconstruction => None,
        }
    }

    /// The same metrics of the baseline.
    #[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
    pub(crate) fn baseline(&self) -> Metrics {
        let n = self.rows as f64;
        match &self.sums {
            TaskSums::Regression(sums) => sums.baseline_errors(n).metrics,
            TaskSums::Regressions(targets) => of_targets(targets, |sums| sums.baseline_errors(n)),
            TaskSums::Classification { counts, .. } => counts.baseline(),
            TaskSums::NextToken { counts } => tokens(frequency_loss(counts)),
            TaskSums::Reconstruction => Metrics::new(),
        }
    }
}

impl TaskSums {
    /// Target and prediction of a row.
    fn values(
        &self,
        outputs: &[f32],
        targets: Targets<'_>,
        row: usize,
    ) -> [Option<TargetValue>; 2] {
        match (self, targets) {
            (Self::Regression(NumberSums { offset, scale, .. }), Targets::Numbers(y)) => {
                let number = |stored: Option<&f32>| {
                    let value = f64::from(*stored?) * scale + offset;
                    value.is_finite().then_some(TargetValue::Number(value))
                };
                [number(y.get(row)), number(outputs.get(row))]
            }
            (Self::Regressions(targets), Targets::Vectors { y, width }) => {
                let numbers = |stored: &[f32]| {
                    let stored = stored.get(row * width..(row + 1) * width)?;
                    let values = targets.iter().zip(stored);
                    let values: Vec<f64> = values.map(|((t, _), y)| t.unscale(*y)).collect();
                    let is_finite = values.iter().all(|value| value.is_finite());
                    is_finite.then_some(TargetValue::Numbers(values))
                };
                [numbers(y), numbers(outputs)]
            }
            (Self::Classification { names, .. }, Targets::Classes(y)) => {
                let name = |class: usize| names.get(class).cloned().map(TargetValue::Class);
                let target = y.get(row).and_then(|y| usize::try_from(*y).ok());
                let width = outputs.len() / y.len().max(1);
                let predicted = match outputs.get(row * width..(row + 1) * width) {
                    Some([one]) if names.len() == 2 => largest(&[0.0, *one]),
                    Some(row) => largest(row),
                    None => None,
                };
                [target.and_then(name), predicted.and_then(name)]
            }
            _ => [None, None],
        }
    }
}

impl NumberSums {
    fn new(mean: f64, offset: f64, scale: f64) -> Self {
        Self {
            mean,
            offset,
            scale,
            squares: 0.0,
            absolutes: 0.0,
            baseline: 0.0,
            baseline_squares: 0.0,
            baseline_absolutes: 0.0,
            errors: 0.0,
            range: [f32::INFINITY, f32::NEG_INFINITY],
            sample: EvenSample::new(SAMPLED_ROWS),
            quantile: None,
        }
    }

    /// Adds a row, both numbers as stored.
    fn add(&mut self, output: f32, y: f32) {
        let error = (f64::from(output) - f64::from(y)) * self.scale;
        self.squares += error * error;
        self.absolutes += error.abs();
        let difference = f64::from(y) * self.scale + self.offset - self.mean;
        self.baseline += difference;
        self.baseline_squares += difference * difference;
        self.baseline_absolutes += difference.abs();
        self.errors += error;
        let [lowest, highest] = self.range;
        self.range = [lowest.min(y), highest.max(y)];
        let target = f64::from(y) * self.scale + self.offset;
        self.sample.add([single(target), single(target + error)]);
        if let Some(quantile) = &mut self.quantile {
            quantile.add(output, y);
        }
    }

    /// Sum of squares about the split's own mean; 0 where all targets are equal, whatever rounding leaves of the difference.
    fn total(&self, n: f64) -> f64 {
        let [lowest, highest] = self.range;
        match lowest < highest {
            true => self.baseline_squares - self.baseline * self.baseline / n,
            false => 0.0,
        }
    }

    /// Errors of the model over `n` rows.
    fn errors(&self, n: f64) -> NumberErrors {
        let quantile = self.quantile.as_ref().map(QuantileSums::means);
        self.of(n, self.squares, self.absolutes, quantile)
    }

    /// Errors of the baseline over `n` rows.
    fn baseline_errors(&self, n: f64) -> NumberErrors {
        let quantile = self
            .quantile
            .as_ref()
            .and_then(QuantileSums::baseline_means);
        self.of(n, self.baseline_squares, self.baseline_absolutes, quantile)
    }

    fn of(
        &self,
        n: f64,
        squares: f64,
        absolutes: f64,
        quantile: Option<QuantileMeans>,
    ) -> NumberErrors {
        let mut metrics = regression(n, squares, absolutes, self.total(n));
        if let Some(means) = quantile {
            metrics.extend(means.metrics(self.scale));
        }
        NumberErrors {
            squares: squares / n / (self.scale * self.scale),
            absolutes: absolutes / n / self.scale,
            quantile,
            metrics,
        }
    }

    fn diagnostics(&self, rows: u64) -> NumberDiagnostics {
        let (mut sample, stride) = self.sample.values();
        sample.retain(|pair| pair.iter().all(|value| value.is_finite()));
        NumberDiagnostics {
            rows,
            bias: self.errors / exact(rows),
            sample,
            stride,
        }
    }
}

/// Metrics of each target by its name, and those of all.
fn of_targets(
    targets: &[(NumberTarget, NumberSums)],
    errors: impl Fn(&NumberSums) -> NumberErrors,
) -> Metrics {
    let (mut squares, mut absolutes, mut r2) = (0.0, 0.0, Some(0.0));
    let mut metrics = Metrics::new();
    let mut quantiles: Vec<QuantileMeans> = Vec::new();
    for (target, sums) in targets {
        let of_target = errors(sums);
        quantiles.extend(of_target.quantile);
        squares += of_target.squares;
        absolutes += of_target.absolutes;
        r2 = r2
            .zip(of_target.metrics.get("r2"))
            .map(|(all, own)| all + own);
        for (name, value) in of_target.metrics {
            metrics.insert(format!("{name}.{}", target.name), value);
        }
    }
    let n = exact_len(targets.len());
    metrics.extend(named([
        ("rmse", (squares / n).sqrt()),
        ("mae", absolutes / n),
    ]));
    metrics.extend(r2.map(|r2| ("r2".to_owned(), r2 / n)));
    if let Some(means) = QuantileMeans::of_all(&quantiles) {
        metrics.extend(means.metrics(1.0));
    }
    metrics
}

/// `total` is the sum of squares about the split's own mean.
fn regression(n: f64, squares: f64, absolutes: f64, total: f64) -> Metrics {
    let mut metrics = named([("rmse", (squares / n).sqrt()), ("mae", absolutes / n)]);
    if total > 0.0 {
        metrics.insert("r2".to_owned(), 1.0 - squares / total);
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(evaluation: &mut Evaluation, outputs: &[f32], losses: &[f32], targets: Targets<'_>) {
        let prediction = Prediction {
            outputs: outputs.to_vec(),
            losses: losses.to_vec(),
            weight: losses.iter().map(|_| 1.0).sum(),
        };
        evaluation.add(&prediction, targets);
    }

    fn check(found: &Metrics, expected: &[(&str, f64)]) {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (name, value) in expected {
            assert!(
                (found[*name] - value).abs() < 1e-9,
                "{name}: {found:?}, expected {value}"
            );
        }
    }

    #[test]
    fn regression_metrics_are_in_the_units_of_the_target() {
        // Stored targets 0, 1, 2 are 10, 30, 50 in units; the training mean is 20.
        let mut evaluation = Evaluation::new(&Task::Regression {
            mean: 20.0,
            offset: 10.0,
            scale: 20.0,
        });
        add(
            &mut evaluation,
            &[0.5, 1.0],
            &[0.25, 0.0],
            Targets::Numbers(&[0.0, 1.0]),
        );
        add(&mut evaluation, &[1.0], &[1.0], Targets::Numbers(&[2.0]));
        // Errors in units: 10, 0, -20. Differences to the mean: -10, 10, 30. Total about 30: 400 + 0 + 400.
        let rmse = (500.0_f64 / 3.0).sqrt();
        check(
            &evaluation.metrics(),
            &[("rmse", rmse), ("mae", 10.0), ("r2", 1.0 - 500.0 / 800.0)],
        );
        let rmse = (1100.0_f64 / 3.0).sqrt();
        check(
            &evaluation.baseline(),
            &[
                ("rmse", rmse),
                ("mae", 50.0 / 3.0),
                ("r2", 1.0 - 1100.0 / 800.0),
            ],
        );
        assert_eq!(evaluation.rows(), 3);
        assert!((evaluation.loss() - 1.25 / 3.0).abs() < 1e-12);
        let Some(Diagnostics::Regression(found)) = evaluation.diagnostics() else {
            panic!("numbers are predicted")
        };
        assert_eq!((found.rows, found.stride), (3, 1));
        assert!((found.bias - (10.0 + 0.0 - 20.0) / 3.0).abs() < 1e-9);
        assert_eq!(found.sample, [[10.0, 20.0], [30.0, 30.0], [50.0, 30.0]]);
    }

    #[test]
    fn a_quantile_has_its_loss_in_the_units_of_the_target_and_its_coverage() {
        let loss = Loss::Quantile { quantile: 0.9 };
        let mut evaluation = Evaluation::new(&Task::Regression {
            mean: 20.0,
            offset: 10.0,
            scale: 20.0,
        })
        .with_loss(&loss);
        let targets = Targets::Numbers(&[0.0, 1.0, 2.0]);
        add(&mut evaluation, &[0.5, 0.5, 2.0], &[0.0; 3], targets);
        let (metrics, baseline) = (evaluation.metrics(), evaluation.baseline());
        // In units: 10 below, 10 above, equal. The best constant is the larger one of the two other targets.
        assert!((metrics["pinball"] - (0.1 * 10.0 + 0.9 * 10.0) / 3.0).abs() < 1e-9);
        assert!((metrics["coverage"] - 2.0 / 3.0).abs() < 1e-12);
        assert!((baseline["pinball"] - (0.1 * (40.0 + 20.0) + 0.9 * 20.0) / 3.0).abs() < 1e-9);
        assert!((baseline["coverage"] - 2.0 / 3.0).abs() < 1e-12);
        assert!(metrics.contains_key("mae") && baseline.contains_key("mae"));

        let target = |name: &str, scale: f64| NumberTarget {
            name: name.into(),
            mean: 0.0,
            offset: 0.0,
            scale,
        };
        let several = Task::Regressions(vec![target("a", 1.0), target("b", 10.0)]);
        let mut evaluation = Evaluation::new(&several).with_loss(&loss);
        let targets = Targets::Vectors {
            y: &[1.0, 0.0],
            width: 2,
        };
        add(&mut evaluation, &[0.0, 1.0], &[0.0], targets);
        let metrics = evaluation.metrics();
        for (name, expected) in [
            ("pinball.a", 0.9),
            ("pinball.b", 1.0),
            ("pinball", f64::midpoint(0.9, 0.1)),
            ("coverage.a", 0.0),
            ("coverage.b", 1.0),
            ("coverage", 0.5),
        ] {
            assert!(
                (metrics[name] - expected).abs() < 1e-9,
                "{name}: {metrics:?}"
            );
        }
        assert!(!Evaluation::new(&several).metrics().contains_key("pinball"));
        // One row has no other to fit a constant to.
        let baseline = evaluation.baseline();
        let mut names = baseline.keys();
        assert!(
            !names.any(|name| name.starts_with("pinball")),
            "{baseline:?}"
        );
    }

    #[test]
    fn worst_samples_say_target_and_prediction_in_the_targets_units() {
        let prediction = |outputs: &[f32]| Prediction {
            outputs: outputs.to_vec(),
            losses: vec![0.1, 0.9],
            weight: 2.0,
        };
        let values = |evaluation: &Evaluation| {
            let worst = evaluation.worst().into_iter();
            worst.map(|s| [s.target, s.prediction]).collect::<Vec<_>>()
        };
        let mut numbers = Evaluation::new(&Task::Regression {
            mean: 0.0,
            offset: 10.0,
            scale: 20.0,
        });
        let targets = Targets::Numbers(&[0.0, 2.0]);
        numbers.add_worst(&prediction(&[0.5, 1.0]), targets, &[1, 2], &[0, 0]);
        let number = |value: f64| Some(TargetValue::Number(value));
        let expected = [[number(50.0), number(30.0)], [number(10.0), number(20.0)]];
        assert_eq!(values(&numbers), expected);

        let class = |name: &str| Some(TargetValue::Class(name.to_owned()));
        let expected = [[class("bad"), class("good")], [class("good"), class("bad")]];
        for outputs in [&[0.3, -0.3][..], &[0.0, 1.0, 2.0, 0.0]] {
            let mut classes = Evaluation::new(&Task::Classification {
                counts: vec![1, 1],
                names: vec!["good".into(), "bad".into()],
            });
            let targets = Targets::Classes(&[0, 1]);
            classes.add_worst(&prediction(outputs), targets, &[1, 2], &[0, 0]);
            assert_eq!(values(&classes), expected);
        }
    }

    #[test]
    fn several_targets_have_metrics_by_name_and_units_do_not_weigh_in_those_of_all() {
        let target = |name: &str, mean: f64, scale: f64| NumberTarget {
            name: name.into(),
            mean,
            offset: mean,
            scale,
        };
        let targets = vec![target("a", 20.0, 20.0), target("b", -1.0, 0.5)];
        let mut evaluation = Evaluation::new(&Task::Regressions(targets));
        // Stored errors of `a` are 0.5, 0 and -1, of `b` 0, 0.2 and 0.
        let y = [-0.5, 0.0, 0.5, 1.0, 1.5, -2.0];
        let outputs = [0.0, 0.0, 0.5, 1.2, 0.5, -2.0];
        let targets = Targets::Vectors { y: &y, width: 2 };
        add(&mut evaluation, &outputs, &[0.125, 0.02, 0.5], targets);
        let metrics = evaluation.metrics();
        let (a, b) = (1.25_f64 / 3.0, 0.04_f64 / 3.0);
        // Of `a` in units: errors 10, 0 and -20; about their mean the targets are 10, 30, 50.
        let (r2_a, r2_b) = (1.0 - 500.0 / 800.0, 1.0 - 0.01 * 6.0 / 7.0);
        let expected = [
            ("rmse", f64::midpoint(a, b).sqrt()),
            ("mae", (1.5 / 3.0 + 0.2 / 3.0) / 2.0),
            ("r2", f64::midpoint(r2_a, r2_b)),
            ("rmse.a", a.sqrt() * 20.0),
            ("mae.a", 10.0),
            ("r2.a", r2_a),
            ("rmse.b", b.sqrt() * 0.5),
            ("mae.b", 0.2 * 0.5 / 3.0),
            ("r2.b", r2_b),
        ];
        assert_eq!(metrics.len(), expected.len(), "{metrics:?}");
        for (name, value) in expected {
            assert!((metrics[name] - value).abs() < 1e-7, "{name}: {metrics:?}");
        }
        let baseline = evaluation.baseline();
        assert!(
            (baseline["mae.a"] - 50.0 / 3.0).abs() < 1e-6,
            "{baseline:?}"
        );
        assert_eq!(evaluation.rows(), 3);
        evaluation.add_worst(
            &Prediction {
                outputs: outputs.to_vec(),
                losses: vec![0.125, 0.02, 0.5],
                weight: 3.0,
            },
            targets,
            &[1, 2, 3],
            &[0; 3],
        );
        let worst = &evaluation.worst()[0];
        let numbers = |of: &[f64]| Some(TargetValue::Numbers(of.to_vec()));
        assert_eq!(worst.target, numbers(&[50.0, -2.0]));
        assert_eq!(worst.prediction, numbers(&[30.0, -2.0]));
        let Some(Diagnostics::Regressions(found)) = evaluation.diagnostics() else {
            panic!("several numbers are predicted")
        };
        let names: Vec<&str> = found.iter().map(|found| found.target.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!((found[0].numbers.bias - (10.0 + 0.0 - 20.0) / 3.0).abs() < 1e-6);
    }

    #[test]
    fn the_baseline_of_tokens_knows_how_often_each_is_to_be_predicted() {
        let baseline = |vocabulary, ids: &[i32]| {
            let mut evaluation = Evaluation::new(&Task::NextToken { vocabulary });
            evaluation.count_ids(ids);
            evaluation.baseline()["cross_entropy"]
        };
        let near = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 1e-12, "{found}, not {expected}");
        };
        // Of the 3 others of an id 0, two are 0: with 1 added to each of 3 counts 3 / 6; of those of the id 1 none.
        let expected = (3.0 * 2.0_f64.ln() + 6.0_f64.ln()) / 4.0;
        near(baseline(3, &[0, 0, 1, 0]), expected);
        // Frequencies that say less than that all are equally likely.
        near(baseline(5, &[0, 1, 2, 3, 4]), 5.0_f64.ln());
        near(baseline(5, &[]), 5.0_f64.ln());
    }

    #[test]
    fn a_constant_target_has_no_r2() {
        let mut evaluation = Evaluation::new(&Task::Regression {
            mean: 1.0,
            offset: 1.0,
            scale: 1.0,
        });
        add(&mut evaluation, &[0.5], &[0.25], Targets::Numbers(&[0.0]));
        check(&evaluation.metrics(), &[("rmse", 0.5), ("mae", 0.5)]);
        // The sums of these seven equal targets differ by a rest of rounding, 2.8e-17.
        let mut evaluation = Evaluation::new(&Task::Regression {
            mean: 0.2,
            offset: 0.1,
            scale: 0.7,
        });
        let targets = Targets::Numbers(&[0.3; 7]);
        add(&mut evaluation, &[0.0; 7], &[1.0; 7], targets);
        assert!(!evaluation.metrics().contains_key("r2"));
        assert!(!evaluation.baseline().contains_key("r2"));
    }
}
