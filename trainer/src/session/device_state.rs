//! Weights, optimizer and averages that stay on a device for a whole run.
//!
//! A step orders its work and waits for nothing: loss, norm of the gradient and whether both were finite are read while the
//! next batch is computed. An update by numbers that are not finite is suppressed by the device itself, whenever the host
//! learns of it. The buckets in host memory are copies: they are right after [`DeviceState::download`].

mod batch_sums;
mod rank_shares;

use burn::tensor::{Device, Tensor};
use feedline_schemas::{config::OptimizerConfig, ids::Step};

pub(crate) use self::{
    batch_sums::BatchSums,
    rank_shares::{RankShares, ShareExchange},
};
use crate::{
    device::{
        DeviceRead, DeviceReader,
        kernels::{GradientScale, JudgedSums, place},
        read,
    },
    error::Error,
    float_casts::single,
    model::{
        engine::{ModelEngine, OnDevice},
        interface::Parameter,
        packed_bucket::Pack,
    },
    optim::{
        average::Average,
        optimizer::{self, DeviceOptimizer, Optimizer, StateBucket, StepVerdict},
    },
};

/// State of a run on a device.
#[derive(Debug)]
pub(crate) struct DeviceState {
    device: Device,
    /// By entry of the layout.
    places: Vec<StateEntry>,
    /// All that is trained if ranks exchange their shares on the device, else the parameters that other ranks move.
    of_others: Pack,
    shares: Option<RankShares>,
    frozen: Pack,
    buffers: Pack,
    optimizer: DeviceOptimizer,
    reader: DeviceReader,
    /// The parameters that are not trained.
    kept: Tensor<1>,
    weights: PackedNumbers,
    average: Option<PackedNumbers>,
    /// True when the host has the same numbers.
    downloaded: bool,
}

/// Kind of an entry of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryKind {
    Trained,
    /// Trained, and moved by the optimizer of another rank.
    OfOthers,
    Frozen,
    Buffer,
}

/// Place of an entry of the layout.
#[derive(Clone, Copy, Debug)]
struct StateEntry {
    kind: EntryKind,
    /// Its number in the pack of its kind.
    number: usize,
}

/// The numbers of a bucket that change, packed.
#[derive(Clone, Debug)]
struct PackedNumbers {
    trained: Tensor<1>,
    of_others: Tensor<1>,
    buffers: Tensor<1>,
}

/// A step's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stepping<'a> {
    /// Number of the step; the first is 1.
    pub(crate) number: u64,
    /// Learning rate.
    pub(crate) rate: f64,
    /// Divisor of the computed gradient.
    pub(crate) nominal: f64,
    /// Scale of the loss that it was computed with.
    pub(crate) loss_scale: f64,
    /// Factor that makes of the computed gradient that of the mean. Of several ranks their sums have the real one.
    pub(crate) factor: f64,
    /// Longest gradient of the mean; 0 for any length.
    pub(crate) clip_norm: f64,
    /// Share of the way that the buffers move.
    pub(crate) buffer_share: f32,
    /// The average of the host, for its decay.
    pub(crate) average: Option<&'a Average>,
}

impl Stepping<'_> {
    const fn gradient_scale(&self) -> GradientScale {
        GradientScale {
            factor: single(self.factor),
            nominal: single(self.nominal),
            loss_scale: single(self.loss_scale),
            clip_norm: single(self.clip_norm),
        }
    }
}

/// Numbers of a step that are on their way to the host.
#[derive(Debug)]
pub(crate) struct StepReport {
    reading: DeviceRead,
    /// Losses of each part, which are read only when something is not finite.
    losses: Vec<Tensor<1>>,
}

/// Numbers of a step.
#[derive(Debug)]
pub(crate) struct StepNumbers {
    /// Sum of the losses.
    pub(crate) loss_sum: f64,
    /// The same without label smoothing.
    pub(crate) unsmoothed_sum: f64,
    /// Norm of the computed gradient.
    pub(crate) norm: f64,
    /// Sum of the observed values of the buffers.
    pub(crate) buffers: f64,
    /// False where the device left the step out because a number was not finite.
    pub(crate) taken: bool,
    /// Weight of the losses of several ranks, and the number of ranks that are to stop.
    pub(crate) of_ranks: Option<[f64; 2]>,
    losses: Vec<Tensor<1>>,
}

