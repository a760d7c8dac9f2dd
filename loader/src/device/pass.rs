//! Passes whose batches are delivered on a device.

use std::{fmt, sync::Arc};

use crossbeam_channel::{Receiver, unbounded};
use feedline_schemas::{loader_state::LoaderState, manifest::TargetKind};

use super::{
    BatchInfo, DeviceBatch, DeviceConfig, DeviceFault, Gather, Places, Slots, Unfit, UploadTotals,
    Uploader,
    copies::CopyStream,
    fault::Health,
    feed::Feeder,
    fit::DeviceFit,
    gathered::{FeederHandle, GatheredBatches, PlaceBatches, WindowReader, parts},
    slots::{Leave, Upload},
    staging::Staging,
    uploader::Device,
    window::DeviceWindow,
};
use crate::{
    BatchKind, EpochBatches, Error, Loader, assembly::fill::Filler, deliver::iterator::PassParts,
};

/// Place where batches are built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuiltOn {
    /// On the device, from blocks that are copied there once.
    Device {
        /// Blocks there is room for.
        slots: u32,
        /// Bytes of device memory they take.
        window_bytes: u64,
    },
    /// On the processor; batches are copied.
    Processor {
        /// Reason.
        reason: String,
    },
}

/// The batches of a pass, on a device, in order. From [`Loader::device_batches`].
///
/// An error of the device is given to this and every later call; an error of the loader is given
/// once, behind the batches made before it, and then `None`. Holding all [`DeviceConfig::buffers`]
/// batches gives [`Error::DeviceBatchesHeld`], after which the caller may drop one and continue.
/// Dropping it in mid-pass ends its threads and waits for the copies under way.
#[derive(Debug)]
pub struct DeviceBatches<D: Gather> {
    pass: DevicePass<D>,
    built_on: BuiltOn,
}

enum DevicePass<D: Gather> {
    Gathered(Box<GatheredBatches<D>>),
    Copied(Box<Uploader<D, EpochBatches>>),
}

impl<D: Gather> DeviceBatches<D> {
    /// Place where batches are built, with the reason.
    #[must_use]
    pub fn built_on(&self) -> &BuiltOn {
        &self.built_on
    }

    /// Totals of the copies so far: batches, or blocks and the places of rows in them.
    #[must_use]
    pub fn totals(&self) -> UploadTotals {
        match &self.pass {
            DevicePass::Gathered(pass) => pass.totals(),
            DevicePass::Copied(pass) => pass.totals(),
        }
    }

    /// Starts what can be started without waiting; see [`Uploader::pump`].
    ///
    /// # Errors
    ///
    /// The device failed.
    pub fn pump(&mut self) -> Result<(), Error> {
        match &mut self.pass {
            DevicePass::Gathered(pass) => pass.pump(),
            DevicePass::Copied(pass) => pass.pump(),
        }
    }
}

impl<D: Gather> Iterator for DeviceBatches<D> {
    type Item = Result<DeviceBatch<D, BatchInfo>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.pass {
            DevicePass::Gathered(pass) => pass.advance().transpose(),
            DevicePass::Copied(pass) => pass.next(),
        }
    }
}

impl<D: Gather> fmt::Debug for DevicePass<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gathered(pass) => pass.fmt(f),
            Self::Copied(pass) => pass.fmt(f),
        }
    }
}

