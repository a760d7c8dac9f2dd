//! A word on under- and overfitting, from the curves.
//!
//! The rules look at the loss of each epoch, on the training split while the weights moved and on the validation split
//! after it, both without label smoothing. The test split has no part in them: advice that follows it would fit it.
//! *Last third*: the last third of the epochs, at least three. *Trend*: the change of the
//! least-squares line over the last third, as a share of the mean loss there. *Gap*: the excess of
//! the validation loss over the training loss, as a share of the training loss. *Spike*: a mean of
//! five logged training losses in a row that rose above the first such mean, to three times the
//! lowest before it, of at least 20 logged ones; of a model that is hardly better than its baseline
//! also one loss far above its validation loss. The first rule that holds gives the verdict.

use feedline_schemas::{checkpoint::BestEpoch, config::TrainConfig, count::counted};

use super::curves::{Curves, EpochPoint};
use crate::{
    evaluation::{
        baseline::{self, is_higher_better},
        metrics::metric,
    },
    float_casts::exact_len,
};

/// Epochs below which nothing is said.
const EPOCHS_MIN: usize = 3;

/// A trend above this is a change.
const TREND: f64 = 0.01;

/// A validation loss this far above the best has risen.
const RISE: f64 = 0.02;

/// A gap above this is wide.
const WIDE: f64 = 0.25;

/// A metric of errors this close to the baseline's is hardly better.
const HARDLY: f64 = 0.95;

/// One this many times the baseline's is worse.
const WORSE: f64 = 1.05;

/// A mean of training losses this many times the lowest before it, or a training loss this many times the validation loss of a
/// model that has learnt nothing, is a spike.
const SPIKE: f64 = 3.0;

/// The same for the first one that is known: an untrained model may be somewhat worse than one that has learnt nothing.
const FIRST_SPIKE: f64 = 10.0;

/// Logged training losses in a row whose mean is compared, so that the noise of single batches is no spike.
const WINDOW: usize = 5;

/// Logged training losses below which no spike is looked for.
const STEPS_MIN: usize = 20;

/// Verdict on the curves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CurveVerdict {
    /// In a word or two.
    pub(crate) word: &'static str,
    /// Reason, with the figures, and advice.
    pub(crate) why: String,
}

/// The figures that the rules look at.
struct Figures {
    epochs: usize,
    /// Number of the epoch of the best validation loss, from 1.
    best: usize,
    /// The last validation loss above the best, as a share of the best.
    rise: f64,
    /// Change of the training loss from the best epoch to the last, as a share.
    train_since_best: f64,
    validation_trend: f64,
    /// At the best epoch.
    gap: f64,
    /// Epochs in the last third.
    third: usize,
    /// Training and validation loss where the last third begins, and at its end.
    course: [[f64; 2]; 2],
    /// True when training and validation loss are of other rows or targets, so that the gap says
    /// nothing.
    is_unlike: bool,
    /// Lowest validation loss.
    lowest: f64,
    /// The highest mean of some training losses in a row, where it rose far above where it began.
    spike: Option<f64>,
    dropout: f64,
}

/// The curve of training losses, with what makes them unlike validation losses.
pub(super) fn training_label(config: &TrainConfig) -> String {
    let smooths = config.loss.label_smoothing.is_some_and(|share| share > 0.0);
    let with = match (smooths, config.model.dropout > 0.0) {
        (false, false) => return "training, per epoch".to_owned(),
        (true, false) => "smoothing",
        (false, true) => "dropout",
        (true, true) => "smoothing, dropout",
    };
    format!("training, per epoch, with {with}")
}

/// Judges a run by its curves, and by its best validation metrics beside the baseline's, where they are known.
pub(crate) fn verdict(
    curves: &Curves,
    best: Option<&BestEpoch>,
    config: &TrainConfig,
) -> CurveVerdict {
    let mut epochs = curves.epochs.iter();
    if epochs.any(|epoch| epoch.comparable_train_loss().is_nan()) {
        let why = "all batches of an epoch were skipped (`train.guard.not_finite`), so it has no training loss.";
        return CurveVerdict {
            word: "unknown",
            why: why.to_owned(),
        };
    }
    let Some(figures) = Figures::of(curves, config) else {
        let why = format!(
            "{} measured; three are needed to see a trend.",
            counted(curves.epochs.len() as u64, "epoch")
        );
        return CurveVerdict {
            word: "too early to say",
            why,
        };
    };
    let behind = best.and_then(|best| figures.hardly_better(curves, best, config));
    behind.unwrap_or_else(|| figures.verdict())
}

