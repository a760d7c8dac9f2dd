//! Measures tokenizing on one thread: our own encoder, and the `tokenizers` library as the build runs it.
//!
//! `cargo bench -p feedline-preprocess --bench tokens -- TOKENIZER TEXT [SECONDS [PYTHON PEER]]`. `TOKENIZER` is a
//! `tokenizer.json` of GPT-2's kind, `TEXT` a text file, which is divided at empty lines into
//! documents of about 4 KiB. Each
//! line is the best of the passes over all of it that `SECONDS` (default 5) have room for, in MB/s (10^6 bytes a second).
//! With `PYTHON` and `PEER`, a script that takes `tiktoken` or `hf` and prints its rate over the same text, those run
//! after ours. Without arguments there is nothing to measure, and it says so.
#![expect(
    clippy::unwrap_used,
    reason = "a failed step of the setup ends the bench"
)]
#![expect(clippy::print_stdout, reason = "results are for a person")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use feedline_preprocess::Tokenizer;

/// Bytes of a document, about.
const DOCUMENT: usize = 4096;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let [tokenizer, text, rest @ ..] = &*arguments else {
        println!("nothing is measured: name a tokenizer.json and a text");
        return;
    };
    let file = fs::read(tokenizer).unwrap();
    let text = fs::read_to_string(text).unwrap();
    let documents = documents(&text);
    let bytes: usize = documents.iter().map(String::len).sum();
    println!("{} documents, {bytes} bytes", documents.len());
    let seconds = rest.first().map_or(5.0, |seconds| seconds.parse().unwrap());
    let budget = Duration::from_secs_f64(seconds);
    let ours = Tokenizer::new(&file).unwrap();
    if let Some(reason) = ours.library_reason() {
        println!("our own encoder does not take it: {reason}");
        return;
    }
    let library = Tokenizer::by_library(&file).unwrap();
    let expected = measure("ours", &ours, &documents, bytes, budget);
    let found = measure("library", &library, &documents, bytes, budget);
    assert_eq!(found, expected, "both give the same ids");
    if let [_, python, peer, ..] = rest {
        for name in ["tiktoken", "hf"] {
            let output = Command::new(python).args([peer, name]).output().unwrap();
            let output = String::from_utf8_lossy(&output.stdout).into_owned();
            println!("{}", output.trim().lines().last().unwrap_or("no output"));
        }
    }
}

/// The text, cut at empty lines.
fn documents(text: &str) -> Vec<String> {
    let (mut documents, mut document) = (Vec::new(), Vec::new());
    let mut held = 0;
    for paragraph in text.split("\n\n") {
        document.push(paragraph);
        held += paragraph.len() + 2;
        if held >= DOCUMENT {
            documents.push(document.join("\n\n"));
            document.clear();
            held = 0;
        }
    }
    if !document.is_empty() {
        documents.push(document.join("\n\n"));
    }
    documents
}

/// Prints the best rate, and returns the ids of one pass.
fn measure(
    name: &str,
    tokenizer: &Tokenizer,
    documents: &[String],
    bytes: usize,
    budget: Duration,
) -> Vec<u32> {
    let start = Instant::now();
    let mut best = Duration::MAX;
    let mut ids = Vec::new();
    loop {
        ids.clear();
        let pass = Instant::now();
        for document in documents {
            tokenizer.encode(document, &mut ids).unwrap();
        }
        best = best.min(pass.elapsed());
        if start.elapsed() >= budget {
            break;
        }
    }
    let bytes = u32::try_from(bytes).map_or(f64::NAN, f64::from);
    let rate = bytes / 1e6 / best.as_secs_f64();
    println!("{name:<8} {rate:>7.1} MB/s, {} tokens", ids.len());
    ids
}
