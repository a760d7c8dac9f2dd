//! Metrics of a split, in the target's units, for a model and for a baseline that looks at no feature.
//!
//! Regression: `rmse`, `mae`, `r2` (1 minus the residual over the total sum of squares about the split's own mean;
//! absent where the split's target is constant). Classification: `accuracy` (the first of equal outputs is taken),
//! `cross_entropy` in nats, without smoothing and class weights, its exponential `perplexity`, `f1_macro` over the classes
//! that a row has or was held for, with more than five classes `top5_accuracy`, with two `f1` of class 1 and `auc` (absent
//! where a class has no rows). Tokens: `cross_entropy` and its exponential, `perplexity`, over all predicted tokens.
//! Autoencoder: `rmse` over all features as stored.
//!
//! The baseline predicts the training mean, or the most frequent training class; its `cross_entropy` is that of the
//! training frequencies, since a certain prediction would make it infinite. For tokens it holds all ids equally likely;
//! for an autoencoder there is none.

mod classification;
mod confusion;
mod sample;
mod worst;

use std::collections::BTreeMap;

use feedline_schemas::{
    checkpoint::WorstSample,
    diagnostics::{Diagnostics, NumberDiagnostics, SAMPLED_ROWS, TargetValue},
};

pub(crate) use self::classification::largest;
use self::{classification::Classification, sample::EvenSample, worst::Worst};
use crate::{
    data::Targets,
    engine::Prediction,
    loss,
    number::{exact, single},
    task::Task,
};

/// Metrics by name.
pub(crate) type Metrics = BTreeMap<String, f64>;

/// Sums over the rows of a split, in row order.
#[derive(Clone, Debug)]
pub(crate) struct Evaluation {
    rows: u64,
    loss_sum: f64,
    /// What `loss_sum` is divided by for the mean.
    weight: f64,
    worst: Worst,
    sums: Sums,
}

