//! Splits of datasets without a manifest, found in the names of their folders and files.
//!
//! A split is named by a word of the path below the URL, where anything but a letter ends a word:
//! `data/train-00000-of-00001.parquet`, `val/index.json`, `imagenet-validation-000007.tar`. The words are those that Hugging
//! Face's `datasets` knows, and those with `set` behind them. Files of two splits are never read together: where the names do
//! not say which files belong to the split, nothing is read.

use std::collections::{BTreeMap, BTreeSet};

use feedline_schemas::manifest::Split;
use feedline_storage::Listed;

use crate::Error;

/// Words that name a split.
const WORDS: [(Split, &[&str]); 3] = [
    (Split::Train, &["train", "training", "trainset"]),
    (
        Split::Validation,
        &[
            "validation",
            "valid",
            "val",
            "dev",
            "validset",
            "valset",
            "devset",
        ],
    ),
    (
        Split::Test,
        &[
            "test",
            "testing",
            "eval",
            "evaluation",
            "testset",
            "evalset",
        ],
    ),
];

/// Most names in a message.
const NAMED: usize = 3;

/// The split that a loader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitChoice {
    /// This one. The manifest of our own shards has it; of other formats the names of files or folders must say which files
    /// belong to it, or the URL's last folder must be called so.
    Named(Split),
    /// `train` of our own shards. Of other formats the only split that the names of files or folders mention, `train` where
    /// they mention several, and all files where they mention none.
    Unnamed,
}

impl From<Split> for SplitChoice {
    fn from(split: Split) -> Self {
        Self::Named(split)
    }
}

impl SplitChoice {
    /// The split of a dataset with a manifest.
    pub(super) const fn of_manifest(self) -> Split {
        match self {
            Self::Named(split) => split,
            Self::Unnamed => Split::Train,
        }
    }
}

/// The files of a split.
#[derive(Debug)]
pub(super) struct SplitFiles {
    pub(super) split: Split,
    pub(super) files: Vec<Listed>,
    /// Folder that all of them are in, empty for the store's own.
    pub(super) folder: String,
    /// Files that belong to no split, where others do.
    pub(super) left_out: Vec<String>,
}

/// Files by the split that their names mention.
struct BySplit {
    of: [Vec<Listed>; 3],
    unknown: Vec<Listed>,
}

impl BySplit {
    fn new(files: Vec<Listed>) -> Self {
        let mut found = Self {
            of: [const { Vec::new() }; 3],
            unknown: Vec::new(),
        };
        for file in files {
            match split_in(&file.path) {
                Some(split) => found.of[index(split)].push(file),
                None => found.unknown.push(file),
            }
        }
        found
    }

    fn splits(&self) -> Vec<Split> {
        let splits = WORDS.iter().map(|(split, _)| *split);
        splits.filter(|s| !self.of[index(*s)].is_empty()).collect()
    }

    fn take(mut self, split: Split) -> SplitFiles {
        let files = std::mem::take(&mut self.of[index(split)]);
        SplitFiles {
            split,
            folder: common_folder(&files),
            files,
            left_out: self.unknown.into_iter().map(|file| file.path).collect(),
        }
    }

    fn take_all(self, split: Split) -> SplitFiles {
        SplitFiles {
            split,
            files: self.unknown,
            folder: String::new(),
            left_out: Vec::new(),
        }
    }

    /// The splits with their numbers of files, and files that name none.
    fn describe(&self) -> String {
        let count = |count: usize| match count {
            1 => "1 file".to_owned(),
            count => format!("{count} files"),
        };
        let splits = self.splits().into_iter();
        let splits = splits.map(|s| format!("`{s}` ({})", count(self.of[index(s)].len())));
        let mut parts: Vec<_> = splits.collect();
        if !self.unknown.is_empty() {
            let unknown = self.unknown.iter().map(|file| file.path.as_str());
            let names = list(unknown);
            parts.push(format!("no split ({}: {names})", count(self.unknown.len())));
        }
        parts.join(", ")
    }
}

