//! The resolved configuration: every value checked, the loss filled in, and the name of the run that follows from it.

use std::net::SocketAddr;

use feedline_schemas::{
    config::{
        BalanceRule, BaselinePolicy, CheckpointConfig, ClassBalanceConfig, ClassWeightRule,
        ClassWeights, DatasetKind, DeviceChoice, GuardConfig, ImagesConfig, InitConfig,
        ModelConfig, ParallelConfig, Precision, ScheduleConfig, TrainConfig, TrainMixture,
        TrainSource,
    },
    ids::{Hash128, Step},
};

use crate::{
    config::values::{above_zero, at_least_zero, share, whole, within},
    data::{images, mixture, task::Task},
    device::Backend,
    error::{Error, config as wrong},
    model::{
        engine::{parts::BatchCut, sections::Sections},
        input::Statistics,
        interface::Parameter,
        layers::{Layout, PassSettings},
        models,
    },
    optim::{
        loss::{self, Loss},
        loss_scale,
        optimizer::{self, Optimizer, StateBucket, StateLayout},
        schedule::{self, Schedule},
    },
    parallel::RankPlace,
};

const BATCH_MAX: u32 = 1 << 20;
const LEAST_PARTS_MAX: u32 = 1024;

/// A configuration whose values are in range.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TrainSettings {
    config: TrainConfig,
    loss: Loss,
}

impl TrainSettings {
    /// Checks `config` and chooses the loss for `task`.
    ///
    /// # Errors
    /// [`Error::Config`] for the first value that is out of range.
    pub(crate) fn resolve(config: &TrainConfig, task: &Task) -> Result<Self, Error> {
        check(config)?;
        let (of_loss, loss) = loss::resolve(&config.loss, task)?;
        Ok(Self {
            config: TrainConfig {
                model: models::filled(config),
                loss: of_loss,
                optimizer: optimizer::resolve(&config.optimizer)?,
                schedule: schedule::resolve(&config.schedule)?,
                loss_scale: match config.precision {
                    Precision::F16 => Some(config.loss_scale.clone().unwrap_or_default()),
                    Precision::F32 | Precision::Bf16 => None,
                },
                ..config.clone()
            },
            loss,
        })
    }

    /// The same, with these mean and deviation where the configuration gives none.
    pub(crate) fn normalising(mut self, [mean, deviation]: Statistics) -> Self {
        let images = &mut self.config.images;
        images.mean.get_or_insert(mean);
        images.deviation.get_or_insert(deviation);
        // The numbers say all: a resolved configuration can be resolved again.
        images.normalize = None;
        self
    }

    /// The configuration with everything filled in.
    pub(crate) const fn config(&self) -> &TrainConfig {
        &self.config
    }

    /// The loss.
    pub(crate) const fn loss(&self) -> &Loss {
        &self.loss
    }

    /// The optimizer before its first step.
    pub(crate) fn optimizer(&self, parameters: &[Parameter]) -> Optimizer {
        Optimizer::new(&self.config.optimizer, parameters)
    }

    /// The optimizer that continues from saved state.
    pub(crate) fn resumed_optimizer(
        &self,
        parameters: &[Parameter],
        state: Vec<StateBucket>,
    ) -> Optimizer {
        Optimizer::resume(&self.config.optimizer, parameters, state)
    }

    /// Names and lengths of the optimizer's state.
    pub(crate) fn optimizer_state(&self, parameters: &[Parameter]) -> StateLayout {
        optimizer::state_layout(&self.config.optimizer, parameters)
    }

    /// The schedule of a run with `batches_per_epoch`.
    pub(crate) fn schedule(&self, batches_per_epoch: u64) -> Schedule {
        schedule::schedule(&self.config, batches_per_epoch)
    }

    /// The parts of batches on the rank at `place`, where the training split has `rows`.
    pub(crate) fn cut(&self, place: RankPlace, rows: u64) -> BatchCut {
        let cut = cut(&self.config, place);
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        BatchCut {
            full: cut.full.min(rows),
            ..cut
        }
    }

