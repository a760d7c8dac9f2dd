//! Data that `init`, `check` and `preview` look at before anything lands: they report what a run
//! would.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::Value;

use crate::support::{files, run};

/// Codes of the warnings of a list.
fn codes(warnings: &Value) -> Vec<&str> {
    let warnings = warnings.as_array().unwrap().iter();
    warnings.map(|one| one["code"].as_str().unwrap()).collect()
}

/// A pipeline `p.toml` of one source at `url`, with more lines.
fn write_pipeline(folder: &Path, url: &str, more: &str) {
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{url}\"\n{more}"
    );
    fs::write(folder.join("p.toml"), text).unwrap();
}

#[test]
fn a_row_number_that_restarts_with_each_group_is_reported_before_it_lands() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut text = "trial,step,load,y\n".to_owned();
    for (trial, rows) in ["a", "b", "c", "d"].into_iter().zip([70, 120, 95, 60]) {
        for step in 1..=rows {
            let load = f64::from(step * 7919 % 1000) / 8.0;
            writeln!(text, "{trial},{step},{load},{}", load * 2.0 + 0.5).unwrap();
        }
    }
    fs::write(folder.join("t.csv"), text).unwrap();
    let init = ["init", "t.csv", "--to", "p.toml", "--target", "y", "--json"];
    let report = run(folder, &init).expect(0).json();
    let mut decisions = report["decisions"].as_array().unwrap().iter();
    let start = "`step` counts up by one and restarts, as the row number of a group does";
    assert!(
        decisions.any(|decision| decision.as_str().unwrap().starts_with(start)),
        "{report}"
    );
    let check = ["check", "p.toml", "--json"];
    let checked = run(folder, &check).expect(0).json();
    let found = codes(&checked["sources"][0]["warnings"]).contains(&"looks_like_row_number");
    assert!(found, "{checked}");
    let dropped = [&check[..], &["--set", "dataset.drop=[\"step\"]"]].concat();
    let checked = run(folder, &dropped).expect(0).json();
    let found = codes(&checked["sources"][0]["warnings"]).contains(&"looks_like_row_number");
    assert!(!found, "{checked}");
}

#[test]
fn columns_that_files_name_differently_and_large_integers_are_reported_before_they_land() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("in")).unwrap();
    let (mut one, mut two) = ("Menge,code,y\n".to_owned(), "menge,code,y\n".to_owned());
    for i in 0..20 {
        writeln!(one, "{i},{},{}", 9_007_199_254_740_992_u64 + i, i % 7).unwrap();
        writeln!(two, "{i},{i},{}", i % 5).unwrap();
    }
    fs::write(folder.join("in/a.csv"), one).unwrap();
    fs::write(folder.join("in/b.csv"), two).unwrap();
    let init = ["init", "in", "--to", "p.toml", "--target", "y", "--json"];
    let report = run(folder, &init).expect(0).json();
    let decisions = report["decisions"].as_array().unwrap();
    let has = |start: &str| {
        decisions
            .iter()
            .any(|d| d.as_str().unwrap().starts_with(start))
    };
    assert!(has("`Menge` and `menge`: the names differ"), "{report}");
    // 2^53 itself is exact.
    let dropped = report["dropped"].as_array().unwrap();
    let code = dropped.iter().find(|dropped| dropped["column"] == "code");
    let reason = code.unwrap()["reason"].as_str().unwrap();
    let large = "integers beyond 2^53, such as `9007199254740995`";
    assert!(reason.starts_with(large), "{reason}");
    let before = files(folder);
    let check = ["check", "p.toml", "--json"];
    let checked = run(folder, &check).expect(0).json();
    let expected = ["columns_alike", "integer_too_large"];
    assert_eq!(
        codes(&checked["sources"][0]["warnings"]),
        expected[..1],
        "what `init` writes can run"
    );
    let all = ["--set", "dataset.drop=[]"];
    let checked = run(folder, &[&check[..], &all].concat()).expect(1).json();
    assert_eq!(codes(&checked["sources"][0]["warnings"]), expected);
    let reason = "19 of 40 rows looked at have an integer beyond 2^53, and a build rejects them: \
        more than `dataset.max_reject_fraction` = 0.05 allows";
    assert_eq!(checked["sources"][0]["error"], reason);
    let seen = ["preview", "p.toml", "--json"];
    let seen = run(folder, &[&seen[..], &all].concat()).expect(0).json();
    assert_eq!(codes(&seen["sources"][0]["warnings"]), expected);
    assert_eq!(files(folder), before);
    // A code that is a category is no number.
    let set = ["--set", "dataset.categorical=[\"code\"]"];
    let checked = run(folder, &[&check[..], &all, &set].concat());
    let checked = checked.expect(0).json();
    assert_eq!(codes(&checked["sources"][0]["warnings"]), expected[..1]);
    let failed = run(folder, &[&["run", "p.toml"][..], &all].concat());
    assert!(
        failed.stderr.contains("dataset.max_reject_fraction"),
        "{failed:#?}"
    );
}

