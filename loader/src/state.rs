//! From loader states to orders and back.

use feedline_schemas::{
    format::LOADER_STATE,
    ids::{Epoch, Hash128, Seed, Step},
    loader_state::{LoaderState, MixturePhase, MixtureState, Numbers, SampleUnit, SkippedShards},
    manifest::Split,
};

use crate::{
    Error,
    error::Difference,
    order::{MixtureConfig, ORDER_VERSION, Orders, PassOrder, Phase},
};

/// Phases that a state has at most, one less where shards are skipped, so that it stays small; the last alone decides
/// the order.
const MOST_PHASES: usize = 16;

/// Description of the order in a state, without the position. Part of a loader.
#[derive(Debug)]
pub(crate) struct OrderIdentity {
    /// Fingerprint of each source, in order.
    pub(crate) fingerprints: Vec<Hash128>,
    /// Configured bytes of an extent.
    pub(crate) extent_bytes: u64,
    /// Kind of a sample.
    pub(crate) unit: SampleUnit,
    /// The mixture and its first phase, of several sources.
    pub(crate) mixture: Option<(MixtureConfig, Phase)>,
    /// Shards that are left out.
    pub(crate) skipped: Option<SkippedShards>,
    /// Split of the first source.
    pub(crate) split: Split,
}

impl OrderIdentity {
    /// The state before the first batch of the first epoch of `orders`.
    pub(crate) fn start(&self, orders: &Orders) -> LoaderState {
        let spec = orders.spec();
        LoaderState {
            format: LOADER_STATE.format.to_owned(),
            version: LoaderState::version_of(self.split, true),
            fingerprint: fingerprint(&self.fingerprints),
            order_version: ORDER_VERSION,
            seed: Seed::new(spec.seed),
            domains: spec.domains,
            window_blocks: spec.window_blocks,
            extent_bytes: self.extent_bytes,
            global_batch: spec.global_batch,
            last_batch: spec.last_batch,
            unit: self.unit,
            mixture: self.mixture.as_ref().map(|(config, phase)| MixtureState {
                fingerprints: self.fingerprints.clone(),
                samples: Numbers::new(orders.sizes().collect()),
                stops: Numbers::new(config.stops()),
                stratified: config.stratified,
                samples_per_epoch: config.samples_per_epoch,
                phases: vec![written(phase)],
            }),
            skipped: self.skipped,
            split: self.split,
            shuffle: true,
            epoch: Epoch::new(0),
            batch: Step::new(0),
        }
    }

    /// The state before the first batch of a sequential pass.
    pub(crate) fn start_sequential(&self, orders: &Orders) -> LoaderState {
        LoaderState {
            version: LoaderState::version_of(self.split, false),
            shuffle: false,
            ..self.start(orders)
        }
    }

    /// Checks that `state` is one of a sequential pass of this loader, which has `batches` batches.
    ///
    /// # Errors
    /// [`Error::StateMismatch`] with every field that differs.
    pub(crate) fn check_sequential(
        &self,
        state: &LoaderState,
        orders: &Orders,
        batches: u64,
    ) -> Result<(), Error> {
        check(state, &self.start_sequential(orders))?;
        check_batch(state.batch.get(), batches)
    }

    /// The order of the epoch that `state` is in, and the state with the weights of this loader: when they are others
    /// than those of the state, they hold from there on, and the state says so.
    ///
    /// # Errors
    /// [`Error::StateMismatch`] with every field that differs, [`Error::Config`] for weights that cannot be used.
    pub(crate) fn resume(
        &self,
        mut state: LoaderState,
        orders: &Orders,
    ) -> Result<(LoaderState, PassOrder), Error> {
        check(&state, &self.start(orders))?;
        let refuse = |reason| Error::Config {
            key: "mixture",
            reason,
        };
        let (epoch, batch) = (state.epoch.get(), state.batch.get());
        let mut phase = None;
        let most = MOST_PHASES - usize::from(state.skipped.is_some());
        if let (Some(mixture), Some((_, ours))) = (&mut state.mixture, &self.mixture) {
            let mut last = read(mixture)?;
            if (last.epoch, last.batch) > (epoch, batch) {
                let at = format!("epoch {epoch}, batch {batch}");
                let least = format!("not before epoch {}, batch {}", last.epoch, last.batch);
                return Err(mismatch("batch", at, least));
            }
            if last.parts != ours.parts {
                last = orders
                    .change(&last, epoch, batch, ours.parts.clone())
                    .map_err(refuse)?;
                tracing::info!(
                    epoch,
                    batch,
                    "other weights of the sources hold from here on"
                );
                open_phase(mixture, &last, most);
            }
            phase = Some(last);
        }
        let order = orders.epoch(epoch, phase.as_ref()).map_err(refuse)?;
        check_batch(batch, order.batch_count())?;
        Ok((state, order))
    }
}

fn check_batch(batch: u64, batches: u64) -> Result<(), Error> {
    if batch > batches {
        let most = format!("at most {batches}");
        return Err(mismatch("batch", batch.to_string(), most));
    }
    Ok(())
}

