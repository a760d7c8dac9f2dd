//! Tables that need a setting: `init` writes it or says why not, and `check` finds what a run fails
//! with.

use std::{fmt::Write as _, fs, path::Path};

use crate::support::{pipeline, run, serve};

/// Writes a table whose rows `row` gives by their numbers.
fn write_table(folder: &Path, name: &str, header: &str, rows: u32, row: impl Fn(u32) -> String) {
    let mut table = header.to_owned() + "\n";
    for i in 0..rows {
        writeln!(table, "{}", row(i)).unwrap();
    }
    fs::write(folder.join(name), table).unwrap();
}

#[test]
fn a_table_of_many_columns_gets_a_contract_that_allows_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let names: Vec<String> = (0..1200).map(|i| format!("c{i}")).collect();
    let cells = |row: u32| {
        let cells: Vec<String> = (0..1200).map(|i| (row * 7 + i).to_string()).collect();
        cells.join(",")
    };
    write_table(folder, "wide.csv", &names.join(","), 90, cells);
    let init = run(folder, &["init", "wide.csv"]).expect(0);
    assert!(!init.stdout.contains("rejected"), "{init:#?}");
    let text = fs::read_to_string(folder.join("wide.toml")).unwrap();
    assert!(
        text.contains("\ncontract = { max_columns = 1200 }\n"),
        "{text}"
    );
    let checked = run(folder, &["check", "wide.toml"]).expect(0);
    assert!(checked.stdout.contains("no problem found"), "{checked:#?}");

    let limit = [
        "check",
        "wide.toml",
        "--set",
        "source.0.contract.max_columns=1000",
    ];
    let refused = run(folder, &limit).expect(1);
    assert!(
        refused.stdout.contains("`contract.max_columns` is 1000"),
        "{refused:#?}"
    );
    assert!(!refused.stdout.contains("\"c0\""), "{refused:#?}");
}

#[test]
fn a_target_of_amounts_is_read_as_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let amount = |row: u32| {
        let cents = 90_000 + row * 137;
        let (thousands, rest) = (cents / 100_000, cents % 100_000);
        let rest = format!("{:03}.{:02}", rest / 100, rest % 100);
        match thousands {
            0 => format!("{row},${rest}"),
            _ => format!("{row},\"${thousands},{rest}\""),
        }
    };
    write_table(folder, "homes.csv", "size, price ", 600, amount);
    let init = run(folder, &["init", "homes.csv", "--target", " price "]).expect(0);
    for part in [
        "` price ` has 600 distinct values in 600 rows, so the task is regression",
        "` price ` is read as numbers by `csv.thousands_separator = \",\"` and `csv.currency = \"$\"`",
    ] {
        assert!(init.stdout.contains(part), "{part}: {init:#?}");
    }
    let checked = run(folder, &["check", "homes.toml"]).expect(0);
    assert!(checked.stdout.contains("no problem found;"), "{checked:#?}");
    let landed = run(folder, &["ingest", "homes.toml"]).expect(0);
    assert!(
        landed
            .stdout
            .contains("600 rows landed, 0 duplicates dropped, 0 rejected; 1 batch, 1 page or file"),
        "{landed:#?}"
    );
}

#[test]
fn a_target_of_amounts_outside_of_csv_gets_the_query_that_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut rows = String::new();
    for i in 0..600 {
        let row = serde_json::json!({ "size": i, "price": format!("${}.50", 900 + i) });
        writeln!(rows, "{row}").unwrap();
    }
    fs::write(folder.join("homes.ndjson"), rows).unwrap();
    let init = run(folder, &["init", "homes.ndjson", "--target", "price"]).expect(0);
    let doubt = "`price` is text with 600 distinct values, and a build rejects rows of a class without a training row";
    assert!(init.stdout.contains(doubt), "{init:#?}");
    let sql = init.stdout.split("`dataset.sql = ").nth(1).unwrap();
    let sql = sql.split('`').next().unwrap();
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"homes\"\ntype = \"files\"\nurl = \"homes.ndjson\"\n\
         [dataset]\nsql = {sql}\ntarget = \"price number\"\ndrop = [\"price\"]\n"
    );
    let file = pipeline(folder, &text);
    run(folder, &["ingest", file]).expect(0);
    let built = run(folder, &["shards", "build", file]).expect(0);
    assert!(
        built
            .stdout
            .contains("600 read, 0 duplicates dropped, 0 rejected"),
        "{built:#?}"
    );
}

