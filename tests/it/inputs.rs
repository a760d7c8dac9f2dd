//! Images and texts from files to a trained model.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use feedline_loader::{Loader, LoaderConfig, Seed, Split, TokenLayout, TokensConfig};
use feedline_preprocess::{Column, RowFormat, RowsOut};
use feedline_storage::{Store, StoreOptions, clock::SystemClock};
use serde_json::Value;

use crate::support::{Random, pipeline, run, shared_data};

/// An idx file of unsigned bytes.
fn idx(dimensions: &[u32], values: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, u8::try_from(dimensions.len()).unwrap()];
    bytes.extend(dimensions.iter().flat_map(|d| d.to_be_bytes()));
    bytes.extend(values);
    bytes
}

/// Images of 8 x 8 pixels with a horizontal or vertical bright bar on noise; their class says
/// which.
fn write_bars(folder: &Path, count: u32) {
    let mut random = Random(7);
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (class, at) = (random.below(2), random.below(8));
        labels.push(u8::try_from(class).unwrap());
        for place in 0..64 {
            let on_bar = at == if class == 0 { place / 8 } else { place % 8 };
            let value = random.below(100) + if on_bar { 150 } else { 0 };
            pixels.push(u8::try_from(value).unwrap());
        }
    }
    fs::write(folder.join("images"), idx(&[count, 8, 8], &pixels)).unwrap();
    fs::write(folder.join("labels"), idx(&[count], &labels)).unwrap();
}

/// Runs a pipeline, and the same once more: that finds all of it done.
fn run_twice(folder: &Path, text: &str) -> Value {
    let arguments = ["run", pipeline(folder, text), "--json"];
    let first = run(folder, &arguments).expect(0).json();
    let second = run(folder, &arguments).expect(0).json();
    assert_eq!(second["dataset"]["up_to_date"], true);
    assert_eq!(second["train"]["test"], first["train"]["test"]);
    let verified = run(folder, &["shards", "verify", "out/dataset", "--json"]).expect(0);
    assert_eq!(verified.json()["problems"], Value::Array(vec![]));
    first
}

#[test]
fn a_network_learns_the_classes_of_idx_images() {
    let folder = tempfile::tempdir().unwrap();
    write_bars(folder.path(), 900);
    for model in [
        "type = \"cnn\", channels = [4], hidden = [8]",
        "type = \"mlp\", hidden = [32]",
    ] {
        let text = format!(
            "[pipeline]\nname = \"bars\"\nroot = \"out\"\n\
             [[source]]\nname = \"bars\"\ntype = \"files\"\nformat = \"idx\"\nurl = \"images\"\n\
             idx = {{ labels = \"labels\" }}\n\
             [dataset]\nkind = \"images\"\ntarget = \"label\"\ntask = \"classification\"\n\
             shards = {{ block_bytes = \"4 KiB\" }}\n\
             [train]\nmodel = {{ {model} }}\nbatch_size = 64\nepochs = 15\nlearning_rate = 0.01\n\
             images = {{ height = 8, width = 8, channels = 1 }}\n"
        );
        let report = run_twice(folder.path(), &text);
        let dataset = &report["dataset"];
        assert_eq!(
            (&dataset["rows_in"], &dataset["duplicates"]),
            (&900.into(), &0.into())
        );
        let accuracy = report["train"]["test"]["accuracy"].as_f64().unwrap();
        assert!(accuracy > 0.9, "{model}: {accuracy}");
    }
}

#[test]
fn a_transformer_learns_a_text_by_its_characters() {
    let folder = tempfile::tempdir().unwrap();
    // Words of three letters that follow from their first: two of three characters can be known.
    let mut random = Random(3);
    let words = ["abc ", "def ", "ghi ", "jkl "];
    let word = |_| words[usize::try_from(random.below(4)).unwrap()];
    let text: String = (0..3000).map(word).collect();
    fs::write(folder.path().join("words.txt"), &text).unwrap();
    let config = "[pipeline]\nname = \"words\"\nroot = \"out\"\n\
         [[source]]\nname = \"words\"\ntype = \"files\"\nformat = \"text\"\nurl = \"words.txt\"\n\
         [dataset]\nkind = \"characters\"\nsplit = { by = \"range\" }\n\
         [train]\nbatch_size = 16\nepochs = 6\nlearning_rate = 0.01\n\
         model = { type = \"transformer\", layers = 1, width = 16, heads = 2, context = 16 }\n";
    let report = run_twice(folder.path(), config);
    let tokens = &report["dataset"]["tokens"];
    let counts = ["train", "validation", "test", "unknown"].map(|key| tokens[key].as_u64());
    assert_eq!(counts, [9600, 1200, 1200, 0].map(Some));
    // Of four characters one is a choice of four, the others are certain: ln 4 / 4 = 0.35 per character.
    let loss = report["train"]["test"]["cross_entropy"].as_f64().unwrap();
    assert!(loss < 0.6, "{loss}");
}

