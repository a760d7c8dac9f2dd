//! Batches of the rows of a file.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use feedline_readers::notices::Notices;
use feedline_schemas::report::Warning;

use super::{
    assembly::Assembly, lookup_cells::LookupCells, new_rows::NewRows, records::Records, unreadable,
};
use crate::Error;

/// A batch of this many bytes ends, however few its rows are.
const BATCH_BYTES: usize = 32 << 20;

/// The batch in the making. The hook of a pipe hands its rows out while the parser waits.
#[derive(Clone)]
pub(super) struct SharedAssembly(Arc<Mutex<Assembly>>);

impl SharedAssembly {
    pub(super) fn new(assembly: Assembly) -> Self {
        Self(Arc::new(Mutex::new(assembly)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Assembly> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads rows and makes batches of them.
pub(super) struct RowBatcher {
    pub(super) records: Records,
    pub(super) assembly: SharedAssembly,
    pub(super) notices: Notices,
    pub(super) name: String,
    /// Most rows of a batch.
    pub(super) batch_rows: usize,
    pub(super) ended: bool,
}

impl RowBatcher {
    /// The next rows, at least one; `None` at the end. Blocks.
    ///
    /// # Errors
    /// [`Error::Input`] for a fault that makes the rest unreadable, and for objects that have none
    /// of the columns.
    pub(super) fn next_rows(&mut self) -> Result<Option<NewRows>, Error> {
        let mut is_full = false;
        while !self.ended && !is_full {
            let filled = self.records.fill(&self.assembly);
            match filled.map_err(|reason| unreadable(&self.name, reason))? {
                None => self.ended = true,
                Some(rows) => {
                    rows.check_first(&self.name)?;
                    is_full = rows.rows >= self.batch_rows || rows.bytes >= BATCH_BYTES;
                }
            }
        }
        let mut assembly = self.assembly.lock();
        if self.ended {
            assembly.warn_unread(&self.name);
        }
        assembly.take()
    }

    pub(super) fn ignored(&self) -> Vec<String> {
        self.records.ignored()
    }

    pub(super) fn warnings(&self) -> Vec<Warning> {
        self.notices.all()
    }

    /// Warnings of local times that clocks show twice, of the rows so far.
    pub(super) fn repeated_times(&self) -> Vec<Warning> {
        let assembly = self.assembly.lock();
        let lookups = assembly.lookups.as_ref();
        lookups.map_or_else(Vec::new, LookupCells::repeated_times)
    }

    pub(super) fn absent(&self) -> Vec<String> {
        let assembly = self.assembly.lock();
        let inputs = assembly.inputs.iter().zip(&assembly.met);
        let absent = inputs.filter(|(_, met)| !**met);
        absent.map(|(input, _)| input.name.clone()).collect()
    }
}
