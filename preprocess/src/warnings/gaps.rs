//! Warnings of rows that are missing in series, and of days that are not 24 hours long.

use feedline_schemas::{
    config::{DatasetConfig, TimeSpan},
    count::counted,
    record::ColumnType,
    report::Warning,
};

use super::message::warning;
use crate::{
    operators::time_series::{
        self, ClockChangeCounts, LongStepCounts, SeriesCells, WindowlessCounts,
    },
    schema::landed_columns::shown,
};

/// Warns of steps over missing rows in a series by the time `column`, whose windows or features
/// count rows, and whose seasons have `season` rows.
pub(crate) fn long_steps(
    column: &str,
    counts: &LongStepCounts,
    season: Option<u32>,
) -> Option<Warning> {
    let LongStepCounts {
        entities,
        with_long,
        steps,
        long,
        over_closed,
        closing,
        closes,
        ..
    } = counts;
    let longest = rounded(counts.longest)?;
    let usual = rounded(counts.usual)?;
    let [closing, reached] = match closes {
        None => [String::new(), "the missing rows".to_owned()],
        Some(at) => [
            format!(
                ". {closing} of them begin at one time of day or on one weekday of their entity, such as {at}: these may be closing \
                 times, where no row is missing"
            ),
            "these steps".to_owned(),
        ],
    };
    let holidays = if counts.are_holes {
        " or over holidays,"
    } else {
        ""
    };
    let closed = rounded(counts.longest_closed).map(|longest| {
        format!(
            ". Not among them are {} over weekdays without rows, such as weekends,{holidays} of up to {longest}; `max_gap` \
             restarts behind those that are longer than it, too",
            counted(*over_closed, "step")
        )
    });
    let closed = closed.unwrap_or_default();
    let advice = gap_advice(counts)?;
    let message = format!(
        "{long} of {steps} steps from row to row along `{}` are at least 1.5 times as long as usual, in {with_long} of {entities} \
         entities; the longest is {longest} where {usual} is usual{closing}{closed}. Windows and features that count rows reach \
         over {reached}, so a horizon covers more time there; {advice}{}",
        shown(column),
        seasons_by_rows(season)
    );
    Some(warning("long_steps", "dataset.series.max_gap", message))
}

/// Part of a message that proposes a `max_gap`, which holds for entities of all usual steps.
fn gap_advice(counts: &LongStepCounts) -> Option<String> {
    const SILENCE: &str =
        "; one above the longest step changes no window, and turns this warning off";
    let LongStepCounts {
        longest,
        shortest_usual,
        longest_usual,
        over_closed,
        longest_closed,
        are_holes,
        closes,
        ..
    } = *counts;
    // A gap is longer than `max_gap`, and the usual steps of no entity are gaps.
    let above = |usual: i64, part: i64| usual.saturating_add(usual / part);
    // Windows may reach over weekends and holidays.
    let beyond_closed = are_holes.then(|| above(longest_closed.max(longest_usual), 4));
    let beyond_usual = [2, 4].map(|part| above(longest_usual, part));
    let mut limits = beyond_closed.into_iter().chain(beyond_usual);
    let limit = limits.find(|limit| *limit < longest).and_then(rounded);
    let is_mixed = i128::from(longest_usual) * 2 >= i128::from(shortest_usual) * 3;
    let may_be_closed = closes.is_some() || over_closed > 0;
    let silence = if may_be_closed { SILENCE } else { "" };
    if let (Some(limit), false) = (limit, is_mixed) {
        return Some(format!(
            "to restart behind them, set `dataset.series.max_gap`, such as `\"{limit}\"`{silence}"
        ));
    }
    let [shortest, usual] = [rounded(shortest_usual)?, rounded(longest_usual)?];
    let own = rounded(above(shortest_usual, 2))?;
    let apart = format!(
        "`dataset.series.max_gap` holds for all entities, whose usual steps are {shortest} to {usual}"
    );
    let separate = format!(
        "a dataset of the entities of each usual step, as `dataset.sql` selects them, can have one of its own, such as \
         `\"{own}\"` for {shortest}"
    );
    Some(match limit {
        Some(limit) => format!(
            "{apart}: `\"{limit}\"` restarts behind the steps above it only; {separate}{silence}"
        ),
        None => format!(
            "{apart}: none restarts behind these steps without a restart behind usual ones; {separate}{SILENCE}"
        ),
    })
}

