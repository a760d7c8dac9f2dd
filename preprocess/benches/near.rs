//! Measures near-duplicates: sketches per second, and documents to clusters end to end, on one thread and on several.
//!
//! `cargo bench -p feedline-preprocess --bench near [-- DOCUMENTS THREADS [DOCS.jsonl TRUTH.json [HASHES]]]`, by default
//! 100,000 documents on two threads, and signatures of the default's hashes. `DOCS.jsonl` has one `{"id", "text"}` a line, `TRUTH.json` the planted pairs as
//! `[source, copy, edit rate, similarity]`, as the generator of the comparison with other tools writes them. Without them
//! documents are generated: about 500 words each from a vocabulary of Zipf's law, a tenth of them copies in which 0, 1,
//! 2, 5, 10 or 20 of 100 words are others.
//!
//! `cargo bench -p feedline-preprocess --bench near -- DOCUMENTS THREADS index` leaves texts out: it fills an index with
//! sketches of five n-grams and says how much memory 100 million documents take.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of the setup ends the bench"
)]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "figures and draws are small"
)]
#![expect(clippy::print_stdout, reason = "results are for a person")]

use std::{
    collections::HashMap,
    fs,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use feedline_preprocess::text::near::{Clusters, Entry, Index, Signer, Sketch};
use feedline_schemas::config::NearDupConfig;

const VOCABULARY: u64 = 30_000;
const EDITS: [f64; 6] = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2];

/// Documents, and which of them are copies: `(source, copy, edit rate)`.
struct Collection {
    texts: Vec<String>,
    copies: Vec<(usize, usize, f64)>,
}

fn main() {
    let is_bench = std::env::args().any(|a| a == "--bench");
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let number = |at: usize| arguments.get(at).and_then(|a| a.parse().ok());
    let documents = number(0).unwrap_or(if is_bench { 100_000 } else { 60 });
    let threads = number(1).unwrap_or(2).max(1);
    if arguments.get(2).is_some_and(|what| what == "index") {
        return index(documents as u64);
    }
    let collection = match (arguments.get(2), arguments.get(3)) {
        (Some(texts), Some(truth)) => read(texts, truth),
        _ => generated(documents),
    };
    let mut config = NearDupConfig::default();
    config.hashes = number(4).map_or(config.hashes, |hashes| hashes as u32);
    let bytes: usize = collection.texts.iter().map(String::len).sum();
    let megabytes = bytes as f64 / 1e6;
    println!(
        "{} documents, {megabytes:.1} MB, {} copies",
        collection.texts.len(),
        collection.copies.len()
    );
    let mut counts = vec![1];
    counts.extend((threads > 1).then_some(threads));
    for threads in counts {
        let report = |what: &str, took: Duration| {
            let rate = megabytes / took.as_secs_f64();
            let each = rate / threads as f64;
            println!("{what}, {threads} threads: {rate:8.1} MB/s, {each:8.1} MB/s a thread");
        };
        report("sketches", sketch(&config, &collection.texts, threads));
        let (took, clusters) = cluster(&config, &collection.texts, threads);
        report("end to end", took);
        println!(
            "{:.0} documents/s, {} clusters, {} pairs verified, {} hubs",
            collection.texts.len() as f64 / took.as_secs_f64(),
            clusters.clusters,
            clusters.verified,
            clusters.hubs
        );
        found(&collection, &clusters);
    }
}

/// Sketches all texts and keeps none.
fn sketch(config: &NearDupConfig, texts: &[String], threads: usize) -> Duration {
    let signer = Signer::new(config);
    let started = now();
    thread::scope(|scope| {
        for part in texts.chunks(texts.len().div_ceil(threads)) {
            let signer = &signer;
            scope.spawn(move || {
                part.iter()
                    .map(|text| signer.sketch(text).bands.len())
                    .sum::<usize>()
            });
        }
    });
    started.elapsed()
}

/// Texts to clusters.
fn cluster(config: &NearDupConfig, texts: &[String], threads: usize) -> (Duration, Clusters) {
    let signer = Signer::new(config);
    let folder = tempfile::tempdir().unwrap();
    let started = now();
    let index = Mutex::new(Index::new(config, &folder.path().join("near")).unwrap());
    let each = texts.len().div_ceil(threads);
    thread::scope(|scope| {
        for (part, texts) in texts.chunks(each).enumerate() {
            let (signer, index) = (&signer, &index);
            scope.spawn(move || {
                for (i, text) in texts.iter().enumerate() {
                    let id = (part * each + i) as u64;
                    let entry = Entry {
                        is_frozen: false,
                        id,
                        group: 0,
                    };
                    let sketch = signer.sketch(text);
                    index
                        .lock()
                        .unwrap()
                        .add(entry, mixed(id), &sketch)
                        .unwrap();
                }
            });
        }
    });
    let clusters = index.into_inner().unwrap().cluster().unwrap();
    (started.elapsed(), clusters)
}

