//! The promise of elastic resumption, on a grid: every global batch of {96, 256, 1000} and every
//! number of ranks from 1 to 48, with runs that are killed at random steps and resume with another
//! number. All give one sequence, in which every epoch has every sample once. For rows, packed
//! documents, balanced classes, and mixtures of three sources of each.

use super::{units::Documents, *};
use crate::order::{balance::Balance, packing::PackedBins};

const EPOCHS: u64 = 2;

/// Part of a slot: source, block, row, first token and tokens. Rows have 0 for both; bins end with [`END`].
pub(super) type Part = [u32; 5];

const END: Part = [u32::MAX; 5];

/// Appends what a slot holds for every slot of a share.
pub(super) fn slots(
    order: &PassOrder,
    cursor: &mut Cursor,
    batch: u64,
    share: RankShare,
    parts: &mut Vec<Part>,
) {
    let mut runs = Vec::new();
    cursor.runs(batch, share.slots(order.slots(batch)), &mut runs);
    for SlotRun {
        window, positions, ..
    } in runs
    {
        let block = |number: u32| window.blocks[number as usize];
        if window.has_bins() {
            for position in positions {
                let pieces = window.bin(position).iter();
                parts
                    .extend(pieces.map(|p| [window.source, block(p.block), p.row, p.start, p.len]));
                parts.push(END);
            }
        } else {
            let mut places = Vec::new();
            window.places(positions, &mut places);
            let places = places.iter();
            parts.extend(places.map(|p| [window.source, block(p.block), p.row, 0, 0]));
        }
    }
}

/// Start of a run, which every process of it makes for itself.
struct Start {
    orders: Orders,
    phase: Option<Phase>,
}

impl Start {
    fn single(spec: OrderSpec, units: Units) -> Self {
        Self {
            orders: Orders::single(spec, units).unwrap(),
            phase: None,
        }
    }

    /// Weights by size: an epoch has each sample once.
    fn mixed(spec: OrderSpec, units: Vec<Units>) -> Self {
        let config = MixtureConfig {
            sources: vec![SourceWeight::default(); units.len()],
            ..MixtureConfig::default()
        };
        let (orders, phase) = Orders::mixed(spec, units, &config).unwrap();
        Self {
            orders,
            phase: Some(phase),
        }
    }

    /// Batches `from..` of an epoch on `world` ranks, up to `most`.
    fn live(&self, epoch: u64, from: u64, world: u32, most: u64) -> Vec<Vec<Part>> {
        let order = self.orders.epoch(epoch, self.phase.as_ref()).unwrap();
        let mut cursors: Vec<_> = (0..world).map(|_| order.cursor()).collect();
        (from..order.batch_count().min(from + most))
            .map(|batch| {
                let mut parts = Vec::new();
                for (rank, cursor) in (0..world).zip(&mut cursors) {
                    let share = RankShare::new(Rank::new(rank), world);
                    slots(&order, cursor, batch, share, &mut parts);
                }
                parts
            })
            .collect()
    }
}

/// Checks a kind of sample on the whole grid.
fn check(make: impl Fn(OrderSpec) -> Start, covers: impl Fn(Vec<Part>)) {
    let mut random = 1_u64;
    let mut draw = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    for global_batch in [96, 256, 1000] {
        let spec = spec(7, 8, 2, global_batch);
        let alone = make(spec);
        let alone: Vec<_> = (0..EPOCHS)
            .map(|epoch| alone.live(epoch, 0, 1, u64::MAX))
            .collect();
        for epoch in &alone {
            covers(epoch.concat());
        }
        assert_ne!(alone[0], alone[1], "each epoch has its own order");
        for world in 1..=48 {
            let (mut lives, mut start) = (0, make(spec));
            for (epoch, alone) in (0..EPOCHS).zip(&alone) {
                let mut joined = Vec::new();
                while joined.len() < alone.len() {
                    // Every second life is of another number of ranks.
                    let ranks = match lives % 2 {
                        0 => world,
                        _ => 1 + u32::try_from(draw(48)).unwrap(),
                    };
                    let most = 1 + draw(alone.len() as u64 / 2 + 2);
                    joined.extend(start.live(epoch, joined.len() as u64, ranks, most));
                    (lives, start) = (lives + 1, make(spec));
                }
                assert!(
                    joined == *alone,
                    "batch {global_batch}, {world} ranks, epoch {epoch}"
                );
            }
        }
    }
}

/// Uneven blocks, some of them empty: 1,033, 601 and 407 samples.
pub(super) fn shapes() -> [Vec<u32>; 3] {
    [
        [vec![40; 24], vec![0, 13, 60]].concat(),
        (0..40).map(|b| b * 7 % 31).collect(),
        vec![37; 11],
    ]
}