    /// Sections of the gradient of a model with this layout, for the exchange.
    pub(crate) fn sections(&self, layout: &Layout) -> Sections {
        Sections::of_bytes(layout, self.section_bytes_max())
    }

    /// Most bytes of a section of the gradient that has several parameters.
    pub(crate) fn section_bytes_max(&self) -> usize {
        match self.config.parallel.bucket_bytes.bytes() {
            0 => usize::MAX,
            bytes => usize::try_from(bytes).unwrap_or(usize::MAX),
        }
    }

    /// Returns true if a checkpoint is due after `step` steps.
    pub(crate) const fn checkpoint_due(&self, step: Step) -> bool {
        let CheckpointConfig {
            every_steps,
            keep_every_steps,
            ..
        } = self.config.checkpoint;
        // No step is a multiple of 0 but the start, after which none is due.
        step.get().is_multiple_of(every_steps) || step.get().is_multiple_of(keep_every_steps)
    }

    /// Returns true if ranks compare their weights after `step` steps.
    pub(crate) const fn comparison_due(&self, step: Step) -> bool {
        step.get().is_multiple_of(self.config.parallel.check_every)
    }

    /// Returns true if a line of metrics is due after `step` steps.
    pub(crate) const fn log_due(&self, step: Step) -> bool {
        step.get().is_multiple_of(self.config.log_every)
    }

    /// Name of the run on the dataset with this fingerprint, from weights with the hash `init`: 16 hexadecimal digits. What
    /// changes neither weights nor metrics (`log_every`, `metrics_listen`, `require_better_than_baseline`, `checkpoint`, `model.checkpoint`, the dataset's
    /// place, how fast it is read) has no part in it. When checkpoints are written has, where the weights may go back to
    /// one.
    pub(crate) fn run_name(&self, fingerprint: Hash128, init: Option<Hash128>) -> String {
        let config = self.named_config();
        let bytes = match init {
            None => serde_json::to_vec(&(config, fingerprint)),
            Some(init) => serde_json::to_vec(&(config, fingerprint, init)),
        };
        let bytes = bytes.expect("a configuration has string keys and finite numbers");
        Hash128::of(&bytes).short()
    }

    /// The configuration with only those values that have a part in the name of the run; the others are as by default.
    pub(crate) fn named_config(&self) -> TrainConfig {
        let log_every = TrainConfig::default().log_every;
        // Before statistics of a dataset were used, these were the defaults.
        let [mean, deviation] = ImagesConfig::IMAGENET;
        let mut images = self.config.images.clone();
        images.mean.get_or_insert(mean);
        images.deviation.get_or_insert(deviation);
        images.normalize = None;
        let mut checkpoint = CheckpointConfig {
            every_steps: 0,
            ..CheckpointConfig::default()
        };
        if self.config.guard.spike_factor > 0.0 {
            // Names began when no checkpoints within epochs were the default, and a default keeps its name.
            checkpoint.every_steps = match self.config.checkpoint.every_steps {
                CheckpointConfig::EVERY_STEPS => 0,
                0 => CheckpointConfig::EVERY_STEPS,
                other => other,
            };
            checkpoint.keep_every_steps = self.config.checkpoint.keep_every_steps;
        }
        // The default was 100 whatever the steps of a run, and a default keeps its name.
        let schedule = ScheduleConfig {
            warmup_steps: match self.config.schedule.warmup_steps {
                None => Some(100),
                Some(100) => None,
                other => other,
            },
            ..self.config.schedule.clone()
        };
        TrainConfig {
            schedule,
            dataset: None,
            mixture: self.config.mixture.as_ref().map(without_places),
            images,
            device: DeviceChoice::default(),
            model: ModelConfig {
                checkpoint: Vec::new(),
                ..self.config.model.clone()
            },
            log_every,
            require_better_than_baseline: BaselinePolicy::default(),
            metrics_listen: None,
            checkpoint,
            guard: self.config.guard.of_weights(),
            loader: self.config.loader.order(),
            init: self.config.init.clone().map(|init| InitConfig {
                from: String::new(),
                allow_other_transform: false,
                ..init
            }),
            parallel: self.config.parallel.numbers(),
            ..self.config.clone()
        }
    }
}

