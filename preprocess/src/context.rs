//! Resources of a build besides its configuration.

use std::{path::PathBuf, sync::Arc};

use feedline_schemas::progress::Progress;
use feedline_storage::{Store, StoreOptions, clock::Clock};

use crate::Engine;

/// Resources of a build besides its configuration.
#[derive(Clone, Debug)]
pub struct Context {
    /// Root of the pipeline: `landing/` is read, `dataset/` is written.
    pub root: Store,
    /// Receiver of progress.
    pub progress: Arc<dyn Progress>,
    /// Clock, for log lines only: nothing that is written depends on it.
    pub clock: Arc<dyn Clock>,
    /// Partitions the engine works in, at least 1. The result does not depend on it.
    pub partitions: usize,
    /// Memory the engine may use before it spills, in bytes; absent for no limit.
    pub memory_bytes: Option<u64>,
    /// Options of stores besides the root that the configuration names, such as that of a
    /// tokenizer.
    pub store_options: StoreOptions,
    /// The program itself, whose command `decode-images` decodes images in separate processes;
    /// absent without such a command.
    pub decoder: Option<PathBuf>,
    /// Engine that runs the queries. The result does not depend on it.
    pub engine: Engine,
    /// Local folder for spilled data; made when absent, emptied by the engine.
    pub scratch: PathBuf,
}