/// Chooses the files to read of those found below `url`.
///
/// # Errors
/// [`Error::Config`], when the names do not say which files belong to the split.
pub(super) fn choose(
    url: &str,
    files: Vec<Listed>,
    choice: SplitChoice,
) -> Result<SplitFiles, Error> {
    let found = BySplit::new(files);
    let splits = found.splits();
    let refuse = |reason: String| {
        let key = "split";
        Err(Error::Config { key, reason })
    };
    match (choice, splits.as_slice()) {
        (SplitChoice::Named(split), []) => match split_of_url(url) {
            Some(of_url) if of_url == split => Ok(found.take_all(split)),
            Some(of_url) => refuse(format!(
                "it is `{split}`, and `{url}` is the folder of split `{of_url}`; give the folder of `{split}`, or \
                 leave `split` out to read this one"
            )),
            None => refuse(format!(
                "it is `{split}`, and no name in `{url}` says which split a file belongs to ({}); give the folder of \
                 that split as the URL, name folders or files `train`, `validation` and `test`, or leave `split` out \
                 to read all files",
                list(found.unknown.iter().map(|file| file.path.as_str()))
            )),
        },
        (SplitChoice::Named(split), splits) if splits.contains(&split) => Ok(found.take(split)),
        (SplitChoice::Named(split), _) => refuse(format!(
            "it is `{split}`, and the names of the files in `{url}` mention {}; use a split that they mention, or give \
             the folder of `{split}` as the URL",
            found.describe()
        )),
        (SplitChoice::Unnamed, []) => Ok(found.take_all(split_of_url(url).unwrap_or(Split::Train))),
        (SplitChoice::Unnamed, [only]) if found.unknown.is_empty() => {
            let only = *only;
            Ok(found.take(only))
        }
        (SplitChoice::Unnamed, splits) if splits.contains(&Split::Train) => {
            Ok(found.take(Split::Train))
        }
        (SplitChoice::Unnamed, _) => refuse(format!(
            "it is not given, and the names of the files in `{url}` mention {}, which are not read together; give \
             `split`, or a folder with files of one split as the URL",
            found.describe()
        )),
    }
}

/// The split that a path mentions; none where it mentions two.
pub(super) fn split_in(path: &str) -> Option<Split> {
    let words = path.split(|c: char| !c.is_alphabetic());
    let mut splits = words.filter_map(split_of_word);
    let first = splits.next()?;
    splits.all(|split| split == first).then_some(first)
}

/// The split that the last folder of a URL is called after.
fn split_of_url(url: &str) -> Option<Split> {
    url.trim_end_matches('/')
        .rsplit('/')
        .next()
        .and_then(split_of_word)
}

fn split_of_word(word: &str) -> Option<Split> {
    let is_named = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(word));
    let found = WORDS.iter().find(|(_, names)| is_named(names));
    found.map(|(split, _)| *split)
}

const fn index(split: Split) -> usize {
    match split {
        Split::Train => 0,
        Split::Validation => 1,
        Split::Test => 2,
    }
}

/// The folder that all files are in, however deep.
fn common_folder(files: &[Listed]) -> String {
    let folders = files.iter().map(|file| folder_of(&file.path));
    let common = folders.reduce(|a, b| {
        let same = a.split('/').zip(b.split('/')).take_while(|(a, b)| a == b);
        let length: usize = same.map(|(segment, _)| segment.len() + 1).sum();
        &a[..length.saturating_sub(1)]
    });
    common.unwrap_or_default().to_owned()
}