impl StepReport {
    /// Waits for the numbers.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn finish(self) -> Result<StepNumbers, Error> {
        let numbers: Vec<f64> = self.reading.finish()?.into_iter().map(f64::from).collect();
        let of_ranks = match numbers.len() {
            place::OF_RANKS => Some([numbers[place::WEIGHT], numbers[place::STOPS]]),
            _ => None,
        };
        Ok(StepNumbers {
            loss_sum: numbers[place::LOSS],
            unsmoothed_sum: numbers[place::UNSMOOTHED],
            norm: numbers[place::NORM],
            buffers: numbers[place::BUFFERS],
            taken: numbers[place::GOOD] > 0.5,
            of_ranks,
            losses: self.losses,
        })
    }
}

impl StepNumbers {
    /// The loss of each row or predicted token.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn losses(&self) -> Result<Vec<f32>, Error> {
        let parts = self.losses.iter().cloned().map(read);
        Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
    }
}

impl DeviceState {
    /// Takes the numbers of the host to the engine's device, where this rank moves the parameters `own`. `shares` are those of
    /// ranks that exchange them on their devices.
    pub(crate) fn upload(
        engine: &ModelEngine,
        (config, own, shares): (&OptimizerConfig, &[Parameter], Option<RankShares>),
        bucket: &[f32],
        (optimizer, average): (&Optimizer, Option<&Average>),
    ) -> Self {
        let device = engine.device();
        let layout = engine.model().layout();
        let trained = engine.trained();
        let optimizer = DeviceOptimizer::new(config, own, optimizer.state(), device);
        let mut counts = [0; 4];
        let mut trained_count = 0;
        let mut ranges = [const { Vec::new() }; 4];
        let places = layout.entries().iter().enumerate().map(|(i, entry)| {
            let is_in = |parameters: &[Parameter]| {
                let mut parameters = parameters.iter();
                parameters.any(|parameter| parameter.range == entry.range)
            };
            let kind = if i >= layout.trained() {
                EntryKind::Buffer
            } else if is_in(own) {
                EntryKind::Trained
            } else if is_in(&trained) {
                EntryKind::OfOthers
            } else {
                EntryKind::Frozen
            };
            ranges[kind as usize].push(entry.range.clone());
            counts[kind as usize] += 1;
            let trained = trained_count;
            trained_count += usize::from(matches!(kind, EntryKind::Trained | EntryKind::OfOthers));
            let number = match kind {
                EntryKind::OfOthers if shares.is_some() => trained,
                _ => counts[kind as usize] - 1,
            };
            StateEntry { kind, number }
        });
        let places: Vec<_> = places.collect();
        let [_, of_others, frozen, buffers] = ranges.map(Pack::new);
        let of_others = match &shares {
            Some(shares) => shares.pack().clone(),
            None => of_others,
        };
        let numbers = |bucket: &[f32]| PackedNumbers {
            trained: optimizer.pack().upload(bucket, device),
            of_others: of_others.upload(bucket, device),
            buffers: buffers.upload(bucket, device),
        };
        let weights = numbers(bucket);
        Self {
            reader: DeviceReader::of(&weights.trained),
            kept: frozen.upload(bucket, device),
            weights,
            average: average.map(|average| numbers(average.weights())),
            downloaded: true,
            device: device.clone(),
            places,
            of_others,
            shares,
            frozen,
            buffers,
            optimizer,
        }
    }

    /// One flat tensor per entry of the layout.
    pub(crate) fn weights(&self) -> Vec<Tensor<1>> {
        let PackedNumbers {
            trained,
            of_others,
            buffers,
        } = &self.weights;
        let places = self.places.iter();
        let views = places.map(|&StateEntry { kind, number }| match kind {
            EntryKind::Trained => self.optimizer.pack().view(trained, number),
            EntryKind::OfOthers => self.of_others.view(of_others, number),
            EntryKind::Frozen => self.frozen.view(&self.kept, number),
            EntryKind::Buffer => self.buffers.view(buffers, number),
        });
        views.collect()
    }

