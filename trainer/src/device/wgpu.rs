//! GPUs of any maker, through Vulkan, Metal or DirectX 12.

use super::Backend;

/// Adapter number `number`, or why there is none and what to do.
#[cfg(not(feature = "wgpu"))]
pub(super) fn adapter(_number: u32) -> Result<Backend, String> {
    Err(
        "no adapter: this program was built without them; build it with `--features wgpu`"
            .to_owned(),
    )
}

#[cfg(feature = "wgpu")]
pub(super) use self::found::adapter;

#[cfg(feature = "wgpu")]
mod found {
    use std::sync::{Mutex, PoisonError};

    use burn::{
        backend::wgpu::WgpuBackend,
        tensor::{Device, DeviceKind as Kind},
    };

    use super::Backend;
    use crate::device::DeviceKind;

    /// Graphics API of the adapters. Trying all APIs loads OpenGL drivers too, which write to the terminal and, where there is
    /// no GPU, can corrupt memory.
    const API: WgpuBackend = if cfg!(target_os = "linux") {
        WgpuBackend::Vulkan
    } else {
        WgpuBackend::Auto
    };

    /// Adapters of a kind that are looked for.
    const OF_KIND_MAX: usize = 16;

    /// Adapter number `number`, or why there is none and what to do.
    pub(in crate::device) fn adapter(number: u32) -> Result<Backend, String> {
        // A process opens each adapter once, and all of them to count them.
        static OPENED: Mutex<Vec<Device>> = Mutex::new(Vec::new());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.is_empty() {
            *opened = open_all();
        }
        let Some(device) = opened.get(number as usize) else {
            return Err(match opened.len() {
                0 => "no adapter: no driver for Vulkan, Metal or DirectX 12 was found; install that of the GPU".to_owned(),
                1 => format!("no adapter {number}: there is one; use `wgpu:0`"),
                count => format!("no adapter {number}: there are {count}; use `wgpu:0` to `wgpu:{}`", count - 1),
            });
        };
        let model = device.identity().map(|identity| identity.name);
        let model = model.unwrap_or_else(|| "adapter".to_owned());
        Ok(Backend {
            device: device.clone(),
            name: format!("{model} (wgpu:{number})"),
            model,
            kind: DeviceKind::Wgpu(number),
            memory_bytes: None,
        })
    }

    /// All adapters, those that are GPUs first.
    fn open_all() -> Vec<Device> {
        let kinds: [fn(usize) -> Kind; 3] =
            [Kind::DiscreteGpu, Kind::IntegratedGpu, Kind::VirtualGpu];
        let gpus = kinds.into_iter().flat_map(|kind| {
            let of_kind = (0..OF_KIND_MAX).map(move |i| open(kind(i)));
            of_kind.take_while(Option::is_some).flatten()
        });
        gpus.chain(open(Kind::Cpu)).collect()
    }

    fn open(kind: Kind) -> Option<Device> {
        let options = Device::wgpu_options().device_kind(kind.clone());
        match options.graphics_api(API).init() {
            Ok(device) => Some(device),
            Err(reason) => {
                tracing::debug!(?kind, %reason, "no adapter");
                None
            }
        }
    }
}
