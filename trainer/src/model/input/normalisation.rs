//! Normalization of images by the statistics of their colours.

/// Mean and standard deviation of red, green and blue.
pub(crate) type Statistics = [[f32; 3]; 2];

/// Normalization of images: `(value / 255 - mean) / deviation` for red, green and blue, or for
/// their brightness.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Normalisation {
    /// Colours: 3, or 1 for brightness, which has the first mean and deviation.
    pub(crate) channels: usize,
    /// Subtracted.
    pub(crate) mean: [f32; 3],
    /// Divided by.
    pub(crate) deviation: [f32; 3],
}

impl Default for Normalisation {
    fn default() -> Self {
        Self {
            channels: 3,
            mean: [0.0; 3],
            deviation: [1.0; 3],
        }
    }
}

impl Normalisation {
    /// Factor of a value of a colour, and the number that is then subtracted.
    pub(super) fn of(&self, colour: usize) -> [f32; 2] {
        let (mean, deviation) = (self.mean[colour], self.deviation[colour]);
        [1.0 / (255.0 * deviation), mean / deviation]
    }
}
