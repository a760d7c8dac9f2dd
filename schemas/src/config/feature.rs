//! `[[dataset.feature]]`.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{
    bounded::Bounded,
    series::TimeSpan,
    tagged::{self, KeyError, Tagged, Variant, plain},
};

/// A numeric feature computed from the past of its entity. It is a feature of the dataset like
/// landed columns, and steps apply to it; `dataset.drop` excludes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureConfig {
    /// Name of the feature. No landed column may have the same name.
    pub name: String,
    /// The operation.
    pub feature: DerivedFeature,
}

/// Keys of every feature.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnyFeature {
    /// Name of the feature. No landed column may have the same name.
    name: String,
}

/// The operation of a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DerivedFeature {
    /// Mean of the values in the window.
    RollingMean(RollingFeature<1>),
    /// Volatility: the sample standard deviation (divided by n - 1) of the values in the window,
    /// missing below 2.
    RollingStd(RollingFeature<2>),
    /// Smallest value in the window.
    RollingMin(RollingFeature<1>),
    /// Largest value in the window.
    RollingMax(RollingFeature<1>),
    /// Newest value in the window minus its oldest; missing if the window has only one.
    Momentum(RollingFeature<2>),
    /// The value `rows` rows earlier, or that of the newest row at least `window` earlier.
    Lag(LagFeature),
    /// The value of the previous row minus its lag; with `closed = "right"`, the value of the row
    /// itself minus its lag.
    Difference(DifferenceFeature),
    /// The row's value; if missing, the newest earlier one.
    ForwardFill(FillFeature),
    /// The row's value; if missing, the value at its time on the line through the two newest
    /// earlier values, because later values are not known yet. Missing without two recent enough
    /// values.
    Interpolate(FillFeature),
    /// A part of the row's time, in the zone of the series.
    Calendar(CalendarFeature),
}

impl Tagged for DerivedFeature {
    const TAG: &'static str = "type";
    const DOC: &'static str = "Type of the feature; its other keys depend on it. `rolling_mean`, `rolling_std` (the sample standard \
                               deviation, missing below 2 values), `rolling_min`, `rolling_max`; `momentum`: the newest value in \
                               the window minus its oldest; `lag`: the value `rows` rows earlier, \
                               or that of the newest row at least `window` earlier; `difference`: \
                               the value of the previous row minus its lag; `forward_fill`: the \
                               row's value, or if missing the newest earlier one; `interpolate`: \
                               the row's value, or if missing the value at its time on the line \
                               through the two newest earlier ones; `calendar`: a part of the \
                               row's time.";
    const DEFAULT: Option<&'static str> = None;

    fn variants() -> Vec<Variant<Self>> {
        vec![
            plain("rolling_mean", Self::RollingMean),
            plain("rolling_std", Self::RollingStd),
            plain("rolling_min", Self::RollingMin),
            plain("rolling_max", Self::RollingMax),
            plain("momentum", Self::Momentum),
            plain("lag", Self::Lag),
            plain("difference", Self::Difference),
            plain("forward_fill", Self::ForwardFill),
            plain("interpolate", Self::Interpolate),
            plain("calendar", Self::Calendar),
        ]
    }
}

/// Distance that a feature looks back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookback {
    /// By time.
    Window(TimeSpan),
    /// By rows of the entity.
    Rows(u32),
}

impl Lookback {
    /// Exactly one of the two.
    fn one(window: Option<TimeSpan>, rows: Option<u32>) -> Result<Self, KeyError> {
        Self::at_most_one(window, rows)?.ok_or_else(|| {
            let reason = "say how far it looks back, either in time (`window = \"24h\"`) or in rows (`rows = 24`)";
            KeyError::new("window", reason)
        })
    }

    fn at_most_one(window: Option<TimeSpan>, rows: Option<u32>) -> Result<Option<Self>, KeyError> {
        match (window, rows) {
            (Some(_), Some(_)) => {
                let reason = "it looks back either in time (`window`) or in rows (`rows`), remove one of the two";
                Err(KeyError::new("window", reason))
            }
            (Some(window), None) => Ok(Some(Self::Window(window))),
            (None, rows) => Ok(rows.map(Self::Rows)),
        }
    }
}

