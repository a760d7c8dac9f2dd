//! Texts continued by the language model of a run.

use std::{fmt::Write as _, fs, io::Write as _, path::Path, process::Stdio};

use serde_json::{Value, json};

use crate::support::{Finished, feedline, finish, pipeline, run};

const HEAD: &str = r#"
[pipeline]
name = "notes"
root = "out"

[[source]]
name = "notes"
type = "files"
url = "landed/*.ndjson"

[dataset]
content = "note"
split = { by = "column", column = "part" }
"#;

/// Tokens, by a model with the parts of Llama.
const TOKENS: &str = r#"
kind = "tokens"
text = { redact = ["email"] }
tokens = { vocabulary = 300, window = 32 }

[train]
model = { type = "transformer", layers = 2, width = 32, heads = 4, kv_heads = 2, positions = "rotary", norm = "rms", activation = "swiglu", bias = false }
batch_size = 16
epochs = 30
learning_rate = 0.01
"#;

/// Characters, by a model that is given the whole text each time.
const CHARACTERS: &str = r#"
kind = "characters"

[train]
model = { type = "lstm", context = 24, width = 48 }
batch_size = 16
epochs = 12
learning_rate = 0.01
"#;

/// Notes that are all of one form, so that a small model learns to write them.
fn write_notes(folder: &Path) {
    let mut lines = String::new();
    for i in 0..200 {
        let name = ["anna", "boris", "carla"][i % 3];
        let note = format!("the cat of {name} has {} mice and a dog", i % 7);
        let part = ["train", "train", "train", "validation", "test"][i % 5];
        writeln!(lines, "{}", json!({ "id": i, "note": note, "part": part })).unwrap();
    }
    fs::create_dir_all(folder.join("landed")).unwrap();
    fs::write(folder.join("landed/a.ndjson"), lines).unwrap();
}

fn generate(folder: &Path, file: &str, more: &[&str]) -> Finished {
    run(folder, &[&["generate", file][..], more].concat())
}

fn warnings(report: &Value) -> Vec<&str> {
    let warnings = report["warnings"].as_array().into_iter().flatten();
    warnings
        .map(|warning| warning["code"].as_str().unwrap())
        .collect()
}

#[test]
fn a_trained_model_continues_a_text_as_its_training_texts_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_notes(folder);
    let file = pipeline(folder, &format!("{HEAD}{TOKENS}"));
    run(folder, &["run", file]).expect(0);
    let greedy = ["--prompt", "the cat of anna", "--temperature", "0"];
    let done = generate(folder, file, &greedy).expect(0);
    let text = done.stdout.strip_suffix('\n').unwrap();
    let rest = text.strip_prefix("the cat of anna has ").unwrap();
    assert!(
        rest.ends_with(" mice and a dog") && rest.len() == 16,
        "{text}"
    );
    assert!(done.stderr.contains("the model ended the text"), "{done:?}");

    // The report has the same, and is all of standard output.
    let more = [&greedy[..], &["--json"]].concat();
    let done = generate(folder, file, &more).expect(0);
    let report = done.json();
    assert_eq!(done.stdout.lines().count(), 1);
    assert_eq!(report["texts"][0]["end"], "end_of_text");
    assert_eq!(
        format!(
            "the cat of anna{}",
            report["texts"][0]["text"].as_str().unwrap()
        ),
        text
    );
    assert_eq!(warnings(&report), [""; 0]);

    // Each of several texts is drawn by itself, and the seed decides.
    let drawn = |seed: &str, texts: &str| {
        let options = [
            "--prompt",
            "the ",
            "--seed",
            seed,
            "--texts",
            texts,
            "--tokens",
            "12",
            "--temperature",
            "1.5",
            "--top-k",
            "50",
            "--json",
        ];
        let report = generate(folder, file, &options).expect(0).json();
        let texts = report["texts"].as_array().unwrap().iter();
        let texts = texts.map(|text| text["text"].as_str().unwrap().to_owned());
        texts.collect::<Vec<_>>()
    };
    let three = drawn("1", "3");
    assert_eq!(three.len(), 3);
    assert_eq!(three[..1], drawn("1", "1"));
    assert_ne!(three[0], three[1]);
    assert_ne!(three, drawn("2", "3"));

    // What the model is not given as it was written is said.
    let options = [
        "--prompt",
        "write to anna@example.org",
        "--tokens",
        "40",
        "--json",
    ];
    let report = generate(folder, file, &options).expect(0).json();
    assert!(
        !report["prompt"].as_str().unwrap().contains("anna@"),
        "{report}"
    );
    assert!(warnings(&report).contains(&"prompt_prepared"), "{report}");
    let long = "the cat of anna has 3 mice and a dog ".repeat(20);
    let options = ["--prompt", &long, "--tokens", "3", "--json"];
    let report = generate(folder, file, &options).expect(0).json();
    assert!(warnings(&report).contains(&"prompt_cut"), "{report}");
}

#[test]
fn a_text_grows_beyond_what_the_model_reads_and_a_pipe_is_a_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_notes(folder);
    let file = pipeline(folder, &format!("{HEAD}{CHARACTERS}"));
    run(folder, &["run", file]).expect(0);
    let mut command = feedline(folder);
    let options = ["--prompt", "-", "--tokens", "60", "--json"];
    command.args(["generate", file]).args(options);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let prompt = "the cat of Zoë";
    child
        .stdin
        .take()
        .unwrap()
        .write_all(prompt.as_bytes())
        .unwrap();
    let report = finish(child.wait_with_output().unwrap()).expect(0).json();
    assert_eq!(report["prompt"], prompt);
    assert_eq!(report["prompt_tokens"], 14);
    // Characters have no end of a text. The context is 24: the text is 74 long.
    assert_eq!(report["texts"][0]["tokens"], 60);
    assert_eq!(
        report["texts"][0]["text"].as_str().unwrap().chars().count(),
        60
    );
    assert_eq!(report["texts"][0]["end"], "length");
    assert_eq!(warnings(&report), ["prompt_unknown", "context_exceeded"]);
}

