//! Ranks may be killed or stopped at any instant; the group is started again, and ends as if nothing had been.

use std::{collections::BTreeMap, env, time::Duration};

use feedline_storage::clock::{Clock as _, SystemClock};

use crate::{
    ranks::{Launcher, assert_same, forget, prepared, signal, weights},
    support::{Random, run, wait},
};

/// Trainings that lose a rank: these in CI, as many as `FEEDLINE_RANK_KILLS` says elsewhere.
const KILLS: u64 = 4;

/// Most time from a kill to the launcher's knowledge of it.
const KNOWN_WITHIN: Duration = Duration::from_secs(60);

/// Message of the launcher after a failure.
const SAID: &str = "a rank failed; all are started again from the newest checkpoint";

fn kills() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment sets the length of a programme of tests"
    )]
    let told = env::var("FEEDLINE_RANK_KILLS");
    told.map_or(KILLS, |text| text.parse().unwrap())
}

/// Kills or stops a random rank of `launcher` after `delay`; which, and how long until the launcher said so. `None` when the
/// training was over, or as good as over, before.
fn strike(
    launcher: &mut Launcher,
    random: &mut Random,
    (name, delay): (&str, Duration),
) -> Option<(usize, Duration)> {
    wait(delay);
    if !launcher.until(|launcher| !launcher.ranks().is_empty()) {
        return None;
    }
    let ranks = launcher.ranks();
    let chosen = usize::try_from(random.below(ranks.len() as u64)).unwrap();
    let (rank, pid) = *ranks.get(chosen)?;
    if !signal(name, pid) {
        return None;
    }
    let struck = SystemClock.monotonic();
    let said = launcher.until(|launcher| launcher.stderr().contains(SAID));
    said.then(|| (rank, SystemClock.monotonic() - struck))
}

#[test]
fn trainings_that_lose_a_rank_at_a_random_instant_end_with_the_bytes_of_undisturbed_ones() {
    let (folder, file) = prepared();
    let folder = folder.path();
    // Three ranks do not divide the parts of a batch: their bits are their own.
    let undisturbed = |ranks: &str| {
        let report = run(folder, &["train", file, "--json", "--ranks", ranks]).expect(0);
        let found = weights(folder);
        forget(folder);
        (found, report.json()["test"].clone())
    };
    let (even, odd) = (undisturbed("1"), undisturbed("3"));

    let mut random = Random(kills());
    let (mut done, mut late, mut slowest) = (0, 0, Duration::ZERO);
    let mut longest_us = 1_500_000;
    let mut phases = BTreeMap::<String, u64>::new();
    while done < kills() {
        let ranks = ["2", "3", "4"][usize::try_from(random.below(3)).unwrap()];
        let name = ["KILL", "STOP"][usize::try_from(random.below(2)).unwrap()];
        let delay = Duration::from_micros(random.below(longest_us));
        let mut launcher = Launcher::start(folder, &["train", file, "--json", "--ranks", ranks]);
        let struck = strike(&mut launcher, &mut random, (name, delay));
        let finished = launcher.finish().expect(0);
        let what = format!("{ranks} ranks, {name} after {delay:?}: {}", finished.stderr);
        let (weights, test) = if ranks == "3" { &odd } else { &even };
        assert_same(folder, weights, &what);
        assert_eq!(&finished.json()["test"], test, "{what}");
        forget(folder);
        let Some((rank, known_after)) = struck else {
            // Kills are spread over the time that a training takes, found out from those that came too late.
            late += 1;
            longest_us = longest_us * 19 / 20;
            continue;
        };
        longest_us += 20_000;
        done += 1;
        slowest = slowest.max(known_after);
        assert!(known_after <= KNOWN_WITHIN, "{known_after:?}: {what}");
        let said = finished.stderr.lines().find(|line| line.contains(SAID));
        let said = said.unwrap();
        assert!(said.contains(&format!(" rank={rank} ")), "{rank}, {what}");
        let reason = match name {
            "KILL" => "reason=\"it was killed by signal 9\"",
            _ => "no sign of life for 3 s",
        };
        assert!(said.contains(reason), "{what}");
        let place = format!("rank {rank} at step ");
        let at = said.split(&place).nth(1).unwrap_or_default();
        let phase = at.split(", ").nth(1).unwrap_or_default();
        *phases.entry(phase.to_owned()).or_default() += 1;
        if done.is_multiple_of(20) || done == kills() {
            eprintln!(
                "{done} ranks lost ({late} came too late), known after {slowest:?} at most: {phases:?}"
            );
        }
    }
}

#[test]
fn a_rank_that_is_lost_twice_at_one_step_is_not_started_a_third_time() {
    let (folder, file) = prepared();
    let mut launcher = Launcher::start(folder.path(), &["train", file, "--ranks", "2"]);
    let mut killed = Vec::new();
    while !launcher.ended() {
        for (rank, pid) in launcher.ranks() {
            if rank == 1 && !killed.contains(&pid) && signal("KILL", pid) {
                killed.push(pid);
            }
        }
        wait(Duration::from_millis(1));
    }
    assert_eq!(killed.len(), 2, "{killed:?}");
    let lost = launcher.finish().expect(1).stderr;
    assert_eq!(lost.matches(SAID).count(), 1, "{lost}");
    for said in [
        "error: rank `1` failed: it was killed by signal 9; last known: rank 0 at step 0, starting",
        "it is the second time in a row at step 0 in this way, with no checkpoint in between",
    ] {
        assert!(lost.contains(said), "`{said}` is not in {lost}");
    }
}
