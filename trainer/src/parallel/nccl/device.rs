//! NCCL on this rank's GPU.
//!
//! One thread owns the communicator, which may not leave it. It copies numbers to the GPU, has NCCL add them up and copies
//! them back; while NCCL works it looks whether it is to give up, and then ends the communicator (`ncclCommAbort`),
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
    driver::{CudaContext, CudaSlice, CudaStream},
    nccl::{Comm, Id, ReduceOp, result::NcclError},
};

use crate::parallel::{
    RankPlace,
    inbox::{Inbox, Patience, RankFailure, TICK},
};

/// Times that the thread looks again at once, before it sleeps in between.
const EAGER: u32 = 1000;

/// Time between two looks.
const LOOK: Duration = Duration::from_micros(50);

type Sum = Result<Vec<f32>, String>;

/// Sums on this rank's GPU.
#[derive(Debug)]
pub(in crate::parallel) struct Nccl {
    rank: usize,
    jobs: Option<Sender<Vec<f32>>>,
    sums: Mutex<Receiver<Sum>>,
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

    /// Adds up `values` of all ranks.
    ///
    /// # Errors
    /// As [`Nccl::wait`].
    pub(super) fn sum(
        &self,
        values: Vec<f32>,
        inbox: &Inbox,
        patience: Patience,
    ) -> Result<Vec<f32>, RankFailure> {
        if let Some(jobs) = &self.jobs {
            // If the thread has ended, its missing response shows it.
            jobs.send(values).ok();
        }
        self.wait(inbox, patience)
    }

