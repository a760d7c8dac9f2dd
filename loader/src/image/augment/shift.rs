//! A box of a padded image.

/// Writes to `to` the box of the size of `from` whose upper left corner is at `at`, row and column, of `from` with
/// `padding` pixels of `fill` on each side. Images are rows of `width` pixels, u8 RGB.
pub(super) fn padded(
    from: &[u8],
    to: &mut [u8],
    width: usize,
    ([top, left], padding): ([usize; 2], usize),
    fill: [u8; 3],
) {
    let (from, to) = (from.as_chunks::<3>().0, to.as_chunks_mut::<3>().0);
    let height = from.len() / width;
    // Columns of the box inside the image, and the first of them in the image.
    let inside = |start: usize, length: usize| {
        let first = padding.saturating_sub(start).min(length);
        let last = (padding + length).saturating_sub(start).min(length);
        (
            first..last.max(first),
            (start + first).saturating_sub(padding),
        )
    };
    let (columns, from_column) = inside(left, width);
    let (rows, from_row) = inside(top, height);
    to.fill(fill);
    if columns.is_empty() {
        return;
    }
    let lines = to.chunks_exact_mut(width).skip(rows.start).take(rows.len());
    for (line, source) in lines.zip(from.chunks_exact(width).skip(from_row)) {
        line[columns.clone()].copy_from_slice(&source[from_column..][..columns.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of 3 by 2 pixels, numbered from 1, cut at a corner of the same with 2 pixels of 9 around it.
    fn check(at: [usize; 2], expected: [u8; 6]) {
        let image: Vec<u8> = (1..=6).flat_map(|value| [value; 3]).collect();
        let mut found = vec![0; image.len()];
        padded(&image, &mut found, 3, (at, 2), [9; 3]);
        let expected: Vec<u8> = expected.into_iter().flat_map(|value| [value; 3]).collect();
        assert_eq!(found, expected, "{at:?}");
    }

    #[test]
    fn a_box_in_the_middle_of_the_padding_is_the_image() {
        check([2, 2], [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_box_aside_has_padding_where_the_image_ends() {
        check([2, 3], [2, 3, 9, 5, 6, 9]);
        check([1, 2], [9, 9, 9, 1, 2, 3]);
        check([3, 0], [9, 9, 4, 9, 9, 9]);
        check([4, 4], [9, 9, 9, 9, 9, 9]);
        check([0, 0], [9, 9, 9, 9, 9, 9]);
    }
}