    /// The gradient of a batch, packed, whose parts are taken out of `computed`.
    pub(crate) fn gradient(&self, computed: &mut OnDevice) -> Tensor<1> {
        let found = std::mem::take(&mut computed.gradients).into_iter();
        let found = found.map(|(parameter, gradient)| (self.places[parameter].number, gradient));
        self.optimizer.pack().join(found, &self.device)
    }

    /// The gradient of what this rank moves, from its sections in bucket order.
    pub(crate) fn own_gradient(&self, sections: Vec<Tensor<1>>) -> Tensor<1> {
        if sections.is_empty() {
            return Tensor::zeros([self.optimizer.pack().len()], &self.device);
        }
        Tensor::cat(sections, 0)
    }

    /// Sums of what was computed of a batch.
    pub(crate) fn sums(&self, computed: &mut OnDevice) -> BatchSums {
        let sums = computed
            .losses
            .iter()
            .map(|losses| optimizer::total(losses.clone()));
        let loss_sum = sums
            .reduce(|sum, part| sum + part)
            .unwrap_or_else(|| self.zero());
        let unsmoothed = computed.unsmoothed_sum.take();
        BatchSums {
            unsmoothed_sum: unsmoothed.unwrap_or_else(|| loss_sum.clone()),
            loss_sum,
            observed: self.observed(computed),
            of_ranks: None,
        }
    }

    /// Takes a step along the gradient of what this rank moves, unless a number of the batch is not finite. `losses` are those of
    /// each row. Ranks that move shares of the parameters exchange what each needs of the others by `exchange`.
    ///
    /// # Errors
    /// Of the exchange.
    pub(crate) fn step(
        &mut self,
        (gradient, sums): (Tensor<1>, BatchSums),
        losses: Vec<Tensor<1>>,
        stepping: Stepping<'_>,
        mut exchange: Option<&mut dyn ShareExchange>,
    ) -> Result<StepReport, Error> {
        self.downloaded = false;
        let BatchSums {
            loss_sum,
            unsmoothed_sum,
            observed,
            of_ranks,
        } = sums;
        let norm = self.norm(&gradient, exchange.as_deref_mut())?;
        let of_buffers = observed
            .clone()
            .map_or_else(|| self.zero(), optimizer::total);
        let sums = JudgedSums {
            loss: loss_sum,
            unsmoothed: unsmoothed_sum,
            norm,
            buffers: of_buffers,
            of_ranks: of_ranks.map(|of| [of.weight, of.stops]),
        };
        let verdict = StepVerdict::judge(sums, stepping.gradient_scale());
        let (number, rate) = (stepping.number, stepping.rate);
        let weights = &self.weights.trained;
        self.weights.trained = self
            .optimizer
            .step(weights, gradient, &verdict, number, rate);
        if let Some(observed) = observed {
            let buffers = &self.weights.buffers;
            let moved = buffers.clone() + (observed - buffers.clone()) * stepping.buffer_share;
            self.weights.buffers = optimizer::chosen(&verdict.good(), moved, buffers.clone());
        }
        self.gather_weights(exchange)?;
        self.update_average(Some(&verdict), number, stepping.average);
        Ok(StepReport {
            reading: self.reader.begin(verdict.numbers().clone()),
            losses,
        })
    }

    fn zero(&self) -> Tensor<1> {
        Tensor::zeros([1], &self.device)
    }

    /// Takes step number `number` along `scale` times a gradient of the host, which is finite. The buffers become those of
    /// the host's `bucket`.
    pub(crate) fn step_along(
        &mut self,
        (gradient, scale): (&[f32], f64),
        bucket: &[f32],
        number: u64,
        rate: f64,
    ) {
        self.downloaded = false;
        let gradient = self.optimizer.pack().upload(gradient, &self.device);
        let verdict = StepVerdict::taken(scale, &self.device);
        let weights = &self.weights.trained;
        self.weights.trained = self
            .optimizer
            .step(weights, gradient, &verdict, number, rate);
        if self.buffers.entries() > 0 {
            self.weights.buffers = self.buffers.upload(bucket, &self.device);
        }
    }

