//! One forward pass over a part of a batch.

use std::{cell::RefCell, collections::BTreeMap, ops::Range, sync::Arc};

use burn::tensor::{DType, Tensor, TensorData};
use feedline_schemas::config::{LoraConfig, Precision};
use rayon::prelude::*;

use super::{
    Buffer, Harvest, Slot,
    builder::{Layout, Parameter, bucket_len},
    grad_hooks::{self, DepthMark, Taker},
};
use crate::{
    config::name_pattern,
    device::{MaskValues, Upload as _, draw, numbers},
    error::Error,
    random::Stream,
};

/// Randomness of a pass in training.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Training {
    /// The step's stream.
    pub(crate) stream: Stream,
    /// First row of this part in the global batch; draws for a row do not depend on the division of
    /// the batch.
    pub(crate) first_row: usize,
    /// Rows that batch norm normalises over together.
    pub(crate) ghosts: Ghosts,
}

/// Ghost batches of a batch: a number of them with bounds at `floor(ghost * rows / count)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ghosts {
    /// First row in the global batch.
    pub(crate) first_row: usize,
    /// Rows of the batch.
    pub(crate) rows: usize,
    /// Number of ghost batches.
    pub(crate) count: usize,
}

impl Ghosts {
    /// Every part is a ghost batch of its own.
    #[cfg(test)]
    pub(crate) const WHOLE: Self = Self {
        first_row: 0,
        rows: 0,
        count: 1,
    };

    /// Returns those with rows in a part of `rows` from `first_row` of the global batch on, in rows of the part; none where
    /// the part is not made of whole ones.
    pub(crate) fn within(self, first_row: usize, rows: usize) -> Vec<Range<usize>> {
        if self.count <= 1 || first_row < self.first_row {
            return Vec::new();
        }
        let begin = first_row - self.first_row;
        let border = |ghost: usize| ghost * self.rows / self.count;
        let ghosts = (0..self.count).map(|ghost| border(ghost)..border(ghost + 1));
        let inside = ghosts
            .filter(|ghost| !ghost.is_empty() && ghost.start >= begin && ghost.end <= begin + rows);
        let inside = inside.map(|ghost| ghost.start - begin..ghost.end - begin);
        let inside: Vec<Range<usize>> = inside.collect();
        match inside.iter().map(|ghost| ghost.len()).sum::<usize>() == rows {
            true => inside,
            false => Vec::new(),
        }
    }
}

/// Settings of all passes of a run. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct PassSettings {
    /// Segments of the layout that are recomputed in the backward pass; those beyond its end are
    /// not.
    again: Arc<[bool]>,
    /// Type of products, where it is not that of the weights.
    products: Option<DType>,
    /// Parameters that keep their initial values; those beyond its end do not.
    frozen: Arc<[bool]>,
}

impl PassSettings {
    /// Those of a model with this layout, whose segments with a name that one of `patterns` describes are computed again
    /// in the backward pass.
    ///
    /// # Errors
    /// [`Error::Config`] for a pattern that describes none.
    pub(crate) fn new(layout: &Layout, patterns: &[String]) -> Result<Self, Error> {
        let segments = layout.segments();
        let names = || segments.iter().map(|segment| segment.name.as_str());
        name_pattern::check("model.checkpoint", "block", patterns, names())?;
        let again = names().map(|name| name_pattern::any(patterns, name));
        Ok(Self {
            again: again.collect(),
            ..Self::default()
        })
    }

