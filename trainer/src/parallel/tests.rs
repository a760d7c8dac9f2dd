//! Collective operations on every kind of connection.

#[cfg(feature = "mpi")]
mod mpi;

use std::{
    collections::BTreeSet,
    net::TcpListener,
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::Duration,
};

use feedline_schemas::{
    Classified as _, ErrorKind,
    config::{Collective, ParallelConfig},
};
use feedline_testkit::free_port::free_port;

use super::{Group, RankPlace, Ranks, Tree, Wire};
use crate::{checkpoint::run_folder::runtime, error::Error, testing::uniform};

fn config() -> ParallelConfig {
    ParallelConfig {
        timeout_s: 60,
        heartbeat_timeout_s: 60,
        rendezvous_timeout_s: 60,
        ..ParallelConfig::default()
    }
}

/// A port without a listener.
fn address() -> String {
    format!("127.0.0.1:{}", free_port())
}

fn processes(world: usize) -> Vec<Group> {
    let address = address();
    let group = |rank| Group::processes(rank, world, world, &address);
    (0..world).map(group).collect()
}

/// Does `work` on all ranks at once; the results by rank.
fn on_all<T: Send>(
    groups: Vec<Group>,
    config: &ParallelConfig,
    work: impl Fn(Ranks) -> T + Sync,
) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let on_one = |group: Group| {
            scope.spawn(move || {
                let runtime = runtime().unwrap();
                work(group.join("the same", config, runtime.handle()).unwrap())
            })
        };
        let threads: Vec<_> = groups.into_iter().map(on_one).collect();
        let threads = threads.into_iter();
        threads.map(|thread| thread.join().unwrap()).collect()
    })
}

/// Results of every rank on every kind of connection, with `len` numbers to add up.
fn exchange(ranks: &Ranks, len: usize) {
    let RankPlace { rank, world } = ranks.place();
    let of = |rank| uniform(len, 100 + rank);
    let mut tree = Tree::default();
    let add = |sum: &mut Vec<f32>, part: Vec<f32>| {
        sum.iter_mut()
            .zip(part)
            .for_each(|(sum, part)| *sum += part);
    };
    (0..world).for_each(|rank| tree.push(Some(of(rank)), add));
    let mut values = of(rank);
    ranks.all_reduce(&mut values, Wire::Full).unwrap();
    assert!(values == tree.finish(add).unwrap(), "{world} ranks, {len}");

    let name = |rank| vec![u8::try_from(rank).unwrap(); rank];
    let names = ranks.gather(name(rank)).unwrap();
    assert_eq!(names, (0..world).map(name).collect::<Vec<_>>());
    ranks.barrier().unwrap();
    let given = ranks.broadcast(ranks.leads().then(|| vec![7; 9])).unwrap();
    assert_eq!(given, [7; 9]);
    let sums = ranks.sums([1.0, 0.5]).unwrap();
    let number = f64::from(u8::try_from(world).unwrap());
    let expected = [number, number / 2.0];
    assert_eq!(sums.map(f64::to_bits), expected.map(f64::to_bits));
}

/// The suite that every kind of connection passes.
fn check(groups: fn(usize) -> Vec<Group>) {
    for world in [1, 2, 3, 4, 5] {
        for len in [0, 1, 3, 1000] {
            on_all(groups(world), &config(), |ranks| exchange(&ranks, len));
        }
    }
}

#[test]
fn threads_exchange() {
    check(Group::threads);
}

#[test]
fn processes_exchange() {
    check(processes);
}

#[test]
fn ranks_whose_port_an_agent_holds_meet_at_another_one() {
    let agent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = agent.local_addr().unwrap().to_string();
    let group = |rank, job| Group::processes(rank, 3, 3, &address).under_agent(job);
    let candidates = group(0, "a job").addresses();
    assert!(!candidates.contains(&address), "{candidates:?}");
    assert_ne!(candidates, group(0, "another job").addresses());
    // Something that takes connections and says nothing has the first of them.
    let _mute = TcpListener::bind(&candidates[0]).unwrap();
    let groups = (0..3).map(|rank| group(rank, "a job")).collect();
    on_all(groups, &config(), |ranks| exchange(&ranks, 1000));
}

#[test]
fn processes_of_mpirun_exchange_by_tcp_when_told_so() {
    let config = ParallelConfig {
        collective: Collective::Tcp,
        ..config()
    };
    let groups = processes(2).into_iter().map(Group::started_by_mpirun);
    on_all(groups.collect(), &config, |ranks| exchange(&ranks, 1000));
}

