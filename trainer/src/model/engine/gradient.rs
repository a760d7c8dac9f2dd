//! Losses and the gradient of a batch.

use std::{ops::Range, sync::Arc, thread};

use burn::tensor::Tensor;

use super::{
    ModelEngine,
    sections::{Gathering, Sections, add},
};
use crate::{
    data::samples::Samples,
    device::numbers,
    float_casts::{exact_len, single},
    model::{
        input,
        interface::Input,
        layers::{self, Ghosts, Harvest, Pass, Training},
    },
    optim::loss,
    parallel::Tree,
    random::Stream,
};

/// Result of a batch in training, besides the gradient.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Computed {
    /// Loss of each row, or of each token that is predicted.
    pub(crate) losses: Vec<f32>,
    /// Their sum.
    pub(crate) loss_sum: f64,
    /// The same sum without label smoothing, as validation measures it.
    pub(crate) unsmoothed_sum: f64,
    /// Divisor of the sum for their mean; 0 where nothing is predicted.
    pub(crate) weight: f64,
    /// Divisor of the gradient, above 0.
    pub(crate) nominal: f64,
    /// Observed values of the buffers.
    pub(crate) buffers: Vec<f32>,
}

/// Result of a forward pass in training.
#[derive(Debug)]
pub(super) struct ForwardPass {
    pub(super) input: Input,
    pub(super) outputs: Tensor<2>,
    /// Observed values of buffers, by their number in the layout.
    pub(super) observed: Vec<(usize, Tensor<1>)>,
}

/// Sums over parts.
#[derive(Debug)]
struct PartSums {
    loss: f64,
    unsmoothed: f64,
    weight: f64,
    /// Of each part, times its share of the global batch's rows.
    buffers: Vec<f32>,
}

impl PartSums {
    fn add(&mut self, other: Self) {
        self.loss += other.loss;
        self.unsmoothed += other.unsmoothed;
        self.weight += other.weight;
        add(&mut self.buffers, &other.buffers);
    }
}

impl ModelEngine {
    /// Computes the loss of each row, or of each predicted token, and writes the gradient of their sum over
    /// [`Computed::nominal`] into `gradient`.
    ///
    /// `dropout` is the step's random stream. The gradient is that of the mean times `loss_scale`; the losses are not
    /// scaled.
    pub(crate) fn loss_and_gradient(
        &self,
        bucket: &[f32],
        samples: Samples<'_>,
        (dropout, loss_scale): (Stream, f64),
        gradient: &mut [f32],
    ) -> Computed {
        let one = Sections::one(self.model.layout());
        let nobody = None::<(fn(usize, &mut [f32]), fn())>;
        self.loss_and_sections(
            (bucket, &self.weights(bucket)),
            samples,
            (dropout, loss_scale),
            gradient,
            one,
            nobody,
        )
    }

    /// The same, and calls the first of the `listener` with each of `sections` of the gradient, by
    /// its number, as soon as it is complete, while the backward pass continues in the layers
    /// before. It is called in the order of the sections, on a thread of its own, and its writes to
    /// a section stay in `gradient`.
    ///
    /// The second of the `listener` is called, on this thread, once all is computed, before the last sections are given.
    ///
    /// A section of parameters that are frozen, or took no part in the outputs, is 0, and so are all where there are no
    /// rows.
    ///
    /// The weights are on the device, one flat tensor per entry of the layout; of `bucket` only the buffers are read.
    pub(crate) fn loss_and_sections(
        &self,
        weights: (&[f32], &[Tensor<1>]),
        samples: Samples<'_>,
        (dropout, loss_scale): (Stream, f64),
        gradient: &mut [f32],
        sections: Sections,
        listener: Option<(impl FnMut(usize, &mut [f32]) + Send, impl FnOnce())>,
    ) -> Computed {
        let parts = self.cut.parts(samples, self.model.layout().len());
        let (gathering, complete) = sections.gather(parts.len());
        gradient.fill(0.0);
        let compute =
            |gathering| self.in_parts(weights, (samples, &parts), (dropout, loss_scale), gathering);
        let Some((give, computed_all)) = listener else {
            let computed = compute(gathering);
            complete.write(gradient, |_, _| ());
            return computed;
        };
        thread::scope(|scope| {
            scope.spawn(|| complete.write(gradient, give));
            let computed = compute(gathering);
            computed_all();
            computed
        })
    }

