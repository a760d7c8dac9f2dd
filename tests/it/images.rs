//! Image files in folders to a trained model.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use feedline_testkit::png::encode_rgb;

use crate::support::{pipeline, python, run, shared_data};

/// Copies the images of a shared folder. False where it is absent.
fn copied(name: &str, to: &Path) -> bool {
    let Some(from) = shared_data(&format!("images/{name}")) else {
        return false;
    };
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
    true
}

#[test]
fn a_network_learns_the_folders_that_photographs_lie_in() {
    let folder = tempfile::tempdir().unwrap();
    let album = folder.path().join("album");
    // With a licence and a table beside them, which are no images.
    if !copied("photos", &album.join("photo")) || !copied("bccd", &album.join("blood")) {
        return;
    }
    let text = "[pipeline]\nname = \"album\"\nroot = \"out\"\n\
         [[source]]\nname = \"album\"\ntype = \"files\"\nformat = \"image\"\nurl = \"album\"\n\
         [dataset]\nkind = \"images\"\ntarget = \"folder\"\ntask = \"classification\"\n\
         image = { store = \"jpeg\", resize = \"crop\", size = 40, duplicates = \"perceptual\" }\n\
         split = { train = 0.6, validation = 0.2, test = 0.2 }\n\
         shards = { block_bytes = \"4 KiB\" }\n\
         [train]\nmodel = { type = \"cnn\", channels = [6], hidden = [8] }\nbatch_size = 16\nepochs = 12\n\
         learning_rate = 0.01\nimages = { height = 32, width = 32 }\n";
    let report = run(
        folder.path(),
        &["run", pipeline(folder.path(), text), "--json"],
    );
    let report = report.expect(0).json();
    let dataset = &report["dataset"];
    assert_eq!(
        (&dataset["rows_in"], &dataset["rejected"]),
        (&108.into(), &0.into())
    );
    let accuracy = report["train"]["test"]["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.8, "{accuracy}");
    let verified = run(
        folder.path(),
        &["shards", "verify", "out/dataset", "--json"],
    )
    .expect(0);
    assert!(verified.json()["problems"].as_array().unwrap().is_empty());
}

/// A runtime's threads, one for each core, would take more address space than a decoder has.
#[test]
fn a_decoder_of_images_starts_in_little_address_space_whatever_the_number_of_cores() {
    let mut decoder = Command::new("/bin/sh")
        .args(["-c", "ulimit -v 524288 && exec \"$0\" decode-images"])
        .arg(env!("CARGO_BIN_EXE_feedline"))
        .env_clear()
        .env("TOKIO_WORKER_THREADS", "512")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Not a conversation: it says so, and ends.
    decoder
        .stdin
        .take()
        .unwrap()
        .write_all(&[2, 0, 0, 0, b'n', b'o'])
        .unwrap();
    let output = decoder.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("the build that wanted images is gone"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(1));
}

/// Paths of all files below a folder. Those of shards hold the hash of what they name.
fn below(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => below(&path),
            false => BTreeSet::from([path]),
        })
        .collect()
}

#[test]
fn images_decoded_in_processes_of_their_own_make_the_same_shards() {
    let folder = tempfile::tempdir().unwrap();
    if !copied("odd", &folder.path().join("odd")) {
        return;
    }
    let build = |isolate: bool| {
        let root = format!("out-{isolate}");
        let text = format!(
            "[pipeline]\nname = \"odd\"\nroot = \"{root}\"\n\
             [[source]]\nname = \"odd\"\ntype = \"files\"\nformat = \"image\"\nurl = \"odd\"\n\
             [dataset]\nkind = \"images\"\nmax_reject_fraction = 0.5\n\
             image = {{ store = \"png\", resize = \"exact\", size = 24, isolate = {isolate} }}\n"
        );
        let file = pipeline(folder.path(), &text);
        run(folder.path(), &["ingest", file, "--json"]).expect(0);
        // Some are rejected: done with quarantined data.
        let report = run(folder.path(), &["shards", "build", file, "--json"]);
        let report = report.expect(0).json();
        let shards = folder.path().join(root).join("dataset/shards");
        let paths = below(&shards).into_iter();
        let paths: Vec<_> = paths
            .map(|path| path.strip_prefix(&shards).unwrap().to_owned())
            .collect();
        (report["rejected_by_reason"].clone(), paths)
    };
    let here = build(false);
    assert_eq!(
        here.0["image_unsupported"].as_u64(),
        Some(2),
        "{:?}",
        here.0
    );
    assert_eq!(build(true), here);
}

