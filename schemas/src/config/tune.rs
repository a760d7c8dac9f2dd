//! `[tune]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{bounded::Bounded, tagged::KeyError};
use crate::ids::Seed;

/// Search for the values of keys of `[train]` that give the best validation metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TuneConfig {
    /// Parameters of the search, at least one.
    pub parameter: Vec<TuneParameter>,
    /// Search strategy: `grid`, `random` or `tpe`. Default `tpe`.
    pub strategy: TuneStrategy,
    /// Number of trials (trainings), 1 to 10,000; raising it later continues the search. Default
    /// 20.
    pub trials: Bounded<u32, 1, 10_000>,
    /// Seed of the search; each training has the seed of `[train]`. Default 0.
    pub seed: Seed,
    /// Metric that trials are compared by: `loss`, or a metric of the validation split, such as
    /// `rmse` or `accuracy`. Losses of different kinds cannot be compared: if a key of `train.loss`
    /// is searched, `loss` is refused. Default `loss`; if a key of `train.loss` is searched, `rmse`
    /// or `cross_entropy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Rule that ends trials before their last epoch: `median`, `halving` or `none`. Default
    /// `median`.
    pub early_stop: TuneStop,
}

impl Default for TuneConfig {
    fn default() -> Self {
        Self {
            parameter: Vec::new(),
            strategy: TuneStrategy::default(),
            trials: Bounded::literal::<20>(),
            seed: Seed::new(0),
            metric: None,
            early_stop: TuneStop::default(),
        }
    }
}

/// A key and its values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Keys", into = "Keys")]
#[schemars(with = "Keys")]
pub struct TuneParameter {
    /// Key of `[train]`, such as `train.learning_rate`.
    pub key: String,
    /// Values to try.
    pub values: TuneValues,
}

/// Values to try for a key.
#[derive(Clone, Debug, PartialEq)]
pub enum TuneValues {
    /// Listed values, at least one.
    Listed(Vec<Value>),
    /// All between two numbers.
    Between(TuneRange),
}

/// A range of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TuneRange {
    /// Lowest value.
    pub low: f64,
    /// Highest value, above `low`.
    pub high: f64,
    /// Scale of the values; a logarithmic scale begins above 0.
    pub scale: TuneScale,
    /// If true, only integers are tried; `low` and `high` are then integers.
    pub integer: bool,
    /// Number of values in a grid.
    pub points: Option<Bounded<u32, 2, 1_000>>,
}

/// A key and its values: either `values`, or all values between `low` and `high`.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Keys {
    /// Key of `[train]`, such as `train.learning_rate`.
    key: String,
    /// Lowest value. Give it with `high`, in place of `values`.
    #[serde(skip_serializing_if = "Option::is_none")]
    low: Option<f64>,
    /// Highest value, above `low`.
    #[serde(skip_serializing_if = "Option::is_none")]
    high: Option<f64>,
    /// Scale of the values between `low` and `high`: `linear` (default) or `log`, which needs a
    /// `low` above 0.
    #[serde(default)]
    scale: TuneScale,
    /// If true, only integers between `low` and `high` are tried; both must then be integers.
    /// Default false.
    #[serde(default)]
    integer: bool,
    /// Number of values in a grid between `low` and `high`, 2 to 1,000. Default 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    points: Option<Bounded<u32, 2, 1_000>>,
    /// List of values of any type, such as `["sgd", "adamw"]` or `[[64], [128, 128]]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<Value>>,
}

impl TryFrom<Keys> for TuneParameter {
    type Error = KeyError;

    fn try_from(keys: Keys) -> Result<Self, KeyError> {
        let key = keys.key;
        if !key.starts_with("train.") {
            let reason = format!(
                "`{key}` is no key of `train`; only those can be searched, such as `train.learning_rate`"
            );
            return Err(KeyError::new("key", reason));
        }
        let of_range = [
            ("low", keys.low.is_some()),
            ("high", keys.high.is_some()),
            ("scale", keys.scale != TuneScale::default()),
            ("integer", keys.integer),
            ("points", keys.points.is_some()),
        ];
        let of_range = of_range.into_iter().find(|(_, given)| *given);
        let values = match (keys.values, keys.low, keys.high) {
            (Some(values), ..) => match of_range {
                Some((name, _)) => {
                    let reason = "this key belongs to the values between `low` and `high`, and `values` lists them; remove one of \
                                  the two";
                    return Err(KeyError::new(name, reason));
                }
                None if values.is_empty() => {
                    return Err(KeyError::new(
                        "values",
                        "it is empty, list at least one value",
                    ));
                }
                None => TuneValues::Listed(values),
            },
            (None, Some(low), Some(high)) => TuneValues::Between(TuneRange {
                low,
                high,
                scale: keys.scale,
                integer: keys.integer,
                points: keys.points,
            }),
            (None, low, _) => {
                let missing = if low.is_none() { "low" } else { "high" };
                let reason = format!("`{key}` needs either `values`, or `low` and `high`");
                return Err(KeyError::new(missing, reason));
            }
        };
        if let TuneValues::Between(range) = &values {
            range.check()?;
        }
        Ok(Self { key, values })
    }
}