/// The pieces of documents in the rows of a pass over a split, as counts of (id, its position in the document).
pub(crate) fn pieces(
    dataset: &Store,
    split: Split,
    tokens: TokensConfig,
) -> BTreeMap<(u32, u32), u64> {
    let config = LoaderConfig {
        tokens: Some(tokens),
        ..LoaderConfig::new(split, Seed::new(1), 8)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let opening = Loader::open(dataset, &config, Arc::new(SystemClock));
    let loader = runtime.block_on(opening).unwrap();
    let mut counts = BTreeMap::new();
    // Rows of a stream begin with the id that the one before ended with.
    let mut is_first = true;
    for batch in loader.sequential().unwrap() {
        let batch = batch.unwrap();
        let rows = batch.tokens().chunks(tokens.length as usize);
        let marks = batch.segments().chunks(tokens.length as usize);
        let marks = marks.zip(batch.positions().chunks(tokens.length as usize));
        for (ids, (segments, positions)) in rows.zip(marks) {
            let again = usize::from(tokens.layout == TokenLayout::Filled && !is_first);
            is_first = false;
            let each = ids.iter().zip(segments).zip(positions).skip(again);
            for ((id, _), position) in each.filter(|((_, segment), _)| **segment > 0) {
                *counts.entry((*id, *position)).or_default() += 1;
            }
        }
    }
    counts
}

#[test]
fn texts_become_tokens_that_are_each_read_once_and_learnt() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(11);
    let sentences = [
        "the cat sat on the mat. ",
        "a dog ran to the old house. ",
        "café, 12 o'clock! ",
    ];
    fs::create_dir(folder.path().join("texts")).unwrap();
    for number in 0..300 {
        let length = 1 + random.below(6);
        let sentence = |_| sentences[usize::try_from(random.below(3)).unwrap()];
        let text: String = (0..length).map(sentence).collect();
        let file = folder.path().join(format!("texts/{number:03}.txt"));
        fs::write(file, format!("{number} {text}")).unwrap();
    }
    for pack in ["best_fit", "fill"] {
        let config = format!(
            "[pipeline]\nname = \"tales\"\nroot = \"out-{pack}\"\n\
             [[source]]\nname = \"tales\"\ntype = \"files\"\nformat = \"text\"\nurl = \"texts/*.txt\"\n\
             [dataset]\nkind = \"tokens\"\nshards = {{ block_bytes = \"4 KiB\" }}\n\
             tokens = {{ vocabulary = 320, window = 24, pack = \"{pack}\" }}\n\
             [train]\nbatch_size = 8\nepochs = 6\nlearning_rate = 0.01\n\
             model = {{ type = \"transformer\", layers = 1, width = 16, heads = 2 }}\n"
        );
        let report = run(
            folder.path(),
            &["run", pipeline(folder.path(), &config), "--json"],
        );
        let report = report.expect(0).json();
        let tokens = &report["dataset"]["tokens"];
        // All but the number of a text and which of three sentences comes next can be known; all ids alike are 5.8.
        let loss = report["train"]["test"]["cross_entropy"].as_f64().unwrap();
        assert!(loss < 3.0, "{pack}: {loss}");
        // What the training leaves open is the dataset's word.
        let runs = fs::read_dir(folder.path().join(format!("out-{pack}/train"))).unwrap();
        let records = runs.filter_map(|run| fs::read(run.unwrap().path().join("run.json")).ok());
        let records: Vec<Value> = records
            .map(|record| serde_json::from_slice(&record).unwrap())
            .collect();
        assert_eq!(records.len(), 1);
        assert_eq!(records[0]["config"]["model"]["context"], 24);
        assert_eq!(records[0]["config"]["loader"]["pack"], pack);

        let url = folder.path().join(format!("out-{pack}/dataset"));
        let dataset = Store::open(url.to_str().unwrap(), &StoreOptions::default()).unwrap();
        let mut all = 0;
        for (split, name) in Split::ALL.into_iter().zip(["train", "validation", "test"]) {
            // In rows that hold the longest document, packing cuts none.
            let whole = pieces(&dataset, split, TokensConfig::new(4096));
            let packed = pieces(&dataset, split, TokensConfig::new(25));
            let filled = TokensConfig::new(25).with_layout(TokenLayout::Filled);
            assert_eq!(whole, packed);
            assert_eq!(whole, pieces(&dataset, split, filled));
            let read: u64 = whole.values().sum();
            assert_eq!(tokens[name].as_u64(), Some(read));
            all += read;
        }
        assert!(all > 300 * 10, "{all}");
    }
}

