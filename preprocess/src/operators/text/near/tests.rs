//! Clusters against a plain reference, in any order, from any number of threads, in memory and on disk.

use std::{collections::BTreeMap, path::Path, thread};

use feedline_schemas::{config::NearDupConfig, units::ByteSize};
use proptest::prelude::*;

use super::{Clusters, Entry, Index, Signer, Sketch, shingles::mixed, sign::jaccard};

/// A document of `words`, with some that differ from its family.
fn document(family: u64, words: u64, changed: &[u64]) -> String {
    let word = |i: u64| match changed.contains(&i) {
        true => format!("x{family}y{i}z{} ", changed.len()),
        false => format!("w{} ", mixed(family * 10_000 + i) % 5000),
    };
    (0..words).map(word).collect()
}

/// 40 families of up to 5 documents that differ in a word more each, so that some are nearly the same and others not.
fn collection() -> Vec<(u64, String)> {
    let mut documents = Vec::new();
    for family in 0..40 {
        for copy in 0..family % 6 {
            let changed: Vec<u64> = (0..copy).map(|i| 7 + i * 13).collect();
            documents.push((family * 100 + copy, document(family, 60 + family, &changed)));
        }
    }
    documents
}

fn config(memory: u64) -> NearDupConfig {
    NearDupConfig {
        memory: ByteSize::new(memory),
        ..NearDupConfig::default()
    }
}

fn entry(id: u64) -> Entry {
    Entry {
        is_frozen: false,
        id,
        group: 0,
    }
}

/// Clusters of documents that `threads` threads sketch and add as they get to it.
fn cluster(config: &NearDupConfig, documents: &[(u64, String)], threads: usize) -> Clusters {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("near");
    let index = std::sync::Mutex::new(Index::new(config, &at).unwrap());
    let signer = Signer::new(config);
    let each = documents.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        for part in documents.chunks(each) {
            let (index, signer) = (&index, &signer);
            scope.spawn(move || {
                for (id, text) in part {
                    let sketch = signer.sketch(text);
                    index
                        .lock()
                        .unwrap()
                        .add(entry(*id), mixed(*id), &sketch)
                        .unwrap();
                }
            });
        }
    });
    let clusters = index.into_inner().unwrap().cluster().unwrap();
    assert!(!at.exists(), "the folder is removed");
    clusters
}

/// The first document of the cluster of each document that is not first itself.
fn firsts(clusters: &Clusters) -> BTreeMap<u64, u64> {
    clusters
        .members
        .iter()
        .map(|member| (member.id, member.first.id))
        .collect()
}

/// All pairs, one by one.
fn by_force(config: &NearDupConfig, documents: &[(u64, String)]) -> BTreeMap<u64, u64> {
    let signer = Signer::new(config);
    let sets: Vec<(u64, Vec<u64>)> = documents
        .iter()
        .map(|(id, text)| (*id, signer.sketch(text).set))
        .collect();
    let mut first: BTreeMap<u64, u64> = documents.iter().map(|(id, _)| (*id, *id)).collect();
    for (i, (a, left)) in sets.iter().enumerate() {
        for (b, right) in &sets[i + 1..] {
            if jaccard(left, right) >= config.threshold {
                let (low, high) = (first[a].min(first[b]), first[a].max(first[b]));
                first
                    .values_mut()
                    .filter(|f| **f == high)
                    .for_each(|f| *f = low);
            }
        }
    }
    first
        .into_iter()
        .filter(|(id, first)| id != first)
        .collect()
}

#[test]
fn clusters_are_the_components_of_the_near_pairs() {
    // A threshold far below most of the similar pairs, so that no band is missed.
    let config = NearDupConfig {
        threshold: 0.6,
        ..config(1 << 20)
    };
    let documents = collection();
    let found = cluster(&config, &documents, 1);
    let expected = by_force(&config, &documents);
    assert!(expected.len() > 50);
    assert_eq!(firsts(&found), expected);
    assert_eq!(found.documents, documents.len() as u64);
    assert!(found.clusters > 10 && found.largest == 5, "{found:?}");
}

#[test]
fn spilled_clusters_are_those_in_memory() {
    let documents = collection();
    let all = cluster(&config(64 << 20), &documents, 1);
    assert!(all.clusters > 10);
    // Half a kilobyte for bands and as much for sets: files for nearly everything.
    assert_eq!(cluster(&config(1 << 10), &documents, 1), all);
    assert_eq!(cluster(&config(100_000), &documents, 1), all);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn clusters_depend_on_no_order_no_threads_and_no_memory(
        documents in Just(collection()).prop_shuffle(),
        threads in 1..6_usize,
        memory in 1_u64..200_000,
    ) {
        let mut sorted = documents.clone();
        sorted.sort();
        let expected = cluster(&config(64 << 20), &sorted, 1);
        let found = cluster(&config(memory), &documents, threads);
        prop_assert_eq!(&found.members, &expected.members);
        prop_assert_eq!(found.clusters, expected.clusters);
    }
}

/// A hub: one band for all, since all but a few words are one boilerplate; and groups of copies among them.
fn hub() -> Vec<(u64, String)> {
    let boilerplate = document(1, 200, &[]);
    let own = |group: u64| {
        (0..12)
            .map(|i| format!("own{group}x{i} "))
            .collect::<String>()
    };
    (0..400)
        .map(|i| (i, format!("{boilerplate}{}", own(i % 50))))
        .collect()
}

