//! Check that a training fits, and advice where it does not.

use feedline_schemas::{
    config::TrainConfig, count::counted, manifest::Layout, report::Warning, units::ByteSize,
};
use serde::Serialize;

use super::{Machine, Summary, layout_of, summary};
use crate::{Context, config::settings, error::Error};

/// Memory that a training takes, memory of the machine, and advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fit {
    /// Main memory, and the GPU's where there is one.
    pub needs: Vec<Need>,
    /// Advice on the configuration: each line alone is enough. Empty where all fits, or where
    /// nothing would help.
    pub advice: Vec<String>,
    /// Note on the number of ranks.
    pub ranks: Option<String>,
}

/// A memory, and what a training takes of it. An estimate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// `memory` or `GPU memory`.
    pub of: &'static str,
    /// Bytes that training takes at most, of all ranks that share the memory.
    pub bytes: u64,
    /// Bytes of them that hold batches which are copied to a GPU ahead of their step, and that of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches_bytes: Option<u64>,
    /// Bytes that can be taken; `None` where it is not known.
    pub available_bytes: Option<u64>,
}

impl Need {
    /// Returns true if more is taken than is available; false where that is not known.
    #[must_use]
    pub fn is_too_much(&self) -> bool {
        self.available_bytes
            .is_some_and(|available| self.bytes > available)
    }
}

impl Fit {
    /// Returns true if more is taken than is available.
    #[must_use]
    pub fn is_too_much(&self) -> bool {
        self.needs.iter().any(Need::is_too_much)
    }

    /// Warnings of what is wrong, in the log too.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        let too_much = self.needs.iter().filter(|need| need.is_too_much());
        let needs = too_much.map(|need| {
            let message = format!(
                "training needs {} of {}, and {} are available: {}",
                ByteSize::new(need.bytes),
                need.of,
                ByteSize::new(need.available_bytes.unwrap_or_default()),
                self.advice.join("; or ")
            );
            Warning::new("does_not_fit", message)
        });
        let ranks = self.ranks.iter().map(|ranks| {
            Warning::new("ranks_do_not_divide", ranks.clone()).with_key("train.batch_size")
        });
        let warnings: Vec<Warning> = needs.chain(ranks).collect();
        for warning in &warnings {
            tracing::warn!(code = warning.code, "{}", warning.message);
        }
        warnings
    }
}

/// Checks that the training of `config` on the dataset of `context` fits this machine. Reads the
/// manifest and no shard. Blocks.
///
/// # Errors
/// As [`summarize`](super::summarize).
pub fn fit(config: &TrainConfig, context: &Context) -> Result<Fit, Error> {
    let (config, layout) = layout_of(config, context)?;
    of_layout(&config, &layout, &Machine::of(&config, &context.group))
}

fn of_layout(config: &TrainConfig, layout: &Layout, machine: &Machine) -> Result<Fit, Error> {
    let describe = |config: &TrainConfig| summary(config, layout, machine);
    of(config, machine, &describe)
}

/// The same for any model that `describe` knows.
///
/// # Errors
/// Errors of `describe`.
pub(crate) fn of(
    config: &TrainConfig,
    machine: &Machine,
    describe: &dyn Fn(&TrainConfig) -> Result<Summary, Error>,
) -> Result<Fit, Error> {
    let found = describe(config)?;
    let needs = needs(&found, machine);
    let advice = if needs.iter().any(Need::is_too_much) {
        advice(config, &found, machine, describe)
    } else {
        Vec::new()
    };
    Ok(Fit {
        needs,
        advice,
        ranks: (!found.same_bits).then(|| of_ranks(config, &found, machine, describe)),
    })
}