/// A mixture by the fingerprints of its datasets, wherever they are.
fn without_places(mixture: &TrainMixture) -> TrainMixture {
    let sources = mixture.sources.iter();
    let sources = sources.map(|source| TrainSource {
        dataset: None,
        ..source.clone()
    });
    TrainMixture {
        sources: sources.collect(),
        ..mixture.clone()
    }
}

/// Checks every value of `config` that needs no dataset.
///
/// ```
/// use feedline_schemas::config::TrainConfig;
/// use feedline_trainer::check;
///
/// let config = TrainConfig { epochs: 5, learning_rate: 0.003, ..TrainConfig::default() };
/// check(&config)?;
/// let error = check(&TrainConfig { learning_rate: 0.0, ..config }).unwrap_err();
/// assert!(error.to_string().starts_with("cannot use `train.learning_rate`"));
/// # Ok::<(), feedline_trainer::Error>(())
/// ```
///
/// # Errors
/// [`Error::Config`] for the first value that is out of range.
pub fn check(config: &TrainConfig) -> Result<(), Error> {
    models::check(&config.model)?;
    if config.loader.pack.is_some() && !models::reads_tokens(&config.model) {
        let reason = "it says how texts share the rows of a batch, and the model reads no tokens; remove it, or use `transformer`";
        return Err(crate::error::config("loader.pack", reason));
    }
    images::check(&config.images)?;
    config.mixture.as_ref().map_or(Ok(()), mixture::check)?;
    let prefetch = u64::from(config.loader.device_prefetch);
    whole("loader.device_prefetch", prefetch, 0, 64)?;
    check_balance(config)?;
    whole(
        "batch_size",
        u64::from(config.batch_size),
        1,
        u64::from(BATCH_MAX),
    )?;
    if let Some(rows) = config.micro_batch {
        whole("micro_batch", u64::from(rows), 1, u64::from(BATCH_MAX))?;
    }
    whole("epochs", config.epochs, 1, u64::MAX)?;
    above_zero("learning_rate", config.learning_rate)?;
    schedule::resolve(&config.schedule)?;
    if let Some(average) = &config.average {
        share("average.decay", average.decay)?;
    }
    loss::check(&config.loss)?;
    optimizer::resolve(&config.optimizer)?;
    check_loss_scale(config)?;
    if let Some(lora) = &config.lora {
        whole("lora.rank", u64::from(lora.rank), 1, 65_536)?;
        above_zero("lora.alpha", lora.alpha)?;
        share("lora.dropout", lora.dropout)?;
    }
    within(
        "clip_norm",
        config.clip_norm,
        true,
        "at least 0; 0 does not clip",
    )?;
    whole("log_every", config.log_every, 1, u64::MAX)?;
    check_parallel(&config.parallel)?;
    metrics_listen(config)?;
    whole(
        "checkpoint.keep",
        u64::from(config.checkpoint.keep),
        1,
        u64::from(u32::MAX),
    )?;
    check_guard(&config.guard)
}

fn check_guard(guard: &GuardConfig) -> Result<(), Error> {
    let most = 10_000;
    whole("guard.max_skipped", guard.max_skipped.into(), 0, most)?;
    whole("guard.window_steps", guard.window_steps, 1, u64::MAX)?;
    whole("guard.spike_window", guard.spike_window.into(), 2, most)?;
    whole("guard.spike_steps", guard.spike_steps.into(), 1, most)?;
    whole("guard.max_rollbacks", guard.max_rollbacks.into(), 0, most)?;
    for (key, factor) in [
        ("guard.spike_factor", guard.spike_factor),
        ("guard.gradient_factor", guard.gradient_factor),
    ] {
        within(
            key,
            factor,
            factor == 0.0 || factor >= 1.0,
            "at least 1, or 0 for none",
        )?;
    }
    Ok(())
}

