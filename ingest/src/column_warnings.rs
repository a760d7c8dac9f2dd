//! Warnings about the columns of landed records: names in the settings that the records lack, nulls in
//! keys, and cells of two notations.

use std::collections::BTreeMap;

use feedline_schemas::{
    commit::{CommitEntry, Presence},
    config::{NullContract, SourceConfig, nearest},
    count::{counted, first_of},
    record::{ColumnType, RecordSchema, join_path, push_key},
    report::{WarnedColumn, Warning},
};

use crate::children::{Table, tables};

/// Most columns that a message lists.
const LISTED: usize = 10;

/// Columns of the records of a source.
#[derive(Debug)]
pub(crate) struct RecordColumns<'a> {
    /// Schema of the landed records.
    pub(crate) schema: &'a RecordSchema,
    pub(crate) presence: &'a Presence,
    /// Schema and number of rows of each child table.
    pub(crate) tables: BTreeMap<&'a str, (&'a RecordSchema, u64)>,
    /// Further columns of records that have not landed.
    pub(crate) others: Vec<&'a str>,
}

impl<'a> RecordColumns<'a> {
    /// Columns of all records that have landed as of `entry`.
    pub(crate) fn of(entry: &'a CommitEntry) -> Self {
        let tables = entry.children.iter();
        let tables = tables
            .map(|(name, table)| (name.as_str(), (&table.schema, table.presence.rows)))
            .collect();
        Self {
            schema: &entry.schema,
            presence: &entry.state.presence,
            tables,
            others: Vec::new(),
        }
    }

    fn has(&self, name: &str) -> bool {
        has_column(self.schema, name) || self.others.contains(&name)
    }
}

fn has_column(schema: &RecordSchema, name: &str) -> bool {
    schema.columns.iter().any(|column| column.name == name)
}

/// Warnings about the columns of records that have landed.
pub(crate) fn warn_of_columns(config: &SourceConfig, found: &RecordColumns<'_>) -> Vec<Warning> {
    if found.presence.rows == 0 {
        return Vec::new();
    }
    let all = [
        warn_of_absent_key(config, found),
        warn_of_absent_columns(config, found),
        warn_of_null_key(config, found),
        warn_of_null_cursor(config, found),
        warn_of_empty_tables(config, found),
        warn_of_absent_parents(config, found),
        warn_of_mixed_percents(config, found.presence),
    ];
    all.into_iter().flatten().collect()
}

/// Warns of `key` and `version` that name no column.
fn warn_of_absent_key(config: &SourceConfig, found: &RecordColumns<'_>) -> Option<Warning> {
    let keys = config.key.iter().map(|name| (name, "key"));
    let versions = config.version.iter().map(|name| (name, "version"));
    let absent = keys.chain(versions).filter(|(name, _)| !found.has(name));
    let absent: Vec<(&String, &str)> = absent.collect();
    let (_, setting) = absent.first()?;
    let named = absent
        .iter()
        .map(|(name, key)| format!("`{name}` (`{key}`)"));
    let columns = found.schema.columns.iter().take(LISTED);
    let columns = columns.map(|column| format!("`{}`", column.name));
    let message = format!(
        "no record has {}: builds and exports read the latest version of each key, so they stop; name columns of the records, such as {}",
        named.collect::<Vec<_>>().join(", "),
        columns.collect::<Vec<_>>().join(", ")
    );
    Some(Warning::new("key_not_found", message).with_key(&format!("source.{setting}")))
}

