//! `[train.optimizer]`: which keys each type has, their defaults, and the groups of parameters.

use feedline_schemas::config::{OptimizerConfig, OptimizerKind, ParameterGroup};

use crate::{
    config::{
        name_pattern,
        values::{above_zero, at_least_zero, filled, share, within},
    },
    error::{Error, config as wrong},
    model::interface::Parameter,
};

/// The keys that a type has, with their defaults.
fn defaults(kind: OptimizerKind) -> OptimizerConfig {
    let none = OptimizerConfig {
        r#type: kind,
        weight_decay: Some(0.0),
        ..OptimizerConfig::default()
    };
    let adam = OptimizerConfig {
        beta1: Some(0.9),
        beta2: Some(0.999),
        epsilon: Some(1e-8),
        ..none.clone()
    };
    match kind {
        OptimizerKind::Sgd => OptimizerConfig {
            momentum: Some(0.0),
            dampening: Some(0.0),
            nesterov: Some(false),
            ..none
        },
        OptimizerKind::Adam => OptimizerConfig {
            weight_decay: None,
            ..adam
        },
        OptimizerKind::Adamw => OptimizerConfig {
            weight_decay: Some(0.01),
            ..adam
        },
        OptimizerKind::Lamb => OptimizerConfig {
            epsilon: Some(1e-6),
            weight_decay: Some(0.01),
            ..adam
        },
        OptimizerKind::Lars => OptimizerConfig {
            momentum: Some(0.9),
            trust: Some(0.001),
            ..none
        },
        OptimizerKind::Muon => OptimizerConfig {
            momentum: Some(0.95),
            nesterov: Some(true),
            weight_decay: Some(0.1),
            ..adam
        },
        OptimizerKind::Adafactor => OptimizerConfig {
            beta2_decay: Some(-0.8),
            epsilon_scale: Some(0.001),
            update_clip: Some(1.0),
            ..none
        },
    }
}

/// Checks `config` and fills in every key that its type has.
///
/// # Errors
/// [`Error::Config`] for the first key that the type has no use for, or whose value is out of range.
pub(crate) fn resolve(config: &OptimizerConfig) -> Result<OptimizerConfig, Error> {
    let kind = config.r#type;
    let default = defaults(kind);
    if config.weight_decay.is_some() && default.weight_decay.is_none() {
        return Err(wrong("optimizer.weight_decay", NO_DECAY));
    }
    macro_rules! fill {
        ($($key:ident),*) => {
            OptimizerConfig {
                $($key: filled(concat!("optimizer.", stringify!($key)), &kind, config.$key, default.$key)?,)*
                ..config.clone()
            }
        };
    }
    let filled = fill!(
        momentum,
        dampening,
        nesterov,
        beta1,
        beta2,
        epsilon,
        trust,
        beta2_decay,
        epsilon_scale,
        update_clip,
        weight_decay
    );
    check(&filled)?;
    Ok(filled)
}

const NO_DECAY: &str =
    "`adam` has no such key; use `optimizer.type = \"adamw\"`, or `optimizer.l2`";