/// An image of 12 x 12 pixels, red or blue with noise.
fn ppm(i: u32) -> Vec<u8> {
    let mut state = u64::from(i) + 1;
    let mut noise = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u8::try_from(state >> 58).unwrap()
    };
    let mut file = b"P6\n12 12\n255\n".to_vec();
    for _ in 0..144 {
        let pixel = match i % 2 {
            0 => [150 + noise(), noise(), noise()],
            _ => [noise(), noise(), 150 + noise()],
        };
        file.extend(pixel);
    }
    file
}

#[test]
fn predictions_of_image_files_are_those_that_eval_makes_and_a_broken_file_keeps_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for class in ["red", "blue"] {
        fs::create_dir_all(folder.join("album").join(class)).unwrap();
    }
    for i in 0..120 {
        let class = ["red", "blue"][usize::from(i % 2 == 1)];
        fs::write(folder.join(format!("album/{class}/{i}.ppm")), ppm(i)).unwrap();
    }
    fs::write(folder.join("album/red/broken.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    let text = "[pipeline]\nname = \"album\"\nroot = \"out\"\n\
         [[source]]\nname = \"album\"\ntype = \"files\"\nformat = \"image\"\nurl = \"album\"\n\
         [dataset]\nkind = \"images\"\ntarget = \"folder\"\ntask = \"classification\"\n\
         image = { store = \"png\", resize = \"exact\", size = 8 }\n\
         split = { train = 0.6, validation = 0.2, test = 0.2 }\n\
         [train]\nmodel = { type = \"cnn\", channels = [4], hidden = [8] }\nbatch_size = 16\nepochs = 4\n\
         learning_rate = 0.01\nimages = { height = 8, width = 8, augment = true }\n";
    let file = pipeline(folder, text);
    run(folder, &["run", file]).expect(0);
    run(folder, &["eval", file, "--predictions", "test.ndjson"]).expect(0);
    let lines = |name: &str| -> Vec<serde_json::Value> {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let predict = ["predict", file, "album", "--to", "all.ndjson", "--json"];
    let report = run(folder, &predict).expect(0).json();
    assert_eq!(
        (&report["rows"], &report["rejected"]),
        (&121.into(), &1.into()),
        "{report}"
    );
    // The folder is read in the same order both times.
    let (measured, predicted) = (lines("test.ndjson"), lines("all.ndjson"));
    assert_eq!(predicted.len(), 121);
    assert!(measured.len() > 10);
    for line in &measured {
        let row = usize::try_from(line["row"].as_u64().unwrap()).unwrap();
        let own = &predicted[row];
        let path = own["path"].as_str().unwrap();
        assert!(
            path.starts_with(line["truth"].as_str().unwrap()),
            "{line} {own}"
        );
        for column in ["prediction", "probability=blue", "probability=red"] {
            assert_eq!(own[column], line[column], "{line} {own}");
        }
    }
    let broken = predicted
        .iter()
        .find(|line| line["path"] == "red/broken.png");
    let broken = broken.unwrap();
    assert_eq!(broken["error"], "row_rejected", "{broken}");
    let detail = broken["detail"].as_str().unwrap();
    assert!(detail.starts_with("`red/broken.png`: `image_"), "{broken}");
    // A broken file alone, with the reason and not with an error of the build.
    let alone = ["predict", file, "album/red/broken.png", "--json"];
    let alone = run(folder, &alone).expect(1);
    let line: serde_json::Value = serde_json::from_str(alone.stdout.trim()).unwrap();
    assert_eq!(
        (&line["row"], &line["error"], &line["prediction"]),
        (&0.into(), &"row_rejected".into(), &serde_json::Value::Null),
        "{line}"
    );
    assert_eq!(line["path"], "broken.png");
    assert_eq!(line["detail"], detail.replace("red/broken", "broken"));
    // One file alone, and another way of decoding than the dataset's.
    let one = run(folder, &["predict", file, "album/blue/7.ppm"]).expect(0);
    assert!(one.stdout.contains("\"prediction\":\"blue\""), "{one:?}");
    let other = ["predict", file, "album", "--set", "dataset.image.size=9"];
    let refused = run(folder, &other).expect(2).stderr;
    assert!(refused.contains("`dataset`"), "{refused}");
}

/// The image of [`ppm`] as a PNG.
fn png(i: u32) -> Vec<u8> {
    let pixels = ppm(i).split_off(b"P6\n12 12\n255\n".len());
    encode_rgb(&pixels, 12)
}

/// Writes 90 images of two classes, of which 6 end early.
fn write_album_with_broken_files(folder: &Path) {
    for class in ["red", "blue"] {
        fs::create_dir_all(folder.join("album").join(class)).unwrap();
    }
    for i in 0..90 {
        let class = ["red", "blue"][usize::from(i % 2 == 1)];
        let mut file = png(i);
        let is_broken = i % 15 == 7;
        file.truncate(file.len() - usize::from(is_broken) * 99);
        let name = if is_broken { "broken-" } else { "" };
        fs::write(folder.join(format!("album/{class}/{name}{i}.png")), file).unwrap();
    }
}

/// Without `[dataset.image]` files are stored as they landed, so the loader is the first to decode them.
#[test]
fn an_image_that_cannot_be_decoded_is_in_no_metric_and_has_no_prediction_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_album_with_broken_files(folder);
    let text = "[pipeline]\nname = \"album\"\nroot = \"out\"\n\
         [[source]]\nname = \"album\"\ntype = \"files\"\nformat = \"image\"\nurl = \"album\"\n\
         [dataset]\nkind = \"images\"\ntarget = \"folder\"\ntask = \"classification\"\n\
         split = { train = 0.6, validation = 0.2, test = 0.2 }\n\
         [train]\nmodel = { type = \"cnn\", channels = [4], hidden = [8] }\nbatch_size = 16\nepochs = 2\n\
         learning_rate = 0.01\nimages = { height = 8, width = 8 }\nloader = { max_bad_fraction = 0.5 }\n";
    let file = pipeline(folder, text);
    let report = run(folder, &["run", file, "--json"]).expect(0).json();
    let train = &report["train"];
    assert_eq!(train["quarantined"], 6, "{train}");
    let warnings = train["warnings"].as_array().unwrap().iter();
    let said: Vec<_> = warnings
        .filter(|w| w["code"] == "unusable_samples")
        .collect();
    assert!(!said.is_empty(), "{train}");
    assert!(
        said.iter()
            .all(|w| w["key"] == "train.loader.max_bad_fraction")
    );
    let mut keys = BTreeSet::new();
    let (mut rows, mut quarantined) = (0, 0);
    for split in ["train", "validation", "test"] {
        let out = format!("{split}.ndjson");
        let eval = [
            "eval",
            file,
            "--split",
            split,
            "--predictions",
            &out,
            "--json",
        ];
        let measured = run(folder, &eval).expect(0).json();
        rows += measured["rows"].as_u64().unwrap();
        quarantined += measured["quarantined"].as_u64().unwrap_or(0);
        for line in fs::read_to_string(folder.join(&out)).unwrap().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(
                keys.insert(line["key"].as_str().unwrap().to_owned()),
                "{line}"
            );
        }
    }
    assert_eq!((rows, quarantined, keys.len()), (84, 6, 84));
    let predict = ["predict", file, "album", "--to", "all.ndjson", "--json"];
    let report = run(folder, &predict).expect(0).json();
    assert_eq!(
        (&report["rows"], &report["rejected"]),
        (&90.into(), &6.into()),
        "{report}"
    );
    let lines = fs::read_to_string(folder.join("all.ndjson")).unwrap();
    for (row, line) in lines.lines().enumerate() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let path = line["path"].as_str().unwrap();
        assert_eq!(line["row"], row);
        assert_eq!(
            path.contains("broken"),
            line["error"] == "row_rejected",
            "{line}"
        );
        if path.contains("broken") {
            let detail = line["detail"].as_str().unwrap();
            assert!(detail.starts_with(&format!("`{path}`: `image_")), "{line}");
            assert!(line["prediction"].is_null(), "{line}");
        }
    }
    // Few images are no other case.
    let few = run(folder, &["predict", file, "album/blue/broken-7.png"]).expect(1);
    assert!(few.stdout.contains("image_"), "{few:?}");
}

