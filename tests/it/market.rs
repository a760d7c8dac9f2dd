//! Examples on the embedded API, with fewer rows.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::support::{Finished, run};

const SMALL: &str = "source.0.url=demo://market?seed=7&rows=8000&page_size=400&rude=false";

fn example(name: &str) -> PathBuf {
    let subject = match name {
        "series.toml" => "time-series",
        _ => "tables",
    };
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    examples.join(subject).join(name)
}

/// A command over an example.
fn with(folder: &Path, command: &[&str], name: &str, settings: &[&str]) -> Finished {
    let file = example(&format!("{name}.toml"));
    let mut arguments = command.to_vec();
    arguments.extend([file.to_str().unwrap(), "--json", "--set", SMALL]);
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    run(folder, &arguments)
}

/// Shards of an example; some of its rows are bad.
fn built(folder: &Path, name: &str, settings: &[&str]) -> Value {
    with(folder, &["ingest"], name, settings).expect(0);
    let built = with(folder, &["shards", "build"], name, settings);
    built.expect(0).json()
}

/// The only transform that was fitted for an example.
fn transform(folder: &Path, name: &str) -> Value {
    let dataset = folder.join("feedline-data").join(name).join("dataset");
    let files = fs::read_dir(dataset).unwrap();
    let names = files.map(|file| file.unwrap().path());
    let is_transform = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("transform-")
    };
    let found: Vec<PathBuf> = names.filter(is_transform).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    serde_json::from_slice(&fs::read(&found[0]).unwrap()).unwrap()
}

/// Rows that were left out by choice.
fn left_out(report: &Value) -> u64 {
    let counts = report["filtered"].as_object().unwrap().values();
    counts.map(|count| count.as_u64().unwrap()).sum()
}

fn features(transform: &Value) -> Vec<&str> {
    let features = transform["features"].as_array().unwrap().iter();
    features
        .map(|feature| feature["name"].as_str().unwrap())
        .collect()
}

#[test]
fn a_market_is_split_by_time_and_told_from_the_hour_before() {
    let folder = tempfile::tempdir().unwrap();
    let report = built(folder.path(), "series", &[]);
    let count = |key: &str| report[key].as_u64().unwrap();
    let kept = count("train") + count("validation") + count("test");
    assert_eq!(
        kept + count("rejected") + count("duplicates") + left_out(&report),
        count("rows_in")
    );
    // A record every 37 s, so 97 in the hour behind each of the two boundaries, less duplicates and
    // bad ones.
    let embargo = report["filtered"]["embargo"].as_u64();
    assert!((170..=194).contains(&embargo.unwrap()), "{report}");
    assert!(count("train") > 7 * count("validation"), "{report}");

    let transform = transform(folder.path(), "series");
    let features = features(&transform);
    for made in ["price_mean_1h", "price_std_1h", "price_move_30m", "hour"] {
        assert!(features.contains(&made), "{features:?}");
    }
    for time_or_kept in ["ts", "id"] {
        assert!(!features.contains(&time_or_kept), "{features:?}");
    }

    // Half an hour is not enough for features that look back an hour.
    let short = ["dataset.split.embargo=30m"];
    let refused = with(folder.path(), &["shards", "build"], "series", &short).expect(2);
    let message = &refused.stderr;
    assert!(
        message.contains("`dataset.split.embargo`") && message.contains("warm_start"),
        "{message}"
    );
}

#[test]
fn a_market_is_held_to_expectations_and_cleaned_by_symbol() {
    let folder = tempfile::tempdir().unwrap();
    let file = example("checked-expect.toml");
    let ours = format!("dataset.expect.file={}", file.display());
    let report = built(folder.path(), "checked", &[&ours]);
    // The venue that the file leaves out has three rows in a thousand.
    let dark = report["rejected_by_reason"]["expected_values"].as_u64();
    assert!((5..=60).contains(&dark.unwrap()), "{report}");
    let page = fs::read_to_string(folder.path().join(report["report"].as_str().unwrap())).unwrap();
    for part in [">Drift</h2>", "expected_values", "price"] {
        assert!(page.contains(part), "{part} is not in the page");
    }

    let transform = transform(folder.path(), "checked");
    let names = features(&transform);
    assert!(names.contains(&"venue"), "{names:?}");
    assert!(
        !names.iter().any(|name| name.starts_with("venue=")),
        "{names:?}"
    );
    let steps = transform["steps"].as_array().unwrap();
    let fitted = |kind: &str, column: &str| {
        let mut steps = steps.iter().filter(|step| step["type"] == kind);
        let columns = steps.next().unwrap()["columns"].as_array().unwrap();
        let found = columns.iter().find(|fitted| fitted["name"] == column);
        found.unwrap().clone()
    };
    let scales = &fitted("standardize", "price")["groups"];
    assert_eq!(scales["by"], "symbol");
    assert_eq!(scales["moments"].as_object().unwrap().len(), 8);
    let mean = |symbol: &str| scales["moments"][symbol]["mean"].as_f64().unwrap();
    assert!(
        mean("HALO") > 50.0 * mean("FLUX"),
        "prices differ by symbol: {scales}"
    );
    let caps = &fitted("winsorize", "price")["groups"]["caps"];
    assert_eq!(caps.as_object().unwrap().len(), 8);

    // What the training split holds is what is expected next.
    let write = ["shards", "expect", "--to", "found.toml"];
    let written = with(folder.path(), &write, "checked", &[&ours]).expect(0);
    assert!(written.json()["columns"].as_u64() > Some(10));
    let found = fs::read_to_string(folder.path().join("found.toml")).unwrap();
    assert!(
        found.contains("\"XTKS\"") && !found.contains("\"DARK\""),
        "{found}"
    );
    // What somebody has edited is not written over.
    fs::write(
        folder.path().join("found.toml"),
        format!("{found}# edited\n"),
    )
    .unwrap();
    let again = with(folder.path(), &write, "checked", &[&ours]).expect(1);
    assert!(
        again.stderr.contains("is there already"),
        "{}",
        again.stderr
    );
    let own = ["dataset.expect.file=found.toml"];
    let report = with(folder.path(), &["shards", "build"], "checked", &own)
        .expect(0)
        .json();
    assert_eq!(
        report["rejected_by_reason"]["expected_values"].as_u64(),
        dark
    );
}