/// The shared data, built as the examples say.
fn build_example(name: &str, settings: &[String]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/{name}.toml"));
    for command in [["ingest"].as_slice(), &["shards", "build"]] {
        let mut arguments = command.to_vec();
        arguments.extend([example.to_str().unwrap(), "--json"]);
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        let report = run(folder.path(), &arguments).expect(0).json();
        if command[0] == "shards" {
            return report;
        }
    }
    unreachable!("the last command builds shards")
}

#[test]
fn fashion_mnist_is_stored_whole() {
    let (Some(images), Some(labels)) = (
        shared_data("images/fashion-mnist/train36k-images-idx3-ubyte.gz"),
        shared_data("images/fashion-mnist/train36k-labels-idx1-ubyte.gz"),
    ) else {
        return;
    };
    let settings = [
        format!("source.0.url={}", images.display()),
        format!("source.0.idx.labels={}", labels.display()),
    ];
    let report = build_example("images/fashion", &settings);
    let count = |key: &str| report[key].as_u64().unwrap();
    assert_eq!(
        (count("rows_in"), count("duplicates"), count("rejected")),
        (36_000, 0, 0)
    );
    assert_eq!(count("train") + count("validation") + count("test"), 36_000);
}

#[test]
fn tiny_shakespeare_is_stored_whole_and_in_order() {
    let Some(text) = shared_data("text/tiny_shakespeare.txt.gz") else {
        return;
    };
    let settings = [format!("source.0.url={}", text.display())];
    let report = build_example("text/shakespeare", &settings);
    let counts = ["train", "validation", "test"].map(|key| report["tokens"][key].as_u64());
    // The first nine tenths are the 1,003,854 characters that nanoGPT trains on.
    assert_eq!(counts, [1_003_854, 55_770, 55_770].map(Some));
    assert_eq!(report["tokens"]["unknown"], 0);
}

#[test]
fn columns_that_are_no_numbers_are_said_to_be_left_out_when_a_table_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut bytes = Vec::new();
    let names = ["size", "district", "note"].map(str::to_owned);
    let mut out = RowsOut::new(&mut bytes, RowFormat::Parquet, &names).unwrap();
    let text = |text: &str| Column::Text(vec![Some(text.to_owned()); 300]);
    let size = Column::Long((0..300).map(|i| Some(f64::from(i))).collect());
    out.write(vec![size, text("north"), text("nice")]).unwrap();
    out.finish().unwrap();
    fs::create_dir(folder.join("table")).unwrap();
    fs::write(folder.join("table/a.parquet"), bytes).unwrap();
    let done = run(folder, &["bench", "loader", "table", "--json"]).expect(0);
    let report = done.json();
    assert_eq!(report["kind"], "rows of 1 f32", "{report}");
    let warnings = report["warnings"].as_array().unwrap();
    let is_one_about = |parts: &[&str]| {
        let all = |text: &str| parts.iter().all(|part| text.contains(part));
        let texts = warnings.iter().filter_map(Value::as_str);
        texts.filter(|text| all(text)).count() == 1
    };
    assert_eq!(warnings.len(), 2, "{report}");
    let left_out = [
        "left out",
        "`district` (Utf8), `note` (Utf8)",
        "`columns.x`",
    ];
    assert!(is_one_about(&left_out), "{report}");
    assert!(is_one_about(&["no target", "`columns.y`"]), "{report}");
    assert!(done.stderr.contains("left out"), "{}", done.stderr);
}