#[test]
fn images_are_named_by_the_classes_that_their_run_was_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for class in ["red", "blue"] {
        fs::create_dir_all(folder.join("album").join(class)).unwrap();
    }
    for i in 0..120 {
        let class = ["red", "blue"][usize::from(i % 2 == 1)];
        fs::write(folder.join(format!("album/{class}/{i}.ppm")), ppm(i)).unwrap();
    }
    let text = |classes: &str| {
        format!(
            "[pipeline]\nname = \"album\"\nroot = \"out\"\n\
             [[source]]\nname = \"album\"\ntype = \"files\"\nformat = \"image\"\nurl = \"album\"\n\
             [dataset]\nkind = \"images\"\ntarget = \"folder\"\ntask = \"classification\"\n\
             classes = [{classes}]\nimage = {{ store = \"png\", resize = \"exact\", size = 8 }}\n\
             split = {{ train = 0.6, validation = 0.2, test = 0.2 }}\n\
             [train]\nmodel = {{ type = \"cnn\", channels = [4], hidden = [8] }}\nbatch_size = 16\nepochs = 15\n\
             learning_rate = 0.01\nimages = {{ height = 8, width = 8 }}\n"
        )
    };
    let file = pipeline(folder, &text("\"red\", \"blue\""));
    run(folder, &["run", file]).expect(0);
    let predict = ["predict", file, "album/blue/7.ppm"];
    let before = run(folder, &predict).expect(0).stdout;
    assert!(
        before.contains("\"prediction\":\"blue\",\"probability=red\""),
        "{before}"
    );
    // The dataset gives the classes other ids, and the model keeps its own.
    pipeline(folder, &text("\"blue\", \"red\""));
    run(folder, &["shards", "build", file]).expect(0);
    assert_eq!(run(folder, &predict).expect(0).stdout, before);
}

