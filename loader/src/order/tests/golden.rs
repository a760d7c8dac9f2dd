//! Orders as they were: each is a contract with every saved state. When one of these fails, raise `ORDER_VERSION`.

use super::{
    grid::{packed, shapes, slots},
    *,
};
use crate::order::tokens::TokenWindows;

/// Hash of all slots of some orders.
fn hash(orders: &[PassOrder]) -> u64 {
    let mut parts = Vec::new();
    for order in orders {
        let mut cursor = order.cursor();
        for batch in 0..order.batch_count() {
            slots(
                order,
                &mut cursor,
                batch,
                RankShare::new(Rank::new(0), 1),
                &mut parts,
            );
        }
    }
    let bytes: Vec<u8> = parts
        .iter()
        .flatten()
        .flat_map(|n| n.to_le_bytes())
        .collect();
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

/// Several windows in each domain, the last one short, and blocks that two domains share.
const SPEC: OrderSpec = OrderSpec {
    seed: 42,
    domains: 5,
    window_blocks: 3,
    global_batch: 32,
    last_batch: LastBatch::Keep,
};

fn epochs(units: Units) -> [PassOrder; 2] {
    let orders = Orders::single(SPEC, units).unwrap();
    [0, 3].map(|epoch| orders.epoch(epoch, None).unwrap())
}

#[test]
fn uneven_blocks_of_version_2() {
    let rows = shapes().concat();
    assert_eq!(hash(&epochs(units(&rows))), 14_134_815_189_691_517_916);
    let blocks =
        Blocks::new(rows).in_extents(Some([vec![0, 5, 6], (9..79).step_by(3).collect()].concat()));
    assert_eq!(
        hash(&epochs(Units::Rows(Arc::new(blocks)))),
        14_949_818_871_635_010_322
    );
}

#[test]
fn bins_of_version_2() {
    assert_eq!(hash(&epochs(packed(0))), 5_430_183_419_650_802_518);
}

#[test]
fn windows_of_tokens_of_version_2() {
    let windows = TokenWindows::new((0..60).map(|block| block * 31 % 97), None, 7);
    let mut places = Vec::new();
    for order in epochs(Units::Tokens(Arc::new(windows))) {
        let mut runs = Vec::new();
        let mut cursor = order.cursor();
        for batch in 0..order.batch_count() {
            cursor.runs(batch, 0..order.slots(batch), &mut runs);
        }
        for run in runs {
            let mut found = Vec::new();
            run.window.token_places(run.positions, &mut found);
            let block = |place: &TokenPlace| run.window.blocks[place.block as usize];
            places.extend(found.iter().flat_map(|p| [block(p), p.start, p.tokens]));
        }
    }
    let bytes: Vec<u8> = places.iter().flat_map(|n| n.to_le_bytes()).collect();
    assert_eq!(xxhash_rust::xxh3::xxh3_64(&bytes), 339_773_445_605_870_908);
}

#[test]
fn mixtures_of_version_2() {
    let source = |weight, end| SourceWeight {
        weight: Some(weight),
        end,
    };
    for (stratified, expected) in [
        (false, 7_158_943_279_736_769_185),
        (true, 9_956_120_053_691_094_494),
    ] {
        let config = MixtureConfig {
            sources: vec![
                source(0.5, SourceEnd::Repeat),
                source(0.3, SourceEnd::Stop),
                source(0.2, SourceEnd::Repeat),
            ],
            stratified,
            samples_per_epoch: Some(9000),
        };
        let sources = shapes().iter().map(|rows| units(rows)).collect();
        let (orders, phase) = Orders::mixed(SPEC, sources, &config).unwrap();
        let changed = orders.change(&phase, 1, 40, vec![1, 1, 3]).unwrap();
        let epoch = |epoch, phase| orders.epoch(epoch, Some(phase)).unwrap();
        let cells = [epoch(0, &phase), epoch(1, &phase), epoch(3, &changed)];
        assert_eq!(hash(&cells), expected, "stratified: {stratified}");
    }
}
