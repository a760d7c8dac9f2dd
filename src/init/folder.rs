//! The files of a folder that `init` reads.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::bail;
use feedline_image::{Format, Header, ImageLimits};
use feedline_readers::file_format::is_image;

use super::{
    location::{Content, FileClass, Location, UnlabelledImages, class_of},
    table_headers::describe_other_tables,
};
use crate::output::counted;

/// Maximum number of examined entries of a folder.
const MAX_ENTRIES: usize = 10_000;
/// Most endings that a message names of files that are not read.
const NAMED_ENDINGS: usize = 5;
/// Number of images whose size is read.
const MEASURED: usize = 32;

/// The files that a folder has most of, as the source `name`.
pub(super) fn of_folder(folder: &Path, given: &str, name: String) -> anyhow::Result<Location> {
    let (mut files, mut roots) = (Vec::new(), Vec::new());
    collect(folder, &mut files, &mut roots);
    let of_class = |class: FileClass| {
        let found = files
            .iter()
            .filter(move |path| class_of(&path.to_string_lossy()) == Some(class));
        found.collect::<Vec<_>>()
    };
    let (tables, images, texts) = (
        of_class(FileClass::Table),
        of_class(FileClass::Image),
        of_class(FileClass::Text),
    );
    let base = given.trim_end_matches('/');
    if images.len() >= tables.len().max(texts.len()) && !images.is_empty() {
        let (has_classes, unlabelled) = find_classes(folder, &images, files.len() < MAX_ENTRIES);
        let content = Content::Images { has_classes };
        // A source of images reads archives too.
        let is_other = |path: &&PathBuf| {
            let path = path.to_string_lossy();
            !is_image(&path) && class_of(&path) != Some(FileClass::Archive)
        };
        let others = files.iter().filter(is_other);
        return Ok(Location {
            left_out: left_out(others, "a source of images reads images alone", "read them"),
            shorter_side: shorter_side(&images),
            unlabelled,
            ..Location::plain(base, content, name)
        });
    }
    // Files of one ending are one table or one set of documents.
    let most = if tables.len() >= texts.len() {
        &tables
    } else {
        &texts
    };
    let Some(ending) = commonest_ending(most) else {
        bail!(
            "no file below `{given}` has an ending of a known format ({} looked at); name a file, or write the pipeline by hand",
            counted(files.len() as u64, "file")
        );
    };
    let is_flat = most.iter().all(|path| path.parent() == Some(folder));
    let pattern = match is_flat {
        true => format!("{base}/*{ending}"),
        false => format!("{base}/**/*{ending}"),
    };
    if !is_flat && let Some(root) = roots.iter().find(|root| has_ending(root, &ending)) {
        bail!(
            "`{pattern}` would read `{}` too, in which a pipeline keeps its own files; name the folder of the data, or move one of both",
            root.display()
        );
    }
    let content = match tables.len() >= texts.len() {
        true => Content::Table,
        false => Content::Texts { is_single: false },
    };
    let others = files
        .iter()
        .filter(|path| !path.to_string_lossy().ends_with(&ending));
    let other_tables = match ending.as_str() {
        ".csv" => {
            let read = most.iter().map(|path| path.as_path());
            let read = read.filter(|path| path.to_string_lossy().ends_with(&ending));
            describe_other_tables(folder, read)
        }
        _ => None,
    };
    Ok(Location {
        other_tables,
        left_out: left_out(
            others,
            "`source.url` names the commonest ending alone",
            "change it, or read them",
        ),
        ..Location::plain(&pattern, content, name)
    })
}

/// Returns true if nearly all images below `folder` are in folders of classes, and the other ones. `is_all` is true if no further
/// files exist, which may be in further folders.
fn find_classes(
    folder: &Path,
    images: &[&PathBuf],
    is_all: bool,
) -> (bool, Option<UnlabelledImages>) {
    let is_outside = |path: &&PathBuf| path.parent() == Some(folder);
    let images = images.iter().copied();
    let (outside, below): (Vec<&PathBuf>, Vec<&PathBuf>) = images.partition(is_outside);
    let names = below.iter().filter_map(|path| path.parent()?.file_name());
    let classes: BTreeSet<_> = names.collect();
    if classes.is_empty() || (classes.len() == 1 && is_all) {
        return (false, None);
    }
    let example = outside.first().and_then(|path| path.file_name());
    let unlabelled = example.map(|name| UnlabelledImages {
        count: outside.len() as u64,
        all: (outside.len() + below.len()) as u64,
        example: Some(name.to_string_lossy().into_owned()),
    });
    let are_few = unlabelled.as_ref().is_none_or(UnlabelledImages::are_few);
    (are_few, unlabelled)
}