#[test]
fn what_cannot_be_continued_is_one_error() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_notes(folder);
    let file = pipeline(folder, &format!("{HEAD}{TOKENS}"));
    let refused = |more: &[&str], code, word: &str| {
        let done = generate(folder, file, more).expect(code);
        assert!(done.stderr.contains(word), "{done:?}");
        assert_eq!(done.stderr.matches("error:").count(), 1, "{done:?}");
    };
    run(folder, &["ingest", file]).expect(0);
    run(folder, &["shards", "build", file]).expect(0);
    refused(&["--prompt", "the"], 1, "feedline train");
    let short = ["--set", "train.epochs=1"];
    run(folder, &[&["train", file][..], &short].concat()).expect(0);
    let with = |more: &[&'static str]| [&short[..], more].concat();
    refused(&with(&["--prompt", ""]), 2, "`--prompt`");
    refused(
        &with(&["--prompt", "a", "--temperature", "-1"]),
        2,
        "`--temperature`",
    );
    refused(&with(&["--prompt", "a", "--top-p", "0"]), 2, "`--top-p`");
    let greedy =
        |more: &[&'static str]| with(&[&["--prompt", "a", "--temperature", "0"], more].concat());
    refused(
        &greedy(&["--texts", "3"]),
        2,
        "all texts are equal at temperature 0",
    );
    refused(&greedy(&["--top-k", "3"]), 2, "`--top-k`: it has no effect");
    refused(
        &greedy(&["--top-p", "0.5"]),
        2,
        "`--top-p`: it has no effect",
    );
    refused(&with(&["--prompt", "a", "--run", "nothing"]), 2, "nothing");
    let rows = HEAD.replace("content = \"note\"\n", "target = \"id\"\n");
    fs::write(folder.join("rows.toml"), format!("{rows}\n[train]\n")).unwrap();
    let done = run(folder, &["generate", "rows.toml", "--prompt", "a"]).expect(2);
    assert!(done.stderr.contains("dataset.kind"), "{done:?}");
}

#[test]
fn a_text_of_a_dataset_of_other_settings_is_said_to_be_that() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_notes(folder);
    let short = TOKENS.replace("epochs = 30", "epochs = 1");
    let file = pipeline(folder, &format!("{HEAD}{short}"));
    run(folder, &["run", file]).expect(0);
    let prompt = ["--prompt", "the cat", "--tokens", "2"];
    let report = |more: &[&str]| {
        let options = [&prompt[..], more, &["--json"]].concat();
        generate(folder, file, &options).expect(0).json()
    };
    let same = report(&[]);
    assert_eq!(warnings(&same), [""; 0]);
    assert_eq!(same["run"]["relation"], "same");
    let changed = ["--set", "dataset.tokens.vocabulary=290"];
    let other = report(&changed);
    assert_eq!(warnings(&other), ["dataset_settings_changed"]);
    assert!(other["run"]["relation"].is_null(), "{other}");
    let shown = generate(folder, file, &[&prompt[..], &changed].concat());
    let shown = shown.expect(0).stderr;
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let part = "and the existing dataset, which was built with other settings";
    assert!(shown.contains(part), "{shown}");
}

#[test]
fn weights_of_another_tokenizer_are_refused_and_those_of_the_same_one_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_notes(folder);
    let short = TOKENS.replace("epochs = 30", "epochs = 1");
    let file = pipeline(folder, &format!("{HEAD}{short}"));
    let build = |folder: &Path| {
        for command in [&["ingest", file][..], &["shards", "build", file]] {
            run(folder, command).expect(0);
        }
    };
    build(folder);
    let trained = run(folder, &["train", file, "--json"]).expect(0).json();
    let export = ["weights", "export", file, "--to", "base.safetensors"];
    run(folder, &export).expect(0);
    let checkpoint = trained["checkpoint"].as_str().unwrap();
    // Texts of the same form with other words.
    let other = folder.join("other");
    fs::create_dir_all(other.join("landed")).unwrap();
    let notes = fs::read_to_string(folder.join("landed/a.ndjson")).unwrap();
    let notes = notes.replace("cat", "cow").replace("mice", "mugs");
    fs::write(other.join("landed/a.ndjson"), notes).unwrap();
    let export = folder.join("base.safetensors");
    let export = export.to_str().unwrap();
    pipeline(&other, &format!("{HEAD}{short}"));
    build(&other);
    for from in [export, checkpoint] {
        let init = format!("train.init={{ from = {from:?} }}");
        let begin = ["train", file, "--set", &init];
        let refused = run(&other, &begin).expect(2).stderr;
        let check = ["check", file, "--set", &init];
        let checked = run(&other, &check).expect(2).stdout;
        assert!(checked.contains("are for other token ids"), "{checked}");
        let checked = run(folder, &check).expect(0).stdout;
        assert!(checked.contains("the weights fit the model"), "{checked}");
        for part in [
            "are for other token ids",
            "`dataset.tokens.tokenizer`",
            "\"tokens.*\"",
        ] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        // The tokenizer is the same there.
        let same = run(folder, &[&begin[..], &["--json"]].concat()).expect(0);
        let same = same.json();
        assert!(!warnings(&same).contains(&"unnamed_text_ids"), "{same}");
    }
}