    /// Computes the parts of a batch, whose gradients go to `gathering`.
    fn in_parts(
        &self,
        (bucket, weights): (&[f32], &[Tensor<1>]),
        (samples, parts): (Samples<'_>, &[Range<usize>]),
        (dropout, loss_scale): (Stream, f64),
        gathering: Arc<Gathering>,
    ) -> Computed {
        let nominal = self.nominal(samples);
        let ghosts = self.cut.ghosts(samples, self.model.layout().len());
        let work = |number: usize, part: Samples<'_>| {
            let harvest = Arc::clone(&gathering).harvest(number);
            let scale = nominal / loss_scale;
            let drawn = (dropout, ghosts);
            self.part_step((bucket, weights), part, scale, drawn, harvest)
        };
        for (number, _) in (0..).zip(parts).filter(|(_, part)| part.is_empty()) {
            gathering.put_nothing(number);
        }
        let mut losses = Vec::with_capacity(samples.rows());
        let mut sums = Tree::default();
        self.workers.for_each_part(samples, parts, work, |part| {
            let part = part.map(|(of_part, sums)| {
                losses.extend(of_part);
                sums
            });
            sums.push(part, PartSums::add);
        });
        let mut buffers = vec![0.0; bucket.len() - self.model.layout().trained_len()];
        let sums = sums.finish(PartSums::add);
        if let Some(sums) = &sums {
            add(&mut buffers, &sums.buffers);
        }
        let [loss_sum, unsmoothed_sum, weight] =
            sums.map_or([0.0; 3], |sums| [sums.loss, sums.unsmoothed, sums.weight]);
        Computed {
            losses,
            loss_sum,
            unsmoothed_sum,
            weight,
            nominal,
            buffers,
        }
    }

    /// The forward pass of a part of a batch in training, whose gradients will go to `harvest`.
    pub(super) fn forward_part(
        &self,
        weights: &[Tensor<1>],
        part: Samples<'_>,
        (dropout, ghosts): (Stream, Ghosts),
        harvest: &Harvest,
    ) -> ForwardPass {
        let training = Training {
            stream: dropout,
            first_row: part.first_row(),
            ghosts,
        };
        let layout = self.model.layout();
        let device = self.device.clone().autodiff();
        let weights: Vec<Tensor<1>> = weights
            .iter()
            .enumerate()
            .map(|(i, weight)| {
                let weight = weight.clone().autodiff();
                if i < layout.trained() && self.passes.trains(i) {
                    weight.require_grad()
                } else {
                    weight
                }
            })
            .collect();
        let input = input::tensors(part, &self.normalisation, &device);
        let mut pass = Pass::new(layout, &weights, Some(training))
            .with_settings(&self.passes)
            .with_harvest(harvest);
        let outputs = self.model.forward(&mut pass, &input);
        harvest.forward_done();
        ForwardPass {
            input,
            outputs,
            observed: pass.into_observed(),
        }
    }

    /// Losses of a part of a batch, and what the part adds to the step; the gradient of their sum over `nominal` goes to
    /// `harvest`.
    fn part_step(
        &self,
        (bucket, weights): (&[f32], &[Tensor<1>]),
        part: Samples<'_>,
        nominal: f64,
        drawn: (Stream, Ghosts),
        harvest: Harvest,
    ) -> (Vec<f32>, PartSums) {
        let device = self.device.clone().autodiff();
        let ForwardPass {
            input,
            outputs,
            observed,
        } = self.forward_part(weights, part, drawn, &harvest);
        let of_part = (part, &input);
        let share = single(exact_len(part.rows()) / exact_len(part.global_rows()));
        let mut buffers = layers::observed_in(self.model.layout(), observed, bucket);
        buffers.iter_mut().for_each(|value| *value *= share);
        let unsmoothed = self.smooths().then(|| {
            let outputs = outputs.clone().inner();
            let losses = self.losses(&self.measured, outputs, of_part, &self.device);
            losses.map_or(0.0, |losses| loss::sum(&numbers(losses)))
        });
        let mut values = Vec::new();
        if let Some(losses) = self.losses(&self.loss, outputs, of_part, &device) {
            values = numbers(losses.clone().inner());
            // All gradients that are wanted go to the harvest.
            drop((losses.sum() / nominal).backward());
        }
        harvest.backward_done();
        let loss = loss::sum(&values);
        let sums = PartSums {
            loss,
            unsmoothed: unsmoothed.unwrap_or(loss),
            weight: self.weight(part),
            buffers,
        };
        (values, sums)
    }
}
