//! The first error of a device, kept for every later call.

use std::sync::{Arc, Mutex, PoisonError};

use super::DeviceFault;
use crate::Error;

/// State of a device: its first error, if any. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Health(Arc<Mutex<Option<DeviceFault>>>);

impl Health {
    /// The first error, if there was one.
    pub(super) fn check(&self) -> Result<(), Error> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(fault) => Err(fault.clone().into()),
            None => Ok(()),
        }
    }

    /// Keeps an error of the device.
    pub(super) fn note<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(Error::Device { source }) = &result {
            self.fail(source.clone());
        }
        result
    }

    /// Keeps an error.
    pub(super) fn fail(&self, fault: DeviceFault) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(fault);
    }
}
