//! Affine changes: rotation, shear, translation.

use feedline_image::rounding::whole;

use super::level::level;

/// Maps the centre of an output pixel to a place in the input: `x' = a x + b y + c`, `y' = d x + e y + f`, in pixels,
/// with pixel (0, 0) from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Affine {
    pub(super) x: [f64; 3],
    pub(super) y: [f64; 3],
}

impl Affine {
    /// Rotation by `degrees` counter-clockwise around the image's centre.
    pub(super) fn rotation(degrees: f64, width: f64, height: f64) -> Self {
        let (sin, cos) = degrees.to_radians().sin_cos();
        let (centre_x, centre_y) = (width / 2.0, height / 2.0);
        Self {
            x: [cos, -sin, centre_x - cos * centre_x + sin * centre_y],
            y: [sin, cos, centre_y - sin * centre_x - cos * centre_y],
        }
    }

    /// Shifts each row left by `amount` times its place, or each column up.
    pub(super) const fn shear(amount: f64, along_x: bool) -> Self {
        if along_x {
            Self {
                x: [1.0, amount, 0.0],
                y: [0.0, 1.0, 0.0],
            }
        } else {
            Self {
                x: [1.0, 0.0, 0.0],
                y: [amount, 1.0, 0.0],
            }
        }
    }

    /// Moves the image right and down.
    pub(super) const fn translation(right: f64, down: f64) -> Self {
        Self {
            x: [1.0, 0.0, -right],
            y: [0.0, 1.0, -down],
        }
    }
}

/// Writes the changed `from` to `to`, RGB rows of `width` pixels. Bilinear between pixel centres; a pixel whose place is
/// outside the image becomes `fill`, and within half a pixel of the edge the edge's pixels are repeated.
pub(super) fn transform(from: &[u8], to: &mut [u8], width: usize, map: Affine, fill: [u8; 3]) {
    let height = from.len() / (width * 3);
    let (limit_x, limit_y) = (width as f64, height as f64);
    for (row, pixels) in to.chunks_exact_mut(width * 3).enumerate() {
        let y = row as f64 + 0.5;
        for (column, pixel) in pixels.as_chunks_mut::<3>().0.iter_mut().enumerate() {
            let x = column as f64 + 0.5;
            let place_x = map.x[0] * x + map.x[1] * y + map.x[2];
            let place_y = map.y[0] * x + map.y[1] * y + map.y[2];
            let inside = place_x >= 0.0 && place_x < limit_x && place_y >= 0.0 && place_y < limit_y;
            *pixel = if inside {
                blend(from, [width, height], [place_x - 0.5, place_y - 0.5])
            } else {
                fill
            };
        }
    }
}

fn blend(from: &[u8], [width, height]: [usize; 2], [x, y]: [f64; 2]) -> [u8; 3] {
    let (left, right, across) = between(x, width);
    let (top, bottom, down) = between(y, height);
    let at = |row: usize, column: usize, channel: usize| {
        f64::from(from[(row * width + column) * 3 + channel])
    };
    [0, 1, 2].map(|channel| {
        let upper = at(top, left, channel) * (1.0 - across) + at(top, right, channel) * across;
        let lower =
            at(bottom, left, channel) * (1.0 - across) + at(bottom, right, channel) * across;
        level(upper * (1.0 - down) + lower * down + 0.5)
    })
}

/// The two places beside `at`, and the share of the second.
fn between(at: f64, length: usize) -> (usize, usize, f64) {
    let first = at.floor();
    let share = at - first;
    let last = length - 1;
    if first < 0.0 {
        return (0, 0, 0.0);
    }
    let first = whole(first) as usize;
    (first.min(last), (first + 1).min(last), share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Vec<u8> {
        (0..16 * 3).map(|i| i * 5).collect()
    }

    fn turned(map: Affine) -> Vec<u8> {
        let mut to = vec![9; 48];
        transform(&image(), &mut to, 4, map, [1, 2, 3]);
        to
    }

    #[test]
    fn quarter_turns_move_pixels_and_change_none() {
        let from = image();
        let to = turned(Affine::rotation(90.0, 4.0, 4.0));
        for (y, x) in (0..4).flat_map(|y| (0..4).map(move |x| (y, x))) {
            // Counter-clockwise: what was at the right is now at the top.
            let (from_y, from_x) = (x, 3 - y);
            let (a, b) = ((y * 4 + x) * 3, (from_y * 4 + from_x) * 3);
            assert_eq!(to[a..a + 3], from[b..b + 3], "row {y}, column {x}");
        }
        assert_eq!(turned(Affine::rotation(360.0, 4.0, 4.0)), from);
    }

    #[test]
    fn what_comes_from_outside_is_filled() {
        let from = image();
        let to = turned(Affine::translation(1.0, 0.0));
        for (a, b) in to.chunks(12).zip(from.chunks(12)) {
            assert_eq!(a[..3], [1, 2, 3]);
            assert_eq!(a[3..], b[..9]);
        }
        let to = turned(Affine::shear(1.0, true));
        // Row 0, whose centre is half a pixel down, moves left by half a pixel.
        let halves: Vec<u8> = from[3..9]
            .iter()
            .zip(&from)
            .map(|(a, b)| a.midpoint(*b) + (a ^ b) % 2)
            .collect();
        assert_eq!(to[..6], halves);
    }
}
