//! All tables and series of the shared data, each through many steps, beside numpy and scikit-learn.

use std::path::Path;

use crate::support::{finish, pipeline, python, run, shared_data};

/// A file and the dataset that is made of it.
struct Case {
    file: &'static str,
    /// Keys of its `[[source]]`.
    source: &'static str,
    /// Keys of `series`, in text; empty for a table.
    series: &'static [(&'static str, &'static str)],
    /// Column that features are made of.
    of: &'static str,
    /// Rejected rows: those without a target.
    rejected: u64,
    /// The other keys of `[dataset]`, then its steps.
    dataset: &'static str,
}

/// Features that are made of a column of a series. Some are numbers of the column, or differences of two: these are exact.
const MADE: [&str; 8] = [
    r#""name" = "mean", "type" = "rolling_mean", "rows" = 24, "min_periods" = 3"#,
    r#""name" = "deviation", "type" = "rolling_std", "rows" = 12, "min_periods" = 4"#,
    r#""name" = "least", "type" = "rolling_min", "window" = "2d""#,
    r#""name" = "most", "type" = "rolling_max", "rows" = 30, "min_periods" = 1"#,
    r#""name" = "momentum", "type" = "momentum", "rows" = 10, "min_periods" = 2"#,
    r#""name" = "lag", "type" = "lag", "rows" = 3"#,
    r#""name" = "step", "type" = "difference", "rows" = 1"#,
    r#""name" = "day", "type" = "calendar", "part" = "day_of_year""#,
];

/// Steps over them.
const MADE_STEPS: &str = r#"
[[dataset.step]]
type = "winsorize"
columns = ["lag", "step", "mean"]
lower = 0.05
upper = 0.97
[[dataset.step]]
type = "impute"
columns = ["mean", "lag"]
strategy = "mean"
[[dataset.step]]
type = "impute"
columns = ["least", "momentum"]
indicator = true
[[dataset.step]]
type = "impute"
columns = ["most"]
strategy = "most_frequent"
[[dataset.step]]
type = "impute"
columns = ["step", "deviation"]
strategy = "constant"
value = 0.5
[[dataset.step]]
type = "log1p"
columns = ["deviation"]
[[dataset.step]]
type = "robust"
columns = ["momentum", "lag"]
lower = 0.1
upper = 0.9
[[dataset.step]]
type = "min_max"
columns = ["most", "day"]
[[dataset.step]]
type = "standardize"
columns = ["mean", "least", "step", "deviation"]
"#;

const HOUSING: Case = Case {
    file: "tabular/california_housing.csv.gz",
    source: "",
    series: &[],
    of: "",
    rejected: 0,
    dataset: r#"target = "median_house_value"
[[dataset.step]]
type = "winsorize"
columns = ["total_rooms", "median_income"]
by = "ocean_proximity"
lower = 0.02
upper = 0.98
[[dataset.step]]
type = "winsorize"
columns = ["population", "households", "total_bedrooms"]
upper = 0.995
[[dataset.step]]
type = "impute"
columns = ["total_bedrooms"]
indicator = true
[[dataset.step]]
type = "power"
columns = ["total_rooms"]
[[dataset.step]]
type = "power"
columns = ["population"]
method = "box_cox"
[[dataset.step]]
type = "log1p"
columns = ["households"]
[[dataset.step]]
type = "standardize"
columns = ["median_income", "total_bedrooms"]
by = "ocean_proximity"
[[dataset.step]]
type = "robust"
columns = ["latitude", "longitude"]
[[dataset.step]]
type = "min_max"
columns = ["housing_median_age"]
[[dataset.step]]
type = "categories"
encoding = "target"
smoothing = 20.0
"#,
};

