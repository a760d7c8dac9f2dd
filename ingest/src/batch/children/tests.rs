use std::collections::BTreeMap;

use arrow::{
    array::{AsArray, RecordBatch},
    datatypes::{Int64Type, UInt32Type},
};
use feedline_readers::{record::Record, value::Value};
use feedline_schemas::{
    commit::{ChildTable, ItemKind, Position},
    config::{ContractConfig, load},
    ids::{Name, Sequence},
    record::{ColumnType, RecordSchema},
};

use crate::{
    batch::{
        Batch, Decided, Encoded,
        tests::{decode, texts},
    },
    dedup::Window,
    error::Error,
    source::Page,
};

/// A contract, written as in a pipeline.
pub(super) fn contract(text: &str) -> ContractConfig {
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"x\"\n[source.contract]\n{text}"
    );
    load("p", &text, &[])
        .unwrap()
        .config
        .source
        .remove(0)
        .contract
}

fn tried(
    records: &[&str],
    config: &ContractConfig,
    landed: BTreeMap<Name, ChildTable>,
) -> Result<Decided, Error> {
    let records = records
        .iter()
        .map(|record| Record::Value(Value::parse(record.as_bytes()).unwrap()));
    let mut batch = Batch::default();
    batch.follow(landed);
    let page = Page {
        records: records.collect(),
        next: Position::Start,
        crawled: None,
        parts: Vec::new(),
    };
    batch.push(page).unwrap();
    batch.decide("s", config, None, &mut Window::new(100))
}

/// The records decided by a contract with these lines.
pub(super) fn decided(records: &[&str], config: &str) -> Decided {
    tried(records, &contract(config), BTreeMap::new()).unwrap()
}

pub(super) fn table(decided: &Decided, name: &str) -> (ChildTable, Option<Encoded>) {
    let mut files = decided.child_files(Sequence::new(7)).unwrap();
    files.remove(&Name::new(name).unwrap()).unwrap()
}

/// The rows of a table in this batch.
pub(super) fn rows(decided: &Decided, name: &str) -> RecordBatch {
    decode(table(decided, name).1)
}

pub(super) fn places(batch: &RecordBatch, column: &str) -> Vec<u32> {
    batch[column].as_primitive::<UInt32Type>().values().to_vec()
}

pub(super) fn integers(batch: &RecordBatch, column: &str) -> Vec<Option<i64>> {
    batch[column].as_primitive::<Int64Type>().iter().collect()
}

fn columns(schema: &RecordSchema) -> Vec<&str> {
    schema.columns.iter().map(|c| c.name.as_str()).collect()
}

fn rejected(decided: &Decided) -> Vec<String> {
    let rejects = decided.rejects().iter();
    rejects
        .map(|reject| format!("{} {}: {}", reject.reason, reject.path, reject.detail))
        .collect()
}

const ITEMS: &str = "[source.contract.children]\nitems = {}\n";

