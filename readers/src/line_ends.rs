//! Line ends in bytes that are read in parts: `\n`, `\r\n`, and `\r` alone.

/// Counts of the line ends in the bytes so far. A `\r\n` counts once, also where the parts divide it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineEnds {
    count: u64,
    /// Line feeds, also those of a `\r\n`.
    feeds: u64,
    /// True if the last byte is a `\r`.
    is_after_return: bool,
}

impl LineEnds {
    /// Adds the line ends of the next bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
            return;
        };
        let feeds = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        // Two passes without a state between bytes, so that the compiler vectorizes both.
        let pairs = bytes.iter().zip(&bytes[1..]);
        let returns = pairs.filter(|(byte, next)| **byte == b'\r' && **next != b'\n');
        let returns = returns.count() as u64 + u64::from(*last == b'\r');
        // Its `\r` was counted.
        let is_counted = self.is_after_return && *first == b'\n';
        self.count += feeds + returns - u64::from(is_counted);
        self.feeds += feeds;
        self.is_after_return = *last == b'\r';
    }

    /// Count of line ends.
    pub const fn count(self) -> u64 {
        self.count
    }

    /// Count of line feeds.
    pub(crate) const fn feeds(self) -> u64 {
        self.feeds
    }

    /// A new count for the bytes behind these.
    pub(crate) fn restart(self) -> Self {
        Self {
            is_after_return: self.is_after_return,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_of_all_kinds_count_once_wherever_the_bytes_are_divided() {
        for (text, count) in [
            ("", 0),
            ("a", 0),
            ("a\nb\n\nc", 3),
            ("a\r\nb\r\n\r\nc", 3),
            ("a\rb\r\rc\r", 4),
            ("\n\r\r\n\n\r", 5),
        ] {
            for part in 1..=text.len() {
                let mut ends = LineEnds::default();
                text.as_bytes()
                    .chunks(part)
                    .for_each(|bytes| ends.add(bytes));
                let feeds = text.matches('\n').count() as u64;
                assert_eq!((ends.count(), ends.feeds()), (count, feeds), "{text:?}");
            }
        }
    }

    #[test]
    fn a_count_that_is_restarted_within_a_line_end_does_not_count_its_rest() {
        let mut before = LineEnds::default();
        before.add(b"a\r");
        let mut rest = before.restart();
        rest.add(b"\nb\r\n");
        assert_eq!((before.count(), rest.count()), (1, 1));
    }
}
