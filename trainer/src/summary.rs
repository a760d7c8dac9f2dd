//! What a model is made of and how much memory training it takes, before any of it is taken.

use std::fmt;

use feedline_schemas::{
    config::{ModelKind, TrainConfig},
    manifest::{Layout, Split, TargetKind},
    units::ByteSize,
};
use serde::Serialize;

use crate::{
    Context,
    engine::parts::part_count,
    error::{Error, config as wrong},
    layers::{self, LayerFacts, PassSettings},
    loaders::Loaders,
    model, models, optimizer,
    parallel::{Group, Place},
    plan,
    run_folder::runtime,
    settings,
};

/// Bytes of an f32.
const NUMBER: u64 = 4;

/// Sets of weights: current, best so far, and the copy that a step computes with.
const WEIGHT_SETS: u64 = 3;

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
    /// Rows of a batch that one thread computes at a time.
    pub part_rows: u64,
    /// Parts that are computed at a time.
    pub parts: u64,
    /// Memory by what takes it.
    pub memory: Memory,
}

/// Bytes that training takes, besides the loader's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Parameters and buffers: the current ones, the best so far, and the copy that a step computes with.
    pub parameters: u64,
    /// The batch's gradient, and one, twice while it is copied, of each part that is computed.
    pub gradients: u64,
    /// What the optimizer remembers.
    pub optimizer: u64,
    /// What the parts that are computed keep of their layers for the backward pass. An estimate: each layer's inputs as
    /// it says, twice for the gradients that take their place.
    pub activations: u64,
}

impl Memory {
    /// All of it.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.parameters + self.gradients + self.optimizer + self.activations
    }
}