    /// Writes the weights that this rank moves to the host's bucket.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn download_own(&self, bucket: &mut [f32]) -> Result<(), Error> {
        let own = read(self.weights.trained.clone())?;
        self.optimizer.pack().unpack(&own, bucket);
        Ok(())
    }

    /// Takes the weights that other ranks have moved from the host's bucket.
    pub(crate) fn take_others(&mut self, bucket: &[f32]) {
        self.weights.of_others = self.of_others.upload(bucket, &self.device);
    }

    /// The norm of the gradient of all that is moved.
    fn norm(
        &self,
        gradient: &Tensor<1>,
        exchange: Option<&mut (dyn ShareExchange + '_)>,
    ) -> Result<Tensor<1>, Error> {
        let norm = optimizer::length(gradient.clone());
        let Some((shares, exchange)) = self.shares.as_ref().zip(exchange) else {
            return Ok(norm);
        };
        let norms = exchange.sum(shares.with_number(norm))?;
        Ok(optimizer::length(norms))
    }

    /// Takes the weights that other ranks have moved, and gives them this rank's.
    fn gather_weights(
        &mut self,
        exchange: Option<&mut (dyn ShareExchange + '_)>,
    ) -> Result<(), Error> {
        if let Some((shares, exchange)) = self.shares.as_ref().zip(exchange) {
            let own = shares.with_own(self.weights.trained.clone());
            self.weights.of_others = exchange.gather(own)?;
        }
        Ok(())
    }

    /// Values of the buffers that a batch observed, packed; `None` for a model without any.
    fn observed(&self, computed: &OnDevice) -> Option<Tensor<1>> {
        let found = computed
            .observed
            .iter()
            .map(|(number, value)| (self.places[*number].number, value.clone()));
        (self.buffers.entries() > 0).then(|| self.buffers.join(found, &self.device))
    }

    /// Moves the average, where one is kept, after step number `number`, if that was taken by the verdict, if there is one.
    pub(crate) fn update_average(
        &mut self,
        verdict: Option<&StepVerdict>,
        number: u64,
        of_host: Option<&Average>,
    ) {
        let Some((average, of_host)) = self.average.as_mut().zip(of_host) else {
            return;
        };
        let share = of_host.share(Step::new(number));
        let good = verdict.map(StepVerdict::good);
        for (average, weights) in [
            (&mut average.trained, &self.weights.trained),
            (&mut average.of_others, &self.weights.of_others),
            (&mut average.buffers, &self.weights.buffers),
        ] {
            let moved = average.clone() + (weights.clone() - average.clone()) * share;
            *average = match &good {
                Some(good) => optimizer::chosen(good, moved, average.clone()),
                None => moved,
            };
        }
    }

    /// Writes the numbers to those of the host, if a step was taken since that was last done.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn download(
        &mut self,
        bucket: &mut [f32],
        state: &mut [StateBucket],
        average: Option<&mut [f32]>,
    ) -> Result<(), Error> {
        if self.downloaded {
            return Ok(());
        }
        let write = |numbers: &PackedNumbers, bucket: &mut [f32]| -> Result<(), Error> {
            let trained = read(numbers.trained.clone())?;
            self.optimizer.pack().unpack(&trained, bucket);
            for (pack, numbers) in [
                (&self.of_others, &numbers.of_others),
                (&self.buffers, &numbers.buffers),
            ] {
                if pack.entries() > 0 {
                    pack.unpack(&read(numbers.clone())?, bucket);
                }
            }
            Ok(())
        };
        write(&self.weights, bucket)?;
        if let Some((numbers, average)) = self.average.as_ref().zip(average) {
            write(numbers, average)?;
        }
        self.optimizer.download(state)?;
        self.downloaded = true;
        Ok(())
    }
}
