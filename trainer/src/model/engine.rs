//! The seam to the tensor library: samples in; losses, outputs and one flat gradient bucket out.
//!
//! Nothing here keeps state between calls, and every result is a pure function of the arguments: matrix products add
//! along k in one order whatever the number of threads, element-wise work has no order, and sums whose order could
//! depend on threads (such as the mean of the losses) are taken outside.
//!
//! # Inputs
//! Rows of numbers go to the model as they are, f32 `[rows, features]`. Images, u8 `[rows, height, width, 3]`, become
//! f32 `[rows, 3, height, width]`, `(value / 255 - mean) / deviation` for each colour. Of rows of `length + 1` token ids
//! the first `length` are the input and the last `length` what is to be predicted, one loss each; a prediction across
//! two documents or of padding has none. Samples may have several of these, for a model that joins them.
//!
//! # Parts
//! A batch is split into [`parts`] that are computed on several threads. The split depends on
//! shapes only, and the parts' losses, weights, gradients and buffers are added in a [`Tree`] over
//! the parts, so the bits depend neither on the threads nor on the ranks that share a batch, where
//! their number is a power of two and divides that of the parts.
//!
//! A part hands its gradient in while its backward pass runs, in [`Sections`](sections::Sections);
//! a section is given out once all its parts have arrived, so that ranks can exchange it meanwhile.
//!
//! The gradient is that of the sum of the losses over [`Computed::nominal`], which every rank knows beforehand: the number
//! of losses of the global batch were none of them left out. That of their mean is it times `nominal / weight`.
//!
//! Buffers (running statistics) are stored behind the parameters in the bucket. Their gradient is
//! 0; the values that a batch observes of them, the mean over its parts weighted by rows, come back
//! beside the losses and are applied by [`ModelEngine::move_buffers`] once the step is taken.

mod gradient;
mod memory;
mod on_device;
pub(crate) mod parts;
pub(crate) mod sections;

use std::ops::Range;

use burn::tensor::{Device, StreamId, Tensor, TensorData};
use feedline_schemas::report::Warning;

use self::parts::{BatchCut, PartWorkers};
pub(crate) use self::{
    gradient::Computed,
    on_device::{GradientSink, OnDevice},
};
use crate::{
    data::samples::{ModelInputs, Samples, Targets},
    device::{Backend, DeviceKind, Upload as _, is_processor, numbers},
    float_casts::exact_len,
    model::{
        input::{self, Normalisation},
        interface::{Input, Model, Objective, Parameter},
        layers::{KeyValueCache, MOMENTUM, Pass, PassSettings, in_f32},
    },
    optim::loss::Loss,
};

/// Runs a model forward and backward.
#[derive(Debug)]
pub(crate) struct ModelEngine {
    model: Box<dyn Model>,
    loss: Loss,
    /// The same without label smoothing.
    measured: Loss,
    normalisation: Normalisation,
    passes: PassSettings,
    device: Device,
    /// Stream of the device for copies of batches. A stream has memory of its own there, so a run has one.
    copy_stream: StreamId,
    kind: DeviceKind,
    device_name: String,
    device_model: String,
    /// Warning that it is not the device that `train.device = "auto"` prefers.
    device_warning: Option<Warning>,
    cut: BatchCut,
    workers: PartWorkers,
}

/// Prediction of a model for some rows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prediction {
    /// `[rows, outputs]`, row-major; empty where the target is the sample itself.
    pub(crate) outputs: Vec<f32>,
    /// Loss of each row, or of each token that is predicted; without label smoothing.
    pub(crate) losses: Vec<f32>,
    /// Divisor of their sum for the mean; 0 where nothing is predicted.
    pub(crate) weight: f64,
}

impl ModelEngine {
    /// An engine on the CPU.
    #[cfg(test)]
    pub(crate) fn new(model: Box<dyn Model>, loss: Loss) -> Self {
        Self::with_threads(
            model,
            loss,
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        )
    }

