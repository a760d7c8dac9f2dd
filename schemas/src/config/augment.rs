//! `[train.images]`: augmentation, mixing and normalisation of images.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{SeqAccess, Visitor, value::SeqAccessDeserializer},
};

/// Random changes of the images of a training.
#[derive(Clone, Debug, PartialEq)]
pub enum Augmentation {
    /// `true`: the usual changes for photographs, a random resized crop and a horizontal flip half
    /// of the time. `false`: none.
    Usual(bool),
    /// The listed changes, in this order.
    Steps(Vec<AugmentStep>),
}

impl Default for Augmentation {
    fn default() -> Self {
        Self::Usual(false)
    }
}

impl Augmentation {
    /// Returns true if images change at all.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        match self {
            Self::Usual(on) => *on,
            Self::Steps(steps) => !steps.is_empty(),
        }
    }
}

impl Serialize for Augmentation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Usual(on) => serializer.serialize_bool(*on),
            Self::Steps(steps) => steps.serialize(serializer),
        }
    }
}

/// Written by hand, so that an error names the faulty key of a step; an untagged enum would not.
impl<'de> Deserialize<'de> for Augmentation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BoolOrSteps;
        impl<'de> Visitor<'de> for BoolOrSteps {
            type Value = Augmentation;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false`, or a list of tables with a `type`")
            }

            fn visit_bool<E>(self, on: bool) -> Result<Augmentation, E> {
                Ok(Augmentation::Usual(on))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Augmentation, A::Error> {
                let steps = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                Ok(Augmentation::Steps(steps))
            }
        }
        deserializer.deserialize_any(BoolOrSteps)
    }
}

impl JsonSchema for Augmentation {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Augmentation".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let steps = generator.subschema_for::<Vec<AugmentStep>>();
        schemars::json_schema!({
            "description": "Random changes of training images: `true` for the usual ones, `false` for none, or a list.",
            "anyOf": [{ "type": "boolean" }, steps]
        })
    }
}

/// A random change of a training image. The random numbers depend only on the seed, the epoch, the
/// sample and the position of the step in the list. Numbers of threads and ranks have no influence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum AugmentStep {
    /// A random box of the image, resized to `height` and `width`; only the first step can be one.
    /// Without it, the complete image is resized.
    RandomResizedCrop {
        /// Smallest and largest fraction of the image's area, above 0 to 1. Default `[0.08, 1.0]`.
        #[serde(default = "usual_scale")]
        scale: [f32; 2],
        /// Smallest and largest width divided by height, 0.01 to 100. Default `[0.75, 1.3333334]`.
        #[serde(default = "usual_ratio")]
        ratio: [f32; 2],
    },
    /// The image is shifted by up to `padding` pixels in each direction. It is padded on all sides,
    /// and a box of its original size is cropped at random.
    RandomCrop {
        /// Pixels on each side, 1 to 8,192. Usual for images of 32 pixels: 4.
        padding: u32,
        /// Red, green and blue of the padding, 0 to 255. Default black.
        #[serde(default)]
        fill: [u8; 3],
    },
    /// Left and right are swapped.
    HorizontalFlip {
        /// Probability, 0 to 1. Default 0.5.
        #[serde(default = "half")]
        probability: f32,
    },
    /// Top and bottom are swapped.
    VerticalFlip {
        /// Probability, 0 to 1. Default 0.5.
        #[serde(default = "half")]
        probability: f32,
    },
    /// The image is rotated around its centre, by bilinear interpolation.
    Rotate {
        /// Smallest and largest angle in degrees, counter-clockwise, -360 to 360.
        degrees: [f32; 2],
        /// Red, green and blue of the empty corners, 0 to 255. Default black.
        #[serde(default)]
        fill: [u8; 3],
    },
    /// Brightness, contrast, saturation and hue change, in a random order.
    ColourJitter {
        /// Smallest and largest factor, 0 (black) to 10. Default `[1, 1]`, no change.
        #[serde(default = "unchanged")]
        brightness: [f32; 2],
        /// Smallest and largest factor, 0 (the mean grey) to 10. Default `[1, 1]`, no change.
        #[serde(default = "unchanged")]
        contrast: [f32; 2],
        /// Smallest and largest factor, 0 (grey) to 10. Default `[1, 1]`, no change.
        #[serde(default = "unchanged")]
        saturation: [f32; 2],
        /// Smallest and largest shift of the hue, -0.5 to 0.5 of the circle. Default `[0, 0]`, no
        /// change.
        #[serde(default)]
        hue: [f32; 2],
    },
    /// RandAugment: some of 14 operations, drawn for each image.
    RandAugment {
        /// Number of consecutive operations, 1 to 16. Default 2.
        #[serde(default = "usual_operations")]
        operations: u32,
        /// Strength, 0 to `bins - 1`. Default 9.
        #[serde(default = "usual_magnitude")]
        magnitude: u32,
        /// Number of strengths, 2 to 1,000. Default 31.
        #[serde(default = "usual_bins")]
        bins: u32,
        /// Red, green and blue of empty areas, 0 to 255. Default black.
        #[serde(default)]
        fill: [u8; 3],
    },
    /// A square at a random position in the image is filled.
    Cutout {
        /// Probability, 0 to 1. Default 1.
        #[serde(default = "always")]
        probability: f32,
        /// Side of the square in pixels, 1 to 8,192.
        side: u32,
        /// Red, green and blue of the square, 0 to 255. Default black.
        #[serde(default)]
        fill: [u8; 3],
    },
}

const fn usual_scale() -> [f32; 2] {
    [0.08, 1.0]
}

const fn usual_ratio() -> [f32; 2] {
    [3.0 / 4.0, 4.0 / 3.0]
}

const fn half() -> f32 {
    0.5
}

const fn always() -> f32 {
    1.0
}

const fn unchanged() -> [f32; 2] {
    [1.0, 1.0]
}

const fn usual_operations() -> u32 {
    2
}

const fn usual_magnitude() -> u32 {
    9
}

const fn usual_bins() -> u32 {
    31
}

/// `[train.images.mix]`: images of a training batch are mixed in pairs. The loss of a mixed image
/// is `lambda` times the loss for its own target plus `1 - lambda` times the loss for its
/// partner's. So the training loss is not comparable with the validation loss, which is measured on
/// unmixed images.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ImageMixConfig {
    /// Probability of mixup for an image, 0 to 1: each pixel is `lambda` times its own value plus
    /// `1 - lambda` times its partner's. Default 0.
    pub mixup: f32,
    /// Both parameters of the Beta distribution that mixup draws `lambda` from, 0.01 to 100.
    /// Default 0.2.
    pub mixup_alpha: f32,
    /// Probability of CutMix for an image, 0 to `1 - mixup`: a box of it is replaced by its
    /// partner's, and `lambda` is the fraction of the remaining area. Default 0.
    pub cutmix: f32,
    /// Both parameters of the Beta distribution that CutMix draws the box's area from, 0.01 to 100.
    /// Default 1.
    pub cutmix_alpha: f32,
}

impl Default for ImageMixConfig {
    fn default() -> Self {
        Self {
            mixup: 0.0,
            mixup_alpha: 0.2,
            cutmix: 0.0,
            cutmix_alpha: 1.0,
        }
    }
}

/// Statistics for the normalization of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormaliseBy {
    /// Mean and standard deviation of the dataset's training split, from its transform artefact; a
    /// dataset with `[dataset.image]` has them.
    Dataset,
    /// Those of ImageNet.
    Imagenet,
}
