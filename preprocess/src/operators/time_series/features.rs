//! Series of a dataset, and the features that are made of their past.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::logical_expr::Expr;
use feedline_schemas::{
    config::{self, CalendarPart, Closed, Gaps, SameTime},
    ids::Origin,
};
use jiff::tz::TimeZone;

use super::{
    clock_changes::ClockChanges,
    instant::{self, Instant, LocalTimes},
    long_steps::LongSteps,
    sequence::Sequence,
    untimed::Untimed,
    window::{Difference, Fill, Lag, Rolling, Span, State},
    windowless::WindowlessEntities,
};
use crate::engine::scalar_function::RowFunction;

/// Names of the columns that series work with begin with this.
pub(crate) const RESERVED: &str = "_series_";
/// `fixed_size_binary(16)`, hash of the entity's columns.
pub(crate) const ENTITY: &str = "_series_entity";
/// `i64`, microseconds since 1970; null where the time cannot be read.
pub(crate) const TIME: &str = "_series_time";
/// `bool`, true for a row that a build rejects only for its target; where rows of one instant are one.
pub(crate) const TARGET_ONLY: &str = "_series_target_only";
/// `i64`, time of the oldest row that the features of this one are made of; null for none but this.
pub(crate) const REACH: &str = "_series_reach";
/// `i64`, place of the row among those of its entity whose time can be read; a gap takes more than anything counts back. Null for
/// none of them.
pub(crate) const PLACE: &str = "_series_place";

/// The series of a dataset, checked against the landed columns.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Column of the time.
    pub(crate) time: String,
    /// Column of the time of day.
    pub(crate) clock: Option<String>,
    pub(super) instant: Instant,
    /// Columns of the entity.
    pub(crate) entity: Vec<String>,
    /// Sources by the index in an origin, as errors name them.
    pub(crate) sources: Vec<String>,
    pub(super) duplicates: SameTime,
    /// Columns of the targets.
    pub(super) targets: Vec<String>,
    /// Index of the source of rows to predict, which need no target.
    pub(crate) asked_source: Option<u64>,
    /// True if those rows are newer versions of the landed rows of their instants.
    pub(crate) asked_replace_landed: bool,
    /// True where the data name the split of a row, so that rows of one instant may be in several.
    pub(super) has_splits: bool,
    pub(crate) max_gap: Option<(i64, Gaps)>,
    pub(super) warm_start: bool,
    /// Columns that features are made of.
    pub(crate) of: Vec<String>,
    pub(super) features: Vec<Feature>,
    /// Windows that are the samples, where rows are not.
    pub(crate) sequence: Option<Sequence>,
    /// Steps over missing rows, counted as the rows pass, if something counts rows.
    pub(crate) long_steps: Arc<LongSteps>,
    /// Rows that look back over days of another length than 24 hours, counted as the rows pass.
    pub(crate) clock_changes: Arc<ClockChanges>,
    /// Entities with and without a window, counted as the rows pass, if the samples are windows.
    pub(crate) windowless: Arc<WindowlessEntities>,
}

/// A feature.
#[derive(Clone, Debug)]
pub(crate) struct Feature {
    pub(crate) name: String,
    pub(super) kind: FeatureKind,
    /// Place in [`Series::of`].
    pub(super) of: Option<usize>,
    pub(super) span: Option<Span>,
    pub(super) least: usize,
    pub(super) closed: Closed,
}

/// The operation of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeatureKind {
    RollingMean,
    RollingStd,
    RollingMin,
    RollingMax,
    Momentum,
    Lag,
    Difference,
    ForwardFill,
    Interpolate,
    Calendar(CalendarPart),
}

impl FeatureKind {
    pub(super) const fn of(feature: &config::DerivedFeature) -> Self {
        match feature {
            config::DerivedFeature::RollingMean(_) => Self::RollingMean,
            config::DerivedFeature::RollingStd(_) => Self::RollingStd,
            config::DerivedFeature::RollingMin(_) => Self::RollingMin,
            config::DerivedFeature::RollingMax(_) => Self::RollingMax,
            config::DerivedFeature::Momentum(_) => Self::Momentum,
            config::DerivedFeature::Lag(_) => Self::Lag,
            config::DerivedFeature::Difference(_) => Self::Difference,
            config::DerivedFeature::ForwardFill(_) => Self::ForwardFill,
            config::DerivedFeature::Interpolate(_) => Self::Interpolate,
            config::DerivedFeature::Calendar(calendar) => Self::Calendar(calendar.part),
        }
    }
}

impl Series {
    /// Returns true if a column is made here.
    pub(crate) fn makes(&self, name: &str) -> bool {
        self.features.iter().any(|feature| feature.name == name)
    }

    /// Returns true if windows or features count rows, and no `max_gap` ends them.
    pub(crate) fn counts_rows(&self) -> bool {
        let mut spans = self.features.iter().filter_map(|feature| feature.span);
        self.max_gap.is_none()
            && (self.sequence.is_some() || spans.any(|span| matches!(span, Span::Rows(_))))
    }