/// The query that the warning of amounts with marks advises reads each mark, also behind a currency.
#[test]
fn the_query_for_amounts_with_marks_reads_their_signs() {
    const FORMS: [(&str, &str); 10] = [
        ("", "# CR"),
        ("-", "# DR"),
        ("-", "(#)"),
        ("-", "#-"),
        ("-", "# DR USD"),
        ("-", "# DR \u{20ac}"),
        ("-", "#\u{20ac}-"),
        ("-", "# EUR-"),
        ("", "# USD"),
        ("", "EUR #"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let row = |row: u32| {
        let (sign, form) = FORMS[row as usize % FORMS.len()];
        let amount = format!("{}.25", 100 + row);
        format!("{sign}{amount},{}", form.replace('#', &amount))
    };
    write_table(folder, "amounts.csv", "n,a", 600, row);
    let source = "[pipeline]\nname = \"p\"\n[[source]]\nname = \"amounts\"\ntype = \"files\"\nurl = \"amounts.csv\"\n";
    let file = pipeline(folder, source);
    let landed = run(folder, &["ingest", file, "--json"]).expect(0).json();
    let warnings = landed["sources"][0]["warnings"].as_array().unwrap();
    let is_it = |w: &&serde_json::Value| w["code"] == "looks_like_coded_amounts";
    let found = warnings.iter().find(is_it).unwrap()["message"].as_str();
    let query = found.unwrap().split("`select").nth(1).unwrap();
    let query = query.split('`').next().unwrap().replace("COLUMN", "a");
    let text = format!(
        "{source}[dataset]\nsql = '''select * from (select{query}) where abs(a - n) < 0.001'''\ntarget = \"n\"\n"
    );
    let file = pipeline(folder, &text);
    let built = run(folder, &["shards", "build", file]).expect(0);
    assert!(built.stdout.contains("600 read,"), "{built:#?}");
}

#[test]
fn a_check_finds_that_few_rows_leave_a_split_empty() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let row = |row: u32| format!("{row}.5,{}.25", row * 3);
    let checked = |rows: u32, code: i32| {
        write_table(folder, "few.csv", "size,price", rows, row);
        run(folder, &["init", "few.csv", "--force"]).expect(0);
        run(folder, &["check", "few.toml"]).expect(code).stdout
    };
    let one = checked(1, 1);
    let expected = "can be read, but a run fails: 1 row cannot fill 3 splits (train 0.8, validation 0.1, test 0.1)";
    assert!(one.contains(expected), "{one}");
    run(folder, &["run", "few.toml"]).expect(1);
    fs::remove_dir_all(folder.join("feedline-data")).unwrap();
    let two = checked(2, 1);
    assert!(two.contains("2 rows cannot fill 3 splits"), "{two}");
    let five = checked(5, 0);
    assert!(
        five.contains("few rows: with 5 rows a split (train 0.8, validation 0.1, test 0.1) stays empty by a chance of 85 %"),
        "{five}"
    );
    let many = checked(100, 0);
    assert!(many.contains("no problem found;"), "{many}");
    // Without the two other splits one row is enough, but not to train.
    write_table(folder, "few.csv", "size,price", 1, row);
    let split = "dataset.split={train=1,validation=0,test=0}";
    let all = ["check", "few.toml", "--set", split];
    let refused = run(folder, &all).expect(2).stdout;
    assert!(refused.contains("`dataset.split.validation`"), "{refused}");
    let text = fs::read_to_string(folder.join("few.toml")).unwrap();
    let untrained = text.split("\n[train]").next().unwrap();
    fs::write(folder.join("few.toml"), untrained).unwrap();
    let all = run(folder, &all).expect(0);
    assert!(all.stdout.contains("no problem found;"), "{all:#?}");
}

#[test]
fn a_table_that_a_server_refuses_names_the_option_that_sends_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for status in ["401 Unauthorized", "403 Forbidden"] {
        let base = serve(move |_| (status, String::new(), String::new()));
        let url = format!("{base}/things.csv");
        let refused = run(folder, &["init", &url]).expect(1);
        for part in [&status[..3], "`--bearer VARIABLE` sends a token"] {
            assert!(refused.stderr.contains(part), "{part}: {refused:#?}");
        }
    }
    let base = serve(|_| ("404 Not Found", String::new(), String::new()));
    let missing = run(folder, &["init", &format!("{base}/things.csv")]).expect(2);
    assert!(!missing.stderr.contains("--bearer"), "{missing:#?}");
    // An API too, unless its failure is another one.
    for (status, is_named) in [
        ("401 Unauthorized", true),
        ("429 Too Many Requests", false),
        ("200 OK", false),
    ] {
        let base = serve(move |_| (status, String::new(), "<html></html>".to_owned()));
        let refused = run(folder, &["init", &format!("{base}/things")]).expect(1);
        let names = refused.stderr.contains("--bearer");
        assert_eq!(names, is_named, "{refused:#?}");
    }
}

