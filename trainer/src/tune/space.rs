//! Search space: keys, and values between bounds or out of a list.

use feedline_schemas::config::{
    Bounded, TuneConfig, TuneParameter, TuneScale, TuneStrategy, TuneValues,
};
use serde_json::Value;

use crate::{
    error::Error,
    float_casts::{exact, exact_len},
};

const POINTS: u32 = 5;

/// One key that is searched.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parameter {
    pub(crate) key: String,
    pub(crate) values: ValueRange,
}

/// Range of the values of a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueRange {
    /// Out of a list.
    Listed(Vec<Value>),
    /// Between two numbers, both included.
    Between {
        low: f64,
        high: f64,
        log: bool,
        integer: bool,
        points: u32,
    },
}

/// Checks `[tune]` and gives what it searches.
///
/// # Errors
/// [`Error::Config`] that names the key.
pub(crate) fn space(config: &TuneConfig) -> Result<Vec<Parameter>, Error> {
    if config.parameter.is_empty() {
        return Err(wrong(
            "parameter",
            "there is nothing to search; add a `[[tune.parameter]]`",
        ));
    }
    let mut parameters: Vec<Parameter> = Vec::new();
    for (i, given) in config.parameter.iter().enumerate() {
        let parameter = parameter(given);
        if parameters.iter().any(|other| other.key == parameter.key) {
            let reason = format!("`{}` is searched twice; leave one out", parameter.key);
            return Err(wrong(&format!("parameter.{i}.key"), &reason));
        }
        parameters.push(parameter);
    }
    let points = combinations(&parameters);
    if config.strategy == TuneStrategy::Grid && points > u64::from(config.trials.get()) {
        let reason = format!(
            "it is {}, and the grid has {points} points; raise it, or give fewer values",
            config.trials
        );
        return Err(wrong("trials", &reason));
    }
    Ok(parameters)
}

fn wrong(key: &str, reason: &str) -> Error {
    Error::Config {
        key: format!("tune.{key}"),
        reason: reason.to_owned(),
    }
}

fn parameter(given: &TuneParameter) -> Parameter {
    let values = match &given.values {
        TuneValues::Listed(values) => ValueRange::Listed(values.clone()),
        TuneValues::Between(range) => ValueRange::Between {
            low: range.low,
            high: range.high,
            log: range.scale == TuneScale::Log,
            integer: range.integer,
            points: range.points.map_or(POINTS, Bounded::get),
        },
    };
    let key = given.key.clone();
    Parameter { key, values }
}

/// Points of the whole grid.
pub(crate) fn combinations(parameters: &[Parameter]) -> u64 {
    let counts = parameters.iter().map(|p| p.values.grid().len() as u64);
    counts.fold(1, u64::saturating_mul)
}

impl ValueRange {
    /// The places of the points of a grid, in order; those that give the same value once.
    pub(crate) fn grid(&self) -> Vec<f64> {
        match self {
            Self::Listed(values) => (0..values.len()).map(exact_len).collect(),
            Self::Between { points, .. } => {
                let (low, high) = self.span();
                let step = (high - low) / f64::from(points - 1);
                let mut places: Vec<f64> =
                    (0..*points).map(|i| low + f64::from(i) * step).collect();
                places.dedup_by(|a, b| self.value(*a) == self.value(*b));
                places
            }
        }
    }

    /// The span of places: numbers, or their logarithms, or places in the list from 0 up to their
    /// number.
    pub(crate) fn span(&self) -> (f64, f64) {
        match self {
            Self::Listed(values) => (0.0, exact_len(values.len())),
            Self::Between {
                low,
                high,
                log: false,
                ..
            } => (*low, *high),
            Self::Between {
                low,
                high,
                log: true,
                ..
            } => (low.ln(), high.ln()),
        }
    }

    /// The value at a place.
    pub(crate) fn value(&self, place: f64) -> Value {
        match self {
            Self::Listed(values) => values[self.index(place)].clone(),
            Self::Between {
                low,
                high,
                log,
                integer,
                ..
            } => {
                let (first, last) = self.span();
                // Logarithms do not come back as they were.
                let number = match place {
                    place if place <= first => *low,
                    place if place >= last => *high,
                    place if *log => place.exp().clamp(*low, *high),
                    place => place,
                };
                if *integer {
                    whole(number)
                } else {
                    Value::from(number)
                }
            }
        }
    }

