//! Samples that are no rows: windows of tokens, bins, rows of balanced classes; and batches that are padded.

use super::*;
use crate::order::{
    balance::{Balance, ClassBalance},
    packing::{Lengths, PackedBins},
    tokens::TokenWindows,
};

/// Runs of all batches of an order, one rank after another.
fn runs(order: &PassOrder, world_of: impl Fn(u64) -> u32) -> Vec<SlotRun> {
    let mut cursor = order.cursor();
    let mut runs = Vec::new();
    for batch in 0..order.batch_count() {
        for rank in 0..world_of(batch) {
            let share = RankShare::new(Rank::new(rank), world_of(batch));
            cursor.runs(batch, share.slots(order.slots(batch)), &mut runs);
        }
    }
    runs
}

/// Checks that a plan holds all blocks of every window that is in use.
fn check_blocks(order: &PassOrder, share: RankShare) {
    let mut needs = BTreeMap::<_, Vec<Need>>::new();
    for need in order.needs(0, share) {
        let of_block = needs.entry((need.source, need.block)).or_default();
        assert!(
            of_block
                .last()
                .is_none_or(|earlier| earlier.last < need.first)
        );
        of_block.push(need);
    }
    let mut cursor = order.cursor();
    for batch in 0..order.batch_count() {
        let mut runs = Vec::new();
        cursor.runs(batch, share.slots(order.slots(batch)), &mut runs);
        for block in runs.iter().flat_map(|run| &run.window.blocks) {
            let needs = &needs[&(0, *block)];
            assert!(needs.iter().any(|n| (n.first..=n.last).contains(&batch)));
        }
    }
}

fn orders(spec: OrderSpec, units: Units) -> Orders {
    Orders::single(spec, units).unwrap()
}

#[derive(Debug)]
pub(super) struct Documents(pub(super) Vec<Vec<u32>>);

impl Lengths for Documents {
    fn append(&self, block: BlockId, lengths: &mut Vec<u32>) {
        lengths.extend_from_slice(&self.0[block as usize]);
    }
}

fn packing(documents: &[Vec<u32>], extents: Option<Vec<BlockId>>, bin_tokens: u32) -> Units {
    let rows = documents
        .iter()
        .map(|d| u32::try_from(d.len()).unwrap())
        .collect();
    let blocks = Blocks::new(rows).in_extents(extents);
    let lengths = Arc::new(Documents(documents.to_vec()));
    Units::Bins(Arc::new(PackedBins::new(&blocks, lengths, (bin_tokens, 0))))
}

/// The pieces of each bin as (block, row, start, length).
fn bins(order: &PassOrder, world_of: impl Fn(u64) -> u32) -> Vec<Vec<(BlockId, u32, u32, u32)>> {
    let mut bins = Vec::new();
    for run in runs(order, world_of) {
        for position in run.positions {
            let pieces = run.window.bin(position).iter();
            bins.push(
                pieces
                    .map(|p| (run.window.blocks[p.block as usize], p.row, p.start, p.len))
                    .collect(),
            );
        }
    }
    bins
}