/// The highest mean of [`WINDOW`] training losses in a row of a run whose training loss rose far above where it began.
fn spike(curves: &Curves) -> Option<f64> {
    if curves.steps.len() < STEPS_MIN {
        return None;
    }
    let windows = curves.steps.windows(WINDOW);
    let mut means = windows.map(|window| {
        let sum: f64 = window.iter().map(|point| point.loss).sum();
        sum / exact_len(window.len())
    });
    let (untrained, first) = (curves.steps.first()?.loss, means.next()?);
    // The first mean of a run that diverged at once is no beginning.
    let rose_at_once = first > FIRST_SPIKE * untrained;
    let first = if rose_at_once { untrained } else { first };
    let mut lowest = first;
    let mut highest: Option<f64> = None;
    for mean in means {
        if mean > first.max(SPIKE * lowest) {
            highest = Some(highest.map_or(mean, |highest| highest.max(mean)));
        }
        lowest = lowest.min(mean);
    }
    highest
}

/// The highest loss of a run that is hardly better than its baseline, where it was far above the validation loss, which is
/// then about that of a model that has learnt nothing.
fn excess(curves: &Curves, usual: f64) -> Option<f64> {
    let steps = curves.steps.iter().map(|p| p.loss);
    let epochs = curves.epochs.iter().map(EpochPoint::comparable_train_loss);
    let is_far = |(at, loss): &(usize, f64)| {
        let factor = if *at == 0 { FIRST_SPIKE } else { SPIKE };
        *loss > factor * usual
    };
    let far = steps.enumerate().filter(is_far);
    let far = far.chain(epochs.enumerate().filter(is_far));
    far.map(|(_, loss)| loss).max_by(f64::total_cmp)
}

impl Figures {
    fn of(curves: &Curves, config: &TrainConfig) -> Option<Self> {
        let epochs = &curves.epochs;
        if epochs.len() < EPOCHS_MIN {
            return None;
        }
        let third = (epochs.len() / 3).max(EPOCHS_MIN);
        let tail = &epochs[epochs.len() - third..];
        let (best, lowest) = epochs
            .iter()
            .enumerate()
            .min_by(|a, b| a.1.validation_loss.total_cmp(&b.1.validation_loss))?;
        let last = epochs.last()?;
        Some(Self {
            epochs: epochs.len(),
            best: best + 1,
            rise: change(lowest.validation_loss, last.validation_loss),
            train_since_best: change(lowest.comparable_train_loss(), last.comparable_train_loss()),
            validation_trend: trend(tail.iter().map(|p| p.validation_loss)),
            gap: change(lowest.comparable_train_loss(), lowest.validation_loss),
            third,
            course: [tail.first()?, last].map(|p| [p.comparable_train_loss(), p.validation_loss]),
            is_unlike: config.images.mix.is_some() || config.loader.balance.is_some(),
            lowest: lowest.validation_loss,
            spike: spike(curves),
            dropout: config.model.dropout,
        })
    }

    /// Errors on the validation split that are hardly below those of a baseline that looks at no feature.
    fn hardly_better(
        &self,
        curves: &Curves,
        best: &BestEpoch,
        config: &TrainConfig,
    ) -> Option<CurveVerdict> {
        let main = baseline::compared(&config.loss).iter();
        let name = main
            .copied()
            .find(|name| best.metrics.contains_key(*name))
            .filter(|name| !is_higher_better(name))?;
        let (found, base) = (best.metrics[name], *best.baseline.get(name)?);
        if found <= HARDLY * base {
            return None;
        }
        let spike = self.spike.or_else(|| excess(curves, self.lowest));
        let try_out = match (spike, baseline::cause_in_balance(config)) {
            (Some(spike), _) => format!(
                "The training loss rose to {}: try a lower learning rate or a longer warm-up.",
                metric(spike)
            ),
            (None, Some(cause)) => format!("{cause}."),
            (None, None) if found > WORSE * base => {
                "Try a lower learning rate, a smaller model, or more data.".to_owned()
            }
            (None, None) => {
                "Try a larger model, a higher learning rate, or better features.".to_owned()
            }
        };
        let (word, how) = if found > WORSE * base {
            (
                "worse than the baseline",
                format!("{:.1} times the", found / base),
            )
        } else {
            ("underfitting", "hardly better than the".to_owned())
        };
        Some(CurveVerdict {
            word,
            why: format!(
                "{name} on the validation split is {}, {how} {} of a baseline that looks at no feature. {try_out}",
                metric(found),
                metric(base)
            ),
        })
    }