fn needs(summary: &Summary, machine: &Machine) -> Vec<Need> {
    let memory = summary.memory;
    let mut needs = vec![Need {
        of: "memory",
        bytes: memory.in_main() * machine.local_ranks as u64,
        batches_bytes: None,
        available_bytes: machine.memory_bytes,
    }];
    if summary.gpu {
        needs.push(Need {
            of: "GPU memory",
            bytes: memory.on_gpu,
            batches_bytes: (memory.batches > 0).then_some(memory.batches),
            available_bytes: machine.gpu_memory_bytes,
        });
    }
    needs
}

/// Changes that make it fit: each of the keys alone where that is enough, else both.
fn advice(
    config: &TrainConfig,
    found: &Summary,
    machine: &Machine,
    describe: &dyn Fn(&TrainConfig) -> Result<Summary, Error>,
) -> Vec<String> {
    let fits = |config: &TrainConfig| {
        let found = describe(config);
        found.is_ok_and(|found| !needs(&found, machine).iter().any(Need::is_too_much))
    };
    let blocks = again(config, found, &fits);
    let rows = micro_batch(config, found, &fits);
    let blocks_told = |blocks: &[String]| {
        let names: Vec<String> = blocks.iter().map(|name| format!("\"{name}\"")).collect();
        format!("`train.model.checkpoint = [{}]`", names.join(", "))
    };
    let mut shared = config.clone();
    shared.parallel.shard_optimizer = true;
    let mut advice = Vec::new();
    if machine.ranks > 1 && !config.parallel.shard_optimizer && fits(&shared) {
        advice.push("set `train.parallel.shard_optimizer = true`: the same weights".to_owned());
    }
    let mut in_step = config.clone();
    in_step.loader.device_prefetch = 0;
    if found.memory.batches > 0 && fits(&in_step) {
        let effect = "the same weights, and each step waits for its batch";
        advice.push(format!("set `train.loader.device_prefetch = 0`: {effect}"));
    }
    advice.extend(blocks.map(|blocks| {
        let key = blocks_told(&blocks);
        format!("set {key}: the same weights, and more time for each step")
    }));
    advice.extend(rows.map(|rows| {
        let effect = effect_of(rows, found.ghost_rows);
        format!("set `train.micro_batch = {rows}`: {effect}")
    }));
    if advice.is_empty() && !found.blocks.is_empty() {
        let all = with_blocks(config, &["*".to_owned()]);
        let rows = micro_batch(&all, found, &fits);
        advice.extend(rows.map(|rows| {
            let key = blocks_told(&["*".to_owned()]);
            format!("set {key} and `train.micro_batch = {rows}`")
        }));
    }
    advice
}

/// Changes that a micro-batch of `rows` makes, for a model that normalises over `ghost_rows`, if it does.
fn effect_of(rows: u32, ghost_rows: Option<u64>) -> &'static str {
    match ghost_rows {
        Some(ghost) if u64::from(rows) < ghost => {
            "batch norm then normalises over at most so many rows, so the model learns otherwise"
        }
        _ => "sums are taken in another order, so the last bits of the weights change",
    }
}

fn with_blocks(config: &TrainConfig, blocks: &[String]) -> TrainConfig {
    let mut changed = config.clone();
    changed.model.checkpoint = blocks.to_vec();
    changed
}

/// The fewest blocks to compute again.
fn again(
    config: &TrainConfig,
    found: &Summary,
    fits: &dyn Fn(&TrainConfig) -> bool,
) -> Option<Vec<String>> {
    if !config.model.checkpoint.is_empty() {
        return None;
    }
    let mut first = (1..=found.blocks.len()).map(|count| &found.blocks[..count]);
    let blocks = first.find(|blocks| fits(&with_blocks(config, blocks)))?;
    Some(if blocks.len() == found.blocks.len() {
        vec!["*".to_owned()]
    } else {
        blocks.to_vec()
    })
}

