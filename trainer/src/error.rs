//! Errors, by the caller's next step.

use feedline_schemas::{
    Classified, ContractError, ErrorKind,
    count::counted,
    ids::{Epoch, Step},
    manifest::Split,
};

/// Reason that training or evaluation ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A configuration value cannot be used.
    #[error("cannot use `{key}`: {reason}")]
    Config {
        /// Key, such as `train.learning_rate`.
        key: String,
        /// Reason of the refusal, and the allowed values.
        reason: String,
    },
    /// The dataset cannot be trained on.
    #[error("cannot train on dataset `{url}`: {reason}")]
    Dataset {
        /// Dataset folder.
        url: String,
        /// Description of the fault, and advice.
        reason: String,
    },
    /// A fresh start was asked for where a run has been.
    #[error(
        "cannot start a run in `{url}`: it already has checkpoints of this configuration and dataset; resume it \
         (`--resume`), change `train.seed`, or remove the folder"
    )]
    RunExists {
        /// Run folder.
        url: String,
    },
    /// Nothing was trained yet.
    #[error(
        "there is no checkpoint in `{url}`; train that run first (`feedline train PIPELINE.toml` with its configuration and \
         dataset)"
    )]
    NoCheckpoint {
        /// Run folder.
        url: String,
    },
    /// A name is not that of one run.
    #[error("`{name}` names no single run in `{url}`: {reason}")]
    NoRun {
        /// Requested name.
        name: String,
        /// Folder of runs.
        url: String,
        /// Names that exist instead.
        reason: String,
    },
    /// There are runs, and the model of none can be used.
    #[error(
        "no finished run in `{url}` fits dataset `{dataset}`: {reasons}; train on this dataset{otherwise}"
    )]
    NoFittingRun {
        /// Folder of runs.
        url: String,
        /// Dataset folder.
        dataset: String,
        /// The newest runs and why each does not fit.
        reasons: String,
        /// Further advice with its separator, such as to name a run with `--run`.
        otherwise: String,
    },
    /// The model of a run would be wrong on a dataset.
    #[error("the model of run `{run}` cannot be used on dataset `{dataset}`: {reason}")]
    UnfitRun {
        /// Name of the run.
        run: String,
        /// Dataset folder.
        dataset: String,
        /// Reason, and what to do.
        reason: String,
    },
    /// A search has nothing to show.
    #[error(
        "none of the {tried} of the search in `{url}` finished: their losses were not finite; search lower learning rates",
        tried = counted(*trials as u64, "trial")
    )]
    NoTrial {
        /// The search's folder.
        url: String,
        /// Trials made.
        trials: usize,
    },
    /// A checkpoint cannot be used.
    #[error(
        "cannot use checkpoint `{url}`: {reason}; restore it from a copy, or remove it and resume the run"
    )]
    Damaged {
        /// Checkpoint.
        url: String,
        /// Description of the damage.
        reason: String,
    },
    /// No checkpoint of the run can be used.
    #[error(
        "cannot resume `{url}`: none of its {checkpoints} can be used; restore one from a copy, or remove the folder to \
         train from the start",
        checkpoints = counted(*count as u64, "checkpoint")
    )]
    AllDamaged {
        /// Run folder.
        url: String,
        /// Checkpoints tried.
        count: usize,
        /// Reason that the newest was refused.
        source: Box<Self>,
    },
    /// A loss or a gradient of a step is NaN or infinite. The weights are those of before the step.
    #[error(
        "stopped at step `{step}` of epoch `{number}`: the {what} on the train split is `{value}`; samples of that \
         batch have keys {keys}; the weights were not changed: look at these samples, or lower `train.learning_rate`",
        number = .epoch.next()
    )]
    NotFinite {
        /// The step, from 1, as `metrics.jsonl` counts.
        step: Step,
        /// Epoch in progress, from 0; the message counts from 1.
        epoch: Epoch,
        /// `loss` or `gradient norm`.
        what: &'static str,
        /// The value.
        value: f64,
        /// Keys of a few samples as hexadecimal text: those whose own loss is not finite, or else the first ones.
        keys: String,
    },
    /// A loss on a split that is measured is NaN or infinite.
    #[error(
        "the loss on the {split} split is `{value}`, measured after step `{step}`; samples of that batch have keys {keys}; \
         `train.guard.not_finite` holds for training batches only: correct or remove these samples and build the dataset \
         again (a target may be too large for a loss in f32); where they are right, lower `train.learning_rate`"
    )]
    LossNotFinite {
        /// Steps that made the weights, with those that were left out.
        step: Step,
        /// Split the batch is of.
        split: Split,
        /// The value.
        value: f64,
        /// Keys of a few samples as hexadecimal text: those whose own loss is not finite, or else the first ones.
        keys: String,
    },
    /// No step of a training in f16 has moved the weights.
    #[error(
        "no step has moved the weights, which are those of the start: the gradient overflowed f16 in {dropped} of {steps}, \
         so no scale of the loss has worked so far: set `train.loss_scale.initial` much lower than `{scale}`, which it would \
         try next, or `train.precision` to `bf16` or `f32`",
        steps = counted(*steps, "step")
    )]
    NoUpdate {
        /// Steps that were left out, as their gradient overflowed.
        dropped: u64,
        /// Steps, with those that were left out for another reason.
        steps: u64,
        /// Scale of the next step.
        scale: f64,
    },
    /// Batches were skipped, and none has moved the weights.
    #[error(
        "no step has moved the weights, which are those of the start: {skipped} skipped in {steps}, since their loss or gradient \
         is not finite (`train.guard.not_finite`); look at the samples that `metrics.jsonl` names, or lower \
         `train.learning_rate`",
        skipped = counted(*skipped, "batch"),
        steps = counted(*steps, "step")
    )]
    OnlySkipped {
        /// Batches that were skipped.
        skipped: u64,
        /// Steps, one per batch.
        steps: u64,
    },
    /// Too many batches were left out.
    #[error(
        "stopped: more than {batches} of {steps} were skipped; look at the samples that `metrics.jsonl` names, lower \
         `train.learning_rate`, or raise `train.guard.max_skipped` and resume",
        batches = counted((*max_skipped).into(), "batch"),
        steps = counted(*window_steps, "step")
    )]
    TooManySkipped {
        /// Most that may be left out.
        max_skipped: u32,
        /// In so many steps.
        window_steps: u64,
        /// The last one.
        source: Box<Self>,
    },
    /// The loss diverged again and again.
    #[error(
        "stopped at step `{step}` of epoch `{number}`: the loss is `{loss}`, the mean before it rose was `{mean}`, and the \
         weights were rolled back {times} already; lower `train.learning_rate`, clip more \
         (`train.clip_norm`), or raise `train.guard.max_rollbacks` and resume",
        number = .epoch.next(),
        times = counted(*rollbacks as u64, "time")
    )]
    Diverged {
        /// The step, from 1, as `metrics.jsonl` counts.
        step: Step,
        /// Epoch in progress, from 0; the message counts from 1.
        epoch: Epoch,
        /// The loss.
        loss: f64,
        /// Mean of the losses before it rose.
        mean: f64,
        /// Times that the weights went back before.
        rollbacks: usize,
    },
    /// The stop flag was set; everything up to the last step is saved.
    #[error("training was interrupted; resume from `{checkpoint}`")]
    Interrupted {
        /// Checkpoint to resume from.
        checkpoint: String,
    },
    /// The stop flag was set, and the folder of the run was too slow to save everything.
    #[error(
        "training was interrupted after step `{step}`, and its checkpoint could not be written in time; {advice}",
        advice = resume_or_restart(.kept.as_ref())
    )]
    InterruptedUnsaved {
        /// Steps taken.
        step: Step,
        /// Checkpoint that exists to resume from, if any does.
        kept: Option<KeptCheckpoint>,
        /// Error of the write.
        source: Box<Self>,
    },
    /// The stop flag was set while the ranks waited for each other.
    #[error(
        "rank `{rank}` was interrupted while it waited for the other ranks at `{address}`: {reason}; it has trained nothing, so \
         start all ranks again with the same command"
    )]
    InterruptedRendezvous {
        /// This rank.
        rank: usize,
        /// Address of the rendezvous.
        address: String,
        /// Missing ranks.
        reason: String,
    },
    /// The run was told to stop, and its folder did not do in time what was left to do.
    #[error(
        "`{url}` was not read or written in {seconds} s; check the folder's storage, then resume the run"
    )]
    TooSlow {
        /// Object that was read or written.
        url: String,
        /// The time it had.
        seconds: u64,
    },
    /// Another process trains the run.
    #[error(
        "`{url}` is in use: another process trains this run; wait for its end or stop it, then resume the run"
    )]
    Busy {
        /// Run folder.
        url: String,
    },
    /// A rank was lost, hangs, or cannot continue.
    #[error(
        "rank `{rank}` failed: {reason}; last known: {ranks}; start the ranks again (`feedline train` with `--resume`, `feedline run` as before): they \
         continue from the newest checkpoint"
    )]
    Rank {
        /// The rank at fault.
        rank: usize,
        /// Description of the failure.
        reason: String,
        /// Last known step of each rank.
        ranks: String,
    },
    /// Ranks have not written their share of a checkpoint.
    #[error(
        "the optimizer's state of rank(s) {ranks} is not in `{url}` after {seconds} s; all ranks \
         must write to the same folder, within half of `train.parallel.timeout_s`"
    )]
    StateMissing {
        /// Expected location.
        url: String,
        /// The ranks.
        ranks: String,
        /// Waiting time in seconds.
        seconds: u64,
    },
    /// The ranks did not come together.
    #[error("rank `{rank}` cannot join the other ranks at `{address}`: {reason}")]
    Rendezvous {
        /// This rank.
        rank: usize,
        /// Address of the rendezvous.
        address: String,
        /// Missing ranks, or the reason that this rank does not belong.
        reason: String,
    },
    /// Ranks have different weights, which must be equal.
    #[error(
        "the weights of rank(s) {ranks} differ from those of the others after step `{step}`; the checkpoints are from \
         before that: look at the memory and the programs of these machines, then resume (`feedline train` with `--resume`, or \
         `feedline run` again)"
    )]
    WeightsDiffer {
        /// Steps taken.
        step: Step,
        /// The ranks that are not of the majority; all where there is none.
        ranks: String,
    },
    /// The device that computes failed.
    #[error(
        "the device failed: {reason}; look at its driver's log, then resume (`feedline train` with `--resume`, or `feedline run` \
         again), or set `train.device` to `cpu`"
    )]
    Device {
        /// Report of its driver.
        reason: String,
    },
    /// The runtime for I/O could not be started.
    #[error(
        "cannot start the I/O runtime; the machine may be out of threads or file handles: raise these limits"
    )]
    Runtime(#[source] std::io::Error),
    /// A file of the run or of the dataset could not be read or written.
    #[error(transparent)]
    Storage(#[from] feedline_storage::Error),
    /// A batch could not be loaded.
    #[error(transparent)]
    Loader(#[from] feedline_loader::Error),
    /// A document of the dataset could not be read.
    #[error(transparent)]
    Contract(#[from] ContractError),
}

/// Checkpoint that an interrupted training can be resumed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCheckpoint {
    /// Its file.
    pub url: String,
    /// Steps taken before it.
    pub step: Step,
}

/// Way to continue an interrupted training, at the end of a message.
fn resume_or_restart(kept: Option<&KeptCheckpoint>) -> String {
    match kept {
        Some(KeptCheckpoint { url, step }) => {
            format!("resume from `{url}`, which is after step `{step}`")
        }
        None => "none was written before, so start it again".to_owned(),
    }
}

impl Classified for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Config { .. } | Self::RunExists { .. } | Self::NoRun { .. } => ErrorKind::Config,
            Self::Dataset { .. }
            | Self::NoCheckpoint { .. }
            | Self::NoFittingRun { .. }
            | Self::UnfitRun { .. }
            | Self::NoTrial { .. }
            | Self::Damaged { .. }
            | Self::AllDamaged { .. }
            | Self::NotFinite { .. }
            | Self::LossNotFinite { .. }
            | Self::NoUpdate { .. }
            | Self::OnlySkipped { .. }
            | Self::TooManySkipped { .. }
            | Self::Diverged { .. } => ErrorKind::Data,
            Self::Interrupted { .. }
            | Self::InterruptedUnsaved { .. }
            | Self::InterruptedRendezvous { .. } => ErrorKind::Cancelled,
            Self::TooSlow { .. }
            | Self::Busy { .. }
            | Self::Rank { .. }
            | Self::Rendezvous { .. }
            | Self::StateMissing { .. }
            | Self::WeightsDiffer { .. }
            | Self::Device { .. }
            | Self::Runtime(_) => ErrorKind::Retry,
            Self::Storage(error) => error.kind(),
            Self::Loader(error) => error.kind(),
            Self::Contract(error) => error.kind(),
        }
    }
}

