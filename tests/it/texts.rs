//! New texts to losses and perplexities, by the vocabulary and the model of a run.

use std::{fmt::Write as _, fs, io::Write as _, path::Path, process::Stdio};

use serde_json::{Value, json};

use crate::support::{Finished, Random, feedline, finish, pipeline, run};

const PIPELINE: &str = r#"
[pipeline]
name = "notes"
root = "out"

[[source]]
name = "notes"
type = "files"
url = "landed/*.ndjson"

[dataset]
kind = "tokens"
content = "note"
text = { redact = ["email"] }
split = { by = "column", column = "part" }
tokens = { vocabulary = 300, window = 64 }

[train]
model = { type = "transformer", layers = 1, width = 32, heads = 2 }
batch_size = 16
epochs = 20
learning_rate = 0.01
"#;

/// Notes that leave little to guess; of five, one is for validation and one for the test.
fn write_notes(folder: &Path) {
    let mut random = Random(5);
    let mut lines = String::new();
    for i in 0..200 {
        let note = note(i, &mut random);
        let part = ["train", "train", "train", "validation", "test"][i % 5];
        let line = json!({ "id": i, "note": note, "part": part });
        writeln!(lines, "{line}").unwrap();
    }
    fs::create_dir_all(folder.join("landed")).unwrap();
    fs::write(folder.join("landed/a.ndjson"), lines).unwrap();
}

fn note(number: usize, random: &mut Random) -> String {
    let names = ["anna", "boris", "carla"];
    let name = names[usize::try_from(random.below(3)).unwrap()];
    format!("the cat of {name} has {number} mice and {name}@example.org")
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn piped(folder: &Path, input: &[u8], more: &[&str]) -> Finished {
    let mut command = feedline(folder);
    command.args(["predict", "pipeline.toml"]).args(more);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that refuses its options reads no input.
    let _written = child.stdin.take().unwrap().write_all(input);
    finish(child.wait_with_output().unwrap())
}

#[test]
fn texts_have_the_loss_that_eval_measures_and_bad_rows_keep_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_notes(folder);
    let file = pipeline(folder, PIPELINE);
    run(folder, &["run", file]).expect(0);
    let predict = [
        "predict",
        file,
        "landed/a.ndjson",
        "--passthrough",
        "id",
        "--json",
    ];
    let scored = run(folder, &predict).expect(0);
    let scores = lines(&scored.stdout);
    assert_eq!(scores.len(), 200);
    let (tokens, loss) = test_loss(&scores);
    let eval = run(folder, &["eval", file, "--split", "test", "--json"]).expect(0);
    let eval = eval.json();
    let counted = eval["tokens"].as_f64().unwrap();
    assert_eq!(counted.to_bits(), tokens.to_bits(), "{eval}");
    let measured = eval["metrics"]["cross_entropy"].as_f64().unwrap();
    assert!(
        (loss / tokens / measured - 1.0).abs() < 1e-5,
        "{loss} {tokens} {eval}"
    );
    check_lines_alone(folder, &scores[0]);
    check_odd_texts(folder, measured);
    run(
        folder,
        &["predict", file, "landed/a.ndjson", "--to", "a.parquet"],
    )
    .expect(0);
    assert_eq!(&fs::read(folder.join("a.parquet")).unwrap()[..4], b"PAR1");

    let refused = run(
        folder,
        &["predict", file, "landed/a.ndjson", "--transform-only"],
    );
    assert!(refused.expect(1).stderr.contains("`--transform-only`"));
    let lacking = piped(folder, b"{\"text\":\"a\"}\n", &[]);
    assert!(lacking.expect(1).stderr.contains("`note`"));
}