    /// Columns of the time, if it is local.
    pub(crate) fn local_times(&self) -> Option<LocalTimes<'_>> {
        let columns = std::iter::once(&self.time).chain(&self.clock);
        self.instant.local_times(columns)
    }

    /// Name of the time zone, if one is configured.
    pub(crate) fn zone(&self) -> Option<&str> {
        self.instant.zone()
    }

    /// Time zone of local times and of the calendar; by default UTC.
    pub(crate) fn time_zone(&self) -> TimeZone {
        instant::zone_of(self.instant.zone.as_deref()).unwrap_or(TimeZone::UTC)
    }

    /// Configuration key of the spans that may be spans of days.
    pub(crate) fn spans_key(&self) -> &'static str {
        let mut spans = self.features.iter().filter_map(|feature| feature.span);
        match spans.any(|span| matches!(span, Span::Time(_))) {
            true => "dataset.feature",
            false => "dataset.series.max_gap",
        }
    }

    /// Returns true if a column holds the time.
    pub(crate) fn is_time(&self, name: &str) -> bool {
        self.time == name || self.clock.as_deref() == Some(name)
    }

    /// The columns that are made, in the order written.
    pub(crate) fn made(&self) -> impl Iterator<Item = &str> {
        self.features.iter().map(|feature| feature.name.as_str())
    }

    /// The column that holds the numbers of [`Series::of`] at this place.
    pub(crate) fn column_of(place: usize) -> String {
        format!("{RESERVED}{place}")
    }

    /// Timestamp of a row, from its landed cells: the time and, where there is one, the time of
    /// day.
    pub(crate) fn instant(&self, cells: Vec<Expr>) -> Expr {
        self.instant.clone().over(cells)
    }

    /// `judged`, and rows whose time cannot be read; `written` is that time as text, and the time of day where it has a column.
    pub(crate) fn timed(&self, judged: Expr, instant: Expr, written: Vec<Expr>) -> Expr {
        let untimed = Untimed {
            column: self.time.clone(),
            instant: self.instant.clone(),
        };
        let columns = [judged, instant].into_iter().chain(written);
        untimed.over(columns.collect())
    }

    pub(super) fn schema(&self, input: &Schema) -> Schema {
        let kept = input
            .fields()
            .iter()
            .filter(|field| !self.is_of(field.name()));
        let kept = kept.map(|field| field.as_ref().clone().with_nullable(true));
        let made = self.made();
        let made = made.map(|name| Field::new(name, DataType::Float64, true));
        let further = [REACH, PLACE].map(|name| Field::new(name, DataType::Int64, true));
        Schema::new(kept.chain(made).chain(further).collect::<Vec<_>>())
    }

    /// Returns true if features are made of this column of the plan, or one row of those of an instant is chosen by it.
    pub(super) fn is_of(&self, name: &str) -> bool {
        name == TARGET_ONLY || (0..self.of.len()).any(|place| Self::column_of(place) == name)
    }

    /// Returns true if rows of one instant are one, so that the plan needs [`TARGET_ONLY`].
    pub(crate) fn joins_instants(&self) -> bool {
        self.duplicates != SameTime::Error
    }

    /// Returns true for the origin of a row to predict.
    pub(super) fn is_asked(&self, origin: u64) -> bool {
        self.asked_source == Some(Origin::from_packed(origin).source())
    }

    /// Returns true if features look back, and only at rows of their own split.
    pub(crate) fn looks_back_within_split(&self) -> bool {
        !self.warm_start && self.looks_back()
    }

    /// Returns true if features look back at earlier rows.
    pub(crate) fn looks_back(&self) -> bool {
        let mut features = self.features.iter();
        features.any(|feature| !matches!(feature.kind, FeatureKind::Calendar(_)))
    }
}

impl Feature {
    /// At the begin of a series.
    pub(super) fn state(&self, instant: &Instant) -> State {
        // Rows of one are what `resolve` refuses to leave open.
        let span = self.span.unwrap_or(Span::Rows(1));
        let (closed, least) = (self.closed, self.least);
        match self.kind {
            FeatureKind::RollingMean => State::Mean(Rolling::new(span, closed, least)),
            FeatureKind::RollingStd => State::Deviation(Rolling::new(span, closed, least)),
            FeatureKind::RollingMin => State::Least(Rolling::new(span, closed, least)),
            FeatureKind::RollingMax => State::Most(Rolling::new(span, closed, least)),
            FeatureKind::Momentum => State::Momentum(Rolling::new(span, closed, least)),
            FeatureKind::Lag => State::Lag(Lag::new(span)),
            FeatureKind::Difference => State::Difference(Difference::new(span, closed)),
            FeatureKind::ForwardFill => State::Fill(Fill::new(self.span, false)),
            FeatureKind::Interpolate => State::Fill(Fill::new(self.span, true)),
            FeatureKind::Calendar(part) => {
                let zone = instant::zone_of(instant.zone.as_deref());
                State::Calendar(part, zone.unwrap_or(TimeZone::UTC))
            }
        }
    }
}
