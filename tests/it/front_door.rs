//! First contact: `init`, `check`, `preview --rows`, `explain`, `schema`, `completions` and `man`.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use serde_json::Value;

use crate::support::{feedline, files, finish, pipeline, run, serve};

/// 400 rows of 50 customers, whose label follows from two columns.
fn write_customers(folder: &Path) {
    let mut rows = "id,customer_id,signed,city,spend,visits,note,churned\n".to_owned();
    for i in 0..400_u32 {
        let (spend, visits) = ((i * 37) % 211, (i * 17) % 53);
        let churned = if spend > 2 * visits { "yes" } else { "no" };
        let city = ["Rome", "Oslo", "Bonn"][(i % 3) as usize];
        writeln!(
            rows,
            "{i},{},2026-01-{:02},{city},{spend},{visits},note number {i},{churned}",
            i % 50,
            i % 28 + 1
        )
        .unwrap();
    }
    fs::write(folder.join("customers.csv"), rows).unwrap();
}

#[test]
fn a_pipeline_that_init_writes_for_a_table_passes_its_check_and_trains() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_customers(folder);
    let report = run(folder, &["init", "customers.csv", "--json"])
        .expect(0)
        .json();
    assert_eq!(report["file"], "customers.toml");
    assert_eq!(report["target"], "churned");
    let text = fs::read_to_string(folder.join("customers.toml")).unwrap();
    assert!(text.contains("key = [\"customer_id\"]"), "{text}");
    assert!(text.contains("by = \"time\", time = \"signed\""), "{text}");
    let before = files(folder);
    let checked = run(folder, &["check", "customers.toml", "--json"])
        .expect(0)
        .json();
    assert_eq!(files(folder), before, "a check writes nothing");
    let dataset = &checked["dataset"];
    assert_eq!(dataset["numeric"], serde_json::json!(["spend", "visits"]));
    assert_eq!(dataset["categorical"], serde_json::json!(["city"]));
    assert_eq!(dataset["targets"], serde_json::json!(["churned"]));
    let done = run(folder, &["run", "customers.toml", "--json"])
        .expect(0)
        .json();
    let accuracy = done["train"]["test"]["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.8, "{accuracy}");

    let again = run(folder, &["init", "customers.csv"]).expect(1);
    assert!(
        again.stderr.contains("`customers.toml` exists") && again.stderr.contains("--force"),
        "{again:#?}"
    );
    let other = ["init", "customers.csv", "--force", "--target", "spend"];
    assert!(run(folder, &other).expect(0).stdout.contains("regression"));
    let none = ["init", "customers.csv", "--force", "--target", "spent"];
    let none = run(folder, &none).expect(1).stderr;
    assert!(
        none.contains("the columns are `id`, `customer_id`"),
        "{none}"
    );
}

#[test]
fn a_pipeline_that_init_writes_for_an_api_has_its_records_and_pages() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let base = serve(move |path| {
        count.fetch_add(1, SeqCst);
        let page: u64 = path
            .split_once("page=")
            .and_then(|(_, text)| text.split('&').next()?.parse().ok())
            .unwrap_or(1);
        let items: Vec<Value> = (0..if page > 3 { 0 } else { 10 })
            .map(|i| serde_json::json!({"id": page * 10 + i, "size": i, "price": 2 * i}))
            .collect();
        let body = serde_json::json!({"data": {"items": items}, "page": page, "total_pages": 3});
        (
            "200 OK",
            "Content-Type: application/json\r\n".to_owned(),
            body.to_string(),
        )
    });
    let url = format!("{base}/v1/things?page=1");
    let report = run(folder, &["init", &url, "--json"]).expect(0).json();
    assert_eq!(report["file"], "things.toml");
    assert_eq!(report["columns"], 3);
    let text = fs::read_to_string(folder.join("things.toml")).unwrap();
    assert!(text.contains("records = \"data.items\""), "{text}");
    assert!(!text.contains("\n[dataset]"), "no target is known: {text}");
    let reason =
        "no `[dataset]` and no `[train]` are written, because `init` does not guess a target";
    assert!(text.contains(&format!("\n# {reason}")), "{text}");
    let decisions = report["decisions"].as_array().unwrap();
    let is_reason = |decision: &Value| decision.as_str().unwrap().starts_with(reason);
    assert_eq!(
        decisions.iter().filter(|d| is_reason(d)).count(),
        1,
        "{decisions:?}"
    );
    let shown = run(folder, &["init", &url, "--force"]).expect(0).stdout;
    assert!(
        shown.contains(reason) && shown.contains("`--target COLUMN --force`"),
        "{shown}"
    );
    let with_target = [
        "init",
        &url,
        "--force",
        "--to",
        "priced.toml",
        "--target",
        "price",
    ];
    assert!(!run(folder, &with_target).expect(0).stdout.contains(reason));
    let text = fs::read_to_string(folder.join("priced.toml")).unwrap();
    assert!(
        text.contains("\n[dataset]") && !text.contains(reason),
        "{text}"
    );
    let preview = ["preview", "things.toml", "--rows", "2", "--json"];
    let preview = run(folder, &preview).expect(0).json();
    let records = preview["sources"][0]["records"].as_array().unwrap().clone();
    assert_eq!(records.len(), 2);
    assert!(
        records[0].as_str().unwrap().contains("\"price\":0"),
        "{records:?}"
    );
    run(folder, &["check", "things.toml"]).expect(0);
    let before = asked.load(SeqCst);
    let offline = run(folder, &["check", "things.toml", "--offline"]).expect(0);
    assert!(offline.stdout.contains("not asked"), "{offline:#?}");
    assert_eq!(
        asked.load(SeqCst),
        before,
        "an offline check sends no request"
    );
    let landed = run(folder, &["ingest", "things.toml", "--json"])
        .expect(0)
        .json();
    assert_eq!(landed["rows"], 30, "{landed}");
}

