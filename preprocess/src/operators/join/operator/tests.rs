//! Partners against a plain reference, and what they may depend on.

use arrow::array::{BooleanArray, Int64Array};
use feedline_schemas::config::JoinDuplicates;
use proptest::prelude::*;

use super::*;
use crate::operators::join::walk::ORIGIN;

/// A row of either side, with a unique id.
#[derive(Clone, Copy, Debug)]
struct Event {
    key: Option<u8>,
    time: Option<i64>,
    is_theirs: bool,
    id: i64,
}

/// Columns that a row gets: the text and the age of its partner, or the key it was looked up by
/// without one.
type Gets = (Option<String>, Option<f64>, Option<String>);

fn rule(duplicates: JoinDuplicates) -> Rule {
    Rule {
        tolerance: None,
        exact: false,
        duplicates,
        source: "b".into(),
        key: "dataset.join.0.duplicates".into(),
    }
}

fn making(rule: &Rule) -> Making {
    Making {
        rule: rule.clone(),
        own: vec![Field::new("id", DataType::Int64, true)],
        taken: vec![Field::new("v", DataType::Utf8, true)],
        age: Some("age".into()),
        missed: "missed".into(),
    }
}

/// The rows in the order that the plan gives them; of rows of a side the place in the list is the order they landed in.
fn in_order(rule: &Rule, events: &[Event]) -> Vec<(u64, Event)> {
    let mut rows: Vec<(u64, Event)> = (0..).zip(events.iter().copied()).collect();
    rows.retain(|(_, row)| !row.is_theirs || (row.key.is_some() && row.time.is_some()));
    rows.sort_by_key(|(place, row)| {
        let place = i64::try_from(*place).unwrap();
        let newest_first = rule.duplicates == JoinDuplicates::First;
        (
            row.key,
            row.time,
            row.is_theirs != rule.exact,
            if newest_first { -place } else { place },
        )
    });
    rows
}

fn batch(rows: &[(u64, Event)]) -> RecordBatch {
    let own = rows
        .iter()
        .map(|(_, row)| (!row.is_theirs).then_some(row.id));
    let keys = rows
        .iter()
        .map(|(_, row)| row.key.map(|key| key.to_string()));
    let taken = rows
        .iter()
        .map(|(_, row)| row.is_theirs.then(|| format!("v{}", row.id)));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(own.collect::<Int64Array>())),
        (KEY, Arc::new(keys.collect::<StringArray>())),
        (
            TIME,
            Arc::new(rows.iter().map(|(_, row)| row.time).collect::<Int64Array>()),
        ),
        (
            THEIRS,
            Arc::new(
                rows.iter()
                    .map(|(_, row)| Some(row.is_theirs))
                    .collect::<BooleanArray>(),
            ),
        ),
        (
            ORIGIN,
            Arc::new(
                rows.iter()
                    .map(|(place, _)| Some(*place))
                    .collect::<UInt64Array>(),
            ),
        ),
        ("v", Arc::new(taken.collect::<StringArray>())),
    ];
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, cells)| (name, cells, true)),
    )
    .unwrap()
}

/// Columns that rows get, by id, and the numbers of matched and used rows.
type Ran = (Vec<(i64, Gets)>, [u64; 2]);

/// Runs the operator over batches of `size` rows.
fn run(rule: &Rule, events: &[Event], size: usize) -> Result<Ran, Error> {
    let making = making(rule);
    let schema = Arc::new(making.schema());
    let mut operator = Operator::new(Arc::new(making), schema);
    let mut found: Vec<(i64, Gets)> = Vec::new();
    for rows in in_order(rule, events).chunks(size) {
        let Some(made) = operator.take(&batch(rows))? else {
            assert!(rows.iter().all(|(_, row)| row.is_theirs));
            continue;
        };
        let ids = made["id"].as_primitive::<Int64Type>();
        let ages = made["age"].as_primitive::<arrow::datatypes::Float64Type>();
        let [taken, missed] = ["v", "missed"].map(|name| made[name].as_string::<i32>());
        let text = |cells: &StringArray, row: usize| {
            cells.is_valid(row).then(|| cells.value(row).to_owned())
        };
        found.extend((0..made.num_rows()).map(|row| {
            let age = ages.is_valid(row).then(|| ages.value(row));
            (ids.value(row), (text(taken, row), age, text(missed, row)))
        }));
    }
    found.sort_by_key(|(id, _)| *id);
    Ok((found, [operator.walk.matched, operator.walk.used]))
}

/// The same, the long way: every row of the dataset looks at all rows of the source.
fn reference(rule: &Rule, events: &[Event], own: &Event) -> Option<(usize, i64)> {
    let (key, time) = (own.key?, own.time?);
    let theirs = events
        .iter()
        .enumerate()
        .filter(|(_, row)| row.is_theirs && row.key == Some(key));
    let old = theirs.filter_map(|(place, row)| Some((place, time - row.time?)));
    let fits = |age: i64| if rule.exact { age >= 0 } else { age > 0 };
    let least = old
        .clone()
        .map(|(_, age)| age)
        .filter(|age| fits(*age))
        .min()?;
    let mut newest = old.filter(|(_, age)| *age == least);
    let taken = match rule.duplicates {
        JoinDuplicates::First => newest.next(),
        _ => newest.next_back(),
    };
    taken.filter(|_| rule.tolerance.is_none_or(|most| least <= most))
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let key = prop_oneof![1 => Just(None), 6 => (0..3_u8).prop_map(Some)];
    let time = prop_oneof![1 => Just(None), 9 => (-6..14_i64).prop_map(Some)];
    let rows = prop::collection::vec((key, time, any::<bool>()), 1..60);
    rows.prop_map(|rows| {
        let event = |(id, (key, time, is_theirs))| Event {
            key,
            time,
            is_theirs,
            id,
        };
        (0..).zip(rows).map(event).collect()
    })
}

