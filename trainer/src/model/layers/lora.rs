//! Low-rank adaptation of fully connected layers (Hu et al. 2021, arXiv 2106.09685), by extending a finished layout.
//!
//! The adapters' parameters are stored behind those of the model and before its buffers,
//! `<layer>.lora_a: [in, rank]` and `<layer>.lora_b: [rank, out]`, so a model's layers find theirs
//! at the same place. A layer asks its pass whether it is adapted; models know nothing of it.

use burn::tensor::{Tensor, module};
use feedline_schemas::config::LoraConfig;

use super::{
    Initial, LayerFacts, Layout, Pass, Slot,
    builder::{Adapter, bucket_len},
};
use crate::{
    config::name_pattern,
    error::Error,
    float_casts::{exact_len, single},
};

impl Layout {
    /// The layout with adapters for the layers that `config` names.
    ///
    /// # Errors
    /// [`Error::Config`] for a pattern that describes no fully connected layer.
    pub(crate) fn adapted(&self, config: &LoraConfig) -> Result<Self, Error> {
        let rank = config.rank as usize;
        let layers = self.linears.iter().map(|&weight| {
            let name = self.entries()[weight].name.as_str();
            (weight, name.trim_end_matches(".weight"))
        });
        let names = layers.clone().map(|(_, name)| name);
        name_pattern::check(
            "lora.targets",
            "fully connected layer",
            &config.targets,
            names,
        )?;
        let mut adapted = self.taken_apart();
        for (weight, name) in layers {
            if !name_pattern::any(&config.targets, name) {
                continue;
            }
            let shape = &self.entries()[weight].shape;
            let (from, out) = (shape[0], shape[1]);
            let bound = 1.0 / exact_len(from).sqrt();
            let a = adapted.add(
                format!("{name}.lora_a"),
                [from, rank],
                Initial::Uniform { bound },
            );
            let b = adapted.add(
                format!("{name}.lora_b"),
                [rank, out],
                Initial::Constant(0.0),
            );
            adapted.adapters.push(Adapter {
                weight,
                a,
                b,
                scale: config.alpha / exact_len(rank),
                dropout: config.dropout,
                site: self.dropouts + adapted.adapters.len(),
            });
            adapted.facts.push(LayerFacts {
                name: format!("{name}.lora"),
                kind: format!("adapter {rank}"),
                output: vec![out],
                parameters: rank * (from + out),
                kept: from + rank,
                scores: 0,
            });
        }
        Ok(adapted.finish())
    }

    /// Sides of the matrices that adapters change.
    pub(crate) fn adapted_sides(&self) -> Vec<[usize; 2]> {
        let of = |entry: usize| &self.entries()[entry].shape;
        let adapters = self.adapters.iter();
        let sides = adapters.map(|adapter| [of(adapter.a)[0], of(adapter.b)[1]]);
        sides.collect()
    }

    /// The layout without adapters, and the bucket that computes the same without them: to each adapted weight the
    /// product of its adapter is added, computed in f64.
    pub(crate) fn merged(&self, bucket: &[f32]) -> (Self, Vec<f32>) {
        let mut bucket = bucket.to_vec();
        for adapter in self.adapters.iter() {
            let of = |entry: usize| &self.entries()[entry];
            let (rank, out) = (of(adapter.b).shape[0], of(adapter.b).shape[1]);
            let a = bucket[of(adapter.a).range.clone()].to_vec();
            let b = bucket[of(adapter.b).range.clone()].to_vec();
            let weights = &mut bucket[of(adapter.weight).range.clone()];
            for (row, a) in weights.chunks_exact_mut(out).zip(a.chunks_exact(rank)) {
                for (column, weight) in row.iter_mut().enumerate() {
                    let products = a.iter().zip(b[column..].iter().step_by(out));
                    let sum: f64 = products.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                    *weight = single(f64::from(*weight) + adapter.scale * sum);
                }
            }
        }
        let first = self
            .adapters
            .first()
            .map_or(self.trained(), |adapter| adapter.a);
        let begin = bucket_len(&self.entries()[..first]);
        bucket.drain(begin..self.trained_len());
        (self.without_adapters(first), bucket)
    }
}

