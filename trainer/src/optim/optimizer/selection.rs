//! Algorithm of a configuration, and the parameters by its groups.

use std::ops::Range;

use feedline_schemas::config::{OptimizerConfig, OptimizerKind, ParameterGroup};

use super::{
    adafactor::Adafactor,
    adam::Adam,
    algorithm::{Algorithm, OptimizedParameter},
    lamb::Lamb,
    lars::Lars,
    muon::Muon,
    sgd::Sgd,
    state::StateLayout,
};
use crate::{config::name_pattern, model::interface::Parameter};

/// The algorithm of a configuration that [`resolve`](super::resolve) returned.
pub(super) fn algorithm(config: &OptimizerConfig) -> Box<dyn Algorithm> {
    let number = |key: Option<f64>| key.expect("what the type uses was filled in");
    let adam = || Adam {
        beta1: number(config.beta1),
        beta2: number(config.beta2),
        epsilon: number(config.epsilon),
    };
    match config.r#type {
        OptimizerKind::Sgd => Box::new(Sgd {
            momentum: number(config.momentum),
            dampening: number(config.dampening),
            nesterov: config.nesterov == Some(true),
        }),
        OptimizerKind::Adam | OptimizerKind::Adamw => Box::new(adam()),
        OptimizerKind::Lamb => Box::new(Lamb(adam())),
        OptimizerKind::Lars => Box::new(Lars {
            momentum: number(config.momentum),
            trust: number(config.trust),
        }),
        OptimizerKind::Muon => Box::new(Muon {
            momentum: number(config.momentum),
            nesterov: config.nesterov == Some(true),
            adam: adam(),
        }),
        OptimizerKind::Adafactor => Box::new(Adafactor {
            beta2_decay: number(config.beta2_decay),
            epsilon_scale: number(config.epsilon_scale),
            update_clip: number(config.update_clip),
        }),
    }
}

/// The state of an optimizer of these parameters. `config` is what [`resolve`](super::resolve) returned.
pub(crate) fn state_layout(config: &OptimizerConfig, parameters: &[Parameter]) -> StateLayout {
    let algorithm = algorithm(config);
    let mut layout = StateLayout::new();
    for parameter in parameters {
        for (i, (name, len)) in algorithm.state(parameter).into_iter().enumerate() {
            match layout.get_mut(i) {
                Some((_, sum)) => *sum += len,
                None => layout.push((name.to_owned(), len)),
            }
        }
    }
    layout
}

/// The parameters as the optimizer sees them, with their parts of the state.
pub(super) fn members(
    config: &OptimizerConfig,
    parameters: &[Parameter],
    algorithm: &dyn Algorithm,
) -> Vec<OptimizedParameter> {
    let mut ends: Vec<usize> = Vec::new();
    let members = parameters.iter().map(|parameter| {
        let lens = algorithm.state(parameter);
        ends.resize(lens.len(), 0);
        let take = |(end, (_, len)): (&mut usize, (_, usize))| {
            *end += len;
            *end - len..*end
        };
        let state = ends.iter_mut().zip(lens).map(take).collect();
        member(config, parameter, state)
    });
    members.collect()
}

/// Settings of one parameter by `config`.
fn member(
    config: &OptimizerConfig,
    parameter: &Parameter,
    state: Vec<Range<usize>>,
) -> OptimizedParameter {
    let mut groups = config.group.iter();
    let group = groups.find(|group| name_pattern::matches(&group.parameters, &parameter.name));
    let own = |of_group: fn(&ParameterGroup) -> Option<f64>, of_all: f64| {
        let of_all = if parameter.decays { of_all } else { 0.0 };
        group.and_then(of_group).unwrap_or(of_all)
    };
    OptimizedParameter {
        range: parameter.range.clone(),
        shape: parameter.shape.clone(),
        adapts: parameter.decays,
        is_hidden: parameter.is_hidden,
        rate_factor: group.map_or(1.0, |group| group.rate_factor),
        weight_decay: own(|g| g.weight_decay, config.weight_decay.unwrap_or(0.0)),
        l2: own(|g| g.l2, config.l2),
        l1: own(|g| g.l1, config.l1),
        state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::optimizer::resolve;

    fn group(parameters: &str) -> ParameterGroup {
        ParameterGroup {
            parameters: parameters.into(),
            rate_factor: 1.0,
            weight_decay: None,
            l2: None,
            l1: None,
        }
    }

    #[test]
    fn the_first_group_that_names_a_parameter_counts() {
        let parameter = |name: &str, decays| Parameter {
            name: name.into(),
            shape: vec![2],
            range: 0..2,
            decays,
            is_hidden: false,
        };
        let mut config = resolve(&OptimizerConfig::default()).unwrap();
        config.l1 = 0.5;
        config.group = vec![
            ParameterGroup {
                rate_factor: 0.1,
                weight_decay: Some(0.3),
                ..group("*.0.*")
            },
            ParameterGroup {
                rate_factor: 7.0,
                ..group("layer.*")
            },
        ];
        let found = |name, decays| {
            let member = member(&config, &parameter(name, decays), vec![]);
            (member.rate_factor, member.weight_decay, member.l1)
        };
        assert_eq!(found("layer.0.weight", true), (0.1, 0.3, 0.5));
        assert_eq!(found("layer.0.bias", false), (0.1, 0.3, 0.0));
        assert_eq!(found("layer.1.weight", true), (7.0, 0.01, 0.5));
        assert_eq!(found("head.bias", false), (1.0, 0.0, 0.0));
    }
}