/// Sketches without texts to clusters; every tenth is a copy of the one before it.
fn index(documents: u64) {
    let config = NearDupConfig::default();
    let scheme = Signer::new(&config).scheme();
    let folder = tempfile::tempdir().unwrap();
    let started = now();
    let mut index = Index::new(&config, &folder.path().join("near")).unwrap();
    let mut sketch = Sketch::default();
    for id in 0..documents {
        let content = id - u64::from(id % 10 == 9);
        sketch.set.clear();
        sketch
            .set
            .extend((0..5).map(|member| mixed(content * 5 + member)));
        sketch.set.sort_unstable();
        sketch.bands.clear();
        let bands = 0..scheme.bands as u64;
        sketch
            .bands
            .extend(bands.map(|band| mixed(mixed(content) ^ band)));
        let entry = Entry {
            is_frozen: false,
            id,
            group: 0,
        };
        index.add(entry, mixed(id), &sketch).unwrap();
    }
    let filled = started.elapsed();
    let clusters = index.cluster().unwrap();
    assert_eq!(clusters.clusters, documents / 10);
    println!(
        "{documents} documents: filled in {:.1} s, clustered in {:.1} s, {}",
        filled.as_secs_f64(),
        (started.elapsed() - filled).as_secs_f64(),
        peak_memory()
    );
}

/// Peak memory of this process, if the system reports it.
fn peak_memory() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    peak.map_or_else(|| "peak memory unknown".to_owned(), str::to_owned)
}

/// Prints the number of modified duplicates in one cluster with their source, by the fraction that
/// was changed.
fn found(collection: &Collection, clusters: &Clusters) {
    let first = |i: usize| {
        let member = clusters.member(i as u64);
        member.map_or(i as u64, |member| member.first.id)
    };
    for edit in EDITS {
        let copies = collection
            .copies
            .iter()
            .filter(|copy| copy.2.total_cmp(&edit).is_eq());
        let together = copies.clone().filter(|copy| first(copy.0) == first(copy.1));
        println!(
            "  {:4.0} % of the words changed: {} of {} copies found",
            edit * 100.0,
            together.count(),
            copies.count()
        );
    }
}

/// Reads the output of the comparison's generator.
fn read(texts: &str, truth: &str) -> Collection {
    let lines = fs::read_to_string(texts).unwrap();
    let text = |line: &str| {
        let document: HashMap<String, String> = serde_json::from_str(line).unwrap();
        document["text"].clone()
    };
    let truth: Vec<(usize, usize, f64, f64)> =
        serde_json::from_slice(&fs::read(truth).unwrap()).unwrap();
    Collection {
        texts: lines.lines().map(text).collect(),
        copies: truth
            .into_iter()
            .map(|pair| (pair.0, pair.1, pair.2))
            .collect(),
    }
}

/// Documents of this bench's own.
fn generated(documents: usize) -> Collection {
    let copies = documents / 10;
    let originals = documents - copies;
    let mut words: Vec<Vec<u64>> = (0..originals as u64)
        .map(|document| {
            let draw = |i: u64| mixed(mixed(document) ^ i);
            let length = 360 + (0..4).map(|i| draw((1 << 40) | i) % 71).sum::<u64>();
            (0..length).map(|i| zipf(draw(i))).collect()
        })
        .collect();
    let mut truth = Vec::new();
    for copy in 0..copies {
        let source = mixed(copy as u64) as usize % originals;
        let edit = EDITS[copy % EDITS.len()];
        let changed = (0..).zip(&words[source]).map(|(i, word)| {
            let draw = mixed(i + ((copy as u64) << 20));
            let is_other = (draw >> 11) as f64 / (1_u64 << 53) as f64 <= edit && edit > 0.0;
            if is_other {
                VOCABULARY + draw % VOCABULARY
            } else {
                *word
            }
        });
        let changed = changed.collect();
        truth.push((source, words.len(), edit));
        words.push(changed);
    }
    Collection {
        texts: words.iter().map(|words| text(words)).collect(),
        copies: truth,
    }
}

/// A word by its rank: uniform in the logarithm of the rank.
fn zipf(draw: u64) -> u64 {
    let share = (draw >> 11) as f64 / (1_u64 << 53) as f64;
    (VOCABULARY as f64).powf(share) as u64
}

/// Words as text: three to eight letters each, a full stop now and then.
fn text(words: &[u64]) -> String {
    let mut text = String::new();
    for word in words {
        let draw = mixed(*word);
        for letter in 0..3 + draw % 6 {
            text.push(char::from(b'a' + (mixed(draw ^ letter) % 26) as u8));
        }
        text.push_str(if draw.is_multiple_of(17) { ". " } else { " " });
    }
    text
}

fn mixed(value: u64) -> u64 {
    let value = (value ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (value ^ (value >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) ^ (value >> 32)
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn now() -> Instant {
    Instant::now()
}
