//! Frames between ranks that are processes, independent of the transport.
//!
//! A frame is its kind, a number and a length, 8 bytes each, little-endian, and so many bytes.

use std::time::Duration;

use super::recv_queue::{Message, RankFailure, RecvQueue};

/// Most bytes moved at one time: a rank that receives much knows that its sender is there.
pub(super) const PIECE: usize = 1 << 20;

/// Longest frame that is accepted where nothing is known of the model: 16 GiB.
pub(super) const FRAME_MAX: u64 = 1 << 34;

/// Longest frame of a training beside its numbers: texts, headers of checkpoints, keys.
const FRAME_BASE: u64 = 256 << 20;

/// Longest frame of a training whose model has so many numbers, and that computes at most so many outputs at once. The longest
/// are a checkpoint, which holds at most five times the model, and the outputs of a share of a batch.
pub(crate) fn largest_message(numbers: usize, outputs: usize) -> u64 {
    let bytes = |count: usize, each: u64| (count as u64).saturating_mul(each);
    let needed = bytes(numbers, 8 * 4).saturating_add(bytes(outputs, 2 * 4));
    FRAME_BASE.saturating_add(needed).min(FRAME_MAX)
}

pub(super) const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(1);

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// A message of a collective operation; its number is that of the operation.
    Message = 1,
    /// A sign of life; its bytes say where the rank is.
    Alive = 2,
    /// The rank has done all it had to.
    Finished = 3,
    /// Its number is the rank at fault, its bytes say why.
    Failed = 4,
}

const KINDS: [FrameKind; 4] = [
    FrameKind::Message,
    FrameKind::Alive,
    FrameKind::Finished,
    FrameKind::Failed,
];

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) kind: FrameKind,
    pub(super) number: u64,
    /// Bytes that follow.
    pub(super) len: usize,
}

impl FrameHeader {
    pub(super) fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let words = [self.kind as u64, self.number, self.len as u64];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Parses the bytes of [`FrameHeader::to_bytes`]; `None` for anything else, and for a length over
    /// the limit.
    pub(super) fn read(bytes: &[u8; 24]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<8>();
        let [kind, number, len] = [0, 1, 2].map(|at| u64::from_le_bytes(words[at]));
        Some(Self {
            kind: KINDS.into_iter().find(|known| *known as u64 == kind)?,
            number,
            len: usize::try_from(len).ok().filter(|_| len <= FRAME_MAX)?,
        })
    }
}

impl RecvQueue {
    /// Takes a frame that came from a rank; whether more may come.
    pub(super) fn take(&self, from: usize, header: FrameHeader, bytes: Vec<u8>) -> bool {
        let number = header.number;
        match header.kind {
            FrameKind::Message => self.deliver(from, Message { number, bytes }),
            FrameKind::Alive => {
                self.status[from].take(&bytes);
                self.sign_of_life(from);
            }
            FrameKind::Finished => self.finished(from),
            FrameKind::Failed => {
                let rank = usize::try_from(number).unwrap_or(from);
                let reason = String::from_utf8_lossy(&bytes).into_owned();
                self.failed(from, RankFailure { rank, reason });
            }
        }
        matches!(header.kind, FrameKind::Message | FrameKind::Alive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_may_be_as_long_as_a_checkpoint_of_the_model_and_not_much_longer() {
        let numbers = 1 << 20;
        let checkpoint = 5 * 4 * numbers as u64;
        let largest = largest_message(numbers, 0);
        assert!(
            largest > checkpoint && largest < FRAME_BASE + 2 * checkpoint,
            "{largest}"
        );
        assert!(largest_message(0, numbers) > largest_message(0, 0));
        assert_eq!(largest_message(usize::MAX, usize::MAX), FRAME_MAX);
    }

    #[test]
    fn a_header_survives_its_journey_and_nothing_else_is_taken_for_one() {
        for kind in KINDS {
            let header = FrameHeader {
                kind,
                number: 7,
                len: 1 << 34,
            };
            assert_eq!(FrameHeader::read(&header.to_bytes()), Some(header));
        }
        let header = |kind: u64, len: u64| {
            let mut bytes = [0; 24];
            bytes[..8].copy_from_slice(&kind.to_le_bytes());
            bytes[16..].copy_from_slice(&len.to_le_bytes());
            FrameHeader::read(&bytes)
        };
        assert_eq!(header(0, 1), None);
        assert_eq!(header(5, 1), None);
        assert_eq!(header(1, (1 << 34) + 1), None);
    }
}
