//! NCCL on this rank's GPU.
//!
//! One thread owns the communicator, which may not leave it. It waits until the numbers are computed and has NCCL exchange them
//! where they are; while NCCL works it looks whether it is to give up, and then ends the communicator (`ncclCommAbort`),
//! which ends NCCL's work on the GPU.

use std::{
    ffi::c_char,
    fmt::Debug,
    sync::{
        Arc, Mutex, PoisonError,
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
        on_device::{ExchangedTensors, TensorExchange, TensorWork},
        recv_queue::{Patience, RankFailure, RecvQueue, TICK},
    },
};

mod runs;

/// Times that the thread looks again at once, before it sleeps in between.
const EAGER: u32 = 1000;

/// Time between two looks.
const LOOK: Duration = Duration::from_micros(50);

/// ExchangedTensors numbers, and the time that it took once they were computed.
type ExchangedRuns = (DeviceRuns, Duration);

/// Sums on this rank's GPU.
#[derive(Debug)]
pub(in crate::parallel) struct Nccl {
    rank: usize,
    jobs: Option<Sender<DeviceRuns>>,
    sums: Mutex<Receiver<Result<ExchangedRuns, String>>>,
    given_up: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
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
    fn exchange(&self, ranks: &Ranks, tensors: Vec<TensorWork>) -> Result<ExchangedTensors, Error> {
        match self.run(ranks, DeviceRuns::Tensors(tensors))? {
            (DeviceRuns::Tensors(done), spent) => Ok((done, spent)),
            _ => unreachable!("tensors come back as tensors"),
        }
    }
}

impl Nccl {
    /// Starts the thread, which meets the other ranks of the group `id` on GPU number `gpu`.
    ///
    /// # Errors
    /// The system gives no thread, or `id` names no group.
    pub(super) fn start(gpu: u32, place: RankPlace, id: &[u8]) -> Result<Self, String> {
        let id: [u8; 128] = id
            .try_into()
            .map_err(|_| "rank 0 has not named the group".to_owned())?;
        let id = Id::uninit(id.map(|byte| c_char::from_ne_bytes([byte])));
        let (jobs, new_jobs) = mpsc::channel();
        let (say, sums) = mpsc::channel();
        let given_up = Arc::new(AtomicBool::new(false));
        let looking = Arc::clone(&given_up);
        let thread = thread::Builder::new()
            .name("nccl".to_owned())
            .spawn(move || work(gpu, place, id, &new_jobs, &say, &looking))
            .map_err(|error| format!("the system gives no thread: {error}"))?;
        Ok(Self {
            rank: place.rank,
            jobs: Some(jobs),
            sums: Mutex::new(sums),
            given_up,
            thread: Some(thread),
        })
    }

    /// Exchanges numbers of all ranks where they are. No message goes before: a rank that does not come is found by its
    /// heartbeats.
    ///
    /// # Errors
    /// As [`Ranks::all_reduce`].
    pub(super) fn run(&self, ranks: &Ranks, runs: DeviceRuns) -> Result<ExchangedRuns, Error> {
        ranks.number();
        if let Some(jobs) = &self.jobs {
            // If the thread has ended, its missing response shows it.
            jobs.send(runs).ok();
        }
        self.wait(&ranks.recv_queue, ranks.patience)
            .map_err(|failure| ranks.error(failure))
    }

    /// Waits until the thread has met the other ranks, and then for each sum.
    ///
    /// # Errors
    /// Whose fault it is that it does not come; none will come any more.
    pub(super) fn wait(
        &self,
        recv_queue: &RecvQueue,
        patience: Patience,
    ) -> Result<ExchangedRuns, RankFailure> {
        let failure = |reason| RankFailure {
            rank: self.rank,
            reason,
        };
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let mut vigil = recv_queue.vigil();
        let mut ticks = 0;
        let failed = loop {
            match sums.recv_timeout(TICK) {
                Ok(sum) => return sum.map_err(failure),
                Err(RecvTimeoutError::Disconnected) => {
                    break failure("NCCL has been given up".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => ticks += 1,
            }
            if let Some(failure) = recv_queue.look(&mut vigil, patience) {
                break failure;
            }
            if TICK * ticks >= patience.message {
                break self.overdue(recv_queue, patience.message);
            }
        };
        self.given_up.store(true, Relaxed);
        Err(failed)
    }

    /// The failure of a sum that has not come within a time: of a rank that has not come to it, or of NCCL.
    fn overdue(&self, recv_queue: &RecvQueue, within: Duration) -> RankFailure {
        let seconds = within.as_secs_f64();
        let mut exchanges = recv_queue.status.iter().map(|at| at.whereabouts().exchange);
        let own = recv_queue.status[self.rank].whereabouts().exchange;
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
        self.jobs.take();
        let thread = self.thread.take().filter(|_| !self.given_up.load(Relaxed));
        if let Some(thread) = thread {
            // It says what went wrong before it ends.
            thread.join().ok();
        }
    }
}

/// Body of the thread. Says first whether it has met the others, then the sum for each job; ends with the first error.
fn work(
    gpu: u32,
    place: RankPlace,
    id: Id,
    jobs: &Receiver<DeviceRuns>,
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
    let mut said = say.send(Ok((DeviceRuns::None, Duration::ZERO)));
    while let (Ok(()), Ok(mut runs)) = (said, jobs.recv()) {
        let mut open = None;
        match exchange(&comm, &stream, (&mut runs, &mut open), given_up) {
            Ok(spent) => {
                drop(open);
                said = say.send(Ok((runs, spent)));
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

/// Exchanges `runs` in place, and leaves them in `open` while NCCL may write to them. Returns the time from when they were
/// computed.
fn exchange(
    comm: &Comm,
    stream: &Arc<CudaStream>,
    (runs, open): (&mut DeviceRuns, &mut Option<OpenRuns>),
    given_up: &AtomicBool,
) -> Result<Duration, String> {
    let opened = runs.open();
    let open = open.insert(opened.map_err(|e| driver("compute the numbers", e))?);
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
    Ok(SystemClock.monotonic().saturating_sub(begun))
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
            for step in 0..20_u8 {
                let factor = f64::from(step);
                let tensors = vec![
                    (TensorOp::AllReduce, values_there.clone() * factor),
                    (TensorOp::AllReduce, Tensor::zeros([3], &device) + factor),
                ];
                let (sums, _) = nccl.exchange(&ranks, tensors).unwrap();
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
            let gathered = nccl.exchange(&ranks, vec![(TensorOp::AllGather, share)]);
            let (mut gathered, _) = gathered.unwrap();
            let (_, gathered) = gathered.remove(0);
            let expected = (1..=of_all_ranks).flat_map(|share| [f32::from(share); 128]);
            assert_eq!(numbers(gathered.clone()), expected.collect::<Vec<_>>());
            let work = vec![(TensorOp::ReduceScatter, gathered * 2.0)];
            let (mut scattered, _) = nccl.exchange(&ranks, work).unwrap();
            let (_, scattered) = scattered.remove(0);
            let own = scattered.narrow(0, gpu as usize * 128, 128);
            let expected = 2.0 * f32::from(own_share) * of_all;
            assert_eq!(numbers(own), [expected; 128]);
            let shared = vec![(TensorOp::AllReduce, values_there.clone())];
            let error = nccl.exchange(&ranks, shared).unwrap_err();
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
