//! Steps of a run whose weights stay on the device.
//!
//! The device is given the forward and backward pass of a batch before the numbers of the step before are looked at, so it has
//! work while the host looks. They are looked at before the weights move again: what the guard decides of a step is decided
//! before the next one, as on the processor. Several ranks that sum on their devices do the same: they have the same sums, so
//! each device takes the same step, and each host finds the same a step later, also that a rank is to stop. Where they hold the
//! optimizer in shares, each sums and moves its share, and gathers the weights of the others, all on the device.
//!
//! Ranks that do not sum there add up their gradients in host memory, section by section while the backward pass runs, and
//! look at the sums before the weights move. The gradient of the global batch goes back to the device, where the optimizer is.
//! Where ranks hold the optimizer in shares, the weights that a rank has moved travel to the others by host memory too.

use std::{sync::atomic::Ordering, time::Duration};

use burn::tensor::Tensor;

use super::{
    Pending, TrainSession,
    exchange::RowsOfAll,
    saves::live,
    step::{BatchOutcome, factor},
};
use crate::{
    data::samples::{Data, RankBatch, Samples},
    error::Error,
    model::engine::OnDevice,
    optim::{loss, loss_scale},
    parallel::{ExchangeTotals, Phase, Ranks, TensorOp, Wire},
    random::Stream,
    session::{
        device_state::{BatchSums, DeviceState, ShareExchange, Stepping},
        loss_guard::{self, SeenBatch, UpdateVerdict},
        section_exchange::SectionExchange,
    },
};

/// Reason that there are numbers on the device.
const COMPUTED: &str = "a batch was computed on it";

/// Exchange of ranks on their devices in the middle of a step.
struct StepExchange<'r> {
    ranks: &'r Ranks,
    /// Time of the exchanges alone.
    spent: Duration,
}

impl<'r> StepExchange<'r> {
    const fn new(ranks: &'r Ranks) -> Self {
        Self {
            ranks,
            spent: Duration::ZERO,
        }
    }

    fn exchange(&mut self, op: TensorOp, tensor: Tensor<1>) -> Result<Tensor<1>, Error> {
        let number = self.ranks.begin_tensor(op, Wire::Full, tensor);
        let (tensor, times) = self.ranks.finish_tensor(number)?;
        let mut totals = ExchangeTotals::default();
        totals.add(times);
        self.spent += totals.alone();
        Ok(tensor)
    }
}

impl ShareExchange for StepExchange<'_> {
    fn sum(&mut self, values: Tensor<1>) -> Result<Tensor<1>, Error> {
        self.exchange(TensorOp::AllReduce, values)
    }

    fn gather(&mut self, shares: Tensor<1>) -> Result<Tensor<1>, Error> {
        self.exchange(TensorOp::AllGather, shares)
    }
}

