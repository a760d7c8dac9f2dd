//! Made-up samples of any shape.

use crate::{
    data::samples::{ModelInputs, Samples, Targets},
    model::interface::Shape,
    testing::uniform,
};

/// Owned samples of some shape.
pub(super) struct Data {
    pub(super) shape: Shape,
    pub(super) x: Vec<f32>,
    pub(super) pixels: Vec<u8>,
    pub(super) tokens: Vec<u32>,
    lengths: Vec<u32>,
    pub(super) classes: Vec<i32>,
    pub(super) outputs: usize,
}

impl Data {
    pub(super) const ROWS: usize = 6;

    pub(super) fn new(shape: Shape) -> Self {
        let noise = |n: usize| uniform(n, 90);
        let below = |n: usize, end: f32| {
            let numbers = noise(n).into_iter();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "test data"
            )]
            numbers.map(move |v| (0.5 * (v + 1.0) * end) as u32)
        };
        let mut data = Self {
            shape,
            x: vec![],
            pixels: vec![],
            tokens: vec![],
            lengths: vec![],
            classes: (0..6).map(|i| i % 3).collect(),
            outputs: 3,
        };
        match shape {
            Shape::Rows { features } => data.x = noise(Self::ROWS * features),
            Shape::Images { height, width, .. } => {
                let values = below(Self::ROWS * height * width * 3, 255.9);
                data.pixels = values.map(|v| u8::try_from(v).unwrap()).collect();
            }
            Shape::Tokens { length, vocabulary } => {
                data.outputs = vocabulary;
                let end = f32::from(u16::try_from(vocabulary).unwrap());
                data.tokens = below(Self::ROWS * (length + 1), end - 0.01).collect();
            }
            Shape::Multi {
                features,
                images,
                tokens,
            } => {
                data.x = noise(Self::ROWS * features);
                if let Some([_, height, width]) = images {
                    let values = below(Self::ROWS * height * width * 3, 255.9);
                    data.pixels = values.map(|v| u8::try_from(v).unwrap()).collect();
                }
                if let Some([length, vocabulary]) = tokens {
                    let end = f32::from(u16::try_from(vocabulary).unwrap());
                    data.tokens = below(Self::ROWS * length, end - 0.01).collect();
                    let most = u32::try_from(length).unwrap();
                    data.lengths = (0..6).map(|row| 1 + row % most).collect();
                }
            }
        }
        data
    }

    pub(super) fn samples(&self) -> Samples<'_> {
        let mut inputs = ModelInputs {
            x: &self.x,
            pixels: &self.pixels,
            tokens: &self.tokens,
            ..ModelInputs::default()
        };
        match self.shape {
            Shape::Rows { features } => inputs.features = features,
            Shape::Images { height, width, .. } => inputs.sides = [height, width],
            Shape::Tokens { length, .. } => inputs.length = length + 1,
            Shape::Multi {
                features,
                images,
                tokens,
            } => {
                inputs.features = features;
                inputs.sides = images.map_or([0; 2], |[_, height, width]| [height, width]);
                inputs.length = tokens.map_or(0, |[length, _]| length);
                inputs.lengths = tokens.map(|_| &self.lengths[..]);
            }
        }
        Samples::new(Self::ROWS, inputs, Targets::Classes(&self.classes))
    }
}
