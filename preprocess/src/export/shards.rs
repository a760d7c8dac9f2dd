//! Rows of a built dataset, as its shards hold them, in named columns.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Cursor,
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, ListArray, RecordBatch},
    datatypes::{DataType, Field, Float32Type, SchemaRef},
    error::ArrowError,
    ipc::reader::FileReader,
};
use bytes::Bytes;
use feedline_schemas::{
    count::{counted, first_of},
    export::{ExportedRoles, ExportedRows},
    manifest::{DatasetCounts, KeptColumn, Manifest, Split, SplitShards},
    record::ColumnType,
    transform::{FittedTarget, TransformArtefact},
};
use feedline_storage::Store;

use super::{
    cells::cast_all,
    file_names::{TOKENIZER, TRANSFORM},
    table::{
        ColumnContent, ExportColumn, ExportPart, ExportTable, ReadRows, RowFile, TakeRows,
        schema_of,
    },
    widen::RoundedNumbers,
};
use crate::{
    Error,
    schema::landed_columns::landed_type,
    shards::{
        manifest::{check_tokenizer, read_manifest, read_transform},
        shard_layout::ShardLayout,
    },
};

/// Features that get a column each, at most; more stay a list.
const MOST_FEATURES: usize = 1_000;
/// Inputs that are listed for people.
const LISTED_FEATURES: usize = 50;
/// Class names that are listed for people.
const LISTED_CLASSES: usize = 50;
/// Names of the columns that identify a row. No source column begins like them.
const KEY: &str = "_feedline_key";
const ORIGIN: &str = "_feedline_origin";

/// Opens the dataset in the folder `dataset`.
///
/// # Errors
/// As [`read_manifest`] and [`read_transform`]; [`Error::Input`] for a damaged tokenizer.
pub(super) async fn open(dataset: &Store) -> Result<ExportTable, Error> {
    let manifest = read_manifest(dataset).await?;
    let artefact = read_transform(dataset, &manifest).await?;
    let mut beside = vec![(TRANSFORM, dataset.get(&manifest.transform.path).await?)];
    if let Some(fault) = check_tokenizer(dataset, &manifest).await? {
        let advice = "restore it, or rebuild the dataset with `--refit`, which may move rows to other splits";
        return Err(Error::input(
            format!("dataset `{}`", dataset.url()),
            fault,
            advice,
        ));
    }
    if let Some(tokens) = &manifest.tokens {
        beside.push((TOKENIZER, dataset.get(&tokens.tokenizer).await?));
    }
    let mut columns = ShardColumns::default();
    columns.add_all(&manifest, &artefact);
    let exported: Vec<ExportColumn> = columns.all.iter().map(|(c, _)| c.clone()).collect();
    let reader = Arc::new(ShardReader {
        schema: schema_of(exported.iter().cloned()),
        cells: columns.all.into_iter().map(|(_, cells)| cells).collect(),
    });
    let part = |split: &SplitShards| ExportPart {
        split: Some(split.split),
        rows: split.rows,
        files: split
            .shards
            .iter()
            .map(|shard| RowFile {
                path: shard.path.clone(),
                bytes: shard.bytes,
                hash: shard.hash,
                rows: shard.rows,
                reader: Arc::clone(&reader) as Arc<dyn ReadRows>,
            })
            .collect(),
    };
    let mut notes = notes(&manifest, &artefact);
    notes.extend(columns.notes);
    notes.extend(role_note(&columns.roles));
    Ok(ExportTable {
        of: ExportedRows::Dataset {
            name: manifest.dataset.clone(),
            fingerprint: manifest.fingerprint,
            transform: artefact.hash,
        },
        store: dataset.clone(),
        columns: exported,
        parts: manifest.splits.iter().map(part).collect(),
        older_versions: 0,
        warnings: Vec::new(),
        converted: columns.converted,
        left_out: BTreeMap::new(),
        json_text: columns.json_text,
        facts: facts(&manifest),
        roles: Some(columns.roles),
        notes,
        beside,
        text: None,
    })
}

