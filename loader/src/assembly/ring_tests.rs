//! The ring with real queues; `tests/ring_model.rs` has it with every order of events.

use super::{ring::Ring, slab::SlabShape};

fn ring(slabs: u32) -> Ring {
    Ring::new(
        SlabShape {
            rows: 2,
            row_bytes: [12, 4, 0, 0, 0],
        },
        slabs,
        None,
    )
}

#[test]
fn a_dropped_lease_puts_its_slab_back() {
    let ring = ring(2);
    let mut first = ring.lease(ring.free().try_recv().unwrap());
    let second = ring.lease(ring.free().try_recv().unwrap());
    assert!(ring.free().try_recv().is_err());
    let mut pieces = first.slab_mut().split(ring.shape(), [2].into_iter());
    pieces[0].columns()[0][0] = 7;
    first.slab_mut().join(pieces);
    ring.hand_out(&mut first);
    assert_eq!(ring.in_use(), 1);
    drop(first);
    assert_eq!((ring.in_use(), ring.free().len()), (0, 1));
    assert_eq!(
        ring.free().try_recv().unwrap().column(0)[0],
        7,
        "the same memory comes round again"
    );
    drop(second);
    assert_eq!(ring.free().len(), 1);
}

#[test]
fn a_lease_may_outlive_its_ring() {
    let ring = ring(1);
    let lease = ring.lease(ring.free().try_recv().unwrap());
    drop(ring);
    drop(lease);
}
