//! Properties of whole passes.

mod golden;
mod grid;
mod mixed;
mod units;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn units(rows: &[u32]) -> Units {
    Units::Rows(Arc::new(Blocks::new(rows.to_vec())))
}

fn spec(seed: u64, domains: u32, window_blocks: u32, global_batch: u32) -> OrderSpec {
    OrderSpec {
        seed,
        domains,
        window_blocks,
        global_batch,
        last_batch: LastBatch::Keep,
    }
}

fn epoch(rows: &[u32], spec: OrderSpec, epoch: u64) -> PassOrder {
    let orders = Orders::single(spec, units(rows)).unwrap();
    orders.epoch(epoch, None).unwrap()
}

/// Slots of a batch as (source, block, row).
fn places(cursor: &mut Cursor, batch: u64, slots: Range<u64>) -> Vec<(u32, BlockId, u32)> {
    let (mut runs, mut found) = (Vec::new(), Vec::new());
    cursor.runs(batch, slots, &mut runs);
    for run in runs {
        assert_eq!(run.slot as usize, found.len(), "slots follow each other");
        let mut places = Vec::new();
        run.window.places(run.positions, &mut places);
        found.extend(places.iter().map(|place| {
            (
                run.window.source,
                run.window.blocks[place.block as usize],
                place.row,
            )
        }));
    }
    found
}

/// The samples of all batches of an order over one source, seen by as many ranks as `world_of` says.
fn sequence(rows: &[u32], order: &PassOrder, world_of: impl Fn(u64) -> u32) -> Vec<Vec<u64>> {
    let before: Vec<u64> = rows
        .iter()
        .scan(0, |sum, rows| {
            *sum += u64::from(*rows);
            Some(*sum - u64::from(*rows))
        })
        .collect();
    let mut cursors = BTreeMap::new();
    (0..order.batch_count())
        .map(|batch| {
            let world = world_of(batch);
            let mut samples = Vec::new();
            for rank in 0..world {
                let cursor = cursors
                    .entry((world, rank))
                    .or_insert_with(|| order.cursor());
                let slots = RankShare::new(Rank::new(rank), world).slots(order.slots(batch));
                samples.extend(
                    places(cursor, batch, slots)
                        .into_iter()
                        .map(|(_, block, row)| before[block as usize] + u64::from(row)),
                );
            }
            samples
        })
        .collect()
}

fn assert_covers(samples: u64, sequence: &[Vec<u64>], global_batch: u32) {
    let (last, full) = sequence.split_last().unwrap();
    assert!(
        full.iter()
            .all(|batch| batch.len() == global_batch as usize)
    );
    assert!((1..=global_batch as usize).contains(&last.len()));
    let mut all = sequence.concat();
    all.sort_unstable();
    assert!(
        all.into_iter().eq(0..samples),
        "a sample is missing or repeated"
    );
}

/// Checks a plan against the places themselves.
fn check_plan(order: &PassOrder, start: u64, share: RankShare) -> Vec<Need> {
    let plan: Vec<_> = order.needs(start, share).collect();
    assert!(
        plan.is_sorted_by_key(|need| need.first),
        "needs are out of order"
    );
    let mut planned = BTreeMap::<_, Vec<Need>>::new();
    for need in &plan {
        assert!(need.first >= start && need.first <= need.last);
        let needs = planned.entry((need.source, need.block)).or_default();
        assert!(
            needs.last().is_none_or(|earlier| earlier.last < need.first),
            "{need:?} comes while {needs:?} is held"
        );
        needs.push(*need);
    }
    let mut cursor = order.cursor();
    for batch in start..order.batch_count() {
        for (source, block, _) in places(&mut cursor, batch, share.slots(order.slots(batch))) {
            let needs = planned
                .get(&(source, block))
                .expect("every place is planned");
            assert!(
                needs.iter().any(|n| (n.first..=n.last).contains(&batch)),
                "{needs:?} in batch {batch}"
            );
        }
    }
    plan
}

