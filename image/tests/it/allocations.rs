//! Counts what each thread has allocated, and the most of it since a mark.
#![expect(
    unsafe_code,
    reason = "counting allocations means replacing the allocator"
)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    static NOW: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: i64) {
    // A thread that ends may free after its counters are gone.
    let counted = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        now.get()
    });
    if let Ok(now) = counted {
        let _gone = MOST.try_with(|most| most.set(most.get().max(now)));
    }
}

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed() as i64);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed() as i64);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size().cast_signed() as i64));
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both exist while the content is copied.
        count(size.cast_signed() as i64);
        // SAFETY: the caller keeps the contract of `realloc`.
        let moved = unsafe { System.realloc(pointer, layout, size) };
        count(-(layout.size().cast_signed() as i64));
        moved
    }
}

/// Runs `work`; also the most bytes that this thread held at once more than before.
pub(crate) fn most_of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = NOW.get();
    MOST.set(before);
    let result = work();
    (result, u64::try_from(MOST.get() - before).unwrap_or(0))
}

#[test]
fn what_was_held_at_once_is_counted() {
    let ((), most) = most_of(|| {
        let one = vec![1_u8; 1 << 20];
        drop(one);
        drop(vec![0_u8; 3 << 20]);
    });
    assert!((3 << 20..(3 << 20) + 4096).contains(&most), "{most}");
}
