//! Memory that is freed and soon asked for again.

use std::hint::black_box;

/// Bytes of the largest block whose freeing glibc learns from, less what it puts in front of a block.
const LARGEST: usize = (32 << 20) - (64 << 10);

/// Asks glibc to keep up to 64 MiB of freed memory for each thread, and large blocks among it.
///
/// A step frees what the next one asks for. By default large blocks go back to the system and must be cleared and mapped
/// again, a fifth of the time of a step of a convolutional network. glibc raises its two limits when a large block is
/// freed, to the block's size and twice that (mallopt(3), `M_MMAP_THRESHOLD`). Other allocators take and free a block.
pub(super) fn keep_freed() {
    drop(black_box(Vec::<u8>::with_capacity(LARGEST)));
}
