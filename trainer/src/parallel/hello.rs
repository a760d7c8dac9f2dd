//! First bytes of a connection between ranks, and the reasons to refuse its process.

use super::{RankPlace, identity::JobIdentity, resume_code::started_otherwise, tcp::narrow};

/// First bytes of a hello; the last two are the version of all that follows.
pub(super) const MAGIC: [u8; 8] = *b"FLRANK02";

/// Bytes before the identity.
const HEAD_BYTES: usize = 24;

/// Length of a hello.
pub(super) const HELLO_BYTES: usize = HEAD_BYTES + JobIdentity::BYTES;

/// First 64 bytes of a connection, little-endian: magic, world size, rank, listener port, 1 with a
/// secret (1 byte), handling of checkpoints (1 byte, [`resume_code`](super::resume_code::resume_code)), zeros (4 bytes), and
/// hashes of what all ranks must share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) place: RankPlace,
    pub(super) port: u16,
    pub(super) has_secret: bool,
    pub(super) resume: u8,
    pub(super) identity: JobIdentity,
}

/// Refusal of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RankRefusal {
    pub(super) reason: String,
    /// Its rank, where it was started for this training, so that no other process will be that rank. `None` for a process
    /// that may have nothing to do with it.
    pub(super) rank: Option<usize>,
}

impl RankRefusal {
    pub(super) fn of_rank(rank: usize, reason: String) -> Self {
        let rank = Some(rank);
        Self { reason, rank }
    }

    pub(super) fn of_stranger(reason: String) -> Self {
        Self { reason, rank: None }
    }
}

impl Hello {
    pub(super) fn to_bytes(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&narrow(self.place.world).to_le_bytes());
        bytes[12..16].copy_from_slice(&narrow(self.place.rank).to_le_bytes());
        bytes[16..18].copy_from_slice(&self.port.to_le_bytes());
        bytes[18] = self.has_secret.into();
        bytes[19] = self.resume;
        bytes[HEAD_BYTES..].copy_from_slice(&self.identity.to_bytes());
        bytes
    }

    /// Parses another rank's hello; the error says why it is no rank of ours.
    pub(super) fn read(self, bytes: &[u8; HELLO_BYTES]) -> Result<Self, RankRefusal> {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |at: usize| u32::from_le_bytes(words[at]);
        let other = Self {
            place: RankPlace {
                rank: word(3) as usize,
                world: word(2) as usize,
            },
            port: u16::from_le_bytes([bytes[16], bytes[17]]),
            has_secret: bytes[18] == 1,
            resume: bytes[19],
            identity: JobIdentity::read(&bytes[HEAD_BYTES..]),
        };
        let (found, world) = (other.place.world, self.place.world);
        let rank = other.place.rank;
        if bytes[..8] != MAGIC {
            let reason = "it is no rank of this version of feedline".to_owned();
            return Err(RankRefusal::of_stranger(reason));
        }
        if !other.identity.is_of_job(self.identity) {
            let reason = format!("it is rank {rank} of another job");
            return Err(RankRefusal::of_stranger(reason));
        }
        if other.has_secret != self.has_secret {
            let reason = format!(
                "rank {rank} and this one do not both have a secret; give all ranks the same `FEEDLINE_JOB_SECRET`, or none"
            );
            // Where a secret is needed, a process without it ends no run.
            return Err(match self.has_secret {
                true => RankRefusal::of_stranger(reason),
                false => RankRefusal::of_rank(rank, reason),
            });
        }
        if found != world {
            let reason = format!(
                "it is one of {found} ranks, rank 0 of {world}; start all with one `WORLD_SIZE`"
            );
            return Err(RankRefusal::of_rank(rank, reason));
        }
        if rank >= world {
            let reason = format!("it says to be rank {rank} of {world}");
            return Err(RankRefusal::of_stranger(reason));
        }
        if let Some(reason) = other.identity.difference(self.identity, rank) {
            return Err(RankRefusal::of_rank(rank, reason));
        }
        if other.resume != self.resume {
            let reason = started_otherwise(rank, other.resume, self.resume);
            return Err(RankRefusal::of_rank(rank, reason));
        }
        Ok(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(change: impl FnOnce(&mut Hello)) -> Hello {
        let mut hello = Hello {
            place: RankPlace { rank: 1, world: 2 },
            port: 7,
            has_secret: false,
            resume: 0,
            identity: JobIdentity::new("a\nb", "job"),
        };
        change(&mut hello);
        hello
    }

    #[test]
    fn a_hello_survives_its_journey() {
        let own = hello(|_| ());
        assert_eq!(own.read(&own.to_bytes()), Ok(own));
    }

    #[test]
    fn a_refusal_names_the_rank_of_this_training_and_no_stranger() {
        let check = |first: Hello, other: Hello, rank: Option<usize>, part: &str| {
            let refusal = first.read(&other.to_bytes()).unwrap_err();
            assert_eq!(refusal.rank, rank, "{refusal:?}");
            assert!(refusal.reason.contains(part), "{refusal:?}");
        };
        let first = hello(|own| own.place.rank = 0);
        let with_secret = hello(|own| own.has_secret = true);
        let of = |text, job| hello(|own| own.identity = JobIdentity::new(text, job));
        check(first, of("a\nx", "job"), Some(1), "another dataset");
        check(first, of("a\nb", "x"), None, "another job");
        check(first, hello(|own| own.resume = 2), Some(1), "--resume");
        let of_three = hello(|own| own.place.world = 3);
        check(first, of_three, Some(1), "one of 3 ranks");
        check(first, hello(|own| own.place.rank = 9), None, "rank 9 of 2");
        check(first, with_secret, Some(1), "do not both have");
        check(with_secret, first, None, "do not both have");
        let foreign = first.read(&[b'G'; HELLO_BYTES]).unwrap_err();
        assert_eq!(foreign.rank, None);
    }
}
