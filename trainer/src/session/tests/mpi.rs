//! Stories of runs on ranks that `mpirun` starts.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{ranks::in_parts, *};
use crate::testing::{
    mpi::{Outcome, mpirun, say, this_rank},
    train_in,
};

/// Trains on `world` ranks that `mpirun` starts, with the run's folder in `folder`; what is special in `task`.
fn on_processes(
    world: usize,
    config: &TrainConfig,
    task: &Value,
    folder: &Path,
) -> Option<Outcome> {
    let task = json!({"config": config, "task": task}).to_string();
    fs::write(folder.join("task.json"), task).unwrap();
    mpirun(world, "session::tests::mpi::a_rank_trains", folder)
}

#[test]
#[ignore = "mpirun starts it"]
fn a_rank_trains() {
    let Some((group, folder)) = this_rank() else {
        return;
    };
    let task: Value = serde_json::from_slice(&fs::read(folder.join("task.json")).unwrap()).unwrap();
    let mut config: TrainConfig = serde_json::from_value(task["config"].clone()).unwrap();
    let task = &task["task"];
    let place = group.place();
    let mut toy = regression(64);
    toy.place = place;
    // The signal reaches one rank only.
    if let Some(step) = task["stop_at"]
        .as_u64()
        .filter(|_| place.rank + 1 == place.world)
    {
        toy = toy.with_fault(Fault::StopAt(step));
    }
    if let Some(step) = task["rank_2_dies_at"].as_u64().filter(|_| place.rank == 2) {
        toy = toy.with_fault(Fault::DieAt(step));
    }
    if let Some(seed) = task["seed_of_rank_1"].as_u64().filter(|_| place.rank == 1) {
        config.seed = feedline_schemas::ids::Seed::new(seed);
    }
    let result = train_in(&group, &config, &toy, Resume::Continue, &store(&folder));
    let words = match result {
        Ok(report) => serde_json::to_string(&report).unwrap(),
        Err(error) => error.to_string(),
    };
    say(&folder, &group, &words);
}

fn store(folder: &Path) -> Store {
    Store::open(folder.join("run").to_str().unwrap(), &Default::default()).unwrap()
}

/// The report of a finished run, without where it is.
fn report(said: &str, expected: &TrainReport) -> TrainReport {
    let found: TrainReport = serde_json::from_str(said).unwrap_or_else(|_| panic!("{said}"));
    TrainReport {
        checkpoint: expected.checkpoint.clone(),
        metrics: expected.metrics.clone(),
        report: expected.report.clone(),
        resumed_at: None,
        ..found
    }
}

#[test]
fn two_and_four_processes_of_mpirun_leave_the_bytes_of_one_rank() {
    for norm in [None, Some(NormKind::Batch)] {
        let mut config = in_parts();
        config.model.norm = norm;
        assert!(config.model.dropout > 0.0);
        let expected = undisturbed(&config, &regression(64));
        for world in [2, 4] {
            let folder = tempfile::tempdir().unwrap();
            let Some(outcome) = on_processes(world, &config, &Value::Null, folder.path()) else {
                return;
            };
            assert!(outcome.success, "{}", outcome.output);
            for said in &outcome.said {
                let (files, report) = finished(&store(folder.path()), report(said, &expected.1));
                assert_eq!(report, expected.1, "{world} ranks");
                assert_eq!(files.len(), expected.0.len());
                for ((path, bytes), (_, expected)) in files.iter().zip(&expected.0) {
                    assert!(bytes == expected, "{path} differs on {world} ranks");
                }
            }
        }
    }
}

#[test]
fn a_run_goes_on_with_other_ranks_of_mpirun() {
    let config = in_parts();
    let expected = undisturbed(&config, &regression(64));
    let folder = tempfile::tempdir().unwrap();
    for (world, step) in [(4, Some(2)), (2, Some(4)), (4, None)] {
        let task = json!({"stop_at": step});
        let Some(outcome) = on_processes(world, &config, &task, folder.path()) else {
            return;
        };
        assert!(outcome.success, "{}", outcome.output);
        for said in &outcome.said {
            if step.is_some() {
                assert!(said.contains("interrupted"), "{said}");
                continue;
            }
            let (files, report) = finished(&store(folder.path()), report(said, &expected.1));
            assert_eq!(report, expected.1);
            assert!(last(&files) == last(&expected.0));
        }
    }
}

#[test]
fn a_rank_of_mpirun_that_dies_is_named_and_the_run_goes_on() {
    let mut config = in_parts();
    config.checkpoint.every_steps = 3;
    let expected = undisturbed(&config, &regression(64));
    let folder = tempfile::tempdir().unwrap();
    let dies = json!({"rank_2_dies_at": 7});
    let Some(outcome) = on_processes(4, &config, &dies, folder.path()) else {
        return;
    };
    for (rank, said) in outcome.said.iter().enumerate() {
        let named = rank == 2 || said.contains("rank `2` failed");
        assert!(named, "{rank}: {said} {}", outcome.output);
    }
    let outcome = on_processes(2, &config, &Value::Null, folder.path()).unwrap();
    for said in &outcome.said {
        let (files, report) = finished(&store(folder.path()), report(said, &expected.1));
        assert_eq!(report, expected.1);
        assert!(last(&files) == last(&expected.0));
    }
}

#[test]
fn ranks_of_mpirun_with_different_configurations_do_not_train() {
    let folder = tempfile::tempdir().unwrap();
    let other = json!({"seed_of_rank_1": 6});
    let Some(outcome) = on_processes(3, &in_parts(), &other, folder.path()) else {
        return;
    };
    for said in &outcome.said {
        assert!(said.contains("rank 1 has another configuration"), "{said}");
    }
    assert!(!folder.path().join("run").exists());
}
