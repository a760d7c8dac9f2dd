//! Lists in records, from files to a dataset of their items.

use std::fs;

use crate::support::{pipeline, run};

#[test]
fn items_of_orders_become_the_rows_of_a_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines = String::new();
    for id in 0..200_u32 {
        let items: Vec<String> = (0..id % 4)
            .map(|place| {
                format!(
                    r#"{{"sku":"s{place}","price":{}.5,"parts":["a","b"]}}"#,
                    id + place
                )
            })
            .collect();
        lines += &format!("{{\"id\":{id},\"items\":[{}]}}\n", items.join(","));
    }
    fs::write(folder.path().join("orders.ndjson"), lines).unwrap();
    let text = "[pipeline]\nname = \"orders\"\nroot = \"out\"\n\
         [[source]]\nname = \"orders\"\ntype = \"files\"\nurl = \"orders.ndjson\"\nkey = [\"id\"]\n\
         [source.contract.children]\nitems = { parent = { order = \"id\" } }\nparts = { of = \"items\" }\n\
         [dataset]\nsources = [\"orders.items\"]\ntarget = \"price\"\ndrop = [\"order\"]\nsplit = { key = [\"order\"] }\n";
    let arguments = ["run", pipeline(folder.path(), text), "--json"];
    let report = run(folder.path(), &arguments).expect(0).json();
    let source = &report["ingest"]["sources"][0];
    assert_eq!(
        (&source["rows"], &source["children"]["items"]),
        (&200.into(), &300.into())
    );
    assert_eq!(source["children"]["parts"], 600);
    let dataset = &report["dataset"];
    assert_eq!(
        (&dataset["rows_in"], &dataset["rejected"]),
        (&300.into(), &0.into())
    );
    let again = run(folder.path(), &arguments).expect(0).json();
    assert_eq!(again["dataset"]["up_to_date"], true);
    let status = run(folder.path(), &["ingest", "status", arguments[1]]).expect(0);
    let status = status.stdout;
    assert!(status.contains("    items          300 rows"), "{status}");
    let verified = run(
        folder.path(),
        &["shards", "verify", "out/dataset", "--json"],
    )
    .expect(0);
    assert_eq!(verified.json()["problems"], serde_json::json!([]));
}
