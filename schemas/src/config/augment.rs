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
    /// `true`: the usual ones of photographs, a random resized crop and a horizontal flip half of the time. `false`: none.
    Usual(bool),
    /// These, in the order written.
    Steps(Vec<AugmentStep>),
}

impl Default for Augmentation {
    fn default() -> Self {
        Self::Usual(false)
    }
}

impl Augmentation {
    /// True where images change at all.
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

/// By hand, so that what is wrong with a step is named; an untagged enum would not say it.
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
            "description": "Random changes of the images of a training: `true` for the usual ones, `false` for none, or a list.",
            "anyOf": [{ "type": "boolean" }, steps]
        })
    }
}

/// A random change of a training image. What is drawn is a function of the seed, the epoch, the sample and the place of
/// the step in the list, so neither threads nor ranks have a part in it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum AugmentStep {
    /// A random box of the image, resized to `height` and `width`; only the first step can be one. Without it, the whole
    /// image is resized.
    RandomResizedCrop {
        /// Least and most share of the image's area, above 0 to 1. Default `[0.08, 1.0]`.
        #[serde(default = "usual_scale")]
        scale: [f32; 2],
        /// Least and most width divided by height, 0.01 to 100. Default `[0.75, 1.3333334]`.
        #[serde(default = "usual_ratio")]
        ratio: [f32; 2],
    },
    /// The image is moved by up to `padding` pixels each way, as if it was padded on all sides and a box of its own size
    /// cut out at random.
    RandomCrop {
        /// Pixels on each side, 1 to 8,192. Usual for images of 32 pixels: 4.
        padding: u32,
        /// Red, green and blue of the padding, 0 to 255. Default black.
        #[serde(default)]
        fill: [u8; 3],
    },
    /// Left and right change places.
    HorizontalFlip {
        /// Probability, 0 to 1. Default 0.5.
        #[serde(default = "half")]
        probability: f32,
    },
    /// Top and bottom change places.
    VerticalFlip {
        /// Probability, 0 to 1. Default 0.5.
        #[serde(default = "half")]
        probability: f32,
    },
    /// The image is turned around its centre, by bilinear interpolation.
    Rotate {
        /// Least and most angle in degrees, counter-clockwise, -360 to 360.
        degrees: [f32; 2],
        /// Red, green and blue of the corners that nothing is turned into, 0 to 255. Default black.
        #[serde(default)]
        fill: [u8; 3],
    },
    /// Brightness, contrast, saturation and hue change, in a random order.
    ColourJitter {
        /// Least and most factor, 0 (black) to 10. Default `[1, 1]`, no change.
        #[serde(default = "unchanged")]
        brightness: [f32; 2],
        /// Least and most factor, 0 (the mean grey) to 10. Default `[1, 1]`, no change.
        #[serde(default = "unchanged")]
        contrast: [f32; 2],
        /// Least and most factor, 0 (grey) to 10. Default `[1, 1]`, no change.
        #[serde(default = "unchanged")]
        saturation: [f32; 2],
        /// Least and most turn of the hue, -0.5 to 0.5 of the circle. Default `[0, 0]`, no change.
        #[serde(default)]
        hue: [f32; 2],
    },
    /// Some of 14 operations, drawn for each image: RandAugment.
    RandAugment {
        /// Operations in a row, 1 to 16. Default 2.
        #[serde(default = "usual_operations")]
        operations: u32,
        /// Strength, 0 to `bins - 1`. Default 9.
        #[serde(default = "usual_magnitude")]
        magnitude: u32,
        /// Number of strengths, 2 to 1,000. Default 31.
        #[serde(default = "usual_bins")]
        bins: u32,
        /// Red, green and blue of what nothing is moved into, 0 to 255. Default black.
        #[serde(default)]
        fill: [u8; 3],
    },
    /// A square anywhere in the image is painted over.
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

/// `[train.images.mix]`: images of a training batch are mixed in pairs. The loss of a mixed image is `lambda` times
/// that of its own target and `1 - lambda` times that of its partner's, so the training loss is not comparable with the
/// validation loss, which is of images as they are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ImageMixConfig {
    /// Probability of mixup for an image, 0 to 1: each pixel is `lambda` of its own and the rest of its partner's.
    /// Default 0.
    pub mixup: f32,
    /// Both parameters of the Beta distribution that mixup draws `lambda` from, 0.01 to 100. Default 0.2.
    pub mixup_alpha: f32,
    /// Probability of CutMix for an image, 0 to `1 - mixup`: a box of it is its partner's, and `lambda` is the share
    /// of the rest. Default 0.
    pub cutmix: f32,
    /// Both parameters of the Beta distribution that CutMix draws the box's area from, 0.01 to 100. Default 1.
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

/// Statistics that images are normalised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormaliseBy {
    /// Mean and standard deviation of the dataset's training split, as its transform has them; a dataset with
    /// `[dataset.image]` has them.
    Dataset,
    /// Those of ImageNet.
    Imagenet,
}