#[test]
fn a_hub_is_checked_in_a_star_and_no_copy_is_kept() {
    // 216 n-grams, 192 shared between groups: 0.8 between two of them, so a threshold above it
    // separates groups.
    let config = NearDupConfig {
        threshold: 0.9,
        ..config(1 << 20)
    };
    let documents = hub();
    let found = cluster(&config, &documents, 1);
    assert!(found.hubs > 0);
    // No star has a centre for each of 50 groups, but a group of copies shares bands that are no hubs.
    assert_eq!(firsts(&found), by_force(&config, &documents));
    let mut other: Vec<(u64, String)> = documents;
    other.reverse();
    assert_eq!(cluster(&config, &other, 3).members, found.members);
}

#[test]
fn what_a_star_leaves_out_is_found_once_the_copies_of_its_centres_are_gone() {
    let config = config(1 << 20);
    let folder = tempfile::tempdir().unwrap();
    // One band for all. `group` says which document is like which, `key` in which order they are looked at.
    let cluster = |documents: u64, group: fn(u64) -> u64, key: fn(u64) -> u64| {
        let mut index = Index::new(&config, &folder.path().join("near")).unwrap();
        for id in 0..documents {
            let sketch = Sketch {
                set: (0..5).map(|member| group(id) * 5 + member).collect(),
                bands: vec![7],
            };
            index.add(entry(id), key(id), &sketch).unwrap();
        }
        index.cluster().unwrap()
    };
    // 20 groups of 4, more groups than a star has centres.
    let found = cluster(80, |id| id % 20, mixed);
    assert_eq!(
        (found.hubs, found.clusters, found.members.len()),
        (1, 20, 60)
    );
    assert!(firsts(&found).iter().all(|(id, first)| *first == id % 20));
    // Two alike among 100, near no centre: the limit of stars, which is counted.
    let found = cluster(100, |id| id.min(98), |id| id);
    assert_eq!((found.hubs, found.clusters), (1, 0));
}

#[test]
fn a_document_near_two_centres_joins_both() {
    let config = config(1 << 20);
    let folder = tempfile::tempdir().unwrap();
    let mut index = Index::new(&config, &folder.path().join("near")).unwrap();
    let mut add = |id: u64, set: std::ops::Range<u64>| {
        let sketch = Sketch {
            set: set.collect(),
            bands: vec![7],
        };
        index.add(entry(id), id, &sketch).unwrap();
    };
    // 0 and 1 share 8 of 12 members, 2 shares 9 of 11 with either.
    add(0, 0..10);
    add(1, 2..12);
    add(2, 1..11);
    for id in 3..70 {
        add(id, id * 100..id * 100 + 10);
    }
    let found = index.cluster().unwrap();
    assert_eq!(found.hubs, 1);
    assert_eq!(firsts(&found), BTreeMap::from([(1, 0), (2, 0)]));
}

#[test]
fn frozen_documents_are_centres_before_others() {
    let config = config(1 << 20);
    let folder = tempfile::tempdir().unwrap();
    let mut index = Index::new(&config, &folder.path().join("near")).unwrap();
    let mut add = |id: u64, is_frozen: bool, set: u64| {
        let sketch = Sketch {
            set: (set * 10..set * 10 + 10).collect(),
            bands: vec![7],
        };
        let group = 0;
        let entry = Entry {
            is_frozen,
            id,
            group,
        };
        index.add(entry, id, &sketch).unwrap();
    };
    for id in 0..80 {
        add(id, false, id);
    }
    add(100, true, 79);
    let found = index.cluster().unwrap();
    assert_eq!(firsts(&found), BTreeMap::from([(79, 100)]));
    assert_eq!((found.clusters, found.largest), (1, 1));
}

#[test]
fn a_star_looks_at_few_pairs() {
    let documents: Vec<(u64, String)> = (0..500).map(|id| (id, document(3, 80, &[]))).collect();
    let found = cluster(&config(1 << 20), &documents, 2);
    assert_eq!(
        (found.clusters, found.largest, found.verified),
        (1, 500, 499)
    );
}

#[test]
fn empty_texts_are_near_to_nothing() {
    let texts = ["", " ", "?!", "one", "one", "two words"];
    let documents: Vec<(u64, String)> = (0..).zip(texts.map(str::to_owned)).collect();
    let found = cluster(&config(1 << 20), &documents, 1);
    assert_eq!((found.empty, found.documents), (3, 6));
    assert_eq!(firsts(&found), BTreeMap::from([(4, 3)]));
}

#[test]
fn frozen_documents_are_first_whatever_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(1 << 20);
    let signer = Signer::new(&config);
    let mut index = Index::new(&config, folder.path()).unwrap();
    let mut add = |id: u64, is_frozen: bool, group: u8, text: &str| {
        let entry = Entry {
            is_frozen,
            id,
            group,
        };
        index.add(entry, id, &signer.sketch(text)).unwrap();
    };
    add(1, false, 2, "the same words in one order");
    add(5, true, 0, "the same words in one order");
    add(5, false, 0, "The same words, in one order");
    add(9, true, 0, "the same words in one order");
    add(6, false, 1, "words of another text altogether");
    let found = index.cluster().unwrap();
    let first = Entry {
        is_frozen: true,
        id: 5,
        group: 0,
    };
    let members: Vec<(u64, Entry)> = found.members.iter().map(|m| (m.id, m.first)).collect();
    assert_eq!(members, [(1, first), (5, first)]);
    assert_eq!(found.member(5).map(|m| m.first), Some(first));
    assert_eq!(found.member(6), None);
    assert!(!Path::new(folder.path()).exists());
}

#[test]
fn only_large_clusters_can_be_too_large() {
    let clusters = |largest, documents| Clusters {
        largest,
        documents,
        ..Clusters::default()
    };
    assert!(clusters(1001, 2000).is_chained(0.05));
    assert!(!clusters(1000, 1000).is_chained(0.05));
    assert!(!clusters(5000, 100_000).is_chained(0.05));
    assert!(clusters(5001, 100_000).is_chained(0.05));
}
