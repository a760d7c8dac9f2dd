//! Products of many small matrices by one and the same.
//!
//! The library packs both factors at each product. Where one is constant, as the weights of a
//! recurrent layer are over all steps, it is packed once, into panels of [`WIDTH`] columns; a block
//! of [`HEIGHT`] rows of the other takes one after the other (the inner kernel of K. Goto, R. van
//! de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008). Every sum
//! is taken in the order of the inner side, one number at a time.

use macerator::{AutoArch, Simd, WithSimd};

/// Columns of a panel.
const WIDTH: usize = 16;

/// Rows of a block.
const HEIGHT: usize = 6;

/// A matrix `[inner, columns]` to multiply by.
#[derive(Debug)]
pub(super) struct Packed {
    /// Panels of columns one after the other, each `[inner, WIDTH]`; what the last lacks is 0.
    panels: Vec<f32>,
    inner: usize,
    columns: usize,
}

impl Packed {
    /// From the matrix.
    pub(super) fn of(matrix: &[f32], [inner, columns]: [usize; 2]) -> Self {
        let mut packed = Self::empty(inner, columns);
        for (panel, first) in packed.panels_mut() {
            let width = WIDTH.min(columns - first);
            for (k, line) in panel.as_chunks_mut::<WIDTH>().0.iter_mut().enumerate() {
                let begin = k * columns + first;
                line[..width].copy_from_slice(&matrix[begin..begin + width]);
            }
        }
        packed
    }

    /// From the matrix with its sides exchanged, `[columns, inner]`.
    pub(super) fn of_turned(matrix: &[f32], [columns, inner]: [usize; 2]) -> Self {
        let mut packed = Self::empty(inner, columns);
        for (panel, first) in packed.panels_mut() {
            for (j, row) in matrix[first * inner..]
                .chunks_exact(inner)
                .take(WIDTH)
                .enumerate()
            {
                for (line, number) in panel.as_chunks_mut::<WIDTH>().0.iter_mut().zip(row) {
                    line[j] = *number;
                }
            }
        }
        packed
    }

    fn empty(inner: usize, columns: usize) -> Self {
        Self {
            panels: vec![0.0; columns.div_ceil(WIDTH) * WIDTH * inner],
            inner,
            columns,
        }
    }

    /// Panels, and the first column of each.
    fn panels_mut(&mut self) -> impl Iterator<Item = (&mut [f32], usize)> {
        let panels = self.panels.chunks_exact_mut(WIDTH * self.inner);
        panels.zip((0..).step_by(WIDTH))
    }

    /// `product = left * self`, with `left: [rows, inner]` and `product: [rows, columns]`.
    pub(super) fn multiply(&self, left: &[f32], product: &mut [f32]) {
        AutoArch::new().dispatch(Multiply {
            left,
            right: self,
            product,
        });
    }
}

struct Multiply<'a> {
    left: &'a [f32],
    right: &'a Packed,
    product: &'a mut [f32],
}

impl WithSimd for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self) {
        let Packed {
            panels,
            inner,
            columns,
        } = self.right;
        // The rows of a block beside one another: `[inner, HEIGHT]`.
        let mut block = vec![[0.0; HEIGHT]; *inner];
        let rows = self.left.chunks(HEIGHT * inner);
        for (rows, product) in rows.zip(self.product.chunks_mut(HEIGHT * columns)) {
            for (i, row) in rows.chunks_exact(*inner).enumerate() {
                for (line, number) in block.iter_mut().zip(row) {
                    line[i] = *number;
                }
            }
            for (panel, first) in panels.chunks_exact(WIDTH * inner).zip((0..).step_by(WIDTH)) {
                let sums = sums(&block, panel.as_chunks().0);
                let width = WIDTH.min(columns - first);
                for (row, sums) in product.chunks_exact_mut(*columns).zip(&sums) {
                    row[first..first + width].copy_from_slice(&sums[..width]);
                }
            }
        }
    }
}

/// A block by a panel. Rows are written out: in loops over them the sums would not stay in
/// registers.
#[inline(always)]
fn sums(block: &[[f32; HEIGHT]], panel: &[[f32; WIDTH]]) -> [[f32; WIDTH]; HEIGHT] {
    let [mut a, mut b, mut c, mut d, mut e, mut f] = [[0.0; WIDTH]; HEIGHT];
    for (left, right) in block.iter().zip(panel) {
        add(&mut a, left[0], right);
        add(&mut b, left[1], right);
        add(&mut c, left[2], right);
        add(&mut d, left[3], right);
        add(&mut e, left[4], right);
        add(&mut f, left[5], right);
    }
    [a, b, c, d, e, f]
}

/// Adds `left` times `right`.
#[inline(always)]
fn add(sums: &mut [f32; WIDTH], left: f32, right: &[f32; WIDTH]) {
    for (sum, right) in sums.iter_mut().zip(right) {
        *sum += left * right;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        let number = |i: usize| ((i * 7919 + seed) % 1013) as f32 / 128.0 - 4.0;
        (0..count).map(number).collect()
    }

    #[test]
    fn products_are_sums_in_the_order_of_the_inner_side() {
        for [rows, inner, columns] in [[1, 1, 1], [5, 3, 15], [6, 16, 16], [7, 9, 17], [13, 40, 70]]
        {
            let (left, right) = (numbers(rows * inner, 1), numbers(inner * columns, 2));
            let mut expected = vec![0.0; rows * columns];
            let mut turned = vec![0.0; right.len()];
            for row in 0..rows {
                for column in 0..columns {
                    for k in 0..inner {
                        expected[row * columns + column] +=
                            left[row * inner + k] * right[k * columns + column];
                        turned[column * inner + k] = right[k * columns + column];
                    }
                }
            }
            for packed in [
                Packed::of(&right, [inner, columns]),
                Packed::of_turned(&turned, [columns, inner]),
            ] {
                let mut product = vec![f32::NAN; rows * columns];
                packed.multiply(&left, &mut product);
                assert_eq!(product, expected, "{rows} {inner} {columns}");
            }
        }
    }
}