#[test]
fn init_sends_a_token_and_names_its_variable_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let base = serve(move |target| {
        let (kind, body) = match target.ends_with(".csv") {
            true => ("text/csv", "id,size\n1,2.5\n2,3.5\n".to_owned()),
            false => {
                let items = serde_json::json!([{"id": 1, "size": "2,5"}, {"id": 2, "size": "3,5"}]);
                let body = serde_json::json!({ "items": items });
                ("application/json", body.to_string())
            }
        };
        ("200 OK", format!("Content-Type: {kind}\r\n"), body)
    });
    for (path, file) in [("v1/things", "mine.toml"), ("things.csv", "file.toml")] {
        let url = format!("{base}/{path}");
        let init = ["init", &url, "--to", file, "--bearer", "THINGS_TOKEN"];
        let unset = run(folder, &init).expect(2);
        assert!(unset.stderr.contains("THINGS_TOKEN"), "{unset:#?}");
        let mut command = feedline(folder);
        command.args(init).env("THINGS_TOKEN", "hush");
        finish(command.output().unwrap()).expect(0);
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let name = file.trim_end_matches(".toml");
        assert!(text.contains(&format!("name = \"{name}\"")), "{text}");
        assert!(
            text.contains(r#"auth = { type = "bearer", secret = { env = "THINGS_TOKEN" } }"#),
            "{text}"
        );
        assert!(!text.contains("hush"), "{text}");
    }
    let local = ["init", "mine.toml.csv", "--bearer", "THINGS_TOKEN"];
    fs::write(folder.join("mine.toml.csv"), "a,b\n1,2\n").unwrap();
    let refused = run(folder, &local).expect(1);
    assert!(
        refused.stderr.contains("`--bearer` is for URLs"),
        "{refused:#?}"
    );
}

#[test]
fn a_target_that_is_missing_in_many_rows_is_reported_by_init_and_check() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut rows = "area,rooms,price\n".to_owned();
    for i in 0..300_u32 {
        let price = if i % 4 == 0 {
            String::new()
        } else {
            format!("{}.5", i * 3)
        };
        writeln!(rows, "{i},{},{price}", i % 5).unwrap();
    }
    fs::write(folder.join("homes.csv"), rows).unwrap();
    let init = run(folder, &["init", "homes.csv", "--target", "price"]).expect(0);
    assert!(
        init.stdout
            .contains("`price` is missing in 75 of 300 rows looked at"),
        "{init:#?}"
    );
    let text = fs::read_to_string(folder.join("homes.toml")).unwrap();
    assert!(text.contains("max_reject_fraction = 0.43"), "{text}");
    run(folder, &["run", "homes.toml", "--set", "train.epochs=1"]).expect(0);
    let usual = [
        "check",
        "homes.toml",
        "--set",
        "dataset.max_reject_fraction=0.05",
    ];
    let checked = run(folder, &usual).expect(1);
    for part in [
        "target `price` is missing in 75 of 300 rows looked at",
        "a run fails: 75 of 300 rows looked at have no target",
    ] {
        assert!(checked.stdout.contains(part), "{checked:#?}");
    }
    // Later versions of a row may have a target.
    let keyed = [&usual[..], &["--set", "source.0.key=[\"area\"]"]].concat();
    let checked = run(folder, &keyed).expect(0);
    assert!(checked.stdout.contains("no problem found"), "{checked:#?}");
}