/// Addend of the adapter of a layer, if it has one, to the output of the layer with this weight.
pub(super) fn added<const D: usize>(
    pass: &Pass<'_>,
    weight: Slot,
    x: &Tensor<D>,
) -> Option<Tensor<D>> {
    let adapters = &pass.layout.adapters;
    let adapter = adapters.iter().find(|adapter| adapter.weight == weight.0)?;
    let product = |entry| -> Tensor<2> { pass.for_product(pass.parameter(Slot(entry))) };
    let x = pass.drop_out(x.clone(), adapter.dropout, adapter.site);
    let inner = module::linear(pass.for_product(x), product(adapter.a), None);
    Some(module::linear(inner, product(adapter.b), None) * adapter.scale)
}

#[cfg(test)]
mod tests {
    use feedline_schemas::ids::Seed;

    use super::*;
    use crate::model::layers::{
        Attention, Builder, Gain, Heads, LayerNorm, Linear,
        check::{check_adapted, outputs_adapted},
    };

    fn config(targets: &str) -> LoraConfig {
        LoraConfig {
            rank: 2,
            dropout: 0.3,
            targets: vec![targets.into()],
            ..LoraConfig::default()
        }
    }

    #[test]
    fn gradients_equal_finite_differences() {
        check_adapted(
            &config("*"),
            [4, 5],
            |b| Linear::new(b, "l", &[5], 3, Gain::Glorot),
            |l, pass, x| l.forward(pass, x),
        );
        check_adapted(
            &config("a.qkv"),
            [2, 3, 4],
            |b| {
                let norm = LayerNorm::new(b, "n", &[3, 4]);
                (
                    norm,
                    Attention::new(b, "a", [3, 4], Heads::equal(2), [Gain::Glorot; 2], true),
                )
            },
            |(norm, attention), pass, x| {
                let x = norm.forward(pass, x);
                attention.forward(pass, x, None, None)
            },
        );
    }

    #[test]
    fn adapters_lie_behind_the_parameters_and_draw_after_them() {
        let mut b = Builder::new();
        Linear::new(&mut b, "l", &[3], 2, Gain::He);
        b.buffer("mean", &[1], 7.0);
        let plain = b.finish();
        let adapted = plain.adapted(&config("l")).unwrap();
        let names: Vec<_> = adapted.entries().iter().map(|e| e.name.as_str()).collect();
        assert_eq!(
            names,
            ["l.weight", "l.bias", "l.lora_a", "l.lora_b", "mean"]
        );
        assert_eq!(adapted.trained(), 4);
        let [before, after] = [&plain, &adapted].map(|layout| layout.initial(Seed::new(3)));
        assert_eq!(before[..8], after[..8]);
        assert!(
            after[8..14]
                .iter()
                .all(|a| a.abs() <= 1.0 / 3.0_f32.sqrt() && *a != 0.0)
        );
        assert_eq!(after[14..18], [0.0; 4]);
        assert_eq!(after[18..], [7.0]);
        let refused = plain.adapted(&config("mean")).unwrap_err().to_string();
        assert!(
            refused.contains("`train.lora.targets`: `mean` names no fully connected layer"),
            "{refused}"
        );
    }

    #[test]
    fn merged_weights_give_the_same_outputs() {
        let config = LoraConfig {
            dropout: 0.0,
            ..config("*")
        };
        let build = |b: &mut Builder| Linear::new(b, "l", &[5], 3, Gain::Glorot);
        let (adapted, merged) =
            outputs_adapted(&config, [4, 5], build, |l, pass, x| l.forward(pass, x));
        crate::model::layers::check::assert_near(&adapted, &merged, 1e-6);
    }
}