const PENGUINS: Case = Case {
    file: "tabular/penguins_raw.csv.gz",
    // Ties among neighbours are resolved by the hash of a row's content; the script hashes text.
    source: r#"csv = { null_values = ["NA"] }
contract = { column = { "Date Egg" = { type = "text" } } }"#,
    series: &[],
    of: "",
    rejected: 2,
    dataset: r#"target = "Body Mass (g)"
split = { train = 0.7, validation = 0.15, test = 0.15 }
features = ["Sample Number", "Culmen Length (mm)", "Culmen Depth (mm)", "Flipper Length (mm)", "Delta 15 N (o/oo)",
    "Delta 13 C (o/oo)", "Species", "Island", "Sex", "studyName"]
[[dataset.step]]
type = "winsorize"
columns = ["Culmen Length (mm)", "Flipper Length (mm)"]
by = "Species"
lower = 0.05
upper = 0.95
min_count = 20
[[dataset.step]]
type = "winsorize"
columns = ["Delta 15 N (o/oo)", "Culmen Depth (mm)"]
[[dataset.step]]
type = "robust"
columns = ["Delta 13 C (o/oo)", "Delta 15 N (o/oo)", "Culmen Depth (mm)"]
[[dataset.step]]
type = "standardize"
columns = ["Culmen Length (mm)"]
[[dataset.step]]
type = "impute"
columns = ["Delta 13 C (o/oo)", "Delta 15 N (o/oo)", "Culmen Depth (mm)", "Culmen Length (mm)"]
strategy = "knn"
neighbours = 4
reference_rows = 100_000
indicator = true
[[dataset.step]]
type = "power"
columns = ["Flipper Length (mm)"]
method = "box_cox"
[[dataset.step]]
type = "log1p"
columns = ["Sample Number"]
[[dataset.step]]
type = "min_max"
columns = ["Sample Number", "Culmen Depth (mm)"]
clip = true
[[dataset.step]]
type = "impute"
columns = ["Sample Number"]
[[dataset.step]]
type = "categories"
columns = ["Species"]
encoding = "target"
smoothing = 5.0
folds = 4
[[dataset.step]]
type = "categories"
columns = ["Island"]
encoding = "frequency"
[[dataset.step]]
type = "categories"
columns = ["Sex"]
encoding = "ordinal"
"#,
};

const BIRDSTRIKES: Case = Case {
    file: "tabular/birdstrikes.csv.gz",
    source: "",
    series: &[],
    of: "",
    rejected: 0,
    dataset: r#"target = "Cost Total $"
features = ["Cost Other", "Cost Repair", "Speed IAS in knots", "Effect Amount of damage", "Origin State",
    "Phase of flight", "Wildlife Size", "Time of day"]
[[dataset.step]]
type = "winsorize"
columns = ["Speed IAS in knots"]
by = "Phase of flight"
min_count = 100
[[dataset.step]]
type = "winsorize"
columns = ["Cost Other"]
lower = 0.0
upper = 0.999
[[dataset.step]]
type = "impute"
columns = ["Speed IAS in knots"]
strategy = "most_frequent"
indicator = true
[[dataset.step]]
type = "standardize"
columns = ["Speed IAS in knots"]
by = "Phase of flight"
min_count = 100
[[dataset.step]]
type = "log1p"
columns = ["Cost Repair"]
[[dataset.step]]
type = "standardize"
columns = ["Cost Repair"]
[[dataset.step]]
type = "min_max"
columns = ["Cost Other"]
[[dataset.step]]
type = "categories"
columns = ["Origin State"]
encoding = "target"
[[dataset.step]]
type = "categories"
columns = ["Phase of flight"]
encoding = "frequency"
min_count = 50
[[dataset.step]]
type = "categories"
columns = ["Wildlife Size"]
encoding = "ordinal"
"#,
};