impl Error {
    /// Returns whether a new start of the ranks from the newest checkpoint may help: after a fault of a machine, a network, a
    /// store or the program, not of the configuration, the data or the training's own numbers, nor after a stop. A folder that
    /// another process trains in stays in use, however often the ranks are started.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        if matches!(self, Self::Busy { .. }) {
            return false;
        }
        let outside = matches!(self.kind(), ErrorKind::Retry | ErrorKind::Bug);
        outside || matches!(self, Self::Storage(_))
    }
}

/// A configuration error.
pub(crate) fn config(key: &str, reason: impl Into<String>) -> Error {
    Error::Config {
        key: format!("train.{key}"),
        reason: reason.into(),
    }
}

#[cfg(test)]
mod snapshots;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_not_started_again_for_a_folder_in_use() {
        let url = || "file:///runs/a".to_owned();
        assert!(!Error::Busy { url: url() }.may_pass());
        let slow = Error::TooSlow {
            url: url(),
            seconds: 10,
        };
        assert!(slow.may_pass());
    }

    #[test]
    fn an_interrupted_training_without_any_checkpoint_is_started_again() {
        let error = Error::InterruptedUnsaved {
            step: Step::new(7),
            kept: None,
            source: Box::new(Error::Busy { url: String::new() }),
        };
        let end = "in time; none was written before, so start it again";
        assert!(error.to_string().ends_with(end), "{error}");
    }

    #[test]
    fn one_of_something_is_not_named_as_several() {
        let url = || "file:///runs".to_owned();
        let none = Error::NoTrial {
            url: url(),
            trials: 1,
        };
        let skipped = Error::TooManySkipped {
            max_skipped: 1,
            window_steps: 100,
            source: Box::new(Error::NoTrial {
                url: url(),
                trials: 2,
            }),
        };
        let damaged = Error::AllDamaged {
            url: url(),
            count: 1,
            source: Box::new(Error::NoTrial {
                url: url(),
                trials: 2,
            }),
        };
        for (error, part) in [
            (none, "none of the 1 trial of the search"),
            (skipped, "more than 1 batch of 100 steps were skipped"),
            (damaged, "none of its 1 checkpoint can be used"),
        ] {
            let text = error.to_string();
            assert!(text.contains(part), "{text}");
        }
    }
}
