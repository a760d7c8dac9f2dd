//! Default decisions of a build appear on the screen, in `--json`, in `shards inspect` and on the
//! dataset report.

use std::{fs, path::Path};

use crate::support::{pipeline, run};

const PIPELINE: &str = "[pipeline]
name = \"p\"
root = \"out\"

[[source]]
name = \"rows\"
type = \"files\"
url = \"rows.csv\"

[dataset]
target = \"status\"
task = \"classification\"
profile = true
";

/// Writes 600 rows of 250 zip codes, an empty column, and labels that differ in a blank.
pub(crate) fn write_rows(folder: &Path) {
    let row = |i: usize| {
        let status = ["good", "good ", "bad"][i % 3];
        format!("{},{},,{status}\n", i % 250, i as f64 / 7.0)
    };
    let rows: String = (0..600).map(row).collect();
    fs::write(
        folder.join("rows.csv"),
        format!("zip,x,nothing,status\n{rows}"),
    )
    .unwrap();
}

#[test]
fn decisions_reach_the_screen_json_inspect_and_the_report() {
    let folder = tempfile::tempdir().unwrap();
    write_rows(folder.path());
    let text = format!("{PIPELINE}categorical = [\"zip\"]\n");
    let file = pipeline(folder.path(), &text);
    run(folder.path(), &["ingest", file]).expect(0);
    let build = ["shards", "build", file, "--json"];
    let screen = run(folder.path(), &build[..3]).expect(0).stdout;
    let json = run(folder.path(), &build).expect(0).json();
    let json = json.get("dataset").unwrap_or(&json);
    let inspected = run(folder.path(), &["shards", "inspect", "out/dataset"])
        .expect(0)
        .stdout;
    let files = fs::read_dir(folder.path().join("out/dataset")).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let page = files.find(|file| file.extension().is_some_and(|end| end == "html"));
    let page = fs::read_to_string(page.unwrap()).unwrap();
    for (code, column, part) in [
        ("categories_cut", "zip", "column `zip` has"),
        (
            "columns_dropped",
            "nothing",
            "column `nothing` is no feature: it holds no value in any row",
        ),
        ("labels_alike", "status", "`good` ("),
    ] {
        let warnings = json["warnings"].as_array().unwrap();
        let found = warnings.iter().find(|warning| warning["code"] == code);
        let message = found.unwrap()["message"].as_str().unwrap();
        assert!(message.contains(part), "{message}");
        let columns = &found.unwrap()["findings"][0]["columns"];
        assert_eq!(columns[0]["name"], column);
        assert!(screen.contains(message), "{screen}");
        assert!(inspected.contains(message), "{inspected}");
        assert!(page.contains(code), "{code}");
    }
    assert_eq!(
        json["dropped_columns"]["nothing"],
        "holds no value in any row"
    );
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = inspected.lines().map(words).collect();
    let has = |part: &str| lines.iter().any(|line| line.contains(part));
    assert!(
        has("no feature nothing: it holds no value in any row"),
        "{inspected}"
    );
    assert!(
        has("classes status: 3, by id") && has("class 1 \"good\": ") && has("class 2 \"good \": "),
        "{inspected}"
    );
}