/// Every token of every document is in one place, and no bin holds more than it has room for.
fn assert_packed(documents: &[Vec<u32>], bins: &[Vec<(BlockId, u32, u32, u32)>], bin_tokens: u32) {
    for bin in bins {
        assert!(!bin.is_empty() && bin.iter().map(|p| p.3).sum::<u32>() <= bin_tokens);
    }
    let mut pieces = bins.concat();
    pieces.sort_unstable();
    let mut expected = pieces.iter();
    for (block, rows) in (0..).zip(documents) {
        for (row, length) in (0..).zip(rows) {
            let mut start = 0;
            while start < *length {
                let piece = expected.next().unwrap();
                assert_eq!((piece.0, piece.1, piece.2), (block, row, start));
                start += piece.3;
            }
            assert_eq!(start, *length, "tokens are lost or doubled");
        }
    }
    assert_eq!(expected.next(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    #[test]
    fn packing_loses_and_doubles_no_token_on_any_number_of_ranks(
        documents in prop::collection::vec(prop::collection::vec(0u32..300, 0..30), 1..20),
        bin_tokens in 1u32..200, together in 1u32..5, domains in 1u32..9, window in 1u32..6, global_batch in 1u32..50,
        worlds in prop::collection::vec(1u32..14, 1..6), number in 0u64..3,
    ) {
        prop_assume!(documents.iter().flatten().any(|length| *length > 0));
        let blocks = u32::try_from(documents.len()).unwrap();
        let extents = (0..blocks).step_by(together as usize).chain([blocks]).collect();
        let orders = orders(spec(4, domains, window, global_batch), packing(&documents, Some(extents), bin_tokens));
        let order = orders.epoch(number, None).unwrap();
        let alone = bins(&order, |_| 1);
        assert_packed(&documents, &alone, bin_tokens);
        prop_assert_eq!(bins(&order, |batch| worlds[index(batch) % worlds.len()]), alone);
        check_blocks(&order, RankShare::new(Rank::new(worlds[0] - 1), worlds[0]));
    }

    #[test]
    fn windows_of_tokens_cover_the_stream_on_any_number_of_ranks(
        tokens in prop::collection::vec(0u32..90, 1..30), length in 1u32..120,
        domains in 1u32..9, window in 1u32..6, global_batch in 1u32..50,
        worlds in prop::collection::vec(1u32..14, 1..6),
    ) {
        let total = tokens.iter().map(|t| u64::from(*t)).sum::<u64>();
        prop_assume!(total >= 2);
        let before: Vec<u64> = tokens.iter().scan(0, |sum, t| {
            *sum += u64::from(*t);
            Some(*sum - u64::from(*t))
        }).collect();
        let windows = TokenWindows::new(tokens.iter().copied(), None, length);
        let orders = orders(spec(4, domains, window, global_batch), Units::Tokens(Arc::new(windows)));
        let order = orders.epoch(1, None).unwrap();
        let mut starts = Vec::new();
        for run in runs(&order, |batch| worlds[index(batch) % worlds.len()]) {
            let mut places = Vec::new();
            run.window.token_places(run.positions, &mut places);
            for place in places {
                let block = run.window.blocks[place.block as usize];
                prop_assert!(place.start < tokens[block as usize]);
                let start = before[block as usize] + u64::from(place.start);
                prop_assert_eq!(start % u64::from(length), 0);
                prop_assert_eq!(u64::from(place.tokens), (u64::from(length) + 1).min(total - start));
                // The window can be read through the blocks that follow.
                let (mut at, mut found) = (place.block, tokens[block as usize] - place.start);
                while found < place.tokens {
                    let next = run.window.next_block(at).expect("the halo is there");
                    prop_assert_eq!(run.window.blocks[next as usize], run.window.blocks[at as usize] + 1);
                    found += tokens[run.window.blocks[next as usize] as usize];
                    at = next;
                }
                starts.push(start);
            }
        }
        starts.sort_unstable();
        prop_assert!(starts.into_iter().eq((0..total - 1).step_by(length as usize)));
        check_blocks(&order, RankShare::new(Rank::new(worlds[0] - 1), worlds[0]));
    }

    #[test]
    fn classes_have_their_shares_of_every_epoch_and_rows_theirs_of_all(
        counts in prop::collection::vec(prop::collection::vec(0u32..30, 4), 1..30),
        weights in prop::option::of(prop::collection::vec(prop::sample::select(vec![0.0, 0.1, 1.0, 3.0]), 4)),
        domains in 1u32..9, window in 1u32..6, global_batch in 1u32..50,
        worlds in prop::collection::vec(1u32..14, 1..6), first in 0u64..1000,
    ) {
        let rows = |class: usize| counts.iter().map(|c| u64::from(c[class])).sum::<u64>();
        let weight = |class: usize| match &weights {
            _ if rows(class) == 0 => 0.0,
            None => 1.0,
            Some(weights) => weights[class],
        };
        let weight_sum: f64 = (0..4).map(weight).sum();
        prop_assume!(weight_sum > 0.0);
        let all = (0..4).map(rows).sum::<u64>() as f64;
        let by_block = counts.iter().map(|c| (0..).zip(c.iter().copied()).collect::<Vec<_>>());
        let balance = match &weights {
            None => ClassBalance::Equal,
            Some(weights) => ClassBalance::Weighted(weights.clone()),
        };
        let balance = Balance::new(by_block, &balance, None).unwrap();
        let orders = orders(spec(4, domains, window, global_batch), Units::Classes(Arc::new(balance)));
        let mut times = BTreeMap::<_, u64>::new();
        let mut agains = BTreeSet::new();
        for number in first..first + 6 {
            let order = orders.epoch(number, None).unwrap();
            let mut classes = [0u32; 4];
            for run in runs(&order, |batch| worlds[index(batch) % worlds.len()]) {
                let mut places = Vec::new();
                run.window.places(run.positions.clone(), &mut places);
                for (position, place) in run.positions.zip(places) {
                    let block = run.window.blocks[place.block as usize] as usize;
                    let (class, nth) = class_of(&counts[block], place.row);
                    classes[class] += 1;
                    *times.entry((class, block, nth)).or_default() += 1;
                    let again = run.window.again(position);
                    prop_assert!(agains.insert((number, class, block, nth, again)), "two of one row are alike");
                }
            }
            for (class, samples) in classes.into_iter().enumerate() {
                let exact = all * weight(class) / weight_sum;
                prop_assert!((f64::from(samples) - exact) > -1e-3 && (f64::from(samples) - exact) < 1.001, "{} of {}", samples, exact);
            }
        }
        for class in 0..4 {
            let of_rows: Vec<u64> = (0..counts.len())
                .flat_map(|block| (0..counts[block][class]).map(move |nth| (class, block, nth)))
                .map(|row| times.get(&row).copied().unwrap_or(0))
                .collect();
            let (least, most) = (of_rows.iter().min(), of_rows.iter().max());
            prop_assert!(least.zip(most).is_none_or(|(l, m)| m - l <= 1), "{:?}", of_rows);
        }
        check_blocks(&orders.epoch(first, None).unwrap(), RankShare::new(Rank::new(worlds[0] - 1), worlds[0]));
    }
}

/// The class of a row that is counted by class in a block with so many rows of each, and its number in the class.
fn class_of(counts: &[u32], mut rank: u32) -> (usize, u32) {
    for (class, count) in counts.iter().enumerate() {
        if rank < *count {
            return (class, rank);
        }
        rank -= count;
    }
    panic!("the block has no such row");
}

#[test]
fn weights_of_classes_that_cannot_be_used_are_refused() {
    let check = |counts: &[(u32, u32)], weights: &[f64], message: &str| {
        let weights = ClassBalance::Weighted(weights.to_vec());
        let refused = Balance::new([counts.to_vec()], &weights, None).unwrap_err();
        assert_eq!(refused, message);
    };
    check(
        &[(0, 5), (2, 5)],
        &[1.0, 1.0],
        "it has `2` weights and there are rows of class `2`, give each class one",
    );
    check(
        &[(1, 5)],
        &[1.0, 0.0],
        "no class with rows has a weight, give at least one",
    );
    check(
        &[(0, 5)],
        &[-1.0],
        "weight `-1` is not a number of at least 0",
    );
    check(
        &[(0, u32::MAX), (1, 1)],
        &[1.0, 1e9],
        "class `1` has too few rows to come so often, give it a smaller weight",
    );
}

/// Part of the order's definition: when this fails, raise `ORDER_VERSION`.
#[test]
fn balanced_orders_of_version_2_are_what_they_were() {
    let counts = (0..12).map(|block| vec![(0, 9), (1, u32::from(block % 4 == 0))]);
    let balance = Balance::new(counts, &ClassBalance::Equal, None).unwrap();
    let orders = orders(spec(42, 4, 2, 8), Units::Classes(Arc::new(balance)));
    let mut parts = Vec::new();
    for run in runs(&orders.epoch(3, None).unwrap(), |_| 1) {
        let mut places = Vec::new();
        run.window.places(run.positions, &mut places);
        parts.extend(
            places
                .iter()
                .map(|p| (run.window.blocks[p.block as usize], p.row)),
        );
    }
    assert_eq!(parts.len(), 2 * 56);
    let bytes: Vec<u8> = parts
        .iter()
        .flat_map(|(b, r)| [b.to_le_bytes(), r.to_le_bytes()].concat())
        .collect();
    assert_eq!(
        xxhash_rust::xxh3::xxh3_64(&bytes),
        18_201_525_670_708_567_976
    );
}

#[test]
fn best_fit_decreasing_fills_bins() {
    let documents = [vec![6, 4, 5, 5, 3, 7, 25], vec![10, 1]];
    let orders = orders(spec(0, 1, 1, 4), packing(&documents, Some(vec![0, 2]), 10));
    let mut bins = bins(&orders.epoch(0, None).unwrap(), |_| 1);
    bins.sort_unstable();
    let lengths: Vec<Vec<u32>> = bins
        .iter()
        .map(|bin| bin.iter().map(|piece| piece.3).collect())
        .collect();
    // 25 is 10 + 10 + 5. The rest of 1 goes beside 5, the first that has room for it.
    assert_eq!(
        lengths,
        [
            vec![6, 4],
            vec![5, 5],
            vec![7, 3],
            vec![10],
            vec![10],
            vec![5, 1],
            vec![10]
        ]
    );
}

#[test]
fn packing_wastes_little_of_real_lengths() {
    // Lengths as of web pages: most are short, few are many thousand tokens.
    let mut key = 1u64;
    let mut length = || {
        key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let uniform = (key >> 40) as f64 / 16_777_216.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is below 50,000"
        )]
        let tokens = (60.0 / (1.0 - uniform * 0.999)) as u32;
        tokens
    };
    let documents: Vec<Vec<u32>> = (0..8)
        .map(|_| (0..2000).map(|_| length()).collect())
        .collect();
    let tokens: u64 = documents.iter().flatten().map(|l| u64::from(*l)).sum();
    let Units::Bins(packing) = packing(&documents, Some(vec![0, 4, 8]), 2048) else {
        unreachable!()
    };
    let room = packing.blocks().samples() * 2048;
    assert!(
        tokens as f64 > 0.99 * room as f64,
        "{tokens} tokens in room for {room}"
    );
}