fn rules() -> impl Strategy<Value = Rule> {
    let duplicates = prop_oneof![Just(JoinDuplicates::First), Just(JoinDuplicates::Last)];
    let tolerance = prop::option::of(0..6_i64);
    (duplicates, tolerance, any::<bool>()).prop_map(|(duplicates, tolerance, exact)| Rule {
        tolerance,
        exact,
        ..rule(duplicates)
    })
}

proptest! {
    #[test]
    fn a_row_gets_the_newest_that_a_look_at_all_of_them_finds(
        events in events(), rule in rules(), size in 1..20_usize,
    ) {
        let (found, [matched, used]) = run(&rule, &events, size).unwrap();
        let own = events.iter().filter(|row| !row.is_theirs);
        prop_assert_eq!(found.len(), own.clone().count());
        let mut partners = std::collections::BTreeSet::new();
        for (own, (id, (taken, age, missed))) in own.zip(&found) {
            prop_assert_eq!(own.id, *id);
            let expected = reference(&rule, &events, own);
            let id = expected.map(|(place, _)| format!("v{}", events[place].id));
            prop_assert_eq!(taken, &id, "{:?}", own);
            prop_assert_eq!(*age, expected.map(|(_, age)| seconds(age)));
            prop_assert_eq!(missed.is_some(), expected.is_none());
            partners.extend(expected.map(|(place, _)| place));
        }
        prop_assert_eq!(matched, found.iter().filter(|(_, (taken, ..))| taken.is_some()).count() as u64);
        prop_assert_eq!(used, partners.len() as u64);
    }

    #[test]
    fn trap_23_what_the_source_says_from_an_instant_on_changes_no_row_before_it(
        events in events(), others in events(), rule in rules(), at in -6..14_i64, sizes in [1..20_usize, 1..20],
    ) {
        let is_later = |row: &Event| row.time.is_some_and(|time| time >= at);
        let mut changed = events.clone();
        changed.retain(|row| !(row.is_theirs && is_later(row)));
        let others = others.into_iter().filter(|row| row.is_theirs && is_later(row));
        changed.extend(others.map(|row| Event { id: row.id + 1_000, ..row }));
        let [one, other] = [(&events, sizes[0]), (&changed, sizes[1])]
            .map(|(events, size)| run(&rule, events, size).unwrap().0);
        let own = events.iter().filter(|row| !row.is_theirs);
        for ((own, one), other) in own.zip(&one).zip(&other) {
            // A row of that very instant sees nothing of it either, unless it is asked for.
            let is_before = own.time.is_none_or(|time| time < at || (time == at && !rule.exact));
            prop_assert!(!is_before || one == other, "{:?}: {:?} {:?}", own, one, other);
        }
    }
}

fn row(key: u8, time: i64, is_theirs: bool, id: i64) -> Event {
    Event {
        key: Some(key),
        time: Some(time),
        is_theirs,
        id,
    }
}

#[test]
fn rows_of_the_source_at_one_time_are_refused_unless_one_of_them_counts() {
    let events = [
        row(1, 5, true, 0),
        row(2, 5, true, 1),
        row(1, 5, true, 2),
        row(1, 9, false, 3),
    ];
    for size in 1..5 {
        let error = run(&rule(JoinDuplicates::Error), &events, size).unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("`dataset.join.0.duplicates`: two rows of `1` in source `b` are at")
                && error.contains("row 0 of batch 0 and row 2 of batch 0"),
            "{error}"
        );
        for (duplicates, expected) in [(JoinDuplicates::First, "v0"), (JoinDuplicates::Last, "v2")]
        {
            let (found, counts) = run(&rule(duplicates), &events, size).unwrap();
            assert_eq!(found[0].1.0.as_deref(), Some(expected));
            assert_eq!(counts, [1, 1]);
        }
    }
    // One time of two keys, and two times of one, are no such rows.
    let events = [row(1, 5, true, 0), row(2, 5, true, 1), row(1, 6, true, 2)];
    assert!(run(&rule(JoinDuplicates::Error), &events, 9).is_ok());
}

#[test]
fn times_at_the_ends_of_the_range_are_no_overflow() {
    let events = [row(1, i64::MIN, true, 0), row(1, i64::MAX, false, 1)];
    let mut rule = rule(JoinDuplicates::Error);
    assert_eq!(run(&rule, &events, 1).unwrap().1, [1, 1]);
    rule.tolerance = Some(i64::MAX - 1);
    assert_eq!(run(&rule, &events, 1).unwrap().1, [0, 0]);
}
