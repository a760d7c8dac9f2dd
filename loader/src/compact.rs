//! Columns of millions of numbers and names in little memory.

/// Numbers, each in as many bytes as the largest of them needs; in none when all are the same.
#[derive(Clone, Debug)]
pub(crate) enum CompactNumbers {
    Same { value: u64, count: usize },
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
}

impl Default for CompactNumbers {
    fn default() -> Self {
        Self::Same { value: 0, count: 0 }
    }
}

impl CompactNumbers {
    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Same { count, .. } => *count,
            Self::U16(numbers) => numbers.len(),
            Self::U32(numbers) => numbers.len(),
            Self::U64(numbers) => numbers.len(),
        }
    }

    /// The number at `at`.
    ///
    /// # Panics
    /// When there are not so many.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> u64 {
        match self {
            Self::Same { value, count } => {
                assert!(at < *count, "number {at} of {count}");
                *value
            }
            Self::U16(numbers) => numbers[at].into(),
            Self::U32(numbers) => numbers[at].into(),
            Self::U64(numbers) => numbers[at],
        }
    }

    /// The sum of the numbers in a range.
    pub(crate) fn sum(&self, range: std::ops::Range<usize>) -> u64 {
        range.map(|at| self.get(at)).sum()
    }

    /// Appends a number.
    pub(crate) fn push(&mut self, number: u64) {
        if !self.try_push(number) {
            self.widen(number);
            self.try_push(number);
        }
    }

    fn try_push(&mut self, number: u64) -> bool {
        match self {
            Self::Same { value, count } => {
                let fits = *count == 0 || *value == number;
                if fits {
                    (*value, *count) = (number, *count + 1);
                }
                fits
            }
            Self::U16(numbers) => u16::try_from(number).map(|n| numbers.push(n)).is_ok(),
            Self::U32(numbers) => u32::try_from(number).map(|n| numbers.push(n)).is_ok(),
            Self::U64(numbers) => {
                numbers.push(number);
                true
            }
        }
    }

    /// Makes room in every number for one as large as `number`.
    fn widen(&mut self, number: u64) {
        let largest = match self {
            Self::Same { value, .. } => number.max(*value),
            _ => number,
        };
        let all = (0..self.len()).map(|at| self.get(at));
        *self = if largest <= u16::MAX.into() {
            Self::U16(all.filter_map(|n| n.try_into().ok()).collect())
        } else if largest <= u32::MAX.into() {
            Self::U32(all.filter_map(|n| n.try_into().ok()).collect())
        } else {
            Self::U64(all.collect())
        };
    }

    /// Gives back memory that is not in use.
    pub(crate) fn shrink(&mut self) {
        match self {
            Self::Same { .. } => {}
            Self::U16(numbers) => numbers.shrink_to_fit(),
            Self::U32(numbers) => numbers.shrink_to_fit(),
            Self::U64(numbers) => numbers.shrink_to_fit(),
        }
    }

    /// Bytes held.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Same { .. } => 0,
            Self::U16(numbers) => 2 * numbers.capacity(),
            Self::U32(numbers) => 4 * numbers.capacity(),
            Self::U64(numbers) => 8 * numbers.capacity(),
        }
    }
}

impl FromIterator<u64> for CompactNumbers {
    fn from_iter<T: IntoIterator<Item = u64>>(all: T) -> Self {
        let mut numbers = Self::default();
        all.into_iter().for_each(|number| numbers.push(number));
        numbers.shrink();
        numbers
    }
}

/// The most pairs of folder and extension that [`Names`] keeps apart from the names.
const MOST_FRAMES: usize = 64;

/// Paths of files. Folder and extension, which most of them share, are kept once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// Text before and after the stem.
    frames: Vec<(String, String)>,
    /// The frame of each name.
    frame: CompactNumbers,
    /// All stems, one after the other.
    stems: String,
    /// End of each stem.
    ends: CompactNumbers,
}

impl Names {
    /// Appends a name.
    pub(crate) fn push(&mut self, name: &str) {
        let stem = name.rfind('/').map_or(0, |slash| slash + 1);
        let extension = name[stem..].rfind('.').map_or(name.len(), |dot| stem + dot);
        let found = self
            .frames
            .iter()
            .rposition(|(before, behind)| *before == name[..stem] && *behind == name[extension..]);
        let (frame, range) = match found {
            Some(frame) => (frame, stem..extension),
            None if self.frames.len() < MOST_FRAMES => {
                self.frames
                    .push((name[..stem].to_owned(), name[extension..].to_owned()));
                (self.frames.len() - 1, stem..extension)
            }
            // No frame: the number behind the last.
            None => (MOST_FRAMES, 0..name.len()),
        };
        self.frame.push(frame as u64);
        self.stems.push_str(&name[range]);
        self.ends.push(self.stems.len() as u64);
    }

    /// The name at `at`.
    ///
    /// # Panics
    /// When there are not so many.
    pub(crate) fn get(&self, at: usize) -> String {
        let index = crate::index::index;
        let start = at.checked_sub(1).map_or(0, |before| self.ends.get(before));
        let stem = &self.stems[index(start)..index(self.ends.get(at))];
        match self.frames.get(index(self.frame.get(at))) {
            Some((before, behind)) => [before, stem, behind].concat(),
            None => stem.to_owned(),
        }
    }

    /// Gives back memory that is not in use.
    pub(crate) fn shrink(&mut self) {
        self.stems.shrink_to_fit();
        self.frame.shrink();
        self.ends.shrink();
    }

    /// Bytes held.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.stems.capacity() + self.frame.bytes() + self.ends.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_whatever_order_they_grow_in() {
        for (all, bytes) in [
            (vec![], 0),
            (vec![u64::MAX; 5], 0),
            (vec![0, 0, 65_535, 1], 8),
            (vec![7, 7, 65_536, 2], 16),
            (vec![70_000, 3], 8),
            (vec![1, 2, 1 << 32, 3], 32),
            (vec![1, 2, 70_000, 1 << 40, 3], 40),
            (vec![1 << 40, 1], 16),
        ] {
            let numbers: CompactNumbers = all.iter().copied().collect();
            assert_eq!(numbers.len(), all.len());
            let found: Vec<_> = (0..all.len()).map(|at| numbers.get(at)).collect();
            assert_eq!(found, all);
            assert_eq!(numbers.bytes(), bytes, "{all:?}");
        }
        let numbers: CompactNumbers = [5, 6, 7].into_iter().collect();
        assert_eq!(
            (numbers.sum(0..3), numbers.sum(1..1), numbers.sum(2..3)),
            (18, 0, 7)
        );
    }

    #[test]
    fn names_come_back_and_share_what_they_have_in_common() {
        let some = [
            "",
            "a",
            ".x",
            "a/",
            "s/t.d/é.ar.ow",
            "s/u/00.arrow",
            "s/u/01.arrow",
            "a.b/c",
        ];
        let mut names = Names::default();
        let more = (0..200).map(|n| format!("folder-{n}/x.{n}"));
        let all: Vec<String> = some.map(str::to_owned).into_iter().chain(more).collect();
        all.iter().for_each(|name| names.push(name));
        let found: Vec<_> = (0..all.len()).map(|at| names.get(at)).collect();
        assert_eq!(found, all);
        let mut names = Names::default();
        (0..1000).for_each(|n| names.push(&format!("shards/train/{n:05}-0123456789abcdef.arrow")));
        names.shrink();
        assert_eq!(names.get(999), "shards/train/00999-0123456789abcdef.arrow");
        assert_eq!(names.bytes(), 1000 * (22 + 2));
    }
}