/// Of one source its own, of several the hash of all.
fn fingerprint(sources: &[Hash128]) -> Hash128 {
    match sources {
        [one] => *one,
        several => {
            let texts: Vec<_> = several.iter().map(Hash128::to_string).collect();
            Hash128::of(texts.join("\n").as_bytes())
        }
    }
}

fn open_phase(mixture: &mut MixtureState, phase: &Phase, most: usize) {
    for earlier in &mut mixture.phases {
        earlier.before = Numbers::default();
        earlier.used = Numbers::default();
    }
    let surplus = (mixture.phases.len() + 1).saturating_sub(most);
    mixture.phases.drain(..surplus);
    mixture.phases.push(written(phase));
}

fn written(phase: &Phase) -> MixturePhase {
    MixturePhase {
        epoch: Epoch::new(phase.epoch),
        batch: Step::new(phase.batch),
        weights: Numbers::new(phase.parts.clone()),
        before: Numbers::new(phase.before.clone()),
        used: Numbers::new(phase.used.clone()),
    }
}

/// The phase that decides the order.
fn read(mixture: &MixtureState) -> Result<Phase, Error> {
    let sources = mixture.fingerprints.len();
    let Some(last) = mixture.phases.last() else {
        return Err(mismatch("phases", "none".into(), "at least one".into()));
    };
    let counts = |field, numbers: &Numbers| {
        if numbers.as_slice().len() == sources {
            Ok(numbers.as_slice().to_vec())
        } else {
            Err(mismatch(
                field,
                numbers.to_string(),
                format!("{sources} counts"),
            ))
        }
    };
    Ok(Phase {
        epoch: last.epoch.get(),
        batch: last.batch.get(),
        parts: counts("weights", &last.weights)?,
        before: counts("before", &last.before)?,
        used: counts("used", &last.used)?,
    })
}

fn mismatch(field: &'static str, state: String, loader: String) -> Error {
    Error::StateMismatch {
        differences: vec![Difference {
            field,
            state,
            loader,
        }],
    }
}

/// Compares everything but the position and the weights.
fn check(state: &LoaderState, ours: &LoaderState) -> Result<(), Error> {
    let mut differences = Vec::new();
    let mut compare = |field, state: String, loader: String| {
        if state != loader {
            differences.push(Difference {
                field,
                state,
                loader,
            });
        }
    };
    macro_rules! compare {
        ($($field:ident),*) => {
            $(compare(stringify!($field), state.$field.to_string(), ours.$field.to_string());)*
        };
    }
    let versions = LOADER_STATE.oldest..=LOADER_STATE.version;
    if !versions.contains(&state.version) {
        let readable = format!("{} to {}", versions.start(), versions.end());
        compare("version", state.version.to_string(), readable);
    }
    compare!(
        format,
        fingerprint,
        order_version,
        seed,
        domains,
        window_blocks,
        extent_bytes,
        global_batch,
        last_batch,
        unit,
        split,
        shuffle
    );
    compare("class_balance", class_balance(state), class_balance(ours));
    let skipped = |state: &LoaderState| {
        let skipped = state.skipped.as_ref();
        skipped.map_or_else(|| "none".to_owned(), SkippedShards::to_string)
    };
    compare("skipped", skipped(state), skipped(ours));
    let fields = |state: &LoaderState| mixture_fields(state.mixture.as_ref());
    for ((field, theirs), (_, ours)) in fields(state).into_iter().zip(fields(ours)) {
        compare(field, theirs, ours);
    }
    // They shrink and grow with the global batch, and the settings may be the same.
    if differences.iter().any(|d| d.field == "global_batch") {
        differences.retain(|d| !["domains", "window_blocks"].contains(&d.field));
    }
    if differences.is_empty() {
        Ok(())
    } else {
        Err(Error::StateMismatch { differences })
    }
}

fn class_balance(state: &LoaderState) -> String {
    match state.unit {
        SampleUnit::BalancedClasses { hash } => hash.to_string(),
        SampleUnit::Rows | SampleUnit::Tokens { .. } | SampleUnit::Bins { .. } => "none".into(),
    }
}

fn mixture_fields(mixture: Option<&MixtureState>) -> [(&'static str, String); 5] {
    let text = |field: fn(&MixtureState) -> String| mixture.map_or_else(|| "none".into(), field);
    let list = |m: &MixtureState| -> String {
        let texts: Vec<_> = m.fingerprints.iter().map(|f| f.short()).collect();
        texts.join(" ")
    };
    [
        ("fingerprints", text(list)),
        ("samples", text(|m| m.samples.to_string())),
        ("stops", text(|m| m.stops.to_string())),
        ("stratified", text(|m| m.stratified.to_string())),
        (
            "samples_per_epoch",
            text(|m| {
                m.samples_per_epoch
                    .map_or_else(|| "none".into(), |s| s.to_string())
            }),
        ),
    ]
}
