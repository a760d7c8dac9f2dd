//! Summary of a model and of the memory that training takes, before any of it is taken.

mod fit;
mod machine;
mod memory;

use std::fmt;

use feedline_schemas::{
    config::{ModelKind, Precision, TrainConfig},
    count::counted,
    manifest::{Layout, Split, TargetKind},
    units::ByteSize,
};
use serde::Serialize;

pub(crate) use self::fit::of as fit_of;
pub use self::{
    fit::{Fit, Need, fit},
    machine::{Machine, available_memory},
    memory::Memory,
};
use crate::{
    Context,
    checkpoint::run_folder::runtime,
    config::{settings, values::name_of},
    data::loaders::{Loaders, Purpose, settled},
    error::{Error, config as wrong},
    model::{
        engine::parts::BatchCut,
        interface::{self, Model, Shape},
        layers::LayerFacts,
        models,
    },
    optim::optimizer,
    parallel::{Group, RankPlace},
    plan,
};

/// A model and its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Its type.
    pub model: ModelKind,
    /// The layers in the order of building.
    pub layers: Vec<LayerFacts>,
    /// Numbers that training moves.
    pub parameters: u64,
    /// Numbers that follow from the batches, such as running statistics.
    pub buffers: u64,
    /// Blocks that `train.model.checkpoint` can name.
    pub blocks: Vec<String>,
    /// Type of products.
    pub precision: Precision,
    /// Ranks that share a batch.
    pub ranks: u64,
    /// True when the weights of as many ranks have the bits that one rank would give.
    pub same_bits: bool,
    /// Parts of a batch, which ranks divide where their number does; a power of two.
    #[serde(skip)]
    pub(crate) batch_parts: usize,
    /// Rows that batch norm normalises over together, of a full batch at least; absent where the model has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ghost_rows: Option<u64>,
    /// True when it is computed on a GPU.
    pub gpu: bool,
    /// Most rows of a part of a batch.
    pub part_rows: u64,
    /// Parts that a rank computes at a time.
    pub parts: u64,
    /// Memory of a rank by what takes it.
    pub memory: Memory,
}

