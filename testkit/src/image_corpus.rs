//! The shared images, and what is wrong with the odd ones of them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// A folder of the shared images, or `None` (with a message) where it is absent.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn shared(folder: &str) -> Option<PathBuf> {
    let data = std::env::var_os("FEEDLINE_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"),
        PathBuf::from,
    );
    let path = data.join("images").join(folder);
    if path.is_dir() {
        return Some(path);
    }
    eprintln!("skipped: the images `{folder}` are not in `FEEDLINE_DATA`");
    None
}

/// The image files of a folder, by name.
pub fn images(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name != "LICENSE" && !name.ends_with(".csv"))
        .map(|name| {
            let bytes = fs::read(folder.join(&name)).unwrap();
            (name, bytes)
        })
        .collect()
}

/// Kind of the error and a part of its message, for each file that cannot be decoded.
pub const REJECTED: &[(&str, &str, &str)] = &[
    ("broken_data_stream.png", "truncated", "it has no end chunk"),
    (
        "decompression_bomb.gif",
        "truncated",
        "it ends within a block",
    ),
    (
        "hopper_16bit.pgm",
        "unsupported",
        "a PGM or PPM with another",
    ),
    (
        "its_138d3b9e0d9f.jpg",
        "corrupt",
        "there is no marker at byte `2`",
    ),
    (
        "its_21a84b8472f6.jpg",
        "corrupt",
        "there is no marker at byte `2`",
    ),
    (
        "its_255015e07b6f.jpg",
        "corrupt",
        "there is no marker at byte `2`",
    ),
    (
        "its_39f43f280b31.jpg",
        "corrupt",
        "there is no marker at byte `2`",
    ),
    (
        "its_3cc4a7fc6481.jpg",
        "corrupt",
        "there is no marker at byte `2`",
    ),
    (
        "its_3ef055013150.jpg",
        "corrupt",
        "there is no marker at byte `2`",
    ),
    (
        "its_46e5ac4a62d7.jpg",
        "corrupt",
        "there is no marker at byte `2`",
    ),
    ("its_5633ed9d0eb7.jpg", "corrupt", ""),
    (
        "its_5482a5465776.jpg",
        "corrupt",
        "four components and Adobe's transform `199`",
    ),
    ("its_59d3b529c78a.jpg", "truncated", "it has no end marker"),
    ("testimgari.jpg", "unsupported", "an arithmetic-coded JPEG"),
    ("truncated.jpg", "truncated", "it has no end marker"),
    ("truncated.png", "truncated", "it has no end chunk"),
    ("truncated_image.png", "truncated", "it has no end chunk"),
    ("zero_width.gif", "truncated", "it ends within a block"),
];
