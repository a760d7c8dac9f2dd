//! Rates of copies, what a training loop waits for data, and page-locking that is refused.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use cudarc::driver::CudaStream;
use feedline_loader::{
    Error,
    device::{
        DeviceFault, Driver as _, HostLock, LockRefused, Pinning, Uploader,
        cuda::{Cuda, CudaMemory, Kernels},
    },
};
use feedline_storage::clock::{Clock as _, SystemClock};
use serde_json::json;

use crate::{
    Report,
    source::{Fill, SlabSource, checksum},
};

/// 256 images of 224 x 224 bytes.
const BATCH: usize = 256 * 224 * 224 * 3;
const STEP_NANOSECONDS: u64 = 5_000_000;

pub(crate) fn check(cuda: &Cuda, report: &mut Report, is_quick: bool) -> Result<(), Error> {
    let kernels = Kernels::load(cuda)?;
    let lock: Arc<dyn HostLock> = Arc::new(cuda.clone());
    correctness(cuda, &kernels, report)?;
    let batches = if is_quick { 8 } else { 400 };
    let probe = cuda.probe_host_to_device(BATCH, if is_quick { 4 } else { 100 })?;
    report.note("probe_host_to_device", probe / 1e9, "GB/s");
    let source = SlabSource::start(Some(&lock), 4, BATCH, batches, Fill::First);
    let pinning = source.pinning;
    let rate = copy_rate(cuda, source, batches)?;
    report.must(
        "slabs_locked",
        pinning == Pinning::Whole,
        json!({ "pinning": pinning }),
    );
    report.note("uploader_host_to_device", rate / 1e9, "GB/s");
    report.measured(
        "uploader_beside_probe",
        rate / probe,
        "share",
        ">= 0.9",
        rate >= 0.9 * probe,
    );
    let plain = SlabSource::start(None, 4, BATCH, batches.min(40), Fill::First);
    report.note(
        "pageable_host_to_device",
        copy_rate(cuda, plain, batches.min(40))? / 1e9,
        "GB/s",
    );
    training_loop(
        cuda,
        &kernels,
        &lock,
        report,
        if is_quick { 8 } else { 600 },
    )
}

/// Bytes per second of copies one after another, the first few left out.
fn copy_rate(cuda: &Cuda, source: SlabSource, batches: u64) -> Result<f64, Error> {
    let stream = cuda.compute_stream()?;
    let mut uploader = uploader(cuda, &stream, source, BATCH)?;
    let warm = batches / 10;
    let mut since = SystemClock.monotonic();
    for number in 0..batches {
        let Some(batch) = uploader.next() else { break };
        drop(batch?);
        if number + 1 == warm {
            synchronize(&stream)?;
            since = SystemClock.monotonic();
        }
    }
    // The stream waited for every copy.
    synchronize(&stream)?;
    let seconds = SystemClock.monotonic().saturating_sub(since).as_secs_f64();
    Ok(BATCH as f64 * (batches - warm) as f64 / seconds)
}

/// Runs a loop of steps of known length, with the loader and with one batch prepared before.
fn training_loop(
    cuda: &Cuda,
    kernels: &Kernels,
    lock: &Arc<dyn HostLock>,
    report: &mut Report,
    steps: u64,
) -> Result<(), Error> {
    let stream = cuda.compute_stream()?;
    let (words, sum) = (cuda.allocate(BATCH)?, zeros(cuda, 8)?);
    let since = SystemClock.monotonic();
    for _ in 0..steps {
        kernels.spin(&stream, STEP_NANOSECONDS)?;
        kernels.checksum(&stream, (&words, 0..BATCH), (&sum, 0..8))?;
        synchronize(&stream)?;
    }
    let alone = SystemClock.monotonic().saturating_sub(since).as_secs_f64();

    let source = SlabSource::start(Some(lock), 4, BATCH, steps + 1, Fill::First);
    let mut uploader = uploader(cuda, &stream, source, BATCH)?;
    // The first batch is not the loop's to wait for.
    drop(uploader.next().transpose()?);
    let (mut waited, since) = (0.0, SystemClock.monotonic());
    for _ in 0..steps {
        let asked = SystemClock.monotonic();
        let Some(batch) = uploader.next().transpose()? else {
            break;
        };
        waited += SystemClock.monotonic().saturating_sub(asked).as_secs_f64();
        kernels.spin(&stream, STEP_NANOSECONDS)?;
        kernels.checksum(
            &stream,
            (batch.memory(), batch.parts()[0].clone()),
            (&sum, 0..8),
        )?;
        drop(batch);
        synchronize(&stream)?;
    }
    let whole = SystemClock.monotonic().saturating_sub(since).as_secs_f64();
    report.note("step_alone", 1e3 * alone / steps as f64, "ms");
    report.note("step_with_loader", 1e3 * whole / steps as f64, "ms");
    report.measured(
        "wait_in_next",
        waited / whole,
        "share",
        "< 0.01",
        waited < 0.01 * whole,
    );
    let lost = 1.0 - alone / whole;
    report.measured("data_wait", lost, "share", "< 0.01", lost < 0.01);
    Ok(())
}