fn check(config: &OptimizerConfig) -> Result<(), Error> {
    let each = |key: &str, value: Option<f64>, check: fn(&str, f64) -> Result<(), Error>| {
        value.map_or(Ok(()), |value| check(&format!("optimizer.{key}"), value))
    };
    each("momentum", config.momentum, share)?;
    each("dampening", config.dampening, |key, value| {
        within(key, value, value <= 1.0, "from 0 to 1")
    })?;
    each("beta1", config.beta1, share)?;
    each("beta2", config.beta2, share)?;
    each("epsilon", config.epsilon, above_zero)?;
    each("trust", config.trust, above_zero)?;
    each("beta2_decay", config.beta2_decay, |key, value| {
        if value.is_finite() && value < 0.0 {
            Ok(())
        } else {
            Err(wrong(key, format!("it is {value} and must be below 0")))
        }
    })?;
    each("epsilon_scale", config.epsilon_scale, above_zero)?;
    each("update_clip", config.update_clip, above_zero)?;
    each("weight_decay", config.weight_decay, at_least_zero)?;
    at_least_zero("optimizer.l2", config.l2)?;
    at_least_zero("optimizer.l1", config.l1)?;
    let is_damped = config.dampening.is_some_and(|dampening| dampening > 0.0);
    let plain = config.momentum == Some(0.0) || is_damped;
    if config.nesterov == Some(true) && plain {
        let reason = match config.r#type {
            OptimizerKind::Muon => "it needs `train.optimizer.momentum` above 0; set it to false",
            _ => "it needs `train.optimizer.momentum` above 0 and `train.optimizer.dampening = 0`",
        };
        return Err(wrong("optimizer.nesterov", reason));
    }
    config
        .group
        .iter()
        .enumerate()
        .try_for_each(|(i, group)| check_group(config.r#type, i, group))
}

fn check_group(kind: OptimizerKind, i: usize, group: &ParameterGroup) -> Result<(), Error> {
    let key = |name: &str| format!("optimizer.group.{i}.{name}");
    at_least_zero(&key("rate_factor"), group.rate_factor)?;
    for (name, value) in [
        ("weight_decay", group.weight_decay),
        ("l2", group.l2),
        ("l1", group.l1),
    ] {
        value.map_or(Ok(()), |value| at_least_zero(&key(name), value))?;
    }
    if group.weight_decay.is_some() && defaults(kind).weight_decay.is_none() {
        return Err(wrong(&key("weight_decay"), NO_DECAY));
    }
    Ok(())
}

/// Refuses a group that names no parameter of the model.
///
/// # Errors
/// [`Error::Config`], with the parameters there are.
pub(crate) fn check_groups(
    config: &OptimizerConfig,
    parameters: &[Parameter],
) -> Result<(), Error> {
    let names = parameters.iter().map(|parameter| parameter.name.as_str());
    for (i, group) in config.group.iter().enumerate() {
        let key = format!("optimizer.group.{i}.parameters");
        let patterns = std::slice::from_ref(&group.parameters);
        name_pattern::check(&key, "parameter", patterns, names.clone())?;
    }
    let rate_factor = |parameter: &Parameter| {
        let mut groups = config.group.iter();
        let group = groups.find(|group| name_pattern::matches(&group.parameters, &parameter.name));
        group.map_or(1.0, |group| group.rate_factor)
    };
    if !parameters.is_empty() && parameters.iter().all(|of| rate_factor(of) == 0.0) {
        let reason = "every parameter has a `rate_factor` of 0, so nothing would be trained; leave a group out, or give it a \
                      factor above 0";
        return Err(wrong("optimizer.group", reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::optimizer::selection::algorithm;

    fn refused(change: impl FnOnce(&mut OptimizerConfig)) -> String {
        let mut config = OptimizerConfig::default();
        change(&mut config);
        resolve(&config).unwrap_err().to_string()
    }

    #[test]
    fn every_type_has_defaults_and_resolving_twice_changes_nothing() {
        use OptimizerKind::{Adafactor, Adam, Adamw, Lamb, Lars, Muon, Sgd};
        for kind in [Sgd, Adam, Adamw, Lamb, Lars, Adafactor, Muon] {
            let config = OptimizerConfig {
                r#type: kind,
                ..OptimizerConfig::default()
            };
            let resolved = resolve(&config).unwrap();
            assert_eq!(resolve(&resolved).unwrap(), resolved);
            algorithm(&resolved);
        }
    }

    #[test]
    fn an_optimizer_that_would_move_no_parameter_is_refused() {
        let parameter = |name: &str| Parameter {
            name: name.into(),
            shape: vec![2],
            range: 0..2,
            decays: true,
            is_hidden: false,
        };
        let parameters = ["a.weight", "b.weight"].map(parameter);
        let check = |pattern: &str| {
            let config = OptimizerConfig {
                group: vec![ParameterGroup {
                    parameters: pattern.into(),
                    rate_factor: 0.0,
                    weight_decay: None,
                    l2: None,
                    l1: None,
                }],
                ..OptimizerConfig::default()
            };
            check_groups(&config, &parameters)
        };
        let refused = check("*").unwrap_err().to_string();
        assert!(refused.contains("`train.optimizer.group`"), "{refused}");
        check("a.*").unwrap();
    }

    #[test]
    fn a_key_of_another_type_is_refused() {
        assert_eq!(
            refused(|c| c.momentum = Some(0.9)),
            "cannot use `train.optimizer.momentum`: `adamw` has no such key; leave it out"
        );
        let message = refused(|c| (c.r#type, c.weight_decay) = (OptimizerKind::Adam, Some(0.1)));
        assert!(message.contains("`optimizer.l2`"), "{message}");
        let group = ParameterGroup {
            weight_decay: Some(0.1),
            ..group("*")
        };
        let message = refused(|c| (c.r#type, c.group) = (OptimizerKind::Adam, vec![group]));
        assert!(
            message.contains("`train.optimizer.group.0.weight_decay`"),
            "{message}"
        );
    }

    #[test]
    fn nesterov_needs_momentum_that_is_not_damped() {
        let nesterov = |momentum, dampening| OptimizerConfig {
            r#type: OptimizerKind::Sgd,
            nesterov: Some(true),
            momentum: Some(momentum),
            dampening: Some(dampening),
            ..OptimizerConfig::default()
        };
        assert!(resolve(&nesterov(0.9, 0.0)).is_ok());
        assert!(resolve(&nesterov(0.9, 0.1)).is_err());
        assert!(resolve(&nesterov(0.0, 0.0)).is_err());
    }

    #[test]
    fn values_out_of_range_are_named() {
        let of = |kind| move |c: &mut OptimizerConfig| c.r#type = kind;
        let and = |kind, change: fn(&mut OptimizerConfig)| {
            refused(|c| {
                of(kind)(c);
                change(c);
            })
        };
        use OptimizerKind::{Adafactor, Adamw, Lars, Sgd};
        for (key, message) in [
            ("momentum", and(Sgd, |c| c.momentum = Some(1.0))),
            ("dampening", and(Sgd, |c| c.dampening = Some(1.1))),
            ("trust", and(Lars, |c| c.trust = Some(0.0))),
            ("beta1", and(Adamw, |c| c.beta1 = Some(1.0))),
            ("beta2", and(Adamw, |c| c.beta2 = Some(-0.5))),
            ("epsilon", and(Adamw, |c| c.epsilon = Some(0.0))),
            ("weight_decay", and(Adamw, |c| c.weight_decay = Some(-1.0))),
            ("l1", and(Adamw, |c| c.l1 = f64::NAN)),
            ("l2", and(Adamw, |c| c.l2 = -0.1)),
            ("beta2_decay", and(Adafactor, |c| c.beta2_decay = Some(0.0))),
            (
                "epsilon_scale",
                and(Adafactor, |c| c.epsilon_scale = Some(0.0)),
            ),
            ("update_clip", and(Adafactor, |c| c.update_clip = Some(0.0))),
            (
                "group.1.rate_factor",
                and(Adamw, |c| {
                    c.group = vec![group("*"), group("*")];
                    c.group[1].rate_factor = f64::INFINITY;
                }),
            ),
        ] {
            assert!(
                message.contains(&format!("`train.optimizer.{key}`")),
                "{message}"
            );
        }
    }

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
    fn a_group_of_no_parameter_is_refused_with_those_there_are() {
        let config = OptimizerConfig {
            group: vec![group("layers.*")],
            ..OptimizerConfig::default()
        };
        let parameter = Parameter {
            name: "layer.0.bias".into(),
            shape: vec![1],
            range: 0..1,
            decays: false,
            is_hidden: false,
        };
        assert_eq!(
            check_groups(&config, &[parameter]).unwrap_err().to_string(),
            "cannot use `train.optimizer.group.0.parameters`: `layers.*` names no parameter of the model, which has \
             `layer.0.bias`"
        );
    }
}
