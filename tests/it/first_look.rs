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

/// Writes a zip archive with members of these names.
fn write_archive(file: &Path, names: &[&str]) {
    let members: Vec<_> = names.iter().map(|name| (*name, *name)).collect();
    write_members(file, &members);
}

/// A zip archive of members with these names and contents.
fn write_members(file: &Path, members: &[(&str, &str)]) {
    use std::io::Write as _;

    let mut writer = zip::ZipWriter::new(fs::File::create(file).unwrap());
    for (name, content) in members {
        let options = zip::write::SimpleFileOptions::default();
        writer.start_file(*name, options).unwrap();
        writer.write_all(content.as_bytes()).unwrap();
    }
    writer.finish().unwrap();
}

/// A table of the steps of four trials; each step has the number that `number` makes of its place in the trial.
fn trials(number: fn(i32) -> i32) -> String {
    let mut text = "trial,step,load,y\n".to_owned();
    for (trial, rows) in ["a", "b", "c", "d"].into_iter().zip([70, 120, 95, 60]) {
        for step in 1..=rows {
            let load = f64::from(step * 7919 % 1000) / 8.0;
            let number = number(step);
            writeln!(text, "{trial},{number},{load},{}", load * 2.0 + 0.5).unwrap();
        }
    }
    text
}

#[test]
fn row_numbers_are_those_of_the_first_source_of_the_dataset_that_no_key_lists() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("numbered.csv"), trials(|step| step)).unwrap();
    let mixed = trials(|step| step * 31 % 97);
    fs::write(folder.join("mixed.csv"), mixed).unwrap();
    let found = |dataset: &str| {
        let second = "[[source]]\nname = \"m\"\ntype = \"files\"\nurl = \"mixed.csv\"\n";
        let more = format!("{second}[dataset]\ntarget = \"y\"\n{dataset}\n");
        write_pipeline(folder, "numbered.csv", &more);
        let checked = run(folder, &["check", "p.toml", "--json"]).expect(0).json();
        let sources = checked["sources"].as_array().unwrap().iter();
        let is_warned =
            sources.map(|source| codes(&source["warnings"]).contains(&"looks_like_row_number"));
        is_warned.collect::<Vec<bool>>()
    };
    assert_eq!(found("sources = [\"s\"]"), [true, false]);
    assert_eq!(found("sources = [\"s\", \"m\"]"), [true, false]);
    // The column of that name has other numbers in the first source of the dataset.
    assert_eq!(found("sources = [\"m\"]"), [false, false]);
    assert_eq!(found("sources = [\"m\", \"s\"]"), [false, false]);
    for listed in [
        "features = [\"step\", \"load\"]",
        "step = [{ type = \"standardize\", columns = [\"step\"] }]",
    ] {
        let dataset = format!("sources = [\"s\"]\n{listed}");
        assert_eq!(found(&dataset), [false, false], "{listed}");
    }
}

#[test]
fn a_row_number_that_restarts_with_each_group_is_reported_before_it_lands() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("t.csv"), trials(|step| step)).unwrap();
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
fn a_check_advises_a_key_of_the_split_where_rows_have_newer_versions() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("t.csv"), trials(|step| step)).unwrap();
    let found = |dataset: &str| {
        let more = format!("key = [\"trial\", \"step\"]\n[dataset]\ntarget = \"y\"\n{dataset}\n");
        write_pipeline(folder, "t.csv", &more);
        let checked = run(folder, &["check", "p.toml", "--json"]).expect(0).json();
        let warnings = checked["sources"][0]["warnings"].as_array().unwrap().iter();
        let mut warnings = warnings.filter(|one| one["code"] == "versions_change_split");
        let warning = warnings.next();
        warning.map(|one| one["message"].as_str().unwrap().to_owned())
    };
    let message = found("").unwrap();
    let advice = "`dataset.split.key = [\"trial\",\"step\"]`";
    assert!(message.contains(advice), "{message}");
    assert_eq!(found("split = { key = [\"trial\", \"step\"] }"), None);
    assert_eq!(found("split = { by = \"time\", time = \"step\" }"), None);
}

#[test]
fn a_check_warns_of_a_schedule_whose_last_time_has_passed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("a.csv"), "id\n1\n2\n").unwrap();
    let schedule = "schedule = { cron = \"0 0 0 1 1 * 2020\" }\n";
    write_pipeline(folder, "a.csv", schedule);
    for more in [&["--json"][..], &["--offline", "--json"]] {
        let arguments = [&["check", "p.toml"][..], more].concat();
        let checked = run(folder, &arguments).expect(0).json();
        let warnings = &checked["sources"][0]["warnings"];
        assert_eq!(codes(warnings), ["schedule_over"], "{more:?}");
    }
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