#[test]
fn a_check_fails_where_the_contract_would_reject_too_many_rows() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let names: Vec<String> = (0..12).map(|i| format!("c{i}")).collect();
    let row = ["1"; 12].join(",");
    let table = format!("{}\n{row}\n{row}\n", names.join(","));
    fs::write(folder.join("a.csv"), table).unwrap();
    write_pipeline(folder, "a.csv", "contract.max_columns = 10\n");
    let found = run(folder, &["check", "p.toml"]).expect(1).stdout;
    let reason = "can be read, but a run fails: 2 of 2 rows looked at are rejected, more than \
                  `contract.max_reject_fraction` = 0.2 allows, such as `too_many_columns`: line 2";
    let flat = found.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("`too_many_columns`"), "{found}");
    assert!(flat.contains(&reason[..100]), "{found}");
    assert!(flat.contains("result 1 problem"), "{found}");
    run(folder, &["ingest", "p.toml"]).expect(1);
    let seen = run(folder, &["preview", "p.toml", "--json"])
        .expect(0)
        .json();
    let source = &seen["sources"][0];
    assert_eq!(
        (&source["rejected"], &source["decided"]),
        (&2.into(), &2.into())
    );
    // A key that stops a run does so in a check.
    write_pipeline(
        folder,
        "a.csv",
        "contract.types = \"freeze\"\ncontract.column.c3.type = \"timestamp\"\n",
    );
    let found = run(folder, &["check", "p.toml"]).expect(1).stdout;
    assert!(found.contains("`contract.types` is `freeze`"), "{found}");
    write_pipeline(folder, "a.csv", "contract.max_columns = 12\n");
    run(folder, &["check", "p.toml"]).expect(0);
}

#[test]
fn a_file_of_expectations_that_cannot_be_used_is_reported_before_rows_land() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows: String = (0..40).map(|i| format!("{i},{}\n", i * 7 % 10)).collect();
    fs::write(folder.join("t.csv"), format!("x,y\n{rows}")).unwrap();
    let dataset = "[dataset]\ntarget = \"y\"\nexpect = { file = \"expect.toml\" }\n";
    write_pipeline(folder, "t.csv", dataset);
    let cases = [
        (None, "does not exist"),
        (Some("garbage ]]"), "cannot use `"),
        (Some("[[column]]\nname = \"y\"\n"), "missing field `kind`"),
    ];
    for (text, part) in cases {
        if let Some(text) = text {
            fs::write(folder.join("expect.toml"), text).unwrap();
        }
        for options in [
            &["check", "p.toml"][..],
            &["check", "p.toml", "--offline"],
            &["run", "p.toml"],
        ] {
            let done = run(folder, options).expect(2);
            let shown = format!("{} {}", done.stdout, done.stderr);
            let flat = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            for part in [part, "`dataset.expect.file`"] {
                assert!(flat.contains(part), "{options:?}: {part}: {shown}");
            }
        }
    }
    let landed = files(&folder.join("feedline-data"));
    assert!(landed.is_empty(), "{} files", landed.len());
    let usable = "[[column]]\nname = \"y\"\nkind = \"numeric\"\n";
    fs::write(folder.join("expect.toml"), usable).unwrap();
    run(folder, &["check", "p.toml"]).expect(0);
}