    /// The same, with parameters whose name one of `patterns` describes left as they are; with adapters, all but those
    /// and what they let train besides.
    ///
    /// # Errors
    /// [`Error::Config`] for a pattern that describes none, and when nothing is left to train.
    pub(crate) fn with_frozen(
        self,
        layout: &Layout,
        patterns: &[String],
        lora: Option<&LoraConfig>,
    ) -> Result<Self, Error> {
        let names = layout
            .trained_entries()
            .iter()
            .map(|entry| entry.name.as_str());
        name_pattern::check("freeze", "parameter", patterns, names.clone())?;
        if let Some(lora) = lora {
            name_pattern::check("lora.train", "parameter", &lora.train, names.clone())?;
        }
        let adapts = |(i, name): (usize, &str)| {
            lora.is_none_or(|lora| layout.is_adapter(i) || name_pattern::any(&lora.train, name))
        };
        let frozen = names
            .enumerate()
            .map(|(i, name)| name_pattern::any(patterns, name) || !adapts((i, name)));
        let frozen: Arc<[bool]> = frozen.collect();
        if !frozen.is_empty() && frozen.iter().all(|frozen| *frozen) {
            let reason = "it names all parameters; leave one to train";
            return Err(crate::error::config("freeze", reason));
        }
        Ok(Self { frozen, ..self })
    }

    /// Returns true if a parameter is trained.
    pub(crate) fn trains(&self, parameter: usize) -> bool {
        !self.frozen.get(parameter).copied().unwrap_or(false)
    }

    /// The parameters that are trained.
    pub(crate) fn trained(&self, layout: &Layout) -> Vec<Parameter> {
        let entries = layout.trained_entries().iter().enumerate();
        let entries = entries.filter(|(i, _)| self.trains(*i));
        entries.map(|(_, entry)| entry.clone()).collect()
    }

    /// The same, with products computed in `precision`.
    pub(crate) fn with_precision(self, precision: Precision) -> Self {
        let products = match precision {
            Precision::F32 => None,
            Precision::Bf16 => Some(DType::BF16),
            Precision::F16 => Some(DType::F16),
        };
        Self { products, ..self }
    }

    /// Returns true if a segment is recomputed in the backward pass.
    pub(crate) fn again(&self, segment: usize) -> bool {
        self.again.get(segment).copied().unwrap_or(false)
    }
}

/// Inputs of layers: the parameters, and the training flag.
#[derive(Debug)]
pub struct Pass<'a> {
    pub(super) layout: &'a Layout,
    /// One flat tensor per entry of the layout.
    pub(super) weights: &'a [Tensor<1>],
    pub(super) training: Option<Training>,
    pub(super) settings: PassSettings,
    pub(super) observed: Vec<(usize, Tensor<1>)>,
    /// Parameters that were asked for, and how often.
    used: RefCell<BTreeMap<usize, usize>>,
    /// Receiver of the gradients of parameters, where they are wanted.
    pub(super) taker: Option<Taker>,
    /// Depth of the pass in the graph.
    mark: RefCell<Option<DepthMark>>,
}

impl<'a> Pass<'a> {
    pub(crate) fn new(
        layout: &'a Layout,
        weights: &'a [Tensor<1>],
        training: Option<Training>,
    ) -> Self {
        Self {
            layout,
            weights,
            training,
            settings: PassSettings::default(),
            observed: Vec::new(),
            used: RefCell::default(),
            taker: None,
            mark: RefCell::default(),
        }
    }

    /// The same, with gradients of those weights that want them going to `harvest`.
    pub(crate) fn with_harvest(self, harvest: &Harvest) -> Self {
        self.with_taker(Some(harvest.taker()))
    }

    pub(super) fn with_taker(self, taker: Option<Taker>) -> Self {
        Self { taker, ..self }
    }

    /// The same, computing as `settings` say.
    pub(crate) fn with_settings(self, settings: &PassSettings) -> Self {
        Self {
            settings: settings.clone(),
            ..self
        }
    }

    /// Returns true in training: dropout drops, and batch norm uses the batch's statistics.
    #[must_use]
    pub const fn is_training(&self) -> bool {
        self.training.is_some()
    }

    /// A parameter in the shape it was laid out with.
    ///
    /// # Panics
    /// When that shape does not have `D` dimensions.
    #[must_use]
    pub fn parameter<const D: usize>(&self, slot: Slot) -> Tensor<D> {
        let shape: [usize; D] = self.layout.entries()[slot.0]
            .shape
            .as_slice()
            .try_into()
            .expect("a layer asks for its own parameters");
        self.note_uses(slot.0, 1);
        let weight = self.weights[slot.0].clone();
        match &self.taker {
            Some(taker) if weight.is_require_grad() => {
                let mark = self.mark.borrow();
                grad_hooks::handed_out((slot.0, weight), shape, taker, mark.as_ref())
            }
            _ => weight.reshape(shape),
        }
    }

