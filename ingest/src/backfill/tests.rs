//! Passes over slices and values, against a plain model of sets of numbers.

mod reread;

use std::collections::{BTreeMap, BTreeSet};

use feedline_schemas::{
    commit::{PageRun, Position},
    config::{SlicesConfig, UpperEnd},
};
use proptest::prelude::*;

use super::*;
use feedline_readers::value::Value;
use feedline_storage::Store;

fn plan(range: Interval, step: i64, values: Option<u64>) -> Plan {
    let slices = SlicesConfig {
        from_param: "from".into(),
        to_param: Some("to".into()),
        start: range[0].to_string(),
        end: Some(range[1].to_string()),
        lag: "0s".into(),
        step: step.to_string(),
        format: "integer".into(),
        upper: UpperEnd::Exclusive,
        clock: Default::default(),
    };
    let list = |count: u64| (0..count).map(|i| Value::Text(format!("v{i}")));
    Plan {
        slices: Some(Slices::new(&slices).unwrap()),
        values: values.map(|count| Values {
            param: "v".into(),
            column: None,
            values: list(count).collect(),
            removed: BTreeSet::new(),
            is_complete: true,
            unusable: Vec::new(),
            source: None,
            name: "s".into(),
        }),
        range,
        now: Duration::ZERO,
        ends: Vec::new(),
        counted: None,
        continued: None,
        change: ListChange::default(),
        compared_rows: None,
        landed_rows: 0,
    }
}

fn position(ledger: Ledger) -> Position {
    let is_over = ledger.slice.is_none();
    // After a round trip through the log.
    let ledger = serde_json::from_str(&serde_json::to_string(&ledger).unwrap()).unwrap();
    let run = PageRun {
        ledger: Some(ledger),
        ..PageRun::default()
    };
    match is_over {
        true => Position::Done {
            pages: 0,
            files: vec![],
            run,
        },
        false => Position::Page {
            page: 0,
            cursor: None,
            run,
        },
    }
}

/// A pass: start, length, added values, and random draws for its slices.
type Drawn = (i64, i64, u64, Vec<u8>);

fn any_passes() -> impl Strategy<Value = Vec<Drawn>> {
    let draws = proptest::collection::vec(any::<u8>(), 1..40);
    let pass = (-20_i64..20, 1_i64..40, 0_u64..3, draws);
    proptest::collection::vec(pass, 1..6)
}

/// Goes through passes; slices are split and batches end as drawn.
fn check_passes(passes: &[Drawn], step: i64, first_values: u64) {
    let mut values = first_values;
    let mut done: BTreeMap<u64, BTreeSet<i64>> = BTreeMap::new();
    let (mut ends, mut batches) = (Vec::new(), Vec::new());
    let mut last: Option<Ledger> = None;
    let mut batch: Vec<(u64, Interval)> = Vec::new();
    for (from, length, more, draws) in passes {
        values += more;
        let range = [*from, from + length];
        let plan = plan(range, step, Some(values));
        let wanted: BTreeSet<i64> = (range[0]..range[1]).collect();
        let todo = |value: u64| &wanted - done.get(&value).unwrap_or(&BTreeSet::new());
        let expected: BTreeMap<u64, BTreeSet<i64>> = (0..values)
            .map(|value| (value, todo(value)))
            .filter(|(_, todo)| !todo.is_empty())
            .collect();
        let Some(mut ledger) = plan.begin(last.as_ref(), false) else {
            assert!(expected.is_empty());
            continue;
        };
        assert!(plan.values.as_ref().unwrap().continues(&ledger));
        let mut read: BTreeMap<u64, BTreeSet<i64>> = BTreeMap::new();
        let mut draws = draws.iter().cycle();
        while let Some(slice) = ledger.slice {
            let value = ledger.value;
            batch.push((value, slice));
            let draw = draws.next().unwrap();
            let cut = (draw % 3 == 0).then(|| plan.cut(&ledger)).flatten();
            ledger = match cut {
                Some(halves) => halves,
                None => {
                    let read = read.entry(value).or_default();
                    for number in slice[0]..slice[1] {
                        assert!(read.insert(number), "{number} of {value} twice");
                    }
                    plan.advance(ledger)
                }
            };
            assert!(ledger.ends.windows(2).all(|ends| ends[0] > ends[1]));
            if draw % 5 < 2 || ledger.slice.is_none() {
                ends.push(position(ledger.clone()));
                batches.push(std::mem::take(&mut batch));
            }
        }
        assert_eq!(read, expected);
        // The model of the kept intervals: new values narrow it to the pass.
        let is_of_all = last.as_ref().is_some_and(|last| last.values == values);
        for value in 0..values {
            let kept = done.entry(value).or_default();
            if !is_of_all {
                kept.clear();
            }
            kept.extend(&wanted);
        }
        last = Some(ledger);
    }
    check_neighbours(&ends, &batches);
}

