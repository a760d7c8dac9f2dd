//! A trained model edits the texts of its dataset, and the result is a dataset like any other.

use std::{env, fs, path::Path, time::Duration};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Finished, Random, count_files, files, kill_when, pipeline, run, start};

const PIPELINE: &str = r#"
[pipeline]
name = "texts"
root = "out"

[[source]]
name = "texts"
type = "files"
format = "text"
url = "texts/*.txt"

[dataset]
kind = "tokens"
tokens = { vocabulary = 290, window = 24 }
shards = { block_bytes = "4 KiB", shard_bytes = "64 KiB" }

[train]
model = { type = "transformer", layers = 1, width = 32, heads = 2 }
batch_size = 16
epochs = 6
learning_rate = 0.01
"#;

/// 150 texts of sentences that leave little to guess, and a word now and then that is.
fn texts(folder: &Path) {
    fs::create_dir(folder.join("texts")).unwrap();
    let names = ["anna", "boris", "carla"];
    let mut random = Random(7);
    for i in 0..150 {
        let sentence = |_| {
            let name = names[usize::try_from(random.below(3)).unwrap()];
            let number = random.below(1000);
            format!("the cat of {name} has {number} mice and sleeps all day. ")
        };
        let text: String = (0..10).map(sentence).collect();
        fs::write(folder.join(format!("texts/{i}.txt")), text).unwrap();
    }
}

/// A folder with a dataset, a model trained on it, and the pipeline's file.
fn trained() -> (TempDir, &'static str) {
    let folder = tempfile::tempdir().unwrap();
    texts(folder.path());
    let file = pipeline(folder.path(), PIPELINE);
    run(folder.path(), &["run", file]).expect(0);
    (folder, file)
}

fn edit(folder: &Path, arguments: &[&str]) -> Finished {
    run(
        folder,
        &[&["edit", "pipeline.toml"][..], arguments].concat(),
    )
}

/// The files of a dataset but for the manifest, which says what was edited.
fn data(dataset: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = files(dataset);
    found.retain(|(path, _)| path.starts_with("shards/") || path.starts_with("transform"));
    found
}

fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap()
}

#[test]
fn texts_are_edited_by_a_model_and_trained_on_again() {
    let (folder, file) = trained();
    let folder = folder.path();
    let edited = ["--to", "edited", "--threshold", "0.9"];
    let report = edit(folder, &[&edited[..], &["--json"]].concat())
        .expect(0)
        .json();
    let [tokens, over, redrawn, changed] = ["tokens", "over", "redrawn", "changed"]
        .map(|name| number(&report, &format!("/counts/{name}")));
    // The end of a text is certain as well, and stays.
    assert!(over > tokens / 3.0, "{report}");
    assert!(redrawn < over && redrawn > 0.9 * over, "{report}");
    assert!(changed > 0.0 && changed < redrawn / 5.0, "{report}");
    let verified = run(folder, &["shards", "verify", "edited", "--json"]).expect(0);
    assert_eq!(verified.json()["fingerprint"], report["fingerprint"]);
    let shown = run(folder, &["shards", "inspect", "edited"]).expect(0);
    assert!(shown.stdout.contains("edited"), "{}", shown.stdout);

    // The same edit is found again, and reported to people.
    let again = edit(folder, &edited).expect(0).stdout;
    for part in ["kept as it was", "certain", "changed", "before", "after"] {
        assert!(again.contains(part), "{again}");
    }
    // Trained on as any other.
    let trained = run(
        folder,
        &["train", file, "--set", "train.dataset=edited", "--json"],
    );
    let trained = trained.expect(0).json();
    let perplexity = number(&trained, "/test/perplexity");
    assert!(perplexity < 20.0, "{trained}");

    // Above 1 nothing is edited: the texts are measured, and the bytes are those of the source.
    let measure = ["--to", "same", "--threshold", "1.1", "--json"];
    let report = edit(folder, &measure).expect(0).json();
    assert_eq!(report["counts"]["changed"], 0);
    assert_eq!(report["before"], report["after"]);
    assert_eq!(
        data(&folder.join("same")),
        data(&folder.join("out/dataset"))
    );

    // The most probable token everywhere: the text collapses, and that is said.
    let collapse = [
        "--to",
        "collapsed",
        "--threshold",
        "0.000001",
        "--temperature",
        "0.000001",
        "--json",
    ];
    let report = edit(folder, &collapse).expect(0).json();
    let warnings = report["warnings"].as_array().unwrap();
    assert!(warnings.len() >= 2, "{report}");
    assert!(
        warnings.iter().all(|w| w["code"] == "narrower_text"),
        "{report}"
    );
}

#[test]
fn what_cannot_be_edited_is_told_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    texts(folder.path());
    let file = pipeline(folder.path(), PIPELINE);
    let refused = |arguments: &[&str], code: i32, parts: &[&str]| {
        let finished = edit(folder.path(), arguments).expect(code);
        for part in parts {
            assert!(finished.stderr.contains(part), "{finished:#?}");
        }
        assert_eq!(count_files(&folder.path().join("edited")), 0);
    };
    refused(&["--to", "edited"], 1, &["no finished build"]);
    run(folder.path(), &["ingest", file]).expect(0);
    run(folder.path(), &["shards", "build", file]).expect(0);
    refused(&["--to", "edited"], 1, &["train that run first"]);
    refused(&["--to", "out/dataset"], 1, &["name another folder"]);
    let threshold = ["--to", "edited", "--threshold", "0"];
    refused(&threshold, 2, &["--threshold", "above 0"]);
    refused(&[], 2, &["--to"]);
}

/// A process that dies leaves no dataset, whenever it dies, and the next one writes what an undisturbed one writes.
#[test]
fn an_edit_that_is_killed_leaves_nothing_that_looks_whole() {
    let asked = env::var_os("FEEDLINE_EDIT_KILLS");
    let kills: u64 = asked.map_or(5, |text| text.to_str().unwrap().parse().unwrap());
    let (folder, _) = trained();
    let folder = folder.path();
    edit(folder, &["--to", "expected", "--threshold", "0.9"]).expect(0);
    let expected = files(&folder.join("expected"));
    let (edited, written) = (folder.join("edited"), folder.join("edited/shards/train"));
    let command = [
        "edit",
        "pipeline.toml",
        "--to",
        "edited",
        "--threshold",
        "0.9",
    ];
    let whole = count_files(&folder.join("expected/shards/train"));
    let mut random = Random(3);
    let mut killed = 0;
    while killed < kills {
        let (target, delay) = (random.below(whole + 1), random.below(20_000));
        let child = start(folder, &command);
        let delay = Duration::from_micros(delay);
        killed += u64::from(kill_when(child, delay, || count_files(&written) >= target));
        if edited.join("CURRENT").exists() {
            // It had come to its end: start again.
            assert_eq!(files(&edited), expected);
        }
        if random.below(2) == 0 && edited.exists() {
            fs::remove_dir_all(&edited).unwrap();
        }
    }
    edit(folder, &["--to", "edited", "--threshold", "0.9"]).expect(0);
    assert_eq!(files(&edited), expected);
    eprintln!("{killed} edits were killed");
}
