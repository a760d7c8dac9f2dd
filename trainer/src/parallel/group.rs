//! Group of the ranks that train together, before the rendezvous.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use feedline_schemas::config::{Collective, ParallelConfig};
use tokio::runtime::Handle;

use super::{
    RankPlace, Whereabouts, collectives::Ranks, frame::FRAME_MAX, recv_queue::Patience,
    rendezvous::Rendezvous, secret::JobSecret, status::Status, threads,
};
use crate::{error::Error, resume::Resume};

/// Ranks that train together with this process or thread.
#[derive(Clone, Debug, Default)]
pub struct Group {
    members: GroupMembers,
    /// Ranks on this machine, which share its processors.
    local: usize,
}

#[derive(Clone, Debug)]
enum GroupMembers {
    Alone(Arc<Status>),
    Threads(threads::ThreadMember),
    Processes(Box<Processes>),
}

/// Processes that were started together.
#[derive(Clone, Debug)]
struct Processes {
    rendezvous: Rendezvous,
    /// `mpirun` has started them.
    by_mpirun: bool,
    #[cfg(feature = "mpi")]
    mpi: super::mpi::Handle,
}

impl Default for GroupMembers {
    fn default() -> Self {
        Self::Alone(Arc::default())
    }
}

impl Group {
    /// A group without others.
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
                members: GroupMembers::Threads(member),
                local: world,
            })
            .collect()
    }

    /// Process `rank` of `world`, below it, with `local` of them on this machine. They meet at
    /// `address`, the host and port that rank 0 listens on.
    #[must_use]
    pub fn processes(rank: usize, world: usize, local: usize, address: &str) -> Self {
        if world <= 1 {
            return Self::alone();
        }
        let rendezvous = Rendezvous {
            place: RankPlace { rank, world },
            address: address.to_owned(),
            agent_job: None,
            status: Arc::default(),
            secret: None,
            largest: FRAME_MAX,
            stop: Arc::default(),
            resume: Resume::Fresh,
        };
        Self {
            members: GroupMembers::Processes(Box::new(Processes {
                rendezvous,
                by_mpirun: false,
                #[cfg(feature = "mpi")]
                mpi: super::mpi::Handle::default(),
            })),
            local,
        }
    }

    /// These processes, on whose address the agent of the job `id` listens itself, as torchrun's does: they meet at another
    /// port of that host, which follows from the address and the id.
    #[must_use]
    pub fn under_agent(mut self, id: &str) -> Self {
        if let GroupMembers::Processes(processes) = &mut self.members {
            processes.rendezvous.agent_job = Some(id.to_owned());
        }
        self
    }

    /// Adds a shared secret, so that every connecting rank must prove that it knows it. The secret
    /// applies to ranks that meet over TCP. Their traffic is not encrypted.
    #[must_use]
    pub fn with_secret(mut self, secret: &str) -> Self {
        if let GroupMembers::Processes(processes) = &mut self.members {
            processes.rendezvous.secret = Some(JobSecret::new(secret));
        }
        self
    }

    /// Adds the bytes of the longest message that a rank may send. It applies to ranks that meet over TCP.
    #[must_use]
    pub(crate) fn with_largest_message(mut self, bytes: u64) -> Self {
        if let GroupMembers::Processes(processes) = &mut self.members {
            processes.rendezvous.largest = bytes;
        }
        self
    }

    /// Adds the flag that ends the wait for the others. It applies to ranks that meet over TCP.
    #[must_use]
    pub(crate) fn with_stop(mut self, stop: &Arc<AtomicBool>) -> Self {
        if let GroupMembers::Processes(processes) = &mut self.members {
            processes.rendezvous.stop = Arc::clone(stop);
        }
        self
    }

    /// Adds the handling of a run folder with checkpoints, which the ranks compare: they must begin at the same step. It applies
    /// to ranks that are processes.
    #[must_use]
    pub(crate) fn with_resume(mut self, resume: Resume) -> Self {
        if let GroupMembers::Processes(processes) = &mut self.members {
            processes.rendezvous.resume = resume;
        }
        self
    }

    /// These processes, which `mpirun` has started: they meet by MPI, as far as `train.parallel.collective` does not say
    /// otherwise.
    #[must_use]
    pub fn started_by_mpirun(mut self) -> Self {
        if let GroupMembers::Processes(processes) = &mut self.members {
            processes.by_mpirun = true;
        }
        self
    }

    /// Addresses of the rendezvous of these processes.
    #[cfg(test)]
    pub(super) fn addresses(&self) -> Vec<String> {
        match &self.members {
            GroupMembers::Processes(processes) => processes.rendezvous.addresses(),
            _ => Vec::new(),
        }
    }

    /// Number of this rank, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.place().rank
    }

    /// Returns true if there is another rank.
    #[must_use]
    pub fn has_others(&self) -> bool {
        self.place().world > 1
    }

    /// Current step and phase of this rank, and of its clones.
    #[must_use]
    pub fn whereabouts(&self) -> Whereabouts {
        match &self.members {
            GroupMembers::Alone(status) => status.whereabouts(),
            GroupMembers::Threads(member) => member.status().whereabouts(),
            GroupMembers::Processes(processes) => processes.rendezvous.status.whereabouts(),
        }
    }

    pub(crate) const fn place(&self) -> RankPlace {
        match &self.members {
            GroupMembers::Alone(_) => RankPlace::ALONE,
            GroupMembers::Threads(member) => member.place,
            GroupMembers::Processes(processes) => processes.rendezvous.place,
        }
    }

    /// Number of this rank among those of its machine, from 0: machines have as many each, one
    /// after the other.
    pub(crate) fn local_rank(&self) -> u32 {
        let rank = self.place().rank % self.local.max(1);
        u32::try_from(rank).unwrap_or(u32::MAX)
    }

    /// Ranks on this machine, at least 1.
    pub(crate) fn local_ranks(&self) -> usize {
        self.local.max(1)
    }

    /// Number of `processors` that this rank computes on.
    pub(crate) fn threads_of(&self, processors: usize) -> usize {
        (processors / self.local.max(1)).max(1)
    }

    /// Meets the others, who must have the same `identity`.
    ///
    /// # Errors
    /// [`Error::Rendezvous`]; [`Error::InterruptedRendezvous`] when the stop flag was set; [`Error::Config`] when they are to
    /// meet by MPI and this program was built without it.
    pub(crate) fn join(
        &self,
        identity: &str,
        config: &ParallelConfig,
        runtime: &Handle,
    ) -> Result<Ranks, Error> {
        let patience = Patience {
            message: Duration::from_secs(config.timeout_s),
            silence: Some(Duration::from_secs(config.heartbeat_timeout_s)),
        };
        let limit = Duration::from_secs(config.rendezvous_timeout_s);
        match &self.members {
            GroupMembers::Alone(status) => Ok(Ranks::only(Arc::clone(status))),
            GroupMembers::Threads(member) => Ok(member.join(patience)),
            GroupMembers::Processes(processes) if processes.meet_by_mpi(config.collective) => {
                processes.join_by_mpi(identity, patience, limit)
            }
            GroupMembers::Processes(processes) => {
                let rendezvous = &processes.rendezvous;
                rendezvous.join(identity, patience, limit, runtime)
            }
        }
    }
}

impl Processes {
    const fn meet_by_mpi(&self, collective: Collective) -> bool {
        match collective {
            Collective::Auto => self.by_mpirun,
            Collective::Mpi => true,
            Collective::Tcp | Collective::Nccl => false,
        }
    }

    #[cfg(feature = "mpi")]
    fn join_by_mpi(
        &self,
        identity: &str,
        patience: Patience,
        limit: Duration,
    ) -> Result<Ranks, Error> {
        self.mpi.join(&self.rendezvous, identity, patience, limit)
    }

    #[cfg(not(feature = "mpi"))]
    fn join_by_mpi(&self, _: &str, _: Patience, _: Duration) -> Result<Ranks, Error> {
        let RankPlace { rank, world } = self.rendezvous.place;
        let reason = format!(
            "this is rank {rank} of {world}, which are to meet by MPI, and this program was built without it: build it with \
             `--features mpi`, or set it to `tcp`, with MASTER_ADDR where ranks are on several machines"
        );
        Err(crate::error::config("parallel.collective", reason))
    }
}
