//! Wrong input gives one clear error that says what, where, why and what to do; nothing is lost, nothing aborts.

use std::{fs, path::Path, process::Command};

use crate::support::{count_files, feedline, files, finish, pipeline, run};

const CSV: &str = "[pipeline]
name = \"p\"
root = \"out\"

[[source]]
name = \"rows\"
type = \"files\"
url = \"rows.csv\"

[dataset]
target = \"y\"

[train]
epochs = 2
";

/// 400 rows: `a` a number, `b` a category, `y` a number, `word` text.
fn rows(folder: &Path) {
    let rows: String = (0..400)
        .map(|i| format!("{i},{},{},w{}\n", ["u", "v"][i % 2], i * 3 % 101, i % 7))
        .collect();
    fs::write(folder.join("rows.csv"), format!("a,b,y,word\n{rows}")).unwrap();
}

/// Runs the pipeline `text` and expects `code` and one error line that contains every one of `parts`.
fn check(text: &str, arguments: &[&str], code: i32, parts: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    rows(folder.path());
    let file = pipeline(folder.path(), text);
    let finished = run(folder.path(), &[&["run", file], arguments].concat()).expect(code);
    assert_eq!(
        finished.stdout, "",
        "a failed command reports nothing as done"
    );
    let error: Vec<&str> = finished
        .stderr
        .lines()
        .filter(|l| l.starts_with("error: "))
        .collect();
    assert_eq!(error.len(), 1, "{}", finished.stderr);
    for part in parts {
        assert!(error[0].contains(part), "`{part}` is not in: {}", error[0]);
    }
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
    eprintln!("{}", error[0]);
}

#[test]
fn a_missing_pipeline_file_is_named() {
    let finished = run(Path::new("."), &["run", "no-such.toml"]).expect(2);
    assert!(
        finished
            .stderr
            .contains("no-such.toml: cannot read the pipeline file"),
        "{}",
        finished.stderr
    );
}