/// Checks the scores, and returns the predicted tokens of the test split and the sum of their losses.
fn test_loss(scores: &[Value]) -> (f64, f64) {
    let (mut tokens, mut loss) = (0.0, 0.0);
    for (i, score) in scores.iter().enumerate() {
        let n = u64::try_from(i).unwrap();
        assert_eq!(
            (&score["row"], &score["unknown"]),
            (&n.into(), &0.into()),
            "{score}"
        );
        assert_eq!(score["id"], i.to_string());
        let mean = score["loss"].as_f64().unwrap();
        let perplexity = score["perplexity"].as_f64().unwrap();
        assert!((perplexity / mean.exp() - 1.0).abs() < 1e-12);
        if i % 5 == 4 {
            let predicted = score["tokens"].as_f64().unwrap() - 1.0;
            tokens += predicted;
            loss += mean * predicted;
        }
    }
    (tokens, loss)
}

/// A line alone, and another address in it: it is redacted as those of the dataset are.
fn check_lines_alone(folder: &Path, score: &Value) {
    let landed = fs::read_to_string(folder.join("landed/a.ndjson")).unwrap();
    let first = landed.lines().next().unwrap();
    let other = first.replace("@example.org", "@elsewhere.net");
    assert_ne!(first, other);
    for line in [first, &other] {
        let alone = piped(folder, line.as_bytes(), &["-", "--batch-rows", "1"]).expect(0);
        let alone = lines(&alone.stdout);
        assert_eq!(alone[0]["loss"].to_string(), score["loss"].to_string());
    }
}

/// A nonsense text is unlike the others, which have the loss `measured`; what is no text has the reason.
fn check_odd_texts(folder: &Path, measured: f64) {
    let odd = b"{\"note\":\"zq kxj qqv wzz\"}\nno json\n{\"note\":null}\n{\"note\":[1]}\n{\"note\":\"\"}\n";
    let done = piped(folder, odd, &["--to", "odd.csv", "--json"]).expect(0);
    let report = done.json();
    assert_eq!(
        (&report["rows"], &report["rejected"]),
        (&5.into(), &4.into()),
        "{report}"
    );
    assert_eq!(report["rejected_by_reason"]["no_text"], 2, "{report}");
    let csv = fs::read_to_string(folder.join("odd.csv")).unwrap();
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows[0], "row,tokens,unknown,loss,perplexity,error,detail");
    let nonsense: f64 = rows[1].split(',').nth(3).unwrap().parse().unwrap();
    assert!(nonsense > measured + 0.5, "{nonsense} {measured}");
    assert!(rows[2].starts_with("1,,,,,malformed_line,"), "{}", rows[2]);
    assert_eq!(
        rows[3],
        "2,,,,,no_text,row 2: column `note` is empty or missing"
    );
    assert!(rows[4].starts_with("3,,,,,type_conflict,"), "{}", rows[4]);
}

#[test]
fn a_run_scores_by_its_own_tokenizer_after_the_dataset_has_learnt_another() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_notes(folder);
    let file = pipeline(folder, PIPELINE);
    let trained = run(folder, &["run", file, "--json"]).expect(0).json();
    let checkpoint = trained["train"]["checkpoint"].as_str().unwrap();
    let name = checkpoint.rsplit('/').nth(1).unwrap();
    let scores = |more: &[&str]| -> Vec<Value> {
        let predict = [&["predict", file, "landed/a.ndjson"][..], more].concat();
        let scored = run(folder, &predict).expect(0);
        lines(&scored.stdout)
    };
    let before = scores(&[]);
    let other: String = (0..300)
        .map(|i| {
            let note = format!("quarterly figures of branch {i} were approved by the board");
            format!("{}\n", json!({ "id": i, "note": note, "part": "train" }))
        })
        .collect();
    fs::write(folder.join("landed/b.ndjson"), other).unwrap();
    run(folder, &["ingest", file]).expect(0);
    let tokenizers = || -> Vec<String> {
        let names = fs::read_dir(folder.join("out/dataset")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| name.starts_with("tokenizer-"))
            .collect()
    };
    let own = tokenizers();
    run(folder, &["shards", "build", file, "--refit"]).expect(0);
    // As if somebody had tidied the folder up.
    for name in own {
        fs::remove_file(folder.join("out/dataset").join(name)).unwrap();
    }
    assert_eq!(tokenizers().len(), 1, "another was learnt");
    let after = scores(&["--run", name]);
    assert_eq!(after.len(), before.len());
    for (after, before) in after.iter().zip(&before) {
        assert_eq!(after.to_string(), before.to_string());
    }

    // Texts that are prepared in another way are other texts.
    let set = ["--set", "dataset.text.redact=[]"];
    run(folder, &[&["shards", "build", file][..], &set].concat()).expect(0);
    let refused = [
        &["predict", file, "landed/a.ndjson", "--run", name][..],
        &set,
    ]
    .concat();
    let refused = run(folder, &refused).expect(2).stderr;
    assert!(refused.contains("`dataset.text`"), "{refused}");
}