/// Hundredths as `1.298,50`, and whole numbers as `1.298`.
fn german(hundredths: u32) -> String {
    let (whole, part) = (hundredths / 100, hundredths % 100);
    let whole = match whole / 1000 {
        0 => whole.to_string(),
        thousands => format!("{thousands}.{:03}", whole % 1000),
    };
    match part {
        0 => whole,
        _ => format!("{whole},{part:02}"),
    }
}

/// A number below 10 with three decimals behind a comma, which may be read as thousands.
fn with_three_decimals(row: u32) -> String {
    format!("{},{:03}", 1 + row % 9, row * 37 % 1000)
}

/// Changes commas to points and points to commas.
fn mirrored(text: &str) -> String {
    let signs = text.chars().map(|c| match c {
        ',' => '.',
        '.' => ',',
        other => other,
    });
    signs.collect()
}

#[test]
fn groups_of_thousands_beside_decimal_commas_are_no_second_decimal_separator() {
    let columns: [fn(u32) -> String; 4] = [
        |row| german(120_050 + row * 137),
        |row| german((1000 + row) * 100),
        // `3.647` and `485,04`.
        |row| match row % 2 {
            0 => german((1000 + row) * 100),
            _ => german(48_504 + row),
        },
        // Both decimal separators.
        |row| match row % 2 {
            0 => format!("{}.{:02}", row % 90 + 10, row % 89 + 10),
            _ => format!("{},{:02}", row % 90 + 10, row % 89 + 10),
        },
    ];
    for shape in [&[0][..], &[0, 1], &[2], &[1, 0, 2], &[0, 3]] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut rows = "weight;".to_owned() + &"a;b;c"[..2 * shape.len() - 1] + "\n";
        for row in 0..300 {
            let cells = shape.iter().map(|at| columns[*at](row));
            let cells: Vec<String> = std::iter::once(with_three_decimals(row))
                .chain(cells)
                .collect();
            rows += &format!("{}\n", cells.join(";"));
        }
        fs::write(folder.join("eu.csv"), &rows).unwrap();
        fs::write(folder.join("us.csv"), mirrored(&rows)).unwrap();
        let init = run(folder, &["init", "eu.csv"]).expect(0);
        let text = fs::read_to_string(folder.join("eu.toml")).unwrap();
        let keys = r#"csv = { decimal_separator = ",", thousands_separator = "." }"#;
        assert!(text.contains(keys), "{shape:?}: {text} {init:#?}");
        let open = "decides that the comma is the decimal separator";
        assert!(text.contains(open) && init.stdout.contains(open), "{text}");
        let mixed = "a decimal comma in some rows and a decimal point in others";
        assert_eq!(init.stdout.contains(mixed), shape.contains(&3), "{init:#?}");
        // The mirrored table has decimal points, which need no key.
        let init = run(folder, &["init", "us.csv"]).expect(0);
        let text = fs::read_to_string(folder.join("us.toml")).unwrap();
        assert!(!text.contains("decimal_separator = "), "{shape:?}: {text}");
        assert_eq!(init.stdout.contains(mixed), shape.contains(&3), "{init:#?}");
        let thousands = "set `csv.thousands_separator = \",\"` where they separate thousands";
        assert!(init.stdout.contains(thousands), "{shape:?}: {init:#?}");
    }
}

#[test]
fn files_with_different_decimal_separators_get_no_setting_and_all_their_numbers_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("both")).unwrap();
    let mut rows = "m;k\n".to_owned();
    for row in 0..300 {
        rows += &format!(
            "{};{}\n",
            german(120_050 + row * 137),
            with_three_decimals(row)
        );
    }
    fs::write(folder.join("both/a.csv"), &rows).unwrap();
    fs::write(folder.join("both/b.csv"), mirrored(&rows)).unwrap();
    let init = run(folder, &["init", "both", "--target", "m"]).expect(0);
    let text = fs::read_to_string(folder.join("both.toml")).unwrap();
    assert!(!text.contains("_separator ="), "{text}");
    for part in [
        "`m` (`1",
        "`k` (`1",
        "list both sources in `dataset.sources`",
    ] {
        assert!(init.stdout.contains(part), "{part}: {init:#?}");
    }
}

