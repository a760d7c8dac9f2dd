//! Column types that follow from all rows of a table, in any order of its rows.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use crate::support::{Random, files, pipeline, run};

const PIPELINE: &str = r#"
[pipeline]
name = "applicants"
root = "out"

[[source]]
name = "applicants"
type = "files"
url = "applicants.csv"

[dataset]
target = "Price"
"#;

/// Rows as people keep them: missing incomes are spelled `NA`, one expense is `unknown`, and `None`
/// is a kind.
pub(crate) fn applicants() -> Vec<String> {
    let line = |i: u32| {
        let income = match i % 12 {
            0 => "NA".to_owned(),
            _ => (900 + i * 37 % 701).to_string(),
        };
        let expenses = match i {
            250 => "unknown".to_owned(),
            _ => format!("{}.5", i * 53 % 97),
        };
        let kind = ["None", "good", "bad"][(i % 3) as usize];
        format!("{i},{income},{expenses},{kind},{}", 1_000 + i * 29 % 983)
    };
    (0..500).map(line).collect()
}

/// Builds the dataset of the rows in this order; returns the report and the fitted files.
fn built(folder: &Path, order: &[String]) -> (Value, BTreeMap<String, Vec<u8>>) {
    let table = format!("id,Income,Expenses,Kind,Price\n{}\n", order.join("\n"));
    fs::write(folder.join("applicants.csv"), table).unwrap();
    let out = folder.join("out");
    if out.exists() {
        fs::remove_dir_all(&out).unwrap();
    }
    let file = pipeline(folder, PIPELINE);
    // One row is rejected.
    let report = run(folder, &["ingest", file, "--json"]).expect(0).json();
    run(folder, &["shards", "build", file]).expect(0);
    let fitted = files(&out.join("dataset")).into_iter();
    let fitted = fitted.filter(|(path, _)| path.contains("transform"));
    (report["sources"][0].clone(), fitted.collect())
}

/// Warnings of a report without the lines that they name: a value is first in another line of each order.
fn without_places(report: &Value) -> String {
    let warnings = report["warnings"].to_string();
    let mut parts = warnings.split(", the first in line ");
    let begin = parts.next().unwrap().to_owned();
    parts.fold(begin, |text, part| {
        text + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

#[test]
fn a_shuffled_table_gives_the_same_categories_and_fitted_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let lines = applicants();
    let is_odd = |line: &&String| line.contains("NA") || line.contains("unknown");
    let odd: Vec<String> = lines.iter().filter(is_odd).cloned().collect();
    let plain: Vec<String> = lines.iter().filter(|l| !is_odd(l)).cloned().collect();
    let (before, behind) = plain.split_at(plain.len() / 2);
    let mut orders: Vec<Vec<String>> = vec![
        [odd.clone(), plain.clone()].concat(),
        [before.to_vec(), odd.clone(), behind.to_vec()].concat(),
        [plain.clone(), odd].concat(),
        lines.iter().rev().cloned().collect(),
    ];
    let mut random = Random(7);
    orders.extend((0..10).map(|_| {
        let mut keyed: Vec<(u64, String)> = lines
            .iter()
            .map(|line| (random.below(u64::MAX), line.clone()))
            .collect();
        keyed.sort_unstable();
        keyed.into_iter().map(|(_, line)| line).collect()
    }));
    let (first, fitted) = built(folder.path(), &orders[0]);
    assert!(!fitted.is_empty());
    for order in &orders[1..] {
        let (report, other) = built(folder.path(), order);
        assert_eq!(without_places(&report), without_places(&first));
        assert_eq!(report["decisions"], first["decisions"]);
        assert!(fitted == other, "other numbers were fitted");
    }
    assert_eq!(first["decisions"]["read_as_missing"]["Income"]["count"], 42);
    let keys: Vec<&str> = first["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| warning["key"].as_str().unwrap())
        .collect();
    let expected = [
        "csv.null_spellings",
        "infer.max_odd_fraction",
        "csv.null_values",
    ];
    assert_eq!(keys, expected);
}

#[test]
fn a_preview_shows_columns_before_anything_lands() {
    let folder = tempfile::tempdir().unwrap();
    let table = format!(
        "id,Income,Expenses,Kind,Price\n{}\n",
        applicants().join("\n")
    );
    fs::write(folder.path().join("applicants.csv"), table).unwrap();
    let file = pipeline(folder.path(), PIPELINE);
    let shown = run(folder.path(), &["preview", file]).expect(0).stdout;
    for part in [
        "5 columns in 500 rows (all there are)",
        "Income    int        42 of 500 missing",
        "Expenses  float",
        "Kind      text                                 `bad`, `good`, `None`",
        "see `csv.null_spellings`",
        "such as `unknown`",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let json = run(
        folder.path(),
        &["preview", file, "--source", "applicants", "--json"],
    );
    let json = json.expect(0).json();
    assert_eq!(json["sources"][0]["columns"][1]["type"], "int");
    let table = run(folder.path(), &["preview", "applicants.csv", "--json"]);
    let table = table.expect(0).json();
    assert_eq!(
        table["sources"][0]["columns"],
        json["sources"][0]["columns"]
    );
    assert!(!folder.path().join("out").exists());
}

/// A table of air with a dot in the name of a column.
fn write_air(folder: &Path) {
    let mut random = Random(11);
    let lines = (0..400).map(|i| {
        let [pm, wind] = [random.below(90), random.below(12)];
        format!("{i},{pm}.25,{wind},{}\n", 3 * pm + wind)
    });
    let lines: String = lines.collect();
    fs::write(folder.join("air.csv"), format!("id,pm2.5,wind,y\n{lines}")).unwrap();
}

#[test]
fn a_column_with_a_dot_in_its_name_is_declared_selected_and_queried_by_the_name_that_preview_shows()
{
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_air(folder);
    let head = "[pipeline]\nname = \"air\"\nroot = \"out\"\n[[source]]\nname = \"air\"\ntype = \"files\"\nurl = \"air.csv\"\n";
    let declared = "[source.contract.column.'pm2\\.5']\ntype = \"float\"\n";
    let sql = "[dataset]\ntarget = \"y\"\nsql = '''select \"pm2\\.5\" as pm, wind, y, \
        case when wind >= 6 then 'windy' else 'calm' end as kind from air where \"pm2\\.5\"::int % 2 = 0'''\n";
    let file = pipeline(folder, &format!("{head}{declared}{sql}"));
    let preview = run(folder, &["preview", file]).expect(0);
    assert!(preview.stdout.contains("pm2\\.5"), "{}", preview.stdout);
    let report = run(folder, &["ingest", file, "--json"]).expect(0).json();
    assert_eq!(report["sources"][0]["rejected"], 0);
    run(folder, &["shards", "build", file]).expect(0);

    // The name as the file has it is refused with the name as it landed.
    let wrong = sql.replace("pm2\\.5", "pm2.5");
    let file = pipeline(folder, &format!("{head}{declared}{wrong}"));
    let refused = run(folder, &["shards", "build", file]).expect(2);
    assert!(refused.stderr.contains("pm2\\.5"), "{}", refused.stderr);

    // Steps name the column in the same way.
    let plain = "[dataset]\ntarget = \"y\"\ndrop = [\"id\"]\nstep = [{ type = \"impute\" }, { type = \"min_max\", columns = ['pm2\\.5'] }, \
                 { type = \"categories\" }]\n";
    let file = pipeline(folder, &format!("{head}{declared}{plain}"));
    run(folder, &["shards", "build", file]).expect(0);
}