#[test]
fn a_table_with_decimal_commas_is_trained_on_numbers_and_predicted_as_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut rows = "area;rooms;price\n".to_owned();
    for i in 0..400_u32 {
        let area = (i * 37) % 91;
        writeln!(rows, "{area},5;{};{},25", i % 5, 3 * area + i % 5).unwrap();
    }
    fs::write(folder.join("homes.csv"), rows).unwrap();
    let init = run(folder, &["init", "homes.csv", "--json"])
        .expect(0)
        .json();
    assert_eq!(
        (&init["target"], &init["dropped"]),
        (&"price".into(), &Value::Array(vec![]))
    );
    let text = fs::read_to_string(folder.join("homes.toml")).unwrap();
    assert!(
        text.contains(r#"csv = { decimal_separator = "," }"#),
        "{text}"
    );
    let report = run(folder, &["run", "homes.toml", "--json"])
        .expect(0)
        .json();
    let r2 = report["train"]["test"]["r2"].as_f64().unwrap();
    assert!(r2 > 0.9, "{report}");
    assert_eq!(report["train"].get("resumed_at"), None);
    let again = run(folder, &["run", "homes.toml", "--json"])
        .expect(0)
        .json();
    assert_eq!(again["train"]["resumed_at"], again["train"]["steps"]);
    assert_eq!(again["ingest"]["sources"][0]["new_rows"], 0);
    let again = run(folder, &["run", "homes.toml"]).expect(0);
    for part in [
        "nothing new, 400 rows landed",
        "train (nothing new: trained before",
    ] {
        assert!(again.stdout.contains(part), "{again:#?}");
    }
    fs::write(folder.join("new.csv"), "area;rooms\n20,5;3\n").unwrap();
    let predict = [
        "predict",
        "homes.toml",
        "new.csv",
        "--to",
        "out.csv",
        "--json",
    ];
    let predicted = run(folder, &predict).expect(0).json();
    assert_eq!(predicted["warnings"][0]["code"], "csv_delimiter");
}

#[test]
fn a_table_with_thousands_and_a_bad_row_is_read_as_numbers_and_its_bad_row_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut rows = "area;price\n".to_owned();
    for i in 0..300_u32 {
        writeln!(rows, "{};{}.{:03},25", (i * 37) % 91, 1 + i % 9, i).unwrap();
    }
    rows += "7;8;9\n";
    fs::write(folder.join("homes.csv"), rows).unwrap();
    let init = run(folder, &["init", "homes.csv"]).expect(0).stdout;
    let text = fs::read_to_string(folder.join("homes.toml")).unwrap();
    let keys = r#"csv = { decimal_separator = ",", thousands_separator = "." }"#;
    assert!(text.contains(keys), "{text}");
    assert!(
        init.contains("1 of 301 rows looked at is rejected, such as `ragged_row`"),
        "{init}"
    );
    let check = run(folder, &["check", "homes.toml"]).expect(0).stdout;
    assert!(
        check.contains("target `price`, 1 numeric and 0 categorical features"),
        "{check}"
    );
    assert!(
        check.contains("rejected       1, such as `ragged_row`"),
        "{check}"
    );
    assert!(
        check.contains("no problem found, but 1 rejected row"),
        "{check}"
    );
    let json = run(folder, &["check", "homes.toml", "--json"])
        .expect(0)
        .json();
    assert_eq!(json["sources"][0]["rejected"], 1, "{json}");

    // The advice of the warning, followed, ends the warning.
    let bare = text.replace(keys, "csv = {}");
    fs::write(folder.join("bare.toml"), bare).unwrap();
    let check = run(folder, &["check", "bare.toml"]).expect(0).stdout;
    assert!(
        check.contains("and `csv.thousands_separator = \".\"` to read"),
        "{check}"
    );
}

#[test]
fn a_table_of_texts_gets_a_language_model_and_the_command_that_continues_a_text() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut rows = "label\tmessage\n".to_owned();
    for i in 0..120_u32 {
        let words: Vec<String> = (0..40)
            .map(|w| format!("word{}", (w * w + i * 1009) % 9973))
            .collect();
        writeln!(
            rows,
            "{}\t{}",
            ["ham", "spam"][(i % 2) as usize],
            words.join(" ")
        )
        .unwrap();
    }
    fs::write(folder.join("sms.tsv"), rows).unwrap();
    let init = run(folder, &["init", "sms.tsv"]).expect(0).stdout;
    assert!(
        init.contains("`message` has texts, so a language model"),
        "{init}"
    );
    run(folder, &["check", "sms.toml"]).expect(0);
    let done = run(folder, &["run", "sms.toml", "--set", "train.epochs=1"]).expect(0);
    let next = "`feedline generate sms.toml --prompt TEXT --set 'train.epochs=1'`";
    assert!(done.stdout.contains(next), "{done:#?}");
    assert!(done.stdout.contains(" in 1 epoch, "), "{done:#?}");
}