#[test]
fn copies_of_an_image_with_another_label_are_counted_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for class in ["red", "blue"] {
        fs::create_dir_all(folder.join("album").join(class)).unwrap();
    }
    for i in 0..300 {
        let class = ["red", "blue"][usize::from(i % 2 == 1)];
        fs::write(folder.join(format!("album/{class}/{i}.ppm")), ppm(i)).unwrap();
    }
    // The same bytes, and the same pixels in other bytes; a copy with its own label is none.
    fs::write(folder.join("album/blue/x0.ppm"), ppm(0)).unwrap();
    let commented = [b"P6\n# again\n", &ppm(2)[3..]].concat();
    fs::write(folder.join("album/blue/x2.ppm"), commented).unwrap();
    fs::write(folder.join("album/red/x4.ppm"), ppm(4)).unwrap();
    let file = pipeline(
        folder,
        "[pipeline]\nname = \"album\"\nroot = \"out\"\n\
         [[source]]\nname = \"album\"\ntype = \"files\"\nformat = \"image\"\nurl = \"album\"\n\
         [dataset]\nkind = \"images\"\ntarget = \"folder\"\ntask = \"classification\"\n\
         image = { store = \"png\" }\ndedup = \"exact\"\n",
    );
    run(folder, &["ingest", file]).expect(0);
    let built = run(folder, &["shards", "build", file, "--json"])
        .expect(0)
        .json();
    assert_eq!(
        (&built["rows_in"], &built["duplicates"]),
        (&303.into(), &3.into()),
        "{built}"
    );
    assert_eq!(
        built["conflicts"],
        serde_json::json!({ "contents": 2, "rows": 4 })
    );
    let warnings = built["warnings"].as_array().unwrap();
    let warning = warnings.iter().find(|w| w["code"] == "labels_differ");
    let warning = warning.unwrap_or_else(|| panic!("{built}"));
    assert_eq!(warning["key"], "dataset.dedup");
    let message = warning["message"].as_str().unwrap();
    assert!(
        message.contains("2 images") && message.contains("`folder`") && message.contains("`blue`"),
        "{message}"
    );
}

