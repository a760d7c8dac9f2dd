//! Cache of the ids of recent words.
//!
//! Text repeats its words, so most are found here. There is a fixed number of slots by hash; a word
//! replaces the one in its slot, so memory is bounded and the result does not depend on earlier
//! words. Complete words are compared: a slot holds one of up to 15 bytes and its length in 16, and
//! up to seven ids.

/// Slots; 48 bytes each, 1.5 MiB in all, so that they stay in a processor's own cache.
const SLOTS: usize = 1 << 15;

/// Ids that a slot has room for.
const IDS: usize = 7;

/// Words and their ids.
#[derive(Debug)]
pub(super) struct Cache {
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// 0 where there is none.
    word: u128,
    count: u32,
    ids: [u32; IDS],
}

/// A word that a slot can hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Short(u128);

impl Short {
    /// None for a word that is too long.
    #[inline]
    pub(super) fn of(word: &[u8]) -> Option<Self> {
        let mut bytes = [0; 16];
        bytes.get_mut(..word.len())?.copy_from_slice(word);
        let length = u8::try_from(word.len()).ok().filter(|n| *n < 16)?;
        bytes[15] = length;
        Some(Self(u128::from_le_bytes(bytes)))
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "halves of a word are mixed, and the upper bits chosen"
    )]
    fn slot(self) -> usize {
        let low = self.0 as u64;
        let high = (self.0 >> 64) as u64;
        let mixed = (low ^ high.rotate_left(23)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) as usize >> (usize::BITS - 15)
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            slots: vec![Slot::default(); SLOTS],
        }
    }
}

impl Cache {
    /// The ids of a word, if it is there.
    #[inline]
    pub(super) fn find(&self, word: Short) -> Option<&[u32]> {
        let slot = &self.slots[word.slot()];
        (slot.word == word.0).then(|| &slot.ids[..slot.count as usize])
    }

    /// Keeps the ids of a word, where there are few.
    pub(super) fn keep(&mut self, word: Short, ids: &[u32]) {
        let slot = &mut self.slots[word.slot()];
        if let (Some(to), Ok(count)) = (slot.ids.get_mut(..ids.len()), u32::try_from(ids.len())) {
            to.copy_from_slice(ids);
            slot.count = count;
            slot.word = word.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_differ_in_their_end_are_not_confused() {
        let mut cache = Cache::default();
        let short = |word: &[u8]| Short::of(word).unwrap();
        cache.keep(short(b"a"), &[1]);
        cache.keep(short(b"a\0"), &[2, 3]);
        assert_eq!(cache.find(short(b"a")), Some(&[1][..]));
        assert_eq!(cache.find(short(b"a\0")), Some(&[2, 3][..]));
        assert_eq!(cache.find(short(b"a\0\0")), None);
        assert!(Short::of(&[7; 15]).is_some() && Short::of(&[7; 16]).is_none());
        assert!(Short::of(&[7; 17]).is_none());
    }

    #[test]
    fn more_ids_than_there_is_room_for_are_not_kept() {
        let mut cache = Cache::default();
        let word = Short::of(b"long").unwrap();
        cache.keep(word, &[9; 8]);
        assert_eq!(cache.find(word), None);
        cache.keep(word, &[9; 7]);
        assert_eq!(cache.find(word), Some(&[9; 7][..]));
    }
}
