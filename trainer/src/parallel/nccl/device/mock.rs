//! Sums by NCCL on a mock of it: the trainer's own calls, of ranks that are threads or processes, with delays and failures.
//!
//! The mock is not NCCL: it shows what the trainer does with results, delays and failures, and nothing of GPUs.

use std::{
    env,
    net::TcpListener,
    process::{Child, Command, Output, Stdio},
    thread,
};

use feedline_schemas::config::{Collective, ParallelConfig};
use feedline_storage::clock::{Clock as _, SystemClock};

use crate::{
    error::Error,
    number::exact_len,
    parallel::{Group, RankBounds, RankPlace, Ranks, Wire},
    run_folder::runtime,
    testing::{mock::MockLibraries, uniform},
};

/// `WORLD:SCHEDULES` for threads, `RANK:WORLD:ADDRESS` for a process.
const SCENARIO: &str = "FEEDLINE_MOCK_NCCL_SCENARIO";

/// Schedules of delays that threads add up with.
const SCHEDULES: &str = "FEEDLINE_NCCL_SCHEDULES";

/// Time within which every other rank names one that is lost.
const NAMED_WITHIN_S: f64 = 10.0;

/// Lengths of sums: one number, less than a chunk of the mock, one more than that, several chunks, and then less again.
const LENGTHS: [usize; 6] = [1, 3, 1000, 4097, 20_000, 70];

/// Sums of a process before it leaves.
const SUMS: usize = 3;

fn config() -> ParallelConfig {
    ParallelConfig {
        collective: Collective::Nccl,
        timeout_s: 60,
        heartbeat_timeout_s: 3,
        rendezvous_timeout_s: 60,
        ..ParallelConfig::default()
    }
}

/// The driver and NCCL.
fn libraries() -> MockLibraries {
    let libraries = MockLibraries::new();
    let driver = libraries.compile_driver();
    let driver = driver.to_str().unwrap();
    libraries.compile("tests/mock/nccl.c", "libnccl.so", &[driver]);
    libraries
}

/// Numbers of a rank; other ones for each sum.
fn numbers(rank: usize, sum: usize, len: usize) -> Vec<f32> {
    uniform(len, 100 * sum + rank)
}

/// The sum of all ranks in the mock's order, as numbers that `wire` carries.
fn reference(world: usize, sum: usize, len: usize, wire: Wire) -> Vec<f32> {
    let of = |rank| wire.rounded(numbers(rank, sum, len));
    let mut expected = of(0);
    for rank in 1..world {
        expected.iter_mut().zip(of(rank)).for_each(|(a, b)| *a += b);
    }
    wire.rounded(expected)
}

/// Takes one sum and compares it, bit for bit.
fn add_up(ranks: &Ranks, sum: usize, len: usize, wire: Wire) -> Result<(), Error> {
    let RankPlace { rank, world } = ranks.place();
    let mut found = numbers(rank, sum, len);
    ranks.all_reduce(&mut found, wire)?;
    let expected = reference(world, sum, len, wire);
    assert!(
        found == expected,
        "sum {sum} of {len} numbers on rank {rank}"
    );
    let exact = |i: usize| -> f64 {
        let of = |rank| f64::from(numbers(rank, sum, len)[i]);
        (0..world).map(of).sum()
    };
    if wire == Wire::Full {
        let error = (f64::from(found[len / 2]) - exact(len / 2)).abs();
        assert!(error < 1e-6 * exact_len(world), "{error}");
    }
    Ok(())
}

