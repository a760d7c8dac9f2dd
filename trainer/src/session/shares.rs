//! Results of ranks for their shares of a batch, put together in row order.

use bytemuck::Pod;

use crate::{
    data::samples::{RankBatch, Targets},
    error::Error,
    float_casts::{exact, exact_len},
    model::engine::{ModelEngine, Prediction},
    parallel::Ranks,
    session::own_rows::OwnRows,
};

/// Results for the rows of a whole batch.
#[derive(Debug)]
pub(super) struct Shares {
    pub(super) prediction: Prediction,
    pub(super) targets: OwnedTargets,
    pub(super) keys: Vec<u64>,
    pub(super) origins: Vec<u64>,
    /// Rows that were left out, since they hold another sample than the order names.
    pub(super) substituted: u64,
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
    /// Those of some rows.
    fn select(targets: Targets<'_>, own: &OwnRows) -> Self {
        match targets {
            Targets::None => Self::None,
            Targets::Numbers(y) => Self::Numbers(own.select(y).into_owned()),
            Targets::Vectors { y, width } => Self::Vectors {
                y: own.select(y).into_owned(),
                width,
            },
            Targets::Classes(y) => Self::Classes(own.select(y).into_owned()),
        }
    }

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
    /// The results of this rank for the rows of its batch that hold their own samples.
    pub(super) fn of(
        engine: &ModelEngine,
        prediction: &Prediction,
        batch: &impl RankBatch,
        own: &OwnRows,
        stop: bool,
    ) -> Self {
        let targets = OwnedTargets::select(batch.samples().targets, own);
        let losses = own.select(&prediction.losses).into_owned();
        let weight = match own.are_all() {
            true => prediction.weight,
            false => {
                let weight = engine.weight_of(targets.borrowed());
                weight.unwrap_or_else(|| exact_len(losses.len()))
            }
        };
        Self {
            prediction: Prediction {
                outputs: own.select(&prediction.outputs).into_owned(),
                losses,
                weight,
            },
            targets,
            keys: own.select(batch.keys()).into_owned(),
            origins: own.select(batch.origins()).into_owned(),
            substituted: own.substituted() as u64,
            stop,
        }
    }

    /// Gives this rank's share to the others and takes theirs.
    ///
    /// # Errors
    /// [`Error::Rank`].
    pub(super) fn gather(self, engine: &ModelEngine, ranks: &Ranks) -> Result<Self, Error> {
        if !ranks.are_many() {
            return Ok(self);
        }
        let own = self.prediction;
        let stop = if self.stop { 1.0 } else { 0.0 };
        let substituted = exact(self.substituted);
        let [weight, stops, substituted] = ranks.sums([own.weight, stop, substituted])?;
        let outputs = of_all(ranks, &own.outputs)?;
        let losses = of_all(ranks, &own.losses)?;
        let targets = match self.targets {
            OwnedTargets::None => OwnedTargets::None,
            OwnedTargets::Numbers(y) => OwnedTargets::Numbers(of_all(ranks, &y)?),
            OwnedTargets::Vectors { y, width } => OwnedTargets::Vectors {
                y: of_all(ranks, &y)?,
                width,
            },
            OwnedTargets::Classes(y) => OwnedTargets::Classes(of_all(ranks, &y)?),
        };
        let keys = of_all(ranks, &self.keys)?;
        let origins = of_all(ranks, &self.origins)?;
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
            substituted: whole(substituted),
            stop: stops > 0.0,
        })
    }
}

/// A sum of counts as a count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sums of counts are far below 2^53, and none is negative"
)]
const fn whole(sum: f64) -> u64 {
    sum as u64
}

/// The values of all ranks, in rank order.
pub(super) fn of_all<T: Pod>(ranks: &Ranks, values: &[T]) -> Result<Vec<T>, Error> {
    let bytes = ranks
        .gather(bytemuck::cast_slice(values).to_vec())?
        .concat();
    let values = bytes.chunks_exact(size_of::<T>());
    Ok(values.map(bytemuck::pod_read_unaligned).collect())
}
