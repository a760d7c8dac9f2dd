//! NCCL on this rank's GPU.
//!
//! An exchange passes three threads. The first gets the addresses of its numbers and an event behind the work that computes
//! them, at once, so that later work is not waited for. The second waits for the event. The third owns the communicator, which
//! may not leave it: it has NCCL exchange the numbers where they are; while NCCL works it looks whether it is to give up, and
//! then ends the communicator (`ncclCommAbort`), which ends NCCL's work on the GPU.

use std::{
    ffi::c_char,
    fmt::Debug,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use cudarc::{
    driver::{CudaContext, CudaStream},
    nccl::{Comm, Id, result::NcclError},
};
use feedline_storage::clock::{Clock as _, SystemClock};

use self::runs::{DeviceRuns, OpenRuns};
use crate::{
    error::Error,
    parallel::{
        RankPlace, Ranks,
        on_device::{ExchangeTimes, ExchangedTensors, TensorExchange, TensorWork},
        recv_queue::{Patience, RankFailure, RecvQueue, TICK},
    },
};

mod runs;

/// Times that the thread looks again at once, before it sleeps in between.
const EAGER: u32 = 1000;

/// Time between two looks.
const LOOK: Duration = Duration::from_micros(50);

/// Exchanged numbers, and the times of the exchange.
type ExchangedRuns = (DeviceRuns, ExchangeTimes);

/// Numbers with their addresses, or what failed.
type OpenedRuns = (DeviceRuns, Result<OpenRuns, String>);

/// Numbers that are computed, and the time when they were.
type ComputedRuns = (DeviceRuns, Result<OpenRuns, String>, Duration);

/// Exchanges on this rank's GPU.
#[derive(Debug)]
pub(in crate::parallel) struct Nccl {
    rank: usize,
    recv_queue: Arc<RecvQueue>,
    begun: Mutex<Begun>,
    ended: Mutex<Ended>,
    given_up: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Exchanges to come.
#[derive(Debug)]
struct Begun {
    jobs: Option<Sender<DeviceRuns>>,
    /// Number of exchanges so far.
    count: u64,
}

/// Exchanges that have ended.
#[derive(Debug)]
struct Ended {
    sums: Receiver<Result<ExchangedRuns, String>>,
    /// Number of those taken out so far.
    count: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Id of a new group of ranks; rank 0 makes it and sends it to the others.
///
/// # Errors
/// Message of NCCL.
pub(super) fn new_id() -> Result<Vec<u8>, String> {
    let id = Id::new().map_err(|error| nccl("name the group", "ncclGetUniqueId", &error))?;
    Ok(id.internal().map(|c| c.to_ne_bytes()[0]).to_vec())
}

impl TensorExchange for Nccl {
    fn begin(&self, tensors: Vec<TensorWork>) -> u64 {
        self.begin_runs(DeviceRuns::Tensors(tensors))
    }

    fn finish(&self, ranks: &Ranks, number: u64) -> Result<ExchangedTensors, Error> {
        match self.finish_runs(ranks, number)? {
            (DeviceRuns::Tensors(done), times) => Ok((done, times)),
            _ => unreachable!("tensors come back as tensors"),
        }
    }
}

impl Nccl {
    /// Starts the threads, which meet the other ranks of the group `id` on GPU number `gpu`.
    ///
    /// # Errors
    /// The system gives no thread, or `id` names no group.
    pub(super) fn start(
        gpu: u32,
        place: RankPlace,
        id: &[u8],
        recv_queue: Arc<RecvQueue>,
    ) -> Result<Self, String> {
        let id: [u8; 128] = id
            .try_into()
            .map_err(|_| "rank 0 has not named the group".to_owned())?;
        let id = Id::uninit(id.map(|byte| c_char::from_ne_bytes([byte])));
        let (jobs, new_jobs) = mpsc::channel();
        let (opened, to_wait_for) = mpsc::channel();
        let (computed, to_exchange) = mpsc::channel();
        let (say, sums) = mpsc::channel();
        let given_up = Arc::new(AtomicBool::new(false));
        let looking = Arc::clone(&given_up);
        start_thread("nccl-open", move || open_all(&new_jobs, &opened))?;
        start_thread("nccl-wait", move || wait_for_all(&to_wait_for, &computed))?;
        let thread = start_thread("nccl", move || {
            work(gpu, place, id, &to_exchange, &say, &looking);
        })?;
        Ok(Self {
            rank: place.rank,
            recv_queue,
            begun: Mutex::new(Begun {
                jobs: Some(jobs),
                count: 0,
            }),
            ended: Mutex::new(Ended { sums, count: 0 }),
            given_up,
            thread: Some(thread),
        })
    }

    /// Begins an exchange of numbers of all ranks where they are. No message goes before: a rank that does not come is found by
    /// its heartbeats. Returns the number of the exchange.
    pub(super) fn begin_runs(&self, runs: DeviceRuns) -> u64 {
        self.recv_queue.status[self.rank].next_collective();
        let mut begun = locked(&self.begun);
        if let Some(jobs) = &begun.jobs {
            // If the thread has ended, its missing response shows it.
            jobs.send(runs).ok();
        }
        begun.count += 1;
        begun.count - 1
    }

    /// Waits for the end of an exchange. Those that began before it are dropped.
    ///
    /// # Errors
    /// As [`Ranks::all_reduce`].
    pub(super) fn finish_runs(&self, ranks: &Ranks, number: u64) -> Result<ExchangedRuns, Error> {
        let mut ended = locked(&self.ended);
        loop {
            let done = self
                .wait(&ended.sums, ranks.patience)
                .map_err(|failure| ranks.error(failure))?;
            ended.count += 1;
            if ended.count > number {
                return Ok(done);
            }
        }
    }

    /// Waits until the thread has met the other ranks.
    ///
    /// # Errors
    /// Whose fault it is that it has not.
    pub(super) fn meet(&self, patience: Patience) -> Result<(), RankFailure> {
        self.wait(&locked(&self.ended).sums, patience).map(|_| ())
    }

    /// Waits for what the thread says next.
    ///
    /// # Errors
    /// Whose fault it is that it does not come; none will come any more.
    fn wait(
        &self,
        sums: &Receiver<Result<ExchangedRuns, String>>,
        patience: Patience,
    ) -> Result<ExchangedRuns, RankFailure> {
        let failure = |reason| RankFailure {
            rank: self.rank,
            reason,
        };
        let mut vigil = self.recv_queue.vigil();
        let mut ticks = 0;
        let failed = loop {
            match sums.recv_timeout(TICK) {
                Ok(sum) => return sum.map_err(failure),
                Err(RecvTimeoutError::Disconnected) => {
                    break failure("NCCL has been given up".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => ticks += 1,
            }
            if let Some(failure) = self.recv_queue.look(&mut vigil, patience) {
                break failure;
            }
            if TICK * ticks >= patience.message {
                break self.overdue(patience.message);
            }
        };
        self.given_up.store(true, Relaxed);
        Err(failed)
    }

    /// The failure of a sum that has not come within a time: of a rank that has not come to it, or of NCCL.
    fn overdue(&self, within: Duration) -> RankFailure {
        let seconds = within.as_secs_f64();
        let status = &self.recv_queue.status;
        let mut exchanges = status.iter().map(|at| at.whereabouts().exchange);
        let own = status[self.rank].whereabouts().exchange;
        match exchanges.position(|exchange| exchange < own) {
            Some(rank) => RankFailure {
                rank,
                reason: format!("the others have waited for it for {seconds} s"),
            },
            None => RankFailure {
                rank: self.rank,
                reason: format!(
                    "all ranks have come, and NCCL has not responded within {seconds} s; NCCL_DEBUG=INFO logs more"
                ),
            },
        }
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        let mut begun = locked(&self.begun);
        begun.jobs.take();
        if begun.count > locked(&self.ended).count {
            // Others may not come to these any more.
            self.given_up.store(true, Relaxed);
        }
        let thread = self.thread.take().filter(|_| !self.given_up.load(Relaxed));
        if let Some(thread) = thread {
            // It says what went wrong before it ends.
            thread.join().ok();
        }
    }
}

fn start_thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, String> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    thread.map_err(|error| format!("the system gives no thread: {error}"))
}

/// Body of the first thread.
fn open_all(jobs: &Receiver<DeviceRuns>, opened: &Sender<OpenedRuns>) {
    for mut runs in jobs {
        let open = runs.open();
        if opened.send((runs, open)).is_err() {
            return;
        }
    }
}

/// Body of the second thread.
fn wait_for_all(opened: &Receiver<OpenedRuns>, computed: &Sender<ComputedRuns>) {
    for (runs, open) in opened {
        let open = open.and_then(OpenRuns::computed);
        let now = SystemClock.monotonic();
        if computed.send((runs, open, now)).is_err() {
            return;
        }
    }
}

/// Body of the third thread. Says first whether it has met the others, then the sum for each job; ends with the first error.
fn work(
    gpu: u32,
    place: RankPlace,
    id: Id,
    jobs: &Receiver<ComputedRuns>,
    say: &Sender<Result<ExchangedRuns, String>>,
    given_up: &AtomicBool,
) {
    let (comm, stream) = match meet(gpu, place, id) {
        Ok(met) => met,
        Err(reason) => {
            say.send(Err(reason)).ok();
            return;
        }
    };
    let mut said = say.send(Ok((DeviceRuns::None, ExchangeTimes::default())));
    while let (Ok(()), Ok((runs, open, computed))) = (said, jobs.recv()) {
        let exchanged = match &open {
            Ok(open) => exchange(&comm, &stream, open, given_up),
            Err(error) => Err(driver("compute the numbers", error)),
        };
        match exchanged {
            Ok((begun, ended)) => {
                drop(open);
                let times = ExchangeTimes {
                    computed,
                    begun,
                    ended,
                };
                said = say.send(Ok((runs, times)));
            }
            Err(reason) => {
                say.send(Err(reason)).ok();
                // Memory is free for others after the communicator has ended, and with it all work on the memory.
                drop(comm);
                drop((open, runs));
                return;
            }
        }
    }
}

/// Meets the other ranks.
fn meet(gpu: u32, place: RankPlace, id: Id) -> Result<(Comm, Arc<CudaStream>), String> {
    let context = CudaContext::new(gpu as usize).map_err(|e| driver("open the GPU", e))?;
    let stream = context
        .new_stream()
        .map_err(|e| driver("make a stream", e))?;
    let comm = Comm::from_rank(Arc::clone(&stream), place.rank, place.world, id);
    let comm = comm.map_err(|error| nccl("meet the other ranks", "ncclCommInitRank", &error))?;
    Ok((comm, stream))
}

/// Exchanges computed numbers in place; NCCL may write to them until this returns, or the communicator ends. Returns the times
/// when it began and ended.
fn exchange(
    comm: &Comm,
    stream: &Arc<CudaStream>,
    open: &OpenRuns,
    given_up: &AtomicBool,
) -> Result<(Duration, Duration), String> {
    let begun = SystemClock.monotonic();
    runs::launch(comm, stream, open).map_err(|(call, error)| nccl("add up", call, &error))?;
    let done = stream
        .record_event(None)
        .map_err(|e| driver("wait for the sum", e))?;
    let mut looks = 0;
    while !done
        .try_is_complete()
        .map_err(|e| driver("wait for the sum", e))?
    {
        if given_up.load(Relaxed) {
            return Err("it was given up".to_owned());
        }
        looks += 1;
        if looks < EAGER {
            thread::yield_now();
        } else {
            thread::park_timeout(LOOK);
        }
    }
    Ok((begun, SystemClock.monotonic()))
}

fn driver(doing: &str, error: impl Debug) -> String {
    format!("the driver cannot {doing}: {error:?}")
}

fn nccl(doing: &str, call: &str, error: &NcclError) -> String {
    let NcclError(code) = error;
    format!(
        "NCCL cannot {doing}: `{call}` failed with {code:?}; each rank must have a GPU of its own, and NCCL_DEBUG=WARN logs more"
    )
}

#[cfg(test)]
mod mock;
#[cfg(test)]
mod on_gpu;

#[cfg(test)]
mod tests {
    use std::thread;

    use feedline_loader::device::cuda::nccl_is_installed;
    use feedline_schemas::config::{Collective, DeviceChoice, ParallelConfig};

    use super::on_gpu::RankOnGpu;
    use crate::{
        checkpoint::run_folder::runtime,
        device::Backend,
        parallel::{Group, TensorOp, Wire},
        testing::uniform,
    };

    fn config() -> ParallelConfig {
        ParallelConfig {
            collective: Collective::Nccl,
            ..ParallelConfig::default()
        }
    }

    /// Returns true if there are so many GPUs, and NCCL.
    fn can_run(world: usize) -> bool {
        let last = u32::try_from(world - 1).unwrap();
        if let Err(error) = Backend::choose(DeviceChoice::Cuda(Some(last)), 0) {
            eprintln!("skipped: {error}");
            return false;
        }
        if !nccl_is_installed() {
            eprintln!("skipped: NCCL (`libnccl.so`) is not found");
            return false;
        }
        true
    }

    /// Runs `work` on so many ranks that are threads, each with a GPU; the results by rank.
    fn on_gpus<T: Send>(world: usize, work: impl Fn(&Group) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let groups = Group::threads(world).into_iter();
            let threads: Vec<_> = groups
                .map(|group| scope.spawn(|| work(&{ group })))
                .collect();
            let threads = threads.into_iter();
            threads.map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= tolerance, "{found} {expected}");
        }
    }

    /// Adds up on so many GPUs, and compares with the same sums elsewhere.
    fn check(world: usize) {
        if !can_run(world) {
            return;
        }
        let runtime = &runtime().unwrap();
        for len in [0, 1, 1_000_000, 1000] {
            for (wire, tolerance) in [(Wire::Full, 1e-6), (Wire::Bf16, 0.05)] {
                let sums = on_gpus(world, |group| {
                    let rank = RankOnGpu::start(group, &config(), runtime.handle()).unwrap();
                    let of_rank = |seed| uniform(len, 10 * seed + group.place().rank);
                    let op = TensorOp::AllReduce;
                    let found = rank.run(&[(op, of_rank(0), wire), (op, of_rank(1), Wire::Full)]);
                    let found = found.unwrap();
                    for (seed, tolerance) in [(0, tolerance), (1, 1e-6)] {
                        let mut expected = of_rank(seed);
                        rank.ranks.all_reduce(&mut expected, Wire::Full).unwrap();
                        assert_close(&found[seed], &expected, tolerance);
                    }
                    found
                });
                assert!(sums.iter().all(|sum| *sum == sums[0]), "{len} {wire:?}");
            }
        }
    }

    #[test]
    fn two_gpus_add_up() {
        check(2);
    }

    #[test]
    fn one_gpu_gives_its_numbers_back() {
        check(1);
    }

    /// Tensors that a device has just been asked to compute are summed after that, and used after the sum.
    #[cfg(feature = "cuda")]
    fn check_tensors(of_all_ranks: u8) {
        use burn::tensor::{Device, Tensor, TensorData};

        use crate::{device::numbers, parallel::on_device::TensorExchange as _};

        let world = usize::from(of_all_ranks);
        if !can_run(world) {
            return;
        }
        let runtime = &runtime().unwrap();
        let len = 300_000;
        let sums = on_gpus(world, |group| {
            let gpu = group.local_rank();
            let (of_all, own_share) = (f32::from(of_all_ranks), u8::try_from(gpu + 1).unwrap());
            let ranks = group.join("the same", &config(), runtime.handle()).unwrap();
            let nccl = ranks.start_nccl(&config(), Some(gpu)).unwrap();
            let device = Device::cuda(gpu as usize);
            let values = uniform(len, gpu as usize);
            let data = TensorData::new(values.clone(), [len]);
            let values_there = Tensor::<1>::from_data(data, &device);
            let mut found = Vec::new();
            let exchange = |tensors| {
                let number = nccl.begin(tensors);
                nccl.finish(&ranks, number)
            };
            for step in 0..20_u8 {
                let factor = f64::from(step);
                let tensors = vec![
                    (TensorOp::AllReduce, values_there.clone() * factor),
                    (TensorOp::AllReduce, Tensor::zeros([3], &device) + factor),
                ];
                let (sums, _) = exchange(tensors).unwrap();
                let [(_, of_values), (_, of_factor)] = sums.try_into().unwrap();
                let mut expected: Vec<f32> = values.iter().map(|x| x * f32::from(step)).collect();
                ranks.all_reduce(&mut expected, Wire::Full).unwrap();
                found = numbers(of_values);
                assert_close(&found, &expected, 1e-4);
                let factors = f32::from(step) * of_all;
                assert_eq!(numbers(of_factor), [factors; 3]);
            }
            // Each rank has its share of a tensor of as many equal numbers as ranks, and gets it back from the sums.
            let share = Tensor::full([world * 128], f64::from(own_share), &device);
            let (mut gathered, _) = exchange(vec![(TensorOp::AllGather, share)]).unwrap();
            let (_, gathered) = gathered.remove(0);
            let expected = (1..=of_all_ranks).flat_map(|share| [f32::from(share); 128]);
            assert_eq!(numbers(gathered.clone()), expected.collect::<Vec<_>>());
            // Each rank gets the sums of one of several exchanges that run while the device computes.
            let begin = |root: usize| {
                let values = gathered.clone() * f64::from(u8::try_from(root + 2).unwrap());
                nccl.begin(vec![(TensorOp::Reduce { root }, values)])
            };
            let begun: Vec<u64> = (0..world).map(begin).collect();
            let (mut reduced, _) = nccl.finish(&ranks, begun[gpu as usize]).unwrap();
            let (_, reduced) = reduced.remove(0);
            let own = reduced.narrow(0, gpu as usize * 128, 128);
            let factor = f32::from(own_share + 1);
            assert_eq!(numbers(own), [factor * f32::from(own_share) * of_all; 128]);
            let shared = vec![(TensorOp::AllReduce, values_there.clone())];
            let error = exchange(shared).unwrap_err();
            assert!(error.to_string().contains("used elsewhere"), "{error}");
            found
        });
        assert!(sums.iter().all(|sum| *sum == sums[0]));
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn tensors_of_one_gpu_come_back() {
        check_tensors(1);
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn tensors_of_two_gpus_are_summed() {
        check_tensors(2);
    }
}
