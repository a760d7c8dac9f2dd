//! Results of ranks for their shares of a batch, put together in row order.

use bytemuck::Pod;

use crate::{
    data::samples::{RankBatch, Targets},
    error::Error,
    model::engine::{ModelEngine, Prediction},
    parallel::Ranks,
};

/// Results for the rows of a whole batch.
#[derive(Debug)]
pub(super) struct Shares {
    pub(super) prediction: Prediction,
    pub(super) targets: OwnedTargets,
    pub(super) keys: Vec<u64>,
    pub(super) origins: Vec<u64>,
    /// True when any rank is to stop.
    pub(super) stop: bool,
}

/// Targets of one's own.
#[derive(Debug)]
pub(super) enum OwnedTargets {
    None,
    Numbers(Vec<f32>),
    Vectors { y: Vec<f32>, width: usize },
    Classes(Vec<i32>),
}

impl OwnedTargets {
    pub(super) fn borrowed(&self) -> Targets<'_> {
        match self {
            Self::None => Targets::None,
            Self::Numbers(values) => Targets::Numbers(values),
            Self::Vectors { y, width } => Targets::Vectors { y, width: *width },
            Self::Classes(values) => Targets::Classes(values),
        }
    }
}

impl Shares {
    /// Gives this rank's share to the others and takes theirs.
    ///
    /// # Errors
    /// [`Error::Rank`].
    pub(super) fn gather(
        engine: &ModelEngine,
        ranks: &Ranks,
        prediction: &Prediction,
        batch: &impl RankBatch,
        stop: bool,
    ) -> Result<Self, Error> {
        let stop = if stop { 1.0 } else { 0.0 };
        let [weight, stops] = ranks.sums([prediction.weight, stop])?;
        let outputs = of_all(ranks, &prediction.outputs)?;
        let losses = of_all(ranks, &prediction.losses)?;
        let targets = match batch.samples().targets {
            Targets::None => OwnedTargets::None,
            Targets::Numbers(y) => OwnedTargets::Numbers(of_all(ranks, y)?),
            Targets::Vectors { y, width } => OwnedTargets::Vectors {
                y: of_all(ranks, y)?,
                width,
            },
            Targets::Classes(y) => OwnedTargets::Classes(of_all(ranks, y)?),
        };
        let keys = of_all(ranks, batch.keys())?;
        let origins = of_all(ranks, batch.origins())?;
        // Added up in row order, as one rank does.
        let weight = engine.weight_of(targets.borrowed()).unwrap_or(weight);
        Ok(Self {
            prediction: Prediction {
                outputs,
                losses,
                weight,
            },
            targets,
            keys,
            origins,
            stop: stops > 0.0,
        })
    }
}

/// The values of all ranks, in rank order.
pub(super) fn of_all<T: Pod>(ranks: &Ranks, values: &[T]) -> Result<Vec<T>, Error> {
    let bytes = ranks
        .gather(bytemuck::cast_slice(values).to_vec())?
        .concat();
    let values = bytes.chunks_exact(size_of::<T>());
    Ok(values.map(bytemuck::pod_read_unaligned).collect())
}