/// Warns of entities without a usual step in a series by the time `column`, whose windows or
/// features count rows, and whose seasons have `season` rows.
pub(crate) fn uneven_steps(
    column: &str,
    counts: &LongStepCounts,
    season: Option<u32>,
) -> Option<Warning> {
    let [shortest, longest] = counts.uneven_steps?;
    let message = format!(
        "the steps from row to row along `{}` have no usual length in {} of {} entities: they are {} to {} long, and fewer than \
         half are about as long as the median one{}. Windows and features count rows, so they cover more time at some rows than at \
         others, and so does a horizon; to restart behind long steps, set `dataset.series.max_gap`; one above the longest step changes no \
         window, and turns this warning off{}",
        shown(column),
        counts.uneven,
        counts.entities,
        rounded(shortest)?,
        rounded(longest)?,
        together(counts.uneven_together),
        seasons_by_rows(season)
    );
    Some(warning("uneven_steps", "dataset.series.max_gap", message))
}

/// Warns of entities that get no window in a build of `rows`, which are all rows of `dataset`; their times
/// land in a column of this type.
#[must_use]
pub fn warn_of_windowless_entities(
    dataset: &DatasetConfig,
    r#type: ColumnType,
    rows: &[SeriesCells],
) -> Option<Warning> {
    let counts = time_series::count_windowless(dataset, r#type, rows)?;
    let has_limit = dataset.series.as_ref()?.max_gap.is_some();
    entities_without_windows(&counts, has_limit)
}

/// Warns of entities with rows enough for a window and no window. With `has_limit`, gaps end windows.
pub(crate) fn entities_without_windows(
    counts: &WindowlessCounts,
    has_limit: bool,
) -> Option<Warning> {
    let WindowlessCounts {
        span,
        entities,
        without,
        rows,
        names,
        short,
    } = counts;
    if *without == 0 {
        return None;
    }
    let named = match names.is_empty() {
        true => String::new(),
        false => format!(", such as{}", names.join(",")),
    };
    let (key, cause, advice) = match has_limit {
        true => (
            "dataset.series.max_gap",
            "gaps and rejected rows",
            "`max_gap` holds for all entities and has to be longer than the usual steps of each: raise it, make the windows shorter, or \
             select entities of other steps for a dataset of their own with `dataset.sql`",
        ),
        false => (
            "dataset.sequence.length",
            "rejected rows",
            "correct the rejected rows, or make the windows shorter",
        ),
    };
    let more = match short {
        0 => String::new(),
        short => format!(
            ". Not counted: {} with fewer than {span} usable rows",
            counted(*short, "entity")
        ),
    };
    let message = format!(
        "{without} of {} have no window in any split{named}: a window and its target need {span} rows that follow one another, and {cause} \
         keep their {} apart; {advice}{more}",
        counted(*entities, "entity"),
        counted(*rows, "usable row")
    );
    Some(warning("entities_without_windows", key, message))
}

/// Warns of rows by the time `column` with another past than their spans of days suggest, behind a day of `zone` that is not 24
/// hours long. `key` has these spans.
pub(crate) fn uneven_days(
    column: &str,
    zone: &str,
    counts: &ClockChangeCounts,
    key: &'static str,
) -> Option<Warning> {
    let first = time_series::shown(counts.first?);
    let message = format!(
        "{} along `{}` come after a day of `{zone}` that is not 24 hours long, within a configured span of days; the first is at \
         {first}. Spans of days and weeks are multiples of 24 hours, so there they reach a day less or more: count `rows`, or \
         let spans differ by an hour, such as `\"169h\"` for `\"7d\"`, `\"25h\"` for a `max_gap` of `\"1d\"`, or `\"167h\"` for \
         `lag`, `difference` and `closed = \"right\"`",
        counted(counts.rows, "row"),
        shown(column)
    );
    Some(warning("uneven_days", key, message))
}

/// Part of a message about so many `entities` that were compared together.
fn together(entities: u64) -> String {
    match entities {
        0 => String::new(),
        entities => format!(" (counted together: {entities} with fewer than 9 rows)"),
    }
}

/// Part of a message about the naive forecast of a season.
fn seasons_by_rows(season: Option<u32>) -> String {
    season.map_or_else(String::new, |rows| {
        format!(
            ". The naive forecast `seasonal` takes the value {rows} rows back too, which is another time of the season where rows are \
             missing: its error is then too large, and a poor model may pass `worse_than_naive`"
        )
    })
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
    use crate::operators::time_series::ClosingTime;

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
            shortest_usual: HOUR,
            ..LongStepCounts::default()
        };
        let found = long_steps("at", &counts, None).unwrap();
        assert_eq!(found.key.as_deref(), Some("dataset.series.max_gap"));
        for part in ["3 of 300", "1 of 2", "60h where 1h", "`\"90m\"`"] {
            assert!(found.message.contains(part), "{}", found.message);
        }
        assert!(!found.message.contains("seasonal"), "{}", found.message);
        let seasons = long_steps("at", &counts, Some(24)).unwrap().message;
        assert!(
            seasons.contains("`seasonal` takes the value 24 rows back"),
            "{seasons}"
        );
        assert_eq!(long_steps("at", &LongStepCounts::default(), Some(24)), None);
        assert!(found.message.contains("over the missing rows"), "{found:?}");
        let closed = LongStepCounts {
            closing: 3,
            closes: Some(ClosingTime::Daily(16 * 60)),
            ..counts
        };
        let found = long_steps("at", &closed, None).unwrap().message;
        for part in [
            "3 of them begin at one time of day or on one weekday of their entity, such as 16:00: these may be closing times",
            "reach over these steps",
            "turns this warning off",
        ] {
            assert!(found.contains(part), "{part}: {found}");
        }
        let weekends = LongStepCounts {
            over_closed: 52,
            longest_closed: 72 * HOUR,
            ..counts
        };
        let found = long_steps("at", &weekends, None).unwrap().message;
        for part in [
            "Not among them are 52 steps over weekdays without rows, such as weekends, of up to 3d;",
            "turns this warning off",
        ] {
            assert!(found.contains(part), "{part}: {found}");
        }
    }

    #[test]
    fn a_proposed_gap_beside_weekends_and_holidays_ends_windows_at_holes_alone() {
        const DAY: i64 = 86_400_000_000;
        let counts = LongStepCounts {
            entities: 1,
            with_long: 1,
            steps: 250,
            long: 1,
            longest: 31 * DAY,
            usual: DAY,
            longest_usual: DAY,
            shortest_usual: DAY,
            over_closed: 49,
            longest_closed: 4 * DAY,
            are_holes: true,
            ..LongStepCounts::default()
        };
        let found = long_steps("at", &counts, None).unwrap().message;
        for part in [
            "1 of 250 steps",
            "the longest is 31d where",
            "49 steps over weekdays without rows, such as weekends, or over holidays, of up to 4d;",
            "max_gap`, such as `\"5d\"`; one above",
        ] {
            assert!(found.contains(part), "{part}: {found}");
        }
        // No step is over closed days alone.
        let none_closed = LongStepCounts {
            over_closed: 0,
            longest_closed: 0,
            ..counts
        };
        let found = long_steps("at", &none_closed, None).unwrap().message;
        let part = "set `dataset.series.max_gap`, such as `\"30h\"`";
        assert!(found.contains(part), "{found}");
        // The usual steps of another entity are no gaps.
        let beside_weekly = LongStepCounts {
            longest_closed: 3 * DAY,
            longest_usual: 7 * DAY,
            ..counts
        };
        let found = long_steps("at", &beside_weekly, None).unwrap().message;
        assert!(found.contains("`\"210h\"`"), "{found}");
    }

    #[test]
    fn a_proposed_gap_ends_windows_at_a_counted_step_and_at_no_usual_one() {
        const HOUR: i64 = 3_600_000_000;
        let message = |longest: i64, longest_usual: i64| {
            let counts = LongStepCounts {
                entities: 3,
                with_long: 1,
                steps: 300,
                long: 3,
                longest,
                usual: HOUR,
                longest_usual,
                shortest_usual: HOUR,
                ..LongStepCounts::default()
            };
            long_steps("at", &counts, None).unwrap().message
        };
        // The longest counted step is no longer than the usual ones of another entity.
        let none = message(3 * HOUR, 3 * HOUR);
        for part in [
            "whose usual steps are 1h to 3h: none restarts behind these steps",
            "`\"90m\"` for 1h; one above the longest step changes no window",
        ] {
            assert!(none.contains(part), "{part}: {none}");
        }
        assert!(!none.contains("such as `\"270m\"`"), "{none}");
        let some = message(7 * HOUR, 3 * HOUR);
        let part = "`\"270m\"` restarts behind the steps above it only; a dataset of the entities";
        assert!(some.contains(part), "{some}");
        // A step as long as `max_gap` is no gap.
        let even = message(HOUR * 3 / 2, HOUR);
        assert!(even.contains("max_gap`, such as `\"75m\"`"), "{even}");
    }

    #[test]
    fn a_message_of_uneven_times_has_the_shortest_and_the_longest_step() {
        const HOUR: i64 = 3_600_000_000;
        let counts = LongStepCounts {
            entities: 3,
            uneven: 2,
            uneven_together: 1,
            uneven_steps: Some([HOUR / 2, 60 * HOUR]),
            ..LongStepCounts::default()
        };
        let found = uneven_steps("at", &counts, Some(24)).unwrap();
        assert_eq!(found.code, "uneven_steps");
        for part in [
            "`at`",
            "2 of 3 entities",
            "30m to 60h",
            "median one (counted together: 1 with fewer than 9 rows). Windows",
            "`seasonal`",
        ] {
            assert!(found.message.contains(part), "{}", found.message);
        }
        assert_eq!(uneven_steps("at", &LongStepCounts::default(), None), None);
    }

    #[test]
    fn a_message_of_entities_without_windows_names_them_and_the_key() {
        let counts = WindowlessCounts {
            span: 36,
            entities: 3,
            without: 1,
            rows: 480,
            names: vec![" (s = `slow`)".to_owned()],
            short: 1,
        };
        let found = entities_without_windows(&counts, true).unwrap();
        assert_eq!(found.code, "entities_without_windows");
        assert_eq!(found.key.as_deref(), Some("dataset.series.max_gap"));
        let begin = "1 of 3 entities have no window in any split, such as (s = `slow`): a window and its target need 36 rows that \
                     follow one another, and gaps and rejected rows keep their 480 usable rows apart; `max_gap` holds for all";
        assert!(found.message.starts_with(begin), "{}", found.message);
        let end = "Not counted: 1 entity with fewer than 36 usable rows";
        assert!(found.message.ends_with(end), "{}", found.message);
        let rejected = entities_without_windows(&counts, false).unwrap();
        assert_eq!(rejected.key.as_deref(), Some("dataset.sequence.length"));
        assert!(!rejected.message.contains("gaps"), "{}", rejected.message);
        let none = WindowlessCounts {
            without: 0,
            ..counts
        };
        assert_eq!(entities_without_windows(&none, true), None);
    }

    #[test]
    fn a_message_has_the_first_row_behind_a_day_of_another_length() {
        let counts = ClockChangeCounts {
            rows: 14,
            first: Some(0),
        };
        let found = uneven_days("at", "Europe/Rome", &counts, "dataset.feature").unwrap();
        assert_eq!(found.code, "uneven_days");
        let part = "14 rows along `at` come after a day of `Europe/Rome` that is not 24 hours long";
        assert!(found.message.starts_with(part), "{}", found.message);
        assert!(found.message.contains("1970-01-01T00:00:00Z"));
        let none = ClockChangeCounts::default();
        let found = uneven_days("at", "Europe/Rome", &none, "dataset.feature");
        assert_eq!(found, None);
    }
}