#[test]
fn a_named_target_with_decimal_points_is_read_beside_columns_with_decimal_commas() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let row = |row: u32| {
        let comma = |step: u32| format!("\"{},{}\"", row * step % 40, row % 9 + 1);
        let integer = row * 5 % 97;
        format!(
            "{},{},{},{integer},0.{:03}",
            comma(3),
            comma(7),
            comma(9),
            row + 100
        )
    };
    write_table(folder, "w.csv", "a,b,c,n,y", 300, row);
    let init = run(folder, &["init", "w.csv", "--target", "y"]).expect(0);
    let text = fs::read_to_string(folder.join("w.toml")).unwrap();
    assert!(!text.contains("decimal_separator = "), "{text}");
    assert!(text.contains("so the task is regression"), "{text}");
    let why = "`y` has decimal points, so `csv.decimal_separator` is not set";
    assert!(init.stdout.contains(why) && text.contains(why), "{init:#?}");
    assert!(!text.contains("until `csv.decimal_separator`"), "{text}");
    // Without a named target, the other columns decide.
    run(folder, &["init", "w.csv", "--force"]).expect(0);
    let text = fs::read_to_string(folder.join("w.toml")).unwrap();
    assert!(text.contains("decimal_separator = \",\""), "{text}");
}

#[test]
fn a_column_of_one_value_or_none_is_a_feature_with_an_indicator() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let row = |row: u32| {
        let vip = if row.is_multiple_of(5) { "1" } else { "" };
        let flag = if row.is_multiple_of(3) { "yes" } else { "" };
        format!("{},{vip},{flag},{}", row * 37 % 101, row * 7919 % 997)
    };
    write_table(folder, "v.csv", "a,vip,flag,y", 300, row);
    let init = run(folder, &["init", "v.csv", "--target", "y", "--json"]).expect(0);
    let init = init.json();
    assert_eq!(init["dropped"].as_array().unwrap().len(), 0, "{init}");
    let decisions = init["decisions"].to_string();
    for column in [
        "`vip` (`1`, missing in 240",
        "`flag` (`yes`, missing in 200",
    ] {
        assert!(decisions.contains(column), "{init}");
    }
    run(folder, &["ingest", "v.toml"]).expect(0);
    let messages = |file: &str| {
        let built = run(folder, &["shards", "build", file, "--json"]).expect(0);
        let built = built.json();
        let warnings = built["warnings"].as_array().cloned().unwrap_or_default();
        let constant = warnings
            .iter()
            .filter(|warning| warning["code"] == "constant_columns");
        constant
            .map(|warning| warning["message"].as_str().unwrap().to_owned())
            .collect::<Vec<String>>()
    };
    assert_eq!(messages("v.toml"), [""; 0]);
    let text = fs::read_to_string(folder.join("v.toml")).unwrap();
    let plain = text.replace("indicator = true, ", "");
    assert_ne!(plain, text);
    fs::write(folder.join("plain.toml"), plain).unwrap();
    let warned = messages("plain.toml");
    let [message] = &warned[..] else {
        panic!("{warned:?}")
    };
    for part in [
        "one value or missing in all",
        ": `vip`; with `indicator = true`",
    ] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_check_finds_a_column_that_is_named_as_an_indicator() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let row = |row: u32| format!("{},{},{}", row % 7, row % 5, row % 11);
    write_table(folder, "rows.csv", "a,a__missing,y", 300, row);
    let file = pipeline(
        folder,
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"rows.csv\"\n\
         [dataset]\ntarget = \"y\"\nstep = [{ type = \"impute\", indicator = true }]\n",
    );
    let refused = run(folder, &["check", file]).expect(2);
    let shown = refused.stdout + &refused.stderr;
    assert!(
        shown.contains("two features would be named `a__missing`"),
        "{shown}"
    );
}

#[test]
fn a_first_line_that_names_the_delimiter_is_skipped_in_the_files_that_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("in")).unwrap();
    let mut number = 0;
    for (name, first, delimiter) in [
        ("a.csv", "", ","),
        ("b.csv", "sep=;\r\n", ";"),
        ("c.csv", "sep=|\n", "|"),
    ] {
        let mut text = format!("{first}a{delimiter}y\n");
        for _ in 0..40 {
            number += 1;
            text += &format!("{number}{delimiter}{}\n", number * 2);
        }
        fs::write(folder.join("in").join(name), text).unwrap();
    }
    let init = run(folder, &["init", "in", "--json"]).expect(0).json();
    let named = "b.csv` is read with the delimiter `;`, which its first line `sep=;` names";
    let decisions = init["decisions"].to_string();
    assert!(decisions.contains(named), "{init}");
    let preview = run(folder, &["preview", "in.toml", "--json"]);
    let preview = preview.expect(0).json();
    let columns = preview["sources"][0]["columns"].as_array().unwrap().iter();
    let columns: Vec<_> = columns.map(|column| &column["name"]).collect();
    assert_eq!(columns, ["a", "y"], "{preview}");
    let report = run(folder, &["ingest", "in.toml", "--json"]).expect(0);
    let report = report.json();
    assert_eq!(
        (&report["rows"], &report["rejected"]),
        (&120.into(), &0.into())
    );
}

