//! Types of the columns of a file: those that landed, whatever single cells of the file are.

use std::collections::BTreeMap;

use feedline_ingest::Landed;
use feedline_schemas::{
    config::{ColumnsContract, ContractConfig, DeclaredType, TypeContract},
    record::{Column, ColumnType, RecordSchema},
};
use feedline_storage::{Store, StoreOptions};

use super::Landing;

impl Landing {
    /// The same file, to land in a folder beside this one, and the columns to land there before its
    /// rows: those of `log` with the types of `landed`. `None` if the file has no other types. So a
    /// cell that does not fit rejects its row or is null, and does not change the type of its column.
    pub(crate) fn retyped(
        &self,
        log: &Landed,
        landed: &BTreeMap<String, ColumnType>,
    ) -> anyhow::Result<Option<(Self, RecordSchema)>> {
        let mut typed = self.clone();
        let Some(source) = typed.config.source.first_mut() else {
            return Ok(None);
        };
        let mut schema = log.schema.clone();
        let mut names = Vec::new();
        for column in &mut schema.columns {
            if let Some(known) = landed.get(&column.name)
                && retype(column, *known, &mut source.contract)
            {
                names.push(column.name.as_str());
            }
        }
        let root = self.config.pipeline.root.as_ref();
        let Some(root) = root.filter(|_| !names.is_empty()) else {
            return Ok(None);
        };
        // Columns that only rejected rows have are no reason to stop or to reject.
        source.contract.columns = ColumnsContract::Evolve;
        let root = format!("{root}-typed");
        tracing::info!(
            file = %self.file,
            columns = %names.join(", "),
            "columns are not of the types that landed: the file is read again after columns of these types; a cell that \
             does not fit rejects its row if the dataset needs it"
        );
        typed.root = Store::open(&root, &StoreOptions::default())?;
        typed.config.pipeline.root = Some(root);
        Ok(Some((typed, schema)))
    }
}