#[test]
fn text_files_are_scored_by_characters_with_their_paths() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text: String = (0..400).map(|i| format!("{i} is a number. ")).collect();
    fs::write(folder.join("numbers.txt"), text).unwrap();
    let file = pipeline(
        folder,
        "[pipeline]\nname = \"numbers\"\nroot = \"out\"\n\
         [[source]]\nname = \"numbers\"\ntype = \"files\"\nformat = \"text\"\nurl = \"numbers.txt\"\n\
         [dataset]\nkind = \"characters\"\n\
         split = { by = \"range\", train = 0.8, validation = 0.1, test = 0.1 }\n\
         [train]\nmodel = { type = \"transformer\", layers = 1, width = 32, heads = 2, context = 32 }\n\
         batch_size = 16\nepochs = 3\nlearning_rate = 0.01\n",
    );
    run(folder, &["run", file]).expect(0);
    fs::create_dir_all(folder.join("new/below")).unwrap();
    let texts: [(&str, &[u8]); 6] = [
        ("a.txt", b"17 is a number. 18 is a number. 19 is a number."),
        ("b.txt", b"is 17 Zahl?"),
        ("below/c.txt", b"x"),
        ("below/d.txt", b"\xff\xff no text"),
        ("below/e.txt", b""),
        ("f.zip", b"PK"),
    ];
    for (name, bytes) in texts {
        fs::write(folder.join("new").join(name), bytes).unwrap();
    }
    let done = run(
        folder,
        &["predict", file, "new", "--to", "new.ndjson", "--json"],
    )
    .expect(0);
    assert!(done.stderr.contains("files are skipped"), "{}", done.stderr);
    let report = done.json();
    let expected = json!({ "text_too_short": 1, "invalid_utf8": 1, "no_text": 1 });
    assert_eq!(report["rejected_by_reason"], expected, "{report}");
    let scores = lines(&fs::read_to_string(folder.join("new.ndjson")).unwrap());
    let paths: Vec<&str> = scores.iter().map(|s| s["path"].as_str().unwrap()).collect();
    assert_eq!(
        paths,
        [
            "a.txt",
            "b.txt",
            "below/c.txt",
            "below/d.txt",
            "below/e.txt"
        ]
    );
    assert_eq!(
        (&scores[0]["tokens"], &scores[0]["unknown"]),
        (&47.into(), &0.into())
    );
    // `Z`, `h`, `l` and `?` are in no text of the training.
    assert_eq!(scores[1]["unknown"], 4, "{}", scores[1]);
    let loss = |i: usize| scores[i]["loss"].as_f64().unwrap();
    assert!(loss(0) < loss(1), "{scores:?}");
    // One file alone has the same bits.
    let one = run(folder, &["predict", file, "new/a.txt"]).expect(0);
    let one = lines(&one.stdout);
    assert_eq!(one[0]["loss"].to_string(), scores[0]["loss"].to_string());
}
