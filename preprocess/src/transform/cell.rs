//! What the numeric steps do with one cell: the only formulas, shared by the fit's plan and the transform.

use feedline_schemas::transform::FittedStep;

/// One step on the cells of a numeric column. NaN stands for a missing cell and stays one except in `Fill`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CellOp {
    /// Puts a value in place of missing cells.
    Fill(f64),
    /// Raises to `low`, lowers to `high`; infinities too.
    Clip { low: f64, high: f64 },
    /// `(x - mean) / scale`.
    Standardize { mean: f64, scale: f64 },
    /// `(x - min) / (max - min)`; 0 where they are equal.
    MinMax { min: f64, max: f64 },
}

/// Bytes of one operation: its kind and two numbers.
const OP_BYTES: usize = 17;

impl CellOp {
    /// What `step` does with the numeric column `column`.
    pub(crate) fn of(step: &FittedStep, column: &str) -> Option<Self> {
        match step {
            FittedStep::Impute { columns } => columns
                .iter()
                .find(|c| c.name == column)
                .map(|c| Self::Fill(c.value)),
            FittedStep::Winsorize { columns } => {
                columns
                    .iter()
                    .find(|c| c.name == column)
                    .map(|c| Self::Clip {
                        low: c.low,
                        high: c.high,
                    })
            }
            FittedStep::Standardize { columns } => {
                columns
                    .iter()
                    .find(|c| c.name == column)
                    .map(|c| Self::Standardize {
                        mean: c.mean,
                        scale: c.scale,
                    })
            }
            FittedStep::MinMax { columns } => {
                columns
                    .iter()
                    .find(|c| c.name == column)
                    .map(|c| Self::MinMax {
                        min: c.min,
                        max: c.max,
                    })
            }
            FittedStep::Categories { .. } => None,
        }
    }

    /// Applies the step to each cell on its own, so the result does not depend on how many there are.
    pub(crate) fn apply(self, cells: &mut [f64]) {
        match self {
            Self::Fill(value) => each(cells, |x| if x.is_nan() { value } else { x }),
            Self::Clip { low, high } => each(cells, |x| {
                if x < low {
                    low
                } else if x > high {
                    high
                } else {
                    x
                }
            }),
            Self::Standardize { mean, scale } => each(cells, |x| (x - mean) / scale),
            Self::MinMax { min, max } if min >= max => {
                each(cells, |x| if x.is_finite() { 0.0 } else { x })
            }
            Self::MinMax { min, max } if (max - min).is_infinite() => {
                each(cells, |x| (x / 2.0 - min / 2.0) / (max / 2.0 - min / 2.0));
            }
            Self::MinMax { min, max } => each(cells, |x| (x - min) / (max - min)),
        }
    }

    /// Operations as the literal argument that carries them through a plan.
    pub(crate) fn to_bytes(ops: &[Self]) -> Vec<u8> {
        ops.iter().flat_map(|op| op.encode()).collect()
    }

    /// Reads what [`Self::to_bytes`] wrote; `None` for other bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Vec<Self>> {
        let ops = bytes.chunks_exact(OP_BYTES);
        ops.remainder()
            .is_empty()
            .then(|| ops.map(Self::decode).collect())?
    }

    fn encode(self) -> [u8; OP_BYTES] {
        let (kind, first, second) = match self {
            Self::Fill(value) => (0, value, 0.0),
            Self::Clip { low, high } => (1, low, high),
            Self::Standardize { mean, scale } => (2, mean, scale),
            Self::MinMax { min, max } => (3, min, max),
        };
        let mut bytes = [kind; OP_BYTES];
        bytes[1..9].copy_from_slice(&first.to_le_bytes());
        bytes[9..].copy_from_slice(&second.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let first = f64::from_le_bytes(bytes[1..9].try_into().ok()?);
        let second = f64::from_le_bytes(bytes[9..].try_into().ok()?);
        match bytes[0] {
            0 => Some(Self::Fill(first)),
            1 => Some(Self::Clip {
                low: first,
                high: second,
            }),
            2 => Some(Self::Standardize {
                mean: first,
                scale: second,
            }),
            3 => Some(Self::MinMax {
                min: first,
                max: second,
            }),
            _ => None,
        }
    }
}

/// Makes -0.0 the same cell as 0.0.
pub(crate) fn canonical(cells: &mut [f64]) {
    each(cells, |x| x + 0.0);
}

#[inline]
fn each(cells: &mut [f64], f: impl Fn(f64) -> f64) {
    for cell in cells {
        *cell = f(*cell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(op: CellOp, cell: f64, expected: f64) {
        let mut cells = [cell];
        let [restored] = CellOp::from_bytes(&CellOp::to_bytes(&[op])).unwrap()[..] else {
            panic!("one operation")
        };
        restored.apply(&mut cells);
        assert!(
            cells[0].to_bits() == expected.to_bits() || cells[0].is_nan() && expected.is_nan(),
            "{op:?} {cell}: {cells:?}"
        );
    }

    #[test]
    fn a_missing_cell_is_filled_and_an_infinite_one_is_not() {
        check(CellOp::Fill(3.0), f64::NAN, 3.0);
        check(CellOp::Fill(3.0), f64::INFINITY, f64::INFINITY);
        check(CellOp::Fill(3.0), 1.0, 1.0);
    }

    #[test]
    fn clipping_caps_infinities_and_leaves_missing_cells() {
        let clip = CellOp::Clip {
            low: -1.0,
            high: 2.0,
        };
        for (cell, expected) in [
            (f64::NEG_INFINITY, -1.0),
            (f64::INFINITY, 2.0),
            (-1.5, -1.0),
            (0.5, 0.5),
            (f64::NAN, f64::NAN),
        ] {
            check(clip, cell, expected);
        }
    }

    #[test]
    fn a_range_without_width_gives_zero_but_hides_no_infinity() {
        let flat = CellOp::MinMax { min: 4.0, max: 4.0 };
        check(flat, 4.0, 0.0);
        check(flat, 9.0, 0.0);
        check(flat, f64::INFINITY, f64::INFINITY);
        check(flat, f64::NAN, f64::NAN);
    }

    #[test]
    fn the_widest_range_does_not_overflow() {
        let wide = CellOp::MinMax {
            min: -f64::MAX,
            max: f64::MAX,
        };
        check(wide, -f64::MAX, 0.0);
        check(wide, 0.0, 0.5);
        check(wide, f64::MAX, 1.0);
        check(CellOp::MinMax { min: 1.0, max: 3.0 }, 2.5, 0.75);
    }

    #[test]
    fn other_bytes_are_not_operations() {
        assert_eq!(CellOp::from_bytes(&[]), Some(Vec::new()));
        assert_eq!(CellOp::from_bytes(&[0; 16]), None);
        assert_eq!(CellOp::from_bytes(&[4; 17]), None);
    }
}
