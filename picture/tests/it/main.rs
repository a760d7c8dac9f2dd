//! Real, broken and mutated pictures through the public interface.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod allocations;
mod files;
mod mutations;
mod pillow;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use feedline_picture::{
    Encoding, Filter, PictureError, PictureLimits, Preparation, Prepared, Preparer, Sizing,
};
use feedline_schemas::pnm::Pnm;

/// A folder of the shared pictures, or `None` (with a message) where it is absent.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn shared(folder: &str) -> Option<PathBuf> {
    let data = std::env::var_os("FEEDLINE_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"),
        PathBuf::from,
    );
    let path = data.join("images").join(folder);
    if path.is_dir() {
        return Some(path);
    }
    eprintln!("skipped: the pictures `{folder}` are not in `FEEDLINE_DATA`");
    None
}

/// The picture files of a folder, by name.
fn pictures(folder: &Path) -> BTreeMap<String, Vec<u8>> {
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

/// Every picture anew as its pixels.
fn raw(sizing: Sizing) -> Preparation {
    Preparation {
        sizing,
        filter: Filter::Bilinear,
        encoding: Some(Encoding::Raw),
        keep_original: false,
        limits: PictureLimits::DEFAULT,
        scaled_decoding: false,
        hashes: false,
    }
}

fn prepare(how: Preparation, file: &[u8]) -> Result<Prepared, PictureError> {
    Preparer::new(how).prepare(file)
}

/// Pixels of a raw file, u8 RGB.
fn pixels(prepared: &Prepared) -> Vec<u8> {
    let picture = Pnm::parse(prepared.file.as_ref().unwrap()).unwrap();
    assert_eq!([picture.width, picture.height], prepared.sides);
    match picture.channels {
        1 => picture.pixels.iter().flat_map(|grey| [*grey; 3]).collect(),
        _ => picture.pixels.to_vec(),
    }
}

fn mean_difference(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| u64::from(a.abs_diff(*b)));
    differences.sum::<u64>() as f64 / a.len() as f64
}