const RATES: Case = Case {
    file: "timeseries/ecb_eurofxref_hist.csv.gz",
    source: r#"csv = { null_values = ["N/A"] }"#,
    series: &[("time", "Date")],
    of: "USD",
    rejected: 0,
    dataset: r#"target = "JPY"
features = ["GBP", "CHF", "ISK", "CNY", "PLN", "TRY", "HUF", "EEK", "NOK", "BRL"]
[[dataset.step]]
type = "winsorize"
columns = ["ISK", "TRY", "GBP"]
lower = 0.03
upper = 0.9
[[dataset.step]]
type = "standardize"
columns = ["BRL", "NOK"]
[[dataset.step]]
type = "impute"
columns = ["ISK", "CNY", "BRL"]
[[dataset.step]]
type = "impute"
columns = ["TRY"]
strategy = "mean"
[[dataset.step]]
type = "impute"
columns = ["EEK"]
strategy = "most_frequent"
indicator = true
[[dataset.step]]
type = "power"
columns = ["TRY"]
[[dataset.step]]
type = "power"
columns = ["CHF"]
method = "box_cox"
[[dataset.step]]
type = "log1p"
columns = ["HUF"]
[[dataset.step]]
type = "robust"
columns = ["ISK", "PLN", "CNY"]
lower = 0.2
upper = 0.8
[[dataset.step]]
type = "min_max"
columns = ["GBP", "EEK"]
"#,
};

const POWER: Case = Case {
    file: "timeseries/opsd_germany_daily.csv.gz",
    source: "",
    series: &[("time", "Date")],
    of: "Consumption",
    rejected: 0,
    dataset: r#"target = "Consumption"
features = ["Wind", "Solar"]
[[dataset.step]]
type = "winsorize"
columns = ["Solar"]
lower = 0.005
upper = 0.97
[[dataset.step]]
type = "power"
columns = ["Wind"]
[[dataset.step]]
type = "standardize"
columns = ["Wind"]
[[dataset.step]]
type = "robust"
columns = ["Solar"]
[[dataset.step]]
type = "impute"
columns = ["Wind", "Solar"]
strategy = "knn"
reference_rows = 100_000
"#,
};

const RIDES: Case = Case {
    file: "timeseries/cta_ridership_daily.csv.gz",
    source: "",
    series: &[("time", "service_date"), ("format", "%m/%d/%Y")],
    of: "rail_boardings",
    rejected: 0,
    dataset: r#"target = "total_rides"
features = ["bus", "day_type"]
[[dataset.step]]
type = "winsorize"
columns = ["bus"]
by = "day_type"
lower = 0.02
upper = 0.99
[[dataset.step]]
type = "standardize"
columns = ["bus"]
by = "day_type"
[[dataset.step]]
type = "categories"
encoding = "target"
"#,
};

const AIR: Case = Case {
    file: "timeseries/air_quality_uci.csv.gz",
    source: "",
    series: &[
        ("time", "Date"),
        ("clock", "Time"),
        ("format", "%d/%m/%Y %H:%M:%S"),
    ],
    of: "RH",
    rejected: 366,
    dataset: r#"target = "T"
missing_values = [-200]
features = ["CO_GT", "NOx_GT", "NO2_GT", "C6H6_GT", "AH", "PT08_S1_CO"]
[[dataset.step]]
type = "winsorize"
columns = ["CO_GT", "NOx_GT", "PT08_S1_CO"]
lower = 0.02
upper = 0.96
[[dataset.step]]
type = "impute"
columns = ["CO_GT"]
strategy = "mean"
[[dataset.step]]
type = "impute"
columns = ["NOx_GT"]
indicator = true
[[dataset.step]]
type = "impute"
columns = ["NO2_GT"]
strategy = "most_frequent"
[[dataset.step]]
type = "impute"
columns = ["C6H6_GT", "AH", "PT08_S1_CO"]
strategy = "constant"
value = 1.5
[[dataset.step]]
type = "log1p"
columns = ["C6H6_GT"]
[[dataset.step]]
type = "power"
columns = ["NOx_GT"]
method = "box_cox"
[[dataset.step]]
type = "power"
columns = ["AH"]
[[dataset.step]]
type = "robust"
columns = ["CO_GT", "NO2_GT"]
[[dataset.step]]
type = "min_max"
columns = ["PT08_S1_CO"]
"#,
};

/// A metric of one column, predicted from its own past.
const fn metric(file: &'static str) -> Case {
    Case {
        file,
        source: "",
        series: &[("time", "timestamp")],
        of: "value",
        rejected: 0,
        dataset: "target = \"value\"\n",
    }
}