/// This program with a scenario.
fn command(libraries: &MockLibraries, scenario: &str, world: usize) -> Command {
    let mut command = libraries.command("parallel::nccl::device::mock::a_scenario");
    command
        .env(SCENARIO, scenario)
        .env("FEEDLINE_MOCK_DRIVER_DEVICES", world.to_string())
        .env("FEEDLINE_MOCK_NCCL_FOLDER", libraries.folder())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn check_threads(delay_us: u32, world: usize, schedules: u64) {
    let libraries = libraries();
    let output = command(&libraries, &format!("{world}:{schedules}"), world)
        .env("FEEDLINE_MOCK_NCCL_DELAY", delay_us.to_string())
        .env("FEEDLINE_MOCK_DRIVER_DELAY", delay_us.to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:#?}");
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = format!("schedules done: {schedules}");
    assert!(said.contains(&expected), "{said}");
    let left = String::from_utf8_lossy(&output.stderr);
    assert!(!left.contains("were not ended"), "{left}");
}

#[test]
fn sums_of_two_to_four_ranks_equal_the_reference() {
    for world in [2, 3, 4] {
        check_threads(0, world, 1);
    }
}

#[test]
fn a_thousand_schedules_of_delays_give_the_same_sums() {
    let all = env::var_os(SCHEDULES).and_then(|text| text.to_str()?.parse().ok());
    let all = all.unwrap_or(1002);
    for world in [2, 3, 4] {
        check_threads(150, world, all / 3);
    }
}

/// Processes; one has a variable in its environment.
struct Processes(Vec<Child>);

impl Processes {
    fn start(libraries: &MockLibraries, world: usize, odd: usize, variable: (&str, &str)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let one = |rank: usize| {
            let mut command = command(libraries, &format!("{rank}:{world}:{address}"), world);
            if rank == odd {
                command.env(variable.0, variable.1);
            }
            command.spawn().unwrap()
        };
        Self((0..world).map(one).collect())
    }

    /// Their output by rank; the process of `stopped`, which may not end by itself, is ended after the others.
    fn finish(self, stopped: usize) -> Vec<Output> {
        let mut children: Vec<_> = self.0.into_iter().enumerate().collect();
        children.sort_by_key(|(rank, _)| *rank == stopped);
        let finish = |(rank, mut child): (usize, Child)| {
            if rank == stopped {
                child.kill().ok();
            }
            (rank, child.wait_with_output().unwrap())
        };
        let mut outputs: Vec<_> = children.into_iter().map(finish).collect();
        outputs.sort_by_key(|(rank, _)| *rank);
        outputs.into_iter().map(|(_, output)| output).collect()
    }
}

/// No process is ended.
const NONE: usize = usize::MAX;

/// Seconds that the last call took, and its error.
fn outcome(output: &Output) -> (f64, String) {
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said
        .lines()
        .find_map(|line| line.split_once("outcome after "));
    let (_, line) = line.unwrap_or_else(|| panic!("{output:#?}"));
    let (seconds, error) = line.split_once(" s: ").unwrap();
    (seconds.parse().unwrap(), error.to_owned())
}

#[test]
fn processes_add_up() {
    let libraries = libraries();
    for world in [2, 3, 4] {
        let outputs = Processes::start(&libraries, world, NONE, ("", "")).finish(NONE);
        for output in outputs {
            assert!(output.status.success(), "{output:#?}");
            assert_eq!(outcome(&output).1, "done");
        }
    }
}

/// A rank that is killed or stopped in the middle of NCCL's work, or while the others meet it, is named by all others.
#[test]
fn a_rank_that_is_killed_or_stopped_is_named_by_all_others_within_ten_seconds() {
    let libraries = libraries();
    for world in [2, 3, 4] {
        for (signal, call) in [
            (9, "kernel:1"),
            (9, "kernel:2"),
            (9, "ncclCommInitRank:1"),
            (9, "ncclAllReduce:3"),
            (19, "kernel:2"),
            (19, "ncclCommInitRank:1"),
        ] {
            let lost = world / 2;
            let fail = format!("{call}:-{signal}");
            let variable = ("FEEDLINE_MOCK_NCCL_FAIL", fail.as_str());
            let outputs = Processes::start(&libraries, world, lost, variable).finish(lost);
            for (rank, output) in outputs.iter().enumerate().filter(|(rank, _)| *rank != lost) {
                let (seconds, error) = outcome(output);
                let name = format!("rank {lost}");
                let at = format!("rank {rank} of {world}, {fail}");
                assert!(error.contains(&name), "{at}: {error}");
                assert!(!error.contains("has not responded"), "{at}: {error}");
                assert!(seconds < NAMED_WITHIN_S, "{at}: {seconds} s");
            }
        }
    }
}

#[test]
fn a_failed_call_is_an_error_that_names_it_and_others_name_the_rank() {
    let libraries = libraries();
    for (fail, code, odd) in [
        ("ncclGetUniqueId:1:2", "ncclSystemError", 0),
        ("ncclCommInitRank:1:3", "ncclInternalError", 1),
        ("ncclAllReduce:1:1", "ncclUnhandledCudaError", 1),
        ("ncclAllReduce:2:6", "ncclRemoteError", 2),
    ] {
        let variable = ("FEEDLINE_MOCK_NCCL_FAIL", fail);
        let outputs = Processes::start(&libraries, 3, odd, variable).finish(NONE);
        let (call, _) = fail.split_once(':').unwrap();
        for (rank, output) in outputs.iter().enumerate() {
            let (seconds, error) = outcome(output);
            for part in [call, code] {
                assert!(error.contains(part), "rank {rank}, {fail}: {error}");
            }
            let is_named = error.contains(&format!("rank {odd}"));
            assert!(rank == odd || is_named, "rank {rank}, {fail}: {error}");
            assert!(seconds < NAMED_WITHIN_S, "rank {rank}, {fail}: {seconds} s");
        }
    }
}

/// An illegal address, known to the driver only when it has run the copy or NCCL's work.
#[test]
fn work_that_fails_on_a_gpu_is_an_error_at_once() {
    let libraries = libraries();
    for fail in ["copy:2:700", "call:2:700"] {
        let variable = ("FEEDLINE_MOCK_DRIVER_FAIL", fail);
        let outputs = Processes::start(&libraries, 2, 1, variable).finish(NONE);
        for (rank, output) in outputs.iter().enumerate() {
            let (seconds, error) = outcome(output);
            assert!(error.contains("rank 1"), "rank {rank}, {fail}: {error}");
            // The driver reports it at the next call: one of the trainer, or one inside NCCL.
            let codes = ["CUDA_ERROR_ILLEGAL_ADDRESS", "ncclUnhandledCudaError"];
            let has_code = codes.iter().any(|code| error.contains(code));
            assert!(has_code, "rank {rank}, {fail}: {error}");
            assert!(seconds < NAMED_WITHIN_S, "rank {rank}, {fail}: {seconds} s");
        }
    }
}

/// Its heartbeats go on, so only the time limit of a message ends it, and no rank knows which one NCCL waits for.
#[test]
fn work_that_hangs_on_a_rank_that_is_alive_ends_at_the_time_limit_with_what_to_do() {
    let libraries = libraries();
    let variable = ("FEEDLINE_MOCK_NCCL_FAIL", "kernel:2:0");
    let outputs = Processes::start(&libraries, 3, 1, variable).finish(NONE);
    for output in &outputs {
        let (seconds, error) = outcome(output);
        assert!(
            error.contains("NCCL has not responded within 5 s"),
            "{error}"
        );
        assert!(error.contains("NCCL_DEBUG=INFO"), "{error}");
        assert!(seconds < NAMED_WITHIN_S, "{seconds} s");
    }
}

#[test]
#[ignore = "the tests beside it run it with the mocks"]
fn a_scenario() {
    let Some(scenario) = env::var_os(SCENARIO).and_then(|text| text.into_string().ok()) else {
        return;
    };
    let parts: Vec<&str> = scenario.splitn(3, ':').collect();
    match *parts.as_slice() {
        [world, schedules] => run_threads(world.parse().unwrap(), schedules.parse().unwrap()),
        [rank, world, address] => {
            let [rank, world] = [rank, world].map(|text| text.parse().unwrap());
            run_process(&Group::processes(rank, world, world, address));
        }
        _ => panic!("no scenario `{scenario}`"),
    }
}

/// Threads that add up once for each schedule; the mock draws other delays for each id.
fn run_threads(world: usize, schedules: u64) {
    let runtime = runtime().unwrap();
    let on_one = &|group: &Group, schedule: u64| {
        let ranks = group.join("the same", &config(), runtime.handle()).unwrap();
        let ranks = ranks
            .adding_up(&config(), Some(group.local_rank()))
            .unwrap();
        let short = [LENGTHS[3], LENGTHS[0], LENGTHS[5]];
        let lengths = if schedules > 1 { &short[..] } else { &LENGTHS };
        for (sum, &len) in lengths.iter().enumerate() {
            let wire = if (schedule + sum as u64).is_multiple_of(2) {
                Wire::Full
            } else {
                Wire::Bf16
            };
            add_up(&ranks, sum, len, wire).unwrap();
        }
        // Each keeps its own part, as ranks do that share the optimizer.
        let RankPlace { rank, world } = ranks.place();
        let borders = RankBounds::even(100, world);
        let mut found = numbers(rank, 9, 100);
        let wire = Wire::Full;
        ranks.reduce_scatter(&mut found, &borders, wire).unwrap();
        let own = borders.of(rank);
        assert!(found[own.clone()] == reference(world, 9, 100, wire)[own]);
    };
    for schedule in 0..schedules {
        let groups = Group::threads(world);
        thread::scope(|scope| {
            for group in &groups {
                scope.spawn(move || on_one(group, schedule));
            }
        });
    }
    println!("schedules done: {schedules}");
}

/// A rank that adds up a few times, and prints the time of its last call and the error.
fn run_process(group: &Group) {
    let runtime = runtime().unwrap();
    // A hang has a scenario of its own, which shall not take a minute.
    let config = ParallelConfig {
        timeout_s: 5,
        ..config()
    };
    let ranks = group.join("the same", &config, runtime.handle()).unwrap();
    let clock = SystemClock;
    let mut begun = clock.monotonic();
    let run = || {
        let ranks = ranks.adding_up(&config, Some(group.local_rank()))?;
        for sum in 0..SUMS {
            begun = clock.monotonic();
            add_up(&ranks, sum, 5000, Wire::Full).inspect_err(|error| ranks.abort(error))?;
        }
        Ok::<_, Error>(())
    };
    let result = run();
    let seconds = (clock.monotonic() - begun).as_secs_f64();
    let text = result.map_or_else(|error| error.to_string(), |()| "done".to_owned());
    println!(
        "\noutcome after {seconds:.2} s: {}",
        text.replace('\n', " ")
    );
}
