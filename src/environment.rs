//! The process environment, read once.

use std::{
    collections::BTreeMap,
    env, fmt, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use anyhow::Context as _;
use feedline_schemas::config::SecretRef;
use feedline_storage::StoreOptions;
use feedline_trainer::Group;

/// Variables of a process launcher with rank and world size.
struct Launcher {
    world: &'static str,
    rank: &'static str,
    /// Processes on this machine.
    local: &'static str,
    /// A variable required for the others to count: a batch job has some of them before its
    /// processes start.
    needs: Option<&'static str>,
    is_mpirun: bool,
}

/// Deliberately set variables come first, then those set closest to the process.
const LAUNCHERS: [Launcher; 4] = [
    Launcher {
        world: "WORLD_SIZE",
        rank: "RANK",
        local: "LOCAL_WORLD_SIZE",
        needs: None,
        is_mpirun: false,
    },
    Launcher {
        world: "OMPI_COMM_WORLD_SIZE",
        rank: "OMPI_COMM_WORLD_RANK",
        local: "OMPI_COMM_WORLD_LOCAL_SIZE",
        needs: None,
        is_mpirun: true,
    },
    Launcher {
        world: "SLURM_NTASKS",
        rank: "SLURM_PROCID",
        local: "SLURM_NTASKS_PER_NODE",
        needs: Some("SLURM_PROCID"),
        is_mpirun: false,
    },
    Launcher {
        world: "PMI_SIZE",
        rank: "PMI_RANK",
        local: "MPI_LOCALNRANKS",
        needs: None,
        is_mpirun: true,
    },
];

/// A snapshot of the environment. Its values may be secrets and are never shown.
#[derive(Clone)]
pub(crate) struct Environment {
    vars: BTreeMap<String, String>,
    /// Created once, so that all callers get the same rank.
    group: OnceLock<Group>,
}

impl Environment {
    pub(crate) fn read() -> Self {
        let text = |(k, v): (std::ffi::OsString, std::ffi::OsString)| {
            Some((k.into_string().ok()?, v.into_string().ok()?))
        };
        Self {
            vars: env::vars_os().filter_map(text).collect(),
            group: OnceLock::new(),
        }
    }

    /// Filter of log lines, in the form `info` or `feedline_ingest=debug`. An empty one is none.
    pub(crate) fn log_filter(&self) -> Option<&str> {
        let filter = self.vars.get("FEEDLINE_LOG").map(String::as_str);
        filter.filter(|text| !text.trim().is_empty())
    }

    /// Secret that the programs of a cluster share.
    pub(crate) fn cluster_secret(&self) -> Option<&str> {
        self.vars.get("FEEDLINE_CLUSTER_SECRET").map(String::as_str)
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
            ..StoreOptions::default()
        }
    }

    /// Returns the group of processes that this one trains with, as its launcher describes it:
    /// torchrun, Open MPI's `mpirun`, Slurm, or the `mpiexec` of MPICH and Intel. The first of
    /// [`LAUNCHERS`] whose variables are set counts.
    ///
    /// # Errors
    /// A variable is missing or is no number.
    pub(crate) fn group(&self) -> anyhow::Result<Group> {
        if let Some(group) = self.group.get() {
            return Ok(group.clone());
        }
        let group = self.new_group()?;
        Ok(self.group.get_or_init(|| group).clone())
    }

    /// Returns true if this process reports for the group. All ranks but the first show errors
    /// only.
    pub(crate) fn leads(&self) -> bool {
        self.group().map_or(true, |group| group.rank() == 0)
    }

    fn new_group(&self) -> anyhow::Result<Group> {
        let get = |name: &str| self.vars.get(name).map(String::as_str);
        let number = |name: &str| -> anyhow::Result<Option<usize>> {
            let text = get(name);
            let number = text.map(|text| {
                let number = text.trim().parse();
                number.with_context(|| format!("`{name}` is `{text}` and must be a whole number"))
            });
            number.transpose()
        };
        let is_set = |launcher: &&Launcher| {
            let needed = [Some(launcher.world), launcher.needs];
            needed.into_iter().flatten().all(|name| get(name).is_some())
        };
        let Some(launcher) = LAUNCHERS.iter().find(is_set) else {
            return Ok(Group::alone());
        };
        let world = number(launcher.world)?.unwrap_or(1);
        if world <= 1 {
            return Ok(Group::alone());
        }
        let rank =
            number(launcher.rank)?.with_context(|| format!("`{}` is not set", launcher.rank))?;
        anyhow::ensure!(
            rank < world,
            "`{}` is {rank} and must be below the number of ranks, {world}",
            launcher.rank
        );
        let local = number(launcher.local)?.unwrap_or(1);
        let nodes = get("SLURM_JOB_NODELIST").or_else(|| get("SLURM_NODELIST"));
        let host = get("MASTER_ADDR").map(str::to_owned);
        let host = host
            .or_else(|| nodes.map(first_host))
            .unwrap_or_else(|| "127.0.0.1".to_owned());
        let port = get("MASTER_PORT").unwrap_or("29400");
        let mut group = Group::processes(rank, world, local, &format!("{host}:{port}"));
        if let Some(secret) = get("FEEDLINE_JOB_SECRET").filter(|secret| !secret.is_empty()) {
            group = group.with_secret(secret);
        }
        // The agent of torchrun keeps its store there, unless a variable denies it.
        let has_store = get("TORCHELASTIC_USE_AGENT_STORE");
        if has_store.is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            group = group.under_agent(get("TORCHELASTIC_RUN_ID").unwrap_or_default());
        }
        Ok(if launcher.is_mpirun {
            group.started_by_mpirun()
        } else {
            group
        })
    }

    /// Returns true if a variable is set.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.vars.contains_key(name)
    }

    /// Scratch folder for data of builds, one per user. Builds share it under locks, and each
    /// removes the files that a killed one left. `TMPDIR` moves it, for example if the disk is too
    /// small.
    pub(crate) fn scratch() -> PathBuf {
        let user = fs::metadata("/proc/self").map_or(0, |m| m.uid());
        env::temp_dir().join(format!("feedline-{user}"))
    }

    /// Memory a build may use before it spills: half of the free memory of the machine, or of the
    /// control group.
    pub(crate) fn memory_bytes() -> Option<u64> {
        feedline_trainer::available_memory().map(|bytes| bytes / 2)
    }
}