/// The folder of a path, empty for a file of the store's own.
pub(super) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The numbered parts that are missing beside the parts that exist, such as the second of `train-00000-of-00003.parquet` and
/// `train-00002-of-00003.parquet`: the first names, and how many there are. Parts count from 0, or from 1 where there is a
/// last one by that count and no first one by the other.
pub(super) fn missing_parts<'a>(paths: impl Iterator<Item = &'a str>) -> Option<MissingParts> {
    let mut sets: BTreeMap<NumberedParts<'a>, BTreeSet<u64>> = BTreeMap::new();
    for path in paths {
        if let Some((set, number)) = NumberedParts::read(path) {
            sets.entry(set).or_default().insert(number);
        }
    }
    let mut missing = MissingParts::default();
    for (set, numbers) in &sets {
        let first = u64::from(!numbers.contains(&0) && numbers.contains(&set.total));
        let all = first..set.total.saturating_add(first);
        let found = numbers.iter().filter(|number| all.contains(number));
        let lacking = set.total - found.count() as u64;
        missing.count = missing.count.saturating_add(lacking);
        let room = NAMED.saturating_sub(missing.names.len());
        let numbers = all.filter(|number| !numbers.contains(number));
        if lacking > 0 {
            missing
                .names
                .extend(numbers.take(room).map(|number| set.name(number)));
        }
    }
    (missing.count > 0).then_some(missing)
}

/// Numbered parts that do not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MissingParts {
    /// The first of their names.
    pub(super) names: Vec<String>,
    /// Their number.
    pub(super) count: u64,
}

/// Files that are called `<stem>-<number>-of-<total><ending>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NumberedParts<'a> {
    stem: &'a str,
    total: u64,
    ending: &'a str,
    /// Digits of a number.
    width: usize,
}

impl<'a> NumberedParts<'a> {
    /// The parts that a path is one of, and its number among them.
    fn read(path: &'a str) -> Option<(Self, u64)> {
        let (before, after) = path.rsplit_once("-of-")?;
        let is_other = |c: char| !c.is_ascii_digit();
        let (total, ending) = after.split_at(after.find(is_other).unwrap_or(after.len()));
        let (stem, number) = before.rsplit_once('-')?;
        if number.contains(is_other) {
            return None;
        }
        let set = Self {
            stem,
            total: total.parse().ok()?,
            ending,
            width: number.len(),
        };
        Some((set, number.parse().ok()?))
    }

    fn name(&self, number: u64) -> String {
        let Self {
            stem,
            total,
            ending,
            width,
        } = self;
        format!("{stem}-{number:0width$}-of-{total:0width$}{ending}")
    }
}