    /// An engine on the CPU with this many threads for parts of batches; with fewer where the machine has no more.
    pub(crate) fn with_threads(model: Box<dyn Model>, loss: Loss, threads: usize) -> Self {
        memory::keep_freed();
        let processor = Backend::cpu();
        Self {
            model,
            measured: loss.measured(),
            loss,
            normalisation: Normalisation::default(),
            passes: PassSettings::default(),
            device: Device::flex(),
            copy_stream: StreamId::allocate(),
            kind: DeviceKind::Processor,
            device_name: processor.name,
            device_model: processor.model,
            device_warning: None,
            cut: BatchCut::BY_SHAPE,
            workers: PartWorkers::new(threads),
        }
    }

    /// The same on another device. A GPU computes batches whole, as far as `train.parallel.parts` does not say otherwise,
    /// one part after the other.
    pub(crate) fn on(self, backend: Backend) -> Self {
        let Backend {
            device,
            kind,
            name,
            model,
            ..
        } = backend;
        let workers = if kind.is_gpu() {
            PartWorkers::new(0)
        } else {
            self.workers
        };
        Self {
            device,
            cut: BatchCut {
                by_shape: !kind.is_gpu(),
                ..self.cut
            },
            workers,
            kind,
            device_name: name,
            device_model: model,
            ..self
        }
    }

    /// The same, with a warning about the choice of its device.
    pub(crate) fn warning_of_device(self, device_warning: Option<Warning>) -> Self {
        Self {
            device_warning,
            ..self
        }
    }

    /// Name of the device for people, such as `cpu`.
    pub(crate) fn device_name(&self) -> &str {
        &self.device_name
    }

    /// Name of the device without its number, such as `NVIDIA H200`.
    pub(crate) fn device_model(&self) -> &str {
        &self.device_model
    }

    /// Warning that the device is not the preferred one.
    pub(crate) const fn device_warning(&self) -> Option<&Warning> {
        self.device_warning.as_ref()
    }

    /// Kind of the device that it computes on.
    pub(crate) const fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Stream of the device for copies of batches.
    pub(crate) const fn copy_stream(&self) -> StreamId {
        self.copy_stream
    }

    /// The device that it computes on.
    pub(crate) const fn device(&self) -> &Device {
        &self.device
    }

    /// The same, with images normalised like this.
    pub(crate) fn with_normalisation(self, normalisation: Normalisation) -> Self {
        Self {
            normalisation,
            ..self
        }
    }

    /// The same, with passes that compute as `passes` say.
    pub(crate) fn with_passes(self, passes: PassSettings) -> Self {
        Self { passes, ..self }
    }

    /// Returns true where training smooths labels, as validation never does.
    pub(crate) fn smooths(&self) -> bool {
        self.loss != self.measured
    }

    /// The parameters that are trained.
    pub(crate) fn trained(&self) -> Vec<Parameter> {
        self.passes.trained(self.model.layout())
    }

    /// Count of trained numbers, without frozen parameters.
    pub(crate) fn trained_len(&self) -> u64 {
        let trained = self.trained();
        trained.iter().map(|p| p.range.len() as u64).sum()
    }

    /// The same, with batches cut like this.
    pub(crate) fn with_cut(self, cut: BatchCut) -> Self {
        let cut = cut.of_model(self.model.layout());
        Self { cut, ..self }
    }

    /// The model.
    pub(crate) fn model(&self) -> &dyn Model {
        &*self.model
    }

    /// Moves the buffers of `bucket` towards what a batch of `rows` observed: by the share [`MOMENTUM`] for a full batch, and
    /// in proportion to its rows for a shorter one.
    pub(crate) fn move_buffers(&self, bucket: &mut [f32], observed: &[f32], rows: usize) {
        let share = self.buffer_share(rows);
        let buffers = &mut bucket[self.model.layout().trained_len()..];
        for (buffer, observed) in buffers.iter_mut().zip(observed) {
            *buffer += share * (observed - *buffer);
        }
    }

