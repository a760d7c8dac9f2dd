//! The curves of a run, as `metrics.jsonl` holds them.

use feedline_report::Points;
use serde::Deserialize;

use crate::float_casts::exact;

/// Numbers of one `step` line.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub(crate) struct StepPoint {
    pub(crate) step: u64,
    pub(crate) loss: f64,
    pub(crate) gradient_norm: f64,
    pub(crate) learning_rate: f64,
    pub(crate) samples_per_s: f64,
    pub(crate) data_wait_share: f64,
    /// Of lines that compare ranks.
    #[serde(default)]
    pub(crate) slowest_ratio: Option<f64>,
    /// Fraction of the device's peak, where that is known.
    #[serde(default)]
    pub(crate) flops_share: Option<f64>,
    /// Of an NVIDIA GPU, as the next.
    #[serde(default)]
    pub(crate) gpu_utilization_percent: Option<f64>,
    #[serde(default)]
    pub(crate) gpu_power_w: Option<f64>,
}

/// Numbers of one `epoch` line.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub(crate) struct EpochPoint {
    pub(crate) step: u64,
    /// From 0, as files count.
    pub(crate) epoch: u64,
    /// NaN where all batches of the epoch were skipped.
    #[serde(default = "unmeasured")]
    pub(crate) train_loss: f64,
    /// The training loss without label smoothing, where there is some.
    #[serde(default)]
    pub(crate) unsmoothed_train_loss: Option<f64>,
    pub(crate) validation_loss: f64,
}

const fn unmeasured() -> f64 {
    f64::NAN
}

impl EpochPoint {
    /// The training loss that compares with the validation loss: both are without label smoothing.
    pub(crate) fn comparable_train_loss(&self) -> f64 {
        self.unsmoothed_train_loss.unwrap_or(self.train_loss)
    }
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum CurveLine {
    Step(StepPoint),
    Epoch(EpochPoint),
    #[serde(other)]
    Other,
}

/// The curves of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Curves {
    pub(crate) steps: Vec<StepPoint>,
    pub(crate) epochs: Vec<EpochPoint>,
}

impl Curves {
    /// Reads lines of metrics; what is no line of numbers is passed over.
    pub(crate) fn read(lines: &str) -> Self {
        let mut curves = Self::default();
        for line in lines.lines() {
            match serde_json::from_str(line) {
                Ok(CurveLine::Step(point)) => curves.steps.push(point),
                Ok(CurveLine::Epoch(point)) => curves.epochs.push(point),
                Ok(CurveLine::Other) | Err(_) => {}
            }
        }
        curves
    }

    /// A number of the steps.
    pub(crate) fn of_steps(&self, value: fn(&StepPoint) -> f64) -> Points {
        self.steps
            .iter()
            .map(|p| (exact(p.step), value(p)))
            .collect()
    }

    /// A number of the steps that have it.
    pub(crate) fn of_some_steps(&self, value: fn(&StepPoint) -> Option<f64>) -> Points {
        let steps = self.steps.iter();
        steps
            .filter_map(|p| Some((exact(p.step), value(p)?)))
            .collect()
    }

    /// A number of the epochs that have it.
    pub(crate) fn of_epochs(&self, value: fn(&EpochPoint) -> f64) -> Points {
        let epochs = self.epochs.iter();
        epochs
            .map(|p| (exact(p.step), value(p)))
            .filter(|(_, value)| value.is_finite())
            .collect()
    }

    /// The training loss of the epochs without label smoothing, where there is some.
    pub(crate) fn unsmoothed(&self) -> Points {
        let epochs = self.epochs.iter();
        epochs
            .filter_map(|p| Some((exact(p.step), p.unsmoothed_train_loss?)))
            .collect()
    }

    /// The epoch with the lowest validation loss; the first of equal ones.
    pub(crate) fn best(&self) -> Option<&EpochPoint> {
        self.epochs
            .iter()
            .min_by(|a, b| a.validation_loss.total_cmp(&b.validation_loss))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_other_kinds_and_torn_ones_are_passed_over() {
        let text = concat!(
            r#"{"kind":"step","step":2,"epoch":0,"loss":0.5,"gradient_norm":1.0,"learning_rate":0.1,"samples_per_s":3.0,"data_wait_share":0.0}"#,
            "\n",
            r#"{"kind":"note","step":2}"#,
            "\n",
            r#"{"kind":"epoch","step":4,"epoch":0,"train_loss":0.5,"validation_loss":0.4,"best":true}"#,
            "\n",
            r#"{"kind":"ep"#,
        );
        let curves = Curves::read(text);
        assert_eq!(curves.of_steps(|p| p.loss), [(2.0, 0.5)]);
        assert_eq!(curves.of_epochs(|p| p.validation_loss), [(4.0, 0.4)]);
        assert_eq!(curves.best().map(|p| p.epoch), Some(0));
    }

    #[test]
    fn an_epoch_whose_batches_were_all_skipped_has_no_training_loss() {
        let text = r#"{"kind":"epoch","step":4,"epoch":0,"validation_loss":0.4,"best":true}"#;
        let curves = Curves::read(text);
        assert!(curves.of_epochs(|p| p.train_loss).is_empty());
        assert_eq!(curves.of_epochs(|p| p.validation_loss), [(4.0, 0.4)]);
    }
}