const CASES: [Case; 15] = [
    HOUSING,
    PENGUINS,
    BIRDSTRIKES,
    RATES,
    POWER,
    RIDES,
    AIR,
    metric("timeseries/nab/TravelTime_387.csv.gz"),
    metric("timeseries/nab/Twitter_volume_AAPL.csv.gz"),
    metric("timeseries/nab/ambient_temperature_system_failure.csv.gz"),
    metric("timeseries/nab/ec2_disk_write_bytes_1ef3de.csv.gz"),
    metric("timeseries/nab/exchange-2_cpc_results.csv.gz"),
    metric("timeseries/nab/machine_temperature_system_failure.csv.gz"),
    metric("timeseries/nab/nyc_taxi.csv.gz"),
    metric("timeseries/nab/speed_7578.csv.gz"),
];

impl Case {
    /// The file's name, without folder and endings.
    fn name(&self) -> &'static str {
        let name = self.file.rsplit('/').next().unwrap();
        name.split('.').next().unwrap()
    }

    /// The features that are made and what makes the rows series, in text; the same in JSON, which for these tables is the same
    /// but for the signs.
    fn made(&self) -> (String, String) {
        if self.series.is_empty() {
            return (String::new(), String::new());
        }
        let series = self.series.iter();
        let series: Vec<String> = series
            .map(|(key, value)| format!(r#""{key}" = "{value}""#))
            .collect();
        let made = MADE.iter().map(|keys| match keys.contains("calendar") {
            true => format!("{{ {keys} }}"),
            false => format!(r#"{{ {keys}, "column" = "{}" }}"#, self.of),
        });
        let (series, made) = (series.join(", "), made.collect::<Vec<_>>().join(", "));
        let text = format!(
            "split = {{ train = 1.0, validation = 0.0, test = 0.0 }}\n\
             series = {{ {series}, duplicates = \"first\" }}\nfeature = [{made}]\n"
        );
        let missing = match self.dataset.contains("-200") {
            true => "[-200]",
            false => "[]",
        };
        let json = format!(
            r#"{{ "series": {{ {series} }}, "feature": [{made}], "missing_values": {missing} }}"#
        );
        (text, json.replace("\" = ", "\": "))
    }

    /// The pipeline file, and the series in JSON.
    fn pipeline(&self, file: &Path) -> (String, String) {
        let (made, json) = self.made();
        let (keys, steps) = self
            .dataset
            .split_once("[[")
            .map_or((self.dataset, String::new()), |(keys, steps)| {
                (keys, format!("[[{steps}"))
            });
        let made_steps = if made.is_empty() { "" } else { MADE_STEPS };
        let text = format!(
            "[pipeline]\nname = \"compare\"\nroot = \"out\"\n\
             [[source]]\nname = \"rows\"\ntype = \"files\"\nurl = \"{}\"\n{}\n\
             [dataset]\n{keys}{made}{steps}{made_steps}",
            file.display(),
            self.source
        );
        (text, json)
    }
}

#[test]
fn every_table_and_series_agrees_with_numpy_and_scikit_learn() {
    let Some(mut python) = python("pyarrow, numpy, sklearn, scipy") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/compare.py");
    python.arg(script).arg("--all");
    for case in &CASES {
        let Some(file) = shared_data(case.file) else {
            return;
        };
        let (text, json) = case.pipeline(&file);
        let own = folder.path().join(case.name());
        std::fs::create_dir(&own).unwrap();
        let ran = run(&own, &["run", pipeline(&own, &text), "--json"]);
        let report = ran.expect(0).json();
        assert_eq!(
            report["dataset"]["rejected"], case.rejected,
            "{}",
            case.file
        );
        python
            .arg(case.file)
            .arg(own.join("out/landing/rows"))
            .arg(own.join("out/dataset"))
            .arg(json);
    }
    let table = finish(python.output().unwrap()).expect(0).stdout;
    // A row for each file, with how many of its quantiles are numpy's to the last bit: those of columns whose cells are.
    for case in &CASES {
        assert!(table.contains(case.file), "{table}");
    }
    eprintln!("{table}");
}
