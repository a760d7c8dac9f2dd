//! Files and columns of a Delta table as the commit log has them.

use std::collections::BTreeSet;

use feedline_schemas::{
    commit::{CommitEntry, DataFile},
    ids::{Hash128, Name},
    record::{ColumnType, RecordSchema},
};

use super::columns::{DeltaColumns, stored_type};

/// Folder for files that were written again with wider types, below a table's folder.
pub(super) const WIDENED: &str = "widened";

/// A source's records, or one of its child tables.
pub(super) type TableKey = Option<Name>;

/// All tables that entries of a log have.
pub(super) fn tables<'a>(entries: impl IntoIterator<Item = &'a CommitEntry>) -> BTreeSet<TableKey> {
    let children = entries.into_iter().flat_map(|entry| entry.children.keys());
    std::iter::once(None)
        .chain(children.cloned().map(Some))
        .collect()
}

/// Folder of a table, below the source's landing folder. It also has landed files that the table does
/// not name: those with a copy in the table, and those that landed after its newest version.
pub(super) fn folder(table: &TableKey) -> String {
    match table {
        None => "data".to_owned(),
        Some(name) => format!("children/{name}"),
    }
}

/// A file of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableFile {
    /// The landed file.
    pub(super) file: DataFile,
    /// Path relative to the table's folder: of the landed file, or of its copy.
    pub(super) path: String,
    /// Columns that the copy has with another type: name, type in the landed file, type in the copy.
    pub(super) widened: Vec<Widened>,
    /// Columns that the copy does not have, since their names differ from others in case only.
    pub(super) dropped: Vec<String>,
}

impl TableFile {
    /// Returns true if the table has a copy of the landed file.
    pub(super) fn is_copy(&self) -> bool {
        !self.widened.is_empty() || !self.dropped.is_empty()
    }
}

/// A column of a file that gets a wider type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Widened {
    pub(super) name: String,
    pub(super) from: ColumnType,
    pub(super) to: ColumnType,
}

/// A table at one position of the log.
#[derive(Clone, Debug)]
pub(super) struct DeltaTable {
    pub(super) columns: DeltaColumns,
    pub(super) files: Vec<TableFile>,
}

impl DeltaTable {
    /// The table after the last of `entries`, which are complete and all of the log up to there.
    pub(super) fn of(entries: &[CommitEntry], table: &TableKey) -> Self {
        let parts: Vec<_> = entries.iter().filter_map(|e| part(e, table)).collect();
        let with_files = parts.iter().filter(|part| !part.files.is_empty());
        let mut schemas: Vec<&RecordSchema> = with_files.map(|part| part.schema).collect();
        schemas.dedup();
        if schemas.is_empty() {
            schemas.extend(parts.last().map(|part| part.schema));
        }
        let depth = parts.last().map_or(0, |part| part.depth);
        let columns = DeltaColumns::of(schemas, depth);
        let files = parts
            .iter()
            .flat_map(|part| {
                let schema = part.schema;
                part.files.iter().map(move |file| (schema, file))
            })
            .map(|(schema, file)| table_file(file, schema, &columns, table))
            .collect();
        Self { columns, files }
    }
}

/// A table as one entry has it.
pub(super) struct EntryPart<'a> {
    pub(super) schema: &'a RecordSchema,
    pub(super) files: &'a [DataFile],
    depth: usize,
}

impl EntryPart<'_> {
    /// Columns of the entry's files.
    pub(super) fn columns(&self) -> DeltaColumns {
        DeltaColumns::of([self.schema], self.depth)
    }
}

/// The part of an entry about a table; `None` if it does not have the table.
pub(super) fn part<'a>(entry: &'a CommitEntry, table: &TableKey) -> Option<EntryPart<'a>> {
    match table {
        None => Some(EntryPart {
            schema: &entry.schema,
            files: &entry.files,
            depth: 0,
        }),
        Some(name) => entry.children.get(name).map(|child| EntryPart {
            schema: &child.schema,
            files: &child.files,
            depth: child.lists.len(),
        }),
    }
}

