use feedline_schemas::record::ColumnType::{Float64, Int64, Utf8};
use feedline_storage::Store;
use serde_json::{Value, json};

use crate::{
    read_manifest,
    testing::{Cells, LandingZone, build_with, contents},
};

const ODD: &str = "<script>alert(\"1\")</script> & 'x'";
const DATASET: &str = "sources = [\"a\"]\ntarget = \"price\"\nprofile = true\n";

/// Row `i`, with values raised by `shift`.
fn row(i: u64, shift: f64) -> Cells {
    let odd = match i {
        _ if i.is_multiple_of(7) => Value::Null,
        _ => json!((i * 7919 % 1000) as f64 + shift),
    };
    let kind = if i.is_multiple_of(3) {
        "</svg><b>"
    } else {
        "y"
    };
    let price = if i == 11 {
        Value::Null
    } else {
        json!(i as f64)
    };
    vec![odd, json!(kind), price, json!(i % 2)]
}

async fn land(zone: &mut LandingZone, shift: f64, rows: u64) {
    let rows: Vec<Cells> = (0..rows).map(|i| row(i, shift)).collect();
    zone.batch(&rows).await;
}

async fn page_of(root: &Store) -> String {
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let path = super::path_of(manifest.fingerprint);
    String::from_utf8(dataset.get(&path).await.unwrap().to_vec()).unwrap()
}

fn zone(root: &Store) -> LandingZone {
    let columns = [
        (ODD, Float64),
        ("kind", Utf8),
        ("price", Float64),
        ("flag", Int64),
    ];
    LandingZone::new(root, "a", &columns)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_whole_needs_nothing_else_and_hostile_names_do_no_harm() {
    let root = Store::memory();
    let mut zone = zone(&root);
    land(&mut zone, 0.0, 600).await;
    land(&mut zone, 0.0, 20).await;
    let report = build_with(&root, DATASET, 2).await.unwrap();
    let page = page_of(&root).await;
    assert!(report.report.unwrap().contains("report-"));
    for part in [
        "Rows through each stage",
        "target_missing",
        "Dropped as copies of another row: 20 rows",
        "Appeared in several rows: 20 contents",
        "a, 0, 0",
        "a, 1, 0",
        "cap at 1 %",
        "cap at 99 %",
        "training split after all steps",
        "Missing cells of the training split",
        "The outline is the test split",
        "Overview of columns",
        "Drift",
        "not stated",
        "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;x&#39;",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for foreign in [
        "<script",
        "</svg><b>",
        "http://",
        "https://",
        "url(",
        "NaN",
        "src=",
    ] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    // Links lead to parts of the page, to files beside it and to the runs.
    for link in page.split("href=\"").skip(1) {
        let to = link.split('"').next().unwrap();
        if let Some(part) = to.strip_prefix('#') {
            assert!(page.contains(&format!(" id=\"{part}\"")), "{to}");
        } else if to != "../train/index.html" {
            let file = root.child("dataset").get_opt(to).await.unwrap();
            assert!(file.is_some(), "{to}");
        }
    }
    // Of 600 rows one has no target; the target is the first of the columns.
    let target = page
        .find(">price</a></th><td>target</td><td>number</td>")
        .unwrap();
    assert!(target < page.find("<td>feature</td>").unwrap());
    assert!(page.find(">price (target)</h3>").unwrap() < page.find("<h3 id=\"c1\">").unwrap());
    for tag in [
        "figure", "svg", "table", "tr", "p", "div", "g", "text", "details",
    ] {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        let begun = page.matches(&open).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(begun, page.matches(&close).count(), "{tag}");
    }
}

#[tokio::test]
async fn rows_that_are_kept_and_not_as_expected_stand_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("expect.toml");
    let expected = format!(
        "[[column]]\nname = {ODD:?}\nkind = \"numeric\"\nrequired = true\n\
         [[column]]\nname = \"kind\"\nkind = \"categorical\"\nvalues = [\"y\"]\n"
    );
    std::fs::write(&file, expected).unwrap();
    let root = Store::memory();
    land(&mut zone(&root), 0.0, 601).await;
    let dataset = format!(
        "{DATASET}expect = {{ file = \"{}\", on_violation = \"warn\" }}\n",
        file.display()
    );
    build_with(&root, DATASET, 2).await.unwrap();
    assert!(!page_of(&root).await.contains("not as expected"));
    build_with(&root, &dataset, 2).await.unwrap();
    let page = page_of(&root).await;
    assert!(page.contains(">Rows kept that are not as expected</h2>"));
    // Of 601 rows one lacks its price and is rejected; every seventh lacks a number, every third
    // has the other kind.
    let odd = "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;x&#39;";
    for (column, key, rows, share) in [
        (odd, "required", 86, "14.33 %"),
        ("kind", "values", 201, "33.50 %"),
    ] {
        let line = format!(
            "<tr><th scope=\"row\">{column}</th><td>{key}</td><td class=\"number\">{rows}</td>\
             <td class=\"number\">{share}</td></tr>"
        );
        assert!(page.contains(&line), "{line}: {page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_version_is_compared_with_the_one_before() {
    let root = Store::memory();
    let mut zone = zone(&root);
    land(&mut zone, 0.0, 400).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let first = read_manifest(&root.child("dataset"))
        .await
        .unwrap()
        .fingerprint;
    assert!(!page_of(&root).await.contains("the previous dataset"));
    land(&mut zone, 400.0, 900).await;
    let dataset = format!("{DATASET}drop = [\"flag\"]\n");
    build_with(&root, &dataset, 2).await.unwrap();
    let page = page_of(&root).await;
    assert!(page.contains(&format!("the previous dataset (<code>{first}</code>)")));
    assert!(page.contains("Missing columns: flag."));
    let is_odd = |line: &str| {
        line.contains("&lt;script&gt;")
            && line.contains("<td>the dataset before</td><td>strong</td>")
    };
    assert!(page.lines().any(is_odd), "{page}");
}

#[tokio::test]
async fn a_page_that_is_missing_is_written_again_and_is_the_same() {
    let root = Store::memory();
    land(&mut zone(&root), 0.0, 300).await;
    build_with(&root, DATASET, 2).await.unwrap();
    let dataset = root.child("dataset");
    let before = contents(&dataset).await;
    let path = before
        .keys()
        .find(|path| path.starts_with("report-"))
        .unwrap();
    dataset.delete(path).await.unwrap();
    assert!(!build_with(&root, DATASET, 1).await.unwrap().up_to_date);
    assert_eq!(contents(&dataset).await.get(path), before.get(path));
}
