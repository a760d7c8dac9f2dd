//! Numeric steps on one cell: the only formulas, shared by the fit's plan and the transform.

use feedline_schemas::config::PowerMethod;

use super::{
    bin_boundaries::BinBoundaries,
    power::{logarithm, power, slope, unlogarithm, unpower, weight},
};

/// One step on the cells of a numeric column. NaN means a missing cell and stays NaN except in
/// `Fill`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CellOp {
    /// Puts a value in place of missing cells.
    Fill(f64),
    /// Raises to `low`, lowers to `high`; infinities too.
    Clip { low: f64, high: f64 },
    /// `(x - mean) / scale`.
    Standardize { mean: f64, scale: f64 },
    /// `(x - min) / (max - min)`; 0 where they are equal. Values outside may become the nearer end.
    MinMax { min: f64, max: f64, clip: bool },
    /// `ln(1 + x)`.
    Log1p,
    /// The number of the bin.
    Bin(BinBoundaries),
    /// A power transform.
    Power { method: PowerMethod, lambda: f64 },
    /// Probe of a fit of powers; no step does this.
    Probe(Probe),
}

/// Value that a fit of powers needs of each cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Probe {
    /// Term of the cell in the logarithm of the Jacobian.
    Weight(PowerMethod),
    /// The power and its slope in λ, added.
    Sum { method: PowerMethod, lambda: f64 },
    /// The power less its slope.
    Difference { method: PowerMethod, lambda: f64 },
}

/// Bytes of one operation: its kind and two numbers.
const OP_BYTES: usize = 17;

impl CellOp {
    /// Number of cells that a cap changes.
    pub(super) fn count_capped(&self, cells: &[f64]) -> u64 {
        let Self::Clip { low, high } = *self else {
            return 0;
        };
        // Branch-free, so that the compiler can compare several cells at once.
        let capped = cells.iter().map(|x| u64::from((*x < low) | (*x > high)));
        capped.sum()
    }

    /// Applies the step to each cell on its own, so the result does not depend on how many there are.
    pub(crate) fn apply(&self, cells: &mut [f64]) {
        match *self {
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
            Self::MinMax {
                min,
                max,
                clip: true,
            } => {
                // Before, not after: only here an infinity is known to be outside.
                let ends = Self::Clip {
                    low: min,
                    high: max,
                };
                ends.apply(cells);
                let clip = false;
                Self::MinMax { min, max, clip }.apply(cells);
            }
            Self::MinMax { min, max, .. } if min >= max => {
                each(cells, |x| if x.is_finite() { 0.0 } else { x })
            }
            Self::MinMax { min, max, .. } if (max - min).is_infinite() => {
                each(cells, |x| (x / 2.0 - min / 2.0) / (max / 2.0 - min / 2.0));
            }
            Self::MinMax { min, max, .. } => each(cells, |x| (x - min) / (max - min)),
            Self::Bin(ref boundaries) => each(cells, |x| boundaries.bin_of(x)),
            Self::Log1p => each(cells, logarithm),
            Self::Power { method, lambda } => each(cells, |x| power(x, method, lambda)),
            Self::Probe(Probe::Weight(method)) => of_finite(cells, |x| weight(x, method)),
            Self::Probe(Probe::Sum { method, lambda }) => of_finite(cells, |x| {
                power(x, method, lambda) + slope(x, method, lambda)
            }),
            Self::Probe(Probe::Difference { method, lambda }) => of_finite(cells, |x| {
                power(x, method, lambda) - slope(x, method, lambda)
            }),
        }
    }

    /// Undoes the step, as far as it can be undone: a cell that was filled or capped stays as it is.
    pub(crate) fn invert(&self, cells: &mut [f64]) {
        match *self {
            Self::Fill(_) | Self::Clip { .. } | Self::Probe(_) => {}
            Self::Standardize { mean, scale } => each(cells, |x| x * scale + mean),
            Self::MinMax { min, max, .. } if min >= max => {
                each(cells, |x| if x.is_finite() { min } else { x })
            }
            Self::MinMax { min, max, .. } if (max - min).is_infinite() => {
                each(cells, |x| (x * (max / 2.0 - min / 2.0) + min / 2.0) * 2.0);
            }
            Self::MinMax { min, max, .. } => each(cells, |x| x * (max - min) + min),
            Self::Bin(ref boundaries) => each(cells, |x| boundaries.middle_of(x)),
            Self::Log1p => each(cells, unlogarithm),
            Self::Power { method, lambda } => each(cells, |x| unpower(x, method, lambda)),
        }
    }

