//! Re-reads of a range after changes of a list, against a plain model of the batches.

use feedline_schemas::{commit::CommitEntry, decode, ids::Sequence};

use super::*;

const SAMPLE: &str = include_str!("../../../../schemas/samples/commit-2.json");

/// The position after a batch, and its slices with the names of their values.
type ReadBatch = (Position, Vec<(String, Interval)>);

fn names(list: &[u8]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in list.iter().map(|value| format!("v{value}")) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn values_of(names: &[String]) -> Vec<Value> {
    names.iter().cloned().map(Value::Text).collect()
}

/// An entry of a batch. It has files if the batch has read anything.
fn entry(index: usize, (position, read): &ReadBatch) -> CommitEntry {
    let mut entry: CommitEntry = decode("sample", SAMPLE.as_bytes()).unwrap();
    entry.sequence = Sequence::new(index as u64);
    entry.rejects.clear();
    entry.children.clear();
    if read.is_empty() {
        entry.files.clear();
    }
    entry.state.position = position.clone();
    entry
}

/// Runs with lists that change, each killed after some slices. Batches end as drawn. Returns the
/// batches that landed, and the ledger after the last one.
async fn run_lists(
    landing: &Store,
    runs: &[DrawnRun],
    ends: &[bool],
) -> (Vec<ReadBatch>, Option<Ledger>) {
    let (mut batches, mut last): (Vec<ReadBatch>, Option<Ledger>) = (Vec::new(), None);
    let (mut end, mut ends) = (1, ends.iter().cycle());
    for (more, list, kill) in runs {
        end += more;
        let mut plan = plan([0, end], 2, Some(0));
        plan.values.as_mut().unwrap().values = values_of(&names(list));
        let mut begun = last.clone();
        if let Some(before) = &last {
            plan.continue_list(landing, before).await.unwrap();
            begun = plan.with_list(before).or(begun);
        }
        plan.save_list(landing).await.unwrap();
        let is_over = |ledger: &Ledger| ledger.slice.is_none();
        if let (Some(before), Some(begun)) = (&last, &begun)
            && !is_over(before)
            && is_over(begun)
        {
            // A run commits the end of that pass, and begins another one.
            batches.push((position(begun.clone()), Vec::new()));
            last = Some(begun.clone());
        }
        let pass = match &begun {
            Some(begun) if !is_over(begun) => Some(begun.clone()),
            over => plan.begin(over.as_ref(), false),
        };
        let Some(mut ledger) = pass else {
            if let Some(over) = begun {
                batches.push((position(over.clone()), Vec::new()));
                last = Some(over);
            }
            continue;
        };
        let mut read = Vec::new();
        for _ in 0..*kill {
            let Some(slice) = ledger.slice else { break };
            let name = plan.values.as_ref().unwrap().text(ledger.value).unwrap();
            read.push((name, slice));
            ledger = plan.advance(ledger);
            if *ends.next().unwrap() || is_over(&ledger) {
                batches.push((position(ledger.clone()), std::mem::take(&mut read)));
                last = Some(ledger.clone());
            }
        }
    }
    (batches, last)
}

/// Checks that a re-read withdraws the batches with rows that are requested again, widens its range
/// to theirs only, and finds the values of these batches that are not requested any more.
async fn check_reread(runs: &[DrawnRun], ends: &[bool], list: &[u8], range: Interval) {
    let landing = Store::memory();
    let (batches, last) = run_lists(&landing, runs, ends).await;
    let Some(last) = last.filter(|ledger| ledger.slice.is_none()) else {
        return;
    };
    let current = names(list);
    let mut values = plan([0, 1], 2, Some(0)).values.unwrap();
    values.values = values_of(&current);
    if !values.continues(&last) {
        values.continue_saved(&landing, &last).await.unwrap();
    }
    let history = ListHistory::of(&values, &landing, last.values)
        .await
        .unwrap();
    let entries: Vec<CommitEntry> = batches
        .iter()
        .enumerate()
        .map(|(index, batch)| entry(index, batch))
        .collect();
    let mut alone = |batches: &BTreeSet<usize>| batches.clone();
    let widened = widen(&entries, range, &history, &mut alone);

    let requested = |(_, read): &ReadBatch| -> BTreeSet<i64> {
        let read = read.iter().filter(|(name, _)| current.contains(name));
        read.flat_map(|(_, [from, to])| *from..*to).collect()
    };
    let requested: Vec<BTreeSet<i64>> = batches.iter().map(requested).collect();
    let mut wanted: BTreeSet<i64> = (range[0]..range[1]).collect();
    let mut withdrawn = BTreeSet::new();
    loop {
        let touching = requested.iter().enumerate();
        let touching = touching.filter(|(_, read)| !read.is_disjoint(&wanted));
        let touching: BTreeSet<usize> = touching.map(|(index, _)| index).collect();
        let of_batches = touching.iter().map(|index| &requested[*index]);
        let wider = of_batches.fold(wanted.clone(), |all, read| &all | read);
        let is_stable = wider == wanted && touching == withdrawn;
        (wanted, withdrawn) = (wider, touching);
        if is_stable {
            break;
        }
    }
    assert_eq!(widened.batches, withdrawn, "{batches:?}");
    let all = Ledger {
        done: vec![[-10, 1_000]],
        ..Ledger::default()
    };
    let kept = undone(&all, &widened).done;
    let kept: BTreeSet<i64> = kept.iter().flat_map(|[from, to]| *from..*to).collect();
    let reread: BTreeSet<i64> = (-10..1_000).filter(|n| !kept.contains(n)).collect();
    assert_eq!(reread, wanted, "{batches:?}");
    let of_withdrawn = withdrawn.iter().flat_map(|index| &batches[*index].1);
    let left = of_withdrawn.map(|(name, _)| name.clone());
    let left: BTreeSet<String> = left.filter(|name| !current.contains(name)).collect();
    assert_eq!(widened.left, left, "{batches:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_reread_withdraws_rows_that_are_requested_again_and_no_others(
        runs in proptest::collection::vec(
            (0..4_i64, proptest::collection::vec(0..6_u8, 0..6), 0..30_usize), 1..7
        ),
        ends in proptest::collection::vec(any::<bool>(), 1..20),
        list in proptest::collection::vec(0..6_u8, 0..6),
        (from, length) in (0..12_i64, 1..12_i64)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check_reread(&runs, &ends, &list, [from, from + length]));
    }
}