/// Describes the model that `config` names for a dataset of this layout, as `machine` would train it.
///
/// Nothing is allocated that grows with the model.
///
/// ```
/// use feedline_schemas::{config::load, manifest::{Layout, TargetKind}};
/// use feedline_trainer::{Machine, summary};
///
/// let text = "[pipeline]\nname = 'houses'\n[train]\nmodel = { type = 'mlp', hidden = [8] }\n";
/// let config = load("houses.toml", text, &[])?.config.train.unwrap_or_default();
/// let layout = Layout::Dense { features: 4, target: TargetKind::Regression };
/// let summary = summary(&config, &layout, &Machine::ALONE)?;
/// assert_eq!(summary.parameters, (4 * 8 + 8) + (8 + 1));
/// assert!(summary.memory.total() > 4 * summary.parameters);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Config`] for a value that is out of range or does not fit the layout.
pub fn summary(config: &TrainConfig, layout: &Layout, machine: &Machine) -> Result<Summary, Error> {
    settings::check(config)?;
    let filled = models::filled(config);
    let shape = plan::shape(layout, config);
    let model = models::build(&filled, shape, outputs(filled.r#type, layout)?)?;
    let model = interface::adapted(model, config.lora.as_ref())?;
    of_model(config, &*model, shape, machine)
}

/// Describes a model that has been built, with its adapters. `config` need not be resolved.
///
/// # Errors
/// As [`summary`].
pub(crate) fn of_model(
    config: &TrainConfig,
    model: &dyn Model,
    shape: Shape,
    machine: &Machine,
) -> Result<Summary, Error> {
    let layout = model.layout();
    let passes = settings::passes(config, layout)?;
    let trained = &passes.trained(layout);
    let optimizer_config = optimizer::resolve(&config.optimizer)?;
    optimizer::check_groups(&optimizer_config, trained)?;
    let state = optimizer::state_layout(&optimizer_config, trained);
    let remembered: usize = state.iter().map(|(_, len)| len).sum();
    let holders = if config.parallel.shard_optimizer {
        machine.ranks.max(1)
    } else {
        1
    };
    let cut = cut(config, machine).of_model(layout);
    let rows = config.batch_size as usize;
    let rows_of_rank = rows.div_ceil(machine.ranks.max(1));
    let work = memory::WorkingMemory {
        parts: cut.of_rank(shape, config.batch_size as usize, layout.len()),
        threads: if machine.gpu { 1 } else { machine.threads },
        gpu: machine.gpu,
        ranks: machine.ranks,
        short: machine.gpu && config.precision != Precision::F32,
        average: config.average.is_some(),
        remembered: remembered.div_ceil(holders),
        batches: memory::batches_ahead(shape, rows_of_rank, config.loader.device_prefetch),
    };
    Ok(Summary {
        model: config.model.r#type,
        layers: layout.facts().to_vec(),
        parameters: layout.trained_len() as u64,
        buffers: (layout.len() - layout.trained_len()) as u64,
        blocks: layout.segments().iter().map(|s| s.name.clone()).collect(),
        precision: config.precision,
        ranks: machine.ranks as u64,
        same_bits: cut.shared(shape, rows, layout.len()).is_some(),
        batch_parts: cut.of_batch(shape, rows, layout.len()),
        ghost_rows: cut.ghost_rows(shape).map(|rows| rows as u64),
        gpu: machine.gpu,
        part_rows: work.parts[1] as u64,
        parts: work.at_a_time() as u64,
        memory: work.memory(layout, &passes),
    })
}

/// Division of a rank's batches.
fn cut(config: &TrainConfig, machine: &Machine) -> BatchCut {
    let place = RankPlace {
        rank: 0,
        world: machine.ranks.max(1),
    };
    BatchCut {
        by_shape: !machine.gpu,
        ..settings::cut(config, place)
    }
}

/// [`summary`] for the dataset of `context` and for this machine. Reads the manifest and no shard.
/// Blocks.
///
/// # Errors
/// As [`summary`], and errors of dataset and storage.
pub fn summarize(config: &TrainConfig, context: &Context) -> Result<Summary, Error> {
    let (config, layout) = layout_of(config, context)?;
    summary(&config, &layout, &Machine::of(&config, &context.group))
}

/// The layout that the manifest of the dataset says, and [`settled`] keys.
fn layout_of(config: &TrainConfig, context: &Context) -> Result<(TrainConfig, Layout), Error> {
    settings::check(config)?;
    let runtime = runtime()?;
    let (dataset, splits) = (&context.dataset, [Split::Train].as_slice());
    let config = runtime.block_on(settled(config, dataset))?;
    let alone = Group::alone();
    let opening = Loaders::open(
        dataset,
        &config,
        (Purpose::Training, splits),
        &alone,
        &context.clock,
    );
    let loaders = runtime.block_on(opening)?;
    let layout = loaders.manifest().layout.clone();
    Ok((config, layout))
}

/// Numbers that the model puts out per row or place.
fn outputs(kind: ModelKind, layout: &Layout) -> Result<usize, Error> {
    let target = match layout {
        Layout::Tokens { vocabulary, .. } => return Ok(*vocabulary as usize),
        Layout::Dense { features, .. } if kind == ModelKind::Autoencoder => {
            return Ok(*features as usize);
        }
        Layout::Dense { target, .. } | Layout::Images { target } | Layout::Multi { target, .. } => {
            target
        }
    };
    match target {
        TargetKind::Regression => Ok(1),
        TargetKind::Regressions { targets } => Ok(*targets as usize),
        TargetKind::Classification { classes } => Ok(*classes as usize),
        TargetKind::None => Err(wrong(
            "model.type",
            "the dataset has no target; set `dataset.target` and build it again, or use `autoencoder`",
        )),
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "model {}", models::name(self.model))?;
        let wide = |text: &dyn Fn(&LayerFacts) -> String, heading: &str| {
            let widths = self.layers.iter().map(|layer| text(layer).len());
            widths.chain([heading.len()]).max().unwrap_or_default()
        };
        let name = wide(&|layer| layer.name.clone(), "layer");
        let kind = wide(&|layer| layer.kind.clone(), "kind");
        let output = wide(&sizes, "output");
        writeln!(
            f,
            "  {:<name$}  {:<kind$}  {:>output$}  {:>12}",
            "layer", "kind", "output", "parameters"
        )?;
        for layer in &self.layers {
            writeln!(
                f,
                "  {:<name$}  {:<kind$}  {:>output$}  {:>12}",
                layer.name,
                layer.kind,
                sizes(layer),
                layer.parameters
            )?;
        }
        let line = |f: &mut fmt::Formatter<'_>, name: &str, bytes: u64, note: &str| {
            writeln!(f, "  {name:<16} {}{note}", ByteSize::new(bytes))
        };
        let memory = &self.memory;
        let counts = format!(
            " for {} parameters, {} buffers, and a copy to compute with",
            self.parameters, self.buffers
        );
        let parts = format!(
            ", about, in {}, for {} of at most {} at a time",
            name_of(&self.precision),
            counted(self.parts, "part"),
            counted(self.part_rows, "row")
        );
        line(f, "weights", memory.parameters, &counts)?;
        line(f, "gradients", memory.gradients, "")?;
        line(f, "optimizer", memory.optimizer, "")?;
        line(f, "activations", memory.activations, &parts)?;
        if memory.batches > 0 {
            line(
                f,
                "batches",
                memory.batches,
                " of the step and copied ahead",
            )?;
        }
        if memory.average > 0 {
            line(f, "average", memory.average, "")?;
        }
        line(f, "best weights", memory.best, "")?;
        line(f, "checkpoint", memory.checkpoint, " while it is written")?;
        if self.gpu {
            line(f, "on the GPU", memory.on_gpu, "")?;
            line(
                f,
                "in main memory",
                memory.in_main(),
                " besides the loader's",
            )
        } else {
            line(f, "together", memory.total(), " besides the loader's")
        }
    }
}

