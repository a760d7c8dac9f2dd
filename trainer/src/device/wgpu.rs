//! GPUs of any maker, through Vulkan, Metal or DirectX 12.

use super::Backend;

/// Adapter number `number`, or why there is none and what to do. With `hardware_only`, those that compute on the processor
/// do not count.
#[cfg(not(feature = "wgpu"))]
pub(super) fn adapter(_number: u32, _hardware_only: bool) -> Result<Backend, String> {
    Err(
        "no adapter: this program was built without them; build it with `--features wgpu`"
            .to_owned(),
    )
}

#[cfg(feature = "wgpu")]
pub(super) use self::found::adapter;

#[cfg(feature = "wgpu")]
mod found {
    use std::{
        collections::BTreeMap,
        sync::{Mutex, OnceLock, PoisonError},
    };

    use burn::{
        backend::{CubeDevice, DispatchDevice, WgpuDeviceKind},
        tensor::{Device, DeviceKind as AdapterKind, DeviceType},
    };

    use super::Backend;
    use crate::device::DeviceKind;

    /// Kinds of the adapters, those that are GPUs first. Their order is that of the numbers.
    fn adapters() -> &'static [AdapterKind] {
        static ADAPTERS: OnceLock<Vec<AdapterKind>> = OnceLock::new();
        ADAPTERS.get_or_init(|| {
            let kind = |device: &Device| match device.as_dispatch() {
                DispatchDevice::Cube(CubeDevice::Wgpu(device)) => match device.kind {
                    WgpuDeviceKind::DiscreteGpu(i) => Some((0, i, AdapterKind::DiscreteGpu(i))),
                    WgpuDeviceKind::IntegratedGpu(i) => Some((1, i, AdapterKind::IntegratedGpu(i))),
                    WgpuDeviceKind::VirtualGpu(i) => Some((2, i, AdapterKind::VirtualGpu(i))),
                    WgpuDeviceKind::Cpu => Some((3, 0, AdapterKind::Cpu)),
                    _ => None,
                },
                _ => None,
            };
            let found = Device::enumerate(DeviceType::Wgpu).into_vec();
            let mut found: Vec<_> = found.iter().filter_map(kind).collect();
            found.sort_by_key(|(order, i, _)| (*order, *i));
            found.into_iter().map(|(_, _, kind)| kind).collect()
        })
    }

    /// Adapter number `number`, or why there is none and what to do. With `hardware_only`, those that compute on the
    /// processor do not count.
    pub(in crate::device) fn adapter(number: u32, hardware_only: bool) -> Result<Backend, String> {
        let all = adapters();
        let Some(kind) = all.get(number as usize) else {
            return Err(match all.len() {
                0 => "no adapter: no driver for Vulkan, Metal or DirectX 12 was found; install that of the GPU".to_owned(),
                1 => format!("no adapter {number}: there is one, `wgpu:0`"),
                count => format!("no adapter {number}: there are {count}, from `wgpu:0`"),
            });
        };
        if hardware_only && *kind == AdapterKind::Cpu {
            return Err(
                "the adapter computes on the processor, more slowly than without it".to_owned(),
            );
        }
        let device = opened(number, kind)?;
        let name = device.identity().map(|identity| identity.name);
        let name = name.unwrap_or_else(|| "adapter".to_owned());
        Ok(Backend {
            device,
            name: format!("{name} (wgpu:{number})"),
            kind: DeviceKind::Wgpu(number),
            memory_bytes: None,
        })
    }

    /// The device, which a process opens once.
    fn opened(number: u32, kind: &AdapterKind) -> Result<Device, String> {
        static OPENED: Mutex<BTreeMap<u32, Device>> = Mutex::new(BTreeMap::new());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = opened.get(&number) {
            return Ok(device.clone());
        }
        let device = Device::wgpu_options().device_kind(kind.clone()).init();
        let device = device.map_err(|error| {
            format!("adapter {number} cannot be used: {error}; update its driver")
        })?;
        opened.insert(number, device.clone());
        Ok(device)
    }
}