#[test]
fn images_of_a_frozen_source_are_the_test_split_and_their_perceptual_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (place, range) in [("album", 0..200), ("exam", 200..240)] {
        for i in range {
            let class = ["red", "blue"][usize::from(i % 2 == 1)];
            fs::create_dir_all(folder.join(place).join(class)).unwrap();
            fs::write(folder.join(format!("{place}/{class}/{i}.ppm")), ppm(i)).unwrap();
        }
    }
    // Of the exam: the same bytes, and the same pixels in other bytes.
    fs::write(folder.join("album/red/x200.ppm"), ppm(200)).unwrap();
    let commented = [b"P6\n# again\n", &ppm(202)[3..]].concat();
    fs::write(folder.join("album/red/x202.ppm"), commented).unwrap();
    let file = pipeline(
        folder,
        "[pipeline]\nname = \"album\"\nroot = \"out\"\n\
         [[source]]\nname = \"exam\"\ntype = \"files\"\nformat = \"image\"\nurl = \"exam\"\n\
         [[source]]\nname = \"album\"\ntype = \"files\"\nformat = \"image\"\nurl = \"album\"\n\
         [dataset]\nkind = \"images\"\ntarget = \"folder\"\ntask = \"classification\"\n\
         image = { store = \"png\" }\n\
         split = { frozen = \"exam\", train = 0.8, validation = 0.2, test = 0 }\n\
         [train]\nmodel = { type = \"cnn\", channels = [4], hidden = [8] }\nbatch_size = 16\nepochs = 2\n\
         images = { height = 12, width = 12 }\n",
    );
    let report = run(folder, &["run", file, "--json"]).expect(0).json();
    let built = &report["dataset"];
    assert_eq!(
        (
            &built["test"],
            &built["rejected"],
            &built["filtered"]["of_frozen"]
        ),
        (&40.into(), &0.into(), &2.into()),
        "{built}"
    );
    let learnt = built["train"].as_u64().unwrap() + built["validation"].as_u64().unwrap();
    assert_eq!(learnt, 200);
    let shown = run(folder, &["shards", "verify", "out/dataset", "--json"])
        .expect(0)
        .json();
    assert_eq!(shown["leaked_keys"], 0, "{shown}");
    // A plan speaks of the classes that there are.
    let planned = run(folder, &["plan", file]).expect(0).stdout;
    assert!(planned.contains(" of 2 classes in a batch"), "{planned}");
}

/// Writes 90 images of 8 x 8 pixels, red or blue, into a column of bytes and into one as Hugging Face's datasets have it.
const IMAGE_TABLE: &str = r"
import random, struct, sys, zlib
import pyarrow as pa, pyarrow.parquet as pq
random.seed(1)
def chunk(kind, data):
    body = kind + data
    return struct.pack('>I', len(data)) + body + struct.pack('>I', zlib.crc32(body))
def png(label):
    def pixel():
        noise = [random.randrange(80) for _ in range(3)]
        noise[0 if label == 'red' else 2] += 150
        return bytes(noise)
    rows = b''.join(b'\0' + b''.join(pixel() for _ in range(8)) for _ in range(8))
    head = struct.pack('>IIBBBBB', 8, 8, 8, 2, 0, 0, 0)
    parts = (chunk(b'IHDR', head), chunk(b'IDAT', zlib.compress(rows)), chunk(b'IEND', b''))
    return b'\x89PNG\r\n\x1a\n' + b''.join(parts)