impl Loader {
    /// The batches of the rest of the epoch at [`Loader::state`], as [`Loader::batches`] gives them, on a device: the
    /// same bytes in the same order.
    ///
    /// `compute` is the stream of the training step: batches are complete for kernels that are queued to it after `next`
    /// returned, and to be dropped when all kernels that read them are queued. A batch's parts are laid out as
    /// [`BatchInfo`] says; resume from [`BatchInfo::state`] of the last batch that was trained on.
    ///
    /// Rows, and tokens unless they are packed, are built on the device from blocks that are copied there once each;
    /// images and packed tokens are built on the processor and copied. Open the loader with
    /// [`lock_batches`](crate::LoaderBuilder::lock_batches), or copies are slow. Device memory is allocated here, and
    /// none until the pass ends.
    ///
    /// ```no_run
    /// # fn train_step(_: &feedline_loader::device::HostDriverMemory, _: std::ops::Range<usize>) {}
    /// use std::sync::Arc;
    ///
    /// use feedline_loader::{
    ///     Loader,
    ///     device::{DeviceConfig, HostDriver},
    /// };
    ///
    /// # fn main() -> Result<(), feedline_loader::Error> {
    /// // With the feature `cuda`: let gpu = Arc::new(Cuda::open(0)?), `.lock_batches(gpu.clone())` before it is opened,
    /// // and let compute = gpu.compute_stream()?.
    /// let (device, compute) = (Arc::new(HostDriver), ());
    /// let loader = Loader::builder("out/dataset").batch_size(4096).open_blocking()?;
    /// let mut state = loader.start_state();
    /// for batch in loader.device_batches(&device, compute, &DeviceConfig::default())? {
    ///     let batch = batch?;
    ///     // `x`: f32 `[rows, features]`, in bytes of device memory.
    ///     let x = batch.parts()[0].clone();
    ///     assert_eq!(x.len() % (4 * batch.info().rows), 0);
    ///     train_step(batch.memory(), x);
    ///     state = batch.info().state.clone();
    /// }
    /// # drop(state);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Loader::epoch`]; [`Error::Config`] for settings that cannot be used, or with [`Unfit::Refuse`];
    /// [`Error::Device`].
    pub fn device_batches<D: Gather>(
        &self,
        driver: &Arc<D>,
        compute: D::Stream,
        config: &DeviceConfig,
    ) -> Result<DeviceBatches<D>, Error> {
        let position = Some(self.shared_position());
        start(
            self.parts(self.upcoming(), position)?,
            driver,
            compute,
            config,
        )
    }

    /// As [`Loader::epoch`], on a device; see [`Loader::device_batches`].
    ///
    /// # Errors
    ///
    /// As [`Loader::device_batches`].
    pub fn device_epoch<D: Gather>(
        &self,
        start: LoaderState,
        driver: &Arc<D>,
        compute: D::Stream,
        config: &DeviceConfig,
    ) -> Result<DeviceBatches<D>, Error> {
        self::start(self.parts(start, None)?, driver, compute, config)
    }
}

fn start<D: Gather>(
    parts: PassParts,
    driver: &Arc<D>,
    compute: D::Stream,
    config: &DeviceConfig,
) -> Result<DeviceBatches<D>, Error> {
    config.check()?;
    let is_image = matches!(parts.engine.filler.kind, BatchKind::Images { .. });
    let prepared = prepare(&parts, driver, config);
    let reason = match prepared {
        Ok(prepared) => return gathered(parts, driver, compute, config, prepared),
        Err(reason) => reason,
    };
    if config.unfit == Unfit::Refuse && !is_image {
        return Err(Error::Config {
            key: "device.window_bytes",
            reason: format!("batches cannot be built on the device: {reason}"),
        });
    }
    if !is_image && config.window_bytes > 0 {
        tracing::warn!(
            reason,
            "BATCHES ARE BUILT ON THE PROCESSOR AND COPIED, not gathered on the device"
        );
    }
    let batches = EpochBatches::start(parts)?;
    let pass = Uploader::of_pass(Arc::clone(driver), compute, batches, config.buffers)?;
    Ok(DeviceBatches {
        pass: DevicePass::Copied(Box::new(pass)),
        built_on: BuiltOn::Processor { reason },
    })
}

/// Parts prepared before the pass starts.
struct PreparedParts<D: Gather> {
    fit: DeviceFit,
    window: Arc<DeviceWindow<D>>,
    kernels: D::Kernels,
}

