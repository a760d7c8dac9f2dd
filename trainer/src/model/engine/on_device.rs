//! Losses and the gradient of a batch that stay on the device.
//!
//! Parts, where the configuration asks for some, are computed one after the other and added up in their order.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
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
    /// Gradient of each parameter that has one, by its number in the layout.
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

/// Adds tensors to a sum, by number.
fn add_to(sums: &mut BTreeMap<usize, Tensor<1>>, number: usize, value: Tensor<1>) {
    let sum = match sums.remove(&number) {
        Some(sum) => sum + value,
        None => value,
    };
    sums.insert(number, sum);
}

impl ModelEngine {
    /// As [`loss_and_gradient`](Self::loss_and_gradient), with weights that are on the device, one flat tensor per entry of
    /// the layout, and without waiting for any result.
    pub(crate) fn compute_on_device(
        &self,
        weights: &[Tensor<1>],
        samples: Samples<'_>,
        randomness: (Stream, f64),
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
        for rows in self.cut.parts(samples, layout.len()) {
            if rows.is_empty() {
                continue;
            }
            let part = samples.slice(rows);
            let scale = nominal / loss_scale;
            self.add_part(weights, part, scale, (dropout, ghosts), &mut computed);
        }
        computed
    }

    /// Adds a part of a batch.
    fn add_part(
        &self,
        weights: &[Tensor<1>],
        part: Samples<'_>,
        nominal: f64,
        drawn: (Stream, crate::model::layers::Ghosts),
        computed: &mut OnDevice,
    ) {
        let layout = self.model.layout();
        let found = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&found);
        let harvest = Harvest::new(layout.trained(), move |parameter, gradient| {
            if let Some(gradient) = gradient {
                let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
                taken.push((parameter, gradient));
            }
        });
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
        let found = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
        for (parameter, gradient) in found {
            add_to(&mut computed.gradients, parameter, gradient);
        }
    }
}