    pub(super) fn note_uses(&self, parameter: usize, uses: usize) {
        *self.used.borrow_mut().entry(parameter).or_default() += uses;
    }

    /// `x`, at the boundary of two layers. The gradients of parameters that are asked for after it,
    /// up to the next boundary, are complete when the backward pass comes by here, and other ranks
    /// can have them while it continues; without boundaries they are at its end. No number changes.
    /// Either side of a [`checkpoint`](Self::checkpoint) is a boundary.
    #[must_use]
    pub fn border<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        if self.taker.is_none() || !x.is_autodiff() {
            return x;
        }
        let mut mark = self.mark.borrow_mut();
        match grad_hooks::marked(&x, mark.as_ref()) {
            Some((x, found)) => {
                *mark = Some(found);
                x
            }
            None => x,
        }
    }

    /// `x` in the type that products are computed in: bf16 or f16 where `train.precision` says so, else as it is. Layers
    /// do this to what they multiply, and give back the type they got: what a model keeps between layers is short where
    /// the model makes it so.
    #[must_use]
    pub fn for_product<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        match self.settings.products {
            Some(products) => x.cast(products),
            None => x,
        }
    }

    /// The ghost batches of a tensor whose first size is the part's `rows`; none where the part is one.
    pub(super) fn ghost_batches(&self, rows: usize) -> Vec<Range<usize>> {
        let ghosts = self
            .training
            .map(|training| training.ghosts.within(training.first_row, rows));
        ghosts.unwrap_or_default()
    }

    /// A buffer, flat.
    #[must_use]
    pub fn buffer(&self, buffer: Buffer) -> Tensor<1> {
        self.weights[self.layout.trained() + buffer.0].clone()
    }

    /// The parameters that were asked for and how often, and what was observed.
    pub(super) fn into_used(self) -> (BTreeMap<usize, usize>, Vec<(usize, Tensor<1>)>) {
        (self.used.into_inner(), self.observed)
    }

    /// Says what the batch's value of a buffer is, in training. After the step the buffer has moved towards the mean of
    /// its parts' values, weighted by their rows, by the share [`MOMENTUM`](super::MOMENTUM) for a full batch, and in
    /// proportion to its rows for a shorter one.
    pub fn observe(&mut self, buffer: Buffer, value: Tensor<1>) {
        self.observed
            .push((self.layout.trained() + buffer.0, value.inner()));
    }

    /// Observed values of buffers, by their number in the layout.
    pub(crate) fn into_observed(self) -> Vec<(usize, Tensor<1>)> {
        self.observed
    }

    /// Inverted dropout: multiplies by 0 with probability `share`, else by `1 / (1 - share)`; in training only.
    pub(super) fn drop_out<const D: usize>(
        &self,
        x: Tensor<D>,
        share: f64,
        site: usize,
    ) -> Tensor<D> {
        let Some(training) = self.training.filter(|_| share > 0.0) else {
            return x;
        };
        let given = x.dtype();
        let x = in_f32(x);
        let shape = x.dims();
        let width = shape[1..].iter().product();
        let stream = training.stream.part(site);
        let sizes = [shape[0], width];
        let values = mask_values(share);
        let first = (training.first_row * width) as u64;
        let elements = first..first + (shape[0] * width) as u64;
        let mask = match draw(stream, elements, values, &x.device()) {
            Some(mask) => mask.reshape(shape),
            None => {
                let mask = mask(sizes, values, training.first_row, stream);
                Tensor::upload(TensorData::new(mask, shape), (&x.device(), x.dtype()))
            }
        };
        (x * mask).cast(given)
    }
}

