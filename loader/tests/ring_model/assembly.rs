//! The loader's own files under test, with the scheduler's primitives in the place of theirs.

#[path = "../../src/assembly/batch_task.rs"]
pub(crate) mod batch_task;
#[path = "../../src/assembly/pool.rs"]
pub(crate) mod pool;
#[expect(dead_code, reason = "parts of it are for the rest of the loader")]
#[path = "../../src/assembly/progress.rs"]
pub(crate) mod progress;
#[path = "../../src/assembly/ready_queue.rs"]
pub(crate) mod ready_queue;
#[expect(dead_code, reason = "parts of it are for the rest of the loader")]
#[path = "../../src/assembly/ring.rs"]
pub(crate) mod ring;
#[expect(dead_code, reason = "parts of it are for the rest of the loader")]
#[path = "../../src/assembly/slab.rs"]
pub(crate) mod slab;
#[path = "../../src/assembly/turns.rs"]
pub(crate) mod turns;

pub(crate) use crate::{
    stubs::{block_types, fill, mixup_plan},
    sync,
};