#[test]
fn any_world_size_sees_the_same_epoch_once() {
    let rows: Vec<u32> = [vec![40; 17], vec![7], vec![40, 40, 13]].concat();
    let samples = rows.iter().map(|r| u64::from(*r)).sum();
    for global_batch in [8, 96, 256, 1000] {
        let order = epoch(&rows, spec(7, 64, 3, global_batch), 2);
        let alone = sequence(&rows, &order, |_| 1);
        assert_covers(samples, &alone, global_batch);
        for world in 2..=48 {
            assert_eq!(
                sequence(&rows, &order, |_| world),
                alone,
                "batch {global_batch}, world {world}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn uneven_blocks_domains_windows_and_changing_worlds_give_one_sequence(
        rows in prop::collection::vec(0u32..60, 1..50),
        seed: u64, number in 0u64..5, domains in 1u32..80, window in 1u32..20, global_batch in 1u32..300,
        worlds in prop::collection::vec(1u32..14, 1..6),
    ) {
        let samples = rows.iter().map(|r| u64::from(*r)).sum();
        prop_assume!(samples > 0);
        let order = epoch(&rows, spec(seed, domains, window, global_batch), number);
        let alone = sequence(&rows, &order, |_| 1);
        assert_covers(samples, &alone, global_batch);
        prop_assert_eq!(sequence(&rows, &order, |b| worlds[index(b) % worlds.len()]), alone);
    }

    #[test]
    fn every_sample_is_planned_for_its_batch(
        rows in prop::collection::vec(0u32..40, 1..40),
        domains in 1u32..20, window in 1u32..6, global_batch in 1u32..200,
        world in 1u32..9, rank in 0u32..9, start in 0u64..20,
    ) {
        prop_assume!(rows.iter().any(|rows| *rows > 0));
        let share = RankShare::new(Rank::new(rank % world), world);
        check_plan(&epoch(&rows, spec(9, domains, window, global_batch), 3), start, share);
        check_plan(&PassOrder::sequential(units(&rows), global_batch, LastBatch::Keep), start, share);
    }
}

#[test]
fn a_sequential_pass_is_in_block_order_on_any_number_of_ranks() {
    let rows = [5, 1, 7, 0, 3];
    let order = PassOrder::sequential(units(&rows), 6, LastBatch::Keep);
    for world in 1..5 {
        assert!(
            sequence(&rows, &order, |_| world)
                .concat()
                .into_iter()
                .eq(0..16)
        );
    }
    let plan = check_plan(&order, 0, RankShare::new(Rank::new(0), 1));
    assert_eq!(plan.len(), 4, "each block is read once");
    assert_eq!(
        plan.iter().map(|n| n.first).collect::<Vec<_>>(),
        [0, 0, 1, 2]
    );
}

#[test]
fn domains_shrink_to_what_there_is_and_the_window_keeps_its_blocks() {
    let fit = |domains, window, batch, blocks: usize| {
        let spec = spec(0, domains, window, batch);
        let spec = spec.fit(&[units(&vec![10; blocks])]);
        (spec.domains, spec.window_blocks)
    };
    assert_eq!(fit(64, 8, 256, 1000), (64, 8));
    assert_eq!(fit(64, 8, 1000, 1000), (64, 8));
    assert_eq!(fit(64, 8, 256, 5), (5, 103));
    assert_eq!(fit(64, 8, 32, 1000), (32, 16));
    assert_eq!(fit(64, 8, 1, 1), (1, 512));
    assert_eq!(fit(64, u32::MAX, 1, 1000), (1, u32::MAX));
}

#[test]
fn seeds_and_epochs_give_other_orders_of_the_same_samples() {
    let rows = [50; 20];
    let run = |seed, number| sequence(&rows, &epoch(&rows, spec(seed, 4, 2, 32), number), |_| 1);
    let one = run(1, 0);
    assert_eq!(one, run(1, 0));
    assert_ne!(one, run(1, 1));
    assert_ne!(one, run(2, 0));
}

/// The order is a contract with every saved state: when this fails, raise `ORDER_VERSION`.
#[test]
fn order_version_2_is_what_it_was() {
    let rows = [9, 9, 9, 9, 9, 9, 9, 4];
    let order = sequence(&rows, &epoch(&rows, spec(42, 4, 2, 8), 1), |_| 1);
    let bytes: Vec<u8> = order
        .concat()
        .iter()
        .flat_map(|s| s.to_le_bytes())
        .collect();
    assert_eq!(ORDER_VERSION, 2);
    assert_eq!(order[0], [20, 26, 48, 50, 16, 14, 42, 39]);
    assert_eq!(
        xxhash_rust::xxh3::xxh3_64(&bytes),
        13_654_195_929_524_971_974
    );
}

/// The worst case: each class fills whole blocks, so nothing but the order mixes them.
#[test]
fn a_class_sorted_set_is_mixed_almost_as_well_as_by_a_global_permutation() {
    const CLASSES: u64 = 200;
    const BATCH: u32 = 128;
    let rows = [64; 1000];
    let order = sequence(&rows, &epoch(&rows, spec(5, 32, 16, BATCH), 0), |_| 1);
    let classes = |batch: &Vec<u64>| -> Vec<u64> {
        batch
            .iter()
            .map(|sample| sample * CLASSES / 64_000)
            .collect()
    };
    let batches = order.len() as f64;
    let distinct = |batch| classes(batch).into_iter().collect::<BTreeSet<_>>().len() as f64;
    let distinct = order.iter().map(distinct).sum::<f64>() / batches;
    let mean = |batch| classes(batch).iter().sum::<u64>() as f64 / f64::from(BATCH);
    let middle = (CLASSES - 1) as f64 / 2.0;
    let variance = order
        .iter()
        .map(|batch| (mean(batch) - middle).powi(2))
        .sum::<f64>()
        / batches;
    let independent = (CLASSES * CLASSES - 1) as f64 / 12.0 / f64::from(BATCH);
    // A global permutation has 200 * (1 - (1 - 1/200)^128) = 94.7 classes in a batch and a spread of 1; samples
    // in shard order have 2 classes and a spread of 11.
    assert!(distinct >= 88.0, "{distinct} classes in a batch");
    let spread = (variance / independent).sqrt();
    assert!(
        spread <= 1.15,
        "means of batches spread {spread} times as far as independent draws"
    );
}

/// Ten thousand million samples in a million shards of one block each.
#[test]
fn fault_36_a_resume_in_1e10_samples_takes_few_bytes_and_looks_at_no_sample_before() {
    const BLOCKS: u32 = 1_000_000;
    let spec = spec(1, 64, 8, 256);
    let orders = Orders::single(spec, units(&vec![10_000; BLOCKS as usize])).unwrap();
    let order = orders.epoch(5, None).unwrap();
    let batches = order.batch_count();
    assert_eq!(batches, 10_000_000_000 / 256);
    let mut cursor = order.cursor();
    let first = places(&mut cursor, batches / 2, 0..256);
    assert_eq!(first, places(&mut order.cursor(), batches / 2, 0..256));
    let share = RankShare::new(Rank::new(6), 7);
    let needs: Vec<_> = order.needs(batches / 2, share).take(200).collect();
    assert!(needs.iter().all(|need| need.first >= batches / 2));
    let source = order.source(0);
    let bytes = source.blocks().bytes() + source.deal(5).bytes();
    assert!(bytes < 8 * BLOCKS as usize, "{bytes} bytes");
    let windows = order.windows().len();
    assert!(windows <= 2 * 64, "{windows} windows of 8 blocks");
}

#[test]
fn ranks_that_divide_the_domains_read_each_block_once_but_for_those_that_two_share() {
    let rows = [20; 64];
    let order = epoch(&rows, spec(9, 8, 2, 16), 3);
    for world in [1, 2, 4, 8] {
        let mut all = BTreeSet::new();
        let mut reads = 0;
        for rank in 0..world {
            let plan = check_plan(&order, 0, RankShare::new(Rank::new(rank), world));
            reads += plan.len();
            all.extend(plan.iter().map(|need| need.block));
        }
        assert_eq!(all.len(), 64);
        assert_eq!(
            reads, 64,
            "world {world}: domains of 8 blocks each share none"
        );
    }
}

#[test]
fn a_resumed_plan_skips_what_is_over() {
    let rows = [20; 64];
    let order = epoch(&rows, spec(9, 8, 2, 16), 3);
    let share = RankShare::new(Rank::new(0), 1);
    let rest = check_plan(&order, 70, share);
    assert!(
        rest.len() < 20,
        "{} blocks for the last 10 of 80 batches",
        rest.len()
    );
    assert_eq!(check_plan(&order, 80, share), []);
}