    /// The number of a place in the list, from 0; of a range, 0.
    pub(crate) fn index(&self, place: f64) -> usize {
        let count = match self {
            Self::Listed(values) => values.len(),
            Self::Between { .. } => 1,
        };
        let found = (0..count).rev().find(|i| exact_len(*i) <= place);
        found.unwrap_or_default()
    }

    /// The number of a place in a chart: the value itself, or where it is no number, the place in the list.
    pub(crate) fn drawn(&self, place: f64) -> f64 {
        match self.value(place) {
            Value::Number(number) => number.as_f64().unwrap_or(place),
            _ => place.floor(),
        }
    }
}

/// The nearest whole number.
#[expect(clippy::cast_possible_truncation, reason = "checked to be below 9e15")]
fn whole(number: f64) -> Value {
    Value::from(number.round() as i64)
}

/// The places of the trial with this number in a grid; the last parameter changes fastest.
pub(crate) fn of_grid(parameters: &[Parameter], trial: u64) -> Vec<f64> {
    let mut left = trial;
    let mut places: Vec<f64> = parameters
        .iter()
        .rev()
        .map(|parameter| {
            let grid = parameter.values.grid();
            let count = grid.len() as u64;
            let place = grid[usize::try_from(left % count).unwrap_or_default()];
            left /= count;
            place
        })
        .collect();
    places.reverse();
    debug_assert!(
        exact(trial) < exact(combinations(parameters)),
        "the grid has as many points"
    );
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use feedline_schemas::{Classified as _, ErrorKind};

    fn config(parameters: &str) -> TuneConfig {
        serde_json::from_str(&format!(
            "{{\"strategy\":\"grid\",\"trials\":50,\"parameter\":[{parameters}]}}"
        ))
        .unwrap()
    }

    fn values(parameter: &str) -> Vec<String> {
        let found = space(&config(parameter)).unwrap();
        let values = &found[0].values;
        values
            .grid()
            .into_iter()
            .map(|place| values.value(place).to_string())
            .collect()
    }

    #[test]
    fn grids_are_even_on_their_scale() {
        assert_eq!(
            values(r#"{"key":"train.x","low":1,"high":3}"#),
            ["1.0", "1.5", "2.0", "2.5", "3.0"]
        );
        let log = values(r#"{"key":"train.x","low":0.001,"high":0.1,"scale":"log","points":3}"#);
        assert_eq!((log[0].as_str(), log[2].as_str()), ("0.001", "0.1"));
        assert!((log[1].parse::<f64>().unwrap() - 0.01).abs() < 1e-12);
        assert_eq!(
            values(r#"{"key":"train.x","low":1,"high":3,"integer":true,"points":9}"#),
            ["1", "2", "3"]
        );
        assert_eq!(
            values(r#"{"key":"train.x","values":["a",[1,2],3]}"#),
            ["\"a\"", "[1,2]", "3"]
        );
    }

    #[test]
    fn a_grid_holds_every_combination_once() {
        let both = r#"{"key":"train.x","low":1,"high":3,"integer":true},{"key":"train.y","values":["a","b"]}"#;
        let found = space(&config(both)).unwrap();
        assert_eq!(combinations(&found), 6);
        let text = |trial| {
            let places = of_grid(&found, trial);
            let values = found
                .iter()
                .zip(places)
                .map(|(p, place)| p.values.value(place).to_string());
            values.collect::<Vec<_>>().join(" ")
        };
        let all: Vec<_> = (0..6).map(text).collect();
        assert_eq!(
            all,
            [
                "1 \"a\"", "1 \"b\"", "2 \"a\"", "2 \"b\"", "3 \"a\"", "3 \"b\""
            ]
        );
    }

    #[test]
    fn what_cannot_be_searched_is_refused_by_key() {
        for (parameters, key) in [
            ("", "tune.parameter"),
            (
                r#"{"key":"train.x","values":[1]},{"key":"train.x","values":[2]}"#,
                "tune.parameter.1.key",
            ),
            (
                r#"{"key":"train.x","low":0,"high":1,"points":51}"#,
                "tune.trials",
            ),
        ] {
            let error = space(&config(parameters)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(&format!("`{key}`")), "{error}");
        }
    }
}