#[test]
fn a_rank_that_is_asked_to_stop_while_it_waits_ends_and_names_the_missing_ones() {
    let stop = Arc::new(AtomicBool::new(true));
    for rank in [0, 1] {
        let group = Group::processes(rank, 2, 2, &address()).with_stop(&stop);
        let joined = group.join("the same", &config(), runtime().unwrap().handle());
        let error = joined.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
        let missing = format!("these ranks have not come: {}", 1 - rank);
        assert!(error.to_string().contains(&missing), "{error}");
    }
}

#[cfg(not(feature = "mpi"))]
#[test]
fn without_mpi_processes_of_mpirun_are_told_what_to_do() {
    let refused = |group: Group, collective| {
        let config = ParallelConfig {
            collective,
            ..config()
        };
        let joined = group.join("the same", &config, runtime().unwrap().handle());
        joined.unwrap_err().to_string()
    };
    let group = || Group::processes(1, 4, 4, &address());
    for message in [
        refused(group().started_by_mpirun(), Collective::Auto),
        refused(group(), Collective::Mpi),
    ] {
        for part in [
            "train.parallel.collective",
            "rank 1 of 4",
            "`--features mpi`",
            "`tcp`",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn nccl_is_refused_where_ranks_have_no_gpu_and_not_needed_by_one() {
    let config = ParallelConfig {
        collective: Collective::Nccl,
        ..config()
    };
    let refused = on_all(Group::threads(2), &config, |ranks| {
        ranks.adding_up(&config, None).unwrap_err()
    });
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Config);
        let message = error.to_string();
        for part in ["`train.parallel.collective`", "between GPUs", "`tcp`"] {
            assert!(message.contains(part), "{message}");
        }
    }
    Ranks::alone().adding_up(&config, None).unwrap();
}

fn culprit(error: &Error) -> (usize, String) {
    match error {
        Error::Rank { rank, reason, .. } => (*rank, reason.clone()),
        other => panic!("{other}"),
    }
}

#[test]
fn all_ranks_name_the_one_that_failed() {
    for groups in [Group::threads as fn(usize) -> Vec<Group>, processes] {
        let found = on_all(groups(4), &config(), |ranks| {
            let rank = ranks.place().rank;
            ranks.barrier().unwrap();
            if rank == 2 {
                ranks.abort(&Error::Interrupted {
                    checkpoint: "memory:here".into(),
                });
                return None;
            }
            let error = ranks.all_reduce(&mut [0.0; 100], Wire::Full).unwrap_err();
            ranks.abort(&error);
            Some(error)
        });
        for error in found.iter().flatten() {
            let (rank, reason) = culprit(error);
            assert_eq!(rank, 2, "{error}");
            assert!(reason.contains("memory:here"), "{error}");
        }
        assert_eq!(found.iter().flatten().count(), 3);
    }
}

#[test]
fn a_rank_that_is_late_is_named_and_where_it_was() {
    let config = ParallelConfig {
        timeout_s: 10,
        ..config()
    };
    for groups in [Group::threads as fn(usize) -> Vec<Group>, processes] {
        let (say, hear) = std::sync::mpsc::channel::<()>();
        let hear = std::sync::Mutex::new(Some(hear));
        let say = std::sync::Mutex::new(Some(say));
        let found = on_all(groups(3), &config, |ranks| {
            ranks.at(17, super::Phase::Computing);
            ranks.barrier().unwrap();
            if ranks.place().rank == 1 {
                // Late until the others have given up.
                let hear = hear.lock().unwrap().take().unwrap();
                hear.recv_timeout(Duration::from_secs(60)).ok();
                return None;
            }
            let error = ranks.barrier().unwrap_err();
            ranks.abort(&error);
            say.lock().unwrap().take();
            Some(error)
        });
        for error in found.iter().flatten() {
            assert_eq!(culprit(error).0, 1, "{error}");
            assert!(error.to_string().contains("step 17, computing"), "{error}");
        }
    }
}

#[test]
fn a_rank_that_says_nothing_more_is_lost() {
    let found = on_all(processes(3), &config(), |ranks| {
        ranks.barrier().unwrap();
        if ranks.place().rank == 2 {
            // Leaves although others count on it.
            return None;
        }
        let error = ranks.barrier().unwrap_err();
        ranks.abort(&error);
        Some(error)
    });
    for error in found.iter().flatten() {
        assert_eq!(culprit(error).0, 2, "{error}");
    }
}

/// Errors of joins of several processes with these identities; those of rank 0 last.
fn refused(groups: Vec<(Group, &str)>, config: &ParallelConfig) -> Vec<String> {
    thread::scope(|scope| {
        let join = |(group, identity): (Group, &'static str)| {
            scope.spawn(move || {
                let runtime = runtime().unwrap();
                let joined = group.join(identity, config, runtime.handle());
                joined.map_or_else(|e| e.to_string(), |_| "joined".to_owned())
            })
        };
        let groups = groups.into_iter();
        let groups = groups.map(|(group, name)| (group, if name == "a" { "a" } else { "b" }));
        let threads: Vec<_> = groups.map(join).collect();
        let threads = threads.into_iter();
        threads.map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn ranks_that_do_not_belong_together_are_told_why() {
    let pair = |world, rank, identity| {
        let address = address();
        let first = (Group::processes(0, 2, 2, &address), "a");
        let second = (Group::processes(rank, world, 2, &address), identity);
        let found = refused(vec![first, second], &config());
        [found[0].clone(), found[1].clone()]
    };
    let [first, second] = pair(2, 1, "b");
    assert!(second.contains("another configuration"), "{second}");
    assert!(first.contains("another configuration"), "{first}");
    for error in pair(3, 1, "a") {
        assert!(error.contains("one of 3 ranks"), "{error}");
    }
}

#[test]
fn two_processes_with_one_rank_are_named_by_all_before_the_time_limit() {
    for of_all in [None, Some("a secret")] {
        let address = address();
        let group = |rank| Group::processes(rank, 3, 3, &address);
        let mut groups = secret(vec![group(0), group(1), group(1), group(2)], &[of_all; 4]);
        let last = groups.split_off(3);
        let joins = |groups: Vec<Group>| {
            let groups = groups.into_iter().map(|group| (group, "a"));
            refused(groups.collect(), &config())
        };
        let (say, hear) = std::sync::mpsc::channel();
        let found = thread::scope(|scope| {
            let joins = &joins;
            for group in groups {
                let say = say.clone();
                scope.spawn(move || say.send(joins(vec![group])).unwrap());
            }
            // The second process of rank 1 ends first, and rank 2 comes before the others are refused.
            let mut found = hear.recv().unwrap();
            found.extend(joins(last));
            found.extend(hear.recv().unwrap());
            found.extend(hear.recv().unwrap());
            found
        });
        let (of_second, _) = found[0].split_once("; give").unwrap();
        let (_, reason) = of_second.split_once("two processes are rank 1, ").unwrap();
        assert_eq!(reason.matches("`127.0.0.1:").count(), 2, "{reason}");
        for error in &found {
            assert!(error.contains(reason), "{found:?}");
        }
    }
}

#[test]
fn no_port_of_ranks_under_an_agent_is_tried_twice() {
    for job in 0..2_000 {
        let group = Group::processes(0, 3, 3, "127.0.0.1:29400").under_agent(&job.to_string());
        let addresses = group.addresses();
        let distinct: BTreeSet<&String> = addresses.iter().collect();
        assert_eq!(distinct.len(), addresses.len(), "job {job}");
    }
}

#[test]
fn a_rank_that_finds_no_rank_0_says_that_another_process_may_have_its_place() {
    let config = ParallelConfig {
        rendezvous_timeout_s: 1,
        ..config()
    };
    let group = Group::processes(1, 2, 2, &address());
    let found = refused(vec![(group, "a")], &config);
    let expected = "another process may be rank 1 already: give each process a `RANK` of its own";
    assert!(found[0].contains(expected), "{found:?}");
}

#[test]
fn a_rank_that_was_started_otherwise_is_named_by_all_before_the_time_limit() {
    for of_all in [None, Some("a secret")] {
        let groups = secret(processes(3), &[of_all; 3]).into_iter();
        let groups = groups.zip(["a", "b", "a"]).collect();
        for error in refused(groups, &config()) {
            let expected = "rank 1 has another configuration than rank 0";
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("have not come"), "{error}");
        }
    }
}

#[test]
fn ranks_with_and_without_resume_do_not_belong_together() {
    let address = address();
    let group = |rank| Group::processes(rank, 2, 2, &address);
    let resuming = group(1).with_resume(crate::Resume::Prolong);
    let found = refused(vec![(group(0), "a"), (resuming, "a")], &config());
    let expected = "rank 1 was started by `feedline train` with `--resume`, and rank 0 by `feedline train` without `--resume`";
    for error in found {
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_message_longer_than_any_of_the_training_is_refused_before_it_is_read() {
    let groups = processes(2).into_iter();
    let bounded: Vec<Group> = groups
        .map(|group| group.with_largest_message(1 << 20))
        .collect();
    let found = on_all(bounded, &config(), |ranks| {
        let of = |len: usize| ranks.leads().then(|| vec![7; len]);
        let fits = ranks.broadcast(of(1 << 20)).map(|bytes| bytes.len());
        let longer = ranks.broadcast(of((1 << 20) + 1)).map(|bytes| bytes.len());
        // The first rank ends when the other has.
        ranks.barrier().ok();
        (fits.unwrap(), longer.map_err(|error| error.to_string()))
    });
    assert_eq!(found[0].0, 1 << 20);
    assert_eq!(found[1].0, 1 << 20);
    let error = found[1].1.clone().unwrap_err();
    assert!(
        error.contains(
            "a message of 1048577 bytes, and none of this training has more than 1048576"
        ),
        "{error}"
    );
}

#[test]
fn messages_that_nobody_asks_for_are_left_in_the_connection_beyond_a_bound() {
    let groups = processes(2).into_iter();
    let bounded: Vec<Group> = groups
        .map(|group| group.with_largest_message(1 << 16))
        .collect();
    let sums = on_all(bounded, &config(), |ranks| {
        let mut sum = 0_u64;
        if !ranks.leads() {
            let bound = 2 << 16;
            while ranks.recv_queue.waiting(0) <= bound {
                thread::yield_now();
            }
            // The other rank sends more, and none of it is read.
            for _ in 0..10_000 {
                thread::yield_now();
                let waiting = ranks.recv_queue.waiting(0);
                assert!(waiting <= bound + (1 << 16), "{waiting}");
            }
        }
        for part in 0..200_u8 {
            let bytes = ranks.leads().then(|| vec![part; 1 << 16]);
            sum += u64::from(ranks.broadcast(bytes).unwrap()[0]);
        }
        ranks.barrier().unwrap();
        sum
    });
    assert_eq!(sums, [19_900, 19_900]);
}

#[test]
fn connections_that_say_nothing_keep_no_rank_waiting() {
    let config = ParallelConfig {
        rendezvous_timeout_s: 30,
        ..config()
    };
    let address = address();
    let groups: Vec<Group> = (0..2)
        .map(|rank| Group::processes(rank, 2, 2, &address))
        .collect();
    thread::scope(|scope| {
        let rank = |group: Group| {
            let config = &config;
            scope.spawn(move || {
                let runtime = runtime().unwrap();
                let joined = group.join("the same", config, runtime.handle());
                joined.map(|ranks| ranks.barrier().unwrap())
            })
        };
        let mut groups = groups.into_iter();
        let first = rank(groups.next().unwrap());
        // Read one by one, with 5 s each, they would exceed the time limit of the rendezvous.
        let idle: Vec<_> = (0..20)
            .map(|_| {
                loop {
                    if let Ok(stream) = std::net::TcpStream::connect(&address) {
                        break stream;
                    }
                    thread::yield_now();
                }
            })
            .collect();
        let second = rank(groups.next().unwrap());
        for rank in [first, second] {
            rank.join().unwrap().unwrap();
        }
        drop(idle);
    });
}

fn secret(groups: Vec<Group>, secrets: &[Option<&str>]) -> Vec<Group> {
    let pairs = groups.into_iter().zip(secrets);
    let given = pairs.map(|(group, secret)| match secret {
        Some(secret) => group.with_secret(secret),
        None => group,
    });
    given.collect()
}

#[test]
fn ranks_with_one_secret_meet() {
    for world in [2, 3, 5] {
        let groups = secret(processes(world), &vec![Some("a secret"); world]);
        on_all(groups, &config(), |ranks| exchange(&ranks, 1000));
    }
}

#[test]
fn a_process_that_does_not_know_the_secret_is_no_rank() {
    let config = ParallelConfig {
        rendezvous_timeout_s: 10,
        ..config()
    };
    for (secrets, part) in [
        (
            [Some("a secret"), Some("another")],
            "does not know the secret",
        ),
        ([Some("a secret"), None], "do not both have a secret"),
        ([None, Some("a secret")], "do not both have a secret"),
    ] {
        let groups = secret(processes(2), &secrets);
        let groups = groups.into_iter().map(|group| (group, "a")).collect();
        for message in refused(groups, &config) {
            assert!(message.contains(part), "{message}");
        }
    }
}
