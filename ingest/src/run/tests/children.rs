//! Child tables land with their records, whenever a run dies.

use feedline_schemas::{
    commit::DataFile,
    config::{ChildConfig, PipelineConfig, load},
    log_snapshot::LogSums,
};

use super::*;
use crate::{landing_folder::landing, repair::repair, run::ingest};

/// 12 pages of 3 records with items: some empty, some the same as two pages before, one in
/// conflict, with new keys and wider numbers in between.
fn pages() -> Vec<Vec<Record>> {
    let page = |page: i64| {
        let again = page - page % 2;
        let wide = if page > 7 { "0.5" } else { "1" };
        let mut records = vec![
            record(&format!(
                r#"{{"n":{page},"items":[{{"a":{page},"of_{}":{wide},"parts":["p","q{page}"]}},{{"a":null}}]}}"#,
                page / 5
            )),
            record(&format!(r#"{{"n":{again},"items":[{{"a":{again}}}]}}"#)),
            record(&format!(r#"{{"n":{page},"items":[]}}"#)),
        ];
        if page == 6 {
            records[2] = record(r#"{"n":6,"items":[{"a":1,"never":1},{"a":"six"}]}"#);
        }
        records
    };
    (0..12).map(page).collect()
}

fn config() -> SourceConfig {
    let mut config = super::config();
    let name = |name: &str| Name::new(name).unwrap();
    let parts = ChildConfig {
        of: Some(name("items")),
        ..ChildConfig::default()
    };
    let parent = [("n".to_owned(), "n".to_owned())].into();
    let items = ChildConfig {
        parent,
        ..ChildConfig::default()
    };
    config.contract.children = [(name("items"), items), (name("parts"), parts)].into();
    config
}

fn scripted() -> Scripted {
    Scripted {
        pages: pages(),
        broken: None,
    }
}

async fn undisturbed() -> BTreeMap<String, Bytes> {
    let root = Store::memory();
    run(&root, &config(), &mut scripted()).await.unwrap();
    snapshot(&root).await
}

#[tokio::test]
async fn records_and_items_are_counted_and_have_versions_of_their_own() {
    let root = Store::memory();
    run(&root, &config(), &mut scripted()).await.unwrap();
    let entries = entries(&root).await;
    let last = entries.last().unwrap();
    let totals = &last.state.totals;
    assert_eq!(
        (totals.rows, totals.duplicates, totals.rejected),
        (29, 6, 1)
    );
    assert_eq!(
        totals.children,
        [("items".to_owned(), 30), ("parts".to_owned(), 24)].into()
    );
    let items = Name::new("items").unwrap();
    let versions: Vec<u32> = entries
        .iter()
        .map(|e| e.children[&items].schema.version.get())
        .collect();
    assert_eq!(versions, [1, 1, 2, 2, 3, 4]);
    assert!(entries.iter().all(|entry| entry.schema.version.get() == 1));
    let landed: u64 = entries
        .iter()
        .flat_map(|e| &e.children[&items].files)
        .map(|f| f.rows)
        .sum();
    assert_eq!(landed, 30);
    let mut sums = LogSums::default();
    entries.iter().for_each(|entry| sums.add(entry));
    let report = source_report(
        &config(),
        &landing(&root, &config().name),
        entries.last(),
        sums,
        Requests::default(),
    )
    .await;
    assert_eq!(report.children, totals.children);
    let bytes = |of: fn(&CommitEntry) -> Vec<&DataFile>| -> u64 {
        entries.iter().flat_map(of).map(|file| file.bytes).sum()
    };
    let children = bytes(|entry| {
        entry
            .children
            .values()
            .flat_map(|table| &table.files)
            .collect()
    });
    assert_eq!(
        report.bytes,
        bytes(|entry| entry.files.iter().collect()) + children
    );
}

#[tokio::test(start_paused = true)]
async fn killed_at_any_write_it_goes_on_to_the_same_bytes() {
    let expected = undisturbed().await;
    assert!(
        expected
            .keys()
            .any(|path| path.starts_with("children/parts/"))
    );
    for (operation, path, effect) in [
        (Operation::Put, "data/", Effect::FailBefore),
        (Operation::Put, "children/items/", Effect::FailBefore),
        (Operation::Put, "children/items/", Effect::FailAfter),
        (Operation::Put, "children/parts/", Effect::FailBefore),
        (Operation::Put, "children/parts/", Effect::FailAfter),
        (Operation::Create, "log/", Effect::FailBefore),
    ] {
        for batch in 0..6 {
            let root = Store::memory();
            let faults = Faults::new(vec![rule(operation, path, effect, batch, 99)]);
            run(&root.with_faults(faults), &config(), &mut scripted())
                .await
                .unwrap_err();
            run(&root, &config(), &mut scripted()).await.unwrap();
            assert_eq!(
                snapshot(&root).await,
                expected,
                "{operation:?} {path} {batch}"
            );
        }
    }
}

#[tokio::test]
async fn killed_at_any_page_it_goes_on_to_the_same_bytes() {
    let expected = undisturbed().await;
    for page in 0..12 {
        let root = Store::memory();
        let mut broken = Scripted {
            broken: Some(page),
            ..scripted()
        };
        run(&root, &config(), &mut broken).await.unwrap_err();
        run(&root, &config(), &mut scripted()).await.unwrap();
        assert_eq!(snapshot(&root).await, expected, "killed at page {page}");
    }
}

#[tokio::test]
async fn a_source_without_child_tables_has_no_word_of_them_in_its_log() {
    let root = Store::memory();
    run(&root, &super::config(), &mut super::scripted())
        .await
        .unwrap();
    for file in root.list("landing/s/log").await.unwrap() {
        let text = String::from_utf8(root.get(&file.path).await.unwrap().to_vec()).unwrap();
        assert!(!text.contains("children"), "{text}");
    }
}

/// A pipeline of three files of orders, one batch each.
fn pipeline(folder: &std::path::Path) -> PipelineConfig {
    for i in 0..3 {
        let line = format!("{{\"id\":{i},\"items\":[{{\"n\":{i}}}]}}\n");
        std::fs::write(folder.join(format!("{i}.ndjson")), line).unwrap();
    }
    let text = format!(
        "[pipeline]\nname = \"p\"\n[[source]]\nname = \"s\"\ntype = \"files\"\nurl = \"{}/*.ndjson\"\nbatch = {{ rows = 1 }}\n\
         [source.contract.children.items]\n",
        folder.display()
    );
    load("p.toml", &text, &[]).unwrap().config
}

#[tokio::test]
async fn a_child_file_that_is_damaged_is_found_and_landed_again() {
    let folder = tempfile::tempdir().unwrap();
    let config = pipeline(folder.path());
    let root = Store::memory();
    ingest(&config, None, &context(&root)).await.unwrap();
    let whole = snapshot(&root).await;
    let files = root.list("landing/s/children/items").await.unwrap();
    assert_eq!(files.len(), 3);
    root.put(&files[1].path, Bytes::from_static(b"x"))
        .await
        .unwrap();
    let report = repair(&config, None, &context(&root), false).await.unwrap();
    let damage = report.sources[0].damage.as_ref().unwrap();
    assert!(
        damage.contains("children/items/") && damage.contains("has the hash"),
        "{damage}"
    );
    assert_eq!(report.sources[0].kept, 1);
    ingest(&config, None, &context(&root)).await.unwrap();
    assert_eq!(snapshot(&root).await, whole);
}

#[tokio::test]
async fn a_table_that_cannot_be_names_source_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = pipeline(folder.path());
    config.source[0].contract.required = vec!["items".into()];
    let error = ingest(&config, None, &context(&Store::memory()))
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("`source.0.contract.children.items.path`: the list `items` is a table"),
        "{error}"
    );
}