/// Cells of an exported column in the rows of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ShardCells {
    /// The column of this name.
    Whole(String),
    /// One element of the lists in the column of this name.
    Element(&'static str, usize),
}

/// Exported columns, and their cells.
#[derive(Default)]
struct ShardColumns {
    all: Vec<(ExportColumn, ShardCells)>,
    taken: BTreeSet<String>,
    converted: BTreeMap<String, String>,
    json_text: Vec<String>,
    notes: Vec<String>,
    /// Use of the columns by a reader of the files.
    roles: ExportedRoles,
}

impl ShardColumns {
    fn add_all(&mut self, manifest: &Manifest, artefact: &TransformArtefact) {
        let layout = ShardLayout::of(manifest);
        let schema = layout.schema(Split::Train);
        let width = |name: &str| match schema.field_with_name(name).map(Field::data_type) {
            Ok(DataType::FixedSizeList(_, width)) => usize::try_from(*width).ok(),
            _ => None,
        };
        if let Some(features) = width("x") {
            self.add_features(features, manifest, artefact);
        }
        if schema.index_of("image").is_ok() {
            let name = self.unique("image", "_file");
            self.roles.image = Some(name.clone());
            let built = artefact.images.as_ref();
            self.roles.background = built.and_then(|images| images.prepared.background);
            self.push(
                ExportColumn {
                    content: ColumnContent::Image,
                    ..ExportColumn::plain(name, DataType::Binary, false)
                },
                ShardCells::Whole("image".to_owned()),
            );
        }
        if let Ok(field) = schema.field_with_name("tokens") {
            let name = self.unique("tokens", "_ids");
            let r#type = match field.data_type() {
                DataType::List(item) => DataType::new_list(item.data_type().clone(), true),
                other => other.clone(),
            };
            self.roles.tokens = Some(name.clone());
            let column = ExportColumn::plain(name, r#type, false);
            self.push(column, ShardCells::Whole("tokens".to_owned()));
        }
        if let Ok(field) = schema.field_with_name("y") {
            self.add_targets(field.data_type(), width("y"), (manifest, artefact));
        }
        if schema.index_of("boxes").is_ok() {
            let name = self.unique("boxes", "_json");
            let column = ExportColumn::plain(name, DataType::Utf8, false);
            self.push(column, ShardCells::Whole("boxes".to_owned()));
        }
        manifest.kept.iter().for_each(|kept| self.add_kept(kept));
        for (name, own) in [(KEY, "key"), (ORIGIN, "origin")] {
            let column = ExportColumn::plain(name, DataType::UInt64, false);
            self.push(column, ShardCells::Whole(own.to_owned()));
        }
        self.roles.key = Some(KEY.to_owned());
    }

    fn push(&mut self, column: ExportColumn, cells: ShardCells) {
        self.taken.insert(column.name.clone());
        self.all.push((column, cells));
    }

    /// `name`, with as many suffixes as make it unique.
    fn unique(&self, name: &str, suffix: &str) -> String {
        let mut unique = name.to_owned();
        while self.taken.contains(&unique) {
            unique.push_str(suffix);
        }
        unique
    }