#[test]
fn items_land_as_rows_that_name_their_record_and_place() {
    let records = [
        r#"{"id":1,"items":[{"sku":"a","at":{"x":1}},{"sku":"b","qty":2}],"owner":{"tags":["p","q"]}}"#,
        "[]",
        r#"{"id":2,"items":[],"owner":{"tags":null,"name":"n"}}"#,
        r#"{"id":3}"#,
        r#"{"id":4,"items":[{"qty":5}],"owner":{"tags":["r"]}}"#,
    ];
    let decided = decided(
        &records,
        "[source.contract.children]\nitems = { parent = { order = \"id\", who = \"owner.name\" } }\ntags = { path = \
         \"owner.tags\" }\n",
    );
    let landed = decode(decided.data_file(Sequence::new(7)).unwrap());
    assert_eq!(columns(&decided.schema), ["id", "owner.name"]);
    assert_eq!(integers(&landed, "id"), [1, 2, 3, 4].map(Some));
    let (items, encoded) = table(&decided, "items");
    assert_eq!(items.lists, ["items"]);
    assert_eq!(items.items, Some(ItemKind::Objects));
    assert_eq!(columns(&items.schema), ["order", "sku", "at.x", "qty"]);
    let file = &encoded.as_ref().unwrap().file;
    assert_eq!(items.files.iter().collect::<Vec<_>>(), [file]);
    assert_eq!(
        file.path,
        format!("children/items/{:020}-{}.parquet", 7, file.hash.short())
    );
    let items = decode(encoded);
    let names: Vec<_> = items
        .schema_ref()
        .fields()
        .iter()
        .map(|f| f.name().clone())
        .collect();
    assert_eq!(
        names[..5],
        [
            "_feedline_seq",
            "_feedline_row",
            "_feedline_hash",
            "_feedline_parent",
            "_feedline_index"
        ]
    );
    assert_eq!(places(&items, "_feedline_row"), [0, 1, 2]);
    assert_eq!(places(&items, "_feedline_parent"), [0, 0, 4]);
    assert_eq!(places(&items, "_feedline_index"), [0, 1, 0]);
    assert_eq!(integers(&items, "order"), [1, 1, 4].map(Some));
    assert_eq!(texts(&items, "sku"), [Some("a"), Some("b"), None]);
    assert_eq!(integers(&items, "qty"), [None, Some(2), Some(5)]);
    let of_records = landed["_feedline_hash"].as_fixed_size_binary();
    let of_items = items["_feedline_hash"].as_fixed_size_binary();
    assert_eq!(of_items.value(1), of_records.value(0));
    assert_eq!(of_items.value(2), of_records.value(3));
    let (tags, encoded) = table(&decided, "tags");
    assert_eq!(
        (tags.items, columns(&tags.schema)),
        (Some(ItemKind::Values), vec!["value"])
    );
    let tags = decode(encoded);
    assert_eq!(texts(&tags, "value"), [Some("p"), Some("q"), Some("r")]);
    assert_eq!(places(&tags, "_feedline_parent"), [0, 0, 4]);
    let counts = decided.counts();
    assert_eq!((counts.rows, counts.rejected), (4, 1));
    assert_eq!(
        counts.children,
        [("items".to_owned(), 3), ("tags".to_owned(), 3)].into()
    );
}

#[test]
fn a_list_in_an_item_is_a_table_with_the_places_of_both() {
    let records = [
        r#"{"id":1,"items":[{"n":0,"parts":[7,8]},{"n":1},{"n":2,"parts":[9]}]}"#,
        r#"{"id":2,"items":[{"parts":[[1],null]}]}"#,
    ];
    let decided = decided(
        &records,
        "[source.contract.children]\nitems = {}\nparts = { of = \"items\", parent = { order = \"id\" } }\n",
    );
    let (parts, encoded) = table(&decided, "parts");
    assert_eq!(parts.lists, ["items", "parts"]);
    assert_eq!(columns(&table(&decided, "items").0.schema), ["n"]);
    let parts = decode(encoded);
    assert_eq!(places(&parts, "_feedline_parent"), [0, 0, 0]);
    assert_eq!(places(&parts, "_feedline_index"), [0, 0, 2]);
    assert_eq!(places(&parts, "_feedline_index_2"), [0, 1, 0]);
    assert_eq!(integers(&parts, "value"), [7, 8, 9].map(Some));
    assert_eq!(
        rejected(&decided),
        [
            "type_conflict items[0].parts[0].value: in `items[0].parts[0]`: column `value` is integer, the value is a list `[1]`"
        ]
    );
}

#[test]
fn a_copy_of_a_record_brings_no_items() {
    let record = r#"{"id":1,"items":[{"n":1}]}"#;
    let other = r#"{"id":1,"items":[{"n":2}]}"#;
    let decided = decided(&[record, record, other], ITEMS);
    let counts = decided.counts();
    assert_eq!(
        (counts.rows, counts.duplicates),
        (2, 1),
        "another item is another record"
    );
    let items = rows(&decided, "items");
    assert_eq!(integers(&items, "n"), [1, 2].map(Some));
    assert_eq!(places(&items, "_feedline_parent"), [0, 2]);
}