#[derive(Clone, Debug)]
enum Sums {
    Regression {
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
        /// Targets and predictions.
        sample: EvenSample<[f32; 2]>,
    },
    Classification {
        counts: Box<Classification>,
        names: Vec<String>,
    },
    /// Tokens: the loss is all.
    NextToken { vocabulary: usize },
    /// Rows given back: the loss is all.
    Reconstruction,
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
            } => Sums::Regression {
                mean: *mean,
                offset: *offset,
                scale: *scale,
                squares: 0.0,
                absolutes: 0.0,
                baseline: 0.0,
                baseline_squares: 0.0,
                baseline_absolutes: 0.0,
                errors: 0.0,
                sample: EvenSample::new(SAMPLED_ROWS),
            },
            Task::Classification { counts, names } => Sums::Classification {
                counts: Box::new(Classification::new(counts)),
                names: names.clone(),
            },
            Task::NextToken { vocabulary } => Sums::NextToken {
                vocabulary: *vocabulary,
            },
            Task::Reconstruction { .. } => Sums::Reconstruction,
        };
        Self {
            rows: 0,
            loss_sum: 0.0,
            weight: 0.0,
            worst: Worst::default(),
            sums,
        }
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
        if matches!(self.sums, Sums::NextToken { .. } | Sums::Reconstruction) {
            return;
        }
        match targets {
            Targets::None => {}
            Targets::Numbers(y) => self.add_numbers(outputs, y),
            Targets::Classes(y) => self.add_classes(outputs, y),
        }
    }

    fn add_numbers(&mut self, outputs: &[f32], y: &[f32]) {
        let Sums::Regression {
            mean,
            offset,
            scale,
            squares,
            absolutes,
            baseline,
            baseline_squares,
            baseline_absolutes,
            errors,
            sample,
        } = &mut self.sums
        else {
            unreachable!("numbers are the targets of a regression");
        };
        for (&output, &y) in outputs.iter().zip(y) {
            let error = (f64::from(output) - f64::from(y)) * *scale;
            *squares += error * error;
            *absolutes += error.abs();
            let difference = f64::from(y) * *scale + *offset - *mean;
            *baseline += difference;
            *baseline_squares += difference * difference;
            *baseline_absolutes += difference.abs();
            *errors += error;
            let target = f64::from(y) * *scale + *offset;
            sample.add([single(target), single(target + error)]);
        }
    }

    fn add_classes(&mut self, outputs: &[f32], y: &[i32]) {
        let Sums::Classification { counts, .. } = &mut self.sums else {
            unreachable!("classes are the targets of a classification");
        };
        counts.add(outputs, y);
    }

    /// Takes note of which rows have the largest losses.
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

    /// Tokens that were predicted, where they are what is predicted.
    pub(crate) fn tokens(&self) -> Option<u64> {
        matches!(self.sums, Sums::NextToken { .. }).then_some(self.rows)
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
            Sums::Regression {
                squares,
                absolutes,
                baseline,
                baseline_squares,
                ..
            } => regression(
                n,
                *squares,
                *absolutes,
                baseline_squares - baseline * baseline / n,
            ),
            Sums::Classification { counts, .. } => counts.metrics(),
            Sums::NextToken { .. } => tokens(self.loss_sum / n),
            Sums::Reconstruction => named([("rmse", (self.loss_sum / n).sqrt())]),
        }
    }

    /// Diagnostics of the model; none where tokens or the features themselves are predicted.
    pub(crate) fn diagnostics(&self) -> Option<Diagnostics> {
        match &self.sums {
            Sums::Regression { errors, sample, .. } => {
                let (mut sample, stride) = sample.values();
                sample.retain(|pair| pair.iter().all(|value| value.is_finite()));
                Some(Diagnostics::Regression(NumberDiagnostics {
                    rows: self.rows,
                    bias: errors / exact(self.rows),
                    sample,
                    stride,
                }))
            }
            Sums::Classification { counts, .. } => {
                Some(Diagnostics::Classification(counts.diagnostics()))
            }
            Sums::NextToken { .. } | Sums::Reconstruction => None,
        }
    }

    /// The same metrics of the baseline.
    #[expect(clippy::cast_precision_loss, reason = "row counts are far below 2^53")]
    pub(crate) fn baseline(&self) -> Metrics {
        let n = self.rows as f64;
        match &self.sums {
            Sums::Regression {
                baseline,
                baseline_squares,
                baseline_absolutes,
                ..
            } => regression(
                n,
                *baseline_squares,
                *baseline_absolutes,
                baseline_squares - baseline * baseline / n,
            ),
            Sums::Classification { counts, .. } => counts.baseline(),
            Sums::NextToken { vocabulary } => tokens((*vocabulary as f64).ln()),
            Sums::Reconstruction => Metrics::new(),
        }
    }
}

impl Sums {
    /// Target and prediction of a row.
    fn values(
        &self,
        outputs: &[f32],
        targets: Targets<'_>,
        row: usize,
    ) -> [Option<TargetValue>; 2] {
        match (self, targets) {
            (Self::Regression { offset, scale, .. }, Targets::Numbers(y)) => {
                let number = |stored: Option<&f32>| {
                    let value = f64::from(*stored?) * scale + offset;
                    value.is_finite().then_some(TargetValue::Number(value))
                };
                [number(y.get(row)), number(outputs.get(row))]
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

/// `total` is the sum of squares about the split's own mean.
fn regression(n: f64, squares: f64, absolutes: f64, total: f64) -> Metrics {
    let mut metrics = named([("rmse", (squares / n).sqrt()), ("mae", absolutes / n)]);
    if total > 0.0 {
        metrics.insert("r2".to_owned(), 1.0 - squares / total);
    }
    metrics
}

fn named<const N: usize>(values: [(&str, f64); N]) -> Metrics {
    values
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
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
    fn a_constant_target_has_no_r2() {
        let mut evaluation = Evaluation::new(&Task::Regression {
            mean: 1.0,
            offset: 1.0,
            scale: 1.0,
        });
        add(&mut evaluation, &[0.5], &[0.25], Targets::Numbers(&[0.0]));
        check(&evaluation.metrics(), &[("rmse", 0.5), ("mae", 0.5)]);
    }
}
