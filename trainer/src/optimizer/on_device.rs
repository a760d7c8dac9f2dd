//! The same optimizers in operations on tensors, for weights that stay on a device.
//!
//! Weights, gradient and each kind of state are one flat tensor, a [`Pack`] of the trained parameters. Numbers are f32, and
//! sums are in an order of their own, so a step is that of the processor up to rounding; on one device it is the same bits
//! each time. A step that must not be taken is suppressed by the device itself: whoever asks for it need not know yet.

use std::fmt::Debug;

use burn::tensor::{Bool, Device, Tensor};
use feedline_schemas::config::OptimizerConfig;

use super::{Algorithm, Member, Optimizer, StateBucket, settings};
use crate::{
    device::read,
    error::Error,
    model::Parameter,
    pack::{Pack, Spread},
};

/// An optimizer whose state is on a device.
#[derive(Debug)]
pub(crate) struct DeviceOptimizer {
    algorithm: Box<dyn Algorithm>,
    members: Vec<Member>,
    /// Places of the trained parameters.
    pack: Pack,
    /// Each kind of state, and the places of its numbers.
    state: Vec<(Pack, Tensor<1>)>,
    /// Factors of the learning rate, weight decay times these factors, and penalties.
    rate_factor: Spread,
    decay: Spread,
    weight_decay: Spread,
    l2: Spread,
    l1: Spread,
}

/// A step of all parameters on a device.
#[derive(Debug)]
pub(super) struct DeviceUpdate<'a> {
    /// The gradient of the penalized loss.
    pub(super) gradient: Tensor<1>,
    /// Number of the step; the first is 1.
    pub(super) step: u64,
    /// The learning rate, without the factors of groups.
    pub(super) rate: f64,
    /// Factors of the learning rate.
    pub(super) rate_factor: &'a Spread,
    /// Weight decay.
    pub(super) weight_decay: &'a Spread,
    pub(super) members: &'a [Member],
    /// Places of the parameters.
    pub(super) pack: &'a Pack,
    /// Places of each kind of state.
    pub(super) places: &'a [Pack],
    /// Weight decay times the factors of the learning rate.
    decay: &'a Spread,
}

impl DeviceUpdate<'_> {
    /// Moves weights by decay and against `direction`.
    pub(super) fn moved(&self, weights: Tensor<1>, direction: Tensor<1>) -> Tensor<1> {
        self.decayed(weights) - self.rate_factor.times(direction, self.rate)
    }

    /// The weights after decay.
    pub(super) fn decayed(&self, weights: Tensor<1>) -> Tensor<1> {
        if self.decay.is(0.0) {
            return weights;
        }
        weights.clone() - self.decay.times(weights, self.rate)
    }

    /// Factors by `factor` of the lengths of weights and update, for each parameter whose updates follow the length of its
    /// weights; `None` for the others.
    pub(super) fn factors(
        &self,
        weights: &Tensor<1>,
        update: &Tensor<1>,
        factor: impl Fn(&Member, Tensor<1>, Tensor<1>) -> Tensor<1>,
    ) -> Vec<Option<Tensor<1>>> {
        let of_entry = |(entry, member): (usize, &Member)| {
            let adapts = member.adapts && self.pack.len_of(entry) > 0;
            adapts.then(|| {
                let [of_weights, of_update] =
                    [weights, update].map(|packed| length(self.pack.view(packed, entry)));
                factor(member, of_weights, of_update)
            })
        };
        self.members.iter().enumerate().map(of_entry).collect()
    }

    /// `update` with each parameter's part times its factor.
    pub(super) fn scaled(&self, update: &Tensor<1>, factors: Vec<Option<Tensor<1>>>) -> Tensor<1> {
        let parts = factors.into_iter().enumerate().map(|(entry, factor)| {
            let part = self.pack.view(update, entry);
            let scaled = match factor {
                Some(factor) => part * factor,
                None => part,
            };
            (entry, scaled)
        });
        self.pack.join(parts, &update.device())
    }
}

/// The Euclidean length of a vector, `[1]`. Not finite when an element is not; elements up to the largest f32 do not
/// overflow.
pub(crate) fn length(x: Tensor<1>) -> Tensor<1> {
    let largest = in_stages(x.clone().abs(), |x| x.max_dim(1)).clamp_min(f32::MIN_POSITIVE);
    let shares = x / largest.clone();
    total(shares.clone() * shares).sqrt() * largest
}

/// The sum of a vector, `[1]`, in an order that follows from its length.
pub(crate) fn total(x: Tensor<1>) -> Tensor<1> {
    in_stages(x, |x| x.sum_dim(1))
}

/// Numbers that one thread of a device takes in.
const STAGE: usize = 128;