impl TuneRange {
    fn check(&self) -> Result<(), KeyError> {
        let Self { low, high, .. } = *self;
        if !(low.is_finite() && high.is_finite() && low < high) {
            let reason = format!("must be more than `low`, {low}, both finite; got {high}");
            return Err(KeyError::new("high", reason));
        }
        if self.scale == TuneScale::Log && low <= 0.0 {
            let reason = format!("must be more than 0 on a logarithmic scale, got {low}");
            return Err(KeyError::new("low", reason));
        }
        let whole = |value: f64| value.fract() == 0.0 && value.abs() < 9e15;
        if self.integer && !(whole(low) && whole(high)) {
            let reason = format!(
                "must be a whole number, as `high`, where `integer` is true; got {low} and {high}"
            );
            return Err(KeyError::new("low", reason));
        }
        Ok(())
    }
}

impl From<TuneParameter> for Keys {
    fn from(parameter: TuneParameter) -> Self {
        let plain = Self {
            key: parameter.key,
            low: None,
            high: None,
            scale: TuneScale::default(),
            integer: false,
            points: None,
            values: None,
        };
        match parameter.values {
            TuneValues::Listed(values) => Self {
                values: Some(values),
                ..plain
            },
            TuneValues::Between(range) => Self {
                low: Some(range.low),
                high: Some(range.high),
                scale: range.scale,
                integer: range.integer,
                points: range.points,
                ..plain
            },
        }
    }
}

/// Scale of the values in a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TuneScale {
    /// Evenly spaced.
    #[default]
    Linear,
    /// Evenly spaced by their logarithm.
    Log,
}

/// Search strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TuneStrategy {
    /// Every combination once.
    Grid,
    /// Random values.
    Random,
    /// Random values at first, then values near good ones: a tree-structured Parzen estimator
    /// (Bergstra et al. 2011).
    #[default]
    Tpe,
}

/// Rule that ends trials before their last epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TuneStop {
    /// Ends a trial whose best epoch so far is worse than the median of earlier trials after the
    /// same number of epochs. At least five earlier trials must have reached that epoch.
    #[default]
    Median,
    /// Ends a trial that is not in the best third after 1, 3, 9, ... epochs (successive halving, Li
    /// et al. 2020).
    Halving,
    /// Ends no trial early.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TuneParameter, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_parameter_is_written_as_journals_hold_it() {
        for text in [
            r#"{"key":"train.x","low":1.0,"high":3.0,"scale":"log","integer":true,"points":9}"#,
            r#"{"key":"train.x","scale":"linear","integer":false,"values":["a",[1,2]]}"#,
        ] {
            assert_eq!(serde_json::to_string(&read(text).unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn a_parameter_that_cannot_be_searched_is_refused_at_its_key() {
        for (text, expected) in [
            (
                r#"{"key":"dataset.x","values":[1]}"#,
                "at `key`: `dataset.x` is no key",
            ),
            (
                r#"{"key":"train.x"}"#,
                "at `low`: `train.x` needs either `values`",
            ),
            (
                r#"{"key":"train.x","low":1}"#,
                "at `high`: `train.x` needs either",
            ),
            (
                r#"{"key":"train.x","values":[]}"#,
                "at `values`: it is empty",
            ),
            (
                r#"{"key":"train.x","values":[1],"low":1,"high":2}"#,
                "at `low`: this key belongs to the values between",
            ),
            (
                r#"{"key":"train.x","values":[1],"points":3}"#,
                "at `points`: this key belongs to the values between",
            ),
            (
                r#"{"key":"train.x","low":2,"high":1}"#,
                "at `high`: must be more than `low`, 2, both finite; got 1",
            ),
            (
                r#"{"key":"train.x","low":0,"high":1,"scale":"log"}"#,
                "at `low`: must be more than 0 on a logarithmic scale, got 0",
            ),
            (
                r#"{"key":"train.x","low":0.5,"high":2,"integer":true}"#,
                "at `low`: must be a whole number",
            ),
            (
                r#"{"key":"train.x","low":0,"high":1,"points":1}"#,
                "must be 2 to 1,000, got 1",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
