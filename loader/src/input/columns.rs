//! The columns that a shard must have, and which of its columns they are.

use arrow::{
    datatypes::{DataType, FieldRef, Schema, SchemaRef},
    ipc::{self, convert::fb_to_schema},
};
use feedline_schemas::manifest::{KEPT_FIELD, Layout, TargetKind, TokenType};

use crate::guard::catching;

/// Columns of a shard, found in its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardColumns {
    /// The shard's schema.
    pub(crate) schema: SchemaRef,
    /// Indices of the first of `x`, `image` and `tokens`, of `key` and `origin`, and of `y` if there is a target.
    pub(crate) payload: usize,
    pub(crate) key: usize,
    pub(crate) origin: usize,
    pub(crate) y: Option<usize>,
    /// Indices of those of the three that there are.
    pub(crate) x: Option<usize>,
    pub(crate) image: Option<usize>,
    pub(crate) tokens: Option<usize>,
}

/// Start of an encapsulated message; what precedes the schema in a file is the magic and zeros.
const CONTINUATION: [u8; 4] = [0xff; 4];

impl ShardColumns {
    /// Finds the columns in the head of a shard, which is everything before its first block.
    ///
    /// Older manifests have no checksum of the head, so nothing it says is believed beyond the match with `layout`.
    ///
    /// # Errors
    /// Difference from `layout`.
    pub(crate) fn read(head: &[u8], layout: &Layout) -> Result<Self, String> {
        if !head.starts_with(b"ARROW1") {
            return Err("it does not begin as an Arrow IPC file does".into());
        }
        let start = head.windows(4).position(|window| window == CONTINUATION);
        let message = start
            .and_then(|start| head.get(start + 8..))
            .ok_or("its schema message is missing")?;
        let schema = catching(|| read_schema(message))??;
        Self::find(schema, layout)
    }

    fn find(schema: Schema, layout: &Layout) -> Result<Self, String> {
        let parts = LayoutColumns::of(layout);
        let x = parts.features.map(|features| {
            let wanted = format!("fixed_size_list<float32>[{features}]");
            find(&schema, "x", |t| is_vector(t, features), &wanted)
        });
        let image = parts.images.then(|| {
            let fits = |t: &DataType| matches!(t, DataType::Binary | DataType::LargeBinary);
            find(&schema, "image", fits, "binary")
        });
        let tokens = parts.tokens.map(|id| {
            let (element, wanted) = match id {
                TokenType::U16 => (DataType::UInt16, "list<uint16>"),
                TokenType::U32 => (DataType::UInt32, "list<uint32>"),
            };
            let fits = |t: &DataType| matches!(t, DataType::List(e) if *e.data_type() == element);
            find(&schema, "tokens", fits, wanted)
        });
        let (x, image, tokens) = (x.transpose()?, image.transpose()?, tokens.transpose()?);
        let payload = x.or(image).or(tokens).ok_or("its rows have no parts")?;
        let target = parts.target;
        let y = match target {
            TargetKind::None => None,
            TargetKind::Regression => {
                Some(find(&schema, "y", |t| *t == DataType::Float32, "float32")?)
            }
            TargetKind::Regressions { targets } => {
                let wanted = format!("fixed_size_list<float32>[{targets}]");
                Some(find(&schema, "y", |t| is_vector(t, targets), &wanted)?)
            }
            TargetKind::Classification { .. } => {
                Some(find(&schema, "y", |t| *t == DataType::Int32, "int32")?)
            }
        };
        let key = find(&schema, "key", |t| *t == DataType::UInt64, "uint64")?;
        let origin = find(&schema, "origin", |t| *t == DataType::UInt64, "uint64")?;
        // Boxes beside images are for those who read shards themselves.
        let boxes = image.and_then(|_| {
            let found = schema.index_of("boxes").ok()?;
            (*schema.field(found).data_type() == DataType::LargeUtf8).then_some(found)
        });
        let others = [x, image, tokens, y, boxes].into_iter().flatten().count();
        // So are columns that were kept as they landed.
        let is_kept = |field: &&FieldRef| field.metadata().contains_key(KEPT_FIELD);
        let kept = schema.fields().iter().filter(is_kept).count();
        let expected = 2 + others + kept;
        if schema.fields().len() != expected {
            return Err(format!(
                "it has `{}` columns instead of `{expected}`",
                schema.fields().len()
            ));
        }
        Ok(Self {
            schema: schema.into(),
            payload,
            key,
            origin,
            y,
            x,
            image,
            tokens,
        })
    }
}

/// Columns of the rows of a layout.
struct LayoutColumns {
    features: Option<u32>,
    images: bool,
    tokens: Option<TokenType>,
    target: TargetKind,
}

impl LayoutColumns {
    fn of(layout: &Layout) -> Self {
        let (features, images, tokens, target) = match *layout {
            Layout::Dense { features, target } => (Some(features), false, None, target),
            Layout::Images { target } => (None, true, None, target),
            Layout::Tokens { id, .. } => (None, false, Some(id), TargetKind::None),
            Layout::Multi {
                features,
                images,
                tokens,
                target,
            } => {
                let features = (features > 0).then_some(features);
                (features, images, tokens.map(|tokens| tokens.id), target)
            }
        };
        Self {
            features,
            images,
            tokens,
            target,
        }
    }
}

fn read_schema(message: &[u8]) -> Result<Schema, String> {
    let message = ipc::root_as_message(message)
        .map_err(|e| format!("its schema message cannot be read: {e}"))?;
    let schema = message
        .header_as_schema()
        .ok_or("its first message is not a schema")?;
    if schema.endianness() != ipc::Endianness::Little {
        return Err("its numbers are not little endian".into());
    }
    Ok(fb_to_schema(schema))
}

