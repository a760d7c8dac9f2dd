use std::{collections::BTreeSet, fs, path::Path};

use feedline_schemas::json_schema;
use serde_json::Value;

use super::{
    classes::{Class, Effect, KEYS},
    *,
};

/// Keys of `[[source]]` in the JSON Schema of the configuration; `*` for names that the user
/// chooses.
fn schema_keys() -> BTreeSet<String> {
    let all = json_schema::all();
    let (_, pipeline) = all
        .into_iter()
        .find(|(name, _)| *name == "pipeline.schema.json")
        .unwrap();
    let pipeline = serde_json::to_value(&pipeline).unwrap();
    let mut keys = BTreeSet::new();
    let source = &pipeline["properties"]["source"]["items"];
    walk(&pipeline, source, "", &mut keys);
    keys
}

fn walk(root: &Value, schema: &Value, path: &str, keys: &mut BTreeSet<String>) {
    let below = |key: &str| match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    };
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        // A secret is one value.
        if ["SecretRef", "TextOrSecret"].contains(&name) {
            keys.insert(path.to_owned());
        } else {
            walk(root, &root["$defs"][name], path, keys);
        }
    } else if let Some(either) = schema["anyOf"].as_array() {
        let real = either.iter().find(|one| one["type"] != "null").unwrap();
        walk(root, real, path, keys);
    } else if let Some(types) = schema["oneOf"].as_array().filter(|types| {
        // A table of several types; words with descriptions are alternatives too.
        types.iter().all(|one| one["properties"].is_object())
    }) {
        for one in types {
            walk(root, one, path, keys);
        }
    } else if let Some(fields) = schema["properties"].as_object() {
        for (key, field) in fields {
            walk(root, field, &below(key), keys);
        }
    } else if schema["additionalProperties"].is_object() {
        walk(root, &schema["additionalProperties"], &below("*"), keys);
    } else if let Some(named) = schema["patternProperties"].as_object() {
        for entry in named.values() {
            walk(root, entry, &below("*"), keys);
        }
    } else {
        keys.insert(path.to_owned());
    }
}

#[test]
fn every_key_of_a_source_has_one_class() {
    let listed: Vec<&str> = KEYS.iter().map(|key| key.pattern).collect();
    let unique: BTreeSet<String> = listed.iter().map(|key| (*key).to_owned()).collect();
    assert_eq!(unique.len(), listed.len(), "a key is listed twice");
    let keys = schema_keys();
    let missing: Vec<_> = keys.difference(&unique).collect();
    assert!(
        missing.is_empty(),
        "give in `classes.rs` the effect of a change of {missing:?} after records have landed"
    );
    let gone: Vec<_> = unique.difference(&keys).collect();
    assert!(gone.is_empty(), "no keys any more: {gone:?}");
}

/// Describes a class for the table.
fn described(class: Class) -> (&'static str, String) {
    match class {
        Class::Immediate(when) => ("takes effect", when.to_owned()),
        Class::Refused(reason) => (
            "refused",
            format!("{reason}; `feedline ingest reset`, or another `name`"),
        ),
        Class::Logged(effect) => (
            "logged change",
            match effect {
                Effect::Next(what) => format!("applies to the reading {what}"),
                Effect::Pages => "applies to the next page run; an unfinished one restarts, and its landed records are skipped".to_owned(),
                Effect::Incremental => "the next page run starts from `incremental.start` again, and landed records are skipped; a later `start` only moves the bound".to_owned(),
                Effect::NextFile => "applies to unread files; inside of a file it is refused until that is read to its end".to_owned(),
                Effect::Folder => "`files`: another pattern in the same folder; unread files that match it are read. Otherwise refused: `feedline ingest reset`, or another `name`".to_owned(),
            },
        ),
    }
}

const INTRODUCTION: &str = "# Settings of a source after records have landed

Effect of a change of each key of `[[source]]` after records of the source have landed. A test compares
this table with the code. It has every key of the configuration.

- *takes effect*: the change applies from the stated event on. Nothing is recorded, since no record
  depends on it.
- *logged change*: the change applies, and an entry of the log records its start. The run reports it on
  the screen, in the report (`settings_changed`) and in the log. `feedline ingest status` shows the
  newest change. Landed data stays unchanged: `feedline ingest reread` re-reads a range or files,
  `feedline ingest reset` everything.
- *refused*: records before and after the change could not be distinguished. The message names the key.

Before the first record lands, every change is accepted, and reading starts from the beginning.