impl<D: Data> TrainSession<'_, D> {
    /// Orders a step, after the numbers of the one before were looked at.
    pub(super) fn take_on_device(&mut self, batch: &impl RankBatch) -> Result<BatchOutcome, Error> {
        let samples = batch.samples();
        if let Err(error) = self.plan.check_targets(samples, batch.keys()) {
            // What the step before has to say comes first.
            self.look()?;
            return Err(error);
        }
        // The scale of the loss follows from the step before.
        if self.position.loss_scale.is_some() {
            self.look_back()?;
        }
        let mut computed = self.compute_on_device(samples);
        // After a rollback the batch is computed again, with the weights of the checkpoint. All ranks went back; the sums of the
        // first gradient are dropped.
        while self.look_back()? == BatchOutcome::WentBack {
            computed = self.compute_on_device(samples);
        }
        self.at(Phase::Updating);
        let losses: usize = computed.0.losses.iter().map(|part| part.dims()[0]).sum();
        self.pending = Some(self.order_step(computed, batch)?);
        // The other ranks were about as fast.
        let seen = losses * samples.global_rows() / samples.rows().max(1);
        self.step_past(batch, seen);
        if self.looks_now() {
            return self.look();
        }
        Ok(BatchOutcome::Updated)
    }

    /// Orders the forward and backward pass of a batch, beside which a checkpoint that is due is copied. Ranks begin the exchange
    /// of the gradient.
    fn compute_on_device(&mut self, samples: Samples<'_>) -> (OnDevice, Option<SectionExchange>) {
        self.at(Phase::Computing);
        let seed = self.plan.settings.config().seed;
        let randomness = (Stream::dropout(seed, self.position.step), self.loss_scale());
        let weights = self.device_state().weights();
        let sender = self.watch.ranks.tensor_sender();
        let exchange = sender.map(|sender| {
            let (wire, device) = (self.sharing.wire(), self.engine.device());
            self.device_sections.exchange(sender, wire, device)
        });
        let (sink, exchange) = exchange.unzip();
        let engine = &self.engine;
        let computed = engine.compute_on_device(&weights, samples, randomness, sink);
        if let Some(due) = self.saving.due.take() {
            let begun = self.watch.clock.monotonic();
            let live = live(&self.bucket, self.average.as_ref(), &self.optimizer, &due);
            let copied = Some(self.saving.snapshots.copy(live));
            let copying = self.watch.clock.monotonic().saturating_sub(begun);
            self.meter.stalled(copying);
            self.saving.saver.start(due.with(copied));
        }
        (computed, exchange)
    }

    /// The weights that a step of several ranks computes with, on the device.
    pub(super) fn weights_of_step(&mut self) -> Vec<Tensor<1>> {
        if self.stays_on_device {
            self.device_state().weights()
        } else {
            self.engine.weights(&self.bucket)
        }
    }

    /// Moves the weights on the device by step number `number`, along `scale` times the gradient of all ranks, which is in
    /// host memory and finite.
    pub(super) fn update_on_device(
        &mut self,
        number: u64,
        rate: f64,
        scale: f64,
    ) -> Result<(), Error> {
        let (gradient, bucket) = (&self.gradient, &self.bucket);
        let state = self.device_state.as_mut().expect(COMPUTED);
        state.step_along((gradient, scale), bucket, number, rate);
        if self.sharing.shares_optimizer() {
            state.download_own(&mut self.bucket)?;
            self.gather_weights()?;
            let state = self.device_state.as_mut().expect(COMPUTED);
            state.take_others(&self.bucket);
        }
        let state = self.device_state.as_mut().expect(COMPUTED);
        state.update_average(None, number, self.average.as_ref());
        Ok(())
    }

    /// The numbers on the device, which are taken there where they are not.
    fn device_state(&mut self) -> &mut DeviceState {
        let on_device = self.steps_on_device();
        let engine = &self.engine;
        let config = &self.plan.settings.config().optimizer;
        let state = (&self.optimizer, self.average.as_ref());
        let (bucket, sharing) = (&self.bucket, &self.sharing);
        self.device_state.get_or_insert_with(|| {
            let shares = sharing.rank_shares().filter(|_| on_device);
            DeviceState::upload(engine, (config, sharing.own(), shares), bucket, state)
        })
    }

    /// Orders the update by what was computed of a batch. Ranks sum it first.
    fn order_step(
        &mut self,
        (mut computed, exchange): (OnDevice, Option<SectionExchange>),
        batch: &impl RankBatch,
    ) -> Result<Pending, Error> {
        let OnDevice {
            weight, nominal, ..
        } = computed;
        let taken = self.position.step;
        let rate = self.schedule.rate(taken, &self.position.plateau);
        let loss_scale = self.loss_scale();
        let sums = self.device_state().sums(&mut computed);
        let sums = match exchange {
            Some(exchange) => self.sum_over_ranks(exchange, sums, weight)?,
            None => (self.device_state().gradient(&mut computed), sums),
        };
        let stepping = Stepping {
            number: self.position.updates() + 1,
            rate,
            nominal,
            loss_scale,
            factor: factor(nominal, weight) / loss_scale,
            clip_norm: self.plan.settings.config().clip_norm,
            buffer_share: self.engine.buffer_share(batch.samples().global_rows()),
            average: self.average.as_ref(),
        };
        let state = self.device_state.as_mut().expect(COMPUTED);
        let mut exchange = StepExchange::new(self.watch.ranks);
        let report = state.step(sums, computed.losses, stepping, Some(&mut exchange))?;
        self.meter.exchanged(exchange.spent);
        Ok(Pending {
            report,
            taken,
            rows: batch.samples().global_rows(),
            rate,
            nominal,
            loss_scale,
            weight,
            keys: batch.keys().to_vec(),
            origins: batch.origins().to_vec(),
        })
    }

    /// Gradient and sums of the global batch, from the sums of this rank's rows, whose losses have this weight.
    fn sum_over_ranks(
        &mut self,
        exchange: SectionExchange,
        sums: BatchSums,
        weight: f64,
    ) -> Result<(Tensor<1>, BatchSums), Error> {
        self.at(Phase::Exchanging);
        let ranks = self.watch.ranks;
        let stop = self.watch.stop.load(Ordering::Relaxed);
        let sums = sums.of_rank(weight, stop, self.engine.device());
        let number = ranks.begin_tensor(TensorOp::AllReduce, Wire::Full, sums);
        let (gradient, mut totals) = exchange.finish(ranks)?;
        let (sums, times) = ranks.finish_tensor(number)?;
        totals.add(times);
        self.meter.exchanged(totals.alone());
        self.meter.hidden(totals.hidden());
        self.at(Phase::Updating);
        let gradient = self.device_state().own_gradient(gradient);
        Ok((gradient, BatchSums::of_ranks(&sums)))
    }

    /// Returns true if a checkpoint or the end of the run waits for the numbers of the step that was ordered.
    fn looks_now(&self) -> bool {
        self.plan.settings.checkpoint_due(self.position.step) || self.stopping()
    }

    /// Looks at the numbers of the step before, if they were not. After a rollback the checkpoint of it is written.
    fn look_back(&mut self) -> Result<BatchOutcome, Error> {
        let taken = self.look()?;
        if taken == BatchOutcome::WentBack {
            self.save()?;
        }
        Ok(taken)
    }

    /// Looks at the numbers of the last step, if they were not, and does what the guard says.
    pub(super) fn look(&mut self) -> Result<BatchOutcome, Error> {
        let Some(pending) = self.pending.take() else {
            return Ok(BatchOutcome::Updated);
        };
        let Pending {
            report,
            taken,
            rows,
            rate,
            nominal,
            loss_scale,
            weight,
            keys,
            origins,
        } = pending;
        let found = report.finish()?;
        let weight = match found.of_ranks {
            Some([weight, stops]) => {
                self.agreed_to_stop = stops > 0.0;
                weight
            }
            None => weight,
        };
        let loss = loss::mean(found.loss_sum, weight);
        let norm = found.norm * (factor(nominal, weight) / loss_scale);
        let sums = [found.loss_sum, found.unsmoothed_sum, weight];
        if !found.taken {
            if loss.is_finite() && !norm.is_finite() && self.drop_overflowed(taken, loss) {
                self.count_loss(sums);
                self.report(loss);
                return Ok(BatchOutcome::LeftOut);
            }
            let rows = self.gather_rows(&RowsOfAll {
                losses: found.losses()?,
                keys,
                origins,
            })?;
            let (what, value) = [("loss", loss), ("gradient norm", norm)]
                .into_iter()
                .find(|(_, value)| !value.is_finite())
                .unwrap_or(("sum of running statistics", found.buffers));
            self.leave_out(what, value, rows, taken)?;
            return Ok(BatchOutcome::LeftOut);
        }
        let seen = SeenBatch {
            step: taken.next(),
            loss,
            norm,
            rate,
            is_short: self.is_short(rows),
        };
        let config = self.plan.settings.config();
        match loss_guard::look(&config.guard, &mut self.position.guard, seen) {
            UpdateVerdict::Fine => {}
            UpdateVerdict::Alarm(alarm) => self.tell(alarm, seen.step),
            UpdateVerdict::Diverged { mean } => {
                self.go_back(loss, mean, seen.step)?;
                return Ok(BatchOutcome::WentBack);
            }
        }
        let scaling = config.loss_scale.as_ref();
        if let Some((config, state)) = scaling.zip(self.position.loss_scale.as_mut()) {
            loss_scale::good(config, state);
        }
        self.count_loss(sums);
        self.report(loss);
        self.log_step(seen)?;
        Ok(BatchOutcome::Updated)
    }

    /// Looks at the last step, and copies what is on the device to host memory.
    ///
    /// # Errors
    /// [`Error::Device`], or what the guard says of the step.
    pub(super) fn fetch(&mut self) -> Result<BatchOutcome, Error> {
        let taken = self.look()?;
        if let Some(state) = &mut self.device_state {
            let average = self
                .average
                .as_mut()
                .map(crate::optim::average::Average::weights_mut);
            state.download(&mut self.bucket, self.optimizer.state_mut(), average)?;
        }
        Ok(taken)
    }
}