/// The first names, and how many there are when there are more.
pub(super) fn list<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = names.len();
    let first: Vec<_> = names.take(NAMED).map(|name| format!("`{name}`")).collect();
    match count {
        count if count > NAMED => format!("{}, .. {count} in all", first.join(", ")),
        _ => first.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<Listed> {
        let file = |path: &&str| Listed {
            path: (*path).to_owned(),
            bytes: 1,
            modified: None,
            etag: None,
        };
        paths.iter().map(file).collect()
    }

    fn paths(files: &SplitFiles) -> Vec<&str> {
        files.files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn parts_that_are_missing_by_their_numbers_are_named() {
        let of = |paths: &[&str]| missing_parts(paths.iter().copied());
        for complete in [
            &[
                "train-00000-of-00002.parquet",
                "train-00001-of-00002.parquet",
            ][..],
            &["train-1-of-2.tar", "train-2-of-2.tar"],
            &[
                "train-0.parquet",
                "train-2.parquet",
                "best-of-breed.parquet",
            ],
            &["a-x-of-3.parquet", "-of-.parquet", "a-1-of-.parquet"],
            &[],
        ] {
            assert_eq!(of(complete), None, "{complete:?}");
        }
        let found = of(&[
            "d/train-00000-of-00003.parquet",
            "d/train-00002-of-00003.parquet",
            "d/test-00000-of-00001.parquet",
        ]);
        let found = found.unwrap();
        assert_eq!(found.names, ["d/train-00001-of-00003.parquet"]);
        assert_eq!(found.count, 1);
        let vast = of(&["t-7-of-18446744073709551615.tar"]).unwrap();
        assert_eq!(vast.names.len(), 3);
        assert_eq!(vast.count, u64::MAX - 1);
    }

    #[test]
    fn the_usual_names_of_splits_are_known() {
        for (path, split) in [
            ("train-00000-of-00001.parquet", Some(Split::Train)),
            ("data/train-00000-of-00002.parquet", Some(Split::Train)),
            ("train2017/a.tar", Some(Split::Train)),
            ("Training/a.tar", Some(Split::Train)),
            ("default/validation/0000.parquet", Some(Split::Validation)),
            ("valid/a.tar", Some(Split::Validation)),
            ("imagenet-val-000000.tar", Some(Split::Validation)),
            ("dev.parquet", Some(Split::Validation)),
            ("data/test_set/a.parquet", Some(Split::Test)),
            ("eval-0.tar", Some(Split::Test)),
            ("test/test-0.tar", Some(Split::Test)),
            ("trainset.parquet", Some(Split::Train)),
            ("devset/a.tar", Some(Split::Validation)),
            ("my-testset.parquet", Some(Split::Test)),
            ("trainer/latest/valuation.parquet", None),
            ("part-00000.parquet", None),
            ("train/val-0.tar", None),
        ] {
            assert_eq!(split_in(path), split, "{path}");
        }
    }

    #[test]
    fn a_named_split_reads_its_files_and_nothing_else() {
        let all = [
            "data/train-0.parquet",
            "data/train-1.parquet",
            "data/val-0.parquet",
            "extra.parquet",
        ];
        let read = |split: Split| choose("memory:///d", files(&all), split.into());
        let train = read(Split::Train).unwrap();
        assert_eq!(paths(&train), all[..2]);
        assert_eq!((train.folder.as_str(), train.split), ("data", Split::Train));
        assert_eq!(train.left_out, ["extra.parquet"]);
        assert_eq!(paths(&read(Split::Validation).unwrap()), all[2..3]);
        let error = read(Split::Test).unwrap_err().to_string();
        assert!(
            error.contains(
                "it is `test`, and the names of the files in `memory:///d` mention `train` (2 files), `validation` (1 \
                 file), no split (1 file: `extra.parquet`)"
            ),
            "{error}"
        );
    }

    #[test]
    fn a_split_that_no_name_mentions_is_refused() {
        let all = files(&["a.tar", "b.tar", "c.tar", "d.tar"]);
        for split in Split::ALL {
            let error = choose("memory:///d", all.clone(), split.into()).unwrap_err();
            let text = error.to_string();
            let expected = format!("`split`: it is `{split}`, and no name in `memory:///d` says");
            assert!(text.contains(&expected), "{text}");
            assert!(
                text.contains("`a.tar`, `b.tar`, `c.tar`, .. 4 in all"),
                "{text}"
            );
        }
        let whole = choose("memory:///d", all, SplitChoice::Unnamed).unwrap();
        assert_eq!((whole.files.len(), whole.split), (4, Split::Train));
    }

    #[test]
    fn the_last_folder_of_the_url_names_the_split_of_files_that_name_none() {
        let read = |url: &str, choice| choose(url, files(&["a.tar"]), choice);
        let choice = SplitChoice::Named(Split::Validation);
        assert_eq!(read("s3://b/d/dev/", choice).unwrap().files.len(), 1);
        let error = read("s3://b/d/train", choice).unwrap_err().to_string();
        assert!(error.contains("is the folder of split `train`"), "{error}");
        let whole = read("s3://b/d/test", SplitChoice::Unnamed).unwrap();
        assert_eq!(whole.split, Split::Test);
    }

    #[test]
    fn without_a_split_the_only_one_or_train_is_read_and_others_are_never_mixed() {
        let read = |paths: &[&str]| choose("memory:///d", files(paths), SplitChoice::Unnamed);
        assert_eq!(
            read(&["test/a.tar", "test/b.tar"]).unwrap().split,
            Split::Test
        );
        let train = read(&["test.tar", "train.tar", "val.tar"]).unwrap();
        assert_eq!(paths(&train), ["train.tar"]);
        for mixed in [&["test.tar", "val.tar"][..], &["a.tar", "test.tar"]] {
            let error = read(mixed).unwrap_err().to_string();
            assert!(error.contains("`split`: it is not given"), "{error}");
        }
    }
}