#[test]
fn quotes_behind_a_backslash_are_a_warning_and_init_sets_their_escape() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows: String = (0..30)
        .map(|i| format!("{i},\"say \\\"hi\\\", x\",{}\n", i % 9))
        .collect();
    fs::write(folder.join("t.csv"), format!("n,said,y\n{rows}")).unwrap();
    write_pipeline(folder, "t.csv", "contract.max_reject_fraction = 1.0\n");
    let checked = run(folder, &["check", "p.toml", "--json"]).expect(0).json();
    let warnings = checked["sources"][0]["warnings"].as_array().unwrap();
    let found = warnings.iter().find(|w| w["code"] == "csv_quotes").unwrap();
    assert_eq!(found["key"], "csv.escape");
    let message = found["message"].as_str().unwrap();
    assert!(
        message.starts_with("the row in line 2 of `t.csv` has a backslash before a quote"),
        "{message}"
    );
    run(folder, &["init", "t.csv", "--to", "q.toml"]).expect(0);
    let seen = run(folder, &["preview", "q.toml", "--json"])
        .expect(0)
        .json();
    let samples = &seen["sources"][0]["columns"][1]["samples"];
    assert_eq!(samples, &serde_json::json!(["say \"hi\", x"]));
}

#[test]
fn text_of_another_encoding_is_named_with_its_key_and_set_by_init() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows: String = (0..30).map(|i| format!("{i},Zürich,{}\n", i % 9)).collect();
    let text = format!("n,ort,y\n{rows}");
    let latin: Vec<u8> = text
        .chars()
        .map(|c| u8::try_from(c as u32).unwrap())
        .collect();
    let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (name, bytes, label) in [
        ("latin.csv", latin, "windows-1252"),
        ("wide.csv", wide, "utf-16le"),
    ] {
        fs::write(folder.join(name), bytes).unwrap();
        write_pipeline(folder, name, "");
        let error = run(folder, &["ingest", "p.toml"]).expect(1);
        let set = format!("set `csv.encoding` to `{label}`");
        assert!(error.stdout.contains(&set), "{error:#?}");
        let checked = run(folder, &["check", "p.toml"]).expect(1).stdout;
        assert!(checked.contains(&set), "{checked}");
        assert!(checked.contains("cannot read file `"), "{checked}");
        assert!(!checked.contains("cannot be read"), "{checked}");
        let init = ["init", name, "--to", "q.toml", "--force", "--json"];
        let report = run(folder, &init).expect(0).json();
        let decision = format!("the text is read as `{label}`");
        assert!(
            report["decisions"].to_string().contains(&decision),
            "{report}"
        );
        let written = fs::read_to_string(folder.join("q.toml")).unwrap();
        let line = format!("csv = {{ encoding = \"{label}\" }}");
        assert!(written.contains(&line), "{written}");
        let seen = run(folder, &["preview", "q.toml", "--json"])
            .expect(0)
            .json();
        let samples = &seen["sources"][0]["columns"][1]["samples"];
        assert_eq!(samples, &serde_json::json!(["Zürich"]));
    }
    fs::write(folder.join("utf8.csv"), text).unwrap();
    write_pipeline(folder, "utf8.csv", "csv.encoding = \"latin1\"\n");
    let checked = run(folder, &["check", "p.toml", "--json"]).expect(0).json();
    let warning = &checked["sources"][0]["warnings"][0];
    assert_eq!(warning["code"], "csv_encoding");
    assert_eq!(warning["key"], "csv.encoding");
    let message = warning["message"].as_str().unwrap();
    assert!(
        message.contains("`Zürich` in it lands as `ZÃ¼rich`"),
        "{message}"
    );
    let landed = run(folder, &["ingest", "p.toml"]).expect(0).stdout;
    assert!(landed.contains("lands as `ZÃ¼rich`"), "{landed}");
}

