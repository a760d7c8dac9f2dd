//! Trains a model on a dataset of shards and measures it.
//!
//! [`train`] runs epochs over the training split, measures the validation split after each, keeps the best weights and
//! reads the test split once, at the end. [`evaluate`] measures the kept weights on one split. Both block.
//!
//! A run is a function of its configuration and of the dataset's fingerprint: every random choice is drawn by a
//! counter-based generator from the seed, every sum is taken in a fixed order, and a checkpoint holds all there is to
//! know between two steps. So a run that is killed at any step and resumed ends with the same bits as one that never
//! stopped, on the same machine.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use feedline_schemas::{config::TrainConfig, manifest::Split, progress::Silent};
//! # use feedline_storage::{Store, StoreOptions, clock::SystemClock};
//! # use feedline_trainer::{Context, Group, Resume, evaluate, train};
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let root = Store::open("out", &StoreOptions::default())?;
//! let context = Context {
//!     dataset: root.child("dataset"),
//!     runs: root.child("train"),
//!     weights: None,
//!     progress: Arc::new(Silent),
//!     clock: Arc::new(SystemClock),
//!     stop: Arc::default(),
//!     group: Group::alone(),
//! };
//! let config = TrainConfig::default();
//! let report = train(&config, Resume::Continue, &context)?;
//! assert_eq!(evaluate(&config, Split::Test, &context)?.metrics, report.test);
//! # Ok(()) }
//! ```
//!
//! The tensor library is named in `model` (with [`layers`]), in `optim` and where numbers stay on a device; everything
//! else sees flat `f32` buckets. A model of one's own ([`Model`]) takes the same library from [`tensor`].

mod checkpoint;
mod config;
mod data;
mod device;
mod error;
mod evaluation;
mod float_casts;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod model;
mod optim;
mod parallel;
mod plan;
mod predict;
mod random;
mod reporting;
mod resume;
mod session;
mod summary;
pub mod tune;

#[cfg(test)]
mod testing;

use std::sync::{Arc, atomic::AtomicBool};

use feedline_schemas::progress::Progress;
use feedline_storage::{Store, clock::Clock};

pub use burn::tensor;

pub use crate::{
    checkpoint::export::{ExportOptions, ExportedWeights, export, export_run},
    config::settings::{check, check_device, check_kind},
    data::loaders::{check_loader, open_training, settled},
    error::{Error, KeptCheckpoint},
    evaluation::evaluate::{evaluate, evaluate_rows, evaluate_run, evaluate_with},
    model::{
        init::split as weights_file,
        interface::{Build, Input, Model, Objective, Shape, TokenInput},
        layers,
    },
    parallel::{Group, Phase, Whereabouts},
    predict::{
        choose_model::{Choice, ChosenRun, Use, choose},
        edit::Prior,
        generate::{Continuation, SpecialIds, TextGenerator, check_rule},
        predictor::{
            ImageModel, MeasuredRows, Predicted, PredictedImages, Predictor, RowParts, Truths,
            predict_images,
        },
        text_scores::TextScorer,
    },
    reporting::runs,
    resume::Resume,
    session::{
        initial_weights::check_init,
        train::{train, train_with},
    },
    summary::{Fit, Machine, Memory, Need, Summary, available_memory, fit, summarize, summary},
};

/// Components of a run that are not configuration.
#[derive(Clone, Debug)]
pub struct Context {
    /// The dataset folder: manifest, shards, transform artefact.
    pub dataset: Store,
    /// The folder that holds one folder per run.
    pub runs: Store,
    /// The folder of the file that `train.init.from` names, see [`weights_file`]; `None` where it names none.
    pub weights: Option<Store>,
    /// Receives news at least once a step.
    pub progress: Arc<dyn Progress>,
    /// Source of time, for rates and waiting shares; no decision depends on it.
    pub clock: Arc<dyn Clock>,
    /// Set from outside (such as on SIGTERM): the run writes a checkpoint after the step in progress and leaves with
    /// [`Error::Interrupted`].
    pub stop: Arc<AtomicBool>,
    /// Ranks that train together with the caller.
    pub group: Group,
}
