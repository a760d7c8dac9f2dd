//! Texts of this crate's errors.

use std::{io, path::Path};

use feedline_schemas::{
    ContractError,
    ids::{Epoch, Step},
    manifest::Split,
};
use feedline_testkit::error_texts::{Texts, variants};

use super::{Error, KeptCheckpoint};

#[test]
fn the_texts_of_all_errors_are_those_of_the_snapshot() {
    let mut texts = Texts::default();
    let variants = variants!(
        Error: Config, Dataset, RunExists, NoCheckpoint, NoRun, NoFittingRun, UnfitRun, NoTrial, Damaged,
        AllDamaged, NotFinite, LossNotFinite, NoUpdate, OnlySkipped, TooManySkipped, Diverged, Interrupted,
        InterruptedUnsaved, InterruptedRendezvous, TooSlow, Busy, Rank, StateMissing,
        Rendezvous, WeightsDiffer, Device, Runtime, Storage, Loader, Contract
    );
    let mut samples = of_runs();
    samples.extend(of_training());
    samples.extend(of_machines());
    texts.add_variants("Error", &variants, &samples);
    texts.check(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")),
        "trainer",
    );
}

fn run() -> String {
    "file:///data/train/0123456789abcdef".to_owned()
}

fn dataset() -> String {
    "file:///data/dataset".to_owned()
}

fn damaged() -> Error {
    Error::Damaged {
        url: format!("{}/checkpoints/step-00000008.safetensors", run()),
        reason: "its header does not match its hash".into(),
    }
}

fn of_runs() -> Vec<Error> {
    vec![
        super::config("epochs", "0 is out of range; give 1 or more"),
        Error::Dataset {
            url: dataset(),
            reason: "it has no target; set `dataset.target`".into(),
        },
        Error::RunExists { url: run() },
        Error::NoCheckpoint { url: run() },
        Error::NoRun {
            name: "01".into(),
            url: "file:///data/train".into(),
            reason: "2 runs begin with it; give more of the name".into(),
        },
        Error::NoFittingRun {
            url: "file:///data/train".into(),
            dataset: dataset(),
            reasons: "`0123456789abcdef` has 5 features and the dataset 6".into(),
            otherwise: ", or name a run with `--run`".into(),
        },
        Error::UnfitRun {
            run: "0123456789abcdef".into(),
            dataset: dataset(),
            reason: "it has 5 features and the dataset 6; train again".into(),
        },
        Error::NoTrial {
            url: "file:///data/train/search".into(),
            trials: 20,
        },
        damaged(),
        Error::AllDamaged {
            url: run(),
            count: 3,
            source: Box::new(damaged()),
        },
        Error::Busy { url: run() },
        Error::Contract(ContractError::Newer {
            what: format!("{}/run.json", run()),
            path: "mood".into(),
            reason: "unknown field `mood`".into(),
        }),
    ]
}

fn not_finite() -> Error {
    Error::NotFinite {
        step: Step::new(100),
        epoch: Epoch::new(1),
        what: "loss",
        value: f64::NAN,
        keys: "00000000000000ff, 0000000000000100".into(),
    }
}

fn of_training() -> Vec<Error> {
    vec![
        not_finite(),
        Error::LossNotFinite {
            step: Step::new(100),
            split: Split::Test,
            value: f64::INFINITY,
            keys: "00000000000000ff".into(),
        },
        Error::NoUpdate {
            dropped: 6,
            steps: 6,
            scale: 1024.0,
        },
        Error::OnlySkipped {
            skipped: 6,
            steps: 6,
        },
        Error::TooManySkipped {
            max_skipped: 10,
            window_steps: 1000,
            source: Box::new(not_finite()),
        },
        Error::Diverged {
            step: Step::new(100),
            epoch: Epoch::new(1),
            loss: 90.5,
            mean: 0.5,
            rollbacks: 3,
        },
        Error::Interrupted {
            checkpoint: format!("{}/checkpoints/step-00000100.safetensors", run()),
        },
        Error::InterruptedUnsaved {
            step: Step::new(100),
            kept: Some(KeptCheckpoint {
                url: format!("{}/checkpoints/step-00000090.safetensors", run()),
                step: Step::new(90),
            }),
            source: Box::new(slow()),
        },
        slow(),
    ]
}

fn slow() -> Error {
    Error::TooSlow {
        url: run(),
        seconds: 10,
    }
}

fn of_machines() -> Vec<Error> {
    vec![
        Error::Rank {
            rank: 1,
            reason: "its process ended by signal 9".into(),
            ranks: "rank 0 at step 100, rank 1 at step 99".into(),
        },
        Error::StateMissing {
            url: run(),
            ranks: "1".into(),
            seconds: 300,
        },
        Error::Rendezvous {
            rank: 1,
            address: "10.0.0.1:29500".into(),
            reason: "rank 0 is absent after 300 s; start it, or raise `train.parallel.rendezvous_timeout_s`".into(),
        },
        Error::InterruptedRendezvous {
            rank: 0,
            address: "10.0.0.1:29500".into(),
            reason: "these ranks have not come: 1".into(),
        },
        Error::WeightsDiffer {
            step: Step::new(100),
            ranks: "1".into(),
        },
        Error::Device {
            reason: "Unknown: the adapter was reset".into(),
        },
        Error::Runtime(io::Error::other("the limit on threads is reached")),
        Error::Storage(feedline_storage::Error::NotFound { url: run() }),
        Error::Loader(feedline_loader::Error::EmptySplit {
            url: dataset(),
            split: Split::Test,
        }),
    ]
}