#[test]
fn a_padded_batch_repeats_its_own_slots_on_any_number_of_ranks() {
    let rows = [10; 7];
    let spec = OrderSpec {
        last_batch: LastBatch::Pad,
        ..spec(5, 4, 2, 32)
    };
    let order = epoch(&rows, spec, 0);
    assert_eq!(
        (
            order.batch_count(),
            order.rows(2),
            order.slots(2),
            order.slots(0)
        ),
        (3, 6, 32, 32)
    );
    let alone = sequence(&rows, &order, |_| 1);
    let kept = sequence(
        &rows,
        &epoch(
            &rows,
            OrderSpec {
                last_batch: LastBatch::Keep,
                ..spec
            },
            0,
        ),
        |_| 1,
    );
    assert_eq!(alone[..2], kept[..2]);
    assert_eq!(
        alone[2],
        kept[2].iter().copied().cycle().take(32).collect::<Vec<_>>()
    );
    for world in [2, 3, 7, 40] {
        assert_eq!(sequence(&rows, &order, |_| world), alone);
        for rank in 0..world {
            check_plan(&order, 0, RankShare::new(Rank::new(rank), world));
        }
    }
}

#[test]
fn a_dropped_batch_is_another_in_each_epoch_and_an_epoch_of_none_is_refused() {
    let rows = [10; 7];
    let spec = OrderSpec {
        last_batch: LastBatch::Drop,
        ..spec(5, 4, 2, 32)
    };
    let samples = |number| {
        let mut samples = sequence(&rows, &epoch(&rows, spec, number), |_| 1).concat();
        samples.sort_unstable();
        assert_eq!(samples.len(), 64);
        samples
    };
    assert_ne!(samples(0), samples(1));
    let error = Orders::single(spec, units(&[31])).unwrap_err();
    assert_eq!(
        error,
        "an epoch has `31` samples, less than one batch of `32`, and `last_batch` is `drop`; use a smaller batch or \
         keep the last"
    );
}
