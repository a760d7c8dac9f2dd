//! Transform artefact, `transform.json`: every fitted number, and nothing else, needed to turn a raw row into features.
//!
//! Steps are applied in order to the columns they name. Applying is a pure function of the artefact and the row, the
//! same in the batch build, the loader and prediction. `hash` is the xxh3-128 of the document with `hash` set to zero.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::steps::{
    CategoryEncoding, FIRST_KNOWN_ID, FittedCapGroups, FittedCaps, FittedCategories,
    FittedFrequency, FittedImpute, FittedLog1p, FittedMinMax, FittedMoments, FittedNeighbours,
    FittedOutcome, FittedOutcomes, FittedPower, FittedRobust, FittedScaleGroups, FittedStandardize,
    FittedStep, FittedWinsorize, FoldBy, ImputeStatistic, NULL_ID, UNKNOWN_ID,
};
use crate::{
    config::{ImageBackground, StoredImageConfig},
    format::{TRANSFORM, versioned},
    ids::{Hash128, Name},
};

/// The artefact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransformArtefact {
    /// `feedline.transform`.
    pub format: String,
    /// Format version.
    pub version: u32,
    /// Hash of the document with this field zero.
    pub hash: Hash128,
    /// Rows of the training split the numbers were fitted on.
    pub fitted_rows: u64,
    /// Text values read as missing, compared after trimming spaces.
    pub null_values: Vec<String>,
    /// Numbers read as missing (such as `-200`).
    pub missing_values: Vec<f64>,
    /// Input columns in order.
    pub inputs: Vec<InputColumn>,
    /// Fitted steps in the order they are applied.
    pub steps: Vec<FittedStep>,
    /// Feature vector: name and origin of each element of `x`, in order.
    pub features: Vec<Feature>,
    /// Target, when the dataset has one.
    pub target: Option<FittedTarget>,
    /// The further targets, all numbers, where the dataset has several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_targets: Vec<FittedTarget>,
    /// Ids of characters, when the dataset holds texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub characters: Option<FittedCharacters>,
    /// Preparation of images, when the dataset decodes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<FittedImages>,
    /// The tokenizer, when the dataset holds tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<FittedTokens>,
    /// Number format of strings that are read as numbers, where one was declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signs: Option<NumberSigns>,
}
versioned!(TransformArtefact, TRANSFORM);

impl TransformArtefact {
    /// Returns the colour that transparent pixels of images were blended onto. In a dataset that decodes no images, and in one
    /// of a program that dropped alpha, it is [`ImageBackground::NONE`].
    #[must_use]
    pub fn image_background(&self) -> ImageBackground {
        let images = self.images.as_ref();
        let background = images.and_then(|images| images.prepared.background);
        background.unwrap_or(ImageBackground::NONE)
    }

    /// The artefact with the preparation of images, under its new hash.
    #[must_use]
    pub fn with_images(self, images: FittedImages) -> Self {
        let mut with = Self {
            images: Some(images),
            ..self
        };
        with.hash = with.compute_hash();
        with
    }

    /// Returns the artefact without its hash and without the counts and figures that only describe the training split. Of a target that is a class it has the names, sorted. Two artefacts whose forms are equal make the
    /// same features of every row.
    #[must_use]
    pub fn applied(&self) -> Self {
        let mut applied = Self {
            hash: Hash128::new(0),
            fitted_rows: 0,
            ..self.clone()
        };
        applied.steps.iter_mut().for_each(FittedStep::forget_counts);
        for target in applied.target.iter_mut().chain(&mut applied.other_targets) {
            match target {
                FittedTarget::Regression { mean, .. } => *mean = 0.0,
                FittedTarget::Classification {
                    classes, counts, ..
                } => {
                    classes.sort_unstable();
                    counts.clear();
                }
            }
        }
        if let Some(characters) = &mut applied.characters {
            characters.counts.clear();
        }
        if let Some(images) = &mut applied.images {
            (images.pixels, images.mean, images.deviation) = (0, [0.0; 3], [0.0; 3]);
        }
        if let Some(tokens) = &mut applied.tokens {
            tokens.learnt_bytes = None;
        }
        applied
    }

    /// All targets, in the order of a model's outputs.
    pub fn targets(&self) -> impl Iterator<Item = &FittedTarget> + Clone {
        self.target.iter().chain(&self.other_targets)
    }

    /// Returns whether column `name` is a target.
    #[must_use]
    pub fn is_target(&self, name: &str) -> bool {
        self.targets().any(|target| target.column() == name)
    }

    /// Names of the targets where there are several, in the order of a model's outputs; otherwise none.
    #[must_use]
    pub fn target_names(&self) -> Vec<String> {
        match self.other_targets.is_empty() {
            true => Vec::new(),
            false => self
                .targets()
                .map(|target| target.column().to_owned())
                .collect(),
        }
    }

    /// Computes the hash this artefact should carry.
    #[must_use]
    pub fn compute_hash(&self) -> Hash128 {
        let zeroed = Self {
            hash: Hash128::new(0),
            ..self.clone()
        };
        Hash128::of(&crate::encode(&zeroed))
    }
}

/// Number format of strings that are read as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NumberSigns {
    /// Decimal sign.
    pub decimal: char,
    /// Separator allowed between groups of three digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thousands: Option<char>,
}

