//! Machine that computes a training.

use std::{fs, num::NonZero, path::Path, thread};

use feedline_schemas::config::{DeviceChoice, TrainConfig};

use crate::{device::Backend, parallel::Group};

/// Devices and memory of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Threads of a rank, for parts of batches.
    pub threads: usize,
    /// Ranks that share a batch, at least 1.
    pub ranks: usize,
    /// Those of them that are on this machine, at least 1.
    pub local_ranks: usize,
    /// True when batches are computed on a GPU.
    pub gpu: bool,
    /// Bytes of main memory that can still be taken; `None` where it is not known.
    pub memory_bytes: Option<u64>,
    /// The same of the GPU.
    pub gpu_memory_bytes: Option<u64>,
}

impl Machine {
    /// One rank with one thread, and unknown memory.
    pub const ALONE: Self = Self {
        threads: 1,
        ranks: 1,
        local_ranks: 1,
        gpu: false,
        memory_bytes: None,
        gpu_memory_bytes: None,
    };

    /// This machine, for a run of `group` with the device that `config` chooses. A requested GPU
    /// that is missing counts as one of unknown memory.
    #[must_use]
    pub fn of(config: &TrainConfig, group: &Group) -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let backend = Backend::find(config.device, group.local_rank()).ok();
        let asked = matches!(config.device, DeviceChoice::Cuda(_) | DeviceChoice::Wgpu(_));
        Self {
            threads: group.threads_of(processors),
            ranks: group.place().world,
            local_ranks: group.local_ranks(),
            gpu: backend
                .as_ref()
                .map_or(asked, |backend| backend.kind.is_gpu()),
            memory_bytes: available_memory(),
            gpu_memory_bytes: backend.and_then(|backend| backend.memory_bytes),
        }
    }
}

/// Bytes of main memory that this process can still take: the machine's available memory, or the
/// rest of its control groups' limits; `None` where the system reports neither.
#[must_use]
pub fn available_memory() -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| of_machine(&text));
    let group = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    machine.into_iter().chain(of_groups(&group, &read)).min()
}

fn of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// Memory files of a version of control groups.
struct Version {
    root: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Line of `memory.stat` with the bytes of files that were read and can be dropped again.
    files: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version {
        root: "/sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        files: "total_inactive_file ",
    },
    Version {
        root: "/sys/fs/cgroup",
        limit: "memory.max",
        used: "memory.current",
        files: "inactive_file ",
    },
];

/// The least that a limit of the process's control groups, or of those that they are in, leaves. A file that was read and can
/// be dropped again is no use of memory.
fn of_groups(groups: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    // `NUMBER:CONTROLLERS:/PATH`; without controllers in version 2.
    let own = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(":/")?;
        let is_memory = controllers.split(',').any(|name| name == "memory");
        let version = match (is_memory, controllers) {
            (true, _) => &VERSIONS[0],
            (false, "") => &VERSIONS[1],
            (false, _) => return None,
        };
        Some((version, path))
    });
    own.filter_map(|(version, path)| left(version, path, read))
        .min()
}

/// Rest of the limits of the group at `path`, and of its parents.
fn left(version: &Version, path: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let left = |folder: &Path| {
        let number = |file| read(&folder.join(file))?.trim().parse::<u64>().ok();
        let limit = number(version.limit)?;
        let stat = read(&folder.join("memory.stat")).unwrap_or_default();
        let files = stat.lines().find_map(|l| l.strip_prefix(version.files));
        let files = files.and_then(|text| text.parse().ok()).unwrap_or(0);
        let used = number(version.used).unwrap_or(0).saturating_sub(files);
        Some(limit.saturating_sub(used))
    };
    let root = Path::new(version.root);
    let folder = root.join(path);
    let folders = folder.ancestors().take_while(|f| f.starts_with(root));
    folders.filter_map(left).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_tells_what_is_available() {
        let text = "MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:      60 kB\n";
        assert_eq!(of_machine(text), Some(60 << 10));
        assert_eq!(of_machine("MemTotal: 100 kB\n"), None);
    }

    #[test]
    fn the_narrowest_limit_of_the_groups_counts_without_files_that_can_be_dropped() {
        let files = [
            ("/sys/fs/cgroup/a/memory.max", "1000\n"),
            ("/sys/fs/cgroup/a/memory.current", "400\n"),
            (
                "/sys/fs/cgroup/a/memory.stat",
                "anon 100\ninactive_file 250\n",
            ),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/memory.max", "5000\n"),
        ];
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        assert_eq!(of_groups("0::/a/b\n", &read), Some(850));
        assert_eq!(of_groups("0::/\n", &read), Some(5000));
        let files = [
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "900\n"),
            ("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "500\n"),
            (
                "/sys/fs/cgroup/memory/a/memory.stat",
                "inactive_file 1\ntotal_inactive_file 200\n",
            ),
            // No limit.
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
        ];
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        for groups in ["4:memory:/a\n", "0::/\n5:cpu,memory:/a\n3:cpu:/b\n"] {
            assert_eq!(of_groups(groups, &read), Some(600), "{groups}");
        }
        assert_eq!(of_groups("3:cpu:/a\n", &read), None);
        assert_eq!(of_groups("0::/c\n", &|_| None), None);
        assert_eq!(of_groups("", &read), None);
    }
}
