//! A word on under- and overfitting, from the curves.
//!
//! The rules look at the loss of each epoch, on the training split while the weights moved and on the validation split
//! after it. *Last third*: the last third of the epochs, at least three. *Trend*: the change of the least-squares line
//! over the last third, as a share of the mean loss there. *Gap*: how far the validation loss lies above the training
//! loss, as a share of the training loss. The first rule that holds speaks.

use super::curves::{Curves, EpochPoint};
use crate::{metrics::Metrics, number::exact_len};

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

/// What the curves say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// In a word or two.
    pub(crate) word: &'static str,
    /// Why, with the figures, and what to try.
    pub(crate) why: String,
}

/// The figures that the rules look at.
struct Figures {
    epochs: usize,
    /// Epoch of the best validation loss, from 0.
    best: usize,
    /// The last validation loss above the best, as a share of the best.
    rise: f64,
    /// Change of the training loss from the best epoch to the last, as a share.
    train_since_best: f64,
    train_trend: f64,
    validation_trend: f64,
    /// At the best epoch.
    gap: f64,
    /// Epochs in the last third.
    third: usize,
}

/// Judges a run by its curves, and by its metrics on the test split beside the baseline's, where there are.
pub(crate) fn verdict(curves: &Curves, test: &Metrics, baseline: &Metrics) -> Verdict {
    let Some(figures) = Figures::of(&curves.epochs) else {
        let why = format!(
            "{} epochs were measured; three are needed to see a trend.",
            curves.epochs.len()
        );
        return Verdict {
            word: "too early to say",
            why,
        };
    };
    hardly_better(test, baseline).unwrap_or_else(|| figures.verdict())
}

/// Errors that are hardly below those of a baseline that looks at no feature.
fn hardly_better(test: &Metrics, baseline: &Metrics) -> Option<Verdict> {
    let name = ["rmse", "cross_entropy"]
        .into_iter()
        .find(|name| test.contains_key(*name))?;
    let (found, base) = (test[name], *baseline.get(name)?);
    (found > HARDLY * base).then(|| Verdict {
        word: "underfitting",
        why: format!(
            "{name} on the test split is {found:.4}, hardly better than {base:.4} of a baseline that looks at no feature. \
             Try a larger model, a higher learning rate, or better features."
        ),
    })
}

impl Figures {
    fn of(epochs: &[EpochPoint]) -> Option<Self> {
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
            best,
            rise: change(lowest.validation_loss, last.validation_loss),
            train_since_best: change(lowest.train_loss, last.train_loss),
            train_trend: trend(tail.iter().map(|p| p.train_loss)),
            validation_trend: trend(tail.iter().map(|p| p.validation_loss)),
            gap: change(lowest.train_loss, lowest.validation_loss),
            third,
        })
    }

    fn verdict(&self) -> Verdict {
        let Self {
            epochs,
            best,
            third,
            ..
        } = self;
        let gap = percent(self.gap);
        if self.rise > RISE && self.train_since_best < -TREND {
            return Verdict {
                word: "overfitting",
                why: format!(
                    "since epoch {best} of {epochs} the validation loss rose by {} while the training loss fell by {}; the \
                     weights of epoch {best} were kept. Try more data, dropout or weight decay, or a smaller model.",
                    percent(self.rise),
                    percent(-self.train_since_best),
                ),
            };
        }
        if self.validation_trend < -TREND && best + third >= *epochs {
            return Verdict {
                word: "still learning",
                why: format!(
                    "over the last {third} of {epochs} epochs the validation loss fell by {} and the training loss by {}, and \
                     the best epoch ({best}) is among them. More epochs, or a higher learning rate, should help.",
                    percent(-self.validation_trend),
                    percent(-self.train_trend),
                ),
            };
        }
        if self.gap > WIDE {
            return Verdict {
                word: "mild overfitting",
                why: format!(
                    "the validation loss levelled off (changing by {} over the last {third} of {epochs} epochs) {gap} above the \
                     training loss at the best epoch ({best}). More data, dropout or weight decay may close the gap.",
                    percent(self.validation_trend),
                ),
            };
        }
        Verdict {
            word: "a good fit",
            why: format!(
                "over the last {third} of {epochs} epochs the validation loss changed by {}, and at the best epoch ({best}) it is \
                 {gap} from the training loss. A larger model may still do better.",
                percent(self.validation_trend),
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
    use super::*;

    /// Epochs with these losses of the training and the validation split.
    fn check(losses: impl Fn(f64) -> (f64, f64), word: &str, figure: &str) {
        let point = |epoch: u32| {
            let (train_loss, validation_loss) = losses(f64::from(epoch));
            EpochPoint {
                step: u64::from(epoch) * 10,
                epoch: epoch.into(),
                train_loss,
                validation_loss,
            }
        };
        let curves = Curves {
            epochs: (0..30).map(point).collect(),
            ..Curves::default()
        };
        let found = verdict(&curves, &Metrics::new(), &Metrics::new());
        assert_eq!(found.word, word, "{found:?}");
        assert!(found.why.contains(figure), "{found:?}");
    }

    #[test]
    fn each_shape_of_curves_has_its_word() {
        let falling = |e: f64| 1.0 / (1.0 + e);
        check(
            |e| (falling(e), 0.5 + (e - 8.0).abs() / 40.0),
            "overfitting",
            "since epoch 8 of 30",
        );
        check(
            |e| (1.0 - e / 40.0, 1.1 - e / 40.0),
            "still learning",
            "the best epoch (29)",
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

    #[test]
    fn two_epochs_are_too_few_and_a_model_no_better_than_its_baseline_underfits() {
        let point = EpochPoint {
            step: 1,
            epoch: 0,
            train_loss: 1.0,
            validation_loss: 1.0,
        };
        let curves = |n| Curves {
            epochs: vec![point; n],
            ..Curves::default()
        };
        let metrics = |value| Metrics::from([("rmse".to_owned(), value)]);
        assert_eq!(
            verdict(&curves(2), &metrics(1.0), &metrics(1.0)).word,
            "too early to say"
        );
        assert_eq!(
            verdict(&curves(9), &metrics(0.99), &metrics(1.0)).word,
            "underfitting"
        );
        assert_eq!(
            verdict(&curves(9), &metrics(0.5), &metrics(1.0)).word,
            "a good fit"
        );
    }

    #[test]
    fn the_trend_is_that_of_the_least_squares_line() {
        assert!((trend([1.0, 2.0, 3.0].into_iter()) - 1.0).abs() < 1e-12);
        // numpy.polyfit([0, 1, 2, 3], [4, 1, 3, 2], 1)[0] is -0.4.
        assert!((trend([4.0, 1.0, 3.0, 2.0].into_iter()) + 0.4 * 3.0 / 2.5).abs() < 1e-12);
    }
}