    /// Says that dropout raises the training loss, where a rule looked at the gap.
    fn beside_dropout(&self) -> String {
        match self.dropout > 0.0 {
            true => format!(
                " The training loss is measured with dropout {}, so the gap is wider than it looks.",
                self.dropout
            ),
            false => String::new(),
        }
    }

    fn verdict(&self) -> CurveVerdict {
        let Self {
            epochs,
            best,
            third,
            ..
        } = self;
        let gap = percent(self.gap);
        if self.rise > RISE && self.train_since_best < -TREND {
            return CurveVerdict {
                word: "overfitting",
                why: format!(
                    "since epoch {best} of {epochs} the validation loss rose by {} while the training loss fell by {}; the \
                     weights of epoch {best} were kept. Try more data, dropout or weight decay, or a smaller model.",
                    percent(self.rise),
                    percent(-self.train_since_best),
                ),
            };
        }
        if self.validation_trend < -TREND && best + third > *epochs {
            let try_out = match self.spike {
                Some(spike) => format!(
                    "More epochs should help. The training loss rose to {} on the way: a lower learning rate or a longer \
                     warm-up may reach the same sooner.",
                    metric(spike)
                ),
                None => "More epochs, or a higher learning rate, should help.".to_owned(),
            };
            return CurveVerdict {
                word: "still learning",
                why: format!(
                    "over the last {third} of {epochs} epochs the validation loss went from {} to {} and the training loss from {} \
                     to {}, and the best epoch ({best}) is among them. {try_out}",
                    metric(self.course[0][1]),
                    metric(self.course[1][1]),
                    metric(self.course[0][0]),
                    metric(self.course[1][0]),
                ),
            };
        }
        if self.is_unlike {
            return CurveVerdict {
                word: "levelled off",
                why: format!(
                    "over the last {third} of {epochs} epochs the validation loss changed by {}. The training loss is of mixed \
                     images or of balanced classes, so the two losses say nothing about overfitting.",
                    percent(self.validation_trend),
                ),
            };
        }
        if self.gap > WIDE {
            return CurveVerdict {
                word: "mild overfitting",
                why: format!(
                    "the validation loss levelled off (changing by {} over the last {third} of {epochs} epochs) {gap} above the \
                     training loss at the best epoch ({best}). More data, dropout or weight decay may close the gap.{}",
                    percent(self.validation_trend),
                    self.beside_dropout(),
                ),
            };
        }
        CurveVerdict {
            word: "a good fit",
            why: format!(
                "over the last {third} of {epochs} epochs the validation loss changed by {}, and at the best epoch ({best}) it is \
                 {gap} from the training loss. A larger model may still do better.{}",
                percent(self.validation_trend),
                self.beside_dropout(),
            ),
        }
    }
}

/// From one loss to another, as a share of the first.
fn change(from: f64, to: f64) -> f64 {
    (to - from) / from.abs().max(f64::MIN_POSITIVE)
}

/// Change of the least-squares line from the first value to the last, as a share of the mean.
fn trend(values: impl ExactSizeIterator<Item = f64> + Clone) -> f64 {
    let n = exact_len(values.len());
    let mean = values.clone().sum::<f64>() / n;
    let middle = (n - 1.0) / 2.0;
    let (mut products, mut squares) = (0.0, 0.0);
    for (i, value) in values.enumerate() {
        let x = exact_len(i) - middle;
        products += x * (value - mean);
        squares += x * x;
    }
    (products / squares) * (n - 1.0) / mean.abs().max(f64::MIN_POSITIVE)
}

fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value.abs() < 1000.0 {
        format!("{value:.1} %")
    } else {
        format!("{:.0}-fold", share)
    }
}

#[cfg(test)]
mod tests {
    use super::super::curves::StepPoint;
    use super::*;

    use feedline_schemas::{
        config::{BalanceRule, ClassBalanceConfig, LossKind},
        ids::{Epoch, Step},
    };

    fn point(epoch: u32, train_loss: f64, validation_loss: f64) -> EpochPoint {
        EpochPoint {
            step: u64::from(epoch) * 10,
            epoch: epoch.into(),
            train_loss,
            unsmoothed_train_loss: None,
            validation_loss,
        }
    }

    fn step(step: u64, loss: f64) -> StepPoint {
        StepPoint {
            step,
            loss,
            gradient_norm: 1.0,
            learning_rate: 1.0,
            samples_per_s: 1.0,
            data_wait_share: 0.0,
            slowest_ratio: None,
            flops_share: None,
            gpu_utilization_percent: None,
            gpu_power_w: None,
        }
    }

