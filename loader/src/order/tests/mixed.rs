//! Passes over several sources.

use super::*;

const SIZES: [&[u32]; 3] = [&[30; 40], &[7, 0, 9, 20, 1], &[100; 6]];

fn config(weights: [f64; 3], stop: [bool; 3]) -> MixtureConfig {
    let sources = weights.iter().zip(stop).map(|(weight, stop)| SourceWeight {
        weight: Some(*weight),
        end: if stop {
            SourceEnd::Stop
        } else {
            SourceEnd::Repeat
        },
    });
    MixtureConfig {
        sources: sources.collect(),
        ..MixtureConfig::default()
    }
}

fn orders(spec: OrderSpec, config: &MixtureConfig) -> (Orders, Phase) {
    let sources = SIZES.iter().map(|rows| units(rows)).collect();
    Orders::mixed(spec, sources, config).unwrap()
}

type Sample = (u32, BlockId, u32);

/// The samples of batches `from..` of an order, seen by as many ranks as `world_of` says.
fn batches(order: &PassOrder, from: u64, world_of: impl Fn(u64) -> u32) -> Vec<Vec<Sample>> {
    let mut cursor = order.cursor();
    (from..order.batch_count())
        .map(|batch| {
            let world = world_of(batch);
            (0..world)
                .flat_map(|rank| {
                    let slots = RankShare::new(Rank::new(rank), world).slots(order.slots(batch));
                    places(&mut cursor, batch, slots)
                })
                .collect()
        })
        .collect()
}

/// Counts each sample of a source in some batches.
fn times(batches: &[Vec<Sample>], source: u32) -> Vec<u64> {
    let mut times = BTreeMap::new();
    for sample in batches.iter().flatten().filter(|s| s.0 == source) {
        *times.entry((sample.1, sample.2)).or_default() += 1;
    }
    let rows = SIZES[source as usize].iter().zip(0..);
    rows.flat_map(|(rows, block)| (0..*rows).map(move |row| (block, row)))
        .map(|place| times.get(&place).copied().unwrap_or(0))
        .collect()
}

#[test]
fn any_world_size_sees_the_same_mixture() {
    for global_batch in [96, 256, 1000] {
        let config = MixtureConfig {
            samples_per_epoch: Some(5000),
            ..config([0.5, 0.3, 0.2], [false; 3])
        };
        let (orders, phase) = orders(spec(3, 8, 2, global_batch), &config);
        let order = orders.epoch(1, Some(&phase)).unwrap();
        let alone = batches(&order, 0, |_| 1);
        assert_eq!(alone.concat().len(), 5000);
        for world in 2..=48 {
            assert_eq!(
                batches(&order, 0, |_| world),
                alone,
                "batch {global_batch}, world {world}"
            );
        }
        assert_eq!(
            batches(&order, 0, |b| 1 + u32::try_from(b * 7 % 13).unwrap()),
            alone
        );
        assert_eq!(batches(&order, 3, |_| 5), alone[3..]);
    }
}

#[test]
fn sources_that_repeat_go_on_where_they_were_and_come_in_another_order_each_time() {
    let config = MixtureConfig {
        samples_per_epoch: Some(1800),
        ..config([0.4, 0.2, 0.4], [false; 3])
    };
    let (orders, phase) = orders(spec(3, 8, 2, 100), &config);
    let epochs: Vec<_> = (0..5)
        .flat_map(|e| batches(&orders.epoch(e, Some(&phase)).unwrap(), 0, |_| 2))
        .collect();
    for source in 0..3 {
        let times = times(&epochs, source);
        let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        assert!(
            most - least <= 1,
            "source {source}: {least} to {most} times"
        );
        assert!(*most >= 3);
    }
    // The second source has 37 samples: its first and second time are two permutations.
    let second: Vec<_> = epochs.iter().flatten().filter(|s| s.0 == 1).collect();
    let sorted = |part: &[&Sample]| {
        let mut part: Vec<_> = part.iter().map(|s| **s).collect();
        part.sort_unstable();
        part
    };
    assert_ne!(second[..37], second[37..74]);
    // Slots of a batch are sorted by domain, so only complete batches show where a round ends.
    assert_eq!(sorted(&second).len(), second.len());
}

#[test]
fn an_epoch_of_sources_that_stop_has_each_of_their_samples_once() {
    for global_batch in [10, 96, 256] {
        let config = config([0.6, 0.3, 0.1], [true, false, true]);
        let (orders, phase) = orders(spec(3, 8, 2, global_batch), &config);
        for epoch in 0..3 {
            let order = orders.epoch(epoch, Some(&phase)).unwrap();
            let all = batches(&order, 0, |_| 3);
            assert!(times(&all, 0).iter().all(|times| *times == 1));
            assert!(times(&all, 2).iter().all(|times| *times == 1));
            assert!(times(&all, 1).iter().all(|times| *times >= 2));
        }
    }
}