/// Warns of names in `contract.column` and `contract.required` that are those of no column. A column with
/// `nulls = "warn"` of its own may be absent.
fn warn_of_absent_columns(config: &SourceConfig, found: &RecordColumns<'_>) -> Option<Warning> {
    let contract = &config.contract;
    let may_be_absent = |name: &str| {
        let own = contract.column.get(name);
        own.and_then(|own| own.nulls) == Some(NullContract::Warn)
    };
    let required = contract.required.iter();
    let named = contract.column.keys().chain(required).map(String::as_str);
    let absent = named.filter(|name| !found.has(name) && !may_be_absent(name));
    let mut absent: Vec<&str> = absent.collect();
    absent.sort_unstable();
    absent.dedup();
    let key = match contract.column.contains_key(*absent.first()?) {
        true => "contract.column",
        false => "contract.required",
    };
    let known = found.schema.columns.iter();
    let known = known.map(|column| column.name.as_str());
    let known: Vec<&str> = known.chain(found.others.iter().copied()).collect();
    let shown = absent.iter().map(|name| {
        let nearest = nearest(name, known.iter().copied());
        nearest.map_or_else(
            || format!("`{name}`"),
            |nearest| format!("`{name}` (nearest column: `{nearest}`)"),
        )
    });
    let shown: Vec<String> = shown.collect();
    let effect = match key {
        "contract.column" => ": its rules for such a column have no effect",
        _ => "",
    };
    let message = format!(
        "no record has {}, which `contract` names{effect}; correct the name, or set `contract.column.<name>.nulls = \"warn\"` for a column that may be absent",
        first_of(&shown, LISTED)
    );
    let columns = absent.into_iter().map(WarnedColumn::new);
    let warning = Warning::new("column_not_found", message).with_key(key);
    Some(warning.with_columns(columns.collect()))
}

/// Warns of nulls in a part of a key of several columns. A column with `nulls` of its own is meant to
/// have them.
fn warn_of_null_key(config: &SourceConfig, found: &RecordColumns<'_>) -> Option<Warning> {
    if config.key.len() < 2 {
        return None;
    }
    let is_meant = |name: &String| {
        let column = config.contract.column.get(name);
        column.is_some_and(|column| column.nulls.is_some())
    };
    let missing = |name: &String| found.presence.missing(name).sum();
    let parts = config
        .key
        .iter()
        .filter(|name| has_column(found.schema, name) && missing(name) > 0 && !is_meant(name));
    let parts: Vec<&String> = parts.collect();
    let first = parts.first()?;
    let named = parts
        .iter()
        .map(|name| format!("`{name}` in {}", missing(name)));
    let message = format!(
        "parts of `key` are null or absent in some of {}: {}. A null is a value of the key like any other: records that agree in the other parts are versions of one entity, so a dataset reads only the latest of them. Records without any part of the key are all read. Reject such records with `contract.required` and `contract.nulls = \"quarantine_row\"`, or set `contract.column.{first}.nulls = \"warn\"` if null is a value of the key. The counts are of all records that ever landed, superseded and deleted ones included, until `feedline ingest reset PIPELINE.toml {}`, which re-reads everything",
        counted(found.presence.rows, "record"),
        named.collect::<Vec<_>>().join(", "),
        config.name
    );
    Some(Warning::new("key_has_nulls", message).with_key("contract.required"))
}

/// Warns of records without a cursor. If the column of the cursor has `nulls` of its own, it is meant to
/// have them.
fn warn_of_null_cursor(config: &SourceConfig, found: &RecordColumns<'_>) -> Option<Warning> {
    let cursor = config.incremental.as_ref()?.cursor.as_str();
    let column = config.contract.column.get(cursor);
    let is_meant = column.is_some_and(|column| column.nulls.is_some());
    let missing = found.presence.missing(cursor).sum();
    if is_meant || missing == 0 || !has_column(found.schema, cursor) {
        return None;
    }
    let message = format!(
        "no value at `{cursor}` in {missing} of {}: such records land, but a server that selects records by it does not return them to a later run, so their changes are missed. Choose a cursor that every record has, or read all pages with `refresh`; set `contract.column.{cursor}.nulls = \"warn\"` if such records do not change before they get one. The count is of all records that ever landed, until `feedline ingest reset PIPELINE.toml {}`, which re-reads everything",
        counted(found.presence.rows, "record"),
        config.name
    );
    Some(Warning::new("records_without_cursor", message).with_key("incremental.cursor"))
}