    /// Share of the way that the buffers move towards what a batch of `rows` observed.
    pub(crate) fn buffer_share(&self, rows: usize) -> f32 {
        MOMENTUM * self.cut.share_of_full(rows)
    }

    /// Computes outputs and losses, without dropout and with running statistics. `weights` are those that
    /// [`weights`](Self::weights) made of a bucket.
    pub(crate) fn predict(&self, weights: &[Tensor<1>], samples: Samples<'_>) -> Prediction {
        let work = |_, part: Samples<'_>| {
            let input = input::tensors(part, &self.normalisation, &self.device);
            let mut pass =
                Pass::new(self.model.layout(), weights, None).with_settings(&self.passes);
            let outputs = in_f32(self.model.forward(&mut pass, &input));
            let of_part = (part, &input);
            let losses = self.losses(&self.measured, outputs.clone(), of_part, &self.device);
            let outputs = match self.model.objective() {
                Objective::Target => numbers(outputs),
                Objective::Input | Objective::NextToken => Vec::new(),
            };
            (outputs, losses.map(numbers).unwrap_or_default())
        };
        let mut prediction = Prediction {
            outputs: Vec::new(),
            losses: Vec::with_capacity(samples.rows()),
            weight: self.weight(samples),
        };
        let parts = self.cut.parts(samples, self.model.layout().len());
        self.workers.for_each_part(samples, &parts, work, |part| {
            let (outputs, losses) = part.unwrap_or_default();
            prediction.outputs.extend(outputs);
            prediction.losses.extend(losses);
        });
        prediction
    }

    /// Outputs for all samples, row-major, computed in the parts in which they are measured.
    pub(crate) fn all_outputs(&self, bucket: &[f32], samples: Samples<'_>) -> Vec<f32> {
        let parts = self.cut.parts(samples, self.model.layout().len());
        let mut outputs = Vec::new();
        self.outputs(
            bucket,
            samples,
            &parts,
            |_, part| part,
            |part: Vec<f32>| outputs.extend(part),
        );
        outputs
    }

    /// Computes, without dropout and with running statistics, what the model puts out for each of `parts`, row-major, and
    /// gives `take` what `visit` makes of it and of the part's number, in the order of the parts.
    pub(crate) fn outputs<T: Send>(
        &self,
        bucket: &[f32],
        samples: Samples<'_>,
        parts: &[Range<usize>],
        visit: impl Fn(usize, Vec<f32>) -> T + Sync,
        mut take: impl FnMut(T) + Send,
    ) {
        let weights = self.weights(bucket);
        let work = |number, part: Samples<'_>| {
            let input = input::tensors(part, &self.normalisation, &self.device);
            let mut pass =
                Pass::new(self.model.layout(), &weights, None).with_settings(&self.passes);
            let outputs = in_f32(self.model.forward(&mut pass, &input));
            visit(number, numbers(outputs))
        };
        self.workers.for_each_part(samples, parts, work, |part| {
            part.into_iter().for_each(&mut take)
        });
    }

    /// Scores of the token after `ids`, one for each id of the vocabulary. `cache` has the keys and values of the first of
    /// them, as far as the model has such; those of the others are added.
    pub(crate) fn next_scores(
        &self,
        weights: &[Tensor<1>],
        ids: &[u32],
        cache: &mut KeyValueCache,
    ) -> Vec<f32> {
        let mut pass = Pass::new(self.model.layout(), weights, None).with_settings(&self.passes);
        let new = input::ids(&ids[cache.length()..], &self.device);
        if let Some(scores) = self.model.extend(&pass, new, cache) {
            return numbers(in_f32(scores));
        }
        // Behind the ids that the model reads is one to predict.
        let tokens = [ids, &[0]].concat();
        let inputs = ModelInputs {
            tokens: &tokens,
            length: tokens.len(),
            ..ModelInputs::default()
        };
        let samples = Samples::new(1, inputs, Targets::None);
        let input = input::tensors(samples, &self.normalisation, &self.device);
        let outputs = in_f32(self.model.forward(&mut pass, &input));
        numbers(outputs.narrow(0, ids.len() - 1, 1))
    }

    /// Divisor of the sum of the losses of a batch, from its targets; `None` where it is their
    /// number.
    pub(crate) fn weight_of(&self, targets: Targets<'_>) -> Option<f64> {
        let by_target = self.model.objective() == Objective::Target;
        by_target.then(|| self.loss.weight(targets))
    }

    /// Divisor of the sum of the samples' losses for their mean.
    fn weight(&self, samples: Samples<'_>) -> f64 {
        if self.model.objective() == Objective::Target {
            return self.loss.mixed_weight(samples.targets, samples.mixed);
        }
        exact_len(input::losses(self.model.objective(), samples))
    }

    /// Losses of the global batch if none is left out, at least 1.
    fn nominal(&self, samples: Samples<'_>) -> f64 {
        let of_row = match self.model.objective() {
            Objective::Target | Objective::Input => 1,
            Objective::NextToken => samples.inputs.length - 1,
        };
        exact_len((samples.global_rows() * of_row).max(1))
    }

    /// The losses of outputs; `None` where a part predicts no token. `device` tracks gradients where those of `outputs` are
    /// wanted.
    fn losses(
        &self,
        loss: &Loss,
        outputs: Tensor<2>,
        (part, input): (Samples<'_>, &Input),
        device: &Device,
    ) -> Option<Tensor<1>> {
        let outputs = in_f32(outputs);
        match self.model.objective() {
            Objective::Target => {
                let uploaded = part
                    .uploaded
                    .and_then(|rows| rows.targets(part.rows(), device));
                Some(match uploaded {
                    Some(targets) => loss.per_uploaded_sample(outputs, targets, device),
                    None => loss.per_mixed_sample(outputs, (part.targets, part.mixed), device),
                })
            }
            Objective::Input => {
                let rows = if is_processor(device) {
                    let data = TensorData::new(part.inputs.x.to_vec(), outputs.dims());
                    Tensor::from_data(data, device)
                } else if device.is_autodiff() {
                    input.rows().autodiff()
                } else {
                    input.rows().inner()
                };
                let difference = outputs - rows;
                let squares = difference.clone() * difference;
                Some(squares.mean_dim(1).reshape([part.rows()]))
            }
            Objective::NextToken => {
                if let Some(next) = input
                    .tokens
                    .as_ref()
                    .and_then(|tokens| tokens.next.as_ref())
                {
                    let some = input::losses(self.model.objective(), part) > 0;
                    return some.then(|| loss.per_position(outputs, next.on(device)));
                }
                let next = input::next_tokens(part);
                if next.ids.is_empty() {
                    return None;
                }
                let outputs = match next.places {
                    Some(places) => {
                        let count = places.len();
                        let places = Tensor::upload(TensorData::new(places, [count]), device);
                        outputs.select(0, places)
                    }
                    None => outputs,
                };
                let targets = Targets::Classes(&next.ids);
                Some(loss.per_sample(outputs, targets, device))
            }
        }
    }

    /// One flat tensor per parameter and buffer on the device, which parts and batches share.
    pub(crate) fn weights(&self, bucket: &[f32]) -> Vec<Tensor<1>> {
        let tensor = |values: &[f32]| {
            Tensor::upload(
                TensorData::new(values.to_vec(), [values.len()]),
                &self.device,
            )
        };
        let entries = self.model.layout().entries().iter();
        entries.map(|p| tensor(&bucket[p.range.clone()])).collect()
    }
}

#[cfg(test)]
mod tests;