#[test]
fn data_in_place_of_a_pipeline_and_a_pipeline_in_place_of_a_dataset_are_named() {
    let folder = tempfile::tempdir().unwrap();
    rows(folder.path());
    fs::create_dir(folder.path().join("photos")).unwrap();
    let file = pipeline(folder.path(), CSV);
    let refused = |arguments: &[&str], code, parts: &[&str]| {
        let error = run(folder.path(), arguments).expect(code).stderr;
        for part in parts {
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    };
    let data = ["it is a file of data", "`feedline init rows.csv`"];
    refused(&["check", "rows.csv"], 2, &data);
    refused(
        &["run", "photos"],
        2,
        &["it is a folder", "`feedline init photos`"],
    );
    for command in ["verify", "inspect"] {
        let parts = ["is a pipeline file", "out/dataset`"];
        refused(&["shards", command, file], 1, &parts);
    }
    refused(&["status", file], 2, &["there is `feedline ingest status`"]);
    let both = "there is `feedline ingest verify` and `feedline shards verify`";
    refused(&["verify", file], 2, &[both]);
}

#[test]
fn a_training_without_a_dataset_is_refused_before_a_source_is_read() {
    let folder = tempfile::tempdir().unwrap();
    rows(folder.path());
    let without = CSV.replace("[dataset]\ntarget = \"y\"\n", "");
    let file = pipeline(folder.path(), &without);
    let before = files(folder.path());
    let word = "the pipeline has no `[dataset]`";
    let ran = run(folder.path(), &["run", file]).expect(2);
    assert!(ran.stderr.contains(word), "{ran:#?}");
    let checked = run(folder.path(), &["check", file]).expect(2);
    assert!(checked.stdout.contains(word), "{checked:#?}");
    assert_eq!(files(folder.path()), before);
    // A dataset that was built before is enough.
    fs::write(folder.path().join("built.toml"), CSV).unwrap();
    run(folder.path(), &["run", "built.toml"]).expect(0);
    run(folder.path(), &["check", file]).expect(0);
    run(folder.path(), &["run", file]).expect(0);
}

#[test]
fn a_secret_file_that_is_missing_is_named_with_its_folder() {
    let set = [
        "--set",
        "source.0.url=http://127.0.0.1:9/x",
        "--set",
        "source.0.type=rest",
    ];
    let secret = [
        "--set",
        "source.0.auth={ type = 'bearer', secret = { file = 'no/token' } }",
    ];
    let parts = [
        "cannot read the secret file `no/token`",
        "/no/token`); check the path",
    ];
    check(CSV, &[&set[..], &secret].concat(), 2, &parts);
}

#[test]
fn a_missing_data_file_is_named() {
    check(
        CSV,
        &["--set", "source.0.url=nowhere/data.csv"],
        2,
        &["nowhere/data.csv"],
    );
}

#[test]
fn a_missing_parquet_file_and_a_folder_of_them_are_told_as_a_pattern_that_names_none() {
    for (files, parts) in [
        ("*.parquet", &["no file is named as"][..]),
        (
            "absent.parquet",
            &["there is no file `", "absent.parquet`; correct the path"],
        ),
        ("out", &["`out` is a folder; write `out/*.parquet`"]),
    ] {
        let set = format!("dataset.files={files}");
        let parts = [&["`dataset.files`: "], parts].concat();
        check(CSV, &["--set", &set], 2, &parts);
    }
}

#[test]
fn a_scratch_folder_that_cannot_be_used_is_named_with_the_variable_that_names_another() {
    let folder = tempfile::tempdir().unwrap();
    rows(folder.path());
    let file = pipeline(folder.path(), CSV);
    run(folder.path(), &["ingest", file]).expect(0);
    let build = |scratch: &str| {
        let mut command = feedline(folder.path());
        command.args(["shards", "build", file]);
        command.env("TMPDIR", folder.path().join(scratch));
        finish(command.output().unwrap())
    };
    let error = build("rows.csv").expect(1).stderr;
    assert!(
        error.contains("rows.csv/") && error.contains("the variable `TMPDIR`"),
        "{error}"
    );
    build("another").expect(0);
}

#[test]
fn an_unreachable_host_is_named_after_the_retries() {
    let rest = [
        "--set",
        "source.0.type=rest",
        "--set",
        "source.0.url=http://127.0.0.1:9/items",
    ];
    let retry = [
        "--set",
        "source.0.retry.base_ms=1",
        "--set",
        "source.0.retry.max_tries=3",
    ];
    check(
        CSV,
        &[rest, retry].concat(),
        1,
        &["http://127.0.0.1:9/items", "3"],
    );
}

#[test]
fn a_quote_that_is_never_closed_is_an_error_and_not_the_end_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let rows: String = (0..400).map(|i| format!("{i},{}\n", i % 7)).collect();
    let file = pipeline(folder.path(), CSV);
    // In the first column the row becomes ragged, in the last one it has the right number of cells.
    for (whole, open) in [("\n150,", "\n\"150,"), ("\n150,", "\n150,\"")] {
        let rows = rows.replacen(whole, open, 1);
        fs::write(folder.path().join("rows.csv"), format!("a,y\n{rows}")).unwrap();
        let error = run(folder.path(), &["ingest", file]).expect(1).stderr;
        assert!(
            error.contains("line 152") && error.contains("a quote is not closed"),
            "{error}"
        );
    }
    // A last cell that spans lines and is closed is fine.
    fs::write(
        folder.path().join("rows.csv"),
        "a,y\n1,two\n3,\"four\nfive\"\n",
    )
    .unwrap();
    run(folder.path(), &["ingest", file]).expect(0);
}

#[test]
fn malformed_toml_is_located() {
    check(
        "[pipeline\nname = 1",
        &[],
        2,
        &["pipeline.toml:1:", "malformed TOML"],
    );
}