#[test]
fn an_archive_without_a_table_is_one_of_images_or_of_texts_or_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let archive = folder.join("x.zip");
    for (names, content, line) in [
        (
            &["cat/1.png", "cat/2.png", "dog/1.png"][..],
            "images in a folder for each class",
            "\ntarget = \"folder\"\n",
        ),
        (
            &["1.png", "1.txt", "2.png", "2.txt"],
            "images",
            "\n# target = \"folder\"\n",
        ),
        (
            &["a.txt", "b.md"],
            "texts, a document in each file",
            "\nformat = \"text\"\n",
        ),
        (
            &["neg/a.txt", "pos/b.txt", "LICENSE"],
            "texts, a document in each file",
            "\nformat = \"text\"\n",
        ),
        (
            &["photos/1.png", "photos/2.png"],
            "images",
            "\n# target = \"folder\"\n",
        ),
    ] {
        write_archive(&archive, names);
        let init = ["init", "x.zip", "--to", "p.toml", "--force", "--json"];
        let report = run(folder, &init).expect(0).json();
        assert_eq!(report["content"], content, "{report}");
        let written = fs::read_to_string(folder.join("p.toml")).unwrap();
        assert!(written.contains(line), "{written}");
        run(folder, &["preview", "p.toml"]).expect(0);
    }
    write_archive(&archive, &["a.docx", "b.txt"]);
    let refused = run(folder, &["init", "x.zip"]).expect(1).stderr;
    assert!(
        refused.contains("no member has a known extension"),
        "{refused}"
    );
    assert!(refused.contains("it has `a.docx`, `b.txt`"), "{refused}");
    // The error of a table is that of the archive, also beside an image.
    let members = [("t.csv", "a,b\n1,\"x\n2,3\n"), ("logo.png", "")];
    write_members(&archive, &members);
    let refused = run(folder, &["init", "x.zip"]).expect(1).stderr;
    assert!(refused.contains("t.csv"), "{refused}");
}

#[test]
fn a_check_fails_where_each_feature_is_a_text_of_its_own_in_each_row() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows: String = (0..120).map(|i| format!("name {i},{}\n", i % 7)).collect();
    fs::write(folder.join("t.csv"), format!("name,y\n{rows}")).unwrap();
    write_pipeline(folder, "t.csv", "[dataset]\ntarget = \"y\"\n");
    let check = ["check", "p.toml", "--json"];
    let checked = run(folder, &check).expect(1).json();
    let reason = checked["sources"][0]["error"].as_str().unwrap();
    assert!(
        reason.contains("no other feature is left: `name`; list one"),
        "{reason}"
    );
    let listed = ["--set", "dataset.categorical=[\"name\"]"];
    run(folder, &[&check[..], &listed].concat()).expect(0);
    let failed = run(folder, &["run", "p.toml"]);
    assert!(
        failed
            .stderr
            .contains("no column is left to be a feature: `name` holds a text"),
        "{failed:#?}"
    );
}

#[test]
fn a_check_warns_of_image_files_that_shards_do_not_hold_as_they_came() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir_all(folder.join("in/a")).unwrap();
    for i in 0..40 {
        fs::write(folder.join(format!("in/a/{i}.GIF")), format!("GIF89a{i}")).unwrap();
    }
    fs::create_dir_all(folder.join("pngs")).unwrap();
    for i in 0..40 {
        fs::write(folder.join(format!("pngs/{i}.png")), format!("png {i}")).unwrap();
    }
    let found = |image: &str| {
        let other =
            "[[source]]\nname = \"t\"\ntype = \"files\"\nurl = \"pngs\"\nformat = \"image\"\n";
        let dataset = format!("format = \"image\"\n{other}[dataset]\nkind = \"images\"\n{image}");
        write_pipeline(folder, "in", &dataset);
        let checked = run(folder, &["check", "p.toml", "--json"]).expect(0).json();
        let codes = codes(&checked["sources"][0]["warnings"]);
        codes.contains(&"images_not_stored")
    };
    assert!(found(""));
    assert!(!found("sources = [\"t\"]\n"));
    assert!(found("image = { store = \"original\" }\n"));
    assert!(!found("image = { store = \"png\" }\n"));
}

#[test]
fn a_list_of_features_that_is_empty_is_reported_by_check_and_build() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows: String = (0..90)
        .map(|i| format!("{},{}\n", i * 37 % 101, i % 9))
        .collect();
    fs::write(folder.join("t.csv"), format!("x,y\n{rows}")).unwrap();
    let dataset = "[dataset]\ntarget = \"y\"\nfeatures = []\n";
    write_pipeline(folder, "t.csv", dataset);
    let checked = run(folder, &["check", "p.toml", "--json"]).expect(0).json();
    assert_eq!(codes(&checked["warnings"]), ["empty_features"], "{checked}");
    let report = run(folder, &["run", "p.toml", "--json"]).expect(0).json();
    let warned = codes(&report["dataset"]["warnings"]);
    assert!(warned.contains(&"empty_features"), "{report}");
}
