//! Warnings of rows that are missing in series.

use feedline_schemas::{config::TimeSpan, report::Warning};

use super::message::warning;
use crate::{operators::time_series::LongStepCounts, schema::landed_columns::shown};

/// Warns of steps over missing rows in a series by the time `column`, whose windows or features
/// count rows.
pub(crate) fn long_steps(column: &str, counts: &LongStepCounts) -> Option<Warning> {
    let LongStepCounts {
        entities,
        with_long,
        steps,
        long,
        ..
    } = counts;
    let longest = rounded(counts.longest)?;
    let usual = rounded(counts.usual)?;
    let limit = rounded(
        counts
            .longest_usual
            .saturating_add(counts.longest_usual / 2),
    )?;
    let message = format!(
        "{long} of {steps} steps from row to row along `{}` are at least 1.5 times as long as usual, in {with_long} of {entities} \
         entities; the longest is {longest} where {usual} is usual. Windows and features that count rows reach over the missing rows, \
         so a horizon covers more time there; to restart behind them, set `dataset.series.max_gap`, such as `\"{limit}\"`",
        shown(column)
    );
    Some(warning("long_steps", "dataset.series.max_gap", message))
}

/// Microseconds as a span of time, in whole seconds from 10 s on; none for 0.
fn rounded(micros: i64) -> Option<TimeSpan> {
    const SECOND: i64 = 1_000_000;
    let whole = match micros >= 10 * SECOND {
        true => (micros / SECOND).checked_mul(SECOND)?,
        false => micros,
    };
    TimeSpan::from_micros(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_longest_step_and_a_limit() {
        const HOUR: i64 = 3_600_000_000;
        let counts = LongStepCounts {
            entities: 2,
            with_long: 1,
            steps: 300,
            long: 3,
            longest: 60 * HOUR,
            usual: HOUR,
            longest_usual: HOUR + 7,
        };
        let found = long_steps("at", &counts).unwrap();
        assert_eq!(found.key.as_deref(), Some("dataset.series.max_gap"));
        for part in ["3 of 300", "1 of 2", "60h where 1h", "`\"90m\"`"] {
            assert!(found.message.contains(part), "{}", found.message);
        }
        assert_eq!(long_steps("at", &LongStepCounts::default()), None);
    }
}
