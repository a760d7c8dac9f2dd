//! Commands that correct landed data.

use std::fs;

use crate::support::{pipeline, run, serve};

#[test]
fn a_wrong_first_landing_is_left_by_commands() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.csv"), "hour;n\n1;2\n2;fehlt\n3;4\n").unwrap();
    let text = |more: &str| {
        format!(
            "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"*.csv\"\n{more}"
        )
    };
    let file = |more: &str| pipeline(folder.path(), &text(more));
    let wrong = file("csv = { delimiter = \"|\" }\n");
    run(folder.path(), &["ingest", wrong, "--json"]).expect(0);
    let right = file("csv = { delimiter = \";\", null_values = [\"fehlt\"] }\n");
    let said = run(folder.path(), &["ingest", right]).expect(0);
    assert!(
        said.stdout
            .contains("`csv.delimiter` was `\"|\"`, and is `\";\"` from entry 1 on"),
        "{said:#?}"
    );
    let status = run(folder.path(), &["ingest", "status", right]).expect(0);
    assert!(status.stdout.contains("changed"), "{status:#?}");
    let reread = ["ingest", "reread", right, "s", "--file", "a.csv", "--json"];
    let report = run(folder.path(), &reread).expect(0).json();
    assert_eq!(report["rows"], 3, "{report:#}");
    assert_eq!(report["ingest"]["sources"][0]["rows"], 3, "{report:#}");
    let reset = ["ingest", "reset", right, "s", "--json"];
    let dry = run(folder.path(), &[&reset[..], &["--dry-run"][..]].concat())
        .expect(0)
        .json();
    assert_eq!(
        (&dry["rows"], &dry["sequence"]),
        (&3.into(), &serde_json::Value::Null)
    );
    let report = run(folder.path(), &reset).expect(0).json();
    assert!(
        report["kept"].as_str().unwrap().contains("landing/s."),
        "{report:#}"
    );
    let report = run(folder.path(), &["ingest", right, "--json"])
        .expect(0)
        .json();
    assert_eq!(report["rows"], 3, "{report:#}");
    let batch = report["sources"][0]["batches"].as_u64().unwrap();
    assert_eq!(batch, 1);
    let shown = run(
        folder.path(),
        &["ingest", "delete", right, "s", "--batch", "0"],
    )
    .expect(2);
    assert!(shown.stderr.contains("entry 0 has no files"), "{shown:#?}");
}

#[test]
fn rows_of_the_only_file_are_dropped_without_a_read_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("a.csv"), "n\n1\n2\n").unwrap();
    let file = pipeline(
        folder,
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"a.csv\"\n",
    );
    run(folder, &["ingest", file]).expect(0);
    fs::remove_file(folder.join("a.csv")).unwrap();
    let drop = ["ingest", "reread", file, "s", "--file", "a.csv"];
    let drop = [&drop[..], &["--missing-too", "--json"]].concat();
    let report = run(folder, &drop).expect(0).json();
    assert_eq!(report["rows"], 2, "{report:#}");
    assert!(report["ingest"].is_null(), "{report:#}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("nothing is read now"), "{report:#}");
}

#[test]
fn a_reread_whose_read_fails_names_the_way_to_rows_in_place_of_the_withdrawn_ones() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |name: &str, value: &str| {
        let lines: String = (0..20).map(|i| format!("{i},{value}\n")).collect();
        fs::write(folder.join(name), format!("n,price\n{lines}")).unwrap();
    };
    write("a.csv", "1.5");
    write("b.csv", "2.5");
    let file = pipeline(
        folder,
        "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"*.csv\"\n\
         contract = { column = { price = { type = \"float\" } } }\n",
    );
    let first = run(folder, &["ingest", file, "--json"]).expect(0).json();
    assert_eq!(first["rows"], 40, "{first:#}");
    write("a.csv", "bad");
    let reread = ["ingest", "reread", file, "s", "--file", "a.csv", "--json"];
    let report = run(folder, &reread).expect(1).json();
    let notes = report["notes"].to_string();
    let raised = "source.0.contract.max_reject_fraction=1";
    for part in [
        "40 rows that no longer count",
        format!("`feedline ingest {file}`").as_str(),
        format!("`--set {raised}`").as_str(),
        "their files stay in",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    let read = ["ingest", file, "--set", raised, "--json"];
    let report = run(folder, &read).expect(0).json();
    assert_eq!(report["rows"], 20, "{report:#}");
    assert_eq!(report["rejected"], 20, "{report:#}");
}

#[test]
fn rejected_records_land_once_the_contract_is_mended() {
    let folder = tempfile::tempdir().unwrap();
    let origin = serve(|_| {
        let items: Vec<String> = (0..50_u32)
            .map(|i| match i % 10 {
                9 => format!("{{\"id\":{i},\"edited\":{i}.5}}"),
                _ => format!("{{\"id\":{i},\"edited\":false}}"),
            })
            .collect();
        ("200 OK", String::new(), format!("[{}]", items.join(",")))
    });
    let text = |more: &str| {
        format!(
            "[pipeline]\nname = \"p\"\nroot = \"out\"\n[[source]]\nname = \"s\"\ntype = \"rest\"\nurl = \"{origin}/items\"\ncontract = {{ max_reject_fraction = 0.5{more} }}\n"
        )
    };
    let file = |more: &str| pipeline(folder.path(), &text(more));
    let strict = file(", column = { edited = { type = \"bool\" } }");
    let report = run(folder.path(), &["ingest", strict, "--json"])
        .expect(0)
        .json();
    assert_eq!(
        (&report["rows"], &report["rejected"]),
        (&45.into(), &5.into())
    );
    let mended = file(", types = \"widen\"");
    let retry = ["ingest", "retry-rejects", mended, "s"];
    let shown = run(folder.path(), &retry).expect(0);
    assert!(
        shown
            .stdout
            .contains("5 rejected records: 5 land, 0 have landed before, 0 are still rejected"),
        "{shown:#?}"
    );
    let report = run(folder.path(), &["ingest", mended, "--json"])
        .expect(0)
        .json();
    assert_eq!(
        (&report["rows"], &report["rejected"]),
        (&50.into(), &0.into())
    );
    let delete = ["ingest", "delete", mended, "s", "--batch", "0", "--json"];
    let report = run(folder.path(), &delete).expect(0).json();
    assert_eq!(report["rows"], 45, "{report:#}");
    assert!(
        report["notes"][0]
            .as_str()
            .unwrap()
            .contains("have landed since"),
        "{report:#}"
    );
}
