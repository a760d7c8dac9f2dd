//! Resource use of this process so far, as Linux counts it.

use std::{collections::BTreeMap, fs};

/// Length of a tick of `/proc/self/stat`, in seconds; the same on every Linux.
const TICK_SECONDS: f64 = 0.01;

/// Processor seconds of all threads, in user code and in the kernel.
pub(crate) fn cpu_seconds() -> [f64; 2] {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // The name of the program, in brackets, may hold spaces. Behind it, fields 14 and 15 are the times.
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap()..].split(' ').collect();
    [12, 13].map(|field| fields[field].parse::<f64>().unwrap() * TICK_SECONDS)
}

/// Name of the first thread of the process.
const MAIN: &str = "main";

/// Name of threads without a name of their own. They have that of the process.
pub(crate) const UNNAMED: &str = "unnamed";

/// Processor seconds of the threads that run now, by name without a number at its end.
pub(crate) fn cpu_seconds_by_thread() -> BTreeMap<String, f64> {
    let mut seconds = BTreeMap::new();
    let of_process = fs::read_to_string("/proc/self/comm").unwrap();
    let main = std::process::id().to_string();
    for thread in fs::read_dir("/proc/self/task").unwrap() {
        let folder = thread.unwrap().path();
        // A thread may end meanwhile.
        let read = |file: &str| fs::read_to_string(folder.join(file));
        let (Ok(name), Ok(times)) = (read("comm"), read("schedstat")) else {
            continue;
        };
        let name = if folder.ends_with(&main) {
            MAIN
        } else if name == of_process {
            UNNAMED
        } else {
            name.trim()
                .trim_end_matches(|c: char| c.is_ascii_digit() || "-:".contains(c))
        };
        let nanoseconds: f64 = times.split(' ').next().unwrap().parse().unwrap();
        *seconds.entry(name.to_owned()).or_insert(0.0) += nanoseconds * 1e-9;
    }
    seconds
}

/// MiB of memory in use now.
pub(crate) fn resident_mib() -> f64 {
    status_mib("VmRSS:")
}

/// MiB of memory in use at the most so far.
pub(crate) fn peak_mib() -> f64 {
    status_mib("VmHWM:")
}

fn status_mib(field: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1024.0
}
