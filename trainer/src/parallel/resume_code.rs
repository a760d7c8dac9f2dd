//! Handling of checkpoints in what ranks say first: all must begin at the same step.

use crate::resume::Resume;

/// Number of a handling of checkpoints in what ranks say first.
pub(super) const fn resume_code(resume: Resume) -> u8 {
    match resume {
        Resume::Fresh => 0,
        Resume::Continue => 1,
        Resume::Prolong => 2,
    }
}

/// Reason that a rank, with its [`resume_code`], does not belong to rank 0, with another one.
pub(super) fn started_otherwise(rank: usize, own: u8, first: u8) -> String {
    let command = |code| match code {
        0 => "`feedline train` without `--resume`",
        1 => "a command that resumes its own run only, such as `feedline run`",
        _ => "`feedline train` with `--resume`",
    };
    format!(
        "rank {rank} was started by {}, and rank 0 by {}; start all ranks with the same command",
        command(own),
        command(first)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_resume_otherwise_are_named_with_their_flag() {
        let [with, without] = [Resume::Prolong, Resume::Fresh].map(resume_code);
        assert_eq!(
            started_otherwise(3, without, with),
            "rank 3 was started by `feedline train` without `--resume`, and rank 0 by `feedline train` with `--resume`; start all \
             ranks with the same command"
        );
        assert_ne!(resume_code(Resume::Continue), with);
    }
}
