//! Paths of checkpoints and of the optimizer's state in the folder of a run.

use feedline_schemas::{checkpoint::CheckpointHeader, ids::Step};
use feedline_storage::Listed;

/// Path of the best weights in the run's folder.
pub(crate) const BEST_PATH: &str = "best.safetensors";

/// Folder of the checkpoints.
pub(super) const FOLDER: &str = "checkpoints";

/// Path of the checkpoint after `step` steps.
pub(super) fn path(step: Step) -> String {
    format!("{FOLDER}/step-{:08}.safetensors", step.get())
}

/// Steps of the checkpoint with this path in the folder of its run.
pub(crate) fn step_of(path: &str) -> Option<Step> {
    let name = path
        .strip_prefix(FOLDER)?
        .strip_prefix("/step-")?
        .strip_suffix(".safetensors")?;
    name.parse().ok().map(Step::new)
}

/// Steps of the checkpoints among these files, rising.
pub(super) fn steps_in(listed: &[Listed]) -> Vec<Step> {
    let steps = listed.iter().filter_map(|file| step_of(&file.path));
    let mut steps: Vec<Step> = steps.collect();
    steps.sort_unstable();
    steps
}

/// Path of the state that a rank holds after `step` steps.
pub(super) fn state_path(step: Step, rank: usize, world: usize) -> String {
    format!(
        "{FOLDER}/step-{:08}.state-{rank}-of-{world}.safetensors",
        step.get()
    )
}

/// Paths of the state of the checkpoint with this header, in rank order.
pub(super) fn state_paths(header: &CheckpointHeader) -> impl Iterator<Item = String> {
    let (step, world) = (header.step, header.state_shards.len());
    (0..world).map(move |rank| state_path(step, rank, world))
}

/// The step of a file of state.
pub(super) fn step_of_state(path: &str) -> Option<Step> {
    let name = path.strip_prefix(FOLDER)?.strip_prefix("/step-")?;
    let (step, rest) = name.split_once('.')?;
    rest.strip_prefix("state-")?;
    step.parse().ok().map(Step::new)
}
