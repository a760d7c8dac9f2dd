//! Check that batches of a pass can be built on the device, and the sizes that takes.

use feedline_schemas::manifest::{TargetKind, TokenType};

use super::{
    ColumnLayout, DeviceConfig,
    feed::DeviceColumns,
    slots::peak,
    window::{DeviceWindow, slot_layout},
};
use crate::{
    BatchKind, TokenLayout,
    assembly::fill::PlaceKind,
    batch_kind::TARGET,
    engine::LoaderEngine,
    index::index,
    input::{OpenedSplit, RowContent},
    order::PassOrder,
};

/// So many blocks of a pass are looked through for how many are needed at one time; what comes later needs as many,
/// since all windows are alike.
const MOST_NEEDS: usize = 1 << 16;

/// One column of the blocks, and of the batches built from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceColumn {
    /// Most rows of a block; most tokens.
    pub(super) rows: u32,
    /// Bytes of one; of a token for tokens.
    pub(super) row_bytes: usize,
}

/// Plan of building a pass on the device.
#[derive(Clone, Debug)]
pub(super) struct DeviceFit {
    pub(super) columns: DeviceColumns,
    pub(super) layout: Vec<DeviceColumn>,
    pub(super) places: PlaceKind,
    pub(super) slots: u32,
    pub(super) slot_bytes: usize,
}

impl DeviceFit {
    /// Fits a window to a pass from batch `start` on.
    ///
    /// # Errors
    /// Reason that it cannot be done.
    pub(super) fn new(
        engine: &LoaderEngine,
        order: &PassOrder,
        start: u64,
        config: &DeviceConfig,
    ) -> Result<Self, String> {
        let (columns, layout, places) = columns(engine)?;
        let room = |column: &DeviceColumn| column.rows as usize * column.row_bytes;
        let (_, slot_bytes) = slot_layout(layout.iter().map(room));
        let (peak, seen) = peak(order.needs(start, engine.share), MOST_NEEDS);
        let budget = index(config.window_bytes) / slot_bytes.max(1);
        if peak > budget {
            return Err(format!(
                "a batch needs `{peak}` blocks at one time, `{}` bytes on the device, and `window_bytes` is `{}`; raise \
                 it, or lower `window_blocks` or `domains`",
                peak * slot_bytes,
                config.window_bytes
            ));
        }
        // More than what is needed at one time again would only be read too early.
        let wanted = (2 * peak).max(peak + 64).min(budget);
        let slots = if seen < MOST_NEEDS {
            wanted.min(seen)
        } else {
            wanted
        };
        Ok(Self {
            columns,
            layout,
            places,
            slots: u32::try_from(slots)
                .map_err(|_| format!("`{slots}` slots are more than 32 bits count"))?,
            slot_bytes,
        })
    }

    /// Most bytes of each part of a block.
    pub(super) fn part_bytes(&self) -> impl Iterator<Item = usize> {
        let room = |column: &DeviceColumn| column.rows as usize * column.row_bytes;
        self.layout.iter().map(room)
    }

    /// Layout of column `number` in a window.
    pub(super) fn column<D: super::Driver>(
        &self,
        number: usize,
        window: &DeviceWindow<D>,
    ) -> ColumnLayout {
        let DeviceColumn { rows, row_bytes } = self.layout[number];
        ColumnLayout {
            slot_bytes: window.slot_bytes(),
            slots: window.slots(),
            offset: window.columns()[number].start,
            rows,
            row_bytes,
        }
    }
}

type Shape = (DeviceColumns, Vec<DeviceColumn>, PlaceKind);

fn columns(engine: &LoaderEngine) -> Result<Shape, String> {
    let inputs = engine.sources.inputs.iter().map(|source| &*source.input);
    match (engine.filler.kind, &engine.filler.tokens) {
        (BatchKind::Rows { features }, _) => {
            let rows = inputs.map(most_rows).max().unwrap_or(0);
            let x = DeviceColumn {
                rows,
                row_bytes: 4 * features,
            };
            let y = DeviceColumn {
                rows,
                row_bytes: engine.filler.kind.row_bytes(engine.filler.target)[TARGET],
            };
            let layout = match engine.filler.target {
                TargetKind::None => vec![x],
                TargetKind::Regression
                | TargetKind::Regressions { .. }
                | TargetKind::Classification { .. } => vec![x, y],
            };
            if features == 0 {
                return Err("its rows have no features".into());
            }
            Ok((DeviceColumns::Rows, layout, PlaceKind::Row))
        }
        (BatchKind::Tokens { length, .. }, Some(tokens)) => {
            if tokens.layout.has_segments() {
                return Err("packed rows of tokens are built on the processor".into());
            }
            let inputs: Vec<_> = inputs.collect();
            token_columns(&inputs, length, tokens.layout, engine.shape().rows)
        }
        (BatchKind::Images { .. } | BatchKind::Tokens { .. }, _) => {
            Err("images are decoded on the processor".into())
        }
        (BatchKind::Multi { .. }, _) => {
            Err("rows of several parts are built on the processor".into())
        }
    }
}