    fn add_features(&mut self, width: usize, manifest: &Manifest, artefact: &TransformArtefact) {
        let names: BTreeSet<&str> = artefact.features.iter().map(|f| f.name.as_str()).collect();
        let reason = match manifest.counts.sequence {
            Some(windows) => Some(format!(
                "a list of {} of {} each",
                counted(windows.length.into(), "row"),
                counted(artefact.features.len() as u64, "feature")
            )),
            None if width > MOST_FEATURES => Some(format!("a list of {width} features")),
            None if names.len() != width => Some(format!("a list of {width} numbers")),
            None => None,
        };
        let number = DataType::Float32;
        match reason {
            Some(reason) => {
                let list = DataType::new_fixed_size_list(
                    number,
                    i32::try_from(width).unwrap_or(i32::MAX),
                    true,
                );
                let column = ExportColumn::plain("x", list, false);
                self.roles.features.push("x".to_owned());
                self.push(column, ShardCells::Whole("x".to_owned()));
                let features = artefact.features.iter().take(MOST_FEATURES);
                let features: Vec<&str> = features.map(|f| f.name.as_str()).collect();
                self.notes.push(format!(
                    "`x` is {reason}; the features are: {}.",
                    features.join(", ")
                ));
            }
            None => {
                for (place, feature) in artefact.features.iter().enumerate() {
                    let column = ExportColumn::plain(&feature.name, number.clone(), false);
                    self.roles.features.push(feature.name.clone());
                    self.push(column, ShardCells::Element("x", place));
                }
                let text = match width {
                    1 => "a column for its one feature".to_owned(),
                    _ => format!("a column for each of its {width} features"),
                };
                self.converted.insert("x".to_owned(), text);
            }
        }
    }

    fn add_targets(
        &mut self,
        held: &DataType,
        width: Option<usize>,
        (manifest, artefact): (&Manifest, &TransformArtefact),
    ) {
        let targets: Vec<&FittedTarget> = artefact.targets().collect();
        if targets.is_empty() || width.unwrap_or(1) != targets.len() {
            let name = self.unique("y", "_target");
            let r#type = match width {
                Some(width) => DataType::new_fixed_size_list(
                    DataType::Float32,
                    i32::try_from(width).unwrap_or(i32::MAX),
                    true,
                ),
                None => held.clone(),
            };
            self.roles.targets.push(name.clone());
            let column = ExportColumn::plain(name, r#type, false);
            return self.push(column, ShardCells::Whole("y".to_owned()));
        }
        let mut names = Vec::new();
        for (place, target) in targets.into_iter().enumerate() {
            let name = self.unique(target.column(), "__target");
            let note = format!("the target{}, {}", later(manifest), as_stored(target));
            self.notes.push(format!("`{name}` is {note}."));
            self.converted.insert(name.clone(), note);
            let content = match target {
                FittedTarget::Regression { .. } => ColumnContent::Plain,
                FittedTarget::Classification { classes, .. } => {
                    self.roles.classes.clone_from(classes);
                    ColumnContent::Classes(classes.clone())
                }
            };
            self.roles.targets.push(name.clone());
            let r#type = match content {
                ColumnContent::Classes(_) => DataType::Int32,
                _ => DataType::Float32,
            };
            names.push(format!("`{name}`"));
            let column = ExportColumn {
                content,
                ..ExportColumn::plain(name, r#type, false)
            };
            let cells = match width {
                Some(_) => ShardCells::Element("y", place),
                None => ShardCells::Whole("y".to_owned()),
            };
            self.push(column, cells);
        }
        // A target may have this name itself.
        let own = self.converted.entry("y".to_owned());
        own.or_insert_with(|| names.join(", "));
    }