    /// Operations as the literal argument that carries them through a plan.
    pub(crate) fn to_bytes(ops: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(OP_BYTES * ops.len());
        ops.iter().for_each(|op| op.encode(&mut bytes));
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote; `None` for other bytes.
    pub(crate) fn from_bytes(mut bytes: &[u8]) -> Option<Vec<Self>> {
        let mut ops = Vec::with_capacity(bytes.len() / OP_BYTES);
        while !bytes.is_empty() {
            let (op, rest) = Self::decode(bytes)?;
            ops.push(op);
            bytes = rest;
        }
        Some(ops)
    }

    /// Appends the kind and two numbers; of bins, their count and then their boundaries.
    fn encode(&self, bytes: &mut Vec<u8>) {
        let (kind, first, second) = match *self {
            Self::Fill(value) => (0, value, 0.0),
            Self::Clip { low, high } => (1, low, high),
            Self::Standardize { mean, scale } => (2, mean, scale),
            Self::MinMax { min, max, clip } => (if clip { 4 } else { 3 }, min, max),
            Self::Log1p => (5, 0.0, 0.0),
            Self::Power { method, lambda } => (6, lambda, code(method)),
            Self::Probe(Probe::Weight(method)) => (7, 0.0, code(method)),
            Self::Probe(Probe::Sum { method, lambda }) => (8, lambda, code(method)),
            Self::Probe(Probe::Difference { method, lambda }) => (9, lambda, code(method)),
            Self::Bin(ref boundaries) => (10, f64::from_bits(boundaries.len() as u64), 0.0),
        };
        bytes.push(kind);
        bytes.extend_from_slice(&f64::to_le_bytes(first));
        bytes.extend_from_slice(&f64::to_le_bytes(second));
        if let Self::Bin(boundaries) = self {
            boundaries.append_to(bytes);
        }
    }

    /// Reads an operation and returns the bytes after it.
    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (own, rest) = bytes.split_first_chunk::<OP_BYTES>()?;
        let number = |at: usize| f64::from_le_bytes(std::array::from_fn(|byte| own[at + byte]));
        let (first, second) = (number(1), number(9));
        let (lambda, method) = (first, method_of(second));
        let op = match own[0] {
            0 => Self::Fill(first),
            1 => Self::Clip {
                low: first,
                high: second,
            },
            2 => Self::Standardize {
                mean: first,
                scale: second,
            },
            kind @ (3 | 4) => Self::MinMax {
                min: first,
                max: second,
                clip: kind == 4,
            },
            5 => Self::Log1p,
            6 => Self::Power { method, lambda },
            7 => Self::Probe(Probe::Weight(method)),
            8 => Self::Probe(Probe::Sum { method, lambda }),
            9 => Self::Probe(Probe::Difference { method, lambda }),
            10 => {
                let count = usize::try_from(first.to_bits()).ok()?;
                let (boundaries, rest) = BinBoundaries::take(rest, count)?;
                return Some((Self::Bin(boundaries), rest));
            }
            _ => return None,
        };
        Some((op, rest))
    }
}

/// A family of powers as the number that carries it.
const fn code(method: PowerMethod) -> f64 {
    match method {
        PowerMethod::YeoJohnson => 0.0,
        PowerMethod::BoxCox => 1.0,
    }
}