/// The largest power of two for `train.micro_batch`.
fn micro_batch(
    config: &TrainConfig,
    found: &Summary,
    fits: &dyn Fn(&TrainConfig) -> bool,
) -> Option<u32> {
    let below = u32::try_from(found.part_rows.saturating_sub(1)).unwrap_or(u32::MAX);
    let most = below.checked_ilog2()?;
    (0..=most).rev().map(|power| 1 << power).find(|rows| {
        let mut changed = config.clone();
        changed.micro_batch = Some(*rows);
        fits(&changed)
    })
}

/// Settings with which the ranks divide the parts of a batch.
fn of_ranks(
    config: &TrainConfig,
    found: &Summary,
    machine: &Machine,
    describe: &dyn Fn(&TrainConfig) -> Result<Summary, Error>,
) -> String {
    let ranks = machine.ranks;
    let effect = match found.ghost_rows {
        Some(_) => {
            "and batch norm normalises over other rows on each, so the model learns otherwise than with another number of ranks"
        }
        None => "so the weights differ in their last bits from those of other numbers of ranks",
    };
    let told = format!(
        "the {ranks} ranks do not divide the parts of a batch of {}, {effect}",
        counted(config.batch_size.into(), "row")
    );
    let to_start = best_ranks(config, found, ranks);
    if !to_start.fitting.is_empty() {
        let numbers: Vec<String> = to_start.fitting.iter().map(usize::to_string).collect();
        return format!(
            "{told}; start {} ranks, a power of two",
            numbers.join(" or ")
        );
    }
    let keys = keys_for(config, to_start.with_keys, describe);
    let start = match to_start.with_keys == ranks {
        true => String::new(),
        false => format!("start {} ranks, a power of two, and ", to_start.with_keys),
    };
    match keys.is_empty() {
        true => format!("{told}; start fewer ranks"),
        false => format!("{told}; {start}set {}", keys.join(" or ")),
    }
}

/// Numbers of ranks near a number that does not divide the parts of a batch.
struct BestRanks {
    /// Those that divide the parts as they are; none where `ranks` is a power of two.
    fitting: Vec<usize>,
    /// One that divides other parts.
    with_keys: usize,
}

/// The powers of two next to `ranks`. One has no more ranks than a batch has rows.
fn best_ranks(config: &TrainConfig, found: &Summary, ranks: usize) -> BestRanks {
    let most = (config.batch_size as usize).max(1);
    let below = 1 << ranks.min(most).ilog2();
    let near = match ranks.is_power_of_two() {
        true => Vec::new(),
        false => vec![below, 2 * below],
    };
    let fits = |ranks: &usize| *ranks > 1 && found.batch_parts.is_multiple_of(*ranks);
    BestRanks {
        fitting: near.into_iter().filter(fits).collect(),
        with_keys: below,
    }
}