fn most_rows(input: &OpenedSplit) -> u32 {
    let block_table = input.block_table();
    let rows = (0..block_table.block_count()).map(|block| block_table.rows(block));
    rows.max().unwrap_or(0)
}

fn token_columns(
    inputs: &[&OpenedSplit],
    length: usize,
    layout: TokenLayout,
    batch_rows: usize,
) -> Result<Shape, String> {
    let (mut widths, mut most, mut spans) = (Vec::new(), 0, 1);
    for input in inputs {
        let RowContent::Tokens { id, .. } = input.record() else {
            return Err("its records are of several kinds".into());
        };
        widths.push(*id);
        let counts = (0..input.block_table().block_count()).map(|block| input.tokens(block));
        let counts: Option<Vec<u64>> = counts.collect();
        let counts = counts.ok_or("the dataset does not say how many token ids its blocks have")?;
        most = most.max(counts.iter().copied().max().unwrap_or(0));
        if layout == TokenLayout::Stream {
            spans = spans.max(blocks_spanned(&counts, length as u64));
        }
    }
    let id = match widths.split_first() {
        Some((first, others)) if others.iter().all(|id| id == first) => *first,
        _ => return Err("the token ids of its datasets have different widths".into()),
    };
    // One more for padding.
    let pieces = spans + 1;
    if 4 * pieces > length {
        return Err(format!(
            "rows of `{length}` token ids that may come from `{spans}` blocks have places as large as themselves"
        ));
    }
    let words = |count: usize| u32::try_from(count).map_err(|_| too_many(count));
    words(batch_rows.saturating_mul(length))?;
    let column = DeviceColumn {
        rows: u32::try_from(most).map_err(|_| too_many(index(most)))?,
        row_bytes: match id {
            TokenType::U16 => 2,
            TokenType::U32 => 4,
        },
    };
    let places = PlaceKind::Tokens {
        length: words(length)?,
        pieces: words(pieces)?,
    };
    Ok((DeviceColumns::Tokens(id), vec![column], places))
}

fn too_many(count: usize) -> String {
    format!("`{count}` token ids are more than 32 bits count")
}

/// The most blocks with tokens that `length` tokens in a row can be of.
fn blocks_spanned(counts: &[u64], length: u64) -> usize {
    let counts: Vec<u64> = counts.iter().copied().filter(|count| *count > 0).collect();
    // From the last token of block `first` to somewhere in block `end - 1`.
    let (mut most, mut end, mut tokens) = (1, 1, 1);
    for first in 0..counts.len() {
        if end <= first {
            (end, tokens) = (first + 1, 1);
        }
        while end < counts.len() && tokens < length {
            tokens += counts[end];
            end += 1;
        }
        most = most.max(end - first);
        // The next begins with the last token of the block behind.
        tokens = match counts.get(first + 1) {
            Some(next) if end > first + 1 => tokens - next,
            _ => 1,
        };
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_spans_as_many_blocks_as_its_tokens_reach_over() {
        let check = |counts: &[u64], length, expected| {
            assert_eq!(blocks_spanned(counts, length), expected, "{counts:?}");
            // One by one, the block of each token.
            let blocks: Vec<usize> = (0..counts.len())
                .flat_map(|b| std::iter::repeat_n(b, usize::try_from(counts[b]).unwrap()))
                .collect();
            let length = usize::try_from(length).unwrap();
            let spanned = (0..blocks.len()).map(|start| {
                let mut row = blocks[start..blocks.len().min(start + length)].to_vec();
                row.dedup();
                row.len()
            });
            assert_eq!(spanned.max().unwrap_or(1), expected, "{counts:?}");
        };
        check(&[10, 10, 10], 1, 1);
        check(&[10, 10, 10], 2, 2);
        check(&[10, 10, 10], 11, 2);
        check(&[10, 10, 10], 12, 3);
        check(&[10, 10, 10], 1000, 3);
        check(&[1, 1, 0, 1, 1, 50], 3, 3);
        check(&[50, 1, 2, 3, 0, 0, 50], 7, 4);
        check(&[50, 1, 2, 3, 0, 0, 50], 8, 5);
        check(&[0, 0, 5], 8, 1);
        check(&[], 8, 1);
    }
}