fn find(
    schema: &Schema,
    name: &str,
    fits: impl Fn(&DataType) -> bool,
    wanted: &str,
) -> Result<usize, String> {
    let index = schema
        .index_of(name)
        .map_err(|_| format!("column `{name}` is missing"))?;
    let found = schema.field(index).data_type();
    if fits(found) {
        Ok(index)
    } else {
        Err(format!(
            "column `{name}` is `{found}` instead of `{wanted}`"
        ))
    }
}

fn is_vector(found: &DataType, features: u32) -> bool {
    matches!(found, DataType::FixedSizeList(element, length)
        if *element.data_type() == DataType::Float32 && u32::try_from(*length) == Ok(features))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    fn head(fields: Vec<Field>) -> Vec<u8> {
        let writer = ipc::writer::FileWriter::try_new(Vec::new(), &Schema::new(fields)).unwrap();
        writer.get_ref().clone()
    }

    fn vector(length: i32, element: DataType) -> DataType {
        DataType::FixedSizeList(Field::new("item", element, false).into(), length)
    }

    fn columns(x: DataType, y: DataType) -> Vec<Field> {
        let field = |name, data_type| Field::new(name, data_type, false);
        vec![
            field("x", x),
            field("y", y),
            field("key", DataType::UInt64),
            field("origin", DataType::UInt64),
        ]
    }

    const LAYOUT: Layout = Layout::Dense {
        features: 3,
        target: TargetKind::Regression,
    };

    #[test]
    fn columns_are_found_by_name_in_any_order() {
        let mut fields = columns(vector(3, DataType::Float32), DataType::Float32);
        fields.reverse();
        let found = ShardColumns::read(&head(fields), &LAYOUT).unwrap();
        assert_eq!(
            (found.payload, found.y, found.key, found.origin),
            (3, Some(2), 1, 0)
        );
    }

    #[test]
    fn images_may_have_boxes_and_rows_of_numbers_may_not() {
        let images = Layout::Images {
            target: TargetKind::Regression,
        };
        let with = |payload: &'static str, r#type: DataType, boxes: DataType| {
            let mut fields = columns(r#type, DataType::Float32);
            fields[0] = fields[0].clone().with_name(payload);
            fields.insert(1, Field::new("boxes", boxes, false));
            head(fields)
        };
        let found = with("image", DataType::LargeBinary, DataType::LargeUtf8);
        let found = ShardColumns::read(&found, &images).unwrap();
        assert_eq!(
            (found.payload, found.y, found.key, found.origin),
            (0, Some(2), 3, 4)
        );
        let multi = Layout::Multi {
            features: 0,
            images: true,
            tokens: None,
            target: TargetKind::Regression,
        };
        let of_several = with("image", DataType::LargeBinary, DataType::LargeUtf8);
        let of_several = ShardColumns::read(&of_several, &multi).unwrap();
        assert_eq!((of_several.image, of_several.y), (Some(0), Some(2)));
        let refused = with("image", DataType::LargeBinary, DataType::Int8);
        assert!(ShardColumns::read(&refused, &images).is_err());
        let refused = with("x", vector(3, DataType::Float32), DataType::LargeUtf8);
        assert!(ShardColumns::read(&refused, &LAYOUT).is_err());
    }

    #[test]
    fn columns_kept_as_they_landed_are_passed_over() {
        let mut fields = columns(vector(3, DataType::Float32), DataType::Float32);
        let kept = Field::new("id", DataType::Int64, true);
        let metadata = [(KEPT_FIELD.to_owned(), "1".to_owned())];
        fields.insert(1, kept.with_metadata(metadata.into()));
        let found = ShardColumns::read(&head(fields), &LAYOUT).unwrap();
        assert_eq!(
            (found.payload, found.y, found.key, found.origin),
            (0, Some(2), 3, 4)
        );
    }

    #[test]
    fn other_columns_are_refused_by_name() {
        let check = |fields: Vec<Field>, message: &str| {
            assert_eq!(
                ShardColumns::read(&head(fields), &LAYOUT).unwrap_err(),
                message
            );
        };
        let x = || vector(3, DataType::Float32);
        check(
            columns(x(), DataType::Float64),
            "column `y` is `Float64` instead of `float32`",
        );
        check(
            columns(x(), DataType::Int32),
            "column `y` is `Int32` instead of `float32`",
        );
        check(
            columns(vector(4, DataType::Float32), DataType::Float32),
            "column `x` is `FixedSizeList(4 x non-null Float32)` instead of `fixed_size_list<float32>[3]`",
        );
        check(
            columns(vector(3, DataType::Int32), DataType::Float32),
            "column `x` is `FixedSizeList(3 x non-null Int32)` instead of `fixed_size_list<float32>[3]`",
        );
        let mut fields = columns(x(), DataType::Float32);
        fields.push(Field::new("z", DataType::Int8, true));
        check(fields.clone(), "it has `5` columns instead of `4`");
        fields.remove(2);
        check(fields, "column `key` is missing");
    }

    #[test]
    fn no_flipped_bit_of_a_head_is_a_panic() {
        let good = head(columns(vector(3, DataType::Float32), DataType::Float32));
        let read = |bytes: &[u8]| ShardColumns::read(bytes, &LAYOUT);
        assert!(read(&good).is_ok());
        assert!(read(&good[..20]).is_err());
        assert!(read(b"").is_err());
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(found) = read(&bytes) {
                assert_eq!(
                    (found.payload, found.y, found.key, found.origin),
                    (0, Some(1), 2, 3)
                );
            }
        }
    }
}
