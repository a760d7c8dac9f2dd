//! What ranks found of their shares of a batch, put together in row order.

use crate::{
    data::{Batch, Targets},
    engine::{Engine, Prediction},
    error::Error,
    parallel::Ranks,
};

/// What is known of the rows of a whole batch.
#[derive(Debug)]
pub(super) struct Shares {
    pub(super) prediction: Prediction,
    pub(super) targets: Values,
    pub(super) keys: Vec<u64>,
    pub(super) origins: Vec<u64>,
    /// Whether any rank is to stop.
    pub(super) stop: bool,
}

/// Targets of one's own.
#[derive(Debug)]
pub(super) enum Values {
    None,
    Numbers(Vec<f32>),
    Classes(Vec<i32>),
}

impl Values {
    pub(super) fn borrowed(&self) -> Targets<'_> {
        match self {
            Self::None => Targets::None,
            Self::Numbers(values) => Targets::Numbers(values),
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
        engine: &Engine,
        ranks: &Ranks,
        prediction: &Prediction,
        batch: &impl Batch,
        stop: bool,
    ) -> Result<Self, Error> {
        let stop = if stop { 1.0 } else { 0.0 };
        let [weight, stops] = ranks.sums([prediction.weight, stop])?;
        let outputs = four(
            ranks,
            &prediction.outputs,
            f32::to_le_bytes,
            f32::from_le_bytes,
        )?;
        let losses = four(
            ranks,
            &prediction.losses,
            f32::to_le_bytes,
            f32::from_le_bytes,
        )?;
        let targets = match batch.samples().targets {
            Targets::None => Values::None,
            Targets::Numbers(y) => {
                Values::Numbers(four(ranks, y, f32::to_le_bytes, f32::from_le_bytes)?)
            }
            Targets::Classes(y) => {
                Values::Classes(four(ranks, y, i32::to_le_bytes, i32::from_le_bytes)?)
            }
        };
        let keys = eight(ranks, batch.keys())?;
        let origins = eight(ranks, batch.origins())?;
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
pub(super) fn four<T: Copy>(
    ranks: &Ranks,
    values: &[T],
    to: impl Fn(T) -> [u8; 4],
    from: impl Fn([u8; 4]) -> T,
) -> Result<Vec<T>, Error> {
    let bytes = values.iter().flat_map(|value| to(*value)).collect();
    let bytes = ranks.gather(bytes)?.concat();
    let (words, _) = bytes.as_chunks::<4>();
    Ok(words.iter().map(|word| from(*word)).collect())
}

/// The numbers of all ranks, in rank order.
pub(super) fn eight(ranks: &Ranks, values: &[u64]) -> Result<Vec<u64>, Error> {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    let bytes = ranks.gather(bytes.collect())?.concat();
    let (words, _) = bytes.as_chunks::<8>();
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}