/// Warns of child tables without a row. A table whose columns are declared may wait for its first one.
fn warn_of_empty_tables(config: &SourceConfig, found: &RecordColumns<'_>) -> Option<Warning> {
    let tables = tables(&config.contract).ok()?;
    let empty = tables.iter().filter(|table| {
        let rows = found.tables.get(table.name.as_str());
        let is_declared = !table.contract.column.is_empty() || !table.contract.required.is_empty();
        let list = join_path(table.keys.iter().map(String::as_str));
        let is_of_record = table.of.is_none() && !found.others.contains(&list.as_str());
        is_of_record && !is_declared && rows.is_none_or(|(_, rows)| *rows == 0)
    });
    let (earlier, empty): (Vec<&Table>, Vec<&Table>) =
        empty.partition(|table| is_landed_list(found, table));
    if let Some(first) = earlier.first()
        && empty.is_empty()
    {
        let message = explain_earlier_lists(config, &earlier);
        let key = format!("contract.children.{}", first.name);
        return Some(Warning::new("child_table_empty", message).with_key(&key));
    }
    let first = empty.first()?;
    let named = empty
        .iter()
        .map(|table| format!("`{}` (list `{}`)", table.name, table.label("")));
    let mut message = format!(
        "no item has landed in {}: none of {} has the list, or all lists are empty; correct the name of the table or its `path`, or declare one of its columns (`contract.children.{}.column.<name>.type`) if the list may be absent",
        named.collect::<Vec<_>>().join(", "),
        counted(found.presence.rows, "record"),
        first.name
    );
    if !earlier.is_empty() {
        message.push_str("; ");
        message.push_str(&explain_earlier_lists(config, &earlier));
    }
    let key = format!("contract.children.{}.path", first.name);
    Some(Warning::new("child_table_empty", message).with_key(&key))
}