/// The first host of a list as Slurm writes it, such as `node[03-05,7],other`.
fn first_host(list: &str) -> String {
    let Some((prefix, rest)) = list.split_once('[').filter(|(p, _)| !p.contains(',')) else {
        return list.split(',').next().unwrap_or(list).to_owned();
    };
    let number = rest.split([',', '-', ']']).next().unwrap_or_default();
    format!("{prefix}{number}")
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.vars.keys()).finish()
    }
}

/// Place where a relative path was looked for, for a message.
fn looked_for(path: &str) -> String {
    match (Path::new(path).is_relative(), env::current_dir()) {
        (true, Ok(folder)) => format!(
            " (looked for `{}`); check the path, a relative one begins at the current folder",
            folder.join(path).display()
        ),
        _ => String::new(),
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
                .map_err(|e| {
                    format!(
                        "cannot read the secret file `{path}`: {e}{}",
                        looked_for(path)
                    )
                })?,
            _ => return Err("a secret needs exactly one of `env` and `file`".into()),
        };
        Ok(format!("{}{secret}", reference.prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(vars: &[(&str, &str)]) -> String {
        let vars = vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let environment = Environment {
            vars: vars.collect(),
            group: OnceLock::new(),
        };
        match environment.group() {
            Ok(group) => format!("{group:?}"),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn ranks_are_those_of_torchrun_or_slurm() {
        let alone = format!("{:?}", Group::alone());
        assert_eq!(group(&[]), alone);
        assert_eq!(group(&[("WORLD_SIZE", "1"), ("RANK", "0")]), alone);
        let torch = [
            ("WORLD_SIZE", "4"),
            ("RANK", "2"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "here"),
            ("MASTER_PORT", "7"),
        ];
        let expected = format!("{:?}", Group::processes(2, 4, 2, "here:7"));
        assert_eq!(group(&torch), expected);
        let slurm = [
            ("SLURM_NTASKS", "4"),
            ("SLURM_PROCID", "3"),
            ("SLURM_JOB_NODELIST", "node[03-05,7],other"),
        ];
        let expected = format!("{:?}", Group::processes(3, 4, 1, "node03:29400"));
        assert_eq!(group(&slurm), expected);
    }

    #[test]
    fn ranks_leave_the_port_of_torchrun_to_its_agent() {
        let job = [
            ("WORLD_SIZE", "2"),
            ("RANK", "1"),
            ("TORCHELASTIC_RUN_ID", "none"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ];
        let own = Group::processes(1, 2, 1, "127.0.0.1:29400");
        assert_eq!(
            group(&job),
            format!("{:?}", own.clone().under_agent("none"))
        );
        let free = [&job[..3], &[("TORCHELASTIC_USE_AGENT_STORE", "False")]];
        assert_eq!(group(&free.concat()), format!("{own:?}"));
    }

    #[test]
    fn ranks_have_the_secret_of_their_job() {
        let torch = [("WORLD_SIZE", "2"), ("RANK", "0")];
        let secret = [torch[0], torch[1], ("FEEDLINE_JOB_SECRET", "canary")];
        let (open, closed) = (group(&torch), group(&secret));
        assert_ne!(open, closed);
        assert!(closed.contains("JobSecret") && !closed.contains("canary"));
    }

    #[test]
    fn ranks_that_mpirun_started_meet_by_mpi() {
        let expected = format!(
            "{:?}",
            Group::processes(1, 4, 2, "127.0.0.1:29400").started_by_mpirun()
        );
        assert_ne!(
            expected,
            format!("{:?}", Group::processes(1, 4, 2, "127.0.0.1:29400"))
        );
        let open_mpi = [
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        assert_eq!(group(&open_mpi), expected);
        let mpich = [
            ("PMI_SIZE", "4"),
            ("PMI_RANK", "1"),
            ("MPI_LOCALNRANKS", "2"),
        ];
        assert_eq!(group(&mpich), expected);
        // `mpirun` in a batch job of Slurm, whose own variables describe the job's first process.
        let job = [("SLURM_NTASKS", "8"), ("SLURM_PROCID", "0")];
        assert_eq!(group(&[&open_mpi[..], &job[..]].concat()), expected);
        // `srun` sets its own variables and those of MPICH.
        let slurm = format!("{:?}", Group::processes(0, 8, 1, "127.0.0.1:29400"));
        assert_eq!(group(&[&mpich[..], &job[..]].concat()), slurm);
        let alone = format!("{:?}", Group::alone());
        assert_eq!(
            group(&[("OMPI_COMM_WORLD_SIZE", "1"), ("OMPI_COMM_WORLD_RANK", "0")]),
            alone
        );
    }

    #[test]
    fn wrong_variables_are_named() {
        assert!(group(&[("WORLD_SIZE", "two")]).contains("`WORLD_SIZE` is `two`"));
        assert!(group(&[("WORLD_SIZE", "2")]).contains("`RANK` is not set"));
        let above = group(&[("WORLD_SIZE", "2"), ("RANK", "2")]);
        assert!(above.contains("`RANK` is 2 and must be below"), "{above}");
    }

    #[test]
    fn first_hosts_of_lists() {
        for (list, host) in [
            ("a", "a"),
            ("a,b[1-2]", "a"),
            ("node[03-05,7],x", "node03"),
            ("n[7]", "n7"),
        ] {
            assert_eq!(first_host(list), host);
        }
    }
}