#[test]
fn files_without_a_row_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, bytes, word) in [
        (
            "head.csv",
            &b"a,b\n"[..],
            "it is empty, or has a header line alone",
        ),
        (
            "bad.csv",
            b"a,b\n1,2,3\n",
            "1 of 1 row looked at is rejected, such as `ragged_row`",
        ),
        (
            "book.csv",
            b"PK\x03\x04\x14\0\x06\0\0\x80",
            "a workbook of Excel",
        ),
        (
            "page.csv",
            b"<!DOCTYPE html><html><body>Log in</body></html>",
            "a page of HTML",
        ),
    ] {
        fs::write(folder.join(name), bytes).unwrap();
        let refused = run(folder, &["init", name]).expect(1).stderr;
        assert!(refused.contains(word), "{refused}");
    }
}

#[test]
fn an_offline_check_sends_no_request_to_the_store_of_the_root() {
    let folder = tempfile::tempdir().unwrap();
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let base = serve(move |_| {
        count.fetch_add(1, SeqCst);
        ("404 Not Found", String::new(), String::new())
    });
    let file = pipeline(
        folder.path(),
        r#"
[pipeline]
name = "remote"
root = "s3://lake/remote"
[[source]]
name = "numbers"
type = "files"
url = "numbers.csv"
[dataset]
target = "price"
"#,
    );
    let mut command = feedline(folder.path());
    command.args(["check", file, "--offline"]);
    command.env("AWS_ENDPOINT_URL", base);
    command.env("AWS_ALLOW_HTTP", "true");
    command.env("AWS_ACCESS_KEY_ID", "id");
    command.env("AWS_SECRET_ACCESS_KEY", "key");
    let checked = finish(command.output().unwrap()).expect(0);
    assert!(
        checked
            .stdout
            .contains("columns are not checked: `pipeline.root`"),
        "{checked:#?}"
    );
    assert_eq!(asked.load(SeqCst), 0);
}

#[test]
fn a_secret_in_plain_text_is_named_before_any_request_sends_it() {
    let folder = tempfile::tempdir().unwrap();
    let base = serve(|_| {
        let type_of = "Content-Type: application/json\r\n".to_owned();
        ("200 OK", type_of, r#"[{"id": 1}]"#.to_owned())
    });
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"{base}/things\"\n\
         headers = {{ X-Api-Key = \"k-0123456789abcdef\" }}\n"
    );
    let file = pipeline(folder.path(), &text);
    for arguments in [
        &["check", file, "--offline"][..],
        &["check", file],
        &["preview", file],
    ] {
        let shown = run(folder.path(), arguments).expect(0);
        let part = "`headers.X-Api-Key` seems to hold a secret";
        assert!(shown.stdout.contains(part), "{arguments:?} {shown:#?}");
        // The sentence is not written twice.
        assert!(!shown.stderr.contains(part), "{arguments:?} {shown:#?}");
        let logged = "requests send a probable secret in plain text";
        let is_logged = shown.stderr.contains(logged);
        let is_offline = arguments.contains(&"--offline");
        assert_eq!(is_logged, !is_offline, "{arguments:?} {shown:#?}");
    }
}

#[test]
fn a_check_names_all_variables_that_are_not_set_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let source = |name: &str| {
        format!(
            "[[source]]\nname = \"{name}\"\ntype = \"rest\"\nurl = \"http://127.0.0.1:9/{name}\"\n\
             auth = {{ type = \"bearer\", secret = {{ env = \"NO_SUCH_{name}\" }} }}\n"
        )
    };
    let text = format!("[pipeline]\nname = \"p\"\n{}{}", source("a"), source("b"));
    let file = pipeline(folder.path(), &text);
    for arguments in [&["check", file, "--offline"][..], &["check", file]] {
        let shown = run(folder.path(), arguments).expect(2);
        let part = "; also not set: `NO_SUCH_b` (`source.1.auth.secret`)";
        assert_eq!(shown.stdout.matches(part).count(), 1, "{shown:#?}");
        let unset = shown.stdout.matches("is not set").count();
        assert_eq!(unset, 1, "{arguments:?} {shown:#?}");
    }
}

