//! Content of the rows of a split.

use feedline_schemas::manifest::{Layout, TargetKind, TokenType};

/// Content of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowContent {
    /// Numbers.
    Dense { features: u32, target: TargetKind },
    /// An encoded image.
    Images { target: TargetKind },
    /// A document; ids are below `vocabulary`.
    Tokens { id: TokenType, vocabulary: u32 },
    /// Several parts; a text has at most `length` ids, 0 where rows have none.
    Multi {
        features: u32,
        images: bool,
        length: u32,
        target: TargetKind,
    },
}

impl RowContent {
    /// Number of classes, of a record with classes as targets.
    pub(crate) fn classes(&self) -> Option<u32> {
        match *self {
            Self::Dense { target, .. } | Self::Images { target } | Self::Multi { target, .. } => {
                match target {
                    TargetKind::Classification { classes } => Some(classes),
                    TargetKind::None | TargetKind::Regression | TargetKind::Regressions { .. } => {
                        None
                    }
                }
            }
            Self::Tokens { .. } => None,
        }
    }
}

impl From<&Layout> for RowContent {
    fn from(layout: &Layout) -> Self {
        match *layout {
            Layout::Dense { features, target } => Self::Dense { features, target },
            Layout::Images { target } => Self::Images { target },
            Layout::Tokens { id, vocabulary } => Self::Tokens { id, vocabulary },
            Layout::Multi {
                features,
                images,
                tokens,
                target,
            } => Self::Multi {
                features,
                images,
                length: tokens.map_or(0, |tokens| tokens.length),
                target,
            },
        }
    }
}
