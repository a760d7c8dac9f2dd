//! Memory of a training, by use.

use serde::Serialize;

use crate::model::{
    interface::Shape,
    layers::{LayerFacts, Layout, PassSettings},
};

/// Bytes of an f32.
const NUMBER: u64 = 4;

/// Bytes of a bf16 or f16.
const SHORT: u64 = 2;

/// Bytes that a rank takes to train, besides the loader's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Parameters and buffers, and the copy of them that a step computes with.
    pub parameters: u64,
    /// The batch's gradient, one for each level of the tree in which parts are added, and two for each part that is
    /// computed: the tensors' own, and the flat one made of them. Where the weights stay on the GPU, what an update takes
    /// besides the memory of the activations, which are freed by then.
    pub gradients: u64,
    /// State of the optimizer, on the GPU and in main memory where the weights stay on the GPU.
    pub optimizer: u64,
    /// Values of the layers that the computed parts keep for the backward pass. An estimate: each
    /// layer's inputs as it says, twice for the gradients that take their place, and the outputs
    /// that the loss is made of.
    pub activations: u64,
    /// Batches on a GPU: that of the step, and those that are copied ahead of it (`train.loader.device_prefetch`). 0 where
    /// a batch is copied in its step.
    pub batches: u64,
    /// The average of the weights, where one is kept; as the optimizer's state.
    pub average: u64,
    /// The best weights so far.
    pub best: u64,
    /// The copy of weights, average and optimizer that is made while a checkpoint is written.
    pub checkpoint: u64,
    /// Bytes of all this on the GPU; 0 without one.
    pub on_gpu: u64,
}

impl Memory {
    /// All of it.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.parameters
            + self.gradients
            + self.optimizer
            + self.activations
            + self.batches
            + self.average
            + self.best
            + self.checkpoint
    }

    /// Bytes of it in main memory.
    #[must_use]
    pub const fn in_main(self) -> u64 {
        self.total() - self.on_gpu
    }
}

/// Work of a rank at a time, and the values that it keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkingMemory {
    /// Parts of its batches, and the most rows of one.
    pub(super) parts: [usize; 2],
    pub(super) threads: usize,
    pub(super) gpu: bool,
    /// Ranks that share a batch.
    pub(super) ranks: usize,
    /// True when 16 bits of a number are kept. The processor computes in f32 and keeps that too.
    pub(super) short: bool,
    /// True when an average of the weights is kept.
    pub(super) average: bool,
    /// Numbers that the optimizer remembers.
    pub(super) remembered: usize,
    /// Bytes of the batches that are on a GPU at a time.
    pub(super) batches: u64,
}

/// Bytes of the batches that a GPU holds at a time when `ahead` are copied before they are asked for, of `rows` rows each.
pub(super) fn batches_ahead(shape: Shape, rows: usize, ahead: u32) -> u64 {
    if ahead == 0 {
        return 0;
    }
    let of_batch = rows.saturating_mul(sample_bytes(shape)) as u64;
    of_batch.saturating_mul(u64::from(ahead) + 1)
}

/// Bytes of a sample as it is copied to a GPU, with one target: numbers and ids of 32 bits, pixels of three colours of 8.
fn sample_bytes(shape: Shape) -> usize {
    const WORD: usize = 4;
    const COLOURS: usize = 3;
    match shape {
        Shape::Rows { features } => WORD * (features + 1),
        Shape::Images { height, width, .. } => COLOURS * height * width + WORD,
        // The id that is only predicted is one more. Of a packed row, documents and positions of the ids come too.
        Shape::Tokens { length, .. } => 3 * WORD * (length + 1),
        Shape::Multi {
            features,
            images,
            tokens,
        } => {
            let pixels = images.map_or(0, |[_, height, width]| COLOURS * height * width);
            let ids = tokens.map_or(0, |[length, _]| WORD * length);
            WORD * (features + 1) + pixels + ids
        }
    }
}

impl WorkingMemory {
    /// Parts that are computed at a time.
    pub(super) fn at_a_time(&self) -> usize {
        self.parts[0].min(self.threads.max(1))
    }

    pub(super) fn memory(&self, layout: &Layout, passes: &PassSettings) -> Memory {
        let [all, rows] = self.parts;
        let numbers = layout.len() as u64;
        let set = numbers * NUMBER;
        let parts = self.at_a_time() as u64;
        let average = if self.average { set } else { 0 };
        let optimizer = self.remembered as u64 * NUMBER;
        let kept = kept(layout, passes, self.gpu) as u64 * if self.short { SHORT } else { NUMBER };
        let outputs = layout
            .facts()
            .last()
            .map_or(0, |l| l.output.iter().product::<usize>());
        let of_row = 2 * kept + LOSS_SETS * outputs as u64 * NUMBER;
        // Products in 16 bits multiply by copies of the weights.
        let short_weights = if self.short {
            parts * numbers * SHORT
        } else {
            0
        };
        let activations = parts * rows as u64 * of_row + short_weights;
        let checkpoint = set + average + optimizer;
        let held = Memory {
            parameters: 2 * set,
            gradients: (1 + u64::from(all.max(1).ilog2()) + 2 * parts) * set,
            optimizer,
            activations,
            batches: 0,
            average,
            best: set,
            checkpoint,
            on_gpu: 0,
        };
        if !self.gpu {
            return held;
        }
        // An update begins when the activations are freed.
        let update = UPDATE_SETS * set + optimizer;
        let gradients = set.max(update.saturating_sub(activations));
        let on_gpu = set + gradients + optimizer + average + activations + self.batches;
        Memory {
            // Ranks that share a batch add up their gradients in main memory too.
            gradients: match self.ranks {
                0 | 1 => gradients,
                _ => gradients + held.gradients,
            },
            optimizer: 2 * optimizer,
            average: 2 * average,
            batches: self.batches,
            on_gpu,
            ..held
        }
    }
}

/// Sets of numbers that an update on a GPU takes besides the new state: gradients of the parameters, the flat one, and two on
/// the way.
const UPDATE_SETS: u64 = 4;

/// Copies of the outputs that a loss takes: themselves, their logarithms or differences, and the gradients.
const LOSS_SETS: u64 = 3;

/// Numbers per sample that are kept for the backward pass: of segments that are computed again, their inputs, and all
/// that the largest of them keeps.
fn kept(layout: &Layout, passes: &PassSettings, gpu: bool) -> usize {
    let of_one = |layer: &LayerFacts| layer.kept + if gpu { 0 } else { layer.scores };
    let of = |layers: &[LayerFacts]| layers.iter().map(of_one).sum::<usize>();
    let again = layout.segments().iter().enumerate();
    let again = again.filter_map(|(i, segment)| passes.again(i).then_some(segment));
    let trained = passes.trained(layout);
    let of_layer = |layer: &LayerFacts| {
        let inside = |name: &str| {
            name.strip_prefix(&layer.name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        trained.iter().any(|parameter| inside(&parameter.name))
    };
    // No gradient goes below the first layer that is trained.
    let first = layout.facts().iter().position(of_layer).unwrap_or(0);
    let (mut kept, mut largest) = (of(&layout.facts()[first..]), 0);
    for segment in again.filter(|segment| segment.layers.start >= first) {
        let inside = of(&layout.facts()[segment.layers.clone()]);
        kept = kept - inside + segment.input;
        largest = largest.max(inside);
    }
    kept + largest
}