/// Checks that the model reads what a dataset of this kind holds, where it is trained on the pipeline's own dataset.
///
/// # Errors
/// [`Error::Config`] with the types that fit.
pub fn check_kind(config: &TrainConfig, dataset: DatasetKind) -> Result<(), Error> {
    if config.dataset.is_some() || config.mixture.is_some() {
        return Ok(());
    }
    models::check_kind(&config.model, dataset)?;
    images::check_kind(&config.images, dataset)
}

/// Checks that this program can compute on the device of `config`. It looks for none.
///
/// # Errors
/// [`Error::Config`] for a device that the program was built without.
pub fn check_device(config: &TrainConfig) -> Result<(), Error> {
    let is_unknown = match config.device {
        DeviceChoice::Cuda(_) => cfg!(not(feature = "cuda")),
        DeviceChoice::Wgpu(_) => cfg!(not(feature = "wgpu")),
        DeviceChoice::Auto | DeviceChoice::Cpu => false,
    };
    match is_unknown {
        true => Backend::find(config.device, 0).map(drop),
        false => Ok(()),
    }
}

fn check_loss_scale(config: &TrainConfig) -> Result<(), Error> {
    match (&config.loss_scale, config.precision) {
        (None, _) => Ok(()),
        (Some(given), Precision::F16) => loss_scale::check(given),
        (Some(_), Precision::F32 | Precision::Bf16) => Err(wrong(
            "loss_scale",
            "only gradients in f16 need it; take it out, or set `train.precision = \"f16\"`",
        )),
    }
}

/// Division of batches into parts on the rank at `place`.
pub(crate) fn cut(config: &TrainConfig, place: RankPlace) -> BatchCut {
    BatchCut {
        least: config.parallel.parts as usize,
        rows_max: config.micro_batch.map_or(usize::MAX, |rows| rows as usize),
        whole: config.batch_size as usize,
        full: config.batch_size as usize,
        ghost_rows: models::filled(config).ghost_batch.unwrap_or(0) as usize,
        place,
        ..BatchCut::BY_SHAPE
    }
}

/// Settings of the passes of a model with this layout. `config` need not be resolved.
///
/// # Errors
/// [`Error::Config`] for a block or a parameter that the model does not have.
pub(crate) fn passes(config: &TrainConfig, layout: &Layout) -> Result<PassSettings, Error> {
    let passes = PassSettings::new(layout, &config.model.checkpoint)?;
    let passes = passes.with_precision(config.precision);
    passes.with_frozen(layout, &config.freeze, config.lora.as_ref())
}

fn check_parallel(parallel: &ParallelConfig) -> Result<(), Error> {
    let most = u64::MAX;
    whole("parallel.check_every", parallel.check_every, 1, most)?;
    let day = 86_400;
    whole("parallel.timeout_s", parallel.timeout_s, 1, day)?;
    whole(
        "parallel.heartbeat_timeout_s",
        parallel.heartbeat_timeout_s,
        3,
        day,
    )?;
    whole(
        "parallel.rendezvous_timeout_s",
        parallel.rendezvous_timeout_s,
        1,
        day,
    )?;
    whole("parallel.restarts", parallel.restarts, 0, 1_000)?;
    let parts = parallel.parts;
    if parts.is_power_of_two() && parts <= LEAST_PARTS_MAX {
        return Ok(());
    }
    let reason = format!("it is {parts} and must be a power of two, at most {LEAST_PARTS_MAX}");
    Err(wrong("parallel.parts", reason))
}

