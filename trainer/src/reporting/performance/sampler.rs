//! A thread that reads the figures of a GPU while a run trains.

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use super::nvml;
use crate::reporting::status::Tracker;

/// Time between two readings.
const EVERY: Duration = Duration::from_secs(1);

/// Time that the end of a run waits for a reading in progress: the driver of a GPU that is lost may not return.
const LAST_READING: Duration = Duration::from_secs(2);

/// Reads the figures of a GPU until it is dropped.
#[derive(Debug)]
pub(crate) struct GpuSampler {
    /// Dropped, it ends the thread.
    stop: Option<Sender<()>>,
    /// Disconnected once the thread has ended.
    ended: Receiver<()>,
}

impl Drop for GpuSampler {
    fn drop(&mut self) {
        self.stop.take();
        // Nothing is ever sent: it returns at the thread's end.
        self.ended.recv_timeout(LAST_READING).ok();
    }
}

impl GpuSampler {
    /// Begins to read the figures of NVIDIA GPU number `gpu` of this process for `tracker`; `None` without one. A machine
    /// without the library has no figures, and a debug message says so.
    pub(crate) fn start(gpu: Option<u32>, tracker: &Arc<Tracker>) -> Option<Self> {
        let (gpu, tracker) = (gpu?, Arc::clone(tracker));
        let (stop, stopped) = mpsc::channel::<()>();
        let (end, ended) = mpsc::channel();
        let work = move || {
            // Dropped last.
            let _end = end;
            let each = |reading| {
                tracker.performance.add(reading);
                stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout)
            };
            if let Err(reason) = nvml::read_each(nvml::LIBRARY, gpu, each) {
                tracing::debug!(reason, "no figures of the GPU");
            }
        };
        let thread = thread::Builder::new().name("gpu-figures".to_owned());
        let started = thread.spawn(work);
        if let Err(error) = &started {
            tracing::debug!(%error, "no figures of the GPU: the system gives no thread");
        }
        started.ok().map(|_| Self {
            stop: Some(stop),
            ended,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_a_gpu_has_no_thread() {
        assert!(GpuSampler::start(None, &Arc::default()).is_none());
    }
}
