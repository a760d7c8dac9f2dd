//! Our numbers beside those of pyarrow, numpy and scikit-learn.

use std::path::Path;

use crate::support::{finish, pipeline, python, run, shared_data};

/// Builds a dataset from a file of the shared data and has everything fitted and written compared in Python.
fn check(file: &str, dataset: &str, rejected: u64) {
    let (Some(file), Some(mut python)) = (shared_data(file), python("pyarrow, numpy, sklearn"))
    else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[pipeline]\nname = \"compare\"\nroot = \"out\"\n\
         [[source]]\nname = \"rows\"\ntype = \"files\"\nurl = \"{}\"\nbatch = {{ rows = 3000 }}\n\
         [dataset]\nshards = {{ shard_bytes = \"256 KiB\", block_bytes = \"16 KiB\" }}\n{dataset}\n",
        file.display()
    );
    let code = if rejected > 0 { 3 } else { 0 };
    let report = run(
        folder.path(),
        &["run", pipeline(folder.path(), &text), "--json"],
    )
    .expect(code)
    .json();
    assert_eq!(report["dataset"]["rows_in"], report["ingest"]["rows"]);
    assert_eq!(report["dataset"]["rejected"], rejected);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/compare.py");
    python
        .arg(script)
        .arg(folder.path().join("out/landing/rows"))
        .arg(folder.path().join("out/dataset"));
    eprintln!(
        "{}\n{}",
        file.display(),
        finish(python.output().unwrap()).expect(0).stdout
    );
}

#[test]
fn housing_statistics_and_shards_agree_with_numpy_and_scikit_learn() {
    check(
        "tabular/california_housing.csv.gz",
        "target = \"median_house_value\"",
        0,
    );
}

#[test]
fn powers_neighbours_and_robust_scales_agree_with_scikit_learn() {
    let dataset = r#"target = "median_house_value"
drop = ["ocean_proximity", "longitude", "latitude"]
[[dataset.step]]
type = "power"
columns = ["total_rooms", "population"]
method = "box_cox"
[[dataset.step]]
type = "power"
columns = ["median_income", "total_bedrooms"]
[[dataset.step]]
type = "log1p"
columns = ["households"]
[[dataset.step]]
type = "robust"
[[dataset.step]]
type = "impute"
strategy = "knn"
weights = "distance"
reference_rows = 100_000
[[dataset.step]]
type = "min_max"
clip = true
"#;
    check("tabular/california_housing.csv.gz", dataset, 0);
}

#[test]
fn groups_shares_and_targets_of_categories_agree_with_numpy_and_scikit_learn() {
    let steps = |encoding: &str| {
        format!(
            "target = \"median_house_value\"\n\
             [[dataset.step]]\ntype = \"winsorize\"\nby = \"ocean_proximity\"\nlower = 0.03\nupper = 0.95\n\
             [[dataset.step]]\ntype = \"impute\"\nstrategy = \"mean\"\n\
             [[dataset.step]]\ntype = \"standardize\"\nby = \"ocean_proximity\"\nmin_count = 10\n\
             [[dataset.step]]\ntype = \"categories\"\n{encoding}\n"
        )
    };
    for encoding in [
        "encoding = \"target\"\nsmoothing = 3.5",
        "encoding = \"frequency\"\nmin_count = 100",
    ] {
        check("tabular/california_housing.csv.gz", &steps(encoding), 0);
    }
}

#[test]
fn neighbours_in_a_table_full_of_gaps_agree_with_scikit_learn() {
    let dataset = r#"target = "T"
drop = ["Date", "Time"]
missing_values = [-200]
[[dataset.step]]
type = "winsorize"
lower = 0.02
upper = 0.95
[[dataset.step]]
type = "standardize"
[[dataset.step]]
type = "impute"
strategy = "knn"
neighbours = 7
indicator = true
reference_rows = 100_000
[[dataset.step]]
type = "robust"
lower = 0.1
upper = 0.9
"#;
    check("timeseries/air_quality_uci.csv.gz", dataset, 366);
}

#[test]
fn air_quality_statistics_and_shards_agree_with_numpy_and_scikit_learn() {
    // -200 stands for a missing reading, in the target too: those 366 rows are set aside.
    let dataset = "target = \"T\"\ndrop = [\"Date\", \"Time\"]\nmissing_values = [-200]";
    check("timeseries/air_quality_uci.csv.gz", dataset, 366);
}