    fn add_kept(&mut self, kept: &KeptColumn) {
        let name = self.unique(&kept.name, "__landed");
        if kept.r#type == ColumnType::Json {
            self.json_text.push(name.clone());
        }
        if name != kept.name {
            let text =
                format!("as it landed it is `{name}`, since a column of the model has its name");
            let earlier = self.converted.remove(&kept.name);
            let text = earlier.map_or(text.clone(), |earlier| format!("{earlier}; {text}"));
            self.converted.insert(kept.name.clone(), text);
        }
        let column = ExportColumn::plain(name, landed_type(kept.r#type), true);
        self.push(column, ShardCells::Whole(kept.name.clone()));
    }
}

/// The columns of the model, for people: the others are no features.
fn role_note(roles: &ExportedRoles) -> Option<String> {
    let parts = roles
        .features
        .iter()
        .chain(&roles.image)
        .chain(&roles.tokens);
    let inputs: Vec<String> = parts.map(|name| format!("`{name}`")).collect();
    let listed = first_of(&inputs, LISTED_FEATURES);
    let targets: Vec<String> = roles
        .targets
        .iter()
        .map(|name| format!("`{name}`"))
        .collect();
    let target = match targets.is_empty() {
        true => "it has no target".to_owned(),
        false => format!("the target is {}", targets.join(", ")),
    };
    (!inputs.is_empty()).then(|| {
        format!("The inputs of a model are {listed}; {target}. The other columns are no inputs.")
    })
}

/// Place of the target's row behind a window.
fn later(manifest: &Manifest) -> String {
    match manifest.counts.sequence {
        Some(windows) => {
            let rows = counted(windows.horizon.into(), "row");
            format!(" {rows} after the last of the window")
        }
        None => String::new(),
    }
}

/// Values of a target in shards.
fn as_stored(target: &FittedTarget) -> String {
    match target {
        FittedTarget::Regression { scale, offset, .. }
            if (scale.to_bits(), offset.to_bits()) == (1_f64.to_bits(), 0_f64.to_bits()) =>
        {
            "as float32".to_owned()
        }
        FittedTarget::Regression { scale, offset, .. } => {
            format!("stored as (value - {offset}) / {scale}")
        }
        FittedTarget::Classification { classes, .. } => {
            let listed = classes.iter().take(LISTED_CLASSES).enumerate();
            let listed: Vec<String> = listed.map(|(id, class)| format!("{id} {class}")).collect();
            let more = match classes.len() > LISTED_CLASSES {
                true => ", ...",
                false => "",
            };
            format!(
                "the id of one of {} classes: {}{more}",
                classes.len(),
                listed.join(", ")
            )
        }
    }
}

fn facts(manifest: &Manifest) -> Vec<(String, String)> {
    let facts = [
        ("feedline.dataset", manifest.dataset.to_string()),
        ("feedline.fingerprint", manifest.fingerprint.to_string()),
        ("feedline.transform", manifest.transform.hash.to_string()),
    ];
    facts.map(|(key, value)| (key.to_owned(), value)).into()
}

/// Meaning of the origin of a row.
fn origin_meaning(counts: &DatasetCounts) -> &'static str {
    match counts.are_of_query() {
        true => {
            "its number among the rows of `dataset.sql`, which have no place in the landing zone"
        }
        false => "its place in the landing zone",
    }
}

fn notes(manifest: &Manifest, artefact: &TransformArtefact) -> Vec<String> {
    let steps = artefact.steps.iter().filter_map(|step| {
        let step = serde_json::to_value(step).ok()?;
        Some(step.get("type")?.as_str()?.to_owned())
    });
    let steps: Vec<String> = steps.collect();
    let steps = match steps.is_empty() {
        true => "it has no steps for columns".to_owned(),
        false => format!("its steps are: {}", steps.join(", ")),
    };
    let origin = origin_meaning(&manifest.counts);
    let mut notes = vec![
        format!(
            "The splits of the dataset `{}`, fingerprint `{}`, in the order of its shards. `{KEY}` is the beginning of the hash of \
             a row's content, `{ORIGIN}` {origin}.",
            manifest.dataset, manifest.fingerprint
        ),
        format!(
            "Values are as the shards hold them, after the transform `{}` that was fitted on the training split; {steps}. \
             `{TRANSFORM}` has every fitted number.",
            artefact.hash
        ),
    ];
    if manifest.tokens.is_some() {
        notes.push(format!("Token ids are of the tokenizer `{TOKENIZER}`."));
    }
    for source in &manifest.sources {
        if let Some(licence) = &source.licence {
            notes.push(format!("Licence of `{}`: {licence}.", source.name));
        }
    }
    notes
}

/// Reads shards.
#[derive(Debug)]
struct ShardReader {
    schema: SchemaRef,
    cells: Vec<ShardCells>,
}

