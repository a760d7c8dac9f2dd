//! Stories of runs whose ranks hold the optimizer's state in shares, or send each other rounded gradients.

use feedline_schemas::config::Compression;
use safetensors::SafeTensors;

use super::{
    ranks::{assert_close, in_parts, on_ranks},
    *,
};

fn in_shares() -> TrainConfig {
    let mut config = in_parts();
    config.parallel.shard_optimizer = true;
    config.parallel.timeout_s = 20;
    config.checkpoint.every_steps = 3;
    config
}

const KINDS: [OptimizerKind; 7] = [
    OptimizerKind::Sgd,
    OptimizerKind::Adam,
    OptimizerKind::Adamw,
    OptimizerKind::Lamb,
    OptimizerKind::Lars,
    OptimizerKind::Adafactor,
    OptimizerKind::Muon,
];

fn weights(files: &[(String, Vec<u8>)]) -> &[u8] {
    let best = files.iter().find(|(path, _)| path == "best.safetensors");
    &best.unwrap().1
}

/// Paths of shares, and of checkpoints.
fn shares_and_checkpoints(store: &Store) -> (Vec<String>, Vec<String>) {
    let files = contents(store).into_keys();
    files
        .filter(|path| path.starts_with("checkpoints/"))
        .partition(|path| path.contains(".state-"))
}

#[test]
fn every_optimizer_in_shares_ends_with_the_weights_of_one_rank() {
    for kind in KINDS {
        let mut config = in_shares();
        config.optimizer.r#type = kind;
        if matches!(kind, OptimizerKind::Sgd) {
            config.optimizer.momentum = Some(0.9);
        }
        // Small enough that every step is clipped.
        config.clip_norm = 0.01;
        config.model.norm = Some(NormKind::Batch);
        config.average = Some(AverageConfig::default());
        let expected = undisturbed(&config, &two_classes(64));
        for world in [2, 4] {
            let store = Store::memory();
            let make = |_| two_classes(64);
            for report in on_ranks(world, &config, make, Resume::Fresh, &store) {
                let (files, report) = finished(&store, report.unwrap());
                assert_eq!(report, expected.1, "{kind:?} on {world} ranks");
                assert!(weights(&files) == weights(&expected.0), "{kind:?}");
            }
            let (shares, checkpoints) = shares_and_checkpoints(&store);
            assert_eq!(shares.len(), world * checkpoints.len(), "{shares:?}");
            let kept = config.checkpoint.keep as usize;
            assert!(
                (kept..=kept + 2).contains(&checkpoints.len()),
                "old ones are removed"
            );
        }
    }
}

#[test]
fn a_run_in_shares_goes_on_with_other_ranks_or_without_shares() {
    for kind in [OptimizerKind::Adamw, OptimizerKind::Adafactor] {
        let mut config = in_shares();
        config.optimizer.r#type = kind;
        config.parallel.parts = 8;
        config.parallel.shard_optimizer = false;
        let expected = undisturbed(&config, &regression(64));
        let store = Store::memory();
        let runs = [
            (4, true, 1),
            (2, true, 1),
            (2, false, 0),
            (8, true, 1),
            (1, false, u64::MAX),
        ];
        for (world, shard_optimizer, batch) in runs {
            config.parallel.shard_optimizer = shard_optimizer;
            let make = |rank| {
                let stop = rank + 1 == world && batch < u64::MAX;
                regression(64).with_fault(if stop {
                    Fault::StopAt(batch)
                } else {
                    Fault::None
                })
            };
            for report in on_ranks(world, &config, make, Resume::Continue, &store) {
                match report {
                    Err(error) => assert!(error.contains("interrupted"), "{error}"),
                    Ok(report) => {
                        let (files, report) = finished(&store, report);
                        assert_eq!(report, expected.1);
                        assert!(last(&files) == last(&expected.0));
                    }
                }
            }
        }
    }
}

#[test]
fn frozen_parameters_do_not_travel_and_stay() {
    for freeze in ["layer.0.*", "layer.1.*"] {
        for shard_optimizer in [false, true] {
            let mut config = in_shares();
            config.parallel.shard_optimizer = shard_optimizer;
            config.freeze = vec![freeze.into()];
            let expected = undisturbed(&config, &regression(64));
            let store = Store::memory();
            for report in on_ranks(2, &config, |_| regression(64), Resume::Fresh, &store) {
                let (files, report) = finished(&store, report.unwrap());
                assert_eq!(report, expected.1);
                assert!(weights(&files) == weights(&expected.0));
            }
        }
    }
}

/// Stops a run of two ranks after seven steps, its checkpoints in shares.
fn stopped() -> Store {
    let store = Store::memory();
    let make = |_| regression(64).with_fault(Fault::StopAt(6));
    for report in on_ranks(2, &in_shares(), make, Resume::Fresh, &store) {
        assert!(report.unwrap_err().contains("interrupted"));
    }
    let (shares, checkpoints) = shares_and_checkpoints(&store);
    assert_eq!(shares.len(), 2 * checkpoints.len(), "{shares:?}");
    store
}

