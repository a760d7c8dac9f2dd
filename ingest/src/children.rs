//! Lists in records that become child tables: `contract.children`, checked and in order.

use std::collections::BTreeMap;

use feedline_readers::value::Value;
use feedline_schemas::{
    config::{ChildConfig, ColumnContract, ContractConfig, DeclaredType},
    ids::Name,
    record::{split_path, system},
};

use crate::error::Error;

/// Most child tables of a source.
const MOST_TABLES: usize = 100;

/// Column of an item that is no object.
pub(crate) const VALUE: &str = "value";

/// A configured child table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: Name,
    /// Index of the table whose items contain the list; `None` for the record itself.
    pub(crate) of: Option<usize>,
    /// Keys of the list, in the record or in an item.
    pub(crate) keys: Vec<String>,
    /// Paths of the lists, from the outermost.
    pub(crate) lists: Vec<String>,
    /// Columns copied from the record: name, and keys of the value.
    pub(crate) parent: Vec<(String, Vec<String>)>,
    /// Contract of its columns.
    pub(crate) contract: ContractConfig,
    /// Keys of the modes that the table itself has.
    pub(crate) modes: Vec<&'static str>,
}

impl Table {
    /// Name of a column in decisions, for example `items[].sku`.
    pub(crate) fn label(&self, column: &str) -> String {
        let places = vec![None; self.lists.len()];
        place(&self.lists, &places, column)
    }
}

/// A value of an item, as a path in the record: `items[3].parts[0].sku`.
pub(crate) fn place(lists: &[String], at: &[Option<u32>], column: &str) -> String {
    let mut path = String::new();
    for (list, at) in lists.iter().zip(at) {
        let dot = if path.is_empty() { "" } else { "." };
        let at = at.map(|at| at.to_string()).unwrap_or_default();
        path += &format!("{dot}{list}[{at}]");
    }
    match column {
        "" => path,
        column if path.is_empty() => column.to_owned(),
        column => format!("{path}.{column}"),
    }
}

/// Child tables of a source. A table whose lists are in the items of another comes after it.
///
/// # Errors
/// [`Error::Config`] if a table is not a list of one record, or if two tables have the same list.
pub(crate) fn tables(config: &ContractConfig) -> Result<Vec<Table>, Error> {
    let children = &config.children;
    if children.len() > MOST_TABLES {
        let reason = format!(
            "{} tables are too many: use at most {MOST_TABLES}",
            children.len()
        );
        return Err(Error::config("contract.children", reason));
    }
    let mut order: Vec<(&Name, Vec<&Name>)> = Vec::with_capacity(children.len());
    for name in children.keys() {
        order.push((name, chain(name, children)?));
    }
    order.sort_by_key(|(name, chain)| (chain.len(), *name));
    let mut tables: Vec<Table> = Vec::with_capacity(order.len());
    for (name, chain) in &order {
        let child = &children[*name];
        let lists = chain.iter().map(|name| path(name, &children[*name]));
        let of = child.of.as_ref();
        tables.push(Table {
            name: (*name).clone(),
            of: of.and_then(|of| tables.iter().position(|table| table.name == *of)),
            keys: split_path(&path(name, child)),
            lists: lists.collect(),
            parent: child
                .parent
                .iter()
                .map(|(name, path)| (name.clone(), split_path(path)))
                .collect(),
            contract: contract(config, child),
            modes: own_modes(child),
        });
    }
    check(config, &tables)?;
    Ok(tables)
}

fn path(name: &Name, child: &ChildConfig) -> String {
    child
        .path
        .clone()
        .unwrap_or_else(|| name.as_str().to_owned())
}

