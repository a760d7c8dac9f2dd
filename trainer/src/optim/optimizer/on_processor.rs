//! Optimizer of a bucket in host memory.

use feedline_schemas::config::OptimizerConfig;

use super::{
    algorithm::{Algorithm, OptimizedParameter, Penalty, Update},
    selection::{algorithm, members, state_layout},
    state::StateBucket,
};
use crate::{float_casts::single, model::interface::Parameter};

/// An optimizer and its state.
#[derive(Debug)]
pub(crate) struct Optimizer {
    algorithm: Box<dyn Algorithm>,
    members: Vec<OptimizedParameter>,
    state: Vec<StateBucket>,
}

impl Optimizer {
    /// An optimizer of these parameters before its first step. `config` is what [`resolve`](super::resolve) returned.
    pub(crate) fn new(config: &OptimizerConfig, parameters: &[Parameter]) -> Self {
        let zeros = |(name, len)| StateBucket {
            name,
            values: vec![0.0; len],
        };
        let state = state_layout(config, parameters)
            .into_iter()
            .map(zeros)
            .collect();
        Self::resume(config, parameters, state)
    }

    /// An optimizer that continues from saved state.
    ///
    /// # Panics
    /// When the state is not of its [`state_layout`].
    pub(crate) fn resume(
        config: &OptimizerConfig,
        parameters: &[Parameter],
        state: Vec<StateBucket>,
    ) -> Self {
        let found = state.iter().map(|s| (s.name.clone(), s.values.len()));
        assert!(
            found.eq(state_layout(config, parameters)),
            "state has the optimizer's layout"
        );
        let algorithm = algorithm(config);
        Self {
            members: members(config, parameters, &*algorithm),
            algorithm,
            state,
        }
    }

    /// The state after the last step.
    pub(crate) fn state(&self) -> &[StateBucket] {
        &self.state
    }

    /// The state, to be written by what continues it elsewhere.
    pub(crate) fn state_mut(&mut self) -> &mut [StateBucket] {
        &mut self.state
    }

    /// Takes step number `step` (the first is 1) along `gradient * gradient_scale` with learning rate `rate`.
    ///
    /// # Panics
    /// When the buckets differ in length, or `step` is 0.
    pub(crate) fn step(
        &mut self,
        bucket: &mut [f32],
        gradient: &[f32],
        step: u64,
        rate: f64,
        gradient_scale: f64,
    ) {
        assert!(step > 0, "steps count from 1");
        let len = self.members.last().map_or(0, |member| member.range.end);
        assert!(
            bucket.len() == gradient.len() && bucket.len() >= len,
            "one bucket length"
        );
        for member in &self.members {
            let update = Update {
                gradient: &gradient[member.range.clone()],
                penalty: Penalty {
                    scale: single(gradient_scale),
                    l2: single(member.l2),
                    l1: single(member.l1),
                },
                shape: &member.shape,
                step,
                rate: rate * member.rate_factor,
                weight_decay: member.weight_decay,
                adapts: member.adapts,
                is_hidden: member.is_hidden,
            };
            let parts = self.state.iter_mut().zip(&member.state);
            let mut state: Vec<&mut [f32]> = parts
                .map(|(bucket, range)| &mut bucket.values[range.clone()])
                .collect();
            let weights = &mut bucket[member.range.clone()];
            self.algorithm.step(&update, weights, &mut state);
        }
    }
}