#[test]
fn an_unknown_key_is_located_and_the_nearest_named() {
    let text = CSV.replace("target =", "targte =");
    check(
        &text,
        &[],
        2,
        &[
            "pipeline.toml:11:1: `dataset.targte`",
            "did you mean `target`?",
        ],
    );
}

#[test]
fn an_absent_column_is_named_with_the_nearest() {
    check(
        CSV,
        &["--set", "dataset.target=yy"],
        2,
        &["`dataset.target`", "`yy`", "`y`"],
    );
    check(
        CSV,
        &["--set", "dataset.drop=[\"wrod\"]"],
        2,
        &["`dataset.drop`", "`wrod`", "`word`"],
    );
}

#[test]
fn a_target_that_is_not_numeric_is_named_with_a_sample() {
    check(
        CSV,
        &["--set", "dataset.target=word"],
        2,
        &["`dataset.target`", "word", "w", "classification"],
    );
}

#[test]
fn an_empty_split_is_named_with_its_counts() {
    let one_group = ["--set", "dataset.split.key=[\"one\"]"];
    let folder = tempfile::tempdir().unwrap();
    let rows: String = (0..50).map(|i| format!("{i},{},same\n", i % 5)).collect();
    fs::write(folder.path().join("rows.csv"), format!("a,y,one\n{rows}")).unwrap();
    let file = pipeline(folder.path(), CSV);
    let error = run(folder.path(), &[&["run", file], &one_group[..]].concat())
        .expect(1)
        .stderr;
    assert!(error.contains("empty") && error.contains("50"), "{error}");
    assert_eq!(
        count_files(&folder.path().join("out/dataset")),
        0,
        "nothing was published"
    );
}

#[test]
fn shares_that_do_not_add_up_are_refused() {
    check(
        CSV,
        &["--set", "dataset.split.train=0.9"],
        2,
        &["`dataset.split", "1"],
    );
}

#[test]
fn a_learning_rate_out_of_range_is_refused() {
    check(
        CSV,
        &["--set", "train.learning_rate=-1"],
        2,
        &["`train.learning_rate`", "-1"],
    );
}

#[test]
fn a_secret_that_is_not_set_is_named_and_never_shown() {
    let text = CSV.replace(
        "type = \"files\"",
        "type = \"rest\"\nheaders = { Authorization = { env = \"FEEDLINE_TEST_NOT_SET\" } }",
    );
    check(
        &text,
        &["--set", "source.0.url=http://127.0.0.1:9/"],
        2,
        &["FEEDLINE_TEST_NOT_SET"],
    );
}

#[test]
fn a_flipped_bit_in_a_shard_is_found_by_verify_never_trained_on_and_put_back_as_the_error_says() {
    let folder = tempfile::tempdir().unwrap();
    rows(folder.path());
    let file = pipeline(folder.path(), CSV);
    run(folder.path(), &["ingest", file]).expect(0);
    run(folder.path(), &["shards", "build", file]).expect(0);
    let dataset = folder.path().join("out/dataset");
    let (shard, mut bytes) = files(&dataset)
        .into_iter()
        .find(|(path, _)| path.starts_with("shards/train/"))
        .unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(dataset.join(&shard), bytes).unwrap();
    let verify = run(
        folder.path(),
        &["shards", "verify", "out/dataset", "--json"],
    )
    .expect(1)
    .json();
    assert!(
        verify["problems"][0].as_str().unwrap().contains(&shard),
        "{verify}"
    );
    let train = run(folder.path(), &["train", file]).expect(1);
    assert!(train.stderr.contains(&shard), "{}", train.stderr);
    assert!(
        !folder.path().join("out/train").exists()
            || files(&folder.path().join("out/train"))
                .iter()
                .all(|(p, _)| !p.ends_with(".safetensors"))
    );
    assert!(
        train
            .stderr
            .contains("with `feedline shards build PIPELINE.toml --refit`"),
        "{}",
        train.stderr
    );
    run(folder.path(), &["shards", "build", file, "--refit"]).expect(0);
    run(folder.path(), &["train", file]).expect(0);
}

