//! Content of a batch, and the memory that it takes.

use feedline_schemas::manifest::TargetKind;

use crate::assembly::slab::COLUMNS;

/// Kind of the rows of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    /// Numbers: `x` is f32 `[rows, features]`.
    Rows {
        /// Elements of `x` in a row.
        features: usize,
    },
    /// Images: `pixels` is u8 RGB `[rows, height, width, 3]`.
    Images {
        /// Pixels.
        height: usize,
        /// Pixels.
        width: usize,
    },
    /// Token ids: `tokens` is u32 `[rows, length]`.
    Tokens {
        /// Ids in a row.
        length: usize,
        /// True when a row holds several documents; `segments` and `positions` then separate them.
        packed: bool,
    },
    /// Rows of several parts: `x`, `pixels` and `tokens` as above. A part with sizes of 0 is empty.
    /// `lengths` is the number of ids of a row's text; the others are padding.
    Multi {
        /// Elements of `x` in a row.
        features: usize,
        /// Pixels.
        height: usize,
        /// Pixels.
        width: usize,
        /// Ids in a row.
        length: usize,
    },
}

/// Slab column of `x`, pixels or ids.
pub(crate) const DATA: usize = 0;
/// Slab column of `y`.
pub(crate) const TARGET: usize = 1;
/// Slab column of segments.
pub(crate) const SEGMENTS: usize = 1;
/// Slab column of positions.
pub(crate) const POSITIONS: usize = 2;
/// Slab columns of pixels, ids and lengths of rows that have several parts; their `x` and `y` are where those of others are.
pub(crate) const PIXELS: usize = 2;
pub(crate) const IDS: usize = 3;
pub(crate) const LENGTHS: usize = 4;

impl BatchKind {
    /// Bytes that a row takes in each column of a slab.
    pub(crate) fn row_bytes(self, target: TargetKind) -> [usize; COLUMNS] {
        let y = match target {
            TargetKind::None => 0,
            TargetKind::Regression | TargetKind::Classification { .. } => 4,
            TargetKind::Regressions { targets } => 4 * targets as usize,
        };
        match self {
            Self::Rows { features } => [4 * features, y, 0, 0, 0],
            Self::Images { height, width } => [3 * height * width, y, 0, 0, 0],
            Self::Tokens {
                length,
                packed: false,
            } => [4 * length, 0, 0, 0, 0],
            Self::Tokens {
                length,
                packed: true,
            } => [4 * length, 4 * length, 4 * length, 0, 0],
            Self::Multi {
                features,
                height,
                width,
                length,
            } => {
                let lengths = if length > 0 { 4 } else { 0 };
                [4 * features, y, 3 * height * width, 4 * length, lengths]
            }
        }
    }

    /// Rows that one task fills when a batch has `rows` and there are `threads`: an image by itself, otherwise so many
    /// that starting a task costs little, and few enough that all threads have some.
    pub(crate) fn task_rows(self, rows: usize, threads: usize) -> usize {
        /// Least bytes that a task should write, to be worth its start.
        const LEAST_BYTES: usize = 32 << 10;
        /// And at most, to leave something for others.
        const MOST_BYTES: usize = 256 << 10;
        let row = match self {
            Self::Images { .. } => return 1,
            Self::Multi { height, .. } if height > 0 => return 1,
            Self::Rows { .. } | Self::Tokens { .. } | Self::Multi { .. } => {
                let bytes = self.row_bytes(TargetKind::None);
                bytes[DATA].max(bytes[IDS]).max(1)
            }
        };
        let share = rows.div_ceil(2 * threads.max(1));
        share
            .clamp((LEAST_BYTES / row).max(1), (MOST_BYTES / row).max(1))
            .min(rows.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_large_enough_to_start_and_small_enough_to_share() {
        let rows = BatchKind::Rows { features: 32 };
        assert_eq!(rows.task_rows(4096, 2), 1024);
        assert_eq!(rows.task_rows(4096, 64), 256);
        assert_eq!(rows.task_rows(1 << 20, 2), 2048);
        assert_eq!(rows.task_rows(10, 2), 10);
        assert_eq!(rows.task_rows(0, 2), 1);
        let images = BatchKind::Images {
            height: 224,
            width: 224,
        };
        assert_eq!(images.task_rows(256, 2), 1);
        let wide = BatchKind::Rows { features: 1 << 20 };
        assert_eq!(wide.task_rows(100, 2), 1);
    }

    #[test]
    fn packed_tokens_take_three_numbers_each() {
        let kind = BatchKind::Tokens {
            length: 5,
            packed: true,
        };
        assert_eq!(kind.row_bytes(TargetKind::None), [20, 20, 20, 0, 0]);
        let rows = BatchKind::Rows { features: 2 };
        assert_eq!(rows.row_bytes(TargetKind::Regression), [8, 4, 0, 0, 0]);
    }

    #[test]
    fn parts_that_rows_do_not_have_take_nothing() {
        let kind = |height, length| BatchKind::Multi {
            features: 2,
            height,
            width: height,
            length,
        };
        let target = TargetKind::Regression;
        assert_eq!(kind(3, 5).row_bytes(target), [8, 4, 27, 20, 4]);
        assert_eq!(kind(0, 5).row_bytes(target), [8, 4, 0, 20, 4]);
        assert_eq!(kind(3, 0).row_bytes(target), [8, 4, 27, 0, 0]);
        assert_eq!(kind(3, 5).task_rows(64, 2), 1);
        assert_eq!(kind(0, 256).task_rows(64, 2), 32);
    }
}