/// Observed values, in bucket order from the first buffer on; a buffer without observations stays as it was. Empty for a
/// model without buffers.
pub(crate) fn observed_in(
    layout: &Layout,
    observed: Vec<(usize, Tensor<1>)>,
    bucket: &[f32],
) -> Vec<f32> {
    let entries = layout.entries();
    let begin = bucket_len(&entries[..layout.trained()]);
    let mut values = bucket[begin..].to_vec();
    for (entry, value) in observed {
        let range = &entries[entry].range;
        let place = &mut values[range.start - begin..range.end - begin];
        place.copy_from_slice(&numbers(value));
    }
    values
}

/// bf16 and f16 as f32, all else as it is: for sums, norms, exponentials and losses.
#[must_use]
pub fn in_f32<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    match x.dtype() {
        DType::BF16 | DType::F16 => x.cast(DType::F32),
        _ => x,
    }
}

/// Values of a mask that is 0 with probability `share`, else `1 / (1 - share)`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share below 1 of 2^64 fits, and it is positive"
)]
fn mask_values(share: f64) -> MaskValues {
    MaskValues {
        threshold: (share * 2.0_f64.powi(64)) as u64,
        kept: (1.0 / (1.0 - share)) as f32,
    }
}

/// A mask of `[rows, width]`. An element is a function of the stream and of its place in the whole batch.
fn mask(
    [rows, width]: [usize; 2],
    values: MaskValues,
    first_row: usize,
    stream: Stream,
) -> Vec<f32> {
    let MaskValues { threshold, kept } = values;
    let mut mask = vec![0.0; rows * width];
    mask.par_chunks_mut(width.max(1))
        .enumerate()
        .with_min_len(64)
        .for_each(|(row, values)| {
            let first = ((first_row + row) * width) as u64;
            for (value, index) in values.iter_mut().zip(first..) {
                *value = if stream.bits(index) < threshold {
                    0.0
                } else {
                    kept
                };
            }
        });
    mask
}

#[cfg(test)]
mod tests {
    use feedline_schemas::ids::Seed;

    use super::*;

    #[test]
    fn mask_drops_its_share_and_keeps_the_mean() {
        let mask = mask(
            [1000, 100],
            mask_values(0.25),
            0,
            Stream::initialization(Seed::new(1)),
        );
        let dropped = mask.iter().filter(|v| **v < 0.5).count();
        assert!((24_000..26_000).contains(&dropped), "{dropped}");
        assert!(
            mask.iter()
                .all(|&v| v < 0.5 || (v - 4.0 / 3.0).abs() < 1e-6)
        );
    }

    /// Places and keys at which words of the numbers overflow are among the many.
    #[test]
    fn mask_is_the_same_drawn_on_a_device() {
        let Some(device) = crate::model::layers::check::adapter().map(|adapter| adapter.device)
        else {
            eprintln!("skipped: no adapter");
            return;
        };
        for (seed, share, first_row) in
            [(1, 0.25, 0), (2, 0.1, 7), (3, 0.999, 1 << 40), (4, 0.5, 5)]
        {
            let stream = Stream::initialization(Seed::new(seed));
            let values = mask_values(share);
            let elements = first_row as u64 * 1000..(first_row as u64 + 300) * 1000;
            let found = draw(stream, elements, values, &device).unwrap();
            let expected = mask([300, 1000], values, first_row, stream);
            assert!(numbers(found) == expected, "{seed}");
        }
    }

    #[test]
    fn mask_of_a_row_does_not_depend_on_how_the_batch_is_cut() {
        let stream = Stream::initialization(Seed::new(1));
        let whole = mask([10, 7], mask_values(0.5), 0, stream);
        assert_eq!(mask([4, 7], mask_values(0.5), 6, stream), whole[6 * 7..]);
    }

    #[test]
    fn nothing_is_dropped_at_share_zero() {
        assert!(
            mask(
                [9, 9],
                mask_values(0.0),
                0,
                Stream::initialization(Seed::new(1))
            )
            .iter()
            .all(|v| v.to_bits() == 1.0_f32.to_bits())
        );
    }
}
