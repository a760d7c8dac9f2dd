//! Our numbers beside those of pyarrow, numpy and scikit-learn.

use std::path::Path;

use crate::support::{finish, pipeline, python, run, shared_data};

/// Builds a dataset from a file of the shared data and has everything fitted and written compared in Python.
fn check(file: &str, dataset: &str, rejected: u64) {
    check_made(file, dataset, rejected, None);
}

/// The same with features that are made of series, which `series` says again for Python.
fn check_made(file: &str, dataset: &str, rejected: u64, series: Option<&str>) {
    let (Some(file), Some(mut python)) =
        (shared_data(file), python("pyarrow, numpy, sklearn, polars"))
    else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[pipeline]\nname = \"compare\"\nroot = \"out\"\n\
         [[source]]\nname = \"rows\"\ntype = \"files\"\nurl = \"{}\"\nbatch = {{ rows = 3000 }}\n\
         csv = {{ null_values = [\"N/A\"] }}\n\
         [dataset]\nshards = {{ shard_bytes = \"256 KiB\", block_bytes = \"16 KiB\" }}\n{dataset}\n",
        file.display()
    );
    let report = run(
        folder.path(),
        &["run", pipeline(folder.path(), &text), "--json"],
    )
    .expect(0)
    .json();
    assert_eq!(report["dataset"]["rows_in"], report["ingest"]["rows"]);
    assert_eq!(report["dataset"]["rejected"], rejected);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/compare.py");
    python
        .arg(script)
        .arg(folder.path().join("out/landing/rows"))
        .arg(folder.path().join("out/dataset"))
        .args(series);
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
fn bins_agree_with_scikit_learn_and_polars() {
    let dataset = r#"target = "median_house_value"
drop = ["ocean_proximity"]
[[dataset.step]]
type = "bin"
columns = ["total_rooms", "population", "total_bedrooms"]
bins = 16
[[dataset.step]]
type = "bin"
columns = ["housing_median_age", "households"]
bins = 100
[[dataset.step]]
type = "bin"
columns = ["median_income", "longitude", "latitude"]
bins = 7
strategy = "uniform"
[[dataset.step]]
type = "impute"
[[dataset.step]]
type = "standardize"
columns = ["population", "latitude"]
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
    // -200 means a missing reading, in the target too: those 366 rows are rejected.
    let dataset = "target = \"T\"\ndrop = [\"Date\", \"Time\"]\nmissing_values = [-200]";
    check("timeseries/air_quality_uci.csv.gz", dataset, 366);
}

/// Features of every kind over `of`, in text and in JSON, which for these tables is the same but for the signs.
fn check_series(file: &str, keys: &str, of: &str, series: &[(&str, &str)], rejected: u64) {
    let features = [
        r#""type" = "rolling_mean", "rows" = 24, "min_periods" = 3"#,
        r#""type" = "rolling_mean", "window" = "7d", "closed" = "right""#,
        r#""type" = "rolling_std", "rows" = 12"#,
        r#""type" = "rolling_std", "window" = "3d""#,
        r#""type" = "rolling_min", "window" = "2d""#,
        r#""type" = "rolling_max", "rows" = 30, "min_periods" = 1"#,
        r#""type" = "momentum", "rows" = 10, "min_periods" = 2"#,
        r#""type" = "lag", "rows" = 3"#,
        r#""type" = "lag", "window" = "1d""#,
        r#""type" = "difference", "rows" = 1"#,
        r#""type" = "forward_fill""#,
        r#""type" = "interpolate", "window" = "4d""#,
    ];
    let is_target = keys.contains(&format!("target = \"{of}\""));
    let sees_itself = |keys: &&str| {
        ["right", "fill", "interpolate"]
            .iter()
            .any(|k| keys.contains(k))
    };
    let features = features
        .into_iter()
        .filter(|keys| !is_target || !sees_itself(keys));
    let of = format!(r#", "column" = "{of}""#);
    let calendar = [r#""type" = "calendar", "part" = "weekday""#];
    let made = features.map(|keys| format!("{keys}{of}"));
    let made = made.chain(calendar.map(str::to_owned)).enumerate();
    let made: Vec<String> = made
        .map(|(i, keys)| format!(r#"{{ "name" = "made_{i}", {keys} }}"#))
        .collect();
    let series: Vec<String> = series
        .iter()
        .map(|(key, value)| format!(r#""{key}" = "{value}""#))
        .collect();
    let (made, series) = (made.join(", "), series.join(", "));
    let dataset = format!(
        "{keys}\nsplit = {{ train = 1.0, validation = 0.0, test = 0.0 }}\n\
         series = {{ {series}, duplicates = \"first\" }}\nfeature = [{made}]\n"
    );
    let missing = match keys.contains("-200") {
        true => "[-200]",
        false => "[]",
    };
    let json = format!(
        r#"{{ "series": {{ {series} }}, "feature": [{made}], "missing_values": {missing} }}"#
    );
    check_made(
        file,
        &dataset,
        rejected,
        Some(&json.replace("\" = ", "\": ")),
    );
}

#[test]
fn features_of_daily_series_agree_with_numpy() {
    let day = [("time", "service_date"), ("format", "%m/%d/%Y")];
    let cta = "timeseries/cta_ridership_daily.csv.gz";
    check_series(cta, "target = \"total_rides\"", "bus", &day, 0);
    let date = [("time", "Date")];
    let rates = "target = \"JPY\"\nfeatures = [\"USD\", \"GBP\"]";
    check_series(
        "timeseries/ecb_eurofxref_hist.csv.gz",
        rates,
        "USD",
        &date,
        0,
    );
    let power = "target = \"Consumption\"";
    check_series(
        "timeseries/opsd_germany_daily.csv.gz",
        power,
        "Wind",
        &date,
        0,
    );
}

#[test]
fn features_of_hourly_readings_with_gaps_agree_with_numpy() {
    let time = [
        ("time", "Date"),
        ("clock", "Time"),
        ("format", "%d/%m/%Y %H:%M:%S"),
    ];
    let keys = "target = \"T\"\nfeatures = [\"CO_GT\", \"RH\"]\nmissing_values = [-200]";
    check_series(
        "timeseries/air_quality_uci.csv.gz",
        keys,
        "CO_GT",
        &time,
        366,
    );
}

#[test]
fn features_of_irregular_readings_agree_with_numpy() {
    for name in [
        "TravelTime_387",
        "Twitter_volume_AAPL",
        "ambient_temperature_system_failure",
        "ec2_disk_write_bytes_1ef3de",
        "exchange-2_cpc_results",
        "machine_temperature_system_failure",
        "nyc_taxi",
        "speed_7578",
    ] {
        let file = format!("timeseries/nab/{name}.csv.gz");
        // The target is predicted from its own past.
        check_series(
            &file,
            "target = \"value\"",
            "value",
            &[("time", "timestamp")],
            0,
        );
    }
}

#[test]
fn the_python_package_has_no_http_server() {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/Cargo.lock");
    let lock = std::fs::read_to_string(lock).unwrap();
    for (name, expected) in [("feedline-loader", true), ("axum", false)] {
        let line = format!("name = \"{name}\"\n");
        assert_eq!(lock.contains(&line), expected, "{name}");
    }
}
