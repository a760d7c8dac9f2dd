//! Sums by NCCL on a mock of it: the trainer's own calls, of ranks that are threads or processes, with delays and failures.
//!
//! Each sum is that of a step: a gradient, in f32 or bf16, and a few other numbers, in the memory where they are. The mock is
//! not NCCL: it shows what the trainer does with results, delays and failures, and nothing of GPUs.

use std::{
    env,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use feedline_schemas::config::{Collective, ParallelConfig};
use feedline_storage::clock::{Clock as _, SystemClock};
use feedline_testkit::free_port::free_port;

use super::on_gpu::RankOnGpu;
use crate::{
    checkpoint::run_folder::runtime,
    error::Error,
    float_casts::exact_len,
    parallel::{Group, RankBounds, RankPlace, TensorOp, Wire},
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

/// Numbers beside a gradient.
const OTHERS: usize = 7;

/// Sums of a process before it leaves.
const SUMS: usize = 3;

/// The rank that comes too late to its second sum, in the environment of its process.
const LATE: &str = "FEEDLINE_NCCL_LATE";

/// Its delay, longer than the others wait.
const LATE_BY: Duration = Duration::from_secs(8);

/// A rank that begins an exchange and does not wait for it, in the environment of its process.
const LEAVES: &str = "FEEDLINE_NCCL_LEAVES";

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

/// The sum of all ranks in the mock's order, which rounds each addition to what `wire` carries.
fn reference(world: usize, sum: usize, len: usize, wire: Wire) -> Vec<f32> {
    let of = |rank| wire.rounded(numbers(rank, sum, len));
    (1..world).fold(of(0), |before, rank| {
        let added = before.iter().zip(of(rank)).map(|(a, b)| a + b);
        wire.rounded(added.collect())
    })
}

/// Takes one sum and compares it, bit for bit.
fn add_up(rank: &RankOnGpu, sum: usize, len: usize, wire: Wire) -> Result<(), Error> {
    let RankPlace { rank: own, world } = rank.ranks.place();
    let others = sum + 50;
    let op = TensorOp::AllReduce;
    let found = rank.run(&[
        (op, numbers(own, sum, len), wire),
        (op, numbers(own, others, OTHERS), Wire::Full),
    ])?;
    for (found, (sum, len, wire)) in found
        .iter()
        .zip([(sum, len, wire), (others, OTHERS, Wire::Full)])
    {
        let expected = reference(world, sum, len, wire);
        assert!(
            *found == expected,
            "sum {sum} of {len} numbers on rank {own}"
        );
    }
    let exact = |i: usize| -> f64 {
        let of = |rank| f64::from(numbers(rank, sum, len)[i]);
        (0..world).map(of).sum()
    };
    let tolerance = match wire {
        Wire::Full => 1e-6,
        Wire::Bf16 => 1e-2,
    };
    let error = (f64::from(found[0][len / 2]) - exact(len / 2)).abs();
    assert!(error < tolerance * exact_len(world), "{error}");
    Ok(())
}

/// Sums for each rank what it owns, in exchanges that begin before any of them is waited for, and gathers the shares of all; the
/// numbers around are not touched. The results before those of this rank are dropped.
fn share(rank: &RankOnGpu, each: usize, wire: Wire) -> Result<(), Error> {
    let RankPlace { rank: own, world } = rank.ranks.place();
    let len = each * world;
    let bounds = RankBounds::even(len, world);
    let begin = |root: usize| {
        let values = numbers(own, 20 + root, each + root);
        rank.begin(&[(TensorOp::Reduce { root }, values, wire)])
    };
    let begun: Vec<u64> = (0..world).map(begin).collect();
    let found = rank.finish(begun[own])?;
    assert!(found[0] == reference(world, 20 + own, each + own, wire));
    let op = TensorOp::AllGather;
    let found = rank.run(&[(op, numbers(own, 10, len), wire)])?;
    let of_ranks = (0..world).flat_map(|rank| numbers(rank, 10, len)[bounds.of(rank)].to_vec());
    assert!(found[0] == wire.rounded(of_ranks.collect()));
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
        let address = format!("127.0.0.1:{}", free_port());
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
            (9, "ncclGroupEnd:2"),
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
        ("ncclGroupEnd:3:5", "ncclInvalidUsage", 1),
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

/// No message goes before a sum: a rank that does not come is known by what its heartbeats say.
#[test]
fn a_rank_that_is_alive_and_late_is_named_by_all_others() {
    let libraries = libraries();
    for (world, late) in [(2, 0), (3, 1)] {
        let outputs = Processes::start(&libraries, world, late, (LATE, "1")).finish(late);
        for (rank, output) in outputs.iter().enumerate().filter(|(rank, _)| *rank != late) {
            let (seconds, error) = outcome(output);
            assert!(error.contains(&format!("rank {late}")), "{rank}: {error}");
            let waited = "the others have waited for it for 5 s";
            assert!(error.contains(waited), "{rank}: {error}");
            assert!(seconds < NAMED_WITHIN_S, "{rank}: {seconds} s");
        }
    }
}

/// The others never come to it.
#[test]
fn a_rank_that_leaves_does_not_wait_for_an_exchange_that_it_has_begun() {
    let libraries = libraries();
    for output in Processes::start(&libraries, 2, 1, (LEAVES, "1")).finish(NONE) {
        let (seconds, error) = outcome(&output);
        assert_eq!(error, "done");
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
        let rank = RankOnGpu::start(group, &config(), runtime.handle()).unwrap();
        let short = [LENGTHS[3], LENGTHS[0], LENGTHS[5]];
        let lengths = if schedules > 1 { &short[..] } else { &LENGTHS };
        for (sum, &len) in lengths.iter().enumerate() {
            let wire = if (schedule + sum as u64).is_multiple_of(2) {
                Wire::Full
            } else {
                Wire::Bf16
            };
            add_up(&rank, sum, len, wire).unwrap();
            if sum == 0 {
                share(&rank, [1, 37, 3000][len % 3], wire).unwrap();
            }
        }
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
    let clock = SystemClock;
    let mut begun = clock.monotonic();
    let mut run = || {
        let rank = RankOnGpu::start(group, &config, runtime.handle())?;
        for sum in 0..SUMS {
            if sum == 1 && env::var_os(LATE).is_some() {
                thread::park_timeout(LATE_BY);
            }
            begun = clock.monotonic();
            let wire = if sum == 2 { Wire::Bf16 } else { Wire::Full };
            add_up(&rank, sum, 5000, wire)?;
        }
        if env::var_os(LEAVES).is_some() {
            rank.begin(&[(TensorOp::AllReduce, numbers(0, 0, 1000), Wire::Full)]);
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