/// Settings with which so many ranks divide the parts of a batch.
fn keys_for(
    config: &TrainConfig,
    ranks: usize,
    describe: &dyn Fn(&TrainConfig) -> Result<Summary, Error>,
) -> Vec<String> {
    let divide = |change: &dyn Fn(&mut TrainConfig)| {
        let mut changed = config.clone();
        change(&mut changed);
        let found = settings::check(&changed).and_then(|()| describe(&changed));
        found.is_ok_and(|found| found.batch_parts.is_multiple_of(ranks))
    };
    let parts = u32::try_from(ranks).unwrap_or(u32::MAX);
    let by_parts = divide(&|config| config.parallel.parts = parts);
    let sizes = (0..=20).map(|power| 1_u32 << power);
    let size = sizes
        .filter(|size| *size > config.batch_size)
        .find(|size| divide(&|config| config.batch_size = *size));
    let by_parts = by_parts.then(|| format!("`train.parallel.parts = {parts}`"));
    let by_size = size.map(|size| format!("`train.batch_size = {size}`"));
    by_parts.into_iter().chain(by_size).collect()
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        config::{ModelConfig, ModelKind, NormKind},
        manifest::{TargetKind, TokenType},
    };

    use super::*;

    const TOKENS: Layout = Layout::Tokens {
        id: TokenType::U16,
        vocabulary: 64,
    };

    fn transformer() -> TrainConfig {
        let model = ModelConfig {
            r#type: ModelKind::Transformer,
            layers: Some(4),
            ..ModelConfig::default()
        };
        TrainConfig {
            model,
            batch_size: 64,
            ..TrainConfig::default()
        }
    }

    fn needed(config: &TrainConfig) -> u64 {
        summary(config, &TOKENS, &Machine::ALONE)
            .unwrap()
            .memory
            .total()
    }

    fn with_memory(memory_bytes: u64) -> Fit {
        let machine = Machine {
            memory_bytes: Some(memory_bytes),
            ..Machine::ALONE
        };
        of_layout(&transformer(), &TOKENS, &machine).unwrap()
    }

    #[test]
    fn what_fits_needs_no_advice_and_what_is_not_known_is_no_fault() {
        let enough = with_memory(needed(&transformer()));
        assert!(!enough.is_too_much() && enough.advice.is_empty());
        let unknown = of_layout(&transformer(), &TOKENS, &Machine::ALONE).unwrap();
        assert!(!unknown.is_too_much() && unknown.needs[0].available_bytes.is_none());
    }

    #[test]
    fn advice_names_the_fewest_blocks_and_the_largest_micro_batch_that_fit() {
        let mut two = transformer();
        two.model.checkpoint = vec!["block.0".to_owned(), "block.1".to_owned()];
        let fit = with_memory(needed(&two));
        assert!(fit.is_too_much());
        assert!(
            fit.advice[0].contains("`train.model.checkpoint = [\"block.0\", \"block.1\"]`"),
            "{fit:?}"
        );
        let mut four = transformer();
        four.micro_batch = Some(4);
        let fit = with_memory(needed(&four));
        let told = fit
            .advice
            .iter()
            .any(|a| a.contains("`train.micro_batch = 4`"));
        assert!(told, "{fit:?}");
    }

    #[test]
    fn a_micro_batch_below_a_ghost_batch_is_said_to_change_what_is_learnt() {
        let layout = Layout::Dense {
            features: 4,
            target: TargetKind::Regression,
        };
        let ghost_rows = |norm| {
            let config = TrainConfig {
                model: ModelConfig {
                    norm: Some(norm),
                    ..ModelConfig::default()
                },
                ..TrainConfig::default()
            };
            let found = summary(&config, &layout, &Machine::ALONE);
            found.unwrap().ghost_rows
        };
        let [batch, layer] = [NormKind::Batch, NormKind::Layer].map(ghost_rows);
        assert_eq!([batch, layer], [Some(128), None]);
        assert!(effect_of(16, layer).contains("last bits"));
        assert!(effect_of(128, batch).contains("last bits"));
        assert!(effect_of(64, batch).contains("learns otherwise"));
    }

    #[test]
    fn both_keys_are_named_where_none_is_enough_and_nothing_where_both_are_not() {
        let mut both = transformer();
        both.model.checkpoint = vec!["*".to_owned()];
        both.micro_batch = Some(1);
        let fit = with_memory(needed(&both));
        assert_eq!(fit.advice.len(), 1, "{fit:?}");
        assert!(
            fit.advice[0].contains("= [\"*\"]` and `train.micro_batch = 1`"),
            "{fit:?}"
        );
        assert!(with_memory(1).advice.is_empty());
    }

    #[test]
    fn batches_ahead_are_part_of_the_memory_of_a_gpu_and_are_left_out_where_it_is_too_small() {
        let mut machine = Machine {
            gpu: true,
            ..Machine::ALONE
        };
        let mut in_step = transformer();
        in_step.loader.device_prefetch = 0;
        let on_gpu = |config: &TrainConfig| {
            let found = summary(config, &TOKENS, &machine).unwrap();
            (found.memory.on_gpu, found.memory.batches)
        };
        let (ahead, without) = (on_gpu(&transformer()), on_gpu(&in_step));
        assert_eq!((ahead.0 - without.0, without.1), (ahead.1, 0));
        machine.gpu_memory_bytes = Some(without.0);
        let fit = of_layout(&transformer(), &TOKENS, &machine).unwrap();
        let gpu = &fit.needs[1];
        assert_eq!(
            (gpu.bytes, gpu.batches_bytes, gpu.is_too_much()),
            (ahead.0, Some(ahead.1), true)
        );
        let named = fit.advice[0].contains("`train.loader.device_prefetch = 0`");
        assert!(named, "{fit:?}");
        let fit = of_layout(&in_step, &TOKENS, &machine).unwrap();
        assert_eq!(
            (fit.needs[1].batches_bytes, fit.is_too_much()),
            (None, false)
        );
    }

    #[test]
    fn ranks_are_told_to_share_the_state_of_the_optimizer() {
        let mut shared = transformer();
        shared.parallel.shard_optimizer = true;
        let mut machine = Machine {
            ranks: 4,
            ..Machine::ALONE
        };
        let all = |config: &TrainConfig| summary(config, &TOKENS, &machine).unwrap().memory;
        let [whole, share] = [all(&transformer()), all(&shared)];
        assert_eq!(share.optimizer, whole.optimizer.div_ceil(4));
        machine.memory_bytes = Some(share.total());
        let fit = of_layout(&transformer(), &TOKENS, &machine).unwrap();
        let told = fit.advice[0].contains("`train.parallel.shard_optimizer = true`");
        assert!(told, "{fit:?}");
    }

    #[test]
    fn ranks_that_do_not_divide_the_parts_are_told_what_to_set() {
        let layout = Layout::Dense {
            features: 4,
            target: TargetKind::Regression,
        };
        let told = |ranks, batch_size| {
            let machine = Machine {
                ranks,
                ..Machine::ALONE
            };
            let config = TrainConfig {
                batch_size,
                ..TrainConfig::default()
            };
            of_layout(&config, &layout, &machine).unwrap().ranks
        };
        assert_eq!(told(1, 64), None);
        assert_eq!(told(4, 512), None);
        let config = TrainConfig {
            model: ModelConfig {
                norm: Some(NormKind::Batch),
                ..ModelConfig::default()
            },
            batch_size: 512,
            ..TrainConfig::default()
        };
        let normalised = |ranks| {
            let machine = Machine {
                ranks,
                ..Machine::ALONE
            };
            of_layout(&config, &layout, &machine).unwrap().ranks
        };
        assert_eq!([normalised(1), normalised(2)], [None, None]);
        let three = normalised(3).unwrap();
        assert!(three.contains("learns otherwise"), "{three}");
        let four = told(4, 64).unwrap();
        let expected = "`train.parallel.parts = 4` or `train.batch_size = 512`";
        assert!(four.contains(expected), "{four}");
        let three = told(3, 512).unwrap();
        assert!(three.contains("start 2 or 4 ranks"), "{three}");
        // Numbers that are named divide the parts.
        for (ranks, batch_size) in [(3, 32), (10, 8), (100, 32), (6, 256)] {
            let said = told(ranks, batch_size).unwrap();
            let start = said.split("; start ").nth(1).unwrap();
            let numbers = start.split_once(" ranks").unwrap().0.split(" or ");
            let parts = start.split("parts = ").nth(1);
            let parts = parts.map(|parts| parts.split('`').next().unwrap().parse().unwrap());
            for number in numbers {
                let machine = Machine {
                    ranks: number.parse().unwrap(),
                    ..Machine::ALONE
                };
                let mut config = TrainConfig {
                    batch_size,
                    ..TrainConfig::default()
                };
                config.parallel.parts = parts.unwrap_or(config.parallel.parts);
                let again = of_layout(&config, &layout, &machine).unwrap().ranks;
                assert_eq!(again, None, "{said}");
            }
        }
    }
}