/// Describes the model that `config` names for a dataset of this layout, on a machine with so many threads.
///
/// Nothing is allocated that grows with the model.
///
/// # Errors
/// [`Error::Config`] for a value that is out of range or does not fit the layout.
pub fn summary(config: &TrainConfig, layout: &Layout, threads: usize) -> Result<Summary, Error> {
    settings::check(config)?;
    let filled = models::filled(config);
    let shape = plan::shape(layout, config);
    let model = models::build(&filled, shape, outputs(filled.r#type, layout)?)?;
    let model = model::adapted(model, config.lora.as_ref())?;
    let model_layout = model.layout();
    let numbers = model_layout.len() as u64;
    let rows = config.batch_size as usize;
    let least = settings::cut(config, Place::ALONE).least(rows);
    let all_parts = part_count(shape, rows, model_layout.len(), least);
    let part = rows.div_ceil(all_parts);
    let parts = all_parts.min(threads.max(1)) as u64;
    let passes = settings::passes(config, model_layout)?;
    let kept = kept(model_layout, &passes);
    let trained = &passes.trained(model_layout);
    let optimizer_config = optimizer::resolve(&config.optimizer)?;
    optimizer::check_groups(&optimizer_config, trained)?;
    let state = optimizer::state_layout(&optimizer_config, trained);
    let remembered: usize = state.iter().map(|(_, len)| len).sum();
    Ok(Summary {
        model: filled.r#type,
        layers: model_layout.facts().to_vec(),
        parameters: model_layout.trained_len() as u64,
        buffers: numbers - model_layout.trained_len() as u64,
        part_rows: part as u64,
        parts,
        memory: Memory {
            parameters: WEIGHT_SETS * numbers * NUMBER,
            // One for each level of the tree they are added in, and two for each part under way.
            gradients: (1 + u64::from(all_parts.ilog2()) + 2 * parts) * numbers * NUMBER,
            optimizer: remembered as u64 * NUMBER,
            activations: 2 * parts * part as u64 * kept as u64 * NUMBER,
        },
    })
}

/// Numbers per sample that are kept for the backward pass: of segments that are computed again, their inputs, and all
/// that the largest of them keeps.
fn kept(layout: &layers::Layout, passes: &PassSettings) -> usize {
    let of = |layers: &[LayerFacts]| layers.iter().map(|layer| layer.kept).sum::<usize>();
    let again = layout.segments().iter().enumerate();
    let again = again.filter_map(|(i, segment)| passes.again(i).then_some(segment));
    let trained = passes.trained(layout);
    let of_layer = |layer: &LayerFacts| {
        let inside = |name: &str| {
            name.strip_prefix(&layer.name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        trained.iter().any(|parameter| inside(&parameter.name))
    };
    // No gradient goes below the first layer that is trained.
    let first = layout.facts().iter().position(of_layer).unwrap_or(0);
    let (mut kept, mut largest) = (of(&layout.facts()[first..]), 0);
    for segment in again.filter(|segment| segment.layers.start >= first) {
        let inside = of(&layout.facts()[segment.layers.clone()]);
        kept = kept - inside + segment.input;
        largest = largest.max(inside);
    }
    kept + largest
}

/// [`summary`] for the dataset of `context`, of which the manifest is read and no shard. Blocks.
///
/// # Errors
/// As [`summary`], and what dataset and storage say.
pub fn summarize(
    config: &TrainConfig,
    context: &Context,
    threads: usize,
) -> Result<Summary, Error> {
    settings::check(config)?;
    let runtime = runtime()?;
    let (dataset, splits) = (&context.dataset, &[Split::Train]);
    let alone = Group::alone();
    let opening = Loaders::open(dataset, config, splits, &alone, &context.clock);
    let loaders = runtime.block_on(opening)?;
    summary(config, &loaders.manifest().layout, threads)
}

/// Numbers that the model puts out per row or place.
fn outputs(kind: ModelKind, layout: &Layout) -> Result<usize, Error> {
    let target = match layout {
        Layout::Tokens { vocabulary, .. } => return Ok(*vocabulary as usize),
        Layout::Dense { features, .. } if kind == ModelKind::Autoencoder => {
            return Ok(*features as usize);
        }
        Layout::Dense { target, .. } | Layout::Pictures { target } => target,
    };
    match target {
        TargetKind::Regression => Ok(1),
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
        let counts = format!(
            " for {} parameters, {} buffers",
            self.parameters, self.buffers
        );
        let parts = format!(
            ", about, for {} part(s) of {} rows at a time",
            self.parts, self.part_rows
        );
        line(f, "weights", self.memory.parameters, &counts)?;
        line(f, "gradients", self.memory.gradients, "")?;
        line(f, "optimizer", self.memory.optimizer, "")?;
        line(f, "activations", self.memory.activations, &parts)?;
        line(f, "together", self.memory.total(), " besides the loader's")
    }
}

fn sizes(layer: &LayerFacts) -> String {
    let sizes: Vec<String> = layer.output.iter().map(ToString::to_string).collect();
    sizes.join("x")
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_schemas::config::{ModelConfig, OptimizerKind, PicturesConfig};

    const ROWS: Layout = Layout::Dense {
        features: 4,
        target: TargetKind::Classification { classes: 3 },
    };

    #[test]
    fn table_names_layers_shapes_parameters_and_memory() {
        let config = TrainConfig {
            model: ModelConfig {
                hidden: Some(vec![16, 8]),
                ..ModelConfig::default()
            },
            ..TrainConfig::default()
        };
        let text = summary(&config, &ROWS, 2).unwrap().to_string();
        let expected = "\
model mlp
  layer               kind    output    parameters
  layer.0             linear      16            80
  layer.0.activation  gelu        16             0
  layer.1             linear       8           136
  layer.1.activation  gelu         8             0
  layer.2             linear       3            27
  weights          2.8 KiB for 243 parameters, 0 buffers
  gradients        5.6 KiB
  optimizer        1.8 KiB
  activations      104.0 KiB, about, for 2 part(s) of 128 rows at a time
  together         114.4 KiB besides the loader's
";
        assert_eq!(text, expected);
    }

    #[test]
    fn memory_grows_with_threads_and_batch_as_far_as_there_are_parts() {
        let of = |batch_size, threads| {
            let config = TrainConfig {
                batch_size,
                ..TrainConfig::default()
            };
            summary(&config, &ROWS, threads).unwrap()
        };
        assert_eq!((of(64, 8).parts, of(64, 8).part_rows), (1, 64));
        assert_eq!((of(1024, 8).parts, of(1024, 8).part_rows), (8, 128));
        let config = TrainConfig {
            batch_size: 1024,
            micro_batch: Some(100),
            ..TrainConfig::default()
        };
        let capped = summary(&config, &ROWS, 8).unwrap();
        assert_eq!((capped.parts, capped.part_rows), (8, 64));
        assert_eq!(
            2 * capped.memory.activations,
            of(1024, 8).memory.activations
        );
        let [one, two] = [1, 2].map(|threads| of(1024, threads).memory);
        assert_eq!(two.activations, 2 * one.activations);
        assert_eq!(
            (two.parameters, two.optimizer),
            (one.parameters, one.optimizer)
        );
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
            summary(&config, &layout, 1)
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
        assert_eq!(summary(&config, &ROWS, 1).unwrap().memory.optimizer, 0);
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
        assert_eq!(summary(&config, &layout, 8).unwrap().parameters, expected);
    }

    #[test]
    fn a_model_that_does_not_fit_the_dataset_is_refused() {
        let config = TrainConfig {
            model: ModelConfig {
                r#type: ModelKind::Vit,
                ..ModelConfig::default()
            },
            pictures: PicturesConfig {
                height: 66,
                ..PicturesConfig::default()
            },
            ..TrainConfig::default()
        };
        let target = TargetKind::Regression;
        let refused = |layout: &Layout| summary(&config, layout, 1).unwrap_err().to_string();
        assert!(refused(&Layout::Pictures { target }).contains("`train.model.patch`"));
        assert!(refused(&ROWS).contains("`train.model.type`"));
    }
}