/// Every row of every source is there once.
fn covers_rows(shapes: &[Vec<u32>]) -> impl Fn(Vec<Part>) {
    let rows = (0..).zip(shapes).flat_map(|(source, blocks)| {
        let blocks = (0..).zip(blocks);
        blocks.flat_map(move |(block, rows)| (0..*rows).map(move |row| [source, block, row, 0, 0]))
    });
    let rows: Vec<Part> = rows.collect();
    move |mut parts| {
        parts.sort_unstable();
        assert!(parts == rows, "a row is missing or repeated");
    }
}

/// Lengths of documents, some of them empty and some longer than a bin, block after block.
fn documents(source: u32) -> Vec<Vec<u32>> {
    let length = |block: u32, row: u32| (block * 131 + row * row * 29 + source * 7) % 83;
    (0..18)
        .map(|block| (0..55 - source * 9).map(|row| length(block, row)).collect())
        .collect()
}

pub(super) fn packed(source: u32) -> Units {
    let documents = documents(source);
    let rows = documents.iter().map(|d| u32::try_from(d.len()).unwrap());
    let extents = (0..18).step_by(2).chain([18]).collect();
    let blocks = Blocks::new(rows.collect()).in_extents(Some(extents));
    Units::Bins(Arc::new(PackedBins::new(
        &blocks,
        Arc::new(Documents(documents)),
        (40, 0),
    )))
}

/// Every token of every document of so many sources is there once, and no bin holds more than it has room for.
fn covers_tokens(sources: u32) -> impl Fn(Vec<Part>) {
    move |mut parts| {
        let bins = parts.split(|part| *part == END);
        for bin in bins.take_while(|bin| !bin.is_empty()) {
            assert!(bin.iter().map(|part| part[4]).sum::<u32>() <= 40);
        }
        parts.retain(|part| *part != END);
        parts.sort_unstable();
        let mut parts = parts.into_iter();
        for source in 0..sources {
            for (block, lengths) in (0..).zip(documents(source)) {
                for (row, length) in (0..).zip(lengths) {
                    let mut start = 0;
                    while start < length {
                        let part = parts.next().unwrap();
                        assert_eq!(part[..4], [source, block, row, start]);
                        start += part[4];
                    }
                    assert_eq!(start, length, "tokens are lost or doubled");
                }
            }
        }
        assert_eq!(parts.next(), None);
    }
}

#[test]
fn rows() {
    let shapes = [shapes().concat()];
    let make = |spec| Start::single(spec, units(&shapes[0]));
    check(make, covers_rows(&shapes));
}

#[test]
fn three_sources_of_rows() {
    let shapes = shapes();
    let make = |spec| Start::mixed(spec, shapes.iter().map(|rows| units(rows)).collect());
    check(make, covers_rows(&shapes));
}

#[test]
fn packed_documents() {
    check(|spec| Start::single(spec, packed(0)), covers_tokens(1));
}

#[test]
fn three_sources_of_packed_documents() {
    let make = |spec| Start::mixed(spec, (0..3).map(packed).collect());
    check(make, covers_tokens(3));
}

/// Rows of three classes in each block: the second is rare, and the third is not everywhere.
fn class_counts(source: u32) -> Vec<Vec<(u32, u32)>> {
    (0..24)
        .map(|block| {
            vec![
                (0, 18 + source),
                (1, block % 2),
                (2, (block + source) * 7 % 13),
            ]
        })
        .collect()
}

fn balanced(source: u32) -> Units {
    let balance = Balance::new(class_counts(source), &ClassBalance::Equal, None);
    Units::Classes(Arc::new(balance.unwrap()))
}

/// Every class of so many sources is there equally often, and so are its rows, to one.
fn covers_classes(sources: u32) -> impl Fn(Vec<Part>) {
    move |parts| {
        let mut times = BTreeMap::<Part, u32>::new();
        for part in parts {
            *times.entry(part).or_default() += 1;
        }
        for source in 0..sources {
            let mut of_classes = vec![Vec::new(); 3];
            for (block, counts) in (0..).zip(class_counts(source)) {
                let classes = counts
                    .iter()
                    .flat_map(|(c, n)| (0..*n).map(|_| *c as usize));
                for (row, class) in (0..).zip(classes) {
                    let times = times.remove(&[source, block, row, 0, 0]);
                    of_classes[class].push(times.unwrap_or(0));
                }
            }
            let rows: usize = of_classes.iter().map(Vec::len).sum();
            for times in of_classes {
                assert_eq!(times.iter().sum::<u32>() as usize, rows.div_ceil(3));
                assert!(times.iter().max().unwrap() - times.iter().min().unwrap() <= 1);
            }
        }
        assert!(times.is_empty(), "there are rows of no source");
    }
}

#[test]
fn balanced_classes() {
    check(|spec| Start::single(spec, balanced(0)), covers_classes(1));
}

#[test]
fn three_sources_of_balanced_classes() {
    let make = |spec| Start::mixed(spec, (0..3).map(balanced).collect());
    check(make, covers_classes(3));
}
