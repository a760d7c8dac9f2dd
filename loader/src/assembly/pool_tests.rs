//! The pool with real threads; `tests/ring_model.rs` has it with every order of events.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicU32, Ordering::SeqCst},
        mpsc::channel,
    },
    thread,
};

use feedline_storage::clock::SystemClock;

use super::pool::{Task, ThreadPool};
use crate::metrics::Meters;

fn pool(active: usize, most: usize) -> ThreadPool<u32> {
    let pool = ThreadPool::new(active, most, Arc::new(Meters::new(Arc::new(SystemClock))));
    pool.start().unwrap();
    pool
}

fn task(work: impl FnOnce(&mut u32) + Send + 'static) -> Task<u32> {
    Box::new(work)
}

#[test]
fn one_thread_does_tasks_in_the_order_they_came() {
    let pool = pool(1, 4);
    let (done, order) = channel();
    for round in 0..3 {
        pool.submit((0..100).map(|i| {
            let done = done.clone();
            task(move |scratch| {
                *scratch += 1;
                done.send((100 * round + i, *scratch)).unwrap();
            })
        }));
    }
    assert!(order.iter().take(300).eq((0..300).zip(1..)));
}

#[test]
fn threads_work_side_by_side_and_rest_when_told() {
    let pool = pool(3, 3);
    let (done, results) = channel();
    let meet = |threads: usize| {
        let barrier = Arc::new(Barrier::new(threads));
        pool.submit((0..threads).map(|_| {
            let (barrier, done) = (Arc::clone(&barrier), done.clone());
            task(move |_| {
                barrier.wait();
                done.send(thread::current().id()).unwrap();
            })
        }));
        let mut ids: Vec<_> = results.iter().take(threads).collect();
        ids.dedup();
        ids.len()
    };
    assert_eq!(meet(3), 3);
    pool.set_active(1).unwrap();
    assert_eq!((pool.active(), meet(1)), (1, 1));
    pool.set_active(9).unwrap();
    assert_eq!((pool.active(), meet(3)), (3, 3));
}

#[test]
fn fault_24_a_panic_in_a_task_costs_no_thread() {
    let pool = pool(2, 2);
    let (done, results) = channel();
    for round in 0..50 {
        let done = done.clone();
        pool.submit(
            [
                task(|_| panic!("an image that breaks its decoder")),
                task(move |_| done.send(round).unwrap()),
            ]
            .into_iter(),
        );
    }
    let mut rounds: Vec<_> = results.iter().take(50).collect();
    rounds.sort_unstable();
    assert!(rounds.into_iter().eq(0..50));
    let barrier = Arc::new(Barrier::new(3));
    pool.submit((0..2).map(|_| {
        let barrier = Arc::clone(&barrier);
        task(move |_| {
            barrier.wait();
        })
    }));
    // Passes only when both threads are still there.
    barrier.wait();
}

#[test]
fn a_dropped_pool_ends_its_threads_and_drops_what_waits() {
    let held = Arc::new(AtomicU32::new(0));
    let (begun_in, begun) = channel();
    let pool = pool(1, 1);
    let (inside, outside) = (Arc::clone(&held), Arc::clone(&held));
    pool.submit(
        [task(move |_| {
            begun_in.send(()).unwrap();
            inside.fetch_add(1, SeqCst);
        })]
        .into_iter(),
    );
    begun.recv().unwrap();
    pool.submit((0..1000).map(|_| {
        let held = Arc::clone(&outside);
        task(move |_| {
            held.fetch_add(1, SeqCst);
        })
    }));
    drop(outside);
    drop(pool);
    assert_eq!(Arc::strong_count(&held), 1);
}
