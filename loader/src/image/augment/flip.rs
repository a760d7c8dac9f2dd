//! Mirrors.

/// Left and right change places.
pub(super) fn horizontal(pixels: &mut [u8], width: usize) {
    for row in pixels.chunks_exact_mut(width * 3) {
        row.as_chunks_mut::<3>().0.reverse();
    }
}

/// Top and bottom change places.
pub(super) fn vertical(pixels: &mut [u8], width: usize) {
    let row = width * 3;
    let middle = pixels.len() / row / 2 * row;
    let (top, rest) = pixels.split_at_mut(middle);
    let below = rest.rchunks_exact_mut(row);
    for (a, b) in top.chunks_exact_mut(row).zip(below) {
        a.swap_with_slice(b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_move_whole_pixels() {
        let image: Vec<u8> = (0..18).collect();
        let mut pixels = image.clone();
        horizontal(&mut pixels, 2);
        assert_eq!(pixels[..6], [3, 4, 5, 0, 1, 2]);
        horizontal(&mut pixels, 2);
        vertical(&mut pixels, 2);
        assert_eq!(pixels[..6], image[12..]);
        assert_eq!(pixels[6..12], image[6..12], "the middle row stays");
        assert_eq!(pixels[12..], image[..6]);
    }
}
