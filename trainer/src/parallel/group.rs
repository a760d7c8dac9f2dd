//! Who trains together, before they have met.

use std::time::Duration;

use feedline_schemas::config::ParallelConfig;
use tokio::runtime::Handle;

use super::{Place, inbox::Patience, meeting::Meeting, ranks::Ranks, threads};
use crate::error::Error;

/// Who trains together with this process or thread.
#[derive(Clone, Debug, Default)]
pub struct Group {
    members: Members,
    /// Ranks on this machine, which share its processors.
    local: usize,
}

#[derive(Clone, Debug, Default)]
enum Members {
    #[default]
    Alone,
    Threads(threads::Member),
    Processes(Meeting),
}

impl Group {
    /// Nobody else.
    #[must_use]
    pub fn alone() -> Self {
        Self::default()
    }

    /// `world` threads of this process, at least one, each with its own member: give each to a call of
    /// [`train`](crate::train) on a thread of its own.
    #[must_use]
    pub fn threads(world: usize) -> Vec<Self> {
        let members = threads::members(world.max(1)).into_iter();
        members
            .map(|member| Self {
                members: Members::Threads(member),
                local: world,
            })
            .collect()
    }

    /// Process `rank` of `world`, below it, of which `local` are on this machine. They meet at `address`, the host and port
    /// that rank 0 listens on.
    #[must_use]
    pub fn processes(rank: usize, world: usize, local: usize, address: &str) -> Self {
        if world <= 1 {
            return Self::alone();
        }
        let meeting = Meeting {
            place: Place { rank, world },
            address: address.to_owned(),
        };
        Self {
            members: Members::Processes(meeting),
            local,
        }
    }

    /// Which rank this is, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.place().rank
    }

    pub(crate) const fn place(&self) -> Place {
        match &self.members {
            Members::Alone => Place::ALONE,
            Members::Threads(member) => member.place,
            Members::Processes(meeting) => meeting.place,
        }
    }

    /// Which of the ranks of its machine this is, from 0: machines have as many each, one after the other.
    pub(crate) fn local_rank(&self) -> u32 {
        let rank = self.place().rank % self.local.max(1);
        u32::try_from(rank).unwrap_or(u32::MAX)
    }

    /// How many of `processors` this rank computes on.
    pub(crate) fn threads_of(&self, processors: usize) -> usize {
        (processors / self.local.max(1)).max(1)
    }

    /// Meets the others, who must have the same `identity`.
    ///
    /// # Errors
    /// [`Error::Meeting`].
    pub(crate) fn join(
        &self,
        identity: &str,
        config: &ParallelConfig,
        runtime: &Handle,
    ) -> Result<Ranks, Error> {
        let patience = Patience {
            message: Duration::from_secs(config.timeout_seconds),
            silence: Some(Duration::from_secs(config.silence_seconds)),
        };
        let limit = Duration::from_secs(config.join_seconds);
        match &self.members {
            Members::Alone => Ok(Ranks::alone()),
            Members::Threads(member) => Ok(member.join(patience)),
            Members::Processes(meeting) => meeting.join(identity, patience, limit, runtime),
        }
    }
}
