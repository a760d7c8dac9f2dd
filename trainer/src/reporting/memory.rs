//! Memory of this process.

use std::fs;

/// Bytes that the process holds in memory (its resident set); `None` where the system does not
/// report it.
pub(crate) fn resident() -> Option<u64> {
    of_status(&fs::read_to_string("/proc/self/status").ok()?)
}

fn of_status(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_set_is_read_in_bytes() {
        let status = "Name:\tfeedline\nVmHWM:\t    4096 kB\nVmRSS:\t    2048 kB\nThreads:\t3\n";
        assert_eq!(of_status(status), Some(2 << 20));
        assert_eq!(of_status("Name:\tfeedline\n"), None);
    }
}
