//! Features of time-series rows, each made of the past of its entity.
//!
//! The engine sorts the rows by entity, time and origin, and may spill. They then pass one operator
//! that holds only the rows that windows reach back over, whatever fraction of the rows one entity
//! has. So the result depends neither on partitions nor on memory. A row's features are computed
//! when it passes: no later row is known then.

mod cell_times;
mod clock_changes;
mod closed_days;
mod closing_time;
mod features;
pub(crate) mod instant;
mod long_steps;
mod naive;
mod operator;
mod repeated_time_check;
mod resolve;
mod sequence;
mod two_stack;
pub(crate) mod untimed;
mod window;
mod windowless;

pub use self::cell_times::{SeriesCells, reads_time};
pub(crate) use self::{
    cell_times::count_windowless,
    clock_changes::ClockChangeCounts,
    features::{ENTITY, PLACE, REACH, Series, TARGET_ONLY, TIME},
    instant::{Instant, LocalTimes, shown},
    long_steps::LongStepCounts,
    naive::{KnownTargets, NaiveErrors, NaiveLags},
    repeated_time_check::RepeatedTimeCheck,
    resolve::{check_entity_roles, check_time, resolve},
    sequence::{Sequence, Windows},
    windowless::WindowlessCounts,
};

#[cfg(test)]
pub(crate) use self::closing_time::ClosingTime;

#[cfg(test)]
mod resolve_tests;
#[cfg(test)]
mod tests;
