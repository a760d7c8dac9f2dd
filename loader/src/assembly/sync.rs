//! Primitives of the ring and the pool. `tests/ring_model` compiles their files with other ones, of
//! a scheduler that tries orders of events.

pub(crate) use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic},
    thread,
};

pub(crate) use crossbeam_channel as channel;
pub(crate) use crossbeam_deque as deque;
