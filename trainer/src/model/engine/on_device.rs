//! Losses and the gradient of a batch that stay on the device.
//!
//! Parts, where the configuration asks for some, are computed one after the other and added up in their order.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use burn::tensor::Tensor;

use super::ModelEngine;
use crate::{
    data::samples::Samples,
    float_casts::{exact_len, single},
    model::layers::Harvest,
    optim::optimizer,
    random::Stream,
};

/// Result of a batch in training, on the device but for the counts.
#[derive(Debug)]
pub(crate) struct OnDevice {
    /// Gradient of each parameter that has one, by its number in the layout; empty where a sink took them.
    pub(crate) gradients: BTreeMap<usize, Tensor<1>>,
    /// Losses of the rows or predicted tokens of each part.
    pub(crate) losses: Vec<Tensor<1>>,
    /// Sum without label smoothing, `[1]`, where there is some.
    pub(crate) unsmoothed_sum: Option<Tensor<1>>,
    /// Observed values of the buffers, by their number in the layout.
    pub(crate) observed: BTreeMap<usize, Tensor<1>>,
    /// Divisor of the sum of the losses for their mean; 0 where nothing is predicted.
    pub(crate) weight: f64,
    /// Divisor of the gradient, above 0.
    pub(crate) nominal: f64,
}

/// Callback for each parameter, by its number in the layout, with its gradient of all parts: during the backward pass of the
/// last part, as soon as that is complete. `None` where all of it is 0.
pub(crate) type GradientSink = Box<dyn FnMut(usize, Option<Tensor<1>>) + Send>;

/// Adds tensors to a sum, by number.
fn add_to(sums: &mut BTreeMap<usize, Tensor<1>>, number: usize, value: Tensor<1>) {
    let sum = match sums.remove(&number) {
        Some(sum) => sum + value,
        None => value,
    };
    sums.insert(number, sum);
}

/// Gradients of a part.
type PartGradients = Arc<Mutex<Vec<(usize, Tensor<1>)>>>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Collects the gradients of a part.
fn harvest_of_part(found: &PartGradients, parameters: usize) -> Harvest {
    let found = Arc::clone(found);
    Harvest::new(parameters, move |parameter, gradient| {
        let gradient = gradient.map(|gradient| (parameter, gradient));
        locked(&found).extend(gradient);
    })
}

/// Gives the gradients of the last part, and of those before it, to `sink`.
fn harvest_into(
    mut sink: GradientSink,
    parameters: usize,
    mut before: BTreeMap<usize, Tensor<1>>,
) -> Harvest {
    Harvest::new(parameters, move |parameter, gradient| {
        let sum = match (before.remove(&parameter), gradient) {
            (Some(before), Some(gradient)) => Some(before + gradient),
            (before, gradient) => before.or(gradient),
        };
        sink(parameter, sum);
    })
}

impl ModelEngine {
    /// As [`loss_and_gradient`](Self::loss_and_gradient), with weights that are on the device, one flat tensor per entry of
    /// the layout, and without waiting for any result. `sink` gets the gradients.
    pub(crate) fn compute_on_device(
        &self,
        weights: &[Tensor<1>],
        samples: Samples<'_>,
        randomness: (Stream, f64),
        mut sink: Option<GradientSink>,
    ) -> OnDevice {
        let layout = self.model.layout();
        let ghosts = self.cut.ghosts(samples, layout.len());
        let nominal = self.nominal(samples);
        let mut computed = OnDevice {
            gradients: BTreeMap::new(),
            losses: Vec::new(),
            unsmoothed_sum: None,
            observed: BTreeMap::new(),
            weight: 0.0,
            nominal,
        };
        let (dropout, loss_scale) = randomness;
        let parts = self.cut.parts(samples, layout.len()).into_iter();
        let mut parts = parts.filter(|rows| !rows.is_empty()).peekable();
        while let Some(rows) = parts.next() {
            let part = samples.slice(rows);
            let scale = nominal / loss_scale;
            let found = Arc::default();
            let harvest = match sink.take_if(|_| parts.peek().is_none()) {
                Some(sink) => {
                    harvest_into(sink, layout.trained(), mem::take(&mut computed.gradients))
                }
                None => harvest_of_part(&found, layout.trained()),
            };
            let drawn = (dropout, ghosts);
            self.add_part(weights, part, scale, drawn, harvest, &mut computed);
            for (parameter, gradient) in mem::take(&mut *locked(&found)) {
                add_to(&mut computed.gradients, parameter, gradient);
            }
        }
        if let Some(mut sink) = sink {
            // A rank without rows.
            (0..layout.trained()).for_each(|parameter| sink(parameter, None));
        }
        computed
    }

    /// Adds a part of a batch, whose gradients go to `harvest`.
    fn add_part(
        &self,
        weights: &[Tensor<1>],
        part: Samples<'_>,
        nominal: f64,
        drawn: (Stream, crate::model::layers::Ghosts),
        harvest: Harvest,
        computed: &mut OnDevice,
    ) {
        let layout = self.model.layout();
        let forward = self.forward_part(weights, part, drawn, &harvest);
        let of_part = (part, &forward.input);
        if self.smooths() {
            let outputs = forward.outputs.clone().inner();
            if let Some(losses) = self.losses(&self.measured, outputs, of_part, &self.device) {
                let of_part = optimizer::total(losses);
                computed.unsmoothed_sum = Some(match computed.unsmoothed_sum.take() {
                    Some(sum) => sum + of_part,
                    None => of_part,
                });
            }
        }
        let device = self.device.clone().autodiff();
        if let Some(losses) = self.losses(&self.loss, forward.outputs, of_part, &device) {
            computed.losses.push(losses.clone().inner());
            drop((losses.sum() / nominal).backward());
        }
        harvest.backward_done();
        computed.weight += self.weight(part);
        let share = single(exact_len(part.rows()) / exact_len(part.global_rows()));
        let mut observed: BTreeMap<_, _> = forward.observed.into_iter().collect();
        for (number, weight) in weights.iter().enumerate().skip(layout.trained()) {
            let value = observed.remove(&number).unwrap_or_else(|| weight.clone());
            add_to(&mut computed.observed, number, value * share);
        }
    }
}
