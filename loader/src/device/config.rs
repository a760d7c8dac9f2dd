//! Settings of batches on a device.

use crate::Error;

/// Settings of the way of batches to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Batches on the device, ready or in use, at one time, 1 to 64. Two let one be brought beside the step, three also
    /// even out steps of unequal length. Default 3.
    pub buffers: u32,
    /// Limit in bytes of device memory for blocks to build batches there: at least those of the
    /// blocks that a batch may come from
    /// ([`LoaderPlan::window_bytes`](crate::LoaderPlan::window_bytes), of this rank's part).
    /// Unneeded memory is not allocated. 0: batches are built on the processor. Default 4 GiB.
    pub window_bytes: u64,
    /// Blocks that are on their way to the device at one time, each in host memory that is page-locked as batches are, 1
    /// to 1,024. Default 8.
    pub staging_blocks: u32,
    /// Fallback when batches cannot be built on the device. Default [`Unfit::Copy`].
    pub unfit: Unfit,
}

/// Fallback when batches of rows or tokens cannot be built on the device: their window is larger
/// than [`DeviceConfig::window_bytes`] or than the free device memory, the kernels cannot be
/// loaded, or rows are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unfit {
    /// They are built on the processor and copied, with a warning that says why. Default.
    #[default]
    Copy,
    /// The pass does not start: [`Error::Config`] says why.
    Refuse,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self {
            buffers: 3,
            window_bytes: 4 << 30,
            staging_blocks: 8,
            unfit: Unfit::Copy,
        }
    }
}

impl DeviceConfig {
    pub(super) fn check(&self) -> Result<(), Error> {
        let outside = |key, value: u32, most: u32| {
            let reason = format!("it is `{value}`, use `1` to `{most}`");
            match (1..=most).contains(&value) {
                true => Ok(()),
                false => Err(Error::Config { key, reason }),
            }
        };
        outside("device.buffers", self.buffers, 64)?;
        outside("device.staging_blocks", self.staging_blocks, 1024)
    }
}
