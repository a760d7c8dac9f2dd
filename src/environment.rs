//! The process environment, read once.

use std::{collections::BTreeMap, env, fmt, fs, os::unix::fs::MetadataExt as _, path::PathBuf};

use feedline_schemas::config::SecretRef;
use feedline_storage::StoreOptions;

/// A snapshot of the environment. Its values may be secrets and are never shown.
#[derive(Clone)]
pub(crate) struct Environment {
    vars: BTreeMap<String, String>,
}

impl Environment {
    pub(crate) fn read() -> Self {
        let text = |(k, v): (std::ffi::OsString, std::ffi::OsString)| {
            Some((k.into_string().ok()?, v.into_string().ok()?))
        };
        Self {
            vars: env::vars_os().filter_map(text).collect(),
        }
    }

    /// Filter of log lines, in the form `info` or `feedline_ingest=debug`.
    pub(crate) fn log_filter(&self) -> Option<&str> {
        self.vars.get("FEEDLINE_LOG").map(String::as_str)
    }

    /// Settings of object stores.
    pub(crate) fn store_options(&self) -> StoreOptions {
        let of_stores = |name: &str| {
            ["AWS_", "GOOGLE_", "AZURE_"]
                .iter()
                .any(|prefix| name.starts_with(prefix))
        };
        let vars = self.vars.iter().filter(|(name, _)| of_stores(name));
        StoreOptions {
            vars: vars.map(|(k, v)| (k.clone(), v.clone())).collect(),
        }
    }

    /// A folder for data on its way through a build, one per user. Builds share it under locks, and each removes what
    /// a killed one left.
    pub(crate) fn scratch() -> PathBuf {
        let user = fs::metadata("/proc/self").map_or(0, |m| m.uid());
        env::temp_dir().join(format!("feedline-{user}"))
    }

    /// Memory a build may use before it spills: half of what the machine, or the control group, has left.
    pub(crate) fn memory_bytes() -> Option<u64> {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let available = text("/proc/meminfo").lines().find_map(|line| {
            let kib = line
                .strip_prefix("MemAvailable:")?
                .trim()
                .strip_suffix(" kB")?;
            kib.parse::<u64>().ok().map(|kib| kib << 10)
        });
        let limit = text("/sys/fs/cgroup/memory.max").trim().parse::<u64>().ok();
        available
            .into_iter()
            .chain(limit)
            .min()
            .map(|bytes| bytes / 2)
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.vars.keys()).finish()
    }
}

impl feedline_ingest::Secrets for Environment {
    fn resolve(&self, reference: &SecretRef) -> Result<String, String> {
        let secret = match (&reference.env, &reference.file) {
            (Some(name), None) => self.vars.get(name).cloned().ok_or_else(|| {
                format!(
                    "environment variable `{name}` is not set; set it, or name another in `env`"
                )
            })?,
            (None, Some(path)) => fs::read_to_string(path)
                .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
                .map_err(|e| format!("cannot read the secret file `{path}`: {e}"))?,
            _ => return Err("a secret needs exactly one of `env` and `file`".into()),
        };
        Ok(format!("{}{secret}", reference.prefix))
    }
}