| key | a change | meaning |
|---|---|---|
";

/// Writes the file instead with `FEEDLINE_WRITE_SCHEMAS=1`.
#[test]
fn the_table_of_settings_in_the_docs_is_that_of_the_code() {
    let mut table = INTRODUCTION.to_owned();
    for key in KEYS {
        let (class, meaning) = described(key.class);
        table += &format!("| `{}` | {class} | {meaning} |\n", key.pattern);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/settings-after-landing.md");
    if std::env::var_os("FEEDLINE_WRITE_SCHEMAS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &table).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        found, table,
        "docs/settings-after-landing.md has drifted: run the test with FEEDLINE_WRITE_SCHEMAS=1 and commit the file"
    );
}

#[test]
fn names_that_users_choose_match_their_patterns() {
    let class = |path: &str| class_of(path).map(|class| described(class).0);
    assert_eq!(class("params.a.b"), Some("logged change"));
    assert_eq!(class("contract.column.a.type.type"), Some("logged change"));
    assert_eq!(class("contract.column.a"), None);
    assert_eq!(class("type"), Some("refused"));
    assert_eq!(class("licence"), Some("takes effect"));
}

#[test]
fn the_message_of_a_change_names_the_commands_that_re_read_such_a_source() {
    let described = |lines: &str| {
        let text = format!("[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\n{lines}\n");
        let config = feedline_schemas::config::load("p", &text, &[]).unwrap();
        describe_landed(&config.config.source[0])
    };
    let rest = |more: &str| described(&format!("type = \"rest\"\nurl = \"http://h/\"\n{more}"));
    let reset = "unchanged until `feedline ingest reset PIPELINE.toml SOURCE`";
    let incremental = "incremental = { cursor = \"at\", param = \"since\" }";
    let slices =
        "slices = { from_param = \"a\", to_param = \"b\", start = \"2026-01-01\", step = \"1d\" }";
    for (message, end) in [
        (rest(""), " re-reads it"),
        (
            rest(incremental),
            ", or `ingest reread` with `--from`, re-reads it",
        ),
        (
            rest(slices),
            ", or `ingest reread` with `--from` and `--to`, re-reads it",
        ),
        (
            described("type = \"files\"\nurl = \"in/*.csv\""),
            ", or `ingest reread` with `--file`, re-reads it",
        ),
    ] {
        assert!(message.ends_with(&format!("{reset}{end}")), "{message}");
    }
}

#[test]
fn no_secret_and_no_parameter_is_recorded_in_plain_text() {
    let text = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"http://u:pw@h.example/x?token=geheim1\"\nparams = { key = \"geheim2\" }\nheaders = { X-A = \"geheim3\", X-B = { env = \"GEHEIM4\" } }\nauth = { type = \"bearer\", secret = { env = \"GEHEIM5\" } }\n";
    let config = feedline_schemas::config::load("p", text, &[])
        .unwrap()
        .config;
    let recorded = recorded(&config.source[0]);
    let all = format!("{recorded:?}");
    assert!(
        !all.to_lowercase().contains("geheim") && !all.contains("pw"),
        "{all}"
    );
    assert!(recorded.contains_key("params.key") && recorded.contains_key("headers.X-A"));
    assert!(recorded["url"].contains("h.example/x"), "{all}");
}

#[test]
fn a_body_is_recorded_as_a_hash_that_no_reference_to_a_secret_changes() {
    let of = |lines: &str| {
        let text = format!(
            "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"http://h/\"\nmethod = \"POST\"\n{lines}"
        );
        let config = feedline_schemas::config::load("p", &text, &[]).unwrap();
        recorded(&config.config.source[0])
    };
    let json = |key: &str| {
        of(&format!(
            "body.json = {{ q = \"geheim1\", key = {{ env = \"{key}\" }} }}"
        ))
    };
    let form = |key: &str| {
        of(&format!(
            "body.form = {{ q = \"geheim1\", key = {{ env = \"{key}\" }} }}"
        ))
    };
    for all in [json("GEHEIM2"), form("GEHEIM2")] {
        let shown = format!("{all:?}").to_lowercase();
        assert!(
            !shown.contains("geheim") && shown.contains("post"),
            "{shown}"
        );
    }
    assert_eq!(json("A"), json("B"));
    assert_eq!(form("A"), form("B"));
    assert_ne!(json("A"), of("body.json = { q = \"geheim3\" }"));
    assert!(form("A").contains_key("body.form.q") && !form("A").contains_key("body.form.key"));
}