/// Returns true if landed records have the list of a table in a column, as before it became a table.
fn is_landed_list(found: &RecordColumns<'_>, table: &Table) -> bool {
    let list = join_path(table.keys.iter().map(String::as_str));
    let is_list = |r#type: ColumnType| r#type.is_list() || r#type == ColumnType::Json;
    let mut columns = found.schema.columns.iter();
    columns.any(|column| column.name == list && is_list(column.r#type))
}

/// Explains that tables are empty since the records with their lists landed before.
fn explain_earlier_lists(config: &SourceConfig, tables: &[&Table]) -> String {
    let named = tables
        .iter()
        .map(|table| format!("`{}` (list `{}`)", table.name, table.label("")));
    format!(
        "no item has landed in {} yet: records that landed before the table was configured have the list in a column, and later ones land in the table; run `feedline ingest reset PIPELINE.toml {}`, which re-reads everything, if the table shall have the earlier items too, or declare one of its columns (`contract.children.<table>.column.<name>.type`) if it shall not",
        named.collect::<Vec<_>>().join(", "),
        config.name
    )
}

/// Warns of columns of child tables that no record has a value for.
fn warn_of_absent_parents(config: &SourceConfig, found: &RecordColumns<'_>) -> Option<Warning> {
    let tables = tables(&config.contract).ok()?;
    let mut absent = Vec::new();
    for table in &tables {
        let landed = found.tables.get(table.name.as_str());
        let Some((schema, _)) = landed.filter(|(_, rows)| *rows > 0) else {
            continue;
        };
        for (name, keys) in &table.parent {
            let mut column = String::new();
            push_key(&mut column, name);
            let inside = format!("{column}.");
            let mut columns = schema.columns.iter();
            if !columns.any(|own| own.name == column || own.name.starts_with(&inside)) {
                absent.push((
                    &table.name,
                    name,
                    join_path(keys.iter().map(String::as_str)),
                ));
            }
        }
    }
    let (first, ..) = absent.first()?;
    let key = format!("contract.children.{first}.parent");
    let named = absent.iter().map(|(table, name, path)| {
        format!("`{name}` of child table `{table}` (no record has `{path}`)")
    });
    let message = format!(
        "{} did not land: the path of a column in `parent` leads through the record, not through an item of a list; correct the path or remove the column",
        named.collect::<Vec<_>>().join(", ")
    );
    Some(Warning::new("parent_not_found", message).with_key(&key))
}

/// Warns of columns that have landed cells with and without a percent sign. A column with a declared type
/// is meant to have both.
fn warn_of_mixed_percents(config: &SourceConfig, presence: &Presence) -> Option<Warning> {
    let is_meant = |name: &String| {
        let column = config.contract.column.get(name);
        column.is_some_and(|column| column.r#type.is_some())
    };
    let mixed = presence.percents.iter().filter_map(|(name, percents)| {
        let plain = presence.plain_numbers.get(name)?;
        (!is_meant(name)).then_some((name, percents, percents + plain))
    });
    let mixed: Vec<(&String, &u64, u64)> = mixed.collect();
    let (first, ..) = mixed.first()?;
    let named = mixed.iter().map(|(name, percents, all)| {
        let all = counted(*all, "value");
        format!("`{name}` ({percents} of {all} other than 0 with the sign)")
    });
    let message = format!(
        "values with and without a percent sign land in {}: `5%` is read as 5, and `0.05`, which may mean the same, as 0.05; correct the files and run `feedline ingest reset PIPELINE.toml {}`, which re-reads everything (until then the counts are of all values that ever landed, superseded and deleted rows included), or declare the type of the column (`contract.column.{first}.type`) if all of its values are percentages",
        named.collect::<Vec<_>>().join(", "),
        config.name
    );
    Some(Warning::new("percent_mixed", message).with_key("csv.percent"))
}

#[cfg(test)]
mod tests {
    use feedline_schemas::{
        config::{IncrementalConfig, load},
        ids::SchemaVersion,
        record::Column,
    };

    use super::*;

    fn schema(names: &[&str]) -> RecordSchema {
        let columns = names.iter().zip(1..).map(|(name, field_id)| Column {
            field_id,
            name: (*name).to_owned(),
            r#type: match *name {
                "tags" => ColumnType::Json,
                _ => ColumnType::Int64,
            },
            whole: false,
        });
        RecordSchema {
            version: SchemaVersion::new(1),
            columns: columns.collect(),
        }
    }

    fn config(more: &str) -> SourceConfig {
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = 'in/*.ndjson'\n{more}"
        );
        load("p", &text, &[]).unwrap().config.source.remove(0)
    }

    /// Warnings about ten records with the columns `id`, `v` and `tags`; so many of them lack `v`. The table
    /// `items` has three rows with the column `q`.
    fn warn(config: &SourceConfig, missing: u64) -> Vec<Warning> {
        let (records, items) = (schema(&["id", "v", "tags"]), schema(&["q"]));
        let mut presence = Presence {
            rows: 10,
            ..Presence::default()
        };
        if missing > 0 {
            presence.missing.entry("v".to_owned()).or_default().null = missing;
        }
        let found = RecordColumns {
            schema: &records,
            presence: &presence,
            tables: BTreeMap::from([("items", (&items, 3))]),
            others: vec!["later"],
        };
        warn_of_columns(config, &found)
    }

    fn check(more: &str, missing: u64, expected: &[(&str, &str)]) {
        let warnings = warn(&config(more), missing);
        let found = warnings.iter().map(|warning| warning.code.as_str());
        let codes = expected.iter().map(|(code, _)| *code);
        assert_eq!(
            found.collect::<Vec<_>>(),
            codes.collect::<Vec<_>>(),
            "{more}"
        );
        for (warning, (_, part)) in warnings.iter().zip(expected) {
            assert!(warning.message.contains(part), "{}", warning.message);
        }
    }

    #[test]
    fn a_name_that_no_record_has_is_reported() {
        check("key = ['id']\nversion = 'v'", 3, &[]);
        check("key = ['later']", 0, &[]);
        let named = "no record has `idd` (`key`), `at` (`version`): ";
        let more = "key = ['idd']\nversion = 'at'";
        check(more, 0, &[("key_not_found", named)]);
        let table = |name: &str, more: &str| format!("[source.contract.children.{name}]\n{more}");
        check(
            &table("items", "parent = { order_id = 'id' }"),
            0,
            &[(
                "parent_not_found",
                "`order_id` of child table `items` (no record has `id`)",
            )],
        );
        check(&table("items", "parent = { q = 'id' }"), 0, &[]);
        check(
            &table("item", ""),
            0,
            &[("child_table_empty", "`item` (list `item[]`)")],
        );
        check(&table("later", ""), 0, &[]);
        // A list that landed as a column before it became a table.
        let earlier = "no item has landed in `tags` (list `tags[]`) yet: records that landed";
        check(&table("tags", ""), 0, &[("child_table_empty", earlier)]);
        let both = format!("{}\n{}", table("item", ""), table("tags", ""));
        for part in ["`item` (list `item[]`): none of", earlier] {
            check(&both, 0, &[("child_table_empty", part)]);
        }
        check(&table("item", "column.n.type = 'int'"), 0, &[]);
    }

    #[test]
    fn a_column_that_the_contract_alone_names_is_reported_unless_it_may_be_absent() {
        let rule = |name: &str, rule: &str| format!("[source.contract.column.{name}]\n{rule}");
        let declared = rule("vv", "type = 'int'");
        let named = "no record has `vv` (nearest column: `v`), which";
        check(&declared, 0, &[("column_not_found", named)]);
        let required = "[source.contract]\nrequired = ['id', 'tag']";
        let named = "no record has `tag` (nearest column: `tags`), which";
        check(required, 0, &[("column_not_found", named)]);
        let warning = warn(&config(required), 0).remove(0);
        assert_eq!(warning.key.as_deref(), Some("contract.required"));
        assert!(warning.is_about("tag"), "{warning:?}");
        check(&rule("v", "type = 'int'"), 0, &[]);
        check(&rule("later", "type = 'int'"), 0, &[]);
        check(&rule("vv", "nulls = 'warn'"), 0, &[]);
    }

    #[test]
    fn values_with_and_without_a_percent_sign_are_reported_until_the_type_is_declared() {
        let check = |more: &str, plain: Option<u64>, expected: Option<&str>| {
            let mut presence = Presence {
                rows: 10,
                ..Presence::default()
            };
            presence.percents.insert("v".to_owned(), 3);
            let counted = plain.map(|plain| ("v".to_owned(), plain));
            presence.plain_numbers.extend(counted);
            let found = warn_of_mixed_percents(&config(more), &presence);
            let message = found.map(|warning| warning.message);
            let named = message
                .as_deref()
                .and_then(|text| text.split_once(" land in "));
            let named = named.and_then(|(_, rest)| rest.split_once(": "));
            assert_eq!(named.map(|(named, _)| named), expected, "{more} {plain:?}");
            let is_remedied = |text: &String| {
                text.contains("ingest reset PIPELINE.toml s`") && text.contains("ever landed")
            };
            assert!(message.as_ref().is_none_or(is_remedied), "{message:?}");
        };
        let named = "`v` (3 of 6 values other than 0 with the sign)";
        check("", Some(3), Some(named));
        // Rows that landed before the counts began may have had the sign.
        check("", None, None);
        let declared = "[source.contract.column.v]\ntype = 'float'";
        check(declared, Some(3), None);
    }

    #[test]
    fn nulls_in_a_part_of_a_key_are_reported_until_they_are_meant() {
        let part = "some of 10 records: `v` in 3. A null";
        check("key = ['id', 'v']", 3, &[("key_has_nulls", part)]);
        let history = "until `feedline ingest reset PIPELINE.toml s`";
        check("key = ['id', 'v']", 3, &[("key_has_nulls", history)]);
        check("key = ['id', 'v']", 0, &[]);
        check("key = ['v']", 3, &[]);
        let mut meant = config("key = ['id', 'v']");
        let column = meant.contract.column.entry("v".to_owned()).or_default();
        column.nulls = Some(NullContract::Warn);
        assert_eq!(warn(&meant, 3), []);
    }

    #[test]
    fn records_without_a_cursor_are_counted_until_they_are_meant() {
        let source = |cursor: &str| {
            let mut config = config("");
            config.incremental = Some(IncrementalConfig {
                cursor: cursor.to_owned(),
                param: "since".to_owned(),
                start: None,
                lookback: "0".to_owned(),
                max_ahead: "5m".to_owned(),
            });
            config
        };
        let mut found = warn(&source("v"), 3);
        let warning = found.remove(0);
        assert_eq!(warning.code, "records_without_cursor");
        let expected = "no value at `v` in 3 of 10 records: ";
        assert!(warning.message.starts_with(expected), "{warning:?}");
        assert_eq!(found, []);
        // All have one, or it is another column.
        assert_eq!(warn(&source("v"), 0), []);
        assert_eq!(warn(&source("id"), 3), []);
        assert_eq!(warn(&config(""), 3), []);
        let mut meant = source("v");
        let column = meant.contract.column.entry("v".to_owned()).or_default();
        column.nulls = Some(NullContract::Warn);
        assert_eq!(warn(&meant, 3), []);
    }
}