/// Fits a window to a pass and makes it, or says why that cannot be.
fn prepare<D: Gather>(
    parts: &PassParts,
    driver: &Arc<D>,
    config: &DeviceConfig,
) -> Result<PreparedParts<D>, String> {
    if config.window_bytes == 0 {
        return Err("`window_bytes` is `0`".into());
    }
    let fit = DeviceFit::new(&parts.engine, &parts.order, parts.start, config)?;
    let kernels = driver.load_kernels().map_err(|error| text(&error))?;
    let window = DeviceWindow::new(driver, fit.slots, fit.part_bytes());
    let window =
        window.map_err(|fault: DeviceFault| format!("`{}` slots of blocks: {fault}", fit.slots))?;
    Ok(PreparedParts {
        fit,
        window: Arc::new(window),
        kernels,
    })
}

fn gathered<D: Gather>(
    mut pass: PassParts,
    driver: &Arc<D>,
    compute: D::Stream,
    config: &DeviceConfig,
    prepared: PreparedParts<D>,
) -> Result<DeviceBatches<D>, Error> {
    let PreparedParts {
        fit,
        window,
        kernels,
    } = prepared;
    let engine = Arc::clone(&pass.engine);
    let (uploads, leaves) = note_places(&mut pass, &fit);
    let (landed_in, landed) = unbounded();
    let (freed_in, freed) = unbounded();

    let (health, copy) = (Health::default(), driver.copy_stream()?);
    let buffers = |bytes| {
        let (compute, health) = (compute.clone(), health.clone());
        Device::new(driver, compute, health, config.buffers, bytes)
    };
    let rows = engine.shape().rows;
    let whole = parts(engine.filler.kind, engine.filler.target, rows);
    let (device, free) = buffers(whole.last().map_or(0, |part| part.end))?;
    // Places are ahead of batches as batches are of the step.
    let (ahead, places_free) = buffers(rows * 4 * fit.places.words())?;
    let feeder = Feeder {
        window: Arc::clone(&window),
        copies: CopyStream::new(driver, copy.clone()),
        staging: Staging::new(config.staging_blocks, fit.slot_bytes, engine.host_lock()),
        columns: fit.columns,
        uploads,
        freed,
        landed: landed_in,
        health: health.clone(),
        bytes: Arc::default(),
    };
    let built_on = BuiltOn::Device {
        slots: fit.slots,
        window_bytes: u64::from(fit.slots) * fit.slot_bytes as u64,
    };
    let next = pass.start;
    let batches = PlaceBatches(EpochBatches::start(pass)?);
    let pass = GatheredBatches {
        places: Some(Uploader::of_parts(
            batches,
            CopyStream::new(driver, copy),
            ahead,
            places_free,
        )),
        feeder: FeederHandle::start(feeder)?,
        reader: WindowReader::new(window, compute, landed, leaves, freed_in),
        engine,
        fit,
        device,
        buffers: free,
        waiting: None,
        next,
        kernels,
    };
    Ok(DeviceBatches {
        pass: DevicePass::Gathered(Box::new(pass)),
        built_on,
    })
}

/// Makes a pass note the positions of rows, instead of filling batches. Returns the blocks for the
/// device, and the slots that are left.
fn note_places(pass: &mut PassParts, fit: &DeviceFit) -> (Receiver<Upload>, Receiver<Leave>) {
    let engine = &pass.engine;
    let (uploads_in, uploads) = unbounded();
    let (leaves_in, leaves) = unbounded();
    let needs = pass.order.needs(pass.start, engine.share);
    let words = fit.places.words();
    let places = Places {
        ring: engine.place_ring(4 * words),
        filler: Arc::new(Filler {
            // Rows as long as the places of one.
            kind: BatchKind::Rows { features: words },
            target: TargetKind::None,
            images: None,
            places: Some(fit.places),
            ..(*engine.filler).clone()
        }),
        slots: Slots::new(needs, fit.slots, fit.slot_bytes, uploads_in, leaves_in),
    };
    pass.places = Some(places);
    (uploads, leaves)
}

/// An error with its cause.
fn text(error: &Error) -> String {
    let cause = std::error::Error::source(error);
    cause.map_or_else(|| error.to_string(), ToString::to_string)
}