fn method_of(code: f64) -> PowerMethod {
    if code > 0.5 {
        PowerMethod::BoxCox
    } else {
        PowerMethod::YeoJohnson
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

/// `f` of the finite cells; the others stay, so that they are counted as what they are.
#[inline]
fn of_finite(cells: &mut [f64], f: impl Fn(f64) -> f64) {
    each(cells, |x| if x.is_finite() { f(x) } else { x });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(op: &CellOp, cell: f64, expected: f64) {
        let mut cells = [cell];
        let restored = CellOp::from_bytes(&CellOp::to_bytes(std::slice::from_ref(op))).unwrap();
        let [restored] = &restored[..] else {
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
        check(&CellOp::Fill(3.0), f64::NAN, 3.0);
        check(&CellOp::Fill(3.0), f64::INFINITY, f64::INFINITY);
        check(&CellOp::Fill(3.0), 1.0, 1.0);
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
            check(&clip, cell, expected);
        }
    }

    #[test]
    fn capped_cells_are_those_that_clipping_changes() {
        let clip = CellOp::Clip {
            low: -1.0,
            high: 2.0,
        };
        let cells = [-1.5, -1.0, f64::NAN, 2.0, 2.5, f64::INFINITY];
        assert_eq!(clip.count_capped(&cells), 3);
        assert_eq!(unit_of(-1.0, 2.0, true).count_capped(&cells), 0);
    }

    #[test]
    fn a_range_without_width_gives_zero_but_hides_no_infinity() {
        let flat = CellOp::MinMax {
            min: 4.0,
            max: 4.0,
            clip: false,
        };
        check(&flat, 4.0, 0.0);
        check(&flat, 9.0, 0.0);
        check(&flat, f64::INFINITY, f64::INFINITY);
        check(&flat, f64::NAN, f64::NAN);
    }

    #[test]
    fn the_widest_range_does_not_overflow() {
        let wide = CellOp::MinMax {
            min: -f64::MAX,
            max: f64::MAX,
            clip: false,
        };
        check(&wide, -f64::MAX, 0.0);
        check(&wide, 0.0, 0.5);
        check(&wide, f64::MAX, 1.0);
        check(&unit_of(1.0, 3.0, false), 2.5, 0.75);
    }

    fn unit_of(min: f64, max: f64, clip: bool) -> CellOp {
        CellOp::MinMax { min, max, clip }
    }

    #[test]
    fn what_lies_outside_of_the_range_leaves_it_unless_it_is_clipped() {
        for (cell, free, clipped) in [
            (0.0, -0.5, 0.0),
            (4.0, 1.5, 1.0),
            (f64::INFINITY, f64::INFINITY, 1.0),
            (f64::NEG_INFINITY, f64::NEG_INFINITY, 0.0),
            (f64::NAN, f64::NAN, f64::NAN),
        ] {
            check(&unit_of(1.0, 3.0, false), cell, free);
            check(&unit_of(1.0, 3.0, true), cell, clipped);
        }
        check(&unit_of(4.0, 4.0, true), f64::INFINITY, 0.0);
    }

    #[test]
    fn a_step_undone_gives_the_cell_back() {
        let steps = [
            CellOp::Standardize {
                mean: 3.0,
                scale: 2.0,
            },
            unit_of(1.0, 3.0, false),
            CellOp::Log1p,
            CellOp::Power {
                method: PowerMethod::YeoJohnson,
                lambda: 0.5,
            },
            CellOp::Power {
                method: PowerMethod::BoxCox,
                lambda: -0.5,
            },
        ];
        for step in steps {
            let mut cells = [0.75, 2.0];
            step.apply(&mut cells);
            step.invert(&mut cells);
            for (back, cell) in cells.into_iter().zip([0.75, 2.0]) {
                assert!((back - cell).abs() < 1e-14, "{step:?} {back}");
            }
        }
        let (widest, mut end) = (unit_of(-f64::MAX, f64::MAX, false), [1.0]);
        widest.invert(&mut end);
        assert_eq!(end[0].to_bits(), f64::MAX.to_bits());
        let mut flat = [0.0];
        unit_of(4.0, 4.0, false).invert(&mut flat);
        assert_eq!(flat[0].to_bits(), 4f64.to_bits());
        let mut kept = [5.0];
        CellOp::Fill(2.0).invert(&mut kept);
        assert_eq!(kept[0].to_bits(), 5f64.to_bits());
    }

    #[test]
    fn every_operation_survives_the_way_through_a_plan() {
        for method in [PowerMethod::YeoJohnson, PowerMethod::BoxCox] {
            let lambda = -0.25;
            let ops = [
                CellOp::Log1p,
                CellOp::Power { method, lambda },
                CellOp::Probe(Probe::Weight(method)),
                CellOp::Probe(Probe::Sum { method, lambda }),
                CellOp::Probe(Probe::Difference { method, lambda }),
            ];
            let found = CellOp::from_bytes(&CellOp::to_bytes(&ops));
            assert_eq!(found.as_deref(), Some(&ops[..]));
        }
    }

    #[test]
    fn other_bytes_are_not_operations() {
        assert_eq!(CellOp::from_bytes(&[]), Some(Vec::new()));
        assert_eq!(CellOp::from_bytes(&[0; 16]), None);
        assert_eq!(CellOp::from_bytes(&[10; 17]), None);
    }
}
