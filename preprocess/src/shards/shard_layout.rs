//! Layout of shards: the columns of a row, and the sizes of blocks and files.

use std::{collections::HashMap, sync::Arc};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use feedline_schemas::{
    config::ShardConfig,
    ids::{Hash128, Name},
    manifest::{KeptColumn, Layout, Manifest, Split, TargetKind, TokenType},
};

use crate::operators::passthrough_columns;

/// Format name in a shard's own metadata.
const FORMAT: &str = "feedline.shard";
const FORMAT_VERSION: &str = "1";

/// Settings that all shards of a dataset share.
#[derive(Clone, Debug)]
pub(crate) struct ShardLayout {
    pub(crate) dataset: Name,
    pub(crate) transform: Hash128,
    pub(crate) layout: Layout,
    /// True if images have boxes.
    pub(crate) boxes: bool,
    /// Passthrough columns.
    pub(crate) kept: Vec<KeptColumn>,
    pub(crate) block_bytes: u64,
    pub(crate) shard_bytes: u64,
}

impl ShardLayout {
    pub(crate) fn new(
        dataset: &Name,
        transform: Hash128,
        layout: Layout,
        sizes: &ShardConfig,
    ) -> Self {
        Self {
            dataset: dataset.clone(),
            transform,
            layout,
            boxes: false,
            kept: Vec::new(),
            block_bytes: sizes.block_bytes.bytes(),
            shard_bytes: sizes.shard_bytes.bytes(),
        }
    }

    /// The layout of a published dataset.
    pub(crate) fn of(manifest: &Manifest) -> Self {
        Self {
            boxes: manifest.counts.boxes.is_some(),
            kept: manifest.kept.clone(),
            ..Self::new(
                &manifest.dataset,
                manifest.transform.hash,
                manifest.layout.clone(),
                &ShardConfig::default(),
            )
        }
    }

    /// The same layout, but blocks and shards end only on request.
    pub(crate) fn with_given_ends(self) -> Self {
        Self {
            block_bytes: u64::MAX,
            shard_bytes: u64::MAX,
            ..self
        }
    }

    pub(super) fn parts(&self) -> Parts {
        let none = Parts {
            features: None,
            images: false,
            tokens: None,
            target: TargetKind::None,
        };
        match self.layout {
            Layout::Dense { features, target } => Parts {
                features: Some(features),
                target,
                ..none
            },
            Layout::Images { target } => Parts {
                images: true,
                target,
                ..none
            },
            Layout::Tokens { id, .. } => Parts {
                tokens: Some(id),
                ..none
            },
            Layout::Multi {
                features,
                images,
                tokens,
                target,
            } => Parts {
                features: (features > 0).then_some(features),
                images,
                tokens: tokens.map(|tokens| tokens.id),
                target,
            },
        }
    }

    /// Schema of the shards of `split`.
    pub(crate) fn schema(&self, split: Split) -> SchemaRef {
        let parts = self.parts();
        let mut fields = Vec::new();
        if let Some(features) = parts.features {
            fields.push(Field::new("x", x_type(features), false));
        }
        if parts.images {
            fields.push(Field::new("image", DataType::LargeBinary, false));
        }
        if let Some(id) = parts.tokens {
            let ids = DataType::List(Arc::new(token(id)));
            fields.push(Field::new("tokens", ids, false));
        }
        match parts.target {
            TargetKind::None => {}
            TargetKind::Regression => fields.push(Field::new("y", DataType::Float32, false)),
            TargetKind::Regressions { targets } => {
                fields.push(Field::new("y", x_type(targets), false));
            }
            TargetKind::Classification { .. } => {
                fields.push(Field::new("y", DataType::Int32, false))
            }
        }
        fields.push(Field::new("key", DataType::UInt64, false));
        fields.push(Field::new("origin", DataType::UInt64, false));
        if self.boxes {
            fields.push(Field::new("boxes", DataType::LargeUtf8, false));
        }
        fields.extend(self.kept.iter().map(passthrough_columns::field));
        let metadata = [
            ("feedline.format", FORMAT.to_owned()),
            ("feedline.version", FORMAT_VERSION.to_owned()),
            ("feedline.dataset", self.dataset.to_string()),
            ("feedline.split", split.to_string()),
            ("feedline.transform", self.transform.to_string()),
        ];
        let metadata: HashMap<String, String> = metadata
            .into_iter()
            .map(|(k, v)| (k.to_owned(), v))
            .collect();
        Arc::new(Schema::new_with_metadata(fields, metadata))
    }

    /// Rows of a block of numbers; `None` where a block ends by its size.
    pub(super) fn rows_of_block(&self) -> Option<usize> {
        let Layout::Dense { features, target } = self.layout else {
            return None;
        };
        let target_bytes = match target {
            TargetKind::None => 0,
            TargetKind::Regression | TargetKind::Classification { .. } => 4,
            TargetKind::Regressions { targets } => 4 * u64::from(targets),
        };
        // A text that is kept counts as a number does: every block but the last has as many rows.
        let kept_bytes = 8 * self.kept.len() as u64;
        let row_bytes = 4 * u64::from(features) + target_bytes + 8 + 8 + kept_bytes;
        let rows = (self.block_bytes / row_bytes).clamp(1, u64::from(u32::MAX >> 1));
        Some(usize::try_from(rows).expect("31 bits fit"))
    }
}

/// Columns of the rows in a shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// Elements of `x`.
    pub(super) features: Option<u32>,
    pub(super) images: bool,
    pub(super) tokens: Option<TokenType>,
    pub(super) target: TargetKind,
}

fn x_type(features: u32) -> DataType {
    DataType::FixedSizeList(Arc::new(element()), width(features))
}

/// Elements of a list of a fixed size, as Arrow counts them.
pub(super) fn width(features: u32) -> i32 {
    i32::try_from(features).expect("fewer than 2^31 features")
}

/// Field of the elements of `x`, and of several targets.
pub(super) fn element() -> Field {
    Field::new("item", DataType::Float32, false)
}

/// Field of token ids.
pub(super) fn token(id: TokenType) -> Field {
    let r#type = match id {
        TokenType::U16 => DataType::UInt16,
        TokenType::U32 => DataType::UInt32,
    };
    Field::new("item", r#type, false)
}