    /// Waits until the thread has met the other ranks, and then for each sum.
    ///
    /// # Errors
    /// Whose fault it is that it does not come; none will come any more.
    pub(super) fn wait(&self, inbox: &Inbox, patience: Patience) -> Result<Vec<f32>, RankFailure> {
        let failure = |reason| RankFailure {
            rank: self.rank,
            reason,
        };
        let sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let mut vigil = inbox.vigil();
        let mut ticks = 0;
        let failed = loop {
            match sums.recv_timeout(TICK) {
                Ok(sum) => return sum.map_err(failure),
                Err(RecvTimeoutError::Disconnected) => {
                    break failure("NCCL has been given up".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => ticks += 1,
            }
            if let Some(failure) = inbox.look(&mut vigil, patience) {
                break failure;
            }
            if TICK * ticks >= patience.message {
                let seconds = patience.message.as_secs_f64();
                break failure(format!(
                    "all ranks have come, and NCCL has not responded within {seconds} s; NCCL_DEBUG=INFO logs more"
                ));
            }
        };
        self.given_up.store(true, Relaxed);
        Err(failed)
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
    jobs: &Receiver<Vec<f32>>,
    say: &Sender<Sum>,
    given_up: &AtomicBool,
) {
    // Freed after the communicator has ended, and with it all work on it.
    let mut buffer = None;
    let meet = || {
        let context = CudaContext::new(gpu as usize).map_err(|e| driver("open the GPU", e))?;
        let stream = context
            .new_stream()
            .map_err(|e| driver("make a stream", e))?;
        let comm = Comm::from_rank(Arc::clone(&stream), place.rank, place.world, id);
        let comm =
            comm.map_err(|error| nccl("meet the other ranks", "ncclCommInitRank", &error))?;
        Ok((comm, stream))
    };
    let (comm, stream) = match meet() {
        Ok(met) => met,
        Err(reason) => {
            say.send(Err(reason)).ok();
            return;
        }
    };
    let mut said = say.send(Ok(Vec::new()));
    while let (Ok(()), Ok(values)) = (said, jobs.recv()) {
        let sum = add_up(&comm, &stream, &mut buffer, values, given_up);
        let failed = sum.is_err();
        said = say.send(sum);
        if failed {
            return;
        }
    }
}

fn add_up(
    comm: &Comm,
    stream: &Arc<CudaStream>,
    buffer: &mut Option<CudaSlice<f32>>,
    mut values: Vec<f32>,
    given_up: &AtomicBool,
) -> Sum {
    if values.is_empty() {
        return Ok(values);
    }
    if buffer
        .as_ref()
        .is_none_or(|buffer| buffer.len() < values.len())
    {
        let new = stream.alloc_zeros(values.len());
        *buffer = Some(new.map_err(|e| driver("make room for the numbers", e))?);
    }
    let buffer = buffer.as_mut().ok_or("there is no room for the numbers")?;
    let mut place = buffer.slice_mut(..values.len());
    stream
        .memcpy_htod(&values, &mut place)
        .map_err(|e| driver("copy the numbers to the GPU", e))?;
    comm.all_reduce_in_place(&mut place, &ReduceOp::Sum)
        .map_err(|error| nccl("add up", "ncclAllReduce", &error))?;
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
    stream
        .memcpy_dtoh(&place, &mut values)
        .and_then(|()| stream.synchronize())
        .map_err(|e| driver("copy the sum back", e))?;
    Ok(values)
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
mod tests {
    use std::thread;

    use feedline_loader::device::cuda::nccl_is_installed;
    use feedline_schemas::config::{Collective, DeviceChoice, ParallelConfig};

    use super::*;
    use crate::{
        device::Backend,
        parallel::{Group, Wire},
        run_folder::runtime,
        testing::uniform,
    };

    /// Adds up on so many GPUs, and compares with the same sums elsewhere.
    fn check(world: u32) {
        let gpu = |number| Backend::choose(DeviceChoice::Cuda(Some(number)), 0);
        if let Err(error) = gpu(world - 1) {
            eprintln!("skipped: {error}");
            return;
        }
        if !nccl_is_installed() {
            eprintln!("skipped: NCCL (`libnccl.so`) is not found");
            return;
        }
        let config = ParallelConfig {
            collective: Collective::Nccl,
            ..ParallelConfig::default()
        };
        // Long buckets, and then ones that have room already.
        for len in [0, 1, 1_000_000, 1000] {
            let on_one = |(group, gpu): (Group, u32)| {
                let runtime = runtime().unwrap();
                let ranks = group.join("the same", &config, runtime.handle()).unwrap();
                let mut expected = uniform(len, gpu as usize);
                ranks.all_reduce(&mut expected, Wire::Full).unwrap();
                let ranks = ranks.adding_up(&config, Some(gpu)).unwrap();
                let mut found = uniform(len, gpu as usize);
                ranks.all_reduce(&mut found, Wire::Full).unwrap();
                for (found, expected) in found.iter().zip(expected) {
                    assert!((found - expected).abs() <= 1e-6, "{found} {expected}");
                }
                found
            };
            let sums: Vec<Vec<f32>> = thread::scope(|scope| {
                let groups = Group::threads(world as usize).into_iter().zip(0..world);
                let threads: Vec<_> = groups.map(|one| scope.spawn(|| on_one(one))).collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .collect()
            });
            assert!(sums.iter().all(|sum| *sum == sums[0]), "{len}");
        }
    }

    #[test]
    fn two_gpus_add_up() {
        check(2);
    }

    #[test]
    fn one_gpu_gives_its_numbers_back() {
        if Backend::choose(DeviceChoice::Cuda(Some(0)), 0).is_err() || !nccl_is_installed() {
            eprintln!("skipped: no GPU, or no NCCL (`libnccl.so`)");
            return;
        }
        let nccl = Nccl::start(0, RankPlace::ALONE, &new_id().unwrap()).unwrap();
        let inbox = Inbox::new(vec![Arc::default()]);
        let patience = Patience {
            message: Duration::from_secs(60),
            silence: None,
        };
        nccl.wait(&inbox, patience).unwrap();
        for len in [0, 1, 1000] {
            let sum = nccl.sum(uniform(len, 3), &inbox, patience).unwrap();
            assert_eq!(sum, uniform(len, 3));
        }
    }
}