/// A statistic of the values in a window of at least `LEAST` rows.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "RollingKeys<LEAST>")]
#[schemars(with = "RollingKeys<LEAST>")]
pub struct RollingFeature<const LEAST: u64> {
    /// Numeric column to compute it from.
    pub column: String,
    /// The window.
    pub lookback: Lookback,
    /// Fewest values in the window that give a number.
    pub min_periods: Option<u32>,
    /// End of the window.
    pub closed: Option<Closed>,
}

/// Keys of a window.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RollingKeys<const LEAST: u64> {
    /// Numeric column to compute it from; it need not be a feature itself. The target may be named
    /// where a row's own value is not used (`closed = "left"`).
    column: String,
    /// Length of the window in time, such as `24h`, `7d`, `90s`; it holds all values in that span,
    /// for any number of rows. Give this or `rows`.
    window: Option<TimeSpan>,
    /// Length of the window in rows of the entity. Give this or `window`.
    rows: Option<Bounded<u32, LEAST, 1_000_000>>,
    /// Fewest values in a window that give a number; with fewer the cell is missing. Default:
    /// `rows`, or 1 with `window`; `rolling_std` and `momentum` need 2 in any case. Raise it where
    /// a mean of a few values could pass for one of a full window.
    min_periods: Option<Bounded<u32, 1, { u64::MAX }>>,
    /// End of the window. `left` (default): before the row. `right`: it includes the row, and
    /// excludes a value that is exactly `window` old.
    closed: Option<Closed>,
}

impl<const LEAST: u64> TryFrom<RollingKeys<LEAST>> for RollingFeature<LEAST> {
    type Error = KeyError;

    fn try_from(keys: RollingKeys<LEAST>) -> Result<Self, KeyError> {
        let (rows, min_periods) = (
            keys.rows.map(Bounded::get),
            keys.min_periods.map(Bounded::get),
        );
        let lookback = Lookback::one(keys.window, rows)?;
        match (min_periods, rows) {
            (Some(least), Some(rows)) if least > rows => {
                let reason = format!(
                    "must be at most `rows`, {rows}, or no window could have so many; got {least}"
                );
                Err(KeyError::new("min_periods", reason))
            }
            _ => Ok(Self {
                column: keys.column,
                lookback,
                min_periods,
                closed: keys.closed,
            }),
        }
    }
}

/// The value some rows or some time before.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "LagKeys")]
#[schemars(with = "LagKeys")]
pub struct LagFeature {
    /// Numeric column to compute it from.
    pub column: String,
    /// Age of the value.
    pub lookback: Lookback,
}

/// Keys of a lag.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LagKeys {
    /// Numeric column to compute it from; it need not be a feature itself, and may be the target.
    column: String,
    /// Age of the value, such as `24h`: the value of the newest row of at least this age. Give this
    /// or `rows`.
    window: Option<TimeSpan>,
    /// Age of the value in rows of the entity. Give this or `window`.
    rows: Option<Bounded<u32, 1, 1_000_000>>,
}

impl TryFrom<LagKeys> for LagFeature {
    type Error = KeyError;

    fn try_from(keys: LagKeys) -> Result<Self, KeyError> {
        Ok(Self {
            column: keys.column,
            lookback: Lookback::one(keys.window, keys.rows.map(Bounded::get))?,
        })
    }
}

/// A value minus its own lag.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "DifferenceKeys")]
#[schemars(with = "DifferenceKeys")]
pub struct DifferenceFeature {
    /// Numeric column to compute it from.
    pub column: String,
    /// Age of the earlier value.
    pub lookback: Lookback,
    /// Choice of the later value.
    pub closed: Option<Closed>,
}

/// Keys of a difference.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DifferenceKeys {
    /// Numeric column to compute it from; it need not be a feature itself. The target may be named
    /// with `closed = "left"`.
    column: String,
    /// Age of the earlier value, such as `24h`: the value of the newest row of at least this age.
    /// Give this or `rows`.
    window: Option<TimeSpan>,
    /// Age of the earlier value in rows of the entity. Give this or `window`.
    rows: Option<Bounded<u32, 1, 1_000_000>>,
    /// Choice of the later value. `left` (default): that of the previous row. `right`: that of the
    /// row itself.
    closed: Option<Closed>,
}

impl TryFrom<DifferenceKeys> for DifferenceFeature {
    type Error = KeyError;