#[test]
fn a_check_lists_every_problem_with_its_line_and_lands_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_customers(folder);
    let file = pipeline(
        folder,
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n\n[[source]]\nname = \"customers\"\ntype = \"files\"\nurl = \"customers.csv\"\n\n\
         [[source]]\nname = \"gone\"\ntype = \"files\"\nurl = \"gone.csv\"\n\n\
         [[source]]\nname = \"api\"\ntype = \"rest\"\nurl = \"http://127.0.0.1:9/x\"\nauth = { type = \"bearer\", secret = { env = \"NO_SUCH_TOKEN\" } }\n\n\
         [dataset]\nsources = [\"customers\"]\ntarget = \"churnd\"\n\n[train]\nlearning_rate = -1\n",
    );
    let before = files(folder);
    let checked = run(folder, &["check", file]).expect(2);
    for wanted in [
        "NO_SUCH_TOKEN",
        "did you mean `churned`",
        "train.learning_rate",
        "gone",
    ] {
        assert!(checked.stdout.contains(wanted), "{wanted}: {checked:#?}");
    }
    assert_eq!(files(folder), before);
    // What a later stage says of its settings comes before the first request of an earlier one.
    let ran = run(folder, &["run", file]).expect(2);
    assert!(ran.stderr.contains("train.learning_rate"), "{ran:#?}");
    assert_eq!(files(folder), before);
}

#[test]
fn folders_of_images_and_of_texts_get_pipelines_of_their_kind() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (class, shade) in [("dark", 10_u8), ("light", 240)] {
        for i in 0..20_u8 {
            let path = folder.join(format!("photos/{class}/{i}.pgm"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let mut file = b"P5 80 80 255\n".to_vec();
            file.extend((0..6400_u32).map(|at| {
                shade.wrapping_add(u8::try_from((at * (u32::from(i) + 3)) % 11).unwrap())
            }));
            fs::write(path, file).unwrap();
        }
    }
    let report = run(folder, &["init", "photos", "--json"]).expect(0).json();
    assert_eq!(report["content"], "images in a folder for each class");
    let decisions = report["decisions"].to_string();
    assert!(
        decisions.contains("a shorter side of 72 pixels and trained at 64"),
        "{decisions}"
    );
    run(folder, &["check", "photos.toml"]).expect(0);
    run(folder, &["shards", "build", "photos.toml"]).expect(1);
    run(folder, &["ingest", "photos.toml"]).expect(0);
    let built = run(folder, &["shards", "build", "photos.toml", "--json"])
        .expect(0)
        .json();
    assert_eq!(built["rows_in"], 40, "{built}");

    fs::create_dir(folder.join("notes")).unwrap();
    for i in 0..30 {
        let words: Vec<String> = (0..200)
            .map(|w| format!("word{}", (w * w + i * 1009) % 9973))
            .collect();
        fs::write(folder.join(format!("notes/{i}.txt")), words.join(" ")).unwrap();
    }
    run(folder, &["init", "notes", "--to", "texts.toml"]).expect(0);
    run(folder, &["check", "texts.toml"]).expect(0);
    let set = ["--set", "train.epochs=1"];
    run(folder, &[&["run", "texts.toml"], &set[..]].concat()).expect(0);
}

#[test]
fn keys_are_explained_and_the_schema_completions_and_manual_pages_come_out() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let key = run(folder, &["explain", "dataset.split.key"])
        .expect(0)
        .stdout;
    assert!(key.starts_with("dataset.split.key: list of text"), "{key}");
    let lower = run(folder, &["explain", "dataset.step.lower"])
        .expect(0)
        .stdout;
    let shown = lower.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        shown.contains("With `type = \"winsorize\"`: Lower percentile")
            && shown.contains("With `type = \"robust\"`: Lower end"),
        "{lower}"
    );
    let wrong = run(folder, &["explain", "train.epoch"]).expect(2).stderr;
    assert!(wrong.contains("`train.epochs`"), "{wrong}");
    let schema: Value = serde_json::from_str(&run(folder, &["schema"]).expect(0).stdout).unwrap();
    assert!(schema["properties"]["dataset"].is_object());
    let script = run(folder, &["completions", "bash"]).expect(0).stdout;
    assert!(script.contains("_feedline()"), "{script}");
    run(folder, &["man", "man"]).expect(0);
    let pages = files(&folder.join("man"));
    let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"feedline-init.1"), "{names:?}");
}