fn change(store: &Store, path: &str, bytes: Option<Vec<u8>>) {
    let runtime = crate::checkpoint::run_folder::runtime().unwrap();
    runtime.block_on(async {
        match bytes {
            Some(bytes) => store.put(path, bytes.into()).await.unwrap(),
            None => store.delete(path).await.unwrap(),
        }
    });
}

#[test]
fn a_share_that_is_damaged_or_missing_or_of_another_step_makes_its_checkpoint_unusable() {
    let config = in_shares();
    let expected = undisturbed(&config, &regression(64));
    let newest = "checkpoints/step-00000007.state-1-of-2.safetensors";
    let share = contents(&stopped())[newest].clone();
    let older = |store: &Store| contents(store)[&newest.replace("07", "06")].clone();
    let flipped = |at: usize| {
        let mut share = share.clone();
        share[at] ^= 1;
        share
    };
    let header = usize::try_from(u64::from_le_bytes(share[..8].try_into().unwrap())).unwrap();
    let cases = [
        None,
        Some(flipped(0)),
        // A space behind the header's text.
        Some(flipped(8 + header - 1)),
        Some(flipped(8 + header)),
        Some(flipped(share.len() - 1)),
        Some(share[..share.len() - 4].to_vec()),
        Some([share.as_slice(), &[0]].concat()),
        Some(vec![]),
        Some(older(&stopped())),
    ];
    for (i, case) in cases.into_iter().enumerate() {
        let store = stopped();
        change(&store, newest, case);
        let make = |_| regression(64).with_fault(Fault::StopAt(0));
        for report in on_ranks(2, &config, make, Resume::Continue, &store) {
            // The step was taken again, after that of the checkpoint before.
            let error = report.unwrap_err();
            assert!(error.contains("step-00000007"), "{i}: {error}");
        }
        assert!(contents(&store)[newest] == share, "{i}: it is rewritten");
        for report in on_ranks(2, &config, |_| regression(64), Resume::Continue, &store) {
            assert_eq!(finished(&store, report.unwrap()).1, expected.1, "{i}");
        }
    }
}

#[test]
fn a_rank_whose_share_cannot_be_written_is_named_and_its_checkpoint_is_none() {
    // Rank 1 writes elsewhere, as ranks without a common folder do.
    let stores = [Store::memory(), Store::memory()];
    let mut config = in_shares();
    config.parallel.timeout_s = 4;
    let results = on_own_stores(&config, &stores);
    for result in results {
        let error = result.unwrap_err();
        assert!(
            error.contains("state of rank(s) 1 is not in `memory:")
                && error.contains("same folder"),
            "{error}"
        );
    }
    let (shares, checkpoints) = shares_and_checkpoints(&stores[0]);
    assert_eq!((shares.len(), checkpoints.len()), (1, 0));
}

/// Trains on two ranks with a folder each.
fn on_own_stores(config: &TrainConfig, stores: &[Store; 2]) -> Vec<Result<TrainReport, String>> {
    std::thread::scope(|scope| {
        let groups = crate::parallel::Group::threads(2).into_iter();
        let threads: Vec<_> = groups
            .zip(stores)
            .enumerate()
            .map(|(rank, (group, store))| {
                scope.spawn(move || {
                    let mut toy = regression(64);
                    toy.place = crate::parallel::RankPlace { rank, world: 2 };
                    let report =
                        crate::testing::train_in(&group, config, &toy, Resume::Fresh, store);
                    report.map_err(|error| error.to_string())
                })
            })
            .collect();
        let threads = threads.into_iter();
        threads.map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn rounded_gradients_end_close_by_and_the_same_in_shares() {
    let mut config = in_parts();
    config.parallel.compress = Compression::Bf16;
    let expected = undisturbed(&in_parts(), &regression(64)).1;
    let run = |shard_optimizer| {
        let mut config = config.clone();
        config.parallel.shard_optimizer = shard_optimizer;
        let store = Store::memory();
        let reports = on_ranks(4, &config, |_| regression(64), Resume::Fresh, &store);
        let reports: Vec<TrainReport> = reports.into_iter().map(Result::unwrap).collect();
        let bytes = &contents(&store)["best.safetensors"];
        let (_, metadata) = SafeTensors::read_metadata(bytes).unwrap();
        let header = &metadata.metadata().as_ref().unwrap()["feedline"];
        let header: CheckpointHeader = serde_json::from_str(header).unwrap();
        (reports[3].clone(), header.tensor_hash)
    };
    let (report, weights) = run(false);
    assert_close(&report, &expected);
    assert!(report.test != expected.test, "nothing was rounded");
    let in_shares = run(true);
    assert_eq!(in_shares.0.test, report.test);
    assert_eq!(in_shares.1, weights);
}