labels = ['red' if i % 2 else 'blue' for i in range(90)]
images = [png(label) for label in labels]
plain = pa.table({'image': pa.array(images, pa.binary()), 'label': labels})
pq.write_table(plain, sys.argv[1] + '/plain.parquet')
inside = [{'bytes': image, 'path': f'photo{i}.png'} for i, image in enumerate(images)]
of = pa.struct([('bytes', pa.binary()), ('path', pa.string())])
pq.write_table(pa.table({'image': pa.array(inside, of), 'label': labels}), sys.argv[1] + '/inside.parquet')
for i in range(4):
    open(f'{sys.argv[1]}/new/{i}.png', 'wb').write(images[i])
";

#[test]
fn a_parquet_column_of_images_is_built_and_trained_from_bytes_and_from_a_struct() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let Some(mut python) = python("pyarrow.parquet") else {
        return;
    };
    fs::create_dir(folder.join("new")).unwrap();
    let written = python.args(["-c", IMAGE_TABLE]).arg(folder).status();
    assert!(written.unwrap().success());
    for (name, column, content) in [
        ("plain", "image", "image"),
        ("inside", "image.bytes", "image"),
        ("inside", "image.bytes", "image.bytes"),
    ] {
        let text = format!(
            "[pipeline]\nname = \"table\"\nroot = \"{name}-{content}\"\n\
             [[source]]\nname = \"table\"\ntype = \"files\"\nurl = \"{name}.parquet\"\n\
             [dataset]\nkind = \"images\"\ncontent = \"{content}\"\ntarget = \"label\"\n\
             task = \"classification\"\nimage = {{ store = \"png\", resize = \"exact\", size = 8 }}\n\
             split = {{ train = 0.6, validation = 0.2, test = 0.2 }}\n\
             [train]\nmodel = {{ type = \"cnn\", channels = [4], hidden = [8] }}\nbatch_size = 8\nepochs = 8\n\
             learning_rate = 0.02\nimages = {{ height = 8, width = 8 }}\n"
        );
        let file = pipeline(folder, &text);
        let landed = run(folder, &["ingest", file, "--json"]).expect(0).json();
        let warning = &landed["sources"][0]["warnings"][0];
        assert_eq!(warning["code"], "image_as_bytes", "{landed}");
        assert_eq!(warning["key"], "contract.column.<name>.type");
        let message = warning["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("`{column}`:")), "{message}");
        let built = run(folder, &["shards", "build", file, "--json"]).expect(0);
        let built = built.json();
        assert_eq!(
            (&built["rows_in"], &built["rejected"]),
            (&90.into(), &0.into()),
            "{built}"
        );
        let trained = run(folder, &["train", file, "--json"]).expect(0).json();
        let accuracy = trained["test"]["accuracy"].as_f64().unwrap();
        assert!(accuracy > 0.8, "{name}: {accuracy}");
        // Image files are in no column of Parquet, and the model takes them.
        let predict = ["predict", file, "new", "--to", "new.ndjson", "--json"];
        let predicted = run(folder, &predict).expect(0).json();
        assert_eq!(
            (&predicted["rows"], &predicted["rejected"]),
            (&4.into(), &0.into()),
            "{predicted}"
        );
        if name == "inside" {
            let predict = ["predict", file, "inside.parquet", "--to", "inside.ndjson"];
            run(folder, &predict).expect(0);
            let lines = fs::read_to_string(folder.join("inside.ndjson")).unwrap();
            let paths = lines.lines().map(|line| {
                let row: serde_json::Value = serde_json::from_str(line).unwrap();
                row["path"].as_str().unwrap_or_default().to_owned()
            });
            let expected: Vec<String> = (0..90).map(|i| format!("photo{i}.png")).collect();
            assert_eq!(paths.collect::<Vec<_>>(), expected);
        }
    }
    let init = ["init", "inside.parquet", "--to", "written.toml", "--json"];
    let report = run(folder, &init).expect(0).json();
    assert_eq!(report["target"], "label", "{report}");
    let written = fs::read_to_string(folder.join("written.toml")).unwrap();
    let lines = "kind = \"images\"\ncontent = \"image.bytes\"\ntarget = \"label\"\ntask = \"classification\"\n";
    assert!(written.contains(lines), "{written}");
    run(folder, &["check", "written.toml"]).expect(0);
}