/// Preparation of the images of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedImages {
    /// Column they come from.
    pub column: String,
    /// Transforms of each image, the filter included. Without a `background` alpha was dropped.
    pub prepared: StoredImageConfig,
    /// Pixels of the training split.
    pub pixels: u64,
    /// Mean of their red, green and blue, as stored but before they were encoded, in units of the full range (0 to 1).
    pub mean: [f64; 3],
    /// Standard deviation of all of them, in the same units.
    pub deviation: [f64; 3],
}

/// A raw column the transform reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InputColumn {
    /// Column name.
    pub name: String,
    /// Way of reading it.
    pub kind: InputKind,
}

/// Way of reading a raw column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// As a 64-bit float; text is parsed.
    Numeric,
    /// As text.
    Categorical,
}

/// One element of the feature vector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// Feature name: a column, `<column>__missing`, `<column>=<value>`, `<column>=#<bucket>`,
    /// or `<column>~<class>`.
    pub name: String,
    /// Column it comes from.
    pub column: String,
    /// Category id of a one-hot element.
    pub category: Option<u32>,
}

/// Fitted target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "task", deny_unknown_fields)]
pub enum FittedTarget {
    /// A number, stored as `(y - mean) / scale`.
    Regression {
        /// Column.
        column: String,
        /// Mean over the training split, in the target's units; what the baseline predicts.
        mean: f64,
        /// Standard deviation over the training split (dividing by n); 1 when it is 0 or scaling is off.
        scale: f64,
        /// Subtracted before dividing: `mean`, or 0 when scaling is off.
        offset: f64,
    },
    /// A class id, from 0.
    Classification {
        /// Column.
        column: String,
        /// Class names by id: those of `dataset.classes`, or else those of the training split, numbers by value, then
        /// texts by code points.
        classes: Vec<String>,
        /// Rows of each class in the training split that the transform was fitted on; 0 only for classes that
        /// `dataset.classes` lists.
        counts: Vec<u64>,
    },
}

impl FittedTarget {
    /// Column.
    #[must_use]
    pub fn column(&self) -> &str {
        match self {
            Self::Regression { column, .. } | Self::Classification { column, .. } => column,
        }
    }
}

/// Fitted ids of characters: 0 ([`UNKNOWN_ID`]) is one that the training split lacks, known ones follow by falling
/// count, then by code point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedCharacters {
    /// Column of the documents.
    pub column: String,
    /// Known characters; the first has id 1.
    pub characters: Vec<char>,
    /// Count of each in the training split.
    pub counts: Vec<u64>,
}

/// The tokenizer that makes ids of documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FittedTokens {
    /// Column of the documents.
    pub column: String,
    /// xxh3-128 of its `tokenizer.json`.
    pub tokenizer: Hash128,
    /// Number of ids there are: every id is below it.
    pub vocabulary: u32,
    /// Id behind each document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_of_text: Option<u32>,
    /// Bytes of the training split that it was learnt from; absent for one that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learnt_bytes: Option<u64>,
}

/// Origin of a dataset's fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransformReference {
    /// Path relative to the dataset folder.
    pub path: String,
    /// The artefact's `hash`.
    pub hash: Hash128,
    /// Dataset name.
    pub dataset: Name,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Versioned;

    fn artefact(mean: f64, fitted_rows: u64, classes: &[&str]) -> TransformArtefact {
        TransformArtefact {
            format: TransformArtefact::TAG.format.into(),
            version: TransformArtefact::TAG.version,
            hash: Hash128::new(u128::from(fitted_rows)),
            fitted_rows,
            null_values: vec![],
            missing_values: vec![],
            inputs: vec![],
            steps: vec![
                FittedStep::Standardize {
                    columns: vec![FittedStandardize {
                        name: "size".into(),
                        mean,
                        deviation: 2.0,
                        scale: 2.0,
                        constant: false,
                        groups: None,
                    }],
                },
                FittedStep::Categories {
                    columns: vec![FittedCategories::new(
                        "kind".into(),
                        vec!["a".into()],
                        vec![fitted_rows],
                        CategoryEncoding::OneHot,
                    )],
                },
            ],
            features: vec![],
            target: Some(FittedTarget::Classification {
                column: "class".into(),
                classes: classes.iter().map(|&class| class.into()).collect(),
                counts: vec![fitted_rows; classes.len()],
            }),
            other_targets: Vec::new(),
            characters: None,
            images: None,
            tokens: None,
            signs: None,
        }
    }

    #[test]
    fn transforms_of_other_rows_that_do_the_same_are_told_from_those_that_do_not() {
        let one = artefact(3.0, 10, &["x", "y"]);
        let of_more_rows = artefact(3.0, 20, &["y", "x"]);
        assert_ne!(one, of_more_rows);
        assert_eq!(one.applied(), of_more_rows.applied());
        assert_ne!(one.applied(), artefact(3.5, 10, &["x", "y"]).applied());
        assert_ne!(one.applied(), artefact(3.0, 10, &["x", "z"]).applied());
        // The share of a value is made of its count.
        let by_share = |rows| {
            let mut artefact = artefact(3.0, rows, &["x"]);
            if let FittedStep::Categories { columns } = &mut artefact.steps[1] {
                columns[0].encoding = CategoryEncoding::Frequency;
            }
            artefact.applied()
        };
        assert_ne!(by_share(10), by_share(20));
    }
}