/// Checks that every batch with possible repeats is found as a neighbour.
fn check_neighbours(ends: &[Position], batches: &[Vec<(u64, Interval)>]) {
    let touch = |a: &(u64, Interval), b: &(u64, Interval)| {
        a.0 == b.0 && a.1[0] <= b.1[1] && b.1[0] <= a.1[1]
    };
    let start = Position::Start;
    let before = |index: usize| index.checked_sub(1).map_or(&start, |before| &ends[before]);
    let spans: Vec<_> = (0..ends.len())
        .map(|index| span(before(index), &ends[index]))
        .collect();
    for (index, batch) in batches.iter().enumerate() {
        let near = neighbours(ends[..index].iter(), &ends[index]);
        for near in &near {
            // A snapshot of the log has the spans of its parts: neighbours are looked for by them.
            let [a, b] = [spans[*near].unwrap(), spans[index].unwrap()];
            assert!(a[0] <= b[1] && b[0] <= a[1], "{near} {index}: {a:?} {b:?}");
        }
        for (earlier, read) in batches[..index].iter().enumerate() {
            let is_near = read.iter().any(|a| batch.iter().any(|b| touch(a, b)));
            assert!(!is_near || near.contains(&earlier), "{earlier} {index}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn lists_that_change_between_runs_lose_and_repeat_nothing(runs in any_runs()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check_changing_lists(&runs));
    }

    #[test]
    fn passes_read_what_is_missing_of_each_value_and_nothing_twice(
        passes in any_passes(), step in 1_i64..15, values in 1_u64..4
    ) {
        check_passes(&passes, step, values);
    }
}

#[test]
fn batches_far_away_are_no_neighbours() {
    let plan = plan([0, 50], 10, None);
    let (mut ledger, mut ends) = (plan.begin(None, false).unwrap(), Vec::new());
    for _ in 0..4 {
        ledger = plan.advance(ledger);
        ends.push(position(ledger.clone()));
    }
    // The slices 0 to 3, each with the begun one; the fifth ends the pass.
    let over = position(plan.advance(ledger));
    let near = neighbours(ends.iter(), &over);
    assert_eq!(near.into_iter().collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn a_slice_is_cut_down_to_its_smallest_unit_and_the_upper_halves_wait() {
    let plan = plan([0, 8], 8, None);
    let mut ledger = plan.begin(None, false).unwrap();
    let mut cuts = Vec::new();
    while let Some(halves) = plan.cut(&ledger) {
        ledger = halves;
        cuts.push((ledger.slice.unwrap(), ledger.ends.clone()));
    }
    assert_eq!(
        cuts,
        [
            ([0, 4], vec![8]),
            ([0, 2], vec![8, 4]),
            ([0, 1], vec![8, 4, 2])
        ]
    );
    let mut slices = Vec::new();
    while let Some(slice) = ledger.slice {
        slices.push(slice);
        ledger = plan.advance(ledger);
    }
    assert_eq!(slices, [[0, 1], [1, 2], [2, 4], [4, 8]]);
    assert_eq!(ledger.done, [[0, 8]]);
    assert!(plan.begin(Some(&ledger), false).is_none());
}

#[tokio::test]
async fn a_list_without_a_saved_one_may_grow_at_its_end_only() {
    let ledger = plan([0, 8], 8, Some(2)).begin(None, false).unwrap();
    let landing = Store::memory();
    let mut grown = plan([0, 8], 8, Some(3));
    grown.continue_list(&landing, &ledger).await.unwrap();
    assert_eq!(grown.with_list(&ledger), None);
    let refused =
        async |mut plan: Plan, key: &str| match plan.continue_list(&landing, &ledger).await {
            Err(Error::Config { key: found, .. }) => assert_eq!(found, key),
            other => panic!("{other:?}"),
        };
    refused(plan([0, 8], 8, Some(1)), "for_each.values").await;
    let mut other = plan([0, 8], 8, Some(3));
    if let Some(values) = &mut other.values {
        values.values.swap(0, 2);
        values.source = Some("a".into());
    }
    refused(other.clone(), "for_each.source").await;
    // Nor is a list whose file is damaged taken for the saved one.
    plan([0, 8], 8, Some(2)).save_list(&landing).await.unwrap();
    let path = landing.list("values").await.unwrap().remove(0).path;
    landing.put(&path, "\"v0\"\n\"v3\"".into()).await.unwrap();
    refused(other, "for_each.source").await;
}

/// A run: end of the range, values in the list, and the number of slices after which it is killed.
type DrawnRun = (i64, Vec<u8>, usize);

fn any_runs() -> impl Strategy<Value = Vec<DrawnRun>> {
    let list = proptest::collection::vec(0..6_u8, 0..6);
    proptest::collection::vec((0..4_i64, list, 0..12_usize), 1..10)
}

/// Runs with lists that change. A number of a value is read once for as long as the value is in the
/// list, and after a pass all numbers of its values are read.
async fn check_changing_lists(runs: &[DrawnRun]) {
    let landing = Store::memory();
    let mut last: Option<Ledger> = None;
    let mut read: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
    let mut end = 1;
    for (more, list, kill) in runs {
        end += more;
        let mut plan = plan([0, end], 2, Some(0));
        let mut names: Vec<String> = Vec::new();
        for value in list {
            let name = format!("v{value}");
            if !names.contains(&name) {
                names.push(name);
            }
        }
        plan.values.as_mut().unwrap().values = names.iter().cloned().map(Value::Text).collect();
        if let Some(last) = &mut last {
            plan.continue_list(&landing, last).await.unwrap();
            if let Some(changed) = plan.with_list(last) {
                *last = changed;
            }
        }
        plan.save_list(&landing).await.unwrap();
        read.retain(|name, _| names.contains(name));
        let is_over = last.as_ref().is_none_or(|ledger| ledger.slice.is_none());
        let begun = match is_over {
            true => plan.begin(last.as_ref(), false),
            false => last.clone(),
        };
        let Some(mut ledger) = begun else { continue };
        for _ in 0..*kill {
            let Some(slice) = ledger.slice else { break };
            let name = plan.values.as_ref().unwrap().text(ledger.value).unwrap();
            assert!(names.contains(&name), "{name} is not in {names:?}");
            let numbers = read.entry(name.clone()).or_default();
            for number in slice[0]..slice[1] {
                assert!(numbers.insert(number), "{number} of {name} twice");
            }
            ledger = plan.advance(ledger);
        }
        if ledger.slice.is_none() {
            let wanted: BTreeSet<i64> = (ledger.target[0]..ledger.target[1]).collect();
            let values = plan.values.as_ref().unwrap();
            for value in (0..ledger.values).filter(|value| !values.is_removed(*value)) {
                let name = values.text(value).unwrap();
                assert_eq!(read.get(&name), Some(&wanted), "{name}");
            }
        }
        last = Some(ledger);
    }
}

#[test]
fn a_thousand_values_take_as_many_bytes_as_one() {
    let size = |values: u64| {
        let plan = plan([0, 1_000], 10, Some(values));
        let mut ledger = plan.begin(None, false).unwrap();
        let mut most = 0;
        while ledger.slice.is_some() {
            most = most.max(serde_json::to_string(&ledger).unwrap().len());
            ledger = plan.advance(ledger);
        }
        (most, serde_json::to_string(&ledger).unwrap().len())
    };
    let (one, many) = (size(1), size(1_000));
    assert!(
        many.0 <= one.0 + 20 && many.1 <= one.1 + 3,
        "{one:?} {many:?}"
    );
    assert!(many.0 < 200, "{many:?}");
}