#[test]
fn a_table_that_is_no_utf8_gets_its_encoding_also_behind_a_line_that_names_the_delimiter() {
    let numbers: String = (0..40).map(|i| format!("{i};x;{}\n", i * 2)).collect();
    let texts: String = (0..40)
        .map(|i| format!("{i};K\u{f6}ln;{}\n", i * 2))
        .collect();
    let [header, plain] = ["a;Stra\u{df}e in M\u{fc}nchen;y\n", "a;b;y\n"];
    for text in [
        format!("{header}{numbers}"),
        format!("sep=;\n{header}{numbers}"),
        format!("sep=;\n{plain}{texts}"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let bytes: Vec<u8> = text.chars().map(|c| u8::try_from(c).unwrap()).collect();
        fs::write(folder.join("bank.csv"), bytes).unwrap();
        run(folder, &["init", "bank.csv"]).expect(0);
        let text = fs::read_to_string(folder.join("bank.toml")).unwrap();
        let keys = r#"csv = { encoding = "windows-1252" }"#;
        assert!(text.contains(keys), "{text}");
    }
}

#[test]
fn the_index_of_pandas_is_recognized_in_each_file_of_a_folder() {
    for (start, numbers) in [
        (0, "numbers that count up by one and begin again"),
        (1, "another number in each row looked at"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir(folder.join("in")).unwrap();
        for file in 0..3_u32 {
            let row = |row: u32| {
                let load = f64::from((file * 80 + row) * 7919 % 1000) / 8.0;
                format!("{},{load},{}", row + start * file * 80, load * 2.0 + 0.5)
            };
            write_table(folder, &format!("in/{file}.csv"), ",load,y", 80, row);
        }
        let init = run(folder, &["init", "in", "--json"]).expect(0).json();
        assert_eq!(
            init["dropped"][0]["reason"], "a row number by its empty header",
            "{init}"
        );
        let text = fs::read_to_string(folder.join("in.toml")).unwrap();
        let text = text.replace("\"column_1\",", "");
        fs::write(folder.join("in.toml"), text).unwrap();
        let checked = run(folder, &["check", "in.toml"]).expect(0).stdout;
        assert!(checked.contains(numbers), "{checked}");
    }
}

#[test]
fn the_index_of_filtered_frames_is_recognized_in_csv_and_ndjson_by_its_name() {
    for (name, is_json, reason) in [
        ("index", false, "a row number by its name"),
        ("index", true, "a row number by its name"),
        (
            "__index_level_0__",
            true,
            "the index that pandas writes, by its name",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::create_dir(folder.join("in")).unwrap();
        for file in 0..3_u32 {
            let mut text = match is_json {
                true => String::new(),
                false => format!("{name},load,y\n"),
            };
            for row in (0..90_u32).filter(|row| row * 31 % 97 > 30) {
                let load = f64::from((file * 90 + row) * 7919 % 1000) / 8.0;
                let y = load * 2.0 + 0.5;
                text += &match is_json {
                    true => format!("{{\"{name}\":{row},\"load\":{load},\"y\":{y}}}\n"),
                    false => format!("{row},{load},{y}\n"),
                };
            }
            let end = if is_json { "ndjson" } else { "csv" };
            fs::write(folder.join(format!("in/{file}.{end}")), text).unwrap();
        }
        let init = run(folder, &["init", "in", "--json"]).expect(0).json();
        let dropped = &init["dropped"][0];
        assert_eq!(dropped["column"], name, "{init}");
        assert_eq!(dropped["reason"], reason, "{init}");
        let check = |drop: &str| {
            let drop = format!("dataset.drop={drop}");
            let checked = run(folder, &["check", "in.toml", "--set", &drop]).expect(0);
            checked.stdout.contains("the index that pandas writes")
        };
        assert!(check("[]"), "{name}");
        assert!(!check(&format!("[\"{name}\"]")), "{name}");
    }
}