/// The tables from the outermost to `name`.
fn chain<'a>(
    name: &'a Name,
    children: &'a BTreeMap<Name, ChildConfig>,
) -> Result<Vec<&'a Name>, Error> {
    let mut chain = vec![name];
    let mut at = name;
    while let Some(of) = &children[at].of {
        let key = || format!("contract.children.{at}.of");
        let Some((of, _)) = children.get_key_value(of) else {
            let names: Vec<&str> = children.keys().map(Name::as_str).collect();
            let reason = format!("no table is called `{of}` among {}", names.join(", "));
            return Err(Error::config(key(), reason));
        };
        if chain.contains(&of) {
            let reason = format!("the list of `{of}` would be inside itself; remove one `of`");
            return Err(Error::config(key(), reason));
        }
        chain.push(of);
        at = of;
    }
    chain.reverse();
    Ok(chain)
}

/// Merges the modes of the table with those of the source, and the rules of the table's single
/// columns.
fn contract(config: &ContractConfig, child: &ChildConfig) -> ContractConfig {
    ContractConfig {
        types: child.types.unwrap_or(config.types),
        columns: child.columns.unwrap_or(config.columns),
        nulls: child.nulls.unwrap_or(config.nulls),
        missing_columns: child.missing_columns.unwrap_or(config.missing_columns),
        required: child.required.clone(),
        column: child.column.clone(),
        children: BTreeMap::new(),
        ..config.clone()
    }
}

/// Keys of the modes that the table has besides those of the source.
fn own_modes(child: &ChildConfig) -> Vec<&'static str> {
    let modes = [
        ("types", child.types.is_some()),
        ("columns", child.columns.is_some()),
        ("nulls", child.nulls.is_some()),
        ("missing_columns", child.missing_columns.is_some()),
    ];
    let own = modes.into_iter().filter(|(_, is_own)| *is_own);
    own.map(|(key, _)| key).collect()
}

fn check(config: &ContractConfig, tables: &[Table]) -> Result<(), Error> {
    for (i, table) in tables.iter().enumerate() {
        let at = |key: &str| format!("contract.children.{}.{key}", table.name);
        let list = table.lists.last().map(String::as_str).unwrap_or_default();
        for other in &tables[..i] {
            if other.of != table.of {
                continue;
            }
            if other.keys == table.keys {
                let reason = format!(
                    "the list `{list}` is that of table `{}` already",
                    other.name
                );
                return Err(Error::config(at("path"), reason));
            }
            let (short, long) = match other.keys.len() < table.keys.len() {
                true => (other, table),
                false => (table, other),
            };
            if long.keys.starts_with(&short.keys) {
                let reason = format!(
                    "the list of table `{}` would be inside the list of table `{}`; declare that with `of = \"{}\"` and its path in \
                     an item",
                    long.name, short.name, short.name
                );
                return Err(Error::config(at("path"), reason));
            }
        }
        // Columns of the record or table that contains the list.
        let (columns, required) = match table.of {
            None => (&config.column, &config.required),
            Some(of) => (&tables[of].contract.column, &tables[of].contract.required),
        };
        check_columns(&table.keys, columns, required).map_err(|name| {
            let reason = format!(
                "the list `{list}` is a table, and column `{name}` would hold it; remove the table, or the column from \
                 `column` and `required`"
            );
            Error::config(at("path"), reason)
        })?;
        check_parent(table, tables).map_err(|reason| Error::config(at("parent"), reason))?;
    }
    Ok(())
}