    fn try_from(keys: DifferenceKeys) -> Result<Self, KeyError> {
        Ok(Self {
            column: keys.column,
            lookback: Lookback::one(keys.window, keys.rows.map(Bounded::get))?,
            closed: keys.closed,
        })
    }
}

/// The row's value; if missing, a value computed from earlier ones.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "FillKeys")]
#[schemars(with = "FillKeys")]
pub struct FillFeature {
    /// Numeric column to compute it from.
    pub column: String,
    /// Largest age of a value that is used.
    pub lookback: Option<Lookback>,
}

/// Keys of a fill.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FillKeys {
    /// Numeric column to compute it from; it need not be a feature itself.
    column: String,
    /// Largest age of a value that is used, such as `24h`; for `interpolate` that of both values.
    /// Default: any.
    window: Option<TimeSpan>,
    /// Largest age of a value that is used, in rows of the entity. Default: any.
    rows: Option<Bounded<u32, 1, 1_000_000>>,
}

impl TryFrom<FillKeys> for FillFeature {
    type Error = KeyError;

    fn try_from(keys: FillKeys) -> Result<Self, KeyError> {
        Ok(Self {
            column: keys.column,
            lookback: Lookback::at_most_one(keys.window, keys.rows.map(Bounded::get))?,
        })
    }
}

/// A part of the row's time, in the zone of the series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CalendarFeature {
    /// The part.
    pub part: CalendarPart,
}

impl DerivedFeature {
    /// `type` of the feature.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::RollingMean(_) => "rolling_mean",
            Self::RollingStd(_) => "rolling_std",
            Self::RollingMin(_) => "rolling_min",
            Self::RollingMax(_) => "rolling_max",
            Self::Momentum(_) => "momentum",
            Self::Lag(_) => "lag",
            Self::Difference(_) => "difference",
            Self::ForwardFill(_) => "forward_fill",
            Self::Interpolate(_) => "interpolate",
            Self::Calendar(_) => "calendar",
        }
    }

    /// Numeric column to compute it from; none for a part of the time.
    #[must_use]
    pub const fn column(&self) -> Option<&String> {
        match self {
            Self::RollingMean(rolling) | Self::RollingMin(rolling) | Self::RollingMax(rolling) => {
                Some(&rolling.column)
            }
            Self::RollingStd(rolling) | Self::Momentum(rolling) => Some(&rolling.column),
            Self::Lag(lag) => Some(&lag.column),
            Self::Difference(difference) => Some(&difference.column),
            Self::ForwardFill(fill) | Self::Interpolate(fill) => Some(&fill.column),
            Self::Calendar(_) => None,
        }
    }

    /// Distance that it looks back, if that is bounded.
    #[must_use]
    pub const fn lookback(&self) -> Option<Lookback> {
        match self {
            Self::RollingMean(rolling) | Self::RollingMin(rolling) | Self::RollingMax(rolling) => {
                Some(rolling.lookback)
            }
            Self::RollingStd(rolling) | Self::Momentum(rolling) => Some(rolling.lookback),
            Self::Lag(lag) => Some(lag.lookback),
            Self::Difference(difference) => Some(difference.lookback),
            Self::ForwardFill(fill) | Self::Interpolate(fill) => fill.lookback,
            Self::Calendar(_) => None,
        }
    }

    /// Fewest values in a window that give a number, if configured.
    #[must_use]
    pub const fn min_periods(&self) -> Option<u32> {
        match self {
            Self::RollingMean(rolling) | Self::RollingMin(rolling) | Self::RollingMax(rolling) => {
                rolling.min_periods
            }
            Self::RollingStd(rolling) | Self::Momentum(rolling) => rolling.min_periods,
            _ => None,
        }
    }

    /// End of its window, if configured.
    #[must_use]
    pub const fn closed(&self) -> Option<Closed> {
        match self {
            Self::RollingMean(rolling) | Self::RollingMin(rolling) | Self::RollingMax(rolling) => {
                rolling.closed
            }
            Self::RollingStd(rolling) | Self::Momentum(rolling) => rolling.closed,
            Self::Difference(difference) => difference.closed,
            _ => None,
        }
    }

    /// Returns true if it is computed from the row's own value.
    #[must_use]
    pub fn sees_itself(&self) -> bool {
        match self {
            Self::ForwardFill(_) | Self::Interpolate(_) => true,
            _ => self.closed() == Some(Closed::Right),
        }
    }
}