#[test]
fn an_item_in_conflict_sets_its_record_aside_and_leaves_no_trace() {
    let good = r#"{"id":1,"items":[{"n":1}]}"#;
    let bad = r#"{"id":2,"extra":1,"items":[{"n":2.5,"new":"x"},{"n":"no"}]}"#;
    let last = r#"{"id":3,"items":[{"n":3}]}"#;
    let wide = r#"{"id":4,"items":[{"other":1},{"n":[]}]}"#;
    let with = decided(&[good, bad, wide, last, wide], ITEMS);
    let without = decided(&[good, "[]", "[]", last, "[]"], ITEMS);
    assert_eq!(
        rejected(&with)[0],
        "type_conflict items[1].n: in `items[1]`: column `n` is float, the value is text `\"no\"`"
    );
    assert_eq!(with.rejects().len(), 3);
    assert_eq!(with.schema, without.schema);
    assert_eq!(with.presence, without.presence);
    let bytes = |decided: &Decided| {
        let (table, encoded) = table(decided, "items");
        (
            table,
            encoded.unwrap().bytes,
            decided.data_file(Sequence::new(7)).unwrap().unwrap().bytes,
        )
    };
    assert_eq!(bytes(&with), bytes(&without));
    assert_eq!(with.counts().decisions, without.counts().decisions);
}

#[test]
fn a_record_that_is_set_aside_for_itself_brings_no_items() {
    let good = r#"{"id":1,"items":[{"n":1}]}"#;
    let bad = r#"{"id":"x","items":[{"n":2.5,"new":"x"}]}"#;
    let decided = decided(&[good, bad], ITEMS);
    assert_eq!(decided.rejects()[0].path, "id");
    let (items, encoded) = table(&decided, "items");
    assert_eq!(columns(&items.schema), ["n"]);
    assert_eq!(items.schema.columns[0].r#type, ColumnType::Int64);
    assert_eq!(items.presence.rows, 1);
    assert_eq!(integers(&decode(encoded), "n"), [Some(1)]);
}

#[test]
fn fault_36_what_is_no_list_and_items_of_two_kinds_follow_the_contract() {
    let records = [
        r#"{"id":1,"items":[null,{"n":1}]}"#,
        r#"{"id":2,"items":{"n":2}}"#,
        r#"{"id":3,"items":[{"n":3},4]}"#,
        r#"{"id":4,"items":"5"}"#,
    ];
    for mode in ["quarantine_row", "widen"] {
        let decided = decided(&records, &format!("types = \"{mode}\"\n{ITEMS}"));
        assert_eq!(
            rejected(&decided),
            [
                "not_a_list items: table `items` comes from the list `items`, the value is an object `{\"n\":2}`",
                "mixed_items items[1]: the items of table `items` are objects, this one is an integer `4`",
                "not_a_list items: table `items` comes from the list `items`, the value is text `\"5\"`",
            ]
        );
        assert_eq!(integers(&rows(&decided, "items"), "n"), [None, Some(1)]);
    }
    let decided = decided(&records, &format!("types = \"null_value\"\n{ITEMS}"));
    assert!(decided.rejects().is_empty());
    let items = rows(&decided, "items");
    assert_eq!(integers(&items, "n"), [None, Some(1), Some(3), None]);
    assert_eq!(places(&items, "_feedline_parent"), [0, 0, 2, 2]);
    let counts = decided.counts();
    assert_eq!(
        counts.nulled,
        [("items".to_owned(), 2), ("items[]".to_owned(), 1)].into()
    );
    let noted = &counts.decisions["nulled"];
    assert_eq!(noted["items"].sample, "`{\"n\":2}`");
    assert_eq!(
        (noted["items[]"].count, noted["items[]"].sample.as_str()),
        (1, "`4`")
    );
    for (records, detail) in [
        (&records[..2], "comes from the list"),
        (&records[2..3], "are objects"),
    ] {
        let config = contract(&format!("types = \"freeze\"\n{ITEMS}"));
        let error = tried(records, &config, BTreeMap::new())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(detail) && error.contains("contract.types"),
            "{error}"
        );
    }
}