    fn best(metrics: &[(&str, f64)], baseline: &[(&str, f64)]) -> BestEpoch {
        let named = |values: &[(&str, f64)]| {
            let named = values
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value));
            named.collect()
        };
        BestEpoch {
            epoch: Epoch::new(0),
            step: Step::new(1),
            loss: 1.0,
            metrics: named(metrics),
            baseline: named(baseline),
            diagnostics: None,
            worst: Vec::new(),
        }
    }

    fn judged(curves: &Curves, best: Option<&BestEpoch>) -> CurveVerdict {
        verdict(curves, best, &TrainConfig::default())
    }

    /// Epochs with these losses of the training and the validation split.
    fn check(losses: impl Fn(f64) -> (f64, f64), word: &str, figure: &str) {
        let of = |epoch: u32| {
            let (train_loss, validation_loss) = losses(f64::from(epoch));
            point(epoch, train_loss, validation_loss)
        };
        let curves = Curves {
            epochs: (0..30).map(of).collect(),
            ..Curves::default()
        };
        let found = judged(&curves, None);
        assert_eq!(found.word, word, "{found:?}");
        assert!(found.why.contains(figure), "{found:?}");
    }

    #[test]
    fn each_shape_of_curves_has_its_word() {
        let falling = |e: f64| 1.0 / (1.0 + e);
        check(
            |e| (falling(e), 0.5 + (e - 8.0).abs() / 40.0),
            "overfitting",
            "since epoch 9 of 30",
        );
        check(
            |e| (1.0 - e / 40.0, 1.1 - e / 40.0),
            "still learning",
            "the best epoch (30)",
        );
        check(
            |e| (0.2 + falling(e), 0.5 + falling(e).powi(2)),
            "mild overfitting",
            "above the",
        );
        check(
            |e| (0.5 + falling(e).powi(2), 0.51 + falling(e).powi(2)),
            "a good fit",
            "over the last 10 of 30",
        );
    }

    fn flat(epochs: u32) -> Curves {
        Curves {
            epochs: (0..epochs).map(|epoch| point(epoch, 1.0, 1.0)).collect(),
            ..Curves::default()
        }
    }

    #[test]
    fn an_epoch_whose_batches_were_all_skipped_leaves_no_verdict() {
        let mut curves = flat(9);
        curves.epochs[4].train_loss = f64::NAN;
        let found = judged(&curves, None);
        assert_eq!(found.word, "unknown");
        assert!(found.why.contains("`train.guard.not_finite`"));
    }

    #[test]
    fn two_epochs_are_too_few_and_a_model_no_better_than_its_baseline_underfits() {
        let word = |epochs, found| {
            let best = best(&[("rmse", found)], &[("rmse", 1.0)]);
            judged(&flat(epochs), Some(&best)).word
        };
        assert_eq!(word(2, 1.0), "too early to say");
        assert_eq!(word(9, 0.99), "underfitting");
        assert_eq!(word(9, 0.5), "a good fit");
    }

    #[test]
    fn a_model_several_times_worse_than_its_baseline_is_called_worse() {
        // trial-tables S9: a panel of 34 entities.
        let panel = best(&[("rmse", 838_432.0)], &[("rmse", 243_204.0)]);
        let found = judged(&flat(9), Some(&panel));
        assert_eq!(found.word, "worse than the baseline");
        assert!(found.why.contains("3.4 times the 243204"), "{found:?}");
        assert!(
            !found.why.contains("hardly") && !found.why.contains("test"),
            "{found:?}"
        );
    }

    #[test]
    fn a_balanced_loader_is_named_as_the_cause_of_probabilities_worse_than_the_baseline() {
        let mut config = TrainConfig::default();
        config.loss.r#type = Some(LossKind::CrossEntropy);
        config.loader.balance = Some(ClassBalanceConfig::Rule(BalanceRule::Equal));
        let best = best(&[("cross_entropy", 0.6)], &[("cross_entropy", 0.34)]);
        let found = verdict(&flat(9), Some(&best), &config);
        assert_eq!(found.word, "worse than the baseline");
        assert!(
            found.why.contains("`train.loader.balance` changes") && !found.why.contains("rate"),
            "{found:?}"
        );
        config.loader.balance = None;
        let found = verdict(&flat(9), Some(&best), &config);
        assert!(found.why.contains("a lower learning rate"), "{found:?}");
    }

    #[test]
    fn a_run_that_spiked_is_not_told_to_raise_its_rate() {
        // trial-training S10: learning rate 1, a loss of 182 beside a mean of 1.0, then as good as the mean.
        let mut curves = flat(9);
        curves.steps = vec![step(50, 182.0), step(100, 1.2), step(150, 1.0)];
        let mean = best(&[("rmse", 0.99)], &[("rmse", 1.0)]);
        let found = judged(&curves, Some(&mean));
        assert_eq!(found.word, "underfitting");
        assert!(found.why.contains("rose to 182"), "{found:?}");
        assert!(found.why.contains("a lower learning rate"), "{found:?}");
        assert!(!found.why.contains("higher"), "{found:?}");
        // A model that begins somewhat above the baseline did not spike.
        curves.steps = vec![step(50, 2.5), step(100, 1.2), step(150, 1.0)];
        let found = judged(&curves, Some(&mean));
        assert!(found.why.contains("a higher learning rate"), "{found:?}");

        // Nor is one that still learns after a spike.
        let found = judged(
            &still_learning(|number| match number {
                0..5 => 2.0,
                12..17 => 9.0,
                _ => 1.0,
            }),
            None,
        );
        assert_eq!(found.word, "still learning");
        assert!(
            found.why.contains("rose to 9") && !found.why.contains("higher"),
            "{found:?}"
        );
        let falling = judged(
            &still_learning(|number| if number < 5 { 2.0 } else { 1.0 }),
            None,
        );
        assert!(
            falling.why.contains("a higher learning rate"),
            "{falling:?}"
        );
    }

    /// A run that still learns, with these losses at 24 logged steps.
    fn still_learning(loss: impl Fn(u64) -> f64) -> Curves {
        let falling = |epoch: u32| 1.0 - f64::from(epoch) / 20.0;
        Curves {
            epochs: (0..9)
                .map(|epoch| point(epoch, falling(epoch), falling(epoch)))
                .collect(),
            steps: (0..24).map(|number| step(number, loss(number))).collect(),
        }
    }

    #[test]
    fn noise_of_single_batches_and_of_few_logged_steps_is_no_spike() {
        // The first losses of a run on a table, one logged step each.
        let begin = [1.06, 1.46, 2.10, 2.11, 1.58, 0.74, 2.24];
        let mut curves = still_learning(|number| {
            let place = usize::try_from(number).unwrap();
            begin.get(place).copied().unwrap_or(0.9)
        });
        assert_eq!(spike(&curves), None);
        assert!(judged(&curves, None).why.contains("a higher learning rate"));
        curves = still_learning(|number| if number < 12 { 1.0 } else { 9.0 });
        assert_eq!(spike(&curves), Some(9.0));
        curves.steps.truncate(19);
        assert_eq!(spike(&curves), None);
        // A run that rose at the second step has no mean before that.
        let curves = still_learning(|number| match number {
            0 => 1.0,
            1..10 => 900.0,
            _ => 0.9,
        });
        assert_eq!(spike(&curves), Some(900.0));
    }

    #[test]
    fn losses_are_compared_without_label_smoothing() {
        // Smoothing 0.1 of ten classes puts a floor of about 0.5 under the training loss.
        let overfit = |epoch: u32, unsmoothed| EpochPoint {
            unsmoothed_train_loss: unsmoothed,
            ..point(epoch, 0.55, 0.4)
        };
        let curves = |unsmoothed| Curves {
            epochs: (0..9).map(|epoch| overfit(epoch, unsmoothed)).collect(),
            ..Curves::default()
        };
        assert_eq!(judged(&curves(None), None).word, "a good fit");
        let found = judged(&curves(Some(0.05)), None);
        assert_eq!(found.word, "mild overfitting", "{found:?}");
        assert!(found.why.contains("700.0 % above"), "{found:?}");
    }

    #[test]
    fn dropout_is_said_where_the_gap_is_looked_at() {
        let mut config = TrainConfig::default();
        config.model.dropout = 0.5;
        config.loss.label_smoothing = Some(0.1);
        let found = verdict(&flat(9), None, &config);
        assert!(found.why.contains("with dropout 0.5"), "{found:?}");
        let label = "training, per epoch, with smoothing, dropout";
        assert_eq!(training_label(&config), label);
        assert_eq!(
            training_label(&TrainConfig::default()),
            "training, per epoch"
        );
    }

    #[test]
    fn the_trend_is_that_of_the_least_squares_line() {
        assert!((trend([1.0, 2.0, 3.0].into_iter()) - 1.0).abs() < 1e-12);
        // numpy.polyfit([0, 1, 2, 3], [4, 1, 3, 2], 1)[0] is -0.4.
        assert!((trend([4.0, 1.0, 3.0, 2.0].into_iter()) + 0.4 * 3.0 / 2.5).abs() < 1e-12);
    }
}