/// Reduces runs of a vector until one number is left. The library reduces a whole vector by one thread, or by additions in
/// any order.
fn in_stages(mut x: Tensor<1>, reduce: impl Fn(Tensor<2>) -> Tensor<2>) -> Tensor<1> {
    let device = x.device();
    if x.dims() == [0] {
        return Tensor::zeros([1], &device);
    }
    while let [len] = x.dims()
        && len > 1
    {
        let rows = len.div_ceil(STAGE);
        if rows * STAGE > len {
            let place = 0..len;
            x = Tensor::zeros([rows * STAGE], &device).slice_assign([place], x);
        }
        x = reduce(x.reshape([rows, STAGE])).reshape([rows]);
    }
    x
}

/// `of / by`, or 1 where one of them is 0.
pub(super) fn trust_ratio(of: Tensor<1>, by: Tensor<1>) -> Tensor<1> {
    let known = of
        .clone()
        .greater_elem(0.0)
        .bool_and(by.clone().greater_elem(0.0));
    let ratio = of / by;
    Tensor::ones_like(&ratio).mask_where(known, ratio)
}

/// `new` where `good`, `[1]`, is true, else `old`.
pub(crate) fn chosen(good: &Tensor<1, Bool>, new: Tensor<1>, old: Tensor<1>) -> Tensor<1> {
    let all = good.clone().expand(old.dims());
    old.mask_where(all, new)
}

impl DeviceOptimizer {
    /// The optimizer of these parameters, with this state, on a device; `config` is what [`resolve`](super::resolve) returned.
    pub(crate) fn new(
        config: &OptimizerConfig,
        parameters: &[Parameter],
        state: &[StateBucket],
        device: &Device,
    ) -> Self {
        let algorithm = settings::algorithm(config);
        let members = super::members(config, parameters, &*algorithm);
        let pack = Pack::new(members.iter().map(|member| member.range.clone()));
        let of_bucket = |(i, bucket): (usize, &StateBucket)| {
            let pack = Pack::new(members.iter().map(|member| member.state[i].clone()));
            let values = pack.upload(&bucket.values, device);
            (pack, values)
        };
        let spread = |of: &dyn Fn(&Member) -> f64| pack.spread(|i| of(&members[i]), device);
        Self {
            rate_factor: spread(&|member| member.rate_factor),
            decay: spread(&|member| member.rate_factor * member.weight_decay),
            weight_decay: spread(&|member| member.weight_decay),
            l2: spread(&|member| member.l2),
            l1: spread(&|member| member.l1),
            state: state.iter().enumerate().map(of_bucket).collect(),
            algorithm,
            members,
            pack,
        }
    }

    /// Places of the parameters that it moves.
    pub(crate) const fn pack(&self) -> &Pack {
        &self.pack
    }

    /// The weights after step number `step` (the first is 1) along `gradient * scale` with learning rate `rate`, where `good`
    /// is true; else weights and state stay as they are. `scale` and `good` are `[1]`.
    pub(crate) fn step(
        &mut self,
        weights: &Tensor<1>,
        (gradient, scale): (Tensor<1>, Tensor<1>),
        good: &Tensor<1, Bool>,
        step: u64,
        rate: f64,
    ) -> Tensor<1> {
        let mut gradient = gradient * scale;
        if !self.l2.is(0.0) {
            gradient = gradient + self.l2.times(weights.clone(), 1.0);
        }
        if !self.l1.is(0.0) {
            gradient = gradient + self.l1.times(weights.clone().sign(), 1.0);
        }
        let (places, mut state): (Vec<Pack>, Vec<Tensor<1>>) = self.state.iter().cloned().unzip();
        let update = DeviceUpdate {
            gradient,
            step,
            rate,
            rate_factor: &self.rate_factor,
            weight_decay: &self.weight_decay,
            decay: &self.decay,
            members: &self.members,
            pack: &self.pack,
            places: &places,
        };
        let moved = self
            .algorithm
            .step_on_device(update, weights.clone(), &mut state);
        for ((_, held), new) in self.state.iter_mut().zip(state) {
            *held = chosen(good, new, held.clone());
        }
        chosen(good, moved, weights.clone())
    }

    /// Writes the state to the processor's buckets.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn download(&self, buckets: &mut [StateBucket]) -> Result<(), Error> {
        for ((pack, values), bucket) in self.state.iter().zip(buckets) {
            pack.unpack(&read(values.clone())?, &mut bucket.values);
        }
        Ok(())
    }
}

impl Optimizer {
    /// The state, to be written by what continues it elsewhere.
    pub(crate) fn state_mut(&mut self) -> &mut [StateBucket] {
        &mut self.state
    }
}
