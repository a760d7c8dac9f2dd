//! Tests whose ranks are processes that `mpirun` starts: each is this test program, running one other test.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use crate::parallel::Group;

/// Folder of the results of a test's ranks.
const FOLDER: &str = "FEEDLINE_TEST_MPI";

/// Outcome of a test on several ranks.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// True when all processes ended well.
    pub(crate) success: bool,
    /// Message of each rank, empty for one without.
    pub(crate) said: Vec<String>,
    /// Output of `mpirun` and the ranks.
    pub(crate) output: String,
}

/// Runs the test `name` on `world` ranks, which share `folder`. `None`, with a message, where there is no `mpirun`.
pub(crate) fn mpirun(world: usize, name: &str, folder: &Path) -> Option<Outcome> {
    let version = Command::new("mpirun").arg("--version").output();
    if !version.is_ok_and(|version| version.status.success()) {
        eprintln!("skipped: there is no `mpirun` here; install the package `openmpi-bin`");
        return None;
    }
    // One group at a time has processors enough.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for rank in 0..world {
        fs::remove_file(said_at(folder, rank)).ok();
    }
    // More ranks than processors, as root, where containers allow no memory to be read across processes.
    let output = Command::new("mpirun")
        .args([
            "--oversubscribe",
            "--allow-run-as-root",
            "--bind-to",
            "none",
        ])
        .args(["--mca", "btl_vader_single_copy_mechanism", "none"])
        .args(["--mca", "orte_tmpdir_base"])
        .arg(folder)
        .args(["--timeout", "300", "-n", &world.to_string()])
        .arg(env::current_exe().unwrap())
        .args([
            "--exact",
            name,
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(FOLDER, folder)
        .output()
        .unwrap();
    let said = |rank| fs::read_to_string(said_at(folder, rank)).unwrap_or_default();
    Some(Outcome {
        success: output.status.success(),
        said: (0..world).map(said).collect(),
        output: String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
    })
}

fn said_at(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("rank-{rank}.txt"))
}

/// This process among those that `mpirun` has started, and their folder; `None` when it was started otherwise.
pub(crate) fn this_rank() -> Option<(Group, PathBuf)> {
    let number = |name| env::var_os(name)?.to_str()?.parse::<usize>().ok();
    let folder = PathBuf::from(env::var_os(FOLDER)?);
    let (rank, world) = (
        number("OMPI_COMM_WORLD_RANK")?,
        number("OMPI_COMM_WORLD_SIZE")?,
    );
    let group = Group::processes(rank, world, world, "").started_by_mpirun();
    Some((group, folder))
}

/// Leaves a word for the test that started this rank.
pub(crate) fn say(folder: &Path, group: &Group, words: &str) {
    fs::write(said_at(folder, group.rank()), words).unwrap();
}