#[test]
fn an_item_that_stops_the_run_names_the_key_that_is_freeze() {
    let records = [
        r#"{"id":1,"items":[{"n":1}]}"#,
        r#"{"id":2,"items":[{"n":"x"}]}"#,
    ];
    let not_a_list = [r#"{"id":1,"items":3}"#];
    let stopped = |records: &[&str], lines: &str, key: &str| {
        let found = tried(records, &contract(lines), BTreeMap::new());
        let error = found.unwrap_err().to_string();
        assert!(error.contains(&format!("`{key}` is `freeze`")), "{error}");
    };
    let of_column = "children.items.column.n.types = \"freeze\"";
    stopped(
        &records,
        of_column,
        "contract.children.items.column.n.types",
    );
    let of_table = "children.items.types = \"freeze\"";
    stopped(&records, of_table, "contract.children.items.types");
    stopped(&not_a_list, of_table, "contract.children.items.types");
    let of_source = "types = \"freeze\"\nchildren.items = {}";
    stopped(&records, of_source, "contract.types");
}

#[test]
fn rounded_digits_of_items_are_counted_by_their_column() {
    let records = [r#"{"id":1,"items":[{"n":0.5},{"n":1234567.123456789012345678}]}"#];
    let decisions = decided(&records, ITEMS).counts().decisions;
    let noted = &decisions["digits_rounded"]["items[].n"];
    let sample = "`1234567.123456789012345678`";
    assert_eq!((noted.count, noted.sample.as_str()), (1, sample));
    let exact = "children.items.column.n.type = \"decimal\"\n";
    let decisions = decided(&records, exact).counts().decisions;
    assert!(!decisions.contains_key("digits_rounded"));
}

#[test]
fn values_of_items_follow_the_modes_of_the_source() {
    let records = [
        r#"{"id":1,"items":[{"n":1,"s":"12"},{"n":2}]}"#,
        r#"{"id":2,"items":[{"n":"x"},{"n":3,"s":4}]}"#,
    ];
    let widened = decided(&records, &format!("types = \"widen\"\n{ITEMS}"));
    let items = rows(&widened, "items");
    assert_eq!(texts(&items, "n"), ["1", "2", "x", "3"].map(Some));
    let counts = widened.counts();
    assert_eq!(counts.decisions["widened"]["items[].n"].count, 1);
    assert_eq!(counts.coerced["items[].s"], 1);
    assert!(counts.decisions["coerced"].contains_key("items[].s"));
    let nulled = decided(&records, &format!("types = \"null_value\"\n{ITEMS}"));
    assert_eq!(
        integers(&rows(&nulled, "items"), "n"),
        [Some(1), Some(2), None, Some(3)]
    );
    assert_eq!(nulled.counts().nulled, [("items[].n".to_owned(), 1)].into());
    // Rules of single columns apply to the table.
    let own = decided(
        &records,
        "required = [\"id\"]\nnulls = \"quarantine_row\"\ncolumn.n.type = \"text\"\n[source.contract.children.items]\n\
         required = [\"s\"]\ncolumn.n.type = \"float\"\n",
    );
    assert_eq!(
        rejected(&own),
        [
            "missing_value items[1].s: in `items[1]`: column `s` is absent, every record should have it",
            "type_conflict items[0].n: in `items[0]`: column `n` is float, the value is text `\"x\"`",
        ]
    );
}

#[test]
fn a_table_has_schema_versions_of_its_own() {
    let config = contract(&format!("types = \"widen\"\n{ITEMS}"));
    let landed = |decided: &Decided| -> BTreeMap<Name, ChildTable> {
        let files = decided.child_files(Sequence::new(0)).unwrap();
        files
            .into_iter()
            .map(|(name, (table, _))| (name, table))
            .collect()
    };
    let first = tried(&[r#"{"id":1,"items":[{"n":1}]}"#], &config, BTreeMap::new()).unwrap();
    let second = tried(
        &[r#"{"id":2,"items":[{"n":0.5}]}"#],
        &config,
        landed(&first),
    )
    .unwrap();
    let (one, _) = table(&first, "items");
    let (two, encoded) = table(&second, "items");
    assert_eq!((one.schema.version.get(), two.schema.version.get()), (1, 2));
    assert_eq!(
        one.schema.columns[0].field_id,
        two.schema.columns[0].field_id
    );
    assert_eq!((two.presence.rows, encoded.is_some()), (2, true));
    assert_eq!(second.schema.version, first.schema.version);
    // A batch without items lands no file and keeps the schema.
    let third = tried(&[r#"{"id":3}"#], &config, landed(&second)).unwrap();
    let (three, encoded) = table(&third, "items");
    assert!(encoded.is_none() && three.files.is_empty());
    assert_eq!((three.schema, three.presence), (two.schema, two.presence));
    // So does a batch whose configuration no longer has the table.
    let fourth = tried(&[r#"{"id":4,"items":[]}"#], &contract(""), landed(&second)).unwrap();
    let (four, encoded) = table(&fourth, "items");
    assert!(encoded.is_none() && four.files.is_empty());
    assert_eq!(four.schema.version.get(), 2);
    assert_eq!(columns(&fourth.schema), ["id", "items"]);
    // Kinds of items and their lists are remembered.
    let fifth = tried(&[r#"{"id":5,"items":[1]}"#], &config, landed(&third)).unwrap();
    assert_eq!(fifth.rejects()[0].reason, "mixed_items");
    let moved = contract("[source.contract.children]\nitems = { path = \"lines\" }\n");
    let error = tried(&[r#"{"id":6}"#], &moved, landed(&first))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with(
            "`contract.children.items.path`: the table has landed with the items of `items[]`"
        ),
        "{error}"
    );
}

#[test]
fn what_comes_from_the_record_takes_no_name_of_an_item() {
    let config = "[source.contract.children]\nitems = { parent = { id = \"id\" } }\n";
    let records = [
        r#"{"id":1,"items":[{"n":1}]}"#,
        r#"{"id":2,"items":[{"id":7}]}"#,
    ];
    let decided = decided(&records, config);
    assert_eq!(decided.rejects()[0].reason, "reserved_key");
    assert_eq!(decided.rejects()[0].path, "items[0].id");
    assert!(
        decided.rejects()[0]
            .detail
            .contains("`contract.children.items.parent`")
    );
    assert_eq!(integers(&rows(&decided, "items"), "id"), [Some(1)]);
    let declared = contract("[source.contract.children.items]\ncolumn.n.type = \"int\"\n");
    let wide = tried(
        &[r#"{"items":[{"n":0.5}]}"#],
        &contract(ITEMS),
        BTreeMap::new(),
    )
    .unwrap();
    let landed = BTreeMap::from([(Name::new("items").unwrap(), table(&wide, "items").0)]);
    let error = tried(&[r#"{"id":1}"#], &declared, landed)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("`contract.children.items.column.\"n\".type`"),
        "{error}"
    );
}

#[test]
fn the_same_records_make_the_same_child_files() {
    let records = [
        r#"{"id":1,"items":[{"n":1,"s":"x"},{"n":2}]}"#,
        r#"{"id":2,"items":[{"s":"y","n":3}]}"#,
    ];
    let other = [records[0], r#"{"items":[{"n":3,"s":"y"}],"id":2}"#];
    let (one, first) = table(&decided(&records, ITEMS), "items");
    let (two, second) = table(&decided(&other, ITEMS), "items");
    assert_eq!(one, two);
    assert_eq!(first.unwrap().bytes, second.unwrap().bytes);
}