/// Describes the `others`, files that are not read for this reason; `None` if there are none.
fn left_out<'a>(
    others: impl Iterator<Item = &'a PathBuf>,
    reason: &str,
    advice: &str,
) -> Option<String> {
    let mut counts: Vec<(String, usize)> = count_endings(others).into_iter().collect();
    let count: usize = counts.iter().map(|(_, count)| count).sum();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    let named = counts.iter().take(NAMED_ENDINGS);
    let named = named.map(|(end, count)| match end.as_str() {
        "" => format!("{count} without an ending"),
        end => format!("{count} `*{end}`"),
    });
    let named: Vec<String> = named.collect();
    let more = match counts.len() > NAMED_ENDINGS {
        true => " and others",
        false => "",
    };
    (count > 0).then(|| {
        format!(
            "{} of the folder {} not read, since {reason}: {}{more}; {advice} by another `[[source]]`",
            counted(count as u64, "file"),
            if count == 1 { "is" } else { "are" },
            named.join(", ")
        )
    })
}

/// Median of the shorter sides of images spread over `files`.
fn shorter_side(files: &[&PathBuf]) -> Option<u32> {
    let stride = files.len().div_ceil(MEASURED).max(1);
    let limits = ImageLimits::default();
    let measured = files.iter().step_by(stride).filter_map(|path| {
        let header = Header::read(&fs::read(path).ok()?, Format::ALL, &limits).ok()?;
        let (width, height) = header.upright_sides();
        Some(width.min(height))
    });
    let mut sides: Vec<u32> = measured.collect();
    sides.sort_unstable();
    sides.get(sides.len() / 2).copied()
}

fn commonest_ending(files: &[&PathBuf]) -> Option<String> {
    let counts = count_endings(files.iter().copied());
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(ending, _)| ending)
}

/// Number of files with each ending, such as `.csv.gz`.
fn count_endings<'a>(files: impl Iterator<Item = &'a PathBuf>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for name in files.filter_map(|file| file.file_name()) {
        let name = name.to_string_lossy();
        let packed = [".gz", ".zst"]
            .into_iter()
            .find(|end| name.ends_with(end))
            .unwrap_or("");
        let plain = name.strip_suffix(packed).unwrap_or(&name);
        let ending = plain.rfind('.').map_or("", |at| &plain[at..]);
        *counts.entry(format!("{ending}{packed}")).or_default() += 1;
    }
    counts
}

/// Returns true for the root of a pipeline: a folder with commit logs, which are at
/// `landing/SOURCE/log`, or with a dataset that was built.
fn is_root(folder: &Path) -> bool {
    let landing = fs::read_dir(folder.join("landing")).into_iter().flatten();
    let mut sources = landing.flatten().map(|entry| entry.path());
    sources.any(|source| source.join("log").is_dir()) || folder.join("dataset/CURRENT").is_file()
}

/// Returns true if a file below `folder` has the ending.
fn has_ending(folder: &Path, ending: &str) -> bool {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        collect(&folder, &mut files, &mut folders);
    }
    let mut names = files.iter().filter_map(|path| path.to_str());
    names.any(|name| name.ends_with(ending))
}

