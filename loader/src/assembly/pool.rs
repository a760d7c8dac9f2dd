//! The threads that fill batches.
//!
//! All take from one queue, so that the oldest task is always the next to start: a batch is never late because a
//! worker keeps some of its tasks behind those of another. Tasks take from some ten microseconds to milliseconds, at
//! which one lock-free queue is no bottleneck.

use std::fmt;

use super::sync::{
    Arc, Condvar, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst, fence},
    deque::{Injector, Steal},
    thread::{self, JoinHandle},
};
use crate::{Error, guard::catching, metrics::Meters};

/// Name of the stage in errors and of its threads.
pub(crate) const STAGE: &str = "decode";

/// Something to do, with the memory that its thread keeps from task to task.
pub(crate) type Task<S> = Box<dyn FnOnce(&mut S) + Send>;

/// Threads that do tasks, oldest first. Ends them when it is dropped, which waits for tasks under way; those still in
/// the queue are dropped.
pub(crate) struct ThreadPool<S> {
    shared: Arc<SharedPool<S>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    most: usize,
    process: u32,
}

struct SharedPool<S> {
    queue: Injector<Task<S>>,
    /// Threads that may work; those numbered from here on rest.
    active: AtomicUsize,
    /// Active threads waiting for `wake`.
    asleep: AtomicUsize,
    door: Mutex<()>,
    wake: Condvar,
    /// Inactive threads wait on it.
    rest: Condvar,
    end: AtomicBool,
    meters: Arc<Meters>,
}

impl<S: Default + 'static> ThreadPool<S> {
    /// A pool that has `active` threads and can have up to `most`. Threads start when they are first needed.
    pub(crate) fn new(active: usize, most: usize, meters: Arc<Meters>) -> Self {
        let most = most.max(1);
        let shared = SharedPool {
            queue: Injector::new(),
            active: AtomicUsize::new(active.clamp(1, most)),
            asleep: AtomicUsize::new(0),
            door: Mutex::new(()),
            wake: Condvar::new(),
            rest: Condvar::new(),
            end: AtomicBool::new(false),
            meters,
        };
        Self {
            shared: Arc::new(shared),
            threads: Mutex::default(),
            most,
            process: std::process::id(),
        }
    }

    /// Starts the threads that are to be active and do not run yet.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub(crate) fn start(&self) -> Result<(), Error> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for number in threads.len()..self.active() {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new()
                .name(format!("feedline-{STAGE}"))
                .spawn(move || shared.work(number))
                .map_err(|source| Error::Thread {
                    stage: STAGE,
                    source,
                })?;
            threads.push(thread);
        }
        Ok(())
    }

    /// Threads that may work.
    pub(crate) fn active(&self) -> usize {
        self.shared.active.load(SeqCst)
    }

    /// Has this many threads work from now on, at least one.
    ///
    /// # Errors
    /// [`Error::Thread`].
    pub(crate) fn set_active(&self, active: usize) -> Result<(), Error> {
        self.shared.active.store(active.clamp(1, self.most), SeqCst);
        let started = self.start();
        self.shared.wake_all();
        started
    }

    /// Puts tasks behind all others.
    pub(crate) fn submit(&self, tasks: impl Iterator<Item = Task<S>>) {
        let mut count = 0;
        for task in tasks {
            self.shared.queue.push(task);
            count += 1;
        }
        self.shared.wake(count);
    }
}

impl<S> SharedPool<S> {
    fn wake(&self, tasks: usize) {
        // Either the sleeper sees the tasks or this sees the sleeper.
        fence(SeqCst);
        let asleep = self.asleep.load(SeqCst);
        if asleep > 0 {
            let _door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
            (0..tasks.min(asleep)).for_each(|_| self.wake.notify_one());
        }
    }

    fn wake_all(&self) {
        let _door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        self.wake.notify_all();
        self.rest.notify_all();
    }

    fn take(&self) -> Option<Task<S>> {
        loop {
            match self.queue.steal() {
                Steal::Success(task) => return Some(task),
                Steal::Empty => return None,
                Steal::Retry => {}
            }
        }
    }
}

impl<S: Default> SharedPool<S> {
    fn work(&self, number: usize) {
        let mut scratch = S::default();
        loop {
            // Tasks catch their own panics to report them; this keeps the thread.
            match catching(|| self.do_next(number, &mut scratch)) {
                Ok(true) => {}
                Ok(false) => return,
                Err(reason) => {
                    tracing::error!(reason, "a task of the loader panicked");
                    scratch = S::default();
                }
            }
        }
    }

    /// Waits for a task and does it; false when the pool ends.
    fn do_next(&self, number: usize, scratch: &mut S) -> bool {
        let Some(task) = self.next(number) else {
            return false;
        };
        let since = self.meters.now();
        task(scratch);
        self.meters.decode_busy.add(self.meters.since(since));
        true
    }

    /// Waits for a task; none when the pool ends.
    fn next(&self, number: usize) -> Option<Task<S>> {
        if let Some(task) = self.task_for(number) {
            return Some(task);
        }
        let since = self.meters.now();
        let mut door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.end.load(SeqCst) {
                return None;
            }
            if number >= self.active.load(SeqCst) {
                door = self.rest.wait(door).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            self.asleep.fetch_add(1, SeqCst);
            fence(SeqCst);
            let task = self.take();
            if task.is_none() {
                door = self.wake.wait(door).unwrap_or_else(PoisonError::into_inner);
            }
            self.asleep.fetch_sub(1, SeqCst);
            if task.is_some() {
                self.meters.decode_starved.add(self.meters.since(since));
                return task;
            }
        }
    }

    fn task_for(&self, number: usize) -> Option<Task<S>> {
        let may_work = number < self.active.load(SeqCst) && !self.end.load(SeqCst);
        may_work.then(|| self.take()).flatten()
    }
}

impl<S> Drop for SharedPool<S> {
    fn drop(&mut self) {
        while self.take().is_some() {}
    }
}

impl<S> Drop for ThreadPool<S> {
    fn drop(&mut self) {
        self.shared.end.store(true, SeqCst);
        self.shared.wake_all();
        let threads = self
            .threads
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        // After a fork the threads are those of another process, and waiting for them would never end.
        let here = std::process::id() == self.process;
        for thread in threads.drain(..).filter(|_| here) {
            // Panics are caught in the thread.
            thread.join().ok();
        }
    }
}

impl<S> fmt::Debug for ThreadPool<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("active", &self.shared.active)
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}