fn table_file(
    file: &DataFile,
    schema: &RecordSchema,
    columns: &DeltaColumns,
    table: &TableKey,
) -> TableFile {
    let widened: Vec<Widened> = schema
        .columns
        .iter()
        .filter_map(|column| {
            let to = columns.type_of(&column.name)?;
            let is_same = stored_type(column.r#type) == stored_type(to);
            (!is_same).then(|| Widened {
                name: column.name.clone(),
                from: column.r#type,
                to,
            })
        })
        .collect();
    let names = schema.columns.iter().map(|column| column.name.clone());
    let mut copied = TableFile {
        file: file.clone(),
        path: own_path(file, table).to_owned(),
        widened,
        dropped: names.filter(|name| columns.is_shadow(name)).collect(),
    };
    if copied.is_copy() {
        copied.path = copy_path(&copied);
    }
    copied
}

/// Path of a landed file in the folder of its table.
pub(super) fn own_path<'f>(file: &'f DataFile, table: &TableKey) -> &'f str {
    let below = file.path.strip_prefix(folder(table).as_str());
    below.map_or(file.path.as_str(), |path| path.trim_start_matches('/'))
}

/// Path of the copy of a landed file. Equal files with equal columns have equal copies.
fn copy_path(file: &TableFile) -> String {
    let stem = file.path.strip_suffix(".parquet").unwrap_or(&file.path);
    let types = file.widened.iter();
    let types = types.map(|column| format!("{}\0{:?}\0", column.name, stored_type(column.to)));
    let dropped = file.dropped.iter().map(|name| format!("{name}\0\0"));
    let columns: String = types.chain(dropped).collect();
    let columns = Hash128::of(columns.as_bytes()).short();
    format!("{WIDENED}/{stem}-{columns}.parquet")
}

/// Path of the landed file that the file at `path` is a copy of; `None` for any other file. Both are
/// relative to the landing folder.
pub(crate) fn copied_from(path: &str) -> Option<String> {
    let (folder, name) = path.rsplit_once('/')?;
    let folder = folder.strip_suffix(WIDENED)?;
    let (stem, _) = name.strip_suffix(".parquet")?.rsplit_once('-')?;
    Some(format!("{folder}{stem}.parquet"))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{decode, record::Column};

    use super::*;
    use crate::landing_files::folders::sequence_of;

    const SAMPLE: &str = include_str!("../../../schemas/samples/commit-2.json");

    fn entry(sequence: u64, r#type: ColumnType) -> CommitEntry {
        let mut entry: CommitEntry = decode("sample", SAMPLE.as_bytes()).unwrap();
        entry.sequence = feedline_schemas::ids::Sequence::new(sequence);
        entry.children.clear();
        entry.schema.columns = vec![Column {
            field_id: 1,
            name: "amount".into(),
            r#type,
            whole: false,
        }];
        entry.files = vec![DataFile {
            path: format!("data/{sequence:020}-0123456789abcdef.parquet"),
            rows: 1,
            bytes: 12,
            hash: Hash128::of(b""),
        }];
        entry
    }

    #[test]
    fn files_with_narrower_types_are_copies() {
        let entries = [entry(0, ColumnType::Int64), entry(1, ColumnType::Float64)];
        let table = DeltaTable::of(&entries, &None);
        let [old, new] = &table.files[..] else {
            panic!("{table:?}");
        };
        assert_eq!(old.widened.len(), 1);
        assert!(
            old.path.starts_with("widened/00000000000000000000-"),
            "{old:?}"
        );
        assert_eq!(new.path, "00000000000000000001-0123456789abcdef.parquet");
        // Writers that tidy the folder do not take copies for files of a batch.
        assert_eq!(sequence_of(&format!("data/{}", old.path)), None);
    }

    #[test]
    fn a_column_without_values_needs_a_copy_once_it_has_another_type_than_text() {
        let copies = |to| {
            let entries = [entry(0, ColumnType::Null), entry(1, to)];
            let table = DeltaTable::of(&entries, &None);
            table.files.iter().filter(|f| f.is_copy()).count()
        };
        assert_eq!(copies(ColumnType::Null), 0);
        assert_eq!(copies(ColumnType::Utf8), 0);
        assert_eq!(copies(ColumnType::Int64), 1);
    }

    #[test]
    fn a_copy_lacks_columns_whose_names_differ_from_others_in_case_only() {
        let (old, mut new) = (entry(0, ColumnType::Int64), entry(1, ColumnType::Int64));
        let mut other = new.schema.columns[0].clone();
        other.name = "Amount".into();
        new.schema.columns.push(other);
        let table = DeltaTable::of(&[old, new], &None);
        let copies: Vec<bool> = table.files.iter().map(TableFile::is_copy).collect();
        assert_eq!(copies, [false, true]);
        assert_eq!(table.files[1].dropped, ["Amount"]);
    }
}