#[test]
fn a_document_of_json_is_read_from_its_longest_list_of_objects() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let items: Vec<Value> = (0..30)
        .map(|i| serde_json::json!({"a": i, "b": i % 4}))
        .collect();
    let features: Vec<Value> = (0..30)
        .map(|i| serde_json::json!({"type": "Feature", "properties": {"depth": i, "size": i % 4}}))
        .collect();
    let check = |document: Value, path: &str| {
        fs::write(folder.join("d.json"), document.to_string()).unwrap();
        let init = ["init", "d.json", "--to", "p.toml", "--force", "--json"];
        let report = run(folder, &init).expect(0).json();
        let decision = format!("the records are those of the list at `{path}`");
        assert!(
            report["decisions"].to_string().contains(&decision),
            "{report}"
        );
        assert_eq!(report["rows"], 30);
        let written = fs::read_to_string(folder.join("p.toml")).unwrap();
        assert!(
            written.contains(&format!("records = \"{path}\"\n")),
            "{written}"
        );
        run(folder, &["check", "p.toml"]).expect(0);
    };
    check(serde_json::json!({"data": {"items": items}}), "data.items");
    let result = serde_json::json!({"meta": {"tags": ["x"]}, "roles": [{"n": 1}], "result": items});
    check(result, "result");
    let collection = serde_json::json!({"type": "FeatureCollection", "features": features});
    check(collection, "features");
    fs::write(folder.join("d.json"), "{\"id\": 1, \"tags\": [\"a\"]}").unwrap();
    let error = run(folder, &["init", "d.json", "--force"]).expect(1).stderr;
    let lines = "url = \"d.json\"\n    records = \"tags\"\n";
    assert!(error.contains(lines), "{error}");
    assert!(
        error.contains("an object is in the place of the list"),
        "{error}"
    );
}

#[test]
fn values_with_line_ends_and_control_characters_stay_on_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows = "{\"id\":1,\"m\":1.5}\n{\"id\":2,\"m\":\"a\\nb\\u0007\"}\n{\"id\":3,\"m\":2.5}\n";
    fs::write(folder.join("a.ndjson"), rows).unwrap();
    write_pipeline(folder, "a.ndjson", "");
    let seen = run(folder, &["preview", "p.toml"]).expect(0).stdout;
    let sample = r"`1.5`, `2.5`, `a\nb\u{7}`";
    assert!(seen.contains(sample), "{seen}");
    assert!(seen.contains(r"texts such as `a\nb\u{7}`"), "{seen}");
    let lines = seen.lines().count();
    assert_eq!(lines, 5, "{seen}");
    let landed = run(folder, &["ingest", "p.toml"]).expect(0);
    assert!(
        landed.stdout.contains(r"such as `a\nb\u{7}`"),
        "{landed:#?}"
    );
    assert!(
        landed.stderr.contains(r"such as `a\nb\u{7}`"),
        "{landed:#?}"
    );
}

#[test]
fn a_check_and_a_preview_ask_the_landed_columns_about_a_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("in")).unwrap();
    let write = |name: &str, zip: &str| {
        let rows: String = (10..40).map(|i| format!("{i},{zip}{i}\n")).collect();
        fs::write(folder.join("in").join(name), format!("id,zip\n{rows}")).unwrap();
    };
    write("a.csv", "640");
    write_pipeline(folder, "in/*.csv", "");
    run(folder, &["ingest", "p.toml"]).expect(0);
    write("b.csv", "08");
    let before = files(folder);
    let checked = run(folder, &["check", "p.toml", "--json"]).expect(1).json();
    let source = &checked["sources"][0];
    let reason = source["error"].as_str().unwrap();
    let start = "30 of 30 rows looked at are rejected, more than `contract.max_reject_fraction`";
    assert!(reason.starts_with(start), "{reason}");
    assert!(reason.contains("column `zip` is integer"), "{reason}");
    assert_eq!(codes(&source["warnings"]), ["other_types_landed"]);
    let shown = run(folder, &["preview", "p.toml"]).expect(0).stdout;
    for part in [
        "2 columns in 60 rows (all there are); landed columns keep their types",
        "zip  int",
        "30 of the first 30 by the contract",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let file = run(folder, &["preview", "in/b.csv"]).expect(0).stdout;
    assert!(file.contains("zip  text"), "{file}");
    assert_eq!(files(folder), before);
    let refused = run(folder, &["ingest", "p.toml"]).expect(1);
    let refused = format!("{}{}", refused.stdout, refused.stderr);
    assert!(
        refused.contains("30 of 60 records were rejected"),
        "{refused}"
    );
}