/// Gives `column` the type `known`, as which it has landed, and declares it in `contract`. Returns true if
/// the cells of the file are read in another way then.
///
/// A column of integers is not declared: the contract makes it one of floats for a cell with a fraction,
/// as in ingest.
fn retype(column: &mut Column, known: ColumnType, contract: &mut ContractConfig) -> bool {
    let found = column.r#type;
    let rules = contract.column.get(&column.name);
    let is_open = rules.is_none_or(|rules| rules.r#type.is_none());
    if known == ColumnType::Int64 && is_open {
        let types = rules.and_then(|rules| rules.types);
        let types = types.unwrap_or(contract.types);
        let is_strict = matches!(types, TypeContract::Widen | TypeContract::Freeze);
        if is_strict && found.is_number() {
            // `widen` lands all numbers, and `freeze` would stop at one of another type.
            return false;
        }
        column.r#type = known;
        if types == TypeContract::Widen {
            // Other cells would make the column one of strings.
            let rules = contract.column.entry(column.name.clone()).or_default();
            rules.types = Some(TypeContract::QuarantineRow);
        }
        return ![ColumnType::Int64, ColumnType::Null].contains(&found);
    }
    let declared = declared_type(known).filter(|_| !is_read_alike(known, found));
    let Some(declared) = declared else {
        return false;
    };
    column.r#type = known;
    let rules = contract.column.entry(column.name.clone()).or_default();
    rules.r#type = Some(declared);
    true
}

/// Returns true if a column that has landed as `known` may hold values of type `found`.
fn is_read_alike(known: ColumnType, found: ColumnType) -> bool {
    known == found
        || [known, found].contains(&ColumnType::Null)
        || (known.is_number() && found.is_number())
}

/// The declaration for a column that has landed as `landed`; `None` for lists and columns without a
/// value.
const fn declared_type(landed: ColumnType) -> Option<DeclaredType> {
    Some(match landed {
        ColumnType::Bool => DeclaredType::Bool,
        ColumnType::Int64 => DeclaredType::Int,
        ColumnType::Float64 => DeclaredType::Float,
        ColumnType::Decimal => DeclaredType::Decimal,
        ColumnType::Timestamp => DeclaredType::Timestamp,
        ColumnType::Utf8 => DeclaredType::Text,
        ColumnType::Json => DeclaredType::Json,
        ColumnType::Binary => DeclaredType::Bytes,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        config::load,
        ids::{Hash128, SchemaVersion, Sequence},
    };

    use super::{
        ColumnType::{Bool, Decimal, Float64, Int64, Null, Utf8},
        *,
    };

    /// Log of a file whose columns have these types.
    fn log_of(columns: &[(&str, ColumnType)]) -> Landed {
        let columns = columns.iter().zip(1..);
        let columns = columns.map(|((name, r#type), field_id)| Column {
            field_id,
            name: (*name).to_owned(),
            r#type: *r#type,
            whole: false,
        });
        Landed {
            sequence: Sequence::new(0),
            entry_hash: Hash128::of(b"entry"),
            schema: RecordSchema {
                version: SchemaVersion::new(1),
                columns: columns.collect(),
            },
            entries: Vec::new(),
        }
    }

    #[test]
    fn columns_get_their_landed_types_and_those_of_integers_stay_open_for_fractions() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        let text = format!(
            "[pipeline]\nname = \"p\"\nroot = \"{root}\"\n[[source]]\nname = \"s\"\ntype = \"files\"\n\
             url = \"x.csv\"\ncontract.columns = \"freeze\"\ncontract.column.declared.type = \"int\"\n\
             contract.column.wide.types = \"widen\"\ncontract.column.wider.types = \"widen\"\n"
        );
        let landing = Landing {
            config: load("p", &text, &[]).unwrap().config,
            root: Store::open(root, &StoreOptions::default()).unwrap(),
            file: "x.csv".to_owned(),
        };
        let (int, bool) = (Some(DeclaredType::Int), Some(DeclaredType::Bool));
        let (rejects, widens) = (TypeContract::QuarantineRow, TypeContract::Widen);
        let cases = [
            // As it landed, in the file, then; declared, and the contract of its cells.
            ("declared", Int64, Int64, Int64, int, None),
            ("same", Int64, Int64, Int64, None, None),
            ("mixed", Int64, Utf8, Int64, None, None),
            ("fractions", Int64, Float64, Int64, None, None),
            ("wide", Int64, Utf8, Int64, None, Some(rejects)),
            ("wider", Int64, Decimal, Decimal, None, Some(widens)),
            ("flag", Bool, Utf8, Bool, bool, None),
            ("empty", Bool, Null, Null, None, None),
            ("new", Null, Utf8, Utf8, None, None),
        ];
        let found = cases.map(|(name, _, found, ..)| (name, found));
        let landed = cases.map(|(name, known, ..)| (name.to_owned(), known));
        let landed = BTreeMap::from(landed);
        let retyped = landing.retyped(&log_of(&found), &landed).unwrap();
        let (typed, schema) = retyped.unwrap();
        assert_ne!(typed.config.pipeline.root, landing.config.pipeline.root);
        let contract = &typed.config.source[0].contract;
        assert_eq!(contract.columns, ColumnsContract::Evolve);
        for (column, (name, _, _, r#type, declared, types)) in schema.columns.iter().zip(cases) {
            assert_eq!((column.name.as_str(), column.r#type), (name, r#type));
            let rules = contract.column.get(name);
            let found = (
                rules.and_then(|rules| rules.r#type),
                rules.and_then(|rules| rules.types),
            );
            assert_eq!(found, (declared, types), "{name}");
        }
        // A file of the same types is not read again.
        let alike = ["declared", "same", "wider", "empty"].map(|name| (name, landed[name]));
        let alike = landing.retyped(&log_of(&alike), &landed).unwrap();
        assert!(alike.is_none());
    }
}
