//! Picture files in folders to a trained model.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::support::{pipeline, run, shared_data};

/// Copies the pictures of a shared folder. False where it is absent.
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
    // With a licence and a table beside them, which are no pictures.
    if !copied("photos", &album.join("photo")) || !copied("bccd", &album.join("blood")) {
        return;
    }
    let text = "[pipeline]\nname = \"album\"\nroot = \"out\"\n\
         [[source]]\nname = \"album\"\ntype = \"files\"\nformat = \"picture\"\nurl = \"album\"\n\
         [dataset]\nkind = \"pictures\"\ntarget = \"folder\"\ntask = \"classification\"\n\
         picture = { store = \"jpeg\", resize = \"crop\", size = 40, duplicates = \"look_alikes\" }\n\
         split = { train = 0.6, validation = 0.2, test = 0.2 }\n\
         shards = { block_bytes = \"4 KiB\" }\n\
         [train]\nmodel = { type = \"cnn\", channels = [6], hidden = [8] }\nbatch_size = 16\nepochs = 12\n\
         learning_rate = 0.01\npictures = { height = 32, width = 32 }\n";
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
fn a_decoder_of_pictures_starts_in_little_address_space_whatever_the_number_of_cores() {
    let mut decoder = Command::new("/bin/sh")
        .args(["-c", "ulimit -v 524288 && exec \"$0\" decode-pictures"])
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
        said.contains("the build that wanted pictures is gone"),
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
fn pictures_decoded_in_processes_of_their_own_make_the_same_shards() {
    let folder = tempfile::tempdir().unwrap();
    if !copied("odd", &folder.path().join("odd")) {
        return;
    }
    let build = |isolate: bool| {
        let root = format!("out-{isolate}");
        let text = format!(
            "[pipeline]\nname = \"odd\"\nroot = \"{root}\"\n\
             [[source]]\nname = \"odd\"\ntype = \"files\"\nformat = \"picture\"\nurl = \"odd\"\n\
             [dataset]\nkind = \"pictures\"\nmax_reject_share = 0.5\n\
             picture = {{ store = \"png\", resize = \"exact\", size = 24, isolate = {isolate} }}\n"
        );
        let file = pipeline(folder.path(), &text);
        run(folder.path(), &["ingest", file, "--json"]).expect(0);
        // Some are set aside: done with quarantined data.
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
        here.0["picture_unsupported"].as_u64(),
        Some(2),
        "{:?}",
        here.0
    );
    assert_eq!(build(true), here);
}