/// Checks that no column holds the list at `keys`. Fails with the name of such a column.
fn check_columns(
    keys: &[String],
    columns: &BTreeMap<String, ColumnContract>,
    required: &[String],
) -> Result<(), String> {
    let is_list = |name: &str| split_path(name) == keys;
    let holds_list = |name: &str| keys.starts_with(&split_path(name));
    let whole = columns.iter().filter(|(name, column)| {
        is_list(name) || (column.r#type == Some(DeclaredType::Json) && holds_list(name))
    });
    let mut names = whole
        .map(|(name, _)| name)
        .chain(required.iter().filter(|name| is_list(name)));
    names.next().map_or(Ok(()), |name| Err(name.clone()))
}

fn check_parent(table: &Table, tables: &[Table]) -> Result<(), String> {
    for (name, keys) in &table.parent {
        let reason = if name.is_empty() || name.starts_with(system::PREFIX) {
            format!(
                "column names that are empty or begin with `{}` are feedline's own",
                system::PREFIX
            )
        } else if name == VALUE {
            format!("`{VALUE}` is the column of items that are no objects; use another name")
        } else if tables
            .iter()
            .any(|other| other.of.is_none() && keys.starts_with(&other.keys))
        {
            "the value would be in a list that is a table; name one that each record has once"
                .to_owned()
        } else if tables.iter().any(|other| {
            other.of.is_some_and(|of| tables[of].name == table.name) && other.keys[0] == *name
        }) {
            format!("`{name}` is a list that is a table; use another name")
        } else {
            continue;
        };
        return Err(format!("`{name}`: {reason}"));
    }
    Ok(())
}

/// Removes the value at `keys` from an object, and the objects that become empty.
pub(crate) fn take(entries: &mut Vec<(String, Value)>, keys: &[String]) -> Option<Value> {
    let (key, rest) = keys.split_first()?;
    let at = entries.iter().position(|(k, _)| k == key)?;
    if rest.is_empty() {
        return Some(entries.remove(at).1);
    }
    let Value::Object(inner) = &mut entries[at].1 else {
        return None;
    };
    let taken = take(inner, rest)?;
    if inner.is_empty() {
        entries.remove(at);
    }
    Some(taken)
}

/// The value at `keys` of an object.
pub(crate) fn find<'v>(entries: &'v [(String, Value)], keys: &[String]) -> Option<&'v Value> {
    let (key, rest) = keys.split_first()?;
    let (_, value) = entries.iter().find(|(k, _)| k == key)?;
    match value {
        value if rest.is_empty() => Some(value),
        Value::Object(inner) => find(inner, rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use feedline_schemas::config::load;

    use super::*;

    fn of(children: &str) -> Result<Vec<Table>, Error> {
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"x\"\n[source.contract]\n{children}"
        );
        tables(&load("p", &text, &[]).unwrap().config.source[0].contract)
    }

    #[test]
    fn tables_stand_behind_those_their_lists_are_in() {
        let tables = of(
            "types = \"widen\"\ncolumn.id.type = \"int\"\n[source.contract.children]\na = { of = \"z\", path = \"x.y\" }\n\
             z = { required = [\"q\"] }\nb = { of = \"a\" }\ntags = { path = 'owner.t\\.s', parent = { id = \"id\" } }\n",
        )
        .unwrap();
        let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
        assert_eq!(names, ["tags", "z", "a", "b"]);
        let of: Vec<Option<usize>> = tables.iter().map(|table| table.of).collect();
        assert_eq!(of, [None, None, Some(1), Some(2)]);
        assert_eq!(tables[0].keys, ["owner", "t.s"]);
        assert_eq!(tables[0].parent, [("id".to_owned(), vec!["id".to_owned()])]);
        assert_eq!(tables[3].lists, ["z", "x.y", "b"]);
        assert_eq!(tables[3].label("q"), "z[].x.y[].b[].q");
        assert_eq!(
            place(&tables[2].lists, &[Some(4), Some(0)], ""),
            "z[4].x.y[0]"
        );
        assert_eq!(tables[1].contract.required, ["q"]);
        for table in &tables {
            assert_eq!(
                table.contract.types,
                feedline_schemas::config::TypeContract::Widen
            );
            assert!(table.contract.column.is_empty());
        }
    }

    #[test]
    fn a_table_may_have_modes_of_its_own() {
        let tables = of(
            "types = \"widen\"\ncolumns = \"freeze\"\n[source.contract.children]\nplain = {}\n\
             strict = { types = \"freeze\", columns = \"null_value\", nulls = \"quarantine_row\", missing_columns = \"freeze\" }\n",
        )
        .unwrap();
        let modes = tables.iter().map(|table| {
            let ContractConfig {
                types,
                columns,
                nulls,
                missing_columns,
                ..
            } = &table.contract;
            format!(
                "{} {types:?} {columns:?} {nulls:?} {missing_columns:?}",
                table.name
            )
        });
        assert_eq!(
            modes.collect::<Vec<_>>(),
            [
                "plain Widen Freeze Warn Warn",
                "strict Freeze NullValue QuarantineRow Freeze"
            ]
        );
    }

    #[test]
    fn tables_that_cannot_be_name_their_key() {
        for (children, message) in [
            (
                "[source.contract.children]\na = {}\nb = { path = \"a\" }\n",
                "`contract.children.b.path`: the list `a` is that of table `a` already",
            ),
            (
                "[source.contract.children]\na = { path = \"x.y\" }\nb = { path = \"x\" }\n",
                "would be inside the list of table `b`; declare that with `of = \"b\"`",
            ),
            (
                "[source.contract.children]\na = { of = \"c\" }\n",
                "`contract.children.a.of`: no table is called `c` among a",
            ),
            (
                "[source.contract.children]\na = { of = \"b\" }\nb = { of = \"a\" }\n",
                "would be inside itself",
            ),
            (
                "column.a.type = \"text\"\n[source.contract.children]\na = {}\n",
                "`contract.children.a.path`: the list `a` is a table, and column `a` would hold it",
            ),
            (
                "column.o.type = \"json\"\n[source.contract.children]\na = { path = \"o.a\" }\n",
                "column `o` would hold it",
            ),
            (
                "required = [\"a\"]\n[source.contract.children]\na = {}\n",
                "column `a` would hold it",
            ),
            (
                "[source.contract.children]\na = { required = [\"b\"] }\nb = { of = \"a\" }\n",
                "`contract.children.b.path`: the list `b` is a table, and column `b`",
            ),
            (
                "[source.contract.children]\na = { parent = { _feedline_x = \"id\" } }\n",
                "`contract.children.a.parent`: `_feedline_x`: column names that",
            ),
            (
                "[source.contract.children]\na = { parent = { value = \"id\" } }\n",
                "use another name",
            ),
            (
                "[source.contract.children]\na = { parent = { x = \"a.b\" } }\n",
                "in a list that is a table",
            ),
            (
                "[source.contract.children]\na = { parent = { b = \"id\" } }\nb = { of = \"a\" }\n",
                "`b` is a list that is a table",
            ),
        ] {
            let error = of(children).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn more_tables_than_a_hundred_are_refused() {
        let many: String = (0..101).map(|i| format!("t{i} = {{}}\n")).collect();
        let error = of(&format!("[source.contract.children]\n{many}")).unwrap_err();
        assert!(error.to_string().contains("use at most 100"), "{error}");
    }

    #[test]
    fn what_is_taken_leaves_no_empty_object_behind() {
        let check = |record: &str, path: &str, taken: Option<&str>, left: &str| {
            let Value::Object(mut entries) = Value::parse(record.as_bytes()).unwrap() else {
                panic!("{record}")
            };
            let keys = split_path(path);
            let found = find(&entries, &keys).cloned();
            assert_eq!(take(&mut entries, &keys), found);
            assert_eq!(found.map(|value| value.canonical()).as_deref(), taken);
            assert_eq!(Value::Object(entries).canonical(), left);
        };
        check(r#"{"a":[1],"b":2}"#, "a", Some("[1]"), r#"{"b":2}"#);
        check(
            r#"{"a":{"b":{"c":[]}},"d":1}"#,
            "a.b.c",
            Some("[]"),
            r#"{"d":1}"#,
        );
        check(
            r#"{"a":{"b":1,"c":null}}"#,
            "a.c",
            Some("null"),
            r#"{"a":{"b":1}}"#,
        );
        check(r#"{"a":{}}"#, "a.c", None, r#"{"a":{}}"#);
        check(r#"{"a":[{"c":1}]}"#, "a.c", None, r#"{"a":[{"c":1}]}"#);
    }

    #[test]
    fn every_key_that_is_looked_for_is_a_list_of_its_own() {
        let tables =
            of("[source.contract.children]\na = {}\nb = { of = \"a\", path = \"a\" }\n").unwrap();
        let paths: HashSet<Vec<String>> = tables.iter().map(|t| t.lists.clone()).collect();
        assert_eq!(paths.len(), 2);
    }
}
