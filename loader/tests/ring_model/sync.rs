//! The items of the loader's `sync` module, with a scheduler that picks the next thread at each call.

pub(crate) use shuttle::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic},
    thread,
};

/// Queues with as many senders and receivers as one likes.
pub(crate) mod channel {
    use std::collections::VecDeque;

    use super::{Arc, Condvar, Mutex, MutexGuard};

    #[derive(Debug)]
    struct Channel<T> {
        state: Mutex<State<T>>,
        changed: Condvar,
    }

    #[derive(Debug)]
    struct State<T> {
        queue: VecDeque<T>,
        room: usize,
        senders: usize,
        receivers: usize,
    }

    /// The other end is gone, or for calls that do not wait, there is nothing or no room.
    #[derive(Debug)]
    pub(crate) struct Refused;

    #[derive(Debug)]
    pub(crate) struct Sender<T>(Arc<Channel<T>>);

    #[derive(Debug)]
    pub(crate) struct Receiver<T>(Arc<Channel<T>>);

    pub(crate) fn bounded<T>(room: usize) -> (Sender<T>, Receiver<T>) {
        let channel = Arc::new(Channel {
            state: Mutex::new(State {
                queue: VecDeque::new(),
                room,
                senders: 1,
                receivers: 1,
            }),
            changed: Condvar::new(),
        });
        (Sender(Arc::clone(&channel)), Receiver(channel))
    }

    pub(crate) fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
        bounded(usize::MAX)
    }

    impl<T> Channel<T> {
        fn state(&self) -> MutexGuard<'_, State<T>> {
            self.state.lock().unwrap()
        }

        fn change(&self, change: impl FnOnce(&mut State<T>)) {
            change(&mut self.state());
            self.changed.notify_all();
        }
    }

    impl<T> Sender<T> {
        pub(crate) fn send(&self, value: T) -> Result<(), Refused> {
            let waits =
                |state: &mut State<T>| state.receivers > 0 && state.queue.len() >= state.room;
            let mut state = self.0.changed.wait_while(self.0.state(), waits).unwrap();
            if state.receivers == 0 {
                return Err(Refused);
            }
            state.queue.push_back(value);
            drop(state);
            self.0.changed.notify_all();
            Ok(())
        }

        pub(crate) fn try_send(&self, value: T) -> Result<(), Refused> {
            let mut state = self.0.state();
            if state.receivers == 0 || state.queue.len() >= state.room {
                return Err(Refused);
            }
            state.queue.push_back(value);
            drop(state);
            self.0.changed.notify_all();
            Ok(())
        }
    }

    impl<T> Receiver<T> {
        pub(crate) fn recv(&self) -> Result<T, Refused> {
            let waits = |state: &mut State<T>| state.senders > 0 && state.queue.is_empty();
            let mut state = self.0.changed.wait_while(self.0.state(), waits).unwrap();
            let value = state.queue.pop_front().ok_or(Refused);
            drop(state);
            self.0.changed.notify_all();
            value
        }

        pub(crate) fn try_recv(&self) -> Result<T, Refused> {
            let value = self.0.state().queue.pop_front().ok_or(Refused);
            self.0.changed.notify_all();
            value
        }

        /// Returns true if all senders are gone.
        pub(crate) fn is_closed(&self) -> bool {
            self.0.state().senders == 0
        }
    }

    impl<T> Clone for Sender<T> {
        fn clone(&self) -> Self {
            self.0.change(|state| state.senders += 1);
            Self(Arc::clone(&self.0))
        }
    }

    impl<T> Clone for Receiver<T> {
        fn clone(&self) -> Self {
            self.0.change(|state| state.receivers += 1);
            Self(Arc::clone(&self.0))
        }
    }

    impl<T> Drop for Sender<T> {
        fn drop(&mut self) {
            self.0.change(|state| state.senders -= 1);
        }
    }

    impl<T> Drop for Receiver<T> {
        fn drop(&mut self) {
            self.0.change(|state| state.receivers -= 1);
        }
    }
}

/// A queue of tasks.
pub(crate) mod deque {
    use std::collections::VecDeque;

    pub(crate) use crossbeam_deque::Steal;

    use super::Mutex;

    pub(crate) struct Injector<T>(Mutex<VecDeque<T>>);

    impl<T> Injector<T> {
        pub(crate) fn new() -> Self {
            Self(Mutex::default())
        }

        pub(crate) fn push(&self, task: T) {
            self.0.lock().unwrap().push_back(task);
        }

        pub(crate) fn steal(&self) -> Steal<T> {
            let task = self.0.lock().unwrap().pop_front();
            task.map_or(Steal::Empty, Steal::Success)
        }
    }
}
