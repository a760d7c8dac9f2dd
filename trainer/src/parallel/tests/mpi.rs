//! Ranks that `mpirun` started, and that exchange by MPI.

use std::process::Command;

use super::*;
use crate::testing::mpi::{mpirun, say, this_rank};

const HERE: &str = "parallel::tests::mpi::";

#[test]
fn processes_of_mpirun_exchange() {
    for world in [2, 3, 4] {
        let folder = tempfile::tempdir().unwrap();
        let rank = format!("{HERE}a_rank_exchanges");
        let Some(outcome) = mpirun(world, &rank, folder.path()) else {
            return;
        };
        assert!(outcome.success, "{}", outcome.output);
        assert_eq!(outcome.said, vec!["done"; world], "{}", outcome.output);
    }
}

#[test]
#[ignore = "mpirun starts it"]
fn a_rank_exchanges() {
    let Some((group, folder)) = this_rank() else {
        return;
    };
    let runtime = runtime().unwrap();
    // They meet again and again; the last bucket takes several pieces.
    for len in [0, 1, 3, 1000, 5_000_000] {
        let ranks = group.join("the same", &config(), runtime.handle()).unwrap();
        exchange(&ranks, len);
        for _ in 0..100 {
            ranks.barrier().unwrap();
        }
    }
    say(&folder, &group, "done");
}

#[test]
fn a_late_rank_of_mpirun_is_named_and_where_it_was() {
    check_named("a_rank_is_late", |error| {
        assert!(
            error.contains("rank `1` failed: the others have waited"),
            "{error}"
        );
        assert!(error.contains("rank 1 at step 17, computing"), "{error}");
    });
}

#[test]
#[ignore = "mpirun starts it"]
fn a_rank_is_late() {
    // Longer than all others wait.
    fails_at_rank_1(1, |_ranks| wait(20));
}

/// Does nothing for so many seconds.
fn wait(seconds: u64) {
    let (_say, hear) = std::sync::mpsc::channel::<()>();
    hear.recv_timeout(Duration::from_secs(seconds)).ok();
}

/// Sends this process a signal, and waits for it.
fn signal(name: &str) {
    let pid = std::process::id().to_string();
    let sent = Command::new("kill").args([name, &pid]).status();
    assert!(sent.unwrap().success());
    wait(60);
}

#[test]
fn a_frozen_rank_of_mpirun_is_named() {
    check_named("a_rank_freezes", |error| {
        assert!(
            error.contains("rank `1` failed: it has given no sign of life"),
            "{error}"
        );
    });
}

#[test]
#[ignore = "mpirun starts it"]
fn a_rank_freezes() {
    fails_at_rank_1(60, |_ranks| signal("-STOP"));
}

#[test]
fn a_rank_of_mpirun_that_fails_is_named() {
    check_named("a_rank_fails", |error| {
        assert!(error.contains("rank `1` failed: it stopped: "), "{error}");
        assert!(error.contains("memory:here"), "{error}");
    });
}

#[test]
#[ignore = "mpirun starts it"]
fn a_rank_fails() {
    fails_at_rank_1(60, |ranks| {
        ranks.abort(&Error::Interrupted {
            checkpoint: "memory:here".into(),
        });
    });
}

#[test]
fn a_killed_rank_of_mpirun_ends_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let rank = format!("{HERE}a_rank_is_killed");
    let Some(outcome) = mpirun(3, &rank, folder.path()) else {
        return;
    };
    assert!(!outcome.success);
    let named = outcome.output.contains("process rank 1") && outcome.output.contains("signal 9");
    assert!(named, "{}", outcome.output);
}

#[test]
#[ignore = "mpirun starts it"]
fn a_rank_is_killed() {
    fails_at_rank_1(60, |_ranks| signal("-KILL"));
}

/// Runs a test in which rank 1 of three fails, and looks at what the others say.
fn check_named(name: &str, check: impl Fn(&str)) {
    let folder = tempfile::tempdir().unwrap();
    let Some(outcome) = mpirun(3, &format!("{HERE}{name}"), folder.path()) else {
        return;
    };
    assert!(!outcome.success, "{}", outcome.output);
    for rank in [0, 2] {
        assert!(!outcome.said[rank].is_empty(), "{}", outcome.output);
        check(&outcome.said[rank]);
    }
}

/// Meets the others; then rank 1 fails while they wait for a sum, and say what they know.
fn fails_at_rank_1(timeout_s: u64, fail: impl FnOnce(Ranks)) {
    let Some((group, folder)) = this_rank() else {
        return;
    };
    let config = ParallelConfig {
        timeout_s,
        heartbeat_timeout_s: 3,
        ..config()
    };
    let runtime = runtime().unwrap();
    let ranks = group.join("the same", &config, runtime.handle()).unwrap();
    ranks.at(17, crate::parallel::Phase::Computing);
    // Long enough for a sign of life of each.
    wait(2);
    ranks.barrier().unwrap();
    if group.rank() == 1 {
        return fail(ranks);
    }
    let error = ranks
        .all_reduce(&mut vec![0.5; 3_000_000], Wire::Full)
        .unwrap_err();
    ranks.abort(&error);
    say(&folder, &group, &error.to_string());
    drop((ranks, group));
    // As the program does with an error.
    std::process::exit(1);
}

#[test]
fn a_rank_of_mpirun_with_another_configuration_is_refused_by_all() {
    let folder = tempfile::tempdir().unwrap();
    let rank = format!("{HERE}a_rank_has_another_configuration");
    let Some(outcome) = mpirun(3, &rank, folder.path()) else {
        return;
    };
    assert!(outcome.success, "{}", outcome.output);
    for said in &outcome.said {
        assert!(said.contains("rank 1 has another configuration"), "{said}");
    }
}

#[test]
#[ignore = "mpirun starts it"]
fn a_rank_has_another_configuration() {
    let Some((group, folder)) = this_rank() else {
        return;
    };
    let identity = if group.rank() == 1 { "b" } else { "a" };
    let error = group.join(identity, &config(), runtime().unwrap().handle());
    say(&folder, &group, &error.unwrap_err().to_string());
}