/// End of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Closed {
    /// Before the row.
    #[default]
    Left,
    /// At the row, which is included.
    Right,
}

/// A part of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CalendarPart {
    /// Year.
    Year,
    /// Month, 1 to 12.
    Month,
    /// Day of the month, 1 to 31.
    Day,
    /// Day of the year, 1 to 366.
    DayOfYear,
    /// Day of the week, 1 (Monday) to 7.
    Weekday,
    /// Hour, 0 to 23.
    Hour,
    /// Minute, 0 to 59.
    Minute,
    /// Second, 0 to 59.
    Second,
}

impl<'de> Deserialize<'de> for FeatureConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (AnyFeature { name }, feature) = tagged::read(deserializer)?;
        Ok(Self { name, feature })
    }
}

impl JsonSchema for FeatureConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FeatureConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let description =
            "`[[dataset.feature]]`: a numeric feature computed from the past of its entity.";
        tagged::schema::<AnyFeature, DerivedFeature>(generator, description)
    }
}

/// The keys of all features in the order in which hashes of a dataset's settings hold them.
#[derive(Serialize)]
struct FeatureKeys<'a> {
    name: &'a str,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<&'a String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<TimeSpan>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_periods: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    closed: Option<Closed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<CalendarPart>,
}

impl Serialize for FeatureConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { name, feature } = self;
        let (window, rows) = match feature.lookback() {
            Some(Lookback::Window(window)) => (Some(window), None),
            Some(Lookback::Rows(rows)) => (None, Some(rows)),
            None => (None, None),
        };
        let written = FeatureKeys {
            name,
            r#type: feature.name(),
            column: feature.column(),
            window,
            rows,
            min_periods: feature.min_periods(),
            closed: feature.closed(),
            part: match feature {
                DerivedFeature::Calendar(calendar) => Some(calendar.part),
                _ => None,
            },
        };
        written.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<FeatureConfig, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_feature_is_written_as_it_was_read() {
        for text in [
            r#"{"name":"f","type":"rolling_std","column":"v","rows":2,"min_periods":2,"closed":"right"}"#,
            r#"{"name":"f","type":"lag","column":"v","window":"24h"}"#,
            r#"{"name":"f","type":"forward_fill","column":"v"}"#,
            r#"{"name":"f","type":"calendar","part":"hour"}"#,
        ] {
            let feature = read(text).unwrap();
            assert_eq!(
                serde_json::to_string(&feature)
                    .unwrap()
                    .replace("1d", "24h"),
                text
            );
        }
    }

    #[test]
    fn a_feature_that_cannot_be_is_refused_at_its_key() {
        let lag = r#""name":"f","type":"lag","column":"v""#;
        let rolling = r#""name":"f","type":"rolling_mean","column":"v""#;
        let deviation = r#""name":"f","type":"rolling_std","column":"v""#;
        let calendar = r#""name":"f","type":"calendar""#;
        for (text, expected) in [
            (
                format!("{{{lag}}}"),
                "at `window`: say how far it looks back, either in",
            ),
            (
                format!("{{{lag},\"rows\":0}}"),
                "at `rows`: must be 1 to 1,000,000, got 0",
            ),
            (
                format!("{{{lag},\"rows\":1,\"window\":\"1s\"}}"),
                "at `window`: it looks back either in time",
            ),
            (
                format!("{{{lag},\"rows\":1,\"closed\":\"right\"}}"),
                "at `closed`: this key belongs to `type = \"rolling_mean\"`, ",
            ),
            (
                r#"{"name":"f","type":"lag","rows":1}"#.to_owned(),
                "at `column`: `type = \"lag\"` needs this key, add it",
            ),
            (
                format!("{{{calendar}}}"),
                "at `part`: `type = \"calendar\"` needs this key",
            ),
            (
                format!("{{{calendar},\"part\":\"hour\",\"rows\":1}}"),
                "at `rows`: this key belongs to",
            ),
            (
                format!("{{{rolling},\"rows\":3,\"min_periods\":4}}"),
                "at `min_periods`: must be at most `rows`, 3, or no window could have so many; got 4",
            ),
            (
                format!("{{{deviation},\"rows\":1}}"),
                "at `rows`: must be 2 to 1,000,000, got 1",
            ),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