/// Address that the metrics of the run are served at.
///
/// # Errors
/// [`Error::Config`] when it is no address.
pub(crate) fn metrics_listen(config: &TrainConfig) -> Result<Option<SocketAddr>, Error> {
    let Some(text) = &config.metrics_listen else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|_| {
        let reason = format!(
            "`{text}` is no address; give an IP address and a port, such as `127.0.0.1:9464`"
        );
        wrong("metrics_listen", reason)
    })
}

fn check_balance(config: &TrainConfig) -> Result<(), Error> {
    let is_equal = config.loader.balance == Some(ClassBalanceConfig::Rule(BalanceRule::Equal));
    let balanced = ClassWeights::Rule(ClassWeightRule::Balanced);
    if is_equal && config.loss.class_weights.as_ref() == Some(&balanced) {
        let reason = "`train.loss.class_weights = \"balanced\"` weights classes by the rows that they have, and `\"equal\"` \
                      gives each of them as often already: rare classes would count twice as they should; leave one of the two out";
        return Err(wrong("loader.balance", reason));
    }
    let Some(ClassBalanceConfig::Named(shares)) = &config.loader.balance else {
        return Ok(());
    };
    for (class, share) in shares {
        at_least_zero(&format!("loader.balance.{class}"), *share)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_schemas::config::{
        AverageConfig, Collective, LoraConfig, LossKind, LossScaleConfig, ModelKind,
        NotFinitePolicy, PackMode,
    };
    use feedline_schemas::ids::Seed;
    use feedline_schemas::{Classified as _, ErrorKind};

    const TASK: Task = Task::Regression {
        mean: 0.0,
        offset: 0.0,
        scale: 1.0,
    };

    fn refused(change: impl FnOnce(&mut TrainConfig)) -> String {
        let mut config = TrainConfig::default();
        change(&mut config);
        let error = TrainSettings::resolve(&config, &TASK).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        error.to_string()
    }

    #[test]
    fn defaults_are_in_range() {
        let settings = TrainSettings::resolve(&TrainConfig::default(), &TASK).unwrap();
        assert_eq!(settings.config().loss.r#type, Some(LossKind::Mse));
    }

    type ConfigChange = fn(&mut TrainConfig);

    const MODEL_OUT_OF_RANGE: &[(&str, ConfigChange)] = &[
        ("train.model.hidden", |c| {
            c.model.hidden = Some(vec![8, 0]);
        }),
        ("train.model.hidden", |c| {
            c.model.hidden = Some(vec![65_537]);
        }),
        ("train.model.hidden", |c| {
            c.model.hidden = Some(vec![1; 257]);
        }),
        ("train.model.dropout", |c| c.model.dropout = 1.0),
        ("train.model.dropout", |c| c.model.dropout = -0.1),
        ("train.lora.rank", |c| {
            c.lora = Some(LoraConfig {
                rank: 0,
                ..LoraConfig::default()
            });
        }),
        ("train.images.channels", |c| c.images.channels = 2),
        ("train.average.decay", |c| {
            c.average = Some(AverageConfig {
                decay: 1.0,
                warmup: false,
            });
        }),
    ];

    const OPTIMIZATION_OUT_OF_RANGE: &[(&str, ConfigChange)] = &[
        ("train.batch_size", |c| c.batch_size = 0),
        ("train.batch_size", |c| c.batch_size = (1 << 20) + 1),
        ("train.micro_batch", |c| c.micro_batch = Some(0)),
        ("train.epochs", |c| c.epochs = 0),
        ("train.learning_rate", |c| c.learning_rate = 0.0),
        ("train.learning_rate", |c| c.learning_rate = f64::NAN),
        ("train.learning_rate", |c| c.learning_rate = f64::INFINITY),
        ("train.schedule.final_fraction", |c| {
            c.schedule.final_fraction = Some(1.1);
        }),
        ("train.optimizer.beta1", |c| c.optimizer.beta1 = Some(1.0)),
        ("train.loss_scale", |c| {
            c.loss_scale = Some(LossScaleConfig::default());
        }),
        ("train.clip_norm", |c| c.clip_norm = f64::NAN),
        ("train.loss.type", |c| {
            c.loss.r#type = Some(LossKind::CrossEntropy);
        }),
    ];

    const RUN_OUT_OF_RANGE: &[(&str, ConfigChange)] = &[
        ("train.log_every", |c| c.log_every = 0),
        ("train.parallel.parts", |c| c.parallel.parts = 0),
        ("train.parallel.parts", |c| c.parallel.parts = 6),
        ("train.parallel.restarts", |c| c.parallel.restarts = 1_001),
        ("train.metrics_listen", |c| {
            c.metrics_listen = Some("localhost".into());
        }),
        ("train.guard.spike_factor", |c| c.guard.spike_factor = 0.5),
        ("train.guard.spike_window", |c| c.guard.spike_window = 1),
        ("train.checkpoint.keep", |c| c.checkpoint.keep = 0),
    ];

    #[test]
    fn every_value_out_of_range_is_named() {
        let tables = [
            MODEL_OUT_OF_RANGE,
            OPTIMIZATION_OUT_OF_RANGE,
            RUN_OUT_OF_RANGE,
        ];
        for (key, change) in tables.concat() {
            let message = refused(change);
            assert!(message.contains(&format!("`{key}`")), "{message}");
        }
    }

    #[test]
    fn classes_are_not_balanced_twice() {
        let balanced = |c: &mut TrainConfig| {
            c.loader.balance = Some(ClassBalanceConfig::Rule(BalanceRule::Equal));
            c.loss.r#type = Some(LossKind::CrossEntropy);
            c.loss.class_weights = Some(ClassWeights::Rule(ClassWeightRule::Balanced));
        };
        let message = refused(balanced);
        for key in ["`train.loader.balance`", "`train.loss.class_weights"] {
            assert!(message.contains(key), "{message}");
        }
        let mut one = TrainConfig::default();
        balanced(&mut one);
        one.loader.balance = None;
        check(&one).unwrap();
    }

    #[test]
    fn mixing_images_that_a_dataset_does_not_have_is_refused_before_it_is_built() {
        let mut config = TrainConfig::default();
        config.images.mix = Some(feedline_schemas::config::ImageMixConfig {
            mixup: 1.0,
            ..Default::default()
        });
        let refused = check_kind(&config, DatasetKind::Rows)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("`train.images.mix`"), "{refused}");
        check_kind(&config, DatasetKind::Images).unwrap();
    }

    #[test]
    fn a_refusal_says_what_is_allowed() {
        let message = refused(|c| c.learning_rate = -1.0);
        assert_eq!(
            message,
            "cannot use `train.learning_rate`: it is -1 and must be above 0"
        );
    }

    /// Name of a run on the dataset with fingerprint 1.
    fn run_name(change: ConfigChange) -> String {
        name_on_dataset(change, 1)
    }

    fn name_on_dataset(change: ConfigChange, fingerprint: u128) -> String {
        let mut config = TrainConfig::default();
        change(&mut config);
        TrainSettings::resolve(&config, &TASK)
            .unwrap()
            .run_name(Hash128::new(fingerprint), None)
    }

    /// Checks that changes keep the name of a run.
    fn check_same_run(changes: &[ConfigChange]) {
        for (i, change) in changes.iter().enumerate() {
            assert_eq!(run_name(|_| ()), run_name(*change), "change {i}");
        }
    }

    /// Checks that each change gives a run another name.
    fn check_other_runs(changes: &[ConfigChange]) {
        for (i, change) in changes.iter().enumerate() {
            assert_ne!(run_name(|_| ()), run_name(*change), "change {i}");
        }
    }

    #[test]
    fn run_name_follows_what_changes_the_weights_and_nothing_else() {
        assert_eq!(run_name(|_| ()).len(), 16);
        assert_ne!(run_name(|_| ()), name_on_dataset(|_| (), 2));
        check_same_run(&[
            |c| c.log_every = 7,
            |c| c.metrics_listen = Some("[::1]:0".into()),
            |c| c.model.checkpoint = vec!["*".into()],
            |c| c.loader.threads = 7,
            |c| c.parallel.timeout_s = 8,
            |c| c.parallel.collective = Collective::Mpi,
            |c| c.device = DeviceChoice::Cpu,
        ]);
        check_other_runs(&[
            |c| c.loader.window_blocks = 7,
            |c| {
                c.loader.balance = Some(ClassBalanceConfig::Rule(BalanceRule::Equal));
            },
            |c| c.parallel.parts = 8,
            |c| c.micro_batch = Some(32),
            |c| c.lora = Some(LoraConfig::default()),
            |c| c.seed = Seed::new(1),
            |c| c.epochs = 21,
        ]);
    }

    #[test]
    fn run_name_follows_checkpoints_where_weights_may_go_back_to_one() {
        check_same_run(&[
            |c| c.checkpoint.keep = 7,
            |c| {
                c.guard.not_finite = NotFinitePolicy::Skip;
                (c.guard.max_skipped, c.guard.max_rollbacks) = (7, 7);
                (c.guard.window_steps, c.guard.gradient_factor) = (7, 7.0);
            },
            // The default of today has the name of the default before it, and that another one.
            |c| c.checkpoint.every_steps = 1_000,
        ]);
        check_other_runs(&[
            |c| c.guard.spike_factor = 7.0,
            |c| c.checkpoint.every_steps = 7,
            |c| c.checkpoint.every_steps = 0,
        ]);
        let unguarded = run_name(|c| c.guard.spike_factor = 0.0);
        let often = run_name(|c| {
            (c.guard.spike_factor, c.checkpoint.every_steps) = (0.0, 7);
            c.guard.spike_steps = 7;
        });
        assert_eq!(unguarded, often);
    }

    #[test]
    fn run_name_of_a_default_that_is_written_is_that_of_the_default() {
        check_same_run(&[
            |c| c.loss.r#type = Some(LossKind::Mse),
            |c| c.optimizer.beta1 = Some(0.9),
            |c| c.schedule.final_fraction = Some(0.01),
            |c| c.precision = Precision::F32,
            |c| {
                let [mean, deviation] = ImagesConfig::IMAGENET;
                (c.images.mean, c.images.deviation) = (Some(mean), Some(deviation));
            },
        ]);
        check_other_runs(&[
            |c| c.optimizer.beta1 = Some(0.8),
            |c| c.optimizer.l1 = 0.1,
            |c| c.schedule.final_fraction = Some(0.02),
            // A number that is written holds for a short run too.
            |c| c.schedule.warmup_steps = Some(100),
            |c| c.precision = Precision::Bf16,
            |c| {
                (c.images.mean, c.images.deviation) = (Some([0.5; 3]), Some([0.5; 3]));
            },
        ]);
        let half = run_name(|c| c.precision = Precision::F16);
        let scaled = run_name(|c| {
            (c.precision, c.loss_scale) = (Precision::F16, Some(LossScaleConfig::default()));
        });
        assert_eq!(half, scaled);
    }

    #[test]
    fn run_name_follows_how_texts_share_rows() {
        let of_tokens = |pack: Option<PackMode>| {
            let mut config = TrainConfig::default();
            config.model.r#type = ModelKind::Transformer;
            config.loader.pack = pack;
            let task = Task::NextToken { vocabulary: 9 };
            let settings = TrainSettings::resolve(&config, &task).unwrap();
            settings.run_name(Hash128::new(1), None)
        };
        assert_ne!(of_tokens(None), of_tokens(Some(PackMode::Stream)));
    }
}
