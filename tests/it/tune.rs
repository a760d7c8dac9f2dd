//! Searches by the binary, killed and not.

use std::{env, fs, time::Duration};

use crate::support::{self, Random, files, kill_when, run, start};

const TRAINING: &str = r#"
[train]
model = { type = "mlp", hidden = [8] }
batch_size = 32
epochs = 8
patience = 0

[tune]
metric = "rmse"
trials = 15

[[tune.parameter]]
key = "train.learning_rate"
low = 1e-4
high = 0.1
scale = "log"

[[tune.parameter]]
key = "train.model.hidden"
values = [[4], [16], [16, 16]]
"#;

/// A folder with a dataset of 600 rows, and the name of the pipeline file in it.
fn prepared() -> (tempfile::TempDir, &'static str) {
    support::prepared(600, |a, b| 2.0 * a - b * a, TRAINING)
}

/// Kills of the story below: few in CI, as many as the environment says elsewhere.
fn kills() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment says how long tests may take"
    )]
    let told = env::var("FEEDLINE_TUNE_KILLS").ok();
    told.and_then(|text| text.parse().ok()).unwrap_or(8)
}

#[test]
fn a_search_killed_at_random_points_ends_with_the_journal_of_an_undisturbed_one() {
    let (folder, file) = prepared();
    let root = folder.path();
    let journal = || {
        let found = files(&root.join("out/tune"));
        found
            .into_iter()
            .find(|(path, _)| path.ends_with("journal.jsonl"))
    };
    let expected = run(root, &["tune", file, "--json"]).expect(0).json();
    let (path, lines) = journal().unwrap();
    fs::remove_dir_all(root.join("out/tune")).unwrap();
    fs::remove_dir_all(root.join("out/train")).unwrap();

    let (mut random, mut made) = (Random(9), 0);
    while made < kills() {
        let delay = Duration::from_micros(random.below(400_000));
        let begun = files(&root.join("out/train")).len();
        let child = start(root, &["tune", file]);
        if kill_when(child, delay, || {
            files(&root.join("out/train")).len() != begun
        }) {
            made += 1;
        } else {
            assert_eq!(
                journal().unwrap(),
                (path.clone(), lines.clone()),
                "after {made} kills"
            );
            fs::remove_dir_all(root.join("out/tune")).unwrap();
            fs::remove_dir_all(root.join("out/train")).unwrap();
        }
    }
    let found = run(root, &["tune", file, "--json"]).expect(0).json();
    assert_eq!(journal().unwrap(), (path, lines), "after {made} kills");
    for key in ["best", "toml"] {
        assert_eq!(found[key], expected[key]);
    }
    assert_eq!(found["train"]["test"], expected["train"]["test"]);
    eprintln!("{made} kills, journals equal byte for byte");
}

#[test]
fn a_search_shows_its_trials_and_wrong_keys_are_named_with_the_nearest() {
    let (folder, file) = prepared();
    let shown = run(folder.path(), &["tune", file, "--set", "tune.trials=3"])
        .expect(0)
        .stdout;
    assert!(
        shown.contains("* best") && shown.contains("[train]\nlearning_rate = "),
        "{shown}"
    );
    // The file has `model` as an inline table, which TOML extends by no key below it.
    let pages = files(&folder.path().join("out/tune"));
    let page = pages.iter().find(|(path, _)| path.ends_with("report.html"));
    let page = String::from_utf8_lossy(&page.unwrap().1);
    for text in [&shown[..], &page[..]] {
        assert!(text.contains("\nmodel = {"), "{text}");
    }
    assert!(
        shown.lines().take(4).all(|l| l.chars().count() <= 100),
        "{shown}"
    );
    for (set, words) in [
        (
            "tune.parameter.0.key=train.lerning_rate",
            "did you mean `learning_rate`",
        ),
        (
            "tune.parameter.0.key=dataset.target",
            "is no key of `train`",
        ),
        ("tune.parameter.1.values=[0.5]", "`train.model.hidden`"),
        ("tune.strateg=\"grid\"", "did you mean `strategy`"),
    ] {
        let wrong = run(folder.path(), &["tune", file, "--set", set]).expect(2);
        assert!(wrong.stderr.contains(words), "{set}: {}", wrong.stderr);
        assert!(wrong.stderr.contains("tune."), "{set}: {}", wrong.stderr);
    }
}