/// Adds the files below `folder` to `files`, but for those of the roots of pipelines, which are
/// added to `roots`.
fn collect(folder: &Path, files: &mut Vec<PathBuf>, roots: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        let is_hidden = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if files.len() >= MAX_ENTRIES || is_hidden {
            continue;
        }
        if path.is_dir() && is_root(&path) {
            roots.push(path);
        } else if path.is_dir() {
            collect(&path, files, roots);
        } else {
            files.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::{Pagination, source_text};

    #[test]
    fn folders_are_what_most_of_their_files_are() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        let given = folder.path().display().to_string();
        let of =
            || Location::new(&given).map(|found| (found.url.replace(&given, ""), found.content));
        put("README");
        let error = of().unwrap_err().to_string();
        assert!(error.contains("1 file looked at"), "{error}");
        put("a/1.csv");
        put("a/2.csv");
        put("notes.parquet");
        assert_eq!(of().unwrap(), ("/**/*.csv".into(), Content::Table));
        (0..4).for_each(|n| put(&format!("t{n}.txt")));
        assert_eq!(
            of().unwrap(),
            ("/*.txt".into(), Content::Texts { is_single: false })
        );
        (0..5).for_each(|n| put(&format!("cats/{n}.jpg")));
        // A folder of its own is no class.
        assert_eq!(
            of().unwrap(),
            (String::new(), Content::Images { has_classes: false })
        );
        put("dogs/1.jpg");
        assert_eq!(
            of().unwrap(),
            (String::new(), Content::Images { has_classes: true })
        );
        put("6.jpg");
        assert_eq!(
            of().unwrap(),
            (String::new(), Content::Images { has_classes: false })
        );
        let noted = || {
            let found = Location::new(&given).unwrap();
            found.unlabelled.unwrap().decision()
        };
        assert!(noted().starts_with("1 of 7 images is in no folder, such as `6.jpg`, so"));
        // One in ten may have no class.
        (2..5).for_each(|n| put(&format!("dogs/{n}.jpg")));
        assert_eq!(
            of().unwrap(),
            (String::new(), Content::Images { has_classes: true })
        );
        assert!(noted().starts_with("1 of 10 images is in no folder, such as `6.jpg`: without"));
    }

    #[test]
    fn all_files_that_are_not_read_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str| fs::write(folder.path().join(name), "x").unwrap();
        let given = folder.path().display().to_string();
        for name in ["1.txt", "2.txt", "3.txt", ".hidden"] {
            put(name);
        }
        let found = Location::new(&given).unwrap();
        assert_eq!(
            (found.left_out.as_deref(), found.decisions().len()),
            (None, 0)
        );
        for name in ["a.md", "b.md", "4.TXT", "page.html", "README"] {
            put(name);
        }
        let found = Location::new(&given).unwrap();
        let said = found.decisions().remove(0);
        assert!(
            said.starts_with("5 files of the folder are not read"),
            "{said}"
        );
        assert!(
            said.contains("alone: 2 `*.md`, 1 without an ending, 1 `*.TXT`, 1 `*.html`; change it"),
            "{said}"
        );
        let text = source_text(&found, &Pagination::default());
        assert!(
            text.contains("# 5 files of the folder are not read"),
            "{text}"
        );
    }

    #[test]
    fn files_beside_images_are_said() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str| fs::write(folder.path().join(name), "x").unwrap();
        let given = folder.path().display().to_string();
        for name in ["1.jpg", "2.jpg", "3.png", "4.jfif", "more.zip"] {
            put(name);
        }
        assert_eq!(Location::new(&given).unwrap().left_out, None);
        for name in ["labels.csv", "a.txt", "b.txt", "LICENSE"] {
            put(name);
        }
        let found = Location::new(&given).unwrap();
        assert_eq!(found.content, Content::Images { has_classes: false });
        assert_eq!(
            found.decisions().remove(0),
            "4 files of the folder are not read, since a source of images reads images alone: 2 `*.txt`, 1 without an ending, \
             1 `*.csv`; read them by another `[[source]]`"
        );
    }

    #[test]
    fn the_files_of_a_pipeline_that_has_run_are_no_data() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        let given = folder.path().display().to_string();
        let of = || Location::new(&given).map(|found| found.url.replace(&given, ""));
        put("feedline-data/a/landing/s/log/00000000000000000000.json");
        put("feedline-data/a/landing/s/data/0.parquet");
        put("feedline-data/a/dataset/manifest-000001.json");
        put("feedline-data/b/dataset/CURRENT");
        put("feedline-data/b/dataset/manifest-000001.json");
        let error = of().unwrap_err().to_string();
        assert!(error.contains("0 files looked at"), "{error}");
        put("rows.json");
        assert_eq!(of().unwrap(), "/*.json");
        put("more/rows.csv");
        put("more/others.csv");
        assert_eq!(of().unwrap(), "/**/*.csv");
        // The pattern would match the manifests.
        put("more/1.json");
        put("more/2.json");
        put("more/3.json");
        let error = of().unwrap_err().to_string();
        assert!(error.contains("feedline-data/a` too"), "{error}");
    }
}