impl ReadRows for ShardReader {
    fn read(&self, file: Bytes, take: &mut TakeRows<'_>) -> Result<RoundedNumbers, Error> {
        for rows in FileReader::try_new(Cursor::new(file), None)? {
            let rows = rows?;
            let columns = self.cells.iter().zip(self.schema.fields());
            let columns = columns.map(|(cells, field)| {
                let column = match cells {
                    ShardCells::Whole(name) => Arc::clone(named(&rows, name)?),
                    ShardCells::Element(name, place) => element(named(&rows, name)?, *place),
                };
                cast_all(&with_nullable_items(&column), field.data_type())
            });
            let columns = columns.collect::<Result<Vec<_>, Error>>()?;
            take(&RecordBatch::try_new(Arc::clone(&self.schema), columns)?)?;
        }
        // Columns have the types that shards store.
        Ok(RoundedNumbers::default())
    }
}

fn named<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, Error> {
    let column = rows.column_by_name(name);
    column.ok_or_else(|| {
        let reason = format!("a shard has no column `{name}`");
        Error::Arrow(ArrowError::SchemaError(reason))
    })
}

/// Lists whose items may be null by their type: some readers know no others.
fn with_nullable_items(column: &ArrayRef) -> ArrayRef {
    let item = |item: &Field| Arc::new(Field::new_list_field(item.data_type().clone(), true));
    match column.data_type() {
        DataType::FixedSizeList(field, width) => {
            let lists = column.as_fixed_size_list();
            let (values, nulls) = (Arc::clone(lists.values()), lists.nulls().cloned());
            Arc::new(FixedSizeListArray::new(item(field), *width, values, nulls))
        }
        DataType::List(field) => {
            let lists = column.as_list::<i32>();
            let (values, nulls) = (Arc::clone(lists.values()), lists.nulls().cloned());
            Arc::new(ListArray::new(
                item(field),
                lists.offsets().clone(),
                values,
                nulls,
            ))
        }
        _ => Arc::clone(column),
    }
}

/// The numbers at `place` of all rows.
fn element(lists: &ArrayRef, place: usize) -> ArrayRef {
    let lists = lists.as_fixed_size_list();
    let width = usize::try_from(lists.value_length())
        .unwrap_or_default()
        .max(1);
    let numbers = lists.values().as_primitive::<Float32Type>().values();
    let numbers = numbers.iter().skip(place).step_by(width).copied();
    Arc::new(Float32Array::from_iter_values(numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_described_by_the_values_that_shards_have() {
        let regression = |scale, offset| FittedTarget::Regression {
            column: "price".into(),
            mean: 7.0,
            scale,
            offset,
        };
        assert_eq!(as_stored(&regression(1.0, 0.0)), "as float32");
        assert_eq!(
            as_stored(&regression(2.5, 7.0)),
            "stored as (value - 7) / 2.5"
        );
        let classes = FittedTarget::Classification {
            column: "kind".into(),
            classes: vec!["flat".into(), "house".into()],
            counts: vec![3, 4],
        };
        let expected = "the id of one of 2 classes: 0 flat, 1 house";
        assert_eq!(as_stored(&classes), expected);
    }

    #[test]
    fn the_origin_of_a_row_of_a_query_is_no_place_in_the_landing_zone() {
        let mut counts = DatasetCounts::default();
        assert_eq!(origin_meaning(&counts), "its place in the landing zone");
        counts.query_tables.insert("orders".to_owned(), 3);
        let made = origin_meaning(&counts);
        assert!(
            made.starts_with("its number among the rows of `dataset.sql`"),
            "{made}"
        );
    }

    #[test]
    fn elements_of_lists_become_columns() {
        let numbers = Arc::new(Float32Array::from(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let item = Arc::new(Field::new_list_field(DataType::Float32, false));
        let lists: ArrayRef = Arc::new(FixedSizeListArray::new(item, 3, numbers, None));
        let second = element(&lists, 1);
        assert_eq!(second.as_primitive::<Float32Type>().values(), &[2.0, 5.0]);
        let sliced = element(&lists.slice(1, 1), 2);
        assert_eq!(sliced.as_primitive::<Float32Type>().values(), &[6.0]);
    }
}