fn sizes(layer: &LayerFacts) -> String {
    let sizes: Vec<String> = layer.output.iter().map(ToString::to_string).collect();
    sizes.join("x")
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_schemas::config::{ImagesConfig, ModelConfig, OptimizerKind};

    const ROWS: Layout = Layout::Dense {
        features: 4,
        target: TargetKind::Classification { classes: 3 },
    };

    fn threads(threads: usize) -> Machine {
        Machine {
            threads,
            ..Machine::ALONE
        }
    }

    #[test]
    fn table_names_layers_shapes_parameters_and_memory() {
        let config = TrainConfig {
            model: ModelConfig {
                hidden: Some(vec![16, 8]),
                ..ModelConfig::default()
            },
            ..TrainConfig::default()
        };
        let text = summary(&config, &ROWS, &threads(2)).unwrap().to_string();
        let expected = "\
model mlp
  layer               kind    output    parameters
  layer.0             linear      16            80
  layer.0.activation  gelu        16             0
  layer.1             linear       8           136
  layer.1.activation  gelu         8             0
  layer.2             linear       3            27
  weights          1.8 KiB for 243 parameters, 0 buffers, and a copy to compute with
  gradients        5.6 KiB
  optimizer        1.8 KiB
  activations      113.0 KiB, about, in f32, for 2 parts of at most 128 rows at a time
  best weights     972 B
  checkpoint       2.8 KiB while it is written
  together         126.2 KiB besides the loader's
";
        assert_eq!(text, expected);
    }

    #[test]
    fn memory_grows_with_threads_and_batch_as_far_as_there_are_parts() {
        let of = |batch_size, count| {
            let config = TrainConfig {
                batch_size,
                ..TrainConfig::default()
            };
            summary(&config, &ROWS, &threads(count)).unwrap()
        };
        assert_eq!((of(64, 8).parts, of(64, 8).part_rows), (1, 64));
        assert_eq!((of(1024, 8).parts, of(1024, 8).part_rows), (8, 128));
        let config = TrainConfig {
            batch_size: 1024,
            micro_batch: Some(100),
            ..TrainConfig::default()
        };
        let capped = summary(&config, &ROWS, &threads(8)).unwrap();
        assert_eq!((capped.parts, capped.part_rows), (8, 64));
        assert_eq!(
            2 * capped.memory.activations,
            of(1024, 8).memory.activations
        );
        let [one, two] = [1, 2].map(|count| of(1024, count).memory);
        assert_eq!(two.activations, 2 * one.activations);
        assert_eq!(
            (two.parameters, two.optimizer),
            (one.parameters, one.optimizer)
        );
    }

    #[test]
    fn a_gpu_holds_what_a_step_takes_and_main_memory_the_copies() {
        let of = |ranks| {
            let machine = Machine {
                gpu: true,
                ranks,
                ..Machine::ALONE
            };
            summary(&TrainConfig::default(), &ROWS, &machine).unwrap()
        };
        let (alone, shared) = (of(1).memory, of(2).memory);
        let set = alone.best;
        let optimizer = 2 * set;
        assert_eq!(alone.optimizer, 2 * optimizer);
        let update = (4 * set + optimizer).max(set + alone.activations);
        assert_eq!(alone.on_gpu, set + optimizer + update + alone.batches);
        assert_eq!(
            alone.in_main(),
            set + optimizer + alone.best + alone.checkpoint
        );
        // Ranks add up their gradients in main memory.
        let update = (4 * set + optimizer).max(set + shared.activations);
        assert_eq!(shared.on_gpu, set + optimizer + update + shared.batches);
        assert!(shared.in_main() >= alone.in_main() + 2 * set);
    }

    #[test]
    fn batches_ahead_are_counted_on_a_gpu_only_and_by_the_rows_of_a_rank() {
        let of = |gpu, ranks, ahead, layout: &Layout| {
            let machine = Machine {
                gpu,
                ranks,
                ..Machine::ALONE
            };
            let mut config = TrainConfig {
                batch_size: 100,
                ..TrainConfig::default()
            };
            config.loader.device_prefetch = ahead;
            if matches!(layout, Layout::Images { .. }) {
                config.model.r#type = ModelKind::Cnn;
                (config.images.height, config.images.width) = (32, 48);
            }
            summary(&config, layout, &machine).unwrap().memory
        };
        // Four numbers and a class.
        let row = 5 * 4;
        assert_eq!(of(true, 1, 2, &ROWS).batches, 3 * 100 * row);
        assert_eq!(of(true, 3, 2, &ROWS).batches, 3 * 34 * row);
        assert_eq!(of(true, 1, 0, &ROWS).batches, 0);
        assert_eq!(of(false, 1, 2, &ROWS).batches, 0);
        let images = Layout::Images {
            target: TargetKind::Classification { classes: 3 },
        };
        let image = 3 * 32 * 48 + 4;
        assert_eq!(of(true, 1, 1, &images).batches, 2 * 100 * image);
        let [none, one] = [0, 1].map(|ahead| of(true, 1, ahead, &images));
        assert_eq!(one.on_gpu, none.on_gpu + one.batches);
        assert_eq!(one.in_main(), none.in_main());
    }

    #[test]
    fn blocks_that_are_computed_again_keep_their_input_only() {
        let layout = Layout::Tokens {
            id: feedline_schemas::manifest::TokenType::U16,
            vocabulary: 64,
        };
        let of = |checkpoint: &[&str]| {
            let model = ModelConfig {
                r#type: ModelKind::Transformer,
                layers: Some(8),
                checkpoint: checkpoint.iter().map(ToString::to_string).collect(),
                ..ModelConfig::default()
            };
            let config = TrainConfig {
                model,
                ..TrainConfig::default()
            };
            summary(&config, &layout, &threads(1))
        };
        let [all, half, none] = [
            &[][..],
            &["block.0", "block.1", "block.2", "block.3"],
            &["*"],
        ]
        .map(|checkpoint| of(checkpoint).unwrap().memory.activations);
        assert!(all > half && half > none);
        // One of eight blocks is kept whole, and eight inputs.
        assert!(none < all / 4, "{none} of {all}");
        let refused = of(&["block.8"]).unwrap_err().to_string();
        assert!(
            refused.contains("`train.model.checkpoint`: `block.8` names no block"),
            "{refused}"
        );
    }

    #[test]
    fn an_optimizer_without_momentum_remembers_nothing() {
        let mut config = TrainConfig::default();
        config.optimizer.r#type = OptimizerKind::Sgd;
        config.optimizer.momentum = Some(0.0);
        assert_eq!(
            summary(&config, &ROWS, &threads(1))
                .unwrap()
                .memory
                .optimizer,
            0
        );
    }

    #[test]
    fn a_large_model_is_described_without_being_built() {
        let config = TrainConfig {
            model: ModelConfig {
                r#type: ModelKind::Transformer,
                layers: Some(24),
                width: Some(2048),
                heads: Some(16),
                context: Some(1024),
                ..ModelConfig::default()
            },
            ..TrainConfig::default()
        };
        let layout = Layout::Tokens {
            id: feedline_schemas::manifest::TokenType::U16,
            vocabulary: 50_257,
        };
        // GPT-2's count: vocabulary and positions, 12 width^2 + 13 width a block, and the last norm.
        let (width, blocks) = (2048, 24);
        let expected =
            (50_257 + 1024) * width + blocks * (12 * width * width + 13 * width) + 2 * width;
        assert_eq!(
            summary(&config, &layout, &threads(8)).unwrap().parameters,
            expected
        );
    }

    #[test]
    fn a_model_that_does_not_fit_the_dataset_is_refused() {
        let config = TrainConfig {
            model: ModelConfig {
                r#type: ModelKind::Vit,
                ..ModelConfig::default()
            },
            images: ImagesConfig {
                height: 66,
                ..ImagesConfig::default()
            },
            ..TrainConfig::default()
        };
        let target = TargetKind::Regression;
        let refused = |layout: &Layout| {
            summary(&config, layout, &threads(1))
                .unwrap_err()
                .to_string()
        };
        assert!(refused(&Layout::Images { target }).contains("`train.model.patch`"));
        assert!(refused(&ROWS).contains("`train.model.type`"));
    }
}