#[test]
fn a_manifest_that_cannot_be_parsed_or_is_removed_is_put_back_as_the_errors_say() {
    let folder = tempfile::tempdir().unwrap();
    rows(folder.path());
    let file = pipeline(folder.path(), CSV);
    run(folder.path(), &["ingest", file]).expect(0);
    run(folder.path(), &["shards", "build", file]).expect(0);
    let dataset = folder.path().join("out/dataset");
    let name = fs::read_to_string(dataset.join("CURRENT")).unwrap();
    let manifest = dataset.join(name.trim());
    let refused = |command: &[&str]| {
        let error = run(folder.path(), command).expect(1).stderr;
        assert!(
            error.contains("restore it") && error.contains("--refit`"),
            "{error}"
        );
    };
    let put_back = || run(folder.path(), &["shards", "build", file, "--refit"]).expect(0);
    fs::write(&manifest, "{").unwrap();
    refused(&["train", file]);
    refused(&["shards", "build", file]);
    put_back();
    let name = fs::read_to_string(dataset.join("CURRENT")).unwrap();
    fs::remove_file(dataset.join(name.trim())).unwrap();
    refused(&["shards", "build", file]);
    put_back();
    run(folder.path(), &["train", file]).expect(0);
}

#[test]
fn a_flipped_bit_in_a_landed_file_is_refused_by_the_build() {
    let folder = tempfile::tempdir().unwrap();
    rows(folder.path());
    let file = pipeline(folder.path(), CSV);
    run(folder.path(), &["ingest", file]).expect(0);
    let zone = folder.path().join("out/landing/rows");
    let (data, mut bytes) = files(&zone)
        .into_iter()
        .find(|(path, _)| path.starts_with("data/"))
        .unwrap();
    bytes[100] ^= 16;
    fs::write(zone.join(&data), bytes).unwrap();
    let build = run(folder.path(), &["shards", "build", file]).expect(1);
    assert!(build.stderr.contains(&data), "{}", build.stderr);
}

#[test]
fn a_full_disk_is_named_and_the_run_goes_on_when_there_is_space() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mount = |options: &str| {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(&disk)
            .output();
        status.is_ok_and(|o| o.status.success())
    };
    if !mount("size=192k") {
        eprintln!("skipped: mounting a small disk needs root");
        return;
    }
    let _unmount = Unmount(&disk);
    let text = "[pipeline]\nname = \"p\"\nroot = \"disk\"\n[[source]]\nname = \"market\"\ntype = \"rest\"\n\
        url = \"demo://market?seed=3&rows=4000&page_size=200\"\nrecords = \"data.items\"\n\
        pagination = { type = \"cursor\", cursor_path = \"paging.next_cursor\" }\nbatch = { rows = 400 }\n\
        retry = { base_ms = 1, cap_ms = 5 }\n";
    let file = pipeline(folder.path(), text);
    let error = run(folder.path(), &["ingest", file]).expect(1).stderr;
    assert!(error.contains("no space left to write"), "{error}");
    let committed = count_files(&disk.join("landing/market/log"));
    assert!(committed > 0, "the first batches fit");
    assert!(mount("remount,size=64m"));
    let resumed = run(folder.path(), &["ingest", file, "--json"])
        .expect(0)
        .json();
    let fresh = run(
        folder.path(),
        &["ingest", file, "--json", "--set", "pipeline.root=out"],
    )
    .expect(0)
    .json();
    for key in ["rows", "duplicates", "rejected", "batches"] {
        assert_eq!(resumed[key], fresh[key], "{key}");
    }
}

struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        assert!(
            Command::new("umount")
                .arg(self.0)
                .status()
                .unwrap()
                .success()
        );
    }
}

#[test]
fn how_texts_share_rows_is_no_setting_of_a_table() {
    check(
        &CSV.replace("[train]\n", "[train]\nloader = { pack = \"fill\" }\n"),
        &[],
        2,
        &["`train.loader.pack`", "reads no tokens", "remove it"],
    );
}
