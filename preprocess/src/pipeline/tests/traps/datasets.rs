//! The same for a dataset as a whole: which rows are the same row, and what of a published one is refused.

use std::collections::BTreeMap;

use feedline_schemas::manifest::Split;

use super::*;
use crate::{shards::manifest::republish, verify};

#[tokio::test]
async fn trap_31_another_salt_or_seed_is_another_dataset() {
    let root = Store::memory();
    let rows: Vec<Cells> = (0..200).map(|i| vec![json!(f64::from(i))]).collect();
    LandingZone::new(&root, "a", &[("a", Float64)])
        .batch(&rows)
        .await;
    let mut seen = Vec::new();
    for keys in [
        "",
        "split = { salt = \"other\" }\n",
        "shards = { seed = 7 }\n",
    ] {
        let report = finished(&root, keys, 2).await.unwrap().report;
        assert!(!report.up_to_date, "{keys}");
        assert!(!seen.contains(&report.fingerprint), "{keys}");
        // Shards of the previous dataset are in the same folder, and none of them is taken for one
        // of these.
        let found = verify(&root.child("dataset")).await.unwrap();
        assert_eq!((found.rows, found.problems), (200, Vec::new()));
        seen.push(report.fingerprint);
    }
}

#[tokio::test]
async fn trap_31_shards_of_another_transform_are_refused_though_they_are_whole() {
    let rows: Vec<Cells> = (0..60).map(|i| vec![json!(f64::from(i))]).collect();
    let mut built = Vec::new();
    for steps in ["step = []\n", "step = [{ type = \"min_max\" }]\n"] {
        let root = Store::memory();
        LandingZone::new(&root, "a", &[("a", Float64)])
            .batch(&rows)
            .await;
        finished(&root, &format!("{ALL}{steps}"), 1).await.unwrap();
        built.push(root.child("dataset"));
    }
    let (ours, theirs) = (&built[0], &built[1]);
    let mut manifest = read_manifest(ours).await.unwrap();
    let foreign = read_manifest(theirs).await.unwrap();
    let shards = foreign.split(Split::Train).unwrap().shards.clone();
    for shard in &shards {
        let bytes = theirs.get(&shard.path).await.unwrap();
        ours.put(&shard.path, bytes).await.unwrap();
    }
    // As many rows of as many features, and each has the hash that is listed.
    manifest.splits[0].shards = shards;
    manifest.fingerprint = manifest.compute_fingerprint();
    republish(ours, &manifest).await.unwrap();
    let problems = verify(ours).await.unwrap().problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].contains("its schema is not the one the manifest describes"),
        "{problems:?}"
    );
}

#[tokio::test]
async fn trap_32_the_rows_that_are_kept_follow_from_their_content_however_they_landed() {
    let rows: Vec<Cells> = (0..300)
        .map(|i| vec![json!(f64::from(i % 120)), json!(i % 40)])
        .collect();
    let mut found: Vec<BTreeMap<u64, (Split, Vec<f32>)>> = Vec::new();
    for (batch, reversed) in [(300, false), (7, false), (31, true)] {
        let mut rows = rows.clone();
        if reversed {
            rows.reverse();
        }
        let root = Store::memory();
        let mut zone = LandingZone::new(&root, "a", &[("a", Float64), ("b", Int64)]);
        for rows in rows.chunks(batch) {
            zone.batch(rows).await;
        }
        let built = finished(&root, "", 2).await.unwrap();
        assert_eq!((built.report.duplicates, built.rows.len()), (180, 120));
        let rows = built.rows.into_iter();
        found.push(rows.map(|row| (row.key, (row.split, row.x))).collect());
    }
    assert_eq!(found[0].len(), 120);
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
}

#[tokio::test]
async fn trap_40_an_artefact_of_another_version_or_cut_short_is_refused_by_name() {
    let root = Store::memory();
    let rows: Vec<Cells> = (0..60).map(|i| vec![json!(f64::from(i))]).collect();
    LandingZone::new(&root, "a", &[("a", Float64)])
        .batch(&rows)
        .await;
    finished(&root, ALL, 1).await.unwrap();
    let dataset = root.child("dataset");
    let manifest = read_manifest(&dataset).await.unwrap();
    let path = &manifest.transform.path;
    let whole = String::from_utf8(dataset.get(path).await.unwrap().to_vec()).unwrap();
    let newer = whole.replacen("\"version\": 2", "\"version\": 99", 1);
    let other = whole.replacen("\"feedline.transform\"", "\"feedline.other\"", 1);
    let half = whole[..whole.len() / 2].to_owned();
    for (changed, part) in [
        (
            newer,
            "version `99`, this build reads `feedline.transform` up to version `2`",
        ),
        (other, "it says format `feedline.other`"),
        (half, "the file is damaged"),
        (String::new(), "the file is damaged"),
    ] {
        assert_ne!(changed, whole);
        dataset.put(path, changed.into()).await.unwrap();
        let message = read_transform(&dataset, &manifest)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            message.contains(part) && message.contains(path.as_str()),
            "{message}"
        );
    }
}