/// Refuses to lock more than a budget, as a limit on locked memory does.
#[derive(Debug)]
struct Limited {
    cuda: Cuda,
    budget: usize,
    /// Bytes by address.
    locked: Mutex<BTreeMap<usize, usize>>,
}

impl HostLock for Limited {
    fn lock(&self, address: usize, bytes: usize) -> Result<(), LockRefused> {
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        if locked.values().sum::<usize>() + bytes > self.budget {
            return Err(LockRefused::new("the budget of this check is spent"));
        }
        self.cuda.lock(address, bytes)?;
        locked.insert(address, bytes);
        Ok(())
    }

    fn unlock(&self, address: usize) {
        let mut locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        locked.remove(&address);
        self.cuda.unlock(address);
    }
}

/// Every word arrives, from slabs that are locked whole, in part, or not at all.
fn correctness(cuda: &Cuda, kernels: &Kernels, report: &mut Report) -> Result<(), Error> {
    const BYTES: usize = 6 << 20;
    let cases = [
        (usize::MAX, Pinning::Whole),
        (2 * BYTES, Pinning::Fewer),
        (2 * BYTES - 1, Pinning::Part),
        (0, Pinning::Refused),
    ];
    for (budget, expected) in cases {
        let lock: Arc<dyn HostLock> = Arc::new(Limited {
            cuda: cuda.clone(),
            budget,
            locked: Mutex::default(),
        });
        let source = SlabSource::start(Some(&lock), 4, BYTES, 40, Fill::Every);
        let (pinning, slabs) = (source.pinning, source.slabs);
        let wrong = wrong_batches(cuda, kernels, source, BYTES)?;
        let details = json!({ "pinning": pinning, "expected": expected, "slabs": slabs, "wrong_batches": wrong });
        report.must(
            "fault_29_batches_whole",
            wrong == 0 && pinning == expected,
            details,
        );
    }
    Ok(())
}

fn wrong_batches(
    cuda: &Cuda,
    kernels: &Kernels,
    source: SlabSource,
    bytes: usize,
) -> Result<u64, Error> {
    let stream = cuda.compute_stream()?;
    let mut wrong = 0;
    for (expected, batch) in (0..).zip(uploader(cuda, &stream, source, bytes)?) {
        let batch = batch?;
        let sum = zeros(cuda, 8)?;
        kernels.checksum(
            &stream,
            (batch.memory(), batch.parts()[0].clone()),
            (&sum, 0..8),
        )?;
        let found = cuda.read(&sum, 0..8, &stream)?;
        let right = *batch.info() == expected && found == checksum(expected, bytes).to_le_bytes();
        wrong += u64::from(!right);
    }
    Ok(wrong)
}

fn uploader(
    cuda: &Cuda,
    stream: &Arc<CudaStream>,
    source: SlabSource,
    bytes: usize,
) -> Result<Uploader<Cuda, SlabSource>, Error> {
    Uploader::new(Arc::new(cuda.clone()), Arc::clone(stream), source, 3, bytes)
}

fn zeros(cuda: &Cuda, bytes: usize) -> Result<CudaMemory, Error> {
    let memory = cuda.allocate(bytes)?;
    cuda.write(&vec![0; bytes], &memory, 0)?;
    Ok(memory)
}

fn synchronize(stream: &CudaStream) -> Result<(), Error> {
    let done = stream.synchronize();
    Ok(done.map_err(|error| DeviceFault::new("wait for a step", error.to_string()))?)
}