#[test]
fn by_size_an_epoch_has_each_sample_once() {
    let config = MixtureConfig {
        sources: vec![SourceWeight::default(); 3],
        ..MixtureConfig::default()
    };
    let (orders, phase) = orders(spec(3, 8, 2, 64), &config);
    for epoch in [0, 1, 7] {
        let all = batches(&orders.epoch(epoch, Some(&phase)).unwrap(), 0, |_| 1);
        for source in 0..3 {
            assert!(times(&all, source).iter().all(|times| *times == 1));
        }
    }
}

#[test]
fn fault_35_weights_changed_on_resume_hold_exactly_from_there_on() {
    let spec = spec(3, 8, 2, 100);
    let config = |weights| MixtureConfig {
        samples_per_epoch: Some(6000),
        ..config(weights, [false; 3])
    };
    let (orders, phase) = orders(spec, &config([0.5, 0.3, 0.2]));
    let parts = config([0.1, 0.0, 0.9]).parts(&[1200, 37, 600]).unwrap();
    let changed = orders.change(&phase, 1, 25, parts).unwrap();
    let epoch = |epoch, phase| orders.epoch(epoch, Some(phase)).unwrap();
    let mut all = batches(&epoch(0, &phase), 0, |_| 1);
    all.extend(batches(&epoch(1, &phase), 0, |_| 1).into_iter().take(25));
    let before: Vec<u64> = (0..3).map(|s| times(&all, s).iter().sum()).collect();
    let later = [
        batches(&epoch(1, &changed), 25, |_| 4),
        batches(&epoch(2, &changed), 0, |_| 3),
    ];
    assert_eq!([later[0].len(), later[1].len()], [35, 60]);
    all.extend(later.concat());
    for (source, weight) in [0.1, 0.0, 0.9].into_iter().enumerate() {
        let times = times(&all, u32::try_from(source).unwrap());
        let given = times.iter().sum::<u64>() - before[source];
        assert!((given as f64 - weight * 9500.0).abs() < 2.0, "{given}");
        let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        assert!(
            most - least <= 1,
            "no sample of source {source} was lost or doubled"
        );
    }
    // A change to the weights there were changes what comes after, and nothing before.
    assert_eq!(
        batches(&epoch(1, &changed), 30, |_| 1),
        later[0][5..],
        "a later resume finds the same"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn every_sample_of_a_mixture_is_planned_for_its_batch(
        weights in prop::collection::vec(0.05f64..1.0, 3), stop in prop::collection::vec(any::<bool>(), 3),
        domains in 1u32..20, window in 1u32..12, global_batch in 20u32..300,
        world in 1u32..9, rank in 0u32..9, start in 0u64..20, number in 0u64..4, samples in 200u64..3000,
    ) {
        let stops = [stop[0], stop[1], false];
        let config = MixtureConfig {
            samples_per_epoch: Some(samples),
            ..config([weights[0], weights[1], weights[2]], stops)
        };
        let (orders, phase) = orders(spec(9, domains, window, global_batch), &config);
        let order = orders.epoch(number, Some(&phase)).unwrap();
        check_plan(&order, start, RankShare::new(Rank::new(rank % world), world));
    }
}

#[test]
fn a_small_source_that_comes_round_often_is_read_once() {
    let config = MixtureConfig {
        samples_per_epoch: Some(4000),
        ..config([0.4, 0.2, 0.4], [false; 3])
    };
    let (orders, phase) = orders(spec(3, 4, 100, 64), &config);
    let order = orders.epoch(2, Some(&phase)).unwrap();
    let plan = check_plan(&order, 0, RankShare::new(Rank::new(0), 1));
    assert_eq!(plan.iter().filter(|need| need.source == 1).count(), 4);
}

#[test]
fn a_finished_epoch_can_change_its_weights_too() {
    let config = config([0.6, 0.3, 0.1], [true, false, true]);
    let (orders, phase) = orders(spec(3, 8, 2, 100), &config);
    let end = orders.epoch(0, Some(&phase)).unwrap().batch_count();
    let changed = orders.change(&phase, 0, end, vec![1, 1, 1]).unwrap();
    assert_eq!(orders.epoch(0, Some(&changed)).unwrap().batch_count(), end);
    let all = batches(&orders.epoch(1, Some(&changed)).unwrap(), 0, |_| 1);
    assert!(times(&all, 0).iter().all(|times| *times == 1));
    assert!(times(&all, 2).iter().all(|times| *times == 1));
}
