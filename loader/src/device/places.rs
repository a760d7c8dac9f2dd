//! Places of rows on a device.

use std::sync::Arc;

use super::slots::Slots;
use crate::assembly::{fill::Filler, ring::Ring};

/// Parts of a pass that notes places instead of filling batches.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) ring: Ring,
    pub(crate) filler: Arc<Filler>,
    pub(crate) slots: Slots,
}
